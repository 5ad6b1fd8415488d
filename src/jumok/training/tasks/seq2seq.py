"""Answer texts: pairs of a source and a target, an encoder–decoder between them.

A source is its text and [EOS], unless the tokenizer of a published model puts other ids around a text. The decoder
begins with [BOS], sees the target, and learns to write the target and [EOS]. These are the ids that stock
`transformers` reads out of the exported folder; `BartForConditionalGeneration(labels=...)` builds the same inputs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from jumok.config import SENTENCE_DEFAULTS, EncoderDecoderConfig, TrainConfig
from jumok.data.batches import LengthBatches
from jumok.data.ids import REMEDY
from jumok.data.rows import evenly_spread, load_rows, write_rows
from jumok.errors import RunError, TextError, TokenizerError
from jumok.evaluation.seq2seq import (
    COLUMNS,
    PADDING,
    CodedPair,
    Pair,
    as_pairs,
    best,
    encode_pair,
    evaluate_pairs,
    has_sacrebleu,
    pair_batch,
    target_losses,
    whole_pairs,
)
from jumok.files import write_atomic
from jumok.inference.answer import answer_ids, require_answering
from jumok.inference.targets import Search
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.tasks.goal import Goal
from jumok.training.tasks.task import Material, Task, characters, presentable, repeated_rows, repetition

SPECIAL_TOKENS = ("[PAD]", "[BOS]", "[EOS]")
# The fields of the configuration that hold ids, and the usual names of their tokens.
IDS = {
    "pad_id": ("[PAD]", "<pad>"),
    "bos_id": ("[BOS]", "<s>"),
    "decoder_start_id": ("[BOS]", "<s>"),
    "eos_id": ("[EOS]", "</s>"),
}
BPE_VOCABULARY = 4_000  # ids, half of what a language model has: a table of pairs shows a rare piece too seldom
TIE = 1e-6  # weight of the loss between models that are right equally often
SENTENCE = 3  # words that a text has on average, from which on it is taken for a sentence
FEWEST_ROWS = 200  # that a validation answers, if there are as many
ANSWER_COST = 4  # a token that is read and answered costs about so many that are only read


class Seq2Seq(Task[EncoderDecoder]):
    """Answer texts, as learned from pairs of a source and a target."""

    kinds = (EncoderDecoderConfig,)
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "columns", "train_rows", "val_rows", "left_out",
            "cut", "longest", "train_tokens", "val_tokens",
        ]
    )  # fmt: skip
    later_keys = frozenset(["repeated", "characters"])
    goal = Goal(figure="exact_match", unit=message("a share of exact answers"), best=1.0)
    unit = "rows"
    loss_label = "nats/token"
    most_dropout = 0.1  # what is learned by heart is of use here: see `to_minimise`
    columns = COLUMNS
    fixed_shapes = False

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, EncoderDecoderConfig)  # of `kinds`
        self.sources = load_rows(folder.state / "train-source.npy", data["train_rows"])
        self.targets = load_rows(folder.state / "train-target.npy", data["train_rows"])
        self.held_out = _read_pairs(folder, data["val_rows"])
        lengths = np.stack((self.sources.lengths, self.targets.lengths), axis=1)  # (rows, 2)
        tokens = config.batch_size * model.context_length
        self.batches = LengthBatches(lengths, tokens, config.seed, weights=self.targets.lengths)
        self.tokens_per_batch = self.batches.tokens_per_batch
        self.validation_tokens = data["val_tokens"]
        self.smoothing = config.label_smoothing
        self.model, self.data, self.tokenizer = model, data, tokenizer

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, config: TrainConfig) -> Material:
        """A table of pairs; its last rows are held out, or another table."""
        for table in (source, held_out):
            if table is not None and not isinstance(table, Table):
                raise TextError(
                    "task seq2seq learns from a table with the columns source and target (.tsv, .csv or "
                    ".jsonl), and a {type} was given; read it with read_table(paths, ('source', 'target')).",
                    type=type(table).__name__,
                )
            if table is not None:
                as_pairs(table)  # a column may be missing
        return Material.of(source, held_out, config.val)

    @classmethod
    def training(cls, material: Material) -> dict[str, Any]:
        """What sentences want different."""
        return SENTENCE_DEFAULTS if _has_sentences(material) else {}

    @classmethod
    def usual_tokenizer(cls, material: Material) -> str:
        """Pieces of words where both sides are sentences, whose words come back; else characters, as for numbers."""
        return "bpe" if _has_sentences(material) else "char"

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """One for sources and targets, trained on both columns of the training part, a text a line."""
        pairs, _ = _parts(material)
        if not pairs:
            raise _nothing_to_learn(material)
        lines = (f"{text}\n" for pair in pairs for text in pair)
        few = {"vocab_size": BPE_VOCABULARY} if kind == "bpe" else {}
        return train_tokenizer(lines, kind, **{**few, **options, "special_tokens": SPECIAL_TOKENS})

    @classmethod
    def fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The ids of the special tokens: those of the model to begin with, and else those of the tokenizer.

        A published model that always writes one first does so no more. Marian has none that begins a text, and needs
        none: its decoder begins with another.

        Raises:
            TokenizerError: neither has one of the others.
        """
        known = tokenizer.special_tokens
        of_names = {field: next((known[n] for n in names if n in known), None) for field, names in IDS.items()}
        own = {field: token_id for field, token_id in (inherited or {}).items() if token_id is not None}
        found = {field: own.get(field, token_id) for field, token_id in of_names.items()}
        missing = [" / ".join(IDS[name]) for name, token_id in found.items() if token_id is None and name != "bos_id"]
        if missing:
            raise TokenizerError(
                "task seq2seq needs the special tokens {names}, and this tokenizer has no {missing}; "
                "leave {--tokenizer} out, or train one with train_tokenizer(..., "
                "special_tokens={special_tokens}).",
                names=", ".join(SPECIAL_TOKENS),
                missing=", ".join(dict.fromkeys(missing)),
                special_tokens=SPECIAL_TOKENS,
            )
        return {**found, "forced_bos_id": None}  # what is learned begins as the targets do

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Training pairs as ids, held-out pairs as texts; see `Task.prepare`."""
        assert isinstance(model, EncoderDecoderConfig)  # of `kinds`
        train, held_out = _parts(material)
        if not train:
            raise _nothing_to_learn(material)
        if not held_out and (config.val > 0 or material.held_out is not None):
            raise _nothing_to_hold_out(material, config)
        coded = [encode_pair(tokenizer, model, pair) for pair in train]
        held_out_coded = [encode_pair(tokenizer, model, pair) for pair in held_out]
        with folder.writing(tr("the pairs as ids"), needed=tokenizer.dtype.itemsize * _tokens(coded)):
            for column in COLUMNS:
                ids = (getattr(pair, column).astype(tokenizer.dtype) for pair in coded)
                write_rows(folder.state / f"train-{column}.npy", ids, tokenizer.dtype)
            lines = (json.dumps(pair, ensure_ascii=False) + "\n" for pair in held_out)
            write_atomic(folder.state / "val.jsonl", "".join(lines))
        table, given = _table(material.source), sum(count or 0 for count in material.rows().values())
        return {
            **material.identity(),
            **material.rows(),
            "columns": [table.names[table.columns.index(name)] for name in COLUMNS],
            "train_rows": len(train),
            "val_rows": len(held_out),
            "left_out": given - len(train) - len(held_out),
            "cut": sum(pair.is_cut for pair in (*coded, *held_out_coded)),
            "longest": max(pair.longest for pair in (*coded, *held_out_coded)),
            "train_tokens": _tokens(coded),
            "val_tokens": _tokens(held_out_coded),
            "repeated": repeated_rows(train, held_out),
            "characters": characters(source for source, _ in train),
        }

    # --- in the run -------------------------------------------------------------------------------------------------

    @property
    def held_out_size(self) -> int:
        """Held-out rows."""
        return len(self.held_out)

    @property
    def notices(self) -> tuple[str, ...]:
        """Which rows were left out, which were cut, and which are in both parts."""
        sentences = [*repetition(self.data)]
        if left_out := self.data["left_out"]:
            sentences.append(tr("Rows left out, because they have no source or no target: {count:,}.", count=left_out))
        if cut := self.data["cut"]:
            sentences.append(
                tr(
                    "Rows cut to context_length={context_length}: {count:,}. The longest needs "
                    "{--context-length {longest}}.",
                    context_length=self.model.context_length,
                    count=cut,
                    longest=self.data["longest"],
                )
            )
        return tuple(sentences)

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Sources (B, S) and targets (B, T), padded with `PADDING`; B varies with the lengths."""
        return pair_batch(self.sources, self.targets, self.batches.rows(number), self.model)

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Each about as wide as its longest pair."""
        rows = self.batches.rows(number)
        return [pair_batch(self.sources, self.targets, rows[part], self.model) for part in self.batches.parts(number)]

    def share(self, batch: tuple[Tensor, ...]) -> float:
        """Of the ids, padding included."""
        return sum(part.numel() for part in batch) / self.batches.numbers_per_batch

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Tokens of the targets."""
        return (int((batch[1] != PADDING).sum()),)

    def sums(self, model: EncoderDecoder, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Cross-entropy of the tokens of the targets, with label smoothing where that is on."""
        source, target = batch
        return (target_losses(model, source, target, self.smoothing).sum(),)

    def fewest_tokens(self, context_length: int) -> int:
        """Those of FEWEST_ROWS, or 8 contexts if that is more."""
        rows = -(-FEWEST_ROWS * self.validation_tokens // max(1, len(self.held_out)))
        return max(8 * context_length, rows * ANSWER_COST)

    def validate(self, model: EncoderDecoder, max_tokens: int) -> dict[str, float]:
        """Loss, exact match, chrF and BLEU of greedy answers to evenly spread rows; see `jumok.evaluation.seq2seq`."""
        most = max(1, max_tokens // ANSWER_COST * len(self.held_out) // self.validation_tokens)
        return self._figures(model, min(most, len(self.held_out)))

    def to_minimise(self, figures: Mapping[str, float]) -> float:
        """The share of tokens that are not the likeliest, given what stands before them.

        Answers go on improving for long after the loss of the held-out ones has begun to rise: what is learned by
        heart is told with too much certainty, but told to those who ask the like. The share is of all tokens, so that
        it tells two models apart that chrF, of a few hundred greedy answers, does not, and needs no sacrebleu. Where it
        cannot tell them apart, the loss does.
        """
        return 1 - figures["token_accuracy"] + TIE * figures["loss"]

    def final(self, model: EncoderDecoder, max_tokens: int) -> dict[str, float]:
        """As `validate`, beside the exact match of who always gives the most frequent answer of the training part."""
        coded = [encode_pair(self.tokenizer, self.model, pair) for pair in self.held_out]
        return {**self.validate(model, max_tokens), "baseline_exact_match": self._commonest_share(coded)}

    def final_reads(self, max_tokens: int) -> int:
        """The tokens of the pairs that it answers."""
        return min(self.validation_tokens, max_tokens // ANSWER_COST)

    def _figures(self, model: EncoderDecoder, rows: int) -> dict[str, float]:
        pairs = [self.held_out[row] for row in evenly_spread(len(self.held_out), rows).tolist()]
        found = evaluate_pairs(model, pairs, metrics=has_sacrebleu())
        figures = {
            "loss": found.loss_per_token,
            "exact_match": found.exact_match,
            "chrf": found.chrf,
            "bleu": found.bleu,
            "loss_per_token": found.loss_per_token,
            "token_accuracy": found.token_accuracy,
            "rows": found.rows,
            "tokens": found.tokens,
        }
        return {name: value for name, value in figures.items() if value is not None}

    def headline(self, figures: Mapping[str, float]) -> str:
        """How many answers and tokens are right, chrF where it is known, and the loss."""
        chrf = f", chrF {figures['chrf']:.1f}" if "chrf" in figures else ""
        right = f"exact {figures['exact_match']:.1%}, tokens {figures['token_accuracy']:.1%}"
        said = f"{right}{chrf}, loss {figures['loss']:.3f}"
        if "baseline_exact_match" not in figures:
            return said
        return f"{said} (always the most frequent answer: exact {figures['baseline_exact_match']:.1%})"

    def sample(self, model: EncoderDecoder, tokens: int, seed: int) -> str:
        """A held-out source, the answer to it, and the target; of the training rows where none is held out."""
        tokenizer = require_answering(model)
        source, target = self._shown(seed)
        ids = encode_pair(tokenizer, model.config, (source, target)).source
        search = Search(max_tokens=min(tokens, model.config.context_length))
        return f"source: {source}\nanswer: {best(answer_ids(model, [ids], search)[0])}\ntarget: {target}"

    def example(self) -> str:
        """A source that fits into a line."""
        rows = range(len(self.held_out) or len(self.sources))
        return presentable(self._shown(row)[0] for row in rows)

    def beside(self, material: Text | Table) -> dict[str, float]:
        """The share of the pairs that are training pairs, and the exact match of their most frequent answer."""
        coded = [encode_pair(self.tokenizer, self.model, pair) for pair in whole_pairs(as_pairs(_table(material)))]
        known = {hash((self.sources[i].tobytes(), self.targets[i].tobytes())) for i in range(len(self.sources))}
        seen = sum(hash((pair.source.tobytes(), pair.target.tobytes())) in known for pair in coded)
        return {
            "seen_in_training": seen / max(1, len(coded)),
            "baseline_exact_match": self._commonest_share(coded),
        }

    def _commonest_share(self, pairs: list[CodedPair]) -> float:
        """How many of some pairs have the target that most training pairs have."""
        counts = Counter(self.targets[row].tobytes() for row in range(len(self.targets)))
        usual = max(counts, key=lambda target: counts[target])
        return sum(pair.target.tobytes() == usual for pair in pairs) / max(1, len(pairs))

    def _shown(self, row: int) -> Pair:
        """A held-out pair, or one of the training part where none is held out; rows are counted round and round."""
        if self.held_out:
            return self.held_out[row % len(self.held_out)]
        special = set(self.tokenizer.special_tokens.values())
        source, target = (
            self.tokenizer.decode([token for token in part[row % len(part)].tolist() if token not in special])
            for part in (self.sources, self.targets)
        )
        return source, target


def _table(part: Text | Table | None) -> Table:
    assert isinstance(part, Table)  # `material` has checked it
    return part


def _parts(material: Material) -> tuple[list[Pair], list[Pair]]:
    """The pairs to learn from and those to hold out, without those of which a text is missing."""
    pairs = as_pairs(_table(material.source))
    held_out = pairs[material.cut :] if material.held_out is None else as_pairs(_table(material.held_out))
    return whole_pairs(pairs[: material.cut]), whole_pairs(held_out)


def _has_sentences(material: Material) -> bool:
    """Whether the sources as well as the targets have words enough on average."""
    pairs, _ = _parts(material)
    words = [sum(len(pair[side].split()) for pair in pairs) for side in range(len(COLUMNS))]
    return bool(pairs) and min(words) >= SENTENCE * len(pairs)


def _nothing_to_learn(material: Material) -> TextError:
    return TextError(
        "none of the {count:,} rows to train on has both a source and a target; fill the two "
        "columns, or give more rows.",
        count=material.cut,
    )


def _nothing_to_hold_out(material: Material, config: TrainConfig) -> TextError:
    if material.held_out is not None:
        return TextError("none of the held-out rows has both a source and a target; fill the two columns.")
    return TextError(
        "nothing is left to hold out: val={val:g} of {count:,} rows; give more rows, a larger "
        "{--val}, or {--val 0} to train without validation.",
        val=config.val,
        count=len(_table(material.source)),
    )


def _tokens(pairs: list[CodedPair]) -> int:
    return sum(len(pair.source) + len(pair.target) for pair in pairs)


def _read_pairs(folder: RunFolder, count: int) -> list[Pair]:
    """The held-out pairs that `prepare` wrote.

    Raises:
        RunError: the file is missing, damaged, or does not hold `count` of them.
    """
    path = folder.state / "val.jsonl"
    try:
        pairs = [_pair(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except (OSError, ValueError) as error:
        raise RunError(
            "{path}, the held-out pairs, cannot be read ({error}). {remedy}", path=path, error=error, remedy=tr(REMEDY)
        ) from None
    if len(pairs) != count:
        raise RunError(
            "{path} holds {count:,} pairs where the run had {expected:,}. {remedy}",
            path=path,
            count=len(pairs),
            expected=count,
            remedy=tr(REMEDY),
        )
    return pairs


def _pair(line: str) -> Pair:
    pair = json.loads(line)
    if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
        raise ValueError(f"{line[:40]!r} is no pair of texts")
    return pair[0], pair[1]
