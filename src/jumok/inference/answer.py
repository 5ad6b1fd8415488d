"""How an encoder–decoder answers: it reads a source once, and writes a target token by token.

A source is its text and [EOS], or the text between the ids that the tokenizer of a published model puts there, as in
`<s> text </s>`. The decoder begins with `decoder_start_id` and writes until it writes [EOS], or until
the tokens are used up. Three ways to choose a token are here:

- greedy: the likeliest one;
- sampling: drawn, as in `jumok.generate`;
- beam search: the `beam` likeliest beginnings are all kept. It is that of `transformers` with `early_stopping=False`:
  at each length the 2·beam likeliest continuations are looked at. Of the first `beam` of them, those that end are
  answers, the best `beam` of which are kept; the likeliest that do not end go on. The search for a source is over when
  there are `beam` answers and the likeliest beginning, scored as if it ended now, is no better than the worst of them.

A score is the sum of the log-probabilities, in nats, divided by tokens**length_penalty; [EOS] is a token. Answers do
not depend on what else is asked at the same time, up to the last bits of a floating-point number.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import EncoderDecoderConfig, require_range
from jumok.errors import ConfigError, TextError, TokenizerError
from jumok.inference.sampling import Sampling, drawn, filtered
from jumok.models import Model, require_room_to_write
from jumok.models.checks import finite_rows, not_finite, require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.framing import source_frame
from jumok.models.modes import eval_mode
from jumok.tokenizers import Tokenizer

LARGEST_BATCH = 128  # targets under way at the same time

Ids = NDArray[np.int64]
Choice = Callable[[Tensor, list[int]], Tensor]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model wrote about a source.

    Fields:
        text: without special tokens.
        score: see the head of this module; 0 is the highest possible.
        ids: every id that was written, [EOS] included. tokens: their number.
        finish: "stop" at [EOS], or "length" when the tokens were used up; a last character whose bytes are not
            complete by then is left out of the text. "not finite" where the model's logits were not finite after these
            ids, while other answers went on; the score is then that of nothing, -inf.
    """

    text: str
    score: float
    ids: tuple[int, ...]
    tokens: int
    finish: Literal["stop", "length", "not finite"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """How the tokens of an answer are chosen.

    Fields:
        beam: beginnings that are kept; 1 is greedy, or sampling.
        n_best: answers for each source.
        length_penalty: power of the length by which a score is divided; more favours longer answers.
        no_repeat_ngram: no sequence of so many tokens occurs twice in an answer; 0 is off.
        max_tokens: the most tokens of an answer, [EOS] included; None: as many as the model has positions.
        sampling: how tokens are drawn; at temperature 0 they are not.

    Raises:
        ConfigError: a value is out of range, or two of them do not fit together.
    """

    beam: int = 1
    n_best: int = 1
    length_penalty: float = 1.0
    no_repeat_ngram: int = 0
    max_tokens: int | None = None
    sampling: Sampling = Sampling(temperature=0.0)

    def __post_init__(self) -> None:
        require_range("beam", self.beam, 1)
        require_range("n_best", self.n_best, 1)
        require_range("length_penalty", self.length_penalty, -100, 100)
        require_range("no_repeat_ngram", self.no_repeat_ngram, 0)
        draws = self.sampling.temperature > 0
        if draws and self.beam > 1:
            raise ConfigError(
                "beam={beam} and temperature={temperature:g} were both given: beam search looks for the "
                "likeliest answer, while a temperature above 0 draws answers at random; use "
                "temperature=0, or beam=1.",
                beam=self.beam,
                temperature=self.sampling.temperature,
            )
        if not draws and self.n_best > self.beam:
            raise ConfigError(
                "n_best={n_best} is more than beam={beam}: beam search finds as many answers as it has "
                "beams; use beam={n_best}, or a temperature above 0 to draw several answers.",
                n_best=self.n_best,
                beam=self.beam,
            )

    def limit(self, config: EncoderDecoderConfig) -> int:
        """The most tokens of an answer of a model.

        Raises:
            ConfigError: max_tokens is more than the model has positions for.
        """
        if self.max_tokens is None:
            return config.context_length
        require_range("max_tokens", self.max_tokens, 1, config.context_length)
        return self.max_tokens

    def score(self, total: float, tokens: int) -> float:
        """The score of an answer whose log-probabilities have the sum `total`."""
        return float(total / tokens**self.length_penalty)


def answer(
    model: EncoderDecoder,
    sources: Sequence[str],
    *,
    beam: int = 1,
    n_best: int = 1,
    length_penalty: float = 1.0,
    no_repeat_ngram: int = 0,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int | None = None,
) -> list[list[Answer]]:
    """Answer each of some sources.

    The model is in eval mode meanwhile and goes back to its mode afterwards; torch's own random numbers are not
    touched.

    Args:
        model: with its tokenizer at `model.tokenizer`, as `jumok.load` returns it.
        sources: texts of less than context_length tokens each.
        beam, n_best, length_penalty, no_repeat_ngram, max_tokens: see `Search`.
        temperature, top_k, top_p, min_p: see `jumok.inference.sampling.Sampling`.
        seed: of what is drawn. The same seed gives source i the same answers; None: a new one each time.

    Returns:
        for each source its answers, the best score first: n_best of them, or as many as there are.

    Raises:
        ConfigError: a setting is out of range, or the model is no encoder–decoder.
        TextError: a source has more tokens than the model reads.
        TokenizerError: the model has no tokenizer, or no id that begins or ends an answer.
        JumokError: the model's logits are not finite for any source; where they are for some, see `Answer.finish`.
    """
    search = Search(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        no_repeat_ngram=no_repeat_ngram,
        max_tokens=max_tokens,
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p),
    )
    require_range("seed", seed or 0, 0)
    if isinstance(sources, str):
        raise ConfigError("sources={sources!r} is one string; give a list: [{sources!r}].", sources=sources)
    tokenizer = require_answering(model)
    ids = []
    for number, text in enumerate(sources, 1):
        read = closed(tokenizer, text, model.config)
        if len(read) > model.config.context_length:
            raise TextError(
                "source {number} has {count:,} tokens, special tokens included, and this model reads at "
                "most {context_length}; shorten it.",
                number=number,
                count=len(read),
                context_length=model.config.context_length,
            )
        ids.append(read)
    return answer_ids(model, ids, search, seed=seed)


def require_answering(model: Model) -> Tokenizer:
    """The tokenizer of a model that can answer.

    Raises:
        ConfigError: it is no encoder–decoder.
        TokenizerError: it has no tokenizer, or no id that begins or ends an answer.
    """
    if not isinstance(model, EncoderDecoder):
        raise ConfigError(
            "only an EncoderDecoder answers, and this model is of the kind {kind}; train one with "
            "task seq2seq. A GPT continues a text: jumok.generate.",
            kind=type(model).__name__,
        )
    missing = [name for name in ("decoder_start_id", "eos_id") if getattr(model.config, name) is None]
    if missing:
        raise TokenizerError(
            "this model cannot answer: its configuration has no {names}, the ids that begin and end "
            "an answer; give the ids of the special tokens that it was trained with.",
            names=", ".join(missing),
        )
    return require_tokenizer(model)


def closed(tokenizer: Tokenizer, text: str, config: EncoderDecoderConfig, most: int | None = None) -> Ids:
    """The ids of a text between those that belong around it: what a source is, and what a target is. (S,).

    Args:
        most: of these ids; a longer text loses its end, and keeps what belongs around it. None: as many as there are.
    """
    before, after = source_frame(config, tokenizer)
    ids = tokenizer.encode(text).astype(np.int64)
    room = len(ids) if most is None else max(0, most - len(before) - len(after))
    return np.concatenate((np.array(before, np.int64), ids[:room], np.array(after, np.int64)))


@torch.inference_mode()
def answer_ids(
    model: EncoderDecoder, sources: Sequence[Ids], search: Search, *, seed: int | None = None, cache: bool = True
) -> list[list[Answer]]:
    """As `answer`, for sources that are ids already.

    Args:
        sources: (S,) each, of 1 to context_length ids; see `closed`.
        cache: keep keys and values of past tokens; without it the result is the same, later.
    """
    seed = secrets.randbits(63) if seed is None else seed
    draws = search.n_best if search.sampling.temperature > 0 else 1
    require_room_to_write(model.config, max(draws, search.beam))
    size = max(1, LARGEST_BATCH // max(draws, search.beam))  # sources
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))  # so that little is padding
    answers: list[list[Answer]] = [[] for _ in sources]
    with eval_mode(model):
        for first in range(0, len(order), size):
            numbers = order[first : first + size]
            targets = _Targets(model, [sources[number] for number in numbers], search, cache=cache)
            if search.beam > 1:
                found = _searched(targets, search)
            else:
                random = [
                    np.random.Generator(np.random.PCG64((seed, number, draw)))
                    for number in numbers
                    for draw in range(draws)
                ]
                found = _written(targets, search, draws, random)
            for number, written in zip(numbers, found, strict=True):
                ranked = sorted(written, key=lambda one: -one.score)
                answers[number] = ranked[: search.n_best]
    if answers and all(one.finish == "not finite" for found in answers for one in found):
        raise not_finite()
    return answers


# --- targets under way ------------------------------------------------------------------------------------------------


class _Targets:
    """Targets that a model is writing, one a row, each beside its source; rows can be dropped and doubled."""

    def __init__(self, model: EncoderDecoder, sources: Sequence[Ids], search: Search, *, cache: bool) -> None:
        self.model, self.config, self.tokenizer = model, model.config, require_answering(model)
        assert model.config.decoder_start_id is not None  # that it has both was required
        assert model.config.eos_id is not None
        self.device = model.token_embedding.weight.device
        self.limit = search.limit(model.config)
        self.no_repeat_ngram = search.no_repeat_ngram
        block, mask = _padded(sources, model.config.pad_id or 0)  # (B, S) each
        self._mask = None if bool(mask.all()) else mask.to(self.device)
        self._encoded = model.encode(block.to(self.device), self._mask)  # (B, S, C)
        self._cache = model.new_cache(len(sources)) if cache else None
        start, self._end = model.config.decoder_start_id, model.config.eos_id
        self.ids = torch.full((len(sources), 1), start, device=self.device)  # (B, T)
        self.failed = torch.zeros(len(sources), dtype=torch.bool, device=self.device)  # (B,): the newest logits were
        self._special = {*self.tokenizer.special_tokens.values(), start, self._end, model.config.pad_id}

    @property
    def is_last(self) -> bool:
        """Whether the next token is the last one that there is room for."""
        return self.ids.shape[1] == self.limit

    def select(self, rows: Tensor, *, same_sources: bool = False) -> None:
        """Go on with these rows, (N,). same_sources: row i still belongs to the source that it belonged to."""
        self.ids = self.ids[rows]  # (N, T)
        if self._cache is not None:
            self._cache.target.select(rows)
        if same_sources:
            return
        self._encoded = self._encoded[rows]  # (N, S, C)
        self._mask = None if self._mask is None else self._mask[rows]  # (N, S)
        if self._cache is not None:
            self._cache.source.select(rows)

    def ends(self, new: Tensor) -> Tensor:
        """Whether a target ends with this next token, bool: it is [EOS], or there is room for no other."""
        return torch.ones_like(new, dtype=torch.bool) if self.is_last else new.eq(self._end)

    def append(self, new: Tensor) -> None:
        """The next token of each row, (B,)."""
        self.ids = torch.cat((self.ids, new[:, None]), dim=1)  # (B, T+1)

    def log_probabilities(self) -> Tensor:
        """Of the next token of each row: (B, V), -inf where a rule forbids it.

        Ids that the model has but its tokenizer has not are never written. As in `transformers`, the probabilities of
        what is left do not add up to one, and a token that must come costs nothing. `failed` tells the rows whose
        logits are not finite; theirs are all -inf.
        """
        past = 0 if self._cache is None else self._cache.length
        hidden = self.model.hidden(self.ids[:, past:], self._encoded, self._mask, self._cache)[:, -1]  # (B, C)
        logits = self.model.logits(hidden)[:, : self.tokenizer.vocab_size]  # (B, V)
        self.failed = ~finite_rows(logits)  # (B,)
        wide = torch.promote_types(logits.dtype, torch.float32)
        log_probabilities = logits.to(wide).log_softmax(dim=-1)  # (B, V)
        forbid_repeats(log_probabilities, self.ids, self.no_repeat_ngram, self._end)
        forced = self.config.forced_bos_id if self.ids.shape[1] == 1 else None
        if self.is_last and self.config.forced_eos_id is not None:
            forced = self.config.forced_eos_id
        if forced is not None:
            log_probabilities = torch.full_like(log_probabilities, -math.inf)
            log_probabilities[:, forced] = 0.0
        return log_probabilities.masked_fill(self.failed[:, None], -math.inf)

    def finished(self, row: int, last: int, score: float) -> Answer:
        """The answer that row `row` becomes with the token `last`."""
        ids = (*self.ids[row, 1:].tolist(), last)
        return self._answer(ids, score, "stop" if last == self._end else "length")

    def broken(self, row: int) -> Answer:
        """The answer that row `row` is, which failed."""
        return self._answer(tuple(self.ids[row, 1:].tolist()), -math.inf, "not finite")

    def _answer(self, ids: tuple[int, ...], score: float, finish: Literal["stop", "length", "not finite"]) -> Answer:
        text = self.tokenizer.decode([token for token in ids if token not in self._special])
        whole = text if finish == "stop" else text.rstrip("\ufffd")
        return Answer(text=whole, score=score, ids=ids, tokens=len(ids), finish=finish)


def _padded(sequences: Sequence[Ids], pad: int) -> tuple[Tensor, Tensor]:
    """Sequences side by side, filled up with `pad`, and where there is a token: (B, S) each."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    block = torch.full((len(sequences), int(lengths.max())), pad)
    for row, sequence in zip(block, sequences, strict=True):
        row[: len(sequence)] = torch.from_numpy(sequence)
    return block, torch.arange(block.shape[1]) < lengths[:, None]


def forbid_repeats(log_probabilities: Tensor, ids: Tensor, n: int, end: int | None = None) -> None:
    """Forbid, in place, each token with which `n` ids would occur in a row for the second time.

    Args:
        log_probabilities: (B, V), of the token after ids, (B, T). n: 0 forbids nothing. end: is never forbidden, so
            that something can always come.
    """
    if n == 0 or ids.shape[1] < n:
        return
    grams = ids.unfold(1, n, 1)  # (B, T-n+1, n)
    newest = ids[:, ids.shape[1] - n + 1 :]  # (B, n-1)
    repeated = (grams[:, :, :-1] == newest[:, None]).all(dim=-1)  # (B, T-n+1)
    rows, places = repeated.nonzero(as_tuple=True)
    tokens = grams[rows, places, -1]
    allowed = tokens < log_probabilities.shape[1]
    if end is not None:
        allowed &= tokens != end
    log_probabilities[rows[allowed], tokens[allowed]] = -math.inf


# --- one token after the other ----------------------------------------------------------------------------------------


def _written(
    targets: _Targets, search: Search, draws: int, random: Sequence[np.random.Generator]
) -> list[list[Answer]]:
    """Greedy answers, or `draws` drawn ones, for each source; a row that is finished is dropped at once.

    Args:
        random: one generator for each source and draw, one number of it for each token.
    """
    sources = len(targets.ids)
    answers: list[list[Answer]] = [[] for _ in range(sources)]
    rows = list(range(sources * draws))  # which source and draw each row of the batch is
    if draws > 1:
        targets.select(torch.arange(sources, device=targets.device).repeat_interleave(draws))
    totals = torch.zeros(len(rows), device=targets.device)
    while rows:
        log_probabilities = targets.log_probabilities()  # (B, V)
        log_probabilities = log_probabilities.masked_fill(targets.failed[:, None], 0)  # any id will do there
        if search.sampling.temperature == 0:
            new = log_probabilities.argmax(dim=-1)  # (B,)
        else:
            uniform = torch.tensor([[random[row].random()] for row in rows], dtype=torch.float64)  # (B, 1)
            chances = filtered(log_probabilities.cpu(), search.sampling)  # (B, V)
            new = drawn(chances, uniform)[:, 0].to(targets.device)  # (B,)
        totals = totals + log_probabilities.gather(1, new[:, None])[:, 0]  # (B,)
        ended = targets.ends(new) | targets.failed  # (B,)
        failed = targets.failed.tolist()
        for place in ended.nonzero()[:, 0].tolist():
            score = search.score(float(totals[place]), targets.ids.shape[1])
            written = targets.broken(place) if failed[place] else targets.finished(place, int(new[place]), score)
            answers[rows[place] // draws].append(written)
        targets.append(new)
        if bool(ended.any()):
            kept = (~ended).nonzero()[:, 0]  # (N,)
            rows = [rows[place] for place in kept.tolist()]
            totals = totals[kept]
            targets.select(kept)
    return answers


# --- beam search ------------------------------------------------------------------------------------------------------


def _searched(targets: _Targets, search: Search) -> list[list[Answer]]:
    """The best answers for each source, at most `beam` of them; see the head of this module.

    The rows of `targets` are N sources times K beams; K is 1 at first, when all beginnings are alike. A source whose
    search is over is dropped.
    """
    answers: list[list[Answer]] = [[] for _ in range(len(targets.ids))]
    sources = list(range(len(answers)))  # N of them
    totals = torch.zeros(len(sources), 1, device=targets.device)  # (N, K)
    while sources:
        width = totals.shape[1]  # K
        log_probabilities = targets.log_probabilities()  # (N*K, V)
        for row in targets.failed.nonzero()[:, 0].tolist():  # its beams are worth nothing from here on
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
    """Put an answer among the `most` best, the best first."""
    answers.append(new)
    answers.sort(key=lambda one: -one.score)
    del answers[most:]


def _can_improve(answers: Sequence[Answer], search: Search, leader: float, length: int) -> bool:
    """Whether a beginning of this log-probability and length may still lead to an answer that would be kept."""
    return len(answers) < search.beam or search.score(leader, length) > answers[-1].score
