"""`Tokenizer`: fast encoding and lossless decoding with a `tokenizer.json`."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jumok.errors import TokenizerError
from jumok.files import make_folder, on_disk, write_atomic
from jumok.text.boundaries import last_fresh_start, recut, slices
from jumok.text.hangul import nfc, nfd
from jumok.tokenizers import _pipeline
from jumok.tokenizers._stream import ByteStream, Stream, WindowStream
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders

if TYPE_CHECKING:
    from jumok.tokenizers._chat import ChatTemplate

Ids = NDArray[Any]  # integers, (tokens,); a tokenizer returns Tokenizer.dtype

# From the names of the roles in transformers to the usual tokens.
ROLES = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("[BOS]", "<s>"),
    "eos_token": ("[EOS]", "</s>"),
}

LARGEST_ID = 5_000_000  # published vocabularies have up to a million tokens
_CODE_POINTS = 0x110000
_BPE_SLICE = 1 << 14  # characters per worker and call; 2^8 to 2^17 were slower
_BPE_BATCH = 64  # slices


class Tokenizer:
    """Encodes text to ids and decodes ids to text.

    Create one with `train_tokenizer`, or with `load` from any Hugging Face `tokenizer.json`.

    For the kinds `char`, `jamo` and `bpe`:

    - `decode(encode(text)) == nfc(text)` for every text that UTF-8 can encode.
    - The ids are those of `transformers.PreTrainedTokenizerFast(tokenizer_file=...)`, except for characters of the
      newest scripts, for which its Unicode tables can differ from those of Python.
    - Its decoded text is the same, except that `jamo` is decomposed (NFD) there.
    - `encode` reads a special token in the text, such as "[MASK]", as ordinary characters, `encode_prompt` as the token
      if the tokenizer has a chat template. Exports say the same: `split_special_tokens` is true without a template.

    All other tokenizers have the kind "other". Their encoding can lose characters, and reads special tokens in a text
    as tokens. `encode` adds no special tokens and does not truncate or pad, whatever the file specifies.

    Attributes:
        kind: "char", "jamo", "bpe" or "other"; recognised from the pipeline.
        vocab_size: all ids are less than this.
        dtype: the smallest unsigned integer type for all ids.
        fingerprint: SHA-256 of the canonical form of the pipeline; equal for equal tokenizers.
        special_tokens: the special tokens and their ids.
        around: the ids that `transformers` adds before and after each text, as the file specifies; `encode` does not.
        roles: the special token of each role that a published tokenizer names, such as "eos_token".
        chat_templates: Jinja templates of chats by name, usually one, "default"; see `jumok.tokenizers.ChatTemplate`.
    """

    def __init__(self, pipeline: HFTokenizer) -> None:  # modifies `pipeline`
        pipeline.no_truncation()
        pipeline.no_padding()
        vocab = pipeline.get_vocab(with_added_tokens=True)
        if not vocab:
            raise TokenizerError("the tokenizer has an empty vocabulary; train it first, or give another file")
        if max(vocab.values()) > LARGEST_ID:  # `to_str` goes through all ids up to it, and takes memory for each
            raise TokenizerError(
                "the tokenizer has the id {found:,}; ids may be up to {most:,}. The file is damaged: restore it from a "
                "copy.",
                found=max(vocab.values()),
                most=LARGEST_ID,
            )
        self.roles: dict[str, str] = {}
        self.chat_templates: dict[str, str] = {}
        self._json = pipeline.to_str(pretty=True)
        self.kind: str = _pipeline.recognise(pipeline)
        self.vocab_size: int = max(vocab.values()) + 1
        self.dtype: np.dtype[Any] = np.min_scalar_type(self.vocab_size - 1)
        self.around: tuple[tuple[int, ...], tuple[int, ...]] = _pipeline.around(pipeline)
        self.fingerprint: str = hashlib.sha256(_pipeline.canonical(pipeline).encode()).hexdigest()
        self.special_tokens: dict[str, int] = {
            token.content: token_id
            for token_id, token in sorted(pipeline.get_added_tokens_decoder().items())
            if token.special or self.kind != "other"
        }
        self._pipeline = self._encoder = pipeline
        self._spells_bytes: bool = self.kind != "other" or isinstance(pipeline.decoder, decoders.ByteLevel)
        if self.kind == "other":
            return
        self._bytes = _pipeline.token_bytes(self.kind, vocab, self.special_tokens)
        if self.kind == "bpe":
            # Text is normalised with Python's tables before, and special tokens in it are ordinary characters.
            pipeline.normalizer = None
            pipeline.encode_special_tokens = True
            if not set(_pipeline.VISIBLE).isdisjoint(self.special_tokens):  # these are not special there
                self._encoder = HFTokenizer.from_str(json.dumps(json.loads(pipeline.to_str()) | {"added_tokens": []}))
        else:
            self._byte_ids = np.array([vocab[token] for token in _pipeline.BYTE_TOKENS], self.dtype)
            # The id of each code point. <0x00> means none; U+0000 is encoded as that byte anyway.
            self._id_of = np.full(_CODE_POINTS, self._byte_ids[0], self.dtype)
            for token, token_id in vocab.items():
                if len(token) == 1:
                    self._id_of[ord(token)] = token_id

    def __repr__(self) -> str:
        return f"Tokenizer(kind={self.kind!r}, vocab_size={self.vocab_size}, fingerprint={self.fingerprint[:12]!r})"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """Load a `tokenizer.json`, written by `save` or by another program.

        Raises TokenizerError if the file is missing, cannot be read, or is not a tokenizer.
        """
        try:
            content = on_disk(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(
                "cannot read the tokenizer {path}: {error}; give the path of a tokenizer.json, or train one with "
                "jumok.train_tokenizer",
                path=path,
                error=error,
            ) from error
        try:
            return cls.from_json(content)
        except TokenizerError as error:
            raise TokenizerError("{path}: {error}", path=path, error=error) from error

    @classmethod
    def from_json(cls, content: str) -> Tokenizer:
        """Make a tokenizer from the content of a `tokenizer.json`. Raises TokenizerError if it is invalid."""
        try:
            pipeline = HFTokenizer.from_str(content)
        except BaseException as error:
            if not _pipeline.is_refusal(error):
                raise
            raise TokenizerError(
                "this is not a complete tokenizer.json of the Hugging Face tokenizers library ({error}); "
                "save it again, or train a new one with jumok.train_tokenizer",
                error=error,
            ) from error
        return cls(pipeline)

    def to_json(self) -> str:
        """Return the content of the `tokenizer.json`."""
        return self._json

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `tokenizer.json` to `path` atomically; missing folders are created.

        Raises OSError if it cannot be written; an existing file is then unchanged.
        """
        target = on_disk(path)
        make_folder(target.parent)
        write_atomic(target, self._json)

    def id_of(self, role: str) -> int | None:
        """Return the id of the special token that has a role, or None."""
        return self.special_tokens.get(self.roles.get(role, ""))

    @cached_property
    def chat(self) -> ChatTemplate | None:
        """The template of chats; None if the tokenizer has none.

        Raises:
            TokenizerError: there are several, none of which is the default one.
        """
        if not self.chat_templates:
            return None
        if "default" not in self.chat_templates:
            raise TokenizerError(
                "this tokenizer has the chat templates {names}, and none with the name 'default'; name one so.",
                names=", ".join(sorted(self.chat_templates)),
            )
        from jumok.tokenizers._chat import ChatTemplate  # most models hold no conversations

        return ChatTemplate(self.chat_templates["default"], self._json, self.roles)

    def at(self, time: datetime) -> Tokenizer:
        """Return this tokenizer with a chat template that writes all chats as at this time, if it has one."""
        if self.chat is None:
            return self
        tokenizer = copy(self)
        tokenizer.chat = self.chat.at(time)
        return tokenizer

    def read_chat_templates(self, given: object) -> None:
        """Take the chat templates of a tokenizer_config.json: a template, or a list of named ones.

        Raises:
            TokenizerError: it is neither, or a template is too long.
        """
        if given is None:
            return
        from jumok.tokenizers._chat import LARGEST_TEMPLATE

        named = {"default": given} if isinstance(given, str) else given
        if isinstance(named, list) and all(isinstance(one, dict) for one in named):
            named = {one.get("name"): one.get("template") for one in named}
        if not isinstance(named, dict) or not all(isinstance(one, str) for pair in named.items() for one in pair):
            raise TokenizerError("chat_template is neither a text nor a list of named texts; restore it from a copy.")
        for name, template in named.items():
            if len(template) > LARGEST_TEMPLATE:
                raise TokenizerError(
                    "the chat template {name!r} has {size:,} characters; at most {most:,} are read.",
                    name=name,
                    size=len(template),
                    most=LARGEST_TEMPLATE,
                )
        self.chat_templates = dict(named)

    def settings(self) -> dict[str, Any]:
        """Return the roles and chat templates in the form of tokenizer_config.json; {} if there are none."""
        templates = self.chat_templates
        if set(templates) == {"default"}:
            return {**self.roles, "chat_template": templates["default"]}
        listed = [{"name": name, "template": template} for name, template in templates.items()]
        return {**self.roles, "chat_template": listed} if listed else dict(self.roles)

    def encode(self, text: str) -> Ids:
        """Return the ids of `text`: shape (tokens,), dtype `self.dtype`.

        Raises TokenizerError for a lone surrogate, which UTF-8 cannot encode.
        """
        _pipeline.require_utf8(text)
        if self.kind == "char":
            return self._encode_characters(nfc(text))
        if self.kind == "jamo":
            return self._encode_characters(nfd(text))
        if self.kind == "bpe":
            return self._run(recut(slices(nfc(text), _BPE_SLICE), _pipeline.last_cut))
        return self._run([text])

    def encode_prompt(self, text: str) -> Ids:
        """Return the ids of a prompt, which may be a chat that a template has written already.

        With a chat template the special tokens in the text become their ids, as in `transformers` and llama.cpp.
        Without one, the ids are those of `encode`.

        Raises TokenizerError as `encode`.
        """
        if self.kind == "other" or not self.chat_templates:
            return self.encode(text)
        _pipeline.require_utf8(text)
        parts = (
            self.encode(part) if i % 2 == 0 else np.array([self.special_tokens[part]], self.dtype)
            for i, part in enumerate(self._special_pattern.split(text))
        )
        return np.concatenate([*parts])

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.special_tokens, key=len, reverse=True)
        return re.compile("(" + ("|".join(map(re.escape, longest_first)) or "(?!)") + ")")

    def encode_chunks(self, chunks: Iterable[str]) -> Iterator[Ids]:
        """Encode a text given in chunks; only a few chunks are held in memory.

        For `char`, `jamo` and `bpe` the joined arrays equal `encode("".join(chunks))`, wherever the chunks end. For the
        kind "other" the text is cut at newlines, which can change ids there.
        """
        return map(self.encode, self.cut(chunks))

    def cut(self, chunks: Iterable[str]) -> Iterator[str]:
        """Cut a text given in chunks into the pieces that `encode_chunks` encodes one by one."""
        return recut(chunks, self._find_cut)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Return the text of `ids`, special tokens included.

        Invalid UTF-8 is replaced by U+FFFD, as in `bytes.decode(errors="replace")`; a model with little training
        generates such ids. For `jamo` the text is composed (NFC). For `char` and `bpe` it is not normalised; for ids
        from `encode` it is in NFC.

        Raises TokenizerError for ids outside the vocabulary or not in one dimension.
        """
        checked = self._checked(ids)
        if self.kind == "other":
            return str(self._pipeline.decode(checked, skip_special_tokens=False))
        text = b"".join(map(self._bytes.__getitem__, checked)).decode("utf-8", "replace")
        return nfc(text) if self.kind == "jamo" else text

    def stream(self) -> Stream:
        """Return an incremental decoder for one text: `push(id)` each token, then `flush()`."""
        if self.kind == "other":
            return WindowStream(self.decode)
        known = self._bytes

        def bytes_of_one(token_id: int) -> bytes:  # the check takes longer than all else that is done for a token
            return known[token_id if 0 <= token_id < len(known) else self._checked([token_id])[0]]

        return ByteStream(bytes_of_one, compose=self.kind == "jamo")

    def pieces(self, ids: Sequence[int] | Ids) -> list[str]:
        """Return a readable string for each id; bytes of an incomplete character are written as "<EA>".

        Raises TokenizerError for ids outside the vocabulary or not in one dimension.
        """
        checked = self._checked(ids)
        if self.kind == "other":
            return [self._pipeline.id_to_token(token_id) or "" for token_id in checked]
        return [_readable(self._bytes[token_id]) for token_id in checked]

    @property
    def algorithm(self) -> str:
        """Return how the tokenizer splits a word: "BPE", "Unigram", "WordPiece" or "WordLevel"."""
        return type(self._pipeline.model).__name__

    def strips(self, token: str) -> tuple[bool, bool]:
        """Return whether white space before and after a special token in a text belongs to the token."""
        found = self._pipeline.get_added_tokens_decoder()[self.special_tokens[token]]
        return bool(found.lstrip), bool(found.rstrip)

    def bytes_of(self, ids: Sequence[int] | Ids) -> list[bytes] | None:
        """Return the UTF-8 bytes of each id, or None if the tokenizer is not byte-level.

        The kinds `char`, `jamo` and `bpe` are byte-level here, as are tokenizers such as that of GPT-2.

        Raises TokenizerError for ids outside the vocabulary or not in one dimension.
        """
        checked = self._checked(ids)
        if not self._spells_bytes:
            return None
        if self.kind != "other":
            return [self._bytes[token_id] for token_id in checked]
        added = {token_id: token.content for token_id, token in self._pipeline.get_added_tokens_decoder().items()}
        return [
            added[token_id].encode()
            if token_id in added
            else _pipeline.letters_to_bytes(self._pipeline.id_to_token(token_id) or "")
            for token_id in checked
        ]

    @cached_property
    def unknown_token(self) -> str | None:
        """The token that stands for what the vocabulary lacks; None if there is none."""
        model = json.loads(self._json)["model"]
        if model.get("unk_id") is not None:  # Unigram
            return str(model["vocab"][model["unk_id"]][0])
        return model.get("unk_token")

    @property
    def _find_cut(self) -> Callable[[str], int]:
        if self.kind == "other":
            return _after_last_newline
        return _pipeline.last_cut if self.kind == "bpe" else last_fresh_start

    def _encode_characters(self, text: str) -> Ids:
        """Look up all code points at once, then replace the unknown ones by their bytes."""
        points = np.frombuffer(text.encode("utf-32-le"), np.dtype("<u4"))
        ids = self._id_of[points]
        unknown = ids == self._byte_ids[0]
        if not unknown.any():
            return ids
        lost = points[unknown]
        lengths = np.ones(len(ids), np.intp)
        lengths[unknown] += (lost >= 0x80).astype(np.intp) + (lost >= 0x800) + (lost >= 0x10000)
        spelled = np.frombuffer(lost.tobytes().decode("utf-32-le").encode(), np.uint8)
        ids = np.repeat(ids, lengths)
        ids[np.repeat(unknown, lengths)] = self._byte_ids[spelled]
        return ids

    def _run(self, texts: Iterable[str]) -> Ids:
        """Encode `texts` with the library, on all cores, and join the ids."""
        waiting = iter(texts)
        parts = [np.empty(0, self.dtype)]
        # In batches, because an `Encoding` of the library takes much more memory than its ids.
        while batch := list(itertools.islice(waiting, _BPE_BATCH)):
            try:
                encodings = self._encoder.encode_batch_fast(batch, add_special_tokens=False)
            except Exception as error:  # the library raises bare Exception
                raise TokenizerError(
                    "the tokenizer cannot encode this text ({error}); use one with an unknown token or byte fallback",
                    error=error,
                ) from error
            parts.extend(np.array(encoding.ids, self.dtype) for encoding in encodings)
        return np.concatenate(parts)

    def _checked(self, ids: Sequence[int] | Ids) -> list[int]:
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TokenizerError(
                "ids must be whole numbers in one dimension, not shape {shape} of {dtype}; decode the "
                "rows of a batch one by one",
                shape=array.shape,
                dtype=array.dtype,
            )
        outside = array[(array < 0) | (array >= self.vocab_size)] if array.size else array
        if outside.size:
            raise TokenizerError(
                "id {id} is outside the vocabulary, whose ids are 0 to {last}; decode with the tokenizer "
                "that belongs to the model",
                id=outside[0],
                last=self.vocab_size - 1,
            )
        return [int(token_id) for token_id in array.tolist()]


def _after_last_newline(text: str) -> int:
    return text.rfind("\n") + 1 or -1


def _readable(token: bytes) -> str:
    # surrogateescape decodes an invalid byte 0xEA to U+DCEA.
    return re.sub(
        "[\udc80-\udcff]",
        lambda match: f"<{ord(match[0]) - 0xDC00:02X}>",
        token.decode("utf-8", "surrogateescape"),
    )
