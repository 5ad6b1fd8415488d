"""`jumok evaluate`, `view`, `generate` and `predict` with folders of RoBERTa and ELECTRA, as KLUE and KoELECTRA."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import Jumok
from foreign_tokenizers import word_piece
from jumok.config import BERTConfig, from_dict
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.tokenizers import Tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n" * 4
FAMILIES = pytest.mark.parametrize("family", ["roberta", "electra"])


def folder(family: str, **settings: object) -> None:
    """A random model of `transformers` in the folder "model"."""
    words = Tokenizer(word_piece())
    torch.manual_seed(0)
    sizes = {"vocab_size": words.vocab_size, "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "pad_id": 0}
    width = {"embedding_width": 8} if family == "electra" else {}
    model = build(from_dict(BERTConfig, {**sizes, **width, "family": family, **settings}))
    model.tokenizer = words
    to_hf(model, "model")


@FAMILIES
def test_a_masked_language_model(family: str, jumok: Jumok, own_folder: Path) -> None:
    folder(family, head="mlm")
    (own_folder / "글.txt").write_text(TEXT, encoding="utf-8")
    found = jumok("evaluate", "model", "글.txt", "--json")
    assert found.code == 0, found.err
    assert 0 < found.json["nats_per_hidden_token"] < 10
    for command in (("generate", "model", "나는 [MASK]교에"), ("view", "model", "나는 학교에", "--out", "v.html")):
        done = jumok(*command)
        assert done.code == 0, done.err


@FAMILIES
def test_a_classifier(family: str, jumok: Jumok, own_folder: Path) -> None:
    folder(family, head="classify", labels=("나쁨", "좋음"), pooling="first")
    (own_folder / "표.tsv").write_text("text\tlabel\n나는 학교에\t좋음\n갔다\t나쁨\n", encoding="utf-8")
    assert jumok("evaluate", "model", "표.tsv", "--json").json["accuracy"] in (0, 0.5, 1)
    for command in (("predict", "model", "나는 학교에"), ("view", "model", "나는 학교에", "--out", "v.html")):
        done = jumok(*command)
        assert done.code == 0, done.err


def test_an_encoder_without_a_head_is_refused(jumok: Jumok, own_folder: Path) -> None:
    folder("electra", head="none")
    (own_folder / "글.txt").write_text(TEXT, encoding="utf-8")
    end = jumok("evaluate", "model", "글.txt")
    assert end.code != 0
    assert "Traceback" not in end.err
    assert jumok("view", "model", "나는 학교에").code == 0
