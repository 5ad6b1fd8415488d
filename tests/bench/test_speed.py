"""The harness of bench/: runs are interleaved, and both sides do the same. No time is asserted."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable

import pytest
import torch

import around
import kernels
import speed
from conftest import TINY
from speed import StockTraining, interleave, our_training

CPU = torch.device("cpu")
SMALL = {
    key: TINY[key] for key in ("n_layer", "n_head", "n_embd", "context_length", "batch_size", "precision", "compile")
}

# transformers and what it imports warn their own developers.
STOCK = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def test_works_interleave_in_an_order_that_turns_round() -> None:
    """The one that always came second would always find warm caches, or a processor that was slowed down for heat."""
    calls: list[str] = []
    works: dict[str, Callable[[], object]] = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    turns = interleave(works, tokens=10, rounds=3, device=CPU)
    assert "".join(calls) == "abccbaabc"
    assert {name: len(seconds) for name, seconds in turns.seconds.items()} == {"a": 3, "b": 3, "c": 3}


@pytest.mark.slow
def test_the_time_of_a_step_is_divided_by_kind() -> None:
    """An optimizer's products are its own, and the operations of the others are those of the formula."""
    how = {"optimizer": "muon", "attention": "chunked", "precision": "float32", "compile": "off"}
    found, calls, wall, flops = kernels.milliseconds({**SMALL, **how}, 2, 300)
    assert wall > 0
    assert min(found.values()) >= 0
    assert {"products", "attention", "AdamW", "Muon"} <= {each.kind for each in found}
    counted = sum(each.flops * calls[each] for each in found if each.kind in ("products", "attention"))
    assert counted == pytest.approx(flops, rel=0.1)  # chunks of attention compute a little more than half of the square


@pytest.mark.slow
@STOCK
def test_both_sides_train_the_same_model_on_the_same_batches(tales: str) -> None:
    pytest.importorskip("transformers")
    with our_training(tales, {**SMALL, "optimizer": "adamw", "weight_decay": 0.0}, "cpu") as ours:
        theirs = StockTraining(ours.trainer.model, ours.trainer.task.batch, ours.trainer.config, "float32")
        for _ in range(20):
            ours.step()
            theirs.step()
    assert ours.losses[-1] != ours.losses[0]
    assert theirs.losses == pytest.approx(ours.losses, rel=1e-4)


@STOCK
def test_both_sides_write_as_many_tokens(tales: str) -> None:
    """A model that may end its text early would look fast."""
    pytest.importorskip("transformers")
    with our_training(tales, SMALL, "cpu") as training:
        works = speed.writers(training.trainer.model, 12, stock=True)
        (ours,) = works["jumok"]()  # type: ignore[misc]
        theirs = works["transformers"]()
    assert ours.tokens == 12
    assert theirs.shape == (1, 13)


def test_the_phases_name_functions_that_exist() -> None:
    """bench/around.py measures functions by their names, which another change may move."""
    for place in (place for places in around.PHASES.values() for place in places):
        assert pkgutil.resolve_name(place), place
