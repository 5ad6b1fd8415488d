"""A server in a thread, with an application of the test behind the limits; bytes to and from it; models for it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from starlette.types import ASGIApp, Receive, Scope, Send
from torch import nn

import jumok
from jumok.models import build
from jumok.serve.middleware import limited
from jumok.serve.server import Server, listen
from jumok.serve.settings import ServeSettings
from jumok.tokenizers import train_tokenizer, with_chat


def random_model(config: Any, text: str, special: Sequence[str], *, seed: int, chat: bool = False, **given: Any) -> Any:
    """A tiny model with random parameters, and a tokenizer of this text. chat: with a chat template."""
    tokenizer = train_tokenizer(text, special_tokens=special)
    if chat:
        tokenizer = with_chat(tokenizer)
    torch.manual_seed(seed)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "vocab_size": tokenizer.vocab_size}
    model = build(config(**{**sizes, **given})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def until(condition: Callable[[], object], seconds: float = 200) -> None:
    """Wait until condition() is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def step(number: int, loss: float | None = 2.0, **fields: Any) -> dict[str, Any]:
    rest = {"rate": 1.0, "seconds": float(number), "progress": 0.5, "remaining": 9.0, "tokens_per_second": 1000.0}
    return {"event": "step", "step": number, "loss": loss, **rest, **fields}


def validation(number: int, loss: float) -> dict[str, Any]:
    figures = {"loss": loss, "nats_per_char": loss}
    return {"event": "eval", "step": number, "figures": figures, "headline": f"{loss}", "best": True, "seconds": 1.0}


def log(folder: Path, *events: object, end: str = "\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in events]
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + end)


def run_folder(folder: Path, model: Any, sample: str, *, finished: bool = False) -> Path:
    """A run folder with a curve and this sample, without a state."""
    jumok.save(model, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"train": {"task": "lm", "steps": 10}, "data": {"floor": 0.5, "sources": ["/texts/a.txt"]}}
    if finished:
        config["finished"] = {"step": 10, "reason": "done"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "state").mkdir(exist_ok=True)
    log(folder, step(1, 3.0), step(2, 2.5), validation(2, 2.4), {"event": "sample", "step": 2, "text": sample})
    return folder


class Answer(NamedTuple):
    """What came back on a connection."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error, in the API's shape."""
        error = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert "Traceback" not in error["message"]
        assert self.headers["content-type"] == "application/json"
        return error  # type: ignore[no-any-return]


class Running(NamedTuple):
    """A server that runs."""

    port: int
    server: Server

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, data: bytes) -> Answer:
        """Send bytes on a connection of their own, and read the answer until the server closes or it is whole."""
        with self.connect() as connection:
            connection.sendall(data)
            return answer_on(connection)

    def ask(self, path: str = "/", body: bytes | None = None, **headers: str) -> Answer:
        """Send a request; headers: names with _ for -."""
        given = {"host": f"127.0.0.1:{self.port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            given.setdefault("content-length", str(len(body)))
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items())]
        return self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))


def answer_on(connection: socket.socket) -> Answer:
    """Read one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += (more := connection.recv(65_536))
        if not more:
            raise ConnectionError("closed without an answer")
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", 1 << 30)) and (more := connection.recv(65_536)):
        body += more
    return Answer(int(first.split()[1]), headers, body)


def closed_by_server(connection: socket.socket) -> bool:
    """Wait until the server closes a connection; what it sends before is thrown away."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body of the request."""
    body = (await receive())["body"]
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def running(app: ASGIApp = echo, **settings: Any) -> Iterator[Running]:
    """A server on a free port, until the block ends."""
    chosen = ServeSettings(port=0, **settings)
    ready = threading.Event()
    with listen(chosen) as sock:
        server = Server(limited(app, chosen), chosen, ready.set, lambda: None)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            assert ready.wait(60)
            yield Running(sock.getsockname()[1], server)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
