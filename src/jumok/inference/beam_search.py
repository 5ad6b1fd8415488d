"""Beam search: for each source, the `beam` likeliest unfinished targets are kept and continued.

It is the beam search of `transformers` with `early_stopping=False`. At each length the 2·beam likeliest continuations
are candidates. Of the first `beam` of them, those that end become answers, the best `beam` of which are kept; the
likeliest that do not end are continued. The search for a source is over when there are `beam` answers and the likeliest
beam, scored as if it ended now, is no better than the worst of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from jumok.data.rows import Rows
from jumok.inference.answer_search import Answer, Search, make_answer
from jumok.inference.rules import NextIdRules
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.tokenizers import Ids


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
                answers[sources[row // width]].append(targets.so_far(row, -math.inf, "not finite"))
        vocab = log_probabilities.shape[1]
        candidates = (totals[:, :, None] + log_probabilities.unflatten(0, (-1, width))).flatten(1)  # (N, K*V)
        best, places = candidates.topk(min(2 * search.beam, candidates.shape[1]))  # (N, 2*beam) each
        parents, tokens = places // vocab, places % vocab  # (N, 2*beam) each
        parents = parents + width * torch.arange(len(sources), device=targets.device)[:, None]  # as rows
        ended = targets.ends(tokens)  # (N, 2*beam)
        length = targets.ids.shape[1]
        for place, leader in enumerate(best[:, 0].tolist()):
            if leader == -math.inf and not answers[sources[place]]:  # no id may come next
                score = search.score(float(totals[place, 0]), length - 1)
                answers[sources[place]].append(targets.so_far(width * place, score, "stop"))
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


class Targets:
    """Targets that a model is writing, one a row, each beside its source; rows can be dropped and doubled."""

    def __init__(self, model: EncoderDecoder, sources: Sequence[Ids], search: Search) -> None:
        self.model, self.config, self.tokenizer = model, model.config, require_tokenizer(model)
        assert model.config.decoder_start_id is not None  # `require_answering` has checked both
        assert model.config.eos_id is not None
        self.device = model.token_embedding.weight.device
        self.limit = search.limit(model.config)
        self._rules = NextIdRules(
            model.config, self.tokenizer, prompt=1, tokens=self.limit, no_repeat_ngram=search.no_repeat_ngram
        )
        rows = Rows.of(sources)
        block = rows.padded(range(len(rows)), model.config.pad_id or 0, multiple=1)  # (B, S)
        mask = torch.arange(block.shape[1]) < torch.from_numpy(rows.lengths)[:, None]  # (B, S)
        self._mask = None if bool(mask.all()) else mask.to(self.device)
        self._encoded = model.encode(block.to(self.device), self._mask)  # (B, S, C)
        self._cache = model.new_cache(len(sources))
        start, self._end = model.config.decoder_start_id, model.config.eos_id
        self.ids = torch.full((len(sources), 1), start, device=self.device)  # (B, T)
        self.failed = torch.zeros(
            len(sources), dtype=torch.bool, device=self.device
        )  # (B,): whose last logits are not finite

    @property
    def is_last(self) -> bool:
        """Whether the next token is the last one that there is room for."""
        return self.ids.shape[1] == self.limit

    def select(self, rows: Tensor, *, same_sources: bool = False) -> None:
        """Keep these rows, (N,), in this order. same_sources: row i still belongs to the same source as before."""
        self.ids = self.ids[rows]  # (N, T)
        self._cache.target.select(rows)
        if same_sources:
            return
        self._encoded = self._encoded[rows]  # (N, S, C)
        self._mask = None if self._mask is None else self._mask[rows]  # (N, S)
        self._cache.source.select(rows)

    def ends(self, new: Tensor) -> Tensor:
        """Return whether a target ends with this next token, bool: it is [EOS], or no other has room."""
        return torch.ones_like(new, dtype=torch.bool) if self.is_last else new.eq(self._end)

    def append(self, new: Tensor) -> None:
        """The next token of each row, (B,)."""
        self.ids = torch.cat((self.ids, new[:, None]), dim=1)  # (B, T+1)

    def log_probabilities(self) -> Tensor:
        """Of the next token of each row: (B, V), -inf where a rule forbids it.

        Ids that only the model has, not its tokenizer, are never written. Rows whose logits are not finite are marked
        in `failed`, and are all -inf.
        """
        new = self.ids[:, self._cache.length :]  # (B, 1)
        hidden = self.model.hidden(new, self._encoded, self._mask, self._cache)[:, -1]  # (B, C)
        logits = self.model.logits(hidden)[:, : self.tokenizer.vocab_size]  # (B, V)
        self.failed = ~logits.isfinite().all(dim=-1)  # (B,)
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_probabilities = logits.to(wide).log_softmax(dim=-1)  # (B, V)
        if self._rules:
            allowed = self._rules.apply(log_probabilities.cpu().numpy(), self.ids.tolist())  # (B, V)
            log_probabilities = torch.from_numpy(allowed).to(self.device)
        return log_probabilities.masked_fill(self.failed[:, None], -math.inf)

    def finished(self, row: int, last: int, score: float) -> Answer:
        """Return the answer of row `row` with the token `last`."""
        ids = (*self.ids[row, 1:].tolist(), last)
        return make_answer(self.tokenizer, self.config, ids, score, "stop" if last == self._end else "length")

    def so_far(self, row: int, score: float, finish: Literal["stop", "not finite"]) -> Answer:
        """Return the answer of row `row`, which has no next token."""
        return make_answer(self.tokenizer, self.config, self.ids[row, 1:].tolist(), score, finish)
