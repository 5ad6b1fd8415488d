"""Chapter 1, the bigram model and batches: counting, learning the same table, and windows of a text.

A bigram model predicts a token from the token before it. Its parameters are one table (V, V). The table can be counted
or learned; the results agree. `windows` and `epoch_starts` compute the batches of `jumok.data.batches.Batches`, and
`witten_bell` the baseline that `jumok train` and `jumok evaluate` print.

Shapes use the legend of `jumok.nn.attention`.

Source: Shannon, section 3, https://doi.org/10.1002/j.1538-7305.1948.tb01338.x; the smoothing:
https://doi.org/10.1109/18.87000, method C.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from jumok.evaluation.bigram import CODE_POINTS
from jumok.models.losses import cross_entropies

# --- the model --------------------------------------------------------------------------------------------------------


def count_pairs(ids: Tensor, vocab_size: int) -> Tensor:
    """How often each token followed each token.

    Args:
        ids: (N,), a text. vocab_size: V.

    Returns:
        (V, V), float32: row a, column b is the number of times that b came directly after a.
    """
    counts = torch.zeros(vocab_size, vocab_size)
    for before, after in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True):
        counts[before, after] += 1
    return counts


def counted_probabilities(counts: Tensor, added: float = 0.0) -> Tensor:
    """Each row of the counts divided by its sum.

    Args:
        counts: (V, V). added: to each count first, so that no pair has the probability 0.

    Returns:
        (V, V); a row that was never counted is NaN if nothing is added.
    """
    counts = counts + added
    return counts / counts.sum(dim=-1, keepdim=True)


class BigramModel(nn.Module):
    """A bigram model whose table is learned: an embedding that looks up V logits for each token.

    Args:
        vocab_size: V. All logits begin at 0, so all tokens are equally likely.
    """

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the next token at each position: ids (B, T) -> (B, T, V)."""
        return self.table(ids)


def learn(model: BigramModel, ids: Tensor, *, steps: int, rate: float) -> list[float]:
    """Train on all pairs of a text at once, by gradient descent with Adam.

    Args:
        ids: (N,), a text. steps: number of updates. rate: learning rate.

    Returns:
        the loss before each step, in nats per token.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = cross_entropies(model(ids[None, :-1]), ids[None, 1:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# --- batches ----------------------------------------------------------------------------------------------------------


def hold_out(ids: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """The training part and the held-out part of a text: its end.

    Args:
        ids: (N,). share: of the tokens that are held out.
    """
    cut = len(ids) - round(len(ids) * share)
    return ids[:cut], ids[cut:]


def windows(ids: Tensor, starts: Sequence[int], context_length: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: windows of a text, and the same windows one token later.

    Args:
        ids: (N,). starts: B positions, each at most N - context_length - 1. context_length: T.

    Returns:
        (B, T) each; targets[b, t] is the token after inputs[b, t].

    Raises:
        ValueError: a window would go beyond the end of the text.
    """
    last = len(ids) - context_length - 1
    if not all(0 <= start <= last for start in starts):
        raise ValueError(f"starts must be from 0 to {last}, so that a window and one more token fit into the text")
    inputs = torch.stack([ids[start : start + context_length] for start in starts])
    targets = torch.stack([ids[start + 1 : start + context_length + 1] for start in starts])
    return inputs, targets


def get_batch(
    ids: Tensor, context_length: int, batch_size: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """A batch of windows at random positions, drawn with replacement.

    Returns:
        as `windows`.
    """
    starts = torch.randint(len(ids) - context_length, (batch_size,), generator=generator)
    return windows(ids, starts.tolist(), context_length)


def epoch_starts(length: int, context_length: int, seed: int, epoch: int = 0) -> list[int]:
    """Where the windows of an epoch of `jumok.data.batches.Batches` begin: each token once, in random order.

    Args:
        length: tokens of the text. context_length: T. seed: of the run. epoch: from 0.
    """
    count = max(1, (length - context_length) // context_length)
    random = np.random.Generator(np.random.PCG64((seed, epoch)))
    shift = int(random.integers(0, length - count * context_length))  # another offset in each epoch
    return [shift + int(place) * context_length for place in random.permutation(count)]


# --- the baseline -----------------------------------------------------------------------------------------------------


def witten_bell(learned: str, asked: str) -> float:
    """The nats per character of a smoothed bigram model; equal to `jumok.evaluation.bigram.Bigram`.

    The probability of c after a is (n(a c) + d(a) · p(c)) / (n(a) + d(a)). n(a c) is how often c followed a, n(a) how
    often anything did, and d(a) the number of different characters that did. p(c) is the frequency of c, with a very
    small share for characters that never occurred. A newline stands before each text.

    Args:
        learned: the text that is counted. asked: the text that is predicted, one character or more.
    """
    pairs = Counter(zip("\n" + learned, learned, strict=False))
    alone = Counter(learned)
    follow: Counter[str] = Counter()
    different: defaultdict[str, set[str]] = defaultdict(set)
    for (before, after), times in pairs.items():
        follow[before] += times
        different[before].add(after)
    total = 0.0
    for before, after in zip("\n" + asked, asked, strict=False):
        p = (alone[after] + len(alone) / CODE_POINTS) / (len(learned) + len(alone))
        d = max(1, len(different[before]))  # after what never came before, p alone
        total -= math.log((pairs[before, after] + d * p) / (follow[before] + d))
    return total / len(asked)
