"""Mutations of valid inputs, for bench/fuzz.py: bytes, JSON, JSON lines, TOML and safetensors, each from a seed.

A text format is mutated in its own terms half of the time: a value is replaced by a hostile one, removed, repeated, or
put elsewhere. Most such inputs pass the parser and reach the code that reads the values. The other half is mutated as
bytes, which tests the parser.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from random import Random
from typing import Any

LONGEST = 1 << 16  # bytes that a mutation adds at most
NESTED = 3_000  # levels, more than Python recurses

INTEGERS = (0, 1, -1, 2, 7, 127, 128, 255, 256, 32_767, 65_536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1,
            2**63, -(2**63) - 1, 2**64, 10**9, 10**18, 10**400)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e308, 1e400, -1e400, float("nan"), 1e-5, 3.0000000001)
TEXTS = ("", " ", "\0", "가", "\ud800", "\udcff", "\U0010ffff", "../../etc/passwd", "/dev/zero", "C:\\x", "a/b", ".",
         "\x1b[31m", "</script>", "<!--", "{0}", "{name}", "{{", "%s", "[MASK]", "[EOS]", "auto", "null", "1e9", "-1",
         "x" * 300, "ᄀ" * 5_000, "\u202e", "\ufeff", "a\r\nb", "e\u0301", "'; --", "lm", "cuda", "=1+1")  # fmt: skip


class Raw(str):
    """A piece of a document that is written as it is."""


def hostile(random: Random) -> Any:
    """A value that a reader may not expect."""
    match random.randrange(12):
        case 0 | 1 | 2:
            return random.choice(INTEGERS)
        case 3:
            return random.choice(FLOATS)
        case 4 | 5 | 6:
            return random.choice(TEXTS)
        case 7:
            return random.choice((None, True, False))
        case 8:
            return random.choice(([], {}, [[]], {"": None}, [None], [1, "a", None], {"a": {"a": 1}}, [0] * 1_000))
        case 9:
            depth = random.choice((20, 100, NESTED))
            opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
            return Raw(opening * depth + "1" + closing * depth)
        case 10:
            return random.choice((Raw("9" * 5_000), Raw("NaN"), Raw("-Infinity"), Raw("1e999"), Raw("0" * 9), Raw("")))
        case _:
            return random.randrange(-70_000, 70_000)


def mutated_json(content: bytes, random: Random) -> bytes:
    """A JSON document with one to three values, names or places changed."""
    try:
        document = [json.loads(content)]
    except ValueError:
        return mutated_bytes(content, random)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _change(document, random)
    return json.dumps(document[0], default=str, ensure_ascii=random.random() < 0.8, cls=_Encoder).encode(
        errors="surrogatepass"
    )


def mutated_lines(content: bytes, random: Random) -> bytes:
    """JSON lines with one of them changed, repeated or removed."""
    lines = content.split(b"\n")
    place = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            lines.insert(place, random.choice(lines))
        case 1:
            del lines[place]
        case 2:
            lines[place] = _dumps(hostile(random)).encode(errors="surrogatepass")
        case _:
            lines[place] = mutated_json(lines[place], random)
    return b"\n".join(lines)


def mutated_toml(content: bytes, random: Random) -> bytes:
    """TOML with the value or the key of one line changed, or a line added."""
    lines = content.decode(errors="replace").split("\n")
    place = random.randrange(len(lines))
    key, equals, value = lines[place].partition("=")
    match random.randrange(6):
        case 0:
            lines.insert(place, random.choice(lines))
        case 1:
            lines[place] = f"{key}.x = {value}" if equals else "[a.b]"
        case 2:
            depth = random.choice((50, NESTED))
            lines[place] = f"{key.strip() or 'a'} = {'[' * depth}{']' * depth}"
        case 3:
            others = ("inf", "-nan", "1979-05-27", "07:32:00", "0x" + "f" * 40, "1_000", "{a = 1}", "'''", '"\\u0000"',
                      '"\\UFFFFFFFF"', "9" * 5_000)  # fmt: skip
            lines[place] = f"{key.strip() or 'a'} = {random.choice(others)}"
        case _:
            lines[place] = f"{key.strip() or 'steps'} = {_dumps(hostile(random))}"
    return "\n".join(lines).encode(errors="surrogatepass")


def mutated_safetensors(content: bytes, random: Random) -> bytes:
    """A safetensors file with its header changed: the length of it, or a name, type, shape or offset in it."""
    size = struct.unpack_from("<Q", content)[0]
    header, rest = content[8 : 8 + size], content[8 + size :]
    if random.random() < 0.15:
        return struct.pack("<Q", random.choice((0, 1, size - 1, size + 1, 2**31, 2**63, 2**64 - 1))) + header + rest
    if random.random() < 0.3:  # another type or shape of the same size, which is read and then does not fit
        document = json.loads(header)
        entry = document[random.choice([name for name in document if name != "__metadata__"])]
        if random.random() < 0.5:
            entry["dtype"] = random.choice(("F32", "I32", "U32", "F16", "BF16", "F64", "I64", "BOOL", "F8_E4M3", "C64"))
        else:
            entry["shape"] = random.choice(([*entry["shape"], 1], entry["shape"][::-1], [], [0], [2**40, 0], [-1]))
        header = json.dumps(document).encode()
    else:
        header = mutated_json(header, random)
    return struct.pack("<Q", len(header)) + header + rest


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Bytes with one to four changes: bits flipped, parts cut, repeated, moved or replaced, numbers at boundaries."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data) + 1)
        match random.randrange(9):
            case 0:
                data = data[:at]
            case 1 if data:
                data[min(at, len(data) - 1)] ^= 1 << random.randrange(8)
            case 2:
                data[at : at + random.randrange(1, 9)] = random.randbytes(random.randrange(9))
            case 3:
                del data[at : at + random.choice((1, 2, 16, 256))]
            case 4:
                part = data[at : at + random.choice((1, 4, 64))] or b"\0"
                data[at:at] = bytes(part) * random.choice((2, 100, max(1, min(LONGEST, 20_000) // len(part))))
            case 5:
                other = random.randrange(len(data) + 1)
                data[at:at] = data[other : other + random.randrange(64)]
            case 6:
                number = random.choice(INTEGERS[:-1]) & (2**64 - 1)
                width = random.choice((1, 2, 4, 8))
                data[at : at + width] = number.to_bytes(8, random.choice(("little", "big")))[:width]
            case 7:
                word = random.choice(TEXTS).encode(errors="surrogatepass")
                data[at:at] = word
            case _:
                marks = (
                    b"\xef\xbb\xbf",
                    b"\xff\xfe",
                    b"\0",
                    b"\x1a",
                    b"\r",
                    b'"',
                    b"\t",
                    b",",
                    b"\n",
                    b"\xc0\x80",
                    b"{",
                    b"[",
                )
                data[at:at] = random.choice(marks) * random.choice((1, 2, 5_000))
    return bytes(data)


MUTATIONS: dict[str, Callable[[bytes, Random], bytes]] = {
    ".json": mutated_json,
    ".jsonl": mutated_lines,
    ".toml": mutated_toml,
    ".safetensors": mutated_safetensors,
}


def mutated(name: str, content: bytes, random: Random) -> bytes:
    """A mutation of a file; the name says its format. One in 50 is the file as it is."""
    if random.random() < 0.02:
        return content
    known = next((MUTATIONS[suffix] for suffix in MUTATIONS if name.endswith(suffix)), None)
    if known is None or random.random() < 0.3:
        return mutated_bytes(content, random)
    return known(content, random)


def _change(document: list[Any], random: Random) -> None:
    """Change one value or name somewhere in the document, which is in a list of its own."""
    places = list(_places(document))
    container, key = random.choice(places)
    match random.randrange(10):
        case 0:
            del container[key]
            if container is document:
                document.append(hostile(random))
        case 1 if isinstance(container, dict):
            container[random.choice((*TEXTS, *(str(name) for name in container)))] = container.pop(key)
        case 2 if isinstance(container, dict):  # a name that occurs twice
            container[_Twice(key)] = hostile(random)
        case 3:
            other, place = random.choice(places)
            try:
                container[key] = json.loads(_dumps(other[place]))  # a copy, which makes no circle
            except (ValueError, KeyError, IndexError, RecursionError):
                container[key] = hostile(random)
        case 4 if type(container[key]) is int:
            container[key] += random.choice((-1, 1, 2**32, -(10**6)))
        case 5 if isinstance(container[key], list) and container[key]:
            container[key] = container[key] * random.choice((2, 50))
        case _:
            container[key] = hostile(random)


class _Twice:
    """A name that is equal to no other, so that an object has it twice."""

    def __init__(self, name: object) -> None:
        self.name = name


def _places(value: Any) -> Any:
    """All containers and keys of a document, from a stack: it may nest deeply."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        for key, part in one.items() if isinstance(one, dict) else enumerate(one):
            yield one, key
            if isinstance(part, dict | list):
                waiting.append(part)


def _dumps(value: Any) -> str:
    return json.dumps(value, cls=_Encoder, default=str)


class _Encoder(json.JSONEncoder):
    """Writes `Raw` as it is, and names twice."""

    def encode(self, o: Any) -> str:
        return "".join(self._parts(o))

    def _parts(self, value: Any) -> Any:
        if isinstance(value, Raw):
            yield str(value)
        elif isinstance(value, dict):
            yield "{"
            for number, (name, part) in enumerate(value.items()):
                yield (
                    ("," if number else "") + super().encode(str(name.name if isinstance(name, _Twice) else name)) + ":"
                )
                yield from self._parts(part)
            yield "}"
        elif isinstance(value, list):
            yield "["
            for number, part in enumerate(value):
                if number:
                    yield ","
                yield from self._parts(part)
            yield "]"
        elif isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**300:
            yield "1" + "0" * 400
        else:
            yield super().encode(value)
