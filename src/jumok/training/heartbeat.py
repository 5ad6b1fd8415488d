"""Signs of life between the processes of a distributed training.

A collective operation notices a peer that closes its connection, but not which rank it was; and of a host that is gone
or a link that is cut it notices nothing. So each process writes a count to the store of the launch each second. Rank 0
watches all others, and they watch rank 0.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import copy_context
from threading import Event, Lock, Thread, current_thread
from typing import Any

from jumok.messages import tr

BEAT = 1.0  # seconds
SILENCE = 30.0  # seconds without a beat after which a process counts as gone
STOPPING = 3.0  # seconds for the last words of a process
OVER = "over"  # the beat of a process that has ended and said why


class Heartbeat:
    """The beats of this process, a thread that sends them and reads those of others, and one that watches the time.

    They are two because a call of the store does not return while the link to it is cut.

    Args:
        store: a connection of its own to the `torch.distributed.Store`, because a wait in one blocks all other calls.
        rank: of this process. watched: ranks whose silence ends this process.
    """

    def __init__(self, store: Any, rank: int, watched: Iterable[int]) -> None:
        self._store, self._rank, self._lock = store, rank, Lock()
        self._heard = dict.fromkeys(watched, ("", time.monotonic()))  # the last beat of each, and when it was new
        self._count, self._ended = 0, Event()
        self._agent = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        self.doing = ""  # what others would wait for
        self.needed = rank > 0  # this process waits for the watched ones, also for one that has ended with an error
        self._beat()
        self._threads = [
            Thread(target=copy_context().run, args=(work,), daemon=True) for work in (self._talk, self._watch)
        ]

    def start(self) -> None:
        """Begin to watch; all watched processes have beaten once."""
        now = time.monotonic()
        self._heard = dict.fromkeys(self._heard, ("", now))
        for thread in self._threads:
            thread.start()

    def stop(self, fault: str = "") -> None:
        """Beat for the last time. fault: why this process ends, for rank 0 to tell."""
        self._ended.set()
        if not self._lock.acquire(timeout=STOPPING):
            return  # the other thread waits for a store that does not answer
        with suppress(RuntimeError):
            if fault:
                self._store.set(f"fault/{self._rank}", fault)
            self._store.set(f"beat/{self._rank}", OVER)
        self._lock.release()
        for thread in self._threads:  # in a call of C++ it would abort the process when the interpreter ends
            if thread.is_alive() and thread is not current_thread():
                thread.join(timeout=2 * BEAT)

    def missing(self) -> tuple[int, str] | None:
        """The rank that is gone, and why, once a connection is broken; None if it has said so itself."""
        for _ in range(4):
            with suppress(RuntimeError), self._lock:
                for rank in self._heard:
                    if self._store.check([f"fault/{rank}"]):
                        return rank, self._store.get(f"fault/{rank}").decode()
                if all(beat == OVER for beat, _ in self._heard.values()):
                    return None
            time.sleep(BEAT)
        rank, (beat, when) = min(self._heard.items(), key=lambda item: (item[1][0] == OVER, item[1][1]))
        if beat == OVER or time.monotonic() - when < 2 * BEAT:
            return None
        return rank, tr("it was killed, or its host cannot be reached")

    # --- the threads --------------------------------------------------------------------------------------------------

    def _talk(self) -> None:
        while not self._ended.wait(BEAT):
            with suppress(RuntimeError):  # no connection to the store: nothing is heard, then
                self._beat()
                self._listen()

    def _watch(self) -> None:
        awake = time.monotonic()
        while not self._ended.wait(BEAT):
            if _since(awake) > SILENCE / 2:  # this process was stopped, by Ctrl-Z for example, and perhaps all of them
                self._heard = {rank: (beat, time.monotonic()) for rank, (beat, _) in self._heard.items()}
            awake = time.monotonic()
            if self._agent not in (None, os.getppid()):
                self._end_without_agent()
            heard = self._heard.items()
            silent = [rank for rank, (beat, when) in heard if (beat != OVER or self.needed) and _since(when) > SILENCE]
            if silent and not self._ended.is_set():
                self._give_up(silent[0])

    def _beat(self) -> None:
        self._count += 1
        with self._lock:
            self._store.set(f"beat/{self._rank}", f"{self._count} {self.doing}")

    def _listen(self) -> None:
        for rank, (before, _) in list(self._heard.items()):
            with self._lock:
                beat = self._store.get(f"beat/{rank}").decode()
            if beat != before:
                self._heard[rank] = (beat, time.monotonic())

    def _end_without_agent(self) -> None:
        """End this process: torchrun was killed, which leaves its processes behind."""
        self._agent = None
        if self._rank == 0:
            os.kill(os.getpid(), signal.SIGTERM)  # as torchrun does where it is asked to end: `jumok train` saves first
            return
        fault = tr("torchrun has ended on its host")
        self.stop(fault)
        with suppress(OSError):  # nobody reads it any more
            print(tr("jumok: rank {rank}: {message}", rank=self._rank, message=fault), file=sys.stderr, flush=True)
        os._exit(1)

    def _give_up(self, rank: int) -> None:
        """End this process: its other thread may wait for the silent one in a call that nothing interrupts."""
        doing = self._heard[rank][0].partition(" ")[2] or tr("taking steps")
        text = tr(
            "rank {rank} has not answered rank {mine} for {seconds:.0f} s ({doing}). The run ends; continue it with "
            "{--resume}.",
            rank=rank,
            mine=self._rank,
            seconds=SILENCE,
            doing=doing,
        )
        with suppress(OSError):  # nobody reads it any more
            print(tr("jumok: {message}", message=text), file=sys.stderr, flush=True)
        os._exit(1)


def _since(when: float) -> float:
    return time.monotonic() - when
