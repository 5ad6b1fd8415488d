"""Each reader answers mutated files and requests, or refuses them with a message; the long form is bench/fuzz.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import fuzz
from fuzz_targets import TARGETS, Read, Target, Unexpected
from jumok.errors import TextError

INPUTS = 120  # of a cheap target
LONG = 40_000  # of all targets together
SLOW = {"state"}  # which trains runs first

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="inputs run in forked processes"),
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:invalid .*escape sequence:DeprecationWarning"),  # of the codec unicode_escape
]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow and busy machine may need more than the limits of bench/fuzz.py."""
    monkeypatch.setattr(fuzz, "SECONDS", 60)
    monkeypatch.setattr(fuzz, "WAITING", 300)


def found(target: Target, inputs: int, folder: Path, seed: int) -> fuzz.Tally:
    (folder / "files").mkdir()
    return fuzz.fuzz(target, range(inputs), seed=seed, out=folder / "found", folder=folder / "files")


@pytest.mark.slow
@pytest.mark.parametrize("target", [one for one in TARGETS if one.name not in SLOW], ids=lambda one: one.name)
def test_mutated_inputs_are_answered_or_refused(target: Target, tmp_path: Path) -> None:
    inputs = max(12, INPUTS // target.cost)
    tally = found(target, inputs, tmp_path.resolve(), seed=7)
    assert not tally.kinds
    assert tally.inputs == inputs == tally.answers + tally.refusals


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS, ids=lambda one: one.name)
def test_many_mutated_inputs_are_answered_or_refused(target: Target, tmp_path: Path) -> None:
    tally = found(target, fuzz.shares(TARGETS, LONG)[target.name], tmp_path.resolve(), seed=8)
    assert not tally.kinds
    assert tally.answers > 0


# --- the fuzzer itself ---


def misbehaving(folder: Path) -> Read:
    """A reader that does what the first byte of the file says."""

    def read(_name: str, content: bytes) -> object:
        match content[:1]:
            case b"r":
                raise TextError("refused")
            case b"v":
                raise ValueError("a bug")
            case b"u":
                raise Unexpected("a wrong answer")
            case b"w":
                (folder.parent / "outside").write_text("x")
            case b"x":
                exec("1 + 1")
            case b"s":
                os.system("true")
            case b"k":
                os.kill(os.getpid(), signal.SIGKILL)
            case b"m":
                bytearray(3 << 30)
            case b"i":
                (folder / "inside").write_text("x")
        return None

    return read


def test_the_fuzzer_finds_what_it_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exceptions, wrong answers, writing outside, execution, processes, memory, and the end of the process."""
    monkeypatch.setattr(fuzz, "made", lambda target, seed, number, files: ("file", b"arvuwxskmia"[number : number + 1]))
    target = Target(name="odd", prepare=lambda _: {"file": b"a"}, open=misbehaving)
    tally = found(target, 11, tmp_path.resolve(), seed=0)
    assert (tally.inputs, tally.answers, tally.refusals, tally.findings) == (11, 3, 1, 7)
    kinds = sorted(kind.partition(" at ")[0] for kind in tally.kinds.elements())
    assert kinds == ["Forbidden", "Forbidden", "Forbidden", "MemoryError", "Unexpected", "ValueError",
                     "the process ended: SIGKILL"]  # fmt: skip
    assert not (tmp_path / "outside").exists()
    assert len(list((tmp_path / "found").glob("odd-*.txt"))) == 7


def test_an_input_that_takes_too_long_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one in native code, which no exception of a signal handler would end."""
    monkeypatch.setattr(fuzz, "SECONDS", 0.05)
    target = Target(
        name="slow", prepare=lambda _: {"file": b"a"}, open=lambda _: lambda name, content: _forever(content)
    )
    tally = found(target, 2, tmp_path.resolve(), seed=0)
    assert tally.kinds == {"the process ended: SIGPROF": 2}


def _forever(_content: bytes) -> None:
    sum(range(10**10))
