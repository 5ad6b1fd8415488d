"""Answer texts with an encoder–decoder, trained on pairs of a source and a target.

A source is its text and [EOS], unless the tokenizer of a published model puts other ids around a text. The decoder
begins with [BOS], reads the target, and learns to predict the target and [EOS]. These are the ids that stock
`transformers` reads out of the exported folder; `BartForConditionalGeneration(labels=...)` builds the same inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import EncoderDecoderConfig, Seq2SeqConfig, TrainConfig
from jumok.data.batches import LengthBatches
from jumok.data.rows import evenly_spread, load_rows, write_rows
from jumok.errors import TextError, TokenizerError
from jumok.evaluation.seq2seq import (
    COLUMNS,
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
from jumok.inference.answer import answer_ids
from jumok.inference.answer_search import Search
from jumok.inference.requests import require_answering
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import IGNORED
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Tokenizer
from jumok.training.tasks.material import Material, characters, presentable, repeated_rows, table_of
from jumok.training.tasks.stored_rows import read_cells, write_cells
from jumok.training.tasks.task import Baseline, Goal, TableTask, error_of_share

SPECIAL_TOKENS = ("[PAD]", "[BOS]", "[EOS]")
# The fields of the configuration that hold ids, and the usual names of their tokens.
IDS = {
    "pad_id": ("[PAD]", "<pad>"),
    "bos_id": ("[BOS]", "<s>"),
    "decoder_start_id": ("[BOS]", "<s>"),
    "eos_id": ("[EOS]", "</s>"),
}
HELD_OUT_FILE = "val.jsonl"  # of the held-out pairs, in state/
TIE = 1e-6  # factor of the loss, which decides between models with equal token accuracy
SENTENCE = 3  # words per text, on average, from which on the texts are taken for sentences
FEWEST_ROWS = 200  # that a validation answers, if there are as many
ANSWER_COST = 4  # reading and answering a token costs about as much as reading so many


class Seq2Seq(TableTask[EncoderDecoder]):
    """Answer texts, as learned from pairs of a source and a target."""

    config_type = Seq2SeqConfig
    keys = frozenset(
        [
            "sources", "sha256", "val_sha256", "rows", "held_out_rows", "columns", "train_rows", "val_rows", "left_out",
            "cut", "longest", "train_tokens", "val_tokens",
        ]
    )  # fmt: skip
    use = message("Generate an answer:")
    goal = Goal(figure="exact_match", unit=message("a share of exact answers"), best=1.0)
    loss_label = "nats/token"
    most_dropout = 0.1  # overfitting does less harm here; see `to_minimise`

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, EncoderDecoderConfig)
        assert isinstance(config.task, Seq2SeqConfig)
        self.sources = load_rows(folder.state / "train-source.npy", data["train_rows"])
        self.targets = load_rows(folder.state / "train-target.npy", data["train_rows"])
        rows = read_cells(folder.state / HELD_OUT_FILE, data["val_rows"], len(COLUMNS))
        self.held_out: list[Pair] = [(source, target) for source, target in rows]
        lengths = np.stack((self.sources.lengths, self.targets.lengths), axis=1)  # (rows, 2)
        tokens = config.batch_size * model.context_length
        self.batches = LengthBatches(lengths, tokens, config.seed, weights=self.targets.lengths)
        self.tokens_per_batch = self.batches.tokens_per_batch
        self.validation_tokens = data["val_tokens"]
        self.smoothing = config.task.label_smoothing
        self.model, self.data, self.tokenizer = model, data, tokenizer

    # --- before the run ---------------------------------------------------------------------------------------------

    @classmethod
    def material(cls, source: Any, held_out: Any, val: float) -> Material:
        """Take a table of pairs, of which some are held out, or another table."""
        material = super().material(source, held_out, val)
        material.parts(as_pairs)  # a column may be missing
        return material

    @classmethod
    def examples(cls, table: Table) -> list[tuple[str, str]]:
        """Return the sources; a row without a target is not used."""
        return [(source if target.strip() else "", "") for source, target in as_pairs(table)]

    @classmethod
    def material_defaults(cls, material: Material) -> Mapping[str, Any]:
        """Return the defaults for sentences or for words."""
        return Seq2SeqConfig.material_defaults["sentences" if _has_sentences(material) else "words"]

    @classmethod
    def default_tokenizer(cls, material: Material) -> str:
        """Return bpe where both sides are sentences, and otherwise char, as for numbers."""
        return "bpe" if _has_sentences(material) else "char"

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train one tokenizer on the sources and targets."""
        pairs, _ = material.parts(as_pairs)
        if not pairs:
            raise _nothing_to_learn(material)
        texts = (text for pair in pairs for text in pair)
        return cls.train_on(texts, kind, {**options, "special_tokens": SPECIAL_TOKENS})

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the ids of the special tokens, of the model that the run begins with or else of the tokenizer.

        A published model may force the first token of an answer; that is turned off. Marian has no `bos_id` and needs
        none, because its decoder begins with another token.

        Raises:
            TokenizerError: one of the others is missing.
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
        return {**found, "forced_bos_id": None}  # answers begin as the targets do

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write training pairs as ids and held-out pairs as texts; see `Task.prepare`."""
        assert isinstance(model, EncoderDecoderConfig)
        train, held_out = material.parts(as_pairs)
        if not train:
            raise _nothing_to_learn(material)
        if not held_out and (config.val > 0 or material.held_out is not None):
            if material.held_out is None:
                raise material.nothing_to_hold_out(config.val)
            raise TextError("none of the held-out rows has both a source and a target; fill the two columns.")
        coded = [encode_pair(tokenizer, model, pair) for pair in train]
        held_out_coded = [encode_pair(tokenizer, model, pair) for pair in held_out]
        with folder.writing(tr("the pairs as ids"), needed=tokenizer.dtype.itemsize * _tokens(coded)):
            for column in COLUMNS:
                ids = (getattr(pair, column).astype(tokenizer.dtype) for pair in coded)
                write_rows(folder.state / f"train-{column}.npy", ids, tokenizer.dtype)
            write_cells(folder.state / HELD_OUT_FILE, held_out)
        table, given = table_of(material.source), sum(count or 0 for count in material.rows().values())
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
        """How many rows were left out, cut, or are in both parts."""
        sentences = [*super().notices]
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
        """Sources (B, S) and targets (B, T), padded with IGNORED; B varies with the lengths."""
        return pair_batch(self.sources, self.targets, self.batches.rows(number), self.model)

    def parts(self, number: int) -> list[tuple[Tensor, ...]]:
        """Return parts, each about as wide as its longest pair."""
        rows = self.batches.rows(number)
        return [pair_batch(self.sources, self.targets, rows[part], self.model) for part in self.batches.parts(number)]

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of tokens of the targets."""
        return (int((batch[1] != IGNORED).sum()),)

    def loss_sums(self, model: EncoderDecoder, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Cross-entropy of the tokens of the targets, with label smoothing where that is on."""
        source, target = batch
        return (target_losses(model, source, target, self.smoothing).sum(),)

    def fewest_tokens(self, context_length: int) -> int:
        """The tokens of `FEWEST_ROWS`, or 8 contexts if that is more."""
        rows = -(-FEWEST_ROWS * self.validation_tokens // max(1, len(self.held_out)))
        return max(8 * context_length, rows * ANSWER_COST)

    def validate(self, model: EncoderDecoder, max_tokens: int) -> dict[str, float]:
        """Loss, exact match, chrF and BLEU of greedy answers to evenly spread rows; see `jumok.evaluation.seq2seq`."""
        most = max(1, max_tokens // ANSWER_COST * len(self.held_out) // self.validation_tokens)
        return self._figures(model, min(most, len(self.held_out)))

    def to_minimise(self, figures: Mapping[str, float]) -> float:
        """The share of tokens that are not the likeliest one, given the tokens before them.

        Answers go on improving for long after the held-out loss has begun to rise: the model becomes overconfident, but
        its likeliest tokens get better. The share is of all tokens, so it is less noisy than chrF of a few hundred
        greedy answers, and it needs no sacrebleu. Between equal shares the loss decides.
        """
        return 1 - figures["token_accuracy"] + TIE * figures["loss"]

    def final(self, model: EncoderDecoder, max_tokens: int) -> dict[str, float]:
        """Compute the figures of `validate`, and of always giving the most frequent answer of the training part."""
        return {**self.validate(model, max_tokens), "baseline_exact_match": self._commonest_share(self._coded)}

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The right tokens of the most frequent answer, or of the most frequent token if it is right more often.

        Exact matches compare with those of words only: a model that answers in sentences may have none.
        """
        if not self.held_out:
            return ()
        usual, targets = self._commonest, [pair.target for pair in self._coded]
        right = sum(int((target[: len(usual)] == usual[: len(target)]).sum()) for target in targets)
        name, words = message("always the most frequent answer"), message("right tokens {value:.3f}")
        token = int(np.bincount(np.concatenate(targets)).max())
        if token > right:
            right, name = token, message("always the most frequent token")
        share = right / sum(map(len, targets))
        error = error_of_share(share, len(targets))
        return (Baseline("token_accuracy", share, name, words, is_share=True, error=error),)

    @cached_property
    def _coded(self) -> list[CodedPair]:
        """The held-out pairs as ids."""
        return [encode_pair(self.tokenizer, self.model, pair) for pair in self.held_out]

    def final_reads(self, max_tokens: int) -> int:
        """The tokens of the pairs that are answered."""
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
        """The shares of exact answers and right tokens, chrF if sacrebleu is installed, and the loss."""
        chrf = f", chrF {figures['chrf']:.1f}" if "chrf" in figures else ""
        said = tr(
            "exact {exact:.1%}, tokens {tokens:.1%}{chrf}, loss {loss:.3f}",
            exact=figures["exact_match"],
            tokens=figures["token_accuracy"],
            chrf=chrf,
            loss=figures["loss"],
        )
        if "baseline_exact_match" not in figures:
            return said
        return said + tr(" (always the most frequent answer: exact {share:.1%})", share=figures["baseline_exact_match"])

    def sample(self, model: EncoderDecoder, tokens: int, seed: int) -> str:
        """A source, the answer to it, and the target."""
        tokenizer = require_answering(model)
        source, target = self._shown(seed)
        ids = encode_pair(tokenizer, model.config, (source, target)).source
        search = Search(max_tokens=min(tokens, model.config.context_length))
        answer = best(answer_ids(model, [ids], search)[0])
        return tr("source: {source}\nanswer: {answer}\ntarget: {target}", source=source, answer=answer, target=target)

    def example(self) -> str:
        """A source that fits into a line."""
        rows = range(len(self.held_out) or len(self.sources))
        return presentable(self._shown(row)[0] for row in rows)

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """The share of the pairs that are training pairs, and the exact match of the most frequent answer."""
        coded = [encode_pair(self.tokenizer, self.model, pair) for pair in whole_pairs(as_pairs(table_of(material)))]
        known = {hash((self.sources[i].tobytes(), self.targets[i].tobytes())) for i in range(len(self.sources))}
        seen = sum(hash((pair.source.tobytes(), pair.target.tobytes())) in known for pair in coded)
        return {
            "seen_in_training": seen / max(1, len(coded)),
            "baseline_exact_match": self._commonest_share(coded),
        }

    def _commonest_share(self, pairs: list[CodedPair]) -> float:
        """The share of some pairs whose target is the most frequent one of the training part."""
        usual = self._commonest
        return sum(np.array_equal(pair.target, usual) for pair in pairs) / max(1, len(pairs))

    @cached_property
    def _commonest(self) -> NDArray[np.int64]:
        """The ids of the most frequent target of the training part."""
        counts = Counter(self.targets[row].tobytes() for row in range(len(self.targets)))
        return np.frombuffer(max(counts, key=lambda target: counts[target]), dtype=self.targets[0].dtype)

    def _shown(self, row: int) -> Pair:
        """A held-out pair, or one of the training part if none are held out; row numbers wrap around."""
        if self.held_out:
            return self.held_out[row % len(self.held_out)]
        special = set(self.tokenizer.special_tokens.values())
        source, target = (
            self.tokenizer.decode([token for token in part[row % len(part)].tolist() if token not in special])
            for part in (self.sources, self.targets)
        )
        return source, target


def _has_sentences(material: Material) -> bool:
    """Return True if both the sources and the targets have `SENTENCE` words on average."""
    pairs, _ = material.parts(as_pairs)
    words = [sum(len(pair[side].split()) for pair in pairs) for side in range(len(COLUMNS))]
    return bool(pairs) and min(words) >= SENTENCE * len(pairs)


def _nothing_to_learn(material: Material) -> TextError:
    return TextError(
        "none of the {count:,} rows to train on has both a source and a target; fill the two "
        "columns, or give more rows.",
        count=len(table_of(material.source)) - len(material.drawn),
    )


def _tokens(pairs: list[CodedPair]) -> int:
    return sum(len(pair.source) + len(pair.target) for pair in pairs)
