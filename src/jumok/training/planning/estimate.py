"""What a run would need on one or several devices: memory, time, money, and the options with which it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jumok.config import MOST_PASSES, ModelConfig, TrainConfig
from jumok.errors import ConfigError
from jumok.training.planning.activations import Pass
from jumok.training.planning.footprint import (
    Memory,
    Sizes,
    cache_bytes,
    device_counts,
    memory,
    rows_that_fit,
    sizes_of,
)
from jumok.training.planning.work import exchanged_bytes, flops_per_token, optimal_tokens


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The devices to plan for.

    devices: how many, all alike. memory: usable bytes of each. link: bytes per second that each sends. Both are None
    if they are unknown. times: returns the seconds of a pass and of an update on one of so many devices.
    """

    name: str
    devices: int
    memory: float | None
    link: float | None
    times: Callable[[Pass, int], tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to train. rows: on each device in each pass. most_rows: that fit. memory: on each device."""

    shard: bool
    recompute: bool
    rows: int
    accumulate: int
    memory: Memory
    fits: bool
    most_rows: int


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Of an optimizer step. exchange: a lower bound, by the bandwidth alone; it is not hidden behind the passes."""

    passes: float
    update: float
    exchange: float

    @property
    def step(self) -> float:
        """All of it."""
        return self.passes + self.update + self.exchange


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The run on so many devices. replicated, sharded: peak bytes on each. seconds, cost: of the whole run."""

    devices: int
    replicated: int
    sharded: int
    tokens_per_second: float
    seconds: float
    cost: float | None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A plan. `way` is the first of `ways` that fits, with more accumulation if need be, or the first one if none does.

    fits: None if the memory of the devices is unknown. flops: of the whole run. cache: bytes of the keys and values of
    a text of context_length tokens. optimal_tokens, optimal_seconds: of a compute-optimal run.
    """

    parameters: int
    tokens: int
    tokens_per_step: int
    steps: int
    flops_per_token: float
    flops: float
    way: Way
    ways: tuple[Way, ...]
    fits: bool | None
    seconds_of_step: Seconds
    seconds: float
    cost: float | None
    optimal_tokens: int
    optimal_seconds: float
    cache: int
    scales: tuple[Scale, ...]


def estimate(
    shape: ModelConfig,
    config: TrainConfig,
    work: Pass,
    machine: Machine,
    *,
    tokens: int | None = None,
    price: float | None = None,
    shard: bool = False,
    recompute: bool = False,
) -> Estimate:
    """Plan a run.

    Args:
        shape, config: of the run; batch_size is that of all devices together.
        work: the kind of pass; its rows and `recompute` are decided here.
        tokens: to train on; None: as many as are compute-optimal. price: of a device for an hour.
        shard, recompute: only plan with these.

    Raises:
        ConfigError: there are more devices than rows in a batch.
    """
    if config.batch_size < machine.devices:
        raise ConfigError(
            "batch_size={batch_size} gives no sequence to some of the {devices} devices; use a {--batch-size} of at "
            "least {devices}.",
            batch_size=config.batch_size,
            devices=machine.devices,
        )
    sizes = sizes_of(shape, config)
    ways = tuple(_ways(shape, config, work, machine, shard=shard, recompute=recompute))
    way = _first_that_fits(shape, config, work, machine, ways)
    config = dataclasses.replace(config, accumulate=way.accumulate)
    tokens_per_step = way.rows * machine.devices * work.length * way.accumulate
    optimal = optimal_tokens(sizes.parameters)
    tokens = optimal if tokens is None else tokens
    times = _seconds(config, work, way, machine, sizes, machine.devices)
    each = flops_per_token(shape, sizes, work.length)
    seconds = tokens / tokens_per_step * times.step
    return Estimate(
        parameters=sizes.parameters,
        tokens=tokens,
        tokens_per_step=tokens_per_step,
        steps=max(1, round(tokens / tokens_per_step)),
        flops_per_token=each,
        flops=each * tokens,
        way=way,
        ways=ways,
        fits=None if machine.memory is None else way.fits,
        seconds_of_step=times,
        seconds=seconds,
        cost=_cost(seconds, machine.devices, price),
        optimal_tokens=optimal,
        optimal_seconds=optimal / tokens_per_step * times.step,
        cache=cache_bytes(shape, work.length),
        scales=tuple(_scales(shape, config, work, way, machine, sizes, tokens, price)),
    )


def _ways(
    shape: ModelConfig, config: TrainConfig, work: Pass, machine: Machine, *, shard: bool, recompute: bool
) -> Iterator[Way]:
    rows = -(-config.batch_size // machine.devices)
    for sharded in (False, True) if machine.devices > 1 and not shard else (shard and machine.devices > 1,):
        for again in (False, True) if not recompute else (True,):
            one = dataclasses.replace(work, rows=rows, recompute=again)
            yield _way(shape, config, one, machine, sharded, config.accumulate)


def _way(shape: ModelConfig, config: TrainConfig, work: Pass, machine: Machine, shard: bool, accumulate: int) -> Way:
    needed = memory(shape, config, work, devices=machine.devices, shard=shard, accumulate=accumulate)
    limit = machine.memory
    return Way(
        shard=shard,
        recompute=work.recompute,
        rows=work.rows,
        accumulate=accumulate,
        memory=needed,
        fits=limit is None or needed.peak <= limit,
        most_rows=0
        if limit is None
        else rows_that_fit(shape, config, work, limit, devices=machine.devices, shard=shard, accumulate=accumulate),
    )


def _first_that_fits(
    shape: ModelConfig, config: TrainConfig, work: Pass, machine: Machine, ways: tuple[Way, ...]
) -> Way:
    """More accumulation costs nothing but parallelism, so it is tried before recomputing and sharding."""
    for way in ways:
        if way.fits:
            return way
        for parts in range(2, way.rows + 1):
            if way.rows % parts or way.accumulate * parts > MOST_PASSES:
                continue
            less = dataclasses.replace(work, rows=way.rows // parts, recompute=way.recompute)
            smaller = _way(shape, config, less, machine, way.shard, way.accumulate * parts)
            if smaller.fits:
                return smaller
    return ways[0]


def _seconds(config: TrainConfig, work: Pass, way: Way, machine: Machine, sizes: Sizes, devices: int) -> Seconds:
    one = dataclasses.replace(work, rows=way.rows, recompute=way.recompute)
    passes, update = machine.times(one, devices)
    sent = exchanged_bytes(sizes, config, one, devices=devices, shard=way.shard) if devices > 1 else 0.0
    exchange = sent / machine.link if machine.link else 0.0
    return Seconds(passes=config.accumulate * passes, update=update, exchange=exchange)


def _scales(
    shape: ModelConfig,
    config: TrainConfig,
    work: Pass,
    way: Way,
    machine: Machine,
    sizes: Sizes,
    tokens: int,
    price: float | None,
) -> Iterator[Scale]:
    """The same global batch on 1, 2, 4 ... devices."""
    for devices in device_counts(machine.devices):
        rows = -(-way.rows * machine.devices // devices)
        one = dataclasses.replace(work, rows=rows, recompute=way.recompute)
        here = dataclasses.replace(way, rows=rows, shard=way.shard and devices > 1)
        step = _seconds(config, work, here, machine, sizes, devices).step
        per_second = rows * devices * work.length * config.accumulate / step
        peaks = [
            memory(shape, config, one, devices=devices, shard=shard, accumulate=config.accumulate).peak
            for shard in (False, devices > 1)
        ]
        yield Scale(
            devices=devices,
            replicated=peaks[0],
            sharded=peaks[1],
            tokens_per_second=per_second,
            seconds=tokens / per_second,
            cost=_cost(tokens / per_second, devices, price),
        )


def _cost(seconds: float, devices: int, price: float | None) -> float | None:
    return None if price is None else seconds / 3600 * devices * price
