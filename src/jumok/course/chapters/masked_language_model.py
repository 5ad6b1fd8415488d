"""Chapter 18, BERT: its input, masking of 80/10/10, the model with segments and the pooler, and a small text.

Shapes use the legend of `jumok.nn.attention`.

Source: https://arxiv.org/abs/1810.04805.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import BERT
from jumok.config import TrainConfig
from jumok.course.chapters.block_parts import apply_norm
from jumok.course.chapters.three_models import NO_TARGET, encode
from jumok.text.hangul import josa
from jumok.tokenizers import Tokenizer
from jumok.training.optim import make_optimizers, set_rate

WHO = ("나는", "너는", "형은", "엄마는", "동생은", "친구는")
# Nouns of one syllable that each verb takes. A noun belongs to one verb, so the verb tells which nouns are possible.
OBJECTS: Mapping[str, str] = {
    "먹었다": "밥떡국귤",
    "마셨다": "물술차",
    "읽었다": "책글시",
    "입었다": "옷",
    "던졌다": "공돌",
    "열었다": "문창",
}

# --- the input --------------------------------------------------------------------------------------------------------


class Joined(NamedTuple):
    """[CLS] first [SEP] second [SEP] as lists of one length: ids, and 0 or 1 for the first or second text."""

    ids: list[int]
    segments: list[int]


def join_texts(first: Sequence[int], second: Sequence[int] = (), *, cls: int, sep: int) -> Joined:
    """The input of BERT for one text or two. The first [SEP] belongs to the first text.

    Args:
        first, second: ids; without a second text there is one [SEP]. cls, sep: ids of the special tokens.
    """
    ids, segments = [cls, *first, sep], [0] * (len(first) + 2)
    if second:
        ids, segments = [*ids, *second, sep], segments + [1] * (len(second) + 1)
    return Joined(ids, segments)


# --- masking ----------------------------------------------------------------------------------------------------------


class Masked(NamedTuple):
    """The input of a training step and its targets, (B, T) each; NO_TARGET where nothing is predicted."""

    inputs: Tensor
    targets: Tensor


def mask_tokens(
    ids: Tensor, *, mask_id: int, special: Sequence[int], vocab_size: int, random: torch.Generator, rate: float = 0.15
) -> Masked:
    """Choose tokens at a rate: 80 % of them become [MASK], 10 % a random token, and 10 % stay.

    Each token is chosen independently, as in the data collator of `transformers`. `jumok train --task mlm` chooses the
    same number of tokens in each window instead (`jumok.evaluation.masking`).

    Args:
        ids: (B, T). mask_id: of [MASK]. special: ids that are never chosen, nor drawn. vocab_size: V.
        random: for all choices. rate: the share of the tokens that is predicted.
    """
    ordinary = torch.tensor([i for i in range(vocab_size) if i not in set(special)])
    chosen = (torch.rand(ids.shape, generator=random) < rate) & torch.isin(ids, ordinary)  # (B, T)
    fate = torch.rand(ids.shape, generator=random)  # (B, T)
    others = ordinary[torch.randint(len(ordinary), ids.shape, generator=random)]  # (B, T)
    inputs = torch.where(chosen & (fate < 0.8), mask_id, ids)
    inputs = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), others, inputs)
    return Masked(inputs, torch.where(chosen, ids, NO_TARGET))


# --- the model --------------------------------------------------------------------------------------------------------


def embed_input(model: BERT, ids: Tensor, segments: Tensor) -> Tensor:
    """The sum of three embeddings, of tokens, positions and segments, and the norm after it.

    Args:
        ids, segments: (B, T).

    Returns:
        (B, T, C): the input of the first block in eval mode.
    """
    positions = torch.arange(ids.shape[1])  # (T,)
    x = model.token_embedding(ids) + model.position_embedding(positions) + model.type_embedding(segments)  # (B, T, C)
    return apply_norm(model.embedding_norm, x)


def hidden_states(model: BERT, ids: Tensor, segments: Tensor) -> Tensor:
    """The last hidden states from the parameters: (B, T), (B, T) -> (B, T, C), without padding.

    Equal to `model(ids, token_types=segments)` in eval mode.
    """
    return encode(model.blocks, embed_input(model, ids, segments))


def pool(model: BERT, hidden: Tensor) -> Tensor:
    """The vector of a text: tanh(W h + b) of the state at [CLS].

    Args:
        model: with head="pooler" or "classify" and pooling="first". hidden: (B, T, C).

    Returns:
        (B, C); equal to `model.pooled(hidden)`.

    Raises:
        ValueError: the model has no pooler.
    """
    if model.pooler is None:
        raise ValueError(f'head={model.config.head!r} has no pooler; use head="pooler" or "classify"')
    return torch.tanh(hidden[:, 0] @ model.pooler.weight.T + model.pooler.bias)


# --- a text -----------------------------------------------------------------------------------------------------------


def sentences() -> list[str]:
    """All sentences such as 나는 밥을 먹었다: each person with each noun and its verb."""
    objects = [(noun, verb) for verb, nouns in OBJECTS.items() for noun in nouns]
    return [f"{who} {josa(noun, '을/를')} {verb}" for who, (noun, verb) in itertools.product(WHO, objects)]


def framed_batch(texts: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    """Texts as [CLS] text [SEP], filled up with [PAD] to the length of the longest: (B, T).

    Args:
        texts: one or more. tokenizer: with these special tokens.
    """
    special = tokenizer.special_tokens
    rows = [
        torch.tensor(join_texts(tokenizer.encode(text).tolist(), cls=special["[CLS]"], sep=special["[SEP]"]).ids)
        for text in texts
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=special["[PAD]"])


# --- training ---------------------------------------------------------------------------------------------------------


def pretrain(model: BERT, ids: Tensor, tokenizer: Tokenizer, *, steps: int, seed: int = 0) -> list[float]:
    """Masked language modelling with the optimizers of `jumok train`, in batches of 64 texts.

    Args:
        model: with head="mlm"; trained in place. ids: (N, T), texts with padding. tokenizer: with special tokens.
        steps: of the optimizers; the learning rate decreases linearly. seed: of batches and masks.

    Returns:
        The loss of each step, in nats per masked token.
    """
    random = torch.Generator().manual_seed(seed)
    special = tokenizer.special_tokens
    optimizers = make_optimizers(model, TrainConfig(learning_rate=3e-3, matrix_learning_rate=0.03))
    losses = []
    for step in range(steps):
        set_rate(optimizers, 1 - step / steps)
        batch = ids[torch.randint(len(ids), (64,), generator=random)]  # (B, T)
        inputs, targets = mask_tokens(
            batch,
            mask_id=special["[MASK]"],
            special=list(special.values()),
            vocab_size=tokenizer.vocab_size,
            random=random,
        )
        places = targets != NO_TARGET  # (B, T)
        hidden = model(inputs, batch != special["[PAD]"])  # (B, T, C)
        loss = F.cross_entropy(model.mlm_logits(hidden[places]), targets[places])
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def finetune(model: BERT, ids: Tensor, labels: Tensor, pad: int, *, steps: int) -> None:
    """Train all parameters of a classifier on all texts at each step.

    Args:
        model: with head="classify"; trained in place. ids: (N, T). labels: (N,). pad: the id of the padding.
        steps: of AdamW; the learning rate decreases linearly.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 3e-3 * (1 - step / steps)
        mask = ids != pad  # (N, T)
        loss = F.cross_entropy(model.classify(model(ids, mask), mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
