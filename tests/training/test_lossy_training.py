"""Runs whose tokenizer loses characters: their figures are per token, and no goal per character is reached by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY
from jumok.errors import ConfigError
from jumok.runs.events import Eval, Finish, Notice
from jumok.text import Text, from_string
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.training.trainer import Trainer
from lossy_tokenizers import TEXT, byte_level, word_piece

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folder")]

PER_CHARACTER = {"nats_per_char", "bits_per_char", "bits_per_byte", "baseline_nats_per_char", "floor"}


@pytest.fixture
def text() -> Text:
    return from_string(TEXT * 40)


def begin(text: Text, tokenizer: Tokenizer, out: str = "run", **settings: Any) -> Trainer:
    made = {**TINY, "sample_tokens": 0, **settings}
    return Trainer.start(out, text, **made, tokenizer=tokenizer, device="cpu")


def test_a_run_tells_what_is_lost_and_has_figures_per_token(text: Text) -> None:
    """A run with `--tokenizer` of a BERT was far better, per character, than one that reads all of the text."""
    trainer = begin(text, word_piece())
    events = list(trainer.run())
    told = [event.text for event in events if isinstance(event, Notice)]
    assert sum("The tokenizer loses" in one and "per token" in one for one in told) == 1
    for event in events:
        if isinstance(event, Eval | Finish):
            assert event.headline.endswith("nats/token")
            assert not event.figures.keys() & PER_CHARACTER
            assert event.figures["loss"] == event.figures["loss_per_token"]
    assert trainer.task.loss_label == "nats/token"
    config = json.loads(Path("run/config.json").read_text(encoding="utf-8"))
    assert config["data"]["lost_chars"] > 0.05 * config["data"]["val_chars"]
    assert config["data"]["baseline_nats_per_char"] is None
    assert not config["metrics"].keys() & PER_CHARACTER


@pytest.mark.parametrize("tokenizer", [byte_level(), train_tokenizer(TEXT, "char")], ids=["foreign", "own"])
def test_a_run_that_loses_nothing_has_figures_per_character(text: Text, tokenizer: Tokenizer) -> None:
    events = list(begin(text, tokenizer).run())
    assert not any(isinstance(event, Notice) and "loses" in event.text for event in events)
    assert isinstance(events[-1], Finish)
    assert events[-1].figures.keys() >= PER_CHARACTER - {"floor"}


def test_a_goal_per_character_is_refused(text: Text) -> None:
    """`--stop-at` ended such a run long before its model was as good as that."""
    with pytest.raises(ConfigError, match=r"stop_at=2 is a loss per character\. The tokenizer loses .*tokenizer=bpe"):
        begin(text, word_piece(), stop_at=2.0)
    assert not Path("run/config.json").exists()
    begin(text, byte_level(), "whole", stop_at=2.0).close()


def test_masked_tokens_have_figures_per_token_and_the_run_tells_what_is_lost(text: Text) -> None:
    tokenizer = word_piece(special=("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    made = {**TINY, "task": "mlm", "sample_tokens": 0}
    events = list(Trainer.start("run", text, **made, tokenizer=tokenizer, device="cpu").run())
    assert any(isinstance(event, Notice) and "The tokenizer loses" in event.text for event in events)
    assert isinstance(events[-1], Finish)
    assert "nats_per_hidden_token" in events[-1].figures
