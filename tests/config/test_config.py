"""Configurations: errors name the value, the allowed values and a remedy.

Bad inputs first: of the wrong type, out of range, not a number, infinite, unknown, misspelt, and two that do not fit
together.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle
import re
from typing import Any

import pytest
import torch

from jumok.config import (
    CLASSIC_DEFAULTS,
    SIZES,
    BERTConfig,
    EncoderDecoderConfig,
    Frame,
    GPTConfig,
    GPTVariantConfig,
    RungConfig,
    TrainConfig,
    configure,
    field_choices,
    field_types,
    from_dict,
    given_fields,
    resolve,
    to_dict,
)
from jumok.errors import ConfigError, JumokError
from jumok.models.gpt import GPT

BAD_SHAPES: list[tuple[dict[str, Any], str]] = [
    ({"n_embd": 250, "n_head": 6}, "n_embd=250 is not divisible by n_head=6; use n_embd=246 or 252"),
    ({"n_embd": 3, "n_head": 8}, "n_embd=3 is not divisible by n_head=8; use n_embd=8,"),
    (
        {"n_head": 6, "n_embd": 384, "n_kv_head": 4},
        "n_head=6 is not divisible by n_kv_head=4; use one of 1, 2, 3, 6 for n_kv_head.",
    ),
    ({"head_dim": 33}, "head_dim=33 is odd, and rotary positions rotate pairs of dimensions; use 32 or 34."),
    ({"head_dim": 1}, "head_dim=1 is odd, and rotary positions rotate pairs of dimensions; use 2."),
    ({"family": "classic", "n_kv_head": 2}, "n_kv_head=2 differs from n_head=4"),
    ({"family": "modren"}, "family='modren' is not known; choose from modern, classic. Did you mean 'modern'?"),
    ({"activation": "gelu"}, "activation='gelu' is not known; choose from silu."),
    ({"family": "classic", "activation": "silu"}, "choose from gelu, relu."),
    ({"n_layer": 0}, "n_layer=0 is out of range: it must be between 1 and 10,000."),
    ({"n_layer": -1}, "n_layer=-1 is out of range"),
    ({"vocab_size": 0}, "vocab_size=0 is out of range"),
    ({"context_length": 0}, "context_length=0 is out of range"),
    ({"n_head": 0}, "n_head=0 is out of range"),
    ({"n_kv_head": 0}, "n_kv_head=0 is out of range"),
    ({"head_dim": -2}, "head_dim=-2 is out of range"),
    ({"mlp_width": 0}, "mlp_width=0 is out of range"),
    ({"dropout": 1.0}, "dropout=1.0 is out of range: it must be between 0 and 0.95."),
    ({"dropout": -0.1}, "dropout=-0.1"),
    ({"dropout": math.nan}, "dropout=nan"),
    ({"attention_dropout": 1.5}, "attention_dropout=1.5"),
    ({"norm_eps": -1e-6}, "norm_eps=-1e-06"),
    ({"rope_theta": math.inf}, "rope_theta=inf is out of range: it must be between 1 and 1e+12."),
    ({"n_layer": 2.5}, "n_layer=2.5 is of type float; it must be of type int."),
    ({"n_layer": True}, "n_layer=True is of type bool"),
    ({"n_layer": None}, "n_layer=None is of type NoneType"),
    ({"n_layer": "4"}, "n_layer='4' is of type str"),
    ({"tie_embeddings": 1}, "tie_embeddings=1 is of type int; it must be of type bool."),
    ({"family": 5}, "family=5 is of type int"),
]

BAD_TRAINING: list[tuple[dict[str, Any], str]] = [
    ({"steps": -5}, "steps=-5 is out of range: it must be between 1 and 1,000,000,000."),
    ({"steps": 0}, "steps=0"),
    ({"steps": 10.5}, "steps=10.5 is of type float"),
    ({"steps": 10, "minutes": 5.0}, "steps=10 and minutes=5 were both given; give one of them."),
    ({"minutes": 0.0}, "minutes=0.0 is out of range: it must be more than 0"),
    ({"minutes": -1.0}, "minutes=-1.0"),
    ({"minutes": math.inf}, "minutes=inf"),
    ({"minutes": math.nan}, "minutes=nan"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"accumulate": 0}, "accumulate=0"),
    ({"optimizer": "adam"}, "optimizer='adam' is not known; choose from muon, adamw. Did you mean 'adamw'?"),
    ({"schedule": "cosin"}, "Did you mean 'cosine'?"),
    ({"precision": "bf16"}, "precision='bf16' is not known; choose from auto, float32, bfloat16."),
    ({"compile": "yes"}, "choose from auto, on, off"),
    ({"learning_rate": -1.0}, "learning_rate=-1.0"),
    ({"learning_rate": math.inf}, "learning_rate=inf is out of range: it must be between 0 and 1,000."),
    ({"learning_rate": math.nan}, "learning_rate=nan"),
    ({"learning_rate": "fast"}, "learning_rate='fast' is of type str; it must be of type float."),
    ({"matrix_learning_rate": -0.1}, "matrix_learning_rate=-0.1"),
    ({"weight_decay": -0.1}, "weight_decay=-0.1"),
    ({"clip": -1.0}, "clip=-1.0"),
    ({"final_rate": 1.5}, "final_rate=1.5 is out of range: it must be between 0 and 1."),
    ({"warmup": -0.1}, "warmup=-0.1"),
    ({"beta1": 1.0}, "beta1=1.0"),
    ({"beta2": 1.0}, "beta2=1.0"),
    ({"momentum": 1.0}, "momentum=1.0"),
    ({"val": 1.0}, "val=1.0 is out of range: it must be between 0 and 0.9."),
    ({"val": -0.1}, "val=-0.1"),
    ({"eval_every": -1}, "eval_every=-1"),
    ({"patience": -1}, "patience=-1"),
    ({"sample_tokens": -1}, "sample_tokens=-1"),
    ({"save_every": -1.0}, "save_every=-1.0"),
    ({"seed": -1}, "seed=-1"),
    ({"seed": 2**31}, "seed=2147483648"),
    ({"schedule": "invsqrt", "warmup": 0.0}, "schedule='invsqrt' with warmup=0 would keep the learning rate at zero"),
]


@pytest.mark.parametrize(("values", "message"), BAD_SHAPES, ids=str)
def test_a_wrong_shape_is_refused(values: dict[str, Any], message: str) -> None:
    """A count such as 2.5 or "4" was accepted, and building the model failed."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        GPTConfig(**{"vocab_size": 10, **values})


@pytest.mark.parametrize(("values", "message"), BAD_TRAINING, ids=str)
def test_a_wrong_training_setting_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        TrainConfig(**values)


def test_the_errors_are_jumoks_and_pythons() -> None:
    assert issubclass(ConfigError, JumokError)
    assert issubclass(ConfigError, ValueError)
    assert ConfigError.exit_code == 2


# --- what is filled in ---


def test_modern_defaults() -> None:
    c = GPTConfig(vocab_size=100)
    assert (c.head_dim, c.n_kv_head, c.activation, c.norm_eps, c.mlp_width) == (64, 4, "silu", 1e-6, 704)


def test_classic_defaults() -> None:
    c = GPTConfig(vocab_size=100, family="classic")
    assert (c.head_dim, c.n_kv_head, c.activation, c.norm_eps, c.mlp_width) == (64, 4, "gelu", 1e-5, 1024)


@pytest.mark.parametrize("n_embd", range(64, 1025, 64))
def test_the_modern_mlp_costs_what_the_classic_one_does(n_embd: int) -> None:
    width = GPTConfig(vocab_size=10, n_embd=n_embd).mlp_width
    assert width % 64 == 0
    assert 8 * n_embd / 3 <= width < 8 * n_embd / 3 + 64


def test_an_odd_width_is_fine_with_a_head_dim() -> None:
    assert GPTConfig(vocab_size=10, n_embd=250, n_head=6, head_dim=32).n_embd == 250


def test_ten_minutes_unless_told() -> None:
    assert (TrainConfig().steps, TrainConfig().minutes) == (None, 10.0)
    assert TrainConfig(steps=5).minutes is None


def test_configurations_are_frozen_and_compare() -> None:
    c = GPTConfig(vocab_size=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.n_layer = 5  # type: ignore[misc]
    assert c == GPTConfig(vocab_size=10)
    assert len({c, GPTConfig(vocab_size=10), GPTConfig(vocab_size=11)}) == 2


def test_every_field_has_a_sentence() -> None:
    for config in (GPTConfig, TrainConfig):
        for field in dataclasses.fields(config):
            assert field.metadata["help"], field.name


# --- plain values ---


@pytest.mark.parametrize("config", [GPTConfig(vocab_size=10, family="classic"), TrainConfig(steps=3), TrainConfig()])
def test_round_trip_through_json(config: Any) -> None:
    assert from_dict(type(config), json.loads(json.dumps(to_dict(config)))) == config


def test_a_whole_number_is_a_float_too() -> None:
    assert from_dict(TrainConfig, {"minutes": 5}).minutes == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_layers": 3}, "unknown setting 'n_layers'. Did you mean 'n_layer'? Known: vocab_size, context_length"),
        ({"vocab_size": "many"}, "vocab_size='many' is of type str; it must be of type int."),
    ],
)
def test_wrong_plain_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        from_dict(GPTConfig, values)


def test_a_shape_without_a_vocabulary() -> None:
    """`Trainer.start` takes the vocabulary from the tokenizer; a model cannot be built without."""
    shape = GPTConfig(n_layer=1)
    with pytest.raises(ConfigError, match="vocab_size is missing"):
        GPT(shape)
    assert dataclasses.replace(shape, vocab_size=100) == GPTConfig(vocab_size=100, n_layer=1)


def test_a_configuration_remembers_what_was_given() -> None:
    """A run may decide the fields that were left out; equality does not depend on them."""
    assert given_fields(GPTConfig(n_layer=4, dropout=0.0, n_kv_head=None)) == {"n_layer": 4, "dropout": 0.0}
    assert GPTConfig(n_layer=4, dropout=0.0) == GPTConfig()
    assert given_fields(pickle.loads(pickle.dumps(TrainConfig(steps=3)))) == {"steps": 3}
    model, training = configure({"steps": 3, "n_layer": 2, "seed": None}, "nano")
    assert given_fields(model) == {"n_layer": 2, "n_head": 4, "n_embd": 128, "context_length": 128}
    assert given_fields(training) == {"steps": 3}
    _, training = configure({"task": "classify"})
    assert (training.passes, given_fields(training)) == (2.0, {"task": "classify"})


CHANGES: dict[str, Any] = {  # to values that fit the defaults of all the others
    "n_embd": 512, "n_head": 2, "n_kv_head": 2, "n_decoder_head": 2, "head_dim": 32, "family": "classic",
    "activation": "relu", "pooling": "mean", "task": "mlm", "optimizer": "adamw", "schedule": "cosine",
    "precision": "float32", "attention": "fused", "compile": "off", "mixing": "none", "head": "pooler",
    "embedding_width": 256, "minutes": 3.0, "labels": ("no", "yes"), "eos_ids": (1,), "rope_scaling": None,
    "sliding_layers": (0,), "norm": "layer", "architecture": "llama", "warmup": 0.5, "scale_embedding": True,
    "rotary_dim": 32, "keep": "last", "frame": Frame(before=(1,)), "generation": None,
}  # fmt: skip


def changed(kind: type[Any], field: dataclasses.Field[Any]) -> Any:
    """Another value for a field, which the default values of all others allow; None: there is none."""
    default, named = getattr(kind(), field.name), CHANGES.get(field.name)
    if field_types(kind)[field.name] is bool:
        return not default
    if isinstance(named, str):
        allowed = field_choices(kind).get(field.name, (named,))
        named = named if named in allowed and named != default else next(one for one in allowed if one != default)
    if field.name in CHANGES:
        return named
    return field_types(kind)[field.name](1 if default is None else default / 2 or 0.25)


@pytest.mark.parametrize(
    "kind", [TrainConfig, GPTConfig, RungConfig, GPTVariantConfig, BERTConfig, EncoderDecoderConfig]
)
def test_a_replaced_field_is_given_and_no_other(kind: type[Any]) -> None:
    """`dataclasses.replace` marked 35 of 38 fields as given, so the defaults of a task and a text were overridden."""
    checked = 0
    for field in dataclasses.fields(kind):
        value = changed(kind, field)
        try:
            direct = kind(**{field.name: value})
        except ConfigError:  # needs another field, too
            continue
        if value is None or value == getattr(kind(), field.name):
            continue
        found, checked = dataclasses.replace(kind(), **{field.name: value}), checked + 1
        assert (found, given_fields(found)) == (direct, given_fields(direct)), field.name
        again = dataclasses.replace(found)
        assert (again, given_fields(again)) == (direct, given_fields(direct)), field.name
        for same in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
            assert (same, given_fields(same)) == (direct, given_fields(direct)), field.name
        assert given_fields(kind(**dataclasses.asdict(found))) == given_fields(direct), field.name
        assert "replaced" not in dataclasses.asdict(found)
    assert checked >= len(dataclasses.fields(kind)) - 8


def test_what_was_given_stays_given_when_another_field_is_replaced() -> None:
    """Zero turns a default of the task off, also where it is the default of the field."""
    found = dataclasses.replace(TrainConfig(task="classify", lm_weight=0.0), seed=1)
    assert given_fields(found) == {"task": "classify", "lm_weight": 0.0, "seed": 1}
    assert given_fields(dataclasses.replace(found, lm_weight=0.5, seed=2))["lm_weight"] == 0.5
    assert given_fields(dataclasses.replace(TrainConfig(steps=3), steps=None)) == {}


def test_a_value_that_follows_from_others_follows_a_replaced_one() -> None:
    """The ten minutes of a configuration without a length stood beside the steps that replaced them; and head_dim=64 of
    n_embd=256 was kept for another width."""
    assert dataclasses.replace(TrainConfig(), steps=5) == TrainConfig(steps=5)
    wider = dataclasses.replace(GPTConfig(n_embd=256), n_embd=512)
    assert wider == GPTConfig(n_embd=512)
    assert dataclasses.replace(GPTConfig(n_embd=256, head_dim=32), n_embd=512).head_dim == 32
    model, _ = configure({"dropout": 0.2}, init=GPTConfig(vocab_size=9, n_embd=256, head_dim=16))
    assert dataclasses.replace(model, dropout=0.1).head_dim == 16  # that of the parameters to begin with
    with pytest.raises(ConfigError, match="steps=5 and minutes=3 were both given"):
        dataclasses.replace(TrainConfig(minutes=3.0), steps=5)


def test_types_and_choices_of_fields() -> None:
    assert field_types(TrainConfig)["steps"] is int
    assert field_types(TrainConfig)["minutes"] is float
    assert field_types(GPTConfig)["family"] is str
    assert field_types(GPTConfig)["tie_embeddings"] is bool
    assert field_choices(TrainConfig)["schedule"] == ("linear", "cosine", "constant", "invsqrt")
    assert "steps" not in field_choices(TrainConfig)


# --- sizes and families ---


def test_given_settings_have_priority_over_size_and_family() -> None:
    model, train = resolve({"n_layer": 3, "family": "classic", "learning_rate": None}, "mini")
    assert (model["n_layer"], model["n_head"], model["n_embd"]) == (3, 6, 384)
    assert train == {**CLASSIC_DEFAULTS, "passes": 12.0}
    _, train = resolve({"learning_rate": 0.5}, "nanokogpt")
    assert (train["learning_rate"], train["optimizer"], train["beta2"]) == (0.5, "adamw", 0.999)


def test_only_a_new_language_model_with_muon_has_a_strong_weight_decay() -> None:
    """It would overwrite what another model has learned, and was measured with the rates of Muon only."""
    assert configure({})[1].weight_decay == 0.5
    assert configure({"optimizer": "adamw"})[1].weight_decay == 0.1
    assert configure({"family": "classic"})[1].weight_decay == 0.1
    assert configure({"family": "classic", "optimizer": "muon"})[1].weight_decay == 0.5
    assert configure({"weight_decay": 0.2})[1].weight_decay == 0.2
    assert configure({"task": "classify"})[1].weight_decay == 0.1
    assert configure({}, "nanokogpt")[1].weight_decay == 0.01
    assert configure({}, init=GPTConfig(vocab_size=300))[1].weight_decay == 0.1


def test_a_classifier_goes_on_from_another_model_at_a_lower_rate() -> None:
    """Labels teach little about a text: at the rate of language models it forgot more than it learned."""
    init = GPTConfig(vocab_size=300)
    assert configure({"task": "lm"}, init=init)[1].matrix_learning_rate == 0.004
    assert configure({"task": "classify"}, init=init)[1].matrix_learning_rate == 0.0015
    assert configure({"task": "classify", "matrix_learning_rate": 0.01}, init=init)[1].matrix_learning_rate == 0.01
    assert configure({"task": "classify"})[1].matrix_learning_rate == 0.02


def test_the_transformer_of_2017_is_trained_as_its_paper_says() -> None:
    given = {"task": "seq2seq", "family": "original"}
    _, train = resolve(given, kind=EncoderDecoderConfig)
    assert (train["schedule"], train["label_smoothing"]) == ("invsqrt", 0.1)
    assert TrainConfig(**train).warmup == 0.05
    _, train = resolve({**given, "schedule": "linear", "label_smoothing": 0.0}, kind=EncoderDecoderConfig)
    assert (train["schedule"], train["label_smoothing"]) == ("linear", 0.0)
    _, train = resolve({**given, "family": "classic"}, kind=EncoderDecoderConfig)
    assert not {"schedule", "label_smoothing"} & train.keys()


def test_a_budget_replaces_the_sizes_own() -> None:
    assert resolve({}, "nanokogpt")[1]["steps"] == 10_000
    _, train = resolve({"minutes": 5.0}, "nanokogpt")
    assert "steps" not in train
    assert TrainConfig(**train).minutes == 5.0
    assert resolve({"steps": 7}, "nanokogpt")[1]["steps"] == 7


@pytest.mark.parametrize(
    ("settings", "size", "message"),
    [
        ({}, "nan0", "size='nan0' is not known; choose from nano, micro, mini, small, gpt2, nanokogpt."),
        ({}, "nanokogtp", "Did you mean 'nanokogpt'?"),
        ({"n_head_": 3}, None, "unknown setting 'n_head_'. Did you mean 'n_head'?"),
        ({"vocab_size": 100}, None, "unknown setting 'vocab_size'."),
        ({"family": "llama"}, None, "family='llama' is not known; choose from modern, classic."),
    ],
)
def test_what_cannot_be_resolved(settings: dict[str, Any], size: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(settings, size)


def test_a_size_of_another_kind_is_named() -> None:
    """The message named a setting that the user had not given."""
    for kind in (BERTConfig, EncoderDecoderConfig):
        with pytest.raises(ConfigError, match=r"'nanokogpt' is for a GPT: it sets .*head_dim.*; choose from nano,"):
            resolve({}, "nanokogpt", kind)


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_builds(size: str, family: str) -> None:
    if (size, family) == ("nanokogpt", "modern"):  # whose ReLU that family does not have
        with pytest.raises(ConfigError, match="activation='relu' is not known; choose from silu"):
            GPTConfig(vocab_size=1000, **resolve({"family": family}, size)[0])
        return
    model, train = resolve({"family": family}, size)
    config = GPTConfig(vocab_size=1000, **model)
    assert config.family == family
    assert TrainConfig(**train)
    with torch.device("meta"):
        assert GPT(config).parameter_count() > 0


def test_the_blog_configuration_by_hand() -> None:
    """Six blocks of width 256, 8 heads of 16 (half the width in all), ReLU of 4x, untied, learned positions."""
    model, train = resolve({}, "nanokogpt")
    c, t = GPTConfig(vocab_size=3000, **model), TrainConfig(**train)
    assert (c.n_layer, c.n_embd, c.n_head, c.head_dim, c.mlp_width) == (6, 256, 8, 16, 1024)
    assert (c.activation, c.dropout, c.context_length, c.family) == ("relu", 0.1, 256, "classic")
    assert (t.batch_size, t.optimizer, t.learning_rate, t.steps, t.schedule) == (64, "adamw", 2e-4, 10_000, "constant")
    qkv = 3 * (256 * 128 + 128)
    out = 128 * 256 + 256
    mlp = 256 * 1024 + 1024 + 1024 * 256 + 256
    norms = 2 * 2 * 256
    block = qkv + out + mlp + norms
    everything = 2 * 3000 * 256 + 256 * 256 + 6 * block + 2 * 256  # two embeddings, positions, blocks, last norm
    assert GPT(c).parameter_count() == everything
