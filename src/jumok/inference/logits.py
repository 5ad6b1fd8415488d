"""The logits of the next token of texts that grow side by side, a token at a time.

`GrowingTexts` uses `PackedGPT` where it can, and the model itself where it has hooks, or is something else than a plain
GPT on a CPU.

The model sees the last ids only as far as its context reaches. That window is a function of their number alone
(`window_start`), so generation with and without a cache of keys and values gives the same logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.errors import ConfigError
from jumok.inference.matrices import Quantization
from jumok.inference.packed import PackedGPT, can_pack, hooks_of
from jumok.models.gpt import GPT
from jumok.nn.cache import KVCache


def window_start(length: int, context: int) -> int:
    """Where the window begins that a model sees of `length` ids.

    0 while all of them fit; then it moves on by half a context at a time, because after each move the cache has to be
    filled again. So at least half a context is always in view.
    """
    stride = max(1, context // 2)
    return -(-max(0, length - context) // stride) * stride


def next_logits(model: GPT, ids: Tensor, cache: KVCache | None = None) -> Tensor:
    """Logits of the id after `ids`, as far back as the window reaches, by the model itself.

    Args:
        ids: (B, n), at least one id each, and any number of them.
        cache: used for all calls of one text as it grows by an id at a time, and for no other text.

    Returns:
        (B, V), float32 or better.
    """
    length = ids.shape[1]
    start = window_start(length, model.config.context_length)
    if cache is not None and cache.length == length - 1 - start:
        start = length - 1  # the cache has all but the newest
    elif cache is not None:
        cache.clear()
    logits: Tensor = model.head(model.hidden(ids[:, start:], cache)[:, -1])  # (B, V)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class GrowingTexts:
    """Texts that grow side by side, each by an id at a time.

    Args:
        model: in eval mode as long as this is used.
        prompts: the ids of each text, at least one; they need not be equally long.
        cache: keep keys and values of past tokens; without it the result is the same, and takes longer.
        quantize: "int8" for rounded matrices, see `PackedGPT`.

    Raises:
        ConfigError: quantised matrices were asked for where the model cannot be packed.
    """

    def __init__(
        self, model: GPT, prompts: Sequence[Sequence[int]], *, cache: bool = True, quantize: Quantization | None = None
    ) -> None:
        self.ids = [list(prompt) for prompt in prompts]
        self._model, self._hooks = model, hooks_of(model)
        self._fast = _PackedTexts(model, self.ids, quantize) if cache and can_pack(model) else None
        self._plain = None if self._fast else _ModelTexts(model, self.ids, cache)
        if quantize is not None and self._fast is None:
            raise ConfigError(
                "quantize={quantize!r} is for a plain GPT in float32 on the CPU, with a cache and without "
                "hooks; leave it out, or move the model there: model.float().cpu().",
                quantize=quantize,
            )

    @torch.inference_mode()
    def next_logits(self) -> Tensor:
        """Logits of the id after each text: (B, V), float32 or better."""
        if self._plain is not None:
            return self._plain.next_logits()
        assert self._fast is not None
        if any(self._hooks):  # set since the last step: the hooks see a whole window
            self._fast.forget()
            return _ModelTexts(self._model, self.ids, cache=False).next_logits()
        return self._fast.next_logits()

    def append(self, ids: Sequence[int]) -> None:
        """Let each text grow by an id."""
        for text, new in zip(self.ids, ids, strict=True):
            text.append(new)
        if self._plain is not None:
            self._plain.append(ids)

    @torch.inference_mode()
    def select(self, rows: Sequence[int]) -> None:
        """Go on with these texts alone, one or more, by their places in `ids`, rising."""
        self.ids = [self.ids[row] for row in rows]
        if self._fast is not None:
            self._fast.select(rows, self.ids)
        else:
            assert self._plain is not None
            self._plain.select(rows)


class _ModelTexts:
    """Texts that the model itself reads, those of equal length in one batch."""

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], cache: bool) -> None:
        lengths = sorted({len(text) for text in texts})
        self._groups = [[row for row, text in enumerate(texts) if len(text) == length] for length in lengths]
        self._model = model
        self._device = model.token_embedding.weight.device
        self._ids = [torch.tensor([texts[row] for row in group], device=self._device) for group in self._groups]
        self._caches = [model.new_cache(len(group)) if cache else None for group in self._groups]

    def next_logits(self) -> Tensor:
        parts = [next_logits(self._model, ids, cache) for ids, cache in zip(self._ids, self._caches, strict=True)]
        order = torch.tensor([row for group in self._groups for row in group], device=self._device).argsort()  # (B,)
        return torch.cat(parts)[order]  # (B, V)

    def append(self, ids: Sequence[int]) -> None:
        new = torch.tensor(ids, device=self._device)
        self._ids = [
            torch.cat((old, new[group, None]), dim=1) for old, group in zip(self._ids, self._groups, strict=True)
        ]

    def select(self, rows: Sequence[int]) -> None:
        places = {row: place for place, row in enumerate(rows)}
        left = []
        for group, ids, cache in zip(self._groups, self._ids, self._caches, strict=True):
            kept = [number for number, row in enumerate(group) if row in places]
            if not kept:
                continue
            chosen = torch.tensor(kept, device=self._device)
            if cache is not None:
                cache.select(chosen)
            left.append(([places[group[number]] for number in kept], ids[chosen], cache))
        self._groups, self._ids, self._caches = map(list, zip(*left, strict=True))


class _PackedTexts:
    """Texts that a `PackedGPT` reads. The model itself fills the cache with all but the newest token of each window."""

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]], quantize: Quantization | None) -> None:
        self._model, self._texts = model, texts
        self._packed = PackedGPT(model, len(texts), quantize)
        self._cache = model.new_cache(len(texts))
        self._held = [-1] * len(texts)  # positions of each text in the cache
        self._equal = len({len(text) for text in texts}) == 1

    def select(self, rows: Sequence[int], texts: Sequence[Sequence[int]]) -> None:
        """Go on with these rows alone, whose texts are given."""
        self._texts, self._held = texts, [self._held[row] for row in rows]
        self._cache.select(torch.tensor(rows))
        self._packed = self._packed.for_batch(len(rows))

    def forget(self) -> None:
        """Let the next step fill the cache anew."""
        self._held = [-1] * len(self._texts)

    def next_logits(self) -> Tensor:
        with torch.autocast("cpu", enabled=False):  # casting all matrices for each token would cost more than it saves
            return self._next_logits()

    def _next_logits(self) -> Tensor:
        context = self._model.config.context_length
        starts = [window_start(len(text), context) for text in self._texts]
        before = [len(text) - 1 - start for text, start in zip(self._texts, starts, strict=True)]
        if moved := [row for row, held in enumerate(self._held) if held != before[row]]:
            self._fill(moved, [tuple(self._texts[row][starts[row] : -1]) for row in moved])
        newest = torch.tensor([text[-1] for text in self._texts])
        self._held = [held + 1 for held in before]
        return self._packed.logits(newest, self._cache, None if self._equal else torch.tensor(before))

    def _fill(self, rows: list[int], windows: list[tuple[int, ...]]) -> None:
        """Write windows into rows of the cache in one pass; equal windows are computed once.

        The shorter ones are padded at their ends: no token attends to a later one, and `PackedGPT` masks the padding.
        """
        different = list(dict.fromkeys(windows))
        longest = max(map(len, different))
        fresh = self._model.new_cache(len(different))
        if longest:
            padded = [[*window, *[0] * (longest - len(window))] for window in different]
            self._model.hidden(torch.tensor(padded), fresh)
        chosen = torch.tensor([different.index(window) for window in windows])
        for layer, filled in zip(self._cache.layers, fresh.layers, strict=True):
            layer.replace(torch.tensor(rows), filled, chosen)
