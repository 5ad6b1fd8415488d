"""Control characters in what models and people wrote: a terminal shows them and does not obey, files have them as they
are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import jumok
from jumok import cli
from jumok.cli.console import output
from jumok.config import GPTConfig
from jumok.models import build
from jumok.runs.events import Notice, Sample
from jumok.text import with_signs
from jumok.tokenizers import train_tokenizer
from jumok.training.subscribers.progress import TrainingView

NASTY = "가\x1b[2J\x00나\r다\x9b31m\u202e라"  # clears the screen, writes over the line, turns it around
SIGNS = "가␛[2J␀나␍다⟨U+009B⟩31m⟨U+202E⟩라"
Terminal = Callable[[bool], None]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a function that sets whether stdout counts as a terminal."""
    return lambda is_one: monkeypatch.setattr(sys.stdout, "isatty", lambda: is_one)


def test_all_control_characters_are_replaced() -> None:
    assert with_signs(NASTY) == SIGNS
    assert "".join(map(with_signs, NASTY)) == SIGNS  # piece by piece, as it is streamed
    every = "".join(map(chr, range(0x180)))
    shown = with_signs(every)
    assert [char for char in shown if not char.isprintable()] == list("\t\n\xa0\xad")  # a blank and a hyphen
    harmless = "한글 \t漢字\n👨‍👩‍👧 e\u0301 ᄒᆞᆫ"
    assert with_signs(harmless) == harmless


def test_a_terminal_gets_signs_and_a_pipe_every_letter(terminal: Terminal, capfd: pytest.CaptureFixture[str]) -> None:
    """Click removes escape sequences when stdout is not a terminal, so text was lost."""
    terminal(False)
    output.write(NASTY, end="")
    sys.stdout.flush()
    assert capfd.readouterr().out.replace("\n", "\r") == NASTY  # the capture reads "\r" as a line end
    terminal(True)
    output.write(NASTY + "\n\t", end="")
    assert capfd.readouterr().out == SIGNS + "\n\t"


@pytest.mark.parametrize("samples", [1, 2])
def test_generate(
    samples: int, terminal: Terminal, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Streamed and at once; generated text can also contain any byte."""
    tokenizer = train_tokenizer("가나다라" * 3)
    torch.manual_seed(0)
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=1, n_embd=4, context_length=200))
    model.tokenizer = tokenizer
    jumok.save(model, tmp_path / "run")
    words = ["jumok", "generate", str(tmp_path / "run"), "--prompt", NASTY, "--seed=1", "--tokens=150", "--device=cpu"]

    def told(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", [*words, f"--samples={samples}", *more])
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0
        return capfd.readouterr().out

    terminal(True)
    exact = json.loads(told("--json"))
    assert exact["prompt"] == NASTY
    written = exact["samples"][0]["text"]
    assert any(ord(char) < 32 for char in written)
    shown = told()
    assert with_signs(NASTY + written) in shown
    assert set(shown) & {"\x1b", "\x00", "\r", "\x9b"} == set()


def test_events_of_a_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A sample of the first steps consists of random bytes, of which ESC is one."""
    with TrainingView(tmp_path) as view:
        view.show(Sample(step=0, text=f"{NASTY}\n{NASTY}"))
        view.show(Notice(step=0, text=NASTY))
    before, notice = capsys.readouterr().err.splitlines()
    assert before == f"  before training: {SIGNS} ⏎ {SIGNS}"
    assert notice == SIGNS
