"""Figures of a model: on text, on hidden tokens, on labels, on targets; and baselines beside them."""
