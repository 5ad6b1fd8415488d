"""Reading and writing the tokenizer of a Hugging Face folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, Frame, GPTConfig, ModelConfig
from jumok.errors import RunError, TokenizerError
from jumok.interop.huggingface.tokenizer_settings import (
    BRACKETS,
    USUAL_ROLES,
    WORDPIECE,
    TokenizerSettings,
    add_tokens,
    with_settings,
)
from jumok.messages import tr
from jumok.models.special_ids import frame_of, frame_of_file
from jumok.tokenizers import LARGEST_TEMPLATE, ROLES, Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

# Of SentencePiece, of Marian, and of byte-level BPE.
OLDER_FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm", "merges.txt")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    """Return the tokenizer of a folder, or None if it has none.

    It is read from tokenizer.json, or from a vocab.txt as of BERT.
    Tokens and settings of the files beside it are those of `transformers`. Tokens with a role there, such as [MASK],
    become special tokens, even if tokenizer.json does not mark them.

    Raises:
        RunError: a file is damaged, or the tokenizer has more ids than the model.
        TokenizerError: the tokenizer.json is invalid, or the folder only has an older form of a tokenizer.
    """
    settings = TokenizerSettings.read(folder)
    if (folder / "tokenizer.json").is_file():
        name = "tokenizer.json"
        loaded = Tokenizer.load(folder / name)
        pipeline = HFTokenizer.from_str(loaded.to_json())
        if not any(loaded.around):
            _add_frame_of_class(pipeline, settings)
        if settings.chosen == "LlamaTokenizer" and isinstance(pipeline.decoder, decoders.ByteLevel):
            settings = dataclasses.replace(settings, chosen=None)  # as of Llama 3; transformers takes no class either
    elif (folder / "vocab.txt").is_file():
        name, settings = "vocab.txt", dataclasses.replace(settings, chosen="BertTokenizer")
        pipeline = _wordpiece(folder / name, settings)
    else:
        older = next((name for name in OLDER_FILES if (folder / name).is_file()), None)
        if older is None:
            return None
        raise TokenizerError(
            "{folder} has its tokenizer as {name}, an older form than tokenizer.json. Convert it with transformers, in "
            "Python: AutoTokenizer.from_pretrained({text!r}).save_pretrained({text!r}). To load the model without a "
            "tokenizer, remove {name}.",
            folder=folder,
            name=older,
            text=str(folder),
        )
    pipeline = with_settings(pipeline, settings)
    add_tokens(pipeline, settings, config.vocab_size)
    tokenizer = Tokenizer(pipeline)
    known = {role: token for role, token in settings.roles.items() if pipeline.token_to_id(token) is not None}
    tokenizer.roles = known
    tokenizer.read_chat_templates(_chat_templates(folder) or settings.values.get("chat_template"))
    if tokenizer.vocab_size > config.vocab_size:
        raise RunError(
            "{folder}: {name} has {vocab_size} ids, but the model was made for {expected}; restore "
            "the {name} of this model.",
            folder=folder,
            name=name,
            vocab_size=tokenizer.vocab_size,
            expected=config.vocab_size,
        )
    if tokenizer.kind == "other" and settings.flag("split_special_tokens", False):
        raise RunError(
            "{folder}: tokenizer_config.json says split_special_tokens true, and jumok reads the special tokens of "
            "this tokenizer in a text as tokens; set it to false if the model was trained so.",
            folder=folder,
        )
    return tokenizer


def _add_frame_of_class(pipeline: HFTokenizer, settings: TokenizerSettings) -> None:
    """Set the post-processor that some classes of `transformers` have, whatever the file of a tokenizer says."""
    usual = USUAL_ROLES.get(str(settings.chosen), {})
    if "cls_token" not in usual:
        return
    tokens = (settings.roles.get(role, usual[role]) for role in ("cls_token", "sep_token"))
    before, after = (() if i is None else (i,) for i in map(pipeline.token_to_id, tokens))
    _frame(pipeline, Frame(before=before, after=after))


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


def _wordpiece(path: Path, settings: TokenizerSettings) -> HFTokenizer:
    """Return the WordPiece pipeline of BERT for a file with one piece per line (https://arxiv.org/abs/1810.04805)."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: a piece can be U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise RunError("{path} cannot be read ({error}); restore it from a copy.", path=path, error=error) from None
    _require_wordpiece(path, lines, settings.values)
    vocab = {piece: i for i, piece in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    if not vocab:
        raise RunError("{path} is empty; restore it from a copy.", path=path)
    roles = BRACKETS | settings.roles
    pipeline = HFTokenizer(models.WordPiece(vocab, unk_token=roles["unk_token"]))
    pipeline.normalizer = normalizers.BertNormalizer()
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    before, after = ((vocab[roles[role]],) if roles[role] in vocab else () for role in ("cls_token", "sep_token"))
    _frame(pipeline, Frame(before=before, after=after))
    return pipeline


def _require_wordpiece(path: Path, lines: Sequence[str], settings: dict[str, Any]) -> None:
    """Raise RunError for a vocab.txt of another tokenizer. That of KoBERT has pieces of SentencePiece."""
    named = settings.get("tokenizer_class")
    # jumok itself writes PreTrainedTokenizerFast.
    if named is not None and str(named).removesuffix("Fast") not in (*WORDPIECE, "PreTrainedTokenizer"):
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
    """Return the content of tokenizer.json, with a post-processor that adds the ids of the frame around each text.

    A post-processor of the tokenizer that adds these ids is kept. `Tokenizer.encode` does not use it.
    """
    content, frame = tokenizer.to_json(), frame_of(config, tokenizer)
    if frame == frame_of_file(tokenizer):
        return content
    pipeline = HFTokenizer.from_str(json.dumps(json.loads(content) | {"post_processor": None}))
    _frame(pipeline, frame)
    return pipeline.to_str(pretty=True)


def tokenizer_config(tokenizer: Tokenizer, config: ModelConfig) -> dict[str, Any]:
    """Return the content of tokenizer_config.json: a class for any tokenizer.json, and the roles of special tokens."""
    usual = {role: next((n for n in names if n in tokenizer.special_tokens), None) for role, names in ROLES.items()}
    roles = _written(tokenizer, config) if isinstance(config, GPTConfig) and not config.labels else usual
    before = (json.loads(tokenizer.to_json())["pre_tokenizer"] or {}).get("add_prefix_space")
    types = ["token_type_ids"] if isinstance(config, BERTConfig) and config.n_token_type > 1 else []
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        # As in jumok.tokenizers.Tokenizer, "[MASK]" in a text is ordinary text for a GPT. For other models, stock code
        # such as the fill-mask pipeline must be able to encode special tokens, and for chats `apply_chat_template`.
        "split_special_tokens": isinstance(config, GPTConfig)
        and tokenizer.kind != "other"
        and not tokenizer.chat_templates,
        **({"add_prefix_space": True} if before else {}),  # without it, transformers 4 changes the tokenizer
        **{role: name for role, name in roles.items() if name is not None},
        **tokenizer.settings(),
    }


def _written(tokenizer: Tokenizer, config: GPTConfig) -> dict[str, str | None]:
    """Return the tokens that begin and end the texts of a language model, by role."""
    named = HFTokenizer.from_str(tokenizer.to_json()).id_to_token
    ids = {"bos_token": config.bos_id, "eos_token": next(iter(config.eos_ids), None)}
    return {role: None if i is None else named(i) for role, i in ids.items()}


# --- both -------------------------------------------------------------------------------------------------------------


def _frame(pipeline: HFTokenizer, frame: Frame) -> None:
    """Set a post-processor that adds the ids of a frame around each text, and the token types of two texts."""
    ids = {name: list(around) for name, around in (("before", frame.before), ("after", frame.after)) if around}
    if not ids:
        return
    start, end = (["before:0"] if frame.before else []), ["after"] if frame.after else []
    single = [*start, "$A:0", *(f"{name}:0" for name in end)]
    pipeline.post_processor = processors.TemplateProcessing(
        single=single,
        pair=[*single, "$B:1", *(f"{name}:1" for name in end)],
        special_tokens=[
            {"id": name, "ids": around, "tokens": [pipeline.id_to_token(i) for i in around]}
            for name, around in ids.items()
        ],
    )
