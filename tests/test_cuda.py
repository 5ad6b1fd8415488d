"""On an NVIDIA GPU: attention, training, resuming and inference agree with the CPU. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import jumok
from conftest import TINY, assert_same, only, run_until
from jumok import text as reader
from jumok.corpora import stories
from jumok.errors import TrainingError
from jumok.inference.answer import answer
from jumok.inference.embed import embed
from jumok.inference.fill_mask import fill_mask
from jumok.interpret.ablation import ablation
from jumok.interpret.heads import repetition
from jumok.memory import free_memory
from jumok.models import Model
from jumok.nn.attention import ScaledDotProductAttention, attention_weights
from jumok.runs.events import Event, Finish, Notice, Step
from jumok.text import Table, Text
from jumok.training.trainer import Trainer
from jumok.view.trace import trace

GPU = "cuda"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    # Of torch's compiler, and at the first product of a process whose first pass is a backward one.
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "FutureWarning", "UserWarning")),
]
SHAPE: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 64, "context_length": 64}
RUN: dict[str, Any] = {
    **TINY, **SHAPE, "attention": "fused", "dropout": 0.0, "batch_size": 8, "steps": 12, "eval_every": 6,
}  # fmt: skip
TASKS = ("lm", "mlm", "classify", "seq2seq")


def material(task: str) -> Text | Table:
    """Something to learn."""
    if task in ("lm", "mlm"):
        return reader.from_string("".join(stories.write(30_000, seed=1)))
    if task == "classify":
        words = (("정말 ", "재미있어요", "좋음"), ("너무 ", "지루해요", "싫음"))
        rows = [(f"{very * (n % 5)}{word}", label) for n in range(150) for very, word, label in words]
        return reader.from_rows(("text", "label"), rows)
    rows = [(f"{7 * n}", " ".join("영일이삼사오육칠팔구"[int(digit)] for digit in f"{7 * n}")) for n in range(300)]
    return reader.from_rows(("source", "target"), rows)


def begin(out: Path, task: str = "lm", device: str = GPU, **settings: Any) -> Trainer:
    given = {**RUN, "task": task, **settings}
    if device == "cpu":
        given["attention"] = "chunked"
    if given.get("family", "modern") == "modern" and task in ("lm", "classify"):
        given["n_kv_head"] = 2
    return Trainer.start(out, material(task), device=device, **given)


def losses_of(events: list[Event]) -> list[float]:
    return [event.loss for event in only(events, Step)]


def train(out: Path, *given: Any, **settings: Any) -> list[float]:
    """Train a run to its end; its losses."""
    return losses_of(list(begin(out, *given, **settings).run()))


def assert_near(found: list[float], expected: list[float], limit: float) -> None:
    assert len(found) == len(expected) > 0
    assert max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(found, expected, strict=True)) <= limit


# --- attention --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["none", "padding", "scattered"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "s"), [(80, 80), (1, 33), (3, 6), (17, 5), (1, 1)])
@pytest.mark.parametrize(("h", "g", "d"), [(4, 4, 16), (6, 2, 64), (2, 1, 12)])
def test_the_kernels_of_a_gpu_compute_the_weights_times_the_values(
    h: int, g: int, d: int, t: int, s: int, causal: bool, kind: str, dtype: torch.dtype
) -> None:
    """Also where a query has no key: its row is zeros, and no gradient is NaN."""
    random = torch.Generator().manual_seed(1)
    sizes = ((h, t), (g, s), (g, s))
    exact = [torch.randn(2, n, length, d, generator=random, dtype=torch.float64).to(dtype) for n, length in sizes]
    mask = None
    if kind != "none":
        mask = torch.rand(2, *((1, 1) if kind == "padding" else (h, t)), s, generator=random) < 0.5
        mask[0, 0, 0] = False

    def computed(place: str, kernel: bool) -> list[Tensor]:
        q, k, v = (x.to(place, dtype if kernel else torch.float64).requires_grad_() for x in exact)
        seen = None if mask is None else mask.to(place)
        if kernel:
            out = ScaledDotProductAttention()(q, k, v, seen, causal)
        else:
            out = attention_weights(q, k, seen, causal) @ v.repeat_interleave(h // g, dim=1)
        return [out, *torch.autograd.grad(out.square().sum(), (q, k, v))]

    limit = {torch.float64: 1e-10, torch.float32: 5e-5, torch.bfloat16: 5e-2}[dtype]
    for ours, theirs in zip(computed(GPU, True), computed("cpu", False), strict=True):
        assert ours.isfinite().all()
        assert (ours.detach().cpu().double() - theirs).abs().max() <= limit * theirs.abs().max().clamp(min=1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sight", ["all", "causal", "masked"])
@pytest.mark.parametrize("length", [4, 80])
@pytest.mark.parametrize("where", ["q", "k", "v"])
def test_nan_stays_nan(where: str, length: int, sight: str, dtype: torch.dtype) -> None:
    """A kernel that takes a row of NaN for an empty one would hide that a model diverges."""
    random = torch.Generator().manual_seed(1)
    inputs = {name: torch.randn(1, 2, length, 16, generator=random).to(GPU, dtype) for name in "qkv"}
    inputs[where][0, 0, 3, 0] = float("nan")
    mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=GPU) if sight == "masked" else None
    out = ScaledDotProductAttention()(inputs["q"], inputs["k"], inputs["v"], mask, causal=sight == "causal")
    assert out[0, 0, 3].isnan().any()
    assert out[0, 1].isfinite().all()  # the other head is not affected


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("task", TASKS)
def test_a_gpu_trains_as_a_cpu_does(task: str, family: str, tmp_path: Path) -> None:
    if task == "seq2seq" and family == "modern":
        family = "original"
    given = {} if task == "mlm" else {"family": family}
    if task == "classify":
        given["pooling"] = "mean" if family == "classic" else "last"
    ours, theirs = train(tmp_path / "ours", task, **given), train(tmp_path / "theirs", task, "cpu", **given)
    assert_near(ours, theirs, 2e-3)
    assert_near(ours[:3], theirs[:3], 1e-4)
    rounded = train(tmp_path / "rounded", task, GPU, precision="bfloat16", **given)
    assert_near(rounded, ours, 0.05)


@pytest.mark.parametrize(
    "change", [{"accumulate": 2, "batch_size": 4}, {"recompute": True}, {"compile": "on"}], ids=str
)
def test_what_changes_memory_or_time_alone(change: dict[str, Any], tmp_path: Path) -> None:
    """With the same batches; compiled code is tried with dropout, which draws the same numbers."""
    usual = {"dropout": 0.1} if "accumulate" not in change else {}
    plain = train(tmp_path / "plain", **usual)
    events = list(begin(tmp_path / "changed", **{**usual, **change}).run())
    assert_near(losses_of(events), plain, 1e-3)
    assert only(events, Notice) == []


def test_adapters(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    train(tmp_path / "base")
    shape = {name: value for name, value in RUN.items() if name not in SHAPE}
    losses: list[list[float]] = []
    for device, attention in ((GPU, "fused"), ("cpu", "chunked")):
        given = {**shape, "lora": 4, "attention": attention, "init": tmp_path / "base", "device": device}
        losses.append(losses_of(list(Trainer.start(tmp_path / device, material("lm"), **given).run())))
    assert_near(*losses, 2e-3)


@pytest.mark.parametrize("change", [{}, {"precision": "bfloat16"}, {"context_length": 512}, {"compile": "on"}], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_a_resumed_run_is_the_same_run(task: str, change: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"dropout": 0.1, **change}
    if "context_length" in change:
        given |= {"batch_size": 4}
    list(begin(tmp_path / "whole", task, **given).run())
    run_until(begin(tmp_path / "stopped", task, **given), 5)
    list(Trainer.resume(tmp_path / "stopped", device=GPU).run())
    assert_same(tmp_path / "stopped", tmp_path / "whole")


def test_what_is_left_open_is_chosen_for_it(tmp_path: Path) -> None:
    given = {"precision": "auto", "attention": "auto", "compile": "auto", "steps": None, "minutes": 0.1}
    with begin(tmp_path / "run", **given) as trainer:
        assert trainer.plan is not None
        assert 0 < trainer.plan.seconds_per_step < 0.2
        assert (trainer.config.precision, trainer.config.attention, trainer.config.compile) == (
            "bfloat16", "fused", "off",
        )  # fmt: skip
        events = list(trainer.run())
    assert only(events, Finish)[0].reason == "done"
    assert not any("as foreseen" in notice.text for notice in only(events, Notice))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_that_this_process_keeps_is_free() -> None:
    """PyTorch keeps what it has freed, and the driver counts it as taken."""
    torch.cuda.empty_cache()
    before = free_memory(GPU)
    block = torch.ones(1 << 28, device=GPU)  # 1 GB
    during = free_memory(GPU)
    del block
    after = free_memory(GPU)
    assert before is not None
    assert during is not None
    assert after is not None
    assert before - during >= 1 << 30
    assert abs(after - before) < 1 << 28


def test_too_little_memory_in_a_step(tmp_path: Path) -> None:
    """The state before it is whole, and the run goes on where there is more."""
    run_until(begin(tmp_path / "run"), 5)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    trainer = Trainer.resume(tmp_path / "run", device=GPU)
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 16)) / total)
    try:
        with pytest.raises(TrainingError, match="too little memory for batch_size=8"):
            list(trainer.run())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    events = list(Trainer.resume(tmp_path / "run", device=GPU).run())
    assert only(events, Step)[0].step == 6


# --- trained models ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each task, trained for a few steps on the GPU."""
    folder = tmp_path_factory.mktemp("runs")
    for task in TASKS:
        train(folder / task, task, steps=60, eval_every=60)
    return {task: folder / task for task in TASKS}


def both(run: Path) -> tuple[Model, Model]:
    return jumok.load(run, GPU), jumok.load(run)


def test_a_gpt_writes_the_same(runs: dict[str, Path]) -> None:
    prompts = ["옛날 옛적에", "바람 부는", ""]
    for settings in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2}):
        ours, theirs = (
            [[each.text for each in one] for one in jumok.generate(model, prompts, tokens=100, seed=1, **settings)]
            for model in both(runs["lm"])
        )
        assert ours == theirs
    ours, theirs = ("".join(jumok.stream(model, "옛날", tokens=20, seed=1)) for model in both(runs["lm"]))
    assert ours == theirs
    one, other = (torch.from_numpy(embed(model, ["바람"])) for model in both(runs["lm"]))
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_other_models_answer_the_same(runs: dict[str, Path]) -> None:
    for beam in (1, 4):
        ours, theirs = (
            [[each.text for each in found] for found in answer(model, ["700", "77", "1"], beam=beam)]
            for model in both(runs["seq2seq"])
        )
        assert ours == theirs
    one, other = (fill_mask(model, "옛날 [MASK]에 [MASK]람이 살았어요.").text for model in both(runs["mlm"]))
    assert one == other
    ours, theirs = (
        [each.label for each in jumok.predict(model, ["재미있어요", "너무 지루해요"])]
        for model in both(runs["classify"])
    )
    assert ours == theirs


@pytest.mark.parametrize("task", TASKS)
def test_figures_and_views_are_the_same(task: str, runs: dict[str, Path]) -> None:
    given = material(task)
    found, expected = (numbers(jumok.evaluate(model, given)) for model in both(runs[task]))
    assert found == pytest.approx(expected, rel=2e-3, abs=1e-3)
    text, target = ("77", "칠 칠") if task == "seq2seq" else ("옛날 옛적에 살았어요.", None)
    one, other = (trace(model, text, target=target).attentions for model in both(runs[task]))
    for ours, theirs in zip(one, other, strict=True):
        assert np.allclose(ours.weights(1), theirs.weights(1), rtol=1e-2, atol=1e-3)
    if task != "classify":
        head = ("cross" if task == "seq2seq" else "self", 0, 1)
        ours, theirs = (ablation(model, text, [head], target=target) for model in both(runs[task]))
        assert ours.nats_without == pytest.approx(theirs.nats_without, rel=1e-3)
    if task == "lm":
        ours, theirs = (repetition(model) for model in both(runs["lm"]))
        torch.testing.assert_close(ours.induction, theirs.induction, rtol=1e-2, atol=1e-3)


def numbers(figures: Any) -> dict[str, float]:
    """The numbers among figures."""
    return {name: value for name, value in vars(figures).items() if isinstance(value, int | float)}
