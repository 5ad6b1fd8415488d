"""BERT: masks, types, what is refused, how it begins; tests/interop compares it with `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from jumok.config import BERTConfig
from jumok.config.huggingface import our_config, read_stock
from jumok.errors import ConfigError, JumokError
from jumok.models import build
from jumok.models.bert import BERT

V, T = 37, 12
LABELS = ("부정", "중립", "긍정")
STOCK = {"pooler": BertModel, "mlm": BertForMaskedLM, "classify": BertForSequenceClassification}
HEADS = pytest.mark.parametrize("head", STOCK)


def shape(head: str = "mlm", **changes: Any) -> BERTConfig:
    sizes = {"vocab_size": V, "context_length": T, "n_layer": 2, "n_head": 4, "n_embd": 16, "mlp_width": 20}
    return BERTConfig(**{**sizes, "head": head, "labels": LABELS if head == "classify" else (), **changes})


def tiny(head: str = "mlm", seed: int = 0, **changes: Any) -> BERT:
    """A small float64 model with random parameters, also those that are initialised to zero or one."""
    torch.manual_seed(seed)
    model = BERT(shape(head, **changes)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def batch(seed: int = 11, size: int = 3, length: int = T) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and token types of texts of different lengths; the first one has no padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(V, (size, length), generator=generator)
    lengths = torch.tensor([length, *range(length - 3, 0, -4)][:size])
    mask = torch.arange(length) < lengths[:, None]
    return ids, mask, torch.randint(2, (size, length), generator=generator)


# --- parity -----------------------------------------------------------------------------------------------------------


def test_bert_base_has_the_110_million_parameters_of_the_paper():
    """Table 1 says 110M for BERT-base; counted without the memory for them."""
    sizes = {"vocab_size": 30_522, "context_length": 512, "n_layer": 12, "n_head": 12, "n_embd": 768}
    with torch.device("meta"):
        model = BERT(BERTConfig(**sizes, head="pooler"))
    assert model.parameter_count() == 109_482_240


# --- masks ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_text_alone_is_as_it_is_in_a_batch():
    model = tiny()
    ids, mask, types = batch()
    whole = model(ids, mask, types)
    for i, length in enumerate(mask.sum(dim=1).tolist()):
        alone = model(ids[i : i + 1, :length], None, types[i : i + 1, :length])
        torch.testing.assert_close(alone[0], whole[i, :length], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_first_token_type_is_the_default():
    model = tiny()
    ids, mask, types = batch()
    assert torch.equal(model(ids, mask), model(ids, mask, torch.zeros_like(ids)))
    assert not torch.allclose(model(ids, mask), model(ids, mask, types))


# --- what cannot be -----------------------------------------------------------------------------------------------


def test_masks_and_types_that_do_not_fit_are_named():
    model = tiny()
    ids, mask, types = batch()
    with pytest.raises(ValueError, match=r"mask has the shape \(3, 11\); it must be that of the ids, \(3, 12\)"):
        model(ids, mask[:, 1:])
    with pytest.raises(ValueError, match=r"mask is of type torch.float32; give bool"):
        model(ids, torch.where(mask, 0.0, float("-inf")))
    with pytest.raises(ValueError, match=r"token_types hold 2, and this model has 0 to 1"):
        model(ids, mask, types + 1)
    with pytest.raises(ValueError, match=r"token_types have the shape \(3, 11\), the ids \(3, 12\)"):
        model(ids, mask, types[:, 1:])


def test_a_head_that_is_not_there_is_named():
    hidden = torch.zeros(1, 2, 16, dtype=torch.float64)
    for head, call in (("pooler", "mlm_logits"), ("mlm", "pooled"), ("mlm", "classify"), ("none", "pooled")):
        with pytest.raises(JumokError, match=f"this BERT has head='{head}', but head="):
            getattr(tiny(head), call)(hidden)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_embd": 250, "n_head": 6}, "n_embd=250 is not divisible by n_head=6; use n_embd=246 or 252"),
        ({"n_layer": 0}, "n_layer=0 is out of range"),
        ({"n_token_type": 0}, "n_token_type=0 is out of range"),
        ({"mlp_width": 0}, "mlp_width=0 is out of range"),
        ({"norm_eps": -1.0}, "norm_eps=-1.0 is out of range"),
        ({"dropout": 1.0}, "dropout=1.0 is out of range"),
        ({"attention_dropout": 1.0}, "attention_dropout=1.0 is out of range"),
        ({"head": "classifier"}, "head='classifier' is not known.*Did you mean 'classify'"),
        ({"head": "classify"}, 'head="classify" needs labels'),
        ({"head": "classify", "labels": ["a", "b", "a"]}, "names a class twice"),
        ({"head": "classify", "labels": [1, 2]}, r"labels\[0\]=1 is of type int"),
        ({"labels": ["a", "b"]}, "are for head=\"classify\", and head is 'mlm'"),
        ({"labels": "ab"}, "labels='ab' is of type str"),
        ({"pad_id": 37}, "pad_id=37 is out of range: it must be between 0 and 36"),
    ],
)
def test_invalid_configurations_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        BERTConfig(vocab_size=V, **changes)


# --- as it begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["none", *STOCK])
def test_initialisation(head: str):
    """N(0, 0.02) in every matrix, zero in every bias, one in every norm (section A.2 of the paper, by its code).

    The heads of the first block are tested in test_initialization.py."""
    torch.manual_seed(0)
    model = BERT(shape(head, vocab_size=300, n_embd=64, context_length=100))
    looking = ("position_embedding", "blocks.0.attention.q_proj", "blocks.0.attention.k_proj")
    for name, parameter in model.state_dict().items():
        if parameter.dim() == 2 and parameter.numel() > 500 and not name.startswith(looking):
            assert abs(float(parameter.std()) - 0.02) < 0.002, name
            assert abs(float(parameter.mean())) < 0.002, name
        elif parameter.dim() == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name


# --- to and from files --------------------------------------------------------------------------------------------


def test_a_stock_configuration_gives_a_new_model(tmp_path: Path):
    """A stock config.json is enough; without a class it is a BertModel."""
    settings = BertConfig(
        vocab_size=50, hidden_size=12, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7
    ).to_dict()
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model = build(our_config(read_stock(tmp_path / "config.json"), "here"))
    assert isinstance(model, BERT)
    assert (model.config.head, model.config.context_length, model.config.n_head) == ("pooler", 512, 3)
    assert model.training
    assert model(torch.zeros(2, 5, dtype=torch.long)).shape == (2, 5, 12)
    assert all(not block.causal for block in model.blocks)
