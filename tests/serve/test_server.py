"""Where a server listens, what it logs, and how `jumok serve` starts and ends."""

from __future__ import annotations

import errno
import http.client
import importlib.util
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from served_runs import random_model

import jumok as package
from conftest import Jumok
from jumok.cli.serve import _curl
from jumok.config import GPTConfig
from jumok.errors import ConfigError, ServeError
from jumok.serve.server import _Line, escaped, listen
from jumok.serve.settings import ServeSettings, is_local, read_keys

# --- settings ---


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"port": 70_000}, "port=70000 is out of range"),
        ({"slots": 0}, "slots=0 is out of range"),
        ({"timeout": float("nan")}, "timeout=nan is out of range"),
        ({"read_timeout": float("inf")}, "read_timeout=inf is out of range"),
        ({"cors": ("http://localhost:3000/",)}, "is not an origin"),
        ({"host": "0.0.0.0"}, "host 0.0.0.0 can be reached from other machines, and there is no API key"),
        ({"host": ""}, "there is no API key"),
        ({"host": "localhost.example"}, "there is no API key"),
    ],
)
def test_wrong_settings(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        ServeSettings(**wrong)


def test_hosts() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LocalHost"):
        assert is_local(host)
        assert ServeSettings(host=host).host == host
    for host in ("0.0.0.0", "10.0.0.1", "::ffff:8.8.8.8", "example.org", "", "127.0.0.1.example", "0x7f.1"):
        assert not is_local(host)
    assert ServeSettings(host="0.0.0.0", keys=("k",)).keys == ("k",)


@pytest.mark.parametrize(
    ("content", "mode", "message"),
    [
        (None, 0o600, "cannot read the API keys"),
        (b"\n  \n# only a comment\n", 0o600, "has no API key"),
        (b"key\n", 0o604, "other users of this machine can read"),
        (b"good\ntwo words\n", 0o600, r"line 2 of .*keys is not an API key"),
        ("good\n\n열쇠\n".encode(), 0o600, r"line 3 of .*keys is not an API key"),
        (b"\xff\xfe\xff", 0o600, "cannot read the API keys"),
    ],
)
def test_wrong_key_files(tmp_path: Path, content: bytes | None, mode: int, message: str) -> None:
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ConfigError, match=message) as error:
        read_keys(path)
    assert "two words" not in str(error.value)
    assert "열쇠" not in str(error.value)


def test_a_key_file(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes("\ufeff# for the class\r\n  first \r\n\r\nsecond#1\nfirst\n".encode())
    path.chmod(0o640)
    assert read_keys(path) == ("first", "second#1")


# --- sockets ---


def test_a_port_in_use() -> None:
    with listen(ServeSettings(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ServeError, match=f"port {port} is in use; .*port=0"):
            listen(ServeSettings(port=port))
    listen(ServeSettings(port=port)).close()


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EACCES, "this user may not listen on port 80; choose one above 1023"),
        (errno.EADDRNOTAVAIL, "cannot listen on host 127.0.0.1: Cannot assign"),
    ],
)
def test_a_port_that_is_not_allowed(monkeypatch: pytest.MonkeyPatch, number: int, message: str) -> None:
    def refuse(sock: socket.socket, address: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ServeError, match=message):
        listen(ServeSettings(port=80))


def test_hosts_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServeError, match="cannot listen on host no-such-host"):
        listen(ServeSettings(host="no-such-host.invalid", keys=("k",)))
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **named: elsewhere)
    with pytest.raises(ServeError, match="localhost does not stand for this machine alone"):
        listen(ServeSettings(host="localhost", port=0))


# --- the log and the figures ---


def test_a_line_of_the_log_cannot_be_forged() -> None:
    wild = "그날 밤\r\n2026 GET / 200\x1b[2J\x9b\x7f\u2028\u2029\x85\u202e\u2066\ufeff\u200b\ud800\0\\n"
    line = escaped(wild)
    assert line.isprintable()
    assert line.isascii() or line.startswith("그날 밤")
    assert line == (r"그날 밤\r\n2026 GET / 200\x1b[2J\x9b\x7f\u2028\u2029\x85\u202e\u2066\ufeff\u200b\ud800\x00\\n")


def test_the_log_has_the_place_of_an_error_and_not_its_message() -> None:
    try:
        raise ExceptionGroup("그날", [ValueError("그날 밤\n2026 forged")])
    except ExceptionGroup:
        record = logging.LogRecord("jumok", logging.ERROR, "", 1, "an error", (), sys.exc_info())
    line = _Line().format(record)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\S+ an error: ValueError in .*", line)
    assert "그날" not in line


# --- the command ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that writes for as long as one wants."""
    folder = tmp_path_factory.mktemp("runs") / "novel"
    package.save(random_model(GPTConfig, "그날 밤 나는 집에 갔다. " * 5, [], seed=0), folder)
    return folder


def test_wrong_use(jumok: Jumok, run: Path, own_folder: Path) -> None:
    keys = own_folder / "keys"
    keys.touch(0o600)
    open_keys = own_folder / "open"
    open_keys.write_text("key\n")
    open_keys.chmod(0o644)
    other = own_folder / "other"
    other.mkdir()
    for arguments, code, message in (
        (["--runs", keys], 2, "is a file; name a folder of runs"),
        (["nowhere"], 1, "there is no run folder nowhere"),
        ([other], 1, "is no run folder; it has none of config.json"),
        ([run, run], 1, "have the same name"),
        ([run, "--port", "70000"], 2, "port=70000 is out of range"),
        ([run, "--port", "x"], 2, "is not a valid"),
        ([run, "--slots", "0"], 2, "slots=0 is out of range"),
        ([run, "--api-key-file", "missing"], 2, "cannot read the API keys in missing: No such file"),
        ([run, "--api-key-file", keys], 2, "has no API key"),
        ([run, "--api-key-file", open_keys], 2, "chmod 600"),
        ([run, "--host", "0.0.0.0"], 2, "Name a file with keys, --api-key-file FILE, or listen on 127.0.0.1."),
        ([run, "--quantize", "int4"], 2, "is not"),
        ([run, "--cors", "example.org"], 2, "--cors example.org is not an origin"),
        ([run, "--device", "cuda:77"], 2, "is not available here"),
    ):  # fmt: skip
        end = jumok("serve", *arguments, *([] if "--port" in arguments else ["--port", "0"]))
        assert (end.code, end.out) == (code, ""), arguments
        assert message in end.err, end.err


def test_missing_packages_are_named(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "uvicorn" else find(name, *rest)
    )
    end = jumok("serve", run)
    assert end.code == 1
    assert "not installed (uvicorn). Install them with: pip install 'jumok[serve]'" in end.err


@pytest.mark.skipif(os.name != "posix", reason="quoting of a POSIX shell")
def test_the_command_that_is_shown_has_no_key_and_can_be_pasted(own_folder: Path) -> None:
    keys = own_folder / "my keys"
    keys.write_text("# of the class\nfirst\nsecond\n", encoding="utf-8")
    command = _curl("http://127.0.0.1:1", "그날's", "classify", keys)
    assert "first" not in command
    program = 'curl() { for word; do echo "<$word>"; done; }; ' + command
    words = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[0] == "<http://127.0.0.1:1/v1/classify>"
    assert "<Authorization: Bearer first>" in words
    assert json.loads(words[-1][1:-1]) == {"model": "그날's", "input": "정말 재미있게 봤어요"}


@contextmanager
def process(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`jumok serve` in a process of its own, and where it listens."""
    command = [sys.executable, "-m", "jumok.cli", "serve", *map(str, arguments), "--port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "JUMOK_NATIVE": "0", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, encoding="utf-8"
    ) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline()
        finally:
            child.kill()


@contextmanager
def stream(address: str, tokens: int) -> Iterator[http.client.HTTPResponse]:
    """Begin to stream a text, and read its first piece."""
    connection = http.client.HTTPConnection(address, timeout=60)
    body = {"model": "novel", "prompt": "그날", "max_tokens": tokens, "stream": True, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"data: ")
    with closing(connection), answer:
        yield answer


def accepts(address: str) -> bool:
    """Whether a server accepts connections."""
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except ConnectionError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_first_signal_lets_a_stream_finish(run: Path) -> None:
    with process(run, "--json") as (child, line):
        found = json.loads(line)
        assert found["models"] == ["novel"]
        address = found["url"].removeprefix("http://")
        with stream(address, 300) as answer:
            child.send_signal(signal.SIGTERM)
            assert child.stderr is not None
            while "Finishing the requests that have begun" not in child.stderr.readline():
                pass
            while accepts(address):
                time.sleep(0.01)
            assert answer.read().endswith(b"data: [DONE]\n\n")
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0
        assert out == ""
        assert re.fullmatch(r"\S+ POST /v1/completions 200 \d+\.\d{3} s 300 tokens\n", err), err


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_the_second_signal_ends_at_once(run: Path) -> None:
    with process(run) as (child, line):
        found = re.search(r"http://(127\.0\.0\.1:\d+)/v1/completions", line)
        assert found is not None
        assert line.startswith("curl ")
        with stream(found[1], 90_000) as answer:
            child.send_signal(signal.SIGINT)
            assert child.stderr is not None
            while "Finishing" not in child.stderr.readline():
                pass
            child.send_signal(signal.SIGTERM)
            assert child.wait(120) == 130
            assert "Traceback" not in child.stderr.read()
            with pytest.raises((ConnectionError, http.client.IncompleteRead)):
                answer.read()
