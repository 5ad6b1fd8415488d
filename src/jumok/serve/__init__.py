"""`jumok serve`: runs behind an HTTP API that existing clients of OpenAI's API can talk to."""
