"""A small GPT and its training loop as many people write them: GPT-2's parts, one file, nothing but PyTorch.

Not part of jumok; `bench/training.py` times it beside jumok and stock `transformers`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.to_qkv(x).unflatten(-1, (3, self.heads, -1))  # (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return self.out(y.transpose(1, 2).flatten(-2))  # (B, T, C)


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class PlainGPT(nn.Module):
    def __init__(self, vocabulary: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(PlainBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]  # (B, T, C)
        return self.head(self.norm(self.blocks(x)))  # (B, T, V)


class PlainTraining:
    """Its loop: `step()` takes the next optimizer step. batch: n -> ids and targets, (B, T) each."""

    def __init__(
        self, model: PlainGPT, batch: Callable[[int], tuple[Tensor, ...]], precision: str, device: torch.device
    ) -> None:
        self.model, self.batch, self.precision, self.device = model.to(device), batch, precision, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
        self.losses: list[float] = []

    def step(self) -> None:
        ids, targets = (part.to(self.device) for part in self.batch(len(self.losses)))
        lower = self.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if lower else nullcontext():
            logits = self.model(ids)  # (B, T, V)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())
