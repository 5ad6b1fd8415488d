"""What answers are rewarded for: the checks of the material, a pattern, or a function of the user's own."""

from __future__ import annotations

import hashlib
import math
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jumok.errors import ConfigError, JumokError
from jumok.evaluation.chat import Question
from jumok.evaluation.checks import passes
from jumok.files import sha256_of
from jumok.inference.chat import Answer

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
        return sha256_of(Path(settings))
    except OSError as error:
        raise ConfigError("{--reward {path}}: the file cannot be read ({error}).", path=settings, error=error) from None


def reward_of(settings: str) -> RewardFunction:
    """Return the function that rewards an answer.

    An answer that did not end by itself passes no check and matches no pattern.

    Args:
        settings: "checks", "re:PATTERN", or the path of a Python file, which is run.

    Raises:
        ConfigError: the file cannot be run, or has no function `reward`. TextError: the pattern cannot be used.
    """
    if is_file(settings):
        return _from_file(Path(settings))
    pattern = settings.removeprefix(PATTERN) if settings.startswith(PATTERN) else None
    if pattern is not None:
        passes(pattern, "")  # it may be no pattern

    def reward(question: Question, answer: Answer) -> float:
        return float(answer.finish == "stop" and passes(question.check if pattern is None else pattern, answer.text))

    return reward


def _from_file(path: Path) -> RewardFunction:
    try:
        function = runpy.run_path(str(path)).get("reward")
    except Exception as error:  # whatever the file does
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
            found: Any = function([dict(message) for message in question.before], answer.text)
        except Exception as error:
            raise _refused(path, answer, f"{type(error).__name__}: {error}") from error
        if isinstance(found, bool | int | float) and math.isfinite(found):
            return float(found)
        raise _refused(path, answer, repr(found)[:100])

    return reward


def _refused(path: Path, answer: Answer, found: str) -> JumokError:
    return JumokError(
        "{path}: reward(messages, answer) must return a finite number, and for the answer {answer!r} the result was "
        "{found}. Correct it, and start a new run.",
        path=path,
        answer=answer.text[:100],
        found=found,
    )
