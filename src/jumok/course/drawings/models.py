"""Drawings of the block and of the models that consist of blocks, and the map of the course.

The order of the parts is that of `jumok.nn.blocks` and `jumok.models`: pre-norm in GPT, post-norm in BERT and in the
encoder–decoder of 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

from jumok.course.drawings.diagram import ROW, TALL, Box, Diagram, Kind, Plus, Words

_STEP = ROW + 14  # from one row to the next
_NORM: Words = "LayerNorm"
_DROPOUT: Words = ("드롭아웃", "dropout")
_Row = tuple[Words, str, Kind, str]  # label, shape, kind, part
_Pair = tuple[tuple[Words, Words], tuple[Words, Words]]  # two boxes of two lines

_ATTENTION: Sequence[_Row] = (
    (("쿼리·키·값 투영", "queries, keys, values"), "(B, T, H·D)", "learned", "projections"),
    (("헤드로 나누기", "split into heads"), "(B, H, T, D)", "plain", "heads"),
    (("점수: q kᵀ / √D", "scores: q kᵀ / √D"), "(B, H, T, T)", "plain", "scores"),
    (("마스크", "mask"), "(B, H, T, T)", "plain", "mask"),
    (("소프트맥스", "softmax"), "(B, H, T, T)", "plain", "softmax"),
    (("어텐션 가중치 드롭아웃", "attention dropout"), "(B, H, T, T)", "dropout", "dropout"),
    (("값의 가중합", "weighted sum of values"), "(B, H, T, D)", "plain", "weighted_sum"),
    (("출력 투영", "output projection"), "(B, T, C)", "learned", "output_projection"),
)
_INPUT: Sequence[tuple[Words, str]] = (
    (("토크나이저", "tokenizer"), "tokenizer"),
    (("배치", "batch"), "batch"),
    (("토큰 임베딩", "token embedding"), "embedding"),
    (("위치", "positions"), "positions"),
)
_OUTPUT: Sequence[tuple[Words, str]] = (
    (("학습: 손실", "training: the loss"), "loss"),
    (("학습: 파라미터 갱신", "training: the update"), "update"),
    (("생성: 토큰 선택", "writing: choose a token"), "sampling"),
    (("생성: 반복", "writing: the loop"), "generation"),
)
_MLP: Sequence[_Row] = (
    ("Linear: C → 4C", "(B, T, 4C)", "learned", "mlp"),
    ("GELU", "(B, T, 4C)", "plain", "mlp"),
    ("Linear: 4C → C", "(B, T, C)", "learned", "mlp"),
)


def block() -> Diagram:
    """The pre-norm block of GPT with every dropout."""
    d = Diagram(
        ("GPT의 블록", "The block of GPT"),
        (
            "입력은 LayerNorm, 멀티헤드 어텐션, 드롭아웃을 거쳐 자기 자신과 더해지고, 다시 LayerNorm, MLP, "
            "드롭아웃을 거쳐 더해집니다.",
            "The input passes through LayerNorm, multi-head attention and dropout and is added to itself; the sum "
            "passes through LayerNorm, an MLP and dropout and is added again.",
        ),
    )
    x = d.box(60, 16, 404, ("입력 x", "input x"), "(B, T, C)")
    last = _block_body(d, x, 60, 404)
    out = d.box(60, last.bottom[1] + 18, 404, ("다음 블록으로", "to the next block"), "(B, T, C)")
    d.arrow(last.bottom, out.top)
    d.legend()
    return d


def gpt() -> Diagram:
    """GPT of the classic family, with the block drawn in short."""
    d = Diagram(
        "GPT",
        (
            "토큰 임베딩과 위치 임베딩의 합이 블록 N개, LayerNorm, 출력층을 차례로 지나 다음 토큰의 확률이 됩니다.",
            "The sum of token and position embedding passes through N blocks, LayerNorm and the output layer, and "
            "becomes the probabilities of the next token.",
        ),
    )
    x, width = 60, 370
    ids = d.box(x, 16, width, ("토큰 id", "token ids"), "(B, T)", part="input")
    names = (("토큰 임베딩", "token embedding"), ("위치 임베딩", "position embedding"))
    total = _embedded(d, ids, 78, names, x, width)
    drop = _row(d, total, x, total.bottom[1] + 16, width, (_DROPOUT, "(B, T, C)", "dropout", "dropout"))
    attention = (("멀티헤드 어텐션", "multi-head attention"), ("인과 마스크", "causal mask"), "attention")
    y = _short_block(d, drop, x, width, [attention, ("MLP", "C → 4C → C", "mlp")], pre_norm=True)
    last = d.box(x, y, width, _NORM, "(B, T, C)", kind="learned", part="norm")
    head = _row(
        d, last, x, y + _STEP, width, (("출력층: 로짓", "output layer: logits"), "(B, T, V)", "learned", "head")
    )
    label = ("소프트맥스: 다음 토큰의 확률", "softmax: next token")
    soft = _row(d, head, x, head.y + _STEP, width, (label, "(B, T, V)", "plain", "softmax"))
    embedding = d.boxes[1]
    d.line(embedding.left, (14, embedding.left[1]), (14, head.left[1]), head.left, dotted=True)
    y = soft.bottom[1] + 24
    d.text(
        20, y, ("점선: 출력층과 토큰 임베딩은 같은 행렬", "dotted: output layer and token embedding share one matrix")
    )
    d.text(
        20,
        y + 19,
        ("블록 안의 드롭아웃은 블록 그림에 있음", "for the dropouts of a block see the drawing of the block"),
    )
    d.legend()
    return d


def bert() -> Diagram:
    """BERT: post-norm blocks without a causal mask, and both heads."""
    d = Diagram(
        "BERT",
        (
            "토큰, 위치, 세그먼트 임베딩의 합이 LayerNorm과 블록 N개를 지납니다. 블록은 앞뒤의 토큰을 모두 "
            "참조합니다. 마지막 은닉 상태로 마스킹된 토큰을 예측하거나, [CLS] 위치의 벡터로 글을 분류합니다.",
            "The sum of token, position and segment embedding passes through LayerNorm and N blocks that attend in "
            "both directions. The last hidden states predict masked tokens, or the vector of [CLS] classifies the "
            "text.",
        ),
    )
    x, width = 60, 370
    ids = d.box(x, 16, width, ("토큰 id, 세그먼트", "token ids, segments"), "(B, T)", part="input")
    kinds = (("토큰", "token"), ("위치", "position"), ("세그먼트", "segment"))
    total = _embedded(d, ids, 78, kinds, x, width, under=("임베딩", "embedding"))
    norm = _row(d, total, x, total.bottom[1] + 16, width, (_NORM, "(B, T, C)", "learned", "norm"))
    drop = _row(d, norm, x, norm.y + _STEP, width, (_DROPOUT, "(B, T, C)", "dropout", "dropout"))
    attention = (
        ("멀티헤드 어텐션", "multi-head attention"),
        ("인과 마스크 없음, 패딩 마스크", "padding mask, no causal mask"),
        "attention",
    )
    y = _short_block(d, drop, x, width, [attention, ("MLP", "C → 4C → C", "mlp")], pre_norm=False)
    hidden = d.box(x, y, width, ("마지막 은닉 상태", "last hidden states"), "(B, T, C)", part="hidden")
    masked: _Pair = (("Linear, GELU", _NORM), (("출력층", "output layer"), "(N, V)"))
    pooled: _Pair = (("[CLS]", "Linear, tanh"), (("분류층", "classifier"), ("(B, 클래스 수)", "(B, classes)")))
    results = (("마스킹된 토큰 예측", "the masked tokens"), ("글의 클래스 예측", "the class of the text"))
    for left, rows, result in zip((x, x + 192), (masked, pooled), results, strict=True):
        above = hidden
        for number, (first, second) in enumerate(rows):
            top = y + 60 + number * (TALL + 18)
            box = d.box(left, top, 178, first, under=second, kind="learned", part="head", height=TALL)
            d.arrow((box.top[0], above.bottom[1]), box.top)
            above = box
        d.text(above.bottom[0], above.bottom[1] + 20, result, "n", "middle")
    y += 60 + 2 * (TALL + 18) + 32
    d.text(
        20,
        y,
        (
            "N: 마스킹된 토큰의 수. 출력층의 행렬은 토큰 임베딩",
            "N masked tokens; the output layer uses the token embedding",
        ),
    )
    d.text(
        20,
        y + 19,
        ("드롭아웃은 블록 안과 분류층 앞에도 있음", "dropout also inside the blocks and before the classifier"),
    )
    d.legend()
    return d


def encoder_decoder() -> Diagram:
    """The Transformer of 2017, with post-norm blocks."""
    d = Diagram(
        ("인코더–디코더", "The encoder–decoder"),
        (
            "인코더는 소스를 읽습니다. 디코더는 인과 셀프 어텐션 다음에 교차 어텐션으로 인코더의 출력을 참조하고, "
            "타깃의 다음 토큰을 예측합니다.",
            "The encoder reads the source. The decoder has causal self-attention, then cross-attention to the output "
            "of the encoder, and predicts the next token of the target.",
        ),
    )
    width, left, right = 184, 36, 260
    own: Words = ("셀프 어텐션", "self-attention")
    mlp: tuple[Words, Words, str] = ("MLP", "C → 4C → C", "mlp")
    reading: Sequence[tuple[Words, Words, str]] = [(own, ("패딩 마스크", "padding mask"), "attention"), mlp]
    crossing = (("교차 어텐션", "cross-attention"), ("키·값은 인코더 출력", "k, v from the encoder"), "cross_attention")
    writing: Sequence[tuple[Words, Words, str]] = [(own, ("인과 마스크", "causal mask"), "attention"), crossing, mlp]
    below = []
    for x, name, shape, sub_layers, rail in (
        (left, ("소스 id", "source ids"), "(B, S)", reading, left - 16),
        (right, ("타깃 id", "target ids"), "(B, T)", writing, right + width + 16),
    ):
        ids = d.box(x, 16, width, name, shape, part="input")
        label = ("토큰 임베딩", "token embedding")
        table = d.box(x, 68, width, label, under="× √C", kind="learned", height=TALL, part="embedding")
        label, under = ("위치 더하기", "add positions"), ("사인과 코사인", "sines and cosines")
        place = d.box(x, 136, width, label, under=under, height=TALL, part="positions")
        d.arrow(ids.bottom, table.top)
        d.arrow(table.bottom, place.top)
        below.append(_short_block(d, place, x, width, sub_layers, pre_norm=False, shape="", rail=rail))
    label = ("인코더 출력", "encoder output")
    encoded = d.box(left, below[0], width, label, "(B, S, C)", part="encoded", height=TALL)
    cross = next(box for box in d.boxes if box.part == "cross_attention")
    gutter = (left + width + right) / 2
    d.arrow(encoded.right, (gutter, encoded.right[1]), (gutter, cross.left[1]), cross.left)
    label = ("출력층: 로짓", "output layer: logits")
    head = d.box(right, below[1], width, label, "(B, T, V)", kind="learned", part="head", height=TALL)
    y = head.bottom[1] + 26
    d.text(
        20, y, ("출력층과 두 토큰 임베딩은 같은 행렬", "the output layer and both token embeddings share one matrix")
    )
    d.text(
        20,
        y + 19,
        ("드롭아웃은 위치를 더한 뒤와 하위 층의 출력에 있음", "dropout after the positions and after each sub-layer"),
    )
    d.legend(("learned", "plain"))
    return d


def course_map() -> Diagram:
    """A GPT from its text to its training, with the whole block: the map of the exercises, with room for notes."""
    d = Diagram(
        ("연습 지도", "The map of the exercises"),
        (
            "텍스트에서 배치, 임베딩, 블록, 출력층을 거쳐 손실과 생성까지 이어집니다. 오른쪽의 번호는 그 부품을 "
            "작성하는 연습입니다.",
            "From text through batch, embeddings, blocks and output layer to loss and generation. The numbers on the "
            "right are the exercises in which that part is written.",
        ),
        notes_at=366,
    )
    x, width = 60, 270
    d.text(366, 24, ("연습 번호", "exercises"))
    above: Box | Plus | None = None
    for number, (label, part) in enumerate(_INPUT):
        y = 36.0 + number * _STEP + (number > 1) * 30
        above = _row(d, above, x, y, width, (label, "", "learned" if number > 1 else "plain", part))
    assert isinstance(above, Box)
    top = above.bottom[1] + 20
    last = _block_body(d, above, x, width, top=top + 44, shapes=False)
    d.frame(22, top, 322, last.bottom[1] + 14 - top, "block", ("블록, N번 반복", "block, N times"))
    y = last.bottom[1] + 34
    norm = _row(d, last, x, y, width, (_NORM, "", "learned", "norm"))
    head = _row(d, norm, x, y + _STEP, width, (("출력층: 로짓", "output layer: logits"), "", "learned", "head"))
    begin = d.boxes[2].y - 36
    d.frame(6, begin, 346, head.bottom[1] + 14 - begin, "gpt", "GPT")
    y = head.bottom[1] + 34
    loss, update, choose, loop = (
        d.box(x, y + number * _STEP + (number > 1) * 8, width, label, part=part)
        for number, (label, part) in enumerate(_OUTPUT)
    )
    d.arrow(head.bottom, loss.top)
    d.arrow(loss.bottom, update.top)
    d.arrow(head.left, (34, head.left[1]), (34, choose.left[1]), choose.left)
    d.arrow(choose.bottom, loop.top)
    d.legend()
    return d


def _row(d: Diagram, above: Box | Plus | None, x: float, y: float, width: float, row: _Row) -> Box:
    """A box, with an arrow from what is above it."""
    label, shape, kind, part = row
    box = d.box(x, y, width, label, shape, kind=kind, part=part)
    if above is not None:
        d.arrow(above.bottom, box.top)
    return box


def _block_body(
    d: Diagram, above: Box, x: float, width: float, *, top: float | None = None, shapes: bool = True
) -> Plus:
    """Both residual branches of the pre-norm block, from `above` to the second sum."""
    y = above.bottom[1] + 18 if top is None else top
    shape = "(B, T, C)" if shapes else ""
    sub_layers: Sequence[tuple[Words, Sequence[_Row], str]] = (
        (("멀티헤드 어텐션", "multi-head attention" if shapes else "attention"), _ATTENTION, "attention"),
        ("MLP", _MLP, ""),
    )
    source: Box | Plus = above
    for name, rows, part in sub_layers:
        branch = y - 8
        box = _row(d, source, x, y, width, (_NORM, shape, "learned", "norm"))
        y += _STEP + 22
        first = y
        for label, row_shape, kind, row_part in rows:
            box = _row(d, box, x + 8, y, width - 16, (label, row_shape if shapes else "", kind, row_part))
            y += _STEP
        d.frame(x, first - 27, width, y - first + 21, part, name)
        y += 8
        box = _row(d, box, x, y, width, (_DROPOUT, shape, "dropout", "dropout"))
        sum_ = d.plus(box.bottom[0], box.bottom[1] + 30, "residual")
        d.arrow(box.bottom, sum_.top)
        rail = x - 22
        d.arrow((source.bottom[0], branch), (rail, branch), (rail, sum_.y), sum_.left)
        y = sum_.bottom[1] + 26
        source = sum_
    assert isinstance(source, Plus)
    return source


def _embedded(
    d: Diagram, ids: Box, y: float, names: Sequence[Words], x: float, width: float, *, under: Words = ""
) -> Plus:
    """Embeddings side by side, and their sum."""
    gap = 12
    each = (width - gap * (len(names) - 1)) / len(names)
    total = d.plus(ids.bottom[0], y + TALL + 32)
    parts = ("embedding", "positions", "segments")
    for number, (name, part) in enumerate(zip(names, parts, strict=False)):
        box = d.box(
            x + number * (each + gap),
            y,
            each,
            name,
            "" if under else "(B, T, C)",
            under=under,
            kind="learned",
            part=part,
            height=TALL,
        )
        d.arrow((box.top[0], ids.bottom[1]), box.top)
        if box.bottom[0] == total.x:
            d.arrow(box.bottom, total.top)
        else:
            sign = 1 if box.bottom[0] > total.x else -1
            d.arrow(box.bottom, (box.bottom[0], total.y), (total.x + sign * total.radius, total.y))
    return total


def _short_block(
    d: Diagram,
    above: Box,
    x: float,
    width: float,
    sub_layers: Sequence[tuple[Words, Words, str]],
    *,
    pre_norm: bool,
    shape: str = "(B, T, C)",
    rail: float | None = None,
) -> float:
    """A block, in a frame, with a box for each sub-layer; norms before them, or after the sums.

    sub_layers: label, second line and part of each. rail: where the residual connections run [left of the boxes].
    Returns where the next box begins; an arrow ends there.
    """
    top = above.bottom[1] + 20
    y = top + 16
    rail = x - 16 if rail is None else rail
    source: Box | Plus = above
    norm: _Row = (_NORM, shape, "learned", "norm")
    for label, under, part in sub_layers:
        branch = y - 7
        if pre_norm:
            source_of_layer: Box | Plus = _row(d, source, x, y, width, norm)
            y += _STEP
        else:
            source_of_layer = source
        box = d.box(x, y, width, label, under=under, kind="learned", part=part, height=TALL if under else ROW)
        d.arrow(source_of_layer.bottom, box.top)
        total = d.plus(box.bottom[0], box.bottom[1] + 26, "residual")
        d.arrow(box.bottom, total.top)
        side = total.radius if rail > x else -total.radius
        d.arrow((source.bottom[0], branch), (rail, branch), (rail, total.y), (total.x + side, total.y))
        source, y = total, total.bottom[1] + 24
        if not pre_norm:
            source = _row(d, total, x, total.bottom[1] + 14, width, norm)
            y = source.bottom[1] + 22
    end = source.bottom[1]
    left, right = min(x, rail) - 10, max(x + width, rail) + 10
    d.frame(left, top, right - left, end + 28 - top, "block")
    d.text(left + 10, end + 20, ("N번 반복", "N times"))
    d.arrow(source.bottom, (source.bottom[0], end + 44))
    return end + 44
