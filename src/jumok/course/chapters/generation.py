"""Chapter 11: continue a text, one token after the other.

Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

import torch

from jumok.course.chapters.gpt import GPT


@torch.no_grad()
def generate(
    model: GPT, ids: list[int], count: int, *, temperature: float = 1.0, top_k: int | None = None
) -> list[int]:
    """Return ids with `count` more: each is drawn from the `top_k` most probable ones; at temperature 0 the first."""
    for _ in range(count):
        window = torch.tensor([ids[-model.context_length :]])  # (1, T)
        logits = model(window)[0, -1]  # (V,)
        if temperature == 0:
            ids = [*ids, int(logits.argmax())]
            continue
        if top_k is not None:
            smallest = logits.topk(top_k).values[-1]
            logits = logits.masked_fill(logits < smallest, float("-inf"))
        probabilities = (logits / temperature).softmax(dim=-1)  # (V,)
        ids = [*ids, int(torch.multinomial(probabilities, 1))]
    return ids
