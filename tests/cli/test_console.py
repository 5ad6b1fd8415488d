"""What a person sees of a training in a terminal, at the widths that terminals have."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from conftest import TINY
from jumok.cli.console.ladder import LadderView
from jumok.course.ladder.run import RungStarted
from jumok.course.ladder.rungs import RUNGS
from jumok.course.words import LANGUAGES, Language
from jumok.runs.events import Eval, Finish, Step
from jumok.runs.folder import RunFolder
from jumok.text import Text, with_signs
from jumok.training.subscribers.progress import TrainingView
from jumok.training.trainer import Trainer

STEP = Step(
    step=12_345, loss=2.3456, rate=1.0, grad_norm=0.5, skipped=False, progress=0.42, seconds=3000.0, remaining=4207.0,
    tokens_per_second=12_345.6,
)  # fmt: skip
EVAL = Eval(step=12_000, figures={"nats_per_char": 2.641}, headline="2.641 nats/char", best=True, seconds=2900.0)

Start = Callable[..., Trainer]
Screen = Callable[[int], io.StringIO]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Make stderr a terminal of so many columns; the file has what it was sent."""

    def make(columns: int) -> io.StringIO:
        file = io.StringIO()
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(sys, "stderr", file)
        return file

    return make


def bars(file: io.StringIO) -> list[str]:
    """The lines with a bar, without colours."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", file.getvalue())
    return [line.rstrip() for line in re.split(r"[\r\n]+", plain) if "━" in line]


@pytest.mark.parametrize(
    ("columns", "shown", "left_out"),
    [
        (60, ["step 12,345"], ["validation", "tokens/s"]),
        (80, ["step 12,345", "loss 2.346", "12,346 tokens/s"], ["validation"]),
        (100, ["step 12,345", "loss 2.346", "validation 2.641 nats/char"], ["tokens/s"]),
        (200, ["step 12,345", "loss 2.346", "validation 2.641 nats/char", "12,346 tokens/s"], []),
    ],
)
def test_the_progress_line_keeps_what_matters(
    columns: int, shown: list[str], left_out: list[str], screen: Screen
) -> None:
    """At 80 columns the text pushed bar, percentage and remaining time out of the line."""
    file = screen(columns)
    with TrainingView(Path("run")) as view:
        view.show(EVAL)
        view.show(STEP)
        view._bar.refresh()
    line = bars(file)[-1]
    assert cell_len(line) <= columns
    for part in (" 42% ", "1:10:07 left", *shown):
        assert part in line
    assert not [part for part in left_out if part in line]
    assert "…" not in line


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_progress_line_of_a_ladder(columns: int, language: Language, screen: Screen) -> None:
    """It had no percentage."""
    file = screen(columns)
    with LadderView(language) as view:
        view.show(RungStarted(number=2, rung=RUNGS[1], folder=Path(), parameters=9, step=0, before=""))
        view.show(STEP)
        view._bar.refresh()
    line = bars(file)[-1]
    assert cell_len(line) <= columns
    for part in (" 42% ", "2/16", "1:10:07", "2.346"):
        assert part in line
    assert "…" not in line


def test_what_takes_long_is_named(screen: Screen) -> None:
    """While text was read, tokenised and measured there was no bar, and "preparing" while it compiled."""
    file = screen(80)
    with TrainingView(Path("run")) as view:
        view.doing("compiling, which can take a minute")
        view._bar.refresh()
        view.doing("가" * 200)
        view._bar.refresh()
    lines = bars(file)
    assert "compiling, which can take a minute" in "".join(lines)
    assert max(map(cell_len, lines)) <= 80
    assert re.search("가{20,}…$", lines[-1])


@pytest.mark.slow
def test_a_run_tells_what_it_does(start: Start, tmp_path: Path, story_text: Text) -> None:
    told: list[str] = []
    settings = {**TINY, "sample_tokens": 0, "attention": "auto"}
    trainer = Trainer.start(tmp_path / "run", story_text, **settings, device="cpu", report=told.append)
    assert [text.split()[0] for text in told] == ["making", "turning", "planning"]
    del told[:]
    list(trainer.run())
    assert told == ["validating", "validating", "reading the held-out part for the last figure"]


def summary_of(trainer: Trainer, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, str], dict[str, Any]]:
    """The last lines that a run shows, by their names, and what --json would hold."""
    capsys.readouterr()
    with TrainingView(trainer.folder.path) as view:
        for event in trainer.run():
            view.show(event)
    lines = capsys.readouterr().err.split("\ndone after ")[1].splitlines()[1:]
    return {line[2:11].strip(): line[11:] for line in lines}, view.summary


@pytest.mark.long
def test_before_is_always_the_untrained_text(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After a resume it was the first sample since then."""
    trainer = start()
    for event in trainer.run():
        if event.step == 6:
            trainer.request_stop()
    shown, _ = summary_of(Trainer.resume(tmp_path / "run", device="cpu"), capsys)
    samples = [line["text"] for line in RunFolder(tmp_path / "run").logs.metrics() if line["event"] == "sample"]
    assert len(samples) == 3
    assert shown["before"] == with_signs(samples[0]).replace("\n", " ⏎ ")
    kept = RunFolder(tmp_path / "run").read_config()["metrics"]["step"]
    assert shown["after"] == f"(step {kept}) " + with_signs(samples[-1]).replace("\n", " ⏎ ")
    again, _ = summary_of(Trainer.resume(tmp_path / "run", device="cpu"), capsys)
    assert again == shown


@pytest.mark.slow
def test_the_summary_tells_what_was_read(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The best validation and the last figure differ, for they read different parts, and nothing said so."""
    shown, summary = summary_of(start(eval_tokens=64), capsys)
    held_out = RunFolder(tmp_path / "run").read_config()["data"]["val_tokens"]
    assert shown["read"] == f"all {held_out:,} held-out tokens; validations 64, with less context"
    assert (summary["held_out_tokens"], summary["tokens"], summary["validation_tokens"]) == (held_out, held_out, 64)
    again, same = summary_of(Trainer.resume(tmp_path / "run", device="cpu"), capsys)
    assert again == shown
    assert {**same, "seconds": 0} == {**summary, "seconds": 0}


@pytest.mark.parametrize(
    ("read", "validation", "sentence"),
    [(500, 200, "500 of 9,000 held-out rows; validations 200"), (9_000, 9_000, "all 9,000 held-out rows")],
)
def test_what_was_read_of_a_table(
    read: int, validation: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finish = Finish(
        step=9, reason="done", figures={"loss": 1.0, "rows": read}, headline="accuracy 0.9", seconds=1.0, unit="rows",
        held_out=9_000, validation_read=validation, more_context=False,
    )  # fmt: skip
    with TrainingView(tmp_path) as view:
        view.show(finish)
    assert f"  read     {sentence}\n" in capsys.readouterr().err
