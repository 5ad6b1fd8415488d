"""What a language model predicts for each token of a text, stored for another model to learn from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from jumok.data.ids import IdSequence
from jumok.errors import RunError
from jumok.files import sha256_of
from jumok.models.gpt import GPT
from jumok.runs.folder import RunFolder
from jumok.runs.parameters import holds, size_of, write_tensors

LIKELIEST = 16  # tokens of each prediction that are stored; the rest of the probability is one number
PREDICTION_BYTES = LIKELIEST * 6  # of a token: an id and a probability of each
WINDOWS = 16  # that the model reads at a time


class Predictions(NamedTuple):
    """What a teacher predicts for each token of a text, from those before it. The first one has no prediction.

    likeliest: (tokens, K), ids, int32. probabilities: (tokens, K), of these, float16; their sum is at most 1.
    """

    likeliest: Tensor
    probabilities: Tensor

    @classmethod
    def blank(cls, tokens: int, vocab_size: int) -> Predictions:
        """Room for the predictions of so many tokens."""
        shape = (tokens, min(LIKELIEST, vocab_size))
        return cls(torch.zeros(shape, dtype=torch.int32), torch.zeros(shape, dtype=torch.float16))


def predict(model: GPT, ids: IdSequence, predictions: Predictions) -> Iterator[float]:
    """Predict each token of a text, window by window.

    Args:
        model: in eval mode. ids: more than a context of them. predictions: of as many tokens, to be filled.

    Yields:
        The finished share.
    """
    length = model.config.context_length
    likeliest, probabilities = predictions
    last = len(ids) - 1 - length
    starts = [*range(0, last, length), last]
    device = model.token_embedding.weight.device
    for first in range(0, len(starts), WINDOWS):
        some = starts[first : first + WINDOWS]
        rows: list[NDArray[np.int64]] = [ids[start : start + length].astype(np.int64) for start in some]
        with torch.inference_mode():
            predicted = model(torch.from_numpy(np.stack(rows)).to(device)).float().softmax(-1)  # (B, T, V)
            found = predicted.topk(likeliest.shape[1], dim=-1)
        for start, values, places in zip(some, found.values.cpu(), found.indices.cpu(), strict=True):
            likeliest[start + 1 : start + 1 + length] = places.int()
            probabilities[start + 1 : start + 1 + length] = values.half()
        yield (first + len(some)) / len(starts)


def write_predictions(folder: RunFolder, predictions: Predictions) -> str:
    """Write state/predictions.safetensors; return its SHA-256."""
    tensors = predictions._asdict()
    with folder.writing("state/predictions.safetensors", needed=size_of(tensors)):
        write_tensors(folder.predictions_file, tensors)
        return sha256_of(folder.predictions_file)


def read_predictions(folder: RunFolder, sha256: str) -> Predictions:
    """Read state/predictions.safetensors.

    Raises:
        RunError: it is missing, or not the file that was written.
    """
    path = folder.predictions_file
    try:
        if holds(path, sha256):
            return Predictions(**load_file(path))
    except (SafetensorError, OSError, TypeError):
        pass
    raise RunError(
        "{path}, which has the predictions that this run learns from, is missing or damaged, so the run cannot be "
        "resumed; restore it from a copy, or start a new run. {model} has the best parameters so far.",
        path=path,
        model=folder.model_file,
    )
