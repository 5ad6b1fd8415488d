"""What a training step costs on this machine: found out by trying for some seconds before a run, and watched during it.

Nothing is remembered from one run to the next. A measurement may be wrong, for machines are shared and get hot; then it
misleads one run, and that one only until its steps are seen to take another time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from jumok.config import ModelConfig, Precision, TrainConfig
from jumok.device import autocast, is_out_of_memory, processor_waits, seconds_per_call
from jumok.models import build
from jumok.nn.attention import Implementation, ScaledDotProductAttention, train_attention_by
from jumok.training.optim import make_optimizers
from jumok.training.tasks import Task

MEASURED_TOKENS = 1024  # in the batch that is timed on a CPU
MEASURING = 5.0  # seconds after which nothing more is tried; what was begun, once in each precision, is finished
TURNS = 3  # of each work at most, the first of which counts only if it is the only one
WORTH_IT = 0.9  # of the time of chunked attention may the fused one take to be chosen: less is noise
# How long steps really take is judged by at least so many of them, and so many seconds: one hiccup is none of it.
WATCHED_STEPS = 5
WATCHED_SECONDS = 5.0

IMPLEMENTATIONS: tuple[Implementation, ...] = get_args(Implementation)
Work = TypeVar("Work")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What training costs in one precision, uncompiled.

    batch: seconds of a pass forward and backward over a batch, with `attention`. update: seconds of an update of the
    weights. attentions: seconds that attention alone takes in such a pass, by what computes it; {} where there was
    nothing to choose. flops: operations of a pass, those of matrix products and attention. kept: bytes that a forward
    pass leaves for the backward one, about. moments: bytes that the optimizers keep.
    """

    batch: float
    update: float = 0.0
    attention: Implementation = "chunked"
    attentions: Mapping[Implementation, float] = field(default_factory=dict)
    flops: float = 0.0
    kept: float = 0.0
    moments: float = 0.0

    def of_step(self, config: TrainConfig, speedup: float = 1.0, attention: Implementation | None = None) -> float:
        """Seconds of an optimizer step whose passes are so many times as fast.

        attention: worked out for another one than was timed in the whole pass, from the times of attention alone.
        """
        batch = self.batch
        if attention is not None and attention != self.attention:
            batch += self.attentions[attention] - self.attentions[self.attention]
            batch = max(batch, self.attentions[attention])  # on a busy machine they may not fit together
        return config.accumulate * batch / speedup + self.update


def costs_of(
    shape: ModelConfig,
    config: TrainConfig,
    task: Task[Any],
    device: torch.device,
    precisions: Sequence[Precision],
) -> dict[Precision, Cost]:
    """What training costs in each precision; for ever where memory does not suffice.

    All take turns, so that other work that begins meanwhile is in the way of each. When MEASURING is over, what is
    known by then is used: then each pass was tried once at least, and maybe attention was not timed alone.
    """
    batch = task.parts(0)[0]
    rows = len(batch[0])
    if device.type == "cpu":  # a part tells enough there; other devices are only as fast as they are filled
        rows = max(1, min(rows, MEASURED_TOKENS // batch[0].shape[1]))
    part = tuple(tensor[:rows].to(device) for tensor in batch)
    share, began = 1 / task.share(part), time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        model = build(shape).to(device)
        optimizers = make_optimizers(model, config)

        def passes(precision: Precision, attention: Implementation) -> None:
            train_attention_by(model, attention)
            with autocast(device, precision):
                loss = task.loss(model, part)
            model.zero_grad()
            loss.backward()

        def update() -> None:
            for optimizer in optimizers:
                optimizer.step()

        watches: dict[Precision, _Watch] = {}
        for precision in precisions:
            watch = _Watch()
            try:
                with watch.over(model):
                    passes(precision, _usual(config, device))
                watches[precision] = watch
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
        alone = _in_turns(
            {
                (precision, way): partial(_attend, way, watch, device, precision)
                for precision, watch in watches.items()
                for way in IMPLEMENTATIONS
                if config.attention == "auto" and watch.calls
            },
            device,
            began + MEASURING / 2,
        )
        chosen = {
            precision: _clearly_faster(alone[precision, "chunked"], alone[precision, "fused"])
            if (precision, "fused") in alone
            else _usual(config, device)
            for precision in watches
        }
        for watch in watches.values():
            watch.calls.clear()
        works = {precision: partial(passes, precision, way) for precision, way in chosen.items()}
        seconds = _in_turns(works, device, began + MEASURING, warm=True)
        updates = 0.0
        if watches:
            updates = seconds_per_call(update, device, repeats=1, warm_up=False)
            updates = _in_turns({"": update}, device, began + MEASURING, warm=True).get("", updates)
    moments = [t.nbytes for optimizer in optimizers for state in optimizer.state.values() for t in state.values()]
    return {precision: Cost(batch=math.inf, attention=_usual(config, device)) for precision in precisions} | {
        precision: Cost(
            batch=share * seconds.get(precision, watch.seconds),
            update=updates,
            attention=chosen[precision],
            attentions={way: share * alone[precision, way] for way in IMPLEMENTATIONS if (precision, way) in alone},
            flops=share * watch.flops,
            kept=share * sum(watch.kept.values()),
            moments=sum(moments),
        )
        for precision, watch in watches.items()
    }


# --- measuring --------------------------------------------------------------------------------------------------------


def _in_turns(
    works: Mapping[Work, Callable[[], object]], device: torch.device, until: float, *, warm: bool = False
) -> dict[Work, float]:
    """The shortest time of each work, in seconds; {} if there is no time at all.

    until: on the clock of time.perf_counter, after which no new round begins. warm: all were done before.
    """
    rounds: list[list[float]] = []
    while works and len(rounds) < TURNS - warm and time.perf_counter() < until:
        rounds.append([seconds_per_call(work, device, repeats=1, warm_up=False) for work in works.values()])
    counted = rounds if warm else rounds[1:] or rounds
    return dict(zip(works, map(min, zip(*counted, strict=True)), strict=True)) if counted else {}


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
        self.seconds = 0.0
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

        counter, began = FlopCounterMode(display=False, custom_mapping=COUNTED), time.perf_counter()
        try:
            with counter, saved_tensors_hooks(keep, lambda tensor: tensor):
                yield
        finally:
            for hook in hooks:
                hook.remove()
        self.flops, self.seconds = counter.get_total_flops(), time.perf_counter() - began

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


def _chunked_backward_flops(_: Any, *inputs: Any, **__: Any) -> int:
    return 2 * _forward_flops(*inputs[:5])


def _fused_backward_flops(
    _: Any, q: Any, k: Any, v: Any, out: Any, log_sums: Any, dropout: float, causal: bool, **__: Any
) -> int:
    return 2 * _forward_flops(q, k, v, dropout, causal)  # the products that it makes again are not counted


# The stock counter knows the fused kernels of other devices, but not that for CPUs.
COUNTED = {
    torch.ops.jumok.chunked_attention: _forward_flops,
    torch.ops.jumok.chunked_attention_backward: _chunked_backward_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _fused_backward_flops,
}


def _clearly_faster(chunked: float, fused: float) -> Implementation:
    return "fused" if fused <= WORTH_IT * chunked else "chunked"


def _usual(config: TrainConfig, device: torch.device) -> Implementation:
    """What computes attention where nothing was measured."""
    if config.attention != "auto":
        return config.attention
    return "chunked" if device.type == "cpu" else "fused"


def _attend(name: Implementation, watch: _Watch, device: torch.device, precision: str) -> None:
    """What all seams that have a choice do in a pass, forward and backward."""
    seam = ScaledDotProductAttention()
    seam.training_by = name
    for call in watch.calls.values():
        for _ in range(call.times):
            with autocast(device, precision):
                heads = seam(call.q, call.k, call.v, call.mask, call.causal)  # (B, H, T, D)
            heads.backward(torch.ones_like(heads))


# --- while a run goes on ----------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """Some steps in a row.

    seconds: of one, the median. waiting: of the time for which threads of this process could have worked, the share in
    which they waited for a processor; 0 where the system does not tell.
    """

    seconds: float
    waiting: float


class Pace:
    """What steps really take."""

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._waits, self._works = processor_waits(), time.process_time()

    def add(self, seconds: float) -> Window | None:
        """Take note of a step; the window that is full with it, if one is."""
        self._steps.append(seconds)
        if len(self._steps) < WATCHED_STEPS or sum(self._steps) < WATCHED_SECONDS:
            return None
        waits, works = processor_waits(), time.process_time()
        waited, worked = max(0.0, waits - self._waits), works - self._works
        window = Window(statistics.median(self._steps), waited / (waited + worked) if waited else 0.0)
        self._steps, self._waits, self._works = [], waits, works
        return window
