"""Formats of other programs, in and out."""
