"""Tensors that a folder has twice although its class shares them: equal, different, or under one name only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import jumok
from jumok.errors import RunError
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.bert import BERT
from jumok.models.encoder_decoder import EncoderDecoder
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")
pytestmark = pytest.mark.slow

V, C, T = 37, 16, 24
SIZES = {"vocab_size": V, "hidden_size": C, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
PAIR = {
    "vocab_size": V, "d_model": C, "max_position_embeddings": T, "pad_token_id": 1,
    **{f"{side}_{what}": value for side in ("encoder", "decoder") for what, value in (
        ("layers", 1), ("attention_heads", 2), ("ffn_dim", 20),
    )},
}  # fmt: skip
GPT2 = {"vocab_size": V, "n_embd": C, "n_layer": 1, "n_head": 2, "n_positions": T}
POSITIONS = {"max_position_embeddings": T}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2LMHeadModel": ("GPT2", GPT2),
    **{
        f"{name}ForCausalLM": (name, SIZES | POSITIONS | {"num_key_value_heads": 2})
        for name in ("Llama", "Qwen2", "Qwen3", "Mistral")
    },
    "GPTNeoXForCausalLM": ("GPTNeoX", SIZES | POSITIONS),
    "BertForMaskedLM": ("Bert", SIZES | POSITIONS),
    "BertForPreTraining": ("Bert", SIZES | POSITIONS),
    "RobertaForMaskedLM": ("Roberta", SIZES | {"max_position_embeddings": T + 2}),
    "XLMRobertaForMaskedLM": ("XLMRoberta", SIZES | {"max_position_embeddings": T + 2}),
    "ElectraForMaskedLM": ("Electra", SIZES | POSITIONS | {"embedding_size": C}),
    "BartForConditionalGeneration": ("Bart", PAIR),
    "MarianMTModel": ("Marian", PAIR | {"decoder_start_token_id": 1}),
}
SHARED: dict[str, tuple[str, ...]] = {  # the tensor that `save_pretrained` writes, and its other names
    "GPT2LMHeadModel": ("transformer.wte.weight", "lm_head.weight"),
    **dict.fromkeys(
        ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"),
        ("model.embed_tokens.weight", "lm_head.weight"),
    ),
    "GPTNeoXForCausalLM": ("gpt_neox.embed_in.weight", "embed_out.weight", "lm_head.weight"),
    **dict.fromkeys(
        ("BertForMaskedLM", "BertForPreTraining"),
        ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    ),
    **dict.fromkeys(
        ("RobertaForMaskedLM", "XLMRobertaForMaskedLM"),
        ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    ),
    "ElectraForMaskedLM": ("electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"),
    **dict.fromkeys(
        ("BartForConditionalGeneration", "MarianMTModel"),
        (
            "model.shared.weight", "lm_head.weight", "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        ),
    ),
}  # fmt: skip
BIASES = {
    "BertForMaskedLM": ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "BertForPreTraining": ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "RobertaForMaskedLM": ("lm_head.bias", "lm_head.decoder.bias"),
    "XLMRobertaForMaskedLM": ("lm_head.bias", "lm_head.decoder.bias"),
}
COPIES = [(case, name) for case, names in SHARED.items() for name in names[1:]]
DECODERS = [(case, name) for case, name in COPIES if "CausalLM" in case or case.startswith("GPT2")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


def saved(case: str, folder: Path, **settings: Any) -> dict[str, Tensor]:
    """Save a random float64 model that says it is tied; its tensors."""
    family, sizes = CASES[case]
    torch.manual_seed(1)
    config = getattr(transformers, f"{family}Config")(**sizes, tie_word_embeddings=True, **settings)
    model = getattr(transformers, case)(config).double().eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name or family != "Marian":
            nn.init.normal_(parameter, std=0.4)
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def write(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(
        {name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def other(tensor: Tensor) -> Tensor:
    """As after an adapter was merged into one of the two: a few rows are different."""
    changed = tensor.clone()
    changed[3:9] += 0.5
    return changed


@torch.no_grad()
def assert_same_logits(case: str, folder: Path) -> None:
    """The logits of the stock class, which reads the folder itself, are those of jumok."""
    model, stock = from_hf(folder), getattr(transformers, case).from_pretrained(folder, dtype=torch.float64)
    ids = torch.randint(3, V, (2, 9), generator=torch.Generator().manual_seed(2))
    if isinstance(model, EncoderDecoder):
        wanted, found = stock(ids, decoder_input_ids=ids).logits, model(ids, ids)
    elif isinstance(model, BERT):
        answer = stock(ids)
        wanted, found = getattr(answer, "prediction_logits", None), model.mlm_logits(model(ids))
        wanted = answer.logits if wanted is None else wanted
    else:
        wanted, found = stock(ids).logits, model(ids)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("case", "copy"), COPIES)
def test_a_copy_that_is_equal_is_left_out(case: str, copy: str, folder: Path):
    tensors = saved(case, folder)
    write(folder, tensors | {copy: tensors[SHARED[case][0]]})
    assert_same_logits(case, folder)


@pytest.mark.parametrize(("case", "copy"), COPIES)
def test_a_tensor_under_another_name_is_found(case: str, copy: str, folder: Path):
    """transformers ties in both directions: an embedding that is missing is the matrix of the output layer."""
    tensors = saved(case, folder)
    shared = tensors.pop(SHARED[case][0])
    write(folder, tensors | {copy: shared})
    assert_same_logits(case, folder)


@pytest.mark.parametrize(("case", "copy"), DECODERS)
def test_another_output_layer_of_a_decoder_is_read_and_kept(case: str, copy: str, folder: Path, tmp_path: Path):
    """Merging an adapter left two matrices and said that they were tied: the second was dropped, logits off by 14."""
    tensors = saved(case, folder)
    write(folder, tensors | {copy: other(tensors[SHARED[case][0]])})
    assert_same_logits(case, folder)
    model = from_hf(folder)
    to_hf(model, tmp_path / "again")
    again = jumok.load(tmp_path / "again")
    assert not again.config.tie_embeddings
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@pytest.mark.parametrize(("case", "copy"), [pair for pair in COPIES if pair not in DECODERS])
def test_another_matrix_of_other_models_is_refused_by_name(case: str, copy: str, folder: Path):
    """jumok has no BERT and no encoder–decoder with two matrices; the second was dropped without a comparison."""
    tensors = saved(case, folder)
    write(folder, tensors | {copy: other(tensors[SHARED[case][0]])})
    with pytest.raises(RunError, match=f"{copy} differs from "):
        from_hf(folder)


@pytest.mark.parametrize("case", BIASES)
@pytest.mark.parametrize("names", ["both", "first", "second"])
def test_the_bias_of_a_head_is_the_one_that_transformers_adds(case: str, names: str, folder: Path):
    """Where a file has two different ones, transformers adds that of the decoder; jumok took the other."""
    tensors = saved(case, folder)
    bias, copy = BIASES[case]
    given = {bias: tensors.pop(bias)}
    tensors.pop(copy, None)
    if names != "first":
        given[copy] = other(given[bias])
    if names == "second":
        del given[bias]
    write(folder, tensors | given)
    assert_same_logits(case, folder)


def test_the_bias_of_electra_is_the_one_that_transformers_adds(folder: Path):
    tensors = saved("ElectraForMaskedLM", folder)
    write(folder, tensors | {"generator_predictions.bias": other(tensors["generator_lm_head.bias"])})
    assert_same_logits("ElectraForMaskedLM", folder)


def test_training_goes_on_with_two_matrices(folder: Path, tmp_path: Path):
    """The first look at a folder to begin with reads config.json only, which says that there is one."""
    tensors = saved("LlamaForCausalLM", folder)
    write(folder, tensors | {"lm_head.weight": other(tensors["model.embed_tokens.weight"])})
    letters = "abcdefgh"
    HFTokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, [])).save(str(folder / "tokenizer.json"))
    settings = {"steps": 1, "learning_rate": 1e-9, "weight_decay": 0.0, "batch_size": 2, "compile": "off"}
    trained = jumok.train(letters * 40, tmp_path / "run", init=folder, quiet=True, device="cpu", **settings)
    assert not trained.config.tie_embeddings
    torch.testing.assert_close(trained.head.weight, from_hf(folder).head.weight.float(), rtol=0, atol=1e-6)


def test_a_classifier_ignores_an_output_layer(folder: Path):
    """The stock class has none."""
    tensors = saved("LlamaForCausalLM", folder, architectures=["LlamaForSequenceClassification"], num_labels=3)
    family, sizes = CASES["LlamaForCausalLM"]
    config = getattr(transformers, f"{family}Config")(**sizes, num_labels=3, pad_token_id=0)
    stock = transformers.LlamaForSequenceClassification(config).double().eval()
    stock.save_pretrained(folder)
    own = load_file(folder / "model.safetensors")
    write(folder, own | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    model = from_hf(folder)
    ids = torch.arange(3, 12)[None]
    with torch.no_grad():
        wanted = stock(ids).logits
        torch.testing.assert_close(model.classify(model.hidden(ids)), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_positions_of_marian_that_are_no_sines_are_refused(side: str, folder: Path):
    """transformers reads the table if the file has one; jumok computed it, and ignored the other."""
    tensors = saved("MarianMTModel", folder)
    name = f"model.{side}.embed_positions.weight"
    state = transformers.MarianMTModel.from_pretrained(folder).state_dict()
    for dtype in (torch.float64, torch.bfloat16):
        write(folder, tensors | {name: state[name].to(dtype)})
        from_hf(folder)
    write(folder, tensors | {name: other(state[name])})
    with pytest.raises(RunError, match=f"{name} is not the table of sines"):
        from_hf(folder)
