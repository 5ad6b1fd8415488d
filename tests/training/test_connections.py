"""What the processes of a training send each other, and how they notice that torchrun or the others are gone."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import distributed as bench
import pytest
import torch
import torch.distributed as dist

from conftest import fork
from jumok.errors import TrainingError
from jumok.training import heartbeat, joining
from jumok.training.distributed import World
from jumok.training.heartbeat import Heartbeat
from jumok.training.joining import interface_to
from jumok.training.trainer import Trainer

stores: Any = dist  # which exports the stores without types
posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes of these tests are forked")


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "exchanged"), [("adamw", 0), ("muon", 2)])
def test_messages_of_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, exchanged: int) -> None:
    """One for the command, one for the gradients and the loss, and with Muon one for the share of each rank."""
    sent: list[str] = []

    class Done:
        def wait(self) -> None:
            pass

    def broadcast(tensor: torch.Tensor, src: int, async_op: bool = False) -> Done:
        sent.append("exchange" if async_op else "broadcast")
        if src:
            tensor.zero_()
        return Done()

    def gather(found: list[Any], mine: Any) -> None:
        found[:] = [mine] * len(found)

    monkeypatch.setattr(dist, "broadcast", broadcast)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: sent.append("all-reduce"))
    monkeypatch.setattr(dist, "all_gather_object", gather)
    settings = {**bench.SMALL, "task": "lm", "optimizer": optimizer, "steps": 100, "eval_every": 1000}
    with Trainer.start(tmp_path / "run", bench.material("lm"), **settings, device="cpu", world=World(0, 2)) as trainer:
        for _ in range(3):
            sent.clear()
            assert trainer.loop.take_step().skipped is False
            assert sent == ["broadcast", "all-reduce", *["exchange"] * exchanged]


# --- signs of life ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@posix
def test_processes_that_were_stopped_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-Z, and fg a while later: the silence was not that of the others."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.05)
    monkeypatch.setattr(heartbeat, "SILENCE", 0.5)

    def both() -> int:
        store = stores.HashStore()
        beats = [Heartbeat(store, rank, [1 - rank]) for rank in (0, 1)]
        for each in beats:
            each.start()
        time.sleep(2.0)
        return 3

    child = fork(both)
    time.sleep(0.5)
    os.kill(child, signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(child, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@posix
@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_ends_with_its_torchrun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int) -> None:
    """Rank 0 by SIGTERM, at which `jumok train` saves; another one with a reason that rank 0 tells."""
    monkeypatch.setattr(heartbeat, "BEAT", 0.05)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    store = stores.FileStore(str(tmp_path / "store"), 1)

    def worker() -> int:
        if rank == 0:
            signal.signal(signal.SIGTERM, lambda number, frame: (store.set("fault/0", "SIGTERM"), os._exit(0)))
        Heartbeat(store, rank, []).start()
        time.sleep(20)
        return 0

    def torchrun() -> int:
        fork(worker)
        store.wait([f"beat/{rank}"])
        return 0

    assert os.waitstatus_to_exitcode(os.waitpid(fork(torchrun), 0)[1]) == 0
    assert store.get(f"fault/{rank}") == [b"SIGTERM", b"torchrun has ended on its host"][rank]


# --- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_the_interface_of_an_address() -> None:
    assert interface_to("127.0.0.1") == "lo"
    assert interface_to("256.0.0.1") == ""


def test_a_network_that_does_not_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("connection refused, remote=[127.0.0.1]:19342\nmore")

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setattr(dist, "init_process_group", fail)
    with pytest.raises(TrainingError, match=r"rank 1 cannot connect .*refused.*19342\).*Set GLOO_SOCKET_IFNAME"):
        joining._connect_all("gloo", None, 1, 2)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"  # a choice of the user is kept
