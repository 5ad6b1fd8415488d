"""Attention: the fused kernel, the explicit weights and published tables agree."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention, attention_weights, causal_mask
from jumok.nn.cache import LayerCache

EXACT = {"rtol": 0, "atol": 1e-12}
FOUR_DECIMALS = {"rtol": 0, "atol": 5.1e-5}


def heads(b: int, h: int, t: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(b, h, t, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Attention in plain Python, one query and one head at a time; independent of the tested code."""
    (b, h, t, d), (_, g, s, _) = q.shape, k.shape
    out = torch.zeros(b, h, t, d, dtype=q.dtype)
    allowed = torch.ones(b, h, t, s, dtype=torch.bool) if mask is None else mask.expand(b, h, t, s)
    for n in range(b):
        for head in range(h):
            keys, values = k[n, head * g // h], v[n, head * g // h]
            for i in range(t):
                seen = [j for j in range(s) if allowed[n, head, i, j] and (not causal or j <= i + s - t)]
                if not seen:
                    continue
                scores = [math.fsum((q[n, head, i] * keys[j]).tolist()) / math.sqrt(d) for j in seen]
                total = math.fsum(math.exp(score) for score in scores)
                for j, score in zip(seen, scores, strict=True):
                    out[n, head, i] += math.exp(score) / total * values[j]
    return out


def random_mask(kind: str, b: int, h: int, t: int, s: int) -> Tensor | None:
    random = torch.Generator().manual_seed(7)
    if kind == "none":
        return None
    if kind == "padding":  # which keys there are, for each sequence
        mask = torch.rand(b, 1, 1, s, generator=random) < 0.7
        mask[..., 0] = True
        return mask
    mask = torch.rand(b, h, t, s, generator=random) < 0.4
    mask[0, 0, 0] = False  # a query with nothing to attend to
    return mask


@pytest.mark.parametrize("training", [False, True], ids=["fused", "chunked"])
@pytest.mark.parametrize("kind", ["none", "padding", "scattered"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "s"), [(5, 5), (1, 6), (3, 6), (1, 1)])
@pytest.mark.parametrize(("h", "g"), [(4, 4), (6, 2)])
def test_seam_equals_weights_times_values(h: int, g: int, t: int, s: int, causal: bool, kind: str, training: bool):
    """Both implementations, the attention weights and plain Python agree."""
    q, k, v = heads(2, h, t, 4, 1), heads(2, g, s, 4, 2), heads(2, g, s, 4, 3)
    mask = random_mask(kind, 2, h, t, s)
    expected = by_hand(q, k, v, mask, causal)
    weights = attention_weights(q, k, mask, causal)
    assert weights.shape == (2, h, t, s)
    torch.testing.assert_close(weights @ v.repeat_interleave(h // g, dim=1), expected, **EXACT)
    out = ScaledDotProductAttention()(q.requires_grad_(training), k, v, mask, causal)
    torch.testing.assert_close(out.detach(), expected, **EXACT)


@pytest.mark.parametrize("training", [False, True], ids=["fused", "chunked"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_row_with_nothing_to_attend_to_is_zero(causal: bool, training: bool):
    """Such a row is zeros in the fused kernel and NaN in a naive softmax."""
    q, k, v = heads(1, 2, 3, 4, 1).requires_grad_(training), heads(1, 2, 3, 4, 2), heads(1, 2, 3, 4, 3)
    mask = torch.ones(1, 1, 3, 3, dtype=torch.bool)
    mask[..., 0, :] = False
    out = ScaledDotProductAttention()(q, k, v, mask, causal)
    weights = attention_weights(q, k, mask, causal)
    assert out[:, :, 0].eq(0).all()
    assert weights[:, :, 0].eq(0).all()
    torch.testing.assert_close(weights[:, :, 1:].sum(-1), torch.ones(1, 2, 2, dtype=torch.float64), **EXACT)
    if training:
        out.sum().backward()
        assert q.grad is not None
        assert q.grad.isfinite().all()


@pytest.mark.parametrize("training", [False, True], ids=["fused", "chunked"])
@pytest.mark.parametrize("sight", ["all", "causal", "masked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("length", [4, 20])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_nan_stays_nan(where: str, length: int, dtype: torch.dtype, sight: str, training: bool):
    """Setting empty rows to zero must not hide a NaN of a diverging model.

    PyTorch's own kernel for CPUs does that: without a mask, and with fewer keys than fit into a vector register, it
    takes a row of NaN scores for an empty one and returns zeros.
    """
    inputs = {name: heads(1, 2, length, 4, seed).to(dtype) for seed, name in enumerate("qkv")}
    inputs[where][0, 0, 3, 0] = float("nan")
    mask = torch.ones(1, 1, length, length, dtype=torch.bool) if sight == "masked" else None
    q, k, v = inputs["q"].requires_grad_(training), inputs["k"], inputs["v"]
    out = ScaledDotProductAttention()(q, k, v, mask, causal=sight == "causal").detach()
    weights = attention_weights(q, k, mask, causal=sight == "causal").detach()
    assert out[0, 0, 3].isnan().any()
    assert torch.equal(out.isnan(), (weights @ v).isnan())
    assert out[0, 1].isfinite().all()  # the other head is not affected


def test_causal_mask_is_aligned_to_the_last_key():
    """PyTorch's is_causal is aligned top-left, so a new query with a cache would attend only to the first key."""
    assert causal_mask(2, 4).tolist() == [[True, True, True, False], [True, True, True, True]]
    assert causal_mask(1, 3).tolist() == [[True, True, True]]
    assert causal_mask(3, 3).tolist() == torch.ones(3, 3).tril().bool().tolist()
    q, k, v = heads(1, 1, 1, 4, 1), heads(1, 1, 5, 4, 2), heads(1, 1, 5, 4, 3)
    seam = ScaledDotProductAttention()
    torch.testing.assert_close(seam(q, k, v, causal=True), seam(q, k, v), **EXACT)
    top_left = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert not torch.allclose(seam(q, k, v, causal=True), top_left)  # PyTorch's alignment has not changed


def test_more_queries_than_keys_leave_the_first_ones_empty():
    q, k, v = heads(1, 1, 4, 2, 1), heads(1, 1, 2, 2, 2), heads(1, 1, 2, 2, 3)
    out = ScaledDotProductAttention()(q, k, v, causal=True)
    weights = attention_weights(q, k, causal=True)
    torch.testing.assert_close(out, by_hand(q, k, v, None, causal=True), **EXACT)
    torch.testing.assert_close(weights @ v, out, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_types_in_are_types_out(dtype: torch.dtype):
    q = heads(1, 2, 3, 4).to(dtype)
    assert attention_weights(q, q, causal=True).dtype == dtype
    assert ScaledDotProductAttention()(q, q, q, causal=True).dtype == dtype


def test_hooking_the_seam_shows_the_queries_keys_and_values():
    """`record` requires that the module is called with q, k, v and the mask."""
    attention = MultiHeadAttention(6, 6, 3, n_kv_head=1)
    caught: list[tuple[Any, ...]] = []
    handle = attention.attend.register_forward_pre_hook(lambda module, inputs: caught.append(inputs))
    attention(torch.randn(2, 4, 6), causal=True)
    handle.remove()
    [(q, k, v, mask, causal)] = caught
    assert (q.shape, k.shape, v.shape) == ((2, 3, 4, 2), (2, 1, 4, 2), (2, 1, 4, 2))
    assert (mask, causal) == (None, True)


# --- published tables -------------------------------------------------------------------------------------------------


def test_table_self_attention_linear(published: dict[str, Any]):
    """Parameters are created in the order q, k, v with PyTorch's default initialisation, as for the table."""
    x = torch.tensor(published["inputs"])[None]  # (1, 6, 3)
    table = published["self_attention_linear"]
    torch.manual_seed(789)
    attention = MultiHeadAttention(3, 2, 1, project=False)
    torch.testing.assert_close(attention(x)[0], torch.tensor(table["context"]), **FOUR_DECIMALS)
    q, k = (attention._split(projection(x), 1) for projection in (attention.q_proj, attention.k_proj))
    torch.testing.assert_close(attention_weights(q, k)[0, 0], torch.tensor(table["weights"]), **FOUR_DECIMALS)
    causal = attention_weights(q, k, causal=True)[0, 0]
    torch.testing.assert_close(causal, torch.tensor(table["causal_weights"], dtype=torch.float32), **FOUR_DECIMALS)


def test_table_stacked_heads(published: dict[str, Any]):
    """Two causal heads made one after the other."""
    x = torch.tensor(published["inputs"]).expand(2, -1, -1)  # (2, 6, 3)
    torch.manual_seed(123)
    one, two = MultiHeadAttention(3, 2, 1, project=False), MultiHeadAttention(3, 2, 1, project=False)
    context = torch.cat((one(x, causal=True), two(x, causal=True)), dim=-1)  # (2, 6, 4)
    torch.testing.assert_close(
        context, torch.tensor(published["stacked_heads"]["context"]).expand(2, -1, -1), **FOUR_DECIMALS
    )


def test_table_dot_product(published: dict[str, Any]):
    """Attention without parameters and without the scale: q is multiplied by sqrt(D) to cancel it."""
    x = torch.tensor(published["inputs"])[None, None]  # (1, 1, 6, 3)
    weights = attention_weights(x * 3**0.5, x)[0, 0]
    torch.testing.assert_close(weights, torch.tensor(published["dot_product"]["weights"]), **FOUR_DECIMALS)
    context = ScaledDotProductAttention()(x * 3**0.5, x, x)[0, 0]
    torch.testing.assert_close(context, torch.tensor(published["dot_product"]["context"]), **FOUR_DECIMALS)


# --- the layer --------------------------------------------------------------------------------------------------------


def test_parameters_are_created_in_the_promised_order():
    """q, k, v, o, nothing drawn before or between; needs no published table."""
    torch.manual_seed(5)
    attention = MultiHeadAttention(6, 8, 2, n_kv_head=1, qkv_bias=True, d_context=5)
    torch.manual_seed(5)
    expected = [nn.Linear(6, 8), nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(8, 8)]
    layers = [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
    for layer, plain in zip(layers, expected, strict=True):
        assert isinstance(layer, nn.Linear)
        assert torch.equal(layer.weight, plain.weight)
        assert torch.equal(layer.bias, plain.bias)


def test_layer_equals_the_one_of_pytorch():
    """nn.MultiheadAttention with the same weights, as self-attention and across to a context."""
    ours = MultiHeadAttention(8, 8, 2, qkv_bias=True).double()
    stock = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        stock.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        stock.in_proj_bias.copy_(torch.cat([ours.q_proj.bias, ours.k_proj.bias, ours.v_proj.bias]))
        assert ours.o_proj is not None
        stock.out_proj.weight.copy_(ours.o_proj.weight)
        stock.out_proj.bias.copy_(ours.o_proj.bias)
    x, context = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(ours(x), stock(x, x, x)[0], **EXACT)
    torch.testing.assert_close(ours(x, context), stock(x, context, context)[0], **EXACT)
    hidden = ~causal_mask(3, 3)
    torch.testing.assert_close(ours(x, causal=True), stock(x, x, x, attn_mask=hidden)[0], **EXACT)


def test_cross_attention_takes_a_context_of_another_width_and_length():
    attention = MultiHeadAttention(6, 8, 4, d_context=10)
    assert attention(torch.randn(2, 3, 6), torch.randn(2, 7, 10)).shape == (2, 3, 8)
    assert attention.k_proj.weight.shape == (8, 10)


@pytest.mark.parametrize("training", [False, True], ids=["fused", "chunked"])
@pytest.mark.parametrize("length", [1, 5, 20])
@pytest.mark.parametrize("n_kv_head", [4, 2])
@pytest.mark.parametrize("call", ["plain", "causal", "mask", "mask and causal", "context", "context and mask"])
def test_one_sequence_needs_no_batch(call: str, n_kv_head: int, length: int, training: bool):
    """(T, C) gives (T, C), equal to a batch of one, for each way of calling the layer."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(8, 12, 4, n_kv_head=n_kv_head, qkv_bias=True, qk_norm=1e-6).double()
    x = torch.randn(length, 8, dtype=torch.float64)
    context = torch.randn(7, 8, dtype=torch.float64) if "context" in call else None
    s = length if context is None else 7
    mask = torch.rand(4, length, s) < 0.6 if "mask" in call else None  # another one for each head
    with torch.set_grad_enabled(training):
        alone = attention(x, context, mask=mask, causal="causal" in call)
        batch = attention(x[None], None if context is None else context[None], mask=mask, causal="causal" in call)
    assert alone.shape == (length, 12)
    torch.testing.assert_close(alone, batch[0], **EXACT)


def test_full_cache_refuses_more():
    cache = LayerCache(2, torch.zeros(1, 1, 0, 2))
    cache.append(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 2, 2))
    with pytest.raises(ValueError, match="3 positions do not fit into a cache for 2"):
        cache.append(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2))
    assert cache.length == 2


def test_a_cache_takes_keys_and_values_while_gradients_are_on():
    """Autograd does not allow writing to the results of torch.chunk, so a cache failed outside of no_grad."""
    attention = MultiHeadAttention(8, 8, 2)
    cache = LayerCache(6, torch.zeros(1, 2, 0, 4))
    x = torch.randn(1, 5, 8)
    whole = attention(x, causal=True)
    parts = [attention(part, causal=True, cache=cache) for part in x.split([3, 1, 1], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"d_out": 6, "n_head": 4}, "d_out=6 is not divisible by n_head=4"),
        ({"d_out": 8, "n_head": 4, "n_kv_head": 3}, "n_head=4 is not divisible by n_kv_head=3"),
    ],
)
def test_numbers_that_do_not_fit_are_named(arguments: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        MultiHeadAttention(8, **arguments)
