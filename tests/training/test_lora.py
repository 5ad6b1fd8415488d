"""LoRA: what is trained, that the merged model is a plain one, and that runs with adapters are runs."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import jumok as package
from conftest import TINY, Jumok, assert_same, run_until, state_of
from jumok import text as reader
from jumok.config import BERTConfig, GPTConfig, GPTVariantConfig, TrainConfig
from jumok.errors import ConfigError, JumokError, ResumeError, RunError
from jumok.inference.native.from_torch import is_plain
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models import Model, build
from jumok.runs.events import Eval
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.tokenizers import train_tokenizer
from jumok.training.adapters import Adapters, write_base
from jumok.training.trainer import Trainer

pytest.importorskip("peft", reason="peft is not installed: pip install 'jumok[lora]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of transformers, about what peft calls
]

RATE = {"learning_rate": 0.05}  # so that a few steps change much
REVIEWS = [
    ("정말 재미있어요", "좋음"),
    ("너무 지루해요", "싫음"),
    ("최고의 영화", "좋음"),
    ("돈이 아까워요", "싫음"),
] * 20


def make(tales: str, path: Path, *, kind: type[Any] = GPTConfig, **changes: Any) -> Model:
    """A model with a tokenizer, saved at `path`; its parameters are far from their beginning."""
    special = ("[PAD]", "[CLS]", "[SEP]", "[MASK]") if kind is BERTConfig else ()
    tokenizer = train_tokenizer(tales, "char", special_tokens=special)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, **changes}
    torch.manual_seed(0)
    model = build(kind(vocab_size=tokenizer.vocab_size, **shape)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    model.tokenizer = tokenizer
    package.save(model, path)
    return model


def begin(out: Path, text: Any, init: Path, **settings: Any) -> Trainer:
    shape = {"n_layer", "n_head", "n_embd", "context_length"}
    usual = {name: value for name, value in TINY.items() if name not in shape}
    given = {**usual, "lora": 2, "dropout": 0.0, **RATE, **settings}
    return Trainer.start(out, text, **given, init=init, device="cpu")


def ids_for(model: Model) -> Tensor:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.integers(0, model.config.vocab_size, (2, 12)))


def logits(model: Model, ids: Tensor) -> Tensor:
    with torch.no_grad():
        if model.config.labels:
            return model.classify(model.hidden(ids))
        return model(ids)


# --- the model ------------------------------------------------------------------------------------------------------


NEOX: dict[str, Any] = {
    "kind": GPTVariantConfig, "architecture": "GPTNeoX", "norm": "layer", "gated": False, "activation": "gelu",
    "qk_norm": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True, "rotary_dim": 4, "parallel": True,
    "tie_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "shape",
    [{"n_kv_head": 1}, {"family": "classic"}, pytest.param(NEOX, marks=pytest.mark.long)],
    ids=["Qwen3", "GPT2", "GPTNeoX"],
)
def test_the_merged_model_is_a_stock_class(tmp_path: Path, tales: str, story_text: Text, shape: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    model = make(tales, tmp_path / "init", **shape)
    to_hf(model, tmp_path / "stock")
    list(begin(tmp_path / "run", story_text, tmp_path / "stock").run())
    ids, tuned = ids_for(model), package.load(tmp_path / "run")
    expected = logits(tuned, ids)
    assert (expected - logits(model, ids)).abs().max() > 0.1
    to_hf(tuned, tmp_path / "exported")
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    with torch.no_grad():
        assert (exported(ids).logits - expected).abs().max() < 1e-4
    assert torch.equal(logits(from_hf(tmp_path / "exported"), ids), expected)


@pytest.mark.long
def test_a_new_classifier_is_trained_as_a_whole(tmp_path: Path, tales: str) -> None:
    model = make(tales, tmp_path / "init")
    table = reader.from_rows(("text", "label"), REVIEWS)
    settings = {"task": "classify", "lm_weight": 0.0, "pooling": "last", "token_dropout": 0.0}
    list(begin(tmp_path / "run", table, tmp_path / "init", **settings).run())
    recorded = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))["adapter"]
    assert recorded["trained"] == ["classifier.weight"]
    tuned = package.load(tmp_path / "run")
    assert torch.equal(tuned.token_embedding.weight, model.token_embedding.weight)
    assert not torch.equal(tuned.blocks[0].attention.q_proj.weight, model.blocks[0].attention.q_proj.weight)


@pytest.mark.long
def test_a_bert(tmp_path: Path, tales: str, story_text: Text) -> None:
    model = make(tales, tmp_path / "init", kind=BERTConfig, head="mlm")
    list(begin(tmp_path / "run", story_text, tmp_path / "init", task="mlm", warmup=0.0).run())
    tuned, ids = package.load(tmp_path / "run"), ids_for(model)
    with torch.no_grad():
        assert (tuned.mlm_logits(tuned(ids)) - model.mlm_logits(model(ids))).abs().max() > 1e-3


# --- what is trained --------------------------------------------------------------------------------------------------


def test_what_is_trained_saved_and_recorded(tmp_path: Path, tales: str, story_text: Text) -> None:
    model = make(tales, tmp_path / "init")
    trainer = begin(tmp_path / "run", story_text, tmp_path / "init", lora=3)
    assert isinstance(trainer.optimizers[0], torch.optim.AdamW)
    assert len(trainer.optimizers) == 1
    list(trainer.run())
    matrices = [p for name, p in model.named_parameters() if name.startswith("blocks.") and p.dim() == 2]
    numbers = sum(3 * sum(matrix.shape) for matrix in matrices)
    state = state_of(tmp_path / "run")
    moments = [t for name, t in state.tensors.items() if name.startswith("optimizer.") and t.dim()]
    assert sum(t.numel() for t in moments) == 2 * numbers
    own = [t for name, t in state.tensors.items() if name.startswith("model.")]
    assert sum(t.numel() for t in own) == numbers
    recorded = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert recorded["train"]["lora"] == 3
    adapter = recorded["adapter"]
    assert (adapter["rank"], adapter["alpha"], adapter["trained"]) == (3, 6, [])
    assert set(adapter["target_modules"]) == {
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    }  # fmt: skip
    # The model at the end is a plain one, and embeddings and norms are those of the beginning.
    assert is_plain(trainer.model)
    after = dict(package.load(tmp_path / "run").named_parameters())
    for name, before in model.named_parameters():
        same = torch.equal(before, after[name])
        assert same != (name.startswith("blocks.") and before.dim() == 2), name


def test_merging_gives_back_the_same_bits(tmp_path: Path, tales: str) -> None:
    model = make(tales, tmp_path / "init")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    run = RunFolder(tmp_path / "run")
    run.state.mkdir(parents=True)
    base = write_base(run, model, ())
    adapters = Adapters(model, 2, seed=0, base=base)
    ids = ids_for(model)
    for tensor in adapters.tensors.values():
        tensor.normal_()
    apart = logits(model, ids)
    assert not is_plain(model)
    with adapters.merged():
        assert is_plain(model)
        assert dict(model.named_parameters()).keys() == before.keys()
        with adapters.merged():  # a second one changes nothing
            assert (logits(model, ids) - apart).abs().max() < 1e-4 * apart.abs().max()
    assert torch.equal(logits(model, ids), apart)
    adapters.remove()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


# --- resume -----------------------------------------------------------------------------------------------------------


def test_a_resumed_run_is_the_same_run(tmp_path: Path, tales: str, story_text: Text) -> None:
    """Also after the folder of --init is gone."""
    make(tales, tmp_path / "init")
    list(begin(tmp_path / "whole", story_text, tmp_path / "init").run())
    run_until(begin(tmp_path / "run", story_text, tmp_path / "init"), 5)
    shutil.rmtree(tmp_path / "init")
    list(Trainer.resume(tmp_path / "run", device="cpu").run())
    assert_same(tmp_path / "run", tmp_path / "whole")


@pytest.mark.long
def test_a_finished_run_has_the_plain_model(tmp_path: Path, tales: str, story_text: Text) -> None:
    make(tales, tmp_path / "init")
    list(begin(tmp_path / "run", story_text, tmp_path / "init").run())
    done = Trainer.resume(tmp_path / "run", device="cpu")
    assert done.result is not None
    assert is_plain(done.model)
    done.close()


def test_merged_parameters_go_back_with_the_state(tmp_path: Path, tales: str, story_text: Text) -> None:
    """A kill after a better validation and before a save: the folder has parameters that the state does not know."""
    make(tales, tmp_path / "init")
    run_until(begin(tmp_path / "run", story_text, tmp_path / "init"), 5)
    file = tmp_path / "run" / "model.safetensors"
    before = file.read_bytes()
    file.unlink()
    file.write_bytes(before[:-4] + b"\0\0\0\0")
    Trainer.resume(tmp_path / "run", device="cpu").close()
    assert file.read_bytes() == before


def test_a_base_that_is_gone_or_changed(tmp_path: Path, tales: str, story_text: Text) -> None:
    make(tales, tmp_path / "init")
    begin(tmp_path / "run", story_text, tmp_path / "init").close()
    base = tmp_path / "run" / "state" / "base.safetensors"
    content = bytearray(base.read_bytes())
    content[-1] ^= 1
    base.write_bytes(content)
    with pytest.raises(RunError, match=r"base\.safetensors, which has the parameters that are not trained"):
        Trainer.resume(tmp_path / "run", device="cpu")
    base.unlink()
    with pytest.raises(RunError, match="missing or damaged"):
        Trainer.resume(tmp_path / "run", device="cpu")


# --- bad input --------------------------------------------------------------------------------------------------------


def test_wrong_use(tmp_path: Path, tales: str, story_text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tales, tmp_path / "init")
    with pytest.raises(ConfigError, match="lora=0 is out of range"):
        TrainConfig(lora=0)
    with pytest.raises(ConfigError, match="optimizer='muon' does not fit lora=2"):
        begin(tmp_path / "run", story_text, tmp_path / "init", optimizer="muon")
    with pytest.raises(ConfigError, match="trains adapters on a model that exists"):
        Trainer.start(tmp_path / "other", story_text, lora=2, device="cpu")
    begin(tmp_path / "run", story_text, tmp_path / "init").close()
    with pytest.raises(ResumeError, match="lora=2, not 3"):
        Trainer.resume(tmp_path / "run", lora=3, device="cpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JumokError, match=r"pip install 'jumok\[lora\]'"):
        begin(tmp_path / "other", story_text, tmp_path / "init")
    assert not (tmp_path / "other").exists()


def test_the_command_line(jumok: Jumok, tmp_path: Path, tales: str) -> None:
    make(tales, Path("init"))
    Path("tale.txt").write_text(tales, encoding="utf-8")
    steps = ["--steps", 2, "--batch-size", 4, "--precision", "float32", "--sample-tokens", 4, "--device", "cpu"]
    end = jumok("train", "tale.txt", "--init", "init", "--lora", 2, "--out", "run", *steps)
    assert end.code == 0, end.err
    assert jumok("generate", "run", "옛날", "--tokens", 4, "--seed", 1).code == 0
    end = jumok("train", "tale.txt", "--lora", 2, "--out", "other")
    assert end.code == 2
    assert "--init FOLDER" in end.err


def test_a_folder_that_vanishes_is_told_once(
    tales: str, story_text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `rm -rf` of the run during a validation, with the adapters merged, a traceback followed the message.

    The suspended loop was ended by the garbage collector, and its end read the base, which was gone as well.
    """
    make(tales, tmp_path / "base")
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", unraisable.append)
    events = begin(tmp_path / "run", story_text, tmp_path / "base").run()
    while not isinstance(next(events), Eval):
        pass
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        list(events)
    gc.collect()
    assert unraisable == []
