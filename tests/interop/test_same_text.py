"""A run that was trained here writes the same greedy text in transformers, onnxruntime and llama.cpp."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import jumok
import llama
from jumok.config import GPTConfig, TrainConfig
from jumok.corpora import stories
from jumok.inference.generate import generate
from jumok.interop.gguf import to_gguf
from jumok.interop.huggingface import to_hf
from jumok.interop.onnx import to_onnx
from jumok.models.gpt import GPT
from jumok.training.trainer import Trainer
from tokenizers import Tokenizer as HFTokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="the package onnx is not installed")

pytestmark = pytest.mark.long

PROMPT, TOKENS = "그날 밤", 100


def trained(folder: Path) -> GPT:
    """A small model of the modern family after some steps of training, as a run folder gives it."""
    text = folder / "stories.txt"
    text.write_text("".join(stories.write(30_000)), encoding="utf-8")
    config = GPTConfig(n_layer=2, n_head=4, n_embd=64, context_length=128)
    settings = TrainConfig(steps=200, batch_size=16, compile="off", precision="float32")  # on every processor
    with Trainer.start(folder / "run", text, config, settings) as trainer:
        assert list(trainer.run())[-1].step == 200
    return jumok.load(folder / "run", kind=GPT)


def by_transformers(folder: Path) -> tuple[list[int], str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    written = model.generate(ids, max_new_tokens=TOKENS, do_sample=False)[0, ids.shape[1] :]
    return written.tolist(), tokenizer.decode(written)


def by_onnxruntime(path: Path) -> tuple[list[int], str]:
    session = ort.InferenceSession(path)
    tokenizer = HFTokenizer.from_file(str(path.with_suffix(".tokenizer.json")))
    new, written = tokenizer.encode(PROMPT).ids, []
    cache = {i.name: np.zeros((1, i.shape[1], 0, i.shape[3]), np.float32) for i in session.get_inputs()[1:]}
    for _ in range(TOKENS):
        logits, *present = session.run(None, {"input_ids": np.array([new]), **cache})
        cache = dict(zip(cache, present, strict=True))
        new = [int(logits[0, -1].argmax())]
        written += new
    return written, tokenizer.decode(written)


def by_llama_cpp(path: Path) -> tuple[list[int], str]:
    with llama.started(path, slots=1, context=128, threads=1, exact=True) as other:
        answer = other.post("/completion", prompt=PROMPT, return_tokens=True, **llama.sampling(TOKENS, 0.0))
    return answer["tokens"], answer["content"]


def test_the_greedy_text_is_the_same_everywhere(tmp_path: Path) -> None:
    model = trained(tmp_path)
    (ours,) = generate(model, PROMPT, tokens=TOKENS, temperature=0)
    wanted = (list(ours.ids), ours.text)
    assert len(wanted[0]) == TOKENS
    assert len(set(wanted[0])) > 5  # not only one word again and again
    with torch.inference_mode():
        to_hf(model, tmp_path / "hf")
        assert by_transformers(tmp_path / "hf") == wanted
        assert by_onnxruntime(to_onnx(model, tmp_path / "m.onnx")[0]) == wanted
    if not llama.INSTALLED:
        pytest.skip("xllamacpp is not installed; the others agree")
    assert by_llama_cpp(to_gguf(model, tmp_path / "m.gguf").path) == wanted
