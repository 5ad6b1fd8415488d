"""Chapter 7: LayerNorm, the MLP, and the block that joins them with attention.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.head import causal_mask
from jumok.course.chapters.multi_head import MultiHeadAttention


class LayerNorm(nn.Module):
    """Normalise each vector to mean 0 and variance 1, then scale and shift its columns: (..., C) -> (..., C)."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        centred = x - x.mean(dim=-1, keepdim=True)  # (..., C)
        variance = (centred**2).mean(dim=-1, keepdim=True)  # (..., 1)
        return centred / (variance + self.eps).sqrt() * self.weight + self.bias


class RMSNorm(nn.Module):
    """Divide each vector by the root of its mean square, then scale its columns: (..., C) -> (..., C)."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        mean_square = (x**2).mean(dim=-1, keepdim=True)  # (..., 1)
        return x / (mean_square + self.eps).sqrt() * self.weight


def gelu(x: Tensor) -> Tensor:
    """GELU by the approximation with tanh, as in GPT-2."""
    return F.gelu(x, approximate="tanh")


class MLP(nn.Module):
    """Two linear layers with an activation between them, for each position separately: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, activation: Callable[[Tensor], Tensor] = gelu) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Widen, apply the activation, narrow."""
        return self.down_proj(self.activation(self.up_proj(x)))  # (B, T, 4C) -> (B, T, C)


class SwiGLU(nn.Module):
    """An MLP whose hidden units are multiplied by a gate: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Widen twice, multiply, narrow."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # (B, T, C)


class Block(nn.Module):
    """Attention between positions, then an MLP for each position, as x + f(norm(x)): (B, T, C) -> (B, T, C)."""

    def __init__(
        self, width: int, n_head: int, dropout: float = 0.0, activation: Callable[[Tensor], Tensor] = gelu
    ) -> None:
        super().__init__()
        self.attention_norm = LayerNorm(width)
        self.attention = MultiHeadAttention(width, width, n_head, dropout, qkv_bias=True)
        self.mlp_norm = LayerNorm(width)
        self.mlp = MLP(width, activation)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """mask: (T, T), or broadcastable to (B, H, T, T)."""
        x = x + self.dropout(self.attention(self.attention_norm(x), mask))  # (B, T, C)
        return x + self.dropout(self.mlp(self.mlp_norm(x)))  # (B, T, C)


Join = Callable[[Tensor, Callable[[Tensor], Tensor], nn.Module], Tensor]


def random_blocks(n_layer: int, gain: float, seed: int) -> tuple[list[Block], Tensor]:
    """Return blocks whose matrices are multiplied by a gain, and an input, (2, 16, 64)."""
    torch.manual_seed(seed)
    blocks = [Block(64, n_head=4) for _ in range(n_layer)]
    for block in blocks:
        for parameter in block.parameters():
            if parameter.dim() == 2:
                parameter.data *= gain
    return blocks, torch.randn(2, 16, 64)


def run_blocks(blocks: list[Block], x: Tensor, join: Join) -> list[Tensor]:
    """Return x and the output of each block, in which `join` combines x, f and the norm: (B, T, C) each."""
    outputs, mask = [x], causal_mask(x.shape[1])
    for block in blocks:
        x = join(x, partial(block.attention, mask=mask), block.attention_norm)  # (B, T, C)
        x = join(x, block.mlp, block.mlp_norm)  # (B, T, C)
        outputs.append(x)
    return outputs


def gradient_sizes(blocks: list[Block], x: Tensor, join: Join) -> list[float]:
    """Return the norm of the gradient of each block, for a gradient of length 1 at the output."""
    top = run_blocks(blocks, x, join)[-1]  # (B, T, C)
    direction = torch.randn_like(top)
    (top * direction / direction.norm()).sum().backward()
    parameters = [[p for p in block.parameters() if p.grad is not None] for block in blocks]
    return [sum(float((p.grad**2).sum()) for p in each if p.grad is not None) ** 0.5 for each in parameters]


def similarity(x: Tensor) -> float:
    """Return the mean cosine between the vectors of two different positions: (B, T, C)."""
    unit = x / x.norm(dim=-1, keepdim=True)  # (B, T, C)
    cosines = unit @ unit.transpose(-2, -1)  # (B, T, T)
    t = x.shape[-2]
    return ((cosines.sum(dim=(-2, -1)) - t).mean() / (t * (t - 1))).item()
