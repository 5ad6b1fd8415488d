"""Reading text files in any encoding, with any newlines and in any normal form.

A file passes through four stages, block by block, so it can be larger than memory:

    bytes ──decode──▶ characters ──newlines──▶ lines end in "\\n" ──rows──▶ the text column ──normalise──▶ NFC

`read` joins all inputs to one text. `read_table` keeps rows and columns, in memory.

The encoding is detected by *strict* decoding of the whole file. No character is replaced or dropped: input that cannot
be decoded raises a `TextError` that names the byte or the line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jumok.lazy import lazily

if TYPE_CHECKING:
    from jumok.text._arguments import Given, material_of, read_rows, string_of, with_columns
    from jumok.text._columns import column_names
    from jumok.text._inputs import FORMATS, TABLES, Format
    from jumok.text._signs import with_signs
    from jumok.text._source import Source
    from jumok.text._table import Table, from_rows, read_column, read_table
    from jumok.text._text import Text, from_string, read
else:
    __getattr__ = lazily(
        __name__,
        {
            "_arguments": "Given material_of read_rows string_of with_columns",
            "_columns": "column_names",
            "_inputs": "FORMATS TABLES Format",
            "_signs": "with_signs",
            "_source": "Source",
            "_table": "Table from_rows read_column read_table",
            "_text": "Text from_string read",
        },
    )

__all__ = [
    "FORMATS",
    "TABLES",
    "Format",
    "Given",
    "Source",
    "Table",
    "Text",
    "column_names",
    "from_rows",
    "from_string",
    "material_of",
    "read",
    "read_column",
    "read_rows",
    "read_table",
    "string_of",
    "with_columns",
    "with_signs",
]
