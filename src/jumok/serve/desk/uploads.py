"""Texts that are uploaded for a run: bounded, under names that the server chooses, never executed."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from jumok import text as reader
from jumok.errors import TextError
from jumok.messages import message
from jumok.serve.desk.curves import JSON
from jumok.serve.refused import Refused
from jumok.text.hangul import nfc

FOLDER = ".uploads"  # in the folder of runs
TABLES = (".csv", ".tsv", ".jsonl")
SUFFIXES = (".txt", ".md", *TABLES)
LONGEST_STEM = 40  # characters of a name
SHOWN = 300  # characters of a text
MOST_FACTOR = 10  # all uploads together may have so many times the size of the largest
MOST_AT_ONCE = 2  # each may take the room that the others were counted without
LEFT = 3600.0  # seconds after which an upload that has not grown was left by a process that was killed
NAME = re.compile(r"[\w-]{1,60}\.[a-z]{2,5}")


class Uploads:
    """The uploaded texts in a folder of runs.

    Args:
        most: bytes of a text.
    """

    def __init__(self, root: Path, most: int) -> None:
        self._folder, self._most = root / FOLDER, most
        self._arriving = 0

    async def save(self, name: str, blocks: AsyncIterator[bytes]) -> str:
        """Write a text, and return the name under which it is kept.

        It has letters, digits and "-" of the given name, and a part of the SHA-256 of the content, so the same text is
        kept once.

        Raises:
            Refused: it is too large, the uploads take too much room, or too many arrive at once. OSError: it cannot be
                written.
        """
        if self._arriving >= MOST_AT_ONCE:
            raise Refused(
                message("{most} texts are being uploaded already; try again when one has arrived."),
                status=429, code="busy", most=MOST_AT_ONCE,
            )  # fmt: skip
        self._arriving += 1
        try:
            return await self._write(name, blocks)
        finally:
            self._arriving -= 1

    async def _write(self, name: str, blocks: AsyncIterator[bytes]) -> str:
        """Write a text; see `save`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._remove_left()
        kept = self._kept()
        temporary = self._folder / f".{secrets.token_hex(8)}.tmp"
        digest, size = sha256(), 0
        try:
            with temporary.open("xb") as file:
                async for block in blocks:
                    size += len(block)
                    if size > self._most:
                        raise self._too_large()
                    if size + kept > MOST_FACTOR * self._most:
                        raise Refused(
                            message("the uploaded texts take {size:,} MB; delete some of them in {folder}."),
                            status=413, code="uploads_full", size=kept // 10**6, folder=self._folder,
                        )  # fmt: skip
                    digest.update(block)
                    file.write(block)
            chosen = f"{_stem(name)}-{digest.hexdigest()[:8]}{_suffix(name)}"
            temporary.replace(self._folder / chosen)
        finally:
            temporary.unlink(missing_ok=True)
        return chosen

    def path(self, name: str) -> Path:
        """The file of an upload.

        Raises:
            Refused: there is none.
        """
        path = self._folder / name
        if not NAME.fullmatch(name) or path.is_symlink() or not path.is_file():
            raise Refused(message("there is no uploaded text {name!r}."), status=404, code="no_upload", name=name[:100])
        return path

    def facts(self, name: str, column: str | None) -> JSON:
        """What a text is, from decoding it as a run would. Of a table these are its columns, and the text of one.

        Args:
            column: of a table; None: "text", if there is one.

        Raises:
            TextError: it cannot be decoded. Refused: there is none.
        """
        path = self.path(name)
        columns = reader.column_names(path) if path.suffix in TABLES else ()
        column = column or next((one for one in columns if one == "text"), None)
        found: JSON = {"upload": name, "bytes": path.stat().st_size, "columns": list(columns), "column": column}
        if columns and column is None:
            return found
        try:
            with reader.read(path, column=column) as text:
                found |= {"chars": text.chars, "encoding": text.sources[0].encoding, "opening": text.read(0, SHOWN)}
        except TextError as error:
            if not columns:
                raise
            found["error"] = str(error)  # another column may hold text
        return found

    def forget(self, name: str) -> None:
        """Delete an upload."""
        self.path(name).unlink(missing_ok=True)

    def require_size(self, length: int | None) -> None:
        """Raise Refused for a Content-Length that is too large."""
        if length is not None and length > self._most:
            raise self._too_large()

    def _remove_left(self) -> None:
        """Delete what processes that were killed have left."""
        for one in self._folder.glob(".*.tmp"):
            with suppress(FileNotFoundError):
                if time.time() - one.stat().st_mtime > LEFT:
                    one.unlink()

    def _kept(self) -> int:
        """Bytes of all uploads."""
        total = 0
        for one in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another upload may have ended meanwhile
                total += one.stat().st_size
        return total

    def _too_large(self) -> Refused:
        return Refused(
            message("the file is larger than {most:,} MB; name it on the command line instead: {command}"),
            status=413, code="body_too_large", most=self._most // 10**6, command="jumok train FILE",
        )  # fmt: skip


def _stem(name: str) -> str:
    """Letters and digits of a file name; other characters become "-"."""
    base = re.split(r"[/\\]", nfc(name))[-1]
    return re.sub(r"[\W_]+", "-", base.rpartition(".")[0] or base)[:LONGEST_STEM].strip("-") or "text"


def _suffix(name: str) -> str:
    suffix = Path(name.lower()).suffix
    return suffix if suffix in SUFFIXES else ".txt"
