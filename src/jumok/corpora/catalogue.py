"""Downloadable corpora. `sources.json` lists them at pinned commits, with size and SHA-256 of each file.

`get` creates one folder for each corpus in the cache:

    novels/novels.txt       the text
    novels/LICENCE.txt      title, licence and sources
    novels/files/...        the downloaded files, with their paths in the publisher's repository

A download is stored as `*.part` and resumed after an interruption. It is renamed when its size and SHA-256 are correct.
Only verified files are read.
"""

from __future__ import annotations

import csv
import errno
import http.client
import io
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.parse import urlsplit

from jumok.errors import CorpusError
from jumok.files import cache_folder, locked, sha256_of, sync_folder, write_atomic
from jumok.messages import did_you_mean, tr

Progress = Callable[[int, int], None]

_TRIES = 5  # consecutive tries without a new byte
_BLOCK = 1 << 16


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


@cache
def entries() -> dict[str, Corpus]:
    """Return all downloadable corpora by name."""
    listed = json.loads(resources.files("jumok.corpora").joinpath("sources.json").read_text(encoding="utf-8"))
    return {
        name: Corpus(name=name, **{**entry, "files": tuple(RemoteFile(**file) for file in entry["files"])})
        for name, entry in listed.items()
    }


def get(
    name: str,
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    base_url: str | None = None,
    timeout: float = 30.0,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """Return the path of corpus `name` as one file; missing files are downloaded.

    - novels: plain text, one paragraph or line of dialogue per line, a blank line between works.
    - chatbot: tab-separated, with the header `question`, `answer`.

    Every call verifies size and SHA-256 of all files, and writes the result again if it differs. Processes that call it
    at the same time wait for each other.

    Args:
        cache_dir: folder for corpora; None: `corpora` in the cache folder of jumok.
        progress: called with the bytes so far and the bytes of the whole download.
        base_url: a mirror, which replaces scheme and host of each URL; only a mirror can be without https.
        timeout: seconds without an answer after which a try fails.
        wait: sleeps between tries.

    Raises:
        CorpusError: the name is unknown, the download fails or does not match, or the cache cannot be written.
    """
    corpus = _named(name)
    folder = (cache_dir or cache_folder() / "corpora") / corpus.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", wait=True):
            return _get(corpus, folder, progress, _Downloader(base_url, timeout, wait))
    except OSError as error:
        raise CorpusError(
            "corpus {name!r} ({bytes:,} bytes) cannot be stored in {folder}: {reason}; {remedy} or choose another "
            "cache folder; downloaded files are kept",
            name=name,
            bytes=corpus.bytes,
            folder=folder,
            reason=error.strerror or error,
            remedy=tr("free some space") if error.errno == errno.ENOSPC else tr("repair the folder"),
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


def _get(corpus: Corpus, folder: Path, progress: Progress | None, downloader: _Downloader) -> Path:
    paths = []
    done = 0

    def report(of_this_file: int) -> None:
        if progress is not None:
            progress(done + of_this_file, corpus.bytes)

    for file in corpus.files:
        path = folder / "files" / file.path
        if not _verified(path, file):
            try:
                downloader.fetch(file, path, report)
            except _Unreachable as error:
                raise CorpusError(
                    "corpus {name!r} is not in the cache and cannot be downloaded: {error}. Try again when "
                    "the network is back (the part so far is kept), save {url} as {path} by hand, or train "
                    "on the built-in 'stories', which needs no network",
                    name=corpus.name,
                    error=error,
                    url=file.url,
                    path=path,
                ) from None
        paths.append(path)
        done += file.bytes
        report(0)
    target = folder / corpus.filename
    content = _ASSEMBLE[corpus.name](paths)
    # Assembled in each call: for some megabytes that takes as long as a checksum, and it repairs damage.
    _keep(target, content)
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


def _verified(path: Path, file: RemoteFile) -> bool:
    """Return whether size and SHA-256 of the file at `path` match the catalogue."""
    return path.is_file() and path.stat().st_size == file.bytes and sha256_of(path) == file.sha256


class _Unreachable(Exception):
    """All tries have failed."""


class _Interrupted(Exception):
    """This try has failed; another one can succeed."""


class _StayOnHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https":
            raise CorpusError(
                "{url} redirects to {target}, which is not https; the redirect was not followed",
                url=req.full_url,
                target=newurl,
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Downloader:
    """Downloads pinned files; an interrupted download is resumed."""

    def __init__(self, base_url: str | None, timeout: float, wait: Callable[[float], None]) -> None:
        self._base_url = base_url
        self._timeout = timeout
        self._wait = wait
        self._opener = urllib.request.build_opener(*(() if base_url else (_StayOnHttps,)))

    def fetch(self, file: RemoteFile, path: Path, report: Callable[[int], None]) -> None:
        """Download `file` to `path` and verify it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        url = self._address(file)
        best, failures = _size(part), 0
        while True:
            resumed = _size(part) > 0
            try:
                self._receive(url, part, file.bytes, report)
                if _verified(part, file):
                    break
            except _Interrupted as error:
                reason = str(error)
                if _size(part) > best:
                    best, failures = _size(part), 0
            else:
                found = _size(part)
                part.unlink()
                if not resumed:
                    raise CorpusError(
                        "{url} does not match the catalogue: expected {bytes:,} bytes with "
                        "sha256 {sha256}, got {found:,} bytes that do not match; nothing was kept. A proxy or a login "
                        "page may stand in between; otherwise report it to jumok",
                        url=url,
                        bytes=file.bytes,
                        sha256=file.sha256,
                        found=found,
                    )
                reason, best = tr("the part from an earlier try was damaged"), 0
            failures += 1
            if failures == _TRIES:
                raise _Unreachable(f"{url}: {reason}")
            self._wait(min(2.0 ** (failures - 1), 30.0))
        part.replace(path)
        sync_folder(path.parent)

    def _address(self, file: RemoteFile) -> str:
        parts = urlsplit(file.url)
        if self._base_url is not None:
            return self._base_url.rstrip("/") + parts.path
        if parts.scheme != "https":
            raise CorpusError("{url} is not https; only https addresses are downloaded", url=file.url)
        return file.url

    def _receive(self, url: str, part: Path, size: int, report: Callable[[int], None]) -> None:
        """Append to `part` until it has `size` bytes; one more byte is read to detect a longer file."""
        have = _size(part)
        if have >= size:  # complete or too long; the checksum decides
            return
        headers = {"User-Agent": "jumok", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with self._open(urllib.request.Request(url, headers=headers), part) as response:
            going_on = response.status == 206 and (
                response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
                and response.headers["Content-Range"].endswith((f"/{size}", "/*"))
            )
            if response.status == 206 and not going_on:
                part.unlink()
                sent = response.headers.get("Content-Range")
                raise _Interrupted(tr("the server sent another range: {range}", range=sent))
            # Without support for ranges the server sends the whole file, which replaces the part.
            with part.open("ab" if going_on else "wb") as out:
                have = have if going_on else 0
                while block := _block(response, min(_BLOCK, size + 1 - have)):
                    out.write(block)
                    have += len(block)
                    report(min(have, size))
                    if have > size:
                        break
                out.flush()
                os.fsync(out.fileno())
        if have < size:
            ended = tr("the connection ended after {have:,} of {size:,} bytes", have=have, size=size)
            raise _Interrupted(ended)

    def _open(self, request: urllib.request.Request, part: Path) -> http.client.HTTPResponse:
        try:
            response: http.client.HTTPResponse = self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # the part is longer than the file on the server
                    part.unlink(missing_ok=True)
                if error.code >= 500 or error.code in (408, 416, 429):
                    answered = tr("the server answered {code} {reason}", code=error.code, reason=error.reason)
                    raise _Interrupted(answered) from None
                raise CorpusError(
                    "{url}: the server answered {code} {reason}; the file was moved or access to it was "
                    "blocked: check for a newer version of jumok",
                    url=request.full_url,
                    code=error.code,
                    reason=error.reason,
                ) from None
        except urllib.error.URLError as error:
            raise _Interrupted(str(error.reason)) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Interrupted(str(error) or type(error).__name__) from None
        return response


def _block(response: http.client.HTTPResponse, size: int) -> bytes:
    # Separate from writing, because a lost connection and a full disk both raise OSError.
    try:
        return response.read(size)
    except (OSError, http.client.HTTPException) as error:
        raise _Interrupted(str(error) or type(error).__name__) from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
