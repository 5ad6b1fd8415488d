"""Chapter 16: BERT with segments and the pooler by hand, masking, and the loss of a small training."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from jumok.config import BERTConfig, Head
from jumok.course.chapters import masked_language_model as mlm
from jumok.course.chapters.three_models import NO_TARGET
from jumok.models.bert import BERT
from jumok.tokenizers import Tokenizer, train_tokenizer

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]


def tiny(head: Head) -> BERT:
    torch.manual_seed(0)
    config = BERTConfig(vocab_size=30, context_length=12, n_layer=2, n_head=2, n_embd=8, head=head)
    model = BERT(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def some_ids(*shape: int, high: int = 30) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def the_tokenizer() -> Tokenizer:
    return train_tokenizer("\n".join(mlm.sentences()), "char", special_tokens=SPECIAL)


# --- the input ---


def test_one_text_and_two() -> None:
    assert mlm.join_texts([5, 6], cls=1, sep=2) == ([1, 5, 6, 2], [0, 0, 0, 0])
    assert mlm.join_texts([5, 6], [7], cls=1, sep=2) == ([1, 5, 6, 2, 7, 2], [0, 0, 0, 0, 1, 1])
    assert mlm.join_texts([], cls=1, sep=2) == ([1, 2], [0, 0])


def test_texts_of_different_lengths_are_padded() -> None:
    tokenizer = the_tokenizer()
    batch = mlm.framed_batch(["나는", "밥을 먹었다"], tokenizer)
    pad, cls, sep, _ = (tokenizer.special_tokens[name] for name in SPECIAL)
    assert batch.shape == (2, 8)
    assert batch[:, 0].tolist() == [cls, cls]
    assert batch[0, 3:].tolist() == [sep, pad, pad, pad, pad]
    assert batch[1, 7] == sep
    assert tokenizer.decode(batch[1, 1:7].numpy()) == "밥을 먹었다"


# --- masking ---


def masked(ids: Tensor, rate: float = 0.15, seed: int = 0) -> mlm.Masked:
    random = torch.Generator().manual_seed(seed)
    return mlm.mask_tokens(ids, mask_id=3, special=range(4), vocab_size=30, random=random, rate=rate)


def test_masking_has_the_shares_of_the_paper() -> None:
    ids = some_ids(400, 500, high=26) + 4
    inputs, targets = masked(ids)
    chosen = targets != NO_TARGET
    assert chosen.double().mean() == pytest.approx(0.15, abs=0.005)
    assert torch.equal(targets[chosen], ids[chosen])
    assert torch.equal(inputs[~chosen], ids[~chosen]), "nothing else changes"
    became_mask, kept = inputs[chosen] == 3, inputs[chosen] == ids[chosen]
    assert became_mask.double().mean() == pytest.approx(0.8, abs=0.01)
    assert kept.double().mean() == pytest.approx(0.1 + 0.1 / 26, abs=0.01), "a random token may be the same"
    random = inputs[chosen][~became_mask & ~kept]
    assert random.unique().tolist() == list(range(4, 30)), "ordinary tokens only, and all of them"


def test_special_tokens_are_never_chosen() -> None:
    ids = some_ids(50, 40, high=8)
    inputs, targets = masked(ids, rate=1.0)
    assert torch.equal(targets != NO_TARGET, ids >= 4)
    assert torch.equal(inputs[ids < 4], ids[ids < 4])


def test_masking_is_reproducible_and_does_not_change_its_input() -> None:
    ids = some_ids(4, 9)
    before = ids.clone()
    first, again, other = (masked(ids, 0.5, seed) for seed in (0, 0, 1))
    assert torch.equal(ids, before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.targets, other.targets)


# --- the model ---


@torch.no_grad()
@pytest.mark.parametrize("head", ["none", "pooler", "mlm"])
def test_hidden_states_by_hand_are_those_of_the_model(head: Head) -> None:
    model, ids = tiny(head), some_ids(3, 7)
    for segments in (torch.zeros_like(ids), torch.ones_like(ids), (torch.arange(7) > 3).long().expand(3, 7)):
        by_hand = mlm.hidden_states(model, ids, segments)
        torch.testing.assert_close(by_hand, model(ids, token_types=segments), rtol=0, atol=1e-12)
    assert not torch.allclose(by_hand, model(ids)), "segments matter"


@torch.no_grad()
def test_the_pooler_by_hand_is_that_of_the_model() -> None:
    model = tiny("pooler")
    hidden = model(some_ids(3, 7))
    torch.testing.assert_close(mlm.pool(model, hidden), model.pooled(hidden), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="head='mlm' has no pooler"):
        mlm.pool(tiny("mlm"), hidden)


# --- a text and a training ---


def test_the_sentences() -> None:
    sentences = mlm.sentences()
    assert len(sentences) == len(set(sentences)) == 6 * 15
    assert sentences[0] == "나는 밥을 먹었다"
    assert "엄마는 차를 마셨다" in sentences
    nouns = "".join(mlm.OBJECTS.values())
    assert len(set(nouns)) == len(nouns), "the verb of a noun is certain"


def test_pretraining_learns_and_is_reproducible() -> None:
    tokenizer = the_tokenizer()
    batch = mlm.framed_batch(mlm.sentences(), tokenizer)
    runs = []
    for _ in range(2):
        torch.manual_seed(0)
        shape = {"vocab_size": tokenizer.vocab_size, "context_length": 12, "n_layer": 1, "n_head": 2, "n_embd": 16}
        model = BERT(BERTConfig(**shape, head="mlm", dropout=0.0, attention_dropout=0.0))
        runs.append(mlm.pretrain(model, batch, tokenizer, steps=30))
    assert runs[0] == runs[1]
    assert len(runs[0]) == 30
    assert runs[0][-1] < runs[0][0] - 1
    assert runs[0][0] == pytest.approx(math.log(tokenizer.vocab_size), abs=0.1)


def test_finetuning_learns_the_labels() -> None:
    torch.manual_seed(0)
    shape = {"vocab_size": 30, "context_length": 12, "n_layer": 1, "n_head": 2, "n_embd": 16}
    model = BERT(BERTConfig(**shape, head="classify", labels=("가", "나"), dropout=0.0, attention_dropout=0.0))
    ids = torch.tensor([[1, 5, 2, 0], [1, 6, 7, 2], [1, 8, 2, 0], [1, 9, 7, 2]])
    labels = torch.tensor([0, 1, 0, 1])
    mlm.finetune(model, ids, labels, 0, steps=30)
    assert torch.equal(model.eval().classify(model(ids, ids != 0), ids != 0).argmax(dim=-1), labels)
