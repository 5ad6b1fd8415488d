"""Chapter 5: stacked heads, one split projection and the production layer are the same attention."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.course.chapters.heads import (
    attend_by_heads,
    concatenate_heads,
    contributions,
    head_output,
    head_weights,
    join_heads,
    key_head,
    make_heads,
    merge,
    split,
)
from jumok.course.chapters.masked_attention import influence
from jumok.nn.attention import MultiHeadAttention, attention_weights

FOUR_DECIMALS = {"rtol": 0, "atol": 5.1e-5}
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
BATCHES = pytest.mark.parametrize("batch", [(), (1,), (3,)], ids=["alone", "one", "three"])


def close(actual: Tensor, expected: Tensor) -> None:
    atol = 1e-12 if expected.dtype == torch.float64 else 1e-6
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


# --- stacked heads ---


@DTYPES
@BATCHES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("d_in", "head_dim", "n_head", "length"), [(3, 2, 2, 6), (5, 3, 1, 4), (7, 1, 5, 1)])
@pytest.mark.parametrize(("qkv_bias", "d_out"), [(False, None), (True, 4)])
def test_stacked_heads_equal_one_split_layer(
    d_in: int,
    head_dim: int,
    n_head: int,
    length: int,
    causal: bool,
    batch: tuple[int, ...],
    qkv_bias: bool,
    d_out: int | None,
    dtype: torch.dtype,
) -> None:
    """With and without output projection and biases."""
    torch.manual_seed(0)
    heads = [head.to(dtype) for head in make_heads(d_in, head_dim, n_head, qkv_bias=qkv_bias)]
    o_proj = None if d_out is None else nn.Linear(n_head * head_dim, d_out, dtype=dtype)
    x = torch.randn(*batch, length, d_in, dtype=dtype)
    side_by_side = concatenate_heads(heads, x, causal=causal)
    assert side_by_side.shape == (*batch, length, n_head * head_dim)
    expected = side_by_side if o_proj is None else o_proj(side_by_side)
    joined = join_heads(heads, o_proj)
    close(joined(x, causal=causal), expected)
    close(attend_by_heads(joined, x, causal=causal), expected)


@DTYPES
def test_stacked_heads_look_across_to_a_context(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    heads = [MultiHeadAttention(3, 2, 1, project=False, d_context=5).to(dtype) for _ in range(3)]
    x, context = torch.randn(2, 4, 3, dtype=dtype), torch.randn(2, 6, 5, dtype=dtype)
    mask = torch.tensor([True, True, False, True, False, True])
    close(join_heads(heads)(x, context, mask=mask), concatenate_heads(heads, x, context, mask=mask))


def test_joining_copies() -> None:
    """The single heads stay as they are, the copy can be trained, and no random number is drawn for it."""
    heads, o_proj = make_heads(3, 2, 2), nn.Linear(4, 3)
    state = torch.random.get_rng_state()
    joined = join_heads(heads, o_proj)
    assert torch.equal(torch.random.get_rng_state(), state)
    joined(torch.randn(5, 3)).sum().backward()
    assert all(parameter.grad is not None for parameter in joined.parameters())
    with torch.no_grad():
        for parameter in joined.parameters():
            parameter.zero_()
    assert all(parameter.any() for part in (*heads, o_proj) for parameter in part.parameters())


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([], "no heads were given"),
        ([MultiHeadAttention(4, 4, 2, project=False)], "must have one head, no output projection"),
        ([MultiHeadAttention(4, 4, 1)], "must have one head, no output projection"),
        ([*make_heads(4, 2, 1), *make_heads(4, 3, 1)], r"of one shape.*\(2, 4\).* and .*\(3, 4\)"),
    ],
)
def test_heads_that_cannot_be_joined(heads: list[MultiHeadAttention], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        join_heads(heads)


# --- one head of the production layer ---


@BATCHES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("n_head", "n_kv_head"), [(1, 1), (4, 4), (4, 2), (6, 1)])
@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "qk_norm": 1e-6}, {"head_dim": 5}, {"project": False}])
def test_head_by_head_equals_the_layer(
    n_head: int, n_kv_head: int, causal: bool, batch: tuple[int, ...], options: dict[str, Any]
) -> None:
    """Grouped heads, norms, biases, heads narrower or wider than the model."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(7, 12, n_head, n_kv_head=n_kv_head, **options).double()
    x = torch.randn(*batch, 5, 7, dtype=torch.float64)
    close(attend_by_heads(attention, x, causal=causal), attention(x, causal=causal))


@DTYPES
def test_weights_of_each_head_are_those_of_the_seam(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 8, 4, n_kv_head=2).to(dtype)
    x = torch.randn(3, 5, 6, dtype=dtype)
    q, k = split(attention.q_proj(x), 4), split(attention.k_proj(x), 2)
    expected = attention_weights(q, k, causal=True)
    for h in range(4):
        close(head_weights(attention, h, x, causal=True), expected[:, h])


@DTYPES
@pytest.mark.parametrize(
    "shape", [(4, 5), (1, 1, 1, 5), (2, 1, 1, 5), (2, 1, 4, 5), (1, 3, 4, 5), (2, 3, 4, 5)], ids=str
)
def test_a_mask_of_any_shape_reaches_its_head(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 6, 3, d_context=2).to(dtype)
    x, context = torch.randn(2, 4, 6, dtype=dtype), torch.randn(2, 5, 2, dtype=dtype)
    mask = torch.rand(shape) < 0.5
    mask[..., 0, :] = False  # also queries with nothing to attend to
    for causal in (False, True):
        expected = attention(x, context, mask=mask, causal=causal)
        close(attend_by_heads(attention, x, context, mask=mask, causal=causal), expected)


@pytest.mark.parametrize("h", [-1, 3])
def test_a_head_that_is_not_there(h: int) -> None:
    with pytest.raises(ValueError, match=f"there is no head {h}; the layer has heads 0 to 2"):
        head_weights(MultiHeadAttention(3, 3, 3), h, torch.randn(2, 3))


@pytest.mark.parametrize("g", [1, 2, 3, 6])
def test_neighbours_share_a_key_head(g: int) -> None:
    """As PyTorch's enable_gqa and repeat_interleave do it."""
    expected = torch.arange(g).repeat_interleave(6 // g).tolist()
    assert [key_head(h, 6, g) for h in range(6)] == expected


# --- splitting, merging, projecting ---


@BATCHES
def test_splitting_and_merging_are_what_the_layer_does(batch: tuple[int, ...]) -> None:
    attention = MultiHeadAttention(3, 12, 4)
    x = torch.randn(*batch, 5, 12)
    assert torch.equal(split(x, 4), attention._split(x, 4))
    assert torch.equal(merge(split(x, 4)), x)
    assert split(x, 4)[..., 1, 2, :].tolist() == x[..., 2, 3:6].tolist()


def test_a_width_that_cannot_be_shared_out() -> None:
    with pytest.raises(ValueError, match="a width of 10 is not divisible by n_head=4"):
        split(torch.zeros(2, 10), 4)


@DTYPES
@BATCHES
@pytest.mark.parametrize("out_bias", [False, True])
def test_the_output_projection_is_a_sum_over_heads(out_bias: bool, batch: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = MultiHeadAttention(6, 5, 3, head_dim=2, out_bias=out_bias).to(dtype)
    x = torch.randn(*batch, 4, 6, dtype=dtype)
    merged = torch.cat([head_output(attention, h, x) for h in range(3)], dim=-1)
    parts = contributions(attention, merged)
    assert parts.shape == (*batch, 3, 4, 5)
    total = parts.sum(dim=-3)
    assert attention.o_proj is not None
    close(total if attention.o_proj.bias is None else total + attention.o_proj.bias, attention(x))


def test_contributions_need_an_output_projection() -> None:
    with pytest.raises(ValueError, match="make it with project=True"):
        contributions(MultiHeadAttention(4, 4, 2, project=False), torch.zeros(3, 4))


# --- mistakes ---


def wrongly_split(attention: MultiHeadAttention, x: Tensor, *, merge_back: bool) -> Tensor:
    """A view cuts the rows of memory, which are positions, into heads; the shape comes out right."""
    b, t, width = x.shape
    q, k, v = (p(x).view(b, 2, t, width // 2) for p in (attention.q_proj, attention.k_proj, attention.v_proj))
    heads = attention.attend(q, k, v, None, True)
    return heads.view(b, t, width) if merge_back else merge(heads)


def test_view_instead_of_transpose_cuts_the_text_in_two() -> None:
    """With the same mistake on the way back nothing looks ahead, but the second half never sees the first one."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(4, 4, 2).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    seen = influence(lambda y: wrongly_split(attention, y, merge_back=True), x)
    half = torch.ones(3, 3).tril().bool()
    assert torch.equal(seen, torch.block_diag(half, half).bool())
    assert torch.equal(influence(lambda y: attention(y, causal=True), x), torch.ones(6, 6).tril().bool())


def test_view_instead_of_transpose_shows_the_future() -> None:
    """With a proper merge, position 0 gets its second half out of a word in the middle of the text."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(4, 4, 2).double()
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    seen = influence(lambda y: wrongly_split(attention, y, merge_back=False), x)
    assert seen[0].tolist() == [True, False, False, True, False, False]


def test_without_output_projection_heads_never_meet() -> None:
    """Head 1 alone decides about the last columns; the shape does not betray it."""
    torch.manual_seed(0)
    apart, together = MultiHeadAttention(4, 4, 2, project=False), MultiHeadAttention(4, 4, 2)
    x = torch.randn(3, 4)
    for attention, columns in ((apart, [False, False, True, True]), (together, [True] * 4)):
        before = attention(x).detach()
        with torch.no_grad():
            attention.v_proj.weight[2:] += 1  # the values of head 1
        moved = (attention(x) - before).abs().amax(dim=0) > 1e-6
        assert moved.tolist() == columns


# --- published tables ---


def test_table_of_stacked_heads(published: dict[str, Any]) -> None:
    """Two causal single heads made one after the other, on a batch of the inputs twice."""
    x = torch.tensor(published["inputs"]).expand(2, -1, -1)  # (2, 6, 3)
    torch.manual_seed(123)
    heads = make_heads(3, 2, 2)
    expected = torch.tensor(published["stacked_heads"]["context"]).expand(2, -1, -1)  # (2, 6, 4)
    torch.testing.assert_close(concatenate_heads(heads, x, causal=True), expected, **FOUR_DECIMALS)
    torch.testing.assert_close(join_heads(heads)(x, causal=True), expected, **FOUR_DECIMALS)


@pytest.mark.parametrize("seed", [0, 123, 4321])
@pytest.mark.parametrize(("batch", "length", "d_in", "head_dim", "n_head"), [(2, 6, 3, 2, 2), (1, 9, 5, 3, 4)])
@pytest.mark.parametrize(("bias", "d_out"), [(False, None), (True, None), (False, 3), (True, 6)])
def test_other_tables_made_the_same_way(
    seed: int, batch: int, length: int, d_in: int, head_dim: int, n_head: int, bias: bool, d_out: int | None
) -> None:
    """Another seed, other sizes, with and without an output projection made after the heads, in plain torch."""
    torch.manual_seed(seed)
    made = [[nn.Linear(d_in, head_dim, bias=bias) for _ in range(3)] for _ in range(n_head)]
    plain_projection = None if d_out is None else nn.Linear(n_head * head_dim, d_out)
    x = torch.randn(batch, length, d_in)
    hidden = torch.triu(torch.ones(length, length), diagonal=1).bool()
    contexts = []
    for query, key, value in made:
        scores = (query(x) @ key(x).transpose(1, 2)).masked_fill(hidden, -torch.inf)
        contexts.append(torch.softmax(scores / head_dim**0.5, dim=-1) @ value(x))
    expected = torch.cat(contexts, dim=-1)
    if plain_projection is not None:
        expected = plain_projection(expected)

    torch.manual_seed(seed)
    heads = make_heads(d_in, head_dim, n_head, qkv_bias=bias)
    o_proj = None if d_out is None else nn.Linear(n_head * head_dim, d_out)
    stacked = concatenate_heads(heads, x, causal=True)
    close(stacked if o_proj is None else o_proj(stacked), expected)
    close(join_heads(heads, o_proj)(x, causal=True), expected)


@pytest.mark.parametrize(("seed", "d_in", "d_out", "n_head"), [(123, 3, 2, 2), (7, 5, 6, 3)])
def test_the_layer_itself_makes_the_table_of_one_split_projection(
    seed: int, d_in: int, d_out: int, n_head: int
) -> None:
    """Such tables are made of query, key, value and output projection, in this order."""
    torch.manual_seed(seed)
    query, key, value = (nn.Linear(d_in, d_out, bias=False) for _ in range(3))
    projection = nn.Linear(d_out, d_out)
    x = torch.randn(2, 6, d_in)
    q, k, v = (p(x).view(2, 6, n_head, d_out // n_head).transpose(1, 2) for p in (query, key, value))
    scores = (q @ k.transpose(2, 3)).masked_fill(torch.triu(torch.ones(6, 6), diagonal=1).bool(), -torch.inf)
    context = torch.softmax(scores / (d_out // n_head) ** 0.5, dim=-1) @ v
    expected = projection(context.transpose(1, 2).reshape(2, 6, d_out))

    torch.manual_seed(seed)
    attention = MultiHeadAttention(d_in, d_out, n_head)
    close(attention(x, causal=True), expected)
    close(attend_by_heads(attention, x, causal=True), expected)
