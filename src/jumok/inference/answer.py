"""Answer a text with an encoder–decoder: it reads a source once, and writes a target token by token.

A source is its text and [EOS], or the text between the special tokens that the tokenizer of a published model puts
there, as in `<s> text </s>`. Tokens are chosen greedily, drawn as in `jumok.generate`, or found by beam search
(`jumok.inference.beam_search`). An answer does not depend on the other sources of a call, up to the last bits of a
floating-point number.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from jumok.config import EncoderDecoderConfig, require_range
from jumok.errors import ConfigError, TextError, TokenizerError
from jumok.inference.beam_search import beam_search
from jumok.inference.sampling import drawn, filtered
from jumok.inference.targets import Answer, Search, SearchSettings, Targets
from jumok.models import Model, require_room_to_write
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.framing import source_frame
from jumok.models.modes import eval_mode
from jumok.tokenizers import Ids, Tokenizer

LARGEST_BATCH = 128  # targets in one batch


def answer(
    model: EncoderDecoder, sources: Sequence[str], *, seed: int | None = None, **search: Unpack[SearchSettings]
) -> list[list[Answer]]:
    """Answer each of some sources.

    The model is in eval mode meanwhile; torch's own random numbers are not touched.

    Args:
        model: with its tokenizer at `model.tokenizer`, as `jumok.load` returns it.
        sources: texts of less than context_length tokens each.
        seed: of what is drawn. The same seed gives source i the same answers; None: a new one each time.
        search: beam, n_best, length_penalty, no_repeat_ngram, max_tokens, temperature, top_k, top_p, min_p: see
            `Search`.

    Returns:
        for each source its answers, the best score first: n_best of them, or as many as there are.

    Raises:
        ConfigError: a setting is out of range, or the model is no encoder–decoder.
        TextError: a source has more tokens than the model reads.
        TokenizerError: the model has no tokenizer, or no id that begins or ends an answer.
        JumokError: the model's logits are not finite for any source; where they are for some, see `Answer.finish`.
    """
    how = Search(**search)
    require_range("seed", seed or 0, 0)
    if isinstance(sources, str):
        raise ConfigError("sources={sources!r} is one string; give a list: [{sources!r}].", sources=sources)
    tokenizer = require_answering(model)
    ids = []
    for number, text in enumerate(sources, 1):
        read = with_special_tokens(tokenizer, text, model.config)
        if len(read) > model.config.context_length:
            raise TextError(
                "source {number} has {count:,} tokens, special tokens included, and this model reads at "
                "most {context_length}; shorten it.",
                number=number,
                count=len(read),
                context_length=model.config.context_length,
            )
        ids.append(read)
    return answer_ids(model, ids, how, seed=seed)


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


def with_special_tokens(
    tokenizer: Tokenizer, text: str, config: EncoderDecoderConfig, most: int | None = None
) -> NDArray[np.int64]:
    """The ids of a text between the special tokens around it, as a source and a target have them: (S,).

    Args:
        most: of these ids; a longer text loses its end, and keeps its special tokens. None: as many as there are.
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
        sources: (S,) each, of 1 to context_length ids; see `with_special_tokens`.
        cache: keep keys and values of past tokens; without it the result is the same, and takes longer.
    """
    require_answering(model)
    seed = secrets.randbits(63) if seed is None else seed
    draws = search.n_best if search.temperature > 0 else 1
    require_room_to_write(model.config, max(draws, search.beam))
    size = max(1, LARGEST_BATCH // max(draws, search.beam))  # sources
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))  # so that little is padding
    answers: list[list[Answer]] = [[] for _ in sources]
    with eval_mode(model):
        for first in range(0, len(order), size):
            numbers = order[first : first + size]
            targets = Targets(model, [sources[number] for number in numbers], search, cache=cache)
            if search.beam > 1:
                found = beam_search(targets, search)
            else:
                random = [
                    np.random.Generator(np.random.PCG64((seed, number, draw)))
                    for number in numbers
                    for draw in range(draws)
                ]
                found = _decoded(targets, search, draws, random)
            for number, some in zip(numbers, found, strict=True):
                ranked = sorted(some, key=lambda one: -one.score)
                answers[number] = ranked[: search.n_best]
    if answers and all(one.finish == "not finite" for found in answers for one in found):
        raise not_finite()
    return answers


def _decoded(targets: Targets, search: Search, draws: int, random: Sequence[np.random.Generator]) -> list[list[Answer]]:
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
        log_probabilities = log_probabilities.masked_fill(targets.failed[:, None], 0)  # any id, which is not used
        if search.temperature == 0:
            new = log_probabilities.argmax(dim=-1)  # (B,)
        else:
            uniform = torch.tensor([[random[row].random()] for row in rows], dtype=torch.float64)  # (B, 1)
            chances = filtered(log_probabilities.cpu(), search)  # (B, V)
            new = drawn(chances, uniform)[:, 0].to(targets.device)  # (B,)
        totals = totals + log_probabilities.gather(1, new[:, None])[:, 0]  # (B,)
        ended = targets.ends(new) | targets.failed  # (B,)
        failed = targets.failed.tolist()
        for place in ended.nonzero()[:, 0].tolist():
            score = search.score(float(totals[place]), targets.ids.shape[1])
            one = targets.broken(place) if failed[place] else targets.finished(place, int(new[place]), score)
            answers[rows[place] // draws].append(one)
        targets.append(new)
        if bool(ended.any()):
            kept = (~ended).nonzero()[:, 0]  # (N,)
            rows = [rows[place] for place in kept.tolist()]
            totals = totals[kept]
            targets.select(kept)
    return answers
