"""Bodies of requests: bytes to strict JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from jumok.serve.errors import APIError

DEEPEST = 64  # levels of lists and objects; tools of a chat nest about ten


class JSONRequest(Request):
    """A request whose body is strict JSON: UTF-8, without NaN, infinities and halves of surrogate pairs."""

    async def json(self) -> Any:
        """The body.

        Raises:
            APIError: it is no such JSON.
        """
        return parse(await self.body())


class JSONRoute(APIRoute):
    """A route whose requests are `JSONRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of the route (FastAPI)."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(JSONRequest(request.scope, request.receive))

        return strict


def parse(body: bytes) -> Any:
    """Read strict JSON.

    Raises:
        APIError: it is none.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise APIError(f"the body is not UTF-8: byte {error.start:,} is wrong.", code="invalid_utf8") from None
    _require_shallow(body)
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise APIError(f"the body is not valid JSON: {error.msg} at character {error.pos}.") from None
    except ValueError:  # Python refuses to read it, because the time is quadratic
        raise APIError("the body has a number with thousands of digits.") from None
    if "\\ud" in text or "\\uD" in text:  # only an escape can be half of a pair
        for name, part in value.items() if isinstance(value, dict) else [("", value)]:
            _require_text(name, part)
    return value


def _no_constant(name: str) -> None:
    raise APIError(f"the body has {name}, which is no number in JSON.")


def _require_text(name: str, part: object) -> None:
    try:
        json.dumps([name, part], ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        shown = name.encode("ascii", "backslashreplace").decode()
        raise APIError(
            f"{shown or 'the body'} has U+{code:04X}, half of a surrogate pair, which is not text; escape a character "
            "beyond U+FFFF as two halves, or send it as UTF-8.",
            param=shown or None,
        ) from None


_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_TO_LISTS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _require_shallow(body: bytes) -> None:
    """Raise APIError for JSON that nests deeper than DEEPEST: a parser recurses."""
    if body.count(b"[") + body.count(b"{") <= DEEPEST:
        return
    # Without strings, each pass removes the innermost level. A loop over a megabyte of brackets would take far longer.
    brackets = _STRINGS.sub(b"", body).translate(_TO_LISTS, _NO_BRACKETS)
    if b"[" * (DEEPEST + 1) not in brackets:  # otherwise a pass removes next to nothing
        for _ in range(DEEPEST):
            brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets or brackets.count(b"[") > DEEPEST:
        raise APIError(f"the body nests lists and objects deeper than {DEEPEST} levels.", code="nested_too_deeply")
