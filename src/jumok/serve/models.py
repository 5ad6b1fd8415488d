"""`Models`: the runs of a server by name. They are loaded when they are asked for, and leave when memory is short."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jumok.errors import JumokError, RunError, ServeError
from jumok.inference.requests import Overloaded
from jumok.inference.service import Counts, Service
from jumok.interop.huggingface import is_hf
from jumok.memory import bytes_of, free_memory
from jumok.messages import message
from jumok.models import Model, task_of
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.runs.folder import MODEL_FILES, RunFolder
from jumok.runs.load import load
from jumok.serve.playground.reading import Reading
from jumok.serve.refused import Refused
from jumok.serve.settings import ServeSettings
from jumok.text.hangul import nfc

logger = logging.getLogger("jumok.serve")


class UnknownModel(ServeError):
    """The server has no model of this name."""


class Unavailable(RunError):
    """A model of the server cannot be loaded; the message names files and is for the log, not for clients."""


@dataclass(kw_only=True, eq=False)
class Served:
    """A loaded model.

    Fields:
        name: of its run folder. task: lm, mlm, classify or seq2seq.
        reading: for calls that hook the model.
        created: when its parameters were written, in seconds since 1970.
        service: what writes with the model; None for one that does not write.
        size: bytes of its parameters, twice for one that writes, because the engine arranges them anew.
        leases: requests that use it now.
    """

    name: str
    folder: Path
    model: Model
    reading: Reading
    task: str
    created: int
    service: Service | None
    size: int
    leases: int = 0

    def close(self, *, finish: bool = True) -> None:
        """End the service."""
        if self.service is not None:
            self.service.close(finish=finish)


@dataclass(eq=False)
class _Run:
    """A run folder of the server, loaded or not.

    Fields:
        files: identity, size and time of the files when they were read last.
        wanted: requests that wait until it is loaded. used: when the last request ended.
        added: whether a client asked for it, and may ask to remove it.
    """

    name: str
    folder: Path
    served: Served | None = None
    files: tuple[object, ...] = ()
    wanted: int = 0
    used: float = field(default_factory=time.monotonic)
    added: bool = False


class Models:
    """The models of a server.

    A name is that of the run folder, or that under which a folder was added. The first model is loaded at once, the
    others when a request names them, in a thread. If memory is short, models that no request uses leave, the one first
    whose last use was longest ago. A run whose files changed, because it was trained further, is loaded again; requests
    that use the old parameters go on with them. If the new files cannot be read, the loaded model stays.

    Args:
        prepare: called with each model that writes, after it was loaded.

    Raises:
        RunError: a folder is not a run, or the first model cannot be loaded.
        ServeError: two folders have the same name.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        settings: ServeSettings,
        device: str = "cpu",
        *,
        prepare: Callable[[Model], None] = lambda model: None,
    ) -> None:
        self._runs = _by_name(folders)
        for run in self._runs.values():
            _require_run(run.folder)
        self._settings, self._device, self._prepare = settings, device, prepare
        self._lock = threading.Lock()  # guards the numbers of requests, and which models are loaded
        self._loader = ThreadPoolExecutor(1, "jumok loader")
        if self._runs:
            self._read(next(iter(self._runs.values())))

    def add(self, name: str, folder: Path) -> None:
        """Serve another run, unless there is a model of this name.

        If there are as many as allowed, the one that was added and not used for the longest time leaves.

        Raises:
            Refused: all that were added are in use, or the folder is not a run.
        """
        name = nfc(name)
        with self._lock:
            if name in self._runs:
                return
            added = [run for run in self._runs.values() if run.added]
            idle = [run for run in added if not _is_used(run)]
            full = len(added) >= self._settings.max_added
            if full and not idle:
                raise Refused(
                    message("{most} runs are loaded and in use; try again in a moment."),
                    status=409, code="too_many_models", most=self._settings.max_added,
                )  # fmt: skip
            try:
                _require_run(folder)
            except RunError as error:
                raise Refused(message("{said}"), status=409, code="damaged", said=error) from error
            left = self._runs.pop(min(idle, key=lambda run: run.used).name).served if full else None
            self._runs[name] = _Run(name, folder, added=True)
        if left is not None:
            left.close()

    def remove(self, name: str) -> None:
        """Serve a run that was added no longer; requests that have begun go on.

        Raises:
            UnknownModel: there is no such model. Refused: the server was started with it, or a request uses it.
        """
        with self._lock:
            run = self._run(name)
            if not run.added or _is_used(run):
                raise Refused(
                    message("{name} is in use, or the server was started with it."),
                    status=409,
                    code="in_use",
                    name=name,
                )
            del self._runs[run.name]
            served, run.served = run.served, None
        if served is not None:
            served.close()

    def names(self) -> list[str]:
        """The names of all models, loaded or not."""
        return list(self._runs)

    def created(self, name: str) -> int:
        """When the parameters of a model were written, in seconds since 1970; 0 if they are gone.

        Raises:
            UnknownModel: there is no such model.
        """
        return _written(self._run(name).folder)

    def task(self, name: str) -> str | None:
        """The task of a model; None if it is not loaded.

        Raises:
            UnknownModel: there is no such model.
        """
        served = self._run(name).served
        return None if served is None else served.task

    def counts(self) -> dict[str, Counts]:
        """The counts of the loaded models that write."""
        with self._lock:
            loaded = [run.served for run in self._runs.values() if run.served is not None]
        return {served.name: served.service.counts() for served in loaded if served.service is not None}

    @asynccontextmanager
    async def get(self, name: str) -> AsyncIterator[Served]:
        """A model, which stays loaded inside the block.

        Raises:
            UnknownModel: there is no such model.
            Unavailable: it cannot be loaded.
            Overloaded: there is no memory for it beside the models that are in use.
        """
        with self._lock:  # one that was removed would be loaded, and never closed
            run = self._run(name)
            run.wanted += 1
        try:
            if run.served is None or run.files != _identity(run.folder):
                await asyncio.get_running_loop().run_in_executor(self._loader, self._load, run)
            with self._lock:
                served = run.served
                assert served is not None  # it does not leave while it is wanted
                served.leases += 1
        finally:
            with self._lock:
                run.wanted -= 1
        try:
            yield served
        finally:
            with self._lock:
                served.leases -= 1
                run.used = time.monotonic()
                replaced = served.leases == 0 and served is not run.served
            if replaced:
                self._loader.submit(served.close)

    def close(self, *, finish: bool = True) -> None:
        """End all services; finish: when their texts are written, otherwise at once."""
        self._loader.shutdown(wait=finish, cancel_futures=True)
        for run in self._runs.values():
            with self._lock:
                served, run.served = run.served, None
            if served is not None:
                served.close(finish=finish)

    def _run(self, name: str) -> _Run:
        run = self._runs.get(nfc(name))
        if run is None:
            raise UnknownModel(
                "there is no model {name!r}; the models of this server are: {names}.",
                name=name[:100],
                names=", ".join(self._runs) or "none",
            )
        return run

    def _load(self, run: _Run) -> None:
        """Load a run unless it is loaded and unchanged. In the thread of the loader."""
        files = _identity(run.folder)
        if run.served is not None and run.files == files:
            return
        try:
            self._read(run)
        except Overloaded:
            if run.served is None:
                raise
        except Exception as error:  # whatever a damaged file leads to
            reason = error if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"
            failed = Unavailable("the model {name!r} cannot be loaded: {reason}", name=run.name, reason=reason)
            if run.served is None:
                raise failed from error
            logger.error("%s", failed)
        run.files = files  # also after a failure: it is not tried again with the same files

    def _read(self, run: _Run) -> None:
        files = _identity(run.folder)
        self._make_room(run)
        model = load(run.folder, self._device, verify=self._settings.verify)
        writes = isinstance(model, GPT | EncoderDecoder) and task_of(model) in ("lm", "seq2seq")
        served = Served(
            name=run.name,
            folder=run.folder,
            model=model,
            reading=Reading(model),
            task=task_of(model),
            created=_written(run.folder),
            service=self._service(model) if writes else None,
            size=sum(parameter.nbytes for parameter in model.parameters()) * (2 if writes else 1),
        )
        with self._lock:
            old, run.served, run.files = run.served, served, files
            unused = old is not None and old.leases == 0
        if old is not None and unused:
            old.close()

    def _service(self, model: GPT | EncoderDecoder) -> Service:
        self._prepare(model)
        settings = self._settings
        return Service(model, slots=settings.slots, waiting=settings.waiting, quantize=settings.quantize)

    def _make_room(self, run: _Run) -> None:
        """Let unused models leave until `run` fits beside the others.

        Raises:
            RunError: it does not fit into the memory for models even alone. Overloaded: the others are in use.
        """
        needed = 2 * sum(path.stat().st_size for path in run.folder.glob("*.safetensors"))
        while not self._fits(needed):
            if self._let_leave(run):
                continue
            if any(other.served is not None for other in list(self._runs.values())):
                raise Overloaded(
                    "there is no memory for the model {name!r} beside those in use; try again in a moment.",
                    name=run.name,
                )
            raise RunError(
                "the model {name} takes about {needed} of memory, and {most} are available to models; allow more with "
                "{--memory}, or use a smaller model.",
                name=run.name,
                needed=bytes_of(needed),
                most=bytes_of(self._settings.memory or free_memory(self._device) or 0),
            )

    def _fits(self, needed: int) -> bool:
        if self._settings.memory is None:
            free = free_memory(self._device)
            return free is None or needed <= free
        loaded = sum(run.served.size for run in self._runs.values() if run.served is not None)
        return loaded + needed <= self._settings.memory

    def _let_leave(self, wanted: _Run) -> bool:
        """Let the unused model leave whose last use was longest ago; return whether there was one."""
        with self._lock:
            unused = [
                run
                for run in self._runs.values()
                if run is not wanted and run.served is not None and not run.wanted and not run.served.leases
            ]
            if not unused:
                return False
            run = min(unused, key=lambda run: run.used)
            served, run.served = run.served, None
        assert served is not None
        served.close()
        return True


def _is_used(run: _Run) -> bool:
    """Whether a request uses a model, or waits for it."""
    return bool(run.wanted or (run.served is not None and run.served.leases))


def _by_name(folders: Sequence[Path]) -> dict[str, _Run]:
    """The runs by the names of their folders, in NFC: macOS may separate the letters of a syllable in file names."""
    runs: dict[str, _Run] = {}
    for folder in folders:
        name = nfc(folder.resolve().name)
        if name in runs:
            raise ServeError(
                "{first} and {second} have the same name, and a client chooses a model by its name; rename one of "
                "them, or leave it out.",
                first=runs[name].folder,
                second=folder,
            )
        runs[name] = _Run(name, folder)
    return runs


def _require_run(folder: Path) -> None:
    """Raise RunError unless a folder has the files of a run, or is one of transformers."""
    if is_hf(folder):
        return
    run = RunFolder.open(folder)
    run.model_config()
    run.read_tokenizer()
    if not run.model_file.is_file():
        raise RunError(
            "{path} has no {name}; a run folder needs {names}. Restore it from a copy.",
            path=folder,
            name=run.model_file.name,
            names=", ".join(MODEL_FILES),
        )


def _identity(folder: Path) -> tuple[object, ...]:
    """What changes when a file of a run is replaced; a missing file is None."""
    found: list[object] = []
    for name in MODEL_FILES:
        try:
            status = (folder / name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _written(folder: Path) -> int:
    try:
        return int((folder / "model.safetensors").stat().st_mtime)
    except OSError:
        return 0
