"""The start of a run: read the material, choose a tokenizer, plan, and make the folder and the model.

In a launch of several processes rank 0 makes the run, or resumes it (`jumok.training.resume`), and the others open it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from jumok import config as configuration
from jumok.config import ModelConfig, TaskConfig, TrainConfig
from jumok.config.features import KINDS, kind_name
from jumok.corpora.hub import is_hf, source_of
from jumok.device import describe_machine
from jumok.errors import ConfigError, JumokError, RunError, SharedFault
from jumok.messages import tr
from jumok.models import Model, build
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import frame_of, frame_to_train
from jumok.nn.attention import train_attention_by
from jumok.processors import waiting_threads
from jumok.runs.checkpoints import stored_tensors
from jumok.runs.config import describe_model
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.runs.load import load
from jumok.runs.parameters import adopt_parameters
from jumok.text import Table, Text, material_of
from jumok.tokenizers import Tokenizer
from jumok.training.adapters import Adapters, read_base, require_one_process, require_peft, write_base
from jumok.training.checkpoint import restore_tensors, restore_together
from jumok.training.compilation import recompute_blocks
from jumok.training.loop import Loop
from jumok.training.optim import Objective, make_optimizers
from jumok.training.parallel import ProcessGroup, Shards, replicate
from jumok.training.policy import make_plan, memory_errors, require_possible
from jumok.training.run import RunHistory, TrainingRun
from jumok.training.run_record import RunRecord, require_reachable, size_of
from jumok.training.tasks import TASKS, Material, Task

Source = str | os.PathLike[str] | Text | Table


def start(
    out: Path,
    text: Source,
    model: ModelConfig | str | None,
    training: TrainConfig | None,
    settings: Mapping[str, Any],
    *,
    size: str | None,
    tokenizer: Tokenizer | str | None,
    tokenizer_options: Mapping[str, Any],
    val_text: Source | None,
    init: str | os.PathLike[str] | None,
    device: torch.device,
    began: float,
    report: Callable[[str], None],
    group: ProcessGroup,
    make_model: Callable[[ModelConfig], Model] | None,
) -> TrainingRun:
    """Make a run and its folder, with nothing trained yet. The arguments are those of `Trainer.start`."""
    name = str(settings.get("task") or ("lm" if training is None else training.task.name))
    configuration.require_choice("task", name, TASKS)
    task_type = TASKS[name]
    other = None if init is None else load(init)
    kind = _kind(task_type.config_type, model, other, init)
    given = configuration.named_settings(settings, size, kind, task_type.config_type)
    if training is None and "val" in given:
        configuration.require_setting(TrainConfig, "val", given["val"])
    val = training.val if training else given.get("val", TrainConfig.val)
    columns = task_type.config_type.columns
    if isinstance(text, os.PathLike):
        report(tr("reading {path}", path=text))
    held_out = None if val_text is None else material_of(val_text, columns)
    material = task_type.material(material_of(text, columns), held_out, val)
    shape, training = configuration.resolve(
        model if isinstance(model, ModelConfig) else kind,
        training,
        task_type.config_type,
        task_type.material_defaults(material),
        given,
        init=None if other is None else other.config,
        trained_with=None if init is None else _trained_with(Path(init), material),
    )
    require_possible(training, device)
    if training.lora is not None:
        require_peft()
        require_one_process(group.size)
    if task_type.one_process and group.size > 1:
        raise ConfigError("{--task {task}} trains in one process; leave out {--processes} and torchrun.", task=name)
    require_reachable(task_type, training, holds_out=training.val > 0 or val_text is not None)
    if other is not None:
        tokenizer = require_tokenizer(other)
    elif not isinstance(tokenizer, Tokenizer):
        report(tr("making a tokenizer"))
        tokenizer = task_type.make_tokenizer(
            material, task_type.default_tokenizer(material) if tokenizer is None else tokenizer, tokenizer_options
        )
    frame = shape.frame if other is None else frame_of(other.config, tokenizer)
    tokenizer = task_type.adapt_tokenizer(tokenizer, () if frame is None else frame.before)
    shape = _whole_shape(task_type, shape, material, tokenizer, other)

    size_in_words = size_of(material.source)
    folder = RunFolder.create(out)
    with ExitStack() as held, memory_errors(shape, training):
        # Both are outside the block below: what another process makes stays as it is.
        held.enter_context(folder.lock())
        folder.require_free()  # again: another process may have made a run before this one held the lock
        try:
            folder.clear_checkpoints()
            report(tr("turning {size} into tokens", size=size_in_words))
            material = dataclasses.replace(
                material,
                report=lambda share: report(
                    tr("turning {size} into tokens: {share:.0%}", size=size_in_words, share=share)
                ),
            )
            data = task_type.prepare(folder, material, tokenizer, shape, training)
            task = task_type(folder, data, tokenizer, shape, training)
            group.require_rows(task.rows_per_batch)
            report(tr("planning the run"))
            plan = make_plan(
                shape,
                training,
                task,
                device,
                choose_dropout="dropout" not in given and not isinstance(model, ModelConfig),
                processes=group.size,
            )
            run = new_run(folder, task, plan.shape, plan.config, tokenizer, device, began, report, group, make_model)
            run.history.plan, run.history.notices = plan, [*task.notices, *plan.notices]
            run.history.numbers["planned_tokens"] = plan.tokens
            run.history.numbers["seconds_per_step"] = plan.seconds_per_step
            if init is not None and other is not None:
                data["init"] = source_of(init)
                new = adopt_parameters(run.model, other)
                if training.lora is not None:
                    adapt(run, fully_trained=new, base=write_base(folder, run.model, new))
            data |= run.begin_task(plan.config.to_dict())
            if other is not None:
                Loop(run).checkpoint.save()  # no seed could make these parameters again
            folder.write_tokenizer(tokenizer)
            folder.write_config(  # last: with it the folder is a run
                {
                    **describe_model(plan.shape, tokenizer),
                    **({} if run.adapters is None else {"adapter": run.adapters.describe()}),
                    "train": {**plan.config.to_dict(), "planned_tokens": plan.tokens},
                    "machine": {
                        **describe_machine(device),
                        "processes": group.size,
                        "waiting_threads": waiting_threads()._asdict(),
                    },
                    "data": data,
                    "metrics": {},
                }
            )
        except BaseException:
            folder.discard()  # nothing was trained yet
            raise
        run.lock = held.pop_all()
    return run


def _kind(
    task: type[TaskConfig], given: ModelConfig | str | None, other: Model | None, init: str | os.PathLike[str] | None
) -> type[ModelConfig]:
    """Return the class of the model's configuration.

    Args:
        given: the model, or its kind. other: the model to begin with, from `init`.

    Raises:
        ConfigError: the task cannot train such a model, or the model to begin with is of another kind.
    """
    if isinstance(given, str):
        configuration.require_choice("model", given, KINDS)
        kind = KINDS[given]
    elif given is not None:
        kind = type(given)
    else:
        kind = task.kinds[0] if other is None else type(other.config)
    if kind not in task.kinds:
        if given is None:
            raise ConfigError(
                "{init} holds a model of the kind {kind!r}, which this task does not train; choose a task of it with "
                "{--task}: {tasks}.",
                init=init,
                kind=kind_name(kind),
                tasks=", ".join(name for name, one in TASKS.items() if kind in one.config_type.kinds),
            )
        raise ConfigError(
            "a model of the kind {kind!r} cannot be trained for this task; choose from {allowed}.",
            kind=kind_name(kind),
            allowed=", ".join(map(kind_name, task.kinds)),
        )
    if other is not None and kind is not type(other.config):
        raise ConfigError(
            "{init} holds a model of the kind {found!r}, and one of the kind {kind!r} cannot begin "
            "with its parameters; leave the kind out.",
            init=init,
            found=kind_name(type(other.config)),
            kind=kind_name(kind),
        )
    return kind


def _trained_with(init: Path, material: Material) -> Mapping[str, Any] | None:
    """Return the settings of the run that has trained the model of `init`, if it learned from the same material."""
    recorded = {} if is_hf(init) else RunFolder.open(init).read_config()
    same = (recorded.get("data") or {}).get("sha256") == material.source.sha256
    return recorded.get("train") if same else None


def _whole_shape(
    task: type[Task[Any]], wanted: ModelConfig, material: Material, tokenizer: Tokenizer, other: Model | None
) -> ModelConfig:
    """Return the configuration of the model, with what follows from the material and the tokenizer.

    Args:
        other: the model to begin with.
    """
    fields, asked = configuration.to_dict(wanted), wanted.vocab_size
    # A model to begin with may have more ids than its tokenizer, and fewer than the one of the run.
    fields["vocab_size"] = tokenizer.vocab_size if other is None else max(asked or 0, tokenizer.vocab_size)
    if other is None and asked not in (None, tokenizer.vocab_size):
        raise ConfigError(
            "vocab_size={given} was given, and the tokenizer has {found} ids; leave vocab_size out.",
            given=asked,
            found=tokenizer.vocab_size,
        )
    known = configuration.field_types(type(wanted))  # a task names what any of its kinds may need
    follows = task.derived_fields(material, tokenizer, None if other is None else fields)
    fields |= {name: value for name, value in follows.items() if name in known}
    if other is not None or wanted.frame is None:
        shape = configuration.from_dict(type(wanted), fields)
        frame = frame_to_train(shape, tokenizer, None if other is None else other.config)
        fields["frame"] = configuration.to_dict(frame)
    return configuration.from_dict(type(wanted), fields)


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


def reopen(
    record: RunRecord,
    config: TrainConfig,
    device: torch.device,
    began: float,
    report: Callable[[str], None],
    group: ProcessGroup,
) -> TrainingRun:
    """Make the run of a folder as it was before its first step; config: that of this launch."""
    folder, shape, tokenizer = record.folder, record.shape, record.folder.read_tokenizer()
    task = record.task(folder, record.data, tokenizer, shape, config)
    group.require_rows(task.rows_per_batch)
    with memory_errors(shape, config):
        run = new_run(folder, task, shape, config, tokenizer, device, began, report, group)
    if config.lora is not None:
        require_one_process(group.size)
        adapted = record.content["adapter"]
        adapt(run, fully_trained=adapted["trained"], base=read_base(folder, run.model, adapted))
    return run


def adapt(run: TrainingRun, *, fully_trained: Collection[str], base: Path) -> None:
    """Let a run train adapters instead of the parameters that its model has.

    Args:
        fully_trained, base: see `Adapters`.
    """
    assert run.config.lora is not None
    run.adapters = Adapters(run.model, run.config.lora, seed=run.config.seed, fully_trained=fully_trained, base=base)
    run.optimizers = make_optimizers(run.model, run.config)


# --- in all processes of a launch -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run as rank 0 has opened it. files: of the training state that it has read. sha256: of its text."""

    folder: Path
    config: TrainConfig  # of this launch
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
    record, config = RunRecord.of(RunFolder.open(opened.folder)), opened.config
    if record.data["sha256"] != opened.sha256:
        raise RunError("{path} holds the run of another text than on rank 0.", path=opened.folder)
    run = reopen(record, config, device, time.monotonic(), lambda text: None, group)
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
