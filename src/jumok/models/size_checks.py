"""Refusal of models and texts that need more memory than there is, before anything is built."""

from __future__ import annotations

import sys
from typing import Any

from jumok.config import (
    FIRST_CACHED,
    EncoderDecoderConfig,
    ModelConfig,
    count_cached,
    count_constants,
    count_parameters,
    stacks,
)
from jumok.errors import RunError
from jumok.memory import free_memory, require_memory
from jumok.messages import tr

FLOAT32_BYTES = 4
BLOCK_BYTES = 40_000  # memory for the Python objects of a block
TEXT_BYTES = 2_000  # that Python keeps of a text that is generated, at least
FAR = 100  # a config.json with this many times the parameters of the file is damaged


def require_memory_for_model(config: ModelConfig, itemsize: int = FLOAT32_BYTES) -> None:
    """Raise ConfigError if there is too little memory for a model.

    Args:
        itemsize: bytes of a parameter.
    """
    parameters = count_parameters(config)
    numbers = parameters + count_constants(config)
    needed = numbers * itemsize + sum(count for count, _, _ in stacks(config)) * BLOCK_BYTES
    require_memory(needed, lambda: tr("a model of {count} parameters", count=_count(parameters)))


def require_memory_for_texts(config: ModelConfig, texts: int, at_once: int) -> None:
    """Raise ConfigError if there is too little memory to generate this number of texts, some of them at once."""
    numbers = count_cached(config) * min(config.context_length, FIRST_CACHED) + config.vocab_size
    needed = at_once * numbers * FLOAT32_BYTES + texts * TEXT_BYTES
    require_memory(needed, lambda: tr("generating {count} texts", count=_count(texts)))


def most_texts(config: ModelConfig, device: Any = "cpu", itemsize: int = FLOAT32_BYTES) -> int:
    """Return the number of texts as long as the context whose keys and values fit into the free memory; at least 1.

    Args:
        device: where they are: a torch.device, or its name. itemsize: bytes of one number of a key or value.
    """
    free = free_memory(device)
    one = count_cached(config) * config.context_length * (2 if isinstance(config, EncoderDecoderConfig) else 1)
    return sys.maxsize if free is None else max(1, free // max(1, one * itemsize))


def require_stored(config: ModelConfig, stored: int, where: str) -> None:
    """Raise RunError if a file of parameters is far too small for its config.json.

    It is called before the model is built. Smaller differences are found later, when the tensors are compared.

    Args:
        stored: number of elements in the file.
        where: the folder, for the message.
    """
    parameters = count_parameters(config)
    if parameters > FAR * stored:
        raise RunError(
            "{where}/config.json describes a model of {count} parameters, but its file of tensors contains {stored} "
            "numbers; restore config.json from a copy.",
            where=where,
            count=_count(parameters),
            stored=f"{stored:,}",
        )


def _count(parameters: int) -> str:
    return f"{parameters:,}" if parameters < 10**9 else f"{float(parameters):.1e}"
