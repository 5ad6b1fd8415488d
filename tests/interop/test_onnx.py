"""Export to ONNX, and what onnxruntime computes with it. Skipped without the packages onnx and onnxruntime."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from conftest import Jumok
from jumok.config import GPTConfig, GPTVariantConfig, ModelConfig
from jumok.errors import JumokError
from jumok.inference.generate import generate
from jumok.interop.onnx import to_onnx
from jumok.models import Model, build
from jumok.models.gpt import GPT
from jumok.runs.load import save
from jumok.tokenizers import train_tokenizer
from tokenizers import Tokenizer as HFTokenizer

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
SIZES = {"vocab_size": 90, "context_length": 48, "n_layer": 2, "n_head": 4, "n_embd": 32}
SHAPES: dict[str, GPTConfig] = {
    "modern, grouped": GPTConfig(**SIZES, n_kv_head=2, head_dim=6),
    "classic": GPTConfig(**SIZES, family="classic"),
    "a window in one layer": GPTVariantConfig(
        **SIZES, architecture="Mistral", sliding_window=7, sliding_layers=(1,), rotary_dim=4
    ),
}


def tiny(config: ModelConfig, seed: int = 0) -> Any:
    """A small model with random parameters."""
    torch.manual_seed(seed)
    model = build(config).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def with_tokenizer(kind: str = "char", **changes: Any) -> GPT:
    tokenizer = train_tokenizer(TEXT, kind)
    model = tiny(GPTConfig(**{**SIZES, "vocab_size": tokenizer.vocab_size, **changes}), seed=3)
    with torch.no_grad():
        for i, piece in enumerate(tokenizer.bytes_of(range(tokenizer.vocab_size)) or ()):
            model.head.weight[i] *= 4.0 * ("\ufffd" not in piece.decode(errors="replace"))  # sharp, and text only
    model.tokenizer = tokenizer
    return model


class Session:
    """An export in onnxruntime."""

    def __init__(self, model: Model, path: Path) -> None:
        self.written = to_onnx(model, path)
        self._session = ort.InferenceSession(path)
        self.inputs = {one.name: one.shape for one in self._session.get_inputs()}
        self.outputs = {one.name: one.shape for one in self._session.get_outputs()}
        self.facts = self._session.get_modelmeta().custom_metadata_map

    def __call__(self, **inputs: Tensor | NDArray[Any]) -> dict[str, NDArray[np.float32]]:
        given = {name: np.asarray(one) for name, one in inputs.items()}
        return dict(zip(self.outputs, self._session.run(None, given), strict=True))

    def empty(self, batch: int) -> dict[str, NDArray[np.float32]]:
        """The cache of texts that have not begun."""
        past = {name: shape for name, shape in self.inputs.items() if name.startswith("past")}
        return {name: np.zeros((batch, g, 0, d), np.float32) for name, (_, g, _, d) in past.items()}

    def cache(self, outputs: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
        return {name.replace("present", "past_key_values"): one for name, one in outputs.items() if name != "logits"}


def some_ids(batch: int, length: int, most: int = SIZES["vocab_size"]) -> Tensor:
    return torch.randint(most, (batch, length), generator=torch.Generator().manual_seed(length))


def close(found: NDArray[np.float32], wanted: Tensor) -> None:
    np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=1e-4)


# --- GPT --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_logits_of_single_steps_are_those_of_whole_texts(shape: str, tmp_path: Path) -> None:
    model = tiny(SHAPES[shape])
    session = Session(model, tmp_path / "m.onnx")
    for batch, length in ((1, 1), (1, 2), (3, 17), (2, 48)):
        ids = some_ids(batch, length)
        whole = session(input_ids=ids, **session.empty(batch))
        close(whole["logits"], model(ids))
        assert whole["present.1.key"].shape[:3] == (batch, model.config.n_kv_head, length)
    ids = some_ids(2, 20)
    cache, found = session.empty(2), []
    for part in (ids[:, :5], ids[:, 5:9], *ids[:, 9:].split(1, dim=1)):
        step = session(input_ids=part, **cache)
        cache = session.cache(step)
        found.append(step["logits"])
    close(np.concatenate(found, axis=1), model(ids))


def test_the_file_describes_itself(tmp_path: Path) -> None:
    model = with_tokenizer()
    session = Session(model, tmp_path / "m.onnx")
    made = onnx.load(tmp_path / "m.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert session.inputs["input_ids"] == ["batch", "tokens"]
    assert session.inputs["past_key_values.0.key"] == ["batch", 4, "past", 8]
    assert session.outputs["present.1.value"] == ["batch", 4, "past + tokens", 8]
    assert session.facts["kind"] == "gpt"
    assert session.facts["context_length"] == "48"
    assert {one.name for one in made.graph.initializer} >= {"blocks.0.attention.q_proj.weight", "norm.weight"}
    shared = [one for one in made.graph.initializer if list(one.dims) == [model.config.vocab_size, 32]]
    assert len(shared) == 1  # the output layer is the embedding
    assert session.written == (tmp_path / "m.onnx", tmp_path / "m.tokenizer.json")


def test_the_text_is_the_same_with_the_tokenizer_beside_the_file(tmp_path: Path) -> None:
    model = with_tokenizer()
    session = Session(model, tmp_path / "m.onnx")
    tokenizer = HFTokenizer.from_file(str(tmp_path / "m.tokenizer.json"))
    (ours,) = generate(model, "나는 ", tokens=30, temperature=0)
    ids, found, cache = tokenizer.encode("나는 ").ids, [], session.empty(1)
    for _ in range(30):
        step = session(input_ids=np.array([ids]), **cache)
        ids, cache = [int(step["logits"][0, -1].argmax())], session.cache(step)
        found += ids
    assert found == list(ours.ids)
    assert tokenizer.decode(found) == ours.text


# --- files and errors -------------------------------------------------------------------------------------------------


def test_a_model_larger_than_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.interop.onnx.write.LARGEST", 1_000)
    with pytest.raises(JumokError, match="an ONNX file holds 2 GB"):
        to_onnx(tiny(SHAPES["classic"]), tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.interop.onnx.find_spec", lambda _: None)
    with pytest.raises(JumokError, match=re.escape("pip install 'jumok[onnx]'")):
        to_onnx(tiny(SHAPES["classic"]), tmp_path / "m.onnx")


@pytest.mark.slow
def test_the_command_replaces_only_its_own_files(tmp_path: Path, jumok: Jumok) -> None:
    run, path = tmp_path / "소설", tmp_path / "novel.onnx"
    save(with_tokenizer(), run)
    convert = ["convert", run, path, "--to", "onnx"]
    for _ in range(2):
        done = jumok(*convert, "--json")
        assert done.code == 0, done.err
    assert "novel.tokenizer.json" in done.err
    assert json.loads(done.out.splitlines()[-1]) == {"source": str(run), "target": str(path), "to": "onnx"}
    path.unlink()
    assert jumok(*convert).code == 2  # the tokenizer may be somebody else's
    path.write_bytes(b"somebody else's")
    assert jumok(*convert).code == 2
    assert jumok(*convert, "--force").code == 0
    assert jumok(*convert, "--licence", "MIT").code == 2
    assert jumok("convert", run, tmp_path, "--to", "onnx").code == 2
