"""`jumok plan`: the memory, the time and the cost of a run, before it is started."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import plain_floats, print_json, say
from jumok.cli.train_options import FROM_THE_TEXT, field_options
from jumok.config import (
    SIZES,
    TRAINABLE,
    EncoderDecoderConfig,
    GPTConfig,
    ModelConfig,
    TrainConfig,
    field_types,
    require_range,
)
from jumok.errors import ConfigError
from jumok.messages import tr
from jumok.processors import let_waiting_threads_sleep

if TYPE_CHECKING:
    from jumok.training.planning.estimate import Estimate
    from jumok.training.planning.machines import Chosen

PLANNED = (  # fields of TrainConfig that change memory or time
    "task", "steps", "batch_size", "accumulate", "optimizer", "mask_rate", "lm_weight", "precision", "attention",
    "recompute", "shard", "lora",
)  # fmt: skip
NOT_PLANNED = tuple(name for name in field_types(TrainConfig) if name not in PLANNED)
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}
VOCABULARY = 8000  # the default of a bpe tokenizer
MOST = 10**18  # tokens
MOST_DEVICES = 1_000_000


@click.command(
    cls=Verb,
    short_help="Plan the memory, time and cost of a run.",
    examples="""
    jumok plan --size gpt2 --tokens 2.5B --device h100 --devices 8
    jumok plan --size gpt2 --tokens 2.5B --device rtx4090 --utilisation 0.4 --price 0.5
    jumok plan --size small --vocab-size 16000 --batch-size 64 --tokens 300M
    jumok plan runs/novel --device l4 --json
    jumok plan --init models/kogpt2 --lora 8 --tokens 10M
    """,
)
@click.argument("run", required=False, metavar="[RUN]", type=click.Path(path_type=Path))
@option("--tokens", help="tokens to train on, such as 2.5B, 300M or 1e9 [compute-optimal: 20 for each parameter]")
@option(
    "--device",
    default="auto",
    section="Devices",
    help="a data sheet: h100, h200, a100, l4, rtx4090, ...; or auto, cpu, cuda or mps: this machine, measured [auto]",
)
@option("--devices", type=int, section="Devices", help="number of devices, all alike [1; the processes of a RUN]")
@option("--utilisation", type=float, section="Devices", help="share of the peak of a data sheet that is reached [0.3]")
@option(
    "--interconnect",
    type=float,
    section="Devices",
    help="GB/s that each device sends to the others [of the data sheet, inside a host]",
)
@option("--price", type=float, section="Devices", help="price of a device for an hour, in any currency")
@option("--size", section="Model", help=f"{', '.join(SIZES)} [micro]; the options below override it")
@option("--model", type=click.Choice(TRAINABLE), section="Model", help="kind of model [by task]")
@option(
    "--init",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    section="Model",
    help="plan further training of this model, a run or a transformers model folder",
)
@option("--vocab-size", type=int, section="Model", help=f"number of token ids [{VOCABULARY}]")
@field_options(GPTConfig, "Model", skip=("vocab_size", *FROM_THE_TEXT))
@field_options(EncoderDecoderConfig, "Model", skip=(*field_types(GPTConfig), *FROM_THE_TEXT))
@field_options(TrainConfig, "Training", skip=NOT_PLANNED)
@common(device=False)
def plan(
    run: Path | None,
    tokens: str | None,
    device: str,
    devices: int | None,
    utilisation: float | None,
    interconnect: float | None,
    price: float | None,
    init: Path | None,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Plan a run: its memory on each device, its time, and the options with which it fits.

    The model is that of a RUN, of --init, or of the options of `jumok train`. With a data sheet, the time is that of
    the peak times --utilisation. On this machine it is measured for some seconds, with one block of the model.
    """
    let_waiting_threads_sleep()
    _require_sensible(1 if devices is None else devices, utilisation, interconnect, price)
    count = None if tokens is None else parse_count(tokens)
    given = {key: value for key, value in flags.items() if value is not None}
    if count is not None and "steps" in given:
        raise ConfigError("{--tokens} and {--steps} were both given; give one of them.")

    from jumok.cli.console.plan import show_plan
    from jumok.training.planning.estimate import estimate

    if init is not None:
        if run is not None:
            raise ConfigError("a RUN and {--init} were both given; give one of them.")
        if count is None and "steps" not in given:
            raise ConfigError("with {--init} a length is needed: give {--tokens} or {--steps}.")
    shape, config, recorded, processes = (
        _of_run(run, given) if run is not None else (*_of_options(given, init), None, 1)
    )
    if config.lora is not None and (devices or processes) > 1:
        raise ConfigError("{--lora} trains in one process; leave out {--devices}, or leave out {--lora}.")
    chosen = _choose(
        shape, config, device, processes if devices is None else devices, utilisation, interconnect, quiet=quiet
    )
    if count is None and "steps" in given:
        count = config.batch_size * config.accumulate * shape.context_length * int(given["steps"])
    found = estimate(
        shape,
        config,
        chosen.work,
        chosen.machine,
        tokens=recorded if count is None else count,
        price=price,
        shard=config.shard,
        recompute=config.recompute,
    )
    if as_json:
        print_json(_plain(found, chosen, shape))
        return
    assumed = run is None and init is None and "vocab_size" not in given
    show_plan(found, chosen, shape, assumed_vocabulary=assumed, further=init is not None, quiet=quiet)


def _require_sensible(devices: int, utilisation: float | None, interconnect: float | None, price: float | None) -> None:
    require_range("devices", devices, 1, MOST_DEVICES)
    if utilisation is not None and not 0 < utilisation <= 1:
        raise ConfigError(
            "utilisation={value:g} is not a share of the peak: give more than 0 and at most 1.", value=utilisation
        )
    for name, value in (("interconnect", interconnect), ("price", price)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError("{name}={value:g} is out of range: it must be more than 0.", name=name, value=value)


def _plain(found: Estimate, chosen: Chosen, shape: ModelConfig) -> dict[str, Any]:
    """The object of --json: bytes, seconds, operations."""
    return {
        "device": chosen.machine.name,
        "devices": chosen.machine.devices,
        "precision": chosen.precision,
        "vocab_size": shape.vocab_size,
        "data_sheet": None if chosen.sheet is None else dataclasses.asdict(chosen.sheet),
        "utilisation": chosen.utilisation,
        "measured_flops": chosen.measured,
        "usable_memory": chosen.machine.memory,
        "interconnect": chosen.machine.link,
        **plain_floats(dataclasses.asdict(found), digits=9),
    }


def parse_count(text: str) -> int:
    """Read a number of tokens: 2.5B, 300M, 1e9, 10_000.

    Raises:
        ConfigError: it is not a number, or not positive.
    """
    match = re.fullmatch(r"([+-]?[\d_.,]+(?:e[+-]?\d+)?)\s*([kmbgt]?)", text.strip(), flags=re.IGNORECASE)
    try:
        count = float(match[1].replace(",", "")) * UNITS[match[2].upper()] if match else math.nan
    except ValueError:
        count = math.nan
    if math.isnan(count):
        raise ConfigError(
            "tokens={text!r} is not a number of tokens; write for example 2.5B (10^9), 300M (10^6) or 20K (10^3).",
            text=text,
        )
    if not 1 <= count <= MOST:
        raise ConfigError("tokens={text} is out of range: it must be at least 1, and at most 10^18.", text=text)
    return round(count)


def _of_options(given: dict[str, Any], init: Path | None) -> tuple[ModelConfig, TrainConfig]:
    """The configurations of the options, completed as in `jumok train`; init: the model to train further."""
    from jumok.models import KINDS, kind_name
    from jumok.training.settings import configurations
    from jumok.training.tasks import TASKS

    settings = {"steps": 1, **given}
    size, kind, vocabulary = (settings.pop(name, None) for name in ("size", "model", "vocab_size"))
    if init is not None and vocabulary is not None:
        raise ConfigError("{init} has its own tokenizer: leave {--vocab-size} out.", init=init)
    found = configurations(settings, size=size, kind=None if kind is None else KINDS[kind], init=init)
    shape, config = found["model"], found["training"]
    kinds = TASKS[config.task].kinds
    if type(shape) not in kinds:
        raise ConfigError(
            "a model of the kind {kind!r} cannot be trained for this task; choose from {allowed}.",
            kind=kind_name(type(shape)),
            allowed=", ".join(map(kind_name, kinds)),
        )
    fields: dict[str, Any] = {"vocab_size": VOCABULARY if vocabulary is None else vocabulary} if init is None else {}
    if config.task == "classify":
        fields["labels"] = ("0", "1")  # the number of labels hardly matters
        if "head" in field_types(type(shape)):
            fields["head"] = "classify"
    return dataclasses.replace(shape, **fields), config


def _of_run(run: Path, given: dict[str, Any]) -> tuple[ModelConfig, TrainConfig, int, int]:
    """The configurations of a run folder, with other training options; its planned tokens, and its processes."""
    from jumok.runs.folder import RunFolder
    from jumok.training.run_record import RunRecord

    own = sorted(given.keys() - set(PLANNED) | given.keys() & {"task", "lora"})
    if own:
        raise ConfigError(
            "{run} has its own model: leave {options} out.",
            run=run,
            options=", ".join("--" + name.replace("_", "-") for name in own),
        )
    record = RunRecord.of(RunFolder.open(run))
    lengths = {"steps": given["steps"], "minutes": None} if "steps" in given else {}
    config = dataclasses.replace(record.config, **{**given, **lengths})
    return record.shape, config, record.planned_tokens, (record.machine or {}).get("processes", 1)


def _choose(
    shape: ModelConfig,
    config: TrainConfig,
    device: str,
    devices: int,
    utilisation: float | None,
    interconnect: float | None,
    *,
    quiet: bool,
) -> Chosen:
    from jumok.device import choose_device
    from jumok.training.planning.devices import data_sheet
    from jumok.training.planning.machines import of_sheet, of_this

    link = None if interconnect is None else 1e9 * interconnect
    sheet = data_sheet(device)
    if sheet is not None:
        return of_sheet(shape, config, sheet, devices=devices, utilisation=utilisation, link=link)
    if utilisation is not None:
        raise ConfigError(
            "{--utilisation} is for a data sheet, such as {--device h100}; on this machine the time is measured."
        )
    say(tr("measuring one block of the model on this machine"), quiet=quiet)
    return of_this(shape, config, choose_device(device), devices=devices, link=link)
