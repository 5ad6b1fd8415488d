"""The sentences of chapter 21: two words follow from earlier ones, and the measures count what they say."""

from __future__ import annotations

from random import Random

import pytest
import torch
from equality import assert_close, randomise
from torch import Tensor

import jumok
from jumok.course.chapters.agreement import (
    LISTS,
    WORDS,
    first_attention,
    head_replaced,
    ids_of,
    sentence,
    shares_right,
    train_on_sentences,
)
from jumok.course.chapters.gpt import GPT
from jumok.interpret.ablation import ablate

_random = Random(3)
MANY = [sentence(_random) for _ in range(2000)]
COUNTER_OF = dict(zip(LISTS["object"], LISTS["counter"], strict=True))


class Oracle:
    """Logits that put 10 on one counter at the number, and on one verb at the counter."""

    def __init__(self, counter: str | None = None, verb: str | None = None) -> None:
        self.counter, self.verb = counter, verb

    def __call__(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, len(WORDS))
        for row, words in enumerate(MANY):
            logits[row, len(words) - 3, WORDS.index(self.counter or words[-2])] = 10
            logits[row, len(words) - 2, WORDS.index(self.verb or words[-1])] = 10
        return logits


def object_of(words: list[str]) -> int:
    [place] = [place for place, word in enumerate(words) if word in COUNTER_OF]
    return place


def test_the_counter_follows_from_the_object_and_the_verb_from_the_subject() -> None:
    for words in MANY:
        assert words[-2] == COUNTER_OF[words[object_of(words)]]
        assert (words[-1] in LISTS["honorific"]) == (words[0] in LISTS["elder"])


def test_neither_is_at_a_fixed_distance_nor_follows_from_a_distractor() -> None:
    assert {len(words) - 3 - object_of(words) for words in MANY} == {1, 2, 3}
    assert len({len(words) for words in MANY}) > 5
    assert max(len(words) for words in MANY) == 13
    counters = dict(zip(LISTS["shop"], LISTS["counter"], strict=True))
    shops = [(counters[words[words.index("파는") - 1]], words[-2]) for words in MANY if "파는" in words]
    assert 0.1 < sum(shop == counter for shop, counter in shops) / len(shops) < 0.24  # a sixth
    elders = LISTS["with"][:5]
    beside = [(words[1] in elders) == (words[-1] in LISTS["honorific"]) for words in MANY if words[1] in LISTS["with"]]
    assert 0.35 < sum(beside) / len(beside) < 0.55  # nobody accompanies themselves: 4 in 9


def test_a_word_has_one_id() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert WORDS[0] == "·"
    ids = ids_of([["어제", "한"], ["한"]])
    assert ids.tolist() == [[WORDS.index("어제"), WORDS.index("한")], [WORDS.index("한"), 0]]


def test_what_is_right() -> None:
    assert shares_right(Oracle(), MANY) == (1, 1)
    share = sum(words[-2] == "권" for words in MANY) / len(MANY)
    assert shares_right(Oracle(counter="권"), MANY) == pytest.approx((share, 1))
    honorific = sum(words[-1] in LISTS["honorific"] for words in MANY) / len(MANY)
    assert shares_right(Oracle(verb="고르셨다"), MANY) == pytest.approx((1, honorific))  # whichever of the four verbs


@torch.no_grad()
def test_weights_and_ablations_are_those_of_jumok() -> None:
    own = GPT(len(WORDS), context_length=13, n_layer=1, n_head=3, n_embd=48)
    randomise(own)
    config = jumok.GPTConfig(family="classic", vocab_size=len(WORDS), context_length=13, n_layer=1, n_head=3, n_embd=48)
    theirs = jumok.GPT(config).double().eval()
    theirs.load_state_dict(own.state_dict())
    ids = ids_of(MANY[:20])
    with jumok.record(theirs) as recording:
        theirs(ids)
    layer = recording.attentions[0]
    weights, outputs = first_attention(own, ids)
    assert_close(weights, layer.weights())
    assert_close(outputs, layer.weights() @ layer.v)
    plain = own(ids)
    with head_replaced(own, 1, outputs[:, 1]):
        assert_close(own(ids), plain)
    with ablate(theirs, [(0, 1)]), head_replaced(own, 1, 0.0):
        assert_close(own(ids), theirs(ids))
    assert_close(own(ids), plain)  # the hook is gone


def test_training_learns_sentences() -> None:
    ids = ids_of(MANY)
    counter, form = shares_right(train_on_sentences(ids, seed=0, steps=150), MANY[:200])
    assert counter > 0.5
    assert form > 0.4
