"""`jumok evaluate`: the figures of a model on a text or a table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import Verb, common, option
from jumok.cli.console.output import plain_floats, print_json, say
from jumok.cli.material import COLUMN_NAMES, READING, read_material, recorded_columns
from jumok.errors import ConfigError
from jumok.messages import tr

ONLY_JSON = {"confusion", "f1", "labels", "seen_in_training"}  # figures that the table leaves out


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
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@option("--encoding", help="encoding of the text files [detected]")
@option("--column", help="column of .csv, .tsv and .jsonl files [text]")
@option("--text", help="column of the texts, for a classifier [as in training]")
@option("--label", help="column of the labels, for a classifier [as in training]")
@option("--source", help="column of the sources, for an encoder-decoder [as in training]")
@option("--target", help="column of the targets, for an encoder-decoder [as in training]")
@option("--beam", type=int, help="beams kept in beam search, for an encoder-decoder [1]")
@common()
def evaluate(run: Path, texts: tuple[str, ...], device: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Evaluate a model on a text or a table.

    A language model predicts each character once, with the text before it as context. A masked language model predicts
    15% of the tokens, always the same ones. A classifier is compared with the labels of a table, and an encoder-decoder
    with its targets. Figures per character and per byte are comparable across tokenizers; figures per token are not.
    Baselines are fitted to the training part of the run. A notice appears if the run was trained on the same data.
    """
    from jumok import device as devices
    from jumok.cli.console.tables import show_figures
    from jumok.evaluation.overlap import WORTH_TELLING
    from jumok.models import task_of
    from jumok.runs.load import load

    model = load(run, str(devices.choose_device(device)))
    task = task_of(model)
    if task == "mlm":
        from jumok.inference.fill_mask import require_masked_model

        require_masked_model(model)  # before the text is read, which may take long
    known = (*READING, *COLUMN_NAMES, "beam")
    strange = [name for name in known if flags[name] is not None and name not in OPTIONS[task]]
    if strange:
        raise ConfigError(
            "--{option} does not apply to the model in {run}; its options are --{options}.",
            option=strange[0],
            run=run,
            options=", --".join(OPTIONS[task]),
        )
    material = read_material(task, texts, flags, recorded_columns(run))
    say(material.describe(), quiet=quiet)
    measured = dataclasses.asdict(_measure(task, model, material, flags["beam"] or 1))
    figures = _with_baselines(measured, run, material)
    seen = figures["seen_in_training"]
    if seen is not None and seen >= WORTH_TELLING:
        say(
            tr(
                "{share:.0%} of this data was training data of the run, so the figures are better than those of new "
                "data. Data that the run held out does not count.",
                share=seen,
            ),
            quiet=quiet,
        )
    if as_json:
        print_json(plain_floats(figures))
    else:
        show_figures({name: value for name, value in figures.items() if name not in ONLY_JSON and value is not None})


OPTIONS = {
    "lm": READING,
    "mlm": READING,
    "classify": ("text", "label", "encoding"),
    "seq2seq": ("source", "target", "encoding", "beam"),
}


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


def _measure(task: str, model: Any, material: Any, beam: int) -> Any:
    """The figures of the task, as a dataclass."""
    if task == "classify":
        from jumok.evaluation.classification import evaluate_classes

        return evaluate_classes(model, material)
    if task == "seq2seq":
        from jumok.evaluation.seq2seq import evaluate_pairs

        return evaluate_pairs(model, material, beam=beam)
    if task == "mlm":
        from jumok.evaluation.masked import evaluate_masked

        return evaluate_masked(model, material)
    from jumok.evaluation.language_model import evaluate_text

    return evaluate_text(model, material)
