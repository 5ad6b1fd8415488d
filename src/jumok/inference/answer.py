"""Answer a text with an encoder–decoder: it reads a source once, and writes a target token by token.

A source is its text and [EOS], or the text between the special tokens that the tokenizer of a published model puts
there, as in `<s> text </s>`. Tokens are chosen greedily, drawn as in `jumok.generate`, or found by beam search
(`jumok.inference.beam_search`). An answer does not depend on the other sources of a call, up to the last bits of a
floating-point number.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from jumok.config import EncoderDecoderConfig, require_count
from jumok.errors import ConfigError, TextError
from jumok.inference.answer_search import Answer, Search, SearchSettings, make_answer
from jumok.inference.beam_search import Targets, beam_search
from jumok.inference.engine import Engine
from jumok.inference.generate import write_all
from jumok.inference.requests import answer_request, require_answering, sample_number
from jumok.inference.writer import Continuation
from jumok.models import require_memory_for_texts
from jumok.models.checks import not_finite
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.modes import eval_mode
from jumok.models.special_ids import frame_of
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
    require_count("seed", seed or 0, 0)
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


def with_special_tokens(
    tokenizer: Tokenizer, text: str, config: EncoderDecoderConfig, most: int | None = None
) -> NDArray[np.int64]:
    """Return the ids of a text between the special tokens around it, as a source and a target have them: (S,).

    Args:
        most: of these ids; a longer text loses its end, and keeps its special tokens. None: as many as there are.
    """
    frame = frame_of(config, tokenizer)
    ids = tokenizer.encode(text).astype(np.int64)
    room = len(ids) if most is None else max(0, most - len(frame.ids))
    return np.concatenate((np.array(frame.before, np.int64), ids[:room], np.array(frame.after, np.int64)))


@torch.inference_mode()
def answer_ids(
    model: EncoderDecoder, sources: Sequence[Ids], search: Search, *, seed: int | None = None
) -> list[list[Answer]]:
    """As `answer`, for sources that are ids already.

    Args:
        sources: (S,) each, of 1 to context_length ids; see `with_special_tokens`.
    """
    tokenizer = require_answering(model)
    seed = secrets.randbits(63) if seed is None else seed
    draws = search.n_best if search.temperature > 0 else 1
    many = max(draws * len(sources), search.beam)
    require_memory_for_texts(model.config, many, max(min(draws, LARGEST_BATCH), search.beam))
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))  # so that little is padding
    answers: list[list[Answer]] = [[] for _ in sources]
    with eval_mode(model):
        if search.beam > 1:
            size = max(1, LARGEST_BATCH // search.beam)  # sources
            for first in range(0, len(order), size):
                numbers = order[first : first + size]
                targets = Targets(model, [sources[number] for number in numbers], search)
                for number, found in zip(numbers, beam_search(targets, search), strict=True):
                    answers[number] = found
        else:
            each = [(number, draw) for number in order for draw in range(draws)]
            requests = [
                answer_request(
                    model,
                    sources[number].tolist(),
                    search,
                    tokens=search.limit(model.config),
                    seed=seed,
                    sample=sample_number(number, draw),
                    no_repeat_ngram=search.no_repeat_ngram,
                )
                for number, draw in each
            ]
            engine = Engine(model, min(LARGEST_BATCH, max(1, len(each))))
            texts = write_all(engine, requests)
            for (number, _), text in zip(each, texts, strict=True):
                answers[number].append(_answer(model, tokenizer, text, search))
    if answers and all(one.finish == "not finite" for found in answers for one in found):
        raise not_finite()
    return [sorted(found, key=lambda one: -one.score)[: search.n_best] for found in answers]


def _answer(model: EncoderDecoder, tokenizer: Tokenizer, text: Continuation, search: Search) -> Answer:
    """Return what an engine has written."""
    finish = text.finish
    assert finish is not None
    assert finish != "cancelled"
    assert finish != "loop"
    score = -math.inf if finish == "not finite" else search.score(text.total, len(text.drawn))
    return make_answer(tokenizer, model.config, text.drawn, score, finish)
