"""First weights with which some heads look at the tokens around them; otherwise all begin by averaging.

To look at the token before is what a small model learns first, and slowly: a model of hidden words, whose positions are
learned, dwells for hundreds of steps on a plateau before it has found its neighbours. Positions make such heads easy to
write down, since the product of two angles' cosines and sines is a cosine of their difference: a query and a key that
depend on the position alone fit best at one distance. It is a start and nothing more: all of it goes on learning, and
the weights are ordinary ones of the stock classes. What it is worth was measured: bench/LOG.md.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.nn.attention import MultiHeadAttention
from jumok.nn.positions import SHARP, looking_back

SHARE = 0.75  # of the heads of the first causal block that begin so
# By rotation: the column common to all embeddings over the others, and the part of a query or key made from it, over
# the part that depends on the token.
COMMON = 4.0
OVER_TOKENS = 3.0
# By learned positions: the pairs of columns that hold angles, their mean size over that of the other columns, and the
# largest score, which half of the weight or so then goes to.
PAIRS = 16
LOUD = 4.0
PEAK = 8.0


@torch.no_grad()
def look_back_by_rotation(embedding: Tensor, layers: Sequence[MultiHeadAttention], *, base: float) -> None:
    """Let heads look 1, 2, 3 ... tokens back whose positions are rotary: most of the first layer, fewer in each above.

    Rotary positions tell distances, but only to queries and keys that do not depend on the token. So one column of the
    embeddings becomes the same for all tokens, and those heads make their queries and keys from it.

    Args:
        embedding: (V, C), of the tokens. layers: attention from the first block to the last. base: see `rotary`.
    """
    embedding[:, 0] = COMMON * embedding.square().mean().sqrt()
    for number, attention in enumerate(layers):
        heads, groups, width = attention.n_head, attention.n_kv_head, attention.head_dim
        queries = attention.q_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
        keys = attention.k_proj.weight.unflatten(0, (groups, width))  # (G, D, C)
        for head in range(round(SHARE * heads * (1 - number / len(layers)))):
            query, key = looking_back(1 + head, width, base=base)
            queries[head, :, 0] = OVER_TOKENS * query / COMMON
            keys[head * groups // heads, :, 0] = OVER_TOKENS * key / COMMON


@torch.no_grad()
def look_around_by_positions(
    table: Tensor, attention: MultiHeadAttention, *, beside: Tensor, causal: bool = False
) -> None:
    """Let heads of a first block look at neighbours where positions are learned and a norm follows them.

    The first columns of the table become cosines and sines of the position, from a turn of one radian a token down to
    SHARP. The heads copy them, the query's turned by a distance: 1, -1, 2, -2 ... tokens back, or 1, 2, 3 ... for three
    quarters of the heads of a causal block.

    Args:
        table: (T, C), the positions. attention: of the first block, with as many query as key heads.
        beside: (), mean square of what the positions are added to.
    """
    width, heads = attention.head_dim, attention.n_head
    pairs = min(PAIRS, width // 2, table.shape[1] // 4)
    if not pairs:
        return
    size = LOUD * table.square().mean().sqrt()
    device = table.device  # said, since other libraries change what is made where no device is
    turns = SHARP ** (torch.arange(pairs, device=device) / max(1, pairs - 1))  # (P,), radians a token
    angles = torch.outer(torch.arange(len(table), device=device), turns)  # (T, P)
    table[:, : 2 * pairs] = size * 2**0.5 * torch.cat((angles.cos(), angles.sin()), dim=1)
    loudness = table[:, 0].square().mean() * 2 / (beside + table.square().mean())  # of an angle, after the norm
    gain = (PEAK * width**0.5 / (pairs * loudness)).sqrt()
    queries = attention.q_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
    keys = attention.k_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
    for head in range(round(SHARE * heads) if causal else heads):
        distance = 1 + head if causal else (1 + head // 2) * (-1) ** head
        cos, sin = (torch.diag(f(distance * turns)) for f in (torch.cos, torch.sin))  # (P, P) each
        turned = torch.cat((torch.cat((cos, sin), dim=1), torch.cat((-sin, cos), dim=1)))  # (2P, 2P)
        queries[head, : 2 * pairs, : 2 * pairs] = gain * turned
        keys[head, : 2 * pairs, : 2 * pairs] = gain * torch.eye(2 * pairs, device=device)
