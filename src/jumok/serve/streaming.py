"""Responses that are made while the client is there, and the events of texts for asyncio.

A stream is sent as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), each a JSON
object. JSON is written by hand where a text grows, because 64 streams share Python with the thread that writes them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from jumok.errors import ConfigError, JumokError
from jumok.inference.requests import Event, Request, overloaded
from jumok.inference.service import Service, Stream
from jumok.serve.errors import APIError, api_error
from jumok.serve.metrics import Metrics

T = TypeVar("T")

log = logging.getLogger(__name__)

DONE = "data: [DONE]\n\n"
LAST_SECONDS = 2.0  # how long a client may take to read the error that ends a stream

# JSON may contain them, and clients that read lines with the rules of Unicode end a line there.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def to_json(value: object) -> str:
    """Compact JSON, readable and on one line."""
    text = _ENCODER.encode(value)
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def data(content: str) -> str:
    """A server-sent event."""
    return f"data: {content}\n\n"


class Reply:
    """How a response is sent: one JSON object, or a stream of events."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.streams = False  # a stream has begun

    def count(self, tokens: int) -> None:
        """Tell the log how many tokens were written so far."""
        self._scope.setdefault("state", {})["tokens"] = tokens

    async def whole(self, content: str, media_type: bytes = b"application/json") -> None:
        """Send all of it, and end."""
        body = content.encode()
        await self._begin(media_type, [(b"content-length", str(len(body)).encode())])
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self) -> None:
        """Begin a stream of events."""
        self.streams = True
        unbuffered = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]  # the second is for nginx
        await self._begin(b"text/event-stream; charset=utf-8", unbuffered)

    async def piece(self, events: str) -> None:
        """Send some events."""
        await self._send({"type": "http.response.body", "body": events.encode(), "more_body": True})

    async def end(self) -> None:
        """End the stream."""
        await self._send({"type": "http.response.body", "body": b""})

    async def _begin(self, media_type: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", media_type), *headers]}
        await self._send(start)


class WhileConnected(Response):
    """A response that `make` sends. It is cancelled when the client goes away, and when the time is up.

    An error before the response begins leaves this object, for the handlers of the application. In a stream it is sent
    as an event, and ends it.

    Args:
        seconds: the time. It does not end a thread: what runs in one goes on, and its result is thrown away.
    """

    def __init__(self, make: Callable[[Reply], Coroutine[Any, Any, None]], seconds: float) -> None:
        super().__init__()
        self._make, self._seconds = make, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it (ASGI)."""
        reply = Reply(scope, send)
        work, gone = asyncio.create_task(self._make(reply)), asyncio.create_task(_disconnected(receive))
        try:
            done, _ = await asyncio.wait({work, gone}, timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:  # also if this task is cancelled
            for task in (work, gone):
                task.cancel()
            await asyncio.wait({work, gone})
        error = work.exception() if work in done else None
        if not done:
            error = APIError(f"the request took longer than {self._seconds:g} seconds.", status=504, code="timeout")
        if error is None:
            return
        if not reply.streams:
            raise error
        with suppress(TimeoutError):  # a client that does not read would hold this up forever
            async with asyncio.timeout(LAST_SECONDS):
                await reply.piece(data(to_json(api_error(error).body)))
                await reply.end()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# --- threads ----------------------------------------------------------------------------------------------------------


class Threads:
    """Calls functions in threads, in the order in which they come.

    A thread cannot be interrupted. A call counts until it has ended, also if the client has gone meanwhile: otherwise
    clients that come and go would start any number of threads.

    Args:
        most: calls that run at a time. waiting: calls that may wait for them; None: any number.
    """

    def __init__(self, most: int, waiting: int | None = None) -> None:
        self._free, self._most_waiting = asyncio.Semaphore(most), waiting
        self._waiting = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function and return what it returns.

        Raises:
            Overloaded: too many calls are waiting.
        """
        if self._free.locked() and self._most_waiting is not None and self._waiting >= self._most_waiting:
            raise overloaded(self._waiting)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        call = asyncio.ensure_future(to_thread.run_sync(function, limiter=CapacityLimiter(1)))
        call.add_done_callback(lambda done: self._free.release())
        return await asyncio.shield(call)


# --- texts ------------------------------------------------------------------------------------------------------------


@contextmanager
def written(service: Service, requests: Sequence[Request]) -> Iterator[list[Stream]]:
    """Let a service write some texts; those that are not finished at the end of the block are cancelled.

    Raises:
        Overloaded: too many texts are waiting. APIError: the server is shutting down.
    """
    streams: list[Stream] = []
    try:
        for request in requests:
            try:
                streams.append(service.submit(request))
            except RuntimeError:  # the service is closed
                raise _closing() from None
        yield streams
    finally:
        for stream in streams:
            stream.cancel()


async def news(streams: Sequence[Stream], metrics: Metrics, since: float) -> AsyncIterator[list[tuple[int, Event]]]:
    """What is new of some texts, each time that something is: their numbers and events, until all have ended.

    Args:
        since: when the request came, by `time.perf_counter`.

    Raises:
        APIError: the model failed, or the service was closed. ConfigError: the engine does not accept a request.
    """
    loop, ready = asyncio.get_running_loop(), asyncio.Event()

    def listen() -> None:  # in the thread of the service
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(ready.set)

    for stream in streams:
        stream.notify(listen)
    growing = dict(enumerate(streams))
    last: dict[int, float] = {}
    while growing:
        await ready.wait()
        ready.clear()
        found = []
        for number, stream in list(growing.items()):
            event = _taken(stream)
            if event is None:
                continue
            if event.finish in ("not finite", "cancelled"):
                raise _broken(event)
            if event.finish is not None:
                del growing[number]
            _count(event, number, last, metrics, since)
            found.append((number, event))
        if found:
            yield found


def _taken(stream: Stream) -> Event | None:
    try:
        return stream.take()
    except ConfigError:
        raise
    except JumokError as error:
        log.error("%s", error, exc_info=error)
        raise APIError("the model failed while it generated; the log of the server says why.", status=500) from error


def _broken(event: Event) -> APIError:
    if event.finish == "cancelled":
        return _closing()
    return APIError(
        "the model's logits are not finite: its parameters are damaged or its training diverged.", status=500
    )


def _closing() -> APIError:
    return APIError("the server is shutting down.", status=503)


def _count(event: Event, number: int, last: dict[int, float], metrics: Metrics, since: float) -> None:
    """Measure the times of the tokens of an event; tokens that arrive together share the time since the last."""
    if not event.drawn:
        return
    now = time.perf_counter()
    if number in last:
        metrics.between((now - last[number]) / len(event.drawn))
    else:
        metrics.first_token(now - since)
    last[number] = now
