"""Diagrams of boxes and arrows, described in both languages and written as SVG text.

A diagram has one fixed look, that of docs/pictures: boxes in colours that can be read on light and on dark pages, on a
background of their own. Text stays text, in the fonts of the reader's system. A unit is a pixel at full size.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Literal

from jumok.course.words import Language, read_toml, words_in

TEXTS = Path(__file__).parent / "texts.toml"
Kind = Literal["plain", "learned", "dropout"]
Point = tuple[float, float]

WIDTH = 480  # of a diagram: text is still readable where a phone shows it on 360 pixels
ROW, TALL = 38, 54  # heights of a box with one and with two lines
NARROW = 200  # the width below which the text of a box is centred
LABEL, NOTE = 15, 13  # sizes of letters

_CLASS: Mapping[Kind, str] = {"plain": "b", "learned": "k", "dropout": "o"}
_LEGEND: Sequence[tuple[Kind, str]] = (
    ("learned", "has learned parameters"),
    ("plain", "no parameters"),
    ("dropout", "dropout (in training only)"),
)
_SANS = (
    'system-ui,-apple-system,"Segoe UI","Apple SD Gothic Neo","Malgun Gothic","Noto Sans KR","Noto Sans CJK KR",'
    "NanumGothic,sans-serif"
)
_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
_STYLE = f"""\
text{{font:{LABEL}px {_SANS};fill:#1c2330}}
.t{{font-weight:600}}.n{{font-size:{NOTE}px;fill:#5a6272}}.s{{font:{NOTE}px {_MONO};fill:#3f5f9e}}
.b{{fill:#f4f6fb;stroke:#b9c3d8;stroke-width:1.2}}.k{{fill:#fff3dc;stroke:#d7a645;stroke-width:1.2}}
.o{{fill:#f6eefb;stroke:#a77fc4;stroke-width:1.2;stroke-dasharray:5 3}}
.g{{fill:none;stroke:#9aa6bd;stroke-width:1.2;stroke-dasharray:5 4}}
.a{{stroke:#6b7890;stroke-width:1.5;fill:none;marker-end:url(#h)}}
.l{{stroke:#6b7890;stroke-width:1.5;fill:none}}.e{{stroke-dasharray:2 4}}
.h{{fill:#6b7890}}.p{{fill:#fff;stroke:#6b7890;stroke-width:1.5}}
.on{{stroke:#0b62c4;stroke-width:3;stroke-dasharray:none}}rect.on{{fill:#d8e9ff}}rect.g.on{{fill:none}}
.y{{fill:#4a76c9;stroke:#fff}}.z{{fill:#eceef3;stroke:#fff}}.r{{fill:#fff}}
@media (prefers-color-scheme:dark){{text{{fill:#e3e7ef}}.n{{fill:#a6aebd}}.s{{fill:#9fbcf2}}
.b{{fill:#222937;stroke:#46526b}}.k{{fill:#3a2f18;stroke:#a5812f}}.o{{fill:#30263b;stroke:#8f6bab}}
.g{{stroke:#5b667d}}.a,.l{{stroke:#93a0b8}}.h{{fill:#93a0b8}}.p{{fill:#141922;stroke:#93a0b8}}
.on{{stroke:#6cb6ff}}rect.on{{fill:#143a5f}}rect.g.on{{fill:none}}
.y{{fill:#5f8ff0;stroke:#141922}}.z{{fill:#2a3140;stroke:#141922}}.r{{fill:#141922}}}}"""


def said(label: str, language: Language) -> str:
    """Return a label in one language. Labels without an entry in texts.toml are the same in both."""
    return str(read_toml(TEXTS)["label"].get(label, label)) if language == "ko" else label


def text_width(text: str, size: float = LABEL, *, mono: bool = False) -> float:
    """About how wide a text is, rather too wide than too narrow: the fonts of readers differ."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    upper = sum(character.isupper() for character in text)
    other = len(text) - wide - upper
    return size * (wide + (0.61 if mono else 0.72) * upper + (0.61 if mono else 0.56) * other)


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box with a label, and a shape or a second line.

    shape: of the tensor that leaves it. under: a second line, in place of the shape; the height is then TALL. part: by
    which it is highlighted.
    """

    x: float
    y: float
    width: float
    height: float
    label: str
    shape: str = ""
    under: str = ""
    kind: Kind = "plain"
    part: str = ""

    @property
    def top(self) -> Point:
        """The middle of its upper edge."""
        return self.x + self.width / 2, self.y

    @property
    def bottom(self) -> Point:
        """The middle of its lower edge."""
        return self.x + self.width / 2, self.y + self.height

    @property
    def left(self) -> Point:
        """The middle of its left edge."""
        return self.x, self.y + self.height / 2

    @property
    def right(self) -> Point:
        """The middle of its right edge."""
        return self.x + self.width, self.y + self.height / 2

    def needs(self, language: Language) -> float:
        """Return the width that its text needs, with margins."""
        label, shape = text_width(said(self.label, language)), text_width(self.shape, NOTE, mono=True)
        if self.height >= TALL:
            return max(label, shape, text_width(said(self.under, language), NOTE)) + 12
        return label + shape + (38 if self.shape else 24)

    def drawn(self, language: Language, classes: str) -> str:
        """Its SVG elements."""
        rect = f'<rect class="{classes}" {_area(self.x, self.y, self.width, self.height)} rx="7"/>'
        label, shape, narrow = said(self.label, language), self.shape, self.width < NARROW
        x, anchor = (self.bottom[0], "middle") if narrow else (self.x + 12, "start")
        if self.height < TALL:
            y = self.y + self.height / 2 + 5
            if shape:
                ends = _text(self.x + self.width - 12, y, shape, "s", "end")
                return rect + _text(self.x + 12, y, label, "t") + ends
            return rect + _text(x, y, label, "t", anchor)
        y = self.bottom[1]
        under = shape or said(self.under, language)
        return rect + _text(x, y - 31, label, "t", anchor) + _text(x, y - 11, under, "s" if shape else "n", anchor)


@dataclass(frozen=True)
class Plus:
    """A sum of what its arrows bring. x, y: its middle."""

    x: float
    y: float
    part: str
    radius: float = 11

    @property
    def top(self) -> Point:
        """Where an arrow from above ends."""
        return self.x, self.y - self.radius

    @property
    def bottom(self) -> Point:
        """Where an arrow to below begins."""
        return self.x, self.y + self.radius

    @property
    def left(self) -> Point:
        """Where an arrow from the left ends."""
        return self.x - self.radius, self.y


@dataclass(frozen=True)
class Frame:
    """A dashed frame around boxes; part as for a box."""

    x: float
    y: float
    width: float
    height: float
    part: str


class Diagram:
    """Boxes, sums, arrows, frames and texts on one background.

    Args:
        name: of the drawing; texts.toml has its title and description, which a screen reader reads.
        width: of the picture.
        notes_at: where the notes of `svg` begin, from the left.
    """

    def __init__(self, name: str, width: float = WIDTH, notes_at: float = 0) -> None:
        self.about, self.width, self.notes_at = words_in(TEXTS, name), width, notes_at
        self.boxes: list[Box] = []
        self.texts: list[tuple[Point, str, str, str]] = []
        self._sums: list[Plus] = []
        self._frames: list[Frame] = []
        self._swatches: list[str] = []
        self._lines: list[tuple[str, str]] = []
        self._cells: list[str] = []
        self._bottom = 0.0

    def box(
        self,
        x: float,
        y: float,
        width: float,
        label: str,
        shape: str = "",
        *,
        under: str = "",
        kind: Kind = "plain",
        part: str = "",
        height: float = ROW,
    ) -> Box:
        """Add a box and return it."""
        made = Box(x=x, y=y, width=width, height=height, label=label, shape=shape, under=under, kind=kind, part=part)
        self.boxes.append(made)
        self._reach(y + height)
        return made

    def plus(self, x: float, y: float, part: str = "") -> Plus:
        """Add a circle with a plus sign and return it."""
        made = Plus(x, y, part)
        self._sums.append(made)
        return made

    def arrow(self, *points: Point) -> None:
        """Add an arrow along straight lines; it stops just before its last point."""
        (x, y), (last_x, last_y) = points[-2:]
        end = (last_x - (last_x > x) + (last_x < x), last_y - (last_y > y) + (last_y < y))
        self._lines.append(("a", _path([*points[:-1], end])))

    def line(self, *points: Point, dotted: bool = False) -> None:
        """Add a line without a head."""
        self._lines.append(("l e" if dotted else "l", _path(points)))

    def frame(self, x: float, y: float, width: float, height: float, part: str = "", label: str = "") -> None:
        """Add a dashed frame around what belongs together, with a label in its upper left corner."""
        self._frames.append(Frame(x, y, width, height, part))
        if label:
            self.text(x + 10, y + 18, label)
        self._reach(y + height)

    def text(self, x: float, y: float, words: str, style: str = "n", anchor: str = "start") -> None:
        """Add a text. style: n a note, t a title, s a shape. anchor: start, middle or end, as in SVG."""
        self.texts.append(((x, y), words, style, anchor))
        self._reach(y + 4)

    def cells(self, x: float, y: float, allowed: Sequence[Sequence[bool]], side: float) -> None:
        """Add a matrix of cells: filled where True, crossed out where False."""
        for i, row in enumerate(allowed):
            for j, yes in enumerate(row):
                left, top = x + j * side, y + i * side
                self._cells.append(f'<rect class="{"y" if yes else "z"}" {_area(left, top, side, side)}/>')
                if not yes:
                    self._cells.append(_text(left + side / 2, top + side / 2 + 4.5, "×", "n", "middle"))
        self._reach(y + side * len(allowed))

    def legend(self, kinds: Iterable[Kind] = ("learned", "plain", "dropout")) -> None:
        """Add what the colours of the boxes mean, below everything else."""
        for kind, words in _LEGEND:
            if kind in kinds:
                y = self._bottom + 14
                self._swatches.append(f'<rect class="{_CLASS[kind]}" {_area(20, y, 22, 16)} rx="4"/>')
                self.text(52, y + 13, words)

    def svg(self, language: Language, highlight: Collection[str] = (), notes: Mapping[str, str] | None = None) -> str:
        """Return the picture as SVG text.

        Args:
            language: of all words.
            highlight: parts with a thick blue border.
            notes: part -> a note beside its first box, sum or frame.
        """
        height = self._bottom + 16
        pieces = list(self._swatches)
        for frame in self._frames:
            area = _area(frame.x, frame.y, frame.width, frame.height)
            pieces.append(f'<rect class="{_classes("g", frame.part, highlight)}" {area} rx="10"/>')
        pieces += [f'<path class="{style}" d="{geometry}"/>' for style, geometry in self._lines]
        for box in self.boxes:
            pieces.append(box.drawn(language, _classes(_CLASS[box.kind], box.part, highlight)))
        for each in self._sums:
            circle = f'<circle class="{_classes("p", each.part, highlight)}" cx="{each.x:g}" cy="{each.y:g}"'
            arms = f"M{each.x - 6:g} {each.y:g}h12M{each.x:g} {each.y - 6:g}v12"
            pieces.append(f'{circle} r="{each.radius:g}"/><path class="l" d="{arms}"/>')
        pieces += self._cells
        for (x, y), words, style, anchor in self.texts:
            pieces.append(_text(x, y, said(words, language), style, anchor))
        pieces += [
            _text(self.notes_at, self._height_of(part), said(words, language), "n")
            for part, words in (notes or {}).items()
        ]
        size = f"{self.width:g} {height:g}"
        head = f'viewBox="0 0 {size}" width="{self.width:g}" height="{height:g}" lang="{language}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {head} role="img" aria-labelledby="t d">',
                f'<title id="t">{escape(self.about["title"].said(language))}</title>'
                f'<desc id="d">{escape(self.about["description"].said(language))}</desc>',
                f"<style>\n{_STYLE}\n</style>",
                '<defs><marker id="h" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                'orient="auto"><path class="h" d="M0 0 8 4 0 8z"/></marker></defs>',
                f'<rect class="r" width="{self.width:g}" height="{height:g}"/>',
                *(piece for piece in pieces if piece),
                "</svg>\n",
            ]
        )

    @property
    def parts(self) -> set[str]:
        """What can be highlighted."""
        named = {box.part for box in self.boxes} | {each.part for each in self._sums}
        return (named | {frame.part for frame in self._frames}) - {""}

    def _height_of(self, part: str) -> float:
        """Where the line of a note begins: level with the first box, sum or frame of the part."""
        places = [box.right[1] for box in self.boxes if box.part == part]
        places += [each.y for each in self._sums if each.part == part]
        places += [frame.y + 13 for frame in self._frames if frame.part == part]
        return places[0] + 5

    def _reach(self, y: float) -> None:
        self._bottom = max(self._bottom, y)


def _classes(look: str, part: str, highlight: Collection[str]) -> str:
    return f"{look} on" if part in highlight else look


def _area(x: float, y: float, width: float, height: float) -> str:
    return f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def _text(x: float, y: float, text: str, style: str, anchor: str = "start") -> str:
    """Return a text element; none for an empty text."""
    if not text:
        return ""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{x:g}" y="{y:g}"{end}>{escape(text)}</text>'
