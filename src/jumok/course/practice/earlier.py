"""The reader's earlier solutions, for exercises that build on them."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType

from jumok.course.practice.catalogue import Exercise, exercise

USED: dict[str, None] = {}  # the names of the reader's files that `mine` gave, in order
REPLACED: set[str] = set()  # the names of those in whose place it gives jumok's solution


def mine(name: str) -> ModuleType:
    """Return the reader's own file of an earlier exercise, as a module; jumok's solution where that is not written yet.

    The file is looked for next to the file that calls this function.

    Args:
        name: the slug of the exercise, such as "head".
    """
    found = exercise(name)
    if found.file in REPLACED:
        return _solution(found)
    path = Path(sys._getframe(1).f_globals["__file__"]).parent / found.file
    try:
        written = read(path)
    except OSError:
        return _solution(found)
    if is_open(written):
        return _solution(found)
    USED[found.file] = None
    return load(path, written)


def is_open(source: str) -> bool:
    """Return whether a file still has a hole."""
    return "raise NotImplementedError" in source


def read(path: Path) -> str:
    """Return the source of a file in UTF-8, with or without a byte order mark, and with any line ends."""
    return path.read_text(encoding="utf-8-sig")


def load(path: Path, source: str) -> ModuleType:
    """Run the source of a file and return it as a module. Errors in it pass."""
    name = f"_practice_{path.stem}"  # a file typing.py must not take the place of Python's module
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look up their module by its name
    exec(_compiled(source, path), module.__dict__)
    return module


@cache
def _compiled(source: str, path: Path) -> CodeType:
    return compile(source, str(path), "exec", dont_inherit=True)


@cache
def _solution(found: Exercise) -> ModuleType:
    return load(Path(__file__).parent / "exercises" / found.file, found.solution("en"))
