"""How waiting threads wait: by what a made-up /proc says of other programs, and by the limits of a container."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jumok import processors
from jumok.processors import Waiting, busy_processors, processor_limit

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
DAY = 86_400.0  # seconds since the system began
pytestmark = pytest.mark.skipif(not hasattr(os, "getpriority"), reason="the system has no nice values")


class Machine:
    """A made-up root folder with the parts of /proc and /sys that are read."""

    def __init__(self, root: Path, load: float) -> None:
        self.root, self._pid = root, 100
        (root / "proc" / "self").mkdir(parents=True)
        self.write("proc/loadavg", f"{load:.2f} 0.50 0.50 3/200 4000\n")
        self.write("proc/uptime", f"{DAY:.2f} {DAY:.2f}\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")

    def program(
        self, age: float, used: float, *, running: bool = False, nice: int = 0, threads: int = 1, policy: int = 0
    ) -> Machine:
        """Add a program. age, used: seconds since its start, and of a processor."""
        self._pid += 1
        ticks, began = int(used * TICKS / 2), int((DAY - age) * TICKS)
        fields = ["R" if running else "S", *[0] * 10, ticks, ticks, 9_999_999, 9_999_999]
        fields += [20 + nice, nice, threads, 0, began, *[0] * 18, policy, *[0] * 11]
        self.write(f"proc/{self._pid}/stat", f"{self._pid} (a (b) c) {' '.join(map(str, fields))}\n")
        return self


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors, two threads, nice 0, no choice in the environment, torch not loaded."""
    for name in processors.WAITING_POLICIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(processors, "computing_threads", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)


def quiet(root: Path) -> Machine:
    """A day of use: a system process, a shell that has run much, and a browser that is idle now."""
    return Machine(root, 0.1).program(DAY, 30).program(9_000, 3).program(9_000, 900, threads=40)


def reason(machine: Machine) -> str:
    waiting = processors._choose(machine.root)
    assert waiting.sleep is (waiting.reason in ("others", "container"))
    return waiting.reason


def test_a_quiet_machine(tmp_path: Path) -> None:
    assert reason(quiet(tmp_path)) == "free"


@pytest.mark.parametrize(("nice", "policy"), [(19, 0), (1, 0), (0, 5)])
def test_programs_of_a_lower_priority_do_not_count(tmp_path: Path, nice: int, policy: int) -> None:
    """A program at `nice 19` that ran at the start cost 75 of 241 steps: threads slept for the whole run."""
    machine = Machine(tmp_path, 2.0).program(4_000, 3_900, running=True, nice=nice, policy=policy)
    assert reason(machine.program(DAY, 900)) == "free"
    machine.program(9_000, 800, running=True)  # and a moment of work of another one
    machine.program(4_000, 3_900, running=True, nice=nice, policy=policy)
    assert reason(machine) == "free"


def test_a_program_that_is_nice_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpriority", lambda *_: 19)
    assert reason(Machine(tmp_path, 1.0).program(4_000, 3_900, running=True, nice=19)) == "others"


@pytest.mark.parametrize(("age", "used"), [(60, 59), (9_000, 8_900), (9_000, 100)])
def test_a_loop_of_a_minute(tmp_path: Path, age: float, used: float) -> None:
    """After a minute the load average is 0.63; the loop may be that of a notebook that was idle for hours."""
    waiting = processors._choose(Machine(tmp_path, 0.63).program(age, used, running=True).root)
    assert waiting == Waiting(True, "others", 0.63, 2)


def test_a_loop_that_waits_at_the_moment(tmp_path: Path) -> None:
    assert reason(Machine(tmp_path, 1.0).program(600, 590)) == "others"


def test_a_moment_of_work(tmp_path: Path) -> None:
    """50 ms at the start decided for the whole run."""
    assert reason(quiet(tmp_path).program(1, 0.9, running=True).program(9_000, 800, running=True)) == "free"


def test_a_program_that_has_ended(tmp_path: Path) -> None:
    """A training that ended just now is in the load average of the minute; the shell that began it has its time."""
    machine = Machine(tmp_path, 1.9).program(600, 2).program(9_000, 40, threads=9)
    assert reason(machine) == "free"


def test_own_time_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, 2.0).program(70, 65, running=True)
    monkeypatch.setattr(os, "getpid", lambda: machine._pid)
    assert reason(machine) == "free"


def test_many_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, 3.0).program(600, 1_700, threads=3)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert reason(machine) == "free"
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert reason(machine) == "others"


@pytest.mark.parametrize(
    ("group", "name", "text", "limit"),
    [
        ("0::/", "cpu.max", "150000 100000\n", 1.5),
        ("0::/", "cpu.max", "max 100000\n", None),
        ("0::/docker/12ab", "cpu.max", "50000 100000\n", 0.5),
        ("0::/user.slice/run.scope", "user.slice/cpu.max", "100000 100000\n", 1.0),
        ("4:cpu,cpuacct:/docker/12ab", "cpu,cpuacct/docker/12ab/cpu.cfs_quota_us", "30000\n", 0.3),
        ("4:cpu,cpuacct:/", "cpu,cpuacct/cpu.cfs_quota_us", "-1\n", None),
        ("5:memory:/a", "memory/a/cpu.cfs_quota_us", "30000\n", None),
    ],
)
def test_limits_of_containers(tmp_path: Path, group: str, name: str, text: str, limit: float | None) -> None:
    machine = quiet(tmp_path)
    machine.write("proc/self/cgroup", f"{group}\n")
    machine.write(f"sys/fs/cgroup/{name}", text)
    machine.write(f"sys/fs/cgroup/{Path(name).parent}/cpu.cfs_period_us", "100000\n")
    assert processor_limit(tmp_path) == (float("inf") if limit is None else limit)
    assert reason(machine) == ("free" if limit is None else "container")


def test_a_limit_that_is_enough(tmp_path: Path) -> None:
    machine = quiet(tmp_path)
    machine.write("proc/self/cgroup", "0::/\n")
    machine.write("sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert reason(machine) == "free"


@pytest.mark.parametrize("name", sorted(processors.WAITING_POLICIES))
def test_a_choice_in_the_environment_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1000")
    assert reason(Machine(tmp_path, 1.0).program(60, 59, running=True)) == "environment"


def test_what_cannot_be_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert busy_processors(tmp_path) is None
    assert processors._choose(tmp_path).reason == "unknown"
    machine = Machine(tmp_path, 1.0).program(60, 59, running=True)
    machine.write("proc/999/stat", "")  # it has ended meanwhile
    assert reason(machine) == "others"
    with monkeypatch.context() as patch:
        patch.setattr(processors, "computing_threads", lambda: 1)
        assert reason(machine) == "alone"
    monkeypatch.setitem(sys.modules, "torch", object())  # type: ignore[arg-type]
    assert reason(machine) == "loaded"


def test_it_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "")  # so that it is as before when the test is over
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(processors, "_waiting", None)
    busy = iter([1.0])
    monkeypatch.setattr(processors, "busy_processors", lambda root: next(busy))
    assert processors.waiting_threads() == processors.waiting_threads()
    assert processors.waiting_threads().sleep
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
