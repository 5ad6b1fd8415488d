"""An HTTP server for models: OpenAI's API for what writes, and jumok's own for the rest."""
