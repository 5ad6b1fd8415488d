"""Conversion of single settings, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jumok.config import BERTConfig, GPTConfig, ModelConfig, require_range
from jumok.config.huggingface._names import MOST_LABELS, SINGLE_LABEL
from jumok.errors import ConfigError, JumokError, RunError

Stock = Mapping[str, Any]


def ours(stock: Stock, names: Mapping[str, str], defaults: Stock) -> dict[str, Any]:
    """Convert settings to fields of jumok. Raises KeyError for a setting with neither a value nor a default."""
    return {
        our: stock[their] if their in stock or their not in defaults else defaults[their]
        for their, our in names.items()
    }


def refuse(where: str, faults: Mapping[str, bool]) -> None:
    """Raise JumokError, which names the faults that are true."""
    found = [fault for fault, there in faults.items() if there]
    if found:
        raise JumokError(
            "{where} uses features that jumok does not support: {features}.", where=where, features=", ".join(found)
        )


def labels(stock: Stock, where: str) -> list[str]:
    """Return the names of the classes, of which exactly one applies to a text.

    The stock classes also support regression (one label) and several labels per text; jumok does not.
    """
    names = _named_labels(stock, where)
    problem = stock.get("problem_type") or SINGLE_LABEL
    regression = len(names) == 1
    refuse(where, {f"problem_type {problem!r}": problem != SINGLE_LABEL, "num_labels 1 (regression)": regression})
    return names


def _named_labels(stock: Stock, where: str) -> list[str]:
    named = stock.get("id2label")
    try:
        if named is None:  # the default names of the stock class
            count = stock.get("num_labels", 2)
            require_range("num_labels", count, 1, MOST_LABELS)
            return [f"LABEL_{i}" for i in range(count)]
        names = {int(number): str(name) for number, name in named.items()}
        return [names[i] for i in range(len(names))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise RunError(
            "{where}/config.json has an id2label that does not name the classes 0, 1, 2 and so on; correct it.",
            where=where,
        ) from None


def named_classes(config: GPTConfig | BERTConfig) -> dict[str, Any]:
    """Return the names of the classes; {} for a model that does not classify."""
    if not config.labels:
        return {}
    return {"id2label": dict(enumerate(config.labels)), "label2id": {name: i for i, name in enumerate(config.labels)}}


def theirs(config: ModelConfig, names: Mapping[str, str]) -> dict[str, Any]:
    """Convert fields of jumok to settings."""
    return {their: getattr(config, our) for their, our in names.items()}
