"""Use a trained model: write, answer, fill blanks, classify."""
