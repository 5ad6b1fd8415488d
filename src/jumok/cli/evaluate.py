"""`jumok evaluate`: the figures of a model on a text or a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import Verb, common, option, verification
from jumok.cli.console.output import plain_floats, print_json, say
from jumok.cli.material import read_material, recorded_columns
from jumok.messages import tr

ONLY_JSON = {
    "confusion",
    "f1",
    "labels",
    "seen_in_training",
    "lost_example",
    "lower_bound",
}  # figures that the table leaves out


@click.command(
    cls=Verb,
    short_help="Evaluate a model on a text or a table.",
    examples="""
    jumok evaluate runs/novel other.txt
    jumok evaluate runs/novel reviews.tsv --column document --json
    jumok evaluate runs/bert other.txt
    jumok evaluate runs/reviews test.tsv
    jumok evaluate runs/reviews others.csv --text review --label stars
    jumok evaluate runs/chat pairs.tsv --beam 4
    jumok evaluate runs/char runs/bpe models/kogpt2 other.txt --picture losses.png
    """,
)
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN...")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@option("--encoding", help="encoding of the text files [detected]")
@option("--column", help="column of tables (.csv, .tsv, .json, .jsonl, .parquet, .arrow) [text]")
@option("--text", help="column of the texts, for a classifier [as in training]")
@option("--label", help="column of the labels, for a classifier [as in training]")
@option("--source", help="column of the sources, for an encoder-decoder [as in training]")
@option("--target", help="column of the targets, for an encoder-decoder [as in training]")
@option("--beam", type=int, help="beams kept in beam search, for an encoder-decoder [1]")
@option(
    "--picture",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="draw the loss by the length of the context, as .png, .svg or .pdf",
)
@option(
    "--allow-lossy",
    is_flag=True,
    help="show figures per character as lower bounds where the tokenizer loses characters of the text",
)
@verification
@common()
def evaluate(
    run: Path,
    texts: tuple[str, ...],
    device: str,
    as_json: bool,
    quiet: bool,
    picture: Path | None,
    verify: bool,
    **flags: Any,
) -> None:
    """Evaluate a model on a text or a table.

    A language model predicts each character once, with the text before it as context. A masked language model predicts
    15% of the tokens, always the same ones. A classifier is compared with the labels of a table, and an encoder-decoder
    with its targets. Figures per character and per byte are comparable across tokenizers; figures per token are not.
    Where a tokenizer loses more than 0.1% of the characters (unknown words, capitals, spaces), figures per character
    are left out; --allow-lossy shows them as lower bounds.
    Baselines are fitted to the training part of the run. A notice appears if the run was trained on the same data.

    A RUN is a run folder or a transformers model folder. Several, all for the same task, are compared in one table, and
    with --picture language models also in a picture, which shows the loss after each length of the context.
    """
    from jumok.cli.compare_runs import compare, split_runs

    runs, given = split_runs(run, texts)
    if not given:
        raise click.UsageError(tr("Missing argument 'TEXT...': every argument is the folder of a model."))
    if len(runs) > 1:
        compare(runs, given, flags, device=device, as_json=as_json, quiet=quiet, picture=picture, verify=verify)
    else:
        _evaluate_one(run, given, flags, device=device, as_json=as_json, quiet=quiet, picture=picture, verify=verify)


def _evaluate_one(
    run: Path,
    texts: tuple[str, ...],
    flags: dict[str, Any],
    *,
    device: str,
    as_json: bool,
    quiet: bool,
    picture: Path | None,
    verify: bool,
) -> None:
    from jumok import device as devices
    from jumok.cli.compare_runs import (
        draw,
        mark_lower_bounds,
        measure,
        require_picture,
        require_task_options,
        tell_lost_text,
        warn_of_training_data,
    )
    from jumok.cli.console.tables import show_figures
    from jumok.models import task_of
    from jumok.runs.load import load

    model = load(run, str(devices.choose_device(device)), verify=verify)
    task = task_of(model)
    require_task_options(task, run, flags)
    require_picture(task, picture)
    if task == "mlm":
        from jumok.inference.fill_mask import require_masked_model

        require_masked_model(model)  # before the text is read, which may take long
    material: Any = read_material(task, texts, flags, recorded_columns(run))
    say(material.describe(), quiet=quiet)
    measured = measure(task, model, material, flags)
    tell_lost_text(measured, quiet=quiet)
    figures = _with_baselines(dataclasses.asdict(measured), run, material)
    warn_of_training_data(figures["seen_in_training"], quiet=quiet)
    if picture is not None:
        from jumok.evaluation.by_position import loss_by_position

        curve = loss_by_position(model, material, allow_lossy=flags["allow_lossy"])
        draw({run.resolve().name: curve}, picture, quiet=quiet)
    if as_json:
        print_json(plain_floats(figures))
    else:
        if not figures.get("lost_chars"):
            figures.pop("lost_chars", None)
        mark_lower_bounds(figures)
        shown = {name: value for name, value in figures.items() if name not in ONLY_JSON and value is not None}
        show_figures(shown)


def _with_baselines(figures: dict[str, Any], run: Path, material: Any) -> dict[str, Any]:
    """The figures, each followed by its baseline, and the share of the data that the run was trained on, if known."""
    from jumok.training.tasks import task_of_run

    trained = task_of_run(run)
    comparison: dict[str, Any] = {} if trained is None else trained.comparison(material)
    found: dict[str, Any] = {}
    for name, value in figures.items():
        found[name] = value
        baseline = f"baseline_{name}"
        if baseline in comparison:
            found[baseline] = comparison[baseline]
    return {**found, "seen_in_training": comparison.get("seen_in_training")}
