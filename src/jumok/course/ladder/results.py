"""The record of a ladder, OUT/ladder.json: its settings, its text, and the result of each rung."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.config import validate
from jumok.course.ladder.rungs import RUNGS, LadderConfig, LadderRung
from jumok.errors import ResumeError, RunError
from jumok.files import parse_json, write_atomic
from jumok.messages import shell, tr
from jumok.text import Text

FORMAT = 2  # 1 had ten rungs
FILE = "ladder.json"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A validation during training: tokens and seconds of training so far, nats per character."""

    tokens: int
    seconds: float
    nats_per_char: float


@dataclass(frozen=True, kw_only=True)
class RungResult:
    """The result of a finished rung.

    parameters: those that were trained. steps, tokens, seconds: of training, and tokens_per_second (the median).
    nats_per_char: of the best parameters, on the same held-out text for all rungs. curve: the validations.
    before, after: text that it generated before and after training.
    """

    slug: str
    parameters: int
    steps: int
    tokens: int
    seconds: float
    tokens_per_second: float
    nats_per_char: float
    curve: tuple[Point, ...]
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Facts about the text. sources: names without folders. sha256: of the text as it was read."""

    sources: tuple[str, ...]
    sha256: str
    chars: int

    @classmethod
    def of(cls, text: Text) -> TextFacts:
        """Return the facts of a text that was read."""
        names = tuple(Path(source.name).name for source in text.sources)
        return cls(sources=names, sha256=text.sha256, chars=text.chars)

    @property
    def name(self) -> str:
        """A short name of the text: its first file, and the number of others."""
        first, others = self.sources[0], len(self.sources) - 1
        return f"{first} + {others}" if others else first


@dataclass(frozen=True, kw_only=True)
class LadderRecord:
    """The state of a ladder. It contains no names of machines or folders.

    asked: the texts as given on the command line, without folders; None if there was no command line.
    encoding, column: the options with which the texts were read; None if they were not given.
    precision, train_tokens, vocab_size: of the first rung; None before it was started.
    floor: the lowest possible loss on this text in nats per character, if it is known.
    before: text that each started rung generated before training. results: of the finished rungs, in their order.
    """

    config: LadderConfig
    text: TextFacts
    asked: tuple[str, ...] | None = None
    encoding: str | None = None
    column: str | None = None
    precision: str | None = None
    train_tokens: int | None = None
    vocab_size: int | None = None
    floor: float | None = None
    before: Mapping[str, str] = dataclasses.field(default_factory=dict)
    results: tuple[RungResult, ...] = ()

    def result(self, rung: LadderRung) -> RungResult | None:
        """Return the result of a rung, or None if it is not finished."""
        return next((result for result in self.results if result.slug == rung.slug), None)

    def passes_bigram(self, rung: LadderRung) -> int | None:
        """Return the step from which a rung's loss is below the lowest of the bigram, or None if it never is.

        Both are validations during training, which measure the same part of the held-out text on all rungs.
        """
        bigram, result = self.result(RUNGS[0]), self.result(rung)
        if bigram is None or result is None or not bigram.curve:
            return None
        lowest = min(point.nats_per_char for point in bigram.curve)
        below = next((point.tokens for point in result.curve if point.nats_per_char < lowest), None)
        return None if below is None else below // (self.config.batch_size * self.config.context_length)

    def with_result(self, result: RungResult) -> LadderRecord:
        """Return a copy with the result of one more rung."""
        order = [rung.slug for rung in RUNGS]
        return dataclasses.replace(
            self, results=tuple(sorted((*self.results, result), key=lambda r: order.index(r.slug)))
        )

    def without_result(self, rung: LadderRung) -> LadderRecord:
        """Return a copy without the result of a rung, which will be trained again."""
        return dataclasses.replace(self, results=tuple(result for result in self.results if result.slug != rung.slug))

    @property
    def finished(self) -> bool:
        """Whether all rungs are finished."""
        return all(self.result(rung) is not None for rung in RUNGS)

    @property
    def command(self) -> str | None:
        """The command that made this ladder, or None if it was not made by a command."""
        return None if self.asked is None else command_of(self.asked, self.config, *self.reading)

    @property
    def reading(self) -> tuple[str, ...]:
        """The options of the command line that say how the texts are read."""
        given = {"--encoding": self.encoding, "--column": self.column}
        return tuple(f"{name}={value}" for name, value in given.items() if value is not None)

    def refuse_another(self, text: TextFacts, config: LadderConfig, out: Path) -> None:
        """Raise ResumeError, with the differences, if text or settings are not those of the ladder in `out`."""
        ours, theirs = dataclasses.asdict(self.config), dataclasses.asdict(config)
        differing = [
            tr("{name}={recorded!r}, not {given!r}", name=name, recorded=ours[name], given=value)
            for name, value in theirs.items()
            if ours[name] != value
        ]
        if self.text.sha256 != text.sha256:
            differing.append(
                tr(
                    "another text: {name}, {chars:,} characters, sha256 {sha256}…, not {given_name}, {given_chars:,} "
                    "characters, sha256 {given_sha256}…",
                    name=self.text.name,
                    chars=self.text.chars,
                    sha256=self.text.sha256[:12],
                    given_name=text.name,
                    given_chars=text.chars,
                    given_sha256=text.sha256[:12],
                )
            )
        if differing:
            raise ResumeError(
                "{out} holds a ladder that was begun with {differing}. It continues with the text and "
                "the settings of its start: give the same again, or choose another {--out} for a new one.",
                out=out,
                differing="; ".join(differing),
            )

    # --- the file ---------------------------------------------------------------------------------------------------

    def write(self, out: Path) -> None:
        """Write OUT/ladder.json.

        Raises:
            RunError: it cannot be written.
        """
        values = {"format": FORMAT, **dataclasses.asdict(self)}
        write_output(out / FILE, json.dumps(values, ensure_ascii=False, indent=1) + "\n")

    def require_types(self) -> None:
        """Raise ValueError unless each field has a value of its type, and each number is finite."""
        points = [point for result in self.results for point in result.curve]
        parts: tuple[Any, ...] = (self, self.config, self.text, *self.results, *points)
        for part in parts:
            validate(part)
            for number in vars(part).values():
                if isinstance(number, float) and not math.isfinite(number):
                    raise ValueError(f"{number} is not finite")
        texts = (*self.text.sources, *(self.asked or ()), *self.before, *self.before.values())
        if not self.text.sources or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{texts} are no names of texts")
        words = (*texts, self.encoding or "", self.column or "")
        "".join(words).encode(errors="surrogateescape")  # raises ValueError

    @classmethod
    def read(cls, out: Path) -> LadderRecord:
        """Read OUT/ladder.json.

        Raises:
            RunError: it cannot be read, is damaged, or has another format.
        """
        path = out / FILE
        try:
            values = parse_json(path.read_text(encoding="utf-8"))
            written = values.pop("format")
            if written != FORMAT:
                raise RunError(
                    "{path} has format {found}; this version of jumok supports format {known}. Update jumok.",
                    path=path,
                    found=written,
                    known=FORMAT,
                )
            text = values.pop("text")
            asked = values.pop("asked")
            record = cls(
                config=LadderConfig(**values.pop("config")),
                text=TextFacts(**{**text, "sources": tuple(text["sources"])}),
                asked=None if asked is None else tuple(asked),
                results=tuple(_result(each) for each in values.pop("results")),
                **values,
            )
            record.require_types()
            return record
        except OSError as error:
            raise RunError("{path} cannot be read: {reason}.", path=path, reason=error) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(
                "{path} is damaged ({error}); restore it from a copy, or choose another {--out} for a new ladder.",
                path=path,
                error=error,
            ) from None


def command_of(texts: Sequence[str], config: LadderConfig, *options: str) -> str:
    """Return the shell command that runs a ladder. options: further words of the command."""
    words = ["jumok", "learn", "ladder", *texts, *options]
    if config.steps_per_rung is not None:
        words += ["--steps-per-rung", str(config.steps_per_rung)]
    else:
        words += ["--minutes-per-rung", f"{config.minutes_per_rung:g}"]
    if config.seed:
        words += ["--seed", str(config.seed)]
    return shell(*words)


def _result(values: dict[str, Any]) -> RungResult:
    return RungResult(**{**values, "curve": tuple(Point(**point) for point in values["curve"])})


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file of a ladder atomically.

    Raises:
        RunError: it cannot be written.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        raise RunError(
            "cannot write {path}: {reason}. Free some space or repair the folder, then give the same "
            "command again: finished rungs are kept.",
            path=path,
            reason=error,
        ) from error
