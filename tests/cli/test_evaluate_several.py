"""`jumok evaluate` with several runs and folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok as package
from conftest import Jumok
from jumok.config import BERTConfig, GPTConfig
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "옛날에 토끼가 살았어요.\n거북이와 함께 달렸어요.\n" * 6


def save(path: str, kind: str = "char", *, hf: bool = False, **changes: Any) -> None:
    tokenizer = train_tokenizer(TEXT, kind)
    torch.manual_seed(0)
    shape = {"context_length": 16, "n_layer": 1, "n_head": 2, "n_embd": 16, **changes}
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, **shape))
    model.tokenizer = tokenizer
    to_hf(model, path) if hf else package.save(model, path)


@pytest.fixture
def text(own_folder: Path) -> str:
    (own_folder / "글.txt").write_text(TEXT, encoding="utf-8")
    return "글.txt"


def test_a_table_of_runs_and_folders(jumok: Jumok, text: str) -> None:
    save("글자 모델")
    save("models/자모", "jamo")
    save("stock", hf=True)
    end = jumok("evaluate", "글자 모델", "models/자모", "stock", text, "--json")
    assert end.code == 0, end.err
    found = end.json
    assert found["task"] == "lm"
    assert [each["name"] for each in found["models"]] == ["글자 모델", "자모", "stock"]
    for each in found["models"]:
        alone = jumok("evaluate", each["run"], text, "--json").json
        assert alone.items() <= each.items()
        assert each["parameters"] == package.load(each["run"]).parameter_count()
        assert each["tokens_per_second"] > 0
    char, jamo, stock = found["models"]
    assert jamo["tokens_per_char"] > 1.5 * char["tokens_per_char"]
    assert stock["nats_per_char"] == pytest.approx(char["nats_per_char"], abs=1e-5)
    shown = jumok("evaluate", "글자 모델", "models/자모", text)
    heading, *lines = shown.out.splitlines()
    assert heading.split() == [
        "model", "parameters", "nats/char", "bits/char", "bits/byte", "tokens/char", "tokens/s",
    ]  # fmt: skip
    assert lines[0].startswith("글자 모델")
    assert f"{jamo['bits_per_char']:.4f}" in lines[1]


def test_classifiers_in_a_table(jumok: Jumok, own_folder: Path) -> None:
    for name, labels in (("a", ("좋음", "싫음")), ("b", ("싫음", "좋음"))):
        save(name, labels=labels)
    Path("table.tsv").write_text("text\tlabel\n토끼가 좋아요\t좋음\n거북이\t싫음\n", encoding="utf-8")
    end = jumok("evaluate", "a", "b", "table.tsv", "--json")
    assert end.code == 0, end.err
    assert {0.0, 0.5, 1.0} >= {each["accuracy"] for each in end.json["models"]}
    shown = jumok("evaluate", "a", "b", "table.tsv")
    assert shown.out.splitlines()[0].split() == ["model", "parameters", "accuracy", "f1_macro", "loss", "tokens/s"]


def test_names_that_are_alike(jumok: Jumok, text: str) -> None:
    for path in ("b/run", "c/run", "other"):
        save(path)
    found = jumok("evaluate", "b/run", "c/run", "other", text, "--json").json["models"]
    assert [each["name"] for each in found] == ["b/run", "c/run", "other"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["run", "missing", "글.txt"], 1, "missing does not exist"),
        (["missing", "run", "글.txt"], 1, "there is no run folder missing"),
        (["run", "글.txt", "other"], 1, "Give the folders of all models first"),
        (["run", "bert", "글.txt"], 2, "run is a model for the task lm, and bert one for the task mlm"),
        (["run", "no-tokenizer", "글.txt"], 1, "put its tokenizer.json into the folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input(jumok: Jumok, text: str, arguments: list[str], code: int, message: str) -> None:
    Path("empty.txt").touch()
    save("run")
    save("no-tokenizer", hf=True)
    Path("no-tokenizer/tokenizer.json").unlink()
    shutil.copytree("run", "other")
    tokenizer = train_tokenizer(TEXT, "char", special_tokens=("[MASK]",)) if "bert" in arguments else None
    if tokenizer is not None:
        bert = build(BERTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=16))
        bert.tokenizer = tokenizer
        package.save(bert, "bert")
    end = jumok("evaluate", *arguments)
    assert end.code == code, end.err
    assert message in end.err


def test_the_figures_of_models_before_an_error_are_printed(jumok: Jumok, text: str) -> None:
    """A third model that cannot be evaluated lost the figures of the two before it, which may have taken an hour."""
    save("run")
    shutil.copytree("run", "other")
    save("no-tokenizer", hf=True)
    Path("no-tokenizer/tokenizer.json").unlink()
    arguments = ["evaluate", "run", "other", "no-tokenizer", "글.txt"]
    end = jumok(*arguments, "--json")
    assert end.code == 1
    figures, error = map(json.loads, end.out.splitlines())
    assert [one["name"] for one in figures["models"]] == ["run", "other"]
    assert "no-tokenizer" in error["error"]
    assert [line.split()[0] for line in jumok(*arguments).out.splitlines()[1:]] == ["run", "other"]
