"""Import of RoBERTa and ELECTRA from `transformers` and export, compared in float64 with the stock classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartModel,
    ElectraConfig,
    ElectraForMaskedLM,
    ElectraForPreTraining,
    ElectraForSequenceClassification,
    ElectraModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
    XLMRobertaConfig,
    XLMRobertaForMaskedLM,
)

import jumok
from jumok.config import BERTConfig, count_parameters
from jumok.config.huggingface import our_config
from jumok.errors import ConfigError, JumokError, RunError
from jumok.inference.classify import predict
from jumok.inference.fill_mask import fill_mask
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.huggingface.convert import to_stock
from jumok.models.bert import BERT
from jumok.tokenizers import Tokenizer
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models, pre_tokenizers, processors

pytestmark = pytest.mark.slow

V, T, PAD = 40, 24, 3
LABELS = ("부정", "긍정")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": V}
NAMED = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
ROBERTA = {"max_position_embeddings": PAD + 1 + T, "pad_token_id": PAD, "type_vocab_size": 1}  # as KLUE has them
ELECTRA = {"max_position_embeddings": T, "pad_token_id": PAD, "embedding_size": 16}
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "roberta": (RobertaModel, RobertaConfig, ROBERTA),
    "roberta mlm": (RobertaForMaskedLM, RobertaConfig, ROBERTA),
    "roberta classify": (RobertaForSequenceClassification, RobertaConfig, ROBERTA),
    "roberta with two types": (RobertaForMaskedLM, RobertaConfig, ROBERTA | {"type_vocab_size": 2}),
    "xlm-roberta mlm": (XLMRobertaForMaskedLM, XLMRobertaConfig, ROBERTA),
    "electra": (ElectraModel, ElectraConfig, ELECTRA),
    "electra narrow": (ElectraModel, ElectraConfig, ELECTRA | {"embedding_size": 6}),
    "electra wide": (ElectraForMaskedLM, ElectraConfig, ELECTRA | {"embedding_size": 20}),
    "electra mlm": (ElectraForMaskedLM, ElectraConfig, ELECTRA),
    "electra classify": (ElectraForSequenceClassification, ElectraConfig, ELECTRA | {"embedding_size": 6}),
}
TIED = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}  # named after its end in XLM-RoBERTa
EACH = pytest.mark.parametrize("case", CASES)


def stock_model(case: str, **changes: Any) -> Any:
    """A small random float64 model of the stock class."""
    kind, settings, values = CASES[case]
    torch.manual_seed(0)
    model = kind(settings(**SIZES, **NAMED, **values, **changes)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def batch(types: int, length: int = T) -> tuple[Tensor, Tensor, Tensor]:
    """ids, mask and token types of three texts; the second one is padded, and the third has a pad id inside."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(PAD + 1, V, (3, length), generator=generator)
    mask = torch.arange(length) < torch.tensor([[length], [5], [length]])
    ids[~mask] = PAD
    ids[2, 3] = PAD
    return ids, mask, torch.randint(types, (3, length), generator=generator)


def ours(model: BERT, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, Tensor]:
    hidden = model(ids, mask, types)
    found = {"hidden": hidden}
    if model.config.head == "mlm":
        found["logits"] = model.mlm_logits(hidden)
    if model.config.head == "classify":
        found["logits"] = model.classify(hidden)
    if model.config.head == "pooler":
        found["pooled"] = model.pooled(hidden)
    return found


def theirs(model: Any, ids: Tensor, mask: Tensor, types: Tensor) -> dict[str, Tensor]:
    said = model(ids, attention_mask=mask.long(), token_type_ids=types, output_hidden_states=True)
    found = {"hidden": said.hidden_states[-1]}
    return found | {
        our: said[their] for our, their in (("logits", "logits"), ("pooled", "pooler_output")) if their in said
    }


def assert_same(model: BERT, stock: Any, length: int = T) -> None:
    """Hidden states and logits are equal, except for padding."""
    ids, mask, types = batch(model.config.n_token_type, length)
    found, wanted = ours(model, ids, mask, types), theirs(stock, ids, mask, types)
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        seen = mask if tensor.dim() == 3 else slice(None)
        torch.testing.assert_close(tensor[seen], wanted[name][seen], rtol=0, atol=1e-9)


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


# --- there and back ---------------------------------------------------------------------------------------------------


@EACH
@torch.no_grad()
def test_what_transformers_saves_can_be_loaded_and_goes_back_bit_by_bit(case: str, folder: Path, tmp_path: Path):
    """XLM-RoBERTa goes back as a RoBERTa, which is the same model."""
    stock = stock_model(case)
    stock.save_pretrained(folder)
    model = jumok.load(folder, kind=BERT)
    assert_same(model, stock)
    assert_same(model, stock, length=6)
    assert model.config.context_length == T
    assert count_parameters(model.config) == model.parameter_count() == stock.num_parameters()

    to_hf(model, tmp_path / "back")
    kind = RobertaForMaskedLM if case.startswith("xlm") else type(stock)
    again, info = kind.from_pretrained(tmp_path / "back", dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())  # no tensor is missing, unexpected or of another shape
    assert_same(model, again.eval())
    written, given = (load_file(path / "model.safetensors") for path in (tmp_path / "back", folder))
    assert written.keys() == given.keys()
    assert all(torch.equal(tensor, given[name]) for name, tensor in written.items())
    for name in ("pad_token_id", "type_vocab_size", "max_position_embeddings", "layer_norm_eps", "embedding_size"):
        assert getattr(again.config, name, None) == getattr(stock.config, name, None)
    assert again.config.id2label == (stock.config.id2label if "classify" in case else {0: "LABEL_0", 1: "LABEL_1"})


@EACH
def test_gradients_equal_those_of_the_stock_class(case: str, folder: Path):
    stock = stock_model(case)
    stock.save_pretrained(folder)
    model = from_hf(folder)
    assert isinstance(model, BERT)
    ids, mask, types = batch(model.config.n_token_type)
    for said in (ours(model, ids, mask, types), theirs(stock, ids, mask, types)):
        last = list(said.values())[-1]
        (last[mask] if last.dim() == 3 else last).square().sum().backward()
    grads = {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in model.named_parameters()}
    found = to_stock(model.config, grads)
    for name, parameter in stock.named_parameters():
        wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        name = TIED.get(name, name)
        gradient = found.pop(name)
        if "word_embeddings" in name or (".position_embeddings" in name and model.config.family == "roberta"):
            wanted[PAD] = gradient[PAD]  # the stock class takes none from the row of its pad id
        torch.testing.assert_close(
            gradient, wanted, rtol=1e-9, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("family", ["roberta", "electra"])
@pytest.mark.parametrize("head", ["mlm", "classify", "none"])
def test_training_begins_with_finite_values_and_reaches_all_parameters(family: Any, head: Any):
    torch.manual_seed(0)
    labels = LABELS if head == "classify" else ()
    sizes = {"vocab_size": V, "context_length": T, "n_layer": 2, "n_head": 4, "n_embd": 16}
    width = 6 if family == "electra" else 16
    model = BERT(BERTConfig(**sizes, family=family, head=head, labels=labels, pad_id=PAD, embedding_width=width))
    ids, mask, types = batch(2)
    torch.manual_seed(1)
    list(ours(model.train(), ids, mask, types).values())[-1].square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@torch.no_grad()
def test_the_discriminator_comes_in_as_an_encoder(folder: Path, tmp_path: Path):
    """ElectraForPreTraining has a head that finds replaced tokens, which is left out; so KoELECTRA is published."""
    config = ElectraConfig(**SIZES, **ELECTRA)
    stock = ElectraForPreTraining(config).double().eval()
    stock.save_pretrained(folder)
    model = from_hf(folder)
    assert isinstance(model, BERT)
    assert (model.config.family, model.config.head) == ("electra", "none")
    ids, mask, types = batch(2)
    wanted = stock.electra(ids, attention_mask=mask.long(), token_type_ids=types).last_hidden_state
    torch.testing.assert_close(model(ids, mask, types)[mask], wanted[mask], rtol=0, atol=1e-9)
    to_hf(model, tmp_path / "back")
    again, info = ElectraModel.from_pretrained(tmp_path / "back", dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())
    assert_same(model, again.eval())


@torch.no_grad()
def test_a_roberta_without_its_pooler_can_be_loaded(folder: Path):
    stock = RobertaModel(stock_model("roberta").config, add_pooling_layer=False).double().eval()
    stock.save_pretrained(folder)
    model = from_hf(folder)
    assert isinstance(model, BERT)
    assert model.config.head == "none"
    assert_same(model, stock)


@torch.no_grad()
def test_older_files_have_positions_and_the_bias_twice(folder: Path):
    """As KLUE RoBERTa has them: a pickle with constants, the tied matrix, its bias, and a head for whole texts."""
    stock = stock_model("roberta mlm")
    stock.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    state = dict(stock.state_dict())
    assert {"lm_head.decoder.weight", "lm_head.decoder.bias", "lm_head.bias"} <= state.keys()
    state["roberta.embeddings.position_ids"] = torch.arange(T)[None]
    state["roberta.pooler.dense.weight"] = torch.zeros(16, 16)
    del state["lm_head.bias"]
    torch.save(state, folder / "pytorch_model.bin")
    assert_same(from_hf(folder), stock)  # type: ignore[arg-type]


# --- as they are published --------------------------------------------------------------------------------------------

KLUE_ROBERTA = {
    "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
    "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
    "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
    "position_embedding_type": "absolute", "type_vocab_size": 1, "use_cache": True, "vocab_size": 32000,
    "tokenizer_class": "BertTokenizer",
}  # fmt: skip
KOELECTRA_SMALL = {
    "architectures": ["ElectraForPreTraining"], "attention_probs_dropout_prob": 0.1, "embedding_size": 128,
    "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 256, "initializer_range": 0.02,
    "intermediate_size": 1024, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "electra",
    "num_attention_heads": 4, "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
    "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": True,
    "type_vocab_size": 2, "vocab_size": 35000,
}  # fmt: skip
KOBART = {
    "activation_dropout": 0.0, "activation_function": "gelu", "add_bias_logits": False, "add_final_layer_norm": False,
    "architectures": ["BartModel"], "attention_dropout": 0.0, "bos_token_id": 1, "classif_dropout": 0.1,
    "classifier_dropout": 0.1, "d_model": 768, "decoder_attention_heads": 16, "decoder_ffn_dim": 3072,
    "decoder_layerdrop": 0.0, "decoder_layers": 6, "decoder_start_token_id": 1, "do_blenderbot_90_layernorm": False,
    "dropout": 0.1, "encoder_attention_heads": 16, "encoder_ffn_dim": 3072, "encoder_layerdrop": 0.0,
    "encoder_layers": 6, "eos_token_id": 1, "extra_pos_embeddings": 2, "force_bos_token_to_be_generated": False,
    "forced_eos_token_id": 1, "gradient_checkpointing": False, "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
    "init_std": 0.02, "is_encoder_decoder": True, "kobart_version": 2.0, "max_position_embeddings": 1026,
    "model_type": "bart", "normalize_before": False, "normalize_embedding": True, "num_hidden_layers": 6,
    "pad_token_id": 3, "scale_embedding": False, "static_position_embeddings": False,
    "tokenizer_class": "PreTrainedTokenizerFast", "use_cache": True, "vocab_size": 30000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("published", "settings", "kind"),
    [(KLUE_ROBERTA, RobertaConfig, RobertaForMaskedLM), (KOELECTRA_SMALL, ElectraConfig, ElectraModel),
     (KOBART, BartConfig, BartModel)],
    ids=["KLUE RoBERTa base", "KoELECTRA small v3", "KoBART base v2"],
)  # fmt: skip
def test_the_settings_of_published_models_are_read(published: dict[str, Any], settings: Any, kind: Any):
    """The files hold more settings than the stock classes know, and none of them is in the way."""
    config = our_config(published, "here")
    with torch.device("meta"):
        stock = kind(settings(**published))
    unused = 2 * 2 * 768 if kind is BartModel else 0  # rows of the two tables of positions
    assert count_parameters(config) + unused == stock.num_parameters()
    assert config.vocab_size == published["vocab_size"]
    assert config.context_length == {"roberta": 512, "electra": 512, "bart": 1026}[published["model_type"]]


# --- texts ------------------------------------------------------------------------------------------------------------

WORDS = ["나는", "학교에", "갔다", "밥을", "먹었다", "."]


def published_tokenizer(before: str, after: str, mask: str, pad: str) -> HFTokenizer:
    """Whole words, with the special tokens of a published model in the places of KLUE RoBERTa."""
    special = [before, pad, after, "[UNK]", mask]
    pipeline = HFTokenizer(models.WordLevel({word: i for i, word in enumerate(special + WORDS)}, unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.Whitespace()
    pipeline.add_special_tokens(special)
    ids = [(before, 0), (after, 2)]
    pipeline.post_processor = processors.TemplateProcessing(
        f"{before} $A {after}", f"{before} $A {after} $B {after}", ids
    )
    return pipeline


@pytest.mark.parametrize(
    ("before", "after", "mask", "pad"), [("[CLS]", "[SEP]", "[MASK]", "[PAD]"), ("<s>", "</s>", "<mask>", "<pad>")]
)
def test_texts_of_different_lengths_give_the_logits_of_transformers(
    before: str, after: str, mask: str, pad: str, folder: Path, tmp_path: Path
):
    """A RoBERTa with the tokens of BERT, as of KLUE, and one with its own. The texts were framed only with [CLS]."""
    values = ROBERTA | {"vocab_size": V, "pad_token_id": 1, "max_position_embeddings": 2 + T}
    sizes = SIZES | NAMED | values
    texts = ["나는 학교에 갔다 .", "밥을 먹었다"]
    for kind in (RobertaForMaskedLM, RobertaForSequenceClassification):
        torch.manual_seed(0)
        stock = kind(RobertaConfig(**sizes)).double().eval()
        for parameter in stock.parameters():
            nn.init.normal_(parameter, std=0.4)
        stock.save_pretrained(folder)
        published_tokenizer(before, after, mask, pad).save(str(folder / "tokenizer.json"))
        model = jumok.load(folder, kind=BERT)
        to_hf(model, tmp_path / kind.__name__)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / kind.__name__)
        assert "token_type_ids" not in tokenizer("나는")  # the model has one type; a second one would be out of range
        tokenizer.pad_token = pad
        with torch.no_grad():
            if kind is RobertaForMaskedLM:
                said = stock(**tokenizer(f"나는 {mask} 갔다", return_tensors="pt")).logits[0, 2].softmax(dim=-1)
                found = fill_mask(model, f"나는 {mask} 갔다", top=1).masks[0].candidates[0]
                known = said[: model.tokenizer.vocab_size]  # the model has more ids than the tokenizer
                assert (known[found.id] / known.sum()).item() == pytest.approx(found.probability, abs=1e-9)
            else:
                said = stock(**tokenizer(texts, return_tensors="pt", padding=True)).logits.softmax(dim=-1)
                for row, result in zip(said, predict(model, texts), strict=True):
                    assert list(result.probabilities.values()) == pytest.approx(row.tolist(), abs=1e-6)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "gpt"}, "family='gpt' is not known"),
        ({"family": "roberta"}, "counts the tokens that are not padding; give pad_id"),
        ({"family": "electra", "head": "pooler"}, "has no pooler"),
        ({"embedding_width": 6}, "embedding_width=6 differs from n_embd=16"),
        ({"family": "electra", "embedding_width": 0}, "embedding_width=0 is out of range"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        BERTConfig(vocab_size=V, n_head=4, n_embd=16, **changes)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"pad_token_id": None}, ConfigError, "give pad_id"),
        ({"pad_token_id": T + PAD}, ConfigError, "context_length=0 is out of range"),
        ({"pad_token_id": 10**30}, ConfigError, "out of range"),
        ({"pad_token_id": "1"}, JumokError, "wrong type"),
        ({"max_position_embeddings": 10**30}, ConfigError, "context_length=.*out of range"),
        ({"max_position_embeddings": None}, JumokError, "wrong type"),
        ({"hidden_act": "relu"}, JumokError, "hidden_act 'relu'"),
        ({"is_decoder": True}, JumokError, "is_decoder"),
        ({"num_hidden_layers": 3}, RunError, r"roberta.encoder.layer.2.output.dense.bias is missing"),
        ({"pad_token_id": PAD - 1}, RunError, None),
    ],
)
def test_damaged_settings_are_named(changes: dict[str, Any], kind: type[Exception], message: str | None, folder: Path):
    stock_model("roberta mlm").save_pretrained(folder)
    change_config(folder, **changes)
    if message is None:  # another pad id is another model, and the file cannot tell
        assert jumok.load(folder, kind=BERT).config.context_length == T + 1
        return
    with pytest.raises(kind, match=message):
        from_hf(folder)


def test_a_tokenizer_with_its_own_words_has_a_place_in_the_vocabulary(folder: Path):
    stock_model(
        "electra mlm",
    ).save_pretrained(folder)
    published_tokenizer("[CLS]", "[SEP]", "[MASK]", "[PAD]").save(str(folder / "tokenizer.json"))
    tokenizer = jumok.load(folder).tokenizer
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.around == ((0,), (2,))
