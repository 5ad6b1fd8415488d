"""BERT against `transformers` with the same random weights, on padded batches; and as it begins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel

from jumok.config import BERTConfig, from_dict, to_dict
from jumok.config.huggingface import our_config, read_stock
from jumok.errors import ConfigError, JumokError, RunError
from jumok.interop.huggingface.convert import from_stock, to_stock
from jumok.models import build
from jumok.models.bert import BERT
from jumok.models.gpt import GPT
from jumok.runs.load import load, save
from jumok.tokenizers import train_tokenizer

V, T = 37, 12
LABELS = ("부정", "중립", "긍정")
STOCK = {"pooler": BertModel, "mlm": BertForMaskedLM, "classify": BertForSequenceClassification}
HEADS = pytest.mark.parametrize("head", STOCK)


def shape(head: str = "mlm", **changes: Any) -> BERTConfig:
    sizes = {"vocab_size": V, "context_length": T, "n_layer": 2, "n_head": 4, "n_embd": 16, "mlp_width": 20}
    return BERTConfig(**{**sizes, "head": head, "labels": LABELS if head == "classify" else (), **changes})


def tiny(head: str = "mlm", seed: int = 0, **changes: Any) -> BERT:
    """A small float64 model whose every parameter is random, those that begin as zero or one too."""
    torch.manual_seed(seed)
    model = BERT(shape(head, **changes)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def stock_model(config: BERTConfig) -> Any:
    """The same shape in `transformers`, written down by hand so that the export is not its own witness."""
    return (
        STOCK[config.head](
            BertConfig(
                vocab_size=config.vocab_size,
                hidden_size=config.n_embd,
                num_hidden_layers=config.n_layer,
                num_attention_heads=config.n_head,
                intermediate_size=config.mlp_width,
                max_position_embeddings=config.context_length,
                type_vocab_size=config.n_token_type,
                layer_norm_eps=config.norm_eps,
                num_labels=len(config.labels) or 2,
            )
        )
        .double()
        .eval()
    )


def batch(seed: int = 11, size: int = 3, length: int = T) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and token types of texts of different lengths, the first of them whole."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(V, (size, length), generator=generator)
    lengths = torch.tensor([length, *range(length - 3, 0, -4)][:size])
    mask = torch.arange(length) < lengths[:, None]
    return ids, mask, torch.randint(2, (size, length), generator=generator)


def ours(model: BERT, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> dict[str, Tensor]:
    """Everything that the model says of a batch."""
    hidden = model(ids, mask, types)
    said = {"hidden": hidden}
    if model.config.head == "mlm":
        said["logits"] = model.mlm_logits(hidden)
    if model.config.head in ("pooler", "classify"):
        said["pooled"] = model.pooled(hidden)
    if model.config.head == "classify":
        said["logits"] = model.classify(hidden)
    return said


def theirs(model: Any, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> dict[str, Tensor]:
    """The same of the stock class."""
    inputs = {"attention_mask": None if mask is None else mask.long(), "token_type_ids": types}
    said = model(ids, output_hidden_states=True, **inputs)
    found = {"hidden": said.hidden_states[-1]}
    if "logits" in said:
        found["logits"] = said.logits
    if not isinstance(model, BertForMaskedLM):
        found["pooled"] = getattr(model, "bert", model)(ids, **inputs).pooler_output
    return found


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], mask: Tensor | None = None) -> None:
    """Equal to 1e-9; hidden states of positions that fill up a text are nobody's."""
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        seen = tensor[mask] if mask is not None and tensor.dim() == 3 else tensor
        expected = wanted[name][mask] if mask is not None and tensor.dim() == 3 else wanted[name]
        torch.testing.assert_close(seen, expected, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


# --- parity -----------------------------------------------------------------------------------------------------------


@HEADS
@pytest.mark.parametrize("changes", [{}, {"n_head": 1, "norm_eps": 1e-5}, {"n_token_type": 3, "n_layer": 1}], ids=str)
@torch.no_grad()
def test_our_weights_in_the_stock_class(head: str, changes: dict[str, Any]):
    model = tiny(head, **changes)
    stock = stock_model(model.config)
    missing, unexpected = stock.load_state_dict(to_stock(model.config, model.state_dict()), strict=False)
    assert unexpected == []
    assert set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}  # the shared ones
    ids, mask, types = batch()
    assert_same(ours(model, ids, mask, types), theirs(stock, ids, mask, types), mask)
    assert_same(ours(model, ids), theirs(stock, ids))


@HEADS
@torch.no_grad()
def test_stock_weights_in_our_class(head: str):
    torch.manual_seed(1)
    stock = stock_model(shape(head))
    for parameter in stock.parameters():
        nn.init.normal_(parameter, std=0.5)
    config = our_config(stock.config.to_dict() | {"architectures": [type(stock).__name__]}, "here")
    assert config == shape(head, pad_id=0, labels=("LABEL_0", "LABEL_1", "LABEL_2") if head == "classify" else ())
    model = BERT(config).double().eval()
    model.load_state_dict(from_stock(config, stock.state_dict(), "here"))
    ids, mask, types = batch()
    assert_same(ours(model, ids, mask, types), theirs(stock, ids, mask, types), mask)


@HEADS
def test_gradients_equal_those_of_the_stock_class(head: str):
    """Through the chunked attention of training, and into the embedding from both of its ends."""
    model = tiny(head)
    stock = stock_model(model.config)
    stock.load_state_dict(to_stock(model.config, model.state_dict()), strict=False)
    ids, mask, types = batch()
    key = "pooled" if head == "pooler" else "logits"
    for said in (ours(model, ids, mask, types)[key], theirs(stock, ids, mask, types)[key]):
        (said[mask] if said.dim() == 3 else said).square().sum().backward()
    found = to_stock(model.config, {name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    for name, parameter in stock.named_parameters():
        if "word_embeddings" in name:  # the stock class takes none from the row of its pad id
            parameter.grad[0] = found[name][0]
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-9, atol=1e-9, msg=lambda t, n=name: f"{n}: {t}")


@HEADS
def test_parameter_count_is_that_of_the_stock_class(head: str):
    model = tiny(head)
    assert model.parameter_count() == stock_model(model.config).num_parameters()


def test_bert_base_has_the_110_million_parameters_of_the_paper():
    """Table 1 says 110M for BERT-base; counted without the memory for them."""
    sizes = {"vocab_size": 30_522, "context_length": 512, "n_layer": 12, "n_head": 12, "n_embd": 768}
    with torch.device("meta"):
        model = BERT(BERTConfig(**sizes, head="pooler"))
    assert model.parameter_count() == 109_482_240


# --- masks ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_what_is_masked_has_no_influence():
    model = tiny()
    ids, mask, types = batch()
    changed = torch.where(mask, ids, (ids + 1) % V)
    assert not torch.equal(changed, ids)
    assert torch.equal(model(ids, mask, types)[mask], model(changed, mask, types)[mask])


@torch.no_grad()
def test_a_text_alone_is_as_it_is_in_a_batch():
    model = tiny()
    ids, mask, types = batch()
    whole = model(ids, mask, types)
    for i, length in enumerate(mask.sum(dim=1).tolist()):
        alone = model(ids[i : i + 1, :length], None, types[i : i + 1, :length])
        torch.testing.assert_close(alone[0], whole[i, :length], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_mask_of_zeros_and_ones_is_a_mask():
    """As `transformers` writes it; `~` of a whole number would be no mask at all."""
    model = tiny()
    ids, mask, _ = batch()
    assert torch.equal(model(ids, mask.long()), model(ids, mask))


@torch.no_grad()
def test_every_position_sees_all_others():
    model = tiny()
    ids, _, _ = batch()
    before = model(ids)
    for changed in (0, T - 1):
        other = ids.clone()
        other[:, changed] = (other[:, changed] + 1) % V
        assert not torch.isclose(model(other), before).all(dim=-1).any()


@torch.no_grad()
def test_the_first_token_type_is_the_default():
    model = tiny()
    ids, mask, types = batch()
    assert torch.equal(model(ids, mask), model(ids, mask, torch.zeros_like(ids)))
    assert not torch.allclose(model(ids, mask), model(ids, mask, types))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.uint16])
@torch.no_grad()
def test_ids_may_be_of_any_whole_type(dtype: torch.dtype):
    """A tokenizer gives the smallest type that holds its ids, which PyTorch's embedding does not take."""
    model = tiny()
    ids, mask, types = batch()
    assert torch.equal(model(ids.to(dtype), mask, types.to(dtype)), model(ids, mask, types))


# --- what cannot be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (torch.full((1, 3), V), "ids hold 37, and this model has 0 to 36"),
        (torch.tensor([[1, -1]]), "ids hold -1, and this model has 0 to 36"),
        (torch.zeros(2, T + 1, dtype=torch.long), "13 tokens exceed the context of 12; cut the ids"),
        (torch.zeros(5, dtype=torch.long), r"ids have the shape \(5,\); give \(B, T\)"),
        (torch.zeros(1, 5), "ids are of type torch.float32; give whole numbers"),
    ],
)
def test_ids_that_cannot_be_are_named(ids: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        tiny()(ids)


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
        with pytest.raises(JumokError, match=f"this BERT has head='{head}', and this needs head="):
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
        ({"head": "classify", "labels": [1, 2]}, "a label=1 is of type int"),
        ({"labels": ["a", "b"]}, "are for head=\"classify\", and head is 'mlm'"),
        ({"labels": "ab"}, "labels='ab' is of type str"),
        ({"pad_id": 37}, "pad_id=37 is out of range: it must be between 0 and 36"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        BERTConfig(vocab_size=V, **changes)


# --- as it begins -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["none", *STOCK])
def test_the_first_weights(head: str):
    """N(0, 0.02) in every matrix, zero in every bias, one in every norm (section A.2 of the paper, by its code).

    But for what makes the first heads look around, which test_neighbours.py tells of."""
    torch.manual_seed(0)
    model = BERT(shape(head, vocab_size=300, n_embd=64, context_length=100))
    looking = ("position_embedding", "blocks.0.attention.q_proj", "blocks.0.attention.k_proj")
    for name, parameter in model.state_dict().items():
        if parameter.dim() == 2 and parameter.numel() > 500 and not name.startswith(looking):
            assert abs(float(parameter.std()) - 0.02) < 0.002, name
            assert abs(float(parameter.mean())) < 0.002, name
        elif parameter.dim() == 1:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name


def test_the_seed_decides_the_weights():
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in BERT(shape()).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_dropout_acts_in_training_only():
    model = tiny(dropout=0.5)
    ids, mask, _ = batch()
    torch.manual_seed(0)
    assert torch.equal(model(ids, mask), model(ids, mask))
    model.train()
    assert not torch.equal(model(ids, mask), model(ids, mask))


def test_every_parameter_learns():
    """A parameter that no loss reaches would cost memory, and break training over several processes."""
    for head, call in (("mlm", "mlm_logits"), ("pooler", "pooled"), ("classify", "classify")):
        model = tiny(head)
        ids, mask, types = batch()
        getattr(model, call)(model(ids, mask, types)).square().sum().backward()
        assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


# --- to and from files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["none", *STOCK])
@torch.no_grad()
def test_a_run_folder_there_and_back(head: str, tmp_path: Path):
    tokenizer = train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    model = tiny(head, vocab_size=tokenizer.vocab_size, pad_id=0).float()
    model.tokenizer = tokenizer
    save(model, tmp_path / "run")
    written = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["model"]
    assert written["type"] == "bert"
    back = load(tmp_path / "run", kind=BERT)
    assert not back.training
    assert back.config == model.config
    ids, mask, types = batch()
    assert torch.equal(back(ids % tokenizer.vocab_size, mask, types), model(ids % tokenizer.vocab_size, mask, types))
    assert back.tokenizer is not None
    assert back.tokenizer.special_tokens["[MASK]"] == 3
    with pytest.raises(RunError, match="holds a model of the kind BERT, and one of the kind GPT is needed"):
        load(tmp_path / "run", kind=GPT)


def test_a_configuration_comes_back_from_json():
    config = shape("classify")
    assert from_dict(BERTConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert isinstance(build(config), BERT)


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


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match=r"has no config\.json"):
        read_stock(tmp_path / "config.json")
