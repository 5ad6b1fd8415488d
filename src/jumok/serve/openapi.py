"""The operations of the API, and `GET /openapi.json`, which describes them (https://spec.openapis.org/oas/v3.1.0)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response
from starlette.routing import Route

from jumok.serve.schemas import BodyPart, endpoint_of
from jumok.version import __version__


class ErrorDetail(BaseModel):
    """The error in the body of a response."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The body of every response with an error."""

    error: ErrorDetail


class Operation(NamedTuple):
    """What clients can do with a path.

    Fields:
        endpoint: called with the request, or with the body that was read; its docstring is the description.
        body: the kind of the body; None: none. streams: whether the response may be a stream of events.
    """

    method: str
    path: str
    endpoint: Callable[[Any], Awaitable[Response]]
    body: type[BodyPart] | None = None
    streams: bool = False

    @property
    def route(self) -> Route:
        """Return the route of the application."""
        endpoint = self.endpoint if self.body is None else endpoint_of(self.endpoint, self.body)
        return Route(self.path, endpoint, methods=[self.method])


def describe(operations: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document of some operations."""
    kinds: list[type[BaseModel]] = [ErrorBody, *(one.body for one in operations if one.body is not None)]
    place = "#/components/schemas/{model}"
    _, schemas = models_json_schema([(kind, "validation") for kind in kinds], ref_template=place)
    paths: dict[str, Any] = {}
    for one in operations:
        path = re.sub(r":\w+", "", one.path)  # without the type of a parameter
        paths.setdefault(path, {})[one.method.lower()] = _described(one, path)
    about = {"title": "jumok", "version": __version__}
    return {"openapi": "3.1.0", "info": about, "paths": paths, "components": {"schemas": schemas["$defs"]}}


def _described(operation: Operation, path: str) -> dict[str, Any]:
    def json(model: type[BaseModel] | None) -> dict[str, Any]:
        return {
            "application/json": {} if model is None else {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}
        }

    done = json(None) | ({"text/event-stream": {}} if operation.streams else {})
    refused = {"description": "An error", "content": json(ErrorBody)}
    found: dict[str, Any] = {
        "operationId": "_".join(re.findall(r"\w+", f"{operation.method.lower()} {path}")),
        "summary": (operation.endpoint.__doc__ or "").partition("\n")[0],
        "responses": {"200": {"description": "Done", "content": done}, "4XX": refused, "5XX": refused},
    }
    if names := re.findall(r"{(\w+)}", path):
        string = {"schema": {"type": "string"}}
        found["parameters"] = [{"name": name, "in": "path", "required": True, **string} for name in names]
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": json(operation.body)}
    return found
