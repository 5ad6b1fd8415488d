"""The figures that the chapter on the ladder publishes: all rungs with several seeds, and the same number of steps."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from jumok.course.ladder.report import signed
from jumok.course.ladder.rungs import RUNGS, say
from jumok.course.words import Language

FILE = Path(__file__).parent / "published.json"
HEADINGS = {
    "ko": ("단계", "파라미터", "nats/char (시드 0, 1, 2)", "평균", "차이", "바이그램 추월"),
    "en": ("rung", "parameters", "nats/char (seeds 0, 1, 2)", "mean", "change", "beats bigram"),
}


def published() -> dict[str, Any]:
    """Return for each rung, by its slug, the figures of three seeds.

    parameters: of the model. nats_per_char: at the end, of each seed. passes: the step at which each seed's loss is
    below the lowest of the bigram, or None. curve: steps, and the means of the validations. after: text of seed 0.
    """
    figures: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return figures


def published_table(language: Language) -> str:
    """Return the table of the chapter in Markdown."""
    figures, before = published(), None
    lines: list[tuple[str, ...]] = [HEADINGS[language], ("---", "---:", "---:", "---:", "---:", "---:")]
    for number, rung in enumerate(RUNGS, 1):
        each = figures[rung.slug]
        mean = statistics.mean(each["nats_per_char"])
        steps = each["passes"]
        if number == 1:
            passes = ""
        elif None in steps:
            passes = say("not_yet", language)
        else:
            first, last = min(steps), max(steps)
            passes = say("step", language, step=first) if first == last else say("steps", language, a=first, b=last)
        lines.append(
            (
                f"{number} {rung.title.said(language)}",
                f"{each['parameters']:,}",
                ", ".join(f"{loss:.3f}" for loss in each["nats_per_char"]),
                f"{mean:.3f}",
                "" if before is None else signed(round(mean, 3) - round(before, 3)),
                passes,
            )
        )
        before = mean
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
