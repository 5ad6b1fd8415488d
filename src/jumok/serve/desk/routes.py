"""The routes of the desk, under /v1/jumok/: runs, their events, texts, plans, trainings and ladders.

What starts or stops a process, or writes a file, needs a key or a server that only this machine reaches.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect

from jumok.config import SIZES
from jumok.errors import RunError, TextError
from jumok.messages import message
from jumok.runs.stopping import is_training
from jumok.serve.bodies import JSONRoute
from jumok.serve.desk import ladders
from jumok.serve.desk.bodies import (
    LadderBody,
    NameBody,
    PlanBody,
    ResumeBody,
    StartBody,
    TokenizeRunBody,
    UploadBody,
)
from jumok.serve.desk.curves import JSON, Tail, shown
from jumok.serve.desk.folders import RunFolders, ladder_is_running
from jumok.serve.desk.jobs import Jobs
from jumok.serve.desk.uploads import Uploads
from jumok.serve.limits import OWN, UPLOADS, language_of
from jumok.serve.models import Models
from jumok.serve.playground.reading import Units
from jumok.serve.refused import Refused
from jumok.serve.settings import ServeSettings
from jumok.serve.streaming import Reply, WhileConnected, data, to_json
from jumok.serve.threads import Threads
from jumok.serve.writing import require_short
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer
from jumok.version import __version__
from jumok.view.token_text import Reader

READERS = 4  # calls that read run folders at a time
EVERY = 1.0  # seconds between two looks at a log
STREAM_SHARE = 0.8  # of the time of a request, after which a stream ends; a page asks again
TOKENIZERS = 8  # that are kept

T = TypeVar("T")


def add_desk(app: FastAPI, models: Models, folders: RunFolders, settings: ServeSettings) -> None:
    """Add the routes of the desk to an application."""
    desk = Desk(models, folders, settings)
    router = APIRouter(prefix=OWN.rstrip("/"), route_class=DeskRoute)
    for path, endpoint in (
        ("/desk", desk.about),
        ("/runs", desk.runs),
        ("/run", desk.run),
        ("/events", desk.events),
        ("/ladder", desk.ladder),
    ):
        router.add_api_route(path, endpoint, methods=["GET"], response_model=None)
    posts: list[tuple[str, Callable[..., Coroutine[Any, Any, Response]]]] = [
        ("/runs/load", desk.load),
        ("/runs/unload", desk.unload),
        ("/runs/tokenize", desk.tokenize),
    ]
    if desk.writes:
        posts += [
            ("/runs/start", desk.start),
            ("/runs/resume", desk.resume),
            ("/runs/stop", desk.stop),
            ("/runs/forget", desk.forget),
            ("/plan", desk.plan),
            ("/uploads/facts", desk.facts),
            ("/ladder/start", desk.start_ladder),
            ("/ladder/resume", desk.resume_ladder),
            ("/ladder/stop", desk.stop_ladder),
        ]
        app.add_api_route(UPLOADS, desk.upload, methods=["POST"], response_model=None, include_in_schema=False)
    for path, post in posts:
        router.add_api_route(path, post, methods=["POST"], response_model=None)
    app.include_router(router, include_in_schema=False)


class Desk:
    """The endpoints of the desk.

    Attributes:
        writes: whether there are endpoints that start trainings and take texts.
    """

    def __init__(self, models: Models, folders: RunFolders, settings: ServeSettings) -> None:
        self._models, self._folders, self._settings = models, folders, settings
        self._threads = Threads(READERS, max(1, settings.waiting))
        self._tokenizer = lru_cache(TOKENIZERS)(_read_tokenizer)
        self.writes = folders.root is not None and settings.may_write
        if folders.root is not None:
            self._uploads = Uploads(folders.root, settings.max_upload)
            self.jobs = Jobs(folders.root, folders, self._uploads, settings.trainings)

    # --- what there is ------------------------------------------------------------------------------------------------

    async def about(self) -> Response:
        """What this server lets a page do."""
        return _json(
            {
                "version": __version__,
                "writes": self.writes,
                "runs": None if self._folders.root is None else self._folders.root.name,
                "most_upload": self._settings.max_upload,
                "sizes": list(SIZES),
                "tokenizers": ["char", "jamo", "bpe"],
            }
        )

    async def runs(self) -> Response:
        """All runs and ladders."""
        return _json(await self._threads.run(self._list))

    async def run(self, name: str) -> Response:
        """A run with its curve, its samples and its configuration."""
        return _json(await self._threads.run(lambda: self._details(name)))

    async def ladder(self, name: str) -> Response:
        """A ladder with its ten curves."""
        return _json(await self._read(lambda: ladders.race(self._folders, name)))

    async def events(self, name: str, place: Annotated[int, Query(ge=0, lt=2**63)] = 0) -> Response:
        """The events of a run, from a place of its log on, as a stream; whether it is trained, when that changes."""
        folder = await self._threads.run(lambda: self._folders.run(name))

        async def make(reply: Reply) -> None:
            tail, state = Tail(folder / "metrics.jsonl", place), ""
            until = time.monotonic() + STREAM_SHARE * self._settings.timeout
            await reply.begin()
            while time.monotonic() < until:
                found = await self._threads.run(lambda: list(tail.read()))
                known = [{"event": "reset"} if one is None else shown(one) for one in found]
                news = [one for one in known if one is not None]
                running = await self._threads.run(lambda: is_training(folder))
                now = "running" if running else "ended"
                if now != state:
                    news.append({"event": "state", "state": now})
                    state = now
                await reply.piece(data(to_json({"place": tail.place, "events": news})) if news else ": \n\n")
                await asyncio.sleep(EVERY)
            await reply.end()

        return WhileConnected(make, self._settings.timeout)

    async def tokenize(self, body: TokenizeRunBody) -> Response:
        """The tokens of a text in any run."""
        require_short("text", len(body.text), self._settings)
        return _json(await self._read(lambda: self._tokens(body)))

    # --- models -------------------------------------------------------------------------------------------------------

    async def load(self, body: NameBody) -> Response:
        """Serve a run as a model."""
        folder = await self._threads.run(lambda: self._folders.run(body.name))
        self._models.add(body.name, folder)

        async def make(reply: Reply) -> None:
            async with self._models.get(body.name) as served:
                await reply.whole(to_json({"model": served.name, "task": served.task}))

        return WhileConnected(make, self._settings.timeout)

    async def unload(self, body: NameBody) -> Response:
        """Serve a run no longer."""
        await self._threads.run(lambda: self._models.remove(body.name))
        return _json({"model": body.name})

    # --- texts and plans ----------------------------------------------------------------------------------------------

    async def upload(self, request: Request, name: str = "") -> Response:
        """Take a text; the body is the file itself."""
        _require_type(request, "application/octet-stream")
        length = request.headers.get("content-length", "")
        self._uploads.require_size(int(length) if length.isascii() and length.isdigit() else None)
        try:
            async with asyncio.timeout(self._settings.timeout):
                kept = await self._uploads.save(name, request.stream())
        except (ClientDisconnect, TimeoutError):
            raise Refused(message("the file did not arrive."), status=408, code="timeout") from None
        except OSError as error:
            raise Refused(
                message("the text cannot be written: {reason}."), status=507, reason=error.strerror or error
            ) from error
        return _json(await self._checked(kept))

    async def facts(self, body: UploadBody) -> Response:
        """What an uploaded text is."""
        return _json(await self._threads.run(lambda: self._uploads.facts(body.upload, body.column)))

    async def plan(self, body: PlanBody, request: Request) -> Response:
        """What a run would do."""
        language = language_of(request.scope)

        async def make(reply: Reply) -> None:
            await reply.whole(to_json(await self.jobs.plan(body, language)))

        return WhileConnected(make, self._settings.timeout)

    # --- trainings ----------------------------------------------------------------------------------------------------

    async def start(self, body: StartBody, request: Request) -> Response:
        """Start a run."""
        language = language_of(request.scope)
        return _json({"name": await self._read(lambda: self.jobs.start(body, language))})

    async def resume(self, body: ResumeBody, request: Request) -> Response:
        """Continue a run."""
        language = language_of(request.scope)
        await self._read(lambda: self.jobs.resume(body.name, body.minutes, body.steps, language))
        return _json({"name": body.name})

    async def stop(self, body: NameBody) -> Response:
        """Let a run save its state and end."""
        return await self._named(body, self.jobs.stop)

    async def forget(self, body: NameBody) -> Response:
        """Show a start that failed no more."""
        return await self._named(body, self.jobs.forget)

    async def start_ladder(self, body: LadderBody, request: Request) -> Response:
        """Start a ladder."""
        language = language_of(request.scope)
        return _json({"name": await self._read(lambda: self.jobs.start_ladder(body, language))})

    async def resume_ladder(self, body: NameBody, request: Request) -> Response:
        """Continue a ladder."""
        language = language_of(request.scope)
        return await self._named(body, lambda name: self.jobs.resume_ladder(name, language))

    async def stop_ladder(self, body: NameBody) -> Response:
        """Let a ladder save its state and end."""
        return await self._named(body, self.jobs.stop_ladder)

    # --- how they answer ----------------------------------------------------------------------------------------------

    def _list(self) -> JSON:
        served = set(self._models.names())
        runs = []
        for name, folder in self._folders.runs().items():
            try:
                runs.append({**self._folders.summary(name, folder), "served": name in served})
            except OSError:  # the folder has gone meanwhile
                continue
        found = [
            {"name": name, "running": ladder_is_running(folder)} for name, folder in self._folders.ladders().items()
        ]
        return {"runs": runs, "ladders": found, "pending": self.jobs.pending() if self.writes else []}

    def _details(self, name: str) -> JSON:
        """What the page of a run shows; of one that was just started, and has no folder yet, its process."""
        if self.writes and nfc(name) not in self._folders.runs():
            for started in self.jobs.pending():
                if started["name"] == nfc(name):
                    return {"name": name, "started": started}
        found = self._folders.details(name, self._folders.run(name))
        return {**found, "served": name in self._models.names()}

    def _tokens(self, body: TokenizeRunBody) -> JSON:
        path = self._folders.run(body.name) / "tokenizer.json"
        try:
            status = path.stat()
            tokenizer = self._tokenizer(path, status.st_mtime_ns, status.st_size)
        except OSError:
            raise Refused(message("{name} has no tokenizer."), status=409, name=body.name) from None
        ids = tokenizer.encode(body.text).tolist()
        pieces = Reader(tokenizer).read(ids)
        units = Units(pieces.text)
        tokens = [
            {"id": one.id, "text": one.text, "start": units(one.start), "end": units(one.stop)} for one in pieces.tokens
        ]
        return {"name": body.name, "kind": tokenizer.kind, "text": pieces.text, "pieces": tokens}

    async def _read(self, call: Callable[[], T]) -> T:
        """What a function returns. A damaged folder is told to the client: the desk is its owner's."""
        try:
            return await self._threads.run(call)
        except RunError as error:
            raise Refused(message("{said}"), status=409, code="damaged", said=error) from error

    async def _named(self, body: NameBody, call: Callable[[str], None]) -> Response:
        await self._read(lambda: call(body.name))
        return _json({"name": body.name})

    async def _checked(self, kept: str) -> JSON:
        """The facts of a new upload, which is deleted if it is no text."""
        try:
            return await self._threads.run(lambda: self._uploads.facts(kept, None))
        except TextError:
            self._uploads.forget(kept)
            raise


class DeskRoute(JSONRoute):
    """A route whose bodies are declared as JSON, which a form of another site cannot send."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of the route (FastAPI)."""
        handler = super().get_route_handler()

        async def declared(request: Request) -> Response:
            if request.method == "POST":
                _require_type(request, "application/json")
            return await handler(request)

        return declared


def _require_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise Refused(message("send this request with Content-Type: {wanted}."), status=415, wanted=wanted)


def _read_tokenizer(path: Path, *changed: int) -> Tokenizer:
    """A tokenizer. changed: time and size of the file, for the cache."""
    return Tokenizer.load(path)


def _json(values: JSON) -> Response:
    return Response(to_json(values), media_type="application/json")
