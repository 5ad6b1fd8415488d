"""The table of docs/interop.md, what goes in and out: each cell is executed with a small model."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig, ModelConfig, RungConfig
from jumok.config.huggingface import stock_class
from jumok.errors import JumokError
from jumok.interop.gguf import to_gguf
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.onnx import to_onnx
from jumok.models import Model, build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.model_page import ModelPage
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

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


def wordpiece() -> Tokenizer:
    pipeline = HFTokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    pipeline.train_from_iterator([TEXT], trainers.WordPieceTrainer(vocab_size=90, special_tokens=["[UNK]"]))
    return Tokenizer(pipeline)


def sentencepiece() -> Tokenizer:
    """As Llama 2: a space is U+2581, and other characters are bytes."""
    pieces = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "나", "는", "▁나", "▁나는"]
    merges = [("▁", "나"), ("▁나", "는")]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    pipeline = HFTokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    pipeline.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return Tokenizer(pipeline)


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
    "tokenizer WordPiece": (GPTConfig, {}, wordpiece),
    "tokenizer of SentencePiece (BPE)": (GPTConfig, {}, sentencepiece),
}


def model_of(row: str) -> Any:
    kind, changes, tokenizer_of = ROWS[row]
    tokenizer = tokenizer_of()
    torch.manual_seed(0)
    model = build(kind(**{**SIZES, "vocab_size": tokenizer.vocab_size, **changes})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.tokenizer = tokenizer
    return model


# --- one function for each column -------------------------------------------------------------------------------------


def stock_tokenizer(model: Model, folder: Path) -> Any:
    """AutoTokenizer of transformers 5 gives every Qwen2 the tokenizer of Qwen2, whatever the folder says."""
    qwen2 = stock_class(model.config).startswith("Qwen2")
    loader = transformers.PreTrainedTokenizerFast if qwen2 else transformers.AutoTokenizer
    return loader.from_pretrained(folder)


def into_hf(model: Model, folder: Path) -> None:
    to_hf(model, folder / "hf")
    kind = getattr(transformers, stock_class(model.config))
    _, info = kind.from_pretrained(folder / "hf", output_loading_info=True)
    assert not any(info.values())
    read = stock_tokenizer(model, folder / "hf")
    ids = model.tokenizer.encode("나는").tolist()
    assert read("나는", add_special_tokens=False)["input_ids"] == ids


def into_gguf(model: Model, folder: Path) -> None:
    found = to_gguf(model, folder / "m.gguf")
    assert len(gguf.GGUFReader(found.path).tensors) > 10


def into_onnx(model: Model, folder: Path) -> None:
    path, tokenizer = to_onnx(model, folder / "m.onnx").paths
    onnx.checker.check_model(onnx.load(path), full_check=True)
    assert HFTokenizer.from_file(str(tokenizer)).get_vocab_size() == model.tokenizer.vocab_size


def into_page(model: Model, folder: Path) -> None:
    ModelPage(model, "m").save(folder / "m.html")
    assert "jumok-model-page" in (folder / "m.html").read_text(encoding="utf-8")


def back(model: Model, folder: Path) -> None:
    """A folder that `transformers` itself has saved is read, and the parameters are the same bit by bit."""
    to_hf(model, folder / "hf")
    stock = getattr(transformers, stock_class(model.config)).from_pretrained(folder / "hf")
    stock.save_pretrained(folder / "theirs")
    stock_tokenizer(model, folder / "hf").save_pretrained(folder / "theirs")
    read = from_hf(folder / "theirs")
    assert type(read.config) is type(model.config)
    left_out = () if not model.config.__dict__.get("labels") else ("head.weight",)  # no output layer there
    for name, one in model.state_dict().items():
        assert name in left_out or torch.equal(one, read.state_dict()[name]), name
    assert read.tokenizer.encode("나는 갔다").tolist() == model.tokenizer.encode("나는 갔다").tolist()


FORMATS: dict[str, Callable[[Model, Path], None]] = {
    "hf": into_hf, "gguf": into_gguf, "onnx": into_onnx, "page": into_page, "in": back,
}  # fmt: skip


def test_the_table_has_the_rows_that_are_tested_in_both_languages() -> None:
    assert list(TABLE) == list(ROWS)
    assert tuple(FORMATS) == COLUMNS
    assert list(cells("ko/interop.md").values()) == list(TABLE.values())


# Stock classes take the longest; the other tests of interop load most of them, too.
@pytest.mark.parametrize(
    "column", [pytest.param(one, marks=[pytest.mark.long] if one in ("hf", "in") else []) for one in COLUMNS]
)
@pytest.mark.parametrize("row", ROWS)
def test_each_cell_is_true(row: str, column: str, tmp_path: Path) -> None:
    model = model_of(row)
    if TABLE[row][COLUMNS.index(column)]:
        FORMATS[column](model, tmp_path)
    else:
        with pytest.raises(JumokError, match=re.compile(r"\w+ \w+ \w+")):
            FORMATS[column](model, tmp_path)
        assert not list(tmp_path.iterdir())
