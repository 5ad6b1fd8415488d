"""A load on `jumok serve`, and the same load on llama.cpp's server: python bench/serving.py RUN

    python bench/serving.py runs/novels
    python bench/serving.py runs/novels --server jumok --minutes 2 --requests 10000
    python bench/serving.py --quick       # a toy, to see that it runs

RUN is a run of a GPT; without one, a model of the default size learns the built-in stories for a few steps. The servers
run one after the other, each in a process of its own, with as many slots as there are clients. For each of them:

1. Some prompts are continued greedily one by one: the references.
2. All clients ask at once, each for one text after another, for --minutes: prompts of random lengths, greedy and
   sampled, all streamed. One in ten goes away in the middle, one in ten reads slowly.
3. Short texts follow, until there were --requests in all.

Checked: every text that was not cancelled comes to its end; a greedy text equals its reference; memory stays flat. The
time to the first token and between pieces is that of clients that do not read slowly. A piece may have several tokens:
a server that is short of time may join them.

The load comes from this process, on the same processors as the server. It looks at a response only when that has ended,
and prints its own share of the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import jumok
import llama
from decoding import trained
from jumok.corpora import stories
from speed import describe

SERVERS = ("jumok", "llama.cpp")
REFERENCES = 24  # prompts that are continued greedily
PAUSE = 0.1  # seconds that a slow reader waits between reads
PATIENCE = 300  # seconds, after which a text is lost


# --- what is asked ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Job:
    """A text to ask for.

    Fields:
        reference: which of the references it must equal; None: it is sampled.
        pieces: how many to read before the client goes away; None: all.
        slow: whether the client reads slowly.
    """

    prompt: Sequence[int]
    tokens: int
    seed: int = 0
    reference: int | None = None
    pieces: int | None = None
    slow: bool = False

    def body(self, model: str, more: dict[str, Any]) -> dict[str, Any]:
        """The JSON of the request."""
        greedy = self.reference is not None
        return {
            "model": model, "prompt": list(self.prompt), "max_tokens": self.tokens, "seed": self.seed,
            "temperature": 0 if greedy else 0.8, "stream": True, "stream_options": {"include_usage": True}, **more,
        }  # fmt: skip


def references(ids: Sequence[int], context: int, tokens: int, seed: int) -> list[Job]:
    """Greedy texts with prompts of random lengths."""
    rng = random.Random(seed)
    return [
        Job(prompt=window(ids, context - tokens, rng), tokens=rng.randint(1, tokens), reference=number)
        for number in range(REFERENCES)
    ]


def window(ids: Sequence[int], longest: int, rng: random.Random) -> Sequence[int]:
    """A part of a text: mostly a short one."""
    length = max(1, int(longest * rng.random() ** 3))
    start = rng.randrange(len(ids) - length)
    return ids[start : start + length]


def jobs(known: list[Job], ids: Sequence[int], context: int, tokens: int, rng: random.Random) -> Iterator[Job]:
    """What one client asks for, without end."""
    while True:
        how: dict[str, Any] = {}
        chance = rng.random()
        if chance < 0.1:
            how["pieces"] = rng.randint(1, 20)
        elif chance < 0.2:
            how["slow"] = True
        if rng.random() < 0.5:
            one = rng.choice(known)
            yield Job(prompt=one.prompt, tokens=one.tokens, reference=one.reference, **how)
        else:
            prompt = window(ids, context - tokens, rng)
            yield Job(prompt=prompt, tokens=rng.randint(1, tokens), seed=rng.randrange(2**31), **how)


# --- one request ------------------------------------------------------------------------------------------------------


class Exchange(asyncio.Protocol):
    """A request and its response, as bytes and the times at which they came."""

    def __init__(self, request: bytes, job: Job) -> None:
        self._request, self._job = request, job
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.parts: list[bytes] = []
        self.times: list[float] = []  # of the reads that hold pieces
        self.cancelled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.began = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.parts.append(data)
        if self.times or b"data: " in data:
            self.times.append(time.perf_counter())
        if self._job.pieces is not None and len(self.times) >= self._job.pieces:
            self.cancelled = True
            self._transport.abort()
        elif self._job.slow:
            self._transport.pause_reading()
            self._loop.call_later(PAUSE, self._transport.resume_reading)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def ask(address: tuple[str, int], job: Job, body: dict[str, Any]) -> Exchange:
    """Send a request, and wait for the end of its response.

    Raises:
        TimeoutError: it does not end. OSError: the server cannot be reached.
    """
    content = json.dumps(body).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    link = socket.socket()
    link.setblocking(False)
    if job.slow:  # otherwise the system would read ahead for it
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await loop.sock_connect(link, address)
    transport, exchange = await loop.create_connection(lambda: Exchange(head.encode() + content, job), sock=link)
    try:
        await asyncio.wait_for(exchange.ended, PATIENCE)
    finally:
        transport.abort()
    return exchange


@dataclass(frozen=True)
class Reply:
    """A response that was read to its end. text: None if it is not whole. tokens: that were written."""

    status: int
    text: str | None
    tokens: int


def parsed(raw: bytes) -> Reply:
    """Read a response of server-sent events, which may be sent in chunks."""
    head, _, content = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
    if b"transfer-encoding: chunked" in head.lower():
        chunks = []
        while content:
            size, _, rest = content.partition(b"\r\n")
            chunks.append(rest[: int(size, 16)])
            content = rest[int(size, 16) + 2 :]
        content = b"".join(chunks)
    events = [event[6:] for event in content.split(b"\n\n") if event.startswith(b"data: ")]
    if status != 200 or not events or events[-1] != b"[DONE]":
        return Reply(status, None, 0)
    said = [json.loads(event) for event in events[:-1]]
    choices = [choice for one in said for choice in one.get("choices", ())]
    tokens = max((one["usage"]["completion_tokens"] for one in said if one.get("usage")), default=0)
    whole = any(choice.get("finish_reason") for choice in choices)
    return Reply(status, "".join(choice["text"] for choice in choices) if whole else None, tokens)


# --- the load ---------------------------------------------------------------------------------------------------------


@dataclass
class Load:
    """Clients of a server, and what became of their requests.

    Fields:
        texts: the references. counts: requests by their outcome. first: seconds to the first token; between: from piece
        to piece. tokens: of the texts that ended.
    """

    url: str
    model: str
    more: dict[str, Any]
    texts: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    tokens: int = 0
    pieces: int = 0

    async def request(self, job: Job) -> Reply | None:
        """Ask for a text and note what became of it; None if the client went away or nothing came."""
        where = urllib.parse.urlsplit(self.url)
        try:
            exchange = await ask((where.hostname or "", where.port or 0), job, job.body(self.model, self.more))
        except (OSError, TimeoutError) as error:
            self.counts[f"lost ({type(error).__name__})"] += 1
            return None
        if exchange.cancelled:
            self.counts["cancelled"] += 1
            return None
        reply = parsed(b"".join(exchange.parts))
        if reply.text is None:
            self.counts["refused" if reply.status == 429 else f"lost (status {reply.status})"] += 1
            return reply
        self.tokens += reply.tokens
        self.pieces += len(exchange.times)
        if not job.slow:
            self.first.append(exchange.times[0] - exchange.began)
            self.between += [later - one for one, later in zip(exchange.times, exchange.times[1:], strict=False)]
        if job.reference is not None and self.texts:
            self.counts["greedy"] += 1
            self.counts["greedy, not as alone"] += reply.text != self.texts[job.reference]
        self.counts["finished"] += 1
        return reply

    async def clients(self, sources: Sequence[Iterator[Job]], goes_on: Callable[[], bool]) -> None:
        """Let each client ask for one text after another as long as it shall go on."""

        async def client(source: Iterator[Job]) -> None:
            while goes_on():
                await self.request(next(source))

        await asyncio.gather(*map(client, sources))

    def asked(self) -> int:
        """How many requests there were."""
        return sum(n for name, n in self.counts.items() if not name.startswith("greedy"))


def process(pid: int) -> tuple[float, float]:
    """Resident memory of a process in MB, and the processor seconds it has used. NaN where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan"), float("nan")
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    return kilobytes / 1000, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percentiles(seconds: Sequence[float]) -> str:
    """The 50th, 95th and 99th, and the most, in milliseconds."""
    ordered = sorted(seconds)
    chosen = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95, 0.99, 1)]
    return " / ".join(f"{1000 * one:,.0f}" for one in chosen)


# --- the servers ------------------------------------------------------------------------------------------------------


@contextmanager
def jumok_server(run: Path, slots: int) -> Iterator[tuple[str, int]]:
    """The address and the process of `jumok serve`."""
    command = [sys.executable, "-m", "jumok.cli", "serve", str(run), "--port", "0", "--slots", str(slots)]
    server = subprocess.Popen([*command, "--json", "--quiet"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise SystemExit("jumok serve has ended; its messages are above.")
        yield json.loads(line)["url"], server.pid
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


@contextmanager
def llama_server(model: Any, folder: Path, slots: int) -> Iterator[tuple[str, int]]:
    """The address and the process of llama.cpp's server."""
    from jumok.interop.gguf import to_gguf

    to_gguf(model, folder / "f32.gguf", "f32")
    threads, context = torch.get_num_threads(), model.config.context_length
    with llama.started(folder / "f32.gguf", slots=slots, context=context, threads=threads) as other:
        yield other.url, other.pid


async def measure(name: str, url: str, pid: int, model: Any, options: argparse.Namespace) -> None:
    """Put the load on a server, and print what came of it."""
    more = {"samplers": ["temperature"]} if name == "llama.cpp" else {}
    with urllib.request.urlopen(f"{url}/v1/models") as answer:
        load = Load(url, json.load(answer)["data"][0]["id"], more)
    context, tokens = model.config.context_length, min(options.tokens, model.config.context_length // 2)
    ids = model.tokenizer.encode("".join(stories.write(50_000, seed=5))).tolist()
    known = references(ids, context, tokens, options.seed)
    texts = []
    for job in known:
        reply = await load.request(job)
        if reply is None or reply.text is None:
            raise SystemExit(f"{name} wrote nothing alone: {dict(load.counts)}")
        texts.append(reply.text)
    load = Load(url, load.model, more, texts)

    randoms = [random.Random(f"{options.seed} {client}") for client in range(options.clients)]
    clock, (_, used), own = time.perf_counter(), process(pid), time.process_time()
    end = clock + 60 * options.minutes
    await load.clients([jobs(known, ids, context, tokens, rng) for rng in randoms], lambda: time.perf_counter() < end)
    took, cores = time.perf_counter() - clock, os.cpu_count() or 1
    share = (time.process_time() - own) / took / cores
    memory, after = process(pid)
    print(f"\n{name}, {options.clients} clients for {took:.0f} s: {load.tokens / took:,.0f} tokens/s", flush=True)
    show(load)
    print(f"  processors: server {(after - used) / took / cores:.0%}, load {share:.0%}", flush=True)

    sizes = [memory]
    short = [(Job(prompt=job.prompt, tokens=min(4, tokens)) for job in jobs(known, ids, 64, 4, rng)) for rng in randoms]
    begun, step = load.asked(), max(0, options.requests - load.asked()) // 4
    for quarter in range(1, 5 if step else 1):
        await load.clients(short, lambda quarter=quarter: load.asked() < begun + quarter * step)
        sizes.append(process(pid)[0])
    print(f"  memory while {begun:,} grow to {load.asked():,} requests: {', '.join(f'{one:.0f}' for one in sizes)} MB")


def show(load: Load) -> None:
    """Print the outcomes and the times."""
    greedy, other = load.counts["greedy"], load.counts["greedy, not as alone"]
    outcomes = {name: n for name, n in load.counts.items() if not name.startswith("greedy")}
    print(f"  requests: {', '.join(f'{n:,} {name}' for name, n in sorted(outcomes.items()))}")
    print(f"  greedy texts equal to those written alone: {greedy - other:,} of {greedy:,}")
    print(f"  tokens per piece: {load.tokens / max(1, load.pieces):.2f}")
    print(f"  ms to the first token, percentiles 50 / 95 / 99 / 100: {percentiles(load.first)}")
    print(f"  ms between pieces, percentiles 50 / 95 / 99 / 100: {percentiles(load.between)}")


def main() -> None:
    """Measure the servers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a run of a GPT [one of the default size, made for this]")
    parser.add_argument("--server", action="append", choices=SERVERS, help="may be given several times [all]")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--requests", type=int, default=10_000, help="how many there are at least")
    parser.add_argument("--tokens", type=int, default=200, help="the most tokens of a text")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small model and a small load")
    options = parser.parse_args()
    options.shape = options.ids = None
    if options.quick:
        options.clients, options.minutes, options.requests, options.tokens = 8, 0.05, 100, 20
    print(f"python {' '.join(sys.argv)}")
    print(describe(torch.device("cpu")), flush=True)
    with tempfile.TemporaryDirectory() as name:
        run = options.run or trained(Path(name), options)
        model = jumok.load(run)
        for server in options.server or SERVERS:
            if server == "jumok":
                started = jumok_server(run, options.clients)
            elif llama.INSTALLED:
                started = llama_server(model, Path(name), options.clients)
            else:
                print(llama.MISSING)
                continue
            with started as (url, pid):
                asyncio.run(measure(server, url, pid, model, options))


if __name__ == "__main__":
    main()
