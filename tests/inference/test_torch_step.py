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
from jumok.inference.slots import Chunk, window_start
from jumok.inference.torch_slots import TorchSlots
from jumok.inference.torch_step import TorchStep, can_replace
from jumok.models.checks import not_finite
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.nn.attention import ScaledDotProductAttention
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
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
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


def some_ids(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


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


@torch.no_grad()
def next_logits(model: GPT, ids: Tensor) -> Tensor:
    """Logits after (B, T) ids, by the model itself without a cache: (B, V)."""
    return model(ids[:, window_start(ids.shape[1], model.config.context_length) :])[:, -1]


class Grown:
    """Texts that grow side by side, and what of their windows the slots hold."""

    def __init__(self, model: GPT, texts: Sequence[Sequence[int]]) -> None:
        self.ids, self._held = [list(text) for text in texts], [(0, 0)] * len(texts)
        self._context, self._slots = model.config.context_length, TorchSlots(model, len(texts))

    def next_logits(self) -> Tensor:
        chunks = []
        for slot, ids in enumerate(self.ids):
            start = window_start(len(ids), self._context)
            before = len(ids) - 1 - start
            first = before if self._held[slot] == (start, before) else 0
            chunks.append(Chunk(slot, first, ids[start + first :]))
            self._held[slot] = (start, before + 1)
        return self._slots.read(chunks)

    def append(self, ids: Sequence[int]) -> None:
        for text, new in zip(self.ids, ids, strict=True):
            text.append(new)


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


@pytest.mark.parametrize(
    ("family", "context", "prompt_length"),
    [("modern", 1, 12), ("classic", 2, 13), ("modern", 5, 1), ("classic", 12, 100)],
)
@torch.no_grad()
def test_cached_and_uncached_logits_are_equal_past_the_context(family: str, context: int, prompt_length: int):
    """At every step, over several moves of the window, and for prompts that are much longer than the context."""
    model = tiny(dtype=torch.float64, family=family, context_length=context)
    ids = some_ids(2, prompt_length + 26)
    texts = Grown(model, ids[:, :prompt_length].tolist())
    for length in range(prompt_length, prompt_length + 26):
        wanted = next_logits(model, ids[:, :length])
        exact = 1e-10 if family == "classic" else 1e-6 * float(wanted.abs().max())
        torch.testing.assert_close(texts.next_logits(), wanted, rtol=0, atol=exact)
        texts.append(ids[:, length].tolist())


def test_the_model_reads_a_window_once_and_the_decoder_the_rest(fed: list[tuple[int, ...]], taken: list[int]):
    """The cache is worth nothing if each step past the context fills it anew."""
    written(tiny(context_length=16), [range(6)], 100)
    assert fed[0] == (1, 5)  # all but the newest
    assert set(fed[1:]) == {(1, 8)}  # after a move, the half of the context that is left
    assert len(fed) - 1 == math.ceil((6 + 99 - 16) / 8)
    assert taken == [1] * 100


# --- the decoder and the model ----------------------------------------------------------------------------------------


@each_shape
@torch.no_grad()
def test_logits_are_those_of_the_model(shape: dict[str, Any]):
    """At every step of two texts over several windows."""
    model = tiny(context_length=24, **shape)
    ids = some_ids(2, 60)
    texts = Grown(model, ids[:, :3].tolist())
    assert can_replace(model)
    for length in range(3, 60):
        found, wanted = texts.next_logits(), next_logits(model, ids[:, :length])
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
        texts.append(ids[:, length].tolist())


def test_positions_beyond_the_table_are_computed(monkeypatch: pytest.MonkeyPatch):
    """A model keeps the angles of the first positions only."""
    monkeypatch.setattr("jumok.config._gpt.LONGEST_TABLE", 7)
    assert GPTConfig(vocab_size=9).table_length == 7
    test_logits_are_those_of_the_model(SHAPES["neox"])


@torch.no_grad()
def test_classic_logits_are_exact_in_float64():
    """What differs in float32 is rounding if it is gone here."""
    model = tiny(dtype=torch.float64, family="classic")
    ids = some_ids(3, 9)
    model.blocks[0].attention.k_proj.bias = None  # beside others that have one
    found = Grown(model, ids.tolist()).next_logits()
    torch.testing.assert_close(found, model(ids)[:, -1], rtol=0, atol=1e-12)


def test_drawn_ids_are_those_without_a_cache(taken: list[int]):
    model = tiny()
    sampling = Sampling(temperature=1, top_k=20, top_p=0.9, repetition_penalty=1.2)
    for prompt in ([5], some_ids(30).tolist()):
        fast = written(model, [prompt], 40, sampling, samples=3)
        assert taken == [3] * 40
        taken.clear()
        assert fast == written(model, [prompt], 40, sampling, samples=3, cache=False)
        assert taken == []


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


class Sharper(GPT):
    """Somebody's own model."""

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        return 2 * super().hidden(ids, cache)


OTHERS: dict[str, Callable[[], GPT]] = {
    "exchanged": lambda: exchanged(tiny()),
    "hooked": lambda: hooked(tiny()),
    "subclass": lambda: Sharper(GPTConfig(vocab_size=V, context_length=12, n_layer=1, n_head=1, n_embd=8)),
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


def test_hooks_for_all_modules_count_too():
    model = tiny()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not can_replace(model)
    finally:
        handle.remove()
    assert can_replace(model)


def test_who_begins_to_watch_in_the_middle_sees_everything(taken: list[int]):
    """A recording that is opened while a text is written must not be empty, and changes nothing."""
    model = tiny()
    alone = written(model, [[1, 2, 3]], 9)[0]
    taken.clear()
    seen: list[tuple[int, int]] = []

    def note(seam: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.append((given[0].shape[-2], given[1].shape[-2]))

    ids = []
    with closing(generate_ids(model, [1, 2, 3], GREEDY)) as steps:
        ids += [next(steps) for _ in range(3)]
        seams = [part for part in model.modules() if isinstance(part, ScaledDotProductAttention)]
        handles = [seam.register_forward_pre_hook(note) for seam in seams]
        ids += [next(steps) for _ in range(2)]
        for handle in handles:
            handle.remove()
        ids += [next(steps) for _ in range(4)]
    assert ids == alone
    assert seen == [(6, 6), (6, 6), (7, 7), (7, 7)]  # two layers, whole windows
    assert len(taken) == 3 + 4


@pytest.mark.parametrize("watched", [1, 6])
def test_what_grew_while_somebody_watched_is_read_again(watched: int):
    """The window moved by as many ids as were watched: the count of positions agreed, and the old keys were used."""
    model = tiny()
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

SIDE_BY_SIDE = {name: SHAPES[name] for name in ("shared-keys", "classic", "qwen2-one-sliding", "neox")}
LENGTHS = ([1, 7], [3, 30, 5, 12, 4])


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("shape", SIDE_BY_SIDE.values(), ids=SIDE_BY_SIDE.keys())
@torch.no_grad()
def test_logits_side_by_side_are_those_of_each_alone(shape: dict[str, Any], lengths: list[int]):
    """Each text has its own window, which moves when it is its turn."""
    model = tiny(**shape)
    ids = [some_ids(length + 25, seed=row) for row, length in enumerate(lengths)]
    texts = Grown(model, [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)])
    for step in range(25):
        found = texts.next_logits()
        for row, length in enumerate(lengths):
            wanted = next_logits(model, ids[row][None, : length + step])[0]
            torch.testing.assert_close(found[row], wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
        texts.append([int(row[length + step]) for row, length in zip(ids, lengths, strict=True)])


def test_a_watched_model_writes_texts_of_different_lengths_too(taken: list[int]):
    model = hooked(tiny())
    prompts = [some_ids(length, seed=length).tolist() for length in (5, 1, 30, 5)]
    assert written(model, prompts, 20) == [row for prompt in prompts for row in written(model, [prompt], 20)]
    assert taken == []


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


@pytest.mark.parametrize("quantize", ["int8", "bfloat16"])
def test_rounded_matrices_need_the_native_step(quantize: str):
    with pytest.raises(ConfigError, match=f"quantize='{quantize}' is computed by the C"):
        written(tiny(), [[1]], 1, quantize=quantize)


def test_rounded_matrices_build_the_native_step(monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []
    monkeypatch.setattr("jumok.inference.engine.library", asked.append)
    with pytest.raises(ConfigError, match="needs a C"):
        Engine(tiny(), 1, quantize="int8")
    assert asked == [True]
