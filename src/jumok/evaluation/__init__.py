"""Figures of a model: on text, on masked tokens, on labels, on targets; and baselines beside them."""
