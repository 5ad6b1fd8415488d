"""Conversion of models from and to folders of Hugging Face `transformers`; the package itself is not needed.

This package converts tensors, tokenizers and files. `jumok.config.huggingface` converts configurations.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import torch

from jumok.config import ModelConfig
from jumok.config.huggingface import (
    DECODERS,
    ENCODERS,
    our_config,
    read_stock,
    stock_class,
    their_config,
    their_generation_config,
)
from jumok.corpora.hub import folder_of, hint
from jumok.errors import RunError
from jumok.files import on_disk
from jumok.interop.huggingface.bert import BERTFormat
from jumok.interop.huggingface.card import Card, model_card
from jumok.interop.huggingface.encoder_decoder import BARTFormat, MarianFormat
from jumok.interop.huggingface.folder import (
    MARK,
    read_tensors,
    require_replaceable,
    write_folder,
)
from jumok.interop.huggingface.gpt import GPT2_FORMAT, GPT_NEOX_FORMAT, LLAMA_FORMAT
from jumok.interop.huggingface.tensors import Format, Tensors, fill, to_theirs
from jumok.interop.huggingface.tokenizer import read_tokenizer, tokenizer_config, tokenizer_json
from jumok.models import Model, build_blank, require_stored
from jumok.models.special_ids import frame_of_file
from jumok.version import __version__

FORMATS: dict[str, Format[Any]] = {
    **{
        name + head: GPT_NEOX_FORMAT if name == "GPTNeoX" else LLAMA_FORMAT
        for name in DECODERS
        for head in ("ForCausalLM", "ForSequenceClassification")
    },
    **dict.fromkeys(("GPT2LMHeadModel", "GPT2ForSequenceClassification"), GPT2_FORMAT),
    **dict.fromkeys(ENCODERS, BERTFormat()),
    "BartForConditionalGeneration": BARTFormat(),
    "MarianMTModel": MarianFormat(),
}


def to_hf(model: Model, folder: str | os.PathLike[str], *, card: Card | None = None) -> None:
    """Export a model to a folder that `from_pretrained` of its stock class loads, in transformers 4.56 or newer.

    `model.tokenizer`, if set, is exported too; `AutoTokenizer.from_pretrained` then gives the same ids. Parameters keep
    their dtype. The folder is written atomically; an earlier export is replaced.

    Args:
        model: to export.
        folder: to write.
        card: what README.md, the model card, says; None: no card.

    Raises:
        RunError: the folder contains other files, or cannot be written.
        JumokError: no stock class can express the model: a `Rung`, a classic GPT whose heads together are wider than
            n_embd, or an "original" encoder–decoder without decoder_start_id.
    """
    target = on_disk(folder)
    require_replaceable(target)
    stock = _format(model.config)
    parameters = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    config, parameters = stock.for_export(model.config, parameters)
    dtype = str(model.token_embedding.weight.dtype).removeprefix("torch.")
    documents = {"config.json": {**their_config(config), "dtype": dtype, MARK: __version__}}
    answers = model.tokenizer is not None and model.tokenizer.chat is not None
    generation = their_generation_config(config, answers=answers)
    if generation is not None:
        documents["generation_config.json"] = generation
    contents: dict[str, str] = {}
    if model.tokenizer is not None:
        documents["tokenizer_config.json"] = tokenizer_config(model.tokenizer, config)
        contents["tokenizer.json"] = tokenizer_json(model.tokenizer, config)
    if card is not None:
        contents["README.md"] = model_card(model, card, stock_class(config))
    write_folder(target, documents, contents, to_theirs(stock.rows(config), parameters))


def from_hf(folder: str | os.PathLike[str]) -> Model:
    """Load a model from a folder of one of the stock classes in `jumok.config.huggingface`.

    Tensors are read from safetensors files, or from pytorch_model.bin with `weights_only=True`, one after the other:
    the memory needed is about that of the model and of one file. Python code in the folder is never run.

    Returns:
        The model in eval mode, in float64 if the file is and in float32 otherwise. `tokenizer` is set if the folder has
        a tokenizer.json, or a vocab.txt as of BERT.

    Raises:
        RunError: a file is missing or damaged, or the tensors do not fit config.json; the message lists all of them.
        JumokError: jumok does not support the architecture or one of its settings; the message names it.
    """
    path = folder_of(folder)
    config, dtype, tensors = _open(path)
    model = build_blank(config).to(dtype)
    fill(model, _format(config), tensors, str(path))
    model.tokenizer = read_tokenizer(path, config)
    if model.tokenizer is not None:
        model.config = dataclasses.replace(model.config, frame=frame_of_file(model.tokenizer))
    return model.eval()


def shape_of(folder: str | os.PathLike[str]) -> tuple[ModelConfig, torch.dtype]:
    """Return the configuration and the type of the parameters of the model that `from_hf` loads; raises as it does.

    The files of tensors are mapped into memory, and the numbers in them are not read.
    """
    config, dtype, _ = _open(folder_of(folder))
    return config, dtype


def _open(path: Path) -> tuple[ModelConfig, torch.dtype, Tensors]:
    """Return the configuration of a folder, the type of the parameters in memory, and the tensors as stored."""
    if path.is_file():
        raise RunError("{path} is a file; give a folder with a config.json and a model.safetensors.", path=path)
    if not path.is_dir():
        raise RunError(
            "there is no folder {path}; give one with a config.json and a model.safetensors.{hint}",
            path=path,
            hint=hint(path),
        )
    config = our_config(read_stock(path / "config.json"), str(path))
    config.require_vocabulary()
    tensors = read_tensors(path)
    require_stored(config, sum(tensor.numel() for tensor in tensors.values()), str(path))
    double = any(tensor.dtype == torch.float64 for tensor in tensors.values())
    return _format(config).adjusted(config, tensors), torch.float64 if double else torch.float32, tensors


def _format(config: ModelConfig) -> Format[Any]:
    return FORMATS[stock_class(config)]
