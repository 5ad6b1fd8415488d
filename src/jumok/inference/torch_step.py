"""The step of a plain GPT in PyTorch, for machines without a C++ compiler: the next token of each of some texts.

`TorchStep` computes what the model does, up to rounding, in half of the calls: q, k and v are one product, and so are
the two matrices of a gated MLP. Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config.features import changes_angles
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.blocks import MLP, Block, SwiGLU
from jumok.nn.cache import KVCache, LayerCache
from jumok.nn.layers import Dropout, RMSNorm

PARTS = {
    nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm,
    Block, MultiHeadAttention, ScaledDotProductAttention, MLP, SwiGLU, RMSNorm, Dropout,
}  # fmt: skip


def hooks_of(model: nn.Module) -> list[Mapping[int, object]]:
    """Return the dictionaries in which PyTorch keeps the hooks of the model's parts, and of all modules; also empty."""
    everywhere = nn.modules.module
    own = [hooks for part in model.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)]
    return [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks, *own]


def can_replace(model: GPT) -> bool:
    """Return whether a step of its own can replace this model: a plain GPT in float32 or float64 on a CPU, not hooked.

    A part of another class may compute anything, so a model that has one runs itself. A model for which
    `changes_angles` is true keeps no keys.
    """
    weight = model.token_embedding.weight
    return (
        type(model) is GPT
        and not changes_angles(model.config)
        and is_plain(model)
        and weight.dtype in (torch.float32, torch.float64)
        and all(p.device.type == "cpu" and p.dtype == weight.dtype for p in model.parameters())
        and not any(hooks_of(model))
    )


def is_plain(model: GPT) -> bool:
    """Return whether the next token is computed by jumok's own parts alone, in the order of `GPT.hidden`.

    A classifier beside them may be anything.
    """
    beside = {id(part) for head in (model.pooling, model.classifier) if head is not None for part in head.modules()}
    parts = (part for part in model.modules() if part is not model and id(part) not in beside)
    return type(model).hidden is GPT.hidden and all(type(part) in PARTS for part in parts)


class TorchStep:
    """Read one token of each of some texts. Attention goes through the model's own seam.

    Args:
        model: one for which `can_replace` is true, in eval mode while this is used. Matrices that are joined are copies
            of the parameters as they are now.
    """

    @torch.inference_mode()
    def __init__(self, model: GPT) -> None:
        self._model = model
        blocks = [block for block in model.blocks if isinstance(block, Block)]
        self._blocks = [_Joined.of(block, model.config.window(i)) for i, block in enumerate(blocks)]

    @torch.inference_mode()
    def logits(self, ids: Tensor, cache: KVCache) -> Tensor:
        """Return the logits after each text's newest token; the cache is extended by it.

        Args:
            ids: (B,), the newest token of each text.
            cache: keys and values of the tokens before. Its rows may have different lengths, see `KVCache.begin_at`.

        Returns:
            (B, V), of the type of the parameters.

        Raises:
            ValueError: a text is longer than the context; the caller has to slide its window first.
        """
        model, positions = self._model, cache.positions
        x = F.embedding(ids, model.token_embedding.weight)  # (B, C)
        if model.position_embedding is not None:
            table = model.position_embedding.weight
            x = x + (table[cache.length] if positions is None else table[positions[:, 0]])
        rotary = model.angles(cache.length, cache.length + 1, positions)  # (1, R) or (B, 1, 1, R) each
        if rotary is not None:
            cos, sin = rotary
            left, right = sin.chunk(2, dim=-1)
            rotary = cos, torch.cat((-left, right), dim=-1)
        masks = {window: _mask(cache, window) for window in {joined.window for joined in self._blocks}}
        for joined, layer in zip(self._blocks, cache.layers, strict=True):
            block = joined.block
            attended = joined.attention(_normed(block.attention_norm, x), rotary, layer, masks[joined.window])
            before, x = x, x + attended
            x = x + joined.mlp(_normed(block.mlp_norm, before if block.parallel else x))
        return F.linear(_normed(model.norm, x), model.head.weight)


class _Joined(NamedTuple):
    """A block with its joined matrices.

    qkv, up: weight and bias. qk_norm: (H+G, D), the weights of the norms of q and k. window: of attention.
    """

    block: Block
    qkv: tuple[Tensor, Tensor | None]
    up: tuple[Tensor, Tensor | None]
    qk_norm: Tensor | None
    window: int | None

    @classmethod
    def of(cls, block: Block, window: int | None) -> _Joined:
        layer, mlp, norms = block.attention, block.mlp, None
        assert isinstance(mlp, MLP | SwiGLU)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = layer.q_norm.weight, layer.k_norm.weight
            norms = torch.cat((q.expand(layer.n_head, -1), k.expand(layer.n_kv_head, -1)))
        up = _side_by_side(mlp.gate_proj, mlp.up_proj) if isinstance(mlp, SwiGLU) else _side_by_side(mlp.up_proj)
        return cls(block, _side_by_side(layer.q_proj, layer.k_proj, layer.v_proj), up, norms, window)

    def attention(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None, cache: LayerCache, mask: Tensor | None
    ) -> Tensor:
        """(B, C) -> (B, C)."""
        layer = self.block.attention
        heads = F.linear(x, *self.qkv).unflatten(-1, (-1, 1, layer.head_dim))  # (B, H+2G, 1, D)
        qk, v = heads.split((layer.n_head + layer.n_kv_head, layer.n_kv_head), dim=1)  # (B, H+G, 1, D), (B, G, 1, D)
        if self.qk_norm is not None and layer.q_norm is not None:
            qk = F.rms_norm(qk, (layer.head_dim,), None, layer.q_norm.eps) * self.qk_norm[:, None]
        if rotary is not None:  # as `positions.rotate`
            cos, sin = rotary
            width = cos.shape[-1]
            turned = qk[..., :width]
            turned = turned * cos + turned.roll(width // 2, -1) * sin
            qk = turned if width == layer.head_dim else torch.cat((turned, qk[..., width:]), dim=-1)
        q, k = qk.split((layer.n_head, layer.n_kv_head), dim=1)  # (B, H, 1, D), (B, G, 1, D)
        keys, values = cache.append(k, v)  # (B, G, S, D) each
        merged = layer.attend(q, keys, values, mask, True).flatten(1)  # (B, H*D)
        assert layer.o_proj is not None
        return F.linear(merged, layer.o_proj.weight, layer.o_proj.bias)

    def mlp(self, x: Tensor) -> Tensor:
        """(B, C) -> (B, C)."""
        part, y = self.block.mlp, F.linear(x, *self.up)
        if isinstance(part, SwiGLU):
            gate, y = y.chunk(2, dim=-1)
            y = F.silu(gate) * y
        else:
            assert isinstance(part, MLP)
            y = part.activation(y)
        return F.linear(y, part.down_proj.weight, part.down_proj.bias)


def _side_by_side(*layers: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Return the weights of layers of one input, (out, in), and their biases, as those of one layer."""
    if len(layers) == 1:
        return layers[0].weight, layers[0].bias
    weight = torch.cat(tuple(layer.weight for layer in layers))
    zeros = (weight.new_zeros(len(layer.weight)) for layer in layers)
    biases = tuple(zero if layer.bias is None else layer.bias for layer, zero in zip(layers, zeros, strict=True))
    return weight, torch.cat(biases) if any(layer.bias is not None for layer in layers) else None


def _normed(norm: nn.Module | None, x: Tensor) -> Tensor:
    """(B, C) -> (B, C)."""
    if isinstance(norm, RMSNorm):
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    assert isinstance(norm, nn.LayerNorm)
    return norm(x)


def _mask(cache: KVCache, window: int | None) -> Tensor | None:
    """Return what the next token of each text sees of the cache and itself: (1, S), (B, 1, 1, S), or None for all.

    Args:
        window: it sees at most so many positions, its own included; None: all of its text.
    """
    if window is None or cache.length < window:
        return cache.mask
    newest: int | Tensor = cache.length if cache.positions is None else cache.positions[:, :, None, None]
    near = torch.arange(cache.length + 1)[None] > newest - window
    return near if cache.mask is None else cache.mask & near
