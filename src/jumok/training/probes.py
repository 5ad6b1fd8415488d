"""What a pass over a few rows shows of a model: whether it reads ahead, and which parts of it change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.interpret.record import AttentionRecord, record, stacks_of
from jumok.messages import tr
from jumok.models import Model
from jumok.nn.attention import MultiHeadAttention, attention_weights
from jumok.nn.blocks import MLP
from jumok.training.finding import Finding
from jumok.training.tasks import Task

ROWS = 4  # of a batch
EQUAL = 1e-3  # below it, relative to the largest, a difference is rounding
DEAD_UNITS = 0.5  # of a layer: a few rows do not show what a rare unit is for


@torch.no_grad()
def sees_the_future(model: Any, ids: Tensor) -> Iterator[Finding]:
    """The states of the first half of a row depend on the tokens of the second half.

    Args:
        model: a GPT, in eval mode. ids: (B, T), of which one row is read, on the CPU.
    """
    row = ids[:1].to(model.token_embedding.weight.device)
    half = row.shape[1] // 2
    if half == 0:
        return
    other = torch.cat((row[:, :half], (row[:, half:] + 1) % model.config.vocab_size), dim=1)  # (1, T)
    states, others = (model.hidden(one)[:, :half].float() for one in (row, other))  # (1, T/2, C)
    change = float((states - others).abs().max() / states.abs().max().clamp(min=1e-30))
    if change > EQUAL:
        text = tr(
            "the model sees the tokens that it is to predict: its states change by {change:.0%} with later tokens. "
            "The attention needs a causal mask; the held-out figures mean nothing.",
            change=change,
        )
        yield Finding(kind="sees_the_future", numbers={"change": change}, text=text)


@torch.no_grad()
def dead_parts(model: Model, task: Task[Any]) -> Iterator[Finding]:
    """Heads and ReLU units that change nothing, on a few rows of the training part.

    A head is dead if it adds nothing to the residual stream, or if its weights are uniform: it averages whatever the
    tokens are. A head that attends to the first token alone is not, because that is how heads pause.

    Args:
        model: in eval mode.
    """
    blocks = [block for stack in stacks_of(model).values() for block in stack]
    if not all(isinstance(block.attention, MultiHeadAttention) for block in blocks) or not blocks:
        return  # parts that a learner wrote
    active: dict[int, Tensor] = {}  # of each layer with a ReLU, which units were, (F,)
    with ExitStack() as stack, record(model) as recording:
        for layer, block in enumerate(blocks):
            if isinstance(block.mlp, MLP) and block.mlp.activation is F.relu:
                hook = block.mlp.down_proj.register_forward_pre_hook(_keep_active(active, layer))
                stack.callback(hook.remove)
        stack.enter_context(torch.compiler.set_stance("force_eager"))  # the loss of a task may be compiled
        device = model.token_embedding.weight.device
        task.sums(model, tuple(part[:ROWS].to(device) for part in task.parts(0)[0]))
    yield from _dead_heads(recording.attentions, model)
    yield from _dead_units(active)


def _dead_heads(entries: tuple[AttentionRecord, ...], model: Model) -> Iterator[Finding]:
    modules = dict(model.named_modules())
    sizes, uniform = [], []
    entries = tuple(one for one in entries if _is_trained(modules[one.name]))  # not those that average on purpose
    for entry in entries:
        weights, shared = entry.weights().float(), entry.n_head // entry.n_kv_head  # (B, H, T, S)
        even = attention_weights(torch.zeros_like(entry.q), entry.k, entry.mask, entry.causal).float()  # (B, H, T, S)
        uniform.append((weights - even).abs().amax(dim=(0, 2, 3)) < EQUAL)  # (H,)
        heads = weights @ entry.v.float().repeat_interleave(shared, dim=1)  # (B, H, T, D)
        layer = modules[entry.name]
        assert isinstance(layer, MultiHeadAttention)
        if isinstance(layer.o_proj, nn.Linear):
            out = layer.o_proj.weight.float().unflatten(1, (entry.n_head, entry.head_dim))  # (C, H, D)
            heads = torch.einsum("bhtd,chd->bhtc", heads, out)
        sizes.append(heads.square().mean(dim=(0, 2, 3)).sqrt())  # (H,)
    largest = max((float(size.max()) for size in sizes), default=0.0)
    silent = [size <= EQUAL * largest for size in sizes]
    count, total = sum(int((a | b).sum()) for a, b in zip(silent, uniform, strict=True)), sum(map(len, sizes))
    if count:
        named = [
            f"{entry.name} {head}"
            for entry, a, b in zip(entries, silent, uniform, strict=True)
            for head in (a | b).nonzero().flatten().tolist()
        ]
        text = tr(
            "{count} of {total} attention heads are dead: they add nothing, or average all tokens alike ({heads}). "
            "Mostly the learning rate was too high, or the model has more heads than it needs.",
            count=count,
            total=total,
            heads=", ".join(named[:5]) + (" ..." if count > 5 else ""),
        )
        yield Finding(kind="dead_heads", numbers={"dead": count, "heads": total}, text=text)


def _is_trained(layer: nn.Module) -> bool:
    return isinstance(layer, MultiHeadAttention) and any(one.requires_grad for one in layer.q_proj.parameters())


def _dead_units(active: dict[int, Tensor]) -> Iterator[Finding]:
    shares = {layer: 1 - float(units.float().mean()) for layer, units in active.items()}
    worst = max(shares, key=lambda layer: shares[layer], default=None)
    if worst is not None and shares[worst] > DEAD_UNITS:
        text = tr(
            "{share:.0%} of the ReLU units of block {layer} are zero for all tokens of {rows} rows, and learn nothing "
            "while they are. Use a lower learning rate, or {--activation gelu}.",
            share=shares[worst],
            layer=worst,
            rows=ROWS,
        )
        yield Finding(kind="dead_units", numbers={"share": shares[worst], "block": worst}, text=text)


def _keep_active(active: dict[int, Tensor], layer: int) -> Any:
    def hook(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        active[layer] = (args[0] > 0).flatten(0, -2).any(dim=0)  # (F,)

    return hook
