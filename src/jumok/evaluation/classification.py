"""Figures of a classifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.data.rows import Rows
from jumok.errors import TextError
from jumok.inference.classify import framed_texts, listed, require_classifier
from jumok.inference.torch_rows import log_probabilities
from jumok.models import Model
from jumok.models.checks import require_finite
from jumok.text import Table

COLUMNS = ("text", "label")
MOST_CONFUSED = 1_000  # labels of a confusion matrix


@dataclass(frozen=True, kw_only=True)
class ClassEvaluation:
    """How well a classifier does; `jumok.inference.classify` defines the figures.

    loss: cross-entropy in nats per text. f1: of each class that was met. confusion: for each label, how many of its
    texts were predicted as which, in the order of `labels`; None for more than MOST_CONFUSED labels, because its size
    is the square of their number. rows: that were read. skipped: rows with an empty cell.
    cut: texts that lost their end. tokens: that were read.
    """

    accuracy: float
    f1_macro: float
    loss: float
    rows: int
    skipped: int
    cut: int
    tokens: int
    labels: tuple[str, ...]
    f1: dict[str, float] = field(repr=False)
    confusion: list[list[int]] | None = field(repr=False)


def evaluate_classes(model: Model, table: Table) -> ClassEvaluation:
    """Compare the predictions of a classifier with labels.

    Args:
        model: as for `predict`. table: with two columns, the texts and their labels; rows with an empty cell are left
            out and counted.

    Raises:
        JumokError: the model is not a classifier, or its losses are not finite.
        TextError: the table has other columns, no whole row, or labels that the model does not know.
        TokenizerError: the model has no tokenizer, or one with other ids.
    """
    classifier = require_classifier(model)
    cells = labelled(table)
    labels = classifier.config.labels
    places = {label: place for place, label in enumerate(labels)}
    unknown = Counter(label for text, label in cells if text and label not in places and label)
    if unknown:
        raise TextError(
            "{count:,} rows have labels that this model does not know: {unknown}. It knows {known}; "
            "take those rows out, or evaluate a model that was trained with these labels.",
            count=sum(unknown.values()),
            unknown=listed(unknown),
            known=listed(labels, most=12),
        )
    framed = framed_texts(classifier, [text if label else "" for text, label in cells])
    whole = [(text, label) for text, (_, label) in zip(framed, cells, strict=True) if text is not None]
    if not whole:
        raise TextError("no row of this table has both a text and a label; nothing can be evaluated.")
    rows = Rows.of([text.ids for text, _ in whole])
    truth = np.array([places[label] for _, label in whole])
    return judge(
        log_probabilities(classifier, rows),
        truth,
        labels,
        tokens=int(rows.lengths.sum()),
        skipped=len(cells) - len(whole),
        cut=sum(text.cut for text, _ in whole),
    )


def labelled(table: Table) -> list[tuple[str, str]]:
    """Texts and labels of a table, without white space at their ends.

    Raises:
        TextError: it has another number of columns than these two.
    """
    if len(table.columns) != 2:
        raise TextError(
            "a classifier needs two columns, the texts and their labels in this order, and this "
            "table has {count}: {columns}. Name two of them when reading it.",
            count=len(table.columns),
            columns=", ".join(table.columns),
        )
    return [(text.strip(), label.strip()) for text, label in table.rows]


def judge(
    log_shares: Tensor,
    truth: NDArray[np.int64],
    labels: Sequence[str],
    *,
    tokens: int,
    skipped: int = 0,
    cut: int = 0,
    weights: Tensor | None = None,
) -> ClassEvaluation:
    """Return the figures for log-probabilities, (n, labels), and the places of the true labels, (n,).

    Args:
        weights: (labels,), how much a text of each counts in the loss, which is their weighted mean; None: all alike.
        tokens, skipped, cut: to be told with the figures.

    Raises:
        JumokError: a log-probability is not finite.
    """
    require_finite(float(log_shares.sum(dtype=torch.float64)))
    said = log_shares.argmax(dim=1).numpy()
    right = np.bincount(truth[truth == said], minlength=len(labels))  # (labels,)
    met = np.bincount(truth, minlength=len(labels)) + np.bincount(said, minlength=len(labels))  # (labels,)
    f1 = {label: float(2 * right[i] / met[i]) for i, label in enumerate(labels) if met[i]}
    return ClassEvaluation(
        accuracy=float(right.sum() / len(truth)),
        f1_macro=float(np.mean(list(f1.values()))),
        loss=float(F.nll_loss(log_shares.double(), torch.from_numpy(truth), weights)),
        rows=len(truth),
        skipped=skipped,
        cut=cut,
        tokens=tokens,
        labels=tuple(labels),
        f1=f1,
        confusion=_confusion(truth, said, len(labels)).tolist() if len(labels) <= MOST_CONFUSED else None,
    )


def _confusion(truth: NDArray[np.int64], said: NDArray[np.int64], labels: int) -> NDArray[np.int64]:
    """Return how many texts of each class, a row, were predicted as which: (labels, labels)."""
    counts = np.zeros((labels, labels), np.int64)
    np.add.at(counts, (truth, said), 1)
    return counts
