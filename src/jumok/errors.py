"""The exceptions of jumok::

    JumokError                  base class of all exceptions below
    ├── ConfigError             a setting is unknown, out of range, or contradicts another one
    ├── TextError               a text cannot be read: missing, empty, binary, or in an unknown encoding
    ├── CorpusError             a corpus cannot be written or downloaded: unknown name, no network, wrong checksum
    ├── TokenizerError          a tokenizer cannot be trained, loaded or used
    ├── RunError                a run folder is missing, incomplete or damaged, or must not be overwritten
    │   └── ResumeError         a run cannot be resumed with these arguments: other data, other settings
    ├── TrainingError           training cannot continue: three steps in a row without a finite loss
    │   ├── SharedFault         the processes of a distributed training cannot work together
    │   └── ProcessLost         one of them failed, or its connection is broken
    ├── ViewError               a model cannot be viewed: no language head, nothing recorded, another kind of model
    ├── LessonError             a chapter is missing in this installation, or cannot be read or written
    └── ServeError              a server cannot listen, or has no such model

Each message states the given value, the allowed values and a remedy. The command line prints the message without a
traceback and exits with `exit_code`.
"""

from __future__ import annotations

from jumok.messages import tr


class JumokError(Exception):
    """Base class of the exceptions of jumok. The message is written for the user.

    Args:
        template: the message, with the fields of `str.format`; see `jumok.messages.tr`.
        values: the values of the fields.
    """

    exit_code = 1

    def __init__(self, template: str, /, **values: object) -> None:
        super().__init__(tr(template, **values))


class ConfigError(JumokError, ValueError):
    """A setting is unknown, out of range, or contradicts another one."""

    exit_code = 2


class TextError(JumokError):
    """A text cannot be read."""


class CorpusError(JumokError):
    """A corpus of the catalogue cannot be written or downloaded."""


class TokenizerError(JumokError):
    """A tokenizer cannot be trained, loaded or used."""


class RunError(JumokError):
    """A run folder is missing, incomplete or damaged, or must not be overwritten."""


class ResumeError(RunError):
    """A run cannot be resumed with the given arguments."""


class TrainingError(JumokError):
    """Training cannot continue."""


class SharedFault(TrainingError):
    """A fault that all processes of a distributed training know; rank 0 reports it."""


class ProcessLost(TrainingError):
    """The connection to another process is broken. The exit code is that of the process that has failed, if known."""


class ViewError(JumokError):
    """A model cannot be viewed."""


class LessonError(JumokError):
    """A chapter is missing in this installation, or cannot be read or written."""


class ServeError(JumokError):
    """A server cannot listen, or has no such model."""
