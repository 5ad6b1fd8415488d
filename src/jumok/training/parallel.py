"""Training in several processes: each takes the same steps, on its rows of every batch, and rank 0 writes (SPMD).

torchrun starts, watches and ends the processes. DDP sums their gradients, or FSDP2 divides parameters, gradients and
moments among them. What depends on a clock, a file or a measurement is decided by rank 0 and broadcast, so that no two
processes can decide differently.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from jumok.errors import ConfigError, JumokError, ProcessLost, SharedFault, TrainingError
from jumok.memory import is_out_of_memory
from jumok.messages import tr
from jumok.models import Model
from jumok.nn.blocks import Block
from jumok.training.optim import Objective, balanced, orthogonal, stacked_orthogonal
from jumok.training.tasks import Task

JOINING = timedelta(seconds=60)  # in which all ranks must have come
STEPPING = timedelta(minutes=10)  # in which all ranks must answer in a step, and rank 0: one that hangs ends the run
PREPARING = timedelta(days=1)  # in which rank 0 must decide: it may read and tokenize a long text
Value = TypeVar("Value")
untyped: Any = dist  # which exports a part of its names without types


@contextmanager
def process_group(backend: str = "gloo") -> Iterator[ProcessGroup]:
    """Connect the processes of this launch inside the block; a process that was started alone is a group of its own.

    Args:
        backend: of torch.distributed.

    Raises:
        TrainingError: the processes cannot connect, or one does not come.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield ProcessGroup()
        return
    try:
        store, rank, size = next(untyped.rendezvous("env://", timeout=JOINING))
        # torchrun's store outlives a restart, and has the addresses of processes that are gone.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = untyped.PrefixStore(f"attempt/{attempt}", store)
        store.set(f"here/{rank}", "")
        store.wait([f"here/{each}" for each in range(size)], JOINING)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=STEPPING)
        decisions = dist.new_group(backend="gloo", timeout=PREPARING if rank else STEPPING)
        dist.barrier(decisions)  # so that none fails while another one still connects
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
    group, failure = ProcessGroup(rank, size, store, decisions), None
    try:
        yield group
    except BaseException as error:
        failure = error
        raise
    finally:
        group.shutdown(failure)


class ProcessGroup:
    """The processes of a run, of which this one is number `rank`. `ProcessGroup()` is a process alone.

    Args:
        size: number of processes. store: for the reason of a failure. decisions: a group of torch.distributed with
            gloo, for messages that may take long to come.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Any = None, decisions: Any = None) -> None:
        self.rank, self.size, self._store, self._decisions = rank, size, store, decisions

    # --- what rank 0 decides, and what all must agree on --------------------------------------------------------------

    def broadcast(self, value: Any = None) -> Any:
        """Return the value of rank 0; all processes call this at the same place."""
        values = [value]
        if self.size > 1:
            with self.connected():
                dist.broadcast_object_list(values, src=0, group=self._decisions)
        return values[0]

    def raise_if_any_failed(self, fault: str = "") -> None:
        """Raise SharedFault in all processes if one of them has found a fault; the message names its rank."""
        faults = [fault] * self.size
        with self.connected():
            dist.all_gather_object(faults, fault, group=self._decisions)
        for rank, found in enumerate(faults):
            if found:
                raise SharedFault("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=found)

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
        """Return `orthogonal` of each matrix, in all processes, each of which computes a share of those not sharded.

        The results are sent in the dtype of the computation, so every process has the same bits. In bfloat16 they are
        those of one process that computes all; in float32 the last bit may depend on how many are computed together.
        """
        if self.size == 1:
            return stacked_orthogonal(matrices, dtype)
        found = list(matrices)
        if not found:
            return found
        with self.connected():
            if hasattr(found[0], "full_tensor"):
                return [_orthogonal_shards(matrix, dtype) for matrix in found]
            return self._share_out(found, dtype)

    def _share_out(self, matrices: Sequence[Tensor], dtype: torch.dtype | None) -> list[Tensor]:
        """Orthogonalise a share of the matrices, and exchange the results; each rank's are one message."""
        owners = balanced([min(m.shape) ** 2 * max(m.shape) for m in matrices], self.size)
        own = stacked_orthogonal((m for m, owner in zip(matrices, owners, strict=True) if owner == self.rank), dtype)
        found: dict[int, Tensor] = {}
        works = []
        for owner in sorted(set(owners)):
            places = [place for place, each in enumerate(owners) if each == owner]
            if owner == self.rank:
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
                if self._store.check(["failure"]):
                    rank, code, fault = json.loads(self._store.get("failure"))
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
            reason = fault if isinstance(fault, OSError) else _describe(fault)
            raise OSError(tr("rank {rank} of {size}: {fault}", rank=rank, size=self.size, fault=reason)) from error

    def shutdown(self, error: BaseException | None) -> None:
        """Disconnect. The other processes learn the error of this one, unless they know."""
        if error is not None and not isinstance(error, ProcessLost | SharedFault):
            code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
            with suppress(RuntimeError):
                self._store.set("failure", json.dumps([self.rank, code, _describe(error)]))
        dist.destroy_process_group()


def _describe(error: BaseException) -> str:
    return str(error) if isinstance(error, JumokError) else f"{type(error).__name__}: {error}"


def _orthogonal_shards(matrix: Any, dtype: torch.dtype | None) -> Tensor:
    """Orthogonalise a matrix whose rows are divided among the processes; each gathers and computes the whole."""
    from torch.distributed.tensor import distribute_tensor  # slow to import

    whole = matrix.to(dtype or matrix.dtype).full_tensor()
    return distribute_tensor(orthogonal(whole, dtype), matrix.device_mesh, matrix.placements, src_data_rank=None)


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
