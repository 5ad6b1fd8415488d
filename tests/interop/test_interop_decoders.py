"""Decoders of `transformers` that are read as variants of GPT: Llama, Qwen2, Qwen3 with options, Mistral, GPT-NeoX."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import jumok
from jumok.config import GPTConfig, GPTVariantConfig, RopeScaling, count_constants, count_parameters, from_dict, to_dict
from jumok.errors import ConfigError, JumokError, RunError
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.nn.positions import rotary
from jumok.runs.load import load, save
from jumok.serve.playground.reading import Reading
from jumok.serve.playground.step import step
from jumok.tokenizers import train_tokenizer

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'jumok[hf]'")

VOCAB, LENGTH = 61, 40
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": LENGTH,
}  # fmt: skip
GROUPED: dict[str, Any] = {**SIZES, "num_key_value_heads": 2}


def rope(**settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 500.0, **settings}}


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
FACTORS = {"short_factor": [1.0, 1.1, 1.3, 1.7], "long_factor": [1.0, 2.0, 5.0, 9.0]}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("Llama", GROUPED),
    "Llama with biases": ("Llama", {**GROUPED, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "Llama with a head width": ("Llama", {**GROUPED, "head_dim": 6}),
    "llama3 scaling": ("Llama", {**GROUPED, **rope(rope_type="llama3", factor=8.0, **LLAMA3)}),
    "linear scaling": ("Llama", {**GROUPED, **rope(rope_type="linear", factor=3.0)}),
    "dynamic scaling": ("Llama", {**GROUPED, **rope(rope_type="dynamic", factor=3.0)}),
    "yarn": ("Qwen2", {**GROUPED, **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=10)}),
    "yarn as DeepSeek": (
        "Qwen3",
        {
            **GROUPED,
            "head_dim": 16,
            **rope(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=10, mscale=1.0, mscale_all_dim=0.7,
                truncate=False, beta_fast=8.0, beta_slow=2.0,
            ),
        },
    ),
    "longrope": (
        "Llama", {**GROUPED, **rope(rope_type="longrope", original_max_position_embeddings=16, **FACTORS)}
    ),
    "longrope in a short text": (
        "Mistral",
        {**GROUPED, **rope(rope_type="longrope", original_max_position_embeddings=64, factor=2.0, **FACTORS)},
    ),
    "Qwen2": ("Qwen2", GROUPED),
    "Qwen2 with windows": (
        "Qwen2", {**GROUPED, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1}
    ),
    "Qwen3 with options": (
        "Qwen3",
        {
            **GROUPED, "head_dim": 16, "attention_bias": True, "use_sliding_window": True, "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "Mistral": ("Mistral", {**GROUPED, "sliding_window": 9}),
    "Mistral without windows": ("Mistral", {**GROUPED, "sliding_window": None}),
    "GPTNeoX": ("GPTNeoX", {**SIZES, **rope(partial_rotary_factor=0.25)}),
    "GPTNeoX in sequence": (
        "GPTNeoX",
        {
            **SIZES, "use_parallel_residual": False, "attention_bias": False, "hidden_act": "gelu_new",
            **rope(partial_rotary_factor=0.75),
        },
    ),
}  # fmt: skip
CLASSES = ("Llama", "Qwen2", "Qwen3 with options", "Mistral", "GPTNeoX")


def stock(case: str, head: str = "ForCausalLM", **settings: Any) -> Any:
    """A random model in float64."""
    name, values = CASES[case]
    config = getattr(transformers, f"{name}Config")(**{**values, **settings})
    torch.manual_seed(3)
    model = getattr(transformers, name + head)._from_config(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder of a case, written when it is first asked for."""
    base, made = tmp_path_factory.mktemp("decoders"), {}

    def folder(case: str) -> Path:
        if case not in made:
            made[case] = base / case.replace(" ", "-")
            stock(case).save_pretrained(made[case])
        return made[case]

    return folder


def some_ids(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(VOCAB, (rows, length), generator=torch.Generator().manual_seed(5))


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


# --- in ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_logits_and_gradients_are_those_of_the_stock_class(case: str, folders: Any) -> None:
    """At all positions up to the context length, which is beyond the original one of scaled models."""
    theirs, ours = stock(case), from_hf(folders(case))
    assert isinstance(ours.config, GPTVariantConfig)
    assert count_parameters(ours.config) == sum(p.numel() for p in ours.parameters())
    assert count_constants(ours.config) == sum(b.numel() for b in ours.buffers())
    ids = some_ids()
    expected, got = theirs(ids).logits, ours(ids)
    assert expected.std() > 0.1
    close(got, expected)
    for logits in (expected, got):
        nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    their_gradients = theirs.get_input_embeddings().weight.grad
    close(ours.token_embedding.weight.grad, their_gradients)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in ours.parameters() if p.dim() > 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(CASES.keys() - {"longrope"}))
@torch.no_grad()
def test_cached_is_uncached_and_rows_may_differ_in_length(case: str, folders: Any) -> None:
    model = from_hf(folders(case))
    ids = some_ids()
    whole, cache = model(ids), model.new_cache(2)
    for start, stop in ((0, 13), (13, 14), (14, 30), (30, LENGTH)):
        close(model(ids[:, start:stop], cache), whole[:, start:stop])
    cache, starts = model.new_cache(2), [4, 21]
    model(ids[:, :21], cache)  # the first row begins again after its fourth token
    for done in range(6):
        cache.begin_at([start + done for start in starts], 1)
        newest = torch.stack([ids[row, start + done] for row, start in enumerate(starts)])[:, None]
        for row, logits in enumerate(model(newest, cache)):
            close(logits[0], whole[row, starts[row] + done])


@pytest.mark.slow
@torch.no_grad()
def test_longrope_with_a_cache_is_that_of_the_stock_class(folders: Any) -> None:
    """Keys of the first 16 positions stay as they were when the text grows beyond them, here and there."""
    theirs, ours, ids = stock("longrope"), from_hf(folders("longrope")), some_ids()
    kept, cache = None, ours.new_cache(2)
    for start, stop in ((0, 12), (12, 13), (13, 20), (20, 21), (21, LENGTH)):
        expected = theirs(ids[:, start:stop], past_key_values=kept, use_cache=True)
        kept = expected.past_key_values
        close(ours(ids[:, start:stop], cache), expected.logits)
    assert not torch.allclose(ours(ids), theirs(ids[:, :20]).logits[:, :1])


@pytest.mark.slow
@pytest.mark.parametrize("case", ["Mistral", "GPTNeoX", "yarn"])
@torch.no_grad()
def test_padded_batches_are_those_of_the_stock_class(case: str, folders: Any) -> None:
    """Padding before a text there, rows of different lengths in a cache here."""
    theirs, ours, ids = stock(case), from_hf(folders(case)), some_ids(3, 25)
    lengths = [25, 11, 18]
    mask = torch.stack([(torch.arange(25) >= 25 - length).long() for length in lengths])
    places = (mask.cumsum(1) - 1).clamp_min(0)
    expected = theirs(ids, attention_mask=mask, position_ids=places).logits
    padded = torch.stack([row.roll(length) for row, length in zip(ids, lengths, strict=True)])  # the padding last
    cache = ours.new_cache(3)
    ours(padded[:, :24], cache)
    cache.begin_at([length - 1 for length in lengths], 1)
    newest = torch.stack([padded[row, length - 1] for row, length in enumerate(lengths)])[:, None]
    close(ours(newest, cache)[:, 0], expected[:, -1])


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_out_again_is_bit_identical(case: str, folders: Any, tmp_path: Path) -> None:
    to_hf(from_hf(folders(case)), tmp_path / "out")
    name = CASES[case][0]
    model, info = getattr(transformers, f"{name}ForCausalLM").from_pretrained(
        tmp_path / "out", dtype=torch.float64, output_loading_info=True
    )
    assert not any(info.values())
    theirs = stock(case)
    for (key, tensor), (again, copy) in zip(theirs.state_dict().items(), model.state_dict().items(), strict=True):
        assert key == again
        assert torch.equal(tensor, copy)
    ids = some_ids()
    close(model(ids).logits, theirs(ids).logits)


@pytest.mark.slow
@pytest.mark.parametrize("case", CLASSES)
@torch.no_grad()
def test_classifiers(case: str, tmp_path: Path) -> None:
    theirs = stock(case, "ForSequenceClassification", num_labels=3, pad_token_id=0)
    theirs.save_pretrained(tmp_path / "stock")
    ours = from_hf(tmp_path / "stock")
    ids = some_ids().clamp_min(1)
    ids[0, 30:] = 0  # padding
    mask = ids > 0
    close(ours.classify(ours.hidden(ids), mask), theirs(ids, attention_mask=mask.long()).logits)
    to_hf(ours, tmp_path / "out")
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", dtype=torch.float64)
    assert type(again) is type(theirs)
    close(again.eval()(ids, attention_mask=mask.long()).logits, theirs(ids, attention_mask=mask.long()).logits)


@pytest.mark.slow
def test_a_plain_qwen3_is_the_modern_family(tmp_path: Path) -> None:
    config = transformers.Qwen3Config(**GROUPED, head_dim=16, sliding_window=7)  # not in use
    transformers.Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    assert type(from_hf(tmp_path).config) is GPTConfig


@pytest.mark.slow
def test_settings_of_older_versions(folders: Any, tmp_path: Path) -> None:
    """transformers 4 wrote rope_theta and rope_scaling, and GPT-NeoX rotary_pct and rotary_emb_base."""
    for case in ("llama3 scaling", "GPTNeoX"):
        expected = from_hf(folders(case)).config
        folder = tmp_path / case
        folder.mkdir()
        for file in folders(case).iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        settings = json.loads((folder / "config.json").read_text())
        new = settings.pop("rope_parameters")
        if case == "GPTNeoX":
            settings |= {"rotary_pct": new["partial_rotary_factor"], "rotary_emb_base": new["rope_theta"]}
        else:
            settings["rope_theta"] = new.pop("rope_theta")
            settings["rope_scaling"] = {"type": new.pop("rope_type"), **new}
        (folder / "config.json").write_text(json.dumps(settings))
        assert from_hf(folder).config == expected


@pytest.mark.slow
@torch.no_grad()
def test_constants_of_old_files_are_ignored(folders: Any, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    (tmp_path / "config.json").write_bytes((folders("GPTNeoX") / "config.json").read_bytes())
    tensors = load_file(folders("GPTNeoX") / "model.safetensors")
    for i in range(2):
        tensors[f"gpt_neox.layers.{i}.attention.bias"] = torch.ones(1, 1, LENGTH, LENGTH)
        tensors[f"gpt_neox.layers.{i}.attention.masked_bias"] = torch.tensor(-1e9)
        tensors[f"gpt_neox.layers.{i}.attention.rotary_emb.inv_freq"] = torch.ones(1)
    save_file(tensors, tmp_path / "model.safetensors")
    ids = some_ids()
    close(from_hf(tmp_path)(ids), from_hf(folders("GPTNeoX"))(ids))


# --- what came in is a run like any other -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", ["llama3 scaling", "Qwen3 with options", "GPTNeoX"])
@torch.no_grad()
def test_a_run_folder_keeps_a_variant(case: str, folders: Any, tmp_path: Path) -> None:
    model = from_hf(folders(case))
    assert from_dict(GPTVariantConfig, json.loads(json.dumps(to_dict(model.config)))) == model.config
    model.tokenizer = train_tokenizer("나는 학교에 갔다.")
    config = dataclasses.replace(model.config, vocab_size=model.tokenizer.vocab_size)
    model, words = build(config), model.tokenizer
    model.tokenizer = words
    save(model, tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.config == model.config
    ids = some_ids()
    assert torch.equal(again(ids), model.eval()(ids))


@pytest.mark.slow
@pytest.mark.parametrize("case", CLASSES)
def test_it_generates_beyond_its_context_and_is_recorded(case: str, folders: Any) -> None:
    model = from_hf(folders(case)).float()
    written = list(itertools.islice(generate_ids(model, [3, 4, 5], Sampling(temperature=0)), LENGTH + 10))
    ids = [3, 4, 5]
    with torch.no_grad():
        for _ in range(20):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert written[:20] == ids[3:]
    with jumok.record(model) as recording, torch.no_grad():
        model(torch.tensor([ids]))
    weights = recording.attentions[0].weights()  # (1, H, T, T)
    assert bool((weights[0, :, -1, 0] > 0).all()) == (model.config.window(0) is None)


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "settings", "message"),
    [
        ("Llama", {"rope_parameters": {"rope_type": "su", "factor": 2.0}}, "rope_type 'su'"),
        ("Llama", {"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope has no short_factor"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "rope_scaling.short_factor has 1 numbers",
        ),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "longrope", "short_factor": ["x"] * 4, "long_factor": [1.0] * 4}},
            "a number in rope_scaling.short_factor='x'",
        ),
        ("Llama", {"rope_parameters": {"rope_type": "yarn"}, "max_position_embeddings": 10**400}, "_embeddings="),
        ("Llama", {"rope_parameters": "yarn"}, "rope_parameters='yarn' is of type str"),
        ("Llama", {"rope_parameters": {"full_attention": {"rope_type": "linear"}}}, "rope_parameters by layer"),
        ("Llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("Llama", {"quantization_config": {"quant_method": "awq"}}, "is quantised (awq)"),
        ("Qwen3 with options", {"layer_types": ["chunked_attention"] * 2}, "layer_types chunked_attention"),
        ("GPTNeoX", {"head_dim": 10**400}, "head_dim="),
        ("GPTNeoX", {"hidden_size": 10**400}, "out of range"),
        ("Llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "llama3 has no low_freq_factor"),
        (
            "Llama",
            {"rope_parameters": {"rope_type": "linear", "factor": "8"}},
            "rope_scaling.factor='8' is of type str",
        ),
        ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 10**400}}, "rope_scaling.factor="),
        ("Llama", {"rope_parameters": {"rope_type": "linear"}}, "factor"),
        ("Llama", {"rope_parameters": [1]}, "rope_parameters=[1] is of type list"),
        ("Llama", {"hidden_act": "relu"}, "hidden_act 'relu'"),
        ("Llama", {"num_attention_heads": 0, "head_dim": None}, "num_attention_heads=0"),
        ("Llama", {"num_hidden_layers": 10**30}, "n_layer="),
        ("Qwen2 with windows", {"num_hidden_layers": 10**30}, "n_layer="),
        ("Llama", {"num_key_value_heads": 3}, "n_kv_head=3"),
        ("Llama", {"attention_bias": "yes"}, "qkv_bias='yes' is of type str"),
        ("Mistral", {"sliding_window": 0}, "sliding_window=0"),
        ("Mistral", {"sliding_window": "far"}, "sliding_window='far' is of type str"),
        ("GPTNeoX", {"rope_parameters": {"partial_rotary_factor": 0.4}}, "rotary_dim=3 is odd"),
        ("GPTNeoX", {"rope_parameters": {"partial_rotary_factor": -1.0}}, "rotary_pct=-1.0"),
        ("GPTNeoX", {"hidden_act": "swish"}, "hidden_act 'swish'"),
    ],
)
def test_settings_that_are_refused(
    case: str, settings: dict[str, Any], message: str, folders: Any, tmp_path: Path
) -> None:
    values = json.loads((folders(case) / "config.json").read_text()) | settings
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises((JumokError, ConfigError, RunError)) as error:
        from_hf(tmp_path)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rotary_dim": 3}, "rotary_dim=3 is odd"),
        ({"rotary_dim": 10}, "rotary_dim=10 is out of range"),
        ({"sliding_window": 0}, "sliding_window=0 is out of range"),
        ({"sliding_window": 4, "sliding_layers": (2,)}, "a layer in sliding_layers=2 is out of range"),
        ({"architecture": "Gemma"}, "architecture='Gemma' is not known"),
        ({"norm": "none"}, "norm='none' is not known"),
        ({"activation": "gelu"}, "activation='gelu' is for an MLP without a gate"),
        ({"family": "classic"}, "family='classic' has no rotary positions"),
        ({"rope_scaling": {"kind": "ntk", "factor": 2.0}}, "rope_scaling.kind='ntk' is not known"),
        ({"rope_scaling": {"kind": "linear", "factor": 0.5}}, "rope_scaling.factor=0.5 is out of range"),
    ],
)
def test_a_configuration_that_contradicts_itself(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        GPTVariantConfig(vocab_size=9, n_layer=2, n_head=4, n_embd=32, **settings)
    assert message in str(error.value)


# --- positions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["linear", "llama3", "yarn"])
def test_scaled_frequencies_lie_between_the_stretched_and_the_original(kind: Any) -> None:
    scaling = RopeScaling(
        kind=kind, factor=4.0, original_context=512, low_freq_factor=1.0, high_freq_factor=4.0, attention_factor=1.0
    )
    plain, stretched, scaled = (
        torch.atan2(sin[1], cos[1])[:8]
        for cos, sin in (
            rotary(2, 16),
            rotary(2, 16, scaling=RopeScaling(kind="linear", factor=4.0)),
            rotary(2, 16, scaling=scaling),
        )
    )
    assert (scaled <= plain + 1e-6).all()
    assert (scaled >= stretched - 1e-6).all()
    if kind != "linear":
        torch.testing.assert_close(scaled[0], plain[0])  # the fastest is kept
    torch.testing.assert_close(scaled[-1], stretched[-1])


def test_only_the_first_dimensions_are_rotated() -> None:
    model = build(
        GPTVariantConfig(vocab_size=9, n_layer=1, n_head=2, n_embd=16, rotary_dim=4, context_length=8, norm="layer")
    )
    assert model.cos is not None
    assert model.cos.shape == (8, 4)


# --- what is said of them elsewhere -----------------------------------------------------------------------------------


def small(**parts: Any) -> GPT:
    tokenizer = train_tokenizer("나는 학교에 갔다.")
    config = GPTVariantConfig(
        vocab_size=tokenizer.vocab_size, context_length=64, n_layer=2, n_head=4, n_embd=32, **parts
    )
    model = build(config)
    model.tokenizer = tokenizer
    return model


def test_steps_are_refused_with_the_reason() -> None:
    model = small()
    with pytest.raises(ConfigError, match="this is a Llama model; the steps are drawn"):
        step(Reading(model), [3, 4], 0, {}, 5)


@pytest.mark.slow
def test_training_goes_on_with_a_shorter_context(tmp_path: Path) -> None:
    """Rows of 131,072 tokens fit into no memory; rotary positions need no parameters for their number."""
    to_hf(small(architecture="Mistral", sliding_window=9), tmp_path / "stock")
    settings: dict[str, Any] = {"steps": 2, "quiet": True, "batch_size": 2, "context_length": 16}
    jumok.train("나는 학교에 갔다. " * 60, out=tmp_path / "run", init=tmp_path / "stock", **settings)
    config = load(tmp_path / "run").config
    assert isinstance(config, GPTVariantConfig)
    assert (config.context_length, config.sliding_window) == (16, 9)
    with pytest.raises(ConfigError, match="context_length=128 was given, and the model to begin with has 64"):
        jumok.train("나는. " * 99, out=tmp_path / "no", init=tmp_path / "stock", **{**settings, "context_length": 128})
