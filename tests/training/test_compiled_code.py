"""How long compiling is expected to take. The compiler is played, and no time is asserted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.config import GPTConfig, TrainConfig
from jumok.training.compilation import CACHED_SHARE, CompileTimes, keep_code_private

SHAPE = GPTConfig(vocab_size=31, n_layer=1, n_head=2, n_embd=16, context_length=16)
CONFIG = TrainConfig(steps=1, precision="float32", attention="chunked", compile="on")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "code"))
    (tmp_path / "code").mkdir()
    monkeypatch.setattr(CompileTimes, "_estimated", lambda _: 77.0)


def times() -> CompileTimes:
    return CompileTimes(torch.device("cpu"))


def test_what_was_compiled_is_in_the_cache() -> None:
    """Another shape takes as long as the first one did on this machine; the same shape takes a part of that."""
    other = dataclasses.replace(SHAPE, n_embd=32)
    assert times().expected(SHAPE, CONFIG) == 77.0
    times().keep(SHAPE, CONFIG, 30.0)
    assert times().expected(SHAPE, CONFIG) == pytest.approx(CACHED_SHARE * 30)
    assert times().expected(other, CONFIG) == 30.0
    times().keep(SHAPE, CONFIG, 4.0)
    times().keep(SHAPE, CONFIG, 40.0)  # other programs were in the way
    assert times().expected(SHAPE, CONFIG) == 4.0
    assert times().expected(other, CONFIG) == 30.0
    times().keep(other, CONFIG, 20.0)
    assert times().expected(dataclasses.replace(SHAPE, n_embd=64), CONFIG) == 20.0


@pytest.mark.parametrize("change", [{"batch_size": 8}, {"precision": "bfloat16"}, {"recompute": True}])
def test_other_settings_are_other_code(change: dict[str, Any]) -> None:
    times().keep(SHAPE, CONFIG, 30.0)
    assert times().expected(SHAPE, dataclasses.replace(CONFIG, **change)) == 30.0
    assert times().expected(dataclasses.replace(SHAPE, dropout=0.1), CONFIG) == 30.0
    assert times().expected(SHAPE, dataclasses.replace(CONFIG, learning_rate=0.1, seed=3)) < 30.0


@pytest.mark.parametrize("content", ["[1]", '{"first": NaN}', "{"])
def test_a_damaged_file_is_unknown(content: str) -> None:
    times().keep(SHAPE, CONFIG, 30.0)
    [file] = keep_code_private().iterdir()
    file.write_text(content, encoding="utf-8")
    assert times().expected(SHAPE, CONFIG) == 77.0
    times().keep(SHAPE, CONFIG, 10.0)
    assert json.loads(file.read_text(encoding="utf-8"))["first"] == 10.0
