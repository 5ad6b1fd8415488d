"""Tokenizers as other programs make them, some of which lose characters."""

from __future__ import annotations

from typing import Any

from jumok.tokenizers import Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

TEXT = "나무가 자란다. 나무는 높다.\n산이 푸르다, 강은 깊다!\n"


def foreign(model: Any, trainer: Any, *, normalizer: Any = None, pre: Any = None, decoder: Any = None) -> Tokenizer:
    """A tokenizer of another make, trained on TEXT."""
    made = HFTokenizer(model)
    if normalizer is not None:
        made.normalizer = normalizer
    if pre is not None:
        made.pre_tokenizer = pre
    if decoder is not None:
        made.decoder = decoder
    made.train_from_iterator([TEXT] * 3, trainer)
    return Tokenizer(made)


def word_piece(normalizer: Any = None, special: tuple[str, ...] = ()) -> Tokenizer:
    """As BERT's: words are split at white space and punctuation."""
    return foreign(
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", *special], show_progress=False),
        normalizer=normalizer,
        pre=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )


def byte_level(*, normalizer: Any = None, prefix: bool = False) -> Tokenizer:
    """As GPT-2's."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return foreign(
        models.BPE(),
        trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False),
        normalizer=normalizer,
        pre=pre_tokenizers.ByteLevel(add_prefix_space=prefix),
        decoder=decoders.ByteLevel(),
    )


def sentence_piece(*, byte_fallback: bool) -> Tokenizer:
    """As Llama's, with bytes for what the vocabulary lacks or one unknown token."""
    special = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))] if byte_fallback else ["<unk>"]
    tokenizer = foreign(
        models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=byte_fallback),
        trainers.BpeTrainer(vocab_size=600, special_tokens=special, show_progress=False),
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )
    assert tokenizer.unknown_token == "<unk>"
    return tokenizer
