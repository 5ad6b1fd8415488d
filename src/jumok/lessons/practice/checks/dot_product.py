"""Checks of the exercises on softmax and attention without parameters."""

from __future__ import annotations

import torch

from jumok.lessons.practice.checking import Code, Mistake, Steps, compare, hidden, require, require_tensor
from jumok.lessons.practice.course import Words


def softmax(code: Code) -> Steps:
    """Softmax over the last dimension, in a way that does not overflow."""
    function = code.function("softmax")
    scores = hidden(2, 5, 7, scale=3)
    compare(
        function(scores.clone()),
        scores.softmax(-1),
        Mistake(
            "dimension",
            scores.softmax(-2),
            Words(
                "행의 합이 1이 아닙니다. 소프트맥스가 뒤에서 두 번째 차원(쿼리)에 있습니다. 키는 마지막 차원입니다.",
                "The rows do not sum to one: the softmax runs over the second last dimension, the queries. The keys "
                "are the last dimension.",
            ),
        ),
        Mistake(
            "all-entries",
            lambda result: abs(result.sum().item() - 1) < 1e-3,
            Words(
                "합이 1인 것은 전체이고 각 행이 아닙니다. sum에 dim=-1, keepdim=True를 주세요.",
                "All entries together sum to one, not each row. Give sum the arguments dim=-1, keepdim=True.",
            ),
        ),
        Mistake(
            "no-exp",
            scores / scores.sum(-1, keepdim=True),
            Words(
                "exp를 취하지 않고 합으로 나누었습니다. 점수가 음수이면 가중치도 음수가 됩니다.",
                "The scores are divided by their sum without exp. Negative scores then give negative weights.",
            ),
        ),
    )
    yield Words("각 행의 합이 1이고 가중치가 맞습니다.", "Each row sums to one, and the weights are right.")
    kept = scores.clone()
    function(kept)
    require(
        torch.equal(kept, scores),
        Words(
            "받은 점수를 제자리에서 바꾸었습니다. 새 텐서를 만드세요.",
            "The function changed its argument. Make a new tensor.",
        ),
        mistake="in-place",
    )
    large = scores * 100
    result = require_tensor(function(large.clone()))
    require(
        bool(result.isfinite().all()),
        Words(
            "점수가 {largest:.0f}이면 exp가 무한대가 되어 결과가 NaN입니다. 각 행의 최댓값을 먼저 빼세요.",
            "For a score of {largest:.0f} exp is infinite, and the result is NaN. Subtract the maximum of each row "
            "first.",
        ),
        mistake="overflow",
        largest=large.max().item(),
    )
    compare(result, large.softmax(-1))
    yield Words("큰 점수에서도 넘치지 않습니다.", "It does not overflow for large scores.")
