"""What a model is trained for: which batches, which loss, which figures. The trainer's loop is the same for all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from jumok.config import GPTConfig, TrainConfig
from jumok.data import Batches, Ids
from jumok.evaluate import score
from jumok.generate import generate, require_tokenizer, start_id
from jumok.models.gpt import GPT, token_losses


class Task(Protocol):
    """What the trainer asks of a task."""

    tokens_per_batch: int
    validation_tokens: int

    @property
    def has_validation(self) -> bool:
        """Whether anything is held out."""

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Batch `number` of the run, from 0; the same number gives the same batch."""

    def loss(self, model: GPT, batch: tuple[Tensor, ...]) -> Tensor:
        """The mean training loss of one batch, a scalar."""

    def compile(self) -> None:
        """Compile what `loss` computes outside the model's blocks."""

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Figures on the held-out part, reading about `max_tokens` evenly spread tokens; "loss" is what decides."""

    def final(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """The figures to quote, with as much context for each token as is affordable."""

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """Something for people to read."""


class LanguageModelling:
    """Predict each next token of a text.

    Args:
        train, val: ids of the two parts of the text; val may be empty.
        val_chars, val_bytes: size of the held-out part, in characters and in bytes of UTF-8.
        floor: nats per character that no model can beat on the held-out part, where that is known.
    """

    def __init__(
        self,
        train: Ids,
        val: Ids,
        *,
        val_chars: int,
        val_bytes: int,
        floor: float | None,
        model: GPTConfig,
        config: TrainConfig,
    ) -> None:
        self.batches = Batches(train, model.context_length, config.batch_size, config.seed)
        self.val, self.val_chars, self.val_bytes, self.floor = val, val_chars, val_bytes, floor
        self.tokens_per_batch = config.batch_size * model.context_length
        self.validation_tokens = len(val)
        self._token_losses: Callable[[Tensor, Tensor, Tensor], Tensor] = token_losses

    @property
    def has_validation(self) -> bool:
        """Whether a part of the text is held out."""
        return self.validation_tokens > 0

    def compile(self) -> None:
        """Fuse the output layer with the loss, so that the logits are read once."""
        self._token_losses = torch.compile(token_losses, dynamic=False)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Inputs and targets, (B, T) each."""
        return self.batches.batch(number)

    def loss(self, model: GPT, batch: tuple[Tensor, ...]) -> Tensor:
        """Mean cross-entropy in nats per token."""
        ids, targets = batch
        return self._token_losses(model.hidden(ids), model.head.weight, targets).mean()

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Nats per character and per token on windows that do not overlap: quick, and a little pessimistic."""
        return self._figures(model, max_tokens, stride=model.config.context_length)

    def final(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """As `validate`, each token with at least three quarters of a context before it."""
        return self._figures(model, max_tokens, stride=max(1, model.config.context_length // 4))

    def _figures(self, model: GPT, max_tokens: int, stride: int) -> dict[str, float]:
        before = start_id(require_tokenizer(model))
        limit = max(1, max_tokens // model.config.context_length)
        nats, tokens = score(model, self.val, stride=stride, max_windows=limit, before=before)
        per_token = nats / tokens
        per_char = per_token * len(self.val) / self.val_chars
        figures = {
            "loss": per_char,
            "nats_per_char": per_char,
            "bits_per_char": per_char / math.log(2),
            "bits_per_byte": per_char / math.log(2) * self.val_chars / self.val_bytes,
            "loss_per_token": per_token,
            "perplexity": math.exp(min(per_token, 700.0)),
            "tokens": tokens,
        }
        return figures if self.floor is None else {**figures, "floor": self.floor}

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """A text begun from nothing."""
        return generate(model, "", tokens=tokens, seed=seed)[0].text
