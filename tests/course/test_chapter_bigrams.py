"""Chapter 12: counting and learning agree; batches and the baseline are those of production."""

from __future__ import annotations

import math

import pytest
import torch

from jumok.corpora import stories
from jumok.course.chapters.bigrams import (
    BigramModel,
    count_pairs,
    counted_probabilities,
    epoch_starts,
    hold_out,
    learn,
    windows,
    witten_bell,
)
from jumok.data.batches import Batches
from jumok.evaluation.bigram import Bigram
from jumok.models.losses import cross_entropies


def test_pairs_are_counted() -> None:
    counts = count_pairs(torch.tensor([0, 1, 0, 1, 2, 0]), 4)
    assert counts.tolist() == [[0, 2, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    probabilities = counted_probabilities(counts)
    assert probabilities[1].tolist() == [0.5, 0, 0.5, 0]
    assert probabilities[3].isnan().all()
    torch.testing.assert_close(counted_probabilities(counts, 1.0).sum(dim=-1), torch.ones(4))


def test_learning_finds_what_is_counted() -> None:
    torch.manual_seed(0)
    ids = torch.randint(5, (400,))  # every pair occurs, so the best table is finite
    counted = counted_probabilities(count_pairs(ids, 5))
    model = BigramModel(5)
    losses = learn(model, ids, steps=200, rate=0.1)
    assert losses[0] == pytest.approx(math.log(5), abs=1e-6)
    torch.testing.assert_close(model.table.weight.softmax(dim=-1), counted, rtol=0, atol=1e-3)
    best = cross_entropies(counted.log()[ids[:-1]], ids[1:]).mean().item()
    assert losses[-1] == pytest.approx(best, abs=1e-4)
    assert min(losses) > best - 1e-6


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_the_end_is_held_out(share: float) -> None:
    ids = torch.arange(103)
    kept, held_out = hold_out(ids, share)
    assert torch.equal(torch.cat([kept, held_out]), ids)
    assert len(held_out) == round(103 * share)


@pytest.mark.parametrize("length", [33, 40, 500])
@pytest.mark.parametrize("seed", [0, 7])
def test_batches_are_those_of_production(length: int, seed: int) -> None:
    """Through two epochs, with batches that reach from one into the next."""
    ids = torch.randint(1_000, (length,))
    production = Batches(ids.numpy(), context_length=8, batch_size=3, seed=seed)
    starts = [start for epoch in range(3) for start in epoch_starts(length, 8, seed, epoch)]
    for number in range(2 * production.windows // 3):
        mine = windows(ids, starts[3 * number : 3 * number + 3], 8)
        for ours, theirs in zip(mine, production.batch(number), strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("asked", ["가", "\n", "Z", "옛날에 율무라는 강아지가\n\n갔어요. Q"])
def test_the_baseline_is_that_of_production(asked: str) -> None:
    """Also for characters that never occurred."""
    learned = "".join(stories.write(500, seed=3))
    assert witten_bell(learned, asked) == pytest.approx(Bigram([learned]).nats_per_char([asked]), abs=1e-12)
