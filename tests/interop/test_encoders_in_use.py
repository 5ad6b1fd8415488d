"""`jumok evaluate`, `view` and `generate` with folders of RoBERTa and ELECTRA, as KLUE RoBERTa and KoELECTRA are.

Only their logits had tests, and no command had been given such a folder.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from conftest import Jumok
from jumok.config import BERTConfig, from_dict
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.tokenizers import Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

pytestmark = pytest.mark.slow

TEXT = "오늘은 날씨가 좋아서 친구와 공원에 갔다.\n" * 4
WORDS = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]


def tokenizer() -> Tokenizer:
    """A WordPiece tokenizer with the syllables of the text."""
    letters = sorted(set(TEXT) - {" ", "\n"})
    vocab = [*WORDS, *letters, *(f"##{letter}" for letter in letters)]
    pipeline = HFTokenizer(models.WordPiece({word: i for i, word in enumerate(vocab)}, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    pipeline.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 0))
    pipeline.add_special_tokens(WORDS)
    return Tokenizer(pipeline)


def folder(family: str, **settings: object) -> None:
    """A random model of `transformers` in the folder "model", and a text beside it."""
    words = tokenizer()
    torch.manual_seed(0)
    sizes = {"vocab_size": words.vocab_size, "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 32, "pad_id": 1}
    width = {"embedding_width": 8} if family == "electra" else {}
    model = build(from_dict(BERTConfig, {**sizes, **width, "family": family, **settings}))
    model.tokenizer = words
    to_hf(model, "model")


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_a_masked_language_model(family: str, jumok: Jumok, own_folder: Path) -> None:
    folder(family, head="mlm")
    (own_folder / "글.txt").write_text(TEXT, encoding="utf-8")
    found = jumok("evaluate", "model", "글.txt", "--json")
    assert found.code == 0, found.err
    assert 0 < found.json["nats_per_hidden_token"] < 10
    answers = jumok("generate", "model", "오늘은 [MASK]씨가", "--json")
    assert answers.code == 0, answers.err
    page = jumok("view", "model", "오늘은 날씨가 좋아서", "--out", "v.html")
    assert page.code == 0, page.err
    assert "##늘" in (own_folder / "v.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", ["roberta", "electra"])
def test_a_classifier(family: str, jumok: Jumok, own_folder: Path) -> None:
    folder(family, head="classify", labels=("나쁨", "좋음"), pooling="first")
    (own_folder / "표.tsv").write_text("text\tlabel\n오늘은 좋아서\t좋음\n날씨가\t나쁨\n", encoding="utf-8")
    found = jumok("evaluate", "model", "표.tsv", "--json")
    assert found.code == 0, found.err
    assert found.json["accuracy"] in (0, 0.5, 1)
    said = jumok("predict", "model", "오늘은 좋아서", "--json")
    assert said.code == 0, said.err
    assert re.search("나쁨|좋음", json.dumps(said.json, ensure_ascii=False))
    page = jumok("view", "model", "오늘은 좋아서", "--out", "v.html")
    assert page.code == 0, page.err


def test_an_encoder_without_a_head_is_refused(jumok: Jumok, own_folder: Path) -> None:
    folder("electra", head="none")
    (own_folder / "글.txt").write_text(TEXT, encoding="utf-8")
    end = jumok("evaluate", "model", "글.txt")
    assert end.code != 0
    assert "Traceback" not in end.err
    assert jumok("view", "model", "오늘은 날씨가").code == 0
