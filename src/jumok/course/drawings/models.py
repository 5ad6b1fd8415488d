"""Drawings of the block and of the models that consist of blocks, and the map of the course.

The order of the parts is that of `jumok.nn.blocks` and `jumok.models`: pre-norm in GPT, post-norm in BERT and in the
encoder–decoder of 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

from jumok.course.drawings.diagram import ROW, TALL, Box, Diagram, Kind, Plus

_STEP = ROW + 14  # from one row to the next
_NORM: str = "LayerNorm"
_DROPOUT: str = "dropout"
_Row = tuple[str, str, Kind, str]  # label, shape, kind, part
_Pair = tuple[tuple[str, str], tuple[str, str]]  # two boxes of two lines

_ATTENTION: Sequence[_Row] = (
    ("queries, keys, values", "(B, T, H·D)", "learned", "projections"),
    ("split into heads", "(B, H, T, D)", "plain", "heads"),
    ("scores: q kᵀ / √D", "(B, H, T, T)", "plain", "scores"),
    ("mask", "(B, H, T, T)", "plain", "mask"),
    ("softmax", "(B, H, T, T)", "plain", "softmax"),
    ("attention dropout", "(B, H, T, T)", "dropout", "dropout"),
    ("weighted sum of values", "(B, H, T, D)", "plain", "weighted_sum"),
    ("output projection", "(B, T, C)", "learned", "output_projection"),
)
_INPUT: Sequence[tuple[str, str]] = (
    ("tokenizer", "tokenizer"),
    ("batch", "batch"),
    ("token embedding", "embedding"),
    ("positions", "positions"),
)
_OUTPUT: Sequence[tuple[str, str]] = (
    ("training: the loss", "loss"),
    ("training: the update", "update"),
    ("writing: choose a token", "sampling"),
    ("writing: the loop", "generation"),
)
_MLP: Sequence[_Row] = (
    ("Linear: C → 4C", "(B, T, 4C)", "learned", "mlp"),
    ("GELU", "(B, T, 4C)", "plain", "mlp"),
    ("Linear: 4C → C", "(B, T, C)", "learned", "mlp"),
)


def block() -> Diagram:
    """Draw the pre-norm block of GPT with every dropout."""
    d = Diagram("block")
    x = d.box(60, 16, 404, "input x", "(B, T, C)")
    last = _block_body(d, x, 60, 404)
    out = d.box(60, last.bottom[1] + 18, 404, "to the next block", "(B, T, C)")
    d.arrow(last.bottom, out.top)
    d.legend()
    return d


def gpt() -> Diagram:
    """Draw GPT of the classic family, with the block drawn in short."""
    d = Diagram("gpt")
    x, width = 60, 370
    ids = d.box(x, 16, width, "token ids", "(B, T)", part="input")
    names = ("token embedding", "position embedding")
    total = _embedded(d, ids, 78, names, x, width)
    drop = _row(d, total, x, total.bottom[1] + 16, width, (_DROPOUT, "(B, T, C)", "dropout", "dropout"))
    attention = ("multi-head attention", "causal mask", "attention")
    y = _short_block(d, drop, x, width, [attention, ("MLP", "C → 4C → C", "mlp")], pre_norm=True)
    last = d.box(x, y, width, _NORM, "(B, T, C)", kind="learned", part="norm")
    head = _row(d, last, x, y + _STEP, width, ("output layer: logits", "(B, T, V)", "learned", "head"))
    label = "softmax: next token"
    soft = _row(d, head, x, head.y + _STEP, width, (label, "(B, T, V)", "plain", "softmax"))
    embedding = d.boxes[1]
    d.line(embedding.left, (14, embedding.left[1]), (14, head.left[1]), head.left, dotted=True)
    y = soft.bottom[1] + 24
    d.text(20, y, "dotted: output layer and token embedding share one matrix")
    d.text(20, y + 19, "for the dropouts of a block see the drawing of the block")
    d.legend()
    return d


def bert() -> Diagram:
    """Draw BERT: post-norm blocks without a causal mask, and both heads."""
    d = Diagram("bert")
    x, width = 60, 370
    ids = d.box(x, 16, width, "token ids, segments", "(B, T)", part="input")
    kinds = ("token", "position", "segment")
    total = _embedded(d, ids, 78, kinds, x, width, under="embedding")
    norm = _row(d, total, x, total.bottom[1] + 16, width, (_NORM, "(B, T, C)", "learned", "norm"))
    drop = _row(d, norm, x, norm.y + _STEP, width, (_DROPOUT, "(B, T, C)", "dropout", "dropout"))
    attention = ("multi-head attention", "padding mask, no causal mask", "attention")
    y = _short_block(d, drop, x, width, [attention, ("MLP", "C → 4C → C", "mlp")], pre_norm=False)
    hidden = d.box(x, y, width, "last hidden states", "(B, T, C)", part="hidden")
    masked: _Pair = (("Linear, GELU", _NORM), ("output layer", "(N, V)"))
    pooled: _Pair = (("[CLS]", "Linear, tanh"), ("classifier", "(B, classes)"))
    results = ("the masked tokens", "the class of the text")
    for left, rows, result in zip((x, x + 192), (masked, pooled), results, strict=True):
        above = hidden
        for number, (first, second) in enumerate(rows):
            top = y + 60 + number * (TALL + 18)
            box = d.box(left, top, 178, first, under=second, kind="learned", part="head", height=TALL)
            d.arrow((box.top[0], above.bottom[1]), box.top)
            above = box
        d.text(above.bottom[0], above.bottom[1] + 20, result, "n", "middle")
    y += 60 + 2 * (TALL + 18) + 32
    d.text(20, y, "N masked tokens; the output layer uses the token embedding")
    d.text(20, y + 19, "dropout also inside the blocks and before the classifier")
    d.legend()
    return d


def encoder_decoder() -> Diagram:
    """Draw the Transformer of 2017, with post-norm blocks."""
    d = Diagram("encoder-decoder")
    width, left, right = 184, 36, 260
    own: str = "self-attention"
    mlp: tuple[str, str, str] = ("MLP", "C → 4C → C", "mlp")
    reading: Sequence[tuple[str, str, str]] = [(own, "padding mask", "attention"), mlp]
    crossing = ("cross-attention", "k, v from the encoder", "cross_attention")
    writing: Sequence[tuple[str, str, str]] = [(own, "causal mask", "attention"), crossing, mlp]
    below = []
    for x, name, shape, sub_layers, rail in (
        (left, "source ids", "(B, S)", reading, left - 16),
        (right, "target ids", "(B, T)", writing, right + width + 16),
    ):
        ids = d.box(x, 16, width, name, shape, part="input")
        label = "token embedding"
        table = d.box(x, 68, width, label, under="× √C", kind="learned", height=TALL, part="embedding")
        label, under = "add positions", "sines and cosines"
        place = d.box(x, 136, width, label, under=under, height=TALL, part="positions")
        d.arrow(ids.bottom, table.top)
        d.arrow(table.bottom, place.top)
        below.append(_short_block(d, place, x, width, sub_layers, pre_norm=False, shape="", rail=rail))
    label = "encoder output"
    encoded = d.box(left, below[0], width, label, "(B, S, C)", part="encoded", height=TALL)
    cross = next(box for box in d.boxes if box.part == "cross_attention")
    gutter = (left + width + right) / 2
    d.arrow(encoded.right, (gutter, encoded.right[1]), (gutter, cross.left[1]), cross.left)
    label = "output layer: logits"
    head = d.box(right, below[1], width, label, "(B, T, V)", kind="learned", part="head", height=TALL)
    y = head.bottom[1] + 26
    d.text(20, y, "the output layer and both token embeddings share one matrix")
    d.text(20, y + 19, "dropout after the positions and after each sub-layer")
    d.legend(("learned", "plain"))
    return d


def course_map() -> Diagram:
    """A GPT from its text to its training, with the whole block: with room for notes."""
    d = Diagram("map", notes_at=366)
    x, width = 60, 270
    d.text(366, 24, "chapter · files")
    above: Box | Plus | None = None
    for number, (label, part) in enumerate(_INPUT):
        y = 36.0 + number * _STEP + (number > 1) * 30
        above = _row(d, above, x, y, width, (label, "", "learned" if number > 1 else "plain", part))
    assert isinstance(above, Box)
    top = above.bottom[1] + 20
    last = _block_body(d, above, x, width, top=top + 44, shapes=False)
    d.frame(22, top, 322, last.bottom[1] + 14 - top, "block", "block, N times")
    y = last.bottom[1] + 34
    norm = _row(d, last, x, y, width, (_NORM, "", "learned", "norm"))
    head = _row(d, norm, x, y + _STEP, width, ("output layer: logits", "", "learned", "head"))
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
    """Return a box, with an arrow from what is above it."""
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
    sub_layers: Sequence[tuple[str, Sequence[_Row], str]] = (
        ("multi-head attention", _ATTENTION, "attention"),
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


def _embedded(d: Diagram, ids: Box, y: float, names: Sequence[str], x: float, width: float, *, under: str = "") -> Plus:
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
    sub_layers: Sequence[tuple[str, str, str]],
    *,
    pre_norm: bool,
    shape: str = "(B, T, C)",
    rail: float | None = None,
) -> float:
    """Return a block, in a frame, with a box for each sub-layer; norms before them, or after the sums.

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
    d.text(left + 10, end + 20, "N times")
    d.arrow(source.bottom, (source.bottom[0], end + 44))
    return end + 44
