"""The numbers that the viewer prints, each read with its label, against the recording of PyTorch.

The viewer is a page of its own or the tab Attention of a shared page, whose model can have heads that are off.

A printed number is right if it is off by at most one in its last digit, so a page may print only digits that are true,
whatever the precision of the numbers in its file.
"""

from __future__ import annotations

import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import jumok
from jumok.interpret.ablation import ablate
from jumok.interpret.heads import profile
from jumok.interpret.text_loss import masked_in_turn
from jumok.view.model_page import ModelPage, rounded
from jumok.view.schema import to_json
from model_pages import HOSTILE, TEXT, Visits, bert, classifier, gpt, pairs, until
from printed_numbers import NUMBER, mistake_of

pytestmark = pytest.mark.browser

# Canvases are read by what is drawn on them: texts and their places.
READ = """window.drawn = [];
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
  const { a, d, e, f } = this.getTransform();
  const end = this.textAlign === "right" ? x : x + this.measureText(text).width;
  window.drawn.push([text, (a * x + e), (d * y + f), (a * end + e)]);
  return fillText.call(this, text, x, y, ...rest);
};"""
WINDOW = {"viewport": {"width": 1700, "height": 1500}}
SHORT = "나는 학교에 갔다."
MADE: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "modern": (gpt, {"text": SHORT, "probe": True}),
    "classic": (lambda: gpt(family="classic"), {"text": SHORT}),
    "bert": (bert, {"text": SHORT}),
    "pairs": (pairs, {"text": SHORT, "target": "밥을 먹었다"}),
    "long": (lambda: gpt(context_length=512), {"text": TEXT * 12}),
}
OFF = [(0, 1), (1, 3)]
# The view of a shared page that holds a viewer, once that shows what the page has written.
SHARED = """(window.tab = [...made.values()].map(({ view }) => view).find(({ shell }) => shell)) && !session.writing
  && (tab.known === undefined || session.ids.length && tab.known === JSON.stringify([session.ids, session.off]))"""
Require = Callable[[str, str, float], None]


class Truth:
    """What the model computes: weights, queries and keys of each head, and the logarithms of its probabilities."""

    def __init__(self, model: Any, ids: list[list[int]], off: list[tuple[int, int]]) -> None:
        self.model, self.sequences = model, ids
        inputs = [torch.tensor([one]) for one in ids]
        self.ids = ids[-1]
        self.logs: dict[int, Any] = {}  # by the position that is predicted
        with torch.inference_mode():
            with ablate(model, off) if off else nullcontext(), jumok.record(model) as recording:
                logits = model(*inputs)
            self.records = {(one.block, one.layer): one for one in recording.attentions}
            if isinstance(model, jumok.BERT):
                masked, places = masked_in_turn(model, inputs[0][0])
                logs = model.mlm_logits(model(masked)).log_softmax(dim=-1)
                for row, inside in enumerate(places):
                    self.logs |= {int(place): logs[row, place].numpy() for place in inside}
            else:
                self.logs = dict(enumerate(logits[0].log_softmax(dim=-1).numpy(), 1))

    def weights(self, block: str, layer: int, head: int) -> Any:
        return self.records[block, layer].weights(head)[0, 0].numpy()

    def vectors(self, block: str, layer: int, head: int) -> tuple[Any, Any]:
        one = self.records[block, layer]
        q, k = one.q[0].numpy(), one.k[0].numpy()
        return q[head], k[head * len(k) // len(q)]


@pytest.fixture
def printing(
    request: pytest.FixtureRequest, visit: Visits, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Any, Truth, Require]]:
    """A page, what PyTorch computes, and a function that compares the two.

    The page is a viewer with so many bits, or a shared one, of the whole model or without the heads of `OFF`.
    """
    name, bits = request.param
    make, how = MADE[name]
    model = make()
    off = OFF if bits == "off" else []
    if bits in ("all", "off"):
        path = ModelPage(model, name).save(tmp_path / "page.html")
        page = visit(path, text=how["text"], link="view=attention", before=READ, **WINDOW)
        page.evaluate("(off) => session.set({ off })", off)
        until(page, SHARED)
        page.evaluate("tab.shell.host.ready")
        page.evaluate("""() => {
          const { shell } = tab;
          window.viewer = shell.face();
          window.choose = (link) => shell.choose({ zoom: null, "x.side": null, ...shell.store.read(link) });
        }""")
        model = rounded(model).double()
        ids = page.evaluate("tab.shell.trace.sequences.map(({ tokens }) => tokens.map(({ id }) => id))")
    else:
        if bits == 8:
            monkeypatch.setattr(sys.modules[to_json.__module__], "budget", lambda _: 0)
            monkeypatch.setattr(sys.modules[to_json.__module__], "LEVELS", (255,))
        made = jumok.view(model, layer=1, exact=bits == "exact", **how)
        assert {one["bits"] for one in made.trace["attentions"]} == {8 if bits == 8 else 16}
        page = visit(made.save(tmp_path / "page.html"), before=READ, **WINDOW)
        page.evaluate("window.viewer = window.jumok; window.choose = (link) => { location.hash = link; };")
        ids = [[token["id"] for token in one["tokens"]] for one in made.trace["sequences"]]
    mistakes: list[str] = []

    def require(label: str, printed: str, truth: float) -> None:
        mistake = mistake_of(printed, float(truth))
        mistakes.extend([f"{label}: {mistake}"] if mistake else [])

    yield page, Truth(model, ids, off), require
    assert not mistakes, "\n".join(mistakes[:40])


def part(page: Any, name: str) -> Any:
    """A part of the viewer, whose name has a prefix in a shared page."""
    return page.locator(f":is(#{name}, #viewer-{name})")


def opened(page: Any, **state: Any) -> None:
    """Choose a state by the address, and wait until it is painted, and only this picture is in `drawn`."""
    chosen = {name: value for name, value in state.items() if name in ("view", "block", "layer", "head")}
    for fields in (chosen, state):  # a block of other tokens forgets the token
        deadline = time.monotonic() + 20
        while True:
            shown = page.evaluate("window.viewer.state")
            if all(str(shown[name]) == str(value) for name, value in fields.items() if name != "heads"):
                break
            assert time.monotonic() < deadline, (fields, shown)
            page.evaluate("window.choose", "&".join(f"{a}={b}" for a, b in fields.items()))
            page.wait_for_timeout(150)  # the page writes its state to the address, too, and may be the last
    page.evaluate("window.choose", "&".join(f"{a}={b}" for a, b in state.items()))
    page.wait_for_timeout(200)
    page.evaluate("window.drawn = []; document.querySelector('.viewer-stage').dispatchEvent(new Event('scroll'))")
    until(page, "window.drawn.length > 0")


def table(page: Any) -> list[list[str]]:
    """The rows of the table below the picture."""
    if part(page, "table").is_hidden():
        part(page, "table-toggle").click()
    return [line.split("\t") for line in part(page, "table").locator("tbody").inner_text().splitlines()]


def bars(page: Any, panel: str) -> list[tuple[str, str]]:
    """Labels and numbers beside the picture."""
    rows = part(page, "panel").locator(f"{panel} li").all()
    return [(row.locator("> *").first.inner_text(), row.locator(".bar-value").inner_text()) for row in rows]


def drawn_lines(page: Any) -> list[list[str]]:
    """The texts on the canvas, by lines, from left to right."""
    lines: dict[int, dict[tuple[float, str], str]] = defaultdict(dict)
    for text, _, y, end in page.evaluate("window.drawn"):
        if text:
            lines[round(y)][(round(end, 1), text)] = text
    return [[lines[y][key] for key in sorted(lines[y])] for y in sorted(lines)]


def cells_of(page: Any, shape: tuple[int, int]) -> dict[tuple[int, int], str]:
    """The numbers in the cells of the matrix, by row and column."""
    box = part(page, "stage").bounding_box()
    corner, other = (page.evaluate("(i) => window.viewer.locate({ token: i, key: i })", i) for i in (0, 1))
    found = {}
    for text, x, y, _ in page.evaluate("window.drawn"):
        column = round((x - corner["x"] + box["x"]) / (other["x"] - corner["x"]))
        row = round((y - corner["y"] + box["y"]) / (other["y"] - corner["y"]))
        if re.fullmatch(r"≈?\.\d+|1", text) and 0 <= row < shape[0] and 0 <= column < shape[1]:
            found[row, column] = text
    return found


def tooltip(page: Any, **what: int) -> str:
    place = page.evaluate("(what) => window.viewer.locate(what)", what)
    page.mouse.move(place["x"] + 1, place["y"])
    page.mouse.move(place["x"], place["y"])
    until(page, "!document.querySelector('.viewer-tooltip').hidden")
    text = str(part(page, "tooltip").inner_text())
    page.mouse.move(2, 2)
    return text


SHARED_CASES = (("modern", "all"), ("modern", "off"), ("classic", "off"))
CASES = [(name, bits) for name in ("modern", "classic", "bert", "pairs") for bits in (16, 8)]


def cases(*more: tuple[str, Any]) -> Any:
    """Return the marker of a test of pages; two of them are quick to have."""
    every = [
        pytest.param(case, id=f"{case[0]}-{case[1]}", marks=() if case in CASES[1:7:5] else pytest.mark.long)
        for case in (*CASES, *more)
    ]
    return pytest.mark.parametrize("printing", every, indirect=True)


@cases(("modern", "exact"), ("long", 16), ("long", "off"), *SHARED_CASES)
def test_every_weight_is_the_model_s(printing: tuple[Any, Truth, Require]) -> None:
    """Neurons printed 0.5534, Matrix 55.6%, and the weight was 0.5559."""
    page, truth, require = printing
    head = 2
    for block, layer in truth.records:
        view = "cross" if block == "cross" else "heads"
        where = {"block": block, "layer": layer, "head": head}
        weights = truth.weights(block, layer, head)
        token = min(5, len(weights) - 1)
        row = weights[token]
        order = np.argsort(-row, kind="stable")

        opened(page, view=view, **where, heads=head, token=token)
        for position, _, weight in table(page):
            require(f"{view} {block} table {position}", weight, row[int(position)])
        listed = bars(page, "[data-inspector]")
        assert len(listed) > 2
        for (label, share), best in zip(listed, order, strict=False):
            require(f"{view} {block} bar {label}", share, row[best])
        text = part(page, "panel").inner_text()
        for share in re.findall(r"visible tokens?: ([≈<]?[\d.]+%)", text):
            require(f"{view} {block} rest", share, 1 - row[order[: len(listed)]].sum())
        for share in re.findall(r"A full bar is ([≈<]?[\d.]+%)", text):
            require(f"{view} {block} full bar", share, row.max())
        named = re.findall(r"‘[^’]+’ ([≈<]?[\d.]+%)", page.evaluate("window.viewer.summary"))
        for share, best in zip(named, order, strict=False):
            require(f"{view} {block} summary", share, row[best])

        opened(page, view=view, **where, heads="0-3", token=token)
        every = np.stack([truth.weights(block, layer, one)[token] for one in range(4)])
        for position, _, *cells in table(page):
            expected = every[:, int(position)]
            for cell, value in zip(cells, [*expected, expected.mean()], strict=True):
                require(f"{view} {block} heads {position}", cell, value)

        opened(page, view="matrix", **where, heads=head, token=token)
        if len(row) < 14:
            cells = cells_of(page, weights.shape)
            assert len(cells) > 10
            for (i, j), text in cells.items():
                require(f"matrix {block} cell {i},{j}", text, weights[i, j])
        best = int(order[0])
        told = re.search(r"Weight\s+(\S+) \((\S+)\)\s+Weight received\s+(\S+)", tooltip(page, token=token, key=best))
        assert told
        for shown, value in zip(told.groups(), (row[best], row[best], weights[:, best].sum()), strict=True):
            require(f"matrix {block} tooltip", shown, value)


@cases(("modern", "exact"), *SHARED_CASES)
def test_every_step_of_a_weight_is_the_model_s(printing: tuple[Any, Truth, Require]) -> None:
    """The formula printed q·k = 55.005 where it is 55.157, and k₁ = 0.00 where it is -0.011."""
    page, truth, require = printing
    head, layer, token = 2, 1, 4  # with a small budget there are q and k of the opened layer only
    for block in dict.fromkeys(block for block, _ in truth.records):
        q, k = truth.vectors(block, layer, head)
        weights = truth.weights(block, layer, head)[token]
        seen = np.flatnonzero(weights)
        key = int(seen[np.argsort(weights[seen])[-2]])
        dot = (k @ q[token]).astype(np.float64)
        score = dot * q.shape[1] ** -0.5
        opened(page, view="neurons", block=block, layer=layer, head=head, heads=head, token=token, key=key)
        for position, _, *cells in table(page):
            j = int(position)
            for cell, value in zip(cells, (dot[j], score[j], weights[j]), strict=True):
                if j in seen:
                    require(f"neurons {block} table {j}", cell, value)
        numbers = re.findall(r"[≈−]*\d+(?:\.\d+)?", page.evaluate("window.viewer.summary").rpartition(": ")[2])
        for number, value in zip(numbers, (score[key], weights[key]), strict=True):
            require(f"neurons {block} summary", number, value)

        lines = drawn_lines(page)
        formula = re.search(
            r"q · k = Σ qᵢkᵢ = (.*?) \+ … = (\S+) Score = q · k ÷ √D = (\S+) ÷ √\d+ = (\S+) "
            r"Softmax = exp\(score.*?\) ÷ Σ exp = (\S+) ÷ (\S+) = (\S+)",
            " ".join(text for line in lines for text in line),
        )
        assert formula
        products, *steps = formula.groups()
        factors = [factor.strip("()") for product in products.split(" + ") for factor in product.split(" · ")]
        for factor, value in zip(factors, np.stack([q[token, :3], k[key, :3]], axis=1).ravel(), strict=True):
            require(f"neurons {block} factor", factor, value)
        terms = np.exp(score[seen])
        values = (dot[key], dot[key], score[key], np.exp(score[key]), terms.sum(), weights[key])
        for step, value in zip(steps, values, strict=True):
            require(f"neurons {block} step", step, value)
        rows = [line[-2:] for line in lines if len(line) >= 3 and all(map(NUMBER.match, line[-2:])) and "=" not in line]
        assert len(rows) >= len(seen)
        for j, shown in zip(seen, rows[-len(seen) :], strict=True):
            for number, value in zip(shown, (score[j], weights[j]), strict=True):
                require(f"neurons {block} row {j}", number, value)


@cases(("long", 16), ("pairs", "all"), *SHARED_CASES)
def test_every_probability_is_the_model_s(printing: tuple[Any, Truth, Require]) -> None:
    """A probability of 99.912% was printed as 99.90%."""
    page, truth, require = printing
    opened(page, view="text")
    shown = [(int(cells[0]), cells[2:]) for cells in table(page) if cells[2]]
    assert len(shown) > 4
    for position, (share, rank, nats, _) in shown:
        logs = truth.logs[position]
        own = float(logs[truth.ids[position]])
        assert int(rank) == (logs > own).sum() + 1
        require(f"text {position} probability", share, np.exp(own))
        require(f"text {position} surprise", nats, -own)
    for position in (shown[1][0], shown[-1][0]):
        block = "decoder" if ("decoder", 0) in truth.records else "self"
        opened(page, view="text", block=block, token=position)
        best = np.sort(np.exp(truth.logs[position]))[::-1]
        listed = bars(page, "[data-panel=candidates]")
        assert len(listed) >= 10
        for (label, share), p in zip(listed[:10], best, strict=False):
            require(f"text {position} candidate {label}", share, float(p))


@cases(("pairs", "all"), *SHARED_CASES)
def test_every_number_of_a_head_is_the_model_s(printing: tuple[Any, Truth, Require]) -> None:
    page, truth, require = printing
    for block in dict.fromkeys(block for block, _ in truth.records):
        opened(page, view="model", block=block)
        rows = table(page)
        assert len(rows) == 8
        for layer, head, *cells in rows:
            weights = torch.from_numpy(truth.weights(block, int(layer), int(head)))
            causal = not weights.triu(1).any()  # then the first query has no choice, and does not count
            told = profile(weights[int(causal) :])
            names = ("entropy", "first") if block == "cross" else ("entropy", "distance", "first", "previous", "self")
            for name, cell in zip(names, cells, strict=True):
                require(f"model {block} {layer}.{head} {name}", cell, float(getattr(told, name)))


@pytest.mark.long
@pytest.mark.parametrize("printing", [("modern", "off"), ("classic", "off")], ids=["modern", "classic"], indirect=True)
def test_what_heads_that_are_off_change_is_what_changes_in_the_model(printing: tuple[Any, Truth, Require]) -> None:
    """The sentence and the table of a shared page, with all heads and without those that are off."""
    page, truth, require = printing
    until(page, "document.querySelector('.attention-effect')")
    place = len(truth.ids)
    before, after = (np.exp(one.logs[place]) for one in (Truth(truth.model, truth.sequences, []), truth))
    moved = np.abs(before - after).sum() / 2
    assert moved > 0.05
    sentence = re.sub("‘[^’]*’", "", page.locator(".attention-effect p").inner_text())
    for shown, value in zip(re.findall(r"<?[\d.]+%", sentence), (before.max(), after.max(), moved), strict=True):
        require("sentence", shown, value)
    rows = page.locator(".attention-effect tbody tr").all()
    order = np.argsort(-np.maximum(before, after), kind="stable")
    assert [int(row.get_attribute("data-id")) for row in rows] == order[: len(rows)].tolist()
    for row, token in zip(rows, order, strict=False):
        for shown, value in zip(row.locator(".attention-value").all(), (before[token], after[token]), strict=True):
            require(f"token {token}", shown.inner_text(), value)


@pytest.mark.long
def test_a_classifier_says_that_it_classifies_and_prints_its_probabilities(visit: Visits, tmp_path: Path) -> None:
    """A classifier was called a GPT that predicts the next token."""
    model = classifier()
    [expected] = jumok.predict(model, [TEXT])
    page = visit(jumok.view(model, TEXT).save(tmp_path / "page.html"), link="view=text", **WINDOW)
    header = page.inner_text("#model-facts")
    assert "classifies texts, 2 classes" in header
    assert "next token" not in header
    until(page, "document.querySelector('[data-panel=classes] li')")
    shown = bars(page, "[data-panel=classes]")
    rows = table(page)
    assert len(shown) == len(rows) == 2
    said = re.findall(r"<?[\d.]+%", page.evaluate("window.jumok.summary"))
    ranked = sorted(expected.probabilities.items(), key=lambda one: -one[1])
    for (label, p), (name, *values), row, share in zip(ranked, shown, rows, said, strict=True):
        assert name == label
        assert row[:-1] == [label] or label == HOSTILE  # which holds what turns the direction of a line
        for printed in (*values, row[-1], share):
            assert mistake_of(printed, p) is None
