"""GPTs of PyTorch for step.cpp: which of them it computes, and how they are packed."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from jumok.config.features import NATIVE, implements
from jumok.inference.native.parameters import Kind, NativeModel, parameter_shapes
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention, ScaledDotProductAttention
from jumok.nn.blocks import ACTIVATION, MLP, Block, SwiGLU
from jumok.nn.layers import Dropout, RMSNorm
from jumok.nn.positions import rotary
from jumok.nn.products import Linear

PARTS = {
    nn.ModuleList, nn.Embedding, nn.Linear, Linear, nn.LayerNorm,
    Block, MultiHeadAttention, ScaledDotProductAttention, MLP, SwiGLU, RMSNorm, Dropout,
}  # fmt: skip
CLOSE = 1e-6  # for cosines and sines, of which the step computes its own


def pack(model: GPT, kind: Kind = "float32") -> NativeModel:
    """Return a copy of a GPT as it is now, for which `can_run` is true; without its classifier."""
    tensors = {name: tensor.detach().numpy() for name, tensor in _parameters(model).items()}
    return NativeModel(replace(model.config, labels=()), tensors, model.tokenizer, kind)


def can_run(model: GPT) -> bool:
    """Return whether step.cpp computes what this model does: a plain GPT in float32 on a CPU, without hooks."""
    if type(model) is not GPT or not is_plain(model) or not implements(model.config, NATIVE):
        return False
    if any(p.device.type != "cpu" or p.dtype != torch.float32 for p in model.parameters()):
        return False
    return not _is_hooked(model) and _is_as_configured(model)


def is_plain(model: GPT) -> bool:
    """Return whether the next token is computed by jumok's own parts alone, in the order of `GPT.hidden`.

    A classifier beside them may be anything.
    """
    beside = _beside(model)
    parts = (part for part in model.modules() if part is not model and part not in beside)
    return type(model).hidden is GPT.hidden and all(type(part) in PARTS for part in parts)


def _beside(model: GPT) -> set[nn.Module]:
    """Return the modules of the classifier."""
    return {part for head in (model.pooling, model.classifier) if head is not None for part in head.modules()}


def _is_hooked(model: GPT) -> bool:
    everywhere = nn.modules.module
    hooks = [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks]
    hooks += [found for part in model.modules() for found in (part._forward_hooks, part._forward_pre_hooks)]
    return any(hooks)


def _is_as_configured(model: GPT) -> bool:
    """Return whether sizes, norms, activations and tables are those of the config, from which the step takes them."""
    c, block = model.config, model.config.block()
    wanted = parameter_shapes(replace(c, labels=()))
    blocks = [one for one in model.blocks if isinstance(one, Block)]
    norms = [part for part in model.modules() if isinstance(part, RMSNorm | nn.LayerNorm)]
    activations = [one.mlp.activation for one in blocks if isinstance(one.mlp, MLP)]
    return (
        {name: tuple(tensor.shape) for name, tensor in _parameters(model).items()} == wanted
        and all(isinstance(one.mlp, SwiGLU) == block.gated and one.parallel == block.parallel for one in blocks)
        and all(
            (x.n_head, x.n_kv_head, x.head_dim) == (c.n_head, c.n_kv_head, c.head_dim)
            for x in (one.attention for one in blocks)
        )
        and all(norm.eps == c.norm_eps for norm in norms)
        and all(one is ACTIVATION[block.activation] for one in activations)
        and _has_tables(model)
    )


def _has_tables(model: GPT) -> bool:
    """Return whether the cosines and sines are those of the config."""
    c = model.config
    if model.cos is None or model.sin is None:
        return model.cos is model.sin and c.rotated == 0
    wanted = rotary(c.table_length, c.rotated, base=c.rope_theta, scaling=c.frequency_scaling)
    return all(
        one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=CLOSE)
        for one, other in zip((model.cos, model.sin), wanted, strict=True)
    )


def _parameters(model: GPT) -> dict[str, torch.Tensor]:
    """Return the parameters without those of the classifier; a matrix that is shared as the config says occurs once."""
    beside = {id(parameter) for part in _beside(model) for parameter in part.parameters()}
    found: dict[str, torch.Tensor] = {
        name: parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if id(parameter) not in beside
    }
    if model.config.tie_embeddings and model.head.weight is model.token_embedding.weight:
        del found["head.weight"]
    return found
