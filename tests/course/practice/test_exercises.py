"""The list of exercises, and what all of them have in common."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest
import torch

from jumok.course.practice.catalogue import HERE, Exercise, exercise, exercises
from jumok.course.practice.checking import texts
from jumok.course.words import LANGUAGES, read_toml
from jumok.errors import ConfigError

PARTS = sorted({one.part for one in exercises()})
ALL = pytest.mark.parametrize("one", exercises(), ids=lambda one: one.slug)


@ALL
def test_the_solution_passes(one: Exercise, judged) -> None:
    verdict = judged(one.slug)
    assert verdict["status"] == "right", verdict
    assert verdict["right"]


@ALL
def test_the_template_has_a_hole_and_is_open(one: Exercise, judged, tmp_path: Path) -> None:
    from jumok.course.practice.child import judge

    assert one.template("en").count("raise NotImplementedError") >= 1
    assert "<solution>" not in one.template("en") + one.solution("en")
    path = tmp_path / one.file
    path.write_text(one.template("en"), encoding="utf-8")
    assert judge(path, one.slug)["status"] == "open"


@ALL
def test_a_file_is_in_one_language(one: Exercise, judged, tmp_path: Path) -> None:
    """The task, the arguments and the shapes, and the names that a solution must have; the code is the same."""
    from jumok.course.practice.child import judge

    hangul = re.compile("[가-힣]")
    assert not hangul.search(one.template("en") + one.solution("en"))
    for node in ast.walk(ast.parse(one.template("ko"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node)
            only_shapes = said is None or not re.search("[A-Za-z]{4}", re.sub(r"\w*_\w*", "", said))
            assert only_shapes or hangul.search(said), said
    undocumented = [
        re.sub(r'"""(?:(?!""").)*"""', "", one.solution(language), flags=re.DOTALL) for language in LANGUAGES
    ]
    assert undocumented[0] == undocumented[1]
    path = tmp_path / one.file
    path.write_text(one.solution("ko"), encoding="utf-8")
    assert judge(path, one.slug)["status"] == "right"


@ALL
def test_the_task_and_the_hints_are_in_both_languages(one: Exercise) -> None:
    assert len(one.hints) == 3
    for words in (one.title, one.task, *one.hints):
        assert any("가" <= c <= "힣" for c in words.ko)
        assert words.en
        assert not any("가" <= c <= "힣" for c in words.en)


@ALL
def test_a_result_of_none_is_explained(one: Exercise, tmp_path: Path) -> None:
    """A file whose functions and methods return nothing is wrong, and no exception of the check passes."""
    from jumok.course.practice.child import judge

    path = tmp_path / one.file
    path.write_text(one.template("en").replace("raise NotImplementedError", "return None"), encoding="utf-8")
    assert judge(path, one.slug)["status"] == "wrong"


def mistakes(part: str) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The exercise, the name and the replacements in the solution of each mistake that the tests of a part list."""
    return importlib.import_module(f"mistakes_{part}").MISTAKES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slug", "mistake", "replacements"),
    [pytest.param(*each, id=f"{each[0]}-{each[1]}") for part in PARTS for each in mistakes(part)],
)
def test_a_mistake_is_recognised(judged, slug: str, mistake: str, replacements: list[tuple[str, str]]) -> None:
    torch.manual_seed(0)
    verdict = judged(slug, *replacements)
    assert (verdict["status"], verdict["faults"][0]["mistake"]) == ("wrong", mistake), verdict


def test_each_known_mistake_has_a_test() -> None:
    """Every mistake that a text explains is recognised in a mutated solution, or in a test of `judge`."""
    explained = {key.split("/")[0] for key in texts("mistake")}
    elsewhere = {"earlier-file", "empty-file", "encoding", "not-written"}
    assert explained - elsewhere <= {mistake for part in PARTS for _, mistake, _ in mistakes(part)}


def test_each_text_is_said() -> None:
    """A key stands in the checks as it stands in the tables, and is in one table only."""
    code = "".join(path.read_text(encoding="utf-8") for path in [*HERE.glob("*.py"), *HERE.glob("checks/*.py")])
    keys = [key for kind in ("right", "mistake", "difference") for key in texts(kind)]
    assert [key for key in keys if f'"{key}"' not in code] == []
    tables = [
        read_toml(path).get(kind, {}) for path in (HERE / "checks").glob("*.toml") for kind in ("right", "mistake")
    ]
    assert len({key for table in tables for key in table}) == sum(map(len, tables))


def test_an_exercise_is_found_by_number_name_and_file() -> None:
    assert exercise("1") == exercise("shapes") == exercise("practice/01_shapes.py") == exercises()[0]
    with pytest.raises(ConfigError, match=r"no exercise 'sofmax'.*softmax"):
        exercise("sofmax")
