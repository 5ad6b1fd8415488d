"""Pictures of a run and of a model."""
