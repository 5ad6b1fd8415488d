"""The reader's own classes in the production GPT: which part of it a file holds, and a model with that part.

A part is recognised by the name of its class or function. Arguments are passed by name, so that classes from other
courses work as well: a class that calls the width `n_embd`, `d_model` or `width` gets it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from jumok import GPT
from jumok.config import GPTConfig, ModelConfig
from jumok.course.practice.earlier import load, read
from jumok.course.practice.known_errors import explained, line_of
from jumok.errors import LessonError
from jumok.messages import users_language
from jumok.nn import Block
from jumok.nn.cache import KVCache

# The parts, the largest first: a file with a Block usually has a MultiHeadAttention as well.
CLASSES = ("GPT", "Block", "MultiHeadAttention", "ParallelHeads", "Head", "MLP")
FUNCTIONS = ("causal_attention", "scaled_dot_product_attention", "attention")

ARGUMENTS: dict[str, tuple[str, ...]] = {  # what it is -> the usual names of the argument
    "vocab_size": ("vocab_size", "vocabulary", "num_tokens"),
    "context_length": ("context_length", "block_size", "length", "max_len", "max_length", "seq_len", "context"),
    "n_layer": ("n_layer", "n_layers", "layers", "num_layers", "depth"),
    "n_head": ("n_head", "n_heads", "heads", "num_heads"),
    "n_embd": ("n_embd", "width", "d_model", "d_in", "d_out", "dim", "embed_dim", "emb_dim", "n_emb", "embd"),
    "head_dim": ("head_dim", "head_size", "head_width", "d_k", "d_head"),
    "dropout": ("dropout", "dropout_rate", "drop_rate", "p"),
    "qkv_bias": ("qkv_bias", "bias"),
}
MEANING = {name: meaning for meaning, names in ARGUMENTS.items() for name in names}


@dataclass(frozen=True)
class Part:
    """A part of the model that a file holds. name: of its class or function."""

    path: Path
    name: str
    made_by: Callable[..., Any]

    def make(self, config: GPTConfig, **fixed: Any) -> nn.Module:
        """Return an object of the class, with the arguments that its signature asks for.

        Raises:
            LessonError: the signature has an argument that is not known, or the code raises an error.
        """
        values = {
            "vocab_size": config.vocab_size, "context_length": config.context_length, "n_layer": config.n_layer,
            "n_head": config.n_head, "n_embd": config.n_embd, "head_dim": config.head_dim, "dropout": config.dropout,
            "qkv_bias": True,
        } | fixed  # fmt: skip
        given = {}
        for name, parameter in inspect.signature(self.made_by).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if name in MEANING:
                given[name] = values[MEANING[name]]
            elif parameter.default is parameter.empty:
                raise LessonError(
                    "{path}: {part} has the argument {name!r}, whose meaning is not known; use one of {known}.",
                    path=self.path,
                    part=self.name,
                    name=name,
                    known=", ".join(ARGUMENTS),
                )
        with readers_errors(self.path):
            made = self.made_by(**given)
        if not isinstance(made, nn.Module):
            raise LessonError("{path}: {part} is not an nn.Module.", path=self.path, part=self.name)
        return made


def read_part(path: Path) -> Part:
    """Return the largest part of a GPT that a file holds.

    Raises:
        LessonError: it holds none, or running it raises an error.
    """
    try:
        source = read(path)
    except OSError as error:
        raise LessonError("cannot read {path}: {reason}.", path=path, reason=error) from None
    except UnicodeDecodeError:
        raise LessonError("{path} is not encoded in UTF-8. Save it as UTF-8 in your editor.", path=path) from None
    with readers_errors(path):
        module = load(path, source)
    for name in CLASSES:
        found = getattr(module, name, None)
        if isinstance(found, type) and issubclass(found, nn.Module):
            return Part(path, name, found)
    for name in FUNCTIONS:
        found = getattr(module, name, None)
        if callable(found):
            return Part(path, name, found)
    raise LessonError(
        "{path} holds no part of a GPT; it needs one of the classes {classes} or of the functions {functions}.",
        path=path,
        classes=", ".join(CLASSES),
        functions=", ".join(FUNCTIONS),
    )


@contextmanager
def readers_errors(path: Path) -> Iterator[None]:
    """Turn errors of the reader's code into a LessonError with the line. Errors of jumok and Ctrl-C pass."""
    try:
        yield
    except (LessonError, OSError):
        raise
    except Exception as error:
        line = line_of(error, path)
        if line is None:
            raise
        if isinstance(error, NotImplementedError):
            raise LessonError("{path}, line {line}: this part is not written yet.", path=path, line=line) from None
        reason = explained(error)[0].said(users_language())
        raise LessonError("{path}, line {line}: {reason}", path=path, line=line, reason=reason) from error


class _Own(GPT):
    """The production GPT with the reader's part in each block."""

    def __init__(self, part: Part, config: GPTConfig) -> None:
        super().__init__(config)
        self._part = part
        put_in(self, part, config)

    def hidden(self, ids: Tensor, cache: KVCache | None = None, segments: Tensor | None = None) -> Tensor:
        with readers_errors(self._part.path):
            return super().hidden(ids, cache, segments)


class _Whole(GPT):
    """The reader's GPT. Its logits take the place of the hidden states, and the output layer is the identity."""

    def __init__(self, part: Part, config: GPTConfig) -> None:
        nn.Module.__init__(self)
        self.config, self._part = config, part
        self.cos = self.sin = self.pooling = self.classifier = None
        self.own = part.make(config)
        initialise_as_gpt2(self.own)
        self.head = nn.Linear(config.vocab_size, config.vocab_size, bias=False)
        self.head.weight = nn.Parameter(torch.eye(config.vocab_size), requires_grad=False)

    @property
    def token_embedding(self) -> nn.Linear:  # type: ignore[override]
        return self.head  # for those who ask for the device

    def hidden(self, ids: Tensor, cache: KVCache | None = None, segments: Tensor | None = None) -> Tensor:
        assert segments is None  # a run that learns a text has none
        with readers_errors(self._part.path):
            logits = self.own(ids)
        logits = logits[0] if isinstance(logits, tuple) else logits  # (logits, loss) in some courses
        _require_shape(self._part, logits, (*ids.shape, self.config.vocab_size))
        return logits

    def parameter_count(self) -> int:
        return sum(p.numel() for p in self.own.parameters())


def build_with(part: Part, config: ModelConfig) -> GPT:
    """Build the production GPT with the reader's part in it; see `make_model` of `Trainer.start`."""
    assert isinstance(config, GPTConfig)
    return (_Whole if part.name == "GPT" else _Own)(part, config)


def put_in(model: GPT, part: Part, config: GPTConfig) -> None:
    """Replace a part in each block of a production GPT by the reader's."""
    for i, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        if part.name == "Block":
            model.blocks[i] = _Called(part.make(config), part)
        elif part.name == "MLP":
            block.mlp = _Called(part.make(config), part)
        elif part.name in FUNCTIONS:
            block.attention.attend = _Seam(part)  # type: ignore[assignment]
        else:
            block.attention = _Called(_attention(part, config), part)  # type: ignore[assignment]
        initialise_as_gpt2(model.blocks[i])


def _attention(part: Part, config: GPTConfig) -> nn.Module:
    """Return the reader's attention layer; heads alone get a projection from their joined width."""
    joined = config.n_head * config.head_dim
    if part.name == "Head":
        return _Heads([part.make(config) for _ in range(config.n_head)], joined, config.n_embd)
    if part.name == "ParallelHeads":
        return nn.Sequential(part.make(config), nn.Linear(joined, config.n_embd))
    return part.make(config)


class _Called(nn.Module):
    """The reader's module, called with x alone where the production block passes more."""

    def __init__(self, own: nn.Module, part: Part) -> None:
        super().__init__()
        self.own, self._part = own, part
        self._fixed = {"causal": True} if "causal" in inspect.signature(own.forward).parameters else {}

    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        y = self.own(x, **self._fixed)
        y = y[0] if isinstance(y, tuple) else y  # (output, weights) in some courses
        _require_shape(self._part, y, tuple(x.shape))
        return y


class _Heads(nn.Module):
    """The reader's heads side by side, and a projection."""

    def __init__(self, heads: list[nn.Module], joined: int, width: int) -> None:
        super().__init__()
        self.heads, self.project = nn.ModuleList(heads), nn.Linear(joined, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        return self.project(torch.cat([head(x) for head in self.heads], dim=-1))


class _Seam(nn.Module):
    """The reader's function of q, k and v in the place of ScaledDotProductAttention."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self._part = part

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """(B, H, T, D) each -> (B, H, T, D)."""
        parameters = inspect.signature(self._part.made_by).parameters
        y = self._part.made_by(q, k, v, **({"causal": True} if "causal" in parameters else {}))
        y = y[0] if isinstance(y, tuple) else y
        _require_shape(self._part, y, tuple(q.shape))
        return y


def _require_shape(part: Part, y: object, expected: tuple[int, ...]) -> None:
    given = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
    if given != expected:
        raise LessonError(
            "{path}: {part} returns {given}; it should return a tensor of the shape {expected}.",
            path=part.path,
            part=part.name,
            given=given,
            expected=expected,
        )


@torch.no_grad()
def initialise_as_gpt2(module: nn.Module) -> None:
    """N(0, 0.02) for matrices and zero for biases. Output projections are not known by name, so none is smaller."""
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
