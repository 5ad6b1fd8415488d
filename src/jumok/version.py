"""The version of jumok."""

__version__ = "0.1.0"
