"""Checks of the exercises on sampling, generation, the KV cache and beam search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from jumok.course.practice.checking import (
    Code,
    Steps,
    Wrong,
    compare,
    hidden,
    passed,
    require,
    require_earlier,
    require_tensor,
    result_of,
    results,
    same,
)
from jumok.course.practice.parameters import copy_parameters, fill
from jumok.inference import sampling
from jumok.nn import MultiHeadAttention
from jumok.nn.cache import LayerCache


def _probabilities(logits: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)
    return (logits / temperature).softmax(-1)


LOGITS = hidden(3, 7, scale=2)
temperature = results(
    "probabilities",
    _probabilities,
    {"divided-by-temperature": [(LOGITS, 0.5), (LOGITS, 2.0)], "largest-at-zero": [(LOGITS, 0), (LOGITS, 0.0)]},
)


def _kept(keep: Callable[[Any, Any], Any]) -> Callable[[Tensor, float], Tensor]:
    """Return a filter of production, which computes in NumPy, as a function of tensors."""
    return lambda logits, most: torch.from_numpy(keep(logits.numpy(), most))


MANY = hidden(3, 9, seed=2)
top_k = results(
    "keep_top_k",
    _kept(sampling.keep_top_k),
    {"top-k-kept": [(MANY, 4)], "k-may-be-large": [(MANY, 1), (MANY, 9), (MANY, 50)]},
)


def top_p(code: Code) -> Steps:
    """The fewest likeliest tokens whose probabilities reach p."""
    table = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()  # the example of the task, in another order
    logits = hidden(4, 11, seed=3, scale=1.5)
    cases = {"example-right": [(table, 0.55)], "nucleus-kept": [(logits, 0.6), (logits, 0.9)]}
    yield from results("keep_top_p", _kept(sampling.keep_top_p), cases)(code)
    tiny = require_tensor(result_of(code.function("keep_top_p"), logits, 0.001))
    require(bool(tiny.isfinite().any(-1).all()), "none-left")
    compare(tiny, _kept(sampling.keep_top_p)(logits, 0.001))
    compare(code.function("keep_top_p")(logits.clone(), 1.0), logits)
    yield passed("one-remains")


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
    logits = hidden(2, 5)
    require_earlier("temperature", code.function("probabilities")(logits.clone(), 0.5), (logits / 0.5).softmax(-1))
    model = _Counting(11).train()
    start = torch.tensor([[1, 2, 3], [4, 6, 5]])
    made = require_tensor(function(model, start.clone(), 6, 4))
    widest = max((ids.shape[1] for ids in model.seen), default=0)
    require(widest > 0, "no-model")
    require(widest <= 4, "not-cropped", length=widest)
    right = _continued(model, start, 6, 4)
    compare(made, right)
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
    require(same(require_tensor(function(unsure, start.clone(), 6, 4, temperature=0)), right), "temperature-ignored")
    yield passed("temperature-used")


def _continued(model: _Counting, ids: Tensor, tokens: int, length: int) -> Tensor:
    for _ in range(tokens):
        ids = torch.cat((ids, model.after(ids[:, -length:])[:, -1:]), dim=1)
    return ids


# --- kv_cache ---


def kv_cache(code: Code) -> Steps:
    """Attention with a cache equals attention without one, and the production module."""
    width, length, first = 6, 9, 4
    production = MultiHeadAttention(width, width, 1, project=False)
    fill(production)
    layer = code.module("CachedAttention", width, length)
    copy_parameters(
        production, layer, {f"{name[0]}_proj.weight": f"{name}.weight" for name in ("query", "key", "value")}
    )
    x = hidden(2, length, width, seed=4)
    with torch.no_grad():
        placed = x + layer.position.weight.copy_(hidden(length, width, seed=5))
        right = production(placed, causal=True)
        compare(result_of(layer, x, None), right)
        yield passed("equals-without-cache")
        cache: dict[str, Tensor] = {}
        compare(layer(x[:, :first].clone(), cache), right[:, :first])
        require(bool(cache), "not-stored")
        require({"k", "v"} <= set(cache), "names", found=sorted(cache))
        compare(layer(x[:, first : first + 1].clone(), cache), right[:, first : first + 1])
        require(cache["k"].shape[1] == first + 1, "not-appended/cache", count=cache["k"].shape[1])
        yield passed("next-token")
        compare(layer(x[:, first + 1 :].clone(), cache), right[:, first + 1 :])
        yield passed("several-tokens")
        kept = LayerCache(length, torch.empty(len(x), 1, 0, width))
        keys, values = kept.append(production.k_proj(placed)[:, None], production.v_proj(placed)[:, None])
        compare(cache["k"], keys[:, 0])
        compare(cache["v"], values[:, 0])
    yield passed("cache-contents")


# --- beam_search ---

START, END = 0, 4
Beams = list[tuple[float, list[int]]]


def _language(seed: int) -> Callable[[list[int]], Tensor]:
    """Return a language of 5 tokens in which a token depends on the two before it."""
    table = hidden(5, 5, 5, seed=seed, scale=1.6)
    table[..., START] -= 4
    return lambda ids: table[(ids[-2] if len(ids) > 1 else 0), ids[-1]].log_softmax(-1)


def _searched(after: Callable[[list[int]], Tensor], beam: int, most: int) -> Beams:
    beams: Beams = [(0.0, [START])]
    for _ in range(most):
        candidates = [one for one in beams if one[1][-1] == END]
        for total, ids in beams:
            if ids[-1] != END:
                candidates += [(total + value, [*ids, token]) for token, value in enumerate(after(ids).tolist())]
        beams = sorted(candidates, key=lambda candidate: -candidate[0])[:beam]
    return beams


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


def _compare_beams(given: object, after: Callable[[list[int]], Tensor], beam: int, most: int) -> None:
    """Compare with the right beams."""
    right, beams = _searched(after, beam, most), _as_beams(given)
    rounded = [(round(score, 3), ids) for score, ids in beams]
    require(len(beams) <= beam, "too-many", given=len(beams), beam=beam)
    for (score, ids), (best, expected) in zip(beams, right, strict=False):
        if ids != expected:
            raise Wrong("other-beam", rounded, given=ids, score=score, right=expected, best=best, most=most, beam=beam)
        if abs(score - best) > 1e-4:
            raise Wrong("beam-score", rounded, ids=ids, given=score, right=best, most=most, beam=beam)
    if len(beams) != len(right):
        raise Wrong("too-few-beams", rounded, given=len(beams), right=len(right), most=most, beam=beam)


def _as_beams(given: object) -> Beams:
    if given is None:
        require_tensor(given)
    try:
        return [(float(score), [int(one) for one in ids]) for score, ids in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise Wrong("not-pairs/writing") from None
