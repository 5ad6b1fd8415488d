"""The whole program of `jumok learn script`: it is made of the definitions of the course, and runs alone."""

from __future__ import annotations

import ast
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

import pytest
import torch

from conftest import Jumok
from jumok.course.chapters import program
from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.training import mean_loss
from jumok.course.pages.chapter import TEXTS
from jumok.course.pages.sources import whole_program
from jumok.course.words import LANGUAGES, Language, words_in


def test_it_has_no_definition_that_it_does_not_need() -> None:
    names = [node.name for node in ast.parse(whole_program()).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert len(names) == len(set(names))
    assert names.index("Characters") < names.index("GPT") < names.index("generate") < names.index("main")
    assert names.index("causal_mask") < names.index("GPT")
    assert not {"Head", "StackedHeads", "train", "adamw_step", "beam_search", "RMSNorm"} & set(names)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_command_prints_it(jumok: Jumok, language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_LANG", language)
    printed = jumok("learn", "script").out
    assert printed == whole_program(language)
    assert "jumok" not in [line.split()[1] for line in printed.splitlines() if line.startswith(("import ", "from "))]


def test_it_speaks_korean() -> None:
    """The header and the messages of the file were English in Korean, too. All that is said in Korean stands in it."""
    english, korean = whole_program("en"), whole_program("ko")
    for words in words_in(TEXTS, "program").values():
        assert words.en in english
        assert words.en not in korean
        assert words.ko in korean
    texts = [ast.unparse(node.args[0]) for node in ast.walk(ast.parse(korean)) if _prints(node)]
    assert texts
    assert all(re.search("[가-힣]", text) for text in texts if text.startswith("f"))


def _prints(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def test_the_loss_counts_each_token_once() -> None:
    model = GPT(20, context_length=8, n_layer=1, n_head=2, n_embd=8).eval()
    ids = torch.randint(20, (9,))
    with torch.no_grad():
        whole = mean_loss(model, ids[None, :-1], ids[None, 1:]).item() * 8
    assert program.nats_per_character(model, ids, 4) == pytest.approx(whole / 4, rel=1e-5)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    assert program.nats_per_character(model, torch.randint(20, (31,)), 30) == pytest.approx(math.log(20), rel=1e-5)


def test_training_follows_the_clock(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each look at the clock takes a second: ten steps in ten seconds."""
    seconds = iter(range(100))
    monkeypatch.setattr(program.time, "monotonic", lambda: next(seconds))
    model = GPT(20, context_length=8, n_layer=1, n_head=2, n_embd=8)
    before = model.head.weight.clone()
    program.train_for(model, torch.randint(20, (50,)), minutes=10 / 60)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [f"{share}%" for share in range(10, 101, 10)]
    assert lines[-1].split()[2] == "10"
    assert not model.training
    assert not torch.equal(model.head.weight, before)


@pytest.mark.long
def test_it_runs_alone(tmp_path: Path) -> None:
    """In a folder of its own, without jumok on the path."""
    script, text = tmp_path / "gpt.py", tmp_path / "novel.txt"
    script.write_text(whole_program(), encoding="utf-8")
    text.write_text("그날 밤 나는 집을 나섰다. 비가 왔다.\n" * 200, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-I", script, text, "--minutes", "0.02", "--prompt", "그날"],
        capture_output=True, text=True, encoding="utf-8", check=True,
    )  # fmt: skip
    assert "nats per character" in done.stdout
    assert "\n그날" in done.stdout
