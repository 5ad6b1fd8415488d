"""The exercises on preferences and rewards: mistakes as replacements."""

from __future__ import annotations

MARGIN = "beta * ((chosen - chosen_before) - (rejected - rejected_before))"
LOSS = "-F.logsigmoid(margin).mean()"
MEAN = "rewards.mean(dim=1, keepdim=True)"
TOTAL = "(log_probabilities * counts).sum(dim=1)"
END = "-(advantages.detach() * total).mean()"

# exercise, mistake, what to replace in the solution
MISTAKES = [
    ("dpo_loss", "pair-swapped", [(MARGIN, f"-{MARGIN}")]),
    ("dpo_loss", "no-reference", [(MARGIN, "beta * (chosen - rejected)")]),
    ("dpo_loss", "no-beta", [("beta * ((", "((")]),
    ("dpo_loss", "beta-divides", [("beta * ((", "1 / beta * ((")]),
    ("dpo_loss", "summed", [("mean()", "sum()")]),
    ("dpo_loss", "not-averaged", [(".mean()", "")]),
    ("dpo_loss", "sign", [("return -F", "return F")]),
    ("dpo_loss", "no-logarithm", [("F.logsigmoid(margin)", "torch.sigmoid(margin)")]),
    ("dpo_loss", "mean-inside", [(LOSS, "-F.logsigmoid(margin.mean())")]),
    ("dpo_loss", "overflow", [("F.logsigmoid(margin)", "torch.sigmoid(margin).log()")]),
    ("advantage", "mean-of-all", [(MEAN, "rewards.mean()")]),
    ("advantage", "mean-of-place", [("dim=1", "dim=0")]),
    ("advantage", "mean-transposed", [(", keepdim=True", "")]),
    ("advantage", "standardised", [(f"rewards - {MEAN}", f"(rewards - {MEAN}) / rewards.std(dim=1, keepdim=True)")]),
    ("advantage", "without-itself", [(MEAN, "(rewards.sum(dim=1, keepdim=True) - rewards) / (rewards.shape[1] - 1)")]),
    ("advantage", "sign", [(f"rewards - {MEAN}", f"{MEAN} - rewards")]),
    ("policy_gradient", "sign", [(f"return {END}", f"return {END[1:]}")]),
    ("policy_gradient", "behind-the-end", [("(log_probabilities * counts)", "log_probabilities")]),
    ("policy_gradient", "end-not-counted", [("lengths[:, None]", "lengths[:, None] - 1")]),
    ("policy_gradient", "mean-over-tokens", [(TOTAL, f"{TOTAL} / lengths")]),
    ("policy_gradient", "mean-over-tokens", [(TOTAL, "log_probabilities.mean(dim=1)")]),
    ("policy_gradient", "mean-over-all-tokens", [(END, "-(advantages[:, None] * log_probabilities * counts).mean()")]),
    ("policy_gradient", "no-advantages", [(END, "-total.mean()")]),
    ("policy_gradient", "probabilities", [(END, "-(advantages.detach() * total.exp()).mean()")]),
    ("policy_gradient", "summed", [("total).mean()", "total).sum()")]),
    ("policy_gradient", "not-averaged", [(END, "-advantages.detach() * total")]),
    ("policy_gradient", "no-gradient", [("-F.cross_entropy(logits", "-F.cross_entropy(logits.detach()")]),
    ("policy_gradient", "gradient-to-advantages", [("advantages.detach()", "advantages")]),
]  # fmt: skip
