"""Which tokenizers the program of a page reads: `assets/model/tokenizer.js` gives the same ids and texts for them.

These are the kinds char, jamo and bpe of jumok, and other byte-level BPE tokenizers such as those of GPT-2 and Llama 3.
WordPiece and Unigram tokenizers are not among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jumok.errors import ViewError
from jumok.tokenizers import Tokenizer
from jumok.tokenizers._pipeline import BYTE_LETTERS, parts_of

NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
# Escapes and quantifiers of Oniguruma that JavaScript has too, once \s, \S and \d are replaced.
_COMMON = re.compile(r"\\[sSdnrt^$.*+?()\[\]{}|/\\]|\\[pP]\{[LMN][a-z]?\}|\{\d+(?:,\d*)?\}")
# A group without regard to case may hold letters, apostrophes and bars, as that of the tokenizer of Llama 3.
_ANY_CASE = re.compile(r"\(\?i:[a-z'|]*\)")
# What is left must have no other escape or brace, lookbehind, flag, possessive quantifier, or class inside a class.
_OTHER = re.compile(r"[\\{}]|\(\?(?![:!=])|[*+?]\+|&&|\[[^\]]*\[")


def require_readable(tokenizer: Tokenizer) -> None:
    """Raise ViewError unless a page can read the tokenizer."""
    strange = unreadable_part(tokenizer)
    if strange is not None:
        raise ViewError(
            "a page cannot read this tokenizer because of its part {part}; it reads char, jamo and byte-level bpe. "
            "Train a model with one of these, or use this one with `jumok serve`.",
            part=strange,
        )


def unreadable_part(tokenizer: Tokenizer) -> str | None:
    """Return the name of a part of the tokenizer that a page cannot read; None: it reads the tokenizer."""
    return None if tokenizer.kind != "other" else next(_strange_parts(json.loads(tokenizer.to_json())), None)


def _strange_parts(content: dict[str, Any]) -> Iterator[str]:
    model = content["model"]
    if model["type"] != "BPE":
        yield model["type"]
        return
    for name in ("byte_fallback", "fuse_unk", "dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            yield name
    if not model["vocab"].keys() >= set(BYTE_LETTERS):
        yield "BPE without bytes"
    for part in parts_of(content["normalizer"]):
        if part["type"] not in NORMAL_FORMS:
            yield part["type"]
    cuts = list(parts_of(content["pre_tokenizer"]))
    if [part["type"] for part in cuts][-1:] != ["ByteLevel"]:
        yield "BPE without ByteLevel"
    for i, part in enumerate(cuts):
        plain = part["type"] == "Split" and part["behavior"] == "Isolated" and not part["invert"]
        if not (plain and _is_common(part["pattern"])) and not (part["type"] == "ByteLevel" and i == len(cuts) - 1):
            yield part["type"]
    decoder = content["decoder"] or {"type": "no decoder"}
    if decoder["type"] != "ByteLevel":
        yield decoder["type"]
    for token in content["added_tokens"]:
        if (
            token["lstrip"]
            or token["rstrip"]
            or token["single_word"]
            or (token["normalized"] and content["normalizer"])
        ):
            yield token["content"]


def _is_common(pattern: dict[str, str]) -> bool:
    """Return whether a pattern means the same in a page."""
    return "Regex" in pattern and not _OTHER.search(_ANY_CASE.sub("()", _COMMON.sub("x", pattern["Regex"])))
