"""The built-in corpus: Korean grammar, determinism, and the proof that its floor is exact."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import combinations, islice

import pytest

from jumok.corpora import stories, stories_grammar
from jumok.corpora.grammar import Grammar, Phrase, Template, Word, entries
from jumok.errors import ConfigError, CorpusError


@cache
def sample() -> list[stories.Tale]:
    return list(islice(stories.tales(seed=7), 4000))


def joined(tales: list[stories.Tale]) -> str:
    return "".join(tale.text + stories.SEPARATOR for tale in tales)


# -- the stream ----------------------------------------------------------------------------------------------------


def test_the_first_tale_of_seed_0_never_changes() -> None:
    """Trained models and published floors refer to this text: changing the grammar means a new version of it."""
    text = "".join(stories.write(20_000, seed=0))
    assert next(stories.tales()).text == text.split("\n\n")[0]
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "81479afbff974ec4710246f9986bb28ace73d5e949b0ce7e596ca476159d6d13"
    )


def test_the_seed_decides() -> None:
    def first(seed: int) -> list[stories.Tale]:
        return list(islice(stories.tales(seed), 5))

    assert first(3) == first(3)
    assert len({first(seed)[0].text for seed in range(200)}) == 200


@pytest.mark.parametrize("chars", [0, 1, 1000, 5000])
def test_write_gives_whole_tales_and_stops_at_the_first_boundary(chars: int) -> None:
    chunks = list(stories.write(chars, seed=5))
    longer = "".join(stories.write(10_000, seed=5))
    assert longer.startswith("".join(chunks))
    assert all(chunk.endswith(stories.SEPARATOR) for chunk in chunks)
    assert sum(map(len, chunks)) >= chars > sum(map(len, chunks[:-1])) - (chars == 0)


def test_negative_numbers_are_refused() -> None:
    """`Random(-1)` equals `Random(1)`: a negative seed would repeat another seed's tales."""
    for stream, said in (
        (stories.write(-1), "chars=-1"),
        (stories.tales(-1), "seed=-1"),
        (stories.write(9, -1), "seed"),
    ):
        with pytest.raises(ConfigError, match=said):
            next(stream)


# -- the Korean ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_tales_are_short_plain_lines() -> None:
    for text, _ in sample():
        assert 110 <= len(text) <= 230
        assert unicodedata.is_normalized("NFC", text)
        assert re.fullmatch(r"[가-힣 .,!?“”‘’]+", text)
        assert not re.search(r"  | [.,!?”]|“ |[.!?][가-힣]|,[^ ]", text)
        assert re.fullmatch(r"[^“”]*(“[^“”]+[.!?]”[^“”]*)+", text), text  # there is speech in each tale
        assert text.endswith("요.")


def test_particles_fit_the_words_they_follow() -> None:
    """By an independent rule: the final consonant is taken from the NFD form of each word in the word lists."""

    def closed(word: str) -> bool:
        return "\u11a8" <= unicodedata.normalize("NFD", word)[-1] <= "\u11c2"

    kinds = ("hero", "friend", "animal", "place", "item", "snack", "crop", "job", "goods")
    words = {word for kind in kinds for word in first_forms(kind)}
    checked = 0
    for text, _ in sample():
        for word, particle in re.findall(
            r"(?<![가-힣])([가-힣]{1,8}?)(은|는|이|가|을|를|과|와|아|야)(?=[ ,.!?])", text
        ):
            if word in words and word + particle not in words:
                assert closed(word) == (particle in "은이을과아"), f"{word}{particle}: {text}"
                checked += 1
        for word, particle in re.findall(r"(?<![가-힣])([가-힣]+?)(으로|로) ", text):
            if word in words:
                ends_in_l = unicodedata.normalize("NFD", word)[-1] == "\u11af"
                assert (particle == "으로") == (closed(word) and not ends_in_l), f"{word}{particle}: {text}"
                checked += 1
    assert checked > 5 * len(sample())


# -- cause and recall ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_tale_says_twice_agrees() -> None:
    causes = dict(row.split(" = ") for row in entries(stories_grammar.WORDS["trouble fix"]))
    wear = dict(row.split(" = ") for row in entries(stories_grammar.WORDS["weather wear"]))
    helped = 0
    for text, _ in sample():
        weather = [w for w in wear if re.search(rf"(^|\s){w} ", text)]
        assert any(wear[w] in text for w in weather), text
        trouble = [cause for cause in causes if f" {cause} " in text]
        if "있었어요. “" in text and trouble:
            assert any(f"{causes[cause]} 주었어요" in text for cause in trouble), text
            helped += 1
    assert helped > len(sample()) / 10


# -- the grammar is unambiguous ------------------------------------------------------------------------------------


def first_forms(word: str) -> list[str]:
    table = next(table for header, table in stories_grammar.WORDS.items() if header.split()[0] == word)
    return [row.split(" = ")[0] for row in entries(table)]


def heads(grammar: Grammar, tokens: Template) -> Iterator[Template]:
    """Return the tokens with the first one expanded in all ways."""
    head, rest = tokens[0], tokens[1:]
    if isinstance(head, Phrase):
        for option in grammar.templates[head.slot]:
            yield option + rest
    elif isinstance(head, Word):
        for text in head.texts:
            yield (text, *rest)


def told_apart(grammar: Grammar, one: Template, other: Template) -> bool:
    """Whether no text of `one` is the beginning of a text of `other`, or the other way round (sufficient).

    Equal leading tokens are set aside: each is a prefix-free code itself, or recalls the same word on both sides.
    """
    while one and other:
        a, b = one[0], other[0]
        if a == b:
            one, other = one[1:], other[1:]
        elif isinstance(a, str) and isinstance(b, str):
            if not (a.startswith(b) or b.startswith(a)):
                return True
            size = min(len(a), len(b))
            one = ((a[size:],) if a[size:] else ()) + one[1:]
            other = ((b[size:],) if b[size:] else ()) + other[1:]
        elif not isinstance(a, str):
            return all(told_apart(grammar, begun, other) for begun in heads(grammar, one))
        else:
            return all(told_apart(grammar, one, begun) for begun in heads(grammar, other))
    return False


def ambiguities(grammar: Grammar) -> list[str]:
    found = [
        f"{slot}: {one} / {other}"
        for slot, templates in grammar.templates.items()
        for one, other in combinations(templates, 2)
        if not told_apart(grammar, one, other)
    ]
    tokens = {t for templates in grammar.templates.values() for template in templates for t in template}
    return found + [
        f"{token.slot}: {a} / {b}"
        for token in tokens
        if isinstance(token, Word) and not token.recalled
        for a, b in combinations(token.texts, 2)
        if a.startswith(b) or b.startswith(a)
    ]


def test_every_choice_of_the_grammar_is_a_prefix_free_code() -> None:
    """The proof: each choice follows from the text, so a text has one derivation, and its nats are exact."""
    assert ambiguities(stories.grammar()) == []


def test_the_proof_notices_ambiguity() -> None:
    words = {"who": "곰 | 곰돌이", "what": "떡 | 빵"}
    assert ambiguities(Grammar({"who": words["who"]}, {"s": "{who:이/가} 왔어요."}, "s")) == []
    assert ambiguities(Grammar({"who": "곰 | 곰이"}, {"s": "{who} 왔어요."}, "s"))
    assert ambiguities(Grammar(words, {"s": "{what} | {a}", "a": "빵"}, "s"))
    assert ambiguities(Grammar(words, {"s": "{what}. | {what}. 끝."}, "s"))


def test_a_word_is_recalled_and_a_phrase_is_chosen_anew() -> None:
    grammar = Grammar(
        {"who call": "곰 = 곰아 | 여우 = 여우야"}, {"s": "{who} {how} {how} {who.call}", "how": "꼭 | 또"}, "s"
    )
    assert sorted(grammar.derive(range))[:2] == [("곰 꼭 꼭 곰아", 8), ("곰 꼭 또 곰아", 8)]
    assert len(set(grammar.derive(range))) == 8


def test_an_incomplete_grammar_is_refused() -> None:
    with pytest.raises(CorpusError, match="'whom'"):
        Grammar({"who": "곰 | 여우"}, {"s": "{whom} 왔어요."}, "s")
    with pytest.raises(CorpusError, match="2 forms"):
        Grammar({"who call": "곰 = 곰아 | 여우"}, {"s": "{who} 왔어요."}, "s")
    with pytest.raises(CorpusError, match="precedes its first occurrence"):
        Grammar({"who call": "곰 = 곰아 | 여우 = 여우야"}, {"s": "{who.call}, {who}!"}, "s").derive(range).__next__()


# -- the floor -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tale_is_scored_as_it_was_written() -> None:
    for text, nats in sample()[:500]:
        assert [math.log(ways) for _, ways in stories.grammar().derive(range, text)] == [nats]
        assert stories.score(text) == nats


def test_the_floor_is_nats_over_characters() -> None:
    tales = sample()[:60]
    text = joined(tales)
    floor = stories.floor(text)
    assert floor == math.fsum(tale.nats for tale in tales) / len(text)
    assert 0.28 < floor < 0.32
    assert stories.floor(text.rstrip("\n")) == floor  # the last separator may be missing


def test_the_floor_of_a_cut_text_is_that_of_its_whole_tales() -> None:
    tales = sample()[:6]
    text = joined(tales)
    first, last = len(tales[0].text), len(tales[-1].text)
    whole, inner = stories.floor(text), stories.floor(joined(tales[1:-1]))
    for start in range(1, first + 1, 7):
        assert stories.floor(text[start : -start - 2]) == inner
    assert stories.floor(text[first:]) == stories.floor(text[first + 1 :]) == stories.floor(joined(tales[1:]))
    assert stories.floor(text[: -last - 2]) == stories.floor(joined(tales[:-1]))
    assert stories.floor(text[:-1]) == whole


@pytest.mark.parametrize("foreign", ["", "\n\n\n", "옛날 옛적에", "Once upon a time.\n\nThe end."])
def test_a_text_without_a_whole_tale_has_no_floor(foreign: str) -> None:
    with pytest.raises(CorpusError, match="no whole tale"):
        stories.floor(foreign)


def test_a_foreign_paragraph_between_tales_is_named() -> None:
    with pytest.raises(CorpusError, match="나는 그런 이야기가 아니다"):
        stories.floor(f"{sample()[0].text}\n\n나는 그런 이야기가 아니다.\n\n{sample()[1].text}\n\n")


@pytest.mark.parametrize("change", [(".", "!"), ("요.", "다."), (" ", "  ")])
def test_a_changed_tale_is_not_scored(change: tuple[str, str]) -> None:
    with pytest.raises(CorpusError, match="not a tale"):
        stories.score(sample()[0].text.replace(*change))
