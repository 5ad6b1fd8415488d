"""Encoding a text with several processes.

Each process is a plain `python -m jumok.data.encoder_process`, which loads neither torch nor the program of the user.
`multiprocessing` would import that program again, and run all of it if it has no `if __name__ == "__main__"`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from queue import SimpleQueue
from struct import Struct
from typing import Protocol, TypeVar

import numpy as np

from jumok.errors import EncoderLost
from jumok.processors import processors
from jumok.tokenizers import Ids, Tokenizer

SIZE = Struct("<q")  # before each message between the processes: its bytes; FAILED: the text cannot be encoded
FAILED = -1
MOST_PROCESSES = 16  # one process reads and writes for all of them


class HasText(Protocol):
    """A part of a text, with whatever belongs to it."""

    @property
    def text(self) -> str:
        """What is encoded."""


P = TypeVar("P", bound=HasText)


def encoded_in_order(
    tokenizer: Tokenizer, parts: Iterable[P], processes: int | None = None
) -> Generator[tuple[P, Ids], None, None]:
    """Encode parts of a text side by side, and yield each with its ids, in order.

    Only a few parts for each process are held in memory. The processes end with the generator, or with this process.

    Args:
        processes: None: one for each processor. One means none but this one.

    Raises:
        TokenizerError: a part cannot be encoded. EncoderLost: a process was killed.
    """
    count = min(MOST_PROCESSES, processors()) if processes is None else processes
    if count == 1:
        yield from ((part, tokenizer.encode(part.text)) for part in parts)
        return
    encoders = list[Encoder]()
    idle: SimpleQueue[Encoder] = SimpleQueue()
    threads = ThreadPoolExecutor(count)
    try:
        for _ in range(count):
            encoders.append(Encoder(tokenizer))
            idle.put(encoders[-1])

        def encode(text: str) -> Ids:
            encoder = idle.get()
            try:
                return encoder.encode(text)
            finally:
                idle.put(encoder)

        waiting: deque[tuple[P, Future[Ids]]] = deque()
        left = iter(parts)
        while True:
            for part in islice(left, 2 * count - len(waiting)):
                waiting.append((part, threads.submit(encode, part.text)))
            if not waiting:
                return
            part, future = waiting.popleft()
            yield part, future.result()
    finally:
        for encoder in encoders:
            encoder.kill()  # a thread may wait for its answer
        threads.shutdown(cancel_futures=True)
        for encoder in encoders:
            encoder.close()


class Encoder:
    """A process that encodes texts with a tokenizer. It ends when its input does, also if this process is killed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._process = subprocess.Popen(
            # -P: a file tokenizers.py in the current folder must not take the place of the library.
            [sys.executable, "-P", "-X", "utf8", "-m", "jumok.data.encoder_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # The processes are the threads. They find the modules where this one does.
            env={**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )
        self._ready = False

    def encode(self, text: str) -> Ids:
        """Return the ids of a text; call this in one thread at a time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            if not self._ready:
                self._send(self._tokenizer.to_json().encode())
                self._ready = True
            self._send(text.encode())
            size = self._read(SIZE.size)
            (length,) = SIZE.unpack(size)
            if length != FAILED:
                return np.frombuffer(self._read(length), self._tokenizer.dtype)
        except (OSError, EOFError, ValueError):  # ValueError: closed
            raise EncoderLost(
                "a process that turns the text into tokens ended ({reason}); was it killed, or is there too little "
                "memory? Start again with the same command.",
                reason=f"exit code {self._process.wait()}",
            ) from None
        return self._tokenizer.encode(text)  # which raises the error

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(SIZE.pack(len(message)))
        self._process.stdin.write(message)
        self._process.stdin.flush()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(size)
        if len(found) < size:
            raise EOFError
        return found

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """Close the pipes of a process that was killed; no thread may read them."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # nobody reads what was left to write
                if pipe is not None:
                    pipe.close()
        self._process.wait()
