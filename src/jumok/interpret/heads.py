"""The heads of a model, and what their attention weights show: profiles, and scores on repeated random tokens.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.config import require_range
from jumok.errors import ViewError
from jumok.interpret.record import attention_layers, record
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.models.special_ids import frame_of

LEAST_REPEATED = 4  # positions that a repeated sequence needs
LONGEST_REPEATED = 32  # tokens of the part that comes twice
SEQUENCES = 4


class Head(NamedTuple):
    """One head. block: "self" of a GPT or a BERT, or "encoder", "decoder" or "cross". Layer and head count from 0."""

    block: str
    layer: int
    head: int


def heads_of(model: Model) -> tuple[Head, ...]:
    """Return all heads of a model, in its order."""
    return tuple(
        Head(block, layer, head)
        for (block, layer), attention in attention_layers(model).items()
        for head in range(attention.n_head)
    )


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Five numbers for each head, (...,) each: means over the queries; see `profile`."""

    entropy: Tensor
    distance: Tensor
    first: Tensor
    previous: Tensor
    self: Tensor


def profile(weights: Tensor) -> Profile:
    """Summarise the attention weights of each head in five numbers.

    Args:
        weights: (..., T, S), rows that sum to one; the queries are the last T of S positions. Rows of zeros, of queries
            that may attend to nothing, are left out.

    Returns:
        Each (...,), float32 or better; NaN where no query has such a token:

        - entropy: of a row, in nats. It is 0 where one token gets all, ln n where n tokens get the same.
        - distance: `|query - key|` weighted, in tokens. Between two texts, as in cross-attention, it means little.
        - first, previous, self: the weight of the first token, of the one before the query, and of the query itself.
          The first token is often an attention sink (https://arxiv.org/abs/2309.17453).
    """
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    t, s = weights.shape[-2:]
    here = torch.arange(s - t, s, device=weights.device)  # (T,), positions of the queries
    away = (here[:, None] - torch.arange(s, device=weights.device)).abs()  # (T, S)
    attends = weights.sum(dim=-1) != 0  # (..., T); also where there is NaN, which stays
    has_previous = attends & (here > 0)
    own = weights.gather(-1, here.clamp(min=0)[:, None].expand(*weights.shape[:-1], 1))[..., 0]  # (..., T)
    before = weights.gather(-1, (here - 1).clamp(min=0)[:, None].expand(*weights.shape[:-1], 1))[..., 0]  # (..., T)
    return Profile(
        entropy=_mean(torch.special.entr(weights).sum(dim=-1), attends),
        distance=_mean((weights * away).sum(dim=-1), attends),
        first=_mean(weights[..., 0], attends),
        previous=_mean(before, has_previous),
        self=_mean(own, attends & (here >= 0)),
    )


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Return the mean of those that count: (..., T) -> (...,); NaN where none does."""
    return values.where(counted, 0.0).sum(dim=-1) / counted.sum(dim=-1)


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """Attention of the heads of a GPT on random tokens that come twice: mean weights from 0 to 1, (n_layer, H) each.

    previous: of the token before the query. induction: of the token *after* the earlier occurrence of the query, which
    comes next if the text repeats itself.
    """

    previous: Tensor
    induction: Tensor


def repetition(model: Model) -> Repetition:
    """Score previous-token heads and induction heads on random tokens that come twice, the same for each call.

    A previous-token head and an induction head above it continue a repeated sequence, the simplest form of in-context
    learning (https://arxiv.org/abs/2209.11895). The tokens are random, so only their repetition predicts the next one.

    Args:
        model: a GPT; it runs where it is, in eval mode meanwhile.

    Raises:
        ConfigError: its context has no room. ViewError: the model is no GPT, or has no attention.
    """
    if not isinstance(model, GPT):
        raise ViewError(
            "repeated tokens are a test for models that write from left to right, and this one is of "
            "the kind {kind}; give a GPT.",
            kind=type(model).__name__,
        )
    start = () if model.tokenizer is None else frame_of(model.config, model.tokenizer).before
    require_range("context_length", model.config.context_length, len(start) + LEAST_REPEATED)
    length = min(LONGEST_REPEATED, (model.config.context_length - len(start)) // 2)
    ordinary = torch.tensor(_ordinary_ids(model))  # (N,)
    random = torch.Generator().manual_seed(0)
    # None of them twice in one part, while there are enough of them.
    shuffled = [torch.randperm(len(ordinary), generator=random) for _ in range(SEQUENCES)]
    once = ordinary[torch.stack(shuffled)[:, torch.arange(length) % len(ordinary)]]  # (B, L)
    begin = torch.tensor(start, dtype=torch.int64).expand(SEQUENCES, -1)  # (B, S), what a text begins with
    ids = torch.cat((begin, once, once), dim=1).to(model.token_embedding.weight.device)  # (B, S + 2*L)
    with eval_mode(model), torch.inference_mode(), record(model) as recording:
        model.hidden(ids)
    at = torch.arange(len(start), len(start) + 2 * length)
    previous, induction = [], []
    for attention in recording.attentions:
        weights = attention.weights().float()  # (B, H, S + 2*L, S + 2*L)
        previous.append(weights[..., at[1:], at[:-1]].mean(dim=(0, 2)))  # (H,)
        induction.append(weights[..., at[length:], at[1 : length + 1]].mean(dim=(0, 2)))  # (H,)
    return Repetition(previous=torch.stack(previous).cpu(), induction=torch.stack(induction).cpu())


def _ordinary_ids(model: Model) -> list[int]:
    """Return the ids that stand for text."""
    if model.tokenizer is None:
        return list(range(model.config.vocab_size))
    tokenizer = require_tokenizer(model)
    special = set(tokenizer.special_tokens.values())
    return [token for token in range(tokenizer.vocab_size) if token not in special]
