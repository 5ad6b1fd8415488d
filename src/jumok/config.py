"""Configurations: frozen, keyword-only, checked when they are made, and free of torch.

A field that is left at None is filled in from the others at once, so a finished configuration never holds a None
that a reader would have to resolve again.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from jumok.errors import ConfigError

Family = Literal["modern", "classic"]
Activation = Literal["silu", "gelu", "relu"]
Precision = Literal["auto", "float32", "bfloat16"]

ACTIVATIONS: dict[str, tuple[Activation, ...]] = {"modern": ("silu",), "classic": ("gelu", "relu")}

Head = Literal["none", "pooler", "mlm", "classify"]
PoolingKind = Literal["first", "last", "mean", "attention"]
EncoderDecoderFamily = Literal["classic", "original"]


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """' Did you mean 'x'?' for the closest allowed word, or '' when nothing is close."""
    close = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.6)
    return f" Did you mean {close[0]!r}?" if close else ""


def require_choice(name: str, value: str, allowed: Iterable[str]) -> None:
    """Raise ConfigError unless `value` is one of `allowed`."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ConfigError(
            f"{name}={value!r} is not known; choose from {', '.join(allowed)}.{did_you_mean(str(value), allowed)}"
        )


def require_range(name: str, value: float, low: float, high: float | None = None) -> None:
    """Raise ConfigError unless low <= value (<= high) and value is finite."""
    if not (low <= value and math.isfinite(value) and (high is None or value <= high)):
        allowed = f"between {low:g} and {high:g}" if high is not None else f"at least {low:g}"
        if value == math.inf:
            allowed += ", and finite"
        raise ConfigError(f"{name}={value!r} is out of range: it must be {allowed}.")


def require_type(name: str, value: object, kind: type) -> None:
    """Raise ConfigError unless `value` is a `kind`; a whole number is a float too, a bool is no number."""
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{name}={value!r} is of type {type(value).__name__}; it must be of type {kind.__name__}.")


def _require_types(config: ModelConfig | TrainConfig) -> None:
    kinds = field_types(type(config))
    for setting in dataclasses.fields(config):
        value = getattr(config, setting.name)
        if value is not None or setting.default is not None:
            require_type(setting.name, value, kinds[setting.name])


def _nearest_multiples(value: int, of: int) -> str:
    below = value // of * of
    return f"{below + of}" if below == 0 else f"{below} or {below + of}"


def _require_whole_heads(
    config: GPTConfig | BERTConfig | EncoderDecoderConfig, heads: str = "n_head", otherwise: str = ""
) -> None:
    """Raise ConfigError unless `n_embd` splits into as many heads as the field `heads` says."""
    number = getattr(config, heads)
    if config.n_embd % number:
        raise ConfigError(
            f"n_embd={config.n_embd} is not divisible by {heads}={number}; use n_embd="
            f"{_nearest_multiples(config.n_embd, number)}{otherwise}."
        )


def _require_id(name: str, value: int | None, vocab_size: int) -> None:
    """Raise ConfigError unless `value` is None or one of the ids 0 to vocab_size - 1."""
    if value is not None:
        require_range(name, value, 0, vocab_size - 1)


def _setting(default: Any, help: str) -> Any:
    """A field with the sentence that `jumok train --help` shows for it."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """What one block is made of. A model's configuration makes it with `block()`; a lesson may make its own.

    width: C. head_dim: width of one head. mlp_width: hidden width, 0 for no MLP at all.
    activation: "silu", "gelu" (erf), "gelu_tanh" or "relu". gated: a SwiGLU instead of two matrices.
    norm: "layer", "rms" or "none". pre_norm: x + f(norm(x)); otherwise norm(x + f(x)), as in the paper of 2017.
    residual: whether x is added at all. qk_norm: an RMSNorm over each head of q and k. bias: in all projections.
    """

    width: int
    n_head: int
    n_kv_head: int
    head_dim: int
    mlp_width: int
    activation: str
    gated: bool = False
    norm: Literal["layer", "rms", "none"] = "layer"
    norm_eps: float = 1e-5
    pre_norm: bool = True
    residual: bool = True
    qk_norm: bool = False
    bias: bool = True
    dropout: float = 0.0
    attention_dropout: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """What the configurations of all models have; each field says what it is in its `help`."""

    vocab_size: int = field(metadata={"help": "number of token ids"})
    context_length: int = _setting(256, "most tokens the model sees at once")
    dropout: float = _setting(0.0, "rate on embeddings and all residual branches")

    def _missing(self, name: str) -> bool:
        return getattr(self, name) is None

    def _fill(self, name: str, value: object) -> None:
        if self._missing(name):
            object.__setattr__(self, name, value)

    def _require_sizes(self, *names: str) -> None:
        for name in names:
            require_range(name, getattr(self, name), 1)


def _take_labels(config: GPTConfig | BERTConfig) -> None:
    """Make the labels a tuple, and raise ConfigError unless they are different names."""
    labels: object = config.labels
    if isinstance(labels, list):  # as it comes out of JSON, and as most people write it
        object.__setattr__(config, "labels", tuple(labels))
    require_type("labels", config.labels, tuple)
    for label in config.labels:
        require_type("a label", label, str)
    if len(set(config.labels)) < len(config.labels):
        raise ConfigError(f"labels={list(config.labels)} names a class twice; give each class a name of its own.")


@dataclass(frozen=True, kw_only=True)
class GPTConfig(ModelConfig):
    """The shape of a GPT; each field says what it is in its `help`.

    `family="modern"` is exactly what `transformers` calls Qwen3ForCausalLM; `family="classic"` is GPT2LMHeadModel,
    except that the total head width n_head * head_dim may differ from n_embd. With labels it also classifies texts,
    with `pooling="last"` as Qwen3ForSequenceClassification and GPT2ForSequenceClassification do.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together; the message names both.
    """

    family: Family = _setting("modern", "modern (as Qwen3) or classic (as GPT-2)")
    n_layer: int = _setting(4, "blocks")
    n_head: int = _setting(4, "query heads")
    n_embd: int = _setting(256, "width of the residual stream")
    n_kv_head: int = _setting(None, "key/value heads, a divisor of n_head [n_head]")
    head_dim: int = _setting(None, "width of one head [n_embd / n_head]")
    # For modern 8/3 of the width, rounded up to a multiple of 64: three matrices then cost what two of 4x did.
    mlp_width: int = _setting(None, "hidden width of the MLP [4 n_embd; modern: 8/3 n_embd]")
    activation: Activation = _setting(None, "gelu (tanh form) or relu; modern always has silu in a SwiGLU")
    dropout: float = _setting(0.0, "rate on embeddings and both residual branches [by how often the text is seen]")
    attention_dropout: float = _setting(0.0, "rate on the attention weights")
    tie_embeddings: bool = _setting(True, "share the token embedding with the output layer")
    norm_eps: float = _setting(None, "epsilon of the norms [modern 1e-6, classic 1e-5]")
    rope_theta: float = _setting(10_000.0, "base of the rotary wavelengths (modern)")
    labels: tuple[str, ...] = _setting((), "names of the classes, in the order of their logits; none: no classifier")
    pooling: PoolingKind = _setting("last", "what sums up a text for its label: last, mean or attention; BERT: first")
    pad_id: int | None = _setting(None, "id that fills up the shorter texts of a batch")

    def __post_init__(self) -> None:
        _take_labels(self)
        _require_types(self)
        require_choice("family", self.family, ACTIVATIONS)
        modern = self.family == "modern"
        self._require_sizes("vocab_size", "context_length", "n_layer", "n_head", "n_embd")
        if self._missing("head_dim"):
            _require_whole_heads(self, otherwise=", or give head_dim yourself")
        self._fill("head_dim", self.n_embd // self.n_head)
        self._fill("n_kv_head", self.n_head)
        self._fill("mlp_width", -(-self.n_embd * 8 // 3 // 64) * 64 if modern else 4 * self.n_embd)
        self._fill("activation", ACTIVATIONS[self.family][0])
        self._fill("norm_eps", 1e-6 if modern else 1e-5)
        self._require_sizes("head_dim", "n_kv_head", "mlp_width")
        require_choice("activation", self.activation, ACTIVATIONS[self.family])
        require_range("norm_eps", self.norm_eps, 0)
        require_range("dropout", self.dropout, 0, 0.95)
        require_range("attention_dropout", self.attention_dropout, 0, 0.95)
        require_range("rope_theta", self.rope_theta, 1)
        require_choice("pooling", self.pooling, typing.get_args(PoolingKind))
        if self.pooling == "first":
            raise ConfigError(
                "pooling='first' is for a BERT: the first position of a GPT sees nothing of the text behind it; choose "
                "last, mean or attention."
            )
        _require_id("pad_id", self.pad_id, self.vocab_size)
        if self.n_head % self.n_kv_head:
            divisors = [str(n) for n in range(1, self.n_head + 1) if self.n_head % n == 0]
            raise ConfigError(
                f"n_head={self.n_head} is not divisible by n_kv_head={self.n_kv_head}; "
                f"use one of {', '.join(divisors)}."
            )
        if modern and self.head_dim % 2:
            raise ConfigError(
                f"head_dim={self.head_dim} is odd, and rotary positions turn pairs; "
                f"use {_nearest_multiples(self.head_dim, 2)}."
            )
        if not modern and self.n_kv_head != self.n_head:
            raise ConfigError(
                f"n_kv_head={self.n_kv_head} differs from n_head={self.n_head}, which the classic family does not "
                "have; leave it out, or use --family modern."
            )

    def block(self) -> BlockConfig:
        """What the blocks of this model are made of."""
        modern = self.family == "modern"
        return BlockConfig(
            width=self.n_embd,
            n_head=self.n_head,
            n_kv_head=self.n_kv_head,
            head_dim=self.head_dim,
            mlp_width=self.mlp_width,
            activation="gelu_tanh" if self.activation == "gelu" else self.activation,
            gated=modern,
            norm="rms" if modern else "layer",
            norm_eps=self.norm_eps,
            qk_norm=modern,
            bias=not modern,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )


Mixing = Literal["none", "average", "attention"]


@dataclass(frozen=True, kw_only=True)
class RungConfig(GPTConfig):
    """A GPT with parts left out: a rung of the ladder in `jumok.lessons`. No stock class can express it.

    With everything left in it is the GPT of its family.

    Raises:
        ConfigError: as GPTConfig; or mixing="average" with heads that together are not as wide as the model.
    """

    mixing: Mixing = _setting("attention", "none (no blocks at all), average (of the past) or attention")
    feed_forward: bool = _setting(True, "whether blocks have an MLP")
    residual: bool = _setting(True, "whether a block adds to its input, or replaces it")
    norm: bool = _setting(True, "whether there are norms")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("mixing", self.mixing, typing.get_args(Mixing))
        if (
            self.mixing == "average"
            and not self.n_kv_head * self.head_dim == self.n_head * self.head_dim == self.n_embd
        ):
            raise ConfigError(
                f'mixing="average" needs heads that together are as wide as the model, queries and values alike: '
                f"n_head={self.n_head} and n_kv_head={self.n_kv_head} of head_dim={self.head_dim} are not "
                f"n_embd={self.n_embd}. Leave n_kv_head and head_dim out."
            )

    def block(self) -> BlockConfig:
        """What is left of a block."""
        whole = super().block()
        return dataclasses.replace(
            whole,
            mlp_width=whole.mlp_width if self.feed_forward else 0,
            residual=self.residual,
            norm=whole.norm if self.norm else "none",
            qk_norm=whole.qk_norm and self.norm,
        )


@dataclass(frozen=True, kw_only=True)
class BERTConfig(ModelConfig):
    """The shape of a BERT and what stands on top of it; each field says what it is in its `help`.

    It is exactly what `transformers` calls BertModel (`head="pooler"`), BertForMaskedLM (`"mlm"`) or
    BertForSequenceClassification (`"classify"`): norms after each addition, learned positions, GELU in its exact (erf)
    form, biases everywhere (https://arxiv.org/abs/1810.04805). With `head="none"` it is a BertModel without its pooler.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together; the message names both.
    """

    n_layer: int = _setting(4, "blocks")
    n_head: int = _setting(4, "heads")
    n_embd: int = _setting(256, "width of the residual stream, a multiple of n_head")
    mlp_width: int = _setting(None, "hidden width of the MLP [4 n_embd]")
    n_token_type: int = _setting(2, "token types: which of two joined texts a token belongs to")
    dropout: float = _setting(0.1, "rate on embeddings, both residual branches and what a classifier sees")
    attention_dropout: float = _setting(0.1, "rate on the attention weights")
    norm_eps: float = _setting(1e-12, "epsilon of the norms")
    head: Head = _setting("mlm", "none, pooler, mlm (hidden words) or classify (of whole texts)")
    labels: tuple[str, ...] = _setting((), "names of the classes, in the order of their logits (classify)")
    pooling: PoolingKind = _setting("first", "what sums up a text: first ([CLS], as in BERT), last, mean or attention")
    pad_id: int | None = _setting(None, "id that fills up the shorter texts of a batch")

    def __post_init__(self) -> None:
        _take_labels(self)
        _require_types(self)
        self._require_sizes("vocab_size", "context_length", "n_layer", "n_head", "n_embd", "n_token_type")
        _require_whole_heads(self)
        self._fill("mlp_width", 4 * self.n_embd)
        self._require_sizes("mlp_width")
        require_range("dropout", self.dropout, 0, 0.95)
        require_range("attention_dropout", self.attention_dropout, 0, 0.95)
        require_range("norm_eps", self.norm_eps, 0)
        require_choice("head", self.head, typing.get_args(Head))
        require_choice("pooling", self.pooling, typing.get_args(PoolingKind))
        _require_id("pad_id", self.pad_id, self.vocab_size)
        self._require_labels()

    def _require_labels(self) -> None:
        if self.head == "classify" and not self.labels:
            raise ConfigError('head="classify" needs labels, the names of the classes; give for example ["no", "yes"].')
        if self.head != "classify" and self.labels:
            raise ConfigError(
                f'labels={list(self.labels)} are for head="classify", and head is {self.head!r}; leave one of them out.'
            )

    def block(self) -> BlockConfig:
        """What the blocks of this model are made of."""
        return _post_norm_block(self, "gelu", self.n_head, self.mlp_width, self.norm_eps)


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """The shape of an encoder and a decoder; each field says what it is in its `help`.

    `family="classic"` is exactly what `transformers` calls BartForConditionalGeneration: learned positions and a norm
    over the embeddings (https://arxiv.org/abs/1910.13461). `family="original"` is the Transformer of 2017, with
    sinusoidal positions and no such norm (https://arxiv.org/abs/1706.03762), which is MarianMTModel there. Both have
    norms after each addition, biases, and one matrix for the embeddings of source and target and the output layer.

    The six ids are None where the model has no such token.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together; the message names both.
    """

    context_length: int = _setting(256, "most tokens of the source, and of the target")
    family: EncoderDecoderFamily = _setting("classic", "classic (as BART) or original (the paper of 2017)")
    n_layer: int = _setting(4, "blocks of the encoder")
    n_decoder_layer: int = _setting(None, "blocks of the decoder [n_layer]")
    n_head: int = _setting(4, "heads in the encoder")
    n_decoder_head: int = _setting(None, "heads in the decoder [n_head]")
    n_embd: int = _setting(256, "width of the residual streams, a multiple of both numbers of heads")
    mlp_width: int = _setting(None, "hidden width of the encoder's MLPs [4 n_embd]")
    decoder_mlp_width: int = _setting(None, "hidden width of the decoder's MLPs [mlp_width]")
    activation: Activation = _setting(None, "gelu (erf form), relu or silu [classic gelu, original relu]")
    scale_embedding: bool = _setting(None, "multiply embeddings by the root of n_embd [classic no, original yes]")
    dropout: float = _setting(0.1, "rate on embeddings and all residual branches")
    attention_dropout: float = _setting(0.0, "rate on the attention weights")
    pad_id: int | None = _setting(None, "id that fills up the shorter texts of a batch")
    bos_id: int | None = _setting(None, "id that begins a text")
    eos_id: int | None = _setting(None, "id that ends a text")
    decoder_start_id: int | None = _setting(None, "id that the decoder sees first")
    forced_bos_id: int | None = _setting(None, "id that the decoder always writes first")
    forced_eos_id: int | None = _setting(None, "id that the decoder always writes last, when its room is used up")

    def __post_init__(self) -> None:
        _require_types(self)
        require_choice("family", self.family, typing.get_args(EncoderDecoderFamily))
        original = self.family == "original"
        self._require_sizes("vocab_size", "context_length", "n_layer", "n_head", "n_embd")
        self._fill("n_decoder_layer", self.n_layer)
        self._fill("n_decoder_head", self.n_head)
        self._fill("mlp_width", 4 * self.n_embd)
        self._fill("decoder_mlp_width", self.mlp_width)
        self._fill("activation", "relu" if original else "gelu")
        self._fill("scale_embedding", original)
        self._require_sizes("n_decoder_layer", "n_decoder_head", "mlp_width", "decoder_mlp_width")
        _require_whole_heads(self)
        _require_whole_heads(self, "n_decoder_head")
        require_choice("activation", self.activation, typing.get_args(Activation))
        require_range("dropout", self.dropout, 0, 0.95)
        require_range("attention_dropout", self.attention_dropout, 0, 0.95)
        for name in SPECIAL_IDS:
            _require_id(name, getattr(self, name), self.vocab_size)

    @classmethod
    def paper_2017(cls, *, vocab_size: int, **changes: Any) -> EncoderDecoderConfig:
        """The base model of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762, table 3).

        With the shared vocabulary of 37,000 pieces of its English–German model it has the 65 million parameters that
        the paper tells of. The "big" one has n_embd=1024, n_head=16, mlp_width=4096 and dropout=0.3.

        Args:
            vocab_size: pieces that source and target share. changes: any other fields.
        """
        base: dict[str, Any] = {"family": "original", "n_layer": 6, "n_head": 8, "n_embd": 512, "context_length": 512}
        return from_dict(cls, {**base, "vocab_size": vocab_size, **changes})

    def encoder_block(self) -> BlockConfig:
        """What the blocks of the encoder are made of."""
        return _post_norm_block(self, self.activation, self.n_head, self.mlp_width)

    def decoder_block(self) -> BlockConfig:
        """What the blocks of the decoder are made of."""
        return _post_norm_block(self, self.activation, self.n_decoder_head, self.decoder_mlp_width)


SPECIAL_IDS = ("pad_id", "bos_id", "eos_id", "decoder_start_id", "forced_bos_id", "forced_eos_id")


def _post_norm_block(
    config: BERTConfig | EncoderDecoderConfig, activation: str, n_head: int, mlp_width: int, norm_eps: float = 1e-5
) -> BlockConfig:
    return BlockConfig(
        width=config.n_embd,
        n_head=n_head,
        n_kv_head=n_head,
        head_dim=config.n_embd // n_head,
        mlp_width=mlp_width,
        activation=activation,
        norm_eps=norm_eps,
        pre_norm=False,
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
    )


TaskName = Literal["lm", "mlm", "classify", "seq2seq"]
TRAINABLE = ("gpt", "bert", "encoder_decoder")  # kinds of model that `jumok train --model` takes


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained; each field says what it is in its `help`.

    The length is steps or minutes; with neither given it is ten minutes.

    Raises:
        ConfigError: a value is out of range or two of them do not fit together.
    """

    task: TaskName = _setting(
        "lm", "lm (the next token), mlm (hidden tokens), classify (labels of texts) or seq2seq (pairs of texts)"
    )
    steps: int | None = _setting(None, "length of the run in optimizer steps")
    minutes: float | None = _setting(None, "or in minutes by the clock, all included [10]")
    passes: float = _setting(
        0.0, "most passes over the text in a run by minutes, which has at least 500 steps; 0 for any number"
    )
    stop_at: float | None = _setting(
        None, "end as soon as the held-out part has this many nats/char (or the task's other headline figure)"
    )
    batch_size: int = _setting(16, "sequences of context_length tokens in one pass, or as many tokens in shorter ones")
    accumulate: int = _setting(1, "passes per optimizer step")
    optimizer: Literal["muon", "adamw"] = _setting("muon", "muon (matrices; adamw for the rest) or adamw")
    learning_rate: float = _setting(5e-3, "peak rate of AdamW")
    matrix_learning_rate: float = _setting(0.02, "peak rate of Muon")
    schedule: Literal["linear", "cosine", "constant", "invsqrt"] = _setting(
        "linear", "how the rate falls after the warm-up; invsqrt is that of the paper of 2017"
    )
    final_rate: float = _setting(0.0, "rate at the end, as a share of the peak; invsqrt does not use it")
    warmup: float = _setting(0.02, "share of the run in which the rate rises from zero")
    weight_decay: float = _setting(0.1, "decoupled weight decay, on matrices only")
    beta1: float = _setting(0.9, "AdamW's first moment")
    beta2: float = _setting(0.95, "AdamW's second moment")
    momentum: float = _setting(0.95, "Muon's momentum")
    clip: float = _setting(1.0, "largest gradient norm, 0 for no clipping")
    mask_rate: float = _setting(0.15, "share of the tokens that are hidden (mlm)")
    whole_words: bool = _setting(False, "hide whole words, eojeol, instead of single tokens (mlm)")
    class_weights: bool = _setting(False, "weigh rare classes more, by one over their frequency (classify)")
    lm_weight: float = _setting(0.0, "weight of the next-token loss beside that of the classes (classify, gpt)")
    token_dropout: float = _setting(0.0, "share of the tokens of a text that are left out in training (classify)")
    label_smoothing: float = _setting(0.0, "share of the probability spread over all tokens (seq2seq)")
    val: float = _setting(0.1, "share of the text to hold out, its last part")
    eval_every: int = _setting(0, "steps between validations [12 in the run]")
    eval_tokens: int = _setting(0, "held-out tokens read at each validation [2% of the training time]")
    patience: int = _setting(5, "validations without a new best before the run is brought to its end, 0 for never")
    sample_tokens: int = _setting(60, "tokens of the sample written at each validation, 0 for none")
    save_every: float = _setting(60.0, "seconds between saves of the training state")
    seed: int = _setting(0, "of the first weights, the order of the data, and dropout")
    precision: Precision = _setting("auto", "float32, bfloat16, or auto: what measures faster")
    compile: Literal["auto", "on", "off"] = _setting("auto", "torch.compile; auto: if the run is long enough to pay")

    def __post_init__(self) -> None:
        _require_types(self)
        if self.steps is not None and self.minutes is not None:
            raise ConfigError(f"steps={self.steps} and minutes={self.minutes:g} were both given; give one of them.")
        if self.steps is None and self.minutes is None:
            object.__setattr__(self, "minutes", 10.0)
        if self.steps is not None:
            require_range("steps", self.steps, 1)
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ConfigError(f"minutes={self.minutes!r} is out of range: it must be more than 0 and finite.")
        require_range("passes", self.passes, 0)
        if self.stop_at is not None:
            require_range("stop_at", self.stop_at, 0)
        for name in ("batch_size", "accumulate"):
            require_range(name, getattr(self, name), 1)
        for name, allowed in field_choices(type(self)).items():
            require_choice(name, getattr(self, name), allowed)
        for name in ("learning_rate", "matrix_learning_rate", "weight_decay", "clip", "save_every", "lm_weight"):
            require_range(name, getattr(self, name), 0)
        for name in ("final_rate", "warmup", "mask_rate", "label_smoothing", "token_dropout"):
            require_range(name, getattr(self, name), 0, 1)
        if self.schedule == "invsqrt" and self.warmup == 0:
            raise ConfigError(
                "schedule='invsqrt' with warmup=0 would have a rate of zero throughout, for it falls with the time "
                "counted in warm-ups; give a warmup above 0, for example 0.02, or another schedule."
            )
        for name in ("beta1", "beta2", "momentum"):
            require_range(name, getattr(self, name), 0, 0.99999)
        require_range("val", self.val, 0, 0.9)
        for name in ("eval_every", "eval_tokens", "patience", "sample_tokens"):
            require_range(name, getattr(self, name), 0)
        require_range("seed", self.seed, 0, 2**31 - 1)


# Named sizes: what differs from the defaults above, for the model and for its training.
SIZES: dict[str, dict[str, Any]] = {
    "nano": {"n_layer": 2, "n_head": 4, "n_embd": 128, "context_length": 128},
    "micro": {"n_layer": 4, "n_head": 4, "n_embd": 256, "context_length": 256},
    "mini": {"n_layer": 6, "n_head": 6, "n_embd": 384, "context_length": 256},
    "small": {"n_layer": 8, "n_head": 8, "n_embd": 512, "context_length": 512},
    "gpt2": {"n_layer": 12, "n_head": 12, "n_embd": 768, "context_length": 1024},
    # The configuration of a 2025 Korean blog series on building a GPT from scratch, with its two slips mended:
    # scores are scaled by head_dim**-0.5 and the final norm is applied.
    "nanokogpt": {
        "family": "classic", "n_layer": 6, "n_head": 8, "n_embd": 256, "head_dim": 16, "context_length": 256,
        "activation": "relu", "dropout": 0.1, "tie_embeddings": False,
        "steps": 10_000, "batch_size": 64, "optimizer": "adamw", "learning_rate": 2e-4, "schedule": "constant",
        "warmup": 0.0, "weight_decay": 0.01, "beta2": 0.999, "clip": 0.0,
    },
}  # fmt: skip

# What the classic family of GPT wants different in training.
CLASSIC_DEFAULTS: dict[str, Any] = {"optimizer": "adamw", "learning_rate": 1e-3}

# How the paper of 2017 trains its encoder–decoder, which is the family "original" (sections 5.3 and 5.4).
ORIGINAL_DEFAULTS: dict[str, Any] = {"schedule": "invsqrt", "label_smoothing": 0.1}

# What tasks want different, for the model and for its training.
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "lm": {},
    "mlm": {"warmup": 0.05, "patience": 0, "attention_dropout": 0.0},  # it dwells on a plateau first
    # Labels are few and soon learned by heart: a shallow model, a second thing to learn, and an end in time.
    "classify": {
        "context_length": 128,
        "batch_size": 16,
        "pooling": "mean",
        "n_layer": 2,
        "attention_dropout": 0.0,
        "lm_weight": 1.0,
        "token_dropout": 0.1,
        "passes": 2.0,
    },
    "seq2seq": {"n_layer": 3, "n_embd": 192, "context_length": 64, "batch_size": 32, "warmup": 0.05},
}

# With the weights of another model to begin with: its knowledge is worth more than what high rates find.
INIT_DEFAULTS: dict[str, Any] = {"matrix_learning_rate": 0.004, "learning_rate": 1e-3}


def resolve(
    settings: Mapping[str, Any], size: str | None = None, kind: type[ModelConfig] = GPTConfig
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings for the model and for its training: what was given, then of the size, of the task, and of the family.

    Args:
        settings: any fields of `kind` and TrainConfig; a None counts as not given.
        size: a name in SIZES. kind: of model.

    Returns:
        fields for `kind` (without vocab_size), fields for TrainConfig; neither holds more than is known.

    Raises:
        ConfigError: an unknown size or field ("did you mean"), or a vocabulary size, which the tokenizer sets.
    """
    if size is not None:
        require_choice("size", size, SIZES)
    given = {key: value for key, value in settings.items() if value is not None}
    task = given.get("task", "lm")
    require_choice("task", task, TASK_DEFAULTS)
    model_fields, train_fields = field_types(kind), field_types(TrainConfig)
    fields = {**model_fields, **train_fields}
    of_size = SIZES.get(size or "", {})
    if foreign := [key for key in of_size if key not in fields]:
        raise ConfigError(
            f"size={size!r} is one of a GPT: it sets {', '.join(foreign)}, which this model has not; choose from "
            f"{', '.join(name for name, values in SIZES.items() if values.keys() <= fields.keys())}."
        )
    of_task = {key: value for key, value in TASK_DEFAULTS[task].items() if key in fields}
    if not issubclass(kind, GPTConfig):
        of_task.pop("lm_weight", None)  # there is no next token to predict for who sees it
    chosen = {**of_task, **of_size, **given}
    if "steps" in given or "minutes" in given:  # the person's budget replaces the size's
        chosen = {k: v for k, v in chosen.items() if k not in ("steps", "minutes") or k in given}
    if issubclass(kind, GPTConfig):
        require_choice("family", chosen.get("family", "modern"), ACTIVATIONS)
        if chosen.get("family") == "classic":
            chosen = {**CLASSIC_DEFAULTS, **chosen}
    elif issubclass(kind, EncoderDecoderConfig) and chosen.get("family") == "original":
        chosen = {**ORIGINAL_DEFAULTS, **chosen}
    for key in chosen:
        if key == "vocab_size" or key not in fields:
            known = sorted(fields.keys() - {"vocab_size"})
            raise ConfigError(f"unknown setting {key!r}.{did_you_mean(key, known)} Known: {', '.join(known)}.")
    return (
        {key: value for key, value in chosen.items() if key in model_fields},
        {key: value for key, value in chosen.items() if key in train_fields},
    )


Config = TypeVar("Config", bound="ModelConfig | TrainConfig")


def field_types(config: type) -> dict[str, Any]:
    """Field name -> plain type (int, float, bool, str, tuple) of a configuration class, None taken off."""
    plain = {}
    for name, hint in typing.get_type_hints(config).items():
        if isinstance(hint, types.UnionType):
            hint = next(arm for arm in typing.get_args(hint) if arm is not type(None))
        outer = typing.get_origin(hint)
        plain[name] = type(typing.get_args(hint)[0]) if outer is Literal else outer or hint
    return plain


def field_choices(config: type) -> dict[str, tuple[str, ...]]:
    """Field name -> allowed words, for the fields that have a fixed set of them."""
    hints = typing.get_type_hints(config)
    return {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}


def from_dict(config: type[Config], values: Mapping[str, Any]) -> Config:
    """A configuration from plain values, as they come out of JSON or TOML.

    Raises:
        ConfigError: a key is unknown ("did you mean"), missing, or of the wrong type.
    """
    allowed = field_types(config)
    for key in values:
        if key not in allowed:
            raise ConfigError(f"unknown setting {key!r}.{did_you_mean(key, allowed)} Known: {', '.join(allowed)}.")
    try:
        return config(**values)
    except TypeError as error:
        raise ConfigError(f"{config.__name__}: {error}") from None


def to_dict(config: ModelConfig | TrainConfig) -> dict[str, Any]:
    """All fields as plain values, ready for JSON."""
    return dataclasses.asdict(config)
