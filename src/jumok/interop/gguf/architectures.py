"""The architectures of llama.cpp that compute what a GPT of jumok computes, by those of `transformers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, RopeScalingType
from torch import Tensor

from jumok.config import GPTConfig
from jumok.config.features import LLAMA_CPP, require
from jumok.config.features import architecture_of as stock_architecture
from jumok.interop.huggingface.gpt import CONV1D, interleaved
from jumok.models import Model
from jumok.models.checks import require_finite
from jumok.nn.positions import scaled_frequencies

Change = Callable[[str, Tensor, GPTConfig], Tensor]


@dataclass(frozen=True)
class Architecture:
    """The models of a stock class in llama.cpp.

    Attributes:
        arch: the architecture; `gguf` knows the names of its tensors.
        change: from a tensor of the stock class, by its name, to that of llama.cpp.
    """

    arch: MODEL_ARCH
    change: Change

    @property
    def name(self) -> str:
        """Return its name in the file."""
        return MODEL_ARCH_NAMES[self.arch]


def _describe_rotation(writer: GGUFWriter, config: GPTConfig) -> None:
    writer.add_rope_dimension_count(config.rotated)
    writer.add_rope_freq_base(config.rope_theta)
    scaling = config.frequency_scaling
    if scaling is None or scaling.kind == "dynamic":  # within the context it changes nothing
        return
    if scaling.kind == "linear":
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling.factor)
    else:  # llama3: a divisor of each frequency
        plain, _ = scaled_frequencies(config.rotated, config.rope_theta, None)
        scaled, _ = scaled_frequencies(config.rotated, config.rope_theta, scaling)
        writer.add_tensor("rope_freqs.weight", (plain / scaled).numpy())


def _same(name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
    return tensor


def _transposed(name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
    return tensor.T if name.endswith(CONV1D) else tensor


def _paired(name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
    """Put the two dimensions that are rotated together next to each other: the Llama of llama.cpp has them so."""
    if ".q_proj." not in name and ".k_proj." not in name:
        return tensor
    return tensor.unflatten(0, (-1, 2, config.head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _separated(name: str, tensor: Tensor, config: GPTConfig) -> Tensor:
    """Put all of q, all of k and all of v after one another; GPT-NeoX has them head by head."""
    return interleaved(config.n_head).back(tensor) if ".query_key_value." in name else tensor


LLAMA = Architecture(MODEL_ARCH.LLAMA, _paired)
ARCHITECTURES = {
    "GPT2": Architecture(MODEL_ARCH.GPT2, _transposed),
    "Qwen3": Architecture(MODEL_ARCH.QWEN3, _same),
    "Qwen2": Architecture(MODEL_ARCH.QWEN2, _same),
    "Llama": LLAMA,
    "Mistral": LLAMA,
    "GPTNeoX": Architecture(MODEL_ARCH.GPTNEOX, _separated),
}


def architecture_of(model: Model) -> Architecture:
    """Return the architecture of llama.cpp for a model.

    Raises:
        JumokError: there is none, or parameters are not finite.
    """
    require(model.config, LLAMA_CPP)
    for parameter in model.parameters():
        require_finite(parameter)
    return ARCHITECTURES[str(stock_architecture(model.config))]


def describe(writer: GGUFWriter, config: GPTConfig) -> None:
    """Write the shape of a model."""
    block = config.block()
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_vocab_size(config.vocab_size)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_kv_head)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_parallel_residual(block.parallel)
    (writer.add_layer_norm_eps if block.norm == "layer" else writer.add_layer_norm_rms_eps)(config.norm_eps)
    if config.rotated:
        _describe_rotation(writer, config)
