"""The interactive pieces of the chapters: their sums are those of PyTorch, and their pictures are what they draw."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
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
from printed_numbers import mistake_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
# Where each piece is: the number of its chapter.
PLACES = {"dot": 4, "softmax": 4, "mask": 5, "rope": 8, "online": 14, "cache": 14, "training": 10}

Node = Callable[..., Any]
each_language = pytest.mark.parametrize("language", LANGUAGES)
exactly = {"rtol": 0, "atol": 1e-12}
PRINTED = re.compile(r"[+−]?(?:\d+(?:,\d{3})+|\d+(?:\.\d+)?)%?|−∞|<0\.01%")
TRANSCRIBE = """
    import { PIECES } from "./chapters/pieces.js";
    import { setLanguage } from "./base/words.js";
    setLanguage("en");
    const piece = PIECES.find(({ name }) => name === input.name);
    const texts = ({ tag, children }) => tag === "text" ? [children.join("")] : children.flatMap(texts);
    output(input.states.map((state) => [texts(piece.draw(state)).filter(Boolean), piece.say(state)]));
"""


def of(numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def printed(node: Node, name: str, *ranges: Any) -> list[tuple[dict[str, int], list[str], str]]:
    """For all states of the controls, the texts in the drawing of a piece and the sentence below it."""
    states = [dict(zip([key for key, _ in ranges], one, strict=True)) for one in product(*(r for _, r in ranges))]
    found = node(TRANSCRIBE, {"name": name, "states": states})
    return [(state, texts, said) for state, (texts, said) in zip(states, found, strict=True)]


def require_printed(texts: list[str] | str, expected: Any, what: object) -> None:
    """The numbers in the texts are these, in their order."""
    found = [number for text in ([texts] if isinstance(texts, str) else texts) for number in PRINTED.findall(text)]
    values = [float(value) for value in expected]
    assert len(found) == len(values), (what, found, values)
    for shown, value in zip(found, values, strict=True):
        if shown == "−∞":
            assert value == -np.inf, (what, shown, value)
            continue
        assert mistake_of(shown.replace(",", "").replace("+", ""), value) is None, (what, shown, value)


RECORDED = "import { KEYS, QUERIES } from './chapters/recorded.js'; output([QUERIES, KEYS]);"


def test_a_dot_product_prints_each_of_its_numbers(node: Node) -> None:
    queries, keys = map(np.array, node(RECORDED))
    for state, texts, said in printed(node, "dot", ("query", range(7)), ("key", range(7)), ("step", range(10))):
        q, k, step = queries[state["query"]], keys[state["key"]], state["step"]
        terms = q * k
        expected: list[float] = []
        for i in range(8):
            expected += [i, q[i], k[i], *([terms[i], terms[: i + 1].sum()] if i < step else [])]
        score = terms.sum()
        divided = score / np.sqrt(8)
        expected += [*([score] if step >= 8 else []), *([score, 8, divided] if step > 8 else [])]
        require_printed(texts, expected, state)
        i = step - 1
        sentence = [i, q[i % 8], k[i % 8], terms[i % 8], terms[:step].sum()]
        require_printed(said, [8] if step == 0 else [8, divided] if step > 8 else sentence, state)


def test_a_softmax_prints_each_of_its_numbers(node: Node) -> None:
    """The dot products themselves are of coin flips: whole numbers between -D and D, of the parity of D."""
    widths, temperatures = [1, 4, 16, 64, 256, 1024], [0.1, 0.25, 0.5, 1, 2, 4, 10]
    for state, texts, said in printed(
        node, "softmax", ("width", range(6)), ("temperature", range(7)), ("divided", range(2))
    ):
        D, temperature = widths[state["width"]], temperatures[state["temperature"]]
        rows = [texts[4 + 4 * i : 8 + 4 * i] for i in range(6)]
        dots = np.array([int(row[1].replace("−", "-")) for row in rows])
        assert (np.abs(dots) <= D).all()
        assert ((dots - D) % 2 == 0).all()
        scores = dots / (D**0.5 if state["divided"] else 1) / temperature
        weights = of(scores).softmax(-1)
        divisors = [*([D] if state["divided"] else []), *([temperature] if temperature != 1 else [])]
        require_printed(texts[3], [D, *divisors], state)
        for i, row in enumerate(rows):
            require_printed(row, [i + 1, dots[i], scores[i], weights[i]], state)
        tokens = torch.special.entr(weights).sum().exp()
        require_printed(said, [np.ptp(scores), weights.max(), tokens, 6], state)


def test_a_mask_prints_each_score_and_each_weight(node: Node) -> None:
    q, k = map(of, node(RECORDED))
    scores = q @ k.T / 8**0.5
    for state, texts, said in printed(node, "mask", ("masked", range(2)), ("shown", range(2)), ("query", range(7))):
        hidden = torch.ones(7, 7, dtype=torch.bool).triu(1) & bool(state["masked"])
        kept = scores.masked_fill(hidden, -torch.inf)
        weights = kept.softmax(-1)
        require_printed(texts, (weights if state["shown"] else kept).flatten(), state)
        row = weights[state["query"]]
        future = row[state["query"] + 1 :].sum()
        last = state["query"] == 6
        plain = said.replace("scores of future tokens are −∞ and their weights 0", "").replace("still sum to 1", "")
        require_printed(plain, [row.max()] if last or state["masked"] else [row.max(), future], state)


def test_rotary_positions_print_each_product(node: Node) -> None:
    turns = 100.0 ** (-2 * np.arange(4) / 8)
    for state, texts, said in printed(node, "rope", ("position", range(41)), ("distance", range(21))):
        distance = state["distance"]
        products = np.cos(distance * turns)
        expected = [number for pair in zip(turns, products, strict=True) for number in pair]
        axes = [4, 0, -4, 0, 5, 10, 15, 20]
        require_printed([text for text in texts if text != "+"], [*expected, products.sum(), *axes], state)
        key = state["position"]
        require_printed(said, [key, key + distance, distance, products.sum()], state)


def test_online_softmax_prints_each_of_its_sums(node: Node) -> None:
    scores = np.array([0.5, 1.2, -0.6, 0.9, 2.1, 1, 0.2, 3, 1.4, -1, 2.2, 0.7])
    values = np.array([2, 5, 1, 4, 8, 3, 6, 9, 2, 7, 4, 5])
    sizes = [1, 2, 3, 4, 6, 12]

    def kept(seen: int) -> list[float]:
        if not seen:
            return [-np.inf, 0, 0]
        powers = np.exp(scores[:seen] - scores[:seen].max())
        return [scores[:seen].max(), powers.sum(), powers @ values[:seen]]

    for state, texts, said in printed(node, "online", ("size", range(6)), ("step", range(13))):
        size, step = sizes[state["size"]], state["step"]
        seen = step * size
        if seen > 12:
            continue
        before, after = kept(max(0, seen - size)), kept(seen)
        table = after
        if step:
            factor = np.exp(before[0] - after[0])
            result = after[2] / after[1]
            table = [before[0], after[0], before[1], factor, after[1], before[2], factor, after[2], result]
        require_printed(texts, [n for pair in zip(scores, values, strict=True) for n in pair] + table, state)
        grown = step > 1 and after[0] > before[0]
        first = [before[0], after[0], before[0], after[0]] if grown else [after[0]]
        plain = said.replace(f" − {after[0]:.1f})", f" {after[0]:.1f})")  # a minus, not a sign
        require_printed(plain, [*first, *([] if seen == 12 else [seen]), result, result] if step else [], (state, said))


def test_a_cache_prints_how_much_is_computed(node: Node) -> None:
    heads, width, mlp, layers, vocabulary = 48, 96, 384, 2, 867
    for state, texts, said in printed(node, "cache", ("prompt", range(1, 7)), ("step", range(1, 11))):
        prompt, step = state["prompt"], state["step"]
        if prompt + step > 11:
            continue
        totals, expected = [], []
        for cached in (False, True):
            reads = [(prompt + i, 1 if cached and i else prompt + i) for i in range(step)]
            total = sum(
                fresh * layers * (4 * width * heads + 2 * width * mlp)
                + fresh * length * layers * 2 * heads
                + width * vocabulary
                for length, fresh in reads
            )
            totals.append(total)
            length, fresh = reads[-1]
            expected += [fresh, fresh * length, total]
        require_printed(texts, expected, state)
        more = [] if step == 1 else [step, prompt + step - 1, totals[0] / totals[1]]
        require_printed(said, more, (state, said))


def test_training_prints_each_of_its_numbers(node: Node) -> None:
    rates = [0.1, 0.3, 1, 3]
    for state, texts, said in printed(node, "training", ("rate", range(4)), ("step", range(20))):
        rate, phase = rates[state["rate"]], state["step"] % 5
        if state["step"] == 0:
            parameters = [
                of([[0.8, -0.4], [-0.3, 0.9], [0.5, 0.6], [-0.7, -0.2]]).requires_grad_(),
                of([[0.6, 0.3], [-0.5, 0.2], [0.9, -0.6], [0.1, 0.7]]).requires_grad_(),
            ]
            optimizer = torch.optim.SGD(parameters, lr=rate)
        embedding, head = parameters
        if phase == 0:
            optimizer.zero_grad()
            logits = embedding[0] @ head.T
            loss = F.cross_entropy(logits, torch.tensor(1))
            slopes = torch.autograd.grad(loss, [*parameters, logits], retain_graph=True)
            loss.backward()
            x, share = embedding[0].tolist(), logits.softmax(-1)[1].item()
        if phase == 4:
            optimizer.step()
        with torch.no_grad():
            now = embedding[0] @ head.T
            then = F.cross_entropy(now, torch.tensor(1)).item()
            parts = [embedding, head, *[now][: phase >= 1], *[now.softmax(-1)][: phase >= 2]]
            parts += slopes if phase >= 3 else []
            expected = torch.cat([part.flatten() for part in parts]).tolist()
        require_printed(texts, [*expected, *[loss.item()][: phase >= 2], *[then][: phase == 4]], state)
        change = -rate * sum(float(slope.square().sum()) for slope in slopes[:2])  # to first order
        sentences = [
            x, [], [share, share, loss.item()], [1, 0, slopes[2][1]],
            [rate, loss.item(), then, then - loss.item(), change],
        ]  # fmt: skip
        require_printed(said.replace("−ln", "ln"), sentences[phase], (state, said))


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
