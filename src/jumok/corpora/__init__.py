"""Korean text to start from."""
