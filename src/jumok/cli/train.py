"""`jumok train`: texts in, a run folder out."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from jumok.cli._verbs import (
    COLUMN_NAMES,
    COLUMNS,
    INTERRUPTED,
    NUMBERS_ROWS,
    READING,
    Command,
    Verb,
    common,
    make_room_for_others,
    option,
    plain_floats,
    print_json,
    process_seconds,
    read_material,
    recorded_columns,
    say,
    stopping,
    stories_text,
)
from jumok.config import (
    CLASSIC_DEFAULTS,
    INIT_DEFAULTS,
    ORIGINAL_DEFAULTS,
    SENTENCE_DEFAULTS,
    SIZES,
    SPECIAL_IDS,
    TASK_DEFAULTS,
    TRAINABLE,
    EncoderDecoderConfig,
    GPTConfig,
    TrainConfig,
    field_choices,
    field_types,
    require_choice,
    require_type,
)
from jumok.errors import ConfigError
from jumok.messages import did_you_mean, message, shell, tr

if TYPE_CHECKING:
    from jumok.text import Table, Text
    from jumok.training.progress import TrainingView
    from jumok.training.trainer import Trainer


BUSY = message(
    "Other programs keep the processors busy, so threads sleep while they wait (OMP_WAIT_POLICY=PASSIVE). "
    "It would be faster without the others."
)
FROM_THE_TEXT = ("labels", *SPECIAL_IDS)  # fields that nobody chooses
# Options that some tasks alone have a use for.
TASKS_OF = {
    "column": ("lm", "mlm"),
    **{name: (task,) for task, names in COLUMNS.items() for name in names},
    **dict.fromkeys(("mask_rate", "whole_words"), ("mlm",)),
    **dict.fromkeys(("class_weights", "lm_weight", "token_dropout"), ("classify",)),
    "label_smoothing": ("seq2seq",),
}
OTHER_DEFAULTS = {
    **TASK_DEFAULTS,
    "classic": CLASSIC_DEFAULTS,
    "original": ORIGINAL_DEFAULTS,
    "sentences": SENTENCE_DEFAULTS,
    "--init": INIT_DEFAULTS,
}


def field_options(config: type, section: str, skip: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """An option for each field of a configuration class, with its help and its default."""

    def add(function: Command) -> Command:
        choices = field_choices(config)
        for field in reversed(dataclasses.fields(config)):
            if field.name in skip:
                continue
            flag, kind = "--" + field.name.replace("_", "-"), field_types(config)[field.name]
            help_text = _help(field)
            if kind is bool:
                flag, kind = f"{flag}/--no-{flag[2:]}", None
            elif field.name == "family":  # which there are depends on the model
                kind = click.Choice(["modern", "classic", "original"])
            elif field.name in choices:
                kind = click.Choice(choices[field.name])
            function = option(flag, type=kind, default=None, section=section, help=help_text)(function)
        return function

    return add


def _help(field: dataclasses.Field[Any]) -> str:
    """What a field is, its default, and what other defaults it has: [256; classify 128, seq2seq 64]."""
    sentence = str(field.metadata["help"])
    if "[" not in sentence and field.default is not None:
        sentence += f" [{field.default}]"
    others = [
        f"{name} {values[field.name]}"
        for name, values in OTHER_DEFAULTS.items()
        if values.get(field.name, field.default) != field.default
    ]
    return f"{sentence.removesuffix(']')}; {', '.join(others)}]" if others else sentence


@click.command(
    cls=Verb,
    short_help="Train a model on texts.",
    examples="""
    jumok train novel.txt --minutes 5 --out runs/novel
    jumok train reviews.csv --column document --tokenizer bpe --size mini --minutes 30
    jumok train novel.txt --minutes 5 --stop-at 2.9 --json
    jumok train novel.txt --minutes 5 --explain
    jumok train folder/ more.txt --size nanokogpt --steps 2000 --out runs/blog
    cat *.txt | jumok train - --steps 500 --out runs/piped
    jumok train --resume --out runs/novel
    jumok train --resume --minutes 3 --out runs/novel
    jumok train novel.txt --task mlm --out runs/bert
    jumok train reviews.tsv --task classify --text document --label label --init runs/bert
    jumok train chat.tsv --task seq2seq --source question --target answer
    """,
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@option("--out", type=click.Path(path_type=Path), help="folder for the run [runs/NAME]")
@option(
    "--resume",
    is_flag=True,
    help="continue the run in --out; a finished one is trained further for --minutes or --steps more",
)
@option("--init", type=click.Path(path_type=Path), help="begin with the weights of this run or stock model folder")
@option("--explain", is_flag=True, help="say what the run would do and why, and make nothing")
@option("--config", "config_file", type=click.Path(path_type=Path), help="a .toml file with any of these settings")
@option("--encoding", section="Text", help="of the text files [found out]")
@option("--column", section="Text", help="of .csv, .tsv and .jsonl files [text]")
@option("--text", section="Text", help="column of the texts (classify) [text]")
@option("--label", section="Text", help="column of their labels (classify) [label]")
@option("--source", section="Text", help="column of what is read (seq2seq) [source]")
@option("--target", section="Text", help="column of what is written (seq2seq) [target]")
@option("--val", section="Text", help="share of the text to hold out, its last part [0.1], or a file to hold out")
@option(
    "--tokenizer",
    section="Text",
    help="char, jamo, bpe, or a tokenizer.json [char; classify, seq2seq of sentences: bpe]",
)
@option("--vocab-size", type=int, section="Text", help="ids of a bpe tokenizer [8000; classify, seq2seq 4000]")
@option("--alphabet", section="Text", help="of char: corpus, ksx1001 (2,350 syllables) or hangul (11,172) [corpus]")
@option("--min-count", type=int, section="Text", help="rarer characters are spelled in bytes [2]")
@option("--model", type=click.Choice(TRAINABLE), section="Model", help="[what fits the task]")
@option("--size", section="Model", help=f"{', '.join(SIZES)} [micro]; the flags below go before it")
@field_options(GPTConfig, "Model", skip=("vocab_size", *FROM_THE_TEXT))
@field_options(EncoderDecoderConfig, "Model", skip=(*field_types(GPTConfig), *FROM_THE_TEXT))
@field_options(TrainConfig, "Training", skip=("val", "seed"))
@common(seed=True)
def train(
    texts: tuple[str, ...],
    out: Path | None,
    resume: bool,
    init: Path | None,
    explain: bool,
    config_file: Path | None,
    device: str,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a model on text files (.txt, .md, .jsonl, .csv, .tsv), folders, or - for stdin, which is plain text, or a
    table if a column is named: a GPT, unless --task says otherwise.

    Without a TEXT it trains on the built-in corpus `stories`, whose exact information content is known; seq2seq on
    `numbers`. Classes and pairs are read from the columns of a table.
    The run folder holds the model, its tokenizer, the learning curve and samples; stop with Ctrl-C at any time and
    continue with --resume.

    A finished run is trained further with --resume and a length: a new stage begins with its best weights, and the rate
    rises and falls anew. Rates, --schedule, --patience, --passes and --compile may differ then. --patience and --passes
    count in the new stage alone, and --stop-at holds for one stage: give it again where it is wanted.
    """
    began = time.monotonic()
    if make_room_for_others():
        say(tr(BUSY), quiet=quiet)
    settings = _settings(config_file, flags)

    def make(folder: Path, tell: Callable[[str], None]) -> tuple[Trainer, str]:
        return _make_trainer(texts, folder, resume, init, dict(settings), device, began, quiet, tell)

    if explain:
        if resume:
            raise ConfigError(
                "{--explain} is for a run that has not begun; the decisions of an existing run are in "
                "its config.json. Leave {--resume} out."
            )
        _explain(make, quiet, as_json)
        return
    if resume and out is None:
        raise ConfigError("{--resume} needs {--out RUN}, the folder of the run to continue.")
    folder = out or _free_folder(texts)
    from jumok.training.progress import TrainingView

    summary: dict[str, Any] = {}
    with TrainingView(folder, quiet=quiet) as view:
        trainer, text_note = make(folder, view.doing)
        view.say(text_note)
        with stopping(trainer, view.say):
            for event in trainer.run():
                view.show(event)
                summary = view.summary
    _say_what_next(trainer, summary, view)
    if as_json:
        print_json(plain_floats({"run": str(folder), **summary, "process_seconds": process_seconds()}))
    if summary["reason"] == "interrupted":
        raise click.exceptions.Exit(INTERRUPTED)


def _say_what_next(trainer: Trainer, summary: Mapping[str, Any], view: TrainingView) -> None:
    """The commands that continue an interrupted run, or use a finished one."""
    run = str(trainer.folder.path)
    if summary["reason"] == "interrupted":
        say(tr("Stopped after step {step:,}; the state is saved. Continue with:", step=summary["steps"]))
        say(f"  {shell('jumok', 'train', '--resume', '--out', run)}")
        return
    view.say(_next_step(trainer.config.task, run, trainer.task.example()))
    if trainer.result is not None:
        config = trainer.config
        length = ("--minutes", f"{config.minutes:g}") if config.steps is None else ("--steps", str(config.steps))
        view.say(tr("Train it further, for example as long again:"))
        view.say(f"  {shell('jumok', 'train', '--resume', *length, '--out', run)}")


def _explain(make: Callable[[Path, Callable[[str], None]], tuple[Trainer, str]], quiet: bool, as_json: bool) -> None:
    """Start the run in a temporary folder, and print what was decided.

    make: what makes the trainer, and a sentence on the text.
    """
    from jumok.cli.console import show_explanation
    from jumok.training.explanation import explain
    from jumok.training.progress import TrainingView

    with TemporaryDirectory(prefix="jumok-", ignore_cleanup_errors=True) as folder:
        with TrainingView(Path(folder), quiet=quiet) as view:
            trainer, text_note = make(Path(folder) / "run", view.doing)
        assert trainer.plan is not None  # it was started, not resumed
        found, notices = explain(trainer.plan, trainer.task, trainer.device), trainer.notices
        trainer.close()
        del trainer  # its text is mapped from the folder, which some systems then cannot clear away
    if as_json:
        values = dataclasses.asdict(found)
        values["candidates"] = [plain_floats(candidate) for candidate in values["candidates"]]
        values["choices"] = {name: {"chosen": word, "why": why} for name, (word, why) in values["choices"].items()}
        print_json(plain_floats({**values, "notices": notices}))
        return
    say(text_note, quiet=quiet)
    show_explanation(found)
    for notice in notices:
        say(notice, quiet=quiet)


def _next_step(task: str, run: str, example: str) -> str:
    """What to do with a finished run. example: a prompt from its own material, or ""."""
    verb = "predict" if task == "classify" else "generate"
    command = shell("jumok", verb, run, example or "...")
    return {
        "lm": tr("Write with it:\n  {command}", command=command),
        "mlm": tr("Fill in with it:\n  {command}", command=command),
        "classify": tr("Sort with it:\n  {command}", command=command),
        "seq2seq": tr("Ask it:\n  {command}", command=command),
    }[task]


def _make_trainer(
    texts: tuple[str, ...],
    out: Path,
    resume: bool,
    init: Path | None,
    settings: dict[str, Any],
    device: str,
    began: float,
    quiet: bool,
    tell: Callable[[str], None],
) -> tuple[Trainer, str]:
    """A trainer for what was asked, and a sentence on the text."""
    from jumok.models import KINDS
    from jumok.runs.folder import RunFolder
    from jumok.training.settings import configurations
    from jumok.training.trainer import Trainer

    size, tokenizer, model = (settings.pop(name, None) for name in ("size", "tokenizer", "model"))
    tokenizer_options = {name: settings.pop(name, None) for name in ("vocab_size", "alphabet", "min_count")}
    tokenizer_options = {name: value for name, value in tokenizer_options.items() if value is not None}
    reading = {name: settings.pop(name, None) for name in (*READING, *COLUMN_NAMES)}
    if resume:
        if tokenizer is not None or tokenizer_options or init is not None or model is not None:
            raise ConfigError(
                "a run continues with its own model and tokenizer: leave {--init}, {--model}, "
                "{--tokenizer} and its options out."
            )
        return _resumed(texts, out, settings, size, reading, device, began, tell)
    if init is not None and (tokenizer is not None or tokenizer_options):
        raise ConfigError("{init} has its own tokenizer: leave {--tokenizer} and its options out.", init=init)
    task = settings.get("task") or "lm"
    require_choice("task", task, TASK_DEFAULTS)
    if model is not None:
        require_choice("model", model, TRAINABLE)
    _refuse_strange(settings | reading, task)
    RunFolder(out).require_free()  # before anything that takes long
    if settings.get("val") == "-" and "-" in texts:
        raise ConfigError(
            "- cannot be trained on and held out with {--val -}: standard input can be read once; hold out a file."
        )
    if texts:
        tell(tr("reading {texts}", texts=", ".join(texts[:3]) + (" ..." if len(texts) > 3 else "")))
    held_out = _held_out_file(settings, task, reading)
    text = read_material(task, texts, reading) if texts else _built_in(task)
    trainer = Trainer.start(
        out,
        text,
        **configurations(settings, size=size, kind=None if model is None else KINDS[model], init=init),
        tokenizer=_tokenizer(tokenizer, tokenizer_options),
        tokenizer_options=tokenizer_options,
        val_text=held_out,
        init=init,
        device=device,
        began=began,
        tell=tell,
    )
    return trainer, text.describe()


def _resumed(
    texts: tuple[str, ...],
    out: Path,
    settings: dict[str, Any],
    size: str | None,
    reading: Mapping[str, Any],
    device: str,
    began: float,
    tell: Callable[[str], None],
) -> tuple[Trainer, str]:
    """A trainer for the run in a folder, and a sentence on where it goes on."""
    from jumok.runs.folder import RunFolder
    from jumok.training.settings import given_again
    from jumok.training.trainer import Trainer

    task = RunFolder.open(out).read_config().get("train", {}).get("task", "lm")
    _refuse_strange(settings | dict(reading), task)
    recorded = recorded_columns(out)
    held_out = _held_out_file(settings, task, reading, recorded)
    text = read_material(task, texts, reading, recorded) if texts else None
    training = given_again(out, settings, size)
    trainer = Trainer.resume(out, text, training, val_text=held_out, device=device, began=began, tell=tell)
    if trainer.result is not None:
        return trainer, tr("{out} is finished; there is nothing to continue.", out=out)
    if trainer.state.stage < len(trainer.stages):
        return trainer, tr("Training {out} further, after step {step:,}.", out=out, step=trainer.step)
    return trainer, tr("Continuing {out} after step {step:,}.", out=out, step=trainer.step)


def _refuse_strange(given: Mapping[str, Any], task: str) -> None:
    """Raise ConfigError for a setting that the task would not look at."""
    for name, tasks in TASKS_OF.items():
        if given.get(name) is not None and task not in tasks:
            instead = ""
            if name == "column" and task in COLUMNS:
                text, label = COLUMNS[task]
                instead = tr("; its columns are named by --{text} and --{label}", text=text, label=label)
            raise ConfigError(
                "--{option} is for {--task {tasks}}, and this task is {task}{instead}; leave it out.",
                option=name.replace("_", "-"),
                tasks=tr(" and ").join(tasks),
                task=task,
                instead=instead,
            )


def _built_in(task: str) -> Text | Table:
    """What is learned from when no text is given."""
    from jumok import text as reader

    if task == "classify":
        raise ConfigError("{--task classify} needs a table with texts and their labels: jumok train reviews.tsv ...")
    if task == "seq2seq":
        from jumok.corpora import numbers

        return reader.from_rows(("source", "target"), list(numbers.write(NUMBERS_ROWS)), name="numbers (built in)")
    return stories_text()


def _held_out_file(
    settings: dict[str, Any], task: str, reading: Mapping[str, Any], recorded: tuple[str, ...] = ()
) -> Text | Table | None:
    """--val takes a share or a file; the share stays in the settings."""
    given = settings.get("val")
    if given is None:
        return None
    try:
        settings["val"] = float(given)
        return None
    except ValueError:
        del settings["val"]
        return read_material(task, (given,), reading, recorded)


def _tokenizer(name: str | None, options: Mapping[str, Any]) -> Any:
    """A kind to train, or a tokenizer.json to load."""
    if name is None or not (name.endswith(".json") or os.sep in name or Path(name).is_file()):
        return name
    if options:
        raise ConfigError(
            "{options} cannot be set for a tokenizer that is already trained ({path}).",
            options=", ".join(options),
            path=name,
        )
    from jumok.tokenizers import Tokenizer

    return Tokenizer.load(name)


def _free_folder(texts: tuple[str, ...]) -> Path:
    """runs/NAME after the first text, with a number if that is taken."""
    name = "stories" if not texts else "stdin" if texts[0] == "-" else Path(texts[0]).resolve().stem or "run"
    tries = (Path("runs") / (name if n == 1 else f"{name}-{n}") for n in range(1, 10_000))
    return next(folder for folder in tries if not folder.exists())


def _settings(config_file: Path | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the command line, and those of the file that it does not set."""
    settings = _read_toml(config_file) if config_file else {}
    given = {key: value for key, value in flags.items() if value is not None}
    if "steps" in given or "minutes" in given:  # one on the command line replaces either in the file
        settings = {key: value for key, value in settings.items() if key not in ("steps", "minutes")}
    return settings | given


def _read_toml(path: Path) -> dict[str, Any]:
    """Settings of a run.toml, named like the flags."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("cannot read {--config {path}}: {reason}.", path=path, reason=error.strerror) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("{--config {path}} is not TOML: {error}.", path=path, error=error) from None
    values = {key.replace("-", "_"): value for key, value in values.items()}
    not_settings = {
        "texts", "out", "resume", "init", "explain", "config_file", "as_json", "quiet", "device",
    }  # fmt: skip
    known = {p.name for p in train.params} - not_settings
    kinds = {
        **field_types(EncoderDecoderConfig),
        **field_types(GPTConfig),
        **field_types(TrainConfig),
        "min_count": int,
    }
    for key, value in values.items():
        if key not in known:
            raise ConfigError(
                "{--config {path}}: unknown setting {key!r}.{hint}", path=path, key=key, hint=did_you_mean(key, known)
            )
        if key != "val" or not isinstance(value, str):  # a share or the name of a file
            require_type(key, value, kinds.get(key, str))
    return values
