"""The engine under everything that writes: texts enter and leave between steps, and each step adds an id to each.

A text is the same alone and among others. Each has its own sampling, random numbers and window, and the slots compute
each row by itself: bit for bit in `jumok.inference.native`, up to rounding in PyTorch.

The model sees the last ids of a text as far as its context reaches. That window is a function of their number alone
(`window_start`), so a cache of keys and values does not change the text.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError
from jumok.inference.native.build import library, why_not
from jumok.inference.native.parameters import NativeModel
from jumok.inference.native.slots import NativeSlots
from jumok.inference.requests import Drawn, Finish, Request
from jumok.inference.rules import NextIdRules
from jumok.inference.sampling import Numbers, drawn, filtered, likeliest, log_softmax
from jumok.inference.slots import Chunk, Quantization, Slots, window_start
from jumok.inference.writer import Continuation

if TYPE_CHECKING:
    from jumok.inference.torch_slots import AnswerSlots
    from jumok.models.encoder_decoder import EncoderDecoder
    from jumok.models.gpt import GPT

MIN_SHARED_PREFIX = 16  # ids at the beginning of two texts that are worth copying instead of reading
PREFIX_CACHE_SLOTS = 8  # free slots that keep their content, for texts that begin alike


class Engine:
    """Texts that a model writes side by side. One thread at a time may call it; see `jumok.inference.service`.

    Prompts are read in chunks, one chunk a step, so that a long one does not hold up the other texts. What two prompts
    have in common at their beginning is read once and copied.

    Args:
        model: a GPT, of PyTorch or a NativeModel, or an EncoderDecoder. Its tokenizer makes the texts; without one
            there are only ids.
        slots: the most texts at a time.
        quantize: "int8" rounds the matrices to 8 bits, "bfloat16" to 16; both need the native step. A NativeModel is
            rounded already.
        cache: keep keys and values of a GPT of PyTorch; without them the texts are the same, and take longer.
        build: compile the native step if this machine can and has not yet.

    Attributes:
        active: the texts that are not finished, in the order in which they came.
        read, reused: ids of prompts that the model has read, and whose keys and values were there already.

    Raises:
        ConfigError: quantised matrices where the native step does not compute the model.
    """

    def __init__(
        self,
        model: GPT | EncoderDecoder | NativeModel,
        slots: int = 64,
        *,
        quantize: Quantization | None = None,
        cache: bool = True,
        build: bool = False,
    ) -> None:
        self.active: list[_ActiveText] = []
        self.read = self.reused = 0
        self._model = model
        self._slots = make_slots(model, slots, quantize, cache, build)
        self._known = model.tokenizer.vocab_size if model.tokenizer is not None else model.config.vocab_size
        self._held: list[list[int]] = [[] for _ in range(slots)]  # the ids whose keys and values each slot holds
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(slots))  # the one used last comes last
        self._answers = isinstance(model.config, EncoderDecoderConfig)  # its keys depend on the source, too

    @property
    def free(self) -> int:
        """How many more texts it takes."""
        return len(self._free)

    def admit(self, request: Request) -> Continuation:
        """Begin a text; the next step reads its prompt.

        Raises:
            RuntimeError: no slot is free.
            ConfigError: a source for a GPT, or none for an encoder–decoder, or one that is too long; or an id that the
                model does not have.
        """
        if not self._free:
            raise RuntimeError("all slots of the engine are in use")
        if self._answers != (request.source is not None):
            raise ConfigError("a request has a source if the model is an EncoderDecoder, and none for a GPT.")
        context = self._model.config.context_length
        if request.source is not None and not 1 <= len(request.source) <= context:
            raise ConfigError(
                "the source has {count:,} ids, and this model reads 1 to {most:,}.",
                count=len(request.source),
                most=context,
            )
        ids = (*request.prompt, *(request.source or ()))
        if not 0 <= min(ids) <= max(ids) < self._model.config.vocab_size:
            raise ConfigError(
                "the ids of a prompt are 0 to {most}, and one is {strange}.",
                most=self._model.config.vocab_size - 1,
                strange=next(one for one in ids if not 0 <= one < self._model.config.vocab_size),
            )
        rules = NextIdRules(
            self._model.config,
            self._model.tokenizer,
            prompt=len(request.prompt),
            tokens=request.tokens,
            no_repeat_ngram=request.no_repeat_ngram,
        )
        text = Continuation(request, self._model.tokenizer, self._known, rules or None)
        place = _ActiveText(text, self._best_slot(text.ids))
        if request.source is not None:
            cast("AnswerSlots", self._slots).begin(place.slot, request.source)
        del self._free[place.slot]
        self.active.append(place)
        return text

    def release(self, text: Continuation) -> None:
        """End a text before its time; its slot is free at once."""
        for place in self.active:
            if place.text is text:
                self._leave([place])
                text.end("cancelled")

    def step(self) -> list[Continuation]:
        """Read what is due of each text, and choose an id for those that have been read to their end.

        Returns:
            the texts that have a new id or ended.
        """
        chunks, places = [], []
        budget = self._slots.longest
        for place in self.active:
            chunk = self._next_chunk(place)
            prompt = chunk is not None and len(chunk.ids) > 1
            if chunk is None or (prompt and budget <= 0):
                continue
            budget -= len(chunk.ids) if prompt else 0
            chunks.append(chunk)
            places.append(place)
        if not chunks:
            return []
        logits = self._slots.read(chunks)[:, : self._known]  # (N, V)
        ready = []
        for row, (place, chunk) in enumerate(zip(places, chunks, strict=True)):
            held = self._held[place.slot]
            held += chunk.ids
            self.read += place.of_prompt(chunk.start, len(chunk.ids))
            if place.start + len(held) == len(place.text.ids):
                ready.append(row)
            if not self._slots.caches:
                held.clear()
        texts = [places[row].text for row in ready]
        self._choose(logits if len(ready) == len(chunks) else logits[ready], texts)
        self._leave([places[row] for row in ready if places[row].text.finish is not None])
        return texts

    # --- what to read -------------------------------------------------------------------------------------------------

    def _next_chunk(self, place: _ActiveText) -> Chunk | None:
        """Return the next ids of a text to read, or None while it waits for another one that begins alike."""
        slot, ids = place.slot, place.text.ids
        held = self._held[slot]
        start = window_start(len(ids), self._model.config.context_length)
        if start != place.start:
            if place.start >= 0:  # the window moved
                held.clear()
            place.start, place.is_new = start, True
        if place.is_new:
            if self._slots.caches and not self._answers:
                if self._share(place):
                    return None
                self.reused += place.of_prompt(0, len(held))
            place.is_new = False
        first = start + len(held)
        return Chunk(slot, len(held), ids[first : first + self._slots.longest])

    def _share(self, place: _ActiveText) -> bool:
        """Copy what another slot holds of a window. Return True if an earlier text is still reading a longer prefix."""
        window = place.window[:-1]  # the last id is always read, for its logits
        held = self._held[place.slot]
        del held[common_prefix_length(held, window) :]
        if len(window) - len(held) < MIN_SHARED_PREFIX:
            return False
        length, best = self._longest_prefix(window, range(len(self._held)))
        for other in self.active:
            if other is place:
                break
            reads = len(other.text.ids) - other.start > len(self._held[other.slot]) + 1
            if reads and common_prefix_length(other.window[:-1], window) >= length + MIN_SHARED_PREFIX:
                return True
        if length >= len(held) + MIN_SHARED_PREFIX:
            self._slots.copy(best, place.slot, length)
            held[:] = window[:length]
        return False

    def _longest_prefix(self, window: Sequence[int], slots: Iterable[int]) -> tuple[int, int]:
        """Return how much of a window is held by the slot that holds most of it, 0 if too little, and which it is."""
        start = list(window[:MIN_SHARED_PREFIX])
        alike = [slot for slot in slots if self._held[slot][:MIN_SHARED_PREFIX] == start]  # few; the others cost time
        return max(((common_prefix_length(self._held[slot], window), slot) for slot in alike), default=(0, 0))

    def _best_slot(self, ids: Sequence[int]) -> int:
        """Return the free slot that has the longest prefix of a text, or else the least recently used one."""
        if not self._answers:
            window = ids[window_start(len(ids), self._model.config.context_length) :]
            length, best = self._longest_prefix(window, self._free)
            if length >= MIN_SHARED_PREFIX:
                return best
        oldest = next(iter(self._free))
        self._held[oldest].clear()
        return oldest

    def _leave(self, places: Sequence[_ActiveText]) -> None:
        """Free the slots of texts that ended."""
        if not places:
            return
        self.active = [place for place in self.active if place not in places]
        for place in places:
            self._free[place.slot] = None
            if place.text.finish == "not finite" or self._answers:
                self._forget(place.slot)
        for slot in list(self._free)[:-PREFIX_CACHE_SLOTS]:
            if self._held[slot]:
                self._forget(slot)

    def _forget(self, slot: int) -> None:
        self._held[slot].clear()
        self._slots.forget(slot)

    # --- what to write ------------------------------------------------------------------------------------------------

    def _choose(self, logits: Numbers, texts: Sequence[Continuation]) -> None:
        """Give each text its next id, or end it if its logits are not finite. logits: (N, V), of the texts."""
        native = self._slots if isinstance(self._slots, NativeSlots) else None
        groups: dict[object, list[int]] = {}
        for row, text in enumerate(texts):
            request = text.request
            # How a text is drawn must not depend on the others: the native draw rounds differently from NumPy.
            plain = native is not None and text.has_plain_sampling
            groups.setdefault(None if plain else (request.sampling, text.rules is None), []).append(row)
        for settings, rows in groups.items():
            some = logits if len(rows) == len(texts) else logits[rows]  # (n, V)
            alike = [texts[row] for row in rows]
            if settings is None and native is not None:
                _choose_by_temperature(native, some, alike)
            else:
                _choose_by_settings(some, alike)


def make_slots(
    model: GPT | EncoderDecoder | NativeModel, slots: int, quantize: Quantization | None, cache: bool, build: bool
) -> Slots:
    """Return the fastest slots for a model on its device.

    Raises:
        ConfigError: quantised matrices where the native step does not compute the model; or a NativeModel where there
            is no native step, or quantised otherwise.
    """
    if isinstance(model, NativeModel):
        if quantize not in (None, model.kind):
            raise ConfigError(
                "quantize={quantize!r} was given, and the matrices of this model are {kind} already.",
                quantize=quantize,
                kind=model.kind,
            )
        if not library(build=True):
            raise ConfigError("a NativeModel writes with the C++ step: {reason}", reason=why_not())
        return NativeSlots(model, slots)
    from jumok.inference.native.from_torch import can_run, is_plain, pack
    from jumok.inference.torch_slots import AnswerSlots, TorchSlots, WindowSlots

    if not isinstance(model.config, GPTConfig):
        return AnswerSlots(model, slots)
    keeps = cache and is_plain(model)
    if keeps and can_run(model) and library(build or quantize is not None):
        return NativeSlots(pack(model, quantize or "float32"), slots)
    if quantize is not None:
        raise ConfigError(
            "quantize={quantize!r} is computed by the C++ step, which must be there (jumok doctor) and needs a plain "
            "GPT in float32 on the CPU, with a cache and without hooks, and is off if JUMOK_NATIVE=0 is set; leave it "
            "out, or move the model there: model.float().cpu().",
            quantize=quantize,
        )
    return TorchSlots(model, slots) if keeps else WindowSlots(model, slots)


class _ActiveText:
    """A text, its slot, and where its window begins.

    is_new: nothing of this window was read yet.
    """

    def __init__(self, text: Continuation, slot: int) -> None:
        self.text, self.slot, self.start, self.is_new = text, slot, -1, True

    @property
    def window(self) -> list[int]:
        return self.text.ids[max(0, self.start) :]

    def of_prompt(self, first: int, count: int) -> int:
        """Return how many of some ids belong to the prompt, the first of which is at a position of the window."""
        return max(0, min(count, len(self.text.request.prompt) - self.start - first))


def common_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many ids two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # slices are compared faster than single ids
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _choose_by_temperature(slots: NativeSlots, logits: Numbers, texts: Sequence[Continuation]) -> None:
    """As `Engine._choose`, for texts with plain sampling, of any temperatures."""
    temperatures = [text.request.sampling.temperature for text in texts]
    uniform = [text.uniform() if warm else 0.0 for text, warm in zip(texts, temperatures, strict=True)]
    ids = slots.draw(logits, temperatures, uniform)
    if min(ids) < 0:
        logits, texts = _end_some(logits, texts, [token < 0 for token in ids], "not finite")
        ids = [token for token in ids if token >= 0]
    _push(ids, logits, texts)


def _choose_by_settings(logits: Numbers, texts: Sequence[Continuation]) -> None:
    """As `Engine._choose`, for texts with equal settings."""
    logits, texts = _end_some(logits, texts, [not np.isfinite(row).all() for row in logits], "not finite")
    if not texts:
        return
    allowed = _apply_rules(logits, texts)  # (N, V)
    stuck = [row.max() == -math.inf for row in allowed]
    if any(stuck):  # no id may come next
        _choose_by_settings(*_end_some(logits, texts, stuck, "stop"))
        return
    sampling = texts[0].request.sampling
    seen, counts = (_stacked([getattr(text, name) for text in texts]) for name in ("seen", "counts"))
    chances = filtered(allowed, sampling, seen, counts)  # (N, V)
    if sampling.temperature == 0:
        new = chances.argmax(axis=-1)  # (N,)
    else:
        new = drawn(chances, np.array([text.uniform() for text in texts]))  # (N,)
    _push(new.tolist(), logits, texts)


def _end_some(
    logits: Numbers, texts: Sequence[Continuation], ended: Sequence[bool], finish: Finish
) -> tuple[Numbers, list[Continuation]]:
    """End some texts. Return the logits of the others, and the others."""
    for text, ends in zip(texts, ended, strict=True):
        if ends:
            text.end(finish)
    rows = [row for row, ends in enumerate(ended) if not ends]
    return logits if len(rows) == len(texts) else logits[rows], [texts[row] for row in rows]


def _apply_rules(values: Numbers, texts: Sequence[Continuation]) -> Numbers:
    """Return logits or log-probabilities, (N, V), with -inf where the rules of a text forbid an id."""
    if all(text.rules is None for text in texts):
        return values
    rows = [row if text.rules is None else text.rules(row, text.ids) for row, text in zip(values, texts, strict=True)]
    return np.stack(rows)


def _stacked(rows: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    found = [row for row in rows if row is not None]
    return np.stack(found) if found else None


def _push(ids: Sequence[int], logits: Numbers, texts: Sequence[Continuation]) -> None:
    """Give each text its id, with the log-probabilities that it asks for, of logits (N, V)."""
    for token, row, text in zip(ids, logits, texts, strict=True):
        top = text.request.top
        if top is None:
            text.push(Drawn(token))
        else:
            values = log_softmax(row)  # (V,)
            values = values if text.rules is None else text.rules(values, text.ids)
            text.push(Drawn(token, float(values[token]), likeliest(values, top)))
