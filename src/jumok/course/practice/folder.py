"""The reader's folder: the files of the exercises, and the progress.

progress.json holds, for each exercise, {"right", "attempts", "hints"}. It is written atomically after each check and
each hint, under a lock: two commands may run at the same time. The reader's files are never
overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from jumok.course.practice.catalogue import Exercise, exercises
from jumok.course.practice.sandbox import Verdict
from jumok.course.words import LANGUAGES, Language
from jumok.errors import LessonError
from jumok.files import locked, write_atomic

PROGRESS = "progress.json"
LOCK = ".progress.lock"


@dataclass
class Progress:
    """What the reader did of one exercise. hints: how many were shown. right: whether it passed when last checked."""

    right: bool = False
    attempts: int = 0
    hints: int = 0


class Practice:
    """A folder with exercises.

    Args:
        path: the folder; it need not exist.

    Raises:
        LessonError: progress.json is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = _read(path / PROGRESS)

    def write(self, language: Language) -> list[Path]:
        """Write the files that do not exist yet, in this language, and return them."""
        self.path.mkdir(parents=True, exist_ok=True)
        missing = [one for one in exercises() if not self.file(one).exists()]
        for one in missing:
            write_atomic(self.file(one), one.template(language))
        if not (self.path / PROGRESS).exists():
            self._save()
        return [self.file(one) for one in missing]

    def file(self, one: Exercise) -> Path:
        """Return the reader's file of an exercise."""
        return self.path / one.file

    def tried(self, one: Exercise, verdict: Verdict) -> None:
        """Record an attempt, and whether it passed. A file with a hole is no attempt."""
        if verdict.status == "open" and not self.progress[one.slug].right:
            return
        with self._changed(one) as entry:
            entry.attempts += verdict.status != "open"
            entry.right = verdict.status == "right"

    def begun(self) -> Iterator[tuple[Path, Exercise]]:
        """Yield the files that differ from what `write` wrote."""
        for one in exercises():
            file = self.file(one)
            try:
                written = file.read_bytes()
            except FileNotFoundError:
                continue
            if written.replace(b"\r\n", b"\n") not in [one.template(language).encode() for language in LANGUAGES]:
                yield file, one

    def hint(self, one: Exercise) -> int:
        """Count one more hint as shown, and return how many are shown now."""
        with self._changed(one) as entry:
            entry.hints = min(entry.hints + 1, len(one.hints))
        return entry.hints

    def first(self) -> Path:
        """Return the file of the next exercise."""
        return self.file(self.next() or exercises()[0])

    def next(self, after: Exercise | None = None) -> Exercise | None:
        """The first exercise that has not passed, from the one that follows `after` on; then from the beginning."""
        begin = after.number if after is not None else 0
        ordered = (*exercises()[begin:], *exercises()[:begin])
        return next((one for one in ordered if not self.progress[one.slug].right), None)

    @contextmanager
    def _changed(self, one: Exercise) -> Iterator[Progress]:
        """Yield the record of an exercise as it is on the disk now, to change; it is saved when the block ends."""
        with locked(self.path / LOCK, wait=True):
            self.progress = _read(self.path / PROGRESS)
            yield self.progress[one.slug]
            self._save()

    def _save(self) -> None:
        content = {slug: asdict(entry) for slug, entry in self.progress.items()}
        write_atomic(self.path / PROGRESS, json.dumps(content, indent=1) + "\n")


def _read(file: Path) -> dict[str, Progress]:
    """Return the progress in a file: that of all exercises, begun or not.

    Raises:
        LessonError: the file is damaged.
    """
    progress = {one.slug: Progress() for one in exercises()}
    try:
        for slug, values in json.loads(file.read_text(encoding="utf-8")).items():
            if slug in progress:
                progress[slug] = Progress(bool(values["right"]), int(values["attempts"]), int(values["hints"]))
    except FileNotFoundError:
        pass
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise LessonError(
            "{path} is damaged ({error}). Delete it to start the record anew; your files stay as they are.",
            path=file,
            error=error,
        ) from None
    return progress
