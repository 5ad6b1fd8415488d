"""Other right solutions pass, and what several exercises have to do with each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge
from jumok.course.practice.differences import relation

pytestmark = pytest.mark.slow


# The same mistakes, written in another way than in the tables: their results are recognised.
OTHERWISE = [
    ("softmax", "no-exp", [("return e / e.sum(dim=-1, keepdim=True)",
                            "return torch.stack([row / row.sum(-1)[:, None] for row in scores])")]),
    ("softmax", "dimension", [("shifted = scores - scores.max(dim=-1, keepdim=True).values",
                               "return torch.softmax(scores.transpose(1, 2), -1).transpose(1, 2)")]),
    ("query_key_value", "not-scaled", [("q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
                                        "torch.einsum('btd,bsd->bts', q, k)"), ("import math",
                                                "import math\nimport torch")]),
    ("query_key_value", "wrong-width", [("/ math.sqrt(q.shape[-1])", "* 5 ** -0.5")]),
    ("causal_mask", "mask-inverted", [('scores.masked_fill(~mask, float("-inf"))',
            "torch.where(mask, -math.inf, scores)")]),
    ("causal_mask", "mask-inverted", [('scores.masked_fill(~mask, float("-inf"))',
            "torch.where(mask, -math.inf, scores)"),
                                      (" / math.sqrt(q.shape[-1])", "")]),
    ("head", "sees-future", [("self.mask[:t, :t]", "torch.ones(t, t).triu().bool()")]),
    ("split_heads", "view-without-transpose", [("return x.view(batch, t, n_head, width // n_head).transpose(1, 2)",
                                                "return x.reshape(batch, n_head, t, -1)")]),
    ("output_projection", "not-masked", [("        if causal:\n", "        if t < 0:\n")]),
    ("layer_norm", "unbiased", [("x.var(dim=-1, unbiased=False, keepdim=True)",
                                 "((x - mean) ** 2).sum(-1, keepdim=True) / (x.shape[-1] - 1)")]),
    ("block", "parallel", [("x = x + self.drop(self.attention(self.attention_norm(x), causal=True))",
                            "y = self.drop(self.attention(self.attention_norm(x), causal=True))"),
                           ("return x + ", "return x + y + ")]),
    ("rotary_positions", "backwards", [("x * cos + turned * sin", "x * cos - turned * sin")]),
    ("adamw", "no-bias-correction", [("m_hat = m / (1 - beta1**t)", "m_hat = m"), ("v_hat.sqrt()", "v.sqrt()")]),
    ("temperature", "multiplied", [("logits / temperature", "torch.mul(temperature, logits)")]),
    ("top_p", "each-by-itself", [("    ordered, places", "    few = logits.softmax(-1) < p\n"
                                  "    return torch.where(few, -torch.inf, logits)\n    ordered, places")]),
    ("kv_cache", "positions-restart", [("torch.arange(past, past + t)", "torch.tensor(range(t))")]),
    ("beam_search", "worst-kept", [("sorted(candidates, key=lambda candidate: candidate[0], reverse=True)",
                                    "sorted(candidates, key=lambda one: one[0])")]),
    ("bpe_merges", "words-once", [("words.items()", "dict.fromkeys(words, 1).items()")]),
    ("advantage", "without-itself", [("rewards - rewards.mean(dim=1, keepdim=True)",
                                      "rewards - (rewards.sum(1)[:, None] - rewards) / (rewards.shape[1] - 1)")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("slug", "mistake", "changes"), [pytest.param(*one, id=f"{one[0]}-{one[1]}") for one in OTHERWISE]
)
def test_a_mistake_is_recognised_however_it_is_written(judged, slug: str, mistake: str, changes: list) -> None:
    assert judged(slug, *changes)["faults"][0]["mistake"] == mistake


@pytest.mark.parametrize(
    ("slug", "change", "said"),
    [
        pytest.param("softmax", ("return e / e.sum(dim=-1, keepdim=True)",
                                 "return (e / e.sum(dim=-1, keepdim=True)).half()"), "torch.float16", id="coarser"),
        pytest.param("softmax", ("return e / e.sum(dim=-1, keepdim=True)",
                                 "return (e / e.sum(dim=-1, keepdim=True)).numpy()"), "ndarray", id="an-array"),
        pytest.param("softmax", ("return e / e.sum(dim=-1, keepdim=True)",
                                 "return e / e.sum(dim=-1, keepdim=True),"), "A comma at the end", id="a-comma"),
        pytest.param("get_batch", ("return x, y", "return list(x), list(y)"), "tuple (list, list)", id="lists"),
        pytest.param("generate", ("ids = torch.cat((ids, new), dim=1)", "ids.append(new)"), "torch.cat", id="append"),
        pytest.param("chat_template", ("ids += [role_ids[role], *encode(content), end]",
                                       "ids += [role_ids[role], encode(content), end]"), "(int, list)", id="nested"),
    ],
)  # fmt: skip
def test_a_result_of_another_form_is_told_as_such(judged, slug: str, change: tuple[str, str], said: str) -> None:
    """What comes back is named. An array raised a ValueError in the check, and float16 only had wrong values."""
    assert said in judged(slug, change)["faults"][0]["words"]["en"]


def test_a_sum_that_is_written_as_one_is_not_called_wrong() -> None:
    right = torch.rand(3, 5, dtype=torch.float64).softmax(-1)
    for wrong, found in ((0.1, "row-sums"), (2e-4, None)):
        given = right.clone()
        given[1, 2] += wrong
        said = relation(given, right, 1e-5)
        assert (said and said[0]) == found


def test_a_wrong_line_of_the_block_is_named(judged) -> None:
    for old, line in (
        ("self.attention_norm(x)", "attention(attention_norm(x))"),
        ("self.mlp_norm(x)", "mlp(mlp_norm(x))"),
    ):
        fault = judged("block", (old, f"1.5 * {old}"))["faults"][0]
        assert fault["mistake"] is None
        assert f"x = x + drop({line})" in fault["words"]["en"].replace(", causal=True", "")


def test_the_mistakes_of_an_earlier_file_do_not_hide_those_of_this_one(judged, tmp_path: Path) -> None:
    """The check of our solution with a mistake uses the reader's earlier files, as the reader's own does."""
    mlp = exercise("mlp")
    (tmp_path / mlp.file).write_text(mlp.solution("en").replace(', approximate="tanh"', ""), encoding="utf-8")
    fault = judged("block", ("self.mlp(self.mlp_norm(x))", "self.mlp(x)"))["faults"][0]
    assert fault["mistake"] == "no-norm"


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
        judged(
            "causal_mask",
            (
                "torch.ones(t, s, dtype=torch.bool).tril(diagonal=s - t)",
                "~torch.triu(torch.ones(t, s), diagonal=s - t + 1).bool()",
            ),
        )["status"]
        == "right"
    )
    assert (
        judged(
            "query_key_value",
            (
                "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])",
                "scores = torch.einsum('btd,bsd->bts', q, k) * k.size(2) ** -0.5",
            ),
        )["status"]
        == "right"
    )


def test_other_ways_to_write_it_pass_cross_attention(judged) -> None:
    """A mask that also zeroes after -1e9, torch.where, and a product with the mask for the mean."""
    assert judged("padding_mask", ('float("-inf")', "-1e9"))["status"] == "right"
    assert (
        judged("padding_mask", ('scores.masked_fill(~mask, float("-inf"))', "torch.where(mask, scores, -math.inf)"))[
            "status"
        ]
        == "right"
    )
    assert (
        judged(
            "masked_mean", ("x.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)", "(x * mask[:, :, None]).sum(dim=1)")
        )["status"]
        == "right"
    )
    assert (
        judged(
            "masked_mean",
            ("x.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)", "torch.einsum('bsc,bs->bc', x, mask.float())"),
        )["status"]
        == "right"
    )


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("mlp", [('F.gelu(self.up_proj(x), approximate="tanh")', "F.gelu(self.up_proj(x))")]),
        ("mlp", [('F.gelu(self.up_proj(x), approximate="tanh")', "F.relu(self.up_proj(x))")]),
        ("dropout", [("return x * kept / (1 - self.p)", "return torch.where(kept, x / (1 - self.p), 0.0)")]),
        ("residual", [("x = x + layer(x)", "x = torch.add(layer(x), x)"),
                      ("from torch import Tensor", "import torch\nfrom torch import Tensor")]),
        ("layer_norm", [("x.var(dim=-1, unbiased=False, keepdim=True)",
                "((x - mean) ** 2).mean(dim=-1, keepdim=True)")]),
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
        (
            "learned_positions",
            [("return x + self.table(positions)  # (B, T, C)", "return x + self.table.weight[: x.shape[1]]")],
        ),
        ("learned_positions", [("torch.arange(x.shape[1], device=x.device)", "torch.arange(x.shape[1]).to(x.device)")]),
        (
            "sinusoidal_positions",
            [
                (
                    "table[:, 0::2] = torch.sin(angle)\n    table[:, 1::2] = torch.cos(angle)",
                    "table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)",
                )
            ],
        ),
        ("rotary_positions", [("angle = torch.cat((angle, angle), dim=-1)  # (T, D)", "angle = angle.repeat(1, 2)")]),
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
        ("embedding", [("(ids[..., None] == torch.arange(vocab_size)).float()", "torch.eye(vocab_size)[ids]")]),
    ],
)
def test_other_right_solutions_pass_positions(judged, slug: str, replacements: list[tuple[str, str]]) -> None:
    verdict = judged(slug, *replacements)
    assert verdict["status"] == "right", verdict


@pytest.mark.parametrize(
    ("slug", "replacements"),
    [
        ("gpt", [("nn.ModuleList(Block(n_embd, n_head, dropout) for _ in range(n_layer))",
                "nn.Sequential(*(Block(n_embd, n_head, dropout) for _ in range(n_layer)))"),
                 ("        for block in self.blocks:\n            x = block(x)\n", "        x = self.blocks(x)\n")]),
        ("gpt", [("bias=False)\n", "bias=False)\n        self.head.weight = self.token_embedding.weight\n")]),
        ("gpt", [("x = self.drop(self.positions(self.token_embedding(ids)))  # (B, T, C)",
                "x = self.token_embedding(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))\n"
                  "        x = self.drop(x)"), ("LearnedPositions(context", "nn.Embedding(context"),
                 ("from torch import Tensor, nn\n", "import torch\nfrom torch import Tensor, nn\n")]),
        ("bigram", [("F.cross_entropy(logits.flatten(0, 1), targets.flatten())",
                "F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))")]),
        ("bigram", [("F.cross_entropy(logits.flatten(0, 1), targets.flatten())",
                "F.cross_entropy(logits.transpose(1, 2), targets)")]),
        ("bigram", [("F.cross_entropy(logits.flatten(0, 1), targets.flatten())",
                "-logits.log_softmax(-1).gather(-1, targets[..., None]).mean()")]),
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
