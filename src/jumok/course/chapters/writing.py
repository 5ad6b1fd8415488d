"""Chapter 11, writing: from logits to a token by loops, the decoding loop, and beam search.

The functions work on one text, with Python lists and loops. The production functions of `jumok.inference.sampling`,
`jumok.inference.engine` and `jumok.inference.beam_search` compute the same for batches.

Source: top-p: https://arxiv.org/abs/1904.09751; min-p: https://arxiv.org/abs/2407.01082; repetition penalty:
https://arxiv.org/abs/1909.05858.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from jumok import EncoderDecoder
from jumok.models.modes import eval_mode

NextLogits = Callable[[Sequence[int]], Tensor]  # the logits (V,) of the token after these ids

# --- from logits to a token -------------------------------------------------------------------------------------------


def likeliest(logits: Tensor, count: int) -> list[int]:
    """The ids with the largest logits, the largest first; of equal ones the smaller id. logits: (V,)."""
    values = logits.tolist()
    return sorted(range(len(values)), key=lambda token: (-values[token], token))[:count]


def top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k largest logits, and those equal to the last of them; the others become -inf. (V,) -> (V,)."""
    least = sorted(logits.tolist(), reverse=True)[min(k, len(logits)) - 1]
    return torch.where(logits >= least, logits, torch.full_like(logits, -math.inf))


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest likeliest tokens whose probabilities reach p; the others become -inf. (V,) -> (V,)."""
    probabilities, kept, total = logits.softmax(dim=-1).tolist(), torch.full_like(logits, -math.inf), 0.0
    for token in likeliest(logits, len(logits)):
        kept[token] = logits[token]
        total += probabilities[token]
        if total >= p:
            break
    return kept


def min_p(logits: Tensor, share: float) -> Tensor:
    """Keep tokens at least `share` times as likely as the likeliest; the others become -inf. (V,) -> (V,)."""
    probabilities = logits.softmax(dim=-1)
    least = share * probabilities.max()
    return torch.where(probabilities >= least, logits, torch.full_like(logits, -math.inf))


def penalise(logits: Tensor, seen: Sequence[int], penalty: float) -> Tensor:
    """Lower the logits of ids that occurred: divide the positive ones, multiply the negative ones. (V,) -> (V,)."""
    lowered = logits.clone()
    for token in set(seen):
        lowered[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return lowered


def draw(logits: Tensor, number: float) -> int:
    """Draw an id by its probability.

    Args:
        logits: (V,), -inf for what is ruled out. number: random, above 0 and at most 1.

    Returns:
        The first id at which the running sum of the probabilities reaches `number`; never one with probability 0.
    """
    total, last = 0.0, 0
    for token, probability in enumerate(logits.double().softmax(dim=-1).tolist()):
        if probability == 0:
            continue
        total, last = total + probability, token
        if total >= number:
            return token
    return last  # the sum can be slightly below 1 by rounding


# --- the decoding loop ------------------------------------------------------------------------------------------------


def write(
    next_logits: NextLogits,
    prompt: Sequence[int],
    tokens: int,
    *,
    temperature: float = 1.0,
    keep: Callable[[Tensor], Tensor] | None = None,
    seed: int = 0,
) -> list[int]:
    """Continue a text: choose a token, append it, and use the longer text to choose the next one.

    Args:
        next_logits: of the token after some ids, (V,). prompt: at least one id. tokens: how many to write.
        temperature: divides the logits; 0 always takes the likeliest token. keep: a filter such as `top_k`, applied
            after the temperature. seed: of what is drawn.

    Returns:
        The new ids, without the prompt; the same as `jumok.inference.generate.generate_ids` draws with this seed,
        where rounding does not decide.
    """
    random = np.random.Generator(np.random.PCG64((seed, 0)))
    ids = list(prompt)
    for _ in range(tokens):
        logits = next_logits(ids)  # (V,)
        if temperature == 0:
            ids.append(likeliest(logits, 1)[0])
            continue
        logits = logits / temperature
        if keep is not None:
            logits = keep(logits)
        ids.append(draw(logits, 1 - random.random()))
    return ids[len(prompt) :]


def distinct_share(ids: Sequence[int], n: int) -> float:
    """How many of the n-grams of a text are different, as a share: 1 if none repeats, near 0 in a loop.

    Raises:
        ValueError: the text has fewer than n tokens.
    """
    if len(ids) < n:
        raise ValueError(f"a text of {len(ids)} tokens has no {n}-gram")
    grams = [tuple(ids[start : start + n]) for start in range(len(ids) - n + 1)]
    return len(set(grams)) / len(grams)


# --- beam search ------------------------------------------------------------------------------------------------------


class Candidate(NamedTuple):
    """A target that is being written. ids: so far, without the start. total: sum of their log-probabilities."""

    ids: tuple[int, ...]
    total: float

    def score(self, length_penalty: float = 1.0) -> float:
        """The total divided by length**length_penalty: without a division, short targets would always win."""
        return self.total / len(self.ids) ** length_penalty


def beam_search(
    next_log_probabilities: NextLogits, end: int, *, beam: int, longest: int, length_penalty: float = 1.0
) -> list[Candidate]:
    """Keep the `beam` likeliest beginnings at each length, continue all of them, and collect those that end.

    Args:
        next_log_probabilities: (V,), of the token after these ids of the target. end: the id of [EOS].
        beam: how many are kept; 1 is greedy decoding. longest: tokens of a target at most, [EOS] included.
        length_penalty: see `Candidate.score`.

    Returns:
        Up to `beam` targets, the best score first; as `jumok.inference.beam_search.beam_search` with one source.
    """
    going, ended = [Candidate((), 0.0)], list[Candidate]()
    for length in range(1, longest + 1):
        continued = [
            Candidate((*one.ids, token), one.total + value)
            for one in going
            for token, value in enumerate(next_log_probabilities(one.ids).tolist())
        ]
        possible = (one for one in continued if math.isfinite(one.total))
        best = sorted(possible, key=lambda one: -one.total)[: 2 * beam]  # enough, even if `beam` of them end
        if length == longest:
            ended += best[:beam]
        else:
            ended += [one for one in best[:beam] if one.ids[-1] == end]
        ended = sorted(ended, key=lambda one: -one.score(length_penalty))[:beam]
        going = [one for one in best if one.ids[-1] != end][:beam]
        full = len(ended) == beam
        if full and (not going or going[0].score(length_penalty) <= ended[-1].score(length_penalty)):
            break  # the likeliest beginning is no better than the worst target
    return ended


def every_target(
    next_log_probabilities: NextLogits, end: int, *, longest: int, length_penalty: float = 1.0
) -> list[Candidate]:
    """All targets of up to `longest` tokens, the best score first: exact, and exponentially slow.

    A target ends with `end`, or has `longest` tokens. Arguments as for `beam_search`.
    """
    going, ended = [Candidate((), 0.0)], list[Candidate]()
    for length in range(1, longest + 1):
        continued = [
            Candidate((*one.ids, token), one.total + value)
            for one in going
            for token, value in enumerate(next_log_probabilities(one.ids).tolist())
        ]
        ended += [one for one in continued if one.ids[-1] == end or length == longest]
        going = [one for one in continued if one.ids[-1] != end]
    return sorted(ended, key=lambda one: -one.score(length_penalty))


def decoder_log_probabilities(model: EncoderDecoder, source: Sequence[int]) -> NextLogits:
    """The function that `beam_search` takes, of a production encoder–decoder and one source.

    Args:
        model: with a decoder_start_id. source: its ids.
    """
    start = model.config.decoder_start_id
    assert start is not None
    with torch.no_grad(), eval_mode(model):
        encoded = model.encode(torch.tensor([list(source)]))  # (1, S, C)

    def after(ids: Sequence[int]) -> Tensor:
        with torch.no_grad(), eval_mode(model):
            hidden = model.hidden(torch.tensor([[start, *ids]]), encoded, None)[0, -1]  # (C,)
            return model.logits(hidden).log_softmax(dim=-1)  # (V,)

    return after
