"""The rows of a classifier: texts as ids, the places of their labels, and what a table must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.data.ids import load_ids
from jumok.data.rows import Rows, load_rows, write_rows
from jumok.errors import TextError
from jumok.evaluation.seq2seq import Pair
from jumok.files import atomic_path
from jumok.inference.classify import listed
from jumok.models.special_ids import Framing
from jumok.tokenizers import Tokenizer


class LabelledRows(NamedTuple):
    """Rows of ids with the special tokens around them, and the place of each one's label, (rows,)."""

    rows: Rows
    truth: NDArray[np.int64]

    @classmethod
    def load(cls, folder: Path, name: str, count: int) -> LabelledRows:
        """Read what `write` has written."""
        truth = load_ids(folder / f"{name}.labels.npy", count)
        return cls(load_rows(folder / f"{name}.npy", count), truth.astype(np.int64))

    @classmethod
    def write(
        cls,
        folder: Path,
        name: str,
        cells: Sequence[Pair],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        framing: Framing,
    ) -> Written:
        """Write texts as ids. A text without tokens is left out."""
        places = {label: place for place, label in enumerate(labels)}
        encoded = [(tokenizer.encode(text), places[label]) for text, label in cells]
        framed = [(framing.frame(ids), place) for ids, place in encoded if len(ids)]
        rows = write_rows(folder / f"{name}.npy", (text.ids for text, _ in framed), tokenizer.dtype)
        truth = np.array([place for _, place in framed], np.uint32)
        with atomic_path(folder / f"{name}.labels.npy") as temporary, temporary.open("wb") as target:
            np.save(target, truth, allow_pickle=False)
        return Written(cls(rows, truth.astype(np.int64)), sum(text.cut for text, _ in framed))


class Written(NamedTuple):
    """part: what was written. cut: the number of texts that lost their end."""

    part: LabelledRows
    cut: int


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return labels in the order of their numbers if all are numbers, and of their letters otherwise."""
    names = sorted(set(labels))
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


def require_classes(train: Sequence[Pair], val: Sequence[Pair]) -> None:
    """Raise TextError unless there are two classes to learn, and no other ones are held out.

    A class that is not in the training part can only be predicted wrongly. Mostly a label is misspelt.
    """
    if not train:
        raise TextError("no row of the training part has both a text and a label; nothing can be learned.")
    known = {label for _, label in train}
    if len(known) < 2:
        raise TextError(
            "all rows of the training part have the label {label!r}: a classifier needs two classes or more; is the "
            "label in another column?",
            label=known.pop(),
        )
    unseen = Counter(label for _, label in val if label not in known)
    if unseen:
        raise TextError(
            "{count:,} held-out rows have labels that no training row has: {unseen}; training has {known}. Correct the "
            "labels, or take those rows out.",
            count=sum(unseen.values()),
            unseen=listed(unseen),
            known=listed(in_order(known), most=12),
        )


def class_weights(counts: Sequence[int]) -> Tensor:
    """rows / (classes · rows of the class) for each class, (labels,): all classes have the same total weight."""
    rows = torch.tensor(counts, dtype=torch.float32).clamp(min=1)
    return rows.sum() / (len(counts) * rows)
