"""`jumok view` as a person uses it: a page, a picture, a table; and for whatever is wrong a sentence, no traceback."""

from __future__ import annotations

import json
import os
import re
import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from conftest import Jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import train_tokenizer
from jumok.view.weight_encoding import decode_weights

TEXT = "나는 학교에 갔다"
WORDS = "나는 학교에 갔다. 너는 밥을 먹었다.\n" * 3
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 24}


View = Jumok

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folder")]


@pytest.fixture
def view(jumok: Jumok) -> View:
    """Run `jumok view` in this process."""
    return partial(jumok, "view")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random model of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(1)
    plain = train_tokenizer(WORDS)
    framed = train_tokenizer(WORDS, special_tokens=SPECIAL_TOKENS)
    paired = train_tokenizer(WORDS, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    labels = ("좋다", "나쁘다")
    for name, config, words in (
        ("gpt", GPTConfig(vocab_size=plain.vocab_size, **SIZES), plain),
        ("bert", BERTConfig(vocab_size=framed.vocab_size, pad_id=0, **SIZES), framed),
        ("classes", BERTConfig(vocab_size=framed.vocab_size, head="classify", labels=labels, **SIZES), framed),
        ("pairs", EncoderDecoderConfig(vocab_size=paired.vocab_size, **SIZES, **ids), paired),
    ):
        model = build(config)
        model.tokenizer = words
        jumok.save(model, folder / name)
    return folder


def trace_in(page: Path) -> Any:
    """The JSON that a page holds."""
    found = re.search(r'id="jumok-trace">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


def opening_in(page: Path) -> Any:
    found = re.search(r'id="jumok-open">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return json.loads(found[1])


# --- a page ---


def test_a_page_is_named_after_its_run_and_says_where_it_is(view: View, runs: Path) -> None:
    end = view(runs / "gpt", TEXT)
    assert (end.code, end.out) == (0, "")
    assert re.search(r"Wrote gpt-view\.html \(0\.\d MB\)", end.err)
    shown = trace_in(Path("gpt-view.html"))
    assert shown["model"]["name"] == "gpt"
    assert shown["sequences"][0]["text"] == TEXT
    assert set(opening_in(Path("gpt-view.html"))) == {"layer"}  # which one, tests/test_schema.py tells


def test_a_stock_folder_is_as_good_as_a_run(view: View, runs: Path) -> None:
    to_hf(jumok.load(runs / "gpt"), "stock")
    assert view("stock", TEXT).code == 0
    assert view(runs / "gpt", TEXT).code == 0
    stock, own = (trace_in(Path(f"{name}-view.html"))["attentions"][0] for name in ("stock", "gpt"))
    assert stock["stats"]["entropy"] == [
        [pytest.approx(head, rel=1e-3) for head in layer] for layer in own["stats"]["entropy"]
    ]


def test_where_a_page_opens(view: View, runs: Path) -> None:
    assert view(runs / "pairs", TEXT, "--block", "cross", "--layer", "1", "--head", "0", "--lang", "en").code == 0
    assert opening_in(Path("pairs-view.html")) == {
        "block": "cross",
        "layer": 1,
        "head": 0,
        "heads": [0],
        "language": "en",
    }


def test_a_target_and_what_is_written(view: View, runs: Path) -> None:
    assert view(runs / "pairs", TEXT, "--target", "너는").code == 0
    assert "".join(token["text"] for token in trace_in(Path("pairs-view.html"))["sequences"][1]["tokens"]).endswith(
        "너는"
    )
    assert view(runs / "gpt", TEXT, "--tokens", "5", "--seed", "3").code == 0
    sequence = trace_in(Path("gpt-view.html"))["sequences"][0]
    assert len(sequence["tokens"]) == sequence["prompt"] + 5
    written = sequence["tokens"]
    assert view(runs / "gpt", TEXT, "--tokens", "5", "--seed", "3").code == 0
    assert trace_in(Path("gpt-view.html"))["sequences"][0]["tokens"] == written
    assert view(runs / "gpt", "", "--tokens", "5").code == 0


def test_some_layers_and_heads_and_exact_weights(view: View, runs: Path) -> None:
    assert view(runs / "gpt", TEXT, "--layers", "1", "--heads", "0-1", "--exact").code == 0
    shown = trace_in(Path("gpt-view.html"))
    (attention,) = shown["attentions"]
    assert (attention["layers"], attention["bits"], shown["neurons"]["bits"]) == ([1], 16, 16)
    model = jumok.load(runs / "gpt")
    with jumok.record(model) as recording, torch.inference_mode():
        model(torch.from_numpy(model.tokenizer.encode(TEXT).astype("int64"))[None])
    for head, coded in enumerate(attention["weights"][0]):
        decoded = decode_weights(coded, attention["t"], attention["s"], causal=True)
        torch.testing.assert_close(
            torch.from_numpy(decoded), recording.attention("self", 1).weights(head)[0, 0], rtol=1e-3, atol=1e-6
        )


def test_texts_from_a_pipe(view: View, runs: Path) -> None:
    for arguments in (["-"], []):
        end = view(runs / "gpt", *arguments, "--out", "page.html", stdin=TEXT + "\n")
        assert (end.code, end.err[:5]) == (0, "Wrote")
        assert trace_in(Path("page.html"))["sequences"][0]["text"] == TEXT


def test_a_text_longer_than_the_context_says_what_is_left_out(view: View, runs: Path) -> None:
    end = view(runs / "gpt", TEXT * 9)
    assert end.code == 0
    assert "longer than the model's context of 24 tokens" in end.err
    assert trace_in(Path("gpt-view.html"))["attentions"][0]["t"] == 24


def test_one_token_is_a_page(view: View, runs: Path) -> None:
    """The logit lens of a text in which nothing is expected used to fail."""
    assert view(runs / "gpt", "나").code == 0
    assert trace_in(Path("gpt-view.html"))["predictions"]["tokens"] == [None]


def test_hostile_texts_make_a_page_too(view: View, runs: Path) -> None:
    for text in ("</script><script>alert(1)</script>", "\u202e가나\u2028", "가" * 100_000):
        end = view(runs / "gpt", text)
        assert end.code == 0, end.err
        assert Path("gpt-view.html").read_text(encoding="utf-8").count("</script>") == 3


def test_json_says_what_was_made(view: View, runs: Path) -> None:
    made = view(runs / "gpt", TEXT, "--out", "page.html", "--json").json
    assert (made["page"], made["tokens"]) == ("page.html", [9])
    assert made["bytes"] == Path("page.html").stat().st_size
    assert view(runs / "gpt", "", "--json").json["error"].startswith("the text is empty")


def test_open_shows_the_page(view: View, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert view(runs / "gpt", TEXT, "--open").code == 0
    assert opened == [Path("gpt-view.html").resolve().as_uri()]
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    end = view(runs / "gpt", TEXT, "--open")
    assert end.code == 1
    assert "no browser could be opened here; open the file yourself: gpt-view.html" in end.err


# --- a table ---


def test_probe_prints_a_table_and_keeps_it_in_the_page(view: View, runs: Path) -> None:
    end = view(runs / "gpt", TEXT, "--probe")
    assert end.code == 0
    assert " ".join(end.out.split()[:10]) == "layer head Δ nats entropy distance first previous itself induction"
    probes = trace_in(Path("gpt-view.html"))["probes"]
    heads = [(one["layer"], one["head"]) for one in probes["ablation"]]
    assert sorted(heads) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [tuple(map(int, line.split()[:2])) for line in end.out.splitlines()[1:5]] == heads
    assert f"{probes['baseline_nats']:.4f} nats/token ({probes['tokens']} tokens)" in end.out
    assert len(probes["induction"]["self"]) == 2


def test_the_loss_of_the_probes_is_that_of_the_page(view: View, runs: Path) -> None:
    """What the page says of each token and what heads are worth must be about the same numbers."""
    for run, more in (("gpt", ["--tokens", "4"]), ("bert", []), ("pairs", [])):
        assert view(runs / run, TEXT, *more, "--probe", "--json").code == 0
        shown = trace_in(Path(f"{run}-view.html"))
        predictions = shown["predictions"]
        nats = [one["nats"] for one in predictions["tokens"] if one is not None]
        end = shown["probes"]["tokens"] - len(nats)  # [EOS] is no token of the page
        assert end == (run == "pairs")
        if not end:
            assert sum(nats) / len(nats) == pytest.approx(shown["probes"]["baseline_nats"], rel=1e-3)


def test_probes_of_pairs_name_their_blocks(view: View, runs: Path) -> None:
    end = view(runs / "pairs", TEXT, "--probe", "--json")
    assert {head["block"] for head in end.json["heads"]} == {"encoder", "decoder", "cross"}
    assert {head["distance"] is None for head in end.json["heads"] if head["block"] == "cross"} == {True}
    assert view(runs / "pairs", TEXT, "--probe").out.startswith("block")


def test_probes_of_some_layers_are_of_those(view: View, runs: Path) -> None:
    end = view(runs / "gpt", TEXT, "--probe", "--layers", "1", "--json")
    assert {head["layer"] for head in end.json["heads"]} == {1}
    whole = jumok.view(runs / "gpt", TEXT, probe=True).trace["probes"]
    view(runs / "gpt", TEXT, "--probe", "--layers", "1", "--heads", "1")
    some = trace_in(Path("gpt-view.html"))["probes"]
    assert [(one["layer"], one["head"]) for one in some["ablation"]] == [(1, 1)]
    for name in ("induction", "previous"):
        assert some[name] == {"self": [[whole[name]["self"][1][1]]]}


def test_what_jumok_did_not_make_is_not_written_over(view: View, runs: Path) -> None:
    """`jumok view ... --out thesis.html` wrote its page over whatever was there."""
    name = "mine.html"
    Path(name).write_text("my own work", encoding="utf-8")
    end = view(runs / "gpt", "나는", "--out", name)
    assert end.code == 2
    assert f"{name} exists and was not written by jumok; give another name, or --force." in end.err
    assert Path(name).read_text(encoding="utf-8") == "my own work"
    assert view(runs / "gpt", "나는", "--out", name, "--force").code == 0
    assert view(runs / "gpt", "나는", "--out", name).code == 0, "a page of jumok is written anew"
    Path("gpt-view.html").write_text("my own work", encoding="utf-8")
    assert view(runs / "gpt", "나는").code == 2, "the name that jumok chooses may be taken, too"


# --- what is wrong ---

WRONG: dict[str, tuple[list[str], int, str]] = {
    "no such run": (["gone", TEXT], 1, r"there is no run folder gone"),
    "a file for a run": (["file.txt", TEXT], 1, r"file\.txt is a file, and a run is a folder"),
    "empty text": (["gpt", ""], 1, r"the text is empty; give a text"),
    "no text on a terminal": (["gpt"], 2, r"no text was given"),
    "half a surrogate pair": (["gpt", "나\udcea"], 1, r"half of a surrogate pair"),
    "a target for a GPT": (["gpt", TEXT, "--target", "너는"], 2, r"target"),
    "an empty target": (["pairs", TEXT, "--target", ""], 1, r"target"),
    "tokens for a BERT": (["bert", TEXT, "--tokens", "3"], 2, r"tokens=3"),
    "negative tokens": (["gpt", TEXT, "--tokens", "-3"], 2, r"tokens"),
    "probes of a classifier": (["classes", TEXT, "--probe"], 1, r'head="classify".*predicts no tokens'),
    "probes of one token": (["gpt", "나", "--probe"], 1, r"leaves none to predict"),
    "layer out of range": (["gpt", TEXT, "--layer", "2"], 2, r"layer"),
    "head out of range": (["gpt", TEXT, "--head", "2"], 2, r"head=2 does not exist here; .* are 0, 1"),
    "block of a GPT": (["gpt", TEXT, "--block", "cross"], 2, r"block='cross' does not exist; this model has 'self'"),
    "unknown block": (["pairs", TEXT, "--block", "middle"], 2, r"--block"),
    "layers out of range": (["gpt", TEXT, "--layers", "0-2"], 2, r"layers=\[0, 1, 2\]"),
    "layers that are no numbers": (["gpt", TEXT, "--layers", "all"], 2, r"--layers 'all' is not a list of numbers"),
    "a range from behind": (["gpt", TEXT, "--heads", "1-0"], 2, r"is not a list of numbers"),
    "a range without an end": (["gpt", TEXT, "--heads", "0-9999999999"], 2, r"is not a list of numbers"),
    "a range that is far too long": (["gpt", TEXT, "--layers", "0-9999"], 2, r"layers=\[0, 1, 2, 3, 4, 5, \.\.\.\]"),
    "a layer that is not kept": (["gpt", TEXT, "--layers", "0", "--layer", "1"], 2, r"layer"),
    "out is a folder": (["gpt", TEXT, "--out", "."], 2, r"it is a folder"),
    "out has no folder": (["gpt", TEXT, "--out", "gone/page.html"], 2, r"there is no folder gone"),
    "out cannot be written": (["gpt", TEXT, "--out", "가" * 200], 1, r"cannot write .*choose another place"),
    "unknown option": (["gpt", TEXT, "--layerz", "1"], 2, r"--layerz"),
}  # fmt: skip


@pytest.mark.parametrize("story", WRONG)
def test_what_is_wrong_is_said_and_leaves_nothing(view: View, runs: Path, story: str) -> None:
    Path("file.txt").write_text(TEXT, encoding="utf-8")
    (run, *arguments), code, complaint = WRONG[story]
    end = view(runs / run if (runs / run).is_dir() else run, *arguments, terminal=True)
    assert re.search(complaint, end.err), end.err
    assert (end.code, end.out) == (code, "")
    assert sorted(path.name for path in Path().iterdir()) == ["file.txt"]


# --- from Python ---


def test_view_takes_a_model_or_its_folder(runs: Path) -> None:
    named, loaded = jumok.view(runs / "gpt", TEXT), jumok.view(jumok.load(runs / "gpt"), TEXT)
    assert named.title == f"gpt · {TEXT}"
    assert loaded.title == f"GPT · {TEXT}"
    assert named.trace["attentions"] == loaded.trace["attentions"]


def test_view_saves_where_it_is_told(runs: Path) -> None:
    page = jumok.view(runs / "gpt", TEXT, out="page.html", layer=1, head=0, probe=True, language="ko")
    assert Path("page.html").read_text(encoding="utf-8") == page.html
    assert page.opening == {"layer": 1, "head": 0, "heads": [0], "language": "ko"}
    assert page.trace["probes"]["tokens"] == 8
    with pytest.raises(jumok.JumokError, match="there is no folder"):
        jumok.view(runs / "gpt", TEXT, out="gone/page.html")


@pytest.mark.parametrize(
    ("prompt", "rooms", "how", "opens"),
    [
        (True, [], {}, True),
        (False, [], {}, False),  # a script
        (True, ["ipykernel"], {}, False),  # a notebook shows the page itself
        (True, ["marimo"], {}, False),
        (True, [], {"out": "page.html"}, False),
        (True, [], {"show": False}, False),
        (False, [], {"show": True}, True),
    ],
)
def test_at_the_prompt_a_page_shows_itself(
    runs: Path, monkeypatch: pytest.MonkeyPatch, prompt: bool, rooms: list[str], how: dict[str, Any], opens: bool
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    for room in ("ipykernel", "marimo"):
        monkeypatch.delitem(sys.modules, room, raising=False)
    for room in rooms:
        monkeypatch.setitem(sys.modules, room, sys)
    if prompt:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    jumok.view(runs / "gpt", "나는", **how)
    assert [url.startswith("file://") for url in opened] == [True] * opens


def test_at_a_prompt_without_a_browser_there_is_a_page_all_the_same(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert "keeps it" in repr(jumok.view(runs / "gpt", "나는"))
    with pytest.raises(jumok.JumokError, match="no browser"):
        jumok.view(runs / "gpt", "나는", show=True)


def test_viewing_leaves_the_model_as_it_was(runs: Path) -> None:
    model = jumok.load(runs / "gpt").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    jumok.view(model, TEXT, probe=True)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not [module for module in model.modules() if module._forward_hooks or module._forward_pre_hooks]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_page_does_not_go_into_a_pipe(view: View, runs: Path, tmp_path: Path) -> None:
    """The look at what stands there waited for a writer, for ever."""
    os.mkfifo(tmp_path / "pipe")
    end = view(runs / "gpt", "글", "--out", tmp_path / "pipe")
    assert end.code == 2
    assert "it is not a file" in end.err
