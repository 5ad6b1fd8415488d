"""The application of a server and its routes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI
from fastapi.responses import PlainTextResponse, Response

from jumok.serve import chat, completions, task_endpoints
from jumok.serve.desk.routes import desk_routes
from jumok.serve.errors import add_handlers
from jumok.serve.metrics import CONTENT_TYPE, Metrics
from jumok.serve.middleware import OWN
from jumok.serve.page import page_endpoint
from jumok.serve.replies import HTML, JSON, CancellableResponse, Reply, Threads, json_response
from jumok.serve.run_folders import RunFolders
from jumok.serve.schemas import (
    ChatBody,
    ClassifyBody,
    CompletionBody,
    EmbeddingBody,
    ErrorBody,
    FillMaskBody,
    ModelBody,
    PageBody,
    TokenizeBody,
)
from jumok.serve.served_models import ServedModel, ServedModels
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import copies, send_texts, service_of
from jumok.version import __version__

B = TypeVar("B", bound=ModelBody)
PROMPTS = 8  # requests whose prompts are encoded at a time
ERRORS: dict[int | str, dict[str, Any]] = {"4XX": {"model": ErrorBody}, "5XX": {"model": ErrorBody}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}


def create_app(
    models: ServedModels, settings: ServeSettings, metrics: Metrics | None = None, folders: RunFolders | None = None
) -> FastAPI:
    """Return the application of a server: the endpoints, without the limits of `jumok.serve.middleware`.

    Args:
        models: stays with the caller, who closes it. metrics: None: new ones.
        folders: what the page shows; None: without a page.
    """
    app = FastAPI(title="jumok", version=__version__, docs_url=None, redoc_url=None)  # those load scripts from a CDN
    router = APIRouter(responses=ERRORS)
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
    readers: dict[str, Callable[..., Awaitable[Response]]] = {
        "embeddings": api.reader(task_endpoints.embed, EmbeddingBody),
        "classify": api.reader(task_endpoints.classify, ClassifyBody),
        "fill-mask": api.reader(task_endpoints.fill, FillMaskBody),
        "tokenize": api.reader(task_endpoints.tokenize, TokenizeBody),
    }
    for name, read_endpoint in readers.items():
        router.add_api_route(f"/v1/{name}", read_endpoint, name=name, methods=["POST"], response_model=None)
    app.include_router(router)
    if folders is not None:
        own = APIRouter(prefix=OWN.rstrip("/"))  # serves the page of this version
        view = api.reader(task_endpoints.view_page, PageBody, HTML)
        own.add_api_route("/view", view, methods=["POST"], response_model=None)
        if settings.share:
            share = api.reader(task_endpoints.share_page, ModelBody, HTML)
            own.add_api_route("/share", share, methods=["POST"], response_model=None)
        app.include_router(own, include_in_schema=False)
        app.include_router(desk_routes(folders, settings), include_in_schema=False)
        page = page_endpoint(settings)
        app.add_api_route("/", page, methods=["GET", "HEAD"], response_model=None, include_in_schema=False)
    add_handlers(app)
    return app


class Endpoints:
    """Answers requests. Models write in the threads of their services; all else is one call at a time."""

    def __init__(self, models: ServedModels, settings: ServeSettings, metrics: Metrics) -> None:
        self._models, self._settings, self._metrics = models, settings, metrics
        self._prompts = Threads(PROMPTS)
        self._alone = Threads(1, max(1, settings.waiting))

    async def list_models(self) -> Response:
        """List all models, loaded or not."""
        found = await self._prompts.run(lambda: [self._about(name) for name in self._models.names()])
        return json_response({"object": "list", "data": found})

    async def one_model(self, name: str) -> Response:
        """Describe a model."""
        return json_response(self._about(name))

    async def health(self) -> Response:
        """Tell that the server answers."""
        return json_response({"status": "ok"})

    async def figures(self) -> Response:
        """Return the figures for Prometheus."""
        return PlainTextResponse(self._metrics.text(), media_type=CONTENT_TYPE)

    async def complete(self, body: CompletionBody) -> Response:
        """Continue prompts."""
        since = time.perf_counter()

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                completions.require_gpt(served)
                service = service_of(served)
                threads = self._alone if body.echo and body.logprobs is not None else self._prompts
                prompts = await threads.run(lambda: completions.read_prompts(served, body, self._settings))
                requests = completions.requests_of(served, body, prompts, self._settings)
                form = completions.CompletionForm(served, body, prompts)
                await send_texts(reply, service, requests, form, body, self._metrics, since)

        return CancellableResponse(make, self._settings.timeout)

    async def chat(self, body: ChatBody) -> Response:
        """Answer the messages of a chat."""
        since = time.perf_counter()

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                service = service_of(served)
                request = await self._prompts.run(lambda: chat.request_of(served, body, self._settings))
                requests = copies(body, [request], self._settings)
                form = chat.ChatForm(served, body, requests[0])
                await send_texts(reply, service, requests, form, body, self._metrics, since)

        return CancellableResponse(make, self._settings.timeout)

    def reader(
        self, function: Callable[[ServedModel, B, ServeSettings], str], kind: type[B], media_type: str = JSON
    ) -> Callable[[B], Awaitable[Response]]:
        """Return the endpoint of a function that runs a model once. kind: of its bodies."""

        async def endpoint(body: B) -> Response:
            async def make(reply: Reply) -> None:
                async with self._models.get(body.model) as served:
                    found = await self._alone.run(lambda: function(served, body, self._settings))
                    await reply.whole(found, media_type)

            return CancellableResponse(make, self._settings.timeout)

        endpoint.__annotations__["body"] = kind  # from which FastAPI knows how to read it
        return endpoint

    def _about(self, name: str) -> dict[str, Any]:
        created, task, chat = self._models.created(name), self._models.task(name), self._models.has_chat(name)
        return {"id": name, "object": "model", "created": created, "owned_by": "jumok", "task": task, "chat": chat}
