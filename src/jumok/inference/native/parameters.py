"""The parameters of a GPT as step.cpp reads them: matrices in panels, in one of three kinds of numbers.

Packed parameters are never written to, so all threads can share them.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from jumok.config import Activation, GPTConfig
from jumok.config.features import NATIVE, require
from jumok.inference.native import memory
from jumok.models.tensors import misfits
from jumok.rotary import scaled_frequencies
from jumok.tokenizers import Tokenizer

PANEL = 32  # columns of a matrix that lie together; measured: 24 to 32 is best, 8 and 128 take twice as long
PACKED_AT_ONCE = 1 << 18  # numbers, which stay in the cache of the processor while they are rounded and moved

Kind = Literal["float32", "bfloat16", "int8"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # in the order of step.cpp
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)  # in the order of step.cpp
TYPES = {"float32": np.float32, "bfloat16": np.uint16, "int8": np.int8}  # bfloat16: the upper half of a float32

Numbers = NDArray[np.float32]


class _Norm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("eps", ctypes.c_float))


class _Matrix(ctypes.Structure):
    _fields_ = (
        ("panels", ctypes.c_void_p), ("scale", ctypes.c_void_p), ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int32), ("count", ctypes.c_int32),
    )  # fmt: skip


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Norm) for name in ("attention_norm", "q_norm", "k_norm", "mlp_norm")),
        *((name, _Matrix) for name in ("qkv", "o", "up", "down")),
        ("window", ctypes.c_int32),
    )


class _Model(ctypes.Structure):
    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in (
                "layers", "width", "heads", "kv_heads", "head_dim", "mlp_width", "kind", "activation",
                "gated", "parallel", "rotary_dim",
            )
        ),
        *((name, ctypes.c_void_p) for name in ("embedding", "positions", "cos", "sin")),
        ("layer", ctypes.POINTER(_Layer)), ("norm", _Norm), ("head", _Matrix),
    )  # fmt: skip


def not_finite_is_told() -> np.errstate:
    """Decorate functions that may meet damaged parameters: NumPy does not warn, and their callers tell."""
    return np.errstate(over="ignore", invalid="ignore")  # a new one each time: NumPy 1 cannot enter one twice


class NativeModel:
    """A GPT for step.cpp: its configuration, its tokenizer, and its parameters, packed; a copy as they are now.

    Args:
        config: one that `jumok.config.features` says the C++ step computes.
        tensors: the parameters by their names in model.safetensors; none is kept.
        tokenizer: for everything that takes or returns text.
        kind: of the numbers of the matrices. "float32": as they are; "bfloat16": half of the memory, and two to three
            digits; "int8": each row of a matrix in 8 bits, with a scale. Everything else is float32.

    Attributes:
        structure: the `Model` of step.cpp.
        classifier: (labels, C), the matrix of the classifier; None for a language model.

    Raises:
        JumokError: the C++ step does not compute such a model.
        ValueError: a tensor is missing, unknown or of another shape.
    """

    @not_finite_is_told()
    def __init__(
        self,
        config: GPTConfig,
        tensors: Mapping[str, NDArray[Any]],
        tokenizer: Tokenizer | None = None,
        kind: Kind = "float32",
    ) -> None:
        require(config, NATIVE)
        shapes = parameter_shapes(config)
        if faults := misfits({name: tensors[name].shape for name in tensors}, shapes):
            raise ValueError("; ".join(faults))
        self.config, self.tokenizer, self.kind = config, tokenizer, kind
        self._tensors = tensors
        self._arena = memory.Arena()
        self._kept: list[NDArray[Any]] = []  # what the pointers point to
        block = config.block()
        layers = (_Layer * config.n_layer)(*map(self._layer, range(config.n_layer)))
        self.structure = _Model(
            config.n_layer, config.n_embd, config.n_head, config.n_kv_head, config.head_dim, config.mlp_width,
            KINDS.index(kind), ACTIVATIONS.index(block.activation), block.gated, block.parallel, config.rotated,
            self._vector("token_embedding.weight"), self._vector("position_embedding.weight"),
            *(self._keep(table) for table in rotary_tables(config)),
            layers, self._norm("norm"), self._matrix("head" if "head.weight" in tensors else "token_embedding"),
        )  # fmt: skip
        self.classifier = self._tensor("classifier.weight")
        del self._tensors, self._arena

    def _layer(self, number: int) -> _Layer:
        config = self.config
        layer, attention, mlp = (f"blocks.{number}{part}" for part in ("", ".attention", ".mlp"))
        up = [f"{mlp}.gate_proj", f"{mlp}.up_proj"] if config.block().gated else [f"{mlp}.up_proj"]
        return _Layer(
            self._norm(f"{layer}.attention_norm"), self._norm(f"{attention}.q_norm"), self._norm(f"{attention}.k_norm"),
            self._norm(f"{layer}.mlp_norm"),
            self._matrix(*(f"{attention}.{name}_proj" for name in "qkv")), self._matrix(f"{attention}.o_proj"),
            self._matrix(*up, alternate=True), self._matrix(f"{mlp}.down_proj"),
            min(config.window(number) or 0, config.context_length),
        )  # fmt: skip

    def _tensor(self, name: str) -> Numbers | None:
        """Return a copy in float32, or None if there is no such tensor."""
        return np.array(self._tensors[name], np.float32, order="C") if name in self._tensors else None

    def _vector(self, name: str) -> int | None:
        """Keep a copy in float32; its address."""
        return self._keep(self._tensors[name]) if name in self._tensors else None

    def _keep(self, numbers: NDArray[Any] | None) -> int | None:
        if numbers is None:
            return None
        kept = self._arena.empty(numbers.shape)
        kept[...] = numbers
        self._kept.append(kept)
        return int(kept.ctypes.data)

    def _norm(self, name: str) -> _Norm:
        return _Norm(self._vector(f"{name}.weight"), self._vector(f"{name}.bias"), self.config.norm_eps)

    def _matrix(self, *names: str, alternate: bool = False) -> _Matrix:
        """Linear layers side by side, or their panels in turn."""
        weights = [self._tensors[f"{name}.weight"] for name in names]
        biases = [
            self._tensors[f"{name}.bias"] if f"{name}.bias" in self._tensors else np.zeros(len(weight), np.float32)
            for name, weight in zip(names, weights, strict=True)
        ]
        layers = list(zip(weights, biases, strict=True))
        beside = [[layer] for layer in layers] if alternate else [layers]  # in each part, those side by side
        inputs, parts = weights[0].shape[1], len(beside)
        count = -(-sum(len(bias) for _, bias in beside[0]) // PANEL)
        lane = 2 if self.kind == "int8" else 1  # inputs that lie together, the last beside a zero
        lanes = -(-inputs // lane)
        panels = self._arena.empty((count, parts, lanes, PANEL, lane), TYPES[self.kind])
        scale, bias = np.ones((count, parts, PANEL), np.float32), np.zeros((count, parts, PANEL), np.float32)
        step = max(1, PACKED_AT_ONCE // (inputs * PANEL))  # panels
        for part, first in itertools.product(range(parts), range(0, count, step)):
            few = slice(first, first + step)
            rows = first * PANEL, (first + step) * PANEL
            some, own = (_panels(_rows(of, *rows)) for of in zip(*beside[part], strict=True))
            numbers, scale[few, part] = rounded(some.astype(np.float32, copy=False), self.kind)
            if inputs % lane:
                numbers = np.pad(numbers, ((0, 0), (0, 0), (0, 1)))
            panels[few, part] = numbers.reshape(*numbers.shape[:2], lanes, lane).transpose(0, 2, 1, 3)
            bias[few, part] = own
        self._kept.append(panels)
        return _Matrix(panels.ctypes.data, self._keep(scale), self._keep(bias), inputs, count * parts)


def _rows(arrays: Sequence[NDArray[Any]], first: int, last: int) -> NDArray[Any]:
    """Return rows first..last-1 of arrays one below the other, or as many as there are."""
    found = []
    for array in arrays:
        found.append(array[max(0, first) : max(0, last)])
        first, last = first - len(array), last - len(array)
    found = [some for some in found if len(some)]
    return found[0] if len(found) == 1 else np.concatenate(found)


def _panels(rows: NDArray[Any]) -> NDArray[Any]:
    """(out, ...) -> (panels, PANEL, ...), with zeros at the end."""
    missing = -len(rows) % PANEL
    if missing:
        rows = np.concatenate((rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)))
    return rows.reshape(-1, PANEL, *rows.shape[1:])


@not_finite_is_told()
def rounded(rows: Numbers, kind: Kind) -> tuple[NDArray[Any], Numbers | float]:
    """Return matrices, (..., out, in), in a kind of numbers, and the scale of each row, (..., out)."""
    if kind == "float32":
        return rows, 1.0
    if kind == "bfloat16":
        return bfloat16(rows), 1.0
    # Rounded first, so that the integers make up for the rounding of the scales.
    largest = np.maximum(np.abs(rows).max(axis=-1), np.float32(1e-30))
    scale = (bfloat16(largest / np.float32(127)).astype(np.uint32) << 16).view(np.float32)
    return np.rint(rows / scale[..., None]).clip(-127, 127).astype(np.int8), scale


def bfloat16(numbers: Numbers) -> NDArray[np.uint16]:
    """Return the bits of numbers in bfloat16, rounded to the nearest, ties to even, as in PyTorch; a NaN stays one."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    rounded = ((bits + (bits >> 16 & 1) + 0x7FFF) >> 16).astype(np.uint16)
    rounded[np.isnan(numbers)] = 0x7FC0
    return rounded


def rotary_tables(config: GPTConfig) -> tuple[Numbers, Numbers] | tuple[None, None]:
    """Return the cosines and sines of all positions of a context, (S, R) each, for R rotated dimensions.

    The angles are in float32, as those of `jumok.nn.positions.rotary`. Powers, cosines and sines are rounded correctly;
    those of PyTorch, which depend on the processor, differ in the last bit of some.
    """
    width = config.rotated
    if not width:
        return None, None
    exponents = np.arange(0, width, 2, dtype=np.float32) / width
    periods = (config.rope_theta ** exponents.astype(np.float64)).astype(np.float32)
    frequencies, factor = scaled_frequencies(periods, config.rope_theta, config.frequency_scaling)  # (R/2,)
    angles = (np.arange(config.context_length, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    cos, sin = (function(angles).astype(np.float32) * np.float32(factor) for function in (np.cos, np.sin))
    return np.concatenate((cos, cos), axis=1), np.concatenate((sin, sin), axis=1)


def parameter_shapes(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter of a GPT, by its name in model.safetensors."""
    c, block = config, config.block()
    width, queries, keys = c.n_embd, c.n_head * c.head_dim, c.n_kv_head * c.head_dim
    found: dict[str, tuple[int, ...]] = {"token_embedding.weight": (c.vocab_size, width)}
    if not c.rotated:
        found["position_embedding.weight"] = (c.context_length, width)

    def add_norm(name: str, size: int = width, *, bias: bool = block.norm == "layer") -> None:
        found.update({f"{name}.weight": (size,)} | ({f"{name}.bias": (size,)} if bias else {}))

    def add_linear(name: str, outputs: int, inputs: int, bias: bool) -> None:
        found.update({f"{name}.weight": (outputs, inputs)} | ({f"{name}.bias": (outputs,)} if bias else {}))

    for number in range(c.n_layer):
        layer, attention, mlp = (f"blocks.{number}{part}" for part in ("", ".attention", ".mlp"))
        add_norm(f"{layer}.attention_norm")
        for name, outputs in (("q", queries), ("k", keys), ("v", keys)):
            add_linear(f"{attention}.{name}_proj", outputs, width, block.qkv_bias)
        if block.qk_norm:
            add_norm(f"{attention}.q_norm", c.head_dim, bias=False)
            add_norm(f"{attention}.k_norm", c.head_dim, bias=False)
        add_linear(f"{attention}.o_proj", width, queries, block.out_bias)
        add_norm(f"{layer}.mlp_norm")
        for name in ("gate", "up") if block.gated else ("up",):
            add_linear(f"{mlp}.{name}_proj", c.mlp_width, width, block.mlp_bias)
        add_linear(f"{mlp}.down_proj", width, c.mlp_width, block.mlp_bias)
    add_norm("norm")
    if not c.tie_embeddings:
        found["head.weight"] = (c.vocab_size, width)
    if c.labels:
        found["classifier.weight"] = (len(c.labels), width)
    return found
