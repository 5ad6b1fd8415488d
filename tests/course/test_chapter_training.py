"""Chapter 13: the formulas are those of PyTorch and of the production trainer."""

from __future__ import annotations

import pytest
import torch

from jumok.config import TrainConfig
from jumok.course.chapters import training
from jumok.models.losses import cross_entropies
from jumok.training import optim


@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3)], ids=str)
def test_the_gradient_of_the_logits(shape: tuple[int, ...]) -> None:
    logits = torch.randn(*shape, 7, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(7, shape)
    cross_entropies(logits, targets).mean().backward()
    torch.testing.assert_close(training.logit_gradient(logits.detach(), targets), logits.grad)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adamw(decay: float) -> None:
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    optimizer = torch.optim.AdamW([parameter], lr=0.03, betas=(0.8, 0.9), weight_decay=decay)
    mine, state = parameter.detach().clone(), training.adam_begin(parameter.detach())
    for _ in range(4):
        parameter.grad = torch.randn_like(parameter)
        mine, state = training.adamw_step(
            mine, parameter.grad, state, rate=0.03, beta1=0.8, beta2=0.9, weight_decay=decay
        )
        optimizer.step()
        torch.testing.assert_close(mine, parameter.detach())


@pytest.mark.parametrize("shape", [(6, 6), (8, 3), (3, 8)], ids=str)
def test_muon(shape: tuple[int, int]) -> None:
    """Production rounds to bfloat16 and leaves the singular values near 1; the direction is the same."""
    torch.manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(shape))
    optimizer = optim.Muon([parameter], lr=0.5, momentum=0.9, weight_decay=0.1)
    mine, mean = parameter.detach().clone(), torch.zeros(shape)
    for _ in range(2):
        parameter.grad = torch.randn(shape)
        before = mine
        mine, mean = training.muon_step(mine, parameter.grad, mean, rate=0.5, momentum=0.9, weight_decay=0.1)
        optimizer.step()
        moved = (mine - before).norm()
        assert (parameter - mine).norm() < 0.2 * moved
        mine = parameter.detach().clone()


def test_singular_values_come_near_one() -> None:
    values = training.singular_values_after(torch.linspace(0.005, 1, 1_000, dtype=torch.float64))
    assert 0.90 < values.min() < values.max() < 1.09
    one = torch.tensor([0.3])
    assert torch.equal(training.singular_values_after(one, iterations=0), one)


@pytest.mark.parametrize("limit", [0.1, 1.0, 1e6])
def test_clipping(limit: float) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    model(torch.randn(5, 3)).square().sum().backward()
    mine, norm = training.clipped([p.grad.clone() for p in model.parameters()], limit)
    assert norm == pytest.approx(optim.clip_gradients(model, limit), rel=1e-5)
    for ours, p in zip(mine, model.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-6)
    assert training.clipped([torch.zeros(2)], limit)[1] == 0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
@pytest.mark.parametrize("warmup", [0.0, 0.02, 0.5])
def test_the_learning_rate(schedule: str, warmup: float) -> None:
    config = TrainConfig(steps=10, schedule=schedule, warmup=warmup)
    for step in range(21):
        mine = training.learning_rate(step / 20, peak=3.0, warmup=warmup, schedule=schedule)
        assert mine == pytest.approx(3.0 * optim.rate(config, step / 20), abs=1e-12)
