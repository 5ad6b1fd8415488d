"""Runs are loaded for the C++ step with the same numbers and the same errors as by `jumok.load`, and without torch.

Bad inputs first: each file missing, empty, cut, garbage; config.json of another model, format or size; tensors that are
missing, unknown, of another shape or type, or beyond the file; a flipped bit; no folder, or a file; no such device.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import jumok
from conftest import FIXTURES
from jumok.config import GPTConfig, RungConfig
from jumok.errors import JumokError
from jumok.inference.native.from_torch import pack
from jumok.inference.native.parameters import NativeModel
from jumok.interop.huggingface import to_hf
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.runs import native
from jumok.runs.native import TensorFile, load_to_write
from jumok.tokenizers import train_tokenizer


@pytest.fixture(autouse=True)
def _built(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is there; packing does not need it."""
    monkeypatch.setattr(native, "library", lambda build: object())


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """A saved model."""
    folder = tmp_path_factory.mktemp("native") / "run"
    tokenizer = train_tokenizer(tales, "char")
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=8, context_length=8))
    model.tokenizer = tokenizer
    jumok.save(model, folder)
    return folder


@pytest.fixture
def run(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "run"))


def set_config(run: Path, change: dict[str, Any]) -> None:
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")


def set_model(run: Path, **fields: Any) -> None:
    set_config(run, {"model": json.loads((run / "config.json").read_text(encoding="utf-8"))["model"] | fields})


def set_tensors(run: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Change the tensors, and forget their sums."""
    tensors = {name: tensor.clone() for name, tensor in load_file(run / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, run / "model.safetensors")
    set_config(run, {"parameters": {"sha256": []}})


def set_file(run: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    (run / name).write_bytes(damage((run / name).read_bytes()))
    if name != "config.json":
        set_config(run, {"parameters": {"sha256": []}})


FILES = ("config.json", "tokenizer.json", "model.safetensors")
DAMAGES: dict[str, Callable[[Path], object]] = {
    **{f"no {name}": lambda run, name=name: (run / name).unlink() for name in FILES},
    **{f"empty {name}": lambda run, name=name: set_file(run, name, lambda _: b"") for name in FILES},
    **{f"cut {name}": lambda run, name=name: set_file(run, name, lambda old: old[: len(old) // 2]) for name in FILES},
    **{f"garbage {name}": lambda run, name=name: set_file(run, name, lambda _: b"\xff\0a" * 50) for name in FILES},
    "a byte too many": lambda run: set_file(run, "model.safetensors", lambda old: old + b"\0"),
    "a flipped bit": lambda run: (run / "model.safetensors").write_bytes(
        (run / "model.safetensors").read_bytes()[:-1] + b"\x77"
    ),
    "wrong sums": lambda run: set_config(run, {"parameters": {"sha256": [5]}}),
    "another format": lambda run: set_config(run, {"format": 99}),
    "another type": lambda run: set_model(run, type="rnn"),
    "an unknown field": lambda run: set_model(run, n_layr=2),
    "a huge model": lambda run: set_model(run, n_layer=10**6),
    "a wider model": lambda run: set_model(run, n_embd=16, head_dim=8),
    "one block more": lambda run: set_model(run, n_layer=2),
    "untied": lambda run: set_model(run, tie_embeddings=False),
    "another tokenizer": lambda run: set_config(
        run, {"tokenizer": {"kind": "char", "vocab_size": 9, "fingerprint": "x"}}
    ),
    "a missing tensor": lambda run: set_tensors(run, lambda tensors: tensors.pop("norm.weight")),
    "an unknown tensor": lambda run: set_tensors(run, lambda tensors: tensors.update(other=torch.zeros(2))),
    "another shape": lambda run: set_tensors(run, lambda tensors: tensors.update({"norm.weight": torch.zeros(8, 1)})),
    "no folder": shutil.rmtree,
}  # fmt: skip


def error_of(work: Callable[[], object]) -> tuple[type[BaseException], str]:
    with pytest.raises(JumokError) as caught:
        work()
    return caught.type, str(caught.value)


@pytest.mark.parametrize("damage", DAMAGES)
def test_errors_are_those_of_load(run: Path, damage: str) -> None:
    DAMAGES[damage](run)
    assert error_of(lambda: load_to_write(run, "cpu")) == error_of(lambda: jumok.load(run))


def test_a_path_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path, Path("hf:a/b/c"), tmp_path / "not there"):
        assert error_of(lambda path=path: load_to_write(path, "cpu")) == error_of(lambda path=path: jumok.load(path))


@pytest.mark.parametrize("device", ["gpu", "cpu:7", "cuda:99", ""])
def test_a_device_that_is_not_there_comes_before_all_else(device: str, tmp_path: Path) -> None:
    from jumok.device import choose_device

    assert error_of(lambda: load_to_write(tmp_path, device)) == error_of(lambda: choose_device(device))


def test_a_model_that_needs_more_memory_than_there_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.memory.free_memory", lambda: 1000)
    assert error_of(lambda: load_to_write(run, "cpu")) == error_of(lambda: jumok.load(run))


# --- the same numbers ---


def assert_packed(found: object, run: Path) -> None:
    """It has the bits of the model that `load` makes."""
    assert isinstance(found, NativeModel)
    wanted = pack(jumok.load(run, verify=False))
    assert found.tokenizer is not None
    assert found.config == wanted.config
    assert len(found._kept) == len(wanted._kept) > 5
    for one, other in zip(found._kept, wanted._kept, strict=True):
        assert np.array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_numbers_of_all_types(run: Path, kind: torch.dtype) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({name: tensor.to(kind) for name, tensor in tensors.items()})
        tensors["norm.weight"][:3] = torch.tensor([float("nan"), float("-inf"), 1e-40])

    set_tensors(run, change)
    assert_packed(load_to_write(run, "cpu"), run)


def test_numbers_of_another_type_are_read_by_torch(run: Path) -> None:
    set_tensors(run, lambda tensors: tensors.update({"norm.weight": torch.arange(8)}))
    found = load_to_write(run, "cpu")
    assert isinstance(found, GPT)
    assert found.norm.weight.tolist() == list(range(8))


@pytest.mark.parametrize("name", ["lm-modern", "lm-jamo-classic"])
def test_runs_of_earlier_versions(name: str) -> None:
    run = FIXTURES / "runs" / name
    assert_packed(load_to_write(run), run)


def test_a_changed_file_without_verification(run: Path) -> None:
    DAMAGES["a flipped bit"](run)
    assert_packed(load_to_write(run, "cpu", verify=False), run)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")
def test_a_folder_whose_name_is_no_utf_8(run: Path) -> None:
    there = os.fsencode(run.parent) + b"/r\xffn"
    os.rename(run, there)
    assert_packed(load_to_write(Path(os.fsdecode(there)), "cpu"), Path(os.fsdecode(there)))


def test_a_file_can_be_replaced_while_it_is_mapped(run: Path) -> None:
    """A training replaces the parameters of a run that is read."""
    tensors = TensorFile(run / "model.safetensors")
    before = {name: np.array(tensors[name]) for name in tensors}
    shutil.copy(run / "config.json", run / "new")
    (run / "new").replace(run / "model.safetensors")
    assert all(np.array_equal(tensors[name], before[name]) for name in before)


# --- what PyTorch reads ---


def test_a_gpu_that_is_there(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "may_have_gpu", lambda: True)
    monkeypatch.setattr("jumok.device.choose_device", lambda name: torch.device("meta"))
    found = load_to_write(run)
    assert isinstance(found, GPT)
    assert found.norm.weight.is_meta
    assert isinstance(load_to_write(run, "cpu"), NativeModel)


def test_what_the_step_does_not_compute(tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masked language models, folders of transformers, machines without the library."""
    to_hf(jumok.load(run), tmp_path / "hf")
    assert isinstance(load_to_write(tmp_path / "hf", "cpu"), GPT)
    assert type(load_to_write(FIXTURES / "runs" / "mlm", "cpu")).__name__ == "BERT"
    model = Rung(RungConfig(vocab_size=600, n_layer=1, n_head=2, n_embd=8, context_length=8, residual=False))
    model.tokenizer = jumok.load(run).tokenizer
    jumok.save(model, tmp_path / "rung")
    assert isinstance(load_to_write(tmp_path / "rung", "cpu"), Rung)
    asked = []
    monkeypatch.setattr(native, "library", lambda build: None)
    assert isinstance(load_to_write(run, "cpu"), GPT)
    assert isinstance(load_to_write(run, "cpu", build=lambda: asked.append(run)), GPT)
    assert asked == [run]
    load_to_write(FIXTURES / "runs" / "mlm", "cpu", build=lambda: asked.append(run))
    assert asked == [run]
