"""jumok.text: any encoding in, one text out."""

from __future__ import annotations

import codecs
import errno
import hashlib
import io
import json
import os
import random
import sys
import tempfile
import threading
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok import text
from jumok.errors import TextError
from jumok.text import _inputs, _text
from jumok.text.boundaries import starts_anew

POEM = "나 보기가 역겨워\n가실 때에는\n말없이 고이 보내 드리우리다.\n\n영변에 약산\n진달래꽃 (1925)\n"
NFD = unicodedata.normalize("NFD", POEM)
FORMS = {
    "UTF-8": POEM.encode(),
    "UTF-8 with BOM": POEM.encode("utf-8-sig"),
    "UTF-16LE with BOM": codecs.BOM_UTF16_LE + POEM.encode("utf-16-le"),
    "UTF-16BE with BOM": codecs.BOM_UTF16_BE + POEM.encode("utf-16-be"),
    "UTF-16LE": POEM.encode("utf-16-le"),
    "UTF-16BE": POEM.encode("utf-16-be"),
    "UTF-32LE with BOM": codecs.BOM_UTF32_LE + POEM.encode("utf-32-le"),
    "UTF-32BE with BOM": codecs.BOM_UTF32_BE + POEM.encode("utf-32-be"),
    "UTF-32LE": POEM.encode("utf-32-le"),
    "CP949": POEM.encode("cp949"),
    "CP949, as EUC-KR": POEM.encode("euc_kr"),
    "UTF-8, NFD": NFD.encode(),
    "UTF-16LE, NFD": NFD.encode("utf-16-le"),
    "UTF-8, CRLF": POEM.replace("\n", "\r\n").encode(),
    "UTF-8, CR": POEM.replace("\n", "\r").encode(),
    "CP949, CRLF": POEM.replace("\n", "\r\n").encode("cp949"),
    "UTF-16LE, CRLF": POEM.replace("\n", "\r\n").encode("utf-16-le"),
}


def write(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def one(path: Path | str, **options: object) -> tuple[str, text.Source]:
    with text.read([path], **options) as found:  # type: ignore[arg-type]
        return found.read(), found.sources[0]


# --- One text in every form -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_same_text_in_every_form_is_the_same_text(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, "poem.txt", FORMS[form])
    with text.read([path]) as found:
        assert found.read() == POEM
        assert found.chars == len(POEM)
        assert found.utf8_bytes == len(POEM.encode())
        assert found.sha256 == hashlib.sha256(POEM.encode()).hexdigest()
        (source,) = found.sources
    assert source.encoding == form.split(",")[0].removesuffix(" with BOM")
    assert source.bom == form.endswith("BOM")
    assert source.normalised == ("NFD" in form)
    assert source.newlines == ("\r\n" if "CRLF" in form else "\r" if form.endswith("CR") else "\n")
    assert (source.bytes, source.chars, source.guessed) == (len(FORMS[form]), len(POEM), False)


@pytest.mark.parametrize("block", [1, 3, 64])
def test_a_character_cut_by_a_block_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """A detector that decodes the first N bytes would report a character that is cut at their end as invalid."""
    monkeypatch.setattr("jumok.text._decoding._BLOCK", block)
    for form, data in FORMS.items():
        assert one(write(tmp_path, "poem.txt", data))[0] == POEM, form


def test_describe_says_what_was_found(tmp_path: Path) -> None:
    path = write(tmp_path, "novels.txt", unicodedata.normalize("NFD", "가나다\r\n라").encode("utf-8-sig"))
    with text.read(path) as found:
        assert found.describe() == (f"{path}: 5 characters, UTF-8 with BOM, CRLF newlines, normalized to NFC")
    for n in range(3):
        write(tmp_path, f"folder/{n}.txt", f"{n}\n{POEM}".encode("cp949" if n else "utf-8"))
    with text.read([tmp_path / "folder"]) as found:
        assert found.describe() == f"3 files: {found.chars:,} characters, 2 in CP949, 1 in UTF-8"


def test_mixed_and_absent_newlines_are_reported(tmp_path: Path) -> None:
    assert one(write(tmp_path, "a.txt", "가\r\n나\n다\r라"))[0] == "가\n나\n다\n라"
    assert one(write(tmp_path, "a.txt", "가\r\n나\n다"))[1].newlines == "mixed"
    assert one(write(tmp_path, "a.txt", "가"))[1].newlines == ""


# --- Normal form and newlines, chunk by chunk -------------------------------------------------------------------

TRICKY = st.text(
    st.sampled_from(
        "aéÅ가각か漢😀ㄱㅏ\n\r "
        "\u1100\u1112\u1160\u1161\u11a8\u11ab\u119e\ua960\ud7b0"  # jamo, old ones too
        "\u0300\u0301\u0308\u0327\u0338\u3099\u0d46\u0d3e"  # what composes elsewhere
    )
    | st.characters(exclude_categories=["Cs"])
)


@settings(max_examples=60)
@given(TRICKY.filter(lambda s: s.strip() and not set("\0[{<") & set(s)), st.integers(1, 9))  # no JSON, no markup
def test_reading_in_tiny_blocks_equals_normalising_the_whole(string: str, block: int) -> None:
    data = io.BytesIO(string.encode())
    whole = unicodedata.normalize("NFC", string.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    if not whole.strip():
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jumok.text._decoding._BLOCK", block)
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=data))
        with text.read("-", encoding="utf-8") as found:
            assert found.read() == whole
            assert found.sources[0].normalised == (
                whole != string.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
            )


@pytest.mark.slow
def test_no_safe_start_ever_composes_with_what_is_before_it() -> None:
    """For all of Unicode: the second character of a canonical composition does not start anew."""
    seconds, first_of = set(), {}
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        mapping = unicodedata.decomposition(char)
        if mapping and not mapping.startswith("<"):
            pair = [chr(int(part, 16)) for part in mapping.split()]
            first_of[char] = unicodedata.normalize("NFD", char)[0]
            if len(pair) == 2:
                seconds.add(pair[1])
    seconds |= {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
    for code in (*range(0xD800), *range(0xE000, sys.maxunicode + 1)):
        char = chr(code)
        if starts_anew(char):
            first = first_of.get(char, char)
            assert first not in seconds, hex(code)
            assert unicodedata.combining(first) == 0, hex(code)


# --- Traps of detection -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "string", ["안녕", "컨저링노답", "소설을 읽다", "가", "ㅋ" * 60, "朝鮮의 獨立國임과 朝鮮人의 自主民임을 宣言하노라"]
)
def test_cp949_is_taken_for_no_other_encoding(tmp_path: Path, string: str) -> None:
    """A short text is valid UTF-16, mostly Hangul; a line of ㅋ was Big5, and Hanja are in other encodings, too."""
    found, source = one(write(tmp_path, "a.txt", string.encode("cp949")))
    assert (found, source.encoding) == (string, "CP949")


JAPANESE = (
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。ニャーニャー泣いていた事だけは覚えている。\n"
)
CHINESE = "我与父亲不相见已二年余了，我最不能忘记的是他的背影。那年冬天，祖母死了，父亲的差使也交卸了。\n"
FRENCH = "Il était une fois une petite fille qui préférait les forêts à l'été déjà passé. Où êtes-vous allés ?\n"
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему.\n"


@pytest.mark.parametrize(
    ("string", "codec"),
    [(JAPANESE, "shift_jis"), (JAPANESE, "euc_jp"), (CHINESE, "gb18030"), (FRENCH, "latin-1"), (RUSSIAN, "cp1251")],
)
@pytest.mark.parametrize("times", [2, 100])
def test_foreign_encodings_are_guessed_and_said_to_be(tmp_path: Path, string: str, codec: str, times: int) -> None:
    """GB 2312 without the lead byte 0xC9 is valid CP949: a meaningless sequence of Hangul and Hanja."""
    found, source = one(write(tmp_path, "a.txt", (string * times).encode(codec)))
    assert found == string * times
    assert source.guessed
    assert "guess" in source.describe()


# --- --encoding -------------------------------------------------------------------------------------------------


def test_encoding_overrides_the_detection(tmp_path: Path) -> None:
    assert one(write(tmp_path, "a.txt", POEM.encode("johab")), encoding="johab")[0] == POEM
    assert one(write(tmp_path, "a.txt", b"caf\xe9"), encoding="latin-1")[0] == "café"
    assert one(write(tmp_path, "a.txt", POEM.encode("utf-8-sig")), encoding="UTF8") == one(tmp_path / "a.txt")
    for codec in ("utf-16-le", "utf-16-be", "utf-16"):
        path = write(tmp_path, "a.txt", POEM.encode(codec))
        assert one(path, encoding="utf-16")[0] == POEM
    assert one(write(tmp_path, "a.txt", POEM.encode("utf-16")), encoding="utf-16-le")[0] == POEM
    assert one(write(tmp_path, "a.txt", "똠방".encode("cp949")), encoding="euc-kr")[0] == "똠방"


def test_nul_is_text_only_where_the_person_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "안녕\0하세요".encode())
    with pytest.raises(TextError, match=r"looks binary: byte offset 6 is NUL.*encoding=NAME"):
        text.read([path])
    assert one(path, encoding="utf-8")[0] == "안녕\0하세요"
    late = write(tmp_path, "b.txt", ("안녕 " * 100_000).encode() + b"\0")
    with pytest.raises(TextError, match=r"byte offset 700,000 is NUL"):
        text.read([late])


@pytest.mark.parametrize(
    ("given_name", "near"), [("cp499", "cp949"), ("uft-8", "utf_8"), ("klingon", "johab"), ("rot13", "")]
)
def test_unknown_encoding_names_what_is_near(tmp_path: Path, given_name: str, near: str) -> None:
    with pytest.raises(TextError, match=f"unknown encoding '{given_name}'.*{near}"):
        text.read([write(tmp_path, "a.txt", POEM)], encoding=given_name)


def test_encoding_that_does_not_fit_is_refused_with_the_offset(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", b"ok " + "가".encode("cp949"))
    with pytest.raises(TextError, match=r"a\.txt is not UTF-8, the encoding that was given: byte offset 3 holds 0xb0"):
        text.read([path], encoding="utf-8")


# --- Broken and binary ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_one_bad_byte_at_the_end_of_utf_8_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """The error names UTF-8 and the offset; the file is neither read as CP949 nor reported as unknown."""
    monkeypatch.setattr("jumok.text._decoding._BLOCK", block)
    for good in (POEM, POEM * 20, "안녕하세요"):
        path = write(tmp_path, "a.txt", good.encode() + b"\xff")
        with pytest.raises(TextError, match=rf"a\.txt is not UTF-8: byte offset {len(good.encode()):,} holds 0xff"):
            text.read([path])


def test_broken_cp949_is_named_as_such(tmp_path: Path) -> None:
    good = (POEM * 5).encode("cp949")
    with pytest.raises(TextError, match=rf"is not CP949: byte offset {len(good)} holds 0xff"):
        text.read([write(tmp_path, "a.txt", good + b"\xff" + good)])


def test_what_fits_nothing_is_refused_with_both_offsets(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"neither UTF-8 nor CP949.* offset 6 holds 0xff.* offset 6.*encoding=NAME"):
        text.read([write(tmp_path, "a.txt", b"hello \xff\x81\xfe")])
    noise = random.Random(1)
    data = bytes(noise.choice([*range(0x80, 0x100), *range(0x20, 0x7F)]) for _ in range(400))
    with pytest.raises(TextError, match=r"neither UTF-8 nor CP949"):
        text.read([write(tmp_path, "a.txt", data)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (random.Random(0).randbytes(1 << 17), "binary"),
        (b"abc\x01\x02\x03\x04\x05\x06 def", "control characters"),
        ("가".encode("utf-8-sig") + b"\0", "NUL"),
    ],
)
def test_binary_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TextError, match=rf"looks binary.*{said}|looks {said}"):
        text.read([write(tmp_path, "a.txt", data)])


# --- Files, folders, standard input -----------------------------------------------------------------------------


def test_a_single_file_comes_through_unchanged(tmp_path: Path) -> None:
    for content in ("\n\n가\n\n\n", "가", " 가 \t\n", "가\u2028나\x0c다\ufeff\n"):
        assert one(write(tmp_path, "a.txt", content))[0] == content


def test_files_are_parted_by_exactly_one_blank_line(tmp_path: Path) -> None:
    paths = [write(tmp_path, f"{n}.txt", content) for n, content in enumerate(("가\n\n\n\n", "\n나", "다\n", "라\n\n"))]
    with text.read(paths) as found:
        assert found.read() == "가\n\n\n나\n\n다\n\n라\n\n"
        assert found.sha256 == hashlib.sha256(found.read().encode()).hexdigest()


def test_a_folder_is_read_sorted_without_hidden_and_empty_files(tmp_path: Path) -> None:
    write(tmp_path, "b/2.md", "넷")
    write(tmp_path, "b/10.TXT", "셋")
    write(tmp_path, "a.jsonl", '{"text": "둘"}')
    write(tmp_path, "a.csv", "id,text\n1,하나\n")
    for name in ("b/.hidden.txt", ".git/x.txt", "b/c.py", "b/blob.bin"):
        write(tmp_path, name, b"\xff\x00\xff")
    write(tmp_path, "b/empty.txt", "")
    write(tmp_path, "0.txt", " \n\n")
    with text.read([tmp_path]) as found:
        assert found.read() == "하나\n\n둘\n\n셋\n\n넷"
        assert [Path(source.name).name for source in found.sources] == ["a.csv", "a.jsonl", "10.TXT", "2.md"]


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "x.py", "print()")
    with pytest.raises(TextError, match=r"folder with no text in it; jumok reads \.txt.*\.tsv"):
        text.read([tmp_path])
    write(tmp_path, "x.txt", "")
    with pytest.raises(TextError, match="only empty and blank files"):
        text.read([tmp_path])


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ('id,review\n1,"가, 나"\n2,다\n', "csv"),
        ("id\treview\n1\t가, 나\n2\t다\n", "tsv"),
        ('\n{"id": 1, "review": "가, 나"}\n{"id": 2, "review": "다"}\n', "json"),
        ("review\n가, 나\n다\n", "tsv"),
    ],
)
def test_standard_input_is_a_table_where_a_column_is_named(
    monkeypatch: pytest.MonkeyPatch, content: str, format: str
) -> None:
    """`cat reviews.csv | jumok train - --column review` was refused. Without a column, JSON asks for one."""
    for data in (content.encode(), content.encode("cp949")):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        found, source = one("-", column="review")
        assert (found, source.name, source.format) == ("가, 나\n다", "<stdin>", format)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))
    if format == "json":
        with pytest.raises(TextError, match="the columns are 'id', 'review'"):
            one("-")
    else:
        assert one("-")[0] == content


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_read_although_it_cannot_seek(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(POEM.encode("cp949"),))
    writer.start()
    assert one(pipe)[0] == POEM
    writer.join()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_device_is_refused(tmp_path: Path) -> None:
    """It was read without end; in a folder, pipes and devices are no files."""
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(TextError, match="/dev/zero is a device"):
        text.read("/dev/zero")
    with pytest.raises(TextError, match="is a folder with no text in it"):
        text.read(tmp_path)
    (tmp_path / "poem.txt").write_text(POEM, encoding="utf-8")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    assert [source.name for source in text.read(tmp_path).sources] == [str(tmp_path / "poem.txt")]


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    write(tmp_path, "novel.txt", POEM)
    with pytest.raises(TextError, match=r"novle\.txt does not exist; did you mean 'novel\.txt'\?"):
        text.read([tmp_path / "novle.txt"])
    with pytest.raises(TextError, match=r"zzz does not exist$"):
        text.read([tmp_path / "zzz"])
    with pytest.raises(TextError, match=r"its folder .*nowhere: No such file"):
        text.read([tmp_path / "nowhere" / "novel.txt"])
    with pytest.raises(TextError, match="does not exist"):
        text.read(["가" * 5000])


def test_a_name_typed_composed_finds_the_file_of_a_mac(tmp_path: Path) -> None:
    """A folder copied from macOS has decomposed names, which look the same, but were not found."""
    write(tmp_path, unicodedata.normalize("NFD", "소설.txt"), POEM)
    assert one(tmp_path / "소설.txt")[0] == POEM


@pytest.mark.parametrize(("content", "said"), [("", "is empty"), (" \r\n\t", "white space"), ("\ufeff", "white space")])
def test_empty_and_blank_files_are_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(TextError, match=rf"a\.txt .*{said}"):
        text.read([write(tmp_path, "a.txt", content)])
    with pytest.raises(TextError, match="column 'text' was given for plain text"):
        text.read([write(tmp_path, "b.txt", POEM)], column="text")
    with pytest.raises(TextError, match="no text was given"):
        text.read([])


# --- Columns ----------------------------------------------------------------------------------------------------


def test_jsonl_gives_its_text_column(tmp_path: Path) -> None:
    rows = [{"text": value} for value in ("한\u2028줄", "두\r\n줄", "", None, "ᄀ", "ᅡ")]
    content = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n\r\n"
    found, source = one(write(tmp_path, "a.jsonl", content.encode("utf-8-sig")))
    assert found == "한\u2028줄\n두\n줄\nᄀ\nᅡ"
    assert (source.format, source.bom, source.newlines) == ("json", True, "\r\n")
    assert one(write(tmp_path, "b.jsonl", '{"body": "가", "n": 1}'), column="body")[0] == "가"
    with pytest.raises(TextError, match=r"c\.jsonl, line 2: no column 'text'; the columns are 'txt'"):
        one(write(tmp_path, "c.jsonl", '{"text": "가"}\n{"txt": "나"}\n'))


# --- The text itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_memory", [1, 64 << 20])
def test_chunks_and_slices_behave_like_a_string(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(_inputs, "IN_MEMORY", in_memory)
    letters = random.Random(3)
    string = "".join(letters.choice("가a😀漢\n 각é") for _ in range(3 * _text._STRIDE + 17))
    path = write(tmp_path, "a.txt", string)
    with text.read(path) as found:
        for start, stop in ((0, None), (4095, 4097), (9, 5), (-20, -3), (0, 10**9), (12305, None)):
            assert found.read(start, stop) == string[start:stop]
            for size in (1000, 4096, 1 << 20):
                pieces = list(found.chunks(start, stop, size))
                assert "".join(pieces) == string[start:stop]
                assert all(len(piece) == size for piece in pieces[:-1])
        first, second = found.chunks(size=100), found.chunks(50, size=100)
        assert [next(first), next(second), next(first)] == [string[:100], string[50:150], string[100:200]]
        with pytest.raises(ValueError, match="size=0"):
            next(found.chunks(size=0))


def test_a_large_text_lives_on_disk_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = tempfile.TemporaryFile

    def recorded(*args: object, **options: object) -> object:
        made.append(real(*args, **options))  # type: ignore[call-overload]
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", recorded)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_inputs, "IN_MEMORY", 10_000)
    path = write(tmp_path, "a.txt", POEM * 1000)
    found = text.read(path)
    assert len(made) == 1
    assert found.read() == POEM * 1000
    del found
    assert made[0].closed
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("stdin", [False, True])
def test_a_full_disk_is_said_to_be_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stdin: bool) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda **_: Full())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"text")))
    with pytest.raises(TextError, match=r"cannot be written to .*No space left on device.*TMPDIR"):
        text.read("-" if stdin else write(tmp_path, "a.txt", POEM * 200))


def test_a_string_becomes_a_text() -> None:
    with text.from_string("\ufeff" + NFD.replace("\n", "\r\n"), name="poem") as found:
        assert (found.read(), found.sources[0].name) == (POEM, "poem")
    with pytest.raises(TextError, match="<string> is empty"):
        text.from_string("")
    with pytest.raises(TextError, match=r"<string>: U\+DC80 is half of a surrogate pair"):
        text.from_string("가\udc80")
    with text.from_string("가\0나") as found:
        assert found.read() == "가\0나"


# --- The same text twice ----------------------------------------------------------------------------------------


def test_a_text_that_is_given_twice_is_counted_once(tmp_path: Path) -> None:
    """`train a.txt a.txt` counted the text twice and used the end of the second copy for validation."""
    first, second = write(tmp_path, "a.txt", POEM), write(tmp_path, "b.txt", "바람이 분다.\n")
    (tmp_path / "link.txt").symlink_to(first)
    with text.read([first, second]) as found:
        wanted, digest = found.read(), found.sha256
    given = [first, tmp_path / "." / "a.txt", second, tmp_path / "link.txt", first, first]
    with text.read(given) as found:
        assert (found.read(), found.sha256) == (wanted, digest)
        assert found.read(3, 30) == wanted[3:30]
        assert [source.name for source in found.sources] == [str(first), str(second)]
        assert len(found.sources[0].copies) == 4
        assert f"{first} was given more than once and is counted once." in found.describe()
        assert f"{tmp_path / 'link.txt'} has the same content as {first} and is not counted again." in found.describe()
        assert "Copies that are not counted again: 1 more." in found.describe()


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="- was given twice, and standard input can be read once"):
        text.read(["-", write(tmp_path, "a.txt", POEM), "-"])
    with pytest.raises(TextError, match="- was given twice"):
        text.read_table(["-", "-"], ["text"])


@pytest.mark.slow
def test_a_long_line_and_a_wide_table(tmp_path: Path) -> None:
    """A line is read in blocks, whatever its length; a table has as many columns as its file names."""
    line = tmp_path / "line.txt"
    line.write_text("가나 다라 " * 2_000_000 + ".", encoding="utf-8")
    with text.read(line) as found:
        assert found.chars == 12_000_001
    wide = tmp_path / "wide.csv"
    wide.write_text(f"text,{','.join(map(str, range(100_000)))}\n가{',1' * 100_000}\n", encoding="utf-8")
    with text.read(wide, column="text") as found:
        assert found.read().strip() == "가"
