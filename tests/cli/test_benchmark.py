"""Measuring: works take turns, both sides do the same, and what is told is what was measured. No time is asserted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import TINY
from jumok import cli
from jumok import text as reader
from jumok.cli import benchmark as speed
from jumok.cli.benchmark import StockTraining, Turns, measure_machine, our_training, spread, stock_model, take_turns
from jumok.training.trainer import Trainer

CPU = torch.device("cpu")
SMALL = {
    key: TINY[key] for key in ("n_layer", "n_head", "n_embd", "context_length", "batch_size", "precision", "compile")
}

# transformers and what it imports warn their own developers.
STOCK = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def test_works_take_turns_in_an_order_that_turns_round() -> None:
    """The one that always came second would always find warm caches, or a processor that was slowed down for heat."""
    calls: list[str] = []
    works: dict[str, Callable[[], object]] = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    turns = take_turns(works, tokens=10, rounds=3, device=CPU)
    assert "".join(calls) == "abccbaabc"
    assert {name: len(seconds) for name, seconds in turns.seconds.items()} == {"a": 3, "b": 3, "c": 3}


def test_ratios_are_taken_within_the_rounds() -> None:
    """The machine was half as fast in the second round: of times that are averaged first the ratio would be another."""
    turns = Turns(seconds={"ours": [1.0, 2.0, 1.0], "theirs": [3.0, 6.0, 4.0]}, tokens=100)
    assert turns.ratio("ours", "theirs") == (3.0, 3.0, 4.0)
    assert turns.speed("ours") == 100
    assert turns.speed("theirs") == 25
    assert spread([5.0]) == (5.0, 5.0, 5.0)


def test_the_machine_is_described_by_what_was_measured() -> None:
    machine = measure_machine(CPU)
    assert machine.float32_gflops > 0.1
    assert machine.bandwidth_gb > 0.1
    assert machine.torch == torch.__version__
    assert f"{machine.cores} cores" in machine.describe()
    assert f"float32 {machine.float32_gflops:,.0f}" in machine.describe()


def test_our_steps_are_nothing_but_steps(tales: str) -> None:
    """With a save after every step, which is what `save_every=0` asks for, the trainer looked ten times as slow."""
    with our_training(tales, SMALL, "cpu") as training:
        folder = training.trainer.folder
        for _ in range(30):
            training.step()
        assert len(training.losses) == training.trainer.step == 30
        events = {line["event"] for line in folder.read_metrics()}
        assert events == {"step"}
        assert not list(folder.state.glob("step-*"))
    assert not folder.path.exists()


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
def test_the_stock_model_gives_the_same_logits(tales: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    trainer = Trainer.start(tmp_path / "run", reader.from_string(tales), TINY, device="cpu")
    list(trainer.run())
    ids = torch.tensor([[5, 300, 7, 260]])
    model = trainer.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(stock_model(model).eval()(input_ids=ids).logits, model(ids), rtol=1e-4, atol=1e-4)


@STOCK
def test_both_sides_write_as_many_tokens(tales: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that may end its text early would look fast."""
    pytest.importorskip("transformers")
    with our_training(tales, SMALL, "cpu") as training:
        works = speed.writers(training.trainer.model, 12, stock=True)
        (ours,) = works["jumok"]()  # type: ignore[misc]
        theirs = works["transformers"]()
    assert ours.tokens == 12
    assert theirs.shape == (1, 13)


def jumok(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["jumok", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0


@STOCK
def test_jumok_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(speed, "CHARS", 5_000)
    monkeypatch.setattr(speed, "WRITTEN", 5)
    monkeypatch.setattr(speed, "has_stock", lambda: False)
    jumok(monkeypatch, "bench", "--size", "nano", "--rounds", "1", "--device", "cpu", "--json")
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["size"] == "nano"
    assert found["context_length"] == 128
    assert found["machine"]["torch"] == torch.__version__
    assert found["machine"]["transformers"] is None
    assert found["training"].keys() == {"ours", "theirs", "ratio"}
    assert found["training"]["ours"] > 0 < found["decoding"]["ours"]
    assert found["training"]["ratio"] is None


@STOCK
def test_jumok_bench_as_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(speed, "CHARS", 5_000)
    monkeypatch.setattr(speed, "WRITTEN", 5)
    monkeypatch.setenv("COLUMNS", "100")
    jumok(monkeypatch, "bench", "--size", "nano", "--rounds", "1", "--device", "cpu", "--quiet")
    out, err = capsys.readouterr()
    assert err == ""
    rows = {line.split("  ")[0].strip(): line for line in out.splitlines() if " to " in line}
    assert {"training, not compiled", "writing one text"} <= rows.keys()
