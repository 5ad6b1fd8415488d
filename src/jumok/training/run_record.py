"""What config.json records of a run, and whether what is given to a resumed run is what it was started with."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jumok import config as configuration
from jumok.config import ModelConfig, TrainConfig, resolve
from jumok.errors import ConfigError, ResumeError, RunError
from jumok.messages import shell, tr
from jumok.runs.config import training_of
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.training.tasks import TASKS, Task

OF_A_LAUNCH = configuration.fields_that_may_change(TrainConfig)
LM = ("task", "lm")  # which is not named
BUILT_IN = re.compile(r"(stories|numbers|talk)( \(built in\)|\(내장\))")  # the built-in corpora, in both languages


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A config.json.

    config, planned_tokens, machine: of its start. finished: the step and the reason of the end, or None.
    """

    folder: RunFolder
    content: dict[str, Any]
    shape: ModelConfig
    config: TrainConfig
    planned_tokens: int
    machine: dict[str, Any]
    data: dict[str, Any]
    finished: dict[str, Any] | None

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """Read that of a run folder.

        Raises:
            ResumeError: the folder holds a model that was not trained here, or a run that an earlier version extended.
            RunError: config.json is damaged.
        """
        path = folder.path / "config.json"
        if not folder.is_trained():
            raise ResumeError(
                "{out} holds a model, but no training to continue; train into another folder.", out=folder.path
            )
        content = folder.read_config()
        if content.get("stages"):
            raise ResumeError(
                "{out} was trained further by an earlier version of jumok, which this one does not continue; begin a "
                "new run with its parameters: {--init {out}}.",
                out=folder.path,
            )
        try:
            record = cls(
                folder=folder,
                content=content,
                planned_tokens=content["train"]["planned_tokens"],
                shape=folder.model_config(),
                config=training_of(content["train"]),
                machine=content["machine"],
                data=content["data"],
                finished=content.get("finished"),
            )
            if record.config.lora is not None:
                content["adapter"]["trained"], content["adapter"]["sha256"]
            if record.finished is not None:
                record.finished["step"], record.finished["reason"], content["metrics"]
            record.machine["versions"].keys()
            missing = record.task.keys - record.data.keys()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunError("{path} is damaged ({error}); restore it from a copy.", path=path, error=error) from None
        if missing:
            names = ", ".join(sorted(missing))
            raise RunError("{path} is damaged: data lacks {missing}.", path=path, missing=names)
        return record

    @property
    def task(self) -> type[Task[Any]]:
        """Return the task of the run."""
        return TASKS[self.config.task.name]


def of_this_launch(config: TrainConfig, given: Mapping[str, Any]) -> TrainConfig:
    """Return the configuration of a resumed run, with the settings that may change whenever it is continued."""
    return dataclasses.replace(config, **{name: given[name] for name in OF_A_LAUNCH & given.keys()})


def refuse_other_settings(record: RunRecord, given: Mapping[str, Any]) -> None:
    """Raise ResumeError for settings that differ from those of the run, and that may not.

    Args:
        given: settings by name, those of a size among them.
    """
    of_the_task = configuration.fields_that_may_change(type(record.config.task))  # `Task.begin` looks at them
    free = OF_A_LAUNCH | of_the_task
    recorded = {**configuration.to_dict(record.shape), **record.config.to_dict()}
    differing = {
        key: tr("{name}={recorded!r}, not {given!r}", name=key, recorded=recorded[key], given=value)
        for key, value in given.items()
        if key not in free and value != "auto" and recorded[key] != value
    }
    if not differing:
        return
    further = ""
    if record.finished is not None:
        command = further_command(record.folder.path, record.data, record.shape, record.config)
        further = tr(" This run is finished. To train its model further: {command}", command=command)
    raise ResumeError(
        "{out} was started with {differing}. A run continues with the settings it began with: leave them out, or "
        "start a new run with another {--out RUN}.{further}",
        out=record.folder.path,
        differing="; ".join(differing.values()),
        further=further,
    )


def further_command(run: Path, data: Mapping[str, Any], shape: ModelConfig, config: TrainConfig, **changed: Any) -> str:
    """Return the command that trains the model of a finished run further, as a new run beside it.

    Its settings are those of the run; they are named where a start with `--init` would have others.

    Args:
        data: what the run was trained on, as config.json has it. changed: settings that differ from those of the run.
    """
    sources, task = data["sources"], config.task
    texts = sources if all(map(os.path.exists, sources)) else [] if all(map(BUILT_IN.fullmatch, sources)) else ["TEXT"]
    names = task.columns if len(task.columns) == 2 else ()  # those of conversations are recognized
    columns = {name: own for name, own in zip(names, data.get("columns", ()), strict=False) if name != own}
    lora = {} if config.lora is None else {"lora": config.lora}
    given = {"steps": config.steps, **lora}
    _, usual = resolve(type(shape), None, type(task), {}, given, init=shape, trained_with=config.to_dict())
    others = usual.to_dict()  # what is automatic is decided anew
    own = {name: value for name, value in config.to_dict().items() if others[name] not in (value, "auto")}
    settings = {
        "task": task.name,
        **columns,
        **lora,
        "minutes": config.minutes,
        "steps": config.steps,
        **own,
        **changed,
    }
    options = [_option(name, value) for name, value in settings.items() if value is not None and (name, value) != LM]
    return shell("jumok", "train", *texts, "--init", run, *options, "--out", f"{run}-further")


def _option(name: str, value: object) -> str:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value:g}" if isinstance(value, float) else f"--{flag}={value}"


def refuse_other_texts(record: RunRecord, text: Text | Table | None, val_text: Text | Table | None) -> None:
    """Raise ResumeError for a text that is not the one that the run was started with; None will do."""
    data = record.data
    if text is not None and text.sha256 != data["sha256"]:
        raise ResumeError(
            "{out} was started with another text ({sources}, sha256 {sha256}…), not with {names} (sha256 {other}…). "
            "Leave it out to continue with what the run has, or start a new run with another {--out}.",
            out=record.folder.path,
            sources=", ".join(data["sources"]),
            sha256=data["sha256"][:12],
            names=", ".join(source.name for source in text.sources),
            other=text.sha256[:12],
        )
    if val_text is not None and val_text.sha256 != data["val_sha256"]:
        raise ResumeError(
            "{out} was not started with this held-out text ({names}). Leave it out to continue with what the run has, "
            "or start a new run with another {--out}.",
            out=record.folder.path,
            names=", ".join(source.name for source in val_text.sources),
        )


def require_reachable(task: type[Task[Any]], config: TrainConfig, *, holds_out: bool) -> None:
    """Raise ConfigError for a goal that the run could not have."""
    if config.stop_at is None:
        return
    task.goal.require(config.stop_at)
    if not holds_out:
        raise ConfigError(
            "stop_at={stop_at:g} is measured on the held-out part, and val=0 holds nothing out; leave one of them out.",
            stop_at=config.stop_at,
        )


def size_of(source: Text | Table) -> str:
    """Return the length of a source, in words."""
    if isinstance(source, Text):
        return tr("{chars:,} characters", chars=source.chars)
    return tr("{rows:,} rows", rows=len(source))
