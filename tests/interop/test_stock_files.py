"""Folders of `transformers`: what an export writes and replaces, what is read, and what is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import jumok
from conftest import config_with_frame
from jumok.config import GPTConfig
from jumok.errors import JumokError, RunError
from jumok.inference.generate import generate
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.huggingface.folder import FILES
from jumok.models import Model, build
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")
pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
SIZES: dict[str, Any] = {"context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}


def tiny(seed: int = 0, kind: str = "char", **changes: Any) -> GPT:
    """A small float64 model with random parameters."""
    tokenizer = train_tokenizer(TEXT, kind, special_tokens=["[MASK]"])
    torch.manual_seed(seed)
    model = GPT(GPTConfig(**{**SIZES, "vocab_size": tokenizer.vocab_size, **changes})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def assert_same(found: Model, wanted: Model) -> None:
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name]), name


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "export"


# --- written ----------------------------------------------------------------------------------------------------------


def test_the_files_are_the_stock_ones(folder: Path) -> None:
    to_hf(tiny(), folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    assert all(map(FILES.fullmatch, names))
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118  # tied, and this is no dictionary
    config = json.loads((folder / "config.json").read_text())
    assert config["dtype"] == "float64"
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10_000.0  # for transformers 4 and 5
    assert "auto_map" not in config  # no custom code
    model = tiny()
    model.tokenizer = None
    to_hf(model, folder)
    assert {path.name for path in folder.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    assert from_hf(folder).tokenizer is None


@pytest.mark.parametrize("family", ["modern", "classic"])
@torch.no_grad()
def test_greedy_text_is_that_of_transformers(family: str, folder: Path) -> None:
    """Within the context; beyond it stock GPT-2 fails, and stock Qwen3 uses untrained positions."""
    model = tiny(family=family)
    to_hf(model, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stock = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    for config in (stock.config, stock.generation_config):  # GPT2Config has 50256 for the end by default
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, None)
    prompt = tokenizer("나는", return_tensors="pt")
    theirs = stock.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, 2:]
    assert generate(model, "나는", tokens=20, temperature=0)[0].ids == tuple(theirs.tolist())
    back = jumok.load(folder, kind=GPT)
    assert back.config == config_with_frame(model)
    assert back.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert_same(back, model)
    with pytest.raises(RunError, match="of the class GPT, but BERT is required"):
        jumok.load(folder, kind=jumok.BERT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_keep_their_dtype_and_come_in_float32(dtype: torch.dtype, folder: Path) -> None:
    model = tiny().to(dtype)
    to_hf(model, folder)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {dtype}
    assert transformers.AutoModelForCausalLM.from_pretrained(folder).dtype == dtype
    found = from_hf(folder)
    assert all(p.dtype == torch.float32 for p in found.parameters())
    assert_same(found, model.float())


def test_an_earlier_export_is_replaced(folder: Path) -> None:
    to_hf(tiny(), folder)
    second = tiny(seed=1, family="classic")
    to_hf(second, folder)
    assert_same(from_hf(folder), second)
    assert [path.name for path in folder.parent.iterdir()] == ["export"]  # no temporary folder is left


def test_a_folder_with_other_files_is_not_replaced(folder: Path) -> None:
    """Notes, a jumok run, and a downloaded model, which has the same file names; or a file."""
    folder.mkdir()
    for name, content in (
        ("notes.txt", "mine"),
        ("config.json", json.dumps({"format": 1})),
        ("config.json", json.dumps({"architectures": ["Qwen3ForCausalLM"]})),
    ):
        (folder / name).write_text(content)
        with pytest.raises(RunError, match="holds other files"):
            to_hf(tiny(), folder)
        assert (folder / name).read_text() == content
        (folder / name).unlink()
    folder.rmdir()
    folder.write_text("")
    with pytest.raises(RunError, match="is a file"):
        to_hf(tiny(), folder)


@pytest.mark.parametrize("fault", ["full disk", "no rename"])
def test_a_failed_export_leaves_the_earlier_one(fault: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rename fails, the earlier export was moved to a temporary folder before."""
    to_hf(tiny(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rename = Path.rename

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(13, "Permission denied")
        return rename(self, target)

    if fault == "full disk":
        monkeypatch.setattr("jumok.interop.huggingface.folder.save_file", full_disk)
    else:
        monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RunError, match="No space left on device" if fault == "full disk" else "Permission denied"):
        to_hf(tiny(seed=1), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


# --- read -------------------------------------------------------------------------------------------------------------


def shard(folder: Path, count: int, suffix: str = ".safetensors") -> list[Path]:
    """Distribute the tensors of a folder over files, as `save_pretrained` does, and write their index."""
    whole = folder / "model.safetensors"
    tensors = list(load_file(whole).items())
    stem = "model" if suffix == ".safetensors" else "pytorch_model"
    paths = [folder / f"{stem}-{i + 1:05}-of-{count:05}{suffix}" for i in range(count)]
    places = {}
    for i, path in enumerate(paths):
        part = {name: tensor.clone() for name, tensor in tensors[i::count]}
        save_file(part, path) if suffix == ".safetensors" else torch.save(part, path)
        places |= dict.fromkeys(part, path.name)
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    whole.unlink()
    return paths


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_shards_give_the_same_model(suffix: str, folder: Path) -> None:
    model = tiny()
    to_hf(model, folder)
    shard(folder, 4, suffix)
    found = jumok.load(folder, kind=GPT)
    assert_same(found, model)
    assert found.head.weight is found.token_embedding.weight  # still tied


def test_a_snapshot_of_links(folder: Path, tmp_path: Path) -> None:
    """The cache of huggingface_hub has links to files elsewhere; one to a file that is gone is named."""
    model, snapshot = tiny(), tmp_path / "snapshot"
    to_hf(model, folder)
    snapshot.mkdir()
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(path)
    assert_same(from_hf(snapshot), model)
    (folder / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"has no model\.safetensors"):
        from_hf(snapshot)


PEAK = """
import sys, torch
from jumok.interop.huggingface import from_hf
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) / 1024
torch.set_num_threads(1)
from_hf(sys.argv[1])  # imports, and memory that the allocator keeps
open("/proc/self/clear_refs", "w").write("5")  # the peak begins here
before = status("VmRSS")
model = from_hf(sys.argv[2])
print(status("VmHWM") - before, sum(p.nbytes for p in model.parameters()) / 2**20)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of the memory is read from /proc")
def test_reading_needs_the_memory_of_the_model_and_of_one_file(folder: Path, tmp_path: Path) -> None:
    """The initialisation also takes some."""
    to_hf(tiny(), tmp_path / "small")
    large = {**SIZES, "vocab_size": 4000, "n_embd": 512, "n_head": 8, "n_layer": 8}
    to_hf(build(GPTConfig(**large)), folder)
    shard(folder, 4)
    out = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "small"), str(folder)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    peak, size = map(float, out.stdout.split())
    assert peak < 1.6 * size


def test_code_of_a_supported_class_is_ignored(folder: Path, tmp_path: Path) -> None:
    """A folder may have its own code for a class that jumok has; it is not run."""
    model, mark = tiny(), tmp_path / "was run"
    to_hf(model, folder)
    (folder / "modeling_mine.py").write_text(f"open({str(mark)!r}, 'w')\n")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"}, quantization_config=None)
    assert_same(from_hf(folder), model)
    assert not mark.exists()


# --- refused ----------------------------------------------------------------------------------------------------------


def test_a_folder_without_a_model_is_named(folder: Path) -> None:
    with pytest.raises(RunError, match="there is no run folder"):
        jumok.load(folder)
    with pytest.raises(RunError, match="there is no folder"):
        from_hf(folder)
    folder.mkdir()
    with pytest.raises(RunError, match=r"is no run folder; it has none of config\.json"):
        jumok.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(RunError, match="is damaged or not written by jumok"):
        jumok.load(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    with pytest.raises(JumokError, match="is a model gemma; jumok reads GPT2LMHeadModel, "):
        jumok.load(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[1]", "holds a list, not settings"),
        (b"{", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'{"vocab_size": 1' + b"0" * 5000 + b"}", "cannot be read"),
    ],
    ids=["a list", "cut", "no UTF-8", "nested", "a number of 5,000 digits"],
)
def test_a_damaged_config(content: bytes, message: str, folder: Path) -> None:
    to_hf(tiny(), folder)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=message):
        from_hf(folder)


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_code_is_not_opened(folder: Path, tmp_path: Path) -> None:
    to_hf(tiny(), folder)
    (folder / "model.safetensors").unlink()
    trap, sprung = folder / "pytorch_model.bin", tmp_path / "sprung"
    torch.save({"transformer.wte.weight": Trap(sprung)}, trap)
    with pytest.raises(RunError, match=r"is damaged, or contains objects other than tensors.*model.safetensors"):
        from_hf(folder)
    assert not sprung.exists()
    torch.load(trap, weights_only=False)  # the trap is one
    assert sprung.exists()


def pickle(content: object) -> Callable[[Path], None]:
    return lambda folder: torch.save(content, folder / "pytorch_model.bin")


def cut(name: str, count: int = 100) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-count]) and None


def index(content: object) -> Callable[[Path], Any]:
    return lambda folder: (folder / "model.safetensors.index.json").write_text(json.dumps(content))


def in_shards(suffix: str, damage: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: damage(shard(folder, 3, suffix)[1])


WEIGHTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "absent": (lambda folder: None, r"has no model\.safetensors, and no pytorch_model\.bin either"),
    "truncated": (cut("model.safetensors"), r"model\.safetensors is damaged"),
    "empty pickle": (lambda folder: (folder / "pytorch_model.bin").touch(), r"pytorch_model\.bin is damaged"),
    "no archive": (lambda folder: (folder / "pytorch_model.bin").write_bytes(b"PK\x03\x04"), "is damaged"),
    "list": (pickle([torch.zeros(2)]), r"pytorch_model\.bin does not contain tensors by name"),
    "number": (pickle({"a": 1.0}), r"does not contain tensors by name"),
    "other format": (
        lambda folder: (folder / "tf_model.h5").touch(),
        r"no pytorch_model\.bin either; other files of tensors, such as tf_model\.h5, are not read",
    ),
    "no map": (index({}), "does not say which file of this folder holds which tensor"),
    **{
        f"index {name}": (index({"weight_map": {"x": name}}), "does not say which file of this folder")
        for name in ("../../elsewhere.safetensors", "/elsewhere.safetensors", "a\\b.safetensors", "x.txt", "..")
    },
    "truncated shard": (in_shards(".safetensors", lambda path: cut(path.name)(path.parent)), "00002-of-00003.*damaged"),
    "truncated pickle": (in_shards(".bin", lambda path: cut(path.name)(path.parent)), "00002-of-00003.*is damaged"),
    "absent shard": (in_shards(".safetensors", Path.unlink), r"has no model-00002-of-00003\.safetensors"),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_damaged_weights_are_named(case: str, folder: Path) -> None:
    """An index of somebody else must not make jumok read files elsewhere."""
    to_hf(tiny(), folder)
    damage, message = WEIGHTS[case]
    if "truncated" not in case and "shard" not in case:
        (folder / "model.safetensors").unlink()
    damage(folder)
    with pytest.raises(RunError, match=message):
        from_hf(folder)


def test_quantised_tensors_are_named(folder: Path) -> None:
    """Where config.json does not say so."""
    to_hf(tiny(), folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, dtype in (("model.layers.0.mlp.up_proj.weight", torch.int8), ("model.norm.weight", torch.float8_e4m3fn)):
        tensors[name] = tensors[name].to(dtype)
    save_file(tensors, path)
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    assert "up_proj.weight is of type int8, as in a quantised model" in str(caught.value)
    assert "model.norm.weight is of type float8_e4m3fn, as in a quantised model" in str(caught.value)


def test_many_faults_are_listed_in_part(folder: Path) -> None:
    to_hf(build(GPTConfig(**{**SIZES, "vocab_size": 40, "n_layer": 8})), folder)
    save_file(
        {"model.embed_tokens.weight": torch.zeros(40, 16)} | {f"x.{i}": torch.zeros(600) for i in range(9)},
        folder / "model.safetensors",
    )
    with pytest.raises(RunError, match=r"input_layernorm\.weight is missing;.*; and \d+ more\.$") as caught:
        from_hf(folder)
    assert len(str(caught.value)) < 4000
