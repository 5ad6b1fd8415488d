"""Encoding speed of each kind of tokenizer, beside the plain Hugging Face pipeline from the same file.

    python bench/tokenizer_speed.py [TEXT]
    python bench/tokenizer_speed.py [TEXT] --processes 2

jumok and the library take turns in one process, and their ids are compared before anything is timed. MB/s counts the
UTF-8 bytes of the text. With --processes, encoding a large text with so many processes is measured beside one process,
which for bpe has as many threads of the library. (The file is not called tokenizers.py, because then it would be what
`import tokenizers` finds.)
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="MB/s of encode, for char, jamo and bpe")
    parser.add_argument("text", type=Path, nargs="?", help="a UTF-8 text file; 600,000 characters of stories")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="threads of the tokenizers library")
    parser.add_argument("--processes", type=int, help="encode with so many processes, as `jumok train` a large text")
    arguments = parser.parse_args()
    # Read once, when the library starts its thread pool.
    os.environ["RAYON_NUM_THREADS"] = str(arguments.processes or arguments.threads)

    import numpy as np

    import tokenizers
    from jumok.corpora import stories
    from jumok.text.hangul import nfc
    from jumok.tokenizers import train_tokenizer

    if arguments.text:
        name, text = arguments.text.name, arguments.text.read_text(encoding="utf-8")
    else:
        name, text = "stories, seed 0", "".join(stories.write(600_000, seed=0))
    size = len(text.encode())
    print(f"{platform.platform()}, {_processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, tokenizers {tokenizers.__version__}")
    if arguments.processes:
        compare_processes(text, arguments.processes, arguments.repeats)
        return
    print(f"{name}: {size / 1e6:.2f} MB, {len(text)} characters; {arguments.threads} thread(s)")
    print(f"MB/s, median of {arguments.repeats} (slowest to fastest)\n")
    print(f"{'kind':6}{'vocabulary':>11}{'chars/token':>13}  {'jumok':24}{'plain tokenizers':24}{'ratio':>6}")
    for kind in ("char", "jamo", "bpe"):
        ours = train_tokenizer(text, kind)
        plain = tokenizers.Tokenizer.from_str(ours.to_json())
        if ours.encode(text).tolist() != plain.encode(text).ids:
            raise SystemExit(f"{kind}: the ids differ, so there is nothing to compare")
        fast, slow = [], []
        for _ in range(arguments.repeats):
            fast.append(size / 1e6 / _seconds(lambda: ours.encode(text)))  # noqa: B023 - called at once
            slow.append(size / 1e6 / _seconds(lambda: plain.encode(text)))  # noqa: B023
        ratio = statistics.median(fast) / statistics.median(slow)
        compression = len(nfc(text)) / len(ours.encode(text))
        print(f"{kind:6}{ours.vocab_size:11}{compression:13.2f}  {_range(fast):24}{_range(slow):24}{ratio:6.1f}")


def compare_processes(text: str, processes: int, repeats: int) -> None:
    from jumok.data.encoders import encoded_in_order
    from jumok.data.shards import Part
    from jumok.text.boundaries import slices
    from jumok.tokenizers import train_tokenizer

    size = len(text.encode()) / 1e6
    print(f"{size:.2f} MB; MB/s, median of {repeats}, the start of the processes included\n")
    print(f"{'kind':6}{'1 process':>24}{f'{processes} processes':>24}{'speedup':>9}")
    for kind in ("char", "jamo", "bpe"):
        tokenizer = train_tokenizer(text[:1_000_000], kind)
        speeds: dict[int, list[float]] = {1: [], processes: []}
        ids: dict[int, list[bytes]] = {}
        for _ in range(repeats):
            for count, found in speeds.items():
                began = time.perf_counter()
                parts = (Part(piece, 0, False) for piece in tokenizer.cut(slices(text, 1 << 20)))
                ids[count] = [encoded.tobytes() for _, encoded in encoded_in_order(tokenizer, parts, count)]
                found.append(size / (time.perf_counter() - began))
        if ids[1] != ids[processes]:
            raise SystemExit(f"{kind}: the ids differ, so there is nothing to compare")
        one, several = (statistics.median(found) for found in speeds.values())
        print(f"{kind:6}{_range(speeds[1]):>24}{_range(speeds[processes]):>24}{several / one:9.2f}", flush=True)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _range(speeds: list[float]) -> str:
    return f"{statistics.median(speeds):.1f} ({min(speeds):.1f} to {max(speeds):.1f})"


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


if __name__ == "__main__":
    main()
