"""Tell which class a text belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import BERTConfig, GPTConfig, ModelConfig, TrainConfig
from jumok.config.huggingface import pooling_obstacle
from jumok.data.batches import LengthBatches
from jumok.data.ids import load_ids
from jumok.data.rows import MULTIPLE, Rows, evenly_spread, load_rows, write_rows
from jumok.errors import ConfigError, TextError
from jumok.evaluation.classification import COLUMNS, ClassEvaluation, judge, labelled
from jumok.files import atomic_path
from jumok.inference.classify import Classifier, length_mask, listed, log_probabilities, padded
from jumok.messages import message, tr
from jumok.models.checks import require_finite
from jumok.models.framing import SPECIAL_TOKENS, Framing, pad_id
from jumok.models.gpt import GPT, token_losses
from jumok.models.losses import cross_entropies
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.tasks.goal import Goal
from jumok.training.tasks.task import Material, Task, characters, presentable, repeated_rows, repetition
from jumok.view.training_pictures import draw_confusion

# Fewest held-out rows that a validation and the last figures read, if there are as many. A thousand know an accuracy
# to 1.2 points (a standard error), and two models on the same rows apart much better.
VALIDATION_ROWS = 1_000
FINAL_ROWS = 10_000
BPE_VOCABULARY = 4_000  # ids, half of what a language model has: a table of reviews shows a rare piece too seldom
NAMED = 10  # labels of which the figures tell each f1
SAMPLE_LABELS = 3

Labelled = tuple[str, str]  # a text and its label


class Classification(Task[Any]):
    """Tell which class a text belongs to, from a table of texts and their labels.

    A GPT or a BERT reads a text, pools it, and a linear layer scores the labels. With `lm_weight` a GPT also learns to
    predict each next token of the texts, which keeps it from learning the labels by heart (Radford et al. 2018,
    https://openai.com/index/language-unsupervised, section 3.2).

    The best weights are those with the least cross-entropy on what is held out, not those with the highest accuracy.
    Accuracy sees of each text only on which side it falls: among a thousand texts two good models differ by a handful,
    and the best of twelve validations is the luckiest one. The loss sees how far each text is on its side. Its choice
    is a model whose probabilities can be believed, which one that is chosen by accuracy need not be.
    """

    kinds = (GPTConfig, BERTConfig)
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "columns", "train_rows", "val_rows",
            "label_counts", "empty", "cut", "train_tokens", "val_tokens",
        ]
    )  # fmt: skip
    later_keys = frozenset(["repeated", "characters"])
    goal = Goal(figure="accuracy", unit=message("a share of right labels"), best=1.0)
    unit = "rows"
    loss_label = "nats/text"
    columns = COLUMNS
    fixed_shapes = False

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, GPTConfig | BERTConfig)
        self.train = _Part.load(folder.state, "train", data["train_rows"])
        self.val = _Part.load(folder.state, "val", data["val_rows"])
        self.framing, self.tokenizer, self.labels = Framing.of(model, tokenizer), tokenizer, model.labels
        self.context_length, self.lm_weight = model.context_length, config.lm_weight
        self.token_dropout, self.seed = config.token_dropout, config.seed
        tokens = config.batch_size * model.context_length
        lengths = self.train.rows.lengths
        self.batches = LengthBatches(lengths[:, None], tokens, config.seed, weights=np.ones_like(lengths))
        self.weights = _rarity(data["label_counts"]) if config.class_weights else None
        self.tokens_per_batch = self.batches.tokens_per_batch
        self.validation_tokens = int(self.val.rows.lengths.sum())
        self._notices = _notices(data, model, one_class=len(set(self.val.truth.tolist())) == 1)
        self.commonest = int(np.argmax(data["label_counts"]))  # place of a label
        self._final: ClassEvaluation | None = None

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, config: TrainConfig) -> Material:
        """A table of texts and labels; its last rows are held out, or another table."""
        for table in (source, held_out):
            if table is not None and not isinstance(table, Table):
                raise TextError(
                    "a classifier learns from a table of texts and their labels, and {type} was given; read "
                    'one with jumok.text.read_table("reviews.tsv", ["text", "label"]).',
                    type=type(table).__name__,
                )
        material = Material.of(source, held_out, config.val)
        train, val = _parts(material)
        _require_classes(train, val, shared=held_out is None)
        if config.val > 0 and not val:
            raise TextError(
                "nothing is left to hold out: val={val:g} of {count:,} rows; give more rows, a larger "
                "{--val}, or {--val 0} to train without validation.",
                val=config.val,
                count=len(source),
            )
        return material

    @classmethod
    def usual_tokenizer(cls, material: Material) -> str:
        """Pieces of words: they say more of a text than its letters, and there are fewer of them to read."""
        return "bpe"

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Trained on the texts of the training part, with the special tokens that either kind of model needs."""
        texts = (text + "\n" for text, _ in _parts(material)[0])
        few = {"vocab_size": BPE_VOCABULARY} if kind == "bpe" else {}
        return train_tokenizer(texts, kind, **{"special_tokens": SPECIAL_TOKENS, **few, **options})

    @classmethod
    def fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The labels of the training part, the id that fills up batches, and the head of a BERT."""
        labels = {label for _, label in _parts(material)[0]}
        return {"labels": in_order(labels), "pad_id": pad_id(tokenizer), "head": "classify"}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Both parts as ids and places of labels; see `Task.prepare`."""
        assert isinstance(model, GPTConfig | BERTConfig)
        if config.lm_weight and isinstance(model, BERTConfig):
            raise ConfigError(
                "lm_weight={lm_weight:g} adds the loss of the next token, which a BERT already sees; "
                "leave it out, or train a gpt.",
                lm_weight=config.lm_weight,
            )
        train, val = _parts(material)
        framing = Framing.of(model, tokenizer)
        with folder.writing(tr("the texts as ids")):
            learned = _Part.write(folder.state, "train", train, model.labels, tokenizer, framing)
            held_out = _Part.write(folder.state, "val", val, model.labels, tokenizer, framing)
        parts = (learned.part, held_out.part)
        assert isinstance(material.source, Table)
        given = sum(count or 0 for count in material.rows().values())
        if not len(learned.part.rows):
            raise TextError(
                "the tokenizer makes no tokens from the texts of the training part; give another tokenizer."
            )
        return {
            **material.identity(),
            **material.rows(),
            "columns": list(material.source.columns),
            "train_rows": len(learned.part.rows),
            "val_rows": len(held_out.part.rows),
            "label_counts": np.bincount(learned.part.truth, minlength=len(model.labels)).tolist(),
            "empty": given - sum(len(part.rows) for part in parts),
            "cut": learned.cut + held_out.cut,
            "train_tokens": int(learned.part.rows.lengths.sum()),
            "val_tokens": int(held_out.part.rows.lengths.sum()),
            "repeated": repeated_rows(train, val),
            "characters": characters(text for text, _ in train),
        }

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def held_out_size(self) -> int:
        """Held-out rows."""
        return len(self.val.rows)

    @property
    def notices(self) -> tuple[str, ...]:
        """Rows that are left out or cut, a held-out part that tells little, and a model that cannot be exported."""
        return self._notices

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Ids (B, T), filled up on the right; their lengths (B,); the places of their labels (B,)."""
        chosen = self.batches.rows(number)
        ids, lengths = padded(self.train.rows, chosen, self.framing.pad, self.context_length)
        if self.token_dropout:
            random = np.random.Generator(np.random.PCG64((self.seed, number)))
            ids, lengths = thinned(ids, lengths, self.token_dropout, self.framing, random)
        return ids, lengths, torch.from_numpy(self.train.truth[chosen])

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Each about as wide as its longest text."""
        ids, lengths, truth = self.batch(number)
        found: list[tuple[Tensor, ...]] = []
        for part in self.batches.parts(number):
            width = -(-int(lengths[part].max()) // MULTIPLE) * MULTIPLE
            found.append((ids[part, :width], lengths[part], truth[part]))
        return found

    def share(self, batch: tuple[Tensor, ...]) -> float:
        """Of the ids, padding included."""
        return batch[0].numel() / self.batches.numbers_per_batch

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Texts, whatever the class weights are, which are 1 on average; with `lm_weight` next tokens, too.

        Divided by the sum of their weights, a rare text would count less the more of its kind were in its step.
        """
        _, lengths, truth = batch
        return (len(truth), int((lengths - 1).sum())) if self.lm_weight else (len(truth),)

    def sums(self, model: Classifier, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Cross-entropy of the labels, and `lm_weight` times that of the next tokens."""
        ids, lengths, truth = batch
        mask = length_mask(ids, lengths)  # (B, T)
        hidden = model.hidden(ids) if isinstance(model, GPT) else model.hidden(ids, mask)  # (B, T, C)
        losses = cross_entropies(model.classify(hidden, mask), truth)  # (B,)
        if self.weights is not None:
            losses = losses * self.weights.to(losses.device)[truth]  # (B,)
        if not self.lm_weight:
            return (losses.sum(),)
        assert isinstance(model, GPT)  # `prepare` refuses others
        return losses.sum(), self.lm_weight * next_token_losses(model, hidden, ids, mask).sum()

    def validate(self, model: Classifier, max_tokens: int) -> dict[str, float]:
        """Cross-entropy, accuracy and F1 on evenly spread held-out rows, at least a thousand if there are as many."""
        return _figures(self._judge(model, max_tokens, VALIDATION_ROWS))

    def final(self, model: Classifier, max_tokens: int) -> dict[str, float]:
        """As `validate` on ten times as many rows, which is mostly all, with the F1 of each class if they are few.

        Beside them stands the accuracy of who always says the most frequent label of the training part.
        """
        self._final = self._judge(model, max_tokens, FINAL_ROWS)
        each = self._final.f1.items() if len(self.labels) <= NAMED else ()
        baseline = {"baseline_accuracy": float(np.mean(self.val.truth == self.commonest))}
        return {**_figures(self._final), **baseline, **{f"f1[{label}]": value for label, value in each}}

    def final_reads(self, max_tokens: int) -> int:
        """The tokens of as many rows as `final` reads."""
        return min(self.validation_tokens, max(max_tokens, int(FINAL_ROWS * self.val.rows.lengths.mean())))

    def headline(self, figures: Mapping[str, float]) -> str:
        """Accuracy and F1."""
        said = f"accuracy {figures['accuracy']:.3f}, F1 {figures['f1_macro']:.3f}"
        if "baseline_accuracy" not in figures:
            return said
        return f"{said} (always {self.labels[self.commonest]!r}: accuracy {figures['baseline_accuracy']:.3f})"

    def sample(self, model: Classifier, tokens: int, seed: int) -> str:
        """One text with the likeliest labels and the true one: held out, or of the training part if nothing is."""
        part = self.val if len(self.val.rows) else self.train
        row = seed % len(part.rows)
        shares = log_probabilities(model, part.rows, np.array([row])).exp()[0]  # (labels,)
        require_finite(shares)
        text = self.tokenizer.decode(self.framing.inside(part.rows[row])[:tokens])
        best = shares.argsort(descending=True)[:SAMPLE_LABELS].tolist()
        said = ", ".join(f"{self.labels[i]} {float(shares[i]):.0%}" for i in best)
        return f"{text} → {said} (label: {self.labels[int(part.truth[row])]})"

    def example(self) -> str:
        """A text of a row that fits into a line."""
        part = self.val if len(self.val.rows) else self.train
        rows = (part.rows[row] for row in range(len(part.rows)))
        return presentable(self.tokenizer.decode(self.framing.inside(ids)) for ids in rows)

    def beside(self, material: Text | Table) -> dict[str, float]:
        """The share of the rows that are training rows, and the accuracy of the most frequent label of those."""
        assert isinstance(material, Table)
        encoded = [(self.tokenizer.encode(text), label) for text, label in _whole(labelled(material))]
        rows = [(self.framing.frame(ids).ids.astype(np.int64).tobytes(), label) for ids, label in encoded if len(ids)]
        learned = self.train
        known = {hash((learned.rows[i].tobytes(), self.labels[at])) for i, at in enumerate(learned.truth.tolist())}
        usual = self.labels[self.commonest]
        return {
            "seen_in_training": sum(hash(row) in known for row in rows) / max(1, len(rows)),
            "baseline_accuracy": sum(label == usual for _, label in rows) / max(1, len(rows)),
        }

    def draw(self, model: Classifier, folder: RunFolder) -> None:
        """confusion.png: which classes are taken for which, on the held-out rows of the last figures."""
        if self._final is not None:
            with folder.writing("confusion.png"):
                draw_confusion(self._final.confusion, self.labels, folder.path / "confusion.png")

    def _judge(self, model: Classifier, max_tokens: int, fewest: int) -> ClassEvaluation:
        rows, lengths = self.val.rows, self.val.rows.lengths
        wanted = min(len(rows), max(fewest, int(max_tokens / lengths.mean())))
        chosen = evenly_spread(len(rows), wanted)
        return judge(
            log_probabilities(model, rows, chosen),
            self.val.truth[chosen],
            self.labels,
            tokens=int(lengths[chosen].sum()),
            weights=None if self.weights is None else self.weights.double(),
        )


def thinned(
    ids: Tensor, lengths: Tensor, share: float, framing: Framing, random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Leave out some tokens of each text, so that no single one is relied on; those around it stay.

    Source: word dropout, https://arxiv.org/abs/1512.05287, section 4.2; here the tokens close up instead of being zero.

    Args:
        ids: (B, T), filled up on the right. lengths: (B,). share: of the tokens that go, each for itself.

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
    """Cross-entropy in nats of each token of a text after its first one, the filling left out.

    Args:
        hidden: (B, T, C), what `GPT.hidden` returned. ids: (B, T). mask: (B, T), True where there is a token.

    Returns:
        (N,), of the N tokens of all texts.
    """
    behind = mask[:, 1:]  # (B, T-1)
    states, targets = hidden[:, :-1][behind], ids[:, 1:][behind]  # (N, C) and (N,)
    return token_losses(states[None], model.head.weight, targets[None])[0]


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels in the order of their numbers if all are numbers, and of their letters otherwise."""
    names = sorted(set(labels))
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(names)


# --- the two parts ----------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """Rows of ids with their frame, and the place of each one's label, (rows,)."""

    rows: Rows
    truth: NDArray[np.int64]

    @classmethod
    def load(cls, folder: Path, name: str, count: int) -> _Part:
        truth = load_ids(folder / f"{name}.labels.npy", count)
        return cls(load_rows(folder / f"{name}.npy", count), truth.astype(np.int64))

    @classmethod
    def write(
        cls,
        folder: Path,
        name: str,
        cells: Sequence[Labelled],
        labels: Sequence[str],
        tokenizer: Tokenizer,
        framing: Framing,
    ) -> _Written:
        """Write texts as ids; one of which the tokenizer makes nothing is left out."""
        places = {label: place for place, label in enumerate(labels)}
        encoded = [(tokenizer.encode(text), places[label]) for text, label in cells]
        framed = [(framing.frame(ids), place) for ids, place in encoded if len(ids)]
        rows = write_rows(folder / f"{name}.npy", (text.ids for text, _ in framed), tokenizer.dtype)
        truth = np.array([place for _, place in framed], np.uint32)
        with atomic_path(folder / f"{name}.labels.npy") as temporary, temporary.open("wb") as target:
            np.save(target, truth, allow_pickle=False)
        return _Written(cls(rows, truth.astype(np.int64)), sum(text.cut for text, _ in framed))


class _Written(NamedTuple):
    part: _Part
    cut: int  # texts that lost their end


def _parts(material: Material) -> tuple[list[Labelled], list[Labelled]]:
    """Texts and labels of the training part and of what is held out; rows with an empty cell are left out."""
    assert isinstance(material.source, Table)
    cells = labelled(material.source)
    if material.held_out is not None:
        assert isinstance(material.held_out, Table)
        held_out = labelled(material.held_out)
    else:
        held_out = cells[material.cut :]
    return _whole(cells[: material.cut]), _whole(held_out)


def _whole(cells: Iterable[Labelled]) -> list[Labelled]:
    return [(text, label) for text, label in cells if text and label]


def _require_classes(train: Sequence[Labelled], val: Sequence[Labelled], *, shared: bool) -> None:
    """Raise TextError unless there are two classes to learn, and no other ones are held out.

    A class that training never saw could only be got wrong: what looks like a bad model is a table in the order of its
    labels, or a label that is misspelt.
    """
    if not train:
        raise TextError("no row of the training part has both a text and a label; nothing can be learned.")
    known = {label for _, label in train}
    if len(known) < 2:
        everything = known | {label for _, label in val}
        remedy = (
            tr("the rows seem to be in the order of their labels, and the last ones are held out: shuffle them.")
            if len(everything) > 1 and shared
            else tr("a classifier needs two classes or more; is the label in another column?")
        )
        raise TextError(
            "all rows of the training part have the label {label!r}: {remedy}", label=known.pop(), remedy=remedy
        )
    unseen = Counter(label for _, label in val if label not in known)
    if unseen:
        facts = {
            "count": sum(unseen.values()),
            "unseen": listed(unseen),
            "known": listed(in_order(known), most=12),
        }
        if shared:
            raise TextError(
                "{count:,} held-out rows have labels that no training row has: {unseen}; training has {known}. "
                "Shuffle the rows, or correct the labels.",
                **facts,
            )
        raise TextError(
            "{count:,} held-out rows have labels that no training row has: {unseen}; training has {known}. "
            "Correct the labels, or take those rows out.",
            **facts,
        )


def _rarity(counts: Sequence[int]) -> Tensor:
    """rows / (classes · rows of the class) for each class, (labels,): each class weighs the same as a whole."""
    rows = torch.tensor(counts, dtype=torch.float32).clamp(min=1)
    return rows.sum() / (len(counts) * rows)


def _notices(data: Mapping[str, Any], model: GPTConfig | BERTConfig, *, one_class: bool) -> tuple[str, ...]:
    found = [*repetition(data)]
    if data["empty"]:
        found.append(tr("{count:,} rows have an empty text or label and are left out.", count=data["empty"]))
    if data["cut"]:
        found.append(
            tr(
                "{cut:,} of {count:,} texts are longer than the context of {context_length} tokens; their ends are not "
                "read. A longer {--context-length} reads more of them.",
                cut=data["cut"],
                count=data["train_rows"] + data["val_rows"],
                context_length=model.context_length,
            )
        )
    if one_class:
        found.append(tr("All held-out rows have the same label, so the figures tell little; shuffle the rows."))
    if obstacle := pooling_obstacle(model):
        found.append(obstacle)  # now, and not when all the work is done
    return tuple(found)


def _figures(found: ClassEvaluation) -> dict[str, float]:
    return {
        "loss": found.loss,
        "accuracy": found.accuracy,
        "f1_macro": found.f1_macro,
        "rows": found.rows,
        "tokens": found.tokens,
    }
