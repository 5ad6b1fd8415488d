"""Chapter 9, the same numbers sooner: attention in tiles, and keys and values that are computed once.

Two savings, neither of which changes a result. The *fused kernel* never holds the (T, S) scores: it cuts them into
tiles, and corrects what it has summed up so far whenever a larger score turns up (`see`). The *cache* keeps the keys
and values of past tokens, so that writing one more token costs one position instead of all of them (`work`).

Shapes use the legend of `jumok.nn.attention`: B batch, T query positions, S key positions, C width, H heads, G
key/value heads, D head width, V vocabulary. A leading `...` is any number of dimensions, or none.

Sources: the softmax in one pass, https://arxiv.org/abs/1805.02867; attention that needs no (T, S) memory,
https://arxiv.org/abs/2112.05682; in tiles that fit a chip, https://arxiv.org/abs/2205.14135; the cache and its size,
https://arxiv.org/abs/1911.02150.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok.config import GPTConfig
from jumok.inference.decoding import generate_ids
from jumok.inference.sampling import Sampling
from jumok.lessons.heads import key_head, split
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.positions import rotate

# --- attention in tiles -----------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """All that a query remembers of the keys it has seen: two numbers and one vector, however many keys there were.

    Fields:
        largest: (..., T), the largest score so far; -inf before the first key.
        total: (..., T), the sum of exp(score - largest).
        gathered: (..., T, D), the sum of exp(score - largest) times the value.
    """

    largest: Tensor
    total: Tensor
    gathered: Tensor


def nothing_seen(output: Tensor) -> Seen:
    """What to begin with, before the first tile.

    Args:
        output: (..., T, D), anything that has the shape and the type of the result.
    """
    total = torch.zeros_like(output[..., 0])  # (..., T)
    return Seen(torch.full_like(total, float("-inf")), total, torch.zeros_like(output))


def see(seen: Seen, scores: Tensor, values: Tensor) -> Seen:
    """Take in one tile of keys: if a larger score turns up, shrink what was summed against the old one.

    exp(score - old) · exp(old - new) is exp(score - new), so one factor corrects all earlier terms at once.

    Args:
        seen: what is known so far. scores: (..., T, S) of this tile, -inf where a query may not attend.
        values: (..., S, D) of this tile.

    Returns:
        What is known now.
    """
    largest = torch.maximum(seen.largest, scores.amax(dim=-1))  # (..., T)
    level = largest.masked_fill(largest == float("-inf"), 0.0)  # (..., T); -inf - -inf would be NaN
    shrink = torch.exp(seen.largest - level)  # (..., T)
    parts = torch.exp(scores - level[..., None])  # (..., T, S)
    total = shrink * seen.total + parts.sum(dim=-1)  # (..., T)
    gathered = shrink[..., None] * seen.gathered + parts @ values  # (..., T, D)
    return Seen(largest, total, gathered)


def result(seen: Seen) -> Tensor:
    """The attention output: what was gathered, shared out so that the weights sum to one.

    Returns:
        (..., T, D); zeros for a query that saw nothing.
    """
    empty = seen.largest == float("-inf")  # (..., T)
    return seen.gathered / seen.total.masked_fill(empty, 1.0)[..., None]


def tiles(t: int, s: int, size: int, *, causal: bool = False) -> list[tuple[range, list[range]]]:
    """In which order a kernel visits the (T, S) scores: for each tile of queries, the tiles of keys.

    Args:
        t, s: numbers of queries and of keys. size: of a tile, in each direction. causal: leave out the tiles in
            which every key comes after every query; the queries are the last t of the s positions.

    Raises:
        ValueError: the size is less than one.
    """
    if size < 1:
        raise ValueError(f"size={size} is too small; a tile has at least one query and one key")
    order = []
    for i in range(0, t, size):
        queries = range(i, min(i + size, t))
        stop = min(s, s - t + queries.stop) if causal else s
        order.append((queries, [range(j, min(j + size, s)) for j in range(0, stop, size)]))
    return order


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, *, size: int, causal: bool = False) -> Tensor:
    """Attention that never holds more than size × size scores of a head at once. With size=1 it goes key by key.

    Args:
        q: (B, H, T, D). k, v: (B, G, S, D), H a multiple of G. size: of a tile. causal: no looking ahead, as in
            `jumok.nn.attention.causal_mask`.

    Returns:
        (B, H, T, D); equal to `ScaledDotProductAttention()(q, k, v, causal=causal)`.

    Raises:
        ValueError: the size is less than one.
    """
    t, s, n_head, n_kv_head = q.shape[-2], k.shape[-2], q.shape[-3], k.shape[-3]
    served = [key_head(h, n_head, n_kv_head) for h in range(n_head)]  # (H,)
    k, v = k[..., served, :, :], v[..., served, :, :]  # (B, H, S, D) each
    rows = []
    for queries, key_tiles in tiles(t, s, size, causal=causal):
        asking = q[..., queries.start : queries.stop, :]  # (B, H, size, D)
        seen = nothing_seen(asking)
        for keys in key_tiles:
            scores = asking @ k[..., keys.start : keys.stop, :].transpose(-2, -1)  # (B, H, size, size)
            scores = scores * q.shape[-1] ** -0.5
            if causal:
                places = torch.tensor(queries, device=q.device) + s - t  # (size,), where the queries stand
                future = torch.tensor(keys, device=q.device) > places[:, None]  # (size, size)
                scores = scores.masked_fill(future, float("-inf"))
            seen = see(seen, scores, v[..., keys.start : keys.stop, :])
        rows.append(result(seen))
    return torch.cat(rows, dim=-2)  # (B, H, T, D)


def saved_shapes(compute: Callable[[], Tensor]) -> list[tuple[int, ...]]:
    """The shapes of the tensors that autograd keeps for the backward pass of a computation.

    Args:
        compute: runs the forward pass on inputs that require gradients.
    """
    shapes: list[tuple[int, ...]] = []

    def note(kept: Tensor) -> Tensor:
        shapes.append(tuple(kept.shape))
        return kept

    with torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept):
        compute()
    return shapes


# --- keys and values that are computed once ---------------------------------------------------------------------------


def attend_step_by_step(
    attention: MultiHeadAttention, x: Tensor, rotary: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Causal attention as a writer does it: one position at a time, with a growing list of keys and values.

    No mask is needed, since the list holds the past and nothing else.

    Args:
        attention: any layer. x: (T, C). rotary: cos and sin, (T, D) each, one row for each position.

    Returns:
        (T, d_out); equal to `attention(x, causal=True, rotary=rotary)` without dropout.
    """
    keys: list[Tensor] = []
    values: list[Tensor] = []
    rows = []
    for t in range(x.shape[0]):
        now = x[t : t + 1]  # (1, C)
        q = split(attention.q_proj(now), attention.n_head)  # (H, 1, D)
        k = split(attention.k_proj(now), attention.n_kv_head)  # (G, 1, D)
        if attention.q_norm is not None and attention.k_norm is not None:
            q, k = attention.q_norm(q), attention.k_norm(k)
        if rotary is not None:
            angles = rotary[0][t : t + 1], rotary[1][t : t + 1]  # position t, however few rows there are now
            q, k = rotate(q, *angles), rotate(k, *angles)
        keys.append(k)
        values.append(split(attention.v_proj(now), attention.n_kv_head))  # (G, 1, D)
        rows.append(_ask(q, torch.cat(keys, dim=1), torch.cat(values, dim=1)))  # (1, H*D)
    merged = torch.cat(rows)  # (T, H*D)
    return merged if attention.o_proj is None else attention.o_proj(merged)


def _ask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query, (H, 1, D), and all keys and values so far, (G, S, D) each: the heads side by side, (1, H*D)."""
    gathered = []
    for h in range(q.shape[0]):
        g = key_head(h, q.shape[0], k.shape[0])
        weights = (q[h] @ k[g].T * q.shape[-1] ** -0.5).softmax(dim=-1)  # (1, S)
        gathered.append(weights @ v[g])  # (1, D)
    return torch.cat(gathered, dim=-1)  # (1, H*D)


@torch.no_grad()
def logits_step_by_step(model: GPT, ids: Tensor, sizes: Sequence[int]) -> Tensor:
    """The logits of a text that is given piece by piece, with a cache of what came before.

    Args:
        model: of any family. ids: (B, T). sizes: of the pieces, which add up to T: (T,) is one pass over everything,
            (1, 1, ...) is one token at a time, (5, 1, 1, ...) is a prompt and what is written after it.

    Returns:
        (B, T, V); equal to `model(ids)`, both without dropout.

    Raises:
        ValueError: the pieces do not add up to T.
    """
    if sum(sizes) != ids.shape[1]:
        raise ValueError(f"the pieces add up to {sum(sizes)} tokens, and ids has {ids.shape[1]}; they must be the same")
    with eval_mode(model):
        cache = model.new_cache(ids.shape[0])
        return torch.cat([model(piece, cache) for piece in ids.split(list(sizes), dim=1)], dim=1)  # (B, T, V)


class Work(NamedTuple):
    """What a model has to do, counted.

    Fields:
        positions: tokens that pass through the blocks, a token counted again each time.
        pairs: of a query with a key, for one head of one block. Two plain products compute the whole rectangle of
            T · S pairs, those in the future too, before a mask takes these away.
        outputs: positions whose logits are computed.
    """

    positions: int
    pairs: int
    outputs: int


def work(prompt: int, new: int, *, cached: bool) -> Work:
    """What it takes to write `new` tokens after a prompt of `prompt` tokens, by formula.

    The first pass sees the prompt, each later one the token written last; without a cache it sees all before it again.
    The token that comes out of the last pass is never put in. All must fit into the context.

    Raises:
        ValueError: the prompt is empty, or nothing is to be written.
    """
    if prompt < 1 or new < 1:
        raise ValueError(f"prompt={prompt} and new={new} must both be at least 1")
    later = new - 1  # passes after the first
    step_by_step = later * (later + 1) // 2  # 1 + 2 + ... + later
    if cached:
        return Work(prompt + later, prompt**2 + later * prompt + step_by_step, new)
    squares = later * (later + 1) * (2 * later + 1) // 6  # 1 + 4 + ... + later²
    return Work(new * prompt + step_by_step, new * prompt**2 + 2 * prompt * step_by_step + squares, new)


def work_by_loop(prompt: int, new: int, *, cached: bool) -> Work:
    """The same as `work`, counted one by one."""
    positions = pairs = outputs = 0
    for written in range(new):
        length = prompt + written
        fresh = length if written == 0 or not cached else 1
        for _query in range(fresh):
            positions += 1
            for _key in range(length):
                pairs += 1
        outputs += 1
    return Work(positions, pairs, outputs)


def watched_work(model: GPT, prompt: Sequence[int], new: int, *, cached: bool) -> Work:
    """The same again, by watching the production model write: what arrives at the attention of its first block.

    Args:
        model: with at least one block. prompt: ids, at least one. new: how many to write. cached: with a cache or
            without.

    Raises:
        ValueError: prompt and new tokens do not fit into the context, so that the window would slide.
    """
    if len(prompt) + new - 1 > model.config.context_length:
        raise ValueError(
            f"{len(prompt)} + {new} - 1 tokens exceed the context of {model.config.context_length}; write fewer"
        )
    passes: list[tuple[int, int]] = []  # (T, S) of each

    def note(seam: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        q, k = inputs[:2]
        passes.append((q.shape[-2], k.shape[-2]))

    seam = next(part for part in model.modules() if isinstance(part, ScaledDotProductAttention))
    handle = seam.register_forward_pre_hook(note)
    try:
        with closing(generate_ids(model, prompt, Sampling(temperature=0), cache=cached)) as steps:
            written = sum(1 for _ in islice(steps, new))
    finally:
        handle.remove()
    return Work(sum(t for t, _ in passes), sum(t * s for t, s in passes), written)


def multiplications(config: GPTConfig, done: Work) -> int:
    """The multiplications in all matrix products of a GPT; norms, activations and positions are small beside them.

    Each comes with one addition, so this times two is what others call FLOPs.
    """
    heads, kv_heads = config.n_head * config.head_dim, config.n_kv_head * config.head_dim
    projections = config.n_embd * (2 * heads + 2 * kv_heads)  # q and o, k and v
    mlp = (3 if config.block().gated else 2) * config.n_embd * config.mlp_width
    a_position = config.n_layer * (projections + mlp)
    a_pair = config.n_layer * 2 * heads  # one product for the score, one for the weighted sum
    return done.positions * a_position + done.pairs * a_pair + done.outputs * config.n_embd * config.vocab_size


def cache_bytes(config: GPTConfig, length: int, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> int:
    """What the keys and values of `length` tokens take, in bytes.

    2 · n_layer · B · G · length · D numbers: the query heads do not occur, so sharing keys and values among them
    makes it smaller. `KVCache` reserves more while it grows: room for 256 tokens at first, later for up to twice as
    many as it holds.
    """
    numbers = 2 * config.n_layer * batch * config.n_kv_head * length * config.head_dim
    return numbers * dtype.itemsize
