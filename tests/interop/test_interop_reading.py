"""Reading of Hugging Face folders: files in shards, types of parameters, memory, and folders that are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import jumok
from jumok.config import BERTConfig, GPTConfig, ModelConfig
from jumok.config.huggingface import our_config
from jumok.errors import JumokError, RunError
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models import Model, build
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

SIZES = {"vocab_size": 40, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}
MODELS: dict[str, ModelConfig] = {
    "GPT": GPTConfig(**SIZES),
    "classic GPT": GPTConfig(**SIZES, family="classic"),
    "ELECTRA": BERTConfig(**SIZES, family="electra", embedding_width=6, head="mlm", pad_id=0),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "model"


def exported(folder: Path, config: ModelConfig = MODELS["GPT"]) -> Model:
    torch.manual_seed(0)
    model = build(config)
    to_hf(model, folder)
    return model


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


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


def assert_same(found: Model, wanted: Model) -> None:
    assert found.config == wanted.config
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, wanted.state_dict()[name]), name


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
@pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)
def test_shards_give_the_same_model(config: ModelConfig, suffix: str, folder: Path):
    model = exported(folder, config)
    shard(folder, 4, suffix)
    found = jumok.load(folder)
    assert_same(found, model)
    if isinstance(config, GPTConfig):
        assert found.head.weight is found.token_embedding.weight  # still tied


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_of_half_precision_come_in_as_float32(dtype: torch.dtype, folder: Path):
    """Exactly, because float32 has all their values."""
    model = exported(folder)
    path = folder / "model.safetensors"
    save_file({name: tensor.to(dtype) for name, tensor in load_file(path).items()}, path)
    shard(folder, 2)
    found = from_hf(folder)
    assert all(p.dtype == torch.float32 for p in found.parameters())
    for name, tensor in found.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name].to(dtype).float())


def test_a_snapshot_of_links_can_be_loaded(folder: Path, tmp_path: Path):
    """The cache of huggingface_hub has links to files elsewhere; one to a file that is gone is named."""
    model = exported(folder)
    snapshot = tmp_path / "snapshot"
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
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_reading_needs_the_memory_of_the_model_and_of_one_file(suffix: str, folder: Path, tmp_path: Path):
    """All files were in memory with the model: twice its size. The initialisation also takes some."""
    exported(tmp_path / "small")
    sizes = SIZES | {"vocab_size": 4000, "n_embd": 512, "n_head": 8, "n_layer": 8}
    exported(folder, GPTConfig(**sizes))
    shard(folder, 4, suffix)
    out = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "small"), str(folder)],
        capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    peak, size = map(float, out.stdout.split())
    print(f"{suffix}: peak {peak:.0f} MiB over the start, parameters {size:.0f} MiB, one file {size / 4:.0f} MiB")
    assert peak < 1.6 * size


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../elsewhere.safetensors", "/elsewhere.safetensors", "a\\b.safetensors", "x.txt", ".."]
)
def test_an_index_with_a_path_is_refused(name: str, folder: Path):
    exported(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(RunError, match=r"index\.json names .*, which is no file of tensors in this folder"):
        from_hf(folder)


def test_an_absent_and_a_truncated_shard_are_named(folder: Path):
    exported(folder)
    paths = shard(folder, 3)
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[:-40])
    with pytest.raises(RunError, match=r"model-00002-of-00003\.safetensors is damaged"):
        from_hf(folder)
    paths[1].unlink()
    with pytest.raises(RunError, match=r"has no model-00002-of-00003\.safetensors"):
        from_hf(folder)


def test_a_truncated_shard_of_pickles_is_named(folder: Path):
    exported(folder)
    paths = shard(folder, 2, ".bin")
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    with pytest.raises(RunError, match=r"pytorch_model-00001-of-00002\.bin is damaged"):
        from_hf(folder)


def test_other_formats_are_named(folder: Path):
    exported(folder)
    (folder / "model.safetensors").rename(folder / "tf_model.h5")
    with pytest.raises(RunError, match=r"has its tensors in tf_model\.h5, which jumok does not read"):
        from_hf(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["BertForTokenClassification"]}, "the nearest name is BertForSequenceClassification"),
        ({"architectures": ["Robertamodel"]}, "the nearest name is RobertaModel"),
        (
            {"architectures": ["QWenLMHeadModel"], "auto_map": {"AutoModel": "modeling_qwen.QWenLMHeadModel"}},
            "a model QWenLMHeadModel, which Python code in the folder defines.*jumok never runs such code; it reads ",
        ),
        ({"architectures": [["x"]]}, "value of a wrong type"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"is quantised \(gptq, 4 bits\)"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, r"is quantised \(awq, 4 bits\)"),
        ({"quantization_config": {"load_in_8bit": True}}, r"is quantised \(bitsandbytes, 8 bits\)"),
        ({"quantization_config": {"quant_method": "fp8"}}, r"is quantised \(fp8\)"),
        ({"quantization_config": [1]}, r"is quantised \(\?\)"),
        ({"hidden_size": 10**30}, "n_embd=.*out of range"),
        ({"vocab_size": 10**30}, "vocab_size=.*out of range"),
        ({"num_hidden_layers": 10**30}, "n_layer=.*out of range"),
        ({"rms_norm_eps": 10**30}, "norm_eps=.*out of range"),
        ({"num_hidden_layers": 9999}, "describes a model of|too little memory|needs about"),
    ],
)
def test_folders_that_cannot_be_read_are_refused(changes: dict[str, Any], message: str, folder: Path):
    exported(folder)
    change_config(folder, **changes)
    for read in (from_hf, jumok.load):
        with pytest.raises(JumokError, match=message):
            read(folder)


def test_code_of_a_supported_class_is_ignored(folder: Path, tmp_path: Path):
    """A folder may have its own code for a class that jumok has; it is not run."""
    model = exported(folder)
    mark = tmp_path / "was run"
    (folder / "modeling_mine.py").write_text(f"open({str(mark)!r}, 'w')\n")
    change_config(folder, auto_map={"AutoModelForCausalLM": "modeling_mine.Mine"}, quantization_config=None)
    assert_same(from_hf(folder), model)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds a list, not settings"),
        ("[" * 100_000, "cannot be read"),
        ('{"vocab_size": 1' + "0" * 5000 + "}", "cannot be read"),
        ("{", "cannot be read"),
    ],
    ids=["a list", "nested", "a number of 5,000 digits", "cut"],
)
def test_a_damaged_config_is_refused(content: str, message: str, folder: Path):
    exported(folder)
    (folder / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        from_hf(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_not_waited_for(folder: Path):
    exported(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(RunError, match="it is no file"):
        from_hf(folder)


def test_quantised_tensors_are_named(folder: Path):
    """Where config.json does not say so."""
    exported(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, dtype in (("model.layers.0.mlp.up_proj.weight", torch.int8), ("model.norm.weight", torch.float8_e4m3fn)):
        tensors[name] = tensors[name].to(dtype)
    save_file(tensors, path)
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    assert "up_proj.weight is of type int8, as in a quantised model" in str(caught.value)
    assert "model.norm.weight is of type float8_e4m3fn, as in a quantised model" in str(caught.value)


def test_many_faults_are_listed_in_part(folder: Path):
    exported(folder, GPTConfig(**SIZES | {"n_layer": 8}))
    save_file(
        {"model.embed_tokens.weight": torch.zeros(40, 16)} | {f"x.{i}": torch.zeros(600) for i in range(9)},
        folder / "model.safetensors",
    )
    with pytest.raises(
        RunError, match=r"model\.layers\.0\.input_layernorm\.weight is missing;.*; and \d+ more\.$"
    ) as caught:
        from_hf(folder)
    assert len(str(caught.value)) < 4000


def test_a_tokenizer_of_another_model_is_refused(folder: Path):
    exported(folder)
    train_tokenizer("나는 학교에 갔다.", "char", alphabet="ksx1001").save(folder / "tokenizer.json")
    with pytest.raises(RunError, match=r"tokenizer\.json has \d+ ids, but the model was made for 40"):
        from_hf(folder)


def test_our_config_names_the_class_before_a_quantisation():
    with pytest.raises(JumokError, match="a model X; jumok reads"):
        our_config({"architectures": ["X"], "quantization_config": {"quant_method": "gptq"}}, "here")
