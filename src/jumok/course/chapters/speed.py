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

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from jumok import GPT
from jumok.config import GPTConfig
from jumok.course.chapters.heads import key_head, split
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling
from jumok.models.modes import eval_mode
from jumok.nn import MultiHeadAttention, ScaledDotProductAttention, rotate

# --- attention in tiles -----------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """The state of a softmax in one pass: two numbers and one vector per query, for any number of keys.

    Fields:
        largest: (..., T), the largest score so far; -inf before the first key.
        total: (..., T), the sum of exp(score - largest).
        gathered: (..., T, D), the sum of exp(score - largest) times the value.
    """

    largest: Tensor
    total: Tensor
    gathered: Tensor


def nothing_seen(output: Tensor) -> Seen:
    """The state before the first tile.

    Args:
        output: (..., T, D), any tensor with the shape and type of the result.
    """
    total = torch.zeros_like(output[..., 0])  # (..., T)
    return Seen(torch.full_like(total, float("-inf")), total, torch.zeros_like(output))


def see(seen: Seen, scores: Tensor, values: Tensor) -> Seen:
    """Add one tile of keys to the state. If it has a larger score, the sums so far are rescaled.

    exp(score - old) · exp(old - new) is exp(score - new), so one factor corrects all earlier terms at once.

    Args:
        seen: the state so far. scores: (..., T, S) of this tile, -inf where a query may not attend.
        values: (..., S, D) of this tile.

    Returns:
        The new state.
    """
    largest = torch.maximum(seen.largest, scores.amax(dim=-1))  # (..., T)
    level = largest.masked_fill(largest == float("-inf"), 0.0)  # (..., T); -inf - -inf would be NaN
    shrink = torch.exp(seen.largest - level)  # (..., T)
    parts = torch.exp(scores - level[..., None])  # (..., T, S)
    total = shrink * seen.total + parts.sum(dim=-1)  # (..., T)
    gathered = shrink[..., None] * seen.gathered + parts @ values  # (..., T, D)
    return Seen(largest, total, gathered)


def result(seen: Seen) -> Tensor:
    """The attention output: `gathered` divided by `total`, so that the weights sum to one.

    Returns:
        (..., T, D); zeros for a query that may not attend to any key.
    """
    empty = seen.largest == float("-inf")  # (..., T)
    return seen.gathered / seen.total.masked_fill(empty, 1.0)[..., None]


def tiles(t: int, s: int, size: int, *, causal: bool = False) -> list[tuple[range, list[range]]]:
    """The order in which a kernel computes the (T, S) scores: for each tile of queries, the tiles of keys.

    Args:
        t, s: numbers of queries and of keys. size: of a tile, in each direction. causal: skip the tiles in which
            every key comes after every query; the queries are the last t of the s positions.

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
    """Attention that stores at most size × size scores of a head at once. With size=1 it processes one key at a time.

    Args:
        q: (B, H, T, D). k, v: (B, G, S, D), H a multiple of G. size: of a tile. causal: mask future positions, as
            `jumok.nn.attention.causal_mask` does.

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
                places = torch.tensor(queries, device=q.device) + s - t  # (size,), positions of the queries
                future = torch.tensor(keys, device=q.device) > places[:, None]  # (size, size)
                scores = scores.masked_fill(future, float("-inf"))
            seen = see(seen, scores, v[..., keys.start : keys.stop, :])
        rows.append(result(seen))
    return torch.cat(rows, dim=-2)  # (B, H, T, D)


def saved_shapes(compute: Callable[[], Tensor]) -> list[tuple[int, ...]]:
    """The shapes of the tensors that autograd saves for the backward pass of a computation.

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
    """Causal attention as in generation: one position at a time, with growing lists of keys and values.

    No mask is needed, because the lists contain only the past.

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
            angles = rotary[0][t : t + 1], rotary[1][t : t + 1]  # the angle of position t, not of position 0
            q, k = rotate(q, *angles), rotate(k, *angles)
        keys.append(k)
        values.append(split(attention.v_proj(now), attention.n_kv_head))  # (G, 1, D)
        rows.append(_ask(q, torch.cat(keys, dim=1), torch.cat(values, dim=1)))  # (1, H*D)
    merged = torch.cat(rows)  # (T, H*D)
    return merged if attention.o_proj is None else attention.o_proj(merged)


def _ask(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of one query (H, 1, D) over keys and values (G, S, D): the concatenated heads, (1, H*D)."""
    gathered = []
    for h in range(q.shape[0]):
        g = key_head(h, q.shape[0], k.shape[0])
        weights = (q[h] @ k[g].T * q.shape[-1] ** -0.5).softmax(dim=-1)  # (1, S)
        gathered.append(weights @ v[g])  # (1, D)
    return torch.cat(gathered, dim=-1)  # (1, H*D)


@torch.no_grad()
def logits_step_by_step(model: GPT, ids: Tensor, sizes: Sequence[int]) -> Tensor:
    """The logits of a text that is passed to the model in pieces, with a cache.

    Args:
        model: of any family. ids: (B, T). sizes: of the pieces, which add up to T: (T,) is a single pass,
            (1, 1, ...) is one token at a time, (5, 1, 1, ...) is a prompt and the tokens generated after it.

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
    """Counts of the computation of a model.

    Fields:
        positions: tokens that pass through the blocks. A token is counted in every pass.
        pairs: of a query with a key, for one head of one block. A pass computes all T · S pairs, including future
            ones, which are masked afterwards.
        outputs: positions whose logits are computed.
    """

    positions: int
    pairs: int
    outputs: int


def work(prompt: int, new: int, *, cached: bool) -> Work:
    """The computation for generating `new` tokens after a prompt of `prompt` tokens, by formula.

    The input of the first pass is the prompt. The input of each later pass is the last token, or without a cache the
    whole text so far. The last generated token is never an input. All tokens must fit into the context.

    Raises:
        ValueError: prompt or new is less than one.
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
    """The same as `work`, counted with loops."""
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
    """The same, measured while the production model generates: a hook records the inputs of its first attention.

    Args:
        model: with at least one block. prompt: ids, at least one. new: number of tokens to generate. cached: whether
            to use a cache.

    Raises:
        ValueError: prompt and new tokens do not fit into the context.
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
    """The number of multiplications in all matrix products of a GPT. Norms, activations and positions are not counted.

    Each multiplication comes with one addition, so the number of FLOPs is twice this number.
    """
    heads, kv_heads = config.n_head * config.head_dim, config.n_kv_head * config.head_dim
    projections = config.n_embd * (2 * heads + 2 * kv_heads)  # q and o, k and v
    mlp = (3 if config.block().gated else 2) * config.n_embd * config.mlp_width
    a_position = config.n_layer * (projections + mlp)
    a_pair = config.n_layer * 2 * heads  # one product for the score, one for the weighted sum
    return done.positions * a_position + done.pairs * a_pair + done.outputs * config.n_embd * config.vocab_size


def cache_bytes(config: GPTConfig, length: int, *, batch: int = 1, dtype: torch.dtype = torch.float32) -> int:
    """The size of the keys and values of `length` tokens, in bytes.

    There are 2 · n_layer · B · G · length · D numbers. The number of query heads does not matter, so sharing keys and
    values among query heads makes the cache smaller. `KVCache` reserves more than this: space for 256 tokens at first,
    and later for up to twice as many tokens as it contains.
    """
    numbers = 2 * config.n_layer * batch * config.n_kv_head * length * config.head_dim
    return numbers * dtype.itemsize
