"""The models, all made of the same blocks. `build` creates the model of a configuration."""

from __future__ import annotations

import sys
from typing import Any, overload

import torch

from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    GPTVariantConfig,
    ModelConfig,
    RungConfig,
    count_cached,
)
from jumok.memory import free_memory
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.models.size_checks import require_memory_for_model, require_memory_for_texts, require_stored

Model = GPT | BERT | EncoderDecoder

MODELS: dict[type[ModelConfig], type[Any]] = {
    GPTConfig: GPT,
    GPTVariantConfig: GPT,
    RungConfig: Rung,
    BERTConfig: BERT,
    EncoderDecoderConfig: EncoderDecoder,
}


__all__ = [
    "MODELS",
    "Model",
    "ModelConfig",
    "build",
    "build_blank",
    "most_texts",
    "require_memory_for_model",
    "require_memory_for_texts",
    "require_stored",
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
    """Create the model that `config` describes, with initial parameters.

    Raises:
        ConfigError: there is too little memory; the message states the free and the needed memory.
    """
    return MODELS[type(config)](config)


def build_blank(config: ModelConfig) -> Model:
    """Create a model whose parameters will be replaced: torch's random state is not changed."""
    with torch.random.fork_rng(devices=[]):
        return build(config)


def most_texts(model: Model) -> int:
    """Return the number of texts as long as the context whose keys and values fit into the free memory; at least 1."""
    config, weight = model.config, model.token_embedding.weight
    free = free_memory(weight.device)
    one = count_cached(config) * config.context_length * (2 if isinstance(model, EncoderDecoder) else 1)  # the source
    return sys.maxsize if free is None else max(1, free // max(1, one * weight.itemsize))
