"""`load` and `save`: a model from a run folder or a folder of Hugging Face, and into a run folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

from torch import nn

from jumok.errors import RunError
from jumok.interop.huggingface import from_hf, is_hf
from jumok.models import Model, build_blank
from jumok.runs.config import describe_model
from jumok.runs.folder import RunFolder
from jumok.text.hangul import nfc

M = TypeVar("M", bound=nn.Module)


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a model with its tokenizer as a run folder that `load`, `generate` and `evaluate` take.

    Raises:
        RunError: the model has no tokenizer, or the folder cannot be written or holds something else.
    """
    if model.tokenizer is None:
        raise RunError("this model has no tokenizer; set model.tokenizer before saving it, so that it can read text.")
    run = RunFolder.create(Path(folder), allow_existing_run=True)
    if run.is_trained():
        raise RunError(
            "{folder} holds a training run, which saving would overwrite; choose another folder.", folder=folder
        )
    with run.lock():
        run.write_config(describe_model(model.config, model.tokenizer))
        run.write_tokenizer(model.tokenizer)
        run.write_weights(model)


@overload
def load(path: str | os.PathLike[str], device: str = "cpu") -> Any: ...
@overload
def load(path: str | os.PathLike[str], device: str = "cpu", *, kind: type[M]) -> M: ...
def load(path: str | os.PathLike[str], device: str = "cpu", *, kind: type[nn.Module] = nn.Module) -> Any:
    """The model of a run folder with its best weights, or that of a Hugging Face folder.

    Nothing is printed or logged, and nothing of the process is changed, torch's random numbers included.

    Args:
        path: a run folder, or the folder of a stock model that `jumok.config.huggingface` supports.
        kind: GPT, BERT or EncoderDecoder, where one of them is required.

    Returns:
        The model, of its kind, in eval mode, its tokenizer at `.tokenizer`.

    Raises:
        RunError: the folder is neither, or a file of it is missing, damaged, or does not fit the others; or the model
            is of another kind.
        JumokError: the stock model is of an architecture that jumok does not support.
    """
    folder = Path(path)
    model = from_hf(folder) if is_hf(folder) else _load_run(folder)
    if not isinstance(model, kind):
        found, wanted = type(model).__name__, kind.__name__
        raise RunError(
            "{path} holds a model of the kind {found}, and one of the kind {wanted} is needed here.",
            path=path,
            found=found,
            wanted=wanted,
        )
    return model.to(device)


def _load_run(path: Path) -> Model:
    run = RunFolder.open(path)
    model = build_blank(run.model_config())
    model.tokenizer = run.read_tokenizer()
    run.read_weights(model)
    return model.eval()


def unseen_characters(path: str | os.PathLike[str], texts: Sequence[str]) -> list[list[str]]:
    """For each text its characters, in NFC, that no training text of a classifier or an encoder–decoder had.

    Args:
        path: a run folder. The lists are empty for a Hugging Face folder, for other models, and for runs from before
            the characters were recorded.

    Raises:
        RunError: there is no such folder.
    """
    folder = Path(path)
    data = {} if is_hf(folder) else RunFolder.open(folder).read_config().get("data", {})
    if "characters" not in data:
        return [[] for _ in texts]
    known = frozenset(data["characters"])
    return [[char for char in dict.fromkeys(nfc(text)) if char not in known] for text in texts]
