"""A thread that owns an engine: callers in any thread submit requests and read the events of their texts."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from jumok.errors import JumokError
from jumok.inference.engine import Engine
from jumok.inference.requests import Event, Request, joined, overloaded
from jumok.inference.slots import Quantization
from jumok.inference.writer import Continuation
from jumok.models import most_texts
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT

logger = logging.getLogger("jumok.service")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts of what a service has done and is doing.

    Fields:
        running: texts in slots. waiting: texts without a slot. finished: texts that ended, for whatever reason.
        written: ids that were drawn. read: ids of prompts that the model read. reused: ids of prompts whose keys and
        values were there already.
    """

    running: int
    waiting: int
    finished: int
    written: int
    read: int
    reused: int


class Stream(Iterator[Event]):
    """The events of one text, from any thread. As an iterator it waits for each, and ends after the last.

    Raises:
        JumokError: the step of the model failed; from `next` and `take`.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self._service, self.request = service, request
        self._changed = threading.Condition()
        self._pending: list[Event] = []
        self._error: JumokError | None = None
        self._over = False  # the last event was put
        self._listener: Callable[[], None] | None = None

    def __next__(self) -> Event:
        with self._changed:
            while not self._pending and self._error is None and not self._over:
                self._changed.wait()
            event = self.take()
        if event is None:
            raise StopIteration
        return event

    def take(self) -> Event | None:
        """Return all events that are pending, joined to one, or None; do not wait."""
        with self._changed:
            if self._error is not None:
                raise self._error
            events, self._pending = self._pending, []
        return joined(events) if events else None

    def notify(self, listener: Callable[[], None]) -> None:
        """Call `listener` from the thread of the service when `take` has something; at once if it has already.

        It must return at once, such as `lambda: loop.call_soon_threadsafe(ready.set)`. What it raises is logged.
        """
        with self._changed:
            self._listener = listener
            ready = bool(self._pending) or self._error is not None
        if ready:
            listener()

    def cancel(self) -> None:
        """Write no more: the slot is free after the step that runs. The last event has the finish "cancelled"."""
        self._service._cancel(self)

    def put(self, event: Event | None, error: JumokError | None = None) -> None:
        """Add an event, or the error with which the text ends in place of pending events; the service calls it."""
        with self._changed:
            news = not self._pending or error is not None
            if event is not None:
                self._pending.append(event)
                self._over = event.finish is not None
            if error is not None:
                self._pending, self._error, self._over = [], error, True
            self._changed.notify_all()
            listener = self._listener
        if listener is not None and news:
            try:
                listener()
            except Exception:  # a mistake of one caller must not end the texts of the others
                logger.exception("the listener of a text failed")


class Service:
    """Lets a model write for many callers at once.

    Args:
        model: a GPT or an EncoderDecoder with its tokenizer, in eval mode as long as the service lives.
        slots: the most texts that are written side by side; fewer if the free memory does not hold the keys and values
            of so many texts as long as the context. waiting: texts that may wait for a slot.
        quantize: as in `jumok.generate`.

    Raises:
        ConfigError: quantised matrices where the C++ step does not compute the model.
    """

    def __init__(
        self,
        model: GPT | EncoderDecoder,
        *,
        slots: int = 64,
        waiting: int = 256,
        quantize: Quantization | None = None,
    ) -> None:
        self._engine = Engine(model, min(slots, most_texts(model)), quantize=quantize)
        self._most = waiting
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[Stream] = deque()
        self._cancelled: set[Stream] = set()
        self._closed = self._at_once = False
        self._finished = self._written = 0
        self._running: dict[Continuation, Stream] = {}  # of the thread alone
        self._thread = threading.Thread(target=self._run, name="jumok engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Stream:
        """Put a text into the queue.

        Raises:
            Overloaded: too many are waiting.
            RuntimeError: the service is closed.
        """
        stream = Stream(self, request)
        with self._changed:
            if self._closed:
                raise RuntimeError("the service is closed")
            if len(self._waiting) >= self._most + self._engine.free:  # those before a free slot do not wait
                raise overloaded(len(self._waiting))
            self._waiting.append(stream)
            self._changed.notify()
        return stream

    def counts(self) -> Counts:
        """Return what it has done so far."""
        with self._changed:
            return Counts(
                running=len(self._running),
                waiting=len(self._waiting),
                finished=self._finished,
                written=self._written,
                read=self._engine.read,
                reused=self._engine.reused,
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
            for text, stream in list(self._running.items()):
                self._deliver(text, stream)

    def _admit(self) -> bool:
        """Wait until there is something to do, and let texts in and out; whether to go on."""
        with self._changed:
            while not (self._waiting or self._running or self._cancelled or self._closed):
                self._changed.wait()
            if self._at_once:
                self._cancelled.update(self._waiting, self._running.values())
            cancelled, self._cancelled = self._cancelled, set()
            never_begun = [stream for stream in self._waiting if stream in cancelled]
            self._waiting = deque(stream for stream in self._waiting if stream not in cancelled)
            new = [self._waiting.popleft() for _ in range(min(self._engine.free, len(self._waiting)))]
            self._finished += len(never_begun)
        for stream in never_begun:
            stream.put(Event((), "", "cancelled"))
        for text, stream in list(self._running.items()):
            if stream in cancelled:
                self._engine.release(text)
                self._deliver(text, stream)
        for stream in new:
            try:
                self._running[self._engine.admit(stream.request)] = stream
            except Exception as error:  # whatever is wrong with one request
                with self._changed:
                    self._finished += 1
                stream.put(None, _shown(error))
        with self._changed:
            return bool(self._running or self._waiting) or not self._closed

    def _deliver(self, text: Continuation, stream: Stream) -> None:
        event = text.take()
        if event is None:
            return
        with self._changed:
            self._written += len(event.drawn)
            if event.finish is not None:
                del self._running[text]
                self._finished += 1
        stream.put(event)

    def _fail(self, error: Exception) -> None:
        """End all texts that run with an error."""
        shown = _shown(error)
        with self._changed:
            failed = dict(self._running)
            self._finished += len(failed)
            self._running.clear()
        for text, stream in failed.items():
            with suppress(Exception):  # the slot is free even if the rest of the text cannot be decoded
                self._engine.release(text)
            stream.put(None, shown)

    def _cancel(self, stream: Stream) -> None:
        with self._changed:
            if not self._closed or self._thread.is_alive():
                self._cancelled.add(stream)
                self._changed.notify()


def _shown(error: Exception) -> JumokError:
    """Return an error for a caller."""
    if isinstance(error, JumokError):
        return error
    shown = JumokError("the model failed while it generated: {error}", error=f"{type(error).__name__}: {error}")
    shown.__cause__ = error  # for logs, with its traceback
    return shown
