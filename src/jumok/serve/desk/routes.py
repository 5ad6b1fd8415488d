"""The routes of the desk, under /v1/jumok/: runs and their curves, uploads, the training.

What starts or stops a process, or writes a file, needs a key or a server that only this machine reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from jumok.config import SIZES
from jumok.errors import RunError
from jumok.messages import message
from jumok.serve.desk.curves import JSON
from jumok.serve.desk.summaries import details, summary
from jumok.serve.desk.training import Training, folder_of
from jumok.serve.errors import Refused
from jumok.serve.middleware import OWN
from jumok.serve.openapi import Operation
from jumok.serve.replies import Threads, json_response
from jumok.serve.run_folders import RunFolders
from jumok.serve.schemas import COLUMNS, NameBody, StartBody
from jumok.serve.settings import ServeSettings

READERS = 4  # calls that read run folders at a time


def desk_operations(folders: RunFolders, settings: ServeSettings) -> list[Operation]:
    """Return what the page does with runs."""
    desk = Desk(folders, settings)
    reads = [
        Operation("GET", f"{OWN}desk", desk.about),
        Operation("GET", f"{OWN}runs", desk.runs),
        Operation("GET", f"{OWN}run", desk.run),
    ]
    writes = [
        Operation("POST", f"{OWN}runs/start", desk.start, StartBody),
        Operation("POST", f"{OWN}runs/resume", desk.resume, NameBody),
        Operation("POST", f"{OWN}runs/stop", desk.stop, NameBody),
        Operation("POST", f"{OWN}uploads", desk.upload),
    ]
    return [*reads, *(writes if desk.writes else [])]


class Desk:
    """Answers the requests of the page about runs and trainings.

    Attributes:
        writes: whether clients may start trainings and send texts.
    """

    def __init__(self, folders: RunFolders, settings: ServeSettings) -> None:
        self._folders, self._settings = folders, settings
        self._threads = Threads(READERS, max(1, settings.waiting))
        self.writes = folders.root is not None and settings.may_write
        self._training = Training(folders, settings.max_upload)

    async def about(self, request: Request) -> Response:
        """Tell what this server lets a page do."""
        may = {"writes": self.writes, "shares": self._settings.share, "most_upload": self._settings.max_upload}
        return json_response({**may, "sizes": list(SIZES), "columns": COLUMNS})

    async def runs(self, request: Request) -> Response:
        """List all runs, and a process that was started and has no run folder."""

        def listed() -> JSON:
            found = []
            for name, folder in self._folders.all().items():
                with suppress(OSError):  # the folder has gone meanwhile
                    found.append(summary(name, folder))
            return {"runs": found, "started": self._training.started()}

        return await self._read(listed)

    async def run(self, request: Request) -> Response:
        """Return a run with its curve and its samples; of one that was just started and has no folder, its process."""
        name = request.query_params.get("name", "")

        def found() -> JSON:
            started = self._training.started()
            if started is not None and started["name"] == name and self._folders.get(name) is None:
                return {"name": name, "started": started}
            return details(name, folder_of(self._folders, name))

        return await self._read(found)

    async def upload(self, request: Request) -> Response:
        """Take a text; the body is the file itself."""
        if request.headers.get("content-type") != "application/octet-stream":  # which no form of another site sends
            raise Refused(message("send this request with Content-Type: {wanted}."), wanted="application/octet-stream")
        name = request.query_params.get("name", "")
        try:
            async with asyncio.timeout(self._settings.timeout):
                return json_response(await self._training.save_upload(name, request.stream()))
        except (ClientDisconnect, TimeoutError):
            raise Refused(message("the file did not arrive."), status=408, code="timeout") from None
        except OSError as error:
            raise Refused(message("the text cannot be written: {reason}."), status=500, reason=error) from error

    async def start(self, body: StartBody) -> Response:
        """Start a run."""
        return await self._read(lambda: {"name": self._training.start(body)})

    async def resume(self, body: NameBody) -> Response:
        """Continue a run."""
        return await self._read(lambda: self._training.resume(body.name))

    async def stop(self, body: NameBody) -> Response:
        """Let a run save its state and end."""
        return await self._read(lambda: self._training.stop(body.name))

    async def _read(self, call: Callable[[], JSON | None]) -> Response:
        """Answer with what a function returns. A damaged folder is told to the client: the desk is its owner's."""
        try:
            return json_response(await self._threads.run(lambda: call() or {}))
        except RunError as error:
            raise Refused(message("{said}"), status=409, code="damaged", said=error) from error
