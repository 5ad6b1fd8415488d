"""`jumok predict`: which class texts belong to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli._verbs import Verb, common, option, print_json, say
from jumok.errors import ConfigError

if TYPE_CHECKING:
    from jumok.predict import Prediction


@click.command(
    cls=Verb,
    examples="""
    jumok predict runs/reviews "정말 재미있게 봤어요" "시간이 아까워요"
    jumok predict runs/reviews new.tsv --column document > answers.tsv
    cat lines.txt | jumok predict runs/reviews -
    jumok predict runs/reviews "그냥 그래요" --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="TEXT...")
@option("--column", help="of .csv, .tsv and .jsonl files [text]")
@option("--encoding", help="of the files [found out]")
@common()
def predict(
    run: Path, texts: tuple[str, ...], column: str | None, encoding: str | None, device: str, as_json: bool, quiet: bool
) -> None:
    """Which class each TEXT belongs to, by the classifier of a run folder.

    A TEXT is the text itself, or the name of a .csv, .tsv or .jsonl file, of which one column is read; - reads stdin,
    a text a line. Each answer is a line of stdout: label, probability and text, with a tab between them.
    """
    from jumok import checkpoint
    from jumok import device as devices
    from jumok.predict import predict as answer

    given = _texts(texts, column, encoding)
    model = checkpoint.load(run, str(devices.choose_device(device)))
    predictions = answer(model, given)
    cut = sum(prediction.cut for prediction in predictions)
    if cut:
        say(
            f"{cut:,} of {len(given):,} texts are longer than the context of {model.config.context_length} tokens; "
            "their ends were not read.",
            quiet=quiet,
        )
    if as_json:
        print_json({"predictions": [_plain(text, found) for text, found in zip(given, predictions, strict=True)]})
        return
    for text, found in zip(given, predictions, strict=True):
        click.echo(f"{found.label}\t{found.probabilities[found.label]:.3f}\t{' '.join(text.split())}")


def _texts(arguments: tuple[str, ...], column: str | None, encoding: str | None) -> list[str]:
    """The texts that the arguments are, or name."""
    from jumok.text import FORMATS, read, read_table

    tables = {suffix for suffix, kind in FORMATS.items() if kind != "text"}
    if not arguments and not sys.stdin.isatty():
        arguments = ("-",)
    if not arguments:
        raise ConfigError("no text was given; write one behind the run folder, in quotes, or - to read stdin.")
    found: list[str] = []
    for argument in arguments:
        path = Path(argument)
        if argument == "-":
            lines = read(["-"], encoding=encoding)
            found += [line for line in lines.read(0, lines.chars).split("\n") if line.strip()]
        elif path.suffix.lower() in tables and "\n" not in argument:
            found += read_table(argument, [column or "text"], encoding=encoding).column(column or "text")
        else:
            found.append(argument)
    return found


def _plain(text: str, prediction: Prediction) -> dict[str, object]:
    shares = {label: round(share, 6) for label, share in prediction.probabilities.items()}
    return {"text": text, "label": prediction.label, "probabilities": shares, "cut": prediction.cut}
