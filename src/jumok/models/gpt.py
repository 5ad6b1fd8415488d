"""GPT: token embeddings, a stack of causal blocks, a norm, and an output layer over the vocabulary.

The classic family is GPT-2 (https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf);
the modern family is Qwen3 (https://arxiv.org/abs/2505.09388). Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jumok.config import GPTConfig
from jumok.errors import JumokError
from jumok.models.base import ConfiguredModel, checked_ids
from jumok.models.initialization import look_back_by_rotation
from jumok.models.losses import cross_entropies
from jumok.models.pooling import Pooling
from jumok.nn.blocks import Block, make_norm
from jumok.nn.cache import KVCache
from jumok.nn.layers import Dropout
from jumok.nn.positions import positions_in, rotary
from jumok.nn.products import Linear, linear


class GPT(ConfiguredModel[GPTConfig]):
    """A causal language model. With `config.labels` it also classifies texts.

    Args:
        config: the architecture. The parameters are drawn from torch's global generator; seed it for reproducibility.
    """

    cos: Tensor | None
    sin: Tensor | None

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.token_embedding = nn.Embedding(config.vocab_size, config.n_embd)
        self.position_embedding = None if config.rotated else nn.Embedding(config.context_length, config.n_embd)
        self.dropout = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config.block()) for _ in range(config.n_layer))
        self.norm = make_norm(config.block())
        self.head: nn.Linear = Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.token_embedding.weight
        self.pooling = Pooling(config.pooling) if config.labels else None
        self.classifier = nn.Linear(config.n_embd, len(config.labels), bias=False) if config.labels else None
        self._window = max((config.window(i) or 0 for i in range(config.n_layer)), default=0)  # 0: no layer has one
        table = self._rotary(config.table_length) if config.rotated else (None, None)
        self.register_buffer("cos", table[0], persistent=False)
        self.register_buffer("sin", table[1], persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        # As GPT-2: N(0, 0.02); the projections into the residual stream are divided by the root of their number. In the
        # modern family these are zero instead, so that each block begins as the identity.
        first = self.config.first_parameters
        into_residual = 0.0 if first != "gpt2" else 0.02 * (2 * self.config.n_layer) ** -0.5
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(parameter, std=into_residual)
            elif parameter.dim() == 2:
                std = parameter.shape[1] ** -0.5 if first != "gpt2" and name.startswith("blocks.") else 0.02
                nn.init.normal_(parameter, std=std)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        if first == "look_back":
            layers = [block.attention for block in self.blocks if isinstance(block, Block)]
            look_back_by_rotation(self.token_embedding.weight, layers, base=self.config.rope_theta)

    def hidden(self, ids: Tensor, cache: KVCache | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the last hidden states, after the final norm.

        Args:
            ids: (B, T), integers less than vocab_size.
            cache: keys and values of the tokens before `ids`; extended in place. Its rows may have different lengths,
                see `KVCache.begin_at`.
            segments: (B, T), the number of the text to which each token belongs, where a row holds several; no two
                have the same number. A token attends to its own text alone, and positions begin at 0 in each, so its
                states are those that it has in a row without the other texts. Without a cache only.

        Returns:
            (B, T, C).

        Raises:
            ValueError: an id is out of range, the length with the cached positions exceeds context_length, or segments
                are given with a cache.
        """
        start = cache.length if cache is not None else 0
        ids = checked_ids(ids, self.config.vocab_size, self.config.context_length, past=start)
        stop = start + ids.shape[1]
        positions = None if cache is None else cache.positions  # (B, T) where the rows have different lengths
        allowed = None if cache is None else cache.mask
        near = self._near(start, stop, positions, ids.device)
        if segments is not None:
            if cache is not None:
                raise ValueError("segments and a cache were given; a cache continues one text in each row")
            positions, allowed = positions_in(segments), (segments.unsqueeze(2) == segments.unsqueeze(1)).unsqueeze(1)
        where = slice(start, stop) if positions is None else positions
        x = self.token_embedding(ids)  # (B, T, C)
        if self.position_embedding is not None:
            x = x + self.position_embedding.weight[where]  # (B, T, C)
        angles = self.angles(start, stop, positions)
        x = self.dropout(x)
        for i, block in enumerate(self.blocks):
            mask = allowed
            if near is not None and self.config.window(i) is not None:
                mask = near if allowed is None else allowed & near
            masked = {} if mask is None else {"mask": mask}
            x = block(x, angles, cache.layers[i] if cache is not None else None, **masked)  # (B, T, C)
        return self.norm(x)

    def angles(self, start: int, stop: int, positions: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """Return the cosines and sines of rotary positions for `rotate`.

        Up to `config.table_length` they are rows of `cos` and `sin`; those of longer texts are computed in each call.

        Args:
            start, stop: T positions, the last of which is the last of the text.
            positions: (B, T), positions up to `stop`, where those of the rows differ.

        Returns:
            (T, R) or (B, 1, T, R) each, where R dimensions of a head are rotated; None for learned positions.
        """
        if self.cos is None or self.sin is None:
            return None
        if stop > len(self.cos):
            at = torch.arange(start, stop, device=self.cos.device) if positions is None else positions
            cos, sin = (x.to(self.cos.dtype) for x in self._rotary(at))
        else:
            where = slice(start, stop) if positions is None else positions
            cos, sin = self.cos[where], self.sin[where]
        return (cos, sin) if positions is None else (cos.unsqueeze(1), sin.unsqueeze(1))

    def _rotary(self, positions: int | Tensor) -> tuple[Tensor, Tensor]:
        c = self.config
        return rotary(positions, c.rotated, base=c.rope_theta, scaling=c.frequency_scaling)

    def _near(self, start: int, stop: int, positions: Tensor | None, device: torch.device) -> Tensor | None:
        """Return the mask of the sliding window, (T, stop) or (B, 1, T, stop), or None if all keys are within it."""
        window = self._window
        if not 0 < window < stop:
            return None
        at = torch.arange(start, stop, device=device) if positions is None else positions.unsqueeze(1)
        return torch.arange(stop, device=device) > at.unsqueeze(-1) - window

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Return the logits of the next token at each position: ids (B, T) -> (B, T, V). See `hidden`."""
        return self.head(self.hidden(ids, cache))

    def classify(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the logits of the classes in `config.labels`: (B, T, C) -> (B, number of labels).

        Args:
            hidden: the result of `hidden`, which needs no mask, because no token attends to the padding after it.
            mask: (B, T), True for tokens and False for padding; None: no padding.

        Raises:
            JumokError: this GPT has no labels.
        """
        if self.pooling is None or self.classifier is None:
            raise JumokError(
                "this GPT has no labels to choose from; train it with {--task classify}, or load a model that has some."
            )
        return self.classifier(self.pooling(hidden, mask))

    def new_cache(self, batch: int = 1) -> KVCache:
        """Return an empty cache for `batch` sequences of up to context_length tokens."""
        c = self.config
        empty = self.token_embedding.weight.new_empty(batch, c.n_kv_head, 0, c.head_dim)
        return KVCache(c.n_layer, c.context_length, empty)


def token_losses(hidden: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of each target in nats.

    Args:
        hidden: (B, T, C), the result of `GPT.hidden`.
        head: (V, C), the matrix of the output layer.
        targets: (B, T).

    Returns:
        (B, T), float32 or better.
    """
    return cross_entropies(linear(hidden, head), targets)  # (B, T)
