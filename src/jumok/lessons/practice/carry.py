"""The reader's earlier solutions, for exercises that build on them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from jumok.lessons.practice.course import Exercise, exercise

USED: dict[str, None] = {}  # the names of the reader's files that `mine` gave, in order


def mine(name: str) -> ModuleType:
    """The reader's own file of an earlier exercise, as a module; jumok's solution where that is not written yet.

    The file is looked for next to the file that calls this function.

    Args:
        name: the slug of the exercise, such as "head".
    """
    found = exercise(name)
    path = Path(sys._getframe(1).f_globals["__file__"]).parent / found.file
    try:
        written = path.read_text(encoding="utf-8-sig")
    except OSError:
        return _solution(found)
    if is_open(written):
        return _solution(found)
    USED[found.file] = None
    return load(path, written)


def is_open(source: str) -> bool:
    """Whether a file still has a hole."""
    return "raise NotImplementedError" in source


def load(path: Path, source: str | None = None) -> ModuleType:
    """Run a file and return it as a module. Errors in it pass."""
    source = path.read_text(encoding="utf-8-sig") if source is None else source
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module  # classes look up their module by its name
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


@cache
def _solution(found: Exercise) -> ModuleType:
    return load(Path(__file__).parent / "exercises" / found.file, found.solution)
