"""BERT: embeddings, a stack of bidirectional blocks, and a head for the task.

Paper: https://arxiv.org/abs/1810.04805. RoBERTa and ELECTRA differ in a few places; see `BERTConfig`. Shapes use the
legend of `jumok.nn.attention`, and E is the width of the embeddings, which is C except in ELECTRA.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BERTConfig
from jumok.errors import JumokError
from jumok.models.base import ConfiguredModel, checked_ids, key_mask
from jumok.models.initialization import look_around_by_positions
from jumok.models.pooling import Pooling
from jumok.nn.blocks import Block
from jumok.nn.layers import Dropout
from jumok.nn.products import Linear, linear


class MaskedLMHead(nn.Module):
    """The head for masked language modelling: a linear layer, GELU, a norm, and the tied output layer with a bias.

    Args:
        config: of the model.
    """

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.dense = Linear(config.n_embd, config.embedding_width)
        self.norm = nn.LayerNorm(config.embedding_width, eps=config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """hidden (..., C), embedding (V, E) -> (..., V)."""
        return linear(self.norm(F.gelu(self.dense(hidden))), embedding, self.bias)


class BERT(ConfiguredModel[BERTConfig]):
    """A bidirectional encoder of texts.

    Called with ids, it returns the last hidden states. The method for the next step depends on `config.head`:
    `mlm_logits` ("mlm"), `pooled` ("pooler" and "classify"), or `classify` ("classify"). By default the vector of a
    text is that of its first token, [CLS], as in `transformers`, so that a classifier can be exported; see `Pooling`.

    Args:
        config: the architecture. The parameters are drawn from torch's global generator; seed it for reproducibility.
    """

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config)
        width = config.embedding_width
        self.token_embedding = nn.Embedding(config.vocab_size, width)
        self.position_embedding = nn.Embedding(config.position_offset + config.context_length, width)
        self.type_embedding = nn.Embedding(config.n_token_type, width)
        self.embedding_norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.embedding_projection = nn.Linear(width, config.n_embd) if width != config.n_embd else None
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config.block(), causal=False) for _ in range(config.n_layer))
        self.mlm_head = MaskedLMHead(config) if config.head == "mlm" else None
        pools = config.head in ("pooler", "classify")
        self.pooling = Pooling(config.pooling) if pools else None
        self.pooler = nn.Linear(config.n_embd, config.n_embd) if pools else None
        self.classifier = nn.Linear(config.n_embd, len(config.labels)) if config.head == "classify" else None
        self._initialise()

    def _initialise(self) -> None:
        # As BERT: N(0, 0.02), without scaling of the projections, because post-norm limits the residual stream.
        # Unlike BERT, the heads of the first block begin by attending to the neighbouring tokens. They read the columns
        # of the positions, which a projection would mix.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if self.embedding_projection is not None:
            return
        first = self.blocks[0]
        assert isinstance(first, Block)
        beside = self.token_embedding.weight.square().mean() + self.type_embedding.weight.square().mean()
        table = self.position_embedding.weight.detach()[self.config.position_offset :]  # (T, C)
        look_around_by_positions(table, first.attention, beside=beside)

    def hidden(self, ids: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Return the last hidden states.

        Args:
            ids: (B, T), integers less than vocab_size.
            mask: (B, T), True for tokens and False for padding; None: no padding.
            token_types: (B, T), 0 for the first and 1 for the second of two joined texts; None: all 0.

        Returns:
            (B, T, C).

        Raises:
            ValueError: an id or token type is out of range, T exceeds context_length, or the shapes differ.
        """
        ids = checked_ids(ids, self.config.vocab_size, self.config.context_length)
        x = self.token_embedding(ids) + self._positions(ids)  # (B, T, E)
        x = self.dropout(self.embedding_norm(x + self._types(ids, token_types)))  # (B, T, E)
        if self.embedding_projection is not None:
            x = self.embedding_projection(x)  # (B, T, C)
        allowed = key_mask(mask, ids)  # (B, 1, 1, T)
        for block in self.blocks:
            x = block(x, mask=allowed)  # (B, T, C)
        return x

    def forward(self, ids: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Return the last hidden states: ids (B, T) -> (B, T, C). See `hidden`."""
        return self.hidden(ids, mask, token_types)

    def mlm_logits(self, hidden: Tensor) -> Tensor:
        """Return logits over the vocabulary: hidden states (..., C) -> (..., V).

        In training, pass only the hidden states of masked positions, (N, C); the logits of others are not used.

        Raises:
            JumokError: the model has another head.
        """
        if self.mlm_head is None:
            raise self._lacks("mlm")
        return self.mlm_head(hidden, self.token_embedding.weight)

    def pooled(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return one vector for each text: pooling, a linear layer and tanh or (ELECTRA) GELU. (B, T, C) -> (B, C).

        Args:
            hidden: the result of `hidden`.
            mask: (B, T), as in `hidden`.

        Raises:
            JumokError: the model has another head.
        """
        if self.pooling is None or self.pooler is None:
            raise self._lacks("pooler")
        text = self.pooling(hidden, mask)  # (B, C)
        if self.classifier is not None and self.config.family != "bert":
            text = self.dropout(text)
        return (F.gelu if self.config.family == "electra" else torch.tanh)(self.pooler(text))

    def classify(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of the classes in `config.labels`: (B, T, C) -> (B, number of labels).

        Args:
            hidden: the result of `hidden`.
            mask: (B, T), as in `hidden`.

        Raises:
            JumokError: the model has another head.
        """
        if self.classifier is None:
            raise self._lacks("classify")
        return self.classifier(self.dropout(self.pooled(hidden, mask)))

    def _positions(self, ids: Tensor) -> Tensor:
        """Return the embedding of each position: (B, T) -> (T, E), or (B, T, E) if it depends on the padding."""
        offset = self.config.position_offset
        if not offset:
            return self.position_embedding.weight[: ids.shape[1]]
        tokens = ids.ne(offset - 1)  # (B, T), all but padding
        return self.position_embedding(tokens.cumsum(dim=1) * tokens + offset - 1)

    def _types(self, ids: Tensor, token_types: Tensor | None) -> Tensor:
        if token_types is None:
            return self.type_embedding.weight[0]  # (E,)
        types = checked_ids(token_types, self.config.n_token_type, self.config.context_length, "token_types")
        if types.shape != ids.shape:
            raise ValueError(
                f"token_types have the shape {tuple(types.shape)}, the ids {tuple(ids.shape)}; they must agree"
            )
        return self.type_embedding(types)  # (B, T, E)

    def _lacks(self, head: str) -> JumokError:
        return JumokError(
            "this BERT has head={head!r}, but head={needed!r} is required; train one with this head, "
            "or load a model that has it.",
            head=self.config.head,
            needed=head,
        )
