"""Attention: the weights, the module that every attention layer calls, and the multi-head layer.

The letters for shapes, here and in all of jumok::

    B batch    T query positions    S key positions    C width
    H heads    G key/value heads    D head width       V vocabulary

Inside attention the layout is (B, H, T, D). In a mask True means "may attend". A single sequence can be passed without
its batch dimension, as (T, C).

`MultiHeadAttention` creates q_proj, k_proj, v_proj and, unless project=False, o_proj, in this order and with PyTorch's
default initialisation. It draws no other random numbers. This is guaranteed, because tables printed in books after
`torch.manual_seed(n)` depend on it. A model applies its own initialisation afterwards.

For such a table call the layer directly after setting the seed: with project=False and one head for three `nn.Linear`,
with n_head heads for one projection that is split. Omit causal=True for a table without a mask, and set qkv_bias and
out_bias as in the table. Chapters 4 and 6 of the course have the other variants. `jumok.nn.layers.Dropout` draws other
random numbers than PyTorch on CPUs, so for a table with dropout call torch.nn.functional.dropout(weights, rate) with
the weights of `attention_weights`.

Source: "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.2; grouped-query heads:
https://arxiv.org/abs/2305.13245; norms on q and k: https://arxiv.org/abs/2010.04245.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.nn.cache import LayerCache
from jumok.nn.chunked_attention import chunked_attention
from jumok.nn.layers import Dropout, RMSNorm
from jumok.nn.positions import rotate
from jumok.nn.products import Linear, in_transform

Implementation = Literal["chunked", "fused"]

FEWEST_FUSED = 16  # keys; with fewer, the fused kernel for CPUs replaces NaN by zeros


def causal_mask(t: int, s: int, device: torch.device | str | None = None) -> Tensor:
    """Return the causal mask for T queries at the *last* T of S positions.

    The last query attends to all keys. With `is_causal` of PyTorch and T != S the triangle is aligned top-left instead,
    so the last query would not see the last keys.

    Returns:
        (T, S), bool; row t is True up to column S - T + t.
    """
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)


def combined_mask(t: int, s: int, mask: Tensor | None, causal: bool, device: torch.device) -> Tensor | None:
    """Return `mask` combined with the causal mask, or None if every query may attend to every key."""
    if not causal or t == 1:
        return mask
    triangle = causal_mask(t, s, device)  # (T, S)
    return triangle if mask is None else mask & triangle


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return the attention weights softmax(q kᵀ / sqrt(D)).

    Args:
        q: (B, H, T, D).
        k: (B, G, S, D). H is a multiple of G; H / G query heads share a key head.
        mask: bool, broadcastable to (B, H, T, S), True where a query may attend.
        causal: whether to apply the causal mask as well, see `causal_mask`.

    Returns:
        (B, H, T, S), of the type of q; the softmax is computed in float32 or better. Rows sum to one. A row without any
        allowed key is all zeros, as in the fused kernel of PyTorch. A NaN in the input gives NaN.
    """
    k = k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)  # (B, H, S, D)
    scores = (q @ k.transpose(-2, -1)).to(torch.promote_types(q.dtype, torch.float32))  # (B, H, T, S)
    scores = scores * q.shape[-1] ** -0.5
    allowed = combined_mask(q.shape[-2], k.shape[-2], mask, causal, q.device)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    weights = scores.softmax(dim=-1)  # (B, H, T, S)
    if allowed is not None and (mask is not None or q.shape[-2] > k.shape[-2]):  # otherwise every row has a key
        weights = weights.masked_fill(~allowed.any(dim=-1, keepdim=True), 0.0)
    return weights.to(q.dtype)


class ScaledDotProductAttention(nn.Module):
    """Scaled dot-product attention, without parameters: the hook point ("seam") of all attention layers.

    To record or change attention, hook this module. No other code calls a fused kernel.

    `training_by` selects the implementation for training on a CPU where both are possible: "chunked"
    (`jumok.nn.chunked_attention`) or the "fused" kernel of PyTorch. They agree up to rounding. Which one is faster
    depends on the machine, the shape and the type. See `train_attention_by`.
    """

    training_by: Implementation = "chunked"

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """Return `attention_weights(q, k, mask, causal) @ v`, with dropout on the weights in training.

        Args:
            q: (B, H, T, D).
            k, v: (B, G, S, D).
            mask, causal: as in `attention_weights`.

        Returns:
            (B, H, T, D).
        """
        t, s = q.shape[-2], k.shape[-2]
        if q.device.type == "cpu" and (s < FEWEST_FUSED or (q.requires_grad and self._drops)):
            weights = self.dropout(attention_weights(q, k, mask, causal))  # (B, H, T, S)
            return weights @ v.repeat_interleave(q.shape[-3] // v.shape[-3], dim=-3)  # (B, H, T, D)
        if self.training_by == "chunked" and self.can_choose(q, k, v):
            if k.shape[1] < q.shape[1]:
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))  # (B, H, S, D)
            return chunked_attention(q, k, v, mask, causal)
        square = causal and mask is None and t == s
        allowed = None if square else combined_mask(t, s, mask, causal, q.device)
        empty = None
        if allowed is not None and q.device.type != "cpu" and (mask is not None or t > s):
            # Some kernels for GPUs return the mean of the values where a query has no key, and others NaN.
            empty = ~allowed.any(dim=-1, keepdim=True)
            allowed = allowed | empty
        out = F.scaled_dot_product_attention(
            q, k, v,
            attn_mask=allowed,
            dropout_p=self.dropout.rate if self.training else 0.0,
            is_causal=square and t > 1,
            enable_gqa=q.shape[-3] != k.shape[-3],
        )  # fmt: skip
        return out if empty is None else out.masked_fill(empty, 0.0)

    def can_choose(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Return whether `training_by` applies to these inputs: in training on a CPU, without dropout, with at least
        FEWEST_FUSED keys, with v as wide as q, and in no transform of `torch.func`."""
        alike = q.dim() == 4 and q.shape[0] == k.shape[0] and q.shape[-1] == v.shape[-1]
        on_cpu = q.device.type == "cpu" and q.requires_grad
        return on_cpu and alike and k.shape[-2] >= FEWEST_FUSED and not self._drops and not in_transform()

    @property
    def _drops(self) -> bool:
        return self.training and self.dropout.rate > 0


def train_attention_by(model: nn.Module, implementation: Implementation) -> None:
    """Set the implementation of attention for training on a CPU in all layers of a model."""
    for part in model.modules():
        if isinstance(part, ScaledDotProductAttention):
            part.training_by = implementation


class MultiHeadAttention(nn.Module):
    """Multi-head attention: self-attention, or cross-attention to a context.

    Args:
        d_in: width of the input.
        d_out: width of the output, and of all heads together unless head_dim is given.
        n_head: query heads.
        qkv_bias: whether the projections to q, k and v have a bias.
        out_bias: whether the output projection has a bias.
        project: whether to apply the output projection o_proj; otherwise the concatenated heads are returned.
        n_kv_head: key/value heads, a divisor of n_head (None: n_head).
        head_dim: width of one head (None: d_out / n_head).
        d_context: width of the context for cross-attention (None: d_in).
        qk_norm: epsilon of an RMSNorm over each head of q and k; None: no norm.
        dropout: rate on the attention weights in training.

    Raises:
        ValueError: d_out is not divisible by n_head and no head_dim was given, or n_kv_head does not divide n_head.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        n_head: int,
        *,
        qkv_bias: bool = False,
        out_bias: bool = True,
        project: bool = True,
        n_kv_head: int | None = None,
        head_dim: int | None = None,
        d_context: int | None = None,
        qk_norm: float | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if head_dim is None and d_out % n_head:
            raise ValueError(f"d_out={d_out} is not divisible by n_head={n_head}; change one, or give head_dim")
        self.n_head = n_head
        self.n_kv_head = n_kv_head or n_head
        self.head_dim = head_dim or d_out // n_head
        if n_head % self.n_kv_head:
            raise ValueError(f"n_head={n_head} is not divisible by n_kv_head={n_kv_head}")
        d_context = d_context or d_in
        self.q_proj: nn.Linear = Linear(d_in, self.n_head * self.head_dim, bias=qkv_bias)
        self.k_proj: nn.Linear = Linear(d_context, self.n_kv_head * self.head_dim, bias=qkv_bias)
        self.v_proj: nn.Linear = Linear(d_context, self.n_kv_head * self.head_dim, bias=qkv_bias)
        self.o_proj: nn.Linear | None = Linear(self.n_head * self.head_dim, d_out, bias=out_bias) if project else None
        self.q_norm = RMSNorm(self.head_dim, eps=qk_norm) if qk_norm is not None else None
        self.k_norm = RMSNorm(self.head_dim, eps=qk_norm) if qk_norm is not None else None
        self.attend = ScaledDotProductAttention(dropout)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
    ) -> Tensor:
        """Attend from x to itself, or to `context`.

        Args:
            x: (B, T, d_in), or (T, d_in).
            context: (B, S, d_context), or None for self-attention.
            mask: bool, broadcastable to (B, H, T, S).
            causal: whether to apply the causal mask as well.
            rotary: cos and sin, (T, D) or (B, 1, T, D) each, for the positions of x (self-attention only).
            cache: keys and values of earlier positions, extended by those of x. For cross-attention it is filled in the
                first call; later calls use its content and ignore the context.

        Returns:
            (B, T, d_out), or (T, d_out).
        """
        q = self._split(self.q_proj(x), self.n_head, self.q_norm)  # (B, H, T, D)
        if rotary is not None:
            q = rotate(q, *rotary)
        if context is not None and cache is not None and cache.length:
            k, v = cache.keys_values()  # (B, G, S, D) each
        else:
            k, v = self.keys_and_values(x if context is None else context, rotary)  # (B, G, S, D) each
            if cache is not None:
                k, v = cache.append(k, v)
        heads = self.attend(q, k, v, mask, causal)  # (B, H, T, D)
        merged = heads.transpose(-3, -2).flatten(-2)  # (B, T, H*D)
        return merged if self.o_proj is None else self.o_proj(merged)  # (B, T, d_out)

    def keys_and_values(self, source: Tensor, rotary: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """Return what queries attend to: (B, S, d_in or d_context) -> (B, G, S, D) each. rotary: as in `forward`."""
        k = self._split(self.k_proj(source), self.n_kv_head, self.k_norm)  # (B, G, S, D)
        v = self._split(self.v_proj(source), self.n_kv_head)  # (B, G, S, D)
        if rotary is not None:
            k = rotate(k, *rotary)
        return k, v

    def _split(self, x: Tensor, heads: int, norm: RMSNorm | None = None) -> Tensor:
        split = x.unflatten(-1, (heads, self.head_dim))  # (B, T, heads, D)
        if norm is not None:  # before the transposition, so that what is compiled writes gradients in memory order
            split = norm(split)
        return split.transpose(-3, -2)  # (B, heads, T, D)
