"""The exercises on positions and embeddings: mistakes as replacements."""

from __future__ import annotations

ARANGE = "torch.arange(x.shape[1], device=x.device)"
PLACED = "return x + self.table(positions)  # (B, T, C)"
FREQUENCY = "-torch.arange(0, width, 2) / width"
SINES = "table[:, 0::2] = torch.sin(angle)\n    table[:, 1::2] = torch.cos(angle)"
DOUBLED = "angle = torch.cat((angle, angle), dim=-1)  # (T, D)"
TURNED = "turned = torch.cat((-b, a), dim=-1)"
BOTH = "q, k = rotate(q, cos, sin), rotate(k, cos, sin)"
COMPARED = "(ids[..., None] == torch.arange(vocab_size)).float()"
ALIKE = "a, b = x.chunk(2, dim=-1)  # (B, H, T, D/2)\n    turned = torch.cat((-b, a), dim=-1)"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("learned_positions", "over-batch", [(ARANGE, "torch.arange(x.shape[0])[:, None]")]),
    ("learned_positions", "wrong-length", [(ARANGE, "torch.arange(self.table.num_embeddings)")]),
    ("learned_positions", "wrong-length", [(ARANGE, "torch.arange(x.shape[0])")]),
    ("learned_positions", "same-vector", [(ARANGE, "torch.zeros(x.shape[1], dtype=torch.long)")]),
    ("learned_positions", "not-added", [("return x + self.table(positions)", "return self.table(positions)")]),
    ("learned_positions", "from-one", [(ARANGE, "1 + torch.arange(x.shape[1], device=x.device)")]),
    ("learned_positions", "last-rows", [(ARANGE, "torch.arange(x.shape[1], device=x.device).flip(0)")]),
    ("learned_positions", "in-place", [(PLACED, "x += self.table(positions)\n        return x")]),
    ("learned_positions", "no-layer", [("nn.Embedding(context_length, width)",
                                        "nn.Parameter(torch.zeros(context_length, width))")]),
    ("learned_positions", "not-indices", [("self.table(positions)  #", "self.table(x)  #")]),
    ("learned_positions", "sizes-exchanged", [("nn.Embedding(context_length, width)",
                                               "nn.Embedding(width, context_length)")]),
    ("learned_positions", "device", [(", device=x.device", "")]),
    ("sinusoidal_positions", "halves", [(SINES, "table = torch.cat((angle.sin(), angle.cos()), dim=-1)")]),
    ("sinusoidal_positions", "exchanged",
     [("torch.sin(angle)", "torch.cos(angle)"), ("= torch.cos(angle)\n    return", "= torch.sin(angle)\n    return")]),
    ("sinusoidal_positions", "per-column", [(FREQUENCY, "-torch.arange(width) / width"),
                                            ("torch.sin(angle)", "torch.sin(angle[:, 0::2])"),
                                            ("torch.cos(angle)", "torch.cos(angle[:, 1::2])")]),
    ("sinusoidal_positions", "per-column", [(FREQUENCY, "-2 * torch.arange(width) / width"),
                                            ("torch.sin(angle)", "torch.sin(angle[:, 0::2])"),
                                            ("torch.cos(angle)", "torch.cos(angle[:, 1::2])")]),
    ("sinusoidal_positions", "broadcast-shapes", [("[:, None]", "")]),
    ("sinusoidal_positions", "exponent", [(FREQUENCY, "-torch.arange(width // 2) / width")]),
    ("sinusoidal_positions", "exponent", [(FREQUENCY, "-2 * torch.arange(0, width, 2) / width")]),
    ("sinusoidal_positions", "from-one", [("torch.arange(length)[", "torch.arange(1, length + 1)[")]),
    ("sinusoidal_positions", "multiplied", [(FREQUENCY, "torch.arange(0, width, 2).double() / width")]),
    ("rotary_positions", "two-results", [("return angle.cos(), angle.sin()", "return angle.cos()")]),
    ("rotary_positions", "interleaved-table", [(DOUBLED, "angle = angle.repeat_interleave(2, dim=-1)")]),
    ("rotary_positions", "half-table", [(DOUBLED, "")]),
    ("rotary_positions", "exchanged-table", [("return angle.cos(), angle.sin()", "return angle.sin(), angle.cos()")]),
    ("rotary_positions", "interleaved",
     [(TURNED, "turned = torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)")]),
    ("rotary_positions", "backwards", [(TURNED, "turned = torch.cat((b, -a), dim=-1)")]),
    ("rotary_positions", "no-minus", [(TURNED, "turned = torch.cat((b, a), dim=-1)")]),
    ("rotary_positions", "halves-not-exchanged", [("turned * sin", "x * sin")]),
    ("rotary_positions", "values-rotated", [(BOTH, f"{BOTH}\n    v = rotate(v, cos, sin)")]),
    ("rotary_positions", "one-side", [(BOTH, "q = rotate(q, cos, sin)")]),
    ("rotary_positions", "not-rotated", [(BOTH, "rotate(q, cos, sin), rotate(k, cos, sin)")]),
    ("rotary_positions", "not-causal", [("attention(q, k, v, is_causal=True)\n", "attention(q, k, v)\n")]),
    ("rotary_positions", "half-width", [("return x * cos + turned * sin",
                                         "return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)")]),
    ("rotary_positions", "wrong-length", [("rotary(q.shape[-2],", "rotary(q.shape[1],")]),
    ("rotary_positions", "not-scaled", [("attention(q, k, v, is_causal=True)\n",
                                         "attention(q, k, v, is_causal=True, scale=1.0)\n")]),
    ("embedding", "tensor-called", [("table[ids]", "table(ids)")]),
    ("embedding", "columns", [("table[ids]", "table[:, ids]")]),
    ("embedding", "columns", [("table[ids]", "table.T[ids]")]),
    ("embedding", "too-narrow", [("torch.arange(vocab_size)", "torch.arange(ids.max() + 1)")]),
    ("embedding", "not-float", [(COMPARED, "(ids[..., None] == torch.arange(vocab_size)).long()")]),
    ("embedding", "not-float", [(COMPARED, "ids[..., None] == torch.arange(vocab_size)")]),
    ("embedding", "flattened", [(COMPARED, f"{COMPARED}.flatten(0, 1)")]),
    ("embedding", "looked-up", [("one_hot(ids, table.shape[0]) @ table", "table[ids, :]")]),
    ("embedding", "ready-made", [(COMPARED, "nn.functional.one_hot(ids, vocab_size).float()"),
                                 ("from torch import Tensor", "from torch import Tensor, nn")]),
    ("embedding", "no-gradient", [("@ table", "@ table.detach()")]),
    ("embedding", "count", [("vocab_size * width", "vocab_size * width + width")]),
]  # fmt: skip
