"""Chapter 1, the bigram model and batches: counting, learning the same table, and windows of a text.

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
from torch.nn import functional as F


class Letters:
    """The simplest tokenizer: a number for each character of a text. It knows no other character."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        self.ids = {letter: i for i, letter in enumerate(self.letters)}

    def encode(self, text: str) -> list[int]:
        """Return the numbers of the characters of a text."""
        return [self.ids[letter] for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some numbers."""
        return "".join(self.letters[i] for i in ids)


def count_pairs(ids: Tensor, vocab_size: int) -> Tensor:
    """Return how often each token followed each token: (N,) -> (V, V)."""
    counts = torch.zeros(vocab_size, vocab_size)
    for before, after in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True):
        counts[before, after] += 1
    return counts


def counted_probabilities(counts: Tensor, added: float = 0.0) -> Tensor:
    """Divide each row of the counts by its sum: (V, V) -> (V, V). added: to each count first."""
    counts = counts + added
    return counts / counts.sum(dim=-1, keepdim=True)


class BigramModel(nn.Module):
    """A bigram model whose table is learned: (B, T) -> (B, T, V), the logits of the next token."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)
        nn.init.zeros_(self.table.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up a row of the table for each token."""
        return self.table(ids)  # (B, T, V)


def fit_bigram(model: BigramModel, ids: Tensor, steps: int, rate: float) -> list[float]:
    """Train on all pairs of a text at once, (N,), and return the loss before each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(ids[:-1]), ids[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def windows(ids: Tensor, starts: Sequence[int], context_length: int) -> tuple[Tensor, Tensor]:
    """Return windows of a text, and the same windows one token later: (N,) -> (B, T), (B, T)."""
    last = len(ids) - context_length - 1
    if not all(0 <= start <= last for start in starts):
        raise ValueError(f"a window and one more token must fit into the text: starts from 0 to {last}")
    inputs = torch.stack([ids[start : start + context_length] for start in starts])
    targets = torch.stack([ids[start + 1 : start + context_length + 1] for start in starts])
    return inputs, targets


def get_batch(ids: Tensor, context_length: int, batch_size: int) -> tuple[Tensor, Tensor]:
    """Return a batch of windows at random positions, and their targets: (N,) -> (B, T), (B, T)."""
    starts = torch.randint(len(ids) - context_length, (batch_size,))
    return windows(ids, starts.tolist(), context_length)


def epoch_starts(length: int, context_length: int, seed: int, epoch: int = 0) -> list[int]:
    """Return where the windows of an epoch begin, in random order: each token of the text once."""
    count = max(1, (length - context_length) // context_length)
    random = np.random.Generator(np.random.PCG64((seed, epoch)))
    shift = int(random.integers(0, length - count * context_length))
    return [shift + int(place) * context_length for place in random.permutation(count)]


def hold_out(ids: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Split a text, (N,), into what is learned and, at its end, the share that is held out."""
    cut = len(ids) - round(len(ids) * share)
    return ids[:cut], ids[cut:]


def witten_bell(learned: str, asked: str) -> float:
    """Return the nats per character of a smoothed bigram model that counts one text and predicts another."""
    pairs, alone = Counter(zip("\n" + learned, learned, strict=False)), Counter(learned)
    follow: Counter[str] = Counter()
    different: defaultdict[str, set[str]] = defaultdict(set)
    for (before, after), times in pairs.items():
        follow[before] += times
        different[before].add(after)
    total = 0.0
    for before, after in zip("\n" + asked, asked, strict=False):
        p = (alone[after] + len(alone) / 0x110000) / (len(learned) + len(alone))
        d = max(1, len(different[before]))
        total -= math.log((pairs[before, after] + d * p) / (follow[before] + d))
    return total / len(asked)
