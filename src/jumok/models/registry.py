"""The classes of the models by their configurations; `build` creates the model of a configuration."""

from __future__ import annotations

from typing import Any, overload

import torch

from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    GPTVariantConfig,
    ModelConfig,
    RungConfig,
)
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.rung import Rung

Model = GPT | BERT | EncoderDecoder

MODELS: dict[type[ModelConfig], type[Any]] = {
    GPTConfig: GPT,
    GPTVariantConfig: GPT,
    RungConfig: Rung,
    BERTConfig: BERT,
    EncoderDecoderConfig: EncoderDecoder,
}


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
