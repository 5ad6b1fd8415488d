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

from jumok.lessons.practice.carry import is_open, load
from jumok.lessons.practice.checking import Code, Wrong
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
    try:
        source = path.read_text(encoding="utf-8-sig")
        if not source.strip():
            raise Wrong(EMPTY, mistake="empty-file")
        module = load(path, source)
        check = getattr(importlib.import_module(f"jumok.lessons.practice.checks.{found.part}"), slug)
        for words in check(Code(module)):
            right.append(vars(words))
    except Wrong as wrong:
        return _verdict("wrong", right, wrong.words, wrong.mistake, _line(wrong.__cause__, path))
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
    "cannot assign module before Module.__init__": (
        "no-super-init",
        Words(
            "__init__의 첫 줄에 super().__init__()이 있어야 합니다.",
            "super().__init__() must be the first line of __init__.",
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
    "torch.return_types.": (
        "values-and-indices",
        Words(
            "max, sort, topk에 dim을 주면 값과 위치를 함께 돌려줍니다. 값은 .values이고 위치는 .indices입니다.",
            "With dim, max, sort and topk return both values and places. The values are in .values, the places in "
            ".indices.",
        ),
    ),
    "bitwise_xor": (
        "caret",
        Words("파이썬에서 거듭제곱은 ^가 아니라 **입니다.", "In Python a power is written **, not ^."),
    ),
    "must match the size of tensor": (
        "broadcast",
        Words(
            "모양이 맞지 않는 두 텐서를 더하거나 곱하거나 빼거나 나누었습니다. 뒤의 차원부터 크기가 같거나 1이어야 "
            "합니다. keepdim=True가 빠졌거나, 행렬곱 @ 대신 *를 썼거나, 괄호가 빠졌는지 확인하세요.",
            "Two tensors whose shapes do not fit were added, subtracted, multiplied or divided. From the last "
            "dimension on, the sizes must be equal or 1. Look for a missing keepdim=True, for * instead of the matrix "
            "product @, and for missing brackets.",
        ),
    ),
    "shapes cannot be multiplied": (
        "matrix-product",
        Words(
            "행렬곱 A @ B에서 A의 열 수와 B의 행 수가 같아야 합니다. 순서나 전치를 확인하세요.",
            "In a matrix product A @ B, A needs as many columns as B has rows. Check the order, and what is "
            "transposed.",
        ),
    ),
    "Tensors must have same number of dimensions": (
        "dimensions",
        Words(
            "차원의 수가 다른 텐서를 이어 붙였습니다. squeeze()나 번호 하나로 고르기([:, 0])는 차원을 없앱니다. [:, "
            ":1]은 차원을 남깁니다.",
            "Tensors with different numbers of dimensions cannot be concatenated. squeeze() and an index ([:, 0]) "
            "remove a dimension; [:, :1] keeps it.",
        ),
    ),
    "Sizes of tensors must match except in dimension": (
        "cat-dimension",
        Words(
            "torch.cat은 이어 붙이는 차원 말고는 크기가 모두 같아야 합니다. dim을 확인하세요. 쓰지 않으면 dim=0입니다.",
            "torch.cat needs equal sizes in all dimensions but the one that is concatenated. Check dim; without it, "
            "it is 0.",
        ),
    ),
    "does not require grad and does not have a grad_fn": (
        "no-grad",
        Words(
            "그래디언트를 구할 수 없는 손실에 backward를 불렀습니다. 손실을 torch.no_grad() 안에서 계산했거나 item(), "
            "detach()로 계산 그래프에서 떼어 냈습니다.",
            "backward was called on a loss without a computation graph. The loss was computed inside torch.no_grad(), "
            "or item() or detach() cut it off from the graph.",
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
        return Words(
            f"파이썬이 읽을 수 없는 줄입니다: {error.msg}", f"Python cannot read this line: {error.msg}"
        ), "syntax"
    if isinstance(error, SystemExit):
        return Words("코드가 스스로 끝났습니다: exit()를 지우세요.", "The code ended itself: remove exit()."), "exit"
    return Words(f"실행 중에 오류가 났습니다: {text}", f"The code raised an error: {text}"), None


def _limit_memory() -> None:
    """Limit the address space, where the system can: Linux."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
