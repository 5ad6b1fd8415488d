"""Draws the pictures of a run in its folder: loss.png, and those of its task."""

from __future__ import annotations

import math
import time
from typing import Any

from jumok.models import Model
from jumok.runs.events import Eval, Event, Finish
from jumok.runs.folder import RunFolder
from jumok.training.tasks import Task
from jumok.view.training_pictures import draw_loss

DRAW_EVERY = 30.0  # seconds between drawings of the loss during a run


class Pictures:
    """A subscriber of events: it draws after validations, and at the end of a run."""

    def __init__(self, folder: RunFolder, task: Task[Any], model: Model) -> None:
        self._folder, self._task, self._model = folder, task, model
        self._drawn = -math.inf

    def __call__(self, event: Event) -> None:
        """Draw what the event has changed; the model has its best weights at the end."""
        if isinstance(event, Eval) and time.monotonic() - self._drawn >= DRAW_EVERY:
            self._draw_loss()
        if isinstance(event, Finish) and event.reason != "interrupted":
            self._draw_loss()
            self._task.draw(self._model, self._folder)

    def _draw_loss(self) -> None:
        with self._folder.writing("loss.png"):
            draw_loss(self._folder.logs.metrics(), self._folder.path / "loss.png", label=self._task.loss_label)
        self._drawn = time.monotonic()
