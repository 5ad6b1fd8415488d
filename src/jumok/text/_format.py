"""The format of a file, judged by its content where that is clear, whatever its name: JSON, HTML, XML."""

from __future__ import annotations

import re
from collections.abc import Iterable
from xml.parsers import expat

from jumok.errors import TextError
from jumok.messages import message, tr
from jumok.text._inputs import Format
from jumok.text._json import json_format
from jumok.text._rows import lines
from jumok.text._source import Reading

_MARKUP = (  # how a document begins that says what it is
    (r"(!doctype\s+html|(html|head|body)[\s>])", message("an HTML page")),
    (r"sami[\s>]", message("SAMI subtitles")),
    (r"(\?xml\s|!doctype\s|[^<>]+\sxmlns\b)", message("an XML document")),
)


def format_of(reading: Reading, *, table: bool) -> Format:
    """Return the format of a file: that of JSON by its content, any other by its suffix.

    Standard input has no suffix. As a table, its first line that is not blank decides: one that begins with "{" is JSON
    lines, one with a comma and no tab .csv, and any other .tsv, also one with a single column.

    Args:
        table: whether standard input is a table.

    Raises:
        TextError: the file is HTML or XML.
    """
    begin = _begin(reading)
    if begin.startswith("{") and reading.file.format == "jsonl":
        return "jsonl"
    if begin.startswith(("[", "{")) and (format := json_format(reading, begin[0])):
        return format
    if begin.startswith("<"):
        _require_no_markup(reading, begin)
    if reading.file.path != "-" or not table:
        return reading.file.format
    if begin.startswith("{"):
        return "jsonl"
    header = next((line for line in lines(reading.pieces()) if line.strip()), "")
    return "csv" if "," in header and "\t" not in header else "tsv"


def _begin(reading: Reading) -> str:
    """Return the first piece that is not blank, without the white space before it."""
    return next(filter(None, map(str.lstrip, reading.pieces())), "")


def _require_no_markup(reading: Reading, begin: str) -> None:
    """Raise TextError for a document in HTML or XML, from its first tag to its last."""
    last = ""
    for piece in reading.pieces():
        last = piece.rstrip()[-1:] or last
    if last != ">":
        return
    document = re.compile(r"(?:<!--.*?-->\s*)*<", re.DOTALL).match(begin)
    tag = begin[document.end() :] if document else ""
    kind = next((kind for mark, kind in _MARKUP if re.match(mark, tag, re.IGNORECASE)), None)
    if kind is None and _is_element(reading.pieces()):
        kind = "an XML document"
    if kind is not None:
        raise TextError(
            "{name} is {kind}; save it as plain text first, or, if its tags are to be learned, put it into the text "
            "column of a .jsonl file",
            name=reading.file.name,
            kind=tr(kind),
        )


class _TextInRoot(Exception):
    """The root of a document has text of its own."""


def _is_element(pieces: Iterable[str]) -> bool:
    """Return whether a text is one XML element with others in it, and has no text beside those.

    A Markdown page in one <div> has, and so has a poem in one <poem>.
    """
    depth = elements = 0

    def start(_name: str, _attributes: dict[str, str]) -> None:
        nonlocal depth, elements
        depth, elements = depth + 1, elements + 1

    def end(_name: str) -> None:
        nonlocal depth
        depth -= 1

    def text(data: str) -> None:
        if depth == 1 and not data.isspace():
            raise _TextInRoot

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    try:
        for piece in pieces:
            parser.Parse(piece.lstrip() if not elements else piece, False)
        parser.Parse("", True)
    except (expat.ExpatError, _TextInRoot):
        return False
    return elements > 1
