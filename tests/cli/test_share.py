"""`jumok share` and `jumok convert --to page`: what they print and write, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Jumok
from jumok.config import GPTConfig, ModelConfig, RungConfig
from jumok.models import build
from jumok.runs.load import save
from jumok.tokenizers import train_tokenizer
from jumok.view import model_page, page

TEXT = "바람이 불고 비가 왔다. "
TEMPLATE = '<meta name="generator" content="jumok"><script>{{model}}</script>{{parameters}}{{csp}}{{script}}{{worker}}'
SIZES: dict[str, Any] = {"context_length": 16, "n_layer": 1, "n_head": 2, "n_embd": 16}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folder")]


@pytest.fixture(autouse=True)
def _own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about the commands, not about how a page looks."""
    monkeypatch.setattr(page, "asset", lambda name: TEMPLATE)
    monkeypatch.setattr(model_page, "script", lambda entry: "")


def run_of(config: ModelConfig, folder: str) -> Path:
    model: Any = build(config)
    model.tokenizer = train_tokenizer(TEXT * 4)
    save(model, folder)
    return Path(folder)


@pytest.fixture
def run() -> Path:
    words = train_tokenizer(TEXT * 4)
    return run_of(GPTConfig(vocab_size=words.vocab_size, **SIZES), "novel")


def header_of(path: str) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8").split("<script>")[1].split("</script>")[0])


def test_share(jumok: Jumok, run: Path) -> None:
    end = jumok("share", run, "--json")
    assert end.code == 0, end.err
    size = Path("novel.html").stat().st_size
    assert end.json == {"run": "novel", "page": "novel.html", "bytes": size}
    assert "Wrote novel.html (0.0 MB)." in end.err
    assert "parameters in 8 bits and a tokenizer of" in end.err
    assert "none of the texts" in end.err
    assert header_of("novel.html")["about"]["title"] == "novel"
    again = jumok("share", run, "--quiet", "--prompt", "그날 밤")
    assert header_of("novel.html")["prompt"] == "그날 밤"
    assert (again.code, again.out, again.err) == (0, "", "")


def test_share_the_folder_one_is_in(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)
    assert jumok("share", ".", "--out", "../here.html").code == 0
    assert header_of("../here.html")["about"]["name"] == "novel"


def test_convert_to_a_page(jumok: Jumok, run: Path) -> None:
    end = jumok("convert", run, "page.html", "--to", "page", "--json")
    assert end.json == {"source": "novel", "target": "page.html", "to": "page"}
    assert header_of("page.html")["about"]["name"] == "novel"


def test_what_is_said_about_a_model_is_in_the_page(jumok: Jumok, run: Path) -> None:
    said = {"title": "나의 모델", "note": "<b>첫 모델</b>", "licence": "CC BY 4.0"}
    options = [word for name, text in said.items() for word in (f"--{name}", text)]
    end = jumok("share", run, "--out", "page.html", "--exact", "--language", "ko", *options, "--json")
    assert end.code == 0, end.err
    header = header_of("page.html")
    assert {name: header["about"][name] for name in said} == said
    assert (header["language"], header["about"]["bits"]) == ("ko", 16)
    assert "parameters in 16 bits" in end.err


def test_a_classifier_says_that_its_labels_are_in_the_page(jumok: Jumok) -> None:
    words = train_tokenizer(TEXT * 4)
    run_of(GPTConfig(vocab_size=words.vocab_size, labels=("비", "눈", "해"), **SIZES), "weather")
    assert "The names of its 3 labels are in it." in jumok("share", "weather").err


def test_a_large_page_is_written_with_a_warning(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_page, "LARGE_PAGE", 1000)
    end = jumok("share", run)
    assert end.code == 0
    assert "many mail programs refuse it" in end.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["share", "nothing"], 1, "there is no run folder nothing"),
        (["share", "novel", "--out", "novel"], 2, "it is a folder. Name a file in it: novel/page.html"),
        (["share", "novel", "--out", "none/page.html"], 2, "there is no folder none"),
        (["share", "novel", "--out", "text.txt"], 2, "was not written by jumok; give another name, or --force"),
        (["share", "rung"], 1, "type='rung', which jumok share does not compute"),
        (["convert", "novel", "hf", "--to", "hf", "--force"], 2, "--force is not for --to hf; leave it out"),
    ],
)  # fmt: skip
def test_bad_input(jumok: Jumok, run: Path, arguments: list[str], code: int, message: str) -> None:
    words = train_tokenizer(TEXT * 4)
    run_of(RungConfig(vocab_size=words.vocab_size, mixing="average", **SIZES), "rung")
    Path("text.txt").write_text("a text of mine", encoding="utf-8")
    before = {path.name for path in Path().iterdir()}
    end = jumok(*arguments, "--json")
    assert end.code == code, end.err
    assert message in end.err
    assert message in end.json["error"] or code == 2
    assert {path.name for path in Path().iterdir()} == before
    assert Path("text.txt").read_text(encoding="utf-8") == "a text of mine"


def test_force_replaces_a_file(jumok: Jumok, run: Path) -> None:
    Path("text.txt").write_text("a text of mine", encoding="utf-8")
    assert jumok("share", run, "--out", "text.txt", "--force").code == 0
    assert header_of("text.txt")["about"]["name"] == "novel"


def test_a_run_that_is_too_large(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_page, "LARGEST_PAGE", 5000)
    end = jumok("share", run)
    assert end.code == 1
    assert "the most that browsers open well" in end.err
    assert "jumok serve" in end.err
    assert not Path("novel.html").exists()


def test_the_browser_is_opened(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    assert jumok("share", run, "--open").code == 0
    assert opened == [Path("novel.html").resolve().as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda uri: False)
    end = jumok("share", run, "--open")
    assert (end.code, "no browser could be opened" in end.err) == (1, True)
