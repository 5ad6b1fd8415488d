"""Judging exercises in this process, which is faster than a process for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jumok.lessons.practice.child import judge
from jumok.lessons.practice.course import exercise

Judge = Callable[..., dict[str, Any]]


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
    """The verdict on the solution of an exercise in which fragments are replaced: judged(slug, (old, new), ...)."""

    def verdict(slug: str, *replacements: tuple[str, str]) -> dict[str, Any]:
        found = exercise(slug)
        source = found.solution
        for old, new in replacements:
            assert source.count(old) == 1, f"{old!r} is in the solution of {slug} {source.count(old)} times"
            source = source.replace(old, new)
        path = tmp_path / found.file
        path.write_text(source, encoding="utf-8")
        return judge(path, slug)

    return verdict
