"""Prefer one answer to another one, by Direct Preference Optimization (https://arxiv.org/abs/2305.18290).

The margin of a pair is beta times how much likelier the chosen answer has become than the rejected one, compared with
the model that the run began with (the reference):

    margin = beta ((log p(chosen) - log p(rejected)) - (log r(chosen) - log r(rejected)))

The loss is -log sigmoid(margin). An answer ends with the end of its turn. The log-probabilities of the reference are
computed once, before the first step, and are stored in `state/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.config import PreferenceConfig, TrainConfig
from jumok.data.batches import LengthBatches
from jumok.data.rows import evenly_spread
from jumok.errors import TextError
from jumok.evaluation.chat import Refused, written
from jumok.inference.chat import answer_chats, in_context
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.checks import require_finite
from jumok.models.gpt import GPT
from jumok.runs.folder import RunFolder
from jumok.text.conversations import NOT_LEARNED, PREFERENCE_COLUMNS, Message, messages_of
from jumok.tokenizers import ChatTemplate, Tokenizer
from jumok.training.tasks.answers import (
    Answered,
    AnsweredRows,
    JudgesAnswers,
    answer_log_probabilities,
    answered,
    passes,
)
from jumok.training.tasks.chat import Chat
from jumok.training.tasks.material import Material, presentable, repeated_rows, rows_lost
from jumok.training.tasks.stored_rows import Row, at_time_of, read_cells, time_of, write_cells
from jumok.training.tasks.task import Baseline, Goal, TableTask, error_of_share

HELD_OUT = "val.jsonl"  # in state/, the held-out rows to show, as texts; without any, some training rows
SHOWN = 20
FEWEST_ROWS = 400  # that a validation reads, if there are as many


def preference_losses(policy: Tensor, reference: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Return the loss and the margin of each pair, (B,) each.

    Args:
        policy, reference: (B, 2), the log-probabilities of the chosen and of the rejected answer.
    """
    gained = policy - reference  # (B, 2)
    margins = beta * (gained[:, 0] - gained[:, 1])  # (B,)
    return -F.logsigmoid(margins), margins


class Preference(JudgesAnswers, TableTask[GPT]):
    """Prefer one answer to another one."""

    config_type = PreferenceConfig
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "train_rows", "val_rows", "left_out", "cut",
            "train_tokens", "val_tokens", "reference_sha256",
        ]
    )  # fmt: skip
    use = message("Talk to the model:")
    verb = "chat"
    goal = Goal(figure="accuracy", unit=message("a share of pairs"), best=1.0)
    loss_label = "nats/pair"
    drawn_beside = message("accuracy")

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(config.task, PreferenceConfig)
        self.folder, self.data, self.tokenizer, self.model = folder, data, tokenizer, model
        at_time_of(data, tokenizer)
        # The chosen answer comes first in each pair.
        self.pairs, self.held_out = (
            AnsweredRows.load(folder.state, part, 2 * data[f"{part}_rows"]) for part in ("train", "val")
        )
        shown = data["val_rows"] or min(SHOWN, data["train_rows"])
        self.shown = read_cells(folder.state / HELD_OUT, shown, len(PREFERENCE_COLUMNS))
        self.beta, self.tokens = config.task.beta, config.batch_size * model.context_length
        equal = np.ones(data["train_rows"], np.int64)  # each pair counts the same, however long it is
        self.batches = LengthBatches(_widths(self.pairs), self.tokens, config.seed, weights=equal)
        self.tokens_per_batch = self.batches.tokens_per_batch
        self.validation_tokens = data["val_tokens"]
        self.reference: Mapping[str, Tensor] = {}  # (pairs, 2) each, of the parts "train" and "val"

    # --- before the run -----------------------------------------------------------------------------------------------

    derived_fields = Chat.derived_fields  # no labels, and the ids that end an answer

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write both parts as ids, and held-out rows as texts to show; see `Task.prepare`."""
        rows, others = material.split(config.val)
        refused = Refused()
        train, val = (_fitting(tokenizer, part, model.context_length, refused) for part in (rows, others))
        if not train or (others and not val):
            raise TextError(
                "no pair fits into context_length={context_length}: the last message of the user with either answer is "
                "longer. Give shorter ones.",
                context_length=model.context_length,
            )
        train_tokens, val_tokens = (sum(len(ids) for pair in part for ids, _ in pair.sides) for part in (train, val))
        with folder.writing(tr("the pairs as ids"), needed=8 * (train_tokens + val_tokens)):
            for name, part in (("train", train), ("val", val)):
                AnsweredRows.write(folder.state, name, (side for pair in part for side in pair.sides), tokenizer.dtype)
            write_cells(folder.state / HELD_OUT, [pair.row for pair in val or train[:SHOWN]])
        return {
            **material.identity(),
            **material.rows(),
            "time": time_of(tokenizer),
            "train_rows": len(train),
            "val_rows": len(val),
            "left_out": len(rows) + len(others) - len(train) - len(val) - refused.total(),
            "refused": refused.by_reason(),
            "cut": sum(pair.is_cut for pair in (*train, *val)),
            "train_tokens": train_tokens,
            "val_tokens": val_tokens,
            "repeated": repeated_rows([pair.row for pair in train], [pair.row for pair in val]),
        }

    def begin(self, model: GPT, named: Mapping[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
        """Compute the log-probabilities of all answers, or read those of the model that the run began with."""

        @torch.inference_mode()
        def read(pairs: AnsweredRows) -> Tensor:
            found = torch.zeros(len(pairs.inputs) // 2, 2)
            parts = passes(_widths(pairs), self.tokens)
            for number, rows in enumerate(parts):
                share = number / len(parts)
                report(tr("reading the answers with the model to begin with: {share:.0%}", share=share))
                found[rows] = self._log_probabilities(model, *_batch(pairs, rows)).float().cpu()
            require_finite(found)
            return found

        self.reference, recorded = self.stored_reference(
            lambda: {"train": read(self.pairs), "val": read(self.held_out)}
        )
        return recorded

    # --- in the run ---------------------------------------------------------------------------------------------------

    @property
    def held_out_size(self) -> int:
        """Held-out rows."""
        return int(self.data["val_rows"])

    @property
    def notices(self) -> tuple[str, ...]:
        """How many rows were left out, lost turns, or are in both parts."""
        return (*super().notices, *rows_lost(self.data))

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return inputs and targets, (B, 2, T) each, and the log-probabilities of the reference, (B, 2)."""
        return self._batch("train", self.pairs, self.batches.rows(number))

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Return parts, each about as wide as its longest sequence."""
        rows = self.batches.rows(number)
        return [self._batch("train", self.pairs, rows[part]) for part in self.batches.parts(number)]

    def _batch(self, part: str, pairs: AnsweredRows, rows: NDArray[np.int64]) -> tuple[Tensor, ...]:
        # A step is measured before the reference is there; then its values do not matter.
        reference = self.reference[part][rows] if part in self.reference else torch.zeros(len(rows), 2)
        return (*_batch(pairs, rows), reference)

    def cost(self, batch: tuple[Tensor, ...]) -> float:
        """Return the cost by the number of ids, padding included."""
        return batch[0].numel() / self.batches.numbers_per_batch

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of pairs, three times, and of the tokens of chosen and of rejected answers."""
        pairs = len(batch[0])
        return (pairs, pairs, pairs, *(batch[1] >= 0).sum(dim=(0, 2)).tolist())

    def loss_sums(self, model: GPT, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the sums of losses; without gradients, of right margins, of margins, and of the drift of each side."""
        inputs, targets, reference = batch
        policy = self._log_probabilities(model, inputs, targets)  # (B, 2)
        losses, margins = preference_losses(policy, reference, self.beta)
        margins, drift = margins.detach(), (policy - reference).detach()
        return losses.sum(), (margins > 0).to(losses).sum(), margins.sum(), *drift.sum(dim=0)

    def figures_of_step(self, losses: Sequence[float]) -> dict[str, float]:
        """Return accuracy and mean of the margins, and the drift of both kinds of answers, in nats per token."""
        return dict(zip(("accuracy", "margin", "drift_chosen", "drift_rejected"), losses[1:], strict=True))

    def _log_probabilities(self, model: GPT, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the log-probabilities of whole answers: (B, 2, T) each -> (B, 2)."""
        device = model.token_embedding.weight.device
        inputs, targets = (each.flatten(0, 1).to(device) for each in (inputs, targets))  # (2B, T) each
        return answer_log_probabilities(model, inputs, targets).sum(dim=1).view(-1, 2)

    def fewest_tokens(self, context_length: int) -> int:
        """The tokens of `FEWEST_ROWS`."""
        return max(8 * context_length, -(-FEWEST_ROWS * self.validation_tokens // max(1, self.held_out_size)))

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Loss, accuracy of the margin, mean margin and drift on evenly spread held-out pairs."""
        most = min(self.held_out_size, max(1, max_tokens * self.held_out_size // self.validation_tokens))
        chosen, widths = evenly_spread(self.held_out_size, most), _widths(self.held_out)
        totals, counts = np.zeros(5), np.zeros(5)
        for rows in passes(widths[chosen], self.tokens):
            batch = self._batch("val", self.held_out, chosen[rows])
            with torch.inference_mode():
                device = model.token_embedding.weight.device
                sums = torch.stack(self.loss_sums(model, tuple(each.to(device) for each in batch)))
            require_finite(sums)
            totals += sums.double().cpu().numpy()
            counts += self.counts(batch)
        loss, *others = (totals / np.maximum(1, counts)).tolist()
        return {
            "loss": loss,
            **self.figures_of_step([loss, *others]),
            "rows": most,
            "tokens": int(widths[chosen].sum()),
        }

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The accuracy of guessing; the margins of the model that the run began with are zero."""
        if not self.held_out_size:
            return ()
        words, error = message("right margins {value:.3f}"), error_of_share(0.5, self.held_out_size)
        return (Baseline("accuracy", 0.5, message("guessing"), words, is_share=True, error=error),)

    def headline(self, figures: Mapping[str, float]) -> str:
        """The share of right margins, their mean, the loss, and the drift of chosen and rejected answers."""
        return tr(
            "right {accuracy:.1%}, margin {margin:.2f}, loss {loss:.3f}, drift {chosen:+.3f} and {rejected:+.3f} "
            "nats/token (chosen, rejected)",
            accuracy=figures["accuracy"],
            margin=figures["margin"],
            loss=figures["loss"],
            chosen=figures["drift_chosen"],
            rejected=figures["drift_rejected"],
        )

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """A prompt, the answer to it, and the two of the pair."""
        asked, chosen, rejected = map(messages_of, self.shown[seed % len(self.shown)])
        answer = answer_chats(model, [asked], tokens=tokens)[0][0].text
        return tr(
            "prompt: {prompt}\nanswer: {answer}\nchosen: {chosen}\nrejected: {rejected}",
            prompt=asked[-1]["content"],
            answer=answer,
            chosen=chosen[-1]["content"],
            rejected=rejected[-1]["content"],
        )

    def example(self) -> str:
        """A message that fits into a line."""
        asked = (messages_of(row[0]) for row in self.shown)
        return presentable(messages[-1]["content"] for messages in asked if len(messages) == 1)


class _Pair(NamedTuple):
    """A row, both of its answers as ids, and whether it lost turns."""

    row: Row
    sides: Sequence[Answered]
    is_cut: bool


def _fitting(tokenizer: Tokenizer, rows: Sequence[Row], context: int, refused: Refused) -> list[_Pair]:
    """Return the rows that fit into the context. Both answers follow the same messages.

    Args:
        refused: gets the rows that the template refuses.

    Raises:
        TextError: no row is left, and some were refused.
    """
    template, found, of_part = tokenizer.chat, [], Refused()
    assert template is not None  # `adapt_tokenizer` has seen to it
    for row in rows:
        asked, *answers = (written(template, messages_of(cell)) for cell in row)
        asked = [{**one, "weight": NOT_LEARNED} for one in asked]  # a template may write earlier answers in another way
        fitting = of_part.unless(in_context, asked, context, partial(_sides, template, answers, context))
        if fitting is not None:
            found.append(_Pair(row, fitting[0], fitting[1] > 0))
    if not found:
        of_part.require_none(len(rows))
    refused.update(of_part)
    return found


def _sides(
    template: ChatTemplate, answers: Sequence[Sequence[Message]], context: int, asked: Sequence[Message]
) -> list[Answered] | None:
    """Return each of two answers after the messages before it, or None if one is too long."""
    coded = [template.encode_whole([*asked, *answer], context + 1) for answer in answers]  # the last id is no input
    return [_last_answer(*one) for one in coded] if all(ids for ids, _ in coded) else None


def _last_answer(ids: Sequence[int] | NDArray[np.int64], is_answer: Sequence[bool] | NDArray[np.bool_]) -> Answered:
    """Return a conversation up to the end of its answer."""
    places = np.flatnonzero(is_answer)
    return answered(ids[: places[-1] + 1], int(places[0]))


def _batch(pairs: AnsweredRows, rows: NDArray[np.int64]) -> tuple[Tensor, ...]:
    """Return inputs and targets of some pairs, (B, 2, T) each."""
    both = (2 * rows[:, None] + np.arange(2)).ravel()
    return tuple(part.view(len(rows), 2, -1) for part in pairs.batch(both))


def _widths(pairs: AnsweredRows) -> NDArray[np.int64]:
    """Return how long both sequences of each pair are in a batch, (pairs, 2): as the longer one."""
    return pairs.inputs.lengths.reshape(-1, 2).max(axis=1, keepdims=True, initial=0).repeat(2, axis=1)
