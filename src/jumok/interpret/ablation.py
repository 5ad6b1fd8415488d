"""Ablation: what a model loses without some of its heads.

The output of a head is set to zero at the seam, and the loss and the next token are computed again ("Are Sixteen Heads
Really Better than One?", https://arxiv.org/abs/1905.10650). Attention weights alone do not show that a head matters
(https://arxiv.org/abs/1902.10186). Other heads may compensate for an ablated one (https://arxiv.org/abs/2307.15771),
so a small change does not prove that a head did nothing.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.config import require_count
from jumok.errors import ConfigError, ViewError
from jumok.interpret.heads import Head, heads_of
from jumok.interpret.record import attention_layers
from jumok.interpret.text_loss import Passage
from jumok.messages import tr
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import MOST_LOGITS
from jumok.models.modes import eval_mode

LARGEST_BATCH = 16  # copies of a text with different heads switched off


@contextmanager
def ablate(model: Model, heads: Iterable[tuple[str, int, int] | tuple[int, int]]) -> Iterator[None]:
    """Switch heads off inside the block: they add nothing to the residual stream but the bias of the layer.

    The model itself is not changed; the hooks are removed at the end, also after an error.

    Args:
        heads: (block, layer, head) each, or (layer, head) for a GPT or a BERT.

    Raises:
        ConfigError: the model has no such head.
        ViewError: the model did not run inside the block, or a compiled copy of it did, which hooks do not reach.
    """
    off = [_checked(model, head) for head in heads]
    keep = {
        place: torch.tensor([[Head(*place, head) not in off for head in range(attention.n_head)]])  # (1, H)
        for place, attention in attention_layers(model).items()
        if any((head.block, head.layer) == place for head in off)
    }
    with _kept(model, keep):
        yield


@contextmanager
def _kept(model: Model, keep: Mapping[tuple[str, int], Tensor]) -> Iterator[None]:
    """Keep only some heads. keep: for a layer (B, H) or (1, H), bool."""
    reached = set()

    def silence(place: tuple[str, int], module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        reached.add(place)
        return output.masked_fill(~keep[place].to(output.device)[:, :, None, None], 0.0)  # (B, H, T, D)

    layers = attention_layers(model)
    hooks = [layers[place].attend.register_forward_hook(partial(silence, place)) for place in keep]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if keep and not reached:
        raise ViewError(
            "no head was switched off: the model did not run inside the block, or a compiled copy of it did. Run the "
            "model itself, not what torch.compile made of it."
        )


def _checked(model: Model, head: tuple[str, int, int] | tuple[int, int]) -> Head:
    if len(head) == 2:
        if isinstance(model, EncoderDecoder):
            raise ConfigError(
                "head {head} names no block; an encoder–decoder has several: ('cross', 0, 1) for example.", head=head
            )
        head = ("self", *head)
    if head not in heads_of(model):
        layers = attention_layers(model)
        last_layers = dict(layers.keys())  # by block
        there = ", ".join(
            tr("{block!r} with layers 0 to {last}", block=block, last=last) for block, last in last_layers.items()
        )
        raise ConfigError(
            "there is no head {head}; this model has {blocks}, and heads 0 to {last} in each.",
            head=head,
            blocks=there or tr("none"),
            last=next(iter(layers.values())).n_head - 1 if layers else -1,
        )
    return Head(*head)


class Effect(NamedTuple):
    """A head, and by how many nats per token the loss grows without it; below zero the loss falls."""

    head: Head
    delta_nats: float


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The effect of each head on the loss of a text. nats: the loss per token with all heads. tokens: their number.

    effects: of every head, the largest first.
    """

    nats: float
    tokens: int
    effects: tuple[Effect, ...]


def losses_without(passage: Passage, heads: Sequence[Head]) -> list[float]:
    """Return the loss of a passage without each of these heads, one at a time, in nats per token."""
    model, (rows, width) = passage.model, passage.inputs.shape
    size = max(1, min(LARGEST_BATCH, MOST_LOGITS // (rows * width * model.config.vocab_size)))
    layers = attention_layers(model)
    losses: list[float] = []
    with eval_mode(model), torch.inference_mode():
        for first in range(0, len(heads), size):
            batch = heads[first : first + size]
            keep: dict[tuple[str, int], Tensor] = {}
            for row, head in enumerate(batch):
                place = head.block, head.layer
                everything = torch.ones(len(batch) * rows, layers[place].n_head, dtype=torch.bool)  # (B*R, H)
                keep.setdefault(place, everything)[row * rows : (row + 1) * rows, head.head] = False
            with _kept(model, keep):
                losses += passage.losses(len(batch)).tolist()
    return losses


def ranking(model: Model, text: str | Passage, target: str | None = None) -> Ranking:
    """Ablate each head in turn, and measure by how much the loss of a text grows.

    Args:
        model: a GPT, a BERT with head="mlm", or an encoder–decoder. text, target: see `Passage.of`.

    Raises:
        ViewError, TextError, ConfigError: see `Passage`.
    """
    passage = text if isinstance(text, Passage) else Passage.of(model, text, target)
    heads, nats = heads_of(model), passage.nats()
    effects = [
        Effect(head, without - nats) for head, without in zip(heads, losses_without(passage, heads), strict=True)
    ]
    effects.sort(key=lambda effect: -effect.delta_nats)
    return Ranking(nats=nats, tokens=len(passage.targets), effects=tuple(effects))


class NextToken(NamedTuple):
    """A token that may come next, readable, and its probability with all heads and without some."""

    token: str
    probability: float
    without: float


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What ablating heads together changes for a text.

    nats, nats_without: the loss per token. candidates: the likeliest next tokens after the text, or after the
    target of an encoder–decoder before its [EOS]: those with all heads, then those that are likely only without. Empty
    for a BERT.
    """

    nats: float
    nats_without: float
    candidates: tuple[NextToken, ...]


def ablation(
    model: Model,
    text: str | Passage,
    heads: Iterable[tuple[str, int, int] | tuple[int, int]],
    *,
    target: str | None = None,
    top: int = 10,
) -> Ablation:
    """Ablate heads, all at once, and measure what changes for a text.

    Args:
        model, text, target: see `Passage.of`. heads: see `ablate`. top: how many next tokens to compare.

    Raises:
        As `Passage` and `ablate`; ConfigError if `top` is below 1.
    """
    require_count("top", top, 1)
    passage = text if isinstance(text, Passage) else Passage.of(model, text, target)
    nats, before = passage.nats(), passage.next_probabilities()
    with ablate(model, heads):
        nats_without, after = passage.nats(), passage.next_probabilities()
    candidates: tuple[NextToken, ...] = ()
    if before is not None and after is not None:
        likeliest = [shares.topk(min(top, len(shares))).indices.tolist() for shares in (before, after)]
        order = list(dict.fromkeys(likeliest[0] + likeliest[1]))
        names = require_tokenizer(model).pieces(order)
        candidates = tuple(
            NextToken(name, float(before[token]), float(after[token])) for name, token in zip(names, order, strict=True)
        )
    return Ablation(nats=nats, nats_without=nats_without, candidates=candidates)
