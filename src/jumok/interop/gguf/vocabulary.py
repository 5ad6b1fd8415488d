"""The tokenizer of a model as llama.cpp reads it: a list of tokens, and the name of an algorithm.

llama.cpp has two algorithms that fit:

    llama   SentencePiece BPE: the characters of a text, merged by the scores of the tokens; others are bytes <0xEA>
    gpt2    byte-level BPE: the text is cut into pieces by a regex that has a name, and the bytes of a piece are merged

It does not normalise a text, so its ids are those of jumok for texts in NFC.

`char` is a SentencePiece BPE that never merges. This algorithm writes a space as U+2581 and cannot tell the two apart,
so both are "user-defined" tokens, which are found in a text before anything else is done.

`bpe` cuts a text as Qwen2 does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gguf import GGUFWriter, TokenType

from jumok.config import GPTConfig
from jumok.errors import JumokError
from jumok.tokenizers import Tokenizer
from jumok.tokenizers._pipeline import BYTE_LETTERS, BYTE_TOKENS, PIECES, parts_of

LOWER_BLOCK = "\u2581"  # what SentencePiece writes for a space
NEVER = 0xFF  # a byte that occurs in no text in UTF-8
ADDED = (TokenType.UNUSED, TokenType.USER_DEFINED)  # tokens that the algorithm does not make
ENDS = ("[EOS]", "</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>")

GPT2, DIGITS = "GPT-2", "digits, GPT-2"
QWEN2 = PIECES
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
# The name that llama.cpp has for a way to cut a text, by the way and by whether a piece that is a token is not merged.
NAMES = {
    (GPT2, False): "gpt-2",
    (DIGITS, False): "smollm",
    (LLAMA3, True): "llama-bpe",
    (LLAMA3, False): "dbrx",
    (QWEN2, False): "qwen2",
}


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer of a GGUF file.

    Attributes:
        algorithm: "llama" or "gpt2".
        tokens, types: of each id. llama.cpp finds CONTROL tokens in a text only if a program asks it to, USER_DEFINED
            ones always, UNUSED ones never.
        end: the id that ends a text, if the model has none. llama.cpp always has one; if the tokenizer has none either,
            it is that of a byte that no text contains.
        scores: of each id, for "llama".
        merges, pieces: for "gpt2": the pairs, and the name of the way to cut a text.
        spaced: whether a space is put before a text.
    """

    algorithm: str
    tokens: tuple[str, ...]
    types: tuple[TokenType, ...]
    end: int
    scores: tuple[float, ...] = ()
    merges: tuple[str, ...] = ()
    pieces: str = ""
    spaced: bool = False

    def write(self, writer: GGUFWriter, config: GPTConfig, bos: int | None, begun: bool, pad: int | None) -> None:
        """Write it, with unused tokens up to the number of ids of the model.

        Args:
            config: of the model. Of the ids that end a text three are written, because llama.cpp has names for the end
                of a text, of a turn and of a message.
            bos: the id of bos_token. begun: it stands before each text. pad: the id that pads.
        """
        missing = range(len(self.tokens), config.vocab_size)
        end, *more_ends = config.eos_ids or (self.end,)
        types = [*self.types, *[TokenType.UNUSED] * len(missing)]
        for one in (bos, self.end, *config.eos_ids):  # llama.cpp shows what is no CONTROL token
            if one is not None and one not in missing and (one in config.eos_ids or types[one] in ADDED):
                types[one] = TokenType.CONTROL
        writer.add_tokenizer_model(self.algorithm)
        writer.add_token_list([*self.tokens, *(f"[PAD{i}]" for i in missing)])
        writer.add_token_types(types)
        if self.algorithm == "llama":
            writer.add_token_scores([*self.scores, *[0.0] * len(missing)])
            writer.add_add_space_prefix(self.spaced)
            writer.add_remove_extra_whitespaces(False)
        else:
            writer.add_tokenizer_pre(self.pieces)
            writer.add_token_merges(self.merges)
        if bos is not None:
            writer.add_bos_token_id(bos)
        writer.add_eos_token_id(end)
        for add, one in zip((writer.add_eot_token_id, writer.add_eom_token_id), more_ends, strict=False):
            add(one)
        if pad is not None:
            writer.add_pad_token_id(pad)
        writer.add_add_bos_token(begun)
        writer.add_add_eos_token(False)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return the tokenizer as llama.cpp reads it.

    Raises:
        JumokError: llama.cpp cannot give the same ids; the message names the part that prevents it.
    """
    if tokenizer.kind == "jamo":
        raise JumokError(
            "llama.cpp cannot use the tokenizer jamo: it would write the letters of a syllable one by one and never "
            "compose them. Train with {--tokenizer char} or {--tokenizer bpe}, or use `jumok convert --to page`."
        )
    content = json.loads(tokenizer.to_json())
    added = {
        token["content"]: TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
        for token in content["added_tokens"]
    }
    if tokenizer.kind != "other" and not tokenizer.chat_templates:  # in a text these are ordinary characters
        added = dict.fromkeys(added, TokenType.UNUSED)
    if tokenizer.kind == "char":
        return _characters(content, added)
    obstacle = next(_obstacles(content), None)
    if obstacle is not None:
        raise JumokError(
            "llama.cpp would give other ids than this tokenizer because of its part {part}. "
            "Use `jumok convert --to hf`.",
            part=obstacle,
        )
    if _is_byte_level(content):
        return _byte_level(content, added)
    return _sentencepiece(content, added)


# --- the tokenizers of jumok, and byte-level ones ---------------------------------------------------------------------


def _characters(content: dict[str, Any], added: dict[str, TokenType]) -> Vocabulary:
    tokens = _by_id(content)
    spelled: dict[str, str] = {}
    if "\0" in tokens:  # a token of the file cannot contain it, so it becomes the byte
        spelled = {BYTE_TOKENS[0]: "[0]", "\0": BYTE_TOKENS[0]}
    if " " not in tokens:
        spelled[BYTE_TOKENS[ord(" ")]] = " "
    tokens = tuple(spelled.get(token, token) for token in tokens)
    changed = {
        **dict.fromkeys(BYTE_TOKENS, TokenType.BYTE),
        **added,
        "[0]": TokenType.UNUSED,
        **dict.fromkeys([LOWER_BLOCK, " "], TokenType.USER_DEFINED),
    }
    return Vocabulary(
        algorithm="llama",
        tokens=tokens,
        types=tuple(changed.get(token, TokenType.NORMAL) for token in tokens),
        end=_end(tokens, BYTE_TOKENS[NEVER]),
        scores=(0.0,) * len(tokens),
    )


def _byte_level(content: dict[str, Any], added: dict[str, TokenType]) -> Vocabulary:
    tokens = _by_id(content)
    return Vocabulary(
        algorithm="gpt2",
        tokens=tokens,
        types=tuple(added.get(token, TokenType.NORMAL) for token in tokens),
        end=_end(tokens, BYTE_LETTERS[NEVER]),
        merges=tuple(map(" ".join, _merges(content))),
        pieces=_pieces(content) or "",
    )


def _by_id(content: dict[str, Any]) -> tuple[str, ...]:
    """Return the tokens by id; an id without a token gets a name that no text contains."""
    vocab = {**content["model"]["vocab"], **{token["content"]: token["id"] for token in content["added_tokens"]}}
    by_id = {token_id: token for token, token_id in vocab.items()}
    return tuple(by_id.get(i, f"[PAD{i}]") for i in range(max(by_id) + 1))


def _end(tokens: Sequence[str], otherwise: str) -> int:
    """Return the id of the first token of ENDS that there is, or of another one."""
    return tokens.index(next((token for token in ENDS if token in tokens), otherwise))


def _merges(content: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the merges, which older files write as one string each."""
    pairs = (pair.split(" ") if isinstance(pair, str) else pair for pair in content["model"]["merges"])
    return [(left, right) for left, right in pairs]


# --- imported tokenizers ----------------------------------------------------------------------------------------------


def _sentencepiece(content: dict[str, Any], added: dict[str, TokenType]) -> Vocabulary:
    """Return a BPE of SentencePiece, as of Llama 2. Its algorithm takes the pair whose token has the best score."""
    tokens, unknown = _by_id(content), content["model"].get("unk_token")
    scores: dict[str, float] = {}
    for rank, pair in enumerate(_merges(content)):
        scores.setdefault("".join(pair), -float(rank))
    types = {**dict.fromkeys(BYTE_TOKENS, TokenType.BYTE), **added}
    types |= {unknown: TokenType.UNKNOWN} if unknown in tokens else {}
    return Vocabulary(
        algorithm="llama",
        tokens=tokens,
        types=tuple(types.get(token, TokenType.NORMAL) for token in tokens),
        end=_end(tokens, BYTE_TOKENS[NEVER]),
        scores=tuple(scores.get(token, 0.0) for token in tokens),
        spaced=_is_spaced(content),
    )


def _is_byte_level(content: dict[str, Any]) -> bool:
    return any(part["type"] == "ByteLevel" for part in parts_of(content["pre_tokenizer"]))


def _is_spaced(content: dict[str, Any]) -> bool:
    parts = [*parts_of(content["normalizer"]), *parts_of(content["pre_tokenizer"])]
    return any(part["type"] == "Prepend" or part.get("prepend_scheme") in ("always", "first") for part in parts)


def _obstacles(content: dict[str, Any]) -> Iterator[str]:
    """Yield the parts of an imported tokenizer.json that llama.cpp does not have."""
    model = content["model"]
    if model["type"] != "BPE":
        yield model["type"]
        return
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            yield name
    for token in content["added_tokens"]:
        if token["lstrip"] or token["rstrip"] or token["single_word"]:
            yield token["content"]
    if _is_byte_level(content):
        yield from _byte_level_obstacles(content)
    else:
        yield from _sentencepiece_obstacles(content)


def _byte_level_obstacles(content: dict[str, Any]) -> Iterator[str]:
    for part in parts_of(content["normalizer"]):
        if part["type"] != "NFC":
            yield part["type"]
    if not content["model"]["vocab"].keys() >= set(BYTE_LETTERS):
        yield "BPE without bytes"
    if _pieces(content) is None:
        yield "pre_tokenizer"


def _pieces(content: dict[str, Any]) -> str | None:
    """Return the name that llama.cpp has for the way in which a byte-level tokenizer cuts a text."""
    *cuts, last = parts_of(content["pre_tokenizer"])
    way = {(): GPT2, ("Digits",): DIGITS}.get(tuple(cut["type"] for cut in cuts)) if last["use_regex"] else None
    if len(cuts) == 1 and cuts[0]["type"] == "Split" and not last["use_regex"]:
        whole = cuts[0]["behavior"] == "Isolated" and not cuts[0]["invert"]
        way = cuts[0]["pattern"].get("Regex") if whole else None
    if last["add_prefix_space"] or any(cut["type"] == "Digits" and not cut["individual_digits"] for cut in cuts):
        return None
    return NAMES.get((str(way), bool(content["model"].get("ignore_merges"))))


def _sentencepiece_obstacles(content: dict[str, Any]) -> Iterator[str]:
    model = content["model"]
    if not model.get("byte_fallback") or not model["vocab"].keys() >= set(BYTE_TOKENS):
        yield "BPE without bytes"
    if model.get("ignore_merges"):
        yield "ignore_merges"
    blocks = False  # whether spaces become U+2581
    for part in parts_of(content["normalizer"]):
        replaces = part["type"] == "Replace" and (part["pattern"], part["content"]) == ({"String": " "}, LOWER_BLOCK)
        blocks = blocks or replaces
        if not replaces and not (part["type"] == "Prepend" and part["prepend"] == LOWER_BLOCK):
            yield part["type"]
    for part in parts_of(content["pre_tokenizer"]):
        whole = part["type"] == "Metaspace" and part["replacement"] == LOWER_BLOCK and not part.get("split", True)
        blocks = blocks or whole
        if not whole:
            yield part["type"]
    if not blocks:
        yield "BPE without U+2581"
    strange = _unmerged(content)
    if strange is not None:
        yield f"merges: {strange!r}"


def _unmerged(content: dict[str, Any]) -> str | None:
    """Return a token that llama.cpp would merge from two others and this tokenizer would not, or None."""
    vocab = content["model"]["vocab"].keys()
    special = {token["content"] for token in content["added_tokens"]}
    pairs = set(_merges(content))
    return next(
        (
            token
            for token in vocab - special
            for cut in range(1, len(token))
            if (token[:cut], token[cut:]) not in pairs
            and all(part in vocab or len(part) == 1 for part in (token[:cut], token[cut:]))
        ),
        None,
    )
