"""Subscribers of the events of a run: log files, pictures, and the progress in a terminal or a notebook."""
