"""How the command line looks in a terminal: help, messages, progress and tables."""
