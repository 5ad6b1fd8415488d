"""Export of a model to an ONNX file, for onnxruntime and other programs; needs the package `onnx`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from jumok.errors import JumokError
from jumok.models import Model

DATA, TOKENIZER = ".data", ".tokenizer.json"
LARGEST_FILE = 2_000_000_000  # bytes; protobuf allows 2 GiB for one message


@dataclass(frozen=True)
class Written:
    """The files that were written, the model first, and their bytes."""

    paths: tuple[Path, ...]
    bytes: int


def to_onnx(model: Model, path: str | os.PathLike[str], *, largest_file: int = LARGEST_FILE) -> Written:
    """Write a model as an ONNX file, and its tokenizer beside it. onnxruntime computes the same, up to rounding.

    The parameters are float32. With the names of `transformers`, where B texts have T tokens and P before them:

        GPT              input_ids (B, T), past_key_values.N.key and .value (B, G, P, D)
                         -> logits (B, T, V), present.N.key and .value (B, G, P + T, D)
        GPT with labels  input_ids, attention_mask (B, T) -> logits (B, number of labels)
        BERT             input_ids, attention_mask, token_type_ids (B, T) -> logits (B, T, V) or (B, number of labels),
                         or last_hidden_state (B, T, C) and, with a pooler, pooler_output (B, C)

    A whole text has P = 0. All lengths are dynamic; P + T is at most the context length.

    Args:
        path: the file; an older one is replaced. The tokenizer, if the model has one, becomes NAME.tokenizer.json.
        largest_file: with more bytes of parameters they are in a second file, NAME.onnx.data.

    Raises:
        JumokError: the model is an encoder–decoder or a model of the ladder; or `onnx` is not installed.
        RunError: the file cannot be written; an older one is unchanged.
    """
    if find_spec("onnx") is None:
        raise JumokError(
            "ONNX files are written by the package onnx, which is not installed. Install it with: "
            "pip install 'jumok[onnx]'"
        )
    from jumok.interop.onnx.write import write

    target = Path(path)
    paths = write(model, target, *beside(target), largest_file=largest_file)
    return Written(paths, sum(one.stat().st_size for one in paths))


def beside(path: Path) -> tuple[Path, Path]:
    """Return the names of the files that belong to an ONNX file: the parameters of a large model, and the tokenizer."""
    return Path(f"{path}{DATA}"), path.with_suffix(TOKENIZER)


__all__ = ["Written", "beside", "to_onnx"]
