"""A GPT with components removed: each removal is exact, and the rest is the production model."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import jumok
from conftest import TINY
from jumok.config import GPTConfig, RungConfig
from jumok.errors import ConfigError
from jumok.inference.generate import generate
from jumok.models import build
from jumok.models.gpt import GPT, token_losses
from jumok.models.rung import Rung
from jumok.runs.events import Step
from jumok.text import Text
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.trainer import Trainer

SHAPE: dict[str, Any] = {"vocab_size": 23, "context_length": 12, "n_layer": 2, "n_head": 2, "n_embd": 8}
BARE: dict[str, Any] = {"feed_forward": False, "residual": False, "norm": False, "tie_embeddings": False}
families = pytest.mark.parametrize("family", ["classic", "modern"])
mixings = pytest.mark.parametrize("mixing", ["none", "average", "attention"])


def rung(**settings: Any) -> Rung:
    torch.manual_seed(0)
    return Rung(RungConfig(**{**SHAPE, **settings})).double().eval()


def some_ids(length: int = 9, batch: int = 3) -> Tensor:
    return torch.randint(SHAPE["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="session")
def tokenizer(tales: str) -> Tokenizer:
    return train_tokenizer([tales], "char")


# --- what is left out, and what is not ---


@families
@torch.no_grad()
def test_with_all_components_it_is_the_gpt_of_its_family(family: str) -> None:
    """The same initial parameters, bit for bit, and so the same logits."""
    whole = {**SHAPE, "family": family, "dropout": 0.1}
    torch.manual_seed(3)
    ours = build(RungConfig(**whole)).eval()
    torch.manual_seed(3)
    gpt = build(GPTConfig(**whole)).eval()
    assert isinstance(ours, Rung)
    assert type(gpt) is GPT
    assert ours.state_dict().keys() == gpt.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[name], tensor) for name, tensor in gpt.state_dict().items())
    assert torch.equal(ours(some_ids()), gpt(some_ids()))
    assert ours.parameter_count() == gpt.parameter_count()


@families
@pytest.mark.parametrize("shared", [True, False], ids=["tied", "untied"])
@torch.no_grad()
def test_a_bigram_depends_on_the_last_token_alone(family: str, shared: bool) -> None:
    model = rung(family=family, mixing="none", **{**BARE, "tie_embeddings": shared})
    table = model.token_embedding.weight @ model.head.weight.T  # (V, V), row: the last token
    ids = some_ids()
    torch.testing.assert_close(model(ids), table[ids], rtol=0, atol=1e-12)
    assert len(model.blocks) == 0
    assert model.parameter_count() == (1 if shared else 2) * 23 * 8


@families
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("heads", [1, 4])
@torch.no_grad()
def test_an_average_is_the_mean_of_the_past(family: str, layers: int, heads: int) -> None:
    """The mean of the embeddings up to the position; a second layer computes the mean of the means."""
    model = rung(family=family, mixing="average", n_layer=layers, n_head=heads, **BARE)
    ids = some_ids()
    x = model.token_embedding.weight[ids]  # (B, T, C)
    for _ in range(layers):
        x = torch.stack([x[:, : t + 1].mean(dim=1) for t in range(x.shape[1])], dim=1)  # (B, T, C)
    torch.testing.assert_close(model.hidden(ids), x, rtol=0, atol=1e-12)
    assert model.parameter_count() == 2 * 23 * 8


@torch.no_grad()
def test_an_average_ignores_the_order_and_attention_does_not() -> None:
    ids = some_ids(8)
    shuffled = ids[:, [3, 0, 7, 5, 1, 2, 6, 4]]
    for mixing, blind in (("average", True), ("attention", False)):
        model = rung(family="classic", mixing=mixing, n_layer=1, **BARE)
        same = torch.allclose(model(ids)[:, -1], model(shuffled)[:, -1], rtol=0, atol=1e-12)
        assert same is blind, mixing


@families
@torch.no_grad()
def test_without_residuals_a_block_replaces_its_input(family: str) -> None:
    """With W_o = 0 the output does not depend on the input; with residuals it is the input."""
    for residual in (False, True):
        model = rung(family=family, residual=residual, feed_forward=False)
        block = model.blocks[0]
        for parameter in block.attention.o_proj.parameters():
            parameter.zero_()
        x = torch.randn(2, 5, 8, dtype=torch.float64)
        angles = None if model.cos is None else (model.cos[:5], model.sin[:5])
        torch.testing.assert_close(block(x, angles), x if residual else torch.zeros_like(x), rtol=0, atol=0)


# --- how it begins ---


@families
@pytest.mark.parametrize("layers", [1, 4])
@pytest.mark.parametrize("residual", [True, False], ids=["residual", "no residual"])
@torch.no_grad()
def test_without_norms_activations_keep_their_size(family: str, layers: int, residual: bool) -> None:
    """GPT-2's first weights, made for norms, shrink the signal some thousand times in each block without them.

    And fan-in weights without GPT-2's shrinking of the projections into the residual stream let it grow so that a
    fresh model of four blocks began at 50 nats for each token instead of at ln V.
    """
    torch.manual_seed(1)
    shape = {**SHAPE, "vocab_size": 500, "n_embd": 64, "family": family, "n_layer": layers, "n_head": 4}
    model = Rung(RungConfig(**shape, norm=False, residual=residual, tie_embeddings=False)).eval()
    ids = torch.randint(500, (8, 12))
    hidden = model.hidden(ids)
    assert 0.01 < float(hidden.std()) < 3
    losses = token_losses(hidden, model.head.weight, ids.roll(-1, dims=1))
    assert float(losses.mean()) == pytest.approx(math.log(500), rel=0.02)


# --- settings ---


@pytest.mark.parametrize(
    "settings", [{"head_dim": 2}, {"family": "modern", "n_kv_head": 1}, {"n_head": 2, "head_dim": 8}], ids=str
)
def test_an_average_needs_heads_as_wide_as_the_model(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"heads that together are as wide as the model.*are not n_embd=8"):
        RungConfig(**{**SHAPE, **settings}, mixing="average")


def test_an_unknown_mixing_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'average'"):
        RungConfig(**SHAPE, mixing="averag")  # type: ignore[arg-type]


# --- training, saving, writing ---


def trained(folder: Path, text: Text, **settings: Any) -> Trainer:
    trainer = Trainer.start(folder, text, **{**TINY, "family": "classic", **settings}, model="rung", device="cpu")
    assert [event for event in trainer.run() if isinstance(event, Step)]
    return trainer


@pytest.mark.slow
@families
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_frozen_parameters_do_not_change(family: str, optimizer: str, tmp_path: Path, story_text: Text) -> None:
    """Neither a step nor weight decay changes W_q and W_v of an average; other parameters are trained.

    With nothing to train inside the blocks, Muon had an empty list of parameters, which torch refuses.
    """
    settings = {**BARE, "mixing": "average", "family": family, "optimizer": optimizer, "weight_decay": 0.5}
    trainer = trained(tmp_path / "run", story_text, **settings)
    torch.manual_seed(0)
    fresh = build(trainer.model.config)
    moved = {
        name for name, tensor in fresh.state_dict().items() if not torch.equal(tensor, trainer.model.state_dict()[name])
    }
    assert moved == {"token_embedding.weight", "head.weight"}
    model = jumok.load(tmp_path / "run")
    assert torch.equal(model.blocks[0].attention.v_proj.weight, torch.eye(16))
    assert not model.blocks[0].attention.q_proj.weight.any()


@mixings
def test_a_run_of_a_rung_loads_as_one(mixing: str, tmp_path: Path, story_text: Text) -> None:
    trainer = trained(tmp_path / "run", story_text, mixing=mixing, norm=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["model"]["type"] == "rung"
    assert config["model"]["mixing"] == mixing
    model = jumok.load(tmp_path / "run")
    assert isinstance(model, Rung)
    assert model.config == trainer.model.config
    ids = some_ids()
    assert torch.equal(model(ids), trainer.model.eval()(ids))


@families
@mixings
@pytest.mark.parametrize("norm", [True, False], ids=["norms", "no norms"])
def test_writing_with_a_cache_is_writing_without(family: str, mixing: str, norm: bool, tokenizer: Tokenizer) -> None:
    """Also for texts longer than the context."""
    model = rung(vocab_size=tokenizer.vocab_size, family=family, mixing=mixing, norm=norm)
    model.tokenizer = tokenizer
    cached, plain = (generate(model, "옛날에", tokens=30, seed=4, cache=cache)[0] for cache in (True, False))
    assert cached == plain
    assert cached.tokens == 30


# --- parts of GPT-2 in the modern family ---


@torch.no_grad()
def test_with_all_parts_of_gpt2_it_is_the_classic_gpt() -> None:
    """The same initial parameters, bit for bit, and so the same logits."""
    torch.manual_seed(3)
    ours = build(RungConfig(**SHAPE, rotary=False, rms=False, gated=False, start="gpt2")).eval()
    torch.manual_seed(3)
    classic = build(GPTConfig(**SHAPE, family="classic")).eval()
    assert all(torch.equal(ours.state_dict()[name], tensor) for name, tensor in classic.state_dict().items())
    assert torch.equal(ours(some_ids()), classic(some_ids()))


@pytest.mark.parametrize(("rotary", "start"), [(True, "identity"), (False, "look_back")])
@torch.no_grad()
def test_blocks_begin_as_the_identity(rotary: bool, start: str) -> None:
    """And without rotary positions, no head can begin to look back."""
    model = rung(rotary=rotary, start=start)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    angles = None if model.cos is None else (model.cos[:5], model.sin[:5])
    assert torch.equal(model.blocks[0](x, angles), x)
    assert model.token_embedding.weight[:, 0].std() > 0, "a head that looks back has a constant column"
    assert (model.position_embedding is None) is rotary


def test_an_mlp_without_a_gate_has_the_width_and_activation_of_gpt2() -> None:
    block = RungConfig(**SHAPE, gated=False).block()
    assert (block.gated, block.mlp_width, block.activation) == (False, 32, "gelu_tanh")
    assert RungConfig(**SHAPE).block() == GPTConfig(**SHAPE).block()
