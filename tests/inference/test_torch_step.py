"""The step in PyTorch against the model, and texts side by side against each alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import GPTConfig, GPTVariantConfig, RopeScaling, RungConfig
from jumok.errors import ConfigError, JumokError
from jumok.inference.engine import Engine
from jumok.inference.generate import generate, generate_ids, write_all
from jumok.inference.requests import Request
from jumok.inference.sampling import Sampling
from jumok.inference.slots import window_start
from jumok.inference.torch_step import TorchStep, can_replace
from jumok.models.checks import not_finite
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.nn.cache import KVCache
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

V = 73
GREEDY = Sampling(temperature=0)
SHAPES: dict[str, dict[str, Any]] = {
    "modern": {},
    "shared-keys": {"n_kv_head": 2},
    "classic": {"family": "classic"},
    "relu-narrow-heads": {"family": "classic", "activation": "relu", "head_dim": 4, "tie_embeddings": False},
    "wide-heads": {"head_dim": 12, "n_kv_head": 1, "tie_embeddings": False},
    "with-classes": {"labels": ("a", "b"), "pooling": "attention"},
}
LLAMA3 = RopeScaling(kind="llama3", factor=8.0, original_context=6, low_freq_factor=1.0, high_freq_factor=4.0)
YARN = RopeScaling(kind="yarn", factor=4.0, original_context=6)  # its cosines and sines have a factor
NEOX: dict[str, Any] = {
    "architecture": "GPTNeoX", "norm": "layer", "gated": False, "activation": "gelu", "parallel": True,
    "qkv_bias": True, "out_bias": True, "mlp_bias": True, "rotary_dim": 2, "tie_embeddings": False,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "Llama", "n_kv_head": 2, "rope_scaling": LLAMA3},
    "llama-biases": {"architecture": "Llama", "qkv_bias": True, "out_bias": True, "mlp_bias": True},
    "qwen2": {"architecture": "Qwen2", "n_kv_head": 2, "qkv_bias": True, "rope_scaling": YARN},
    "qwen2-one-sliding": {"architecture": "Qwen2", "sliding_window": 5, "sliding_layers": (1,)},
    "qwen3-biases": {"architecture": "Qwen3", "qk_norm": True, "qkv_bias": True, "out_bias": True},
    "mistral-sliding": {"architecture": "Mistral", "sliding_window": 3},
    "neox": NEOX,
    "neox-in-turn": {**NEOX, "activation": "gelu_tanh", "parallel": False, "rotary_dim": 4},
}
SHAPES |= VARIANTS
FAMILIES = ("modern", "classic")


def config_of(**shape: Any) -> GPTConfig:
    return GPTVariantConfig(**shape) if "architecture" in shape else GPTConfig(**shape)


def tiny(seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> GPT:
    """A small model with random weights, norms and biases included."""
    torch.manual_seed(seed)
    shape = {"context_length": 12, "n_layer": 2, "n_head": 4, "n_embd": 32, "dropout": 0.5, **changes}
    model = GPT(config_of(vocab_size=V, **shape)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    return model.to(dtype)


def written(
    model: GPT, prompts: Sequence[Sequence[int]], number: int, sampling: Sampling = GREEDY, samples: int = 1, **how: Any
) -> list[list[int]]:
    """The ids that each text gets, the samples of the first prompt first."""
    requests = [
        Request(prompt=list(prompt), sampling=sampling, tokens=number, seed=3, sample=sample)
        for prompt in prompts
        for sample in range(samples)
    ]
    texts = write_all(Engine(model, len(requests), **how), requests)
    if any(text.finish == "not finite" for text in texts):
        raise not_finite()
    return [text.drawn for text in texts]


@pytest.fixture(autouse=True)
def _with_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the native step, which a machine may have."""
    monkeypatch.setenv("JUMOK_NATIVE", "0")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows the decoder was given at each step that it took."""
    calls: list[int] = []
    logits = TorchStep.logits

    def counting(self: TorchStep, ids: Tensor, cache: KVCache) -> Tensor:
        calls.append(len(ids))
        return logits(self, ids, cache)

    monkeypatch.setattr(TorchStep, "logits", counting)
    return calls


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what the model itself was given."""
    shapes: list[tuple[int, ...]] = []
    hidden = GPT.hidden

    def watching(self: GPT, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        shapes.append(tuple(ids.shape))
        return hidden(self, ids, cache)

    monkeypatch.setattr(GPT, "hidden", watching)
    return shapes


# --- the window -------------------------------------------------------------------------------------------------------


def test_window_start():
    assert [window_start(n, 4) for n in range(1, 12)] == [0, 0, 0, 0, 2, 2, 4, 4, 6, 6, 8]
    assert [window_start(n, 5) for n in range(1, 12)] == [0, 0, 0, 0, 0, 2, 2, 4, 4, 6, 6]
    assert [window_start(n, 1) for n in range(1, 5)] == [0, 1, 2, 3]
    assert [window_start(n, 2) for n in range(1, 5)] == [0, 0, 1, 2]


def test_the_model_reads_a_window_once_and_the_decoder_the_rest(fed: list[tuple[int, ...]], taken: list[int]):
    """The cache is worth nothing if each step past the context fills it anew."""
    written(tiny(context_length=16), [range(6)], 100)
    assert fed[0] == (1, 5)  # all but the newest
    assert set(fed[1:]) == {(1, 8)}  # after a move, the half of the context that is left
    assert len(fed) - 1 == math.ceil((6 + 99 - 16) / 8)
    assert taken == [1] * 100


# --- the decoder and the model ----------------------------------------------------------------------------------------


def test_under_autocast_the_decoder_computes_as_without(taken: list[int]):
    """Trap: autocast casts each matrix anew for each token, which made samples in a bfloat16 run ten times slower."""
    model = tiny()
    alone = written(model, [[1, 2, 3]], 30)
    with torch.autocast("cpu", torch.bfloat16):
        assert written(model, [[1, 2, 3]], 30) == alone
    assert len(taken) == 60


@pytest.mark.parametrize(("part", "prompt"), [("q_proj", 1), ("v_proj", 20)])
def test_one_damaged_number_is_still_found(part: str, prompt: int):
    """Trap: for few keys the fused kernel turns the NaN of a query into zeros, and the text looks fine."""
    model = tiny(context_length=40)
    with torch.no_grad():
        getattr(model.blocks[1].attention, part).weight[0, 0] = math.nan
    with pytest.raises(JumokError, match="not finite"):
        written(model, [range(prompt)], 2)


# --- who may use it ---------------------------------------------------------------------------------------------------


class Doubling(nn.Linear):
    """Somebody's own layer in the place of ours."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def exchanged(model: GPT) -> GPT:
    model.blocks[0].mlp.down_proj = Doubling(model.config.mlp_width, 32, bias=False)
    return model


def hooked(model: GPT) -> GPT:
    model.blocks[0].mlp.register_forward_hook(lambda part, given, out: 2 * out)
    return model


OTHERS: dict[str, Callable[[], GPT]] = {
    "exchanged": lambda: exchanged(tiny()),
    "hooked": lambda: hooked(tiny()),
    "rung": lambda: Rung(RungConfig(vocab_size=V, context_length=12, n_layer=1, n_head=1, n_embd=8, residual=False)),
    "bfloat16": lambda: tiny(dtype=torch.bfloat16),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_model_does_it_itself(make: Callable[[], GPT], taken: list[int]):
    model = make()
    assert not can_replace(model)
    assert written(model, [[1, 2, 3]], 5) == written(model, [[1, 2, 3]], 5, cache=False)
    assert taken == []


def test_angles_that_depend_on_the_length_leave_no_keys_to_keep(taken: list[int]):
    """Keys in a cache were rotated for a shorter text. Where the context ends before the change, they may be kept."""
    factors = {"short_factor": (1.0,) * 4, "long_factor": (3.0,) * 4}
    kinds = [RopeScaling(kind="longrope", factor=2.0, original_context=n, **factors) for n in (6, 12)]
    changing, constant = (tiny(architecture="Llama", rope_scaling=kind) for kind in kinds)
    assert (can_replace(changing), can_replace(constant)) == (False, True)
    assert written(changing, [[1, 2], [3]], 20) == written(changing, [[1, 2], [3]], 20, cache=False)
    assert taken == []
    with pytest.raises(ConfigError, match="is computed by the C"):
        written(changing, [[1]], 1, quantize="int8")
    assert written(constant, [[1, 2]], 20) == written(constant, [[1, 2]], 20, cache=False)
    assert len(taken) == 20


def test_what_grew_while_somebody_watched_is_read_again():
    """The window moved by as many ids as were watched: the count of positions agreed, and the old keys were used."""
    model, watched = tiny(), 6
    alone = written(model, [[1, 2, 3, 4]], 24)[0]
    ids = []
    with closing(generate_ids(model, [1, 2, 3, 4], GREEDY)) as steps:
        ids += [next(steps) for _ in range(3)]
        handle = model.blocks[0].register_forward_hook(lambda *_: None)
        ids += [next(steps) for _ in range(watched)]
        handle.remove()
        ids += [next(steps) for _ in range(21 - watched)]
    assert ids == alone


# --- texts side by side -----------------------------------------------------------------------------------------------


def prompts_of(text: str) -> Iterator[str]:
    yield from ("", text[:3], text[5:12], text[:90])


@pytest.mark.parametrize("family", FAMILIES)
def test_generate_takes_a_list_of_prompts(family: str, tales: str):
    """Random weights, real text: a prompt gives what it gives alone, stop strings and all, or beside other prompts."""
    tokenizer = train_tokenizer(tales, "char")
    torch.manual_seed(0)
    shape = {"context_length": 16, "n_layer": 2, "n_head": 2, "n_embd": 16}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, family=family, **shape))
    model.tokenizer = tokenizer
    prompts = list(prompts_of(tales))
    how: dict[str, Any] = {"tokens": 30, "samples": 2, "temperature": 0}
    stop = [generate(model, prompts[1], **how)[0].text[1]]
    together = generate(model, prompts, stop=stop, **how)
    assert together == [generate(model, prompt, stop=stop, **how) for prompt in prompts]
    assert together[1][0].finish == "stop"
    drawn = generate(model, prompts, seed=1, tokens=30)  # with random numbers of its own for each prompt
    assert generate(model, ["", *prompts[1:]], seed=1, tokens=30)[1:] == drawn[1:]
    assert generate(model, []) == []
    assert generate(model, tuple(prompts[:1]), seed=1, tokens=30) == [generate(model, prompts[0], seed=1, tokens=30)]


def test_rounded_matrices_build_the_native_step(monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []
    monkeypatch.setattr("jumok.inference.engine.library", asked.append)
    with pytest.raises(ConfigError, match="needs a C"):
        Engine(tiny(), 1, quantize="int8")
    assert asked == [True]
