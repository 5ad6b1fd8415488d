"""The exercises on positions and embeddings: each mistake is recognised by name."""

from __future__ import annotations

import pytest
from mistakes_positions import ARANGE, COMPARED, DOUBLED, PLACED, SINES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("learned_positions", [(PLACED, "return x + self.table.weight[: x.shape[1]]")]),
        ("learned_positions", [(ARANGE, "torch.arange(x.shape[1]).to(x.device)")]),
        ("sinusoidal_positions", [(SINES, "table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)")]),
        ("rotary_positions", [(DOUBLED, "angle = angle.repeat(1, 2)")]),
        (
            "rotary_positions",
            [
                (
                    "    return x * cos",
                    "    cos, sin = cos[:, : a.shape[-1]], sin[:, : a.shape[-1]]\n"
                    "    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)\n    return x * cos",
                )
            ],
        ),
        ("embedding", [(COMPARED, "torch.eye(vocab_size)[ids]")]),
    ],
)
def test_other_right_solutions_pass(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict
