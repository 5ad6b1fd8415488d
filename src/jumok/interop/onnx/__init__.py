"""Export of a model to an ONNX file, for onnxruntime and other programs; needs the package `onnx`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from jumok.errors import JumokError
from jumok.files import on_disk
from jumok.models import Model


def to_onnx(model: Model, path: str | os.PathLike[str]) -> tuple[Path, ...]:
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

    Returns:
        The files that were written, the model first.

    Raises:
        JumokError: the model is an encoder–decoder or a model of the ladder, or larger than a file can be; or `onnx` is
            not installed.
        RunError: the file cannot be written; an older one is unchanged.
    """
    if find_spec("onnx") is None:
        raise JumokError(
            "ONNX files are written by the package onnx, which is not installed. Install it with: "
            "pip install 'jumok[onnx]'"
        )
    from jumok.interop.onnx.write import write

    target = on_disk(path)
    return write(model, target, tokenizer_beside(target))


def tokenizer_beside(path: Path) -> Path:
    """Return the name of the tokenizer of an ONNX file."""
    return path.with_suffix(".tokenizer.json")


__all__ = ["to_onnx", "tokenizer_beside"]
