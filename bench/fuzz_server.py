"""The requests that bench/fuzz.py sends to the application of `jumok serve` without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fuzz import Read, Target, Unexpected
from fuzz_files import TABLES, TEXTS, models, put
from jumok.errors import JumokError
from jumok.serve.app import create_app
from jumok.serve.desk import jobs
from jumok.serve.desk.folders import RunFolders
from jumok.serve.limits import limited
from jumok.serve.metrics import Metrics
from jumok.serve.models import Models
from jumok.serve.settings import ServeSettings

SAMPLING = {"temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "seed": 1}
WRITING = {"n": 1, "stream": False, "stop": ["끝"], "presence_penalty": 0.1, "frequency_penalty": 0.1, **SAMPLING}
IDS = {"ids": [1, 2, 3], "off": [[0, 0]], "top": 3}
BODIES: dict[str, dict[str, Any]] = {
    "completions": {"model": "lm", "prompt": ["그날", [1, 2]], "max_tokens": 4, "echo": True, "logprobs": 2, **WRITING},
    "chat/completions": {"model": "seq2seq", "messages": [{"role": "user",
                         "content": [{"type": "text", "text": "그날"}]}],
                         "max_tokens": 4, "logprobs": True, "top_logprobs": 2, **WRITING},
    "embeddings": {"model": "lm", "input": ["그날", "밤"], "encoding_format": "float"},
    "classify": {"model": "classify", "input": ["그날 밤"]},
    "fill-mask": {"model": "mlm", "input": "그날 [MASK]", "top": 3},
    "tokenize": {"model": "lm", "input": "그날 밤"},
    "attention": {"model": "lm", "input": "그날 밤", "target": None, "layers": [0], "heads": [1], "top": 3},
    "jumok/engine/about": {"model": "lm"},
    "jumok/engine/encode": {"model": "lm", "text": "그날 밤"},
    "jumok/engine/spell": {"model": "lm", **IDS},
    "jumok/engine/decode": {"model": "lm", **IDS},
    "jumok/engine/next": {"model": "lm", **IDS, "sampling": SAMPLING},
    "jumok/engine/score": {"model": "lm", **IDS},
    "jumok/engine/write": {"model": "lm", **IDS, "sampling": SAMPLING, "tokens": 3},
    "jumok/engine/record": {"model": "lm", **IDS, "layers": [0]},
    "jumok/engine/record-next": {"model": "lm", **IDS},
    "jumok/engine/step": {"model": "lm", **IDS, "layer": 0},
    "jumok/engine/classify": {"model": "classify", "text": "그날 밤", "words": True},
    "jumok/engine/answer": {"model": "seq2seq", "text": "그날 밤", "tokens": 3, "beams": 2, "sampling": SAMPLING,
                            "trace": True},
    "jumok/engine/fill": {"model": "mlm", "text": "그날 [MASK]", "top": 3},
    "jumok/runs/load": {"name": "lm"},
    "jumok/runs/unload": {"name": "classic"},
    "jumok/runs/tokenize": {"name": "classic", "text": "그날 밤"},
    "jumok/runs/start": {"name": "새 런", "text": None, "column": None, "size": "nano", "family": "modern",
                         "tokenizer": "char", "minutes": 1.5, "steps": None},
    "jumok/runs/resume": {"name": "lm", "minutes": None, "steps": 10},
    "jumok/runs/stop": {"name": "lm"},
    "jumok/runs/forget": {"name": "lm"},
    "jumok/plan": {"text": "a-00000000.txt", "column": "text", "size": "nano", "steps": 10},
    "jumok/uploads/facts": {"upload": "a-00000000.txt", "column": None},
    "jumok/ladder/start": {"name": "사다리", "text": None, "minutes": 1.0},
    "jumok/ladder/resume": {"name": "사다리"},
    "jumok/ladder/stop": {"name": "사다리"},
}  # fmt: skip
PATHS = ("/v1/models", "/v1/models/lm", "/healthz", "/metrics", "/", "/v1/jumok/desk", "/v1/jumok/runs",
         "/openapi.json",
         "/v1/jumok/run?name=lm", "/v1/jumok/events?name=lm&place=0", "/v1/jumok/ladder?name=%ea%b0%80")  # fmt: skip
SLOWEST = 8.0  # seconds of a request


class Client:
    """Sends requests to the application behind its limits, one at a time."""

    def __init__(self, folder: Path) -> None:
        settings = ServeSettings(slots=4, timeout=SLOWEST, max_tokens=64, max_upload=50_000)
        runs = folder / "runs"
        named = [runs / name for name in ("lm", "mlm", "classify", "seq2seq")]
        app = create_app(Models(named, settings), settings, None, RunFolders(named, runs))
        self._app: Callable[..., Awaitable[None]] = limited(app, settings, Metrics())  # type: ignore[assignment]
        self._loop = asyncio.new_event_loop()
        put(runs / ".uploads" / "a-00000000.txt", TEXTS["utf8.txt"])
        jobs.Jobs._launch = _launch  # type: ignore[method-assign]
        jobs.asyncio.create_subprocess_exec = _plan  # type: ignore[attr-defined]

    def ask(self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, bytes]:
        """The status and the body of the response.

        Raises:
            Unexpected: the application answered with an error of its own, or not at all.
        """
        path, _, query = target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query, "root_path": "",
            "headers": [(b"host", b"127.0.0.1:8000"), (b"content-length", str(len(body)).encode()), *headers],
            "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 8000), "state": {},
        }  # fmt: skip
        status, content = self._loop.run_until_complete(self._ask(scope, body))
        if status >= 500 or status == 0:
            raise Unexpected(f"{method} {target!r}: status {status}: {content[:300]!r}")
        return status, content

    async def _ask(self, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
        status, parts = 0, []
        gone = asyncio.Event()
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))
                if scope["path"] == "/v1/jumok/events":  # it would go on for ever
                    gone.set()

        await self._app(scope, receive, send)
        return status, b"".join(parts)


def _launch(_self: Any, name: str, words: list[str], _language: str) -> None:
    _require_words([name, *words])


async def _plan(*words: str, **_how: Any) -> Any:
    _require_words(words)

    class Process:
        returncode = 0

        async def communicate(self) -> tuple[bytes, bytes]:
            return b"{}\n", b""

    return Process()


def _require_words(words: Any) -> None:
    """The words of a command can be given to a process, and none of a client's is an option of its own."""
    for word in words:
        if not isinstance(word, str) or "\0" in word:
            raise Unexpected(f"a process would be started with {word!r}")
        word.encode()


def prepare(folder: Path) -> dict[str, bytes]:
    models(folder / "runs")
    put(folder / "runs" / "lm" / "metrics.jsonl", b'{"event": "step", "step": 1, "loss": 2.0, "skipped": false}\n')
    return {
        f"{path.replace('/', '+')}.json": json.dumps(body, ensure_ascii=False).encode() for path, body in BODIES.items()
    }


def open_bodies(folder: Path) -> Read:
    client = Client(folder)
    headers = [(b"content-type", b"application/json")]

    def read(name: str, content: bytes) -> object:
        path = b"/v1/" + name.removesuffix(".json").replace("+", "/").encode()
        return _answer(*client.ask("POST", path, headers, content))

    return read


def prepare_paths(folder: Path) -> dict[str, bytes]:
    prepare(folder)
    found = {f"get{at}": f"GET {path}\naccept-language: ko\n".encode() for at, path in enumerate(PATHS)}
    for at, path in enumerate(BODIES):
        found[f"post{at}"] = f"POST /v1/{path}\ncontent-type: application/json\norigin: http://localhost\n".encode()
    return found


def open_paths(folder: Path) -> Read:
    """A line with method and path, then lines of headers, as far as the HTTP parser of the server lets them through."""
    client = Client(folder)

    def read(_name: str, content: bytes) -> object:
        first, *lines = content.split(b"\n")
        method, _, target = first.partition(b" ")
        if not method.isalpha() or not target.startswith(b"/") or any(byte <= 32 or byte >= 127 for byte in target):
            return None
        headers = [line.partition(b": ")[::2] for line in lines if b": " in line]
        if any(min(value, default=99) < 32 or not name.replace(b"-", b"").isalnum() for name, value in headers):
            return None
        given = [(name.lower(), value) for name, value in headers if name.lower() not in (b"content-length", b"host")]
        return _answer(*client.ask(method.decode(), target, given, b"{}" if method == b"POST" else b""))

    return read


def prepare_uploads(folder: Path) -> dict[str, bytes]:
    prepare(folder)
    return {name: content for name, content in (TEXTS | TABLES).items() if not name.endswith((".parquet", ".arrow"))}


def open_uploads(folder: Path) -> Read:
    client = Client(folder)
    headers = [(b"content-type", b"application/octet-stream")]
    kept = folder / "runs" / ".uploads"

    def read(name: str, content: bytes) -> object:
        status, answer = client.ask("POST", f"/v1/jumok/uploads?name={name}".encode(), headers, content)
        if status == 200:
            body = json.dumps({"upload": json.loads(answer)["upload"], "column": "text"}).encode()
            client.ask("POST", b"/v1/jumok/uploads/facts", [(b"content-type", b"application/json")], body)
        for path in kept.iterdir():
            if path.name != "a-00000000.txt":
                path.unlink()
        return _answer(status, answer)

    return read


class Refusal(JumokError):
    """A status of 400 or more, which is counted as a refusal."""


def _answer(status: int, content: bytes) -> int:
    if status >= 400:
        content.decode()
        raise Refusal("{status}", status=status)
    return status


SERVER_TARGETS = (
    Target(name="requests", prepare=prepare, open=open_bodies, cost=25),
    Target(name="paths", prepare=prepare_paths, open=open_paths, cost=12),
    Target(name="uploads", prepare=prepare_uploads, open=open_uploads, cost=20),
)
