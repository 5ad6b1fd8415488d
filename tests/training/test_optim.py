"""Who updates which parameter, how the rates move, and how far a gradient may reach."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from jumok.config import GPTConfig, TrainConfig
from jumok.models.gpt import GPT
from jumok.training import optim
from jumok.training.optim import (
    Mean,
    Muon,
    clip_gradients,
    make_optimizers,
    orthogonal,
    rate,
    set_rate,
    stacked_orthogonal,
)


def tiny(family: str = "modern", tie: bool = True) -> GPT:
    torch.manual_seed(0)
    return GPT(
        GPTConfig(vocab_size=20, family=family, n_layer=2, n_head=2, n_embd=8, context_length=8, tie_embeddings=tie)  # type: ignore[arg-type]
    )


def names_in(model: nn.Module, group: dict[str, object]) -> set[str]:
    ids = {id(parameter) for parameter in group["params"]}  # type: ignore[attr-defined]
    return {name for name, parameter in model.named_parameters() if id(parameter) in ids}


# --- parameter groups ---


@pytest.mark.parametrize("tie", [True, False])
def test_muon_takes_the_matrices_inside_the_blocks(tie: bool) -> None:
    model = tiny(tie=tie)
    muon, adamw, _ = make_optimizers(model, TrainConfig(optimizer="muon"))
    assert isinstance(muon, Muon)
    assert isinstance(adamw, AdamW)
    (inner,) = muon.param_groups
    outer, vectors = adamw.param_groups
    assert names_in(model, inner) == {
        f"blocks.{n}.{name}.weight"
        for n in range(2)
        for name in ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj",
                     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    }  # fmt: skip
    assert names_in(model, outer) == {"token_embedding.weight"} | (set() if tie else {"head.weight"})
    assert all(parameter.dim() == 1 for parameter in vectors["params"])


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
@pytest.mark.parametrize("family", ["modern", "classic"])
def test_each_parameter_is_updated_by_exactly_one(family: str, optimizer: str) -> None:
    model = tiny(family)
    optimizers = make_optimizers(model, TrainConfig(optimizer=optimizer))  # type: ignore[arg-type]
    updated = [
        id(p) for o in optimizers if not isinstance(o, Mean) for group in o.param_groups for p in group["params"]
    ]
    assert sorted(updated) == sorted(id(p) for p in model.parameters())


UNCOMPILED = """
import sys
from pathlib import Path
from jumok.training.trainer import Trainer

settings = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 64, "batch_size": 2, "steps": 4, "compile": "off",
    "attention": "chunked",
}
text = "강아지가 뜰에서 뛰어놀았습니다. " * 200
trainer = Trainer.start(Path(sys.argv[1]), text, **settings, device="cpu")
for event in trainer.run():
    if event.step == 2:
        trainer.request_stop()
list(Trainer.resume(Path(sys.argv[1]), device="cpu").run())
print("torch._dynamo" in sys.modules)
"""


@pytest.mark.slow
def test_an_uncompiled_run_imports_no_compiler(tmp_path: Path) -> None:
    """Optimizers of PyTorch, custom operators and `set_stance` import the compiler: 1.8 s of each start."""
    command = [sys.executable, "-c", UNCOMPILED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


def test_only_matrices_decay() -> None:
    model = tiny("classic")
    (adamw,) = make_optimizers(model, TrainConfig(optimizer="adamw", weight_decay=0.3))
    for group in adamw.param_groups:
        dims = {parameter.dim() for parameter in group["params"]}
        assert group["weight_decay"] == (0.3 if dims == {2} else 0.0)
    assert make_optimizers(tiny(), TrainConfig(weight_decay=0.3))[0].param_groups[0]["weight_decay"] == 0.3


# --- Muon ---


def with_singular_values(values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(rows, len(values), generator=random))
    right, _ = torch.linalg.qr(torch.randn(columns, len(values), generator=random))
    return left @ torch.diag(values) @ right.T


@pytest.mark.parametrize(("rows", "columns", "scale"), [(48, 48, 1.0), (120, 48, 1e-12), (48, 120, 1e12)])
def test_the_direction_is_orthogonal_about(rows: int, columns: int, scale: float) -> None:
    """Singular values over a factor of thirty come out near one, and the singular vectors stay."""
    matrix = with_singular_values(torch.logspace(0, -1.5, 48), rows, columns)
    found = orthogonal(matrix * scale).float()
    sizes = torch.linalg.svdvals(found)
    assert sizes.min() > 0.85
    assert sizes.max() < 1.15
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ found @ right.T  # diagonal if the vectors stayed
    assert (inside - torch.diag(inside.diag())).norm() < 0.1 * inside.norm()


@pytest.mark.parametrize(("rows", "columns"), [(48, 48), (48, 120), (150, 150), (150, 330), (330, 150)])
def test_all_ways_to_iterate_agree(rows: int, columns: int) -> None:
    """Long matrices are multiplied once, and of symmetric products blocks above the diagonal are computed alone."""
    sides = sorted((rows, columns))
    wide = x = with_singular_values(torch.logspace(0, -2, sides[0]), *sides).double()
    x = 0.97 * x / torch.linalg.svdvals(x).pow(4).sum().pow(0.25)
    for a, b, c in optim.POLYNOMIALS:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    found = orthogonal(wide if rows < columns else wide.T, torch.float64)
    torch.testing.assert_close(found, x if rows < columns else x.T, rtol=0, atol=1e-9)
    single = orthogonal((wide if rows < columns else wide.T).float(), None)
    torch.testing.assert_close(single.double(), found, rtol=0, atol=1e-4)


@pytest.mark.parametrize("columns", [128, 352])
def test_directions_in_bfloat16_are_near_those_in_float64(columns: int) -> None:
    """Four iterations of a long matrix on x xᵀ alone made 3 of singular values that should be 1.08."""
    matrix = with_singular_values(torch.logspace(0, -2, 128), 128, columns)
    found, exact = orthogonal(matrix).double(), orthogonal(matrix, torch.float64)
    assert torch.linalg.svdvals(found).max() < 1.12
    assert (found - exact).norm() < 0.06 * exact.norm()


def test_a_matrix_of_rank_one_stays_small() -> None:
    """Its singular value is 1 after scaling, and came out as 1.004: the polynomials made 1e5 of it."""
    matrix = torch.outer(torch.linspace(1, 2, 64), torch.linspace(-1, 1, 64))
    for scale in torch.logspace(-3, 3, 30):
        assert orthogonal(matrix * scale).float().norm() < 1.5


def test_no_spectrum_explodes() -> None:
    """The first polynomial has a peak between its ends; with no room above it, 0.1% of rounding made 27 of 1."""
    random = torch.Generator().manual_seed(8)
    hard = [torch.tensor([1, 0.8149, 0.3774, 0.3271, 0.0937, 0.4238, 0.2829, 0.4069])]
    for values in hard + [torch.rand(8, generator=random) for _ in range(300)]:
        assert orthogonal(torch.diag(values)).float().abs().max() < 1.2


@pytest.mark.parametrize("most", [1, 1 << 22])
def test_matrices_of_one_shape_are_computed_together(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the direction that it has alone, in the order given, also beside its transpose and other shapes."""
    monkeypatch.setattr(optim, "STACK", most)
    torch.manual_seed(0)
    matrices = [torch.randn(shape) for shape in [(4, 6), (6, 4), (4, 6), (5, 5), (6, 4), (1, 7), (5, 5)]]
    found = list(stacked_orthogonal(iter(matrices), torch.float64))
    assert len(found) == len(matrices)
    for matrix, direction in zip(matrices, found, strict=True):
        torch.testing.assert_close(direction, orthogonal(matrix, torch.float64), rtol=0, atol=1e-12)


def test_muon_is_momentum_orthogonalised() -> None:
    """Two steps by hand: Nesterov's momentum, decay before the step, tall matrices move further."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(8, 2))
    optimizer, hand, mean = Muon([weight], lr=0.1, momentum=0.9, weight_decay=0.5), weight.detach().clone(), 0.0
    for _ in range(2):
        weight.grad = torch.randn(8, 2)
        mean = 0.9 * mean + 0.1 * weight.grad
        hand = hand * (1 - 0.1 * 0.5) - 0.1 * 2 * orthogonal(0.1 * weight.grad + 0.9 * mean).float()
        optimizer.step()
    torch.testing.assert_close(weight.detach(), hand, rtol=0, atol=5e-3)  # the direction has the digits of bfloat16


# --- rates ---


def test_warm_up_rises_from_zero_to_the_peak() -> None:
    config = TrainConfig(warmup=0.1)
    assert [rate(config, progress) for progress in (0.0, 0.025, 0.05, 0.1)] == pytest.approx([0, 0.25, 0.5, 1.0])


@pytest.mark.parametrize("final", [0.0, 0.1])
@pytest.mark.parametrize(
    ("schedule", "middle"), [("linear", 0.5), ("cosine", 0.5), ("constant", 0.0)], ids=["linear", "cosine", "constant"]
)
def test_schedules(schedule: str, middle: float, final: float) -> None:
    """`middle`: how much of the way down is done half-way."""
    config = TrainConfig(schedule=schedule, warmup=0.2, final_rate=final)  # type: ignore[arg-type]
    end = 1.0 if schedule == "constant" else final
    assert rate(config, 0.2) == pytest.approx(1.0)
    assert rate(config, 0.6) == pytest.approx(1 - (1 - final) * middle)
    assert rate(config, 1.0) == pytest.approx(end)
    falling = [rate(config, n / 100) for n in range(20, 101)]
    assert falling == sorted(falling, reverse=True)


def test_set_rate_is_a_share_of_each_peak() -> None:
    optimizers = make_optimizers(tiny(), TrainConfig(learning_rate=0.1, matrix_learning_rate=0.2))
    set_rate(optimizers, 0.5)
    set_rate(optimizers, 0.25)  # of the peak, not of what it was
    assert [group["lr"] for o in optimizers[:2] for group in o.param_groups] == pytest.approx([0.05, 0.025, 0.025])


# --- the mean of parameters ---


def test_a_mean_changes_no_parameter() -> None:
    """Parameters of step n count by n to the power of 8, about: product form of Shamir and Zhang (2013)."""
    weight = nn.Parameter(torch.zeros(()))
    mean = Mean([weight])
    with mean.applied():
        assert weight == 0  # there is none before the first step
    values = [float(n * n) for n in range(1, 40)]
    for value in values:
        with torch.no_grad():
            weight.fill_(value)
        mean.step()
    counts = [math.comb(n + 7, 8) for n in range(1, 40)]
    expected = sum(c * v for c, v in zip(counts, values, strict=True)) / sum(counts)
    with mean.applied():
        assert weight.item() == pytest.approx(expected, rel=1e-5)
    assert weight.item() == values[-1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"keep": "last"}, False),  # to learn a text by heart
        ({"optimizer": "adamw"}, False),
        ({"optimizer": "adamw", "stop_at": 1.0}, True),
        ({"task": "mlm"}, False),
        ({"task": "mlm", "stop_at": 1.0}, True),
    ],
)
def test_language_models_with_muon_and_runs_to_a_goal_have_a_mean(settings: dict[str, Any], expected: bool) -> None:
    assert isinstance(make_optimizers(tiny(), TrainConfig(**settings))[-1], Mean) == expected


def test_parameters_come_back_after_an_error() -> None:
    weight = nn.Parameter(torch.zeros(()))
    mean = Mean([weight])
    for value in (1.0, 2.0):
        with torch.no_grad():
            weight.fill_(value)
        mean.step()
    with pytest.raises(KeyError), mean.applied():
        raise KeyError(weight.item())
    assert weight == 2


# --- clipping ---


def with_gradients(*values: float) -> nn.Module:
    model = nn.Linear(len(values), 1, bias=False)
    model.weight.grad = torch.tensor([values])
    return model


def test_clipping_shrinks_to_the_limit() -> None:
    model = with_gradients(3.0, 4.0)
    assert clip_gradients(model, 1.0) == pytest.approx(5.0)
    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize("limit", [0.0, 5.1])
def test_clipping_leaves_small_gradients_alone(limit: float) -> None:
    model = with_gradients(3.0, 4.0)
    assert clip_gradients(model, limit) == pytest.approx(5.0)
    assert torch.equal(model.weight.grad, torch.tensor([[3.0, 4.0]]))  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0.0, 1.0])
def test_a_norm_that_is_not_finite_is_told(limit: float) -> None:
    assert not math.isfinite(clip_gradients(with_gradients(1.0, math.nan), limit))


def test_the_schedule_of_2017() -> None:
    """Up in a straight line, then with one over the root of the step (arXiv 1706.03762, section 5.3)."""
    config = TrainConfig(schedule="invsqrt", warmup=0.04)
    assert rate(config, 0.02) == pytest.approx(0.5)
    assert rate(config, 0.04) == pytest.approx(1.0)
    assert rate(config, 0.16) == pytest.approx(0.5)
    assert rate(config, 1.0) == pytest.approx(0.2)
