"""The slots of an engine: the keys and values of some texts, which a model reads side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

from numpy.typing import NDArray

Quantization = Literal["bfloat16", "int8"]
QUANTIZATIONS: tuple[Quantization, ...] = ("bfloat16", "int8")


class Chunk(NamedTuple):
    """Consecutive ids of one text.

    slot: where its keys and values are. start: the position of the first id; the slot holds at least as many positions,
    and those from `start` on become invalid. ids: at least one.
    """

    slot: int
    start: int
    ids: Sequence[int]


class Slots(Protocol):
    """The keys and values of texts of any lengths. What one slot holds has no influence on another one."""

    @property
    def longest(self) -> int:
        """The most ids of a chunk."""

    @property
    def caches(self) -> bool:
        """Whether keys and values are kept, so that ids are read once."""

    def read(self, chunks: Sequence[Chunk]) -> NDArray[Any]:
        """Logits after the last id of each chunk: (N, V), float32 or better. A slot occurs once at most."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Let one slot hold the first positions of another one."""

    def forget(self, slot: int) -> None:
        """The slot holds nothing; its memory may be freed."""


def window_start(length: int, context: int) -> int:
    """Return where the window begins that a model sees of `length` ids.

    It is a function of the number of ids alone, so generation with and without a cache gives the same logits.

    0 while all of them fit; then it moves on by half a context at a time, because after each move the cache has to be
    filled again. So at least half a context is always in view.
    """
    stride = max(1, context // 2)
    return -(-max(0, length - context) // stride) * stride
