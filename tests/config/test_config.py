"""Configurations: errors name the value, the allowed values and a remedy.

Bad inputs first: of the wrong type, out of range, not a number, infinite, unknown, misspelt, and two that do not fit
together.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from typing import Any

import pytest
import torch

from jumok.config import (
    SIZES,
    TASK_CONFIGS,
    BERTConfig,
    ClassifyConfig,
    EncoderDecoderConfig,
    GPTConfig,
    MLMConfig,
    ModelConfig,
    RopeScaling,
    Seq2SeqConfig,
    TrainConfig,
    default_cases,
    field_choices,
    field_types,
    from_dict,
    named_settings,
    resolve,
    to_dict,
)
from jumok.errors import ConfigError, JumokError
from jumok.models.gpt import GPT


def resolved(
    settings: dict[str, Any],
    size: str | None = None,
    kind: type[ModelConfig] | None = None,
    init: ModelConfig | None = None,
    trained_with: TrainConfig | None = None,
    material: str = "",
) -> tuple[Any, TrainConfig]:
    """The configurations that a command with these settings has."""
    task = TASK_CONFIGS[settings.get("task", "lm")]
    kind = kind or (task.kinds[0] if init is None else type(init))
    defaults = task.material_defaults[material] if material else {}
    earlier = None if trained_with is None else trained_with.to_dict()
    given = named_settings(settings, size, kind, task)
    return resolve(kind, None, task, defaults, given, init=init, trained_with=earlier)


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
    ({"head_dim": -2}, "head_dim=-2 is out of range"),
    ({"dropout": 1.0}, "dropout=1.0 is out of range: it must be between 0 and 0.95."),
    ({"dropout": math.nan}, "dropout=nan"),
    ({"attention_dropout": 1.5}, "attention_dropout=1.5"),
    ({"rope_theta": math.inf}, "rope_theta=inf is out of range: it must be between 1 and 1e+12."),
    ({"n_layer": 2.5}, "n_layer=2.5 is of type float; it must be of type int."),
    ({"n_layer": True}, "n_layer=True is of type bool"),
    ({"n_layer": None}, "n_layer=None is of type NoneType"),
    ({"n_layer": "4"}, "n_layer='4' is of type str"),
    ({"tie_embeddings": 1}, "tie_embeddings=1 is of type int; it must be of type bool."),
    ({"vocab_size": 9, "bos_id": 9}, "bos_id=9 is out of range: it must be between 0 and 8."),
    ({"vocab_size": 9, "eos_ids": (1, 9)}, "an id in eos_ids=9 is out of range"),
    ({"vocab_size": 9, "frame": {"after": [9]}}, "an id in frame=9 is out of range"),
    ({"vocab_size": 9, "generation": {"bad_words_ids": [[1, 9]]}}, "an id in generation=9 is out of range"),
]

BAD_TRAINING: list[tuple[dict[str, Any], str]] = [
    ({"steps": -5}, "steps=-5 is out of range: it must be between 1 and 1,000,000,000."),
    ({"steps": 10.5}, "steps=10.5 is of type float"),
    ({"steps": 10, "minutes": 5.0}, "steps=10 and minutes=5 were both given; give one of them."),
    ({"minutes": 0.0}, "minutes=0.0 is out of range: it must be more than 0"),
    ({"minutes": math.inf}, "minutes=inf"),
    ({"minutes": math.nan}, "minutes=nan"),
    ({"batch_size": 0}, "batch_size=0"),
    ({"optimizer": "adam"}, "optimizer='adam' is not known; choose from muon, adamw. Did you mean 'adamw'?"),
    ({"schedule": "cosin"}, "Did you mean 'cosine'?"),
    ({"precision": "bf16"}, "precision='bf16' is not known; choose from auto, float32, bfloat16."),
    ({"learning_rate": math.inf}, "learning_rate=inf is out of range: it must be between 0 and 1,000."),
    ({"learning_rate": "fast"}, "learning_rate='fast' is of type str; it must be of type float."),
    ({"final_rate": 1.5}, "final_rate=1.5 is out of range: it must be between 0 and 1."),
    ({"beta1": 1.0}, "beta1=1.0"),
    ({"val": 1.0}, "val=1.0 is out of range: it must be between 0 and 0.9."),
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


@pytest.mark.parametrize("n_embd", [64, 192, 320, 1024])
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
    for config in (GPTConfig, TrainConfig, *TASK_CONFIGS.values()):
        for field in dataclasses.fields(config):
            assert field.metadata["help"], field.name


# --- plain values ---


@pytest.mark.parametrize("config", [GPTConfig(vocab_size=10, family="classic"), ClassifyConfig(lm_weight=0.5)])
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


@pytest.mark.parametrize("task", TASK_CONFIGS)
def test_a_task_is_written_beside_what_all_tasks_share(task: str) -> None:
    """config.json has one flat object, and runs of earlier versions have the settings of all tasks in it."""
    config = TrainConfig(task=task, steps=3)
    flat = json.loads(json.dumps(config.to_dict()))
    assert flat["task"] == task
    assert TrainConfig.of(flat) == config
    assert TrainConfig.of({**flat, "mask_rate": 0.15, "lm_weight": 1.0, "label_smoothing": 0.0}).task.name == task
    with pytest.raises(ConfigError, match="unknown setting 'lm_weigth'"):
        TrainConfig.of({**flat, "lm_weigth": 1.0})


def test_a_task_is_given_by_name_or_with_its_settings() -> None:
    assert TrainConfig(task="mlm").task == MLMConfig()  # type: ignore[arg-type]
    assert TrainConfig(task=MLMConfig(mask_rate=0.3)).to_dict()["mask_rate"] == 0.3
    with pytest.raises(ConfigError, match=r"task='mlmm' is not known; choose from lm, mlm, .* Did you mean 'mlm'\?"):
        TrainConfig(task="mlmm")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mask_rate=0 hides nothing"):
        MLMConfig(mask_rate=0.0)


def test_a_configuration_has_the_defaults_of_its_task() -> None:
    classify, mlm = TrainConfig(task=ClassifyConfig()), TrainConfig(task=MLMConfig(), patience=3)
    assert (classify.passes, TrainConfig().passes, mlm.passes) == (2.0, 12.0, 0.0)
    assert (mlm.warmup, mlm.patience, TrainConfig().warmup) == (0.05, 3, 0.02)
    assert TrainConfig(passes=0.0).passes == 0.0  # what was given holds, also where it is the default of the field


def test_types_and_choices_of_fields() -> None:
    assert field_types(TrainConfig)["steps"] is int
    assert field_types(TrainConfig)["minutes"] is float
    assert field_types(GPTConfig)["family"] is str
    assert field_types(GPTConfig)["tie_embeddings"] is bool
    assert field_choices(TrainConfig)["schedule"] == ("linear", "cosine", "constant", "invsqrt")
    assert "steps" not in field_choices(TrainConfig)


# --- sizes and families ---


def test_given_settings_have_priority_over_size_and_family() -> None:
    model, train = resolved({"n_layer": 3, "family": "classic", "learning_rate": None}, "mini")
    assert (model.n_layer, model.n_head, model.n_embd) == (3, 6, 384)
    assert (train.optimizer, train.learning_rate, train.passes) == ("adamw", 1e-3, 12.0)
    _, train = resolved({"learning_rate": 0.5}, "nanokogpt")
    assert (train.learning_rate, train.optimizer, train.beta2) == (0.5, "adamw", 0.999)


def test_the_story_of_the_defaults_has_one_order() -> None:
    """The task, then the material, then the size, then what was given."""
    assert resolved({"task": "seq2seq"})[1].batch_size == 32
    assert resolved({"task": "seq2seq"}, material="sentences")[1].batch_size == 64
    assert resolved({"task": "seq2seq", "batch_size": 8}, material="sentences")[1].batch_size == 8
    assert resolved({"task": "seq2seq"}, material="words")[0].n_layer == 2
    assert resolved({"task": "seq2seq"}, "mini", material="words")[0].n_layer == 6


def test_a_configuration_that_is_passed_holds_as_it_is() -> None:
    shape, training = GPTConfig(family="classic", n_layer=1), TrainConfig(optimizer="muon", steps=3)
    assert resolve(shape, training, TASK_CONFIGS["lm"], {}, {}) == (shape, training)
    with pytest.raises(ConfigError, match="seed was given beside TrainConfig, which has it already"):
        resolve(shape, training, TASK_CONFIGS["lm"], {}, {"seed": 1})
    with pytest.raises(ConfigError, match="task was given beside TrainConfig"):
        resolve(shape, training, TASK_CONFIGS["lm"], {}, {"task": "lm"})
    with pytest.raises(ConfigError, match="n_layer was given beside GPTConfig"):
        resolve(shape, training, TASK_CONFIGS["lm"], {}, {"n_layer": 2})
    with pytest.raises(ConfigError, match="leave GPTConfig out"):
        resolve(shape, training, TASK_CONFIGS["lm"], {}, {}, init=GPTConfig(vocab_size=9))


def test_only_a_new_language_model_with_muon_has_a_strong_weight_decay_and_little_momentum() -> None:
    """It would overwrite what another model has learned, and was measured with the rates of Muon only."""
    assert resolved({})[1].weight_decay == 0.5
    assert resolved({})[1].momentum == 0.9
    assert resolved({"task": "classify"})[1].momentum == 0.95
    assert resolved({}, init=GPTConfig(vocab_size=300))[1].momentum == 0.95
    assert resolved({"optimizer": "adamw"})[1].weight_decay == 0.1
    assert resolved({"family": "classic"})[1].weight_decay == 0.1
    assert resolved({"family": "classic", "optimizer": "muon"})[1].weight_decay == 0.5
    assert resolved({"weight_decay": 0.1})[1].weight_decay == 0.1
    assert resolved({"task": "classify"})[1].weight_decay == 0.1
    assert resolved({}, "nanokogpt")[1].weight_decay == 0.01
    assert resolved({}, init=GPTConfig(vocab_size=300))[1].weight_decay == 0.1


def test_a_classifier_goes_on_from_another_model_at_a_lower_rate() -> None:
    """Labels teach little about a text: at the rate of language models it forgot more than it learned."""
    init = GPTConfig(vocab_size=300)
    assert resolved({"task": "lm"}, init=init)[1].matrix_learning_rate == 0.004
    assert resolved({"task": "classify"}, init=init)[1].matrix_learning_rate == 0.0015
    assert resolved({"task": "classify", "matrix_learning_rate": 0.01}, init=init)[1].matrix_learning_rate == 0.01
    assert resolved({"task": "classify"})[1].matrix_learning_rate == 0.02
    assert resolved({"lora": 2}, init=init)[1].optimizer == "adamw"


def test_a_model_is_trained_further_as_the_run_of_it_was() -> None:
    """At the rates for other tasks it became worse on its own text; a run that learned by AdamW went on with Muon."""
    task = MLMConfig(mask_rate=0.3)
    learns: dict[str, Any] = {"task": task, "optimizer": "adamw", "learning_rate": 7e-4, "batch_size": 4, "clip": 0.0}
    others: dict[str, Any] = {"eval_every": 3, "keep": "last", "seed": 5, "precision": "float32", "compile": "on"}
    run = TrainConfig(**learns, **others, steps=9)
    init = BERTConfig(vocab_size=300)
    _, further = resolved({"task": "mlm", "steps": 20}, init=init, trained_with=run)
    # It learns as that run did; its length, its validations and what the machine decides are its own.
    assert further == TrainConfig(**learns, steps=20)
    _, given = resolved({"task": "mlm", "learning_rate": 1e-5, "mask_rate": 0.2}, init=init, trained_with=run)
    assert (given.learning_rate, given.to_dict()["mask_rate"], given.batch_size) == (1e-5, 0.2, 4)


@pytest.mark.parametrize(
    ("settings", "earlier"),
    [
        ({"task": "chat"}, TrainConfig(steps=3)),
        ({"task": "classify"}, TrainConfig(steps=3)),
        ({"optimizer": "adamw"}, TrainConfig(steps=3)),
        ({"lora": 2}, TrainConfig(steps=3)),
        ({}, TrainConfig(steps=3, optimizer="adamw", lora=2)),
    ],
)
def test_what_suited_a_run_suits_no_other_kind_of_learning(settings: dict[str, Any], earlier: TrainConfig) -> None:
    init = GPTConfig(vocab_size=300)
    assert resolved(settings, init=init, trained_with=earlier) == resolved(settings, init=init)
    assert resolved({}, init=init, trained_with=TrainConfig(steps=3)) != resolved({}, init=init)


def test_the_shape_of_a_model_to_begin_with_is_kept() -> None:
    init = GPTConfig(vocab_size=9, n_embd=256, head_dim=16, context_length=64)
    shape, _ = resolved({"dropout": 0.2, "context_length": 32, "n_embd": 256}, init=init)
    assert (shape.dropout, shape.context_length, shape.head_dim) == (0.2, 32, 16)
    for given in ({"context_length": 128}, {"n_layer": 9}):
        with pytest.raises(ConfigError, match="the model to begin with has"):
            resolved(given, init=init)


def test_only_a_gpt_learns_the_next_token_beside_its_labels() -> None:
    def weight(kind: type[ModelConfig], **settings: Any) -> Any:
        return resolved({"task": "classify", **settings}, kind=kind)[1].to_dict()["lm_weight"]

    assert (weight(GPTConfig), weight(BERTConfig), weight(GPTConfig, lm_weight=0.0)) == (1.0, 0.0, 0.0)
    with pytest.raises(ConfigError, match=r"lm_weight=0\.5 adds the loss of the next token, which a BERT already sees"):
        weight(BERTConfig, lm_weight=0.5)


def test_the_transformer_of_2017_is_trained_as_its_paper_says() -> None:
    given = {"task": "seq2seq", "family": "original"}
    _, train = resolved(given)
    assert (train.schedule, train.task, train.warmup) == ("invsqrt", Seq2SeqConfig(label_smoothing=0.1), 0.05)
    _, train = resolved({**given, "schedule": "linear", "label_smoothing": 0.0})
    assert (train.schedule, train.task) == ("linear", Seq2SeqConfig())
    _, train = resolved({**given, "family": "classic"})
    assert (train.schedule, train.task) == ("linear", Seq2SeqConfig())


def test_a_budget_replaces_the_sizes_own() -> None:
    assert resolved({}, "nanokogpt")[1].steps == 10_000
    assert resolved({"minutes": 5.0}, "nanokogpt")[1].minutes == 5.0
    assert resolved({"steps": 7}, "nanokogpt")[1].steps == 7


def test_every_default_is_that_of_a_field() -> None:
    fields = {**field_types(GPTConfig), **field_types(EncoderDecoderConfig), **field_types(TrainConfig)}
    fields |= {name: kind for task in TASK_CONFIGS.values() for name, kind in field_types(task).items()}
    for case, defaults in default_cases().items():
        assert defaults.keys() <= fields.keys(), case


@pytest.mark.parametrize(
    ("settings", "size", "message"),
    [
        ({}, "nan0", "size='nan0' is not known; choose from nano, micro, mini, small, gpt2, nanokogpt."),
        ({}, "nanokogtp", "Did you mean 'nanokogpt'?"),
        ({"n_head_": 3}, None, "unknown setting 'n_head_'. Did you mean 'n_head'?"),
        ({"vocab_size": 100}, None, "unknown setting 'vocab_size'."),
        ({"mask_rate": 0.2}, None, "mask_rate applies to task=mlm, but the task is lm; leave it out."),
        ({"lora": 2}, None, "lora trains adapters on a model that exists"),
        ({"family": "llama"}, None, "family='llama' is not known; choose from modern, classic."),
    ],
)
def test_what_cannot_be_resolved(settings: dict[str, Any], size: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolved(settings, size)


def test_a_size_of_another_kind_is_named() -> None:
    """The message named a setting that the user had not given."""
    for kind in (BERTConfig, EncoderDecoderConfig):
        with pytest.raises(ConfigError, match=r"'nanokogpt' is for a GPT: it sets .*head_dim.*; choose from nano,"):
            resolved({"task": "mlm" if kind is BERTConfig else "seq2seq"}, "nanokogpt", kind)


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("size", SIZES)
def test_every_size_builds(size: str, family: str) -> None:
    if (size, family) == ("nanokogpt", "modern"):  # whose ReLU that family does not have
        with pytest.raises(ConfigError, match="activation='relu' is not known; choose from silu"):
            resolved({"family": family}, size)
        return
    model, _ = resolved({"family": family}, size)
    config = dataclasses.replace(model, vocab_size=1000)
    assert config.family == family
    with torch.device("meta"):
        assert GPT(config).parameter_count() > 0


def test_the_blog_configuration_by_hand() -> None:
    """Six blocks of width 256, 8 heads of 16 (half the width in all), ReLU of 4x, untied, learned positions."""
    shape, t = resolved({}, "nanokogpt")
    c = dataclasses.replace(shape, vocab_size=3000)
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


def test_frequencies_of_rotary_positions_are_in_order() -> None:
    with pytest.raises(ConfigError, match=r"low_freq_factor=4\.0 and high_freq_factor=1\.0; the first must be less"):
        RopeScaling(kind="llama3", factor=2.0, original_context=16, low_freq_factor=4.0, high_freq_factor=1.0)
