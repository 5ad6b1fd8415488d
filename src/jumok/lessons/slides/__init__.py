"""Slides of a chapter: `deck.py` makes them from its Markdown, `pages.py` writes them as HTML or for Marp."""
