"""Chapter 20, a model trained here: Korean sentences in which two words depend on earlier ones.

An example is 할머니께서 장미 파는 가게에서 연필을 어제 세 자루 사셨다: yesterday Grandmother bought three pencils in a
shop that sells roses. The counter 자루 follows from the object 연필을, and the honorific form 사셨다 from the
subject 할머니께서. The number of words between them varies, so neither is at a fixed distance. There are two
distractors: the goods of the shop (장미), which are independent of the object, and a companion (such as 동생과), anyone
but the subject. Every other word is drawn uniformly.

A token is a word between spaces (eojeol). Shapes use the legend of `jumok.nn.attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from jumok import GPT
from jumok.text.hangul import josa

ELDERS: Mapping[str, str] = {  # person -> as a subject; the verb takes the honorific form
    person: person + "께서" for person in ("할머니", "할아버지", "어머니", "아버지", "선생님")
}
OTHERS: Mapping[str, str] = {person: josa(person, "이/가") for person in ("동생", "친구", "누나", "형", "조카")}
WITH: Mapping[str, str] = {person: josa(person, "과/와") for person in (*ELDERS, *OTHERS)}  # as a companion
COUNTERS: Mapping[str, str] = {  # goods -> their counter
    "연필": "자루", "붓": "자루", "공책": "권", "그림책": "권", "우표": "장", "종이": "장",
    "장미": "송이", "튤립": "송이", "양말": "켤레", "장갑": "켤레", "바지": "벌", "치마": "벌",
}  # fmt: skip
OBJECTS: Mapping[str, str] = {goods: josa(goods, "을/를") for goods in COUNTERS}
NUMBERS = ("한", "두", "세", "네", "다섯")
FILLERS = ("어제", "아침에", "급히", "천천히", "몰래", "조용히")
SHOP = ("파는", "가게에서")
VERBS: Mapping[str, str] = {  # honorific -> plain
    "사셨다": "샀다", "고르셨다": "골랐다", "찾으셨다": "찾았다", "챙기셨다": "챙겼다",
}  # fmt: skip
PADDING = "·"
WORDS: tuple[str, ...] = (
    PADDING, *ELDERS.values(), *OTHERS.values(), *WITH.values(), *COUNTERS, *OBJECTS.values(),
    *dict.fromkeys(COUNTERS.values()), *NUMBERS, *FILLERS, *SHOP, *VERBS, *VERBS.values(),
)  # fmt: skip
IDS: Mapping[str, int] = {word: number for number, word in enumerate(WORDS)}
LONGEST = 13  # subject, companion, three of the shop, four fillers, object, number, counter, verb


class Sentence(NamedTuple):
    """A sentence. Its subject is the first word, and its last three words are the number, the counter and the verb.

    Fields:
        words: at most LONGEST. object: the index of the object.
    """

    words: tuple[str, ...]
    object: int

    @property
    def number(self) -> int:
        """The index of the number, where a model predicts the counter."""
        return len(self.words) - 3

    @property
    def counter(self) -> int:
        """The index of the counter, where a model predicts the verb."""
        return len(self.words) - 2


def sentences(count: int, seed: int) -> list[Sentence]:
    """Independent sentences. The same seed gives the same sentences on every platform."""
    draw = Random(seed).random  # the only method whose sequence Python guarantees
    return [_sentence(draw) for _ in range(count)]


def ids_of(written: Sequence[Sentence]) -> Tensor:
    """Sentences as ids (B, LONGEST), padded on the right with 0, the id of PADDING."""
    rows = [[IDS[word] for word in each.words] + [0] * (LONGEST - len(each.words)) for each in written]
    return torch.tensor(rows)


class Correct(NamedTuple):
    """Shares of sentences, each from 0 to 1.

    Fields:
        counter: the right counter has the highest probability of all words. choice: it has the highest probability of
            all counters, so the share does not depend on whether the model expects a counter at all. form: the verbs of
            the right form, honorific or plain, have a higher probability than the others, whichever of them follows.
    """

    counter: float
    choice: float
    form: float


def correct(model: GPT, written: Sequence[Sentence]) -> Correct:
    """How often a model predicts the counter and the form of the verb, each from the words before it."""
    ids = ids_of(written)
    with torch.no_grad():
        probabilities = model(ids).softmax(dim=-1)  # (B, T, V)
    rows = torch.arange(len(written))
    at_number = torch.tensor([each.number for each in written])
    answers, next_words = ids[rows, at_number + 1], probabilities[rows, at_number]  # (B,), (B, V)
    counters = torch.tensor([IDS[counter] for counter in dict.fromkeys(COUNTERS.values())])
    chosen = counters[next_words[:, counters].argmax(dim=-1)]  # (B,)
    verbs = probabilities[rows, at_number + 1]  # (B, V)
    honorific, plain = ([IDS[verb] for verb in form] for form in (VERBS, VERBS.values()))
    guessed = verbs[:, honorific].sum(dim=-1) > verbs[:, plain].sum(dim=-1)  # (B,)
    asked = torch.tensor([each.words[0] in ELDERS.values() for each in written])
    hits = (next_words.argmax(dim=-1) == answers, chosen == answers, guessed == asked)
    return Correct(*(hit.double().mean().item() for hit in hits))


def mean_weight(weights: Tensor, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
    """The mean weight from one position to another, each sentence with positions of its own.

    Args:
        weights: (B, H, T, S). queries, keys: B positions each.

    Returns:
        (H,).
    """
    rows = torch.arange(weights.shape[0])
    return weights[rows, :, torch.tensor(queries), torch.tensor(keys)].mean(dim=0)  # (B, H) -> (H,)


def _sentence(draw: Callable[[], float]) -> Sentence:
    def one(choices: Mapping[str, str] | Sequence[str]) -> str:
        return list(choices)[int(draw() * len(choices))]

    def fillers() -> list[str]:
        return [one(FILLERS) for _ in range(int(draw() * 3))]  # none, one or two

    honorific = draw() < 0.5
    subjects = ELDERS if honorific else OTHERS
    person = one(subjects)
    words = [subjects[person]]
    if draw() < 0.5:
        words.append(WITH[one([other for other in WITH if other != person])])
    if draw() < 0.5:
        words += [one(COUNTERS), *SHOP]
    words += fillers()
    goods, place = one(COUNTERS), len(words)
    words += [OBJECTS[goods], *fillers(), one(NUMBERS), COUNTERS[goods]]
    verb = one(VERBS)
    words.append(verb if honorific else VERBS[verb])
    return Sentence(tuple(words), place)
