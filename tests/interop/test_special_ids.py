"""The ids that begin and end the texts of an imported GPT: read, used by `generate`, and written again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok
from jumok.config import GPTConfig
from jumok.errors import ConfigError
from jumok.inference.generate import generate, stream
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.gpt import GPT
from jumok.runs.load import load, save
from jumok.view.trace import trace
from tokenizers import Tokenizer as HFTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")

BOS, END, TURN = "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"
SPECIAL = {BOS: 256, END: 257, TURN: 258}


def pipeline() -> HFTokenizer:
    """A tokenizer with bytes as tokens, which puts BOS before each text, as that of Llama 3."""
    letters = pre_tokenizers.ByteLevel.alphabet()
    words = HFTokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(sorted(letters))}, merges=[]))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    words.add_special_tokens(list(SPECIAL))
    words.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 256)])
    return words


def saved(folder: Path, architecture: str = "Llama", **ids: Any) -> Path:
    """A random model of `transformers` with a tokenizer; the likeliest id after anything is END."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24}
    if architecture == "GPT2":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}
    config = getattr(transformers, f"{architecture}Config")(vocab_size=264, **{"bos_token_id": 256, **ids}, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=pipeline(), bos_token=BOS, eos_token=END).save_pretrained(
        folder
    )
    return folder


def settings(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("architecture", ["Llama", "Qwen3", "GPT2"])
@pytest.mark.parametrize("ends", [257, [257, 258], None])
def test_a_round_trip_keeps_special_ids(architecture: str, ends: Any, tmp_path: Path) -> None:
    """They were null after a way through jumok, so `generate` of transformers never stopped."""
    stock = saved(tmp_path / "stock", architecture, eos_token_id=ends)
    model = from_hf(stock)
    assert model.config.bos_id == 256
    assert model.config.eos_ids == (() if ends is None else tuple([ends] if isinstance(ends, int) else ends))
    save(model, tmp_path / "run")
    to_hf(load(tmp_path / "run"), tmp_path / "back")
    for name in ("config.json", "generation_config.json"):
        found = settings(tmp_path / "back", name)
        assert (found["bos_token_id"], found["eos_token_id"]) == (256, ends)
    named = settings(tmp_path / "back", "tokenizer_config.json")
    assert (named.get("bos_token"), named.get("eos_token")) == (BOS, END)  # those of the tokenizer
    wanted, again = (transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name) for name in ("stock", "back"))
    assert {name: tensor.tolist() for name, tensor in again.state_dict().items()} == {
        name: tensor.tolist() for name, tensor in wanted.state_dict().items()
    }
    words = [transformers.AutoTokenizer.from_pretrained(tmp_path / name) for name in ("stock", "back")]
    assert words[0]("봄 밤").input_ids == words[1]("봄 밤").input_ids
    assert words[1]("봄").input_ids[0] == 256


def test_ids_of_the_generation_config_come_first(tmp_path: Path) -> None:
    """A model for chat has one end in config.json, and all of its ends in generation_config.json."""
    stock = saved(tmp_path / "stock", eos_token_id=257)
    beside = settings(stock, "generation_config.json")
    (stock / "generation_config.json").write_text(json.dumps(beside | {"eos_token_id": [257, 258]}), encoding="utf-8")
    assert from_hf(stock).config.eos_ids == (257, 258)


def test_ids_outside_the_vocabulary_are_left_out(tmp_path: Path) -> None:
    """50256 is in the config.json of each GPT-2, whatever its vocabulary."""
    stock = saved(tmp_path / "stock", "GPT2", bos_token_id=50256, eos_token_id=[50256, 257])
    config = from_hf(stock).config
    assert (config.bos_id, config.eos_ids) == (None, (257,))


def test_generation_begins_and_ends_as_that_of_transformers(tmp_path: Path) -> None:
    """`generate` wrote on after the model's end, and left out the id with which its texts begin."""
    stock = saved(tmp_path / "stock", eos_token_id=[257, 258])
    model = load(stock, kind=GPT)
    reference = transformers.AutoModelForCausalLM.from_pretrained(stock)
    words = transformers.AutoTokenizer.from_pretrained(stock)
    hidden = reference.model(**words("봄", return_tensors="pt")).last_hidden_state
    with torch.no_grad():  # the likeliest id after the third one is an end
        written = reference.generate(**words("봄", return_tensors="pt"), max_new_tokens=8, do_sample=False)[0]
        assert hidden.shape[1] == 4  # BOS and three bytes
        stop = written[6].item()
        for one in (model.head, reference.lm_head):
            one.weight[258] = one.weight[stop] * 1.01
    wanted = reference.generate(**words("봄", return_tensors="pt"), max_new_tokens=20, do_sample=False)[0, 4:].tolist()
    assert wanted[-1] == 258
    assert len(wanted) < 20
    [found] = generate(model, "봄", tokens=20, temperature=0)
    assert (list(found.ids), found.finish) == (wanted, "stop")
    assert TURN not in found.text
    assert "".join(stream(model, "봄", tokens=20, temperature=0)) == found.text
    assert trace(model, "봄").sequences[0].pieces.tokens[0].id == 256
    [empty] = generate(model, "", tokens=1, temperature=0)
    assert empty.ids[0] == reference.generate(torch.tensor([[256]]), max_new_tokens=1, do_sample=False)[0, -1].item()


def test_a_model_of_jumok_goes_on(tmp_path: Path) -> None:
    """A model that was trained here has no such ids; a text begins after a newline."""
    tokenizer = jumok.train_tokenizer("나는 학교에 갔다.\n", "char")
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=16))
    model.tokenizer = tokenizer
    assert (model.config.bos_id, model.config.eos_ids) == (None, ())
    assert generate(model, "", tokens=20, temperature=0)[0].finish == "length"
    to_hf(model, tmp_path / "hf")
    assert settings(tmp_path / "hf", "generation_config.json")["eos_token_id"] is None


@pytest.mark.parametrize("prompt", [5, None, b"a", ["a", 5]])
def test_a_prompt_is_text(prompt: Any) -> None:
    """`jumok.generate(model, 5)` ended with a TypeError that named no argument."""
    tokenizer = jumok.train_tokenizer("나는 학교에 갔다.\n", "char")
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=16))
    model.tokenizer = tokenizer
    with pytest.raises(ConfigError, match="prompt="):
        generate(model, prompt)
