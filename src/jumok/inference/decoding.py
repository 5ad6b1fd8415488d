"""The decoding loop: ids in, ids out.

Each step takes the logits of the next token (`jumok.inference.logits`) and chooses an id (`jumok.inference.sampling`).
"""

from __future__ import annotations

import secrets
from collections.abc import Generator, Sequence

import numpy as np
import torch
from torch import Tensor

from jumok.inference.logits import GrowingTexts
from jumok.inference.matrices import Quantization
from jumok.inference.sampling import Sampling, drawn, filtered
from jumok.models.checks import finite_rows, not_finite
from jumok.models.gpt import GPT
from jumok.models.modes import parts_in_eval_mode


def generate_ids(
    model: GPT,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    seed: int | None = None,
    cache: bool = True,
    quantize: Quantization | None = None,
) -> Generator[int]:
    """Continue the ids of a prompt without an end: yield the next id, step by step.

    Raises:
        JumokError: the logits are not finite.
        ConfigError: quantised matrices where the model cannot be packed.
    """
    text = Decoding(model, [prompt], sampling, seed=seed, cache=cache, quantize=quantize)
    while True:
        [token] = text.step()
        if token is None:
            raise not_finite()
        yield token


class Decoding:
    """The decoding loop: prompts of any lengths that a model continues side by side, each with its samples.

    Each text gets the random numbers that it would get alone. Ids that only the model has, not its tokenizer, are never
    drawn. The model is in eval mode during a step.

    Args:
        samples: of each prompt. The others: as `generate_ids`.

    Attributes:
        rows: the numbers of the texts that are not finished: the samples of the first prompt, of the second one, ...

    Raises:
        ConfigError: quantised matrices where the model cannot be packed.
    """

    def __init__(
        self,
        model: GPT,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int | None = None,
        cache: bool = True,
        quantize: Quantization | None = None,
    ) -> None:
        seeds = [secrets.randbits(63) if seed is None else seed for _ in prompts]
        # One generator for each sample, one number for each token, whatever the device or the size of the vocabulary.
        self._random = [
            np.random.Generator(np.random.PCG64((one, sample))) for one in seeds for sample in range(samples)
        ]
        self.rows = list(range(len(self._random)))
        self._parts, self._sampling = list(model.modules()), sampling
        self._known = model.tokenizer.vocab_size if model.tokenizer is not None else model.config.vocab_size
        texts = [ids for ids in prompts for _ in range(samples)]
        self._texts = GrowingTexts(model, texts, cache=cache, quantize=quantize)
        self._new: list[int | None] = []  # ids of the last step
        self._seen: Tensor | None = None
        if sampling.repetition_penalty != 1:
            self._seen = torch.zeros(len(self.rows), self._known, dtype=torch.bool)  # (B, V)
            for row, ids in enumerate(self._texts.ids):
                self._seen[row, ids] = True

    @torch.inference_mode()
    def step(self) -> list[int | None]:
        """The next id of each text, or None where its logits are not finite; `keep` must then drop it.

        Raises:
            JumokError: such a text was kept.
        """
        if self._new:
            ids = [token for token in self._new if token is not None]
            if len(ids) < len(self._new):
                raise not_finite()
            self._texts.append(ids)
        with parts_in_eval_mode(self._parts):
            # On the CPU from here: the draw needs float64, which some devices do not have.
            logits = self._texts.next_logits()[:, : self._known].cpu()  # (B, V)
        finite = finite_rows(logits)  # (B,)
        logits = filtered(logits, self._sampling, self._seen)  # (B, V)
        if self._sampling.temperature == 0:
            new = logits.argmax(dim=-1, keepdim=True)  # (B, 1)
        else:
            new = drawn(logits, torch.tensor([[r.random()] for r in self._random], dtype=torch.float64))
        if self._seen is not None:
            self._seen.scatter_(1, new.masked_fill(~finite[:, None], 0), True)
        fine = finite.tolist()
        self._new = [token if ok else None for token, ok in zip(new[:, 0].tolist(), fine, strict=True)]
        return self._new

    def keep(self, places: Sequence[int]) -> None:
        """Drop all but these of `rows`, one or more, given by their places in it, rising."""
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        self._random = [self._random[place] for place in places]
        self._new = [self._new[place] for place in places]
        self._texts.select(places)
        if self._seen is not None:
            self._seen = self._seen[places]
