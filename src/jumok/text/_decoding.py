"""Detection of the encoding of a file, and strict decoding.

The whole file is decoded to detect its encoding. The candidates, in order: the encoding of a byte-order mark; UTF-16
and UTF-32 without a mark, if there are NUL bytes; for ASCII bytes ISO-2022-KR; UTF-8; CP949 (the superset of EUC-KR
that Korean Windows writes). charset-normalizer decides only for files that fit none of them, or that are not Korean in
CP949.
"""

from __future__ import annotations

import codecs
import encodings.aliases
import unicodedata
from collections.abc import Iterator
from typing import IO, NamedTuple

from jumok.errors import TextError
from jumok.messages import did_you_mean, message, tr

_BLOCK = 1 << 20  # bytes read at a time
_SAMPLE = 1 << 16  # bytes used for estimates

_BOMS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")

_MAGIC = {  # of files that people take for text, some without a NUL byte
    b"%PDF-": message("a PDF document"),
    b"PK\x03\x04": message("a zip archive (.docx, .hwpx, .epub and .xlsx are such)"),
    b"\xd0\xcf\x11\xe0": message("an .hwp, .doc or .xls document"),
    b"HWP Document File": message("an .hwp document"),
    b"{\\rtf": message("an RTF document"),
    b"\x1f\x8b": message("a gzip archive"),
    b"PAR1\x15": message("a Parquet table; name it .parquet"),
    b"ARROW1\x00\x00": message("an Arrow table; write it as .parquet"),
}
_CONTROLS = bytes({*range(32), 127} - set(b"\b\t\n\v\f\r\x1b"))

# The thirty most frequent syllables of novels and film reviews are about 40% of both. Text that decodes as CP949 but
# has few of them is probably in another encoding. The last four express laughing and crying in online text.
_COMMON = frozenset("이다는고하지가에을그아어나의도한은기서영리화로만보게니라들를ㅋㅎㅠㅜ")
_KOREAN_SHARE = 0.08


class Encoding(NamedTuple):
    """The encoding of one input."""

    codec: str
    bom: int = 0  # bytes to skip
    guessed: bool = False


class Undecodable(Exception):
    """The bytes at `offset` do not fit the codec."""

    def __init__(self, codec: str, offset: int, data: bytes, reason: str) -> None:
        shown = " ".join(f"0x{byte:02x}" for byte in data[:4])
        super().__init__(
            tr("byte offset {offset:,} holds {shown} ({reason})", offset=offset, shown=shown, reason=reason)
        )
        self.codec, self.offset = codec, offset


def decode(data: IO[bytes], codec: str, start: int = 0) -> Iterator[str]:
    """Decode strictly from byte `start`, block by block; a character can extend over two blocks.

    Raises:
        Undecodable: some bytes do not fit the codec.
    """
    decoder = codecs.getincrementaldecoder(codec)("strict")
    if codec == "iso2022_kr":
        decoder.decode(b"\x1b$)C")  # the header, which a part of a mail lacks; without it Python drops the shifts
    data.seek(start)
    done = start
    while True:
        block = data.read(_BLOCK)
        carried = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            bad = error.object[error.start : error.end]
            raise Undecodable(codec, done - carried + error.start, bad, tr(error.reason)) from None
        except UnicodeError as error:  # of idna and punycode, without a place
            raise Undecodable(codec, done - carried, block, str(error)) from None
        if text:
            yield text
        if not block:
            return
        done += len(block)


def require_no_magic(data: IO[bytes], name: str) -> None:
    """Raise TextError for a file that begins as images, documents and archives do."""
    data.seek(0)
    head = data.read(max(map(len, _MAGIC)))
    if kind := next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None):
        raise TextError("{name} looks binary ({kind}); save it as plain text first", name=name, kind=tr(kind))


def detect(data: IO[bytes], name: str) -> Encoding:
    """Detect the encoding; raise TextError for binary or unknown ones, Undecodable for invalid bytes in a known one."""
    head = _window(data, 0)
    for mark, codec in _BOMS:
        if head.startswith(mark) and codec in _WIDE:
            return Encoding(codec, len(mark))
    bom = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    nul = _find(data, b"\0")
    if nul is not None:
        wide, share = _best_wide(head)
        if share >= 0.9 and not bom:
            return Encoding(wide)
        raise TextError(
            "{name} looks binary: byte offset {nul:,} is NUL; give a text file, or name its encoding with "
            "{--encoding NAME}",
            name=name,
            nul=nul,
        )
    not_utf8 = _misfit(data, "utf-8")
    if not_utf8 is None and _find(data, b"\x1b$") is not None and _misfit(data, "ascii") is None:
        if _find(data, b"\x1b$)C") is not None and _misfit(data, "iso2022_kr") is None:
            return Encoding("iso2022_kr")
        raise TextError(
            "{name} looks like ISO 2022 (escape sequences among ASCII), but is not ISO-2022-KR; name its encoding with "
            "{--encoding NAME}, or save it in UTF-8",
            name=name,
        )
    controls = len(head) - len(head.translate(None, _CONTROLS))
    if controls > len(head) // 20:
        raise TextError(
            "{name} looks binary ({controls} of its first {count} bytes are control characters); "
            "give a text file, or name its encoding with {--encoding NAME}",
            name=name,
            controls=controls,
            count=len(head),
        )
    if not_utf8 is None:
        return Encoding("utf-8", bom)
    around = _window(data, not_utf8.offset)
    if bom or _mostly_utf8(around):
        raise not_utf8
    return _korean_or_guessed(data, name, around, not_utf8)


def _korean_or_guessed(data: IO[bytes], name: str, around: bytes, not_utf8: Undecodable) -> Encoding:
    """Decide between CP949 and the encodings of other languages; `around` is a sample that is not UTF-8."""
    not_cp949 = _misfit(data, "cp949")
    korean = around.decode("cp949", "ignore")
    foreign = sum(char > "\x7f" for char in korean) >= 20  # fewer are not enough to decide
    reads_korean = _korean_share(korean) > _KOREAN_SHARE
    if not_cp949 is None and (reads_korean or not foreign):
        return _korean(data)
    if not_cp949 is not None and reads_korean and foreign:
        raise not_cp949
    guess = _guess(around)
    if guess is not None and _misfit(data, guess) is None:
        return Encoding(guess, guessed=True)
    if not_cp949 is None:
        return _korean(data)
    raise TextError(
        "{name} is neither UTF-8 nor CP949, nor anything else that jumok recognises: as UTF-8, "
        "{not_utf8}; as CP949, {not_cp949}; name its encoding with {--encoding NAME}, or repair the "
        "file",
        name=name,
        not_utf8=not_utf8,
        not_cp949=not_cp949,
    )


def _window(data: IO[bytes], around: int) -> bytes:
    """Read a sample around an offset, from the start of a line, so that it does not begin inside a character."""
    start = max(0, around - _SAMPLE // 2)
    data.seek(start)
    sample = data.read(_SAMPLE)
    newline = sample.find(b"\n", 0, around - start)
    return sample if start == 0 or newline < 0 else sample[newline + 1 :]


def _korean(data: IO[bytes]) -> Encoding:
    """Return the encoding of a file that fits CP949.

    EUC-KR has codes for 2,350 syllables. KS X 1001, annex 3, spells the others: a filler and the three parts of the
    syllable. Python writes such sequences as EUC-KR, and does not join them as CP949.
    """
    return Encoding("cp949" if _misfit(data, "euc_kr") else "euc_kr")


def _find(data: IO[bytes], mark: bytes) -> int | None:
    """Return the offset of the first `mark`."""
    data.seek(0)
    done, block = 0, b""
    while more := data.read(_BLOCK):
        block = block[len(block) - len(mark) + 1 :] + more  # a mark can extend over two blocks
        if (at := block.find(mark)) >= 0:
            return done + len(more) - len(block) + at
        done += len(more)
    return None


def _misfit(data: IO[bytes], codec: str) -> Undecodable | None:
    """Decode the whole file; return the first error, or None if the codec fits."""
    try:
        for _ in decode(data, codec):
            pass
    except Undecodable as error:
        return error
    return None


def _mostly_utf8(sample: bytes) -> bool:
    """Return whether a sample is UTF-8 with a few invalid bytes."""
    text = sample.decode("utf-8", "replace")
    before = sum(char >= "\u0800" for char in text.partition("\ufffd")[0])
    good = sum("\u0800" <= char != "\ufffd" for char in text)
    bad = text.count("\ufffd") - sample.count("\ufffd".encode())
    # CP949 decoded as UTF-8 gives mostly replacement characters and few three-byte characters in a row.
    return good > bad or before >= 16


def _best_wide(sample: bytes) -> tuple[str, float]:
    """Return the most likely of UTF-16 and UTF-32, and the share of its characters that exist in CP949.

    Bytes decoded with the wrong width or byte order give characters from all of Unicode; CP949 has a quarter of them.
    """
    shares = {}
    for codec in _WIDE:
        try:
            text = codecs.getincrementaldecoder(codec)().decode(sample)
        except UnicodeDecodeError:
            continue
        text = unicodedata.normalize("NFC", text)
        known = text.encode("cp949", "ignore").translate(None, _CONTROLS).decode("cp949", "ignore")
        shares[codec] = len(known) / max(1, len(text))
    best = max(shares, key=lambda codec: shares[codec], default="utf-16-le")
    return best, shares.get(best, 0.0)


def _korean_share(text: str) -> float:
    """Return the share of the most frequent Korean syllables in the characters outside ASCII."""
    beyond = [char for char in text if char > "\x7f"]
    return sum(char in _COMMON for char in beyond) / max(1, len(beyond))


def _guess(sample: bytes) -> str | None:
    """Return the encoding that charset-normalizer detects, or None if its result is too uncertain."""
    from charset_normalizer import from_bytes  # slow to import, and rarely needed

    end = max((sample.rfind(byte) for byte in b"\n ,."), default=-1)  # do not cut a character in two
    sample = sample[: end + 1] or sample
    wide = [codec.replace("-", "_") for codec in ("utf-7", "utf-8", "utf-16", "utf-32", *_WIDE)]
    best = from_bytes(sample, cp_exclusion=wide).best()
    if best is None or best.chaos > 0.1 or sum(byte > 127 for byte in sample) < 4:
        return None
    if len(str(best)) < len(sample):  # multi-byte: strict decoding is sufficient
        return str(best.encoding)
    western = from_bytes(sample, cp_isolation=["cp1252"]).best()
    if western is not None and western.chaos <= best.chaos + 0.1 and western.coherence >= best.coherence:
        best = western  # cp1250 and cp1257 have similar letters and are rarer
    return str(best.encoding) if best.coherence > 0.1 else None


def known_codec(encoding: str) -> str:
    """Return the codec for an encoding given by the user.

    Raises:
        TextError: the encoding is unknown.
    """
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError):
        info = None
    if info is None or info.incrementaldecoder is None or not info._is_text_encoding:
        names = {*encodings.aliases.aliases, *encodings.aliases.aliases.values()}
        hint = did_you_mean(encoding.lower().replace("-", "_"), names, clause=True)
        hint = hint or tr("; try utf-8, cp949, euc-kr, utf-16 or johab")
        raise TextError("unknown encoding {encoding!r}{hint}", encoding=encoding, hint=hint)
    # Files labelled EUC-KR are usually CP949; the WHATWG Encoding Standard treats them so as well.
    return {"utf-8-sig": "utf-8", "euc_kr": "cp949"}.get(info.name, info.name)


def overridden(data: IO[bytes], name: str, codec: str) -> Encoding:
    """Return the encoding for a codec given by the user; the file determines the byte-order mark and byte order.

    Raises:
        TextError: the file does not fit the codec.
    """
    head = _window(data, 0)
    for mark, marked in _BOMS:
        if head.startswith(mark) and marked.startswith(codec):
            return Encoding(marked, len(mark))
    if codec in ("utf-16", "utf-32"):
        wide, _ = _best_wide(head)
        codec = wide if wide.startswith(codec) else f"{codec}-le"
    misfit = _misfit(data, codec)
    if misfit is not None:
        raise TextError(
            "{name} is not {encoding}, the encoding that was given: {misfit}",
            name=name,
            encoding=display(codec),
            misfit=misfit,
        )
    return _korean(data) if codec == "cp949" else Encoding(codec)


def display(codec: str) -> str:
    """Return the usual spelling of a codec, such as UTF-16LE."""
    if codec in ("cp949", "euc_kr"):
        return "CP949"
    name = codec.upper().replace("-LE", "LE").replace("-BE", "BE")
    return name.replace("ISO2022", "ISO-2022").replace("_", "-") if name.startswith("ISO2022") else name
