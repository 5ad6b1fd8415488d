"""Questions on training, sampling and tokenizers (chapters 13 to 15)."""

from __future__ import annotations

import json
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from random import Random

import torch
from torch import Tensor

from jumok.config import TrainConfig
from jumok.course.chapters.three_models import mean_loss
from jumok.course.exam.drawn import Drawn, exact, integers, logs, same, vector
from jumok.course.words import Words
from jumok.inference.sampling import Sampling, filtered, keep_top_k, keep_top_p
from jumok.tokenizers import train_tokenizer
from jumok.training.optim import rate

LETTERS = "ABCDEFG"
WORDS = ("low", "slow", "show", "owl", "mow", "tower", "newer", "wider", "lower", "new", "wide", "side", "tide", "hide")
BYTES = 256  # tokens of a byte-level tokenizer before its first merge


def cross_entropy(rng: Random) -> Drawn:
    """The loss and the perplexity from the probabilities of the right tokens, all powers of 1/2."""
    powers = integers(rng, 4, 1, 6)
    p = torch.tensor([0.5**power for power in powers], dtype=torch.float64)
    logits = torch.stack((p, 1 - p), dim=-1).log()  # (T, 2)
    loss = mean_loss(logits[None], torch.zeros(1, len(powers), dtype=torch.long))
    value = exact(loss / math.log(2))
    shown = vector([Fraction(1, 2**power) for power in powers])
    return Drawn(
        Words(
            f"모델이 위치 네 곳에서 정답 토큰에 준 확률이 {shown}입니다. 교차 엔트로피 손실(평균)을 ln 2의 배수로 "
            "쓰고, 퍼플렉시티를 "
            "2의 거듭제곱으로 쓰세요.",
            f"A model gives the right tokens at four positions the probabilities {shown}. Write the mean "
            "cross-entropy as a "
            "multiple of ln 2, and the perplexity as a power of 2.",
        ),
        Words(
            f"손실 {value} · ln 2 ≈ {float(value) * math.log(2):.3f}, 퍼플렉시티 2^({value}) ≈ {2 ** float(value):.2f}",
            f"loss {value} · ln 2 ≈ {float(value) * math.log(2):.3f}, perplexity 2^({value}) ≈ {2 ** float(value):.2f}",
        ),
        {"powers": powers},
        value,
    )


def learning_rate(rng: Random) -> Drawn:
    """The learning rate during the warm-up and during the linear decay."""
    steps, peak = rng.choice([100, 200, 400, 500]), rng.choice([2, 3, 4, 6, 8])
    warmup, final = rng.choice([10, 20]), rng.choice([0, 10, 20])  # percent
    end = steps * warmup // 100
    early, late = rng.randint(1, end - 1), rng.randrange(end + 1, steps)
    config = TrainConfig(schedule="linear", warmup=warmup / 100, final_rate=final / 100)
    shares = torch.tensor([rate(config, step / steps) for step in (early, late)], dtype=torch.float64)
    value = [share * Fraction(peak, 1000) for share in exact(shares)]
    shown = [f"{number} ≈ {float(number):.3g}" for number in value]
    return Drawn(
        Words(
            f"전체 {steps}스텝 중 처음 {end}스텝은 학습률이 0에서 최댓값 {peak}/1000까지 선형으로 늘고(워밍업), 그 "
            f"뒤에는 마지막 스텝까지 최댓값의 {final}%로 선형으로 줄어듭니다. 스텝 {early}, 스텝 {late}에서 학습률은 "
            "각각 얼마인가요?",
            f"A run has {steps} steps. In the first {end} the learning rate rises linearly from 0 to its peak of "
            f"{peak}/1000 (warm-up); afterwards it falls linearly to {final}% of the peak at the last step. Compute "
            f"the learning rate at step {early} and at step {late}.",
        ),
        Words(
            f"스텝 {early}: {shown[0]}, 스텝 {late}: {shown[1]}",
            f"step {early}: {shown[0]}, step {late}: {shown[1]}",
        ),
        {"steps": steps, "peak": peak, "end": end, "final": final, "early": early, "late": late},
        value,
    )


def temperature(rng: Random) -> Drawn:
    """Probabilities at a temperature of 1/2 or 2."""
    powers = rng.sample(range(1, 8), 3)
    squared = bool(rng.randrange(2))
    logits = torch.tensor([power if squared else power**2 for power in powers], dtype=torch.float64).log()
    t = 0.5 if squared else 2.0
    value = exact(filtered(logits[None], Sampling(temperature=t))[0].softmax(dim=-1))
    shown = logs([power if squared else power**2 for power in powers])
    said = "1/2" if squared else "2"
    return Drawn(
        Words(
            f"로짓이 {shown}일 때 온도 {said}에서 세 토큰의 확률을 분수로 쓰세요.",
            f"The logits are {shown}. Write the probabilities of the three tokens at temperature {said} as fractions.",
        ),
        same(vector(value)),
        {"logits": [power if squared else power**2 for power in powers], "temperature": said},
        value,
    )


def top_k(rng: Random) -> Drawn:
    """The tokens that top-k keeps, and their probabilities."""
    p, k = _distribution(rng), rng.randint(2, 4)
    kept = keep_top_k(_logits(p), k)[0].softmax(dim=-1)
    value = _kept(kept)
    return Drawn(
        Words(
            f"다음 토큰의 확률이 {_listed(p)}입니다. k = {k}인 top-k로 샘플링하면 어떤 토큰이 남고, 각각의 확률은 "
            "얼마가 되나요?",
            f"The probabilities of the next token are {_listed(p)}. Which tokens remain with top-k = {k}, and "
            "with what probabilities?",
        ),
        same(", ".join(f"{name} {number}" for name, number in value.items())),
        {"p": p, "k": k},
        value,
    )


def top_p(rng: Random) -> Drawn:
    """The tokens that top-p keeps, and their probabilities."""
    p = _distribution(rng)
    limit = rng.choice([0.52, 0.58, 0.63, 0.68, 0.72, 0.77, 0.83, 0.88])  # between sums of probabilities, never equal
    kept = keep_top_p(_logits(p), limit)[0].softmax(dim=-1)
    value = _kept(kept)
    return Drawn(
        Words(
            f"다음 토큰의 확률이 {_listed(p)}입니다. p = {limit}인 top-p로 샘플링하면 어떤 토큰이 남고, 각각의 확률은 "
            "얼마가 되나요?",
            f"The probabilities of the next token are {_listed(p)}. Which tokens remain with top-p = {limit}, "
            "and with what probabilities?",
        ),
        same(", ".join(f"{name} {number}" for name, number in value.items())),
        {"p": p, "limit": limit},
        value,
    )


def merges(rng: Random) -> Drawn:
    """The first two merges of BPE on a list of words."""
    counts: dict[str, int] = {}
    value: list[tuple[str, str]] = []
    while len(value) < 2:
        counts = {word: rng.randint(1, 9) for word in rng.sample(WORDS, 4)}
        value = first_merges(counts, 2)
    text = "\n".join(word for word, count in counts.items() for _ in range(count))
    trained = train_tokenizer(text, "bpe", vocab_size=BYTES + 2, min_count=1)
    value = [(left, right) for left, right in json.loads(trained.to_json())["model"]["merges"]]
    listed = ", ".join(f"{word} {count}" for word, count in counts.items())
    return Drawn(
        Words(
            f"단어와 출현 횟수입니다: {listed}. 글자에서 시작하여 BPE의 병합을 두 번 하세요. 단어의 경계를 넘어 "
            "병합하지는 않습니다. "
            "첫째와 둘째로 병합하는 쌍은 무엇인가요?",
            f"These are words with their counts: {listed}. Starting from letters, apply two merges of BPE. Merges "
            "never "
            "cross the boundary of a word. Which pairs are merged first and second?",
        ),
        same(", ".join(f"{left} + {right} → {left}{right}" for left, right in value)),
        {"counts": counts},
        value,
    )


def first_merges(counts: dict[str, int], wanted: int) -> list[tuple[str, str]]:
    """The first merges of BPE, fewer than `wanted` where two pairs are equally frequent.

    Args:
        counts: word -> how often it occurs. No word has the same letter twice in a row.
        wanted: number of merges.
    """
    words = {word: list(word) for word in counts}
    found: list[tuple[str, str]] = []
    for _ in range(wanted):
        pairs: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for left, right in pairwise(pieces):
                pairs[left, right] += counts[word]
        most = pairs.most_common(2)
        if len(most) < 2 or most[0][1] == most[1][1]:
            break
        found.append(most[0][0])
        words = {word: _merged(pieces, most[0][0]) for word, pieces in words.items()}
    return found


def _merged(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for piece in pieces:
        if merged and (merged[-1], piece) == pair:
            merged[-1] += piece
        else:
            merged.append(piece)
    return merged


def _distribution(rng: Random) -> list[Fraction]:
    """Probabilities of five or six tokens in twentieths, all different, with sum 1."""
    parts = rng.choice(_DISTRIBUTIONS)
    return [Fraction(part, 20) for part in rng.sample(parts, len(parts))]


# All sets of five different numbers with sum 20, of which none is above 10.
_DISTRIBUTIONS = [
    (a, b, c, d, 20 - a - b - c - d)
    for a in range(1, 4) for b in range(a + 1, 6) for c in range(b + 1, 8) for d in range(c + 1, 10)
    if d < 20 - a - b - c - d <= 10
]  # fmt: skip


def _logits(p: list[Fraction]) -> Tensor:
    return torch.tensor([[float(number) for number in p]], dtype=torch.float64).log()


def _kept(probabilities: Tensor) -> dict[str, Fraction]:
    return {LETTERS[i]: number for i, number in enumerate(exact(probabilities)) if number}


def _listed(p: list[Fraction]) -> str:
    return ", ".join(f"{LETTERS[i]} {float(number):g}" for i, number in enumerate(p))
