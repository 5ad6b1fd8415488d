"""How a response is sent: at once or as a stream of events, while the client is there; and threads for what takes long.

A stream is sent as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), each a JSON
object.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jumok.inference.requests import overloaded
from jumok.serve.errors import APIError, api_error

JSON, HTML = "application/json", "text/html; charset=utf-8"
DONE = "data: [DONE]\n\n"
UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # the second is for nginx
LAST_SECONDS = 2.0  # how long a client may take to read the error that ends a stream

# JSON may contain them, and clients that read lines with the rules of Unicode end a line there.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))

T = TypeVar("T")


def to_json(value: object) -> str:
    """Return compact JSON, readable and on one line."""
    text = _ENCODER.encode(value)
    return _LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_response(value: object) -> Response:
    """Return the response with a value as JSON."""
    return Response(to_json(value), media_type=JSON)


class Reply:
    """Sends a response: all of it, or a stream of events.

    Attributes:
        streams: whether a stream has begun.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.streams = False

    def count(self, tokens: int) -> None:
        """Tell the log how many tokens were written so far."""
        self._scope.setdefault("state", {})["tokens"] = tokens

    async def whole(self, content: str, media_type: str = JSON) -> None:
        """Send all of a response, and end."""
        await Response(content, media_type=media_type)(self._scope, self._receive, self._send)

    async def begin(self) -> None:
        """Begin a stream of events."""
        self.streams = True
        headers = Headers({"content-type": "text/event-stream; charset=utf-8", **UNBUFFERED})
        await self._send({"type": "http.response.start", "status": 200, "headers": headers.raw})

    async def events(self, *contents: object) -> None:
        """Send some JSON objects as events."""
        body = "".join(f"data: {to_json(content)}\n\n" for content in contents).encode()
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, last: str = "") -> None:
        """End the stream."""
        await self._send({"type": "http.response.body", "body": last.encode()})


class CancellableResponse(Response):
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
        reply = Reply(scope, receive, send)
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
                await reply.events(api_error(error).body)
                await reply.end()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Threads:
    """Calls functions that would hold up the event loop in threads, in the order in which they come.

    A thread cannot be interrupted: what a client asked for who has gone runs to its end, and counts until then.

    Args:
        most: calls that run at a time. waiting: calls that may wait for them; None: any number.
    """

    def __init__(self, most: int, waiting: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(most)
        self._most = None if waiting is None else most + waiting
        self._calls: set[Future[Any]] = set()

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function and return what it returns.

        Raises:
            Overloaded: too many calls are waiting.
        """
        if self._most is not None and len(self._calls) >= self._most:
            raise overloaded(len(self._calls))
        call = self._threads.submit(copy_context().run, function)  # with the language of the client
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await asyncio.wrap_future(call)
