"""Which ids may come next in a text: the rules of a model, and of a request.

A model has forced first and last ids, ids that end a text or pad a batch, and perhaps `GenerationRules` of a published
model; a request may forbid sequences of ids that occur twice. The rules and their order are those of `transformers`:
probabilities of the allowed ids do not sum to one, and a forced id costs nothing. An id that pads is never generated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from jumok.config import EncoderDecoderConfig, GenerationRules, GPTConfig
from jumok.inference.sampling import Numbers
from jumok.tokenizers import Tokenizer


class NextIdRules:
    """The rules of one text, or of texts that begin with as many ids.

    Args:
        config, tokenizer: of the model; without a tokenizer a model can generate all of its ids.
        prompt: how many ids the text begins with. tokens: the most that are generated after them.
        no_repeat_ngram: no sequence of so many ids occurs twice; 0 is off.
    """

    def __init__(
        self,
        config: GPTConfig | EncoderDecoderConfig,
        tokenizer: Tokenizer | None,
        *,
        prompt: int,
        tokens: int,
        no_repeat_ngram: int = 0,
    ) -> None:
        rules = config.generation or GenerationRules()
        self._first = self._last = None
        ends: tuple[int | None, ...]
        if isinstance(config, EncoderDecoderConfig):
            ends, self._first, self._last = (config.eos_id,), config.forced_bos_id, config.forced_eos_id
        else:
            ends = config.eos_ids
        known = config.vocab_size if tokenizer is None else tokenizer.vocab_size

        def within(ids: Iterable[int | None]) -> NDArray[np.int64]:
            return np.array(sorted({i for i in ids if i is not None and i < known}), np.int64)

        self._ends = within(ends)
        self._prompt, self._last_length, self._n = prompt, prompt + tokens - 1, no_repeat_ngram
        self._shortest = max(rules.min_length, prompt + rules.min_new_tokens if rules.min_new_tokens else 0)
        words = [word for word in rules.bad_words_ids if max(word) < known and word not in [(end,) for end in ends]]
        padding = {config.pad_id, None if tokenizer is None else tokenizer.id_of("pad_token")} - set(ends)
        self._never = within([*padding, *(word[0] for word in words if len(word) == 1)])
        self._words = [word for word in words if len(word) > 1]
        self._suppressed, self._not_first = within(rules.suppress_tokens), within(rules.begin_suppress_tokens)
        # As in `transformers`: a forced first id is followed by the one that counts as the first.
        self._first_length = prompt + (prompt == 1 and self._first is not None)

    def __bool__(self) -> bool:
        """Return whether there is any rule."""
        forced = self._first is not None or self._last is not None
        some = any(len(ids) for ids in (self._never, self._words, self._suppressed, self._not_first))
        return bool(forced or some or self._n or (self._shortest and len(self._ends)))

    def __call__(self, values: Numbers, ids: Sequence[int]) -> Numbers:
        """Return logits or log-probabilities of the id after `ids`, -inf where a rule forbids it: (V,) -> (V,)."""
        return self.apply(values[None], [ids])[0]

    def apply(self, values: Numbers, texts: Sequence[Sequence[int]]) -> Numbers:
        """Return the same for several texts of one length, of T ids each: (B, V) -> (B, V)."""
        length = len(texts[0])
        forced = self._first if length == 1 else None
        if length == self._last_length and self._last is not None:
            forced = self._last
        if forced is not None:
            values = np.full_like(values, -math.inf)
            values[:, forced] = 0.0
        else:
            values = values.copy()
            if self._n:
                forbid_repeats(values, np.array(texts), self._n, self._ends.tolist())
            values[:, self._never] = -math.inf
            for word in self._words:
                rows = [row for row, ids in enumerate(texts) if tuple(ids[1 - len(word) :]) == word[:-1]]
                values[rows, word[-1]] = -math.inf
            if length < self._shortest:
                values[:, self._ends] = -math.inf
        values[:, self._suppressed] = -math.inf
        if length == self._first_length:
            values[:, self._not_first] = -math.inf
        return values


def forbid_repeats(values: Numbers, ids: NDArray[np.int64], n: int, ends: Sequence[int] = ()) -> None:
    """Forbid, in place, each id with which `n` ids would occur in a row for the second time.

    Args:
        values: (B, V), of the id after ids, (B, T). ends: are never forbidden, so that something can always come.
    """
    if n == 0 or ids.shape[1] < n:
        return
    grams = np.lib.stride_tricks.sliding_window_view(ids, n, axis=1)  # (B, T-n+1, n)
    newest = ids[:, ids.shape[1] - n + 1 :]  # (B, n-1)
    rows, places = np.nonzero((grams[:, :, :-1] == newest[:, None]).all(axis=-1))
    found = grams[rows, places, -1]
    allowed = (found < values.shape[1]) & ~np.isin(found, list(ends))
    values[rows[allowed], found[allowed]] = -math.inf
