"""The desk of the server's page: the runs of a folder, followed as they train, and the one training that it starts.

Everything is read from the run folders; the server keeps nothing but what it has read so far.
"""
