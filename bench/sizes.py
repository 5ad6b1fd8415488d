"""Sizes that no machine has, as a user would give them: python bench/sizes.py [--gigabytes 4] [--only WORD] [--big]

Each case is a process of its own whose address space is limited (RLIMIT_AS), so that a machine with little memory is
imitated and this one is safe. Printed are the exit code, the peak of the resident memory, the seconds of CPU, and the
last line of stderr. A case fails if the process prints a traceback, is killed, takes more CPU than its limit, or ends
without a message. `--big` adds the inputs of 500 MB and 1 GB, which are written through a pipe.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINY = "--n-layer 1 --n-head 2 --n-embd 16 --context-length 32 --precision float32 --attention chunked --compile off"
TRAIN = f"train stories.txt --out out --steps 2 --quiet --device cpu {TINY}"
TABLE = f"--out out --steps 2 --quiet --device cpu {TINY}"
BLOCK = 1 << 20


@dataclass(frozen=True)
class Case:
    """A command, in words. prepare: makes its files in the folder. feed: its standard input. seconds: of CPU."""

    command: str
    prepare: Callable[[Path], None] | None = None
    feed: Callable[[], Iterator[bytes]] | None = None
    seconds: int = 60
    big: bool = False
    python: bool = False


def changed(source: str, **values: Any) -> Callable[[Path], None]:
    """A copy of a run folder or a stock folder, as "bad", with other values in its config.json."""

    def prepare(folder: Path) -> None:
        shutil.copytree(folder / source, folder / "bad")
        path = folder / "bad" / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config.get("model", config).update(values)
        path.write_text(json.dumps(config), encoding="utf-8")

    return prepare


def wrote(name: str, content: Callable[[], Iterator[str]]) -> Callable[[Path], None]:
    """A file with the pieces."""

    def prepare(folder: Path) -> None:
        with (folder / name).open("w", encoding="utf-8") as file:
            file.writelines(content())

    return prepare


def repeated(piece: bytes, size: int, first: bytes = b"", last: bytes = b"") -> Callable[[], Iterator[bytes]]:
    """Standard input of about `size` bytes."""

    def feed() -> Iterator[bytes]:
        block = piece * (BLOCK // len(piece))
        yield first
        for _ in range(size // len(block)):
            yield block
        yield last

    return feed


def labels(count: int) -> Callable[[], Iterator[str]]:
    """A table with as many labels."""

    def lines() -> Iterator[str]:
        yield "text\tlabel\n"
        for number in range(2 * count):
            yield f"글 {number}번\t라벨{number % count}\n"

    return lines


def all_characters() -> Iterator[str]:
    """Every code point that is a character, twice."""
    for start in range(0x20, 0x110000, 4096):
        row = "".join(map(chr, (c for c in range(start, min(start + 4096, 0x110000)) if not 0xD800 <= c < 0xE000)))
        yield row + "\n" + row + "\n"


def words() -> Iterator[str]:
    """A text from which a large bpe vocabulary can be learned."""
    for number in range(300_000):
        yield f"{chr(0xAC00 + number % 11172)}{chr(0xAC00 + number // 7 % 11172)}{chr(0xAC00 + number // 3 % 11172)} "


def parquet(columns: int, rows: int) -> Callable[[Path], None]:
    """A .parquet file with as many columns."""

    def prepare(folder: Path) -> None:
        import pyarrow as pa
        from pyarrow import parquet as pq

        pq.write_table(pa.table({f"c{n}": pa.array(["글"] * rows) for n in range(columns)}), folder / "t.parquet")

    return prepare


def sparse_model(folder: Path) -> None:
    """A model.safetensors of 100 GB, most of it a hole, with the config.json that describes it."""
    changed("lm", n_embd=50_000, n_layer=1, n_head=500, n_kv_head=500, head_dim=100, mlp_width=80_000)(folder)
    path = folder / "bad" / "model.safetensors"
    header = json.dumps({"w": {"dtype": "F32", "shape": [25_000_000_000], "data_offsets": [0, 10**11]}}).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 10**11)


ABSURD = [
    {"n_layer": 10**4}, {"n_layer": 10**9}, {"n_embd": 10**8, "head_dim": 8}, {"vocab_size": 10**8},
    {"context_length": 10**8}, {"head_dim": 10**8}, {"n_head": 10**8, "n_kv_head": 10**8},
    {"n_embd": 10**8, "n_head": 10**8, "n_kv_head": 10**8, "head_dim": 10**8, "mlp_width": 10**8},
]  # fmt: skip
STOCK = [
    {"num_hidden_layers": 10**4}, {"hidden_size": 10**8}, {"vocab_size": 10**8}, {"max_position_embeddings": 10**8},
    {"head_dim": 10**8}, {"intermediate_size": 10**8}, {"num_attention_heads": 10**8, "num_key_value_heads": 10**8},
]  # fmt: skip
TRAININGS = [
    "--n-embd 1000000", "--n-layer 1000000", "--batch-size 10000000", "--context-length 1000000000",
    "--context-length 100000000", "--context-length 1000000", "--n-head 100000000 --head-dim 100000000",
    "--mlp-width 100000000", "--steps 1000000000 --minutes 1000000",
    "--val 1e-9", "--tokenizer bpe --vocab-size 200000", "--tokenizer bpe --vocab-size 1000000000",
]  # fmt: skip
PLANS = ["--n-embd 1000000", "--n-layer 10000", "--batch-size 10000000", "--context-length 100000000", "--size gpt2"]
WRITINGS = [
    "--tokens 1000000000000 --stop 다", "--samples 1000000000", "--samples 10000000", "--top-k 1000000000000",
]  # fmt: skip
PYTHON = [
    "from jumok import GPT, GPTConfig; GPT(GPTConfig(vocab_size=100, n_embd=10**6, n_head=10, n_layer=10))",
    "from jumok import GPT, GPTConfig; GPT(GPTConfig(vocab_size=10**8, n_embd=1024, n_head=8, n_layer=1))",
    "from jumok import BERT, BERTConfig; BERT(BERTConfig(vocab_size=10**8, n_embd=1024, n_head=8, n_layer=1))",
]
LONG_TEXT = "옛날 어느 마을에 가난한 나무꾼이 살았습니다. "


def cases() -> list[Case]:
    """All of them."""
    found = [Case("generate bad 옛날 --tokens 3", changed("lm", **values)) for values in ABSURD]
    found += [Case("convert bad out --to hf", changed("lm", **values)) for values in ABSURD[:2]]
    found += [Case("generate bad 옛날 --tokens 3", changed("stock", **values)) for values in STOCK]
    found += [Case(f"{TRAIN} {flags}") for flags in TRAININGS]
    found += [Case(f"plan {flags} --steps 10 --device cpu") for flags in PLANS]
    found += [Case(f"generate lm 옛날 {flags}", seconds=30) for flags in WRITINGS]
    found += [Case(code, python=True) for code in PYTHON]
    found += [
        Case("generate bad 옛날", sparse_model),
        Case("convert bad out.gguf --to gguf", sparse_model),
        Case("generate seq 옛날 --beam 1000000"),
        Case("generate seq 옛날 --beam 100000 --samples 100000"),
        Case(f"evaluate lm {'-'}", feed=repeated(LONG_TEXT.encode(), 100_000)),
        Case("view lm - --out page.html", feed=repeated(LONG_TEXT.encode(), 100 << 20)),
        Case("view bert - --out page.html", feed=repeated(LONG_TEXT.encode(), 10 << 20)),
        Case("view long - --out page.html", feed=repeated(LONG_TEXT.encode(), 10 << 20)),
        Case("view long - --layer 0 --head 0 --picture p.png", feed=repeated(LONG_TEXT.encode(), 10 << 20)),
        Case("view long - --probe --out page.html", feed=repeated(LONG_TEXT.encode(), 10 << 20)),
        Case("predict class -", feed=repeated(LONG_TEXT.encode(), 100 << 20)),
        Case("predict class @text", wrote("text", lambda: iter([LONG_TEXT * 400_000]))),
        Case(f"train t.tsv --task classify {TABLE}", wrote("t.tsv", labels(10_000))),
        Case(f"train t.tsv --task classify {TABLE}", wrote("t.tsv", labels(1_000_000)), seconds=120),
        Case(f"train t.txt {TABLE}", wrote("t.txt", all_characters), seconds=120),
        Case(f"train t.txt --tokenizer bpe --vocab-size 200000 {TABLE}", wrote("t.txt", words), seconds=120),
        Case(f"train t.csv {TABLE}", wrote("t.csv", lambda: (f"{c}c{n}" for n, c in enumerate([""] + [","] * 10**6)))),
        Case(
            f"train t.csv --column c9 {TABLE}",
            wrote("t.csv", lambda: iter([",".join(f"c{n}" for n in range(10**6)), "\n", ("글," * 10**6)[:-1], "\n"])),
        ),
        Case(
            f"train t.jsonl {TABLE}",
            wrote("t.jsonl", lambda: iter([json.dumps({f"c{n}": 1 for n in range(10**6)})])),
        ),
        Case(
            f"train t.jsonl --task classify {TABLE}",
            wrote("t.jsonl", lambda: iter([json.dumps({"text": LONG_TEXT * 10**5, "label": "a"})])),
        ),
        Case(f"train t.parquet {TABLE}", parquet(20_000, 1)),
        Case(f"train t.parquet --column c9 {TABLE}", parquet(20_000, 1)),
        Case(f"train t.parquet --column c0 {TABLE}", parquet(1, 0)),
        Case(f"train t.parquet {TABLE}", parquet(0, 0)),
        Case("corpus write stories --chars 1000000000000000 > stories2.txt", seconds=20),
        Case("corpus write numbers --rows 1000000000000000 > numbers2.tsv", seconds=20),
        Case(f"train - {TABLE}", feed=repeated("가나다라".encode(), 1 << 30), big=True, seconds=600),
        Case(f"train - {TABLE} --column text", feed=repeated("가나".encode(), 1 << 30, b"{"), big=True, seconds=600),
        Case(
            f"train - {TABLE} --column text",
            feed=repeated("가나".encode(), 500 << 20, b'text,b\n"', b'",b\n'),
            big=True, seconds=600,
        ),
        Case(
            f"train - {TABLE} --task classify",
            feed=repeated("가나".encode(), 500 << 20, b"text\tlabel\n", b"\tb\n"),
            big=True, seconds=600,
        ),
    ]  # fmt: skip
    return found


def jumok(*given: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "jumok", *given]


def make_models(folder: Path) -> None:
    """One tiny run of each task: lm, long (a long context), bert, class, seq, and stock, which transformers reads."""
    with (folder / "stories.txt").open("wb") as out:
        subprocess.run(jumok("corpus", "write", "stories", "--chars", "100000"), stdout=out, check=True)
    with (folder / "numbers.tsv").open("wb") as out:
        subprocess.run(jumok("corpus", "write", "numbers", "--rows", "500"), stdout=out, check=True)
    (folder / "labels.tsv").write_text("".join(labels(3)()) * 9, encoding="utf-8")
    how = f"--steps 2 --quiet --device cpu {TINY}".split()
    for name, given in (
        ("lm", ["stories.txt"]),
        ("long", ["stories.txt", "--context-length", "20000", "--batch-size", "1"]),
        ("bert", ["stories.txt", "--task", "mlm"]),
        ("class", ["labels.tsv", "--task", "classify"]),
        ("seq", ["numbers.tsv", "--task", "seq2seq"]),
    ):
        subprocess.run(jumok("train", "--out", name, *how, *given), cwd=folder, check=True)
    subprocess.run(jumok("convert", "lm", "stock", "--to", "hf"), cwd=folder, check=True, stderr=subprocess.DEVNULL)


def limited(memory: int, seconds: int) -> None:
    """Limit this process: bytes of address space, and seconds of CPU."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def run(case: Case, folder: Path, limit: int) -> dict[str, Any]:
    """Run a case and return what happened."""
    if case.prepare:
        case.prepare(folder)
    out: Any = subprocess.DEVNULL
    if case.python:
        words = [sys.executable, "-c", case.command]
    else:
        command, _, target = case.command.partition(" > ")
        out = (folder / target).open("wb") if target else out
        words = jumok(*command.split())
        words = [(folder / w[1:]).read_text(encoding="utf-8")[: 120_000 // 3] if w[0] == "@" else w for w in words]
    errors = (folder / "stderr").open("w+b")
    process = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.PIPE if case.feed else subprocess.DEVNULL, stdout=out, stderr=errors,
        preexec_fn=lambda: limited(limit, case.seconds),
    )  # fmt: skip
    if case.feed:
        assert process.stdin
        try:
            for block in case.feed():
                process.stdin.write(block)
            process.stdin.close()
        except BrokenPipeError:
            pass
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    late = process.returncode == -signal.SIGXCPU
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip()
    if case.prepare or "out" in case.command:
        for left in ("out", "bad", "out.gguf"):
            path = folder / left
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    code = process.returncode
    traced = (
        "Traceback" in said
        and not (case.python and "JumokError" in said)
        and not (case.python and "jumok.errors." in said)
    )
    bad = "late" if late else "traceback" if traced else "killed" if code < 0 else "silent" if code and not said else ""
    return {
        "command": case.command[:150], "code": code, "megabytes": usage.ru_maxrss // 1024,
        "seconds": round(usage.ru_utime + usage.ru_stime, 1), "bad": bad,
        "said": said.splitlines()[-1][:400] if said else "",
    }  # fmt: skip


def main() -> None:
    """Run the cases and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--big", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the models are made, or are already")
    given = parser.parse_args()
    print(f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "stock").exists():
            make_models(folder)
        failed = 0
        chosen = [case for case in cases() if given.only in case.command and case.big <= given.big]
        for case in chosen:
            end = run(case, folder, int(given.gigabytes * 1e9))
            failed += bool(end["bad"])
            mark = end["bad"].upper() or "ok"
            print(f"{mark:9} code {end['code']:3}  {end['megabytes']:6,} MB {end['seconds']:6.1f} s  {end['command']}")
            print(f"          {end['said']}", flush=True)
        print(f"{failed} of {len(chosen)} cases failed")


if __name__ == "__main__":
    main()
