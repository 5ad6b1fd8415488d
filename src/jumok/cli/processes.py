"""`jumok train` in several processes: started here with `--processes`, or by torchrun."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from jumok.cli.console.output import say
from jumok.cli.interrupts import INTERRUPTED, hangup
from jumok.errors import ConfigError, JumokError, ProcessLost, SharedFault, TrainingError
from jumok.memory import collecting_nothing
from jumok.messages import tr
from jumok.processors import processors

if TYPE_CHECKING:
    from jumok.training.parallel import ProcessGroup

MOST_PER_CORE = 8  # processes; a typing error would fill the memory
LAUNCHER = os.getppid()  # in a launch, the process of torchrun
SAVING = 600  # seconds for the step and the save after Ctrl-C; torchrun itself waits 30, and then kills


def in_launch(processes: int) -> bool:
    """Whether this process is one of several that were started together, or the only one that is wanted.

    Raises:
        ConfigError: the number is out of range, or not that of the launch.
    """
    most = MOST_PER_CORE * processors()
    if not 1 <= processes <= most:
        raise ConfigError(
            "{--processes {processes}} is out of range: 1 to {most} on this computer, {each} for each processor core.",
            processes=processes,
            most=most,
            each=MOST_PER_CORE,
        )
    launched = os.environ.get("WORLD_SIZE")
    if launched not in (None, str(processes)):
        raise ConfigError(
            "{--processes {processes}} was given, and torchrun has started {launched}; leave {--processes} out.",
            processes=processes,
            launched=launched,
        )
    return launched is not None or processes == 1


def rank_of_launch() -> int:
    """The rank of this process; 0 if it was started alone. torch is not loaded."""
    rank = os.environ.get("RANK", "0") if os.environ.get("WORLD_SIZE", "1") != "1" else "0"
    return int(rank) if rank.isdecimal() else 0


def launcher_has_ended() -> bool:
    """Return True if the launch that started this process was killed, so that it cannot end its processes."""
    return "WORLD_SIZE" in os.environ and os.getppid() != LAUNCHER


def is_restarted(out: Path | None) -> bool:
    """Return whether torchrun has restarted the processes after a failure, and there is a run to continue.

    Raises:
        ConfigError: torchrun may restart the processes, and the run has no folder by which it would be found again; or
            they are on several computers, where its count of restarts differs.
    """
    if os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0":
        if out is None:
            raise ConfigError("{--out RUN} is needed with --max-restarts: a restarted run is found by its folder.")
        if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
            raise ConfigError(
                "--max-restarts restarts a run on one computer; leave it out, and continue the run with {--resume}."
            )
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return restarted and out is not None and (out / "config.json").is_file()


# --- the launch -------------------------------------------------------------------------------------------------------


def launch(processes: int, device: str) -> int:
    """Run this command line in so many processes, and return their exit code."""
    require_gpus(processes, device)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    logging.disable(logging.CRITICAL)  # the processes report their errors themselves
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, processors() // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SAVING))
    if sys.platform == "win32":
        os.environ.setdefault("USE_LIBUV", "0")  # PyTorch is built without it there
    try:
        run(parse_args(["--standalone", f"--nproc-per-node={processes}", "-m", "jumok", *sys.argv[1:]]))
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            name = signal.Signals(-failure.exitcode).name
            raise TrainingError("rank {rank} was ended by the signal {name}.", rank=rank, name=name) from None
        return failure.exitcode
    except SignalException:
        return INTERRUPTED
    return 0


def require_gpus(processes: int, device: str) -> None:
    """Raise ConfigError if so many processes of this computer would share its GPUs: NCCL takes one process for each."""
    import torch

    found = torch.cuda.device_count()
    if device in ("auto", "cuda") and torch.cuda.is_available() and processes > found:
        raise ConfigError(
            "{processes} processes were started on a computer with {found} GPU(s), and each needs one of its own. "
            "Start fewer processes, or train on the processor with {--device cpu}.",
            processes=processes,
            found=found,
        )


# --- in each process --------------------------------------------------------------------------------------------------


@contextmanager
def group_of(device: str) -> Iterator[tuple[ProcessGroup, str]]:
    """Connect the processes of this launch, and choose the device of this one."""
    if "WORLD_SIZE" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # or DDP warns that it looks for unused parameters
    with collecting_nothing():
        from jumok.training.parallel import ProcessGroup, process_group  # loads torch

    if os.environ.get("WORLD_SIZE", "1") == "1":
        yield ProcessGroup(), device
        return
    import torch

    from jumok.device import choose_device

    if device not in ("auto", "cpu", "cuda"):
        raise ConfigError(
            "{--device {device}} cannot be shared by several processes; choose from auto, cpu, cuda.", device=device
        )
    if device != "cpu" and torch.cuda.is_available():
        require_gpus(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), device)
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(choose_device(device))  # where NCCL puts what has no device of its own
    elif device == "auto":
        device = "cpu"  # gloo adds up nothing on mps
    nccl = device.startswith("cuda") and torch.distributed.is_nccl_available()  # not on Windows
    try:
        with process_group("cpu:gloo,cuda:nccl" if nccl else "gloo") as group:
            yield group, device
    except ProcessLost:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends what is left: this one ends anyway
        raise


def train_as_another_rank(device: str) -> int:
    """Train the run that rank 0 starts or resumes, and return the exit code.

    Ctrl-C and the signals of torchrun reach all processes. Rank 0 saves then, and the others end with it. An error is
    printed if rank 0 does not report it.
    """
    for number in (signal.SIGTERM, *hangup()):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with group_of(device) as (group, place):
            from jumok.training.trainer import Trainer

            for number in (signal.SIGTERM, *hangup()):
                signal.signal(number, signal.SIG_IGN)
            for _ in Trainer.join(group, place).run():
                pass
            return 0
    except JumokError as error:
        if not isinstance(error, SharedFault | ProcessLost):
            say(tr("jumok: rank {rank}: {message}", rank=rank_of_launch(), message=error))
        return error.exit_code
