"""The blocks of Transformers: norm, MLP, and the block that combines them with attention.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BlockConfig
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.cache import LayerCache
from jumok.nn.layers import Dropout, RMSNorm
from jumok.nn.products import Linear

ACTIVATION: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class MLP(nn.Module):
    """Two linear layers with an activation between them, applied to each position.

    Args:
        width: C, of input and output.
        hidden: width between them.
        activation: a name in ACTIVATION.
        bias: whether both layers have biases.
    """

    def __init__(self, width: int, hidden: int, activation: str, bias: bool = True) -> None:
        super().__init__()
        self.up_proj = Linear(width, hidden, bias=bias)
        self.down_proj = Linear(hidden, width, bias=bias)
        self.activation = ACTIVATION[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down_proj(self.activation(self.up_proj(x)))


class SwiGLU(nn.Module):
    """An MLP whose hidden units are gated by a second projection (https://arxiv.org/abs/2002.05202).

    Args:
        width: C, of input and output.
        hidden: width between them.
        bias: whether the three layers have biases.
    """

    def __init__(self, width: int, hidden: int, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = Linear(width, hidden, bias=bias)
        self.up_proj = Linear(width, hidden, bias=bias)
        self.down_proj = Linear(hidden, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def make_norm(config: BlockConfig) -> nn.Module:
    """Return the norm over the width: LayerNorm, RMSNorm, or the identity."""
    if config.norm == "none":
        return nn.Identity()
    kind = RMSNorm if config.norm == "rms" else nn.LayerNorm
    return kind(config.width, eps=config.norm_eps)


class Block(nn.Module):
    """A Transformer block: attention, optional cross-attention, and an MLP, each with a norm and a residual connection.

    Pre-norm is x + f(norm(x)), as in GPT-2 and later models. Post-norm is norm(x + f(x)), as in the paper of 2017 and
    in BERT. A parallel block is x + attention(norm(x)) + mlp(norm(x)), as in GPT-NeoX. Blocks of encoders and decoders
    differ only in `causal` and `cross`.

    Args:
        config: the architecture.
        causal: whether to apply the causal mask.
        cross: whether to attend to a context, which has the same width.
    """

    def __init__(self, config: BlockConfig, *, causal: bool = True, cross: bool = False) -> None:
        super().__init__()
        self.causal, self.pre_norm, self.residual = causal, config.pre_norm, config.residual
        self.parallel = config.parallel
        self.attention_norm = make_norm(config)
        self.attention = make_attention(config)
        self.cross_norm = make_norm(config) if cross else None
        self.cross_attention = make_attention(config) if cross else None
        self.mlp_norm = make_norm(config) if config.mlp_width else None
        self.mlp = make_mlp(config) if config.mlp_width else None
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        *,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        context_cache: LayerCache | None = None,
    ) -> Tensor:
        """(B, T, C) -> (B, T, C).

        Args:
            rotary: cos and sin, (T, D) or (B, 1, T, D) each, for the positions of x.
            cache: keys and values of the positions before x, extended in place.
            mask: bool, broadcastable to (B, H, T, S), combined with the causal mask.
            context: (B, S, C), for cross-attention.
            context_mask: as `mask`, for the S positions of the context.
            context_cache: keys and values of the context, filled by the first call and used by later ones.

        Raises:
            ValueError: a block with cross-attention gets no context, or a block without it gets one.
        """
        if (context is None) != (self.cross_attention is None):
            raise ValueError(
                "this block has cross-attention and needs a context"
                if context is None
                else "this block has no cross-attention and takes no context; create it with cross=True"
            )
        before = x
        x = self._join(
            x, self.attention_norm, self.attention, mask=mask, causal=self.causal, rotary=rotary, cache=cache
        )
        if self.parallel:
            assert self.mlp is not None
            return x + self._part(before, self.mlp_norm, self.mlp)
        if self.cross_attention is not None:
            x = self._join(
                x, self.cross_norm, self.cross_attention, context=context, mask=context_mask, cache=context_cache
            )
        return x if self.mlp is None else self._join(x, self.mlp_norm, self.mlp)

    def _join(self, x: Tensor, norm: nn.Module | None, part: nn.Module, **inputs: Any) -> Tensor:
        y = self._part(x, norm, part, **inputs)  # (B, T, C)
        if self.residual:
            y = x + y
        assert norm is not None
        return y if self.pre_norm else norm(y)

    def _part(self, x: Tensor, norm: nn.Module | None, part: nn.Module, **inputs: Any) -> Tensor:
        assert norm is not None
        return self.dropout(part(norm(x) if self.pre_norm else x, **inputs))  # (B, T, C)


def make_attention(config: BlockConfig) -> MultiHeadAttention:
    """Return the attention layer of a block."""
    return MultiHeadAttention(
        config.width,
        config.width,
        config.n_head,
        n_kv_head=config.n_kv_head,
        head_dim=config.head_dim,
        qkv_bias=config.qkv_bias,
        out_bias=config.out_bias,
        qk_norm=config.norm_eps if config.qk_norm else None,
        dropout=config.attention_dropout,
    )


def make_mlp(config: BlockConfig) -> nn.Module:
    """Return the MLP of a block."""
    if config.gated:
        return SwiGLU(config.width, config.mlp_width, config.mlp_bias)
    return MLP(config.width, config.mlp_width, config.activation, config.mlp_bias)
