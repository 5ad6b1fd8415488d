"""The step in C++ against the model: its logits, their independence of what is computed beside them, and its build."""

from __future__ import annotations

import ctypes
import errno
import math
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_torch_slots
import torch
from torch import Tensor, nn

from conftest import Jumok
from jumok.config import RungConfig
from jumok.errors import ConfigError, JumokError
from jumok.inference.engine import Engine
from jumok.inference.generate import score_ids, write_all
from jumok.inference.native import build, levels, memory
from jumok.inference.native.build import library, library_path, why_not
from jumok.inference.native.from_torch import can_run, pack
from jumok.inference.native.levels import FOLDER, LEVELS, PROCESSOR, library_name
from jumok.inference.native.parameters import (
    KINDS,
    PANEL,
    Kind,
    NativeModel,
    bfloat16,
    parameter_shapes,
    rotary_tables,
    rounded,
)
from jumok.inference.native.slots import NativeSlots
from jumok.inference.requests import Request
from jumok.inference.sampling import Sampling, softmax
from jumok.inference.slots import Chunk
from jumok.models.gpt import GPT
from jumok.nn.blocks import MLP
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.compile

V = 73  # no whole number of panels
CONTEXT = 90  # no whole number of blocks
SHAPES = {**test_torch_slots.SHAPES, "wider-heads": {"head_dim": 34, "n_embd": 52, "mlp_width": 71}}
for tokens in (15, 16, 17):  # about a block
    SHAPES[f"sliding-{tokens}"] = {"architecture": "Mistral", "sliding_window": tokens}
SHAPES["sliding-blocks"] = {**SHAPES["qwen2-one-sliding"], "sliding_window": 37, "n_kv_head": 2}
POINTERS = {
    "float32": ctypes.POINTER(ctypes.c_float),
    "bfloat16": ctypes.POINTER(ctypes.c_uint16),
    "int8": ctypes.POINTER(ctypes.c_int8),
}
SPLIT = ("shared-keys", "wider-heads", "sliding-blocks")
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@pytest.fixture(scope="module", autouse=True)
def built(native_cache: str) -> Iterator[Path]:
    """The folder of the library, which is the same for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", native_cache)
        patch.delenv("JUMOK_NATIVE", raising=False)
        yield Path(native_cache) / "native"


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def tiny(seed: int = 0, **changes: Any) -> GPT:
    """A small model with random weights, norms and biases included."""
    torch.manual_seed(seed)
    shape = {"vocab_size": V, "context_length": CONTEXT, "n_layer": 2, "n_head": 4, "n_embd": 32, **changes}
    model = GPT(test_torch_slots.config_of(**shape)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    return model


def some_ids(length: int, seed: int = 0) -> list[int]:
    return torch.randint(V, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def slots_for(model: GPT, number: int = 1, kind: Kind = "float32") -> NativeSlots:
    return NativeSlots(pack(model, kind), number)


def read(slots: NativeSlots, chunks: Sequence[Chunk]) -> Tensor:
    return torch.from_numpy(slots.read(chunks))


def each_position(model: GPT, ids: Sequence[int], kind: Kind = "float32", slot: int = 0) -> Tensor:
    """The logits after each id, read one at a time: (T, V)."""
    slots = slots_for(model, slot + 1, kind)
    return torch.cat([read(slots, [Chunk(slot, at, [token])]) for at, token in enumerate(ids)])


@torch.no_grad()
def by_model(model: GPT, ids: Sequence[int]) -> Tensor:
    return model(torch.tensor([ids]))[0]


def assert_close(found: Tensor, wanted: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(found, wanted, rtol=0, atol=tolerance * float(wanted.abs().max()))


# --- the numbers ------------------------------------------------------------------------------------------------------


@each_shape
def test_logits_are_those_of_the_model(shape: dict[str, Any]):
    """At each position of a full window, id by id and in one chunk."""
    model, ids = tiny(**shape), some_ids(CONTEXT)
    wanted = by_model(model, ids)
    assert can_run(model)
    assert_close(each_position(model, ids), wanted)
    assert_close(read(slots_for(model), [Chunk(0, 0, ids)]), wanted[-1:])


def test_positions_beyond_the_table_of_the_model(monkeypatch: pytest.MonkeyPatch):
    """A model keeps the angles of the first positions only; the step has all."""
    monkeypatch.setattr("jumok.config._gpt.LONGEST_TABLE", 20)
    assert tiny(**SHAPES["qwen2"]).config.table_length == 20
    test_logits_are_those_of_the_model(SHAPES["qwen2"])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [SHAPES[name] for name in SPLIT], ids=SPLIT)
def test_a_text_is_the_same_alone_and_among_others(shape: dict[str, Any], kind: Kind, threads: Callable[[int], None]):
    """Bit for bit, for random numbers of rows, splits into chunks, and threads."""
    model, chance = tiny(**shape), random.Random(0)
    texts = [some_ids(chance.randint(30, CONTEXT), seed) for seed in range(21)]
    alone = [each_position(model, text, kind) for text in texts]
    slots, done = slots_for(model, len(texts), kind), [0] * len(texts)
    while left := [number for number, text in enumerate(texts) if done[number] < len(text)]:
        threads(chance.choice([1, 2, 5]))
        chosen = chance.sample(left, chance.randint(1, len(left)))
        sizes = [chance.choice([1, 1, 2, 7, 40]) for _ in chosen]
        chunks = [Chunk(n, done[n], texts[n][done[n] : done[n] + size]) for n, size in zip(chosen, sizes, strict=True)]
        for chunk, row in zip(chunks, read(slots, chunks), strict=True):
            done[chunk.slot] += len(chunk.ids)
            assert torch.equal(row, alone[chunk.slot][done[chunk.slot] - 1])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPLIT)
def test_memory_holds_anything_at_first(name: str, kind: Kind, monkeypatch: pytest.MonkeyPatch):
    model, ids = tiny(**SHAPES[name]), some_ids(CONTEXT)
    wanted = each_position(model, ids, kind)
    given = memory.empty

    def full_of_nan(*how: Any) -> Any:
        found = given(*how)
        if found.size:
            found.reshape(-1).view(np.uint8).fill(255)
        return found

    monkeypatch.setattr(memory, "empty", full_of_nan)
    assert torch.equal(each_position(model, ids, kind), wanted)
    slots = slots_for(model, 2, kind)
    slots.read([Chunk(0, 0, ids[:50])])
    slots.copy(0, 1, 41)
    assert torch.equal(read(slots, [Chunk(1, 41, ids[41:])])[0], wanted[-1])


@pytest.mark.parametrize(("kind", "bound"), [("bfloat16", 0.02), ("int8", 0.03)])
@pytest.mark.parametrize("name", [*SPLIT, "neox", "classic"])
def test_rounded_matrices_give_close_logits(name: str, kind: Kind, bound: float):
    """Two digits are left; a wrong scale or row would leave none. Rounding is all that differs."""
    shape = SHAPES[name]
    if "architecture" in shape and not shape.get("qk_norm"):
        bound *= 2  # without norms over q and k, scores of random weights are large, and roundings with them
    model, ids = tiny(**{"n_embd": 64, "head_dim": 16, **shape}), some_ids(10)
    found, wanted = each_position(model, ids, kind), by_model(model, ids)
    error = float((found - wanted).norm() / wanted.norm())
    assert 1e-4 < error < bound


@pytest.mark.parametrize("shape", test_torch_slots.VARIANTS.values(), ids=test_torch_slots.VARIANTS.keys())
def test_an_engine_writes_what_the_model_does(shape: dict[str, Any]):
    """Texts of different lengths at once, whose windows move several times."""
    model = tiny(**{**shape, "context_length": 12})
    assert isinstance(Engine(model, 1)._slots, NativeSlots)
    prompts = [some_ids(length, length) for length in (1, 5, 12, 30)]
    assert test_torch_slots.written(model, prompts, 20) == test_torch_slots.written(model, prompts, 20, cache=False)


def test_int8_takes_rows_of_zeros_and_of_very_different_sizes():
    model = tiny(tie_embeddings=False)
    with torch.no_grad():
        model.head.weight[0] = 0
        model.head.weight[1] *= 1e6
        model.head.weight[2] *= 1e-6
    found, wanted = (each_position(model, [1], kind)[0] for kind in ("int8", "float32"))
    assert found[0] == 0
    torch.testing.assert_close(found[1:3] / wanted[1:3], torch.ones(2), rtol=0, atol=0.5)


def test_large_numbers_stay_finite():
    """Scores, gates and logits far outside the range of exp."""
    for shape in (SHAPES["modern"], SHAPES["classic"]):
        model = tiny(**shape)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(30)
        ids = some_ids(40)
        wanted = by_model(model, ids)
        assert wanted.isfinite().all()
        assert_close(each_position(model, ids), wanted, 1e-4)


WITHOUT_TORCH = """
import itertools, sys
import numpy as np
from jumok.config import GenerationRules, GPTConfig
from jumok.inference.engine import Engine
from jumok.inference.generate import generate, generate_ids, score_ids, stream
from jumok.inference.native.parameters import NativeModel, parameter_shapes
from jumok.inference.requests import text_request
from jumok.inference.sampling import Sampling
from jumok.tokenizers import train_tokenizer

tokenizer = train_tokenizer("그날 밤 달이 밝았다. 나는 집에 갔다. ", "char", min_count=1)
rules = GenerationRules(suppress_tokens=(1,), bad_words_ids=((2,), (3, 4)), min_new_tokens=3)
for changes in ({}, {"generation": rules, "eos_ids": (7,)}):
    config = GPTConfig(vocab_size=tokenizer.vocab_size, context_length=16, n_layer=2, n_head=2, n_embd=32, **changes)
    draw = np.random.default_rng(0)
    tensors = {name: draw.normal(size=shape) / 5 for name, shape in parameter_shapes(config).items()}
    for kind in ("float32", "bfloat16", "int8"):
        model = NativeModel(config, tensors, tokenizer, kind)
        for settings in (
            {"temperature": 0}, {}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.3},
            {"presence_penalty": 1.0, "frequency_penalty": 0.5},
            {"top_k": 9, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1},
        ):
            how = {"tokens": 20, "seed": 1, "stop": ["없음"], **settings}
            one, other = generate(model, ["그날", "나는 집에 "], samples=2, **how)
            assert "".join(stream(model, "그날", **how)) == one[0].text
            assert all(len(text.ids) == 20 or "eos_ids" in changes for text in (*one, *other))
        ids = [5, *itertools.islice(generate_ids(model, [5], Sampling(temperature=0)), 30)]
        scores = score_ids(model, ids, 3)
        assert changes or [one.top[0][0] for one in scores[1:]] == ids[1:]
        engine = Engine(model, 2)
        text = engine.admit(text_request(model, "나는", Sampling(), tokens=20, top=2))
        while text.finish is None:
            engine.step()
assert "torch" not in sys.modules
"""


def test_texts_are_written_without_pytorch(built: Path):
    """With every setting; PyTorch is not imported, which takes longer than everything else."""
    environment = os.environ | {"JUMOK_CACHE": str(built.parent)}
    command = [sys.executable, "-W", "error", "-c", WITHOUT_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_native_model_writes_as_the_model_it_was_made_of(kind: Kind):
    """Past the end of the context."""
    model = tiny(context_length=20)
    native, quantize = pack(model, kind), None if kind == "float32" else kind
    requests = [Request(prompt=some_ids(9, seed), sampling=Sampling(), tokens=30, seed=seed) for seed in range(3)]
    found, wanted = (
        [text.drawn for text in write_all(Engine(one, 3, quantize=quantize), requests)] for one in (native, model)
    )
    assert found == wanted
    with pytest.raises(ConfigError, match="already"):
        Engine(native, quantize="int8" if kind == "bfloat16" else "bfloat16")


def test_a_native_model_scores_as_the_model_it_was_made_of(monkeypatch: pytest.MonkeyPatch):
    """Over several windows, of several chunks each."""
    monkeypatch.setattr(NativeSlots, "longest", 7)
    tokenizer = train_tokenizer("그날 밤 달이 밝았다.", "char", min_count=1)
    model = tiny(context_length=20, vocab_size=tokenizer.vocab_size)
    model.tokenizer = tokenizer
    ids = [token % model.tokenizer.vocab_size for token in some_ids(50)]
    for one, other in zip(score_ids(pack(model), ids, top=3), score_ids(model, ids, top=3), strict=True):
        assert one.id == other.id
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
        assert [token for token, _ in one.top] == [token for token, _ in other.top]


def test_a_native_model_needs_the_step(monkeypatch: pytest.MonkeyPatch):
    native = pack(tiny())
    monkeypatch.setenv("JUMOK_NATIVE", "0")
    with pytest.raises(ConfigError, match="JUMOK_NATIVE=0 is set"):
        Engine(native)


@pytest.mark.parametrize("ids", [1, 5, 16, 73, 255, 256, 257, 1000])
@pytest.mark.parametrize("temperature", [1e-30, 0.5, 1.0, 1e30])
def test_an_id_is_drawn_where_the_sum_of_the_probabilities_passes_the_number(ids: int, temperature: float):
    uniform = np.concatenate((np.linspace(0, 1, 100, endpoint=False), [np.nextafter(1.0, 0.0)]))
    logits = np.random.default_rng(0).normal(size=(101, ids + 3)).astype(np.float32)[:, :ids]  # rows apart in memory
    found = slots_for(tiny()).draw(logits, [temperature] * 101, uniform.tolist())
    exact = logits.astype(np.float64)
    passed = softmax((exact - exact.max(axis=-1, keepdims=True)) / temperature).cumsum(axis=-1)
    for token, sums, number in zip(found, passed, 1 - uniform, strict=True):
        assert 0 <= token < ids
        assert (sums[token - 1] if token else 0) - 1e-5 <= number <= sums[token] + 1e-5


def test_the_first_of_the_largest_logits_is_taken_and_none_where_one_is_not_finite():
    logits = np.zeros((7, 70), np.float32)
    logits[0, [5, 40, 69]] = 1
    logits[1, 69] = 1
    logits[2] = np.finfo(np.float32).min
    for row, place, value in ((3, 0, np.nan), (4, 31, np.inf), (5, 69, -np.inf), (6, 68, -np.nan)):
        logits[row, place] = value
    slots = slots_for(tiny())
    assert slots.draw(logits, [0.0] * 7, [0.5] * 7) == [5, 69, 0, -1, -1, -1, -1]
    assert slots.draw(logits, [1.0] * 7, [0.5] * 7)[3:] == [-1] * 4


# --- texts of their own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("damaged", [0, 6])
def test_a_nan_ends_its_own_text_alone(damaged: int, kind: Kind):
    model, nan = tiny(tie_embeddings=False), V - 1
    with torch.no_grad():
        model.token_embedding.weight[nan] = math.nan
    texts = [[token % (V - 1) for token in some_ids(9, seed)] for seed in range(7)]
    wanted = read(slots_for(model, 7, kind), [Chunk(slot, 0, text) for slot, text in enumerate(texts)])
    texts[damaged][4] = nan
    slots = slots_for(model, 7, kind)
    found = read(slots, [Chunk(slot, 0, text) for slot, text in enumerate(texts)])
    for row in range(7):
        if row == damaged:
            assert found[row].isnan().all()
        else:
            assert torch.equal(found[row], wanted[row])
    clean = [token % (V - 1) for token in some_ids(12, 99)]  # the slot still holds NaN behind its end
    again = torch.cat([read(slots, [Chunk(damaged, at, [token])]) for at, token in enumerate(clean)])
    assert torch.equal(again, each_position(model, clean, kind))


@pytest.mark.parametrize("part", ["q_proj", "k_proj", "v_proj", "o_proj"])
@pytest.mark.parametrize("family", ["modern", "classic"])
def test_one_damaged_number_is_not_hidden(family: str, part: str):
    model = tiny(family=family)
    with torch.no_grad():
        getattr(model.blocks[0].attention, part).weight[0, 0] = math.nan
    assert each_position(model, some_ids(20)).isnan().any(dim=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_beyond_the_range_of_float32(kind: Kind):
    """NumPy warned when they were packed; PyTorch does not."""
    model = tiny()
    tensors: dict[str, Any] = {name: tensor.numpy().astype(float) for name, tensor in model.state_dict().items()}
    tensors = {name: tensor for name, tensor in tensors.items() if name in parameter_shapes(model.config)}
    tensors["blocks.0.mlp.up_proj.weight"][3] = 1e300
    slots = NativeSlots(NativeModel(model.config, tensors, kind=kind), 1)
    assert not np.isfinite(slots.read([Chunk(0, 0, [1, 2])])).any()


@pytest.mark.parametrize("length", [1, 16, 50])
def test_a_slot_can_begin_with_the_positions_of_another(length: int):
    model = tiny(n_kv_head=2)
    prompt, endings = some_ids(50), [some_ids(30, seed) for seed in (1, 2)]
    slots = slots_for(model, 3)
    read(slots, [Chunk(0, 0, prompt), Chunk(2, 0, some_ids(80, 9))])
    for target in (1, 2):  # an empty one, and one that holds something else
        slots.copy(0, target, length)
    found = read(slots, [Chunk(slot, length, endings[slot - 1]) for slot in (1, 2)])
    wanted = [read(slots_for(model), [Chunk(0, 0, prompt[:length] + ending)]) for ending in endings]
    assert torch.equal(found, torch.cat(wanted))
    rest = some_ids(10, 5)
    alone = read(slots_for(model), [Chunk(0, 0, prompt + rest)])
    assert torch.equal(read(slots, [Chunk(0, 50, rest)]), alone)  # the source is as it was


@pytest.mark.parametrize(
    "chunks",
    [
        [Chunk(0, 0, [V])],
        [Chunk(0, -1, [1])],
        [Chunk(0, 0, []), Chunk(1, 0, [1])],
        [Chunk(0, 0, [2**32 + 1])],
        [Chunk(0, 1, [1] * CONTEXT)],
        [Chunk(1, 0, [1]), Chunk(1, 1, [2])],
    ],
)
def test_what_is_out_of_range_is_refused(chunks: list[Chunk]):
    with pytest.raises(ValueError, match=r"out of range|occurs twice"):
        slots_for(tiny(), 2).read(chunks)


# --- threads ----------------------------------------------------------------------------------------------------------


def test_two_models_can_run_at_once(threads: Callable[[int], None]):
    """One of them has the pool of threads, the other one computes alone; neither waits for ever."""
    threads(3)
    models, ids = [tiny(seed) for seed in range(3)], some_ids(CONTEXT)
    wanted = [each_position(model, ids) for model in models]
    found: list[list[Tensor]] = [[] for _ in models]

    def work(number: int) -> None:
        torch.set_num_threads(3)
        found[number] = [each_position(models[number], ids) for _ in range(5)]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(200)
        assert not worker.is_alive()
    assert all(torch.equal(one, wanted[number]) for number in range(3) for one in found[number])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_computes_alone(threads: Callable[[int], None]):
    threads(2)
    model, ids = tiny(), some_ids(8)
    wanted = each_position(model, ids)  # the pool has its threads now, which a fork does not copy
    slots = slots_for(model)
    child = os.fork()
    if child == 0:
        same = torch.equal(read(slots, [Chunk(0, 0, ids)]), wanted[-1:])
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- packed parameters ------------------------------------------------------------------------------------------------


def test_parameters_are_packed_as_they_are_now():
    model = tiny()
    first = slots_for(model)
    before = each_position(model, [5])
    model.blocks[1].mlp.up_proj.weight.data[2, 3] += 1.5
    assert_close(each_position(model, [5]), by_model(model, [5]))
    assert torch.equal(read(first, [Chunk(0, 0, [5])]), before)  # what a caller has stays as it is


def test_numbers_are_rounded_as_in_pytorch():
    """bfloat16 to the nearest, ties to even, and 8 bits with a scale of bfloat16 for each row."""
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=torch.Generator().manual_seed(0)).to(torch.int32)
    ties = torch.arange(0, 2**15, dtype=torch.int32) << 16 | 0x8000
    numbers = torch.cat((bits, ties, ties - 1, ties + 1)).view(torch.float32)
    numbers = numbers[~numbers.isnan()]
    assert bfloat16(numbers.numpy()).tolist() == numbers.bfloat16().view(torch.uint16).tolist()
    assert bfloat16(np.array([np.nan, -np.nan], np.float32)).tolist() == [0x7FC0, 0x7FC0]
    rows = torch.randn(70, 33, generator=torch.Generator().manual_seed(1)) * torch.logspace(-38, 30, 70)[:, None]
    rows[3] = 0
    scale = (rows.abs().amax(dim=1).clamp(min=1e-30) / 127).bfloat16().float()
    found, found_scale = rounded(rows.numpy(), "int8")
    assert found.tolist() == (rows / scale[:, None]).round().clamp(-127, 127).int().tolist()
    assert found_scale.tolist() == scale.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_lie_in_panels(kind: Kind, monkeypatch: pytest.MonkeyPatch):
    """Q, K and V side by side; gate and values of the MLP in turn; zeros behind the last row."""
    monkeypatch.setattr("jumok.inference.native.parameters.PACKED_AT_ONCE", 1)  # so that there are several parts
    model = tiny(**SHAPES["llama-biases"])
    block = model.blocks[1]
    packed = pack(model, kind)  # what the pointers point to lives as long
    layer = packed.structure.layer[1]
    rows, biases = {}, {}
    for name, part in [*block.attention.named_children(), *block.mlp.named_children()]:
        if not isinstance(part, nn.Linear):
            continue
        rows[name], biases[name] = part.weight.detach(), part.bias.detach()
    wanted = {
        "qkv": ([torch.cat([rows[f"{x}_proj"] for x in "qkv"])], [torch.cat([biases[f"{x}_proj"] for x in "qkv"])]),
        "o": ([rows["o_proj"]], [biases["o_proj"]]),
        "up": ([rows["gate_proj"], rows["up_proj"]], [biases["gate_proj"], biases["up_proj"]]),
        "down": ([rows["down_proj"]], [biases["down_proj"]]),
    }
    for name, (parts, some) in wanted.items():
        matrix = getattr(layer, name)
        beside = 2 if kind == "int8" else 1  # inputs that lie beside each other, the last with a zero
        shape = (matrix.count, -(-matrix.inputs // beside), PANEL, beside)
        panels = np.ctypeslib.as_array(ctypes.cast(matrix.panels, POINTERS[kind]), shape)
        panels = panels.swapaxes(2, 3).reshape(matrix.count, -1, PANEL)[:, : matrix.inputs]
        scale, bias = (
            np.ctypeslib.as_array(ctypes.cast(x, POINTERS["float32"]), (matrix.count, PANEL))
            for x in (matrix.scale, matrix.bias)
        )
        for number in range(matrix.count):
            place, part = divmod(number, len(parts))
            own = slice(place * PANEL, (place + 1) * PANEL)
            numbers, scales = rounded(parts[part][own].numpy(), kind)
            count = len(numbers)
            assert np.array_equal(panels[number, :, :count].T, numbers)
            assert not panels[number, :, count:].any()
            assert (bias[number, :count] == some[part][own].numpy()).all()
            assert (scale[number, :count] == scales).all()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_angles_are_those_of_the_model(shape: dict[str, Any]):
    """PyTorch rounds some cosines and sines to the number beside the nearest one. YaRN multiplies both."""
    model = tiny(**shape)
    scaling = model.config.frequency_scaling
    most = 2 if scaling is not None and scaling.kind == "yarn" else 1
    for found, wanted in zip(rotary_tables(model.config), (model.cos, model.sin), strict=True):
        if wanted is None:
            assert found is None
        else:
            assert found.dtype == np.float32
            np.testing.assert_array_max_ulp(found, wanted.numpy(), most)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_shapes_are_those_of_the_parameters(shape: dict[str, Any]):
    for labels in ((), ("a", "b", "c")):
        model = tiny(**{**shape, "labels": labels})
        found = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
        assert parameter_shapes(model.config) == found


def test_tensors_that_do_not_fit_are_refused():
    model = tiny()
    tensors = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    for change, message in (
        ({"norm.weight": np.ones(31, np.float32)}, "norm.weight is (31,), not (32,)"),
        ({"more.weight": np.ones(3, np.float32)}, "more.weight is unknown"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            NativeModel(model.config, tensors | change)
    del tensors["blocks.1.mlp.gate_proj.weight"]
    with pytest.raises(ValueError, match=r"gate_proj\.weight is missing"):
        NativeModel(model.config, tensors)
    with pytest.raises(JumokError, match="rung"):
        NativeModel(RungConfig(vocab_size=V, n_layer=1, n_head=2, n_embd=16), {})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["shared-keys", "classic"])
def test_logits_and_hidden_states_of_every_id(name: str, kind: Kind):
    """Of chunks of several lengths, the same as one id at a time, and those of the model."""
    model, texts = tiny(**SHAPES[name]), [some_ids(length, length) for length in (1, 40, 17)]
    chunks = [Chunk(slot, 0, text) for slot, text in enumerate(texts)]
    found, hidden = slots_for(model, 3, kind).read_every(chunks), slots_for(model, 3, kind).hidden(chunks)
    for text, logits, states in zip(texts, found, hidden, strict=True):
        assert torch.equal(torch.from_numpy(logits), each_position(model, text, kind))
        assert states.shape == (len(text), 32)
        if kind == "float32":
            with torch.no_grad():
                assert_close(torch.from_numpy(states), model.hidden(torch.tensor([text]))[0])


def test_any_other_model_is_not_run():
    assert not can_run(tiny().double())
    assert not can_run(tiny().bfloat16())
    hooked = tiny()
    hooked.blocks[0].mlp.register_forward_hook(lambda *_: None)
    assert not can_run(hooked)
    changed = tiny(family="classic")
    for block in changed.blocks:
        block.mlp.activation = torch.tanh
    assert not can_run(changed)
    other = tiny(family="classic")
    other.norm.eps = 0.5
    assert not can_run(other)
    turned = tiny()
    turned.cos[:, 1] = -1
    assert not can_run(turned)
    mixed = tiny(family="classic")
    mixed.blocks[1].mlp.activation = torch.nn.functional.relu
    assert not can_run(mixed)
    half = tiny(**SHAPES["neox"])
    assert can_run(half)
    half.blocks[1].parallel = False
    assert not can_run(half)


def a_larger_head(model: GPT) -> None:
    model.head = nn.Linear(32, V + 40, bias=False)


def another_layer(model: GPT) -> None:
    model.blocks.append(model.blocks[0])


def a_norm_without_a_bias(model: GPT) -> None:
    model.norm = nn.LayerNorm(32, bias=False)


def a_short_table(model: GPT) -> None:
    model.cos = model.cos[:5]  # and the sines are as they were


def an_mlp_without_a_gate(model: GPT) -> None:
    model.blocks[1].mlp = MLP(32, model.config.mlp_width, "silu")


def fewer_keys(model: GPT) -> None:
    model.blocks[1].attention.k_proj = nn.Linear(32, 16)


EXCHANGES = [a_larger_head, another_layer, a_norm_without_a_bias, a_short_table, an_mlp_without_a_gate, fewer_keys]


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("shape", [SHAPES["modern"], SHAPES["llama-biases"], SHAPES["neox"]])
def test_a_model_of_other_sizes_than_its_config_is_not_run(shape: dict[str, Any], exchange: Callable[[GPT], None]):
    """The step would write logits and keys behind the end of their memory, or use a mean where there is none."""
    model = tiny(**{**shape, "rotary_dim": 8} if "rotary_dim" in shape else shape)
    assert can_run(model)
    exchange(model)
    assert not can_run(model)


# --- the build --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def originals(built: Path) -> dict[str, Path]:
    """The libraries that this machine uses, by name: of its level, and the one that says what levels it has."""
    path = library_path()
    assert path is not None
    level = next(name for name in LEVELS if path.name == library_name(name))
    return {PROCESSOR: path.with_name(library_name(PROCESSOR)), level: path}


def copy_into(folder: Path, originals: dict[str, Path]) -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in originals.values():
        for file in (path, path.with_suffix(".sha256")):
            shutil.copyfile(file, folder / file.name)
    return folder


@pytest.fixture
def elsewhere(originals: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place with libraries: another cache folder, with copies."""
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "INSTALLED", tmp_path / "none")
    monkeypatch.setattr(build, "_outcomes", {})
    return copy_into(tmp_path / "native", originals)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, originals: dict[str, Path]) -> list[str]:
    """What was compiled; the compiler copies what is there."""
    done: list[str] = []

    def copy(compiler: Path, name: str, target: Path) -> None:
        done.append(name)
        shutil.copyfile(originals[name], target)

    monkeypatch.setattr(build, "compile_library", copy)
    return done


def no_compiler(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(folder))


def other_sources(monkeypatch: pytest.MonkeyPatch, folder: Path, **sources: str) -> None:
    """Let step.cpp or processor.cpp have other contents."""
    folder.mkdir()
    for name in ("step", PROCESSOR):
        (folder / f"{name}.cpp").write_text(sources.get(name) or (FOLDER / f"{name}.cpp").read_text(), encoding="utf-8")
    monkeypatch.setattr(levels, "FOLDER", folder)


def test_a_library_that_is_there_is_loaded(
    elsewhere: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    no_compiler(monkeypatch, tmp_path)
    assert library(build=False) is not None
    assert library_path() in elsewhere.iterdir()
    assert compiled == []
    assert why_not() is None


def test_a_library_of_the_package_comes_first(
    elsewhere: Path, originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Its folder may be open to others, as those of packages are, and nothing is written to the cache."""
    shutil.rmtree(elsewhere)
    installed = copy_into(tmp_path / "installed", originals)
    installed.chmod(0o755)
    monkeypatch.setattr(build, "INSTALLED", installed)
    no_compiler(monkeypatch, tmp_path)
    assert library(build=False) is not None
    assert library_path() in installed.iterdir()
    assert why_not() is None
    assert not elsewhere.exists()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose_the_digest(path: Path) -> None:
    path.with_suffix(".sha256").unlink()


def spoil_the_digest(path: Path) -> None:
    """Writing ended with a UnicodeDecodeError."""
    path.with_suffix(".sha256").write_bytes(b"\xff" * 64)


each_damage = pytest.mark.parametrize("damage", [shorten, change, lose_the_digest, spoil_the_digest])


@each_damage
@pytest.mark.parametrize("which", [0, 1], ids=[PROCESSOR, "level"])
def test_a_damaged_library_is_not_loaded_but_built_again(
    damage: Callable[[Path], None], which: int, elsewhere: Path, originals: dict[str, Path], compiled: list[str]
):
    name = list(originals)[which]
    damage(elsewhere / library_name(name))
    assert library(build=False) is None
    assert why_not() is None
    assert compiled == []
    assert library() is not None
    assert compiled == [name]


@each_damage
def test_a_damaged_library_of_the_package_is_not_loaded(
    damage: Callable[[Path], None], elsewhere: Path, originals: dict[str, Path], compiled: list[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jumok: Jumok,
):  # fmt: skip
    """Texts are written by PyTorch. The damage may be an attempt of someone, so nothing is repaired in silence."""
    installed = copy_into(tmp_path / "installed", originals)
    monkeypatch.setattr(build, "INSTALLED", installed)
    path = installed / originals[list(originals)[1]].name
    damage(path)
    assert library() is None
    assert compiled == []
    assert (
        why_not() == f"the C++ step cannot be used ({path} is damaged: install jumok again); generation uses PyTorch."
    )
    assert not isinstance(Engine(tiny(), 1)._slots, NativeSlots)
    [found] = [one for one in jumok("doctor", "--json").json["findings"] if one["name"] == "C++ step"]
    assert found["condition"] == "problem"
    assert str(path) in found["text"]
    assert "pip install" in found["remedy"]


def test_a_library_of_another_source_is_not_used(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A source checkout is compiled when it is installed, and may change after that."""
    monkeypatch.setattr(build, "INSTALLED", elsewhere)
    other_sources(monkeypatch, tmp_path / "sources", step="// another")
    assert library(build=False) is None
    assert why_not() is None


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_folder_that_others_write_to_is_not_used(elsewhere: Path, compiled: list[str]):
    elsewhere.chmod(0o770)
    assert library() is None
    assert compiled == []
    assert "others can write to" in str(why_not())


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_new_folder_is_private(elsewhere: Path, originals: dict[str, Path], compiled: list[str]):
    shutil.rmtree(elsewhere)
    assert library() is not None
    assert compiled == list(originals)
    assert elsewhere.stat().st_mode & 0o777 == 0o700


def test_no_compiler_costs_a_sentence(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    shutil.rmtree(elsewhere)
    no_compiler(monkeypatch, tmp_path)
    assert library() is None
    assert why_not() == "no C++ compiler was found (c++, g++, clang++); generation uses PyTorch."


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_a_broken_compiler_costs_a_sentence_once(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    shutil.rmtree(elsewhere)
    compiler, calls = tmp_path / "compiler", tmp_path / "calls"
    compiler.write_text(f"#!/bin/sh\necho >> {calls}\necho 'no license' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert library() is None
    tries = calls.read_text()
    assert library() is None
    assert why_not() == f"the C++ step cannot be used ({compiler}: no license); generation uses PyTorch."
    assert calls.read_text() == tries
    assert list(elsewhere.glob(".*.tmp")) == []


@pytest.mark.skipif(os.name != "posix" or sys.platform == "darwin", reason="a shell script, for Linux")
def test_a_system_without_the_static_library_of_cpp(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Fedora has it in a package of its own."""
    compiler, real = tmp_path / "compiler", levels.find_compiler()
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *{levels.STATIC}*) echo "cannot find -lstdc++" >&2; exit 1;; esac\nexec {real} "$@"\n'
    )
    compiler.chmod(0o755)
    levels.compile_library(compiler, PROCESSOR, tmp_path / "made.so")
    assert (tmp_path / "made.so").stat().st_size > 0


def test_a_failure_of_a_moment_is_not_for_ever(elsewhere: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch):
    """One OSError while the step was built, such as a full disk, switched it off for the life of the process."""

    def fail(*given: object, **how: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    shutil.rmtree(elsewhere)
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with monkeypatch.context() as broken:
        broken.setattr(build, "private_folder", fail)
        assert library() is None
    for _ in range(3):  # not before some time: a compiler may take long to fail
        assert library() is None
        assert "No space left" in str(why_not())
    assert compiled == []
    now += 3600
    assert why_not() is None
    assert library(build=False) is None
    assert library() is not None
    assert len(compiled) == 2


def test_it_can_be_switched_off(elsewhere: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JUMOK_NATIVE", "0")
    assert library() is None
    assert why_not() == "JUMOK_NATIVE=0 is set; generation uses PyTorch."


def test_another_source_option_or_system_is_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    names = [library_name(name) for name in (PROCESSOR, *LEVELS)]
    with monkeypatch.context() as patch:
        patch.setattr(levels, "FLAGS", (*levels.FLAGS, "-Og"))
        names.append(library_name(PROCESSOR))
    with monkeypatch.context() as patch:
        patch.setattr("platform.machine", lambda: "another")
        names.append(library_name(PROCESSOR))
    other_sources(monkeypatch, tmp_path / "sources", step="// another")
    names += [library_name(name) for name in LEVELS]
    assert len(set(names)) == len(names)
    assert library_name(PROCESSOR) == names[0]


# --- levels -----------------------------------------------------------------------------------------------------------

x86_alone = pytest.mark.skipif(not levels.X86, reason="only x86 has several levels")


def with_levels(number: int, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the processor have the first levels only."""
    source = f'extern "C" __attribute__((visibility("default"))) int jumok_levels() {{ return {number}; }}'
    other_sources(monkeypatch, folder, processor=source)


def test_the_best_level_is_used_unless_another_is_named(
    elsewhere: Path, originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch
):
    best = list(originals)[1]
    for named in ("", best):
        monkeypatch.setenv("JUMOK_NATIVE", named)
        assert library(build=False) is not None
        assert library_path() == elsewhere / library_name(best)


def test_an_unknown_level_is_refused(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, jumok: Jumok):
    shutil.rmtree(elsewhere)  # before anything is compiled, too
    for named in ("x86-64-v9", "1", "processor", "native"):
        monkeypatch.setenv("JUMOK_NATIVE", named)
        for ask in (library_path, why_not, library):
            with pytest.raises(ConfigError, match=f"JUMOK_NATIVE='{named}': .* one of 0, {', '.join(LEVELS)}; without"):
                ask()
    [found] = [one for one in jumok("doctor", "--json").json["findings"] if one["name"] == "C++ step"]
    assert (found["condition"], "JUMOK_NATIVE" in found["text"]) == ("problem", True)


@x86_alone
def test_a_level_that_the_processor_lacks_is_refused(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with_levels(2, monkeypatch, tmp_path / "sources")
    monkeypatch.setenv("JUMOK_NATIVE", "x86-64-v4")
    with pytest.raises(ConfigError, match="one of 0, x86-64-v2, x86-64-v3; without"):
        library()


@x86_alone
def test_an_old_processor_has_no_level(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with_levels(0, monkeypatch, tmp_path / "sources")
    assert library() is None
    assert why_not() == "this processor is older than x86-64-v2; generation uses PyTorch."


@x86_alone
def test_an_older_processor_gets_its_level(
    elsewhere: Path, originals: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    asked: list[str] = []

    def note(compiler: Path, name: str, target: Path) -> None:
        asked.append(name)
        if name == PROCESSOR:
            levels.compile_library(compiler, name, target)
        else:
            shutil.copyfile(originals[list(originals)[1]], target)

    with_levels(1, monkeypatch, tmp_path / "sources")
    monkeypatch.setattr(build, "compile_library", note)
    assert library() is not None
    assert asked == [PROCESSOR, "x86-64-v2"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each level that this processor has."""
    monkeypatch.setenv("JUMOK_NATIVE", request.param)
    try:
        assert library() is not None, why_not()
    except ConfigError as error:
        pytest.skip(str(error))
    return str(request.param)


@pytest.mark.long
def test_each_level_gives_the_same(level: str, threads: Callable[[int], None]):
    assert library_path().name.startswith(level)
    for shape in SHAPES.values():
        test_logits_are_those_of_the_model(shape)
    test_a_text_is_the_same_alone_and_among_others(SHAPES["wider-heads"], "int8", threads)


@pytest.mark.long
@x86_alone
def test_a_level_has_the_bits_of_a_build_for_this_processor(
    level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """At the same width of vectors. GCC avoids some chains of products with sums on processors that are slow in them,
    so the build for this one is tuned as for any.
    """
    narrower = {"x86-64-v2": ("-mno-avx", "-mno-fma"), "x86-64-v3": ("-mno-avx512f",), "x86-64-v4": ()}[level]
    native, compiler = ("-march=native", "-mtune=generic", *narrower), levels.find_compiler()
    assert compiler is not None
    with monkeypatch.context() as patch:
        patch.setitem(levels.LEVELS, level, native)
        levels.compile_library(compiler, level, tmp_path / "native.so")
    own, another = library(build=False), build.ctypes.CDLL(str(tmp_path / "native.so"))
    names = ("modern", "shared-keys", "classic", "neox", "sliding-blocks")
    found = []
    for one in (own, another):
        monkeypatch.setattr("jumok.inference.native.slots.library", lambda build, one=one: one)
        found.append([logits for name in names for kind in KINDS for logits in some_logits(tiny(**SHAPES[name]), kind)])
    assert len(found[0]) == len(names) * len(KINDS) * 2
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def some_logits(model: GPT, kind: Kind) -> list[Tensor]:
    """Of a text that is read id by id, and of prompts that are read together."""
    prompts = [Chunk(slot, 0, some_ids(20 + 7 * slot, slot)) for slot in range(5)]
    return [each_position(model, some_ids(40), kind), read(slots_for(model, 5, kind), prompts)]
