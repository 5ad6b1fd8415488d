"""`jumok learn exam`: an exam with other numbers for each student, and its key."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.learn.chapter import LANGUAGE
from jumok.messages import tr, users_language

if TYPE_CHECKING:
    from jumok.course.words import Language

SEEDS = 1_000_000  # a seed that is drawn is below this


@click.command(
    cls=Verb,
    short_help="Write an exam with other numbers for each student, and its key.",
    examples="""
    jumok learn exam --students 30
    jumok learn exam --names class.txt --until 9 --title Midterm --out midterm
    """,
)
@option("--students", type=int, help="number of students [1]")
@option("--names", type=PATH, help="text file with one name in each line, instead of a number")
@option("--until", type=int, help="ask only about chapters up to this one [all]")
@option("--title", help="title of the sheets")
@option("--out", type=PATH, default=Path("exam"), help="folder for the files [exam]")
@LANGUAGE
@common(device=False, seed=True)
def exam(
    students: int | None,
    names: Path | None,
    until: int | None,
    title: str | None,
    out: Path,
    language: Language | None,
    seed: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a sheet with eight questions for each student, to be computed by hand, and a key for the teacher.

    All sheets have the same kinds of questions in different orders and with different numbers. The seed, drawn if none
    is given, decides them; it is in the key and not on the sheets. exam.html and key.html can be printed.
    """
    if names is not None and students is not None:
        raise click.UsageError(
            tr("{first} and {second} were both given; give one.", first="--students", second="--names")
        )
    from jumok.config import require_count
    from jumok.course.exam.sheets import MOST_STUDENTS, make_exam, read_names, write_exam

    students = 1 if students is None else students
    require_count("students", students, 1, MOST_STUDENTS)
    listed = [""] * students if names is None else read_names(names)
    made = make_exam(listed, secrets.randbelow(SEEDS) if seed is None else seed, until=until)
    files = write_exam(made, out, language or users_language(), title=title)
    say(tr("{count:,} sheets, seed {seed}", count=len(made.sheets), seed=made.seed), quiet=quiet)
    for file in files:
        say(f"  {file}", quiet=quiet)
    if as_json:
        print_json({"seed": made.seed, "students": len(made.sheets), "files": [str(file) for file in files]})
