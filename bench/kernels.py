"""Where the time of a training step goes, and what bounds it: a roofline by kernel.

    python bench/kernels.py                     # the default size and the six layers, with AdamW and with Muon
    python bench/kernels.py --model default --rows 40     # and the 40 kernels that take longest
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python bench/kernels.py
    python bench/kernels.py --model toy --steps 2 --no-compile   # a look, to see that it runs

PyTorch's profiler counts the time of each operator without the operators inside it. An operator inside attention, or
inside an optimizer's step, counts as that, its products and copies included. "outside" is the rest of the wall's time:
Python, autograd, and what the trainer does between two steps.

A kernel needs at least the time of its operations at the rate of a square product, and the time of its bytes at the
rate at which memory is read, both measured first. The longer of the two, as a share of the time it takes, is how near
it comes to what the processor can do. Bytes are those of its arguments and results, each once: what stays in the cache
from one kernel to the next makes a share above 100%. Operators without a product or known arguments have no share.

Single steps are profiled, each after one that is not and whose time is the wall's. Figures are the least of the steps,
so that other programs count little. The records of the profiler lie between the tensors in memory: where several steps
were profiled in a row, the heap grew, and new pages doubled the time of what wrote to them.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function

from jumok.device import keep_memory, measure_machine, multiplies_bfloat16, seconds_of
from speed import describe, our_training
from training import MODELS, flops_per_token, text_with

# The first kind of which a word is in the name of an operator, or of one around it.
AROUND = {
    "Muon": ("#Muon",),
    "AdamW": ("#AdamW",),
    "attention": ("chunked_attention", "ChunkedAttention", "scaled_dot_product"),
}
ALONE = {
    "products": ("aten::mm", "aten::addmm", "aten::bmm", "linear"),
    "compiled: norms, rotation, SwiGLU, loss": ("cpp_fused", "CompiledFxGraph", "CompiledFunction", "Torch-Compiled"),
    "clipping": ("_foreach", "norm"),
    "copies and casts": ("copy", "clone", "contiguous"),
}
OTHER, OUTSIDE = "other operators", "outside"
PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "mkldnn::_linear_pointwise": 0}  # and the place of the first factor
PRODUCTS |= {f"aten::{name}": 1 for name in ("addmm", "baddbmm", "addmm_", "baddbmm_")}


class Kernel(NamedTuple):
    """A kernel of a step, by its kind, its name and its shapes."""

    kind: str
    name: str
    flops: float
    bytes: float


def kind(event: Any) -> str:
    """The kind of an operator of the profile."""
    around, above = [event.name], event.cpu_parent
    while above is not None:
        around.append(above.name)
        above = above.cpu_parent
    for found, words in AROUND.items():
        if any(word in name for name in around for word in words):
            return found
    return next((found for found, words in ALONE.items() if any(word in event.name for word in words)), OTHER)


def kernel(event: Any, itemsize: int) -> Kernel:
    """The kernel of an operator; of a product with its operations, and of compiled code with its bytes."""
    of, name = kind(event), event.name.removeprefix("aten::").partition("#")[0]
    if name.startswith("cpp_fused"):
        name, _, size = name.rpartition(" ")
        return Kernel(of, name, 0, int(size))
    if event.name not in PRODUCTS or not event.input_shapes:
        return Kernel(of, name, 0, 0)
    left, right = event.input_shapes[PRODUCTS[event.name] :][:2]
    inner, columns = left[-1], right[0] if "linear" in name else right[-1]
    size = math.prod(left) + math.prod(right) + math.prod(left[:-1]) * columns
    label = f"{'x'.join(map(str, left))} by {inner}x{columns}"
    return Kernel(of, f"{name} {label}", 2.0 * math.prod(left) * columns, size * itemsize)


def name_compiled_kernels() -> None:
    """Let the profiler see each kernel that torch.compile made, with the bytes of its arguments."""
    from torch._inductor.codecache import PyCodeCache

    def seen(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            size = sum(each.nbytes for each in args if isinstance(each, Tensor))
            with record_function(f"{name} {size}"):
                return call(*args)

        return counted

    for module in PyCodeCache.modules:
        for name, value in list(vars(module).items()):
            if name.startswith("cpp_fused") and callable(value) and value.__name__ != "counted":
                setattr(module, name, seen(name, value))


def milliseconds(
    settings: dict[str, Any], steps: int, vocabulary: int
) -> tuple[Counter[Kernel], Counter[Kernel], float, float]:
    """The milliseconds of a step by kernel, the calls of each, the milliseconds in all, and its operations."""
    with our_training(text_with(vocabulary, 400_000), settings, "cpu", tokenizer_options={"min_count": 1}) as run:
        shape, tokens = run.trainer.model.config, run.trainer.task.tokens_per_batch
        for _ in range(3):  # compiles, and allocates
            run.step()
        if settings["compile"] == "on":
            name_compiled_kernels()
        itemsize = 2 if settings["precision"] == "bfloat16" else 4
        walls, found = [], []
        for _ in range(steps):
            walls.append(1e3 * seconds_of(run.step, torch.device("cpu")))
            with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
                run.step()
            times: Counter[Kernel] = Counter()
            calls: Counter[Kernel] = Counter()
            for event in profiler.events() or ():
                each = kernel(event, itemsize)
                times[each] += event.self_cpu_time_total / 1e3
                calls[each] += 1
            found.append(times)
            del profiler
    least = Counter({name: min(each[name] for each in found) for name in set().union(*found)})
    return least, calls, min(walls), tokens * flops_per_token(shape)


def show(found: Counter[Kernel], calls: Counter[Kernel], wall: float, rows: int, machine: tuple[float, float]) -> None:
    """Print the kinds of kernels, and some kernels. machine: operations and bytes of a millisecond."""
    kinds: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 5)
    for each, value in found.items():
        needed = max(each.flops / machine[0], each.bytes / machine[1])
        for place, more in enumerate((1.0, value / calls[each], each.flops, each.bytes, needed)):
            kinds[each.kind][place] += more * calls[each]
    print(f"  {'':60}{'calls':>6}{'ms':>9}{'share':>8}{'GFLOP':>8}{'MB':>8}{'of what it can':>16}{'bound by':>10}")

    def line(name: str, count: float, value: float, flops: float, size: float, needed: float, bound: str = "") -> None:
        work = f"{flops / 1e9:8.1f}{size / 1e6:8.0f}{needed / value:16.0%}" if size else ""
        print(f"  {name[:60]:60}{count:6.0f}{value:9.1f}{value / wall:8.1%}{work}{bound:>10}".rstrip())

    for name, sums in sorted(kinds.items(), key=lambda item: -item[1][1]):
        line(name, *sums)
    line(OUTSIDE, 1, wall - sum(found.values()), 0, 0, 0)
    for each, value in found.most_common(rows):
        times, count = (each.flops / machine[0], each.bytes / machine[1]), calls[each]
        bound = "products" if times[0] > times[1] else "memory"
        name = f"{each.kind.split(':')[0]}: {each.name}"
        line(
            name, count, value, each.flops * count, each.bytes * count, max(times) * count, bound if each.bytes else ""
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="repeatable [default and six]")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), action="append", help="repeatable [both]")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), help="[what the processor has products in]")
    parser.add_argument("--steps", type=int, default=10, help="that are profiled")
    parser.add_argument("--rows", type=int, default=20, help="kernels by themselves")
    parser.add_argument("--vocabulary", type=int, default=1540)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    keep_memory()
    device = torch.device("cpu")
    print(describe(device), flush=True)
    precision = options.precision or ("bfloat16" if multiplies_bfloat16(device) else "float32")
    measured = measure_machine(device)
    machine = (measured[f"{precision}_gflops"] * 1e6, measured["memory_gb_per_second"] * 1e6)
    for model in options.model or ["default", "six"]:
        for optimizer in options.optimizer or ("adamw", "muon"):
            how = {"optimizer": optimizer, "precision": precision, "attention": "chunked"}
            how["compile"] = "off" if options.no_compile else "on"
            found, calls, wall, flops = milliseconds({**MODELS[model], **how}, options.steps, options.vocabulary)
            share = f"{flops / wall / 1e6:.0f} GFLOP/s, {flops / wall / machine[0]:.0%} of a product"
            print(f"\n{model}, {optimizer}, {precision}, compile {how['compile']}: {wall:.0f} ms a step of", end=" ")
            print(f"{flops / 1e9:.1f} GFLOP, {share}")
            show(found, calls, wall, options.rows, machine)


if __name__ == "__main__":
    main()
