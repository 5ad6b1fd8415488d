"""The built-in corpus `talk`: short conversations in Korean, polite and casual, whose right answers are known.

Each conversation exercises one skill: remembering a name, adding numbers, choosing a word, small talk (`everyday.py`),
saying what it does not know or cannot do. Each answer has a check, a regular expression that the whole answer must
match. It accepts the right answer in several phrasings and in the register of the question. An answer that another
skill gives on the way has the check "".

The conversations of the test part ask what no conversation of the training part asks. What is asked (a name, two
summands, three words) is hashed, and the hash decides the part. A word of the test part may be new as a whole; its
syllables are not.

Hard questions are worked out in short steps before the answer (`reasoning_content`), such as the sum of each place.

`talk.toml` has the sentences and words; `templates.py` describes their notation. The same arguments give the same
conversations on every platform and Python version, because only `random.Random(seed).random()` is used.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, TypeVar

from jumok.config import require_choice, require_count
from jumok.corpora import everyday, stories_grammar, templates
from jumok.corpora.grammar import Grammar
from jumok.corpora.numbers import read_native, read_number
from jumok.text.hangul import split

PARTS = ("train", "test")
SHARE = 8  # one of so many combinations belongs to the test part
NOUNS_SHARE = 5  # one of so many nouns
OPENED = 6  # one of so many conversations of a skill begins with small talk or another skill
SHORT_SKILLS = ("greeting", "sum", "count", "opposite", "category", "letter", "length", "reverse", "numerals", "sort")
LONGEST = 250  # characters of a conversation with small talk, with five for the roles of each message
MOST_EXCHANGES = 6

T = TypeVar("T")
Row = dict[str, Any]


class Exchange(NamedTuple):
    """A question, and its answer with the steps that lead to it, and its check."""

    question: str
    answer: str
    check: str
    steps: str = ""


def write(rows: int, seed: int = 0, part: str = "train", thinking: bool = True) -> Iterator[Row]:
    """Yield `rows` conversations: dicts with `messages` (role, content, reasoning_content), `skill` and `checks`.

    A longer stream begins with each shorter one.

    Args:
        part: "train" or "test"; what is asked in the test part never occurs in the training part.
        thinking: False for answers without steps.

    Raises:
        ConfigError: an argument is not allowed.
    """
    require_count("rows", rows, 0)
    require_count("seed", seed, 0)
    require_choice("part", part, PARTS)
    return _write(rows, _Draw(seed, part), thinking)


def plain(row: Row) -> str:
    """Return a conversation as text: a line for each turn, steps in parentheses, an empty line at the end."""
    lines = []
    for message in row["messages"]:
        steps = message.get("reasoning_content")
        lines.append(f"({steps}) {message['content']}" if steps else message["content"])
    return "\n".join(lines) + "\n\n"


def json_line(row: Row) -> str:
    """Return a conversation as a line of JSON."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def _write(rows: int, draw: _Draw, thinking: bool) -> Iterator[Row]:
    shares = list(accumulate(_material()["skills"][name]["share"] for name in SKILLS))
    for _ in range(rows):
        ticket = draw.below(shares[-1])
        skill = next(name for name, bound in zip(SKILLS, shares, strict=True) if ticket < bound)
        draw.casual = draw.below(2) == 1
        messages: list[dict[str, str]] = []
        checks = []
        exchanges = SKILLS[skill](draw)
        if skill not in everyday.GROUPS:
            exchanges = [one._replace(question=everyday.hurried(draw, one.question)) for one in exchanges]
            exchanges = _opened(draw, exchanges) if draw.below(OPENED) == 0 else exchanges
        for exchange in exchanges:
            answer = {"role": "assistant", "content": exchange.answer}
            if thinking and exchange.steps:
                answer["reasoning_content"] = exchange.steps
            messages += [{"role": "user", "content": exchange.question}, answer]
            checks.append(exchange.check)
        yield {"messages": messages, "skill": skill, "checks": checks}


def _opened(draw: _Draw, exchanges: list[Exchange]) -> list[Exchange]:
    """Return exchanges that begin with small talk or with another skill, if all of it fits."""
    chat = draw.below(2) == 0
    before = [_small_talk(draw, everyday.GROUPS, first=True)] if chat else SKILLS[draw.of(SHORT_SKILLS)](draw)
    then = draw.of(("", "", "", "그럼 ", "그러면 ", "이번에는 ")) + exchanges[0].question
    opened = [*(one._replace(check="") for one in before), exchanges[0]._replace(question=then), *exchanges[1:]]
    return opened if _fits(opened) else exchanges


@cache
def _material() -> dict[str, Any]:
    return tomllib.loads(resources.files("jumok.corpora").joinpath("talk.toml").read_text(encoding="utf-8"))


def _hash(key: object) -> int:
    """Return a number that is the same on every platform."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=4).digest())


@cache
def _words(table: str, name: str) -> tuple[str, ...]:
    return tuple(_material()[table][name].split())


class _Draw:
    """Random choices for the conversations of one part, in one register."""

    def __init__(self, seed: int, part: str) -> None:
        self._random = Random(seed).random
        self.test = part == "test"
        self.casual = False

    def below(self, bound: int) -> int:
        return int(self._random() * bound)

    def of(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def several(self, options: Sequence[T], count: int) -> list[T]:
        """Return different options in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def fresh(self, make: Callable[[], T], key: Callable[[T], object] = lambda made: made) -> T:
        """Return the first result of `make` whose key belongs to the part."""
        while True:
            made = make()
            if (_hash(key(made)) % SHARE == 0) == self.test:
                return made

    def ask(self, asks: Sequence[str], answers: Sequence[str], steps: str = "", **values: Any) -> Exchange:
        """Return an exchange. The first alternatives of an answer are written, any of a question."""
        question = templates.say(self.of(asks), self.casual, values, self.below)
        answer = templates.say(answers[0], self.casual, values, lambda count: 0)
        return Exchange(question, answer, templates.pattern(answers, self.casual, values), steps)

    def asked(self, skill: str, steps: str = "", form: str = "ask", right: str = "answer", **values: Any) -> Exchange:
        texts = _material()["skills"][skill]
        return self.ask(texts[form], texts[right], steps, **values)


# --- What one is told -----------------------------------------------------------------------------------------------


def _name(draw: _Draw) -> str:
    """Return a given name of the part."""
    firsts, seconds = _words("words", "names"), _words("words", "names2")
    first, second = draw.fresh(lambda: (draw.of(firsts), draw.of(seconds)))
    return _name(draw) if first == second else first + second


def _greeting(draw: _Draw) -> list[Exchange]:
    alone = draw.below(6) == 0  # the name and nothing else, with a surname to be polite
    name = _name if draw.casual else _full_name if alone else draw.of((_name, _full_name))
    exchanges = [draw.asked("greeting", form="alone" if alone else "ask", name=name(draw))]
    if draw.below(2):
        exchanges.append(_small_talk(draw, ("everyday", "self"), first=False))
    return exchanges


def _fact(draw: _Draw, kind: str) -> str:
    """Return something to tell about oneself."""
    if kind in ("name", "friend"):
        return _name(draw)
    if kind == "pet":
        return draw.fresh(lambda: draw.of(_words("words", "pets")) + draw.of(_words("words", "pets2")))
    if kind == "age":
        return read_native(5 + draw.below(80), before_noun=True)
    return draw.of(_words("words", "cities") if kind == "city" else _words("likes", kind))


def _told(draw: _Draw, count: int) -> tuple[list[Exchange], list[tuple[str, str]], list[str]]:
    """Return exchanges in which so many facts are told, the facts, and kinds that were not told."""
    every = [*(kind for kind in _material()["facts"] if kind != "like"), *_material()["likes"]]

    def make() -> list[tuple[str, str]]:
        return [(kind, _fact(draw, kind)) for kind in draw.several(every, count)]

    told = draw.fresh(make) if count else []
    said = [_said(draw, kind, x, "tell", "heard")._replace(check="") for kind, x in told]
    return said, told, [kind for kind in every if kind not in dict(told)]


def _said(draw: _Draw, kind: str, x: str, asks: str, answers: str) -> Exchange:
    texts = _material()["facts"]["like" if kind in _material()["likes"] else kind]
    return draw.ask(texts[asks], texts[answers], x=x, kind=kind)


def _memory(draw: _Draw) -> list[Exchange]:
    exchanges, told, _ = _told(draw, draw.of((1, 2, 2)))
    kind, x = draw.of(told)
    if len(told) == 1 and draw.below(2):  # told and asked in one message
        asked = _said(draw, kind, x, "ask", "answer")
        return [asked._replace(question=f"{exchanges[0].question} {asked.question}")]
    if draw.below(2):
        exchanges.append(SKILLS[draw.of(("opposite", "letter", "final", "category"))](draw)[0]._replace(check=""))
    return [*exchanges, _said(draw, kind, x, "ask", "answer")]


def _unknown(draw: _Draw) -> list[Exchange]:
    """Ask for something that was not told, sometimes before anything was."""
    exchanges, _, untold = _told(draw, draw.below(3))
    personal, answers = _material()["personal"], _material()["skills"]["unknown"]["answer"]
    kind = draw.below(6)
    if kind < 2:
        thing = draw.of(
            [word for word in _words("personal", "things") if (_hash(word) % NOUNS_SHARE == 0) == draw.test]
        )
        asked = draw.ask(personal["ask"], answers, x=thing.replace("_", " "))
    elif kind == 2 and not exchanges:
        asked = draw.ask(personal["said"], answers)
    else:
        asked = _said(draw, draw.of(untold), "가", "ask", "answer")
    return [*exchanges, Exchange(asked.question, *draw.ask([""], answers)[1:])]


# --- Numbers --------------------------------------------------------------------------------------------------------


def _pair(draw: _Draw, first: Sequence[int], second: Sequence[int]) -> tuple[int, int]:
    return draw.fresh(lambda: (draw.of(first), draw.of(second)), key=lambda pair: ("sum", *sorted(pair)))


def _steps(a: int, b: int) -> str:
    """Return the sums of the ones, of the tens, and of the tens with the carry."""
    ones = a % 10 + b % 10
    steps = [f"{a % 10}+{b % 10}={ones}"]
    if a >= 10 or b >= 10:
        tens = a // 10 + b // 10
        steps.append(f"{a // 10}+{b // 10}={tens}")
        if ones >= 10:
            steps.append(f"{tens}+1={tens + 1}")
    return ", ".join(steps)


def _sum(draw: _Draw) -> list[Exchange]:
    tens, ones = range(10, 100), range(1, 10)
    a, b = _pair(draw, *draw.of(((tens, tens), (tens, tens), (tens, tens), (tens, ones), (ones, tens), (ones, ones))))
    texts, steps = (str(a + b), read_number(a + b)), _steps(a, b)
    if draw.below(3):
        plus = draw.of(("+", " 더하기 ", " + "))
        return [draw.asked("sum", steps, a=str(a), b=str(b), plus=plus, n=texts)]
    steps = f"{a}+{b}: {steps}"
    native = a + b < 100 and draw.below(3) == 0
    read: Callable[[int], str] = read_native if native else read_number
    texts = (read(a + b), str(a + b))
    return [draw.asked("sum", steps, a=read(a), b=read(b), plus=" 더하기 ", n=texts)]


def _count(draw: _Draw) -> list[Exchange]:
    small, large = range(1, 10), range(11, 60)
    a, b = _pair(draw, draw.of((small, large)), draw.of((small, range(11, 40))))
    unit = draw.of(list(_material()["counted"]))
    return [
        draw.asked(
            "count",
            f"{a}+{b}: {_steps(a, b)}",
            thing=draw.of(_words("counted", unit)),
            unit=unit,
            a=read_native(a, before_noun=True),
            b=read_native(b, before_noun=True),
            n=(read_native(a + b, before_noun=True) + " ", f"{a + b}", f"{a + b} "),
        )
    ]


def _numerals(draw: _Draw) -> list[Exchange]:
    def make() -> int:  # zeros are frequent, because they are left out in the reading
        digits = [draw.below(10) if draw.below(4) else 0 for _ in range(3)]
        return int("".join(map(str, [1 + draw.below(9), *digits[: 2 + draw.below(2)]])))

    number = draw.fresh(lambda: next(n for n in iter(make, -1) if n >= 200))
    read, written = read_number(number), str(number)
    if draw.below(2):
        return [draw.asked("numerals", form="read", q=written, n=read)]
    return [draw.asked("numerals", form="write", q=read, n=written)]


def _sort(draw: _Draw) -> list[Exchange]:
    numbers = draw.fresh(lambda: draw.several(range(draw.of((1, 10, 10)), 100), 3), key=sorted)
    first = draw.of(("작은", "큰"))
    ordered = sorted(numbers, reverse=first == "큰")
    return [draw.asked("sort", numbers=", ".join(map(str, numbers)), first=first, n=", ".join(map(str, ordered)))]


# --- Days -----------------------------------------------------------------------------------------------------------


def _day(draw: _Draw) -> list[Exchange]:
    days, counts = _words("words", "days"), _words("words", "counts")
    day, count = draw.fresh(lambda: (draw.below(7), 1 + draw.below(14)), key=lambda made: ("day", *made))
    passed = [days[(day + past) % 7] for past in range(1, count + 1)]
    steps = " ".join(f"{past}{name}" for past, name in enumerate(passed, 1))
    later = f"{counts[count - 1]} 뒤" if count <= len(counts) and draw.below(2) else f"{count}일 뒤"
    return [draw.asked("day", steps, day=days[day], later=later, n=passed[-1])]


def _date(draw: _Draw) -> list[Exchange]:
    month, (day, count) = 1 + draw.below(12), _pair(draw, range(1, 20), range(1, 10))
    steps = f"{day}+{count}: {_steps(day, count)}"
    return [draw.asked("date", steps, month=str(month), day=str(day), k=str(count), n=str(day + count))]


# --- Words ----------------------------------------------------------------------------------------------------------


def _opposite(draw: _Draw) -> list[Exchange]:
    if draw.below(3) == 0:
        forms = _material()["skills"]["opposite"]["plain"]
        pair = draw.fresh(lambda: (*draw.several(draw.of(_words("antonyms", "pairs")).split("-"), 2), draw.of(forms)))
        return [draw.ask([pair[2]], ["{b:is}."], a=pair[0], b=pair[1])]

    def make() -> tuple[str, ...]:
        pair = draw.of(list(_material()["opposites"]))
        return (*draw.several(pair.split("-"), 2), draw.of(_words("opposites", pair)))

    a, b, noun = draw.fresh(make, key=lambda made: (made[0], made[2]))
    return [draw.asked("opposite", a=a, b=b, noun=noun)]


def _category(draw: _Draw) -> list[Exchange]:
    """Ask for the one word of a category, or for the one word that is not of it."""

    def make() -> tuple[str, str, str, list[str]]:
        kind, another = draw.several(list(_material()["kinds"]), 2)
        one, two = draw.of(_words("kinds", kind)), draw.several(_words("kinds", another), 2)
        return kind, another, one, two

    kind, another, one, two = draw.fresh(make, key=lambda made: sorted([made[2], *made[3]]))
    words = ", ".join(draw.several([one, *two], 3))
    form, kind = draw.of([("other", another), ("which", kind)])
    return [draw.asked("category", form=form, words=words, kind=kind, n=one)]


@cache
def _nouns(test: bool) -> tuple[str, ...]:
    """Return the nouns of a part. Those of other skills, and all with a rare syllable, belong to the training part."""
    nouns = _words("words", "nouns")
    others = f"{[table for name, table in _material().items() if name != 'words']} {stories_grammar.WORDS}"
    chosen = {word for word in nouns if _hash(word) % NOUNS_SHARE == 0 and word not in others}
    known = {syllable for word in nouns if word not in chosen for syllable in word}
    return tuple(word for word in nouns if (word in chosen and known.issuperset(word)) == test)


def _full_name(draw: _Draw) -> str:
    return draw.of(_words("words", "surnames")) + _name(draw)


def _noun(draw: _Draw) -> str:
    return draw.of(_nouns(draw.test))


WORDS = (_noun, _name, _full_name)  # so many names that words are copied, and not learned by heart


def _word(draw: _Draw) -> str:
    return draw.of(WORDS)(draw)


@cache
def _next(word: str) -> tuple[str, ...]:
    """Return the words that continue a chain; those of the training part, which are written, come first."""
    others = " ".join(table for name in ("likes", "kinds") for table in _material()[name].values()).split()
    nouns = dict.fromkeys((*_nouns(False), *_nouns(True), *others))
    return tuple(noun for noun in nouns if noun[0] == word[-1] and noun != word and len(noun) > 1)


@cache
def _playable(test: bool, first: str = "") -> tuple[str, ...]:
    """Return the words of a part that can be answered; first: the syllable that they begin with, if any."""
    return tuple(noun for noun in _nouns(test) if noun.startswith(first) and _next(noun))


def _chain(draw: _Draw) -> list[Exchange]:
    """Play until no word of the part goes on, or for six turns."""
    used: list[str] = []
    exchanges: list[Exchange] = []
    opened = draw.below(5) == 0
    if opened:
        exchanges.append(draw.asked("chain", form="opening", right="open")._replace(check=""))
    for _ in range(1 + draw.below(5 if opened else 6)):
        answers = {
            word: tuple(noun for noun in _next(word) if noun not in used)
            for word in _playable(draw.test, used[-1][-1] if used else "")
            if word not in used
        }
        words = [word for word, nouns in answers.items() if nouns and nouns[0] in _nouns(False)]
        if not words:
            break
        word = draw.of(words)
        texts = _material()["skills"]["chain"]
        asks = ["{word}."] if used or opened else texts["ask"]
        exchanges.append(draw.ask(asks, texts["answer"], word=word, next=answers[word]))
        used += [word, answers[word][0]]
    return exchanges


def _letter(draw: _Draw) -> list[Exchange]:
    word = _word(draw)
    places = {"첫": 0, "마지막": -1} | ({"두 번째": 1} if len(word) > 2 else {})
    place = draw.of(list(places))
    return [draw.asked("letter", word=word, place=place, n=word[places[place]])]


def _length(draw: _Draw) -> list[Exchange]:
    word = _noun(draw)
    n = (read_native(len(word), before_noun=True) + " ", str(len(word)))
    return [draw.asked("length", word=word, n=n)]


def _final(draw: _Draw) -> list[Exchange]:
    word = _word(draw)
    tail = split(word[-1])[2]
    steps = word[-1] + "".join(split(word[-1]))
    return [draw.asked("final", steps, right="some" if tail else "none", word=word, n=tail)]


def _initial(draw: _Draw) -> list[Exchange]:
    word = _word(draw)
    steps = " ".join(letter + "".join(split(letter)) for letter in word)
    return [draw.asked("initial", steps, word=word, n="".join(split(letter)[0] for letter in word))]


def _reverse(draw: _Draw) -> list[Exchange]:
    word = _word(draw)
    return [draw.asked("reverse", word=word, n=word[::-1])]


def _order(draw: _Draw) -> list[Exchange]:
    word = draw.of(WORDS)
    words = [word(draw) for _ in range(3)]
    initials = [split(word[0])[0] for word in words]
    if len(set(initials)) < 3:
        return _order(draw)
    steps = f"{' '.join(map(''.join, zip(initials, words, strict=True)))}: {''.join(sorted(initials))}"
    return [draw.asked("order", steps, words=", ".join(words), n=", ".join(sorted(words)))]


# --- Small talk -----------------------------------------------------------------------------------------------------


def _small_talk(draw: _Draw, groups: Sequence[str], first: bool) -> Exchange:
    makers: everyday.Makers = {"name": lambda draw: draw.of((_name, _full_name))(draw), "word": _noun}
    return Exchange(*everyday.small_talk(draw, groups, makers, () if draw.test else _nouns(True), first))


def _talk_of(group: str) -> Callable[[_Draw], list[Exchange]]:
    """Return a skill: a message of the group, alone or after other messages or another skill."""

    def converse(draw: _Draw) -> list[Exchange]:
        exchanges: list[Exchange] = []
        if draw.below(7) == 0:
            exchanges = SKILLS[draw.of(("memory", "day", *SHORT_SKILLS))](draw)
        elif draw.below(3) == 0:
            exchanges = [_small_talk(draw, everyday.GROUPS, first=True)]
            if draw.below(3) == 0:
                exchanges.append(_small_talk(draw, everyday.GROUPS, first=False))
        last = _small_talk(draw, (group,), first=not exchanges)
        exchanges = [*(exchange._replace(check="") for exchange in exchanges), last]
        return exchanges if _fits(exchanges) else [last]

    return converse


def _fits(exchanges: list[Exchange]) -> bool:
    """Return whether a conversation fits a short context."""
    chars = sum(len(one.question + one.answer + one.steps) + 10 for one in exchanges)
    return chars <= LONGEST and len(exchanges) <= MOST_EXCHANGES


# --- Tales ----------------------------------------------------------------------------------------------------------


@cache
def _tales() -> Grammar:
    return Grammar(stories_grammar.WORDS, stories_grammar.PHRASES | _material()["tale"], "row")


def _tale(draw: _Draw) -> list[Exchange]:
    def make() -> list[str]:
        return next(_tales().derive(lambda size: (draw.below(size),))).text.split("/")

    mood, hero, animal, place, tale = draw.fresh(make, key=lambda made: made[:4])
    form = draw.of(("ask", "ask", "any", "some"))
    ask = _material()["skills"]["tale"][form]
    asked = draw.ask(ask, ["{tale}"], mood=mood, hero=hero, animal=animal, place=place, tale=tale)
    tells = "|".join(_words("moods", mood))
    others = [word for other in _material()["moods"] if other != mood for word in _words("moods", other)]
    for slot, said in (("hero", hero), ("animal", animal), ("place", place)):
        others += [word for word in _options(slot) if word != said]
    ends = "(?<!요)[.!]" if draw.casual else "요[.!]"
    check = f"(?=.*{hero})(?=.*{animal})(?=.*{place})(?=.*(?:{tells}))(?!.*(?:{'|'.join(others)}))"
    if form != "ask":
        check = f"(?=.*(?:{tells}))" if form == "any" else ""
    return [
        Exchange(
            asked.question,
            tale.replace("요.", ".") if draw.casual else tale,
            check + f"(?:[^.!]{{8,60}}{ends} ?){{2,5}}",
        )
    ]


@cache
def _options(slot: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in stories_grammar.WORDS[slot].split("|"))


SKILLS: dict[str, Callable[[_Draw], list[Exchange]]] = {
    "greeting": _greeting,
    "memory": _memory,
    "unknown": _unknown,
    "sum": _sum,
    "count": _count,
    "numerals": _numerals,
    "sort": _sort,
    "day": _day,
    "date": _date,
    "opposite": _opposite,
    "category": _category,
    "chain": _chain,
    "letter": _letter,
    "length": _length,
    "final": _final,
    "initial": _initial,
    "reverse": _reverse,
    "order": _order,
    "tale": _tale,
    **{group: _talk_of(group) for group in everyday.GROUPS},
}
