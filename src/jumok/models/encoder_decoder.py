"""The Transformer with an encoder and a decoder: one reads a source, the other writes a target and looks at both.

The original family is that of 2017 (https://arxiv.org/abs/1706.03762), the classic one is BART
(https://arxiv.org/abs/1910.13461). Shapes use the legend of `jumok.nn.attention`; S are positions of the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import EncoderDecoderConfig
from jumok.models.initialization import look_around_by_positions
from jumok.models.inputs import checked_ids, key_mask
from jumok.nn.blocks import Block, make_norm
from jumok.nn.cache import EncoderDecoderCache
from jumok.nn.layers import Dropout
from jumok.nn.positions import sinusoidal

if TYPE_CHECKING:
    from jumok.tokenizers import Tokenizer


class Placement(nn.Module):
    """What turns embeddings into the input of a stack: positions are added, learned ones with a norm after them.

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

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """(B, T, C) -> (B, T, C), the first of them at position `start`."""
        table = self.positions if self.position_embedding is None else self.position_embedding.weight
        assert table is not None
        return self.dropout(self.norm(x + table[start : start + x.shape[1]]))


class EncoderDecoder(nn.Module):
    """A model of pairs of texts: the logits of each next token of the target, given the source and the target so far.

    Args:
        config: its shape. The weights are drawn from torch's global generator; seed it first for the same model.
    """

    output_bias: Tensor
    tokenizer: Tokenizer | None = None  # set by `jumok.load`, so that text can be given wherever ids can

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        config.require_vocabulary()
        self.config = config
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.scale = config.n_embd**0.5 if config.scale_embedding else 1.0
        self.source_placement = Placement(config)
        self.encoder = nn.ModuleList(Block(config.encoder_block(), causal=False) for _ in range(config.n_layer))
        self.target_placement = Placement(config)
        self.decoder = nn.ModuleList(Block(config.decoder_block(), cross=True) for _ in range(config.n_decoder_layer))
        # Stock classes have it and do not train it; published models bring one, in ours it stays zero.
        self.register_buffer("output_bias", torch.zeros(config.vocab_size))
        self._initialise()

    def _initialise(self) -> None:
        # BART's recipe is BERT's, N(0, 0.02). The paper of 2017 names none; its family begins with Glorot's uniform
        # weights (https://proceedings.mlr.press/v9/glorot10a.html). What is of neither: where positions are learned,
        # heads of the two first blocks begin by looking at the tokens around.
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
        """The encoder's last hidden states.

        Args:
            source_ids: (B, S), whole numbers below vocab_size.
            source_mask: (B, S), True where there is a token and False where a shorter source was filled up; None: all
                tokens.

        Returns:
            (B, S, C).

        Raises:
            ValueError: ids that the model has not, more than context_length, or a mask of another shape.
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
        """The decoder's last hidden states.

        Args:
            target_ids: (B, T), whole numbers below vocab_size.
            encoded: (B, S, C), what `encode` returned. source_mask: (B, S), the one it was given.
            cache: keys and values of the source, and of the target before `target_ids`; extended in place.

        Returns:
            (B, T, C).

        Raises:
            ValueError: ids that the model has not, more than context_length with those before them, or a mask of
                another shape.
        """
        start = cache.length if cache is not None else 0
        ids = checked_ids(target_ids, self.config.vocab_size, self.config.context_length, "target ids", past=start)
        x = self.target_placement(self.token_embedding(ids) * self.scale, start)  # (B, T, C)
        allowed = key_mask(source_mask, encoded, "source_mask")  # (B, 1, 1, S)
        for i, block in enumerate(self.decoder):
            x = block(
                x,
                cache=None if cache is None else cache.target.layers[i],
                context=encoded,
                context_mask=allowed,
                context_cache=None if cache is None else cache.source.layers[i],
            )  # (B, T, C)
        return x

    def forward(self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """Logits of the token after each of the target: source (B, S), target (B, T) -> (B, T, V).

        The target needs no mask: where a shorter one is filled up at its end, no earlier token sees it. See `encode`
        and `hidden`.
        """
        return self.decode(target_ids, self.encode(source_ids, source_mask), source_mask)

    def decode(
        self,
        target_ids: Tensor,
        encoded: Tensor,
        source_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """As `forward`, for a source that is encoded already: target (B, T) -> (B, T, V). See `hidden`."""
        return self.logits(self.hidden(target_ids, encoded, source_mask, cache))

    def logits(self, hidden: Tensor) -> Tensor:
        """The output layer, whose matrix is the embedding's: (..., C) -> (..., V)."""
        return F.linear(hidden, self.token_embedding.weight, self.output_bias)

    def new_cache(self, batch: int = 1) -> EncoderDecoderCache:
        """An empty cache for this model, for `batch` sources and targets of up to context_length tokens."""
        c, weight = self.config, self.token_embedding.weight
        return EncoderDecoderCache(
            c.n_decoder_layer,
            batch,
            c.n_decoder_head,
            c.context_length,
            c.n_embd // c.n_decoder_head,
            dtype=weight.dtype,
            device=weight.device,
        )

    def parameter_count(self) -> int:
        """Number of trained numbers, a shared matrix counted once."""
        return sum(p.numel() for p in self.parameters())
