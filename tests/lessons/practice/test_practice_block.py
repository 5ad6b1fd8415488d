"""The exercises on the block and its parts: each mistake is recognised by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.lessons.practice.child import judge
from jumok.lessons.practice.course import exercise

pytestmark = pytest.mark.slow

NORMED = "(x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias"
VARIANCE = "x.var(dim=-1, unbiased=False, keepdim=True)"
RETURN_NORMED = f"return {NORMED}"
FEED = 'hidden = F.gelu(self.up_proj(x), approximate="tanh")  # (B, T, 4C)'
KEPT = "kept = torch.rand_like(x) >= self.p  # bool, True with probability 1 - p"
SCALED = "return x * kept / (1 - self.p)"
EVALUATED = "        if not self.training:\n            return x\n"
ATTENTION = "x = x + self.drop(self.attention(self.attention_norm(x), causal=True))"
ATTENTION_PLAIN = "x = x + self.drop(self.attention(x, causal=True))"
FEED_FORWARD = "return x + self.drop(self.mlp(self.mlp_norm(x)))"
STEP = "        x = x + layer(x)\n"
LOOP = "    for layer in layers:\n        x = x + layer(x)\n    return x"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("layer_norm", "batch-norm", [("x.mean(dim=-1,", "x.mean(dim=(0, 1),"),
                                  (VARIANCE, VARIANCE.replace("-1", "(0, 1)"))]),
    ("layer_norm", "over-positions", [("x.mean(dim=-1,", "x.mean(dim=1,"), (VARIANCE, VARIANCE.replace("-1", "1"))]),
    ("layer_norm", "whole-tensor", [("x.mean(dim=-1, keepdim=True)", "x.mean()"), (VARIANCE, "x.var(unbiased=False)")]),
    ("layer_norm", "whole-tensor", [("x.mean(dim=-1,", "x.mean(dim=(1, 2),"),
                                    (VARIANCE, VARIANCE.replace("-1", "(1, 2)"))]),
    ("layer_norm", "unbiased", [(VARIANCE, "x.var(dim=-1, keepdim=True)")]),
    ("layer_norm", "unbiased", [("torch.sqrt(variance + self.eps)", "(x.std(-1, keepdim=True) + self.eps)")]),
    ("layer_norm", "eps-outside", [("torch.sqrt(variance + self.eps)", "(torch.sqrt(variance) + self.eps)")]),
    ("layer_norm", "no-eps", [("variance + self.eps", "variance + 1e-5")]),
    ("layer_norm", "unbiased", [("torch.sqrt(variance + self.eps)", "x.std(-1, keepdim=True)")]),
    ("layer_norm", "not-divided", [(VARIANCE, "((x - mean) ** 2).sum(-1, keepdim=True)")]),
    ("layer_norm", "bias-scaled", [("self.eps) * self.weight + self.bias",
                                        "self.eps) * self.weight + self.bias * self.weight")]),
    ("layer_norm", "missing-parameter", [("self.weight = ", "self.gamma = ")]),
    ("layer_norm", "parameter-shape", [("torch.ones(width)", "torch.ones(1)")]),
    ("layer_norm", "not-defined", [("(variance + self.eps)", "(variance + eps)")]),
    ("layer_norm", "no-root", [("torch.sqrt(variance + self.eps)", "(variance + self.eps)")]),
    ("layer_norm", "mean-kept", [("return (x - mean)", "return x")]),
    ("layer_norm", "mean-kept", [("return (x - mean)", "return x"), (VARIANCE, "x.square().mean(-1, keepdim=True)")]),
    ("layer_norm", "no-parameters", [(" * self.weight + self.bias", "")]),
    ("layer_norm", "initial-values", [("torch.ones(width)", "torch.randn(width)")]),
    ("layer_norm", "plain-tensor", [("nn.Parameter(torch.ones(width))", "torch.ones(width)")]),
    ("layer_norm", "in-place", [(RETURN_NORMED, f"x -= mean\n        {RETURN_NORMED.replace('(x - mean)', 'x')}")]),
    ("layer_norm", "broadcast-shapes", [("x.mean(dim=-1, keepdim=True)", "x.mean(dim=-1)")]),
    ("mlp", "no-activation", [(FEED, "hidden = self.up_proj(x)")]),
    ("mlp", "activation-last", [("return self.down_proj(hidden)", "return F.gelu(self.down_proj(hidden))")]),
    ("mlp", "activation-last", [(FEED, "hidden = self.up_proj(x)"),
                                ("return self.down_proj(hidden)", "return F.relu(self.down_proj(hidden))")]),
    ("mlp", "other-activation", [(FEED, "hidden = torch.sigmoid(self.up_proj(x))"),
                                 ("from torch import Tensor, nn", "import torch\nfrom torch import Tensor, nn")]),
    ("mlp", "nothing-registered", [("self.up_proj = ", "up_proj = "), ("self.down_proj = ", "down_proj = ")]),
    ("mlp", "no-bias", [("nn.Linear(width, 4 * width)", "nn.Linear(width, 4 * width, bias=False)")]),
    ("mlp", "sizes-exchanged", [("nn.Linear(width, 4 * width)", "nn.Linear(4 * width, width)")]),
    ("mlp", "not-a-tensor", [(FEED, "hidden = nn.ReLU(self.up_proj(x))")]),
    ("mlp", "softmax", [(FEED, "hidden = self.up_proj(x).softmax(-1)")]),
    ("mlp", "residual-inside", [("return self.down_proj", "return x + self.down_proj")]),
    ("residual", "x-lost", [("x = x + layer(x)", "x = layer(x)")]),
    ("residual", "first-x", [(LOOP, "    return x + sum(layer(x) for layer in layers)")]),
    ("residual", "adds-first-x", [(LOOP, f"    first = x\n{LOOP.replace('x + layer', 'first + layer')}")]),
    ("residual", "once-around", [(LOOP, f"    first = x\n{LOOP.replace('x + layer', 'layer')} + first")]),
    ("residual", "first-layer-only", [("    return x", "        return x")]),
    ("residual", "x-lost", [("x = x + layer(x)", "x = layer(x)\n        x = x + layer(x)")]),
    ("residual", "last-layer-only", [(LOOP, LOOP.replace("x = x", "y = x").replace("return x", "return y"))]),
    ("residual", "in-place", [("x = x + layer(x)", "x += layer(x)")]),
    ("residual", "in-place", [(LOOP, f"    x = x.clone()\n{LOOP.replace('x = x + layer(x)', 'x += layer(x)')}")]),
    ("residual", "no-gradient", [("x = x + layer(x)", "x = x.detach() + layer(x)")]),
    ("dropout", "scaled-in-eval", [("return x\n", "return x * (1 - self.p)\n")]),
    ("dropout", "active-in-eval", [(EVALUATED, "")]),
    ("dropout", "inactive", [("if not self.training", "if True")]),
    ("dropout", "fixed-mask",
     [(KEPT, "kept = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) > self.p")]),
    ("dropout", "device", [("torch.rand_like(x)", "torch.rand(x.shape)")]),
    ("dropout", "ready-made", [("if not self.training:\n", "if not self.training:\n            nn.Dropout(0.1)\n")]),
    ("dropout", "one-choice", [("torch.rand_like(x)", "torch.rand(1)")]),
    ("dropout", "same-mask", [("torch.rand_like(x)", "torch.rand_like(x[0])")]),
    ("dropout", "shared-mask", [("torch.rand_like(x)", "torch.rand_like(x[:, :1])")]),
    ("dropout", "shared-mask", [("torch.rand_like(x)", "torch.rand_like(x[..., :1])")]),
    ("dropout", "p-reversed", [(">= self.p", "< self.p")]),
    ("dropout", "share", [("torch.rand_like(x)", "torch.randn_like(x)")]),
    ("dropout", "no-scale", [(SCALED, "return x * kept")]),
    ("dropout", "wrong-scale", [(SCALED, "return x * kept / self.p")]),
    ("dropout", "in-place", [(SCALED, "x *= kept\n        return x / (1 - self.p)")]),
    ("block", "not-causal", [("(x), causal=True)", "(x), causal=False)")]),
    ("block", "post-norm", [(ATTENTION, "x = self.attention_norm(x + self.drop(self.attention(x, causal=True)))"),
                            (FEED_FORWARD, "return self.mlp_norm(x + self.drop(self.mlp(x)))")]),
    ("block", "no-residual", [("x = x + self.drop", "x = self.drop")]),
    ("block", "no-residual", [("return x + self.drop", "return self.drop")]),
    ("block", "shared-norm", [("self.mlp_norm = LayerNorm(width)", "self.mlp_norm = self.attention_norm")]),
    ("block", "one-norm", [("self.mlp(self.mlp_norm(x))", "self.mlp(self.attention_norm(x))")]),
    ("block", "adds-normed", [(ATTENTION, f"x = self.attention_norm(x)\n        {ATTENTION_PLAIN}")]),
    ("block", "adds-normed", [(FEED_FORWARD, "x = self.mlp_norm(x)\n        return x + self.drop(self.mlp(x))")]),
    ("block", "no-norm", [("self.mlp(self.mlp_norm(x))", "self.mlp(x)")]),
    ("block", "parallel", [(ATTENTION, f"first = x\n        {ATTENTION}"),
                           ("self.mlp_norm(x)", "self.mlp_norm(first)")]),
    ("block", "mlp-without-x", [(ATTENTION, f"a{ATTENTION[1:].replace('x + ', '', 1)}"),
                                (FEED_FORWARD, "return x + a + self.drop(self.mlp(self.mlp_norm(a)))")]),
    ("block", "norm-of-result", [(ATTENTION, "x = x + self.attention_norm(self.attention(x, causal=True))"),
                                 (FEED_FORWARD, "return x + self.mlp_norm(self.mlp(x))")]),
    ("block", "attention-line", [("(self.attention_norm(x),", "(x + self.attention_norm(x),")]),
    ("block", "mlp-line", [("self.mlp(self.mlp_norm(x))", "self.mlp(x + self.mlp_norm(x))")]),
    ("block", "no-bias", [(", qkv_bias=True", "")]),
    ("block", "mlp-first", [(ATTENTION, f"x = {FEED_FORWARD.removeprefix('return ')}"),
                            (FEED_FORWARD, f"return {ATTENTION.removeprefix('x = ')}")]),
    ("block", "earlier-exercise",
     [('MLP = mine("mlp").MLP', 'class MLP(mine("mlp").MLP):\n    forward = lambda self, x: x')]),
    ("block", "no-attention-dropout", [("self.drop(self.attention(self.attention_norm(x), causal=True))",
                                        "self.attention(self.attention_norm(x), causal=True)")]),
    ("block", "no-mlp-dropout", [("self.drop(self.mlp(self.mlp_norm(x)))", "self.mlp(self.mlp_norm(x))")]),
    ("block", "no-weight-dropout", [(", dropout=dropout)", ")")]),
    ("block", "dropout-on-sum", [("x = x + self.drop(self.attention(self.attention_norm(x), causal=True))",
                                  "x = self.drop(x + self.attention(self.attention_norm(x), causal=True))")]),
    ("block", "in-place", [(ATTENTION, ATTENTION.replace("x = x +", "x +="))]),
]  # fmt: skip


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
