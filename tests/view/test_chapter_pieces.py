"""The interactive pieces of the chapters: their sums are those of PyTorch, and their pictures are what they draw."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from jumok.course.chapters.speed import work
from jumok.course.pages.chapter import Picture, chapter, chapters
from jumok.course.pages.html import ChapterPage
from jumok.course.pages.notebook import notebook
from jumok.course.pages.terminal import render
from jumok.course.words import LANGUAGES, Language
from jumok.nn.attention import attention_weights
from jumok.nn.positions import rotary, rotate
from model_pages import Visits

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
# Where each piece is: the number of its chapter.
PLACES = {"dot": 4, "softmax": 4, "mask": 5, "rope": 8, "online": 14, "cache": 14, "training": 10}

Node = Callable[..., Any]
each_language = pytest.mark.parametrize("language", LANGUAGES)
exactly = {"rtol": 0, "atol": 1e-12}


def of(numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_masked_weights_are_those_of_the_module(node: Node) -> None:
    found = node("""
        import { tables } from "./chapters/mask_piece.js";
        import { KEYS, QUERIES } from "./chapters/recorded.js";
        output([QUERIES, KEYS, tables({ masked: 0 }).weights, tables({ masked: 1 }).weights]);
    """)
    q, k, plain, masked = map(of, found)
    for weights, causal in ((plain, False), (masked, True)):
        torch.testing.assert_close(weights, attention_weights(q[None], k[None], causal=causal)[0], **exactly)


def test_rotated_vectors_are_those_of_the_module(node: Node) -> None:
    x = torch.randn(6, 8, dtype=torch.float64)  # (T, D)
    source = """
        import { frequencies, rotate } from "./chapters/arithmetic.js";
        output(input.map((x, position) => rotate(x, position, frequencies(8, 100))));
    """
    expected = rotate(x, *rotary(6, 8, base=100.0))
    torch.testing.assert_close(of(node(source, x.tolist())), expected, rtol=0, atol=1e-6)  # its angles are float32


def test_multiplications_are_those_of_the_chapter(node: Node) -> None:
    """The work is that of the chapter; the heads of this GPT together are half as wide as the model."""
    source = """
        import { multiplications, work } from "./chapters/arithmetic.js";
        import { SIZES } from "./chapters/cache_piece.js";
        output(input.map(([prompt, generated, cached]) => multiplications(SIZES, work(prompt, generated, cached))));
    """
    cases = [(prompt, new, cached) for prompt in (1, 4, 6) for new in (1, 5) for cached in (False, True)]
    expected = []
    for prompt, new, cached in cases:
        positions, pairs = work(prompt, new, cached)
        expected.append(2 * (96 * (4 * 48 + 8 * 96) * positions + 2 * 48 * pairs) + new * 96 * 867)
    assert node(source, cases) == expected


def test_a_step_of_training_is_that_of_pytorch(node: Node) -> None:
    found = node("""
        import { training } from "./chapters/training_piece.js";
        output(training({ rate: 1, step: 5 }));
    """)
    before, after = found["parameters"], found["after"]
    embedding, head = (of(before[name]).requires_grad_() for name in ("embedding", "head"))
    optimizer = torch.optim.SGD([embedding, head], lr=0.3)
    logits = embedding[0] @ head.T
    logits.retain_grad()
    loss = F.cross_entropy(logits, torch.tensor(1))
    loss.backward()
    for name, tensor in {"embedding": embedding, "head": head, "logits": logits}.items():
        torch.testing.assert_close(of(found["gradients"][name]), tensor.grad, **exactly)
    optimizer.step()
    for name, tensor in {"embedding": embedding, "head": head}.items():
        torch.testing.assert_close(of(after[name]), tensor.detach(), **exactly)
    new_loss = F.cross_entropy(embedding[0] @ head.T, torch.tensor(1))
    assert [found["now"]["loss"], found["then"]["loss"]] == pytest.approx([loss.item(), new_loss.item()], abs=1e-12)


@each_language
def test_the_pictures_of_the_documentation_are_what_is_drawn(node: Node, language: Language, tmp_path: Path) -> None:
    """After a change: python docs/draw.py."""
    runpy.run_path(str(DOCS / "draw.py"))["draw_pieces"](tmp_path, language)
    committed = {path.name: path.read_bytes() for path in (DOCS / "learn" / "pictures" / language).glob("try-*.svg")}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == committed
    assert set(committed) == {f"try-{name}.svg" for name in PLACES}


@each_language
@pytest.mark.parametrize("name", PLACES)
def test_a_picture_is_svg_with_a_name_and_a_description(name: str, language: Language) -> None:
    path = DOCS / "learn" / "pictures" / language / f"try-{name}.svg"
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    assert (root.tag, root.get("role"), root.get("lang")) == (f"{SVG}svg", "img", language)
    named = {element.get("id"): element.text for element in root if element.get("id")}
    assert all(named[part] for part in root.attrib["aria-labelledby"].split())
    assert "http" not in path.read_text(encoding="utf-8").replace(SVG[1:-1], "")


@each_language
def test_each_piece_is_in_its_chapter_with_what_to_try(language: Language) -> None:
    found = {}
    for each in chapters(language):
        for picture in each.parts():
            if isinstance(picture, Picture) and (name := re.fullmatch(r"try-(\w+)\.svg", picture.path.name)):
                found[name[1]] = each.number
                [after] = re.findall(rf"{picture.path.name}\)\n\n(.+)", each.text)
                label = {"ko": "**직접 해 보기**(`{}`): ", "en": "**Try it** (`{}`). "}[language]
                assert after.startswith(label.format(f"jumok learn {each.number} --open"))
    assert found == PLACES


@each_language
def test_elsewhere_a_piece_is_a_picture(language: Language) -> None:
    """In the terminal and in notebooks."""
    masked = chapter(5, language)
    assert "try-mask.svg" in render(masked)
    assert any("try-mask.svg" in cell.get("attachments", {}) for cell in notebook(masked)["cells"])
    assert "jumok-piece" not in render(masked) + str(notebook(masked))


@pytest.mark.browser
def test_pictures_of_a_chapter_are_readable_where_the_system_is_dark(visit: Visits, tmp_path: Path) -> None:
    """The page is light, but its pictures followed the system: pale text on white."""
    chapter = next(one for one in chapters("en") if one.number == 5)
    path = ChapterPage(chapter).save(tmp_path / "chapter.html")
    light, dark = (visit.load(path, color_scheme=scheme).locator("img").first for scheme in ("light", "dark"))
    assert light.screenshot() == dark.screenshot()
