"""The models, each built from the same blocks."""
