"""What a model may have, and which programs beside PyTorch compute it.

A model has one value of each feature (`features_of`). FEATURES names the backends that compute a value. The modules of
`jumok.models` compute all of them. Any other backend refuses a model with a value that does not name it, with the
message of `obstacle`. A new value is thus refused by all backends until one of them computes it.
`tests/interop/test_features.py` compares each value in each backend with the modules.
"""

from __future__ import annotations

from jumok.config import (
    BERTConfig,
    EncoderDecoderConfig,
    GPTConfig,
    GPTVariantConfig,
    ModelConfig,
    RungConfig,
    stacks,
)
from jumok.errors import JumokError
from jumok.messages import tr

KINDS: dict[str, type[ModelConfig]] = {  # by the "type" in config.json
    "gpt": GPTConfig,
    "gpt_variant": GPTVariantConfig,
    "rung": RungConfig,
    "bert": BERTConfig,
    "encoder_decoder": EncoderDecoderConfig,
}

TRANSFORMERS, LLAMA_CPP, ONNX, PAGE, NATIVE = BACKENDS = (
    "transformers",
    "llama.cpp",
    "ONNX",
    "jumok share",
    "C++",
)
EVERY = frozenset(BACKENDS)
EXPORTS = {  # backend: what writes a model for it
    TRANSFORMERS: "`jumok convert --to hf`",
    ONNX: "`jumok convert --to onnx`",
    PAGE: "`jumok convert --to page`",
}
MOST_ENDS = 3  # in a GGUF file: the ends of a text, of a turn and of a message

FEATURES: dict[str, dict[object, frozenset[str]]] = {
    "type": {
        "gpt": EVERY,
        "gpt_variant": EVERY - {PAGE},
        "rung": frozenset(),
        "bert": EVERY - {LLAMA_CPP, NATIVE},
        "encoder_decoder": frozenset((TRANSFORMERS, PAGE)),
    },
    "family": {
        **dict.fromkeys(("modern", "classic", "bert", "original"), EVERY),
        **dict.fromkeys(("roberta", "electra"), EVERY - {PAGE}),
    },
    "task": {"classify": EVERY - {LLAMA_CPP}, **dict.fromkeys(("lm", "mlm", "seq2seq"), EVERY)},
    "head": {**dict.fromkeys((None, "mlm", "classify"), EVERY), **dict.fromkeys(("none", "pooler"), EVERY - {PAGE})},
    "pooling": {None: EVERY, "last": EVERY, "mean": EVERY - {TRANSFORMERS}},
    "pooling of a BERT": {None: EVERY, "first": EVERY, "mean": EVERY - {TRANSFORMERS}},
    "activation": {**dict.fromkeys(("silu", "gelu", "gelu_tanh"), EVERY), "relu": EVERY - {LLAMA_CPP}},
    "norm": {"rms": EVERY, "layer": EVERY, "none": frozenset()},
    "gated": {True: EVERY, False: EVERY},
    "parallel": {True: EVERY, False: EVERY},
    "qk_norm": {True: EVERY, False: EVERY},
    "biases": dict.fromkeys(
        ("none", "qkv", "out", "mlp", "qkv, out", "qkv, mlp", "out, mlp", "qkv, out, mlp"),
        EVERY,
    ),
    "n_kv_head": {"n_head": EVERY, "fewer": EVERY},
    "head_dim of a GPT-2": {
        "n_embd / n_head": EVERY,
        "less": EVERY,
        "too wide": EVERY - {TRANSFORMERS, LLAMA_CPP},
    },
    "tie_embeddings": {True: EVERY, False: EVERY},
    "rotary_dim": {"head_dim": EVERY, "less": EVERY},
    "rope_scaling": {
        **dict.fromkeys((None, "linear", "dynamic", "llama3"), EVERY),
        "yarn": EVERY - {LLAMA_CPP},
    },
    "sliding_window": {None: EVERY, **dict.fromkeys(("all layers", "some layers"), EVERY - {LLAMA_CPP})},
    "scale_embedding": {True: EVERY, False: EVERY},
    "decoder_start_id": {"an id": EVERY, None: EVERY - {TRANSFORMERS}},
    "generation": {None: EVERY, "rules": EVERY - {LLAMA_CPP, PAGE}},
    "eos_ids": {f"up to {MOST_ENDS}": EVERY, "more": EVERY - {LLAMA_CPP}},
}


Only = dict[str, tuple[object, ...]]
_GATED: Only = {"norm": ("rms",), "gated": (True,), "parallel": (False,), "rotary_dim": ("head_dim",)}
# The values that a decoder of an architecture has, of features where it has not all that its backend computes.
STOCK: dict[str, Only] = {
    "Llama": _GATED
    | {"qk_norm": (False,), "biases": ("none", "mlp", "qkv, out", "qkv, out, mlp"), "sliding_window": (None,)},
    "Qwen2": _GATED | {"qk_norm": (False,), "biases": ("qkv",)},
    "Qwen3": _GATED | {"qk_norm": (True,), "biases": ("none", "qkv, out")},
    "Mistral": _GATED | {"qk_norm": (False,), "biases": ("none",), "sliding_window": (None, "all layers")},
    "GPTNeoX": {
        "norm": ("layer",),
        "gated": (False,),
        "qk_norm": (False,),
        "biases": ("mlp", "qkv, out, mlp"),
        "n_kv_head": ("n_head",),
        "sliding_window": (None,),
    },
}
_SCALING: Only = {"rope_scaling": (None, "linear", "dynamic")}
_LLAMA_SCALING: Only = {"rope_scaling": (None, "linear", "dynamic", "llama3")}
ARCHITECTURES: dict[str, dict[str, Only]] = {
    TRANSFORMERS: STOCK,
    LLAMA_CPP: {
        "Llama": STOCK["Llama"] | _LLAMA_SCALING,
        "Mistral": STOCK["Mistral"] | _LLAMA_SCALING,
        "Qwen2": STOCK["Qwen2"] | _SCALING,
        "Qwen3": STOCK["Qwen3"] | _SCALING | {"biases": ("none",)},
        # It computes gelu_tanh for gelu, which differs by 0.0005 at most.
        "GPTNeoX": STOCK["GPTNeoX"]
        | {
            "biases": ("qkv, out, mlp",),
            "tie_embeddings": (False,),
            "rope_scaling": (None,),
            "activation": ("gelu", "gelu_tanh"),
        },
    },
}


def kind_of(config: ModelConfig) -> str:
    """Return the "type" of a configuration in config.json."""
    return kind_name(type(config))


def kind_name(kind: type[ModelConfig]) -> str:
    """Return the "type" of a class of configurations in config.json."""
    return next(name for name, known in KINDS.items() if known is kind)


def task_of(config: ModelConfig) -> str:
    """Return the task of the models that a configuration describes: lm, mlm, classify or seq2seq."""
    if isinstance(config, EncoderDecoderConfig):
        return "seq2seq"
    if getattr(config, "labels", ()):
        return "classify"
    return "mlm" if isinstance(config, BERTConfig) else "lm"


def features_of(config: ModelConfig) -> dict[str, object]:
    """Return the value of each feature of a model, with the names and values of FEATURES."""
    _, block, _ = stacks(config)[0]
    biases = [name for name in ("qkv", "out", "mlp") if getattr(block, f"{name}_bias")]
    found: dict[str, object] = {
        "type": kind_of(config),
        "family": getattr(config, "family"),  # noqa: B009  (of all configurations of models)
        "task": task_of(config),
        "head": getattr(config, "head", None),
        "pooling": None,
        "pooling of a BERT": None,
        **{name: getattr(block, name) for name in ("activation", "norm", "gated", "parallel", "qk_norm")},
        "biases": ", ".join(biases) or "none",
        "n_kv_head": "n_head" if block.n_kv_head == block.n_head else "fewer",
        "head_dim of a GPT-2": "n_embd / n_head",
        "tie_embeddings": getattr(config, "tie_embeddings", True),
        "rotary_dim": "head_dim",
        "rope_scaling": None,
        "sliding_window": None,
        "scale_embedding": getattr(config, "scale_embedding", False),
        "decoder_start_id": "an id",
        "generation": None if getattr(config, "generation", None) is None else "rules",
        "eos_ids": f"up to {MOST_ENDS}" if len(getattr(config, "eos_ids", ())) <= MOST_ENDS else "more",
    }
    if isinstance(config, BERTConfig) and config.head in ("pooler", "classify"):
        found["pooling of a BERT"] = config.pooling
    if isinstance(config, EncoderDecoderConfig) and config.family == "original" and config.decoder_start_id is None:
        found["decoder_start_id"] = None
    if isinstance(config, GPTConfig):
        found |= _of_gpt(config)
    return found


def _of_gpt(config: GPTConfig) -> dict[str, object]:
    found: dict[str, object] = {}
    if config.labels:
        found["pooling"] = config.pooling
    if config.family == "classic" and config.n_head * config.head_dim != config.n_embd:
        found["head_dim of a GPT-2"] = "less" if wider_heads(config) else "too wide"
    if config.family == "modern" and config.rotated < config.head_dim:
        found["rotary_dim"] = "less"
    if config.frequency_scaling is not None:
        found["rope_scaling"] = config.frequency_scaling.kind
    windows = [config.window(i) for i in range(config.n_layer)]
    limited = [window for window in windows if window is not None and window < config.context_length]
    if limited:
        found["sliding_window"] = "all layers" if len(limited) == len(windows) else "some layers"
    return found


def wider_heads(config: GPTConfig) -> int:
    """Return the number of heads, n_embd wide together, into which those of a GPT-2 fit; 0 if there is none."""
    most = config.n_embd // config.head_dim
    return next((heads for heads in range(config.n_head, most + 1) if config.n_embd % heads == 0), 0)


def architecture_of(config: ModelConfig) -> str | None:
    """Return the name of the architecture of a GPT in `transformers`; None for other models."""
    if isinstance(config, GPTVariantConfig):
        return config.architecture
    if isinstance(config, GPTConfig):
        return "GPT2" if config.family == "classic" else "Qwen3"
    return None


def implements(config: ModelConfig, backend: str) -> bool:
    """Return whether a backend computes all that a model has."""
    return _missing(config, backend) is None


def require(config: ModelConfig, backend: str) -> None:
    """Raise JumokError with the message of `obstacle`, if there is one."""
    found = obstacle(config, backend)
    if found is not None:
        raise JumokError("{obstacle}", obstacle=found)


def obstacle(config: ModelConfig, backend: str) -> str | None:
    """Return why a backend cannot compute a model, and which ones can; None if nothing is missing.

    Args:
        config: of the model.
        backend: one of BACKENDS.
    """
    name = _missing(config, backend)
    if name is None:
        return None
    field, value = name.partition(" ")[0], features_of(config)[name]
    own = getattr(config, field, None)
    if type(own) is int:  # sliding_window=64 says more than "all layers"
        value = own
    known = [one for one in FEATURES[name] if _computes(backend, architecture_of(config), name, one)]
    known = [one for one in known if one is not None or len(known) == 1]
    others = [how for other, how in EXPORTS.items() if implements(config, other)] or ["`jumok view`"]
    return tr(
        "this model has {feature}={value!r}, which {backend} does not compute (only {known}); use {others}.",
        feature=field,
        value=value,
        backend=backend,
        known=", ".join(map(repr, known)),
        others=", ".join(others),
    )


def _missing(config: ModelConfig, backend: str) -> str | None:
    """Return the first feature whose value a backend does not compute."""
    architecture = architecture_of(config)
    found = features_of(config).items()
    return next((name for name, value in found if not _computes(backend, architecture, name, value)), None)


def _computes(backend: str, architecture: str | None, name: str, value: object) -> bool:
    only = ARCHITECTURES.get(backend, {}).get(architecture or "", {})
    return backend in FEATURES[name].get(value, ()) and value in only.get(name, (value,))
