"""To and from the model folders of Hugging Face `transformers`, which itself is not needed for it.

Which of our models is which stock class, and what config.json says of it, is in `jumok.config.huggingface`; here is
what becomes of tensors, tokenizers and files.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from jumok.config import ModelConfig
from jumok.config.huggingface import (
    HEADS,
    our_config,
    read_json,
    read_stock,
    stock_class,
    their_config,
    their_generation_config,
)
from jumok.errors import RunError
from jumok.interop.huggingface.bert import BERTFormat
from jumok.interop.huggingface.encoder_decoder import BARTFormat, MarianFormat
from jumok.interop.huggingface.folder import MARK, read_tensors, require_replaceable, write_folder
from jumok.interop.huggingface.gpt import GPT2, QWEN3, GPTFormat
from jumok.interop.huggingface.tensors import Format, Tensors, to_ours, to_theirs
from jumok.interop.huggingface.tokenizer import read_tokenizer, tokenizer_config, tokenizer_json
from jumok.models import Model, build_blank, require_stored

FORMATS: dict[str, Format[Any]] = {
    **dict.fromkeys(("Qwen3ForCausalLM", "Qwen3ForSequenceClassification"), GPTFormat(QWEN3, prefix="model.")),
    **dict.fromkeys(("GPT2LMHeadModel", "GPT2ForSequenceClassification"), GPTFormat(GPT2, prefix="transformer.")),
    **dict.fromkeys(HEADS, BERTFormat()),
    "BartForConditionalGeneration": BARTFormat(),
    "MarianMTModel": MarianFormat(),
}


def to_hf(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a model as a folder that `from_pretrained` of its stock class loads, in transformers 4.56 or newer.

    With a tokenizer at `model.tokenizer`, `AutoTokenizer.from_pretrained` loads that too, with the same ids. Weights
    keep their type. The folder appears complete or not at all; an earlier export in its place is replaced.

    Raises:
        RunError: the folder holds something else, or cannot be written.
        JumokError: no stock class can express the model: a rung of the ladder, a classic GPT whose heads are wider
            than n_embd, or a Transformer of 2017 that does not say with which id its decoder begins.
    """
    target = Path(folder)
    require_replaceable(target)
    stock = _format(model.config)
    parameters = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    config, parameters = stock.leaving(model.config, parameters)
    dtype = str(model.token_embedding.weight.dtype).removeprefix("torch.")
    documents = {"config.json": {**their_config(config), "dtype": dtype, MARK: version("jumok")}}
    generation = their_generation_config(config)
    if generation is not None:
        documents["generation_config.json"] = generation
    content = None
    if model.tokenizer is not None:
        documents["tokenizer_config.json"] = tokenizer_config(model.tokenizer, config)
        content = tokenizer_json(model.tokenizer, config)
    write_folder(target, documents, content, to_theirs(stock.rows(config), parameters))


def from_hf(folder: str | os.PathLike[str]) -> Model:
    """Load a folder of one of the stock classes in `jumok.config.huggingface`.

    Weights are read from safetensors, or else from pytorch_model.bin, of which nothing is taken but tensors.

    Returns:
        The model in eval mode, float64 where the file is and float32 otherwise, with `tokenizer` set where the
        folder has a tokenizer.json, or a vocab.txt of BERT's.

    Raises:
        RunError: a file is missing or damaged, or the tensors do not fit config.json; all of them are listed.
        JumokError: the model is another one, or has something that jumok has not; the message names it.
    """
    path = Path(folder)
    if not path.is_dir():
        raise RunError("there is no folder {path}; give one with a config.json and a model.safetensors.", path=path)
    config = our_config(read_stock(path / "config.json"), str(path))
    tensors = read_tensors(path)
    require_stored(config, sum(tensor.numel() for tensor in tensors.values()), str(path))
    config = _format(config).fitted(config, tensors)
    parameters = from_stock(config, tensors, str(path))
    model = build_blank(config)
    model.to(torch.promote_types(parameters["token_embedding.weight"].dtype, torch.float32))
    model.load_state_dict(parameters)
    model.tokenizer = read_tokenizer(path, config)
    return model.eval()


def is_hf(folder: Path) -> bool:
    """Whether a folder's config.json describes a model of `transformers`, known to us or not."""
    path = folder / "config.json"
    try:
        return path.is_file() and not {"architectures", "model_type"}.isdisjoint(read_json(path))
    except RunError:  # damaged: whoever opens it next says so
        return False


def to_stock(config: ModelConfig, parameters: Tensors) -> Tensors:
    """Stock tensors by name, from ours by name.

    Raises:
        JumokError: the stock class cannot express them.
    """
    stock = _format(config)
    config, parameters = stock.leaving(config, parameters)
    return to_theirs(stock.rows(config), parameters)


def from_stock(config: ModelConfig, tensors: Tensors, where: str) -> Tensors:
    """Our parameters by name, ready for `load_state_dict`, from stock tensors by name; `where` is for messages.

    Raises:
        RunError: tensors are missing, unknown or of another shape; all are listed.
    """
    stock = _format(config)
    parameters = to_ours(config, stock.rows(config), stock.tidied(config, tensors), where)
    return stock.arriving(config, parameters)


def _format(config: ModelConfig) -> Format[Any]:
    return FORMATS[stock_class(config)]
