"""What is refused before the API sees it, as layers of ASGI middleware around the application.

From the outside: the log, the Host and the Origin of a browser, CORS, the key, the body. `limited` puts them together.
The answers have the API's shape.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jumok.messages import Language, speaking
from jumok.serve.errors import APIError, error_response
from jumok.serve.metrics import Metrics
from jumok.serve.settings import ServeSettings, is_local

OPEN = {("GET", "/healthz"), ("GET", "/"), ("HEAD", "/")}  # need no key; the page of the playground asks for it
OWN = "/v1/jumok/"  # begins the paths that only the server's own page may use from a browser
DOCS = ("/docs", "/redoc")  # of FastAPI, which a person looks for in a browser
UPLOADS = "/v1/jumok/uploads"  # whose body the application reads piece by piece
LONGEST_PATH = 200  # characters of a path in the log
DRAIN_SECONDS = 2.0  # how long a body is read after it was refused
CLOSE = {"Connection": "close"}

logger = logging.getLogger("jumok.serve")


def limited(app: ASGIApp, settings: ServeSettings, metrics: Metrics, paths: Collection[str] = ()) -> ASGIApp:
    """The application behind all limits.

    Args:
        paths: the paths of the routes of the application, by which requests are counted.
    """
    app = Body(app, settings.max_body, settings.read_timeout)
    if settings.keys:
        app = Keys(app, settings.keys)
    if settings.cors:
        app = CORSMiddleware(app, settings.cors, allow_methods=("GET", "POST"), allow_headers=("*",))
    app = Browsers(app, settings.cors, local=not settings.keys and is_local(settings.host))
    return Log(app, metrics, paths)


class Log:
    """Writes a line for each request and counts it; an exception of the application becomes an error 500.

    The line has the method, the path as the client encoded it but without the query, the status ("-" if the client
    left before there was one), the seconds, and the tokens that the application put into `request.state.tokens`.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Collection[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with speaking(language_of(scope), terminal=False):
                await self._app(scope, receive, watch)
        except Exception as error:
            if not status:
                logger.error("an error in the server", exc_info=error)
                await _refuse(
                    APIError("there was an error in the server; its log says more.", status=500), scope, watch
                )
        finally:
            self._write(scope, status, time.perf_counter() - began)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in self._paths else getattr(scope.get("route"), "path", "other")
        self._metrics.request(path, status, seconds)
        tokens = scope.get("state", {}).get("tokens")
        logger.info(
            "%s %s %s %.3f s%s",
            scope["method"],
            (scope.get("raw_path") or b"").decode("ascii", "replace")[:LONGEST_PATH],
            status or "-",
            seconds,
            "" if tokens is None else f" {tokens} tokens",
        )


def language_of(scope: Scope) -> Language:
    """The language of messages: English, because clients are programs, but that of the reader in the server's page."""
    is_read = scope["path"].startswith((OWN, *DOCS))
    wanted = Headers(scope=scope).get("accept-language", "") if is_read else ""
    return "ko" if wanted.lower().startswith("ko") else "en"


class Browsers:
    """Refuses what a page of another site lets a browser send.

    Args:
        origins: origins whose pages may use the server, without the paths under OWN.
        local: whether only names of this machine are accepted as Host. A page can let the name of its site point to
            127.0.0.1 (DNS rebinding); its requests then have that name as Host, and its own origin.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], *, local: bool) -> None:
        self._app, self._origins, self._local = app, frozenset(origins), local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if self._local and not is_local(_name_in(host)):
                wrong = "this server answers only requests to localhost; a server with an API key answers all."
                await _refuse(APIError(wrong, status=403, code="host_not_allowed"), scope, send)
                return
            own_only = scope["path"].startswith(OWN)
            if origin is not None and not self._allows(origin, host, own_only=own_only):
                wrong = "pages of this origin may not use the server; start it with --cors and the origin."
                await _refuse(APIError(wrong, status=403, code="origin_not_allowed"), scope, send)
                return
        await self._app(scope, receive, send)

    def _allows(self, origin: str, host: str, *, own_only: bool) -> bool:
        own = origin.partition("://")[2]
        if own != "" and own.lower() == host.lower():
            return True
        return not own_only and not self._origins.isdisjoint({"*", origin})


def _name_in(host: str) -> str:
    """The name in a Host header, without the port; "" if there is none."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


class Keys:
    """Refuses requests without one of the keys."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app, self._digests = app, [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401."""
        is_open = scope["type"] != "http" or (scope["method"], scope["path"]) in OPEN
        if is_open or self._knows(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        wrong = "the API key is missing or wrong; send it in the header Authorization: Bearer KEY."
        headers = {"WWW-Authenticate": "Bearer"}
        await _refuse(APIError(wrong, status=401, code="invalid_api_key", headers=headers), scope, send)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = sha256(key.strip().encode("latin-1")).digest()
        # All are compared, each in a time that does not depend on where it differs.
        equal = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(equal)


class Body:
    """Reads the body of a request before the application runs; refuses one that is too large or too slow.

    Args:
        most: bytes.
        seconds: the time in which the client must have sent it.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or answer 400, 408 or 413."""
        if scope["type"] != "http" or scope["path"] == UPLOADS:
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read(scope, receive)
            if body is None:
                return  # the client has gone
        except APIError as error:
            await _refuse(error, scope, send, receive if error.status_code == 413 else None)
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body, or None if the client closed the connection before its end."""
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may see another end of the body
            raise APIError("a request has Transfer-Encoding or Content-Length, not both.", headers=CLOSE)
        if len(length) > 18 or int(length) > self._most:  # h11 lets only digits through
            raise self._too_large()
        body = bytearray()
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._most:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            wrong = f"the body did not arrive within {self._seconds:g} seconds."
            raise APIError(wrong, status=408, code="timeout", headers=CLOSE) from None

    def _too_large(self) -> APIError:
        wrong = f"the body is larger than {self._most:,} bytes."
        return APIError(wrong, status=413, code="body_too_large", headers=CLOSE)


async def _refuse(error: APIError, scope: Scope, send: Send, rest: Receive | None = None) -> None:
    """Answer with an error.

    Args:
        rest: brings the rest of a body that is not wanted. A client that still sends when the connection closes sees
            a reset instead of the answer, so the rest is read for a moment.
    """

    async def keep_open(message: Message) -> None:
        if message["type"] == "http.response.body" and rest is not None:
            message = {**message, "more_body": True}
        await send(message)

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    await error_response(error)(scope, nothing, keep_open)
    if rest is None:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while (message := await rest())["type"] == "http.request" and message.get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
