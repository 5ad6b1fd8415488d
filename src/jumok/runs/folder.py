"""`RunFolder`: the files of a run folder, its lock, and errors of the file system. See `jumok.runs` for the layout."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError

from jumok.config import ModelConfig
from jumok.corpora.hub import folder_of, hint, is_name
from jumok.errors import RunError, TokenizerError
from jumok.files import LockHeld, is_locked, locked, make_folder, on_disk, space, sync_folder, write_atomic
from jumok.messages import closest, shell, tr
from jumok.models import require_stored
from jumok.models.tensors import load_tensors
from jumok.runs.checkpoints import Checkpoint, Checkpoints, WriteParts
from jumok.runs.config import (
    model_config_of,
    parse_config,
    require_tokenizer_of,
    write_config,
)
from jumok.runs.integrity import finish_swap, read_verified, replaced_parameters
from jumok.runs.logs import Logs
from jumok.runs.parameters import (
    matches_sha256,
    numbers_in,
    parameters_of,
    restore_parameters,
    size_of,
)
from jumok.tokenizers import ROLES, Tokenizer

if TYPE_CHECKING:
    from torch import nn

T = TypeVar("T")

MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
TOKENIZER_SETTINGS = "tokenizer_config.json"  # roles and chat templates of a published tokenizer
# The files that a start of a run can leave after a kill; config.json is written last. With --init there is a state.
UNFINISHED_START = re.compile(
    r"(state|tokenizer(_config)?\.json|\..+\.tmp|\.tmp\w{6})(/((train|val)[\w.-]*\.(ids|npy|jsonl)|(base|reference)\.safetensors|lock|stop|\..+\.tmp|\.tmp\w{6}))?"
    r"|state/(step-0+(\.\d+)?|\.step-0+-\w+\.tmp/new)(/(tensors\.safetensors|numbers\.json|manifest\.json|\.tmp\w{6}))?"
)


class RunFolder:
    """One run folder. Errors of the file system are raised as RunErrors that name a remedy."""

    def __init__(self, path: Path) -> None:
        self.path = path = on_disk(path)
        self.state = path / "state"
        self.model_file = path / "model.safetensors"
        self.base_file = self.state / "base.safetensors"  # what adapters are trained on
        self.logs = Logs(path)
        self.checkpoints = Checkpoints(self.state)

    # --- the folder -------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, *, allow_existing_run: bool = False) -> RunFolder:
        """Create the folder of a new run.

        Args:
            allow_existing_run: whether the folder may already contain a run.

        Raises:
            RunError: it cannot be created, contains other files, or contains a run.
        """
        run = cls(path)
        run.require_free(allow_existing_run=allow_existing_run)
        try:
            make_folder(run.path)
        except OSError as error:
            raise run._unusable(error) from None
        return run

    def require_free(self, *, allow_existing_run: bool = False) -> None:
        """Check that a new run can be created here; nothing is written.

        Args:
            allow_existing_run: whether the folder may already contain a run.

        Raises:
            RunError: the path is a file, or a folder that contains other files or a run.
        """
        path = self.path
        if is_name(path):
            raise RunError("{path} names a model of huggingface.co; give a folder for the run.", path=path)
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
        return RunError("cannot use {path} for the run: {reason}.", path=self.path, reason=error)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder, or one of the hub by its name.

        Raises:
            RunError: there is none; the message lists run folders in the same place.
        """
        path = folder_of(path)
        if not path.is_dir():
            raise no_run(path)
        run = cls(path)
        run.read_config()
        return run

    def discard(self) -> None:
        """Remove the files of a start that failed; other files in the folder stay."""
        with suppress(OSError):  # before state/, without which a rest would not be taken for an unfinished start
            for name in (*MODEL_FILES, TOKENIZER_SETTINGS):
                (self.path / name).unlink(missing_ok=True)
        shutil.rmtree(self.state, ignore_errors=True)
        with suppress(OSError):
            self.path.rmdir()  # fails if it is not empty

    def is_trained(self) -> bool:
        """Return whether the folder contains a training run, rather than a saved model."""
        return self._is_run() and "train" in self.read_config()

    def _is_run(self) -> bool:
        with suppress(RunError):
            self.read_config()
            return True
        return False

    def _is_unfinished_start(self) -> bool:
        inside = (entry.relative_to(self.path).as_posix() for entry in self.path.rglob("*"))
        return self.state.is_dir() and all(UNFINISHED_START.fullmatch(name) for name in inside)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the folder inside the block; the logs are closed at its end.

        Temporary files of killed processes are removed first.

        Raises:
            RunError: the lock is already held, by another process or in this one.
        """
        with ExitStack() as held:
            with self.writing(tr("the lock")):
                self.state.mkdir(exist_ok=True)
                sync_folder(self.path)  # a start whose state/ a power cut lost would be refused as other files
                try:
                    held.enter_context(locked(self.state / "lock"))
                except LockHeld:
                    raise RunError(
                        "another process or another Trainer is writing to {path}; wait for it, close the Trainer, or "
                        "choose another {--out}.",
                        path=self.path,
                    ) from None
                # safetensors writes to .tmpXXXXXX before it renames the file.
                patterns = (".*.tmp", ".tmp??????")
                found = [
                    path for pattern in patterns for place in (self.path, self.state) for path in place.glob(pattern)
                ]
                for leftover in (stop_file(self.path), *found):
                    shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)
            held.callback(self.logs.close)
            yield

    # --- the model --------------------------------------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """Return the content of config.json.

        Raises:
            RunError: it is missing, damaged, or has a newer format.
        """
        return parse_config(self._require("config.json"))

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json."""
        with self.writing("config.json"):
            write_config(self.path / "config.json", config)

    def model_config(self) -> ModelConfig:
        """Return the configuration of the model.

        Raises:
            RunError: config.json does not describe a model, or one that is far larger than model.safetensors.
        """
        config = model_config_of(self.read_config(), self.path)
        with suppress(SafetensorError, OSError):  # missing or damaged; `read_parameters` reports that
            require_stored(config, numbers_in(self.model_file), str(self.path))
        return config

    def read_tokenizer(self) -> Tokenizer:
        """Return the tokenizer.

        Raises:
            RunError: it is missing, damaged, or not the tokenizer of the model.
        """
        path = self._require("tokenizer.json")
        try:
            tokenizer = Tokenizer.load(path)
            self._read_tokenizer_settings(tokenizer)
        except TokenizerError as error:
            raise RunError("{error}", error=error) from error
        require_tokenizer_of(self.read_config(), tokenizer, path)
        return tokenizer

    def write_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Write tokenizer.json, and the settings of a published tokenizer."""
        with self.writing("tokenizer.json"):
            tokenizer.save(self.path / "tokenizer.json")
            settings, path = tokenizer.settings(), self.path / TOKENIZER_SETTINGS
            if settings:
                write_atomic(path, json.dumps(settings, ensure_ascii=False, indent=2) + "\n")
            else:
                path.unlink(missing_ok=True)

    def _read_tokenizer_settings(self, tokenizer: Tokenizer) -> None:
        path = self.path / TOKENIZER_SETTINGS
        if path.is_file():
            from jumok.config.huggingface import read_json

            settings = read_json(path)
            tokenizer.roles = {role: settings[role] for role in ROLES if isinstance(settings.get(role), str)}
            tokenizer.read_chat_templates(settings.get("chat_template"))

    def read_parameters(self, model: nn.Module, *, verify: bool = True) -> None:
        """Load model.safetensors into the model.

        Raises:
            RunError: as `read_tensors`, or the tensors do not fit the model.
        """
        restore_parameters(model, self.read_tensors(load_tensors, verify=verify), where=str(self.model_file))

    def read_tensors(self, read: Callable[[Path], T], *, verify: bool = True) -> T:
        """Return what a function reads of model.safetensors.

        Args:
            verify: whether the SHA-256 of the file is compared with config.json, which takes a second per gigabyte.

        Raises:
            RunError: it is missing or damaged.
        """
        self._require("model.safetensors")
        return read_verified(self.path, read, verify=verify)

    def write_parameters(self, model: nn.Module) -> None:
        """Write model.safetensors, and its SHA-256 to config.json."""
        from safetensors.torch import save_file

        tensors = parameters_of(model)
        with self.writing("model.safetensors", needed=size_of(tensors)), replaced_parameters(self.path) as temporary:
            save_file(tensors, temporary)

    def finish_swap(self) -> None:
        """Finish the replacement of model.safetensors in which the run was killed; call this only inside `lock`."""
        with self.writing("config.json"):
            finish_swap(self.path)

    def has_parameters_of(self, state: Checkpoint) -> bool:
        """Return whether model.safetensors is unchanged since `state` was written.

        It has changed if it is damaged, or if the run was killed after it saved better parameters.
        """
        return state.best is None or matches_sha256(self.model_file, state.best[1])

    def put_back_parameters(self, state: Checkpoint) -> bool:
        """Restore model.safetensors from the copy in `state`; return False if that copy is missing or damaged."""
        if state.best is None or not matches_sha256(*state.best):
            return False
        copy, _ = state.best
        with (
            self.writing("model.safetensors", needed=copy.stat().st_size),
            replaced_parameters(self.path) as temporary,
        ):
            shutil.copyfile(copy, temporary)
        return True

    def _require(self, name: str) -> Path:
        path = self.path / name
        if not path.is_file():
            if not is_run_like(self.path):
                raise no_run(self.path)
            if self._is_unfinished_start():
                raise RunError(
                    "{path} holds a run that ended before its first step; give the command that started it once more, "
                    "without {--resume}.",
                    path=self.path,
                )
            names = ", ".join(MODEL_FILES)
            raise RunError(
                "{path} has no {name}; a run folder needs {names}. Restore it from a copy.",
                path=self.path,
                name=name,
                names=names,
            )
        return path

    # --- training states --------------------------------------------------------------------------------------------

    def write_checkpoint(self, state: Checkpoint, write_parts: WriteParts | None = None) -> None:
        """Write a training state; then remove damaged states, and those before the last two steps.

        Args:
            write_parts: writes the tensors, together with other processes.

        Raises:
            RunError: it cannot be written, for example because the disk is full; earlier states are unchanged.
        """
        with self.writing(tr("the training state"), needed=size_of(state.tensors)):
            self.logs.sync()  # the state records their sizes
            self.checkpoints.write(state, self.model_file, write_parts)
        self.checkpoints.prune()

    def clear_checkpoints(self) -> None:
        """Remove the training states that an unfinished start left behind; call this only inside `lock`."""
        with self.writing(tr("the training state")):
            self.checkpoints.clear()

    # --- logs -------------------------------------------------------------------------------------------------------

    def append(self, name: str, text: str) -> None:
        """Append text to a log; call this only inside `lock`."""
        with self.writing(name):
            self.logs.append(name, text)

    def truncate(self, name: str, size: int) -> bool:
        """Truncate a log to its size at the time of a state; return False if it is shorter."""
        with self.writing(name):
            return self.logs.truncate(name, size)

    @contextmanager
    def writing(self, what: str, needed: int = 0) -> Iterator[None]:
        """Convert errors of the file system inside the block to a RunError with a remedy.

        `what` names what is written, for the message; `needed` is the number of bytes, 0 if unknown.
        """
        try:
            yield
        except (OSError, SafetensorError) as error:
            facts = {
                "what": what,
                "path": self.path,
                "reason": error,
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


def is_training(folder: Path) -> bool:
    """Return whether a process writes to a run folder now."""
    return is_locked(folder / "state" / "lock")


def stop_file(folder: Path) -> Path:
    """Return the path of the file that stops a training: `jumok train` looks for it, saves its state and ends."""
    return folder / "state" / "stop"


def is_run_like(path: Path) -> bool:
    """Return whether a folder has any of the files of a run, and may be a damaged one."""
    return any((path / name).exists() for name in (*MODEL_FILES, "state"))


def no_run(path: Path) -> RunError:
    """Return the error that there is no run folder at a path, with the runs in it or beside it."""
    if path.is_dir():
        told = _runs_in(path) or tr(" Name the folder that {--out} of `jumok train` named.")
        return RunError(
            "{path} is no run folder; it has none of {names}.{hint}", path=path, names=", ".join(MODEL_FILES), hint=told
        )
    told = _runs_in(path.parent, like=path) or hint(path)
    if path.is_file():
        return RunError("{path} is a file, and a run is a folder with a config.json.{hint}", path=path, hint=told)
    return RunError("there is no run folder {path}.{hint}", path=path, hint=told)


def _runs_in(folder: Path, like: Path | None = None) -> str:
    """Return a sentence that names the runs of a folder, or the one with a name like that of `like`; or ""."""
    runs = sorted(p.parent for p in folder.glob("*/config.json")) if folder.is_dir() else []
    if like is not None and (near := closest(like.name, [run.name for run in runs])):
        return tr(" Did you mean {word!r}?", word=str(folder / near))
    shown = ", ".join(map(str, runs[:5]))
    if len(runs) > 5:
        return tr(" There is: {runs}, and {more} more.", runs=shown, more=len(runs) - 5)
    return tr(" There is: {runs}.", runs=shown) if runs else ""
