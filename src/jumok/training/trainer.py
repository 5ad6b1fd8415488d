"""The training loop: it takes steps, validates, saves, and yields what happened; it prints nothing.

A run by steps is a pure function of its configuration and its text: the initial weights, each batch and each dropout
mask depend on the seed and the step alone. So a run that was killed continues from its last saved state to the same
weights and figures, bit for bit, on the same machine.

A finished run can be trained further, in another stage: a new schedule and fresh optimizers, from the best weights so
far. Steps and batches are counted on.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from jumok import config as configuration
from jumok.config import SIZES, GPTConfig, ModelConfig, TrainConfig
from jumok.device import (
    autocast,
    choose_device,
    describe_machine,
    differences,
    is_out_of_memory,
    keeping_memory,
    own_random,
    seed_random,
)
from jumok.errors import ConfigError, JumokError, ResumeError, RunError, TrainingError
from jumok.messages import tr
from jumok.models import Model, build, kind_name
from jumok.models.checks import require_tokenizer
from jumok.nn.attention import train_attention_by
from jumok.nn.blocks import Block
from jumok.runs.config import describe_model
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.runs.state import State
from jumok.runs.weights import adopt_weights, restore_weights, weights
from jumok.text import Table, Text, material_of
from jumok.tokenizers import Tokenizer
from jumok.training.autotune import Pace
from jumok.training.optim import clip_gradients, make_optimizers, rate, set_rate
from jumok.training.plan import Plan, make_plan, most_tokens, require_possible
from jumok.training.tasks import TASKS, Task
from jumok.view.training_pictures import draw_loss

VALIDATIONS = 12  # in a run, unless eval_every says otherwise
# A token costs a forward pass in validation and about three times that in training, so these shares of the training
# tokens stand for 2% (all validations together) and 1.5% (the last figures) of the training time.
VALIDATION_TOKENS = 0.06
FINAL_TOKENS = 0.045
# A run with a goal (stop_at) glances at a few windows much more often than it validates: at most so many times, and
# for this share of the training tokens. Before it ends it looks closely, at all that is held out if that is not more.
GLANCES = 100
GLANCE_TOKENS = 0.12
CLOSE_LOOK_TOKENS = 1 << 18
PART = 1 / 8  # of those tokens is read first, and all only if the loss is low enough there,
LENIENT = 0.005  # or higher by no more than this share: a part is not the whole
HOPE = 0.05  # how much better than a glance the first close look may be, for a few windows may be hard ones
DOUBT = 0.003  # how much worse than foreseen a later one may be
DRAW_EVERY = 30.0  # seconds between drawings of the loss
COOLDOWN = 0.1  # length of an early stop's decay, as a share of the run so far
SAVE_AT_MOST = 20  # times as long as a save takes lies between two of them, unless save_every is 0
OTHERWISE = 2.0  # times as long or as short as foreseen do steps take before a run counts on it
MUCH_WAITING = 0.2  # of the time that threads could have worked: on an idle machine it is 1% or less
FAILURES = 3  # steps in a row without a finite loss that end a run
ANY_VOCABULARY = 1 << 20  # stands for one that is not known yet


NUMBERS = (
    "progress",
    "best",
    "best_step",
    "best_metrics",
    "worse",
    "cooldown",
    "failures",
    "validated",
    "reached",
    "next_glance",
    "outlook",
    "stage",
    "stage_began",
    "lowest",
    "validation_read",
    "planned_tokens",
    "foreseen",
    "validation_reads",
)  # of a Trainer, kept in its state
# What a new stage may have different: its length, and how its rate moves. All else stays as the run began.
OF_A_STAGE = (
    "steps", "minutes", "passes", "stop_at", "patience", "learning_rate", "matrix_learning_rate", "schedule",
    "final_rate", "warmup", "compile",
)  # fmt: skip
LOGS = ("metrics.jsonl", "samples.txt")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A finished run is trained further.

    number: of the stage, 2 for the first extension. best_step: of the weights that it begins with. steps, minutes: its
    length, one of the two.
    """

    step: int
    number: int
    best_step: int
    steps: int | None
    minutes: float | None


@dataclass(frozen=True, kw_only=True)
class Step:
    """An optimizer step was taken, or skipped because its loss or gradient was not finite.

    loss: of all it read, in nats per token, per text (classify) or per hidden token (mlm). rate: share of the peak
    learning rate. progress: 0..1 of the run, or of its newest stage. seconds, remaining: so far and to come.
    tokens_per_second: a running mean over the last steps or so.
    """

    step: int
    loss: float
    rate: float
    grad_norm: float
    skipped: bool
    progress: float
    seconds: float
    remaining: float
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class Eval:
    """What is held out was looked at. figures: see `Task.validate`. best: no validation before was as good.

    headline: the figures in a few words.
    """

    step: int
    figures: dict[str, float]
    headline: str
    best: bool
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The model wrote something."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Save:
    """The training state after `step` steps is on the disk."""

    step: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something a person should know."""

    step: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The run is over or was interrupted. reason: "done", "early stop", "reached" (what `stop_at` asks for) or
    "interrupted".

    figures: of the best weights, on as much of what is held out as is affordable, and headline: the same in a few
    words; empty with nothing held out. unit: "tokens" or "rows"; figures[unit] is how many of these were read,
    held_out how many there are, and validation_read how many each validation read. more_context: what was read here
    had more context than in a validation.
    """

    step: int
    reason: str
    figures: dict[str, float]
    headline: str
    seconds: float
    unit: str
    held_out: int
    validation_read: int
    more_context: bool


Event = Stage | Step | Eval | Sample | Save | Notice | Finish


class Trainer:
    """One training run in its folder. Make one with `start` or `resume`, then iterate over `run()`.

    It keeps every other trainer off the folder until `run()` has ended, or it is closed or forgotten before that; as a
    context manager it closes itself.
    """

    _release: weakref.finalize[[], Trainer]  # lets go of the folder, also when nobody refers to the trainer any more

    def __init__(
        self,
        folder: RunFolder,
        task: Task[Any],
        model: Model,
        config: TrainConfig,
        device: torch.device,
        began: float,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._tell = tell or _silent
        self.folder, self.task, self.model, self.config, self.device = folder, task, model, config, device
        # "auto" stands in runs from before there was a choice, which had the first of the two.
        train_attention_by(model, "fused" if config.attention == "fused" else "chunked")
        self.optimizers = make_optimizers(model, config)
        self.step = 0
        self.stages: list[dict[str, Any]] = []  # that came after the first, as config.json has them
        self.stage = 0  # how many of them have begun
        self.stage_began = 0.0  # seconds of the run at which this one did
        self.lowest: float | None = None  # of the validations of this stage, what decides
        self.validation_read = 0  # tokens or rows, by the last validation
        self.result: Finish | None = None  # of a run that was finished before
        self.best: float | None = None
        self.best_step = 0
        self.best_metrics: dict[str, Any] = {}  # of the validation that found it, as config.json has them until the end
        self.worse = 0  # validations since the best one of this stage
        self.cooldown: tuple[float, float] | None = None  # progress at which an early stop's decay begins and ends
        self.failures = 0  # steps in a row without a finite loss
        self.progress = 0.0  # of the stage, 0..1
        self.validated = 0  # step of the last validation
        self.reached = False  # what stop_at asks for
        self.next_glance = 1 / VALIDATIONS  # progress at which it is due
        self.outlook = 1 - HOPE  # how far a close look will find the model from perfect, over what a glance finds
        self.planned_tokens = self.train_tokens = 0  # that the run will see, about; that the text has
        self.foreseen = 0.0  # seconds of a step, by the plan or by what was seen since; 0 if nobody knows
        self.validation_reads = 0  # tokens, the same at each validation, so that they compare; 0 before the first
        self.plan: Plan | None = None  # of a run that has just been started
        self.notices: list[str] = []  # to be told once the run begins
        self._began = began  # time.monotonic() at which the run's clock stood at zero
        self._clock = (0.0, 0.0)  # progress and seconds from which a time budget is counted on
        self._speed = 0.0  # tokens trained a second
        self._pace = Pace()
        self._told_of_others = False  # that other work keeps the processors busy
        self._validation_speed = self._look_seconds = self._save_seconds = 0.0
        self._step_width = 0.0  # progress made by the last step; tells the middle of the next one in a time budget
        self._drawn = -math.inf
        self._close_look: dict[str, float] = {}  # the figures that reached the goal
        self._compiled: dict[Block, Any] = {}  # what stands for the blocks in a pass, where compiling is on
        self._eager = False  # compiling was tried and failed
        self._stop = False

    # --- making one -------------------------------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        out: str | os.PathLike[str],
        text: str | os.PathLike[str] | Text | Table,
        settings: Mapping[str, Any] | None = None,
        *,
        size: str | None = None,
        tokenizer: Tokenizer | str | None = None,
        tokenizer_options: Mapping[str, Any] | None = None,
        val_text: str | os.PathLike[str] | Text | Table | None = None,
        kind: type[ModelConfig] | None = None,
        init: str | os.PathLike[str] | None = None,
        device: str = "auto",
        began: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Trainer:
        """Begin a run in a new folder.

        While this measures, and while `run` is under way, a process on a CPU keeps the memory that it frees; see
        `jumok.device.keeping_memory`. torch's random numbers are the caller's own before, after and between events.

        Args:
            out: folder to make. text: what to learn from; its last part is held out. A string is the text itself, a
                `Path` a file; of a table at a path the task's own columns are read: text and label, or source and
                target. Or a text or a table that `jumok.text` has read.
            settings: fields of `kind` and TrainConfig that differ from the defaults. size: a name in SIZES.
            tokenizer: a trained one, or the kind to train on the training part, None: the task's default;
                tokenizer_options: for its training.
            val_text: hold this out instead of the last part of `text`; a string or a `Path` as there.
            kind: of model, by its configuration class; None: that of `init`, or the task's default.
            init: a run folder or a stock folder to begin with the weights of; the shape and the tokenizer are its own.
            device: "auto", "cpu", "cuda" or "mps".
            began: `time.monotonic()` from which a time budget counts; None: now.
            tell: called with what is being done, in a few words, before anything that may take long.

        Raises:
            ConfigError, TextError, TokenizerError, RunError: see their messages.
        """
        began = time.monotonic() if began is None else began
        tell = tell or _silent
        place = choose_device(device)
        task_name = (settings or {}).get("task") or "lm"
        configuration.require_choice("task", task_name, TASKS)
        task_type = TASKS[task_name]
        other = None if init is None else load(init)
        if kind is None:
            kind = task_type.kinds[0] if other is None else type(other.config)
        if kind not in task_type.kinds:
            raise ConfigError(
                "a model of the kind {kind!r} cannot be trained for this task; choose from {allowed}.",
                kind=kind_name(kind),
                allowed=", ".join(map(kind_name, task_type.kinds)),
            )
        if other is not None and kind is not type(other.config):
            raise ConfigError(
                "{init} holds a model of the kind {found!r}, and one of the kind {kind!r} cannot begin "
                "with its weights; leave the kind out.",
                init=init,
                found=kind_name(type(other.config)),
                kind=kind_name(kind),
            )
        if other is not None:
            settings = {**configuration.INIT_DEFAULTS, **{k: v for k, v in (settings or {}).items() if v is not None}}
        model_fields, train_fields = configuration.resolve(settings or {}, size, kind)
        config = configuration.from_dict(TrainConfig, train_fields)
        require_possible(config, place)
        if isinstance(text, os.PathLike):
            tell(tr("reading {path}", path=text))
        text = material_of(text, task_type.columns)
        val_text = None if val_text is None else material_of(val_text, task_type.columns)
        material = task_type.material(text, val_text, config)
        if other is None:  # whose shape and rates are for other batches
            given = {name for name, value in (settings or {}).items() if value is not None}
            wanted = {name: value for name, value in task_type.training(material).items() if name not in given}
            config = dataclasses.replace(config, **wanted)
        _require_reachable(task_type, config, holds_out=config.val > 0 or val_text is not None)
        if other is None:
            configuration.from_dict(kind, {**model_fields, "vocab_size": ANY_VOCABULARY})  # checked before any work
            if not isinstance(tokenizer, Tokenizer):
                options = tokenizer_options or {}
                usual = "char" if "alphabet" in options else task_type.usual_tokenizer(material)
                tell(tr("making a tokenizer"))
                tokenizer = task_type.make_tokenizer(material, tokenizer or usual, options)
            fields = {**model_fields, "vocab_size": tokenizer.vocab_size}
        else:
            tokenizer = require_tokenizer(other)
            fields = _inherited(other.config, settings or {}, size, kind)
        known = configuration.field_types(kind)  # a task names what any of its kinds may need
        inherited = None if other is None else fields
        follows = {k: v for k, v in task_type.fields(material, tokenizer, inherited).items() if k in known}
        shape = configuration.from_dict(kind, {**fields, **follows})

        folder = RunFolder.create(Path(out))
        with ExitStack() as held:
            held.enter_context(folder.lock())  # not in the block below: what another process makes stays as it is
            try:
                tell(tr("turning {size} into tokens", size=_size(material.source)))
                data = task_type.prepare(folder, material, tokenizer, shape, config)
                task = task_type(folder, data, tokenizer, shape, config)
                tell(tr("measuring what is fastest on this machine"))
                with keeping_memory(place), own_random(place):
                    plan = make_plan(
                        shape,
                        config,
                        task,
                        place,
                        data["train_tokens"],
                        choose_dropout="dropout" not in model_fields,
                    )
                if init is not None:
                    data["init"] = os.fspath(init)
                train = {**configuration.to_dict(plan.config), "planned_tokens": plan.tokens}
                folder.write_tokenizer(tokenizer)
                folder.write_config(
                    {
                        **describe_model(plan.shape, tokenizer),
                        "train": train,
                        "machine": describe_machine(place),
                        "data": data,
                        "metrics": {},
                    }
                )
            except BaseException:
                folder.discard()  # nothing was trained yet, and a half-made folder would be in the way
                raise
            model = _fresh(plan.shape, plan.config, tokenizer, place)
            if other is not None:
                adopt_weights(model, other)
            trainer = cls(folder, task, model, plan.config, place, began, tell)
            trainer._hold(held)
        trainer.plan, trainer.planned_tokens, trainer.train_tokens = plan, plan.tokens, data["train_tokens"]
        if math.isfinite(plan.explanation.seconds_per_step):
            trainer.foreseen = plan.explanation.seconds_per_step
        trainer.notices = [*task.notices, *plan.notices]
        if other is not None:
            trainer._save()  # no seed could make these weights again
        return trainer

    @classmethod
    def resume(
        cls,
        out: str | os.PathLike[str],
        text: Text | Table | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        size: str | None = None,
        val_text: Text | Table | None = None,
        device: str = "auto",
        began: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> Trainer:
        """Continue the run in `out` from its last whole state. What is given again must be what it was started with.

        With a length, `steps` or `minutes`, a finished run is trained further: another stage begins with the best
        weights, fresh optimizers, and a rate that rises and falls anew. The settings in OF_A_STAGE may differ then;
        `stop_at` holds for one stage. Without a length `run` tells again what a finished run came to, and writes
        nothing.

        Raises:
            ResumeError: the text or a setting differs; the message says which, and both values.
            RunError: there is no run, or it is damaged beyond its states.
        """
        began = time.monotonic() if began is None else began
        place = choose_device(device)
        folder = RunFolder.open(Path(out))
        if not folder.is_trained():
            raise ResumeError("{out} holds a model, but no training to continue; train into another folder.", out=out)
        with ExitStack() as held:
            held.enter_context(folder.lock())  # before anything is read that another process may be about to change
            recorded = folder.read_config()
            try:
                data, ended, stages = recorded["data"], recorded.get("finished"), list(recorded.get("stages", []))
                current = stages[-1] if stages else recorded
                train, machine = dict(current["train"]), describe_machine(place)
                planned_tokens = train.pop("planned_tokens")
                moved = differences(current.get("machine", machine), machine)
                shape, config = folder.model_config(), configuration.from_dict(TrainConfig, train)
                task_type = TASKS[config.task]
                missing = task_type.keys - data.keys()
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RunError(
                    "{path} is damaged ({error}); restore it from a copy.",
                    path=folder.path / "config.json",
                    error=error,
                ) from None
            if missing:
                raise RunError(
                    "{path} is damaged: data lacks {missing}.",
                    path=folder.path / "config.json",
                    missing=", ".join(sorted(missing)),
                )
            settings = {name: value for name, value in (settings or {}).items() if value is not None}
            further = ended is not None and not settings.keys().isdisjoint(("steps", "minutes"))
            asked = {name: settings.pop(name) for name in OF_A_STAGE if further and name in settings}
            _refuse_other_settings(folder.path, shape, config, settings, size, finished=ended is not None)
            _refuse_other_texts(folder.path, data, text, val_text)
            if further:
                config = _of_a_stage(config, asked)
                _require_reachable(task_type, config, holds_out=config.val > 0 or data["val_sha256"] is not None)
            tokenizer = folder.read_tokenizer()
            task = task_type(folder, data, tokenizer, shape, config)
            trainer = cls(folder, task, _fresh(shape, config, tokenizer, place), config, place, began, tell)
            trainer.planned_tokens, trainer.train_tokens = planned_tokens, data["train_tokens"]
            trainer.stages = stages
            state, trainer.notices = folder.read_state()
            if further:
                trainer._add_stage(recorded, state, machine)
            whole = state is None or state.step < (ended or {}).get("step", 0) or folder.has_weights_of(state)
            if trainer.stages and (state is None or state.numbers.get("stage", 0) < len(trainer.stages)):
                if trainer.notices:
                    trainer.notices.append(tr("The newest stage begins anew, with the best weights so far."))
                trainer._stand_at_stage(recorded["metrics"])
            elif ended is not None and whole and not trainer._unreadable():
                trainer._stand_at_end(ended, recorded["metrics"], state)
            else:
                if state is None and data.get("init"):
                    raise RunError(
                        "{path} began with the weights of {init}, and no whole training state is left to continue; "
                        "start a new run with {--init {init}} and another folder.",
                        path=folder.path,
                        init=data["init"],
                    )
                if state is None and trainer.notices:
                    trainer.notices.append(_new_beginning(folder.keep_weights()))
                if ended is not None:  # and its end is damaged
                    folder.write_config({key: value for key, value in recorded.items() if key != "finished"})
                trainer._restore(state)
            trainer._hold(held)
        if moved and not further and trainer.result is None:
            trainer.notices.append(
                tr(
                    "The machine or the versions are not those that this run began with ({differences}). The run "
                    "continues, but the last bits of its weights may differ from those of a run on the first machine.",
                    differences="; ".join(moved),
                )
            )
        return trainer

    def _hold(self, held: ExitStack) -> None:
        self._release = weakref.finalize(self, held.pop_all().close)

    # --- the loop ---------------------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Ask the run to end after the step it is in; it saves its state first. Safe in a signal handler."""
        self._stop = True

    @property
    def seconds(self) -> float:
        """How long the run has taken, all its parts together."""
        return time.monotonic() - self._began

    def close(self) -> None:
        """Let go of the folder; what came after the last save is lost. `run` does this at its end."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self) -> Generator[Event, None, None]:
        """Train to the end, or until `request_stop`. Leaving the loop, by `break` for example, stops it likewise.

        Raises:
            TrainingError: three steps in a row had no finite loss; the state is saved.
            TrainingError: the device has too little memory; the message says what to make smaller.
            RunError: the disk is full or the folder gone; the last state is intact. Or the trainer is closed.
        """
        try:
            with keeping_memory(self.device):
                self._require_open()
                events = self._events()
                try:
                    for event in events:
                        if event is not self.result:  # which the log has
                            self._log(event)
                        yield event
                        self._require_open()
                except GeneratorExit:
                    self.request_stop()
                    if self._release.alive:
                        for event in events:  # finishes what belongs to this step, and saves; nobody listens any more
                            if event is not self.result:
                                self._log(event)
                    raise
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            shape = self.model.config
            raise TrainingError(
                "the device has too little memory for batch_size={batch_size} at "
                "context_length={context_length}. Start a new run with a smaller {--batch-size} (and a "
                "larger {--accumulate} to keep the product), a shorter {--context-length} or a smaller "
                "{--size}.",
                batch_size=self.config.batch_size,
                context_length=shape.context_length,
            ) from error
        finally:
            self.close()

    def _require_open(self) -> None:
        if not self._release.alive:
            raise RunError(
                "this Trainer has ended its run in {path}; go on with Trainer.resume.", path=self.folder.path
            )

    def _events(self) -> Iterator[Event]:
        for sentence in self.notices:
            yield Notice(step=self.step, text=sentence)
        if self.result is not None:
            yield self.result
            return
        if self.stage < len(self.stages):
            yield from self._begin_stage()
        if self.step == 0 and not self.folder.size("samples.txt"):  # a stop before the first step keeps the sample
            yield from self._sample()
        if self.config.compile == "on" and not self._over() and not self._stop:
            yield from self._compile()
        yield from self._start_clock()
        self._pace = Pace()
        saved_at = time.monotonic()
        validations = self._validations_due()
        while not self._over() and not self._stop:
            began = time.perf_counter()
            with self._pass():
                step = self._take_step()
            seconds = time.perf_counter() - began
            yield step
            yield from self._watch(seconds)
            if self.failures >= FAILURES:
                self._save()
                raise self._diverged()
            if self._validations_due() > validations:
                validations = self._validations_due()
                yield from self._look()
            if self.config.stop_at is not None and not self.reached and self.progress >= self.next_glance:
                yield from self._glance(self.config.stop_at)
            pause = self.config.save_every and max(self.config.save_every, SAVE_AT_MOST * self._save_seconds)
            if time.monotonic() - saved_at >= pause:
                yield self._save()
                saved_at = time.monotonic()
        if self._stop and not self._over():
            if self.best is None and (self.task.has_validation or not self.stages):  # so that something can write
                self.folder.write_weights(self.model)
            yield self._save()
            figures = {} if self.best is None else self.folder.read_config()["metrics"]
            figures.pop("step", None)
            yield self._finished("interrupted", figures)
            return
        if self.validated != self.step and (not self.reached or self.best is None):  # None: the weights were lost
            yield from self._look()
        yield self._save()
        if self.stages and self.best is not None and self.best_step <= self._first_step:
            yield Notice(
                step=self.step,
                text=tr("Nothing better was found; the weights are still those of step {step:,}.", step=self.best_step),
            )
        yield self._finish()

    # --- stages -----------------------------------------------------------------------------------------------------

    @property
    def _first_step(self) -> int:
        """Steps that were taken before this stage."""
        return int(self.stages[-1]["step"]) if self.stages else 0

    @property
    def _stage_seconds(self) -> float:
        """How long the stage has taken, which counts against its minutes."""
        return self.seconds - self.stage_began

    def _add_stage(self, recorded: Mapping[str, Any], state: State | None, machine: Mapping[str, Any]) -> None:
        """Plan another stage of a finished run, by its configuration; nothing is written yet."""
        ended, metrics = recorded["finished"], recorded["metrics"]
        seconds = 0.0 if state is None else state.numbers["seconds"]
        per_step = self.task.tokens_per_batch * self.config.accumulate
        if self.config.steps is not None:
            self.planned_tokens = self.config.steps * per_step
        elif seconds:  # as fast as so far
            foreseen = ended["step"] * per_step / seconds * 60 * (self.config.minutes or 0)
            most = most_tokens(self.config, self.task, self.train_tokens)
            self.planned_tokens = max(per_step, int(min(foreseen, most)))
        self.stages.append(
            {
                "step": ended["step"],
                "best_step": metrics.get("step", ended["step"]),
                "ended": ended["reason"],
                "metrics": metrics,
                "seconds": seconds,
                "logs": {name: self.folder.size(name) for name in LOGS},
                "train": {**configuration.to_dict(self.config), "planned_tokens": self.planned_tokens},
                "machine": machine,
            }
        )

    def _stand_at_stage(self, metrics: Mapping[str, Any]) -> None:
        """Go where the newest stage begins, to the best weights; no state is needed for that.

        Args:
            metrics: of these weights, as config.json has them.
        """
        self.folder.read_weights(self.model)
        per_step = self.task.tokens_per_batch * self.config.accumulate
        self.foreseen = 60 * (self.config.minutes or 0) * per_step / max(1, self.planned_tokens)
        self.validation_reads = 0
        stage = self.stages[-1]
        self.step = self.validated = stage["step"]
        self.best_step, self.best_metrics = metrics.get("step", stage["best_step"]), dict(metrics)
        self.stage_began = stage["seconds"]
        self._began -= self.stage_began
        self._cut_logs(stage["logs"])

    def _begin_stage(self) -> Iterator[Event]:
        """Record the stage, validate the weights it begins with as it will validate its own, and save."""
        self.stage = len(self.stages)
        figures: dict[str, float] = {}
        if self.task.has_validation:
            with self._looking():
                figures = self.task.validate(self.model, self._validation_tokens())
        config = self.folder.read_config()
        config.pop("finished", None)
        self.folder.write_config({**config, "stages": self.stages})
        yield Stage(
            step=self.step,
            number=self.stage + 1,
            best_step=self.best_step,
            steps=self.config.steps,
            minutes=self.config.minutes,
        )
        if figures:
            self.best, self.validation_read = self.task.to_minimise(figures), int(figures[self.task.unit])
            headline = self.task.headline(figures)
            yield Eval(step=self.step, figures=figures, headline=headline, best=True, seconds=self.seconds)
            wanted = self.config.stop_at
            if wanted is not None and self.task.goal.reached(figures, wanted):
                yield from self._look_closely(wanted)  # or the first weights that are as good would replace better ones
        yield self._save()

    def _stand_at_end(self, ended: Mapping[str, Any], metrics: Mapping[str, float], state: State | None) -> None:
        """Go to the end of a finished run, with its best weights, and know what it came to."""
        self.folder.read_weights(self.model)
        self.step = ended["step"]
        if state is not None:
            self._began = time.monotonic() - state.numbers["seconds"]
            self.validation_read = state.numbers.get("validation_read", 0)
        self.result = self._finished(ended["reason"], {name: metrics[name] for name in metrics if name != "step"})

    def _take_step(self) -> Step:
        began = time.perf_counter()
        share = self._rate()
        set_rate(self.optimizers, share)
        self.model.train()
        # All batches of the step first, on the CPU, for each loss is divided by what all of them count.
        first = self.step * self.config.accumulate
        parts = [
            (number, place, part)
            for number in range(first, first + self.config.accumulate)
            for place, part in enumerate(self.task.parts(number))
        ]
        counts = [sum(each) for each in zip(*(self.task.counts(part) for _, _, part in parts), strict=True)]
        total = cost = 0.0
        for number, place, part in parts:
            batch = tuple(tensor.to(self.device, non_blocking=True) for tensor in part)
            loss = self._loss(batch, counts, number, place)
            loss.backward()
            total += float(loss.detach())
            cost += self.task.share(part)
        norm = clip_gradients(self.model, self.config.clip)
        finite = math.isfinite(total) and math.isfinite(norm)
        if finite:
            for optimizer in self.optimizers:
                optimizer.step()
        self.failures = 0 if finite else self.failures + 1
        self.model.zero_grad()
        self.step += 1
        before, self.progress = self.progress, self._progress_now()
        self._step_width = self.progress - before
        taken = time.perf_counter() - began
        speed = self.task.tokens_per_batch * cost / taken
        self._speed = speed if self._speed == 0 else 0.9 * self._speed + 0.1 * speed
        return Step(
            step=self.step,
            loss=total,
            rate=share,
            grad_norm=norm,
            skipped=not finite,
            progress=self.progress,
            seconds=self.seconds,
            remaining=self._remaining(),
            tokens_per_second=self._speed,
        )

    def _loss(self, batch: tuple[Tensor, ...], counts: Sequence[int], number: int, place: int = 0) -> Tensor:
        # Dropout, the same after a resume, and another one for each part of a batch.
        seed_random(self.device, (self.config.seed * 1_000_003 + number + (place << 40)) % 2**63)
        stance = "force_eager" if self._eager else "default"
        with torch.compiler.set_stance(stance), autocast(self.device, self.config.precision):
            return self.task.loss(self.model, batch, counts)

    def _compile(self) -> Iterator[Event]:
        """Compile blocks and loss, and try them once: a broken compiler costs a sentence, not the run."""
        self._tell(tr("compiling, which can take a minute"))
        blocks, failure = [part for part in self.model.modules() if isinstance(part, Block)], ""
        try:
            for block in blocks:
                block.compile(dynamic=False, options={"fallback_random": True})
            self.task.compile()
            part = self.task.parts(0)[0]
            self.model.train()
            with own_random(self.device):
                self._loss(tuple(tensor.to(self.device) for tensor in part), self.task.counts(part), 0).backward()
            self._compiled = {block: block._compiled_call_impl for block in blocks}
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the compiler's own errors have no common base
            self._eager = True
            reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
            failure = tr("Compiling failed, so training goes on without ({reason}).", reason=reason)
        finally:
            for block in blocks:
                block._compiled_call_impl = None
        self.model.zero_grad()
        if failure:
            yield Notice(step=self.step, text=failure)

    @contextmanager
    def _pass(self) -> Iterator[None]:
        """The blocks as they were compiled, and torch's random numbers those of the run.

        Both end with the block, so that between two events, and after the run or a break, the model is a plain one:
        generating with compiled blocks would compile them for each length of a prompt.
        """
        for block, call in self._compiled.items():
            block._compiled_call_impl = call
        try:
            with own_random(self.device):
                yield
        finally:
            for block in self._compiled:
                block._compiled_call_impl = None

    # --- time and rate ----------------------------------------------------------------------------------------------

    def _start_clock(self) -> Iterator[Event]:
        self._clock = (self.progress, self._stage_seconds)
        budget = 60 * (self.config.minutes or 0)
        if budget and self._stage_seconds > 0.8 * budget and not self._over():
            yield Notice(
                step=self.step,
                text=tr(
                    "{spent:.0f} of {budget:.0f} seconds are gone before training; give more {--minutes}.",
                    spent=self._stage_seconds,
                    budget=budget,
                ),
            )

    def _watch(self, seconds: float) -> Iterator[Notice]:
        """Say when steps take another time than was foreseen, and let a run by minutes count on what is seen.

        In a run by steps nothing follows from it, so that its figures do not depend on the time.

        Args:
            seconds: that the last step took.
        """
        window = self._pace.add(seconds)
        if window is None:
            return
        before = self.foreseen = self.foreseen or window.seconds
        slower, sentences = window.seconds > OTHERWISE * before, []
        if slower or before > OTHERWISE * window.seconds:
            self.foreseen = window.seconds
            times = {"now": f"{window.seconds:.2g}", "before": f"{before:.2g}"}
            if self.config.minutes is not None:
                planned, steps = self._plan_anew(60 * self.config.minutes)
                sentences.append(
                    tr(
                        "A step takes {now} s, not {before} s as expected: about {steps} steps are planned now, not "
                        "{planned}.",
                        **times,
                        steps=f"{steps:,}",
                        planned=f"{planned:,}",
                    )
                )
            elif slower:
                sentences.append(tr("A step takes {now} s, not {before} s as expected.", **times))
        if window.waiting > MUCH_WAITING and not self._told_of_others:
            self._told_of_others = True
            sentences.append(
                tr(
                    "Other programs keep the processors busy: this one waited for {share} of the time that it could "
                    "have worked. It helps most to end the others.",
                    share=f"{window.waiting:.0%}",
                )
            )
            if os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
                sentences.append(
                    tr(
                        "If you cannot, stop this run and continue it with OMP_WAIT_POLICY=PASSIVE set, so that "
                        "threads do not use up the processors while they wait."
                    )
                )
        if sentences:
            yield Notice(step=self.step, text=" ".join(sentences))

    def _plan_anew(self, budget: float) -> tuple[int, int]:
        """Count on steps as long as is foreseen now; how many were planned, and are now.

        Args:
            budget: seconds of the run.
        """
        per_step = self.task.tokens_per_batch * self.config.accumulate
        planned = self.planned_tokens
        left = max(0.0, budget - self._reserve() - self._stage_seconds)
        most = most_tokens(self.config, self.task, self.train_tokens)
        self.planned_tokens = int(min(most, self._seen() + left / self.foreseen * per_step))
        self.outlook = 1 - HOPE  # glances may read other windows from now on
        return round(planned / per_step), round(self.planned_tokens / per_step)

    def _progress_now(self) -> float:
        if self.config.steps is not None:
            return (self.step - self._first_step) / self.config.steps
        # From where the clock was started (after compiling) straight to the end of the budget, less what the last
        # figures and the last save will take.
        progress, since = self._clock
        end = 60 * (self.config.minutes or 0) - self._reserve()
        now = min(1.0, progress + (1 - progress) * (self._stage_seconds - since) / max(1e-3, end - since))
        now = max(now, min(1.0, self._seen() / most_tokens(self.config, self.task, self.train_tokens)))
        return max(self.progress, now)  # the reserve may have grown meanwhile

    def _reserve(self) -> float:
        """Seconds to keep for what follows the last step."""
        budget = 60 * (self.config.minutes or 0)
        if self._validation_speed == 0:
            return 0.05 * budget
        figures = self.task.final_reads(self._final_tokens()) / self._validation_speed
        return min(0.2 * budget, figures + 2 * self._look_seconds + 3 * self._save_seconds + 1.0)

    def _seen(self) -> int:
        """Tokens trained on in this stage."""
        return (self.step - self._first_step) * self.task.tokens_per_batch * self.config.accumulate

    def _remaining(self) -> float:
        by_time = math.inf if self.config.minutes is None else max(0.0, 60 * self.config.minutes - self._stage_seconds)
        if self.config.steps is not None:
            tokens = float(self.config.steps * self.task.tokens_per_batch * self.config.accumulate)
        else:
            tokens = most_tokens(self.config, self.task, self.train_tokens)
        by_tokens = max(0.0, tokens - self._seen()) / self._speed if self._speed else math.inf
        return remaining if math.isfinite(remaining := min(by_time, by_tokens)) else 0.0

    def _over(self) -> bool:
        return self.reached or self.progress >= (1.0 if self.cooldown is None else self.cooldown[1])

    def _rate(self) -> float:
        # The middle of the step: the first rate is not zero, nor the last.
        width = self._step_width if self.config.steps is None else 1 / self.config.steps
        progress = min(1.0, self.progress + 0.5 * width)
        if self.cooldown is None:
            return rate(self.config, progress)
        begin, end = self.cooldown
        return rate(self.config, begin) * max(0.0, (end - progress) / (end - begin))

    # --- looking at the model ---------------------------------------------------------------------------------------

    def _validations(self) -> float:
        """How many there will be in the run."""
        if not self.config.eval_every:
            return VALIDATIONS
        per_step = self.task.tokens_per_batch * self.config.accumulate
        return max(1.0, self.planned_tokens / per_step / self.config.eval_every)

    def _validations_due(self) -> int:
        """How many there should have been by now."""
        if self.config.eval_every:
            return self.step // self.config.eval_every
        return int(self.progress * VALIDATIONS)

    def _validation_tokens(self) -> int:
        if self.config.eval_tokens:
            return self.config.eval_tokens
        if not self.validation_reads:
            affordable = int(VALIDATION_TOKENS * self.planned_tokens / self._validations())
            self.validation_reads = max(self.task.fewest_tokens(self.model.config.context_length), affordable)
        return self.validation_reads

    def _final_tokens(self) -> int:
        least = CLOSE_LOOK_TOKENS if self.config.stop_at is not None else 256 * self.model.config.context_length
        return max(least, int(FINAL_TOKENS * self.planned_tokens))

    def _look(self) -> Iterator[Event]:
        """Validate, then show a sample."""
        self._tell(tr("validating"))
        began = time.perf_counter()
        yield from self._validate()
        yield from self._sample()
        self._look_seconds = time.perf_counter() - began

    def _validate(self) -> Iterator[Event]:
        self.validated = self.step
        if not self.task.has_validation:
            self.folder.write_weights(self.model)
            return
        began = time.perf_counter()
        try:
            with self._looking():
                figures = self.task.validate(self.model, self._validation_tokens())
        except JumokError as error:  # the losses are not finite
            self.worse += 1
            yield Notice(step=self.step, text=tr("This validation failed: {error}", error=error))
            return
        self._validation_speed = figures["tokens"] / (time.perf_counter() - began)
        found = self.task.to_minimise(figures)
        self.validation_read = int(figures[self.task.unit])
        # A new stage is worse than the best weights until its rate has fallen, so patience looks at the stage alone.
        lower = self.lowest is None or found < self.lowest
        self.lowest, self.worse = (found, 0) if lower else (self.lowest, self.worse + 1)
        best = self.best is None or found < self.best
        if best:
            self.best, self.best_step = found, self.step
            self.folder.write_weights(self.model)
            self.best_metrics = {"step": self.step, **figures}
            self._put_metrics(self.best_metrics)
        yield Eval(
            step=self.step,
            figures=figures,
            headline=self.task.headline(figures),
            best=best,
            seconds=self.seconds,
        )
        if self.config.stop_at is not None and self.task.goal.reached(figures, self.config.stop_at):
            self.next_glance = self.progress + 1 / GLANCES  # this close look is the one that a glance would ask for
            yield from self._look_closely(self.config.stop_at)
        rising = self.config.patience and self.worse >= self.config.patience
        if rising and self.cooldown is None and not self._over():
            self.cooldown = (self.progress, min(1.0, self.progress * (1 + COOLDOWN)))
            yield Notice(
                step=self.step,
                text=tr(
                    "Nothing better in {count} validations: the rate now decays quickly to zero.", count=self.worse
                ),
            )

    def _glance(self, wanted: float) -> Iterator[Event]:
        """Validate on a few windows, and where they promise the goal, look closely.

        The few are the same each time, so that they are harder or easier than the whole by about the same factor; each
        close look tells it anew, also one that ends with its first part.
        """
        goal, room = self.task.goal, GLANCE_TOKENS * self.planned_tokens
        tokens = max(self.task.glance * self.model.config.context_length, int(room / GLANCES))
        try:
            with self._looking():
                seen = self.task.validate(self.model, tokens)
        except JumokError:  # the losses are not finite; the next validation says so
            return
        self.next_glance = self.progress + min(1 / VALIDATIONS, max(1 / GLANCES, tokens / room, seen["tokens"] / room))
        short = goal.shortfall(seen)
        if short * self.outlook > abs(wanted - goal.best):
            return
        figures = yield from self._look_closely(wanted)
        if self.reached:
            yield from self._sample()
        elif short and figures:
            self.outlook = goal.shortfall(figures) / short * (1 + DOUBT)
        else:  # a glance that finds no fault cannot tell when
            self.next_glance = self.progress + 1 / VALIDATIONS

    def _look_closely(self, wanted: float) -> Generator[Event, None, dict[str, float]]:
        """Whether the goal is reached: by figures that read what the last ones read, and then are the last ones.

        The first call mostly comes too early. So a loss is first taken from a part, without overlap: for the same
        time that reads more of a text. A part has too few wrong answers to tell their share.

        Returns the figures that decided; none where the losses are not finite.
        """
        goal, tokens = self.task.goal, self._final_tokens()
        try:
            with self._looking():
                if goal.best == 0:
                    part = self.task.validate(self.model, int(PART * tokens))
                    if goal.shortfall(part) > (1 + LENIENT) * wanted:
                        return part
                figures = self.task.final(self.model, tokens)
        except JumokError:
            return {}
        if goal.reached(figures, wanted):
            self.reached, self._close_look = True, figures
            self.best, self.best_step = self.task.to_minimise(figures), self.step
            self.best_metrics = {"step": self.step, **figures}
            self.folder.write_weights(self.model)
        else:
            text = tr(
                "step {step:,}: {figures}, not {wanted:g} yet.",
                step=self.step,
                figures=self.task.headline(figures),
                wanted=wanted,
            )
            yield Notice(step=self.step, text=text)
        return figures

    def _sample(self) -> Iterator[Event]:
        if not self.config.sample_tokens:
            return
        try:
            with self._looking():
                text = self.task.sample(self.model, self.config.sample_tokens, seed=self.config.seed)
        except JumokError as error:  # the logits are not finite; the training may still recover
            yield Notice(step=self.step, text=tr("No sample: {error}", error=error))
            return
        yield Sample(step=self.step, text=text)

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """The model in eval mode, in the precision of the run."""
        self.model.eval()
        with autocast(self.device, self.config.precision):
            yield
        self.model.train()

    def _finish(self) -> Finish:
        self._tell(tr("reading the held-out part for the last figure"))
        figures: dict[str, float] = {}
        if self.best is not None:
            self.folder.read_weights(self.model)
            figures = self._close_look
            if not figures:
                with self._looking():
                    figures = self.task.final(self.model, self._final_tokens())
            self._put_metrics({"step": self.best_step, **figures})
        self._draw()
        self.task.draw(self.model, self.folder)
        wanted, reason = self.config.stop_at, "done" if self.cooldown is None else "early stop"
        if wanted is not None and figures and self.task.goal.reached(figures, wanted):
            reason = "reached"  # also at the very end
        return self._finished(reason, figures)

    def _finished(self, reason: str, figures: dict[str, float]) -> Finish:
        return Finish(
            step=self.step,
            reason=reason,
            figures=figures,
            headline=self.task.headline(figures) if figures else "",
            seconds=self.seconds,
            unit=self.task.unit,
            held_out=self.task.held_out_size,
            validation_read=self.validation_read,
            more_context=self.task.final_has_more_context,
        )

    # --- what is written --------------------------------------------------------------------------------------------

    def _log(self, event: Event) -> None:
        if isinstance(event, Notice | Save):
            return
        fields = {"event": type(event).__name__.lower(), **dataclasses.asdict(event)}
        for name, value in fields.items():
            if isinstance(value, float) and not math.isfinite(value):
                fields[name] = None  # JSON has no NaN
        self.folder.append("metrics.jsonl", json.dumps(fields, ensure_ascii=False) + "\n")
        if isinstance(event, Sample):
            self.folder.append("samples.txt", f"--- step {event.step} ---\n{event.text}\n\n")
        if isinstance(event, Eval):
            self._draw(at_most_every=DRAW_EVERY)
        if isinstance(event, Finish) and event.reason != "interrupted":  # after its line: only then all is written
            ended = {"step": event.step, "reason": event.reason}
            self.folder.write_config({**self.folder.read_config(), "finished": ended})

    def _put_metrics(self, metrics: Mapping[str, Any]) -> None:
        self.folder.write_config({**self.folder.read_config(), "metrics": metrics})

    def _draw(self, at_most_every: float = 0.0) -> None:
        if time.monotonic() - self._drawn >= at_most_every:
            with self.folder.writing("loss.png"):
                draw_loss(self.folder.read_metrics(), self.folder.path / "loss.png", label=self.task.loss_label)
            self._drawn = time.monotonic()

    def _save(self) -> Save:
        began = time.perf_counter()
        tensors = {f"model.{name}": tensor for name, tensor in weights(self.model).items()}
        for number, optimizer in enumerate(self.optimizers):
            for index, moments in optimizer.state_dict()["state"].items():
                tensors |= {f"optimizer.{number}.{index}.{key}": moment for key, moment in moments.items()}
        numbers = {name: getattr(self, name) for name in NUMBERS}
        numbers["seconds"] = self.seconds
        numbers["logs"] = {name: self.folder.size(name) for name in LOGS}
        self.folder.write_state(State(step=self.step, tensors=tensors, numbers=numbers))
        self._save_seconds = time.perf_counter() - began
        return Save(step=self.step, seconds=self._save_seconds)

    def _restore(self, state: State | None) -> None:
        """Go back to a saved state; without one, to the beginning."""
        if state is None:
            for name in LOGS:
                self.folder.truncate(name, 0)
            self._put_metrics({})
            return
        lost = self._lost_weights(state)
        named = {name.removeprefix("model."): t for name, t in state.tensors.items() if name.startswith("model.")}
        restore_weights(self.model, named, where=f"the training state of {self.folder.path}")
        for number, optimizer in enumerate(self.optimizers):
            moments: dict[int, dict[str, Tensor]] = {}
            for name, tensor in state.tensors.items():
                kind, *place = name.split(".", 3)
                if kind == "optimizer" and int(place[0]) == number:
                    moments.setdefault(int(place[1]), {})[place[2]] = tensor
            optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        self.step = state.step
        for name in NUMBERS:
            setattr(self, name, state.numbers.get(name, getattr(self, name)))  # a state of old may lack one
        self._began -= state.numbers["seconds"]
        self._cut_logs(state.numbers["logs"])
        if self.best is None or lost:  # what metrics there are belong to weights that are gone
            self._put_metrics({})
        if lost:
            self.best, self.validated = None, -1  # so that the next validation writes them, also if the run is over
            self.notices.append(
                tr("{lost} The best weights are chosen anew from step {step} on.", lost=lost, step=self.step)
            )

    def _lost_weights(self, state: State) -> str:
        """Put the best weights back that belong to a state; what is wrong with them if that cannot be, or ""."""
        if state.best is not None and not self.folder.has_weights_of(state):
            self._put_metrics(state.numbers["best_metrics"])  # first, or a kill in between would leave them wrong
            if not self.folder.put_back_weights(state):
                path = self.folder.path / "model.safetensors"
                return tr("{path} is damaged, and so is its copy in the training state.", path=path)
        expected = state.numbers["validated"] > 0 if not self.task.has_validation else state.numbers["best"] is not None
        return self._unreadable() if expected else ""

    def _unreadable(self) -> str:
        """What is wrong with the best weights that should be there, or ""."""
        try:
            self.folder.read_weights(self.model)
        except RunError as error:
            return str(error)
        return ""

    def _cut_logs(self, sizes: Mapping[str, int]) -> None:
        """Cut the logs back to what they were at a step to go on from; tell of what they have lost."""
        damaged = {name for name, size in sizes.items() if not self.folder.truncate(name, size)}
        if self.folder.has_damaged_metrics():
            damaged.add("metrics.jsonl")
        if damaged:
            self.notices.append(_damaged_logs(sorted(damaged)))

    def _diverged(self) -> TrainingError:
        facts = {
            "failures": FAILURES,
            "step": self.step,
            "path": self.folder.path,
            "rate": self.config.learning_rate / 3,
            "matrix_rate": self.config.matrix_learning_rate / 3,
        }
        if self.config.precision == "float32":
            return TrainingError(
                "the loss was not finite in {failures} steps in a row (up to step {step}); the state is saved in "
                "{path}. Start a new run with lower rates, for example {--learning-rate {rate:.2g}} "
                "{--matrix-learning-rate {matrix_rate:.2g}}.",
                **facts,
            )
        return TrainingError(
            "the loss was not finite in {failures} steps in a row (up to step {step}); the state is saved in "
            "{path}. Start a new run with lower rates, for example {--learning-rate {rate:.2g}} "
            "{--matrix-learning-rate {matrix_rate:.2g}}, or with {--precision float32}.",
            **facts,
        )


def _silent(text: str) -> None:
    pass


def _new_beginning(kept: Path | None) -> str:
    """What a person should know when all states of a run are damaged. kept: where the best weights are now, too."""
    if kept is None:
        return tr("No whole training state is left, so the run starts from its beginning.")
    return tr(
        "No whole training state is left, so the run starts from its beginning. The best weights that it had are kept "
        "in {path}.",
        path=kept,
    )


def _damaged_logs(names: list[str]) -> str:
    return tr(
        "A part of {names} was lost or damaged after it was written, perhaps by a power cut. The training is not "
        "affected; the loss curve and the samples have a gap.",
        names=", ".join(names),
    )


def _of_a_stage(config: TrainConfig, asked: Mapping[str, Any]) -> TrainConfig:
    """The configuration of another stage: its own length and goal, and what else was asked for."""
    chosen = {name: value for name, value in asked.items() if value != "auto"}
    return dataclasses.replace(config, **{"steps": None, "minutes": None, "stop_at": None, **chosen})


def _require_reachable(task: type[Task[Any]], config: TrainConfig, *, holds_out: bool) -> None:
    """Raise ConfigError for a figure to stop at that the run could not have."""
    if config.stop_at is None:
        return
    task.goal.require(config.stop_at)
    if not holds_out:
        raise ConfigError(
            "stop_at={stop_at:g} is measured on the held-out part, and val=0 holds nothing out; leave one of them out.",
            stop_at=config.stop_at,
        )


def _fresh(shape: ModelConfig, config: TrainConfig, tokenizer: Tokenizer, device: torch.device) -> Model:
    """A model with its first weights, which depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = build(shape)
    model.tokenizer = tokenizer
    return model.to(device)


def _inherited(
    config: ModelConfig, settings: Mapping[str, Any], size: str | None, kind: type[ModelConfig]
) -> dict[str, Any]:
    """The shape of a model that is given; dropout and pooling alone may differ.

    Raises:
        ConfigError: the settings ask for another shape.
    """
    fields = configuration.to_dict(config)
    asked, _ = configuration.resolve(settings, size, kind)
    named = {key for key, value in settings.items() if value is not None} | SIZES.get(size or "", {}).keys()
    free = {"dropout", "attention_dropout", "pooling"}
    for key in named & (asked.keys() - free):
        if fields[key] != asked[key]:
            raise ConfigError(
                "{key}={given!r} was given, and the model to begin with has {found!r}; leave it out, or "
                "leave out {--init}.",
                key=key,
                given=asked[key],
                found=fields[key],
            )
    chosen = named & free
    if isinstance(config, GPTConfig) and not config.labels:  # it has never summed up a text yet
        chosen.add("pooling")
    return {**fields, **{key: asked[key] for key in chosen & asked.keys()}}


def _refuse_other_settings(
    out: Path,
    shape: ModelConfig,
    config: TrainConfig,
    settings: Mapping[str, Any],
    size: str | None,
    *,
    finished: bool,
) -> None:
    recorded = {**configuration.to_dict(shape), **configuration.to_dict(config)}
    model_fields, train_fields = configuration.resolve(settings, size, type(shape))
    named = {key for key, value in settings.items() if value is not None} | SIZES.get(size or "", {}).keys()
    differing = {
        key: tr("{name}={recorded!r}, not {given!r}", name=key, recorded=recorded[key], given=value)
        for key, value in {**model_fields, **train_fields}.items()
        if key in named and value != "auto" and recorded[key] != value
    }
    if not differing:
        return
    further = ""
    if not differing.keys().isdisjoint(OF_A_STAGE):
        further = (
            tr(" This run is finished: {--minutes N} or {--steps N} trains it further, with other rates, too.")
            if finished
            else tr(" This run is not finished; once it is, {--minutes N} or {--steps N} trains it further.")
        )
    raise ResumeError(
        "{out} was started with {differing}. A run continues with the settings it began with: leave them out, or "
        "start a new run with another {--out RUN}.{further}",
        out=out,
        differing="; ".join(differing.values()),
        further=further,
    )


def _refuse_other_texts(
    out: Path, data: Mapping[str, Any], text: Text | Table | None, val_text: Text | Table | None
) -> None:
    sources = ", ".join(data["sources"])
    for given, digest, chars, rows in (
        (text, data["sha256"], "chars", "rows"),
        (val_text, data["val_sha256"], "val_chars", "held_out_rows"),
    ):
        if given is not None and given.sha256 != digest:
            if not digest:
                before = tr("without a held-out file")
            else:
                size = _chars(data[chars]) if chars in data else _rows(data[rows])
                facts = {"sources": sources, "size": size, "sha256": digest[:12]}
                before = (
                    tr("with another text ({sources}): {size}, sha256 {sha256}…", **facts)
                    if given is text
                    else tr("with another held-out text: {size}, sha256 {sha256}…", **facts)
                )
            raise ResumeError(
                "{out} was started {before}; now {names} was given: {size}, sha256 {sha256}…. Leave it "
                "out to continue with what the run has, or start a new run with another {--out}.",
                out=out,
                before=before,
                names=", ".join(source.name for source in given.sources),
                size=_size(given),
                sha256=given.sha256[:12],
            )


def _size(source: Text | Table) -> str:
    return _chars(source.chars) if isinstance(source, Text) else _rows(len(source))


def _chars(count: int) -> str:
    return tr("{chars:,} characters", chars=count)


def _rows(count: int) -> str:
    return tr("{rows:,} rows", rows=count)
