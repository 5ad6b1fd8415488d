"""Tokenizers: decoding is lossless, ids equal those of transformers, and streams return only whole characters."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from foreign_tokenizers import byte_level, unigram, word_piece
from jumok.errors import ConfigError, TokenizerError
from jumok.text.hangul import modern_syllables, nfc, nfd
from jumok.tokenizers import Tokenizer, _pipeline, train_tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, normalizers

KINDS = ("char", "jamo", "bpe")
SPECIALS = ("[MASK]", "[PAD]", "<|end|>")

TEXT = (
    """옛날 옛적 깊은 산골에 나무꾼이 살았습니다. 나무꾼은 날마다 산에 올라 나무를 하였습니다.
"호랑이가 왔다!" 하고 아이가 소리쳤습니다.  그러나 아무도 오지 않았습니다.

나무꾼은 1923년 봄에 꽃을 보았고, 가을에는 달을 보았습니다. café déjà vu [MASK] 漢字
"""
    * 3
    + "꿻"
)

# Characters that have caused errors in tokenizers, combined by hypothesis.
DELICATE = [
    *("가", "각", "힣", "꿻", "쀍", "한글 ", "나무꾼", "ㄱ", "ㅏ"),  # syllables in and out of the alphabet, letters
    *("ᄀ", "ᅡ", "ᆨ", "ᄒ", "ᆫ", "ᇂ"),  # conjoining jamo, which compose across tokens and chunks
    *("ᄫ", "ᆞ", "ᇫ", "ꥠ", "ힰ", "ퟋ", "〮"),  # old Hangul and a tone mark
    *("漢", "豈", "𠮷", "が", "か", "゙", "é", "e", "\u0301", "\u0323", "\u0338", "<", "=", "Å", "क़"),
    *("😀", "👨‍👩‍👧", "🇰🇷", "❤️", "\u200d", "\ufe0f", "\ufeff", "\ufffd", "\uffff", "\U0010ffff"),
    *(" ", "  ", "\n", "\n\n", "\r\n", "\t", "\x00", "\x1c", "\x85", "\u00a0", "\u2028", "\u3000", "\u200b"),
    *("▁", "Ġ", "Ċ", "ì", "##", "<0x41>", "<0xEA>", "[MASK]", "[PAD]", "<|end|>", "[UNK]", "</w>"),
    *("a", "Z", "0", "42", "'s", ".", ",", "!", " ,", "don't", "-", "_"),
]
any_text = st.text(max_size=40) | st.lists(st.sampled_from(DELICATE), max_size=20).map("".join)


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def chunkings() -> st.SearchStrategy[tuple[str, list[str]]]:
    cuts = st.lists(st.integers(0, 1000), max_size=8)
    return st.tuples(any_text, cuts).map(lambda drawn: (drawn[0], chunked(*drawn)))


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(TEXT, kind, special_tokens=SPECIALS, **_small(kind)) for kind in KINDS}


@pytest.fixture(scope="module")
def stock(
    trained: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, PreTrainedTokenizerFast]:
    folder = tmp_path_factory.mktemp("stock")
    for kind, tokenizer in trained.items():
        tokenizer.save(folder / f"{kind}.json")
    return {kind: PreTrainedTokenizerFast(tokenizer_file=str(folder / f"{kind}.json")) for kind in KINDS}


def _small(kind: str) -> dict[str, int]:
    return {"vocab_size": 400} if kind == "bpe" else {}


# --- lossless, and the same as stock transformers ---------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
@example(text="")
@example(text=" ")
@example(text="".join(DELICATE))
@settings(max_examples=40)
def test_no_text_is_lost(trained: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = trained[kind]
    ids = tokenizer.encode(text)
    assert ids.dtype == tokenizer.dtype
    assert ids.ndim == 1
    assert tokenizer.decode(ids) == nfc(text)
    assert not set(ids.tolist()) & set(tokenizer.special_tokens.values())


@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
@example(text="".join(DELICATE))
@settings(max_examples=40)
def test_stock_transformers_gives_the_same_ids_and_text(
    trained: dict[str, Tokenizer], stock: dict[str, PreTrainedTokenizerFast], kind: str, text: str
) -> None:
    form, rust = (nfd, normalizers.NFD()) if kind == "jamo" else (nfc, normalizers.NFC())
    if form(text) != rust.normalize_str(text):
        return  # a mark that is not in the Unicode tables of one side; not guaranteed
    ids = trained[kind].encode(text).tolist()
    assert stock[kind](text, split_special_tokens=True)["input_ids"] == ids
    assert nfc(stock[kind].decode(ids)) == nfc(text)
    if kind != "jamo":
        assert stock[kind].decode(ids) == trained[kind].decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_literal_special_tokens_are_text_here_and_tokens_in_stock(
    trained: dict[str, Tokenizer], stock: dict[str, PreTrainedTokenizerFast], kind: str
) -> None:
    mask = trained[kind].special_tokens["[MASK]"]
    assert mask == 0
    assert trained[kind].decode([mask]) == "[MASK]"
    assert mask not in trained[kind].encode("가 [MASK] 나")
    assert mask in stock[kind]("가 [MASK] 나")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_any_normal_form_gives_the_same_ids(trained: dict[str, Tokenizer], kind: str) -> None:
    assert np.array_equal(trained[kind].encode(nfd(TEXT)), trained[kind].encode(nfc(TEXT)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_are_cut_for_speed_without_a_trace(trained: dict[str, Tokenizer], kind: str) -> None:
    rng = random.Random(1)
    text = "".join(rng.choices(DELICATE, k=60_000))
    stock = HFTokenizer.from_str(trained[kind].to_json())
    stock.encode_special_tokens = True
    assert trained[kind].encode(text).tolist() == stock.encode(text).ids
    assert trained[kind].decode(trained[kind].encode(text)) == nfc(text)


# --- texts in chunks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(drawn=chunkings())
@example(drawn=("한", ["", "ᄒ", "", "ᅡ", "ᆫ", ""]))
@settings(max_examples=40)
def test_chunks_may_end_anywhere(trained: dict[str, Tokenizer], kind: str, drawn: tuple[str, list[str]]) -> None:
    text, chunks = drawn
    parts = list(trained[kind].encode_chunks(chunks))
    joined = np.concatenate(parts) if parts else np.empty(0, trained[kind].dtype)
    assert np.array_equal(joined, trained[kind].encode(text))


@pytest.mark.parametrize("kind", KINDS)
def test_training_does_not_depend_on_chunks(kind: str) -> None:
    rng = random.Random(2)
    text = nfd(TEXT)
    whole = train_tokenizer(text, kind, **_small(kind))
    pieces = chunked(text, [rng.randrange(len(text)) for _ in range(200)])
    assert train_tokenizer(iter(pieces), kind, **_small(kind)).fingerprint == whole.fingerprint
    assert train_tokenizer(list(text), kind, **_small(kind)).to_json() == whole.to_json()


# --- decoding ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=40)
def test_stream_joins_to_decode_for_any_ids(trained: dict[str, Tokenizer], kind: str, data: st.DataObject) -> None:
    """Also for random bytes, as from an untrained model."""
    tokenizer = trained[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    stream = tokenizer.stream()
    for _ in range(2):  # flush resets the stream
        assert "".join([*map(stream.push, ids), stream.flush()]) == tokenizer.decode(ids)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
@settings(max_examples=60)
def test_stream_never_shows_half_a_character(trained: dict[str, Tokenizer], kind: str, text: str) -> None:
    stream, shown = trained[kind].stream(), ""
    for token_id in trained[kind].encode(text).tolist():
        shown += stream.push(token_id)
        assert nfc(text).startswith(shown)
    assert shown + stream.flush() == nfc(text)


def test_stream_shows_a_syllable_as_soon_as_it_is_whole(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["jamo"]
    stream = tokenizer.stream()
    shown = [stream.push(token_id) for token_id in tokenizer.encode("나무꾼.")]
    assert shown == ["", "", "나", "", "무", "", "꾼", "."]
    char = trained["char"].stream()
    assert [char.push(token_id) for token_id in trained["char"].encode("나꿻")] == ["나", "", "", "꿻"]


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_bytes_decode_to_the_replacement_character(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    lead, second = tokenizer.encode("꿻")[:2] if kind == "char" else _bytes_of(tokenizer, "꿻")[:2]
    assert tokenizer.decode([lead]) == "\ufffd"
    assert tokenizer.decode([second, *tokenizer.encode("."), lead, second]) == "\ufffd.\ufffd"


def _bytes_of(tokenizer: Tokenizer, text: str) -> list[int]:
    alone = {tokenizer.pieces([token_id])[0]: token_id for token_id in range(tokenizer.vocab_size)}
    return [alone[f"<{byte:02X}>"] for byte in text.encode()]


def test_pieces_are_readable(trained: dict[str, Tokenizer]) -> None:
    char, jamo, bpe = (trained[kind] for kind in KINDS)
    assert char.pieces(char.encode("나무\n")) == ["나", "무", "\n"]
    assert char.pieces(char.encode("꿻")) == ["<EA>", "<BF>", "<BB>"]
    assert jamo.pieces(jamo.encode("꿻")) == list(nfd("꿻"))
    assert bpe.pieces(bpe.encode("그 나무꾼은")) == ["<EA>", "<B7>", "<B8>", " 나무꾼은"]
    assert bpe.pieces(bpe.encode("쀍")) == ["<EC>", "<80>", "<8D>"]
    assert char.pieces([0]) == ["[MASK]"]
    assert all(not set("ìëíêĠĊ") & set(piece) for piece in bpe.pieces(range(bpe.vocab_size)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("ids", "named"),
    [([10**6], "1000000"), ([-1], "-1"), ([[1, 2]], r"\(1, 2\)"), ([0.5], "float"), (3, r"\(\)"), ([2**70], "object")],
)
def test_bad_ids_are_named(trained: dict[str, Tokenizer], kind: str, ids: object, named: str) -> None:
    with pytest.raises(TokenizerError, match=named):
        trained[kind].decode(ids)  # type: ignore[arg-type]
    with pytest.raises(TokenizerError):
        trained[kind].pieces(ids)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_empty_is_empty(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.encode("").dtype == tokenizer.dtype
    assert tokenizer.decode([]) == ""
    assert tokenizer.pieces([]) == []
    assert tokenizer.stream().flush() == ""
    assert list(tokenizer.encode_chunks(["", ""])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_an_error(trained: dict[str, Tokenizer], kind: str) -> None:
    with pytest.raises(TokenizerError, match=r"character 2 is U\+D83D"):
        trained[kind].encode("가나\ud83d")
    with pytest.raises(TokenizerError, match="surrogate"):
        train_tokenizer(["가나", "다\udc00"], kind)


# --- training ---------------------------------------------------------------------------------------------------


def test_char_alphabet_leaves_out_what_occurs_once() -> None:
    """Good 1953: characters seen once are about as frequent as unseen ones, so their bytes train that rate."""
    text = "나무나무 산"
    assert train_tokenizer(text).vocab_size == 256 + 2
    assert train_tokenizer(text, min_count=1).vocab_size == 256 + 4
    assert train_tokenizer(text).pieces([256, 257]) == ["나", "무"]


def test_jamo_spells_every_modern_syllable_without_bytes() -> None:
    tokenizer = train_tokenizer("나무", "jamo")
    every = "".join(modern_syllables())
    assert tokenizer.encode(every).min() >= 256
    assert tokenizer.vocab_size == 256 + 19 + 21 + 27
    assert tokenizer.decode(tokenizer.encode(every)) == every


def test_bpe_keeps_to_its_size_and_says_when_the_text_is_too_small() -> None:
    assert train_tokenizer(TEXT, "bpe", vocab_size=300).vocab_size == 300
    assert train_tokenizer(TEXT, "bpe", vocab_size=300, special_tokens=SPECIALS).vocab_size == 300
    assert train_tokenizer("나무", "bpe").vocab_size == 256
    assert 256 < train_tokenizer(TEXT, "bpe").vocab_size < 8000
    assert train_tokenizer(TEXT, "bpe", vocab_size=256).decode(
        train_tokenizer(TEXT, "bpe", vocab_size=256).encode(TEXT)
    ) == nfc(TEXT)


def test_ctrl_c_reaches_whoever_trains_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does not check for Ctrl-C while it learns merges, so training could not be stopped for minutes."""
    over, elsewhere = threading.Event(), []

    class Learner:
        def train_from_iterator(self, pieces: Iterator[str], trainer: object) -> None:
            next(pieces)
            elsewhere.append(threading.current_thread() is not threading.main_thread())
            os.kill(os.getpid(), signal.SIGINT)
            over.wait(60)
            list(pieces)

    monkeypatch.setattr(_pipeline, "build", lambda *args, **kwargs: Learner())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train_tokenizer("나무 " * 10_000, "bpe")
    finally:
        signal.signal(signal.SIGINT, before)
        over.set()
    assert elsewhere == [True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "chars"}, "Did you mean 'char'"),
        ({"kind": "bpe", "vocab_size": 257, "special_tokens": SPECIALS}, "259 or more"),
        ({"kind": "char", "vocab_size": 500}, "for the bpe tokenizer"),
        ({"min_count": 0}, "min_count=0 is out of range: it must be between 1 and 1,000,000,000."),
        ({"special_tokens": "[MASK]"}, "give a list"),
        ({"special_tokens": ["[A]", "[A]"]}, "twice"),
        *(({"special_tokens": [bad]}, "brackets") for bad in ("", "가", "PAD", "<0x41>", "[a b]", "[가]", "[A")),
    ],
)
def test_wrong_settings(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train_tokenizer(TEXT, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_texts(kind: str) -> None:
    for empty in ("", [], ["", ""]):
        with pytest.raises(TokenizerError, match="empty"):
            train_tokenizer(empty, kind)


# --- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_save_and_load(trained: dict[str, Tokenizer], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run" / "tokenizer.json"
    trained[kind].save(path)
    loaded = Tokenizer.load(path)
    assert [entry.name for entry in path.parent.iterdir()] == ["tokenizer.json"]
    assert loaded.kind == kind
    assert loaded.to_json() == trained[kind].to_json() == path.read_text(encoding="utf-8")
    assert loaded.fingerprint == trained[kind].fingerprint
    assert loaded.special_tokens == trained[kind].special_tokens == {"[MASK]": 0, "[PAD]": 1, "<|end|>": 2}
    assert np.array_equal(loaded.encode(TEXT), trained[kind].encode(TEXT))
    assert kind in repr(loaded)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_saved_again_by_transformers_is_still_ours(
    trained: dict[str, Tokenizer], stock: dict[str, PreTrainedTokenizerFast], kind: str, tmp_path: Path
) -> None:
    stock[kind].save_pretrained(tmp_path)
    assert Tokenizer.load(tmp_path / "tokenizer.json").fingerprint == trained[kind].fingerprint


@pytest.mark.parametrize(
    "content", ["", "{", "null", "[]", "{}", '{"model": {}}', "안녕", '{"model": {"type": "BPE", "vocab": 3}}']
)
def test_files_that_are_no_tokenizer(content: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"odd\.json.*train a new one"):
        Tokenizer.load(path)


def test_truncated_binary_missing_and_empty_tokenizers(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(trained["bpe"].to_json()[:-20], encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"cut\.json.*not a complete"):
        Tokenizer.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TokenizerError, match=r"cannot read.*cut\.json"):
        Tokenizer.load(path)
    with pytest.raises(TokenizerError, match="cannot read"):
        Tokenizer.load(tmp_path)
    with pytest.raises(TokenizerError, match=r"none\.json: No such file.*train_tokenizer"):
        Tokenizer.load(tmp_path / "none.json")
    with pytest.raises(TokenizerError, match="empty vocabulary"):
        Tokenizer.from_json(HFTokenizer(models.BPE()).to_str())


# --- tokenizers of another make ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [word_piece, unigram, partial(byte_level, False)])
def test_foreign_tokenizers_work_as_their_file_says(make: Callable[[], HFTokenizer], tmp_path: Path) -> None:
    made = make()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    text = "나무꾼은 산에 올라\n나무를 하였습니다."
    ids = tokenizer.encode(text)
    assert tokenizer.kind == "other"
    assert tokenizer.vocab_size == max(made.get_vocab().values()) + 1
    assert ids.tolist() == made.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids) == made.decode(ids.tolist(), skip_special_tokens=False)
    assert len(tokenizer.pieces(ids)) == len(ids)
    stream = tokenizer.stream()
    assert "".join([*map(stream.push, ids.tolist()), stream.flush()]) == tokenizer.decode(ids)
    lines = [tokenizer.encode(line).tolist() for line in text.splitlines(keepends=True)]
    halves = tokenizer.encode_chunks([text[:14], text[14:]])
    assert [part.tolist() for part in halves] == lines
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        stream.push(tokenizer.vocab_size)


def test_foreign_tokenizers_neither_truncate_nor_pad_nor_add() -> None:
    """The file of a BERT often specifies truncation at 512 and a [CLS] template; a training text would be truncated."""
    made = word_piece()
    plain = made.encode("나는 학교에 갔다.", add_special_tokens=False).ids
    made.enable_truncation(2)
    made.enable_padding(length=50)
    assert Tokenizer.from_json(made.to_str()).encode("나는 학교에 갔다.").tolist() == plain


def test_a_template_with_an_unknown_special_token_is_refused() -> None:
    """Reading a file whose post-processor names a special token without its id ended with a KeyError."""
    made = word_piece()
    content = json.loads(made.to_str())
    content["post_processor"]["single"][0]["SpecialToken"]["id"] = "[X]"
    with pytest.raises(TokenizerError, match=r"adds '\[X\]', which is not among its special tokens"):
        Tokenizer.from_json(json.dumps(content))


def test_a_foreign_tokenizer_without_unknown_token_says_so() -> None:
    made = HFTokenizer(models.WordPiece({"나무": 0, "산": 1}, unk_token="[UNK]"))
    with pytest.raises(TokenizerError, match=r"cannot encode.*\[UNK\]"):
        Tokenizer.from_json(made.to_str()).encode("바다")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", ["normalizer", "decoder", "pre_tokenizer", "hole", "model"])
def test_a_pipeline_that_differs_in_a_detail_is_not_taken_for_ours(
    trained: dict[str, Tokenizer], kind: str, change: str
) -> None:
    content = json.loads(trained[kind].to_json())
    if change == "hole":
        content["model"]["vocab"]["나무꾼이다"] = 5000
    elif change == "model":
        content["model"]["dropout"] = 0.5
    else:
        content[change] = {"normalizer": {"type": "NFKC"}, "decoder": {"type": "Fuse"}}.get(
            change, {"type": "Whitespace"}
        )
    assert Tokenizer.from_json(json.dumps(content)).kind == "other"


def test_an_id_of_billions_is_refused_before_memory_is_taken() -> None:
    """One id, 4,294,967,295, ended the process: the library lists all ids up to it, and aborts without memory."""
    content = json.loads(train_tokenizer("가나다").to_json())
    vocab = content["model"]["vocab"]
    vocab["가"] = 2**32 - 1
    with pytest.raises(TokenizerError, match=r"has the id 4,294,967,295; ids may be up to 5,000,000\."):
        Tokenizer.from_json(json.dumps(content))
    vocab["가"] = 4_000_000
    assert Tokenizer.from_json(json.dumps(content)).vocab_size == 4_000_001


def test_merges_that_do_not_fit_are_refused_or_another_kind() -> None:
    """The library panics, which is no Exception; or it reads the file, and refuses to build the same pipeline."""
    content = json.loads(train_tokenizer("가나다 가나다 가나다", kind="bpe", vocab_size=260).to_json())
    assert content["model"]["merges"]
    for merge in (["", "x"], ["가", "나"], ["ê", "°" * 9]):
        content["model"]["merges"][0] = merge
        try:
            assert Tokenizer.from_json(json.dumps(content)).kind == "other"
        except TokenizerError as error:
            if "not a complete tokenizer.json" not in str(error):
                raise
