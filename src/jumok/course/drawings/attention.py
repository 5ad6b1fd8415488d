"""Drawings of attention: one head, several heads, masks, and attention beside a recurrent network."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.course.drawings.diagram import ROW, TALL, Box, Diagram, Kind, Words

_THIRDS = (20, 172, 324)  # left edges of three boxes side by side
_THIRD = 136  # their width


def attention() -> Diagram:
    """Scaled dot-product attention with its projections; `jumok.nn.attention.attention_weights` is the middle."""
    d = Diagram(
        ("스케일드 닷 프로덕트 어텐션", "Scaled dot-product attention"),
        (
            "입력에서 쿼리, 키, 값을 투영합니다. 쿼리와 키의 내적을 √D로 나누고, 마스크와 소프트맥스를 거쳐 값을 "
            "가중합합니다.",
            "The input is projected to queries, keys and values. The dot products of queries and keys are divided by "
            "√D, masked and passed through softmax; the weights then sum the values.",
        ),
    )
    x = d.box(20, 16, 440, ("입력 x", "input x"), "(T, C)")
    names = (("쿼리 q", "query q"), ("키 k", "key k"), ("값 v", "value v"))
    shapes = ("(T, D)", "(S, D)", "(S, D)")
    q, k, v = (
        d.box(left, 78, _THIRD, name, shape, kind="learned", part="projections", height=TALL)
        for left, name, shape in zip(_THIRDS, names, shapes, strict=True)
    )
    for box in (q, k, v):
        d.arrow((box.top[0], x.bottom[1]), box.top)
    left, width = 20, 288
    scores = d.box(left, 160, width, ("내적: q kᵀ", "dot products: q kᵀ"), "(T, S)", part="scores")
    d.arrow(q.bottom, (q.bottom[0], scores.y))
    d.arrow(k.bottom, (k.bottom[0], scores.y))
    rest: Sequence[tuple[Words, Kind, str]] = (
        (("√D로 나누기", "divide by √D"), "plain", "scores"),
        (("마스크(-∞)", "mask (-∞)"), "plain", "mask"),
        (("키에 대한 소프트맥스", "softmax over the keys"), "plain", "softmax"),
        (("어텐션 가중치 드롭아웃", "attention dropout"), "dropout", "dropout"),
    )
    above = scores
    for number, (label, kind, part) in enumerate(rest, 1):
        box = d.box(left, 160 + number * (ROW + 18), width, label, "(T, S)", kind=kind, part=part)
        d.arrow(above.bottom, box.top)
        above = box
    label = ("값의 가중합", "weighted sum of the values")
    out = d.box(20, above.bottom[1] + 24, 440, label, "(T, D)", part="weighted_sum")
    d.arrow(above.bottom, (above.bottom[0], out.y))
    d.arrow(v.bottom, (v.bottom[0], out.y))
    d.text(
        20,
        out.bottom[1] + 24,
        ("T: 쿼리의 수, S: 키의 수. 셀프 어텐션에서는 S = T", "T queries, S keys; in self-attention S = T"),
    )
    d.legend()
    return d


def multi_head() -> Diagram:
    """Multi-head attention with one projection that is split, as `MultiHeadAttention` computes it."""
    d = Diagram(
        ("멀티헤드 어텐션", "Multi-head attention"),
        (
            "쿼리, 키, 값을 한 번에 투영한 다음 헤드 H개로 나눕니다. 헤드마다 어텐션을 계산하고, 이어 붙이고, 출력 "
            "투영을 곱합니다.",
            "Queries, keys and values are projected at once and split into H heads. Each head computes attention; the "
            "results are concatenated and multiplied by the output projection.",
        ),
    )
    x = d.box(20, 16, 440, ("입력 x", "input x"), "(B, T, C)")
    split = d.box(20, 164, 440, ("헤드 H개로 나누기", "split into H heads"), "(B, H, T, D)", part="heads")
    names = (("쿼리 q", "query q"), ("키 k", "key k"), ("값 v", "value v"))
    for left, name in zip(_THIRDS, names, strict=True):
        box = d.box(left, 78, _THIRD, name, "(B, T, H·D)", kind="learned", part="projections", height=TALL)
        d.arrow((box.top[0], x.bottom[1]), box.top)
        d.arrow(box.bottom, (box.bottom[0], split.y))
    joined = d.box(20, 314, 440, ("이어 붙이기", "concatenate"), "(B, T, H·D)", part="heads")
    heads = (("헤드 0", "head 0"), ("헤드 1", "head 1"), ("헤드 H-1", "head H-1"))
    for left, name in zip((20, 166, 340), heads, strict=True):
        box = d.box(left, 232, 120, name, under=("어텐션", "attention"), part="attention", height=TALL)
        d.arrow((box.top[0], split.bottom[1]), box.top)
        d.arrow(box.bottom, (box.bottom[0], joined.y))
    d.text(313, 264, "…", "t", "middle")
    label = ("출력 투영", "output projection")
    out = d.box(20, 376, 440, label, "(B, T, C)", kind="learned", part="output_projection")
    d.arrow(joined.bottom, out.top)
    d.legend(("learned", "plain"))
    return d


def masks() -> Diagram:
    """The three masks of `jumok`: causal, padding, and none, as in cross-attention."""
    d = Diagram(
        ("세 가지 마스크", "The three masks"),
        (
            "행은 쿼리, 열은 키입니다. 인과 마스크에서는 자기 위치와 이전 위치만, 패딩 마스크에서는 패딩을 뺀 모든 "
            "위치를 참조합니다. 교차 어텐션에서는 소스 전체를 참조합니다.",
            "Rows are queries and columns are keys. With the causal mask a query attends to its own and earlier "
            "positions, with the padding mask to all but padding. In cross-attention it attends to the whole source.",
        ),
    )
    side, size = 22, 5
    kinds: Sequence[tuple[Words, Words, Words, int]] = (
        (("인과 마스크", "causal mask"), "GPT", ("디코더", "decoder"), size),
        (("패딩 마스크", "padding mask"), "BERT", ("인코더", "encoder"), size),
        (("마스크 없음", "no mask"), ("교차 어텐션", "cross-attention"), ("소스 전체", "the whole source"), 4),
    )
    for number, (title, first, second, rows) in enumerate(kinds):
        x = 40 + number * 155
        middle = x + side * size / 2
        d.text(middle, 26, title, "t", "middle")
        d.text(middle, 46, ("키 →", "keys →"), "n", "middle")
        allowed = [[number == 2 or (j <= i if number == 0 else j < 3) for j in range(size)] for i in range(rows)]
        d.cells(x, 72, allowed, side)
        for j in range(size):
            padded = number == 1 and j > 2
            d.text(x + side * (j + 0.5), 65, "P" if padded else str(j), "s", "middle")
        for i in range(rows):
            padded = number == 1 and i > 2
            d.text(x - 12, 72 + side * (i + 0.5) + 4.5, "P" if padded else str(i), "s", "middle")
        d.text(middle, 72 + side * size + 22, first, "n", "middle")
        d.text(middle, 72 + side * size + 40, second, "n", "middle")
    y = 72 + side * size + 62
    d.cells(20, y, [[True]], side)
    d.text(52, y + 16, ("참조함", "may attend"))
    d.cells(140, y, [[False]], side)
    d.text(172, y + 16, ("참조하지 않음: 가중치 0", "masked: the weight is 0"))
    d.text(20, y + 44, ("행은 쿼리, 열은 키, P는 패딩", "rows: queries, columns: keys, P: padding"))
    return d


def recurrent() -> Diagram:
    """A recurrent network and causal attention: how far the first token is from the last output."""
    d = Diagram(
        ("순환 신경망과 어텐션", "A recurrent network and attention"),
        (
            "순환 신경망에서 첫 토큰의 정보는 은닉 상태를 하나씩 거쳐 마지막 출력에 닿습니다. 어텐션에서는 한 번에 "
            "닿습니다.",
            "In a recurrent network the first token reaches the last output through one hidden state after another. "
            "With attention it reaches it in one step.",
        ),
    )
    side, gap, count = 64, 30, 5
    lefts = [20 + number * (side + gap) for number in range(count)]
    d.text(20, 28, ("순환 신경망: 앞에서부터 차례로 계산", "recurrent network: computed one after another"), "t")
    states: list[Box] = []
    for number, left in enumerate(lefts):
        token = d.box(left, 44, side, f"x{number}", part="input", height=34)
        state = d.box(left, 108, side, f"h{number}", kind="learned", part="state", height=34)
        d.arrow(token.bottom, state.top)
        if states:
            d.arrow(states[-1].right, state.left)
        states.append(state)
    d.text(20, 166, ("x0의 정보가 마지막 상태까지 거치는 단계: T", "steps from x0 to the last state: T"))
    d.text(20, 216, ("인과 어텐션: 모든 위치를 동시에 계산", "causal attention: all positions at once"), "t")
    tokens = [d.box(left, 232, side, f"x{number}", part="input", height=34) for number, left in enumerate(lefts)]
    outputs = [d.box(left, 342, side, f"y{number}", part="output", height=34) for number, left in enumerate(lefts)]
    for number, output in enumerate(outputs):
        for token in tokens[: number + 1]:
            if number == count - 1:
                d.arrow(token.bottom, output.top)
            else:
                d.line(token.bottom, output.top, dotted=True)
    d.text(20, 400, ("x0의 정보가 마지막 출력까지 거치는 단계: 1", "steps from x0 to the last output: 1"))
    d.text(20, 422, ("점선: 다른 위치의 출력", "dotted: the outputs of the other positions"))
    return d
