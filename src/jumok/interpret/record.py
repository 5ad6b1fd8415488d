"""Record attention: q, k, v and masks of each layer, taken at the seam while the model runs.

>>> with record(model) as recording:
...     model(ids)
>>> recording.attentions[0].weights()  # (B, H, T, S)

Hooks on `ScaledDotProductAttention` (`jumok.nn.attention`) keep q, k, v and the mask of each call, and are removed
when the block ends, also by an error. They do not change what the model computes. Weights are computed from q and k
each time they are asked for, so a recording is as small as its keys and queries.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor, nn

from jumok.errors import ConfigError, ViewError
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, attention_weights, causal_mask
from jumok.nn.blocks import Block

BlockKind = Literal["self", "encoder", "decoder", "cross"]


class AttentionRecord:
    """What one attention layer computed on the last sequence.

    With a cache, each call appends its queries; T counts all that were recorded, and they are the last T of S
    positions. A call that begins a new sequence replaces the one before.

    Attributes:
        name: of the layer in its model, "blocks.3.attention".
        block: "self" (GPT, BERT), or "encoder", "decoder" and "cross" of an encoder–decoder. layer: from 0.
        n_head, n_kv_head, head_dim: H, G and D of the layer. heads: which of the H were kept.
        causal: whether a query attends to no later key.
    """

    def __init__(
        self,
        name: str,
        block: BlockKind,
        layer: int,
        source: MultiHeadAttention,
        heads: tuple[int, ...],
        keeps_values: bool,
    ) -> None:
        self.name, self.block, self.layer, self.heads = name, block, layer, heads
        self.n_head, self.n_kv_head, self.head_dim = source.n_head, source.n_kv_head, source.head_dim
        self.causal = False
        self._keeps_values = keeps_values
        self._q, self._k, self._v = _Rows(), _Rows(), _Rows()
        self._masks: list[tuple[Tensor | None, int, int]] = []  # of each call, with its T and S
        self._reordered = False

    def __repr__(self) -> str:
        return f"AttentionRecord({self.name!r}, heads={list(self.heads)}, t={self.t}, s={self.s})"

    @property
    def t(self) -> int:
        """Number of queries, T."""
        return self._q.length

    @property
    def s(self) -> int:
        """Number of keys, S."""
        return self._k.length

    @property
    def q(self) -> Tensor:
        """Queries, after norm and rotation: (B, H, T, D), H being the heads that were kept."""
        return self._read(self._q)

    @property
    def k(self) -> Tensor:
        """Keys: (B, G, S, D). Where only some heads were kept, one for each of them: (B, H, S, D)."""
        return self._read(self._k)

    @property
    def v(self) -> Tensor:
        """Values, of the shape of `k`.

        Raises:
            ConfigError: they were not asked for.
        """
        if not self._keeps_values:
            raise ConfigError("the values were not recorded; ask for them with record(model, values=True).")
        return self._read(self._v)

    @property
    def mask(self) -> Tensor | None:
        """What may be attended to, besides causality: bool, broadcastable to (B, H, T, S); None: everything."""
        if all(mask is None for mask, _, _ in self._masks):
            return None
        rows = []
        for mask, t, s in self._masks:
            allowed = torch.ones(t, s, dtype=torch.bool, device=self.q.device) if mask is None else mask
            allowed = allowed.expand(*allowed.shape[:-2], t, s)
            rows.append(nn.functional.pad(allowed, (0, self.s - s)))  # (..., T, S)
        shape = torch.broadcast_shapes(*(row.shape[:-2] for row in rows))
        return torch.cat([row.expand(*shape, *row.shape[-2:]) for row in rows], dim=-2)

    def weights(self, head: int | None = None, rows: slice = slice(None)) -> Tensor:
        """Return the attention weights, computed now.

        Args:
            head: one head, by its number in the layer; None: all that were kept.
            rows: some of the queries, slice(-1, None) for the last.

        Returns:
            (B, H, T, S), H = 1 for one head, of the type the model computed in. Rows sum to one, and are all zeros
            where a query may attend to nothing; a NaN stays a NaN.

        Raises:
            ConfigError: the head was not recorded. ViewError: see `Recording.attentions`.
        """
        q, k, mask = self.q, self.k, self.mask
        if head is not None:
            if head not in self.heads:
                raise ConfigError(
                    "head={head!r} of {name} was not recorded; there are {heads}.",
                    head=head,
                    name=self.name,
                    heads=list(self.heads),
                )
            place = self.heads.index(head)
            shared = q.shape[1] // k.shape[1]  # heads that a key head serves
            q, k = q[:, place : place + 1], k[:, place // shared : place // shared + 1]
            mask = mask[:, place : place + 1] if mask is not None and mask.dim() == 4 and mask.shape[1] > 1 else mask
        if rows == slice(None):
            return attention_weights(q, k, mask, self.causal)
        if self.causal:  # of fewer queries the mask is a part of the whole one
            triangle = causal_mask(self.t, self.s, q.device)
            mask = triangle if mask is None else mask & triangle
        if mask is not None:
            mask = mask.expand(*mask.shape[:-2], self.t, self.s)[..., rows, :]
        return attention_weights(q[:, :, rows], k, mask)

    def _read(self, rows: _Rows) -> Tensor:
        if self._reordered:
            raise ViewError(
                "the rows of the batch were exchanged while {name} was recorded, as a beam search does, "
                "so what was recorded before belongs to other texts; generate first, then record one "
                "pass over the generated text.",
                name=self.name,
            )
        return rows.joined()

    def _add(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, beside: AttentionRecord | None
    ) -> None:
        """Add a call. beside: for cross-attention, the self-attention of the same block, which came before it."""
        t, s = q.shape[-2], k.shape[-2]
        if len(self.heads) < self.n_head:
            picked = torch.tensor(self.heads, device=q.device)
            shared = self.n_head // self.n_kv_head
            q, k, v = q[:, picked], k[:, picked // shared], v[:, picked // shared]
            mask = mask[:, picked] if mask is not None and mask.dim() == 4 and mask.shape[1] > 1 else mask
        goes_on = causal and 0 < self.s == s - t
        if beside is not None:
            goes_on = 0 < self.t == beside.t - t or beside._reordered
        if not goes_on:
            self._q, self._k, self._v, self._masks, self._reordered = _Rows(), _Rows(), _Rows(), [], False
        elif q.shape[0] != self._q.batch or not self._k.begins(k):
            self._reordered = True
        self.causal = causal
        if self._reordered:
            return
        self._q.append(q.detach())
        if not goes_on or beside is None:
            # Copied: with a cache they are views of a buffer that later calls write to.
            new = slice(self.s, None)
            self._k.append(k[:, :, new].detach().clone())
            if self._keeps_values:
                self._v.append(v[:, :, new].detach().clone())
        self._masks.append((mask, t, s))


class _Rows:
    """Rows along the third dimension, (B, H, n, D), that grow without being copied anew for each."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []
        self.length = 0

    @property
    def batch(self) -> int:
        return self._parts[0].shape[0]

    def append(self, rows: Tensor) -> None:
        self._parts.append(rows)
        self.length += rows.shape[2]
        while len(self._parts) > 1 and self._parts[-2].shape[2] <= self._parts[-1].shape[2]:
            self._parts[-2:] = [torch.cat(self._parts[-2:], dim=2)]

    def joined(self) -> Tensor:
        if len(self._parts) > 1:
            self._parts = [torch.cat(self._parts, dim=2)]
        return self._parts[0]

    def begins(self, rows: Tensor) -> bool:
        """Return whether these are the first of `rows`."""
        start = 0
        for part in self._parts:
            stop = start + part.shape[2]
            if not torch.equal(part, rows[:, :, start:stop]):
                return False
            start = stop
        return True


class Recording:
    """What `record` yields; it may be read as soon as the model ran, and after the block."""

    def __init__(self) -> None:
        self._records: list[AttentionRecord] = []
        self._streams: dict[str, list[_Stream]] | None = None

    @property
    def attentions(self) -> tuple[AttentionRecord, ...]:
        """The layers that ran, in the order of the model.

        Raises:
            ViewError: none did.
        """
        return tuple(entry for entry in self._records if entry.t) or self._nothing()

    def attention(self, block: BlockKind, layer: int) -> AttentionRecord:
        """One layer.

        Raises:
            ConfigError: it was not recorded. ViewError: nothing was.
        """
        found = {(record.block, record.layer): record for record in self.attentions}
        if (block, layer) not in found:
            there = ", ".join(f"{kind} {number}" for kind, number in found)
            raise ConfigError(
                "the attention {block} {layer} was not recorded; there are {there}.",
                block=block,
                layer=layer,
                there=there,
            )
        return found[block, layer]

    @property
    def residual(self) -> dict[str, list[Tensor]]:
        """The residual stream by "self", "encoder" or "decoder": what enters the first block, then what leaves each.

        Of all layers, (B, T, C) each, whichever layers of attention were asked for.

        Raises:
            ConfigError: it was not asked for. ViewError: nothing was recorded.
        """
        if self._streams is None:
            raise ConfigError("the residual stream was not recorded; ask for it with record(model, residual=True).")
        found = {name: [one.rows.joined()[:, 0] for one in streams] for name, streams in self._streams.items()}
        return found or self._nothing()

    def _nothing(self) -> NoReturn:
        raise ViewError(
            "nothing was recorded: call the model inside the `with` block. A compiled model runs without its hooks; "
            "load the model again, and record it before it is compiled."
        )


class _Stream:
    """One place of the residual stream: its rows, and the position behind the last of them."""

    def __init__(self) -> None:
        self.rows, self.end = _Rows(), 0

    def add(self, x: Tensor, past: int) -> None:
        """Add x, (B, T, C), before which there are `past` positions."""
        if not (0 < past == self.end and self.rows.batch == len(x)):
            self.rows = _Rows()
        self.rows.append(x.detach()[:, None])  # (B, 1, T, C)
        self.end = past + x.shape[1]


@contextmanager
def record(
    model: Model,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    residual: bool = False,
    values: bool = True,
) -> Iterator[Recording]:
    """Record the attention of a model inside the block.

    The model may be called any number of times, with and without a cache, in any mode; recordings may be nested. The
    last sequence is kept: a call with a cache continues it, and a call that begins a new one replaces it.

    `jumok.generate` lets the model run its own modules inside the block. The two ways add in another order, so
    probabilities may differ in their last bits, and another token may be drawn where two are almost equally likely.

    Args:
        layers, heads: those to keep, from 0; None: all. Of an encoder–decoder these are layers of both stacks.
        residual: keep the residual stream too. values: keep v too; weights do not need it.

    Raises:
        ConfigError: there is no such layer or head, or the model is none of jumok, compiled or has no attention.
    """
    stacks = stacks_of(model)
    if not any(stacks.values()):
        raise ConfigError("this model has no attention to record: it has no blocks.")
    kept_layers = _chosen("layer", layers, max(len(blocks) for blocks in stacks.values()))
    kept_heads = _chosen("head", heads, max(block.attention.n_head for blocks in stacks.values() for block in blocks))
    recording = Recording()
    with ExitStack() as hooks:
        for kind, blocks in stacks.items():
            for layer in (layer for layer in kept_layers if layer < len(blocks)):
                _watch(blocks[layer], kind, layer, kept_heads, values, recording, hooks)
        if residual:
            recording._streams = {}
            for kind, blocks in stacks.items():
                for layer, block in enumerate(blocks):
                    hook = _stream_hook(recording._streams, kind, layer)
                    hooks.callback(block.register_forward_hook(hook, with_kwargs=True).remove)
        yield recording


def stacks_of(model: nn.Module) -> dict[BlockKind, list[Block]]:
    """Return the blocks of a model, by the name of their self-attention.

    Raises:
        ConfigError: the model is none of jumok, or compiled.
    """
    if isinstance(model, EncoderDecoder):
        return {"encoder": _blocks(model.encoder), "decoder": _blocks(model.decoder)}
    if isinstance(model, GPT | BERT):
        return {"self": _blocks(model.blocks)}
    compiled = hasattr(model, "_orig_mod")
    hint = tr("; record the model that was given to torch.compile, and call that one") if compiled else ""
    raise ConfigError(
        "only a GPT, BERT or EncoderDecoder can be recorded, not a {kind}{hint}.", kind=type(model).__name__, hint=hint
    )


def _blocks(stack: nn.ModuleList) -> list[Block]:
    return [block for block in stack if isinstance(block, Block)]


def _chosen(name: str, numbers: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Return which of `count` layers or heads; each once, in their order."""
    if numbers is None:
        return tuple(range(count))
    wrong = [number for number in numbers if not 0 <= number < count]
    if wrong or not numbers:
        there = tr("{name}s 0 to {last}", name=name, last=count - 1) if count > 1 else tr("one {name}, 0", name=name)
        given = reprlib.repr(list(numbers))  # it may be a long range
        raise ConfigError(
            "{name}s={given}: this model has {there}; give some of them, or None for all.",
            name=name,
            given=given,
            there=there,
        )
    return tuple(sorted(set(numbers)))


def _watch(
    block: Block,
    kind: BlockKind,
    layer: int,
    heads: Sequence[int],
    values: bool,
    recording: Recording,
    hooks: ExitStack,
) -> None:
    """Hook the one or two attention layers of a block."""
    stack: str = "blocks" if kind == "self" else kind
    beside = None
    for name, part in (("attention", block.attention), ("cross_attention", block.cross_attention)):
        if part is None or not any(head < part.n_head for head in heads):
            continue
        own = tuple(head for head in heads if head < part.n_head)
        crosses: BlockKind = kind if name == "attention" else "cross"
        entry = AttentionRecord(f"{stack}.{layer}.{name}", crosses, layer, part, own, values)
        recording._records.append(entry)
        handle = part.attend.register_forward_pre_hook(_seam_hook(entry, beside), with_kwargs=True)
        hooks.callback(handle.remove)
        beside = entry


def _seam_hook(entry: AttentionRecord, beside: AttentionRecord | None) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entry._add(*_call(*args, **kwargs), beside)

    return hook


def _call(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool]:
    """Return the arguments of `ScaledDotProductAttention.forward`, however they were given."""
    return q, k, v, mask, causal


def _stream_hook(streams: dict[str, list[_Stream]], stack: str, layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], x: Tensor) -> None:
        cache = args[2] if len(args) > 2 else kwargs.get("cache")
        past = 0 if cache is None else cache.length - x.shape[1]  # the cache already contains x
        found = streams.setdefault(stack, [_Stream()])
        if layer == 0:
            found[0].add(args[0], past)
        if len(found) == layer + 1:
            found.append(_Stream())
        found[layer + 1].add(x, past)

    return hook
