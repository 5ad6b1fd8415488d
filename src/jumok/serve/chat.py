"""`POST /v1/chat/completions`: a model answers the messages of a chat.

A GPT reads them as its chat template writes them; see `jumok.inference.chat`. One without a template is refused. What
it thinks before it answers is returned as `reasoning_content`, as by DeepSeek, vLLM and llama.cpp; a client may send it
back with the messages.

An encoder–decoder that was trained on pairs, such as questions and answers, reads the last message of the user alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from jumok.errors import TextError, TokenizerError
from jumok.inference.chat import AnswerParts, chat_request
from jumok.inference.requests import Event, Request, answer_request
from jumok.models.checks import require_tokenizer
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

if TYPE_CHECKING:
    from jumok.models.encoder_decoder import EncoderDecoder

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}  # as they are written


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
        APIError: the messages are too long, have none to answer, or are no text. ConfigError: as `require_chat`.
    """
    limit = body.max_completion_tokens or body.max_tokens
    require_tokens("max_completion_tokens" if body.max_completion_tokens else "max_tokens", limit or 1, settings)
    context, top = served.model.config.context_length, (body.top_logprobs or 0) if body.logprobs else None
    how = sampling_of(body)
    if served.task == "seq2seq":
        from jumok.inference.answer import with_special_tokens

        model = cast("EncoderDecoder", served.model)
        text = last_of_user(body.messages)
        require_short("messages", len(text), settings)
        source = with_special_tokens(require_tokenizer(model), text, model.config).tolist()
        if len(source) > context:
            raise APIError(
                f"the messages to read have {len(source):,} tokens, special tokens included, and this model reads at "
                f"most {context:,}.",
                param="messages",
                code="context_length_exceeded",
            )
        return answer_request(model, source, how, tokens=min(limit or context, context), top=top)
    messages = [
        {"role": ROLES[one.role], "content": one.text, "reasoning_content": one.reasoning_content}
        for one in body.messages
    ]
    require_short("messages", sum(len(one["content"]) + len(one["reasoning_content"]) for one in messages), settings)
    gpt, tokens = require_gpt(served), limit or min(context, settings.max_tokens)
    try:
        return chat_request(gpt, messages, how, tokens=tokens, top=top)
    except (TextError, TokenizerError) as error:
        raise APIError(str(error), param="messages") from error


class ChatForm(ResponseForm):
    """Writes choices with a `message`, or with its `delta` in a stream."""

    def __init__(self, served: ServedModel, body: ChatBody, request: Request) -> None:
        read = request.prompt if request.source is None else request.source
        kinds = ("chat.completion", "chat.completion.chunk")
        super().__init__(served, "chatcmpl", kinds, len(read), body.n, body.logprobs)
        self._tokenizer = require_tokenizer(served.model)
        is_source = request.source is not None  # of an encoder–decoder, which does not think
        self._parts = [] if is_source else [AnswerParts(served.model, request) for _ in range(body.n)]

    def opening(self, number: int) -> Event:
        """Return nothing yet; the first piece of a stream has the role."""
        return Event((), "")

    def shown(self, number: int, event: Event) -> Event:
        """Return an event with its reasoning apart from its text."""
        return self._parts[number].shown(event) if self._parts else event

    def content(self, number: int, event: Event, *, piece: bool) -> dict[str, Any]:
        """Return the message, or what is new of it."""
        thought = {"reasoning_content": event.reasoning} if event.reasoning else {}
        whole = {"role": "assistant", "content": event.text, **thought}
        if not piece:
            return {"message": {**whole, "refusal": None}}
        is_opening = not event.drawn and event.finish is None
        return {"delta": whole if is_opening else {**({"content": event.text} if event.text else {}), **thought}}

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
