"""How long compiling is expected to take. The compiler is played, and no time is asserted."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok.config import GPTConfig, TrainConfig
from jumok.training import compilation
from jumok.training.compilation import CACHED_SHARE, SMALL_FILES, UNKNOWN, CompileTimes, keep_code_private

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


def test_without_the_code_nothing_is_known() -> None:
    """The file lies beside the code, and is removed with it."""
    times().keep(SHAPE, CONFIG, 30.0)
    [file] = keep_code_private().iterdir()
    file.unlink()
    assert times().expected(SHAPE, CONFIG) == 77.0


@pytest.mark.parametrize("content", ["", "[1]", "null", '{"first": "long"}', '{"first": NaN}', '{"first": -1.0}', "{"])
def test_a_damaged_file_is_unknown(content: str) -> None:
    times().keep(SHAPE, CONFIG, 30.0)
    [file] = keep_code_private().iterdir()
    file.write_text(content, encoding="utf-8")
    assert times().expected(SHAPE, CONFIG) == 77.0
    times().keep(SHAPE, CONFIG, 10.0)
    assert json.loads(file.read_text(encoding="utf-8"))["first"] == 10.0


def test_a_cache_that_cannot_be_written_costs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file" / "code"))
    times().keep(SHAPE, CONFIG, 30.0)
    assert times().expected(SHAPE, CONFIG) == 77.0


@pytest.mark.skipif(os.name != "posix", reason="the compiler is a shell script")
@pytest.mark.parametrize(
    ("answer", "limit", "seconds"),
    [
        ("exit 0", 60.0, SMALL_FILES * 0.2 / 2),
        ("exit 1", 60.0, UNKNOWN),
        (None, 60.0, UNKNOWN),
        ("exec sleep 60", 0.01, SMALL_FILES * 0.2 / 2),  # the time until then counts
    ],
)
def test_the_first_time_is_estimated_by_a_small_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str | None, limit: float, seconds: float
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    script, now, run = tmp_path / "compiler", [0.0], subprocess.run
    if answer is not None:
        script.write_text(f"#!/bin/sh\n{answer}\n")
        script.chmod(0o755)

    def timed(*given: Any, **how: Any) -> Any:
        now[0] += 0.2
        return run(*given, **how)

    monkeypatch.setattr(compilation, "TRIED", limit)
    monkeypatch.setattr(compilation, "cpp_compiler", lambda: str(script))
    monkeypatch.setattr(compilation, "processors", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(subprocess, "run", timed)
    monkeypatch.setattr(compilation.time, "perf_counter", lambda: now[0])
    assert times().expected(SHAPE, CONFIG) == pytest.approx(seconds)
    assert CompileTimes(torch.device("meta")).expected(SHAPE, CONFIG) == UNKNOWN
