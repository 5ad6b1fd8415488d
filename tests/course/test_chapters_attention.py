"""What the chapters on attention compute by loops is what PyTorch and jumok compute."""

from __future__ import annotations

import math

import pytest
import torch
from equality import assert_close, random

from jumok.course.chapters import averaging, block, cross, dot_product, head, self_attention
from jumok.nn.attention import attention_weights


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (1, 2)], ids=str)
def test_every_average_of_the_past_is_the_same(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    expected = x.cumsum(dim=-2) / torch.arange(1, shape[-2] + 1, dtype=x.dtype)[:, None]
    for average in (averaging.average_by_loop, averaging.average_by_matrix, averaging.average_by_softmax):
        assert_close(average(x), expected)
    for each in x.view(-1, *shape[-2:]):
        assert_close(averaging.average_by_running_mean(each), averaging.average_by_loop(each))


def test_weights_of_scores() -> None:
    scores = random(4, 4)
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    assert_close(averaging.weights_by_softmax(scores), scores.masked_fill(future, -math.inf).softmax(dim=-1))


def test_dot_product_attention_by_loop_is_that_of_jumok() -> None:
    q, k, v = random(2, 5, 4), random(2, 7, 4, seed=1), random(2, 7, 3, seed=2)
    expected = attention_weights(2 * q[:, None], k[:, None])[:, 0] @ v  # the factor √D cancels the division
    assert_close(dot_product.attend_by_loop(q, k, v), expected)
    assert_close(dot_product.attend(q, k, v), expected)
    assert_close(dot_product.scores_by_loop(q[0], k[0]), q[0] @ k[0].T)


def test_the_formula_overflows_and_the_cure_does_not() -> None:
    scores = torch.tensor([89.0, 88.0, 0.0])
    assert dot_product.softmax_by_formula(scores).isnan().any()
    torch.testing.assert_close(dot_product.softmax(scores), scores.softmax(dim=-1))


def test_the_jacobian_is_that_of_autograd() -> None:
    scores = random(6)
    expected = torch.autograd.functional.jacobian(dot_product.softmax, scores)
    assert_close(dot_product.softmax_jacobian(dot_product.softmax(scores)), expected)


def test_entropy_counts_the_keys_that_matter() -> None:
    weights = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0], [1.0, 0, 0, 0]])
    torch.testing.assert_close(dot_product.entropy(weights).exp(), torch.tensor([4.0, 2.0, 1.0]))


def test_without_scaling_a_wide_head_is_sure_of_itself_and_learns_nothing() -> None:
    q, k = self_attention.random_queries_and_keys(1024, queries=200, keys=8)
    bare, scaled = self_attention.spread(q, k, 1.0), self_attention.spread(q, k, 1024**-0.5)
    assert bare.variance == pytest.approx(1024, rel=0.1)
    assert scaled.variance == pytest.approx(1, rel=0.1)
    assert bare.largest > 0.9 > 0.5 > scaled.largest
    assert bare.sensitivity < 0.01 * scaled.sensitivity


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_how_much_weights_move_with_their_query(scale: float) -> None:
    q, k = random(1, 1, 4), random(1, 6, 4, seed=1)
    jacobian = torch.autograd.functional.jacobian(lambda x: (scale * x @ k[0].T).softmax(dim=-1), q[0, 0])
    assert self_attention.spread(q, k, scale).sensitivity == pytest.approx(jacobian.norm().item())


def test_all_ways_of_masking_are_that_of_jumok() -> None:
    q, k, v = random(5, 4), random(5, 4, seed=1), random(5, 4, seed=2)
    expected = attention_weights(q[None, None], k[None, None], causal=True)[0, 0]
    scores, mask = q @ k.T / 2, head.causal_mask(5)
    for weights in (
        head.masked_softmax(scores, mask), head.masked_after_softmax(scores, mask), head.attention_weights(q, k, mask),
    ):  # fmt: skip
        assert_close(weights, expected)
    assert_close(head.causal_attention_by_loop(q, k, v), expected @ v)


def test_influence_finds_the_triangle() -> None:
    layer = head.Head(4, 4).double()
    assert torch.equal(head.influence(layer, random(5, 4)), head.causal_mask(5))
    assert torch.equal(head.influence(layer, random(1, 5, 4)), head.causal_mask(5))
    assert head.influence(lambda x: x.flip(0), random(3, 4)).int().tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_pad_fills_up_and_tells_what_is_real() -> None:
    a, b = random(2, 3), random(4, 3, seed=1)
    batch, mask = cross.pad([a, b], value=9.0)
    assert torch.equal(batch[0], torch.cat((a, torch.full((2, 3), 9.0, dtype=a.dtype))))
    assert torch.equal(batch[1], b)
    assert mask[:, 0, 0].tolist() == [[True, True, False, False], [True] * 4]


def test_gradient_sizes_are_those_of_backward() -> None:
    blocks, x = block.random_blocks(3, 1.0, seed=0)
    torch.manual_seed(5)
    found = block.gradient_sizes(blocks, x, lambda x, f, norm: x + f(norm(x)))
    mask = head.causal_mask(x.shape[1])
    top = x
    for each in blocks:
        each.zero_grad()
        top = each(top, mask)
    torch.manual_seed(5)
    direction = torch.randn_like(top)
    top.backward(direction / direction.norm())
    for each, size in zip(blocks, found, strict=True):
        gradients = torch.cat([p.grad.flatten() for p in each.parameters() if p.grad is not None])
        assert size == pytest.approx(gradients.norm().item(), rel=1e-4)


def test_similarity() -> None:
    assert block.similarity(torch.ones(1, 4, 3)) == pytest.approx(1)
    assert block.similarity(torch.eye(3)[None]) == pytest.approx(0)
