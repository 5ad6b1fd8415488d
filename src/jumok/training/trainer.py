"""Train a model in a run folder, from Python: start or resume a run, and iterate over its events."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from jumok.config import ModelConfig, TrainConfig
from jumok.device import choose_device, keeping_memory
from jumok.errors import JumokError, RunError
from jumok.files import on_disk
from jumok.models import Model
from jumok.runs.events import Event, Notice
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer
from jumok.training.loop import Loop
from jumok.training.parallel import ProcessGroup
from jumok.training.policy import memory_errors
from jumok.training.resume import resume
from jumok.training.run import TrainingRun
from jumok.training.start import Source, join, share, start
from jumok.training.subscribers.event_log import Ending, EventLog
from jumok.training.subscribers.pictures import Pictures


class Trainer:
    """One training run in its folder. Make one with `start` or `resume`, then iterate over `run()`.

    It keeps every other trainer off the folder until `run()` has ended, or until it is closed or garbage-collected; as
    a context manager it closes itself. It prints nothing.

    Attributes:
        folder, task, model, config, device, optimizers: of the run. clock: its steps and its progress.
        validation: its best figures. objective: the model with its loss, as a module.
        notices: messages for the user, which `run` yields first.
        plan: of a run that was just started, or None. result: of a run that had finished before, or None.
        subscribers: functions that are called with each event before it is yielded, in this order. They write the logs,
            draw the pictures, and mark the run as finished.
    """

    def __init__(self, run: TrainingRun) -> None:
        self.loop = Loop(run)
        self.folder, self.task, self.model, self.config, self.device = (
            run.folder, run.task, run.model, run.config, run.device,
        )  # fmt: skip
        self.clock, self.validation = self.loop.clock, self.loop.validation
        self.optimizers, self.notices = run.optimizers, run.history.notices
        self.plan, self.result, self.objective = run.history.plan, run.history.result, run.objective
        self._reports: list[str] = []  # of the subscribers, not yielded yet
        self.subscribers: list[Callable[[Event], None]] = []
        if run.group.rank == 0:
            self.subscribers += [
                EventLog(run.folder),
                Pictures(run.folder, run.task, run.model, self._reports.append),
                Ending(run.folder),
            ]
        self._release = weakref.finalize(self, run.lock.close)  # also when nobody refers to the trainer any more

    @classmethod
    def start(
        cls,
        out: str | os.PathLike[str],
        text: Source,
        model: ModelConfig | str | None = None,
        training: TrainConfig | None = None,
        *,
        size: str | None = None,
        tokenizer: Tokenizer | str | None = None,
        tokenizer_options: Mapping[str, Any] | None = None,
        val_text: Source | None = None,
        init: str | os.PathLike[str] | None = None,
        device: str = "auto",
        began: float | None = None,
        report: Callable[[str], None] = lambda doing: None,
        group: ProcessGroup | None = None,
        make_model: Callable[[ModelConfig], Model] | None = None,
        **settings: Any,
    ) -> Trainer:
        """Begin a run in a new folder.

        Settings are given by name: `steps=500, n_layer=2`. The others are decided by the task and the text: dropout by
        how often the text will be seen, the batch size by the length of the texts, and so on (`jumok.config.resolve`).
        A configuration that is passed instead holds as it is, whatever the task and the text. While this measures, and
        while `run` is under way, a process on a CPU keeps the memory that it frees; see `jumok.device.keeping_memory`.
        torch's random numbers are the caller's own before, after and between events.

        Args:
            out: folder to make. text: what to learn from; a part of it is held out. A string is the text itself, a
                `Path` a file; of a table at a path the task's own columns are read: text and label, or source and
                target. Or a text or a table that `jumok.text` has read.
            model: the shape, without vocab_size, which the tokenizer sets; or the kind of model, such as "bert"; None:
                that of `init`, or the task's default. training: how to train; None: what follows from the rest.
            size: a name in `jumok.config.SIZES`.
            tokenizer: a trained one, or the kind to train on the training part, None: the task's default;
                tokenizer_options: for its training.
            val_text: hold this out instead of a part of `text`; a string or a `Path` as there.
            init: a run folder or a stock folder that gives the initial parameters, the shape and the tokenizer.
            device: "auto", "cpu", "cuda" or "mps". began: `time.monotonic()` at which a time budget begins; None: now.
            report: called with what is being done, in a few words, before anything that may take long.
            group: of `jumok.training.parallel.process_group`, all of whose processes call this; None: this process
                trains alone. On other ranks than 0 only the group and the device count.
            make_model: makes the model of a configuration; None: `jumok.models.build`. With one of your own the run
                cannot be resumed.
            settings: fields of the shape, of `TrainConfig`, and of the task; None: not given.

        Raises:
            ConfigError, TextError, TokenizerError, RunError; TrainingError: too little memory. See their messages.
        """
        group = group or ProcessGroup()
        if group.rank:
            return cls.join(group, device)
        run = start(
            on_disk(out),
            text,
            model,
            training,
            settings,
            size=size,
            tokenizer=tokenizer,
            tokenizer_options=tokenizer_options or {},
            val_text=val_text,
            init=init,
            device=choose_device(device),
            began=time.monotonic() if began is None else began,
            report=report,
            group=group,
            make_model=make_model,
        )
        return cls._shared(run)

    @classmethod
    def resume(
        cls,
        out: str | os.PathLike[str],
        text: Text | Table | None = None,
        *,
        val_text: Text | Table | None = None,
        size: str | None = None,
        device: str = "auto",
        began: float | None = None,
        report: Callable[[str], None] = lambda doing: None,
        group: ProcessGroup | None = None,
        **settings: Any,
    ) -> Trainer:
        """Continue the run in `out` from its last whole state. What is given again must be what it was started with.

        `run` yields the result of a finished run again, and writes nothing. Start a run with `init` to train its model
        further.

        Args:
            size, settings: as they were given to `start`. The others: see `start`.

        Raises:
            ResumeError: the text or a setting differs; the message says which, and both values.
            RunError: there is no run, or it is damaged beyond its states.
            TrainingError: the device has too little memory for the model.
        """
        began = time.monotonic() if began is None else began
        group = group or ProcessGroup()
        if group.rank:
            return cls.join(group, device)
        run, files = resume(on_disk(out), text, settings, size, val_text, choose_device(device), began, report, group)
        return cls._shared(run, files)

    @classmethod
    def join(cls, group: ProcessGroup, device: str = "auto") -> Trainer:
        """Train the run that rank 0 starts or resumes, in another process of the group.

        Raises:
            SharedFault: a process cannot open it. ProcessLost: rank 0 cannot start or resume one.
        """
        return cls(join(group, choose_device(device)))

    @classmethod
    def _shared(cls, run: TrainingRun, files: tuple[Path, ...] = ()) -> Self:
        try:
            share(run, files)
            return cls(run)
        except BaseException:
            run.lock.close()
            raise

    # --- its life -----------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Ask the run to end after the step it is in; it saves its state first. Safe in a signal handler."""
        self.loop.stop = True

    @property
    def step(self) -> int:
        """Optimizer steps taken so far."""
        return self.clock.step

    @property
    def seconds(self) -> float:
        """Return the seconds that the run has taken, all its parts together."""
        return self.clock.seconds

    def close(self) -> None:
        """Unlock the folder; what came after the last save is lost. `run` does this at its end."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self) -> Generator[Event, None, None]:
        """Train to the end, or until `request_stop`. Leaving the iteration, by `break` for example, stops it likewise.

        Raises:
            TrainingError: three steps in a row had no finite loss; the state is saved.
            TrainingError: the device has too little memory; the message says what to make smaller.
            RunError: the disk is full or the folder gone; the last state is intact. Or the trainer is closed.
        """
        try:
            with keeping_memory(self.device), memory_errors(self.model.config, self.config):
                self._require_open()
                events = self.loop.events()
                try:
                    for event in events:
                        self._publish(event)
                        while self._reports:
                            yield Notice(step=event.step, text=self._reports.pop(0))
                        yield event
                        self._require_open()
                except GeneratorExit:
                    self.request_stop()
                    if self._release.alive:
                        for event in events:  # finishes what belongs to this step, and saves; nobody listens any more
                            self._publish(event)
                    raise
                finally:
                    with suppress(JumokError):  # the blocks in it end, which fails for the same reason, if it does
                        events.close()
        finally:
            self.close()

    def _publish(self, event: Event) -> None:
        if self.result is None:  # or the log has it already
            for subscriber in self.subscribers:
                subscriber(event)

    def _require_open(self) -> None:
        if not self._release.alive:
            raise RunError(
                "this Trainer has ended its run in {path}; go on with Trainer.resume.", path=self.folder.path
            )
