"""Settings: frozen, keyword-only configurations, checked on creation, and independent of torch.

A run has a shape (`GPTConfig`, `BERTConfig`, `EncoderDecoderConfig`), the settings of training that all tasks share
(`TrainConfig`), and those of its task (`TaskConfig`). `resolve` makes them of what was given. Fields with a derived
default, such as head_dim, are filled in on creation, so they are never None afterwards. The options of the command
line, TOML files, the arguments of `jumok.train` and config.json are derived from the fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumok.lazy import lazily

if TYPE_CHECKING:
    from jumok.config._bert import BERTConfig
    from jumok.config._encoder_decoder import EncoderDecoderConfig
    from jumok.config._fields import (
        field_choices,
        field_types,
        fields_that_may_change,
        from_dict,
        require_choice,
        require_count,
        require_range,
        require_setting,
        require_type,
        to_dict,
        validate,
    )
    from jumok.config._gpt import GPTConfig, RopeScaling, RungConfig
    from jumok.config._model import Activation, BlockConfig, Frame, GenerationRules, ModelConfig
    from jumok.config._resolve import SIZES, default_cases, named_settings, other_task, resolve
    from jumok.config._size import (
        FIRST_CACHED,
        count_cached,
        count_constants,
        count_kept,
        count_parameters,
        matrices,
        stacks,
    )
    from jumok.config._tasks import (
        TASK_CONFIGS,
        ChatConfig,
        ClassifyConfig,
        LMConfig,
        MLMConfig,
        PreferenceConfig,
        RewardConfig,
        Seq2SeqConfig,
        TaskConfig,
    )
    from jumok.config._training import SHARED_DEFAULTS, Attention, Precision, TrainConfig, task_fields
    from jumok.config._variant import GPTVariantConfig
else:
    __getattr__ = lazily(
        __name__,
        {
            "_bert": "BERTConfig",
            "_encoder_decoder": "EncoderDecoderConfig",
            "_fields": (
                "field_choices field_types fields_that_may_change from_dict require_choice require_count require_range "
                "require_setting require_type to_dict validate"
            ),
            "_gpt": "GPTConfig RopeScaling RungConfig",
            "_model": "Activation BlockConfig Frame GenerationRules ModelConfig",
            "_resolve": "SIZES default_cases named_settings other_task resolve",
            "_size": "FIRST_CACHED count_cached count_constants count_kept count_parameters matrices stacks",
            "_tasks": (
                "TASK_CONFIGS ChatConfig ClassifyConfig LMConfig MLMConfig PreferenceConfig RewardConfig "
                "Seq2SeqConfig TaskConfig"
            ),
            "_training": "SHARED_DEFAULTS Attention Precision TrainConfig task_fields",
            "_variant": "GPTVariantConfig",
        },
    )

__all__ = [
    "FIRST_CACHED",
    "SHARED_DEFAULTS",
    "SIZES",
    "TASK_CONFIGS",
    "Activation",
    "Attention",
    "BERTConfig",
    "BlockConfig",
    "ChatConfig",
    "ClassifyConfig",
    "EncoderDecoderConfig",
    "Frame",
    "GPTConfig",
    "GPTVariantConfig",
    "GenerationRules",
    "LMConfig",
    "MLMConfig",
    "ModelConfig",
    "Precision",
    "PreferenceConfig",
    "RewardConfig",
    "RopeScaling",
    "RungConfig",
    "Seq2SeqConfig",
    "TaskConfig",
    "TrainConfig",
    "count_cached",
    "count_constants",
    "count_kept",
    "count_parameters",
    "default_cases",
    "field_choices",
    "field_types",
    "fields_that_may_change",
    "from_dict",
    "matrices",
    "named_settings",
    "other_task",
    "require_choice",
    "require_count",
    "require_range",
    "require_setting",
    "require_type",
    "resolve",
    "stacks",
    "task_fields",
    "to_dict",
    "validate",
]
