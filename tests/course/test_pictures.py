"""The pictures of the chapters: what they show, what they take, and what they say when a font is missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch

from jumok.course.pictures import (
    draw_boxes,
    draw_lines,
    draw_matrices,
    draw_matrix,
    draw_product,
    draw_sums,
)
from jumok.errors import ConfigError
from jumok.view import canvas as canvases
from jumok.view.canvas import MASKED

pytestmark = pytest.mark.slow

WORDS = ["나는", "어제", "새", "책을", "읽었다"]

DRAWINGS: dict[str, Callable[[Path], None]] = {
    "matrix": lambda path: draw_matrix(torch.eye(5), path, rows=WORDS, columns=WORDS, title="주목", label="가중치"),
    "matrices": lambda path: draw_matrices([torch.eye(5)] * 6, path, titles=["머리"] * 6, rows=WORDS, columns=WORDS),
    "boxes": lambda path: draw_boxes({"글자": [("가", 1), ("나", 1)], "단어": [("가나", 2)]}, path),
    "product": lambda path: draw_product(
        [torch.eye(3), torch.ones(3, 2)], path, titles=["원-핫", "표"], signs=["×"], rows=[["가", "나", "다"], None]
    ),
    "sums": lambda path: draw_sums(torch.ones(2, 3), path, names=("세로", "가로"), title="합"),
    "lines": lambda path: draw_lines({"가": ([1, 2], [3, 4]), "나": ([1, 2], [4, 3])}, path, x_label="길이"),
}
each_drawing = pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)


@pytest.fixture
def hangul() -> None:
    """A font with Hangul; some systems have none."""
    if len(canvases._families()) < 2:
        pytest.skip("no font with Hangul is installed here (fonts-nanum has one)")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that were drawn, to be looked into; what they would be saved as is left out, which takes longest."""
    from matplotlib.figure import Figure

    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    return figures


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


# --- files ---


@pytest.mark.slow
@each_drawing
def test_a_picture_is_a_small_png_and_the_same_file_again(
    draw: Callable[[Path], None], tmp_path: Path, hangul: None
) -> None:
    """Also after other settings were made: a committed picture changes only when what it shows does."""
    before = dict(matplotlib.rcParams)
    draw(tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    content = (tmp_path / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 100_000
    assert 200 < int.from_bytes(content[16:20]) <= 1000, "fits the width of a README"
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    with matplotlib.rc_context({"savefig.dpi": 60, "savefig.transparent": True, "lines.linewidth": 9, "font.size": 20}):
        draw(tmp_path / "b.png")
    assert (tmp_path / "b.png").read_bytes() == content


@pytest.mark.slow
def test_no_window_and_no_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom jumok.course.pictures import draw_lines\ndraw_lines({'a': ([1], [1])}, sys.argv[1])\n"
        "print('matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.png")], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"False"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere\. Make it first"):
        draw_lines({"a": ([1], [1])}, tmp_path / "nowhere" / "a.png")


# --- matrices ---


@pytest.mark.parametrize(
    "values",
    [
        [[0.25, 0.75], [1, 0]],
        np.array([[0.25, 0.75], [1, 0]]),
        torch.tensor([[0.25, 0.75], [1, 0]], dtype=torch.bfloat16),
        torch.tensor([[0.25, 0.75], [1, 0]], requires_grad=True),
        torch.tensor([[0.25, 1], [0.75, 0]]).T,
    ],
    ids=["lists", "array", "bfloat16", "with a gradient", "transposed"],
)
def test_the_numbers_are_those_of_the_matrix(values: Any, tmp_path: Path, shown: list[Any]) -> None:
    draw_matrix(values, tmp_path / "a.png")
    axes = shown[0].axes[0]
    assert texts(axes) == ["0.25", "0.75", "1.00", "0.00"]
    assert [text.get_position() for text in axes.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)], "(column, row)"
    assert axes.images[0].get_array().tolist() == [[0.25, 0.75], [1, 0]]


def test_masked_scores_say_so(tmp_path: Path, shown: list[Any]) -> None:
    """Scores of -∞ and weights that are NaN are what two of the chapters are about."""
    draw_matrix([[1.5, -np.inf], [np.nan, np.inf]], tmp_path / "a.png", diverging=True)
    axes = shown[0].axes[0]
    assert texts(axes) == ["1.50", "-∞", "NaN", "∞"]
    assert axes.images[0].get_clim() == (-1.5, 1.5)
    draw_matrix([[-np.inf]], tmp_path / "a.png")
    assert texts(shown[1].axes[0]) == ["-∞"]


def test_cells_that_a_mask_hides_are_grey(tmp_path: Path, shown: list[Any]) -> None:
    """They were as pale as cells of weight 0.00 that may attend; and what they hold does not set the colours."""
    scores = [[1.0, 99.0], [0.5, 2.0]]
    draw_matrix(scores, tmp_path / "a.png", mask=torch.ones(2, 2, dtype=torch.bool).tril())
    draw_matrices([scores, scores], tmp_path / "b.png", titles=["", ""], masks=[None, [True, False]], numbers=True)
    axes = shown[0].axes[0]
    assert texts(axes) == ["1.00", "0.50", "2.00"]
    assert axes.images[0].get_array().mask.tolist() == [[False, True], [False, False]]
    assert axes.images[0].get_clim() == (0, 2)
    assert matplotlib.colors.to_hex(axes.get_facecolor()) == MASKED
    assert [len(texts(axes)) for axes in shown[1].axes] == [4, 2]


def test_side_by_side_the_same_value_has_the_same_colour(tmp_path: Path, shown: list[Any]) -> None:
    draw_matrices([[[0.1, 0.2]], [[0.2, 0.8]], [[0.5, 0.5]]], tmp_path / "a.png", titles=["a", "b", "c"])
    matrices, bar = shown[0].axes[:3], shown[0].axes[3:]
    assert [axes.images[0].get_clim() for axes in matrices] == [(0, 0.8)] * 3
    assert [axes.get_title() for axes in matrices] == ["a", "b", "c"]
    assert len(bar) == 1


# --- wrong use ---


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda p: draw_matrix([1, 2], p), r"values has the shape \(2,\); give a matrix \(T, S\)"),
        (lambda p: draw_matrix(torch.rand(0, 3), p), r"values has the shape \(0, 3\)"),
        (lambda p: draw_matrix([["a"]], p), "'values' is not made of numbers"),
        (lambda p: draw_matrix([[1, 2], [3]], p), "rows are of different lengths"),
        (lambda p: draw_matrix(torch.eye(2), p, rows=["a"]), "rows has 1 labels for 2 rows; give one for each"),
        (lambda p: draw_matrices([], p, titles=[]), "matrices of one shape; given: none"),
        (lambda p: draw_matrices([torch.eye(2), torch.eye(3)], p, titles=["", ""]), r"\(2, 2\), \(3, 3\)"),
        (lambda p: draw_matrices([torch.eye(2)], p, titles=[]), "titles has 0 entries for 1 matrices"),
        (lambda p: draw_matrix(torch.eye(2), p, mask=torch.ones(3, 3)), r"mask has the shape \(3, 3\), which does not"),
        (lambda p: draw_lines({}, p), "series is empty"),
        (lambda p: draw_lines({"a": ([1, 2], [1])}, p), "series 'a' has 2 xs and 1 ys"),
    ],
)
def test_what_cannot_be_drawn(draw: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        draw(tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


# --- fonts ---


def test_no_font_with_hangul(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one each syllable is an empty box; one warning says what to install, and the picture is there."""
    monkeypatch.setattr(canvases, "HANGUL_FONTS", {"No Such Font": ("no-such-font.ttf",)})
    with pytest.warns(UserWarning, match=r"no installed font can draw '새책'; .*Install.*fonts-nanum") as caught:
        draw_lines({"책": ([1], [1]), "새": ([1], [2])}, tmp_path / "a.png")
    assert len(caught) == 1
    assert (tmp_path / "a.png").is_file()
    draw_lines({"book √D × ½ −∞": ([1], [1])}, tmp_path / "b.png")


# --- sequences ---


@pytest.mark.parametrize(
    ("rows", "message"),
    [({}, "rows is empty"), ({"가": []}, "rows is empty"), ({"가": [("나", 0)]}, "the box '나' has no width")],
)
def test_boxes_that_cannot_be_drawn(tmp_path: Path, rows: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        draw_boxes(rows, tmp_path / "a.png")


# --- products and sums ---


def test_a_product_shows_its_matrices(tmp_path: Path, shown: list[Any]) -> None:
    """In order, with their numbers, their labels, and a sign between each two."""
    a, b = torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 3.0], [4.0, 5.0]])
    path, titles = tmp_path / "a.png", ["A", "B", "C"]
    draw_product([a, b, a @ b], path, titles=titles, signs=["x", "="], columns=[["p", "q"], None, None])
    [figure] = shown
    assert [axes.get_title() for axes in figure.axes] == titles
    assert [texts(axes) for axes in figure.axes] == [["0", "1"], ["2", "3", "4", "5"], ["4", "5"]]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["p", "q"]
    assert [text.get_text() for text in figure.texts] == ["x", "="]


def test_sums_over_both_dimensions(tmp_path: Path, shown: list[Any]) -> None:
    draw_sums([[1, 2, 3], [4, 5, 6]], tmp_path / "a.png", names=("dim=0", "dim=1"), title="x")
    [figure] = shown
    assert [texts(axes) for axes in figure.axes] == [["1", "2", "3", "4", "5", "6"], ["6", "15"], ["5", "7", "9"]]
    assert {"dim=0", "dim=1", "x"} <= {text.get_text() for text in figure.texts}
