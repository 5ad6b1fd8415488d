"""The process that checks one file:   python -m jumok.lessons.practice.child FILE EXERCISE RESULT SECONDS

It writes its verdict to RESULT as JSON: {"status", "right": [words], "wrong": words, "mistake", "line"}. Words are
{"ko", "en"}. RESULT.where gets the stack if SECONDS pass.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from jumok.lessons.practice.carry import USED, is_open, load, read
from jumok.lessons.practice.checking import Code, Steps, Wrong
from jumok.lessons.practice.course import Words, exercise
from jumok.lessons.practice.known_errors import explained, line_of, with_earlier_files
from jumok.lessons.practice.ready_made import require_own_code

MEMORY = 4 << 30  # bytes for the reader's code, beyond torch


def main(path: Path, slug: str, result: Path, seconds: float) -> None:
    """Check a file and write the verdict."""
    _limit_memory()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    _checks(slug)  # imported before the time begins
    with result.with_name(result.name + ".where").open("w", encoding="utf-8") as where:
        faulthandler.dump_traceback_later(seconds, exit=True, file=where)
        verdict = judge(path, slug)
        faulthandler.cancel_dump_traceback_later()
    result.write_text(json.dumps(verdict), encoding="utf-8")


def judge(path: Path, slug: str) -> dict[str, Any]:
    """Run a file and its check in this process."""
    right: list[dict[str, str]] = []
    USED.clear()
    try:
        source = _source(path)
        module = load(path, source)
        for words in _checks(slug)(Code(module)):
            right.append(vars(words))
        require_own_code(slug, source)
    except Wrong as wrong:
        words = wrong.words if wrong.mistake else with_earlier_files(wrong.words, wrong.__cause__)
        return _verdict("wrong", right, words, wrong.mistake, line_of(wrong.__cause__, path))
    except NotImplementedError as error:
        if is_open(source):
            return _verdict("open", right, OPEN, None, line_of(error, path))
        return _verdict("wrong", right, *explained(error), line_of(error, path))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and RecursionError, too: the reader's code may raise anything
        return _verdict("wrong", right, *explained(error), line_of(error, path))
    return _verdict("right", right, None, None, None)


def _source(path: Path) -> str:
    try:
        source = read(path)
    except UnicodeDecodeError:
        raise Wrong(NOT_UTF8, mistake="encoding") from None
    if not source.strip():
        raise Wrong(EMPTY, mistake="empty-file", file=path.name)
    return source


def _checks(slug: str) -> Callable[[Code], Steps]:
    """The check of an exercise."""
    module = importlib.import_module(f"jumok.lessons.practice.checks.{exercise(slug).part}")
    check: Callable[[Code], Steps] = getattr(module, slug)
    return check


EMPTY = Words(
    "파일이 비어 있습니다. `jumok learn practice --restore {file}`로 다시 받으세요.",
    "The file is empty. Get it back with `jumok learn practice --restore {file}`.",
)
NOT_UTF8 = Words(
    "파일의 인코딩이 UTF-8이 아닙니다. 편집기에서 UTF-8로 저장하세요.",
    "The file is not encoded in UTF-8. Save it as UTF-8 in your editor.",
)
OPEN = Words("아직 채우지 않은 부분이 있습니다.", "A part of the file is not written yet.")


def _verdict(
    status: str, right: list[dict[str, str]], words: Words | None, mistake: str | None, line: int | None
) -> dict[str, Any]:
    wrong = vars(words) if words else None
    return {"status": status, "right": right, "wrong": wrong, "mistake": mistake, "line": line}


def _limit_memory() -> None:
    """Limit the address space, where the system can: Linux."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
