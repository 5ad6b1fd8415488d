"""What attention does in a model: recordings, scores of heads, ablation."""
