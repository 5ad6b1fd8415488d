"""`POST /v1/chat/completions`: an encoder–decoder answers, and a GPT continues a transcript.

A model that was published with a chat template reads the messages as the template writes them
(`jumok.tokenizers.ChatTemplate`); its answer ends at the end of a turn. All others have no template:

An encoder–decoder that was trained on pairs, such as questions and answers, reads the last message of the user alone.

A GPT of jumok has no special tokens for turns, so it reads the messages as plain text, each in a line that begins with
its role, and writes the next one::

    system: 짧게 대답합니다.
    user: 안녕하세요?
    assistant: 안녕하세요.
    user: 오늘 날씨가 어때요?
    assistant:

The answer ends before a line that begins with a role, and loses the white space at its beginning. A GPT that was
trained on a text in this form has learned to answer; any other one continues the transcript as it continues any text.
Nothing separates what a message says from the form: a message can contain a line that begins with "assistant:".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jumok.inference.answer import with_special_tokens
from jumok.inference.requests import Event, Request, answer_request, text_request
from jumok.models.checks import require_tokenizer
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.serve.completions import require_gpt
from jumok.serve.errors import APIError
from jumok.serve.schemas import ChatBody, Message
from jumok.serve.served_models import ServedModel
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import (
    ResponseForm,
    likeliest,
    log_probability,
    require_short,
    require_tokens,
    sampling_of,
    token_name,
)

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}  # as they are written
STOPS = tuple(f"\n{role}:" for role in dict.fromkeys(ROLES.values()))


def transcript(messages: Sequence[Message]) -> str:
    """Return the messages as a GPT reads them, up to where its answer begins."""
    lines = [f"{ROLES[message.role]}: {message.text}\n" for message in messages]
    return "".join(lines) + "assistant:"


def last_of_user(messages: Sequence[Message]) -> str:
    """Return the text of the last message of the user.

    Raises:
        APIError: there is none.
    """
    for message in reversed(messages):
        if message.role == "user":
            return message.text
    raise APIError("messages has no message of the user, and this model answers the last one.", param="messages")


def request_of(served: ServedModel, body: ChatBody, settings: ServeSettings) -> Request:
    """Return the request of a chat. For a worker thread.

    Raises:
        APIError: the messages are too long, or have none to answer. TokenizerError: they are no text.
    """
    limit = body.max_completion_tokens or body.max_tokens
    require_tokens("max_completion_tokens" if body.max_completion_tokens else "max_tokens", limit or 1, settings)
    context, top = served.model.config.context_length, (body.top_logprobs or 0) if body.logprobs else None
    tokenizer = require_tokenizer(served.model)
    templated = None
    if tokenizer.chat is not None:
        require_short("messages", sum(len(message.text) for message in body.messages), settings)
        templated = tokenizer.chat.encode([{"role": ROLES[one.role], "content": one.text} for one in body.messages])
    how = sampling_of(body)
    if isinstance(served.model, EncoderDecoder):
        source = templated
        if source is None:
            text = last_of_user(body.messages)
            require_short("messages", len(text), settings)
            source = with_special_tokens(tokenizer, text, served.model.config).tolist()
        if len(source) > context:
            raise APIError(
                f"the messages to read have {len(source):,} tokens, special tokens included, and this model reads at "
                f"most {context:,}.",
                param="messages",
                code="context_length_exceeded",
            )
        return answer_request(served.model, source, how, tokens=min(limit or context, context), top=top)
    gpt, tokens = require_gpt(served), limit or min(context, settings.max_tokens)
    if templated:
        request = text_request(gpt, templated, how, tokens=tokens, top=top)
        turn = tokenizer.id_of("eos_token")
        ends = request.stop_ids if turn is None else request.stop_ids | {turn}
        return replace(request, stop_ids=ends, special_ids=frozenset(tokenizer.special_tokens.values()))
    text = transcript(body.messages)
    require_short("messages", len(text), settings)
    return text_request(gpt, text, how, tokens=tokens, top=top, stop=STOPS)


class ChatForm(ResponseForm):
    """Writes choices with a `message`, or with its `delta` in a stream."""

    def __init__(self, served: ServedModel, body: ChatBody, request: Request) -> None:
        read = request.prompt if request.source is None else request.source
        kinds = ("chat.completion", "chat.completion.chunk")
        super().__init__(served, "chatcmpl", kinds, len(read), body.n, body.logprobs)
        self._tokenizer = require_tokenizer(served.model)
        self._has_begun = [False] * body.n
        # An answer in a transcript begins with white space, which is dropped; only transcripts have stop strings here.
        self._blank = [bool(request.stop)] * body.n

    def opening(self, number: int) -> Event:
        """Return nothing yet; the first piece of a stream has the role."""
        return Event((), "")

    def shown(self, number: int, event: Event) -> Event:
        """Return an event without the white space before the answer."""
        text = event.text.lstrip() if self._blank[number] else event.text
        self._blank[number] = self._blank[number] and not text
        return Event(event.drawn, text, event.finish)

    def content(self, number: int, event: Event, *, piece: bool) -> dict[str, Any]:
        """Return the message, or what is new of it."""
        if not piece:
            return {"message": {"role": "assistant", "content": event.text, "refusal": None}}
        if not self._has_begun[number]:
            self._has_begun[number] = True
            return {"delta": {"role": "assistant", "content": event.text}}
        return {"delta": {"content": event.text} if event.text else {}}

    def log_probabilities(self, number: int, event: Event) -> dict[str, Any]:
        """Return an object for each token."""
        content = [
            {
                **self._token(one.id, log_probability(one)),
                "top_logprobs": [self._token(token, value) for token, value in likeliest(one)],
            }
            for one in event.drawn
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, value: float | None) -> dict[str, Any]:
        spelled = self._tokenizer.bytes_of([token])
        name, octets = token_name(self._tokenizer, token), None if spelled is None else list(spelled[0])
        return {"token": name, "logprob": value, "bytes": octets}
