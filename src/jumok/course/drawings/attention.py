"""Drawings of attention: one head, several heads, masks, and attention beside a recurrent network."""

from __future__ import annotations

from collections.abc import Sequence

from jumok.course.drawings.diagram import ROW, TALL, Box, Diagram, Kind

_THIRDS = (20, 172, 324)  # left edges of three boxes side by side
_THIRD = 136  # their width


def attention() -> Diagram:
    """Draw scaled dot-product attention with its projections; `jumok.nn.attention.attention_weights` is the middle."""
    d = Diagram("attention")
    x = d.box(20, 16, 440, "input x", "(T, C)")
    names = ("query q", "key k", "value v")
    shapes = ("(T, D)", "(S, D)", "(S, D)")
    q, k, v = (
        d.box(left, 78, _THIRD, name, shape, kind="learned", part="projections", height=TALL)
        for left, name, shape in zip(_THIRDS, names, shapes, strict=True)
    )
    for box in (q, k, v):
        d.arrow((box.top[0], x.bottom[1]), box.top)
    left, width = 20, 288
    scores = d.box(left, 160, width, "dot products: q kᵀ", "(T, S)", part="scores")
    d.arrow(q.bottom, (q.bottom[0], scores.y))
    d.arrow(k.bottom, (k.bottom[0], scores.y))
    rest: Sequence[tuple[str, Kind, str]] = (
        ("divide by √D", "plain", "scores"),
        ("mask (-∞)", "plain", "mask"),
        ("softmax over the keys", "plain", "softmax"),
        ("attention dropout", "dropout", "dropout"),
    )
    above = scores
    for number, (label, kind, part) in enumerate(rest, 1):
        box = d.box(left, 160 + number * (ROW + 18), width, label, "(T, S)", kind=kind, part=part)
        d.arrow(above.bottom, box.top)
        above = box
    label = "weighted sum of the values"
    out = d.box(20, above.bottom[1] + 24, 440, label, "(T, D)", part="weighted_sum")
    d.arrow(above.bottom, (above.bottom[0], out.y))
    d.arrow(v.bottom, (v.bottom[0], out.y))
    d.text(20, out.bottom[1] + 24, "T queries, S keys; in self-attention S = T")
    d.legend()
    return d


def multi_head() -> Diagram:
    """Draw multi-head attention with one projection that is split, as `MultiHeadAttention` computes it."""
    d = Diagram("multi-head")
    x = d.box(20, 16, 440, "input x", "(B, T, C)")
    split = d.box(20, 164, 440, "split into H heads", "(B, H, T, D)", part="heads")
    names = ("query q", "key k", "value v")
    for left, name in zip(_THIRDS, names, strict=True):
        box = d.box(left, 78, _THIRD, name, "(B, T, H·D)", kind="learned", part="projections", height=TALL)
        d.arrow((box.top[0], x.bottom[1]), box.top)
        d.arrow(box.bottom, (box.bottom[0], split.y))
    joined = d.box(20, 314, 440, "concatenate", "(B, T, H·D)", part="heads")
    heads = ("head 0", "head 1", "head H-1")
    for left, name in zip((20, 166, 340), heads, strict=True):
        box = d.box(left, 232, 120, name, under="attention", part="attention", height=TALL)
        d.arrow((box.top[0], split.bottom[1]), box.top)
        d.arrow(box.bottom, (box.bottom[0], joined.y))
    d.text(313, 264, "…", "t", "middle")
    label = "output projection"
    out = d.box(20, 376, 440, label, "(B, T, C)", kind="learned", part="output_projection")
    d.arrow(joined.bottom, out.top)
    d.legend(("learned", "plain"))
    return d


def masks() -> Diagram:
    """Draw the three masks of `jumok`: causal, padding, and none, as in cross-attention."""
    d = Diagram("masks")
    side, size = 22, 5
    kinds: Sequence[tuple[str, str, str, int]] = (
        ("causal mask", "GPT", "decoder", size),
        ("padding mask", "BERT", "encoder", size),
        ("no mask", "cross-attention", "the whole source", 4),
    )
    for number, (title, first, second, rows) in enumerate(kinds):
        x = 40 + number * 155
        middle = x + side * size / 2
        d.text(middle, 26, title, "t", "middle")
        d.text(middle, 46, "keys →", "n", "middle")
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
    d.text(52, y + 16, "may attend")
    d.cells(140, y, [[False]], side)
    d.text(172, y + 16, "masked: the weight is 0")
    d.text(20, y + 44, "rows: queries, columns: keys, P: padding")
    return d


def recurrent() -> Diagram:
    """Draw a recurrent network and causal attention: how far the first token is from the last output."""
    d = Diagram("recurrent")
    side, gap, count = 64, 30, 5
    lefts = [20 + number * (side + gap) for number in range(count)]
    d.text(20, 28, "recurrent network: computed one after another", "t")
    states: list[Box] = []
    for number, left in enumerate(lefts):
        token = d.box(left, 44, side, f"x{number}", part="input", height=34)
        state = d.box(left, 108, side, f"h{number}", kind="learned", part="state", height=34)
        d.arrow(token.bottom, state.top)
        if states:
            d.arrow(states[-1].right, state.left)
        states.append(state)
    d.text(20, 166, "steps from x0 to the last state: T")
    d.text(20, 216, "causal attention: all positions at once", "t")
    tokens = [d.box(left, 232, side, f"x{number}", part="input", height=34) for number, left in enumerate(lefts)]
    outputs = [d.box(left, 342, side, f"y{number}", part="output", height=34) for number, left in enumerate(lefts)]
    for number, output in enumerate(outputs):
        for token in tokens[: number + 1]:
            if number == count - 1:
                d.arrow(token.bottom, output.top)
            else:
                d.line(token.bottom, output.top, dotted=True)
    d.text(20, 400, "steps from x0 to the last output: 1")
    d.text(20, 422, "dotted: the outputs of the other positions")
    return d
