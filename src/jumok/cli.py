"""The command line: `jumok VERB`. Verbs import what they need when they run, so that `--help` answers at once.

stdout carries results: generated text, figures, and with --json one JSON object as its last line. Progress and logs go
to stderr. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted (the training state is saved).
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok import __version__
from jumok.config import SIZES, GPTConfig, TrainConfig, did_you_mean, field_choices, field_types, require_type
from jumok.errors import ConfigError, JumokError

if TYPE_CHECKING:
    from jumok.text import Text
    from jumok.trainer import Trainer

STORIES_CHARS = 2_000_000  # of the built-in corpus, when no text is given
INTERRUPTED = 130
Command = Callable[..., None]


# --- how verbs look and end ---


class Verb(click.Command):
    """A command whose options are listed under headings, and whose examples keep their line breaks."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under the heading that `option` gave it."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"  {line.strip()}\n")


class SectionedOption(click.Option):
    """An option that knows the heading it belongs under."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def option(*names: str, section: str = "Options", **settings: Any) -> Callable[[Command], Command]:
    """A click option under a heading."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def common(*, device: bool = True, seed: bool = False) -> Callable[[Command], Command]:
    """The options that verbs share."""

    def add(function: Command) -> Command:
        function = option("--quiet", is_flag=True, section="Common", help="no progress, no notices")(function)
        function = option(
            "--json", "as_json", is_flag=True, section="Common", help="one JSON object as the last line of stdout"
        )(function)
        if seed:
            function = option("--seed", type=int, section="Common", help="for the same result again")(function)
        if device:
            function = option(
                "--device", default="auto", section="Common", help="auto, cpu, cuda or mps [auto: the fastest]"
            )(function)
        return function

    return add


def say(text: str, *, quiet: bool = False) -> None:
    """A line for the person, on stderr."""
    if not quiet:
        click.echo(text, err=True)


def print_json(values: Mapping[str, Any]) -> None:
    """The one JSON object of --json."""
    click.echo(json.dumps(values, ensure_ascii=False))


def plain_floats(values: Mapping[str, Any], digits: int = 6) -> dict[str, Any]:
    """Numbers short enough to read, and None for infinity, which JSON lacks."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return round(value, digits) if math.isfinite(value) else None

    return {key: plain(value) for key, value in values.items()}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="jumok")
def app() -> None:
    """주목: from a Korean text file to a Transformer you trained, can talk to, and can look inside.

    \b
    Examples:
      jumok train novel.txt --minutes 5 --out runs/novel
      jumok generate runs/novel --prompt "그날 밤"
      jumok evaluate runs/novel other.txt
    """


def main() -> None:
    """Run the command line and exit."""
    # What torch and its compiler tell developers is not for the person at this keyboard.
    warnings.filterwarnings("ignore", module=r"torch\.|jumok\.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    as_json, failure = "--json" in sys.argv, ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, and what was begun is taken back
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for one that cannot show Hangul
    try:
        code = app(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        failure, code = error.format_message(), error.exit_code
    except JumokError as error:
        say(f"jumok: {error}")
        failure, code = str(error), error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("\njumok: interrupted.")
        code = INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # or the interpreter complains again while closing it
        code = 1
    except OSError as error:
        failure, code = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}.", 1
        say(f"jumok: {failure}")
    if failure and as_json:
        print_json({"error": failure})
    sys.exit(code if isinstance(code, int) else 0)


# --- train ---


def field_options(config: type, section: str, skip: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """An option for each field of a configuration class, with its help and its default."""

    def add(function: Command) -> Command:
        choices = field_choices(config)
        for field in reversed(dataclasses.fields(config)):
            if field.name in skip:
                continue
            flag, kind = "--" + field.name.replace("_", "-"), field_types(config)[field.name]
            help_text = field.metadata["help"]
            if "[" not in help_text and field.default is not None:
                help_text += f" [{field.default}]"
            if kind is bool:
                flag, kind = f"{flag}/--no-{flag[2:]}", None
            elif field.name in choices:
                kind = click.Choice(choices[field.name])
            function = option(flag, type=kind, default=None, section=section, help=help_text)(function)
        return function

    return add


@app.command(
    cls=Verb,
    examples="""
    jumok train novel.txt --minutes 5 --out runs/novel
    jumok train reviews.csv --column document --tokenizer bpe --size mini --minutes 30
    jumok train folder/ more.txt --size nanokogpt --steps 2000 --out runs/blog
    cat *.txt | jumok train - --steps 500 --out runs/piped
    jumok train --resume --out runs/novel
    """,
)
@click.argument("texts", nargs=-1, metavar="[TEXT]...")
@option("--out", type=click.Path(path_type=Path), help="folder for the run [runs/NAME]")
@option("--resume", is_flag=True, help="continue the run in --out from where it stopped")
@option("--config", "config_file", type=click.Path(path_type=Path), help="a .toml file with any of these settings")
@option("--encoding", section="Text", help="of the text files [found out]")
@option("--column", section="Text", help="of .csv, .tsv and .jsonl files [text]")
@option("--val", section="Text", help="share of the text to hold out, its last part [0.1], or a file to hold out")
@option("--tokenizer", section="Text", help="char, jamo, bpe, or a tokenizer.json [char]")
@option("--vocab-size", type=int, section="Text", help="ids of a bpe tokenizer [8000]")
@option("--alphabet", section="Text", help="of char: corpus, ksx1001 (2,350 syllables) or hangul (11,172) [corpus]")
@option("--min-count", type=int, section="Text", help="rarer characters are spelled in bytes [2]")
@option("--size", section="Model", help=f"{', '.join(SIZES)} [micro]; the flags below go before it")
@field_options(GPTConfig, "Model", skip=("vocab_size",))
@field_options(TrainConfig, "Training", skip=("val", "seed"))
@common(seed=True)
def train(
    texts: tuple[str, ...],
    out: Path | None,
    resume: bool,
    config_file: Path | None,
    device: str,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a GPT on text files (.txt, .md, .jsonl, .csv, .tsv), folders, or - for stdin.

    Without a TEXT it trains on the built-in corpus `stories`, whose exact information content is known.
    The run folder holds the model, its tokenizer, the learning curve and samples; stop with Ctrl-C at any time and
    continue with --resume.
    """
    began = time.monotonic()
    settings = _read_toml(config_file) if config_file else {}
    given = {key: value for key, value in flags.items() if value is not None}
    if "steps" in given or "minutes" in given:  # one on the command line replaces either in the file
        settings = {key: value for key, value in settings.items() if key not in ("steps", "minutes")}
    settings |= given
    from jumok.console import TrainingView

    trainer, text_note = _make_trainer(texts, out, resume, settings, device, began, quiet)
    say(text_note, quiet=quiet)
    summary: dict[str, Any] = {}
    with TrainingView(trainer.folder.path, quiet=quiet) as view, _stopping(trainer, view.say):
        for event in trainer.run():
            view.show(event)
            summary = view.summary
    run = str(trainer.folder.path)
    interrupted = summary["reason"] == "interrupted"
    if interrupted:
        say(f"Stopped after step {summary['steps']:,}; the state is saved. Continue with:")
        say(f"  jumok train --resume --out {run}")
    else:
        view.say(f'Write with it:\n  jumok generate {run} --prompt "그날"')
    if as_json:
        print_json(plain_floats({"run": run, **summary}))
    if interrupted:
        raise click.exceptions.Exit(INTERRUPTED)


def _make_trainer(
    texts: tuple[str, ...],
    out: Path | None,
    resume: bool,
    settings: dict[str, Any],
    device: str,
    began: float,
    quiet: bool,
) -> tuple[Trainer, str]:
    """A trainer for what was asked, and a sentence on the text."""
    from jumok.trainer import Trainer

    size = settings.pop("size", None)
    tokenizer = settings.pop("tokenizer", None)
    reading = {name: settings.pop(name, None) for name in ("encoding", "column")}
    tokenizer_options = {name: settings.pop(name, None) for name in ("vocab_size", "alphabet", "min_count")}
    tokenizer_options = {name: value for name, value in tokenizer_options.items() if value is not None}
    val_text = _held_out_file(settings, reading)
    if resume:
        if out is None:
            raise ConfigError("--resume needs --out RUN, the folder of the run to continue.")
        if tokenizer is not None or tokenizer_options:
            raise ConfigError("a run continues with its own tokenizer: leave --tokenizer and its options out.")
        text = _read(texts, reading) if texts else None
        trainer = Trainer.resume(out, text, settings, size=size, val_text=val_text, device=device, began=began)
        return trainer, f"Continuing {out} after step {trainer.step}."
    if texts:
        text = _read(texts, reading)
    else:
        from jumok import text as reader
        from jumok.corpora import stories

        text = reader.from_string("".join(stories.write(STORIES_CHARS)), name="stories (built in)")
    trainer = Trainer.start(
        out or _free_folder(texts),
        text,
        settings,
        size=size,
        tokenizer=_tokenizer(tokenizer, tokenizer_options),
        tokenizer_options=tokenizer_options,
        val_text=val_text,
        device=device,
        began=began,
    )
    return trainer, text.describe()


def _read(texts: tuple[str, ...], reading: Mapping[str, Any]) -> Text:
    from jumok import text as reader

    return reader.read(texts, **reading)


def _held_out_file(settings: dict[str, Any], reading: Mapping[str, Any]) -> Text | None:
    """--val takes a share or a file; the share stays in the settings."""
    given = settings.get("val")
    if given is None:
        return None
    try:
        settings["val"] = float(given)
        return None
    except ValueError:
        del settings["val"]
        return _read((given,), reading)


def _tokenizer(name: str | None, options: Mapping[str, Any]) -> Any:
    """A kind to train, or a tokenizer.json to load."""
    if name is None or not (name.endswith(".json") or os.sep in name or Path(name).is_file()):
        return name or "char"
    if options:
        raise ConfigError(f"{', '.join(options)} cannot be chosen for a tokenizer that is trained already ({name}).")
    from jumok.tokenizers import Tokenizer

    return Tokenizer.load(name)


def _free_folder(texts: tuple[str, ...]) -> Path:
    """runs/NAME after the first text, with a number if that is taken."""
    name = "stories" if not texts else "stdin" if texts[0] == "-" else Path(texts[0]).resolve().stem or "run"
    tries = (Path("runs") / (name if n == 1 else f"{name}-{n}") for n in range(1, 10_000))
    return next(folder for folder in tries if not folder.exists())


def _read_toml(path: Path) -> dict[str, Any]:
    """Settings of a run.toml, named like the flags."""
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} is not TOML: {error}.") from None
    values = {key.replace("-", "_"): value for key, value in values.items()}
    known = {p.name for p in train.params} - {"texts", "out", "resume", "config_file", "as_json", "quiet", "device"}
    kinds = {**field_types(GPTConfig), **field_types(TrainConfig), "min_count": int}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"--config {path}: unknown setting {key!r}.{did_you_mean(key, known)}")
        if key != "val" or not isinstance(value, str):  # a share or the name of a file
            require_type(key, value, kinds.get(key, str))
    return values


@contextmanager
def _stopping(trainer: Trainer, tell: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the trainer to stop after its step; a second Ctrl-C ends at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked = True
        trainer.request_stop()
        tell("Finishing this step, then saving ... (Ctrl-C again: end at once, losing what came after the last save)")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- generate, evaluate, convert ---


@app.command(
    cls=Verb,
    examples="""
    jumok generate runs/novel --prompt "그날 밤" --tokens 300
    jumok generate runs/novel --samples 3 --temperature 1.0 --top-p 0.9 --seed 7
    jumok generate runs/novel --prompt "옛날" --stop "." --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@option("--prompt", default="", help="text to continue [none: from the beginning of a line]")
@option("--tokens", default=200, show_default=True, help="most tokens to write")
@option("--temperature", default=0.8, show_default=True, help="0: always the likeliest token")
@option("--top-k", type=int, help="choose among the k likeliest")
@option("--top-p", type=float, default=1.0, help="choose among the likeliest that make up p")
@option("--min-p", type=float, default=0.0, help="choose among those at least min-p times as likely as the likeliest")
@option("--repetition-penalty", type=float, default=1.0, help="above 1: makes tokens that were there less likely")
@option("--samples", default=1, show_default=True, help="how many continuations")
@option("--stop", multiple=True, help="end before this text; may be given several times")
@common(seed=True)
def generate(run: Path, device: str, seed: int | None, as_json: bool, quiet: bool, **sampling: Any) -> None:
    """Write with the model of a run folder. One sample is shown as it is written."""
    from jumok import checkpoint
    from jumok import device as devices
    from jumok.generate import generate as complete
    from jumok.generate import stream

    model = checkpoint.load(run, str(devices.choose_device(device)))
    began = time.perf_counter()
    if sampling["samples"] == 1 and not as_json:
        sampling.pop("samples")
        pieces = stream(model, seed=seed, **sampling)
        first = next(pieces, "")  # settings are checked before anything is shown
        click.echo(sampling["prompt"] + first, nl=False)
        for piece in pieces:
            click.echo(piece, nl=False)
            sys.stdout.flush()
        click.echo()
        return
    completions = complete(model, seed=seed, **sampling)
    seconds = time.perf_counter() - began
    tokens = sum(c.tokens for c in completions)
    if as_json:
        print_json(
            {
                "text": completions[0].text,
                "prompt": sampling["prompt"],
                "samples": [{"text": c.text, "tokens": c.tokens, "finish": c.finish} for c in completions],
                "tokens": tokens,
                "seconds": round(seconds, 4),
                "tokens_per_second": round(tokens / seconds, 1),
                "seed": seed,
            }
        )
        return
    for number, completion in enumerate(completions, 1):
        click.echo(f"--- {number} ---\n{sampling['prompt']}{completion.text}\n")


@app.command(
    cls=Verb,
    examples="""
    jumok evaluate runs/novel other.txt
    jumok evaluate runs/novel reviews.tsv --column document --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@option("--encoding", help="of the text files [found out]")
@option("--column", help="of .csv, .tsv and .jsonl files [text]")
@common()
def evaluate(
    run: Path, texts: tuple[str, ...], encoding: str | None, column: str | None, device: str, as_json: bool, quiet: bool
) -> None:
    """How well a model predicts a text: each character once, with what came before it as context.

    Figures per character and per byte compare across tokenizers; those per token do not.
    """
    from jumok import checkpoint
    from jumok import device as devices
    from jumok.console import show_figures
    from jumok.evaluate import evaluate as measure

    text = _read(texts, {"encoding": encoding, "column": column})
    say(text.describe(), quiet=quiet)
    model = checkpoint.load(run, str(devices.choose_device(device)))
    figures = dataclasses.asdict(measure(model, text))
    if as_json:
        print_json(plain_floats(figures))
    else:
        show_figures(figures)


@app.command(
    cls=Verb,
    examples="""
    jumok convert runs/novel novel-hf --to hf
    jumok convert novel-hf runs/back --to jumok
    """,
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@option("--to", "form", type=click.Choice(["hf", "jumok"]), required=True, help="what TARGET shall be")
@common(device=False)
def convert(source: Path, target: Path, form: str, as_json: bool, quiet: bool) -> None:
    """Turn a run folder into a folder for stock `transformers`, or back."""
    from jumok import checkpoint
    from jumok.interop import hf

    if form == "hf":
        hf.to_hf(checkpoint.load(source), target)
    else:
        checkpoint.save(hf.from_hf(source), target)
    say(f"Wrote {target}.", quiet=quiet)
    if as_json:
        print_json({"source": str(source), "target": str(target), "to": form})


# --- corpus ---


@app.group()
def corpus() -> None:
    """Korean text to start from: built in, or downloaded at a pinned version."""


@corpus.command("list", cls=Verb, examples="jumok corpus list")
@common(device=False)
def corpus_list(as_json: bool, quiet: bool) -> None:
    """List the corpora, their sizes and licences."""
    from jumok.console import show_corpora
    from jumok.corpora import catalogue

    corpora = catalogue.entries().values()
    if as_json:
        listed = [{"name": c.name, "title": c.title, "licence": c.licence, "bytes": c.bytes} for c in corpora]
        print_json(
            {"corpora": [*listed, {"name": "stories", "title": "short tales, built in", "licence": "Apache-2.0"}]}
        )
    else:
        show_corpora(corpora)


@corpus.command("get", cls=Verb, examples='jumok corpus get novels\njumok train "$(jumok corpus get novels)"')
@click.argument("name")
@common(device=False)
def corpus_get(name: str, as_json: bool, quiet: bool) -> None:
    """Download a corpus, check it, keep it in the cache, and print where it is."""
    from jumok.console import DownloadView
    from jumok.corpora import catalogue

    known = catalogue.entries()
    if name in known:
        say(f"{known[name].title}. Licence: {known[name].licence}.", quiet=quiet)
    with DownloadView(quiet=quiet) as view:
        path = catalogue.get(name, progress=view.show)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        click.echo(str(path))


@corpus.command("write", cls=Verb, examples="jumok corpus write stories --chars 2000000 > stories.txt")
@click.argument("name", type=click.Choice(["stories"]))
@option("--chars", default=STORIES_CHARS, show_default=True, help="at least so many characters")
@option("--seed", default=0, show_default=True, help="another seed, other tales")
def corpus_write(name: str, chars: int, seed: int) -> None:
    """Write a built-in corpus to stdout, as UTF-8."""
    from jumok.corpora import stories

    for piece in stories.write(chars, seed):
        sys.stdout.buffer.write(piece.encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
