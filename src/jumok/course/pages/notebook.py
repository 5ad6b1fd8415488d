"""A chapter as a Jupyter notebook, to read or to run from top to bottom.

Format 4.5 (https://nbformat.readthedocs.io/en/latest/format_description.html), written as JSON. The file contains the
pictures and the outputs, so it can be read without running it. Outputs that differ from run to run are left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jumok.course.pages.chapter import TEXTS, Chapter, Code, Picture, Prose, Question, offline, write_new
from jumok.course.pages.html import encoded
from jumok.course.pages.wheel import is_published, wheel_name, write_wheel
from jumok.course.words import words_in
from jumok.errors import LessonError
from jumok.version import __version__

_CODE = """
import importlib.util
import subprocess
import sys
from pathlib import Path

for module, package in {packages}.items():
    if importlib.util.find_spec(module) is None:
        if package.endswith(".whl") and not Path(package).is_file():
            raise FileNotFoundError("{missing}")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)
        importlib.invalidate_caches()
"""


def notebook(chapter: Chapter) -> dict[str, Any]:
    """Return the notebook of a chapter, as nbformat's JSON.

    Prose becomes Markdown cells, blocks become code cells with their output, pictures become Markdown cells with the
    image inside, questions become Markdown cells that unfold their answer. The same chapter gives the same notebook.
    The first cell installs jumok and the packages of the chapter where they are missing, as on Colab: jumok from the
    wheel beside the notebook, or from the index if it is published.
    Raises `LessonError` if a picture is missing.
    """
    name = chapter.slug if chapter.number is None else f"{chapter.number:02d}"
    cells = [_install_cell(chapter, name)]
    for number, part in enumerate(chapter.parts(), 1):
        head: dict[str, Any] = {"id": f"{name}-{number:03d}", "metadata": {}}
        match part:
            case Prose():
                cells.append({"cell_type": "markdown", **head, "source": _lines(offline(part.text))})
            case Code():
                cells.append(
                    {
                        "cell_type": "code", **head, "execution_count": None, "outputs": _outputs(part.shown),
                        "source": _lines(part.source.rstrip("\n")),
                    }
                )  # fmt: skip
            case Picture():
                cells.append({"cell_type": "markdown", **head, **_embedded(part)})
            case Question():
                cells.append({"cell_type": "markdown", **head, "source": _lines(_unfoldable(part))})
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "title": chapter.title if chapter.number is None else f"{chapter.number}. {chapter.title}",
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def write_notebook(chapter: Chapter, path: Path, *, force: bool = False) -> Path | None:
    """Write the notebook of a chapter to a new file, or replace an existing file if `force`.

    As long as no index has jumok, the wheel that the first cell installs is written beside it, and its path returned.

    Raises `LessonError` if `path` exists, because it may contain a learner's work; if it does not end in .ipynb; or if
    it cannot be written. An existing file is then unchanged.
    """
    if path.suffix != ".ipynb":
        raise LessonError("{path} is not the name of a notebook: Jupyter opens files that end in .ipynb.", path=path)
    write_new(path, json.dumps(notebook(chapter), ensure_ascii=False, indent=1) + "\n", force=force)
    return None if is_published() else write_wheel(path.parent)


def _install_cell(chapter: Chapter, name: str) -> dict[str, Any]:
    """Return the code cell that makes the notebook run on a machine without jumok."""
    language, wheel = chapter.language, wheel_name()
    own = f"jumok=={__version__}" if is_published() else wheel
    packages = {"jumok": own, **{package.replace("-", "_"): package for package in chapter.packages}}
    said = words_in(TEXTS, "notebook")
    about = ["about"] if is_published() else ["about", "beside"]
    code = _CODE.format(packages=packages, missing=said["missing"].said(language, wheel=wheel))
    speaking = "" if language == "en" else f'\nimport jumok\n\njumok.language("{language}")\n'
    source = "\n".join(said[key].said(language, wheel=wheel) for key in about) + code + speaking
    return {
        "cell_type": "code", "id": f"{name}-000", "metadata": {}, "execution_count": None, "outputs": [],
        "source": _lines(source.strip()),
    }  # fmt: skip


def _outputs(output: str) -> list[dict[str, Any]]:
    return [{"output_type": "stream", "name": "stdout", "text": _lines(output)}] if output else []


def _embedded(picture: Picture) -> dict[str, Any]:
    """Return the fields of a Markdown cell with the picture as an attachment."""
    kind, content = encoded(picture.path)
    name = picture.path.name
    return {"attachments": {name: {kind: content}}, "source": [f"![{picture.title}](attachment:{name})"]}


def _unfoldable(part: Question) -> str:
    """Return the question as HTML in Markdown; Jupyter shows the answer after a click."""
    return f"<details>\n<summary>{part.question}</summary>\n\n{offline(part.answer)}\n\n</details>"


def _lines(text: str) -> list[str]:
    """Text as nbformat stores it: a list of lines with their newlines."""
    return text.splitlines(keepends=True)
