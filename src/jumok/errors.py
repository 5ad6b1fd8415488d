"""Everything that jumok raises on purpose::

    JumokError                  the base: catch this one to catch them all
    ├── ConfigError             a setting is wrong: unknown, out of range, or at odds with another one
    ├── TextError               a text cannot be read: missing, empty, binary, in no known encoding
    ├── CorpusError             a corpus cannot be written or fetched: unknown name, no network, wrong checksum
    ├── TokenizerError          a tokenizer cannot be trained, loaded or used
    ├── RunError                a run folder is missing, incomplete, damaged or in the way
    │   └── ResumeError         a run cannot go on with what was given: other data, other settings
    ├── TrainingError           training cannot go on: three steps in a row without a finite loss
    ├── ViewError               a model cannot be looked into: no language head, nothing recorded, another kind of model
    └── LessonError             a chapter is missing in this installation, or cannot be read or written as asked

Each message says what was given, what is allowed and what to do. The command line prints the message alone,
without a traceback, and ends with `exit_code`.
"""

from __future__ import annotations

from jumok.messages import tr


class JumokError(Exception):
    """Base of all errors that jumok raises on purpose; the message is meant for the person at the keyboard.

    Args:
        template, values: see `jumok.messages.tr`.
    """

    exit_code = 1

    def __init__(self, template: str, /, **values: object) -> None:
        super().__init__(tr(template, **values))


class ConfigError(JumokError, ValueError):
    """A setting is unknown, out of range, or contradicts another one."""

    exit_code = 2


class TextError(JumokError):
    """A text cannot be read as text."""


class CorpusError(JumokError):
    """A corpus of the catalogue cannot be written or fetched."""


class TokenizerError(JumokError):
    """A tokenizer cannot be trained, loaded or used."""


class RunError(JumokError):
    """A run folder is missing, incomplete, damaged or in the way."""


class ResumeError(RunError):
    """A run cannot be continued with what was given."""


class TrainingError(JumokError):
    """Training cannot go on."""


class ViewError(JumokError):
    """A model cannot be looked into as asked."""


class LessonError(JumokError):
    """A chapter is missing in this installation, or cannot be read or written as asked."""
