"""The server: its socket, signals and log lines. Connections are those of uvicorn, with its limits."""

from __future__ import annotations

import errno
import logging
import math
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from jumok.errors import ServeError
from jumok.serve.app import create_app
from jumok.serve.middleware import limited
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModels
from jumok.serve.settings import ServeSettings, is_local

FRAMES = 5  # of an exception in the log
BACKLOG = 512  # connections that the system accepts before the server does


def serve(
    folders: Sequence[Path],
    settings: ServeSettings,
    device: str = "cpu",
    *,
    root: Path | None = None,
    ready: Callable[[str, ServedModels], None],
    stopping: Callable[[], None],
    prepare: Callable[[], object],
    quiet: bool = False,
) -> bool:
    """Serve runs until SIGTERM or SIGINT.

    The first signal ends it when the requests that have begun are answered, a second one at once.

    Args:
        root: the folder whose runs can be used and followed, too, and in which the page starts runs; None: none.
        ready: called with the URL when the server listens. stopping: called at the first signal, if requests run.
        prepare: called where the C++ step would compute a model and is not built.
        quiet: log only what goes wrong.

    Returns:
        Whether all requests were answered.

    Raises:
        JumokError: the settings do not allow it, a folder is not a run, or the port is not available.
    """
    with _logging(quiet), listen(settings) as sock:
        known = RunFolders(folders, root)
        models = ServedModels(known, settings, device, prepare=prepare)
        server = None
        try:
            app = limited(create_app(models, settings, known), settings)
            server = Server(app, settings, lambda: ready(url_of(sock), models), stopping)
            server.run(sockets=[sock])
            return not server.force_exit
        finally:
            models.close(finish=server is not None and not server.force_exit)


# --- sockets ---


def listen(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens. Connections wait in it until the server accepts them.

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
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    try:
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
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


def _unusable(host: str, error: OSError) -> ServeError:
    return ServeError(
        "cannot listen on host {host}: {reason}. Name an address of this machine, for example {--host 127.0.0.1}.",
        host=host,
        reason=error,
    )


def url_of(sock: socket.socket) -> str:
    """Return the URL of a socket that listens, for a client on this machine."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# --- signals ---


class Server(uvicorn.Server):
    """Runs uvicorn; it ends after one signal when all is answered, and at once after two.

    Args:
        ready: called when it listens. stopping: called when it begins to end.
    """

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            loop="asyncio",
            ws="none",
            log_config=None,
            access_log=False,  # its lines have the query
            server_header=False,
            proxy_headers=False,
            limit_concurrency=2 * (settings.slots + settings.waiting),  # clients keep some open between requests
            timeout_keep_alive=math.ceil(settings.read_timeout),
            timeout_graceful_shutdown=math.ceil(settings.timeout),
        )
        super().__init__(config)
        self._ready, self._stopping = ready, stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
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
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it reports each cancelled task as an error
        self.should_exit = True


# --- the log ---


def escaped(text: str) -> str:
    """Return a text on one line that cannot control a terminal.

    Control characters, line separators, directions of writing and other invisible characters are written as in Python,
    for example \\n, \\x1b and \\u202e.
    """
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode("ascii") for one in text
    )


class _Line(logging.Formatter):
    """Writes a record as one line. Of an exception it has the class and the place: its message can quote a prompt."""

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
