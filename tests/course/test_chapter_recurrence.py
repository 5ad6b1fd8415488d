"""Chapter 17: recurrent networks by hand are those of PyTorch, and a decoder that aligns learns more."""

from __future__ import annotations

import pytest
import torch
from equality import random
from torch import nn

from jumok.course.chapters import recurrence
from jumok.course.chapters.recurrence import AdditiveAttention, DotProductAttention, Kind, Reverser

KINDS: tuple[Kind, ...] = ("vector", "additive", "dot")


@pytest.mark.parametrize(("batch", "t"), [(1, 1), (3, 7)])
@torch.no_grad()
def test_networks_by_hand_are_those_of_pytorch(batch: int, t: int) -> None:
    x = random(batch, t, 4)
    for kind, by_hand in ((nn.RNN, recurrence.rnn_by_hand), (nn.GRU, recurrence.gru_by_hand)):
        network = kind(4, 6, batch_first=True).double()
        torch.testing.assert_close(by_hand(network, x), network(x)[0], rtol=0, atol=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_longest_chain_counts_what_must_wait(count: int) -> None:
    w = torch.ones(3, requires_grad=True)
    chain = w * 2
    for _ in range(count - 1):
        chain = chain * 2
    assert recurrence.longest_chain(chain) == count
    beside = torch.stack([w * n for n in range(9)])
    assert recurrence.longest_chain(beside) == 2, "nine products that do not wait for each other, and the stack"
    assert recurrence.longest_chain(torch.stack([chain, w])) == count + 1, "the longer of two ways"


def test_the_chain_of_a_recurrent_network_grows_with_the_length() -> None:
    rnn = nn.RNN(4, 4, batch_first=True).double()
    lengths = [recurrence.longest_chain(recurrence.rnn_by_hand(rnn, random(1, t, 4))) for t in (4, 5, 6, 40)]
    step = lengths[1] - lengths[0]
    assert step > 0
    assert lengths == [lengths[0] + step * n for n in (0, 1, 2, 36)]


@torch.no_grad()
def test_additive_attention_by_loop() -> None:
    attention = AdditiveAttention(6).double()
    query, states = random(3, 6), random(3, 5, 6, seed=1)
    weights = attention(query, states)
    torch.testing.assert_close(weights, attention.by_loop(query, states), rtol=0, atol=1e-12)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))


@torch.no_grad()
def test_dot_product_attention_is_not_scaled() -> None:
    query, states = random(3, 6), random(3, 5, 6, seed=1)
    expected = torch.stack([(h @ s).softmax(dim=0) for s, h in zip(query, states, strict=True)])
    torch.testing.assert_close(DotProductAttention()(query, states), expected, rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_reverser(kind: Kind) -> None:
    torch.manual_seed(0)
    model = Reverser(kind, 5, 8)
    source = torch.tensor([[0, 1, 2, 3], [4, 4, 0, 1]])
    logits, weights = model(source)
    assert (logits.shape, weights.shape) == ((2, 4, 5), (2, 4, 4))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 4))
    if kind == "vector":
        assert torch.equal(weights[..., -1], torch.ones(2, 4))
    again, _ = model(source, logits.argmax(dim=-1))
    torch.testing.assert_close(logits, again)  # its own tokens, given as the target
    forced, _ = model(source, source)
    changed, _ = model(source, torch.cat((source[:, :3], source[:, :1]), dim=1))
    assert torch.equal(forced, changed), "no output depends on the token that it predicts"
    with pytest.raises(ValueError, match="kind='sum' is not one of vector, additive, dot"):
        Reverser("sum", 5, 8)  # type: ignore[arg-type]


def test_training_is_reproducible_and_leaves_the_generator_alone() -> None:
    settings = {"vocab_size": 5, "width": 8, "longest": 3, "steps": 5}
    before = torch.get_rng_state()
    first, again = (recurrence.train_reverser("dot", **settings).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.long
def test_attention_reverses_what_one_vector_cannot() -> None:
    settings = {"vocab_size": 6, "width": 12, "longest": 6, "steps": 400}
    shares = {
        kind: recurrence.share_right(recurrence.train_reverser(kind, **settings), 6) for kind in ("vector", "dot")
    }
    assert shares["dot"] > shares["vector"] + 0.15
    assert all(0 <= share <= 1 for share in shares.values())
