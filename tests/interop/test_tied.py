"""Tensors that a folder has twice although its class shares them: equal, different, or under one name only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_stock_models import CASES, assert_same
from test_stock_models import saved as saved_stock
from torch import Tensor

import jumok
from jumok.errors import RunError
from jumok.interop.huggingface import from_hf, to_hf
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import models

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")
pytestmark = pytest.mark.slow

SHARED: dict[str, tuple[str, ...]] = {  # the tensor that `save_pretrained` writes, and its other names
    "GPT-2": ("transformer.wte.weight", "lm_head.weight"),
    "Llama": ("model.embed_tokens.weight", "lm_head.weight"),
    "GPT-NeoX": ("gpt_neox.embed_in.weight", "embed_out.weight", "lm_head.weight"),
    "BERT, mlm": ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"),
    "RoBERTa, mlm": ("roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
    "ELECTRA, mlm": ("electra.embeddings.word_embeddings.weight", "generator_lm_head.weight"),
    "BART": (
        "model.shared.weight", "lm_head.weight", "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    ),
}  # fmt: skip
BIASES = {
    "BERT, mlm": ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "RoBERTa, mlm": ("lm_head.bias", "lm_head.decoder.bias"),
    "ELECTRA, mlm": ("generator_lm_head.bias", "generator_predictions.bias"),
}
COPIES = [(case, name) for case, names in SHARED.items() for name in names[1:]]
DECODERS = [(case, name) for case, name in COPIES if case in ("GPT-2", "Llama", "GPT-NeoX")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "stock"


def saved(case: str, folder: Path) -> dict[str, Tensor]:
    """Save a random float64 model that says it is tied; its tensors."""
    saved_stock(case, folder, tie_word_embeddings=True)
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
    stock = getattr(transformers, CASES[case][0]).from_pretrained(folder, dtype=torch.float64)
    assert_same(from_hf(folder), stock.eval())


@pytest.mark.parametrize(("case", "copy"), COPIES)
def test_an_equal_copy_is_left_out_and_one_under_another_name_is_found(case: str, copy: str, folder: Path):
    """transformers ties in both directions: an embedding that is missing is the matrix of the output layer."""
    tensors = saved(case, folder)
    write(folder, tensors | {copy: tensors[SHARED[case][0]]})
    assert_same_logits(case, folder)
    shared = tensors.pop(SHARED[case][0])
    write(folder, tensors | {copy: shared})
    assert_same_logits(case, folder)


@pytest.mark.parametrize(("case", "copy"), DECODERS)
def test_another_output_layer_of_a_decoder_is_read_and_kept(case: str, copy: str, folder: Path, tmp_path: Path):
    """Merging an adapter leaves two matrices and says that they are tied."""
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
    """jumok has no BERT and no encoder–decoder with two matrices."""
    tensors = saved(case, folder)
    write(folder, tensors | {copy: other(tensors[SHARED[case][0]])})
    with pytest.raises(RunError, match=f"{copy} differs from "):
        from_hf(folder)


@pytest.mark.parametrize("case", BIASES)
def test_the_bias_of_a_head_is_the_one_that_transformers_adds(case: str, folder: Path):
    """Where a file has two different ones, it adds that of the decoder, but for ELECTRA."""
    tensors = saved(case, folder)
    bias, copy = BIASES[case]
    first = tensors.pop(bias)
    tensors.pop(copy, None)
    second = other(first)
    for given in ({bias: first, copy: second}, {bias: first}, {copy: second})[: 2 if "ELECTRA" in case else 3]:
        write(folder, tensors | given)
        assert_same_logits(case, folder)


def test_training_goes_on_with_two_matrices(folder: Path, tmp_path: Path):
    """The first look at a folder to begin with reads config.json only, which says that there is one."""
    tensors = saved("Llama", folder)
    write(folder, tensors | {"lm_head.weight": other(tensors["model.embed_tokens.weight"])})
    letters = "abcdefgh"
    HFTokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, [])).save(str(folder / "tokenizer.json"))
    settings: dict[str, Any] = {"steps": 1, "learning_rate": 1e-9, "weight_decay": 0.0, "batch_size": 2}
    trained = jumok.train(letters * 40, tmp_path / "run", init=folder, quiet=True, device="cpu", **settings)
    assert not trained.config.tie_embeddings
    torch.testing.assert_close(trained.head.weight, from_hf(folder).head.weight.float(), rtol=0, atol=1e-6)


def test_a_classifier_ignores_an_output_layer(folder: Path):
    """The stock class has none."""
    tensors = saved("Llama, classes", folder)
    write(folder, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1})
    assert_same_logits("Llama, classes", folder)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_positions_of_marian_that_are_no_sines_are_refused(side: str, folder: Path):
    """transformers reads the table if the file has one."""
    tensors = saved("Marian", folder)
    name = f"model.{side}.embed_positions.weight"
    state = transformers.MarianMTModel.from_pretrained(folder).state_dict()
    for dtype in (torch.float64, torch.bfloat16):
        write(folder, tensors | {name: state[name].to(dtype)})
        from_hf(folder)
    write(folder, tensors | {name: other(state[name])})
    with pytest.raises(RunError, match=f"{name} is not the table of sines"):
        from_hf(folder)
