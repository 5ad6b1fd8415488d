"""Chapter 25: a published model is adapted with LoRA.

Source: https://arxiv.org/abs/2106.09685. Shapes use the legend of `jumok.nn.attention`; r is the rank of an adapter.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from jumok.course.chapters.training import mean_loss
from jumok.tokenizers import Tokenizer


@torch.no_grad()
def loss_per_character(model: nn.Module, tokenizer: Tokenizer, text: str, length: int = 64) -> float:
    """Return the loss of a text in nats per character, read in windows of `length` tokens."""
    ids = torch.tensor(tokenizer.encode(text).tolist())
    windows = ids[: len(ids) // (length + 1) * (length + 1)].view(-1, length + 1)  # (B, T + 1)
    return mean_loss(model, windows[:, :-1], windows[:, 1:]).item() * len(ids) / len(text)


class LoRALinear(nn.Module):
    """A linear layer that stays as it is, and an adapter 2 B A of rank r: (..., in) -> (..., out)."""

    def __init__(self, plain: nn.Linear, rank: int) -> None:
        super().__init__()
        self.plain = plain
        self.A = nn.Parameter(plain.weight.new_empty(rank, plain.in_features))
        self.B = nn.Parameter(plain.weight.new_zeros(plain.out_features, rank))
        nn.init.kaiming_uniform_(self.A, a=5**0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer plus that of the adapter."""
        return self.plain(x) + 2 * (x @ self.A.T) @ self.B.T  # (..., out)

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the layer with the adapter added to its matrix."""
        self.plain.weight += 2 * self.B @ self.A
        return self.plain


def parts(model: nn.Module, kind: type[nn.Module]) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    """Yield the parts of one kind in the blocks of a model: the module that has the part, its name there, the part."""
    for module in list(model.get_submodule("blocks").modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, kind):
                yield module, name, part


def add_adapters(model: nn.Module, rank: int) -> None:
    """Give each linear layer of the blocks an adapter; nothing else is trained from now on."""
    model.requires_grad_(False)
    for module, name, part in list(parts(model, nn.Linear)):
        setattr(module, name, LoRALinear(part, rank))  # type: ignore[arg-type]


def merge_adapters(model: nn.Module) -> None:
    """Put plain linear layers in the place of those with adapters."""
    for module, name, part in list(parts(model, LoRALinear)):
        setattr(module, name, part.merged())  # type: ignore[operator]
