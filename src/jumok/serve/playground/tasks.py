"""What the playground asks of a classifier, an encoder–decoder and a BERT."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress

from jumok.errors import JumokError
from jumok.inference.answer import answer as answers
from jumok.inference.answer import with_special_tokens
from jumok.inference.classify import predict_whole
from jumok.inference.engine import Engine
from jumok.inference.fill_mask import fill_mask, mask_token
from jumok.inference.requests import Request, answer_request, require_answering
from jumok.inference.sampling import Sampling
from jumok.models import Model
from jumok.models.checks import not_finite, require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.serve.playground.language_model import JSON
from jumok.serve.playground.reading import Reading, Units
from jumok.view import schema
from jumok.view.trace import trace

MOST_WORDS = 200  # that are left out in turn; each is another text to read


def classify(reading: Reading, text: str, *, words: bool) -> JSON:
    """The probability of each class, and by how much each word raises that of the likeliest one.

    The effect of a word is the fall of the log-probability when it is left out (occlusion).

    Raises:
        JumokError: the model is no classifier, or the text is empty.
    """
    places = [found.span() for found in re.finditer(r"\S+", text)][: MOST_WORDS if words else 0]
    with reading.alone() as model:
        without = [text[:start] + text[end:].removeprefix(" ") for start, end in places]
        whole, *others = predict_whole(model, [text, *without])
        tokens = len(require_tokenizer(model).encode(text))
        context = model.config.context_length
    if whole is None:
        raise _empty()
    if whole.label is None:
        raise not_finite()
    label, units = whole.label, Units(text)

    def effect(other: object) -> float:
        probabilities = getattr(other, "probabilities", {})  # of a text without any word there are none
        if label not in probabilities:
            return 0.0
        return math.log(max(whole.probabilities[label], 1e-30)) - math.log(max(probabilities[label], 1e-30))

    return {
        "labels": [{"label": name, "probability": share} for name, share in whole.probabilities.items()],
        "words": [
            {"text": text[start:end], "start": units(start), "end": units(end), "effect": effect(other)}
            for (start, end), other in zip(places, others, strict=True)
        ],
        "read": min(tokens, context),
        "tokens": tokens,
    }


def fill(reading: Reading, text: str, top: int) -> JSON:
    """The candidates for each mask of a text, and the text with the likeliest ones."""
    with reading.alone() as model:
        found, name = fill_mask(model, text, top), mask_token(require_tokenizer(model))
    units = Units(text)
    return {
        "text": found.text,
        "masks": [
            {
                "start": units(mask.position),
                "end": units(mask.position + len(name)),
                "candidates": [
                    {"id": one.id, "text": reading.reader.name(one.id), "probability": one.probability}
                    for one in mask.candidates
                ],
            }
            for mask in found.masks
        ],
    }


def write_answer(reading: Reading, text: str, tokens: int | None, sampling: Sampling, seed: int) -> Iterator[JSON]:
    """Answer a text, token by token: greedily, or drawn where the temperature is above 0.

    Yields:
        each token; then the answer as a whole, which has "finish".

    Raises:
        JumokError: the model answers nothing, or its logits are not finite.
    """
    with reading.alone() as model:
        engine, request = _engine_for(model, text, tokens, sampling, seed)
        found = engine.admit(request)
    while found.finish is None:
        with reading.alone():
            engine.step()
        event = found.take()
        for place, new in enumerate(event.drawn if event is not None else ()):
            added = event.text if event is not None and place == len(event.drawn) - 1 else ""
            yield {"id": new.id, "text": reading.reader.name(new.id), "added": added}
    if found.finish == "not finite":
        raise not_finite()
    total = found.total / max(1, len(found.drawn))
    yield {"text": found.text, "ids": found.drawn, "score": total, "finish": found.finish}


def _engine_for(model: Model, text: str, tokens: int | None, sampling: Sampling, seed: int) -> tuple[Engine, Request]:
    tokenizer = require_answering(model)
    assert isinstance(model, EncoderDecoder)
    config = model.config
    if not len(tokenizer.encode(text)):
        raise _empty()
    source = with_special_tokens(tokenizer, text, config, config.context_length).tolist()
    most = min(tokens or config.context_length, config.context_length)
    return Engine(model, 1), answer_request(model, source, sampling, tokens=most, seed=seed)


def beams(reading: Reading, text: str, tokens: int | None, beam: int) -> list[JSON]:
    """The answers of a beam search, the best first; `pieces` are the tokens of each as a person reads them."""
    with reading.alone() as model:
        require_answering(model)
        most = None if tokens is None else min(tokens, model.config.context_length)
        assert isinstance(model, EncoderDecoder)
        (found,) = answers(model, [text], beam=beam, n_best=beam, max_tokens=most)
    return [
        {
            "text": one.text,
            "ids": list(one.ids),
            "pieces": [reading.reader.name(token) for token in one.ids],
            "score": one.score,
            "finish": one.finish,
        }
        for one in found
    ]


def cross(reading: Reading, source: str, target: str, name: str) -> JSON | None:
    """The trace of a source and its answer; None if the answer has no token to trace."""
    with reading.alone() as model, suppress(JumokError):
        return schema.to_json(trace(model, source, target=target, name=name))
    return None


def _empty() -> JumokError:
    return JumokError("the text is empty; write something.")
