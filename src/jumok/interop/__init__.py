"""Ways to and from the formats of other programs."""

from __future__ import annotations

from jumok.interop.hf import from_hf, to_hf

__all__ = ["from_hf", "to_hf"]
