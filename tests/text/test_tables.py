"""jumok.text.read_table and from_rows: any table in, rows of clean cells out."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import tempfile
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok import text
from jumok.errors import ConfigError, TextError

ROWS = [("재미있어요", "1"), ("별로예요, 정말", "0"), ("", "1"), ('"최고"라더니', "0")]
TSV = "document\tlabel\n" + "".join(f"{document}\t{label}\n" for document, label in ROWS)


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    out = io.StringIO()
    csv.writer(out).writerows([columns, *rows])
    return out.getvalue()


def as_jsonl(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "".join(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)


def stdin(patch: pytest.MonkeyPatch, content: bytes | str) -> None:
    data = content.encode() if isinstance(content, str) else content
    patch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))


# --- One table in every form --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "encoding"),
    [
        ("a.tsv", TSV.encode(), "UTF-8"),
        ("a.tsv", TSV.encode("cp949"), "CP949"),
        ("a.tsv", TSV.encode("utf-16"), "UTF-16LE"),
        ("a.tsv", unicodedata.normalize("NFD", TSV).encode(), "UTF-8"),
        ("a.tsv", TSV.replace("\n", "\r\n").encode("cp949"), "CP949"),
        ("a.csv", as_csv(("document", "label"), ROWS).encode("cp949"), "CP949"),
        ("a.csv", as_csv(("label", "id", "document"), [(b, "7", a) for a, b in ROWS]).encode("utf-8-sig"), "UTF-8"),
        ("a.jsonl", as_jsonl(("document", "label"), ROWS).encode(), "UTF-8"),
        ("a.ndjson", as_jsonl(("label", "document"), [(b, a) for a, b in ROWS]).encode("utf-16"), "UTF-16LE"),
    ],
)
def test_the_same_rows_in_every_form_are_the_same_table(tmp_path: Path, name: str, data: bytes, encoding: str) -> None:
    table = text.read_table(write(tmp_path, name, data), ["document", "label"])
    assert table.columns == ("document", "label")
    assert table.rows == ROWS
    assert len(table) == 4
    assert table.empty_cells == 1
    assert table.sha256 == text.from_rows(["document", "label"], ROWS).sha256
    (source,) = table.sources
    assert (source.encoding, source.rows, source.bytes) == (encoding, 4, len(data))
    assert source.chars == sum(len(cell) for row in ROWS for cell in row)


def test_the_description(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", unicodedata.normalize("NFD", TSV).replace("\n", "\r\n").encode("utf-8-sig"))
    table = text.read_table(path, ["document", "label"])
    assert table.sources[0].normalised
    assert table.describe() == (
        "4 rows of document, label; empty cells: 1 in document\n"
        f"{path}: tsv, 4 rows, 24 characters, UTF-8 with BOM, CRLF newlines, normalized to NFC"
    )
    for n in range(3):
        write(tmp_path, f"folder/{n}.csv", f"label\n{n}\n")
    assert (
        text.read_table(tmp_path / "folder", "label").describe() == "3 rows of label\n3 files: 3 characters, 3 in UTF-8"
    )


def test_the_checksum_is_that_of_the_rows_as_json(tmp_path: Path) -> None:
    """It depends on the order of the columns and on the cells, not on other columns or the format of the file."""
    lines = '["document","label"]\n["재미있어요","1"]\n["별로예요, 정말","0"]\n["","1"]\n["\\"최고\\"라더니","0"]\n'
    table = text.read_table(write(tmp_path, "a.tsv", TSV), ["document", "label"])
    assert table.sha256 == hashlib.sha256(lines.encode()).hexdigest()
    assert text.read_table(tmp_path / "a.tsv", ["label", "document"]).sha256 != table.sha256
    assert text.from_rows(["a", "b"], [("가나", "다")]).sha256 != text.from_rows(["a", "b"], [("가", "나다")]).sha256


def test_names_of_columns_are_compared_composed(tmp_path: Path) -> None:
    """A decomposed header, as from macOS, looks the same, but was not found."""
    decomposed = unicodedata.normalize("NFD", "본문,분류\n가,나\n")
    for name, content in (
        ("a.csv", decomposed),
        ("a.jsonl", unicodedata.normalize("NFD", '{"본문": "가", "분류": "나"}')),
    ):
        path = write(tmp_path, name, content)
        assert text.read_table(path, ["본문", unicodedata.normalize("NFD", "분류")]).rows == [("가", "나")]
        with text.read(path, column="본문") as found:
            assert found.read().strip() == "가"


CELLS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\t\r\n가각\u1100\u1161\u0301'))


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.tuples(CELLS, CELLS), min_size=1))
def test_any_rows_survive_csv_and_jsonl(rows: list[tuple[str, str]]) -> None:
    expected = text.from_rows(["a", "b"], rows)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("a.csv", as_csv(("a", "b"), rows)), ("a.jsonl", as_jsonl(("a", "b"), rows))):
            found = text.read_table(write(Path(folder), name, content), ["a", "b"], encoding="utf-8")
            assert found.rows == expected.rows
            assert found.sha256 == expected.sha256


# --- Quotes, newlines, empty cells ----------------------------------------------------------------------------------


def test_csv_quotes_enclose_commas_quotes_and_newlines(tmp_path: Path) -> None:
    content = 'id,text\r\n1,"쉼표, ""따옴표"",\r\n줄"\r\n\r\n2,5" 화면\r\n'
    table = text.read_table(write(tmp_path, "a.csv", content), ["text", "id"])
    assert table.rows == [('쉼표, "따옴표",\n줄', "1"), ('5" 화면', "2")]


def test_a_quote_in_a_tsv_is_a_character(tmp_path: Path) -> None:
    """Film reviews begin with a stray quotation mark; a csv reader then joins all rows up to the next one."""
    content = 'document\tlabel\n"최고\t1\n그저 그렇다"\t0\n"\t1\n또 "보고"싶다\t1\n'
    table = text.read_table(write(tmp_path, "a.tsv", content), ["document", "label"])
    assert table.rows == [('"최고', "1"), ('그저 그렇다"', "0"), ('"', "1"), ('또 "보고"싶다', "1")]


def test_a_tsv_that_was_written_with_quotes_is_unquoted(tmp_path: Path) -> None:
    content = 'text\tn\n"두\n줄"\t1\n"""인용"""\t2\n'
    assert text.read_table(write(tmp_path, "a.tsv", content), ["n", "text"]).rows == [("1", "두\n줄"), ("2", '"인용"')]
    tabs = 'text\tn\n"탭\t안"\t1\n셋\t2\n'
    assert text.read_table(write(tmp_path, "a.tsv", tabs), ["text", "n"]).rows == [("탭\t안", "1"), ("셋", "2")]


# --- Several inputs -------------------------------------------------------------------------------------------------


def test_a_folder_stands_for_its_tables(tmp_path: Path) -> None:
    write(tmp_path, "b/2.tsv", "text\n둘\n")
    write(tmp_path, "a.csv", "text\n하나\n")
    write(tmp_path, "README.md", "no table")
    write(tmp_path, "b/.hidden.csv", "text\n숨은 줄\n")
    write(tmp_path, "b/empty.csv", "")
    write(tmp_path, "b/blank.csv", "\n\n")
    write(tmp_path, "b/header.csv", "text\n")
    table = text.read_table(tmp_path, "text")
    assert table.rows == [("하나",), ("둘",)]
    assert len(table.sources) == 2
    for name in ("a.csv", "b/2.tsv"):
        (tmp_path / name).unlink()
    with pytest.raises(TextError, match="only empty tables"):
        text.read_table(tmp_path, "text")
    for name in ("b/empty.csv", "b/blank.csv", "b/header.csv"):
        (tmp_path / name).unlink()
    with pytest.raises(TextError, match=r"folder with no table in it; jumok reads \.jsonl, .*\.parquet$"):
        text.read_table(tmp_path, "text")


# --- Tables that cannot be read -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "a.tsv",
            "document\tlable\n가\t1\n",
            r"a\.tsv, line 1: no column 'label'; the columns are 'document', 'lable'; did you mean 'lable'\?",
        ),
        (
            "a.tsv",
            f"{'정말 재미있는 영화였어요' * 9}\t1\n나\t0\n",
            r"'정말.{28}…', '1'; the first line must name the columns$",
        ),
        ("a.csv", "document,label\n", r"a\.csv has no rows"),
        ("a.csv", "", r"a\.csv is empty"),
        (
            "a.csv",
            "document,label\n가,1\n나, 다,1\n",
            r"a\.csv, line 3: 3 fields where the header has 2.*double quotes",
        ),
        ("a.csv", 'document,label\n가,1\n"나,1\n다,1\n', r"a\.csv, after line 2: broken quoting"),
        ("a.csv", "label,document,label\n1,가,0\n", r"the column 'label' occurs 2 times in the header; rename"),
        ("a.jsonl", "[" * 100_000 + "\n", r"line 1: not JSON"),
        ("a.jsonl", '{"document": "가", "label": [1, 2]}', r"line 1: column 'label' holds \[1, 2\], which is not text"),
        ("a.jsonl", '{"document": "\\ud83d", "label": 1}', r"line 1: U\+D83D is half of a surrogate pair"),
        ("a.jsonl", '{"document": "가"}\n{"lable": 1}\n', r"a\.jsonl: no column 'label'; .*did you mean 'lable'\?$"),
        ("a.txt", TSV, r"a\.txt is not a table, .*give \.jsonl, \.ndjson, \.csv, \.tsv, \.parquet files"),
    ],
)
def test_tables_that_cannot_be_read_say_why(tmp_path: Path, name: str, content: bytes | str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        text.read_table(write(tmp_path, name, content), ["document", "label"])


def test_questions_without_an_answer_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", TSV)
    with pytest.raises(TextError, match="no table was given"):
        text.read_table([], "document")
    with pytest.raises(ConfigError, match="name at least one"):
        text.read_table(path, [])
    with pytest.raises(ConfigError, match="name each column once"):
        text.read_table(path, ["label", "label"])


# --- Rows in memory -------------------------------------------------------------------------------------------------


def test_rows_in_memory_become_a_table() -> None:
    rows = [(unicodedata.normalize("NFD", "가\r\n나"), 1), ["다", None], ("라", True), ("마", 0.5)]
    table = text.from_rows(["본문", "n"], iter(rows), name="demo")
    assert table.columns == ("본문", "n")
    assert table.rows == [("가\n나", "1"), ("다", ""), ("라", "true"), ("마", "0.5")]
    (source,) = table.sources
    assert (source.name, source.rows, source.chars, source.bytes, source.normalised) == ("demo", 4, 14, 24, True)
    assert table.describe() == (
        "4 rows of 본문, n; empty cells: 1 in n\ndemo: 4 rows, 14 characters, UTF-8, normalized to NFC"
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "demo has no rows"),
        ([("가", "나"), ("다",)], "demo, row 2: 1 cells where a sequence of 2 cells is expected"),
        (["가나"], "demo, row 1: '가나' where a sequence of 2 cells is expected"),
        ([("가", b"x")], r"demo, row 1: column 'b' holds b'x', which is not text"),
        ([("\ud83d", "나")], r"demo, row 1: U\+D83D is half of a surrogate pair"),
    ],
)
def test_rows_that_are_none_are_refused(rows: list[tuple[object, ...]], said: str) -> None:
    with pytest.raises(TextError, match=said):
        text.from_rows(["a", "b"], rows, name="demo")


def test_columns_and_parts_of_a_table() -> None:
    table = text.from_rows(["document", "label"], ROWS)
    assert table.column("label") == ["1", "0", "1", "0"]
    assert table.column("document") == [document for document, _ in ROWS]
    with pytest.raises(TextError, match=r"no column 'lable' in this table; .*did you mean 'label'\?"):
        table.column("lable")
    for at in range(5):
        first, second = table.split(at)
        assert first.rows == ROWS[:at]
        assert second.rows == ROWS[at:]
        assert first.columns == second.columns == table.columns
        assert first.sources == second.sources == table.sources
        assert first.empty_cells + second.empty_cells == 1


def test_a_table_that_is_given_twice_is_counted_once(tmp_path: Path) -> None:
    """Each row of a copy was both trained on and held out."""
    rows = [("안녕", "1"), ("잘 가", "0")]
    first = write(tmp_path, "a.csv", as_csv(("text", "label"), rows))
    other = write(tmp_path, "b.csv", as_csv(("text", "label"), [("또 봐", "1")]))
    copy = write(tmp_path, "c.csv", first.read_bytes())
    table = text.read_table([first, other, first, copy], ["text", "label"])
    assert table.rows == [*rows, ("또 봐", "1")]
    assert [source.rows for source in table.sources] == [2, 1]
    assert table.sources[0].copies == (str(first), str(copy))
    assert table.sha256 == text.read_table([first, other], ["text", "label"]).sha256
    assert f"{copy} has the same content as {first} and is not counted again." in table.describe()


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.csv", '\ufeff"이름, 둘",text\r\n1,2\r\n', ("이름, 둘", "text")),
        ("a.csv", unicodedata.normalize("NFD", "이름,수\n"), ("이름", "수")),
        ("a.tsv", "가\t나\n", ("가", "나")),
        ("a.jsonl", '{"가": 1}\n\n{"나": 2, "가": 3}\n', ("가", "나")),
        ("a.jsonl", '{"가": 1, "\\udcff": 2}\n', ("가",)),  # a menu with it was an error in the server
    ],
)
def test_the_names_of_columns(tmp_path: Path, name: str, content: str, columns: tuple[str, ...]) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert text.column_names(path) == columns
    (tmp_path / "a.txt").write_text("가,나\n", encoding="utf-8")
    with pytest.raises(TextError, match="not a table"):
        text.column_names(tmp_path / "a.txt")
