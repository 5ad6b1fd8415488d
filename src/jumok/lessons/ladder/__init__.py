"""The ladder: one text, six models, each with one more part of a Transformer."""
