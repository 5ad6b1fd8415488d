"""Rows of ids that a GPT or a BERT reads in PyTorch: the probabilities of its labels, and means of hidden states.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.data.batches import LengthBatches
from jumok.data.rows import Rows
from jumok.models.bert import BERT
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode
from jumok.models.special_ids import Framing
from jumok.tokenizers import Ids

Classifier = GPT | BERT
BATCH_TOKENS = 8192  # read at once


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


def label_probabilities(model: Classifier, rows: Sequence[Ids]) -> NDArray[np.float32]:
    """Return the probability of each label for each row: (n, labels)."""
    return log_probabilities(model, Rows.of(rows)).exp().numpy()


@torch.inference_mode()
def mean_states(model: Classifier, rows: Sequence[Ids], before: int, after: int) -> NDArray[np.float32]:
    """Return the mean of the last hidden states of each row, without some ids at its beginning and its end: (n, C)."""
    found, whole = torch.empty(len(rows), model.config.n_embd), Rows.of(rows)
    with eval_mode(model):
        for places, ids, lengths in batches_by_length(model, whole, np.arange(len(rows))):
            mask = length_mask(ids, lengths)  # (B, T)
            hidden = model.hidden(ids, mask) if isinstance(model, BERT) else model.hidden(ids)  # (B, T, C)
            counted = length_mask(ids, lengths - after)  # (B, T)
            counted[:, :before] = False
            means = hidden.float().masked_fill(~counted[..., None], 0).sum(dim=1) / counted.sum(dim=1, keepdim=True)
            found[places] = means.cpu()  # (B, C)
    return found.numpy()
