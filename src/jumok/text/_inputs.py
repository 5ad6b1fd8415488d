"""Inputs: files, folders and standard input, opened so that they can be read more than once."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import IO, Literal, NamedTuple

from jumok.errors import TextError
from jumok.files import on_disk
from jumok.messages import did_you_mean, tr

Format = Literal["text", "json", "csv", "tsv", "parquet"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
}
"""Formats by suffix. A folder is searched for these; a file given by name with another suffix is plain text or JSON."""

_NAMED = {**FORMATS, ".json": "json"}  # a folder has .json files of other kinds

TABLES = {suffix: format for suffix, format in FORMATS.items() if format != "text"}
"""The suffixes of files that have rows and columns."""


IN_MEMORY = 64 << 20  # bytes of a stream, or of a text in UTF-8, to hold in memory


class Input(NamedTuple):
    """One file to read, or standard input."""

    name: str  # as the user gave it
    path: str  # as the file system spells it
    format: Format
    named: bool  # given by name, so it must not be empty; files found in a folder may be


def find(name: str, *, tables_only: bool = False) -> list[Input]:
    """Return the inputs that one argument refers to; a folder is searched for `FORMATS`, or for `TABLES`.

    Raises:
        TextError: nothing is found, or a folder cannot be read.
    """
    if name == "-":
        return [Input("<stdin>", "-", "text", named=True)]
    if not name:  # as of an unset variable of a shell; as a path it would be the current folder
        raise TextError("the name of a text is empty; name a file or a folder, or - for standard input")
    path = on_disk(name)
    if not os.path.exists(path):  # unlike Path.exists, never raises
        raise _missing(path)
    if not path.is_dir():
        return [Input(name, str(path), _NAMED.get(path.suffix.lower(), "text"), named=True)]

    def refuse(error: OSError) -> None:
        raise unreadable(error.filename, error) from error

    formats = TABLES if tables_only else FORMATS

    found = []
    for folder, subfolders, files in os.walk(path, onerror=refuse):
        subfolders[:] = [sub for sub in subfolders if not sub.startswith(".")]
        if {"dataset_info.json", "dataset_dict.json"} & {*files}:
            raise TextError(
                "{folder} is a folder of datasets, whose Arrow files are not read; write each part as Parquet: "
                'datasets.load_from_disk(...).to_parquet("part.parquet")',
                folder=folder,
            )
        for file in (Path(folder, file) for file in files if not file.startswith(".")):
            if file.suffix.lower() in formats and file.is_file():
                found.append(file)
    if not found:
        raise TextError(
            "{name} is a folder with no {what} in it; jumok reads {formats}",
            name=name,
            what=tr("table") if tables_only else tr("text"),
            formats=", ".join(formats),
        )
    return [
        Input(str(file), str(file), formats[file.suffix.lower()], named=False)
        for file in sorted(found, key=lambda file: file.parts)
    ]


def _missing(path: Path) -> TextError:
    """Return the error for a file that is not there, which suggests a similar name."""
    try:
        siblings = [unicodedata.normalize("NFC", sibling.name) for sibling in path.parent.iterdir()]
    except OSError as error:
        return TextError(
            "{path} does not exist: its folder {folder}: {reason}", path=path, folder=path.parent, reason=error
        )
    name = unicodedata.normalize("NFC", path.name)
    return TextError("{path} does not exist{hint}", path=path, hint=did_you_mean(name, siblings, clause=True))


def open_input(file: Input) -> IO[bytes]:
    """Open an input as a seekable file; standard input and pipes are copied to a temporary file.

    Raises:
        TextError: it cannot be read, or is a device.
    """
    try:
        if file.path == "-":
            return _copy(sys.stdin.buffer)
        kind = os.stat(file.path).st_mode
        if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
            raise TextError("{name} is a device, which may never end; give a file, or - to read stdin", name=file.name)
        stream = open(file.path, "rb")  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        raise unreadable(file.name, error) from error
    if stream.seekable():
        return stream
    with stream:
        return _copy(stream)


def _copy(stream: IO[bytes]) -> IO[bytes]:
    copy = spool()
    try:
        shutil.copyfileobj(stream, copy)
    except OSError as error:
        copy.close()
        raise no_room(error) from error
    return copy


def spool() -> IO[bytes]:
    """Return a temporary file: in memory up to `IN_MEMORY` bytes, then on disk."""
    # The file on disk is unnamed, so that a killed process leaves none behind.
    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)


def unreadable(name: str, error: OSError) -> TextError:
    """Return the error for a file that cannot be read."""
    return TextError("{name} cannot be read: {reason}", name=name, reason=error)


def no_room(error: OSError) -> TextError:
    """Return the error for a temporary file that cannot be written."""
    return TextError(
        "the temporary copy of the text cannot be written to {folder}: {reason}; free some space "
        "there, or point TMPDIR to a folder with room",
        folder=tempfile.gettempdir(),
        reason=error,
    )
