"""Slots that PyTorch reads: texts of different lengths side by side, with a cache of a row for each, or without one.

The model itself computes them, in eval mode meanwhile. `AnswerSlots` is for an encoder–decoder.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from jumok.inference.slots import Chunk
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.modes import eval_mode, parts_in_eval_mode
from jumok.nn.blocks import Block
from jumok.nn.cache import EncoderDecoderCache, RaggedCache

Hidden = Callable[[int, Sequence[int], Sequence[Sequence[int]]], Tensor]

LONGEST_CHUNK = 256  # ids; more would hold up the other texts; measured: 512 are read 1.1 times as fast


class CacheRows:
    """Which row of some caches each slot has. Rows are exchanged so that those that are read are the first ones."""

    def __init__(self, slots: int, *caches: RaggedCache) -> None:
        self._caches = caches
        self._slots: list[int | None] = [None] * slots  # by row
        self._rows: dict[int, int] = {}  # by slot

    def of(self, slot: int) -> int:
        """Return the row of a slot, a free one if it has none yet."""
        if slot not in self._rows:
            self._rows[slot] = self._slots.index(None)
            self._slots[self._rows[slot]] = slot
        return self._rows[slot]

    def to_front(self, slots: Sequence[int]) -> list[int]:
        """Give these slots the first rows, in any order; the row of each."""
        wanted = set(slots)
        outside = [slot for slot in slots if self.of(slot) >= len(slots)]
        for row in range(len(slots)):
            if (other := self._slots[row]) not in wanted:
                slot = outside.pop()
                mine = self._rows[slot]
                for cache in self._caches:
                    cache.swap(row, mine)
                self._slots[row], self._slots[mine], self._rows[slot] = slot, other, row
                if other is not None:
                    self._rows[other] = mine
        return [self._rows[slot] for slot in slots]

    def forget(self, slot: int) -> None:
        """Let another slot take the row of this one; what is read into it begins at its start."""
        if slot in self._rows:
            self._slots[self._rows.pop(slot)] = None


class WindowSlots:
    """Slots without a cache: the model reads the whole text of each slot every time, texts of one length in one batch.

    Args:
        model: any GPT. slots: their number.
    """

    longest = sys.maxsize
    caches = False

    def __init__(self, model: GPT, slots: int) -> None:
        self._model, self._device = model, model.token_embedding.weight.device
        self._parts = list(model.modules())
        self._texts: list[list[int]] = [[] for _ in range(slots)]

    @torch.inference_mode()
    def read(self, chunks: Sequence[Chunk]) -> NDArray[Any]:
        """See `Slots`."""
        for slot, start, ids in chunks:
            self._texts[slot][start:] = ids
        groups: dict[int, list[int]] = {}  # places in `chunks`, by the length of the text
        for place, chunk in enumerate(chunks):
            groups.setdefault(len(self._texts[chunk.slot]), []).append(place)
        parts = []
        with parts_in_eval_mode(self._parts):
            for places in groups.values():
                same = [self._texts[chunks[place].slot] for place in places]
                texts = torch.tensor(same, device=self._device)  # (n, T)
                parts.append(self._model.head(self._model.hidden(texts)[:, -1]))  # (n, V)
        return _in_order(torch.cat(parts), _inverse([place for places in groups.values() for place in places]))

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`."""
        self._texts[target] = self._texts[source][:length]

    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self._texts[slot].clear()


class TorchSlots:
    """Slots of a GPT with a cache.

    Args:
        model: a GPT of jumok's own parts. slots: their number.
    """

    longest = LONGEST_CHUNK
    caches = True

    def __init__(self, model: GPT, slots: int) -> None:
        self._model, self._device = model, model.token_embedding.weight.device
        self._parts = list(model.modules())
        self._cache = RaggedCache(model.new_cache(0), slots)
        self._rows = CacheRows(slots, self._cache)

    @torch.inference_mode()
    def read(self, chunks: Sequence[Chunk]) -> NDArray[Any]:
        """See `Slots`."""
        # Autocast would cast all matrices for each token, which costs more than it saves.
        with parts_in_eval_mode(self._parts), torch.autocast(self._device.type, enabled=False):
            return _in_order(self._model.head(_side_by_side(chunks, self._rows, self._hidden)))

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`."""
        self._cache.copy(self._rows.of(source), self._rows.of(target), length)

    @torch.inference_mode()
    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self._rows.forget(slot)

    def _hidden(self, row: int, starts: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Let the model read ids into neighbouring rows; its last hidden states, (B, C)."""
        cache = self._cache.view(row, starts, len(ids[0]))
        return self._model.hidden(torch.tensor(ids, device=self._device), cache)[:, -1]


class AnswerSlots:
    """Slots of an encoder–decoder: the keys and values of a source and of the target that is written for it.

    Args:
        model: any. slots: their number.
    """

    caches = True

    def __init__(self, model: EncoderDecoder, slots: int) -> None:
        self.longest = model.config.context_length
        self._parts = list(model.modules())
        self._model, self._device = model, model.token_embedding.weight.device
        like = model.new_cache(0)
        self._target, self._source = RaggedCache(like.target, slots), RaggedCache(like.source, slots)
        self._rows = CacheRows(slots, self._target, self._source)
        self._begun: dict[int, tuple[int, ...]] = {}  # sources that are not encoded yet
        # In the place of the hidden states of sources, whose keys and values are in the cache.
        self._encoded = model.token_embedding.weight.new_zeros(1, 1, 1)

    @torch.inference_mode()
    def begin(self, slot: int, source: Sequence[int]) -> None:
        """Let a slot hold a source, of 1 to context_length ids, and no target."""
        self.forget(slot)
        self._begun[slot] = tuple(source)

    @torch.inference_mode()
    def read(self, chunks: Sequence[Chunk]) -> NDArray[Any]:
        """See `Slots`; the ids are those of the target."""
        self._encode()
        with parts_in_eval_mode(self._parts):
            return _in_order(self._model.logits(_side_by_side(chunks, self._rows, self._hidden)))

    @torch.inference_mode()
    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`; the source is copied too."""
        self._encode()
        one, other = self._rows.of(source), self._rows.of(target)
        self._target.copy(one, other, length)
        self._source.copy(one, other, self._source.lengths[one])

    @torch.inference_mode()
    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self._begun.pop(slot, None)
        self._rows.forget(slot)

    def _encode(self) -> None:
        """Encode the sources that are new, in one batch, and keep the keys and values of cross-attention."""
        if not self._begun:
            return
        begun, self._begun = self._begun, {}
        sources = list(dict.fromkeys(begun.values()))  # what several slots begin with is encoded once
        lengths = [len(source) for source in sources]
        # Filled up with an id of its own: damaged weights of another id are no concern of this source.
        padded = [source + source[-1:] * (max(lengths) - len(source)) for source in sources]
        with parts_in_eval_mode(self._parts):
            encoded = self._model.encode(torch.tensor(padded, device=self._device), self._mask(lengths))  # (U, S, C)
        slots = list(begun)
        by_row = [slots[place] for place in _inverse(self._rows.to_front(slots))]
        chosen = torch.tensor([sources.index(begun[slot]) for slot in by_row], device=self._device)  # (N,)
        view = self._source.view(0, [0] * len(slots), max(lengths))
        for block, layer in zip(self._model.decoder, view.layers, strict=True):
            assert isinstance(block, Block)
            assert block.cross_attention is not None
            k, v = block.cross_attention.keys_and_values(encoded)  # (U, G, S, D) each
            layer.append(k[chosen], v[chosen])
        for row, slot in enumerate(by_row):
            self._source.cut(row, len(begun[slot]))

    def _hidden(self, row: int, starts: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Let the decoder read ids into neighbouring rows; its last hidden states, (B, C)."""
        lengths = self._source.lengths[row : row + len(ids)]
        cache = EncoderDecoderCache(0, self.longest, self._encoded)
        cache.target = self._target.view(row, starts, len(ids[0]))
        cache.source = self._source.view(row, lengths, 0)
        encoded = self._encoded.expand(len(ids), max(lengths), 1)
        targets = torch.tensor(ids, device=self._device)  # (B, T)
        return self._model.hidden(targets, encoded, self._mask(lengths), cache)[:, -1]

    def _mask(self, lengths: Sequence[int]) -> Tensor | None:
        """(B, S), True for the ids of sources of these lengths, or None if all are equally long."""
        if min(lengths) == max(lengths):
            return None
        return torch.arange(max(lengths), device=self._device) < torch.tensor(lengths, device=self._device)[:, None]


def _side_by_side(chunks: Sequence[Chunk], rows: CacheRows, hidden: Hidden) -> Tensor:
    """Return the last hidden states of chunks, (N, C): single ids in one batch, longer chunks one by one.

    Args:
        hidden: reads ids into neighbouring rows from a first one on; given are the row, the starts and the ids.
    """
    single = [place for place, chunk in enumerate(chunks) if len(chunk.ids) == 1]
    found: dict[int, Tensor] = {}  # (C,) each, by place in `chunks`
    if single:
        places = [
            single[place] for place in _inverse(rows.to_front([chunks[place].slot for place in single]))
        ]  # by row
        batch = hidden(0, [chunks[place].start for place in places], [chunks[place].ids for place in places])
        found.update(zip(places, batch, strict=True))
    for place, (slot, start, ids) in enumerate(chunks):
        if place not in found:
            found[place] = hidden(rows.of(slot), [start], [ids])[0]
    return torch.stack([found[place] for place in range(len(chunks))])


def _inverse(order: Sequence[int]) -> list[int]:
    """Return where each number is in a permutation of 0, 1, ..."""
    return sorted(range(len(order)), key=order.__getitem__)


def _in_order(logits: Tensor, rows: Sequence[int] | None = None) -> NDArray[Any]:
    """Return these rows of logits, (N, V), or all, in float32 or better."""
    found: NDArray[Any] = logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()
    return found if rows is None or list(rows) == list(range(len(rows))) else found[list(rows)]


@torch.inference_mode()
def window_logits(model: GPT, ids: Sequence[int], first: int) -> NDArray[Any]:
    """Return the logits after each id of a text from one on: (T - first, V), float32 or better.

    Args:
        ids: (T,), of 1 to context_length ids, which the model reads at once.
    """
    with eval_mode(model):
        whole = torch.tensor(list(ids), device=model.token_embedding.weight.device)[None]  # (1, T)
        return _in_order(model.head(model.hidden(whole)[0, first:]))
