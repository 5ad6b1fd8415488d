"""Answer in conversations: supervised fine-tuning (SFT), or training from the beginning.

The model reads whole conversations and learns to predict the tokens of the answers, of their reasoning, and the ends of
their turns; what others say is only read. Conversations are packed into rows, in which each attends to itself alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from jumok.config import ChatConfig, TaskConfig, TrainConfig
from jumok.data.batches import RowBatches
from jumok.data.packing import PackedRows, row_length
from jumok.data.rows import evenly_spread
from jumok.errors import TextError
from jumok.evaluation.bigram import Bigram
from jumok.evaluation.chat import (
    CodedChat,
    Question,
    Refused,
    answer_losses,
    encode_chat,
    evaluate_chat,
    judge,
    questions_in,
    said,
    text_answer,
)
from jumok.evaluation.nearest import NearestQuestion
from jumok.inference.chat import answer_chats
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.gpt import GPT
from jumok.models.losses import IGNORED
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.text.conversations import COLUMNS, cell_of, checks_of, messages_of
from jumok.tokenizers import ChatTemplate, Tokenizer, with_chat
from jumok.training.tasks.language_modelling import NATS_PER_CHAR
from jumok.training.tasks.material import Material, presentable, repeated_rows, rows_lost, table_of
from jumok.training.tasks.stored_rows import Row, at_time_of, read_cells, start_time, time_of, write_cells
from jumok.training.tasks.task import Baseline, Goal, TableTask, Task, error_of_share

TRAIN, HELD_OUT = "train.jsonl", "val.jsonl"  # conversations in state/
ANSWERED = 48  # held-out conversations whose answers a validation writes, at most
ANSWERED_AT_THE_END = 192
MOST_QUESTIONS = 50_000  # of the training part, evenly spread, among which the nearest one is looked for
MOST_CHECKED = 1_000  # held-out conversations whose checks are tried on the right answers before the run
SPEAKERS = {"user": message("user"), "assistant": message("assistant"), "system": message("system")}
SHOWN = 9  # messages before the answer in a sample
PROGRESS = 1_000  # conversations between two reports
FIGURES = ("nats_per_char", "loss_per_token", "exact_match", "checks", "checks_error", "answers", "rows", "tokens")

Encoded = list[tuple[Row, CodedChat]]


class Chat(Task[GPT]):
    """Answer in conversations."""

    config_type: ClassVar[type[TaskConfig]] = ChatConfig
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "train_rows", "val_rows", "packed_rows",
            "row_length", "left_out", "cut", "train_tokens", "answer_tokens", "val_tokens", "failing", "reasoning",
            "baselines",
        ]
    )  # fmt: skip
    use = message("Talk to the model:")
    verb = "chat"
    unit = "rows"
    goal = Goal(figure="nats_per_char", unit=message("nats per character of the answers"))
    loss_label = "nats/char"
    least_steps = 200
    predicts_next = True
    fixed_shapes = True

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        self.folder, self.data, self.tokenizer, self.model = folder, data, tokenizer, model
        at_time_of(data, tokenizer)
        self.packed = PackedRows.load(folder.state, "train", data["packed_rows"])
        self.held_out = read_cells(folder.state / HELD_OUT, data["val_rows"], len(COLUMNS))
        self.batches = RowBatches(data["packed_rows"], config.batch_size, config.seed)
        self.tokens_per_batch = max(1, config.batch_size * data["train_tokens"] // data["packed_rows"])
        self.validation_tokens = data["val_tokens"]

    # --- before the run -----------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, val: float) -> Material:
        """Take a table of conversations, of which some of each skill are held out, or another table."""
        material = super().material(source, held_out, val)
        for part in (material.source, material.held_out):
            if part is not None:
                for column in COLUMNS:
                    table_of(part).column(column)  # it may be missing
        return material

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on what is said in the training part."""
        rows, _ = material.split(0)
        return TableTask.train_on((said(one) for row in rows for one in messages_of(row[0])), kind, options)

    @classmethod
    def examples(cls, table: Table) -> list[tuple[str, str]]:
        """Return what leads to the last answers, with the skills.

        Of a conversation that goes on after another row, it is what leads to the answer of that row.
        """
        parts = [[cell_of(one) for one in messages_of(cell)] for cell in table.column("messages")]
        whole = {len(cell): set[str]() for cell in map(_joined, parts)}
        for cell in map(_joined, parts):
            whole[len(cell)].add(cell)
        skills = table.column("skill")
        rows = Counter(skills)  # a skill of a single row, such as an id, has no share to give
        return [
            (_question(one, whole), skill if rows[skill] > 1 else "") for one, skill in zip(parts, skills, strict=True)
        ]

    @classmethod
    def adapt_tokenizer(cls, tokenizer: Tokenizer, before: Sequence[int] = ()) -> Tokenizer:
        """Return the tokenizer with a chat template: its own, or that of jumok."""
        return start_time(with_chat(tokenizer, before))

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return no labels, also where the run begins with a classifier, and the ids that end an answer.

        All that writes with the model ends there, `transformers` and llama.cpp, too.
        """
        assert tokenizer.chat is not None  # `adapt_tokenizer` has seen to it
        known = () if inherited is None else inherited["eos_ids"]
        return {"labels": (), "eos_ids": tuple(dict.fromkeys((*tokenizer.chat.ends.values(), *known)))}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write both parts as they are, and the training part as packed ids; see `Task.prepare`."""
        train, val, refused = cls.encoded(material, tokenizer, model, config)
        texts = [chat.text for _, chat in train]
        length = row_length(texts, model.context_length)
        packed = PackedRows.of(texts, length, IGNORED)
        data = cls.written(folder, material, tokenizer, train, val, refused)
        with folder.writing(tr("the conversations as ids"), needed=16 * data["train_tokens"]):
            packed.write(folder.state, "train", tokenizer.dtype)
        return {
            **data,
            "packed_rows": len(packed.inputs),
            "row_length": length,
            "answer_tokens": sum(int(np.count_nonzero(answers[1:])) for _, answers in texts),
            "baselines": _baselines([row for row, _ in train], [row for row, _ in val]),
        }

    @staticmethod
    def encoded(
        material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> tuple[Encoded, Encoded, Refused]:
        """Return the training part and the held-out part as ids, without what is too long, and what is refused."""
        rows, asked = material.split(config.val)
        assert tokenizer.chat is not None  # `adapt_tokenizer` has seen to it
        refused = Refused()
        train = _encoded(tokenizer.chat, rows, model.context_length, refused, material.report)
        val = _encoded(tokenizer.chat, asked, model.context_length, refused) if asked else []
        return train, val, refused

    @staticmethod
    def written(
        folder: RunFolder, material: Material, tokenizer: Tokenizer, train: Encoded, val: Encoded, refused: Refused
    ) -> dict[str, Any]:
        """Write both parts as they are, and return what config.json records of them."""
        assert tokenizer.chat is not None  # `adapt_tokenizer` has seen to it
        learned, asked = ([row for row, _ in part] for part in (train, val))
        train_tokens, val_tokens = (sum(len(chat.text[0]) for _, chat in part) for part in (train, val))
        thinks = any("reasoning_content" in row[0] for row in (*learned, *asked))
        with folder.writing(tr("the conversations"), needed=16 * train_tokens):
            write_cells(folder.state / TRAIN, learned)
            write_cells(folder.state / HELD_OUT, asked)
        return {
            **material.identity(),
            **material.rows(),
            "time": time_of(tokenizer),
            "train_rows": len(train),
            "val_rows": len(val),
            "left_out": sum(map(len, material.split(0))) - len(train) - len(val) - refused.total(),
            "refused": refused.by_reason(),
            "cut": sum(chat.is_cut for _, chat in (*train, *val)),
            "train_tokens": train_tokens,
            "val_tokens": val_tokens,
            "reasoning": thinks and not tokenizer.chat.writes_reasoning,
            "failing": _failing(asked),
            "repeated": repeated_rows([row[:1] for row in learned], [row[:1] for row in asked]),
        }

    # --- in the run ---------------------------------------------------------------------------------------------------

    @property
    def held_out_size(self) -> int:
        """Held-out conversations."""
        return len(self.held_out)

    @property
    def notices(self) -> tuple[str, ...]:
        """How conversations are packed, and how many were left out, shortened, or are in both parts."""
        sentences = [*super().notices]
        if "packed_rows" in self.data:
            positions = self.data["packed_rows"] * self.data["row_length"]
            sentences.append(
                tr(
                    "Conversations in the training part: {count:,}, packed into {rows:,} rows of {length:,} tokens. "
                    "{full:.1%} of the positions hold a token, {share:.1%} have a loss: those of answers.",
                    count=self.data["train_rows"],
                    rows=self.data["packed_rows"],
                    length=self.data["row_length"],
                    full=(self.data["train_tokens"] - self.data["train_rows"]) / positions,
                    share=self.data["answer_tokens"] / positions,
                )
            )
        sentences += rows_lost(self.data)
        if self.data["reasoning"]:
            sentences.append(tr("The chat template of this model writes no reasoning, so that of answers is left out."))
        if failing := self.data["failing"]:
            sentences.append(
                tr("Right answers of the held-out part that fail their own checks: {count:,}.", count=failing)
            )
        return tuple(sentences)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return inputs, targets (IGNORED for what is not an answer) and segments, (B, T) each."""
        return self.packed.batch(self.batches.rows(number), self.data["row_length"], IGNORED)

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of tokens of the answers."""
        return (int((batch[1] != IGNORED).sum()),)

    def loss_sums(self, model: GPT, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Sum the cross-entropies of the tokens of the answers."""
        return (answer_losses(model, *batch).sum(),)

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute the loss of about `max_tokens`, and compare the answers to some of these; see `evaluate_chat`."""
        return self._figures(model, max_tokens, ANSWERED)

    def final(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute the figures of `validate` with more answers, and those of answers without a model."""
        shares = {name: value for name, value in self.data["baselines"].items() if name != "answers"}
        return {**self._figures(model, max_tokens, ANSWERED_AT_THE_END), **shares}

    def _figures(self, model: GPT, max_tokens: int, answered: int) -> dict[str, float]:
        most = max(1, max_tokens * len(self.held_out) // max(1, self.validation_tokens))
        chosen = evenly_spread(len(self.held_out), min(most, len(self.held_out))).tolist()
        table = Table(columns=COLUMNS, rows=[self.held_out[row] for row in chosen], sources=())
        found = evaluate_chat(model, table, most_rows=answered)
        figures = {"loss": found.nats_per_char, **{name: getattr(found, name) for name in FIGURES}}
        return {name: value for name, value in figures.items() if value is not None}

    def headline(self, figures: Mapping[str, float]) -> str:
        """Return the loss and the shares of right answers, and among the last figures those of the nearest question."""
        shares = {"exact_match": message("exact {share:.1%}"), "checks": message("checks {share:.1%}")}
        told = [f"{figures['nats_per_char']:.3f} nats/char"]
        told += [tr(words, share=figures[name]) for name, words in shares.items() if name in figures]
        nearest = [
            tr(words, share=figures[f"nearest_{name}"])
            for name, words in shares.items()
            if f"nearest_{name}" in figures
        ]
        beside = tr(" (answer to the nearest question: {shares})", shares=", ".join(nearest)) if nearest else ""
        return ", ".join(told) + beside

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The answer to the nearest question, if answers have checks; otherwise the loss of a bigram.

        Free answers are seldom right word by word, so exact matches say nothing about them.
        """
        known = self.data["baselines"]
        if "nearest_checks" in known:
            share, error = known["nearest_checks"], error_of_share(known["nearest_checks"], known["answers"])
            name, words = message("the answer to the nearest question"), message("checks passed {value:.3f}")
            return (Baseline("checks", share, name, words, is_share=True, error=error),)
        nats = known.get("baseline_nats_per_char")
        return () if nats is None else (Baseline("nats_per_char", nats, message("a bigram"), NATS_PER_CHAR),)

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """Return a held-out conversation, the answer of the model to its last question, and the right one."""
        *before, right = messages_of(self._shown(seed)[0])
        answer = answer_chats(model, [before], tokens=tokens)[0][0]
        said = [(SPEAKERS[one["role"]], one["content"]) for one in before[-SHOWN:]]
        lines = [f"{tr(speaker)}: {content}" for speaker, content in said]
        steps = [tr("reasoning: {reasoning}", reasoning=answer.reasoning)] if answer.reasoning else []
        told = tr("answer: {answer}\ntarget: {target}", answer=answer.text, target=right["content"])
        return "\n".join([*lines, *steps, told])

    def example(self) -> str:
        """Return a question that fits into a line."""
        rows = (self._shown(row) for row in range(len(self.held_out) or len(self.train)))
        return presentable(next(one["content"] for one in messages_of(row[0]) if one["role"] == "user") for row in rows)

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """Return the share of the conversations that were trained on, and the figures of answers without a model."""
        rows = table_of(material).rows
        baselines = _baselines(self.train, rows)
        seen = repeated_rows([row[:1] for row in self.train], [row[:1] for row in rows])
        return {"seen_in_training": seen, **baselines}

    @cached_property
    def train(self) -> list[Row]:
        """The conversations of the training part, as they were given."""
        return read_cells(self.folder.state / TRAIN, self.data["train_rows"], len(COLUMNS))

    def _shown(self, row: int) -> Row:
        """Return a held-out conversation, or one of the training part if none are held out; numbers wrap around."""
        rows = self.held_out or self.train
        return rows[row % len(rows)]


def _joined(parts: Sequence[str]) -> str:
    return f"[{','.join(parts)}]"


def _question(parts: Sequence[str], whole: Mapping[int, Collection[str]]) -> str:
    """Return the messages before the last answer of a conversation, or of the shortest row that it begins with.

    Args:
        parts: its messages, as JSON. whole: all conversations, by their length in characters.
    """
    length, last = 1, len(parts) - 1
    for place, part in enumerate(parts[:-1]):
        length += len(part) + 1
        if length in whole and _joined(parts[: place + 1]) in whole[length]:
            last = place
            break
    return _joined(parts[:last])


def _encoded(
    template: ChatTemplate,
    rows: Sequence[Row],
    context: int,
    refused: Refused,
    report: Callable[[float], None] | None = None,
) -> Encoded:
    """Return rows of a table of conversations with their ids, those that fit into the context.

    Args:
        refused: gets the rows that the template refuses.

    Raises:
        TextError: none can be used.
    """
    found, of_part = [], Refused()
    for number, row in enumerate(rows):
        if report is not None and number % PROGRESS == 0:
            report(number / len(rows))
        chat = of_part.unless(encode_chat, template, messages_of(row[0]), context)
        if chat is not None:
            found.append((row, chat))
    if not found:
        of_part.require_none(len(rows))
        raise TextError(
            "none of {count:,} conversations fits into context_length={context_length}, not even its last question "
            "and answer alone; give shorter ones, or a longer {--context-length}.",
            count=len(rows),
            context_length=context,
        )
    refused.update(of_part)
    return found


def _questions(rows: Sequence[Row], most: int) -> list[Question]:
    """Return what some conversations ask, at most so many, evenly spread."""
    chosen = evenly_spread(len(rows), min(most, len(rows))).tolist() if rows else []
    return [
        question
        for messages, skill, checks in (rows[row] for row in chosen)
        for question in questions_in(messages_of(messages), skill, checks_of(checks))
    ]


def _failing(rows: Sequence[Row]) -> int:
    """Return how many right answers fail their own checks. All of a part of reasonable size are tried."""
    questions = _questions(rows, MOST_CHECKED)
    return sum(not one.is_right(one.right["content"]) for one in questions)


def _baselines(learned: Sequence[Row], asked: Sequence[Row]) -> dict[str, float]:
    """Return what is reached without a model, on evenly spread conversations.

    Returns:
        "baseline_...": of always giving the most frequent answer; "nearest_...": of the answer to the most similar
        question; "baseline_nats_per_char": of a bigram of the answers; "answers": the number of questions.
    """
    known, questions = _questions(learned, MOST_QUESTIONS), _questions(asked, ANSWERED_AT_THE_END)
    if not known or not questions:
        return {}
    right = [one.right["content"] for one in known]
    usual = Counter(right).most_common(1)[0][0]
    nearest = NearestQuestion([one.asked for one in known])
    found: dict[str, float] = {"answers": len(questions)}
    for name, answers in (
        ("baseline", [usual] * len(questions)),
        ("nearest", [right[nearest.find(one.asked)] for one in questions]),
    ):
        judged = judge(questions, list(map(text_answer, answers)))
        found[f"{name}_exact_match"] = judged.exact.right
        if judged.checked:
            found[f"{name}_checks"] = judged.checked.right
    learned_text, asked_text = ("".join(f"{said(one.right)}\n" for one in part) for part in (known, questions))
    nats = Bigram([learned_text]).nats_per_char([asked_text]) * len(asked_text)
    return found | {"baseline_nats_per_char": nats / max(1, len(asked_text) - len(questions))}
