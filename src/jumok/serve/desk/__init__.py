"""The desk of the playground: run folders as they train, new runs, ladders.

Everything is read from the folders; the server keeps nothing but what it has read so far.
"""
