"""Attention rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from jumok.errors import ConfigError


def attention_rollout(weights: Sequence[Tensor]) -> Tensor:
    """Attention rollout: how much of each input reaches each position through all layers of self-attention.

    Each layer is half the identity, for the residual stream, and half the mean of its heads; the layers are multiplied
    (https://arxiv.org/abs/2005.00928). Values and MLPs are ignored, so it is an approximation.

    Args:
        weights: attention weights of each layer of one stack, the first one first: (..., H, T, T).

    Returns:
        (..., T, T), rows that sum to one.

    Raises:
        ConfigError: there is no layer, or the shapes are not those of self-attention.
    """
    shapes = {tuple(layer.shape[:-3]) + tuple(layer.shape[-2:]) for layer in weights}
    if len(shapes) != 1 or weights[0].shape[-1] != weights[0].shape[-2]:
        raise ConfigError(
            "rollout needs the weights of all layers of one stack of self-attention, each (..., H, "
            "T, T); given: {shapes}.",
            shapes=[tuple(layer.shape) for layer in weights],
        )
    reached = stay = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)  # (T, T)
    for layer in weights:
        passed = (layer.mean(dim=-3) + stay) / 2  # (..., T, T)
        reached = passed / passed.sum(dim=-1, keepdim=True) @ reached  # (..., T, T)
    return reached
