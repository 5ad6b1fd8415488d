"""The sentences of chapter 20: two words follow from earlier ones, and the measures count what they say."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from jumok.course.chapters import agreement
from jumok.course.chapters.agreement import COUNTERS, ELDERS, IDS, OBJECTS, VERBS, WITH, WORDS, Sentence
from jumok.models.gpt import GPT

MANY = agreement.sentences(2000, seed=3)


class Oracle:
    """Logits that put 10 on one counter at the number, and on one verb at the counter."""

    def __init__(self, written: list[Sentence], counter: str | None = None, verb: str | None = None) -> None:
        self.written, self.counter, self.verb = written, counter, verb

    def __call__(self, ids: Tensor) -> Tensor:
        logits = torch.zeros(*ids.shape, len(WORDS))
        for row, each in enumerate(self.written):
            logits[row, each.number, IDS[self.counter or each.words[each.counter]]] = 10
            logits[row, each.counter, IDS[self.verb or each.words[-1]]] = 10
        return logits


def correct(written: list[Sentence], **predictions: Any) -> tuple[float, ...]:
    return agreement.correct(cast(GPT, Oracle(written, **predictions)), written)


def test_the_counter_follows_from_the_object_and_the_verb_from_the_subject() -> None:
    goods = {form: name for name, form in OBJECTS.items()}
    for each in MANY:
        assert each.words[each.counter] == COUNTERS[goods[each.words[each.object]]]
        assert (each.words[-1] in VERBS) == (each.words[0] in ELDERS.values())


def test_neither_is_at_a_fixed_distance_nor_follows_from_a_distractor() -> None:
    assert {each.number - each.object for each in MANY} == {1, 2, 3}
    assert len({each.counter for each in MANY}) > 5
    shops = [(COUNTERS[each.words[i - 1]], each.words[each.counter]) for each in MANY
             for i, word in enumerate(each.words) if word == "파는"]  # fmt: skip
    assert 0.1 < sum(shop == counter for shop, counter in shops) / len(shops) < 0.24  # a sixth
    elders = {WITH[person] for person in ELDERS}
    beside = [(each.words[1] in elders) == (each.words[-1] in VERBS) for each in MANY if each.words[1] in WITH.values()]
    assert 0.35 < sum(beside) / len(beside) < 0.55  # nobody accompanies themselves: 4 in 9


def test_what_is_correct() -> None:
    assert correct(MANY) == (1, 1, 1)
    share = sum(each.words[each.counter] == "권" for each in MANY) / len(MANY)
    assert correct(MANY, counter="권") == pytest.approx((share, share, 1))
    honorific = sum(each.words[-1] in VERBS for each in MANY) / len(MANY)
    assert correct(MANY, verb="고르셨다") == pytest.approx((1, 1, honorific))  # whichever of the four verbs


def test_a_choice_among_counters_ignores_other_words() -> None:
    class Elsewhere(Oracle):
        def __call__(self, ids: Tensor) -> Tensor:
            logits = super().__call__(ids)
            logits[..., IDS["어제"]] = 20
            return logits

    counter, choice, form = agreement.correct(cast(GPT, Elsewhere(MANY)), MANY)
    assert (counter, choice, form) == (0, 1, 1)


def test_mean_weight() -> None:
    weights = torch.zeros(2, 1, 3, 3)
    weights[0, 0, 2, 1], weights[1, 0, 1, 0] = 0.5, 1.0
    assert agreement.mean_weight(weights, [2, 1], [1, 0]).tolist() == [0.75]
