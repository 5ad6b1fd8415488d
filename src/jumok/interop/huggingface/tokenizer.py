"""Reading and writing the tokenizer of a Hugging Face folder."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig
from jumok.config.huggingface import read_json
from jumok.errors import RunError
from jumok.interop.huggingface.slow_tokenizer import convert, slow_files
from jumok.messages import tr
from jumok.models.framing import Framing, source_frame
from jumok.tokenizers import LARGEST_TEMPLATE, ROLES, Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

# Classes whose vocab.txt is one of WordPiece. jumok itself writes PreTrainedTokenizerFast.
WORDPIECE_CLASSES = {
    f"{name}Tokenizer{fast}" for name in ("Bert", "Electra", "DistilBert") for fast in ("", "Fast")
} | {"PreTrainedTokenizerFast"}
WORDPIECE = {role: ROLES[role][0] for role in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")}
HALF_PAIR = re.compile("[\ud800-\udfff]")  # of surrogates: JSON can hold it


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    """Return the tokenizer of a folder, or None if it has none.

    It is read from tokenizer.json, or from a vocab.txt as of BERT; other forms are converted with `transformers`.
    Tokens with a role in tokenizer_config.json or special_tokens_map.json, such as [MASK], become special tokens, even
    if tokenizer.json does not mark them.

    Raises:
        RunError: a file is damaged, or the tokenizer has more ids than the model.
        TokenizerError: the tokenizer.json is invalid, or another form cannot be converted.
    """
    settings = _settings(folder)
    if (folder / "tokenizer.json").is_file():
        name, roles = "tokenizer.json", _named(settings)
        pipeline = HFTokenizer.from_str(Tokenizer.load(folder / name).to_json())
    elif (folder / "vocab.txt").is_file():
        name, roles = "vocab.txt", WORDPIECE | _named(settings)
        pipeline = _wordpiece(folder / name, settings, roles)
    elif files := slow_files(folder):
        name, roles = files[0], _named(settings)
        pipeline = convert(folder, files, config)
    else:
        return None
    known = [token for token in roles.values() if pipeline.token_to_id(token) is not None]
    added = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    pipeline.add_special_tokens([token for token in known if token not in added])
    tokenizer = Tokenizer(pipeline)
    tokenizer.roles = {role: token for role, token in roles.items() if token in known}
    tokenizer.read_chat_templates(_chat_templates(folder) or settings.get("chat_template"))
    if tokenizer.vocab_size > config.vocab_size:
        raise RunError(
            "{folder}: {name} has {vocab_size} ids, but the model was made for {expected}; restore "
            "the {name} of this model.",
            folder=folder,
            name=name,
            vocab_size=tokenizer.vocab_size,
            expected=config.vocab_size,
        )
    return tokenizer


def _settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            found |= read_json(folder / name)
    return found


def _chat_templates(folder: Path) -> list[dict[str, str]]:
    """Return the chat templates that are files of their own; they come before those of tokenizer_config.json."""
    files = {"default": folder / "chat_template.jinja"}
    files |= {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    found = []
    for name, path in files.items():
        if not path.is_file():
            continue
        try:
            with path.open(encoding="utf-8", newline="") as file:
                found.append({"name": name, "template": file.read(LARGEST_TEMPLATE + 1)})
        except (OSError, UnicodeDecodeError) as error:
            raise RunError("{path} cannot be read ({error}); restore it from a copy.", path=path, error=error) from None
    return found


def _named(settings: dict[str, Any]) -> dict[str, str]:
    """Return the token of each role in the settings; a token is a string, or an object with its content.

    One with half of a surrogate pair is left out: no vocabulary can have it.
    """
    given = {role: settings.get(role) for role in ROLES}
    texts = {role: token.get("content") if isinstance(token, dict) else token for role, token in given.items()}
    return {role: text for role, text in texts.items() if isinstance(text, str) and not HALF_PAIR.search(text)}


def _wordpiece(path: Path, settings: dict[str, Any], roles: dict[str, str]) -> HFTokenizer:
    """Return the WordPiece pipeline of BERT for a file with one piece per line (https://arxiv.org/abs/1810.04805)."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: a piece can be U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise RunError("{path} cannot be read ({error}); restore it from a copy.", path=path, error=error) from None
    _require_wordpiece(path, lines, settings)
    vocab = {piece: i for i, piece in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    if not vocab:
        raise RunError("{path} is empty; restore it from a copy.", path=path)
    pipeline = HFTokenizer(models.WordPiece(vocab, unk_token=roles["unk_token"]))
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: if do_lower_case is set
        lowercase=settings.get("do_lower_case", True),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    ids = [vocab.get(roles[role]) for role in ("cls_token", "sep_token")]
    _frame(pipeline, *([] if i is None else [i] for i in ids))
    return pipeline


def _require_wordpiece(path: Path, lines: Sequence[str], settings: dict[str, Any]) -> None:
    """Raise RunError for a vocab.txt of another tokenizer. That of KoBERT has pieces of SentencePiece."""
    named = settings.get("tokenizer_class")
    if named is not None and named not in WORDPIECE_CLASSES:
        reason = tr("tokenizer_config.json names the class {name}", name=named)
    elif sum(line.startswith("▁") for line in lines) > len(lines) // 4:
        reason = tr("its pieces are those of SentencePiece")
    else:
        return
    raise RunError(
        "{path} is not read as a list of WordPiece pieces: {reason}. Save the tokenizer as tokenizer.json.",
        path=path,
        reason=reason,
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def tokenizer_json(tokenizer: Tokenizer, config: ModelConfig) -> str:
    """Return the content of tokenizer.json, with a post-processor that adds the ids around each text.

    A post-processor of the tokenizer is kept. Otherwise the ids are those of the training: `Framing` for a BERT and a
    GPT that classifies, and [EOS] for an encoder–decoder. `Tokenizer.encode` does not use the post-processor.
    """
    content = tokenizer.to_json()
    if any(tokenizer.around):
        return content
    pipeline = HFTokenizer.from_str(content)
    _frame(pipeline, *_around(tokenizer, config))
    return pipeline.to_str(pretty=True)


def tokenizer_config(tokenizer: Tokenizer, config: ModelConfig) -> dict[str, Any]:
    """Return the content of tokenizer_config.json: a class for any tokenizer.json, and the roles of special tokens."""
    usual = {role: next((n for n in names if n in tokenizer.special_tokens), None) for role, names in ROLES.items()}
    roles = _written(tokenizer, config) if isinstance(config, GPTConfig) and not config.labels else usual
    settings = tokenizer.settings()
    if isinstance(settings.get("chat_template"), str):  # it is a file of its own; see `chat_template`
        del settings["chat_template"]
    types = ["token_type_ids"] if isinstance(config, BERTConfig) and config.n_token_type > 1 else []
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        # As in jumok.tokenizers.Tokenizer, "[MASK]" in a text is ordinary text for a GPT. For other models, stock code
        # such as the fill-mask pipeline must be able to encode special tokens.
        "split_special_tokens": isinstance(config, GPTConfig) and tokenizer.kind != "other",
        **{role: name for role, name in roles.items() if name is not None},
        **settings,
    }


def _written(tokenizer: Tokenizer, config: GPTConfig) -> dict[str, str | None]:
    """Return the tokens that begin and end the texts of a language model, by role."""
    named = HFTokenizer.from_str(tokenizer.to_json()).id_to_token
    ids = {"bos_token": config.bos_id, "eos_token": next(iter(config.eos_ids), None)}
    return {role: None if i is None else named(i) for role, i in ids.items()}


def chat_template(tokenizer: Tokenizer, config: ModelConfig) -> str | None:
    """Return the chat template (Jinja) of a model: that with which it was published, or None.

    Without one, a model that answers has the last message, with the ids around a source: it was trained on single
    pairs, so earlier messages are left out.
    """
    if tokenizer.chat_templates or not isinstance(config, EncoderDecoderConfig):
        return tokenizer.chat_templates.get("default") if len(tokenizer.chat_templates) == 1 else None
    named = HFTokenizer.from_str(tokenizer.to_json()).id_to_token
    before, after = ("".join(named(i) or "" for i in ids) for ids in source_frame(config, tokenizer))
    start, end = (json.dumps(text, ensure_ascii=False) for text in (before, after))
    return f"{{{{ {start} + messages[-1]['content'] + {end} }}}}"


# --- both -------------------------------------------------------------------------------------------------------------


def _around(tokenizer: Tokenizer, config: ModelConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids before and after each text."""
    if isinstance(config, EncoderDecoderConfig):
        return source_frame(config, tokenizer)
    if isinstance(config, BERTConfig) or (isinstance(config, GPTConfig) and config.labels):
        framing = Framing.of(config, tokenizer)
        return framing.before, framing.after
    return (), ()


def _frame(pipeline: HFTokenizer, before: Sequence[int], after: Sequence[int]) -> None:
    """Set a post-processor that adds ids before and after each text, and the token types of two texts."""
    ids = {name: list(around) for name, around in (("before", before), ("after", after)) if around}
    if not ids:
        return
    start, end = (["before:0"] if before else []), ["after"] if after else []
    single = [*start, "$A:0", *(f"{name}:0" for name in end)]
    pipeline.post_processor = processors.TemplateProcessing(
        single=single,
        pair=[*single, "$B:1", *(f"{name}:1" for name in end)],
        special_tokens=[
            {"id": name, "ids": around, "tokens": [pipeline.id_to_token(i) for i in around]}
            for name, around in ids.items()
        ],
    )
