"""An epoch contains each sample once, over all ranks, however often the run was stopped and with how many processes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.data.batches import Batches, LengthBatches
from jumok.training.parallel import ProcessGroup

sizes = st.integers(1, 5)


@st.composite
def resumed(draw: st.DrawFn, batches: int) -> list[tuple[int, range]]:
    """Stretches of so many batches, each with a number of processes: the run was stopped and resumed in between."""
    stops = sorted(draw(st.lists(st.integers(0, batches), max_size=3)))
    return [(draw(sizes), range(*ends)) for ends in pairwise([0, *stops, batches])]


def windows_of(group: ProcessGroup, batches: Batches, number: int) -> list[int]:
    """The windows that a rank computes of a batch, by their first tokens."""
    starts: list[int] = group.rows(batches.batch(number))[0][:, 0].tolist()
    return starts


@settings(max_examples=40)
@given(st.data())
def test_every_window_once_in_an_epoch(data: st.DataObject) -> None:
    """Batches cross the ends of epochs, and a step may accumulate several of them."""
    context, size = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 13))
    tokens = data.draw(st.integers(context + 1, 90))
    accumulate, epochs = data.draw(st.integers(1, 3)), 3
    ids = np.arange(tokens, dtype=np.uint32)
    whole = Batches(ids, context, size, seed=1)
    steps = -(-epochs * whole.windows // (size * accumulate))
    seen: list[int] = []
    for processes, stretch in data.draw(resumed(steps)):
        ranks = [(ProcessGroup(rank, processes), Batches(ids, context, size, seed=1)) for rank in range(processes)]
        for step in stretch:
            for number in range(step * accumulate, (step + 1) * accumulate):
                seen += [start for group, batches in ranks for start in windows_of(group, batches, number)]
    for epoch in range(epochs):
        part = seen[epoch * whole.windows : (epoch + 1) * whole.windows]
        first = min(part)
        assert sorted(part) == [first + i * context for i in range(whole.windows)]
        assert first + whole.windows * context < tokens
    assert len(seen) == steps * size * accumulate


@settings(max_examples=40)
@given(st.data())
def test_every_row_once_in_an_epoch(data: st.DataObject) -> None:
    """Rows of different lengths, in batches that are computed in parts."""
    lengths = np.array(data.draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)))
    tokens, weighted = data.draw(st.integers(16, 400)), data.draw(st.booleans())
    weights = lengths[:, 1] if weighted else None

    def batches() -> LengthBatches:
        return LengthBatches(lengths, tokens, seed=1, weights=weights)

    count, epochs = batches().count, 3
    seen: list[list[int]] = [[] for _ in range(epochs)]
    for processes, stretch in data.draw(resumed(epochs * count)):
        ranks = [(ProcessGroup(rank, processes), batches()) for rank in range(processes)]
        for number in stretch:
            for group, of_rank in ranks:
                rows = of_rank.rows(number)
                for part in of_rank.parts(number):
                    [mine] = group.rows((torch.from_numpy(rows[part]),))
                    seen[number // count] += mine.tolist()
    for epoch in seen:
        assert Counter(epoch) == Counter(range(len(lengths)))


@given(st.integers(0, 40), sizes)
def test_shares_differ_by_one_row_at_most(rows: int, processes: int) -> None:
    batch = (torch.arange(rows), torch.arange(rows) * 2)
    shares = [ProcessGroup(rank, processes).rows(batch) for rank in range(processes)]
    assert torch.equal(torch.cat([share[0] for share in shares]), batch[0])
    assert torch.equal(torch.cat([share[1] for share in shares]), batch[1])
    counts = [len(share[0]) for share in shares]
    assert max(counts) - min(counts) <= 1
