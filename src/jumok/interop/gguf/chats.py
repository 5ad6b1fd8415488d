"""How llama.cpp reads the conversations of a model, and what a file says so that it reads the same ids.

llama.cpp renders the template, takes a first token away that it puts before every text itself, and encodes the rest. A
file says two things that hold for prompts and conversations alike: whether a token stands before a text, and whether a
space is put where a text begins and after each special token. `transformers` and jumok put no token before a
conversation but what the template writes, and some tokenizers of SentencePiece a space only before the first word.

Both are chosen so that conversations have the same ids. `PROBES` are encoded in both ways to find out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import product

from jumok.config import GPTConfig
from jumok.errors import JumokError, TokenizerError
from jumok.interop.gguf.vocabulary import LOWER_BLOCK, Vocabulary
from jumok.messages import tr
from jumok.tokenizers import ROLES, ChatTemplate, Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import normalizers

Messages = Sequence[dict[str, str]]

# Messages that begin and end with letters, spaces, newlines and digits. A template may refuse some of them.
_WORDS = ("가 나?", " 다", "3 라\n", "마", "\n바", "  사  아 ", "(자")
_SYSTEM = {"role": "system", "content": "차 카"}
_CHAT = [{"role": ("user", "assistant")[i % 2], "content": words} for i, words in enumerate(_WORDS)]
_THINKING = [_CHAT[0], {**_CHAT[3], "role": "assistant", "reasoning_content": "타 파"}, _CHAT[2]]
PROBES: tuple[Messages, ...] = (*(_CHAT[:count] for count in (1, 3, 5, 7)), *([one] for one in _CHAT[2::2]), _THINKING)
PROBES += tuple([_SYSTEM, *one] for one in PROBES)


def for_chats(
    vocabulary: Vocabulary, tokenizer: Tokenizer, start: int | None
) -> tuple[Vocabulary, bool, tuple[str, ...]]:
    """Return the vocabulary for a file, whether `start` stands before each text, and what differs for prompts.

    Args:
        start: the id that the model reads before each text, if there is one.

    Raises:
        JumokError: llama.cpp would read other ids in conversations, whatever the file says.
    """
    chat = tokenizer.chat if "default" in tokenizer.chat_templates else None
    conversations = [] if chat is None else [*_encoded(chat)]
    before = "" if start is None else vocabulary.tokens[start]
    begins = (True, False) if start is not None else (False,)
    for begun, spaced in product(begins, (True, False) if vocabulary.spaced else (False,)):
        pipeline = _as_llama_cpp_reads(tokenizer, spaced) if vocabulary.algorithm == "llama" else _plain(tokenizer)
        if all(ids == _read(pipeline, text, start if begun else None, before) for text, ids in conversations):
            notes = []
            if begun != begins[0]:
                notes.append(
                    tr(
                        "Conversations of this model begin without {token}, so llama.cpp puts it before no text. Where "
                        "it continues a text, write {token} at the beginning of the prompt.",
                        token=before,
                    )
                )
            if spaced != vocabulary.spaced:
                notes.append(
                    tr(
                        "This tokenizer puts a space before a text, and none in conversations, so llama.cpp puts none. "
                        "Where it continues a text, write a space at the beginning of the prompt."
                    )
                )
            elif any(_read(pipeline, text, None, "") != tokenizer.encode(text).tolist() for text in _texts(tokenizer)):
                notes.append(
                    tr(
                        "A prompt that begins with a space, or has a special token inside, is read with one space more "
                        "by llama.cpp than by this tokenizer."
                    )
                )
            return replace(vocabulary, spaced=spaced), begun, tuple(notes)
    raise JumokError(
        "llama.cpp would give other ids than this tokenizer to conversations: it puts a space after every special "
        "token or after none, and this tokenizer after some of them. Use `jumok convert --to hf`."
    )


def template_for(source: str, vocabulary: Vocabulary, config: GPTConfig, tokenizer: Tokenizer, bos: int | None) -> str:
    """Return a template that writes the special tokens of the tokenizer.

    llama.cpp takes `bos_token` and `eos_token` from the ids of the file, and knows no other role.
    """
    ends = next(iter(config.eos_ids), vocabulary.end)
    theirs = {"eos_token": vocabulary.tokens[ends], "bos_token": "" if bos is None else vocabulary.tokens[bos]}
    sets = [
        f"{{%- set {role} = {json.dumps(text, ensure_ascii=False)} %}}"
        for role in ROLES
        if role in source and theirs.get(role) != (text := tokenizer.roles.get(role, "")) and (text or role in theirs)
    ]
    return "".join(sets) + ("\n" if sets and source.startswith("\n") else "") + source


def _texts(tokenizer: Tokenizer) -> list[str]:
    """Return texts in which tokenizers of SentencePiece differ in the spaces that they put; none for other kinds."""
    if tokenizer.kind != "other":
        return []
    return [" 가", *(f"가{token}나" for token in tokenizer.special_tokens)]


def _encoded(chat: ChatTemplate) -> Iterator[tuple[str, list[int]]]:
    """Yield the text and the ids of each probe that the template does not refuse."""
    chat = chat.at(datetime.now())  # a template may write the time
    for messages in PROBES:
        with suppress(TokenizerError):
            yield chat.render(messages), chat.encode(messages)


def _read(pipeline: HFTokenizer, text: str, start: int | None, before: str) -> list[int]:
    """Return the ids of a rendered conversation as llama.cpp reads it. start: the id that it puts before each text."""
    if start is None:
        return list(pipeline.encode(text, add_special_tokens=False).ids)
    return [start, *pipeline.encode(text.removeprefix(before), add_special_tokens=False).ids]


def _plain(tokenizer: Tokenizer) -> HFTokenizer:
    return HFTokenizer.from_str(json.dumps({**json.loads(tokenizer.to_json()), "post_processor": None}))


def _as_llama_cpp_reads(tokenizer: Tokenizer, spaced: bool) -> HFTokenizer:
    """Return a pipeline that cuts a text as llama.cpp does.

    Args:
        spaced: put a space at the beginning and after each special token.
    """
    content = json.loads(tokenizer.to_json()) | {"pre_tokenizer": None, "post_processor": None}
    content["added_tokens"] = [{**token, "normalized": False} for token in content["added_tokens"]]
    pipeline = HFTokenizer.from_str(json.dumps(content))
    if tokenizer.kind == "other":
        prefix = [normalizers.Prepend(LOWER_BLOCK)] if spaced else []
        pipeline.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", LOWER_BLOCK)])
    return pipeline
