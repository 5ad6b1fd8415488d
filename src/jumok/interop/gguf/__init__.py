"""Export of a GPT to a GGUF file, which llama.cpp and the programs built on it read; needs the package `gguf`."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

from jumok.errors import JumokError
from jumok.models import Model

if TYPE_CHECKING:
    from jumok.interop.gguf.write import Written

Kind = Literal["f32", "f16", "q8_0"]
KINDS: tuple[Kind, ...] = ("f32", "f16", "q8_0")


def to_gguf(
    model: Model,
    path: str | os.PathLike[str],
    kind: Kind = "f32",
    *,
    name: str | None = None,
    licence: str | None = None,
) -> Written:
    """Write a GPT and its tokenizer as one file, atomically. llama.cpp computes the same logits, up to rounding.

    Args:
        path: the file; an older one is replaced.
        kind: of the numbers of the matrices: "f32"; "f16"; or "q8_0", 8-bit integers with a factor for each 32 of them.
            Vectors and learned positions stay float32.
        name: of the model, in the file's metadata [that of the file].
        licence: of the model, in the metadata; None: none is written.

    Returns:
        What was written, and which matrices are not of the kind that was asked for.

    Raises:
        JumokError: llama.cpp cannot run the model or its tokenizer, the message says why; or `gguf` is not installed.
        TokenizerError: the model has no tokenizer.
        RunError: the file cannot be written; an older one is unchanged.
    """
    if find_spec("gguf") is None:
        raise JumokError(
            "GGUF files are written by the package gguf, which is not installed. Install it with: "
            "pip install 'jumok[gguf]'"
        )
    from jumok.interop.gguf.write import write

    return write(model, path, kind, name=name, licence=licence)


__all__ = ["KINDS", "Kind", "to_gguf"]
