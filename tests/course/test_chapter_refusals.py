"""What the functions of the chapters refuse, and what they say to whoever calls them in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from jumok import BERT, GPT, BERTConfig
from jumok.config import BlockConfig, GPTVariantConfig
from jumok.course.chapters import (
    bigrams,
    block_parts,
    cross_attention,
    dot_product,
    foundations,
    heads,
    masked_attention,
    positions,
    projections,
    recurrence,
    three_models,
    training,
)
from jumok.nn import Block, MultiHeadAttention

CONFIG = BlockConfig(width=6, n_head=2, n_kv_head=2, head_dim=3, mlp_width=8, activation="gelu")
SIZES: dict[str, Any] = {"vocab_size": 23, "context_length": 12, "n_layer": 1, "n_head": 2, "n_embd": 8}
x, ids = torch.randn(3, 4), torch.zeros(1, 5, dtype=torch.long)

REFUSED: list[tuple[str, Callable[[], object]]] = [
    (r"starts must be from 0 to", lambda: bigrams.windows(torch.arange(10), [6], 4)),
    ("BatchNorm1d is no norm of a block", lambda: block_parts.apply_norm(nn.BatchNorm1d(4), x)),
    ("Linear is no MLP of a block", lambda: block_parts.apply_mlp(nn.Linear(4, 4), x)),
    (
        "make the layer without qk_norm",
        lambda: cross_attention.cross_attention_by_loop(MultiHeadAttention(4, 4, 2, qk_norm=1e-6), x, x),
    ),
    (r"all of one width; the widths given are \[\]", lambda: cross_attention.pad([])),
    ("length 4 of sequence 1 is out of range", lambda: cross_attention.padding_mask([2, 4], 3)),
    (
        r"an encoder's is made with Block\(config, causal=False\)",
        lambda: cross_attention.encoder_block(Block(CONFIG, causal=True), torch.randn(1, 3, 6)),
    ),
    (
        r"looks across; make it with Block\(config, cross=True\)",
        lambda: cross_attention.decoder_block(Block(CONFIG), torch.randn(1, 3, 6), torch.randn(1, 3, 6)),
    ),
    ("a has the width 3, b has 2", lambda: dot_product.dot(torch.ones(3), torch.ones(2))),
    ("do not fit a vocabulary of 6", lambda: foundations.one_hot(torch.tensor([6]), 6)),
    ("no heads were given", lambda: heads.join_heads([])),
    ("must have one head, no output projection", lambda: heads.join_heads([MultiHeadAttention(4, 4, 1)])),
    ("there is no head 3; the layer has heads 0 to 2", lambda: heads.head_weights(MultiHeadAttention(3, 3, 3), 3, x)),
    ("a width of 10 is not divisible by n_head=4", lambda: heads.split(torch.zeros(2, 10), 4)),
    ("make it with project=True", lambda: heads.contributions(MultiHeadAttention(4, 4, 2, project=False), x)),
    ("rate=1 is out of range", lambda: masked_attention.drop(x, x > 0, 1)),
    (
        r"n_head=2; jumok\.course\.chapters\.heads takes any number",
        lambda: masked_attention.causal_weights(MultiHeadAttention(4, 4, 2), x),
    ),
    (
        "has no row in a table of 3",
        lambda: positions.embed(ids, nn.Embedding(5, 4), nn.Embedding(3, 4)),
    ),
    ("give three matrices", lambda: projections.layer_of(x, x, torch.randn(4, 3))),
    ("the output has no graph", lambda: recurrence.longest_chain(torch.ones(1))),
    (
        "has no sliding windows",
        lambda: three_models.gpt_logits(GPT(GPTVariantConfig(**{**SIZES, "n_layer": 2}, sliding_window=3)), ids),
    ),
    ("the head is 'pooler'", lambda: three_models.bert_logits(BERT(BERTConfig(**SIZES, head="pooler")), ids)),
    ("causal=False", lambda: three_models.encode(nn.ModuleList([Block(CONFIG)]), torch.randn(1, 3, 6))),
    ("cross=True", lambda: three_models.decode(nn.ModuleList([Block(CONFIG)]), torch.randn(1, 3, 6), x)),
    (
        "schedule='step' is not linear or cosine",
        lambda: training.learning_rate(0.5, peak=1.0, warmup=0.1, schedule="step"),
    ),
]


@pytest.mark.parametrize(("message", "call"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_it_is_refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()
