"""Writing needs no torch, nor other libraries that take long to import, where the C++ step computes the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import jumok
from conftest import FIXTURES
from jumok.config import GPTConfig
from jumok.inference.generate import generate
from jumok.models.gpt import GPT
from jumok.runs.native import load_to_write
from jumok.tokenizers import train_tokenizer, with_chat

pytestmark = pytest.mark.compile

SLOW = ("torch", "rich", "filelock", "huggingface_hub", "jinja2", "regex", "matplotlib", "logging", "asyncio")
PROGRAM = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", *[name for name in {SLOW} if name in sys.modules], file=sys.stderr))
from jumok.cli import main
main()
"""
NOT_INSTALLED = """
from pathlib import Path
from jumok.inference.native import build
build.INSTALLED = Path("nowhere")
"""


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """A model with a chat template."""
    folder = tmp_path_factory.mktemp("talk") / "run"
    tokenizer = with_chat(train_tokenizer(tales, "char"))
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=8, context_length=64))
    model.tokenizer = tokenizer
    jumok.save(model, folder)
    return folder


def command(*words: object, native: str, typed: str = "", program: str = PROGRAM) -> tuple[str, list[str]]:
    """Run a command; what it prints, and which slow modules it has imported."""
    environment = {name: value for name, value in os.environ.items() if name != "JUMOK_NATIVE"}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], input=typed, capture_output=True, text=True,
        env={**environment, "JUMOK_CACHE": native, "JUMOK_LANG": "ko", "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [loaded] = [line for line in done.stderr.splitlines() if line.startswith("LOADED")]
    return done.stdout, loaded.split()[1:]


@pytest.mark.parametrize("name", ["lm-modern", "lm-jamo-classic"])
@pytest.mark.parametrize(
    "options",
    [(), ("--json", "--samples", "3", "--top-k", "5", "--min-p", ".1"), ("--quantize", "int8", "--stop", "가")],
)
def test_generate(name: str, options: tuple[str, ...], native_cache: str) -> None:
    said, loaded = command(
        "generate", FIXTURES / "runs" / name, "옛날", "--tokens", 20, "--seed", 3, *options, native=native_cache
    )
    assert loaded == []
    assert len(json.loads(said)["samples"]) == 3 if "--json" in options else said.startswith("옛날")


def test_chat(talk: Path, native_cache: str) -> None:
    said, loaded = command("chat", talk, "안녕?", "--tokens", 5, "--json", native=native_cache)
    assert loaded == []
    assert json.loads(said)["messages"][0]["content"] == "안녕?"
    said, loaded = command("chat", talk, "--tokens", 5, "--json", native=native_cache, typed="안녕?\n그래?\n")
    assert loaded == []
    assert len(json.loads(said)["answers"]) == 2


@pytest.mark.parametrize("name", ["mlm", "seq2seq"])
def test_pytorch_computes_other_models(name: str, native_cache: str) -> None:
    said, loaded = command("generate", FIXTURES / "runs" / name, "나는 [MASK]", native=native_cache)
    assert said
    assert "torch" in loaded


def test_pytorch_writes_where_the_step_is_not_there(tmp_path: Path) -> None:
    """Few tokens are not worth compiling it."""
    said, loaded = command(
        "generate", FIXTURES / "runs" / "lm-modern", "옛날", "--tokens", 5,
        native=str(tmp_path), program=NOT_INSTALLED + PROGRAM,
    )  # fmt: skip
    assert said.startswith("옛날")
    assert "torch" in loaded
    assert list(tmp_path.rglob("*.so")) == []


@pytest.mark.parametrize(
    "how", [{}, {"top_p": 0.9}, {"repetition_penalty": 1.3, "top_k": 7}, {"temperature": 0}], ids=str
)
@pytest.mark.parametrize("kind", [None, "int8", "bfloat16"])
@pytest.mark.parametrize("backend", [pytest.param("native", marks=pytest.mark.compile)], indirect=True)
def test_texts_are_those_of_a_model_of_pytorch(kind: str | None, how: dict[str, float], backend: str) -> None:
    run = FIXTURES / "runs" / "lm-modern"
    settings = {"tokens": 60, "samples": 2, "seed": 5, "quantize": kind, **how}
    ours = generate(load_to_write(run, quantize=kind), ["옛날", ""], **settings)
    assert ours == generate(jumok.load(run), ["옛날", ""], **settings)
