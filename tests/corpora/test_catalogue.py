"""jumok.corpora.catalogue against a real server on 127.0.0.1.

Bad input, all below: unknown name, no server, 404, 500, cut connection, wrong, short and long content, damaged cache,
full disk, two at once.
"""

from __future__ import annotations

import errno
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import platformdirs
import pytest

from jumok.corpora import catalogue
from jumok.errors import CorpusError

PLACE = "/owner/repo/0123abcd"


def rows(*works: tuple[str, str]) -> bytes:
    return "".join(json.dumps({"doc_id": i, "text": t}, ensure_ascii=False) + "\n" for i, t in works).encode()


CONTENT = {
    f"{PLACE}/data/2_Second/text.jsonl": rows(("2_0", "둘째 이야기 " * 9000)),
    f"{PLACE}/data/10_Tenth/text.jsonl": rows(("10_10", "끝"), ("10_9", "그\n앞"), ("10_0", "처음")),
    f"{PLACE}/Pairs.csv": 'Q,A,label\r\n안녕?,"네, 안녕",0\r\n"따""옴""표",답,1\r\n'.encode("utf-8-sig"),
}
NOVELS = "둘째 이야기 " * 9000 + "\n\n처음\n그\n앞\n끝\n"
BIG = f"{PLACE}/data/2_Second/text.jsonl"


class Server(ThreadingHTTPServer):
    """Serves CONTENT. Each request uses one of `faults`; `log` records (path, status)."""

    daemon_threads = True

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.log: list[tuple[str, int]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        fault, _, amount = (self.server.faults.pop(0) if self.server.faults else "").partition(" ")
        body, status = CONTENT[self.path], 200
        if fault == "status":
            body, status = b"sorry", int(amount)
        elif fault == "wrong":
            body = bytes(reversed(body))
        elif fault == "short":
            body = body[: int(amount)]
        elif fault == "long":
            body += b"more"
        self.server.log.append((self.path, status))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: int(amount)] if fault == "cut" else body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


def listed(address: str) -> dict[str, catalogue.Corpus]:
    """The catalogue of files on a server."""
    return {
        name: catalogue.Corpus(
            name=name,
            title=f"The {name}",
            licence="CC0",
            homepage="https://example.invalid/owner/repo",
            format=kind,
            files=tuple(
                catalogue.RemoteFile(url=address + path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
                for path, data in CONTENT.items()
                if path.endswith(kind)
            ),
        )
        for name, kind in (("novels", "jsonl"), ("chatbot", "csv"))
    }


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(catalogue.time, "sleep", found.append)
    return found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as running:
        entries = listed(running.url)
        monkeypatch.setattr(catalogue, "entries", lambda: entries)
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def fetch(server: Server, tmp_path: Path) -> Callable[..., Path]:
    def fetch(name: str = "novels", **options: object) -> Path:
        return catalogue.get(name, **{"cache_dir": tmp_path, **options})  # type: ignore[arg-type]

    return fetch


Fetch = Callable[..., Path]


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix == ".tmp"]


# --- The catalogue ----------------------------------------------------------------------------------------------


def test_the_catalogue_holds_the_pinned_facts() -> None:
    """Titles, licences, URLs, sizes and digests; an intended change also changes this digest."""
    facts = {
        name: [corpus.title, corpus.licence, corpus.homepage, [[f.url, f.bytes, f.sha256] for f in corpus.files]]
        for name, corpus in catalogue.entries().items()
    }
    assert list(facts) == ["novels", "chatbot"]
    pinned = "ce3a2c10f024af63287d2220a91f1a46be3133195c9c637a047ce9fd501d5d97"
    assert hashlib.sha256(json.dumps(facts, ensure_ascii=False).encode()).hexdigest() == pinned


@pytest.mark.parametrize(("name", "said"), [("novel", "; did you mean 'novels'\\?"), ("xyz", "")])
def test_unknown_names_are_answered(name: str, said: str) -> None:
    with pytest.raises(
        CorpusError, match=rf"no corpus '{name}' to download; choose from novels, chatbot .*'stories' .*\){said}$"
    ):
        catalogue.get(name)


# --- A good day -------------------------------------------------------------------------------------------------


def test_novels_are_downloaded_joined_and_cached(server: Server, fetch: Fetch, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = fetch(progress=lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "novels" / "novels.txt"
    assert path.read_text(encoding="utf-8") == NOVELS
    total = sum(len(data) for place, data in CONTENT.items() if place.endswith("jsonl"))
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    licence = (path.parent / "LICENCE.txt").read_text(encoding="utf-8")
    assert "Licence: CC0" in licence
    assert f"{server.url}{BIG}" in licence
    assert leftovers(tmp_path) == []
    requests = len(server.log)
    assert fetch() == path
    assert len(server.log) == requests == 2, "the second time comes from the cache alone"


def test_pairs_become_a_table(fetch: Fetch) -> None:
    path = fetch("chatbot")
    assert path.name == "chatbot.tsv"
    assert path.read_text(encoding="utf-8") == 'question\tanswer\n안녕?\t네, 안녕\n"따""옴""표"\t답\n'


def test_the_default_place_is_the_platforms_cache(
    fetch: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUMOK_CACHE")
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert fetch(cache_dir=None) == tmp_path / "jumok" / "corpora" / "novels" / "novels.txt"


# --- Bad days ---------------------------------------------------------------------------------------------------


def test_a_cut_download_is_tried_again(server: Server, fetch: Fetch) -> None:
    server.faults = ["cut 1000", "cut 5000"]
    assert fetch().read_text(encoding="utf-8") == NOVELS
    assert server.log[:3] == [(BIG, 200)] * 3


@pytest.mark.parametrize("fault", ["wrong", "long", "short 5000"])
def test_wrong_content_is_refused_and_not_kept(server: Server, fetch: Fetch, tmp_path: Path, fault: str) -> None:
    server.faults = [fault]
    with pytest.raises(
        CorpusError, match=r"does not match the catalogue.*expected [\d,]+ bytes with sha256 [0-9a-f]{64}"
    ):
        fetch()
    assert leftovers(tmp_path) == []
    assert not (tmp_path / "novels" / "novels.txt").exists()
    assert fetch().read_text(encoding="utf-8") == NOVELS


def test_404_is_final(server: Server, fetch: Fetch) -> None:
    server.faults = ["status 404"]
    with pytest.raises(CorpusError, match=r"answered 404 .*newer version of jumok"):
        fetch()
    assert len(server.log) == 1


def test_500_is_tried_again_with_growing_pauses(server: Server, fetch: Fetch, pauses: list[float]) -> None:
    server.faults = ["status 500", "status 503", "status 429"]
    assert fetch().read_text(encoding="utf-8") == NOVELS
    assert pauses == [1.0, 2.0, 4.0]
    server.faults = ["status 500"] * 4
    with pytest.raises(CorpusError, match=r"cannot be downloaded: http.*Pairs\.csv: HTTP Error 500"):
        fetch("chatbot")


def test_without_a_network_the_way_out_is_said(
    fetch: Fetch, pauses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        entries = listed(f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setattr(catalogue, "entries", lambda: entries)
        with pytest.raises(CorpusError, match=r"refused.*save http://.*by hand.*built-in 'stories'") as caught:
            fetch()
    assert pauses == [1.0, 2.0, 4.0]
    by_hand = tmp_path / "novels/files/data/2_Second/text.jsonl"
    assert str(by_hand) in str(caught.value)
    for place in (BIG, BIG.replace("2_Second", "10_Tenth")):
        path = tmp_path / "novels/files" / place.removeprefix(PLACE + "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT[place])
    assert fetch().read_text(encoding="utf-8") == NOVELS


@pytest.mark.parametrize("damage", [b"", b"x" * len(CONTENT[BIG])])
def test_a_damaged_cache_is_mended(server: Server, fetch: Fetch, tmp_path: Path, damage: bytes) -> None:
    """Also if the size is correct."""
    path = fetch()
    (tmp_path / "novels/files/data/2_Second/text.jsonl").write_bytes(damage)
    path.write_bytes(b"damaged")
    before = len(server.log)
    assert fetch().read_text(encoding="utf-8") == NOVELS
    assert [entry[0] for entry in server.log[before:]] == [BIG], "only the damaged file is fetched again"


def test_a_full_disk_is_said_to_be_full(
    fetch: Fetch, pauses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost connection is an OSError as well; writing to a full disk is not tried again."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(CorpusError, match=r"cannot be stored in .*novels: No space left on device; make room"):
            fetch()
    assert pauses == []
    assert leftovers(tmp_path) == []
    assert fetch().read_text(encoding="utf-8") == NOVELS


def test_two_at_once_do_not_disturb_each_other(server: Server, fetch: Fetch, tmp_path: Path) -> None:
    server.faults = ["cut 1000"] * 3
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(fetch().read_text(encoding="utf-8"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [NOVELS] * 4
    assert len(server.log) == 5, "no file was sent twice, but for the faults"
    assert leftovers(tmp_path) == []
