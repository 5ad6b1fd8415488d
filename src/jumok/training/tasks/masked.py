"""Masked language modelling: predict masked tokens of a text from the tokens on both sides.

As in BERT (https://arxiv.org/abs/1810.04805, section 3.1), 15% of the tokens of a window are chosen by default; of
these 80% are replaced by [MASK], 10% by a random ordinary token, and 10% are kept. Because of the last two the model
cannot trust the tokens that it reads, nor predict at [MASK] alone. The masks are dynamic
(https://arxiv.org/abs/1907.11692, section 4.1): drawn for each batch, from the seed and the number of the batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.config import BERTConfig, MLMConfig, TrainConfig
from jumok.data.batches import Batches
from jumok.data.ids import load_ids
from jumok.data.random_streams import Purpose, random_for
from jumok.evaluation.language_model import encoded
from jumok.evaluation.masked import at_places, evaluate_masked_ids, masked_batch, token_losses
from jumok.evaluation.masking import NOTHING, Masking
from jumok.evaluation.overlap import overlap
from jumok.inference.fill_mask import fill_ids, mask_token
from jumok.messages import message, tr
from jumok.models import ModelConfig
from jumok.models.bert import BERT
from jumok.models.losses import IGNORED
from jumok.models.special_ids import SPECIAL_TOKENS, Framing, pad_id
from jumok.runs.folder import RunFolder
from jumok.text import Table, Text
from jumok.tokenizers import Ids, Tokenizer
from jumok.training.tasks.language_modelling import LanguageModelling, lost_notice, opening, passage_of, write_text
from jumok.training.tasks.material import Material
from jumok.training.tasks.task import Baseline, Goal, Task

COUNTED = 1 << 20  # ids that are counted at a time


class MaskedLanguageModelling(Task[BERT]):
    """Predict masked tokens of a text."""

    config_type = MLMConfig
    keys = frozenset(["sources", "sha256", "val_sha256", "chars", "val_chars", "train_tokens", "val_tokens"])
    use = message("Fill in masked tokens:")
    goal = Goal(figure="nats_per_hidden_token", unit=message("nats per masked token"))
    loss_label = "nats/masked token"
    fixed_shapes = True

    def __init__(
        self, folder: RunFolder, data: Mapping[str, Any], tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> None:
        assert isinstance(model, BERTConfig)
        assert isinstance(config.task, MLMConfig)
        self.train = load_ids(folder.state / "train.npy", data["train_tokens"])
        self.val = load_ids(folder.state / "val.npy", data["val_tokens"])
        self.framing = Framing.of(model, tokenizer)
        self.masking = Masking(tokenizer, config.task.mask_rate)
        self.tokenizer, self.seed, self.data = tokenizer, config.seed, data
        self.batches = Batches(self.train, self.framing.room, config.batch_size, config.seed)
        self.tokens_per_batch = config.batch_size * self.framing.room
        self.validation_tokens = len(self.val)
        # Compiled, the head is fused with the loss, so that the logits are read once.
        self.token_losses: Callable[..., Tensor] = token_losses

    @classmethod
    def make_tokenizer(cls, material: Material, kind: str, options: Mapping[str, Any]) -> Tokenizer:
        """Train a tokenizer on the training part, with the special tokens of BERT."""
        return LanguageModelling.make_tokenizer(material, kind, {**options, "special_tokens": SPECIAL_TOKENS})

    @classmethod
    def derived_fields(
        cls, material: Material, tokenizer: Tokenizer, inherited: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the head, no labels, and the id of the padding."""
        mask_token(tokenizer)  # raises if there is none
        return {"head": "mlm", "labels": (), "pad_id": pad_id(tokenizer)}

    @classmethod
    def prepare(
        cls, folder: RunFolder, material: Material, tokenizer: Tokenizer, model: ModelConfig, config: TrainConfig
    ) -> dict[str, Any]:
        """Write both parts as ids, as for a language model; see `Task.prepare`."""
        return write_text(folder, material, tokenizer, model, config)

    @property
    def notices(self) -> tuple[str, ...]:
        """The messages about the material, and about what the tokenizer loses of it."""
        return (*super().notices, *lost_notice(self.data))

    def batch(self, number: int) -> tuple[Tensor, ...]:
        """Return ids (B, T) with [CLS] and [SEP], places (B, M) of the tokens to predict, targets (B, M) or IGNORED."""
        block = self.batches.batch(number)[0].numpy()  # (B, W)
        random = random_for(Purpose.MASKS, self.seed, number)
        places = self.masking.choose(block, random)
        return masked_batch(self.framing, block, self.masking.corrupted(block, places, random), places)

    def counts(self, batch: tuple[Tensor, ...]) -> tuple[int, ...]:
        """Return the number of masked tokens."""
        return (int((batch[2] != IGNORED).sum()),)

    def loss_sums(self, model: BERT, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Sum the cross-entropies of the masked tokens."""
        ids, places, targets = batch
        return (self.token_losses(model, at_places(model(ids), places), targets).sum(),)

    def validate(self, model: BERT, max_tokens: int) -> dict[str, float]:
        """Compute nats per masked token, and how many are found, on windows that do not overlap.

        All chosen tokens are replaced by [MASK], and always the same ones are, whatever the seed of the training.
        """
        limit = max(1, max_tokens // self.framing.room)
        found = evaluate_masked_ids(model, self.val, self.masking, self.framing, limit)
        return {"loss": found.nats_per_hidden_token, **dataclasses.asdict(found)}

    def final(self, model: BERT, max_tokens: int) -> dict[str, float]:
        """Compute the figures of `validate`, and those of predicting by the frequencies of the tokens."""
        return self.validate(model, max_tokens) | self._baseline(self.val)

    def headline(self, figures: Mapping[str, float]) -> str:
        """Return nats per masked token, and the accuracy."""
        said = tr(
            "masked {loss:.2f} nats/token, {share:.1%} right",
            loss=figures["nats_per_hidden_token"],
            share=figures["accuracy"],
        )
        if "baseline_accuracy" not in figures:
            return said
        return said + tr(
            " (by frequency {loss:.2f}, {share:.1%})",
            loss=figures["baseline_nats_per_hidden_token"],
            share=figures["baseline_accuracy"],
        )

    @cached_property
    def baselines(self) -> tuple[Baseline, ...]:
        """The nats per masked token of the frequencies of the tokens."""
        if not len(self.val):
            return ()
        nats = self._baseline(self.val)["baseline_nats_per_hidden_token"]
        words = message("{value:.3f} nats per masked token")
        return (Baseline("nats_per_hidden_token", nats, message("the frequencies of the tokens"), words),)

    def sample(self, model: BERT, tokens: int, seed: int) -> str:
        """A passage with masked tokens, as the model fills it (→), and the original (=)."""
        source = self.val if len(self.val) else self.train
        width = min(tokens, self.framing.room, len(source))
        start = int(random_for(Purpose.SAMPLE, seed, 0).integers(len(source) - width + 1))
        block = source[start : start + width].astype(np.int64)[None]  # (1, W)
        places = self.masking.choose(block, random_for(Purpose.SAMPLE, seed, start))
        chosen = places[places != NOTHING].tolist()
        hidden = self.masking.masked(block, places)[0]
        allowed = torch.from_numpy(self.masking.ordinary).expand(len(chosen), -1)  # (N, V)
        filled, _ = fill_ids(model, hidden.tolist(), chosen, allowed) if chosen else (hidden, [])
        lines = (self.tokenizer.decode(ids) for ids in (hidden, filled, block[0]))
        return "\n".join(f"{mark}{line}" for mark, line in zip(("", "→ ", "= "), lines, strict=True))

    def example(self) -> str:
        """Four words with a token in the middle hidden, but not one that is a part of a character."""
        ids = self.tokenizer.encode(opening(self.val if len(self.val) else self.train, self.tokenizer, words=4))
        mask = mask_token(self.tokenizer)
        for at in sorted(range(len(ids)), key=lambda at: abs(at - len(ids) // 2)):
            token = self.tokenizer.decode(ids[at : at + 1])
            after = self.tokenizer.decode(ids[at:])[len(token) :]  # alone, it could lose the space before it
            prompt = f"{self.tokenizer.decode(ids[:at])}{mask}{after}"
            if "\ufffd" not in token + prompt:
                return prompt
        return ""

    def comparison(self, material: Text | Table) -> dict[str, float]:
        """The share in the training part, and the figures of the baseline; see `Task.comparison`."""
        assert isinstance(material, Text)
        with encoded(material, self.tokenizer) as ids:
            seen = {"seen_in_training": overlap(self.train, ids, passage_of(self.data))}
            return seen | self._baseline(ids)

    def _baseline(self, ids: Ids) -> dict[str, float]:
        """The figures of predicting by the frequencies of the training part, with add-one smoothing."""
        allowed = self.masking.ordinary  # (V,)
        learned, asked = (_counts(part, len(allowed)) * allowed for part in (self.train, ids))  # (V,)
        shares = (learned + 1) / (learned + 1)[allowed].sum()
        total = max(1, int(asked.sum()))
        return {
            "baseline_nats_per_hidden_token": float(-(asked * np.log(shares)).sum() / total),
            "baseline_accuracy": float(asked[learned.argmax()] / total),
        }


def _counts(ids: Ids, size: int) -> NDArray[np.int64]:
    """How often each id occurs, (size,), in blocks: bincount makes int64 of all that it is given."""
    counts = np.zeros(size, np.int64)
    for start in range(0, len(ids), COUNTED):
        counts += np.bincount(ids[start : start + COUNTED], minlength=size)
    return counts
