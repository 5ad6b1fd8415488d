"""Files of token ids, and batches."""
