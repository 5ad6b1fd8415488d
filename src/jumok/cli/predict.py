"""`jumok predict`: classify texts."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import named, print_json, say, write
from jumok.cli.material import recorded_columns
from jumok.errors import ConfigError, TextError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.inference.classify import Prediction


@click.command(
    cls=Verb,
    short_help="Classify texts.",
    examples="""
    jumok predict runs/reviews "정말 재미있게 봤어요" "시간이 아까워요"
    jumok predict runs/reviews new.tsv --text document > answers.tsv
    jumok predict runs/reviews lines.txt
    cat lines.txt | jumok predict runs/reviews -
    jumok predict runs/reviews "그냥 그래요" --json
    """,
)
@click.argument("run", type=PATH)
@click.argument("texts", nargs=-1, metavar="TEXT...")
@option("--text", help="column of .csv, .tsv and .jsonl files [as in training]")
@option("--encoding", help="encoding of the files [detected]")
@common()
def predict(
    run: Path,
    texts: tuple[str, ...],
    text: str | None,
    encoding: str | None,
    device: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Classify texts with the classifier of a run folder.

    A TEXT is the text itself, the name of a table (.csv, .tsv, .jsonl, .json), of which one column is read, or the name
    of an existing text file with one text per line. - reads stdin: one text per line, or a table if a column is named
    or it is JSON. Each line of the output has the label, its probability and the text, separated by tabs. There is one
    for each line or row; that of a blank line or an empty cell has neither label nor probability. Fields with a tab, a
    newline or a quotation mark are quoted, as csv and pandas read them.
    """
    from jumok.inference.classify import predict_whole
    from jumok.runs.load import unseen_characters
    from jumok.runs.native import load_to_write

    column = text or next(iter(recorded_columns(run)), "text")
    given = _texts(texts, column, encoding, table_piped=text is not None)
    model = load_to_write(run, device)
    predictions = predict_whole(model, given)
    if predictions.count(None) == len(given):
        raise TextError("all of the given texts ({count:,}) are empty; there is nothing to classify.", count=len(given))
    unseen = unseen_characters(run, given)
    for notice in _notices(predictions, unseen, model.config.context_length):
        say(notice, quiet=quiet)
    if as_json:
        answers = zip(given, predictions, unseen, strict=True)
        print_json({"predictions": [{**_plain(one, found), "unseen_characters": new} for one, found, new in answers]})
    else:
        _write_table(given, predictions)


def _notices(
    predictions: Sequence[Prediction | None], unseen: Sequence[Sequence[str]], context_length: int
) -> Iterator[str]:
    """Yield how many texts have no class, were cut, or have characters that do not occur in the training text."""
    count = len(predictions)
    if empty := predictions.count(None):
        yield tr("{empty:,} of {texts:,} texts are empty and have no class.", empty=empty, texts=count)
    known = [prediction for prediction in predictions if prediction is not None]
    if failed := sum(prediction.label is None for prediction in known):
        yield tr(
            "{failed:,} of {texts:,} texts have no class, because the model's output for them is not finite.",
            failed=failed,
            texts=count,
        )
    if cut := sum(prediction.cut for prediction in known):
        yield tr(
            "{cut:,} of {texts:,} texts are longer than the context of {context_length} tokens; "
            "their ends were not read.",
            cut=cut,
            texts=count,
            context_length=context_length,
        )
    if strange := sum(map(bool, unseen)):
        every = list(dict.fromkeys(char for characters in unseen for char in characters))
        yield tr(
            "{n:,} of {all:,} texts have characters that do not occur in the training text: {characters}.",
            n=strange,
            all=count,
            characters=named(every),
        )


def _write_table(texts: Sequence[str], predictions: Sequence[Prediction | None]) -> None:
    """Write label, probability and text of each prediction, separated by tabs."""
    lines = io.StringIO(newline="")
    table = csv.writer(lines, dialect="excel-tab", lineterminator="\n")
    for one, found in zip(texts, predictions, strict=True):
        answer = ("", "")
        if found is not None and found.label is not None:
            answer = (found.label, f"{found.probabilities[found.label]:.3f}")
        table.writerow((*answer, " ".join(one.split())))
    write(lines.getvalue(), end="")


def _texts(arguments: tuple[str, ...], column: str, encoding: str | None, *, table_piped: bool) -> list[str]:
    """Return the texts that the arguments are or name. table_piped: whether stdin is a table."""
    from jumok.text import TABLES, read_column

    if not arguments and not sys.stdin.isatty():
        arguments = ("-",)
    if not arguments:
        raise ConfigError("no text was given; write one after the run folder, in quotes, or - to read stdin.")
    found: list[str] = []
    for argument in arguments:
        is_named_like_a_table = "\n" not in argument and Path(argument).suffix.lower() in (*TABLES, ".json")
        if argument == "-" or is_named_like_a_table or os.path.isfile(argument):  # False for a text too long for a name
            found += read_column(argument, column, encoding=encoding, table=table_piped)
        else:
            found.append(argument)
    return found


def _plain(text: str, found: Prediction | None) -> dict[str, object]:
    shares = None if found is None or found.label is None else found.probabilities
    label, cut = (None, False) if found is None else (found.label, found.cut)
    return {"text": text, "label": label, "probabilities": shares, "cut": cut}
