"""Two hosts train one run. A fault of a process, of torchrun or of the link ends both, with a state to resume."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import hosts
from conftest import Jumok, events_of
from hosts import Hosts

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(hosts.obstacle()), reason=hosts.obstacle())]
STEPS, FAULT_AT = 300, 20
GONE = 60  # seconds; the promise of the documentation
SETTINGS = [
    "--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--batch-size", 4, "--eval-every", 1000,
    "--sample-tokens", 0, "--precision", "float32", "--compile", "off", "--attention", "chunked", "--dropout", 0,
    "--learning-rate", 1e-3, "--optimizer", "adamw", "--save-every", 0, "--steps", STEPS, "--device", "cpu",
]  # fmt: skip
# `jumok train` that waits less long for a process that is silent
IMPATIENT = """
from jumok.cli import main
from jumok.training import heartbeat

heartbeat.SILENCE = 6.0
main()
"""


class Launch:
    """A run on two hosts, by torchrun's rendezvous."""

    def __init__(self, pair: Hosts, folder: Path, text: Path, *, restarts: int = 0) -> None:
        self.pair, self.out, script = pair, folder / "run", folder / "impatient.py"
        script.write_text(IMPATIENT, encoding="utf-8")
        self.texts = [folder / f"host-{host}.txt" for host in (0, 1)]
        words = [script, "train", text, *SETTINGS, "--out", self.out]
        self.agents = []
        for host, path in enumerate(self.texts):
            with path.open("wb") as errors:
                self.agents.append(pair.torchrun(host, *words, restarts=restarts, errors=errors))

    def worker(self, host: int) -> int:
        """The id of the process that trains on a host."""
        agent = self.agents[host].pid
        return max(map(int, Path(f"/proc/{agent}/task/{agent}/children").read_text().split()))

    def errors(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in self.texts)

    def wait_for_steps(self, count: int) -> None:
        until = time.monotonic() + 250
        while not (self.out / "metrics.jsonl").is_file() or len(losses_in(self.out)) < count:
            assert time.monotonic() < until, self.errors()
            assert all(agent.poll() is None for agent in self.agents), self.errors()
            time.sleep(0.05)

    def wait_for_the_end(self, seconds: float = 200) -> list[int]:
        """The exit codes of both torchruns, once no process is left on the hosts."""
        until = time.monotonic() + seconds
        while left := [agent.poll() for agent in self.agents].count(None) + sum(
            len(self.pair.processes(host)) for host in (0, 1)
        ):
            assert time.monotonic() < until, f"{left} processes are left\n{self.errors()}"
            time.sleep(0.1)
        return [agent.returncode for agent in self.agents]


@pytest.fixture
def pair() -> Iterator[Hosts]:
    with Hosts() as made:
        yield made


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    path = tmp_path_factory.mktemp("text") / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, text: Path) -> list[float]:
    """The losses of one process."""
    out = tmp_path_factory.mktemp("one") / "run"
    command = [sys.executable, "-m", "jumok", "train", text, *SETTINGS, "--out", out]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return losses_in(out)


def losses_in(run: Path) -> list[float]:
    return [event["loss"] for event in events_of(run) if event["event"] == "step"]


def assert_same_curve(found: list[float], expected: list[float]) -> None:
    """In float32, whose rounding differs with the order of summation."""
    assert len(found) == len(expected) == STEPS
    assert max(abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)) <= 1e-4


# --- the faults -------------------------------------------------------------------------------------------------------


def kill_worker(host: int) -> Callable[[Launch], None]:
    return lambda launch: os.kill(launch.worker(host), signal.SIGKILL)


def kill_agent(host: int) -> Callable[[Launch], None]:
    return lambda launch: launch.agents[host].kill()


FAULTS = {
    "rank 0 is killed": kill_worker(0),
    "rank 1 is killed": kill_worker(1),
    "torchrun of host 0 is killed": kill_agent(0),
    "torchrun of host 1 is killed": kill_agent(1),
    "the cable is pulled": lambda launch: launch.pair.unplug(),
    "each packet is lost": lambda launch: launch.pair.lose_all(),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_ends_both_hosts(
    tmp_path: Path, pair: Hosts, text: Path, jumok: Jumok, expected: list[float], fault: str
) -> None:
    """No process is left, and `jumok train --resume` reaches the same end as a run without a fault."""
    launch = Launch(pair, tmp_path, text)
    launch.wait_for_steps(FAULT_AT)
    FAULTS[fault](launch)
    assert all(launch.wait_for_the_end(GONE))
    assert FAULT_AT <= len(losses_in(launch.out)) < STEPS
    end = jumok("train", "--resume", "--out", launch.out)
    assert end.code == 0, end.err
    assert_same_curve(losses_in(launch.out), expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_torchrun_restarts_both_hosts(
    tmp_path: Path, pair: Hosts, text: Path, expected: list[float], rank: int
) -> None:
    launch = Launch(pair, tmp_path, text, restarts=1)
    launch.wait_for_steps(FAULT_AT)
    kill_worker(rank)(launch)
    assert launch.wait_for_the_end() == [0, 0], launch.errors()
    assert_same_curve(losses_in(launch.out), expected)


# --- without a fault --------------------------------------------------------------------------------------------------


def test_two_hosts_agree_with_one_process(tmp_path: Path, pair: Hosts, text: Path, expected: list[float]) -> None:
    launch = Launch(pair, tmp_path, text)
    assert launch.wait_for_the_end() == [0, 0], launch.errors()
    assert_same_curve(losses_in(launch.out), expected)


def test_the_network_of_this_machine_is_not_touched() -> None:
    """Also after a failure."""
    before = hosts.ip("-brief", "address")
    sleeping = fail_on(pair := Hosts())
    assert sleeping.wait() == -signal.SIGKILL
    assert hosts.ip("-brief", "address") == before
    assert not set(pair.names) & set(hosts.ip("netns", "list").split())


def fail_on(pair: Hosts) -> subprocess.Popen[bytes]:
    """A process that was on a host when an error came."""
    with suppress(OSError), pair:
        assert set(pair.names) <= set(hosts.ip("netns", "list").split())
        sleeping = pair.start(1, "-c", "import time; time.sleep(100)")
        raise OSError
    return sleeping
