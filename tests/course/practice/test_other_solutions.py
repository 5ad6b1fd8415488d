"""Other right solutions pass, and what several exercises have to do with each other."""

from __future__ import annotations

from pathlib import Path

import mistakes_block as block
import mistakes_models as models
import pytest
from mistakes_attention import MASK, SCORES
from mistakes_cross_attention import FILL, TOTAL
from mistakes_positions import ARANGE, COMPARED, DOUBLED, PLACED, SINES

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge

pytestmark = pytest.mark.slow


def test_the_wrong_width_is_named_with_its_number(judged) -> None:
    verdict = judged("head", ("math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])"))
    assert "n_embd = 12" in verdict["faults"][0]["words"]["en"]
    assert "n_embd = 12" in verdict["faults"][0]["words"]["ko"]
    assert "D = 5" in verdict["faults"][0]["words"]["en"]


def test_other_ways_to_write_it_pass_attention(judged) -> None:
    """A mask of numbers, one that is built with triu, and a very negative number for -inf."""
    for old, new in (
        ("causal_mask(context_length, context_length))", "torch.tril(torch.ones(context_length, context_length)))"),
        (
            "causal_mask(context_length, context_length))",
            "causal_mask(context_length, context_length), persistent=False)",
        ),
    ):
        fill = ("~self.mask[:t, :t]", "self.mask[:t, :t] == 0")
        assert judged("head", (old, new), fill)["status"] == "right"
    assert judged("head", ('float("-inf")', "-1e9"))["status"] == "right"
    assert (
        judged("causal_mask", (MASK, "~torch.triu(torch.ones(t, s), diagonal=s - t + 1).bool()"))["status"] == "right"
    )
    assert (
        judged("query_key_value", (SCORES, "scores = torch.einsum('btd,bsd->bts', q, k) * k.size(2) ** -0.5"))["status"]
        == "right"
    )


def test_other_ways_to_write_it_pass_cross_attention(judged) -> None:
    """A mask that also zeroes after -1e9, torch.where, and a product with the mask for the mean."""
    assert judged("padding_mask", ('float("-inf")', "-1e9"))["status"] == "right"
    assert judged("padding_mask", (FILL, "torch.where(mask, scores, -math.inf)"))["status"] == "right"
    assert judged("masked_mean", (TOTAL, "(x * mask[:, :, None]).sum(dim=1)"))["status"] == "right"
    assert judged("masked_mean", (TOTAL, "torch.einsum('bsc,bs->bc', x, mask.float())"))["status"] == "right"


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("mlp", [(block.FEED, "hidden = F.gelu(self.up_proj(x))")]),
        ("mlp", [(block.FEED, "hidden = F.relu(self.up_proj(x))")]),
        ("dropout", [(block.SCALED, "return torch.where(kept, x / (1 - self.p), 0.0)")]),
        ("residual", [("x = x + layer(x)", "x = torch.add(layer(x), x)"),
                      ("from torch import Tensor", "import torch\nfrom torch import Tensor")]),
        ("layer_norm", [(block.VARIANCE, "((x - mean) ** 2).mean(dim=-1, keepdim=True)")]),
    ],
)  # fmt: skip
def test_other_right_solutions_pass_block(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


@pytest.mark.parametrize("activation", ["F.relu(self.up_proj(x))", "F.gelu(self.up_proj(x))"])
def test_a_block_takes_the_activation_of_the_readers_mlp(tmp_path: Path, activation: str) -> None:
    earlier, block = exercise("mlp"), exercise("block")
    changed = earlier.solution("en").replace('F.gelu(self.up_proj(x), approximate="tanh")', activation)
    assert changed != earlier.solution("en")
    (tmp_path / earlier.file).write_text(changed, encoding="utf-8")
    path = tmp_path / block.file
    path.write_text(block.solution("en"), encoding="utf-8")
    verdict = judge(path, "block")
    assert verdict["status"] == "right", verdict


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("learned_positions", [(PLACED, "return x + self.table.weight[: x.shape[1]]")]),
        ("learned_positions", [(ARANGE, "torch.arange(x.shape[1]).to(x.device)")]),
        (
            "sinusoidal_positions",
            [(SINES, "table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)")],
        ),
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
def test_other_right_solutions_pass_positions(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("gpt", [(models.BLOCKS, "nn.Sequential(*(Block(n_embd, n_head, dropout) for _ in range(n_layer)))"),
                 (models.LOOP, "        x = self.blocks(x)\n")]),
        ("gpt", [("bias=False)\n", "bias=False)\n        self.head.weight = self.token_embedding.weight\n")]),
        ("gpt", [(models.EMBEDDED, models.PLACED), ("LearnedPositions(context", "nn.Embedding(context"), models.TORCH]),
        ("bigram", [(models.ENTROPY, "F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))")]),
        ("bigram", [(models.ENTROPY, "F.cross_entropy(logits.transpose(1, 2), targets)")]),
        ("bigram", [(models.ENTROPY, "-logits.log_softmax(-1).gather(-1, targets[..., None]).mean()")]),
    ],
)  # fmt: skip
def test_other_right_solutions_pass_models(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


def test_a_block_that_sees_the_future_is_found_in_the_gpt(tmp_path: Path) -> None:
    """The reader's own block is in the reader's GPT."""
    block, gpt = exercise("block"), exercise("gpt")
    changed = block.solution("en").replace("(x), causal=True)", "(x), causal=False)")
    assert changed != block.solution("en")
    (tmp_path / block.file).write_text(changed, encoding="utf-8")
    path = tmp_path / gpt.file
    path.write_text(gpt.solution("en"), encoding="utf-8")
    assert [fault["mistake"] for fault in judge(path, "gpt")["faults"]] == ["earlier-file", "sees-the-future"]
