"""`jumok evaluate`: the figures of one model, or of several of one task, on a text or a table."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import PATH, Verb, common, option, reading, require_options
from jumok.cli.console.output import print_json, say
from jumok.cli.material import (
    COLUMN_NAMES,
    READING,
    TALK_TEST_ROWS,
    free_table,
    read_material,
    recorded_columns,
    talk_table,
)
from jumok.corpora.hub import is_name, name_of
from jumok.errors import ConfigError, JumokError, RunError
from jumok.files import on_disk
from jumok.messages import tr

OPTIONS = {
    "lm": READING,
    "mlm": READING,
    "classify": ("text", "label", "encoding"),
    "seq2seq": ("source", "target", "encoding", "beam"),
    "chat": ("encoding",),
}
# Figures in the table of several models. Those of tokens are left out: models may have different tokenizers.
COMPARED = {
    "lm": ("nats_per_char", "bits_per_char", "bits_per_byte", "tokens_per_char"),
    "mlm": ("nats_per_hidden_token", "accuracy"),
    "classify": ("accuracy", "f1_macro", "loss"),
    "seq2seq": ("exact_match", "chrf", "bleu"),
    "chat": ("nats_per_char", "exact_match", "checks"),
}
BASELINES = ("baseline", "nearest")  # before the names of figures
ONLY_JSON = {
    "skills",
    "judgements",
    "free",
    "confusion",
    "f1",
    "labels",
    "seen_in_training",
    "lost_example",
}  # not in the table of one


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
    jumok evaluate runs/talk talk
    jumok evaluate runs/talk others.jsonl
    jumok evaluate runs/char runs/bpe models/kogpt2 other.txt
    """,
)
@click.argument("run", type=PATH, metavar="RUN...")
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@reading()
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
    with its targets. If a table begins with a conversation, a GPT with a chat template answers, and is compared with
    the right answers, by their checks where there are some. `talk` stands for the unseen part of the built-in
    conversations, and for free messages as people type them to a chatbot. Figures per character and per byte are
    comparable across tokenizers; figures per token are not. Where a tokenizer loses more than 0.1% of the characters
    (unknown words, capitals, spaces), figures per character are left out.
    Baselines are fitted to the training part of the run. A notice appears if the run was trained on the same data.

    A RUN is a run folder or a transformers model folder. Several, all for the same task, are compared in one table.
    """
    from jumok.device import choose_device
    from jumok.text.conversations import are_conversations

    runs, given = _split_runs(run, texts)
    if not given:
        raise click.UsageError(tr("Missing argument 'TEXT...': every argument is the folder of a model."))
    task = _task_of_all(runs)
    unseen = task == "lm" and given == ("talk",) and not Path("talk").exists()
    if unseen or (task == "lm" and not flags["column"] and are_conversations(given)):
        task = "chat"
    known = (*READING, *COLUMN_NAMES, "beam")
    require_options(run, (name for name in known if flags[name] is not None), OPTIONS[task])
    place, several = str(choose_device(device)), len(runs) > 1
    materials: dict[tuple[str, ...], Any] = {}
    rows: list[dict[str, Any]] = []
    for path, name in zip(runs, _names_of(runs), strict=True):
        try:
            columns = recorded_columns(path)
            if columns not in materials:
                found = talk_table(TALK_TEST_ROWS, "test") if unseen else read_material(task, given, flags, columns)
                materials[columns] = found
                say(materials[columns].describe(), quiet=quiet)
            if several:
                say(tr("evaluating {name}", name=name), quiet=quiet)
            row = _row(path, task, materials[columns], place, flags, free=unseen)
        except JumokError as error:
            if not several:
                raise
            if rows:  # the figures of the models before it are printed before the error
                _show_several(task, rows, as_json)
            raise type(error)("{error}", error=f"{name}: {error}") from error
        for notice in row.pop("notices"):
            say(f"{name}: {notice}" if several else notice, quiet=quiet)
        rows.append({"name": name, **row})
    if several:
        _show_several(task, rows, as_json)
    else:
        _show_one(rows[0]["figures"], as_json)


# --- the arguments ----------------------------------------------------------------------------------------------------


def _split_runs(run: Path, others: tuple[str, ...]) -> tuple[list[Path], tuple[str, ...]]:
    """Return the models and the texts: each argument up to the first one that is not the folder of a model is a model.

    Raises:
        RunError: a model follows a text.
    """
    count = next((i for i, other in enumerate(others) if not _is_model(other)), len(others))
    texts = others[count:]
    late = next((text for text in texts if _is_model(text)), None)
    if late is not None:
        raise RunError(
            "{late} is the folder of a model, and comes after {text}, which is taken for a text, because it is no "
            "folder with a config.json. Give the folders of all models first.",
            late=late,
            text=texts[0],
        )
    return [run, *map(on_disk, others[:count])], texts


def _is_model(argument: str) -> bool:
    return is_name(argument) or os.path.isfile(on_disk(argument) / "config.json")


def _names_of(runs: Sequence[Path]) -> list[str]:
    """Return the names of the folders, or their paths where names are alike."""
    names = [name_of(run) for run in runs]
    return [str(run) if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True)]


def _task_of_all(runs: Sequence[Path]) -> str:
    """Return the task of all models, from their configurations alone."""
    from jumok.config.features import task_of
    from jumok.runs.load import read_shape

    tasks = [task_of(read_shape(run)) for run in runs]
    other = next((i for i, task in enumerate(tasks) if task != tasks[0]), None)
    if other is not None:
        raise ConfigError(
            "{first} is a model for the task {task}, and {second} one for the task {other}: their figures do not "
            "compare. Evaluate them with two commands.",
            first=runs[0],
            task=tasks[0],
            second=runs[other],
            other=tasks[other],
        )
    return tasks[0]


# --- one model --------------------------------------------------------------------------------------------------------


def _row(run: Path, task: str, material: Any, device: str, flags: Mapping[str, Any], *, free: bool) -> dict[str, Any]:
    """Return facts about a model, and its figures, each followed by its baseline.

    Args:
        free: answer free messages, too.
    """
    from jumok.evaluation.evaluate import evaluate as measure
    from jumok.runs.load import load
    from jumok.training.tasks import task_of_run

    model: Any = load(run, device)
    settings: dict[str, Any] = {} if flags["beam"] is None else {"beam": flags["beam"]}
    began = time.perf_counter()
    measured: Any = measure(model, material, **settings)
    seconds = max(time.perf_counter() - began, 1e-9)
    trained = task_of_run(run)
    comparison: dict[str, Any] = {}
    if trained is not None and trained.config_type.name == task:  # a model that answers also continues texts
        comparison = trained.comparison(material)
    figures: dict[str, Any] = {}
    for name, value in dataclasses.asdict(measured).items():
        figures[name] = value
        figures |= {one: comparison[one] for kind in BASELINES if (one := f"{kind}_{name}") in comparison}
    if free:
        figures["free"] = _free_figures(model)
    return {
        "run": str(run),
        "parameters": model.parameter_count(),
        "tokens_per_second": round(measured.tokens / seconds),
        "figures": figures | {"seen_in_training": comparison.get("seen_in_training")},
        "notices": [*_lost_text(measured), *_training_data(comparison)],
    }


def _free_figures(model: Any) -> dict[str, Any]:
    """Return the share of fitting or honest answers to free messages, in all and by kind, and these answers."""
    from jumok.evaluation.chat import evaluate_chat, share_of

    found = evaluate_chat(model, free_table())
    figures = dataclasses.asdict(found)
    share = share_of([one.outcome for one in found.judgements])
    return {"all": dataclasses.asdict(share), "kinds": figures["skills"], "judgements": figures["judgements"]}


def _lost_text(measured: Any) -> Iterator[str]:
    """Tell what the tokenizer of a language model loses of the text, and what that means for the figures."""
    from jumok.evaluation.language_model import TextEvaluation

    if not isinstance(measured, TextEvaluation) or not measured.lost_chars:
        return
    if measured.lost.too_much:
        meaning = tr(
            "The model need not predict what is lost, so figures per character and per byte would be too good, and are "
            "left out. Losses per token compare among models with this tokenizer."
        )
    else:
        meaning = tr("That is too little to change the figures per character.")
    yield f"{measured.lost.describe()} {meaning}"


def _training_data(comparison: Mapping[str, Any]) -> Iterator[str]:
    """Tell what share of the data the run was trained on, if it changes what the figures mean."""
    from jumok.evaluation.overlap import WORTH_TELLING

    if (share := comparison.get("seen_in_training", 0.0)) >= WORTH_TELLING:
        yield tr(
            "{share:.0%} of this data was training data of the run, so the figures are better than those of new "
            "data. Data that the run held out does not count.",
            share=share,
        )


# --- what is printed --------------------------------------------------------------------------------------------------


def _show_one(figures: dict[str, Any], as_json: bool) -> None:
    """Print a line for each figure of a model."""
    from jumok.cli.console.tables import show_figures, show_free, show_skills

    if as_json:
        print_json(figures)
        return
    shown = {name: value for name, value in figures.items() if name not in ONLY_JSON and value is not None}
    if not shown.get("lost_chars"):
        shown.pop("lost_chars", None)
    show_figures(shown)
    if skills := figures.get("skills"):
        show_skills({"": skills})
    if free := figures.get("free"):
        show_free({"": free})


def _show_several(task: str, models: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print a line for each model."""
    from jumok.cli.console.tables import show_free, show_models, show_skills

    rows: list[dict[str, Any]] = []
    for model in models:
        figures = model.pop("figures")
        if task == "lm":
            figures["tokens_per_char"] = figures["tokens"] / figures["chars"]
        rows.append(model | figures)
    if as_json:
        print_json({"task": task, "models": rows})
    else:
        show_models(rows, ("parameters", *COMPARED[task], "tokens_per_second"))
        if any(row.get("skills") for row in rows):
            show_skills({row["name"]: row["skills"] for row in rows})
        if any(row.get("free") for row in rows):
            show_free({row["name"]: row["free"] for row in rows})
