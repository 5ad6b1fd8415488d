"""The command line: `jumok VERB`. Only the module of that verb is imported, and heavy libraries when it runs.

Results go to stdout: generated text, figures, and with --json a JSON object as the last line. Progress and notices go
to stderr. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted (the training state is saved).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping

import click

from jumok.cli.commands import Group
from jumok.cli.console.help import translate_click
from jumok.cli.console.output import print_json, say
from jumok.cli.interrupts import INTERRUPTED, hangup
from jumok.errors import JumokError
from jumok.memory import bytes_of, free_memory, is_out_of_memory
from jumok.messages import reason_and_file, speaking, tr, users_language
from jumok.version import __version__

VERBS = (
    "bench", "chat", "convert", "corpus", "doctor", "evaluate", "generate", "learn", "predict", "serve", "share",
    "train", "view",
)  # fmt: skip


class _Verbs(Mapping[str, click.Command]):
    """The verbs by name; each stands in the module of its name, which is imported when the verb is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        if name not in VERBS:
            raise KeyError(name)
        verb: click.Command = getattr(importlib.import_module(f"jumok.cli.{name}"), name)
        return verb

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


@click.group(
    cls=Group, commands=_Verbs(), context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="jumok")
def app() -> None:
    """주목: train a Transformer on Korean text, generate text with it, and look inside it.

    \b
    Examples:
      jumok train novel.txt --minutes 5 --out runs/novel
      jumok generate runs/novel "그날 밤"
      jumok evaluate runs/novel other.txt
      jumok view runs/novel "그날 밤" --open
    """


def main() -> None:
    """Run the command line in the language of the user, and exit."""
    atexit.register(gc.freeze)  # to look for cycles in all that was imported takes longer than to write a sentence
    _open_closed_streams()
    translate_click()
    with speaking(users_language()):
        sys.exit(_run())


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that was closed, as in `jumok train - <&-`.

    Otherwise the first file that is opened gets the number of the closed stream, and prints go into that file. The
    streams are opened in order, so that each gets its own number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _run() -> int:
    """Run the command line and return the exit code."""
    # Warnings of torch and its compiler are for developers, not for users.
    warnings.filterwarnings("ignore", module=r"torch\.|jumok\.")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    as_json, failure = "--json" in sys.argv, ""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # if its encoding has no Hangul
    try:
        code = _interruptible()
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        failure, code = error.format_message(), error.exit_code
    except JumokError as error:
        say(tr("jumok: {message}", message=error))
        failure, code = str(error), error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("\n" + tr("jumok: interrupted."))
        failure, code = "interrupted", INTERRUPTED
    except BrokenPipeError:
        code = 1
    except (RuntimeError, MemoryError, ImportError, OSError) as error:
        if is_out_of_memory(error):
            failure = _out_of_memory(error)
        elif isinstance(error, OSError):
            failure = f"{reason_and_file(error)}."
        else:
            raise
        code = 1
        say(tr("jumok: {message}", message=failure))
    try:
        if failure and as_json:
            print_json({"error": failure})
        sys.stdout.flush()
    except OSError:  # the reader closed the pipe, or the disk is full
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # otherwise closing it fails at exit
    return code if isinstance(code, int) else 0


def _out_of_memory(error: Exception) -> str:
    """Return the message for memory that ran out in spite of all checks: during which verb, and what to reduce."""
    verb = next((word for word in sys.argv[1:] if word in VERBS), "")
    if verb == "train":
        remedy = tr("Use a smaller {--batch-size}, {--context-length} or {--size}, or {--recompute}.")
    else:
        remedy = tr("Use a smaller model or text, or a computer with more memory.")
    free = free_memory("cuda" if "CUDA" in str(error) else "cpu")
    numbers = "" if free is None else f" ({tr('{bytes} are free', bytes=bytes_of(free))})"
    command = f"jumok {verb}".strip()
    return tr("memory ran out during `{command}`{numbers}. {remedy}", command=command, numbers=numbers, remedy=remedy)


def _interruptible() -> object:
    """Run the command line; SIGTERM and SIGHUP are like Ctrl-C: started work is undone.

    C code of torch can replace the KeyboardInterrupt by an error of its own, which is not reported then.
    """
    asked = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    ctrl_c = [signal.SIGINT] if signal.getsignal(signal.SIGINT) == signal.default_int_handler else []  # or ignored
    for each in (*ctrl_c, signal.SIGTERM, *hangup()):
        signal.signal(each, interrupt)
    try:
        return app(standalone_mode=False)
    except click.exceptions.Exit:
        raise
    except Exception:
        if asked:
            raise KeyboardInterrupt from None
        raise
