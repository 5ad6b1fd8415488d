"""The process that checks one file:   python -m jumok.course.practice.child FILE EXERCISE RESULT SECONDS

It writes its verdict to RESULT as JSON: {"status", "right": [words], "faults": [{"words", "mistake", "line"}]}. Words
are {"ko", "en"}. RESULT.where gets the stack if SECONDS pass.
"""

from __future__ import annotations

import ast
import contextlib
import faulthandler
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.checking import Check, Checks, Code, Wrong, alike, texts
from jumok.course.practice.earlier import REPLACED, USED, is_open, load, read
from jumok.course.practice.known_errors import explained, line_of
from jumok.course.words import Words, words_in

NOT_WRITTEN = "not-written"
LOOK = Path(__file__).parent / "look.toml"
EXCLUDED: Mapping[str, frozenset[str]] = {  # exercise -> the names that its task excludes
    "softmax": frozenset({"softmax", "log_softmax", "Softmax"}),
    "layer_norm": frozenset({"LayerNorm", "layer_norm", "native_layer_norm"}),
    "dropout": frozenset({"Dropout", "dropout", "native_dropout"}),
    "embedding": frozenset({"Embedding", "embedding", "one_hot"}),
    "cross_entropy": frozenset({"cross_entropy", "CrossEntropyLoss", "log_softmax", "LogSoftmax", "logsumexp"}),
    "adamw": frozenset({"optim", "AdamW", "Adam"}),
    "muon": frozenset({"svd"}),
}
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
    """Run a file and its checks in this process.

    Where a check fails and the file uses earlier files of the reader, the checks run again with jumok's solutions in
    their place. So an earlier file is blamed only if this one is right with them.
    """
    first = _judged(path, slug)
    used = set(USED)
    if first["status"] != "wrong" or not used:
        return first
    alone = _judged(path, slug, replaced=used)
    if alone["status"] != "right":
        return alone
    # One wrong file: also those that use it help if they are replaced, and they come later.
    at_fault = [file for file in sorted(used) if _judged(path, slug, replaced={file})["status"] == "right"][:1]
    if not at_fault:  # several
        at_fault = [file for file in sorted(used) if _judged(path, slug, replaced=used - {file})["status"] != "right"]
    files = at_fault or sorted(used)  # or several of them together
    values = {"files": ", ".join(files), "commands": ", ".join(f"`jumok learn check {file}`" for file in files)}
    words = Wrong("earlier-file", **values).words
    known = [fault for fault in first["faults"] if fault["mistake"] not in (None, "earlier-exercise")]
    return {**first, "faults": [_fault(words, "earlier-file", None), *known]}


def _judged(path: Path, slug: str, *, replaced: Set[str] = frozenset()) -> dict[str, Any]:
    """Run a file and its checks. replaced: the earlier files of the reader in whose place jumok's solutions stand."""
    right: list[dict[str, str]] = []
    faults: list[dict[str, Any]] = []
    USED.clear()
    REPLACED.clear()
    REPLACED.update(replaced)
    with _noted(faults, path):
        source = _source(path)
        module = load(path, source)
    look = words_in(LOOK, "look")[slug]
    for name, check in {} if faults else _checks(slug).items():
        if faults and not name:
            break
        with _noted(faults, path, name, look):
            steps, error = _run(check, lambda: module)
            right += [vars(words) for words in steps]
            if error is not None:
                raise _recognised(path, slug, check, steps, error) or error
    if not faults:
        with _noted(faults, path):
            _require_own_code(slug, source)
    is_left = bool(faults) and all(fault["mistake"] == NOT_WRITTEN for fault in faults)
    return {"status": "open" if is_left else "wrong" if faults else "right", "right": right, "faults": faults}


def _run(
    check: Check, load_code: Callable[[], ModuleType], most: float = math.inf
) -> tuple[list[Words], BaseException | None]:
    """Return what a check says about a file, and what ended it. most: what is said before it is stopped."""
    steps: list[Words] = []
    torch.default_generator.manual_seed(0)
    try:
        for words in check(Code(load_code())):
            if len(steps) == most:
                break
            steps.append(words)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and RecursionError, too: the reader's code may raise anything
        return steps, error
    return steps, None


def _recognised(path: Path, slug: str, check: Check, steps: list[Words], error: BaseException) -> Wrong | None:
    """Return the known mistake with which the check of our solution ends in the same way at the same place."""
    if (isinstance(error, Wrong) and error.mistake) or not isinstance(error, Exception):
        return None
    used = dict(USED)
    values = error.values if isinstance(error, Wrong) else {}
    try:
        for key, source in exercise(slug).mistaken():
            if key not in texts("mistake"):  # an error that is explained by its message
                continue
            said, other = _run(check, lambda source=source: load(path, source), len(steps))  # type: ignore[misc]
            if other is not None and len(said) == len(steps) and alike(error, other):
                found = Wrong(key, **values)
                found.__cause__ = error
                with contextlib.suppress(KeyError):  # a text that tells more than this place of the check knows
                    assert found.words
                    return found
        return None
    finally:
        USED.clear()
        USED.update(used)


@contextlib.contextmanager
def _noted(faults: list[dict[str, Any]], path: Path, function: str = "", look: Words | None = None) -> Iterator[None]:
    """Add what goes wrong in the block to the faults.

    function: of the file; its name then stands before the words. look: said where values are wrong in no known way.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and RecursionError, too: the reader's code may raise anything
        reason: BaseException | None = error
        if isinstance(error, Wrong):
            words, mistake, reason = error.words, error.mistake, error.__cause__
            if look is not None and error.is_value:
                words = Words(f"{words.ko} {look.ko}", f"{words.en} {look.en}")
        elif isinstance(error, NotImplementedError) and is_open(read(path)):
            words, mistake = Wrong(NOT_WRITTEN).words, NOT_WRITTEN
        else:
            words, mistake = explained(error)
            if look is not None and mistake is None and line_of(error, path) is None:  # in the check, of such a result
                words = Words(f"{words.ko} {look.ko}", f"{words.en} {look.en}")
        if function:
            words = Words(f"{function}: {words.ko}", f"{function}: {words.en}")
        faults.append(_fault(words, mistake, line_of(reason, path)))


def _fault(words: Words, mistake: str | None, line: int | None) -> dict[str, Any]:
    return {"words": vars(words), "mistake": mistake, "line": line}


def _source(path: Path) -> str:
    try:
        source = read(path)
    except UnicodeDecodeError:
        raise Wrong("encoding") from None
    if not source.strip():
        raise Wrong("empty-file", file=path.name)
    return source


def _checks(slug: str) -> Checks:
    """The checks of an exercise by the functions of its file; "" for the only one, and for all functions together."""
    module = importlib.import_module(f"jumok.course.practice.checks.{exercise(slug).part}")
    found = getattr(module, slug)
    return found if isinstance(found, Mapping) else {"": found}


def _require_own_code(slug: str, source: str) -> None:
    """Check that a file uses none of the ready-made functions that its exercise excludes: in the source, not run.

    Raises:
        Wrong: it uses one.
    """
    for name, line in _used(ast.parse(source)):
        if name in EXCLUDED.get(slug, ()):
            raise Wrong("ready-made", name=name, line=line)


def _used(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that a file takes from modules and tensors, with their lines. What it defines itself is not among them.

    `F.softmax`, `scores.softmax` and `from torch import softmax` count; `softmax` and `self.dropout` alone do not.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.name, node.lineno
            yield from ((part, node.lineno) for part in (node.module or "").split("."))


def _limit_memory() -> None:
    """Limit the address space, where the system can: Linux."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), float(sys.argv[4]))
