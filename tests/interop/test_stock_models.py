"""Random tiny models of the stock classes, as `transformers` saves them: read, compared in float64, and written again.

tests/interop/test_features.py goes the other way, from each kind of model of jumok to `transformers`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import jumok
from jumok.config import (
    BERTConfig,
    GPTConfig,
    GPTVariantConfig,
    count_constants,
    count_parameters,
)
from jumok.config.huggingface import our_config
from jumok.config.huggingface._classes import CLASSES
from jumok.errors import ConfigError, JumokError, RunError
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.huggingface.encoder_decoder import reordered
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.runs.load import load, save
from jumok.tokenizers import train_tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")
pytestmark = pytest.mark.slow

V, T, PAD = 61, 40, 3
WIDTH: dict[str, Any] = {"vocab_size": V, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LABELS = {"id2label": {0: "부정", 1: "긍정"}, "label2id": {"부정": 0, "긍정": 1}}
DECODER: dict[str, Any] = {**WIDTH, "intermediate_size": 48, "max_position_embeddings": T}
GROUPED: dict[str, Any] = {**DECODER, "num_key_value_heads": 2}
GPT2 = {"vocab_size": V, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": T}
ENCODER: dict[str, Any] = {**WIDTH, "intermediate_size": 20, "pad_token_id": PAD, **LABELS}
BERT_SIZES = {**ENCODER, "max_position_embeddings": T}
ROBERTA = {**ENCODER, "max_position_embeddings": PAD + 1 + T, "type_vocab_size": 1}  # as KLUE has them
PAIR = {
    "vocab_size": V, "max_position_embeddings": T, "d_model": 16, "encoder_layers": 2, "decoder_layers": 3,
    "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 28,
    "pad_token_id": 3, "eos_token_id": 7, "decoder_start_token_id": 3, "forced_eos_token_id": 7, "bos_token_id": 5,
}  # fmt: skip


def rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 500.0, **settings}}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
DEEPSEEK = rope(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=10, mscale=1.0, mscale_all_dim=0.7,
    truncate=False, beta_fast=8.0, beta_slow=2.0,
)  # fmt: skip
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {  # class, class of settings, settings
    "GPT-2": ("GPT2LMHeadModel", "GPT2", GPT2),
    "GPT-2, untied": ("GPT2LMHeadModel", "GPT2", {**GPT2, "tie_word_embeddings": False, "activation_function": "relu"}),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3", {**GROUPED, "head_dim": 16}),
    "Qwen3, options": (
        "Qwen3ForCausalLM",
        "Qwen3",
        {
            **GROUPED, "head_dim": 16, "attention_bias": True, "use_sliding_window": True, "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "Llama": ("LlamaForCausalLM", "Llama", {**GROUPED, "head_dim": 6}),
    "Llama, classes": ("LlamaForSequenceClassification", "Llama", {**GROUPED, **LABELS, "pad_token_id": PAD}),
    "llama3": ("LlamaForCausalLM", "Llama", {**GROUPED, **rope(rope_type="llama3", factor=8.0, **LLAMA3)}),
    "yarn": (
        "Qwen2ForCausalLM",
        "Qwen2",
        {**GROUPED, **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=10)},
    ),
    "yarn as DeepSeek": ("Qwen3ForCausalLM", "Qwen3", {**GROUPED, "head_dim": 16, **DEEPSEEK}),
    "Qwen2": (
        "Qwen2ForCausalLM",
        "Qwen2",
        {**GROUPED, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "Mistral": ("MistralForCausalLM", "Mistral", {**GROUPED, "sliding_window": 9}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoX", {**DECODER, **rope(partial_rotary_factor=0.25)}),
    "GPT-NeoX, sequence": (
        "GPTNeoXForCausalLM",
        "GPTNeoX",
        {
            **DECODER, "use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
            **rope(partial_rotary_factor=0.75),
        },
    ),
    "BERT": ("BertModel", "Bert", BERT_SIZES),
    "BERT, mlm": ("BertForMaskedLM", "Bert", {**BERT_SIZES, "layer_norm_eps": 1e-6, "type_vocab_size": 3}),
    "BERT, classes": ("BertForSequenceClassification", "Bert", BERT_SIZES),
    "RoBERTa": ("RobertaModel", "Roberta", ROBERTA),
    "RoBERTa, mlm": ("RobertaForMaskedLM", "Roberta", {**ROBERTA, "type_vocab_size": 2}),
    "XLM-RoBERTa, mlm": ("XLMRobertaForMaskedLM", "XLMRoberta", ROBERTA),
    "ELECTRA, mlm": ("ElectraForMaskedLM", "Electra", {**BERT_SIZES, "embedding_size": 40}),
    "BART": ("BartForConditionalGeneration", "Bart", PAIR),
    "Marian": ("MarianMTModel", "Marian", PAIR),
}  # fmt: skip
KINDS = ("Qwen3", "Llama", "Qwen2", "Mistral", "GPT-NeoX", "BERT, mlm", "RoBERTa, mlm", "ELECTRA, mlm", "BART")


def stock_model(case: str, kind: str = "", **changes: Any) -> Any:
    """A random float64 model of a case, of another class if `kind` is given."""
    name, settings, values = CASES[case]
    torch.manual_seed(3)
    config = getattr(transformers, f"{settings}Config")(**{**values, **changes})
    model = getattr(transformers, kind or name)(config).double().eval()
    for parameter_name, parameter in model.named_parameters():
        if settings != "Marian" or "embed_positions" not in parameter_name:
            nn.init.normal_(parameter, std=0.4)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_()
    return model


def saved(case: str, folder: Path, kind: str = "", **changes: Any) -> Any:
    model = stock_model(case, kind, **changes)
    model.save_pretrained(folder)
    return model


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    for name, value in changes.items():
        config.pop(name, None) if value is KeyError else config.update({name: value})
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


GENERATOR = torch.Generator().manual_seed(11)
IDS = torch.randint(PAD + 1, V, (3, T), generator=GENERATOR)
MASK = torch.arange(T) < torch.tensor([[T], [5], [T]])
IDS[~MASK] = PAD
IDS[2, 3] = PAD  # inside a text, where a RoBERTa does not count it
TARGETS = torch.randint(V, (3, 6), generator=GENERATOR)


def ours(model: Any) -> dict[str, Tensor]:
    if isinstance(model, EncoderDecoder):
        return {"logits": model(IDS, TARGETS, MASK)}
    if isinstance(model, GPT):
        return {"logits": model.classify(model.hidden(IDS), MASK) if model.config.labels else model(IDS)}
    types = IDS % model.config.n_token_type
    hidden = model(IDS, MASK, types)
    if model.config.head == "mlm":
        return {"logits": model.mlm_logits(hidden)}
    if model.config.head == "classify":
        return {"logits": model.classify(hidden, MASK)}
    pooled = {"pooler_output": model.pooled(hidden)} if model.config.head == "pooler" else {}
    return {"last_hidden_state": hidden, **pooled}


def theirs(stock: Any) -> Any:
    config = stock.config
    inputs: dict[str, Tensor] = {"input_ids": IDS}
    if "CausalLM" not in type(stock).__name__ and "LMHead" not in type(stock).__name__:
        inputs["attention_mask"] = MASK.long()
    if hasattr(config, "type_vocab_size"):
        inputs["token_type_ids"] = IDS % config.type_vocab_size
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TARGETS
    return stock(**inputs)


def seen(tensor: Tensor) -> Tensor:
    """What is not at padding."""
    return tensor[MASK] if tensor.shape[:2] == MASK.shape else tensor


def assert_same(model: Any, stock: Any) -> None:
    wanted = theirs(stock)
    for name, tensor in ours(model).items():
        torch.testing.assert_close(seen(tensor), seen(wanted[name]), rtol=0, atol=1e-9)


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_what_transformers_saves_is_read_and_goes_back_bit_by_bit(case: str, folder: Path, tmp_path: Path) -> None:
    """In several files. XLM-RoBERTa goes back as a RoBERTa, the same model."""
    stock = stock_model(case)
    stock.save_pretrained(folder, max_shard_size="5KB")
    assert (folder / "model.safetensors.index.json").is_file()
    model = jumok.load(folder)
    assert not model.training
    assert count_parameters(model.config) == sum(p.numel() for p in model.parameters())
    assert count_constants(model.config) == sum(b.numel() for b in model.buffers())
    assert_same(model, stock)
    to_hf(model, tmp_path / "back")
    kind = "RobertaForMaskedLM" if case.startswith("XLM") else CASES[case][0]
    again, info = getattr(transformers, kind).from_pretrained(
        tmp_path / "back", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values())  # no tensor is missing, unexpected or of another shape
    for name, tensor in again.state_dict().items():
        unused = 2 if case.startswith("BART") and "embed_positions" in name else 0
        assert torch.equal(tensor[unused:], stock.state_dict()[name][unused:]), name
    assert_same(model, again.eval())
    known = ("pad_token_id", "type_vocab_size", "max_position_embeddings", "layer_norm_eps", "hidden_dropout_prob")
    for name in (*known, "id2label") if "classes" in case else known:
        assert getattr(again.config, name, None) == getattr(stock.config, name, None), name


def test_a_plain_qwen3_is_the_modern_family(folder: Path) -> None:
    saved("Qwen3", folder, sliding_window=7)  # not in use
    assert type(from_hf(folder).config) is GPTConfig


@torch.no_grad()
def test_the_paper_of_2017_is_a_marian_model(folder: Path) -> None:
    """Marian has all sines of a position before all cosines; the paper alternates them. Any order is equivalent."""
    saved("Marian", folder)
    model = from_hf(folder)
    embedding, written = model.token_embedding.weight, load_file(folder / "model.safetensors")["model.shared.weight"]
    for their, our in ((0, 0), (1, 2), (8, 1)):
        assert torch.equal(written[:, their], embedding[:, our])
    saved("BART", folder.parent / "bart")
    model = from_hf(folder.parent / "bart")
    before = ours(model)["logits"]
    model.load_state_dict(reordered(model.state_dict(), torch.randperm(16)))
    torch.testing.assert_close(ours(model)["logits"], before, rtol=0, atol=1e-10)


# --- older files, and classes with more than jumok reads --------------------------------------------------------------


def pickled(stock: Any, folder: Path, state: dict[str, Tensor], **how: Any) -> None:
    stock.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin", **how)


@pytest.mark.parametrize(
    ("case", "kind", "part"),
    [
        ("BERT, mlm", "BertForPreTraining", "bert"),
        ("ELECTRA, mlm", "ElectraForPreTraining", "electra"),
        ("BART", "BartModel", ""),
    ],
)
@torch.no_grad()
def test_classes_of_pretraining(case: str, kind: str, part: str, folder: Path) -> None:
    """The heads for next sentences and for replaced tokens are left out; KoBART has no output layer."""
    stock = saved(case, folder, kind)
    model, wanted = from_hf(folder), theirs(getattr(stock, part) if part else stock).last_hidden_state
    if isinstance(model, EncoderDecoder):
        found = model.hidden(TARGETS, model.encode(IDS, MASK), MASK)
    else:
        found = model(IDS, MASK, IDS % model.config.n_token_type)
    torch.testing.assert_close(seen(found), seen(wanted), rtol=0, atol=1e-9)
    if part == "bert":
        logits = theirs(stock).prediction_logits
        torch.testing.assert_close(seen(ours(model)["logits"]), seen(logits), rtol=0, atol=1e-9)
    if part == "electra":
        assert model.config.head == "none"


@pytest.mark.parametrize("case", ["BERT", "RoBERTa"])
@torch.no_grad()
def test_a_model_without_its_pooler(case: str, folder: Path) -> None:
    """It can lack the pooler, which its config.json does not state."""
    stock = getattr(transformers, CASES[case][0])(stock_model(case).config, add_pooling_layer=False).double().eval()
    stock.save_pretrained(folder)
    model = from_hf(folder)
    assert model.config.head == "none"
    assert_same(model, stock)
    to_hf(model, folder.parent / "back")
    assert "pooler.dense.weight" not in load_file(folder.parent / "back" / "model.safetensors")


@torch.no_grad()
def test_the_first_files_of_bert(folder: Path) -> None:
    """A pickle of 2018 with gamma and beta in the norms, a tensor of positions, both heads, and a matrix twice."""
    stock = stock_model("BERT, mlm", "BertForPreTraining")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in stock.state_dict().items()
    }
    renamed["bert.embeddings.position_ids"] = torch.arange(T)[None]
    assert "cls.predictions.decoder.weight" in renamed
    pickled(stock, folder, renamed, _use_new_zipfile_serialization=False)
    torch.testing.assert_close(
        seen(ours(from_hf(folder))["logits"]), seen(theirs(stock).prediction_logits), rtol=0, atol=1e-9
    )
    change_config(folder, architectures=["BertModel"])
    assert_same(from_hf(folder), stock.bert)


@torch.no_grad()
def test_older_files_of_roberta_and_marian(folder: Path) -> None:
    """As KLUE RoBERTa and OPUS have them: pickles with constants, copies of tied tensors, and another head."""
    stock = stock_model("RoBERTa, mlm")
    state = dict(stock.state_dict())
    state["roberta.embeddings.position_ids"] = torch.arange(T)[None]
    state["roberta.pooler.dense.weight"] = torch.zeros(16, 16)
    del state["lm_head.bias"]
    pickled(stock, folder, state)
    assert_same(from_hf(folder), stock)
    stock = stock_model("Marian")
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} < stock.state_dict().keys()
    pickled(stock, folder.parent / "marian", stock.state_dict())
    flags = {"static_position_embeddings": True, "normalize_embedding": False, "normalize_before": False}
    change_config(folder.parent / "marian", decoder_vocab_size=KeyError, **flags)
    assert_same(from_hf(folder.parent / "marian"), stock)


@torch.no_grad()
def test_the_first_files_of_gpt2_and_gpt_neox(folder: Path) -> None:
    """They were saved without a head, so without the prefix, and contain constants of each block."""
    for case, prefix, part in (
        ("GPT-2", "transformer.", "h.{}.attn."),
        ("GPT-NeoX", "", "gpt_neox.layers.{}.attention."),
    ):
        stock = saved(case, folder)
        path = folder / "model.safetensors"
        tensors = {name.removeprefix(prefix): tensor for name, tensor in load_file(path).items()}
        for i in range(2):
            tensors[part.format(i) + "bias"] = torch.ones(1, 1, T, T)
            tensors[part.format(i) + "masked_bias"] = torch.tensor(-1e4)
        save_file(tensors, path)
        assert_same(from_hf(folder), stock)


def test_settings_of_transformers_4(folder: Path) -> None:
    """It wrote rope_theta and rope_scaling, and GPT-NeoX rotary_pct and rotary_emb_base."""
    for case in ("llama3", "GPT-NeoX", "Qwen3"):
        saved(case, folder)
        expected = from_hf(folder).config
        new = json.loads((folder / "config.json").read_text())["rope_parameters"]
        if case == "GPT-NeoX":
            older = {"rotary_pct": new["partial_rotary_factor"], "rotary_emb_base": new["rope_theta"]}
        else:
            theta, kind = new.pop("rope_theta"), new.pop("rope_type")
            older = {"rope_theta": theta, "rope_scaling": {"type": kind, **new} if case == "llama3" else None}
        change_config(folder, rope_parameters=KeyError, **older)
        assert from_hf(folder).config == expected


def test_without_labels_the_stock_class_counts_them(folder: Path) -> None:
    saved("BERT, classes", folder)
    change_config(folder, id2label=KeyError, label2id=KeyError)
    assert from_hf(folder).config.labels == ("LABEL_0", "LABEL_1")


def test_the_special_ids_of_an_encoder_decoder(folder: Path, tmp_path: Path) -> None:
    """Those in config.json, and those only in generation_config.json."""
    stock = saved("BART", folder)
    other = {**stock.generation_config.to_dict(), "forced_bos_token_id": 9}
    transformers.GenerationConfig(**other).save_pretrained(folder)
    model = from_hf(folder)
    c = model.config
    assert (c.pad_id, c.bos_id, c.eos_id, c.decoder_start_id, c.forced_bos_id, c.forced_eos_id) == (3, 5, 7, 3, 9, 7)
    to_hf(model, tmp_path / "back")
    back = transformers.GenerationConfig.from_pretrained(tmp_path / "back")
    for name in ("pad", "bos", "eos", "decoder_start", "forced_eos"):
        assert getattr(back, f"{name}_token_id") == PAIR[f"{name}_token_id"]
    assert back.forced_bos_token_id == 9
    assert from_hf(tmp_path / "back").config == c


# --- what came in is a run like any other -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["llama3", "Qwen3, options", "GPT-NeoX"])
@torch.no_grad()
def test_a_run_folder_keeps_a_variant(case: str, folder: Path) -> None:
    saved(case, folder, vocab_size=400)
    model = from_hf(folder).float()
    model.tokenizer = train_tokenizer("나는 학교에 갔다.")
    save(model, folder.parent / "run")
    again = load(folder.parent / "run")
    assert isinstance(again.config, GPTVariantConfig)
    assert again.config == model.config
    assert torch.equal(again(IDS), model(IDS))


def test_training_goes_on_with_a_shorter_context(folder: Path) -> None:
    """Rows of 131,072 tokens fit into no memory; rotary positions need no parameters for their number."""
    tokenizer = train_tokenizer("나는 학교에 갔다.")
    model = GPT(
        GPTVariantConfig(
            vocab_size=tokenizer.vocab_size, context_length=64, n_layer=1, n_head=2, n_embd=16, sliding_window=9,
            architecture="Mistral",
        )
    )  # fmt: skip
    model.tokenizer = tokenizer
    to_hf(model, folder)
    settings: dict[str, Any] = {"steps": 2, "quiet": True, "batch_size": 2, "context_length": 16}
    jumok.train("나는 학교에 갔다. " * 60, out=folder.parent / "run", init=folder, **settings)
    config = load(folder.parent / "run").config
    assert isinstance(config, GPTVariantConfig)
    assert (config.context_length, config.sliding_window) == (16, 9)
    with pytest.raises(ConfigError, match="context_length=128 was given, and the model to begin with has 64"):
        jumok.train("나는. " * 99, out=folder.parent / "no", init=folder, **{**settings, "context_length": 128})


# --- published settings -----------------------------------------------------------------------------------------------

KLUE_ROBERTA = {
    "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
    "gradient_checkpointing": False, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
    "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
    "position_embedding_type": "absolute", "type_vocab_size": 1, "use_cache": True, "vocab_size": 32000,
    "tokenizer_class": "BertTokenizer",
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
    ("published", "kind", "length"),
    [(KLUE_ROBERTA, "RobertaForMaskedLM", 512), (KOBART, "BartModel", 1026)],
    ids=["KLUE RoBERTa base", "KoBART base v2"],
)
def test_the_settings_of_published_models(published: dict[str, Any], kind: str, length: int) -> None:
    """The files hold more settings than the stock classes know, and none of them is in the way."""
    config, stock_class = our_config(published, "here"), getattr(transformers, kind)
    with torch.device("meta"):
        stock = stock_class(stock_class.config_class(**published))
    unused = 2 * 2 * 768 if kind == "BartModel" else 0  # rows of the two tables of positions
    assert count_parameters(config) + unused == stock.num_parameters()
    assert (config.vocab_size, config.context_length) == (published["vocab_size"], length)


@pytest.mark.parametrize("case", ["GPT-2", *KINDS])
def test_settings_that_a_file_omits_are_those_of_the_stock_class(case: str) -> None:
    name, settings, _ = CASES[case]
    stock = getattr(transformers, f"{settings}Config")().to_dict() | {"architectures": [name]}
    without = {setting: value for setting, value in stock.items() if setting not in CLASSES[name].optional}
    assert our_config(without, "here") == our_config(stock, "here")


# --- refused ----------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("GPT-2", {"activation_function": "gelu"}, "uses features that jumok does not support: activation_function 'gelu'"),
    ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ("Llama, classes", {"id2label": {"0": "LABEL_0"}}, "num_labels 1 (regression)"),
    ("GPT-2", {"architectures": ["GemmaForCausalLM"]}, "GemmaForCausalLM; jumok reads GPT2LMHeadModel, "),
    ("GPT-2", {"architectures": None, "model_type": "gemma"}, "is a model gemma; jumok reads"),
    ("GPT-2", {"architectures": ["Robertamodel"]}, "the nearest name is RobertaModel"),
    ("GPT-2", {"architectures": ["X"], "auto_map": {"AutoModel": "x.X"}}, "is a model X; jumok reads"),
    ("GPT-2", {"architectures": ["X"], "quantization_config": {"bits": 4}}, "a model X; jumok reads"),
    ("GPT-2", {"architectures": [["x"]]}, "value of a wrong type"),
    ("Llama", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantised (gptq)"),
    ("Llama", {"hidden_size": KeyError}, "has no 'hidden_size'"),
    ("Llama", {"hidden_size": "wide", "head_dim": 8}, "n_embd='wide' is"),
    ("Llama", {"vocab_size": 0}, "vocab_size=0"),
    ("Llama", {"vocab_size": 10**30}, "out of range"),
    ("Llama", {"rope_parameters": {"rope_type": "su", "factor": 2.0}}, "rope_type 'su'"),
    ("Llama", {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "rope_type 'longrope'"),
    ("Llama", {"rope_parameters": {"rope_type": "yarn"}, "max_position_embeddings": 10**400}, "context_length="),
    ("Llama", {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "rope_parameters by layer"),
    ("Llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "llama3 has no low_freq_factor"),
    ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": "8"}}, "rope_scaling.factor='8' is of type str"),
    ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
    ("Llama", {"hidden_act": "relu"}, "hidden_act 'relu'"),
    ("Llama", {"num_key_value_heads": 3}, "n_kv_head=3"),
    ("Qwen3, options", {"layer_types": ["chunked_attention"] * 2}, "layer_types chunked_attention"),
    ("Mistral", {"sliding_window": 0}, "sliding_window=0"),
    ("GPT-NeoX", {"head_dim": 10**400}, "a value of a wrong type"),
    ("GPT-NeoX", {"rope_parameters": {"partial_rotary_factor": 0.4}}, "rotary_dim=3 is odd"),
    ("BERT, mlm", {"hidden_act": "gelu_new"}, "hidden_act 'gelu_new'"),
    ("BERT, mlm", {"position_embedding_type": "relative_key"}, "position_embedding_type 'relative_key'"),
    ("BERT, mlm", {"is_decoder": True}, "is_decoder"),
    ("BERT, mlm", {"architectures": ["BertForTokenClassification"]}, "nearest name is BertForSequenceClassification"),
    ("BERT, classes", {"problem_type": "regression"}, "problem_type 'regression'"),
    ("BERT, classes", {"id2label": {"0": "a", "2": "b"}}, "id2label that does not name the classes 0, 1, 2"),
    ("RoBERTa, mlm", {"pad_token_id": None}, "give pad_id"),
    ("RoBERTa, mlm", {"pad_token_id": T + PAD}, "context_length=0 is out of range"),
    ("BART", {"activation_function": "tanh"}, "activation_function"),
    ("BART", {"tie_word_embeddings": False}, "tie_word_embeddings false"),
    ("BART", {"normalize_before": True}, "normalize_before"),
    ("BART", {"normalize_embedding": False}, "normalize_embedding false"),
    ("BART", {"decoder_layers": KeyError}, "has no 'decoder_layers'"),
    ("Marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings false"),
    ("Marian", {"decoder_vocab_size": 41}, "decoder_vocab_size 41"),
    ("Marian", {"static_position_embeddings": False}, "static_position_embeddings false"),
]


@pytest.mark.parametrize(("case", "changes", "message"), REFUSED)
def test_settings_that_are_refused(case: str, changes: dict[str, Any], message: str) -> None:
    """What jumok does not compute, and damaged values; they are named."""
    kind, settings, values = CASES[case]
    stock = json.loads(getattr(transformers, f"{settings}Config")(**values).to_json_string(use_diff=False))
    stock |= {"architectures": [kind], **changes}
    with pytest.raises((JumokError, ConfigError, RunError)) as error:
        our_config({name: value for name, value in stock.items() if value is not KeyError}, "here")
    assert message in str(error.value)


@pytest.mark.parametrize("case", ["GPT-2", "Qwen3", "BERT, mlm", "BART"])
def test_all_tensors_that_do_not_fit_are_listed(case: str, folder: Path) -> None:
    saved(case, folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    missing, misshapen = [name for name in tensors if name.endswith("weight") and ".1." in name][:2]
    del tensors[missing]
    tensors[misshapen] = torch.zeros(2, 3)
    tensors[next(iter(tensors)).partition(".")[0] + ".odd"] = torch.zeros(1)
    save_file(tensors, path)
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    for fault in (f"{missing} is missing", f"{misshapen} is (2, 3), not (", "odd is unknown"):
        assert fault in str(caught.value)


def test_another_pad_id_is_another_roberta(folder: Path) -> None:
    """The file cannot tell."""
    saved("RoBERTa, mlm", folder)
    change_config(folder, pad_token_id=PAD - 1)
    assert jumok.load(folder, kind=BERT).config.context_length == T + 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rotary_dim": 3}, "rotary_dim=3 is odd"),
        ({"rotary_dim": 10}, "rotary_dim=10 is out of range"),
        ({"sliding_window": 4, "sliding_layers": (2,)}, "a layer in sliding_layers=2 is out of range"),
        ({"architecture": "Gemma"}, "architecture='Gemma' is not known"),
        ({"norm": "none"}, "norm='none' is not known"),
        ({"activation": "gelu"}, "activation='gelu' is for an MLP without a gate"),
        ({"family": "classic"}, "family='classic' has no rotary positions"),
        ({"rope_scaling": {"kind": "ntk", "factor": 2.0}}, "rope_scaling.kind='ntk' is not known"),
        ({"rope_scaling": {"kind": "linear", "factor": 0.5}}, "rope_scaling.factor=0.5 is out of range"),
    ],
)
def test_a_variant_that_contradicts_itself(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GPTVariantConfig(vocab_size=9, n_layer=2, n_head=4, n_embd=32, **settings)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "gpt"}, "family='gpt' is not known"),
        ({"family": "roberta"}, "counts the tokens that are not padding; give pad_id"),
        ({"family": "electra", "head": "pooler"}, "has no pooler"),
        ({"embedding_width": 6}, "embedding_width=6 differs from n_embd=16"),
    ],
)
def test_a_bert_that_contradicts_itself(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BERTConfig(vocab_size=V, n_head=4, n_embd=16, **changes)
