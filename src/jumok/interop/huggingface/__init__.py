"""Import and export of Hugging Face model folders."""

from __future__ import annotations

from jumok.interop.huggingface.convert import from_hf, shape_of, to_hf

__all__ = ["from_hf", "shape_of", "to_hf"]
