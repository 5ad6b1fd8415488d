"""Products with weights, computed by the library that is faster on the processor.

PyTorch computes products in float32 with MKL. On processors of AMD, MKL leaves AVX-512 unused, and with AVX2 it has
0.85 to 0.9 of the speed of oneDNN, which PyTorch holds as well (bench/LOG.md). Gradients of weights sum over the rows
of both factors, which oneDNN would transpose first, so MKL computes those.

The operator is defined in a `Library`, as those of `jumok.nn.chunked_attention`, and `torch.compile` does not trace it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.device import processor_name

# The name of the processor decides, and not a measurement, so that it is the same in all processes of a run. It is a
# constant, because torch.compile cannot trace a function with a cache.
PREFERS_ONEDNN = (
    hasattr(torch.ops.mkldnn, "_linear_pointwise")
    and torch.backends.mkldnn.is_available()
    and torch.backends.mkl.is_available()
    and "AMD" in processor_name(torch.device("cpu"))
)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `torch.nn.functional.linear(x, weight, bias)`, up to rounding.

    Args:
        x: (..., inputs). weight: (outputs, inputs). bias: (outputs,).

    Returns:
        (..., outputs). First and second derivatives are supported.
    """
    in_float32 = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    # Otherwise F.linear says what does not fit. oneDNN has no products without numbers.
    fits = x.device.type == "cpu" and x.shape[-1:] == weight.shape[1:] and weight.numel() > 0
    if torch.is_grad_enabled() and in_float32 and fits and PREFERS_ONEDNN and not in_transform():
        found: Tensor = torch.ops.jumok.linear(x, weight, bias)
        return found
    return F.linear(x, weight, bias)


def in_transform() -> bool:
    """Return whether a transform of `torch.func` runs, which finds no derivatives of operators of a `Library`."""
    return not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return linear(x, self.weight, self.bias)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return found


def _empty_output(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight, needs_bias = ctx.needs_input_grad
    rows = gradient.reshape(-1, gradient.shape[-1])  # (N, outputs)
    return (
        torch.ops.jumok.linear(gradient, weight.t(), None) if needs_x else None,  # (..., inputs)
        rows.t() @ x.reshape(-1, x.shape[-1]) if needs_weight else None,  # (outputs, inputs)
        rows.sum(0) if needs_bias else None,  # (outputs,)
    )


_LIBRARY = torch.library.Library("jumok", "FRAGMENT")
_LIBRARY.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_LIBRARY.impl("linear", _linear, "CPU")
torch.library.register_fake("jumok::linear", _empty_output, lib=_LIBRARY)
torch.library.register_autograd("jumok::linear", _gradients, setup_context=_remember, lib=_LIBRARY)
