"""Stand-in."""

from __future__ import annotations
from collections.abc import Sequence
import torch
from torch import Tensor
from jumok.inference.slots import Chunk
from jumok.models.gpt import GPT
from jumok.models.encoder_decoder import EncoderDecoder


class _Base:
    longest = 1 << 30
    calls_hooks = True

    def __init__(self, model, slots, quantize=None):
        self._model, self._ids = model, [[] for _ in range(slots)]

    def read(self, chunks: Sequence[Chunk]) -> Tensor:
        out = []
        for slot, start, ids in chunks:
            self._ids[slot] = [*self._ids[slot][:start], *ids]
            out.append(self._model(torch.tensor([self._ids[slot]]))[0, -1])
        return torch.stack(out)

    def copy(self, source, target, length):
        self._ids[target] = self._ids[source][:length]

    def forget(self, slot):
        self._ids[slot] = []


class WindowSlots(_Base): ...


class TorchSlots(_Base):
    longest = 64
    calls_hooks = False


class AnswerSlots(_Base):
    def begin(self, slot, source): ...
