"""How much there is to compute and to send in a training run, and how long a device of a data sheet takes.

A matrix of N parameters costs 6 N operations for each token, 2 N forward and 4 N backward; attention adds 12 times the
width of all heads times the length for each block, as in https://arxiv.org/abs/2204.02311, appendix B, where causal
attention is not counted at half. Utilisation is the share of the peak that these operations reach.
"""

from __future__ import annotations

from jumok.config import ModelConfig, TrainConfig, matrices, stacks
from jumok.training.optim import POLYNOMIALS
from jumok.training.planning.activations import FLOAT, Pass
from jumok.training.planning.devices import DataSheet
from jumok.training.planning.footprint import Sizes

# Tokens for each parameter at which a given number of operations gives the least loss, about
# (https://arxiv.org/abs/2203.15556, table 3: 1.4 T tokens for 70 B parameters).
OPTIMAL_TOKENS = 20
REPEATED = 4  # passes over a text that are worth nearly as much as new text (https://arxiv.org/abs/2305.16264)
# Share of the peak that is assumed where nothing was measured. GPT-2 of 124 M parameters on eight A100: 300 B tokens in
# about four days, 6 N operations for each (README of github.com/karpathy/nanoGPT), which is about 0.26 and, with
# attention, 0.30. Small models reach less.
ASSUMED_UTILISATION = 0.3
USABLE = 0.9  # share of a device's memory that is planned with: CUDA and fragmentation take some
UPDATE_BYTES = 28  # for each parameter that AdamW reads or writes: parameter, gradient, two moments; all but one twice


def flops_per_token(shape: ModelConfig, sizes: Sizes, length: int) -> float:
    """Return the operations of a forward and a backward pass for each token of rows of `length`.

    In an encoder–decoder a token is one of the source with one of the target. With adapters, the matrices themselves
    have no gradients, which are a third of their operations.
    """
    heads = sum(count * (1 + cross) * block.n_head * block.head_dim for count, block, cross in stacks(shape))
    each = 4.0 if sizes.adapters else 6.0
    return each * sizes.products + 6.0 * sizes.adapters + 12.0 * heads * length


def forward_flops_of_blocks(shape: ModelConfig, sizes: Sizes, length: int) -> float:
    """Return the operations for each token that recomputing the activations of blocks adds."""
    heads = sum(count * (1 + cross) * block.n_head * block.head_dim for count, block, cross in stacks(shape))
    return 2.0 * sizes.matrices + 4.0 * heads * length


def muon_flops(shape: ModelConfig) -> float:
    """Return the operations that Muon takes to orthogonalise all matrices of the blocks."""
    total = 0.0
    for count, block, cross in stacks(shape):
        for pair in matrices(block, cross=cross):
            m, n = min(pair), max(pair)
            total += count * len(POLYNOMIALS) * (2 * m * m * n + 2 * m**3 + 2 * m * m * n)
    return total


def optimal_tokens(parameters: int) -> int:
    """Return the compute-optimal number of tokens for a model, about."""
    return OPTIMAL_TOKENS * parameters


def all_reduce_bytes(size: float, devices: int) -> float:
    """Return the bytes that each device sends in a ring to sum `size` bytes (and receives at the same time)."""
    return 2 * (devices - 1) / devices * size


def exchanged_bytes(sizes: Sizes, config: TrainConfig, work: Pass, *, devices: int, shard: bool) -> float:
    """Return the bytes that each device sends in a step.

    Replicated: gradients are summed once per step, and of Muon's matrices each device orthogonalises a share and sends
    it to all. Sharded: each pass gathers blocks twice, forward and backward, and the rest once, and scatters the sums
    of gradients in float32. Muon sends the shares of matrices, and their directions back, in the precision of the pass.
    """
    part = (devices - 1) / devices
    by_muon = work.size * sizes.matrices if config.optimizer == "muon" else 0
    if not shard:
        return all_reduce_bytes(FLOAT * sizes.parameters, devices) + part * by_muon
    a_pass = 2 * work.size * sizes.matrices + FLOAT * sizes.outside + FLOAT * sizes.parameters
    return config.accumulate * part * a_pass + 2 * part * by_muon / devices


def sheet_seconds(
    shape: ModelConfig, config: TrainConfig, work: Pass, sheet: DataSheet, sizes: Sizes, utilisation: float, owners: int
) -> tuple[float, float]:
    """Return the seconds of a pass and of an update on a device of a data sheet.

    owners: devices among which the matrices of Muon are shared out.
    """
    each = flops_per_token(shape, sizes, work.length)
    if work.recompute:
        each += forward_flops_of_blocks(shape, sizes, work.length)
    muon = muon_flops(shape) if config.optimizer == "muon" else 0.0
    rate = sheet.flops * utilisation
    update = muon / owners / rate + UPDATE_BYTES * sizes.trained / sheet.bandwidth
    return work.tokens * each / rate, update
