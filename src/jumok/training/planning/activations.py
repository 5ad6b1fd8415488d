"""The activations that a forward pass keeps for the backward pass, counted from a configuration.

Each term below names a tensor that autograd saves. With autocast to bfloat16, the inputs and outputs of matrix products
have two bytes, and the residual stream and the norms four. Every product that reads the same float32 tensor then saves
a copy of its own. The counts are of uncompiled passes; torch.compile keeps less.

The method is that of https://arxiv.org/abs/2205.05198, section 4, for the operations of these blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jumok.config import BERTConfig, BlockConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, TrainConfig, stacks
from jumok.nn.attention import FEWEST_FUSED, Implementation
from jumok.nn.chunked_attention import kept_weights

FLOAT, ID = 4, 8  # bytes


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A forward and a backward pass on one device.

    rows, length: of the batch; padding counts. size: bytes of a number in matrix products, 4 in float32 and 2 in
    bfloat16. attention: implementation. gpu: otherwise a CPU. recompute: of each block only the input is kept, and the
    rest is computed again in the backward pass (activation checkpointing).
    """

    rows: int
    length: int
    size: int = FLOAT
    attention: Implementation = "chunked"
    gpu: bool = False
    recompute: bool = False

    @property
    def tokens(self) -> int:
        """Of the batch."""
        return self.rows * self.length


@dataclass(frozen=True, kw_only=True)
class Activations:
    """Bytes that a pass keeps.

    blocks: of all blocks. working: of the one block that is computed again, with `recompute`, beside its input. rest:
    of embeddings, last norm and head, without the logits. logits: log-probabilities in float32, which the loss keeps.
    """

    blocks: int
    working: int
    rest: int
    logits: int

    @property
    def kept(self) -> int:
        """At the end of the forward pass."""
        return self.blocks + self.rest + self.logits


def activations(shape: ModelConfig, config: TrainConfig, work: Pass) -> Activations:
    """Count what a pass of a model keeps in a task."""
    per_block = [(count, block_kept(block, work, cross=cross)) for count, block, cross in stacks(shape)]
    stream = FLOAT * work.tokens * _width(shape)
    largest = max((kept for _, kept in per_block), default=0)
    return Activations(
        blocks=sum(count * (stream if work.recompute else kept) for count, kept in per_block),
        working=largest - stream if work.recompute and largest else 0,
        rest=_embedding(shape, work) + _head(shape, config, work),
        logits=FLOAT * predictions(config, work) * shape.vocab_size if _writes(shape, config) else 0,
    )


def predictions(config: TrainConfig, work: Pass) -> int:
    """Return the number of tokens of a batch for which logits are computed."""
    return work.rows * math.ceil(config.mask_rate * work.length) if config.task == "mlm" else work.tokens


def block_kept(block: BlockConfig, work: Pass, *, cross: bool = False) -> int:
    """Return the bytes that a block keeps. In pre-norm blocks its input is that of the first norm."""
    n, size = work.tokens, work.size
    attention = _read(work, block.width, 3) + _heads(block, work, causal=_is_causal(block, cross))
    if cross:  # the keys and values of both read the source; in float32 all blocks share it
        copies = 0 if size == FLOAT else 2 * size * n * block.width
        attention += _read(work, block.width, 1) + copies + _heads(block, work, causal=False)
    mlp = 0
    if block.gated:
        mlp = _read(work, block.width, 2) + 4 * size * n * block.mlp_width  # gate, silu(gate), up, product
    elif block.mlp_width:
        hidden = 1 if block.activation == "relu" else 2  # relu keeps its result, which the next matrix reads
        mlp = _read(work, block.width, 1) + hidden * size * n * block.mlp_width
    joins = 1 + cross + bool(block.mlp_width)
    shared = FLOAT * n * block.width if block.parallel else 0  # the input of both norms
    dropped = _dropped(work, block.dropout, block.width, size)
    return attention + mlp + joins * (_norm(block.norm, work, block.width) + dropped) - shared


def _is_causal(block: BlockConfig, cross: bool) -> bool:
    return block.pre_norm or cross  # encoders are post-norm, and so are decoders, which have cross-attention


def _read(work: Pass, width: int, readers: int) -> int:
    """The input of products: one tensor in float32, a copy for each in bfloat16."""
    return work.tokens * width * (FLOAT if work.size == FLOAT else work.size * readers)


def _norm(kind: str, work: Pass, width: int) -> int:
    if kind == "layer":  # input; mean and deviation
        return FLOAT * work.tokens * (width + 2)
    return FLOAT * work.tokens * (2 * width + 1) if kind == "rms" else 0  # input, normalised; scale


def _dropped(work: Pass, rate: float, width: int, size: int) -> int:
    """The mask of a dropout: factors on CPUs, bytes on GPUs."""
    return 0 if rate == 0 else work.tokens * width * (1 if work.gpu else size)


def _heads(block: BlockConfig, work: Pass, *, causal: bool) -> int:
    """Queries, keys, values, what their norms and attention keep, and the result, which o_proj reads."""
    n, size = work.tokens, work.size
    queries, keys = n * block.n_head * block.head_dim, n * block.n_kv_head * block.head_dim
    normed = 0
    if block.qk_norm:  # input in float32, normalised, scale; sines of the rotation, with signs, of q and k
        normed = (FLOAT + size) * (queries + keys) + FLOAT * n * (block.n_head + block.n_kv_head)
        normed += 2 * FLOAT * work.length * block.head_dim
    weights = work.rows * block.n_head * work.length * work.length
    if not work.gpu and (block.attention_dropout > 0 or work.length < FEWEST_FUSED):
        factor = FLOAT if block.qk_norm else size  # normed queries are float32, and so are their weights
        drops = block.attention_dropout > 0
        each = FLOAT + (factor + size if drops else size if size != FLOAT else 0)  # softmax; dropout; what v is times
        return normed + 4 * size * queries + each * weights + causal * work.length**2
    if work.attention == "chunked" and not work.gpu:  # keys and values are repeated for groups of queries
        stored = kept_weights(work.rows, block.n_head, work.length, work.length, causal)
        return normed + 4 * size * queries + size * stored
    return normed + 2 * size * (queries + keys) + FLOAT * n * block.n_head  # the last: log of the sum of exponents


# --- outside the blocks -----------------------------------------------------------------------------------------------


def _embedding(shape: ModelConfig, work: Pass) -> int:
    """Ids, and what comes before the first block; an encoder–decoder has two of each."""
    width = _width(shape)
    normed = isinstance(shape, BERTConfig) or (isinstance(shape, EncoderDecoderConfig) and shape.family == "classic")
    one = ID * work.tokens + _dropped(work, shape.dropout, width, FLOAT)
    one += _norm("layer", work, width) if normed else 0
    return one * (2 if isinstance(shape, EncoderDecoderConfig) else 1)


def _head(shape: ModelConfig, config: TrainConfig, work: Pass) -> int:
    """The last norm, the inputs of the head and the targets."""
    width, n = _width(shape), work.tokens
    kept = 0
    if isinstance(shape, GPTConfig):
        kept += _norm(shape.block().norm, work, width)
    if isinstance(shape, EncoderDecoderConfig) and work.size == FLOAT:
        kept += FLOAT * n * width  # what the encoder returns
    if isinstance(shape, BERTConfig) and (config.task == "mlm" or work.size == FLOAT):
        kept += FLOAT * n * width  # from which masked places or the first one are taken
    if config.task == "mlm":
        hidden = predictions(config, work)
        return kept + 2 * ID * hidden + 4 * work.size * hidden * width  # dense, GELU, norm and output layer read
    if not _writes(shape, config):
        return kept
    return kept + ID * n + work.size * n * width


def _writes(shape: ModelConfig, config: TrainConfig) -> bool:
    """Whether a pass computes logits over the vocabulary."""
    return config.task != "classify" or (isinstance(shape, GPTConfig) and config.lm_weight > 0)


def _width(shape: ModelConfig) -> int:
    assert isinstance(shape, GPTConfig | BERTConfig | EncoderDecoderConfig)
    return shape.n_embd
