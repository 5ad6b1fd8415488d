"""Evaluation mode for the length of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn


def eval_mode(model: nn.Module) -> AbstractContextManager[None]:
    """No dropout inside the block; afterwards each part of the model is in the mode that it was in.

    Nothing is written where all of them are in eval mode already, so that any number of threads may ask one model.
    """
    return parts_in_eval_mode(model.modules())


@contextmanager
def parts_in_eval_mode(parts: Iterable[nn.Module]) -> Iterator[None]:
    """The same for some parts of a model."""
    training = [part for part in parts if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
