"""Settings by name become configurations: what was given, and what it leaves open, in one order."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jumok.config._fields import field_types, from_dict, require_choice, to_dict, unknown_setting
from jumok.config._gpt import GPTConfig
from jumok.config._model import ModelConfig
from jumok.config._tasks import TASK_CONFIGS, Defaults, TaskConfig
from jumok.config._training import LEARNING, LM_WITH_MUON, TrainConfig, task_fields
from jumok.errors import ConfigError
from jumok.messages import tr

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

# Of the classic family of GPT, and of the encoder–decoder of 2017 (sections 5.3 and 5.4 of the paper).
CLASSIC: Defaults = {"optimizer": "adamw", "learning_rate": 1e-3}
ORIGINAL: Defaults = {"schedule": "invsqrt", "label_smoothing": 0.1}

# Of runs that start from a model of another task or another text: high rates and a strong weight decay would overwrite
# what it has learned.
INIT: Defaults = {"matrix_learning_rate": 0.004, "learning_rate": 1e-3, "weight_decay": 0.1, "momentum": 0.95}
# Of adapters. Their factors are not orthogonalised: the singular values of A and B say how strongly each of the few
# directions counts, and Muon would make them all equal.
LORA: Defaults = {"optimizer": "adamw", "learning_rate": 2e-3, "weight_decay": 0.0}


def default_cases() -> dict[str, Defaults]:
    """Return the defaults that differ from those of the fields, by the case in which they do."""
    tasks = TASK_CONFIGS.values()
    return {
        **{task.name: task.defaults for task in tasks},
        "lm with muon": LM_WITH_MUON,
        "classic": CLASSIC,
        "original": ORIGINAL,
        **{case: defaults for task in tasks for case, defaults in task.material_defaults.items()},
        "--init": INIT,
        **{f"{task.name} --init": task.init_defaults for task in tasks},
        "--lora": LORA,
        **{f"{task.name} --lora": task.lora_defaults for task in tasks},
    }


def named_settings(
    overrides: Mapping[str, Any], size: str | None, kind: type[ModelConfig], task: type[TaskConfig]
) -> dict[str, Any]:
    """Return what was given: the settings that are not None, and those of a named size which they leave open.

    Raises:
        ConfigError: a size or a setting is unknown, or is not for this kind of model or this task.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    known = {*field_types(kind), *field_types(TrainConfig), *task_fields(task)} - {"vocab_size"}
    for name in given.keys() - known:
        others = [one.name for one in TASK_CONFIGS.values() if name in _all_fields(one)]
        if others and task.name not in others:
            raise other_task(name, others, task.name)
        raise unknown_setting(name, sorted(known))
    if size is None:
        return given
    require_choice("size", size, SIZES)
    if foreign := [name for name in SIZES[size] if name not in known]:
        raise ConfigError(
            "size={size!r} is for a GPT: it sets {settings}, which this model does not have; choose from {allowed}.",
            size=size,
            settings=", ".join(foreign),
            allowed=", ".join((name for name, values in SIZES.items() if values.keys() <= known)),
        )
    lengths = {"steps", "minutes"}
    of_size = {n: v for n, v in SIZES[size].items() if n not in lengths or given.keys().isdisjoint(lengths)}
    return {**of_size, **given}


def _all_fields(task: type[TaskConfig]) -> set[str]:
    """Return the names of the settings of a task and of the models that it can train."""
    return task_fields(task).union(*map(field_types, task.kinds))


def other_task(name: str, tasks: Sequence[str], task: str, instead: str = "") -> ConfigError:
    """Return the error for a setting that belongs to other tasks than the one of the run."""
    return ConfigError(
        "{name} applies to {--task {tasks}}, but the task is {task}{instead}; leave it out.",
        name=name,
        tasks=tr(" and ").join(tasks),
        task=task,
        instead=instead,
    )


def resolve(
    shape: ModelConfig | type[ModelConfig],
    training: TrainConfig | None,
    task: type[TaskConfig],
    material: Defaults,
    given: Mapping[str, Any],
    *,
    init: ModelConfig | None = None,
    trained_with: Mapping[str, Any] | None = None,
) -> tuple[ModelConfig, TrainConfig]:
    """Return the configurations of a model and of its training.

    A configuration that is passed holds as it is. For one that is not, the defaults of its fields are replaced in this
    order: by those of the task, of the family, and of the material or of a start from another model; and last by what
    was given by name. With the task and the material of the run that has trained `init` it learns as that run did, but
    for a Python file, which is named anew.

    Args:
        shape: the configuration of the model, or its class. training: of training; None: what follows from the rest.
        task: of the run. material: defaults for what is learned from, of `Task.material_defaults`.
        given: settings by name; see `named_settings`.
        init: configuration of the model from which training starts; its architecture is kept.
        trained_with: settings by name of a run that has trained this model on the same material, if there is one.

    Raises:
        ConfigError: a setting is wrong, two contradict each other, or one was given in two places.
    """
    kind = shape if isinstance(shape, type) else type(shape)
    if task.needs_init and init is None:
        raise ConfigError(
            "task {task} trains a model that answers already: name one with {--init RUN}. To make one: jumok train "
            "talk.jsonl --task chat",
            task=task.name,
        )
    story = [task.defaults]
    if given.get("family") == "classic" and issubclass(kind, GPTConfig):
        story.append(CLASSIC)
    if given.get("family") == "original":
        story.append(ORIGINAL)
    if init is None:
        story.append(material)
    elif trained_with is not None and _learns_alike(trained_with, task, given):
        names = {*LEARNING, *task_fields(task)} & trained_with.keys()
        # What is a Python file (of rewards) would be run, and the folder of `init` may be a stranger's.
        story.append({n: trained_with[n] for n in names if not str(trained_with[n]).endswith(".py")})
    elif given.get("lora") is None:
        story += [INIT, task.init_defaults]
    else:
        story += [LORA, task.lora_defaults]
    chosen = {name: value for defaults in [*story, given] for name, value in defaults.items()}

    def of(names: Container[str]) -> dict[str, Any]:
        return {name: value for name, value in chosen.items() if name in names}

    own = field_types(TrainConfig).keys() - {"task"}
    if training is None:
        training = from_dict(TrainConfig, {"task": from_dict(task, of(task_fields(task))), **of(own)})
    else:
        _require_absent(given.keys() & {"task", *own, *task_fields(task)}, training)
    training = replace(training, task=training.task.for_model(kind))
    _require_trainable_adapters(training, init)
    if isinstance(shape, ModelConfig):
        _require_absent(given.keys() & field_types(kind).keys(), shape)
        if init is not None:
            raise ConfigError(
                "a run that begins with the model of {--init} has its shape; leave {shape} out.", shape=kind.__name__
            )
        return shape, training
    fields = of(field_types(kind))
    return from_dict(kind, fields if init is None else _inherited(init, given, fields)), training


def _learns_alike(trained_with: Mapping[str, Any], task: type[TaskConfig], given: Mapping[str, Any]) -> bool:
    """Return True if what suited a run suits one that goes on from its model.

    Lower rates would learn the text by heart (bench/LOG.md, "Training a finished run further").
    """
    adapts = (trained_with.get("lora") is not None, given.get("lora") is not None)
    optimizer = trained_with.get("optimizer")
    return (
        trained_with.get("task", "lm") == task.name
        and adapts[0] == adapts[1]
        and given.get("optimizer", optimizer) == optimizer
    )


def _require_absent(names: Collection[str], config: object) -> None:
    """Raise ConfigError for settings that were given by name beside the configuration that has them."""
    if names:
        raise ConfigError(
            "{names} was given beside {config}, which has it already; give it there.",
            names=", ".join(sorted(names)),
            config=type(config).__name__,
        )


def _require_trainable_adapters(training: TrainConfig, init: ModelConfig | None) -> None:
    """Raise ConfigError for adapters without a model, or with Muon."""
    rank = training.lora
    if rank is None:
        return
    if init is None:
        raise ConfigError("{--lora} trains adapters on a model that exists; name its folder with {--init FOLDER}.")
    if training.optimizer == "muon":
        raise ConfigError(
            "optimizer='muon' does not fit lora={rank}: it orthogonalises the updates of whole matrices, and adapters "
            "are thin factors of them. Leave the optimizer out.",
            rank=rank,
        )


def _inherited(init: ModelConfig, given: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
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
    kept = given.keys() & free
    if isinstance(init, GPTConfig) and not init.labels:  # it has no pooling yet
        kept.add("pooling")
    return {**fields, **{key: chosen[key] for key in kept & chosen.keys()}}
