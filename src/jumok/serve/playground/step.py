"""One step of a GPT taken apart: every number between the last token of a text and the logits of the next one.

The numbers are those of the modules themselves, taken by hooks. Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from jumok.config import GPTVariantConfig, require_range
from jumok.errors import ConfigError
from jumok.inference.window import window_start
from jumok.interpret.ablation import ablate
from jumok.models.gpt import GPT
from jumok.nn.attention import attention_weights
from jumok.nn.blocks import Block
from jumok.serve.playground.language_model import JSON, alternatives
from jumok.serve.playground.reading import Off, Reading, require_gpt


def step(reading: Reading, ids: Sequence[int], layer: int, off: Off, top: int) -> JSON:
    """What the model computes for the last of some ids, in one layer in full.

    Vectors are float32 in base64, rows after rows.

    Raises:
        ConfigError: there is no such layer or head, or the model is a variant, whose parts the page does not draw.
    """
    with reading.alone() as model:
        gpt = require_gpt(model)
        if isinstance(gpt.config, GPTVariantConfig):
            raise ConfigError(
                "this is a {architecture} model; the steps are drawn for GPTs of the families modern and classic.",
                architecture=gpt.config.architecture,
            )
        require_range("layer", layer, 0, gpt.config.n_layer - 1)
        window = list(ids[window_start(len(ids), gpt.config.context_length) :])
        seen: dict[str, Tensor] = {}
        with ExitStack() as hooks:
            hooks.enter_context(ablate(gpt, off))
            _watch_model(gpt, seen, hooks)
            for number, block in enumerate(gpt.blocks):
                assert isinstance(block, Block)
                _watch_residual(block, number, seen, hooks)
                if number == layer:
                    _watch_layer(block, seen, hooks)
            device = gpt.token_embedding.weight.device
            logits = reading.known(gpt.head(gpt.hidden(torch.tensor([window], device=device))[:, -1]))[0]  # (V,)
        position = len(window) - 1
        learned = None if gpt.position_embedding is None else gpt.position_embedding.weight[position]
        return {
            "token": {"id": window[-1], "text": reading.reader.name(window[-1])},
            "position": position,
            "length": len(window),
            "texts": [reading.reader.name(one) for one in window],
            "layer": layer,
            "embedding": packed(gpt.token_embedding.weight[window[-1]]),
            "position_embedding": None if learned is None else packed(learned),
            "layers": [_layer(seen, number, number == layer) for number in range(gpt.config.n_layer)],
            "norm": packed(seen["norm"]),
            "logits": packed(logits),
            "top": alternatives(reading, logits, logits.softmax(dim=-1), top),
        }


def packed(values: Tensor) -> str:
    """Numbers as float32, little-endian, in base64."""
    numbers = values.detach().to("cpu", torch.float32).numpy().astype("<f4")
    return base64.b64encode(numbers.tobytes()).decode()


def _layer(seen: dict[str, Tensor], number: int, whole: bool) -> JSON:
    """A layer of the step: lengths of what it adds, and of the one layer that is asked for everything."""
    attention = seen[f"{number}.residual1"] - seen[f"{number}.input"]  # (C,)
    mlp = seen[f"{number}.residual2"] - seen[f"{number}.residual1"]  # (C,)
    norms = {"attention": attention, "mlp": mlp, "residual": seen[f"{number}.residual2"]}
    found: JSON = {"layer": number, "norms": {name: float(value.norm()) for name, value in norms.items()}}
    if whole:
        names = ("input", "residual1", "residual2")
        found |= {name: packed(seen[f"{number}.{name}"]) for name in names}
        found |= {name: packed(value) for name, value in seen.items() if "." not in name and name != "norm"}
    return found


Hook = Callable[..., None]


def _output(seen: dict[str, Tensor], name: str) -> Hook:
    """A hook that keeps the last row of what a module returns: (1, T, ...) -> (...,)."""

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[name] = output[0, -1]

    return keep


def _watch_model(gpt: GPT, seen: dict[str, Tensor], hooks: ExitStack) -> None:
    hooks.callback(gpt.norm.register_forward_hook(_output(seen, "norm")).remove)


def _watch_residual(block: Block, number: int, seen: dict[str, Tensor], hooks: ExitStack) -> None:
    """Keep the residual stream before a block, between its sub-layers, and after it."""

    def around(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen[f"{number}.input"], seen[f"{number}.residual2"] = inputs[0][0, -1], output[0, -1]

    def between(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen[f"{number}.residual1"] = inputs[0][0, -1]

    hooks.callback(block.register_forward_hook(around).remove)
    assert block.mlp_norm is not None  # those of a GPT have an MLP
    hooks.callback(block.mlp_norm.register_forward_pre_hook(between).remove)


def _watch_layer(block: Block, seen: dict[str, Tensor], hooks: ExitStack) -> None:
    """Keep everything of a block."""
    attention = block.attention
    heads, groups, width = attention.n_head, attention.n_kv_head, attention.head_dim

    def projected(name: str) -> Hook:
        def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen[name] = output[0, -1].unflatten(-1, (-1, width))  # (H or G, D)

        return keep

    def normed(name: str) -> Hook:  # of q and k, in the layout of heads
        def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen[name] = output[0, :, -1]  # (H or G, D)

        return keep

    def attended(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        q, k, v = inputs[0][:, :, -1:], inputs[1], inputs[2]  # (1, H, 1, D), (1, G, T, D) twice
        seen["q_rotated"], seen["k_rotated"] = q[0, :, 0], k[0, :, -1]
        seen["keys"], seen["values"] = k[0], v[0]
        keys = k[0].repeat_interleave(heads // groups, dim=0)  # (H, T, D)
        seen["scores"] = (keys @ q[0, :, 0, :, None])[..., 0] / math.sqrt(width)  # (H, T)
        seen["weights"] = attention_weights(q, k)[0, :, 0]  # (H, T): the last token may attend to all
        seen["heads"] = output[0, :, -1]  # (H, D)
        seen["joined"] = seen["heads"].flatten()

    def hidden(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen["mlp_hidden"] = inputs[0][0, -1]

    watched = {
        "norm1": (block.attention_norm, _output(seen, "norm1")),
        "q": (attention.q_proj, projected("q")),
        "k": (attention.k_proj, projected("k")),
        "v": (attention.v_proj, projected("v")),
        "q_norm": (attention.q_norm, normed("q")),
        "k_norm": (attention.k_norm, normed("k")),
        "attend": (attention.attend, attended),
        "attention_out": (attention.o_proj, _output(seen, "attention_out")),
        "norm2": (block.mlp_norm, _output(seen, "norm2")),
        "mlp_out": (block.mlp, _output(seen, "mlp_out")),
    }
    for module, hook in watched.values():
        if module is not None:
            hooks.callback(module.register_forward_hook(hook).remove)
    assert block.mlp is not None
    down = block.mlp.down_proj
    assert isinstance(down, nn.Linear)
    hooks.callback(down.register_forward_pre_hook(hidden).remove)
