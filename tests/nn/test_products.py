"""`jumok.nn.products`: the same products from another library."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import GPTConfig
from jumok.models.gpt import GPT
from jumok.nn import products
from jumok.nn.products import Linear, linear


@pytest.fixture(autouse=True)
def _on_any_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("PyTorch has no oneDNN here")
    monkeypatch.setattr(products, "PREFERS_ONEDNN", True)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (0, 7), (5, 7), (3, 5, 7)])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_pytorch(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    layer = Linear(7, 4, bias=bias)
    x = torch.randn(shape, requires_grad=True)
    found, expected = layer(x), F.linear(x, layer.weight, layer.bias)
    assert "jumok_linear" in type(found.grad_fn).__name__
    torch.testing.assert_close(found, expected)
    above, inputs = torch.randn_like(expected), [x, *layer.parameters()]
    torch.testing.assert_close(torch.autograd.grad(found, inputs, above), torch.autograd.grad(expected, inputs, above))


def test_memory_in_another_order() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 8, 5, requires_grad=True).transpose(1, 2)  # (2, 5, 8)
    weight = torch.randn(4, 16)[:, ::2]  # (4, 8)
    found, expected = linear(x, weight), F.linear(x, weight)
    torch.testing.assert_close(found, expected)
    above = torch.randn(4, 5, 2).permute(2, 1, 0)  # (2, 5, 4)
    torch.testing.assert_close(*(torch.autograd.grad(each, x, above) for each in (found, expected)))


def test_second_derivatives() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(3, 7, requires_grad=True), nn.Linear(7, 4)
    second = []
    for of in (linear, F.linear):
        (first,) = torch.autograd.grad(of(x, layer.weight, layer.bias).pow(3).sum(), x, create_graph=True)
        second += torch.autograd.grad(first.pow(2).sum(), layer.weight)
    torch.testing.assert_close(*second)


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_transforms_of_torch_func(family: Any) -> None:
    """Gradients by `torch.func` were an error on processors of AMD, and of long texts on all."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, context_length=24, n_layer=1, n_head=2, n_embd=8, family=family))
    parameters, text = dict(model.named_parameters()), torch.randint(11, (20,))

    def loss(given: dict[str, Tensor], text: Tensor) -> Tensor:
        logits: Tensor = torch.func.functional_call(model, given, (text[None],))
        return logits.logsumexp(-1).sum()

    found = torch.func.grad(loss)(parameters, text)
    expected = torch.autograd.grad(loss(parameters, text), list(parameters.values()))
    for name, one in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[name], one)


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 3), (4, 0)])
def test_a_matrix_without_numbers(inputs: int, outputs: int) -> None:
    x, weight = torch.ones(2, inputs, requires_grad=True), torch.ones(outputs, inputs)
    torch.testing.assert_close(linear(x, weight), F.linear(x, weight))


def test_frozen_weights_get_no_gradient() -> None:
    layer = Linear(7, 4).requires_grad_(False)
    x = torch.randn(2, 7, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None


def test_a_nan_is_not_hidden() -> None:
    x = torch.zeros(2, 7)
    x[1, 3] = float("nan")
    found = Linear(7, 4)(x)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


@pytest.mark.parametrize("width", [0, 6, 8])
def test_a_wrong_width_is_refused_as_by_pytorch(width: int) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        Linear(7, 4)(torch.randn(3, width))


def test_what_is_not_float32_with_gradients_is_left_to_pytorch() -> None:
    layer, x = Linear(7, 4), torch.randn(3, 7)
    with torch.no_grad():
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    exact = layer.double()(x.double())
    assert exact.dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert layer.float()(x).dtype == torch.bfloat16


def test_the_parameters_are_drawn_as_by_pytorch() -> None:
    """Tables in books after `torch.manual_seed` depend on it."""
    torch.manual_seed(0)
    ours = Linear(7, 4)
    torch.manual_seed(0)
    theirs = nn.Linear(7, 4)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)
    assert list(ours.state_dict()) == list(theirs.state_dict())
