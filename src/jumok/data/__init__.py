"""Ids of texts, and batches of them."""
