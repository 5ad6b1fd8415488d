"""Numbers of parameters, constants and activations, computed from a configuration without building the model.

All counts are Python integers, because a damaged config.json can contain sizes such as 10^30.
"""

from __future__ import annotations

from jumok.config._bert import BERTConfig
from jumok.config._encoder_decoder import EncoderDecoderConfig
from jumok.config._gpt import GPTConfig, RungConfig
from jumok.config._model import BlockConfig, ModelConfig

FIRST_CACHED = 256  # positions for which a cache of keys and values has room at first; doubled when needed


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters, frozen ones included; a shared matrix counts once."""
    assert isinstance(config, GPTConfig | BERTConfig | EncoderDecoderConfig)
    c, vocab, length = config.n_embd, config.vocab_size, config.context_length
    blocks = sum(count * _block(block, cross=cross) for count, block, cross in stacks(config))
    if isinstance(config, EncoderDecoderConfig):
        placement = 2 * (length * c + _norm(config.encoder_block())) if config.family == "classic" else 0
        return vocab * c + placement + blocks
    if isinstance(config, BERTConfig):
        return _bert_embeddings(config) + blocks + _bert_head(config)
    placed = not config.rotated and (not isinstance(config, RungConfig) or config.mixing == "attention")
    tables = vocab * c * (1 if config.tie_embeddings else 2) + (length * c if placed else 0)
    return tables + blocks + _norm(config.block()) + len(config.labels) * c


def count_constants(config: ModelConfig) -> int:
    """Return the size of the buffers: rotary cosines and sines, sinusoidal positions, the output bias."""
    if isinstance(config, EncoderDecoderConfig):
        tables = 2 * config.context_length * config.n_embd if config.family == "original" else 0
        return tables + config.vocab_size
    if isinstance(config, GPTConfig):
        return 2 * config.table_length * config.rotated
    return 0


def count_kept(config: ModelConfig, *, recompute: bool = False) -> int:
    """Return a lower bound of the activations per token that a forward pass keeps for the backward pass.

    It counts the inputs of matrices, queries, keys and values of each block, or the inputs of blocks if the rest is
    recomputed, and the logits of a language model. In an encoder–decoder each token passes through one stack, so the
    smaller stack counts.
    """
    per_stack = [
        count * block.width
        if recompute
        else count * (2 * block.width + 2 * (block.n_head + block.n_kv_head) * block.head_dim + block.mlp_width)
        for count, block, _ in stacks(config)
    ]
    writes = isinstance(config, GPTConfig) and not config.labels
    return min(per_stack, default=0) + (config.vocab_size if writes else 0)


def count_cached(config: ModelConfig) -> int:
    """Return the size of the keys and values of one position in a cache."""
    count, block, _ = stacks(config)[-1]
    return 2 * count * block.n_kv_head * block.head_dim


def stacks(config: ModelConfig) -> list[tuple[int, BlockConfig, bool]]:
    """Return number and configuration of the blocks of each stack, and whether they have cross-attention."""
    if isinstance(config, EncoderDecoderConfig):
        return [
            (config.n_layer, config.encoder_block(), False),
            (config.n_decoder_layer, config.decoder_block(), True),
        ]
    assert isinstance(config, GPTConfig | BERTConfig)
    layers = 0 if isinstance(config, RungConfig) and config.mixing == "none" else config.n_layer
    return [(layers, config.block(), False)]


def matrices(block: BlockConfig, *, cross: bool) -> list[tuple[int, int]]:
    """Return the shapes of the matrices of a block, inputs and outputs of each."""
    c, queries, keys = block.width, block.n_head * block.head_dim, block.n_kv_head * block.head_dim
    attention = [(c, queries), (c, keys), (c, keys), (queries, c)]
    up = [(c, block.mlp_width)] * (2 if block.gated else 1)
    return attention * (1 + cross) + ([*up, (block.mlp_width, c)] if block.mlp_width else [])


def _block(block: BlockConfig, *, cross: bool) -> int:
    c, queries, keys = block.width, block.n_head * block.head_dim, block.n_kv_head * block.head_dim
    attention = _norm(block) + (2 * block.head_dim if block.qk_norm else 0)
    attention += (queries + 2 * keys if block.qkv_bias else 0) + (c if block.out_bias else 0)
    mlp = 0
    if block.mlp_width:
        mlp = _norm(block) + (block.mlp_width * (1 + block.gated) + c if block.mlp_bias else 0)
    return sum(n * m for n, m in matrices(block, cross=cross)) + (1 + cross) * attention + mlp


def _norm(block: BlockConfig) -> int:
    return {"layer": 2, "rms": 1, "none": 0}[block.norm] * block.width


def _bert_embeddings(config: BERTConfig) -> int:
    c, width = config.n_embd, config.embedding_width
    rows = config.vocab_size + config.context_length + config.position_offset + config.n_token_type
    return (rows + 2) * width + (width * c + c if width != c else 0)  # 2: the norm


def _bert_head(config: BERTConfig) -> int:
    c, width = config.n_embd, config.embedding_width
    if config.head == "mlm":
        return c * width + 3 * width + config.vocab_size  # 3: the bias and the norm
    if config.head == "none":
        return 0
    return c * c + c + len(config.labels) * (c + 1)
