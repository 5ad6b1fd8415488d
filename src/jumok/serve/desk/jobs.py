"""`Jobs`: trainings that the desk starts, as processes of their own that survive the server.

A training is `python -m jumok train` with a list of arguments, without a shell. Whether it runs, and how far it is, is
in its run folder; only the moment before it has made that folder, and what it said if it failed there, is known to the
server that started it alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jumok.course.ladder.results import LadderRecord
from jumok.course.ladder.run import STOP_FILE
from jumok.messages import Language, message
from jumok.runs.stopping import is_training, stop_file
from jumok.serve.desk.bodies import LadderBody, PlanBody, StartBody
from jumok.serve.desk.curves import JSON
from jumok.serve.desk.folders import RunFolders, ladder_is_running
from jumok.serve.desk.uploads import Uploads
from jumok.serve.refused import Refused
from jumok.text.hangul import nfc

NAME = re.compile(r"\w[\w.-]{0,59}")  # of a new run
LOGS = ".logs"  # in the folder of runs
LAST_LINES = 12  # of what a process said, that are shown
PLAN_SECONDS = 300.0
ENDING_SECONDS = 15.0  # for which a process that has ended its training is waited for


class Jobs:
    """The trainings of a folder of runs.

    Args:
        root: the folder of runs, created when a run is started. most: trainings at a time.
    """

    def __init__(self, root: Path, folders: RunFolders, uploads: Uploads, most: int = 1) -> None:
        self._root, self._folders, self._uploads, self._most = root, folders, uploads, most
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()  # between the look for a free place and the start
        self._changing = threading.Lock()  # of `_started`; held for a moment only
        self._planning = asyncio.Lock()

    # --- what runs ----------------------------------------------------------------------------------------------------

    def pending(self) -> list[JSON]:
        """The processes without a run folder yet, or that ended with an error; what they said last."""
        found, known = [], self._folders.runs()
        for name, process in list(self._started.items()):
            code = process.poll()
            if code in (0, 130):
                self._forget(name, process)
                continue
            if code is None and name in known:
                continue
            found.append({"name": name, "code": code, "said": self._said(name)})
        return found

    def forget(self, name: str) -> None:
        """Show a process that has failed no more."""
        process = self._started.get(name)
        if process is not None and process.poll() is not None:
            self._forget(name, process)

    def wait(self, seconds: float) -> None:
        """Wait until all processes have ended; for tests.

        Raises:
            subprocess.TimeoutExpired: one goes on.
        """
        for process in list(self._started.values()):
            process.wait(seconds)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def start(self, body: StartBody, language: Language) -> str:
        """Start a run, and return its name.

        Raises:
            Refused: the name is taken or no name for a folder, there is no such text, or too many trainings run.
        """
        name = self._free_name(body.name)
        self._launch(name, ["train", *self._texts(body), "--out", str(self._root / name), *_options(body)], language)
        return name

    def resume(self, name: str, minutes: float | None, steps: int | None, language: Language) -> None:
        """Continue a run; with a length, train a finished one further.

        Raises:
            Refused: there is no such run, it is trained already, or too many trainings run.
        """
        folder = self._folders.run(name)
        if is_training(folder):
            raise Refused(message("{name} is being trained already."), status=409, code="running", name=name)
        length = ["--minutes", f"{minutes:g}"] if minutes is not None else []
        length += ["--steps", str(steps)] if steps is not None else []
        self._launch(name, ["train", "--resume", "--out", str(folder.absolute()), *length], language)

    def stop(self, name: str) -> None:
        """Let a run save its state and end, whoever started it with `jumok train`.

        Raises:
            Refused: there is no such run, or it is not being trained.
        """
        folder = self._folders.run(name)
        if not is_training(folder):
            raise Refused(message("{name} is not being trained."), status=409, code="not_running", name=name)
        stop_file(folder).touch()

    # --- ladders ------------------------------------------------------------------------------------------------------

    def start_ladder(self, body: LadderBody, language: Language) -> str:
        """Start a ladder, and return its name; raises as `start`."""
        name = self._free_name(body.name)
        length = ["--minutes-per-rung", f"{body.minutes:g}"]
        words = ["learn", "ladder", *self._texts(body), "--out", str(self._root / name), "--lang", language, *length]
        self._launch(name, words, language)
        return name

    def resume_ladder(self, name: str, language: Language) -> None:
        """Continue a ladder with the text and the settings of its start.

        Raises:
            Refused: there is no such ladder, its text is not among the uploads, it runs already, or too many trainings
                run. RunError: it is damaged.
        """
        folder = self._folders.ladder(name)
        if ladder_is_running(folder):
            raise Refused(message("{name} is being trained already."), status=409, code="running", name=name)
        record = LadderRecord.read(folder)
        texts = [str(self._uploads.path(one)) for one in record.asked or ()]
        words = ["learn", "ladder", *texts, *record.reading, "--out", str(folder), "--lang", language]
        if record.config.steps_per_rung is not None:
            words += ["--steps-per-rung", str(record.config.steps_per_rung)]
        else:
            words += ["--minutes-per-rung", f"{record.config.minutes_per_rung:g}"]
        self._launch(name, [*words, "--seed", str(record.config.seed)], language)

    def stop_ladder(self, name: str) -> None:
        """Let a ladder save its state and end.

        Raises:
            Refused: there is no such ladder, or it does not run.
        """
        folder = self._folders.ladder(name)
        if not ladder_is_running(folder):
            raise Refused(message("{name} is not being trained."), status=409, code="not_running", name=name)
        (folder / STOP_FILE).touch()

    # --- plans --------------------------------------------------------------------------------------------------------

    async def plan(self, body: PlanBody, language: Language) -> JSON:
        """What `jumok train --explain` says of a run; one plan at a time, because it is measured.

        Raises:
            Refused: the run is not possible; the message is that of the command.
        """
        words = ["train", *self._texts(body), *_options(body), "--explain", "--json", "--quiet"]
        async with self._planning:
            process = await asyncio.create_subprocess_exec(
                *_command(words), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, env=_environment(language), start_new_session=True,
            )  # fmt: skip
            try:
                async with asyncio.timeout(PLAN_SECONDS):
                    out, said = await process.communicate()
            finally:
                if process.returncode is None:  # the client has gone, or the time is up
                    process.kill()
                    await process.wait()
        if process.returncode:
            raise Refused(message("{said}"), code="no_plan", said=_last_lines(said))
        plan: JSON = json.loads(out.splitlines()[-1])
        return plan

    # --- processes ----------------------------------------------------------------------------------------------------

    def _launch(self, name: str, words: Sequence[str], language: Language) -> None:
        with self._lock:
            before = self._started.get(name)
            if before is not None and name not in self._folders.busy():  # it has saved its state and is about to end
                with suppress(subprocess.TimeoutExpired):
                    before.wait(ENDING_SECONDS)
            running = {
                *self._folders.busy(),
                *(one for one, process in list(self._started.items()) if process.poll() is None),
            }
            if len(running) >= self._most:
                raise Refused(
                    message("{names} is being trained; wait until it has ended, or stop it first."),
                    status=409, code="busy", names=", ".join(sorted(running)),
                )  # fmt: skip
            self._root.mkdir(parents=True, exist_ok=True)
            log = self._log(name)
            log.parent.mkdir(exist_ok=True)
            with log.open("wb") as said:
                process = subprocess.Popen(
                    _command(words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                    env=_environment(language), start_new_session=True,
                )  # fmt: skip
            with self._changing:
                self._started[name] = process

    def _forget(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """Remove a process that has ended, unless another one of this name was started meanwhile."""
        with self._changing:
            if self._started.get(name) is process:
                del self._started[name]

    def _said(self, name: str) -> str:
        try:
            return _last_lines(self._log(name).read_bytes())
        except OSError:
            return ""

    def _log(self, name: str) -> Path:
        return self._root / LOGS / f"{name.replace('/', '--')}.log"

    def _free_name(self, name: str) -> str:
        name = nfc(name)
        if not NAME.fullmatch(name):
            raise Refused(
                message("{name!r} is no name for a run; use letters, digits, -, _ and ., at most {most} of them."),
                code="bad_name", name=name[:100], most=60,
            )  # fmt: skip
        started = self._started.get(name)
        if os.path.lexists(self._root / name) or (started is not None and started.poll() is None):
            raise Refused(
                message("there is a folder {name} already; choose another name."),
                status=409,
                code="name_taken",
                name=name,
            )
        return name

    def _texts(self, body: PlanBody | LadderBody) -> list[str]:
        """The arguments that name the text; none for the built-in stories."""
        column = [f"--column={body.column}"] if body.column is not None else []
        return [] if body.text is None else [str(self._uploads.path(body.text).absolute()), *column]


def _options(body: PlanBody) -> list[str]:
    """The settings of a run as arguments."""
    length = ["--steps", str(body.steps)] if body.steps is not None else ["--minutes", f"{body.minutes or 10:g}"]
    chosen = {"--size": body.size, "--family": body.family, "--tokenizer": body.tokenizer}
    return [*length, *(word for name, value in chosen.items() if value is not None for word in (name, value))]


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "jumok", *words]


def _environment(language: Language) -> dict[str, str]:
    return {**os.environ, "JUMOK_LANG": language, "PYTHONIOENCODING": "utf-8"}


def _last_lines(said: bytes) -> str:
    """The end of what a process wrote; a progress line is written over by the next one."""
    lines = [line.rpartition("\r")[2].strip() for line in said[-20_000:].decode(errors="replace").split("\n")]
    return "\n".join([line for line in lines if line][-LAST_LINES:])
