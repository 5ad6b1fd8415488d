"""The exercises on queries, keys and values, the causal mask and one head: each mistake is recognised by name."""

from __future__ import annotations

import pytest
from mistakes_attention import MASK, SCORES

pytestmark = pytest.mark.slow


def test_the_wrong_width_is_named_with_its_number(judged) -> None:
    verdict = judged("head", ("math.sqrt(q.shape[-1])", "math.sqrt(x.shape[-1])"))
    assert "n_embd = 12" in verdict["faults"][0]["words"]["en"]
    assert "n_embd = 12" in verdict["faults"][0]["words"]["ko"]
    assert "D = 5" in verdict["faults"][0]["words"]["en"]


def test_other_ways_to_write_it_pass(judged) -> None:
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
        judged("causal_mask", (MASK, "~torch.triu(torch.ones(t, s), diagonal=s - t + 1).bool()"))["status"] == "right"
    )
    assert (
        judged("query_key_value", (SCORES, "scores = torch.einsum('btd,bsd->bts', q, k) * k.size(2) ** -0.5"))["status"]
        == "right"
    )
