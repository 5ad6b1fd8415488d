"""What completions and chats have in common: from a body to requests of the engine, from its events to a response."""

from __future__ import annotations

import secrets
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jumok.inference.requests import Drawn, Event, Request, joined, sample_number
from jumok.inference.sampling import Sampling
from jumok.inference.service import Service
from jumok.serve.errors import APIError
from jumok.serve.metrics import Metrics
from jumok.serve.schemas import Writing
from jumok.serve.served_models import Served
from jumok.serve.settings import ServeSettings
from jumok.serve.streaming import DONE, Reply, data, news, to_json, written
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer

LEAST = -9999.0  # for a log-probability of minus infinity, as in the API of OpenAI


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every handler needs: the limits, the figures, and when the request came, by `time.perf_counter`."""

    settings: ServeSettings
    metrics: Metrics
    since: float


def sampling_of(body: Writing) -> Sampling:
    """How tokens are chosen."""
    return Sampling(
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        temperature=body.temperature,
        top_k=body.top_k or None,
        top_p=body.top_p,
        min_p=body.min_p,
    )


def service_of(served: Served) -> Service:
    """The service of a model that writes.

    Raises:
        APIError: it does not write.
    """
    if served.service is None:
        raise APIError(
            f"the model {served.name!r} has the task {served.task}, which writes no text; choose one with the task lm "
            "or seq2seq.",
            param="model",
        )
    return served.service


def require_tokens(name: str, tokens: int, settings: ServeSettings) -> None:
    """Raise APIError if more tokens are asked for than the server writes."""
    if tokens > settings.max_tokens:
        raise APIError(f"{name} should be at most {settings.max_tokens:,} on this server.", param=name)


def require_short(name: str, size: int, settings: ServeSettings) -> None:
    """Raise APIError if a text has more characters, or ids, than the server reads."""
    if size > settings.max_prompt:
        raise APIError(
            f"{name} has {size:,} characters or tokens; this server reads at most {settings.max_prompt:,}.",
            param=name,
            code="context_length_exceeded",
        )


def copies(body: Writing, requests: Sequence[Request], settings: ServeSettings) -> list[Request]:
    """Return the `n` texts of each request, with the seed and the stop strings of a body.

    Raises:
        APIError: they are more than the server ever takes at once.
    """
    most = settings.slots + settings.waiting
    if len(requests) * body.n > most:
        raise APIError(
            f"prompt and n ask for {len(requests) * body.n:,} texts; this server writes at most {most:,} at once.",
            param="n" if body.n > 1 else "prompt",
        )
    seed = secrets.randbits(63) if body.seed is None else body.seed % 2**64  # a negative one is a two's complement
    return [
        replace(request, seed=seed, sample=sample_number(number, i), stop=(*request.stop, *map(nfc, body.stop)))
        for number, request in enumerate(requests)
        for i in range(body.n)
    ]


class Form(ABC):
    """How an endpoint writes its response. A text is named by its number among all texts of the request.

    Args:
        name: begins the id of the response. kind: of a response, and of a piece of a stream. prompt_tokens: how many
            were read. count: of the texts.
    """

    def __init__(self, served: Served, name: str, kind: tuple[str, str], prompt_tokens: int, count: int) -> None:
        self._kind, self.count = kind, count
        self._about = {"id": f"{name}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}
        self._prompt_tokens = prompt_tokens

    @abstractmethod
    def opening(self, number: int) -> str:
        """The JSON of a choice with which its stream begins, or ""."""

    @abstractmethod
    def piece(self, number: int, event: Event) -> str:
        """The JSON of a choice with what is new, or "" if nothing can be shown yet."""

    @abstractmethod
    def choice(self, number: int, event: Event) -> dict[str, Any]:
        """A choice as a whole."""

    def usage(self, completion_tokens: int) -> dict[str, int]:
        """The tokens that were read and written."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self._prompt_tokens + completion_tokens,
        }

    def whole(self, events: Sequence[Event]) -> str:
        """The JSON of the response, from all that was written of each text."""
        choices = [self.choice(number, event) for number, event in enumerate(events)]
        usage = self.usage(sum(len(event.drawn) for event in events))
        return to_json({**self._about, "object": self._kind[0], "choices": choices, "usage": usage})

    def around(self) -> str:
        """The JSON of a piece of a stream before its choices."""
        return to_json({**self._about, "object": self._kind[1]})[:-1] + ',"choices":['


async def write(reply: Reply, service: Service, requests: list[Request], form: Form, body: Writing, c: Context) -> None:
    """Let the service write some texts, and send them in the form of an endpoint.

    Args:
        requests: one for each text of the form, or none where nothing is to be written.
    """
    with written(service, requests) as streams:
        growing = _counted(reply, news(streams, c.metrics, c.since))
        if body.stream:
            await _send_pieces(reply, growing, form, usage=body.stream_options.include_usage)
            return
        parts: list[list[Event]] = [[] for _ in range(form.count)]
        async for found, _ in growing:
            for number, event in found:
                parts[number].append(event)
        await reply.whole(form.whole([joined(some) for some in parts]))


Growing = AsyncIterator[tuple[list[tuple[int, Event]], int]]  # what is new, and the tokens so far


async def _counted(reply: Reply, growing: AsyncIterator[list[tuple[int, Event]]]) -> Growing:
    tokens = 0
    async for found in growing:
        tokens += sum(len(event.drawn) for _, event in found)
        reply.count(tokens)
        yield found, tokens


async def _send_pieces(reply: Reply, growing: Growing, form: Form, *, usage: bool) -> None:
    before, after = form.around(), '],"usage":null}' if usage else "]}"

    def framed(choices: Iterable[str]) -> str:
        return "".join(data(before + choice + after) for choice in choices if choice)

    await reply.begin()
    if opening := framed(form.opening(number) for number in range(form.count)):
        await reply.piece(opening)
    tokens = 0
    async for found, tokens in growing:  # noqa: B007  # the last of them is used
        if pieces := framed(form.piece(number, event) for number, event in found):
            await reply.piece(pieces)
    if usage:
        await reply.piece(data(f'{before}],"usage":{to_json(form.usage(tokens))}}}'))
    await reply.piece(DONE)
    await reply.end()


# --- tokens as text ---------------------------------------------------------------------------------------------------


class TokenNames:
    """How tokens are written: as their text, or as "bytes:\\xea" where their bytes are no whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def bytes(self, token: int) -> list[int] | None:
        """The UTF-8 bytes of a token, if the tokenizer spells bytes."""
        found = self._tokenizer.bytes_of([token])
        return None if found is None else list(found[0])

    def name(self, token: int) -> str:
        """The token as text."""
        found = self._tokenizer.bytes_of([token])
        if found is None:
            return self._tokenizer.pieces([token])[0]
        try:
            return found[0].decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found[0])

    def likeliest(self, drawn: Drawn) -> list[tuple[int, float]]:
        """The likeliest tokens and their log-probabilities, as JSON can have them."""
        return [(token, max(value, LEAST)) for token, value in drawn.top]


def log_probability(drawn: Drawn) -> float | None:
    """Of a token, as JSON can have it."""
    return None if drawn.log_probability is None else max(drawn.log_probability, LEAST)
