"""`Reading`: a model for the requests of the playground, whose hooks reach no other request.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from jumok.errors import ConfigError
from jumok.inference.engine import common
from jumok.inference.window import window_start
from jumok.interpret.ablation import ablate
from jumok.models import Model
from jumok.models.checks import require_finite, require_tokenizer
from jumok.models.gpt import GPT
from jumok.nn.cache import KVCache
from jumok.view.token_text import Reader

KEPT = 4  # texts whose keys and values are kept: two runs side by side, each with a branch

Off = tuple[tuple[int, int], ...]  # heads that are switched off: layer and head, from 0


@dataclass(eq=False)
class _Read:
    """A text that was read: the ids of its window, their keys and values, and the heads that were off."""

    ids: list[int]
    cache: KVCache
    off: Off


class Reading:
    """The modules of a model once more, with the same parameters.

    Hooks that record attention or switch heads off are set on these modules, not on those that write for other
    requests. One thread at a time uses them, see `alone`.
    """

    def __init__(self, model: Model) -> None:
        shared = chain(model.parameters(), model.buffers(), [model.tokenizer])
        self._model: Model = copy.deepcopy(model, {id(one): one for one in shared})
        self._lock = threading.Lock()
        self._reads: list[_Read] = []  # the newest last
        self.reader = Reader(require_tokenizer(model))

    @contextmanager
    def alone(self) -> Iterator[Model]:
        """The model, for one thread, without gradients."""
        with self._lock, torch.inference_mode():
            yield self._model

    def logits_after(self, ids: Sequence[int], off: Off) -> Tensor:
        """The logits of the token that follows some ids: (V,), float32 or better, on the CPU.

        Keys and values of a beginning that was read before are used again.

        Args:
            ids: of any number; the model sees the window of them that it sees when it writes.

        Raises:
            JumokError: the logits are not finite. ConfigError: there is no such head.
        """
        with self.alone() as model:
            gpt = require_gpt(model)
            window = list(ids[window_start(len(ids), gpt.config.context_length) :])
            read, length = self._best(gpt, window, off)
            read.cache.begin_at([length], len(window) - length)
            with ablate(gpt, off):
                hidden = gpt.hidden(self._tensor(gpt, window[length:]), read.cache)[:, -1]  # (1, C)
            read.ids = window
            logits = self.known(gpt.head(hidden))
            require_finite(logits)
            return logits[0]

    def logits_of(self, ids: Sequence[int], off: Off) -> Iterator[tuple[int, Tensor]]:
        """The logits with which each id but the first is predicted, window by window.

        Yields:
            the place of the first id that is predicted, and (N, V), float32 or better, on the CPU.
        """
        first = 1
        while first < len(ids):
            with self.alone() as model:
                gpt = require_gpt(model)
                context = gpt.config.context_length
                start = window_start(first, context)
                end = first
                while end + 1 < len(ids) and window_start(end + 1, context) == start:
                    end += 1
                with ablate(gpt, off):
                    hidden = gpt.hidden(self._tensor(gpt, ids[start:end]))[0, first - 1 - start :]  # (N, C)
                logits = self.known(gpt.head(hidden))
                require_finite(logits)
            yield first, logits
            first = end + 1

    def known(self, logits: Tensor) -> Tensor:
        """Logits of the ids that the tokenizer has, on the CPU: (N, V) -> (N, V)."""
        logits = logits[:, : self.reader.vocab_size]
        return logits.to("cpu", torch.promote_types(logits.dtype, torch.float32))

    def _best(self, model: GPT, window: Sequence[int], off: Off) -> tuple[_Read, int]:
        """What was read of a window, and how many of its ids are to be kept; the last one is always read anew."""
        alike = [read for read in self._reads if read.off == off]
        read = max(alike, key=lambda one: common(one.ids, window), default=None)
        length = 0 if read is None else min(common(read.ids, window), len(window) - 1)
        # A text that shares little is likely another one; its keys and values may be asked for again.
        if read is None or (length < len(read.ids) // 2 and len(self._reads) < KEPT):
            read, length = _Read([], model.new_cache(), off), 0
        else:
            self._reads.remove(read)
        if len(self._reads) == KEPT:
            del self._reads[0]
        self._reads.append(read)
        read.ids = list(window[:length])  # should the model fail
        return read, length

    def _tensor(self, model: GPT, ids: Sequence[int]) -> Tensor:
        return torch.tensor([list(ids)], device=model.token_embedding.weight.device)  # (1, T)


def require_gpt(model: Model) -> GPT:
    """The model, which must continue texts.

    Raises:
        ConfigError: it does not.
    """
    if not isinstance(model, GPT) or model.config.labels:
        raise ConfigError(
            "only a GPT that continues texts can do this, and this model is of the kind {kind}.",
            kind=type(model).__name__,
        )
    return model


class Units:
    """Places in a text as JavaScript counts them: in UTF-16 units, of which a character beyond U+FFFF has two."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain = text.isascii() or max(text) <= "\uffff"

    def __call__(self, place: int) -> int:
        """The place behind so many characters."""
        return place if self._plain else len(self._text[:place].encode("utf-16-le")) // 2
