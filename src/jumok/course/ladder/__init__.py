"""The ladder: ten models, each with one more part of a Transformer, trained on the same text and measured."""
