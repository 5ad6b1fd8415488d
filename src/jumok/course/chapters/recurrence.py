"""Chapter 16, from recurrent networks to attention: an RNN and a GRU by hand, and a decoder that aligns.

Shapes use the legend of `jumok.nn.attention`; S is the length of the source, N the width of a state.

Sources: RNN https://doi.org/10.1207/s15516709cog1402_1, GRU and the encoder–decoder with one vector
https://arxiv.org/abs/1406.1078, additive attention https://arxiv.org/abs/1409.0473, dot-product attention
https://arxiv.org/abs/1508.04025.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RNN(nn.Module):
    """A recurrent network, h_t = tanh(W x_t + b + U h_{t-1}): (B, T, C) -> (B, T, N)."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.from_x, self.from_h = nn.Linear(width, state), nn.Linear(state, state, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute one state after the other, from a state of zeros."""
        h = x.new_zeros(len(x), self.from_h.in_features)  # (B, N)
        states = []
        for x_t in x.unbind(dim=1):  # (B, C)
            h = torch.tanh(self.from_x(x_t) + self.from_h(h))  # (B, N)
            states.append(h)
        return torch.stack(states, dim=1)  # (B, T, N)


class GRU(nn.Module):
    """A recurrent network with gates, h_t = (1 - z) n + z h_{t-1}: (B, T, C) -> (B, T, N)."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.from_x, self.from_h = nn.Linear(width, 3 * state), nn.Linear(state, 3 * state)

    def step(self, x_t: Tensor, h: Tensor) -> Tensor:
        """Return the next state: (B, C), (B, N) -> (B, N)."""
        x_r, x_z, x_n = self.from_x(x_t).chunk(3, dim=-1)  # (B, N)
        h_r, h_z, h_n = self.from_h(h).chunk(3, dim=-1)  # (B, N)
        r, z = torch.sigmoid(x_r + h_r), torch.sigmoid(x_z + h_z)
        n = torch.tanh(x_n + r * h_n)
        return (1 - z) * n + z * h

    def forward(self, x: Tensor) -> Tensor:
        """Compute one state after the other, from a state of zeros."""
        h = x.new_zeros(len(x), self.from_h.in_features)  # (B, N)
        states = []
        for x_t in x.unbind(dim=1):  # (B, C)
            h = self.step(x_t, h)
            states.append(h)
        return torch.stack(states, dim=1)  # (B, T, N)


class LastState(nn.Module):
    """No attention: all of the weight on the last state: (B, N), (B, S, N) -> (B, S)."""

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """Return 1 for the last state and 0 for the others."""
        return F.one_hot(torch.tensor(states.shape[1] - 1), states.shape[1]).to(states).expand(len(states), -1)


class AdditiveAttention(nn.Module):
    """The attention of 2014, score(s, h) = v · tanh(W s + U h): (B, N), (B, S, N) -> (B, S)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(width, width, bias=False)
        self.of_key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """Return weights that sum to one over the states."""
        hidden = torch.tanh(self.of_query(query)[:, None] + self.of_key(states))  # (B, S, N)
        return self.score(hidden)[..., 0].softmax(dim=-1)


class DotProductAttention(nn.Module):
    """The attention of 2015, score(s, h) = s · h, without parameters: (B, N), (B, S, N) -> (B, S)."""

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """Return weights that sum to one over the states."""
        return (states @ query[:, :, None])[..., 0].softmax(dim=-1)


class Reverser(nn.Module):
    """A recurrent encoder and decoder that write a sequence backwards; the decoder gets a weighted sum of states."""

    def __init__(self, attention: nn.Module, vocab_size: int, width: int) -> None:
        super().__init__()
        self.attention, self.vocab_size = attention, vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.encoder, self.decoder = GRU(width, width), GRU(2 * width, width)
        self.head = nn.Linear(2 * width, vocab_size)

    def forward(self, source: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits, (B, S, V), and the weights, (B, S, S). target: what the decoder reads in training."""
        states = self.encoder(self.embedding(source))  # (B, S, N)
        state = states[:, -1]  # (B, N)
        token = torch.full_like(source[:, 0], self.vocab_size)  # (B,)
        all_logits, all_weights = [], []
        for t in range(source.shape[1]):
            weights = self.attention(state, states)  # (B, S)
            context = (weights[:, :, None] * states).sum(dim=1)  # (B, N)
            state = self.decoder.step(torch.cat((self.embedding(token), context), dim=-1), state)  # (B, N)
            logits = self.head(torch.cat((state, context), dim=-1))  # (B, V)
            token = logits.argmax(dim=-1) if target is None else target[:, t]
            all_logits.append(logits)
            all_weights.append(weights)
        return torch.stack(all_logits, dim=1), torch.stack(all_weights, dim=1)


def train_reverser(make_attention: Callable[[], nn.Module], *, longest: int, steps: int, seed: int = 0) -> Reverser:
    """Train a `Reverser` of ten tokens and width 32 on random sequences of 1 to `longest` tokens."""
    torch.manual_seed(seed)
    model = Reverser(make_attention(), vocab_size=10, width=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.0)
    random = torch.Generator().manual_seed(seed)
    for step in range(steps):
        length = int(torch.randint(1, longest + 1, (), generator=random))
        source = torch.randint(10, (64, length), generator=random)  # (B, S)
        logits, _ = model(source, source.flip(1))
        loss = F.cross_entropy(logits.flatten(0, 1), source.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / steps)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def share_right(model: Reverser, length: int, count: int = 200) -> float:
    """Return the share of random sequences of one length that the model reverses without any error."""
    source = torch.randint(10, (count, length), generator=torch.Generator().manual_seed(1))
    logits, _ = model(source)
    return (logits.argmax(dim=-1) == source.flip(1)).all(dim=1).double().mean().item()


def longest_chain(output: Tensor) -> int:
    """Return the largest number of operations, in the graph of autograd, of which each needs the one before."""
    length: dict[Any, int] = {}
    stack: list[Any] = [output.grad_fn]
    while stack:
        inputs = [function for function, _ in stack[-1].next_functions if function is not None]
        waiting = [function for function in inputs if function not in length]
        if waiting:
            stack.extend(waiting)
            continue
        kind = type(stack[-1]).__name__
        counts = kind.startswith(("Add", "Mul", "Mm", "Bmm", "Div", "Tanh", "Sigmoid", "Softmax", "MaskedFill", "Rsub"))
        length[stack.pop()] = max((length[function] for function in inputs), default=0) + counts
    return length[output.grad_fn]
