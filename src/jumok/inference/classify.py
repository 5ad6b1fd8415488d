"""Classification: the probability of each class for a text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, overload

import numpy as np

from jumok.errors import JumokError, TextError
from jumok.inference.native.parameters import NativeModel
from jumok.inference.native.whole_texts import Numbers, class_logits, softmax
from jumok.messages import tr
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.special_ids import Framed, Framing
from jumok.text import Text, from_rows, string_of

if TYPE_CHECKING:
    from jumok.inference.torch_rows import Classifier
    from jumok.models import Model

SHOWN = 3  # of many, in a message


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The prediction for one text.

    label: the likeliest one; None where the model's numbers for this text are not finite, while those for others are.
    probabilities: of all labels, in the order of the model's; then none. cut: the text was longer than the context, and
    its end was not read.
    """

    label: str | None
    probabilities: dict[str, float]
    cut: bool


def predict(model: Model | NativeModel, texts: Sequence[str]) -> list[Prediction]:
    """Return the class of each text, in the order of the texts.

    Args:
        model: a classifier, with its tokenizer at `model.tokenizer`; it runs where it is, in eval mode meanwhile.
        texts: one or more strings, none of them empty; numbers are spelled as in a table. For the texts of a file:
            `jumok.text.read_table("reviews.tsv", ["text"]).column("text")`.

    Raises:
        ConfigError: a text is the name of a file.
        JumokError: the model is not a classifier, or its numbers are not finite for any text.
        TextError: a text is empty, or the tokenizer makes nothing of it.
        TokenizerError: the model has no tokenizer, or one with other ids.
    """
    if isinstance(texts, str | os.PathLike):
        raise TextError(
            "one {kind} was given where a list of texts belongs; put a text into brackets: [text], or read a file: "
            'jumok.text.read_table(path, ["text"]).column("text").',
            kind=tr("string") if isinstance(texts, str) else tr("path"),
        )
    given = list(texts)
    if len(given) == 1 and isinstance(
        given[0], str | os.PathLike | Text
    ):  # cells may well be words that end like a file
        given = [string_of(given[0])]
    texts = from_rows("text", ((one,) for one in given), name=tr("texts")).column("text") if given else []
    found = predict_whole(model, texts)
    for number, prediction in enumerate(found, 1):
        if prediction is None:
            raise TextError(
                "text {number:,} of {count:,} is empty, and an empty text has no class; leave it out.",
                number=number,
                count=len(texts),
            )
    return [prediction for prediction in found if prediction is not None]


def predict_whole(model: Model | NativeModel, texts: Sequence[str]) -> list[Prediction | None]:
    """As `predict`, with None for a text that is empty or of which the tokenizer makes nothing."""
    classifier = require_classifier(model)
    framed = framed_texts(classifier, texts)
    found = [text for text in framed if text is not None]
    if not found:
        return [None] * len(framed)
    rows = [text.ids for text in found]
    if isinstance(classifier, NativeModel):
        shares = softmax(class_logits(classifier, rows))  # (n, number of labels)
    else:
        from jumok.inference.torch_rows import label_probabilities

        shares = label_probabilities(classifier, rows)
    if not np.isfinite(shares).all(axis=1).any():
        raise not_finite()
    each = iter(shares)
    return [None if text is None else _prediction(classifier.config.labels, next(each), text) for text in framed]


def _prediction(labels: Sequence[str], shares: Numbers, text: Framed) -> Prediction:
    """For one text, from the probabilities of its labels, (number of labels,)."""
    if not np.isfinite(shares).all():
        return Prediction(label=None, probabilities={}, cut=text.cut)
    probabilities = dict(zip(labels, shares.tolist(), strict=True))
    return Prediction(label=labels[int(shares.argmax())], probabilities=probabilities, cut=text.cut)


# --- what training shares ---------------------------------------------------------------------------------------------


@overload
def require_classifier(model: Model) -> Classifier: ...
@overload
def require_classifier(model: Model | NativeModel) -> Classifier | NativeModel: ...
def require_classifier(model: Model | NativeModel) -> Classifier | NativeModel:
    """Return the model, which has labels.

    Raises:
        JumokError: it has none.
    """
    if not getattr(model.config, "labels", ()):
        raise JumokError(
            "this {kind} is not a classifier: it has no labels to choose from. Train one with `jumok "
            "train reviews.tsv --task classify`; with {--init} it begins with the parameters of this "
            "model, if it is a GPT or a BERT.",
            kind="GPT" if isinstance(model, NativeModel) else type(model).__name__,
        )
    return cast("Classifier | NativeModel", model)


def listed(names: Sequence[str] | Counter[str], most: int = SHOWN) -> str:
    """Return some labels for a message: 'x', 'y' and 5 more."""
    shown = ", ".join(repr(name) for name, _ in zip(names, range(most), strict=False))
    return tr("{shown} and {more} more", shown=shown, more=len(names) - most) if len(names) > most else shown


def framed_texts(model: Classifier | NativeModel, texts: Sequence[str]) -> list[Framed | None]:
    """Return each text as the model reads it; None for one that is empty or of which the tokenizer makes nothing."""
    tokenizer = require_tokenizer(model)
    framing = Framing.of(model.config, tokenizer)
    encoded = (tokenizer.encode(text.strip()) for text in texts)
    return [framing.frame(ids) if len(ids) else None for ids in encoded]
