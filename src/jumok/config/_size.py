"""Numbers of parameters, constants and activations, computed from a configuration without building the model.

All counts are Python integers, because a damaged config.json can contain sizes such as 10^30.
"""

from __future__ import annotations

from jumok.config._bert import BERTConfig
from jumok.config._encoder_decoder import EncoderDecoderConfig
from jumok.config._gpt import GPTConfig, RungConfig
from jumok.config._model import BlockConfig, ModelConfig


def count_parameters(config: ModelConfig) -> int:
    """Return the number of parameters, frozen ones included; a shared matrix counts once."""
    c, vocab, length = _width(config), config.vocab_size, config.context_length
    blocks = sum(count * _block(block, cross=cross) for count, block, cross in _stacks(config))
    if isinstance(config, EncoderDecoderConfig):
        placement = 2 * (length * c + _norm(config.encoder_block())) if config.family == "classic" else 0
        return vocab * c + placement + blocks
    norm = _norm(config.block()) if isinstance(config, GPTConfig | BERTConfig) else 0
    if isinstance(config, BERTConfig):
        embeddings = (vocab + length + config.n_token_type) * c + norm
        return embeddings + blocks + _bert_head(config, norm)
    assert isinstance(config, GPTConfig)
    placed = config.family == "classic" and (not isinstance(config, RungConfig) or config.mixing == "attention")
    matrices = vocab * c * (1 if config.tie_embeddings else 2) + (length * c if placed else 0)
    query = c if config.labels and config.pooling == "attention" else 0
    return matrices + blocks + norm + len(config.labels) * c + query


def count_constants(config: ModelConfig) -> int:
    """Return the size of the buffers: rotary cosines and sines, sinusoidal positions, the output bias."""
    if isinstance(config, EncoderDecoderConfig):
        tables = 2 * config.context_length * config.n_embd if config.family == "original" else 0
        return tables + config.vocab_size
    if isinstance(config, GPTConfig) and config.family == "modern":
        return 2 * config.context_length * config.head_dim
    return 0


def count_blocks(config: ModelConfig) -> int:
    """Return the number of blocks in all stacks."""
    return sum(count for count, _, _ in _stacks(config))


def count_kept(config: ModelConfig) -> int:
    """Return a lower bound of the activations per token that a forward pass keeps for the backward pass.

    It counts the inputs of matrices, queries, keys and values of each block, and the logits of a language model. In an
    encoder–decoder each token passes through one stack, so the smaller stack counts.
    """
    stacks = [
        count * (2 * block.width + 2 * (block.n_head + block.n_kv_head) * block.head_dim + block.mlp_width)
        for count, block, _ in _stacks(config)
    ]
    writes = isinstance(config, GPTConfig) and not config.labels
    return min(stacks, default=0) + (config.vocab_size if writes else 0)


def count_cached(config: ModelConfig) -> int:
    """Return the size of the keys and values of one position in a cache."""
    count, block, _ = _stacks(config)[-1]
    return 2 * count * block.n_kv_head * block.head_dim


def _width(config: ModelConfig) -> int:
    assert isinstance(config, GPTConfig | BERTConfig | EncoderDecoderConfig)
    return config.n_embd


def _stacks(config: ModelConfig) -> list[tuple[int, BlockConfig, bool]]:
    """Return number and configuration of the blocks of each stack, and whether they have cross-attention."""
    if isinstance(config, EncoderDecoderConfig):
        return [
            (config.n_layer, config.encoder_block(), False),
            (config.n_decoder_layer, config.decoder_block(), True),
        ]
    assert isinstance(config, GPTConfig | BERTConfig)
    layers = 0 if isinstance(config, RungConfig) and config.mixing == "none" else config.n_layer
    return [(layers, config.block(), False)]


def _block(block: BlockConfig, *, cross: bool) -> int:
    c, queries, keys = block.width, block.n_head * block.head_dim, block.n_kv_head * block.head_dim
    attention = 2 * c * (queries + keys) + (2 * block.head_dim if block.qk_norm else 0)
    if block.bias:
        attention += queries + 2 * keys + c
    mlp = 0
    if block.mlp_width:
        biases = 0 if block.gated else block.mlp_width + c
        mlp = (3 if block.gated else 2) * c * block.mlp_width + biases + _norm(block)
    return (1 + cross) * (attention + _norm(block)) + mlp


def _norm(block: BlockConfig) -> int:
    return {"layer": 2, "rms": 1, "none": 0}[block.norm] * block.width


def _bert_head(config: BERTConfig, norm: int) -> int:
    c = config.n_embd
    if config.head == "mlm":
        return c * c + c + norm + config.vocab_size
    if config.head == "none":
        return 0
    query = c if config.pooling == "attention" else 0
    return c * c + c + query + len(config.labels) * (c + 1)
