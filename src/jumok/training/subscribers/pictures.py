"""Draws the pictures of a run in its folder: loss.png, and those of its task."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from jumok.errors import JumokError
from jumok.messages import tr
from jumok.models import Model
from jumok.runs.events import Eval, Event, Finish
from jumok.runs.folder import RunFolder
from jumok.training.tasks import Task
from jumok.view.run_pictures import draw_loss

DRAW_EVERY = 30.0  # seconds between drawings of the loss during a run, 0 for each validation; or more:
DRAW_SHARE = 0.01  # of the time of a long run, whose log takes long to read


class Pictures:
    """A subscriber of events: it draws after validations, and at the end of a run.

    A picture that cannot be drawn does not end the run: the first such error is reported, in a line. One that cannot be
    written does (`RunError`), like any other file of the run.

    Args:
        report: called with that line.
    """

    def __init__(self, folder: RunFolder, task: Task[Any], model: Model, report: Callable[[str], None]) -> None:
        self._folder, self._task, self._model, self._report = folder, task, model, report
        # Short runs draw at their end only: the first picture also imports matplotlib, which takes half a second.
        self._next, self._failed = time.monotonic() + DRAW_EVERY, False

    def __call__(self, event: Event) -> None:
        """Draw what the event has changed; the model has its best parameters at the end."""
        if isinstance(event, Eval) and time.monotonic() >= self._next:
            self._try(self._draw_loss)
        if isinstance(event, Finish) and event.reason != "interrupted":
            self._try(self._draw_loss)
            self._try(lambda: self._task.draw(self._model, self._folder))

    def _try(self, draw: Callable[[], None]) -> None:
        # A figure refers to itself, and its pixels are far more than the collector counts: without this a run grew by
        # 2 MB with each picture. Among the objects of the last moment, it is found at once.
        collects = gc.isenabled()
        gc.disable()
        try:
            draw()
        except JumokError:
            raise
        except Exception as error:  # whatever matplotlib raises
            if not self._failed:
                self._report(tr("A picture could not be drawn: {error!r}", error=error))
            self._failed = True
        finally:
            gc.collect(0)
            if collects:
                gc.enable()

    def _draw_loss(self) -> None:
        began = time.monotonic()
        with self._folder.writing("loss.png"):
            draw_loss(
                self._folder.logs.events(),
                self._folder.path / "loss.png",
                label=self._task.loss_label,
                beside=self._task.drawn_beside,
            )
        now = time.monotonic()
        self._next = now + (DRAW_EVERY and max(DRAW_EVERY, (now - began) / DRAW_SHARE))
