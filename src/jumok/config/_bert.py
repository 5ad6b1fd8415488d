"""The configuration of BERT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jumok.config._fields import setting
from jumok.config._model import (
    LARGEST_DEPTH,
    LARGEST_EPSILON,
    MOST_DROPOUT,
    BlockConfig,
    ModelConfig,
    require_whole_heads,
    size_of,
)
from jumok.errors import ConfigError

Head = Literal["none", "pooler", "mlm", "classify"]
EncoderFamily = Literal["bert", "roberta", "electra"]


@dataclass(frozen=True, kw_only=True)
class BERTConfig(ModelConfig):
    """The architecture of a BERT and of its head. The `help` of each field describes it.

    The model computes the same as BertModel (`head="pooler"`), BertForMaskedLM (`"mlm"`) or
    BertForSequenceClassification (`"classify"`) of `transformers`: post-norm, learned positions, exact (erf) GELU and
    biases (https://arxiv.org/abs/1810.04805). With `head="none"` it is a BertModel without the pooler.

    The blocks of all families are the same.

    - "roberta" (https://arxiv.org/abs/1907.11692) gives positions only to tokens that are not padding. The first one is
      pad_id + 1, and that of padding is pad_id. A classifier drops out its input as well.
    - "electra" (https://arxiv.org/abs/2003.10555) can have embeddings of another width, and has no pooler. A classifier
      drops out its input as well, and has GELU instead of tanh.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    family: EncoderFamily = setting("bert", "bert, roberta (other positions) or electra (embeddings of another width)")
    n_layer: int = size_of(4, "number of blocks", LARGEST_DEPTH)
    n_head: int = size_of(4, "number of heads")
    n_embd: int = size_of(256, "width of the residual stream, a multiple of n_head")
    embedding_width: int = size_of(None, "width of the embeddings, which a linear layer maps to n_embd [n_embd]")
    mlp_width: int = size_of(None, "hidden width of the MLP [4 n_embd]")
    n_token_type: int = size_of(2, "token types: which of two joined texts a token belongs to")
    dropout: float = setting(
        0.1, "dropout rate of embeddings, residual branches and the input of a classifier", 0, MOST_DROPOUT
    )
    attention_dropout: float = setting(0.1, "dropout rate of the attention weights", 0, MOST_DROPOUT)
    norm_eps: float = setting(1e-12, "epsilon of the normalization", 0, LARGEST_EPSILON)
    head: Head = setting("mlm", "none, pooler, mlm (masked tokens) or classify (whole texts)", option=False)
    labels: tuple[str, ...] = setting((), "names of the classes, in the order of their logits (classify)", option=False)
    pooling: Literal["first", "mean"] = setting("first", "pooling of a classifier: first ([CLS], as in BERT) or mean")
    pad_id: int | None = setting(None, "id that pads the shorter texts of a batch", option=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole_heads(self.n_embd, self.n_head)
        self._fill(mlp_width=4 * self.n_embd, embedding_width=self.n_embd)
        self._require_labels()
        self._require_family()

    def _require_labels(self) -> None:
        if self.head == "classify" and not self.labels:
            raise ConfigError('head="classify" needs labels, the names of the classes; give for example ["no", "yes"].')
        if self.head != "classify" and self.labels:
            raise ConfigError(
                'labels={labels} are for head="classify", and head is {head!r}; leave one of them out.',
                labels=list(self.labels),
                head=self.head,
            )

    def _require_family(self) -> None:
        if self.family == "roberta" and self.pad_id is None:
            raise ConfigError('family="roberta" counts the tokens that are not padding; give pad_id.')
        if self.family == "electra" and self.head == "pooler":
            raise ConfigError('family="electra" has no pooler; use head="none".')
        if self.family != "electra" and self.embedding_width != self.n_embd:
            raise ConfigError(
                'embedding_width={embedding_width} differs from n_embd={n_embd}, and only family="electra" has a layer '
                'between them; use family="electra", or leave embedding_width out.',
                embedding_width=self.embedding_width,
                n_embd=self.n_embd,
            )

    @property
    def position_offset(self) -> int:
        """The row of the first token in the table of positions."""
        return 1 + self.pad_id if self.family == "roberta" and self.pad_id is not None else 0

    def block(self) -> BlockConfig:
        """Return the configuration of the blocks."""
        return BlockConfig(
            width=self.n_embd,
            n_head=self.n_head,
            n_kv_head=self.n_head,
            head_dim=self.n_embd // self.n_head,
            mlp_width=self.mlp_width,
            activation="gelu",
            norm_eps=self.norm_eps,
            pre_norm=False,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )
