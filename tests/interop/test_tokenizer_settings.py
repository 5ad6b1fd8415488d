"""Files beside a tokenizer.json: ids and texts are those of AutoTokenizer, for a grid of classes and settings."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreign_tokenizers import byte_level, llama, neox, roberta, unigram, word_piece
from jumok.config import BERTConfig
from jumok.errors import RunError
from jumok.interop.huggingface import to_hf
from jumok.interop.huggingface.tokenizer import read_tokenizer
from jumok.models import build
from jumok.tokenizers import Tokenizer
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")
pytestmark = pytest.mark.slow

TEXTS = [
    "나는 학교에 갔다.", " 나는  밥을\n먹었다 ! ", "Hello WORLD, it's Café", "漢字東京 학교", "값 , 닭 ? 3.14% .",
    "나는 <mask> 갔다", "<|im_start|>user\n안녕<|im_end|>", "가나 <new> 다라<sep2>마바", "가 ' 나 do n't", "[MASK] 뷁",
]  # fmt: skip
ROOM = 700  # ids of the model, more than any tokenizer here has
CONFIG = BERTConfig(vocab_size=ROOM, n_embd=16, n_head=4)
BASES: dict[str, tuple[Callable[[], HFTokenizer], str, str | None]] = {  # with the model_type and the class
    "BERT": (word_piece, "bert", "BertTokenizer"),
    "RoBERTa with the class of BERT": (word_piece, "roberta", "BertTokenizer"),
    "WordPiece": (word_piece, "bert", "PreTrainedTokenizerFast"),
    "GPT-2": (lambda: byte_level(False), "gpt2", "GPT2TokenizerFast"),
    "byte-level": (lambda: byte_level(False), "llama", "PreTrainedTokenizerFast"),
    "Qwen2": (lambda: byte_level(False, split=True), "qwen2", "Qwen2Tokenizer"),
    "GPT-NeoX": (lambda: neox(False), "gpt_neox", "GPTNeoXTokenizerFast"),
    "RoBERTa": (lambda: roberta(False), "roberta", "RobertaTokenizer"),
    "XLM-RoBERTa": (unigram, "xlm-roberta", "XLMRobertaTokenizer"),
    "Unigram": (unigram, "xlm-roberta", "PreTrainedTokenizerFast"),
    "Llama 3": (lambda: byte_level(False, split=True), "llama", "LlamaTokenizerFast"),
    "Llama": (llama, "llama", "LlamaTokenizerFast"),
}  # fmt: skip
LEFT = {"content": "<new>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}
PLAIN = LEFT | {"content": "<sep2>", "lstrip": False, "normalized": True, "special": False}


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def folder_of(base: str, folder: Path, settings: dict[str, Any], pipeline: HFTokenizer | None = None) -> HFTokenizer:
    """Write a folder without parameters; its pipeline."""
    made, model_type, name = BASES[base]
    pipeline = pipeline or made()
    pipeline.save(str(folder / "tokenizer.json"))
    write(folder, "config.json", {"model_type": model_type})
    write(folder, "tokenizer_config.json", settings | ({"tokenizer_class": name} if name else {}))
    return pipeline


def assert_as_transformers(folder: Path, texts: list[str] = TEXTS) -> Tokenizer:
    tokenizer, stock = read_tokenizer(folder, CONFIG), transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer is not None
    for text in texts:
        wanted = stock(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.encode(text).tolist() == wanted, text
        assert tokenizer.decode(wanted) == stock.decode(wanted), text
    return tokenizer


@pytest.mark.parametrize("base", ["BERT", "GPT-2", "RoBERTa", "XLM-RoBERTa", "Llama 3", "Llama"])
@pytest.mark.parametrize("form", ["decoder", "additional", "extra", "map", "older", "role"])
def test_tokens_beside_the_file_are_those_of_transformers(base: str, form: str, tmp_path: Path):
    """<|im_end|> was only in added_tokens_decoder: the model never wrote it as one token, and its texts did not end."""
    pipeline = BASES[base][0]()
    size = pipeline.get_vocab_size()
    chat = ["<|im_start|>", "<|im_end|>"]
    settings: dict[str, Any] = {}
    if form == "decoder":
        kept = {i: token.__getstate__() for i, token in pipeline.get_added_tokens_decoder().items()}
        new = [LEFT, PLAIN, *(LEFT | {"content": token, "lstrip": False} for token in chat)]
        settings["added_tokens_decoder"] = {str(i): token for i, token in kept.items()} | {
            str(size + i): token for i, token in enumerate(new)
        }
    if form in ("additional", "extra"):
        settings[f"{form}_special_tokens"] = chat
        if form == "additional":
            settings["eos_token"] = "<|im_end|>"
    if form == "older":
        write(tmp_path, "added_tokens.json", {token: size + i for i, token in enumerate(["<sep2>", *chat])})
        settings["additional_special_tokens"] = chat
    if form == "map":
        write(tmp_path, "special_tokens_map.json", {"pad_token": "<new>", "mask_token": LEFT | {"content": "<sep2>"}})
    if form == "role":
        settings |= {"pad_token": "<new>", "start_token": "<|im_start|>", "add_bos_token": True, "add_eos_token": True}
    folder_of(base, tmp_path, settings, pipeline)
    tokenizer = assert_as_transformers(tmp_path)
    if form in ("decoder", "additional", "extra", "older"):
        assert set(chat) <= tokenizer.special_tokens.keys()
        assert len(tokenizer.encode("<|im_end|>")) == 1


@pytest.mark.parametrize("base", ["BERT", "RoBERTa with the class of BERT", "WordPiece"])
@pytest.mark.parametrize(
    ("lower", "accents", "chinese"),
    [(None, None, None), (False, None, None), (True, False, True), (False, True, False), (None, False, False)],
)
def test_letters_are_changed_as_by_transformers(
    base: str, lower: bool | None, accents: bool | None, chinese: bool | None, tmp_path: Path
):
    """The file says one thing, do_lower_case another; the class of BERT follows the setting, a plain one the file."""
    given = {"do_lower_case": lower, "strip_accents": accents, "tokenize_chinese_chars": chinese}
    folder_of(base, tmp_path, {name: value for name, value in given.items() if value is not None})
    assert_as_transformers(tmp_path)


@pytest.mark.parametrize("base", ["GPT-2", "GPT-NeoX", "RoBERTa", "Qwen2"])
@pytest.mark.parametrize(("file", "setting"), [*itertools.product((True, False), (True, False, None))])
def test_the_space_before_a_text_is_that_of_transformers(base: str, file: bool, setting: bool | None, tmp_path: Path):
    settings = {} if setting is None else {"add_prefix_space": setting}
    makers = {"RoBERTa": roberta, "GPT-NeoX": neox}
    made = makers.get(base, lambda prefix: byte_level(prefix, split=base.startswith("Qwen")))
    folder_of(base, tmp_path, settings, made(file))
    assert_as_transformers(tmp_path)


@pytest.mark.parametrize(
    ("base", "pipeline", "setting"),
    [
        ("byte-level", lambda: byte_level(False), True),
        ("byte-level", lambda: byte_level(True), False),
        ("XLM-RoBERTa", unigram, False),
        ("Llama", llama, False),
    ],
)
def test_a_space_on_which_versions_differ_is_refused(
    base: str, pipeline: Callable[[], HFTokenizer], setting: bool, tmp_path: Path
):
    folder_of(base, tmp_path, {"add_prefix_space": setting}, pipeline())
    with pytest.raises(RunError, match=r"add_prefix_space (true|false), tokenizer\.json says"):
        read_tokenizer(tmp_path, CONFIG)
    folder_of(base, tmp_path, {"add_prefix_space": not setting}, pipeline())
    assert_as_transformers(tmp_path)


def test_a_pipeline_that_is_not_the_usual_one_of_its_class_is_kept(tmp_path: Path):
    """transformers 5 puts the pre-tokenizer of GPT-2 in its place; version 4, and what was trained with it, do not."""
    pipeline = byte_level(False)
    syllables = pre_tokenizers.Split(Regex("[가-힣]"), "isolated")
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([syllables, pre_tokenizers.ByteLevel(False, use_regex=False)])
    folder_of("GPT-2", tmp_path, {}, pipeline)
    tokenizer, stock = read_tokenizer(tmp_path, CONFIG), transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer is not None
    ids = tokenizer.encode(TEXTS[0]).tolist()
    assert ids == pipeline.encode(TEXTS[0]).ids
    assert ids != stock(TEXTS[0])["input_ids"]  # if they are equal one day, the docs need not mention it


@pytest.mark.parametrize("base", BASES)
def test_decoded_texts_are_cleaned_as_by_transformers(base: str, tmp_path: Path):
    folder_of(base, tmp_path, {"clean_up_tokenization_spaces": True})
    assert_as_transformers(tmp_path)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False, "clean_up_tokenization_spaces": True},
        {"strip_accents": True, "tokenize_chinese_chars": False, "additional_special_tokens": ["<|im_end|>"]},
    ],
)
@pytest.mark.parametrize("listed", [True, False])
def test_a_list_of_pieces_is_read_as_by_transformers(settings: dict[str, Any], listed: bool, tmp_path: Path):
    pipeline = folder_of("BERT", tmp_path, {})
    size = pipeline.get_vocab_size()
    if listed:
        settings = settings | {"added_tokens_decoder": {str(size): LEFT, str(size + 1): PLAIN}}
    folder_of("BERT", tmp_path, settings, pipeline)
    (tmp_path / "tokenizer.json").unlink()
    vocab = pipeline.get_vocab()
    (tmp_path / "vocab.txt").write_text("\n".join(sorted(vocab, key=lambda piece: vocab[piece])), encoding="utf-8")
    assert_as_transformers(tmp_path)


def test_tokens_without_a_decoder_are_cleaned_too(tmp_path: Path):
    pipeline = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(("가", "##나", ".", "[UNK]"))}, "[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder_of("WordPiece", tmp_path, {"clean_up_tokenization_spaces": True}, pipeline)
    assert_as_transformers(tmp_path, ["가 ##나 . 가"])


def test_tokens_that_the_model_has_no_ids_for_are_left_out(tmp_path: Path):
    """transformers adds them, and the model then fails at such a token. They are read as ordinary text."""
    pipeline = folder_of("GPT-2", tmp_path, {})
    size = pipeline.get_vocab_size()
    settings = {"added_tokens_decoder": {str(size): LEFT, str(size + 1): PLAIN}, "pad_token": "<pad>"}
    folder_of("GPT-2", tmp_path, settings, pipeline)
    tokenizer = read_tokenizer(tmp_path, BERTConfig(vocab_size=size + 1, n_embd=16, n_head=4))
    assert tokenizer is not None
    assert tokenizer.vocab_size == size + 1
    assert "<new>" in tokenizer.special_tokens


def test_an_id_that_no_token_can_get_is_refused(tmp_path: Path):
    pipeline = folder_of("GPT-2", tmp_path, {})
    number = pipeline.get_vocab_size() + 3
    folder_of("GPT-2", tmp_path, {"added_tokens_decoder": {str(number): LEFT}}, pipeline)
    with pytest.raises(RunError, match=f"<new> has the id {number} in tokenizer_config.json"):
        read_tokenizer(tmp_path, CONFIG)


def test_splitting_special_tokens_is_refused(tmp_path: Path):
    """transformers splits <mask> in a text then. tokenizer.json cannot say that."""
    folder_of("RoBERTa", tmp_path, {"split_special_tokens": True})
    with pytest.raises(RunError, match="split_special_tokens true"):
        read_tokenizer(tmp_path, CONFIG)


@pytest.mark.parametrize("base", ["BERT", "RoBERTa", "XLM-RoBERTa"])
def test_an_export_reads_as_the_folder_that_it_came_from(base: str, tmp_path: Path):
    pipeline = roberta(True) if base == "RoBERTa" else None
    settings: dict[str, Any] = {"add_prefix_space": True, "clean_up_tokenization_spaces": True}
    folder_of(base, tmp_path, settings | {"additional_special_tokens": ["<new>"]}, pipeline)
    model = build(CONFIG)
    model.tokenizer = assert_as_transformers(tmp_path)
    to_hf(model, tmp_path / "export")
    again = assert_as_transformers(tmp_path / "export")
    for text in TEXTS:
        ids = model.tokenizer.encode(text)
        assert again.encode(text).tolist() == ids.tolist()
        assert again.decode(ids) == model.tokenizer.decode(ids)


@pytest.mark.parametrize(
    "settings",
    [
        {"added_tokens_decoder": []},
        {"added_tokens_decoder": {"x": LEFT}},
        {"added_tokens_decoder": {"300": 5}},
        {"added_tokens_decoder": {"9" * 5000: LEFT}},
        {"added_tokens_decoder": {"300": LEFT | {"lstrip": "yes"}}},
        {"additional_special_tokens": ["<a>", 3]},
        {"do_lower_case": "yes"},
        {"clean_up_tokenization_spaces": 1},
    ],
)
def test_damaged_settings_are_refused(settings: dict[str, Any], tmp_path: Path):
    folder_of("BERT", tmp_path, settings)
    with pytest.raises(RunError, match="in the settings of the tokenizer is"):
        read_tokenizer(tmp_path, CONFIG)
