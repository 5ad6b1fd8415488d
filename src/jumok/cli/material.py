"""Read what a model is trained or evaluated on: texts and tables of the command line, and the built-in corpora."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.config import TASK_CONFIGS
from jumok.errors import ConfigError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.text import Table, Text

NUMBERS_ROWS = 50_000  # pairs of the built-in corpus, if no table is given
TALK_ROWS = 40_000  # conversations of the built-in corpus
TALK_TEST_ROWS = 2_000  # of its test part, to evaluate with
STORIES_CHARS = 2_000_000  # characters of the built-in corpus, if no text is given
READING = ("encoding", "column")  # the options for reading a text
# The two columns that a task reads of a table; those of conversations are recognized and have no options.
COLUMNS = {name: task.columns for name, task in TASK_CONFIGS.items() if len(task.columns) == 2}
COLUMN_NAMES = tuple(name for names in COLUMNS.values() for name in names)  # the options that rename them


def read_texts(texts: tuple[str, ...], reading: Mapping[str, Any]) -> Text:
    """Read the texts of the command line as one. reading: encoding and column, or None for each."""
    from jumok import text as reader

    return reader.read(texts, encoding=reading.get("encoding"), column=reading.get("column"))


def read_material(
    task: str, texts: tuple[str, ...], reading: Mapping[str, Any], recorded: tuple[str, ...] = ()
) -> Text | Table:
    """Read what a task trains on: a text, two columns of a table, or conversations.

    Args:
        reading: any of READING and COLUMN_NAMES. recorded: the columns to read where `reading` names none.
    """
    from jumok import text as reader

    names = TASK_CONFIGS[task].columns
    if not names:
        return read_texts(texts, reading)
    usual = recorded if task in COLUMNS and len(recorded) == len(names) else names
    columns = [reading.get(name) or default for name, default in zip(names, usual, strict=True)]
    remedy = ""
    if task in COLUMNS:
        remedy = tr("; choose them with --{first} and --{second}", first=names[0], second=names[1])
    table = reader.read_rows(texts, columns, encoding=reading.get("encoding"), remedy=remedy)
    return table.renamed(names) if task == "seq2seq" else table


def recorded_columns(run: Path) -> tuple[str, ...]:
    """Return the columns that the model of a run was trained on; () for a text and for a folder of transformers.

    Raises:
        RunError: there is no such folder.
    """
    from jumok.corpora.hub import is_hf
    from jumok.runs.folder import RunFolder

    data = {} if is_hf(run) else RunFolder.open(run).read_config().get("data", {})
    return tuple(data.get("columns", ()))


def built_in_material(task: str) -> Text | Table:
    """Make what a task trains on if no text is given.

    Raises:
        ConfigError: the task is classify, for which there is no corpus.
    """
    from jumok import text as reader

    if task == "classify":
        raise ConfigError("{--task classify} needs a table with texts and their labels: jumok train reviews.tsv ...")
    if task == "seq2seq":
        from jumok.corpora import numbers

        return reader.from_rows(("source", "target"), list(numbers.write(NUMBERS_ROWS)), name=tr("numbers (built in)"))
    if task == "chat":
        return talk_table(TALK_ROWS)
    return stories_text()


def talk_table(rows: int, part: str = "train") -> Table:
    """Write the built-in conversations, as a table. part: train or test."""
    from jumok.corpora import talk
    from jumok.text.conversations import from_conversations

    return from_conversations(talk.write(rows, part=part), name=tr("talk (built in)"))


def free_table() -> Table:
    """Write the messages that people type to a chatbot, as a table of conversations."""
    from jumok.corpora import free
    from jumok.text.conversations import from_conversations

    return from_conversations(free.write(), name=tr("free messages (built in)"))


def stories_text() -> Text:
    """Write the built-in corpus of stories, as a text."""
    from jumok import text as reader
    from jumok.corpora import stories

    return reader.from_string("".join(stories.write(STORIES_CHARS)), name=tr("stories (built in)"))
