"""Texts that enter and leave between steps: each is as alone, as without a cache, whatever is beside it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from jumok.config import EncoderDecoderConfig, GPTConfig, GPTVariantConfig, RopeScaling, RungConfig
from jumok.errors import ConfigError, JumokError
from jumok.inference.engine import Engine
from jumok.inference.generate import generate, write_all
from jumok.inference.requests import Request
from jumok.inference.sampling import Sampling
from jumok.inference.slots import Chunk, Slots, window_start
from jumok.inference.torch_slots import AnswerSlots, TorchSlots, WindowSlots
from jumok.models.checks import not_finite
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.models.rung import Rung
from jumok.nn.cache import KVCache, RaggedCache
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

V, CONTEXT = 41, 24
STEPS = 50
GREEDY = Sampling(temperature=0)
SHAPES: dict[str, dict[str, Any]] = {
    "modern": {},
    "shared-keys": {"n_kv_head": 2},
    "classic": {"family": "classic"},
    "relu-narrow-heads": {"family": "classic", "activation": "relu", "head_dim": 4, "tie_embeddings": False},
    "wide-heads": {"head_dim": 12, "n_kv_head": 1, "tie_embeddings": False},
    "with-classes": {"labels": ("a", "b"), "pooling": "mean"},
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


def config_of(**shape: Any) -> GPTConfig:
    return GPTVariantConfig(**shape) if "architecture" in shape else GPTConfig(**shape)


def tiny(dtype: torch.dtype = torch.float64, **changes: Any) -> GPT:
    """A small model with random weights, norms and biases included."""
    torch.manual_seed(0)
    shape = {"context_length": CONTEXT, "n_layer": 2, "n_head": 4, "n_embd": 32, "dropout": 0.5, **changes}
    model = GPT(config_of(vocab_size=V, **shape)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    return model.to(dtype)


def answering(**changes: Any) -> EncoderDecoder:
    torch.manual_seed(0)
    shape = {"context_length": CONTEXT, "n_layer": 2, "n_decoder_layer": 3, "n_head": 4, "n_decoder_head": 2}
    model = EncoderDecoder(EncoderDecoderConfig(vocab_size=V, n_embd=32, **{**shape, **changes})).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


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


def close(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


@torch.inference_mode()
def alone(model: GPT, ids: Sequence[int]) -> Tensor:
    """Logits after a text, without a cache: (V,)."""
    return model(torch.tensor([list(ids)]))[0, -1]


def come_and_go(slots: Slots, number: int, check: Callable[[int, list[int], Tensor], None], seed: int = 0) -> int:
    """Steps in which random texts begin, grow, move their windows, begin with parts of others, pause and leave.

    A text without finite logits leaves at once.

    Returns:
        how many logits were checked.
    """
    chance = random.Random(seed)
    some = lambda n: [chance.randrange(V) for _ in range(n)]  # noqa: E731
    texts: dict[int, list[int]] = {}
    checked = 0
    for _ in range(STEPS):
        chunks = []
        for slot in range(number):
            text = texts.get(slot)
            what = chance.random()
            if text is None:
                others = [other for other in texts if other != slot and not any(c.slot == other for c in chunks)]
                if what < 0.1 and others:
                    other = chance.choice(others)
                    length = chance.randrange(len(texts[other]) + 1)
                    slots.copy(other, slot, length)
                    texts[slot] = texts[other][:length]
                elif what < 0.3:
                    chunks.append(Chunk(slot, 0, some(chance.choice([1, 1, 2, 5, 20]))))
            elif what < 0.08:
                slots.forget(slot)
                del texts[slot]
            elif what < 0.18 or len(text) == CONTEXT:
                start = chance.randrange(len(text))
                chunks.append(Chunk(slot, start, some(chance.randrange(1, CONTEXT - start + 1))))
            elif what < 0.28:
                chunks.append(Chunk(slot, len(text), some(chance.randrange(1, CONTEXT - len(text) + 1))))
            elif what < 0.95:
                chunks.append(Chunk(slot, len(text), some(1)))
        chance.shuffle(chunks)
        if not chunks:
            continue
        logits = torch.from_numpy(slots.read(chunks))
        for chunk, found in zip(chunks, logits, strict=True):
            texts[chunk.slot] = [*texts.get(chunk.slot, [])[: chunk.start], *chunk.ids]
            check(chunk.slot, texts[chunk.slot], found)
            checked += 1
            if not bool(found.isfinite().all()):
                slots.forget(chunk.slot)
                del texts[chunk.slot]
    return checked


# --- GPT --------------------------------------------------------------------------------------------------------------


@each_shape
def test_texts_that_come_and_go_are_as_alone(shape: dict[str, Any]):
    """RMSNorm of the modern family has float32 statistics, in which a rounding shows."""
    model = tiny(**shape)
    exact = 1e-10 if model.config.family == "classic" else 1e-5
    number = come_and_go(TorchSlots(model, 5), 5, lambda _, text, found: close(found, alone(model, text), exact))
    assert number > 60


def test_positions_beyond_the_table_are_computed(monkeypatch: pytest.MonkeyPatch):
    """A model keeps the angles of the first positions only."""
    monkeypatch.setattr("jumok.config._gpt.LONGEST_TABLE", 7)
    assert tiny(**SHAPES["neox"]).config.table_length == 7
    test_texts_that_come_and_go_are_as_alone(SHAPES["neox"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_texts_are_as_alone_in_other_types(dtype: torch.dtype):
    model = tiny(dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 0.1

    def check(_: int, text: list[int], found: Tensor) -> None:
        assert found.dtype == torch.float32
        close(found, alone(model, text).float(), tolerance)

    assert come_and_go(TorchSlots(model, 4), 4, check) > 50


def test_without_a_cache_texts_are_as_alone():
    model = tiny(family="classic")
    assert come_and_go(WindowSlots(model, 4), 4, lambda _, text, found: close(found, alone(model, text), 1e-10)) > 50


class Doubling(nn.Linear):
    """Somebody's own layer in the place of ours."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Forgetful(GPT):
    """Somebody's own model, which knows nothing of caches."""

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        assert cache is None
        return super().hidden(ids)


def exchanged(model: GPT) -> GPT:
    model.blocks[0].mlp.down_proj = Doubling(model.config.mlp_width, 32, bias=False).double()
    return model


def hooked(model: GPT) -> GPT:
    model.blocks[0].mlp.register_forward_hook(lambda part, given, out: 2 * out)
    return model


def forgetful(model: GPT) -> GPT:
    model.__class__ = Forgetful
    return model


OTHERS: dict[str, Callable[[], GPT]] = {
    "exchanged": lambda: exchanged(tiny()),
    "hooked": lambda: hooked(tiny()),
    "forgetful": lambda: forgetful(tiny()),
    "rung": lambda: Rung(RungConfig(vocab_size=V, context_length=12, n_layer=1, n_head=1, n_embd=8, residual=False)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_model_writes_with_and_without_a_cache(make: Callable[[], GPT]):
    model = make()
    assert written(model, [[1, 2, 3], [4]], 30) == written(model, [[1, 2, 3], [4]], 30, cache=False)


def test_under_autocast_texts_are_as_without():
    """Trap: autocast casts each matrix anew for each token, which made samples in a bfloat16 run ten times slower."""
    model = tiny(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.from_numpy(TorchSlots(model, 1).read([Chunk(0, 0, [1, 2, 3])]))
    close(found[0], alone(model, [1, 2, 3]), 1e-5)


def test_a_window_is_read_once_and_then_id_by_id(monkeypatch: pytest.MonkeyPatch):
    """The cache is worth nothing if each step past the context fills it anew."""
    shapes, hidden = [], GPT.hidden

    def watching(self: GPT, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        shapes.append(tuple(ids.shape))
        return hidden(self, ids, cache)

    model = tiny(context_length=16)
    monkeypatch.setattr(GPT, "hidden", watching)
    written(model, [range(6)], 100)
    read = [shape for shape in shapes if shape != (1, 1)]
    assert read[0] == (1, 6)
    assert set(read[1:]) == {(1, 9)}  # after a move, the half of the context that is left, and the newest id
    assert len(read) - 1 == math.ceil((6 + 99 - 16) / 8)


def test_window_start():
    assert [window_start(n, 4) for n in range(1, 12)] == [0, 0, 0, 0, 2, 2, 4, 4, 6, 6, 8]
    assert [window_start(n, 5) for n in range(1, 12)] == [0, 0, 0, 0, 0, 2, 2, 4, 4, 6, 6]
    assert [window_start(n, 1) for n in range(1, 5)] == [0, 1, 2, 3]


@pytest.mark.parametrize(("part", "prompt"), [("q_proj", 1), ("v_proj", 20)])
def test_one_damaged_number_is_still_found(part: str, prompt: int):
    """Trap: for few keys the fused kernel turns the NaN of a query into zeros, and the text looks fine."""
    model = tiny(torch.float32, context_length=40)
    with torch.no_grad():
        getattr(model.blocks[1].attention, part).weight[0, 0] = math.nan
    with pytest.raises(JumokError, match="not finite"):
        written(model, [range(prompt)], 2)


def test_a_text_without_finite_logits_fails_alone():
    """The embedding of one id is damaged; what it leaves in memory must not reach a text that takes its place."""
    model = tiny(tie_embeddings=False)
    with torch.no_grad():
        model.token_embedding.weight[7] = math.nan
    slots = TorchSlots(model, 3)

    def check(_: int, text: list[int], found: Tensor) -> None:
        assert bool(found.isnan().all()) is (7 in text)
        if 7 not in text:
            close(found, alone(model, text), 1e-5)

    for seed in range(2):
        assert come_and_go(slots, 3, check, seed) > 25
        for slot in range(3):
            slots.forget(slot)


# --- many prompts ---


def prompts_of(text: str) -> Iterator[str]:
    yield from ("", text[:3], text[5:12], text[:90])


@pytest.mark.parametrize("family", ["modern", "classic"])
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
    with pytest.raises(ConfigError, match="must be there"):
        Engine(tiny(torch.float32), 1, quantize="int8")
    assert asked == [True]


# --- GPU ---


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@each_shape
def test_texts_on_a_gpu_are_as_alone(shape: dict[str, Any], dtype: torch.dtype):
    model = tiny(dtype, **shape)
    slots = TorchSlots(model.cuda(), 5)
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-10, torch.bfloat16: 0.1}[dtype]

    @torch.inference_mode()
    def check(_: int, text: list[int], found: Tensor) -> None:
        wanted = model(torch.tensor([text], device="cuda"))[0, -1].cpu()
        close(found, wanted.to(found.dtype), tolerance)

    assert come_and_go(slots, 5, check) > 60


# --- encoder–decoder --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["classic", "original"])
def test_answers_that_come_and_go_are_as_alone(family: str):
    model, chance = answering(family=family), random.Random(1)
    slots = Sourced(AnswerSlots(model, 5), chance)

    @torch.inference_mode()
    def check(slot: int, text: list[int], found: Tensor) -> None:
        wanted = model(torch.tensor([slots.sources[slot]]), torch.tensor([text]))[0, -1]
        close(found, wanted, 1e-10)

    assert come_and_go(slots, 5, check) > 60
    assert len({len(source) for source in slots.sources.values()}) > 2


class Sourced:
    """AnswerSlots that give each new text a source."""

    caches = True

    def __init__(self, slots: AnswerSlots, chance: random.Random, ids: Sequence[int] = range(V)) -> None:
        self.longest, self.sources = slots.longest, dict[int, list[int]]()
        self._slots, self._chance, self._ids = slots, chance, ids

    def read(self, chunks: Sequence[Chunk]) -> NDArray[Any]:
        for chunk in chunks:
            if chunk.slot not in self.sources:
                length = self._chance.randrange(1, CONTEXT + 1)
                self.sources[chunk.slot] = [self._chance.choice(self._ids) for _ in range(length)]
                self._slots.begin(chunk.slot, self.sources[chunk.slot])
        return self._slots.read(chunks)

    def copy(self, source: int, target: int, length: int) -> None:
        self._slots.copy(source, target, length)
        self.sources[target] = self.sources[source]

    def forget(self, slot: int) -> None:
        self._slots.forget(slot)
        del self.sources[slot]


def test_an_answer_without_finite_logits_fails_alone():
    model, chance = answering(), random.Random(1)
    with torch.no_grad():
        model.source_placement.position_embedding.weight[9] = math.nan
    slots = Sourced(AnswerSlots(model, 3), chance)

    @torch.inference_mode()
    def check(slot: int, text: list[int], found: Tensor) -> None:
        source = slots.sources[slot]
        assert bool(found.isnan().all()) is (len(source) > 9)
        if len(source) <= 9:
            close(found, model(torch.tensor([source]), torch.tensor([text]))[0, -1], 1e-10)

    assert come_and_go(slots, 3, check) > 50


def test_answers_of_different_lengths_under_autocast():
    """Keys and values are bfloat16 there, and the cache is float32: the validation of a run in bfloat16 ended with an
    error as soon as one answer had ended before another."""
    model = answering(family="original").float()
    slots, wanted = AnswerSlots(model, 2), model(torch.tensor([[1, 2], [5, 6]]), torch.tensor([[1, 7], [1, 8]]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        slots.begin(0, [1, 2])
        slots.read([Chunk(0, 0, [1])])
        slots.begin(1, [5, 6])
        slots.read([Chunk(1, 0, [1, 3, 4])])
        found = torch.from_numpy(slots.read([Chunk(0, 1, [7]), Chunk(1, 3, [8])]))
    assert bool(found.isfinite().all())
    close(found[0].float(), wanted[0, -1].detach(), 0.1)


# --- the cache --------------------------------------------------------------------------------------------------------


def empty(rows: int = 0, capacity: int = 600) -> KVCache:
    return KVCache(2, capacity, torch.zeros(rows, 3, 0, 4))


def test_room_behind_the_end_of_a_shorter_row_holds_zeros():
    """Trap: a mask gives it the weight zero, and zero times the NaN that fresh or used memory may hold is a NaN."""
    cache = RaggedCache(empty(), 3)
    nan = torch.full((3, 3, 1, 4), math.nan)
    for last in (5, 300, 599):  # it grows twice
        for row in (1, 2):
            view = cache.view(row, [last], 1)
            for layer in view.layers:
                layer.append(nan[:1], nan[:1])
        cache.swap(0, 2)
        cache.copy(0, 2, 3)
        for row in range(3):
            cache.cut(row, 0)
        view = cache.view(0, [0, last, 1], 1)
        held = [x for layer in view.layers for x in layer.append(nan, nan)]
        assert all(float(x[0, :, 1:].abs().sum()) == 0 == float(x[2, :, 2:].abs().sum()) for x in held)
        for row in range(3):
            cache.cut(row, 0)
