"""The logs of a run, metrics.jsonl and samples.txt: text is added at the end, and cut off when a run is resumed."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from jumok.files import sync_folder


class Logs:
    """The logs of one run folder. The methods raise OSError where the system refuses."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, IO[str]] = {}

    def append(self, name: str, text: str) -> None:
        """Add text to the end of a log, where any reader then finds it.

        The file stays open until `close`, because a run adds a line at each step. A file that was removed meanwhile
        is begun anew.
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
        """Flush the logs to the disk; a training state, which is written after this, records their sizes."""
        for file in self._open.values():
            os.fsync(file.fileno())
        sync_folder(self._folder)

    def close(self) -> None:
        """Close the files."""
        while self._open:
            _, file = self._open.popitem()
            with suppress(OSError):  # what could not be written was an error when it was added
                file.close()

    def size(self, name: str) -> int:
        """Bytes in a log, 0 where there is none."""
        path = self._folder / name
        return path.stat().st_size if path.exists() else 0

    def truncate(self, name: str, size: int) -> bool:
        """Cut a log back to `size` bytes; return whether it had as many.

        A log that has lost its end also loses the rest of its last line, so that the next text begins a line.
        """
        path = self._folder / name
        content = path.read_bytes() if path.exists() else b""
        end = content.rfind(b"\n", 0, size) + 1
        if len(content) > end:
            os.truncate(path, end)
        return end == size

    def events(self) -> list[dict[str, Any] | None]:
        """Each complete line of metrics.jsonl; None for a line that is no event."""
        path = self._folder / "metrics.jsonl"
        content = path.read_bytes() if path.exists() else b""
        return [_event(line) for line in content.split(b"\n")[:-1]]  # U+2028 in a sample ends no line here


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None
