"""A process that encodes texts: it reads a tokenizer and then texts from stdin, and writes ids to stdout.

Each message follows its length in bytes. Instead of the ids of a text that cannot be encoded, FAILED is written.
"""

from __future__ import annotations

import sys

from jumok.data.encoders import FAILED, SIZE
from jumok.errors import TokenizerError
from jumok.tokenizers import Tokenizer


def main() -> None:
    """Encode texts until stdin ends."""
    tokenizer = Tokenizer.from_json(_receive().decode())
    while message := _receive():
        try:
            ids = tokenizer.encode(message.decode()).tobytes()
        except TokenizerError:
            sys.stdout.buffer.write(SIZE.pack(FAILED))
        else:
            sys.stdout.buffer.write(SIZE.pack(len(ids)))
            sys.stdout.buffer.write(ids)
        sys.stdout.buffer.flush()


def _receive() -> bytes:
    head = sys.stdin.buffer.read(SIZE.size)
    return sys.stdin.buffer.read(*SIZE.unpack(head)) if len(head) == SIZE.size else b""


if __name__ == "__main__":
    main()
