"""Messages for users: English templates in the code, and their Korean translations in `ko.toml`.

A message is written in English where it is used:

    raise RunError("{path} has no {name}; name the folder with {--out RUN}.", path=path, name=name)
    Notice(step=step, text=tr("{count:,} rows were left out.", count=count))

`{path}` and `{count:,}` are fields of `str.format`; an OSError for a field is written as its reason. `{--out RUN}`
names a setting: `--out RUN` in a terminal, `out=RUN` in Python. The language is that of the user, in a terminal, a
program and a notebook: the one that `language` chose, or that of JUMOK_LANG or the locale. `speaking` sets another one
for a block, as the server does for the reader of a page.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Literal, get_args

Language = Literal["en", "ko"]

LOCALE = ("JUMOK_LANG", "LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set decides
SETTING = re.compile(r"\{--([a-z][a-z0-9-]*)(?: ((?:[^{}]|\{[^{}]*\})*))?\}")

_chosen: Language | None = None  # by `language`, for all threads
_language: ContextVar[Language | None] = ContextVar("language", default=None)
_terminal: ContextVar[bool] = ContextVar("terminal", default=False)


def tr(template: str, /, **values: object) -> str:
    """Return a message in the current language with its fields filled in; without values, braces are characters."""
    if users_language() == "ko":
        template = catalogue().get(template, template)
    template = SETTING.sub(_setting, template)
    return template.format(**{name: _said(value) for name, value in values.items()}) if values else template


def in_each_language(template: str, /, **values: object) -> dict[Language, str]:
    """Return a message in each language, for a page that lets its reader choose."""
    found: dict[Language, str] = {}
    for name in get_args(Language):
        with speaking(name, terminal=_terminal.get()):
            found[name] = tr(template, **values)
    return found


def message(template: str) -> str:
    """Mark a constant as a message that `tr(CONSTANT)` translates later. Tests look for the mark."""
    return template


# Of Python's readers of JSON, of CSV and of encodings, which are said with `tr(reason)`.
REASONS_OF_READERS = (
    message("Expecting value"),
    message("Expecting ',' delimiter"),
    message("Expecting ':' delimiter"),
    message("Expecting property name enclosed in double quotes"),
    message("Extra data"),
    message("Unterminated string starting at"),
    message("Invalid control character at"),
    message("Invalid \\escape"),
    message("unexpected end of data"),
    message("invalid start byte"),
    message("invalid continuation byte"),
    message("illegal multibyte sequence"),
    message("incomplete multibyte sequence"),
    message("truncated data"),
)


def reason_of(error: BaseException) -> str:
    """Return why the operating system refused, in the current language, without the name of the file.

    Of an error that is not of the system, the text is returned.
    """
    number: int | None = None
    if type(error).__name__ == "gaierror":
        return tr("Name or service not known")
    if isinstance(error, OSError) and type(error).__module__ == "builtins":  # ssl.SSLError has numbers of its own
        number = error.errno
    elif _is_of_safetensors(error) and os.name == "posix" and (found := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(found[1])
    known = REASONS.get(errno.errorcode.get(number or 0, ""))
    return tr(known) if known else getattr(error, "strerror", None) or str(error)


def _is_of_safetensors(error: object) -> bool:
    return type(error).__name__ == "SafetensorError"  # the package is slow to import


def reason_and_file(error: BaseException) -> str:
    """Return the reason with the file that an OSError names, for a message that does not."""
    file = getattr(error, "filename", None) if isinstance(error, OSError) else None
    return f"{reason_of(error)}: {file}" if file else reason_of(error)


def _said(value: object) -> object:
    return reason_of(value) if isinstance(value, OSError) or _is_of_safetensors(value) else value  # type: ignore[arg-type]


# By the names of errno. The English is that of Linux, which other systems differ from in few words.
REASONS = {
    "E2BIG": message("Argument list too long"),
    "EACCES": message("Permission denied"),
    "EADDRINUSE": message("Address already in use"),
    "EADDRNOTAVAIL": message("Cannot assign requested address"),
    "EBUSY": message("Device or resource busy"),
    "ECONNREFUSED": message("Connection refused"),
    "ECONNRESET": message("Connection reset by peer"),
    "EDQUOT": message("Disk quota exceeded"),
    "EEXIST": message("File exists"),
    "EFBIG": message("File too large"),
    "EHOSTUNREACH": message("No route to host"),
    "EIO": message("Input/output error"),
    "EISDIR": message("Is a directory"),
    "ELOOP": message("Too many levels of symbolic links"),
    "EMFILE": message("Too many open files"),
    "ENAMETOOLONG": message("File name too long"),
    "ENETUNREACH": message("Network is unreachable"),
    "ENODEV": message("No such device"),
    "ENOENT": message("No such file or directory"),
    "ENOEXEC": message("Exec format error"),
    "ENOLCK": message("No locks available"),
    "ENOSPC": message("No space left on device"),
    "ENOTDIR": message("Not a directory"),
    "ENOTEMPTY": message("Directory not empty"),
    "ENXIO": message("No such device or address"),
    "EPERM": message("Operation not permitted"),
    "EPIPE": message("Broken pipe"),
    "EROFS": message("Read-only file system"),
    "ESTALE": message("Stale file handle"),
    "ETIMEDOUT": message("Connection timed out"),
    "ETXTBSY": message("Text file busy"),
}


def did_you_mean(given: str, known: Iterable[str], *, clause: bool = False) -> str:
    """ " Did you mean 'x'?" for the known word that is closest to `given`, or "" if none is close.

    clause: "; did you mean 'x'?" instead, for a message without a full stop.
    """
    word = closest(given, known)
    if word is None:
        return ""
    return tr("; did you mean {word!r}?", word=word) if clause else tr(" Did you mean {word!r}?", word=word)


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known word that is closest to `given`; None if none is close."""
    import difflib  # slow to import, as others below

    return next(iter(difflib.get_close_matches(given, list(known), n=1)), None)


def _setting(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(2)
    if _terminal.get():
        return f"--{name} {value}" if value else f"--{name}"
    name = name.replace("-", "_")
    return f"{name}={value}" if value else name


@contextmanager
def speaking(language: Language, *, terminal: bool = True) -> Iterator[None]:
    """Speak this language in messages within the block. terminal: settings are named as command line options."""
    tokens = _language.set(language), _terminal.set(terminal)
    try:
        yield
    finally:
        _language.reset(tokens[0])
        _terminal.reset(tokens[1])


def language(name: Language | None) -> None:
    """Choose the language of messages, errors, progress and pictures in this process.

    Args:
        name: "ko" for Korean, "en" for English, None for the language of JUMOK_LANG or the locale.

    Raises:
        ValueError: the language is another one.
    """
    global _chosen
    if name is not None and name not in get_args(Language):
        raise ValueError(tr('language={name!r} is not available; choose "ko" or "en".', name=name))
    _chosen = name


def users_language() -> Language:
    """Return the language of the user: of the block, of `language`, of JUMOK_LANG, or else of the locale."""
    if (chosen := _language.get() or _chosen) is not None:
        return chosen
    locale = next((value for name in LOCALE if (value := os.environ.get(name))), "")
    return "ko" if re.split(r"[_.@-]", locale)[0].lower() == "ko" else "en"


def shell(*words: object) -> str:
    """Return a command for the shell of this system. Words with blanks or special characters are quoted.

    Characters that cannot be printed, such as bytes of a file name that is not UTF-8, are written in octal, as by `ls`.
    """
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./-]+", word) and word.isprintable():
        return word
    if os.name == "nt":
        import subprocess

        return subprocess.list2cmdline([word])
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _octal(c) for c in escaped) + "'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


@cache
def catalogue() -> Mapping[str, str]:
    """Return the Korean templates by their English ones."""
    import tomllib

    return tomllib.loads(Path(__file__).with_name("ko.toml").read_text(encoding="utf-8"))
