"""What a Transformer is stacked from: norm, MLP, and the block that joins them to attention.

Shapes use the legend of `jumok.attention`.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from jumok.attention import MultiHeadAttention
from jumok.cache import LayerCache
from jumok.config import GPTConfig
from jumok.layers import Dropout, RMSNorm

ACTIVATION = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "relu": F.relu, "silu": F.silu}


class MLP(nn.Module):
    """Two matrices with an activation between them, position by position.

    Args:
        width: C, in and out. hidden: width between. activation: "gelu" (tanh form) or "relu".
    """

    def __init__(self, width: int, hidden: int, activation: str) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, hidden)
        self.down_proj = nn.Linear(hidden, width)
        self.activation = ACTIVATION[activation]

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down_proj(self.activation(self.up_proj(x)))


class SwiGLU(nn.Module):
    """An MLP whose hidden units are gated by a second projection (https://arxiv.org/abs/2002.05202), no biases.

    Args:
        width: C, in and out. hidden: width between.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def make_norm(config: GPTConfig) -> nn.Module:
    """The family's norm over the width: LayerNorm with bias (classic) or RMSNorm with weight (modern)."""
    kind = RMSNorm if config.family == "modern" else nn.LayerNorm
    return kind(config.n_embd, eps=config.norm_eps)


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): pre-norm, as GPT-2 and everything after it."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        modern = config.family == "modern"
        self.attention_norm = make_norm(config)
        self.attention = MultiHeadAttention(
            config.n_embd,
            config.n_embd,
            config.n_head,
            n_kv_head=config.n_kv_head,
            head_dim=config.head_dim,
            qkv_bias=not modern,
            out_bias=not modern,
            qk_norm=config.norm_eps if modern else None,
            dropout=config.attention_dropout,
        )
        self.mlp_norm = make_norm(config)
        self.mlp: nn.Module = (
            SwiGLU(config.n_embd, config.mlp_width)
            if modern
            else MLP(config.n_embd, config.mlp_width, config.activation)
        )
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor] | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, C) -> (B, T, C); causal. rotary: cos and sin, (T, D) each, for the positions of x."""
        x = x + self.dropout(self.attention(self.attention_norm(x), causal=True, rotary=rotary, cache=cache))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))
