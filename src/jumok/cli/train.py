"""`jumok train`: train a model on texts, in a run folder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option, reading
from jumok.cli.console.output import print_json, say
from jumok.cli.interrupts import INTERRUPTED, stopping
from jumok.cli.process import process_seconds, sleep_where_busy
from jumok.cli.processes import (
    group_of,
    in_launch,
    is_restarted,
    launch,
    launcher_has_ended,
    rank_of_launch,
    train_as_another_rank,
)
from jumok.cli.train_options import field_options, read_toml, task_options
from jumok.cli.train_request import MODELS, TrainRequest
from jumok.config import SIZES, EncoderDecoderConfig, GPTConfig, TrainConfig, field_types
from jumok.corpora.hub import folder_of
from jumok.errors import ConfigError
from jumok.files import on_disk
from jumok.messages import shell, tr
from jumok.processors import waiting_threads

if TYPE_CHECKING:
    from jumok.training.subscribers.progress import TrainingView
    from jumok.training.trainer import Trainer

# Makes a trainer that writes to a folder, and a sentence for the user; the function takes what is being done.
Making = Callable[[Path, Callable[[str], None]], tuple["Trainer", str]]


@click.command(
    cls=Verb,
    short_help="Train a model on texts.",
    brief=(
        *("task", "minutes", "steps", "size", "tokenizer", "init", "out", "resume"),
        *("device", "seed", "as_json", "quiet", "help_all"),
    ),
    examples="""
    jumok train novel.txt --minutes 5 --out runs/novel
    jumok train reviews.tsv --task classify --text document --label label
    jumok train reviews.csv --column document --tokenizer bpe --size mini --minutes 30
    jumok train novel.txt --minutes 5 --stop-at 2.9 --json
    jumok train novel.txt --minutes 5 --explain
    jumok train folder/ more.txt --size nanokogpt --steps 2000 --out runs/blog
    cat *.txt | jumok train - --steps 500 --out runs/piped
    jumok train folder/ --size mini --steps 2000 --processes 2 --out runs/blog
    jumok train --resume --out runs/novel
    jumok train novel.txt --task mlm --out runs/bert
    jumok train reviews.tsv --task classify --text document --label label --init runs/bert
    jumok train chat.tsv --task seq2seq --source question --target answer
    jumok train novel.txt --minutes 3 --init runs/novel --out runs/longer
    jumok train talk.jsonl --task chat --init runs/novel --out runs/talk
    """,
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@option("--out", type=PATH, help="run folder [runs/NAME]")
@option(
    "--resume",
    is_flag=True,
    help="continue the run in --out, which was stopped",
)
@option(
    "--init",
    type=PATH,
    help="start from the model of this run folder (for its own text: with its settings), transformers folder or "
    "hf:OWNER/MODEL",
)
@option(
    "--processes",
    type=int,
    help="train with so many processes on this computer; torchrun starts them on several [1]",
)
@option("--explain", is_flag=True, help="print the settings that would be chosen and the reasons; train nothing")
@option("--config", "config_file", type=PATH, help="a .toml file with any of these settings")
@reading("Text")
@option("--val", section="Text", help="share to hold out, at the end of the text [0.1], or a file to hold out")
@option(
    "--tokenizer",
    section="Text",
    help="char, jamo, bpe, or a tokenizer.json file [char; classify, seq2seq of sentences bpe]",
)
@option(
    "--vocab-size", type=int, section="Text", help="vocabulary size of a bpe tokenizer [8000; classify, seq2seq 4000]"
)
@option("--min-count", type=int, section="Text", help="rarer characters are encoded as bytes [2]")
@option("--model", type=click.Choice(MODELS), section="Model", help="kind of model [by task]")
@option("--size", section="Model", help=f"{', '.join(SIZES)} [micro]; options for single sizes override it")
@field_options(GPTConfig, "Model")
@field_options(EncoderDecoderConfig, "Model", skip=tuple(field_types(GPTConfig)))
@field_options(TrainConfig, "Training", skip=("val", "seed"))
@task_options
@common(seed=True)
def train(
    texts: tuple[str, ...],
    out: Path | None,
    resume: bool,
    processes: int | None,
    init: Path | None,
    explain: bool,
    config_file: Path | None,
    device: str,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a model on texts: a GPT, or another model for another --task.

    A TEXT is a file (.txt, .md, .json, .jsonl, .csv, .tsv, .parquet), a folder, or - for stdin, which is plain
    text, JSON, or a table if a column is named. The tasks classify and seq2seq read columns of a table, and chat reads
    conversations. Without a TEXT, the built-in corpus `stories` is used, whose entropy is known, `numbers` for seq2seq,
    or `talk` for chat.

    The run folder contains the model, its tokenizer, the loss curve and samples. Ctrl-C stops the training at any time,
    and --resume continues it. The model of a finished run is trained further by a new run with --init.
    """
    began = time.monotonic()
    if processes is not None and not in_launch(processes):
        raise click.exceptions.Exit(launch(processes, device))
    if rank_of_launch() > 0:
        waiting_threads()
        raise click.exceptions.Exit(train_as_another_rank(device))
    busy = sleep_where_busy()
    if init is not None:
        folder_of(init)  # a download has a progress bar of its own
    with group_of(device) as (group, device):
        settings = _settings(config_file, {key: value for key, value in flags.items() if value is not None})
        request = TrainRequest(texts, settings, init=init, device=device, began=began, group=group)
        if explain and resume:
            raise ConfigError(
                "{--explain} applies to a new run; the settings of an existing run are in its config.json. Leave "
                "{--resume} out."
            )
        if explain:
            _explain(request.start, busy, quiet, as_json)
            return
        if resume and out is None:
            raise ConfigError("{--resume} needs {--out RUN}, the folder of the run to continue.")
        if not resume and is_restarted(out):  # with the settings that the run has
            resume, request = True, TrainRequest((), {}, init=None, device=device, began=began, group=group)
        _run(request.resume if resume else request.start, out or _free_folder(texts), busy, quiet, as_json)


def _settings(config_file: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the file, overridden by those of the command line."""
    settings = read_toml(config_file, {one.name for one in train.params if one.name}) if config_file else {}
    if "steps" in given or "minutes" in given:  # either overrides both of the file
        settings = {key: value for key, value in settings.items() if key not in ("steps", "minutes")}
    return settings | given


def _run(make: Making, folder: Path, busy: str, quiet: bool, as_json: bool) -> None:
    """Train with a progress bar, then print how to use or to continue the run."""
    from jumok.runs.folder import stop_file
    from jumok.training.subscribers.progress import TrainingView

    summary: dict[str, Any] = {}
    with TrainingView(folder, quiet=quiet) as view:
        trainer, text_note = make(folder, view.doing)
        for note in filter(None, (busy, text_note)):
            view.say(note)
        stop = stop_file(folder)  # `jumok serve` writes it
        with stopping(trainer, view.say):
            for event in trainer.run():
                view.show(event)
                summary = view.summary
                if stop.exists() or launcher_has_ended():
                    stop.unlink(missing_ok=True)
                    trainer.request_stop()
    interrupted = summary["reason"] == "interrupted"
    if interrupted:
        say(tr("Stopped after step {step:,}. The training state is saved. Continue with:", step=summary["steps"]))
        say(f"  {shell('jumok', 'train', '--resume', '--out', folder)}")
    else:
        _show_next_steps(trainer, folder, view)
    if as_json:
        print_json({"run": str(folder), **summary, "process_seconds": process_seconds()})
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _show_next_steps(trainer: Trainer, folder: Path, view: TrainingView) -> None:
    """Print the commands that use a finished run, and train its model further."""
    from jumok.training.run_record import further_command
    from jumok.training.verdict import use_command

    command = use_command(trainer.task, folder)
    if view.summary["verdict"]["command"] != command:
        view.say(f"{tr(trainer.task.use)}\n  {command}")
    if trainer.result is not None and "--init" not in view.summary["verdict"]["command"]:
        command = further_command(folder, trainer.task.data, trainer.model.config, trainer.config)
        view.say(f"{tr('Train further, for example for the same length again:')}\n  {command}")


def _explain(make: Making, busy: str, quiet: bool, as_json: bool) -> None:
    """Start the run in a temporary folder and print its plan."""
    from jumok.cli.console.explanation import show_explanation
    from jumok.training.policy import explain
    from jumok.training.subscribers.progress import TrainingView

    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        with TrainingView(Path(folder), quiet=quiet) as view:
            trainer, text_note = make(Path(folder) / "run", view.doing)
        assert trainer.plan is not None  # it was started, not resumed
        found, notices = explain(trainer.plan, trainer.task, trainer.device), trainer.notices
        trainer.close()
        del trainer  # it maps the text of the folder, which Windows cannot remove as long as it is mapped
    if as_json:
        values = dataclasses.asdict(found)
        values["choices"] = {name: {"chosen": word, "why": why} for name, (word, why) in values["choices"].items()}
        print_json({**values, "notices": notices})
        return
    for note in filter(None, (busy, text_note)):
        say(note, quiet=quiet)
    show_explanation(found)
    for notice in notices:
        say(notice, quiet=quiet)


def _free_folder(texts: tuple[str, ...]) -> Path:
    """Return runs/NAME after the first text, with a number if that folder is there already."""
    name = "stories" if not texts else "stdin" if texts[0] == "-" else Path(texts[0]).resolve().stem or "run"
    tries = (Path("runs") / (name if n == 1 else f"{name}-{n}") for n in range(1, 10_000))
    return next(folder for folder in map(on_disk, tries) if not folder.exists())
