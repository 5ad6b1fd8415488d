"""Chapter 16, from recurrent networks to attention: an RNN and a GRU by hand, and a decoder that aligns.

A recurrent network computes one state after the other, h_t = f(h_{t-1}, x_t). `Reverser` is an encoder and a decoder of
this kind, and writes its source backwards. Its decoder receives the source in one of three ways: as one vector, by
additive attention, or by dot-product attention.

Shapes use the legend of `jumok.nn.attention`; S is the length of the source, T that of the target, N the width of
a state.

Sources: RNN https://doi.org/10.1207/s15516709cog1402_1, GRU and the encoder–decoder with one vector
https://arxiv.org/abs/1406.1078, additive attention https://arxiv.org/abs/1409.0473, dot-product attention
https://arxiv.org/abs/1508.04025.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.nn import attention_weights

RATE = 5e-3  # the learning rate at the start; it decreases to 0

# Nodes of autograd that only arrange numbers.
ARRANGING = (
    "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Alias", "Expand", "Unsqueeze", "Squeeze",
    "Select", "Slice", "Unbind", "Split", "Clone", "ToCopy",
)  # fmt: skip

Kind = Literal["vector", "additive", "dot"]

# --- one state after the other ----------------------------------------------------------------------------------------


def rnn_by_hand(rnn: nn.RNN, x: Tensor) -> Tensor:
    """h_t = tanh(W x_t + b + U h_{t-1} + c), from h_0 = 0.

    Args:
        rnn: one layer with biases, batch_first=True. x: (B, T, C).

    Returns:
        (B, T, N), all states; equal to the first result of `rnn(x)`.
    """
    w, u, b, c = rnn.all_weights[0]  # (N, C), (N, N), (N,), (N,)
    h = x.new_zeros(len(x), rnn.hidden_size)  # (B, N)
    states = []
    for x_t in x.unbind(dim=1):  # (B, C) each
        h = torch.tanh(F.linear(x_t, w, b) + F.linear(h, u, c))
        states.append(h)
    return torch.stack(states, dim=1)


def gru_by_hand(gru: nn.GRU, x: Tensor) -> Tensor:
    """h_t = (1 - z) n + z h_{t-1}: the gate z keeps the old state, and n is a new one.

    r = sigmoid(W_r x + b_r + U_r h + c_r), z = sigmoid(W_z x + b_z + U_z h + c_z), n = tanh(W_n x + b_n + r (U_n h +
    c_n)).

    Args:
        gru: one layer with biases, batch_first=True. x: (B, T, C).

    Returns:
        (B, T, N), all states; equal to the first result of `gru(x)`.
    """
    w, u, b, c = gru.all_weights[0]  # (3N, C), (3N, N), (3N,), (3N,): of r, z and n
    h = x.new_zeros(len(x), gru.hidden_size)  # (B, N)
    states = []
    for x_t in x.unbind(dim=1):  # (B, C) each
        from_x = F.linear(x_t, w, b).chunk(3, dim=-1)  # three times (B, N)
        from_h = F.linear(h, u, c).chunk(3, dim=-1)
        r, z = torch.sigmoid(from_x[0] + from_h[0]), torch.sigmoid(from_x[1] + from_h[1])  # (B, N) each
        n = torch.tanh(from_x[2] + r * from_h[2])  # (B, N)
        h = (1 - z) * n + z * h
        states.append(h)
    return torch.stack(states, dim=1)


def longest_chain(output: Tensor) -> int:
    """The largest number of operations of which each needs the result of the one before.

    These operations cannot run at the same time, whatever the hardware. They are counted in the graph of autograd, so
    `output` needs a gradient. Leaves of the graph count 0, and so does what only arranges numbers, such as a transpose.
    """
    if output.grad_fn is None:
        raise ValueError("the output has no graph; compute it from parameters, with gradients")
    length: dict[object, int] = {}
    stack: list[object] = [output.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [function for function, _ in node.next_functions if function is not None]  # type: ignore[attr-defined]
        waiting = [function for function in inputs if function not in length]
        if waiting:
            stack.extend(waiting)
            continue
        own = type(node).__name__.split("Backward")[0] not in (*ARRANGING, "AccumulateGrad")
        length[stack.pop()] = max((length[function] for function in inputs), default=0) + own
    return length[output.grad_fn]


# --- alignment --------------------------------------------------------------------------------------------------------


class AdditiveAttention(nn.Module):
    """The attention of 2014: score(s, h) = v · tanh(W s + U h), a network with one hidden layer.

    Args:
        width: N, of the states, and of the hidden layer.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_query = nn.Linear(width, width, bias=False)
        self.of_key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """Weights that sum to one over the states: (B, N), (B, S, N) -> (B, S)."""
        hidden = torch.tanh(self.of_query(query)[:, None] + self.of_key(states))  # (B, S, N)
        return self.score(hidden)[..., 0].softmax(dim=-1)

    def by_loop(self, query: Tensor, states: Tensor) -> Tensor:
        """The same, one state at a time."""
        v = self.score.weight[0]  # (N,)
        rows = []
        for s, sequence in zip(query, states, strict=True):
            scores = [torch.tanh(self.of_query.weight @ s + self.of_key.weight @ h) @ v for h in sequence]
            rows.append(torch.stack(scores).softmax(dim=-1))
        return torch.stack(rows)


class DotProductAttention(nn.Module):
    """The attention of 2015: score(s, h) = s · h, without parameters.

    It is one head of `attention_weights`, which divides by sqrt(N); the query is multiplied by it beforehand. The
    numbers of a state are between -1 and 1, so these scores are not too large.
    """

    def forward(self, query: Tensor, states: Tensor) -> Tensor:
        """Weights that sum to one over the states: (B, N), (B, S, N) -> (B, S)."""
        return attention_weights(query[:, None, None] * math.sqrt(query.shape[-1]), states[:, None])[:, 0, 0]


class Reverser(nn.Module):
    """A recurrent encoder and decoder that learn to write a sequence backwards.

    At each step the decoder receives the previous token and a context c: `state = GRU([token, c], state)`. "vector": c
    is the last state of the encoder at all steps. "additive" and "dot": c is a weighted sum of all states of the
    encoder, and the query is the previous state of the decoder. Nothing else differs. The first state of the decoder is
    the last state of the encoder.

    Args:
        kind: of the context. vocab_size: V; the id V is the start token. width: N, of embeddings and states.
    """

    def __init__(self, kind: Kind, vocab_size: int, width: int) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ValueError(f"kind={kind!r} is not one of {', '.join(get_args(Kind))}")
        self.kind, self.vocab_size = kind, vocab_size
        self.embedding = nn.Embedding(vocab_size + 1, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRUCell(2 * width, width)
        self.head = nn.Linear(2 * width, vocab_size)
        self.attention = {"vector": None, "additive": AdditiveAttention(width), "dot": DotProductAttention()}[kind]

    def forward(self, source: Tensor, target: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Write the target.

        Args:
            source: (B, S), ids. target: (B, T), for training: the decoder receives its tokens. Without it, T is S, and
                the decoder receives its own tokens.

        Returns:
            The logits, (B, T, V), and the weights of the source at each step, (B, T, S).
        """
        states, _ = self.encoder(self.embedding(source))  # (B, S, N)
        state = states[:, -1]  # (B, N)
        token = torch.full_like(source[:, 0], self.vocab_size)  # (B,)
        all_logits, all_weights = [], []
        for t in range(source.shape[1] if target is None else target.shape[1]):
            if self.attention is None:  # all of the weight on the last state
                weights = F.one_hot(torch.full_like(token, source.shape[1] - 1), source.shape[1]).to(states.dtype)
            else:
                weights = self.attention(state, states)  # (B, S)
            context = (weights[:, :, None] * states).sum(dim=1)  # (B, N)
            state = self.decoder(torch.cat((self.embedding(token), context), dim=-1), state)  # (B, N)
            logits = self.head(torch.cat((state, context), dim=-1))  # (B, V)
            token = logits.argmax(dim=-1) if target is None else target[:, t]
            all_logits.append(logits)
            all_weights.append(weights)
        return torch.stack(all_logits, dim=1), torch.stack(all_weights, dim=1)


# --- training ---------------------------------------------------------------------------------------------------------


def train_reverser(kind: Kind, *, vocab_size: int, width: int, longest: int, steps: int, seed: int = 0) -> Reverser:
    """Train a `Reverser` on random sequences of 1 to `longest` tokens; each batch has one length.

    All kinds with the same seed see the same sequences.
    """
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Reverser(kind, vocab_size, width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    for step in range(steps):
        length = int(torch.randint(1, longest + 1, (), generator=random))
        source = torch.randint(vocab_size, (64, length), generator=random)  # (B, S)
        target = source.flip(1)
        logits, _ = model(source, target)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        optimizer.step()
    return model.eval()


@torch.no_grad()
def share_right(model: Reverser, length: int, *, count: int = 200, seed: int = 1) -> float:
    """The share of random sequences of one length that the model reverses without any error."""
    source = torch.randint(model.vocab_size, (count, length), generator=torch.Generator().manual_seed(seed))
    logits, _ = model(source)
    return float((logits.argmax(dim=-1) == source.flip(1)).all(dim=1).double().mean())
