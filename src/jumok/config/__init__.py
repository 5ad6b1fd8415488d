"""Configurations: frozen, keyword-only, validated on creation, independent of torch.

Fields with a derived default, such as head_dim, are filled in on creation, so they are never None afterwards.
"""

from __future__ import annotations

from jumok.config._bert import BERTConfig, EncoderFamily, Head
from jumok.config._checks import require_choice, require_range, require_type
from jumok.config._defaults import (
    CLASSIC_DEFAULTS,
    CLASSIFY_INIT_DEFAULTS,
    INIT_DEFAULTS,
    LORA_DEFAULTS,
    MUON_DEFAULTS,
    ORIGINAL_DEFAULTS,
    SENTENCE_DEFAULTS,
    SIZES,
    TASK_DEFAULTS,
    TRAINABLE,
    WORD_DEFAULTS,
    configure,
    given_settings,
    resolve,
)
from jumok.config._encoder_decoder import SPECIAL_IDS, EncoderDecoderConfig, EncoderDecoderFamily
from jumok.config._fields import field_choices, field_types, from_dict, given_fields, require_types, to_dict
from jumok.config._gpt import ACTIVATIONS, Family, GPTConfig, Mixing, RungConfig
from jumok.config._model import Activation, BlockConfig, ModelConfig, PoolingKind
from jumok.config._size import (
    count_blocks,
    count_cached,
    count_constants,
    count_kept,
    count_parameters,
)
from jumok.config._training import MOST_PASSES, Attention, Precision, TaskName, TrainConfig
from jumok.config._variant import GPTVariantConfig, RopeScaling

__all__ = [
    "ACTIVATIONS",
    "CLASSIC_DEFAULTS",
    "CLASSIFY_INIT_DEFAULTS",
    "INIT_DEFAULTS",
    "LORA_DEFAULTS",
    "MOST_PASSES",
    "MUON_DEFAULTS",
    "ORIGINAL_DEFAULTS",
    "SENTENCE_DEFAULTS",
    "SIZES",
    "SPECIAL_IDS",
    "TASK_DEFAULTS",
    "TRAINABLE",
    "WORD_DEFAULTS",
    "Activation",
    "Attention",
    "BERTConfig",
    "BlockConfig",
    "EncoderDecoderConfig",
    "EncoderDecoderFamily",
    "EncoderFamily",
    "Family",
    "GPTConfig",
    "GPTVariantConfig",
    "Head",
    "Mixing",
    "ModelConfig",
    "PoolingKind",
    "Precision",
    "RopeScaling",
    "RungConfig",
    "TaskName",
    "TrainConfig",
    "configure",
    "count_blocks",
    "count_cached",
    "count_constants",
    "count_kept",
    "count_parameters",
    "field_choices",
    "field_types",
    "from_dict",
    "given_fields",
    "given_settings",
    "require_choice",
    "require_range",
    "require_type",
    "require_types",
    "resolve",
    "to_dict",
]
