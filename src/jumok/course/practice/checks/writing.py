"""Checks of the exercises on sampling, generation, the KV cache and beam search."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    raises,
    require,
    require_tensor,
)
from jumok.course.practice.parameters import copy_parameters
from jumok.inference import sampling
from jumok.nn import MultiHeadAttention
from jumok.nn.cache import LayerCache

# --- temperature ---


def temperature(code: Code) -> Steps:
    """Logits divided by the temperature, and the likeliest token at 0."""
    function = code.function("probabilities")
    logits = hidden(3, 7, scale=2)
    for warmth in (0.5, 2.0):
        right = (logits / warmth).softmax(-1)
        compare(function(logits.clone(), warmth), right, *_wrong_temperatures(logits, warmth))
    yield passed("divided-by-temperature")
    certain = torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    cold = raises("division-by-zero", lambda: function(logits.clone(), 0), text="ZeroDivisionError")
    compare(
        cold,
        certain,
        Mistake("division-by-zero", lambda result: bool(result.isnan().any())),
        Mistake("ids-returned", lambda result: _equal(result.flatten(), logits.argmax(-1))),
        Mistake("temperature-one-at-zero", logits.softmax(-1)),
    )
    compare(function(logits.clone(), 0.0), certain)
    yield passed("largest-at-zero")


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def _wrong_temperatures(logits: Tensor, warmth: float) -> Iterator[Mistake]:
    yield Mistake("multiplied/writing", (logits * warmth).softmax(-1))
    yield Mistake("after-softmax", logits.softmax(-1) / warmth)
    yield Mistake("no-effect", logits.softmax(-1))
    yield Mistake("no-softmax/wrong_temperatures", logits / warmth)
    yield Mistake("dimension/writing", (logits / warmth).softmax(0))


def _production(keep: Callable[[Any, Any], Any], logits: Tensor, most: float) -> Tensor:
    """Return what a filter of production keeps, which computes in NumPy."""
    return torch.from_numpy(keep(logits.numpy(), most))


# --- top_k ---

INFINITY = float("inf")


def top_k(code: Code) -> Steps:
    """All but the k largest of each row are -inf."""
    function = code.function("keep_top_k")
    logits, k = hidden(3, 9, seed=2), 4
    compare(_unchanged(function, logits, k), _production(sampling.keep_top_k, logits, k), *_wrong_top_k(logits, k))
    yield passed("top-k-kept")
    compare(function(logits.clone(), 1), _production(sampling.keep_top_k, logits, 1))
    for large in (9, 50):
        kept = raises(
            "k-too-large",
            partial(function, logits.clone(), large),
            text=("out of range", "IndexError", "out of bounds"),
        )
        compare(kept, logits)
    yield passed("k-may-be-large")


def _unchanged(function: Callable[..., object], logits: Tensor, most: float) -> object:
    """Return the result for these logits.

    Raises:
        Wrong: the function changed them.
    """
    given = logits.clone()
    result = function(given, most)
    require(torch.equal(given, logits), "in-place/writing")
    return result


def _wrong_top_k(logits: Tensor, k: int) -> Iterator[Mistake]:
    ordered = logits.sort(-1, descending=True).values
    least = ordered[:, k - 1 : k]
    yield Mistake("zeros", logits.masked_fill(logits < least, 0.0))
    yield Mistake("one-fewer", logits.masked_fill(logits <= least, -INFINITY))
    yield Mistake("one-more/wrong_top_k", logits.masked_fill(logits < ordered[:, k : k + 1], -INFINITY))
    smallest = ordered[:, -k, None]
    yield Mistake("smallest", logits.masked_fill(logits > smallest, -INFINITY))
    yield Mistake("removed-the-largest", logits.masked_fill(logits >= least, -INFINITY))
    yield Mistake("one-threshold", logits.masked_fill(logits < least[0], -INFINITY))
    overall = logits.flatten().topk(k).values[-1]
    yield Mistake("one-threshold", logits.masked_fill(logits < overall, -INFINITY))
    yield Mistake("values-only", ordered[:, :k])


# --- top_p ---


def top_p(code: Code) -> Steps:
    """The fewest likeliest tokens whose probabilities reach p."""
    function = code.function("keep_top_p")
    table = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()  # the example of the task, in another order
    compare(
        _unchanged(function, table, 0.55), _production(sampling.keep_top_p, table, 0.55), *_wrong_top_p(table, 0.55)
    )
    yield passed("example-right")
    logits = hidden(4, 11, seed=3, scale=1.5)
    for p in (0.6, 0.9):
        compare(_unchanged(function, logits, p), _production(sampling.keep_top_p, logits, p), *_wrong_top_p(logits, p))
    yield passed("nucleus-kept")
    tiny = require_tensor(function(logits.clone(), 0.001))
    require(bool(tiny.isfinite().any(-1).all()), "none-left")
    compare(tiny, _production(sampling.keep_top_p, logits, 0.001))
    compare(function(logits.clone(), 1.0), logits)
    yield passed("one-remains")


def _wrong_top_p(logits: Tensor, p: float) -> Iterator[Mistake]:
    ordered, places = logits.sort(-1, descending=True)
    shares = ordered.softmax(-1)
    sums = shares.cumsum(-1)

    def kept(out: Tensor, values: Tensor = ordered) -> Tensor:
        return torch.empty_like(logits).scatter(-1, places, values.masked_fill(out, -INFINITY))

    right = sums - shares >= p
    yield Mistake("crossing-dropped", kept(sums > p))
    yield Mistake("one-more/wrong_top_p", kept(sums - shares - shares.roll(1, -1) >= p))
    yield Mistake("not-unsorted", ordered.masked_fill(right, -INFINITY))
    yield Mistake("mask-not-unsorted", logits.masked_fill(right, -INFINITY))
    yield Mistake("unsorted-twice", ordered.masked_fill(right, -INFINITY).gather(-1, places))
    yield Mistake("unsorted-twice", logits.masked_fill(right.gather(-1, places), -INFINITY))
    in_order = logits.softmax(-1)
    yield Mistake("not-sorted/writing", logits.masked_fill(in_order.cumsum(-1) - in_order >= p, -INFINITY))
    small = logits.sort(-1)
    few = small.values.softmax(-1)
    out = few.cumsum(-1) - few >= p
    least = torch.empty_like(logits).scatter(-1, small.indices, small.values.masked_fill(out, -INFINITY))
    yield Mistake("least-likely", least)
    zeros = torch.empty_like(logits).scatter(-1, places, ordered.masked_fill(right, 0.0))
    yield Mistake("zeros", zeros)
    yield Mistake("each-by-itself", logits.masked_fill(in_order < p, -INFINITY))
    yield Mistake("no-softmax/wrong_top_p", kept(ordered.cumsum(-1) - ordered >= p))
    yield Mistake("probabilities-returned", kept(right, shares))


# --- generate ---


class _Counting(nn.Module):
    """A model that is sure of the next token, which depends on all tokens it sees and on their number."""

    def __init__(self, vocab: int, certainty: float = 80.0) -> None:
        super().__init__()
        self.vocab, self.certainty = vocab, certainty
        self.scale = nn.Parameter(torch.ones(()))
        self.seen: list[Tensor] = []
        self.modes: list[bool] = []
        self.graphs: list[bool] = []

    def forward(self, ids: Tensor) -> Tensor:
        self.seen.append(ids)
        self.modes.append(self.training)
        logits = nn.functional.one_hot(self.after(ids), self.vocab) * self.certainty * self.scale
        self.graphs.append(logits.requires_grad)
        return logits

    def after(self, ids: Tensor) -> Tensor:
        """Return the next token at each position: (B, T) -> (B, T)."""
        return (3 * ids.cumsum(1) + 5 * torch.arange(ids.shape[1]) + 1) % self.vocab


def generate(code: Code) -> Steps:
    """The loop, with a model whose next token is certain; then a draw, a mode and a graph."""
    function = code.function("generate")
    _earlier(code)
    model = _Counting(11).train()
    start = torch.tensor([[1, 2, 3], [4, 6, 5]])
    made = require_tensor(_explained_draw(lambda: function(model, start.clone(), 6, 4)))
    widest = max((ids.shape[1] for ids in model.seen), default=0)
    require(widest > 0, "no-model")
    require(widest <= 4, "not-cropped", length=widest)
    right = _continued(model, start, 6, 4)
    compare(made, right, *_wrong_texts(model, start, right))
    yield passed("last-position-appended")
    require(not any(model.modes), "train-mode")
    require(not any(model.graphs), "graph")
    yield passed("eval-without-graph")
    even = _Counting(3, certainty=0.0)
    drawn = require_tensor(function(even, torch.zeros(2, 1, dtype=torch.int64), 200, 4))
    shares = torch.bincount(drawn[:, 1:].flatten(), minlength=3) / 400
    require(len(drawn[:, 1:].unique()) > 1, "argmax/writing")
    require(not torch.equal(drawn[0], drawn[1]), "same-rows")
    require(shares.min().item() > 0.2, "uneven", shares=[round(s, 2) for s in shares.tolist()])
    yield passed("tokens-drawn")
    unsure = _Counting(11, certainty=0.5)
    cold = require_tensor(function(unsure, start.clone(), 6, 4, temperature=0))
    compare(cold, right, Mistake("temperature-ignored", lambda result: True))
    yield passed("temperature-used")


def _earlier(code: Code) -> None:
    """Check the function that the file takes from an earlier exercise."""
    logits = hidden(2, 5)
    compare(
        code.function("probabilities")(logits.clone(), 0.5),
        (logits / 0.5).softmax(-1),
        Mistake("earlier-exercise/writing", lambda result: True),
    )


def _explained_draw(call: Callable[[], object]) -> object:
    def all_positions() -> object:
        return raises("all-positions", call, text="prob_dist must be 1 or 2 dim")

    return raises(
        "logits-drawn", all_positions, text=("probability tensor contains either", "invalid multinomial distribution")
    )


def _continued(
    model: _Counting,
    ids: Tensor,
    tokens: int,
    length: int,
    position: int = -1,
    crop: Callable[[Tensor, int], Tensor] = lambda ids, length: ids[:, -length:],
) -> Tensor:
    for _ in range(tokens):
        ids = torch.cat((ids, model.after(crop(ids, length))[:, position, None]), dim=1)
    return ids


def _wrong_texts(model: _Counting, start: Tensor, right: Tensor) -> Iterator[Mistake]:
    yield Mistake("first-position", _continued(model, start, 6, 4, position=0))
    yield Mistake("first-tokens", _continued(model, start, 6, 4, crop=lambda ids, n: ids[:, :n]))
    yield Mistake("last-token-only", _continued(model, start, 6, 4, crop=lambda ids, n: ids[:, -1:]))
    repeated = torch.cat((start, model.after(start)[:, -1:].expand(-1, 6)), dim=1)
    yield Mistake("same-input", repeated)
    yield Mistake("prompt-lost", right[:, start.shape[1] :])
    yield Mistake("prompt-lost", right[:, -4:])
    yield Mistake("prompt-lost", right[:, -5:])
    yield Mistake("not-appended/wrong_texts", start)
    yield Mistake("return-in-the-loop", lambda result: result.shape[-1] == start.shape[1] + 1)


# --- kv_cache ---


def kv_cache(code: Code) -> Steps:
    """Attention with a cache equals attention without one, and the production module."""
    width, length = 6, 9
    torch.manual_seed(5)
    production = MultiHeadAttention(width, width, 1, project=False)
    layer = code.module("CachedAttention", width, length)
    copy_parameters(
        production,
        layer,
        {"q_proj.weight": "query.weight", "k_proj.weight": "key.weight", "v_proj.weight": "value.weight"},
    )
    x = hidden(2, length, width, seed=4)
    placed = x + layer.position.weight.detach()
    with torch.no_grad():
        right = production(placed, causal=True)
        yield from _without_cache(layer, x, placed, right, production)
        yield from _with_cache(layer, x, placed, right, production)


def _without_cache(layer: nn.Module, x: Tensor, placed: Tensor, right: Tensor, production: nn.Module) -> Steps:
    cached = require_tensor(layer(x.clone(), None))
    compare(
        cached,
        right,
        Mistake("no-mask", production(placed)),
        Mistake("no-positions/writing", production(x, causal=True)),
        Mistake("no-scale/writing", _attended(placed, production, scale=1.0)),
    )
    yield passed("equals-without-cache")


def _attended(x: Tensor, production: Any, *, scale: float, mask: Tensor | None = None, past: int = 0) -> Tensor:
    """Return the output at x[:, past:], computed step by step."""
    q, k, v = production.q_proj(x[:, past:]), production.k_proj(x), production.v_proj(x)
    if mask is None:
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(past)
    return (q @ k.mT * scale).masked_fill(~mask, -INFINITY).softmax(-1) @ v


def _with_cache(layer: nn.Module, x: Tensor, placed: Tensor, right: Tensor, production: Any) -> Steps:
    first, scale = 4, x.shape[-1] ** -0.5
    cache: dict[str, Tensor] = {}
    compare(layer(x[:, :first].clone(), cache), right[:, :first])
    require(bool(cache), "not-stored")
    require({"k", "v"} <= set(cache), "names", found=sorted(cache))
    following = raises(
        "cat-dimension",
        lambda: layer(x[:, first : first + 1].clone(), cache),
        text=("Sizes of tensors must match", "must match the size of tensor", "Expected size for first two dimensions"),
    )
    wrong = _wrong_next(x, placed, production, first, scale)
    compare(following, right[:, first : first + 1], *wrong)
    require(cache["k"].shape[1] == first + 1, "not-appended/with_cache", count=cache["k"].shape[1])
    yield passed("next-token")
    rest = x[:, first + 1 :]
    top_left = torch.ones(rest.shape[1], x.shape[1], dtype=torch.bool).tril()
    compare(
        layer(rest.clone(), cache),
        right[:, first + 1 :],
        Mistake("mask-top-left", _attended(placed, production, scale=scale, mask=top_left, past=first + 1)),
        Mistake("no-mask-in-a-piece", production(placed)[:, first + 1 :]),
    )
    yield passed("several-tokens")
    kept = LayerCache(x.shape[1], torch.empty(len(x), 1, 0, x.shape[2]))
    keys, values = kept.append(production.k_proj(placed)[:, None], production.v_proj(placed)[:, None])
    compare(
        cache["k"],
        keys[:, 0],
        Mistake("values-as-keys", values[:, 0]),
        Mistake("inputs-stored", x),
        Mistake("inputs-stored", placed),
    )
    compare(cache["v"], values[:, 0])
    yield passed("cache-contents")


def _wrong_next(x: Tensor, placed: Tensor, production: Any, first: int, scale: float) -> Iterator[Mistake]:
    """Yield what mistakes give at the first token after a piece of `first` tokens."""
    new = placed[:, first : first + 1]
    restarted = x[:, first : first + 1] + (placed - x)[:, :1]
    so_far = torch.cat((placed[:, :first], restarted), dim=1)
    yield Mistake("square-mask", lambda result: result.shape[1] == first + 1)
    yield Mistake("positions-restart", _attended(so_far, production, scale=scale, past=first))
    yield Mistake("not-appended/wrong_next", production.v_proj(new))
    yield Mistake("not-appended/wrong_next", production.v_proj(restarted))
    top_left = torch.ones(1, first + 1, dtype=torch.bool).tril()
    all_new = placed[:, : first + 1]
    yield Mistake("mask-top-left", _attended(all_new, production, scale=scale, mask=top_left, past=first))
    itself_left_out = torch.ones(1, first + 1, dtype=torch.bool).tril(first - 1)
    yield Mistake("without-itself", _attended(all_new, production, scale=scale, mask=itself_left_out, past=first))


# --- beam_search ---

START, END = 0, 4
Beams = list[tuple[float, list[int]]]


def _language(seed: int) -> Callable[[list[int]], Tensor]:
    """Return a language of 5 tokens in which a token depends on the two before it."""
    table = hidden(5, 5, 5, seed=seed, scale=1.6)
    table[..., START] -= 4
    return lambda ids: table[(ids[-2] if len(ids) > 1 else 0), ids[-1]].log_softmax(-1)


def _searched(after: Callable[[list[int]], Tensor], beam: int, most: int, rule: str = "") -> Beams:
    """Beam search, or with a rule a mistaken one."""
    beams: Beams = [(1.0 if rule == "product" else 0.0, [START])]
    for _ in range(most):
        candidates: Beams = []
        for total, ids in beams:
            if ids[-1] == END and rule != "continued":
                candidates += [] if rule == "dropped" else [(total, ids)]
                continue
            grown = [(_score(total, value, rule), [*ids, token]) for token, value in enumerate(after(ids).tolist())]
            candidates += sorted(grown, reverse=True)[:1] if rule == "alone" and len(beams) == beam else grown
        sign = 1 if rule == "worst" else -1
        candidates.sort(key=lambda candidate: sign * candidate[0] / (len(candidate[1]) - 1 if rule == "mean" else 1))
        beams = candidates[:beam]
        if rule == "early" and beams[0][1][-1] == END:
            break
    return beams


def _kept_apart(after: Callable[[list[int]], Tensor], beam: int, most: int) -> Beams:
    """Finished candidates are put aside, and compared at the end only."""
    beams: Beams = [(0.0, [START])]
    finished: Beams = []
    for _ in range(most):
        grown = [
            (total + value, [*ids, token]) for total, ids in beams for token, value in enumerate(after(ids).tolist())
        ]
        finished += [one for one in grown if one[1][-1] == END]
        beams = sorted((one for one in grown if one[1][-1] != END), key=lambda one: -one[0])[:beam]
    return sorted(finished + beams, key=lambda one: -one[0])[:beam]


def _score(total: float, value: float, rule: str) -> float:
    if rule == "product":
        return total * value
    if rule == "probabilities":
        return total + math.exp(value)
    return value if rule == "last" else total + value


def beam_search(code: Code) -> Steps:
    """Beam search in small languages, and against all sentences."""
    function = code.function("beam_search")
    for seed in (20, 21, 22, 23):
        after = _language(seed)
        _compare_beams(function(after, START, END, 3, 4), after, 3, 4)
    yield passed("beams-right")
    after = _language(24)
    _compare_beams(function(after, START, END, 1, 4), after, 1, 4)
    yield passed("one-beam-is-greedy")
    _compare_beams(function(after, START, END, 500, 3), after, 500, 3)
    yield passed("enough-beams")


_MISTAKEN = {  # name of the mistake -> the rule of `_searched` that makes it
    "product": "product",
    "probabilities-added": "probabilities",
    "last-token-only/beam_search": "last",
    "continued-after-the-end": "continued",
    "finished-dropped": "dropped",
    "divided-by-length": "mean",
    "stopped-early": "early",
    "each-beam-alone": "alone",
}


def _compare_beams(given: object, after: Callable[[list[int]], Tensor], beam: int, most: int) -> None:
    """Compare with the right beams.

    Raises:
        Wrong: with the name of the mistake that gives the same beams.
    """
    right = _searched(after, beam, most)
    beams = _as_beams(given)
    if not _same_beams(beams, right):
        for name, rule in _MISTAKEN.items():
            if _same_beams(beams, _searched(after, beam, most, rule)):
                raise Wrong(name)
        require(len(beams) <= beam, "too-many", given=len(beams), beam=beam)
        require(not _same_beams(sorted(beams), sorted(right)), "order")
        require(not _same_beams(beams, _searched(after, beam, most, "worst")), "worst-kept")
        require(not _same_beams(beams, _kept_apart(after, beam, most)), "finished-kept-apart")
        require(not _same_beams([(one, [START, *ids]) for one, ids in beams], right), "start-missing")
        require(max((len(ids) for _, ids in beams), default=0) <= most + 1, "shared-list", most=most)
        greedy = _searched(after, 1, most)
        require(not _same_beams(beams, greedy), "greedy", beam=beam)
    for (score, ids), (best, expected) in zip(beams, right, strict=False):
        require(ids == expected, "other-beam", given=ids, score=score, right=expected, best=best)
        require(abs(score - best) < 1e-4, "beam-score", ids=ids, given=score, right=best)
    require(len(beams) == len(right), "too-few-beams", given=len(beams), right=len(right))


def _as_beams(given: object) -> Beams:
    if given is None:
        require_tensor(given)
    try:
        return [(float(score), [int(one) for one in ids]) for score, ids in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise Wrong("not-pairs/writing") from None


def _same_beams(a: Beams, b: Beams) -> bool:
    return [ids for _, ids in a] == [ids for _, ids in b] and all(
        abs(one - other) < 1e-4 for (one, _), (other, _) in zip(a, b, strict=True)
    )
