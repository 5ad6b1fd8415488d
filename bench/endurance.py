"""Hours of training and of serving, one sample of both processes every few seconds: python bench/endurance.py --hours 2

    python bench/endurance.py --hours 2 --out endurance
    python bench/endurance.py --quick                  # half a minute, to see that it runs
    python bench/endurance.py --report endurance       # the figures of a folder, also while it is still measured

A small GPT is trained for --hours in a process of its own, with a validation, a sample of text and a saved state every
few seconds or more often. Another one is served, with --rate requests a second: completions streamed and not, chats,
token ids, embeddings, figures, the playground, wrong requests, and clients that go away in the middle. Both processes
have one thread.

Written to --out while it runs: samples.csv (memory, handles, threads, bytes of the logs and of the run folder), and at
the end endurance.json and endurance.png. The logs of the processes are train.log and serve.log.

The test, after a warm-up of --warmup of the time: memory (RssAnon, which leaves out pages of files) is flat if its
slope by linear regression is less than twice its standard error, or less than 1 MiB per hour. The samples depend on
their neighbours, so the true error is larger than the printed one; the test is the stricter for it. Handles and threads
are constant if their medians in the first and last quarter are equal: single counts differ, because files are open
while they are written.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from jumok.corpora import stories
from speed import describe

JUMOK = [sys.executable, "-m", "jumok"]
FIELDS = ("process", "hours", "rss", "anonymous", "handles", "threads", "logs", "folder", "requests")
MEMORY = ("rss", "anonymous")
FLAT = 2**20  # bytes per hour
PATIENCE = 60  # seconds, after which a request is lost
MODEL = ["--n-layer", "2", "--n-embd", "64", "--n-head", "2", "--context-length", "64", "--batch-size", "8"]


# --- the two processes ------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """That of a process with one thread."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def train(out: Path, hours: float, log: Any) -> subprocess.Popen[bytes]:
    """Start a training run of this many hours."""
    command = [*JUMOK, "train", out / "stories.txt", "--out", out / "run", *MODEL, "--minutes", 60 * hours]
    often = ["--eval-every", 20, "--eval-tokens", 1000, "--patience", 0, "--sample-tokens", 8, "--save-every", 1]
    how = ["--compile", "off", "--precision", "float32", "--device", "cpu", "--seed", 0, "--quiet"]
    return subprocess.Popen([*map(str, [*command, *often, *how])], stdout=log, stderr=log, env=environment())


@contextmanager
def served(out: Path, log: Any) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server of a model that was trained for a few steps, and its URL."""
    how = ["--steps", "20", "--compile", "off", "--sample-tokens", "0", "--device", "cpu", "--quiet"]
    first = [*JUMOK, "train", str(out / "stories.txt"), "--out", str(out / "runs" / "served"), *MODEL, *how]
    (out / "runs").mkdir()
    subprocess.run(first, check=True, env=environment(), stderr=log)
    command = [*JUMOK, "serve", str(out / "runs" / "served"), "--runs", str(out / "runs"), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment())
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"jumok serve has ended; see {log.name}.")
        yield server, json.loads(line)["url"]
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


def measured(pid: int) -> dict[str, int]:
    """Memory of a process in bytes, its open handles and its threads.

    Raises:
        OSError: it has ended.
    """
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "rss": 1024 * int(lines["VmRSS"].split()[0]),
        "anonymous": 1024 * int(lines["RssAnon"].split()[0]),
        "handles": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(lines["Threads"]),
    }


def size_of(*paths: Path) -> int:
    """The bytes of files, and of all files in folders."""
    total = 0
    for path in paths:
        for file in [path] if path.is_file() else path.rglob("*"):
            with suppress(OSError):  # states come and go
                total += file.stat().st_size if file.is_file() else 0
    return total


# --- the requests -----------------------------------------------------------------------------------------------------


class Client(threading.Thread):
    """Sends requests of all kinds, at a steady rate, until `end` is set; counts the statuses of each kind."""

    def __init__(self, url: str, rate: float, seed: int) -> None:
        super().__init__(daemon=True)
        parts = urllib.parse.urlsplit(url)
        self._address = (parts.hostname or "", parts.port or 0)
        self._rate, self._rng = rate, random.Random(seed)
        self.end = threading.Event()
        self.counts: Counter[str] = Counter()
        self.total = 0

    def run(self) -> None:
        """Send them."""
        kinds: list[tuple[str, Callable[[], str]]] = [
            ("completion", lambda: self._post("/v1/completions", self._completion())),
            ("completion, streamed", lambda: self._post("/v1/completions", {**self._completion(), "stream": True})),
            ("completion, aborted", self._abort),
            ("several texts", lambda: self._post("/v1/completions", {**self._completion(), "n": 3, "logprobs": 2})),
            ("chat", lambda: self._post("/v1/chat/completions", self._chat())),
            ("chat, streamed", lambda: self._post("/v1/chat/completions", {**self._chat(), "stream": True})),
            ("tokenize", lambda: self._post("/v1/tokenize", {"model": "served", "input": self._prompt()})),
            ("embeddings", lambda: self._post("/v1/embeddings", {"model": "served", "input": self._prompt()})),
            ("attention", lambda: self._post("/v1/attention", {"model": "served", "input": self._prompt()})),
            ("wrong: a field", lambda: self._post("/v1/completions", {**self._completion(), "temperature": -1})),
            ("wrong: the model", lambda: self._post("/v1/completions", {**self._completion(), "model": "none"})),
            ("wrong: no JSON", lambda: self._send("POST", "/v1/completions", b"{")),
            ("wrong: no HTTP", self._rubbish),
            ("wrong: a path", lambda: self._send("GET", f"/{self._rng.random()}")),
            ("models", lambda: self._send("GET", "/v1/models")),
            ("figures", lambda: self._send("GET", "/metrics")),
            ("playground", lambda: self._send("GET", "/")),
        ]
        while not self.end.wait(1 / self._rate):
            kind, send = self._rng.choice(kinds)
            try:
                status = send()
            except (OSError, http.client.HTTPException) as error:
                status = f"lost ({type(error).__name__})"
            self.counts[f"{kind}: {status}"] += 1
            self.total += 1

    def _prompt(self) -> str:
        return "눈 내리는 아침, "[: self._rng.randint(1, 10)] + str(self._rng.randrange(10**6))

    def _completion(self) -> dict[str, Any]:
        return {"model": "served", "prompt": self._prompt(), "max_tokens": self._rng.randint(1, 60)}

    def _chat(self) -> dict[str, Any]:
        return {"model": "served", "messages": [{"role": "user", "content": self._prompt()}], "max_tokens": 20}

    def _post(self, path: str, body: dict[str, Any]) -> str:
        return self._send("POST", path, json.dumps(body).encode())

    def _send(self, method: str, path: str, body: bytes | None = None) -> str:
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        finally:
            connection.close()

    def _abort(self) -> str:
        """Go away after the first bytes of a stream."""
        connection = http.client.HTTPConnection(*self._address, timeout=PATIENCE)
        try:
            body = {**self._completion(), "max_tokens": 1000, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(1)
            return str(answer.status)
        finally:
            connection.close()

    def _rubbish(self) -> str:
        with socket.create_connection(self._address, timeout=PATIENCE) as link:
            link.sendall(b"\x16\x03\x01 what is this\r\n\r\n")
            return [*link.recv(100).split(b" "), b"", b""][1].decode()


# --- what it means ----------------------------------------------------------------------------------------------------


def slope(hours: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """The slope of a linear regression, per hour, and its standard error."""
    mean_x, mean_y = statistics.fmean(hours), statistics.fmean(values)
    spread = sum((x - mean_x) ** 2 for x in hours)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in zip(hours, values, strict=True)) / spread
    rest = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in zip(hours, values, strict=True))
    return rise, (rest / max(1, len(hours) - 2) / spread) ** 0.5


def figures(samples: list[dict[str, Any]], warmup: float) -> dict[str, Any]:
    """Slopes, ranges and the verdict of the samples of one process."""
    after = [one for one in samples if one["hours"] >= warmup * samples[-1]["hours"]]
    hours, quarter = [one["hours"] for one in after], max(1, len(after) // 4)
    found: dict[str, Any] = {"samples": len(after), "hours": hours[-1] - hours[0], "flat": True, "constant": True}
    for name in MEMORY:
        values = [one[name] for one in after]
        rise, error = slope(hours, values)
        found[name] = {"slope": rise, "error": error, "first": values[0], "last": values[-1], "peak": max(values)}
        if name == "anonymous":
            found["flat"] = abs(rise) < max(2 * error, FLAT)
    for name in ("handles", "threads"):
        values = [one[name] for one in after]
        begin, end = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
        found[name] = {"least": min(values), "most": max(values), "first quarter": begin, "last quarter": end}
        found["constant"] &= begin == end
    for name in ("logs", "folder"):
        found[name] = {"first": after[0][name], "last": after[-1][name], "most": max(one[name] for one in after)}
    return found


def report(out: Path, warmup: float) -> dict[str, Any]:
    """Print the figures of samples.csv, and draw them."""
    with (out / "samples.csv").open(encoding="utf-8", newline="") as file:
        rows = [{n: v if n == "process" else float(v) for n, v in row.items()} for row in csv.DictReader(file)]
    processes = {name: [row for row in rows if row["process"] == name] for name in ("train", "serve")}
    found = {name: figures(rows, warmup) for name, rows in processes.items() if len(rows) > 8}
    for name, one in found.items():
        print(f"\n{name}: {one['samples']} samples in {one['hours']:.2f} h after the warm-up")
        for kind in MEMORY:
            memory = one[kind]
            print(
                f"  {kind}: {memory['slope'] / 2**20:+.2f} MiB/h, standard error {memory['error'] / 2**20:.2f}; "
                f"{memory['first'] / 2**20:.1f} to {memory['last'] / 2**20:.1f}, peak {memory['peak'] / 2**20:.1f} MiB"
            )
        for kind in ("handles", "threads"):
            print(f"  {kind}: {', '.join(f'{label} {value:g}' for label, value in one[kind].items())}")
        for kind in ("logs", "folder"):
            print(f"  {kind}: {', '.join(f'{label} {value / 1e6:.2f} MB' for label, value in one[kind].items())}")
        flat, constant = ("" if one["flat"] else "NOT "), ("" if one["constant"] else "NOT ")
        print(f"  memory {flat}flat; handles and threads {constant}constant", flush=True)
    draw(processes, out / "endurance.png")
    return found


def draw(processes: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Memory, handles and threads, and logs, over the hours."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 2, figsize=(10, 8), sharex=True)
    for column, (name, rows) in enumerate(processes.items()):
        hours = [row["hours"] for row in rows]
        for row, (title, kinds, unit) in enumerate(
            [
                ("memory, MiB", MEMORY, 2**20),
                ("open handles, threads", ("handles", "threads"), 1),
                ("files, MB", ("logs", "folder"), 1e6),
            ]
        ):
            for kind in kinds:
                axes[row][column].plot(hours, [one[kind] / unit for one in rows], label=kind, linewidth=0.8)
            axes[row][column].set(title=f"{name}: {title}", ylim=(0, None))
            axes[row][column].legend(loc="lower right")
        axes[-1][column].set_xlabel("hours")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


# --- the program ------------------------------------------------------------------------------------------------------


def watch(out: Path, options: argparse.Namespace) -> tuple[dict[str, int], int]:
    """Run both processes and write samples.csv; return the counts of requests, and the exit code of the training."""
    (out / "stories.txt").write_text("".join(stories.write(200_000, seed=options.seed)), encoding="utf-8")
    logs = {"train": out / "train.log", "serve": out / "serve.log"}
    with (
        logs["train"].open("wb") as train_log,
        logs["serve"].open("wb") as serve_log,
        (out / "samples.csv").open("w", encoding="utf-8", newline="") as file,
        served(out, serve_log) as (server, url),
    ):
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        client = Client(url, options.rate, options.seed)
        client.start()
        trainer = train(out, options.hours, train_log)
        began = time.monotonic()
        files = {"train": [out / "run" / "metrics.jsonl", out / "run" / "samples.txt", logs["train"]], "serve": []}
        files["serve"].append(logs["serve"])
        try:
            while (hours := (time.monotonic() - began) / 3600) < options.hours or trainer.poll() is None:
                for name, pid, folder in (("train", trainer.pid, out / "run"), ("serve", server.pid, out / "runs")):
                    row = {"process": name, "hours": f"{hours:.5f}", "requests": client.total}
                    with suppress(OSError, KeyError):  # the training has ended
                        row |= measured(pid)
                        writer.writerow({**row, "logs": size_of(*files[name]), "folder": size_of(folder)})
                file.flush()
                if server.poll() is not None or hours > options.hours + 0.5:
                    break
                time.sleep(options.every)
        finally:
            client.end.set()
            client.join(PATIENCE)
            if trainer.poll() is None:
                trainer.send_signal(signal.SIGTERM)
        return dict(client.counts), trainer.wait(timeout=120)


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--out", type=Path, help="a new folder [a temporary one, which is removed]")
    parser.add_argument("--rate", type=float, default=1.0, help="requests a second")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--warmup", type=float, default=0.2, help="share of the time that is not judged")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--report", type=Path, metavar="OUT", help="only print the figures of this folder")
    options = parser.parse_args()
    if options.quick:
        options.hours, options.every, options.rate = 0.01, 0.5, 5.0
    if options.report:
        report(options.report, options.warmup)
        return
    print(f"python {' '.join(sys.argv)}")
    print(describe(torch.device("cpu")), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        out = options.out or Path(temporary)
        out.mkdir(parents=True, exist_ok=options.out is None)
        counts, ended = watch(out, options)
        found = report(out, options.warmup)
        print(f"\nthe training ended with {ended}; requests: {sum(counts.values())}")
        for name, count in sorted(counts.items()):
            print(f"  {count:6,} {name}")
        content = {"seed": options.seed, "hours": options.hours, "training ended with": ended, "requests": counts}
        (out / "endurance.json").write_text(json.dumps({**content, **found}, indent=1, ensure_ascii=False) + "\n")
        events = (out / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        print("events of the training:", dict(Counter(json.loads(line)["event"] for line in events)))
    if ended or not all(one["flat"] and one["constant"] for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
