"""Answers of a model in a conversation: for the terminal, the server, evaluations and rewards.

The messages are written by the chat template of the model's tokenizer. A conversation that is too long for the context
loses whole turns from the front; its system message stays. The answer ends with its turn, where it repeats itself
(`jumok.inference.looping`), or where the context is full.

What a model writes between `<think>` and `</think>` at the beginning of its answer is its reasoning. Where these are
tokens of the tokenizer, only the tokens count: a model that spells them in its text writes text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar, cast

from jumok.config import GPTConfig, require_count
from jumok.errors import ConfigError, TextError
from jumok.inference.engine import Engine
from jumok.inference.generate import LARGEST_BATCH, write_all
from jumok.inference.requests import Drawn, Event, ReasoningMarks, Request, sample_number, text_request
from jumok.inference.sampling import Sampling
from jumok.inference.writer import TextDecoder, overlap_at_end
from jumok.models import require_memory_for_texts
from jumok.models.checks import Described, not_finite, require_tokenizer
from jumok.tokenizers import require_utf8

if TYPE_CHECKING:
    from jumok.inference.native.parameters import NativeModel
    from jumok.models.gpt import GPT
    from jumok.tokenizers import ChatTemplate

Message = Mapping[str, str]
T = TypeVar("T")

ROLES = ("system", "user", "assistant")
LARGEST_MESSAGE = 1_000_000  # characters
CHARACTERS_PER_TOKEN = 64  # a conversation with more cannot fit, and is not encoded as a whole
ANSWER_SHARE = 4  # of the context, at least a quarter is left for the answer if it may be so long
OPEN, CLOSE = "<think>", "</think>"
MARKS = ("\ud800", "\ud801")  # stand for the tokens; half a surrogate pair is in no decoded text


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer of a model.

    Fields:
        text: the answer. reasoning: what the model wrote in `<think>` before it, "" if nothing.
        ids: every id that was drawn, the end of the turn included.
        finish: "stop" at the end of the turn: the answer ended by itself; "length" when the tokens were used up, "loop"
            where it repeated itself, or "not finite".
    """

    text: str
    reasoning: str
    ids: tuple[int, ...]
    finish: str


def require_chat(model: Described) -> tuple[GPT | NativeModel, ChatTemplate]:
    """Return a model that holds conversations, and its template.

    Raises:
        ConfigError: it is no GPT that writes, or has no template.
    """
    if not isinstance(model.config, GPTConfig) or model.config.labels:
        raise ConfigError(
            "a conversation needs a GPT that writes, and this model is another one; see `jumok generate` and "
            "`jumok predict`."
        )
    template = require_tokenizer(model).chat
    if template is None:
        raise ConfigError(
            "this model has no chat template: it continues texts, and has not learned to answer. Train it with "
            "conversations: jumok train talk.jsonl --task chat --init RUN"
        )
    return cast("GPT | NativeModel", model), template


def chat_prompt(model: Described, messages: Sequence[Message], tokens: int) -> tuple[list[int], int]:
    """Return the ids of a conversation up to where the answer begins, and how many messages are left out of it.

    Args:
        messages: with "role" (system, user or assistant) and "content", of an assistant perhaps "reasoning_content";
            the last one is of the user.
        tokens: the most ids of the answer. At least as many, or a quarter of the context, are left for it.

    Raises:
        ConfigError: as `require_chat`.
        TextError: a message is empty, too long, or of an unknown role; or the last one does not fit into the context.
        TokenizerError: a message is no text, or the template refuses it.
    """
    gpt, template = require_chat(model)
    context = gpt.config.context_length
    room = context - min(tokens, max(1, context // ANSWER_SHARE))
    checked = [_checked(number, message) for number, message in enumerate(messages, 1)]
    if not checked or checked[-1]["role"] != "user":
        raise TextError("a conversation to answer ends with a message of the user.")
    count = 0

    def ids_of(kept: Sequence[Message]) -> list[int] | None:
        nonlocal count
        ids = template.encode(kept)
        count = len(ids)
        return ids if count <= room else None

    found = in_context(checked, room, ids_of)
    if found is None:
        raise TextError(
            "the last message has {count:,} tokens with what belongs to it, and this model reads at most {room:,} "
            "of its context of {context:,}; the rest is for the answer. Shorten it.",
            count=count,
            room=room,
            context=context,
        )
    return found


def in_context(
    messages: Sequence[Message], room: int, encode: Callable[[Sequence[Message]], T | None]
) -> tuple[T, int] | None:
    """Encode a conversation without the fewest whole turns at its beginning. System messages before it stay.

    Args:
        messages: of which the last turn is never left out. room: about the most tokens.
        encode: returns what messages become, or None if they are too long; what is longer than others is too long if
            they are.

    Returns:
        what they became, and how many messages are left out; None if the last turn alone is too long.
    """
    first = next((i for i, message in enumerate(messages) if message["role"] != "system"), 0)
    starts = [first, *(i for i in range(first + 1, len(messages)) if messages[i]["role"] == "user")]
    sizes = [*accumulate((len(message["content"]) for message in reversed(messages)), initial=0)]
    starts = [start for start in starts if sizes[len(messages) - start] <= CHARACTERS_PER_TOKEN * room] or starts[-1:]

    def encoded(start: int) -> T | None:
        return encode([*messages[:first], *messages[start:]])

    place, found = 0, encoded(starts[0])
    if found is None and len(starts) > 1:
        place = bisect_left(starts, True, lo=1, hi=len(starts) - 1, key=lambda start: encoded(start) is not None)
        found = encoded(starts[place])
    return None if found is None else (found, starts[place] - first)


def has_room(model: Described, messages: Sequence[Message], tokens: int) -> bool:
    """Return whether the last message of a conversation leaves room for an answer; see `chat_prompt`."""
    try:
        chat_prompt(model, messages, tokens)
    except TextError:
        return False
    return True


def _checked(number: int, message: Message) -> dict[str, str]:
    """Return a message with the fields that templates read."""
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in ROLES:
        raise TextError(
            "message {number:,} has the role {role!r}; the roles are system, user and assistant.",
            number=number,
            role=str(role)[:100],
        )
    fields = ("content", "reasoning_content") if role == "assistant" else ("content",)
    found = {"role": str(role)} | {name: message.get(name) or "" for name in fields}
    for value in found.values():
        if not isinstance(value, str):
            raise TextError("message {number:,} is no text.", number=number)
        if len(value) > LARGEST_MESSAGE:
            raise TextError(
                "message {number:,} has {count:,} characters; at most {most:,} are read. Shorten it.",
                number=number,
                count=len(value),
                most=LARGEST_MESSAGE,
            )
        require_utf8(value)
    if role != "assistant" and not found["content"].strip():
        raise TextError("message {number:,}, of the role {role}, is empty; write something.", number=number, role=role)
    if not found.get("reasoning_content"):
        found.pop("reasoning_content", None)
    return found


def chat_request(
    model: Described,
    messages: Sequence[Message],
    sampling: Sampling,
    *,
    tokens: int,
    seed: int = 0,
    sample: int = 0,
    top: int | None = None,
    stop: Sequence[str] = (),
) -> Request:
    """Return the request to answer a conversation.

    The answer ends with its turn, where it repeats itself, and where the context is full.

    Args:
        messages, tokens: as in `chat_prompt`. sampling, seed, sample, top, stop: as in `text_request`.

    Raises:
        ConfigError, TextError, TokenizerError: as `chat_prompt`.
    """
    gpt, template = require_chat(model)
    tokenizer = require_tokenizer(gpt)
    ids, _ = chat_prompt(gpt, messages, tokens)
    most = min(tokens, gpt.config.context_length - len(ids))
    request = text_request(gpt, ids, sampling, tokens=most, seed=seed, sample=sample, top=top, stop=stop)
    return replace(
        request,
        stop_ids=request.stop_ids.union(template.ends.values()),
        special_ids=frozenset(tokenizer.special_tokens.values()),
        reasoning=reasoning_marks(gpt, ids),
        ends_loops=True,
    )


def answer_chats(
    model: Described,
    conversations: Sequence[Sequence[Message]],
    *,
    tokens: int,
    temperature: float = 0.0,
    samples: int = 1,
    seed: int = 0,
) -> list[list[Answer]]:
    """Answer conversations side by side; for each its samples.

    The answers are a function of the seed, the number of the conversation and that of the sample. On the C++ step they
    are also those of the conversation alone, bit for bit; in PyTorch up to rounding.

    Args:
        conversations, tokens: as `messages` in `chat_prompt`.

    Raises:
        ConfigError, TextError, TokenizerError: as `chat_prompt`.
        JumokError: the model's logits are not finite in any answer.
    """
    require_count("samples", samples, 1)
    gpt, _ = require_chat(model)
    how = Sampling(temperature=temperature)
    first = [chat_request(gpt, messages, how, tokens=tokens, seed=seed) for messages in conversations]
    requests = [
        replace(request, sample=sample_number(number, sample))
        for number, request in enumerate(first)
        for sample in range(samples)
    ]
    if not requests:
        return []
    slots = min(len(requests), LARGEST_BATCH)
    require_memory_for_texts(gpt.config, len(requests), slots)
    texts = write_all(Engine(gpt, slots), requests)
    if all(text.finish == "not finite" for text in texts):
        raise not_finite()
    answers = [answer_of(gpt, text.drawn, str(text.finish), text.request) for text in texts]
    return [answers[i * samples : (i + 1) * samples] for i in range(len(first))]


def stream_answer(engine: Engine, model: Described, request: Request) -> Generator[Event, None, Answer]:
    """Write one answer: yield what is new of it, and return the answer.

    An answer whose generator is closed before its end leaves the engine.

    Raises:
        JumokError: the model's logits are not finite.
    """
    parts, text = AnswerParts(model, request), engine.admit(request)
    try:
        while text.finish is None:
            engine.step()
            event = text.take()
            if event is not None:
                yield parts.shown(event)
    finally:
        engine.release(text)
    if text.finish == "not finite":
        raise not_finite()
    return Answer(text=parts.text, reasoning=parts.reasoning, ids=tuple(text.drawn), finish=str(text.finish))


def answer_of(model: Described, ids: Sequence[int], finish: str, request: Request | None = None) -> Answer:
    """Return the answer that consists of the ids that a model drew, the end of its turn included.

    Args:
        request: what was asked for; it is needed for stop strings, and for templates that begin the reasoning.
    """
    if request is None:
        tokenizer = require_tokenizer(model)
        request = Request(prompt=[0], special_ids=frozenset(tokenizer.special_tokens.values()))
    parts = AnswerParts(model, request)
    parts.shown(Event(tuple(map(Drawn, ids)), "", "stop"))
    return Answer(text=parts.text, reasoning=parts.reasoning, ids=tuple(ids), finish=finish)


def reasoning_marks(model: Described, prompt: Sequence[int]) -> ReasoningMarks:
    """Return what encloses the reasoning of a model's answers: its tokens, or the text if it has no such tokens."""
    tokenizer, known = require_tokenizer(model), require_chat(model)[1].tokens
    marks = dict(zip((OPEN, CLOSE), MARKS, strict=True)) if {OPEN, CLOSE} <= known.keys() else {}
    return ReasoningMarks(
        opening=marks.get(OPEN, OPEN),
        closing=marks.get(CLOSE, CLOSE),
        tokens={known[token]: mark for token, mark in marks.items()},
        # Some templates begin the reasoning themselves.
        is_open=tokenizer.decode(list(prompt[-8:])).rstrip().endswith(OPEN),
    )


class AnswerParts:
    """Divides an answer, as its ids come, into the reasoning in `<think>` and the text.

    Attributes:
        reasoning, text: what is final of them.
    """

    def __init__(self, model: Described, request: Request) -> None:
        tokenizer = require_tokenizer(model)
        self._marks = request.reasoning or reasoning_marks(model, request.prompt)
        self._silent = request.stop_ids | request.special_ids
        self._decoder = TextDecoder(tokenizer, request.prompt, request.stop, self._marks)
        self._all = self._marks.opening if self._marks.is_open else ""
        self.reasoning = self.text = ""

    def shown(self, event: Event) -> Event:
        """Take the ids of an event, and return it with the text and the reasoning that became final with them."""
        ended = event.finish is not None
        for token in (one.id for one in event.drawn):
            if token in self._marks.tokens:
                self._all += self._decoder.mark(self._marks.tokens[token])
            elif token not in self._silent:
                self._all += self._decoder.push(token)
        if ended:
            self._all += self._decoder.finish()
        before = len(self.reasoning), len(self.text)
        self.reasoning, self.text = self._split(ended)
        return Event(event.drawn, self.text[before[1] :], event.finish, self.reasoning[before[0] :])

    def _split(self, ended: bool) -> tuple[str, str]:
        body = self._all.lstrip()
        opening, closing = self._marks.opening, self._marks.closing
        if not body.startswith(opening):
            undecided = not ended and opening.startswith(body)
            return "", "" if undecided else _without_marks(self._all)
        inside, found, rest = body.removeprefix(opening).partition(closing)
        if not found and not ended:
            inside = inside[: len(inside) - overlap_at_end(inside, [closing])]
        return _without_marks(inside).strip(), _without_marks(rest).lstrip()


def _without_marks(text: str) -> str:
    return text.replace(MARKS[0], "").replace(MARKS[1], "")
