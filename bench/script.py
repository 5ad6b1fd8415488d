"""The one-file GPT of `jumok learn script` beside a usual blog script, on the same text for the same minutes.

    python bench/script.py novels.txt --minutes 5

Each runs in a process of its own, one after the other, with all cores. The blog script is written here with the
settings of a Korean series of 2025: 6 blocks of width 256, 8 heads of width 16, ReLU, dropout 0.1, context 256, batch
64, AdamW at 2e-4, float32, scores divided by the root of n_embd, no final norm, PyTorch's initial parameters, and a
vocabulary of all characters of the text. Both train on the first nine tenths and predict each token of the last tenth
once, in windows that do not overlap, of the model's own context length.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, BLOCKS, HEADS, HEAD_WIDTH, CONTEXT, BATCH, RATE, DROPOUT = 256, 6, 8, 16, 256, 64, 2e-4, 0.1
FIGURE = re.compile(r"held-out text: ([\d.]+) nats per character")


class BlogHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(WIDTH, HEAD_WIDTH, bias=False) for _ in range(3))
        self.register_buffer("mask", torch.tril(torch.ones(CONTEXT, CONTEXT)))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        length, width = x.shape[1:]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * width**-0.5  # (B, T, T)
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        return self.dropout(F.softmax(scores, dim=-1)) @ self.value(x)


class BlogBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(BlogHead() for _ in range(HEADS))
        self.project = nn.Sequential(nn.Linear(HEADS * HEAD_WIDTH, WIDTH), nn.Dropout(DROPOUT))
        self.feed_forward = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT)
        )
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        x = x + self.project(torch.cat([head(y) for head in self.heads], dim=-1))
        return x + self.feed_forward(self.norm_2(x))


class BlogGPT(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(BlogBlock() for _ in range(BLOCKS)))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.blocks(x))


def blog(path: Path, minutes: float) -> None:
    """Train and evaluate the blog script in this process."""
    torch.manual_seed(0)
    text = path.read_text(encoding="utf-8")
    characters = sorted(set(text))
    ids_of = {c: i for i, c in enumerate(characters)}
    ids = torch.tensor([ids_of[c] for c in text])
    cut = len(ids) * 9 // 10
    train, held_out = ids[:cut], ids[cut:]
    model = BlogGPT(len(characters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    began, step = time.monotonic(), 0
    while time.monotonic() - began < 60 * minutes:
        starts = torch.randint(len(train) - CONTEXT, (BATCH,))
        x = torch.stack([train[i : i + CONTEXT] for i in starts])
        y = torch.stack([train[i + 1 : i + CONTEXT + 1] for i in starts])
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(held_out) - 1, CONTEXT):
            window = held_out[None, start : start + CONTEXT + 1]
            total += F.cross_entropy(model(window[:, :-1])[0], window[0, 1:], reduction="sum").item()
    print(f"{step} steps\nheld-out text: {total / len(held_out):.3f} nats per character")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--blog-only", action="store_true", help="train the blog script in this process")
    options = parser.parse_args()
    if options.blog_only:
        blog(options.text, options.minutes)
        return
    here = Path(__file__).resolve()
    script = subprocess.run(
        [sys.executable, "-m", "jumok.cli", "learn", "script"], capture_output=True, check=True
    ).stdout.decode()
    ours = [sys.executable, "-c", script, str(options.text), "--minutes", str(options.minutes)]
    theirs = [sys.executable, str(here), str(options.text), "--minutes", str(options.minutes), "--blog-only"]
    print(f"{options.text.name}, {options.minutes:g} minutes each, {os.cpu_count()} cores, torch {torch.__version__}")
    for name, command in (("jumok learn script", ours), ("blog script", theirs)):
        printed = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout
        found = FIGURE.search(printed)
        assert found, printed
        steps = re.findall(r"step +(\d+)|(\d+) steps", printed)[-1]
        print(f"{name:20} {found[1]} nats per character, about {steps[0] or steps[1]} steps", flush=True)


if __name__ == "__main__":
    main()
