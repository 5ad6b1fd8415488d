"""A GPT with parts left out, to see what each part is worth. Made of the production modules, and of nothing else."""

from __future__ import annotations

import torch
from torch import nn

from jumok.attention import MultiHeadAttention
from jumok.blocks import Block
from jumok.config import RungConfig
from jumok.models.gpt import GPT


class Rung(GPT):
    """The model of one rung of the ladder (`jumok.lessons.ladder`).

    mixing="none" has no blocks: each token's embedding alone predicts the next one, a bigram model of low rank.
    mixing="average" is attention that cannot choose: W_q is zero, so that all scores are equal and the softmax over
    the past is uniform; W_v and W_o are the identity. These stay as they are.

    Args:
        config: its shape, and what is left out.

    Raises:
        ValueError: mixing="average" with heads that together are not as wide as the model.
    """

    def __init__(self, config: RungConfig) -> None:
        super().__init__(config)
        if config.mixing == "none":
            self.blocks = nn.ModuleList()
        elif config.mixing == "average":
            if config.n_head * config.head_dim != config.n_embd:
                raise ValueError(
                    f"averaging needs heads as wide as the model: {config.n_head} x {config.head_dim} is not "
                    f"n_embd={config.n_embd}"
                )
            for block in self.blocks:
                assert isinstance(block, Block)
                _only_average(block.attention)


@torch.no_grad()
def _only_average(attention: MultiHeadAttention) -> None:
    for parameter in attention.parameters():
        parameter.zero_()
        parameter.requires_grad_(False)
    assert attention.o_proj is not None
    for projection in (attention.v_proj, attention.o_proj):
        nn.init.eye_(projection.weight)
