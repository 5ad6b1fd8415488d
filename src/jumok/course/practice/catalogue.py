"""The exercises in order, in parts. Importing this module does not import torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jumok.course.words import Words, read_toml
from jumok.errors import ConfigError
from jumok.messages import closest, did_you_mean

HERE = Path(__file__).parent
HOLE = re.compile(r"^(?P<indent> *)# <solution>\n.*?^ *# </solution>\n", re.MULTILINE | re.DOTALL)
EARLIER = re.compile(r'^\w+ = mine\("(\w+)"\)\.(\w+)$', re.MULTILINE)
MARK = re.compile(r"^ *# </?solution>\n", re.MULTILINE)
BETWEEN_LANGUAGES = "\n\n- - -\n\n"  # in the docstring of an exercise: Korean above, English below
FILE = re.compile(r"(?:\d\d_)?([a-z][a-z0-9_]*)(?:\.py)?")

PARTS: Mapping[str, Mapping[str, int]] = {  # part -> exercise -> the chapter that explains it
    "averaging": {"shapes": 0, "averaging_matrix": 1, "averaging_softmax": 1},
    "dot_product": {"softmax": 2, "dot_product_attention": 2},
    "attention": {"query_key_value": 3, "causal_mask": 4, "head": 4},
    "heads": {"module_list_heads": 5, "split_heads": 5, "output_projection": 5},
    "cross_attention": {"cross_attention": 6, "padding_mask": 6, "masked_mean": 6},
    "block": {"layer_norm": 7, "mlp": 7, "residual": 7, "dropout": 7, "block": 7},
    "positions": {"learned_positions": 8, "sinusoidal_positions": 8, "rotary_positions": 8, "embedding": 0},
    "models": {"gpt": 10, "bigram": 12},
    "training": {
        "get_batch": 12, "cross_entropy": 13, "training_step": 13, "learning_rate": 13, "adamw": 13, "muon": 13,
    },
    "writing": {"temperature": 14, "top_k": 14, "top_p": 14, "generate": 14, "kv_cache": 9, "beam_search": 14},
    "tokenizers": {"character_tokenizer": 15, "bpe_merges": 15},
    "bert": {"bert_masking": 16},
}  # fmt: skip


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    number: from 1. part: the key in PARTS, and the module in `checks`. chapter: the number of its chapter.
    """

    slug: str
    number: int
    part: str
    chapter: int

    @property
    def file(self) -> str:
        """The name of the reader's file."""
        return f"{self.number:02d}_{self.slug}.py"

    @property
    def solution(self) -> str:
        """The whole file, with the solution."""
        return MARK.sub("", self._source)

    @property
    def template(self) -> str:
        """The file that the reader completes. Above the task: where to read, how to check, how to get a hint."""
        head = (
            f"# 설명: jumok learn {self.chapter}  확인: jumok learn check {self.number}  "
            f"힌트: jumok learn hint {self.number}\n"
            f"# Chapter: jumok learn {self.chapter}  Check: jumok learn check {self.number}  "
            f"Hint: jumok learn hint {self.number}\n\n"
        )
        hole = r"\g<indent># 여기를 채우세요. / Write your code here.\n\g<indent>raise NotImplementedError\n"
        return head + EARLIER.sub(
            lambda line: f"# {exercise(line[1]).signature(line[2])}\n{line[0]}", HOLE.sub(hole, self._source)
        )

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
        docstring = self._source.split('"""')[1]
        ko, en = docstring.split(BETWEEN_LANGUAGES)
        return Words(ko.strip(), en.strip())

    @property
    def hints(self) -> tuple[Words, ...]:
        """The hints, from a first direction to nearly the code."""
        read = read_toml(HERE / "hints" / f"{self.part}.toml")[self.slug]
        return tuple(Words(ko, en) for ko, en in zip(read["ko"], read["en"], strict=True))

    @property
    def _source(self) -> str:
        return (HERE / "exercises" / f"{self.slug}.py").read_text(encoding="utf-8")


def _signature(function: ast.FunctionDef) -> str:
    """Return the arguments of a function, without self, and its result, as they are written."""
    arguments = ast.unparse(function.args).removeprefix("self, ")
    return f"({arguments}) -> {ast.unparse(function.returns)}" if function.returns else f"({arguments})"


@cache
def exercises() -> tuple[Exercise, ...]:
    """Return all exercises, in order."""
    listed = [(part, slug, chapter) for part, slugs in PARTS.items() for slug, chapter in slugs.items()]
    return tuple(Exercise(slug, number, part, chapter) for number, (part, slug, chapter) in enumerate(listed, 1))


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
