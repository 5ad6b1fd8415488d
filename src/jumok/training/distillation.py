"""Distillation: the first part of a run trains a teacher, the rest a student, from the text and from its predictions.

The student has the shape of the teacher and other initial parameters. It learns a text that is read many times better
than a model that goes on alone (https://arxiv.org/abs/1805.04770; measured in bench/LOG.md). The teacher reads the text
once. The likeliest tokens that it predicts for each place are stored with their probabilities, so a step of the student
costs hardly more than one of the teacher, and a resumed run needs no teacher.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from jumok.config import TrainConfig
from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.nn.blocks import Block
from jumok.runs.events import Event, Student
from jumok.runs.parameters import parameters_of
from jumok.training.predictions import Predictions, predict, write_predictions
from jumok.training.state import TrainingRun
from jumok.training.tasks.language_modelling import LanguageModelling


def require_distillation(config: TrainConfig, *, processes: int, from_scratch: bool) -> None:
    """Raise ConfigError for a teacher in a run that cannot have one."""
    fault = against_distillation(config, processes=processes, from_scratch=from_scratch)
    if config.teacher and fault is not None:
        raise fault


def against_distillation(config: TrainConfig, *, processes: int, from_scratch: bool) -> ConfigError | None:
    """Why a run cannot have a teacher; None if it can."""
    facts = {"teacher": config.teacher}
    if config.task != "lm":
        return ConfigError(
            "teacher={teacher:g} applies to {--task lm}, but the task is {task}; leave it out.",
            **facts,
            task=config.task,
        )
    if not from_scratch:
        return ConfigError(
            "teacher={teacher:g} applies to a model that begins anew: its second part starts with new parameters, and "
            "those of {--init} would be lost. Leave one of the two out.",
            **facts,
        )
    if processes > 1:
        return ConfigError(
            "teacher={teacher:g} trains in one process; leave out {--processes} and torchrun, or leave out "
            "{--teacher}.",
            **facts,
        )
    return None


class Distillation:
    """Puts the student in the place of the teacher, when that has taken its last step."""

    def __init__(self, run: TrainingRun) -> None:
        self._run = run
        self._set_dropout()

    @property
    def due(self) -> bool:
        """Whether the teacher has taken its last step."""
        run = self._run
        return run.trains_teacher and not run.state.reached and run.model_is_trained

    def predictions(self, stop: Callable[[], bool]) -> Predictions | None:
        """What the best parameters so far predict, on the disk as well; None if it was stopped."""
        run, task, model = self._run, self._run.task, self._run.model
        assert isinstance(task, LanguageModelling)  # `require_distillation`
        assert isinstance(model, GPT)
        predictions = Predictions.blank(len(task.train), model.config.vocab_size)
        with run.evaluating():
            for share in predict(model, task.train, predictions):
                run.report(tr("the teacher predicts the text: {share:.0%}", share=share))
                if stop():
                    return None
        run.state.predictions = write_predictions(run.folder, predictions)
        return predictions

    def begin_student(self, predictions: Predictions) -> Event:
        """Give the model new parameters, and its optimizers no moments."""
        run, state = self._run, self._run.state
        run.model.load_state_dict(first_parameters(run), strict=False)
        for optimizer in run.optimizers:
            optimizer.state.clear()
        run.task.learn_from(predictions)
        state.student_step, state.student_began = state.step, state.progress
        state.lowest, state.worse, state.cooldown = None, 0, None
        self._set_dropout()
        return Student(step=state.step, best_step=state.best_step)

    def _set_dropout(self) -> None:
        """A teacher has none: in its share of a run it hardly sees the text often enough to need it."""
        run = self._run
        if run.config.teacher:
            for part in run.model.modules():
                if isinstance(part, GPT | Block):
                    part.dropout.rate = 0.0 if run.trains_teacher else run.model.config.dropout


def first_parameters(run: TrainingRun) -> dict[str, Tensor]:
    """Those of the student, which depend on the seed alone, and are not those of the teacher."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(run.config.seed + 1)
        return parameters_of(build(run.model.config))
