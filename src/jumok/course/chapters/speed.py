"""Chapter 14, fast attention and the KV cache: attention in tiles, and keys and values that are computed once.

Neither method changes the results. A *fused kernel* never stores the (T, S) scores: it computes them in tiles and
corrects its sums whenever a larger score arrives (`see`). The *cache* stores the keys and values of past tokens, so
generating one more token computes one position instead of all positions (`work`).

Shapes use the legend of `jumok.nn.attention`. A leading `...` is any number of dimensions, or none.

Sources: the softmax in one pass, https://arxiv.org/abs/1805.02867; attention without (T, S) memory,
https://arxiv.org/abs/2112.05682; tiles that fit into fast memory, https://arxiv.org/abs/2205.14135; the cache and its
size, https://arxiv.org/abs/1911.02150.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.head import attention_weights, causal_mask
from jumok.course.chapters.multi_head import MultiHeadAttention


class Seen(NamedTuple):
    """The state of a softmax in one pass, for any number of keys: two numbers and one vector per query."""

    largest: Tensor  # (..., T)
    total: Tensor  # (..., T)
    gathered: Tensor  # (..., T, D)


def nothing_seen(output: Tensor) -> Seen:
    """Return the state before the first key. output: (..., T, D), any tensor with the shape of the result."""
    total = torch.zeros_like(output[..., 0])  # (..., T)
    return Seen(torch.full_like(total, float("-inf")), total, torch.zeros_like(output))


def see(seen: Seen, scores: Tensor, values: Tensor) -> Seen:
    """Add a tile of keys to the state: scores (..., T, S), -inf where a query may not attend, and values (..., S, D).

    Each query may attend to at least one key of the first tile.
    """
    largest = torch.maximum(seen.largest, scores.amax(dim=-1))  # (..., T)
    shrink = torch.exp(seen.largest - largest)  # (..., T)
    parts = torch.exp(scores - largest[..., None])  # (..., T, S)
    total = shrink * seen.total + parts.sum(dim=-1)  # (..., T)
    gathered = shrink[..., None] * seen.gathered + parts @ values  # (..., T, D)
    return Seen(largest, total, gathered)


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Attend causally with at most size × size scores of a head at once: (..., T, D) each -> (..., T, D)."""
    rows = []
    for i in range(0, q.shape[-2], size):
        asking = q[..., i : i + size, :]  # (..., N, D)
        seen = nothing_seen(asking)
        for j in range(0, i + 1, size):
            keys, values = k[..., j : j + size, :], v[..., j : j + size, :]  # (..., N, D)
            scores = asking @ keys.transpose(-2, -1) / q.shape[-1] ** 0.5  # (..., N, N)
            if i == j:
                scores = scores.masked_fill(~causal_mask(scores.shape[-1]), float("-inf"))
            seen = see(seen, scores, values)
        rows.append(seen.gathered / seen.total[..., None])  # (..., N, D)
    return torch.cat(rows, dim=-2)  # (..., T, D)


def largest_saved(compute: Callable[[], Tensor]) -> int:
    """Return the number of elements of the largest tensor that autograd saves for the backward pass."""
    sizes = []

    def note(saved: Tensor) -> Tensor:
        sizes.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        compute()
    return max(sizes)


class KVCache:
    """The keys and values of one layer, of all positions so far."""

    def __init__(self) -> None:
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def attend(self, attention: MultiHeadAttention, x: Tensor) -> Tensor:
        """Attend from the new positions to themselves and to all before them: (B, T, C) -> (B, T, C)."""
        q = attention.split(attention.q_proj(x))  # (B, H, T, D)
        self.keys.append(attention.split(attention.k_proj(x)))  # (B, H, T, D)
        self.values.append(attention.split(attention.v_proj(x)))  # (B, H, T, D)
        k, v = torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)  # (B, H, S, D)
        mask = causal_mask(k.shape[2])[-x.shape[1] :]  # (T, S)
        heads = attention_weights(q, k, mask) @ v  # (B, H, T, D)
        return attention.o_proj(heads.transpose(1, 2).flatten(2))  # (B, T, C)


@torch.no_grad()
def logits_with_cache(model: GPT, new: Tensor, caches: list[KVCache], start: int) -> Tensor:
    """Return the logits after new tokens, the first of which has the position `start`: (B, T) -> (B, T, V)."""
    x = model.token_embedding(new)  # (B, T, C)
    x = x + model.position_embedding.weight[start : start + new.shape[1]]  # (B, T, C)
    for block, cache in zip(model.blocks, caches, strict=True):
        x = x + cache.attend(block.attention, block.attention_norm(x))  # type: ignore[arg-type, operator]
        x = x + block.mlp(block.mlp_norm(x))  # type: ignore[operator]
    return model.head(model.norm(x))  # (B, T, V)


def continue_greedily(model: GPT, ids: Tensor, tokens: int, cached: bool = True) -> Tensor:
    """Append the most probable token `tokens` times: (B, T) -> (B, T + tokens)."""
    caches, start = [KVCache() for _ in model.blocks], 0
    for _ in range(tokens):
        logits = logits_with_cache(model, ids[:, start:], caches, start)  # (B, T, V)
        if cached:
            start = ids.shape[1]
        else:
            caches = [KVCache() for _ in model.blocks]
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)  # (B, T + 1)
    return ids


def work(prompt: int, new: int, cached: bool) -> tuple[int, int]:
    """Return how many positions, and how many pairs of a query and a key, are computed to generate `new` tokens."""
    positions = pairs = 0
    for length in range(prompt, prompt + new):
        computed = 1 if cached and length > prompt else length
        positions += computed
        pairs += computed * length
    return positions, pairs


def multiplications(n_layer: int, width: int, vocab_size: int, prompt: int, new: int, cached: bool) -> int:
    """Return the number of multiplications in all matrix products of a GPT that generates `new` tokens."""
    positions, pairs = work(prompt, new, cached)
    blocks = n_layer * (12 * width**2 * positions + 2 * width * pairs)
    return blocks + new * width * vocab_size


def cache_bytes(n_layer: int, n_kv_head: int, head_dim: int, tokens: int, bytes_each: int = 2) -> int:
    """Return the size of the keys and values of a text in bytes."""
    return 2 * n_layer * n_kv_head * head_dim * tokens * bytes_each
