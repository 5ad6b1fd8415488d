"""Whether a run is being trained, and how another process stops it."""

from __future__ import annotations

from pathlib import Path

from jumok.files import is_locked


def is_training(folder: Path) -> bool:
    """Return whether a process writes to a run folder now."""
    return is_locked(folder / "state" / "lock")


def stop_file(folder: Path) -> Path:
    """A file that stops the training in a run folder: `jumok train` looks for it, saves its state and ends."""
    return folder / "state" / "stop"
