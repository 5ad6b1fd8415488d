"""Parquet files: one column as a text, several as a table, and what is wrong with them."""

from __future__ import annotations

import builtins
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jumok.errors import TextError
from jumok.text import read, read_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

ROWS = {"text": ["바람이 불었다.", "", "비가\r\n왔다.", None, "눈이 왔다."], "label": [1, 0, 1, 0, None]}
TEXT = "바람이 불었다.\n비가\n왔다.\n눈이 왔다."


def as_parquet(path: Path, table: Any) -> Path:
    parquet.write_table(table, path, row_group_size=2)
    return path


def write(path: Path, columns: Any) -> Path:
    return as_parquet(path, pa.table(columns))


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Any], Path]:
    return lambda columns: write(tmp_path / "rows.parquet", columns)


# --- one column as a text ---------------------------------------------------------------------------------------------


def test_rows_are_joined_like_those_of_other_tables(stored: Callable[[Any], Path], tmp_path: Path) -> None:
    path = stored(ROWS)
    found = read(path)
    assert found.read() == TEXT
    assert found.sources[0].format == path.suffix[1:]
    assert found.sources[0].rows is None
    lines = [json.dumps({"text": text}) for text in ROWS["text"]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert read(tmp_path / "rows.jsonl").read() == TEXT


@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_all_types_of_strings(stored: Callable[[Any], Path], kind: str) -> None:
    types = {"dictionary": pa.dictionary(pa.int32(), pa.string())}
    column = pa.array(ROWS["text"]).cast(types.get(kind) or getattr(pa, kind)())
    assert read(stored({"문장": column}), column="문장").read() == TEXT


def test_more_rows_than_are_read_at_once(stored: Callable[[Any], Path]) -> None:
    words = ["나무", "바람", "", "구름이 간다"]
    texts = random.Random(0).choices(words, k=5_000)
    assert read(stored({"id": list(range(5_000)), "text": texts})).read() == "\n".join(filter(None, texts))


@pytest.mark.parametrize("name", ["dataset_info.json", "dataset_dict.json"])
def test_a_folder_of_datasets_is_told_how_to_write_parquet(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(TextError, match=r"Arrow files are not read; write each part as Parquet: .*to_parquet"):
        read(tmp_path)


# --- as a table -------------------------------------------------------------------------------------------------------


def test_columns_as_a_table(stored: Callable[[Any], Path]) -> None:
    table = read_table(
        stored({"id": range(5), **ROWS, "share": [0.5, 1.0, float("nan"), 2.5, 3.0]}), ["label", "text", "share"]
    )
    assert table.rows[0] == ("1", "바람이 불었다.", "0.5")
    assert table.rows[2] == ("1", "비가\n왔다.", "")
    assert table.rows[4] == ("", "눈이 왔다.", "3")
    assert table.sources[0].rows == 5


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_missing_column_lists_the_others(stored: Callable[[Any], Path]) -> None:
    path = stored({"document": ["글"], "label": [1]})
    with pytest.raises(TextError, match=r"no column 'body'; the columns are 'document', 'label'; choose one with"):
        read(path, column="body")
    with pytest.raises(TextError, match=r"no column 'documents'; the columns are .*document"):
        read_table(path, ["documents", "label"])


def test_a_column_that_is_not_text(stored: Callable[[Any], Path]) -> None:
    path = stored({"text": ["글"] * 3, "label": [None, 7, 8], "words": [None, ["글"], []]})
    with pytest.raises(TextError, match=r"row 2: column 'label' holds 7, which is not text"):
        read(path, column="label")
    with pytest.raises(TextError, match=r"row 2: column 'words' holds \['글'\], which is not text, number or truth"):
        read_table(path, ["text", "words"])


@pytest.mark.parametrize("columns", [{"text": pa.array([], pa.string())}, {"text": [None, ""]}, {"text": [" ", "\n"]}])
def test_nothing_to_read(stored: Callable[[Any], Path], columns: Any) -> None:
    with pytest.raises(TextError, match="contains only white space"):
        read(stored(columns))


@pytest.mark.parametrize("content", [b"PAR1", "text\n글\n".encode() * 9, b"\0" * 100])
def test_another_format_under_this_suffix(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(content)
    with pytest.raises(TextError, match=r"rows\.parquet cannot be read as Parquet: .*; was it copied"):
        read(path)


def test_a_truncated_file(stored: Callable[[Any], Path]) -> None:
    """At any byte: an error that names the file, but never a part of the text."""
    path = stored({"text": [f"글 {number}번" for number in range(40)]})
    whole = path.read_bytes()
    for size in (*range(1, len(whole), max(1, len(whole) // 40)), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(TextError, match="cannot be read as"):
            read(path)
    path.write_bytes(b"")
    with pytest.raises(TextError, match="is empty"):
        read(path)


def test_bytes_that_are_not_utf8(stored: Callable[[Any], Path]) -> None:
    texts = pa.array([b"ok", "글".encode("cp949")]).view(pa.string())
    with pytest.raises(TextError, match="rows 1 to 2: not UTF-8"):
        read(stored({"text": texts}))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "rows.parquet", {"text": ["글"]})
    load = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return load(name, *args, **options)

    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TextError, match=r"pyarrow reads .*rows\.parquet, and cannot be loaded .*jumok\[data\]"):
        read(path)
