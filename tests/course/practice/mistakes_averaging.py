"""The exercises on shapes and on averaging the past: mistakes as replacements."""

from __future__ import annotations

SPLIT = "x.view(batch, t, n, width // n)"
SWAP = "x.transpose(-2, -1)"
SUM = "scores.sum(dim=-1)"
MATRIX = "triangle / triangle.sum(dim=1, keepdim=True)"
PAST = "averaging_matrix(x.shape[1]) @ x"
MASK = "torch.tril(torch.ones(t, t)) == 1"
MASKED = 'scores.masked_fill(~past, float("-inf"))'
SOFTMAX = "masked.softmax(dim=-1)"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("shapes", "part-and-width", [(SPLIT, "x.view(batch, t, width // n, n)")]),
    ("shapes", "view-across", [(SPLIT, "x.view(batch, n, t, width // n)")]),
    ("shapes", "view-for-transpose", [(SWAP, "x.view(x.shape[0], x.shape[2], x.shape[1])")]),
    ("shapes", "all-reversed", [(SWAP, "x.permute(2, 1, 0)")]),
    ("shapes", "wrong-dim", [(SUM, "scores.sum(dim=1)")]),
    ("shapes", "batch-dim", [(SUM, "scores.sum(dim=0)")]),
    ("shapes", "kept-dim", [(SUM, "scores.sum(dim=-1, keepdim=True)")]),
    ("shapes", "all-summed", [(SUM, "scores.sum()")]),
    ("shapes", "columns-scaled", [("factors[:, None]", "factors")]),
    ("shapes", "in-place", [("return x * factors[:, None]", "x *= factors[:, None]\n    return x")]),
    ("shapes", "no-return", [(f"return {SWAP}", SWAP)]),
    ("shapes", "several-values", [(SPLIT, "x.chunk(n, dim=-1)")]),
    ("shapes", "float-size", [(SPLIT, "x.view(batch, t, n, width / n)")]),
    ("shapes", "unpacked", [("batch, t, width = x.shape", "t, width = x.shape; batch = 1")]),
    ("shapes", "view-size", [(SPLIT, "x.view(batch, t, n, width)")]),
    ("averaging_matrix", "sees-future", [("= torch.tril", "= torch.triu")]),
    ("averaging_matrix", "sees-future", [(MATRIX, "(triangle / triangle.sum(dim=1, keepdim=True)).T")]),
    ("averaging_matrix", "not-divided", [(MATRIX, "triangle")]),
    ("averaging_matrix", "divided-by-columns", [(MATRIX, "triangle / triangle.sum(dim=0, keepdim=True)")]),
    ("averaging_matrix", "no-keepdim", [(MATRIX, "triangle / triangle.sum(dim=1)")]),
    ("averaging_matrix", "divided-by-all", [(MATRIX, "triangle / triangle.sum()")]),
    ("averaging_matrix", "divided-by-t", [(MATRIX, "triangle / t")]),
    ("averaging_matrix", "no-triangle", [(MATRIX, "torch.ones(t, t) / t")]),
    ("averaging_matrix", "diagonal", [("torch.ones(t, t))", "torch.ones(t, t), diagonal=-1)")]),
    ("averaging_matrix", "diagonal", [(MATRIX, "triangle.tril(-1) / triangle.sum(dim=1, keepdim=True)")]),
    ("averaging_matrix", "elementwise", [(PAST, "averaging_matrix(x.shape[1]) * x")]),
    ("averaging_matrix", "all-averaged", [(PAST, "x.mean(dim=1)")]),
    ("averaging_matrix", "transposed", [(PAST, "averaging_matrix(x.shape[1]).T @ x")]),
    ("averaging_matrix", "wrong-side", [(PAST, "x @ averaging_matrix(x.shape[1])")]),
    ("averaging_softmax", "sees-future", [("torch.tril", "torch.triu")]),
    ("averaging_softmax", "diagonal", [("torch.ones(t, t))", "torch.ones(t, t), diagonal=-1)")]),
    ("averaging_softmax", "plus-infinity", [('float("-inf")', 'float("inf")')]),
    ("averaging_softmax", "zero-times-infinity", [(MASKED, 'scores + torch.ones(t, t).triu(1) * float("-inf")')]),
    ("averaging_softmax", "zero-scores", [(MASKED, '(scores * past).masked_fill(scores * past == 0, float("-inf"))')]),
    ("averaging_softmax", "mask-inverted", [("~past", "past")]),
    ("averaging_softmax", "not-masked", [(MASKED, "scores")]),
    ("averaging_softmax", "mask-after-softmax", [(SOFTMAX, "scores.softmax(dim=-1) * past")]),
    ("averaging_softmax", "mask-after-softmax",
     [(SOFTMAX, 'scores.softmax(dim=-1).masked_fill(~past, float("-inf"))')]),
    ("averaging_softmax", "filled-with-zero", [('float("-inf")', "0.0")]),
    ("averaging_softmax", "dimension", [(SOFTMAX, "masked.softmax(dim=-2)")]),
    ("averaging_softmax", "dimension", [(SOFTMAX, "masked.softmax(dim=0)")]),
    ("averaging_softmax", "no-softmax", [(SOFTMAX, "masked")]),
    ("averaging_softmax", "scores-ignored", [(MASKED, 'torch.zeros_like(scores).masked_fill(~past, float("-inf"))')]),
    ("averaging_softmax", "in-place", [("masked = scores.masked_fill", "masked = scores.masked_fill_")]),
    ("averaging_softmax", "not-boolean", [(" == 1  #", "  #")]),
    ("averaging_softmax", "no-dim", [(SOFTMAX, "masked.softmax()")]),
]  # fmt: skip
