"""Korean corpora: a catalogue of downloads, and generated stories and numbers."""
