"""Predict each next token of a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from jumok.config import LMConfig, TrainConfig
from jumok.corpora import stories
from jumok.data.batches import Batches
from jumok.data.ids import load_ids, tokenize
from jumok.errors import ConfigError, CorpusError, TextError
from jumok.evaluation.bigram import Bigram
from jumok.evaluation.language_model import encoded, per_character, score
from jumok.evaluation.overlap import PASSAGE, line_overlap, overlap
from jumok.inference.generate import generate
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT, token_losses
from jumok.models.special_ids import start_ids
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.text.boundaries import last_fresh_start
from jumok.tokenizers import Ids, LostText, Tokenizer, lost_text, train_tokenizer
from jumok.training.tasks.material import Material, presentable
from jumok.training.tasks.task import Baseline, Goal, Task

BIGRAM_TOKENS = 1 << 21  # evenly spread, of which the bigrams are counted at most
BPE_CHARACTERS = 1 << 25  # from which merges are learned at most
BPE_PIECE = 1 << 20  # of these
PIECE = 1 << 18  # tokens that are decoded at a time
CUT = 10  # characters of an opening without blanks
SHORTEST = 8  # context length that is worth advising
OPENING = 400  # tokens among which a line begins, mostly

NATS_PER_CHAR = message("{value:.3f} nats/char")


class LanguageModelling(Task[GPT]):
    """Predict each next token of a text."""

    config_type = LMConfig
    keys = frozenset(
        ["sources", "sha256", "val_sha256", "chars", "val_chars", "val_bytes", "floor", "train_tokens", "val_tokens"]
    )
    use = message("Generate text:")
    goal = Goal(figure="nats_per_char", unit=message("nats per character"))
    final_has_more_context = True
    loss_label = "nats/char"
    least_steps = 200
    predicts_next = True
    fixed_shapes = True

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        self.train = load_ids(folder.state / "train.npy", data["train_tokens"])
        self.val = load_ids(folder.state / "val.npy", data["val_tokens"])
        self.batches = Batches(self.train, model.context_length, config.batch_size, config.seed)
        self.val_chars, self.val_bytes = data["val_chars"], data["val_bytes"]
        self.floor, self.data, self.tokenizer = data["floor"], data, tokenizer
        self.lost = lost_of(data)
        if self.lost.too_much:  # figures per character would be too good
            self.floor, self.loss_label = None, "nats/token"
            _require_no_goal(config, self.lost)
        self.tokens_per_batch = config.batch_size * model.context_length
        self.validation_tokens = len(self.val)
        # Compiled, the output layer is fused with the loss, so that the logits are read once.
        self.token_losses: Callable[..., Tensor] = token_losses

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on the training part; bpe on a sample of a large one."""
        return train_tokenizer(_to_learn_from(_text(material.source), material.cut, kind), kind, **options)

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return no labels, also where the run begins with the parameters of a classifier."""
        return {"labels": ()}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write both parts as ids; see `Task.prepare`."""
        data = write_text(folder, material, tokenizer, model, config)
        train, val = (load_ids(folder.state / f"{part}.npy", data[f"{part}_tokens"]) for part in ("train", "val"))
        held_out, start, stop = held_out_part(material)
        return {
            **data,
            "val_bytes": sum(len(piece.encode()) for piece in held_out.chunks(start, stop)),
            "floor": _floor(held_out, start, stop),
            "baseline_nats_per_char": None if lost_of(data).too_much else _bigram_nats(train, val, tokenizer),
        }

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return inputs and targets, (B, T) each."""
        return self.batches.batch(number)

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of tokens."""
        return (batch[1].numel(),)

    def loss_sums(self, model: GPT, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Sum the cross-entropies of the tokens."""
        ids, targets = batch
        return (self.token_losses(model.hidden(ids), model.head.weight, targets).sum(),)

    def validate(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute nats per character and per token on windows that do not overlap: quick, and a little too high."""
        return self._figures(model, max_tokens, stride=model.config.context_length)

    def final(self, model: GPT, max_tokens: int) -> dict[str, float]:
        """Compute the figures with at least half a context before each token, as `jumok evaluate`, and of a bigram.

        It reads half of `max_tokens`: a window predicts half of its tokens. With a stride of a quarter, the figure of a
        whole text differed by 0.0005 nats per character, and a window predicted a quarter.
        """
        figures = self._figures(model, max_tokens // 2, stride=max(1, model.config.context_length // 2))
        baseline = self.data.get("baseline_nats_per_char")
        return figures if baseline is None else {**figures, "baseline_nats_per_char": baseline}

    def final_reads(self, max_tokens: int) -> int:
        """Return twice the tokens at most, because the windows overlap by half."""
        return min(2 * self.validation_tokens, max_tokens // 2)

    def _figures(self, model: GPT, max_tokens: int, stride: int) -> dict[str, float]:
        before = start_ids(model.config, require_tokenizer(model))
        limit = max(1, max_tokens // model.config.context_length)
        nats, tokens = score(model, self.val, stride=stride, max_windows=limit, before=before)
        per_token = nats / tokens
        of_tokens = {"loss_per_token": per_token, "perplexity": math.exp(min(per_token, 700.0)), "tokens": tokens}
        if self.lost.too_much:
            return {"loss": per_token, **of_tokens}
        per_char = per_character(per_token, len(self.val), self.val_chars, self.val_bytes)
        figures = {"loss": per_char["nats_per_char"], **per_char, **of_tokens}
        return figures if self.floor is None else {**figures, "floor": self.floor}

    @property
    def notices(self) -> tuple[str, ...]:
        """The messages about the material, and about what the tokenizer loses of it."""
        return (*super().notices, *lost_notice(self.data))

    @property
    def baselines(self) -> tuple[Baseline, ...]:
        """The nats per character of a bigram."""
        nats = self.data.get("baseline_nats_per_char")
        return () if nats is None else (Baseline("nats_per_char", nats, message("a bigram"), NATS_PER_CHAR),)

    def sample(self, model: GPT, tokens: int, seed: int) -> str:
        """Write a text without a prompt."""
        return generate(model, "", tokens=tokens, seed=seed)[0].text

    def headline(self, figures: Mapping[str, float]) -> str:
        """Return nats per character, the floor if it is known, and among the last figures those of a bigram.

        Nats per token where the tokenizer loses too much of the text.
        """
        if self.lost.too_much:
            return f"{figures['loss_per_token']:.3f} nats/token"
        beside = [tr("floor {value:.3f}", value=figures["floor"])] if "floor" in figures else []
        if "baseline_nats_per_char" in figures:
            beside.append(tr("bigram {value:.3f}", value=figures["baseline_nats_per_char"]))
        return f"{figures['nats_per_char']:.3f} nats/char" + (f" ({', '.join(beside)})" if beside else "")

    def example(self) -> str:
        """Return the first two words of a line."""
        return opening(self.val if len(self.val) else self.train, self.tokenizer, words=2)

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """Return the share in the training part, and the nats per character of a bigram; see `Task.comparison`."""
        with encoded(_text(material), self.tokenizer) as ids:
            whole = not lost_text(self.tokenizer, _text(material)).too_much
            baseline = _bigram_nats(self.train, ids, self.tokenizer) if whole else None
            seen = {"seen_in_training": overlap(self.train, ids, passage_of(self.data))}
        return seen if baseline is None else {**seen, "baseline_nats_per_char": baseline}


def held_out_part(material: Material) -> tuple[Text, int, int]:
    """Return the text that is held out, and the characters from which and to which."""
    text = _text(material.source)
    if material.held_out is None:
        return text, material.cut, text.chars
    held_out = _text(material.held_out)
    return held_out, 0, held_out.chars


def write_text(
    folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
) -> dict[str, Any]:
    """Write both parts of a text as ids; return what config.json records of any text. See `Task.prepare`."""
    text, cut = _text(material.source), material.cut
    held_out, start, stop = held_out_part(material)
    with folder.writing(tr("the text as ids"), needed=tokenizer.dtype.itemsize * (cut + stop - start)):
        train_ids = tokenize(text, tokenizer, folder.state / "train.npy", 0, cut, material.report)
        val_ids = tokenize(held_out, tokenizer, folder.state / "val.npy", start, stop)
    if len(train_ids) <= model.context_length:
        longest = len(train_ids) // 4
        shorter = tr(", or {--context-length {longest}}", longest=longest) if longest >= SHORTEST else ""
        raise TextError(
            "the text has {count:,} tokens to train on, and context_length={context_length} needs at least {least}; "
            "give more text{shorter}.",
            count=len(train_ids),
            context_length=model.context_length,
            least=model.context_length + 1,
            shorter=shorter,
        )
    if config.val > 0 and len(val_ids) == 0:
        raise TextError(
            "nothing is left to hold out: val={val:g} of {chars:,} characters; give more text, a "
            "larger {--val}, or {--val 0} to train without validation.",
            val=config.val,
            chars=text.chars,
        )
    lost = lost_text(tokenizer, held_out, start, stop)
    return {
        **material.identity(),
        "chars": text.chars,
        "val_chars": stop - start,
        "train_tokens": len(train_ids),
        "val_tokens": len(val_ids),
        "repeated": overlap(train_ids, val_ids, passage(cut, len(train_ids))),
        "repeated_lines": line_overlap(text.chunks(0, cut), held_out.chunks(start, stop)),
        "lost_chars": lost.lost,
        "lost_example": lost.example,
    }


def lost_of(data: Mapping[str, Any]) -> LostText:
    """Return what the tokenizer loses of the held-out part, as config.json describes it; nothing in older runs."""
    before, after = data.get("lost_example") or ("", "")
    return LostText(data.get("lost_chars") or 0, data["val_chars"], (before, after))


def lost_notice(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Tell what the tokenizer loses of the held-out part, in words; nothing where it loses nothing."""
    lost = lost_of(data)
    if not lost.lost:
        return ()
    if not lost.too_much:
        return (lost.describe(),)
    meaning = tr(
        "The model need not predict what is lost, so the figures of this run are per token, and do not compare with "
        "those of other tokenizers."
    )
    return (f"{lost.describe()} {meaning}",)


def _require_no_goal(config: TrainConfig, lost: LostText) -> None:
    """Raise ConfigError for a loss per character at which a run shall stop, if its tokenizer makes that too good."""
    if config.stop_at is not None:
        raise ConfigError(
            "stop_at={stop_at:g} is a loss per character. {lost} The model need not predict what is lost, so it would "
            "reach that too early. Leave {--stop-at} out, or train with a tokenizer that loses nothing: "
            "{--tokenizer bpe}.",
            stop_at=config.stop_at,
            lost=lost.describe(),
        )


def passage(chars: int, tokens: int) -> int:
    """Return the tokens of a passage whose copies are counted, in a text of so many characters and tokens."""
    return max(1, round(PASSAGE * tokens / max(1, chars)))


def passage_of(data: Mapping[str, Any]) -> int:
    """Return the tokens of such a passage in the training part that config.json describes."""
    chars = data["chars"] if data["val_sha256"] else data["chars"] - data["val_chars"]
    return passage(chars, data["train_tokens"])


def opening(ids: Ids, tokenizer: Tokenizer, words: int) -> str:
    """The first words of a line, the second one where there are several; "" if they are not presentable.

    Of words that are long, as where no blanks are written between them, the first characters.
    """
    text = tokenizer.decode(ids[:OPENING])
    line = text.partition("\n")[2].split() or text.split()[1:]
    found = " ".join(line[:words])
    return presentable([found, found[: last_fresh_start(found[: CUT + 1])]])


def _to_learn_from(text: Text, cut: int, kind: str) -> Iterator[str]:
    """The training part; for bpe, whose memory grows with the number of different words, evenly spread pieces of it."""
    count = BPE_CHARACTERS // BPE_PIECE
    if kind != "bpe" or cut <= BPE_CHARACTERS:
        return text.chunks(0, cut)
    return (text.read(at, at + BPE_PIECE) for at in (i * (cut - BPE_PIECE) // (count - 1) for i in range(count)))


def _text(source: object) -> Text:
    assert isinstance(source, Text)  # `material` has checked it
    return source


def _bigram_nats(learned: Ids, asked: Ids, tokenizer: Tokenizer) -> float | None:
    """Nats per character of a bigram; None where nothing is asked, or the ids do not give back the text."""
    if len(asked) == 0 or tokenizer.bytes_of([]) is None:
        return None
    return Bigram(_characters(learned, tokenizer)).nats_per_char(_characters(asked, tokenizer))


def _characters(ids: Ids, tokenizer: Tokenizer) -> Iterator[str]:
    """The text of ids, in pieces; evenly spread pieces of a long text."""
    step = PIECE * -(-len(ids) // BIGRAM_TOKENS)
    return (tokenizer.decode(ids[at : at + PIECE]) for at in range(0, len(ids), step))


def _floor(text: Text, start: int, stop: int) -> float | None:
    """The least nats per character that any model can reach, known for the built-in stories only."""
    try:
        stories.floor(text.read(start, min(stop, start + 2_000)))  # fails quickly for other texts
        return stories.floor(text.read(start, min(stop, start + 200_000)))
    except CorpusError:
        return None
