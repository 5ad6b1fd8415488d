"""The outputs of a ladder: a table in Markdown, a picture, and a self-contained HTML page."""

from __future__ import annotations

import base64
import math
import re
import tempfile
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

from jumok.course.ladder.picture import draw_ladder
from jumok.course.ladder.results import LadderRecord, RungResult, write_output
from jumok.course.ladder.rungs import RUNGS, TEXTS, LadderRung, say
from jumok.course.ladder.verdicts import verdict
from jumok.course.words import Language, read_toml
from jumok.messages import shell

TABLE, PICTURE, PAGE = "ladder.md", "ladder.png", "report.html"
MINUS = "−"
IN_MINUTES = 180.0  # seconds; if a rung takes longer, the picture uses minutes


def write(record: LadderRecord, out: Path, language: Language) -> list[Path]:
    """Write table, picture and page of the finished rungs, at least one, into `out`; returns their paths.

    Raises:
        RunError: a file cannot be written.
    """
    write_output(out / TABLE, markdown_table(record, language))
    write_output(out / PICTURE, _picture(record, language))
    write_output(out / PAGE, page(record, language))
    return [out / name for name in (TABLE, PICTURE, PAGE)]


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


def _picture(record: LadderRecord, language: Language, *, narrow: bool = False, dark: bool = False) -> bytes:
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
            narrow=narrow,
            dark=dark,
        )
        return path.read_bytes()


# --- the page ---------------------------------------------------------------------------------------------------------


def page(record: LadderRecord, language: Language) -> str:
    """Return the report as HTML without external resources."""
    template = resources.files("jumok.course.ladder").joinpath("report.html").read_text(encoding="utf-8")
    title = _escaped("title", language, text=record.text.name)
    return Template(template).substitute(
        language=language,
        title=title,
        lead=_escaped("lead", language, count=len(RUNGS)),
        notes="\n".join(f"<p>{note}</p>" for note in _notes(record, language)),
        facts="\n".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in _facts(record, language)),
        curves_heading=_escaped("curves", language),
        picture=_picture_element(record, language),
        curves_note=_escaped("curves_are", language),
        table_heading=_escaped("table", language),
        table=_html_table(record, language),
        rungs_heading=_escaped("rungs", language),
        rungs="\n".join(_rung_section(record, number, language) for number in range(1, len(RUNGS) + 1)),
        footer=_escaped("write", language),
        write=escape(_generate(record)),
    )


def _generate(record: LadderRecord) -> str:
    """Return a command that generates text with the last rung; its prompt is a word of the sample."""
    last = record.results[-1]
    word = re.search(r"\w+", last.after)
    prompt = (word[0],) if word else ()
    return shell("jumok", "generate", f"OUT/{len(record.results):02d}-{last.slug}", *prompt)


def _escaped(key: str, language: Language, **values: object) -> str:
    """Return a text, escaped for HTML."""
    return escape(say(key, language, **values))


def _notes(record: LadderRecord, language: Language) -> list[str]:
    top = record.results[-1].nats_per_char
    notes = [_escaped("reading", language, top=top, choices=math.exp(min(top, 20.0)))]
    if record.floor is not None:
        notes.append(_escaped("floor_is", language, floor=record.floor))
    if not record.finished:
        notes.append(_escaped("unfinished", language, left=len(RUNGS) - len(record.results)))
    return notes


def _facts(record: LadderRecord, language: Language) -> list[tuple[str, str]]:
    config = record.config
    budget = (
        _escaped("minutes_each", language, minutes=config.minutes_per_rung)
        if config.minutes_per_rung is not None
        else _escaped("steps_each", language, steps=config.steps_per_rung)
    )
    same = _escaped(
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
    facts = [
        (_escaped("text", language), _escaped("text_is", language, text=record.text.name, chars=record.text.chars)),
        (_escaped("budget", language), budget),
        (_escaped("same", language), same),
    ]
    if record.command is not None:
        facts.append((_escaped("command", language), f"<code>{escape(record.command)}</code>"))
    return facts


def _picture_element(record: LadderRecord, language: Language) -> str:
    """Return the picture for wide and narrow windows, in light and dark mode."""
    sources = [
        ("(max-width: 640px) and (prefers-color-scheme: dark)", True, True),
        ("(max-width: 640px)", True, False),
        ("(prefers-color-scheme: dark)", False, True),
    ]
    lines = [
        f'<source media="{media}" srcset="{_data_url(_picture(record, language, narrow=narrow, dark=dark))}">'
        for media, narrow, dark in sources
    ]
    alt = "; ".join(f"{row[0]} {row[2]}" for row in table(record, language)[1])
    lines.append(f'<img src="{_data_url(_picture(record, language))}" alt="{escape(alt)}">')
    return "<picture>\n" + "\n".join(lines) + "\n</picture>"


def _data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _html_table(record: LadderRecord, language: Language) -> str:
    headings, rows = table(record, language)
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = "\n".join(
        f'<tr><th scope="row">{escape(row[0])}</th>{"".join(f"<td>{escape(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _rung_section(record: LadderRecord, number: int, language: Language) -> str:
    rung = RUNGS[number - 1]
    result = record.result(rung)
    figure = "" if result is None else f" <b>{result.nats_per_char:.3f}</b>"
    parts = [
        f"<h3>{number} {escape(rung.title.said(language))}{figure}</h3>",
        f"<p>{escape(rung.adds.said(language))}</p>",
    ]
    if result is not None:
        parts += [f"<p>{escape(verdict(record, rung, language))}</p>", _samples(result, language)]
    return f'<section id="{rung.slug}">\n' + "\n".join(parts) + "\n</section>"


def _samples(result: RungResult, language: Language) -> str:
    pairs = [("before", result.before), ("after", result.after)]
    rows = "".join(
        f"<dt>{_escaped(key, language)}</dt><dd>{escape(printable(text))}</dd>" for key, text in pairs if text
    )
    return f'<dl class="samples">{rows}</dl>'
