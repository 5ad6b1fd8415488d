"""The matrices of linear layers as the CPU reads them fastest when only a few rows are multiplied, packed or quantised.

A product of few rows has little to compute and a whole matrix to read, so its speed is that of the memory. Packed
matrices are kept as long as their layers live, shared by all that multiply with them, and packed again when a parameter
has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.errors import ConfigError

Quantization = Literal["bfloat16", "int8"]
QUANTIZATIONS: tuple[Quantization, ...] = ("bfloat16", "int8")

PANEL = 32  # columns of a matrix that lie together; measured: 24 to 32 is best, 8 and 128 take twice as long
GOLDEN = (5**0.5 - 1) / 2  # whose multiples spread evenly over the unit interval, none twice


class PackedMatrix(NamedTuple):
    """Linear layers as a product reads them. Nothing writes to it, so any number of threads may read.

    parts: as `Product.pack` of a kind returns them. bias: (out,), or None. width: out, of all layers together.
    fingerprints: of each parameter, when it was packed.
    """

    parts: tuple[Tensor, ...]
    bias: Tensor | None
    width: int
    fingerprints: list[Tensor]


# By the first of the layers that are packed together, and by the kind of product; an entry lives as long as its layer.
_PACKED: WeakKeyDictionary[nn.Module, dict[type[Product], PackedMatrix]] = WeakKeyDictionary()


def forget(model: nn.Module) -> None:
    """Free the packed copies of a model's matrices; the next text packs them again."""
    for part in model.modules():
        _PACKED.pop(part, None)


class Matrices:
    """The matrices of a model, each packed or quantised once.

    Args:
        quantize: "int8" for rounded matrices; None: as they are.

    Raises:
        ConfigError: other kinds of numbers, which only `jumok.inference.native` multiplies.
    """

    def __init__(self, quantize: Quantization | None) -> None:
        if quantize == "bfloat16":
            raise ConfigError(
                "quantize='bfloat16' is computed by the C++ step, which needs a C++ compiler and a plain GPT in "
                "float32 on the CPU, and is off if JUMOK_NATIVE=0 is set; use int8, or leave it out."
            )
        self._kind = (
            Int8Product if quantize == "int8" else PanelProduct if torch.backends.mkl.is_available() else Product
        )
        self._packed: dict[nn.Module, PackedMatrix] = {}

    def product(self, batch: int, *layers: nn.Linear | None) -> Product:
        """Linear layers over one input as one product, (B, in) -> (B, all out)."""
        given = [layer for layer in layers if layer is not None]
        if given[0] not in self._packed:
            self._packed[given[0]] = _packed(self._kind, given)
        return self._kind(self._packed[given[0]], batch)


def _packed(kind: type[Product], layers: Sequence[nn.Linear]) -> PackedMatrix:
    """Layers side by side for a kind of product; packed once, and again only when a parameter has changed.

    A change is noticed however it was made, also through `.data`, which PyTorch's version counter misses, unless it is
    so small that it is lost in the rounding of a row; see `fingerprint`.
    """
    given = [part for layer in layers for part in (layer.weight, layer.bias) if part is not None]
    fingerprints = [fingerprint(parameter) for parameter in given]
    kept = _PACKED.setdefault(layers[0], {})
    found = kept.get(kind)
    if found is None or not same(found.fingerprints, fingerprints):
        matrix = torch.cat([layer.weight.detach() for layer in layers])  # (out, in)
        biases = [matrix.new_zeros(len(x.weight)) if x.bias is None else x.bias.detach() for x in layers]
        bias = torch.cat(biases) if any(layer.bias is not None for layer in layers) else None  # (out,)
        found = kept[kind] = PackedMatrix(kind.pack(matrix), bias, matrix.shape[0], fingerprints)
    return found


def fingerprint(parameter: Tensor) -> Tensor:
    """The product of a matrix, (out, in), with a fixed vector, (out,), or a copy of a vector.

    It reads each number once, in a small part of the time that packing takes.
    """
    parameter = parameter.detach()
    if parameter.dim() != 2:
        return parameter.clone()
    steps = torch.arange(1, parameter.shape[1] + 1, dtype=torch.float64)
    vector = steps.mul_(GOLDEN).frac_().add_(0.5).to(parameter)  # (in,), no two numbers alike
    with torch.autocast("cpu", enabled=False):  # which would round away small changes
        return torch.mv(parameter, vector)


def same(before: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    """Whether fingerprints are equal in number, type and each bit but the sign of a zero; a NaN equals nothing."""
    return len(before) == len(now) and all(
        a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(before, now, strict=True)
    )


class Product:
    """A product with a matrix, x Wᵀ + bias.

    Args:
        packed: the matrix. batch: B.

    Attributes:
        out: (B, out), the result of the last call.
    """

    out: Tensor

    def __init__(self, packed: PackedMatrix, batch: int) -> None:
        [self._matrix], self._bias = packed.parts, packed.bias
        self.out = self._matrix.new_empty(batch, packed.width)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """The matrix, (out, in), as this product reads it."""
        return (matrix,)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, in) -> `out`."""
        self._multiply(x)
        return self.out if self._bias is None else self.out.add_(self._bias)

    def _multiply(self, x: Tensor) -> None:
        torch.mm(x, self._matrix.T, out=self.out)


class PanelProduct(Product):
    """The matrix in panels of a few columns, each of which lies in one piece of memory.

    All threads read them one after the other, at the full speed of the memory. MKL runs the usual product of one row on
    one thread, which takes two to four times as long. Other libraries would run the panels one by one.
    """

    def __init__(self, packed: PackedMatrix, batch: int) -> None:
        [self._matrix], self._bias = packed.parts, packed.bias
        panels = self._matrix.shape[0]
        self._parts = self._matrix.new_empty(panels, batch, PANEL)
        self._joined = None if batch == 1 else self._matrix.new_empty(batch, panels, PANEL)
        whole = self._parts if self._joined is None else self._joined
        self.out = whole.view(batch, -1)[:, : packed.width]

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """(out, in) -> (panels, in, PANEL)."""
        panels = F.pad(matrix, (0, 0, 0, -matrix.shape[0] % PANEL)).unflatten(0, (-1, PANEL))  # (panels, PANEL, in)
        return (panels.transpose(1, 2).contiguous(),)

    def _multiply(self, x: Tensor) -> None:
        torch.bmm(x.expand(self._matrix.shape[0], -1, -1), self._matrix, out=self._parts)
        if self._joined is not None:
            self._joined.copy_(self._parts.transpose(0, 1))


class Int8Product(Product):
    """The matrix in 8 bits, one scale for each of its rows."""

    def __init__(self, packed: PackedMatrix, batch: int) -> None:
        (self._matrix, self._scale), self._bias = packed.parts, packed.bias
        self.out = packed.fingerprints[0].new_empty(batch, packed.width)

    @staticmethod
    def pack(matrix: Tensor) -> tuple[Tensor, ...]:
        """(out, in) -> (out, in) in int8, and the scales, (out,).

        Raises:
            ConfigError: this build of PyTorch has no such product.
        """
        if not hasattr(torch, "_weight_int8pack_mm"):
            raise ConfigError("quantize='int8' needs a PyTorch that multiplies 8-bit matrices; leave it out.")
        largest = matrix.abs().amax(dim=1).clamp(min=1e-30)  # (out,)
        # Rounded first, so that the integers make up for the rounding of the scales.
        scale = (largest / 127).bfloat16()  # (out,)
        return (matrix / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale

    def _multiply(self, x: Tensor) -> None:
        self.out.copy_(torch._weight_int8pack_mm(x.bfloat16(), self._matrix, self._scale))
