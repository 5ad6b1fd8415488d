"""The devices that a run is planned for: those of a data sheet, or the one of this machine, measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from jumok.config import ModelConfig, Precision, TrainConfig
from jumok.device import processor_name
from jumok.memory import free_memory
from jumok.training.planning.activations import FLOAT, Pass
from jumok.training.planning.autotune import open_precisions, usual_attention
from jumok.training.planning.devices import DataSheet
from jumok.training.planning.estimate import Machine
from jumok.training.planning.footprint import sizes_of
from jumok.training.planning.rehearsal import Rehearsal, rehearse
from jumok.training.planning.work import ASSUMED_UTILISATION, USABLE, flops_per_token, sheet_seconds

BYTES: dict[Precision, int] = {"float32": FLOAT, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """A machine, the kind of pass on it, and where its figures come from.

    precision: of the passes. utilisation: of the peak of a data sheet, stated or `assumed`. measured: floating-point
    operations per second. sheet: None for this machine.
    """

    machine: Machine
    work: Pass
    precision: Precision
    sheet: DataSheet | None = None
    assumed: bool = False
    utilisation: float | None = None
    measured: float | None = None


def of_sheet(
    shape: ModelConfig,
    config: TrainConfig,
    sheet: DataSheet,
    *,
    devices: int = 1,
    utilisation: float | None = None,
    link: float | None = None,
) -> Chosen:
    """The devices of a data sheet. Their memory is that of GPUs, and attention the fused kernel."""
    precision: Precision = sheet.precision if config.precision == "auto" else config.precision
    work = Pass(rows=1, length=shape.context_length, size=BYTES[precision], attention="fused", gpu=True)
    sizes = sizes_of(shape, config)
    share = ASSUMED_UTILISATION if utilisation is None else utilisation

    def times(one: Pass, among: int) -> tuple[float, float]:
        return sheet_seconds(shape, config, one, sheet, sizes, share, among)

    machine = Machine(
        name=sheet.name,
        devices=devices,
        memory=USABLE * sheet.memory,
        link=(sheet.link if link is None else link) or None,
        times=times,
    )
    return Chosen(
        machine=machine, work=work, precision=precision, sheet=sheet, utilisation=share, assumed=utilisation is None
    )


def of_this(
    shape: ModelConfig,
    config: TrainConfig,
    device: torch.device,
    *,
    devices: int = 1,
    link: float | None = None,
) -> Chosen:
    """The device of this machine, or several like it: measured for some seconds in each precision that is left open."""
    attention = usual_attention(config, device)
    open_to = open_precisions(config, device)
    rows = -(-config.batch_size // devices)
    works = {
        precision: Pass(
            rows=rows,
            length=shape.context_length,
            size=BYTES[precision],
            attention=attention,
            gpu=device.type != "cpu",
        )
        for precision in open_to
    }
    found = {precision: rehearse(shape, config, work, device) for precision, work in works.items()}
    precision = min(open_to, key=lambda name: found[name].of_step(works[name]))
    return Chosen(
        machine=Machine(
            name=processor_name(device),
            devices=devices,
            memory=free_memory(device),
            link=link,
            times=_as_measured(found[precision]),
        ),
        work=works[precision],
        precision=precision,
        measured=flops_per_token(shape, sizes_of(shape, config), shape.context_length)
        / (found[precision].blocks + found[precision].rest),
    )


def _as_measured(found: Rehearsal) -> Callable[[Pass, int], tuple[float, float]]:
    def times(one: Pass, among: int) -> tuple[float, float]:
        return found.of_passes(one), found.of_update(among)

    return times
