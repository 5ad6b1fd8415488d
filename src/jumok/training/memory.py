"""Errors of too little memory on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jumok.config import ModelConfig, TrainConfig
from jumok.device import is_out_of_memory
from jumok.errors import TrainingError
from jumok.messages import tr


@contextmanager
def memory_errors(shape: ModelConfig, config: TrainConfig) -> Iterator[None]:
    """Convert an error of too little memory inside the block to a TrainingError with a remedy."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            "the device has too little memory for batch_size={batch_size} at "
            "context_length={context_length}. Start a new run with {recompute}a smaller {--batch-size} (and a "
            "larger {--accumulate} to keep the product), a shorter {--context-length} or a smaller "
            "{--size}.",
            batch_size=config.batch_size,
            context_length=shape.context_length,
            recompute="" if config.recompute else tr("{--recompute}, "),
        ) from error
