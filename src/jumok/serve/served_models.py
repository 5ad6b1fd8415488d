"""`ServedModels`: the models of a server by name, loaded when they are first used, and evicted when memory is short."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from jumok.config import count_constants, count_parameters
from jumok.config.features import task_of
from jumok.errors import JumokError, RunError, ServeError
from jumok.inference.engine import packed_bytes
from jumok.inference.requests import Overloaded
from jumok.inference.service import Counts, Service
from jumok.interop.huggingface import is_hf
from jumok.interop.huggingface.folder import SUFFIXES
from jumok.memory import bytes_of, free_memory
from jumok.messages import tr
from jumok.models import Model
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.runs.folder import MODEL_FILES, RunFolder
from jumok.runs.integrity import read_verified
from jumok.runs.load import load, stored_shape
from jumok.serve.run_folders import RunFolders, has_parameters
from jumok.serve.settings import ServeSettings
from jumok.text.hangul import nfc

RETRY_SECONDS = 60.0  # after which files that could not be loaded are tried again: a network folder may have failed

LOGS = ("metrics.jsonl", "samples.txt", "loss.png")  # of a run folder; they grow while it is trained

logger = logging.getLogger("jumok.serve")


class UnknownModel(ServeError):
    """The server has no model of this name."""


class Unavailable(RunError):
    """A model of the server cannot be loaded; the message names files and is for the log, not for clients."""


@dataclass(kw_only=True, eq=False)
class ServedModel:
    """A loaded model.

    Fields:
        name: of its run folder. task: lm, mlm, classify or seq2seq.
        service: what writes with the model; None for one that does not write.
        size: bytes of its parameters, also of those that the engine of one that writes arranges anew.
        leases: requests that use it now.
    """

    name: str
    model: Model
    task: str
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
        loaded_files: identity, size and time of the files that are loaded. failed_files: of those that could not be,
            because memory was short or they are damaged. retry_at: when these are tried again (`time.monotonic`).
        wanted: requests that wait until it is loaded. used: when the last request ended.
    """

    name: str
    folder: Path
    served: ServedModel | None = None
    loaded_files: tuple[object, ...] = ()
    failed_files: tuple[object, ...] | None = None
    retry_at: float = 0.0
    wanted: int = 0
    used: float = field(default_factory=time.monotonic)

    def identity(self) -> tuple[object, ...]:
        """Return what changes when a file of the model is replaced; of what a training only appends to, nothing."""
        found: list[object] = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.name not in LOGS and entry.is_file():
                    status = entry.stat()
                    found.append((entry.name, status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(found)

    def is_due(self) -> bool:
        """Return True if it must be loaded: for the first time, or because its files changed."""
        if self.served is None:
            return True
        files = self.identity()
        return files != self.loaded_files and (files != self.failed_files or time.monotonic() >= self.retry_at)


class ServedModels:
    """The models of a server.

    The first model that was named is loaded at once, the others when a request names them, in a thread. If memory is
    short, idle models are evicted, least recently used first. A run whose files changed, because it was trained
    further, is loaded again; requests that use the old parameters go on with them. If the new files cannot be read, the
    loaded model stays. So it does if memory is short while a request uses it; each later request tries again.

    Args:
        folders: the runs; those of its folder of runs can be used once they have parameters.
        prepare: called with each model that writes, after it was loaded.

    Raises:
        RunError: a folder that was named is not a run, or the first model cannot be loaded.
    """

    def __init__(
        self,
        folders: RunFolders,
        settings: ServeSettings,
        device: str = "cpu",
        *,
        prepare: Callable[[Model], None] = lambda model: None,
    ) -> None:
        for folder in folders.named.values():
            _require_run(folder)
        self._folders = folders
        self._runs = {name: _Run(name, folder) for name, folder in folders.named.items()}
        self._settings, self._device, self._prepare = settings, device, prepare
        self._lock = threading.Lock()  # guards the numbers of requests, and which models are loaded
        self._replaced: list[ServedModel] = []  # that requests still use
        self._loader = ThreadPoolExecutor(1, "jumok loader")
        if self._runs:
            self._read(next(iter(self._runs.values())))

    def names(self) -> list[str]:
        """Return the names of all models, loaded or not."""
        found = self._folders.all().items()
        return [name for name, folder in found if name in self._folders.named or has_parameters(folder)]

    def created(self, name: str) -> int:
        """Return when the parameters of a model were written, in seconds since 1970; 0 if they are gone.

        Raises:
            UnknownModel: there is no such model.
        """
        found = [0.0]
        with suppress(OSError):
            found += [path.stat().st_mtime for path in self._run(name).folder.iterdir() if path.suffix in SUFFIXES]
        return int(max(found))

    def task(self, name: str) -> str | None:
        """Return the task of a model, also of one that is not loaded; None if its folder is damaged.

        Raises:
            UnknownModel: there is no such model.
        """
        run = self._run(name)
        served = run.served
        with suppress(JumokError):
            return task_of(stored_shape(run.folder)[0]) if served is None else served.task
        return None

    def counts(self) -> dict[str, Counts]:
        """Return the counts of the loaded models that write."""
        with self._lock:
            loaded = self._loaded()
        return {served.name: served.service.counts() for served in loaded if served.service is not None}

    @asynccontextmanager
    async def get(self, name: str) -> AsyncIterator[ServedModel]:
        """Yield a model, which stays loaded inside the block.

        Raises:
            UnknownModel: there is no such model.
            Unavailable: it cannot be loaded.
            Overloaded: there is no memory for it beside the models that are in use.
        """
        run = self._run(name)
        with self._lock:
            run.wanted += 1
        try:
            while True:
                if run.is_due():
                    await asyncio.get_running_loop().run_in_executor(self._loader, self._load, run)
                with self._lock:
                    served = run.served
                    if served is not None:  # otherwise it was just evicted for its new parameters
                        served.leases += 1
                        break
        finally:
            with self._lock:
                run.wanted -= 1
        try:
            yield served
        finally:
            with self._lock:
                served.leases -= 1
                run.used = time.monotonic()
                replaced = served.leases == 0 and served in self._replaced
                if replaced:
                    self._replaced.remove(served)
            if replaced:
                self._loader.submit(served.close)

    def close(self, *, finish: bool = True) -> None:
        """End all services; finish: when their texts are written, otherwise at once."""
        self._loader.shutdown(wait=finish, cancel_futures=True)
        for run in list(self._runs.values()):
            with self._lock:
                served, run.served = run.served, None
            if served is not None:
                served.close(finish=finish)

    def _run(self, name: str) -> _Run:
        name = nfc(name)
        run = self._runs.get(name)
        if run is not None:
            return run
        folder = self._folders.get(name)
        if folder is None or not has_parameters(folder):
            raise UnknownModel(
                "there is no model {name!r}; the models of this server are: {names}.",
                name=name[:100],
                names=", ".join(self.names()) or "none",
            )
        return self._runs.setdefault(name, _Run(name, folder))

    def _load(self, run: _Run) -> None:
        """Load a run unless it is loaded and unchanged. In the thread of the loader."""
        if not run.is_due():  # another request was faster
            return
        files = run.identity()
        try:
            self._read(run)
        except Overloaded:
            if run.served is None:
                raise
            if files != run.failed_files:
                wait = tr(
                    "the model {name!r} has new parameters, and there is no memory for them beside what is in use; "
                    "requests get the old ones until there is.",
                    name=run.name,
                )
                logger.warning("%s", wait)
            run.failed_files, run.retry_at = files, 0.0  # memory is looked at for each request
        except Exception as error:  # whatever a damaged file leads to
            reason = error if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"
            failed = Unavailable("the model {name!r} cannot be loaded: {reason}", name=run.name, reason=reason)
            if run.served is None:
                raise failed from error
            if files != run.failed_files:
                logger.error("%s", failed)
            run.failed_files, run.retry_at = files, time.monotonic() + RETRY_SECONDS

    def _read(self, run: _Run) -> None:
        files = run.identity()
        size = self._make_room(run)
        model = load(run.folder, self._device)
        service, task, settings = None, task_of(model.config), self._settings
        if isinstance(model, GPT | EncoderDecoder) and task in ("lm", "seq2seq"):
            self._prepare(model)
            service = Service(model, slots=settings.slots, waiting=settings.waiting, quantize=settings.quantize)
        served = ServedModel(
            name=run.name,
            model=model,
            task=task,
            service=service,
            size=size,
        )
        with self._lock:
            old, run.served, run.loaded_files, run.failed_files = run.served, served, files, None
            in_use = old is not None and old.leases > 0
            if old is not None and in_use:
                self._replaced.append(old)
        if old is not None and not in_use:
            old.close()

    def _make_room(self, run: _Run) -> int:
        """Evict idle models until `run` fits beside the others, and return the bytes that it takes.

        Its own old parameters are evicted last, and only if no request uses them and the new ones can be read.

        Raises:
            RunError: it does not fit into the memory for models even alone. Overloaded: the others are in use.
        """
        needed, most = self._size(run), self._settings.memory
        if most is not None and needed > most:
            raise _too_large(run, needed, most)
        while (free := self._free()) is not None and needed > free:
            if self._evict_idle(run) or self._evict_old(run, least=needed - free):
                continue
            if not self._in_memory():
                raise _too_large(run, needed, free)
            raise Overloaded(
                "there is no memory for the model {name!r} beside those in use; try again in a moment.", name=run.name
            )
        return needed

    def _size(self, run: _Run) -> int:
        """Return the bytes that a model takes in memory, from its configuration and the types of its tensors."""
        config, dtype = stored_shape(run.folder)
        own = dtype.itemsize * (count_parameters(config) + count_constants(config))
        return own + packed_bytes(config, dtype, self._device, self._settings.quantize)

    def _free(self) -> int | None:
        """Return the bytes that models may still take; None if that is unknown."""
        if self._settings.memory is None:
            return free_memory(self._device)
        return self._settings.memory - sum(served.size for served in self._in_memory())

    def _loaded(self) -> list[ServedModel]:
        return [run.served for run in list(self._runs.values()) if run.served is not None]

    def _in_memory(self) -> list[ServedModel]:
        with self._lock:
            return [*self._loaded(), *self._replaced]

    def _evict_idle(self, wanted: _Run) -> bool:
        """Evict the idle model that was used least recently; return whether there was one."""
        with self._lock:
            idle = [
                run
                for run in list(self._runs.values())
                if run is not wanted and run.served is not None and not run.wanted and not run.served.leases
            ]
            if not idle:
                return False
            run = min(idle, key=lambda run: run.used)
            served, run.served = run.served, None
        assert served is not None
        served.close()
        return True

    def _evict_old(self, run: _Run, least: int) -> bool:
        """Evict the old parameters of a run if no request uses them; return whether it was done.

        Args:
            least: bytes that must become free, or they stay.

        Raises:
            RunError: the new ones cannot be read, and the old ones stay.
        """
        if run.served is None or run.served.size < least:
            return False
        _require_run(run.folder)
        if not is_hf(run.folder):
            read_verified(run.folder)
        with self._lock:
            if run.served.leases:
                return False
            served, run.served = run.served, None
        served.close()
        return True


def _too_large(run: _Run, needed: int, most: int) -> RunError:
    return RunError(
        "the model {name} takes about {needed} of memory, and {most} are available to models; allow more with "
        "{--memory}, or use a smaller model.",
        name=run.name,
        needed=bytes_of(needed),
        most=bytes_of(most),
    )


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
