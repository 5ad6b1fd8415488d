"""The application: its routes, and how the body of a request becomes JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.routing import APIRoute

from jumok.inference.requests import overloaded
from jumok.serve import chat, completions, embeddings, own
from jumok.serve.errors import APIError, add_handlers
from jumok.serve.metrics import CONTENT_TYPE, Metrics
from jumok.serve.models import Models, Served
from jumok.serve.schemas import (
    AttentionBody,
    Body,
    ChatBody,
    ClassifyBody,
    CompletionBody,
    EmbeddingBody,
    ErrorBody,
    FillMaskBody,
    TokenizeBody,
)
from jumok.serve.settings import ServeSettings
from jumok.serve.streaming import Reply, WhileConnected, to_json
from jumok.serve.writing import Context, service_of, write
from jumok.version import __version__

T = TypeVar("T")
B = TypeVar("B", bound=Body)
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}


def create_app(models: Models, settings: ServeSettings, metrics: Metrics | None = None) -> FastAPI:
    """The application of a server: the endpoints, without the limits of `jumok.serve.limits`.

    Args:
        models: stays with the caller, who closes it. metrics: None: new ones.
    """
    app = FastAPI(title="jumok", version=__version__, docs_url=None, redoc_url=None)  # those load scripts from a CDN
    router = APIRouter(route_class=JSONRoute, responses=ERRORS)
    api = Endpoints(models, settings, metrics or Metrics(models.counts))
    for path, endpoint in (
        ("/v1/models", api.list_models),
        ("/v1/models/{name:path}", api.one_model),
        ("/healthz", api.health),
        ("/metrics", api.figures),
    ):
        router.add_api_route(path, endpoint, methods=["GET"], response_model=None)
    for path, write_endpoint in (("/v1/completions", api.complete), ("/v1/chat/completions", api.chat)):
        router.add_api_route(path, write_endpoint, methods=["POST"], response_model=None, responses=STREAM)
    for path, read_endpoint in (
        ("/v1/embeddings", api.embed),
        ("/v1/classify", api.classify),
        ("/v1/fill-mask", api.fill_mask),
        ("/v1/tokenize", api.tokenize),
        ("/v1/attention", api.attention),
    ):
        router.add_api_route(path, read_endpoint, methods=["POST"], response_model=None)
    app.include_router(router)
    add_handlers(app)
    return app


class Endpoints:
    """The endpoints of a server. Models write in the threads of their services; all else is one call at a time."""

    def __init__(self, models: Models, settings: ServeSettings, metrics: Metrics) -> None:
        self._models, self._settings, self._metrics = models, settings, metrics
        self._alone = CapacityLimiter(1)

    async def list_models(self) -> Response:
        """All models, loaded or not."""
        found = [self._about(name) for name in self._models.names()]
        return _json(to_json({"object": "list", "data": found}))

    async def one_model(self, name: str) -> Response:
        """A model."""
        return _json(to_json(self._about(name)))

    async def health(self) -> Response:
        """Whether the server answers."""
        return _json('{"status":"ok"}')

    async def figures(self) -> Response:
        """Figures for Prometheus."""
        return PlainTextResponse(self._metrics.text(), media_type=CONTENT_TYPE)

    async def complete(self, body: CompletionBody) -> Response:
        """Continue prompts."""
        context = self._context()

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                completions.require_gpt(served)
                service = service_of(served)
                run = self._run if body.echo and body.logprobs is not None else to_thread.run_sync
                prompts = await run(lambda: completions.read_prompts(served, body, self._settings))
                requests = completions.requests_of(served, body, prompts, self._settings)
                form = completions.CompletionForm(served, body, prompts)
                await write(reply, service, requests, form, body, context)

        return WhileConnected(make)

    async def chat(self, body: ChatBody) -> Response:
        """Answer the messages of a chat."""
        context = self._context()

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                service = service_of(served)
                request = await to_thread.run_sync(lambda: chat.request_of(served, body, self._settings))
                requests = chat.requests_of(body, request, self._settings)
                await write(reply, service, requests, chat.ChatForm(served, body, request), body, context)

        return WhileConnected(make)

    async def embed(self, body: EmbeddingBody) -> Response:
        """Texts as vectors."""
        return self._read(embeddings.embeddings, body)

    async def classify(self, body: ClassifyBody) -> Response:
        """The class of each text."""
        return self._read(own.classify, body)

    async def fill_mask(self, body: FillMaskBody) -> Response:
        """What stands at each mask of a text."""
        return self._read(own.fill, body)

    async def tokenize(self, body: TokenizeBody) -> Response:
        """The ids of a text."""
        return self._read(own.tokenize, body)

    async def attention(self, body: AttentionBody) -> Response:
        """A trace of what a model computes on a text."""
        return self._read(own.attention, body)

    def _read(self, function: Callable[[Served, B, ServeSettings], str], body: B) -> Response:
        """The response of a function that runs a model once."""

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                await reply.whole(await self._run(lambda: function(served, body, self._settings)))

        return WhileConnected(make)

    async def _run(self, function: Callable[[], T]) -> T:
        """Call a function in a thread, after those that came before.

        Raises:
            Overloaded: too many are waiting.
        """
        waiting = self._alone.statistics().tasks_waiting
        if waiting >= max(1, self._settings.waiting):
            raise overloaded(waiting)
        return await to_thread.run_sync(function, limiter=self._alone)

    def _context(self) -> Context:
        return Context(settings=self._settings, metrics=self._metrics, since=time.perf_counter())

    def _about(self, name: str) -> dict[str, Any]:
        created = self._models.created(name)
        return {"id": name, "object": "model", "created": created, "owned_by": "jumok"}


def _json(content: str) -> Response:
    return Response(content, media_type="application/json")


# --- bodies -----------------------------------------------------------------------------------------------------------


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
        raise APIError(f"the body is not UTF-8: byte {error.start} is wrong.") from None
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise APIError("the body has too many brackets inside each other.") from None
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
            f"{shown} has U+{code:04X}, half of a surrogate pair, which is not text; escape a character beyond U+FFFF "
            "as two halves, or send it as UTF-8.",
            param=shown or None,
        ) from None
