"""Questions to compute by hand, with other numbers in each draw. Their texts stand in questions.toml.

Scores are logarithms of small integers, probabilities are twentieths, deviations are whole: each answer is a simple
fraction. The answers come from the functions of the chapters and of the production modules.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from jumok.config import TrainConfig
from jumok.course.chapters import averaging, dot_product, head
from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.positions import frequencies
from jumok.course.chapters.speed import cache_bytes
from jumok.course.words import Words, words_in
from jumok.inference import sampling
from jumok.models.pooling import Pooling
from jumok.nn import MultiHeadAttention, causal_mask
from jumok.nn import sinusoidal as sinusoidal_table
from jumok.tokenizers import train_tokenizer
from jumok.training.optim import rate

TEXTS = Path(__file__).parent / "questions.toml"
LARGEST_DENOMINATOR = 10_000
LETTERS = "ABCDEFG"
# Pairs a, b of which (-b, -a, a, b) has a whole standard deviation: a² + b² = 2 s².
DEVIATIONS = ((1, 1), (1, 7), (7, 17), (2, 14), (3, 21))
# All sets of five different numbers with sum 20, of which none is above 10.
DISTRIBUTIONS = [
    (a, b, c, d, 20 - a - b - c - d)
    for a in range(1, 4) for b in range(a + 1, 6) for c in range(b + 1, 8) for d in range(c + 1, 10)
    if d < 20 - a - b - c - d <= 10
]  # fmt: skip
WORDS = ("low", "slow", "show", "owl", "mow", "tower", "newer", "wider", "lower", "new", "wide", "side", "tide", "hide")
BYTES = 256  # tokens of a byte-level tokenizer before its first merge
# In the names of a GPT's parameters; norms first, since those of a block are named after what follows them.
PARTS = ("norm", "token_embedding", "position_embedding", "attention", "mlp")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

# The numbers of a question by name, its answer as exact numbers, and what fills the fields of its texts.
Numbers = tuple[dict[str, Any], Any, dict[str, object]]


@dataclass(frozen=True)
class Drawn:
    """A question with its numbers.

    Fields:
        question, answer: Markdown.
        given: the numbers of the question, by name.
        value: the answer as exact numbers: integers, fractions, strings, and lists of these.
    """

    question: Words
    answer: Words
    given: Mapping[str, Any]
    value: Any


@dataclass(frozen=True)
class Kind:
    """A kind of question. chapter: the chapter that explains it. numbers: draws the numbers and computes the answer."""

    name: str
    chapter: int
    numbers: Callable[[Random], Numbers]

    @property
    def title(self) -> Words:
        """The title of its questions."""
        return words_in(TEXTS, self.name)["title"]

    def draw(self, rng: Random) -> Drawn:
        """Draw a question."""
        given, value, fields = self.numbers(rng)
        texts = words_in(TEXTS, self.name)
        fields = {**given, **fields}
        return Drawn(texts["question"].filled(**fields), texts["answer"].filled(**fields), given, value)


def average(rng: Random) -> Numbers:
    """Ask for the average of the tokens so far, and the row of the averaging matrix."""
    x = [_integers(rng, 2, -6, 9) for _ in range(5)]
    t = rng.randint(2, 3)
    value = exact(averaging.average_by_matrix(_tensor(x))[t])
    row = exact(averaging.normalise_rows(averaging.triangle(5).double())[t])
    return {"x": x, "t": t}, [value, row], {"x": _rows("x", x), "average": _vector(value), "row": _vector(row)}


def dot_products(rng: Random) -> Numbers:
    """Ask for two scores, as dot products."""
    q = _integers(rng, 4, -4, 5)
    k = [_integers(rng, 4, -4, 5) for _ in range(2)]
    value = exact(dot_product.scores_by_loop(_tensor([q]), _tensor(k))[0])
    answer = ", ".join(f"q·k{_subscript(s)} = {score}" for s, score in enumerate(value))
    return {"q": q, "k": k}, value, {"q": _vector(q), "k": _rows("k", k), "answer": answer}


def softmax(rng: Random) -> Numbers:
    """Ask for a softmax over logarithms."""
    powers = _integers(rng, 4, 1, 9)
    value = exact(dot_product.softmax(_tensor(powers).log()))
    return {"powers": powers}, value, {"scores": _logs(powers), "weights": _vector(value)}


def softmax_gradient(rng: Random) -> Numbers:
    """Ask for the derivative of a weight with respect to two scores."""
    powers = _integers(rng, 3, 1, 8)
    weights = dot_product.softmax(_tensor(powers).log())
    i = rng.randrange(3)
    j = (i + rng.randint(1, 2)) % 3
    value = [exact(dot_product.softmax_jacobian(weights)[i, s]) for s in (i, j)]
    fields: dict[str, object] = {
        "weights": _vector(exact(weights)), "own": value[0], "other": value[1], "i": _subscript(i), "j": _subscript(j),
    }  # fmt: skip
    return {"powers": powers, "i": i, "j": j}, value, fields


def weighted_sum(rng: Random) -> Numbers:
    """Ask for the output of attention for one query."""
    powers = _integers(rng, 3, 1, 6)
    v = [_integers(rng, 2, -5, 8) for _ in range(3)]
    scores = _tensor(powers).log()
    value = exact(dot_product.attend(torch.ones(1, 1).double(), scores[:, None], _tensor(v))[0])
    fields: dict[str, object] = {
        "scores": _logs(powers), "v": _rows("v", v), "weights": _vector(exact(dot_product.softmax(scores))),
        "output": _vector(value),
    }  # fmt: skip
    return {"powers": powers, "v": v}, value, fields


def scaled_scores(rng: Random) -> Numbers:
    """Ask for scores divided by √D."""
    width, root = rng.choice([(4, 2), (4, 2), (9, 3)])
    q = _integers(rng, width, -3, 3)
    k = [_integers(rng, width, -3, 3) for _ in range(2)]
    value = exact(dot_product.scores_by_loop(_tensor([q]), _tensor(k))[0] * width**-0.5)
    fields: dict[str, object] = {
        "width": width, "root": root, "q": _vector(q), "k": _rows("k", k), "scores": _vector(value)
    }  # fmt: skip
    return {"q": q, "k": k}, value, fields


def causal_row(rng: Random) -> Numbers:
    """Ask for a row of a causal mask with fewer queries than keys, and its number of ones."""
    s = rng.randint(5, 12)
    t = rng.randint(2, s - 1)
    row = rng.randrange(t)
    mask = causal_mask(t, s)
    allowed, ones = mask[row].int().tolist(), int(mask.sum())
    return {"t": t, "s": s, "row": row}, [allowed, ones], {"allowed": _vector(allowed), "ones": ones}


def masked_weights(rng: Random) -> Numbers:
    """Ask for the weights of causal attention from a table of logarithms."""
    powers = [_integers(rng, 3, 1, 7) for _ in range(3)]
    value = exact(head.masked_softmax(_tensor(powers).log(), head.causal_mask(3)))
    scores = "\n".join("  ".join(f"ln {power}" for power in row) for row in powers)
    return {"powers": powers}, value, {"scores": scores, "weights": "; ".join(map(_vector, value))}


def shapes(rng: Random) -> Numbers:
    """Ask for shapes inside multi-head attention, with shared keys."""
    n_head, n_kv_head = rng.choice([(2, 1), (4, 2), (4, 1), (6, 3), (6, 2), (8, 4), (8, 2)])
    batch, t, head_dim = rng.randint(2, 6), rng.randint(3, 15), rng.choice([4, 8, 16])
    width = n_head * head_dim
    attention = MultiHeadAttention(width, width, n_head, n_kv_head=n_kv_head)
    x = torch.zeros(batch, t, width)
    with torch.no_grad():
        q = attention.q_proj(x).view(batch, t, n_head, head_dim).transpose(1, 2)  # (B, H, T, D)
        k = attention.k_proj(x).view(batch, t, n_kv_head, head_dim).transpose(1, 2)  # (B, G, T, D)
        scores = q @ k.repeat_interleave(n_head // n_kv_head, dim=-3).transpose(-2, -1)
        value = [list(made.shape) for made in (q, k, scores, attention(x))]
    given = {"b": batch, "t": t, "c": width, "h": n_head, "g": n_kv_head}
    return given, value, {"shapes": ", ".join(map(_vector, value))}


def masked_mean(rng: Random) -> Numbers:
    """Ask for the mean of a sequence with padding."""
    length = rng.randint(2, 4)
    x = [_integers(rng, 2, -5, 9) for _ in range(5)]
    mask = torch.arange(5)[None] < length  # (B, S)
    value = exact(Pooling("mean")(_tensor([x]), mask)[0])
    fields = {"mask": _vector(mask[0].int().tolist()), "h": _rows("h", x), "mean": _vector(value)}
    return {"x": x, "length": length}, value, {**fields}


def layer_norm(rng: Random) -> Numbers:
    """Ask for the layer normalization of four numbers."""
    a, b = rng.choice(DEVIATIONS)
    mean = rng.randint(-9, 9)
    x = [mean - b, mean - a, mean + a, mean + b]
    rng.shuffle(x)
    weight, bias = rng.choice([1, 2, 5, 10]), rng.randint(-2, 3)
    ones = torch.ones(4, dtype=torch.float64)
    value = exact(F.layer_norm(_tensor(x), (4,), weight * ones, bias * ones, eps=0.0))
    fields = {"x": _vector(x), "value": _vector(value), "mean": mean, "deviation": math.isqrt((a * a + b * b) // 2)}
    return {"x": x, "weight": weight, "bias": bias}, value, {**fields}


def sinusoidal(rng: Random) -> Numbers:
    """Ask for two entries of the sinusoidal table, as a function and an angle."""
    width = rng.choice([4, 8])
    position, pair = rng.randint(2, 60), rng.randint(1, width // 2 - 1)
    angle = position * exact(frequencies(width)[pair])
    sine, cosine = sinusoidal_table(position + 1, width)[position, 2 * pair : 2 * pair + 2].tolist()
    given = {"width": width, "position": position, "pair": pair}
    fields = {"even": 2 * pair, "odd": 2 * pair + 1, "angle": angle, "sine": sine, "cosine": cosine}
    return given, [angle, sine, cosine], fields


def rotary(rng: Random) -> Numbers:
    """Ask for the angle between a query and a key that rotary positions add."""
    width = rng.choice([4, 8])
    pair = rng.randint(1, width // 2 - 1)
    q, k = sorted(rng.sample(range(3, 80), 2), reverse=True)
    shift = rng.randint(5, 40)
    angle = (q - k) * exact(frequencies(width)[pair])
    return {"width": width, "pair": pair, "distance": q - k}, angle, {"q": q, "k": k, "shift": shift, "angle": angle}


def kv_cache(rng: Random) -> Numbers:
    """Ask for the size of a KV cache."""
    n_head, n_kv_head = rng.choice([(4, 4), (4, 2), (8, 2), (8, 4), (8, 8), (6, 2)])
    n_layer, head_dim = rng.randint(2, 12), rng.choice([8, 16, 32])
    length, batch = rng.choice([10, 20, 25, 50, 100]), rng.randint(2, 5)
    each = rng.choice([4, 2])
    value = batch * cache_bytes(n_layer, n_kv_head, head_dim, length, each)
    given = {
        "layers": n_layer, "batch": batch, "groups": n_kv_head, "length": length, "d": head_dim, "bytes": each
    }  # fmt: skip
    return given, value, {"heads": n_head, "value": value}


def parameters(rng: Random) -> Numbers:
    """Ask for the number of parameters of a classic GPT."""
    width, n_head = rng.choice([(4, 2), (6, 2), (8, 2), (10, 2), (8, 4), (10, 5)])
    vocab, context, n_layer = rng.randint(10, 60), rng.randint(4, 20), rng.randint(2, 4)
    with torch.device("meta"):
        model = GPT(vocab, context, n_layer, n_head, width)
    counts = Counter[str]()
    for name, parameter in model.named_parameters():
        part = next(part for part in PARTS if part in name)
        counts[part] += parameter.numel()
    value = sum(counts.values())
    given = {"vocab": vocab, "context": context, "layers": n_layer, "c": width}
    fields = {"heads": n_head, "mlp_width": 4 * width, "value": value}
    return given, value, {**fields, **counts, "norms": counts["norm"]}


def cross_entropy(rng: Random) -> Numbers:
    """Ask for the loss and the perplexity from the probabilities of the right tokens, all powers of 1/2."""
    powers = _integers(rng, 4, 1, 6)
    p = torch.tensor([0.5**power for power in powers], dtype=torch.float64)
    logits = torch.stack((p, 1 - p), dim=-1).log()  # (T, 2)
    value = exact(F.cross_entropy(logits, torch.zeros(len(powers), dtype=torch.long)) / math.log(2))
    fields: dict[str, object] = {
        "p": _vector([Fraction(1, 2**power) for power in powers]), "value": value,
        "loss": float(value) * math.log(2), "perplexity": 2 ** float(value),
    }  # fmt: skip
    return {"powers": powers}, value, fields


def learning_rate(rng: Random) -> Numbers:
    """Ask for the learning rate during the warm-up and during the linear decay."""
    steps, peak = rng.choice([100, 200, 400, 500]), rng.choice([2, 3, 4, 6, 8])
    warmup, final = rng.choice([10, 20]), rng.choice([0, 10, 20])  # percent
    end = steps * warmup // 100
    early, late = rng.randint(1, end - 1), rng.randrange(end + 1, steps)
    config = TrainConfig(schedule="linear", warmup=warmup / 100, final_rate=final / 100)
    shares = exact(torch.tensor([rate(config, step / steps) for step in (early, late)], dtype=torch.float64))
    value = [share * Fraction(peak, 1000) for share in shares]
    first, second = (f"{number} ≈ {float(number):.3g}" for number in value)
    given = {"steps": steps, "peak": peak, "end": end, "final": final, "early": early, "late": late}
    return given, value, {"first": first, "second": second}


def temperature(rng: Random) -> Numbers:
    """Ask for probabilities at a temperature of 1/2 or 2."""
    powers = rng.sample(range(1, 8), 3)
    cold = bool(rng.randrange(2))
    shown = [power if cold else power**2 for power in powers]
    settings = sampling.Sampling(temperature=0.5 if cold else 2.0)
    value = exact(sampling.softmax(sampling.filtered(np.log([shown]), settings))[0])
    given = {"logits": shown, "temperature": "1/2" if cold else "2"}
    return given, value, {"logits": _logs(shown), "p": _vector(value)}


def top_k(rng: Random) -> Numbers:
    """Ask for the tokens that top-k keeps, and their probabilities."""
    p, k = _distribution(rng), rng.randint(2, 4)
    value = _kept(sampling.keep_top_k(np.log([[float(number) for number in p]]), k))
    return {"p": p, "k": k}, value, {"p": _listed(p), "kept": _named(value)}


def top_p(rng: Random) -> Numbers:
    """Ask for the tokens that top-p keeps, and their probabilities."""
    p = _distribution(rng)
    limit = rng.choice([0.52, 0.58, 0.63, 0.68, 0.72, 0.77, 0.83, 0.88])  # between sums of probabilities, never equal
    value = _kept(sampling.keep_top_p(np.log([[float(number) for number in p]]), limit))
    return {"p": p, "limit": limit}, value, {"p": _listed(p), "kept": _named(value)}


def bpe_merges(rng: Random) -> Numbers:
    """Ask for the first two merges of BPE on a list of words."""
    counts: dict[str, int] = {}
    while not _has_one_answer(counts):
        counts = {word: rng.randint(1, 9) for word in rng.sample(WORDS, 4)}
    text = "\n".join(word for word, count in counts.items() for _ in range(count))
    trained = train_tokenizer(text, "bpe", vocab_size=BYTES + 2, min_count=1)
    value = [(left, right) for left, right in json.loads(trained.to_json())["model"]["merges"]]
    listed = ", ".join(f"{word} {count}" for word, count in counts.items())
    merged = ", ".join(f"{left} + {right} → {left}{right}" for left, right in value)
    return {"counts": counts}, value, {"words": listed, "merges": merged}


KINDS: Mapping[str, Kind] = {
    draw.__name__: Kind(draw.__name__, chapter, draw)
    for chapter, draws in (
        (1, (cross_entropy,)),
        (2, (average,)),
        (3, (dot_products, softmax, softmax_gradient, weighted_sum)),
        (4, (scaled_scores,)),
        (5, (causal_row, masked_weights)),
        (6, (shapes,)),
        (7, (layer_norm,)),
        (8, (sinusoidal, rotary)),
        (9, (parameters,)),
        (10, (learning_rate,)),
        (11, (temperature, top_k, top_p)),
        (12, (bpe_merges,)),
        (14, (kv_cache,)),
        (15, (masked_mean,)),
    )
    for draw in draws
}


# --- numbers, drawn and written ---


def exact(numbers: Tensor | NDArray[np.float64]) -> Any:
    """Return the fractions that float64 numbers stand for, in nested lists of the same shape.

    Raises:
        ValueError: a number is not close to a fraction with a denominator of at most 10,000.
    """
    if numbers.ndim:
        return [exact(row) for row in numbers]
    number = float(numbers)
    fraction = Fraction(number).limit_denominator(LARGEST_DENOMINATOR)
    if abs(number - float(fraction)) > 1e-9 * max(1.0, abs(number)):
        raise ValueError(f"{number!r} is not a simple fraction")
    return fraction


def _tensor(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _integers(rng: Random, count: int, low: int, high: int) -> list[int]:
    """Draw integers from low to high, both included; not all zero."""
    while True:
        numbers = [rng.randint(low, high) for _ in range(count)]
        if any(numbers):
            return numbers


def _distribution(rng: Random) -> list[Fraction]:
    """Draw the probabilities of five tokens in twentieths, all different, with sum 1."""
    parts = rng.choice(DISTRIBUTIONS)
    return [Fraction(part, 20) for part in rng.sample(parts, len(parts))]


def _has_one_answer(counts: dict[str, int]) -> bool:
    """Return whether each of two merges of BPE is of a pair that is more frequent than all others.

    No word has the same letter twice in a row.
    """
    words = {word: list(word) for word in counts}
    for _ in range(2):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                pairs[pair] += counts[word]
        most = pairs.most_common(2)
        if len(most) < 2 or most[0][1] == most[1][1]:
            return False
        for pieces in words.values():
            for place, pair in reversed(list(enumerate(pairwise(pieces)))):
                if pair == most[0][0]:
                    pieces[place : place + 2] = ["".join(pair)]
    return True


def _kept(logits: NDArray[np.float64]) -> dict[str, Fraction]:
    """Return the probabilities above zero by letter. logits: (1, V)."""
    return {LETTERS[i]: number for i, number in enumerate(exact(sampling.softmax(logits)[0])) if number}


def _vector(numbers: Sequence[object]) -> str:
    return f"({', '.join(str(number) for number in numbers)})"


def _rows(name: str, vectors: Sequence[Sequence[object]]) -> str:
    """Write a Markdown list: x₀ = (1, 2), x₁ = (3, 4)."""
    return "\n".join(f"- {name}{_subscript(i)} = {_vector(numbers)}" for i, numbers in enumerate(vectors))


def _subscript(number: int) -> str:
    return str(number).translate(_SUBSCRIPTS)


def _logs(numbers: Sequence[int]) -> str:
    return _vector([f"ln {number}" for number in numbers])


def _listed(p: list[Fraction]) -> str:
    return ", ".join(f"{LETTERS[i]} {float(number):g}" for i, number in enumerate(p))


def _named(p: Mapping[str, Fraction]) -> str:
    return ", ".join(f"{name} {number}" for name, number in p.items())
