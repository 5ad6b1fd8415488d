"""What a server refuses: bodies, headers, slow clients, other sites' pages, wrong keys; over real sockets."""

from __future__ import annotations

import asyncio
import logging
import re
import tracemalloc
from collections.abc import Iterator

import pytest
from served_runs import Running, answer_on, closed_by_server, echo, running, until
from starlette.types import Message, Receive, Scope, Send

from jumok.errors import JumokError
from jumok.serve.errors import api_error
from jumok.serve.middleware import BodyLimit


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(max_body=1000, read_timeout=20) as server:
        yield server


# --- bodies ---


def test_a_body_reaches_the_application(server: Running) -> None:
    answer = server.ask(body='{"text": "그날 밤"}'.encode())
    assert (answer.status, answer.body.decode()) == (200, '{"text": "그날 밤"}')
    assert server.ask(body=b" " * 1000).status == 200
    assert server.ask().status == 200


def test_a_large_body_is_refused_by_its_length(server: Running) -> None:
    """The client is told, although it sends the whole body before it reads: the server used to reset it."""
    answer = server.ask(body=b"x" * 10_000_000)
    assert answer.status == 413
    assert answer.error["message"] == "the body is larger than 1,000 bytes."
    assert answer.headers["connection"].lower() == "close"


def chunked(size: int, times: int) -> bytes:
    chunk = f"{size:x}\r\n".encode() + b"x" * size + b"\r\n"
    return b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * times + b"0\r\n\r\n"


def test_a_large_body_is_refused_without_a_length(server: Running) -> None:
    assert server.send(chunked(100, 10)).status == 200
    answer = server.send(chunked(100, 11))
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert server.send(chunked(100_000, 20)).status == 413


def test_the_rest_of_a_large_body_is_not_kept() -> None:
    """It is read, so that the client sees the answer, and would fill the memory."""
    part, sent = bytes(1_000_000), []

    async def receive() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": part, "more_body": True}

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "path": "/", "headers": []}
    tracemalloc.start()
    try:
        asyncio.run(BodyLimit(echo, 1000, 0.2)(scope, receive, send))
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
    assert sent[0]["status"] == 413


def test_a_slow_body_ends_with_408() -> None:
    with running(max_body=1000, read_timeout=0.2) as hasty, hasty.connect() as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        answer = answer_on(connection)
        assert (answer.status, answer.error["code"]) == (408, "timeout")
        assert closed_by_server(connection)


def test_a_client_that_leaves_within_its_body_is_no_error(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with server.connect() as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{")
        until(lambda: "POST / - " in caplog.text)
    assert {record.levelname for record in caplog.records} == {"INFO"}


# --- headers and connections ---


def test_a_body_with_two_ends_is_refused(server: Running) -> None:
    """A proxy may take the length, and then what follows the last chunk is a request that it has not seen."""
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 60\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head + b"0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert answer_on(connection).status == 400
        assert connection.recv(1) == b""


def test_connections_are_bounded() -> None:
    with running(slots=1, waiting=1) as server:
        with server.connect(), server.connect(), server.connect():
            until(lambda: len(server.server.server_state.connections) == 3)
            with server.connect() as third:
                third.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                assert answer_on(third).status == 503
        until(lambda: not server.server.server_state.connections)
        assert server.ask().status == 200


# --- keys ---


def test_keys() -> None:
    with running(keys=("first-key", "second-key")) as server:
        for key in ("first-key", "second-key"):
            assert server.ask(authorization=f"Bearer {key}").status == 200
        assert server.ask(authorization="bearer second-key").status == 200
        for wrong in ("Bearer third-key", "Bearer", "Bearer first", "Basic first-key", "first-key", "Bearer \xff", ""):
            answer = server.ask("/v1/models", authorization=wrong)
            assert (answer.status, answer.error["type"]) == (401, "authentication_error")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.headers["connection"] == "close"  # the rest of a body is not waited for
        assert server.ask().status == 200  # the page, which asks for the key
        assert server.ask(body=b"{}").status == 401
        assert server.ask("/healthz").status == 200
        assert server.ask("/healthz/../v1/models").status == 401
        assert server.ask("/v1/models?x=/healthz").status == 401
        assert server.ask(host="models.example", authorization="Bearer first-key").status == 200


# --- browsers ---


def test_another_name_of_localhost_is_refused(server: Running) -> None:
    """DNS rebinding: the page of a site whose name points to 127.0.0.1 has the same origin as the server."""
    for host in ("localhost", "localhost:8000", "127.0.0.1", "127.1.2.3:80", "[::1]:8000", "LOCALHOST"):
        assert server.ask(host=host).status == 200, host
    for host in (
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "[::",
        "a]b",
    ):
        answer = server.ask(host=host)
        assert (answer.status, answer.error["code"]) == (403, "host_not_allowed"), host


def test_pages_of_other_origins_are_refused(server: Running) -> None:
    for origin in ("http://evil.example", "null", "http://localhost:3000", "", "http://127.0.0.1"):
        answer = server.ask(body=b"{}", origin=origin)
        assert (answer.status, answer.error["code"]) == (403, "origin_not_allowed"), origin
        assert "access-control-allow-origin" not in answer.headers
    assert server.ask(body=b"{}", origin=f"http://127.0.0.1:{server.port}").status == 200


PREFLIGHT = (
    b"OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost:3000\r\n"
    b"access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\n\r\n"
)


def test_cors() -> None:
    with running(cors=("http://localhost:3000",), keys=("k",)) as server:
        answer = server.send(PREFLIGHT)  # browsers send no key with it
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "http://localhost:3000"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        answer = server.ask(origin="http://localhost:3000", authorization="Bearer k")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")
        answer = server.ask("/v1/models", origin="http://localhost:3000")  # a page can read why it is refused
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (401, "http://localhost:3000")
        assert server.ask(origin="http://localhost:3001", authorization="Bearer k").status == 403
        assert server.send(PREFLIGHT.replace(b":3000", b":3001")).status == 400
    with running(cors=("*",)) as server:
        assert server.ask(origin="https://any.example").headers["access-control-allow-origin"] == "*"


# --- errors, the log and the figures ---


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise TypeError("the prompt 그날 밤 in a message")


def test_an_error_of_the_application_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with running(broken) as server, caplog.at_level(logging.INFO):
        answer = server.ask()
        assert (answer.status, answer.error["type"]) == (500, "server_error")
        assert "그날" not in answer.body.decode("unicode_escape")
        until(lambda: "GET / 500" in caplog.text)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), MemoryError()],
    ids=["torch", "python"],
)
def test_too_little_memory_is_an_answer_503(error: Exception) -> None:
    """Also as the cause of what the service tells. It was an error 500, or 400 with the words of the allocator."""
    told = JumokError("the model failed while it generated")
    told.__cause__ = error
    for one in (error, told):
        found = api_error(one)
        assert (found.status_code, found.code) == (503, "out_of_memory")
        assert "Retry-After" in (found.headers or {})
    assert api_error(JumokError("the prompt says: out of memory")).status_code == 400


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log of the server; that of uvicorn is switched off where the command sets the loggers up."""
    return [record.getMessage() for record in caplog.records if record.name == "jumok.serve"]


def test_a_line_for_each_request(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        server.ask("/a%0aGET%20/%20200%1b[2J?key=secret", body=b'"prompt"', authorization="Bearer secret")
        server.ask("/" + "x" * 5000)
        until(lambda: len(lines(caplog)) == 2)
    first, second = lines(caplog)
    assert re.fullmatch(r"POST /a%0aGET%20/%20200%1b\[2J 200 \d+\.\d{3} s", first)
    assert "secret" not in first
    assert "prompt" not in first
    assert len(second) < 250
