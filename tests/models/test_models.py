"""Properties of all models: inputs, caches, initialisation, dropout, files, loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, ModelConfig, from_dict, to_dict
from jumok.errors import RunError
from jumok.models import build
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.losses import IGNORED, cross_entropies
from jumok.runs.load import load, save
from jumok.tokenizers import train_tokenizer

V, T = 37, 12
SIZES: dict[str, Any] = {"vocab_size": V, "context_length": T, "n_layer": 2, "n_head": 2, "n_embd": 8}
IDS: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 2}
CONFIGS: dict[str, ModelConfig] = {
    "modern": GPTConfig(**SIZES, n_kv_head=1),
    "classic": GPTConfig(**SIZES, family="classic"),
    "GPT with classes": GPTConfig(**SIZES, labels=("a", "b"), pooling="mean"),
    "BERT": BERTConfig(**SIZES, dropout=0.0, attention_dropout=0.0),
    "BERT with a pooler": BERTConfig(**SIZES, head="pooler", dropout=0.0, attention_dropout=0.0),
    "BERT with classes": BERTConfig(**SIZES, head="classify", labels=("a", "b"), dropout=0.0, attention_dropout=0.0),
    "ELECTRA": BERTConfig(**SIZES, family="electra", embedding_width=6, dropout=0.0, attention_dropout=0.0),
    "encoder–decoder": EncoderDecoderConfig(**SIZES, **IDS, dropout=0.0),
    "original": EncoderDecoderConfig(**SIZES, **IDS, family="original", dropout=0.0),
}
EACH = pytest.mark.parametrize("kind", CONFIGS)
CACHED = pytest.mark.parametrize(
    "kind", [kind for kind, config in CONFIGS.items() if not isinstance(config, BERTConfig)]
)


def tiny(kind: str, **changes: Any) -> Any:
    """A small float64 model with random parameters, also those that are initialised to zero or one."""
    torch.manual_seed(0)
    model = build(from_dict(type(CONFIGS[kind]), {**to_dict(CONFIGS[kind]), **changes})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def some_ids(rows: int = 3, length: int = 9) -> Tensor:
    return torch.randint(V, (rows, length), generator=torch.Generator().manual_seed(11))


def hidden_of(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    """The last hidden states; the source of an encoder–decoder begins as the text does."""
    if isinstance(model, EncoderDecoder):
        return model.hidden(ids, model.encode(ids[:, :3]), **inputs)
    return model.hidden(ids, **inputs)


def outputs(model: Any, ids: Tensor) -> Tensor:
    """What the head of a model computes."""
    hidden = hidden_of(model, ids)
    if isinstance(model, EncoderDecoder):
        return model.logits(hidden)
    if model.config.labels:
        return model.classify(hidden)
    if isinstance(model, GPT):
        return model.head(hidden)
    return model.mlm_logits(hidden) if model.mlm_head is not None else model.pooled(hidden)


@EACH
@torch.no_grad()
def test_hidden_is_what_the_head_reads(kind: str) -> None:
    model, ids = tiny(kind), some_ids()
    hidden = hidden_of(model, ids)
    assert hidden.shape == (3, 9, 8)
    if isinstance(model, BERT):
        assert torch.equal(model(ids), hidden)
    elif isinstance(model, EncoderDecoder):
        assert torch.equal(model(ids[:, :3], ids), model.logits(hidden))
    else:
        assert torch.equal(model(ids), model.head(hidden))


@EACH
@torch.no_grad()
def test_ids_may_be_of_any_whole_type(kind: str) -> None:
    """A tokenizer returns the smallest type for its ids, which PyTorch's embedding does not accept."""
    model = tiny(kind)
    for dtype in (torch.uint8, torch.uint16, torch.int32):
        assert torch.equal(hidden_of(model, some_ids().to(dtype)), hidden_of(model, some_ids()))


@EACH
@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.tensor([[1, V]]), "ids hold 37, and this model has 0 to 36"),
        (torch.tensor([[-1, 1]]), "ids hold -1, and this model has 0 to 36"),
        (torch.zeros(5, dtype=torch.long), r"ids have the shape \(\d,\); give \(B, T\)|too many indices"),
        (torch.zeros(1, 5), "ids are of type torch.float32; give whole numbers"),
        (torch.zeros(1, T + 1, dtype=torch.long), r"13 tokens exceed the context of 12; cut the "),
    ],
)
def test_invalid_ids_are_named(kind: str, ids: Tensor, message: str) -> None:
    """An id of another tokenizer used to be PyTorch's "index out of range in self"."""
    with pytest.raises((ValueError, IndexError), match=message):
        hidden_of(tiny(kind), ids)


@CACHED
@torch.no_grad()
def test_caches_are_independent_and_end_with_the_context(kind: str) -> None:
    """A model has no cache of its own, so two texts can be generated alternately."""
    model, a, b = tiny(kind), some_ids(1, T), some_ids(1, T).flip(1)
    first, second = model.new_cache(), model.new_cache()
    for t in range(T):
        one, other = (
            hidden_of(model, ids[:, t : t + 1], cache=cache)
            if not isinstance(model, EncoderDecoder)
            else model.hidden(ids[:, t : t + 1], model.encode(ids[:, :3]), cache=cache)
            for ids, cache in ((a, first), (b, second))
        )
    torch.testing.assert_close(one[:, -1], hidden_of(model, a)[:, -1], rtol=0, atol=1e-10)
    torch.testing.assert_close(other[:, -1], hidden_of(model, b)[:, -1], rtol=0, atol=1e-10)
    with pytest.raises(ValueError, match="13 tokens exceed the context of 12; the cache holds 12 of them: begin"):
        hidden_of(model, a[:, :1], cache=first)


@EACH
def test_the_seed_decides_the_weights(kind: str) -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in build(CONFIGS[kind]).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


@EACH
def test_dropout_acts_in_training_only(kind: str) -> None:
    model, ids = tiny(kind, dropout=0.5), some_ids()
    assert torch.equal(outputs(model, ids), outputs(model, ids))
    model.train()
    torch.manual_seed(0)
    assert not torch.equal(outputs(model, ids), outputs(model, ids))


@EACH
def test_every_parameter_learns(kind: str) -> None:
    """A parameter without a gradient would take memory and break training in several processes."""
    model = tiny(kind)
    model.train()
    outputs(model, torch.arange(3 * T).view(3, T)).square().sum().backward()
    idle = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert {name for name in idle if not name.startswith("type_embedding")} == set()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@EACH
@torch.no_grad()
def test_a_run_folder_there_and_back(kind: str, tmp_path: Path) -> None:
    special = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=special)
    model = tiny(kind, vocab_size=tokenizer.vocab_size).float()
    for buffer in model.buffers():
        if buffer.shape == (tokenizer.vocab_size,):
            buffer.normal_()  # the output bias of an encoder–decoder
    model.tokenizer = tokenizer
    save(model, tmp_path / "run")
    back = load(tmp_path / "run", kind=type(model))
    assert not back.training
    assert back.config == model.config == from_dict(type(model.config), json.loads(json.dumps(to_dict(model.config))))
    assert torch.equal(outputs(back, some_ids()), outputs(model, some_ids()))
    assert back.tokenizer.special_tokens["[MASK]"] == 3
    other = GPT if isinstance(model, BERT) else BERT
    with pytest.raises(RunError, match=f"of the class {type(model).__name__}, but {other.__name__} is required"):
        load(tmp_path / "run", kind=other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropies_by_hand(smoothing: float) -> None:
    logits, targets = torch.randn(2, 3, 7, dtype=torch.float64), torch.tensor([[1, IGNORED, 6], [0, 3, 3]])
    surprise = -logits.log_softmax(-1)  # (2, 3, 7)
    right = surprise.gather(2, targets.clamp(min=0)[..., None]).squeeze(2)
    wanted = (1 - smoothing) * right + smoothing * surprise.mean(-1)
    losses = cross_entropies(logits, targets, smoothing)
    assert losses[0, 1] == 0
    torch.testing.assert_close(losses, wanted.where(targets != IGNORED, 0.0))


def test_losses_of_half_precision_are_float32() -> None:
    """A sum over thousands of tokens in bfloat16 has three digits at best."""
    logits, targets = torch.randn(4, 300).bfloat16(), torch.arange(4)
    losses = cross_entropies(logits, targets)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, F.cross_entropy(logits.float(), targets, reduction="none"))
