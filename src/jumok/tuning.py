"""What a training step costs on this machine: found out by trying, once, and kept in a cache.

The cache is one JSON file in jumok's cache folder. Each entry names what it was measured for, the machine and the
versions included, so that nothing else finds it. A run writes what it decided into its own config.json and never asks
again: the cache only saves seconds, so a damaged, old or unwritable one is as good as none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from jumok import __version__
from jumok.attention import Implementation, ScaledDotProductAttention, train_attention_by
from jumok.config import SPECIAL_IDS, ModelConfig, Precision, TrainConfig
from jumok.device import autocast, processor_name, seconds_per_call
from jumok.files import cache_folder, locked, write_atomic
from jumok.models import build, kind_of
from jumok.optim import make_optimizers
from jumok.tasks import Task

MEASURED_TOKENS = 1024  # in the batch that is timed on a CPU
WORTH_IT = 0.9  # of the time of explicit attention may the fused one take to be chosen: less is noise
# Other work was in the way where the process got less than so many seconds of a processor in each second, or where the
# same work took so many times as long the second time, or the first.
UNDISTURBED = 0.9
UNSTEADY = 1.5
KEPT_DAYS = 30  # that a measurement counts; kernels, clocks and other work on a machine change
MOST_KEPT = 300  # measurements in the file, the newest ones
FORMAT = 2
OF_THE_MOMENT = {"cached", "disturbed"}  # fields of a cost that are not kept
SAME_SPEED = ("labels", "rope_theta", "norm_eps", *SPECIAL_IDS)  # fields of a model that cost no time

IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What training costs in one precision, uncompiled.

    batch: seconds of a pass forward and backward over a batch, with `attention`. update: seconds of an update of the
    weights. attentions: seconds that attention alone takes in such a pass, by what computes it; {} where there was
    nothing to choose. flops: operations of a pass, those of matrix products and attention. kept: bytes that a forward
    pass leaves for the backward one, about. moments: bytes that the optimizers keep.
    measured: the day, as 2026-12-31. disturbed: other work kept the process waiting meanwhile, so that it is worth
    little and not remembered. cached: it was read and not measured now.
    """

    batch: float
    update: float = 0.0
    attention: Implementation = "explicit"
    attentions: Mapping[Implementation, float] = field(default_factory=dict)
    flops: float = 0.0
    kept: float = 0.0
    moments: float = 0.0
    measured: str = ""
    disturbed: bool = False
    cached: bool = False

    def of_step(self, config: TrainConfig, speedup: float = 1.0, attention: Implementation | None = None) -> float:
        """Seconds of an optimizer step whose passes are so many times as fast.

        attention: worked out for another one than was timed in the whole pass, from the times of attention alone.
        """
        batch = self.batch
        if attention is not None and attention != self.attention:
            batch += self.attentions[attention] - self.attentions[self.attention]
            batch = max(batch, self.attentions[attention])  # on a busy machine they may not fit together
        return config.accumulate * batch / speedup + self.update

    @classmethod
    def parse(cls, values: Any) -> Self:
        """From what JSON gave.

        Raises:
            ValueError: it is no cost.
        """
        known = {setting.name for setting in dataclasses.fields(cls)}
        if not isinstance(values, dict) or values.keys() != known - OF_THE_MOMENT:
            raise ValueError("not the fields of a cost")
        attentions = values["attentions"]
        if not isinstance(attentions, dict) or attentions.keys() not in (set(), set(IMPLEMENTATIONS)):
            raise ValueError("not what computes attention")
        numbers = [values[name] for name in ("batch", "update", "flops", "kept", "moments")] + [*attentions.values()]
        if not all(type(n) in (int, float) and math.isfinite(n) and n >= 0 for n in numbers):
            raise ValueError("not a number")
        if values["attention"] not in IMPLEMENTATIONS or not values["batch"]:
            raise ValueError("not a measurement")
        age = (date.today() - date.fromisoformat(values["measured"])).days
        if not 0 <= age < KEPT_DAYS:
            raise ValueError("too old")
        return cls(**values, cached=True)


def costs_of(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    precisions: Sequence[Precision],
    *,
    anew: bool,
) -> dict[Precision, Cost]:
    """What training costs in each precision; for ever where memory does not suffice.

    All come out of the cache or none: a quiet minute of last week is not compared with a busy one of today.

    Args:
        anew: measure in any case, and put the outcome in the place of what the cache has.
    """
    batch = task.parts(0)[0]
    asked = {precision: _identity(shape, config, device, precision, batch) for precision in precisions}
    known = {} if anew else {precision: _recall(asked[precision]) for precision in precisions}
    if known and all(known.values()):
        return {precision: cost for precision, cost in known.items() if cost is not None}
    costs = {}
    for precision in precisions:
        try:
            costs[precision] = _measured(shape, config, task, device, precision, batch)
        except torch.OutOfMemoryError:
            costs[precision] = Cost(batch=math.inf, attention=_usual(config, device))
            continue
        if not costs[precision].disturbed:
            _remember(asked[precision], costs[precision])
    return costs


# --- measuring --------------------------------------------------------------------------------------------------------


class _Attempt:
    """Something that is measured from now on."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._began, self._worked = device, time.perf_counter(), time.process_time()
        self._steady = True

    def seconds(self, *works: Callable[[], object], warm: bool = False) -> list[float]:
        """The shortest of the turns of each work, two each, after one that is not counted unless all are warm."""
        turns = [[self._seconds(work) for work in works] for _ in range(2 if warm else 3)]
        times = list(zip(*turns[-2:], strict=True))  # the works took turns
        self._steady &= all(max(two) <= UNSTEADY * min(two) for two in times)
        return [min(two) for two in times]

    def _seconds(self, work: Callable[[], object]) -> float:
        return seconds_per_call(work, self._device, repeats=1, warm_up=False)

    def disturbed(self) -> bool:
        """Whether other work seems to have been in the way."""
        received, passed = time.process_time() - self._worked, time.perf_counter() - self._began
        waited = self._device.type == "cpu" and received < UNDISTURBED * passed
        return waited or not self._steady


class _Call(NamedTuple):
    """What one seam was given in a pass, (B, H, T, D) and so on, and how many seams were given the same."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    causal: bool
    times: int


class _Watch:
    """What happens in a pass: attention that both implementations can compute, operations, and bytes that are kept."""

    def __init__(self) -> None:
        self.calls: dict[object, _Call] = {}
        self.flops = 0
        self.kept: dict[int, int] = {}  # bytes, by their place in memory

    @contextmanager
    def over(self, model: nn.Module) -> Iterator[None]:
        """Watch the passes inside the block."""
        seams = [part for part in model.modules() if isinstance(part, ScaledDotProductAttention)]
        hooks = [seam.register_forward_pre_hook(self._attends) for seam in seams]
        weights = {tuple(sorted(p.shape)) for p in model.parameters() if p.dim() == 2}

        def keep(tensor: Tensor) -> Tensor:
            if tuple(sorted(tensor.shape)) not in weights:  # a copy of a weight in bfloat16, not of the batch
                storage = tensor.untyped_storage()
                self.kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        counter = FlopCounterMode(display=False, custom_mapping=COUNTED)
        try:
            with counter, saved_tensors_hooks(keep, lambda tensor: tensor):
                yield
        finally:
            for hook in hooks:
                hook.remove()
        self.flops = counter.get_total_flops()

    def _attends(self, seam: nn.Module, args: tuple[Any, ...]) -> None:
        assert isinstance(seam, ScaledDotProductAttention)
        q, k, v, mask, causal = args
        if seam.can_choose(q, k, v):
            alike = (q.shape, k.shape, q.dtype, None if mask is None else mask.shape, causal)
            q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
            before = self.calls.get(alike)
            self.calls[alike] = before._replace(times=before.times + 1) if before else _Call(q, k, v, mask, causal, 1)


def _forward_flops(q: Any, k: Any, v: Any, _: Any = None, causal: bool = False, **__: Any) -> int:
    """Of either way, from shapes (B, H, T, D) and (B, H or G, S, D): two products over the pairs that may attend."""
    (b, h, t, d), s = q, k[2]
    return 4 * d * b * h * (t * s - t * (t - 1) // 2 if causal else t * s)


def _explicit_backward_flops(_: Any, *inputs: Any, **__: Any) -> int:
    return 2 * _forward_flops(*inputs[:5])


def _fused_backward_flops(
    _: Any, q: Any, k: Any, v: Any, out: Any, log_sums: Any, dropout: float, causal: bool, **__: Any
) -> int:
    return 2 * _forward_flops(q, k, v, dropout, causal)  # the products that it makes again are not counted


# The stock counter knows the fused kernels of other devices, but not that for CPUs.
COUNTED = {
    torch.ops.jumok.explicit_attention: _forward_flops,
    torch.ops.jumok.explicit_attention_backward: _explicit_backward_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _fused_backward_flops,
}


def _measured(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    precision: str,
    batch: tuple[Tensor, ...],
) -> Cost:
    rows = len(batch[0])
    if device.type == "cpu":  # a part tells enough there; other devices are only as fast as they are filled
        rows = max(1, min(rows, MEASURED_TOKENS // batch[0].shape[1]))
    part = tuple(tensor[:rows].to(device) for tensor in batch)
    share = 1 / task.share(part)
    with torch.random.fork_rng(devices=[]):
        model = build(shape).to(device)
        optimizers = make_optimizers(model, config)

        def passes() -> None:
            with autocast(device, precision):
                loss = task.loss(model, part)
            model.zero_grad()
            loss.backward()

        def update() -> None:
            for optimizer in optimizers:
                optimizer.step()

        attention, seconds = _usual(config, device), {}
        train_attention_by(model, attention)
        watch, attempt = _Watch(), _Attempt(device)
        with watch.over(model):
            passes()
        if config.attention == "auto" and watch.calls:
            ways = [partial(_attend, name, watch, device, precision) for name in IMPLEMENTATIONS]
            seconds = {n: share * t for n, t in zip(IMPLEMENTATIONS, attempt.seconds(*ways), strict=True)}
            if seconds["fused"] <= WORTH_IT * seconds["explicit"] and not attempt.disturbed():
                attention = "fused"
        watch.calls.clear()
        train_attention_by(model, attention)
        [pass_seconds], [update_seconds] = attempt.seconds(passes, warm=True), attempt.seconds(update)
        return Cost(
            batch=share * pass_seconds,
            update=update_seconds,
            attention=attention,
            attentions=seconds,
            flops=share * watch.flops,
            kept=share * sum(watch.kept.values()),
            moments=sum(
                tensor.nbytes
                for optimizer in optimizers
                for state in optimizer.state.values()
                for tensor in state.values()
            ),
            measured=date.today().isoformat(),
            disturbed=attempt.disturbed(),
        )


def _usual(config: TrainConfig, device: torch.device) -> Implementation:
    """What computes attention where nothing was measured."""
    if config.attention != "auto":
        return config.attention
    return "explicit" if device.type == "cpu" else "fused"


def _attend(name: Implementation, watch: _Watch, device: torch.device, precision: str) -> None:
    """What all seams that have a choice do in a pass, forward and backward."""
    seam = ScaledDotProductAttention()
    seam.training_by = name
    for call in watch.calls.values():
        for _ in range(call.times):
            with autocast(device, precision):
                heads = seam(call.q, call.k, call.v, call.mask, call.causal)  # (B, H, T, D)
            heads.backward(torch.ones_like(heads))


# --- the cache --------------------------------------------------------------------------------------------------------


def _identity(
    shape: ModelConfig, config: TrainConfig, device: torch.device, precision: str, batch: tuple[Tensor, ...]
) -> dict[str, Any]:
    """All that a measurement depends on, as plain values."""
    fields = {name: value for name, value in dataclasses.asdict(shape).items() if name not in SAME_SPEED}
    return {
        "jumok": __version__,
        "torch": str(torch.__version__),
        "processor": [processor_name(device), platform.machine(), os.cpu_count()],
        "tokens": MEASURED_TOKENS,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "device": str(device),
        "precision": precision,
        **{name: getattr(config, name) for name in ("attention", "task", "optimizer", "lm_weight")},
        "model": kind_of(shape),
        "shape": {**fields, "labels": len(getattr(shape, "labels", ()))},
        "batch": [list(part.shape) for part in batch],
    }


def _place() -> Path:
    return cache_folder() / "measurements.json"


def _digest(asked: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def _recall(asked: Mapping[str, Any]) -> Cost | None:
    try:
        return Cost.parse(_entries()[_digest(asked)]["cost"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _remember(asked: Mapping[str, Any], cost: Cost) -> None:
    values = {name: value for name, value in dataclasses.asdict(cost).items() if name not in OF_THE_MOMENT}
    with suppress(OSError):
        _place().parent.mkdir(parents=True, exist_ok=True)
        with locked(_place().with_suffix(".lock"), wait=True):  # or what another start just wrote would be lost
            entries = _entries()
            entries.pop(_digest(asked), None)  # so that it comes last, as the newest
            entries[_digest(asked)] = {"of": asked, "cost": values}
            newest = dict(list(entries.items())[-MOST_KEPT:])
            write_atomic(_place(), json.dumps({"format": FORMAT, "measurements": newest}, indent=1) + "\n")


def _entries() -> dict[str, Any]:
    """The file's entries by their digest, the oldest first; none of a file that cannot be used."""
    try:
        content = json.loads(_place().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        return {}
    entries = content.get("measurements")
    return entries if isinstance(entries, dict) else {}
