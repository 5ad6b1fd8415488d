"""The texts of completions and chats: submitted to the engine of a model, and sent in the form of an endpoint."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from jumok.errors import ConfigError, JumokError
from jumok.inference.requests import Drawn, Event, Request, joined, sample_number
from jumok.inference.sampling import Sampling
from jumok.inference.service import Service, Submitted
from jumok.serve.errors import APIError
from jumok.serve.replies import DONE, Reply, to_json
from jumok.serve.schemas import TextBody
from jumok.serve.served_models import ServedModel
from jumok.serve.settings import ServeSettings
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer

LEAST = -9999.0  # for a log-probability of minus infinity, as in the API of OpenAI

log = logging.getLogger(__name__)


def sampling_of(body: TextBody) -> Sampling:
    """Return how tokens are chosen."""
    return Sampling(
        repetition_penalty=body.repetition_penalty,
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        temperature=body.temperature,
        top_k=body.top_k or None,
        top_p=body.top_p,
        min_p=body.min_p,
    )


def service_of(served: ServedModel) -> Service:
    """Return the service of a model that writes.

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


def copies(body: TextBody, requests: Sequence[Request], settings: ServeSettings) -> list[Request]:
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


class ResponseForm(ABC):
    """How an endpoint writes its response. A text is known by its number among all texts of the request.

    Args:
        name: begins the id of the response. kinds: of a response, and of a piece of a stream. prompt_tokens: how many
            were read. count: of the texts. logprobs: whether log-probabilities are shown.
    """

    def __init__(
        self, served: ServedModel, name: str, kinds: tuple[str, str], prompt_tokens: int, count: int, logprobs: bool
    ) -> None:
        self._kind, self._chunk_kind = kinds
        self.count, self.logprobs = count, logprobs
        self._about = {"id": f"{name}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}
        self._prompt_tokens = prompt_tokens

    def opening(self, number: int) -> Event | None:
        """Return what comes before the new tokens of a text; a stream begins with it."""
        return None

    def shown(self, number: int, event: Event) -> Event:
        """Return an event as it is shown."""
        return event

    @abstractmethod
    def content(self, number: int, event: Event, *, piece: bool) -> dict[str, Any]:
        """Return the text of a choice. piece: of a stream."""

    @abstractmethod
    def log_probabilities(self, number: int, event: Event) -> dict[str, Any]:
        """Return the log-probabilities of a choice."""

    def _choice(self, number: int, event: Event, *, piece: bool) -> dict[str, Any]:
        return {
            "index": number,
            **self.content(number, event, piece=piece),
            "logprobs": self.log_probabilities(number, event) if self.logprobs and (event.drawn or not piece) else None,
            # OpenAI's API has no word for a loop; vLLM says more in `stop_reason`.
            "finish_reason": "length" if event.finish == "loop" else event.finish,
            **({"stop_reason": "loop"} if event.finish == "loop" else {}),
        }

    def usage(self, completion_tokens: int) -> dict[str, int]:
        """Return the numbers of tokens that were read and written."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self._prompt_tokens + completion_tokens,
        }

    def whole(self, events: Sequence[Event], completion_tokens: int) -> dict[str, Any]:
        """Return the response, from all that was written of each text."""
        choices = [self._choice(n, self.shown(n, event), piece=False) for n, event in enumerate(events)]
        return {**self._about, "object": self._kind, "choices": choices, "usage": self.usage(completion_tokens)}

    def chunk(self, *choices: dict[str, Any]) -> dict[str, Any]:
        """Return a piece of a stream."""
        return {**self._about, "object": self._chunk_kind, "choices": choices}

    def chunks(self, found: Sequence[tuple[int, Event]], *, opening: bool = False) -> list[dict[str, Any]]:
        """Return the pieces of a stream for what is new of some texts; those that show nothing are left out.

        The last piece of a text has its `finish_reason` and no text, as in the API of OpenAI.
        """
        shown = [(number, part) for number, event in found for part in _ending_apart(self.shown(number, event))]
        return [
            self.chunk(self._choice(number, event, piece=True))
            for number, event in shown
            if opening or event.text or event.reasoning or event.finish is not None or self.logprobs
        ]


def _ending_apart(event: Event) -> list[Event]:
    """Return an event, or two if it has both a text and the end."""
    if event.finish is None or not (event.text or event.reasoning):
        return [event]
    return [replace(event, finish=None), Event((), "", event.finish)]


async def send_texts(
    reply: Reply,
    service: Service,
    requests: Sequence[Request],
    form: ResponseForm,
    body: TextBody,
) -> None:
    """Let a service write some texts, and send them in the form of an endpoint.

    Args:
        requests: one for each text of the form, or none where nothing is to be written.
    """
    usage: dict[str, Any] = {"usage": None} if body.stream_options.include_usage else {}
    openings = [(number, event) for number in range(form.count) if (event := form.opening(number)) is not None]
    parts: list[list[Event]] = [[] for _ in range(form.count)]
    for number, event in openings:
        parts[number].append(event)
    tokens = 0
    with submitted(service, requests) as news:
        if body.stream:
            await reply.begin()
            await reply.events(*(chunk | usage for chunk in form.chunks(openings, opening=True)))
        async for found in written(news, len(requests)):
            tokens += sum(len(event.drawn) for _, event in found)
            reply.count(tokens)
            if body.stream:
                await reply.events(*(chunk | usage for chunk in form.chunks(found)))
            else:
                for number, event in found:
                    parts[number].append(event)
    if not body.stream:
        await reply.whole(to_json(form.whole([joined(events) for events in parts], tokens)))
        return
    if usage:
        await reply.events(form.chunk() | {"usage": form.usage(tokens)})
    await reply.end(DONE)


# --- the texts of a service -------------------------------------------------------------------------------------------

News = asyncio.Queue[tuple[int, Event | JumokError]]  # the number of a text, and what is new of it


@contextmanager
def submitted(service: Service, requests: Sequence[Request]) -> Iterator[News]:
    """Submit some texts to a service, and yield their news; what is not finished at the end of the block is cancelled.

    Raises:
        Overloaded: too many texts are waiting. APIError: the server is shutting down.
    """
    loop, news = asyncio.get_running_loop(), News()
    texts: list[Submitted] = []

    def deliver(number: int, found: Event | JumokError) -> None:  # in the thread of the service
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(news.put_nowait, (number, found))

    try:
        for number, request in enumerate(requests):
            try:
                texts.append(service.submit(request, partial(deliver, number)))
            except RuntimeError:  # the service is closed
                raise _closing() from None
        yield news
    finally:
        for text in texts:
            service.cancel(text)


async def written(news: News, count: int) -> AsyncIterator[list[tuple[int, Event]]]:
    """Yield what is new of some texts, each time that something is: their numbers and events, until all have ended.

    Args:
        count: of the texts.

    Raises:
        APIError: the model failed, or the service was closed. ConfigError: the engine does not accept a request.
    """
    while count:
        found = [_event(*await news.get())]
        while not news.empty():
            found.append(_event(*news.get_nowait()))
        count -= sum(event.finish is not None for _, event in found)
        yield found


def _event(number: int, found: Event | JumokError) -> tuple[int, Event]:
    """Return an event of a text, or raise the error with which it ended."""
    if isinstance(found, ConfigError):
        raise found
    if isinstance(found, JumokError):
        log.error("%s", found, exc_info=found)
        raise APIError("the model failed while it generated; the log of the server says why.", status=500) from found
    if found.finish == "cancelled":
        raise _closing()
    if found.finish == "not finite":
        wrong = "the model's logits are not finite: its parameters are damaged or its training diverged."
        raise APIError(wrong, status=500)
    return number, found


def _closing() -> APIError:
    return APIError("the server is shutting down.", status=503)


# --- tokens as text ---------------------------------------------------------------------------------------------------


def token_name(tokenizer: Tokenizer, token: int) -> str:
    """Return a token as text, or as "bytes:\\xea" where its bytes are no whole characters."""
    found = tokenizer.bytes_of([token])
    if found is None:
        return tokenizer.pieces([token])[0]
    try:
        return found[0].decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in found[0])


def likeliest(drawn: Drawn) -> list[tuple[int, float]]:
    """Return the likeliest tokens and their log-probabilities, as JSON can have them."""
    return [(token, max(value, LEAST)) for token, value in drawn.top]


def log_probability(drawn: Drawn) -> float | None:
    """Return the log-probability of a token, as JSON can have it."""
    return None if drawn.log_probability is None else max(drawn.log_probability, LEAST)
