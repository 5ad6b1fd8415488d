"""Beam search: for each source, the `beam` likeliest unfinished targets are kept and continued.

It is the beam search of `transformers` with `early_stopping=False`. At each length the 2·beam likeliest continuations
are candidates. Of the first `beam` of them, those that end become answers, the best `beam` of which are kept; the
likeliest that do not end are continued. The search for a source is over when there are `beam` answers and the likeliest
beam, scored as if it ended now, is no better than the worst of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from jumok.inference.answer_search import Answer, Search, Targets


def beam_search(targets: Targets, search: Search) -> list[list[Answer]]:
    """Return the best answers for each source, at most `beam` of them, the best first.

    The rows of `targets` are N sources times K beams; K is 1 at the first token, where all beams are alike. A source
    whose search is over is dropped.
    """
    answers: list[list[Answer]] = [[] for _ in range(len(targets.ids))]
    sources = list(range(len(answers)))  # N of them
    totals = torch.zeros(len(sources), 1, device=targets.device)  # (N, K)
    while sources:
        width = totals.shape[1]  # K
        log_probabilities = targets.log_probabilities()  # (N*K, V)
        for row in targets.failed.nonzero()[:, 0].tolist():  # its beams are -inf from here on
            if not answers[sources[row // width]]:
                answers[sources[row // width]].append(targets.broken(row))
        vocab = log_probabilities.shape[1]
        candidates = (totals[:, :, None] + log_probabilities.unflatten(0, (-1, width))).flatten(1)  # (N, K*V)
        best, places = candidates.topk(min(2 * search.beam, candidates.shape[1]))  # (N, 2*beam) each
        parents, tokens = places // vocab, places % vocab  # (N, 2*beam) each
        parents = parents + width * torch.arange(len(sources), device=targets.device)[:, None]  # as rows
        ended = targets.ends(tokens)  # (N, 2*beam)
        length = targets.ids.shape[1]
        for place, rank in (ended & best.isfinite())[:, : search.beam].nonzero().tolist():
            score = search.score(float(best[place, rank]), length)
            row, token = int(parents[place, rank]), int(tokens[place, rank])
            _keep(answers[sources[place]], targets.finished(row, token, score), search.beam)
        totals, ranks = best.masked_fill(ended, -math.inf).topk(min(search.beam, best.shape[1]))  # (N, K) each
        leaders = totals[:, 0].tolist()
        going = [
            place
            for place, leader in enumerate(leaders)
            if math.isfinite(leader) and _can_improve(answers[sources[place]], search, leader, length)
        ]
        kept = torch.tensor(going, dtype=torch.int64, device=targets.device)  # (N,)
        same = len(going) == len(sources) and totals.shape[1] == width
        sources, totals = [sources[place] for place in going], totals[kept]
        targets.select(parents.gather(1, ranks)[kept].flatten(), same_sources=same)
        targets.append(tokens.gather(1, ranks)[kept].flatten())
    return answers


def _keep(answers: list[Answer], new: Answer, most: int) -> None:
    """Add an answer to the `most` best ones, the best first."""
    answers.append(new)
    answers.sort(key=lambda one: -one.score)
    del answers[most:]


def _can_improve(answers: Sequence[Answer], search: Search, leader: float, length: int) -> bool:
    """Return whether a beam of this log-probability and length, if it ended now, would change the answers."""
    return len(answers) < search.beam or search.score(leader, length) > answers[-1].score
