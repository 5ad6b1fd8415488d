"""Checks of the exercises on softmax and attention without parameters."""

from __future__ import annotations

import torch

from jumok.course.practice.checking import Code, Mistake, Steps, compare, hidden, require, require_tensor, result_of
from jumok.course.practice.checks.attention_mistakes import softmax_mistakes
from jumok.course.practice.course import Words
from jumok.nn import attention_weights


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
                "행의 합이 1이 아닙니다. 소프트맥스를 뒤에서 두 번째 차원(쿼리)에 적용했습니다. "
                "키는 마지막 차원입니다.",
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


def dot_product_attention(code: Code) -> Steps:
    """Attention with x as queries, keys and values, not scaled."""
    function = code.function("dot_product_attention")
    for batch, t, width in ((2, 5, 3), (3, 4, 7)):
        x = hidden(batch, t, width)
        scores = x @ x.transpose(-2, -1)  # (B, T, T)
        unscaled = x * width**0.5  # the production module divides by it
        compare(
            result_of(function, x),
            attention_weights(unscaled[:, None], x[:, None])[:, 0] @ x,
            Mistake(
                "scaled",
                (scores * width**-0.5).softmax(-1) @ x,
                Words(
                    "점수를 √C로 나누었습니다. 어텐션에는 필요하지만 다음 연습에서 다룹니다. 여기서는 나누지 마세요.",
                    "The scores are divided by √C. Attention needs this, and a later exercise adds it. Leave it out "
                    "here.",
                ),
            ),
            Mistake(
                "weights-returned",
                scores.softmax(-1),
                Words(
                    "가중치를 돌려주었습니다. 가중치에 x를 곱한 것이 출력입니다.",
                    "The function returns the weights. The output is the product of the weights and x.",
                ),
            ),
            Mistake(
                "batch-mixed",
                (x.flatten(0, 1) @ x.flatten(0, 1).T).softmax(-1).matmul(x.flatten(0, 1)).view(x.shape),
                Words(
                    "배치의 다른 시퀀스까지 참조합니다. 배치 차원을 합치지 말고 마지막 두 차원만 곱하세요.",
                    "Tokens attend to the other sequences of the batch. Keep the batch dimension, and multiply the "
                    "last two dimensions only.",
                ),
            ),
            *softmax_mistakes([scores], None, lambda weights, x=x: weights @ x),  # type: ignore[misc]
        )
    yield Words(
        "토큰마다 시퀀스의 모든 토큰을 참조하고, 가중치가 맞습니다.",
        "Each token attends to all tokens of its sequence, with the right weights.",
    )
