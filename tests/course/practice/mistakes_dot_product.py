"""The exercises on softmax and attention without parameters: mistakes as replacements."""

from __future__ import annotations

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("softmax", "dimension", [("e / e.sum(dim=-1, keepdim=True)", "e / e.sum(dim=-2, keepdim=True)"),
                              ("scores.max(dim=-1", "scores.max(dim=-2")]),
    ("softmax", "dimension", [("e / e.sum(dim=-1, keepdim=True)", "e / e.sum(dim=0, keepdim=True)"),
                              ("scores.max(dim=-1", "scores.max(dim=0")]),
    ("softmax", "dimension", [("e / e.sum(dim=-1, keepdim=True)", "e / e.sum(dim=0, keepdim=True)")]),
    ("softmax", "dimension", [("e / e.sum(dim=-1, keepdim=True)", "e / e.sum(dim=1, keepdim=True)")]),
    ("softmax", "maximum-dimension", [("scores.max(dim=-1", "scores.max(dim=0")]),
    ("softmax", "maximum-dimension", [("scores.max(dim=-1", "scores.max(dim=1")]),
    ("softmax", "not-divided", [("return e / e.sum(dim=-1, keepdim=True)", "return e")]),
    ("softmax", "no-exp", [("torch.exp(shifted)", "shifted")]),
    ("softmax", "all-entries", [("e / e.sum(dim=-1, keepdim=True)", "e / e.sum()")]),
    ("softmax", "no-exp", [("return e / e.sum(dim=-1, keepdim=True)", "return scores / scores.sum(-1, keepdim=True)")]),
    ("softmax", "overflow", [("scores - scores.max(dim=-1, keepdim=True).values", "scores")]),
    ("softmax", "in-place", [("    shifted = scores", "    scores -= 1\n    shifted = scores")]),
    ("softmax", "no-return", [("return e", "e")]),
    ("dot_product_attention", "scaled",
     [("= x @ x.transpose(-2, -1)", "= x @ x.transpose(-2, -1) / x.shape[-1] ** 0.5")]),
    ("dot_product_attention", "weights-returned", [("return weights @ x", "return weights")]),
    ("dot_product_attention", "batch-mixed",
     [("scores =", "x, shape = x.flatten(0, 1), x.shape\n    scores ="), ("weights @ x", "(weights @ x).view(shape)")]),
    ("dot_product_attention", "dimension", [("softmax(scores)", "scores.softmax(dim=1)")]),
    ("dot_product_attention", "no-softmax", [("softmax(scores)", "scores")]),
    ("dot_product_attention", "product-shapes", [("x.transpose(-2, -1)", "x")]),
    ("dot_product_attention", "in-place", [("    scores =", "    x /= 2\n    scores =")]),
]  # fmt: skip
