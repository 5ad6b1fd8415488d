"""Chapter 7, the block: norms, the MLP, x + f(norm(x)), and the gradient after twelve blocks.

The functions compute each part of a production `Block` from its parameters, and `run_block` combines them.
Self-attention is that of chapter 6, `jumok.course.chapters.heads`.

Shapes use the legend of `jumok.nn.attention`.

Sources: residuals https://arxiv.org/abs/1512.03385, LayerNorm https://arxiv.org/abs/1607.06450, RMSNorm
https://arxiv.org/abs/1910.07467, pre-norm and post-norm https://arxiv.org/abs/2002.04745, SwiGLU
https://arxiv.org/abs/2002.05202, positions that become similar without residuals https://arxiv.org/abs/2103.03404.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from jumok.config import BlockConfig
from jumok.course.chapters.heads import attend_by_heads
from jumok.course.chapters.projections import project
from jumok.nn import MLP, Block, RMSNorm, SwiGLU


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) · weight + bias, for each position separately.

    The variance is the mean of the squared distances from the mean: the sum is divided by C, not by C - 1.

    Args:
        x: (..., C). weight, bias: (C,). eps: keeps the root away from zero.

    Returns:
        (..., C); equal to `torch.nn.functional.layer_norm` over the last dimension.
    """
    centred = x - x.mean(dim=-1, keepdim=True)  # (..., C)
    variance = (centred * centred).mean(dim=-1, keepdim=True)  # (..., 1)
    return centred / (variance + eps).sqrt() * weight + bias


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight. Unlike LayerNorm, it neither subtracts the mean nor adds a bias.

    The mean square is computed in float32 for any type of x, as in `jumok.nn.layers.RMSNorm`.

    Args:
        x: (..., C). weight: (C,). eps: keeps the root away from zero.

    Returns:
        (..., C).
    """
    exact = x.float()
    mean_square = (exact * exact).mean(dim=-1, keepdim=True)  # (..., 1)
    return (exact * (mean_square + eps).rsqrt()).to(x.dtype) * weight


def apply_norm(norm: nn.Module | None, x: Tensor) -> Tensor:
    """A norm of a block, from its parameters: LayerNorm, RMSNorm, or Identity for no norm.

    Args:
        norm: as `jumok.nn.blocks.make_norm` makes it. x: (..., C).

    Returns:
        (..., C).

    Raises:
        TypeError: it is another kind of module.
    """
    if isinstance(norm, nn.LayerNorm):
        return layer_norm(x, norm.weight, norm.bias, norm.eps)
    if isinstance(norm, RMSNorm):
        return rms_norm(x, norm.weight, norm.eps)
    if isinstance(norm, nn.Identity):
        return x
    raise TypeError(f"{type(norm).__name__} is no norm of a block; a block has LayerNorm, RMSNorm or Identity")


def apply_mlp(mlp: nn.Module, x: Tensor) -> Tensor:
    """The MLP of a block, from its parameters, applied to each position separately.

    Two matrices: W_down · activation(W_up · x + b_up) + b_down. Gated: W_down · (silu(W_gate · x) * (W_up · x)), where
    silu(z) = z / (1 + exp(-z)). Biases are optional in both.

    Args:
        mlp: as `jumok.nn.blocks.make_mlp` makes it. x: (..., C).

    Returns:
        (..., C).

    Raises:
        TypeError: it is another kind of module.
    """
    if isinstance(mlp, SwiGLU):
        gate, up = project(mlp.gate_proj, x), project(mlp.up_proj, x)  # (..., hidden) each
        return project(mlp.down_proj, gate / (1 + (-gate).exp()) * up)
    if isinstance(mlp, MLP):
        return project(mlp.down_proj, mlp.activation(project(mlp.up_proj, x)))
    raise TypeError(f"{type(mlp).__name__} is no MLP of a block; a block has MLP or SwiGLU")


def join(block: Block, norm: nn.Module | None, part: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """One part of a block with its norm and residual: x + f(norm(x)), or norm(x + f(x)) in a post-norm block.

    Args:
        block: its settings choose the formula, and whether x is added. norm: the norm of this part.
        part: f, takes and returns (B, T, C). x: (B, T, C).

    Returns:
        (B, T, C).
    """
    if block.pre_norm:
        y = part(apply_norm(norm, x))
        return x + y if block.residual else y
    y = part(x)
    return apply_norm(norm, x + y if block.residual else y)


def run_block(
    block: Block,
    x: Tensor,
    attend: Callable[[Tensor], Tensor] | None = None,
    *,
    context: Tensor | None = None,
    context_mask: Tensor | None = None,
) -> Tensor:
    """A whole production block from its parameters: attention, cross-attention if it has one, MLP.

    Args:
        block: any block; dropout is not applied. x: (B, T, C), or (T, C).
        attend: the self-attention, from (B, T, C) to (B, T, C). None: that of chapter 6 with the block's `causal`.
            For rotary positions see `jumok.course.chapters.positions.attend_with_rotary`.
        context: (B, S, C), for a block with cross-attention. context_mask: broadcastable to (B, H, T, S), as in the
            production block.

    Returns:
        (B, T, C), or (T, C); equal to `block(x, context=context, context_mask=context_mask)` in eval mode.
    """
    attend = attend or partial(attend_by_heads, block.attention, causal=block.causal)
    if block.parallel and block.mlp is not None:
        return x + attend(apply_norm(block.attention_norm, x)) + apply_mlp(block.mlp, apply_norm(block.mlp_norm, x))
    x = join(block, block.attention_norm, attend, x)  # (B, T, C)
    if block.cross_attention is not None:
        look = partial(attend_by_heads, block.cross_attention, context=context, mask=context_mask)
        x = join(block, block.cross_norm, look, x)  # (B, T, C)
    if block.mlp is not None:
        x = join(block, block.mlp_norm, partial(apply_mlp, block.mlp), x)  # (B, T, C)
    return x


def stack(config: BlockConfig, n_layer: int) -> list[Block]:
    """Causal blocks with PyTorch's default initialisation, to be run one after the other."""
    return [Block(config) for _ in range(n_layer)]


def run_stack(blocks: Sequence[Block], x: Tensor) -> list[Tensor]:
    """The output of each block.

    Args:
        blocks: L blocks. x: (B, T, C).

    Returns:
        L + 1 tensors (B, T, C): x itself, then the output of each block.
    """
    outputs = [x]
    for block in blocks:
        outputs.append(block(outputs[-1]))
    return outputs


def gradient_norms(blocks: Sequence[Block], x: Tensor) -> list[float]:
    """The size of the gradient of each block's parameters for a gradient of length 1 at the output of the stack.

    No loss is needed: the gradient at the output has a random direction, drawn from torch's global generator.
    Dropout is applied if the blocks are in training mode. The `grad` of the parameters is not changed.

    Args:
        blocks: L blocks. x: (B, T, C).

    Returns:
        L norms, each over all parameters of a block together.
    """
    top = run_stack(blocks, x)[-1]  # (B, T, C)
    direction = torch.randn_like(top)
    groups = [list(block.parameters()) for block in blocks]
    everything = [parameter for group in groups for parameter in group]
    gradients = iter(torch.autograd.grad(top, everything, direction / direction.norm()))
    return [sum(float(next(gradients).pow(2).sum()) for _ in group) ** 0.5 for group in groups]


def rms(x: Tensor) -> float:
    """Root of the mean square of all numbers in x."""
    return float(x.detach().pow(2).mean().sqrt())


def similarity(x: Tensor) -> float:
    """The similarity of the positions of a sequence: the mean cosine between two different ones.

    Args:
        x: (B, T, C), or (T, C), with T at least 2.

    Returns:
        1 if all have the same direction, about 0 if they are random.
    """
    unit = nn.functional.normalize(x.detach(), dim=-1)  # (B, T, C)
    cosines = unit @ unit.transpose(-2, -1)  # (B, T, T)
    t = x.shape[-2]
    return float((cosines.sum(dim=(-2, -1)) - t).mean() / (t * (t - 1)))
