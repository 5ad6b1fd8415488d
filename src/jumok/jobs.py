"""Whole jobs in one call, for a script or a notebook: train a model, and hold one against a text or a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, overload

from jumok.checkpoint import load
from jumok.errors import ConfigError
from jumok.evaluate import Evaluation, evaluate_text
from jumok.masking import MaskedEvaluation, evaluate_masked
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.pairs import Pair, PairEvaluation, evaluate_pairs
from jumok.predict import ClassEvaluation, evaluate_classes
from jumok.tasks import TASKS
from jumok.text import Table, Text, from_rows, material_of, read_table
from jumok.tokenizers import Tokenizer

Material = str | os.PathLike[str] | Text | Table


def train(
    text: Material,
    out: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    val_text: Material | None = None,
    size: str | None = None,
    tokenizer: Tokenizer | str | None = None,
    init: str | os.PathLike[str] | None = None,
    device: str = "auto",
    quiet: bool = False,
    **settings: Any,
) -> Any:
    """Train a model, with a progress bar in a terminal and in a notebook, and return it with its best weights.

    >>> model = jumok.train(Path("novel.txt"), out="runs/novel", minutes=5)

    A run that was interrupted is continued with `jumok.Trainer.resume(out)`, whose `run()` yields what happens.

    Args:
        text: what to learn from. A string is the text itself, a `Path` a file; or what `jumok.text` has read.
        out: the run folder to make.
        columns: of a table at a path, the two that the task reads, by their names there.
        val_text: hold this out instead of the last part of `text`.
        size, tokenizer, init, device: see `jumok.Trainer.start`. quiet: no bar, no lines.
        settings: fields of `TrainConfig` and of the model's configuration: minutes=5, task="classify", n_layer=6.

    Returns:
        The model, as `jumok.load(out)` returns it.

    Raises:
        JumokError: a setting, the text or the folder does not do, or the training failed; see `jumok.Trainer`.
    """
    from jumok.console import TrainingView  # who asks for figures alone needs neither
    from jumok.trainer import Trainer

    names = columns_of(settings.get("task") or "lm") if columns is not None else ()
    trainer = Trainer.start(
        out,
        _named(text, columns, names),
        settings,
        size=size,
        tokenizer=tokenizer,
        val_text=None if val_text is None else _named(val_text, columns, names),
        init=init,
        device=device,
    )
    with TrainingView(trainer.folder.path, quiet=quiet) as view:
        for event in trainer.run():
            view.show(event)
    return load(out, str(trainer.device))


@overload
def evaluate(
    model: EncoderDecoder,
    material: Material | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    beam: int | None = None,
) -> PairEvaluation: ...
@overload
def evaluate(
    model: BERT, material: Material | Sequence[Pair], *, columns: Sequence[str] | None = None
) -> MaskedEvaluation | ClassEvaluation: ...
@overload
def evaluate(
    model: GPT,
    material: Material | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    stride: int | None = None,
) -> Evaluation | ClassEvaluation: ...
def evaluate(
    model: Model,
    material: Material | Sequence[Pair],
    *,
    columns: Sequence[str] | None = None,
    stride: int | None = None,
    beam: int | None = None,
) -> Evaluation | MaskedEvaluation | ClassEvaluation | PairEvaluation:
    """How good a model is, by figures of its kind.

    >>> jumok.evaluate(model, Path("other.txt")).nats_per_char

    Args:
        model: with its tokenizer, as `jumok.load` returns it. A GPT predicts each token of a text
            (`jumok.evaluate`), a BERT finds what is hidden in it (`jumok.masking`); a classifier is held against the
            labels of a table (`jumok.predict`), an encoder–decoder against its targets (`jumok.pairs`).
        material: a text or a table. A string is the text itself, a `Path` a file; or what `jumok.text` has read. For a
            classifier and an encoder–decoder also rows: [("정말 재미있어요", "좋음"), ...].
        columns: of a table at a path, the two to read [text and label; source and target].
        stride: of a GPT, see `jumok.evaluate.evaluate_text`. beam: of an encoder–decoder, see `jumok.answer.Search`.

    Raises:
        ConfigError: a string looks like the name of a file, or a setting is for another kind of model.
        TextError: the material cannot be read, or does not fit the model.
        JumokError: the model's numbers are not finite.
    """
    task = task_of(model)
    for name, value, wanted in (("stride", stride, "lm"), ("beam", beam, "seq2seq")):
        if value is not None and task != wanted:
            raise ConfigError("{name} is not for a model of task {task}; leave it out.", name=name, task=task)
    names = columns_of(task)
    if not isinstance(material, str | os.PathLike | Text | Table):
        if not names:
            raise ConfigError("a list of rows was given, and this model reads a text; give a string or a Path.")
        material = from_rows(names, list(material))
    found = material_of(_named(material, columns, names), names)
    if isinstance(model, EncoderDecoder):
        return evaluate_pairs(model, _table(found, names), beam=beam or 1)
    if names:
        return evaluate_classes(model, _table(found, names))
    if isinstance(found, Table):
        raise ConfigError("a table was given, and this model reads a text; give jumok.text.read(path, column=...).")
    return evaluate_masked(model, found) if isinstance(model, BERT) else evaluate_text(model, found, stride=stride)


def task_of(model: Model) -> str:
    """What a model was made for, by its kind."""
    if isinstance(model, EncoderDecoder):
        return "seq2seq"
    if model.config.labels:
        return "classify"
    return "mlm" if isinstance(model, BERT) else "lm"


def columns_of(task: str) -> tuple[str, ...]:
    """The columns that a task reads of a table; none: it reads a text."""
    return TASKS[task].columns if task in TASKS else ()


def _named(given: Material, columns: Sequence[str] | None, names: Sequence[str]) -> Material:
    """A table at a path with the columns that were asked for, under the names of its task; else what was given."""
    if columns is None:
        return given
    if not isinstance(given, os.PathLike) or len(columns) != len(names):
        raise ConfigError(
            "columns={columns!r} names the columns of a table at a Path, {count} for this task; leave it out.",
            columns=list(columns),
            count=len(names) or tr("none"),
        )
    return read_table(os.fspath(given), list(columns)).renamed(tuple(names))


def _table(found: Text | Table, names: Sequence[str]) -> Table:
    if isinstance(found, Table):
        return found
    raise ConfigError(
        "this model is evaluated on a table with the columns {names}, and a text was given.", names=", ".join(names)
    )
