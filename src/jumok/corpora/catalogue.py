"""Downloadable corpora. `sources.json` lists them at pinned commits, with size and SHA-256 of each file.

`get` creates one folder for each corpus in the cache:

    novels/novels.txt       the text
    novels/LICENCE.txt      title, licence and sources
    novels/files/...        the downloaded files, with their paths in the publisher's repository

The files are small. Each is downloaded at once, and written when its size and SHA-256 are correct. Only verified files
are read.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from jumok.errors import CorpusError
from jumok.files import cache_folder, locked, sha256_of, write_atomic
from jumok.messages import did_you_mean, message, reason_of

Progress = Callable[[int, int], None]

PAUSES = (1.0, 2.0, 4.0)  # seconds between tries
SECONDS = 30.0  # without an answer, after which a try fails


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file at a pinned URL."""

    url: str
    bytes: int
    sha256: str

    @property
    def path(self) -> PurePosixPath:
        """The path in the publisher's repository, and below `files/` in the cache."""
        return PurePosixPath(*urlsplit(self.url).path.split("/")[4:])


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """One entry of the catalogue. `format` is the format of its files."""

    name: str
    title: str
    licence: str
    homepage: str
    format: str
    files: tuple[RemoteFile, ...]

    @property
    def bytes(self) -> int:
        """Size of the download."""
        return sum(file.bytes for file in self.files)

    @property
    def filename(self) -> str:
        """Name of the file that `get` creates."""
        return self.name + (".tsv" if self.format.startswith("csv") else ".txt")


TITLES = {
    "novels": message("50 Korean stories of the 1920s-1940s (KoCoNovel)"),
    "chatbot": message("Korean question-answer pairs (Chatbot_data)"),
}
LICENCES = {"novels": message("CC BY-SA 4.0; the texts are in the public domain"), "chatbot": "MIT"}


@cache
def entries() -> dict[str, Corpus]:
    """Return all downloadable corpora by name."""
    listed = json.loads(resources.files("jumok.corpora").joinpath("sources.json").read_text(encoding="utf-8"))
    return {
        name: Corpus(
            name=name,
            title=TITLES[name],
            licence=LICENCES[name],
            **{**entry, "files": tuple(RemoteFile(**file) for file in entry["files"])},
        )
        for name, entry in listed.items()
    }


def get(name: str, *, cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """Return the path of corpus `name` as one file; missing files are downloaded.

    - novels: plain text, one paragraph or line of dialogue per line, a blank line between works.
    - chatbot: tab-separated, with the header `question`, `answer`.

    Every call verifies size and SHA-256 of all files, and writes the result again if it differs. Processes that call it
    at the same time wait for each other.

    Args:
        cache_dir: folder for corpora; None: `corpora` in the cache folder of jumok.
        progress: called with the bytes so far and the bytes of the whole download.

    Raises:
        CorpusError: the name is unknown, the download fails or does not match, or the cache cannot be written.
    """
    corpus = _named(name)
    folder = (cache_dir or cache_folder() / "corpora") / corpus.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", wait=True):
            return _get(corpus, folder, progress)
    except OSError as error:
        raise CorpusError(
            "corpus {name!r} ({bytes:,} bytes) cannot be stored in {folder}: {reason}; make room, or choose another "
            "cache folder; downloaded files are kept",
            name=name,
            bytes=corpus.bytes,
            folder=folder,
            reason=error,
        ) from error


def _named(name: str) -> Corpus:
    known = entries()
    if name in known:
        return known[name]
    raise CorpusError(
        "no corpus {name!r} to download; choose from {names} (the built-in 'stories' needs no download){hint}",
        name=name,
        names=", ".join(known),
        hint=did_you_mean(name.lower(), known, clause=True),
    )


def _get(corpus: Corpus, folder: Path, progress: Progress | None) -> Path:
    paths = []
    done = 0
    for file in corpus.files:
        path = folder / "files" / file.path
        if not (path.is_file() and path.stat().st_size == file.bytes and sha256_of(path) == file.sha256):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                write_atomic(path, _fetch(file))
            except _Unreachable as error:
                raise CorpusError(
                    "corpus {name!r} is not in the cache and cannot be downloaded: {url}: {error}. Try again when the "
                    "network is back (downloaded files are kept), save {url} as {path} by hand, or train on the "
                    "built-in 'stories', which needs no network",
                    name=corpus.name,
                    error=error,
                    url=file.url,
                    path=path,
                ) from None
        paths.append(path)
        done += file.bytes
        if progress is not None:
            progress(done, corpus.bytes)
    target = folder / corpus.filename
    # Assembled in each call: for some megabytes that takes as long as a checksum, and it repairs damage.
    _keep(target, _ASSEMBLE[corpus.name](paths))
    _keep(
        folder / "LICENCE.txt",
        f"{corpus.title}\nLicence: {corpus.licence}\nHomepage: {corpus.homepage}\n"
        f"{corpus.filename} was made of:\n" + "".join(f"  {file.url}\n" for file in corpus.files),
    )
    return target


def _keep(path: Path, content: str) -> None:
    if not path.is_file() or path.read_bytes() != content.encode():
        write_atomic(path, content)


# --- Assembling -------------------------------------------------------------------------------------------------


def _works(paths: Sequence[Path]) -> str:
    """Join the rows of each work in the order of the number after "_" in their id; a blank line separates works."""
    works = []
    for path in paths:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        rows.sort(key=lambda row: int(row["doc_id"].rpartition("_")[2]))
        works.append("\n".join(row["text"] for row in rows))
    return "\n\n".join(works) + "\n"


def _pairs(paths: Sequence[Path]) -> str:
    """Convert .csv with the columns Q and A to .tsv with the columns question and answer."""
    table = io.StringIO()
    writer = csv.writer(table, "excel-tab", lineterminator="\n")
    writer.writerow(["question", "answer"])
    for path in paths:
        with path.open(encoding="utf-8-sig", newline="") as file:
            writer.writerows([row["Q"], row["A"]] for row in csv.DictReader(file))
    return table.getvalue()


_ASSEMBLE: dict[str, Callable[[Sequence[Path]], str]] = {"novels": _works, "chatbot": _pairs}


# --- Downloading ------------------------------------------------------------------------------------------------


class _Unreachable(Exception):
    """A try has failed; another one can succeed."""


def _fetch(file: RemoteFile) -> bytes:
    """Return the verified content of a file; a try that fails is repeated after a pause. Raises `_Unreachable`."""
    for pause in PAUSES:
        try:
            content = _receive(file.url)
            break
        except _Unreachable:
            time.sleep(pause)
    else:
        content = _receive(file.url)
    if len(content) != file.bytes or hashlib.sha256(content).hexdigest() != file.sha256:
        raise CorpusError(
            "{url} does not match the catalogue: expected {bytes:,} bytes with "
            "sha256 {sha256}, got {found:,} bytes that do not match; nothing was kept. A proxy or a login "
            "page may stand in between; otherwise report it to jumok",
            url=file.url,
            bytes=file.bytes,
            sha256=file.sha256,
            found=len(content),
        )
    return content


def _receive(url: str) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "jumok", "Accept-Encoding": "identity"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            content: bytes = response.read()  # raises IncompleteRead if the connection ends too early
            return content
    except urllib.error.HTTPError as error:
        with error:
            if error.code >= 500 or error.code in (408, 429):
                raise _Unreachable(str(error)) from None
            raise CorpusError(
                "{url}: the server answered {code} {reason}; the file was moved or access to it was "
                "blocked: check for a newer version of jumok",
                url=url,
                code=error.code,
                reason=error.reason,
            ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)  # an error, or a text
        text = reason_of(reason) if isinstance(reason, Exception) else str(reason)
        raise _Unreachable(text or type(error).__name__) from None
