"""Initial parameters with which some heads attend to neighbouring tokens. Other heads begin by averaging.

A small model must first learn to attend to the previous token, which is slow: with learned positions, the loss of
masked language modelling stays on a plateau for hundreds of steps. Such heads can be constructed from the positions,
because the products of cosines and sines of two angles give a cosine of their difference: the product of a query and a
key that depend only on their positions is then largest at one distance. All parameters are trained as usual, and the
architecture is not changed. bench/LOG.md has the measurements.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.nn.attention import MultiHeadAttention
from jumok.nn.positions import SHARP, looking_back

LOOKING_SHARE = 0.75  # of the heads of the first causal block that are initialised this way
# For rotary positions: the size of the constant column of the embeddings relative to the others, and the size of the
# constant part of a query or key relative to the part that depends on the token.
CONSTANT_COLUMN_SCALE = 4.0
CONSTANT_PART_SCALE = 3.0
# For learned positions: the number of column pairs with angles, their size relative to the other columns, and the
# largest score, which gives one position about half of the attention weight.
ANGLE_PAIRS = 16
POSITION_SCALE = 4.0
MAX_SCORE = 8.0


@torch.no_grad()
def look_back_by_rotation(embedding: Tensor, layers: Sequence[MultiHeadAttention], *, base: float) -> None:
    """Initialise heads of a model with rotary positions so that they attend 1, 2, 3 ... tokens back.

    They are most of the heads of the first layer, and fewer in each following layer. The scores of such a head must not
    depend on the tokens. So one column of the embeddings is set to a constant, and the head computes its queries and
    keys from it.

    Args:
        embedding: (V, C), of the tokens; modified in place.
        layers: the attention layers of all blocks, in order; modified in place.
        base: see `rotary`.
    """
    embedding[:, 0] = CONSTANT_COLUMN_SCALE * embedding.square().mean().sqrt()
    for number, attention in enumerate(layers):
        heads, groups, width = attention.n_head, attention.n_kv_head, attention.head_dim
        queries = attention.q_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
        keys = attention.k_proj.weight.unflatten(0, (groups, width))  # (G, D, C)
        for head in range(round(LOOKING_SHARE * heads * (1 - number / len(layers)))):
            query, key = looking_back(1 + head, width, base=base)
            queries[head, :, 0] = CONSTANT_PART_SCALE * query / CONSTANT_COLUMN_SCALE
            keys[head * groups // heads, :, 0] = CONSTANT_PART_SCALE * key / CONSTANT_COLUMN_SCALE


@torch.no_grad()
def look_around_by_positions(
    table: Tensor, attention: MultiHeadAttention, *, beside: Tensor, causal: bool = False
) -> None:
    """Initialise heads of the first block so that they attend to neighbours, for learned positions with a norm.

    The first columns of the table become cosines and sines of the position, with frequencies from one radian per token
    down to SHARP. The keys copy them, and the queries rotate them by a distance: 1, -1, 2, -2 ... tokens back, or in a
    causal block 1, 2, 3 ... for three quarters of the heads.

    Args:
        table: (T, C), the positions; modified in place.
        attention: the layer of the first block, with as many key heads as query heads; modified in place.
        beside: (), mean square of the embeddings to which the positions are added.
        causal: whether the block is causal.
    """
    width, heads = attention.head_dim, attention.n_head
    pairs = min(ANGLE_PAIRS, width // 2, table.shape[1] // 4)
    if not pairs:
        return
    size = POSITION_SCALE * table.square().mean().sqrt()
    device = table.device  # explicit, because some libraries change the default device
    turns = SHARP ** (torch.arange(pairs, device=device) / max(1, pairs - 1))  # (P,), radians per token
    angles = torch.outer(torch.arange(len(table), device=device), turns)  # (T, P)
    table[:, : 2 * pairs] = size * 2**0.5 * torch.cat((angles.cos(), angles.sin()), dim=1)
    pair_size = table[:, 0].square().mean() * 2 / (beside + table.square().mean())  # of a pair, after the norm
    gain = (MAX_SCORE * width**0.5 / (pairs * pair_size)).sqrt()
    queries = attention.q_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
    keys = attention.k_proj.weight.unflatten(0, (heads, width))  # (H, D, C)
    for head in range(round(LOOKING_SHARE * heads) if causal else heads):
        distance = 1 + head if causal else (1 + head // 2) * (-1) ** head
        cos, sin = (torch.diag(f(distance * turns)) for f in (torch.cos, torch.sin))  # (P, P) each
        turned = torch.cat((torch.cat((cos, sin), dim=1), torch.cat((-sin, cos), dim=1)))  # (2P, 2P)
        queries[head, : 2 * pairs, : 2 * pairs] = gain * turned
        keys[head, : 2 * pairs, : 2 * pairs] = gain * torch.eye(2 * pairs, device=device)
