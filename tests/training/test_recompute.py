"""`--recompute`: the same losses and parameters, with less kept for the backward pass."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_runs import SMALL, material
from safetensors.torch import load_file
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from conftest import state_of
from jumok.config import GPTConfig, TrainConfig, count_kept
from jumok.errors import ConfigError, TrainingError
from jumok.models import build
from jumok.runs.events import Step
from jumok.training import policy as plan
from jumok.training.compilation import recompute_blocks
from jumok.training.policy import memory_errors
from jumok.training.trainer import Trainer

Start = Callable[..., Trainer]
SHAPE = GPTConfig(vocab_size=50, context_length=16, n_layer=3, n_head=2, n_embd=32, dropout=0.1)
CASES: dict[str, dict[str, Any]] = {
    "lm, bfloat16, attention dropout": {"task": "lm", "precision": "bfloat16", "attention_dropout": 0.1},
    "lm, classic": {"task": "lm", "family": "classic", "optimizer": "adamw"},
    "classify": {"task": "classify"},
    "seq2seq, original, bfloat16": {"task": "seq2seq", "family": "original", "precision": "bfloat16"},
}


def losses_of(out: Path, **settings: Any) -> list[float]:
    """The losses of a run of four steps of two batches, with dropout."""
    given = {**SMALL, "n_layer": 2, "dropout": 0.1, "steps": 4, **settings}
    text = material(given["task"])
    with Trainer.start(out, text, **given, device="cpu") as trainer:
        return [event.loss for event in trainer.run() if isinstance(event, Step)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name[0] in "cs" else name for name in CASES]
)
def test_nothing_changes(tmp_path: Path, name: str) -> None:
    """Bit for bit, with dropout: losses, parameters and moments."""
    plain, again = tmp_path / "plain", tmp_path / "again"
    assert losses_of(again, recompute=True, **CASES[name]) == losses_of(plain, **CASES[name])
    expected, found = state_of(plain).tensors, state_of(again).tensors
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], tensor) for key, tensor in expected.items())


@pytest.mark.compile
@pytest.mark.long
def test_compiled_blocks_recompute(tmp_path: Path) -> None:
    """Compiled, the operations may be in another order. Dropout must still be the same in both forward passes."""
    settings = {"task": "lm", "compile": "on"}
    plain, again = losses_of(tmp_path / "plain", **settings), losses_of(tmp_path / "again", recompute=True, **settings)
    assert again == pytest.approx(plain, rel=1e-5)


def kept(model: nn.Module) -> int:
    """Numbers of elements that a forward pass keeps."""
    sizes: dict[int, int] = {}
    held = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        held.append(tensor)
        sizes[tensor.untyped_storage().data_ptr()] = tensor.numel()
        return tensor

    ids = torch.randint(50, (2, 16))
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        model(ids).sum()
    return sum(sizes.values())


def test_less_is_kept() -> None:
    """Three inputs of (2, 16, 32) for three blocks, and what is outside of the blocks."""
    model, short = build(SHAPE), build(dataclasses.replace(SHAPE, n_layer=1))
    whole = kept(model)
    recompute_blocks(model)
    recompute_blocks(short)
    assert kept(model) - kept(short) == 2 * 2 * 16 * 32
    assert kept(model) < whole / 3


def test_names_stay_and_copies_are_their_own() -> None:
    model = build(SHAPE)
    names = list(model.state_dict())
    recompute_blocks(model)
    twin = copy.deepcopy(model)
    assert list(twin.state_dict()) == names
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert twin(torch.zeros(1, 4, dtype=torch.long)).abs().sum() > 0


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_too_little_memory_names_it(error: Exception) -> None:
    """A MemoryError, of Python or NumPy under `ulimit -v`, was not taken for one."""

    def ends(config: TrainConfig) -> str:
        with pytest.raises(TrainingError) as caught, memory_errors(SHAPE, config):
            raise error
        return str(caught.value)

    assert "with recompute, a smaller" in ends(TrainConfig(steps=1))
    assert "recompute" not in ends(TrainConfig(steps=1, recompute=True))


@pytest.mark.parametrize("recomputing", [False, True])
def test_a_step_that_does_not_fit_names_it(start: Start, monkeypatch: pytest.MonkeyPatch, recomputing: bool) -> None:
    monkeypatch.setattr(plan, "free_memory", lambda _: 1000)
    with pytest.raises(ConfigError) as caught:
        start(recompute=recomputing)
    assert ("tokens without recompute takes" in str(caught.value)) is not recomputing


def test_the_least_that_is_kept() -> None:
    """The inputs of three blocks, and the logits."""
    assert count_kept(SHAPE, recompute=True) == 3 * 32 + 50 < count_kept(SHAPE)


def test_a_resumed_run_may_have_it(start: Start, tmp_path: Path) -> None:
    """After it ran out of memory, for example; it ends with the same bits."""
    with start("whole", steps=4) as trainer:
        list(trainer.run())
    with start(steps=4) as trainer:
        for event in trainer.run():
            if isinstance(event, Step):
                trainer.request_stop()
    with Trainer.resume(tmp_path / "run", steps=4, recompute=True, device="cpu") as trainer:
        assert trainer.config.recompute
        list(trainer.run())
    expected = load_file(tmp_path / "whole" / "model.safetensors")
    found = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
