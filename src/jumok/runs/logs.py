"""The logs of a run, metrics.jsonl and samples.txt: text is appended, and truncated when the run is resumed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from jumok.files import parse_json, sync_folder


class Logs:
    """The logs of one run folder. The methods raise OSError if the file system does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, IO[str]] = {}

    def append(self, name: str, text: str) -> None:
        """Append text to a log; readers see it immediately.

        The file stays open until `close`, because a run appends a line in each step. If it was removed in the meantime,
        a new one is created.
        """
        file = self._open.get(name)
        if file is None or os.fstat(file.fileno()).st_nlink == 0:
            if file is not None:
                file.close()
            file = self._open[name] = (self._folder / name).open(
                "a", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
        file.write(text)
        file.flush()

    def sync(self) -> None:
        """Flush the logs to the disk, before a training state records their sizes."""
        for file in self._open.values():
            os.fsync(file.fileno())
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the files."""
        while self._open:
            _, file = self._open.popitem()
            with suppress(OSError):  # `append` has raised errors of writing
                file.close()

    def size(self, name: str) -> int:
        """Return the size of a log in bytes, 0 if there is none."""
        path = self._folder / name
        return path.stat().st_size if path.exists() else 0

    def truncate(self, name: str, size: int) -> bool:
        """Truncate a log to `size` bytes; return False if it is shorter.

        An incomplete last line is removed, so that the next text begins a new line.
        """
        path = self._folder / name
        content = path.read_bytes() if path.exists() else b""
        end = content.rfind(b"\n", 0, size) + 1
        if len(content) > end:
            os.truncate(path, end)
        return end == size

    def metrics(self) -> list[dict[str, Any]]:
        """Return the events of metrics.jsonl; invalid lines, as after a kill or a power failure, are skipped."""
        return list(self.events())

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of metrics.jsonl one by one, as `metrics` returns them."""
        return (event for event in self._events() if event is not None)

    def has_damaged_metrics(self) -> bool:
        """Return whether metrics.jsonl has an invalid line, other than an incomplete last one."""
        return None in self._events()

    def _events(self) -> Iterator[dict[str, Any] | None]:
        path = self._folder / "metrics.jsonl"
        if path.exists():
            with path.open("rb") as file:  # bytes: a sample can contain U+2028, which ends a line of text
                yield from (_event(line) for line in file if line.endswith(b"\n"))


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = parse_json(line.decode("utf-8"))
    except ValueError:
        return None
    return event if isinstance(event, dict) and _is_whole(event) else None


def _is_whole(event: dict[str, Any]) -> bool:
    """Return whether an event has what its readers need. A number that was not finite is None."""
    number = int | float | None
    match event:
        case {"event": "step", "step": int(), "skipped": bool()}:
            names = ("loss", "grad_norm", "progress", "seconds", "tokens_per_second")
            return all(isinstance(event.get(name, ""), number) for name in names)
        case {"event": "eval", "step": int(), "figures": {"loss": _} as figures}:
            return all(isinstance(value, number) for value in figures.values())
        case {"event": "step" | "eval"}:
            return False
        case {"event": str()}:
            return True
    return False
