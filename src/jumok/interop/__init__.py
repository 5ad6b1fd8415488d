"""Import and export of model formats of other programs."""
