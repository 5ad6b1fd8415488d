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
from types import ModuleType
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


def reward_of(settings: str) -> tuple[RewardFunction, dict[str, str]]:
    """Return the function that rewards an answer, and the SHA-256 of each module beside its file that it imports.

    An answer that did not end by itself passes no check and matches no pattern, and a file gives it 0 at most: no
    reward is won by talking on and on.

    Args:
        settings: "checks", "re:PATTERN", or the path of a Python file, which is run.

    Raises:
        ConfigError: the file cannot be run, or has no function `reward`. TextError: the pattern cannot be used.
    """
    function, modules = _from_file(on_disk(settings)) if is_file(settings) else (_from_pattern(settings), {})

    def reward(question: Question, answer: Answer) -> float:
        value = function(question, answer)
        return value if answer.finish == "stop" else min(0.0, value)

    return reward, modules


def _from_pattern(settings: str) -> RewardFunction:
    pattern = settings.removeprefix(PATTERN) if settings.startswith(PATTERN) else None
    if pattern is not None:
        passes(pattern, "")  # it may be no pattern
    return lambda question, answer: float(passes(question.check if pattern is None else pattern, answer.text))


def _from_file(path: Path) -> tuple[RewardFunction, dict[str, str]]:
    beside = _ModulesBeside(path)
    try:
        with beside.imported():
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
            with beside.imported():
                returned: Any = function([dict(message) for message in question.before], answer.text)
            value = _number(returned)
        except (Exception, SystemExit) as error:
            raise _refused(path, answer, f"{type(error).__name__}: {error}") from error
        if value is None or not math.isfinite(value):
            raise _refused(path, answer, repr(returned)[:100])
        return value

    return reward, beside.identities()


class _ModulesBeside:
    """The modules in the folder of a reward file, which only the file can import, as a script does.

    Another reward file may have a module of the same name beside it, and a corrected module is read anew.
    """

    def __init__(self, path: Path) -> None:
        self._folder = path.resolve().parent
        self._modules: dict[str, ModuleType] = {}

    @contextmanager
    def imported(self) -> Iterator[None]:
        """Let imports inside the block find the modules; afterwards `sys.path` and `sys.modules` are without them."""
        before = {**sys.modules}
        sys.path.insert(0, folder := str(self._folder))
        sys.modules.update(self._modules)
        try:
            yield
        finally:
            with suppress(ValueError):  # the file may have changed the path, too
                sys.path.remove(folder)
            new = {name for name in {*sys.modules} - {*before} if self._holds(name)}
            self._modules |= {name: sys.modules[name] for name in new}
            for name in self._modules:
                sys.modules.pop(name, None)  # the file may have removed it
            sys.modules.update({name: before[name] for name in self._modules.keys() & before})

    def identities(self) -> dict[str, str]:
        """Return the SHA-256 of the modules that were imported, by name."""
        files = {name: getattr(module, "__file__", None) for name, module in sorted(self._modules.items())}
        return {name: sha256_of(Path(file)) for name, file in files.items() if file is not None}

    def _holds(self, name: str) -> bool:
        """Return True if a module, or the package that it belongs to, stands in the folder itself."""
        file = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
        if file is None:
            return False
        path = Path(file).resolve()
        return self._folder in (path.parent, path.parent.parent if path.stem == "__init__" else None)


def _number(returned: Any) -> float | None:
    """Return what a reward function returned as a number, also one of NumPy or a tensor of one; None if it is none."""
    value = returned.item() if hasattr(returned, "item") else returned
    return float(value) if isinstance(value, numbers.Real) else None


def _refused(path: Path, answer: Answer, found: str) -> JumokError:
    return JumokError(
        "{path}: reward(messages, answer) must return a finite number, and for the answer {answer!r} the result was "
        "{found}. Correct it. A run that has begun goes on with the corrected file: {--resume}.",
        path=path,
        answer=answer.text[:100],
        found=found,
    )
