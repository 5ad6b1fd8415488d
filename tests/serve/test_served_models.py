"""The models of a server: by name, loaded when they are asked for, and evicted when memory is short."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

import jumok
from jumok.config import GPTConfig
from jumok.errors import RunError, ServeError
from jumok.inference.requests import Overloaded
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.serve import served_models as module
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModels, Unavailable, UnknownModel
from jumok.serve.settings import ServeSettings
from jumok.tokenizers import train_tokenizer

TOKENIZER = train_tokenizer("그날 밤 나는 집에 갔다. " * 5)
SIZES = {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, "vocab_size": TOKENIZER.vocab_size}


class Idle:
    """A service that only knows whether it was closed."""

    closed: ClassVar[list[Any]] = []

    def __init__(self, model: Any, **settings: Any) -> None:
        self.model = model

    def counts(self) -> None:
        pass

    def close(self, *, finish: bool = True) -> None:
        self.closed.append(self.model)


@pytest.fixture(autouse=True)
def _idle_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Service", Idle)
    monkeypatch.setattr(Idle, "closed", [])


def save(folder: Path, seed: int = 0, config: Any = GPTConfig) -> Path:
    torch.manual_seed(seed)
    model = build(config(**SIZES))
    model.tokenizer = TOKENIZER
    jumok.save(model.eval(), folder)
    return folder


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    return [save(tmp_path / name, seed) for seed, name in enumerate(("a", "b", "c"))]


Open = Callable[..., ServedModels]


@pytest.fixture
def serving(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    def begin(folders: list[Path], most: int = 100) -> ServedModels:
        """most: so many models fit into the memory."""
        models = ServedModels(RunFolders(folders), ServeSettings())
        monkeypatch.setattr(module, "free_memory", lambda device: 10**12 if len(models.counts()) < most else 0)
        request.addfinalizer(models.close)
        return models

    return begin


def loaded(models: ServedModels) -> list[str]:
    return list(models.counts())


def use(models: ServedModels, *names: str) -> list[Any]:
    """Use models one after the other; what was served."""

    async def work() -> list[Any]:
        found = []
        for name in names:
            async with models.get(name) as served:
                found.append(served)
        return found

    return asyncio.run(work())


def test_the_first_is_loaded_and_the_others_on_demand(folders: list[Path], serving: Open) -> None:
    models = serving(folders)
    assert models.names() == ["a", "b", "c"]
    assert loaded(models) == ["a"]
    served, again = use(models, "b", "b")
    assert served is again
    assert (served.name, served.task, served.leases) == ("b", "lm", 0)
    assert loaded(models) == ["a", "b"]
    assert models.created("b") == int((folders[1] / "model.safetensors").stat().st_mtime)


def test_a_name_is_no_path(folders: list[Path], serving: Open) -> None:
    models = serving(folders)
    for name in ("d", "", "A", "../a", "a/../a", "/etc/passwd", "\0", "x" * 10_000, "\ud800"):
        with pytest.raises(UnknownModel, match="there is no model") as error:
            use(models, name)
        assert len(str(error.value)) < 500


def test_two_folders_of_one_name(tmp_path: Path, folders: list[Path]) -> None:
    (tmp_path / "other").mkdir()
    other = save(tmp_path / "other" / "a")
    for second in (other, folders[0], tmp_path / "b" / ".." / "a"):
        with pytest.raises(ServeError, match="have the same name"):
            RunFolders([folders[0], second])


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_all_folders_are_checked_at_the_start(folders: list[Path], missing: str) -> None:
    (folders[2] / missing).unlink()
    with pytest.raises(RunError, match=missing):
        ServedModels(RunFolders(folders), ServeSettings())


def test_the_least_recently_used_is_evicted(folders: list[Path], serving: Open) -> None:
    models = serving(folders, most=2)
    (a,) = use(models, "a")
    use(models, "b", "a", "c")
    assert loaded(models) == ["a", "c"]
    use(models, "b")
    assert loaded(models) == ["b", "c"]
    assert a.model in Idle.closed


def test_a_model_in_use_is_not_evicted(folders: list[Path], serving: Open) -> None:
    models = serving(folders, most=1)

    async def work() -> None:
        async with models.get("a"):
            with pytest.raises(Overloaded, match="there is no memory for the model 'b' beside those in use"):
                async with models.get("b"):
                    pass
        async with models.get("b"):
            assert loaded(models) == ["b"]

    asyncio.run(work())


def test_many_requests_load_it_once(folders: list[Path], serving: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    models, times, load = serving(folders), [], module.load_to_write
    monkeypatch.setattr(module, "load_to_write", lambda *given, **how: times.append(given) or load(*given, **how))

    async def one() -> Any:
        async with models.get("b") as served:
            await asyncio.sleep(0)
            return served

    async def work() -> list[Any]:
        return await asyncio.gather(*(one() for _ in range(20)))

    assert len(set(asyncio.run(work()))) == 1
    assert len(times) == 1


def test_a_request_that_is_cancelled_while_it_waits_holds_nothing(folders: list[Path], serving: Open) -> None:
    models = serving(folders)

    async def one() -> None:
        async with models.get("b"):
            await asyncio.sleep(100)

    async def work() -> None:
        for pause in (0, 0.001, 0.5):
            task = asyncio.create_task(one())
            await asyncio.sleep(pause)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with models.get("b") as served:
            assert served.leases == 1

    asyncio.run(work())


# --- while it serves ---


def replace(folder: Path, seed: int) -> None:
    """Write other parameters, as a training does: beside the file, and renamed."""
    (folder.parent / "new").mkdir()
    save(folder.parent / "new" / folder.name, seed)
    for name in ("config.json", "model.safetensors"):  # the one has the SHA-256 of the other
        (folder.parent / "new" / folder.name / name).replace(folder / name)


def test_a_run_that_was_trained_further_is_loaded_again(folders: list[Path], serving: Open) -> None:
    models = serving(folders)

    async def work() -> None:
        async with models.get("a") as old:
            before = next(old.model.parameters()).clone()
            async with models.get("a"):
                replace(folders[0], 7)
                async with models.get("a"):
                    pass
            async with models.get("a") as new:
                assert new is not old
                assert not torch.equal(before, next(new.model.parameters()))
            assert old.model not in Idle.closed  # its requests go on
            assert torch.equal(before, next(old.model.parameters()))
        while old.model not in Idle.closed:
            await asyncio.sleep(0.01)
        async with models.get("a") as again:
            assert again is new

    asyncio.run(work())


@pytest.mark.parametrize("reason", ["no memory", "an error of a moment"])
def test_new_parameters_that_cannot_be_loaded_are_tried_again(
    folders: list[Path],
    serving: Open,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reason: str,
) -> None:
    """After one moment without memory, or an error of a network folder, they were never loaded."""
    models, now = serving(folders[:1]), 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    tried = []

    def fail(*given: Any, **how: Any) -> Any:
        tried.append(given)
        raise OSError(5, "Input/output error")

    async def work() -> None:
        async with models.get("a") as old:
            replace(folders[0], 7)
            with monkeypatch.context() as broken:
                if reason == "no memory":
                    broken.setattr(module, "free_memory", lambda device: tried.append(device) or 0)
                else:
                    broken.setattr(module, "load_to_write", fail)
                for _ in range(3):
                    async with models.get("a") as same:
                        assert same is old
            assert len(tried) == len(caplog.records) == 1
            assert "the model 'a' cannot be loaded" in caplog.text
        nonlocal now
        now += 3600
        async with models.get("a") as new:
            assert new is not old

    asyncio.run(work())


def test_old_parameters_that_no_request_uses_make_room(folders: list[Path], serving: Open) -> None:
    """The copy to be replaced counted as one in use, so a model that fills the memory was never loaded again."""
    models = serving(folders, most=1)
    (old,) = use(models, "a")
    replace(folders[0], 7)
    assert use(models, "a") != [old]
    assert old.model in Idle.closed


def test_new_parameters_in_a_folder_of_transformers(folders: list[Path], serving: Open, tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    to_hf(jumok.load(folders[0]), folder)
    models = serving([folder])
    first, same = use(models, "hf", "hf")
    assert first is same
    file = folder / "model.safetensors"
    values = load_file(file)
    values["model.norm.weight"] = values["model.norm.weight"] + 1
    save_file(values, tmp_path / "new", metadata={"format": "pt"})
    (tmp_path / "new").replace(file)
    (second,) = use(models, "hf")
    assert torch.equal(second.model.norm.weight, first.model.norm.weight + 1)
    assert models.created("hf") == int(file.stat().st_mtime)


def damage(folder: Path, how: str) -> None:
    path = folder / "model.safetensors"
    if how == "removed":
        shutil.rmtree(folder)
    elif how == "cut":
        with path.open("r+b") as file:  # in place: the loaded model must not be a view of the file
            file.truncate(100)
    elif how == "overwritten":
        path.write_bytes(b"\xff" * path.stat().st_size)
    else:
        (folder / "config.json").write_text("{")


@pytest.mark.parametrize("how", ["removed", "cut", "overwritten", "config"])
def test_a_run_that_is_damaged_while_it_serves(
    folders: list[Path], serving: Open, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What is loaded goes on, and what is not cannot be loaded until its files are whole again."""
    models = serving(folders)
    (before,) = use(models, "a")
    copy = shutil.copytree(folders[1], folders[1].parent / "copy")
    for folder in folders[:2]:
        damage(folder, how)
    with caplog.at_level(logging.ERROR):
        assert use(models, "a", "a") == [before, before]
    assert len(caplog.records) == 1
    assert sum(parameter.detach().abs().sum().item() for parameter in before.model.parameters()) > 0
    assert models.created("a") >= 0
    for _ in range(2):
        with pytest.raises(Unavailable, match="the model 'b' cannot be loaded"):
            use(models, "b")
    shutil.rmtree(folders[1], ignore_errors=True)
    copy.rename(folders[1])
    assert use(models, "b")[0].name == "b"


def test_closing_ends_all_services(folders: list[Path]) -> None:
    models = ServedModels(RunFolders(folders), ServeSettings())
    use(models, "b")
    models.close(finish=False)
    assert len(Idle.closed) == 2
    assert loaded(models) == []
