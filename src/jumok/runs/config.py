"""The config.json of a run folder: its model and tokenizer, and their checks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.config import ModelConfig, from_dict, to_dict
from jumok.config.features import KINDS, kind_of
from jumok.errors import ConfigError, RunError
from jumok.files import parse_json, write_atomic
from jumok.tokenizers import Tokenizer

if TYPE_CHECKING:
    from jumok.config import TrainConfig

FORMAT = 1
# Of what a config.json has; each may be missing, and values and most parts null. No name: the part itself.
TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("train.", "data.", "finished.", "metrics.", "machine.", "adapter."), (dict,)),
    **dict.fromkeys(("data.sources", "data.columns", "data.label_counts"), (list,)),
    **dict.fromkeys(("data.sha256", "data.val_sha256", "data.characters"), (str,)),
    **{
        f"data.{name}": (int,)
        for name in (
            "chars", "val_chars", "val_bytes", "rows", "held_out_rows", "train_rows", "val_rows", "train_tokens",
            "val_tokens", "left_out", "cut", "empty", "longest",
        )
    },
    **dict.fromkeys(("data.floor", "data.repeated"), (int, float)),
    **dict.fromkeys(("tokenizer.vocab_size", "finished.step"), (int,)),
    **dict.fromkeys(("tokenizer.kind", "tokenizer.fingerprint", "finished.reason"), (str,)),
}  # fmt: skip
SHA256 = re.compile(r"[0-9a-f]{64}")


def describe_model(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the first entries of a config.json: format, model and tokenizer."""
    # The model can have more ids than the tokenizer: published models are padded to round numbers.
    ids = {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
    return {"format": FORMAT, "model": {"type": kind_of(config), **to_dict(config)}, "tokenizer": ids}


def parse_config(path: Path) -> dict[str, Any]:
    """Read a config.json as plain values.

    Raises:
        RunError: it is damaged, was not written by jumok, or has a newer format.
    """
    try:
        config = parse_json(path.read_text(encoding="utf-8"))
        found = config["format"]
        if found == FORMAT:
            config["model"]["type"], config["tokenizer"]["vocab_size"], config["tokenizer"]["kind"]
            _require_sums(config)
            _require_types(config)
    except (ValueError, KeyError, TypeError, OSError):
        raise RunError("{path} is damaged or not written by jumok; restore it from a copy.", path=path) from None
    if found != FORMAT:
        raise RunError(
            "{path} has format {found}; this version of jumok supports format {known}. Update jumok.",
            path=path,
            found=found,
            known=FORMAT,
        )
    return config


def write_config(path: Path, config: Mapping[str, Any]) -> None:
    """Write a config.json.

    Raises:
        OSError: it cannot be written.
    """
    write_atomic(path, json.dumps(config, ensure_ascii=False, indent=2) + "\n")


def _require_sums(config: Mapping[str, Any]) -> None:
    """Raise ValueError unless the accepted sums of the parameters are SHA-256, if there are any."""
    parameters = config.get("parameters", {"sha256": []})
    if not all(SHA256.fullmatch(each) for each in parameters["sha256"]):
        raise ValueError(parameters)


def _require_types(config: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError unless the parts of a config.json have the types that jumok writes."""
    config["tokenizer"]["fingerprint"]
    for place, kinds in TYPES.items():
        part, _, name = place.partition(".")
        found = config.get(part)
        if found is None and (part not in config or part not in ("train", "data", "tokenizer")):
            continue
        value = found.get(name) if name and isinstance(found, dict) else found
        if found is None or (value is not None and type(value) not in kinds):
            raise TypeError(place)
    data = config.get("data") or {}
    texts = [*(data.get("sources") or ()), *(data.get("columns") or ())]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("data")


def model_config_of(config: Mapping[str, Any], path: Path) -> ModelConfig:
    """Return the configuration of the model from the values of a config.json.

    Args:
        path: the run folder, for messages.

    Raises:
        RunError: the values do not describe a model.
    """
    fields = dict(config["model"])
    kind = fields.pop("type")
    if not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(map(repr, KINDS))
        raise RunError(
            "{path} contains a model of type {kind!r}; this version of jumok supports {known}. Update jumok.",
            path=path,
            kind=kind,
            known=known,
        )
    try:
        shape = from_dict(KINDS[kind], fields)
        shape.require_vocabulary()
        return shape
    except ConfigError as error:
        raise RunError("{path} does not describe a model: {error}", path=path / "config.json", error=error) from None


def require_tokenizer_of(config: Mapping[str, Any], tokenizer: Tokenizer, path: Path) -> None:
    """Raise RunError unless `tokenizer`, read from `path`, has the fingerprint in config.json."""
    made_with = config["tokenizer"]
    if tokenizer.fingerprint != made_with["fingerprint"]:
        raise RunError(
            "{path} is of kind {kind!r} with {vocab_size:,} ids, but the model was made with another "
            "tokenizer, of kind {expected_kind!r} with {expected_size:,} ids (their fingerprints "
            "differ); restore the tokenizer of this model.",
            path=path,
            kind=tokenizer.kind,
            vocab_size=tokenizer.vocab_size,
            expected_kind=made_with["kind"],
            expected_size=made_with["vocab_size"],
        )


def training_of(recorded: Mapping[str, Any]) -> TrainConfig:
    """Return the settings of a run from the "train" entry of its config.json.

    Raises:
        ConfigError: a setting is wrong or missing.
    """
    from jumok.config import TrainConfig  # generating needs none

    return TrainConfig.of({name: value for name, value in recorded.items() if name != "planned_tokens"})
