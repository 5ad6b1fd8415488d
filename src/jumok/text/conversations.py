"""Conversations, and preferences between two answers, as tables.

A cell holds the messages of a conversation as JSON, so that all that reads tables reads conversations too::

    {"messages": [{"role": "user", "content": "안녕?"}, {"role": "assistant", "content": "안녕하세요."}]}

The formats that are read, one row of a table or one JSON object each:

    messages                            role and content (OpenAI); the content is a string or a list of parts of text
    conversations                       from and value: human, gpt, system (ShareGPT)
    prompt, completion                  strings, or lists of messages
    instruction, input, output          Alpaca and KoAlpaca; the input may be missing
    question, answer; q, a; 질문, 답변   a table of questions and answers

Case does not matter in these names. `response` may stand for the completion, the output and the answer. A row may also
have a system message (`system`, `system_prompt`), turns before the question (`history`), a text that belongs to the
question (`input`, `context`), the reasoning of its answer (see REASONING), the name of what it practises (`skill`), and
a pattern for each answer (`checks`). An answer with `weight` 0 (`train`, `training`: false) is read and not learned. A
leading `<think>...</think>` is the reasoning. A row of preferences has `chosen` and `rejected` instead of the answer.

Rows with pictures, sounds or tools are left out. Columns that are not used are named in the notes of the table.
"""

from __future__ import annotations

import json
import os
import re
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
NOT_LEARNED = "0"  # the "weight" of an answer that is only read
LONGEST = 1_000_000  # characters of a conversation, as JSON
SHORTEST = len('{"role":"user","content":"."}')  # of a message

_LISTS = ("messages", "conversations", "conversation")
_PAIRS = (
    ("prompt", "completion"),
    ("instruction", "output"),
    ("question", "answer"),
    ("q", "a"),
    ("질문", "답변"),
    *((name, "response") for name in ("prompt", "instruction", "question", "query")),
)
_FORMATS = (*((name,) for name in _LISTS), *_PAIRS)
_PREFERENCES = ("chosen", "rejected")
_QUESTIONS = (*_LISTS, *dict.fromkeys(question for question, _ in _PAIRS))
_KNOWN = "messages; conversations; prompt, completion; instruction, input, output; question, answer; q, a; 질문, 답변"
_KNOWN_PREFERENCES = "prompt, chosen, rejected; chosen, rejected; conversations, chosen, rejected"
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "developer": "system"}
_TOOLS = ("tool", "function", "function_call", "observation", "tool_calls", "tool_response")
_SYSTEM = ("system", "system_prompt")
REASONING = ("reasoning_content", "reasoning", "thinking", "complex_cot")
_OF_A_MESSAGE = {"role", "from", "content", "value", "weight", "train", "training", *REASONING}
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
_OF_TOOLS = ("tools", "functions")
_THOUGHT = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)
_TURN = re.compile(r"\n\n(Human|Assistant):")  # of Anthropic's HH


class _Unfit(Exception):
    """A row cannot be used; the argument is the reason."""


class _Fields(dict[str, Any]):
    """The columns of a row, by their names in formats.

    Attributes:
        used: those that were looked up. unused: fields of messages that were not.
    """

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__({_name(name): value for name, value in row.items()})
        self.used: set[str] = set()
        self.unused: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a column, or the default where there is none."""
        self.used.add(name)
        return super().get(name, default)

    @property
    def filled(self) -> set[str]:
        """The columns that hold anything."""
        return {name for name, value in self.items() if not _is_empty(value)}

    def first(self, names: Iterable[str]) -> str | None:
        """Return the first of some columns that is filled."""
        return next((name for name in names if name in self.filled), None)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_conversations(paths: Sequence[str | Path] | str | Path, *, encoding: str | None = None) -> Table:
    """Read conversations into a table with the columns COLUMNS; see the head of this module for the formats.

    Files, encodings, folders and standard input are those of `read_table`. Rows that cannot be used are left out. The
    `notes` of the table say which formats were recognized, and count what was left out by reason.

    Raises:
        TextError: an input cannot be read, has none of these formats, or has no row that can be used.
    """
    return _read(paths, encoding, COLUMNS, _conversations())


def read_preferences(paths: Sequence[str | Path] | str | Path, *, encoding: str | None = None) -> Table:
    """Read preferences into a table with the columns PREFERENCE_COLUMNS.

    A row has `chosen` and `rejected`, strings or messages, and `prompt` (or another name of a question), or the
    `conversations` before the answer. It may be missing if chosen and rejected are conversations that differ in their
    last message alone, as lists or as the transcripts of Anthropic's HH.

    Raises:
        TextError: as `read_conversations`.
    """
    advice = message("; these rows are conversations, which {--task chat} learns from")
    found = _Found((_PREFERENCES,), _preference, _KNOWN_PREFERENCES, _FORMATS, advice)
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
            columns = set(map(_name, next(rows_of(table), (None, {}))[1]))
            return "text" not in columns and any(columns >= set(form) for form in _FORMATS)
    return False


def from_conversations(rows: Iterable[Any], name: str = "<conversations>") -> Table:
    """Make a table of conversations from rows in memory, checked like those of a file.

    Args:
        rows: lists of messages, or dictionaries in one of the formats. name: for messages of errors.

    Raises:
        TextError: no row can be used.
    """
    found = _conversations()
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
            `_Unfit`. known: the formats, for people. others: the formats of another task. advice: where they are found.
    """

    def __init__(
        self,
        formats: Sequence[Names],
        read: Callable[[_Fields, Names], Row],
        known: str,
        others: Sequence[Names],
        advice: str,
    ) -> None:
        self.rows: list[Row] = []
        self.chars, self.composed = 0, False
        self._formats, self._read, self._known = formats, read, known
        self._others, self._advice = others, advice
        self._recognized: Counter[Names] = Counter()
        self._left_out: Counter[str] = Counter()
        self._unused: Counter[str] = Counter()
        self._of_another_task = 0
        self._first: dict[str, Place] = {}
        self._seen: Mapping[str, Any] = {}  # the first row without a known format

    def add(self, where: Place, given: Mapping[str, Any]) -> None:
        row = _Fields(given)
        form = next((form for names in (row.filled, row.keys()) for form in self._formats if names >= set(form)), None)
        try:
            if form is None:
                self._seen = self._seen or given
                raise _Unfit(message("no known format"))
            _require_text_alone(row)
            if any(_holds(row.get(name)) for name in _OF_TOOLS):
                raise _Unfit(message("tools that the model may call"))
            cells = self._read(row, form)
            normal = tuple(unicodedata.normalize("NFC", cell) for cell in cells)
            if len(normal[0]) > LONGEST:
                raise _too_long()
        except _Unfit as unfit:
            self._left_out[str(unfit)] += 1
            self._first.setdefault(str(unfit), where)
            self._of_another_task += any(row.keys() >= set(other) for other in self._others)
            return
        assert form is not None
        self._recognized[form] += 1
        self._unused.update((row.filled - row.used) | row.unused)
        self.rows.append(normal)
        self.chars += sum(map(len, normal))
        self.composed = self.composed or normal != cells

    def require_some(self, name: str, since: int = 0) -> None:
        """Raise TextError if there are no rows after the first `since` ones."""
        if len(self.rows) > since:
            return
        if not self._left_out:
            raise no_rows(name)
        hint = tr(self._advice) if self._of_another_task else inner_rows(self._seen)
        if self._seen and not self._recognized:
            raise TextError(
                "{name}: no conversations are recognized in rows with {columns}; the columns may be {known}{hint}",
                name=name,
                columns=listed(self._seen),
                known=self._known,
                hint=hint,
            )
        raise TextError("{name}: no row can be used: {reasons}{hint}", name=name, reasons=self._reasons(), hint=hint)

    def notes(self) -> tuple[str, ...]:
        """Return what was recognized, what was left out, and what was not used."""
        formats = "; ".join(f"{', '.join(names)} ({count:,})" for names, count in self._recognized.most_common())
        told = [tr("Rows were recognized by their columns: {formats}.", formats=formats)]
        if count := self._left_out.total():
            facts = {"count": count, "rows": count + len(self.rows), "reasons": self._reasons()}
            told.append(tr("Left out: {count:,} of {rows:,} rows: {reasons}.", **facts))
        if self._unused:
            told.append(tr("Columns that are not used: {columns}.", columns=listed(sorted(self._unused))))
        return tuple(told)

    def _reasons(self) -> str:
        return "; ".join(
            tr("{reason} ({count:,}, first in {where})", reason=tr(reason), count=count, where=self._first[reason])
            for reason, count in self._left_out.most_common()
        )


def _conversations() -> _Found:
    advice = message("; these rows are preferences, which {--task preference} learns from")
    return _Found(_FORMATS, _conversation, _KNOWN, (_PREFERENCES,), advice)


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


def _name(name: object) -> str:
    """Return the name of a column as formats have it."""
    return unicodedata.normalize("NFC", str(name)).strip().lower()


def _is_empty(value: Any) -> bool:
    """Return whether a cell holds nothing."""
    return (
        is_missing(value)
        or (isinstance(value, str | list | tuple | Mapping) and not value)
        or (isinstance(value, str) and not value.strip())
    )


def _holds(value: Any) -> bool:
    """Return whether a cell of lists or objects, perhaps as JSON, holds any."""
    return not _is_empty(value) and not (isinstance(value, str) and value.strip() in ("[]", "{}", "null"))


# --- rows -------------------------------------------------------------------------------------------------------------


def _conversation(row: _Fields, form: Names) -> Row:
    """Return the cells of a conversation. Raises `_Unfit`."""
    if form[0] in _LISTS:
        messages = [*_system(row), *_messages(row, row[form[0]])]
    else:
        answer = _messages(row, row[form[1]], "assistant")
        _add_reasoning(answer[-1], _reasoning(row))
        messages = [*_system(row), *_question(row, form[0]), *answer]
    for name in ("label", "kto_tag"):
        if isinstance(mark := dict.get(row, name), bool):
            row.used.add(name)
            if not mark:
                raise _Unfit(message("an answer that is marked as bad"))
    _require_turns(messages)
    if messages[-1]["role"] != "assistant":
        raise _Unfit(message("the last message is not the assistant's"))
    answers = [one for one in messages if one["role"] == "assistant"]
    if all("weight" in one for one in answers):
        raise _Unfit(message("no answer that is learned"))
    checks = row.get("checks")
    if _is_empty(checks):
        return cell_of(messages), _text(row.get("skill")), ""
    if isinstance(checks, str):  # a cell of a table of cells, or the pattern of the only answer
        checks = _parsed(checks) if isinstance(row.get("messages"), str) else [checks]
    if not isinstance(checks, list) or len(checks) != len(answers) or not all(isinstance(one, str) for one in checks):
        raise _Unfit(message("checks that are not one pattern for each answer"))
    return cell_of(messages), _text(row.get("skill")), cell_of([_text(one) for one in checks])


def _preference(row: _Fields, form: Names) -> Row:
    """Return the cells of a prompt with two answers. Raises `_Unfit`."""
    answers, asked = [row[name] for name in form], row.first(_QUESTIONS)
    if asked in _LISTS and isinstance(row[asked], str):  # a table of cells
        answers = [_parsed(answer) for answer in answers]
    if asked is None:
        answers = [_turns(answer) for answer in answers]
    (*prompt, chosen), (*other, rejected) = (_messages(row, answer, "assistant") for answer in answers)
    if not prompt and not asked:
        raise _Unfit(message("no prompt"))
    if prompt != other:
        raise _Unfit(message("chosen and rejected do not differ in their last message alone"))
    if not prompt and asked:
        prompt = _question(row, asked)
    if prompt[0]["role"] != "system":
        prompt = [*_system(row), *prompt]
    for last in (chosen, rejected):
        last.pop("weight", None)
        _require_turns([*prompt, last])
        if last["role"] != "assistant":
            raise _Unfit(message("the prompt does not end with a message of the user"))
    if chosen == rejected:
        raise _Unfit(message("chosen and rejected are the same"))
    return cell_of(prompt), cell_of(chosen), cell_of(rejected)


def _question(row: _Fields, name: str) -> list[dict[str, str]]:
    """Return the messages before an answer: turns before the question, the question, and what belongs to it."""
    if name in _LISTS:
        return _messages(row, row[name])
    messages = _messages(row, row[name], "user")
    for more in ("input", "context"):
        if given := _text(row.get(more)):
            messages[-1]["content"] += f"\n\n{given}"
    return [*_history(row), *messages]


def _history(row: _Fields) -> list[dict[str, str]]:
    """Return the turns before a question: pairs of a question and an answer, as LLaMA-Factory has them."""
    if not _holds(given := row.get("history")):
        return []
    pairs = _parsed(given)
    if not isinstance(pairs, list | tuple) or not all(isinstance(one, list | tuple) and len(one) == 2 for one in pairs):
        raise _Unfit(message("a history that is not pairs of a question and an answer"))
    return [
        _message(row, {"role": role, "content": text})
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def _turns(given: Any) -> Any:
    """Return the messages of a transcript of Anthropic's HH; others as they are."""
    if not isinstance(given, str) or not _TURN.match(given):
        return given
    _, *parts = _TURN.split(given)
    roles = {"Human": "user", "Assistant": "assistant"}
    return [{"role": roles[role], "content": text.strip()} for role, text in zip(parts[::2], parts[1::2], strict=True)]


def _system(row: _Fields) -> list[dict[str, str]]:
    name = row.first(_SYSTEM)
    return [{"role": "system", "content": _text(row[name])}] if name else []


def _messages(row: _Fields, given: Any, role: str = "") -> list[dict[str, str]]:
    """Return messages from a list of any of the formats, from that list as JSON, or from the text of a `role`."""
    if role and not isinstance(given, list | Mapping):
        return [_message(row, {"role": role, "content": given})]
    found = _parsed(given)
    found = [found] if isinstance(found, Mapping) else found
    if not isinstance(found, list | tuple) or not all(isinstance(one, Mapping) for one in found):
        raise _not_messages()
    if not found:
        raise _Unfit(message("no messages"))
    if len(found) > LONGEST // SHORTEST:
        raise _too_long()
    return [_message(row, one) for one in found]


def _message(row: _Fields, given: Mapping[str, Any]) -> dict[str, str]:
    role = given.get("role", given.get("from"))
    if role in _TOOLS or given.get("tool_calls") or given.get("function_call"):
        raise _Unfit(message("messages of tools"))
    role = _ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ("system", "user", "assistant"):
        raise _Unfit(message("roles other than system, user and assistant"))
    _require_text_alone(given)
    others = (name for name, value in given.items() if name not in _OF_A_MESSAGE and not _is_empty(value))
    row.unused.update(f"message.{name}" for name in others)
    content = given["content"] if "content" in given else given.get("value")
    if isinstance(content, list):
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in content):
            raise _no_text()
        content = "".join(part["text"] for part in content)
    text, reasoning = _text(content), _reasoning(given)
    if role != "assistant":
        if reasoning:
            raise _Unfit(message("reasoning_content of a message that is not the assistant's"))
        return {"role": role, "content": text}
    told = {"role": role, "content": text}
    if thought := _THOUGHT.match(text):
        told["content"] = text[thought.end() :].lstrip()
        _add_reasoning(told, thought[1].strip())
    elif text.lstrip().startswith("<think>"):
        raise _Unfit(message("reasoning that does not end"))
    _add_reasoning(told, reasoning)
    if not _is_learned(given):
        told["weight"] = NOT_LEARNED
    return told


def _reasoning(given: Mapping[str, Any]) -> str:
    """Return the reasoning of an answer under any of its names; "" if there is none."""
    texts = [text for text in (_text(given.get(name)) for name in REASONING) if text.strip()]
    if len(set(texts)) > 1:
        raise _different_reasoning()
    return texts[0] if texts else ""


def _add_reasoning(answer: dict[str, str], reasoning: str) -> None:
    if not reasoning:
        return
    if answer.setdefault("reasoning_content", reasoning).strip() != reasoning.strip():
        raise _different_reasoning()


def _is_learned(given: Mapping[str, Any]) -> bool:
    """Return whether an answer is learned, and not only read."""
    marks = {_text(given.get(name)).lower() for name in ("weight", "train", "training")} - {""}
    if not marks <= {"0", "1", "false", "true"}:
        raise _Unfit(message("a weight other than 0 and 1"))
    return marks.isdisjoint(("0", "false"))


def _require_text_alone(given: Mapping[str, Any]) -> None:
    """Raise `_Unfit` if a row or a message has pictures, sounds or videos."""
    if any(_holds(given.get(name)) for name in _MEDIA):
        raise _Unfit(message("pictures, sounds or videos"))


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


def _different_reasoning() -> _Unfit:
    return _Unfit(message("two texts of reasoning for one answer"))


def _too_long() -> _Unfit:
    return _Unfit(message("longer than 1,000,000 characters"))


def _no_text() -> _Unfit:
    return _Unfit(message("content that is not text"))


def _not_messages() -> _Unfit:
    return _Unfit(message("messages that are not a list of objects"))


def cell_of(value: object) -> str:
    """Return messages as the text of a cell."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
