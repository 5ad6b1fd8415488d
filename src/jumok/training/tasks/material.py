"""What a run learns from and what it holds out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jumok.data.held_out import draw_rows
from jumok.errors import TextError
from jumok.evaluation.overlap import LINE, PASSAGE, WORTH_TELLING
from jumok.evaluation.seq2seq import Pair, whole_pairs
from jumok.messages import tr
from jumok.runs.events import Alarm
from jumok.text import Table, Text
from jumok.training.tasks.stored_rows import Row

ALIKE = ("repeated_lines", "repeated_texts")  # alarms that look for what "repeated" looks for, too
PRESENTABLE = 40  # characters

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Material:
    """What a run learns from and what it holds out.

    source: read already. cut: how many characters of a text belong to the training part; the rest is held out.
    drawn: the places of the rows of a table that are held out, in ascending order. held_out: held out instead; then all
    of the source is learned. report: called with the finished share while a large source becomes ids.
    """

    source: Text | Table
    cut: int = 0
    drawn: Sequence[int] = ()
    held_out: Text | Table | None = None
    report: Callable[[float], None] | None = None

    @classmethod
    def of(
        cls,
        source: Text | Table,
        held_out: Text | Table | None,
        val: float,
        examples: Callable[[Table], Sequence[tuple[str, str]]],
    ) -> Material:
        """Hold out the last part of a text or drawn rows of a table, the share `val`, or else `held_out`.

        Args:
            examples: what each row of a table asks and its label, for `draw_rows`.

        Raises:
            TextError: `held_out` is one of the sources.
        """
        learned = {one.sha256: one.name for one in source.sources}
        for one in held_out.sources if held_out is not None else ():
            if one.sha256 in learned:
                raise TextError(
                    "{held_out} cannot be held out: its content is that of {source}, on which the model is trained. "
                    "Give another file, or a share such as {--val 0.1}.",
                    held_out=one.name,
                    source=learned[one.sha256],
                )
        share = val if held_out is None else 0.0
        if isinstance(source, Text):
            return cls(source=source, cut=source.chars - round(source.chars * share), held_out=held_out)
        questions, labels = zip(*examples(source), strict=True)
        return cls(source=source, drawn=draw_rows(questions, labels, share), held_out=held_out)

    def identity(self) -> dict[str, Any]:
        """Return what config.json records, by which a resumed run recognises its material."""
        return {
            "sources": [source.name for source in self.source.sources],
            "sha256": self.source.sha256,
            "val_sha256": None if self.held_out is None else self.held_out.sha256,
        }

    def rows(self) -> dict[str, int | None]:
        """Return how many rows were given before any was left out; held_out_rows: None if no table is held out."""
        held_out = len(self.held_out) if isinstance(self.held_out, Table) else None
        return {"rows": len(table_of(self.source)), "held_out_rows": held_out}

    def parts(self, read: Callable[[Table], list[Pair]]) -> tuple[list[Pair], list[Pair]]:
        """Return the rows to learn from and the held-out rows, without rows of which a cell is empty.

        Args:
            read: the two cells of each row of a table: a text and its label, or a source and its target.
        """
        train, val = self._divided(read)
        return whole_pairs(train), whole_pairs(val)

    def _divided(self, read: Callable[[Table], list[T]]) -> tuple[list[T], list[T]]:
        rows, drawn = read(table_of(self.source)), set(self.drawn)
        held_out = [rows[row] for row in self.drawn] if self.held_out is None else read(table_of(self.held_out))
        return [row for place, row in enumerate(rows) if place not in drawn], held_out

    def split(self, val: float) -> tuple[list[Row], list[Row]]:
        """Return the rows to learn from and the rows that are held out.

        Raises:
            TextError: the share `val` is more than 0, and nothing is held out.
        """
        train, held_out = self._divided(lambda table: table.rows)
        if val > 0 and not held_out:
            raise self.nothing_to_hold_out(val)
        return train, held_out

    def nothing_to_hold_out(self, val: float) -> TextError:
        """Return the error for a share `val` of a table that is less than a row."""
        return TextError(
            "nothing is left to hold out: val={val:g} of {count:,} rows; give more rows, a larger "
            "{--val}, or {--val 0} to train without validation.",
            val=val,
            count=len(table_of(self.source)),
        )


def rows_lost(data: Mapping[str, Any]) -> list[str]:
    """Return messages about the rows that are too long for the context, or that the chat template refuses."""
    told = []
    if left_out := data["left_out"]:
        told.append(tr("Rows left out, because they are too long: {count:,}.", count=left_out))
    for reason, count in data.get("refused", {}).items():
        told.append(tr("Rows left out: {count:,}, because {reason}", count=count, reason=reason))
    if cut := data["cut"]:
        told.append(tr("Rows that lost turns at their beginning, to fit: {count:,}.", count=cut))
    return told


def table_of(source: Text | Table) -> Table:
    """Return a source that is a table, as `Task.material` has checked."""
    assert isinstance(source, Table)
    return source


def repeated_rows(learned: Iterable[tuple[str, ...]], held_out: Sequence[tuple[str, ...]]) -> float:
    """Return the share of the held-out rows that are among the others, cell by cell, whatever their spaces."""
    known = {tuple(map(_plain, row)) for row in learned}
    return sum(tuple(map(_plain, row)) in known for row in held_out) / max(1, len(held_out))


def contradictory(rows: Sequence[Pair]) -> float:
    """Return the share of the rows whose text stands in another row with another label."""
    labels: dict[str, set[str]] = {}
    for text, label in rows:
        labels.setdefault(_plain(text), set()).add(label)
    return sum(len(labels[_plain(text)]) > 1 for text, _ in rows) / max(1, len(rows))


def _plain(text: str) -> str:
    """Return a text with one space between words."""
    return " ".join(text.split())


def repetition(data: Mapping[str, Any]) -> tuple[Alarm, ...]:
    """Return the alarms about a held-out part that is also in the training part, and about contradictory labels."""
    found = {}
    if "rows" in data:
        found["repeated"] = tr(
            "{share:.1%} of the held-out rows are also among the training rows, so the held-out figures are "
            "better than those of new rows would be.",
            share=data.get("repeated", 0.0),
        )
        found["repeated_texts"] = tr(
            "{share:.1%} of the held-out texts are also among the training texts, with this or another label, so the "
            "held-out figures are not those of new texts. Leave the copies out.",
            share=data.get("repeated_texts", 0.0),
        )
        found["contradictory_labels"] = tr(
            "{share:.1%} of the rows have a text that stands in another row with another label. No model can have "
            "both right; correct the labels.",
            share=data.get("contradictory_labels", 0.0),
        )
    else:
        found["repeated"] = tr(
            "{share:.1%} of the held-out text is also in the training part, word for word, in passages of {length} "
            "characters or more, so the held-out figures are better than those of a new text would be. Leave the "
            "copies out, or hold out another text.",
            share=data.get("repeated", 0.0),
            length=PASSAGE,
        )
        found["repeated_lines"] = tr(
            "{share:.1%} of the held-out text is lines of {length} characters or more that are also lines of the "
            "training part, so the held-out figures are better than those of a new text would be. Leave the copies "
            "out, or hold out another text.",
            share=data.get("repeated_lines", 0.0),
            length=LINE,
        )
    shares = {kind: data.get(kind, 0.0) for kind in found}
    if shares["repeated"] >= WORTH_TELLING:  # the others would say the same again, unless they found much more
        shares = {
            kind: share
            for kind, share in shares.items()
            if kind not in ALIKE or share >= shares["repeated"] + WORTH_TELLING
        }
    return tuple(
        Alarm(step=0, kind=kind, numbers={"share": share}, text=found[kind])
        for kind, share in shares.items()
        if share >= WORTH_TELLING
    )


def characters(texts: Iterable[str]) -> str:
    """Return each character of some texts once, in the order of Unicode."""
    return "".join(sorted(set().union(*texts)))


def presentable(texts: Iterable[str]) -> str:
    """Return the first text that fits into a suggested command, or ""."""
    return next((t for t in texts if t.strip() and t.isprintable() and len(t) <= PRESENTABLE and t[0] != "-"), "")
