"""`jumok corpus`: Korean text for training."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain

import click

from jumok.cli.commands import Group, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.material import NUMBERS_ROWS, STORIES_CHARS, TALK_ROWS
from jumok.files import require_space
from jumok.messages import message, tr

BYTES_PER_CHAR = 2.4  # of the stories in UTF-8, at least
BYTES_PER_ROW = {"numbers": 20, "talk": 100}  # at least
ROWS = {"numbers": NUMBERS_ROWS, "talk": TALK_ROWS}
BUILT_IN = {
    "stories": message("short stories, built in"),
    "numbers": message("numbers and how they are read in Korean, built in"),
    "talk": message("conversations with checked answers, built in"),
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
        listed = [{"name": c.name, "title": tr(c.title), "licence": tr(c.licence), "bytes": c.bytes} for c in corpora]
        built_in = [{"name": name, "title": tr(title), "licence": "Apache-2.0"} for name, title in BUILT_IN.items()]
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
        say(tr("{title}. Licence: {licence}.", title=tr(entry.title), licence=tr(entry.licence)), quiet=quiet)
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
    jumok corpus write talk --rows 40000 > talk.jsonl
    jumok corpus write talk --part test --rows 2000 > test.jsonl
    jumok corpus write talk --part free > free.jsonl
    """,
)
@click.argument("name", type=click.Choice(list(BUILT_IN)))
@option("--chars", type=int, help=f"stories: minimum number of characters [{STORIES_CHARS}]")
@option(
    "--rows",
    type=int,
    help=f"number of pairs of numbers, below a header, or of conversations [numbers {NUMBERS_ROWS}, talk {TALK_ROWS}]",
)
@option("--seed", default=0, help="seed; each seed gives other stories, pairs and conversations [0]")
@option(
    "--part",
    type=click.Choice(["train", "test", "free"]),
    help="talk: train; test, whose names, numbers and words are not asked for in train; or free, which is always the "
    "same: messages as people type them, written by hand [train]",
)
@option("--plain", is_flag=True, help="talk: plain text for pretraining; a line for each turn")
@option("--no-thinking", is_flag=True, help="talk: no worked steps before the answers")
def corpus_write(
    name: str, chars: int | None, rows: int | None, seed: int, part: str | None, plain: bool, no_thinking: bool
) -> None:
    """Write a built-in corpus to stdout, in UTF-8.

    `stories` is plain text. `numbers` is a .tsv table of numbers and how they are read in Korean. `talk` is a .jsonl
    file of conversations: messages, the skill that they exercise, and a regular expression for each answer. In the part
    `free` answers are examples, and the expressions accept all that fit.
    """
    given = {"--chars": chars, "--rows": rows, "--part": part, "--plain": plain, "--no-thinking": no_thinking}
    allowed = {"stories": ["--chars"], "numbers": ["--rows"], "talk": ["--rows", "--part", "--plain", "--no-thinking"]}
    refused = [flag for flag, value in given.items() if flag not in allowed[name] and value not in (None, False)]
    if name == "talk" and part == "free":  # these rows are not drawn
        given["--seed"] = seed
        name, refused = "talk --part free", [flag for flag, value in given.items() if value and flag != "--part"]
    if refused:
        raise click.UsageError(
            tr("{flag} does not apply to {name}; see jumok corpus write --help.", flag=refused[0], name=name)
        )
    lines: Iterable[str]
    if name == "stories":
        from jumok.corpora import stories

        chars = STORIES_CHARS if chars is None else chars
        require_space(sys.stdout.buffer, chars * BYTES_PER_CHAR)
        lines = stories.write(chars, seed)
    elif part == "free":
        from jumok.corpora import free, talk

        lines = map(talk.json_line, free.write())
    else:
        rows = ROWS[name] if rows is None else rows
        require_space(sys.stdout.buffer, rows * BYTES_PER_ROW[name])
        lines = _talk(rows, seed, part or "train", plain, not no_thinking) if name == "talk" else _numbers(rows, seed)
    for line in lines:
        sys.stdout.buffer.write(line.encode())
    sys.stdout.buffer.flush()


def _numbers(rows: int, seed: int) -> Iterable[str]:
    from jumok.corpora import numbers

    return (f"{source}\t{target}\n" for source, target in chain([numbers.COLUMNS], numbers.write(rows, seed)))


def _talk(rows: int, seed: int, part: str, plain: bool, thinking: bool) -> Iterable[str]:
    from jumok.corpora import talk

    return map(talk.plain if plain else talk.json_line, talk.write(rows, seed, part, thinking))
