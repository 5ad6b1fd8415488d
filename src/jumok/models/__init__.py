"""The models, each made of the same blocks; `build` makes the one that a configuration describes."""

from __future__ import annotations

from typing import Any, overload

import torch

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, RungConfig
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.rung import Rung

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

__all__ = ["KINDS", "MODELS", "Model", "ModelConfig", "build", "build_blank", "kind_name", "kind_of"]


@overload
def build(config: GPTConfig) -> GPT: ...
@overload
def build(config: BERTConfig) -> BERT: ...
@overload
def build(config: EncoderDecoderConfig) -> EncoderDecoder: ...
@overload
def build(config: ModelConfig) -> Model: ...
def build(config: ModelConfig) -> Model:
    """The model that `config` describes, with its first weights."""
    return MODELS[type(config)](config)


def build_blank(config: ModelConfig) -> Model:
    """As `build`, for weights that will take the place of the first ones: torch's random numbers are left alone."""
    with torch.random.fork_rng(devices=[]):
        return build(config)


def kind_of(config: ModelConfig) -> str:
    """The name under which a config.json keeps this kind of configuration."""
    return kind_name(type(config))


def kind_name(kind: type[ModelConfig]) -> str:
    """As `kind_of`, for the class."""
    return next(name for name, known in KINDS.items() if known is kind)
