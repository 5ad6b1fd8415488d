"""The exercises on whole models: each mistake is recognised by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from mistakes_models import BLOCKS, EMBEDDED, ENTROPY, LOOP, PLACED, TORCH

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("gpt", [(BLOCKS, "nn.Sequential(*(Block(n_embd, n_head, dropout) for _ in range(n_layer)))"),
                 (LOOP, "        x = self.blocks(x)\n")]),
        ("gpt", [("bias=False)\n", "bias=False)\n        self.head.weight = self.token_embedding.weight\n")]),
        ("gpt", [(EMBEDDED, PLACED), ("LearnedPositions(context", "nn.Embedding(context"), TORCH]),
        ("bigram", [(ENTROPY, "F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))")]),
        ("bigram", [(ENTROPY, "F.cross_entropy(logits.transpose(1, 2), targets)")]),
        ("bigram", [(ENTROPY, "-logits.log_softmax(-1).gather(-1, targets[..., None]).mean()")]),
    ],
)  # fmt: skip
def test_other_right_solutions_pass(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


def test_a_block_that_sees_the_future_is_found_in_the_gpt(tmp_path: Path) -> None:
    """The reader's own block is in the reader's GPT."""
    block, gpt = exercise("block"), exercise("gpt")
    changed = block.solution.replace("(x), causal=True)", "(x), causal=False)")
    assert changed != block.solution
    (tmp_path / block.file).write_text(changed, encoding="utf-8")
    path = tmp_path / gpt.file
    path.write_text(gpt.solution, encoding="utf-8")
    assert [fault["mistake"] for fault in judge(path, "gpt")["faults"]] == ["earlier-file", "sees-the-future"]
