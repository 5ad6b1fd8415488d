"""Chapter 9: GPT, from embeddings to logits.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from torch import Tensor, nn

from jumok.course.chapters.block import Block, LayerNorm
from jumok.course.chapters.head import causal_mask


class GPT(nn.Module):
    """Embeddings of tokens and positions, blocks, a norm, and the logits of the next token: (B, T) -> (B, T, V)."""

    def __init__(
        self, vocab_size: int, context_length: int, n_layer: int, n_head: int, n_embd: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.context_length = context_length
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(context_length, n_embd)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(n_embd, n_head, dropout) for _ in range(n_layer))
        self.norm = LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)
        self.head.weight = self.token_embedding.weight
        initialise(self, n_layer)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the token after each position."""
        t = ids.shape[1]
        x = self.token_embedding(ids) + self.position_embedding.weight[:t]  # (B, T, C)
        x = self.dropout(x)
        mask = causal_mask(t)  # (T, T)
        for block in self.blocks:
            x = block(x, mask)  # (B, T, C)
        return self.head(self.norm(x))  # (B, T, V)


def initialise(model: nn.Module, n_layer: int) -> None:
    """Draw the first parameters as GPT-2: N(0, 0.02), less for the projections into the residual stream."""
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.normal_(parameter, std=0.02 / (2 * n_layer) ** 0.5)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
