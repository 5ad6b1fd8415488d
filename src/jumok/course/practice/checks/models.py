"""Checks of the exercises on whole models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import GPT
from jumok.config import GPTConfig
from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    passed,
    raises,
    require,
    require_earlier,
    require_shape,
    require_tensor,
    same,
)
from jumok.course.practice.checks.block import ACTIVATIONS
from jumok.course.practice.checks.positions import require_device
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import MLP, Block
from jumok.nn.blocks import ACTIVATION

SIZES: dict[str, Any] = {"vocab_size": 11, "context_length": 7, "n_layer": 2, "n_head": 3, "n_embd": 12}
TRAINED = 30  # steps


def gpt(code: Code) -> Steps:
    """A GPT with the result of the production one, that does not see the future, and learns."""
    own = code.module("GPT", *SIZES.values())
    tied = "head" in dict(own.named_children()) and own.head.weight is getattr(own.token_embedding, "weight", None)
    right = GPT(GPTConfig(family="classic", tie_embeddings=tied, **SIZES)).eval()
    fill(right)
    _require_layers(own)
    copy_parameters(right, own, {name: _own_name(own, name) for name, _ in right.named_parameters()})
    _choose_activation(own, right)
    own.eval()
    yield passed("all-layers")
    ids = torch.tensor([[3, 0, 10, 5, 2], [1, 4, 4, 9, 7]])
    with torch.no_grad():
        _refuse_ids_as_positions(own, ids)
        _require_earlier_files(own, right)
        compare(own(ids), right(ids), *_gpt_mistakes(right, ids), tolerance=1e-4, letters="(B, T, V)")
        yield passed("equals-production-gpt")
        full = torch.arange(21).reshape(3, 7) % 11
        compare(own(full), right(full), tolerance=1e-4)
        require_device(own, own.positions if isinstance(own.positions, nn.Embedding) else own.positions.table, ids)
        yield passed("whole-context")
    _require_dropout(code.module("GPT", *SIZES.values(), 0.5))
    yield passed("gpt-dropouts")
    before, after = _train(code.module("GPT", *SIZES.values()))
    require(after < before - 0.5, "does-not-learn", steps=TRAINED, before=before, after=after)
    yield passed("learns", steps=TRAINED, before=before, after=after)


def _own_name(own: nn.Module, name: str) -> str:
    """The reader's name of a parameter. The positions may be LearnedPositions, or an nn.Embedding as in GPT-2."""
    if name != "position_embedding.weight":
        return name
    return "positions.weight" if isinstance(getattr(own, "positions", None), nn.Embedding) else "positions.table.weight"


def _require_earlier_files(own: Any, right: GPT) -> None:
    x, table = hidden(2, 5, SIZES["n_embd"]), right.position_embedding
    assert table is not None
    made = own.blocks[0](x.clone())
    _set_causal(right, False)
    seeing = isinstance(made, Tensor) and same(made, right.blocks[0](x))  # has an explanation of its own
    _set_causal(right, True)
    if not seeing:
        require_earlier("block", made, right.blocks[0](x))
    require_earlier("layer_norm", own.norm(x), right.norm(x))
    if not isinstance(own.positions, nn.Embedding):
        require_earlier("learned_positions", own.positions(x.clone()), x + table.weight[:5])


def _refuse_ids_as_positions(own: Any, ids: Tensor) -> None:
    """Raise `Wrong` if the positions get the ids of the tokens."""
    given: list[Tensor] = []
    hook = own.positions.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    try:
        own(ids)
    except (RuntimeError, IndexError):
        if not any(torch.equal(one, ids) for one in given):
            raise
    finally:
        hook.remove()
    require(not any(torch.equal(one, ids) for one in given), "ids-as-positions")


def _require_layers(own: nn.Module) -> None:
    blocks = getattr(own, "blocks", None)
    if isinstance(blocks, list | tuple | nn.ModuleList | nn.Sequential):
        require(len(blocks) == SIZES["n_layer"], "number-of-blocks", wanted=SIZES["n_layer"], count=len(blocks))
        require(len({id(block) for block in blocks}) == len(blocks), "one-block")
    require(getattr(getattr(own, "head", None), "bias", None) is None, "head-bias")


def _choose_activation(own: Any, right: GPT) -> None:
    """Give the production model the activation of the reader's MLP."""
    mlp, production = own.blocks[0].mlp, right.blocks[0].mlp
    assert isinstance(production, MLP)
    x = hidden(2, 3, SIZES["n_embd"])
    with torch.no_grad():
        result = mlp(x.clone())
        hidden_units, down = production.up_proj(x), production.down_proj
        fitting = (
            n for n in ACTIVATIONS if isinstance(result, Tensor) and same(result, down(ACTIVATION[n](hidden_units)))
        )
        chosen = ACTIVATION[next(fitting, ACTIVATIONS[0])]
    for module in right.modules():
        if isinstance(module, MLP):
            module.activation = chosen


def _gpt_mistakes(right: GPT, ids: Tensor) -> list[Mistake]:
    assert right.position_embedding is not None
    positions = right.position_embedding.weight
    tokens = right.token_embedding(ids)
    logits = right(ids)

    def run(x: Tensor, blocks: list[nn.Module] | None = None, *, norm: bool = True) -> Tensor:
        for part in right.blocks if blocks is None else blocks:
            x = part(x)
        return right.head(right.norm(x) if norm else x)

    def seeing() -> Tensor:
        _set_causal(right, False)
        result = right(ids)
        _set_causal(right, True)
        return result

    placed = tokens + positions[: ids.shape[1]]
    first, second = right.blocks
    return [
        Mistake("sees-the-future", seeing()),
        Mistake(
            "softmax/gpt_mistakes",
            any_of(logits.softmax(-1), logits.log_softmax(-1), logits.softmax(-2), logits.softmax(1)),
        ),
        Mistake("no-final-norm", run(placed, norm=False)),
        Mistake("no-positions/models", any_of(run(tokens), run(positions[: ids.shape[1]].expand_as(tokens)))),
        Mistake("tokens-twice", run(placed + tokens)),
        Mistake(
            "norm-elsewhere", any_of(run(right.norm(placed)), run(right.norm(second(right.norm(first(placed)))), []))
        ),
        Mistake("added-again", run((y := placed + first(placed)) + second(y), [])),
        Mistake(
            "blocks-skipped",
            any_of(run(placed, []), run(placed, [first]), run(placed, [second]), run(placed, [second, first])),
        ),
        Mistake("argmax/models", logits.argmax(-1)),
        Mistake("last-position", any_of(logits[:, -1], logits[:, -1:])),
    ]


def _set_causal(model: GPT, causal: bool) -> None:
    for block in model.blocks:
        assert isinstance(block, Block)
        block.causal = causal


@torch.no_grad()
def _require_dropout(own: Any) -> None:
    own.train()
    fill(own)
    x = hidden(2, 5, SIZES["n_embd"])
    require(
        not same(require_tensor(own.blocks[0](x.clone())), require_tensor(own.blocks[0](x.clone()))), "no-block-dropout"
    )
    for block in own.blocks:  # now they return their input
        for silent in (block.attention.o_proj, block.mlp.down_proj):
            for parameter in silent.parameters():
                parameter.zero_()
    ids = torch.tensor([[3, 0, 10, 5, 2]])
    require(not same(own(ids), own(ids)), "no-embedding-dropout")


def _train(own: Any) -> tuple[float, float]:
    """Return the loss before and after some steps on a text that repeats itself."""
    text = torch.arange(64) * 3 % SIZES["vocab_size"]
    rows = torch.stack([text[start : start + 8] for start in range(0, 32, 4)])
    optimizer = torch.optim.AdamW(own.parameters(), lr=1e-2)
    losses = []
    for _ in range(TRAINED + 1):
        loss = F.cross_entropy(own(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses[0], losses[-1]


def bigram(code: Code) -> Steps:
    """A table of logits, and the cross-entropy of its predictions."""
    vocabulary = 7
    own = code.module("Bigram", vocabulary)
    table = nn.Embedding(vocabulary, vocabulary)
    fill(table, scale=1.5)
    copy_parameters(nn.ModuleDict({"table": table}), own, {"table.weight": "table.weight"})
    yield passed("bigram-table")
    text = torch.tensor([[3, 0, 6, 5, 2, 4], [1, 4, 4, 0, 6, 1], [5, 2, 3, 3, 1, 0]])
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    rows = table.weight.detach()
    with torch.no_grad():
        logits = rows[ids]
        compare(
            own(ids),
            logits,
            Mistake("softmax/bigram", any_of(logits.softmax(-1), logits.log_softmax(-1))),
            Mistake("columns/models", rows.T[ids]),
        )
    yield passed("logits")
    given = raises("not-flattened", lambda: own.loss(ids, targets), text="Expected target size")
    require_tensor(given)
    _require_loss(given, logits, ids, targets)
    require(given.requires_grad, "no-gradient/models")
    yield passed("loss")


def _require_loss(given: Tensor, logits: Tensor, ids: Tensor, targets: Tensor) -> None:
    def loss(scores: Tensor, wanted: Tensor, reduction: str = "mean") -> Tensor:
        return F.cross_entropy(scores.flatten(0, 1), wanted.flatten(), reduction=reduction)

    right = loss(logits, targets)
    compare(
        given,
        right,
        Mistake("own-token", loss(logits, ids)),
        Mistake(
            "shifted-twice/models", any_of(loss(logits[:, :-1], targets[:, 1:]), loss(logits[:, 1:], targets[:, :-1]))
        ),
        Mistake("softmax-twice/models", any_of(loss(logits.softmax(-1), targets), loss(logits.softmax(1), targets))),
        Mistake("reshaped", any_of(*(F.cross_entropy(logits.reshape(shape), targets) for shape in ((3, 7, 5),)))),
        Mistake(
            "no-log-softmax",
            any_of(*(F.nll_loss(y.flatten(0, 1), targets.flatten()) for y in (logits, logits.softmax(-1)))),
        ),
        Mistake("sum/models", any_of(loss(logits, targets, "sum"), loss(logits, targets, "sum") / len(ids))),
        Mistake("last-only", F.cross_entropy(logits[:, -1], targets[:, -1])),
        Mistake("sign", -right),
    )
    require_shape(given, ())
