"""Several models of one task on the same data: what `jumok evaluate` does with more than one run."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.cli.commands import require_options
from jumok.cli.console.output import plain_floats, print_json, say
from jumok.cli.material import COLUMN_NAMES, READING, read_material, recorded_columns
from jumok.errors import ConfigError, JumokError, RunError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.evaluation.by_position import LossByPosition

OPTIONS = {
    "lm": (*READING, "allow_lossy"),
    "mlm": READING,
    "classify": ("text", "label", "encoding"),
    "seq2seq": ("source", "target", "encoding", "beam"),
}
PER_CHARACTER = {"nats_per_char", "bits_per_char", "bits_per_byte"}
# The figures in the table, by task. Those of tokens are left out: runs may have different tokenizers.
FIGURES = {
    "lm": ("nats_per_char", "bits_per_char", "bits_per_byte", "tokens_per_char"),
    "mlm": ("nats_per_hidden_token", "accuracy", "pseudo_perplexity"),
    "classify": ("accuracy", "f1_macro", "loss"),
    "seq2seq": ("exact_match", "chrf", "bleu"),
}


# --- the arguments ----------------------------------------------------------------------------------------------------


def split_runs(run: Path, others: tuple[str, ...]) -> tuple[list[Path], tuple[str, ...]]:
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
    if len(texts) > 1 and texts[0] != "-" and not os.path.exists(texts[0]):
        raise RunError(
            "{path} does not exist; give the folders of models first, and then texts that exist.", path=texts[0]
        )
    return [run, *map(Path, others[:count])], texts


def _is_model(argument: str) -> bool:
    return os.path.isfile(os.path.join(argument, "config.json"))


def require_task_options(task: str, run: Path, flags: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that does not apply to the task of a model."""
    known = (*READING, *COLUMN_NAMES, "beam", "allow_lossy")
    require_options(run, (name for name in known if flags[name] not in (None, False)), OPTIONS[task])


def require_picture(task: str, picture: Path | None) -> None:
    """Raise ConfigError for a picture that the task does not have, or that cannot be written."""
    from jumok.view.canvas import require_drawable

    if picture is None:
        return
    if task != "lm":
        raise ConfigError(
            "{--picture} shows the loss by position of language models, but the task is {task}; leave it out.",
            task=task,
        )
    require_drawable(picture)


# --- one model --------------------------------------------------------------------------------------------------------


def measure(task: str, model: Any, material: Any, flags: Mapping[str, Any]) -> Any:
    """Return the figures of the task, as a dataclass."""
    if task == "classify":
        from jumok.evaluation.classification import evaluate_classes

        return evaluate_classes(model, material)
    if task == "seq2seq":
        from jumok.evaluation.seq2seq import evaluate_pairs

        return evaluate_pairs(model, material, beam=flags["beam"] or 1)
    if task == "mlm":
        from jumok.evaluation.masked import evaluate_masked

        return evaluate_masked(model, material)
    from jumok.evaluation.language_model import evaluate_text

    return evaluate_text(model, material, allow_lossy=flags["allow_lossy"])


def tell_lost_text(figures: Any, run: str = "", *, quiet: bool) -> None:
    """Tell what the tokenizer of a language model loses of the text, and what that means for the figures.

    Args:
        run: its name, if there are several.
    """
    from jumok.evaluation.language_model import TextEvaluation

    if not isinstance(figures, TextEvaluation) or not figures.lost_chars:
        return
    if figures.lower_bound:
        meaning = tr(
            "The model need not predict what is lost, so the figures per character and per byte are lower bounds (≥), "
            "and do not compare with those of other tokenizers."
        )
    elif figures.lost.too_much:
        meaning = tr(
            "The model need not predict what is lost, so figures per character and per byte would be too good, and are "
            "left out. {--allow-lossy} shows them as lower bounds. Losses per token compare among models with this "
            "tokenizer."
        )
    else:
        meaning = tr("That is too little to change the figures per character.")
    text = f"{figures.lost.describe()} {meaning}"
    say(f"{run}: {text}" if run else text, quiet=quiet)


def mark_lower_bounds(figures: dict[str, Any]) -> None:
    """Turn figures that are only lower bounds into text that says so, for a table."""
    if figures.get("lower_bound"):
        for name in PER_CHARACTER & figures.keys():
            if figures[name] is not None:
                figures[name] = f"≥ {figures[name]:.4f}"


def warn_of_training_data(seen: float | None, run: str = "", *, quiet: bool) -> None:
    """Tell what share of the data a run was trained on, if it changes what the figures mean.

    Args:
        run: its name, if there are several.
    """
    from jumok.evaluation.overlap import WORTH_TELLING

    if seen is not None and seen >= WORTH_TELLING:
        text = tr(
            "{share:.0%} of this data was training data of the run, so the figures are better than those of new "
            "data. Data that the run held out does not count.",
            share=seen,
        )
        say(f"{run}: {text}" if run else text, quiet=quiet)


# --- several ----------------------------------------------------------------------------------------------------------


def compare(
    runs: Sequence[Path],
    texts: tuple[str, ...],
    flags: Mapping[str, Any],
    *,
    device: str,
    as_json: bool,
    quiet: bool,
    picture: Path | None,
    verify: bool = True,
) -> None:
    """Evaluate models one after the other, each loaded when its turn comes, and print one table.

    Raises:
        ConfigError: they are for different tasks, or one is given twice. RunError: a folder has no model.
    """
    from jumok.cli.console.tables import show_models

    names, task = names_of(runs), _task_of_all(runs)
    require_task_options(task, runs[0], flags)
    require_picture(task, picture)
    rows, curves = [], {}
    materials: dict[tuple[str, ...], Any] = {}
    for run, name in zip(runs, names, strict=True):
        columns = recorded_columns(run)
        if columns not in materials:
            materials[columns] = read_material(task, texts, flags, columns)
            say(materials[columns].describe(), quiet=quiet)
        say(tr("evaluating {name}", name=name), quiet=quiet)
        try:
            row, curve = _row(run, name, task, materials[columns], device, flags, quiet=quiet, verify=verify)
        except JumokError as error:
            raise type(error)("{error}", error=f"{name}: {error}") from error
        warn_of_training_data(row["seen_in_training"], name, quiet=quiet)
        rows.append({"name": name, **row})
        if curve is not None:
            curves[name] = curve
    if picture is not None and not curves:
        say(tr("{path} is not drawn: no model has figures per character here.", path=picture), quiet=quiet)
        picture = None
    if picture is not None:
        draw(curves, picture, quiet=quiet)
    if as_json:
        print_json({"task": task, "picture": picture and str(picture), "models": [plain_floats(row) for row in rows]})
    else:
        for row in rows:
            mark_lower_bounds(row)
        show_models(rows, ("parameters", *FIGURES[task], "tokens_per_second"))


def names_of(runs: Sequence[Path]) -> list[str]:
    """Return the names of folders; those that are alike with as many folders above as tell them apart.

    Raises:
        ConfigError: a folder is given twice.
    """
    paths = [run.resolve() for run in runs]
    twice = next((run for run, count in Counter(paths).items() if count > 1), None)
    if twice is not None:
        raise ConfigError("{run} was given twice; give each model once.", run=twice)
    names = [path.name for path in paths]
    depth = 1
    while len(set(names)) < len(names):
        depth += 1
        alike = Counter(names)
        names = [
            "/".join(path.parts[-depth:]) if alike[name] > 1 else name for name, path in zip(names, paths, strict=True)
        ]
    return names


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


def _row(
    run: Path, name: str, task: str, material: Any, device: str, flags: Mapping[str, Any], *, quiet: bool, verify: bool
) -> tuple[dict[str, Any], LossByPosition | None]:
    """Return the figures of a model, and its loss by position if it is a language model."""
    from jumok import device as devices
    from jumok.runs.load import load
    from jumok.training.tasks import task_of_run

    model = load(run, str(devices.choose_device(device)), verify=verify)
    began = time.perf_counter()
    measured = measure(task, model, material, flags)
    seconds = time.perf_counter() - began
    tell_lost_text(measured, name, quiet=quiet)
    figures = dataclasses.asdict(measured)
    trained = task_of_run(run)
    comparison: dict[str, Any] = {} if trained is None else trained.comparison(material)
    row = {
        "run": str(run),
        "parameters": model.parameter_count(),
        **figures,
        "tokens_per_second": round(figures["tokens"] / max(seconds, 1e-9)),
        "seen_in_training": comparison.get("seen_in_training"),
    }
    if task != "lm":
        return row, None
    row["tokens_per_char"] = figures["tokens"] / figures["chars"]
    if figures["nats_per_char"] is None:
        return {**row, "by_position": None}, None
    from jumok.evaluation.by_position import loss_by_position

    curve = loss_by_position(model, material, allow_lossy=flags["allow_lossy"])
    by_position = {"context_chars": list(curve.context_chars), "nats_per_char": list(curve.nats_per_char)}
    return {**row, "by_position": by_position}, curve


def draw(curves: Mapping[str, LossByPosition], picture: Path, *, quiet: bool) -> None:
    """Draw the loss by position, and tell where."""
    from jumok.view.evaluation_pictures import draw_loss_by_position

    draw_loss_by_position({name: (curve.context_chars, curve.nats_per_char) for name, curve in curves.items()}, picture)
    say(tr("loss by position: {path}", path=picture), quiet=quiet)
