"""llama.cpp as the benchmarks ask it: ids and texts. tests/interop compares what it computes."""

from __future__ import annotations

from pathlib import Path

import pytest

import jumok
import llama
from conftest import FIXTURES


@pytest.mark.slow
@pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp and gguf are not installed")
def test_ids_and_texts_of_llama_cpp(tmp_path: Path) -> None:
    from jumok.interop.gguf import to_gguf

    model = jumok.load(FIXTURES / "runs" / "lm-modern")
    to_gguf(model, tmp_path / "f32.gguf", "f32")
    ids = model.tokenizer.encode("옛날").tolist()
    with llama.started(tmp_path / "f32.gguf", slots=2, context=16, threads=1, exact=True) as other:
        assert other.ids(ids, 5) == list(jumok.generate(model, "옛날", tokens=5, temperature=0)[0].ids)
        assert other.write([ids, ids], 5).tokens == 10
