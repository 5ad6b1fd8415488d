"""Temporary evaluation mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn


def eval_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Return a context in which a model is in eval mode, without dropout; the mode of each module is restored.

    A model that is already in eval mode is not modified, so several threads can use it at the same time.
    """
    return parts_in_eval_mode(model.modules())


@contextmanager
def parts_in_eval_mode(parts: Iterable[nn.Module]) -> Iterator[None]:
    """Put some modules into eval mode for a while."""
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
