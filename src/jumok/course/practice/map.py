"""The map of a GPT: which chapter explains each part, and which exercises build it.

The map is the drawing "map" of `jumok.course.drawings`. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from jumok.course.drawings import draw_architecture
from jumok.course.practice.catalogue import Exercise, exercises
from jumok.course.words import Language, Words, read_toml, words_in

TEXTS = Path(__file__).parent / "map.toml"


def places() -> dict[str, list[str]]:
    """Return the exercises that build each part of the map, from the top of the map."""
    return {part: entry["exercises"] for part, entry in read_toml(TEXTS)["part"].items()}


def part_of(one: Exercise) -> str:
    """Return the part of the map that an exercise builds."""
    return next(part for part, slugs in places().items() if one.slug in slugs)


def place_of(one: Exercise) -> Words:
    """Return the name of the part of the map that an exercise builds."""
    return words_in(TEXTS, "part")[part_of(one)]


def draw_map(path: Path, language: Language, *, following: Exercise | None = None, done: Collection[str] = ()) -> None:
    """Draw the map as SVG. Beside each part stand its chapter and the numbers of its exercises.

    Args:
        following: the exercise whose part gets a thick border.
        done: slugs of the exercises that are done; a check mark stands beside a part when all of its exercises are.
    """
    numbers = {one.slug: one.number for one in exercises()}
    chapter = words_in(TEXTS, "table")["chapter"]
    notes = {
        part: chapter.said(language, number=each["chapter"])
        + f" · {ranges(numbers[slug] for slug in each['exercises'])}"
        + (" ✓" if set(each["exercises"]) <= set(done) else "")
        for part, each in read_toml(TEXTS)["part"].items()
    }
    draw_architecture("map", path, language, () if following is None else (part_of(following),), notes=notes)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, in a few characters: 3, 4, 5, 9 -> "3–5, 9"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)


def table(language: Language) -> str:
    """Return the exercises as a Markdown table: number and file, title, chapter, part of the map."""
    rows = [
        f"| {one.number} | `{one.file}`: {one.title.said(language)} | {one.chapter} | {place_of(one).said(language)} |"
        for one in exercises()
    ]
    return "\n".join([words_in(TEXTS, "table")["headings"].said(language), "|---|---|---|---|", *rows]) + "\n"
