"""Classify texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.config import BERTConfig, ClassifyConfig, GPTConfig, ModelConfig, TrainConfig
from jumok.config.features import TRANSFORMERS, obstacle
from jumok.data.batches import LengthBatches
from jumok.data.random_streams import Purpose, random_for
from jumok.data.rows import MULTIPLE, evenly_spread
from jumok.errors import TextError
from jumok.evaluation.classification import ClassEvaluation, judge, labelled
from jumok.evaluation.seq2seq import whole_pairs
from jumok.inference.torch_rows import Classifier, length_mask, log_probabilities
from jumok.messages import message, tr
from jumok.models.checks import require_finite
from jumok.models.gpt import GPT, token_losses
from jumok.models.losses import cross_entropies
from jumok.models.special_ids import SPECIAL_TOKENS, Framing, pad_id
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer
from jumok.training.tasks.labelled import LabelledRows, class_weights, in_order, require_classes
from jumok.training.tasks.material import Material, characters, contradictory, presentable, repeated_rows, table_of
from jumok.training.tasks.task import Baseline, Goal, TableTask, error_of_share
from jumok.view.run_pictures import draw_confusion

# Held-out rows that a validation and the last figures read at least, if there are as many. The standard error of an
# accuracy on a thousand rows is 1.2 points; that of the difference of two models on the same rows is much less.
VALIDATION_ROWS = 1_000
MOST_NUMBERS = 100_000_000  # log-probabilities of labels at once; with many labels fewer rows are evaluated
FINAL_ROWS = 10_000
NAMED = 10  # labels, up to which the figures have the F1 of each
SAMPLE_LABELS = 3


class Classification(TableTask[Any]):
    """Classify texts, as learned from a table of texts and their labels.

    A GPT or a BERT reads a text, pools it, and a linear layer scores the labels. With `lm_weight` a GPT also learns to
    predict each next token of the texts, which reduces overfitting (Radford et al. 2018,
    https://openai.com/index/language-unsupervised, section 3.2).

    The best parameters are those with the least cross-entropy on the held-out part, not those with the highest
    accuracy. On a thousand texts the accuracies of two good models differ by a handful of texts, so that the best of
    twelve validations is mostly luck. The cross-entropy depends on the probability of each text's label, is less noisy,
    and chooses a calibrated model.
    """

    config_type = ClassifyConfig
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "columns", "train_rows", "val_rows",
            "label_counts", "empty", "cut", "train_tokens", "val_tokens",
        ]
    )  # fmt: skip
    use = message("Classify texts:")
    verb = "predict"
    goal = Goal(figure="accuracy", unit=message("a share of right labels"), best=1.0)
    loss_label = "nats/text"
    drawn_beside = message("accuracy")

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, GPTConfig | BERTConfig)
        assert isinstance(config.task, ClassifyConfig)
        self.train = LabelledRows.load(folder.state, "train", data["train_rows"])
        self.val = LabelledRows.load(folder.state, "val", data["val_rows"])
        self.framing, self.tokenizer, self.labels = Framing.of(model, tokenizer), tokenizer, model.labels
        self.context_length, self.lm_weight = model.context_length, config.task.lm_weight
        self.token_dropout, self.seed = config.task.token_dropout, config.seed
        tokens = config.batch_size * model.context_length
        lengths = self.train.rows.lengths
        self.batches = LengthBatches(lengths[:, None], tokens, config.seed, weights=np.ones_like(lengths))
        self.class_weights = class_weights(data["label_counts"]) if config.task.class_weights else None
        self.tokens_per_batch = self.batches.tokens_per_batch
        self.validation_tokens = int(self.val.rows.lengths.sum())
        self.data, self.model = data, model
        self.commonest = int(np.argmax(data["label_counts"]))  # place of a label
        self._final: ClassEvaluation | None = None

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, val: float) -> Material:
        """Take a table of texts and labels, of which some rows of each label are held out, or another table."""
        material = super().material(source, held_out, val)
        train, held = material.parts(labelled)
        require_classes(train, held)
        if val > 0 and len({label for _, label in train}) == len(train) > len(held) == 0:
            raise TextError(
                "each of the {count:,} rows has a label of its own, so none can be held out; is the label in another "
                "column? {--val 0} trains without validation.",
                count=len(train),
            )
        if val > 0 and not held:
            raise material.nothing_to_hold_out(val)
        return material

    @classmethod
    def examples(cls, table: Table) -> list[tuple[str, str]]:
        """Return the texts with their labels; a row without either is not used."""
        return [(text if label else "", label) for text, label in labelled(table)]

    @classmethod
    def default_tokenizer(cls, material: Material) -> str:
        """Return bpe: its ids are fewer than the characters of a text, and each carries more meaning."""
        return "bpe"

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on the texts, with the special tokens of a BERT, of which a GPT needs some."""
        texts = (text for text, _ in material.parts(labelled)[0])
        return cls.train_on(texts, kind, {"special_tokens": SPECIAL_TOKENS, **options})

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the labels of the training part, the id of the padding, and the head of a BERT."""
        labels = {label for _, label in material.parts(labelled)[0]}
        return {"labels": in_order(labels), "pad_id": pad_id(tokenizer), "head": "classify"}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write both parts as ids and places of labels; see `Task.prepare`."""
        assert isinstance(model, GPTConfig | BERTConfig)
        train, val = material.parts(labelled)
        framing = Framing.of(model, tokenizer)
        with folder.writing(tr("the texts as ids")):
            learned = LabelledRows.write(folder.state, "train", train, model.labels, tokenizer, framing)
            held_out = LabelledRows.write(folder.state, "val", val, model.labels, tokenizer, framing)
        given = sum(count or 0 for count in material.rows().values())
        if not len(learned.part.rows):
            raise TextError(
                "the tokenizer makes no tokens from the texts of the training part; give another tokenizer."
            )
        return {
            **material.identity(),
            **material.rows(),
            "columns": list(table_of(material.source).columns),
            "train_rows": len(learned.part.rows),
            "val_rows": len(held_out.part.rows),
            "label_counts": np.bincount(learned.part.truth, minlength=len(model.labels)).tolist(),
            "empty": given - len(learned.part.rows) - len(held_out.part.rows),
            "cut": learned.cut + held_out.cut,
            "train_tokens": int(learned.part.rows.lengths.sum()),
            "val_tokens": int(held_out.part.rows.lengths.sum()),
            "repeated": repeated_rows(train, val),
            "repeated_texts": repeated_rows([row[:1] for row in train], [row[:1] for row in val]),
            "contradictory_labels": contradictory([*train, *val]),
            "characters": characters(text for text, _ in train),
        }

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def held_out_size(self) -> int:
        """Held-out rows."""
        return len(self.val.rows)

    @property
    def notices(self) -> tuple[str, ...]:
        """Messages about rows that are left out or cut, a held-out part of one class, and what cannot be exported."""
        data, found = self.data, [*super().notices]
        if data["empty"]:
            found.append(tr("{count:,} rows have an empty text or label and are left out.", count=data["empty"]))
        if data["cut"]:
            found.append(
                tr(
                    "{cut:,} of {count:,} texts are longer than the context of {context_length} tokens; their ends "
                    "are not read. A longer {--context-length} reads more of them.",
                    cut=data["cut"],
                    count=data["train_rows"] + data["val_rows"],
                    context_length=self.model.context_length,
                )
            )
        if len(set(self.val.truth.tolist())) == 1:
            found.append(tr("All held-out rows have the same label, so the figures mean little; hold out more rows."))
        if pooling := obstacle(self.model, TRANSFORMERS):
            found.append(pooling)  # now, and not when all the work is done
        return tuple(found)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Ids (B, T), padded on the right; their lengths (B,); the places of their labels (B,)."""
        chosen = self.batches.rows(number)
        ids = self.train.rows.padded(chosen, self.framing.pad, most=self.context_length)
        lengths = torch.from_numpy(self.train.rows.lengths[chosen])
        if self.token_dropout:
            random = random_for(Purpose.TOKEN_DROPOUT, self.seed, number)
            ids, lengths = thinned(ids, lengths, self.token_dropout, self.framing, random)
        return ids, lengths, torch.from_numpy(self.train.truth[chosen])

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Return parts, each about as wide as its longest text."""
        ids, lengths, truth = self.batch(number)
        found: list[tuple[Tensor, ...]] = []
        for part in self.batches.parts(number):
            width = -(-int(lengths[part].max()) // MULTIPLE) * MULTIPLE
            found.append((ids[part, :width], lengths[part], truth[part]))
        return found

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Texts, and with `lm_weight` next tokens.

        The class weights, 1 on average, are not counted. If they were, a text of a rare class would count less in a
        step with more texts of its class.
        """
        _, lengths, truth = batch
        return (len(truth), int((lengths - 1).sum())) if self.lm_weight else (len(truth),)

    def loss_sums(self, model: Classifier, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Cross-entropy of the labels, and `lm_weight` times that of the next tokens."""
        ids, lengths, truth = batch
        mask = length_mask(ids, lengths)  # (B, T)
        hidden = model.hidden(ids) if isinstance(model, GPT) else model.hidden(ids, mask)  # (B, T, C)
        losses = cross_entropies(model.classify(hidden, mask), truth)  # (B,)
        if self.class_weights is not None:
            losses = losses * self.class_weights.to(losses.device)[truth]  # (B,)
        if not self.lm_weight:
            return (losses.sum(),)
        assert isinstance(model, GPT)  # `prepare` refuses others
        return losses.sum(), self.lm_weight * next_token_losses(model, hidden, ids, mask).sum()

    def figures_of_step(self, losses: Sequence[float]) -> dict[str, float]:
        """Return the loss of the next token."""
        return {"lm_loss": losses[1] / self.lm_weight} if self.lm_weight else {}

    def validate(self, model: Classifier, max_tokens: int) -> dict[str, float]:
        """Cross-entropy, accuracy and F1 on evenly spread held-out rows, at least a thousand if there are as many."""
        return _figures(self._judge(model, max_tokens, VALIDATION_ROWS))

    def final(self, model: Classifier, max_tokens: int) -> dict[str, float]:
        """Compute the figures on up to ten times as many rows; the F1 of each class, if they are few; a baseline.

        The baseline always predicts the most frequent label of the training part.
        """
        self._final = self._judge(model, max_tokens, FINAL_ROWS)
        each = self._final.f1.items() if len(self.labels) <= NAMED else ()
        baseline = {"baseline_accuracy": self._commonest_share}
        return {**_figures(self._final), **baseline, **{f"f1[{label}]": value for label, value in each}}

    def final_reads(self, max_tokens: int) -> int:
        """The tokens of as many rows as `final` reads."""
        return min(self.validation_tokens, max(max_tokens, int(FINAL_ROWS * self.val.rows.lengths.mean())))

    def headline(self, figures: Mapping[str, float]) -> str:
        """Accuracy, F1, and the loss, which chooses the parameters."""
        said = tr(
            "accuracy {accuracy:.3f}, F1 {f1:.3f}, loss {loss:.3f}",
            accuracy=figures["accuracy"],
            f1=figures["f1_macro"],
            loss=figures["loss"],
        )
        if "baseline_accuracy" not in figures:
            return said
        return said + tr(
            " (always {label!r}: accuracy {accuracy:.3f})",
            label=self.labels[self.commonest],
            accuracy=figures["baseline_accuracy"],
        )

    def sample(self, model: Classifier, tokens: int, seed: int) -> str:
        """One text with the likeliest labels and the true one."""
        part = self._shown
        row = seed % len(part.rows)
        shares = log_probabilities(model, part.rows, np.array([row])).exp()[0]  # (labels,)
        require_finite(shares)
        text = self.tokenizer.decode(self.framing.inside(part.rows[row])[:tokens])
        best = shares.argsort(descending=True)[:SAMPLE_LABELS].tolist()
        said = ", ".join(f"{self.labels[i]} {float(shares[i]):.0%}" for i in best)
        return f"{text} → {said}" + tr(" (label: {label})", label=self.labels[int(part.truth[row])])

    def example(self) -> str:
        """A text that fits into a line."""
        part = self._shown
        rows = (part.rows[row] for row in range(len(part.rows)))
        return presentable(self.tokenizer.decode(self.framing.inside(ids)) for ids in rows)

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The accuracy of the most frequent label, and the loss of predicting each text by the shares of the labels.

        Weighted classes count alike, so only the loss tells, and a model that knows nothing predicts all alike.
        """
        if not len(self.val.rows):
            return ()
        known = (message("the shares of the labels"), message("{value:.3f} nats per text"))
        if self.class_weights is not None:
            return (Baseline("loss", math.log(len(self.labels)), *known),)
        counts = np.asarray(self.data["label_counts"]) + 1  # (labels,)
        shares, usual = counts / counts.sum(), message("always the most frequent label")
        share = self._commonest_share
        error = error_of_share(share, len(self.val.rows))
        return (
            Baseline("accuracy", share, usual, message("accuracy {value:.3f}"), is_share=True, error=error),
            Baseline("loss", float(-np.log(shares[self.val.truth]).mean()), *known),
        )

    @cached_property
    def _commonest_share(self) -> float:
        """The share of the held-out rows that have the most frequent label of the training part."""
        return float(np.mean(self.val.truth == self.commonest))

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """The share of the rows that are training rows, and the accuracy of the most frequent label."""
        encoded = [(self.tokenizer.encode(text), label) for text, label in whole_pairs(labelled(table_of(material)))]
        rows = [(self.framing.frame(ids).ids.astype(np.int64).tobytes(), label) for ids, label in encoded if len(ids)]
        learned = self.train
        known = {hash((learned.rows[i].tobytes(), self.labels[at])) for i, at in enumerate(learned.truth.tolist())}
        usual = self.labels[self.commonest]
        return {
            "seen_in_training": sum(hash(row) in known for row in rows) / max(1, len(rows)),
            "baseline_accuracy": sum(label == usual for _, label in rows) / max(1, len(rows)),
        }

    def draw(self, model: Classifier, folder: RunFolder) -> None:
        """confusion.png, the confusion matrix of the held-out rows of the last figures, if it has one."""
        if self._final is not None and self._final.confusion is not None:
            with folder.writing("confusion.png"):
                draw_confusion(self._final.confusion, self.labels, folder.path / "confusion.png")

    @property
    def _shown(self) -> LabelledRows:
        """The held-out rows, or those of the training part if none are held out."""
        return self.val if len(self.val.rows) else self.train

    def _judge(self, model: Classifier, max_tokens: int, fewest: int) -> ClassEvaluation:
        rows, lengths = self.val.rows, self.val.rows.lengths
        wanted = min(len(rows), max(fewest, int(max_tokens / lengths.mean())), max(1, MOST_NUMBERS // len(self.labels)))
        chosen = evenly_spread(len(rows), wanted)
        return judge(
            log_probabilities(model, rows, chosen),
            self.val.truth[chosen],
            self.labels,
            tokens=int(lengths[chosen].sum()),
            weights=None if self.class_weights is None else self.class_weights.double(),
        )


def thinned(
    ids: Tensor, lengths: Tensor, share: float, framing: Framing, random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Leave out random tokens of each text, but none of the special tokens around it.

    Source: word dropout, https://arxiv.org/abs/1512.05287, section 4.2; here the tokens are removed, not set to zero.

    Args:
        ids: (B, T), padded on the right. lengths: (B,). share: probability that a token is left out.

    Returns:
        ids (B, T) and lengths (B,) of what is left.
    """
    places = torch.arange(ids.shape[1])  # (T,)
    inside = (places >= len(framing.before)) & (places < lengths[:, None] - len(framing.after))  # (B, T)
    gone = inside & torch.from_numpy(random.random(ids.shape) < share)  # (B, T)
    left = lengths - gone.sum(dim=1)  # (B,)
    order = gone.to(torch.uint8).argsort(dim=1, stable=True)  # (B, T), what stays first
    return ids.gather(1, order).masked_fill(places >= left[:, None], framing.pad), left


def next_token_losses(model: GPT, hidden: Tensor, ids: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy in nats of each token of a text after its first one, without the padding.

    Args:
        hidden: (B, T, C), what `GPT.hidden` returned. ids: (B, T). mask: (B, T), True where there is a token.

    Returns:
        (N,), of the N tokens of all texts.
    """
    behind = mask[:, 1:]  # (B, T-1)
    states, targets = hidden[:, :-1][behind], ids[:, 1:][behind]  # (N, C) and (N,)
    return token_losses(states[None], model.head.weight, targets[None])[0]


def _figures(found: ClassEvaluation) -> dict[str, float]:
    return {
        "loss": found.loss,
        "accuracy": found.accuracy,
        "f1_macro": found.f1_macro,
        "rows": found.rows,
        "tokens": found.tokens,
    }
