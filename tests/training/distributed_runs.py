"""Small runs in several forked processes, for the tests of distributed training."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import events_of, fork
from jumok import text as reader
from jumok.corpora import stories
from jumok.models import build
from jumok.nn.layers import RMSNorm
from jumok.runs.events import Step
from jumok.text import Table, Text
from jumok.training import start
from jumok.training.parallel import ProcessGroup, process_group
from jumok.training.trainer import Trainer
from talks import talks
from webdriver import free_port

Work = Callable[[ProcessGroup], object]
# Steps and nothing else; one passes over batches of a few short rows, so that some ranks have no row of a part.
SMALL: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 24, "batch_size": 6, "accumulate": 2, "dropout": 0.0,
    "val": 0.0, "sample_tokens": 0, "save_every": 1e9, "compile": "off", "attention": "fused", "precision": "float32",
    "steps": 6, "eval_every": 100,
}  # fmt: skip


def ends(count: int, work: Work, *, ranks: range | None = None) -> list[str]:
    """Run `work` in the processes of a launch; how each has ended.

    Args:
        ranks: those that are started. An end is "", the type and the text of an error, or the number of a signal.
    """

    def one(rank: int) -> int:
        os.environ |= {
            "RANK": f"{rank}",
            "WORLD_SIZE": f"{count}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": f"{port}",
        }
        text = ""
        try:
            with process_group() as group:
                work(group)
        except BaseException as error:  # what it is, is asserted by the test
            text = f"{type(error).__name__}: {error}"
        (Path(texts) / str(rank)).write_text(text, encoding="utf-8")
        return 0

    found = []
    with free_port() as port, TemporaryDirectory() as texts:
        children = {rank: fork(lambda rank=rank: one(rank)) for rank in ranks or range(count)}  # type: ignore[misc]
        for rank, child in children.items():
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            found.append(str(code) if code else (Path(texts) / str(rank)).read_text(encoding="utf-8"))
    return found


def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let models compute in float64, where only the order of summation is left; RMSNorm would compute in float32."""
    monkeypatch.setattr(start, "build", lambda shape: build(shape).double())
    monkeypatch.setattr(RMSNorm, "forward", exact_norm)


def exact_norm(self: RMSNorm, x: Tensor) -> Tensor:
    """`RMSNorm` in the dtype of x. In float32 it turns a difference of 1e-16 into one of 1e-8, or into none."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def begin(out: Path, group: ProcessGroup | None = None, *, task: str = "lm", **settings: Any) -> Trainer:
    """A small run without dropout, whose batches have parts with fewer rows than processes."""
    longer = {"context_length": 48} if task == "chat" else {}
    given = {**SMALL, "task": task, **longer, **settings}
    return Trainer.start(out, material(task), **given, device="cpu", group=group)


def finish(trainer: Trainer, stop_after: int | None = None) -> list[float]:
    """The losses of the steps of a run, until it ends or rank 0 has taken so many."""
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


def material(task: str) -> Text | Table:
    """Something to learn, with rows of very different lengths."""
    if task in ("lm", "mlm"):
        return reader.from_string("".join(stories.write(12_000, seed=1)))
    if task == "chat":
        return talks()
    return reader.from_rows(("text", "label") if task == "classify" else ("source", "target"), list(rows(task)))


def rows(task: str) -> Iterator[tuple[str, str]]:
    draw = random.Random(1)
    for _ in range(80):
        number = str(draw.randrange(10 ** draw.randrange(1, 9)))
        if task == "classify":
            yield f"수 {number} {'참 ' * draw.randrange(4)}", "짝" if int(number[-1]) % 2 == 0 else "홀"
        else:
            yield number, " ".join("영일이삼사오육칠팔구"[int(digit)] for digit in number)
