"""RMSNorm and Dropout, compared with their definitions."""

from __future__ import annotations

import pytest
import torch

from jumok.nn.layers import Dropout, RMSNorm

# --- RMSNorm ---


def test_rms_norm_by_hand() -> None:
    norm = RMSNorm(4, eps=0.0)
    x = torch.tensor([[1.0, -1.0, 1.0, -1.0], [3.0, 3.0, 3.0, 3.0], [0.0, 0.0, 0.0, 2.0]])
    expected = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 2.0]])
    torch.testing.assert_close(norm(x), expected)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    torch.testing.assert_close(norm(x), expected * norm.weight)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rms_norm_keeps_the_type(dtype: torch.dtype) -> None:
    x = torch.full((2, 8), 300.0, dtype=dtype)  # whose square overflows float16
    out = RMSNorm(8, eps=1e-6).to(dtype)(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out, torch.ones_like(x))


# --- Dropout ---


def test_dropout_does_nothing_outside_training() -> None:
    x = torch.randn(4, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.5, 0.95])
def test_dropout_zeroes_its_share_and_scales_the_rest(rate: float) -> None:
    """The rate is rounded to 1/256, and the scale with it: the expectation is exact."""
    torch.manual_seed(0)
    out = Dropout(rate)(torch.ones(1000, 1000))
    rounded = round(rate * 256) / 256
    values = out.unique().tolist()
    assert len(values) == 2
    assert values[0] == 0
    assert values[1] == pytest.approx(1 / (1 - rounded))
    share = (out == 0).double().mean().item()
    sigma = (rounded * (1 - rounded) / 1e6) ** 0.5
    assert abs(share - rounded) < 5 * sigma
    assert out.double().mean().item() == pytest.approx(1.0, abs=5 * sigma / (1 - rounded))


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (9,), (3, 5, 7), (0,), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dropout_takes_any_shape_and_keeps_the_type(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    out = Dropout(0.5)(torch.ones(shape, dtype=dtype))
    assert out.shape == torch.Size(shape)
    assert out.dtype == dtype


def test_dropout_has_no_pattern() -> None:
    """Neighbours, whose bytes are from one random word, are dropped independently."""
    torch.manual_seed(1)
    dropped = (Dropout(0.5)(torch.ones(2_000_000)) == 0).double() - 0.5
    for distance in (1, 2, 3, 4, 7, 8, 9, 16):
        correlation = (dropped[distance:] * dropped[:-distance]).mean().item() / 0.25
        assert abs(correlation) < 5 / 2_000_000**0.5


def test_dropout_depends_on_the_seed_alone() -> None:
    layer, x = Dropout(0.3), torch.randn(50, 50)
    outs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outs.append(layer(x))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_dropout_masks_the_gradient_with_the_same_mask() -> None:
    x = torch.ones(1000, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, out.detach())
