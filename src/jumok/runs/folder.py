"""The run folder: one folder is one model.

    RUN/config.json         format version, model, training settings, data, metrics of the best evaluation
    RUN/tokenizer.json      Hugging Face tokenizers format
    RUN/model.safetensors   the best weights so far
    RUN/state/              what `--resume` needs: the ids of the text, and the last two training states
    RUN/metrics.jsonl       one JSON object per event
    RUN/samples.txt         what the model wrote at each validation
    RUN/loss.png            the curves

The first three are the model; the rest may be deleted when a run is over. Each file is written beside its place and
moved into it. A training state is a folder `state/step-N` of tensors, numbers, the best weights so far, and a manifest
with their sha256; it is renamed into place only when it is complete and flushed. If the same step is saved again, the
new name is `step-N.1`, and the older one is removed after that. The state of the step before is kept. Nothing is ever
unpickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any, TypeVar, overload

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from jumok.config import ModelConfig, from_dict, to_dict
from jumok.errors import ConfigError, RunError, TokenizerError
from jumok.files import LockHeld, atomic_folder, atomic_path, copy_or_link, locked, space, sync_folder, write_atomic
from jumok.text.hangul import nfc
from jumok.interop.huggingface.convert import from_hf, is_hf
from jumok.interop.huggingface.tensors import load_tensors
from jumok.messages import shell, tr
from jumok.models import KINDS, Model, build_blank, kind_of, require_stored
from jumok.tokenizers import Tokenizer

FORMAT = 1
MODEL_FILES = ("config.json", "tokenizer.json", "model.safetensors")
STATE_FILES = ("tensors.safetensors", "numbers.json")
BEST_WEIGHTS = "best.safetensors"  # in a state, what model.safetensors was then; absent before there was one
# What a start that was killed can leave behind, config.json being written last.
UNFINISHED_START = re.compile(
    r"(state|tokenizer\.json|\..+\.tmp)(/((train|val)[\w.-]*\.(ids|npy|jsonl)|lock|\..+\.tmp))?"
)


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything a run needs to go on after `step` steps, besides its configuration.

    tensors: weights and optimizer moments by name. numbers: plain JSON values. best: a second name of the
    model.safetensors that belongs to a state that was read, and the sha256 of its content.
    """

    step: int
    tensors: dict[str, Tensor] = field(repr=False)
    numbers: dict[str, Any]
    best: tuple[Path, str] | None = None


M = TypeVar("M", bound=nn.Module)


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a model with its tokenizer as a run folder that `load`, `generate` and `evaluate` take.

    Raises:
        RunError: the model has no tokenizer, or the folder cannot be written or holds something else.
    """
    if model.tokenizer is None:
        raise RunError("this model has no tokenizer; set model.tokenizer before saving it, so that it can read text.")
    run = RunFolder.create(Path(folder), allow_existing_run=True)
    if run.is_trained():
        raise RunError(
            "{folder} holds a training run, which saving would overwrite; choose another folder.", folder=folder
        )
    with run.lock():
        run.write_config(describe_model(model.config, model.tokenizer))
        run.write_tokenizer(model.tokenizer)
        run.write_weights(model)


@overload
def load(path: str | os.PathLike[str], device: str = "cpu") -> Any: ...
@overload
def load(path: str | os.PathLike[str], device: str = "cpu", *, kind: type[M]) -> M: ...
def load(path: str | os.PathLike[str], device: str = "cpu", *, kind: type[nn.Module] = nn.Module) -> Any:
    """The model of a run folder with its best weights, or that of a Hugging Face folder.

    Nothing is printed or logged, and nothing of the process is changed: not torch's random numbers, either.

    Args:
        path: a run folder, or the folder of a stock model that `jumok.config.huggingface` names.
        kind: GPT, BERT or EncoderDecoder, for who needs one of them.

    Returns:
        The model, of its kind, in eval mode, its tokenizer at `.tokenizer`.

    Raises:
        RunError: the folder is neither, or a file of it is missing, damaged, or does not fit the others; or the model
            is of another kind.
        JumokError: the stock model is another one, or has something that jumok has not.
    """
    folder = Path(path)
    model = from_hf(folder) if is_hf(folder) else _load_run(folder)
    if not isinstance(model, kind):
        found, wanted = type(model).__name__, kind.__name__
        raise RunError(
            "{path} holds a model of the kind {found}, and one of the kind {wanted} is needed here.",
            path=path,
            found=found,
            wanted=wanted,
        )
    return model.to(device)


def _load_run(path: Path) -> Model:
    run = RunFolder.open(path)
    model = build_blank(run.model_config())
    model.tokenizer = run.read_tokenizer()
    run.read_weights(model)
    return model.eval()


def unseen_characters(path: str | os.PathLike[str], texts: Sequence[str]) -> list[list[str]]:
    """For each text the characters, in NFC, that no text had which a classifier or an encoder–decoder learned to read.

    Args:
        path: a run folder. Nothing is known of a stock folder, of other models, and of runs from before this was
            recorded; then there are none.

    Raises:
        RunError: there is no such folder.
    """
    folder = Path(path)
    data = {} if is_hf(folder) else RunFolder.open(folder).read_config().get("data", {})
    if "characters" not in data:
        return [[] for _ in texts]
    known = frozenset(data["characters"])
    return [[char for char in dict.fromkeys(nfc(text)) if char not in known] for text in texts]


def describe_model(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """The head of a config.json."""
    # A model may have more ids than its tokenizer: published ones are padded to round numbers.
    ids = {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
    return {"format": FORMAT, "model": {"type": kind_of(config), **to_dict(config)}, "tokenizer": ids}


class RunFolder:
    """Reads and writes the files of one run folder; knows nothing of training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state"
        self._logs: dict[str, IO[str]] = {}  # open while the folder is locked
        self._damaged: set[Path] = set()  # states that `read_state` passed over

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
        """Refuse a place that holds something else; nothing is made yet.

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
        """Take back what `create` and a failed start have made; anything else in the folder stays."""
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
        """Keep any other trainer off the folder, in this process too; clear away what a killed one half wrote.

        Logs are open for as long.

        Raises:
            RunError: another one is at it.
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
            held.callback(self._close_logs)
            yield

    # --- the model --------------------------------------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """config.json as plain values."""
        path = self._require("config.json")
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            newest = config["format"]
            config["model"]["type"], config["tokenizer"]["vocab_size"], config["tokenizer"]["kind"]
        except (ValueError, KeyError, TypeError, OSError):
            raise RunError("{path} is damaged or not written by jumok; restore it from a copy.", path=path) from None
        if newest != FORMAT:
            raise RunError(
                "{path} has format {found}; this jumok reads format {known}. Update jumok.",
                path=path,
                found=newest,
                known=FORMAT,
            )
        return config

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Write config.json."""
        with self.writing("config.json"):
            write_atomic(self.path / "config.json", json.dumps(config, ensure_ascii=False, indent=2) + "\n")

    def model_config(self) -> ModelConfig:
        """The model's shape.

        Raises:
            RunError: config.json does not describe a model, or one that is far larger than the weights beside it.
        """
        fields = self.read_config()["model"]
        kind = fields.pop("type")
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise RunError(
                "{path} holds a model of type {kind!r}; this jumok knows {known}. Update jumok.",
                path=self.path,
                kind=kind,
                known=known,
            )
        try:
            config = from_dict(KINDS[kind], fields)
            config.require_vocabulary()
        except ConfigError as error:
            raise RunError(
                "{path} does not describe a model: {error}", path=self.path / "config.json", error=error
            ) from None
        with suppress(SafetensorError, OSError):  # no weights yet, or damaged ones, which `read_weights` tells
            require_stored(config, _numbers_in(self.path / "model.safetensors"), str(self.path))
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
        made_with = self.read_config()["tokenizer"]
        if tokenizer.fingerprint != made_with["fingerprint"]:
            raise RunError(
                "{path} is of kind {kind!r} with {vocab_size:,} ids, but the model was made with another "
                "tokenizer, of kind {expected_kind!r} with {expected_size:,} ids (their fingerprints "
                "differ); restore the tokenizer of this model.",
                path=path,
                kind=tokenizer.kind,
                vocab_size=tokenizer.vocab_size,
                expected_kind=made_with["kind"],
                expected_size=made_with["vocab_size"],
            )
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
        with (
            self.writing("model.safetensors", needed=_bytes(tensors)),
            atomic_path(self.path / "model.safetensors") as temporary,
        ):
            save_file(tensors, temporary)

    def has_weights_of(self, state: State) -> bool:
        """Whether model.safetensors is what it was when `state` was written.

        It is not when better weights were found after that and the run was killed, or when it was damaged.
        """
        return state.best is None or _digest(self.path / "model.safetensors") == state.best[1]

    def put_back_weights(self, state: State) -> bool:
        """Make model.safetensors what it was when `state` was written, if the copy is whole; tell whether it is."""
        if state.best is None or _digest(state.best[0]) != state.best[1]:
            return False
        copy, path = state.best[0], self.path / "model.safetensors"
        with self.writing("model.safetensors", needed=copy.stat().st_size), atomic_path(path) as temporary:
            shutil.copyfile(copy, temporary)
        return True

    def keep_weights(self) -> Path | None:
        """Give model.safetensors a second name before a run that begins anew replaces it; None where there is none."""
        path = self.path / "model.safetensors"
        if not path.is_file():
            return None
        names = (self.path / f"model-kept-{number}.safetensors" for number in count(1))
        kept = next(name for name in names if not name.exists() or _digest(name) == _digest(path))
        with self.writing(kept.name, needed=path.stat().st_size):
            if not kept.exists():
                copy_or_link(path, kept)
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
        earlier = [again for step, again in map(_place, self._states()) if step == state.step]
        final = self.state / (f"step-{state.step:09d}" + (f".{max(earlier) + 1}" if earlier else ""))  # a new name
        with self.writing(tr("the training state"), needed=_bytes(state.tensors)):
            self._sync_logs()
            with atomic_folder(final) as folder:
                save_file(state.tensors, folder / "tensors.safetensors")
                numbers = json.dumps({"step": state.step, **state.numbers}, ensure_ascii=False)
                (folder / "numbers.json").write_text(numbers, encoding="utf-8")
                if (self.path / "model.safetensors").is_file():
                    copy_or_link(self.path / "model.safetensors", folder / BEST_WEIGHTS)
                manifest = {file.name: _sha256(file) for file in sorted(folder.iterdir())}
                (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        kept: set[int] = set()
        for folder in self._states():
            step, _ = _place(folder)
            if folder in self._damaged or step in kept or len(kept) == 2:
                shutil.rmtree(folder, ignore_errors=True)
            else:
                kept.add(step)

    def read_state(self) -> tuple[State | None, list[str]]:
        """The newest whole training state, and a sentence for each damaged one that was passed over."""
        damaged: list[str] = []
        for folder in self._states():
            try:
                manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
                wrong = [name for name in STATE_FILES if _sha256(folder / name) != manifest[name]]
                if wrong:
                    raise ValueError(tr("{names} changed since it was written", names=", ".join(wrong)))
                numbers = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
                tensors = load_tensors(folder / "tensors.safetensors")
                best = (folder / BEST_WEIGHTS, manifest[BEST_WEIGHTS]) if BEST_WEIGHTS in manifest else None
                return State(step=numbers.pop("step"), tensors=tensors, numbers=numbers, best=best), damaged
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                self._damaged.add(folder)
                damaged.append(tr("{folder} is damaged ({error}) and was skipped.", folder=folder, error=error))
        return None, damaged

    def _states(self) -> list[Path]:
        found = [p for p in self.state.glob("step-*") if p.is_dir() and re.fullmatch(r"step-\d+(\.\d+)?", p.name)]
        return sorted(found, key=_place, reverse=True)  # newest first

    # --- logs -------------------------------------------------------------------------------------------------------

    def append(self, name: str, text: str) -> None:
        """Add text to the end of a log, only inside `lock`; whoever reads the log then finds it there.

        The file stays open, for a run adds a line at each step, unless somebody has removed it meanwhile.
        """
        with self.writing(name):
            file = self._logs.get(name)
            if file is None or os.fstat(file.fileno()).st_nlink == 0:
                if file is not None:
                    file.close()
                file = self._logs[name] = (self.path / name).open(
                    "a", encoding="utf-8", errors="backslashreplace", newline="\n"
                )
            file.write(text)
            file.flush()

    def _close_logs(self) -> None:
        while self._logs:
            _, file = self._logs.popitem()
            with suppress(OSError):  # what could not be written was an error when it was added
                file.close()

    def size(self, name: str) -> int:
        """Bytes in a log, 0 where there is none."""
        path = self.path / name
        return path.stat().st_size if path.exists() else 0

    def truncate(self, name: str, size: int) -> bool:
        """Cut a log back to what it was when a state was written, and tell whether it still had all of that.

        One that has lost its end loses the rest of its last line, too, so that the next one begins a line.
        """
        path = self.path / name
        with self.writing(name):
            content = path.read_bytes() if path.exists() else b""
            end = content.rfind(b"\n", 0, size) + 1
            if len(content) > end:
                os.truncate(path, end)
        return end == size

    def _sync_logs(self) -> None:
        """Flush what was added to the logs to the disk: a state tells how long they are."""
        for file in self._logs.values():
            os.fsync(file.fileno())
        sync_folder(self.path)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The events so far. What is no event is left out: a line that a kill cut off, or a power cut destroyed."""
        return [event for event in self._read_lines() if event is not None]

    def has_damaged_metrics(self) -> bool:
        """Whether `read_metrics` leaves out anything but a last line that was cut off."""
        return None in self._read_lines()

    def _read_lines(self) -> list[dict[str, Any] | None]:
        path = self.path / "metrics.jsonl"
        content = path.read_bytes() if path.exists() else b""
        return [_event(line) for line in content.split(b"\n")[:-1]]  # U+2028 in a sample ends no line here

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


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's tensors by name, a shared one once."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach().contiguous()
    return tensors


def restore_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load tensors by name into a model.

    Raises:
        RunError: some are missing, unknown, or of another shape; all are listed.
    """
    wanted = weights(model)
    faults = [tr("{name} is missing", name=name) for name in wanted if name not in tensors]
    faults += [tr("{name} is unknown", name=name) for name in tensors if name not in wanted]
    faults += [
        tr(
            "{name} is {found}, the model has {expected}",
            name=name,
            found=tuple(tensors[name].shape),
            expected=tuple(tensor.shape),
        )
        for name, tensor in wanted.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if faults:
        raise RunError(
            "{where} does not fit the model of config.json: {faults}.", where=where, faults="; ".join(faults)
        )
    model.load_state_dict(dict(tensors), strict=False)  # not strict: the second name of a shared tensor is absent


def adopt_weights(model: nn.Module, other: nn.Module) -> None:
    """Copy what both models have by the same name and shape; the rest of `model` keeps its first weights.

    So does a classifier of other labels, be they as many: its rows stand for something else.
    """
    wanted = model.state_dict()
    labels = [getattr(one.config, "labels", ()) for one in (model, other)]
    shared = {
        name: tensor
        for name, tensor in other.state_dict().items()
        if name in wanted
        and wanted[name].shape == tensor.shape
        and not (name.startswith("classifier.") and labels[0] != labels[1])
    }
    model.load_state_dict(shared, strict=False)


def _event(line: bytes) -> dict[str, Any] | None:
    """A line of metrics.jsonl; None for what is no event."""
    try:
        event = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _place(state: Path) -> tuple[int, int]:
    """The step of a training state, and how often it had been saved before, out of its name: step-000000123.1."""
    step, _, again = state.name.removeprefix("step-").partition(".")
    return int(step), int(again or 0)


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def _digest(path: Path) -> str | None:
    """The sha256 of a file, None for one that cannot be read."""
    try:
        return _sha256(path)
    except OSError:
        return None


def _numbers_in(path: Path) -> int:
    """How many numbers a file of tensors holds, by its header."""
    with safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118  # no mapping


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _other_runs(path: Path) -> str:
    runs = sorted(p.parent for p in path.parent.glob("*/config.json")) if path.parent.is_dir() else []
    return tr(" There is: {runs}.", runs=", ".join(map(str, runs[:5]))) if runs else ""
