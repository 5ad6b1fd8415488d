"""The faults of bench/disk_faults.py: the library injects what it says, and a few commands under it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import FIXTURES
from disk_faults import FAULTS, KINDS, build, obstacle

PROGRAM = FIXTURES.parents[1] / "bench" / "disk_faults.py"

pytestmark = pytest.mark.skipif(bool(obstacle()), reason=obstacle() or "it can be used here")

WRITER = """
import os, sys
handle = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print([os.write(handle, b"12345678") for _ in range(3)])
os.fsync(handle)
"""


def write_under(library: Path, folder: Path, kind: str, n: int, fault: str) -> tuple[str, str]:
    """Three writes of eight bytes and an fsync in another process, with a fault; what it printed."""
    plan = {"DISK_FAULTS_PLAN": f"{KINDS.index(kind)} {n} {FAULTS[fault]}", "DISK_FAULTS_FOLDER": str(folder)}
    environment = {**os.environ, **plan, "LD_PRELOAD": str(library)}
    command = [sys.executable, "-S", "-c", WRITER, str(folder / "file")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.strip(), done.stderr


@pytest.mark.slow
def test_the_library_injects_what_it_is_told(tmp_path: Path) -> None:
    """A library that injected nothing would let every command pass."""
    library, folder = build(tmp_path), tmp_path.resolve() / "inside"
    folder.mkdir()
    assert write_under(library, folder, "write", 9, "EIO") == ("[8, 8, 8]", "")
    assert "No space left" in write_under(library, folder, "write", 3, "ENOSPC")[1]
    assert write_under(library, folder, "write", 2, "short") == ("[8, 4, 8]", "")
    assert write_under(library, folder, "write", 2, "EINTR") == ("[8, 8, 8]", "")  # Python tries again
    assert "No space left" in write_under(library, folder, "write", 1, "full")[1]  # at the second one
    assert (folder / "file").read_bytes()[:4] == b"1234"
    assert "Disk quota exceeded" in write_under(library, folder, "open", 1, "EDQUOT")[1]
    printed, said = write_under(library, folder, "fsync", 1, "EIO")
    assert printed == "[8, 8, 8]"
    assert "Input/output error" in said
    outside = tmp_path.resolve() / "inside-not"
    outside.mkdir()
    plan = {"DISK_FAULTS_PLAN": f"{KINDS.index('open')} 1 {FAULTS['EIO']}", "DISK_FAULTS_FOLDER": str(folder)}
    command = [sys.executable, "-S", "-c", WRITER, str(outside / "file")]
    subprocess.run(command, env={**os.environ, **plan, "LD_PRELOAD": str(library)}, check=True, timeout=60)


@pytest.mark.long
def test_some_faults(tmp_path: Path) -> None:
    """Commands with a fault below Python are told or go on; each fault was injected."""
    command = [sys.executable, str(PROGRAM), "--count=12", "--processes=0", "--seed=5", "--few"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "faults")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 faults, 0 failures" in done.stdout
    rows = re.findall(r"^\| \w+ \| \w+ \| (\d+) \| (\d+) \| (\d+) \| 0 \|$", done.stdout, flags=re.MULTILINE)
    assert sum(int(injected) for injected, _, _ in rows) == 12
    assert any(int(told) for _, _, told in rows)
