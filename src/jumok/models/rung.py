"""A GPT with components removed, for ablations. It uses only the modules of GPT."""

from __future__ import annotations

import torch
from torch import nn

from jumok.config import RungConfig
from jumok.models.gpt import GPT
from jumok.nn.attention import MultiHeadAttention
from jumok.nn.blocks import Block


class Rung(GPT):
    """A model of the ladder (`jumok.course.ladder.run`), a series that adds the components of GPT one by one.

    - mixing="none" has no blocks: the embedding of each token alone predicts the next one. This is a bigram model of
      rank n_embd.
    - mixing="average" has attention with uniform weights over the past: W_q is zero, and W_v and W_o are the identity.
      These parameters are frozen.

    Neither depends on the order of the past tokens, so neither has positions.

    Without norms, the small initial parameters of GPT-2 would make activations vanish. They are then initialised so
    that activations keep their size: embeddings with N(0, 1), and matrices with N(0, 1 / inputs) as in "Efficient
    BackProp", section 4.6 (http://yann.lecun.com/exdb/publis/pdf/lecun-98b.pdf). Projections into a residual stream are
    divided by the root of their number, as in GPT-2.

    Args:
        config: the architecture, and the components that are removed.
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
            if embedding is not None and embedding.weight is not self.head.weight:  # a tied output layer stays small
                nn.init.normal_(embedding.weight)

    def parameter_count(self) -> int:
        """Return the number of trained parameters; a shared matrix counts once, frozen parameters do not count."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)


@torch.no_grad()
def _only_average(attention: MultiHeadAttention) -> None:
    """Set and freeze the parameters so that each output is the mean of the inputs up to its position."""
    for parameter in attention.parameters():
        parameter.zero_()
        parameter.requires_grad_(False)
    assert attention.o_proj is not None
    for projection in (attention.v_proj, attention.o_proj):
        nn.init.eye_(projection.weight)
