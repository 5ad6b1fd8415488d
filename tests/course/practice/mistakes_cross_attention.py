"""The exercises on cross-attention and padding: mistakes as replacements."""

from __future__ import annotations

Q, K, V = "self.q_proj(x)", "self.k_proj(context)", "self.v_proj(context)"
ROOT = "math.sqrt(q.shape[-1])"
LENGTHS = "torch.arange(s) < lengths[:, None]"
SHAPED = "return mask[:, None, None, :]"
FILL = 'scores.masked_fill(~mask, float("-inf"))'
RETURN = "return weights.masked_fill(empty, 0.0) @ v"
TOTAL = "x.masked_fill(~mask[:, :, None], 0.0).sum(dim=1)"
COUNT = "mask.sum(dim=1, keepdim=True).clamp(min=1)"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("cross_attention", "context-ignored", [(K, "self.k_proj(x)"), (V, "self.v_proj(x)")]),
    ("cross_attention", "sources-exchanged",
     [(Q, "self.q_proj(context)"), (K, "self.k_proj(x)"), (V, "self.v_proj(x)")]),
    ("cross_attention", "values-from-x", [(V, "self.v_proj(x)")]),
    ("cross_attention", "keys-from-x", [(K, "self.k_proj(x)")]),
    ("cross_attention", "causal",
     [("# (B, H, T, S)",
       "\n        scores = scores.masked_fill(scores.new_ones(scores.shape[-2:]).triu(1) == 1, -math.inf)")]),
    ("cross_attention", "key-and-value",
     [(f"k = split_heads({K}", f"v = split_heads({K}"), (f"v = split_heads({V}", f"k = split_heads({V}")]),
    ("cross_attention", "query-and-key", [("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")]),
    ("cross_attention", "wrong-width", [(ROOT, "math.sqrt(x.shape[-1])")]),
    ("cross_attention", "not-scaled", [(f" / {ROOT}", "")]),
    ("cross_attention", "not-projected", [("self.o_proj(merge_heads(scores.softmax(dim=-1) @ v))",
                                           "merge_heads(scores.softmax(dim=-1) @ v)")]),
    ("cross_attention", "missing-parameter", [("self.q_proj = ", "self.query = ")]),
    ("cross_attention", "bias", [("self.v_proj = nn.Linear(d_context, n_embd, bias=False)",
                                  "self.v_proj = nn.Linear(d_context, n_embd)")]),
    ("cross_attention", "in-place", [("        q = split", "        context += 1\n        q = split")]),
    ("padding_mask", "mask-inverted", [(LENGTHS, "torch.arange(s) >= lengths[:, None]")]),
    ("padding_mask", "one-too-many", [(LENGTHS, "torch.arange(s) <= lengths[:, None]")]),
    ("padding_mask", "mask-shape", [(SHAPED, "return mask")]),
    ("padding_mask", "mask-shape", [(SHAPED, "return mask[:, None]")]),
    ("padding_mask", "mask-inverted", [("masked_fill(~mask", "masked_fill(mask")]),
    ("padding_mask", "not-masked", [(FILL, "scores")]),
    ("padding_mask", "mask-after-softmax", [(f"{FILL}.softmax(dim=-1)", "scores.softmax(dim=-1) * mask")]),
    ("padding_mask", "filled-with-zero", [('float("-inf")', "0.0")]),
    ("padding_mask", "not-scaled", [(f" / {ROOT}", "")]),
    ("padding_mask", "empty-row-nan", [(RETURN, "return weights @ v")]),
    ("padding_mask", "padding-averaged", [('float("-inf")', "-1e9"), (RETURN, "return weights @ v")]),
    ("padding_mask", "nan-hidden", [(RETURN, "return weights.nan_to_num() @ v")]),
    ("padding_mask", "nan-gradient", [(FILL, '(scores + torch.zeros(mask.shape).masked_fill(~mask, float("-inf")))')]),
    ("padding_mask", "in-place", [("scores = q @", "q /= 2\n    scores = q @")]),
    ("masked_mean", "mean-over-padding", [("return total / count", "return x.mean(dim=1)")]),
    ("masked_mean", "divided-by-s", [(COUNT, "mask.shape[1]")]),
    ("masked_mean", "one-count", [(COUNT, "mask.sum()")]),
    ("masked_mean", "not-divided", [("return total / count", "return total")]),
    ("masked_mean", "mask-inverted", [("~mask", "mask"), (COUNT, "(~mask).sum(dim=1, keepdim=True)")]),
    ("masked_mean", "mask-inverted", [("~mask", "mask")]),
    ("masked_mean", "batch-averaged", [("return total / count", "return x[mask].mean(dim=0)")]),
    ("masked_mean", "batch-averaged", [("return total / count", "return x[mask].mean(dim=1)")]),
    ("masked_mean", "one-too-many", [("clamp(min=1)", "add(1)")]),
    ("masked_mean", "kept-dim", [("return total / count", "return (total / count)[:, None]")]),
    ("masked_mean", "empty-row-nan", [(".clamp(min=1)", "")]),
    ("masked_mean", "in-place", [("x.masked_fill(", "x.masked_fill_(")]),
]  # fmt: skip
