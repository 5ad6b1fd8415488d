"""A GPT as a GGUF file, so that llama.cpp computes the same logits: needs the package `gguf`.

The modern family is written as the architecture qwen3, the classic family as gpt2.

The vocabulary has the text of each id, but nothing to tokenize with: prompts are given as ids. It is declared to be of
the kind "bert", the one kind for which llama.cpp assumes no end-of-text id. Otherwise it would end a text at an id that
means something else here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import gguf
import numpy as np

from jumok.config import GPTConfig
from jumok.errors import JumokError
from jumok.interop.huggingface.convert import to_stock
from jumok.models.checks import require_tokenizer
from jumok.models.gpt import GPT

Kind = Literal["f32", "f16", "q8_0"]
KINDS: tuple[Kind, ...] = ("f32", "f16", "q8_0")
FILES = {
    "f32": gguf.LlamaFileType.ALL_F32,
    "f16": gguf.LlamaFileType.MOSTLY_F16,
    "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
}
MATRICES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # GPT-2 stores these transposed


def to_gguf(model: GPT, path: Path, kind: Kind) -> None:
    """Write a model. kind: of the numbers of its matrices; vectors and the positions of GPT-2 stay float32.

    Raises:
        JumokError: llama.cpp computes something else than this model.
    """
    config = model.config
    if config.labels or config.activation == "relu":
        raise JumokError("llama.cpp has no GPT with labels, and none with relu.")
    modern = config.family == "modern"
    writer = gguf.GGUFWriter(path, "qwen3" if modern else "gpt2")
    writer.add_file_type(FILES[kind])
    tensors = to_stock(config, {name: tensor.detach().float() for name, tensor in model.state_dict().items()})
    _write_shape(writer, config, heads=config.n_head if modern else _gpt2_heads(config))
    _write_vocabulary(writer, model)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3 if modern else gguf.MODEL_ARCH.GPT2, config.n_layer)
    for name, tensor in tensors.items():
        array = (tensor.T if name.endswith(CONV1D) else tensor).contiguous().numpy()
        its = MATRICES[kind] if array.ndim == 2 and ".wpe." not in name else gguf.GGMLQuantizationType.F32
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        writer.add_tensor(found, gguf.quants.quantize(array.astype(np.float32), its), raw_dtype=its)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _gpt2_heads(config: GPTConfig) -> int:
    """The number of heads of the stock class, into which those of jumok are padded; see `widen_heads`."""
    return next(h for h in range(config.n_head, config.n_embd + 1) if config.n_embd % h == 0)


def _write_shape(writer: Any, config: GPTConfig, heads: int) -> None:
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_head_count(heads)
    if config.family == "classic":
        writer.add_layer_norm_eps(config.norm_eps)
        return
    writer.add_head_count_kv(config.n_kv_head)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)


def _write_vocabulary(writer: Any, model: GPT) -> None:
    tokenizer, count = require_tokenizer(model), model.config.vocab_size
    known = tokenizer.vocab_size
    writer.add_tokenizer_model("bert")
    # A text may be part of a character, and be the same for several ids; llama.cpp wants different ones.
    texts, seen = [], set()
    for i in range(count):
        text = tokenizer.decode([i]) if i < known else ""
        texts.append(text if text and text not in seen else f"[{i}]")
        seen.add(texts[-1])
    writer.add_token_list(texts)
    writer.add_token_types([gguf.TokenType.NORMAL] * count)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
