"""The models, each made of the same blocks; `build` makes the one that a configuration describes."""

from __future__ import annotations

from typing import Any, overload

import torch

from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    ModelConfig,
    RungConfig,
    count_blocks,
    count_cached,
    count_constants,
    count_parameters,
)
from jumok.device import require_memory
from jumok.errors import RunError
from jumok.messages import tr
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.nn.cache import FIRST_ROOM

Model = GPT | BERT | EncoderDecoder

MODELS: dict[type[ModelConfig], type[Any]] = {
    GPTConfig: GPT,
    RungConfig: Rung,
    BERTConfig: BERT,
    EncoderDecoderConfig: EncoderDecoder,
}
KINDS: dict[str, type[ModelConfig]] = {  # by the "type" of a config.json
    "gpt": GPTConfig,
    "rung": RungConfig,
    "bert": BERTConfig,
    "encoder_decoder": EncoderDecoderConfig,
}

BLOCK_BYTES = 40_000  # that Python needs for a block, however small its matrices are
FAR = 100  # times as many numbers as a file holds are no slip that a list of tensors would explain

__all__ = [
    "KINDS",
    "MODELS",
    "Model",
    "ModelConfig",
    "build",
    "build_blank",
    "kind_name",
    "kind_of",
    "require_room",
    "require_room_to_write",
    "require_stored",
    "task_of",
]


@overload
def build(config: GPTConfig) -> GPT: ...
@overload
def build(config: BERTConfig) -> BERT: ...
@overload
def build(config: EncoderDecoderConfig) -> EncoderDecoder: ...
@overload
def build(config: ModelConfig) -> Model: ...
def build(config: ModelConfig) -> Model:
    """The model that `config` describes, with its first weights.

    Raises:
        ConfigError: there is too little memory for it; the message tells how much there is, and how much it takes.
    """
    require_room(config)
    return MODELS[type(config)](config)


def build_blank(config: ModelConfig) -> Model:
    """As `build`, for weights that will take the place of the first ones: torch's random numbers are left alone."""
    with torch.random.fork_rng(devices=[]):
        return build(config)


def require_room(config: ModelConfig) -> None:
    """Raise ConfigError if the memory cannot hold a model, before anything of it is built."""
    parameters = count_parameters(config)
    numbers = 0 if torch.get_default_device().type == "meta" else parameters + count_constants(config)
    needed = numbers * torch.get_default_dtype().itemsize + count_blocks(config) * BLOCK_BYTES
    require_memory(needed, tr("a model of {count} parameters", count=_count(parameters)))


def require_room_to_write(config: ModelConfig, texts: int) -> None:
    """Raise ConfigError if the memory cannot hold what is kept of so many texts that are written side by side."""
    numbers = count_cached(config) * min(config.context_length, FIRST_ROOM) + config.vocab_size
    what = tr("writing {count} texts side by side", count=_count(texts))
    require_memory(texts * numbers * torch.get_default_dtype().itemsize, what)


def require_stored(config: ModelConfig, stored: int, where: str) -> None:
    """Raise RunError if a file of weights is far too small for its config.json, before anything is built.

    Files that differ by less are compared tensor by tensor later, which tells more.

    Args:
        stored: numbers in the file. where: the folder, for the message.
    """
    parameters = count_parameters(config)
    if parameters > FAR * stored:
        raise RunError(
            "{where}/config.json describes a model of {count} parameters, and the weights beside it are {stored} "
            "numbers; restore config.json from a copy.",
            where=where,
            count=_count(parameters),
            stored=f"{stored:,}",
        )


def _count(parameters: int) -> str:
    return f"{parameters:,}" if parameters < 10**9 else f"{float(parameters):.1e}"


def kind_of(config: ModelConfig) -> str:
    """The name under which a config.json keeps this kind of configuration."""
    return kind_name(type(config))


def kind_name(kind: type[ModelConfig]) -> str:
    """As `kind_of`, for the class."""
    return next(name for name, known in KINDS.items() if known is kind)


def task_of(model: Model) -> str:
    """What a model was made for, by its kind."""
    if isinstance(model, EncoderDecoder):
        return "seq2seq"
    if model.config.labels:
        return "classify"
    return "mlm" if isinstance(model, BERT) else "lm"
