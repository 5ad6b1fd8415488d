"""`jumok predict`: which class texts belong to."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli._verbs import Verb, common, named, option, print_json, recorded_columns, say, write
from jumok.errors import ConfigError, TextError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.inference.classify import Prediction


@click.command(
    cls=Verb,
    short_help="Find the class of each text.",
    examples="""
    jumok predict runs/reviews "정말 재미있게 봤어요" "시간이 아까워요"
    jumok predict runs/reviews new.tsv --text document > answers.tsv
    jumok predict runs/reviews lines.txt
    cat lines.txt | jumok predict runs/reviews -
    jumok predict runs/reviews "그냥 그래요" --json
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("texts", nargs=-1, metavar="TEXT...")
@option("--text", help="column of .csv, .tsv and .jsonl files [as in training]")
@option("--column", help="the same")
@option("--encoding", help="of the files [found out]")
@common()
def predict(
    run: Path,
    texts: tuple[str, ...],
    text: str | None,
    column: str | None,
    encoding: str | None,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Which class each TEXT belongs to, by the classifier of a run folder.

    A TEXT is the text itself, or the name of a .csv, .tsv or .jsonl file, of which one column is read, or of a .txt or
    .md file that is there, a text a line; - reads stdin, a text a line, or as a table if a column is named. Each answer
    is a line of stdout: label, probability and text, with a tab between them; an empty cell has neither label nor
    probability. What holds a tab, a newline or a quotation mark stands in quotes, as csv and pandas read it.
    """
    from jumok import device as devices
    from jumok.inference.classify import predict_whole
    from jumok.runs.load import load, unseen_characters

    if text is not None and column is not None and text != column:
        raise ConfigError(
            "{--text {text}} and {--column {column}} name two columns, but only one is read; leave one out.",
            text=text,
            column=column,
        )
    chosen = text or column
    given = _texts(texts, chosen or next(iter(recorded_columns(run)), "text"), encoding, table_piped=chosen is not None)
    model = load(run, str(devices.choose_device(device)))
    predictions = predict_whole(model, given)
    empty = predictions.count(None)
    if empty == len(given):
        raise TextError("all of the given texts ({count:,}) are empty; there is nothing to classify.", count=len(given))
    if empty:
        say(
            tr("{empty:,} of {texts:,} texts are empty, so they have no class.", empty=empty, texts=len(given)),
            quiet=quiet,
        )
    failed = sum(prediction is not None and prediction.label is None for prediction in predictions)
    if failed:
        say(
            tr(
                "{failed:,} of {texts:,} texts have no class: the model's numbers for them are not finite.",
                failed=failed,
                texts=len(given),
            ),
            quiet=quiet,
        )
    cut = sum(prediction is not None and prediction.cut for prediction in predictions)
    if cut:
        say(
            tr(
                "{cut:,} of {texts:,} texts are longer than the context of {context_length} tokens; "
                "their ends were not read.",
                cut=cut,
                texts=len(given),
                context_length=model.config.context_length,
            ),
            quiet=quiet,
        )
    unseen = unseen_characters(run, given)
    if strange := sum(map(bool, unseen)):
        every = list(dict.fromkeys(char for characters in unseen for char in characters))
        say(
            tr(
                "{n:,} of {all:,} texts have characters that no training text had: {characters}.",
                n=strange,
                all=len(given),
                characters=named(every),
            ),
            quiet=quiet,
        )
    if as_json:
        answers = zip(given, predictions, unseen, strict=True)
        print_json({"predictions": [{**_plain(one, found), "unseen_characters": new} for one, found, new in answers]})
        return
    row = io.StringIO(newline="")
    table = csv.writer(row, dialect="excel-tab", lineterminator="\n")
    for one, found in zip(given, predictions, strict=True):
        answer = ("", "")
        if found is not None and found.label is not None:
            answer = (found.label, f"{found.probabilities[found.label]:.3f}")
        table.writerow((*answer, " ".join(one.split())))
    write(row.getvalue(), end="")


def _texts(arguments: tuple[str, ...], column: str, encoding: str | None, *, table_piped: bool) -> list[str]:
    """The texts that the arguments are, or name. table_piped: whether stdin is a table, too."""
    from jumok.text import FORMATS, read, read_table

    if not arguments and not sys.stdin.isatty():
        arguments = ("-",)
    if not arguments:
        raise ConfigError("no text was given; write one after the run folder, in quotes, or - to read stdin.")
    found: list[str] = []
    for argument in arguments:
        kind = None if "\n" in argument else FORMATS.get(Path(argument).suffix.lower())
        piped = argument == "-"
        if piped and table_piped:
            found += read_table(argument, [column], encoding=encoding).column(column)
        elif piped or (kind == "text" and os.path.isfile(argument)):  # a text may be too long for a name
            lines = read([argument], encoding=encoding)
            found += [line for line in lines.read(0, lines.chars).split("\n") if line.strip()]
        elif kind not in (None, "text"):
            found += read_table(argument, [column], encoding=encoding).column(column)
        else:
            found.append(argument)
    return found


def _plain(text: str, prediction: Prediction | None) -> dict[str, object]:
    if prediction is None:
        return {"text": text, "label": None, "probabilities": None, "cut": False}
    if prediction.label is None:
        return {"text": text, "label": None, "probabilities": None, "cut": prediction.cut}
    shares = {label: round(share, 6) for label, share in prediction.probabilities.items()}
    return {"text": text, "label": prediction.label, "probabilities": shares, "cut": prediction.cut}
