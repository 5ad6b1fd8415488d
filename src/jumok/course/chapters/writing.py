"""Chapter 11, writing: from logits to a token, the decoding loop, and beam search.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jumok.course.chapters.gpt import GPT


def likeliest(logits: Tensor, count: int) -> list[int]:
    """Return the ids with the largest logits, the largest first; of equal ones the smaller id: (V,)."""
    values = logits.tolist()
    return sorted(range(len(values)), key=lambda token: (-values[token], token))[:count]


def draw(logits: Tensor, number: float) -> int:
    """Return the first id at which the running sum of the probabilities reaches a number from 0 to 1: (V,)."""
    total, last = 0.0, 0
    for token, probability in enumerate(logits.double().softmax(dim=-1).tolist()):
        if probability > 0:
            total, last = total + probability, token
            if total >= number:
                return token
    return last


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits, and those equal to the last of them; the others become -inf: (V,) -> (V,)."""
    least = logits.sort(descending=True).values[min(k, len(logits)) - 1]
    return logits.masked_fill(logits < least, float("-inf"))


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest most probable tokens whose probabilities reach p; the others become -inf: (V,) -> (V,)."""
    probabilities, kept, total = logits.softmax(dim=-1).tolist(), torch.full_like(logits, float("-inf")), 0.0
    for token in likeliest(logits, len(logits)):
        kept[token] = logits[token]
        total += probabilities[token]
        if total >= p:
            break
    return kept


def min_p(logits: Tensor, share: float) -> Tensor:
    """Keep tokens at least `share` times as probable as the most probable one; the others become -inf: (V,) -> (V,)."""
    probabilities = logits.softmax(dim=-1)
    return logits.masked_fill(probabilities < share * probabilities.max(), float("-inf"))


def penalise(logits: Tensor, seen: Sequence[int], penalty: float) -> Tensor:
    """Lower the logits of ids that occurred: divide the positive ones, multiply the negative ones: (V,) -> (V,)."""
    lowered = logits.clone()
    for token in set(seen):
        lowered[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return lowered


def write(
    next_logits: Callable[[Sequence[int]], Tensor],
    prompt: Sequence[int],
    tokens: int,
    *,
    temperature: float = 1.0,
    keep: Callable[[Tensor], Tensor] = lambda logits: logits,
    seed: int = 0,
) -> list[int]:
    """Continue a text, and return the new ids. next_logits: of the token after some ids, (V,). keep: a filter."""
    random = np.random.Generator(np.random.PCG64((seed, 0)))
    ids = list(prompt)
    for _ in range(tokens):
        logits = next_logits(ids)  # (V,)
        if temperature == 0:
            ids.append(likeliest(logits, 1)[0])
        else:
            ids.append(draw(keep(logits / temperature), 1 - random.random()))
    return ids[len(prompt) :]


@torch.no_grad()
def generate(
    model: GPT,
    prompt: Sequence[int],
    tokens: int,
    *,
    temperature: float = 1.0,
    keep: Callable[[Tensor], Tensor] = lambda logits: logits,
    seed: int = 0,
) -> list[int]:
    """Continue a text with a GPT that sees the last context_length tokens, and return the new ids."""

    def next_logits(ids: Sequence[int]) -> Tensor:
        window = torch.tensor([ids[-model.context_length :]])  # (1, T)
        return model(window)[0, -1]  # (V,)

    return write(next_logits, prompt, tokens, temperature=temperature, keep=keep, seed=seed)


def distinct_share(ids: Sequence[int], n: int) -> float:
    """Return how many of the n-grams of a text are different, as a share: 1 if none repeats, near 0 in a loop."""
    grams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams)


class Candidate(NamedTuple):
    """A text that is being written, and the sum of the log-probabilities of its tokens."""

    ids: tuple[int, ...]
    total: float

    def score(self, length_penalty: float) -> float:
        """Divide the total by a power of the length: without it, short texts would always win."""
        return self.total / len(self.ids) ** length_penalty


def continued(going: Sequence[Candidate], next_log_probabilities: Callable[[Sequence[int]], Tensor]) -> list[Candidate]:
    """Return each beginning with each possible next token."""
    return [
        Candidate((*one.ids, token), one.total + value)
        for one in going
        for token, value in enumerate(next_log_probabilities(one.ids).tolist())
    ]


def beam_search(
    next_log_probabilities: Callable[[Sequence[int]], Tensor],
    end: int,
    *,
    beam: int,
    longest: int,
    length_penalty: float = 1.0,
) -> list[Candidate]:
    """Keep the `beam` most probable beginnings at each length; return the texts that end, the best score first."""
    going, ended = [Candidate((), 0.0)], list[Candidate]()
    for length in range(1, longest + 1):
        best = sorted(continued(going, next_log_probabilities), key=lambda one: -one.total)[: 2 * beam]
        ended += [one for one in best[:beam] if one.ids[-1] == end or length == longest]
        ended = sorted(ended, key=lambda one: -one.score(length_penalty))[:beam]
        going = [one for one in best if one.ids[-1] != end][:beam]
        full = len(ended) == beam
        if not going or (full and going[0].score(length_penalty) <= ended[-1].score(length_penalty)):
            break
    return ended


def every_text(
    next_log_probabilities: Callable[[Sequence[int]], Tensor], end: int, *, longest: int, length_penalty: float = 1.0
) -> list[Candidate]:
    """Return all texts of up to `longest` tokens, the best score first: exact, and exponentially slow."""
    going, ended = [Candidate((), 0.0)], list[Candidate]()
    for length in range(1, longest + 1):
        longer = continued(going, next_log_probabilities)
        ended += [one for one in longer if one.ids[-1] == end or length == longest]
        going = [one for one in longer if one.ids[-1] != end]
    return sorted(ended, key=lambda one: -one.score(length_penalty))
