"""The layers of all models: attention, positions, normalisation, caches, blocks."""

from __future__ import annotations

from jumok.nn.attention import (
    MultiHeadAttention,
    ScaledDotProductAttention,
    attention_weights,
    causal_mask,
    combined_mask,
)
from jumok.nn.blocks import MLP, Block, SwiGLU
from jumok.nn.layers import Dropout, RMSNorm
from jumok.nn.positions import rotary, rotate, sinusoidal

__all__ = [
    "MLP",
    "Block",
    "Dropout",
    "MultiHeadAttention",
    "RMSNorm",
    "ScaledDotProductAttention",
    "SwiGLU",
    "attention_weights",
    "causal_mask",
    "combined_mask",
    "rotary",
    "rotate",
    "sinusoidal",
]
