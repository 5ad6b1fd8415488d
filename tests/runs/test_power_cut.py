"""What a power cut leaves of a folder that was just written. See `test_faults.py` for runs that are resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from conftest import tiny_run
from faulty_disk import after_power_cut, recorded
from jumok.config import GPTConfig
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.gpt import GPT
from jumok.runs import load as runs
from jumok.text import Text
from jumok.tokenizers import train_tokenizer


@pytest.mark.parametrize(
    ("write", "read"), [(runs.save, runs.load), (to_hf, from_hf)], ids=["a run folder", "a folder of transformers"]
)
def test_a_saved_model_survives(
    write: Callable[[GPT, Path], object], read: Callable[[Path], GPT], tmp_path: Path
) -> None:
    """The files were flushed, and the entry of a new folder above them was not: a power cut could lose all of them."""
    tokenizer = train_tokenizer("하나 둘 셋 하나 둘 셋", "char")
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, context_length=8, n_layer=1, n_head=1, n_embd=4))
    model.tokenizer = tokenizer
    (tmp_path / "before").mkdir()
    with recorded(tmp_path / "before") as disk:
        write(model, tmp_path / "before" / "new" / "model")
        disk.passes("the power is cut")
    after_power_cut(disk.moments, len(disk.moments) - 1, tmp_path / "after", None)
    found = read(tmp_path / "after" / "new" / "model").state_dict()
    assert all(torch.equal(tensor, found[name]) for name, tensor in model.state_dict().items())


def test_the_logs_of_a_finished_run_survive(tmp_path: Path, story_text: Text) -> None:
    """A finished run is not resumed, so nobody mends its logs: their last lines were lost, or zeros."""
    (tmp_path / "before").mkdir()
    with recorded(tmp_path / "before") as disk:
        list(tiny_run(tmp_path / "before" / "run", story_text, steps=2).run())
        disk.passes("the power is cut")
    after_power_cut(disk.moments, len(disk.moments) - 1, tmp_path / "after", None)
    for name in ("metrics.jsonl", "samples.txt", "config.json"):
        assert (tmp_path / "after" / "run" / name).read_bytes() == (tmp_path / "before" / "run" / name).read_bytes()
