"""`jumok corpus`: Korean text for training."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain

import click

from jumok.cli.commands import Group, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.material import NUMBERS_ROWS, STORIES_CHARS
from jumok.files import require_space
from jumok.messages import message, tr

BYTES_PER_CHAR = 2.4  # of the stories in UTF-8, at least
BYTES_PER_ROW = 20  # of the numbers, at least
BUILT_IN = {
    "stories": message("short stories, built in"),
    "numbers": message("numbers and how they are read in Korean, built in"),
}


@click.group(cls=Group, short_help="Get Korean text for training.")
def corpus() -> None:
    """List, download and write corpora of Korean text. Some are built in, others are downloaded at a pinned version."""


@corpus.command("list", cls=Verb, examples="jumok corpus list")
@common(device=False)
def corpus_list(as_json: bool, quiet: bool) -> None:
    """List the corpora with their sizes and licences."""
    from jumok.cli.console.tables import show_corpora
    from jumok.corpora import catalogue

    corpora = catalogue.entries().values()
    if as_json:
        listed = [{"name": c.name, "title": c.title, "licence": c.licence, "bytes": c.bytes} for c in corpora]
        built_in = [{"name": name, "title": title, "licence": "Apache-2.0"} for name, title in BUILT_IN.items()]
        print_json({"corpora": [*listed, *built_in]})
    else:
        show_corpora(BUILT_IN, corpora)


@corpus.command(
    "get",
    cls=Verb,
    short_help="Download a corpus and print its path.",
    examples="""
    jumok corpus get novels
    jumok train "$(jumok corpus get novels)"
    """,
)
@click.argument("name")
@common(device=False)
def corpus_get(name: str, as_json: bool, quiet: bool) -> None:
    """Download a corpus to the cache, verify it, and print its path."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    from jumok.corpora import catalogue

    known = catalogue.entries()
    if name in known:
        entry = known[name]
        say(tr("{title}. Licence: {licence}.", title=entry.title, licence=entry.licence), quiet=quiet)
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=None)
        path = catalogue.get(name, progress=lambda done, total: bar.update(task, completed=done, total=total))
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        click.echo(str(path))


@corpus.command(
    "write",
    cls=Verb,
    short_help="Write a built-in corpus to stdout.",
    examples="""
    jumok corpus write stories --chars 2000000 > stories.txt
    jumok corpus write numbers --rows 50000 > numbers.tsv
    """,
)
@click.argument("name", type=click.Choice(["stories", "numbers"]))
@option("--chars", type=int, help=f"stories: minimum number of characters [{STORIES_CHARS}]")
@option("--rows", type=int, help=f"numbers: number of pairs, below a header [{NUMBERS_ROWS}]")
@option("--seed", default=0, help="seed; each seed gives other stories and pairs [0]")
def corpus_write(name: str, chars: int | None, rows: int | None, seed: int) -> None:
    """Write a built-in corpus to stdout, in UTF-8.

    `stories` is plain text. `numbers` is a .tsv table of numbers and how they are read in Korean.
    """
    flag, value = ("--rows", rows) if name == "stories" else ("--chars", chars)
    if value is not None:
        raise click.UsageError(
            tr("{flag} does not apply to {name}; see jumok corpus write --help.", flag=flag, name=name)
        )
    lines: Iterable[str]
    if name == "stories":
        from jumok.corpora import stories

        chars = STORIES_CHARS if chars is None else chars
        require_space(sys.stdout.buffer, chars * BYTES_PER_CHAR)
        lines = stories.write(chars, seed)
    else:
        from jumok.corpora import numbers

        rows = NUMBERS_ROWS if rows is None else rows
        require_space(sys.stdout.buffer, rows * BYTES_PER_ROW)
        lines = (f"{source}\t{target}\n" for source, target in chain([numbers.COLUMNS], numbers.write(rows, seed)))
    for line in lines:
        sys.stdout.buffer.write(line.encode())
    sys.stdout.buffer.flush()
