"""Draws the pictures of a run in its folder: loss.png, and those of its task."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from jumok.errors import JumokError
from jumok.messages import tr
from jumok.models import Model
from jumok.runs.events import Eval, Event, Finish
from jumok.runs.folder import RunFolder
from jumok.training.tasks import Task
from jumok.view.training_pictures import draw_loss

DRAW_EVERY = 30.0  # seconds between drawings of the loss during a run; 0: at each validation
DRAW_AT_MOST = 20  # times as long as a drawing takes lies between two of them: it reads the whole log


class Pictures:
    """A subscriber of events: it draws after validations, and at the end of a run.

    A picture that cannot be drawn does not end the run: the first such error is reported, in a line. One that cannot be
    written does (`RunError`), like any other file of the run.

    Args:
        report: called with that line.
    """

    def __init__(self, folder: RunFolder, task: Task[Any], model: Model, report: Callable[[str], None]) -> None:
        self._folder, self._task, self._model, self._report = folder, task, model, report
        self._drawn, self._seconds, self._failed = -math.inf, 0.0, False

    def __call__(self, event: Event) -> None:
        """Draw what the event has changed; the model has its best parameters at the end."""
        if isinstance(event, Eval) and time.monotonic() - self._drawn >= self._pause:
            self._try(self._draw_loss)
        if isinstance(event, Finish) and event.reason != "interrupted":
            self._try(self._draw_loss)
            self._try(lambda: self._task.draw(self._model, self._folder))

    @property
    def _pause(self) -> float:
        return DRAW_EVERY and max(DRAW_EVERY, DRAW_AT_MOST * self._seconds)

    def _try(self, draw: Callable[[], None]) -> None:
        try:
            draw()
        except JumokError:
            raise
        except Exception as error:  # whatever matplotlib raises
            if not self._failed:
                self._report(tr("A picture could not be drawn: {error!r}", error=error))
            self._failed = True

    def _draw_loss(self) -> None:
        began = time.monotonic()
        with self._folder.writing("loss.png"):
            draw_loss(self._folder.logs.events(), self._folder.path / "loss.png", label=self._task.loss_label)
        self._drawn = time.monotonic()
        self._seconds = self._drawn - began
