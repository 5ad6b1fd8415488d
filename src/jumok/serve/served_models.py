"""`ServedModels`: the models of a server by name, loaded when they are first used, and evicted when memory is short."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from jumok.config import count_parameters
from jumok.config.features import task_of
from jumok.config.huggingface import read_json
from jumok.corpora.hub import is_hf
from jumok.errors import JumokError, RunError, ServeError
from jumok.inference.native.parameters import NativeModel
from jumok.inference.requests import Overloaded
from jumok.inference.service import Counts, Service
from jumok.memory import free_memory
from jumok.models.checks import require_tokenizer
from jumok.models.size_checks import FLOAT32_BYTES
from jumok.models.tensors import SUFFIXES
from jumok.runs.folder import MODEL_FILES, TOKENIZER_SETTINGS, RunFolder
from jumok.runs.load import load, read_shape, stored_shape
from jumok.runs.native import load_to_write
from jumok.serve.run_folders import RunFolders, has_parameters
from jumok.serve.settings import ServeSettings
from jumok.text.hangul import nfc

if TYPE_CHECKING:
    from jumok.models import Model
    from jumok.models.gpt import GPT

RETRY_SECONDS = 60.0  # after which new files that could not be loaded are tried again
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
        leases: requests that use it now.
    """

    name: str
    folder: Path
    model: Model | NativeModel
    task: str
    service: Service | None
    leases: int = 0

    @cached_property
    def _loaded(self) -> Model:
        logger.info("%s is loaded by PyTorch, too, for what the C++ step does not compute", self.name)
        model: Model = load(self.folder)
        return model

    def in_pytorch(self) -> Model:
        """Return the model as one of PyTorch, which is loaded when it is first needed. One thread at a time may ask."""
        return self._loaded if isinstance(self.model, NativeModel) else self.model

    def close(self, *, finish: bool = True) -> None:
        """End the service."""
        if self.service is not None:
            self.service.close(finish=finish)


@dataclass(eq=False)
class _Run:
    """A run folder of the server, loaded or not.

    Fields:
        loaded_files: identity, size and time of the files that are loaded. retry_at: when others are tried again, after
            they could not be loaded (`time.monotonic`). used: when the last request ended.
    """

    name: str
    folder: Path
    served: ServedModel | None = None
    loaded_files: tuple[object, ...] = ()
    retry_at: float = 0.0
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
        return time.monotonic() >= self.retry_at and self.identity() != self.loaded_files


class ServedModels:
    """The models of a server.

    The first model that was named is loaded at once, the others when a request names them, in a thread. If memory is
    short, idle models are evicted, least recently used first. A run whose files changed, because it was trained
    further, is loaded again; requests that use the old parameters go on with them. If the new files cannot be loaded,
    the old parameters stay, and the new ones are tried again a minute later.

    Args:
        folders: the runs; those of its folder of runs can be used once they have parameters.
        prepare: called where the C++ step would compute a model and is not built.

    Raises:
        RunError: a folder that was named is not a run, or the first model cannot be loaded.
    """

    def __init__(
        self,
        folders: RunFolders,
        settings: ServeSettings,
        device: str = "cpu",
        *,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        for folder in folders.named.values():
            _require_run(folder)
        self._folders = folders
        self._runs = {name: _Run(name, folder) for name, folder in folders.named.items()}
        self._settings, self._device, self._prepare = settings, device, prepare
        self._loading = asyncio.Lock()
        for run in list(self._runs.values())[:1]:
            run.loaded_files, run.served = run.identity(), self._read(run)

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
            return task_of(read_shape(run.folder)) if served is None else served.task
        return None

    def has_chat(self, name: str) -> bool:
        """Return whether a model writes and has a chat template, also of one that is not loaded.

        Raises:
            UnknownModel: there is no such model.
        """
        run = self._run(name)
        if self.task(name) != "lm":
            return False
        if run.served is not None:
            return bool(require_tokenizer(run.served.model).chat_templates)
        if (run.folder / "chat_template.jinja").is_file():
            return True
        with suppress(JumokError, OSError):
            return "chat_template" in read_json(run.folder / TOKENIZER_SETTINGS)
        return False

    def counts(self) -> dict[str, Counts]:
        """Return the counts of the loaded models that write."""
        loaded = [run.served for run in list(self._runs.values()) if run.served is not None]
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
        while True:
            if run.is_due():  # what is being loaded is loaded, also if this request is cancelled
                await asyncio.shield(asyncio.ensure_future(self._load(run)))
            if (served := run.served) is not None:  # otherwise another model needed its memory meanwhile
                break
        served.leases += 1
        try:
            yield served
        finally:
            served.leases -= 1
            run.used = time.monotonic()
            self._close_if_replaced(run, served)

    def close(self, *, finish: bool = True) -> None:
        """End all services; finish: when their texts are written, otherwise at once."""
        for run in list(self._runs.values()):
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

    async def _load(self, run: _Run) -> None:
        """Load a run unless it is loaded and unchanged. One is loaded at a time."""
        async with self._loading:
            if not run.is_due():  # another request was faster
                return
            files = run.identity()
            try:
                await self._make_room(run)
                new = await asyncio.to_thread(self._read, run)
            except Exception as error:  # whatever a damaged file leads to
                if isinstance(error, Overloaded) and run.served is None:
                    raise
                reason = error if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"
                failed = Unavailable("the model {name!r} cannot be loaded: {reason}", name=run.name, reason=reason)
                if run.served is None:
                    raise failed from error
                run.retry_at = time.monotonic() + RETRY_SECONDS
                logger.error("%s", failed)
                return
            old, run.served, run.loaded_files = run.served, new, files
        if old is not None:
            self._close_if_replaced(run, old)

    async def _make_room(self, run: _Run) -> None:
        """Evict idle models, least recently used first, until a run fits into the free memory.

        Raises:
            Overloaded: all others are in use.
        """
        needed = 2 * await asyncio.to_thread(_bytes_of, run.folder)  # the second copy is in an engine's own order
        while (free := free_memory(self._device)) is not None and free < needed:
            idle = [one for one in self._runs.values() if one.served is not None and not one.served.leases]
            if not idle:
                raise Overloaded(
                    "there is no memory for the model {name!r} beside those in use; try again in a moment.",
                    name=run.name,
                )
            oldest = min(idle, key=lambda one: one.used)
            served, oldest.served = oldest.served, None
            assert served is not None
            await asyncio.to_thread(served.close)

    def _read(self, run: _Run) -> ServedModel:
        settings, task = self._settings, task_of(read_shape(run.folder))
        writes = task in ("lm", "seq2seq")
        quantize = settings.quantize if writes else None
        model = load_to_write(run.folder, self._device, quantize=quantize, build=self._prepare)
        if not isinstance(model, NativeModel):
            logger.info("%s is computed by PyTorch", run.name)
        service = None
        if writes:
            writer = cast("GPT | NativeModel", model)  # or an EncoderDecoder
            service = Service(writer, slots=settings.slots, waiting=settings.waiting, quantize=quantize)
        return ServedModel(name=run.name, folder=run.folder, model=model, task=task, service=service)

    @staticmethod
    def _close_if_replaced(run: _Run, served: ServedModel) -> None:
        """End the service of parameters that are no longer those of a run, once no request uses them."""
        if run.served is not served and not served.leases:
            asyncio.get_running_loop().run_in_executor(None, served.close)


def _bytes_of(folder: Path) -> int:
    """Return the bytes of the parameters of a model that is loaded."""
    if not is_hf(folder):
        return FLOAT32_BYTES * count_parameters(read_shape(folder))
    config, dtype = stored_shape(folder)
    return dtype.itemsize * count_parameters(config)


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
