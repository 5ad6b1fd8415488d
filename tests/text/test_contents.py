"""Texts and tables as people have them: what a file holds decides, not its name."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jumok import text
from jumok.errors import TextError
from jumok.text import hangul

ROWS = [
    {"title": "유튜브 내달 2일까지 크리에이터 지원", "label": 3},
    {"title": "어버이날 맑다가 흐려져", "label": "생활"},
]
WANTED = [("유튜브 내달 2일까지 크리에이터 지원", "3"), ("어버이날 맑다가 흐려져", "생활")]
KORQUAD = {"version": "KorQuAD_v1.0", "data": [{"title": "파우스트_서곡", "paragraphs": [{"context": "바그너는"}]}]}
PAGE = "<html><head><title>제목</title></head>\n<body><p>나는 학교에 갔다.</p></body></html>\n"


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path | str, **options: Any) -> str:
    with text.read(path, **options) as found:
        return found.read()


def stdin(monkeypatch: pytest.MonkeyPatch, content: bytes | str) -> None:
    data = content.encode() if isinstance(content, str) else content
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


def dumped(value: Any, **how: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, **how})


# --- JSON -------------------------------------------------------------------------------------------------------------

LINES = "\n".join(map(dumped, ROWS))
JSON_ROWS = {
    "a list": dumped(ROWS),
    "a list over several lines": dumped(ROWS, indent=2) + "\n",
    "lines": LINES + "\n",
    "one after another": "\n".join(dumped(row, indent=4) for row in ROWS),
    "in CP949": dumped(ROWS).encode("cp949"),
    "in UTF-16": dumped(ROWS).encode("utf-16"),
    "with CRLF": dumped(ROWS, indent=2).replace("\n", "\r\n"),
}


@pytest.mark.parametrize("form", JSON_ROWS)
@pytest.mark.parametrize("name", ["klue.json", "klue", "klue.jsonl", "klue.csv"])
def test_json_is_read_as_rows_whatever_its_name(tmp_path: Path, name: str, form: str) -> None:
    """`jumok train klue.json` learned brackets and `\\uc815`."""
    path = write(tmp_path, name, JSON_ROWS[form])
    assert text.read_table(path, ["title", "label"]).rows == WANTED
    with text.read(path, column="title") as found:
        assert found.read() == "\n".join(title for title, _ in WANTED)
        assert found.sources[0].format == "json"
    assert read(path, column="title", encoding=found.sources[0].encoding) == "\n".join(title for title, _ in WANTED)
    with pytest.raises(TextError, match=r"no column 'text'; the columns are 'title', 'label'; choose one with"):
        read(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (dumped(KORQUAD), r"no column 'text'; .*'version', 'data'.* the rows may be in 'data': save .*\.jsonl"),
        (dumped([{"text": "가"}, "나"]), "row 2: a JSON str"),
        ('[{"text": "가", "text": "나"}]', "row 1: the name 'text' occurs more than once"),
        (dumped(ROWS * 50)[:-40], r"line 1: not JSON: .*; repair the file, or copy it again"),
        (dumped(ROWS * 50)[:-1] + ",", "not JSON"),
        ("\n".join([LINES] * 9 + ["{broken"] + [LINES] * 3), r"line 19: not JSON"),
        (dumped([{"text": "\ud83d"}], ensure_ascii=True), "half of a surrogate pair"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.json"])
def test_json_that_is_no_list_of_texts_is_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        read(write(tmp_path, name, content), column="title" if "not JSON" in said else None)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (dumped(["안녕", "잘 가"]), r"row 1: a JSON str; each row must be an object"),
        ('{"text": "가"}\n["잘 가", 0]\n', "line 2: a JSON list"),
        ("[]", "has no rows"),
        ('[{"text": "가"}] 나', "line 1: not JSON: more text"),
        ('[{"text": "가"}\n{"text": "나"}]', "line 2: not JSON: ',' or ']' is missing"),
        ('[{"text": "가"},\n]', "line 2: not JSON: ',' or ']' is missing"),
        ("가나다", "line 1: not JSON"),
    ],
)
def test_other_json_is_refused_by_its_name(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        read(write(tmp_path, "a.json", content))


@pytest.mark.parametrize("form", [{}, {"indent": 1}, "lines"])
def test_json_in_tiny_blocks_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Any) -> None:
    """A value can extend over many blocks; a number or a word can be cut anywhere."""
    rows = [{"text": f'가\\"{i}\n' * (i % 7), "n": 10**i, "more": [True, None, {"a": 1.5e-3}]} for i in range(30)]
    content = "\n\n".join(map(dumped, rows)) if form == "lines" else dumped(rows, **form)
    path = write(tmp_path, "a.json", content)
    monkeypatch.setattr("jumok.text._decoding._BLOCK", 5)
    assert text.read_table(path, ["text", "n"]).rows == [(row["text"], str(row["n"])) for row in rows]
    with pytest.raises(TextError, match="not JSON"):
        text.read_table(write(tmp_path, "a.json", content[:-30]), "n")


# --- Texts that begin like something else -----------------------------------------------------------------------------

CHAT = "[홍길동] [오후 3:12] 안녕\n[김철수] [오후 3:13] 응 안녕 ㅋㅋㅋ\n[홍길동] [오후 3:15] [사진]\n"
PLAIN = {
    "chat": CHAT,
    "a poem in braces": "{산유화}\n산에는 꽃 피네\n꽃이 피네\n갈 봄 여름 없이\n{끝}",
    "a poem in angle brackets": "<산유화>\n산에는 꽃 피네\n꽃이 피네\n<끝>\n",
    "Markdown with HTML": '<p align="center"><img src="a.png"></p>\n\n# 제목\n\n<details>더 보기</details>\n',
    "Markdown in one element": '<div align="center">\n\n# 제목\n\n나는 **학교**에 갔다.\n\n<br/>\n</div>\n',
    "a program in C": "{\n  int a = 1;\n  return a;\n}\n",
    "braces": "{가, 나, 다}는 집합이고 [0, 1]은 구간이다.\n",
    "a template": "{{ 제목 }}\n{% if 본문 %}{{ 본문 }}{% endif %}\n",
    "quoted JSON first": '{"label": "긍정", "text": "좋아요"}\n위와 같은 줄이 JSON Lines이다. 줄마다 객체가 있다.\n',
    "quoted HTML": "<!DOCTYPE html>\n이 줄은 HTML 문서의 첫 줄이다.\n",
    "a quoted page": PAGE + "\n위 코드를 브라우저에서 열어 보자.\n",
    "a mail": "<hong@example.kr> 님이 씀:\n> 안녕하세요\n>",
    "a string": '"안녕"',
    "bytes of a kind": "GIF는 그림 형식이다. PDF도 있다. PK",
    "WikiExtractor": '<doc id="5">\n지미 카터\n\n카터는 정치인이다.\n</doc>\n<doc id="9">\n수학\n</doc>\n',
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("name", ["a.txt", "-"])
def test_texts_that_only_begin_like_json_or_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str
) -> None:
    if name == "-":
        stdin(monkeypatch, PLAIN[kind])
    path = "-" if name == "-" else write(tmp_path, name, PLAIN[kind])
    with text.read(path) as found:
        assert found.read() == PLAIN[kind]
        assert found.sources[0].format == "text"


def test_a_string_is_the_text_itself() -> None:
    """A string was named as a text by its author; only files are judged by their content."""
    for string in (dumped(ROWS), PAGE, "%PDF-1.7\n", LINES, "{\\rtf1 가}"):
        with text.from_string(string) as found:
            assert found.read() == string
    with pytest.raises(TextError, match="is empty"):
        text.from_string("")


# --- Markup -----------------------------------------------------------------------------------------------------------

MARKUP = {
    "HTML": (PAGE, "an HTML page"),
    "HTML in capitals": ("\n <!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>" + PAGE.upper(), "an HTML page"),
    "HTML after a comment": ("<!-- saved from url=(0019)https://a.kr/ -->\n" + PAGE, "an HTML page"),
    "XHTML": ('<?xml version="1.0"?><!DOCTYPE html>' + PAGE, "an XML document"),
    "XML": ('<?xml version="1.0" encoding="UTF-8"?>\n<SJML><s>가</s></SJML>', "an XML document"),
    "SAMI": ("<SAMI>\n<BODY>\n<SYNC Start=1><P Class=KRCC>안녕\n</BODY>\n</SAMI>", "SAMI subtitles"),
}


@pytest.mark.parametrize("kind", MARKUP)
@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
def test_markup_is_refused_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, codec: str
) -> None:
    content, said = MARKUP[kind]
    data = content.encode(codec)
    for name in ("a.txt", "a.html", "a.csv", "a.jsonl"):
        path = write(tmp_path, name, data)
        with pytest.raises(TextError, match=f"{name} is {said}; save it as plain text first"):
            read(path)
        with pytest.raises(TextError, match=said):
            read(path, encoding=codec)
        with pytest.raises(TextError, match=said):
            text.read_table(path, "text")
    stdin(monkeypatch, data)
    with pytest.raises(TextError, match=f"<stdin> is {said}"):
        read("-")


# --- Documents and archives -------------------------------------------------------------------------------------------


def docx() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    return data.getvalue()


DOCUMENTS = {
    "PDF": (b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n", "a PDF document"),
    "docx": (docx(), "a zip archive"),
    "hwp": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), r"\.hwp"),
    "RTF": (rb"{\rtf1\ansi\ansicpg949 \'b0\'a1\par}", "an RTF document"),
    "Parquet": (b"PAR1\x15\x04\x15\x10\x15\x14L\x15\x02\x15\x00\x12", "a Parquet table; name it .parquet"),
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_documents_are_refused_under_any_name_and_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    data, said = DOCUMENTS[kind]
    for name in ("a.txt", "a.csv", "a.jsonl", "a"):
        path = write(tmp_path, name, data)
        for options in ({}, {"encoding": "latin-1"}):
            with pytest.raises(TextError, match=f"looks binary .*{said}"):
                read(path, **options)
            with pytest.raises(TextError, match=f"looks binary .*{said}"):
                text.read_table(path, "text", **options)
    stdin(monkeypatch, data)
    with pytest.raises(TextError, match=f"<stdin> looks binary .*{said}"):
        read("-")


# --- Syllables that are spelled ---------------------------------------------------------------------------------------

RARE = "뷁과 똠방각하, 펲시콜라를 마신 햏자. 뢔! 힣 쓩 ㅋㅋㅋ ㅠㅠ 그리고 아햏햏하는 나는 이 영화를 보고 갔다.\n"


@pytest.mark.parametrize("encoding", [None, "euc-kr", "ms949"])
@pytest.mark.parametrize("times", [1, 300])
def test_syllables_that_python_spells_in_euc_kr_are_joined(tmp_path: Path, encoding: str | None, times: int) -> None:
    """뷁 is a filler, ㅂ, ㅞ and ㄺ in EUC-KR, and was four characters."""
    data = (RARE * times).encode("euc_kr")
    assert b"\xa4\xd4\xa4\xb2\xa4\xce\xa4\xaa" in data
    path = write(tmp_path, "a.txt", data)
    assert read(path, encoding=encoding) == RARE * times
    table = write(tmp_path, "a.csv", f"text,label\n{RARE.strip().replace(',', '')},뷁\n".encode("euc_kr"))
    assert text.read_table(table, "label", encoding=encoding).rows == [("뷁",)]


@pytest.mark.parametrize("block", [1, 3, 1 << 20])
def test_all_syllables_in_blocks_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Python's own codec for EUC-KR is the reference."""
    monkeypatch.setattr("jumok.text._decoding._BLOCK", block)
    string = hangul.modern_syllables()[:: 1 if block > 64 else 37]
    data = string.encode("euc_kr")
    assert read(write(tmp_path, "a.txt", data), encoding="euc-kr") == data.decode("euc_kr") == string


@pytest.mark.parametrize(
    "string",
    [
        "ㅋㅋㅋ ㅠㅠ ㅇㅈ ㄹㅇ ㅂㅞㄺ",
        "\u3164",
        "닉네임: \u3164\u3164\u3164",
        "\u3164ㅂㅞ 가",
        "\u3164ㄸㅗㄸ",
    ],
)
def test_jamo_and_fillers_that_are_meant_stay(tmp_path: Path, string: str) -> None:
    prose = "나는 이 영화를 보고 집에 갔다. "
    for codec, encoding in (("cp949", None), ("cp949", "euc-kr"), ("utf-8", None)):
        assert read(write(tmp_path, "a.txt", (prose + string).encode(codec)), encoding=encoding) == prose + string


# --- Encodings of seven bits ------------------------------------------------------------------------------------------

PROSE = "나 보기가 역겨워\n가실 때에는\n말없이 고이 보내 드리우리다.\n영변에약산진달래꽃아름따다가실길에뿌리우리다.\n"
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n"
CHINESE = "我与父亲不相见已二年余了，我最不能忘记的是他的背影。\n"


@pytest.mark.parametrize("string", [PROSE, "나보기가역겨워가실때에는말없이고이보내드리우리다" * 20])
@pytest.mark.parametrize("block", [3, 1 << 20])
def test_iso_2022_kr_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, string: str, block: int) -> None:
    """A long run of Hangul in ISO-2022-KR was read as UTF-8: as `0!=G`, without a word."""
    monkeypatch.setattr("jumok.text._decoding._BLOCK", block)
    path = write(tmp_path, "a.txt", b"Subject: hello\n" + string.encode("iso2022_kr"))
    with text.read(path) as found:
        assert found.read() == "Subject: hello\n" + string
        assert found.sources[0].encoding == "ISO-2022-KR"
    assert read(path, encoding="ISO-2022-KR") == "Subject: hello\n" + string


def test_iso_2022_kr_of_java_and_without_a_header(tmp_path: Path) -> None:
    """Java repeats the header on each line and does not shift back at the end."""
    java = PROSE.rstrip("\n").encode("iso2022_kr").replace(b"\n", b"\n\x1b$)C").removesuffix(b"\x0f")
    assert read(write(tmp_path, "a.txt", java)) == PROSE.rstrip("\n")
    assert read(write(tmp_path, "a.txt", b"Subject: hello\n\n" + java)) == "Subject: hello\n\n" + PROSE.rstrip("\n")
    part = PROSE.encode("iso2022_kr").removeprefix(b"\x1b$)C")
    with pytest.raises(TextError, match="looks binary"):
        read(write(tmp_path, "a.txt", part))
    assert read(write(tmp_path, "a.txt", part), encoding="iso-2022-kr") == PROSE


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b$)A\x0e" + bytes(byte & 0x7F for byte in CHINESE.strip().encode("gb2312")) + b"\x0f",  # ISO-2022-CN
        JAPANESE.encode("iso2022_jp"),
        b"\x1b$)C\x0e0!0",
        PROSE.encode("iso2022_kr") + b"\x0e0!0",
        b"\x1b$Z what is this",
    ],
)
def test_other_iso_2022_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TextError, match=r"looks like ISO 2022 .*encoding=NAME.*UTF-8"):
        read(write(tmp_path, "a.txt", data))


@pytest.mark.parametrize(
    "string",
    [
        "1+1=2, a+b=c, C++ and +82-10-1234-5678, +AOk- in RFC 2152",
        "~{a} and \\ref~{b}, ~{~}",
        "\x1b[31mred\x1b[0m text",
        "a line with a stray shift: \x0e and more text, long enough to have few control characters",
        "Hello+World+Bar base64: 7KCV7LmYLOuCmOuKlA==",
    ],
)
def test_ascii_that_looks_a_little_like_them_stays(tmp_path: Path, string: str) -> None:
    with text.read(write(tmp_path, "a.txt", string)) as found:
        assert found.read() == string
        assert found.sources[0].encoding == "UTF-8"


# --- Characters that are equal ----------------------------------------------------------------------------------------


def test_equal_characters_become_one(tmp_path: Path) -> None:
    """As docs/data.md says. KS X 1001 has 樂 four times, once for each reading; Unicode declares them to be one."""
    for given, wanted in {
        "\uf914\uf95c\uf9bf樂": "樂樂樂樂",
        "\u212b\u2126\u212a": "ÅΩK",
        "\u037e\u0387": ";·",
        "가\u2000\u2001": "가\u2002\u2003",
        "\u1112\u1161\u11ab": "한",
    }.items():
        with text.read(write(tmp_path, "a.txt", given)) as found:
            assert found.read() == wanted
            assert found.sources[0].normalised
            assert "normalized to NFC" in found.describe()
    kept = "漢字 😀 ㄱㄴㅏ ㈜ ㎏ Ａ１ ﬁ ½ ① \u3164 ᄒᆞᆫ글 \u2011\u00a0\ufe0f"
    with text.read(write(tmp_path, "a.txt", kept)) as found:
        assert found.read() == kept
        assert not found.sources[0].normalised


# --- Numbers as cells -------------------------------------------------------------------------------------------------


class NAType:
    """As pandas has it: neither equal to itself nor unequal."""

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")


NAN = float("nan")


def test_numbers_in_rows() -> None:
    cells = [1.0, -0.0, 2.5, 1e300, True, NAN, None, NAType(), "1.0", "NaN", np.float32(1), np.float64("nan")]
    column = text.from_rows("n", [(cell,) for cell in cells]).column("n")
    assert column == ["1", "0", "2.5", "1e+300", "true", "", "", "", "1.0", "NaN", "1", ""]
    with pytest.raises(TextError, match=r"표, row 2: column 'n' holds -inf, which is not a finite number"):
        text.from_rows(["a", "n"], [("가", 1), ("나", float("-inf"))], name="표")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_numbers_in_json(tmp_path: Path, name: str) -> None:
    rows = [{"text": "가", "n": 1.0}, {"text": "나", "n": NAN}, {"text": NAN, "n": 0.0}, {"text": None, "n": 1}]
    content = dumped(rows) if name == "a.json" else "\n".join(map(dumped, rows))
    path = write(tmp_path, name, content)
    table = text.read_table(path, ["text", "n"])
    assert table.rows == [("가", "1"), ("나", ""), ("", "0"), ("", "1")]
    assert table.empty_cells == 3
    assert read(path) == "가\n나"
    for word in ("Infinity", "-Infinity"):
        where = "row" if name == "a.json" else "line"
        write(tmp_path, name, content.replace("NaN", word, 1))
        with pytest.raises(TextError, match=rf"{where} 2: column 'n' holds -?inf, which is not a finite number"):
            text.read_table(path, ["text", "n"])
        with pytest.raises(TextError, match=rf"{where} 1: column 'n' holds 1.0, which is not text"):
            read(path, column="n")


# --- Delimiters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [";", "|", "\t", ","])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "-"])
def test_a_table_with_another_delimiter_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, delimiter: str
) -> None:
    """A spreadsheet program of many countries writes semicolons under .csv."""
    rows = [("재미있어요", "1"), ("별로, 정말; 별로 | 그래요", "0"), ('"최고"라더니', "")]
    content = io.StringIO()
    csv.writer(content, delimiter=delimiter).writerows([("id", "document", "label"), *(("7", *row) for row in rows)])
    for data in (content.getvalue().encode(), content.getvalue().encode("cp949")):
        if name == "-":
            stdin(monkeypatch, data)
        path = "-" if name == "-" else write(tmp_path, name, data)
        assert text.read_table(path, ["document", "label"]).rows == rows
        if name == "-":
            stdin(monkeypatch, data)
        assert read(path, column="document") == "\n".join(row for row, _ in rows)


@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_a_wrong_column_lists_those_of_the_other_delimiter(tmp_path: Path, delimiter: str) -> None:
    path = write(tmp_path, "a.csv", delimiter.join(["id", "document"]) + "\n" + delimiter.join(["1", "가"]) + "\n")
    with pytest.raises(TextError, match=r"no column 'documents'; .*columns are 'id', 'document'; did you mean"):
        text.read_table(path, "documents")
    with pytest.raises(TextError, match=r"columns are 'id', 'document'; .*choose one"):
        read(path)


# --- The lines of a file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("가\n나\n", ["가", "나"]),
        ("가\n나", ["가", "나"]),
        ("\n가\n\n \t\n나\n", ["", "가", "", "", "나"]),
        ("가\n\n", ["가", ""]),
        ("  가 \n", ["  가 "]),
    ],
)
def test_each_line_is_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, wanted: list[str], newline: str
) -> None:
    data = content.replace("\n", newline)
    assert text.read_column(write(tmp_path, "a.txt", data), "text") == wanted
    stdin(monkeypatch, data)
    assert text.read_column("-", "text", table=False) == wanted
