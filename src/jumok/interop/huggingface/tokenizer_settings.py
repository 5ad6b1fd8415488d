"""The files beside a tokenizer.json that change it, as `transformers` 5 reads them.

tokenizer.json says how a text is split. Beside it, tokenizer_config.json, special_tokens_map.json and added_tokens.json
add tokens, and some settings of tokenizer_config.json replace parts of the pipeline. Which ones depends on the class of
the tokenizer: PreTrainedTokenizerFast leaves the pipeline as it is.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.config.huggingface import read_json
from jumok.errors import RunError
from jumok.messages import tr
from jumok.tokenizers import ROLES
from jumok.tokenizers._pipeline import parts_of
from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer

HALF_PAIR = re.compile("[\ud800-\udfff]")  # of surrogates: JSON can hold it
WORDPIECE = ("BertTokenizer", "ElectraTokenizer", "DistilBertTokenizer")
BYTE_LEVEL = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "Qwen2Tokenizer", "GPTNeoXTokenizer")
METASPACE = ("XLMRobertaTokenizer", "LlamaTokenizer")
CLASSES = {  # by model_type, if no class is named
    "bert": "BertTokenizer",
    "electra": "BertTokenizer",
    "roberta": "RobertaTokenizer",
    "bart": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "gpt2": "GPT2Tokenizer",
    "gpt_neox": "GPTNeoXTokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
}
BRACKETS = {role: ROLES[role][0] for role in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")}
_ANGLES = {
    "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "<unk>",
    "pad_token": "<pad>", "mask_token": "<mask>",
}  # fmt: skip
_END_OF_TEXT = dict.fromkeys(("unk_token", "bos_token", "eos_token"), "<|endoftext|>")
USUAL_ROLES: dict[str, dict[str, str]] = {  # of classes, for roles that a folder does not name
    **dict.fromkeys(WORDPIECE, BRACKETS),
    **dict.fromkeys(("RobertaTokenizer", "BartTokenizer", "XLMRobertaTokenizer"), _ANGLES),
    "GPT2Tokenizer": _END_OF_TEXT,
    "GPTNeoXTokenizer": _END_OF_TEXT | {"pad_token": "<|padding|>"},
    "Qwen2Tokenizer": dict.fromkeys(("unk_token", "eos_token", "pad_token"), "<|endoftext|>"),
    "LlamaTokenizer": {role: _ANGLES[role] for role in ("unk_token", "bos_token", "eos_token")},
}
MOST_DIGITS = 9  # of an id
IN_ORDER = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
PROPERTIES = ("single_word", "lstrip", "rstrip", "normalized", "special")
# What clean_up_tokenization_spaces does with a decoded text, in this order.
CLEANED = {
    " .": ".", " ?": "?", " !": "!", " ,": ",", " ' ": "'", " n't": "n't", " 'm": "'m", " 's": "'s", " 've": "'ve",
    " 're": "'re",
}  # fmt: skip
CLEAN_BPE = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
# How `tokenizers` joins the tokens of a pipeline without a decoder. No token begins with this prefix.
BY_SPACES = {"type": "WordPiece", "prefix": "\0", "cleanup": False}


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenizerSettings:
    """The settings of the tokenizer in a folder.

    Attributes:
        folder: for messages.
        values: of tokenizer_config.json, with those of the older files that `transformers` reads.
        chosen: the class that it chooses, without "Fast", or None.
        older: the tokens with ids are those of added_tokens.json.
    """

    folder: Path
    values: dict[str, Any]
    chosen: str | None
    older: bool

    @classmethod
    def read(cls, folder: Path) -> TokenizerSettings:
        """Read the settings of a folder.

        Raises:
            RunError: a file is damaged.
        """
        values, stock = _read(folder / "tokenizer_config.json"), _read(folder / "config.json")
        older = "added_tokens_decoder" not in values  # which has all that the other files have
        if older:
            values |= _read(folder / "special_tokens_map.json")
            added = _read(folder / "added_tokens.json")
            values["added_tokens_decoder"] = {str(number): token for token, number in added.items()}
        usual = CLASSES.get(str(stock.get("model_type")))
        chosen = values.get("tokenizer_class") or stock.get("tokenizer_class") or usual
        if stock.get("model_type") == "qwen2":  # transformers does not trust the class that these folders name
            chosen = usual
        return cls(folder, values, None if chosen is None else str(chosen).removesuffix("Fast"), older)

    @property
    def roles(self) -> dict[str, str]:
        """Return the token of each role: the one that the settings name, or the usual one of the class.

        A token is a string, or an object with its content. One with half of a surrogate pair is left out: no vocabulary
        can have it.
        """
        usual = USUAL_ROLES.get(str(self.chosen), {})
        given = {**usual, **{role: self.values[role] for role in ROLES if role in self.values}}
        texts = {role: token.get("content") if isinstance(token, dict) else token for role, token in given.items()}
        return {role: text for role, text in texts.items() if isinstance(text, str) and not HALF_PAIR.search(text)}

    def flag(self, name: str, usual: bool | None) -> bool | None:
        """Return a setting that is true or false, or `usual` if there is none.

        Raises:
            RunError: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.damaged(name, value)
        return usual if value is None else value

    def damaged(self, name: str, value: object) -> RunError:
        """Return the error for a value that cannot be read."""
        return RunError(
            "{folder}: {name} in the settings of the tokenizer is {value!r}, which cannot be read; correct "
            "tokenizer_config.json, or restore it from a copy.",
            folder=self.folder,
            name=name,
            value=value,
        )


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


# --- tokens -----------------------------------------------------------------------------------------------------------


def add_tokens(pipeline: HFTokenizer, settings: TokenizerSettings, size: int) -> None:
    """Add the tokens of the settings to a pipeline, and mark those with a role as special.

    Tokens that the model has no ids for are left out.

    Args:
        size: how many ids the model has.

    Raises:
        RunError: a token is damaged, or would get another id than the folder says.
    """
    known = {token.content for token in pipeline.get_added_tokens_decoder().values()}
    numbered = {
        number: token
        for number, token in _numbered(settings)
        if number < size and not (settings.older and token.content in known)
    }
    new = {number: token for number, token in numbered.items() if pipeline.token_to_id(token.content) is None}
    pipeline.add_tokens([numbered[number] for number in sorted(numbered)])
    for number, token in new.items():
        found = pipeline.token_to_id(token.content)
        if found != number:
            raise RunError(
                "{folder}: {token} has the id {number} in tokenizer_config.json, and the next one after those of "
                "tokenizer.json is {found}; one of the files is of another model.",
                folder=settings.folder,
                token=token.content,
                number=number,
                found=found,
            )
    for special in _special(settings):
        added = {token.content: token for token in pipeline.get_added_tokens_decoder().values()}
        token = added.get(special.content, special)
        if pipeline.token_to_id(token.content) is not None or _next_id(pipeline) < size:
            pipeline.add_special_tokens([token])


def _next_id(pipeline: HFTokenizer) -> int:
    """Return the id of the next token that is added: after those of the model, and after all that were added."""
    return max(
        pipeline.get_vocab_size(with_added_tokens=False), *(i + 1 for i in pipeline.get_added_tokens_decoder()), 0
    )


def _numbered(settings: TokenizerSettings) -> Iterator[tuple[int, AddedToken]]:
    """Yield the tokens for which the settings give an id."""
    given = settings.values["added_tokens_decoder"]
    if not isinstance(given, dict):
        raise settings.damaged("added_tokens_decoder", given)
    for number, token in given.items():
        if not number.isdecimal() or len(number) > MOST_DIGITS:
            raise settings.damaged("added_tokens_decoder", number)
        yield int(number), _token(token, settings, special=False)


def _special(settings: TokenizerSettings) -> list[AddedToken]:
    """Return the tokens with a role, those with another name that ends with _token, and the further special tokens."""
    values, roles = settings.values, settings.roles
    found: list[object] = [values.get(role) or roles[role] for role in IN_ORDER if role in roles]
    found += [
        value for name, value in values.items()
        if name.endswith("_token") and name not in ROLES and isinstance(value, str)
    ]  # fmt: skip
    further = values.get("extra_special_tokens") or values.get("additional_special_tokens") or []
    found += further.values() if isinstance(further, dict) else further if isinstance(further, list) else []
    return [_token(value, settings, special=True) for value in found]


def _token(value: object, settings: TokenizerSettings, *, special: bool) -> AddedToken:
    """Return a token, which the settings have as a string or as an object with its properties."""
    given = {"content": value} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("content"), str) or HALF_PAIR.search(given["content"]):
        raise settings.damaged(tr("a token"), value)
    properties = {name: given[name] for name in PROPERTIES if name in given}
    if not all(isinstance(flag, bool) for flag in properties.values()):
        raise settings.damaged(given["content"], properties)
    return AddedToken(given["content"], **{"special": special, **properties})


# --- the pipeline -----------------------------------------------------------------------------------------------------


def with_settings(pipeline: HFTokenizer, settings: TokenizerSettings) -> HFTokenizer:
    """Return the pipeline with the settings that the class of the tokenizer applies to it.

    Raises:
        RunError: versions of `transformers` read a setting in different ways; or it is damaged.
    """
    content = json.loads(pipeline.to_str())
    before = copy.deepcopy({name: content[name] for name in ("normalizer", "pre_tokenizer", "decoder")})
    if settings.chosen in WORDPIECE:
        flags = {
            "lowercase": settings.flag("do_lower_case", True),
            "strip_accents": settings.flag("strip_accents", None),  # None: as lowercase
            "handle_chinese_chars": settings.flag("tokenize_chinese_chars", True),
        }
        for part in parts_of(content["normalizer"]):
            if part["type"] == "BertNormalizer":
                part |= flags
    _set_prefix(content, settings)
    if settings.flag("clean_up_tokenization_spaces", False) and (
        content["model"]["type"] != "BPE" or settings.flag(CLEAN_BPE, False)
    ):
        steps = [{"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in CLEANED.items()]
        decoders = [content["decoder"] or BY_SPACES, {"type": "Fuse"}, *steps]
        content["decoder"] = {"type": "Sequence", "decoders": decoders}
    unchanged = all(content[name] == part for name, part in before.items())
    return pipeline if unchanged else HFTokenizer.from_str(json.dumps(content))


def _set_prefix(content: dict[str, Any], settings: TokenizerSettings) -> None:
    """Set whether a space is put before each text.

    Raises:
        RunError: the settings contradict the file, and versions 4 and 5 of `transformers` differ in which they follow.
    """
    wanted = settings.flag("add_prefix_space", None)
    parts = list(parts_of(content["pre_tokenizer"]))
    if settings.chosen in BYTE_LEVEL:
        for part in parts:
            if part["type"] == "ByteLevel":
                part["add_prefix_space"] = bool(wanted)
        return
    found: bool | None
    if settings.chosen in METASPACE:
        schemes = [part["prepend_scheme"] for part in parts if part["type"] == "Metaspace"]
        schemes += [part["type"] for part in parts_of(content["normalizer"]) if part["type"] == "Prepend"]
        found = any(scheme != "never" for scheme in schemes)
    else:  # of a ByteLevel that is not in a sequence; version 5 follows the file
        found = (content["pre_tokenizer"] or {}).get("add_prefix_space", wanted)
    if wanted is not None and found != wanted:
        raise RunError(
            "{folder}: tokenizer_config.json says add_prefix_space {wanted}, tokenizer.json says {found}, and "
            "transformers follows the one or the other by its version; write what the model was trained with in both.",
            folder=settings.folder,
            wanted=json.dumps(wanted),
            found=json.dumps(found),
        )
