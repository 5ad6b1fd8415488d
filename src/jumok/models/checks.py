"""Checks of models in use: the tokenizer, and finite numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jumok.config import ModelConfig
from jumok.errors import JumokError, TokenizerError
from jumok.tokenizers import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


class Described(Protocol):
    """What all models have, those of torch and those of the C++ step: a configuration, and perhaps a tokenizer."""

    @property
    def config(self) -> ModelConfig:
        """The architecture."""

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What makes ids of texts."""


def require_tokenizer(model: Described) -> Tokenizer:
    """Return the tokenizer of a model.

    Raises:
        TokenizerError: the model has no tokenizer, or one with more ids than the model.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise TokenizerError(
            "this model has no tokenizer; put its tokenizer.json into the folder, or set model.tokenizer in Python."
        )
    if tokenizer.vocab_size > model.config.vocab_size:
        raise TokenizerError(
            "the tokenizer has {vocab_size} ids, the model only {model_size}; use the tokenizer that "
            "the model was trained with.",
            vocab_size=tokenizer.vocab_size,
            model_size=model.config.vocab_size,
        )
    return tokenizer


def require_finite(numbers: Tensor | float) -> None:
    """Raise JumokError unless all parameters, logits or losses of a model are finite."""
    import torch

    if not bool(torch.as_tensor(numbers).isfinite().all()):
        raise not_finite()


def not_finite() -> JumokError:
    """Return the error for numbers of a model that are not finite."""
    return JumokError(
        "the model's numbers are not finite: its parameters are damaged or its training diverged. Train again with a "
        "lower learning rate, or load an earlier copy."
    )
