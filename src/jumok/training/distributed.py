"""The processes of a distributed training: who they are, what rank 0 decides, and sums over all of them.

`jumok.training.joining` connects them. Rank 0 runs the training loop. The other ranks follow its commands
(`jumok.training.follower`), so that each decision is made in one place.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from jumok.errors import ConfigError, JumokError, ProcessLost, SharedFault
from jumok.memory import is_out_of_memory
from jumok.messages import tr
from jumok.training.heartbeat import Heartbeat

SEEING = 5.0  # seconds in which all ranks must see a new file: network file systems remember what was missing
Done = TypeVar("Done")


class Command(IntEnum):
    """What rank 0 tells the other ranks to do."""

    SEE = 1  # look for a file
    OPEN = 2  # open the run
    COMPILE = 3  # compile the blocks
    STEP = 4  # take an optimizer step
    GATHER = 5  # send the shards of the parameters
    SAVE = 6  # write a part of the training state
    END = 7


@dataclass(frozen=True, kw_only=True)
class Order:
    """A command. number: of the step, or the exit code. rate: of the step, a share. content: plain JSON values."""

    command: Command
    number: int = 0
    rate: float = 0.0
    content: Mapping[str, Any] = field(default_factory=dict)


class World:
    """The processes of a run, of which this one is number `rank`. `World()` is this process alone: it sends nothing.

    Args:
        size: number of processes. heartbeat: None for a process alone. attempt: 2 after the first restart of torchrun.
    """

    def __init__(self, rank: int = 0, size: int = 1, heartbeat: Heartbeat | None = None, attempt: int = 1) -> None:
        self.rank, self.size, self._heartbeat, self.attempt = rank, size, heartbeat, attempt
        self._waiting = False  # the others wait for a command

    # --- what rank 0 decides ------------------------------------------------------------------------------------------

    def tell(self, order: Order) -> None:
        """Send a command from rank 0 to the others."""
        if self.size == 1:
            return
        content = json.dumps(order.content).encode() if order.content else b""
        head = torch.tensor([order.command, order.number, order.rate, len(content)], dtype=torch.float64)
        with self.connected(whole=True):
            dist.broadcast(head, src=0)
            if content:
                dist.broadcast(torch.frombuffer(bytearray(content), dtype=torch.uint8), src=0)

    @contextmanager
    def command(self, order: Order) -> Iterator[None]:
        """Send a command from rank 0; inside the block rank 0 does its part of it.

        After an error in the block, Ctrl-C for example, the others are still in the command: nothing can be told then.
        """
        self._waiting = False
        if self._heartbeat is not None:
            self._heartbeat.needed = True
        self.tell(order)
        yield
        self._waiting = True
        if self._heartbeat is not None:
            self._heartbeat.needed = False

    def receive(self) -> Order:
        """The next command of rank 0."""
        head = torch.empty(4, dtype=torch.float64)
        with self.connected():
            dist.broadcast(head, src=0)
            command, number, rate, size = head.tolist()
            content = torch.empty(int(size), dtype=torch.uint8)
            if size:
                dist.broadcast(content, src=0)
        told = json.loads(bytes(content.tolist())) if size else {}
        return Order(command=Command(int(command)), number=int(number), rate=rate, content=told)

    def reporting(self, report: Callable[[str], None]) -> Callable[[str], None]:
        """`report`, which also notes for the others what they wait for."""

        def note(text: str) -> None:
            if self._heartbeat is not None:
                self._heartbeat.doing = text
            report(text)

        return note

    # --- what all must agree on ---------------------------------------------------------------------------------------

    def agree(self, fault: str = "") -> None:
        """Raise SharedFault in all ranks if one of them has found a fault; the message names the rank."""
        for rank, found in enumerate(self._from_all(fault)):
            if found:
                raise SharedFault("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=found)

    def require_same(self, facts: Mapping[str, str]) -> None:
        """Raise SharedFault in all ranks if one of these facts is another one elsewhere."""
        found = self._from_all(dict(facts))
        for rank, other in enumerate(found):
            for name, value in found[0].items():
                if other.get(name) != value:
                    raise SharedFault(
                        "the processes differ in {name}: {first} on rank 0, {other} on rank {rank}. Start all with the "
                        "same command and the same versions.",
                        name=tr(name),
                        first=value,
                        other=other.get(name, "?"),
                        rank=rank,
                    )
        self._waiting = True  # for the first command

    def require_shared(self, folder: Path) -> None:
        """Raise SharedFault in all ranks if one cannot see what rank 0 writes into `folder`, or cannot write."""
        if self.size == 1:
            return
        mark = folder.resolve() / f".seen-{os.getpid()}-{time.time_ns()}.tmp"
        mark.touch()
        try:
            with self.command(Order(command=Command.SEE, content={"path": str(mark)})):
                self.agree()
        finally:
            mark.unlink()

    def see(self, path: Path) -> None:
        """Look for the file that `require_shared` wrote, and write one beside it, as saving the state will."""
        until = time.monotonic() + SEEING
        while not (there := path.is_file()) and time.monotonic() < until:
            time.sleep(0.1)
        fault = ""
        if not there:
            fault = tr(
                "{path} of rank 0 is not seen here; the run folder must be on a file system that all hosts share.",
                path=path.parent,
            )
        else:
            try:
                mine = path.with_name(f"{path.name}-{self.rank}")
                mine.touch()
                mine.unlink()
            except OSError as error:
                fault = tr(
                    "cannot write into {path}: {reason}. All ranks write into the run folder.",
                    path=path.parent,
                    reason=error.strerror,
                )
        self.agree(fault)

    def _from_all(self, mine: Any) -> list[Any]:
        found = [mine] * self.size
        if self.size > 1:
            with self.connected(whole=True):
                dist.all_gather_object(found, mine)
        return found

    # --- shares and sums ----------------------------------------------------------------------------------------------

    def share(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The rows of a batch, or of a part of one, that this rank computes; there may be none."""
        rows = len(batch[0])
        mine = slice(self.rank * rows // self.size, (self.rank + 1) * rows // self.size)
        return batch if self.size == 1 else tuple(tensor[mine] for tensor in batch)

    def require_rows(self, rows: int) -> None:
        """Raise ConfigError if a batch of so many sequences has none for some process."""
        if rows < self.size > 1:
            raise ConfigError(
                "{processes} processes were started, but a batch has {rows} sequences: each process needs one. Use "
                "fewer processes, or a larger {--batch-size}.",
                processes=self.size,
                rows=rows,
            )

    def sum_gradients(self, model: nn.Module, losses: list[float]) -> list[float]:
        """Add up the gradients of all ranks, with one all-reduce for each dtype, and return the sums of the losses.

        A parameter without a gradient in any rank has none afterwards, so that optimizers leave it as it is.
        """
        if self.size == 1:
            return losses
        totals: list[float] = []
        by_dtype: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
        with self.connected(whole=True):
            for parameters in by_dtype.values():
                # The losses and the numbers of ranks that have a gradient ride along.
                used = [float(parameter.grad is not None) for parameter in parameters]
                gradients = [p.new_zeros(p.numel()) if p.grad is None else p.grad.flatten() for p in parameters]
                flat = torch.cat([gradients[0].new_tensor([*losses, *used]), *gradients])
                dist.all_reduce(flat)
                head, *sums = flat.split(
                    [len(losses) + len(parameters), *(parameter.numel() for parameter in parameters)]
                )
                totals, counts = head.tolist()[: len(losses)], head.tolist()[len(losses) :]
                for parameter, count, gradient in zip(parameters, counts, sums, strict=True):
                    parameter.grad = gradient.view_as(parameter) if count else None
        return totals

    def sum(self, values: list[float]) -> list[float]:
        """Add up values over all ranks."""
        totals = torch.tensor(values, dtype=torch.float64)
        with self.connected():
            dist.all_reduce(totals)
        found: list[float] = totals.tolist()
        return found

    def exchange(self, shares: Sequence[Tensor]) -> None:
        """Overwrite tensor r by that of rank r, for all ranks. Where rank r has nothing to send, it is empty."""
        with self.connected():
            works = [dist.broadcast(one, src=rank, async_op=True) for rank, one in enumerate(shares) if one.numel()]
            for work in works:
                work.wait()

    def swap(self, pieces: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
        """Send piece r to rank r; the pieces from all ranks, in their order, in one tensor.

        Args:
            pieces: one-dimensional. sizes: of those that come.
        """
        found = pieces[0].new_empty(sum(sizes))
        with self.connected():
            dist.all_to_all_single(found, torch.cat(list(pieces)), list(sizes), [len(piece) for piece in pieces])
        return found

    def copy(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite tensors by those of rank 0."""
        with self.connected():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def together(self, work: Callable[[], Done]) -> Done:
        """Do what sends messages of its own, `torch.distributed.checkpoint`; all ranks call this at the same time.

        Raises:
            OSError: it failed in some rank, which the text names. All ranks raise this.
        """
        from torch.distributed.checkpoint.api import CheckpointException  # slow to import

        try:
            with self.connected():
                return work()
        except CheckpointException as error:
            self._waiting = True  # all ranks know of it
            rank, (fault, _) = min(error.failures.items())
            if rank == self.rank and not isinstance(fault, Exception):  # KeyboardInterrupt
                raise fault from None
            reason = getattr(fault, "strerror", None) or _told(fault)
            raise OSError(tr("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=reason)) from error

    # --- the end ------------------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self, *, whole: bool = False) -> Iterator[None]:
        """Convert the error of a broken connection inside the block to one that names the rank that is gone.

        Args:
            whole: the parameters and moments are those before the step.
        """
        try:
            yield
        except RuntimeError as error:
            self._waiting = False
            if is_out_of_memory(error):
                raise
            assert self._heartbeat is not None
            rank, why = self._heartbeat.missing() or (None, "")
            lost = ProcessLost(
                "rank {rank} of {size} ended: {why}. The run ends; continue it with {--resume}.",
                rank="?" if rank is None else rank,
                size=self.size,
                why=why or str(error).strip().splitlines()[0],
            )
            lost.known, lost.whole = rank is None, whole
            raise lost from error

    def leave(self, error: BaseException | None) -> None:
        """End: rank 0 tells the others, and they tell rank 0 why they fail."""
        if self.rank == 0 and self._waiting and not isinstance(error, SharedFault):
            with suppress(ProcessLost):
                self.tell(Order(command=Command.END, number=_exit_code(error)))
        fault = "" if error is None or isinstance(error, SharedFault | ProcessLost) else _told(error)
        if self._heartbeat is not None:
            self._heartbeat.stop(fault if self.rank else "")
        dist.destroy_process_group()


def _exit_code(error: BaseException | None) -> int:
    return 0 if error is None else int(getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1))


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"
