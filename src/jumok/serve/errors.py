"""Errors as the API of OpenAI has them: `{"error": {"message", "type", "param", "code"}}`, and what becomes one."""

from __future__ import annotations

import json
import logging
import reprlib
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from jumok.errors import JumokError, RunError, ServeError
from jumok.inference.requests import Overloaded
from jumok.memory import is_out_of_memory
from jumok.serve.served_models import UnknownModel

log = logging.getLogger(__name__)

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}  # of a status below 500
RETRY_AFTER = "1"  # seconds after which a client that was refused may try again


class Refused(ServeError):
    """A request of the server's page is refused, with a message in the language of its reader.

    Args:
        template, facts: as for JumokError. status: of HTTP. code: a name that programs compare.
    """

    def __init__(self, template: str, *, status: int = 400, code: str | None = None, **facts: Any) -> None:
        super().__init__(template, **facts)
        self.status, self.code = status, code


class APIError(HTTPException):
    """An error that a client is told.

    Args:
        message: a sentence. param: the parameter that is wrong. code: a name that programs compare.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code

    @property
    def body(self) -> dict[str, Any]:
        """Return the JSON object."""
        kind = "server_error" if self.status_code >= 500 else TYPES.get(self.status_code, "invalid_request_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}

    @property
    def content(self) -> bytes:
        """Return the JSON object in UTF-8. Half a surrogate pair, which UTF-8 cannot encode, becomes an escape."""
        return json.dumps(self.body, ensure_ascii=False).encode("utf-8", "backslashreplace")


def api_error(error: BaseException) -> APIError:
    """Return what a client is told of an exception; the log gets what is wrong with the server itself."""
    if is_out_of_memory(error.__cause__ or error):
        log.error("too little memory", exc_info=error)
        wrong = "the server has too little memory for this request; send a shorter prompt, or try again in a moment."
        return APIError(wrong, status=503, code="out_of_memory", headers={"Retry-After": RETRY_AFTER})
    match error:
        case APIError():
            return error
        case Refused():
            return APIError(str(error), status=error.status, code=error.code)
        case UnknownModel():
            return APIError(str(error), status=404, param="model", code="model_not_found")
        case Overloaded():
            headers = {"Retry-After": RETRY_AFTER}
            return APIError(str(error), status=429, code="overloaded", headers=headers)
        case RunError():  # its message names files of the server
            log.error("%s", error)
            return APIError("the model cannot be loaded; the log of the server says why.", status=500, param="model")
        case JumokError():
            return APIError(str(error))
        case HTTPException():
            code = "method_not_allowed" if error.status_code == 405 else None
            return APIError(str(error.detail), status=error.status_code, code=code, headers=dict(error.headers or {}))
    log.error("an error in the server", exc_info=error)
    return APIError("there was an error in the server; its log says more.", status=500)


def error_response(error: APIError) -> Response:
    """Return the response that tells a client of an error."""
    return Response(error.content, error.status_code, error.headers, media_type="application/json")


def validation_error(error: ValidationError) -> APIError:
    """Return one sentence about one of the mistakes that pydantic found: the one that is deepest in the body.

    Of a field that may be one thing or another pydantic tells what each of them lacks; the deepest fits best.
    """
    first = max(error.errors(include_url=False), key=lambda mistake: len(mistake["loc"]))
    name = len(first["loc"]) - (first["type"] == "extra_forbidden")  # an unknown name may read like a type
    where = [part for place, part in enumerate(first["loc"]) if place == name or not _is_type(part)]
    param = str(where[0]) if where else None
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")
    if first["type"] == "string_unicode":
        return APIError(f"{path or 'a name in the body'} has half of a surrogate pair, which is not text.", param=param)
    if not where:
        return not_an_object()
    match first["type"]:
        case "extra_forbidden":
            unknown = f"{path} is not a parameter that this server knows."
            return APIError(unknown, param=param, code="unsupported_parameter")
        case "missing":
            return APIError(f"{path} is missing.", param=param)
    wrong = first["msg"].partition(" ")[2]  # after the kind of thing that it is, such as "Input" or "List"
    return APIError(f"{path} {wrong}, and it is {reprlib.repr(first['input'])}.", param=param)


def not_an_object() -> APIError:
    """Return the error for a body that is something else."""
    return APIError("the body is not a JSON object; send one, with Content-Type: application/json.")


def _is_type(part: int | str) -> bool:
    """Return True for a part of a place that is not a name, but one of the types that a field may have."""
    return part == "str" or "[" in str(part)


async def _respond(request: Request, error: Exception) -> Response:
    found = api_error(error)
    if type(error) is HTTPException and found.status_code in (404, 405):  # the router's own
        found.detail = f"there is no {request.method[:20]} {request.url.path[:200]}; GET /openapi.json lists all."
    return error_response(found)


# Every error of an application leaves it in the API's shape.
HANDLERS: dict[Any, ExceptionHandler] = dict.fromkeys((HTTPException, JumokError, Exception), _respond)
