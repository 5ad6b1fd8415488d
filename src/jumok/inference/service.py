"""A thread that owns an engine: callers in any thread submit requests and read the events of their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jumok.inference.matrices import Quantization
from jumok.inference.requests import Event, Request
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a service has done and is doing.

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
    """The events of one text, from any thread. As an iterator it waits for each, and ends after the last."""

    def __next__(self) -> Event:
        raise NotImplementedError

    def take(self) -> Event | None:
        """All events that are pending, joined to one, or None; does not wait."""
        raise NotImplementedError

    def notify(self, listener: Callable[[], None]) -> None:
        """Call `listener` from the thread of the service when `take` has something; at once if it has already.

        It must return at once, such as `lambda: loop.call_soon_threadsafe(ready.set)`.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """Write no more: the slot is free after the step that runs. The last event has the finish "cancelled"."""
        raise NotImplementedError


class Service:
    """A model that writes for many callers at once.

    Args:
        model: a GPT or an EncoderDecoder with its tokenizer, in eval mode as long as the service lives.
        slots: texts that are written side by side. waiting: texts that may wait for a slot.
        quantize: as in `jumok.generate`.
        compile: whether to build the native step if this machine has a compiler and no built one is there.
    """

    def __init__(
        self,
        model: GPT | EncoderDecoder,
        *,
        slots: int = 64,
        waiting: int = 256,
        quantize: Quantization | None = None,
        compile: bool = False,
    ) -> None:
        raise NotImplementedError

    def submit(self, request: Request) -> Stream:
        """Put a text into the queue.

        Raises:
            Overloaded: too many are waiting.
            RuntimeError: the service is closed.
        """
        raise NotImplementedError

    def counts(self) -> Counts:
        """What it has done so far."""
        raise NotImplementedError

    def close(self, *, finish: bool = True, timeout: float | None = None) -> None:
        """Take no new requests, and end when all texts are written, or at once with the finish "cancelled"."""
        raise NotImplementedError
