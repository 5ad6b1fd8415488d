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
    Steps,
    compare,
    hidden,
    passed,
    require,
    require_earlier,
    require_tensor,
    result_of,
    same,
)
from jumok.course.practice.checks.block import activated_like
from jumok.course.practice.checks.positions import require_device
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import Block

SIZES: dict[str, Any] = {"vocab_size": 11, "context_length": 7, "n_layer": 2, "n_head": 3, "n_embd": 12}
TRAINED = 30  # steps


def gpt(code: Code) -> Steps:
    """A GPT with the result of the production one, that does not see the future, and learns."""
    own = code.module("GPT", *SIZES.values())
    tied = "head" in dict(own.named_children()) and own.head.weight is getattr(own.token_embedding, "weight", None)
    right = GPT(GPTConfig(family="classic", tie_embeddings=tied, **SIZES)).eval()
    fill(right)
    _require_layers(own)
    # The positions may be LearnedPositions, or an nn.Embedding as in GPT-2.
    table = "weight" if isinstance(getattr(own, "positions", None), nn.Embedding) else "table.weight"
    copy_parameters(right, own, {"position_embedding.weight": f"positions.{table}"})
    activation = activated_like(own.blocks[0].mlp, right.blocks[0].mlp).activation  # type: ignore[arg-type]
    for block in right.blocks:
        block.mlp.activation = activation  # type: ignore[union-attr]
    own.eval()
    yield passed("all-layers")
    ids = torch.tensor([[3, 0, 10, 5, 2], [1, 4, 4, 9, 7]])
    with torch.no_grad():
        _refuse_ids_as_positions(own, ids)
        _require_earlier_files(own, right)
        compare(own(ids), right(ids), tolerance=1e-4, letters="(B, T, V)")
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
    copy_parameters(nn.ModuleDict({"table": table}), own)
    yield passed("bigram-table")
    text = torch.tensor([[3, 0, 6, 5, 2, 4], [1, 4, 4, 0, 6, 1], [5, 2, 3, 3, 1, 0]])
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    logits = table.weight.detach()[ids]
    with torch.no_grad():
        compare(result_of(own, ids), logits)
    yield passed("logits")
    given = own.loss(ids, targets)
    compare(given, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))
    require(given.requires_grad, "no-gradient/graph")
    yield passed("loss")
