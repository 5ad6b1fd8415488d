"""Tokens as a person reads them: spans that cover the text, whole characters and words, nothing that cannot be seen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.errors import TokenizerError
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.token_text import TokenNames, visible
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXT = "나는 어제 학교에 갔다. 그러나 비가 와서 집에 왔다.\n너는 어디에 갔니? I went home. " * 8
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]


def own(kind: str) -> Tokenizer:
    size = {"vocab_size": 400} if kind == "bpe" else {}
    return train_tokenizer([TEXT], kind=kind, special_tokens=SPECIAL, **size)


def wordpiece() -> Tokenizer:
    pipeline = HFTokenizer(models.WordPiece(unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=False)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=[*SPECIAL, "[UNK]"], show_progress=False)
    pipeline.train_from_iterator([TEXT], trainer)
    return Tokenizer(pipeline)


def metaspace() -> Tokenizer:
    """As Llama and many Korean models have it: ▁ for a blank, bytes for what is not in the vocabulary."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [*SPECIAL, *bytes_, "▁", *sorted(set("나는학교에갔다."))]
    pipeline = HFTokenizer(
        models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], byte_fallback=True)
    )
    pipeline.pre_tokenizer = pre_tokenizers.Metaspace()
    pipeline.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    pipeline.add_special_tokens(SPECIAL)
    return Tokenizer(pipeline)


def byte_level() -> Tokenizer:
    """As GPT-2 has it; jumok does not know it as its own."""
    pipeline = HFTokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pipeline.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=SPECIAL)
    pipeline.train_from_iterator([TEXT], trainer)
    tokenizer = Tokenizer(pipeline)
    assert tokenizer.kind == "other"
    return tokenizer


TOKENIZERS = {
    **{kind: own(kind) for kind in ("char", "jamo", "bpe")},
    "wordpiece": wordpiece(), "metaspace": metaspace(), "byte level": byte_level(),
}  # fmt: skip
NAMES = {name: TokenNames(tokenizer) for name, tokenizer in TOKENIZERS.items()}

# Whatever people write, and what breaks programs: letters of all kinds, marks, bidi controls, emoji, NUL.
HOSTILE = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from("한글ᄒᆞᆫ각갂ᅡᆨᄀ 나\n\r\t\0\u202e\u200d\ufe0f👩👍🏽</>é\u0301"),
    max_size=40,
)


def read(name: str, text: str) -> dict[str, Any]:
    return NAMES[name].read(TOKENIZERS[name].encode(text).tolist())


def check(pieces: dict[str, Any]) -> None:
    """What holds for all tokens of all tokenizers."""
    for token in pieces["tokens"]:
        assert token["text"].isprintable(), ascii(token["text"])
        assert token["text"]
        assert 0 <= token["start"] <= token["stop"] <= len(pieces["text"])
    inside = [token for token in pieces["tokens"] if token["start"] < token["stop"]]
    if pieces["text"]:
        assert inside[0]["start"] == 0
        assert max(token["stop"] for token in inside) == len(pieces["text"])
    for token, following in pairwise(inside):
        assert token["start"] <= following["start"] <= token["stop"]  # nothing between them, and no step back


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(text=HOSTILE)
def test_any_text_can_be_shown(name: str, text: str) -> None:
    check(read(name, text))


@pytest.mark.parametrize("name", ["char", "jamo", "bpe"])
@settings(max_examples=40)
@given(text=HOSTILE)
def test_spans_are_of_the_decoded_text(name: str, text: str) -> None:
    pieces = read(name, text)
    assert pieces["text"] == nfc(text)
    for token in pieces["tokens"]:
        if name == "char" and len(token["text"]) == 1 and token["text"] not in "␣⏎":
            assert visible(pieces["text"][token["start"] : token["stop"]]).lstrip("◌") == token["text"].lstrip("◌")


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=40)
@given(data=st.data())
def test_what_a_young_model_writes_can_be_shown(name: str, data: st.DataObject) -> None:
    """Any ids in any order: half characters, lone letters of syllables, special tokens in between."""
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), min_size=1, max_size=30))
    pieces = NAMES[name].read(ids)
    check(pieces)
    if tokenizer.kind != "other" and not any(token["special"] for token in pieces["tokens"]):
        assert pieces["text"] == tokenizer.decode(ids)


def shown(pieces: dict[str, Any]) -> list[str]:
    return [token["text"] for token in pieces["tokens"]]


def test_syllables_of_jamo() -> None:
    pieces = read("jamo", "학교에 가.")
    assert shown(pieces) == ["ㅎ", "ㅏ", "ㄱ", "ㄱ", "ㅛ", "ㅇ", "ㅔ", "␣", "ㄱ", "ㅏ", "."]
    assert [token["stop"] for token in pieces["tokens"][:4]] == [1, 1, 1, 2]


def test_old_letters_alone_are_those_that_people_type() -> None:
    """A vowel or a final of U+1100 that stands alone is drawn over what is before it, or over nothing."""
    assert [visible(letter) for letter in "ᆞᆡᇙᇫᇰᇹ"] == list("ㆍㆎㅭㅿㆁㆆ")
    assert visible("듀ᇰᄆᆞᆯᆞ") == "듀ᇰᄆᆞᆯㆍ"


def test_half_a_character_is_shown_as_its_bytes() -> None:
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("뷁").tolist()
    assert len(ids) == 3
    pieces = NAMES["bpe"].read([*ids[:2], *tokenizer.encode("나").tolist()])
    assert pieces["text"] == "\ufffd나"
    assert shown(pieces)[:2] == ["<EB>", "<B7>"]


def test_special_tokens_are_no_text() -> None:
    tokenizer = TOKENIZERS["char"]
    special = tokenizer.special_tokens
    ids = [special["[CLS]"], *tokenizer.encode("나는").tolist(), special["[MASK]"], *tokenizer.encode("갔").tolist()]
    pieces = NAMES["char"].read([*ids, special["[SEP]"]])
    assert pieces["text"] == "나는갔"
    assert [(token["text"], token["start"], token["stop"]) for token in pieces["tokens"] if token["special"]] == [
        ("[CLS]", 0, 0), ("[MASK]", 2, 2), ("[SEP]", 3, 3),
    ]  # fmt: skip


def test_pieces_of_foreign_tokenizers() -> None:
    assert shown(read("metaspace", "나는 학교에 b")) == [*"␣나는␣학교에␣", "<62>"]
    words = read("wordpiece", "나는 학교에 갔다.")
    assert "".join(token["text"] for token in words["tokens"]).replace("##", "") == "나는학교에갔다."
    assert [token["text"] for token in read("wordpiece", "나는 ♞")["tokens"]][-1] == "[UNK]"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (" a\n\t\0\x7f\x1b", "␣a⏎⇥␀␡␛"),
        ("\u202eabc\u2066", "⟨U+202E⟩abc⟨U+2066⟩"),
        ("\u00a0\u3000\u200b\ufeff", "⟨U+00A0⟩⟨U+3000⟩⟨U+200B⟩⟨U+FEFF⟩"),
        ("\u3164\u115f\ufe0f\u034f", "⟨U+3164⟩⟨U+115F⟩⟨U+FE0F⟩⟨U+034F⟩"),  # "printable", and nothing to see
        ("\u0301", "◌\u0301"),
        ("</script>", "</script>"),  # plain text, which the page escapes
        ("\ue000\U0010ffff", "⟨U+E000⟩⟨U+10FFFF⟩"),
        ("", "∅"),
    ],
)
def test_what_cannot_be_seen_is_named(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_the_bytes_of_tokens() -> None:
    """What `pieces` cannot tell apart: the text "<EB>" and the byte EB."""
    for name in ("char", "jamo", "bpe", "byte level"):
        tokenizer = TOKENIZERS[name]
        text = "갔다 뷁<EB>"
        spelled = tokenizer.bytes_of(tokenizer.encode(text))
        assert spelled is not None
        assert nfc(b"".join(spelled).decode()) == text
    assert TOKENIZERS["byte level"].bytes_of([2]) == [b"[SEP]"]
    assert TOKENIZERS["wordpiece"].bytes_of([7]) is None
    with pytest.raises(TokenizerError, match="outside the vocabulary"):
        TOKENIZERS["wordpiece"].bytes_of([10**6])
