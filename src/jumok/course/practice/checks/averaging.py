"""Checks of the exercises on shapes and on averaging the past."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from jumok.course.practice.checking import Checks, Code, Mistake, Steps, compare, hidden, result_of, same
from jumok.course.practice.checks.attention_mistakes import mask_mistakes, softmax_mistakes
from jumok.course.practice.course import Words
from jumok.nn import attention_weights, causal_mask


def _split_width(code: Code) -> Steps:
    for batch, t, n, width in ((2, 3, 4, 5), (3, 5, 2, 7)):
        x = hidden(batch, t, n * width)
        compare(
            result_of(code.function("split_width"), x, n),
            x.unflatten(-1, (n, width)),
            Mistake(
                "part-and-width",
                x.unflatten(-1, (width, n)),
                Words(
                    "마지막 두 차원이 (C // n, n)입니다. n개로 나누면 각각의 폭이 C // n이므로 순서는 (n, C // "
                    "n)입니다.",
                    "The last two dimensions are (C // n, n). n parts have the width C // n each: the order is (n, C "
                    "// n).",
                ),
            ),
            Mistake(
                "view-across",
                x.reshape(batch, n, t, width),
                Words(
                    "결과의 모양이 (B, n, T, C // n)입니다. 차원 T를 그대로 두고 마지막 차원만 나누세요: (B, T, n, C "
                    "// n).",
                    "The result has the shape (B, n, T, C // n). Leave T where it is and split the last dimension "
                    "only: (B, T, n, C // n).",
                ),
            ),
        )
    yield Words("split_width: 폭을 나누었습니다.", "split_width: the width is split.")


def _swap(code: Code) -> Steps:
    for shape in ((2, 3, 5), (4, 2, 3)):
        x = hidden(*shape)
        compare(
            result_of(code.function("swap"), x),
            x.transpose(1, 2),
            Mistake(
                "view-for-transpose",
                x.reshape(shape[0], shape[2], shape[1]),
                Words(
                    "모양은 맞지만 수의 자리가 틀립니다. view와 reshape는 수의 순서를 그대로 두고 줄만 다시 나눕니다. "
                    "행과 열을 맞바꾸는 것은 transpose입니다.",
                    "The shape is right, but the numbers are in wrong places. view and reshape keep the order of the "
                    "numbers and only break the lines elsewhere. transpose exchanges rows and columns.",
                ),
            ),
            Mistake(
                "all-reversed",
                x.permute(2, 1, 0),
                Words(
                    "모든 차원의 순서가 뒤집혔습니다. 배치 차원은 그대로 두고 마지막 두 차원만 맞바꾸세요: "
                    "transpose(-2, -1).",
                    "The order of all dimensions is reversed. Leave the batch dimension where it is and exchange the "
                    "last two: transpose(-2, -1).",
                ),
            ),
        )
    yield Words("swap: 마지막 두 차원을 맞바꾸었습니다.", "swap: the last two dimensions are exchanged.")


def _sum_keys(code: Code) -> Steps:
    for shape in ((2, 3, 5), (3, 4, 4)):
        scores = hidden(*shape)
        compare(
            result_of(code.function("sum_keys"), scores),
            scores.sum(-1),
            Mistake(
                "wrong-dim",
                scores.sum(1),
                Words(
                    "쿼리를 따라 더했습니다. sum(dim=1)은 차원 1, 곧 T를 없앱니다. 키 S는 마지막 차원이므로 "
                    "dim=-1입니다.",
                    "The sum runs over the queries. sum(dim=1) removes dimension 1, which is T. The keys, S, are the "
                    "last dimension: dim=-1.",
                ),
            ),
            Mistake(
                "batch-dim",
                scores.sum(0),
                Words(
                    "배치를 따라 더했습니다. sum(dim=0)은 차원 0, 곧 B를 없애고 서로 다른 시퀀스를 섞습니다. 키는 "
                    "마지막 차원입니다.",
                    "The sum runs over the batch. sum(dim=0) removes dimension 0, which is B, and mixes different "
                    "sequences. The keys are the last dimension.",
                ),
            ),
            Mistake(
                "kept-dim",
                scores.sum(-1, keepdim=True),
                Words(
                    "모양이 (B, T, 1)입니다. keepdim=True를 빼면 더한 차원이 없어져 (B, T)가 됩니다.",
                    "The shape is (B, T, 1). Without keepdim=True the summed dimension is removed: (B, T).",
                ),
            ),
            Mistake(
                "all-summed",
                scores.sum(),
                Words(
                    "모든 수를 더했습니다. dim을 주지 않으면 sum은 모든 차원을 없앱니다.",
                    "All numbers are summed. Without dim, sum removes all dimensions.",
                ),
            ),
        )
    yield Words("sum_keys: 행마다 합을 구했습니다.", "sum_keys: each row is summed.")


def _scale_rows(code: Code) -> Steps:
    square, tall = (hidden(4, 4), hidden(4, seed=1)), (hidden(5, 3), hidden(5, seed=1))
    for x, factors in (square, tall):
        compare(
            result_of(code.function("scale_rows"), x, factors),
            torch.diag(factors) @ x,
            *(
                Mistake(
                    "columns-scaled",
                    x * factors,
                    Words(
                        "행이 아니라 열에 곱했습니다. 브로드캐스팅은 오른쪽 끝부터 맞추므로 (T,)는 마지막 차원 C에 "
                        "맞추어집니다. C = T이면 오류도 나지 않습니다. factors[:, None]은 모양이 (T, 1)입니다.",
                        "The columns are scaled, not the rows. Broadcasting aligns shapes at the right end, so (T,) is "
                        "aligned with the last dimension, C. If C = T there is not even an error. factors[:, None] has "
                        "the shape (T, 1).",
                    ),
                )
                for _ in range(int(x is square[0]))
            ),
        )
    yield Words("scale_rows: 행마다 다른 수를 곱했습니다.", "scale_rows: each row is multiplied by its own number.")


# view, transpose, the dimension that a sum removes, broadcasting.
shapes: Checks = {"split_width": _split_width, "swap": _swap, "sum_keys": _sum_keys, "scale_rows": _scale_rows}


def _averaging_matrix(code: Code) -> Steps:
    """Check the triangular matrix that averages."""
    function = code.function("averaging_matrix")
    for t in (5, 8):
        compare(function(t), _averages(t), *_matrix_mistakes(t))
    yield Words(
        "행렬이 맞습니다. 행마다 합이 1이고 미래 토큰의 자리는 0입니다.",
        "The matrix is right: each row sums to one, and the places of future tokens are 0.",
    )


def _average_past(code: Code) -> Steps:
    """Check the product with it."""
    function = code.function("average_past")
    for batch, t, width in ((3, 5, 5), (2, 4, 3)):
        x = hidden(batch, t, width)
        mistakes = [
            Mistake(
                "transposed",
                _averages(t).T @ x,
                Words(
                    "행렬을 전치하여 곱했습니다. 행렬의 행이 출력의 위치이고 열이 입력의 위치입니다.",
                    "The matrix is transposed. Its rows are the output positions, its columns the input positions.",
                ),
            ),
            *(
                Mistake("all-averaged", x.mean(dim, keepdim=keep), ALL_AVERAGED)
                for dim in (1, -1)
                for keep in (True, False)
            ),
        ]
        if t == width:
            mistakes.append(
                Mistake(
                    "elementwise",
                    x * _averages(t),
                    Words(
                        "*는 같은 자리의 수끼리 곱합니다. 행렬곱은 @입니다.",
                        "* multiplies entry by entry. The product of matrices is @.",
                    ),
                )
            )
            mistakes.append(
                Mistake(
                    "wrong-side",
                    x @ _averages(t),
                    Words(
                        "행렬을 오른쪽에 곱했습니다. 그러면 토큰이 아니라 벡터 안의 수들이 섞입니다. 위치를 섞으려면 "
                        "왼쪽에 곱하세요.",
                        "The matrix is on the right of the product. That mixes the numbers within a vector, not the "
                        "tokens. To mix positions, multiply from the left.",
                    ),
                )
            )
        compare(result_of(function, x), _averages(t) @ x, *mistakes)
    yield Words("배치의 모든 시퀀스를 평균했습니다.", "All sequences of the batch are averaged.")


ALL_AVERAGED = Words(
    "시퀀스마다 벡터 하나로 평균했습니다. 위치마다 그때까지의 평균이 있어야 하므로 모양은 x와 같은 (B, T, C)입니다.",
    "Each sequence is averaged to one vector. Each position has its own average of the past, so the shape is that of "
    "x, (B, T, C).",
)


averaging_matrix: Checks = {"averaging_matrix": _averaging_matrix, "average_past": _average_past}


def _averages(t: int) -> Tensor:
    """(T, T): attention of which all scores are 0."""
    zeros = torch.zeros(1, t, 1)
    return attention_weights(zeros, zeros, causal=True)[0]


def _matrix_mistakes(t: int) -> Iterator[Mistake]:
    past = torch.ones(t, t).tril()
    words = Words(
        "각 행이 미래 토큰을 평균합니다. 위쪽 삼각형이 남았습니다. 이전 토큰은 대각선과 그 아래(tril)에 있습니다.",
        "Each row averages future tokens: the upper triangle is left. The past is on and below the diagonal (tril).",
    )
    yield Mistake("sees-future", past.T / past.T.sum(1, keepdim=True), words)
    yield Mistake("sees-future", past.T / past.T.sum(0, keepdim=True), words)
    yield Mistake(
        "not-divided",
        past,
        Words(
            "평균이 아니라 합을 구하는 행렬입니다. 각 행을 그 행의 합(1의 개수)으로 나누세요.",
            "This matrix sums instead of averaging. Divide each row by its sum, the number of ones.",
        ),
    )
    yield Mistake(
        "divided-by-columns",
        past / past.sum(0, keepdim=True),
        Words(
            "각 행의 합이 1이 아닙니다. 열의 합으로 나누었습니다. sum(dim=1)이 열을 따라 더하여 행마다 합을 구합니다.",
            "The rows do not sum to one: they are divided by the sums of the columns. sum(dim=1) adds up along the "
            "columns and gives one sum for each row.",
        ),
    )
    yield Mistake(
        "no-keepdim",
        past / past.sum(1),
        Words(
            "합의 모양이 (T,)라서 행이 아니라 열에 맞추어 나누었습니다. keepdim=True를 주면 모양이 (T, 1)이 되어 "
            "행마다 나눕니다.",
            "The sums have the shape (T,) and are aligned with the columns, not the rows. With keepdim=True they have "
            "the shape (T, 1), and each row is divided by its own sum.",
        ),
    )
    yield Mistake(
        "divided-by-all",
        past / past.sum(),
        Words(
            "행렬에 있는 모든 수의 합으로 나누었습니다. sum(dim=1, keepdim=True)은 행마다 합을 구합니다.",
            "All rows are divided by one number, the sum of the whole matrix. sum(dim=1, keepdim=True) gives one sum "
            "for each row.",
        ),
    )
    yield from _which_tokens(past)


def _which_tokens(past: Tensor) -> Iterator[Mistake]:
    """Averages of the wrong tokens. past: (T, T), the lower triangle."""
    t = len(past)
    yield Mistake(
        "divided-by-t",
        past / t,
        Words(
            "모든 행을 T로 나누었습니다. i번 행에는 1이 i + 1개 있으므로 i + 1로 나누어야 합니다.",
            "All rows are divided by T. Row i holds i + 1 ones, so it must be divided by i + 1.",
        ),
    )
    yield Mistake(
        "no-triangle",
        torch.full((t, t), 1 / t),
        Words(
            "모든 토큰을 평균하므로 미래 토큰도 들어갑니다. 대각선 위를 0으로 만드세요(tril).",
            "The matrix averages all tokens, future ones included. Set the entries above the diagonal to 0 (tril).",
        ),
    )
    strict = past.tril(-1)
    divisors = (strict.sum(1, keepdim=True), past.sum(1, keepdim=True), strict.sum(1, keepdim=True).clamp(min=1))
    yield Mistake(
        "diagonal",
        lambda given: any(same(given, strict / divisor) for divisor in divisors),
        Words(
            "자기 자신이 평균에서 빠졌습니다. 그러면 0번 행에는 평균할 것이 없습니다. 대각선을 포함하세요. 파이썬의 "
            "[:i]에는 i번이 들어가지 않습니다.",
            "Each position leaves itself out, and row 0 has nothing to average. Include the diagonal. In Python, [:i] "
            "does not include i.",
        ),
    )


def averaging_softmax(code: Code) -> Steps:
    """Softmax of masked scores: zeros give the averages."""
    function = code.function("causal_softmax")
    for shape, scale in (((2, 5, 5), 2.0), ((3, 4, 4), 1.0), ((2, 5, 5), 0.0)):
        scores = hidden(*shape, scale=scale)
        t = shape[-1]
        mask = causal_mask(t, t)
        compare(
            result_of(function, scores),
            scores.masked_fill(~mask, float("-inf")).softmax(-1),
            *([Mistake("zero-scores", lambda given: bool(given.isnan().all()), ZERO_SCORES)] if not scale else []),
            *mask_mistakes([scores], mask),
            *softmax_mistakes([scores], mask),
            Mistake(
                "scores-ignored",
                _averages(t).expand(shape),
                Words(
                    "점수가 무엇이든 결과가 같은 평균입니다. 받은 점수에 마스크를 적용하고 소프트맥스를 계산하세요.",
                    "The result is the same average whatever the scores are. Mask the scores that the function gets, "
                    "and apply softmax to them.",
                ),
            ),
        )
    yield Words(
        "행마다 이전 토큰의 가중치의 합이 1이고 미래 토큰의 가중치는 0입니다. 점수가 모두 0이면 앞의 평균 행렬과 "
        "같습니다.",
        "In each row the weights of the past sum to one, and future tokens get 0. If all scores are 0, it is the "
        "averaging matrix.",
    )


ZERO_SCORES = Words(
    "점수가 모두 0이면 결과가 NaN입니다. 가릴 자리를 scores == 0으로 찾으면 원래 0인 점수까지 가려집니다. 점수가 "
    "아니라 마스크로 찾으세요.",
    "If all scores are 0, the result is NaN. The condition scores == 0 also hides scores that are 0 themselves. Find "
    "the places by the mask, not by the scores.",
)
