"""What answers are rewarded for: the checks of the material, a pattern, or a function of the user's own."""

from __future__ import annotations

import hashlib
import math
import numbers
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jumok.errors import ConfigError, JumokError
from jumok.evaluation.chat import Question
from jumok.evaluation.checks import passes
from jumok.files import on_disk, sha256_of
from jumok.inference.chat import Answer
from jumok.text.hangul import nfc

CHECKS, PATTERN, FILE = "checks", "re:", ".py"

RewardFunction = Callable[[Question, Answer], float]


def is_file(settings: str) -> bool:
    """Return whether a setting of rewards names a Python file."""
    return settings.endswith(FILE) and not settings.startswith(PATTERN)


def identity_of(settings: str) -> str:
    """Return the SHA-256 of a setting of rewards, or of the Python file that it names.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not is_file(settings):
        return hashlib.sha256(settings.encode()).hexdigest()
    try:
        return sha256_of(on_disk(settings))
    except OSError as error:
        raise ConfigError("{--reward {path}}: the file cannot be read ({error}).", path=settings, error=error) from None


def is_same_file(settings: str, recorded: str) -> bool:
    """Return whether two settings of rewards name Python files of the same name, of which one may be corrected."""
    return is_file(settings) and is_file(recorded) and nfc(Path(settings).name) == nfc(Path(recorded).name)


def reward_of(settings: str) -> RewardFunction:
    """Return the function that rewards an answer.

    An answer that did not end by itself passes no check and matches no pattern, and a file gives it 0 at most: no
    reward is won by talking on and on.

    Args:
        settings: "checks", "re:PATTERN", or the path of a Python file, which is run.

    Raises:
        ConfigError: the file cannot be run, or has no function `reward`. TextError: the pattern cannot be used.
    """
    function = _from_file(on_disk(settings)) if is_file(settings) else _from_pattern(settings)

    def reward(question: Question, answer: Answer) -> float:
        value = function(question, answer)
        return value if answer.finish == "stop" else min(0.0, value)

    return reward


def _from_pattern(settings: str) -> RewardFunction:
    pattern = settings.removeprefix(PATTERN) if settings.startswith(PATTERN) else None
    if pattern is not None:
        passes(pattern, "")  # it may be no pattern
    return lambda question, answer: float(passes(question.check if pattern is None else pattern, answer.text))


def _from_file(path: Path) -> RewardFunction:
    folder = str(path.resolve().parent)
    try:
        with _imports_from(folder):
            function = runpy.run_path(str(path)).get("reward")
    except (Exception, SystemExit) as error:  # whatever the file does
        raise ConfigError(
            "{--reward {path}}: the file cannot be run ({kind}: {error}).",
            path=path,
            kind=type(error).__name__,
            error=error,
        ) from error
    if not callable(function):
        raise ConfigError("{--reward {path}}: the file has no function reward(messages, answer).", path=path)

    def reward(question: Question, answer: Answer) -> float:
        try:
            with _imports_from(folder):
                returned: Any = function([dict(message) for message in question.before], answer.text)
            value = _number(returned)
        except (Exception, SystemExit) as error:
            raise _refused(path, answer, f"{type(error).__name__}: {error}") from error
        if value is None or not math.isfinite(value):
            raise _refused(path, answer, repr(returned)[:100])
        return value

    return reward


@contextmanager
def _imports_from(folder: str) -> Iterator[None]:
    """Let imports inside the block find the modules of a folder first, as a script finds those beside it."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the file may have changed the path, too
            sys.path.remove(folder)


def _number(returned: Any) -> float | None:
    """Return what a reward function returned as a number, also one of NumPy or a tensor of one; None if it is none."""
    value = returned.item() if hasattr(returned, "item") else returned
    return float(value) if isinstance(value, numbers.Real) else None


def _refused(path: Path, answer: Answer, result: str) -> JumokError:
    return JumokError(
        "{path}: reward(messages, answer) must return a finite number, and for the answer {answer!r} the result was "
        "{result}. Correct it. A run that has begun goes on with the corrected file: {--resume}.",
        path=path,
        answer=answer.text[:100],
        result=result,
    )
