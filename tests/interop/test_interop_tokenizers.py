"""Tokenizers of Hugging Face folders in older forms: SentencePiece files, and vocab.json with merges.txt."""

from __future__ import annotations

import builtins
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from jumok.config import BERTConfig
from jumok.errors import RunError, TokenizerError
from jumok.interop.huggingface.tokenizer import read_tokenizer
from tokenizers import ByteLevelBPETokenizer

pytestmark = pytest.mark.slow

TEXT = ["나는 학교에 갔다.", "너는 밥을 먹었다.", "우리는 집에 갔다.", "hello world", "The quick brown fox, 3.14%"] * 20
SENTENCEPIECE: dict[str, dict[str, Any]] = {  # with the ids and the normalization of the published models
    "XLM-RoBERTa": {"vocab_size": 120},
    "T5": {"vocab_size": 120, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
    "Llama": {
        "vocab_size": 360, "model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
}  # fmt: skip
CONFIG = BERTConfig(vocab_size=600, n_embd=16, n_head=4, pad_id=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SentencePiece models of two kinds."""
    sentencepiece = pytest.importorskip("sentencepiece", reason="trains the files that are converted")
    pytest.importorskip("google.protobuf", reason="transformers reads files of SentencePiece with it")
    folder = tmp_path_factory.mktemp("trained")
    for kind, settings in SENTENCEPIECE.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT), model_prefix=str(folder / kind), hard_vocab_limit=False, minloglevel=2,
            num_threads=1, **settings,
        )  # fmt: skip
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def write(folder: Path, name: str, **settings: Any) -> None:
    (folder / name).write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("kind", "file", "model_type", "name", "offset"),
    [
        ("XLM-RoBERTa", "sentencepiece.bpe.model", "xlm-roberta", None, 1),
        ("T5", "spiece.model", "bert", "T5Tokenizer", 0),
        ("Llama", "tokenizer.model", "llama", "LlamaTokenizer", 0),
    ],
)
def test_sentencepiece_gives_the_ids_of_the_file(
    kind: str, file: str, model_type: str, name: str | None, offset: int, trained: Path, folder: Path
):
    """XLM-RoBERTa counts one id more, because it has the special tokens of fairseq in front."""
    from sentencepiece import SentencePieceProcessor

    shutil.copy(trained / f"{kind}.model", folder / file)
    write(folder, "config.json", model_type=model_type)
    if name:
        write(folder, "tokenizer_config.json", tokenizer_class=name)
    tokenizer = read_tokenizer(folder, CONFIG)
    assert tokenizer is not None
    processor = SentencePieceProcessor(model_file=str(folder / file))
    for text in ("나는 밥을 먹었다.", "hello 학교", "우리는  집에", "3.14%"):
        assert tokenizer.encode(text).tolist() == [i + offset for i in processor.encode(text)]
    assert tokenizer.vocab_size <= CONFIG.vocab_size
    if model_type == "xlm-roberta":
        assert tokenizer.around == ((0,), (2,))


@pytest.mark.parametrize(
    ("file", "model_type", "name", "message"),
    [
        ("spiece.model", "bert", None, "transformers reads spiece.model with BertTokenizer, which splits the text"),
        ("spiece.model", "bert", "XLNetTokenizer", "with XLNetTokenizer, which splits the text"),
        ("spiece.model", "bert", "T5Tokenizer", "with T5Tokenizer, which splits the text"),
        ("tokenizer.model", "gpt2", None, "with GPT2Tokenizer, which splits"),
        ("spiece.model", "bert", "KoBERTTokenizer", "spiece.model"),
    ],
)
def test_a_wrong_class_is_refused_instead_of_giving_other_ids(
    file: str, model_type: str, name: str | None, message: str, trained: Path, folder: Path
):
    """transformers reads a file of SentencePiece with the class of the model, and returns only unknown tokens."""
    shutil.copy(trained / "XLM-RoBERTa.model", folder / file)
    write(folder, "config.json", model_type=model_type)
    if name:
        write(folder, "tokenizer_config.json", tokenizer_class=name)
    with pytest.raises(TokenizerError, match=message):
        read_tokenizer(folder, CONFIG)


@pytest.mark.parametrize("model_type", ["gpt2", "roberta"])
def test_byte_level_bpe_in_two_files_keeps_the_text(model_type: str, folder: Path):
    """GPT-2 adds <|endoftext|> with an id that the model does not have, which was refused as another model's."""
    pytest.importorskip("transformers")
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(TEXT, vocab_size=300, special_tokens=special, show_progress=False)
    bpe.save_model(str(folder))
    write(folder, "config.json", model_type=model_type)
    size = bpe.get_vocab_size()
    tokenizer = read_tokenizer(folder, BERTConfig(vocab_size=size, n_embd=16, n_head=4, pad_id=1))
    assert tokenizer is not None
    assert tokenizer.vocab_size == size
    for text in ("나는 학교에 갔다.", "鬼 😀 hello"):
        ids = tokenizer.encode(text)
        assert ids.tolist() == bpe.encode(text).ids
        assert tokenizer.decode(ids) == text
    assert tokenizer.around == (((0,), (2,)) if model_type == "roberta" else ((), ()))


def test_a_damaged_file_is_named(folder: Path):
    pytest.importorskip("sentencepiece")
    (folder / "tokenizer.model").write_bytes(b"not a model")
    write(folder, "config.json", model_type="llama")
    with pytest.raises(TokenizerError, match=r"tokenizer\.model is damaged"):
        read_tokenizer(folder, CONFIG)


def test_code_in_the_folder_is_not_run(folder: Path, trained: Path, tmp_path: Path):
    """tokenizer_config.json names a class in a Python file beside it, as `trust_remote_code` would run it."""
    mark = tmp_path / "was run"
    (folder / "mine.py").write_text(f"open({str(mark)!r}, 'w')\nclass Mine: pass\n")
    shutil.copy(trained / "XLM-RoBERTa.model", folder / "spiece.model")
    write(folder, "config.json", model_type="bert")
    write(folder, "tokenizer_config.json", tokenizer_class="Mine", auto_map={"AutoTokenizer": ["mine.Mine", None]})
    with pytest.raises(TokenizerError, match=r"spiece\.model"):
        read_tokenizer(folder, CONFIG)
    assert not mark.exists()


def test_the_two_files_of_marian_are_refused_by_name(folder: Path):
    for name in ("source.spm", "target.spm", "vocab.json"):
        (folder / name).write_bytes(b"{}")
    with pytest.raises(TokenizerError, match=r"source\.spm \+ target\.spm, and tokenizer\.json can only express one"):
        read_tokenizer(folder, CONFIG)


@pytest.mark.parametrize("missing", ["transformers", "sentencepiece"])
def test_missing_packages_are_named(missing: str, trained: Path, folder: Path, monkeypatch: pytest.MonkeyPatch):
    shutil.copy(trained / "XLM-RoBERTa.model", folder / "sentencepiece.bpe.model")
    write(folder, "config.json", model_type="xlm-roberta")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(TokenizerError, match=rf"not installed \({missing}\).*pip install 'jumok\[hf\]' sentencepiece"):
        read_tokenizer(folder, CONFIG)


def test_a_tokenizer_json_needs_no_other_package(folder: Path, trained: Path, monkeypatch: pytest.MonkeyPatch):
    """The older files beside it are not read."""
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXT, vocab_size=300, show_progress=False)
    bpe.save(str(folder / "tokenizer.json"))
    shutil.copy(trained / "XLM-RoBERTa.model", folder / "tokenizer.model")
    real = builtins.__import__

    def guarded(name: str, *rest: Any, **more: Any) -> Any:
        assert name.partition(".")[0] not in ("transformers", "sentencepiece")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", guarded)
    tokenizer = read_tokenizer(folder, CONFIG)
    assert tokenizer is not None
    assert tokenizer.encode("나는 학교에").tolist() == bpe.encode("나는 학교에").ids


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
):
    """That of KoBERT was read as WordPiece, and nearly all words were unknown."""
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write(folder, "tokenizer_config.json", **settings)
    with pytest.raises(RunError, match=message):
        read_tokenizer(folder, CONFIG)
