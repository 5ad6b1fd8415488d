"""The three kinds of tokenizer of jumok as pipelines of Hugging Face `tokenizers`, and their recognition in a file.

    char   NFC -> one token per character, others as UTF-8 byte tokens <0x00>..<0xFF>
    jamo   NFD -> as char, for conjoining jamo (U+1100..) and other decomposed characters
    bpe    NFC -> pieces by PIECES -> UTF-8 bytes -> merges learned from the text

A vocabulary lists special tokens first, then the 256 bytes, then characters by code point, or merges in the order in
which they were learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jumok.errors import TokenizerError
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

KINDS = ("char", "jamo", "bpe")

# How a text is cut into pieces before merges: that of Qwen2, for which other programs have a name. A word with one
# character before it, such as a space or a quotation mark; one digit; other characters with the space before them and
# the newlines after them; newlines with the white space before them; other white space, whose last character belongs to
# the following word.
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# No piece crosses these positions, and the pieces on one side do not depend on the other side.
_SAFE_CUT = re.compile(r"(?<=\S)(?= )|(?<=\n)(?=\S)")

# Learning merges takes time that is quadratic in the length of a piece, so in training long pieces are split. Encoding
# uses whole pieces.
LEARNED = PIECES.replace("+", "{1,256}").replace("*", "{0,256}")

# Added tokens that programs show in a decoded text, while they leave special ones out.
VISIBLE = ("<think>", "</think>")

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))


def _byte_letters() -> tuple[str, ...]:
    """Return the printable letter of each byte in byte-level pipelines (the table of GPT-2)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
_BYTE_OF_LETTER = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}


def letters_to_bytes(token: str) -> bytes:
    """Return the bytes of a token of a byte-level pipeline; a token with other letters is encoded in UTF-8."""
    if all(letter in _BYTE_OF_LETTER for letter in token):
        return bytes(_BYTE_OF_LETTER[letter] for letter in token)
    return token.encode()


def build(
    kind: str,
    vocab: dict[str, int],
    merges: Sequence[tuple[str, str]],
    special_tokens: Iterable[str],
    pieces: str = PIECES,
) -> HFTokenizer:
    """Return the pipeline of `kind`; `vocab` must contain the special tokens."""
    pipeline = HFTokenizer(models.BPE(vocab=vocab, merges=list(merges), byte_fallback=kind != "bpe"))
    pipeline.normalizer = normalizers.NFD() if kind == "jamo" else normalizers.NFC()
    if kind == "bpe":
        pipeline.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pieces), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        pipeline.decoder = decoders.ByteLevel()
    else:
        pipeline.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    pipeline.add_tokens([added_token(token) for token in special_tokens])
    return pipeline


def added_token(token: str) -> AddedToken:
    """Return a token that is found in a text before the pipeline is applied."""
    return AddedToken(token, special=token not in VISIBLE, normalized=False)


def canonical(pipeline: HFTokenizer) -> str:
    """Return a canonical JSON string of the parts of the pipeline that affect ids.

    Truncation, padding and the post-processor, which adds special tokens, are omitted: jumok does not use them, and
    `transformers` writes an empty post-processor to each file.
    """
    content = json.loads(pipeline.to_str())
    kept = {key: content[key] for key in content if key not in ("truncation", "padding", "post_processor")}
    return json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def around(pipeline: HFTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that the post-processor of the pipeline adds before and after a single text.

    Raises:
        TokenizerError: it adds a token that is missing, or does something else with a text.
    """
    steps = [part for part in parts_of(json.loads(pipeline.to_str())["post_processor"]) if part["type"] != "ByteLevel"]
    if len(steps) > 1:  # of these `tokenizers` applies the template of a pair to the result of the first
        raise _unusual(" + ".join(step["type"] for step in steps))
    return _around(steps[0]) if steps else ((), ())


def parts_of(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield a step of a tokenizer.json (normalizer, pre-tokenizer, post-processor), or the steps of a sequence."""
    if step is None:
        return
    if step["type"] != "Sequence":
        yield step
        return
    for name in ("normalizers", "pretokenizers", "processors"):
        for part in step.get(name) or ():
            yield from parts_of(part)


def _around(step: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if step["type"] in ("BertProcessing", "RobertaProcessing"):
        return (step["cls"][1],), (step["sep"][1],)
    before: list[int] = []
    after: list[int] = []
    texts = [piece["Sequence"]["id"] for piece in step["single"] if "Sequence" in piece]
    if texts != ["A"]:
        raise _unusual(" ".join(f"${text}" for text in texts) or "TemplateProcessing")
    place = before
    for piece in step["single"]:
        if "Sequence" in piece:
            place = after
        else:
            token = piece["SpecialToken"]["id"]
            if token not in step["special_tokens"]:
                raise TokenizerError(
                    "the post-processor of the tokenizer adds {token!r}, which is not among its special tokens; "
                    "restore the tokenizer.json from a copy.",
                    token=token,
                )
            place += step["special_tokens"][token]["ids"]
    return tuple(before), tuple(after)


def _unusual(part: str) -> TokenizerError:
    return TokenizerError(
        "the post-processor of the tokenizer does more than add tokens before and after a text ({part}), which jumok "
        "does not support; save the tokenizer with one TemplateProcessing that has $A once.",
        part=part,
    )


def recognise(pipeline: HFTokenizer) -> str:
    """Return which of KINDS `pipeline` is, or "other".

    Each kind is built from the vocabulary of the file and compared with it completely, so that the fast code is not
    used for a pipeline that differs in a detail.
    """
    content = json.loads(pipeline.to_str())
    vocab = content["model"].get("vocab")
    if content["model"]["type"] != "BPE" or sorted(vocab.values()) != list(range(len(vocab))):
        return "other"
    merges = [tuple(pair) for pair in content["model"]["merges"]]
    special_tokens = [token["content"] for token in content["added_tokens"]]
    if not set(special_tokens) <= vocab.keys():
        return "other"
    plain = vocab.keys() - set(special_tokens)
    found = canonical(pipeline)
    for kind in KINDS:
        needed = BYTE_LETTERS if kind == "bpe" else BYTE_TOKENS
        spelled = (
            set("".join(plain)) <= set(BYTE_LETTERS)
            if kind == "bpe"
            else not merges and all(len(token) == 1 for token in plain - set(BYTE_TOKENS))
        )
        if not spelled or not plain.issuperset(needed):
            continue
        try:
            if canonical(build(kind, vocab, merges, special_tokens)) == found:
                return kind
        except BaseException as error:  # merges do not fit the vocabulary
            if not is_refusal(error):
                raise
    return "other"


def require_utf8(text: str) -> None:
    """Raise TokenizerError for a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            "character {start} is U+{code:04X}, half of a surrogate pair, which is not text; read "
            "the file with the right encoding, or remove it",
            start=error.start,
            code=ord(text[error.start]),
        ) from None


def is_refusal(error: BaseException) -> bool:
    """Return whether the library refused its input: it raises bare Exception, or panics, which is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def token_bytes(kind: str, vocab: dict[str, int], special_tokens: Iterable[str]) -> list[bytes]:
    """Return the UTF-8 bytes of each id, for one of KINDS."""
    byte_of_token = {token: byte for byte, token in enumerate(BYTE_TOKENS)}
    specials = set(special_tokens)

    def spelled(token: str) -> bytes:
        if token in specials:
            return token.encode()
        if kind == "bpe":
            return letters_to_bytes(token)
        return bytes([byte_of_token[token]]) if token in byte_of_token else token.encode()

    return [spelled(token) for token in sorted(vocab, key=vocab.__getitem__)]


def last_cut(text: str) -> int:
    """Return the last position where the bpe pipeline can encode both parts separately, or -1.

    It is before a space that follows another character, or after a newline that another character follows.
    """
    # Search from the right in growing windows: the position is usually within one word of the end.
    window = 256
    while True:
        start = max(0, len(text) - window)
        cuts = [match.start() for match in _SAFE_CUT.finditer(text, start)]
        if cuts or start == 0:
            return cuts[-1] if cuts else -1
        window *= 8
