"""The server: its socket, its connections, signals and log lines. The requests are uvicorn's and the application's."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from jumok.errors import ServeError
from jumok.models import Model
from jumok.serve.app import create_app
from jumok.serve.errors import APIError
from jumok.serve.metrics import Metrics
from jumok.serve.middleware import limited
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import Models
from jumok.serve.settings import ServeSettings, is_local

LINGER_SECONDS = 2.0  # how long a client may read an error before the connection closes
FRAMES = 5  # of an exception in the log
BACKLOG = 512  # connections that the system accepts before the server does


def serve(
    folders: Sequence[Path],
    settings: ServeSettings,
    device: str = "cpu",
    *,
    root: Path | None = None,
    ready: Callable[[str, Models], None],
    stopping: Callable[[], None],
    prepare: Callable[[Model], None],
    quiet: bool = False,
) -> bool:
    """Serve runs until SIGTERM or SIGINT.

    The first signal ends it when the requests that have begun are answered, a second one at once.

    Args:
        root: the folder whose runs can be used and followed, too, and in which the page starts runs; None: none.
        ready: called with the URL when the server listens. stopping: called at the first signal, if requests run.
        prepare: called with each model that writes, after it was loaded.
        quiet: log only what goes wrong.

    Returns:
        Whether all requests were answered.

    Raises:
        JumokError: the settings do not allow it, a folder is not a run, or the port is not available.
    """
    with _logging(quiet), listen(settings) as sock:
        known = RunFolders(folders, root)
        models = Models(known, settings, device, prepare=prepare)
        server = None
        try:
            metrics = Metrics(models.counts)
            app = create_app(models, settings, metrics, known)
            paths = [path for route in app.routes if (path := getattr(route, "path", None))]
            server = Server(
                limited(app, settings, metrics, paths), settings, lambda: ready(url_of(sock), models), stopping
            )
            server.run(sockets=[sock])
            return not server.force_exit
        finally:
            models.close(finish=server is not None and not server.force_exit)


# --- sockets ---


def listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens. Connections wait in it until the server accepts them.

    Raises:
        ServeError: the port is in use or not allowed, or the host is not an address of this machine.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise _unusable(host, error) from None
    if not settings.keys:  # what "localhost" means is decided by the system
        found = [one for one in found if is_local(str(one[4][0]))]
    if not found:
        raise ServeError("{host} does not stand for this machine alone; use 127.0.0.1.", host=host)
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier server may linger
        elif sys.platform == "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise ServeError(
                "port {port} is in use; end the program that uses it, or choose another one: {--port {other}}, or "
                "{--port 0} for any free one.",
                port=port,
                other=port + 1 if port < 65_535 else port - 1,
            ) from None
        if error.errno == errno.EACCES:
            raise ServeError(
                "this user may not listen on port {port}; choose one above 1023, for example {--port 8000}.", port=port
            ) from None
        raise _unusable(host, error) from None
    return sock


def _unusable(host: str, error: OSError) -> ServeError:
    return ServeError(
        "cannot listen on host {host}: {reason}. Name an address of this machine, for example {--host 127.0.0.1}.",
        host=host,
        reason=error.strerror or error,
    )


def url_of(sock: socket.socket) -> str:
    """The URL of a socket that listens, for a client on this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# --- connections ---


class _Config(uvicorn.Config):
    """The configuration of uvicorn, and the limits of connections."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.read_timeout = settings.read_timeout
        self.most_connections = 2 * (settings.slots + settings.waiting)  # clients keep some open between requests
        super().__init__(
            app,
            http=Connection,
            loop="asyncio",
            ws="none",
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=math.ceil(settings.timeout),
        )


class Connection(H11Protocol):
    """A connection of uvicorn that does not wait for its client forever.

    uvicorn closes an idle connection after an answer, but waits without an end for the first byte, for the rest of
    headers that began, and until a client reads its answer. Here a connection on which no request runs is closed after
    `read_timeout`, unless the client is still reading an answer. Errors of HTTP itself have the API's shape.
    """

    config: _Config

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # whatever handlers loggers have: its lines have the query
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0  # bytes of answers that the client had not read when the timer began
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse a connection too many."""
        super().connection_made(transport)
        if len(self.connections) > self.config.most_connections:
            self._refuse(APIError("the server has too many connections; try again in a moment.", status=503))
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what the client sent."""
        if not self._refused:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or has headers that are too large."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        message = "the headers are too large." if status == 431 else "this is not a valid HTTP request."
        self._refuse(APIError(message, status=status))

    def _refuse(self, error: APIError) -> None:
        """Answer with an error, read what still comes, and close when the client does or after a moment."""
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error.content
            head = f"HTTP/1.1 {error.status_code} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
            if self.transport.can_write_eof():
                self.transport.write_eof()
            self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()

    def _watch(self) -> None:
        """Start the timer anew."""
        if self._timer is not None:
            self._timer.cancel()
        self._unsent = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(self.config.read_timeout, self._time_out)

    def _time_out(self) -> None:
        runs = self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()
        if runs or 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._watch()
        else:
            self.transport.abort()


# --- signals ---


class Server(uvicorn.Server):
    """A server of uvicorn that ends after one signal when all is answered, and at once after two.

    Args:
        ready: called when it listens. stopping: called when it begins to end.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(_Config(app, settings))
        self._ready, self._stopping = ready, stopping
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no connection, and wait for the requests that run."""
        if self.server_state.tasks:
            self._stopping()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End when all is answered; at the second signal end at once."""
        if self.should_exit:
            self.force_exit = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._end_now)
        self.should_exit = True

    def _end_now(self) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it reports each cancelled task as an error
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


# --- the log ---


def escaped(text: str) -> str:
    """A text on one line that cannot control a terminal.

    Control characters, line separators, directions of writing and other invisible characters are written as in Python,
    for example \\n, \\x1b and \\u202e.
    """
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode("ascii") for one in text
    )


class _Line(logging.Formatter):
    """One line for each record. Of an exception it has the class and the place: its message can quote a prompt."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage().strip()
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {_place(record.exc_info[1])}"
        return f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S%z')} {escaped(text)}"


def _place(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)]
    return f"{type(error).__name__} in {' < '.join(places)}"


@contextmanager
def _logging(quiet: bool) -> Iterator[None]:
    """Write the log of the server, of uvicorn and of asyncio to stderr within the block."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    levels = {
        "jumok.serve": logging.WARNING if quiet else logging.INFO,
        "uvicorn.error": logging.WARNING,
        "asyncio": logging.WARNING,
    }
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).propagate) for name in levels}
    for name, level in levels.items():
        one = logging.getLogger(name)
        one.addHandler(handler)
        one.setLevel(level)
        one.propagate = False
    try:
        yield
    finally:
        for name, (level, propagate) in before.items():
            one = logging.getLogger(name)
            one.removeHandler(handler)
            one.setLevel(level)
            one.propagate = propagate
