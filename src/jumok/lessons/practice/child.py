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
import traceback
from pathlib import Path
from typing import Any

import torch

from jumok.lessons.practice.carry import USED, is_open, load
from jumok.lessons.practice.checking import NO_SUPER_INIT, NOT_BOOLEAN, Code, Wrong
from jumok.lessons.practice.course import Words, exercise

MEMORY = 4 << 30  # bytes for the reader's code, beyond torch


def main(path: Path, slug: str, result: Path, seconds: float) -> None:
    """Check a file and write the verdict."""
    _limit_memory()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with result.with_name(result.name + ".where").open("w", encoding="utf-8") as where:
        faulthandler.dump_traceback_later(seconds, exit=True, file=where)
        verdict = judge(path, slug)
        faulthandler.cancel_dump_traceback_later()
    result.write_text(json.dumps(verdict), encoding="utf-8")


def judge(path: Path, slug: str) -> dict[str, Any]:
    """Run a file and its check in this process."""
    right: list[dict[str, str]] = []
    found = exercise(slug)
    USED.clear()
    try:
        source = path.read_text(encoding="utf-8-sig")
        if not source.strip():
            raise Wrong(EMPTY, mistake="empty-file")
        module = load(path, source)
        check = getattr(importlib.import_module(f"jumok.lessons.practice.checks.{found.part}"), slug)
        for words in check(Code(module)):
            right.append(vars(words))
    except Wrong as wrong:
        words = wrong.words if wrong.mistake and not wrong.__cause__ else _with_earlier_files(wrong.words)
        return _verdict("wrong", right, words, wrong.mistake, _line(wrong.__cause__, path))
    except NotImplementedError as error:
        if is_open(source):
            return _verdict("open", right, OPEN, None, _line(error, path))
        return _verdict("wrong", right, *_explained(error), _line(error, path))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and RecursionError, too: the reader's code may raise anything
        return _verdict("wrong", right, *_explained(error), _line(error, path))
    return _verdict("right", right, None, None, None)


EMPTY = Words(
    "파일이 비어 있습니다. `jumok learn practice --restore {file}`로 다시 받으세요.",
    "The file is empty. Get it back with `jumok learn practice --restore {file}`.",
)
OPEN = Words("아직 채우지 않은 부분이 있습니다.", "A part of the file is not written yet.")


def _verdict(
    status: str, right: list[dict[str, str]], words: Words | None, mistake: str | None, line: int | None
) -> dict[str, Any]:
    wrong = vars(words) if words else None
    return {"status": status, "right": right, "wrong": wrong, "mistake": mistake, "line": line}


def _line(error: BaseException | None, path: Path) -> int | None:
    """The last line of the reader's file in the traceback of an error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return next((frame.lineno for frame in reversed(frames) if frame.filename == str(path)), None)


PRODUCT = Words(
    "행렬곱 a @ b에서는 a의 마지막 차원과 b의 뒤에서 두 번째 차원의 크기가 같아야 합니다. 두 텐서의 shape를 출력해 "
    "보고, 필요하면 transpose(-2, -1)로 마지막 두 차원을 맞바꾸세요. nn.Linear라면 입력의 마지막 차원이 층의 첫 인자와 "
    "같아야 합니다.",
    "In a product a @ b the last dimension of a and the second last of b must have the same size. Print both shapes. "
    "transpose(-2, -1) exchanges the last two dimensions. For an nn.Linear, the last dimension of the input must equal "
    "the first argument of the layer.",
)

# Part of the message of a RuntimeError or TypeError -> the name of the mistake, and an explanation.
KNOWN: dict[str, tuple[str, Words]] = {
    "view size is not compatible": (
        "not-contiguous",
        Words(
            "transpose는 메모리의 순서를 바꾸지 않으므로 그 뒤에 view를 바로 쓸 수 없습니다. view 앞에 contiguous()를 "
            "쓰거나 reshape를 쓰세요.",
            "transpose does not move anything in memory, so view cannot follow it directly. Call contiguous() before "
            "view, or use reshape.",
        ),
    ),
    "before Module.__init__() call": ("no-super-init", NO_SUPER_INIT),
    "is invalid for input of size": (
        "view-size",
        Words(
            "view나 reshape의 새 모양에 들어가는 수의 개수가 원래와 다릅니다. 새 모양의 모든 차원은 그 텐서 자신의 "
            "것이어야 합니다. x.shape를 출력해 보세요.",
            "The new shape of view or reshape holds another count of numbers. Each dimension of the new shape must "
            "come from that tensor itself. Print x.shape.",
        ),
    ),
    "shapes cannot be multiplied": ("product-shapes", PRODUCT),
    "Expected size for first two dimensions of batch2": ("product-shapes", PRODUCT),
    "only supports boolean masks": ("not-boolean", NOT_BOOLEAN),
    "only implemented on integer and Boolean-type tensors": ("not-boolean", NOT_BOOLEAN),
    "softmax() missing 1 required positional arguments": (
        "no-dim",
        Words(
            "softmax에는 어느 차원의 합이 1이 되어야 하는지 알려 주어야 합니다. 키의 차원은 마지막이므로 dim=-1입니다.",
            "softmax must be told along which dimension the weights sum to one. The keys are the last: dim=-1.",
        ),
    ),
    "must match the size of tensor b": (
        "broadcast-shapes",
        Words(
            "두 텐서의 모양이 맞지 않습니다. 모양은 오른쪽 끝부터 맞추며, 크기가 같거나 한쪽이 1이어야 합니다. @에서는 "
            "마지막 두 차원 앞의 차원이 그렇습니다. 두 텐서의 shape를 출력해 보세요.",
            "The shapes of the two tensors do not fit. They are aligned at the right end, and the sizes must be equal, "
            "or one of them 1. For @ this holds for the dimensions before the last two. Print both shapes.",
        ),
    ),
    "modified by an inplace operation": (
        "in-place",
        Words(
            "기울기를 구할 때 필요한 값을 += 같은 제자리 연산이 덮어썼습니다. x = x + y처럼 새 텐서를 만드세요.",
            "An in-place operation such as += overwrote a value that the gradient needs. Make a new tensor: x = x + y.",
        ),
    ),
    "a leaf Variable that requires grad is being used in an in-place": (
        "in-place",
        Words(
            "학습하는 파라미터를 제자리에서 바꾸었습니다. 파라미터를 고칠 때는 torch.no_grad() 안에서 하세요.",
            "A parameter was changed in place. Change parameters only inside torch.no_grad().",
        ),
    ),
    "NameError: name": (
        "not-defined",
        Words(
            "정의하지 않은 이름을 썼습니다. 철자를 확인하고, 다른 모듈의 것이면 import하세요.",
            "A name is used that is not defined. Check its spelling; import it if it belongs to another module.",
        ),
    ),
    "object has no attribute": (
        "no-attribute",
        Words(
            "객체에 없는 이름을 썼습니다. 철자를 확인하세요. self의 것이면 __init__에서 만들어야 합니다.",
            "An object does not have that name. Check its spelling. What belongs to self must be made in __init__.",
        ),
    ),
    "can't allocate memory": (
        "memory",
        Words(
            "메모리를 너무 많이 씁니다. 텐서의 크기를 확인하세요.",
            "The code needs too much memory. Check the sizes of the tensors.",
        ),
    ),
}


def _explained(error: BaseException) -> tuple[Words, str | None]:
    text = f"{type(error).__name__}: {error}".strip()
    for part, (mistake, words) in KNOWN.items():
        if part in text:
            return Words(f"{words.ko}\n{text}", f"{words.en}\n{text}"), mistake
    if isinstance(error, MemoryError):
        return KNOWN["can't allocate memory"][1], "memory"
    if isinstance(error, SyntaxError):
        where = f"{Path(error.filename or '').name}:{error.lineno}"
        return Words(
            f"파이썬이 읽을 수 없는 줄입니다({where}): {error.msg}",
            f"Python cannot read this line ({where}): {error.msg}",
        ), "syntax"
    if isinstance(error, SystemExit):
        return Words("코드가 스스로 끝났습니다: exit()를 지우세요.", "The code ended itself: remove exit()."), "exit"
    words = Words(f"실행 중에 오류가 났습니다: {text}", f"The code raised an error: {text}")
    return _with_earlier_files(words), None


def _with_earlier_files(words: Words) -> Words:
    """Add which of the reader's other files the code used: the fault may be there."""
    if not USED:
        return words
    files = ", ".join(USED)
    return Words(
        f"{words.ko}\n이 코드는 {files}도 씁니다. 그 파일이 맞는지 먼저 확인하세요.",
        f"{words.en}\nThe code also uses {files}. Check first that this is right.",
    )


def _limit_memory() -> None:
    """Limit the address space, where the system can: Linux."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
