"""The map of the exercises: which part of a GPT each of them builds.

The map is the drawing "map" of `jumok.course.drawings`. Importing this module does not import torch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from jumok.course.drawings import draw_architecture
from jumok.course.pages.chapter import Language
from jumok.course.practice.course import Exercise, Words, exercises

PLACES: Mapping[str, Sequence[str]] = {  # part of the map -> the exercises that build it, from the top of the map
    "tokenizer": ["character_tokenizer", "bpe_merges"],
    "batch": ["get_batch", "bert_masking"],
    "gpt": ["gpt", "bigram"],
    "embedding": ["embedding"],
    "positions": ["learned_positions", "sinusoidal_positions", "rotary_positions"],
    "block": ["block"],
    "norm": ["layer_norm"],
    "attention": ["head", "cross_attention"],
    "projections": ["query_key_value"],
    "heads": ["shapes", "module_list_heads", "split_heads"],
    "scores": ["dot_product_attention"],
    "mask": ["causal_mask", "padding_mask"],
    "softmax": ["averaging_softmax", "softmax"],
    "dropout": ["dropout"],
    "weighted_sum": ["averaging_matrix", "masked_mean"],
    "output_projection": ["output_projection"],
    "residual": ["residual"],
    "mlp": ["mlp"],
    "loss": ["cross_entropy"],
    "update": ["training_step", "learning_rate", "adamw", "muon"],
    "sampling": ["temperature", "top_k", "top_p"],
    "generation": ["generate", "kv_cache", "beam_search"],
}

NAMES: Mapping[str, Words] = {  # of the parts
    "tokenizer": Words("토크나이저", "tokenizer"),
    "batch": Words("배치", "batch"),
    "gpt": Words("모델 전체", "whole model"),
    "embedding": Words("임베딩", "embedding"),
    "positions": Words("위치", "positions"),
    "block": Words("블록", "block"),
    "norm": Words("LayerNorm", "LayerNorm"),
    "attention": Words("어텐션", "attention"),
    "projections": Words("쿼리·키·값 투영", "query, key, value"),
    "heads": Words("여러 헤드", "heads"),
    "scores": Words("점수", "scores"),
    "mask": Words("마스크", "mask"),
    "softmax": Words("소프트맥스", "softmax"),
    "dropout": Words("드롭아웃", "dropout"),
    "weighted_sum": Words("값의 가중합", "weighted sum"),
    "output_projection": Words("출력 투영", "output projection"),
    "residual": Words("잔차 연결", "residual"),
    "mlp": Words("MLP", "MLP"),
    "loss": Words("손실", "loss"),
    "update": Words("파라미터 갱신", "update"),
    "sampling": Words("토큰 선택", "sampling"),
    "generation": Words("생성 반복", "generation"),
}

_TABLE_HEADINGS = Words(
    "| 번호 | 연습 | 장 | 지도에서의 위치 |\n|---|---|---|---|",
    "| No. | Exercise | Chapter | Part of the map |\n|---|---|---|---|",
)


def part_of(one: Exercise) -> str:
    """The part of the map that an exercise builds."""
    return next(part for part, slugs in PLACES.items() if one.slug in slugs)


def place_of(one: Exercise) -> Words:
    """The name of that part."""
    return NAMES[part_of(one)]


def draw_map(path: Path, language: Language, *, following: Exercise | None = None, done: Collection[str] = ()) -> None:
    """Draw the map as SVG, with the numbers of the exercises beside their parts.

    Args:
        following: the exercise whose part gets a thick border.
        done: slugs of the exercises that are done; a check mark stands beside a part when all of its exercises are.
    """
    numbers = {one.slug: one.number for one in exercises()}
    notes = {
        part: ranges(numbers[slug] for slug in slugs) + (" ✓" if set(slugs) <= set(done) else "")
        for part, slugs in PLACES.items()
    }
    draw_architecture("map", path, language, () if following is None else (part_of(following),), notes=notes)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in order, in a few characters: 3, 4, 5, 9 -> "3–5, 9"."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in found)


def table(language: Language) -> str:
    """The exercises as a Markdown table: number and file, title, chapter, part of the map."""
    rows = [
        f"| {one.number} | `{one.file}`: {one.title.said(language)} | {one.chapter} | {place_of(one).said(language)} |"
        for one in exercises()
    ]
    return "\n".join([_TABLE_HEADINGS.said(language), *rows]) + "\n"
