"""How the cost of a training step grows: with the context, the batch, the width and the vocabulary.

    python bench/growth.py --out growth.png           # about ten minutes on two slow cores
    python bench/growth.py --quick --out growth.png   # a toy, to see that it runs

One of the four is varied, the others stay (the base is printed). Every point is a process of its own: a run of the
trainer that takes two steps which are not counted, and then as many as --steps, but no more than fit into --seconds,
one at least; the table says how many. Time is the median of these. Memory is the most that the process held while it
took steps (VmHWM, begun anew before the first of them, so that what the trainer measured beforehand does not count; on
systems other than Linux it does), less the same of one with next to no model, which is printed; on CUDA it is the
device's. A point that fails, or takes longer than --limit, is told as such and left out of the picture, and so are the
larger ones after it.

What is printed is also written to a text file beside the picture: growth.txt.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from jumok.device import choose_device
from jumok.view.canvas import canvas
from speed import describe, our_training
from training import text_with


@dataclass(frozen=True)
class Axis:
    """name: in words. setting: that is varied. values: of it. beside: what differs from the base meanwhile."""

    name: str
    setting: str
    values: tuple[int, ...]
    beside: dict[str, Any]


@dataclass(frozen=True)
class Point:
    """What one process found. seconds: of a step. steps: that were counted. bytes: see the head of this file."""

    value: int
    tokens: int
    seconds: float
    steps: int
    bytes: float


BASE: dict[str, Any] = {"n_layer": 4, "n_embd": 256, "context_length": 256, "batch_size": 8, "vocabulary": 1540}
AXES = (
    Axis("context", "context_length", (128, 256, 512, 1024, 2048, 4096, 8192), {"batch_size": 1}),
    Axis("batch", "batch_size", (1, 4, 16, 64, 256), {}),
    Axis("width", "n_embd", (64, 128, 256, 512, 1024), {}),
    Axis("vocabulary", "vocabulary", (1540, 5000, 15_000, 50_000), {}),
)
EMPTY: dict[str, Any] = {"n_layer": 1, "n_embd": 64, "context_length": 16, "batch_size": 1, "vocabulary": 400}
LEAST = 1e6  # bytes: what is less drowns in the noise
TOY: dict[str, Any] = {"n_layer": 1, "n_embd": 64, "context_length": 32, "batch_size": 2, "vocabulary": 400}
TOY_AXES = (
    Axis("context", "context_length", (32, 128, 512), {"batch_size": 1}),
    Axis("batch", "batch_size", (1, 8, 64), {}),
    Axis("width", "n_embd", (64, 128, 256), {}),
    Axis("vocabulary", "vocabulary", (400, 2000, 8000), {}),
)


class Report:
    """Prints lines, and writes them to a file too."""

    def __init__(self, path: Path | None) -> None:
        self.places: list[TextIO] = [sys.stdout]
        if path is not None:
            self.places.append(path.open("w", encoding="utf-8"))

    def say(self, line: str) -> None:
        for place in self.places:
            print(line, file=place, flush=True)  # at once: a point may take minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a picture of it, PNG; the table goes beside it, as .txt")
    parser.add_argument("--axis", choices=[axis.name for axis in AXES], action="append", help="repeatable [all]")
    parser.add_argument("--steps", type=int, default=5, help="that are counted, at most")
    parser.add_argument("--seconds", type=float, default=10.0, help="that counted steps may take, but for the first")
    parser.add_argument("--precision", default="auto", help="float32, bfloat16, or auto: what the base measures faster")
    parser.add_argument("--attention", default="auto", help="chunked, fused, or auto: what the base measures faster")
    parser.add_argument("--compile", choices=["on", "off"], default="off")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for a point, all included")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="a toy")
    parser.add_argument("--point", type=json.loads, help="one point in this process, as JSON")
    options = parser.parse_args()
    if options.point is not None:
        print(json.dumps(measure(options.point, options)))
        return
    if options.out and (options.out.suffix != ".png" or not options.out.parent.is_dir()):
        parser.error(f"--out {options.out}: give a file that ends with .png, in a folder that is there")
    base, axes = (TOY, TOY_AXES) if options.quick else (BASE, AXES)
    report = Report(options.out and options.out.with_suffix(".txt"))
    report.say(f"python {' '.join(sys.argv)}")
    report.say(describe(choose_device(options.device)))
    first = ask(base, options)
    if isinstance(first, str):
        raise SystemExit(f"the base cannot be measured: {first}")
    options.precision, options.attention = first["precision"], first["attention"]
    program = ask(EMPTY, options)
    if isinstance(program, str):
        raise SystemExit(f"a process with next to no model cannot be measured: {program}")
    said = ", ".join(f"{key} {value:,}" for key, value in base.items())
    report.say(
        f"{said}; head width 64, {options.precision}, attention {options.attention}, compile {options.compile}, seed 0"
    )
    report.say(f"the program itself, without a model to speak of, holds {program['bytes'] / 1e6:,.0f} MB")
    found: dict[str, list[Point]] = {}
    for axis in axes:
        if not options.axis or axis.name in options.axis:
            found[axis.name] = vary(axis, base, program["bytes"], options, report)
    if options.out:
        draw(found, {axis.name: axis.beside for axis in axes}, f"one is varied, the others stay: {said}", options.out)
        print(f"\nWrote {options.out} and {options.out.with_suffix('.txt')}.")


def vary(axis: Axis, base: dict[str, Any], program: int, options: argparse.Namespace, report: Report) -> list[Point]:
    """Measure along one axis, and tell. program: bytes that it holds without a model."""
    beside = "".join(f", {key} {value}" for key, value in axis.beside.items())
    report.say(
        f"\n{axis.name}{beside}\n{'':>10}{'s a step':>12}{'steps':>8}{'tokens/s':>12}{'memory, MB':>12}   to double it"
    )
    points: list[Point] = []
    for value in axis.values:
        answer = ask({**base, **axis.beside, axis.setting: value}, options)
        if isinstance(answer, str):
            report.say(f"{value:10,}   {answer}")
            break
        held = max(LEAST, answer["bytes"] - program)
        point = Point(value, answer["tokens"], answer["seconds"], answer["steps"], held)
        growth = ""
        if points:
            time_growth, memory_growth = (doubling(points[-1], point, key) for key in ("seconds", "bytes"))
            growth = f"{time_growth:.2f} x the time, {memory_growth:.2f} x the memory"
        speed = point.tokens / point.seconds
        report.say(
            f"{value:10,}{point.seconds:12.3f}{point.steps:8}{speed:12,.0f}{point.bytes / 1e6:12,.0f}   {growth}"
        )
        points.append(point)
    return points


def doubling(before: Point, after: Point, key: str) -> float:
    """By what doubling the value multiplies a cost, between two points that may be further apart."""
    return (getattr(after, key) / getattr(before, key)) ** (1 / math.log2(after.value / before.value))


# --- one point --------------------------------------------------------------------------------------------------------


def ask(point: dict[str, Any], options: argparse.Namespace) -> dict[str, Any] | str:
    """What a process of its own finds, or why it finds nothing."""
    flags = ["--steps", str(options.steps), "--seconds", str(options.seconds)]
    flags += ["--precision", options.precision, "--attention", options.attention, "--compile", options.compile]
    command = [sys.executable, __file__, "--point", json.dumps(point), *flags, "--device", options.device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return f"longer than {options.limit:.0f} s"
    if done.returncode < 0:
        return f"ended by signal {-done.returncode}: not enough memory?"
    if done.returncode > 0:
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
    return json.loads(done.stdout.splitlines()[-1])


def measure(point: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Steps of a run with these settings; on CUDA the memory is the device's."""
    import torch

    settings = {**point, **{key: getattr(options, key) for key in ("precision", "attention", "compile")}}
    settings["n_head"] = max(1, point["n_embd"] // 64)
    vocabulary = settings.pop("vocabulary")
    text = text_with(vocabulary, max(50_000, 2 * point["batch_size"] * point["context_length"]))
    cuda = choose_device(options.device).type == "cuda"
    with our_training(text, settings, options.device, tokenizer_options={"min_count": 1}) as training:
        forget_peak()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        seconds: list[float] = []
        while len(seconds) < 3 or (len(seconds) < 2 + options.steps and sum(seconds[2:]) < options.seconds):
            began = time.perf_counter()
            training.step()  # reads the loss from the device, and so waits for it
            seconds.append(time.perf_counter() - began)
        return {
            "seconds": statistics.median(seconds[2:]),
            "steps": len(seconds[2:]),
            "tokens": training.trainer.task.tokens_per_batch,
            "bytes": torch.cuda.max_memory_allocated() if cuda else peak_bytes(),
            "precision": training.trainer.config.precision,
            "attention": training.trainer.config.attention,
        }


def forget_peak() -> None:
    """Give back what planning the run has held, and begin the peak anew; only Linux can do the latter."""
    gc.collect()
    if sys.platform == "linux":
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc: what is free goes to the system
            trim(0)
        with suppress(OSError):  # some containers forbid it; the peak then counts the planning too
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # sets VmHWM to what is held now


def peak_bytes() -> int:
    """The most that this process has held in memory at once."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss of a child begins, on Linux, with what its parent held
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource  # not on Windows

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- the picture ------------------------------------------------------------------------------------------------------


def draw(found: dict[str, list[Point]], beside: dict[str, dict[str, Any]], title: str, path: Path) -> None:
    """Time and memory along each axis, both logarithmic; grey: what would double with the value.

    beside: what differs from the base, by the axis.
    """
    with canvas(path, 3.2 * len(found), 5.8, dpi=150) as figure:
        figure.suptitle(title, fontsize=10, wrap=True)
        panels = figure.subplots(2, len(found), squeeze=False, sharey="row")
        for column, (name, points) in enumerate(found.items()):
            values = [point.value for point in points]
            for row, (label, costs, colour) in enumerate(
                (
                    ("seconds a step", [point.seconds for point in points], "#0b6e99"),
                    ("memory, MB", [point.bytes / 1e6 for point in points], "#b3541e"),
                )
            ):
                panel = panels[row, column]
                panel.set_xscale("log", base=2)
                panel.set_yscale("log")
                panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")
                panel.yaxis.set_minor_formatter(lambda value, _: "")
                if points:  # the limits are those of the curves; the grey lines may leave the panel
                    line = [costs[-1] * value / values[-1] for value in values]
                    panel.plot(values, line, color="#b0b0b0", linestyle="--", linewidth=1, label="in proportion")
                    panel.plot(values, costs, color=colour, marker="o", markersize=4)
                    panel.set_xticks(values, [f"{value:,}" for value in values], fontsize=8)
                    panel.tick_params(axis="x", which="minor", bottom=False)
                panel.grid(alpha=0.25)
                if column == 0:
                    panel.set_ylabel(label)
                if row == 1:
                    others = "".join(f", {key} {value}" for key, value in beside[name].items())
                    panel.set_xlabel(name + others)
        for row, scale, key in ((0, 1.0, "seconds"), (1, 1e6, "bytes")):
            costs = [getattr(point, key) / scale for points in found.values() for point in points]
            if costs:
                panels[row, 0].set_ylim(min(costs) / 1.5, max(costs) * 1.5)
        panels[0, 0].legend(frameon=False, fontsize=8)


if __name__ == "__main__":
    main()
