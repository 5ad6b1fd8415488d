"""jumok (주목, "attention!")."""
