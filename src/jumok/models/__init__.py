"""The models, all made of the same blocks. `build` creates the model of a configuration.

Writing with the C++ step needs no torch, but some modules of this package. So the names that need torch are imported
when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumok.config import ModelConfig
from jumok.lazy import lazily
from jumok.models.size_checks import most_texts, require_memory_for_model, require_memory_for_texts, require_stored

if TYPE_CHECKING:
    from jumok.models.registry import MODELS, Model, build, build_blank
else:
    __getattr__ = lazily(__name__, {"registry": "MODELS Model build build_blank"})

__all__ = [
    "MODELS",
    "Model",
    "ModelConfig",
    "build",
    "build_blank",
    "most_texts",
    "require_memory_for_model",
    "require_memory_for_texts",
    "require_stored",
]
