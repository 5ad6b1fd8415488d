"""The outputs of a ladder: a report in Markdown, and its picture."""

from __future__ import annotations

import math
import re
import tempfile
from pathlib import Path

from jumok.course.ladder.picture import draw_ladder
from jumok.course.ladder.results import LadderRecord, RungResult, write_output
from jumok.course.ladder.rungs import RUNGS, TEXTS, LadderRung, say
from jumok.course.ladder.verdicts import verdict
from jumok.course.words import Language, plain, read_toml
from jumok.messages import shell

REPORT, PICTURE = "ladder.md", "ladder.png"
MINUS = "−"
IN_MINUTES = 180.0  # seconds; if a rung takes longer, the picture uses minutes


def write(record: LadderRecord, out: Path, language: Language) -> list[Path]:
    """Write report and picture of the finished rungs, at least one, into `out`; returns their paths.

    Raises:
        RunError: a file cannot be written.
    """
    write_output(out / REPORT, report(record, language))
    write_output(out / PICTURE, _picture(record, language))
    return [out / REPORT, out / PICTURE]


# --- the table --------------------------------------------------------------------------------------------------------


def table(record: LadderRecord, language: Language) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the headings, and a row for each finished rung.

    A row has name, parameters, loss, change, the step at which it passes the bigram, speed, and training tokens.
    """
    rows: list[tuple[str, ...]] = []
    before: RungResult | None = None
    for number, rung in enumerate(RUNGS, 1):
        result = record.result(rung)
        if result is not None:
            change = "" if before is None else signed(result.nats_per_char - before.nats_per_char)
            rows.append(
                (
                    f"{number} {rung.title.said(language)}",
                    f"{result.parameters:,}",
                    f"{result.nats_per_char:.3f}",
                    change,
                    _passes(record, rung, language),
                    f"{result.tokens_per_second:,.0f}",
                    f"{result.tokens:,}",
                )
            )
        before = result
    return tuple(read_toml(TEXTS)["table"][language]), rows


def _passes(record: LadderRecord, rung: LadderRung, language: Language) -> str:
    if rung == RUNGS[0]:
        return ""
    step = record.passes_bigram(rung)
    return say("not_yet", language) if step is None else say("step", language, step=step)


def markdown_table(record: LadderRecord, language: Language) -> str:
    """Return the table in Markdown, with a newline at its end."""
    headings, rows = table(record, language)
    lines = [headings, ("---", *["---:"] * (len(headings) - 1)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def signed(change: float) -> str:
    """-0.5 -> "−0.500", 0.5 -> "+0.500"."""
    text = f"{abs(change):.3f}"
    return text if text == "0.000" else f"{'+' if change > 0 else MINUS}{text}"


def printable(text: str) -> str:
    """Return the text with control characters replaced, which could change the state of a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)


# --- the picture ------------------------------------------------------------------------------------------------------


def _picture(record: LadderRecord, language: Language) -> bytes:
    """The curves of the finished rungs as a PNG, over seconds or minutes if the budget is a time, else over tokens."""
    by_time = record.config.minutes_per_rung is not None
    longest = max((point.seconds for result in record.results for point in result.curve), default=0.0)
    unit, seconds = ("minutes", 60.0) if longest >= IN_MINUTES else ("seconds", 1.0)
    curves = {}
    for row, result in zip(table(record, language)[1], record.results, strict=True):
        if result.curve:
            name = f"{row[0]} {row[2]}"
            xs = [point.seconds / seconds if by_time else float(point.tokens) for point in result.curve]
            curves[name] = (xs, [point.nats_per_char for point in result.curve])
    floor = None
    if record.floor is not None:
        floor = (say("floor", language, floor=record.floor), record.floor)
    with tempfile.TemporaryDirectory(prefix="jumok-") as folder:
        path = Path(folder) / PICTURE
        draw_ladder(
            curves,
            path,
            x_label=say(unit if by_time else "tokens", language),
            y_label=say("loss", language),
            floor=floor,
        )
        return path.read_bytes()


# --- the report -------------------------------------------------------------------------------------------------------


def report(record: LadderRecord, language: Language) -> str:
    """Return the report in Markdown. The picture stands beside it."""

    def heading(key: str) -> str:
        return f"## {say(key, language)}"

    names = "; ".join(f"{row[0]} {row[2]}" for row in table(record, language)[1])
    parts = [
        f"# {say('title', language, text=plain(printable(record.text.name)))}",
        say("lead", language, count=len(RUNGS)),
        "\n".join(f"- {name}: {value}" for name, value in _facts(record, language)),
        *_notes(record, language),
        heading("curves"),
        f"![{names}]({PICTURE})",
        say("curves_are", language),
        heading("table"),
        markdown_table(record, language).rstrip(),
        heading("rungs"),
        *(part for number in range(1, len(RUNGS) + 1) for part in _rung_section(record, number, language)),
        say("write", language),
        indented(_generate(record)),
    ]
    return "\n\n".join(parts) + "\n"


def indented(text: str) -> str:
    """Return a text from outside as a code block, in which nothing is markup."""
    return "\n".join(f"    {line}" for line in printable(text).split("\n"))


def _generate(record: LadderRecord) -> str:
    """Return a command that generates text with the last rung; its prompt is a word of the sample."""
    last = record.results[-1]
    word = re.search(r"\w+", last.after)
    prompt = (word[0],) if word else ()
    return shell("jumok", "generate", f"OUT/{len(record.results):02d}-{last.slug}", *prompt)


def _notes(record: LadderRecord, language: Language) -> list[str]:
    top = record.results[-1].nats_per_char
    notes = [say("reading", language, top=top, choices=math.exp(min(top, 20.0)))]
    if record.floor is not None:
        notes.append(say("floor_is", language, floor=record.floor))
    if not record.finished:
        notes.append(say("unfinished", language, left=len(RUNGS) - len(record.results)))
    return notes


def _facts(record: LadderRecord, language: Language) -> list[tuple[str, str]]:
    config = record.config
    budget = (
        say("minutes_each", language, minutes=config.minutes_per_rung)
        if config.minutes_per_rung is not None
        else say("steps_each", language, steps=config.steps_per_rung)
    )
    same = say(
        "same_are",
        language,
        vocab=record.vocab_size,
        width=config.n_embd,
        context=config.context_length,
        batch=config.batch_size,
        precision=record.precision,
        seed=config.seed,
        rate=config.learning_rate,
    )
    text = say("text_is", language, text=plain(printable(record.text.name)), chars=record.text.chars)
    facts = [(say("text", language), text), (say("budget", language), budget), (say("same", language), same)]
    if record.command is not None:
        facts.append((say("command", language), plain(printable(record.command))))
    return facts


def _rung_section(record: LadderRecord, number: int, language: Language) -> list[str]:
    rung = RUNGS[number - 1]
    result = record.result(rung)
    figure = "" if result is None else f": {result.nats_per_char:.3f}"
    parts = [f"### {number} {rung.title.said(language)}{figure}", rung.adds.said(language)]
    if result is not None:
        parts.append(verdict(record, rung, language))
        for key, text in (("before", result.before), ("after", result.after)):
            parts += [f"{say(key, language)}:", indented(text)] if text else []
    return parts
