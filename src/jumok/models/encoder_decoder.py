"""The encoder–decoder Transformer: the encoder reads a source, and the decoder generates a target.

The original family is the Transformer of 2017 (https://arxiv.org/abs/1706.03762), the classic family is BART
(https://arxiv.org/abs/1910.13461). Shapes use the legend of `jumok.nn.attention`; S is the length of the source.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.config import EncoderDecoderConfig
from jumok.models.base import ConfiguredModel, checked_ids, key_mask
from jumok.models.initialization import look_around_by_positions
from jumok.nn.blocks import Block, make_norm
from jumok.nn.cache import EncoderDecoderCache
from jumok.nn.layers import Dropout
from jumok.nn.positions import sinusoidal
from jumok.nn.products import linear


class Placement(nn.Module):
    """Adds positions to embeddings; after learned positions follows a norm.

    Args:
        config: of the model.
    """

    positions: Tensor | None

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        learned = config.family == "classic"
        length, width = config.context_length, config.n_embd
        self.position_embedding = nn.Embedding(length, width) if learned else None
        self.register_buffer("positions", None if learned else sinusoidal(length, width), persistent=False)
        self.norm = make_norm(config.encoder_block()) if learned else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, start: int = 0, positions: Tensor | None = None) -> Tensor:
        """(B, T, C) -> (B, T, C), for the positions from `start`, or for those given, (B, T)."""
        table = self.positions if self.position_embedding is None else self.position_embedding.weight
        assert table is not None
        where = slice(start, start + x.shape[1]) if positions is None else positions
        return self.dropout(self.norm(x + table[where]))


class EncoderDecoder(ConfiguredModel[EncoderDecoderConfig]):
    """A sequence-to-sequence model: it predicts each next token of the target from the source and the target so far.

    Args:
        config: the architecture. The parameters are drawn from torch's global generator; seed it for reproducibility.
    """

    output_bias: Tensor

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.scale = config.n_embd**0.5 if config.scale_embedding else 1.0
        self.source_placement = Placement(config)
        self.encoder = nn.ModuleList(Block(config.encoder_block(), causal=False) for _ in range(config.n_layer))
        self.target_placement = Placement(config)
        self.decoder = nn.ModuleList(Block(config.decoder_block(), cross=True) for _ in range(config.n_decoder_layer))
        # The stock classes have this bias and do not train it. Some published models contain one; here it stays zero.
        self.register_buffer("output_bias", torch.zeros(config.vocab_size))
        self._initialise()

    def _initialise(self) -> None:
        # As BART: N(0, 0.02). The paper of 2017 specifies no initialisation; its family uses Glorot's uniform one
        # (https://proceedings.mlr.press/v9/glorot10a.html). Unlike both, with learned positions the heads of the first
        # block of each stack begin by attending to the neighbouring tokens.
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and self.config.family == "original":
                nn.init.xavier_uniform_(parameter)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        beside = self.token_embedding.weight.square().mean() * self.scale**2
        for placement, stack, causal in (
            (self.source_placement, self.encoder, False),
            (self.target_placement, self.decoder, True),
        ):
            if placement.position_embedding is not None:
                first = stack[0]
                assert isinstance(first, Block)
                look_around_by_positions(
                    placement.position_embedding.weight, first.attention, beside=beside, causal=causal
                )

    def encode(self, source_ids: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Return the last hidden states of the encoder.

        Args:
            source_ids: (B, S), integers less than vocab_size.
            source_mask: (B, S), True for tokens and False for padding; None: no padding.

        Returns:
            (B, S, C).

        Raises:
            ValueError: an id is out of range, S exceeds context_length, or the mask has another shape.
        """
        ids = checked_ids(source_ids, self.config.vocab_size, self.config.context_length, "source ids")
        x = self.source_placement(self.token_embedding(ids) * self.scale)  # (B, S, C)
        allowed = key_mask(source_mask, ids, "source_mask")  # (B, 1, 1, S)
        for block in self.encoder:
            x = block(x, mask=allowed)  # (B, S, C)
        return x

    def hidden(
        self,
        target_ids: Tensor,
        encoded: Tensor,
        source_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """Return the last hidden states of the decoder.

        Args:
            target_ids: (B, T), integers less than vocab_size.
            encoded: (B, S, C), the result of `encode`.
            source_mask: (B, S), as in `encode`.
            cache: keys and values of the source, and of the target before `target_ids`; extended in place. The rows of
                the target may have different lengths, see `KVCache.begin_at`.

        Returns:
            (B, T, C).

        Raises:
            ValueError: an id is out of range, the length with the cached positions exceeds context_length, or the
                mask has another shape.
        """
        start = cache.length if cache is not None else 0
        ids = checked_ids(target_ids, self.config.vocab_size, self.config.context_length, "target ids", past=start)
        own = None if cache is None else cache.target
        positions, mask = (None, None) if own is None else (own.positions, own.mask)
        x = self.target_placement(self.token_embedding(ids) * self.scale, start, positions)  # (B, T, C)
        allowed = key_mask(source_mask, encoded, "source_mask")  # (B, 1, 1, S)
        for i, block in enumerate(self.decoder):
            x = block(
                x,
                cache=None if own is None else own.layers[i],
                mask=mask,
                context=encoded,
                context_mask=allowed,
                context_cache=None if cache is None else cache.source.layers[i],
            )  # (B, T, C)
        return x

    def forward(self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the next token at each position of the target: (B, S), (B, T) -> (B, T, V).

        The target needs no mask, because no token attends to the padding after it. See `encode` and `hidden`.
        """
        return self.decode(target_ids, self.encode(source_ids, source_mask), source_mask)

    def decode(
        self,
        target_ids: Tensor,
        encoded: Tensor,
        source_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """Return logits as `forward`, for an encoded source: target (B, T) -> (B, T, V). See `hidden`."""
        return self.logits(self.hidden(target_ids, encoded, source_mask, cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the output layer, which shares the matrix of the embedding: (..., C) -> (..., V)."""
        return linear(hidden, self.token_embedding.weight, self.output_bias)

    def new_cache(self, batch: int = 1) -> EncoderDecoderCache:
        """Return an empty cache for `batch` sources and targets of up to context_length tokens."""
        c = self.config
        empty = self.token_embedding.weight.new_empty(batch, c.n_decoder_head, 0, c.n_embd // c.n_decoder_head)
        return EncoderDecoderCache(c.n_decoder_layer, c.context_length, empty)
