"""Where the time of a training step goes, by kind of kernel.

    python bench/kernels.py                     # the default size and the six layers, with AdamW and with Muon
    python bench/kernels.py --model toy --steps 2 --no-compile   # a look, to see that it runs

PyTorch's profiler counts the time of each operator without the operators inside it. An operator inside attention, or
inside an optimizer's step, counts as that, its products and copies included. "outside" is the rest of the wall's time:
Python, autograd, and what the trainer does between two steps.

Single steps are profiled, each after one that is not and whose time is the wall's; figures are medians. The records of
the profiler lie between the tensors in memory: where several steps were profiled in a row, the heap grew, and new pages
doubled the time of what wrote to them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from jumok.device import keep_memory, multiplies_bfloat16, seconds_of
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
    "compiled: norms, rotation, SwiGLU, loss": ("CompiledFxGraph", "CompiledFunction", "Torch-Compiled"),
    "clipping": ("_foreach", "norm"),
    "copies and casts": ("copy", "clone", "contiguous"),
}
OTHER, OUTSIDE = "other operators", "outside"


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


def by_kind(profiler: profile) -> Counter[str]:
    """The milliseconds of what was profiled."""
    found: Counter[str] = Counter()
    for event in profiler.events() or ():
        found[kind(event)] += event.self_cpu_time_total / 1e3
    return found


def milliseconds(settings: dict[str, Any], steps: int, vocabulary: int) -> tuple[Counter[str], float, float]:
    """The milliseconds of a step by kind, and in all; its floating point operations."""
    with our_training(text_with(vocabulary, 400_000), settings, "cpu", tokenizer_options={"min_count": 1}) as run:
        shape, tokens = run.trainer.model.config, run.trainer.task.tokens_per_batch
        for _ in range(3):  # compiles, and allocates
            run.step()
        walls, kinds = [], []
        for _ in range(steps):
            walls.append(1e3 * seconds_of(run.step, torch.device("cpu")))
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                run.step()
            kinds.append(by_kind(profiler))
            del profiler
    wall = median(walls)
    found = Counter({name: median(each[name] for each in kinds) for name in set().union(*kinds)})
    found[OUTSIDE] = wall - sum(found.values())
    return found, wall, tokens * flops_per_token(shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="repeatable [default and six]")
    parser.add_argument("--steps", type=int, default=10, help="that are profiled")
    parser.add_argument("--vocabulary", type=int, default=1540)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    keep_memory()
    print(describe(torch.device("cpu")), flush=True)
    for model in options.model or ["default", "six"]:
        for optimizer in ("adamw", "muon"):
            precision = "bfloat16" if multiplies_bfloat16(torch.device("cpu")) else "float32"
            how = {"optimizer": optimizer, "precision": precision, "attention": "chunked"}
            how["compile"] = "off" if options.no_compile else "on"
            found, wall, flops = milliseconds({**MODELS[model], **how}, options.steps, options.vocabulary)
            speed = f"{flops / 1e9:.1f} GFLOP, {flops / wall / 1e6:.0f} GFLOP/s"
            print(f"\n{model}, {optimizer}, compile {how['compile']}: {wall:.0f} ms a step of {speed}")
            for name, value in found.most_common():
                print(f"  {name:44}{value:9.1f} ms{value / wall:8.1%}")


if __name__ == "__main__":
    main()
