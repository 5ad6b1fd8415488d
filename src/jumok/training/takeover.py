"""When a run takes over compiled code: before its first step, or from a process that compiles beside its steps."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from jumok.config import TrainConfig, to_dict
from jumok.device import describe_machine, own_random
from jumok.errors import JumokError
from jumok.memory import free_memory
from jumok.messages import tr, users_language
from jumok.processors import processors
from jumok.runs.events import Notice
from jumok.training.clock import Clock
from jumok.training.compilation import compile_training, failed, keep_code_private
from jumok.training.policy import least_memory
from jumok.training.run import TrainingRun

LEFT = 30.0  # seconds that must be left of a run by minutes: code in the cache is taken over in two or three
NICENESS = 5  # of the compiler


class Takeover:
    """Lets the passes of a run use compiled code, before the first step or between two.

    A run by minutes whose code was not made on this machine before is compiled by another process, beside steps that
    count already. A run by steps waits: the step of the takeover would depend on the machine, and with it the last bits
    of the parameters. So do runs in several processes, on a GPU, and where the memory does not hold both processes.
    """

    def __init__(self, run: TrainingRun, clock: Clock, one_pass: Callable[[], object]) -> None:
        self._run, self._clock, self._one_pass = run, clock, one_pass
        self._compiler: Compiler | None = None

    @property
    def is_ahead(self) -> bool:
        """Return True if the compiler is at work beside the steps, so that they take longer than they will."""
        return self._compiler is not None

    def before_first_step(self) -> Iterator[Notice]:
        """Compile, or begin to."""
        run, config = self._run, self._run.config
        if config.compile != "on":
            return
        resumed = run.history.plan is None
        if run.group.broadcast(resumed and self._too_short):
            yield Notice(step=self._clock.step, text=tr("What is left of the run is too short to compile."))
            return
        try:
            by_time = config.minutes is not None and run.device.type == "cpu" and run.group.size == 1
            if by_time and not self._is_made() and self._fits_twice():
                self._compiler = Compiler(run.folder.path, config)
                return
        except (OSError, JumokError) as error:
            yield Notice(step=self._clock.step, text=failed(error))
            return
        yield from self._compile()

    def before_step(self) -> Iterator[Notice]:
        """Take the code over if it is there."""
        if self._compiler is None or not self._compiler.has_ended:
            return
        failure = self._compiler.failure()
        self.close()
        if failure:
            yield Notice(step=self._clock.step, text=failure)
        elif not self._too_short:
            yield from self._compile()

    def close(self) -> None:
        """End the process that compiles, if there is one."""
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None

    @property
    def _too_short(self) -> bool:
        """Return whether a run by minutes would spend too much of the rest on compiling."""
        return self._run.config.minutes is not None and self._clock.remaining() < LEFT

    def _compile(self) -> Iterator[Notice]:
        run = self._run
        run.report(tr("compiling, which can take a minute"))
        with own_random(run.device):
            failure = compile_training(run.trained, run.task, self._one_pass)
        if failure:
            yield Notice(step=self._clock.step, text=failure)
        elif run.group.rank == 0:
            with suppress(OSError):
                self._mark.touch()

    def _is_made(self) -> bool:
        """Return whether such code was compiled on this machine before, so that it is in the cache of torch."""
        return self._mark.exists()

    def _fits_twice(self) -> bool:
        """Return False if the memory surely does not hold a step of the training and a pass of the compiler at once."""
        run, free = self._run, free_memory(self._run.device)
        return free is None or free >= 2 * sum(least_memory(run.model.config, run.config, run.task).values())

    @cached_property
    def _mark(self) -> Path:
        """Return the path of an empty file beside the code; its name has all that the code follows from at first."""
        run, config = self._run, self._run.config
        batch = [(str(each.dtype), *each.shape) for each in run.task.parts(0)[0]]
        settings = (config.task.name, config.precision, config.attention, config.recompute, config.lora)
        facts = (to_dict(run.model.config), settings, batch, describe_machine(run.device), run.group.size)
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return keep_code_private() / f"jumok-{name[:32]}"


class Compiler:
    """A process that compiles the code of a run into the cache of torch. It has a processor of its own meanwhile.

    Raises:
        OSError, JumokError: it cannot be started, or there is no safe place for its code.
    """

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        keep_code_private()
        self._threads = torch.get_num_threads()
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        own = {"PYTHONPATH": path, "JUMOK_LANG": users_language(), "PYTHONIOENCODING": "utf-8"}
        # One file at a time, and no process waits for another by spinning: the training needs the processors.
        quiet = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jumok.training.compiler_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env={**os.environ, **own, **quiet},
            **_apart(),
        )
        if os.name == "posix":
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
        request = {"folder": str(folder.resolve()), "train": config.to_dict(), "threads": self._threads}
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended; see `failure`
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()  # and stays open: the process ends with it
        torch.set_num_threads(max(1, min(self._threads, processors() - 1)))

    @property
    def has_ended(self) -> bool:
        """Return True if the code is there, or if that has failed."""
        return self._process.poll() is not None

    def failure(self) -> str:
        """Return a message for the user if the process, which has ended, has failed; "" if not."""
        assert self._process.stdout is not None
        try:
            return str(json.loads(self._process.stdout.read().splitlines()[-1])["failure"])
        except (IndexError, ValueError, KeyError, TypeError):
            return failed(JumokError("its process ended with {code}", code=self._process.returncode))

    def close(self) -> None:
        """End the process, if it has not ended, and take its processor again."""
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        self._process.kill()
        self._process.wait()
        torch.set_num_threads(self._threads)


def _apart() -> dict[str, Any]:
    """Keep Ctrl-C in the terminal from the process: the training decides, and a compiler finishes its file."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.BELOW_NORMAL_PRIORITY_CLASS}
    return {"process_group": 0}
