"""The class of which all models are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from torch import nn

from jumok.config import ModelConfig
from jumok.models.size_checks import require_memory_for_model

if TYPE_CHECKING:
    from jumok.tokenizers import Tokenizer

C = TypeVar("C", bound=ModelConfig)


class ConfiguredModel(nn.Module, Generic[C]):
    """A model of a configuration, perhaps with a tokenizer.

    Args:
        config: the architecture, with the size of the vocabulary.

    Raises:
        ConfigError: the vocabulary has no size, or there is too little memory.
    """

    tokenizer: Tokenizer | None = None  # set by `jumok.load`, for functions that take text

    def __init__(self, config: C) -> None:
        config.require_vocabulary()
        require_memory_for_model(config)
        super().__init__()
        self.config = config

    def parameter_count(self) -> int:
        """Return the number of parameters; a shared matrix counts once."""
        return sum(p.numel() for p in self.parameters())
