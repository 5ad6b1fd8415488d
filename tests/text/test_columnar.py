"""Parquet and Arrow files: one column as a text, several as a table, and what is wrong with them."""

from __future__ import annotations

import builtins
import json
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jumok.errors import TextError
from jumok.text import read, read_table

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ipc = pytest.importorskip("pyarrow.ipc")

ROWS = {"text": ["바람이 불었다.", "", "비가\r\n왔다.", None, "눈이 왔다."], "label": [1, 0, 1, 0, None]}
TEXT = "바람이 불었다.\n비가\n왔다.\n눈이 왔다."


def as_parquet(path: Path, table: Any) -> Path:
    parquet.write_table(table, path, row_group_size=2)
    return path


def as_stream(path: Path, table: Any) -> Path:
    with ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def as_arrow_file(path: Path, table: Any) -> Path:
    with ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def write(path: Path, columns: Any) -> Path:
    return as_parquet(path, pa.table(columns))


@pytest.fixture(params=[as_parquet, as_stream, as_arrow_file], ids=lambda f: f.__name__)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Any], Path]:
    name = "rows.parquet" if request.param is as_parquet else "rows.arrow"
    return lambda columns: request.param(tmp_path / name, pa.table(columns))


def dataset(folder: Path, parts: int = 2) -> Path:
    """As `datasets.Dataset.save_to_disk` writes it."""
    folder.mkdir(parents=True)
    files = [f"data-{number:05}-of-{parts:05}.arrow" for number in range(parts)]
    for number, name in enumerate(files):
        as_stream(folder / name, pa.table({"text": [f"{number}번째 글", "둘째 글"]}))
    (folder / "dataset_info.json").write_text("{}", encoding="utf-8")
    state = {"_data_files": [{"filename": name} for name in files], "_split": None}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


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


# --- folders of datasets ----------------------------------------------------------------------------------------------


def test_a_saved_dataset_is_read_in_order_and_without_its_caches(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "글", parts=12)
    as_stream(folder / "cache-1234.arrow", pa.table({"text": ["캐시"]}))
    expected = "\n\n".join(f"{number}번째 글\n둘째 글" for number in range(12))
    assert read(folder).read() == read(tmp_path).read() == expected


def test_a_dataset_of_several_splits_asks_for_one(tmp_path: Path) -> None:
    for split in ("train", "test"):
        dataset(tmp_path / "data" / split)
    (tmp_path / "data" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    with pytest.raises(TextError, match=r"with the splits test, train; name the folder of one, .*test"):
        read(tmp_path / "data")
    assert read(tmp_path / "data" / "train").sources


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


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("content", [b"PAR1", "text\n글\n".encode() * 9, b"\0" * 100])
def test_another_format_under_this_suffix(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(content)
    with pytest.raises(TextError, match=rf"rows\.{suffix} cannot be read as {suffix}: .*; was it copied"):
        read(path)


def test_a_truncated_file(stored: Callable[[Any], Path]) -> None:
    """At any byte: an error that names the file, but never a part of the text."""
    path = stored({"text": [f"글 {number}번" for number in range(40)]})
    whole = path.read_bytes()
    end = len(whole) - (8 if whole[-4:] == b"\0\0\0\0" else 0)  # a stream may lack its end mark
    for size in (*range(1, end, max(1, end // 40)), end - 1):
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


def test_offsets_beyond_the_data_are_refused(tmp_path: Path) -> None:
    """A changed byte in the offsets of a column of strings ended the process: pyarrow reads them without a check."""
    path = as_stream(tmp_path / "rows.arrow", pa.table({"text": ["가나다", "라마"]}))
    good = struct.pack("<3i", 0, 9, 15)
    assert path.read_bytes().count(good) == 1
    path.write_bytes(path.read_bytes().replace(good, struct.pack("<3i", 0, 2**30, 2**30 + 6)))
    with pytest.raises(TextError, match="cannot be read as arrow"):
        read(path, column="text")
