"""Checks of models in use: the tokenizer, and finite logits and losses."""

from __future__ import annotations

import math

from torch import Tensor

from jumok.errors import JumokError, TokenizerError
from jumok.models import Model
from jumok.tokenizers import Tokenizer


def require_tokenizer(model: Model) -> Tokenizer:
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


def require_finite_parameters(model: Model) -> None:
    """Raise JumokError unless all parameters are finite."""
    if not all(bool(one.isfinite().all()) for one in model.parameters()):
        raise JumokError(
            "the parameters of this model are not finite: they are damaged, or its training diverged. Train again "
            "with a lower learning rate, or load an earlier copy."
        )


def not_finite() -> JumokError:
    """Return the error for logits that are not finite."""
    return JumokError(
        "the model's logits are not finite, so it cannot generate text: its parameters are damaged or its training "
        "diverged. Train again with a lower learning rate, or load an earlier copy."
    )


def finite_rows(logits: Tensor) -> Tensor:
    """Return which rows contain only finite numbers: (B, V) -> (B,), bool."""
    return logits.isfinite().all(dim=-1)


def require_finite(logits: Tensor) -> None:
    """Raise JumokError unless all logits are finite."""
    if not bool(logits.isfinite().all()):
        raise not_finite()


def require_finite_losses(nats: float) -> None:
    """Raise JumokError if a sum of losses, in nats, is not finite."""
    if not math.isfinite(nats):
        raise JumokError(
            "the model's losses are not finite: its parameters are damaged or its training diverged. "
            "Train again with a lower learning rate, or load an earlier copy."
        )
