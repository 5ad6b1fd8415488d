"""Activation checkpointing: of each block only the input is kept, and the rest is computed again in the backward pass.

The method is that of https://arxiv.org/abs/1604.06174, with one segment for each block.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from jumok.nn.blocks import Block


def recompute_blocks(model: nn.Module) -> None:
    """Let the blocks of a model recompute their activations. Parameters, their names and the results stay the same.

    `forward` is replaced, not the call of the module, so hooks on a block run once: those of `fully_shard` gather the
    parameters before the backward pass of the block, which includes the second forward pass.
    """
    for block in model.modules():
        if isinstance(block, Block):
            # An attribute of the instance, which __setattr__ does not take for a parameter or a module.
            block.forward = partial(_recomputed, block.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    # Dropout is the same in both passes: the random state is kept with the input.
    found: Tensor = checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return found
