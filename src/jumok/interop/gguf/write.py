"""Writing a GGUF file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_VERSION, GGMLQuantizationType, GGUFWriter, LlamaFileType, get_tensor_name_map, quants
from numpy.typing import NDArray

from jumok.config import GPTConfig
from jumok.config.huggingface import stock_class
from jumok.errors import JumokError
from jumok.files import atomic_path, on_disk, writing
from jumok.interop.gguf.architectures import Architecture, architecture_of, describe
from jumok.interop.gguf.chats import for_chats, template_for
from jumok.interop.gguf.vocabulary import vocabulary_of
from jumok.interop.huggingface.convert import FORMATS
from jumok.interop.huggingface.tensors import to_theirs
from jumok.messages import tr
from jumok.models import Model
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import frame_of
from jumok.version import __version__

TYPES = {
    "f32": (LlamaFileType.ALL_F32, GGMLQuantizationType.F32),
    "f16": (LlamaFileType.MOSTLY_F16, GGMLQuantizationType.F16),
    "q8_0": (LlamaFileType.MOSTLY_Q8_0, GGMLQuantizationType.Q8_0),
}
BLOCK = 32  # numbers of a row that share a factor in q8_0
LARGEST_HALF = 65504.0
# The program of a chat would otherwise put roles around a text, of which a GPT that was trained here knows nothing.
CONTINUE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MARK = "jumok.version"  # the file is an export of jumok and may be replaced


@dataclass(frozen=True)
class Written:
    """A file that was written.

    Attributes:
        path: the file. bytes: its size.
        architecture: its name in llama.cpp.
        tokenizer: the algorithm of its tokenizer in llama.cpp.
        others: the type of each matrix that is not of the kind that was asked for, by name: rows that q8_0 cannot
            divide, or numbers that are too large for f16.
        notes: what differs in llama.cpp for a prompt that is no conversation.
    """

    path: Path
    bytes: int
    architecture: str
    tokenizer: str
    others: dict[str, str]
    notes: tuple[str, ...] = ()


def write(model: Model, path: str | os.PathLike[str], kind: str, *, name: str | None, licence: str | None) -> Written:
    """Write a model; see `jumok.interop.gguf.to_gguf`."""
    target = on_disk(path)
    architecture = architecture_of(model)
    tokenizer = require_tokenizer(model)
    assert isinstance(model.config, GPTConfig)  # `architecture_of` refuses all others
    pad = tokenizer.id_of("pad_token") if model.config.pad_id is None else model.config.pad_id
    vocabulary, before = vocabulary_of(tokenizer), frame_of(model.config, tokenizer).before
    if len(before) > 1:
        raise JumokError(
            "llama.cpp puts at most one token before a text, and this model reads {count} there: {tokens}. Use `jumok "
            "convert --to hf`.",
            count=len(before),
            tokens=" ".join(tokenizer.pieces(before)),
        )
    start = next(iter(before), None)
    vocabulary, begun, notes = for_chats(vocabulary, tokenizer, start)
    bos = tokenizer.id_of("bos_token") if start is None and tokenizer.chat_templates else start
    stock = FORMATS[stock_class(model.config)]
    parameters = {name: tensor.detach().cpu().float() for name, tensor in model.state_dict().items()}
    config, parameters = stock.for_export(model.config, parameters)
    file_type, wanted = TYPES[kind]
    others: dict[str, str] = {}
    with writing(target), atomic_path(target) as temporary:
        writer = GGUFWriter(temporary, architecture.name)
        writer.add_string(MARK, __version__)
        writer.add_type("model")
        writer.add_name((name or target.stem).encode(errors="replace").decode())
        if licence is not None:
            writer.add_license(licence.encode(errors="replace").decode())
        writer.add_file_type(file_type)
        writer.add_quantization_version(GGML_QUANT_VERSION)
        describe(writer, config)
        vocabulary.write(writer, config, bos, begun, pad)
        templates = [
            {"name": name, "template": template_for(text, vocabulary, config, tokenizer, bos)}
            for name, text in tokenizer.chat_templates.items()
        ]
        if templates or tokenizer.kind != "other":
            writer.add_chat_template(templates or CONTINUE)
        tensors = to_theirs(stock.rows(config), parameters)
        for place, numbers in _arrays(architecture, config, tensors):
            its = _type(place, numbers, wanted)
            if numbers.ndim == 2 and its != wanted and place != "position_embd.weight":
                others[place] = its.name.lower()
            packed = quants.quantize(numbers, its)
            writer.add_tensor(place, packed, raw_dtype=its)
        try:
            _write_out(writer)
        except OSError as error:  # of NumPy, which tells only how many numbers were written
            raise error if error.errno else OSError(tr("the disk took a part of the file only")) from None
    return Written(target, target.stat().st_size, architecture.name, vocabulary.algorithm, others, notes)


def _arrays(
    architecture: Architecture, config: GPTConfig, tensors: dict[str, Any]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield the arrays of a file, and their names there."""
    names = get_tensor_name_map(architecture.arch, config.n_layer)
    for name, tensor in tensors.items():
        place = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert place is not None, name
        yield place, architecture.change(name, tensor, config).contiguous().numpy()


def _type(place: str, numbers: NDArray[np.float32], wanted: GGMLQuantizationType) -> GGMLQuantizationType:
    """Return the type in which an array is stored."""
    if numbers.ndim < 2 or place == "position_embd.weight":
        return GGMLQuantizationType.F32
    if wanted == GGMLQuantizationType.Q8_0 and numbers.shape[-1] % BLOCK:
        wanted = GGMLQuantizationType.F16  # as the converter of llama.cpp does
    # The factors of q8_0 are float16 too.
    largest = float(np.abs(numbers).max(initial=0)) / (127 if wanted == GGMLQuantizationType.Q8_0 else 1)
    return wanted if largest <= LARGEST_HALF else GGMLQuantizationType.F32


def _write_out(writer: GGUFWriter) -> None:
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
