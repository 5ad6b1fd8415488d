"""Settings by name, as the command line and `jumok.train` take them, as the configurations that a trainer takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jumok import config as configuration
from jumok.config import ModelConfig, TrainConfig
from jumok.runs.folder import RunFolder
from jumok.runs.load import read_shape
from jumok.training.run_record import RunRecord, refuse_other_settings
from jumok.training.tasks import TASKS


def configurations(
    settings: Mapping[str, Any],
    *,
    size: str | None = None,
    kind: type[ModelConfig] | None = None,
    init: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """The arguments `model` and `training` of `Trainer.start`.

    Args:
        settings: fields of `kind` and of TrainConfig; a None counts as not given. size: a name in SIZES.
        kind: of model; None: that of `init`, or the default of the task. init: the folder of the model to begin with.

    Raises:
        ConfigError: a setting is unknown or out of range, or two do not fit together. RunError: there is no `init`.
    """
    task = settings.get("task") or "lm"
    configuration.require_choice("task", task, TASKS)
    other = None if init is None else read_shape(init)
    if kind is None:
        kind = TASKS[task].kinds[0] if other is None else type(other)
    same = other if type(other) is kind else None  # `Trainer.start` refuses another kind
    model, training = configuration.configure(settings, size, kind, same)
    return {"model": model, "training": training}


def given_again(out: str | os.PathLike[str], settings: Mapping[str, Any], size: str | None = None) -> TrainConfig:
    """The argument `training` of `Trainer.resume`; what is given again must be as recorded in the run folder.

    Raises:
        ConfigError: a setting is unknown or out of range. ResumeError: one differs; the message says which.
    """
    record = RunRecord.of(RunFolder.open(Path(out)))
    given = configuration.given_settings(settings, size, type(record.shape))
    refuse_other_settings(record, given, by_name=settings)
    known = configuration.field_types(TrainConfig)
    chosen = {name: value for name, value in settings.items() if name in known and value is not None}
    return configuration.from_dict(TrainConfig, chosen)
