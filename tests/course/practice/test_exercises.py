"""The list of exercises, and what all of them have in common."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from jumok.course.practice.catalogue import HERE, Exercise, exercise, exercises
from jumok.course.practice.checking import texts
from jumok.course.practice.child import judge
from jumok.course.words import LANGUAGES, read_toml
from jumok.errors import ConfigError

EXPLAINED = {error["mistake"] for error in read_toml(HERE / "known_errors.toml")["error"]}
ALL = pytest.mark.parametrize("one", exercises(), ids=lambda one: one.slug)


@ALL
def test_the_solution_passes(one: Exercise, judged) -> None:
    verdict = judged(one.slug)
    assert verdict["status"] == "right", verdict
    assert verdict["right"]


@ALL
def test_the_template_has_a_hole_and_is_open(one: Exercise, judged, tmp_path: Path) -> None:
    assert one.template("en").count("raise NotImplementedError") >= 1
    assert "<solution>" not in one.template("en") + one.solution("en")
    path = tmp_path / one.file
    path.write_text(one.template("en"), encoding="utf-8")
    assert judge(path, one.slug)["status"] == "open"


@ALL
def test_a_file_is_in_one_language(one: Exercise, judged, tmp_path: Path) -> None:
    """The task, the arguments and the shapes, and the names that a solution must have; the code is the same."""
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
    path = tmp_path / one.file
    path.write_text(one.template("en").replace("raise NotImplementedError", "return None"), encoding="utf-8")
    assert judge(path, one.slug)["status"] == "wrong"


def changes(part: str, slug: str) -> list[tuple[str, dict[str, str]]]:
    """The known mistakes of an exercise, as changes of its solution."""
    return [
        (key, way) for key, ways in read_toml(HERE / "checks" / f"{part}.toml")["change"][slug].items() for way in ways
    ]


@ALL
def test_a_change_of_the_solution_is_of_one_place(one: Exercise) -> None:
    """A fragment that does not occur changes nothing, and the mistake would never be recognised."""
    solution = one.solution("en")
    for key, way in changes(one.part, one.slug):
        assert all(solution.count(old) == 1 for old in way), key
        assert key in texts("mistake") or key in EXPLAINED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slug", "mistake", "way"),
    [
        pytest.param(one.slug, *each, id=f"{one.slug}-{each[0]}")
        for one in exercises()
        for each in changes(one.part, one.slug)
    ],
)
def test_a_mistake_is_recognised_and_not_for_another(judged, slug: str, mistake: str, way: dict[str, str]) -> None:
    verdict = judged(slug, *way.items())
    assert (verdict["status"], verdict["faults"][0]["mistake"]) == ("wrong", mistake.split("/")[0]), verdict


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["query_key_value", "causal_mask", "head", "split_heads", "output_projection"])
def test_mistakes_in_the_formula_of_attention_are_recognised(judged, slug: str) -> None:
    solution = exercise(slug).solution("en")
    for mistake, way in changes("attention", "attention"):
        if all(old in solution for old in way):
            verdict = judged(slug, *way.items())
            assert verdict["status"] == "right" or verdict["faults"][0]["mistake"] == mistake, (way, verdict)


def test_each_known_mistake_has_a_test() -> None:
    """Every mistake that a text explains is a change of a solution, or has a test of `judge`."""
    elsewhere = {"earlier-file", "empty-file", "encoding", "not-written"}
    assert set(texts("mistake")) - elsewhere <= {key for one in exercises() for key, _ in one.mistaken()}


def test_each_text_is_said() -> None:
    """A key stands in the checks as it stands in the tables, and is in one table only.

    One of them stood in two: the later text hid the first, which speaks of something else.
    """
    code = "".join(path.read_text(encoding="utf-8") for path in [*HERE.glob("*.py"), *HERE.glob("checks/*.py")])
    keys = [key for kind in ("right", "difference") for key in texts(kind)]
    assert [key for key in keys if f'"{key}"' not in code] == []
    for kind in ("right", "mistake", "difference"):
        files = [HERE / "checking.toml", *(HERE / "checks").glob("*.toml")]
        keys = [key for file in files for key in read_toml(file).get(kind, {})]
        assert len(set(keys)) == len(keys)


def test_the_text_of_one_exercise_is_not_said_of_an_error_in_another() -> None:
    """A mistake in `generate` was explained as one of the KV cache: an error and a text of a part had one name."""
    for path in (HERE / "checks").glob("*.toml"):
        assert not EXPLAINED & set(read_toml(path).get("mistake", {})), path.name


def test_an_exercise_is_found_by_number_name_and_file() -> None:
    assert exercise("1") == exercise("shapes") == exercise("practice/01_shapes.py") == exercises()[0]
    with pytest.raises(ConfigError, match=r"no exercise 'sofmax'.*softmax"):
        exercise("sofmax")
