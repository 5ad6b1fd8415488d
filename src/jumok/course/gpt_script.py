"""A complete character GPT in plain PyTorch: data, attention, blocks, training, writing. Read it from top to bottom.

    python gpt.py novel.txt --minutes 5 --prompt "그날 밤"

PyTorch만으로 작성한 글자 단위 GPT입니다. 데이터, 어텐션, 블록, 학습, 생성이 차례대로 나옵니다.
`jumok learn script` prints this file. With the same parameters it computes what jumok's classic GPT computes.
Shapes: B batch, T positions, C width, D width of a head, V vocabulary.
"""

import argparse
import time
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# --- data: from characters to ids -------------------------------------------------------------------------------------


class Characters:
    """A tokenizer that never fails: ids 0 to 255 are bytes, the others are the characters that occur twice or more."""

    def __init__(self, text: str) -> None:
        self.characters = sorted(c for c, count in Counter(text).items() if count > 1)
        self.ids = {c: 256 + i for i, c in enumerate(self.characters)}
        self.size = 256 + len(self.characters)

    def encode(self, text: str) -> list[int]:
        """The ids of a text. A character without an id becomes its UTF-8 bytes."""
        return [i for c in text for i in ([self.ids[c]] if c in self.ids else c.encode("utf-8", "replace"))]

    def decode(self, ids: list[int]) -> str:
        """The text of ids. Bytes that are no character become U+FFFD."""
        parts = (bytes([i]) if i < 256 else self.characters[i - 256].encode() for i in ids)
        return b"".join(parts).decode("utf-8", "replace")


def get_batch(ids: Tensor, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Random windows, (B, T), and the same windows one token later: the targets."""
    starts = torch.randint(len(ids) - length, (batch, 1))  # (B, 1)
    windows = ids[starts + torch.arange(length + 1)]  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]


# --- the model --------------------------------------------------------------------------------------------------------


class Head(nn.Module):
    """One causal attention head: (B, T, C) -> (B, T, D)."""

    def __init__(self, width: int, head_width: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, head_width) for _ in range(3))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """softmax(q kᵀ / √D, without the future) v. PyTorch computes it in one call, without storing the weights."""
        q, k, v = self.query(x), self.key(x), self.value(x)  # (B, T, D) each
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)


class MultiHeadAttention(nn.Module):
    """Several heads side by side, and a projection that mixes them: (B, T, C) -> (B, T, C)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // heads, dropout) for _ in range(heads))
        self.projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Concatenate the heads and project."""
        return self.projection(torch.cat([head(x) for head in self.heads], dim=-1))


class Block(nn.Module):
    """Attention between positions, then an MLP for each position, both with LayerNorm before and a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x = x + self.dropout(self.attention(self.norm_1(x)))
        return x + self.dropout(self.mlp(self.norm_2(x)))


class GPT(nn.Module):
    """Embeddings of tokens and positions, blocks, a last norm, and the logits of the next token."""

    def __init__(self, vocabulary: int, length: int, layers: int, heads: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.length = length
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight  # one matrix for input and output
        for name, parameter in self.named_parameters():  # as GPT-2
            if name.endswith(("projection.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=0.02 * (2 * layers) ** -0.5)
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits of the next token at each position: (B, T) -> (B, T, V)."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]  # (B, T, C)
        return self.head(self.norm(self.blocks(self.dropout(x))))


# --- training ---------------------------------------------------------------------------------------------------------


def loss_of(model: GPT, x: Tensor, y: Tensor, bf16: bool) -> Tensor:
    """The mean cross-entropy in nats: (B, T) ids and targets -> scalar."""
    with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
        logits = model(x)  # (B, T, V)
    return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model: GPT, ids: Tensor, characters: int, bf16: bool) -> float:
    """Nats per character of a text: each token is predicted once, in windows that do not overlap."""
    model.eval()
    total = 0.0
    for start in range(0, len(ids) - 1, model.length):
        window = ids[None, start : start + model.length + 1]
        total += loss_of(model, window[:, :-1], window[:, 1:], bf16).item() * (window.shape[1] - 1)
    model.train()
    return total / characters


def faster_in_bf16(model: GPT, x: Tensor, y: Tensor) -> bool:
    """Whether this machine computes a pass faster in bfloat16; many processors do not."""
    seconds = {}
    for bf16 in (False, True, False, True):  # the first pass of each only warms up
        began = time.perf_counter()
        loss_of(model, x, y, bf16).backward()
        seconds[bf16] = time.perf_counter() - began
    return seconds[True] < seconds[False]


def train(model: GPT, ids: Tensor, held_out: Tensor, characters: int, minutes: float, batch: int) -> None:
    """Train for a time. The learning rate rises in the first hundredth and then falls to zero, by the clock."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.99), weight_decay=0.1)
    bf16 = faster_in_bf16(model, *get_batch(ids, batch, model.length))
    began, step, shown = time.monotonic(), 0, 0.0
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50) * (1 - done)
        loss = loss_of(model, *get_batch(ids, batch, model.length), bf16)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if done >= shown:
            print(f"{done:4.0%}  step {step:5d}  loss {loss.item():.3f}", flush=True)
            shown = done + 0.1
    print(f"held-out text: {evaluate(model, held_out, characters, bf16):.3f} nats per character", flush=True)


# --- writing ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def generate(model: GPT, ids: list[int], count: int, temperature: float = 0.8) -> list[int]:
    """Append `count` sampled ids to ids."""
    model.eval()
    for _ in range(count):
        window = torch.tensor([ids[-model.length :]], device=model.tokens.weight.device)  # (1, T)
        ids = [*ids, int(torch.multinomial((model(window)[0, -1] / temperature).softmax(-1), 1))]
    return ids


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("text", help="a text file in UTF-8")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--prompt", default="\n")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    text = Path(options.text).read_text("utf-8")
    cut = len(text) * 9 // 10  # the last tenth is held out
    characters = Characters(text[:cut])
    ids, held_out = (torch.tensor(characters.encode(part), device=device) for part in (text[:cut], text[cut:]))
    model = GPT(characters.size, length=128, layers=4, heads=4, width=256, dropout=0.1).to(device)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {characters.size} ids")
    train(model, ids, held_out, len(text) - cut, options.minutes, batch=16)
    print(characters.decode(generate(model, characters.encode(options.prompt), 300)))
