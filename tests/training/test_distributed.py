"""Several processes train one run: they agree with one process, and each way to fail ends them all with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from distributed_runs import Work, assert_close, begin, ends, finish, in_float64, losses_in, material

from conftest import Jumok, assert_same, events_of, state_of
from jumok.cli.interrupts import stopping
from jumok.errors import JumokError, TrainingError
from jumok.runs.events import Event, Step
from jumok.runs.folder import RunFolder
from jumok.training import parallel
from jumok.training.optim import orthogonal
from jumok.training.parallel import ProcessGroup, process_group
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")


# --- agreement --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "task"),
    [
        (2, "seq2seq"),
        (2, "chat"),
        *(pytest.param(2, task, marks=pytest.mark.long) for task in ("lm", "mlm", "classify")),
        pytest.param(4, "seq2seq", marks=pytest.mark.long),
    ],
)
def test_processes_agree_with_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, task: str) -> None:
    """In float64 only the order of summation differs: each loss is a sum over the counts of all processes."""
    in_float64(monkeypatch)
    cases = {name: {"task": task, "optimizer": name} for name in ("adamw", "muon")}
    few = []  # parts with fewer rows than processes

    def work(group: ProcessGroup) -> None:
        for name, case in cases.items():
            finish(begin(tmp_path / name, group, **case))

    for name, case in cases.items():  # first, because forked processes have then loaded what an optimizer loads
        trainer = begin(tmp_path / f"{name}-1", **case)
        few += [part for number in range(12) for part in trainer.task.parts(number) if len(part[0]) < count]
        finish(trainer)
    assert ends(count, work) == [""] * count
    for name in cases:
        assert_close(losses_in(tmp_path / name), losses_in(tmp_path / f"{name}-1"), 1e-12)
        for key, tensor in state_of(tmp_path / name).tensors.items():
            torch.testing.assert_close(tensor, state_of(tmp_path / f"{name}-1").tensors[key], rtol=1e-8, atol=1e-10)
    assert few or task != "seq2seq"


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_float64(monkeypatch)
    out, expected = tmp_path / "run", finish(begin(tmp_path / "whole"))
    assert len(finish(begin(out), stop_after=2)) == 2
    assert ends(2, lambda group: finish(Trainer.resume(out, group=group, device="cpu"), stop_after=2)) == ["", ""]
    assert len(losses_in(out)) == 4
    assert len(finish(Trainer.resume(out, device="cpu"))) == 2
    assert_close(losses_in(out), expected, 1e-12)


@pytest.mark.long
@pytest.mark.parametrize(("count", "shard"), [(2, False), (2, True), (4, False), (4, True)])
def test_the_same_bits_with_the_same_number(tmp_path: Path, count: int, shard: bool) -> None:
    """Parameters, moments, losses and samples, in float32 and with dropout, whose masks depend on the rank."""
    settings = {"optimizer": "muon", "steps": 5, "dropout": 0.1, "val": 0.2, "eval_every": 2, "shard": shard}
    settings["sample_tokens"] = 4
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert ends(count, lambda group: finish(begin(whole, group, **settings))) == [""] * count
    assert ends(count, lambda group: finish(begin(run, group, **settings), stop_after=2)) == [""] * count
    assert ends(count, lambda group: finish(Trainer.resume(run, group=group, device="cpu"))) == [""] * count
    assert losses_in(run) == losses_in(whole)
    assert_same(run, whole)


@pytest.mark.long
def test_a_finished_run_is_trained_further(tmp_path: Path) -> None:
    """With --init, whose first state rank 0 writes alone."""
    first, run = tmp_path / "first", tmp_path / "run"
    finish(begin(first, val=0.2, eval_every=2))
    given: dict[str, Any] = {"steps": 2, "batch_size": 6, "val": 0.2, "eval_every": 2, "compile": "off"}

    def start(group: ProcessGroup) -> None:
        finish(Trainer.start(run, material("lm"), **given, init=first, device="cpu", group=group))

    assert ends(2, start) == ["", ""]
    assert ends(2, lambda group: finish(Trainer.resume(run, group=group, device="cpu"))) == ["", ""]  # it is finished
    assert len(losses_in(run)) == 2


@pytest.mark.slow
def test_dropout_is_another_one_on_each_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr("jumok.training.loop.seed_random", lambda device, seed: seeds.append(seed))

    def work(group: ProcessGroup) -> None:
        finish(begin(tmp_path / "run", group, dropout=0.2))
        (tmp_path / f"{group.rank}").write_text(json.dumps(seeds), encoding="utf-8")

    assert ends(2, work) == ["", ""]
    first, second = (set(json.loads((tmp_path / rank).read_text(encoding="utf-8"))) for rank in "01")
    assert len(first) == len(second) == 12  # two batches a step
    assert not first & second


def reason_of(run: Path) -> str:
    return [event["reason"] for event in events_of(run) if event["event"] == "finish"][-1]


@pytest.mark.long
def test_what_rank_0_decides(tmp_path: Path) -> None:
    """The clock, validations, the goal and patience; three steps without a finite loss end all processes."""

    def work(group: ProcessGroup) -> None:
        finish(begin(tmp_path / "time", group, steps=None, minutes=0.03, val=0.1))
        finish(begin(tmp_path / "goal", group, steps=40, val=0.1, stop_at=50.0, eval_every=2))
        worse = {"patience": 1, "eval_every": 1, "optimizer": "adamw", "learning_rate": 1.0}
        finish(begin(tmp_path / "worse", group, steps=40, val=0.1, **worse))
        with begin(tmp_path / "nan", group) as trainer:
            if group.rank == 1:
                trainer.model.token_embedding.weight.data.fill_(float("nan"))
            finish(trainer)

    for end in ends(2, work):
        assert end.startswith("TrainingError: the loss was not finite in 3 steps in a row (up to step 3)")
    assert [reason_of(tmp_path / name) for name in ("time", "goal", "worse")] == ["done", "reached", "early stop"]
    assert state_of(tmp_path / "nan").step == 3


@pytest.mark.slow
def test_muon_is_shared_out(tmp_path: Path) -> None:
    """Each matrix is orthogonalised by one rank, with the bits of a process alone; also where rows are divided, and
    some processes have none of a matrix."""
    torch.manual_seed(0)
    matrices = [torch.randn(shape) for shape in [(8, 8), (7, 3), (2, 9), (1, 4), (12, 5)]]

    def work(group: ProcessGroup) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (group.size,))
        divided = [distribute_tensor(each, mesh, [Shard(0)]) for each in matrices]
        for given in (matrices, divided):
            for each, matrix in zip(group.orthogonalise(given, torch.bfloat16), matrices, strict=True):
                found = each.full_tensor() if given is divided else each  # type: ignore[attr-defined]
                assert torch.equal(found, orthogonal(matrix))

    assert ends(3, work) == [""] * 3


# --- failures ---------------------------------------------------------------------------------------------------------


def failing(out: Path, rank: int, fail: Callable[[], object], step: int = 3, **settings: Any) -> Work:
    """Train, and fail on a rank after a step."""

    def work(group: ProcessGroup) -> None:
        def listen(event: Event) -> None:
            if group.rank == rank and isinstance(event, Step) and event.step == step:
                fail()

        trainer = begin(out, group, **settings)
        trainer.subscribers.append(listen)
        finish(trainer)

    return work


def broken() -> None:
    raise JumokError("the disk of this host is on fire")


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_an_error_of_another_rank_ends_rank_0_with_its_state_saved(tmp_path: Path) -> None:
    first, second = ends(2, failing(tmp_path / "run", 1, broken))
    assert second == "JumokError: the disk of this host is on fire"
    assert first.startswith("ProcessLost: rank 1 of 2 ended: the disk of this host is on fire.")
    assert state_of(tmp_path / "run").step == 3
    losses = finish(Trainer.resume(tmp_path / "run", device="cpu"))
    assert_close(losses, finish(begin(tmp_path / "whole"))[3:], 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_ends_the_others(tmp_path: Path, rank: int, shard: bool) -> None:
    """With a state to resume from: rank 0 has all of it without shards; with shards it is the one saved last."""
    run = tmp_path / "run"
    found = ends(2, failing(run, rank, kill, shard=shard, save_every=0))
    assert found[rank] == str(-signal.SIGKILL)
    assert found[1 - rank].startswith("ProcessLost: the connection to another process is lost: it was killed")
    assert state_of(run).step == (2 if shard or rank == 0 else 3)
    assert_close(
        losses_in(run)[:3] + finish(Trainer.resume(run, device="cpu"))[-3:], finish(begin(tmp_path / "whole")), 1e-5
    )


@pytest.mark.slow
def test_an_error_of_rank_0_is_reported_once(tmp_path: Path) -> None:
    """Before the run begins: the others wait for it, and end with its exit code."""
    codes = []

    def work(group: ProcessGroup) -> None:
        try:
            begin(tmp_path / "run", group, batch_size=1)
        except JumokError as error:
            (tmp_path / f"{group.rank}").write_text(f"{error.exit_code}")
            raise

    first, second = ends(2, work)
    assert first.startswith("ConfigError: 2 processes were started, but a batch has 1 sequences")
    assert second.startswith("ProcessLost: rank 0 of 2 ended: 2 processes were started")
    codes = [(tmp_path / f"{rank}").read_text() for rank in range(2)]
    assert codes == ["2", "2"]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_rank_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "STEPPING", parallel.STEPPING / 60)
    first, _ = ends(2, failing(tmp_path / "run", 1, lambda: time.sleep(15)))
    assert first.startswith("ProcessLost: the connection to another process is lost")
    assert state_of(tmp_path / "run").step == 3


@pytest.mark.long
def test_a_folder_that_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(group: ProcessGroup) -> None:
        if group.rank:
            monkeypatch.setattr(Path, "is_dir", lambda self: False)
        begin(tmp_path / "run", group)

    said = f"SharedFault: rank 1 of 2: {tmp_path / 'run'} of rank 0 is not seen here"
    assert all(end.startswith(said) for end in ends(2, work))


@pytest.mark.long
def test_a_rank_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "JOINING", parallel.JOINING / 30)
    first, second = ends(3, lambda group: None, ranks=range(2))
    assert "rank 0 of 3 cannot connect to the other processes within 2 s" in first
    assert "of 3 cannot connect" in second


def test_a_launch_without_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(TrainingError, match=r"RANK expected, but not set.*Start all of them"),
        process_group(),
    ):
        pass


def test_a_process_alone_joins_nothing() -> None:
    with process_group() as group:
        assert (group.rank, group.size) == (0, 1)
        assert not torch.distributed.is_initialized()


# --- the command line -------------------------------------------------------------------------------------------------

SETTINGS = [
    "--n-layer", 1, "--n-head", 2, "--n-embd", 16, "--context-length", 16, "--batch-size", 4, "--eval-every", 50,
    "--sample-tokens", 0, "--precision", "float32", "--compile", "off", "--attention", "chunked", "--dropout", 0,
]  # fmt: skip


@pytest.mark.parametrize(
    ("launch", "words", "said"),
    [
        ({}, ["--processes", 0], "--processes 0 is out of range"),
        ({}, ["--processes", 100_000], "--processes 100000 is out of range"),
        ({"WORLD_SIZE": "4"}, ["--processes", 2], "torchrun has started 4"),
        ({"WORLD_SIZE": "2"}, ["--device", "mps"], "--device mps cannot be shared by several processes"),
        ({"TORCHELASTIC_MAX_RESTARTS": "1"}, [], "--out RUN is needed with --max-restarts"),
        (
            {"TORCHELASTIC_MAX_RESTARTS": "1", "GROUP_WORLD_SIZE": "2"},
            ["--out", "run"],
            "--max-restarts restarts a run on one computer",
        ),
    ],
)
def test_a_launch_that_is_refused(
    jumok: Jumok, monkeypatch: pytest.MonkeyPatch, launch: dict[str, str], words: list[Any], said: str
) -> None:
    for name, value in launch.items():
        monkeypatch.setenv(name, value)
    end = jumok("train", *words)
    assert end.code == 2
    assert said in end.err


@pytest.mark.parametrize("launched", [None, "2"])
def test_more_processes_than_gpus(jumok: Jumok, monkeypatch: pytest.MonkeyPatch, launched: str | None) -> None:
    """Rank 1 asked for a second GPU, by a name that nobody had given, and rank 0 waited for it."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    if launched is not None:
        monkeypatch.setenv("WORLD_SIZE", launched)
        monkeypatch.setenv("LOCAL_WORLD_SIZE", launched)
    end = jumok("train", *([] if launched else ["--processes", 2]))
    assert end.code == 2
    assert "2 processes were started on a computer with 1 GPU(s), and each needs one of its own" in end.err


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


def command(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, check=False)


def steps_until_killed(launch: subprocess.Popen[str], out: Path, count: int, victim: int | None = None) -> None:
    """Kill a process once a run has taken so many steps. victim: None is the last process of the launch."""
    log = out / "metrics.jsonl"  # whose last line may be half written
    while not log.is_file() or log.read_bytes().count(b'"event": "step"') < count:
        assert launch.poll() is None, launch.communicate()[1]
        time.sleep(0.02)
    workers = [int(pid) for pid in Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split()]
    os.kill(victim or workers[-1], signal.SIGKILL)


@pytest.mark.long
def test_train_with_two_processes(tmp_path: Path, tales: str) -> None:
    """One voice, one JSON object, one exit code."""
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    done = command("jumok", "train", text, *SETTINGS, "--steps", 6, "--processes", 2, "--json", "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 6
    assert done.stderr.count("done after 6 steps") == 1
    assert "Warning" not in done.stderr
    again = command("jumok", "train", text, *SETTINGS, "--steps", 6, "--processes", 2, "--json", "--out", out)
    assert again.returncode == 1
    assert list(json.loads(again.stdout)) == ["error"]
    assert again.stderr.count("holds a run already") == 1


@pytest.mark.long
def test_a_process_of_a_launch_is_killed(tmp_path: Path, tales: str) -> None:
    """The launch names it, and the run goes on from where it was.

    Not with Muon, whose processes exchange matrices in the middle of an update: what it leaves then is not saved.
    """
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    words = ["jumok", "train", text, *SETTINGS, "--optimizer", "adamw", "--steps", 100_000, "--processes", 2]
    words += ["--out", out]
    with subprocess.Popen([sys.executable, "-m", *map(str, words)], stderr=subprocess.PIPE, text=True) as launch:
        steps_until_killed(launch, out, 20)
        _, errors = launch.communicate(timeout=200)
    assert launch.returncode == 1
    assert "rank 1 was ended by the signal SIGKILL" in errors
    assert state_of(out).step >= 20


@pytest.mark.long
def test_the_launch_itself_is_killed(tmp_path: Path, tales: str) -> None:
    """The processes trained on to the end, with nobody to watch them. Now rank 0 saves, and all of them end."""
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    words = ["jumok", "train", text, *SETTINGS, "--steps", 100_000, "--processes", 2, "--out", out]
    with subprocess.Popen([sys.executable, "-m", *map(str, words)], stderr=subprocess.PIPE, text=True) as launch:
        steps_until_killed(launch, out, 20, victim=launch.pid)
        launch.communicate(timeout=200)  # until no process has the other end of the pipe
    assert 20 <= state_of(out).step < 100_000
    with RunFolder.open(out).lock():
        pass


@pytest.mark.long
def test_torchrun_restarts_a_run_that_lost_a_process(tmp_path: Path, tales: str) -> None:
    """The same end as without: the restarted processes resume by themselves."""
    text, out = tmp_path / "t.txt", tmp_path / "run"
    text.write_text(tales, encoding="utf-8")
    words = ["train", text, *SETTINGS, "--steps", 200, "--save-every", 0, "--optimizer", "adamw", "--out"]
    torchrun = ["torch.distributed.run", "--standalone", "--max-restarts=1", "--nproc-per-node=2", "-m", "jumok"]
    with subprocess.Popen(
        [sys.executable, "-m", *torchrun, *map(str, words), str(out)], stderr=subprocess.PIPE, text=True
    ) as launch:
        steps_until_killed(launch, out, 20)
        _, errors = launch.communicate(timeout=200)
    assert launch.returncode == 0, errors
    assert len(losses_in(out)) == 200
    one = command("jumok", *words, tmp_path / "one")
    assert one.returncode == 0, one.stderr
    assert_close(losses_in(out)[:40], losses_in(tmp_path / "one")[:40], 1e-4)
