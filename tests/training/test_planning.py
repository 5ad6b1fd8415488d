"""What `jumok plan` computes: against what autograd keeps, against figures that were published, and by hand."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from jumok.config import (
    MOST_PASSES,
    BERTConfig,
    BlockConfig,
    EncoderDecoderConfig,
    GPTConfig,
    ModelConfig,
    TrainConfig,
    count_parameters,
    matrices,
    stacks,
)
from jumok.device import autocast
from jumok.errors import ConfigError
from jumok.models import build
from jumok.nn.attention import Implementation, train_attention_by
from jumok.training.adapters import Adapters
from jumok.training.optim import make_optimizers
from jumok.training.planning.activations import Pass, activations, block_kept
from jumok.training.planning.devices import data_sheet, data_sheets
from jumok.training.planning.estimate import Estimate, Machine, estimate
from jumok.training.planning.footprint import cache_bytes, device_counts, memory, moment_bytes, rows_that_fit, sizes_of
from jumok.training.planning.machines import of_sheet
from jumok.training.planning.rehearsal import Rehearsal, rehearse, synthetic_loss, with_layers
from jumok.training.planning.work import (
    all_reduce_bytes,
    exchanged_bytes,
    flops_per_token,
    muon_flops,
    optimal_tokens,
    sheet_seconds,
)
from jumok.training.recompute import recompute_blocks

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "vocab_size": 301, "context_length": 40, "n_layer": 2, "n_head": 4, "n_embd": 48, "mlp_width": 112,
}  # fmt: skip
LM = TrainConfig(steps=1)
GPT2 = GPTConfig(family="classic", n_layer=12, n_head=12, n_embd=768, context_length=1024, vocab_size=50257)
GPT3 = GPTConfig(family="classic", n_layer=96, n_head=96, n_embd=12288, context_length=2048, vocab_size=50257)
CHINCHILLA = 70 * 10**9


# --- activations ------------------------------------------------------------------------------------------------------


def kept_by_autograd(shape: ModelConfig, config: TrainConfig, work: Pass) -> int:
    """Bytes of the storages that a forward pass saves, without parameters, buffers and copies of matrices."""
    model = build(shape).train()
    train_attention_by(model, work.attention)
    if work.recompute:
        recompute_blocks(model)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    copies = {tuple(sorted(p.shape)) for p in model.parameters() if p.dim() == 2}
    sizes: dict[int, int] = {}
    held = []  # so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        copied = tensor.dtype == torch.bfloat16 and tensor.dim() == 2 and tuple(sorted(tensor.shape)) in copies
        if storage.data_ptr() not in own and not copied:
            sizes[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    loss = synthetic_loss(model, config, work, CPU)
    precision = "float32" if work.size == 4 else "bfloat16"
    with saved_tensors_hooks(keep, lambda tensor: tensor), autocast(CPU, precision):
        loss()
    return sum(sizes.values())


SHAPES: dict[str, tuple[ModelConfig, dict[str, Any]]] = {
    "modern": (GPTConfig(**SMALL), {}),
    "grouped queries": (GPTConfig(n_kv_head=2, **SMALL), {}),
    "classic": (GPTConfig(family="classic", **SMALL), {}),
    "relu, untied, narrow heads": (
        GPTConfig(family="classic", activation="relu", tie_embeddings=False, head_dim=16, **SMALL), {},
    ),
    "attention dropout": (GPTConfig(attention_dropout=0.1, **SMALL), {}),
    "mlm": (BERTConfig(attention_dropout=0.0, **SMALL), {"task": "mlm"}),
    "mlm, attention dropout": (BERTConfig(**SMALL), {"task": "mlm"}),
    "classify": (GPTConfig(labels=("a", "b"), pooling="mean", **SMALL), {"task": "classify", "lm_weight": 1.0}),
    "classify, bert": (
        BERTConfig(head="classify", labels=("a", "b"), attention_dropout=0.0, **SMALL), {"task": "classify"},
    ),
    "bart": (EncoderDecoderConfig(**SMALL), {"task": "seq2seq"}),
    "transformer of 2017": (
        EncoderDecoderConfig(family="original", **SMALL), {"task": "seq2seq", "label_smoothing": 0.1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("attention", ["chunked", "fused"])
@pytest.mark.parametrize("size", [4, 2])
@pytest.mark.parametrize("name", SHAPES)
def test_activations_are_those_that_autograd_keeps(name: str, size: int, attention: Implementation) -> None:
    """Indices, scalars and the single vectors of texts are left out: less than 4 kB here, of 0.3 to 3 MB."""
    shape, settings = SHAPES[name]
    config, work = TrainConfig(steps=1, **settings), Pass(rows=3, length=40, size=size, attention=attention)
    for dropout in (0.0, 0.1):
        dropping = dataclasses.replace(shape, dropout=dropout)
        counted = activations(dropping, config, work).kept
        assert counted == pytest.approx(kept_by_autograd(dropping, config, work), abs=4_000)


@pytest.mark.parametrize("length", [8, 600])
def test_activations_of_few_and_of_many_keys(length: int) -> None:
    """Short rows take the plain formula; beyond 512 keys chunked attention keeps no weights."""
    shape = GPTConfig(**{**SMALL, "context_length": length})
    for size in (4, 2):
        work = Pass(rows=2, length=length, size=size)
        assert activations(shape, LM, work).kept == pytest.approx(kept_by_autograd(shape, LM, work), rel=3e-3)


def test_activations_of_a_layer_as_published() -> None:
    """s b h (34 + 5 a s / h) bytes for 16 bits (arXiv 2205.05198, section 4.1), where the same is kept.

    There the inputs of norms have two bytes, here four. There all three projections read one tensor, here each reads a
    copy. The rest is alike. The term with 5 a s is of attention weights. The fused kernel does not keep them, but a
    number for each query and head.
    """
    s, b, h, a = 1024, 2, 768, 12
    block = BlockConfig(width=h, n_head=a, n_kv_head=a, head_dim=h // a, mlp_width=4 * h, activation="gelu_tanh",
                        pre_norm=True, dropout=0.1)  # fmt: skip
    counted = block_kept(block, Pass(rows=b, length=s, size=2, attention="fused", gpu=True))
    # norms and the two additional copies for q, k and v; the statistics of norms and attention
    differences = 4 * s * b * h + 2 * 2 * s * b * h + 4 * s * b * (2 * 2 + a)
    assert counted - differences == 34 * s * b * h


def test_recomputing_keeps_the_inputs_of_blocks() -> None:
    work = Pass(rows=2, length=40)
    whole = activations(GPTConfig(**SMALL), LM, work)
    again = activations(GPTConfig(**SMALL), LM, dataclasses.replace(work, recompute=True))
    assert again.blocks == 2 * 4 * 2 * 40 * 48  # blocks, bytes, rows, tokens, width
    assert 2 * again.working + again.blocks == whole.blocks
    assert (again.rest, again.logits) == (whole.rest, whole.logits)


@pytest.mark.parametrize("name", ["modern", "classic", "mlm", "classify"])
def test_recomputing_keeps_what_is_counted(name: str) -> None:
    """The blocks of a real model, with dropout; a mask or an angle is kept besides."""
    shape, settings = SHAPES[name]
    config, work = TrainConfig(steps=1, **settings), Pass(rows=3, length=40, recompute=True)
    dropping = dataclasses.replace(shape, dropout=0.1)
    counted = activations(dropping, config, work).kept
    assert counted == pytest.approx(kept_by_autograd(dropping, config, work), abs=12_000)


# --- parameters, moments, operations ----------------------------------------------------------------------------------


def test_gpt_2_and_gpt_3_have_the_published_parameters() -> None:
    assert count_parameters(GPT2) == 124_439_808
    assert count_parameters(GPT3) == pytest.approx(174.6e9, rel=1e-3)  # arXiv 2005.14165, table D.1


def test_operations_of_gpt_3() -> None:
    """6 N D = 3.14e23 for 300 B tokens (arXiv 2005.14165, table D.1), which leaves attention out."""
    sizes = sizes_of(GPT3, LM)
    assert 6 * sizes.products * 300e9 == pytest.approx(3.14e23, rel=2e-3)
    attention = flops_per_token(GPT3, sizes, 2048) - 6 * sizes.products
    assert attention == 12 * 96 * 12288 * 2048  # arXiv 2204.02311, appendix B


def test_chinchilla_is_compute_optimal() -> None:
    assert optimal_tokens(CHINCHILLA) == 1.4e12  # arXiv 2203.15556, table 3


@pytest.mark.parametrize("shape", [SHAPES[name][0] for name in ("modern", "classic", "mlm", "bart")])
@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_moments_are_those_of_the_optimizers(shape: ModelConfig, optimizer: Any) -> None:
    config = TrainConfig(steps=1, optimizer=optimizer)
    model = build(shape)
    optimizers = make_optimizers(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for one in optimizers:
        one.step()
    states = [state for one in optimizers for state in one.state.values()]
    held = sum(tensor.nbytes for state in states for name, tensor in state.items() if name != "step")
    assert moment_bytes(sizes_of(shape, config), config) == held


@pytest.mark.parametrize("shape", [SHAPES[name][0] for name in ("modern", "classic", "mlm", "bart")])
def test_adapters_are_all_that_is_trained(shape: ModelConfig) -> None:
    """`jumok plan` did not know --lora: it planned gradients and moments of all parameters."""
    pytest.importorskip("peft", reason="peft is not installed")
    config = TrainConfig(steps=1, optimizer="adamw", lora=3)
    model = build(shape)
    whole = sum(parameter.numel() for parameter in model.parameters())
    Adapters(model, 3, seed=0)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sizes = sizes_of(shape, config)
    assert (sizes.parameters, sizes.adapters) == (whole, sum(parameter.numel() for parameter in trained))
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    [optimizer] = make_optimizers(model, config)
    optimizer.step()
    held = [tensor for state in optimizer.state.values() for name, tensor in state.items() if name != "step"]
    assert moment_bytes(sizes, config) == sum(tensor.nbytes for tensor in held)


def test_adapters_need_less() -> None:
    """The peaks of bench/lora_memory.py are 0.53, 0.54 and 0.60 GB above these, which is Python with PyTorch."""
    shape = GPTConfig(vocab_size=32_000, n_layer=12, n_head=12, n_embd=768)
    work = Pass(rows=1, length=256, size=4, attention="chunked")
    ways: list[dict[str, Any]] = [{"optimizer": "muon"}, {"optimizer": "adamw"}, {"optimizer": "adamw", "lora": 8}]
    found = [memory(shape, TrainConfig(steps=1, **way), work) for way in ways]
    assert [one.peak // 10**7 for one in found] == [160, 194, 81]
    assert found[2].gradients == found[2].moments // 2 == found[2].parameters - found[1].parameters
    many = [flops_per_token(shape, sizes_of(shape, TrainConfig(steps=1, **way)), 256) for way in ways]
    assert 0.6 < many[2] / many[1] < 0.75  # a third less, and the operations of attention and adapters


@pytest.mark.parametrize("shape", [SHAPES[name][0] for name in ("modern", "classic", "mlm", "bart")])
def test_matrices_are_those_of_the_blocks(shape: ModelConfig) -> None:
    assert isinstance(shape, GPTConfig | BERTConfig | EncoderDecoderConfig)
    lists = [part for part in build(shape).children() if isinstance(part, torch.nn.ModuleList)]
    for (count, block, cross), blocks in zip(stacks(shape), lists, strict=True):
        assert len(blocks) == count
        found = sorted(tuple(reversed(p.shape)) for p in blocks[0].parameters() if p.dim() == 2)
        assert sorted(matrices(block, cross=cross)) == found


def test_muon_costs_four_iterations() -> None:
    one = GPTConfig(n_layer=1, n_head=1, n_embd=64, vocab_size=10, mlp_width=64)
    per_matrix = 4 * 3 * 2 * 64**3  # three products each
    assert muon_flops(one) == 7 * per_matrix


# --- memory -----------------------------------------------------------------------------------------------------------


def test_the_peak_is_the_worst_moment() -> None:
    shape, config = GPTConfig(**SMALL), TrainConfig(steps=1)
    wide, narrow = (memory(shape, config, Pass(rows=rows, length=40)) for rows in (64, 1))
    held = wide.parameters + wide.moments
    assert wide.peak == held + wide.activations + wide.loss
    assert wide.loss == 2 * 4 * 64 * 40 * 301
    # with few tokens the gradients outweigh activations, with the two halves of that of the tied embedding
    little = GPTConfig(**{**SMALL, "vocab_size": 20_000})
    narrow = memory(little, config, Pass(rows=1, length=4))
    assert narrow.peak == narrow.parameters + narrow.moments + narrow.gradients + 2 * 4 * 20_000 * 48


def test_shards_are_parts() -> None:
    shape, work = GPT2, Pass(rows=1, length=1024, size=2, attention="fused", gpu=True)
    whole = memory(shape, LM, work, devices=4)
    parts = memory(shape, LM, work, devices=4, shard=True)
    assert parts.parameters == pytest.approx(whole.parameters / 4, abs=4)
    assert parts.moments == pytest.approx(whole.moments / 4, abs=4)
    assert parts.activations == whole.activations
    assert whole.exchange == whole.gradients  # one piece of all gradients, to be summed


@pytest.mark.parametrize(("shard", "recompute"), [(False, False), (False, True), (True, False), (True, True)])
def test_the_rows_that_fit_are_the_most(shard: bool, recompute: bool) -> None:
    work = Pass(rows=1, length=1024, size=2, attention="fused", gpu=True, recompute=recompute)
    rows = rows_that_fit(GPT2, LM, work, 24e9, devices=2, shard=shard)
    peaks = [memory(GPT2, LM, dataclasses.replace(work, rows=n), devices=2, shard=shard).peak for n in (rows, rows + 1)]
    assert peaks[0] <= 24e9 < peaks[1]
    assert rows_that_fit(GPT2, LM, work, 1e6, devices=2, shard=shard) == 0


def test_recomputing_needs_less() -> None:
    """Of twelve blocks about one is left; the logits stay."""
    work = Pass(rows=8, length=1024, size=2, attention="fused", gpu=True)
    plain, again = (memory(GPT2, LM, dataclasses.replace(work, recompute=on)) for on in (False, True))
    assert (again.parameters, again.moments, again.loss) == (plain.parameters, plain.moments, plain.loss)
    assert again.activations - plain.loss // 2 < 0.25 * (plain.activations - plain.loss // 2)
    assert again.peak < plain.peak


def test_shards_gather_blocks_and_keep_the_rest() -> None:
    """Two blocks in the precision of the pass, the rest in float32; rank 0 needs the whole model for validation."""
    sizes = sizes_of(GPT2, LM)
    shares = {}
    for size in (2, 4):
        work = Pass(rows=1, length=64, size=size, attention="fused", gpu=True)
        found = shares[size] = memory(GPT2, LM, work, devices=4, shard=True)
        assert found.parameters == found.gradients == sizes.parameters
        assert found.exchange == 2 * size * sizes.block + 4 * sizes.outside + (size + 4) * sizes.block
        assert found.whole == 4 * sizes.parameters
        assert found.peak >= found.parameters + found.moments + found.whole
    assert shares[4].copies == 0
    assert shares[2].copies == 2 * sizes.embedding  # of the output layer, by autocast
    alone = memory(GPT2, LM, work, devices=1, shard=True)
    assert alone == memory(GPT2, LM, work)  # one device has nothing to share


def test_several_processes_hold_all_directions_of_muon() -> None:
    """In float32, and what is sent in the precision of the pass."""
    work, sizes = Pass(rows=1, length=8, size=4), sizes_of(GPT2, LM)
    adamw = TrainConfig(steps=1, optimizer="adamw")
    two = memory(GPT2, LM, work, devices=2)
    assert two.peak == two.parameters + two.moments + two.gradients + 8 * sizes.matrices
    two = memory(GPT2, adamw, work, devices=2)
    assert two.peak == two.parameters + two.moments + two.gradients + two.exchange


def test_the_cache_of_a_text() -> None:
    assert cache_bytes(GPT2, 1024) == 4 * 1024 * 2 * 12 * 768
    assert cache_bytes(BERTConfig(**SMALL), 40) == 0


# --- devices ----------------------------------------------------------------------------------------------------------


def test_each_data_sheet_has_a_source() -> None:
    for name, sheet in data_sheets().items():
        assert any(char.isdigit() for char in sheet.source), name  # a date
        assert 1e12 < sheet.flops < 1e16
        assert 1e9 < sheet.memory < 1e12
        assert 1e10 < sheet.bandwidth < 1e14


@pytest.mark.parametrize("name", ["h100", "H100", "RTX 4090", "rtx-4090", "H100 PCIe"])
def test_names_of_devices_are_forgiving(name: str) -> None:
    assert data_sheet(name) is not None


def test_an_unknown_device_is_named() -> None:
    assert data_sheet("auto") is data_sheet("cuda:1") is None
    with pytest.raises(ConfigError, match="Did you mean 'h100'"):
        data_sheet("h10")


def test_utilisation_is_what_it_says() -> None:
    """At a utilisation of one half, the passes reach half of the peak."""
    sheet = data_sheet("h100")
    assert sheet is not None
    sizes, work = sizes_of(GPT2, LM), Pass(rows=8, length=1024, size=2, attention="fused", gpu=True)
    passes, update = sheet_seconds(GPT2, LM, work, sheet, sizes, 0.5, 1)
    assert flops_per_token(GPT2, sizes, 1024) * work.tokens / passes == pytest.approx(sheet.flops / 2)
    again, _ = sheet_seconds(GPT2, LM, dataclasses.replace(work, recompute=True), sheet, sizes, 0.5, 1)
    assert 1.2 < again / passes < 4 / 3  # a forward pass more, but not of the head
    _, shared = sheet_seconds(GPT2, LM, work, sheet, sizes, 0.5, 8)
    assert shared < update


def test_communication() -> None:
    assert all_reduce_bytes(100, 2) == 100
    assert all_reduce_bytes(100, 1000) == pytest.approx(199.8)
    sizes, work = sizes_of(GPT2, LM), Pass(rows=1, length=1024, size=2)
    config = TrainConfig(steps=1, optimizer="adamw")
    assert exchanged_bytes(sizes, config, work, devices=2, shard=False) == 4 * sizes.parameters
    # halves of blocks in bfloat16, twice, of the rest in float32, once, and of all gradients in float32
    passes = 2 * sizes.matrices + 2 * sizes.outside + 2 * sizes.parameters
    assert exchanged_bytes(sizes, config, work, devices=2, shard=True) == passes
    # Muon sends half of the directions to the other device; of shards, a quarter of the matrices there and back
    assert exchanged_bytes(sizes, LM, work, devices=2, shard=False) == 4 * sizes.parameters + sizes.matrices
    assert exchanged_bytes(sizes, LM, work, devices=2, shard=True) == passes + sizes.matrices
    exact = Pass(rows=1, length=1024, size=4)
    assert exchanged_bytes(sizes, LM, exact, devices=2, shard=False) == 4 * sizes.parameters + 2 * sizes.matrices
    assert device_counts(6) == [1, 2, 4, 6]


# --- plans ------------------------------------------------------------------------------------------------------------


def planned(limit: float | None, batch: int = 8, devices: int = 1, **options: Any) -> Estimate:
    """A GPT-2 on devices of so much memory; a token takes a microsecond, and an update a second."""
    config = TrainConfig(steps=1, batch_size=batch)
    machine = Machine(
        name="a device",
        devices=devices,
        memory=limit,
        link=1e9,
        times=lambda work, among: (1e-6 * work.tokens, 1.0),
    )
    return estimate(GPT2, config, Pass(rows=1, length=1024, size=2, attention="fused", gpu=True), machine, **options)


def test_what_fits_needs_nothing() -> None:
    found = planned(80e9)
    assert found.fits
    assert (found.way.rows, found.way.accumulate, found.way.recompute) == (8, 1, False)
    assert found.tokens == found.optimal_tokens == 20 * count_parameters(GPT2)
    assert found.seconds_of_step.step == pytest.approx(8 * 1024e-6 + 1.0)
    assert found.seconds == pytest.approx(found.tokens / (8 * 1024) * found.seconds_of_step.step)


def test_a_large_batch_is_accumulated() -> None:
    """The batches of a step become smaller, and the step stays."""
    roomy, tight = planned(80e9, batch=64), planned(10e9, batch=64)
    assert tight.fits
    assert tight.way.accumulate > 1
    assert tight.way.rows * tight.way.accumulate == 64
    assert tight.tokens_per_step == roomy.tokens_per_step
    assert tight.way.memory.peak <= 10e9


def test_a_batch_that_no_accumulation_divides() -> None:
    """Of ten million rows it tried accumulate=200000, which `TrainConfig` refuses, and said only that."""
    found = planned(10e9, batch=10**7)
    assert found.fits is False
    assert all(way.accumulate <= MOST_PASSES for way in found.ways)


def test_what_fits_nowhere() -> None:
    found = planned(1e9)
    assert found.fits is False
    assert not any(way.fits for way in found.ways)
    assert planned(None).fits is None


def test_more_devices_take_less_memory_and_time() -> None:
    found = planned(80e9, batch=8, devices=8, tokens=10**9, price=2.0)
    assert [one.devices for one in found.scales] == [1, 2, 4, 8]
    for one, two in zip(found.scales, found.scales[1:], strict=False):
        assert two.replicated < one.replicated
        assert two.sharded < two.replicated
    last = found.scales[-1]
    assert last.seconds == pytest.approx(found.seconds)
    assert last.cost == found.cost == pytest.approx(found.seconds / 3600 * 8 * 2)


def test_only_the_ways_that_were_asked_for() -> None:
    found = planned(80e9, devices=4, shard=True, recompute=True)
    assert [(way.shard, way.recompute) for way in found.ways] == [(True, True)]
    assert planned(80e9, shard=True).ways[0].shard is False  # one device has nothing to share


def test_more_devices_than_sequences() -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        planned(80e9, batch=8, devices=16)


def test_a_plan_of_a_data_sheet() -> None:
    sheet = data_sheet("m1")
    assert sheet is not None
    chosen = of_sheet(GPT2, LM, sheet, devices=2, link=5e9)
    assert (chosen.precision, chosen.assumed, chosen.machine.link) == ("float32", True, 5e9)
    assert chosen.work.size == 4
    assert of_sheet(GPT2, LM, sheet).machine.link is None


# --- this machine -----------------------------------------------------------------------------------------------------


def test_a_rehearsal_times_the_parts() -> None:
    found = Rehearsal(blocks=2e-6, recomputed=1e-6, rest=3e-6, update=0.5, orthogonal=0.4)
    work = Pass(rows=2, length=100)
    assert found.of_step(work) == pytest.approx(0.501)
    assert found.of_passes(dataclasses.replace(work, recompute=True)) == pytest.approx(0.0012)
    assert found.of_update() == 0.5
    assert found.of_update(4) == pytest.approx(0.2)  # a quarter of the matrices, and the rest


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modern", "mlm", "classify", "bart"])
def test_a_rehearsal_of_each_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.training.planning.rehearsal.MEASURING", 0.0)
    shape, settings = SHAPES[name]
    state = torch.get_rng_state()
    found = rehearse(shape, TrainConfig(steps=1, **settings), Pass(rows=2, length=40), CPU)
    assert all(math.isfinite(value) and value > 0 for value in dataclasses.astuple(found))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["modern", "classify", "bart"])
def test_a_rehearsal_with_adapters(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("peft", reason="peft is not installed")
    monkeypatch.setattr("jumok.training.planning.rehearsal.MEASURING", 0.0)
    shape, settings = SHAPES[name]
    config = TrainConfig(**{"steps": 1, **settings, "optimizer": "adamw", "lora": 2})
    found = rehearse(shape, config, Pass(rows=2, length=40), CPU)
    assert all(value > 0 for value in (found.blocks, found.recomputed, found.rest, found.update))


def test_a_shape_with_fewer_layers() -> None:
    assert [count for count, _, _ in stacks(with_layers(SHAPES["bart"][0], 1))] == [1, 1]
