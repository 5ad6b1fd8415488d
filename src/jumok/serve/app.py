"""The application of a server: its routes, and the endpoints behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from jumok.serve import chat, completions, task_endpoints
from jumok.serve.desk.routes import desk_operations
from jumok.serve.errors import HANDLERS
from jumok.serve.middleware import OWN
from jumok.serve.openapi import Operation, describe
from jumok.serve.page import page_endpoint
from jumok.serve.replies import HTML, JSON, CancellableResponse, Reply, Threads, json_response
from jumok.serve.run_folders import RunFolders
from jumok.serve.schemas import (
    ChatBody,
    ClassifyBody,
    CompletionBody,
    EmbeddingBody,
    FillMaskBody,
    ModelBody,
    PageBody,
    TokenizeBody,
)
from jumok.serve.served_models import ServedModel, ServedModels
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import copies, send_texts, service_of

B = TypeVar("B", bound=ModelBody)
PROMPTS = 8  # requests whose prompts are encoded at a time


def create_app(models: ServedModels, settings: ServeSettings, folders: RunFolders | None = None) -> Starlette:
    """Return the application of a server: the endpoints, without the limits of `jumok.serve.middleware`.

    Args:
        models: stays with the caller, who closes it.
        folders: what the page shows; None: without a page.
    """
    api = Endpoints(models, settings)
    operations = [
        Operation("GET", "/v1/models", api.list_models),
        Operation("GET", "/v1/models/{name:path}", api.one_model),
        Operation("GET", "/healthz", api.health),
        Operation("POST", "/v1/completions", api.complete, CompletionBody, streams=True),
        Operation("POST", "/v1/chat/completions", api.chat, ChatBody, streams=True),
        Operation("POST", "/v1/embeddings", api.reader(task_endpoints.embed), EmbeddingBody),
        Operation("POST", "/v1/classify", api.reader(task_endpoints.classify), ClassifyBody),
        Operation("POST", "/v1/fill-mask", api.reader(task_endpoints.fill), FillMaskBody),
        Operation("POST", "/v1/tokenize", api.reader(task_endpoints.tokenize), TokenizeBody),
    ]

    async def openapi(request: Request) -> Response:
        return json_response(describe(operations))

    routes = [*(one.route for one in operations), Route("/openapi.json", openapi)]
    if folders is not None:  # what its own page asks for, which no document describes
        pages = [Operation("POST", f"{OWN}view", api.reader(task_endpoints.view_page, HTML), PageBody)]
        if settings.share:
            pages.append(Operation("POST", f"{OWN}share", api.reader(task_endpoints.share_page, HTML), ModelBody))
        own = [*pages, *desk_operations(folders, settings)]
        routes += [*(one.route for one in own), Route("/", page_endpoint(settings))]
    return Starlette(routes=routes, exception_handlers=HANDLERS)


class Endpoints:
    """Answers requests. Models write in the threads of their services; all else is one call at a time."""

    def __init__(self, models: ServedModels, settings: ServeSettings) -> None:
        self._models, self._settings = models, settings
        self._prompts = Threads(PROMPTS)
        self._alone = Threads(1, max(1, settings.waiting))

    async def list_models(self, request: Request) -> Response:
        """List all models, loaded or not."""
        found = await self._prompts.run(lambda: [self._about(name) for name in self._models.names()])
        return json_response({"object": "list", "data": found})

    async def one_model(self, request: Request) -> Response:
        """Describe a model."""
        return json_response(self._about(request.path_params["name"]))

    async def health(self, request: Request) -> Response:
        """Tell that the server answers."""
        return json_response({"status": "ok"})

    async def complete(self, body: CompletionBody) -> Response:
        """Continue prompts."""

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                completions.require_gpt(served)
                service = service_of(served)
                threads = self._alone if body.echo and body.logprobs is not None else self._prompts
                prompts = await threads.run(lambda: completions.read_prompts(served, body, self._settings))
                requests = completions.requests_of(served, body, prompts, self._settings)
                form = completions.CompletionForm(served, body, prompts)
                await send_texts(reply, service, requests, form, body)

        return CancellableResponse(make, self._settings.timeout)

    async def chat(self, body: ChatBody) -> Response:
        """Answer the messages of a chat."""

        async def make(reply: Reply) -> None:
            async with self._models.get(body.model) as served:
                service = service_of(served)
                request = await self._prompts.run(lambda: chat.request_of(served, body, self._settings))
                requests = copies(body, [request], self._settings)
                form = chat.ChatForm(served, body, requests[0])
                await send_texts(reply, service, requests, form, body)

        return CancellableResponse(make, self._settings.timeout)

    def reader(
        self, function: Callable[[ServedModel, B, ServeSettings], str], media_type: str = JSON
    ) -> Callable[[B], Awaitable[Response]]:
        """Return the endpoint of a function that runs a model once."""

        async def endpoint(body: B) -> Response:
            async def make(reply: Reply) -> None:
                async with self._models.get(body.model) as served:
                    found = await self._alone.run(lambda: function(served, body, self._settings))
                    await reply.whole(found, media_type)

            return CancellableResponse(make, self._settings.timeout)

        endpoint.__doc__ = function.__doc__
        return endpoint

    def _about(self, name: str) -> dict[str, Any]:
        created, task, chat = self._models.created(name), self._models.task(name), self._models.has_chat(name)
        return {"id": name, "object": "model", "created": created, "owned_by": "jumok", "task": task, "chat": chat}
