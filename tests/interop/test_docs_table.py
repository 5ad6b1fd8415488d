"""The table of docs/interop.md: its models are those of `jumok.config.features`, its tokenizers are tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from foreign_tokenizers import llama, word_piece
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig, ModelConfig, RungConfig
from jumok.config.features import LLAMA_CPP, ONNX, PAGE, TRANSFORMERS, implements
from jumok.errors import JumokError
from jumok.interop.gguf import to_gguf
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.onnx import to_onnx
from jumok.models import Model, build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.model_page import ModelPage
from tokenizers import Tokenizer as HFTokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")

pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
COLUMNS = ("hf", "gguf", "onnx", "page", "in")
WORDS = {"yes": True, "no": False, "예": True, "아니요": False}


def cells(page: str) -> dict[str, list[bool]]:
    """The cells of the table, by the first cell of each row."""
    _, _, table = (DOCS / page).read_text(encoding="utf-8").partition("| | hf | gguf | onnx | page | in |\n")
    rows = [line.strip("|").split("|") for line in table.partition("\n\n")[0].splitlines()[1:]]
    return {name.strip(): [WORDS[cell.strip()] for cell in row] for name, *row in rows}


TABLE = cells("interop.md")


# --- one model for each row -------------------------------------------------------------------------------------------


def ours(kind: str = "char") -> Tokenizer:
    return train_tokenizer(TEXT, kind, special_tokens=[*SPECIAL_TOKENS, "[BOS]", "[EOS]"])


SIZES: dict[str, Any] = {"context_length": 24, "n_layer": 2, "n_head": 2, "n_embd": 16}
NEOX: dict[str, Any] = {
    "norm": "layer", "gated": False, "activation": "gelu", "qkv_bias": True, "out_bias": True, "mlp_bias": True,
    "parallel": True, "rotary_dim": 4, "tie_embeddings": False,
}  # fmt: skip
LABELS: dict[str, Any] = {"labels": ("no", "yes"), "pad_id": 0}
IDS: dict[str, Any] = {"pad_id": 0, "bos_id": 4, "eos_id": 5, "decoder_start_id": 4}
ROWS: dict[str, tuple[type[ModelConfig], dict[str, Any], Callable[[], Tokenizer]]] = {
    "GPT, modern (Qwen3)": (GPTConfig, {}, ours),
    "GPT, classic (GPT-2)": (GPTConfig, {"family": "classic"}, ours),
    "Llama": (GPTVariantConfig, {}, ours),
    "Mistral": (GPTVariantConfig, {"architecture": "Mistral"}, ours),
    "Qwen2": (GPTVariantConfig, {"architecture": "Qwen2", "qkv_bias": True}, ours),
    "GPT-NeoX": (GPTVariantConfig, {"architecture": "GPTNeoX", **NEOX}, ours),
    "GPT classifier, pooling last": (GPTConfig, {**LABELS, "pooling": "last"}, ours),
    "GPT classifier, pooling mean": (GPTConfig, {**LABELS, "pooling": "mean"}, ours),
    "BERT": (BERTConfig, {"pad_id": 0}, ours),
    "BERT classifier": (BERTConfig, {**LABELS, "head": "classify"}, ours),
    "RoBERTa": (BERTConfig, {"family": "roberta", "pad_id": 0}, ours),
    "ELECTRA": (BERTConfig, {"family": "electra", "embedding_width": 8, "pad_id": 0}, ours),
    "encoder–decoder, classic (BART)": (EncoderDecoderConfig, IDS, ours),
    "encoder–decoder, original (Marian)": (EncoderDecoderConfig, {**IDS, "family": "original"}, ours),
    "model of the ladder": (RungConfig, {}, ours),
    "tokenizer `char`": (GPTConfig, {}, ours),
    "tokenizer `jamo`": (GPTConfig, {}, lambda: ours("jamo")),
    "tokenizer `bpe`": (GPTConfig, {}, lambda: ours("bpe")),
    "tokenizer WordPiece": (GPTConfig, {}, lambda: Tokenizer(word_piece())),
    "tokenizer of SentencePiece (BPE)": (GPTConfig, {}, lambda: Tokenizer(llama())),
}


# --- the cells --------------------------------------------------------------------------------------------------------

BACKENDS = {"hf": TRANSFORMERS, "gguf": LLAMA_CPP, "onnx": ONNX, "page": PAGE, "in": TRANSFORMERS}
MODELS = [row for row in ROWS if not row.startswith("tokenizer")]


def test_the_table_has_the_rows_that_are_tested_in_both_languages() -> None:
    assert list(TABLE) == list(ROWS)
    assert tuple(BACKENDS) == COLUMNS
    assert list(cells("ko/interop.md").values()) == list(TABLE.values())


@pytest.mark.parametrize("row", MODELS)
def test_the_cells_of_models_are_those_of_the_table_of_features(row: str) -> None:
    kind, changes, _ = ROWS[row]
    config = kind(**{**SIZES, "vocab_size": 90, **changes})
    assert TABLE[row] == [implements(config, backend) for backend in BACKENDS.values()]


def into_hf(model: Model, folder: Path) -> None:
    to_hf(model, folder / "hf")
    read = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    assert read("나는", add_special_tokens=False)["input_ids"] == model.tokenizer.encode("나는").tolist()


def into_gguf(model: Model, folder: Path) -> None:
    assert to_gguf(model, folder / "m.gguf").path.is_file()


def into_onnx(model: Model, folder: Path) -> None:
    _, tokenizer = to_onnx(model, folder / "m.onnx").paths
    assert HFTokenizer.from_file(str(tokenizer)).get_vocab_size() == model.tokenizer.vocab_size


def into_page(model: Model, folder: Path) -> None:
    ModelPage(model, "m").save(folder / "m.html")


def back(model: Model, folder: Path) -> None:
    """A folder that `transformers` itself has saved is read."""
    to_hf(model, folder / "hf")
    transformers.AutoModelForCausalLM.from_pretrained(folder / "hf").save_pretrained(folder / "theirs")
    transformers.AutoTokenizer.from_pretrained(folder / "hf").save_pretrained(folder / "theirs")
    read = from_hf(folder / "theirs")
    assert read.tokenizer.encode("나는 갔다").tolist() == model.tokenizer.encode("나는 갔다").tolist()


FORMATS: dict[str, Callable[[Model, Path], None]] = {
    "hf": into_hf, "gguf": into_gguf, "onnx": into_onnx, "page": into_page, "in": back,
}  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("row", [row for row in ROWS if row not in MODELS])
def test_each_cell_of_a_tokenizer_is_true(row: str, column: str, tmp_path: Path) -> None:
    _, _, tokenizer_of = ROWS[row]
    tokenizer = tokenizer_of()
    torch.manual_seed(0)
    model = build(GPTConfig(**SIZES, vocab_size=tokenizer.vocab_size)).eval()
    model.tokenizer = tokenizer
    if TABLE[row][COLUMNS.index(column)]:
        FORMATS[column](model, tmp_path)
    else:
        with pytest.raises(JumokError, match=re.compile(r"\w+ \w+ \w+")):
            FORMATS[column](model, tmp_path)
        assert not list(tmp_path.iterdir())
