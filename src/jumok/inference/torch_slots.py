"""Slots that PyTorch reads: texts of different lengths side by side, with a cache of a row for each, or without one.

`TorchSlots` uses `PackedGPT` where it can, and the model itself where it has hooks, or is something else than a plain
GPT on a CPU. `AnswerSlots` is for an encoder–decoder. The model has to be in eval mode during `read`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache

import torch
from torch import Tensor

from jumok.errors import ConfigError
from jumok.inference.matrices import Quantization
from jumok.inference.packed import PackedGPT, can_pack, hooks_of, is_plain
from jumok.inference.slots import Chunk
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.nn.blocks import Block
from jumok.nn.cache import EncoderDecoderCache, RaggedCache

BATCH_SIZES = 8  # numbers of texts for which a PackedGPT keeps its buffers


class Texts:
    """The ids of the text in each slot."""

    def __init__(self) -> None:
        self._ids: dict[int, list[int]] = {}

    def __getitem__(self, slot: int) -> list[int]:
        return self._ids[slot]

    def keep(self, chunk: Chunk) -> None:
        """Take the ids of a chunk in place of those from its start on."""
        ids = self._ids.setdefault(chunk.slot, [])
        del ids[chunk.start :]
        ids.extend(chunk.ids)

    def copy(self, source: int, target: int, length: int) -> None:
        """As `Slots.copy`."""
        self._ids[target] = self._ids[source][:length]

    def forget(self, slot: int) -> None:
        """As `Slots.forget`."""
        self._ids.pop(slot, None)


class Rows:
    """Which row of some caches each slot has. Rows are exchanged so that those that are read are the first ones."""

    def __init__(self, slots: int, *caches: RaggedCache) -> None:
        self._caches = caches
        self._slots: list[int | None] = [None] * slots  # by row
        self._rows: dict[int, int] = {}  # by slot

    def of(self, slot: int) -> int:
        """The row of a slot, a free one if it has none yet."""
        if slot not in self._rows:
            self._rows[slot] = self._slots.index(None)
            self._slots[self._rows[slot]] = slot
        return self._rows[slot]

    def to_front(self, slots: Sequence[int]) -> None:
        """Give these slots the first rows, in any order."""
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

    def forget(self, slot: int) -> None:
        """Empty the row of a slot, which another one may take."""
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._slots[row] = None
            for cache in self._caches:
                cache.cut(row, 0)


class WindowSlots:
    """Slots without a cache: the model reads the whole text of each slot every time, texts of one length in one batch.

    Args:
        model: any GPT.
    """

    def __init__(self, model: GPT) -> None:
        self.longest = model.config.context_length
        self.texts = Texts()
        self._model, self._device = model, model.token_embedding.weight.device

    def read(self, chunks: Sequence[Chunk]) -> Tensor:
        """See `Slots`."""
        for chunk in chunks:
            self.texts.keep(chunk)
        return self.logits([chunk.slot for chunk in chunks])

    @torch.inference_mode()
    def logits(self, slots: Sequence[int]) -> Tensor:
        """Logits after the text of each slot, (N, V)."""
        groups: dict[int, list[int]] = {}  # places in `slots`, by the length of the text
        for place, slot in enumerate(slots):
            groups.setdefault(len(self.texts[slot]), []).append(place)
        parts = []
        for places in groups.values():
            ids = torch.tensor([self.texts[slots[place]] for place in places], device=self._device)  # (n, T)
            parts.append(self._model.head(self._model.hidden(ids)[:, -1]))  # (n, V)
        order = [place for places in groups.values() for place in places]
        return _finished(torch.cat(parts), torch.tensor(order).argsort().tolist())

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`."""
        self.texts.copy(source, target, length)

    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self.texts.forget(slot)


class TorchSlots:
    """Slots of a GPT with a cache.

    A packed model that gets hooks, for a recording, computes each step without the cache as long as it has them, so
    that the hooks see whole texts. The cache catches up afterwards.

    Args:
        model: any GPT. slots: their number.
        quantize: "int8" for rounded matrices, see `PackedGPT`.

    Raises:
        ConfigError: quantised matrices were asked for where the model cannot be packed.
    """

    def __init__(self, model: GPT, slots: int, quantize: Quantization | None = None) -> None:
        self.longest = model.config.context_length
        self._model, self._device = model, model.token_embedding.weight.device
        self._packed = None
        if can_pack(model):
            self._packed = lru_cache(BATCH_SIZES)(PackedGPT(model, 1, quantize).for_batch)
        elif quantize is not None:
            raise cannot_quantize(quantize)
        self._hooks = hooks_of(model) if self._packed is not None else []
        self._ragged = is_plain(model)
        self._caches = True  # until it turns out that a model does not extend its cache
        self._windows = WindowSlots(model)
        self._cache = RaggedCache(model.new_cache(0), slots)
        self._rows = Rows(slots, self._cache)

    @torch.inference_mode()
    def read(self, chunks: Sequence[Chunk]) -> Tensor:
        """See `Slots`."""
        slots = [chunk.slot for chunk in chunks]
        for chunk in chunks:
            self._windows.texts.keep(chunk)
            self._cache.cut(self._rows.of(chunk.slot), chunk.start)
        # Autocast would cast all matrices for each token, which costs more than it saves.
        with nullcontext() if self._packed is None else torch.autocast("cpu", enabled=False):
            if self._caches and not any(self._hooks):
                logits = self._logits(slots)
                if self._caches:
                    return logits
            return self._windows.logits(slots)

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`."""
        self._windows.copy(source, target, length)
        row = self._rows.of(source)
        with torch.inference_mode():
            self._cache.copy(row, self._rows.of(target), min(length, self._cache.lengths[row]))

    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self._windows.forget(slot)
        with torch.inference_mode():
            self._rows.forget(slot)

    def _logits(self, slots: Sequence[int]) -> Tensor:
        """Logits after the text of each slot; the cache is extended to its end."""
        self._rows.to_front(slots)
        for slot in slots:
            ids = self._windows.texts[slot]
            if (held := self._cache.lengths[self._rows.of(slot)]) < len(ids) - 1:
                self._hidden(self._rows.of(slot), [held], [ids[held:-1]])
        rows = [self._rows.of(slot) for slot in slots]
        texts = [self._windows.texts[slots[place]] for place in torch.tensor(rows).argsort().tolist()]  # by row
        starts, newest = [len(ids) - 1 for ids in texts], [ids[-1] for ids in texts]
        if self._packed is not None:
            cache = self._cache.view(0, starts, 1)
            logits = self._packed(len(texts)).logits(torch.tensor(newest), cache)  # (N, V)
        elif self._ragged or min(starts) == max(starts):
            logits = self._model.head(self._hidden(0, starts, [[token] for token in newest]))  # (N, V)
        else:
            each = [self._hidden(row, [starts[row]], [[token]]) for row, token in enumerate(newest)]
            logits = self._model.head(torch.cat(each))  # (N, V)
        return _finished(logits, rows)

    def _hidden(self, row: int, starts: Sequence[int], ids: Sequence[Sequence[int]]) -> Tensor:
        """Let the model read ids into neighbouring rows; its last hidden states, (B, C)."""
        cache = self._cache.view(row, starts, len(ids[0]))
        hidden = self._model.hidden(torch.tensor(ids, device=self._device), cache)[:, -1]
        self._caches = self._caches and cache.length == max(starts) + len(ids[0])
        return hidden


def cannot_quantize(quantize: Quantization) -> ConfigError:
    """The error for a model, or a way to run it, without packed matrices."""
    return ConfigError(
        "quantize={quantize!r} is for a plain GPT in float32 on the CPU, with a cache and without "
        "hooks; leave it out, or move the model there: model.float().cpu().",
        quantize=quantize,
    )


class AnswerSlots:
    """Slots of an encoder–decoder: the keys and values of a source and of the target that is written for it.

    Args:
        model: any. slots: their number.
    """

    def __init__(self, model: EncoderDecoder, slots: int) -> None:
        self.longest = model.config.context_length
        self._model, self._device = model, model.token_embedding.weight.device
        self._texts = Texts()
        like = model.new_cache(0)
        self._target, self._source = RaggedCache(like.target, slots), RaggedCache(like.source, slots)
        self._rows = Rows(slots, self._target, self._source)
        self._begun: dict[int, Sequence[int]] = {}  # sources that are not encoded yet
        # In the place of the hidden states of sources, whose keys and values are in the cache.
        self._encoded = model.token_embedding.weight.new_zeros(1, 1, 1)

    def begin(self, slot: int, source: Sequence[int]) -> None:
        """Let a slot hold a source, of 1 to context_length ids, and no target."""
        self.forget(slot)
        self._begun[slot] = source

    @torch.inference_mode()
    def read(self, chunks: Sequence[Chunk]) -> Tensor:
        """See `Slots`; the ids are those of the target."""
        self._encode()
        slots = [chunk.slot for chunk in chunks]
        for chunk in chunks:
            self._texts.keep(chunk)
            self._target.cut(self._rows.of(chunk.slot), chunk.start)
        self._rows.to_front(slots)
        for slot in slots:
            ids = self._texts[slot]
            if (held := self._target.lengths[self._rows.of(slot)]) < len(ids) - 1:
                self._hidden(self._rows.of(slot), [held], [ids[held:-1]])
        rows = [self._rows.of(slot) for slot in slots]
        texts = [self._texts[slots[place]] for place in torch.tensor(rows).argsort().tolist()]  # by row
        hidden = self._hidden(0, [len(ids) - 1 for ids in texts], [ids[-1:] for ids in texts])  # (N, C)
        return _finished(self._model.logits(hidden), rows)

    def copy(self, source: int, target: int, length: int) -> None:
        """See `Slots`; the source is copied too."""
        with torch.inference_mode():
            self._encode()
            self._texts.copy(source, target, length)
            one, other = self._rows.of(source), self._rows.of(target)
            self._target.copy(one, other, length)
            self._source.copy(one, other, self._source.lengths[one])

    def forget(self, slot: int) -> None:
        """See `Slots`."""
        self._begun.pop(slot, None)
        self._texts.forget(slot)
        with torch.inference_mode():
            self._rows.forget(slot)

    def _encode(self) -> None:
        """Encode the sources that are new, in one batch, and keep the keys and values of cross-attention."""
        if not self._begun:
            return
        slots, sources = list(self._begun), [list(source) for source in self._begun.values()]
        self._begun = {}
        lengths = [len(source) for source in sources]
        # Filled up with an id of its own: damaged weights of another id are no concern of this source.
        padded = [source + source[-1:] * (max(lengths) - len(source)) for source in sources]
        encoded = self._model.encode(torch.tensor(padded, device=self._device), self._mask(lengths))  # (B, S, C)
        for place, (slot, length) in enumerate(zip(slots, lengths, strict=True)):
            view = self._source.view(self._rows.of(slot), [0], length)
            for block, layer in zip(self._model.decoder, view.layers, strict=True):
                assert isinstance(block, Block)
                assert block.cross_attention is not None
                layer.append(*block.cross_attention.keys_and_values(encoded[place : place + 1, :length]))

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


def _finished(logits: Tensor, rows: Sequence[int]) -> Tensor:
    """Rows of logits, (N, V), in an order, in float32 or better on the CPU."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu()
    return logits if list(rows) == list(range(len(rows))) else logits[list(rows)]
