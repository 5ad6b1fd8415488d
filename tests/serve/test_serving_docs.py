"""docs/serving.md is true: its examples run against a server, and its tables say what the code says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx2
import pytest
from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo
from served_runs import random_model

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.messages import Language, speaking, tr
from jumok.serve import schemas
from jumok.serve.schemas import ChatBody, CompletionBody, EmbeddingBody
from jumok.serve.settings import ServeSettings, read_keys

ROOT = Path(__file__).resolve().parents[2]
ENGLISH, KOREAN = PAGES = ("docs/serving.md", "docs/ko/serving.md")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
TEXT = "그날 밤 나는 어제 새 책을 읽었다. 오늘 뭐 하지? 비가 온다, 눈이 내린다! user: assistant: 안녕하세요\n" * 5
ALL_RUNS = "jumok serve runs/novel runs/chat runs/bert runs/reviews"
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]")


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page: str) -> list[tuple[str, str]]:
    return FENCE.findall(read(page))


def tables(page: str) -> list[list[list[str]]]:
    """The tables of a page: their rows below the head, as cells."""
    found = re.findall(r"(?:^\|.*\n)+", read(page), re.MULTILINE)
    return [[[cell.strip() for cell in row.strip("|").split("|")] for row in one.splitlines()[2:]] for one in found]


def table(page: str, first: str) -> list[list[str]]:
    """The table whose first row begins with this."""
    [found] = [rows for rows in tables(page) if rows[0][0] == first]
    return found


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def save(folder: Path, config: Any, **given: Any) -> None:
    """A model with random parameters."""
    jumok.save(random_model(config, TEXT, SPECIAL, seed=1, **given), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader of the page works: with the runs that it names."""
    folder = tmp_path_factory.mktemp("reader")
    save(folder / "runs/novel", GPTConfig)
    save(folder / "runs/chat", EncoderDecoderConfig, pad_id=0, bos_id=4, eos_id=5, decoder_start_id=4)
    save(folder / "runs/bert", BERTConfig, head="mlm")
    save(folder / "runs/reviews", GPTConfig, labels=tuple(shown_labels()))
    return folder


def shown_labels() -> list[str]:
    """The labels in the example of classification."""
    [found] = [json.loads(body) for kind, body in fences(ENGLISH) if kind == "json" and "probabilities" in body]
    return list(found["data"][0]["probabilities"])


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The server of the page's command, on a free port."""
    for page in PAGES:
        assert ALL_RUNS in read(page)
    command = [sys.executable, "-m", "jumok.cli", *ALL_RUNS.split()[1:], "--port", "0", "--json", "--device", "cpu"]
    environment = os.environ | {"JUMOK_NATIVE": "0", "OMP_NUM_THREADS": "1"}  # nothing is compiled
    with (
        open(folder / "log.txt", "wb") as log,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log) as server,
    ):
        try:
            assert server.stdout is not None
            started = json.loads(server.stdout.readline())
            assert started["models"] == ["novel", "chat", "bert", "reviews"]
            yield started["url"]
        finally:
            server.terminate()
        assert server.wait(120) == 0
    assert "Traceback" not in (folder / "log.txt").read_text(encoding="utf-8")


# --- examples ---------------------------------------------------------------------------------------------------------


def shape(value: Any) -> Any:
    """The keys and types of JSON; a list is known by its kinds of elements."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [json.loads(one) for one in sorted({json.dumps(shape(one), sort_keys=True) for one in value})]
    return type(value).__name__


def events(stream: str) -> list[Any]:
    """The data of server-sent events; the last one must be [DONE]."""
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
@pytest.mark.skipif(os.name == "nt", reason="the examples are written for a POSIX shell")
@pytest.mark.parametrize("page", PAGES)
def test_each_curl_prints_what_the_page_shows(page: str, address: str, folder: Path) -> None:
    blocks = fences(page)
    ran = 0
    for (kind, command), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind != "sh" or not command.startswith("curl"):
            continue
        assert command.count(ADDRESS) == 1
        run = ["bash", "-c", command.replace(ADDRESS, address).replace("curl ", "curl -sS ", 1)]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=True)
        assert done.stderr == ""
        if next_kind == "json":
            assert shape(json.loads(done.stdout)) == shape(json.loads(shown)), command
        else:
            printed, expected = events(done.stdout), events(shown)
            assert printed[0].keys() == expected[0].keys()
            assert printed[0]["choices"][0].keys() == expected[0]["choices"][0].keys()
            assert printed[-1]["choices"][0]["finish_reason"] == expected[-1]["choices"][0]["finish_reason"] == "length"
        ran += 1
    assert ran == 6


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_the_page_runs(page: str, address: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(block for kind, block in fences(page) if kind == "python")
    assert code.count(ADDRESS) == 2
    values: dict[str, Any] = {"__name__": "__main__"}
    with chdir(folder):
        exec(compile(code.replace(ADDRESS, address), page, "exec"), values)
    values["client"].close()
    printed = capsys.readouterr().out
    assert "novel: " in printed
    assert "chat: " in printed
    assert re.search(r"^16\n-?\d\.\d+ -?\d\.\d+$", printed, re.MULTILINE)  # a width of 16, and two cosines
    assert "그날 밤" in printed


@pytest.mark.skipif(os.name == "nt", reason="the examples are written for a POSIX shell")
def test_the_key_file_of_the_page_is_one(tmp_path: Path) -> None:
    [block] = [block for kind, block in fences(ENGLISH) if kind == "sh" and "token_urlsafe" in block]
    lines = block.replace("python3", sys.executable).splitlines()
    assert lines.pop().endswith("--api-key-file keys.txt")
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=tmp_path, check=True)
    [key] = read_keys(tmp_path / "keys.txt")
    assert len(key) == 43


def test_both_languages_show_the_same_output() -> None:
    greeting = ("Playground: {url}/", "Listening on {url}; models: {names}. Ctrl-C ends the server.")
    shown = {}
    languages: tuple[Language, ...] = ("en", "ko")
    for page, language in zip(PAGES, languages, strict=True):
        with speaking(language):
            lines = [tr(line, url=ADDRESS, names="novel") for line in greeting]
        blocks = [body for kind, body in fences(page) if kind in ("json", "text")]
        assert blocks.pop(0).splitlines() == lines
        shown[page] = blocks
    assert shown[KOREAN] == shown[ENGLISH]


# --- tables -----------------------------------------------------------------------------------------------------------

BODIES: tuple[type[schemas.ModelBody], ...] = (CompletionBody, ChatBody, EmbeddingBody)
WORDS = {"yes": "yes", "지원": "yes", "ignored": "ignored", "무시": "ignored"}


def status(body: type[schemas.ModelBody], name: str) -> str:
    if name in schemas.IGNORED:
        return "ignored"
    return "yes" if name in body.model_fields else ""


@pytest.mark.parametrize("page", PAGES)
def test_the_table_of_parameters_is_that_of_the_schemas(page: str) -> None:
    told: dict[str, list[str]] = {}
    for first, *columns in table(page, "`model`"):
        for name in names(first):
            assert name not in told
            told[name] = [WORDS.get(cell, cell) for cell in columns[:3]]
    known = {name for body in BODIES for name in body.model_fields} | schemas.IGNORED
    assert told == {name: [status(body, name) for body in BODIES] for name in known}


def bounds(field: FieldInfo) -> str:
    """The range of a parameter as the table has it."""
    least = next((one.ge for one in field.metadata if isinstance(one, Ge)), None)
    above = next((one.gt for one in field.metadata if isinstance(one, Gt)), None)
    most = next((one.le for one in field.metadata if isinstance(one, Le)), None)
    if least is None and above is None:
        return ""
    if most is None or most == schemas.MOST_TOKENS:
        return f"≥ {least}"
    return f"{least}–{most}" if above is None else f"> {above}, ≤ {most}"


@pytest.mark.parametrize("page", PAGES)
def test_defaults_and_ranges_are_those_of_the_schemas(page: str) -> None:
    checked = 0
    for first, *_, default, told, _ in table(page, "`model`"):
        allowed = told.replace("~", "–")  # as Korean writes a range
        for name in names(first):
            body = next((body for body in BODIES if name in body.model_fields), None)
            if body is None:
                assert default == allowed == ""
                continue
            field = body.model_fields[name]
            assert allowed == bounds(field), name
            if isinstance(field.default, bool | int | float) and field.default is not None:
                assert default == str(field.default).lower(), name
                checked += 1
    assert checked >= 10


@pytest.mark.parametrize("page", PAGES)
def test_the_limits_are_those_of_the_server(page: str) -> None:
    s = ServeSettings()
    [rows] = [rows for rows in tables(page) if rows[0][1].startswith(f"{s.max_body:,}")]
    found = [re.sub(",", "", " ".join(re.findall(r"[\d,]*\d", row[1]))) for row in rows]
    expected = (
        s.max_body, s.max_prompt, s.max_tokens, schemas.MOST_INPUTS, s.slots + s.waiting,
        f"{s.read_timeout:g}", f"{s.timeout:g}",
    )  # fmt: skip
    assert found == [str(one) for one in expected]
    text = read(page)
    assert f"({s.slots})" in text
    assert f"({s.waiting})" in text
    [stop] = [row[-1] for row in table(page, "`model`") if row[0] == "`stop`"]
    told = {int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", stop)}
    assert told == {schemas.MOST_STOPS, schemas.LONGEST_STOP}


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_endpoints_are_those_of_the_server(page: str, address: str) -> None:
    paths = httpx2.get(f"{address}/openapi.json", timeout=60).json()["paths"]
    real = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods if "{" not in path}
    assert {name for row in table(page, "`POST /v1/completions`") for name in names(row[0])} == real
