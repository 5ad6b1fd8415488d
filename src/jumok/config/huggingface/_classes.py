"""The stock classes of `transformers` that jumok reads and writes: one entry for each architecture.

An entry names the settings of a config.json and the matching fields of jumok. `_reading.py` and `_writing.py` convert
by it, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig, GPTVariantConfig, ModelConfig


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The settings of the classes of one architecture.

    Attributes:
        model_type: its name in config.json.
        config: the configuration of its models.
        names: from settings that a file must have to fields of the configuration.
        optional: from other settings to fields, and the default of the class.
        fixed: fields that all its models have.
        activation: the setting of the activation.
        activations: from its values to those of the configuration; the first is the default.
        neutral: settings with which jumok computes; a file with another value is refused.
        attention_bias: default of a decoder's setting with this name; None: it has none.
        window: which layers of a decoder have a sliding window: "all", "some" (with use_sliding_window), or "".
        partial: whether a decoder rotates only a part of each head.
    """

    model_type: str
    config: type[ModelConfig]
    names: Mapping[str, str]
    optional: Mapping[str, tuple[str, Any]]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    activation: str = "hidden_act"
    activations: Mapping[str, str]
    neutral: Mapping[str, Any] = field(default_factory=dict)
    attention_bias: bool | None = None
    window: str = ""
    partial: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """The field of each setting, by its name in config.json."""
        return {**self.names, **{their: our for their, (our, _) in self.optional.items()}}


SIZES = {  # of most classes
    "vocab_size": "vocab_size",
    "max_position_embeddings": "context_length",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "hidden_size": "n_embd",
    "intermediate_size": "mlp_width",
}
IDS = {
    "pad_token_id": "pad_id",
    "bos_token_id": "bos_id",
    "eos_token_id": "eos_id",
    "decoder_start_token_id": "decoder_start_id",
    "forced_bos_token_id": "forced_bos_id",
    "forced_eos_token_id": "forced_eos_id",
}
TANH = dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu_tanh")
SILU = {"silu": "silu", "swish": "silu"}


# --- decoders ---------------------------------------------------------------------------------------------------------

_HEAD_DIM = {"head_dim": ("head_dim", None)}


def _gated(model_type: str, optional: Mapping[str, tuple[str, Any]], **others: Any) -> Architecture:
    """Return an architecture with RMSNorm, SwiGLU and grouped heads."""
    return Architecture(
        model_type=model_type,
        config=GPTVariantConfig,
        names=SIZES,
        optional={
            "num_key_value_heads": ("n_kv_head", None),
            "attention_dropout": ("attention_dropout", 0.0),
            "tie_word_embeddings": ("tie_embeddings", False),
            "rms_norm_eps": ("norm_eps", 1e-6),
            **optional,
        },
        activations=SILU,
        **others,
    )


DECODERS = {
    "Llama": _gated("llama", {**_HEAD_DIM, "mlp_bias": ("mlp_bias", False)}, attention_bias=False),
    "Qwen2": _gated("qwen2", {}, fixed={"qkv_bias": True}, window="some"),
    "Qwen3": _gated(
        "qwen3", {"head_dim": ("head_dim", 128)}, fixed={"qk_norm": True}, attention_bias=False, window="some"
    ),
    "Mistral": _gated("mistral", {**_HEAD_DIM, "num_key_value_heads": ("n_kv_head", 8)}, window="all"),
    "GPTNeoX": Architecture(
        model_type="gpt_neox",
        config=GPTVariantConfig,
        names=SIZES,
        optional={
            "attention_dropout": ("attention_dropout", 0.0),
            "hidden_dropout": ("dropout", 0.0),
            "tie_word_embeddings": ("tie_embeddings", False),
            "layer_norm_eps": ("norm_eps", 1e-5),
            "use_parallel_residual": ("parallel", True),
        },
        fixed={"norm": "layer", "gated": False, "mlp_bias": True},
        activations={"gelu": "gelu", **TANH, "relu": "relu"},
        attention_bias=True,
        partial=True,
    ),
}
GPT2 = Architecture(
    model_type="gpt2",
    config=GPTConfig,
    names={
        "n_positions": "context_length",
        **{name: name for name in ("vocab_size", "n_layer", "n_head", "n_embd")},
    },
    optional={
        "n_inner": ("mlp_width", None),
        "resid_pdrop": ("dropout", 0.1),
        "attn_pdrop": ("attention_dropout", 0.1),
        "tie_word_embeddings": ("tie_embeddings", True),
        "layer_norm_epsilon": ("norm_eps", 1e-5),
    },
    fixed={"family": "classic"},
    activation="activation_function",
    # Its "gelu" is the exact form, which our GPT does not have; our "gelu" is the tanh form.
    activations={**dict.fromkeys(TANH, "gelu"), "relu": "relu"},
    neutral={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
)


# --- encoders ---------------------------------------------------------------------------------------------------------


def _encoder(family: str, pad_id: int, **optional: tuple[str, Any]) -> Architecture:
    return Architecture(
        model_type=family,
        config=BERTConfig,
        names=SIZES,
        optional={
            "type_vocab_size": ("n_token_type", 2),
            "hidden_dropout_prob": ("dropout", 0.1),
            "attention_probs_dropout_prob": ("attention_dropout", 0.1),
            "layer_norm_eps": ("norm_eps", 1e-12),
            "pad_token_id": ("pad_id", pad_id),
            **optional,
        },
        fixed={"family": family},
        activations={"gelu": "gelu"},
        neutral={
            "position_embedding_type": "absolute",
            "is_decoder": False,
            "add_cross_attention": False,
            "pruned_heads": {},
        },
    )


_BERT, _ROBERTA = _encoder("bert", 0), _encoder("roberta", 1)
_ELECTRA = _encoder("electra", 0, embedding_size=("embedding_width", 128))


# --- encoder–decoders -------------------------------------------------------------------------------------------------


def _pair(model_type: str, family: str, ids: Mapping[str, int | None], neutral: Mapping[str, Any]) -> Architecture:
    return Architecture(
        model_type=model_type,
        config=EncoderDecoderConfig,
        names={
            "vocab_size": "vocab_size",
            "max_position_embeddings": "context_length",
            "encoder_layers": "n_layer",
            "decoder_layers": "n_decoder_layer",
            "encoder_attention_heads": "n_head",
            "decoder_attention_heads": "n_decoder_head",
            "d_model": "n_embd",
            "encoder_ffn_dim": "mlp_width",
            "decoder_ffn_dim": "decoder_mlp_width",
        },
        optional={
            "scale_embedding": ("scale_embedding", False),
            "dropout": ("dropout", 0.1),
            "attention_dropout": ("attention_dropout", 0.0),
            **{their: (our, ids.get(our)) for their, our in IDS.items()},
        },
        fixed={"family": family},
        activation="activation_function",
        activations={"gelu": "gelu", **TANH, "relu": "relu", **SILU},
        neutral={
            "tie_word_embeddings": True,
            "normalize_before": False,  # from older versions of the class
            "add_final_layer_norm": False,
            **neutral,
        },
    )


_BART = _pair(
    "bart",
    "classic",
    {"pad_id": 1, "bos_id": 0, "eos_id": 2, "decoder_start_id": 2, "forced_eos_id": 2},
    {"static_position_embeddings": False, "normalize_embedding": True},
)
_MARIAN = _pair(
    "marian",
    "original",
    {},  # the defaults are of one vocabulary, and every file contains its ids
    {"static_position_embeddings": True, "normalize_embedding": False, "share_encoder_decoder_embeddings": True},
)


# --- classes ----------------------------------------------------------------------------------------------------------

CLASSIFIER = "ForSequenceClassification"
# The architecture of each class, and the head of a BERT. XLM-RoBERTa is a RoBERTa, and is exported as one.
ENCODERS: dict[str, tuple[Architecture, str]] = {
    "BertModel": (_BERT, "pooler"),
    "BertForMaskedLM": (_BERT, "mlm"),
    "BertForSequenceClassification": (_BERT, "classify"),
    "BertForPreTraining": (_BERT, "mlm"),  # without its head for next-sentence prediction
    "RobertaModel": (_ROBERTA, "pooler"),
    "RobertaForMaskedLM": (_ROBERTA, "mlm"),
    "RobertaForSequenceClassification": (_ROBERTA, "classify"),
    "XLMRobertaModel": (_ROBERTA, "pooler"),
    "XLMRobertaForMaskedLM": (_ROBERTA, "mlm"),
    "XLMRobertaForSequenceClassification": (_ROBERTA, "classify"),
    "ElectraModel": (_ELECTRA, "none"),
    "ElectraForPreTraining": (_ELECTRA, "none"),  # the discriminator, without its head for replaced tokens
    "ElectraForMaskedLM": (_ELECTRA, "mlm"),  # the generator
    "ElectraForSequenceClassification": (_ELECTRA, "classify"),
}
CLASSES: dict[str, Architecture] = {
    "GPT2LMHeadModel": GPT2,
    f"GPT2{CLASSIFIER}": GPT2,
    **{name + head: kind for name, kind in DECODERS.items() for head in ("ForCausalLM", CLASSIFIER)},
    **{name: kind for name, (kind, _) in ENCODERS.items()},
    "BartModel": _BART,
    "BartForConditionalGeneration": _BART,
    "MarianMTModel": _MARIAN,
}
# The class to assume by model_type if a config.json names none: the first one, which has the fewest parameters.
PLAIN = {kind.model_type: name for name, kind in reversed(CLASSES.items())} | {"xlm-roberta": "XLMRobertaModel"}
