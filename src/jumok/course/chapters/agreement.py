"""Chapter 21, a model trained here: Korean sentences in which two words depend on earlier ones.

An example is 할머니께서 장미 파는 가게에서 연필을 어제 세 자루 사셨다: yesterday Grandmother bought three pencils in a
shop that sells roses. The counter 자루 follows from the object 연필을, and the honorific form 사셨다 from the
subject 할머니께서. The number of words between them varies, so neither is at a fixed distance. There are two
distractors: the goods of the shop (장미), which are independent of the object, and a companion (such as 동생과), anyone
but the subject. Every other word is drawn uniformly.

A token is a word between spaces (eojeol). Shapes use the legend of `jumok.nn.attention`.
"""

# ruff: noqa: SIM905  (lists of words are easier to read as a text)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.course.chapters.gpt import GPT
from jumok.course.chapters.head import attention_weights, causal_mask
from jumok.course.chapters.multi_head import MultiHeadAttention

LISTS = {
    "elder": "할머니께서 할아버지께서 어머니께서 아버지께서 선생님께서".split(),
    "other": "동생이 친구가 누나가 형이 조카가".split(),
    "with": "할머니와 할아버지와 어머니와 아버지와 선생님과 동생과 친구와 누나와 형과 조카와".split(),
    "shop": "연필 붓 공책 그림책 우표 종이 장미 튤립 양말 장갑 바지 치마".split(),
    "object": "연필을 붓을 공책을 그림책을 우표를 종이를 장미를 튤립을 양말을 장갑을 바지를 치마를".split(),
    "counter": "자루 자루 권 권 장 장 송이 송이 켤레 켤레 벌 벌".split(),
    "number": "한 두 세 네 다섯".split(),
    "filler": "어제 아침에 급히 천천히 몰래 조용히".split(),
    "honorific": "사셨다 고르셨다 찾으셨다 챙기셨다".split(),
    "plain": "샀다 골랐다 찾았다 챙겼다".split(),
}

WORDS = list(dict.fromkeys(["·", *(word for words in LISTS.values() for word in words), "파는", "가게에서"]))


def sentence(random: Random) -> list[str]:
    """Return the words of a sentence, at most 13. The last three are the number, the counter and the verb."""

    def draw(options: Sequence[str]) -> str:
        return options[int(random.random() * len(options))]

    honorific = random.random() < 0.5
    subject = draw(LISTS["elder" if honorific else "other"])
    words = [subject]
    if random.random() < 0.5:
        own = LISTS["with"][(LISTS["elder"] + LISTS["other"]).index(subject)]
        words.append(draw([person for person in LISTS["with"] if person != own]))
    if random.random() < 0.5:
        words += [draw(LISTS["shop"]), "파는", "가게에서"]
    words += [draw(LISTS["filler"]) for _ in range(int(random.random() * 3))]
    goods = draw(LISTS["object"])
    words.append(goods)
    words += [draw(LISTS["filler"]) for _ in range(int(random.random() * 3))]
    words += [draw(LISTS["number"]), LISTS["counter"][LISTS["object"].index(goods)]]
    return [*words, draw(LISTS["honorific" if honorific else "plain"])]


def ids_of(sentences: Sequence[Sequence[str]]) -> Tensor:
    """Return sentences as ids, padded on the right with 0: (B, T)."""
    longest = max(len(words) for words in sentences)
    return torch.tensor([[*map(WORDS.index, words), *[0] * (longest - len(words))] for words in sentences])


def train_on_sentences(ids: Tensor, seed: int, steps: int = 400) -> GPT:
    """Return a GPT with one block and three heads that was trained on sentences, (N, T)."""
    torch.manual_seed(seed)
    model = GPT(len(WORDS), context_length=13, n_layer=1, n_head=3, n_embd=48).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for _ in range(steps):
        rows = ids[torch.randint(len(ids), (64,))]  # (B, T)
        logits = model(rows[:, :-1])  # (B, T - 1, V)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def shares_right(model: Callable[[Tensor], Tensor], sentences: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Return how often the counter is the most probable counter, and how often the form of the verb is right."""
    ids, rows = ids_of(sentences), torch.arange(len(sentences))
    at_number = torch.tensor([len(words) - 3 for words in sentences])
    logits = model(ids)  # (B, T, V)
    counters = ids_of([LISTS["counter"]])[0].unique()  # (6,)
    chosen = counters[logits[rows, at_number][:, counters].argmax(dim=-1)]  # (B,)
    verb = logits[rows, at_number + 1].softmax(dim=-1)  # (B, V)
    honorific, plain = (verb[:, ids_of([LISTS[form]])[0]].sum(dim=-1) for form in ("honorific", "plain"))
    elder = torch.tensor([words[0] in LISTS["elder"] for words in sentences])
    right = chosen == ids[rows, at_number + 1], (honorific > plain) == elder
    return right[0].double().mean().item(), right[1].double().mean().item()


def first_attention(model: GPT, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the first block, (B, H, T, T), and the outputs of its heads, (B, H, T, D). ids: (B, T)."""
    t, block = ids.shape[1], model.blocks[0]
    attention: MultiHeadAttention = block.attention  # type: ignore[assignment]
    x = model.token_embedding(ids) + model.position_embedding.weight[:t]  # (B, T, C)
    x = block.attention_norm(x)  # type: ignore[operator]
    q, k, v = (attention.split(project(x)) for project in (attention.q_proj, attention.k_proj, attention.v_proj))
    weights = attention_weights(q, k, causal_mask(t))  # (B, H, T, T)
    return weights, weights @ v


@contextmanager
def head_replaced(model: GPT, head: int, output: Tensor | float) -> Iterator[None]:
    """Replace the output of a head of the first block, (B, T, D), inside the block of a with statement."""
    attention: MultiHeadAttention = model.blocks[0].attention  # type: ignore[assignment]
    columns = slice(head * attention.head_dim, (head + 1) * attention.head_dim)

    def replace(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        merged = inputs[0].clone()  # (B, T, H*D)
        merged[..., columns] = output
        return merged

    hook = attention.o_proj.register_forward_pre_hook(replace)
    try:
        yield
    finally:
        hook.remove()
