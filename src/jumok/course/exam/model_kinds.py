"""Questions on normalization, positions, the cache and the size of a model (chapters 7 to 10)."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

import torch

from jumok.config import GPTConfig
from jumok.course.chapters.block_parts import layer_norm
from jumok.course.chapters.positions import frequency
from jumok.course.chapters.speed import cache_bytes
from jumok.course.chapters.three_models import parameter_table
from jumok.course.exam.drawn import Drawn, exact, same, vector
from jumok.course.words import Words
from jumok.nn.positions import sinusoidal

# Pairs a, b of which (-b, -a, a, b) has a whole standard deviation: a² + b² = 2 s².
DEVIATIONS = ((1, 1), (1, 7), (7, 17), (2, 14), (3, 21))


def normalized(rng: Random) -> Drawn:
    """Layer normalization of four numbers."""
    a, b = rng.choice(DEVIATIONS)
    mean = rng.randint(-9, 9)
    x = [mean - b, mean - a, mean + a, mean + b]
    rng.shuffle(x)
    weight, bias = rng.choice([1, 2, 5, 10]), rng.randint(-2, 3)
    numbers = torch.tensor(x, dtype=torch.float64)
    ones = torch.ones(4, dtype=torch.float64)
    value = exact(layer_norm(numbers, weight * ones, bias * ones, 0.0))
    return Drawn(
        Words(
            f"x = {vector(x)}에 LayerNorm을 적용하세요. 네 자리 모두 가중치(weight)는 {weight}, 편향(bias)은 "
            f"{bias}이고, ε = 0으로 "
            "계산합니다. 분산은 4로 나눕니다.",
            f"Apply LayerNorm to x = {vector(x)}. The weight is {weight} and the bias is {bias} in all four places; "
            "take ε = 0. The variance divides by 4.",
        ),
        Words(
            f"{vector(value)}; 평균 {mean}, 표준편차 {math.isqrt((a * a + b * b) // 2)}",
            f"{vector(value)}; mean {mean}, standard deviation {math.isqrt((a * a + b * b) // 2)}",
        ),
        {"x": x, "weight": weight, "bias": bias},
        value,
    )


def sinusoidal_entry(rng: Random) -> Drawn:
    """Two entries of the sinusoidal table, as a function and an angle."""
    width = rng.choice([4, 8])
    position, pair = rng.randint(2, 60), rng.randint(1, width // 2 - 1)
    angle = position * exact(torch.tensor(frequency(pair, width), dtype=torch.float64))
    entries = sinusoidal(position + 1, width)[position, 2 * pair : 2 * pair + 2].tolist()
    even, odd = 2 * pair, 2 * pair + 1
    return Drawn(
        Words(
            f"폭이 C = {width}인 사인파 위치 임베딩 표에서 위치 {position}의 {even}번째 열과 {odd}번째 열(0부터)은 "
            "각각 "
            "어떤 각도의 "
            "사인과 코사인인가요? 각도는 10000^(-2i/C) × 위치입니다. 각도를 분수로 쓰세요.",
            f"In a sinusoidal position table of width C = {width}, which sine and cosine stand at position {position} "
            f"in columns {even} and {odd}, counting from 0? The angle is the position times 10000^(-2i/C). Write the "
            "angle as "
            "a fraction.",
        ),
        same(f"sin({angle}) ≈ {entries[0]:.4f}, cos({angle}) ≈ {entries[1]:.4f}"),
        {"width": width, "position": position, "pair": pair},
        [angle, *entries],
    )


def cache_size(rng: Random) -> Drawn:
    """The size of a KV cache."""
    n_head, n_kv_head = rng.choice([(4, 4), (4, 2), (8, 2), (8, 4), (8, 8), (6, 2)])
    n_layer, head_dim = rng.randint(2, 12), rng.choice([8, 16, 32])
    length, batch = rng.choice([10, 20, 25, 50, 100]), rng.randint(2, 5)
    dtype, each = rng.choice([(torch.float32, 4), (torch.bfloat16, 2)])
    config = GPTConfig(
        vocab_size=100, context_length=128, n_layer=n_layer, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim,
        n_embd=n_head * head_dim,
    )  # fmt: skip
    value = cache_bytes(config, length, batch=batch, dtype=dtype)
    product = f"2 × {n_layer} × {batch} × {n_kv_head} × {length} × {head_dim} × {each}"
    return Drawn(
        Words(
            f"층이 {n_layer}개이고 쿼리 헤드 {n_head}개, 키·값 헤드 {n_kv_head}개, 헤드의 폭 {head_dim}인 GPT가 문장 "
            f"{batch}개를 함께 생성합니다. 문장마다 토큰 {length}개의 키와 값을 수 하나에 {each}바이트로 저장하면 KV "
            "캐시는 몇 바이트인가요?",
            f"A GPT has {n_layer} layers, {n_head} query heads, {n_kv_head} key/value heads and heads of width "
            f"{head_dim}. It generates {batch} texts at once. How many bytes does the KV cache need for the keys and "
            f"values of {length} tokens per text, with {each} bytes per number?",
        ),
        same(f"{product} = {value:,}"),
        {"layers": n_layer, "batch": batch, "groups": n_kv_head, "length": length, "d": head_dim, "bytes": each},
        value,
    )


def parameters(rng: Random) -> Drawn:
    """The number of parameters of a classic GPT."""
    width, n_head = rng.choice([(4, 2), (6, 2), (8, 2), (10, 2), (8, 4), (10, 5)])
    vocab, context, n_layer = rng.randint(10, 60), rng.randint(4, 20), rng.randint(2, 4)
    config = GPTConfig(
        vocab_size=vocab, context_length=context, n_layer=n_layer, n_head=n_head, n_embd=width, family="classic"
    )
    counts = parameter_table(config)
    value = sum(counts.values())
    parts = Words(
        " + ".join(f"{counts[key]:,}({ko})" for key, ko in _PARTS.items()),
        " + ".join(f"{counts[key]:,} ({key})" for key in _PARTS),
    )
    return Drawn(
        Words(
            f"GPT-2 구조의 GPT: 어휘 {vocab}개, 컨텍스트 길이 {context}, 층 {n_layer}개, 헤드 {n_head}개, 폭 {width}, "
            f"MLP의 폭 {4 * width}. 모든 선형 층에 편향이 있고, 블록마다 LayerNorm이 두 개, 마지막에 하나 더 "
            "있습니다. 출력층은 토큰 임베딩과 "
            "가중치를 공유합니다. 파라미터는 모두 몇 개인가요?",
            f"A GPT as GPT-2: vocabulary {vocab}, context length {context}, {n_layer} layers, {n_head} heads, width "
            f"{width}, MLP width {4 * width}. All linear layers have a bias; each block has two LayerNorms, and one "
            "more "
            "follows the last block. The output layer shares its weights with the token embedding. How many parameters "
            "are there?",
        ),
        Words(f"{value:,} = {parts.ko}", f"{value:,} = {parts.en}"),
        {"vocab": vocab, "context": context, "layers": n_layer, "c": width},
        value,
    )


_PARTS = {
    "token embedding": "토큰 임베딩",
    "position embedding": "위치 임베딩",
    "attention": "어텐션",
    "mlp": "MLP",
    "norms": "LayerNorm",
}


def rotary_angle(rng: Random) -> Drawn:
    """The angle between a query and a key that rotary positions add."""
    width = rng.choice([4, 8])
    pair = rng.randint(1, width // 2 - 1)
    q, k = rng.sample(range(3, 80), 2)
    q, k = max(q, k), min(q, k)
    shift = rng.randint(5, 40)
    value: Fraction = (q - k) * exact(torch.tensor(frequency(pair, width), dtype=torch.float64))
    return Drawn(
        Words(
            f"헤드의 폭이 D = {width}인 회전 위치 임베딩(RoPE)에서 쿼리는 위치 {q}에, 키는 위치 {k}에 있습니다. 쌍 "
            f"{pair}(0부터 셉니다)에서 둘의 회전 각도는 몇 라디안 차이가 나나요? 진동수는 10000^(-2i/D)입니다. 두 "
            f"위치가 모두 {shift}만큼 뒤로 가면 "
            "얼마가 되나요?",
            f"With rotary positions in a head of width D = {width}, the query stands at position {q} and the key at "
            f"position {k}. By how many radians do the rotations of pair {pair}, counting from 0, differ? The "
            f"frequency is 10000^(-2i/D). What is the difference if both move by {shift} positions?",
        ),
        Words(f"{value}; 두 위치의 차이가 같으므로 변하지 않음", f"{value}; it stays, because the distance stays"),
        {"width": width, "pair": pair, "distance": q - k},
        value,
    )
