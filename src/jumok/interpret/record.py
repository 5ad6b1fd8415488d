"""Record attention: q, k, v and masks of each layer, taken at the seam while the model runs.

>>> with record(model) as recording:
...     model(ids)
>>> recording.attentions[0].weights()  # (B, H, T, S)

Hooks on `ScaledDotProductAttention` (`jumok.nn.attention`) keep q, k, v and the mask of the last call, and are removed
when the block ends, also by an error. They do not change what the model computes. Weights are computed from q and k
each time they are asked for, so a recording is as small as its keys, queries and values.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from jumok.errors import ConfigError, ViewError
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, attention_weights
from jumok.nn.blocks import Block


class AttentionRecord:
    """What one attention layer computed in its last call.

    With a cache the T queries of the call are the last of S positions.

    Attributes:
        name: of the layer in its model, "blocks.3.attention".
        block: "self" (GPT, BERT), or "encoder", "decoder" and "cross" of an encoder–decoder. layer: from 0.
        n_head, n_kv_head, head_dim: H, G and D of the layer. heads: which of the H were kept.
        q: queries, after norm and rotation, (B, H, T, D), H being the heads that were kept.
        k, v: keys and values, (B, G, S, D); where only some heads were kept, one for each of them: (B, H, S, D).
        mask: what may be attended to, besides causality: bool, broadcastable to (B, H, T, S); None: everything.
        causal: whether a query attends to no later key.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    causal = False

    def __init__(self, block: str, layer: int, source: MultiHeadAttention, heads: tuple[int, ...]) -> None:
        stack = {"self": "blocks", "cross": "decoder"}.get(block, block)
        self.name = f"{stack}.{layer}.{'cross_attention' if block == 'cross' else 'attention'}"
        self.block, self.layer, self.heads = block, layer, heads
        self.n_head, self.n_kv_head, self.head_dim = source.n_head, source.n_kv_head, source.head_dim

    def __repr__(self) -> str:
        return f"AttentionRecord({self.name!r}, heads={list(self.heads)}, t={self.t}, s={self.s})"

    @property
    def t(self) -> int:
        """Number of queries, T."""
        return self.q.shape[2]

    @property
    def s(self) -> int:
        """Number of keys, S."""
        return self.k.shape[2]

    def weights(self, head: int | None = None) -> Tensor:
        """Return the attention weights, computed now.

        Args:
            head: one head, by its number in the layer; None: all that were kept.

        Returns:
            (B, H, T, S), H = 1 for one head, of the type the model computed in. Rows sum to one, and are all zeros
            where a query may attend to nothing; a NaN stays a NaN.

        Raises:
            ConfigError: the head was not recorded.
        """
        if head is None:
            return attention_weights(self.q, self.k, self.mask, self.causal)
        if head not in self.heads:
            raise ConfigError(
                "head={head!r} of {name} was not recorded; there are {heads}.",
                head=head,
                name=self.name,
                heads=list(self.heads),
            )
        place = self.heads.index(head)
        shared = self.q.shape[1] // self.k.shape[1]  # heads that a key head serves
        q, k = self.q[:, place : place + 1], self.k[:, place // shared : place // shared + 1]
        return attention_weights(q, k, _mask_of(self.mask, slice(place, place + 1)), self.causal)

    def _keep(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> None:
        """Keep the arguments of `ScaledDotProductAttention.forward`."""
        if len(self.heads) < self.n_head:
            picked = torch.tensor(self.heads, device=q.device)
            shared = self.n_head // self.n_kv_head
            q, k, v = q[:, picked], k[:, picked // shared], v[:, picked // shared]
            mask = _mask_of(mask, picked)
        # Copied: with a cache keys and values are views of a buffer that later calls write to.
        self.q, self.k, self.v = q.detach(), k.detach().clone(), v.detach().clone()
        self.mask, self.causal = mask, causal


def _mask_of(mask: Tensor | None, heads: slice | Tensor) -> Tensor | None:
    """Return the part of a mask that is for some heads."""
    return mask[:, heads] if mask is not None and mask.dim() == 4 and mask.shape[1] > 1 else mask


class Recording:
    """What `record` yields; it may be read as soon as the model ran, and after the block."""

    def __init__(self) -> None:
        self._records: list[AttentionRecord] = []
        self._streams: dict[str, list[Tensor]] | None = None

    @property
    def attentions(self) -> tuple[AttentionRecord, ...]:
        """The layers that ran, in the order of the model.

        Raises:
            ViewError: none did.
        """
        return tuple(entry for entry in self._records if hasattr(entry, "q")) or self._nothing()

    def attention(self, block: str, layer: int) -> AttentionRecord:
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
        return self._streams or self._nothing()

    def _nothing(self) -> NoReturn:
        raise ViewError(
            "nothing was recorded: call the model inside the `with` block. A compiled model runs without its hooks; "
            "load the model again, and record it before it is compiled."
        )


@contextmanager
def record(
    model: Model,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    residual: bool = False,
) -> Iterator[Recording]:
    """Record the attention of a model inside the block.

    The model may be called any number of times, with and without a cache, in any mode; recordings may be nested. Each
    call replaces what was recorded of the one before. To see how a text was generated, record one call with all of it.

    `jumok.generate` lets the model run its own modules inside the block. The two ways add in another order, so
    probabilities may differ in their last bits, and another token may be drawn where two are almost equally likely.

    Args:
        layers, heads: those to keep, from 0; None: all. Of an encoder–decoder these are layers of both stacks.
        residual: keep the residual stream too.

    Raises:
        ConfigError: there is no such layer or head, or the model is none of jumok, compiled or has no attention.
    """
    layers_of_attention = attention_layers(model)
    if not layers_of_attention:
        raise ConfigError("this model has no attention to record: it has no blocks.")
    kept_layers = _chosen("layer", layers, 1 + max(layer for _, layer in layers_of_attention))
    kept_heads = _chosen("head", heads, max(part.n_head for part in layers_of_attention.values()))
    recording = Recording()
    with ExitStack() as hooks:
        for (block, layer), part in layers_of_attention.items():
            own = tuple(head for head in kept_heads if head < part.n_head)
            if layer in kept_layers and own:
                entry = AttentionRecord(block, layer, part, own)
                recording._records.append(entry)
                handle = part.attend.register_forward_pre_hook(_seam_hook(entry), with_kwargs=True)
                hooks.callback(handle.remove)
        if residual:
            recording._streams = {}
            for stack, blocks in _stacks(model).items():
                for layer, one in enumerate(blocks):
                    hook = _stream_hook(recording._streams, stack, layer)
                    hooks.callback(one.register_forward_hook(hook).remove)
        yield recording


def attention_layers(model: nn.Module) -> dict[tuple[str, int], MultiHeadAttention]:
    """Return the layers of attention by block and number, in the order of the model.

    Raises:
        ConfigError: the model is none of jumok, or compiled.
    """
    found: dict[tuple[str, int], MultiHeadAttention] = {}
    for stack, blocks in _stacks(model).items():
        for layer, block in enumerate(blocks):
            found[stack, layer] = block.attention
            if block.cross_attention is not None:
                found["cross", layer] = block.cross_attention
    return found


def _stacks(model: nn.Module) -> dict[str, list[Block]]:
    """Return the blocks of a model, by the name of their self-attention."""
    if isinstance(model, EncoderDecoder):
        stacks: dict[str, nn.ModuleList] = {"encoder": model.encoder, "decoder": model.decoder}
    elif isinstance(model, GPT | BERT):
        stacks = {"self": model.blocks}
    else:
        compiled = hasattr(model, "_orig_mod")
        hint = tr("; record the model that was given to torch.compile, and call that one") if compiled else ""
        raise ConfigError(
            "only a GPT, BERT or EncoderDecoder can be recorded, not a {kind}{hint}.",
            kind=type(model).__name__,
            hint=hint,
        )
    return {name: [block for block in stack if isinstance(block, Block)] for name, stack in stacks.items()}


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


def _seam_hook(entry: AttentionRecord) -> Callable[..., None]:
    return lambda _, args, kwargs: entry._keep(*args, **kwargs)


def _stream_hook(streams: dict[str, list[Tensor]], stack: str, layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, args: tuple[Any, ...], x: Tensor) -> None:
        if layer == 0:
            streams[stack] = [args[0].detach()]
        streams[stack].append(x.detach())

    return hook
