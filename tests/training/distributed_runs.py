"""Small runs in several forked processes, for the tests of distributed training."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import distributed as bench
import pytest
import torch

from conftest import events_of, fork
from jumok.models import build
from jumok.nn.layers import RMSNorm
from jumok.runs.events import Step
from jumok.training import start
from jumok.training.distributed import World
from jumok.training.follower import follow
from jumok.training.joining import joined
from jumok.training.trainer import Trainer

CPU = torch.device("cpu")
Work = Callable[[World], object]


def ends(
    count: int, lead: Work, others: Work = lambda world: follow(world, CPU), *, ranks: range | None = None
) -> list[str]:
    """Run `lead` in rank 0 and `others` in the other ranks of a launch; how each has ended.

    Args:
        ranks: those that are started. An end is "", the type and the text of an error, or the number of a signal.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def one(rank: int) -> int:
        os.environ |= {
            "RANK": f"{rank}",
            "WORLD_SIZE": f"{count}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{port}",
        }
        text = ""
        try:
            with joined() as world:
                (others if rank else lead)(world)
        except BaseException as error:  # what it is, is asserted by the test
            text = f"{type(error).__name__}: {error}"
        (Path(texts) / str(rank)).write_text(text, encoding="utf-8")
        return 0

    found = []
    with TemporaryDirectory() as texts:
        children = {rank: fork(lambda rank=rank: one(rank)) for rank in ranks or range(count)}  # type: ignore[misc]
        for rank, child in children.items():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found.append(str(code) if code else (Path(texts) / str(rank)).read_text(encoding="utf-8"))
    return found


def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models compute in float64, where only the order of summation is left; RMSNorm would compute in float32."""
    monkeypatch.setattr(start, "build", lambda shape: build(shape).double())
    monkeypatch.setattr(RMSNorm, "forward", bench.exact_norm)


def begin(out: Path, world: World | None = None, *, task: str = "lm", steps: int = 6, **settings: Any) -> Trainer:
    """A small run without dropout, whose batches have parts with fewer rows than processes."""
    given = {**bench.SMALL, "n_layer": 1, "n_embd": 16, "task": task, "steps": steps, "eval_every": 100, **settings}
    return Trainer.start(out, bench.material(task), **given, device="cpu", world=world)  # type: ignore[arg-type]


def finish(trainer: Trainer, stop_after: int | None = None) -> list[float]:
    """The losses of the steps of a run, until it ends or has taken so many."""
    losses = []
    with trainer:
        for event in trainer.run():
            if isinstance(event, Step):
                losses.append(event.loss)
                if len(losses) == stop_after:
                    trainer.request_stop()
    return losses


def losses_in(run: Path) -> list[float]:
    return [event["loss"] for event in events_of(run) if event["event"] == "step"]


def assert_close(found: list[float], expected: list[float], limit: float) -> None:
    assert len(found) == len(expected) > 0
    assert max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)) <= limit
