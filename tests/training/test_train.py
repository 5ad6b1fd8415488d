"""Whole jobs in one call: training with a bar, figures of every kind of model, and what a string is taken for."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from rich.console import Console

import jumok
from conftest import TINY
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, TextError
from jumok.evaluation.classification import evaluate_classes
from jumok.evaluation.language_model import evaluate_text
from jumok.evaluation.masked import evaluate_masked
from jumok.evaluation.seq2seq import evaluate_pairs
from jumok.models import Model, build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.text import from_rows, from_string, read
from jumok.tokenizers import train_tokenizer
from jumok.training.subscribers import progress
from jumok.training.trainer import Trainer

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다.\n" * 4
ROWS = [("나는 갔다", "좋음"), ("밥을 먹었다", "나쁨"), ("너는 갔다", "좋음")]
SIZES = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 24}


def made(kind: str) -> Model:
    tokenizer = train_tokenizer(TEXT + "좋음나쁨", "char", min_count=1, special_tokens=SPECIAL_TOKENS)
    known, ids = tokenizer.special_tokens, {"vocab_size": tokenizer.vocab_size}
    config = {
        "gpt": lambda: GPTConfig(**SIZES, **ids),
        "classifier": lambda: GPTConfig(**SIZES, **ids, labels=("나쁨", "좋음"), pad_id=known["[PAD]"]),
        "bert": lambda: BERTConfig(**SIZES, **ids, pad_id=known["[PAD]"]),
        "pairs": lambda: EncoderDecoderConfig(
            **SIZES, **ids, pad_id=known["[PAD]"], eos_id=known["[SEP]"], decoder_start_id=known["[CLS]"]
        ),
    }[kind]()
    torch.manual_seed(0)
    model = build(config).eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a text and two tables."""
    monkeypatch.chdir(tmp_path)
    Path("other.txt").write_text(TEXT, encoding="utf-8")
    Path("notes").write_text(TEXT, encoding="utf-8")
    Path("table.tsv").write_text("text\tlabel\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS), encoding="utf-8")
    Path("pairs.tsv").write_text("question\tanswer\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS), encoding="utf-8")
    return tmp_path


# --- what a string is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["other.txt", "notes", "gone.txt", "table.tsv"])
def test_a_string_that_looks_like_a_file_is_asked_about(name: str, files: Path) -> None:
    """`evaluate(model, "other.txt")` scored the nine characters of the name, without a word."""
    for call in (
        lambda: jumok.evaluate(made("gpt"), name),
        lambda: jumok.evaluate(made("bert"), name),
        lambda: jumok.train(name, out="run", quiet=True, **TINY),
        lambda: Trainer.start("run", name, **TINY, device="cpu"),
        lambda: jumok.predict(made("classifier"), [name]),
        lambda: jumok.view(made("gpt"), name),
    ):
        with pytest.raises(ConfigError) as error:
            call()
        assert str(error.value) == (
            f"{name!r} looks like the name of a file, but a string is taken as the text itself. Give Path({name!r}) "
            f"for the content of the file, or jumok.text.from_string({name!r}) for these {len(name)} characters."
        )
    assert not Path("run").exists()


def test_a_path_is_a_file_and_a_string_a_text(files: Path) -> None:
    model = made("gpt")
    wanted = evaluate_text(model, TEXT)
    for given in (TEXT, Path("other.txt"), read(["other.txt"]), from_string(TEXT)):
        assert jumok.evaluate(model, given) == wanted
    assert jumok.evaluate(model, TEXT, stride=2) == evaluate_text(model, TEXT, stride=2)
    assert jumok.evaluate(model, from_string("other.txt")) == evaluate_text(model, "other.txt")
    classifier = made("classifier")
    wanted = jumok.predict(classifier, [TEXT])
    for given in (Path("other.txt"), from_string(TEXT)):  # as the question about a name suggests
        assert jumok.predict(classifier, [given]) == wanted
    assert len(jumok.predict(classifier, ["나는", "other.txt"])) == 2  # the cells of a table


# --- figures of every kind --------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_the_kind(files: Path) -> None:
    bert, classifier, pairs = made("bert"), made("classifier"), made("pairs")
    assert jumok.evaluate(bert, Path("other.txt")) == evaluate_masked(bert, TEXT)
    wanted = evaluate_classes(classifier, from_rows(("text", "label"), ROWS))
    assert jumok.evaluate(classifier, ROWS) == wanted
    assert jumok.evaluate(classifier, Path("table.tsv")) == wanted
    assert jumok.evaluate(classifier, Path("pairs.tsv"), columns=("question", "answer")) == wanted
    answered = evaluate_pairs(pairs, ROWS, beam=2)
    assert jumok.evaluate(pairs, ROWS, beam=2) == answered
    assert jumok.evaluate(pairs, Path("pairs.tsv"), columns=["question", "answer"], beam=2) == answered


@pytest.mark.parametrize(
    ("kind", "material", "how", "message"),
    [
        ("gpt", TEXT, {"beam": 2}, "beam is not for a model of task lm"),
        ("pairs", ROWS, {"stride": 2}, "stride is not for a model of task seq2seq"),
        ("gpt", ROWS, {}, "a list of rows was given, and this model reads a text"),
        ("bert", from_rows(("a", "b"), ROWS), {}, "a table was given, and this model reads a text"),
        ("classifier", TEXT, {}, "evaluated on a table with the columns text, label"),
        ("gpt", Path("other.txt"), {"columns": ("a", "b")}, r"columns=\['a', 'b'\] names the columns .* none for this"),
        ("pairs", Path("pairs.tsv"), {"columns": ("question",)}, "names the columns of a table at a Path, 2 for this"),
    ],
)
def test_what_does_not_fit_is_said(kind: str, material: Any, how: dict[str, Any], message: str, files: Path) -> None:
    with pytest.raises((ConfigError, TextError), match=message):
        jumok.evaluate(made(kind), material, **how)  # type: ignore[call-overload]


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_returns_the_best_model(files: Path, capfd: pytest.CaptureFixture[str], tales: str) -> None:
    Path("novel.txt").write_text(tales, encoding="utf-8")
    model = jumok.train(Path("novel.txt"), out="run", **TINY)
    assert "held out" in capfd.readouterr().err
    assert not model.training
    saved = jumok.load("run")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), saved.parameters(), strict=True))
    assert jumok.generate(model, "그날", tokens=3, seed=1) == jumok.generate(saved, "그날", tokens=3, seed=1)
    jumok.train(tales, out="quiet", quiet=True, **TINY)
    assert capfd.readouterr() == ("", "")
    weights = [(Path(run) / "model.safetensors").read_bytes() for run in ("run", "quiet")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_columns_are_named(files: Path) -> None:
    rows = [("나는 갔다", "좋음"), ("밥을 먹었다", "나쁨")] * 20
    Path("q.tsv").write_text("q\ta\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    settings = {**TINY, "steps": 2, "eval_every": 0}
    classifier = jumok.train(Path("q.tsv"), out="c", task="classify", columns=("q", "a"), quiet=True, **settings)
    assert {one.label for one in jumok.predict(classifier, ["나는 갔다", "밥을 먹었다"])} <= {"좋음", "나쁨"}
    writer = jumok.train(Path("q.tsv"), out="s", task="seq2seq", columns=("q", "a"), quiet=True, **settings)
    assert jumok.evaluate(writer, Path("q.tsv"), columns=("q", "a")).rows == 40


@pytest.mark.slow
def test_a_notebook_has_a_bar(start: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """rich has none there without ipywidgets, and a run was silent between two validations."""
    shown: list[str] = []

    class Handle:
        def update(self, bundle: dict[str, str], *, raw: bool) -> None:
            shown.append(bundle["text/plain"])

    display = ModuleType("IPython.display")
    display.display = lambda *_, **__: Handle()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(Console, "print", lambda *_, **__: None)
    monkeypatch.setattr(progress, "Console", lambda **how: Console(**how, force_jupyter=True))
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    with progress.TrainingView(tmp_path / "run") as view:
        for event in start().run():
            view.show(event)
    assert len(shown) == 9
    assert shown[3].startswith("█" * 12 + "░" * 12 + "  50% ")
    assert "step 4 · loss " in shown[3]
    assert shown[-1] == ""
