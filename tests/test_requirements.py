"""The files of pinned dependencies agree: constraints.txt, and requirements/ with the hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path.name for path in (ROOT / "requirements").glob("*.txt"))


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: str) -> dict[str, str]:
    """The versions that a file pins, by name."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return {normalised(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


def hashes(path: str) -> dict[str, list[str]]:
    """The hashes of each requirement of a file, by name."""
    entries = re.split(r"\n(?=\S)", (ROOT / path).read_text(encoding="utf-8"))
    return {
        normalised(entry.partition("==")[0]): re.findall(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)", entry)
        for entry in entries
        if not entry.startswith("#")
    }


CONSTRAINTS = pins("constraints.txt")


def test_what_is_tested_is_what_has_hashes() -> None:
    assert pins("requirements/dev.txt") == CONSTRAINTS


@pytest.mark.parametrize("name", FILES)
def test_a_version_is_the_same_everywhere(name: str) -> None:
    found = {one: version.removesuffix("+cpu") for one, version in pins(f"requirements/{name}").items()}
    assert {one: version for one, version in found.items() if CONSTRAINTS.get(one, version) != version} == {}


@pytest.mark.parametrize("name", FILES)
def test_each_requirement_has_hashes(name: str) -> None:
    found = hashes(f"requirements/{name}")
    assert set(found) == set(pins(f"requirements/{name}"))
    assert [one for one, given in found.items() if not given or len(set(given)) < len(given)] == []


def test_a_package_has_the_same_hashes_everywhere() -> None:
    runtime, dev, release = (hashes(f"requirements/{name}.txt") for name in ("runtime", "dev", "release"))
    assert {name: dev.get(name) for name in runtime} == runtime
    assert {name: release[name] for name in release if name in dev} == {
        name: dev[name] for name in dev if name in release
    }


def test_each_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = {normalised(re.match(r"[\w.-]+", one)[0]) for one in project["dependencies"]}  # type: ignore[index]
    extras = {
        normalised(re.match(r"[\w.-]+", one)[0])  # type: ignore[index]
        for extra in project["optional-dependencies"].values()
        for one in extra
    }
    assert needed <= set(pins("requirements/runtime.txt"))
    assert extras - {"jumok"} <= set(pins("requirements/dev.txt"))


@pytest.mark.parametrize("name", ["constraints.txt", *(f"requirements/{name}" for name in FILES)])
def test_no_index_is_named(name: str) -> None:
    """Files with hashes are the same wherever they are downloaded from."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"^-|://|find-links", text, flags=re.MULTILINE)
