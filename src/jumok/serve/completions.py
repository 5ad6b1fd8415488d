"""`POST /v1/completions`: a GPT continues prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from jumok.inference.generate import score_ids
from jumok.inference.requests import Drawn, Event, Finish, Request, text_request
from jumok.inference.writer import stream_after
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import frame_of
from jumok.serve.errors import APIError
from jumok.serve.schemas import CompletionBody
from jumok.serve.served_models import ServedModel
from jumok.serve.settings import ServeSettings
from jumok.serve.text_responses import (
    ResponseForm,
    copies,
    likeliest,
    log_probability,
    require_short,
    require_tokens,
    sampling_of,
    token_name,
)
from jumok.tokenizers import Tokenizer

if TYPE_CHECKING:
    from jumok.inference.native.parameters import NativeModel
    from jumok.models.gpt import GPT


@dataclass(frozen=True)
class Prompt:
    """A prompt as text and as ids, and, if they are echoed with log-probabilities, those.

    before: how many of the ids the tokenizer puts before the text; they are no part of it.
    """

    text: str
    ids: list[int]
    before: int = 0
    scored: tuple[Drawn, ...] = ()


def require_gpt(served: ServedModel) -> GPT | NativeModel:
    """Return the model, which must continue texts.

    Raises:
        APIError: it does not.
    """
    if served.task != "lm":
        remedy = "it answers messages: use /v1/chat/completions" if served.task == "seq2seq" else "it writes no text"
        raise APIError(f"the model {served.name!r} has the task {served.task}; {remedy}.", param="model")
    return cast("GPT | NativeModel", served.model)


def read_prompts(served: ServedModel, body: CompletionBody, settings: ServeSettings) -> list[Prompt]:
    """Return the prompts of a body, with their log-probabilities if they are wanted. For a worker thread.

    Raises:
        APIError: a prompt is too long, or has ids that the model does not know. TokenizerError: it is no text.
    """
    require_tokens("max_tokens", body.max_tokens, settings)
    model = require_gpt(served)
    tokenizer = require_tokenizer(model)
    prompts = []
    for given in body.prompt:
        require_short("prompt", len(given), settings)
        if isinstance(given, str):
            before = frame_of(model.config, tokenizer).before
            prompts.append(Prompt(given, [*before, *tokenizer.encode_prompt(given).tolist()], len(before)))
        else:
            require_known(given, tokenizer, "prompt")
            prompts.append(Prompt(tokenizer.decode(given), given))
    if body.echo and body.logprobs is not None:
        top = body.logprobs
        return [replace(one, scored=tuple(score_ids(model, one.ids, top))) for one in prompts]
    return prompts


def require_known(ids: Sequence[int], tokenizer: Tokenizer, param: str) -> None:
    """Raise APIError if ids are not those of a tokenizer."""
    wrong = next((one for one in ids if not 0 <= one < tokenizer.vocab_size), None)
    if wrong is not None:
        last = tokenizer.vocab_size - 1
        raise APIError(
            f"{param} has the token id {str(wrong)[:20]}; the ids of the model are 0 to {last:,}.", param=param
        )


def requests_of(
    served: ServedModel, body: CompletionBody, prompts: Sequence[Prompt], settings: ServeSettings
) -> list[Request]:
    """Return the requests of `n` texts for each prompt. An empty prompt begins as after a newline."""
    if not body.max_tokens:
        return []
    model, how = require_gpt(served), sampling_of(body)
    requests = [text_request(model, prompt.ids, how, tokens=body.max_tokens, top=body.logprobs) for prompt in prompts]
    return copies(body, requests, settings)


class CompletionForm(ResponseForm):
    """Writes choices with a `text`, which begins with the prompt where that is echoed.

    In `logprobs`, `tokens` are all tokens that were chosen, those of a stop string included, `top_logprobs` has the
    token itself too, and `text_offset` counts the characters of `text` that were complete before each token.
    """

    def __init__(self, served: ServedModel, body: CompletionBody, prompts: Sequence[Prompt]) -> None:
        read, kind = sum(len(one.ids) for one in prompts), "text_completion"
        super().__init__(served, "cmpl", (kind, kind), read, len(prompts) * body.n, body.logprobs is not None)
        self._body, self._tokenizer = body, require_tokenizer(served.model)
        self._prompts = [prompt for prompt in prompts for _ in range(body.n)]
        # The tokens after a prompt that is not echoed read as in the middle of a text, as in `TextDecoder`.
        self._decoders = [stream_after(self._tokenizer, () if body.echo else one.ids) for one in self._prompts]
        self._hidden = [one.before if body.echo else 0 for one in self._prompts]  # tokens that are not text
        self._ends = [0] * len(self._prompts)  # characters that are complete

    def opening(self, number: int) -> Event | None:
        """Return the prompt, if it is echoed; it ends the text where no tokens come after it."""
        prompt = self._prompts[number]
        finish: Finish | None = None if self._body.max_tokens else "length"
        return Event(prompt.scored, prompt.text, finish) if self._body.echo else None

    def content(self, number: int, event: Event, *, piece: bool) -> dict[str, Any]:
        """Return the text."""
        return {"text": event.text}

    def log_probabilities(self, number: int, event: Event) -> dict[str, Any]:
        """Return lists with an item for each token."""
        offsets = []
        for one in event.drawn:
            offsets.append(self._ends[number])
            if self._hidden[number]:
                self._hidden[number] -= 1
            else:
                self._ends[number] += len(self._decoders[number].push(one.id))
        return {
            "tokens": [token_name(self._tokenizer, one.id) for one in event.drawn],
            "token_logprobs": [log_probability(one) for one in event.drawn],
            "top_logprobs": [self._top(one) for one in event.drawn],
            "text_offset": offsets,
        }

    def _top(self, drawn: Drawn) -> dict[str, float] | None:
        own = log_probability(drawn)
        if own is None:
            return None  # the first token of a text
        found: dict[str, float] = {}
        for token, value in [*likeliest(drawn), (drawn.id, own)]:
            found.setdefault(token_name(self._tokenizer, token), value)
        return found
