"""The exercises in the order of their chapters. Importing this module does not import torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jumok.course.words import Language, Words, read_toml
from jumok.errors import ConfigError
from jumok.messages import closest, did_you_mean

HERE = Path(__file__).parent
HOLE = re.compile(r"^(?P<indent> *)# <solution>\n.*?^ *# </solution>\n", re.MULTILINE | re.DOTALL)
EARLIER = re.compile(r'^\w+ = mine\("(\w+)"\)\.(\w+)$', re.MULTILINE)
MARK = re.compile(r"^ *# </?solution>\n", re.MULTILINE)
DOCSTRING = re.compile(  # of an exercise, its functions and classes: Korean above, English below
    r'^(?P<indent> *)"""(?P<ko>(?:(?!""").)*?)\n\n *- - -\n\n *(?P<en>(?:(?!""").)*?)\s*"""$', re.MULTILINE | re.DOTALL
)
HEAD = Words(
    "# 설명: jumok learn {chapter}  확인: jumok learn check {number}  힌트: jumok learn hint {number}\n\n",
    "# Chapter: jumok learn {chapter}  Check: jumok learn check {number}  Hint: jumok learn hint {number}\n\n",
)
HERE_GOES = Words("여기에 코드를 작성하세요.", "Write your code here.")
SCALING = " / math.sqrt(q.shape[-1])"
FILE = re.compile(r"(?:\d\d_)?([a-z][a-z0-9_]*)(?:\.py)?")

CHAPTERS: Mapping[int, Mapping[str, str]] = {  # chapter -> its exercises -> their module in `checks`
    0: {"shapes": "averaging", "embedding": "positions"},
    1: {"bigram": "models", "get_batch": "training", "cross_entropy": "training"},
    2: {"averaging_matrix": "averaging", "averaging_softmax": "averaging"},
    3: {"softmax": "dot_product", "dot_product_attention": "dot_product"},
    4: {"query_key_value": "attention"},
    5: {"causal_mask": "attention", "head": "attention"},
    6: {"module_list_heads": "heads", "split_heads": "heads", "output_projection": "heads"},
    7: {"layer_norm": "block", "mlp": "block", "residual": "block", "dropout": "block", "block": "block"},
    8: {"learned_positions": "positions", "sinusoidal_positions": "positions", "rotary_positions": "positions"},
    9: {"gpt": "models"},
    10: {"training_step": "training", "learning_rate": "training", "adamw": "training", "muon": "training"},
    11: {
        "temperature": "writing", "top_k": "writing", "top_p": "writing", "generate": "writing",
        "beam_search": "writing",
    },
    12: {"character_tokenizer": "tokenizers", "bpe_merges": "tokenizers"},
    14: {"kv_cache": "writing"},
    15: {"cross_attention": "cross_attention", "padding_mask": "cross_attention", "masked_mean": "cross_attention"},
    18: {"bert_masking": "bert"},
    22: {"chat_template": "conversations", "answer_mask": "conversations", "packing_mask": "conversations"},
    23: {"dpo_loss": "rewards"},
    24: {"advantage": "rewards", "policy_gradient": "rewards"},
}  # fmt: skip


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number: from 1. part: the module in `checks`. chapter: the number of the chapter that explains it.
    """

    slug: str
    number: int
    part: str
    chapter: int

    @property
    def file(self) -> str:
        """The name of the reader's file."""
        return f"{self.number:02d}_{self.slug}.py"

    def solution(self, language: Language) -> str:
        """Return the whole file, with the solution. The code is the same in both languages."""
        return MARK.sub("", _in(language, self._source))

    def template(self, language: Language) -> str:
        """Return the file that the reader completes. Above the task: where to read, how to check, how to get a hint."""
        head = HEAD.said(language, chapter=self.chapter, number=self.number)
        hole = rf"\g<indent># {HERE_GOES.said(language)}\n\g<indent>raise NotImplementedError\n"
        source = HOLE.sub(hole, _in(language, self._source))
        return head + EARLIER.sub(lambda line: f"# {exercise(line[1]).signature(line[2])}\n{line[0]}", source)

    def signature(self, name: str) -> str:
        """Return how a function or a class of this file is called, and what forward of the class takes and returns."""
        for node in ast.parse(self._source).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return f"{name}{_signature(node)}"
            if isinstance(node, ast.ClassDef) and node.name == name:
                methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
                created = _signature(methods["__init__"]).removesuffix(" -> None")
                return f"{name}{created}\n#     forward{_signature(methods['forward'])}"
        raise KeyError(name)

    @property
    def title(self) -> Words:
        """The title."""
        task = self.task
        return Words(*(text.splitlines()[0].rstrip(".") for text in (task.ko, task.en)))

    @property
    def task(self) -> Words:
        """The title and the task."""
        task = DOCSTRING.match(self._source)
        assert task is not None
        return Words(task["ko"], task["en"])

    @property
    def hints(self) -> tuple[Words, ...]:
        """The hints, from a first direction to nearly the code."""
        read = read_toml(HERE / "hints" / f"{self.part}.toml")[self.slug]
        return tuple(Words(ko, en) for ko, en in zip(read["ko"], read["en"], strict=True))

    @cache  # noqa: B019
    def mistaken(self) -> tuple[tuple[str, str], ...]:
        """Return the key of each known mistake, and the solution with it. Some mistakes are made in several ways.

        Where the solution computes scaled dot-product attention, the mistakes in this formula come after its own, and
        all of them once more without the scaling, which is often forgotten besides.
        """
        solution = self.solution("en")
        known = list(_changes(self.part, self.slug))
        if SCALING in solution:
            known += [one for one in _changes("attention", "attention") if all(old in solution for old in one[1])]
            known += [(key, {**changes, SCALING: ""}) for key, changes in known if SCALING not in "".join(changes)]
        return tuple((key, _changed(solution, changes)) for key, changes in known)

    @property
    def _source(self) -> str:
        return (HERE / "exercises" / f"{self.slug}.py").read_text(encoding="utf-8")


def _changes(part: str, slug: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the key of each known mistake, and its changes: what stands in the solution -> what it puts there."""
    for key, ways in read_toml(HERE / "checks" / f"{part}.toml")["change"][slug].items():
        yield from ((key, changes) for changes in ways)


def _changed(source: str, changes: Mapping[str, str]) -> str:
    for old, new in changes.items():
        source = source.replace(old, new)
    return source


def _in(language: Language, source: str) -> str:
    """Return the source of an exercise with its docstrings in one language."""

    def docstring(both: re.Match[str]) -> str:
        text, indent = both[language], both["indent"]
        return f'{indent}"""{text}' + (f"\n{indent}" if "\n" in text else "") + '"""'

    return DOCSTRING.sub(docstring, source)


def _signature(function: ast.FunctionDef) -> str:
    """Return the arguments of a function, without self, and its result, as they are written."""
    arguments = ast.unparse(function.args).removeprefix("self, ")
    return f"({arguments}) -> {ast.unparse(function.returns)}" if function.returns else f"({arguments})"


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return all exercises, in order."""
    listed = [(slug, part, chapter) for chapter, slugs in CHAPTERS.items() for slug, part in slugs.items()]
    return tuple(Exercise(slug, number, part, chapter) for number, (slug, part, chapter) in enumerate(listed, 1))


def exercise(name: str) -> Exercise:
    """Return the exercise of a number, a slug or a file name.

    Raises:
        ConfigError: there is none.
    """
    by_slug = {one.slug: one for one in exercises()}
    if name.isdecimal() and 1 <= int(name) <= len(by_slug):
        return exercises()[int(name) - 1]
    match = FILE.fullmatch(Path(name).name)
    if match and match[1] in by_slug:
        return by_slug[match[1]]
    slug = closest(match[1], by_slug) if match else None
    raise ConfigError(
        "There is no exercise {name!r}.{hint} `jumok learn practice` lists all {count}.",
        name=name,
        hint=did_you_mean(name, [by_slug[slug].file]) if slug else "",
        count=len(by_slug),
    )
