"""Export of GPT to `transformers`, loading there, and import."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    Qwen3ForCausalLM,
)

import jumok
from conftest import config_with_frame
from jumok.config import SIZES, GPTConfig, field_types
from jumok.errors import ConfigError, JumokError, RunError
from jumok.inference.generate import generate
from jumok.interop.huggingface import from_hf, to_hf
from jumok.interop.huggingface.folder import FILES
from jumok.models.gpt import GPT
from jumok.models.special_ids import Framing
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
SHAPES: dict[str, dict[str, Any]] = {
    "modern": {"family": "modern"},
    "modern untied": {"family": "modern", "tie_embeddings": False, "rope_theta": 500.0},
    "modern grouped": {"family": "modern", "n_kv_head": 2, "head_dim": 6, "norm_eps": 1e-5},
    "classic": {"family": "classic"},
    "classic untied": {"family": "classic", "tie_embeddings": False, "activation": "relu", "norm_eps": 1e-4},
    "classic narrow heads": {"family": "classic", "head_dim": 3, "mlp_width": 20},
    "classic heads that do not divide": {"family": "classic", "n_head": 3, "head_dim": 3},
}


def tiny(seed: int = 0, kind: str = "char", **changes: Any) -> GPT:
    """A small float64 model with random parameters."""
    tokenizer = train_tokenizer(TEXT, kind, special_tokens=["[MASK]"])
    torch.manual_seed(seed)
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": 24, "n_layer": 2, "n_head": 4, "n_embd": 16}
    model = GPT(GPTConfig(**{**sizes, **changes})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def some_ids(model: GPT, length: int = 24) -> Tensor:
    return torch.randint(model.config.vocab_size, (3, length), generator=torch.Generator().manual_seed(11))


def load_stock(folder: Path) -> GPT2LMHeadModel | Qwen3ForCausalLM:
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, output_loading_info=True)
    assert not any(info.values())  # no tensor is missing, unexpected or of another shape
    return model.eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "export"


# --- out --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_stock_transformers_gives_the_same_logits(shape: dict[str, Any], folder: Path):
    model = tiny(**shape)
    to_hf(model, folder)
    stock = load_stock(folder)
    assert type(stock) is (Qwen3ForCausalLM if model.config.family == "modern" else GPT2LMHeadModel)
    ids = some_ids(model)
    torch.testing.assert_close(stock(ids).logits, model(ids), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["modern", "classic"])
@torch.no_grad()
def test_greedy_text_is_that_of_transformers(family: str, folder: Path):
    """Within the context; beyond it stock GPT-2 fails, and stock Qwen3 uses untrained positions."""
    model = tiny(family=family)
    to_hf(model, folder)
    tokenizer, stock = AutoTokenizer.from_pretrained(folder), load_stock(folder)
    prompt = tokenizer("나는", return_tensors="pt")
    theirs = stock.generate(**prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, 2:]
    assert generate(model, "나는", tokens=20, temperature=0)[0].ids == tuple(theirs.tolist())


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
@pytest.mark.parametrize("loader", [AutoTokenizer, PreTrainedTokenizerFast])
def test_stock_tokenizer_gives_the_same_ids(loader: Any, kind: str, folder: Path):
    model = tiny(kind=kind)
    assert model.tokenizer is not None
    to_hf(model, folder)
    tokenizer = loader.from_pretrained(folder)
    assert tokenizer.model_max_length == 24
    for text in ("나는 학교에", "鬼 😀\r\n", "ㅋㅋ ᄒᆞᆫ", "", " 띄어  쓰기 . , !", "e\u0301 a\u0300", "[MASK] 나"):
        ids = model.tokenizer.encode(text).tolist()
        assert tokenizer(text)["input_ids"] == ids
        if kind != "jamo":  # whose stock decoder leaves the text decomposed
            assert tokenizer.decode(ids) == model.tokenizer.decode(ids)


def test_the_files_are_the_stock_ones(folder: Path):
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


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_no_special_ids_are_made_up(family: str, folder: Path):
    """GPT2Config defaults to 50256 for the end of the text, an id that a small model does not have."""
    to_hf(tiny(family=family), folder)
    stock = load_stock(folder)
    for config in (stock.config, stock.generation_config):
        assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (None, None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_keep_their_dtype(dtype: torch.dtype, folder: Path):
    to_hf(tiny().to(dtype), folder)
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {dtype}
    assert AutoModelForCausalLM.from_pretrained(folder).dtype == dtype


@torch.no_grad()
def test_the_blog_configuration_is_exported_exactly(folder: Path):
    """`--size nanokogpt` has 8 heads of 16 and a width of 256, which GPT-2 can express only with padded heads."""
    shape = {name: value for name, value in SIZES["nanokogpt"].items() if name in field_types(GPTConfig)}
    model = GPT(GPTConfig(vocab_size=50, **shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    to_hf(model, folder)
    stock = load_stock(folder)
    assert (stock.config.n_head, stock.config.n_embd) == (8, 256)
    ids = some_ids(model, 256)
    torch.testing.assert_close(stock(ids).logits, model(ids), rtol=0, atol=1e-9)
    torch.testing.assert_close(from_hf(folder)(ids), model(ids), rtol=0, atol=1e-9)


def test_a_model_without_a_tokenizer_is_exported_without_one(folder: Path):
    model = tiny()
    model.tokenizer = None
    to_hf(model, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
    ]
    assert from_hf(folder).tokenizer is None


@torch.no_grad()
def test_an_earlier_export_is_replaced(folder: Path):
    first, second = tiny(), tiny(seed=1, family="classic")
    to_hf(first, folder)
    to_hf(second, folder)
    torch.testing.assert_close(from_hf(folder)(some_ids(second)), second(some_ids(second)), rtol=0, atol=1e-12)
    assert [path.name for path in folder.parent.iterdir()] == ["export"]  # no temporary folder is left


def test_a_folder_with_other_files_is_not_replaced(folder: Path):
    """Notes, a jumok run, and a downloaded model, which has the same file names."""
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="holds other files"):
        to_hf(tiny(), folder)
    assert (folder / "notes.txt").read_text() == "mine"
    (folder / "notes.txt").unlink()
    for config in ({"format": 1}, {"architectures": ["Qwen3ForCausalLM"]}):
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(RunError, match="holds other files"):
            to_hf(tiny(), folder)
        assert json.loads((folder / "config.json").read_text()) == config


def test_a_file_in_the_way_is_named(folder: Path):
    folder.write_text("")
    with pytest.raises(RunError, match="is a file"):
        to_hf(tiny(), folder)


def test_a_failed_export_leaves_the_earlier_one(folder: Path, monkeypatch: pytest.MonkeyPatch):
    to_hf(tiny(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jumok.interop.huggingface.folder.save_file", full_disk)
    with pytest.raises(RunError, match="No space left on device"):
        to_hf(tiny(seed=1), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["export"]


def test_a_failed_rename_restores_the_earlier_export(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """The earlier export is moved to a temporary folder first, which is deleted at the end."""
    to_hf(tiny(), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(RunError, match="Permission denied"):
        to_hf(tiny(seed=1), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# --- classifiers ------------------------------------------------------------------------------------------------------

LABELS = ("부정", "중립", "긍정")
FAMILIES = pytest.mark.parametrize("family", ["modern", "classic"])


def classified(model: GPT, ids: Tensor, mask: Tensor) -> Tensor:
    return model.classify(model.hidden(ids), mask)


@FAMILIES
@torch.no_grad()
def test_a_classifier_is_exported_and_imported(family: str, folder: Path):
    """The stock classes use the last token that is not padding, and have no output layer."""
    model = tiny(family=family, labels=LABELS, pooling="last", pad_id=0)
    to_hf(model, folder)
    stock, info = AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values())
    assert stock.config.id2label == dict(enumerate(LABELS))
    ids = some_ids(model).clamp(min=1)
    mask = torch.arange(24) < torch.tensor([[24], [11], [1]])
    ids[~mask] = 0
    wanted = stock.eval()(ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(classified(model, ids, mask), wanted, rtol=0, atol=1e-9)
    back = jumok.load(folder, kind=GPT)
    assert back.config == config_with_frame(model)
    torch.testing.assert_close(classified(back, ids, mask), wanted, rtol=0, atol=1e-9)
    for size in ("1GB", "5KB"):
        stock.save_pretrained(folder.parent / size, max_shard_size=size)
        again = jumok.load(folder.parent / size)
        torch.testing.assert_close(classified(again, ids, mask), wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("special", [["[PAD]", "[SEP]"], ["[PAD]"]], ids=["separator", "newline"])
@torch.no_grad()
def test_a_text_is_classified_alike(special: list[str], folder: Path):
    """From the text: the stock tokenizer adds the same ids and the same padding as in training."""
    tokenizer = train_tokenizer(TEXT, special_tokens=special)
    model = tiny(labels=LABELS, pooling="last", pad_id=0, vocab_size=tokenizer.vocab_size)
    model.tokenizer = tokenizer
    to_hf(model, folder)
    texts = ["나는 학교에 갔다", "너는"]
    inputs = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    stock = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64)
    framing = Framing.of(model.config, tokenizer)
    for i, text in enumerate(texts):
        ids = torch.from_numpy(framing.frame(tokenizer.encode(text)).ids.astype(int))[None]
        assert inputs["input_ids"][i, : ids.shape[1]].tolist() == ids[0].tolist()
        wanted = classified(model, ids, torch.ones_like(ids, dtype=torch.bool))
        torch.testing.assert_close(stock(**inputs).logits[i : i + 1], wanted, rtol=0, atol=1e-9)


@FAMILIES
@torch.no_grad()
def test_a_classifier_is_exported_without_its_output_layer(family: str, folder: Path):
    model = tiny(family=family, labels=LABELS, pooling="last", pad_id=0, tie_embeddings=False)
    to_hf(model, folder)
    assert "lm_head.weight" not in load_file(folder / "model.safetensors")
    ids, mask = some_ids(model), torch.ones(3, 24, dtype=torch.bool)
    torch.testing.assert_close(classified(from_hf(folder), ids, mask), classified(model, ids, mask), rtol=0, atol=1e-9)


# --- in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_there_and_back(shape: dict[str, Any], folder: Path):
    model = tiny(**shape)
    assert model.tokenizer is not None
    to_hf(model, folder)
    back = from_hf(folder)
    assert not back.training
    torch.testing.assert_close(back(some_ids(model)), model(some_ids(model)), rtol=0, atol=1e-9)
    assert back.tokenizer is not None
    assert back.tokenizer.fingerprint == model.tokenizer.fingerprint
    assert back.parameter_count() >= model.parameter_count()  # more where heads are padded
    if model.config.family == "modern" or "head_dim" not in shape:
        assert back.config == config_with_frame(model)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.no_grad()
def test_what_transformers_saves_can_be_read(shape: dict[str, Any], folder: Path, tmp_path: Path):
    """`save_pretrained`, with one file and with several, writes other settings than our export."""
    model = tiny(**shape)
    to_hf(model, folder)
    stock = load_stock(folder)
    for size in ("1GB", "5KB"):
        saved = tmp_path / size
        stock.save_pretrained(saved, max_shard_size=size)
        assert (saved / "model.safetensors.index.json").is_file() == (size == "5KB")
        torch.testing.assert_close(from_hf(saved)(some_ids(model)), model(some_ids(model)), rtol=0, atol=1e-9)


@torch.no_grad()
def test_the_first_gpt2_files_can_be_read(folder: Path):
    """They were saved without the head, so without the prefix, and contain the causal masks of each block."""
    model = tiny(family="classic")
    to_hf(model, folder)
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    tensors |= {f"h.{i}.attn.bias": torch.ones(1, 1, 24, 24).tril() for i in range(2)}
    tensors |= {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(2)}
    save_file(tensors, path)
    torch.testing.assert_close(from_hf(folder)(some_ids(model)), model(some_ids(model)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_settings_file_of_transformers_4_can_be_read(folder: Path):
    model = tiny(rope_theta=777.0)
    to_hf(model, folder)
    change_config(folder, lambda config: (config.pop("rope_parameters"), config.update(rope_scaling=None)))
    assert from_hf(folder).config.rope_theta == 777.0


def test_weights_of_less_precision_come_in_float32(folder: Path):
    to_hf(tiny().bfloat16(), folder)
    assert from_hf(folder).token_embedding.weight.dtype == torch.float32


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("family", ["modern", "classic"])
@torch.no_grad()
def test_load_takes_stock_folders_too(family: str, folder: Path):
    """`jumok.load` detects the kind of folder, and raises an error if the model has another class than required."""
    model = tiny(family=family)
    to_hf(model, folder)
    back = jumok.load(folder)
    torch.testing.assert_close(back(some_ids(model)), model(some_ids(model)), rtol=0, atol=1e-12)
    assert generate(back, "나는", tokens=5, temperature=0) == generate(model, "나는", tokens=5, temperature=0)
    assert jumok.load(folder, kind=GPT).config == config_with_frame(model)
    with pytest.raises(RunError, match="of the class GPT, but BERT is required"):
        jumok.load(folder, kind=jumok.BERT)


def test_load_names_a_folder_without_a_model(folder: Path):
    with pytest.raises(RunError, match="there is no run folder"):
        jumok.load(folder)
    folder.mkdir()
    with pytest.raises(RunError, match=r"has no config\.json"):
        jumok.load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(RunError, match="is damaged or not written by jumok"):
        jumok.load(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma"}))
    with pytest.raises(JumokError, match="of model_type 'gemma', and names no class; jumok reads GPT2LMHeadModel, "):
        jumok.load(folder)


def test_a_missing_folder_is_named(folder: Path):
    with pytest.raises(RunError, match="there is no folder"):
        from_hf(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, folder: Path):
    to_hf(tiny(), folder)
    (folder / name).unlink()
    with pytest.raises(RunError, match=f"has no {name}"):
        from_hf(folder)


@pytest.mark.parametrize(
    ("content", "message"), [(b"{", "cannot be read"), (b"[1]", "holds a list"), (b"\xff\xfe", "cannot be read")]
)
def test_a_damaged_settings_file_is_named(content: bytes, message: str, folder: Path):
    to_hf(tiny(), folder)
    (folder / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=message):
        from_hf(folder)


def test_a_truncated_weights_file_is_named(folder: Path):
    to_hf(tiny(), folder)
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RunError, match="damaged"):
        from_hf(folder)


@torch.no_grad()
def test_an_older_file_of_tensors_can_be_read(folder: Path):
    """pytorch_model.bin is a pickle, from which only tensors are loaded."""
    model = tiny()
    to_hf(model, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    torch.testing.assert_close(from_hf(folder)(some_ids(model)), model(some_ids(model)), rtol=0, atol=1e-12)


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_pickle_that_runs_code_is_not_opened(folder: Path, tmp_path: Path):
    to_hf(tiny(), folder)
    (folder / "model.safetensors").unlink()
    trap, sprung = folder / "pytorch_model.bin", tmp_path / "sprung"
    torch.save({"transformer.wte.weight": Trap(sprung)}, trap)
    with pytest.raises(
        RunError, match=r"pytorch_model.bin is damaged, or contains objects other than tensors.*model.safetensors"
    ):
        from_hf(folder)
    assert not sprung.exists()
    torch.load(trap, weights_only=False)  # the trap is one
    assert sprung.exists()


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"PK\x03\x04 nor an archive"])
def test_a_damaged_pickle_is_named(content: bytes, folder: Path):
    to_hf(tiny(), folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(RunError, match=r"pytorch_model.bin is damaged"):
        from_hf(folder)


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"a": 1.0}, torch.zeros(2)], ids=["list", "number", "tensor"])
def test_a_pickle_of_something_else_is_named(content: object, folder: Path):
    to_hf(tiny(), folder)
    (folder / "model.safetensors").unlink()
    torch.save(content, folder / "pytorch_model.bin")
    with pytest.raises(RunError, match=r"pytorch_model.bin does not contain tensors by name"):
        from_hf(folder)


def test_an_index_cannot_lead_out_of_the_folder(folder: Path, tmp_path: Path):
    """An index.json from someone else must not make jumok read other files."""
    to_hf(tiny(), folder)
    (folder / "model.safetensors").rename(tmp_path / "elsewhere.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../elsewhere.safetensors"}}))
    with pytest.raises(RunError, match=r"names .*elsewhere\.safetensors.*no file of tensors in this folder"):
        from_hf(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"architectures": ["GemmaForCausalLM"]},
            "GemmaForCausalLM; jumok reads GPT2LMHeadModel, ",
        ),
        (
            {"architectures": None, "model_type": "gemma"},
            "of model_type 'gemma', and names no class; jumok",
        ),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"rope_parameters": None, "rope_scaling": {"type": "su", "factor": 2.0}}, "rope_type 'su'"),
    ],
)
def test_unsupported_architectures_are_named(change: dict[str, Any], message: str, folder: Path):
    to_hf(tiny(), folder)
    change_config(folder, lambda config: config.update(change))
    with pytest.raises(JumokError, match=message):
        from_hf(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function 'gelu'"),
        ({"scale_attn_weights": False}, "scale_attn_weights false"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"add_cross_attention": True}, "add_cross_attention"),
    ],
)
def test_unsupported_settings_of_gpt2_are_named(change: dict[str, Any], message: str, folder: Path):
    to_hf(tiny(family="classic"), folder)
    change_config(folder, lambda config: config.update(change))
    with pytest.raises(JumokError, match=message):
        from_hf(folder)


def test_a_missing_size_is_named(folder: Path):
    to_hf(tiny(), folder)
    change_config(folder, lambda config: config.pop("hidden_size"))
    with pytest.raises(RunError, match="has no 'hidden_size'"):
        from_hf(folder)


@pytest.mark.parametrize(
    ("change", "message"), [({"hidden_size": "wide"}, "n_embd='wide' is"), ({"vocab_size": 0}, "vocab_size=0")]
)
def test_invalid_sizes_are_refused(change: dict[str, Any], message: str, folder: Path):
    to_hf(tiny(), folder)
    change_config(folder, lambda config: config.update(change))
    with pytest.raises(ConfigError, match=message):
        from_hf(folder)


def test_an_index_without_its_map_is_named(folder: Path):
    to_hf(tiny(), folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(RunError, match="does not say which file holds which tensor"):
        from_hf(folder)


@pytest.mark.parametrize("family", ["modern", "classic"])
def test_all_tensors_that_do_not_fit_are_listed(family: str, folder: Path):
    to_hf(tiny(family=family), folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    missing, misshapen = [name for name in tensors if name.endswith("weight") and ".1." in name][:2]
    del tensors[missing]
    tensors[misshapen] = torch.zeros(2, 3)
    tensors[next(iter(tensors)).partition(".")[0] + ".odd"] = torch.zeros(1)
    save_file(tensors, path)
    with pytest.raises(RunError) as caught:
        from_hf(folder)
    for fault in (f"{missing} is missing", f"{misshapen} is (2, 3), not (", ".odd is unknown"):
        assert fault in str(caught.value)


def test_a_tokenizer_of_another_model_is_refused(folder: Path):
    to_hf(tiny(), folder)
    train_tokenizer(TEXT, "char", alphabet="ksx1001").save(folder / "tokenizer.json")
    with pytest.raises(RunError, match=r"tokenizer.json has \d+ ids, but the model was made for"):
        from_hf(folder)
