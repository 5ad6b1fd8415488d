"""What a model of the server takes in memory: foretold from the headers of its files, and counted."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from served_runs import random_model

import jumok
from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.inference.requests import Request
from jumok.interop.huggingface import to_hf
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModel, ServedModels
from jumok.serve.settings import ServeSettings

TEXT = "".join(chr(0xAC00 + 7 * i) for i in range(1500)) * 2  # a vocabulary that is large beside the blocks
TOLERANCE = 0.1
SIZES = {"n_layer": 2, "n_embd": 64, "context_length": 64}


def gpt(**given: Any) -> Any:
    return random_model(GPTConfig, TEXT, [], seed=1, **{**SIZES, **given})


def stored(folder: Path, dtype: torch.dtype, form: str = "safetensors", **given: Any) -> Path:
    """A folder of transformers whose tensors have this type."""
    to_hf(gpt(**given).to(dtype), folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    if form == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
        path.unlink()
    elif form == "shards":  # a file for each tensor
        places = {name: f"model-{i}.safetensors" for i, name in enumerate(tensors)}
        for name, place in places.items():
            save_file({name: tensors[name]}, folder / place)
        path.with_name(f"{path.name}.index.json").write_text(json.dumps({"weight_map": places}))
        path.unlink()
    return folder


def run(folder: Path, model: Any) -> Path:
    jumok.save(model, folder)
    return folder


def translator() -> Any:
    special = ["[PAD]", "[BOS]", "[EOS]"]
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    return random_model(EncoderDecoderConfig, TEXT, special, seed=1, **SIZES, **ids)


FOLDERS: dict[str, Callable[[Path], Path]] = {
    "classic": lambda folder: run(folder, gpt(family="classic", tie_embeddings=False)),
    "seq2seq": lambda folder: run(folder, translator()),
    "bfloat16": lambda folder: stored(folder, torch.bfloat16),
    "float16-bin": lambda folder: stored(folder, torch.float16, "bin"),
    "shards": lambda folder: stored(folder, torch.bfloat16, "shards"),
    "classifier": lambda folder: stored(folder, torch.bfloat16, labels=("a", "b")),
}


def tensors_in_memory() -> int:
    """Bytes of all tensors of this process; memory that several of them share counts once.

    Only of plain tensors and parameters: torch.compile leaves tensors without memory behind.
    """
    gc.collect()
    found = {}
    for one in gc.get_objects():
        if type(one) in (torch.Tensor, torch.nn.Parameter) and one.device.type == "cpu":
            storage = one.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def use(models: ServedModels, name: str, work: Callable[[ServedModel], None] = lambda served: None) -> ServedModel:
    async def ask() -> ServedModel:
        async with models.get(name) as served:
            await asyncio.to_thread(work, served)
            return served

    return asyncio.run(ask())


def write_a_word(served: ServedModel) -> None:
    """Let the engine of a model arrange its parameters."""
    if served.service is not None and isinstance(served.model, jumok.GPT):
        list(served.service.submit(Request(prompt=(3, 4, 5), tokens=2)))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return run(tmp_path / "first", random_model(GPTConfig, "가나다", [], seed=1))


@pytest.fixture
def models(request: pytest.FixtureRequest, other: Path) -> Iterator[Callable[..., ServedModels]]:
    def begin(*folders: Path, **settings: Any) -> ServedModels:
        found = ServedModels(RunFolders([other, *folders]), ServeSettings(slots=2, **settings))
        request.addfinalizer(lambda: found.close(finish=False))
        return found

    return begin


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "quantize", "backend"),
    [
        *((kind, None, backend) for kind in FOLDERS for backend in ("native", "torch")),
        ("bfloat16", "int8", "native"),
    ],
    indirect=["backend"],
)
def test_the_memory_of_a_model_is_foretold(
    kind: str, quantize: Any, backend: str, models: Callable[..., ServedModels], tmp_path: Path
) -> None:
    """The bytes of the files were counted: half of what bfloat16 takes in memory, and nothing of pytorch_model.bin."""
    if quantize and backend == "torch":
        pytest.skip("8 bits are for the C++ step")
    served = models(FOLDERS[kind](tmp_path / "model"), quantize=quantize)
    before = tensors_in_memory()
    found = use(served, "model", write_a_word)
    taken = tensors_in_memory() - before
    if backend == "torch":  # of which the most is counted
        assert taken * (1 - TOLERANCE) <= found.size <= 1.3 * taken, (found.size, taken)
    else:
        assert found.size == pytest.approx(taken, rel=TOLERANCE), (found.size, taken)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["float16-bin", "shards"])
def test_narrow_files_do_not_exceed_the_memory_for_models(
    kind: str, models: Callable[..., ServedModels], tmp_path: Path
) -> None:
    """Two models whose files are small beside what they take in memory were loaded side by side."""
    first, second = (FOLDERS[kind](tmp_path / name) for name in ("a", "b"))
    alone = use(models(first), "a").size
    served = models(first, second, memory=int(1.7 * alone))
    for name in ("a", "b", "a"):
        use(served, name)
        assert [one for one in ("a", "b") if one in served.counts()] == [name]


def test_new_parameters_in_one_of_several_files(models: Callable[..., ServedModels], tmp_path: Path) -> None:
    """Only model.safetensors was looked at, which a folder with an index does not have."""
    folder = FOLDERS["shards"](tmp_path / "model")
    served = models(folder)
    first = use(served, "model")
    assert use(served, "model") is first
    shard = next(path for path in sorted(folder.glob("*.safetensors")) if "model.norm.weight" in load_file(path))
    values = load_file(shard)
    values["model.norm.weight"] = values["model.norm.weight"] + 1
    save_file(values, tmp_path / "new", metadata={"format": "pt"})
    (tmp_path / "new").replace(shard)
    second = use(served, "model")
    assert second is not first
    assert torch.equal(second.model.norm.weight, first.model.norm.weight + 1)
    assert served.created("model") == int(shard.stat().st_mtime)
