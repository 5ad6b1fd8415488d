"""Checks of the exercises on shapes and on averaging the past."""

from __future__ import annotations

import torch
from torch import Tensor

from jumok.course.practice.checking import Checks, hidden, results
from jumok.nn import attention_weights, causal_mask

# view, transpose, the dimension that a sum removes, broadcasting; each also with sizes that are equal.
shapes: Checks = {
    "split_width": results(
        "split_width",
        lambda x, n: x.unflatten(-1, (n, -1)),
        {"width-is-split": [(hidden(2, 3, 20), 4), (hidden(3, 5, 14), 2)]},
    ),
    "swap": results(
        "swap", lambda x: x.transpose(1, 2), {"dimensions-exchanged": [(hidden(2, 3, 5),), (hidden(4, 2, 3),)]}
    ),
    "sum_keys": results(
        "sum_keys", lambda scores: scores.sum(-1), {"rows-summed": [(hidden(2, 3, 5),), (hidden(3, 4, 4),)]}
    ),
    "scale_rows": results(
        "scale_rows",
        lambda x, factors: torch.diag(factors) @ x,
        {"rows-scaled": [(hidden(4, 4), hidden(4, seed=1)), (hidden(5, 3), hidden(5, seed=1))]},
    ),
}


def _averages(t: int) -> Tensor:
    """(T, T): attention of which all scores are 0."""
    zeros = torch.zeros(1, t, 1)
    return attention_weights(zeros, zeros, causal=True)[0]


averaging_matrix: Checks = {
    "averaging_matrix": results("averaging_matrix", _averages, {"averaging-matrix": [(5,), (8,)]}),
    "average_past": results(
        "average_past",
        lambda x: _averages(x.shape[1]) @ x,
        {"all-averaged-right": [(hidden(3, 5, 5),), (hidden(2, 4, 3),)]},
    ),
}


def _causal_softmax(scores: Tensor) -> Tensor:
    return scores.masked_fill(~causal_mask(*scores.shape[-2:]), float("-inf")).softmax(-1)


averaging_softmax = results(
    "causal_softmax",
    _causal_softmax,
    {"causal-softmax": [(hidden(2, 5, 5, scale=2),), (hidden(3, 4, 4),), (hidden(2, 5, 5, scale=0),)]},
)
