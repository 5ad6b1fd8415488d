"""A server of GPTs, and `jumok predict`, import PyTorch only for what the C++ step does not compute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_runs import random_model

import jumok
from conftest import FIXTURES
from jumok.config import GPTConfig
from jumok.inference.classify import predict
from jumok.inference.generate import generate

pytestmark = [pytest.mark.slow, pytest.mark.compile]

HEAVY = ("torch", "matplotlib", "jinja2", "fastapi", "rich")
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr))
from jumok.cli import main
main()
"""
TEXTS = ["정말 재미있게 봤어요", "시간이 아까워요", "그냥 그래요 " * 40]
MESSAGES = [{"role": "user", "content": "안녕?"}]
SETTINGS: dict[str, Any] = {"repetition_penalty": 1.2, "presence_penalty": 0.1, "top_k": 9, "top_p": 0.9, "min_p": 0.01}
WRITTEN: list[tuple[str, dict[str, Any]]] = [
    ("completions", {"prompt": "그날", "max_tokens": 3}),
    ("completions", {"prompt": "그날", "max_tokens": 3, "stream": True, "temperature": 0}),
    ("completions", {"prompt": ["그날", ""], "n": 2, "logprobs": 2, "stop": ["밤"], **SETTINGS}),
    ("completions", {"prompt": "그날 밤", "max_tokens": 0, "echo": True, "logprobs": 1}),
    ("chat/completions", {"model": "talk", "messages": MESSAGES, "max_tokens": 4}),
    ("chat/completions", {"model": "talk", "messages": MESSAGES, "max_tokens": 4, "stream": True, "logprobs": True}),
    ("embeddings", {"input": ["그날 밤", "집"]}),
    ("embeddings", {"model": "classify", "input": [[1, 2, 3]]}),
    ("classify", {"model": "classify", "input": TEXTS}),
    ("tokenize", {"input": "그날"}),
]
GOTTEN = (
    *("v1/models", "v1/models/talk", "healthz", "openapi.json", ""),
    *("v1/jumok/desk", "v1/jumok/runs", "v1/jumok/run?name=talk"),
)


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a chat template."""
    folder = tmp_path_factory.mktemp("runs") / "talk"
    jumok.save(random_model(GPTConfig, "그날 밤 안녕? 나는 집에 갔다. " * 5, [], seed=0, chat=True), folder)
    return folder


def environment(native: str) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if name != "JUMOK_NATIVE"}
    return {**known, "JUMOK_CACHE": native, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Served:
    """What a server said when it had ended."""

    log = ""
    loaded: tuple[str, ...] = ()


@contextmanager
def serving(native: str, *words: object) -> Iterator[tuple[httpx2.Client, Served]]:
    command = [sys.executable, "-c", PROGRAM, "serve", *map(str, words), "--port=0", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    ended = Served()
    with subprocess.Popen(command, env=environment(native), **pipes) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            if not line:
                raise AssertionError(server.communicate()[1])
            with httpx2.Client(base_url=json.loads(line)["url"], timeout=60) as http:
                yield http, ended
        finally:
            server.terminate()
            _, ended.log = server.communicate(timeout=120)
            [loaded] = [line for line in ended.log.splitlines() if line.startswith("LOADED")]
            ended.loaded = tuple(loaded.split()[1:])


def test_a_server_of_gpts(talk: Path, native_cache: str) -> None:
    runs = [FIXTURES / "runs" / "lm-modern", FIXTURES / "runs" / "classify", talk]
    with serving(native_cache, *runs, "--share") as (http, ended):
        answers = {}
        for path, body in WRITTEN:
            answer = http.post(f"/v1/{path}", json={"model": "lm-modern", **body})
            assert answer.status_code == 200, answer.text
            answers[path, body.get("stream", False)] = answer
        for path in GOTTEN:
            assert http.get(f"/{path}").status_code == 200, path
        assert http.post("/v1/fill-mask", json={"model": "talk", "input": "[MASK]"}).status_code == 400
        assert http.post("/v1/completions", json={"model": "nobody"}).status_code == 404
    assert ended.loaded == ()
    assert "PyTorch" not in ended.log
    classes = answers["classify", False].json()["data"]
    wanted = predict(jumok.load(runs[1]), TEXTS)
    assert [one["label"] for one in classes] == [one.label for one in wanted]
    for one, other in zip(classes, wanted, strict=True):
        assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-5)


@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_quantised_matrices(kind: Any, native_cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold for models that write. A classifier keeps its parameters as they are."""
    monkeypatch.setenv("JUMOK_CACHE", native_cache)
    monkeypatch.delenv("JUMOK_NATIVE")
    jumok.save(random_model(GPTConfig, TEXTS[0], [], seed=0, labels=("가", "나")), tmp_path / "classes")
    runs = [FIXTURES / "runs" / "lm-modern", tmp_path / "classes"]
    with serving(native_cache, *runs, "--quantize", kind) as (http, ended):
        body = {"model": "lm-modern", "prompt": "옛날", "max_tokens": 20, "temperature": 0}
        found = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
        classes = http.post("/v1/classify", json={"model": "classes", "input": TEXTS}).json()["data"]
    assert ended.loaded == ()
    assert found == generate(jumok.load(runs[0]), "옛날", tokens=20, temperature=0, quantize=kind)[0].text
    for one, other in zip(classes, predict(jumok.load(runs[1]), TEXTS), strict=True):
        assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-5)


def test_pytorch_is_told_and_loaded_for_what_needs_it(talk: Path, native_cache: str) -> None:
    """Pages need a model of PyTorch, which is loaded once; other models are of PyTorch from the start."""
    with serving(native_cache, talk, FIXTURES / "runs" / "mlm", "--share") as (http, ended):
        for body in ({"text": "그날"}, {"text": "밤"}):
            assert http.post("/v1/jumok/view", json={"model": "talk", **body}).status_code == 200
        assert http.post("/v1/jumok/share", json={"model": "talk"}).status_code == 200
        answer = http.post("/v1/fill-mask", json={"model": "mlm", "input": "나는 [MASK]"})
        assert answer.status_code == 200, answer.text
        body = {"model": "talk", "prompt": "그날", "max_tokens": 5, "temperature": 0}
        found = http.post("/v1/completions", json=body).json()["choices"][0]["text"]
    assert "torch" in ended.loaded
    told = [line.partition(" ")[2] for line in ended.log.splitlines() if "PyTorch" in line]
    assert [line.partition(" PyTorch")[0] for line in told] == ["talk is loaded by", "mlm is computed by"]
    assert found == generate(jumok.load(talk), "그날", tokens=5, temperature=0)[0].text


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_predict(options: tuple[str, ...], native_cache: str) -> None:
    run = FIXTURES / "runs" / "classify"
    command = [sys.executable, "-c", PROGRAM, "predict", str(run), *TEXTS, *options]
    done = subprocess.run(command, env=environment(native_cache), capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "LOADED"
    labels = [one.label for one in predict(jumok.load(run), TEXTS)]
    if options:
        assert [one["label"] for one in json.loads(done.stdout)["predictions"]] == labels
    else:
        assert [line.split("\t")[0] for line in done.stdout.splitlines()] == labels
