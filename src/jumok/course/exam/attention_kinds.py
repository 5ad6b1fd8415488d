"""Questions on averages, attention, masks and heads (chapters 1 to 6).

Scores are logarithms of small integers, so that each softmax is a simple fraction.
"""

from __future__ import annotations

from fractions import Fraction
from random import Random

import torch
from torch import Tensor

from jumok.course.chapters import averaging, dot_product, heads, masked_attention
from jumok.course.chapters.cross_attention import padding_mask
from jumok.course.exam.drawn import Drawn, exact, integers, logs, rows, same, subscript, table, vector
from jumok.course.words import Words
from jumok.models.pooling import Pooling
from jumok.nn import MultiHeadAttention, causal_mask


def average(rng: Random) -> Drawn:
    """The average of the tokens so far."""
    x = [integers(rng, 2, -6, 9) for _ in range(5)]
    t = rng.randint(2, 3)
    value = exact(averaging.average_by_matrix(_tensor(x))[t])
    weights = averaging.normalise_rows(averaging.triangle(5).double())[t]
    return Drawn(
        Words(
            f"벡터 다섯 개가 있습니다.\n\n{rows('x', x)}\n\n위치 {t}까지(위치 {t} 포함) 토큰들의 평균을 구하세요. 이 "
            f"평균을 행렬곱으로 계산할 때 평균 행렬의 행 {t}도 쓰세요. 위치와 행은 0부터 셉니다.",
            f"There are five vectors.\n\n{rows('x', x)}\n\nCompute the average of the tokens up to and including "
            f"position {t}. Also write row {t} of the matrix that computes these averages. Positions and rows count "
            "from 0.",
        ),
        Words(
            f"평균 {vector(value)}, 행 {t}: {vector(exact(weights))}",
            f"average {vector(value)}, row {t}: {vector(exact(weights))}",
        ),
        {"x": x, "t": t},
        [value, exact(weights)],
    )


def dot_products(rng: Random) -> Drawn:
    """Two scores, as dot products."""
    q = integers(rng, 4, -4, 5)
    k = [integers(rng, 4, -4, 5) for _ in range(2)]
    value = exact(dot_product.scores_by_loop(_tensor([q]), _tensor(k))[0])
    return Drawn(
        Words(
            f"쿼리 q와 두 키의 내적을 각각 구하세요. q = {vector(q)}입니다.\n\n{rows('k', k)}",
            f"Compute the dot product of the query q = {vector(q)} with each of the two keys.\n\n{rows('k', k)}",
        ),
        same(", ".join(f"q·k{subscript(s)} = {score}" for s, score in enumerate(value))),
        {"q": q, "k": k},
        value,
    )


def softmax(rng: Random) -> Drawn:
    """A softmax over logarithms."""
    powers = integers(rng, 4, 1, 9)
    value = exact(dot_product.softmax(_tensor(powers).log()))
    return Drawn(
        Words(
            f"점수 {logs(powers)}에 소프트맥스를 적용한 가중치를 분수로 쓰세요.",
            f"Apply the softmax to the scores {logs(powers)}. Write the weights as fractions.",
        ),
        same(vector(value)),
        {"powers": powers},
        value,
    )


def weighted_sum(rng: Random) -> Drawn:
    """The output of attention for one query."""
    powers = integers(rng, 3, 1, 6)
    v = [integers(rng, 2, -5, 8) for _ in range(3)]
    scores = _tensor(powers).log()
    value = exact(dot_product.attend(torch.ones(1, 1).double(), scores[:, None], _tensor(v))[0])
    weights = exact(dot_product.softmax(scores))
    return Drawn(
        Words(
            f"한 쿼리의 점수는 {logs(powers)}이고, 값은 다음과 같습니다. 어텐션의 출력을 구하세요.\n\n{rows('v', v)}",
            f"The scores of one query are {logs(powers)}, and these are the values. Compute the output of "
            "attention.\n\n"
            f"{rows('v', v)}",
        ),
        Words(f"가중치 {vector(weights)}, 출력 {vector(value)}", f"weights {vector(weights)}, output {vector(value)}"),
        {"powers": powers, "v": v},
        value,
    )


def scaled_scores(rng: Random) -> Drawn:
    """Scores divided by √D."""
    width, root = rng.choice([(4, 2), (4, 2), (9, 3)])
    q = integers(rng, width, -3, 3)
    k = [integers(rng, width, -3, 3) for _ in range(2)]
    value = exact(dot_product.scores_by_product(_tensor([q]), _tensor(k))[0] * width**-0.5)
    return Drawn(
        Words(
            f"헤드의 폭은 D = {width}, 쿼리는 q = {vector(q)}입니다. 쿼리와 두 키의 점수를 √D로 나누어, 소프트맥스에 "
            f"넣을 값을 구하세요.\n\n{rows('k', k)}",
            f"The width of a head is D = {width}. Compute the scores of q = {vector(q)} with each key, as they enter "
            f"the softmax, so divided by √D.\n\n{rows('k', k)}",
        ),
        Words(f"{vector(value)}, √D = {root}", f"{vector(value)}, √D = {root}"),
        {"q": q, "k": k},
        value,
    )


def causal_row(rng: Random) -> Drawn:
    """A row of a causal mask with fewer queries than keys, and its number of ones."""
    s = rng.randint(5, 12)
    t = rng.randint(2, s - 1)
    row = rng.randrange(t)
    mask = causal_mask(t, s)
    allowed, ones = mask[row].int().tolist(), int(mask.sum())
    return Drawn(
        Words(
            f"키는 {s}개이고, 쿼리는 그중 마지막 {t}개 위치에 있습니다. 모양이 ({t}, {s})인 인과 마스크에서 행 "
            f"{row}의 원소를 쓰고(행은 0부터 "
            "세고, 참조할 수 있으면 1, 없으면 0입니다), 마스크 전체에 1이 몇 개인지 구하세요.",
            f"There are {s} keys, and the queries stand at the last {t} of these positions. Write row {row} of the "
            f"causal mask of shape ({t}, {s}), counting from 0, with 1 where the query may attend and 0 elsewhere. "
            "How many ones "
            "are in the whole mask?",
        ),
        Words(f"{vector(allowed)}, 모두 {ones}개", f"{vector(allowed)}, {ones} ones in all"),
        {"t": t, "s": s, "row": row},
        [allowed, ones],
    )


def masked_weights(rng: Random) -> Drawn:
    """The weights of causal attention from a table of logarithms."""
    powers = [integers(rng, 3, 1, 7) for _ in range(3)]
    value = exact(masked_attention.weights_masked_before(_tensor(powers).log(), causal_mask(3, 3)))
    shown = table([[f"ln {power}" for power in row] for row in powers])
    return Drawn(
        Words(
            f"다음 점수에 인과 마스크와 소프트맥스를 적용한 가중치 행렬을 쓰세요. 행은 쿼리, 열은 키입니다.\n\n{shown}",
            "Apply the causal mask and the softmax to these scores, and write the matrix of weights. Rows are "
            f"queries, columns are keys.\n\n{shown}",
        ),
        same("; ".join(vector(row) for row in value)),
        {"powers": powers},
        value,
    )


def shapes(rng: Random) -> Drawn:
    """Shapes inside multi-head attention, with shared keys."""
    n_head, n_kv_head = rng.choice([(2, 1), (4, 2), (4, 1), (6, 3), (6, 2), (8, 4), (8, 2)])
    batch, t, head_dim = rng.randint(2, 6), rng.randint(3, 15), rng.choice([4, 8, 16])
    width = n_head * head_dim
    attention = MultiHeadAttention(width, width, n_head, n_kv_head=n_kv_head)
    x = torch.zeros(batch, t, width)
    with torch.no_grad():
        q = heads.split(attention.q_proj(x), n_head)
        k = heads.split(attention.k_proj(x), n_kv_head)
        scores = q @ k.repeat_interleave(n_head // n_kv_head, dim=-3).transpose(-2, -1)
        value = [list(made.shape) for made in (q, k, scores, attention(x))]
    names = Words("쿼리, 키, 점수, 출력", "queries, keys, scores, output")
    return Drawn(
        Words(
            f"모양이 (B, T, C) = ({batch}, {t}, {width})인 입력을 쿼리 헤드 {n_head}개, 키·값 헤드 {n_kv_head}개인 "
            "멀티헤드 "
            "어텐션에 넣습니다. 출력의 폭은 C입니다. 헤드로 나눈 쿼리, 헤드로 나눈 키, 점수, 출력의 모양을 차례로 "
            "쓰세요.",
            f"An input of shape (B, T, C) = ({batch}, {t}, {width}) enters multi-head attention with {n_head} query "
            f"heads and {n_kv_head} key/value heads. The width of the output is C. Write the shapes of the queries "
            "after the "
            "split into heads, of the keys after the split, of the scores, and of the output.",
        ),
        Words(*(f"{said}: {', '.join(vector(shape) for shape in value)}" for said in (names.ko, names.en))),
        {"b": batch, "t": t, "c": width, "h": n_head, "g": n_kv_head},
        value,
    )


def masked_mean(rng: Random) -> Drawn:
    """The mean of a sequence with padding."""
    length = rng.randint(2, 4)
    x = [integers(rng, 2, -5, 9) for _ in range(5)]
    mask = padding_mask([length], 5)[:, 0, 0]
    value = exact(Pooling("mean", 2)(_tensor([x]), mask)[0])
    shown = vector(mask[0].int().tolist())
    return Drawn(
        Words(
            f"길이 5의 배치에 들어 있는 한 문장의 은닉 상태와 패딩 마스크 {shown}입니다(1은 토큰, 0은 패딩). 패딩을 "
            f"제외한 평균을 구하세요.\n\n{rows('h', x)}",
            f"These are the hidden states of a text in a batch of length 5. The padding mask is {shown}, with 1 for "
            f"tokens and 0 for padding. Compute the mean without the padding.\n\n{rows('h', x)}",
        ),
        same(vector(value)),
        {"x": x, "length": length},
        value,
    )


def softmax_gradient(rng: Random) -> Drawn:
    """The derivative of a weight with respect to two scores."""
    powers = integers(rng, 3, 1, 8)
    weights = dot_product.softmax(_tensor(powers).log())
    i = rng.randrange(3)
    j = (i + rng.randint(1, 2)) % 3
    value: list[Fraction] = [exact(dot_product.softmax_jacobian(weights)[i, s]) for s in (i, j)]
    return Drawn(
        Words(
            f"소프트맥스의 가중치가 {vector(exact(weights))}입니다. 가중치 w{subscript(i)}를 점수 s{subscript(i)}로 "
            f"미분한 값과 점수 s{subscript(j)}로 미분한 값을 구하세요. 번호는 0부터 셉니다.",
            f"The weights of a softmax are {vector(exact(weights))}. Compute the derivative of the weight "
            f"w{subscript(i)} with respect to its own score s{subscript(i)}, and with respect to s{subscript(j)}. "
            "Indices count from 0.",
        ),
        same(f"∂w{subscript(i)}/∂s{subscript(i)} = {value[0]}, ∂w{subscript(i)}/∂s{subscript(j)} = {value[1]}"),
        {"powers": powers, "i": i, "j": j},
        value,
    )


def _tensor(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)
