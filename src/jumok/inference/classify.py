"""Classification: the probability of each class for a text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.data.batches import LengthBatches
from jumok.data.rows import Rows
from jumok.errors import JumokError, TextError
from jumok.messages import tr
from jumok.models import Model
from jumok.models.bert import BERT
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framed, Framing
from jumok.text import Text, from_rows, string_of

Classifier = GPT | BERT
BATCH_TOKENS = 8192  # read at once
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


def predict(model: Model, texts: Sequence[str]) -> list[Prediction]:
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


def predict_whole(model: Model, texts: Sequence[str]) -> list[Prediction | None]:
    """As `predict`, with None for a text that is empty or of which the tokenizer makes nothing."""
    classifier = require_classifier(model)
    framed = framed_texts(classifier, texts)
    found = [text for text in framed if text is not None]
    if not found:
        return [None] * len(framed)
    shares = log_probabilities(classifier, Rows.of([text.ids for text in found])).exp()  # (n, number of labels)
    if not bool(shares.isfinite().all(dim=-1).any()):
        raise not_finite()
    each = iter(shares)
    return [None if text is None else _prediction(classifier.config.labels, next(each), text) for text in framed]


def _prediction(labels: Sequence[str], shares: Tensor, text: Framed) -> Prediction:
    """For one text, from the probabilities of its labels, (number of labels,)."""
    if not bool(shares.isfinite().all()):
        return Prediction(label=None, probabilities={}, cut=text.cut)
    probabilities = dict(zip(labels, shares.tolist(), strict=True))
    return Prediction(label=labels[int(shares.argmax())], probabilities=probabilities, cut=text.cut)


# --- what training shares ---------------------------------------------------------------------------------------------


def require_classifier(model: Model) -> Classifier:
    """Return the model, which has labels.

    Raises:
        JumokError: it has none.
    """
    if not isinstance(model, GPT | BERT) or not model.config.labels:
        raise JumokError(
            "this {kind} is not a classifier: it has no labels to choose from. Train one with `jumok "
            "train reviews.tsv --task classify`; with {--init} it begins with the parameters of this "
            "model, if it is a GPT or a BERT.",
            kind=type(model).__name__,
        )
    return model


def class_logits(model: Classifier, ids: Tensor, lengths: Tensor) -> Tensor:
    """Logits of the labels: ids (B, T), filled up behind the first `lengths` (B,) of each row -> (B, labels)."""
    mask = length_mask(ids, lengths)  # (B, T)
    return model.classify(model.hidden(ids) if isinstance(model, GPT) else model.hidden(ids, mask), mask)


def length_mask(ids: Tensor, lengths: Tensor) -> Tensor:
    """True for the first `lengths` (B,) positions of each row of ids (B, T): (B, T), bool."""
    return torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]  # (B, T)


@torch.inference_mode()
def log_probabilities(model: Classifier, rows: Rows, chosen: NDArray[np.int64] | None = None) -> Tensor:
    """Of each label for each row, or each of the `chosen` ones: (n, labels), float32, on the CPU.

    Rows of like lengths are read together.
    """
    chosen = np.arange(len(rows)) if chosen is None else chosen
    found = torch.empty(len(chosen), len(model.config.labels))
    with eval_mode(model):
        for places, ids, lengths in batches_by_length(model, rows, chosen):
            found[places] = F.log_softmax(class_logits(model, ids, lengths).float(), dim=1).cpu()  # (B, labels)
    return found


def batches_by_length(
    model: GPT | BERT, rows: Rows, chosen: NDArray[np.int64]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the `chosen` rows in batches of like lengths, on the device of a model.

    Yields:
        Their places in `chosen`, (B,); their ids, filled up, (B, T); and their lengths, (B,).
    """
    device, pad = model.token_embedding.weight.device, Framing.of(model.config, require_tokenizer(model)).pad
    batches = LengthBatches(rows.lengths[chosen][:, None], BATCH_TOKENS, seed=0)
    for number in range(batches.count):
        places = batches.rows(number)
        ids = rows.padded(chosen[places], pad, most=model.config.context_length)  # (B, T)
        lengths = torch.from_numpy(rows.lengths[chosen[places]])  # (B,)
        yield torch.from_numpy(places), ids.to(device), lengths.to(device)


def listed(names: Sequence[str] | Counter[str], most: int = SHOWN) -> str:
    """Return some labels for a message: 'x', 'y' and 5 more."""
    shown = ", ".join(repr(name) for name, _ in zip(names, range(most), strict=False))
    return tr("{shown} and {more} more", shown=shown, more=len(names) - most) if len(names) > most else shown


def framed_texts(model: Classifier, texts: Sequence[str]) -> list[Framed | None]:
    """Return each text as the model reads it; None for one that is empty or of which the tokenizer makes nothing."""
    tokenizer = require_tokenizer(model)
    framing = Framing.of(model.config, tokenizer)
    encoded = (tokenizer.encode(text.strip()) for text in texts)
    return [framing.frame(ids) if len(ids) else None for ids in encoded]
