"""`jumok learn practice | check | hint | solution`: the exercises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import FOLDER_PATH, Verb, common
from jumok.cli.console.output import print_json, say
from jumok.cli.learn.chapter import LANGUAGE
from jumok.errors import LessonError
from jumok.files import on_disk
from jumok.messages import shell, tr, users_language

if TYPE_CHECKING:
    from jumok.course.practice.catalogue import Exercise
    from jumok.course.practice.folder import Practice
    from jumok.course.words import Language

FOLDER = "practice"
MAP = "map.svg"  # in the folder
TRAINABLE = ("head", "module_list_heads", "output_projection", "mlp", "block", "gpt")  # exercises for `learn use`


@click.command(
    cls=Verb,
    short_help="Write the exercises to a folder, and show the progress.",
    examples="""
    jumok learn practice
    jumok learn practice my-course --lang ko
    """,
)
@click.argument("folder", required=False, type=FOLDER_PATH, metavar="[FOLDER]")
@LANGUAGE
@common(device=False)
def practice(folder: Path | None, language: Language | None, as_json: bool, quiet: bool) -> None:
    """Write the exercises to FOLDER [practice], and show which are done.

    Each exercise is a file with a task and a hole. Complete it in an editor, and check it with `jumok learn check`.
    Files that exist are not changed; delete one to begin it again. map.svg is always drawn: it shows the parts of a
    GPT, the exercises that build them, and the progress. Open it in a browser.
    """
    from jumok.cli.console.practice import show_course
    from jumok.course.practice.catalogue import exercises
    from jumok.course.practice.folder import Practice
    from jumok.course.practice.map import part_of

    chosen = language or users_language()
    course = Practice(folder or _folder())
    written = course.write(chosen)
    drawn = _draw_map(course, chosen)
    if as_json:
        listed = [
            {
                **_named(one, course.file(one), chosen), "chapter": one.chapter, "part": part_of(one),
                **vars(course.progress[one.slug]),
            }
            for one in exercises()
        ]  # fmt: skip
        print_json({"folder": str(course.path), "written": len(written), "map": str(drawn), "exercises": listed})
        return
    if not quiet:
        show_course(course, chosen)
    if written:
        say(tr("Wrote {count} files to {folder}.", count=len(written), folder=course.path), quiet=quiet)
    say(tr("Where each exercise belongs in a GPT: {path}", path=drawn), quiet=quiet)
    following = course.next()
    if following is not None:
        say(tr("Next: complete {path}, then", path=course.file(following)), quiet=quiet)
        say(f"  {shell('jumok', 'learn', 'check', course.file(following))}", quiet=quiet)


@click.command(
    cls=Verb,
    short_help="Check an exercise, and say what is wrong and why.",
    examples="""
    jumok learn check practice/08_softmax.py
    jumok learn check 8
    jumok learn check
    """,
)
@click.argument("file", required=False)
@LANGUAGE
@common(device=False)
def check(file: str | None, language: Language | None, as_json: bool, quiet: bool) -> None:
    """Run an exercise in a process of its own, compare it with the modules of jumok, and explain the differences.

    FILE is a file, or the number or the name of an exercise. Without a FILE, all exercises that were begun are checked.
    The exit code is 0 if all is right, and 1 otherwise.
    """
    from jumok.course.practice.folder import PROGRESS, Practice

    chosen = language or users_language()
    if file is not None:
        one, path = located(file)
        files = {path: one}
        course = Practice(path.parent)
    else:
        course = Practice(_folder())
        if not (course.path / PROGRESS).exists():
            raise LessonError(
                "There are no exercises in {folder}. Write them first: {command}",
                folder=course.path.resolve(),
                command="jumok learn practice",
            )
        files = dict(course.begun())
        if not files:
            raise LessonError(
                "No exercise in {folder} was begun. Complete {path} first.", folder=course.path, path=course.first()
            )
    silent, short = quiet or as_json, file is None
    results = [_check(course, one, path, chosen, quiet=silent, short=short) for path, one in files.items()]
    right = all(result["status"] == "right" for result in results)
    if as_json:
        print_json({"right": right, "exercises": results})
    if not right:
        raise click.exceptions.Exit(1)


@click.command(
    cls=Verb,
    short_help="Show the next of three hints for an exercise.",
    examples="jumok learn hint practice/08_softmax.py",
)
@click.argument("file")
@LANGUAGE
@common(device=False)
def hint(file: str, language: Language | None, as_json: bool, quiet: bool) -> None:
    """Show one more hint for an exercise. FILE is a file, or the number or the name of an exercise.

    Each exercise has three hints, from a direction to nearly the code.
    """
    from jumok.course.practice.folder import Practice

    chosen = language or users_language()
    one, path = located(file)
    course = Practice(path.parent)
    shown = min(course.progress[one.slug].hints + 1, len(one.hints))
    with _recording():
        shown = course.hint(one)
    hints = [words.said(chosen) for words in one.hints]
    if as_json:
        print_json({**_named(one, path, chosen), "hints": hints[:shown], "of": len(hints)})
        return
    for number, text in enumerate(hints[:shown], 1):
        click.echo(tr("Hint {number} of {count}: {text}", number=number, count=len(hints), text=text))
    if shown == len(hints):
        solution_command = _command("solution", path)
        if course.progress[one.slug].attempts:
            said = tr("These are all hints. The solution: {command}", command=solution_command)
        else:
            said = tr(
                "These are all hints. Try it, and check it ({check}); after an attempt you may see the solution: "
                "{command}",
                check=_command("check", path),
                command=solution_command,
            )
        say(said, quiet=quiet)


@click.command(
    cls=Verb,
    short_help="Show the solution of an exercise, after an attempt.",
    examples="jumok learn solution practice/08_softmax.py",
)
@click.argument("file")
@LANGUAGE
@common(device=False)
def solution(file: str, language: Language | None, as_json: bool, quiet: bool) -> None:
    """Show the solution of an exercise. FILE is a file, or the number or the name of an exercise.

    The file must have been checked at least once with something of your own in it.
    """
    from jumok.cli.console.practice import show_code
    from jumok.course.practice.folder import Practice

    one, path = located(file)
    if not Practice(path.parent).progress[one.slug].attempts:
        raise LessonError(
            "Try {path} yourself first, and check it: {command}", path=path, command=_command("check", path)
        )
    chosen = language or users_language()
    if as_json:
        print_json({**_named(one, path, chosen), "solution": one.solution(chosen)})
    else:
        show_code(one.solution(chosen))


@contextmanager
def _recording() -> Iterator[None]:
    """Record progress in the block. A read-only folder or a full disk must not cost the reader the verdict or hint."""
    try:
        yield
    except OSError as error:
        say(tr("The progress was not saved: {reason}.", reason=error))


def _check(
    course: Practice, one: Exercise, path: Path, language: Language, *, quiet: bool, short: bool
) -> dict[str, Any]:
    """Check a file, record the attempt and show the verdict. Returns the verdict as --json has it."""
    from jumok.cli.console.practice import show_verdict
    from jumok.course.practice.sandbox import check as run

    verdict = run(path, one)
    with _recording():
        course.tried(one, verdict)
        if verdict.status == "right" and course.path.joinpath(MAP).exists():
            _draw_map(course, language)
    if not quiet:
        show_verdict(one, path, verdict, language, short=short)
        if not short:
            _say_what_is_next(course, one, path, verdict.status)
    return {
        **_named(one, path, language),
        "status": verdict.status,
        "right": [words.said(language) for words in verdict.right],
        "faults": [
            {"text": fault.words.said(language), "mistake": fault.mistake, "line": fault.line}
            for fault in verdict.faults
        ],
        "printed": verdict.printed,
    }


def _say_what_is_next(course: Practice, one: Exercise, path: Path, status: str) -> None:
    if status == "wrong":
        say(tr("A hint: {command}", command=_command("hint", path)))
    elif status == "right":
        if one.slug in TRAINABLE:
            say(tr("Train with it: {command}", command=_command("use", path)))
        if following := course.next(one):
            say(tr("Next: {path}", path=course.file(following)))


def _named(one: Exercise, path: Path, language: Language) -> dict[str, Any]:
    return {"exercise": one.slug, "number": one.number, "title": one.title.said(language), "file": str(path)}


def _draw_map(course: Practice, language: Language) -> Path:
    """Draw the map with the progress, and return its path."""
    from jumok.course.practice.map import draw_map

    path = course.path / MAP
    done = {slug for slug, entry in course.progress.items() if entry.right}
    draw_map(path, language, following=course.next(), done=done)
    return path


def _folder() -> Path:
    """Return the folder of the exercises: the current one if it holds their progress, else `practice`."""
    from jumok.course.practice.folder import PROGRESS

    return Path() if Path(PROGRESS).exists() else Path(FOLDER)


def located(file: str) -> tuple[Exercise, Path]:
    """Return the exercise of a file, a number or a name, and the reader's file."""
    from jumok.course.practice.catalogue import exercise

    one, path = exercise(file), on_disk(file)
    is_a_path = path.suffix == ".py" and len(path.parts) > 1
    if not path.is_file() and not is_a_path:
        path = _folder() / one.file
    if not path.is_file():
        raise LessonError("There is no file {path}. `jumok learn practice` writes the exercises.", path=path)
    return one, path


def _command(verb: str, path: Path) -> str:
    return shell("jumok", "learn", verb, path)
