"""The exercises on the block and its parts: each mistake is recognised by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistakes_block import FEED, SCALED, VARIANCE

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("mlp", [(FEED, "hidden = F.gelu(self.up_proj(x))")]),
        ("mlp", [(FEED, "hidden = F.relu(self.up_proj(x))")]),
        ("dropout", [(SCALED, "return torch.where(kept, x / (1 - self.p), 0.0)")]),
        ("residual", [("x = x + layer(x)", "x = torch.add(layer(x), x)"),
                      ("from torch import Tensor", "import torch\nfrom torch import Tensor")]),
        ("layer_norm", [(VARIANCE, "((x - mean) ** 2).mean(dim=-1, keepdim=True)")]),
    ],
)  # fmt: skip
def test_other_right_solutions_pass(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


@pytest.mark.parametrize("activation", ["F.relu(self.up_proj(x))", "F.gelu(self.up_proj(x))"])
def test_a_block_takes_the_activation_of_the_readers_mlp(tmp_path: Path, activation: str) -> None:
    earlier, block = exercise("mlp"), exercise("block")
    changed = earlier.solution.replace('F.gelu(self.up_proj(x), approximate="tanh")', activation)
    assert changed != earlier.solution
    (tmp_path / earlier.file).write_text(changed, encoding="utf-8")
    path = tmp_path / block.file
    path.write_text(block.solution, encoding="utf-8")
    verdict = judge(path, "block")
    assert verdict["status"] == "right", verdict
