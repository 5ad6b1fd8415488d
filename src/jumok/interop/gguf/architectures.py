"""The architectures of llama.cpp that compute what a GPT of jumok computes, by the stock class of the GPT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFWriter, RopeScalingType
from torch import Tensor

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig, RungConfig, to_dict
from jumok.config.huggingface import stock_class
from jumok.errors import JumokError
from jumok.interop.huggingface.gpt import interleaved
from jumok.messages import tr
from jumok.models import Model
from jumok.nn.positions import scaled_frequencies

CONV1D = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")  # GPT-2 stores these transposed
MOST_ENDS = 3  # the ends of a text, of a turn and of a message
Change = Callable[[str, Tensor, GPTConfig], Tensor]


@dataclass(frozen=True)
class Architecture:
    """How the file of one stock class differs from others.

    Attributes:
        arch: the architecture in llama.cpp; `gguf` knows the names of its tensors.
        describe: writes the settings that are the architecture's own.
        change: from a tensor of the stock class, by its name, to that of llama.cpp.
        only: values of GPTVariantConfig that it has, for those fields where it has not all of them.
    """

    arch: MODEL_ARCH
    describe: Callable[[GGUFWriter, GPTConfig], None]
    change: Change
    only: Mapping[str, tuple[object, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the file."""
        return MODEL_ARCH_NAMES[self.arch]


def _classic(writer: GGUFWriter, config: GPTConfig) -> None:
    writer.add_layer_norm_eps(config.norm_eps)


def _modern(writer: GGUFWriter, config: GPTConfig) -> None:
    writer.add_head_count_kv(config.n_kv_head)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    _positions(writer, config)


def _gpt_neox(writer: GGUFWriter, config: GPTConfig) -> None:
    writer.add_layer_norm_eps(config.norm_eps)
    writer.add_parallel_residual(config.block().parallel)
    _positions(writer, config)


def _positions(writer: GGUFWriter, config: GPTConfig) -> None:
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
    """From q, k and v of each head to all of q, all of k and all of v."""
    return interleaved(config.n_head).back(tensor) if ".query_key_value." in name else tensor


SCALING = (None, "linear", "dynamic")
NO_BIAS = {"out_bias": (False,), "mlp_bias": (False,)}
GATED = {"gated": (True,), "norm": ("rms",), "parallel": (False,), "whole rotation": (True,), "rope_scaling": SCALING}
LLAMA = Architecture(
    MODEL_ARCH.LLAMA, _modern, _paired, GATED | {"qk_norm": (False,), "rope_scaling": (*SCALING, "llama3")}
)
ARCHITECTURES = {
    "GPT2LMHeadModel": Architecture(MODEL_ARCH.GPT2, _classic, _transposed),
    "Qwen3ForCausalLM": Architecture(
        MODEL_ARCH.QWEN3, _modern, _same, GATED | NO_BIAS | {"qk_norm": (True,), "qkv_bias": (False,)}
    ),
    "Qwen2ForCausalLM": Architecture(
        MODEL_ARCH.QWEN2, _modern, _same, GATED | NO_BIAS | {"qk_norm": (False,), "qkv_bias": (True,)}
    ),
    "LlamaForCausalLM": LLAMA,
    "MistralForCausalLM": LLAMA,
    "GPTNeoXForCausalLM": Architecture(
        MODEL_ARCH.GPTNEOX,
        _gpt_neox,
        _separated,
        {
            "qkv_bias": (True,), "out_bias": (True,), "mlp_bias": (True,), "qk_norm": (False,), "gated": (False,),
            "norm": ("layer",), "tie_embeddings": (False,), "rope_scaling": (None,),
            "activation": ("gelu", "gelu_tanh"),  # it computes gelu_tanh, which differs from gelu by 0.0005 at most
        },
    ),
}  # fmt: skip


def architecture_of(model: Model) -> Architecture:
    """The architecture of llama.cpp for a model.

    Raises:
        JumokError: there is none.
    """
    reason = _obstacle(model)
    if reason is not None:
        raise JumokError("llama.cpp cannot run this model: {reason}", reason=reason)
    return ARCHITECTURES[stock_class(model.config)]


def describe(writer: GGUFWriter, architecture: Architecture, config: GPTConfig) -> None:
    """Write the shape of a model."""
    writer.add_block_count(config.n_layer)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_head_count(config.n_head)
    writer.add_vocab_size(config.vocab_size)
    architecture.describe(writer, config)


def _obstacle(model: Model) -> str | None:
    """Why llama.cpp has no architecture for a model, and what to use instead; None: it has one."""
    config = model.config
    if isinstance(config, BERTConfig):
        return tr("it is a BERT, which does not write texts. Use `jumok convert --to hf`.")
    if isinstance(config, EncoderDecoderConfig):
        return tr(
            "it is an encoder-decoder, and llama.cpp runs only those of T5. Use `jumok convert --to hf` or `--to page`."
        )
    if isinstance(config, RungConfig):
        return tr("it is a model of the ladder, a GPT with components removed. Train a full GPT with `jumok train`.")
    if config.labels:
        return tr("it is a classifier, which does not write texts. Use `jumok convert --to hf` or `--to page`.")
    if config.activation == "relu":
        return tr(
            "it has activation='relu', and the GPT-2 of llama.cpp has gelu. Use `jumok convert --to hf` or `--to page`."
        )
    if not all(bool(one.isfinite().all()) for one in model.parameters()):
        return tr(
            "its parameters are not finite: they are damaged, or its training diverged. Train again with a lower "
            "learning rate, or load an earlier copy."
        )
    if len(config.eos_ids) > MOST_ENDS:
        return tr(
            "it has {count} ids that end a text, {ids}, and a GGUF file holds {most}: it would write on after the "
            "others. Use `jumok convert --to hf`.",
            count=len(config.eos_ids),
            ids=", ".join(map(str, config.eos_ids)),
            most=MOST_ENDS,
        )
    if config.generation is not None:
        rules = [name for name, value in to_dict(config.generation).items() if value]
        return tr(
            "it has rules about what it generates, {rules}, and a GGUF file holds none. Use `jumok convert --to hf`.",
            rules=", ".join(rules),
        )
    name = stock_class(config)
    if name not in ARCHITECTURES:
        return tr("jumok does not write {name} as GGUF; it writes {known}.", name=name, known=", ".join(ARCHITECTURES))
    return _missing_component(config, ARCHITECTURES[name]) if isinstance(config, GPTVariantConfig) else None


def _missing_component(config: GPTVariantConfig, architecture: Architecture) -> str | None:
    """Why an architecture of llama.cpp lacks a component of a model; None: it has all of them."""
    scaling = config.rope_scaling
    values = {
        **to_dict(config),
        "rope_scaling": None if scaling is None else scaling.kind,
        "whole rotation": config.rotary_dim == config.head_dim,
    }
    wrong = next((name for name, known in architecture.only.items() if values[name] not in known), None)
    window = config.sliding_window if config.sliding_layers else None
    if wrong is None and window is not None and window < config.context_length:
        wrong = "sliding_window"
    if wrong is None:
        return None
    return tr(
        "the architecture {architecture} of llama.cpp lacks a component of it, {name}={value!r}. Use "
        "`jumok convert --to hf`.",
        architecture=architecture.name,
        name="rotary_dim" if wrong == "whole rotation" else wrong,
        value=config.rotary_dim if wrong == "whole rotation" else values[wrong],
    )
