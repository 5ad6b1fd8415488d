"""`Training`: the one training that a server runs, as a process of its own that survives the server.

A training is `python -m jumok train` with a list of arguments, without a shell. Whether it runs, and how far it is, is
in its run folder; only the moment before it has made that folder, and what it said if it failed there, is known to the
server that started it alone.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

from jumok import text as reader
from jumok.files import on_disk
from jumok.messages import message, users_language
from jumok.runs.folder import is_training, stop_file
from jumok.serve.desk.curves import JSON
from jumok.serve.errors import Refused
from jumok.serve.run_folders import RunFolders
from jumok.serve.schemas import StartBody
from jumok.text.hangul import nfc

NAME = re.compile(r"\w[\w.-]{0,59}")  # of a new run
UPLOADS, LOGS = ".uploads", ".logs"  # in the folder of runs
TABLES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
SUFFIXES = (".txt", ".md", *TABLES)
LONGEST_STEM = 40  # characters of the name of an upload
SHOWN = 300  # characters of a text
LAST_LINES = 12  # of what a process said, that are shown
ENDING_SECONDS = 15.0  # for which a process that has ended its training is waited for


class Training:
    """Starts, continues and stops the trainings of a folder of runs, one at a time.

    Args:
        folders: with the folder of runs, created when a run is started. most_upload: bytes of a text.
    """

    def __init__(self, folders: RunFolders, most_upload: int) -> None:
        self._folders, self._most_upload = folders, most_upload
        self._root = folders.root or Path()
        self._name = ""
        self._process: subprocess.Popen[bytes] | None = None  # that was started last
        self._starting = threading.Lock()  # between the look for another training and the start

    def started(self) -> JSON | None:
        """Return the process that has no run folder yet, or has failed: its name, its exit code and its last words."""
        name, process = self._name, self._process
        code = None if process is None else process.poll()
        if process is None or code in (0, 130) or (code is None and self._folders.get(name) is not None):
            return None
        said = b""
        with suppress(OSError):
            said = self._log(name).read_bytes()
        return {"name": name, "code": code, "said": _last_lines(said)}

    def start(self, body: StartBody) -> str:
        """Start a run, and return its name.

        Raises:
            Refused: the name is taken or no name for a folder, there is no such text, or another run is trained.
        """
        name = nfc(body.name)
        if not NAME.fullmatch(name):
            wrong = message("{name!r} is no name for a run; use letters, digits, -, _ and ., at most {most} of them.")
            raise Refused(wrong, code="bad_name", name=name[:100], most=60)
        chosen = {"task": body.task, "size": body.size, "tokenizer": body.tokenizer, "minutes": f"{body.minutes:g}"}
        options = [f"--{option}={value}" for option, value in (chosen | body.columns).items() if value is not None]
        texts = [] if body.text is None else [str(self._uploaded(body.text).absolute())]
        with self._starting:
            if os.path.lexists(on_disk(self._root / name)):
                taken = message("there is a folder {name} already; choose another name.")
                raise Refused(taken, status=409, code="name_taken", name=name)
            self._launch(name, ["train", *texts, "--out", str(self._root / name), *options])
        return name

    def resume(self, name: str) -> None:
        """Continue a run that was stopped.

        Raises:
            Refused: there is no such run, or one is trained already.
        """
        folder = folder_of(self._folders, name).absolute()
        with self._starting:
            self._launch(name, ["train", "--resume", "--out", str(folder)])

    def stop(self, name: str) -> None:
        """Let a run save its state and end, whoever started it with `jumok train`.

        Raises:
            Refused: there is no such run, or it is not being trained.
        """
        folder = folder_of(self._folders, name)
        if not is_training(folder):
            raise Refused(message("{name} is not being trained."), status=409, code="not_running", name=name)
        stop_file(folder).touch()

    # --- texts --------------------------------------------------------------------------------------------------------

    async def save_upload(self, name: str, blocks: AsyncIterator[bytes]) -> JSON:
        """Write a text into the folder of uploads, and return its name there and what it is.

        Of the given name, letters, digits and "-" are kept; a text of the same name is replaced. Of a table the names
        of its columns are returned, of other texts their length, their encoding and their beginning.

        Raises:
            Refused: it is too large. TextError: it is no text. OSError: it cannot be written.
        """
        base = re.split(r"[/\\]", nfc(name))[-1]
        suffix = suffix if (suffix := Path(base.lower()).suffix) in SUFFIXES else ".txt"
        stem = re.sub(r"[\W_]+", "-", base.rpartition(".")[0] or base)[:LONGEST_STEM].strip("-") or "text"
        folder, size = self._root / UPLOADS, 0
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{secrets.token_hex(8)}{suffix}"
        try:
            with temporary.open("xb") as file:
                async for block in blocks:
                    size += len(block)
                    if size > self._most_upload:
                        large = message("the file is larger than {most:,} MB; name it on the command line: {command}")
                        most, command = self._most_upload // 10**6, "jumok train FILE"
                        raise Refused(large, status=413, code="body_too_large", most=most, command=command)
                    file.write(block)
            found: JSON = {"upload": f"{stem}{suffix}", "columns": []}
            if suffix in TABLES:
                found["columns"] = list(reader.column_names(temporary))
            else:
                with reader.read(temporary) as text:
                    encoding, opening = text.sources[0].encoding, text.read(0, SHOWN)
                    found |= {"chars": text.chars, "encoding": encoding, "opening": opening}
            temporary.replace(folder / found["upload"])
        finally:
            temporary.unlink(missing_ok=True)
        return found

    def _uploaded(self, name: str) -> Path:
        path = self._root / UPLOADS / name
        if re.fullmatch(r"[\w-]+\.[a-z]+", name) is None or path.is_symlink() or not path.is_file():
            raise Refused(message("there is no uploaded text {name!r}."), status=404, code="no_upload", name=name[:100])
        return path

    # --- processes ----------------------------------------------------------------------------------------------------

    def _launch(self, name: str, words: Sequence[str]) -> None:
        running = [one for one, folder in self._folders.all().items() if is_training(folder)]
        if self._process is not None and not running:  # it has saved its state and is about to end, or reads its text
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_SECONDS if self._folders.get(self._name) else 0)
        if running or (self._process is not None and self._process.poll() is None):
            busy = message("{names} is being trained; wait until it has ended, or stop it first.")
            raise Refused(busy, status=409, code="busy", names=", ".join(running) or self._name)
        log = self._log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jumok", *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=said, env={**os.environ, "JUMOK_LANG": users_language(), "PYTHONIOENCODING": "utf-8"},
                start_new_session=True,
            )  # fmt: skip
        self._name = name

    def _log(self, name: str) -> Path:
        return self._root / LOGS / f"{name}.log"


def folder_of(folders: RunFolders, name: str) -> Path:
    """Return the folder of a run.

    Raises:
        Refused: there is none.
    """
    folder = folders.get(name)
    if folder is None:
        raise Refused(message("there is no run {name!r}."), status=404, code="run_not_found", name=name[:100])
    return folder


def _last_lines(said: bytes) -> str:
    """Return the end of what a process wrote; a progress line is written over by the next one."""
    lines = [line.rpartition("\r")[2].strip() for line in said[-20_000:].decode(errors="replace").split("\n")]
    return "\n".join([line for line in lines if line][-LAST_LINES:])
