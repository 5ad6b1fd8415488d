"""Sharded training: parameters, gradients and moments are divided among the processes, by PyTorch's FSDP2.

Each process keeps a part of each tensor, split along its first dimension. The parameters of a block are gathered before
its forward and its backward pass, and its gradients are summed and divided again after the backward pass
(https://arxiv.org/abs/2304.11277, https://pytorch.org/docs/stable/distributed.fsdp.fully_shard.html).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from jumok.models import Model
from jumok.nn.blocks import Block
from jumok.training.distributed import Command, Order, World
from jumok.training.objective import Objective
from jumok.training.optim import balanced, make_optimizers, orthogonal
from jumok.training.state import TrainingRun
from jumok.training.tasks import Task


class Shards:
    """A model whose parameters are divided among the processes, with the loss of its task.

    The argument `model` becomes a plain model without parameters; `gathered` fills it in rank 0 for validation, for
    samples and for files.

    Attributes:
        model: the model that is trained, with the same names of parameters. objective: with the loss.

    Args:
        task, model: of the run; the same parameters in all processes. precision: "float32" or "bfloat16".
        device: to which each block is moved when it is divided, so that no device ever has all of them.
    """

    def __init__(self, task: Task[Any], model: Model, world: World, precision: str, device: torch.device) -> None:
        self._world, self._whole, self._full = world, model, False
        self.model = _twin(model)
        model.to(device)
        mesh = init_device_mesh(device.type, (world.size,))
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

    @torch.no_grad()
    def gather(self) -> None:
        """Fill the plain model of rank 0; all processes call this at the same time."""
        pairs = zip(self.model.parameters(), self._whole.parameters(), strict=True)
        with self._world.connected():
            for shard, parameter in pairs:
                full = cast(DTensor, shard.detach()).full_tensor()
                if self._world.rank == 0:
                    parameter.data = full

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """The plain model is filled inside the block; rank 0 calls this, and the other ranks `gather` meanwhile."""
        if self._full:
            yield
            return
        with self._world.command(Order(command=Command.GATHER)):
            self.gather()
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


def shard(run: TrainingRun) -> None:
    """Divide the parameters of a run, whose optimizers have no moments yet; all processes call this."""
    run.shards = Shards(run.task, run.model, run.world, run.config.precision, run.device)
    run.optimizers = make_optimizers(run.shards.model, run.config, run.world, sharded_orthogonal)


# --- Muon -------------------------------------------------------------------------------------------------------------


def sharded_orthogonal(
    matrices: Sequence[Tensor], world: World, dtype: torch.dtype | None = torch.bfloat16
) -> list[Tensor]:
    """`orthogonal` of matrices whose rows are divided among the processes, divided in the same way.

    Each process gathers the matrices that it computes, and no other ones.

    Args:
        matrices: DTensors, sharded along their first dimension. dtype: see `orthogonal`.
    """
    owners = balanced([min(m.shape) ** 2 * max(m.shape) for m in matrices], world.size)
    rows = [_rows(len(m), world.size) for m in matrices]
    of_rank = [[i for i, owner in enumerate(owners) if owner == rank] for rank in range(world.size)]
    sizes = [[rows[i][rank] * matrices[i].shape[1] for i in of_rank[world.rank]] for rank in range(world.size)]
    local = [cast(DTensor, m).to_local().to(dtype or m.dtype) for m in matrices]  # as `orthogonal` rounds them
    sent = [_joined([local[i] for i in indices], local[0]) for indices in of_rank]
    came = world.swap(sent, [sum(each) for each in sizes]).split([size for each in sizes for size in each])
    done: list[list[Tensor]] = []  # for each of the matrices of this process, the rows of each rank
    for place, i in enumerate(of_rank[world.rank]):
        whole = torch.cat(came[place :: len(of_rank[world.rank])]).view(matrices[i].shape)
        done.append(list(orthogonal(whole, dtype).split(rows[i])))
    back = [_joined([each[rank] for each in done], local[0]) for rank in range(world.size)]
    flat = world.swap(back, [len(each) for each in sent]).split([local[i].numel() for each in of_rank for i in each])
    found = dict(zip((i for each in of_rank for i in each), flat, strict=True))
    return [_divided(found[i].view(local[i].shape), like=cast(DTensor, m)) for i, m in enumerate(matrices)]


def _rows(count: int, parts: int) -> list[int]:
    """How many rows of a matrix each process has, as torch.chunk divides them."""
    most = -(-count // parts)
    return [max(0, min(count, (part + 1) * most) - part * most) for part in range(parts)]


def _joined(tensors: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.cat([like.new_empty(0), *(tensor.flatten() for tensor in tensors)])


def _divided(rows: Tensor, like: DTensor) -> DTensor:
    return DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


# --- the plain model --------------------------------------------------------------------------------------------------


def _empty(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.new_empty(0)


def _twin(model: Model) -> Model:
    """A model with the parameters of `model`, which loses them; they exist once at any time."""
    parameters = [parameter.data for parameter in model.parameters()]
    _empty(model)
    kept = (model.config, model.tokenizer)
    twin = copy.deepcopy(model, {id(each): each for each in kept})
    for parameter, values in zip(twin.parameters(), parameters, strict=True):
        parameter.data = values
    return twin
