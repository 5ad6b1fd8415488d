"""The files of one run folder, its lock, and what to do when the disk refuses. The layout: see `jumok.runs`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from jumok.config import ModelConfig
from jumok.errors import RunError, TokenizerError
from jumok.files import LockHeld, copy_or_link, locked, space, sync_folder, write_atomic
from jumok.messages import shell, tr
from jumok.models import require_stored
from jumok.models.tensors import load_tensors
from jumok.runs.config import model_config_of, parse_config, require_tokenizer_of
from jumok.runs.logs import Logs
from jumok.runs.state import State, States
from jumok.runs.weights import (
    holds,
    numbers_in,
    replace_by_copy,
    restore_weights,
    second_name,
    size_of,
    weights,
    write_tensors,
)
from jumok.tokenizers import Tokenizer

MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
# What a start that was killed can leave behind, config.json being written last.
UNFINISHED_START = re.compile(
    r"(state|tokenizer\.json|\..+\.tmp)(/((train|val)[\w.-]*\.(ids|npy|jsonl)|lock|\..+\.tmp))?"
)


class RunFolder:
    """One run folder: reads and writes its files, and turns what the system refuses into errors that say what to do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"
        self.model_file = path / "model.safetensors"
        self._logs = Logs(path)
        self._states = States(self.state)

    # --- the folder -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, *, allow_existing_run: bool = False) -> RunFolder:
        """Make the folder; refuse one that holds something else.

        Raises:
            RunError: it cannot be made, is not empty and no run, or is a run already.
        """
        run = cls(path)
        run.require_free(allow_existing_run=allow_existing_run)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise run._unusable(error) from None
        return run

    def require_free(self, *, allow_existing_run: bool = False) -> None:
        """Refuse a folder that holds something else. Nothing is made.

        Raises:
            RunError: it is a file, or a folder that is not empty and no run, or a run already.
        """
        path = self.path
        try:
            if path.exists() and not path.is_dir():
                raise RunError(
                    "{path} is a file; give a folder for the run, for example {--out {path}-run}.", path=path
                )
            if path.is_dir() and any(path.iterdir()) and not self._is_unfinished_start():
                if not self._is_run():
                    raise RunError(
                        "{path} holds other files and no jumok run; choose a new folder, or an empty one.", path=path
                    )
                if not allow_existing_run:
                    raise RunError(
                        "{path} holds a run already. Continue it with `{command}`, or choose another folder; "
                        "delete this one yourself if you no longer want it.",
                        path=path,
                        command=shell("jumok", "train", "--resume", "--out", path),
                    )
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> RunError:
        return RunError("cannot use {path} for the run: {reason}.", path=self.path, reason=error.strerror or error)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder.

        Raises:
            RunError: there is none; close names are suggested.
        """
        if not path.is_dir():
            raise RunError("there is no run folder {path}.{hint}", path=path, hint=_other_runs(path))
        run = cls(path)
        run.read_config()
        return run

    def discard(self) -> None:
        """Remove what `create` and a failed start have made; anything else in the folder stays."""
        shutil.rmtree(self.state, ignore_errors=True)
        with suppress(OSError):
            for name in MODEL_FILES:
                (self.path / name).unlink(missing_ok=True)
            self.path.rmdir()  # only if it is empty now

    def is_trained(self) -> bool:
        """Whether a training run was begun here, rather than a model saved."""
        return self._is_run() and "train" in self.read_config()

    def _is_run(self) -> bool:
        try:
            self.read_config()
        except RunError:
            return False
        return True

    def _is_unfinished_start(self) -> bool:
        inside = (entry.relative_to(self.path).as_posix() for entry in self.path.rglob("*"))
        return self.state.is_dir() and all(UNFINISHED_START.fullmatch(name) for name in inside)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder, against other processes and in this one; the logs are closed at its end.

        Temporary files that a killed process left are removed first.

        Raises:
            RunError: another process, or another part of this one, holds it.
        """
        with ExitStack() as held:
            with self.writing(tr("the lock")):
                self.state.mkdir(exist_ok=True)
                try:
                    held.enter_context(locked(self.state / "lock"))
                except LockHeld:
                    raise RunError(
                        "another process or another Trainer is writing to {path}; wait for it, close the Trainer, or "
                        "choose another {--out}.",
                        path=self.path,
                    ) from None
                for folder in (self.path, self.state):
                    for leftover in folder.glob(".*.tmp"):
                        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
            held.callback(self._logs.close)
            yield

    # --- the model --------------------------------------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """config.json as plain values.

        Raises:
            RunError: it is missing, damaged, or of a newer format.
        """
        return parse_config(self._require("config.json"))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json."""
        with self.writing("config.json"):
            write_atomic(self.path / "config.json", json.dumps(config, ensure_ascii=False, indent=2) + "\n")

    def model_config(self) -> ModelConfig:
        """The model's shape.

        Raises:
            RunError: config.json does not describe a model, or one that is far larger than the weights beside it.
        """
        config = model_config_of(self.read_config(), self.path)
        with suppress(SafetensorError, OSError):  # no weights yet, or damaged ones, which `read_weights` reports
            require_stored(config, numbers_in(self.model_file), str(self.path))
        return config

    def read_tokenizer(self) -> Tokenizer:
        """The tokenizer.

        Raises:
            RunError: it is missing, damaged, or not the one that the model was made with.
        """
        path = self._require("tokenizer.json")
        try:
            tokenizer = Tokenizer.load(path)
        except TokenizerError as error:
            raise RunError("{error}", error=error) from error
        require_tokenizer_of(self.read_config(), tokenizer, path)
        return tokenizer

    def write_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Write tokenizer.json."""
        with self.writing("tokenizer.json"):
            tokenizer.save(self.path / "tokenizer.json")

    def read_weights(self, model: nn.Module) -> None:
        """Load model.safetensors into the model.

        Raises:
            RunError: it is missing, damaged, or has other tensors than the model.
        """
        path = self._require("model.safetensors")
        try:
            tensors = load_tensors(path)
        except (SafetensorError, OSError) as error:
            raise RunError(
                "{path} is damaged ({error}). If the run still has its state/ folder, `{command}` writes it anew; "
                "otherwise restore it from a copy.",
                path=path,
                error=error,
                command=shell("jumok", "train", "--resume", "--out", self.path),
            ) from None
        restore_weights(model, tensors, where=str(path))

    def write_weights(self, model: nn.Module) -> None:
        """Write model.safetensors."""
        tensors = weights(model)
        with self.writing("model.safetensors", needed=size_of(tensors)):
            write_tensors(self.model_file, tensors)

    def has_weights_of(self, state: State) -> bool:
        """Whether model.safetensors is what it was when `state` was written.

        It is not when better weights were found after that and the run was killed, or when it was damaged.
        """
        return state.best is None or holds(self.model_file, state.best[1])

    def put_back_weights(self, state: State) -> bool:
        """Make model.safetensors what it was when `state` was written; return False if the state's copy is damaged."""
        if state.best is None or not holds(*state.best):
            return False
        copy, _ = state.best
        with self.writing("model.safetensors", needed=copy.stat().st_size):
            replace_by_copy(self.model_file, copy)
        return True

    def keep_weights(self) -> Path | None:
        """Give model.safetensors a second name before a run that begins anew replaces it; None where there is none."""
        if not self.model_file.is_file():
            return None
        kept = second_name(self.model_file)
        with self.writing(kept.name, needed=self.model_file.stat().st_size):
            if not kept.exists():
                copy_or_link(self.model_file, kept)
            sync_folder(self.path)
        return kept

    def _require(self, name: str) -> Path:
        path = self.path / name
        if not path.is_file():
            facts = {"path": self.path, "name": name, "names": ", ".join(MODEL_FILES)}
            if name == "config.json":
                raise RunError(
                    "{path} has no {name}; a run folder needs {names}. Is it the folder that {--out} named?", **facts
                )
            raise RunError("{path} has no {name}; a run folder needs {names}. Restore it from a copy.", **facts)
        return path

    # --- training states --------------------------------------------------------------------------------------------

    def write_state(self, state: State) -> None:
        """Add a training state. Once it is in place, drop those known to be damaged, and all but the newest two steps.

        Raises:
            RunError: it cannot be written, the disk being full for example; the states before it are untouched.
        """
        with self.writing(tr("the training state"), needed=size_of(state.tensors)):
            self._logs.sync()  # the state holds their sizes
            self._states.write(state, best=self.model_file)
        self._states.prune()

    def read_state(self) -> tuple[State | None, list[str]]:
        """The newest training state that is not damaged, and a sentence for each damaged one that was skipped."""
        return self._states.newest()

    # --- logs -------------------------------------------------------------------------------------------------------

    def append(self, name: str, text: str) -> None:
        """Add text to the end of a log, only inside `lock`."""
        with self.writing(name):
            self._logs.append(name, text)

    def size(self, name: str) -> int:
        """Bytes in a log, 0 where there is none."""
        return self._logs.size(name)

    def truncate(self, name: str, size: int) -> bool:
        """Cut a log back to its size at the time of a state; return False if its end had been lost."""
        with self.writing(name):
            return self._logs.truncate(name, size)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The events so far, without lines that are none: cut off by a kill, or destroyed by a power cut."""
        return [event for event in self._logs.events() if event is not None]

    def has_damaged_metrics(self) -> bool:
        """Whether `read_metrics` leaves out anything but a last line that was cut off."""
        return None in self._logs.events()

    @contextmanager
    def writing(self, what: str, needed: int = 0) -> Iterator[None]:
        """Turn what the system refuses inside the block into a RunError that says what to do.

        needed: how many bytes it takes, where that is known.
        """
        try:
            yield
        except (OSError, SafetensorError) as error:
            facts = {
                "what": what,
                "path": self.path,
                "reason": getattr(error, "strerror", None) or error,
                "space": space(self.path, needed),
            }
            if (self.path / "config.json").is_file():
                raise RunError(
                    "cannot write {what} in {path}: {reason} ({space}). What was saved before is untouched; make room "
                    "or repair the folder, then continue with `{command}`.",
                    **facts,
                    command=shell("jumok", "train", "--resume", "--out", self.path),
                ) from error
            raise RunError(
                "cannot write {what} in {path}: {reason} ({space}). Make room or repair the folder, then start again.",
                **facts,
            ) from error


def _other_runs(path: Path) -> str:
    runs = sorted(p.parent for p in path.parent.glob("*/config.json")) if path.parent.is_dir() else []
    return tr(" There is: {runs}.", runs=", ".join(map(str, runs[:5]))) if runs else ""
