"""The models, each made of the same blocks; `build` makes the one that a configuration describes."""

from __future__ import annotations

from jumok.config import GPTConfig, RungConfig
from jumok.models.gpt import GPT
from jumok.models.rung import Rung

Model = GPT
ModelConfig = GPTConfig

MODELS: dict[type[GPTConfig], type[GPT]] = {GPTConfig: GPT, RungConfig: Rung}
KINDS: dict[str, type[GPTConfig]] = {"gpt": GPTConfig, "rung": RungConfig}  # by the "type" of a config.json


def build(config: GPTConfig) -> GPT:
    """The model that `config` describes, with its first weights."""
    return MODELS[type(config)](config)


def kind_of(config: GPTConfig) -> str:
    """The name under which a config.json keeps this kind of configuration."""
    return next(name for name, kind in KINDS.items() if kind is type(config))
