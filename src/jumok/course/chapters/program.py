"""A character GPT in PyTorch, of the definitions of the course: tokenizer, model, training, evaluation and generation.

    python gpt.py novel.txt --minutes 5 --prompt "그날 밤"

With the same parameters, it computes what the classic GPT of jumok computes.
Shapes: B batch, T positions, S keys, C width, H heads, D width of a head, V vocabulary.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor

from jumok.course.chapters.bigrams import get_batch
from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.tokenization import Characters
from jumok.course.chapters.training import learning_rate, mean_loss
from jumok.course.chapters.writing import generate


def train_for(model: GPT, ids: Tensor, *, minutes: float, batch_size: int = 16, peak: float = 3e-3) -> None:
    """Train a model on the tokens of a text, (N,), for a time: the learning rate follows the clock."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    began, step, progress = time.monotonic(), 0, 0.0
    model.train()
    while progress < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, peak=peak, warmup=0.02)
        loss = mean_loss(model, *get_batch(ids, model.context_length, batch_size))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        before, progress = progress, (time.monotonic() - began) / (60 * minutes)
        if int(10 * progress) > int(10 * before):
            print(f"{min(progress, 1):4.0%}  step {step:5}  loss {loss.item():.3f}", flush=True)
    model.eval()


@torch.no_grad()
def nats_per_character(model: GPT, ids: Tensor, characters: int) -> float:
    """Return the loss of a text, (N,), divided by its number of characters: each token is predicted once."""
    total = 0.0
    for start in range(0, len(ids) - 1, model.context_length):
        window = ids[None, start : start + model.context_length + 1]  # (1, T + 1)
        total += mean_loss(model, window[:, :-1], window[:, 1:]).item() * (window.shape[1] - 1)
    return total / characters


def main() -> None:
    """Train a GPT on the first nine tenths of a text, evaluate it on the last tenth, and let it write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--prompt", default="\n")
    options = parser.parse_args()
    torch.manual_seed(0)
    if torch.cuda.is_available():
        torch.set_default_device("cuda")
    text = options.text.read_text(encoding="utf-8")
    cut = len(text) * 9 // 10
    characters = Characters(text[:cut])
    ids, held_out = (torch.tensor(characters.encode(part)) for part in (text[:cut], text[cut:]))  # (N,)
    model = GPT(characters.vocab_size, context_length=128, n_layer=4, n_head=4, n_embd=256, dropout=0.1)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {characters.vocab_size} ids", flush=True)
    train_for(model, ids, minutes=options.minutes)
    print(f"held-out text: {nats_per_character(model, held_out, len(text) - cut):.3f} nats per character", flush=True)
    written = generate(model, characters.encode(options.prompt), 300, temperature=0.8)
    print(options.prompt + characters.decode(written))
