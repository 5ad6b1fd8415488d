"""A GPT that was written as GGUF: llama.cpp chooses the same ids. Skipped without the extra `bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
import llama
from jumok.config import GPTConfig
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer

INSTALLED = pytest.mark.skipif(not llama.INSTALLED, reason="xllamacpp and gguf are not installed")


def random_model(tales: str, **shape: Any) -> GPT:
    """A GPT whose blocks all matter, unlike those of a new one."""
    tokenizer = train_tokenizer(tales)
    settings = {"n_layer": 2, "n_head": 4, "n_embd": 64, "context_length": 64, **shape}
    torch.manual_seed(0)  # before the model is made: another one might have two ids that are about as likely
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **settings)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.tokenizer = tokenizer
    return model


@INSTALLED
@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [{"n_kv_head": 2, "tie_embeddings": False}, {"family": "classic"}],
    ids=["grouped heads, own output layer", "classic"],
)
def test_llama_cpp_chooses_the_same_ids(tales: str, tmp_path: Path, shape: dict[str, Any]) -> None:
    from jumok.interop.gguf import to_gguf

    model, prompt = random_model(tales, **shape), "옛날 옛적에"
    to_gguf(model, tmp_path / "f32.gguf", "f32")
    (ours,) = jumok.generate(model, prompt, tokens=40, temperature=0)
    with llama.started(tmp_path / "f32.gguf", slots=2, context=64, threads=1, exact=True) as other:
        ids = model.tokenizer.encode(prompt).tolist()
        theirs = other.ids(ids, 40)
        assert len(theirs) == 40
        same = next((n for n, (a, b) in enumerate(zip(theirs, ours.ids, strict=True)) if a != b), 40)
        if same < 40:  # only where two ids are as good as equally likely, and never at once
            with torch.inference_mode():
                logits = model(torch.tensor([[*ids, *theirs[:same]]]))[0, -1]
            assert same >= 5
            assert float((logits[theirs[same]] - logits[ours.ids[same]]).abs()) < 1e-4 * float(logits.abs().max())
        assert other.write([ids, ids], 10).tokens == 20
