"""The start of a run: read the material, choose a tokenizer, plan, and make the folder and the model.

In a launch of several processes rank 0 makes the run, or resumes it (`jumok.training.resume`), and the others open it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from jumok import config as configuration
from jumok.config import ModelConfig, TaskConfig, TrainConfig
from jumok.config.features import KINDS, kind_name
from jumok.device import describe_machine
from jumok.errors import ConfigError, JumokError, RunError, SharedFault
from jumok.messages import tr
from jumok.models import Model, build
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import frame_to_train
from jumok.nn.attention import train_attention_by
from jumok.runs.checkpoints import stored_tensors
from jumok.runs.config import describe_model
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.runs.parameters import adopt_parameters
from jumok.text import Table, Text, material_of
from jumok.tokenizers import Tokenizer
from jumok.training.adapters import Adapters, require_one_process, require_peft, write_base
from jumok.training.checkpoint import restore_tensors, restore_together
from jumok.training.compilation import recompute_blocks
from jumok.training.loop import Loop
from jumok.training.optim import Objective, make_optimizers
from jumok.training.parallel import ProcessGroup, Shards, replicate
from jumok.training.policy import Plan, make_plan, memory_errors, require_possible
from jumok.training.run import RunHistory, TrainingRun
from jumok.training.run_record import RunRecord, require_reachable, size_of
from jumok.training.tasks import TASKS, Material, Task

Source = str | os.PathLike[str] | Text | Table


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a new run begins with. The arguments are those of `Trainer.start`."""

    out: Path
    text: Source
    model: ModelConfig | str | None
    training: TrainConfig | None
    settings: Mapping[str, Any]
    size: str | None
    tokenizer: Tokenizer | str | None
    tokenizer_options: Mapping[str, Any]
    val_text: Source | None
    init: str | os.PathLike[str] | None
    device: torch.device
    began: float
    report: Callable[[str], None]
    group: ProcessGroup = field(default_factory=ProcessGroup)
    make_model: Callable[[ModelConfig], Model] | None = None

    def run(self) -> TrainingRun:
        """Make the run folder, with nothing trained yet."""
        task = configuration.TASK_CONFIGS[self._task_name()]
        task_type = TASKS[task.name]
        init = None if self.init is None else load(self.init)
        kind = self._kind(task, init)
        given = configuration.named_settings(self.settings, self.size, kind, task)
        if self.training is None and "val" in given:
            configuration.require_setting(TrainConfig, "val", given["val"])
        material = self._material(task_type, self.training.val if self.training else given.get("val", TrainConfig.val))
        shape, training = configuration.resolve(
            self.model if isinstance(self.model, ModelConfig) else kind,
            self.training,
            task,
            task_type.material_defaults(material),
            given,
            init=None if init is None else init.config,
        )
        require_possible(training, self.device)
        if training.lora is not None:
            require_peft()
            require_one_process(self.group.size)
        holds_out = training.val > 0 or self.val_text is not None
        require_reachable(task_type, training, holds_out=holds_out)
        tokenizer = self._tokenizer(task_type, material) if init is None else require_tokenizer(init)
        shape = self._shape(task_type, shape, material, tokenizer, init)
        free = "dropout" not in given and not isinstance(self.model, ModelConfig)
        return self._make(task_type, shape, training, material, tokenizer, init, choose_dropout=free)

    def _task_name(self) -> str:
        name = self.settings.get("task") or ("lm" if self.training is None else self.training.task.name)
        configuration.require_choice("task", name, configuration.TASK_CONFIGS)
        return str(name)

    def _kind(self, task: type[TaskConfig], init: Model | None) -> type[ModelConfig]:
        """Return the class of the model's configuration.

        Raises:
            ConfigError: the task cannot train such a model, or the model to begin with is of another kind.
        """
        if isinstance(self.model, str):
            configuration.require_choice("model", self.model, KINDS)
            kind = KINDS[self.model]
        elif self.model is not None:
            kind = type(self.model)
        else:
            kind = task.kinds[0] if init is None else type(init.config)
        if kind not in task.kinds:
            raise ConfigError(
                "a model of the kind {kind!r} cannot be trained for this task; choose from {allowed}.",
                kind=kind_name(kind),
                allowed=", ".join(map(kind_name, task.kinds)),
            )
        if init is not None and kind is not type(init.config):
            raise ConfigError(
                "{init} holds a model of the kind {found!r}, and one of the kind {kind!r} cannot begin "
                "with its parameters; leave the kind out.",
                init=self.init,
                found=kind_name(type(init.config)),
                kind=kind_name(kind),
            )
        return kind

    def _material(self, task: type[Task[Any]], val: float) -> Material:
        if isinstance(self.text, os.PathLike):
            self.report(tr("reading {path}", path=self.text))
        columns = task.config_type.columns
        text = material_of(self.text, columns)
        val_text = None if self.val_text is None else material_of(self.val_text, columns)
        material = task.material(text, val_text, val)
        return dataclasses.replace(material, report=partial(self._report_share, size_of(material.source)))

    def _tokenizer(self, task: type[Task[Any]], material: Material) -> Tokenizer:
        """Return the tokenizer that was given, or one that is trained on the training part."""
        if isinstance(self.tokenizer, Tokenizer):
            return self.tokenizer
        default = task.default_tokenizer(material)
        self.report(tr("making a tokenizer"))
        return task.make_tokenizer(material, self.tokenizer or default, self.tokenizer_options)

    def _shape(
        self,
        task: type[Task[Any]],
        wanted: ModelConfig,
        material: Material,
        tokenizer: Tokenizer,
        init: Model | None,
    ) -> ModelConfig:
        """Return the configuration of the model, with what follows from the material and the tokenizer."""
        fields, asked = configuration.to_dict(wanted), wanted.vocab_size
        if init is None:
            fields["vocab_size"] = tokenizer.vocab_size
        if asked not in (None, fields["vocab_size"]):
            raise ConfigError(
                "vocab_size={given} was given, and the tokenizer has {found} ids; leave vocab_size out.",
                given=asked,
                found=fields["vocab_size"],
            )
        known = configuration.field_types(type(wanted))  # a task names what any of its kinds may need
        follows = task.derived_fields(material, tokenizer, None if init is None else fields)
        fields |= {name: value for name, value in follows.items() if name in known}
        if init is not None or wanted.frame is None:
            shape = configuration.from_dict(type(wanted), fields)
            frame = frame_to_train(shape, tokenizer, None if init is None else init.config)
            fields["frame"] = configuration.to_dict(frame)
        return configuration.from_dict(type(wanted), fields)

    def _make(
        self,
        task_type: type[Task[Any]],
        shape: ModelConfig,
        training: TrainConfig,
        material: Material,
        tokenizer: Tokenizer,
        init: Model | None,
        *,
        choose_dropout: bool,
    ) -> TrainingRun:
        folder = RunFolder.create(self.out)
        with ExitStack() as held, memory_errors(shape, training):
            # Both are outside the block below: what another process makes stays as it is.
            held.enter_context(folder.lock())
            folder.require_free()  # again: another process may have made a run before this one held the lock
            try:
                folder.clear_checkpoints()
                self._report_share(size_of(material.source), 0.0)
                data = task_type.prepare(folder, material, tokenizer, shape, training)
                task = task_type(folder, data, tokenizer, shape, training)
                self.group.require_rows(task.rows_per_batch)
                self.report(tr("planning the run"))
                plan = make_plan(
                    shape, training, task, self.device, choose_dropout=choose_dropout, processes=self.group.size
                )
                run = new_run(
                    folder,
                    task,
                    plan.shape,
                    plan.config,
                    tokenizer,
                    self.device,
                    self.began,
                    self.report,
                    self.group,
                    self.make_model,
                )
                run.history.plan, run.history.notices = plan, [*task.notices, *plan.notices]
                run.history.numbers["planned_tokens"] = plan.tokens
                run.history.numbers["seconds_per_step"] = plan.seconds_per_step
                if init is not None:
                    new = adopt_parameters(run.model, init)
                    if training.lora is not None:
                        adapt(run, whole=new, base=write_base(folder, run.model, new))
                    Loop(run).checkpoint.save()  # no seed could make these parameters again
                self._write(run, plan, tokenizer, data)  # last: with config.json the folder is a run
            except BaseException:
                folder.discard()  # nothing was trained yet
                raise
            run.lock = held.pop_all()
        return run

    def _report_share(self, size: str, share: float) -> None:
        if share == 0:
            self.report(tr("turning {size} into tokens", size=size))
        else:
            self.report(tr("turning {size} into tokens: {share:.0%}", size=size, share=share))

    def _write(self, run: TrainingRun, plan: Plan, tokenizer: Tokenizer, data: dict[str, Any]) -> None:
        """Write tokenizer.json and config.json, with which the folder is a run."""
        if self.init is not None:
            data["init"] = os.fspath(self.init)
        adapter = {} if run.adapters is None else {"adapter": run.adapters.describe()}
        run.folder.write_tokenizer(tokenizer)
        run.folder.write_config(
            {
                **describe_model(plan.shape, tokenizer),
                **adapter,
                "train": {**plan.config.to_dict(), "planned_tokens": plan.tokens},
                "machine": {**describe_machine(self.device), "processes": self.group.size},
                "data": data,
                "metrics": {},
            }
        )


def new_run(
    folder: RunFolder,
    task: Task[Any],
    shape: ModelConfig,
    config: TrainConfig,
    tokenizer: Tokenizer,
    device: torch.device,
    began: float,
    report: Callable[[str], None],
    group: ProcessGroup,
    make_model: Callable[[ModelConfig], Model] | None = None,
) -> TrainingRun:
    """Make a run before its first step, with the first parameters of its model, which depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = (make_model or build)(shape)
    model.tokenizer = tokenizer
    if not config.shard or group.size == 1:  # shards are moved to their devices one by one
        model = model.to(device)
    train_attention_by(model, "fused" if config.attention == "fused" else "chunked")
    if config.recompute:
        recompute_blocks(model)
    return TrainingRun(
        folder=folder,
        task=task,
        config=config,
        device=device,
        model=model,
        objective=Objective(task, model),
        optimizers=make_optimizers(model, config, group.orthogonalise),
        history=RunHistory(began=began),
        lock=ExitStack(),
        report=report,
        group=group,
    )


def adapt(run: TrainingRun, *, whole: Collection[str], base: Path) -> None:
    """Let a run train adapters instead of the parameters that its model has.

    Args:
        whole, base: see `Adapters`.
    """
    assert run.config.lora is not None
    run.adapters = Adapters(run.model, run.config.lora, seed=run.config.seed, whole=whole, base=base)
    run.optimizers = make_optimizers(run.model, run.config)


# --- in all processes of a launch -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run as rank 0 has opened it. files: of the training state that it has read. sha256: of its text."""

    folder: Path
    config: TrainConfig  # config.json does not have that of a new stage yet
    sha256: str
    numbers: dict[str, Any]
    files: tuple[Path, ...]
    result: Finish | None


def share(run: TrainingRun, files: tuple[Path, ...]) -> None:
    """Let the other processes open a run that rank 0 has made or resumed, and begin it with them.

    Args:
        files: of the training state that it goes on from; none: the others have its parameters from rank 0.

    Raises:
        SharedFault: one of them cannot open it.
    """
    group = run.group
    if group.size == 1 and run.config.shard:
        run.history.notices.append(tr("{--shard} has no effect: this is one process, which has all parameters."))
    if group.size > 1:
        group.broadcast(
            Opened(
                folder=run.folder.path.resolve(),
                config=run.config,
                sha256=run.folder.read_config()["data"]["sha256"],
                numbers=run.history.numbers,
                files=tuple(file.resolve() for file in files),
                result=run.history.result,
            )
        )
        group.raise_if_any_failed()
    _begin(run)


def join(group: ProcessGroup, device: torch.device) -> TrainingRun:
    """Open the run that rank 0 makes or resumes, in another process. Its folder is only read.

    Raises:
        SharedFault: a process cannot open it. ProcessLost: another one has failed.
    """
    opened: Opened = group.broadcast()
    run, fault = None, ""
    try:
        run = _open(opened, group, device)
    except JumokError as error:
        fault = str(error)
    except (RuntimeError, OSError, ValueError, SafetensorError) as error:  # too little memory, for example
        fault = f"{type(error).__name__}: {error}"
    group.raise_if_any_failed(fault)
    assert run is not None
    _begin(run)
    return run


def _open(opened: Opened, group: ProcessGroup, device: torch.device) -> TrainingRun:
    if not opened.folder.is_dir():
        raise RunError(
            "{path} of rank 0 is not seen here; the run folder must be on a file system that all hosts share.",
            path=opened.folder,
        )
    folder, config = RunFolder.open(opened.folder), opened.config
    record = RunRecord.of(folder)
    if record.data["sha256"] != opened.sha256:
        raise RunError("{path} holds the run of another text than on rank 0.", path=folder.path)
    tokenizer = folder.read_tokenizer()
    task = record.task(folder, record.data, tokenizer, record.shape, config)
    with memory_errors(record.shape, config):
        run = new_run(
            folder,
            task,
            record.shape,
            config,
            tokenizer,
            device,
            time.monotonic(),
            lambda text: None,
            group,
        )
    run.history.numbers, run.history.result = opened.numbers, opened.result
    if opened.files and run.history.result is None:
        stored = stored_tensors(opened.files)
        if config.shard:
            run.history.restoring = stored
        else:
            restore_tensors(run, stored)
    return run


def _begin(run: TrainingRun) -> None:
    """Give all processes the same parameters and moments, or their shards: those of a saved state, or of rank 0."""
    group = run.group
    if run.history.result is not None or group.size == 1:
        return
    if not run.config.shard:
        with group.connected():
            run.objective = replicate(run.objective)
        return
    run.shards = Shards(run.task, run.model, group, run.config.precision, run.device)
    run.objective = run.shards.objective
    run.optimizers = make_optimizers(run.shards.model, run.config, group.orthogonalise)
    if run.history.restoring is not None:
        try:
            restore_together(run, run.history.restoring)
        except OSError as error:
            path = run.folder.path
            raise SharedFault("cannot read the training state of {path}: {error}.", path=path, error=error) from None


def silent(text: str) -> None:
    """Report nothing."""
