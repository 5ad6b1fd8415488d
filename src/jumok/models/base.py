"""The class of which all models are, and the checks of their inputs: ids and masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import Tensor, nn

from jumok.config import ModelConfig
from jumok.models.size_checks import require_memory_for_model

if TYPE_CHECKING:
    from jumok.tokenizers import Tokenizer

C = TypeVar("C", bound=ModelConfig)


class ConfiguredModel(nn.Module, Generic[C]):
    """A model of a configuration, perhaps with a tokenizer.

    Args:
        config: the architecture, with the size of the vocabulary.

    Raises:
        ConfigError: the vocabulary has no size, or there is too little memory.
    """

    tokenizer: Tokenizer | None = None  # set by `jumok.load`, for functions that take text

    def __init__(self, config: C) -> None:
        config.require_vocabulary()
        itemsize = 0 if torch.get_default_device().type == "meta" else torch.get_default_dtype().itemsize
        require_memory_for_model(config, itemsize)
        super().__init__()
        self.config = config

    def parameter_count(self) -> int:
        """Return the number of parameters; a shared matrix counts once."""
        return sum(p.numel() for p in self.parameters())


def checked_ids(ids: Tensor, number: int, length: int, name: str = "ids", past: int = 0) -> Tensor:
    """Check ids and convert them for an embedding: (B, T), any integer type -> (B, T), int64.

    In training on an accelerator the values are not checked, because the host would wait for the device in each step.

    Args:
        number: ids must be less than this.
        length: past + T must be at most this.
        name: for messages.
        past: tokens in the cache.

    Raises:
        ValueError: the shape, the type, the length or a value is wrong.
    """
    if ids.dim() != 2:
        raise ValueError(f"{name} have the shape {tuple(ids.shape)}; give (B, T), one text alone as (1, T)")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise ValueError(f"{name} are of type {ids.dtype}; give whole numbers, torch.int64 for example")
    if past + ids.shape[1] > length:
        remedy = f"the cache holds {past} of them: begin a new one with the last alone" if past else f"cut the {name}"
        raise ValueError(f"{past + ids.shape[1]} tokens exceed the context of {length}; {remedy}")
    ids = ids.long()  # a tokenizer returns the smallest type for its ids
    training = ids.device.type != "cpu" and torch.is_grad_enabled()
    if ids.numel() and not training and not torch.compiler.is_compiling():
        lowest, highest = torch.stack(torch.aminmax(ids)).tolist()
        if lowest < 0 or highest >= number:
            wrong = lowest if lowest < 0 else highest
            raise ValueError(
                f"{name} hold {wrong}, and this model has 0 to {number - 1}; use the tokenizer made for it"
            )
    return ids


def key_mask(mask: Tensor | None, keys: Tensor, name: str = "mask") -> Tensor | None:
    """Convert a mask over positions for attention: (B, S) -> (B, 1, 1, S), bool.

    Args:
        mask: bool, or integers 0 and 1 as in `transformers`; True where a token may be attended to.
        keys: (B, S) or (B, S, C), the ids or hidden states that the mask belongs to.
        name: for messages.

    Raises:
        ValueError: the shape differs from that of `keys`, or the mask has a floating-point type.
    """
    if mask is None:
        return None
    wanted = tuple(keys.shape[:2])
    if mask.shape != wanted:
        raise ValueError(f"{name} has the shape {tuple(mask.shape)}; it must be that of the ids, {wanted}")
    if mask.is_floating_point():
        raise ValueError(f"{name} is of type {mask.dtype}; give bool, True where a token may be attended to")
    return mask.bool()[:, None, None, :]  # (B, 1, 1, S)
