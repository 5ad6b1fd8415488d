"""The memory of a training step on each of several devices, computed from a configuration.

A step needs most memory when the loss is computed or differentiated, while all activations are kept; at the end of the
backward pass, when all gradients exist; when gradients are exchanged; or when several processes share out the update.
The peak is the largest of these. With shards, rank 0 needs the whole model for validation. Memory inside kernels and of
the CUDA context (some hundred MB) is not counted.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    ModelConfig,
    TrainConfig,
    count_cached,
    count_parameters,
    matrices,
    stacks,
)
from jumok.training.planning.activations import FLOAT, Pass, activations

MOST_ROWS = 1 << 20  # of a batch that is looked for


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Numbers of parameters. block: of the largest block. outside: blocks. products: that matrix products read.

    adapters: of the adapters of LoRA, which are not among the others; 0 without them.
    """

    parameters: int
    matrices: int
    block: int
    outside: int
    embedding: int
    products: int
    tied: bool
    adapters: int = 0

    @property
    def trained(self) -> int:
        """Parameters that have gradients and moments."""
        return self.adapters or self.parameters


def sizes_of(shape: ModelConfig, config: TrainConfig) -> Sizes:
    """Count the parameters of a model by what training does with them.

    matrices: those of the blocks, which Muon takes. products: all that a token is multiplied with, so the output layer
    counts if it is used, and the embedding, which is a lookup, does not.
    """
    assert isinstance(shape, GPTConfig | BERTConfig | EncoderDecoderConfig)
    found = stacks(shape)
    each = [sum(a * b for a, b in matrices(block, cross=cross)) for _, block, cross in found]
    in_blocks = sum(count * one for (count, _, _), one in zip(found, each, strict=True))
    thin = [sum(a + b for a, b in matrices(block, cross=cross)) for _, block, cross in found]  # for a rank of 1
    in_adapters = sum(count * one for (count, _, _), one in zip(found, thin, strict=True)) * (config.lora or 0)
    parameters, embedding = count_parameters(shape), shape.vocab_size * shape.n_embd
    writes = config.task != "classify" or (isinstance(shape, GPTConfig) and config.lm_weight > 0)
    written = embedding * (config.mask_rate if config.task == "mlm" else 1) if writes else 0
    return Sizes(
        parameters=parameters,
        matrices=in_blocks,
        block=max(each, default=0),
        outside=parameters - in_blocks,
        embedding=embedding,
        products=in_blocks + int(written),
        tied=writes and (not isinstance(shape, GPTConfig) or shape.tie_embeddings),
        adapters=in_adapters,
    )


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device.

    parameters, gradients, moments: in float32; a share of them with `shard`. activations: kept at the end of a forward
    pass, logits included. loss: beyond them, while the loss is differentiated. copies: of matrices in bfloat16.
    exchange: gradients in one piece to be reduced; with `shard`, parameters that are gathered, and their gradients.
    whole: with `shard`, the model on rank 0, for validation. peak: at the worst moment; not all of the others exist at
    the same time.
    """

    parameters: int
    gradients: int
    moments: int
    activations: int
    loss: int
    copies: int
    exchange: int
    whole: int
    peak: int


def memory(
    shape: ModelConfig, config: TrainConfig, work: Pass, *, devices: int = 1, shard: bool = False, accumulate: int = 1
) -> Memory:
    """Compute the memory of a step on each of `devices`, with `accumulate` passes before an update."""
    sizes, kept = sizes_of(shape, config), activations(shape, config, work)
    shard = shard and devices > 1
    parameters = FLOAT * -(-(sizes.parameters + sizes.adapters) // (devices if shard else 1))
    gradients = FLOAT * sizes.adapters or parameters
    moments = -(-moment_bytes(sizes, config) // (devices if shard else 1))
    size = 0 if work.size == FLOAT else work.size  # of copies for autocast; shards of blocks are gathered in it
    of_blocks, of_head = (0 if shard else size * sizes.matrices), size * (sizes.products - sizes.matrices)
    gathered, reduced = _gathered(sizes, work) if shard else (0, 0)
    exchange = gathered + reduced if shard else FLOAT * sizes.parameters if devices > 1 else 0
    embedding = 0 if sizes.adapters else FLOAT * sizes.embedding  # of its gradient
    earlier = gradients * (accumulate > 1)
    # Blocks that are computed again make their copies again, and until then have none.
    held = gathered + of_head + earlier + (0 if work.recompute else of_blocks)
    again = kept.working + (0 if shard else size * sizes.block * work.recompute) + _backward(shape, work)
    # The gradient of a tied embedding is the sum of two, of the output layer and of the lookup.
    summed = embedding * (2 + (accumulate > 1)) if sizes.tied else 0
    moments_of_step = (
        held + of_blocks * work.recompute + kept.kept + kept.logits * 3 // 2,  # the loss is computed
        held + kept.kept + 2 * kept.logits,  # and differentiated
        held + kept.kept - kept.logits + embedding * (sizes.tied or shard) + again,  # the last block
        gradients + exchange * shard + kept.working + summed,  # the first block, and the embeddings
        gradients + (0 if shard else exchange),
        gradients + _update(sizes, config, work, devices, shard=shard),
        FLOAT * sizes.parameters * shard,  # validation
    )
    return Memory(
        parameters=parameters,
        gradients=gradients,
        moments=moments,
        activations=kept.kept + kept.working,
        loss=2 * kept.logits,
        copies=of_blocks + of_head,
        exchange=exchange,
        whole=FLOAT * sizes.parameters * shard,
        peak=parameters + moments + max(moments_of_step),
    )


def _gathered(sizes: Sizes, work: Pass) -> tuple[int, int]:
    """Bytes of parameters that are gathered at a time, and of gradients that are about to be divided again.

    Two blocks are gathered in the precision of the pass, because the next one is fetched early. All that is outside
    the blocks stays in float32 from the beginning of the forward to the end of the backward pass.
    """
    return 2 * work.size * sizes.block + FLOAT * sizes.outside, (work.size + FLOAT) * sizes.block


def _update(sizes: Sizes, config: TrainConfig, work: Pass, devices: int, *, shard: bool) -> int:
    """Bytes that Muon takes in several processes: all directions in float32, and what is sent, as in the passes."""
    if devices == 1 or config.optimizer != "muon":
        return 0
    return (FLOAT + 7 * work.size) * -(-sizes.matrices // devices) if shard else (FLOAT + work.size) * sizes.matrices


def moment_bytes(sizes: Sizes, config: TrainConfig) -> int:
    """Return the bytes of the state of the optimizers: two moments in AdamW, one in Muon."""
    by_muon = sizes.matrices if config.optimizer == "muon" else 0
    return FLOAT * (2 * sizes.trained - by_muon)


def _backward(shape: ModelConfig, work: Pass) -> int:
    """Gradients of activations in the backward pass of an MLP: of each hidden layer, before it is freed."""
    widest = max((block.mlp_width * (2 if block.gated else 1) for _, block, _ in stacks(shape)), default=0)
    return work.size * work.tokens * widest


def rows_that_fit(
    shape: ModelConfig,
    config: TrainConfig,
    work: Pass,
    limit: float,
    *,
    devices: int = 1,
    shard: bool = False,
    accumulate: int = 1,
) -> int:
    """Return how many rows fit into `limit` bytes on each device, 0 if none does."""

    def needed(rows: int) -> int:
        one = dataclasses.replace(work, rows=rows)
        return memory(shape, config, one, devices=devices, shard=shard, accumulate=accumulate).peak

    low, high = 0, 1
    while high <= MOST_ROWS and needed(high) <= limit:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if needed(middle) <= limit else (low, middle)
    return min(low, MOST_ROWS)


def cache_bytes(shape: ModelConfig, length: int, size: int = FLOAT) -> int:
    """Return the bytes of the keys and values of one text of so many tokens, when a model generates."""
    return size * length * count_cached(shape) if not isinstance(shape, BERTConfig) else 0


def device_counts(most: int) -> list[int]:
    """Return 1, 2, 4 ... and `most`."""
    return sorted({2**power for power in range(math.floor(math.log2(most)) + 1)} | {most})
