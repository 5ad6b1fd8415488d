"""`load` a model from a run folder or a Hugging Face folder, and `save` one as a run folder."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from jumok.config import ModelConfig
from jumok.corpora.hub import folder_of, is_hf
from jumok.errors import RunError
from jumok.inference.native.build import library, why_not
from jumok.runs.config import describe_model
from jumok.runs.folder import RunFolder
from jumok.text.hangul import nfc

if TYPE_CHECKING:  # configurations are read without torch
    import torch
    from torch import nn

    from jumok.models import Model

    M = TypeVar("M", bound=nn.Module)


def save(model: Model, folder: str | os.PathLike[str]) -> None:
    """Write a model and its tokenizer as a run folder, for `load` and the command line.

    Raises:
        RunError: the model has no tokenizer, the folder contains other files or a training run, or it cannot be
            written.
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
        run.write_parameters(model)


@overload
def load(path: str | os.PathLike[str], device: str = "cpu", *, compile: bool = False, verify: bool = True) -> Any: ...
@overload
def load(
    path: str | os.PathLike[str], device: str = "cpu", *, kind: type[M], compile: bool = False, verify: bool = True
) -> M: ...
def load(
    path: str | os.PathLike[str],
    device: str = "cpu",
    *,
    kind: type[nn.Module] | None = None,
    compile: bool = False,
    verify: bool = True,
) -> Any:
    """Load the model of a run folder, with its best parameters, or of a Hugging Face folder.

    Nothing is printed or logged, except while a model is downloaded; torch's random state is not changed.

    Args:
        path: a run folder, or a folder of `transformers` with an architecture in `jumok.config.huggingface`, or the
            name of such a model on huggingface.co, as "hf:klue/bert-base"; see `jumok.corpora.hub`.
        device: the device of the model.
        kind: GPT, BERT or EncoderDecoder, to require that class; None: any.
        compile: build the C++ step that generates with a GPT on a CPU, if it is not there yet. It takes about ten
            seconds once; later processes find it. If it cannot be built, a warning says why, and PyTorch generates.
        verify: compare the SHA-256 of the parameters of a run folder with config.json, which takes about a second for
            each gigabyte. Runs that earlier versions wrote have none, and Hugging Face folders neither.

    Returns:
        The model, in eval mode, with its tokenizer in the attribute `tokenizer`.

    Raises:
        RunError: the folder has neither format; a file is missing or damaged, or does not fit the others; or the model
            has another class than `kind`.
        JumokError: the model has an architecture that jumok does not support.
    """
    from jumok.interop.huggingface import from_hf

    folder = folder_of(path)
    model = from_hf(folder) if is_hf(folder) else _load_run(folder, verify)
    if kind is not None and not isinstance(model, kind):
        found, wanted = type(model).__name__, kind.__name__
        raise RunError(
            "{path} contains a model of the class {found}, but {wanted} is required.",
            path=path,
            found=found,
            wanted=wanted,
        )
    if compile and not library(build=True):
        warnings.warn(why_not() or "", RuntimeWarning, stacklevel=2)
    return model.to(device)


def _load_run(path: Path, verify: bool) -> Model:
    from jumok.models import build_blank

    run = RunFolder.open(path)
    model = build_blank(run.model_config())
    model.tokenizer = run.read_tokenizer()
    run.read_parameters(model, verify=verify)
    return model.eval()


def read_shape(path: str | os.PathLike[str]) -> ModelConfig:
    """Return the configuration of the model in a run folder or a Hugging Face folder, without its parameters.

    Raises:
        RunError: the folder has neither format, or a file is missing or damaged.
        JumokError: the model has an architecture that jumok does not support.
    """
    folder = folder_of(path)
    if is_hf(folder):
        from jumok.config.huggingface import our_config, read_stock

        return our_config(read_stock(folder / "config.json"), str(folder))
    return RunFolder.open(folder).model_config()


def stored_shape(path: str | os.PathLike[str]) -> tuple[ModelConfig, torch.dtype]:
    """Return the configuration and the type of the parameters of the model that `load` makes of a folder.

    The types in the files may be others: `load` widens them to float32. The parameters are not read.

    Raises:
        RunError, JumokError: as `read_shape`, or a file of tensors of a Hugging Face folder is missing or damaged.
    """
    import torch

    from jumok.interop.huggingface import shape_of

    folder = folder_of(path)
    return shape_of(folder) if is_hf(folder) else (read_shape(folder), torch.get_default_dtype())


def unseen_characters(path: str | os.PathLike[str], texts: Sequence[str]) -> list[list[str]]:
    """Return the characters of each text, in NFC, that did not occur in the training texts.

    They are recorded only for classifiers and encoder–decoders. For other models, Hugging Face folders and older runs
    the lists are empty.

    Args:
        path: a run folder or a Hugging Face folder.

    Raises:
        RunError: there is no such folder.
    """
    folder = folder_of(path)
    data = {} if is_hf(folder) else RunFolder.open(folder).read_config().get("data", {})
    if data.get("characters") is None:
        return [[] for _ in texts]
    known = frozenset(data["characters"])
    return [[char for char in dict.fromkeys(nfc(text)) if char not in known] for text in texts]
