"""The soak of bench/soak.py: it finds what differs, and runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import FIXTURES
from jumok.training.trainer import Trainer
from soak import Failure, require_same

PROGRAM = FIXTURES.parents[1] / "bench" / "soak.py"


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: list[Callable[[Path], object]] = [
    lambda run: flip_a_byte(run / "model.safetensors"),
    lambda run: flip_a_byte(max(run.glob("state/step-*")) / "tensors.safetensors"),
    lambda run: (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes()[:-1]),
    lambda run: (run / "state" / ".step-1-x.tmp").touch(),
    lambda run: (run / "samples.txt").unlink(),
]


@pytest.mark.slow
def test_what_differs_is_found(start: Callable[..., Trainer], tmp_path: Path) -> None:
    """A comparison that found nothing would let every kill pass."""
    list(start(steps=2, eval_every=1).run())
    for number, damage in enumerate(DAMAGES):
        copy = tmp_path / f"copy{number}"
        shutil.copytree(tmp_path / "run", copy)
        require_same(copy, tmp_path / "run")
        damage(copy)
        with pytest.raises(Failure):
            require_same(copy, tmp_path / "run")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the soak forks, which other systems cannot do safely")
def test_some_kills_and_signals(tmp_path: Path) -> None:
    """The program runs, and counts what it did."""
    command = [sys.executable, str(PROGRAM), "kills", "signals", "--count=4", "--folder", str(tmp_path / "soak")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 trainings killed; 0 failures" in done.stdout
    assert "| signals | SIGHUP |" in done.stdout
