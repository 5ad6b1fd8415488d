"""Chunked attention: its backward pass, with stored and with recomputed weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from jumok.nn import chunked_attention as chunked_attention_module
from jumok.nn.attention import ScaledDotProductAttention, attention_weights
from jumok.nn.chunked_attention import chunked_attention


def heads(b: int, h: int, t: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(b, t, h, d, dtype=dtype, generator=random).transpose(1, 2).requires_grad_()


def scattered(b: int, h: int, t: int, s: int) -> Tensor:
    mask = torch.rand(b, h, t, s, generator=torch.Generator().manual_seed(5)) < 0.5
    mask[0, 0, t // 2] = False  # a query with nothing to attend to
    return mask


MASKS = {
    "none": lambda b, h, t, s: None,
    "padding": lambda b, h, t, s: torch.arange(s) < torch.tensor([s, *[s - 3] * (b - 1)])[:, None, None, None],
    "shared": lambda b, h, t, s: scattered(1, 1, t, s)[0, 0],
    "scattered": scattered,
}


@pytest.mark.parametrize("longest", [0, 512], ids=["made again", "kept"])
@pytest.mark.parametrize("tile", [1, 2 * 40 * 70, 2**20], ids=["a head", "a row", "all"])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("t", "s"), [(40, 40), (35, 70), (9, 4)])
def test_gradients_are_those_of_the_formula(t, s, mask, causal, tile, longest, monkeypatch):
    """In float64, over several chunks of queries and several parts of the batch."""
    monkeypatch.setattr(chunked_attention_module, "LONGEST_STORED", longest)
    monkeypatch.setattr(chunked_attention_module, "TILE", tile)
    b, h, d = 3, 2, 5
    q, k, v = heads(b, h, t, d, 1), heads(b, h, s, d, 2), heads(b, h, s, d, 3)
    above = heads(b, h, t, d, 4).detach()
    seen = MASKS[mask](b, h, t, s)
    out = chunked_attention(q, k, v, seen, causal)
    plain = attention_weights(q, k, seen, causal) @ v
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-13)
    found = torch.autograd.grad(out, (q, k, v), above)
    for mine, expected in zip(found, torch.autograd.grad(plain, (q, k, v), above), strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_gradcheck():
    q, k, v = heads(1, 2, 34, 2, 1), heads(1, 2, 34, 2, 2), heads(1, 2, 34, 2, 3)
    assert torch.autograd.gradcheck(lambda *x: chunked_attention(*x, None, True), (q, k, v))


@pytest.mark.parametrize("group", [1, 2])
def test_bfloat16_is_as_near_to_the_truth_as_the_fused_kernel(group):
    q, k, v = (heads(2, n, 128, 16, n, torch.float32) for n in (4, 4 // group, 4 // group))
    above = heads(2, 4, 128, 16, 9, torch.float32).detach()

    def gradients(low: bool) -> tuple[Tensor, ...]:
        kind = torch.bfloat16 if low else torch.float64
        inside = [x.detach().to(kind).requires_grad_() for x in (q, k, v)]
        out = ScaledDotProductAttention()(*inside, causal=True)
        return out, *torch.autograd.grad(out, inside, above.to(kind))

    def fused() -> tuple[Tensor, ...]:
        inside = [x.detach().bfloat16().requires_grad_() for x in (q, k, v)]
        attend = torch.nn.functional.scaled_dot_product_attention
        out = attend(*inside, is_causal=True, enable_gqa=group > 1)
        return out, *torch.autograd.grad(out, inside, above.bfloat16())

    for mine, theirs, truth in zip(gradients(True), fused(), gradients(False), strict=True):
        error, other = ((x.double() - truth).norm() / truth.norm() for x in (mine, theirs))
        assert error < 1.5 * other + 1e-3


def test_a_row_whose_scores_are_all_infinite_is_not_an_empty_one():
    """It was treated as a row without any allowed key, and its NaN became zeros."""
    q, k, v = (heads(1, 1, 16, 4, n, torch.float32) for n in range(3))
    mask = torch.ones(1, 1, 1, 16, dtype=torch.bool)
    low = chunked_attention(q.detach() * 0 - torch.inf, k.detach().abs() + 1, v, mask, False)
    assert low.isnan().all()


def test_what_only_the_formula_can_do_goes_there():
    """The formula broadcasts one context over all sequences; the operator does not support that."""
    q, k, v = heads(3, 2, 20, 4, 1), heads(1, 2, 20, 4, 2), heads(1, 2, 20, 4, 3)
    out = ScaledDotProductAttention()(q, k, v)
    torch.testing.assert_close(out, attention_weights(q, k) @ v)
    assert torch.autograd.grad(out.sum(), k)[0].shape == k.shape


def test_autocast_reaches_the_operator():
    q, k, v = (heads(1, 2, 40, 8, n, torch.float32) for n in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = chunked_attention(q, k, v, None, True)
    assert out.dtype == torch.bfloat16
    out.sum().backward()
    assert q.grad is not None
    assert q.grad.dtype == torch.float32


@pytest.mark.long
@pytest.mark.compile
def test_compiled_is_equal():
    if not torch._dynamo.is_dynamo_supported():
        pytest.skip("torch.compile does not support this Python")
    q, k, v = (heads(2, 2, 40, 8, n, torch.float32) for n in range(3))
    compiled = torch.compile(lambda *x: chunked_attention(*x, None, True), backend="aot_eager")
    out, plain = compiled(q, k, v), chunked_attention(q, k, v, None, True)
    assert torch.equal(out, plain)
    for mine, expected in zip(
        torch.autograd.grad(out.sum(), (q, k, v)), torch.autograd.grad(plain.sum(), (q, k, v)), strict=True
    ):
        assert torch.equal(mine, expected)


@pytest.mark.parametrize(("b", "t", "most"), [(1, 600, 2**25), (64, 40, 1000)], ids=["long", "many"])
def test_long_contexts_and_large_batches_keep_no_weights(b, t, most, monkeypatch):
    """The weights would take 2 GB for 8,192 keys, and 10 GB for 256 sequences of 512."""
    monkeypatch.setattr(chunked_attention_module, "MOST_STORED", most)
    q, k, v = (heads(b, 8, t, 4, n, torch.float32) for n in range(3))
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (saved.append(x.numel()), x)[1], lambda x: x):
        chunked_attention(q, k, v, None, True)
    assert saved
    assert max(saved) <= q.numel()
