"""How well a model answers in conversations: the loss of the right answers, and greedy answers compared with them.

    nats_per_char   sum of -ln p(token | all before it) over the tokens of the answers, their reasoning and the end of
                    their turns, divided by the characters of answers and reasoning
    loss_per_token  the same sum divided by the tokens
    exact_match     share of the greedy answers that are the right one, character by character in NFC
    checks          share of the greedy answers with a check that pass it (`jumok.evaluation.checks`)
    skills          by the skill that conversations exercise: the share of right answers. Where answers of a
                    conversation have checks, those are judged, by their checks; otherwise all, by exact match
    empty           number of answers without text
    looping         number of answers that did not end by themselves: they repeat themselves, or are much longer than
                    the right ones

Each answer is written after the right messages before it, not after the model's own. Shares have standard errors.
Empty and looping answers are not right, whatever their checks accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch

from jumok.data.packing import PackedRows, Text, row_length
from jumok.data.rows import evenly_spread
from jumok.errors import TextError, TokenizerError
from jumok.evaluation.checks import passes
from jumok.inference.chat import Answer, answer_chats, has_room, in_context, require_chat
from jumok.messages import tr
from jumok.models import Model
from jumok.models.checks import require_finite
from jumok.models.gpt import GPT, token_losses
from jumok.models.losses import IGNORED, MOST_LOGITS
from jumok.models.modes import eval_mode
from jumok.text import Table
from jumok.text.conversations import NOT_LEARNED, Message, checks_of, messages_of
from jumok.text.hangul import nfc
from jumok.tokenizers import ChatTemplate

LARGEST_BATCH = 32  # rows
LEAST_ROOM = 128  # tokens that an answer may have, however short the right ones are
MOST_REASONS = 3  # for which rows are refused, that are told

P = ParamSpec("P")
T = TypeVar("T")
Outcome = Literal["right", "wrong", "empty", "looping"]


@dataclass(frozen=True)
class Share:
    """How many answers were judged, the share of them that is right, and its standard error.

    wrong, empty, looping: how many of the others are; see the head of this module.
    """

    answers: int
    right: float
    error: float
    wrong: int
    empty: int
    looping: int


@dataclass(frozen=True)
class Judgement:
    """An answer that was judged for its skill. messages: the texts of the messages before it."""

    skill: str
    messages: tuple[str, ...]
    answer: str
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class ChatEvaluation:
    """How well a model answers; the head of this module defines the figures.

    exact_match_error, checks_error: standard errors. rows: conversations that were read. left_out: those whose last
    exchange is longer than the context, which were not. refused: those that the chat template refuses. answers: that
    were written. chars: of the right answers. tokens: of the conversations.
    """

    nats_per_char: float
    loss_per_token: float
    exact_match: float
    exact_match_error: float
    checks: float | None
    checks_error: float | None
    rows: int
    left_out: int
    refused: int
    answers: int
    empty: int
    looping: int
    chars: int
    tokens: int
    skills: dict[str, Share] = field(default_factory=dict)
    judgements: list[Judgement] = field(default_factory=list)


def evaluate_chat(model: Model, table: Table, *, most_rows: int | None = None) -> ChatEvaluation:
    """Compute the loss of the answers of conversations, and compare greedy answers with them.

    Args:
        model: a GPT with its tokenizer, which has a chat template; it runs where it is, in eval mode meanwhile.
        table: of conversations, as `jumok.text.conversations` reads them.
        most_rows: conversations whose answers are written, evenly spread; None: all.

    Raises:
        ConfigError: the model holds no conversations.
        TextError: a column is missing, no conversation can be used, or a check cannot be used.
        JumokError: the losses are not finite.
    """
    gpt, template = require_chat(model)
    assert isinstance(gpt, GPT)  # losses are computed by PyTorch
    refused = Refused()
    found = [refused.unless(encode_chat, template, one, gpt.config.context_length) for one in _conversations(table)]
    places = [place for place, chat in enumerate(found) if chat is not None]
    kept = [chat for chat in found if chat is not None]
    if not kept:
        refused.require_none(len(table))
        raise TextError(
            "none of the {count:,} conversations fits into the context of {context:,} tokens, not even with its last "
            "question and answer alone; there is nothing to evaluate.",
            count=len(table),
            context=gpt.config.context_length,
        )
    nats, tokens = answer_nats(gpt, [chat.text for chat in kept])
    chars = sum(chat.chars for chat in kept)
    chosen = evenly_spread(len(kept), min(len(kept), most_rows or len(kept))).tolist()
    skills, checks = table.column("skill"), table.column("checks")
    questions = [
        question
        for chat in chosen
        for question in questions_in(kept[chat].messages, skills[places[chat]], checks_of(checks[places[chat]]))
    ]
    longest = max(kept[chat].longest for chat in chosen)
    judged = judge(questions, greedy_answers(gpt, [question.before for question in questions], longest))
    return ChatEvaluation(
        nats_per_char=nats / chars,
        loss_per_token=nats / tokens,
        exact_match=judged.exact.right,
        exact_match_error=judged.exact.error,
        checks=judged.checked.right if judged.checked else None,
        checks_error=judged.checked.error if judged.checked else None,
        rows=len(kept),
        left_out=len(found) - len(kept) - refused.total(),
        refused=refused.total(),
        answers=len(questions),
        empty=judged.outcomes.count("empty"),
        looping=judged.outcomes.count("looping"),
        chars=chars,
        tokens=sum(len(chat.text[0]) for chat in kept),
        skills=judged.skills,
        judgements=judged.judgements,
    )


# --- conversations as ids ---------------------------------------------------------------------------------------------


class CodedChat(NamedTuple):
    """A conversation as ids, with what is to be predicted. messages: that are left of it. is_cut: some are not."""

    text: Text
    messages: Sequence[Message]
    is_cut: bool

    @property
    def longest(self) -> int:
        """The tokens of the longest answer."""
        ends = np.flatnonzero(np.diff(self.text[1], prepend=False, append=False))
        return int((ends[1::2] - ends[::2]).max())

    @property
    def chars(self) -> int:
        """The characters of the answers that are learned, and of their reasoning."""
        return sum(len(said(one)) for one in self.messages if is_learned(one))


class Refused(Counter[str]):
    """How many conversations a chat template refuses, by its reasons."""

    def unless(self, encode: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Return what a conversation becomes; None if the template refuses it, which is counted."""
        try:
            return encode(*args, **kwargs)
        except TokenizerError as error:
            self[str(error)] += 1
            return None

    def require_none(self, count: int) -> None:
        """Raise TextError if any was refused, where none of `count` conversations can be used."""
        if self:
            raise TextError(
                "none of {count:,} rows can be used; the chat template of this model refuses {refused:,}: {reasons}",
                count=count,
                refused=self.total(),
                reasons=" ".join(f"{reason} ({times:,})" for reason, times in self.by_reason().items()),
            )

    def by_reason(self) -> dict[str, int]:
        """Return the counts of the most frequent reasons, and that of all others."""
        counts = dict(self.most_common(MOST_REASONS))
        others = self.total() - sum(counts.values())
        return counts | ({tr("other reasons."): others} if others else {})


def encode_chat(template: ChatTemplate, messages: Sequence[Message], context: int) -> CodedChat | None:
    """Return a conversation as ids; a long one without its first exchanges, but with its system message.

    Reasoning is left out where the template does not write it.

    Returns:
        None if its last exchange alone is too long, or nothing that is learned is left.

    Raises:
        TokenizerError: the template refuses it.
    """
    messages = written(template, messages)

    def coded(kept: Sequence[Message]) -> CodedChat | None:
        ids, answers = template.encode_whole(kept, context + 1)  # the last id is no input
        text = (np.array(ids, np.int64), np.array(answers, np.bool_))
        return CodedChat(text, kept, len(kept) < len(messages)) if ids else None

    found = in_context(messages, context, coded)
    return found[0] if found and found[0].text[1].any() else None


def written(template: ChatTemplate, messages: Sequence[Message]) -> Sequence[Message]:
    """Return messages without reasoning where the template does not write it."""
    if template.writes_reasoning:
        return messages
    return [{name: text for name, text in one.items() if name != "reasoning_content"} for one in messages]


def is_learned(message: Message) -> bool:
    """Return whether a message is an answer to learn, and not only to read."""
    return message["role"] == "assistant" and message.get("weight") != NOT_LEARNED


def said(message: Message) -> str:
    """Return the reasoning of a message, if it has any, and its text."""
    return (message.get("reasoning_content") or "") + message["content"]


def _conversations(table: Table) -> Iterator[Sequence[Message]]:
    return map(messages_of, table.column("messages"))


# --- the loss ---------------------------------------------------------------------------------------------------------


def answer_losses(
    model: GPT,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    segments: torch.Tensor | None = None,
    *,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Return the cross-entropies of the tokens to be predicted, (N,).

    Args:
        inputs, targets, segments: of `PackedRows.batch`, (B, T) each. temperature: by which the logits are divided.
    """
    counted = targets != IGNORED  # (B, T)
    hidden = model.hidden(inputs, segments=segments)[counted] / temperature  # (N, C)
    return token_losses(hidden[None], model.head.weight, targets[counted][None])[0]


@torch.inference_mode()
def answer_nats(model: GPT, texts: Sequence[Text]) -> tuple[float, int]:
    """Return the nats of all tokens of conversations that are to be predicted, and their number.

    Raises:
        JumokError: the loss is not finite.
    """
    length, device = row_length(texts, model.config.context_length), model.token_embedding.weight.device
    packed, nats = PackedRows.of(texts, length, IGNORED), 0.0
    size = max(1, min(LARGEST_BATCH, MOST_LOGITS // (length * model.config.vocab_size)))
    with eval_mode(model):
        for rows in np.split(np.arange(len(packed.inputs)), range(size, len(packed.inputs), size)):
            batch = (part.to(device) for part in packed.batch(rows.tolist(), length, IGNORED))
            nats += float(answer_losses(model, *batch).cpu().sum(dtype=torch.float64))
    require_finite(nats)
    return nats, sum(int(np.count_nonzero(answers[1:])) for _, answers in texts)


# --- answers ----------------------------------------------------------------------------------------------------------


class Question(NamedTuple):
    """A question of a conversation: the place of its answer, the check of it ("": none) and the skill.

    counts: whether it is judged for its skill.
    """

    messages: Sequence[Message]
    place: int
    check: str
    skill: str
    counts: bool

    @property
    def before(self) -> Sequence[Message]:
        """The messages before the answer."""
        return self.messages[: self.place]

    @property
    def asked(self) -> str:
        """The last message before the answer."""
        return self.messages[self.place - 1]["content"]

    @property
    def right(self) -> Message:
        """The right answer."""
        return self.messages[self.place]

    def is_right(self, answer: str) -> bool:
        """Judge an answer: by the check, or else by exact match."""
        return passes(self.check, answer) if self.check else self.is_exact(answer)

    def outcome(self, answer: Answer) -> Outcome:
        """Judge an answer of a model."""
        if answer.finish != "stop":
            return "looping"
        if not answer.text.strip():
            return "empty"
        return "right" if self.is_right(answer.text) else "wrong"

    def is_exact(self, answer: str) -> bool:
        """Return whether an answer is the right one, white space at both ends left aside."""
        return nfc(answer).strip() == nfc(self.right["content"]).strip()


def questions_in(messages: Sequence[Message], skill: str, checks: Sequence[str]) -> Iterator[Question]:
    """Yield what a conversation asks, in order, without answers that are only read.

    Args:
        checks: of all its answers, of which the first may be left out.
    """
    places = [place for place, one in enumerate(messages) if one["role"] == "assistant"]
    patterns = checks[len(checks) - len(places) :] if checks else [""] * len(places)
    judged = any(patterns)
    for place, check in zip(places, patterns, strict=True):
        if is_learned(messages[place]):
            yield Question(messages, place, check, skill, counts=bool(check) or not judged)


def greedy_answers(model: GPT, before: Sequence[Sequence[Message]], longest: int) -> list[Answer]:
    """Return the greedy answers to conversations; empty ones where the last message leaves no room for one.

    Args:
        longest: tokens that a right answer has at most.
    """
    tokens = min(model.config.context_length, max(longest + longest // 2 + 1, LEAST_ROOM))
    fitting = [place for place, messages in enumerate(before) if has_room(model, messages, tokens)]
    answers = answer_chats(model, [before[place] for place in fitting], tokens=tokens)
    found = [text_answer("")] * len(before)
    for place, [answer] in zip(fitting, answers, strict=True):
        found[place] = answer
    return found


def text_answer(text: str) -> Answer:
    """Return a text as an answer that ended by itself."""
    return Answer(text=text, reasoning="", ids=(), finish="stop")


class Judged(NamedTuple):
    """How many answers are right: by exact match, by their checks (None: there are none), and by skill.

    outcomes: of all answers. judgements: of those that are judged for their skills.
    """

    exact: Share
    checked: Share | None
    skills: dict[str, Share]
    outcomes: list[Outcome]
    judgements: list[Judgement]


def judge(questions: Sequence[Question], answers: Sequence[Answer]) -> Judged:
    """Compare answers with the right ones."""
    outcomes = [question.outcome(answer) for question, answer in zip(questions, answers, strict=True)]
    checked, exact = [], []
    by_skill: dict[str, list[Outcome]] = {}
    judgements = []
    for question, answer, outcome in zip(questions, answers, outcomes, strict=True):
        exact.append("right" if answer.finish == "stop" and question.is_exact(answer.text) else "wrong")
        if question.check:
            checked.append(outcome)
        if question.skill and question.counts:
            by_skill.setdefault(question.skill, []).append(outcome)
            texts = tuple(message["content"] for message in question.before)
            judgements.append(Judgement(question.skill, texts, answer.text, outcome))
    return Judged(
        exact=share_of(exact),
        checked=share_of(checked) if checked else None,
        skills={skill: share_of(by_skill[skill]) for skill in sorted(by_skill)},
        outcomes=outcomes,
        judgements=judgements,
    )


def share_of(outcomes: Sequence[str]) -> Share:
    """Return the share of right answers with its standard error, that of a binomial distribution."""
    count = max(1, len(outcomes))
    share = outcomes.count("right") / count
    error = (share * (1 - share) / count) ** 0.5
    return Share(len(outcomes), share, error, *map(outcomes.count, ("wrong", "empty", "looping")))
