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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from jumok.errors import TextError
from jumok.messages import message, tr
from jumok.text._columns import HALF_PAIR, rows_of
from jumok.text._inputs import TABLES
from jumok.text._json import inner_rows
from jumok.text._reading import Inputs
from jumok.text._source import Place, listed, no_rows
from jumok.text._table import Row, Table, from_rows, is_missing, spelled, with_copies

Message = Mapping[str, str]  # "role" (system, user or assistant), "content", of an assistant also "reasoning_content"
Names = tuple[str, ...]

COLUMNS = ("messages", "skill", "checks")
PREFERENCE_COLUMNS = ("messages", "chosen", "rejected")
LONGEST = 1_000_000  # characters of a conversation, as JSON
SHORTEST = len('{"role":"user","content":"."}')  # of a message

_PAIRS = (("prompt", "completion"), ("instruction", "output"), ("question", "answer"), ("q", "a"), ("질문", "답변"))
_FORMATS = (("messages",), ("conversations",), *_PAIRS)
_KNOWN = "messages; conversations; prompt, completion; instruction, input, output; question, answer; q, a; 질문, 답변"
_KNOWN_PREFERENCES = "prompt, chosen, rejected; chosen, rejected"
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}
_TOOLS = ("tool", "function", "function_call", "observation", "tool_calls", "tool_response")


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
    return _read(paths, encoding, COLUMNS, _Found(_FORMATS, _conversation, _KNOWN))


def read_preferences(paths: Sequence[str | Path] | str | Path, *, encoding: str | None = None) -> Table:
    """Read preferences into a table with the columns PREFERENCE_COLUMNS.

    A row has `chosen` and `rejected`, strings or lists of messages, and `prompt` (or `question`, `instruction`). The
    prompt may be missing if chosen and rejected are conversations that differ in their last message alone.

    Raises:
        TextError: as `read_conversations`.
    """
    found = _Found((("chosen", "rejected"),), _preference, _KNOWN_PREFERENCES)
    return _read(paths, encoding, PREFERENCE_COLUMNS, found)


def are_conversations(paths: Sequence[str | os.PathLike[str]]) -> bool:
    """Return whether some inputs are tables, the first of which begins with a conversation; and no column is `text`.

    Standard input is not read. What cannot be read is no conversation: its reader tells what is wrong.
    """
    names = [os.fspath(path) for path in paths]
    if not names or not all(name.lower().endswith((*TABLES, ".json")) for name in names):
        return False
    with suppress(TextError):
        for table in Inputs(names[:1], None, tables_only=True, table=True):
            columns = _named(next(rows_of(table), (None, {}))[1]).keys()
            return "text" not in columns and any(columns >= set(form) for form in _FORMATS)
    return False


def from_conversations(rows: Iterable[Any], name: str = "<conversations>") -> Table:
    """Make a table of conversations from rows in memory, checked like those of a file.

    Args:
        rows: lists of messages, or dictionaries in one of the formats. name: for messages of errors.

    Raises:
        TextError: no row can be used.
    """
    found = _Found(_FORMATS, _conversation, _KNOWN)
    for number, row in enumerate(rows, 1):
        found.add(Place(name, number, row=True), row if isinstance(row, Mapping) else {"messages": row})
    found.require_some(name)
    return replace(from_rows(COLUMNS, found.rows, name), notes=found.notes())


def messages_of(cell: str) -> list[Message]:
    """Return the messages of a cell; chosen and rejected hold one message each."""
    found = json.loads(cell)
    return found if isinstance(found, list) else [found]


def checks_of(cell: str) -> list[str]:
    """Return the patterns of a cell, one for each answer; [] if there are none."""
    return json.loads(cell) if cell else []


class _Found:
    """The rows that can be used, and what is said about all of them.

    Args:
        formats: columns by which a row is recognized, the first ones first. read: makes the cells of a row, or raises
            `_Unfit`. known: the formats, for people.
    """

    def __init__(self, formats: Sequence[Names], read: Callable[[Mapping[str, Any], Names], Row], known: str) -> None:
        self.rows: list[Row] = []
        self.chars, self.composed = 0, False
        self._formats, self._read, self._known = formats, read, known
        self._recognized: Counter[Names] = Counter()
        self._left_out: Counter[str] = Counter()
        self._first: dict[str, Place] = {}
        self._seen: Mapping[str, Any] = {}  # the first row without a known format

    def add(self, where: Place, given: Mapping[str, Any]) -> None:
        row = _named(given)
        form = next((names for names in self._formats if row.keys() >= set(names)), None)
        try:
            if form is None:
                self._seen = self._seen or given
                raise _Unfit(message("no known format"))
            cells = self._read(row, form)
            normal = tuple(unicodedata.normalize("NFC", cell) for cell in cells)
            if len(normal[0]) > LONGEST:
                raise _too_long()
        except _Unfit as unfit:
            self._left_out[str(unfit)] += 1
            self._first.setdefault(str(unfit), where)
            return
        assert form is not None
        self._recognized[form] += 1
        self.rows.append(normal)
        self.chars += sum(map(len, normal))
        self.composed = self.composed or normal != cells

    def require_some(self, name: str, since: int = 0) -> None:
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
                known=self._known,
                hint=inner_rows(self._seen),
            )
        raise TextError("{name}: no row can be used: {reasons}", name=name, reasons=self._reasons())

    def notes(self) -> tuple[str, ...]:
        """Return what was recognized, and what was left out."""
        formats = "; ".join(f"{', '.join(names)} ({count:,})" for names, count in self._recognized.most_common())
        told = (tr("Rows were recognized by their columns: {formats}.", formats=formats),)
        if not (count := self._left_out.total()):
            return told
        facts = {"count": count, "rows": count + len(self.rows), "reasons": self._reasons()}
        return (*told, tr("Left out: {count:,} of {rows:,} rows: {reasons}.", **facts))

    def _reasons(self) -> str:
        return "; ".join(
            tr("{reason} ({count:,}, first in {where})", reason=tr(reason), count=count, where=self._first[reason])
            for reason, count in self._left_out.most_common()
        )


def _read(paths: Sequence[str | Path] | str | Path, encoding: str | None, columns: Names, found: _Found) -> Table:
    inputs = Inputs(paths, encoding, tables_only=True, table=True)
    if not len(inputs):
        raise TextError("no table was given; name at least one file or folder, or - for standard input")
    sources = []
    for table in inputs:
        rows, chars, found.composed = len(found.rows), found.chars, False
        for where, row in rows_of(table):
            found.add(where, row)
        if table.file.named:
            found.require_some(table.file.name, since=rows)
        if new := len(found.rows) - rows:
            sources.append(table.source(chars=found.chars - chars, normalised=found.composed, rows=new))
    found.require_some(inputs.first)
    return Table(columns=columns, rows=found.rows, sources=with_copies(sources, inputs), notes=found.notes())


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the names of formats."""
    return {unicodedata.normalize("NFC", str(name)).strip().lower(): value for name, value in row.items()}


# --- rows -------------------------------------------------------------------------------------------------------------


def _conversation(row: Mapping[str, Any], form: Names) -> Row:
    """Return the cells of a conversation. Raises `_Unfit`."""
    if len(form) == 1:
        messages = [*_system(row), *_messages(row[form[0]])]
    else:
        answer = _messages(row[form[1]], "assistant")
        if reasoning := _text(row.get("reasoning_content")):
            answer[-1]["reasoning_content"] = reasoning
        messages = [*_system(row), *_question(row, form[0]), *answer]
    _require_turns(messages)
    if messages[-1]["role"] != "assistant":
        raise _Unfit(message("the last message is not the assistant's"))
    checks, answers = row.get("checks"), sum(one["role"] == "assistant" for one in messages)
    if is_missing(checks) or not checks:
        return cell_of(messages), _text(row.get("skill")), ""
    if isinstance(checks, str):  # a cell of a table of cells, or the pattern of the only answer
        checks = _parsed(checks) if isinstance(row.get("messages"), str) else [checks]
    if not isinstance(checks, list) or len(checks) != answers or not all(isinstance(one, str) for one in checks):
        raise _Unfit(message("checks that are not one pattern for each answer"))
    return cell_of(messages), _text(row.get("skill")), cell_of([_text(one) for one in checks])


def _preference(row: Mapping[str, Any], form: Names) -> Row:
    """Return the cells of a prompt with two answers. Raises `_Unfit`."""
    answers = [row[name] for name in form]
    if isinstance(row.get("messages"), str):  # a table of cells
        answers = [_parsed(answer) for answer in answers]
    (*prompt, chosen), (*other, rejected) = (_messages(answer, "assistant") for answer in answers)
    asked = next((name for name in ("messages", *(pair[0] for pair in _PAIRS)) if not is_missing(row.get(name))), None)
    if prompt != other or not (prompt or asked):
        raise _Unfit(message("chosen and rejected do not differ in their last message alone"))
    if not prompt and asked:
        prompt = _question(row, asked)
    if prompt[0]["role"] != "system":
        prompt = [*_system(row), *prompt]
    for last in (chosen, rejected):
        _require_turns([*prompt, last])
        if last["role"] != "assistant":
            raise _Unfit(message("the prompt does not end with a message of the user"))
    if chosen == rejected:
        raise _Unfit(message("chosen and rejected are the same"))
    return cell_of(prompt), cell_of(chosen), cell_of(rejected)


def _question(row: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """Return the messages before an answer; an instruction of Alpaca is followed by its input."""
    messages = _messages(row[name], "" if name == "messages" else "user")
    if name == "instruction" and (given := _text(row.get("input"))).strip():
        messages[-1]["content"] += f"\n\n{given}"
    return messages


def _system(row: Mapping[str, Any]) -> list[dict[str, str]]:
    text = _text(row.get("system"))
    return [{"role": "system", "content": text}] if text.strip() else []


def _messages(given: Any, role: str = "") -> list[dict[str, str]]:
    """Return messages from a list of any of the formats, from that list as JSON, or from the text of a `role`."""
    if role and not isinstance(given, list | Mapping):
        return [{"role": role, "content": _text(given)}]
    found = _parsed(given)
    found = [found] if isinstance(found, Mapping) else found
    if not isinstance(found, list | tuple) or not all(isinstance(one, Mapping) for one in found):
        raise _not_messages()
    if not found:
        raise _Unfit(message("no messages"))
    if len(found) > LONGEST // SHORTEST:
        raise _too_long()
    return [_message(one) for one in found]


def _message(given: Mapping[str, Any]) -> dict[str, str]:
    role = given.get("role", given.get("from"))
    if role in _TOOLS or given.get("tool_calls") or given.get("function_call"):
        raise _Unfit(message("messages of tools"))
    role = _ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ("system", "user", "assistant"):
        raise _Unfit(message("roles other than system, user and assistant"))
    content = given["content"] if "content" in given else given.get("value")
    if isinstance(content, list):
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
            raise _no_text()
        content = "".join(part["text"] for part in content)
    told = {"role": role, "content": _text(content)}
    if (reasoning := _text(given.get("reasoning_content"))).strip():
        if role != "assistant":
            raise _Unfit(message("reasoning_content of a message that is not the assistant's"))
        told["reasoning_content"] = reasoning
    return told


def _text(value: Any) -> str:
    """Return a text of a file in the form of all texts; "" for none."""
    try:
        text = spelled(Place("", 1), "", value).replace("\r\n", "\n").replace("\r", "\n")
    except TextError:
        raise _no_text() from None
    if HALF_PAIR.search(text):
        raise _Unfit(message("half of a surrogate pair"))
    return text


def _parsed(value: Any) -> Any:
    """Return what a text holds as JSON; other values as they are."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        raise _not_messages() from None


def _require_turns(messages: Sequence[Message]) -> None:
    """Raise `_Unfit` unless a user and an assistant speak in turn, perhaps after a system message."""
    if not all(one["content"].strip() for one in messages):
        raise _Unfit(message("an empty message"))
    roles = [one["role"] for one in messages]
    turns = roles[roles[0] == "system" :]
    if "system" in turns:
        raise _Unfit(message("a system message after the first message"))
    if turns[:1] != ["user"]:
        raise _Unfit(message("the first message is not the user's"))
    if any(one == other for one, other in pairwise(turns)):
        raise _Unfit(message("two messages of the same role in a row"))


def _too_long() -> _Unfit:
    return _Unfit(message("longer than 1,000,000 characters"))


def _no_text() -> _Unfit:
    return _Unfit(message("content that is not text"))


def _not_messages() -> _Unfit:
    return _Unfit(message("messages that are not a list of objects"))


def cell_of(value: object) -> str:
    """Return messages as the text of a cell."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
