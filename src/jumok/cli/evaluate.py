"""`jumok evaluate`: how well a model predicts a text, finds what is hidden in it, answers, or sorts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from jumok.cli._verbs import (
    COLUMN_NAMES,
    READING,
    Verb,
    common,
    option,
    plain_floats,
    print_json,
    read_material,
    recorded_columns,
    say,
)
from jumok.errors import ConfigError
from jumok.messages import tr

HIDDEN = {"confusion", "f1", "labels", "seen_in_training"}  # in a table of figures; --json has them


@click.command(
    cls=Verb,
    short_help="Measure how well a model does on a text or a table.",
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
@option("--encoding", help="of the text files [found out]")
@option("--column", help="of .csv, .tsv and .jsonl files [text]")
@option("--text", help="column of the texts, for a classifier [as in training]")
@option("--label", help="column of their labels, for a classifier [as in training]")
@option("--source", help="column of what is read, for an encoder-decoder [as in training]")
@option("--target", help="column of what should be written, for an encoder-decoder [as in training]")
@option("--beam", type=int, help="width of the search for answers, for an encoder-decoder [1]")
@common()
def evaluate(run: Path, texts: tuple[str, ...], device: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """How well a model predicts a text: each character once, with what came before it as context.

    A model of hidden words is asked for 15% of the tokens of a text, always the same ones; a classifier is held against
    the labels of a table, an encoder-decoder against its targets. Figures per character and per byte compare across
    tokenizers; those per token do not. Beside a figure stands that of a baseline, which was fitted to the training part
    of the run. You are told if the run was trained on what is evaluated.
    """
    from jumok import device as devices
    from jumok.cli.console import show_figures
    from jumok.evaluation.overlap import WORTH_TELLING
    from jumok.models import task_of
    from jumok.runs.load import load

    model = load(run, str(devices.choose_device(device)))
    task = task_of(model)
    if task == "mlm":
        from jumok.inference.fill_mask import require_masked_model

        require_masked_model(model)  # before a text is read, which may take long
    known = (*READING, *COLUMN_NAMES, "beam")
    strange = [name for name in known if flags[name] is not None and name not in OPTIONS[task]]
    if strange:
        raise ConfigError(
            "--{option} is not for the model in {run}; it takes --{options}.",
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
                "This run was trained on {share:.0%} of what is evaluated here, so the figures are better than those "
                "of new material would be. What the run held out does not count as trained on.",
                share=seen,
            ),
            quiet=quiet,
        )
    if as_json:
        print_json(plain_floats(figures))
    else:
        show_figures({name: value for name, value in figures.items() if name not in HIDDEN and value is not None})


OPTIONS = {
    "lm": READING,
    "mlm": READING,
    "classify": ("text", "label", "encoding"),
    "seq2seq": ("source", "target", "encoding", "beam"),
}


def _with_baselines(figures: dict[str, Any], run: Path, material: Any) -> dict[str, Any]:
    """The figures, behind each one its baseline, and what share of the material the run was trained on, if known."""
    from jumok.training.tasks import task_of_run

    trained = task_of_run(run)
    beside: dict[str, Any] = {} if trained is None else trained.beside(material)
    found: dict[str, Any] = {}
    for name, value in figures.items():
        found[name] = value
        baseline = f"baseline_{name}"
        if baseline in beside:
            found[baseline] = beside[baseline]
    return {**found, "seen_in_training": beside.get("seen_in_training")}


def _measure(task: str, model: Any, material: Any, beam: int) -> Any:
    """The figures, a dataclass."""
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
