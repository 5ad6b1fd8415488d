"""The exercises on queries, keys and values, the causal mask and one head: mistakes as replacements."""

from __future__ import annotations

SCORES = "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])"
UNSCALED = "scores = q @ k.transpose(-2, -1)"
FILL = 'scores.masked_fill(~mask, float("-inf"))'
MASK = "torch.ones(t, s, dtype=torch.bool).tril(diagonal=s - t)"
OUTPUT = "return scores.softmax(dim=-1) @ v"
HEAD_FILL = 'scores.masked_fill(~self.mask[:t, :t], float("-inf"))'
BUFFER = 'self.register_buffer("mask", causal_mask(context_length, context_length))'
DROPPED = "self.dropout(scores.softmax(dim=-1))"
LINEAR = "self.q_proj = nn.Linear(n_embd, head_dim, bias=False)"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("query_key_value", "not-scaled", [(SCORES, UNSCALED)]),
    ("query_key_value", "multiplied", [(" / math.sqrt", " * math.sqrt")]),
    ("query_key_value", "no-root", [("math.sqrt(q.shape[-1])", "q.shape[-1]")]),
    ("query_key_value", "wrong-width", [("math.sqrt(q.shape[-1])", "math.sqrt(q.shape[1])")]),
    ("query_key_value", "scaled-after",
     [(SCORES, UNSCALED), ("scores.softmax(dim=-1)", "scores.softmax(dim=-1) / math.sqrt(q.shape[-1])")]),
    ("query_key_value", "weights-returned", [("return weights @ v", "return weights")]),
    ("query_key_value", "values-returned", [("return weights @ v", "return v")]),
    ("causal_mask", "values-returned", [("return scores.softmax(dim=-1) @ v", "return v")]),
    ("head", "values-returned", [("return weights @ v", "return v")]),
    ("query_key_value", "several-values", [("return weights @ v", "return weights @ v, weights")]),
    ("query_key_value", "not-defined", [("math.sqrt", "sqrt")]),
    ("query_key_value", "dimension", [("dim=-1", "dim=1")]),
    ("query_key_value", "no-softmax", [("scores.softmax(dim=-1)", "scores")]),
    ("query_key_value", "query-and-key", [("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")]),
    ("query_key_value", "key-and-value", [("k.transpose", "v.transpose"), ("weights @ v", "weights @ k")]),
    ("query_key_value", "keys-averaged", [("weights @ v", "weights @ k")]),
    ("query_key_value", "in-place", [("    scores =", "    q /= math.sqrt(q.shape[-1])\n    scores =")]),
    ("query_key_value", "product-shapes", [("k.transpose(-2, -1)", "k")]),
    ("causal_mask", "sees-future", [(MASK, "torch.ones(t, s, dtype=torch.bool).triu()")]),
    ("causal_mask", "mask-inverted", [(MASK, f"~{MASK}")]),
    ("causal_mask", "top-left", [("diagonal=s - t", "diagonal=0")]),
    ("causal_mask", "diagonal", [("diagonal=s - t", "diagonal=s - t - 1")]),
    ("causal_mask", "sees-future", [("causal_mask(q.shape", "causal_mask(q.shape[-2], k.shape[-2]).flip(-1, -2)"),
                                    ("[-2], k.shape[-2])  # (T, S)", "")]),
    ("causal_mask", "diagonal", [(FILL, "scores.masked_fill(torch.ones_like(mask).triu(), -math.inf)")]),
    ("causal_mask", "top-left", [(FILL, "scores.masked_fill(~torch.ones_like(mask).tril(), -math.inf)")]),
    ("causal_mask", "mask-inverted", [("~mask", "mask")]),
    ("causal_mask", "not-masked", [(f"scores = {FILL}", FILL)]),
    ("causal_mask", "mask-after-softmax",
     [(f"    scores = {FILL}\n", ""), (OUTPUT, "return scores.softmax(-1) * mask @ v")]),
    ("causal_mask", "mask-after-softmax",
     [(f"    scores = {FILL}\n", ""), (OUTPUT, 'return scores.softmax(-1).masked_fill(~mask, -math.inf) @ v')]),
    ("causal_mask", "plus-infinity", [('float("-inf")', "math.inf")]),
    ("causal_mask", "zero-times-infinity", [(FILL, "scores + ~mask * -math.inf")]),
    ("causal_mask", "not-boolean", [(MASK, "torch.ones(t, s).tril(diagonal=s - t)")]),
    ("causal_mask", "counted-from-front",
     [("causal_mask(q.shape[-2], k.shape[-2])", "causal_mask(q.shape[1], k.shape[1])")]),
    ("causal_mask", "counted-from-front", [("k.transpose(-2, -1)", "k.transpose(1, 2)")]),
    ("causal_mask", "filled-with-zero", [('float("-inf")', "0")]),
    ("causal_mask", "not-scaled", [(SCORES, UNSCALED)]),
    ("causal_mask", "wrong-width", [("math.sqrt(q.shape[-1])", "math.sqrt(k.shape[-2])")]),
    ("causal_mask", "dimension", [("softmax(dim=-1)", "softmax(dim=-2)")]),
    # Two mistakes at once: the mask comes first.
    ("causal_mask", "mask-inverted", [(SCORES, UNSCALED), ("~mask", "mask")]),
    ("head", "wrong-width", [("math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])")]),
    ("head", "not-scaled", [(" / math.sqrt(q.shape[-1])", "")]),
    ("head", "multiplied", [(" / math.sqrt", " * math.sqrt")]),
    ("head", "sees-future", [("~self.mask[:t, :t]", "~self.mask[:t, :t].T")]),
    ("head", "mask-inverted", [("~self", "self")]),
    ("head", "not-masked", [(f"        scores = {HEAD_FILL}\n", "")]),
    ("head", "mask-not-cut", [("[:t, :t]", "")]),
    ("head", "dimension", [("softmax(dim=-1)", "softmax(dim=1)")]),
    ("head", "query-and-key", [("q @ k.transpose(-2, -1)", "k @ q.transpose(-2, -1)")]),
    ("head", "key-and-value", [("self.k_proj(x), self.v_proj(x)", "self.v_proj(x), self.k_proj(x)")]),
    ("head", "mask-as-parameter",
     [(BUFFER, "self.mask = nn.Parameter(causal_mask(context_length, context_length), requires_grad=False)")]),
    ("head", "mask-as-attribute", [(BUFFER, "self.mask = causal_mask(context_length, context_length)")]),
    ("head", "no-buffer", [(BUFFER, ""), ("self.mask[:t, :t]", "causal_mask(t, t)")]),
    ("head", "no-attribute", [("self.dropout = nn.Dropout(dropout)", "dropout = nn.Dropout(dropout)")]),
    ("head", "no-super-init", [("        super().__init__()\n", "        pass\n")]),
    ("head", "bias", [(LINEAR, LINEAR.replace(", bias=False", ""))]),
    ("head", "missing-parameter", [(LINEAR, LINEAR.replace("q_proj", "query"))]),
    ("head", "extra-parameter", [(LINEAR, f"{LINEAR}\n        self.o_proj = nn.Linear(head_dim, n_embd)")]),
    ("head", "no-dropout", [(DROPPED, "scores.softmax(dim=-1)")]),
    ("head", "no-dropout", [(DROPPED, "self.dropout(scores).softmax(dim=-1)")]),
    ("head", "random", [("nn.Dropout(dropout)", "nn.Dropout()")]),
    ("head", "no-gradient", [("return weights @ v", "return weights.detach() @ v")]),
    ("head", "sizes-exchanged", [(LINEAR, LINEAR.replace("n_embd, head_dim", "head_dim, n_embd"))]),
    ("head", "broadcast-shapes", [("t = x.shape[1]", "t = x.shape[0]")]),
    ("head", "dropout-in-eval", [("self.dropout = nn.Dropout(dropout)", "self.rate = dropout"),
                                 (DROPPED, "nn.functional.dropout(scores.softmax(dim=-1), self.rate)")]),
    ("head", "dropout-on-output",
     [(DROPPED, "scores.softmax(dim=-1)"), ("return weights @ v", "return self.dropout(weights @ v)")]),
    # Of several heads: these two modules are tested with them.
    ("split_heads", "transposed-heads", [("k.transpose(-2, -1)", "k.transpose(1, 2)")]),
    ("split_heads", "mask-size", [("causal_mask(q.shape[-2], k.shape[-2])", "causal_mask(q.shape[1], k.shape[1])")]),
    ("head", "in-place", [("        t = x.shape[1]", "        x *= 2\n        t = x.shape[1]")]),
]  # fmt: skip
