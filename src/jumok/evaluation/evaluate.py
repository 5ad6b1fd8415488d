"""Figures of a model on a text or a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

from jumok.config import TASK_CONFIGS
from jumok.config.features import task_of
from jumok.errors import ConfigError
from jumok.evaluation.chat import ChatEvaluation, evaluate_chat
from jumok.evaluation.classification import ClassEvaluation, evaluate_classes
from jumok.evaluation.language_model import TextEvaluation, evaluate_text
from jumok.evaluation.masked import MaskedEvaluation, evaluate_masked
from jumok.evaluation.seq2seq import Pair, PairEvaluation, evaluate_pairs
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.text import Given, Table, Text, from_rows, material_of, with_columns
from jumok.text.conversations import COLUMNS, are_conversations


@overload
def evaluate(
    model: EncoderDecoder,
    material: Given | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    beam: int | None = None,
) -> PairEvaluation: ...


@overload
def evaluate(
    model: BERT, material: Given | Sequence[Pair], *, columns: Sequence[str] | None = None
) -> MaskedEvaluation | ClassEvaluation: ...


@overload
def evaluate(
    model: GPT,
    material: Given | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    stride: int | None = None,
) -> TextEvaluation | ClassEvaluation | ChatEvaluation: ...


def evaluate(
    model: Model,
    material: Given | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    stride: int | None = None,
    beam: int | None = None,
) -> TextEvaluation | MaskedEvaluation | ClassEvaluation | PairEvaluation | ChatEvaluation:
    """Return how good a model is, by figures of its kind.

    >>> jumok.evaluate(model, Path("other.txt")).nats_per_char

    Args:
        model: with its tokenizer, as `jumok.load` returns it. A GPT predicts each token of a text
            (`jumok.evaluate`), or answers conversations (`jumok.evaluation.chat`); a BERT predicts masked tokens of a
            text (`jumok.evaluation.masked`); a classifier is held against the labels of a table (`jumok.predict`), an
            encoder–decoder against its targets (`jumok.evaluation.seq2seq`).
        material: a text or a table. A string is the text itself, a `Path` a file; or what `jumok.text` has read. For a
            classifier and an encoder–decoder also rows: [("정말 재미있어요", "좋음"), ...].
        columns: of a table at a path, the two to read [text and label; source and target].
        stride: of a GPT, see `jumok.evaluation.language_model.evaluate_text`. beam: of an
            encoder–decoder, see `jumok.inference.answer_search.Search`.

    Raises:
        ConfigError: a string looks like the name of a file, or a setting is for another kind of model.
        TextError: the material cannot be read, or does not fit the model.
        JumokError: the model's numbers are not finite.
    """
    task = task_of(model.config)
    if task == "lm" and columns is None and _is_chat(material):
        task = "chat"
    for name, value, wanted in (("stride", stride, "lm"), ("beam", beam, "seq2seq")):
        if value is not None and task != wanted:
            raise ConfigError("{name} is not for a model of task {task}; leave it out.", name=name, task=task)
    names = columns_of(task)
    if not isinstance(material, str | os.PathLike | Text | Table):
        if not names:
            raise ConfigError("a list of rows was given, and this model reads a text; give a string or a Path.")
        material = from_rows(names, list(material))
    found = material_of(with_columns(material, columns, names), names)
    if isinstance(model, EncoderDecoder):
        return evaluate_pairs(model, _table(found, names), beam=beam or 1)
    if task == "chat":
        return evaluate_chat(model, _table(found, names))
    if names:
        return evaluate_classes(model, _table(found, names))
    if isinstance(found, Table):
        raise ConfigError("a table was given, and this model reads a text; give jumok.text.read(path, column=...).")
    if isinstance(model, BERT):
        return evaluate_masked(model, found)
    return evaluate_text(model, found, stride=stride)


def _is_chat(material: Any) -> bool:
    """Return whether a material for a GPT is conversations."""
    if isinstance(material, Table):
        return set(COLUMNS) <= set(material.columns)
    return isinstance(material, os.PathLike) and are_conversations([material])


def columns_of(task: str) -> tuple[str, ...]:
    """Return the columns that a task reads of a table; none: it reads a text."""
    return TASK_CONFIGS[task].columns if task in TASK_CONFIGS else ()


def _table(found: Text | Table, names: Sequence[str]) -> Table:
    if isinstance(found, Table):
        return found
    raise ConfigError(
        "this model is evaluated on a table with the columns {names}, and a text was given.", names=", ".join(names)
    )
