"""The ladder: models that each have one more part of a Transformer, trained on the same text and measured."""
