"""Chapter 22: conversations, from a chat template to supervised fine-tuning.

Shapes use the legend of `jumok.nn.attention`. A segment is the number of the conversation to which a token belongs.

Source: InstructGPT, https://arxiv.org/abs/2203.02155.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.head import causal_mask

Messages = Sequence[tuple[str, str]]

NUMBERS = ["한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉", "열"]
THINGS = ["사과", "귤", "공", "빵", "돌"]
FORMS = ["", "모두", "이제", "그러면", "그 수는", "그러면 이제 모두", "그 수는 이제 모두"]
OTHERS = ["개에", "개를", "더하면", "모두", "이제", "그러면", "그", "수는", "개다.", "더하면?", "개예요.", "개."]
WORDS = [*NUMBERS, *THINGS, *OTHERS]
SUMS = [(thing, a, b) for thing in THINGS for a in range(1, 10) for b in range(1, 11 - a)]


def statement(thing: str, a: int, b: int, form: str) -> str:
    """Return a sentence that states a sum. form: what stands before the sum."""
    return f"{thing} {NUMBERS[a - 1]} 개에 {NUMBERS[b - 1]} 개를 더하면 {form} {NUMBERS[a + b - 1]} 개다."


def question(thing: str, a: int, b: int) -> str:
    """Return the question whose answer is a sum."""
    return f"{thing} {NUMBERS[a - 1]} 개에 {NUMBERS[b - 1]} 개를 더하면?"


def ids_of_words(text: str) -> list[int]:
    """Return the ids of the words of a text."""
    return [WORDS.index(word) for word in text.split()]


class ChatTemplate:
    """Conversations as ids: a special token for the role begins each turn, and `<|end|>` ends it.

    Args:
        encode: the ids of a text. first: the id of the first special token; those of the text are smaller.
    """

    tokens = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>")

    def __init__(self, encode: Callable[[str], list[int]], first: int) -> None:
        self.text = encode
        self.ids = {token: first + number for number, token in enumerate(self.tokens)}
        self.end = self.ids["<|end|>"]

    def encode(self, messages: Messages) -> tuple[list[int], list[bool]]:
        """Return the ids of a conversation, and for each of them whether the assistant has to write it."""
        ids, is_answer = list[int](), list[bool]()
        for role, content in messages:
            said = [*self.text(content), self.end]
            ids += [self.ids[f"<|{role}|>"], *said]
            is_answer += [False] + [role == "assistant"] * len(said)
        return ids, is_answer

    def prompt(self, messages: Messages) -> list[int]:
        """Return the ids after which the assistant answers."""
        return [*self.encode(messages)[0], self.ids["<|assistant|>"]]


def answer_targets(ids: Sequence[int], is_answer: Sequence[bool]) -> list[int]:
    """Return the id after each position where the assistant has to write it, and -100 elsewhere, one fewer than ids."""
    return [id if answer else -100 for id, answer in zip(ids[1:], is_answer[1:], strict=True)]


def pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Put conversations into as few rows as we can: the longest first, each into the fullest row where it fits.

    Returns:
        The numbers of the conversations in each row.
    """
    rows, free = list[list[int]](), list[int]()
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        fits = [row for row in range(len(rows)) if free[row] >= lengths[number]]
        row = min(fits, key=lambda row: free[row], default=len(rows))
        if row == len(rows):
            rows.append([])
            free.append(room)
        rows[row].append(number)
        free[row] -= lengths[number]
    return rows


def packing_mask(segments: Tensor) -> Tensor:
    """Return True where a query may attend: to the past of its own segment: (B, T) -> (B, 1, T, T)."""
    same = segments[:, :, None] == segments[:, None, :]  # (B, T, T)
    return (same & causal_mask(segments.shape[1]))[:, None]


def positions_in_segments(segments: Tensor) -> Tensor:
    """Return the position of each token in its own segment: (B, T) -> (B, T)."""
    starts = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)  # (B, T)
    places = torch.arange(segments.shape[1])  # (T,)
    return places - (starts * places).cummax(dim=1).values


def packed_logits(model: GPT, ids: Tensor, segments: Tensor) -> Tensor:
    """Return the logits of a GPT for rows with several conversations: (B, T), (B, T) -> (B, T, V)."""
    x = model.token_embedding(ids) + model.position_embedding(positions_in_segments(segments))  # (B, T, C)
    x = model.dropout(x)
    for block in model.blocks:
        x = block(x, packing_mask(segments))  # (B, T, C)
    logits: Tensor = model.head(model.norm(x))  # (B, T, V)
    return logits


def packed_rows(conversations: Sequence[tuple[list[int], list[bool]]], room: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, targets and segments of packed conversations, (B, T) each; padding has the segment -1."""
    rows = []
    for numbers in pack([len(ids) - 1 for ids, _ in conversations], room):
        row: tuple[list[int], ...] = [], [], []
        for segment, number in enumerate(numbers):
            ids, is_answer = conversations[number]
            row[0].extend(ids[:-1])
            row[1].extend(answer_targets(ids, is_answer))
            row[2].extend([segment] * (len(ids) - 1))
        free = room - len(row[0])
        rows.append([row[0] + [0] * free, row[1] + [-100] * free, row[2] + [-1] * free])
    inputs, targets, segments = torch.tensor(rows).unbind(dim=1)  # (B, T)
    return inputs, targets, segments


def chat_loss(model: GPT, inputs: Tensor, targets: Tensor, segments: Tensor) -> Tensor:
    """Return the mean cross-entropy of the tokens that the assistant has to write: (B, T) each -> ()."""
    return F.cross_entropy(packed_logits(model, inputs, segments).flatten(0, 1), targets.flatten())


def plain_loss(model: GPT, ids: Tensor, length: int = 32) -> Tensor:
    """Return the loss of 16 windows of a text: (N,) -> ()."""
    starts = torch.randint(len(ids) - length, (16,)).tolist()
    windows = torch.stack([ids[start : start + length + 1] for start in starts])  # (B, T + 1)
    return F.cross_entropy(model(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())


@torch.no_grad()
def answer(model: GPT, prompt: Sequence[int], end: int, *, longest: int, temperature: float = 0.0) -> list[int]:
    """Return the ids of an answer without the token that ends it. temperature 0: the likeliest token each time."""
    ids = list(prompt)
    for _ in range(longest):
        logits = model(torch.tensor([ids[-model.context_length :]]))[0, -1]  # (V,)
        probabilities = (logits / temperature if temperature else logits).softmax(dim=-1)
        chosen = int(probabilities.multinomial(1) if temperature else probabilities.argmax())
        if chosen == end:
            break
        ids.append(chosen)
    return ids[len(prompt) :]


def share_right(model: GPT, asked: Sequence[tuple[list[int], list[int]]], end: int) -> float:
    """Return the share of prompts whose answer is the right one, word for word."""
    right = [answer(model, prompt, end, longest=len(wanted) + 1) == wanted for prompt, wanted in asked]
    return sum(right) / len(right)
