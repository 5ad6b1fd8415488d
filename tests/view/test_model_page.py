"""The file of a page with a model: what is in it, what is not, and which models are refused."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tokenizers
from html_pages import Elements
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, to_dict
from jumok.errors import JumokError, TokenizerError, ViewError
from jumok.models import Model, build
from jumok.runs.load import load, save
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view import model_page, page
from jumok.view.model_page import ModelPage, rounded, stored_parameters

TEXT = "바람이 불고 비가 왔다. 아이는 우산을 쓰고 길을 걸었다. "
SIZES: dict[str, Any] = {"context_length": 32, "n_layer": 1, "n_head": 2, "n_embd": 16}
HOSTILE = (
    "</script><script>window.harmed=1</script><!-- <img src=x onerror=alert(1)> \u202e\u2028 {{worker}} ' \" &amp;"
)
TEMPLATE = """<!doctype html>
<html><head><meta name="generator" content="jumok">
<meta http-equiv="Content-Security-Policy" content="{{csp}}"><title>{{title}}</title><style>{{style}}</style></head>
<body><script type="application/json" id="jumok-model">{{model}}</script>
<script type="text/plain" id="jumok-parameters">{{parameters}}</script>
<script type="text/plain" id="jumok-worker">{{worker}}</script><script>{{script}}</script></body></html>
"""


@pytest.fixture(autouse=True)
def _own_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is written into a page, not about how a page looks."""
    monkeypatch.setattr(page, "asset", lambda name: TEMPLATE if name.endswith(".html") else "body {}")
    monkeypatch.setattr(model_page, "script", lambda entry: f"// {entry}")


def model_of(config: Callable[..., ModelConfig] = GPTConfig, kind: str = "char", **settings: Any) -> Any:
    torch.manual_seed(3)
    special = [] if config is GPTConfig else ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    words = train_tokenizer(TEXT * 4, kind, special_tokens=special)
    model = build(config(vocab_size=words.vocab_size, **{**SIZES, **settings}))
    model.tokenizer = words
    return model.eval()


def parts_of(made: ModelPage) -> tuple[dict[str, Any], bytes]:
    elements = Elements(made.html)
    raw = zlib.decompress(base64.b64decode(elements.only("script", id="jumok-parameters"), validate=True), -15)
    return json.loads(elements.only("script", id="jumok-model")), raw


# --- what is in the file ---


@pytest.mark.parametrize("exact", [False, True], ids=["8 bits", "16 bits"])
def test_the_file_holds_the_parameters(exact: bool) -> None:
    model = model_of()
    header, raw = parts_of(ModelPage(model, "novel", exact=exact))
    assert (header["format"], header["version"]) == ("jumok-model-page", 1)
    assert header["bytes"] == len(raw)
    assert header["sha256"] == hashlib.sha256(raw).hexdigest()
    assert header["crc32"] == zlib.crc32(raw)
    state = rounded(model, exact=exact).state_dict()
    names = [entry["name"] for entry in header["parameters"]]
    assert set(state) - set(names) == {"head.weight"}  # it is the matrix of the embedding
    for entry in header["parameters"]:
        found = np.frombuffer(raw, entry["type"], int(np.prod(entry["shape"])), entry["offset"]).reshape(entry["shape"])
        values = found.astype(np.float32)
        if entry["type"] == "int8":
            values = values * np.frombuffer(raw, np.float32, entry["shape"][0], entry["scale_offset"])[:, None]
        np.testing.assert_array_equal(values, state[entry["name"]].numpy())
        expected = "float32" if len(entry["shape"]) == 1 else "float16" if exact else "int8"
        assert entry["type"] == expected


@pytest.mark.parametrize("exact", [False, True], ids=["8 bits", "16 bits"])
def test_a_number_is_off_by_half_a_step_at_most(exact: bool) -> None:
    model = model_of()
    before, after = model.state_dict(), rounded(model, exact=exact).state_dict()
    for name, values in before.items():
        if values.dim() == 1:
            assert torch.equal(values, after[name])
            continue
        largest = values.abs().amax(dim=1, keepdim=True)
        step = values.abs() * 2**-10 + 2**-24 if exact else largest / 127
        assert bool(((values - after[name]).abs() <= 0.5001 * step).all()), name
    assert after["head.weight"] is not before["head.weight"]
    assert not torch.equal(after["head.weight"], before["head.weight"])


def test_rows_of_zeros_and_numbers_that_16_bits_cannot_hold() -> None:
    model = model_of()
    with torch.no_grad():
        model.blocks[0].mlp.up_proj.weight[0] = 0
        model.blocks[0].mlp.up_proj.weight[1] = 1e-42
        model.blocks[0].mlp.down_proj.weight[0, 0] = 1e6
    small = rounded(model).state_dict()
    assert bool(small["blocks.0.mlp.up_proj.weight"].isfinite().all())
    assert not small["blocks.0.mlp.up_proj.weight"][:1].any()
    exact = {one.name: one.numbers.dtype.name for one in stored_parameters(model, exact=True)}
    assert exact["blocks.0.mlp.down_proj.weight"] == "float32"
    assert exact["blocks.0.mlp.up_proj.weight"] == "float16"
    assert float(rounded(model, exact=True).state_dict()["blocks.0.mlp.down_proj.weight"][0, 0]) == 1e6


KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "gpt": (lambda: model_of(n_kv_head=1), {"kind": "gpt", "family": "modern", "n_kv_head": 1, "task": "lm"}),
    "jamo": (lambda: model_of(kind="jamo", family="classic"), {"family": "classic", "tokenizer": "jamo"}),
    "gpt with labels": (
        lambda: model_of(labels=("아니요", "예")),
        {"kind": "classifier", "labels": ["아니요", "예"], "task": "classify"},
    ),
    "bert": (lambda: model_of(BERTConfig), {"kind": "bert", "family": "bert", "task": "mlm", "head_dim": 8}),
    "bert with labels": (
        lambda: model_of(BERTConfig, head="classify", labels=("a", "b")),
        {"kind": "classifier", "labels": ["a", "b"]},
    ),
    "pairs": (
        lambda: model_of(EncoderDecoderConfig, n_decoder_layer=2),
        {"kind": "encoder-decoder", "n_decoder_layer": 2, "n_decoder_head": 2, "task": "seq2seq"},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_header_describes_the_model(kind: str) -> None:
    make, expected = KINDS[kind]
    model = make()
    header, _ = parts_of(ModelPage(model, "novel", note="적은 글", licence="CC BY"))
    about = header["about"]
    assert {name: about[name] for name in expected} == expected
    assert about["parameters"] == model.parameter_count()
    assert (about["name"], about["title"], about["note"], about["licence"]) == ("novel", "novel", "적은 글", "CC BY")
    assert (about["vocab_size"], about["context_length"]) == (model.config.vocab_size, 32)
    assert header["tokenizer"] == json.loads(model.tokenizer.to_json())
    assert header["config"]["type"] == {"bert": "bert", "pairs": "encoder_decoder"}.get(kind.split()[0], "gpt")


def test_the_size_is_at_most_one_and_a_half_times_that_of_the_parameters() -> None:
    model = model_of(n_layer=2, n_embd=256, n_head=4)
    for parameter in model.parameters():  # some of an untrained model are zero, which takes less
        torch.nn.init.normal_(parameter)
    made = ModelPage(model, "novel")
    assert 1.2 < len(made.html) / model.parameter_count() < 1.4  # without the program of the page


# --- what is not in the file ---


def test_nothing_else_leaves_the_run_folder(tmp_path: Path) -> None:
    """No text, no sample, no figure and no path of a run folder is in its page."""
    folder = tmp_path / "secret-place" / "novel"
    folder.parent.mkdir()
    save(model_of(), folder)
    config = json.loads((folder / "config.json").read_text())
    config["metrics"] = {"nats_per_char": 1.234567, "step": 4321}
    config["data"] = {"texts": ["my-diary.txt"], "characters": "바람이"}
    config["training"] = {"learning_rate": 0.00765}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "samples.txt").write_text("나는 비밀을 썼다")
    (folder / "metrics.jsonl").write_text('{"loss": 9.87654}')
    made = ModelPage(load(folder), "novel")
    header, _ = parts_of(made)
    plain = json.dumps({**header, "parameters": []}, ensure_ascii=False) + re.sub(
        r'(?s)<script type="text/plain" id="jumok-parameters">.*?</script>', "", made.html
    )
    for word in ("secret-place", "my-diary", "1.234567", "4321", "0.00765", "비밀", "9.87654", "metrics"):
        assert word not in plain, word
    assert TEXT.strip() not in plain
    assert set(header) == {
        "format", "version", "language", "prompt", "about", "config", "tokenizer", "parameters", "bytes", "sha256",
        "crc32",
    }  # fmt: skip
    assert set(header["config"]) == {"type", "start", *to_dict(load(folder).config)}


def test_hostile_texts_stay_text() -> None:
    model = model_of(labels=(HOSTILE, "예"))
    made = ModelPage(model, HOSTILE, title=HOSTILE, note=HOSTILE, licence=HOSTILE)
    found = Elements(made.html)
    opened = [tag for tag, _, _ in found.found if not tag.startswith("/")]
    assert " ".join(opened) == "html head meta meta title style body script script script script"
    header = json.loads(found.only("script", id="jumok-model"))
    assert header["about"]["note"] == header["about"]["licence"] == header["about"]["title"] == HOSTILE
    assert header["about"]["labels"] == [HOSTILE, "예"]
    assert "\u202e" not in made.html
    assert made.html.count("// view/assets/model/worker.js") == 1  # what looks like a marker in a text is none


def test_the_policy_allows_the_script_of_the_page_only() -> None:
    found = Elements(ModelPage(model_of(), "novel").html)
    code = next(text for tag, has, text in found.found if tag == "script" and not has)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    rules = found.rules
    assert rules["default-src"] == rules["connect-src"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}' 'wasm-unsafe-eval'"
    assert rules["worker-src"] == "blob:"
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", rules["style-src"])
    assert "unsafe-inline" not in " ".join(rules.values())


# --- which models are refused ---


def test_a_model_without_a_tokenizer() -> None:
    model = model_of()
    model.tokenizer = None
    with pytest.raises(TokenizerError, match="no tokenizer"):
        ModelPage(model, "novel")


def test_a_tokenizer_that_a_page_cannot_read() -> None:
    model = model_of()
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "비": 1}, unk_token="[UNK]"))
    model.tokenizer = Tokenizer.from_json(words.to_str())
    with pytest.raises(ViewError, match=r"because of its part WordPiece.*`jumok serve`"):
        ModelPage(model, "novel")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite(number: float) -> None:
    model: Model = model_of()
    with torch.no_grad():
        next(model.parameters())[0, 0] = number
    with pytest.raises(JumokError, match="not finite"):
        ModelPage(model, "novel")


@pytest.mark.parametrize(
    ("rows", "exact", "message"),
    [
        (90_000, False, r"about 123 MB.* is 100 MB\. Share the run folder.*`jumok serve`"),
        (60_000, True, r"about 164 MB.*In 8 bits it would have 82 MB\. Share"),
        (90_000, True, r"about 246 MB.* is 100 MB\. Share"),
    ],
)
def test_a_model_that_is_too_large(rows: int, exact: bool, message: str) -> None:
    """The message has the sizes, and says what to do. The matrix is one number that looks like many."""
    model = model_of()
    model.token_embedding.weight = torch.nn.Parameter(torch.zeros(1, 1).expand(rows, 1024), requires_grad=False)
    with pytest.raises(ViewError, match=message):
        ModelPage(model, "novel", exact=exact)


# --- saving ---


def test_saving_and_showing(tmp_path: Path) -> None:
    made = ModelPage(model_of(), "novel", title="나의 모델")
    path = made.save(tmp_path / "novel.html")
    assert path.read_text(encoding="utf-8") == made.html
    assert "<title>나의 모델</title>" in made.html
    assert re.fullmatch(r"ModelPage\('나의 모델', 0\.\d MB\): \.show\(\) opens .*", repr(made))
    assert 'srcdoc="<!doctype html>' in made._repr_html_()
