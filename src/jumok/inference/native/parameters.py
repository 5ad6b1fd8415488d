"""The parameters of a GPT as step.cpp reads them: matrices in panels, in one of three kinds of numbers.

Packed parameters are never written to, so all threads can share them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import Activation
from jumok.config.features import NATIVE, implements
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.blocks import ACTIVATION, MLP, Block, SwiGLU
from jumok.nn.layers import Dropout, RMSNorm

PANEL = 32  # columns of a matrix that lie together; measured: 24 to 32 is best, 8 and 128 take twice as long

Kind = Literal["float32", "bfloat16", "int8"]
KINDS: tuple[Kind, ...] = get_args(Kind)  # in the order of step.cpp

PARTS = {
    nn.ModuleList, nn.Embedding, nn.Linear, nn.LayerNorm,
    Block, MultiHeadAttention, ScaledDotProductAttention, MLP, SwiGLU, RMSNorm, Dropout,
}  # fmt: skip
ACTIVATIONS = tuple(map(ACTIVATION.__getitem__, get_args(Activation)))  # in the order of step.cpp


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


def can_run(model: GPT) -> bool:
    """Return whether step.cpp computes what this model does: a plain GPT in float32 on a CPU, without hooks."""
    if type(model) is not GPT or not is_plain(model) or not implements(model.config, NATIVE):
        return False
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        return False
    if _is_hooked(model) or not _is_as_configured(model):
        return False
    forms = {_form(block) for block in model.blocks}
    return len(forms) == 1 and None not in forms.pop()


def is_plain(model: GPT) -> bool:
    """Return whether the next token is computed by jumok's own parts alone, in the order of `GPT.hidden`.

    A classifier beside them may be anything.
    """
    beside = {id(part) for head in (model.pooling, model.classifier) if head is not None for part in head.modules()}
    parts = (part for part in model.modules() if part is not model and id(part) not in beside)
    return type(model).hidden is GPT.hidden and all(type(part) in PARTS for part in parts)


def _is_hooked(model: GPT) -> bool:
    everywhere = nn.modules.module
    hooks = [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks]
    hooks += [found for part in model.modules() for found in (part._forward_hooks, part._forward_pre_hooks)]
    return any(hooks)


def _is_as_configured(model: GPT) -> bool:
    """Return whether all sizes are those of the config. With an exchanged layer, step.cpp would leave its memory."""
    c = model.config
    queries, keys = c.n_head * c.head_dim, c.n_kv_head * c.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embedding": (c.vocab_size, c.n_embd), "position_embedding": (c.context_length, c.n_embd),
        "q_proj": (queries, c.n_embd), "k_proj": (keys, c.n_embd), "v_proj": (keys, c.n_embd),
        "o_proj": (c.n_embd, queries), "q_norm": (c.head_dim,), "k_norm": (c.head_dim,),
        "gate_proj": (c.mlp_width, c.n_embd), "up_proj": (c.mlp_width, c.n_embd), "down_proj": (c.n_embd, c.mlp_width),
        "attention_norm": (c.n_embd,), "mlp_norm": (c.n_embd,), "norm": (c.n_embd,), "head": (c.vocab_size, c.n_embd),
    }  # fmt: skip
    for name, part in model.named_modules():
        if (shape := shapes.get(name.rpartition(".")[2])) is None:
            continue
        weight, bias = part.weight, getattr(part, "bias", None)
        lacks_bias = isinstance(part, nn.LayerNorm) and bias is None
        if weight is None or weight.shape != shape or lacks_bias or (bias is not None and bias.shape != shape[:1]):
            return False
    blocks = [block.attention for block in model.blocks if isinstance(block, Block)]
    return (
        len(blocks) == c.n_layer
        and all((x.n_head, x.n_kv_head, x.head_dim) == (c.n_head, c.n_kv_head, c.head_dim) for x in blocks)
        and _has_tables(model)
    )


def _has_tables(model: GPT) -> bool:
    """Return whether the tables of cosines and sines have as many columns as the config says; rows may miss."""
    if model.cos is None or model.sin is None:
        return model.cos is model.sin and model.config.rotated == 0
    return model.cos.shape == model.sin.shape == (len(model.cos), model.config.rotated)


def _angles(model: GPT) -> Sequence[Tensor | None]:
    """Cosines and sines of all positions of the context, (S, R) each; a model keeps those of the first ones."""
    if model.cos is None or model.sin is None:
        return None, None
    rest = model.angles(len(model.cos), max(len(model.cos), model.config.context_length))
    assert rest is not None
    return [torch.cat((first, last)) for first, last in zip((model.cos, model.sin), rest, strict=True)]


class NativeModel:
    """The parameters of a GPT, packed; a copy as they are now.

    Args:
        model: one for which `can_run` is true.
        kind: of the numbers of the matrices. "float32": as they are; "bfloat16": half of the memory, and two to three
            digits; "int8": each row of a matrix in 8 bits, with a scale. Everything else is float32.

    Attributes:
        structure: the `Model` of step.cpp.
        config: of the model.
    """

    @torch.inference_mode()
    def __init__(self, model: GPT, kind: Kind = "float32") -> None:
        self.config, self.kind = model.config, kind
        self._kept: list[object] = []  # what the pointers point to
        config, blocks = model.config, [block for block in model.blocks if isinstance(block, Block)]
        layers = (_Layer * len(blocks))(*(self._layer(block, config.window(i)) for i, block in enumerate(blocks)))
        positions = None if model.position_embedding is None else model.position_embedding.weight
        self.structure = _Model(
            len(blocks), config.n_embd, config.n_head, config.n_kv_head, config.head_dim, config.mlp_width,
            KINDS.index(kind), *_form(blocks[0]), 0 if model.cos is None else model.cos.shape[1],
            *(self._vector(x) for x in (model.token_embedding.weight, positions, *_angles(model))),
            layers, self._norm(model.norm), self._matrix(model.head),
        )  # fmt: skip

    def _layer(self, block: Block, window: int | None) -> _Layer:
        attention, mlp = block.attention, block.mlp
        if isinstance(mlp, SwiGLU):
            up = self._matrix(mlp.gate_proj, mlp.up_proj, alternate=True)
        else:
            assert isinstance(mlp, MLP)
            up = self._matrix(mlp.up_proj)
        return _Layer(
            self._norm(block.attention_norm), self._norm(attention.q_norm), self._norm(attention.k_norm),
            self._norm(block.mlp_norm),
            self._matrix(attention.q_proj, attention.k_proj, attention.v_proj), self._matrix(attention.o_proj),
            up, self._matrix(mlp.down_proj), min(window or 0, self.config.context_length),
        )  # fmt: skip

    def _vector(self, values: Tensor | None) -> int | None:
        """Return a copy in float32."""
        if values is None:
            return None
        kept = values.detach().to(torch.float32, copy=True).contiguous()
        self._kept.append(kept)
        return kept.data_ptr()

    def _norm(self, norm: nn.Module | None) -> _Norm:
        if norm is None:
            return _Norm()
        assert isinstance(norm, RMSNorm | nn.LayerNorm)
        return _Norm(self._vector(norm.weight), self._vector(getattr(norm, "bias", None)), norm.eps)

    def _matrix(self, *layers: nn.Linear | None, alternate: bool = False) -> _Matrix:
        """Linear layers side by side, or their panels in turn."""
        given = [layer for layer in layers if layer is not None]
        weights = [layer.weight.detach() for layer in given]
        biases = [torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach() for layer in given]
        if not alternate:
            weights, biases = [torch.cat(weights)], [torch.cat(biases)]
        rounded = [self._rounded(weight) for weight in weights]
        panels = torch.stack([_panels(matrix).transpose(1, 2) for matrix, _ in rounded], dim=1)  # (n, parts, in, PANEL)
        scale, bias = (torch.stack([_panels(x) for x in xs], dim=1) for xs in ([s for _, s in rounded], biases))
        flat = panels.flatten(0, 1).contiguous()
        self._kept.append(flat)
        return _Matrix(flat.data_ptr(), self._vector(scale), self._vector(bias), flat.shape[1], flat.shape[0])

    def _rounded(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """(out, in) in the kind of numbers, and the scale of each row, (out,)."""
        if self.kind != "int8":
            return matrix.to(getattr(torch, self.kind)), matrix.new_ones(len(matrix))
        # Rounded first, so that the integers make up for the rounding of the scales.
        scale = (matrix.abs().amax(dim=1).clamp(min=1e-30) / 127).bfloat16().float()
        return (matrix / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


def _panels(rows: Tensor) -> Tensor:
    """(out, ...) -> (panels, PANEL, ...), with zeros at the end."""
    return F.pad(rows, (*[0, 0] * (rows.dim() - 1), 0, -len(rows) % PANEL)).unflatten(0, (-1, PANEL))


def _form(block: nn.Module) -> tuple[int | None, bool, bool]:
    """Return what all blocks have in common.

    Returns:
        The place in ACTIVATIONS of what the MLP uses, whether it is gated, and whether it runs beside attention.
    """
    assert isinstance(block, Block)
    gated = isinstance(block.mlp, SwiGLU)
    used = block.mlp.activation if isinstance(block.mlp, MLP) else F.silu if gated else None
    return ACTIVATIONS.index(used) if used in ACTIVATIONS else None, gated, block.parallel
