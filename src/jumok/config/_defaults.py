"""Default settings by size, task and family, and for runs that start from another model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jumok.config._checks import require_choice
from jumok.config._encoder_decoder import EncoderDecoderConfig
from jumok.config._fields import field_types, from_dict, remember_given, to_dict
from jumok.config._gpt import ACTIVATIONS, GPTConfig
from jumok.config._model import ModelConfig
from jumok.config._training import TrainConfig
from jumok.errors import ConfigError
from jumok.messages import did_you_mean

TRAINABLE = ("gpt", "bert", "encoder_decoder")  # values of `jumok train --model`

# Named sizes: settings of the model and of its training that differ from the defaults of the fields.
SIZES: dict[str, dict[str, Any]] = {
    "nano": {"n_layer": 2, "n_head": 4, "n_embd": 128, "context_length": 128},
    "micro": {"n_layer": 4, "n_head": 4, "n_embd": 256, "context_length": 256},
    "mini": {"n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256},
    "small": {"n_layer": 8, "n_head": 8, "n_embd": 512, "context_length": 512},
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 1024},
    # The configuration of a 2025 Korean blog series on building a GPT from scratch. Unlike there, scores are scaled by
    # head_dim**-0.5 and the final norm is applied.
    "nanokogpt": {
        "family": "classic", "n_layer": 6, "n_head": 8, "n_embd": 256, "head_dim": 16, "context_length": 256,
        "activation": "relu", "dropout": 0.1, "tie_embeddings": False,
        "steps": 10_000, "batch_size": 64, "optimizer": "adamw", "learning_rate": 2e-4, "schedule": "constant",
        "warmup": 0.0, "weight_decay": 0.01, "beta2": 0.999, "clip": 0.0,
    },
}  # fmt: skip

# Training defaults of the classic family of GPT.
CLASSIC_DEFAULTS: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 1e-3}

# Training defaults of a language model with Muon: a strong decay learns faster and overfits later (bench/LOG.md).
MUON_DEFAULTS: dict[str, Any] = {"weight_decay": 0.5}

# Training defaults of the encoder–decoder family "original", from the paper of 2017 (sections 5.3 and 5.4).
ORIGINAL_DEFAULTS: dict[str, Any] = {"schedule": "invsqrt", "label_smoothing": 0.1}

# Defaults of the model and of its training by task.
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "lm": {"passes": 12.0},  # more passes raise the loss on other texts (bench/LOG.md)
    "mlm": {"warmup": 0.05, "patience": 0, "attention_dropout": 0.0},  # the loss may stay on a plateau at first
    # Labels are few and quickly memorised: a shallow model, a second loss, and few passes reduce overfitting.
    "classify": {
        "context_length": 128,
        "batch_size": 16,
        "n_layer": 2,
        "attention_dropout": 0.0,
        "lm_weight": 1.0,
        "token_dropout": 0.1,
        "passes": 2.0,
    },
    "seq2seq": {"n_layer": 3, "n_embd": 192, "context_length": 64, "batch_size": 32, "warmup": 0.05},
}

# Training defaults for pairs of sentences of several words: the learning rates need larger batches than those for
# pairs of single words.
SENTENCE_DEFAULTS: dict[str, Any] = {"batch_size": 64}

# Defaults for pairs of shorter texts: more steps in the time are worth more than size (bench/LOG.md, "Tasks").
WORD_DEFAULTS: dict[str, Any] = {"n_layer": 2, "n_embd": 128}

# Training defaults for runs that start from another model: high learning rates and a strong weight decay would
# overwrite what it has learned.
INIT_DEFAULTS: dict[str, Any] = {"matrix_learning_rate": 0.004, "learning_rate": 1e-3, "weight_decay": 0.1}
# Labels teach little about a text: what was learned before must stay (bench/LOG.md, "Tasks").
CLASSIFY_INIT_DEFAULTS: dict[str, Any] = {"matrix_learning_rate": 0.0015}

# Training defaults for adapters. Their factors are not orthogonalised: the singular values of A and B say how strongly
# each of the few directions counts, and Muon would make them all equal.
LORA_DEFAULTS: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 0.0}


def resolve(
    settings: Mapping[str, Any], size: str | None = None, kind: type[ModelConfig] = GPTConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the model and of its training: `settings`, completed by those of size, task and family.

    Settings in `settings` have priority, then those of the size, of the task, and of the family.

    Args:
        settings: any fields of `kind` and TrainConfig; None means not given.
        size: a name in SIZES.
        kind: the class of the model's configuration.

    Returns:
        fields of `kind` (without vocab_size), and fields of TrainConfig.

    Raises:
        ConfigError: a size or field is unknown, or vocab_size is given, which the tokenizer determines.
    """
    if size is not None:
        require_choice("size", size, SIZES)
    given = {key: value for key, value in settings.items() if value is not None}
    task = given.get("task", "lm")
    require_choice("task", task, TASK_DEFAULTS)
    model_fields, train_fields = field_types(kind), field_types(TrainConfig)
    fields = {**model_fields, **train_fields}
    of_size = SIZES.get(size or "", {})
    if foreign := [key for key in of_size if key not in fields]:
        raise ConfigError(
            "size={size!r} is for a GPT: it sets {settings}, which this model does not have; choose from {allowed}.",
            size=size,
            settings=", ".join(foreign),
            allowed=", ".join((name for name, values in SIZES.items() if values.keys() <= fields.keys())),
        )
    of_task = {key: value for key, value in TASK_DEFAULTS[task].items() if key in fields}
    if not issubclass(kind, GPTConfig):
        of_task.pop("lm_weight", None)  # only a GPT predicts the next token
    chosen = {**of_task, **of_size, **given}
    if "steps" in given or "minutes" in given:  # a given length replaces that of the size
        chosen = {k: v for k, v in chosen.items() if k not in ("steps", "minutes") or k in given}
    if issubclass(kind, GPTConfig):
        require_choice("family", chosen.get("family", "modern"), ACTIVATIONS)
        if chosen.get("family") == "classic":
            chosen = {**CLASSIC_DEFAULTS, **chosen}
    elif issubclass(kind, EncoderDecoderConfig) and chosen.get("family") == "original":
        chosen = {**ORIGINAL_DEFAULTS, **chosen}
    if task == "lm" and chosen.get("optimizer", "muon") == "muon":
        chosen = {**MUON_DEFAULTS, **chosen}
    for key in chosen:
        if key == "vocab_size" or key not in fields:
            known = sorted(fields.keys() - {"vocab_size"})
            raise ConfigError(
                "unknown setting {key!r}.{hint} Known: {known}.",
                key=key,
                hint=did_you_mean(key, known),
                known=", ".join(known),
            )
    return (
        {key: value for key, value in chosen.items() if key in model_fields},
        {key: value for key, value in chosen.items() if key in train_fields},
    )


def given_settings(settings: Mapping[str, Any], size: str | None, kind: type[ModelConfig]) -> dict[str, Any]:
    """Return the resolved settings that were given, in `settings` or by the size."""
    model_fields, train_fields = resolve(settings, size, kind)
    named = {key for key, value in settings.items() if value is not None} | SIZES.get(size or "", {}).keys()
    return {key: value for key, value in {**model_fields, **train_fields}.items() if key in named}


def configure(
    settings: Mapping[str, Any],
    size: str | None = None,
    kind: type[ModelConfig] = GPTConfig,
    init: ModelConfig | None = None,
) -> tuple[ModelConfig, TrainConfig]:
    """Return the configurations of a model and of its training.

    The fields in `settings` and `size` count as given; see `jumok.config.given_fields`.

    Args:
        settings, size, kind: see `resolve`.
        init: configuration of the model from which training starts; its architecture is kept.

    Raises:
        ConfigError: as in `resolve` and the configurations; or the settings contradict `init`.
    """
    given = given_settings(settings, size, kind)
    if init is not None:
        of_task = CLASSIFY_INIT_DEFAULTS if settings.get("task") == "classify" else {}
        defaults = {**INIT_DEFAULTS, **of_task} if given.get("lora") is None else LORA_DEFAULTS
        settings = {**defaults, **{key: value for key, value in settings.items() if value is not None}}
    _require_trainable_adapters(given, init)
    model_fields, train_fields = resolve(settings, size, kind)
    if init is not None:
        model_fields = _inherited(init, given, model_fields)
    model, training = from_dict(kind, model_fields), from_dict(TrainConfig, train_fields)
    remember_given(model, given.keys() & model_fields.keys())
    remember_given(training, given.keys() & train_fields.keys())
    return model, training


def _require_trainable_adapters(given: Mapping[str, Any], init: ModelConfig | None) -> None:
    """Raise ConfigError for adapters without a model, wider than it, or with Muon."""
    rank = given.get("lora")
    if rank is None:
        return
    if init is None:
        raise ConfigError("{--lora} trains adapters on a model that exists; name its folder with {--init FOLDER}.")
    width = to_dict(init)["n_embd"]
    if rank > width:
        raise ConfigError(
            "lora={rank} is larger than n_embd={width} of the model: the adapters would have more parameters than its "
            "matrices. Give a small rank, for example 8.",
            rank=rank,
            width=width,
        )
    if given.get("optimizer") == "muon":
        raise ConfigError(
            "optimizer='muon' does not fit lora={rank}: it orthogonalises the updates of whole matrices, and adapters "
            "are thin factors of them. Leave the optimizer out.",
            rank=rank,
        )


def _inherited(init: ModelConfig, given: Mapping[str, Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `init`; dropout and pooling can differ, and the context of rotary positions be shorter."""
    fields, free = to_dict(init), {"dropout", "attention_dropout", "pooling"}
    length = given.get("context_length")
    if isinstance(init, GPTConfig) and init.rotated and isinstance(length, int) and length < init.context_length:
        free.add("context_length")
    for key in (given.keys() & fields.keys()) - free:
        if fields[key] != given[key]:
            raise ConfigError(
                "{key}={given!r} was given, and the model to begin with has {found!r}; leave it out, or "
                "leave out {--init}.",
                key=key,
                given=given[key],
                found=fields[key],
            )
    chosen = given.keys() & free
    if isinstance(init, GPTConfig) and not init.labels:  # it has no pooling yet
        chosen.add("pooling")
    return {**fields, **{key: resolved[key] for key in chosen & resolved.keys()}}
