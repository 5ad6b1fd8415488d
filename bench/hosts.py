"""Two hosts on this machine: tokens a second against the latency and the bandwidth of the link between them.

    python bench/hosts.py            # as root; five minutes on two slow cores
    python bench/hosts.py --quick    # few steps, to see that it runs
    python bench/hosts.py --size mini --delays 0 1 --rates 10000 1000

The hosts are network namespaces, each with one core. The link is two TUN devices, between which this program passes the
packets: each leaves when those before it have left at the rate of the link, with the headers that Ethernet adds to each
1,500 bytes, and arrives so much later. (`tc netem` does the same, but is no part of some kernels.) The settings of the
link change while a run goes on; the first step after a change is not counted, and each figure is the least of the
others. The model is trained with the default settings but for `--compile off` and dropout 0.

Predicted is the time of a step without a delay on the fastest link, and the bytes of a step, as the link counted them,
at the bandwidth, and the delays that follow one another: one for the command, two for each megabyte of the half of the
gradients that a host sums up, because gloo sends parts of that size, and one for what Muon exchanges. TCP adds round
trips: after an idle time it sends ten segments, and twice as many after each answer. `--keep-window` turns that off.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import json
import math
import mmap
import os
import select
import signal
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import IO, Any

ADDRESSES = "10.77.0.1", "10.77.0.2"
PORT = 29500
# Of TCP, for about 13 s. With the 15 of Linux, torchrun waits for some 15 minutes for an answer of a host that is gone.
RETRIES = 5
DELAYS, RATES = (0.0, 0.1, 1.0, 10.0), (10_000.0, 1_000.0, 100.0)  # ms one way; Mbit/s


def obstacle() -> str:
    """Why there can be no network namespaces here; "" if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    try:
        done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "the command ip, of iproute2, is not installed"
    return f"ip netns: {done.stderr.strip()}" if done.returncode else ""


def ip(*words: str) -> str:
    """The output of a command of iproute2."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Hosts:
    """Two network namespaces that a pair of virtual Ethernet devices connects; nothing else reaches them.

    They share the file system. When the block ends, their processes are killed, and they are removed.
    """

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self.names = [f"jumok-{os.getpid()}-{time.monotonic_ns() % 1_000_000}-{letter}" for letter in "ab"]

    def __enter__(self) -> Hosts:
        try:
            for name in self.names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
                ip("netns", "exec", name, "sysctl", "-q", "-w", f"net.ipv4.tcp_retries2={RETRIES}")
            self.connect()
            for name, address in zip(self.names, ADDRESSES, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def connect(self) -> None:
        """Make a device eth0 on each host, and a link between them."""
        first, second = self.names
        ip("-n", first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", second)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for host, name in enumerate(self.names):
            with suppress(subprocess.CalledProcessError):  # it was not made
                for process in self.processes(host):
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                ip("netns", "delete", name)
        for started in self._started:
            started.wait()

    def processes(self, host: int) -> list[int]:
        """The ids of the processes on a host."""
        return [int(each) for each in ip("netns", "pids", self.names[host]).split()]

    def start(self, host: int, *words: object, **options: Any) -> subprocess.Popen[bytes]:
        """Begin a command of Python on a host. options: of Popen."""
        command = ["ip", "netns", "exec", self.names[host], sys.executable, *map(str, words)]
        self._started.append(subprocess.Popen(command, **{"stdout": subprocess.DEVNULL, **options}))
        return self._started[-1]

    def torchrun(
        self, host: int, *words: object, restarts: int = 0, errors: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Begin torchrun on a host, for one process of a launch on both."""
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:{PORT}", "--rdzv-id=jumok"]
        # Both hosts have the name of this machine, which says nothing about their addresses.
        here = [f"--rdzv-conf=is_host={int(host == 0)}", f"--local-addr={ADDRESSES[host]}"]
        shape = ["--nnodes=2", "--nproc-per-node=1", f"--max-restarts={restarts}"]
        return self.start(host, "-m", "torch.distributed.run", *shape, *rendezvous, *here, *words, stderr=errors)

    # --- faults -------------------------------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Cut the link: no device has a carrier."""
        ip("-n", self.names[1], "link", "set", "eth0", "down")

    def lose_all(self) -> None:
        """Let each packet be lost, as `tc netem loss 100%` does: no connection is closed, and no device is down."""
        for name, address in zip(self.names, reversed(ADDRESSES), strict=True):
            nobody = ["lladdr", "02:00:00:00:00:99", "nud", "permanent"]
            ip("-n", name, "neighbour", "replace", address, *nobody, "dev", "eth0")


# --- a slow link ------------------------------------------------------------------------------------------------------

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0  # linux/if_tun.h
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x1, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 1, 2
PR_SET_TIMERSLACK = 29  # linux/prctl.h
OFFLOAD = struct.Struct("<BBHHHH")  # linux/virtio_net.h: flags, kind, header and segment bytes, two for the checksum
SEGMENT = 1448  # bytes in a packet of TCP
FRAME = 38  # bytes that Ethernet adds to a packet on the wire: preamble, header, checksum, gap


class Dial:
    """The settings and counters of a link, in a file that several processes map.

    Attributes:
        delay: seconds one way. rate: bit/s. bytes: on the wire, of the direction with more.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._values = memoryview(mmap.mmap(file.fileno(), 4096)).cast("d")

    @staticmethod
    def new(path: Path) -> Dial:
        path.write_bytes(bytes(4096))
        dial = Dial(path)
        dial.set(0.0, 1e10)
        return dial

    def set(self, delay: float, rate: float) -> None:
        self._values[0], self._values[1] = delay, rate

    @property
    def delay(self) -> float:
        return self._values[0]

    @property
    def rate(self) -> float:
        return self._values[1]

    @property
    def bytes(self) -> float:
        return max(self._values[2:4])

    def count(self, way: int, size: int) -> None:
        self._values[2 + way] += size


class SlowHosts(Hosts):
    """Hosts with a link whose delay and rate `dial` sets."""

    def __init__(self, dial: Path, *, keep_window: bool = False) -> None:
        super().__init__()
        self._path, self.dial, self._keep_window = dial, Dial.new(dial), keep_window

    def connect(self) -> None:
        for name in self.names:
            again = int(not self._keep_window)
            ip("netns", "exec", name, "sysctl", "-q", "-w", f"net.ipv4.tcp_slow_start_after_idle={again}")
        link = self.start(0, __file__, "--link", self._path, self.names[1], stdout=subprocess.PIPE)
        assert link.stdout is not None
        if link.stdout.readline() != b"ready\n":
            raise SystemExit("the link cannot be made: /dev/net/tun is needed")


def pass_packets(dial: Dial, other: str) -> None:
    """Be the link between this namespace and another one, for ever."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # the hosts compute on all cores, and a link does not
    ends = [tunnel("eth0"), tunnel("jumok0")]
    ip("link", "set", "jumok0", "netns", other)
    ip("-n", other, "link", "set", "jumok0", "name", "eth0")
    print("ready", flush=True)
    under_way: tuple[deque[tuple[float, bytes]], ...] = (deque(), deque())
    free = [0.0, 0.0]  # when the last packet of each direction has left
    while True:
        now = time.monotonic()
        for way, packets in enumerate(under_way):
            while packets and packets[0][0] <= now:
                with suppress(OSError):  # the other device is down
                    os.write(ends[1 - way], packets.popleft()[1])
        due = min((packets[0][0] for packets in under_way if packets), default=now + 1)
        for end in select.select(ends, [], [], max(0.0, due - time.monotonic()))[0]:
            way = ends.index(end)
            with suppress(BlockingIOError):
                for _ in range(64):
                    packet = os.read(end, 1 << 17)
                    size = on_the_wire(packet)
                    dial.count(way, size)
                    free[way] = max(free[way], time.monotonic()) + 8 * size / dial.rate
                    under_way[way].append((free[way] + dial.delay, packet))


def tunnel(name: str) -> int:
    """A new TUN device. The kernel may pass segments of TCP as one large packet, as it does to a network card."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(end, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return end


def on_the_wire(packet: bytes) -> int:
    """The bytes of a packet on Ethernet, where each segment of a large one has its own headers."""
    _, kind, header, segment, _, _ = OFFLOAD.unpack_from(packet)
    size = len(packet) - OFFLOAD.size
    frames = -(-(size - header) // segment) if kind and segment else 1
    return int(size + (frames - 1) * header + frames * FRAME)


# --- the measurement --------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="micro")
    parser.add_argument("--optimizer", default="muon")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--delays", type=float, nargs="+", default=DELAYS, help="ms one way")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="Mbit/s")
    parser.add_argument("--steps", type=int, default=3, help="counted, with each setting of the link")
    parser.add_argument("--keep-window", action="store_true", help="set net.ipv4.tcp_slow_start_after_idle=0")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--link", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.link:
        pass_packets(Dial(Path(options.link[0])), options.link[1])
    if options.work:
        work(options.work)
        return
    signal.signal(signal.SIGTERM, end)
    if why := obstacle():
        raise SystemExit(why)
    if options.quick:
        options.steps, options.delays, options.rates = 1, (0.0, 10.0), (1_000.0,)
    print(f"python {' '.join(sys.argv)}\n", flush=True)
    show(vars(options))


def end(number: int, frame: object) -> None:
    """End, and remove the hosts."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # timeout(1) sends it twice
    sys.exit(1)


def show(options: dict[str, Any]) -> None:
    links = sorted(product(options["delays"], options["rates"]), key=lambda link: (link[0], -link[1]))
    plan = {key: options[key] for key in ("size", "optimizer", "batch_size", "steps", "keep_window")}
    alone, together = (on_one_host({**plan, "links": [None]}, count)["found"][0] for count in (1, 2))
    apart = on_two_hosts({**plan, "links": links})
    print(
        f"{options['size']}, {apart['parameters']:,} parameters, {options['optimizer']}, {apart['tokens']:,} tokens in "
        f"a step, one core for each process; a step sends {apart['found'][0]['bytes'] / 1e6:.1f} MB each way\n"
    )
    print("| hosts | delay, ms | Mbit/s | s a step | predicted | tokens/s | of two processes on one host |")
    print("|---|---|---|---|---|---|---|")
    for label, one in (("one process", alone), ("two on one host", together)):
        print(row(label, "", "", one["seconds"], "", apart["tokens"], together["seconds"]))
    base = apart["found"][0]["seconds"] - predicted(apart, 0)
    for number, ((delay, rate), one) in enumerate(zip(links, apart["found"], strict=True)):
        seconds = f"{base + predicted(apart, number):.2f}"
        print(row("two", f"{delay:g}", f"{rate:,.0f}", one["seconds"], seconds, apart["tokens"], together["seconds"]))


def row(label: str, delay: str, rate: str, seconds: float, predicted: str, tokens: int, reference: float) -> str:
    share = f"{100 * reference / seconds:.0f}%"
    return f"| {label} | {delay} | {rate} | {seconds:.2f} | {predicted} | {tokens / seconds:,.0f} | {share} |"


def predicted(apart: dict[str, Any], number: int) -> float:
    """The seconds that a step waits for the link."""
    delay, rate = apart["links"][number]
    half = 4 * apart["parameters"] / 2
    in_row = 1 + 2 * max(1, round(half / 2**20)) + 1
    # A connection that was idle sends ten segments, and twice as many with each answer.
    window = min(half, 2 * delay / 1e3 * rate * 1e6 / 8)
    growing = 0.0 if apart["keep_window"] else max(0.0, math.log2(max(window, 1) / (10 * SEGMENT)))
    return float(8 * apart["found"][number]["bytes"] / (rate * 1e6) + (in_row + 2 * growing) * delay / 1e3)


def on_one_host(plan: dict[str, Any], count: int) -> dict[str, Any]:
    with TemporaryDirectory(prefix="jumok-") as folder:
        path = written(Path(folder), plan)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        done = subprocess.run(
            [*torchrun, __file__, "--work", str(path)], env=one_core(), capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stderr)
        return read(path)


def on_two_hosts(plan: dict[str, Any]) -> dict[str, Any]:
    with (
        TemporaryDirectory(prefix="jumok-") as folder,
        SlowHosts(Path(folder) / "dial", keep_window=plan["keep_window"]) as pair,
    ):
        path, errors = written(Path(folder), plan), Path(folder) / "errors.txt"
        os.environ.update(one_core())
        with errors.open("wb") as file:
            agents = [pair.torchrun(host, __file__, "--work", path, errors=file) for host in (0, 1)]
            codes = [agent.wait() for agent in agents]
        if any(codes):
            raise SystemExit(errors.read_text(encoding="utf-8"))
        return read(path)


def one_core() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def written(folder: Path, plan: dict[str, Any]) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return path


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.with_suffix(".found").read_text(encoding="utf-8"))
    return found


# --- in each process --------------------------------------------------------------------------------------------------


def work(path: Path) -> None:
    """Train, and measure the steps with each setting of the link."""
    import torch

    from jumok import text as reader
    from jumok.corpora import stories
    from jumok.runs.events import Step
    from jumok.training.follower import follow
    from jumok.training.joining import joined
    from jumok.training.trainer import Trainer

    plan = json.loads(path.read_text(encoding="utf-8"))
    dial = Dial(path.parent / "dial") if plan["links"][0] else None
    each = 1 + plan["steps"]
    given = {
        "steps": each * len(plan["links"]) + 1, "optimizer": plan["optimizer"], "batch_size": plan["batch_size"],
        "dropout": 0.0, "eval_every": 100_000, "sample_tokens": 0, "save_every": 1e9, "compile": "off", "val": 0.0,
    }  # fmt: skip
    with joined() as world:
        if world.rank:
            follow(world, torch.device("cpu"))
            return
        text = reader.from_string("".join(stories.write(200_000, seed=1)))
        times: list[tuple[float, float]] = []  # and bytes on the link
        arguments = {**given, "size": plan["size"]}
        with Trainer.start(path.parent / f"run-{world.size}", text, **arguments, device="cpu", world=world) as trainer:
            for event in trainer.run():
                if isinstance(event, Step):
                    place, left = divmod(len(times), each)
                    if dial and left == 0 and place < len(plan["links"]):
                        delay, rate = plan["links"][place]
                        dial.set(delay / 1e3, rate * 1e6)
                    times.append((time.perf_counter(), dial.bytes if dial else 0.0))
        parameters = sum(one.numel() for one in trainer.model.parameters())
        tokens = plan["batch_size"] * trainer.model.config.context_length
    # Entry n of the times is the end of step n; after it the link changes, and one step is not counted.
    found = [least(times[place * each + 1 : (place + 1) * each + 1]) for place in range(len(plan["links"]))]
    told = {"found": found, "parameters": parameters, "tokens": tokens, **plan}
    path.with_suffix(".found").write_text(json.dumps(told), encoding="utf-8")


def least(ends: Sequence[tuple[float, float]]) -> dict[str, float]:
    """The seconds and bytes between the ends of steps: the least, because other programs only make a step longer."""
    seconds, sizes = zip(*([b - a for a, b in zip(*pair, strict=True)] for pair in pairwise(ends)), strict=True)
    return {"seconds": min(seconds), "bytes": statistics.median(sizes)}


if __name__ == "__main__":
    main()
