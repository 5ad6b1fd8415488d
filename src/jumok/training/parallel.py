"""Training in several processes: each takes the same steps, on its rows of every batch, and rank 0 writes (SPMD).

torchrun starts, watches and ends the processes. DDP sums their gradients, or FSDP2 divides parameters, gradients and
moments among them. What depends on a clock, a file or a measurement is decided by rank 0 and broadcast, so that no two
processes can decide differently.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from jumok.errors import ConfigError, JumokError, ProcessLost, SharedFault, TrainingError
from jumok.memory import is_out_of_memory
from jumok.messages import tr
from jumok.models import Model
from jumok.nn.blocks import Block
from jumok.training.optim import balanced, orthogonal, stacked_orthogonal
from jumok.training.tasks import Task
from jumok.training.tasks.task import Objective

JOINING = timedelta(seconds=60)  # in which all ranks must have come
STEPPING = timedelta(minutes=10)  # in which all ranks must answer in a step, and rank 0: one that hangs ends the run
PREPARING = timedelta(days=1)  # in which rank 0 must decide: it may read and tokenize a long text
SEEING = 5.0  # seconds in which all ranks must see a new file: network file systems remember what was missing
Value = TypeVar("Value")
untyped: Any = dist  # which exports a part of its names without types


def launched_processes() -> int:
    """Return the number of processes of the launch that this one belongs to; 1 for a process alone.

    Raises:
        ConfigError: WORLD_SIZE is no number, or 0.
    """
    given = os.environ.get("WORLD_SIZE", "1")
    if not given.isdecimal() or int(given) < 1:
        raise ConfigError(
            "WORLD_SIZE={given!r} is out of range: it is the number of processes, 1 or more.", given=given
        )
    return int(given)


@contextmanager
def process_group(backend: str = "gloo", facts: Mapping[str, str] | None = None) -> Iterator[ProcessGroup]:
    """Connect the processes of this launch inside the block; a process that was started alone is a group of its own.

    Args:
        backend: of torch.distributed. facts: that must be the same in all processes.

    Raises:
        ConfigError: WORLD_SIZE is out of range. SharedFault: the facts differ.
        TrainingError: the processes cannot connect, or one does not come.
    """
    size = launched_processes()
    if size == 1:
        yield ProcessGroup()
        return
    try:
        store, rank, size = next(untyped.rendezvous("env://", timeout=JOINING))
        attempt = _meet(store, rank, size)
        store = untyped.PrefixStore(f"attempt/{attempt}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=STEPPING)
        decisions = dist.new_group(backend="gloo", timeout=PREPARING if rank else STEPPING)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            "rank {rank} of {size} cannot connect to the other processes within {seconds:.0f} s ({reason}). Start all "
            "of them with torchrun. If they run on several hosts, set GLOO_SOCKET_IFNAME on each to its network "
            "interface in the network of the hosts, eth0 for example.",
            rank=os.environ.get("RANK", "?"),
            size=size,
            seconds=JOINING.total_seconds(),
            reason=str(error).strip().splitlines()[0],
        ) from error
    group, failure = ProcessGroup(rank, size, store, decisions, restarted=attempt > 1), None
    try:
        group.check_same(facts or {})
        yield group
    except BaseException as error:
        failure = error
        raise
    finally:
        group.shutdown(failure)


def _meet(store: Any, rank: int, size: int) -> int:
    """Wait for the other processes, and return the number of this attempt of the launch, from 1.

    torchrun's store outlives a restart, and has the addresses of processes that are gone, so each attempt needs keys of
    its own. Its count of restarts may differ between hosts. So rank 0 counts, and answers processes by their names.

    Raises:
        RuntimeError: a rank does not come.
    """
    name, until = uuid4().hex, time.monotonic() + JOINING.total_seconds()
    if rank:
        store.set(f"name/{rank}", name)
        store.wait([f"attempt of {name}"], JOINING)
        attempt = int(store.get(f"attempt of {name}"))
        store.set(f"here/{attempt}/{rank}", "")
        return attempt
    attempt, absent = int(store.add("attempts", 1)), set(range(1, size))
    while absent:
        for other in sorted(absent):
            if store.check([f"here/{attempt}/{other}"]):
                absent.remove(other)
            elif store.check([f"name/{other}"]):  # of this attempt, or still of the one before
                store.set(f"attempt of {store.get(f'name/{other}').decode()}", f"{attempt}")
        if absent and time.monotonic() > until:
            raise RuntimeError(tr("rank {missing} did not come", missing=", ".join(map(str, sorted(absent)))))
        time.sleep(0.02)
    return attempt


class ProcessGroup:
    """The processes of a run, of which this one is number `rank`. `ProcessGroup()` is a process alone.

    Args:
        size: number of processes. store: for their last words. decisions: a group of torch.distributed with gloo, for
            messages that may take long to come. restarted: by torchrun, after a failure.
    """

    def __init__(
        self, rank: int = 0, size: int = 1, store: Any = None, decisions: Any = None, *, restarted: bool = False
    ) -> None:
        self.rank, self.size, self._store, self._decisions, self.restarted = rank, size, store, decisions, restarted

    # --- what rank 0 decides, and what all must agree on --------------------------------------------------------------

    def broadcast(self, value: Any = None) -> Any:
        """Return the value of rank 0; all processes call this at the same place."""
        values = [value]
        if self.size > 1:
            with self.connected():
                dist.broadcast_object_list(values, src=0, group=self._decisions)
        return values[0]

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all processes, by rank."""
        values = [value] * self.size
        if self.size > 1:
            with self.connected():
                dist.all_gather_object(values, value, group=self._decisions)
        return values

    def raise_if_any_failed(self, fault: str = "") -> None:
        """Raise SharedFault in all processes if one of them has found a fault; the message names its rank."""
        for rank, found in enumerate(self.gather(fault)):
            if found:
                raise SharedFault("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=found)

    def check_same(self, facts: Mapping[str, str]) -> None:
        """Raise SharedFault in all processes if one of these facts is another one elsewhere."""
        first, *others = self.gather(dict(facts))
        for rank, other in enumerate(others, 1):
            for name, value in first.items():
                if other.get(name) != value:
                    raise SharedFault(
                        "the processes differ in {name}: {first} on rank 0, {other} on rank {rank}. Start all with the "
                        "same command and the same versions.",
                        name=tr(name),
                        first=value,
                        other=other.get(name, "?"),
                        rank=rank,
                    )

    def check_shared_file(self, folder: Path | None = None) -> None:
        """Raise SharedFault in all processes if one cannot see what rank 0 writes into a folder, or cannot write there.

        Args:
            folder: of the run, on rank 0.
        """
        if self.size == 1:
            return
        mark = None if folder is None else folder.resolve() / f".seen-{os.getpid()}-{time.time_ns()}.tmp"
        if mark is not None:
            mark.touch()
        try:
            path: Path = self.broadcast(mark)
            self.raise_if_any_failed(self._fault_of(path))
        finally:
            if mark is not None:
                mark.unlink()

    def _fault_of(self, path: Path) -> str:
        """Say what is wrong with the place of a file that rank 0 has written, or ""."""
        until = time.monotonic() + SEEING
        while not path.is_file():
            if time.monotonic() > until:
                return tr(
                    "{path} of rank 0 is not seen here; the run folder must be on a file system that all hosts share.",
                    path=path.parent,
                )
            time.sleep(0.1)
        try:
            own = path.with_name(f"{path.name}-{self.rank}")
            own.touch()
            own.unlink()
        except OSError as error:
            return tr(
                "cannot write into {path}: {reason}. All ranks write into the run folder.",
                path=path.parent,
                reason=error.strerror,
            )
        return ""

    # --- steps --------------------------------------------------------------------------------------------------------

    def rows(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the rows of a batch, or of a part of one, that this process computes; there may be none."""
        count = len(batch[0])
        own = slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)
        return batch if self.size == 1 else tuple(tensor[own] for tensor in batch)

    def require_rows(self, rows: int) -> None:
        """Raise ConfigError if a batch of so many sequences has none for some process."""
        if rows < self.size > 1:
            raise ConfigError(
                "{processes} processes were started, but a batch has {rows} sequences: each process needs one. Use "
                "fewer processes, or a larger {--batch-size}.",
                processes=self.size,
                rows=rows,
            )

    def sum(self, values: list[float]) -> list[float]:
        """Add up values over all processes."""
        if self.size == 1:
            return values
        totals = torch.tensor(values, dtype=torch.float64)
        with self.connected():
            dist.all_reduce(totals, group=self._decisions)
        found: list[float] = totals.tolist()
        return found

    def orthogonalise(self, matrices: Iterable[Tensor], dtype: torch.dtype | None) -> Iterable[Tensor]:
        """Return `orthogonal` of each matrix, in all processes, each of which computes a share of them.

        The results are sent in the dtype of the computation, so every process has the same bits. In bfloat16 they are
        those of one process that computes all; in float32 the last bit may depend on how many are computed together.
        """
        if self.size == 1:
            return stacked_orthogonal(matrices, dtype)
        found = list(matrices)
        if not found:
            return found
        owners = balanced([min(m.shape) ** 2 * max(m.shape) for m in found], self.size)
        with self.connected():
            return (_sharded if hasattr(found[0], "to_local") else _replicated)(found, owners, self.rank, dtype)

    # --- the end ------------------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Convert the error of a broken connection inside the block to one that says which process has failed, and why.

        Raises:
            ProcessLost: its exit code is that of the process that has failed.
        """
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or is_out_of_memory(error) or isinstance(error, JumokError):
                raise
            with suppress(RuntimeError):  # the store is gone, too
                for rank in range(self.size):
                    if self._store.check([f"ended/{rank}"]):
                        code, fault = json.loads(self._store.get(f"ended/{rank}"))
                        lost = ProcessLost(
                            "rank {rank} of {size} ended: {why}. The run ends; continue it with {--resume}.",
                            rank=rank,
                            size=self.size,
                            why=fault,
                        )
                        lost.exit_code = code
                        raise lost from error
            raise ProcessLost(
                "the connection to another process is lost: it was killed, or its host cannot be reached ({reason}). "
                "The run ends; continue it with {--resume}.",
                reason=str(error).strip().splitlines()[0],
            ) from error

    def together(self, work: Callable[[], Value]) -> Value:
        """Do what sends messages of its own, `torch.distributed.checkpoint`; all processes call this at the same time.

        Raises:
            OSError: it failed in some process, whose rank the text names. All processes raise this.
        """
        from torch.distributed.checkpoint.api import CheckpointException  # slow to import

        try:
            with self.connected():
                return work()
        except CheckpointException as error:
            rank, (fault, _) = min(error.failures.items())
            if rank == self.rank and not isinstance(fault, Exception):  # KeyboardInterrupt
                raise fault from None
            reason = getattr(fault, "strerror", None) or _describe(fault)
            raise OSError(tr("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=reason)) from error

    def shutdown(self, error: BaseException | None) -> None:
        """Disconnect, and leave word for the others how this process has ended, unless they know."""
        if not isinstance(error, ProcessLost | SharedFault):
            code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1) if error else 0
            with suppress(RuntimeError):
                self._store.set(f"ended/{self.rank}", json.dumps([code, _describe(error) if error else ""]))
        dist.destroy_process_group()


def _describe(error: BaseException) -> str:
    return str(error) if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"


# --- gradients that are summed ----------------------------------------------------------------------------------------


def replicate(objective: nn.Module) -> DistributedDataParallel:
    """Let all processes have the parameters of rank 0 and the sums of their gradients, by DDP.

    A parameter that no process uses has no gradient, so that optimizers leave it as it is. With
    `find_unused_parameters`, buckets also stay as they are after the first step: a resumed run sums in the same order.
    """
    replicas = DistributedDataParallel(objective, find_unused_parameters=True, gradient_as_bucket_view=True)
    # DDP would divide the sums; the losses are divided by the counts of all processes already.
    replicas.register_comm_hook(None, lambda _, bucket: _sum(bucket.buffer()))
    return replicas


def _sum(gradients: Tensor) -> torch.futures.Future[Tensor]:
    work = dist.all_reduce(gradients, async_op=True)
    return cast("torch.futures.Future[Tensor]", work.get_future().then(lambda done: done.value()[0]))


def without_sums(objective: nn.Module) -> AbstractContextManager[None]:
    """Passes inside the block add to the gradients of this process, which a later pass sums over all."""
    if isinstance(objective, DistributedDataParallel):
        return cast("AbstractContextManager[None]", objective.no_sync())
    return nullcontext()


# --- parameters that are divided --------------------------------------------------------------------------------------


class Shards:
    """A model whose parameters are divided among the processes by FSDP2, with the loss of its task.

    Each process keeps a part of each tensor, split along its first dimension. The parameters of a block are gathered
    before its forward and its backward pass (https://arxiv.org/abs/2304.11277).

    The argument `model` becomes a plain model without parameters; `gathered` fills it in rank 0 for validation, for
    samples and for files.

    Attributes:
        model: the model that is trained, with the same names of parameters. objective: with the loss.

    Args:
        task, model: of the run. precision: "float32" or "bfloat16".
        device: to which each block is moved when it is divided, so that no device ever has all of them.
    """

    def __init__(self, task: Task[Any], model: Model, group: ProcessGroup, precision: str, device: torch.device):
        from torch.distributed.device_mesh import init_device_mesh  # slow to import
        from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

        self._group, self._whole, self._full = group, model, False
        with group.connected():
            for parameter in model.parameters():
                dist.broadcast(parameter.detach(), src=0)
        self.model = _twin(model)
        model.to(device)
        mesh = init_device_mesh(device.type, (group.size,))
        self.objective = Objective(task, self.model)
        # Autocast would cast the parameters of a block after they were gathered; cast before, half as much is sent.
        # The sums of gradients are float32 in both cases.
        blocks = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if precision == "bfloat16" else None,
            reduce_dtype=torch.float32 if precision == "bfloat16" else None,
            cast_forward_inputs=False,
        )
        for block in self.model.modules():
            if isinstance(block, Block):
                fully_shard(block, mesh=mesh, mp_policy=blocks)
        fully_shard(self.objective, mesh=mesh, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
        for part in self.objective.modules():
            if isinstance(part, FSDPModule):  # the loss is divided by the counts of all processes already
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)

    @contextmanager
    @torch.no_grad()
    def gathered(self) -> Iterator[None]:
        """Fill the plain model of rank 0 inside the block; all processes enter it at the same time."""
        if self._full:
            yield
            return
        with self._group.connected():
            for shard, parameter in zip(self.model.parameters(), self._whole.parameters(), strict=True):
                full = shard.detach().full_tensor()  # type: ignore[attr-defined]
                if self._group.rank == 0:
                    parameter.data = full
        self._full = True
        try:
            yield
        finally:
            self._full = False
            _empty(self._whole)

    def fill(self) -> None:
        """Give the plain model room for parameters that are read from a file; it keeps them."""
        self._full = True
        for shard, parameter in zip(self.model.parameters(), self._whole.parameters(), strict=True):
            parameter.data = torch.empty(shard.shape, dtype=shard.dtype, device=parameter.device)


def _empty(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.new_empty(0)


def _twin(model: Model) -> Model:
    """Make a model with the parameters of `model`, which loses them; they exist once at any time."""
    parameters = [parameter.data for parameter in model.parameters()]
    _empty(model)
    kept = (model.config, model.tokenizer)
    twin = copy.deepcopy(model, {id(each): each for each in kept})
    for parameter, values in zip(twin.parameters(), parameters, strict=True):
        parameter.data = values
    return twin


# --- Muon -------------------------------------------------------------------------------------------------------------


def _replicated(
    matrices: Sequence[Tensor], owners: Sequence[int], rank: int, dtype: torch.dtype | None
) -> list[Tensor]:
    """Orthogonalise the matrices of this process, and broadcast them; each rank's in one message."""
    own = stacked_orthogonal((m for m, owner in zip(matrices, owners, strict=True) if owner == rank), dtype)
    found: dict[int, Tensor] = {}
    works = []
    for owner in sorted(set(owners)):
        places = [place for place, each in enumerate(owners) if each == owner]
        if owner == rank:
            flat = torch.cat([matrix.flatten() for matrix in own])
        else:
            count = sum(matrices[place].numel() for place in places)
            flat = torch.empty(count, dtype=dtype or matrices[0].dtype, device=matrices[0].device)
        works.append(dist.broadcast(flat.view(torch.uint8), src=owner, async_op=True))
        parts = flat.split([matrices[place].numel() for place in places])
        found |= {place: part.view(matrices[place].shape) for place, part in zip(places, parts, strict=True)}
    for work in works:
        work.wait()
    return [found[place] for place in range(len(matrices))]


def _sharded(matrices: Sequence[Any], owners: Sequence[int], rank: int, dtype: torch.dtype | None) -> list[Tensor]:
    """Orthogonalise matrices whose rows are divided among the processes, divided in the same way.

    Each process gathers the matrices that it computes, and no other ones. Both exchanges are all-to-all: the rows of
    each matrix go to its owner, and their directions come back.
    """
    size = dist.get_world_size()
    rows = [[len(part) for part in torch.empty(len(m), 0).chunk(size)] for m in matrices]
    rows = [each + [0] * (size - len(each)) for each in rows]
    places = [[place for place, owner in enumerate(owners) if owner == each] for each in range(size)]
    local = [m.to_local().to(dtype or m.dtype) for m in matrices]  # as `orthogonal` rounds them
    came = _swap(
        [[local[place] for place in each] for each in places],
        [[rows[place][sender] * matrices[place].shape[1] for place in places[rank]] for sender in range(size)],
        like=local[0],
    )
    done = []  # for each matrix of this process, the rows of each rank
    for index, place in enumerate(places[rank]):
        whole = torch.cat([parts[index] for parts in came]).view(matrices[place].shape)
        done.append(orthogonal(whole, dtype).split(rows[place]))
    back = _swap(
        [[parts[receiver] for parts in done] for receiver in range(size)],
        [[local[place].numel() for place in each] for each in places],
        like=local[0],
    )
    found: dict[int, Tensor] = {}
    for each, directions in zip(places, back, strict=True):
        found |= dict(zip(each, directions, strict=True))
    return [_divided(found[place].view(local[place].shape), like=m) for place, m in enumerate(matrices)]


def _swap(sent: Sequence[Sequence[Tensor]], sizes: Sequence[Sequence[int]], like: Tensor) -> list[tuple[Tensor, ...]]:
    """Send tensors to each rank, and return those from each rank, one-dimensional.

    Args:
        sizes: of the tensors that come. like: a tensor of the same dtype and device.
    """
    totals = [sum(each) for each in sizes]
    came = like.new_empty(sum(totals))
    flat = torch.cat([like.new_empty(0), *(each.flatten() for tensors in sent for each in tensors)])
    dist.all_to_all_single(came, flat, totals, [sum(each.numel() for each in tensors) for tensors in sent])
    return [part.split(list(each)) for part, each in zip(came.split(totals), sizes, strict=True)]


def _divided(rows: Tensor, like: Any) -> Tensor:
    from torch.distributed.tensor import DTensor  # slow to import

    return DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
