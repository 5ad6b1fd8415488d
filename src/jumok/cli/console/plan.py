"""What `jumok plan` prints: the memory of each device, the time of a step, and the run on 1, 2, 4 ... devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text as Line

from jumok.cli.console.output import say
from jumok.config import ModelConfig
from jumok.messages import tr
from jumok.models import kind_of
from jumok.training.planning.estimate import Estimate, Way
from jumok.training.planning.machines import Chosen
from jumok.training.planning.plan import COMPILED_SPEEDUP
from jumok.training.planning.work import OPTIMAL_TOKENS, REPEATED, USABLE
from jumok.training.subscribers.progress import clock

HOST = 8  # devices in a host, usually
LONG = 90.0  # seconds, from which a run may be compiled


def show_plan(
    found: Estimate,
    chosen: Chosen,
    shape: ModelConfig,
    *,
    assumed_vocabulary: bool,
    further: bool = False,
    quiet: bool = False,
) -> None:
    """Print a plan; notes on what its figures do not contain go to stderr.

    Args:
        further: the model is trained already, so the rule for a compute-optimal length does not apply.
    """
    console = Console(highlight=False, soft_wrap=True)
    _show_rows(console, _facts(found, chosen, shape, assumed_vocabulary=assumed_vocabulary))
    console.print(Line("\n" + tr("Memory of each device") + "\n"))
    console.print(_memory(found))
    console.print()
    console.print(_ways(found))
    console.print(Line("\n" + tr("Time") + "\n"))
    _show_rows(console, _times(found, further=further))
    if len(found.scales) > 1:
        console.print()
        console.print(_scales(found))
    for note in _notes(found, chosen, further=further):
        say(note, quiet=quiet)


def _facts(found: Estimate, chosen: Chosen, shape: ModelConfig, *, assumed_vocabulary: bool) -> dict[str, str]:
    vocabulary = tr("vocabulary {size:,}", size=shape.vocab_size)
    if assumed_vocabulary:
        vocabulary = tr("vocabulary {size:,} (assumed; {--vocab-size})", size=shape.vocab_size)
    return {
        tr("model"): tr(
            "{model}, {parameters} parameters, {vocabulary}, {flops} FLOP per token",
            model=kind_of(shape),
            parameters=amount(found.parameters),
            vocabulary=vocabulary,
            flops=amount(found.flops_per_token),
        ),
        tr("devices"): f"{chosen.machine.devices} × {chosen.machine.name}",
        tr("speed"): _speed(chosen),
        tr("batch"): tr(
            "{rows:,} sequences of {length:,} tokens on each device, {tokens:,} tokens per step, {precision}",
            rows=found.way.rows,
            length=chosen.work.length,
            tokens=found.tokens_per_step,
            precision=chosen.precision,
        ),
        tr("length"): tr(
            "{tokens} tokens in {steps:,} steps, {each:.1f} tokens for each parameter, {flops} FLOP",
            tokens=amount(found.tokens),
            steps=found.steps,
            each=found.tokens / found.parameters,
            flops=f"{found.flops:.2e}",
        ),
        tr("needs"): _needs(found, chosen.machine.devices),
    }


def _speed(chosen: Chosen) -> str:
    if chosen.sheet is None:
        return tr(
            "measured here: {speed} FLOP/s in {precision}",
            speed=amount(chosen.measured or 0.0),
            precision=chosen.precision,
        )
    return tr(
        "data sheet: {peak} FLOP/s in {precision}; {share:.0%} of it {how}. Source: {source}",
        peak=amount(chosen.sheet.flops),
        precision=chosen.sheet.precision,
        share=chosen.utilisation,
        how=tr("assumed") if chosen.assumed else tr("stated"),
        source=chosen.sheet.source,
    )


def _needs(found: Estimate, devices: int) -> str:
    """The options with which the run fits."""
    if found.fits is None:
        return tr("unknown: the memory of the device is not known")
    if not found.fits:
        return tr("more memory: none of the ways below fits. A smaller {--size} or {--context-length} needs less.")
    way, first = found.way, found.ways[0]
    options = [name for name, on in (("--shard", way.shard), ("--recompute", way.recompute)) if on]
    if way.accumulate != first.accumulate:
        options += [f"--batch-size {way.rows * devices}", f"--accumulate {way.accumulate}"]
    return " ".join(options) if options else tr("no further option")


def _memory(found: Estimate) -> Table:
    """The parts of the memory, of the way that was chosen."""
    parts = found.way.memory
    rows = {
        tr("parameters"): parts.parameters,
        tr("gradients"): parts.gradients,
        tr("moments of the optimizer"): parts.moments,
        tr("matrices in bfloat16"): parts.copies,
        tr("activations"): parts.activations,
        tr("loss, beyond its activations"): parts.loss,
        tr("exchange between devices"): parts.exchange,
        tr("whole model on rank 0, for validation"): parts.whole,
        tr("peak of a step"): parts.peak,
        tr("cache of a text, when generating"): found.cache,
    }
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, size in rows.items():
        if size:
            table.add_row(name, _gigabytes(size))
    return table


def _ways(found: Estimate) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(tr("options"), no_wrap=True)
    for heading in (tr("sequences"), tr("peak"), tr("fits"), tr("sequences that fit")):
        table.add_column(heading, justify="right", no_wrap=True)
    for way in found.ways:
        fits = "?" if found.fits is None else tr("yes") if way.fits else tr("no")
        most = "?" if found.fits is None else f"{way.most_rows:,}"
        table.add_row(_named(way), f"{way.rows:,}", _gigabytes(way.memory.peak), fits, most)
    return table


def _named(way: Way) -> str:
    options = [name for name, on in (("--shard", way.shard), ("--recompute", way.recompute)) if on]
    return " ".join(options) or tr("none")


def _times(found: Estimate, *, further: bool) -> dict[str, str]:
    parts = found.seconds_of_step
    rows = {
        tr("step"): tr(
            "{step:.4g} s: {passes:.4g} s forward and backward, {update:.4g} s update, {exchange:.4g} s exchange",
            step=parts.step,
            passes=parts.passes,
            update=parts.update,
            exchange=parts.exchange,
        ),
        tr("tokens/s"): f"{found.tokens_per_step / parts.step:,.0f}",
        tr("whole run"): duration(found.seconds),
    }
    if not further:
        rows[tr("optimal")] = tr(
            "{tokens} tokens, {each} for each parameter, are compute-optimal (about): {time}",
            tokens=amount(found.optimal_tokens),
            each=OPTIMAL_TOKENS,
            time=duration(found.optimal_seconds),
        )
    if found.cost is not None:
        rows[tr("cost")] = f"{found.cost:,.2f}"
    return rows


def _scales(found: Estimate) -> Table:
    priced = found.cost is not None
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    headings = [tr("devices"), tr("peak"), tr("peak, --shard"), tr("tokens/s"), tr("whole run")]
    for heading in [*headings, tr("cost")] if priced else headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in found.scales:
        cells = [
            f"{one.devices:,}",
            _gigabytes(one.replicated),
            _gigabytes(one.sharded) if one.devices > 1 else "",
            f"{one.tokens_per_second:,.0f}",
            duration(one.seconds),
        ]
        table.add_row(*cells, *([f"{one.cost:,.2f}"] if priced else []))
    return table


def _notes(found: Estimate, chosen: Chosen, *, further: bool) -> Iterator[str]:
    machine = chosen.machine
    if chosen.sheet is not None:
        yield tr(
            "Figures of data sheets are peaks. {share:.0%} of the memory is planned with. "
            "{--utilisation} states what training reaches.",
            share=USABLE,
        )
        if chosen.precision != chosen.sheet.precision:
            yield tr(
                "The data sheet gives the speed in {peak}; memory is counted in {precision}, which may be slower.",
                peak=chosen.sheet.precision,
                precision=chosen.precision,
            )
    elif found.seconds > LONG:
        yield tr(
            "The time is without compilation, with which steps are about {times} times as fast.",
            times=COMPILED_SPEEDUP[chosen.precision],
        )
    if machine.devices > 1 and machine.link is None:
        yield tr("The exchange between devices takes no time in this plan: {--interconnect} gives its GB/s.")
    elif machine.devices > HOST and chosen.sheet is not None and machine.link == chosen.sheet.link:
        yield tr(
            "{devices} devices are more than one host usually has, and the network between hosts is slower: give its "
            "GB/s for each device with {--interconnect}.",
            devices=machine.devices,
        )
    if not further and not found.optimal_tokens <= found.tokens <= 2 * found.optimal_tokens:
        yield tr(
            "Compute-optimal means the least loss for the operations (arXiv 2203.15556, 70 M to 16 B parameters); "
            "a smaller model trained longer is cheaper to use. It counts new text: up to {passes} passes over a text "
            "are nearly as good, more are worth little (arXiv 2305.16264).",
            passes=REPEATED,
        )


# --- figures ----------------------------------------------------------------------------------------------------------


def amount(count: float) -> str:
    """2500000000 -> "2.5 B"."""
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.3g}"


def duration(seconds: float) -> str:
    """Of minutes as 1:15, of more than two days in days."""
    if seconds < 2 * 86_400:
        return clock(seconds)
    return tr("{days:,.1f} days", days=seconds / 86_400)


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"


def _show_rows(console: Console, rows: Mapping[str, str]) -> None:
    width = 2 + max(cell_len(name) for name in rows)
    for name, text in rows.items():
        console.print(Line.assemble((name + " " * (width - cell_len(name)), "dim"), text))
