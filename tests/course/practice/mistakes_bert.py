"""The exercise on the masking of BERT: mistakes as replacements."""

from __future__ import annotations

CHOSEN = "(torch.rand(ids.shape) < 0.15) & ordinary"
MASKED = "ids.masked_fill(chosen & (fate < 0.8), mask_id)"
RANDOM = "chosen & (fate >= 0.8) & (fate < 0.9)"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("bert_masking", "in-place", [(MASKED, "ids.masked_fill_(chosen & (fate < 0.8), mask_id)")]),
    ("bert_masking", "float-ids", [("return inputs, labels", "return inputs.float(), labels")]),
    ("bert_masking", "swapped", [("return inputs, labels", "return labels, inputs")]),
    ("bert_masking", "labels-inverted", [("(~chosen, -100)", "(chosen, -100)"), ("fate < 0.8", "fate < 2"),
                                         (RANDOM, "chosen & (fate > 2)")]),
    ("bert_masking", "one-draw", [("fate = torch.rand(ids.shape)", "fate = torch.rand(())")]),
    ("bert_masking", "labels-everywhere", [("ids.masked_fill(~chosen, -100)", "ids.clone()")]),
    ("bert_masking", "no-labels", [("masked_fill(~chosen, -100)", "masked_fill(chosen | ~chosen, -100)")]),
    ("bert_masking", "padding-chosen", [(CHOSEN, "torch.rand(ids.shape) < 0.15")]),
    ("bert_masking", "special-chosen", [(CHOSEN, "(torch.rand(ids.shape) < 0.15) & (ids != 0)")]),
    ("bert_masking", "labels-of-inputs", [("return inputs, labels",
                                           "return inputs, inputs.masked_fill(~chosen, -100)")]),
    ("bert_masking", "ignored-value", [("(~chosen, -100)", "(~chosen, 0)")]),
    ("bert_masking", "wrong-labels", [("return inputs, labels",
                                       "return inputs, torch.where(chosen, ids.roll(1, 0), labels)")]),
    ("bert_masking", "wrong-labels", [("return inputs, labels", "return inputs, "
                                       "torch.where(chosen & (fate >= 0.8), random_ids, labels)")]),
    ("bert_masking", "changed-without-label", [(RANDOM, "ordinary & (fate >= 0.8) & (fate < 0.9)")]),
    ("bert_masking", "changed-without-label", [("labels = ids.masked_fill(~chosen", "fate = torch.rand(ids.shape)\n"
                                                "    labels = ids.masked_fill(~chosen | (fate > 0.8)"),
                                               ("    fate = torch.rand(ids.shape)\n    inputs", "    inputs")]),
    ("bert_masking", "rate", [("< 0.15", "< 0.85")]),
    ("bert_masking", "always-mask", [("fate < 0.8", "fate < 2"), (RANDOM, "chosen & (fate > 2)")]),
    ("bert_masking", "never-kept", [(" & (fate < 0.9)", "")]),
    ("bert_masking", "never-random", [(RANDOM, "chosen & (fate > 2)")]),
    ("bert_masking", "share-of-the-rest", [(RANDOM, "chosen & (fate >= 0.8) & (torch.rand(ids.shape) < 0.1)")]),
    ("bert_masking", "share-of-the-rest", [(RANDOM, "chosen & (fate >= 0.8) & (torch.rand(ids.shape) < 0.9)")]),
    ("bert_masking", "shares", [("fate < 0.8", "fate < 0.5"), ("fate >= 0.8", "fate >= 0.5")]),
    ("bert_masking", "one-random-token", [("torch.randint(vocab_size, ids.shape)", "torch.randint(vocab_size, (1,))")]),
    ("bert_masking", "outside-the-vocabulary", [("randint(vocab_size", "randint(2 * vocab_size")]),
    ("bert_masking", "same-each-time", [("    ordinary =", "    torch.manual_seed(1)\n    ordinary =")]),
    ("bert_masking", "same-in-all-rows", [("torch.rand(ids.shape) < 0.15", "torch.rand(ids.shape[1]) < 0.15")]),
    ("bert_masking", "no-return", [("return inputs, labels", "inputs, labels")]),
]  # fmt: skip
