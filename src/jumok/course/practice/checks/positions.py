"""Checks of the exercises on positions and embeddings."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from jumok.course.practice.checking import (
    Checks,
    Code,
    Mistake,
    Steps,
    any_of,
    compare,
    hidden,
    raises,
    require,
    require_tensor,
    same,
)
from jumok.course.practice.course import Words
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.nn import positions

BERT = (30_522, 768)  # vocab_size and hidden_size of the config of bert-base-uncased


WHY_LEARNED = {
    "wrong-length": Words(
        "위치의 수가 토큰의 수와 다릅니다. 표의 행 전체가 아니라 앞의 T개만 필요합니다. T는 x.shape[1]이고, "
        "x.shape[0]은 배치의 크기입니다.",
        "The number of positions is not the number of tokens. Not all rows of the table are needed, only the first "
        "T. T is x.shape[1]; x.shape[0] is the size of the batch.",
    ),
    "over-batch": Words(
        "위치 벡터가 배치를 따라 달라집니다. 첫 문장의 모든 토큰이 0번 위치의 벡터를 받았습니다. 차원 0은 배치, 차원 "
        "1이 위치입니다. T = x.shape[1]을 쓰세요.",
        "The positions run over the batch: all tokens of the first sequence get the vector of position 0. Dimension "
        "0 is the batch, and dimension 1 the positions. Use T = x.shape[1].",
    ),
    "same-vector": Words(
        "모든 위치에 같은 벡터를 더했습니다. 그러면 순서를 알 수 없습니다. 0부터 T-1까지의 번호를 모두 찾으세요.",
        "All positions get the same vector, so the order stays unknown. Look up all numbers from 0 to T-1.",
    ),
    "not-added": Words(
        "위치 벡터만 돌려주었습니다. 토큰의 벡터 x에 더해야 합니다.",
        "Only the vectors of the positions are returned. Add them to x, the vectors of the tokens.",
    ),
    "from-one": Words(
        "위치를 1부터 세었습니다. 그러면 0번 행은 학습되지 않고, 가장 긴 입력에서는 행이 하나 모자랍니다. 0부터 "
        "세세요.",
        "The positions are counted from 1. Row 0 is then never trained, and for the longest input a row is missing. "
        "Count from 0.",
    ),
    "last-rows": Words(
        "위치를 뒤에서부터 세었습니다. 첫 토큰이 0번 행을 받아야, 토큰을 하나씩 생성할 때도 같은 토큰이 같은 위치에 "
        "있습니다.",
        "The positions are counted from the end. If the first token gets row 0, a token keeps its position while the "
        "text grows in generation.",
    ),
    "in-place": Words(
        "받은 x의 값이 바뀌었습니다. +=는 부른 쪽의 텐서를 바꿉니다. x + ...의 결과를 돌려주세요.",
        "The values of the argument changed: += changes the tensor of the caller. Return x + ...",
    ),
}


def learned_positions(code: Code) -> Steps:
    """A table of positions, of which the first T rows are added to each sequence."""
    own = code.module("LearnedPositions", 9, 6)
    table = nn.Embedding(9, 6)
    fill(table)
    holder = nn.ModuleDict({"table": table})
    copy_parameters(holder, own, {"table.weight": "table.weight"})
    yield Words("표의 크기가 맞습니다.", "The size of the table is right.")
    x, rows = hidden(3, 5, 6), table.weight.detach()
    kept = x.clone()
    with torch.no_grad():
        result = raises(
            WHY_LEARNED["wrong-length"],
            lambda: own(kept),
            mistake="wrong-length",
            text="must match the size",
        )
        compare(
            result,
            x + rows[:5],
            Mistake("over-batch", x + rows[:3, None], WHY_LEARNED["over-batch"]),
            Mistake("same-vector", any_of(*(x + row for row in rows)), WHY_LEARNED["same-vector"]),
            Mistake("not-added", any_of(rows[:5], rows[:5].expand_as(x)), WHY_LEARNED["not-added"]),
            Mistake("from-one", x + rows[1:6], WHY_LEARNED["from-one"]),
            Mistake("last-rows", any_of(x + rows[-5:], x + rows[:5].flip(0)), WHY_LEARNED["last-rows"]),
        )
        require(torch.equal(kept, x), WHY_LEARNED["in-place"], mistake="in-place")
        yield Words("위치마다 그 위치의 벡터를 더했습니다.", "Each position gets its vector.")
        require_device(own, own.table, x)
    yield Words("x와 같은 장치에서 번호를 만듭니다.", "The numbers are made on the device of x.")


def require_device(own: nn.Module, table: Any, x: Tensor) -> None:
    """Move a copy to a device that holds no values, and see on which device it makes the numbers for its table."""
    away = x.to("meta")
    devices: list[torch.device] = []
    hook = table.register_forward_pre_hook(lambda _, inputs: devices.append(inputs[0].device))
    try:
        copy.deepcopy(own).to("meta")(away)
    except RuntimeError:  # tensors of two devices
        pass
    finally:
        hook.remove()
    require(
        all(device == away.device for device in devices),
        Words(
            "번호를 x의 장치에 만들지 않았습니다. 모델과 x가 GPU에 있으면 번호만 CPU에 남아 오류가 납니다. "
            "torch.arange에 device=x.device를 주세요.",
            "The numbers are not made on the device of x. With the model and x on a GPU, they would stay on the CPU, "
            "and the call would fail. Give torch.arange device=x.device.",
        ),
        mistake="device",
    )


WHY_SINUSOIDAL = {
    "halves": Words(
        "사인이 앞 절반, 코사인이 뒤 절반에 있습니다. 이런 배치를 쓰는 구현도 있고 정보는 같지만, 논문의 식에서는 "
        "짝수 열이 사인, 홀수 열이 코사인입니다.",
        "The sines are in one half of the columns and the cosines in the other. Some implementations use this order, "
        "and it holds the same information, but in the paper even columns are sines and odd columns cosines.",
    ),
    "exchanged": Words(
        "사인과 코사인이 바뀌었습니다. 짝수 열이 사인, 홀수 열이 코사인입니다.",
        "Sine and cosine are exchanged. Even columns are sines, odd columns cosines.",
    ),
    "per-column": Words(
        "열마다 각이 다릅니다. 지수는 2i / width이고 i는 쌍의 번호이므로, 열 2i와 2i+1은 같은 각을 써야 합니다. 같은 "
        "각의 사인과 코사인이 있어야 위치를 옮기는 것이 회전이 됩니다.",
        "Each column has an angle of its own. The exponent is 2i / width, where i is the number of the pair: columns "
        "2i and 2i+1 share an angle. Only with sine and cosine of the same angle is a shift of the position a "
        "rotation.",
    ),
    "exponent": Words(
        "지수가 다릅니다. 2i를 torch.arange(0, width, 2)로 만들었다면 이미 두 배이고, torch.arange(width // 2)로 "
        "만들었다면 2를 곱해야 합니다.",
        "The exponent is another one. torch.arange(0, width, 2) is already 2i; torch.arange(width // 2) must be "
        "multiplied by 2.",
    ),
    "from-one": Words(
        "위치를 1부터 세었습니다. 첫 위치는 0이고, 그 벡터는 0, 1, 0, 1, ...입니다.",
        "The positions are counted from 1. The first is 0, and its vector is 0, 1, 0, 1, ...",
    ),
    "multiplied": Words(
        "위치에 10000^(2i / width)을 곱했습니다. 나누어야 합니다. 곱하면 뒤의 쌍일수록 빨리 돌아 이웃한 위치의 값이 "
        "서로 무관해집니다.",
        "The position is multiplied by 10000^(2i / width). Divide by it: otherwise later pairs turn faster, and the "
        "values of adjacent positions have nothing to do with each other.",
    ),
}


def sinusoidal_positions(code: Code) -> Steps:
    """The table of the 2017 paper: sine and cosine in turn."""
    function = code.function("sinusoidal")
    length, width = 9, 12
    right = positions.sinusoidal(length, width)
    t = torch.arange(length).double()[:, None]
    pair = torch.arange(width // 2).double()

    def table(angle: Tensor) -> Tensor:
        return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()

    angle = t * 10_000.0 ** (-2 * pair / width)
    column = t * 10_000.0 ** (-torch.arange(width).double() / width)
    doubled = t * 10_000.0 ** (-2 * torch.arange(width).double() / width)
    even = torch.arange(width) % 2 == 0
    each = any_of(*(torch.where(even, own.sin(), own.cos()).float() for own in (column, doubled)))
    compare(
        function(length, width),
        right,
        Mistake(
            "halves",
            any_of(*(torch.cat(both, -1).float() for both in ((angle.sin(), angle.cos()), (angle.cos(), angle.sin())))),
            WHY_SINUSOIDAL["halves"],
        ),
        Mistake(
            "exchanged", torch.stack((angle.cos(), angle.sin()), dim=-1).flatten(1).float(), WHY_SINUSOIDAL["exchanged"]
        ),
        Mistake("per-column", each, WHY_SINUSOIDAL["per-column"]),
        Mistake(
            "exponent",
            any_of(table(t * 10_000.0 ** (-pair / width)), table(t * 10_000.0 ** (-4 * pair / width))),
            WHY_SINUSOIDAL["exponent"],
        ),
        Mistake("from-one", table((t + 1) * 10_000.0 ** (-2 * pair / width)), WHY_SINUSOIDAL["from-one"]),
        Mistake(
            "multiplied",
            lambda result: same(result, table(t * 10_000.0 ** (2 * pair / width)), 1e-2),
            WHY_SINUSOIDAL["multiplied"],
        ),
    )
    yield Words("표가 논문의 식과 같습니다.", "The table is that of the paper.")
    compare(function(4, 10), positions.sinusoidal(4, 10))
    products = right @ right.T
    near, far = f"{products[2, 5]:.3f}", f"{products[5, 8]:.3f}"
    yield Words(
        f"내적은 거리에만 의존합니다. 위치 2와 5: {near}, 위치 5와 8: {far}.",
        f"Products depend only on the distance. Positions 2 and 5: {near}, positions 5 and 8: {far}.",
    )


LENGTH, WIDTH = 5, 8  # of what is rotated


def _rotary(code: Code) -> Steps:
    """Check the table of angles."""
    length, width = LENGTH, WIDTH
    right = cos, sin = positions.rotary(length, width)
    half_cos, half_sin = cos[:, : width // 2], sin[:, : width // 2]
    given = code.function("rotary")(length, width)
    require(
        isinstance(given, tuple) and len(given) == 2,
        Words(
            "rotary는 코사인과 사인, 두 텐서를 돌려주어야 합니다: return cos, sin",
            "rotary must return two tensors, the cosines and the sines: return cos, sin",
        ),
        mistake="two-results",
    )
    for result, wanted, half, other in zip(given, right, (half_cos, half_sin), (sin, cos), strict=True):
        compare(result, wanted, *_table_mistakes(wanted, half, other))
    yield Words("각의 표가 맞습니다.", "The table of angles is right.")


def _rotate(code: Code) -> Steps:
    """Check the rotation of pairs (i, i + D/2)."""
    cos, sin = positions.rotary(LENGTH, WIDTH)
    x = hidden(2, 3, LENGTH, WIDTH)
    rotate = code.function("rotate")
    rotated = raises(
        WHY_ROTATION["half-width"],
        lambda: rotate(x.clone(), cos, sin),
        mistake="half-width",
        text="must match the size",
    )
    compare(rotated, positions.rotate(x, cos, sin), *_rotation_mistakes(x, cos, sin))
    _require_distance(rotate)
    yield Words("회전한 뒤의 내적은 거리에만 의존합니다.", "Products after the rotation depend only on the distance.")


def _attend(code: Code) -> Steps:
    """Check attention with rotated queries and keys, and values that are not rotated."""
    q, k, v = (hidden(2, 3, LENGTH, WIDTH, seed=seed) for seed in (1, 2, 3))
    attended = raises(
        WHY_ATTENTION["wrong-length"],
        lambda: code.function("attend")(q.clone(), k.clone(), v.clone()),
        mistake="wrong-length",
        text="must match the size",
    )
    compare(
        attended,
        _attended(_turned(q), _turned(k), v),
        *_attention_mistakes(q, k, v),
    )
    yield Words("쿼리와 키만 회전시켰습니다.", "Only queries and keys are rotated.")


rotary_positions: Checks = {"rotary": _rotary, "rotate": _rotate, "attend": _attend}


WHY_TABLE = {
    "interleaved-table": Words(
        "같은 각을 이웃한 두 열에 두었습니다(interleaved). 여기에서는 열 i와 열 i + D/2가 쌍이므로 torch.cat((angle, "
        "angle), dim=-1)로 이어 붙이세요. 두 방식을 섞으면 회전이 되지 않습니다.",
        "Equal angles are in adjacent columns (interleaved). Here columns i and i + D/2 are a pair: "
        "torch.cat((angle, angle), dim=-1). Mixing both layouts is no rotation.",
    ),
    "half-table": Words(
        "표의 열이 D/2개뿐입니다. 쌍의 두 열이 같은 각을 쓰므로 표를 한 번 더 이어 붙여 D열로 만드세요.",
        "The table has only D/2 columns. Both columns of a pair use the same angle: join the table to itself, to D "
        "columns.",
    ),
    "exchanged-table": Words(
        "코사인과 사인의 순서가 바뀌었습니다. return cos, sin의 순서입니다.",
        "Cosines and sines are exchanged. The order is return cos, sin.",
    ),
}


def _table_mistakes(wanted: Tensor, half: Tensor, other: Tensor) -> list[Mistake]:
    return [
        Mistake("interleaved-table", half.repeat_interleave(2, dim=-1), WHY_TABLE["interleaved-table"]),
        Mistake("half-table", half, WHY_TABLE["half-table"]),
        Mistake("exchanged-table", other, WHY_TABLE["exchanged-table"]),
    ]


WHY_ROTATION = {
    "half-width": Words(
        "폭이 D/2인 절반에 폭이 D인 cos나 sin을 곱했습니다. 두 절반의 각이 같으므로 x * cos + torch.cat((-b, a), "
        "dim=-1) * sin처럼 전체를 한 번에 계산하거나, cos와 sin도 절반만 쓰세요.",
        "A half of width D/2 is multiplied by cos or sin of width D. Both halves have the same angles: compute them "
        "together, x * cos + torch.cat((-b, a), dim=-1) * sin, or use only half of cos and sin.",
    ),
    "interleaved": Words(
        "이웃한 두 열(0과 1, 2와 3)을 쌍으로 회전시켰습니다. 논문의 방식이지만, 여기에서는 Llama나 Qwen의 "
        "transformers 구현처럼 열 i와 열 i + D/2가 쌍입니다. 학습된 파라미터는 한 방식에서만 맞습니다. x.chunk(2, "
        "dim=-1)로 나누세요.",
        "Adjacent columns (0 and 1, 2 and 3) are rotated as pairs. The paper does so, but here columns i and i + D/2 "
        "are pairs, as in the transformers implementation of Llama and Qwen. Trained parameters fit only one of the "
        "layouts. Divide by x.chunk(2, dim=-1).",
    ),
    "backwards": Words(
        "반대 방향으로 회전시켰습니다. 부호는 앞 절반이 a cos - b sin, 뒤 절반이 b cos + a sin입니다. 뒤에 더하는 "
        "텐서는 torch.cat((-b, a), dim=-1)입니다.",
        "The rotation has the opposite direction. The signs are a cos - b sin in the first half and b cos + a sin in "
        "the second: the other term is torch.cat((-b, a), dim=-1).",
    ),
    "no-minus": Words(
        "두 항의 부호가 같습니다. 회전은 (a cos - b sin, b cos + a sin)이며, 부호가 하나만 음수여야 벡터의 길이가 "
        "그대로입니다.",
        "Both signs are equal. A rotation is (a cos - b sin, b cos + a sin): only with one minus does the length of "
        "the vector stay the same.",
    ),
    "halves-not-exchanged": Words(
        "사인을 같은 열의 값에 곱했습니다. 회전은 쌍의 다른 열에 사인을 곱해 더합니다. 두 절반을 서로 바꾼 "
        "torch.cat((-b, a), dim=-1)에 사인을 곱하세요.",
        "The sine is multiplied by the value of the same column. A rotation adds the other column of the pair times "
        "the sine: multiply the sine by torch.cat((-b, a), dim=-1), the halves exchanged.",
    ),
}


def _rotation_mistakes(x: Tensor, cos: Tensor, sin: Tensor) -> list[Mistake]:
    a, b = x.chunk(2, dim=-1)
    even, odd = x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    adjacent = torch.stack((-odd, even), dim=-1).flatten(-2)
    doubled_cos, doubled_sin = (y[:, :half].repeat_interleave(2, dim=-1) for y in (cos, sin))
    first = even * cos[:, :half] - odd * sin[:, :half], odd * cos[:, :half] + even * sin[:, :half]
    return [
        Mistake(
            "interleaved",
            any_of(x * cos + adjacent * sin, x * doubled_cos + adjacent * doubled_sin, torch.cat(first, dim=-1)),
            WHY_ROTATION["interleaved"],
        ),
        Mistake("backwards", x * cos + torch.cat((b, -a), dim=-1) * sin, WHY_ROTATION["backwards"]),
        Mistake(
            "no-minus",
            any_of(x * cos + torch.cat((b, a), dim=-1) * sin, x * cos + torch.cat((-b, -a), dim=-1) * sin),
            WHY_ROTATION["no-minus"],
        ),
        Mistake(
            "halves-not-exchanged",
            any_of(x * cos + x * sin, x * cos - x * sin, x * cos + torch.cat((-a, b), dim=-1) * sin),
            WHY_ROTATION["halves-not-exchanged"],
        ),
    ]


def _require_distance(rotate: Any) -> None:
    """Products of rotated vectors, at positions with the same distance, are equal."""
    cos, sin = positions.rotary(12, 8)
    q, k = (hidden(1, 1, 1, 8, seed=seed).expand(1, 1, 12, 8) for seed in (4, 5))
    scores = rotate(q, cos, sin) @ rotate(k, cos, sin).transpose(-2, -1)  # (1, 1, 12, 12), equal along each diagonal
    compare(scores[..., 1:, 1:], scores[..., :-1, :-1], tolerance=1e-4)


def _turned(x: Tensor) -> Tensor:
    return positions.rotate(x, *positions.rotary(x.shape[-2], x.shape[-1]))


def _attended(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = True) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


WHY_ATTENTION = {
    "wrong-length": Words(
        "각의 표의 행 수가 토큰의 수와 다릅니다. q는 (B, H, T, D)이므로 T는 q.shape[-2]이고, q.shape[1]은 헤드의 "
        "수입니다.",
        "The table of angles does not have a row for each token. q is (B, H, T, D): T is q.shape[-2], and q.shape[1] "
        "is the number of heads.",
    ),
    "not-scaled": Words(
        "점수를 sqrt(D)로 나누지 않았습니다. 나누지 않으면 D가 클수록 점수가 커져 소프트맥스가 한 키에 몰립니다. "
        "F.scaled_dot_product_attention은 스스로 나눕니다.",
        "The scores are not divided by sqrt(D). Without it they grow with D, and the softmax chooses a single key. "
        "F.scaled_dot_product_attention divides by itself.",
    ),
    "values-rotated": Words(
        "값도 회전시켰습니다. 회전은 점수가 거리에 의존하게 하는 것이므로 쿼리와 키에만 필요합니다. 값은 결과에 "
        "더해지므로, 회전시키면 같은 토큰의 정보가 절대 위치에 따라 달라집니다.",
        "The values are rotated, too. The rotation makes scores depend on the distance, so only queries and keys "
        "need it. Values are summed into the result: rotated, the information of a token would change with its "
        "absolute position.",
    ),
    "one-side": Words(
        "쿼리와 키 중 하나만 회전시켰습니다. 둘 다 회전시켜야 두 각의 차이, 곧 거리가 남습니다.",
        "Only the queries or only the keys are rotated. Both must be: then the difference of their angles, the "
        "distance, remains.",
    ),
    "not-rotated": Words(
        "아무것도 회전시키지 않아 위치를 알 수 없습니다. q와 k에 rotate를 적용하고 그 결과를 쓰세요. rotate는 받은 "
        "텐서를 바꾸지 않습니다.",
        "Nothing is rotated, so the positions are unknown. Apply rotate to q and k and use what it returns: rotate "
        "does not change its argument.",
    ),
    "not-causal": Words(
        "인과 마스크가 없어 미래 토큰을 참조합니다. is_causal=True를 주세요.",
        "Without the causal mask, queries see future tokens. Pass is_causal=True.",
    ),
}


def _attention_mistakes(q: Tensor, k: Tensor, v: Tensor) -> list[Mistake]:
    width = q.shape[-1]
    return [
        Mistake("values-rotated", _attended(_turned(q), _turned(k), _turned(v)), WHY_ATTENTION["values-rotated"]),
        Mistake(
            "one-side", any_of(_attended(_turned(q), k, v), _attended(q, _turned(k), v)), WHY_ATTENTION["one-side"]
        ),
        Mistake("not-rotated", _attended(q, k, v), WHY_ATTENTION["not-rotated"]),
        Mistake(
            "not-scaled",
            any_of(*(_attended(_turned(q) * width**0.5, _turned(k), v, causal=causal) for causal in (True, False))),
            WHY_ATTENTION["not-scaled"],
        ),
        Mistake("not-causal", _attended(_turned(q), _turned(k), v, causal=False), WHY_ATTENTION["not-causal"]),
    ]


VOCABULARY = 7
IDS = torch.tensor([[3, 0, 5, 3], [1, 1, 4, 2], [5, 2, 0, 1]])  # (B, T); the last id, 6, does not occur


def _look_up(code: Code) -> Steps:
    """Check the rows of a table."""
    ids, table = IDS, hidden(VOCABULARY, 11)
    compare(
        code.function("look_up")(ids, table.clone()),
        table[ids],
        Mistake(
            "columns",
            any_of(table[:, ids], table[:, ids].movedim(0, -1)),
            Words(
                "행이 아니라 열을 찾았습니다. 표는 (V, C)이고 토큰의 벡터는 행입니다. 첫 차원을 인덱싱하세요.",
                "Columns are looked up, not rows. The table is (V, C), and the vector of a token is a row: index the "
                "first dimension.",
            ),
        ),
    )
    yield Words("토큰마다 표의 행을 찾았습니다.", "The row of each token is looked up.")


def _one_hot(code: Code) -> Steps:
    """Check one-hot vectors."""
    ids, vocabulary = IDS, VOCABULARY
    hot = F.one_hot(ids, vocabulary)
    given = require_tensor(code.function("one_hot")(ids, vocabulary))
    require(given.is_floating_point() or not same(given, hot), WHY_ONE_HOT["not-float"], mistake="not-float")
    compare(given, hot.float(), *_one_hot_mistakes(ids, hot))
    yield Words("원-핫 벡터가 맞습니다.", "The one-hot vectors are right.")


def _multiply(code: Code) -> Steps:
    """Check the product of one-hot vectors and the table."""
    ids, vocabulary, table = IDS, VOCABULARY, hidden(VOCABULARY, 11)
    with _Products() as products:
        given = code.function("multiply")(ids, table.clone())
    compare(given, table[ids])
    require(
        products.count > 0,
        Words(
            "결과는 맞지만 곱하지 않고 행을 찾았습니다. 이 함수에서는 원-핫 벡터에 표를 곱하세요: @.",
            "The result is right, but the rows are looked up and nothing is multiplied. Here, multiply one-hot vectors "
            "by the table with @.",
        ),
        mistake="looked-up",
    )
    learned = table.clone().requires_grad_()
    product = code.function("multiply")(ids, learned)
    require(
        product.requires_grad,
        Words(
            "기울기가 표에 전달되지 않습니다. detach, .data, torch.no_grad()를 지우세요.",
            "The gradient does not reach the table. Remove detach, .data and torch.no_grad().",
        ),
        mistake="no-gradient",
    )
    touched = torch.autograd.grad(product.sum(), learned)[0].abs().sum(dim=1) > 0
    yield Words(
        f"두 방법의 결과가 같습니다. 표의 {vocabulary}개 행 중 배치에 나온 {int(touched.sum())}개 행만 기울기를 "
        f"받습니다.",
        f"Both ways give the same. Of the {vocabulary} rows, only the {int(touched.sum())} that occur in the batch "
        f"get a gradient.",
    )


def _parameter_count(code: Code) -> Steps:
    """Check the number of parameters."""
    yield _require_count(code.function("parameter_count")(*BERT))


embedding: Checks = {
    "look_up": _look_up, "one_hot": _one_hot, "multiply": _multiply, "parameter_count": _parameter_count
}  # fmt: skip


def _require_count(count: object) -> Words:
    """Check the number of parameters of BERT's token embedding."""
    wanted = BERT[0] * BERT[1]
    require(
        count == wanted,
        Words(
            "30,522 x 768인 표의 파라미터 수가 {count}입니다. 임베딩에는 편향이 없으므로 행의 수에 열의 수를 곱하면 "
            "됩니다.",
            "The count for a table of 30,522 x 768 is {count}. An embedding has no bias: multiply rows by columns.",
        ),
        mistake="count",
        count=count,
    )
    return Words(
        f"BERT의 토큰 임베딩은 파라미터가 {wanted:,}개입니다.",
        f"The token embedding of BERT has {wanted:,} parameters.",
    )


class _Products(TorchDispatchMode):
    """Counts the products that are computed within the block."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += any(name in str(func) for name in ("aten.mm", "aten.bmm", "aten.mul", "aten.addmm"))
        return func(*args, **(kwargs or {}))


WHY_ONE_HOT = {
    "too-narrow": Words(
        "원-핫 벡터의 길이가 배치에 나온 가장 큰 id로 정해졌습니다. 그러면 배치마다 길이가 달라집니다. 길이는 항상 "
        "vocab_size입니다.",
        "The length of the one-hot vectors comes from the largest id in the batch, so it changes from batch to "
        "batch. It is always vocab_size.",
    ),
    "not-float": Words(
        "값은 맞지만 자료형이 실수가 아닙니다. 실수 행렬과 곱하려면 .float()로 바꾸세요.",
        "The values are right, but the type is not float. A product with a matrix of floats needs floats: .float()",
    ),
    "flattened": Words(
        "배치와 위치가 한 차원으로 합쳐졌습니다. 결과의 모양은 (B, T, vocab_size)입니다.",
        "Batch and positions are merged into one dimension. The result has the shape (B, T, vocab_size).",
    ),
}


def _one_hot_mistakes(ids: Tensor, hot: Tensor) -> list[Mistake]:
    narrow = F.one_hot(ids)
    return [
        Mistake("too-narrow", any_of(narrow, narrow.float()), WHY_ONE_HOT["too-narrow"]),
        Mistake("flattened", lambda result: result.shape == hot.flatten(0, 1).shape, WHY_ONE_HOT["flattened"]),
    ]
