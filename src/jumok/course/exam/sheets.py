"""The sheets of an exam, with their key, as Markdown and as printable HTML.

All students get the same kinds of questions, so that the sheets are equally difficult, in an order and with numbers of
their own. The seed decides everything. It stands in the key only: with the seed, jumok computes the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from random import Random
from string import Template

from jumok.config import require_count
from jumok.course.exam.questions import KINDS, Drawn
from jumok.course.pages.html import html_of
from jumok.course.words import Language, plain, words_in
from jumok.errors import ConfigError, LessonError
from jumok.files import atomic_folder
from jumok.text import read, with_signs

QUESTIONS = 8  # on a sheet
MOST_STUDENTS = 1_000
ATTEMPTS = 100  # to draw numbers that no earlier student has

WORDS = words_in(Path(__file__).parent / "sheets.toml")


@dataclass(frozen=True)
class Sheet:
    """The sheet of one student. number: from 1. name: "" if unknown. questions: kind, and the question drawn."""

    number: int
    name: str
    questions: tuple[tuple[str, Drawn], ...]


@dataclass(frozen=True)
class Exam:
    """The sheets of all students. until: the last chapter that was asked about; None: all."""

    sheets: tuple[Sheet, ...]
    seed: int
    until: int | None = None


def make_exam(names: Sequence[str], seed: int, *, until: int | None = None) -> Exam:
    """Return an exam.

    Args:
        names: the name of each student, or "".
        seed: decides the kinds, their order and the numbers. More students leave the sheets of the first as they are.
        until: ask only about chapters up to this one; None: all.

    Raises:
        ConfigError: there are no students or too many, or the chapters have fewer than QUESTIONS kinds.
    """
    require_count("students", len(names), 1, MOST_STUDENTS)
    known = [name for name, kind in KINDS.items() if until is None or kind.chapter <= until]
    if until is not None and len(known) < QUESTIONS:
        least = sorted(kind.chapter for kind in KINDS.values())[QUESTIONS - 1]
        raise ConfigError(
            "the chapters up to {until} have {found} kinds of questions, and a sheet has {wanted}; {--until} must be "
            "at least {least}.",
            until=until,
            found=len(known),
            wanted=QUESTIONS,
            least=least,
        )
    chosen = Random(f"{seed}").sample(known, QUESTIONS)
    used: set[str] = set()
    sheets = []
    for number, name in enumerate(names, 1):
        rng = Random(f"{seed}/{number}")
        order = rng.sample(chosen, QUESTIONS)
        sheets.append(Sheet(number, name, tuple((kind, _new(kind, rng, used)) for kind in order)))
    return Exam(tuple(sheets), seed, until)


def read_names(path: Path) -> list[str]:
    """Return the names in a file, one in a line, in any encoding. Empty lines are skipped.

    Raises:
        TextError: the file cannot be read.
        LessonError: it holds no name.
    """
    with read(path) as text:
        names = [with_signs(line.strip()) for line in text.read().splitlines() if line.strip()]
    if not names:
        raise LessonError("{path} holds no names; write one name in each line.", path=path)
    return names


def write_exam(exam: Exam, folder: Path, language: Language, *, title: str | None = None) -> list[Path]:
    """Write exam.md, exam.html, key.md and key.html into a new or empty folder, all or none; returns their paths.

    Raises:
        LessonError: the folder exists and is not empty, or it cannot be written. Nothing is then changed.
    """
    title = title or WORDS["title"].said(language)
    sheets, key = exam_markdown(exam, language, title), key_markdown(exam, language, title)
    files = {
        "exam.md": "\n---\n\n".join(sheets),
        "exam.html": page([html_of(sheet) for sheet in sheets], language, title),
        "key.md": key,
        "key.html": page([html_of(key)], language, f"{title}: {WORDS['key'].said(language)}"),
    }
    _require_free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as new:
            for name, text in files.items():
                (new / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise LessonError(
            "cannot write {path}: {reason}. Give a folder of yours with {--out}.", path=folder, reason=error
        ) from None
    return [folder / name for name in files]


def exam_markdown(exam: Exam, language: Language, title: str) -> list[str]:
    """Return the sheet of each student in Markdown."""
    return [_sheet(sheet, language, title) for sheet in exam.sheets]


def key_markdown(exam: Exam, language: Language, title: str) -> str:
    """Return the answers of all students, in a table for each."""
    words = {key: text.said(language) for key, text in WORDS.items()}
    parts = [f"# {plain(title)}: {words['key']}", WORDS["key_lead"].said(language, seed=exam.seed)]
    for sheet in exam.sheets:
        lines = [f"| | {words['kind']} | {words['chapter']} | {words['answer']} |", "|---|---|---|---|"]
        for number, (kind, drawn) in enumerate(sheet.questions, 1):
            about, answer = KINDS[kind], drawn.answer.said(language).replace("|", "\\|")
            lines.append(f"| {number} | {about.title.said(language)} | {about.chapter} | {answer} |")
        parts += [f"## {sheet.number}{f'. {plain(sheet.name)}' if sheet.name else ''}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def page(sections: Sequence[str], language: Language, title: str) -> str:
    """Return a printable page in A4. sections: HTML; each begins on a new sheet of paper."""
    template = resources.files("jumok.course.exam").joinpath("exam.html").read_text(encoding="utf-8")
    body = "\n".join(f'<section class="sheet">\n{section}</section>' for section in sections)
    return Template(template).substitute(language=language, title=escape(title), body=body)


def _sheet(sheet: Sheet, language: Language, title: str) -> str:
    words: Mapping[str, str] = {key: text.said(language) for key, text in WORDS.items()}
    name = plain(sheet.name) if sheet.name else "＿" * 8
    parts = [
        f"# {plain(title)}",
        f"{words['number']}: **{sheet.number}** · {words['name']}: **{name}** · {words['points']}: ＿＿＿ / "
        f"{QUESTIONS}",
        words["lead"],
    ]
    for number, (kind, drawn) in enumerate(sheet.questions, 1):
        parts += [f"## {number}. {KINDS[kind].title.said(language)}", drawn.question.said(language)]
    return "\n\n".join(parts) + "\n"


def _new(kind: str, rng: Random, used: set[str]) -> Drawn:
    """Return a question that no earlier sheet has, as far as ATTEMPTS find one."""
    for _ in range(ATTEMPTS):
        drawn = KINDS[kind].draw(rng)
        if drawn.question.en not in used:
            break
    used.add(drawn.question.en)
    return drawn


def _require_free(folder: Path) -> None:
    """Raise LessonError if there is anything at `folder` but an empty folder."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise LessonError("{path} exists and is not empty; name another folder with {--out}.", path=folder)
