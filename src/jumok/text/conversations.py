"""Conversations, and preferences between two answers, as tables.

A cell holds the messages of a conversation as JSON, so that all that reads tables reads conversations too::

    {"messages": [{"role": "user", "content": "안녕?"}, {"role": "assistant", "content": "안녕하세요."}]}

The formats that are read, one row of a table or one JSON object each:

    messages                            role and content (OpenAI); the content is a string or a list of parts of text
    conversations                       from and value: human, gpt, system (ShareGPT)
    prompt, completion                  strings, or lists of messages
    instruction, input, output          Alpaca and KoAlpaca; the input may be missing
    question, answer; q, a; 질문, 답변   a table of questions and answers

Case does not matter in these names. A row may also have a system message (`system`), the reasoning of its answer
(`reasoning_content`), the name of what it practises (`skill`), and a pattern for each answer (`checks`). A row of
preferences has `chosen` and `rejected` instead of the answer.
"""

from __future__ import annotations

import json
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from jumok.errors import TextError
from jumok.messages import message, tr
from jumok.text._columnar import Columnar
from jumok.text._columns import HALF_PAIR, cells_of
from jumok.text._inputs import TABLES
from jumok.text._json import inner_rows, json_rows
from jumok.text._reading import Inputs, Reading
from jumok.text._rows import delimited_rows
from jumok.text._source import Place, listed, no_rows
from jumok.text._table import Row, Table, from_rows, is_missing, spelled, with_copies

Message = Mapping[str, str]  # "role" (system, user or assistant), "content", of an assistant also "reasoning_content"

COLUMNS = ("messages", "skill", "checks")
PREFERENCE_COLUMNS = ("messages", "chosen", "rejected")
LONGEST = 1_000_000  # characters of a conversation, as JSON

_LISTS = ("messages", "conversations")
_PAIRS = (("prompt", "completion"), ("instruction", "output"), ("question", "answer"), ("q", "a"), ("질문", "답변"))
_FORMATS = (*((name,) for name in _LISTS), *_PAIRS)
_KNOWN = "messages; conversations; prompt, completion; instruction, input, output; question, answer; q, a; 질문, 답변"
_KNOWN_PREFERENCES = "prompt, chosen, rejected; chosen, rejected"
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}
_TOOLS = ("tool", "function", "function_call", "observation", "tool_calls", "tool_response")

# Why rows are left out.
_UNKNOWN = message("no known format")
_NOT_JSON = message("messages that are not a list of objects")
_NOBODY = message("no messages")
_TOOL = message("messages of tools")
_STRANGER = message("roles other than system, user and assistant")
_NOT_TEXT = message("content that is not text")
_HALF = message("half of a surrogate pair")
_EMPTY = message("an empty message")
_SYSTEM = message("a system message after the first message")
_FIRST = message("the first message is not the user's")
_TWICE = message("two messages of the same role in a row")
_LAST = message("the last message is not the assistant's")
_ASKED = message("the prompt does not end with a message of the user")
_REASONING = message("reasoning_content of a message that is not the assistant's")
_CHECKS = message("checks that are not one pattern for each answer")
_LONG = message("longer than 1,000,000 characters")
_NOTHING_COMMON = message("chosen and rejected do not differ in their last message alone")
_SAME = message("chosen and rejected are the same")


class _Unfit(Exception):
    """A row cannot be used; the argument is the reason."""


# --- reading ----------------------------------------------------------------------------------------------------------


def read_conversations(paths: Sequence[str | Path] | str | Path, *, encoding: str | None = None) -> Table:
    """Read conversations into a table with the columns COLUMNS; see the head of this module for the formats.

    Files, encodings, folders and standard input are those of `read_table`. Rows that cannot be used are left out. The
    `notes` of the table say which formats were recognized, and count what was left out by reason.

    Raises:
        TextError: an input cannot be read, has none of these formats, or has no row that can be used.
    """
    return _read(paths, encoding, COLUMNS, _FORMATS, _conversation, _KNOWN)


def read_preferences(paths: Sequence[str | Path] | str | Path, *, encoding: str | None = None) -> Table:
    """Read preferences into a table with the columns PREFERENCE_COLUMNS.

    A row has `chosen` and `rejected`, strings or lists of messages, and `prompt` (or `question`, `instruction`). The
    prompt may be missing if chosen and rejected are conversations that differ in their last message alone.

    Raises:
        TextError: as `read_conversations`.
    """
    return _read(paths, encoding, PREFERENCE_COLUMNS, (("chosen", "rejected"),), _preference, _KNOWN_PREFERENCES)


def are_conversations(paths: Sequence[str | os.PathLike[str]]) -> bool:
    """Return whether some inputs are tables, the first of which begins with a conversation; and no column is `text`.

    Standard input is not read. What cannot be read is no conversation: its reader tells what is wrong.
    """
    names = [os.fspath(path) for path in paths]
    if not names or not all(name.lower().endswith((*TABLES, ".json")) for name in names):
        return False
    with suppress(TextError):
        for table in Inputs(names[:1], None, tables_only=True, table=True):
            columns = {str(name).lower() for name in next(_rows(table, _KNOWN), (None, ()))[1]}
            return "text" not in columns and any(columns >= set(form) for form in _FORMATS)
    return False


def from_conversations(rows: Iterable[Any], name: str = "<conversations>") -> Table:
    """Make a table of conversations from rows in memory, checked like those of a file.

    Args:
        rows: lists of messages, or dictionaries in one of the formats. name: for messages of errors.

    Raises:
        TextError: no row can be used.
    """
    found = _Found(_FORMATS, _conversation)
    for number, row in enumerate(rows, 1):
        found.add(Place(name, number, row=True), row if isinstance(row, Mapping) else {"messages": row})
    found.require_some(name, _KNOWN)
    return from_rows(COLUMNS, found.rows, name).with_notes(found.notes())


def messages_of(cell: str) -> list[Message]:
    """Return the messages of a cell; chosen and rejected hold one message each."""
    found = json.loads(cell)
    return found if isinstance(found, list) else [found]


def checks_of(cell: str) -> list[str]:
    """Return the patterns of a cell, one for each answer; [] if there are none."""
    return json.loads(cell) if cell else []


Names = tuple[str, ...]


def _read(
    paths: Sequence[str | Path] | str | Path,
    encoding: str | None,
    columns: Names,
    formats: Sequence[Names],
    read: Callable[[Mapping[str, Any], Names], Row],
    known: str,
) -> Table:
    inputs = Inputs(paths, encoding, tables_only=True, table=True)
    if not len(inputs):
        raise TextError("no table was given; name at least one file or folder, or - for standard input")
    found, sources = _Found(formats, read), []
    for table in inputs:
        before, chars = len(found.rows), found.chars
        found.composed = False
        for where, row in _rows(table, known):
            found.add(where, row)
        if len(found.rows) > before:
            counts = {"chars": found.chars - chars, "rows": len(found.rows) - before}
            sources.append(table.source(**counts, normalised=found.composed))
        elif table.file.named:
            found.require_some(table.file.name, known, since=before)
    found.require_some(inputs.first, known)
    return Table(columns=columns, rows=found.rows, sources=with_copies(sources, inputs), notes=found.notes())


def _rows(table: Reading | Columnar, known: str) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """Yield place and values of each row of an input.

    Raises:
        TextError: the input is damaged, or is no table.
    """
    name = table.file.name
    if isinstance(table, Columnar):
        names = table.columns
    elif table.format == "json":
        yield from json_rows(name, table.pieces())
        return
    elif table.format == "text":
        raise TextError(
            "{name} is not a table, judging by its suffix; give {suffixes} files with conversations, or - for standard "
            "input",
            name=name,
            suffixes=", ".join(TABLES),
        )
    else:
        # No column has this name, so that the delimiter is one which gives a header with several names.
        delimiter = "\t" if table.format == "tsv" else ","
        names = next(delimited_rows(name, table.pieces, delimiter, ("\0",)), (1, []))[1]
    for where, cells in cells_of(table, names):
        yield where, dict(zip(names, cells, strict=True))


class _Found:
    """The rows that can be used, and what is said about all of them."""

    def __init__(self, formats: Sequence[Names], read: Callable[[Mapping[str, Any], Names], Row]) -> None:
        self.rows: list[Row] = []
        self.chars, self.composed = 0, False
        self._formats, self._read = formats, read
        self._recognized: Counter[Names] = Counter()
        self._left_out: Counter[str] = Counter()
        self._first: dict[str, Place] = {}
        self._seen: Mapping[str, Any] = {}  # the first row without a known format

    def add(self, where: Place, given: Mapping[str, Any]) -> None:
        row = {str(name).lower(): value for name, value in given.items()}
        form = next((names for names in self._formats if row.keys() >= set(names)), None)
        try:
            if form is None:
                self._seen = self._seen or given
                raise _Unfit(_UNKNOWN)
            cells = self._read(row, form)
            normal = tuple(unicodedata.normalize("NFC", cell) for cell in cells)
            if len(normal[0]) > LONGEST:
                raise _Unfit(_LONG)
        except _Unfit as unfit:
            reason = str(unfit)
            self._left_out[reason] += 1
            self._first.setdefault(reason, where)
            return
        assert form is not None
        self._recognized[form] += 1
        self.rows.append(normal)
        self.chars += sum(map(len, normal))
        self.composed = self.composed or normal != cells

    def require_some(self, name: str, known: str, since: int = 0) -> None:
        """Raise TextError if there are no rows after the first `since` ones."""
        if len(self.rows) > since:
            return
        if not self._left_out:
            raise no_rows(name)
        if self._seen and not self._recognized:
            raise TextError(
                "{name}: no conversations are recognized in rows with {columns}; the columns may be {known}{hint}",
                name=name,
                columns=listed(self._seen),
                known=known,
                hint=inner_rows(self._seen),
            )
        raise TextError("{name}: no row can be used: {reasons}", name=name, reasons=self._reasons())

    def notes(self) -> tuple[str, ...]:
        """Return what was recognized, and what was left out."""
        formats = "; ".join(f"{', '.join(names)} ({count:,})" for names, count in self._recognized.most_common())
        told = [tr("Rows were recognized by their columns: {formats}.", formats=formats)]
        if left_out := self._left_out.total():
            told.append(
                tr(
                    "Left out: {count:,} of {rows:,} rows: {reasons}.",
                    count=left_out,
                    rows=left_out + len(self.rows),
                    reasons=self._reasons(),
                )
            )
        return tuple(told)

    def _reasons(self) -> str:
        return "; ".join(
            tr("{reason} ({count:,}, first in {where})", reason=tr(reason), count=count, where=self._first[reason])
            for reason, count in self._left_out.most_common()
        )


# --- rows -------------------------------------------------------------------------------------------------------------


def _conversation(row: Mapping[str, Any], form: Names) -> Row:
    """Return the cells of a conversation. Raises `_Unfit`."""
    if form[0] in _LISTS:
        messages = [*_system(row), *_messages(row[form[0]])]
    else:
        answer = _messages(row[form[1]], "assistant")
        if not is_missing(row.get("reasoning_content")):
            answer[-1] = answer[-1] | {"reasoning_content": _text(row["reasoning_content"])}
        messages = [*_system(row), *_question(row, form[0]), *answer]
    _require_turns(messages)
    if messages[-1]["role"] != "assistant":
        raise _Unfit(_LAST)
    checks = _checks(row, sum(one["role"] == "assistant" for one in messages), isinstance(row.get("messages"), str))
    return _json(messages), _text(row.get("skill")), checks


def _preference(row: Mapping[str, Any], form: Names) -> Row:
    """Return the cells of a prompt with two answers. Raises `_Unfit`."""
    asked = next((name for name in ("messages", *(pair[0] for pair in _PAIRS)) if not is_missing(row.get(name))), None)
    answers = [_messages(row[name], "assistant") for name in form]
    if all(len(one) > 1 for one in answers):  # with the prompt
        *prompt, _ = answers[0]
        if [prompt, *answers[1][-1:]] != [answers[1][:-1], answers[1][-1]]:
            raise _Unfit(_NOTHING_COMMON)
        prompt = [*(() if prompt[0]["role"] == "system" else _system(row)), *prompt]
    elif asked is None:
        raise _Unfit(_NOTHING_COMMON)
    else:
        prompt = [*_system(row), *_question(row, asked)]
    chosen, rejected = (one[-1] for one in answers)
    for last in (chosen, rejected):
        _require_turns([*prompt, last])
    if not prompt or prompt[-1]["role"] != "user" or chosen["role"] != "assistant" or rejected["role"] != "assistant":
        raise _Unfit(_ASKED)
    if chosen == rejected:
        raise _Unfit(_SAME)
    return _json(prompt), _json(chosen), _json(rejected)


def _question(row: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """Return the messages before an answer; an instruction of Alpaca is followed by its input."""
    messages = _messages(row[name], "user")
    if name == "instruction" and (given := _text(row.get("input"))).strip():
        messages[-1] = messages[-1] | {"content": f"{messages[-1]['content']}\n\n{given}"}
    return messages


def _system(row: Mapping[str, Any]) -> list[dict[str, str]]:
    text = _text(row.get("system"))
    return [{"role": "system", "content": text}] if text.strip() else []


def _messages(given: Any, role: str = "") -> list[dict[str, str]]:
    """Return messages from a list of any of the formats, from that list as JSON, or from the text of a `role`."""
    if role and not isinstance(given, list | Mapping):
        return [{"role": role, "content": _text(given)}]
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise _Unfit(_NOT_JSON) from None
    given = [given] if isinstance(given, Mapping) else given
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        raise _Unfit(_NOT_JSON)
    if not given:
        raise _Unfit(_NOBODY)
    return [_message(one) for one in given]


def _message(given: Mapping[str, Any]) -> dict[str, str]:
    role = given.get("role", given.get("from"))
    if role in _TOOLS or given.get("tool_calls") or given.get("function_call"):
        raise _Unfit(_TOOL)
    role = _ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ("system", "user", "assistant"):
        raise _Unfit(_STRANGER)
    content = given["content"] if "content" in given else given.get("value")
    if isinstance(content, list):
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
            raise _Unfit(_NOT_TEXT)
        content = "".join(part["text"] for part in content)
    told = {"role": role, "content": _text(content)}
    if (reasoning := _text(given.get("reasoning_content"))).strip():
        if role != "assistant":
            raise _Unfit(_REASONING)
        told["reasoning_content"] = reasoning
    return told


def _text(value: Any) -> str:
    """Return a text of a file in the form of all texts; "" for none."""
    if not is_missing(value) and not isinstance(value, str | int | float):
        raise _Unfit(_NOT_TEXT)
    text = spelled(Place("", 1), "", value).replace("\r\n", "\n").replace("\r", "\n")
    if HALF_PAIR.search(text):
        raise _Unfit(_HALF)
    return text


def _checks(row: Mapping[str, Any], answers: int, in_json: bool) -> str:
    given = row.get("checks")
    if is_missing(given) or given in ("", []):
        return ""
    if isinstance(given, str) and in_json:
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise _Unfit(_CHECKS) from None
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or len(patterns) != answers or not all(isinstance(one, str) for one in patterns):
        raise _Unfit(_CHECKS)
    return _json([_text(one) for one in patterns])


def _require_turns(messages: Sequence[Message]) -> None:
    """Raise `_Unfit` unless a user and an assistant speak in turn, perhaps after a system message."""
    if not all(one["content"].strip() for one in messages):
        raise _Unfit(_EMPTY)
    roles = [one["role"] for one in messages]
    turns = roles[roles[0] == "system" :]
    if not turns or "system" in turns:
        raise _Unfit(_SYSTEM if turns else _NOBODY)
    if turns[0] != "user":
        raise _Unfit(_FIRST)
    if any(one == other for one, other in pairwise(turns)):
        raise _Unfit(_TWICE)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
