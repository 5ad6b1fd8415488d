"""The exercises on several heads: mistakes as replacements."""

from __future__ import annotations

LIST = "nn.ModuleList([Head(n_embd, head_dim, context_length, dropout) for _ in range(n_head)])"
CAT = "torch.cat([head(x) for head in self.heads], dim=-1)"
SPLIT = "x.view(batch, t, n_head, width // n_head).transpose(1, 2)"
MERGE = "heads.transpose(1, 2).contiguous().view(batch, t, n_head * head_dim)"
THREE = "split_heads(q, n_head), split_heads(k, n_head), split_heads(v, n_head)"
ROOT = "math.sqrt(q.shape[-1])"
BUFFER = 'self.register_buffer("mask", causal_mask(context_length, context_length))'
O_PROJ = "self.o_proj(merge_heads(weights @ v))"
DROPPED = "self.dropout(scores.softmax(dim=-1))"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("split_heads", "values-returned", [("scores.softmax(dim=-1) @ v", "v")]),
    ("module_list_heads", "python-list", [(LIST, LIST.removeprefix("nn.ModuleList(").removesuffix(")"))]),
    ("module_list_heads", "sequential", [("nn.ModuleList([Head", "nn.Sequential(*[Head")]),
    ("module_list_heads", "no-module-list", [("range(n_head)", "range(n_head + 1)")]),
    ("module_list_heads", "same-head", [(" for _ in range(n_head)]", "] * n_head")]),
    ("module_list_heads", "heads-added", [(CAT, "sum(head(x) for head in self.heads)")]),
    ("module_list_heads", "heads-added", [(CAT, "torch.stack([head(x) for head in self.heads]).mean(dim=0)")]),
    ("module_list_heads", "heads-stacked", [("torch.cat", "torch.stack")]),
    ("module_list_heads", "joined-along-wrong-dim", [("dim=-1", "dim=1")]),
    ("module_list_heads", "joined-along-wrong-dim", [(", dim=-1", "")]),
    ("module_list_heads", "numbers-alternate",
     [(CAT, "torch.stack([head(x) for head in self.heads], -1).flatten(-2)")]),
    ("module_list_heads", "no-dropout", [("context_length, dropout) for", "context_length) for")]),
    ("module_list_heads", "in-place", [("return torch", "x *= 2\n        return torch")]),
    ("split_heads", "view-without-transpose", [(SPLIT, "x.view(batch, n_head, t, width // n_head)")]),
    ("split_heads", "not-transposed", [(SPLIT, "x.view(batch, t, n_head, width // n_head)")]),
    ("split_heads", "width-and-heads", [(SPLIT, "x.view(batch, t, width // n_head, n_head).permute(0, 3, 1, 2)")]),
    ("split_heads", "not-contiguous", [(".contiguous()", "")]),
    ("split_heads", "merged-without-transpose", [(MERGE, "heads.reshape(batch, t, n_head * head_dim)")]),
    ("split_heads", "width-and-heads", [(MERGE, "heads.permute(0, 2, 3, 1).reshape(batch, t, n_head * head_dim)")]),
    ("split_heads", "heads-added", [(MERGE, "heads.sum(dim=1)")]),
    ("split_heads", "merged-without-transpose",
     [("return merge_heads(scores.softmax(dim=-1) @ v)",
       "out = scores.softmax(dim=-1) @ v\n    return out.reshape(out.shape[0], out.shape[2], -1)")]),
    ("split_heads", "wrong-width", [(ROOT, "math.sqrt(n_head * q.shape[-1])")]),
    ("split_heads", "not-scaled", [(f" / {ROOT}", "")]),
    ("split_heads", "dimension", [("softmax(dim=-1)", "softmax(dim=1)")]),
    ("split_heads", "sees-future", [("k.shape[-2])", "k.shape[-2]).T")]),
    ("split_heads", "key-and-value",
     [(THREE, "split_heads(q, n_head), split_heads(v, n_head), split_heads(k, n_head)")]),
    ("split_heads", "sizes-exchanged", [("batch, n_head, t, head_dim = heads", "batch, t, n_head, head_dim = heads")]),
    ("split_heads", "not-merged",
     [("merge_heads(scores.softmax(dim=-1) @ v)", "scores.softmax(dim=-1) @ v")]),
    ("split_heads", "transposed-heads", [("k.transpose(-2, -1)", "k.transpose(1, 2)")]),
    ("split_heads", "mask-size", [("causal_mask(q.shape[-2], k.shape[-2])", "causal_mask(q.shape[1], k.shape[1])")]),
    ("split_heads", "not-split", [(THREE, "split_heads(q, 1), split_heads(k, 1), split_heads(v, 1)")]),
    ("output_projection", "wrong-width", [(ROOT, "math.sqrt(x.shape[-1])")]),
    ("output_projection", "multiplied", [(f" / {ROOT}", f" * {ROOT}")]),
    ("output_projection", "not-projected", [(O_PROJ, "merge_heads(weights @ v)")]),
    ("output_projection", "projected-twice", [(O_PROJ, f"self.o_proj({O_PROJ})")]),
    ("output_projection", "merged-without-transpose", [(O_PROJ, "self.o_proj((weights @ v).reshape(x.shape))")]),
    ("output_projection", "not-masked", [("        if causal:\n", "        if not causal:\n")]),
    ("output_projection", "always-masked", [("        if causal:\n", "        if True:\n")]),
    ("output_projection", "no-bias", [("self.q_proj = nn.Linear(d_in, d_out, bias=qkv_bias)",
                                       "self.q_proj = nn.Linear(d_in, d_out, bias=False)")]),
    ("output_projection", "bias", [("self.k_proj = nn.Linear(d_in, d_out, bias=qkv_bias)",
                                    "self.k_proj = nn.Linear(d_in, d_out)")]),
    ("output_projection", "missing-parameter", [("self.o_proj = nn.Linear(d_out, d_out)",
                                                 "self.o_proj = nn.Linear(d_out, d_out, bias=False)")]),
    ("output_projection", "extra-parameter",
     [("self.n_head = n_head", "self.n_head = n_head\n        self.norm = nn.LayerNorm(3)")]),
    ("output_projection", "no-dropout", [(DROPPED, "scores.softmax(dim=-1)")]),
    ("output_projection", "dropout-in-eval",
     [(DROPPED, "nn.functional.dropout(scores.softmax(dim=-1), self.dropout.p)")]),
    ("output_projection", "dropout-on-output",
     [(DROPPED, "scores.softmax(dim=-1)"), ("merge_heads(weights @ v)", "self.dropout(merge_heads(weights @ v))")]),
    ("output_projection", "view-without-transpose",
     [("split_heads(self.k_proj(x), self.n_head)", "self.k_proj(x).view(q.shape)")]),
    ("output_projection", "mask-size", [("= split_heads(self.q_proj(x), self.n_head)",
                                         "= split_heads(self.q_proj(x), self.n_head).transpose(1, 2)"),
                                        ("= split_heads(self.k_proj(x), self.n_head)",
                                         "= split_heads(self.k_proj(x), self.n_head).transpose(1, 2)")]),
    ("output_projection", "no-gradient", [("= split_heads(self.k_proj(x)", "= split_heads(self.k_proj(x).data")]),
    ("output_projection", "device", [("causal_mask(t, t).to(x.device), float", "causal_mask(t, t), float")]),
    ("output_projection", "argument-missing", [("split_heads(self.q_proj(x), self.n_head)",
                                                "split_heads(self.q_proj(x))")]),
    ("output_projection", "argument-unknown", [("nn.Dropout(dropout)", "nn.Dropout(dropout=dropout)")]),
    ("output_projection", "random", [("nn.Dropout(dropout)", "nn.Dropout(0.1)")]),
    ("output_projection", "view-size", [("split_heads(self.q_proj(x), self.n_head)",
                                         "self.q_proj(x).view(x.shape[0], self.n_head, t, x.shape[-1])")]),
]  # fmt: skip
