"""The exercises on cross-attention and padding: each mistake is recognised by name."""

from __future__ import annotations

import pytest
from mistakes_cross_attention import FILL, TOTAL

pytestmark = pytest.mark.slow


def test_other_ways_to_write_it_pass(judged) -> None:
    """A mask that also zeroes after -1e9, torch.where, and a product with the mask for the mean."""
    assert judged("padding_mask", ('float("-inf")', "-1e9"))["status"] == "right"
    assert judged("padding_mask", (FILL, "torch.where(mask, scores, -math.inf)"))["status"] == "right"
    assert judged("masked_mean", (TOTAL, "(x * mask[:, :, None]).sum(dim=1)"))["status"] == "right"
    assert judged("masked_mean", (TOTAL, "torch.einsum('bsc,bs->bc', x, mask.float())"))["status"] == "right"
