"""What the verbs share: how they look in --help, their common options, and how they speak."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from gettext import gettext, ngettext
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import click

from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.text import Table, Text

NUMBERS_ROWS = 50_000  # of the built-in pairs, when no table is given
STORIES_CHARS = 2_000_000  # of the built-in corpus, when no text is given
INTERRUPTED = 130
IMPORTED = time.monotonic()
# What tells OpenMP how threads wait: of any, of GNU, of LLVM and Intel.
WAITING_POLICIES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
BUSY_PROCESSORS = 8  # one busy thread of others to so many processors is enough to be in the way
LOOKS, LOOK_SECONDS = 5, 0.01
Command = Callable[..., None]


FILLER = "\N{WORD JOINER}"  # behind each character that takes two columns, for click counts characters


class Help(click.HelpFormatter):
    """Writes help in the current language, in lines that fit the terminal."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_filled(tr(text)))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names, each with its explanation."""
        super().write_dl([(name, _filled(tr(text))) for name, text in rows], col_max, col_spacing)

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        super().write_heading(tr(heading))

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write how a command is called."""
        super().write_usage(prog, args, f"{tr('Usage:')} " if prefix is None else prefix)

    def getvalue(self) -> str:
        """All that was written."""
        return super().getvalue().replace(FILLER, "")


def _filled(text: str) -> str:
    return "".join(c + FILLER if unicodedata.east_asian_width(c) in "WF" else c for c in text)


def translate_click() -> None:
    """Let click take the words of its own messages from our catalogue instead of gettext's."""
    from click import core, exceptions, parser, types

    def plural(one: str, many: str, n: int) -> str:
        template = one if n == 1 else many
        return tr(template)

    ours = {gettext: tr, ngettext: plural}
    for module in (core, exceptions, parser, types):
        for name, value in list(vars(module).items()):
            if value in (gettext, ngettext):
                setattr(module, name, ours[value])


class _Context(click.Context):
    formatter_class = Help


class Group(click.Group):
    """Verbs under one name, with help in the current language."""

    context_class = _Context


class Verb(click.Command):
    """A command whose options are listed under headings, and whose examples keep their line breaks."""

    context_class = _Context

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each under the heading that `option` gave it."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record and isinstance(parameter, click.Option):  # arguments are explained above the options
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples as they are."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples.strip().splitlines():
                    formatter.write(f"  {line.strip()}\n")


class SectionedOption(click.Option):
    """An option that knows the heading it belongs under."""

    def __init__(self, *args: Any, section: str = "Options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


def option(*names: str, section: str = "Options", **settings: Any) -> Callable[[Command], Command]:
    """A click option under a heading."""
    return click.option(*names, cls=SectionedOption, section=section, **settings)


def common(*, device: bool = True, seed: bool = False) -> Callable[[Command], Command]:
    """The options that verbs share."""

    def add(function: Command) -> Command:
        function = option("--quiet", is_flag=True, section="Common", help="no progress, no notices")(function)
        function = option(
            "--json", "as_json", is_flag=True, section="Common", help="one JSON object as the last line of stdout"
        )(function)
        if seed:
            function = option("--seed", type=int, section="Common", help="for the same result again")(function)
        if device:
            function = option(
                "--device", default="auto", section="Common", help="auto, cpu, cuda or mps [auto: the fastest]"
            )(function)
        return function

    return add


def say(text: str, *, quiet: bool = False) -> None:
    """A line for the person, on stderr. It may name what strangers wrote: a file, a label, a column."""
    if not quiet:
        from jumok.text import with_signs

        click.echo(with_signs(text), err=True)


def write(text: str, *, end: str = "\n") -> None:
    """What was written, by a model or a person, on stdout: to the letter in a file or a pipe, and at once.

    In a terminal control characters are shown as signs: it would obey them, and a model may have learned any.
    """
    if sys.stdout.isatty():
        from jumok.text import with_signs

        text = with_signs(text)
    click.echo(text + end, nl=False, color=True)  # click takes escapes away otherwise where it writes to no terminal


def named(characters: Sequence[str], most: int = 10) -> str:
    """Characters for a message, those that show nothing by their number: ₩, :, U+00A0 and 3 more."""
    shown = [char if char.isprintable() and not char.isspace() else f"U+{ord(char):04X}" for char in characters]
    if len(shown) <= most:
        return ", ".join(shown)
    return tr("{list} and {n:,} more", list=", ".join(shown[:most]), n=len(shown) - most)


def print_json(values: Mapping[str, Any]) -> None:
    """The one JSON object of --json, in one write.

    A number that is not finite is null, since JSON has none such; characters that stdout lacks are escaped.
    """
    values = _finite(values)
    line = json.dumps(values, ensure_ascii=False, allow_nan=False)
    try:
        line.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(values, allow_nan=False)
    click.echo(line)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def plain_floats(values: Mapping[str, Any], digits: int = 6) -> dict[str, Any]:
    """Numbers short enough to read, and None for infinity, which JSON lacks."""

    def plain(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return round(value, digits) if math.isfinite(value) else None

    return {key: plain(value) for key, value in values.items()}


def process_seconds() -> float:
    """Wall-clock seconds since this process began, the start of Python included where the system tells of it."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # the name before may hold blanks
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 of proc_pid_stat(5), in seconds since boot
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic() - IMPORTED


def make_room_for_others() -> bool:
    """Let threads sleep while they wait for each other if other programs keep the processors busy; whether they do.

    Threads that spin instead are quicker where a processor is free for each of them, and take the processor from the
    very thread that they wait for where none is. OpenMP reads the choice when torch is loaded, so this comes before; a
    choice that stands in the environment stays.
    """
    chosen = WAITING_POLICIES & os.environ.keys()
    if chosen or "torch" in sys.modules or others_at_work() * BUSY_PROCESSORS < (os.cpu_count() or 1):
        return False
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    return True


def others_at_work() -> int:
    """How many threads beside this one run or wait for a processor, the least of a few looks; 0 if nobody tells."""
    looks = []
    for _ in range(LOOKS):
        try:
            running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0]
            looks.append(int(running) - 1)
        except (OSError, ValueError, IndexError):
            return 0
        time.sleep(LOOK_SECONDS)
    return max(0, min(looks))


READING = ("encoding", "column")  # options that say how texts are read
COLUMNS = {"classify": ("text", "label"), "seq2seq": ("source", "target")}  # that a task needs of a table
COLUMN_NAMES = tuple(name for names in COLUMNS.values() for name in names)  # options that give them other names


def read_texts(texts: tuple[str, ...], reading: Mapping[str, Any]) -> Text:
    """The texts of the command line as one. reading: encoding and column, or None for each."""
    from jumok import text as reader

    return reader.read(texts, encoding=reading.get("encoding"), column=reading.get("column"))


def recorded_columns(run: Path) -> tuple[str, ...]:
    """The columns that the model of a run folder learned from; () for one that learned from a text, and a stock model.

    Raises:
        RunError: there is no such folder.
    """
    from jumok.interop.huggingface.convert import is_hf
    from jumok.runs.folder import RunFolder

    data = {} if is_hf(run) else RunFolder.open(run).read_config().get("data", {})
    return tuple(data.get("columns", ()))


def read_material(
    task: str, texts: tuple[str, ...], reading: Mapping[str, Any], recorded: tuple[str, ...] = ()
) -> Text | Table:
    """What a task learns from: a text, or the columns of a table.

    Args:
        reading: any of READING and COLUMN_NAMES. recorded: the columns to read where `reading` names none.
    """
    from jumok import text as reader

    if task not in COLUMNS:
        return read_texts(texts, reading)
    names = COLUMNS[task]
    usual = recorded if len(recorded) == len(names) else names
    columns = [reading.get(name) or default for name, default in zip(names, usual, strict=True)]
    table = reader.read_table(texts, columns, encoding=reading.get("encoding"))
    return table.renamed(COLUMNS[task]) if task == "seq2seq" else table


def stories_text() -> Text:
    """The built-in corpus, for whoever gives no text."""
    from jumok import text as reader
    from jumok.corpora import stories

    return reader.from_string("".join(stories.write(STORIES_CHARS)), name="stories (built in)")


class Stoppable(Protocol):
    """What can be asked to come to an early end."""

    def request_stop(self) -> None:
        """Finish the step, save, and end. Called from a signal handler."""


@contextmanager
def stopping(training: Stoppable, tell: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask a training to stop after its step; a second Ctrl-C ends at once."""
    asked = False
    # In a thread of its own: the signal may come while this one prints and holds the lock of the terminal.
    telling = Thread(target=lambda: tell(notice), daemon=True)
    notice = tr(
        "Finishing this step, then saving ... (Ctrl-C again: stop at once and lose what came after the last save)"
    )

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        asked = True
        training.request_stop()
        telling.start()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            telling.join()
