"""What is refused before the API sees it, as layers of ASGI middleware around the application.

From the outside: the log, CORS, the guard (Host, Origin, key), the limit of bodies. `limited` puts them together. The
answers have the form of the API. What uvicorn itself refuses is plain text.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from contextlib import suppress
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jumok.messages import Language, speaking
from jumok.serve.errors import APIError, error_response
from jumok.serve.settings import ServeSettings, is_local

OPEN = {("GET", "/healthz"), ("GET", "/"), ("HEAD", "/")}  # need no key; the page asks for it
OWN = "/v1/jumok/"  # begins the paths that only the server's own page may use from a browser
UPLOADS = "/v1/jumok/uploads"  # whose body the application reads piece by piece
LONGEST_PATH = 200  # characters of a path in the log
CLOSE = {"Connection": "close"}  # so that the rest of a body is not waited for

logger = logging.getLogger("jumok.serve")


def limited(app: ASGIApp, settings: ServeSettings) -> ASGIApp:
    """Return the application behind all limits."""
    app = Guard(BodyLimit(app, settings.max_body, settings.read_timeout), settings)
    if settings.cors:
        app = CORSMiddleware(app, settings.cors, allow_methods=("GET", "POST"), allow_headers=("*",))
    return AccessLog(app)


class AccessLog:
    """Writes a line for each request; an exception of the application becomes an error 500.

    The line has the method, the path as the client encoded it but without the query, the status ("-" if the client
    left before there was one), the seconds, and the tokens that the application put into `request.state.tokens`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

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
                refused = APIError("there was an error in the server; its log says more.", status=500)
                await error_response(refused)(scope, receive, watch)
        finally:
            self._write(scope, status, time.perf_counter() - began)

    def _write(self, scope: Scope, status: int, seconds: float) -> None:
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
    """Return the language of messages: English for programs, that of the reader for the server's own page."""
    is_read = scope["path"].startswith(OWN)
    wanted = Headers(scope=scope).get("accept-language", "") if is_read else ""
    return "ko" if wanted.lower().startswith("ko") else "en"


class Guard:
    """Refuses requests by their Host, their Origin and their key.

    Without keys, a server on this machine accepts only names of this machine as Host. A page can let the name of its
    site point to 127.0.0.1 (DNS rebinding); its requests then have that name as Host, and its own origin.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self._app, self._origins = app, frozenset(settings.cors)
        self._local = not settings.keys and is_local(settings.host)
        self._digests = [sha256(key.encode()).digest() for key in settings.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 401 or 403."""
        error = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if error is None else error_response(error))(scope, receive, send)

    def _refusal(self, scope: Scope) -> APIError | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._local and not is_local(_name_in(host)):
            wrong = "this server answers only requests to localhost; a server with an API key answers all."
            return APIError(wrong, status=403, code="host_not_allowed", headers=CLOSE)
        if origin is not None and not self._allows(origin, host, scope["path"]):
            wrong = "pages of this origin may not use the server; start it with --cors and the origin."
            return APIError(wrong, status=403, code="origin_not_allowed", headers=CLOSE)
        if self._digests and (scope["method"], scope["path"]) not in OPEN and not self._knows(headers):
            wrong = "the API key is missing or wrong; send it in the header Authorization: Bearer KEY."
            known = {"WWW-Authenticate": "Bearer", **CLOSE}
            return APIError(wrong, status=401, code="invalid_api_key", headers=known)
        return None

    def _allows(self, origin: str, host: str, path: str) -> bool:
        own = origin.partition("://")[2]
        if own != "" and own.lower() == host.lower():
            return True
        return not path.startswith(OWN) and not self._origins.isdisjoint({"*", origin})

    def _knows(self, headers: Headers) -> bool:
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = sha256(key.strip().encode("latin-1")).digest()
        # All are compared, each in a time that does not depend on where it differs.
        equal = [hmac.compare_digest(given, digest) for digest in self._digests]
        return scheme.lower() == "bearer" and any(equal)


def _name_in(host: str) -> str:
    """Return the name in a Host header, without the port; "" if there is none."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


class BodyLimit:
    """Reads the body of a request before the application runs; refuses one that is too large or too slow.

    The rest of a body that is too large is read and thrown away: a client that still sends when the connection closes
    sees a reset instead of the answer.

    Args:
        most: bytes. seconds: the time in which the client must have sent it.
    """

    def __init__(self, app: ASGIApp, most: int, seconds: float) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its whole body, or answer 400, 408 or 413."""
        if scope["type"] != "http" or scope["path"] == UPLOADS:
            await self._app(scope, receive, send)
            return
        try:
            whole: list[Message] = [{"type": "http.request", "body": await self._read(Request(scope, receive))}]
        except APIError as error:
            await error_response(error)(scope, receive, send)
            return
        except ClientDisconnect:
            return

        async def replay() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, replay, send)

    async def _read(self, request: Request) -> bytes:
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            # A proxy may see another end of the body.
            raise APIError("a request has Transfer-Encoding or Content-Length, not both.", headers=CLOSE)
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self._seconds):
                async for part in request.stream():
                    size += len(part)
                    if size <= self._most:
                        body += part
        except TimeoutError:
            if size <= self._most:
                wrong = f"the body did not arrive within {self._seconds:g} seconds."
                raise APIError(wrong, status=408, code="timeout", headers=CLOSE) from None
        if size > self._most:
            wrong = f"the body is larger than {self._most:,} bytes."
            raise APIError(wrong, status=413, code="body_too_large", headers=CLOSE)
        return bytes(body)
