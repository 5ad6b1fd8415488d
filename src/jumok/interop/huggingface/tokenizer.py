"""The tokenizer of a Hugging Face folder, in and out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig
from jumok.config.huggingface import read_json
from jumok.errors import RunError
from jumok.models.framing import Framing, source_frame
from jumok.tokenizers import ROLES, Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

WORDPIECE = {role: ROLES[role][0] for role in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")}


# --- in ---------------------------------------------------------------------------------------------------------------


def read_tokenizer(folder: Path, config: ModelConfig) -> Tokenizer | None:
    """The tokenizer of a folder, or None where there is neither a tokenizer.json nor a vocab.txt.

    Tokens that the files beside it give a role, such as [MASK], are special in it whether or not it says so itself.

    Raises:
        RunError: a file is damaged, or the tokenizer has more ids than the model.
        TokenizerError: the tokenizer.json is none.
    """
    settings = _settings(folder)
    if (folder / "tokenizer.json").is_file():
        name, roles = "tokenizer.json", _named(settings)
        pipeline = HFTokenizer.from_str(Tokenizer.load(folder / name).to_json())
    elif (folder / "vocab.txt").is_file():
        name, roles = "vocab.txt", WORDPIECE | _named(settings)
        pipeline = _wordpiece(folder / name, settings, roles)
    else:
        return None
    known = [token for token in roles.values() if pipeline.token_to_id(token) is not None]
    added = {token.content for token in pipeline.get_added_tokens_decoder().values() if token.special}
    pipeline.add_special_tokens([token for token in known if token not in added])
    tokenizer = Tokenizer(pipeline)
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


def _named(settings: dict[str, Any]) -> dict[str, str]:
    """Role -> token, for the roles that the settings fill; a token is written as its text, or as an object with it."""
    given = {role: settings.get(role) for role in ROLES}
    texts = {role: token.get("content") if isinstance(token, dict) else token for role, token in given.items()}
    return {role: text for role, text in texts.items() if isinstance(text, str)}


def _wordpiece(path: Path, settings: dict[str, Any], roles: dict[str, str]) -> HFTokenizer:
    """The pipeline of BERT over a list of pieces, one a line (https://arxiv.org/abs/1810.04805)."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines: a piece may be U+2028
    except (OSError, UnicodeDecodeError) as error:
        raise RunError("{path} cannot be read ({error}); restore it from a copy.", path=path, error=error) from None
    vocab = {piece: i for i, piece in enumerate(lines[:-1] if lines[-1] == "" else lines)}
    if not vocab:
        raise RunError("{path} is empty; restore it from a copy.", path=path)
    pipeline = HFTokenizer(models.WordPiece(vocab, unk_token=roles["unk_token"]))
    pipeline.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),  # None: if all is lowered
        lowercase=settings.get("do_lower_case", True),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    ids = [vocab.get(roles[role]) for role in ("cls_token", "sep_token")]
    _frame(pipeline, *([] if i is None else [i] for i in ids))
    return pipeline


# --- out --------------------------------------------------------------------------------------------------------------


def tokenizer_json(tokenizer: Tokenizer, config: ModelConfig) -> str:
    """The tokenizer.json to write: where it does not say so itself, what stock code shall put around each text.

    That is what the model was trained with: `Framing` for a BERT and a GPT that classifies, and the id that ends a
    source for an encoder–decoder. jumok itself adds nothing; see `Tokenizer`.
    """
    content = tokenizer.to_json()
    if any(tokenizer.around):
        return content
    pipeline = HFTokenizer.from_str(content)
    _frame(pipeline, *_around(tokenizer, config))
    return pipeline.to_str(pretty=True)


def tokenizer_config(tokenizer: Tokenizer, config: ModelConfig) -> dict[str, Any]:
    """The tokenizer_config.json: the class that loads any tokenizer.json, and the roles of special tokens."""
    usual = {role: next((n for n in names if n in tokenizer.special_tokens), None) for role, names in ROLES.items()}
    writes = isinstance(config, GPTConfig) and not config.labels  # and so reads text alone, in rows of one length
    types = ["token_type_ids"] if isinstance(config, BERTConfig) else []
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.context_length,
        "model_input_names": ["input_ids", *types, "attention_mask"],
        "clean_up_tokenization_spaces": False,
        # jumok's own kinds take "[MASK]" in a text for text; see jumok.tokenizers.Tokenizer. Stock code that fills
        # masks, or begins with a given token, has to be able to write one.
        "split_special_tokens": isinstance(config, GPTConfig) and tokenizer.kind != "other",
        **{role: name for role, name in usual.items() if name is not None and not writes},
    }


# --- both ways --------------------------------------------------------------------------------------------------------


def _around(tokenizer: Tokenizer, config: ModelConfig) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after each text."""
    if isinstance(config, EncoderDecoderConfig):
        return source_frame(config, tokenizer)
    if isinstance(config, BERTConfig) or (isinstance(config, GPTConfig) and config.labels):
        framing = Framing.of(config, tokenizer)
        return framing.before, framing.after
    return (), ()


def _frame(pipeline: HFTokenizer, before: Sequence[int], after: Sequence[int]) -> None:
    """Let stock code put texts between ids, and say which of two texts an id belongs to."""
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
