"""A thread that owns an engine: callers in any thread submit requests and get the events of their texts."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jumok.errors import JumokError
from jumok.inference.engine import Engine
from jumok.inference.native.parameters import NativeModel
from jumok.inference.requests import Event, Request, overloaded
from jumok.inference.slots import Quantization
from jumok.inference.writer import Continuation
from jumok.models import most_texts

if TYPE_CHECKING:
    from jumok.models.encoder_decoder import EncoderDecoder
    from jumok.models.gpt import GPT

logger = logging.getLogger("jumok.service")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of what a service has done and is doing.

    Fields:
        running: texts in slots. waiting: texts without a slot. finished: texts that ended, for whatever reason.
    """

    running: int
    waiting: int
    finished: int


@dataclass(frozen=True, eq=False)
class Submitted:
    """A text that a service writes.

    Fields:
        deliver: called in the thread of the service with each event, the last of which has a `finish`, or with the
            error that ends the text. It must return at once. What it raises is logged.
    """

    request: Request
    deliver: Callable[[Event | JumokError], None]


class Service:
    """Lets a model write for many callers at once.

    Args:
        model: a GPT or an EncoderDecoder with its tokenizer.
        slots: the most texts that are written side by side; fewer if the free memory does not hold the keys and values
            of so many texts as long as the context. waiting: texts that may wait for a slot.
        quantize: as in `jumok.generate`.

    Raises:
        ConfigError: quantised matrices where the C++ step does not compute the model.
    """

    def __init__(
        self,
        model: GPT | EncoderDecoder | NativeModel,
        *,
        slots: int = 64,
        waiting: int = 256,
        quantize: Quantization | None = None,
    ) -> None:
        if isinstance(model, NativeModel):
            most = most_texts(model.config)
        else:
            weight = model.token_embedding.weight
            most = most_texts(model.config, weight.device, weight.itemsize)
        self._engine = Engine(model, min(slots, most), quantize=quantize)
        self._most = waiting
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[Submitted] = deque()
        self._cancelled: set[Submitted] = set()
        self._closed = self._at_once = False
        self._finished = 0
        self._running: dict[Continuation, Submitted] = {}  # of the thread alone
        self._thread = threading.Thread(target=self._run, name="jumok engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, deliver: Callable[[Event | JumokError], None]) -> Submitted:
        """Put a text into the queue; see `Submitted`.

        Raises:
            Overloaded: too many are waiting.
            RuntimeError: the service is closed.
        """
        submitted = Submitted(request, deliver)
        with self._changed:
            if self._closed:
                raise RuntimeError("the service is closed")
            if len(self._waiting) >= self._most + self._engine.free:  # those before a free slot do not wait
                raise overloaded(len(self._waiting))
            self._waiting.append(submitted)
            self._changed.notify()
        return submitted

    def cancel(self, submitted: Submitted) -> None:
        """Write no more of a text: its slot is free after the step that runs, and it ends with "cancelled"."""
        with self._changed:
            if not self._closed or self._thread.is_alive():
                self._cancelled.add(submitted)
                self._changed.notify()

    def counts(self) -> Counts:
        """Return what it has done so far."""
        with self._changed:
            return Counts(
                running=len(self._running),
                waiting=len(self._waiting),
                finished=self._finished,
            )

    def close(self, *, finish: bool = True, timeout: float | None = None) -> None:
        """Take no new requests, and end when all texts are written, or at once with the finish "cancelled".

        Args:
            timeout: seconds to wait for the end; the thread goes on after them.
        """
        with self._changed:
            self._closed, self._at_once = True, self._at_once or not finish
            self._changed.notify()
        self._thread.join(timeout)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._admit():
            try:
                self._engine.step()
            except Exception as error:  # whatever a step raises must not end the other callers' service
                self._fail(error)
                continue
            for text, submitted in list(self._running.items()):
                self._deliver(text, submitted)

    def _admit(self) -> bool:
        """Wait until there is something to do, and let texts in and out; whether to go on."""
        with self._changed:
            while not (self._waiting or self._running or self._cancelled or self._closed):
                self._changed.wait()
            if self._at_once:
                self._cancelled.update(self._waiting, self._running.values())
            cancelled, self._cancelled = self._cancelled, set()
            never_begun = [one for one in self._waiting if one in cancelled]
            self._waiting = deque(one for one in self._waiting if one not in cancelled)
            new = [self._waiting.popleft() for _ in range(min(self._engine.free, len(self._waiting)))]
        for submitted in never_begun:
            self._end(submitted, Event((), "", "cancelled"))
        for text, submitted in list(self._running.items()):
            if submitted in cancelled:
                self._engine.release(text)
                self._deliver(text, submitted)
        for submitted in new:
            try:
                self._running[self._engine.admit(submitted.request)] = submitted
            except Exception as error:  # whatever is wrong with one request
                self._end(submitted, _shown(error))
        with self._changed:
            return bool(self._running or self._waiting) or not self._closed

    def _deliver(self, text: Continuation, submitted: Submitted) -> None:
        """Deliver what is new of a text that runs."""
        event = text.take()
        if event is None:
            return
        if event.finish is None:
            _call(submitted, event)
        else:
            del self._running[text]
            self._end(submitted, event)

    def _end(self, submitted: Submitted, last: Event | JumokError) -> None:
        with self._changed:
            self._finished += 1
        _call(submitted, last)

    def _fail(self, error: Exception) -> None:
        """End all texts that run with an error."""
        failed, self._running = self._running, {}
        for text, submitted in failed.items():
            with suppress(Exception):  # the slot is free even if the rest of the text cannot be decoded
                self._engine.release(text)
            self._end(submitted, _shown(error))


def _call(submitted: Submitted, found: Event | JumokError) -> None:
    try:
        submitted.deliver(found)
    except Exception:  # a mistake of one caller must not end the texts of the others
        logger.exception("an event of a text could not be delivered")


def _shown(error: Exception) -> JumokError:
    """Return an error for a caller."""
    if isinstance(error, JumokError):
        return error
    shown = JumokError("the model failed while it generated: {error}", error=f"{type(error).__name__}: {error}")
    shown.__cause__ = error  # for logs, with its traceback
    return shown
