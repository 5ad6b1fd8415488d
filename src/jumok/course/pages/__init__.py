"""Read the chapters and show them: in a terminal, as a notebook, as a page, as slides."""
