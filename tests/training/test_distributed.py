"""Several processes train one run: they agree with one process, and each way to fail ends them all with a reason."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_runs import CPU, Work, assert_close, begin, ends, finish, in_float64, losses_in
from torch import Tensor, nn

from conftest import Jumok, events_of, state_of
from jumok.cli.interrupts import stopping
from jumok.device import seed_random
from jumok.errors import ConfigError, JumokError
from jumok.training import distributed, follower, heartbeat, joining, optim, steps, trainer
from jumok.training.distributed import World
from jumok.training.follower import follow
from jumok.training.joining import joined, launched
from jumok.training.optim import balanced, orthogonal, shared_orthogonal
from jumok.training.steps import Steps
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")


# --- agreement --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "task"),
    [pytest.param(2, "seq2seq", marks=pytest.mark.long)]
    + [
        pytest.param(*each, marks=pytest.mark.long) for each in ((2, "lm"), (2, "mlm"), (2, "classify"), (4, "seq2seq"))
    ],
)
def test_processes_agree_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, task: str) -> None:
    """In float64 only the order of summation differs: each loss is a sum over the counts of all processes."""
    in_float64(monkeypatch)
    cases = {name: {"task": task, "optimizer": name} for name in ("adamw", "muon")}
    few = []  # parts with fewer rows than processes

    def lead(world: World) -> None:
        for name, case in cases.items():
            finish(begin(tmp_path / name, world, **case))

    for name, case in cases.items():  # first, because forked processes have then loaded what an optimizer loads
        trainer = begin(tmp_path / f"{name}-1", **case)
        few += [part for number in range(12) for part in trainer.task.parts(number) if len(part[0]) < count]
        finish(trainer)
    assert ends(count, lead) == [""] * count
    for name in cases:
        assert_close(losses_in(tmp_path / name), losses_in(tmp_path / f"{name}-1"), 1e-12)
        for key, tensor in state_of(tmp_path / name).tensors.items():
            torch.testing.assert_close(tensor, state_of(tmp_path / f"{name}-1").tensors[key], rtol=1e-8, atol=1e-10)
    assert few or task != "seq2seq"


@pytest.mark.long
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_float32_agrees_for_twenty_steps(tmp_path: Path, optimizer: str) -> None:
    """With directions of Muon in bfloat16 it did not: 1e-4."""
    settings = {"optimizer": optimizer, "steps": 20, "learning_rate": 1e-3}
    assert ends(2, lambda world: finish(begin(tmp_path / "two", world, **settings))) == ["", ""]
    assert_close(losses_in(tmp_path / "two"), finish(begin(tmp_path / "one", **settings)), 1e-6)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_float64(monkeypatch)
    out, expected = tmp_path / "run", finish(begin(tmp_path / "whole"))
    assert len(finish(begin(out), stop_after=2)) == 2
    assert ends(2, lambda world: finish(Trainer.resume(out, world=world, device="cpu"), stop_after=2)) == ["", ""]
    assert len(losses_in(out)) == 4
    assert len(finish(Trainer.resume(out, device="cpu"))) == 2
    assert_close(losses_in(out), expected, 1e-12)


@pytest.mark.long
def test_gradients_are_summed_where_there_are_any(tmp_path: Path) -> None:
    """One parameter is used by rank 1 alone, one by nobody, one is frozen; two dtypes."""

    def work(world: World) -> None:
        model = nn.ParameterDict({name: nn.Parameter(torch.ones(2)) for name in ("all", "one", "none", "frozen")})
        model["wide"] = nn.Parameter(torch.ones(3, dtype=torch.float64))
        model["frozen"].requires_grad_(False)
        model["all"].grad = torch.full((2,), 1.0 + world.rank)
        model["wide"].grad = torch.full((3,), 10.0, dtype=torch.float64)
        if world.rank == 1:
            model["one"].grad = torch.full((2,), 5.0)
        assert world.sum_gradients(model, [0.5 + world.rank, 4.0]) == [2.0, 8.0]
        assert model["all"].grad.tolist() == [3.0, 3.0]
        assert model["wide"].grad.tolist() == [20.0, 20.0, 20.0]
        assert model["one"].grad is not None
        assert model["one"].grad.tolist() == [5.0, 5.0]
        assert model["none"].grad is None
        assert model["frozen"].grad is None

    assert ends(2, work, work) == ["", ""]


def test_each_row_is_computed_once() -> None:
    batch = (torch.arange(7), torch.arange(14).view(7, 2))
    for size in (1, 2, 4, 9):
        shares = [World(rank, size).share(batch) for rank in range(size)]
        for place, whole in enumerate(batch):
            assert torch.equal(torch.cat([share[place] for share in shares]), whole)


def reason_of(run: Path) -> str:
    return [event["reason"] for event in events_of(run) if event["event"] == "finish"][-1]


@pytest.mark.long
def test_what_rank_0_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others have no clock, no validations and no goal; three steps without a finite sum end all of them."""
    plain = Steps._losses

    def loss(self: Steps, *arguments: Any) -> Tensor:
        found = plain(self, *arguments)
        return found * float("nan") if world_rank() == 1 and self._run.config.seed == 9 else found

    monkeypatch.setattr(Steps, "_losses", loss)

    def lead(world: World) -> None:
        finish(begin(tmp_path / "time", world, steps=None, minutes=0.03, val=0.1))
        finish(begin(tmp_path / "goal", world, steps=40, val=0.1, stop_at=50.0, eval_every=2))
        worse = {"patience": 1, "eval_every": 1, "optimizer": "adamw", "learning_rate": 1.0}
        finish(begin(tmp_path / "worse", world, steps=40, val=0.1, **worse))
        finish(begin(tmp_path / "nan", world, seed=9))

    first, second = ends(2, lead)
    assert [reason_of(tmp_path / name) for name in ("time", "goal", "worse")] == ["done", "reached", "early stop"]
    assert first.startswith("TrainingError: the loss was not finite in 3 steps in a row (up to step 3)")
    assert second == ""
    assert state_of(tmp_path / "nan").step == 3


def world_rank() -> int:
    return int(os.environ.get("RANK", "0"))


@pytest.mark.long
def test_dropout_is_another_one_on_each_rank_and_the_same_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"dropout": 0.2, "precision": "bfloat16", "optimizer": "muon"}
    seeds: list[int] = []
    monkeypatch.setattr(steps, "seed_random", lambda device, seed: [seeds.append(seed), seed_random(device, seed)])

    def lead(world: World) -> None:
        finish(begin(tmp_path / "whole", world, **settings))
        finish(begin(tmp_path / "parts", world, **settings), stop_after=2)
        finish(Trainer.resume(tmp_path / "parts", world=world, device="cpu"))
        (tmp_path / "0").write_text(json.dumps(seeds), encoding="utf-8")

    def other(world: World) -> None:
        follow(world, CPU)
        (tmp_path / "1").write_text(json.dumps(seeds), encoding="utf-8")

    assert ends(2, lead, other) == ["", ""]
    drawn = [json.loads((tmp_path / rank).read_text(encoding="utf-8")) for rank in "01"]
    assert [len(set(each)) for each in drawn] == [len(each) / 2 for each in drawn]
    assert not set(drawn[0]) & set(drawn[1])
    assert losses_in(tmp_path / "parts") == losses_in(tmp_path / "whole")
    for key, tensor in state_of(tmp_path / "whole").tensors.items():
        assert torch.equal(tensor, state_of(tmp_path / "parts").tensors[key])


# --- Muon -------------------------------------------------------------------------------------------------------------


class Recorded(World):
    """A rank whose messages are kept instead of sent."""

    def exchange(self, shares: Any) -> None:
        self.shares: list[Tensor] = [share.clone() for share in shares]


def test_muon_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each matrix is orthogonalised by one rank, about as much by each, and with the bits of a process alone."""
    torch.manual_seed(0)
    matrices = [torch.randn(rows, columns) for rows, columns in [(8, 8), (8, 32), (32, 8), (8, 8), (16, 16), (4, 8)]]
    costs: list[int] = []

    def counted(stack: Tensor, dtype: torch.dtype | None) -> Tensor:
        costs[-1] += len(stack) * min(stack.shape[1:]) ** 2 * max(stack.shape[1:])
        return orthogonal(stack, dtype)

    monkeypatch.setattr(optim, "orthogonal", counted)
    worlds, found = [Recorded(rank, 2) for rank in range(2)], []
    for world in worlds:
        costs.append(0)
        found.append(shared_orthogonal(matrices, world))
    assert max(costs) < 0.6 * sum(costs)
    owners = balanced([min(m.shape) ** 2 * max(m.shape) for m in matrices], 2)
    for place, (owner, matrix) in enumerate(zip(owners, matrices, strict=True)):
        assert torch.equal(found[owner][place], orthogonal(matrix))
    assert [len(share) for share in worlds[0].shares] == [len(share) for share in worlds[1].shares]


def test_the_dearest_job_goes_first() -> None:
    assert balanced([1, 7, 2, 4], 2) == [1, 0, 1, 1]
    assert balanced([5, 5, 5], 4) == [0, 1, 2]
    assert balanced([], 2) == []


# --- failures ---------------------------------------------------------------------------------------------------------


def failing_at(number: int, fail: Callable[[], object]) -> Work:
    """Follow, and fail in a step."""

    def work(world: World) -> None:
        take = Steps.take

        def taken(self: Steps, step: int, rate: float) -> Any:
            if step == number:
                fail()
            return take(self, step, rate)

        Steps.take = taken  # type: ignore[method-assign]
        follow(world, CPU)

    return work


def broken() -> None:
    raise JumokError("the disk of this host is on fire")


@pytest.mark.slow
def test_the_error_of_a_follower_ends_rank_0_with_its_state_saved(tmp_path: Path) -> None:
    first, second = ends(2, lambda world: finish(begin(tmp_path / "run", world)), failing_at(3, broken))
    assert second == "JumokError: the disk of this host is on fire"
    assert first.startswith("ProcessLost: rank 1 of 2 ended: the disk of this host is on fire.")
    assert state_of(tmp_path / "run").step == 3
    losses = finish(Trainer.resume(tmp_path / "run", device="cpu"))
    assert_close(losses, finish(begin(tmp_path / "whole"))[3:], 1e-5)


@pytest.mark.long
def test_a_killed_follower_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 0.25)
    kill = failing_at(2, lambda: os.kill(os.getpid(), signal.SIGKILL))
    first, second = ends(2, lambda world: finish(begin(tmp_path / "run", world)), kill)
    assert second == str(-signal.SIGKILL)
    assert first.startswith("ProcessLost: rank 1 of 2 ended: it was killed, or its host cannot be reached.")
    assert state_of(tmp_path / "run").step == 2


@pytest.mark.long
def test_the_end_of_rank_0_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 0.25)

    def killed(world: World) -> None:
        for event in begin(tmp_path / "run", world).run():
            if event.step == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    first, second = ends(2, killed)
    assert first == str(-signal.SIGKILL)
    assert second.startswith("ProcessLost: rank 0 of 2 ended: it was killed")


@pytest.mark.slow
def test_an_error_of_rank_0_is_reported_once(tmp_path: Path) -> None:
    """Before the run begins: the others wait for a command."""
    first, second = ends(2, lambda world: begin(tmp_path / "run", world, batch_size=1))
    assert first.startswith("ConfigError: 2 processes were started, but a batch has 1 sequences")
    assert second == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_ctrl_c_while_the_others_open_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not told to end: they do not listen to commands then, and rank 0 would wait for them."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.1)
    opened, agree = follower._opened, World.agree

    def slowly(*arguments: Any) -> Any:
        time.sleep(5.0)
        return opened(*arguments)

    def interrupted(self: World, fault: str = "") -> None:
        if self.rank == 0 and self._heartbeat.doing == "opening":  # type: ignore[union-attr]
            signal.setitimer(signal.ITIMER_REAL, 0.3)
        agree(self, fault)

    monkeypatch.setattr(follower, "_opened", slowly)
    monkeypatch.setattr(World, "agree", interrupted)

    def lead(world: World) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        monkeypatch.setattr(trainer, "lead", lambda run: (world.reporting(str)("opening"), follower.lead(run)))
        begin(tmp_path / "run", world)

    first, second = ends(2, lead)
    assert first.startswith("KeyboardInterrupt")
    assert second.startswith(("ProcessLost: rank 0 of 2 ended", "ProcessLost: rank ? of 2 ended"))


@pytest.mark.long
def test_too_little_memory_for_the_sum_is_no_lost_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT", 0.1)

    def full(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    def lead(world: World) -> None:
        run = begin(tmp_path / "run", world)
        monkeypatch.setattr(distributed.dist, "all_reduce", full)
        finish(run)

    assert ends(2, lead)[0].startswith("TrainingError: the device has too little memory")


@pytest.mark.long
def test_silence_ends_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """A host that is cut off closes no connection."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.1)
    monkeypatch.setattr(heartbeat, "SILENCE", 1.0)

    def stop(world: World) -> None:
        world.reporting(lambda text: None)("reading a long text")
        time.sleep(0.5)
        world._heartbeat._ended.set()  # type: ignore[union-attr]
        time.sleep(2.5)

    assert ends(2, stop)[1] == "1"
    assert "rank 0 has not answered rank 1 for 1 s (reading a long text)" in capfd.readouterr().err


class Shelf(dict[str, str]):
    """A store in this process."""

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def get(self, key: str) -> bytes:  # type: ignore[override]
        return self[key].encode()


@pytest.mark.parametrize("stopped", [True, False])
def test_a_process_that_was_stopped_waits_anew(monkeypatch: pytest.MonkeyPatch, stopped: bool) -> None:
    """Ctrl-Z stops all processes; the first one that goes on must not give the others up."""
    clock, given_up, waits = 0.0, [], iter([60.0 if stopped else 12.0, 12.0, 12.0, None])
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: clock)
    watch = heartbeat.Heartbeat(Shelf({"beat/1": "1 "}), 0, [1])

    def wait(seconds: float) -> bool:
        nonlocal clock
        passed = next(waits)
        clock += passed or 0.0
        return passed is None

    monkeypatch.setattr(watch._ended, "wait", wait)
    monkeypatch.setattr(watch, "_give_up", given_up.append)
    watch._heard = {1: ("1 ", 0.0)}
    watch._watch()
    assert given_up == ([] if stopped else [1])


@pytest.mark.long
def test_a_folder_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "SEEING", 0.2)

    def blind(world: World) -> None:
        Path.is_file = lambda self: False  # type: ignore[method-assign]
        follow(world, CPU)

    found = ends(2, lambda world: begin(tmp_path / "run", world), blind)
    fault = f"SharedFault: rank 1 of 2: {tmp_path / 'run'} of rank 0 is not seen here"
    assert [end[: len(fault)] for end in found] == [fault, fault]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_folder_that_is_read_only_for_one_rank(tmp_path: Path) -> None:
    def unable(world: World) -> None:
        def touch(self: Path) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        Path.touch = touch  # type: ignore[assignment, method-assign]
        follow(world, CPU)

    found = ends(2, lambda world: begin(tmp_path / "run", world), unable)
    fault = f"SharedFault: rank 1 of 2: cannot write into {tmp_path / 'run'}: {os.strerror(errno.EROFS)}."
    assert [end[: len(fault)] for end in found] == [fault, fault]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_processes_that_differ(tmp_path: Path) -> None:
    def work(world: World) -> None:
        world.require_same({"torch": f"2.{world.rank}"})

    for end in ends(2, work, work):
        assert end.startswith("SharedFault: the processes differ in torch: 2.0 on rank 0, 2.1 on rank 1.")


@pytest.mark.long
def test_a_rank_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "JOINING", 2.0)
    found = ends(3, lambda world: None, ranks=range(2))
    assert found == ["SharedFault: rank 2 of 3 did not come within 2 s; was it started?"] * 2


def test_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for name, value in (("RANK", 0), ("WORLD_SIZE", 2), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
            monkeypatch.setenv(name, str(value))
        with pytest.raises(ConfigError, match=f"MASTER_PORT={port} is in use"), joined():
            pass


@pytest.mark.parametrize("size", ["0", "-1", "two", ""])
def test_a_world_without_processes(monkeypatch: pytest.MonkeyPatch, size: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match="out of range"):
        launched()


def test_a_launch_without_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK, MASTER_ADDR, MASTER_PORT is not set"):
        launched()


@pytest.mark.parametrize(
    ("name", "given"), [("RANK", "2"), ("RANK", "x"), ("MASTER_PORT", "99999"), ("MASTER_PORT", "")]
)
def test_a_launch_with_a_variable_out_of_range(monkeypatch: pytest.MonkeyPatch, name: str, given: str) -> None:
    """Rank 2 of 2 waited for a minute for what nobody would answer."""
    for each, value in {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "29500",
        name: given,
    }.items():
        monkeypatch.setenv(each, value)
    with pytest.raises(ConfigError, match=f"{name}='{given}' is out of range"):
        launched()


def test_a_process_alone_joins_nothing() -> None:
    with joined() as world:
        assert (world.rank, world.size) == (0, 1)
        assert not torch.distributed.is_initialized()


# --- the command line -------------------------------------------------------------------------------------------------

SETTINGS = [
    "--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--batch-size", 4, "--eval-every", 50,
    "--sample-tokens", 0, "--precision", "float32", "--compile", "off", "--attention", "chunked", "--dropout", 0,
]  # fmt: skip


@pytest.mark.parametrize("count", [0, 100_000])
def test_processes_out_of_range(jumok: Jumok, count: int) -> None:
    end = jumok("train", "--processes", count)
    assert end.code == 2
    assert f"--processes {count} is out of range" in end.err


def test_a_device_for_one_process(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", 0), ("WORLD_SIZE", 2), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", 1)):
        monkeypatch.setenv(name, str(value))
    end = jumok("train", "--device", "mps")
    assert end.code == 2
    assert "--device mps cannot be shared by several processes" in end.err


@pytest.mark.parametrize(("first", "second"), [("SIGINT", "SIGINT"), ("SIGINT", "SIGTERM"), ("SIGTERM", "SIGTERM")])
def test_a_second_signal(first: str, second: str) -> None:
    """Ctrl-C again ends at once; torchrun sends SIGTERM for it. A second SIGTERM is only a reminder."""

    class Training:
        asked = 0

        def request_stop(self) -> None:
            self.asked += 1

    training = Training()
    ending = pytest.raises(KeyboardInterrupt) if first == "SIGINT" else nullcontext()
    with ending, stopping(training, lambda text: None):
        signal.raise_signal(signal.Signals[first])
        signal.raise_signal(signal.Signals[second])
    assert training.asked == 1


def test_processes_of_another_launch(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    end = jumok("train", "--processes", 2)
    assert end.code == 2
    assert "torchrun has started 4" in end.err


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.long
def test_train_with_two_processes(tmp_path: Path, tales: str) -> None:
    """One voice, one JSON object, one exit code."""
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    done = command("jumok", "train", text, *SETTINGS, "--steps", 6, "--processes", 2, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 6
    assert done.stderr.count("done after 6 steps") == 1
    again = command("jumok", "train", text, *SETTINGS, "--steps", 6, "--processes", 2, "--json", "--out", out)
    assert again.returncode == 1
    assert list(json.loads(again.stdout)) == ["error"]
    assert again.stderr.count("holds a run already") == 1


@pytest.mark.long
def test_torchrun_restarts_a_run_that_lost_a_process(tmp_path: Path, tales: str) -> None:
    """The same end as without: the restarted processes resume by themselves."""
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    words = ["train", text, *SETTINGS, "--steps", 400, "--save-every", 0, "--optimizer", "adamw", "--out"]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m", "jumok"]
    with subprocess.Popen([sys.executable, "-m", *map(str, [*torchrun, *words, out])], stderr=subprocess.PIPE) as agent:
        while not (out / "metrics.jsonl").is_file() or len(losses_in(out)) < 20:
            assert agent.poll() is None, agent.communicate()[1]
            time.sleep(0.1)
        workers = [int(pid) for pid in Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()]
        os.kill(max(workers), signal.SIGKILL)
        _, errors = agent.communicate(timeout=200)
    assert agent.returncode == 0, errors
    assert len(losses_in(out)) == 400
    one = command("jumok", *words, tmp_path / "one")
    assert one.returncode == 0, one.stderr
    assert_close(losses_in(out)[:100], losses_in(tmp_path / "one")[:100], 1e-4)
