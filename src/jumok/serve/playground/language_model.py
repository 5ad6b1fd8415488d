"""What the playground asks of a GPT: the next token, the surprise of a text, and a continuation token by token.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from jumok.inference.requests import Drawn, Request
from jumok.inference.sampling import Sampling, drawn, filtered
from jumok.inference.writer import Continuation
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import start_ids
from jumok.serve.playground.reading import Off, Reading, Units, require_gpt

JSON = dict[str, Any]


def encode(reading: Reading, text: str) -> JSON:
    """The tokens of a text; of "" the one that a text begins with."""
    with reading.alone() as model:
        tokenizer, config = require_tokenizer(model), model.config
    return spell(reading, tokenizer.encode(text).tolist() or list(start_ids(config, tokenizer)))


def spell(reading: Reading, ids: Sequence[int]) -> JSON:
    """The same of ids: what they spell, and where each one stands."""
    with reading.alone() as model:
        context = model.config.context_length
    pieces = reading.reader.read(ids)
    units = Units(pieces.text)
    found = [
        {"id": one.id, "text": one.text, "start": units(one.start), "end": units(one.stop)} for one in pieces.tokens
    ]
    return {"ids": list(ids), "pieces": found, "text": pieces.text, "read": min(len(ids), context)}


def decode(reading: Reading, ids: Sequence[int]) -> str:
    """The text of some ids, without a last character whose bytes are not complete."""
    with reading.alone() as model:
        stream = require_tokenizer(model).stream()
    return "".join(map(stream.push, ids)) + stream.flush().rstrip("\ufffd")


def next_token(reading: Reading, ids: Sequence[int], sampling: Sampling, off: Off, top: int) -> JSON:
    """The distribution of the token after some ids, before and after temperature and filters."""
    logits = reading.logits_after(ids, off)
    chances = _chances(logits, sampling, ids)
    return {**_distribution(reading, logits, chances, top), "kept": int((chances > 0).sum())}


def score(reading: Reading, ids: Sequence[int], off: Off, top: int) -> list[JSON]:
    """How well each id but the first was predicted from those before it."""
    found: list[JSON] = []
    for first, logits in reading.logits_of(ids, off):
        log_probabilities = logits.log_softmax(dim=-1)  # (N, V)
        targets = torch.tensor(ids[first : first + len(logits)])[:, None]  # (N, 1)
        own = log_probabilities.gather(1, targets)  # (N, 1)
        ranks = (log_probabilities > own).sum(dim=1).add(1).tolist()
        for place, value in enumerate(own[:, 0].tolist()):
            found.append(
                {
                    "id": ids[first + place],
                    "surprise": -value,
                    "probability": math.exp(value),
                    "rank": ranks[place],
                    "alternatives": alternatives(reading, logits[place], log_probabilities[place].exp(), top),
                }
            )
    return found


def write(
    reading: Reading, ids: Sequence[int], tokens: int, sampling: Sampling, seed: int, off: Off, top: int
) -> Iterator[JSON]:
    """Continue some ids; the same seed draws the same text as `jumok.generate`.

    Yields:
        each token, with what else was likely in its place. `added` is the text that became final with it.
    """
    with reading.alone() as model:
        tokenizer, ends = require_tokenizer(model), frozenset(require_gpt(model).config.eos_ids)
    request = Request(prompt=ids, tokens=tokens, sampling=sampling, seed=seed, stop_ids=ends)
    text = Continuation(request, tokenizer, reading.reader.vocab_size)
    began = time.perf_counter()
    while text.finish is None:
        logits = reading.logits_after(text.ids, off)
        chances = filtered(logits[None], sampling, None if text.seen is None else text.seen[None])  # (1, V)
        if sampling.temperature == 0:
            token = int(chances.argmax())
        else:
            token = int(drawn(chances, torch.tensor([[text.uniform()]], dtype=torch.float64)))
        text.push(Drawn(token))
        event = text.take()
        distribution = _distribution(reading, logits, _shares(chances[0], sampling), top)
        surprise = -float(logits.log_softmax(dim=-1)[token])
        yield {
            "id": token,
            "text": reading.reader.name(token),
            "added": event.text if event is not None else "",
            "probability": math.exp(-surprise),
            "surprise": surprise,
            **distribution,
            "per_second": len(text.drawn) / max(1e-6, time.perf_counter() - began),
        }


def _distribution(reading: Reading, logits: Tensor, chances: Tensor, top: int) -> JSON:
    """logits, chances: (V,)."""
    entropy = float(torch.special.entr(logits.softmax(dim=-1)).sum())
    return {"alternatives": alternatives(reading, logits, chances, top), "entropy": entropy}


def alternatives(reading: Reading, logits: Tensor, chances: Tensor, top: int) -> list[JSON]:
    """The likeliest tokens. logits: (V,). chances: (V,), the probabilities with which they are drawn."""
    best = logits.topk(min(top, len(logits))).indices
    shares = logits.softmax(dim=-1)[best]
    numbers = zip(best.tolist(), logits[best].tolist(), shares.tolist(), chances[best].tolist(), strict=True)
    return [
        {
            "id": token,
            "text": reading.reader.name(token),
            "logit": logit,
            "probability": share,
            "chosen_probability": chance,
        }
        for token, logit, share, chance in numbers
    ]


def _chances(logits: Tensor, sampling: Sampling, ids: Sequence[int]) -> Tensor:
    """The probabilities with which a token after some ids is drawn: (V,) -> (V,)."""
    seen = None
    if sampling.repetition_penalty != 1:
        seen = torch.zeros(1, len(logits), dtype=torch.bool)
        seen[0, [token for token in ids if token < len(logits)]] = True
    return _shares(filtered(logits[None], sampling, seen)[0], sampling)


def _shares(chances: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities from what `filtered` returns: (V,) -> (V,)."""
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(chances.argmax(), len(chances)).float()
    return chances.softmax(dim=-1)
