"""A GPT with parts left out, to see what each part is worth. Made of the production modules, and of nothing else."""

from __future__ import annotations

import torch
from torch import nn

from jumok.config import RungConfig
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import Block


class Rung(GPT):
    """The model of one rung of the ladder (`jumok.lessons.ladder.run`).

    mixing="none" has no blocks: each token's embedding alone predicts the next one, a bigram model of the rank n_embd.
    mixing="average" is attention that cannot choose: W_q is zero, so that all scores are equal and the softmax over
    the past is uniform; W_v and W_o are the identity. These stay as they are.
    Neither can tell where a token stood, so neither has positions.

    GPT-2's small first weights count on norms. Without norms the weights begin so that what passes through them keeps
    about its size: embeddings with N(0, 1), matrices with N(0, 1 / inputs) as in "Efficient BackProp", section 4.6
    (http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf), and those that add to a residual stream shrunk by the root
    of their number, as GPT-2's are.

    Args:
        config: its shape, and what is left out.
    """

    def __init__(self, config: RungConfig) -> None:
        super().__init__(config)
        if config.mixing != "attention":
            self.position_embedding = None
        if config.mixing == "none":
            self.blocks = nn.ModuleList()
        for block in self.blocks:
            if config.mixing == "average":
                assert isinstance(block, Block)
                _only_average(block.attention)

    def _initialise(self) -> None:
        super()._initialise()
        config = self.config
        assert isinstance(config, RungConfig)
        if config.norm:
            return
        into_residual = (2 * config.n_layer) ** -0.5 if config.residual else 1.0
        for name, parameter in self.blocks.named_parameters():
            if parameter.dim() == 2:
                shrunk = into_residual if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(parameter, std=shrunk * parameter.shape[1] ** -0.5)
        for embedding in (self.token_embedding, self.position_embedding):
            if embedding is not None and embedding.weight is not self.head.weight:  # an output layer begins small
                nn.init.normal_(embedding.weight)

    def parameter_count(self) -> int:
        """Number of trained numbers, a shared matrix counted once; what is frozen does not count."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


@torch.no_grad()
def _only_average(attention: MultiHeadAttention) -> None:
    """Freeze a layer so that each output is the mean of its inputs up to there."""
    for parameter in attention.parameters():
        parameter.zero_()
        parameter.requires_grad_(False)
    assert attention.o_proj is not None
    for projection in (attention.v_proj, attention.o_proj):
        nn.init.eye_(projection.weight)
