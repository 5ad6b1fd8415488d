"""The viewer's page in a real browser, as someone uses it: with the network off, and with texts that mean harm.

Chromium of the system is driven by Playwright. Each test asks the page for what it shows by `window.jumok`
(docs/viewer.md) and by what stands in its elements, and compares it with the model. Whatever a test does, no request
may leave the page and nothing may be complained about in the console; the fixture `visit` sees to that.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import nn

import jumok
from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.interpret.record import record
from jumok.models import build
from jumok.tokenizers import train_tokenizer
from jumok.view.page import Page

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")

pytestmark = pytest.mark.browser

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다."
SOURCE, TARGET = "학교에 갔다", "밥을 먹었다"
HOSTILE = (
    "</script><script>window.harmed=1</script> <img/src=x/onerror=window.harmed=2> <svg/onload=window.harmed=3> "
    "\u202e거꾸로\u202c \0 \u2028 {{script}} ${harmed} & &lt;b&gt;"
)
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 64}
SVG = "{http://www.w3.org/2000/svg}"


# --- pages of small models with large random weights, whose heads all look elsewhere ---


def scrambled(model: Any, words: Any) -> Any:
    torch.manual_seed(4)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.35)
    model.tokenizer = words
    return model.eval()


def gpt(kind: str = "char", **sizes: Any) -> Any:
    words = train_tokenizer((TEXT + " ") * 4, kind)
    return scrambled(build(GPTConfig(vocab_size=words.vocab_size, n_kv_head=2, **{**SIZES, **sizes})), words)


def pairs() -> Any:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    return scrambled(build(EncoderDecoderConfig(vocab_size=words.vocab_size, **SIZES, **ids)), words)


class Pages:
    """Pages and the models in them, each made when it is first asked for."""

    MODELS: ClassVar[dict[str, Callable[[], Any]]] = {
        "gpt": gpt,
        "jamo": lambda: gpt("jamo"),
        "pairs": pairs,
        "long": lambda: gpt(context_length=512),
        "hostile": lambda: gpt(context_length=256),
    }
    HOW: ClassVar[dict[str, dict[str, Any]]] = {
        "gpt": {"text": TEXT, "tokens": 6, "seed": 1, "probe": True},
        "jamo": {"text": TEXT},
        "pairs": {"text": SOURCE, "target": TARGET},
        "long": {"text": TEXT * 40},
        "hostile": {"text": HOSTILE, "name": HOSTILE, "probe": True},
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, tuple[Any, Page, Path]] = {}

    def __call__(self, name: str) -> tuple[Any, Page, Path]:
        if name not in self._made:
            model, how = self.MODELS[name](), dict(self.HOW[name])
            page = jumok.view(model, how.pop("text"), **{"name": name, **how})
            self._made[name] = model, page, page.save(self._folder / f"{name}.html")
        return self._made[name]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium to open the page in; on Debian and Ubuntu: apt install chromium")
    quiet = ("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *quiet])
        yield started
        started.close()


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """Open a file in a window of its own, offline; afterwards nothing may have been asked for or complained about."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(path: Path | str, *, link: str = "", ready: bool = True, before: str = "", **settings: Any) -> Any:
        settings = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", "accept_downloads": True, **settings}
        context = browser.new_context(offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        if before:
            page.add_init_script(before)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        url = path if isinstance(path, str) else path.as_uri()
        page.on(
            "request",
            lambda request: (
                request.url.startswith((url, "data:", "blob:")) or complaints.append(f"request: {request.url}")
            ),
        )
        page.goto(url + link)
        if ready:
            page.evaluate("window.jumok.ready")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


# --- what a page shows ---


def state(page: Any) -> Any:
    return page.evaluate("window.jumok.state")


def until(page: Any, condition: str) -> None:
    """Wait until a condition holds in the page. (Playwright's own way needs `eval` there, which the policy forbids.)"""
    deadline = time.monotonic() + 60
    while not page.evaluate(f"(() => {{ const state = window.jumok?.state; return !!({condition}); }})()"):
        assert time.monotonic() < deadline, f"never: {condition}; {page.evaluate('window.jumok?.state')}"
        page.wait_for_timeout(15)


def settle(page: Any, condition: str) -> None:
    """Wait until a condition holds and the page has painted."""
    until(page, condition)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


PIXELS = """(id) => {
  const canvas = document.getElementById(id);
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  let hash = 7;
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) {
    const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
    hash = (Math.imul(hash, 31) + colour + data[i + 3]) | 0;
    colours.add(colour);
  }
  return { hash, colours: colours.size };
}"""


def picture(page: Any, canvas: str = "base") -> int:
    """What is painted, as one number; it must be a picture and not an empty ground."""
    found = page.evaluate(PIXELS, canvas)
    assert found["colours"] > 20 or canvas == "over"
    return int(found["hash"])


def hover(page: Any, **what: int) -> str:
    """Move the mouse over a token, and read the tooltip."""
    place = page.evaluate("(what) => window.jumok.locate(what)", what)
    page.mouse.move(place["x"] + 3, place["y"] + 1)
    page.mouse.move(place["x"], place["y"])
    until(page, "!document.getElementById('tooltip').hidden")
    return str(page.locator("#tooltip").inner_text())


def weights(model: Any, block: str, layer: int, head: int, *sequences: list[int]) -> Any:
    """(T, S), of the model itself."""
    ids = [torch.tensor([ids]) for ids in sequences]
    with record(model) as recording, torch.inference_mode():
        model(*ids)
    return recording.attention(block, layer).weights(head)[0, 0].numpy()  # type: ignore[arg-type]


def ids_of(page: Page, sequence: int = 0) -> list[int]:
    return [token["id"] for token in page.trace["sequences"][sequence]["tokens"]]


def row(page: Any, *place: Any) -> Any:
    return np.array(page.evaluate("(place) => window.jumok.row(...place)", list(place)))


def require_near(shown: Any, expected: Any, misplaced: float = 0.02) -> None:
    """Rows of weights of 8 bits: hardly any share of a row stands elsewhere, however small the single weights are."""
    off = np.abs(np.asarray(shown) - expected).sum(axis=-1) / 2
    assert off.max() < misplaced
    np.testing.assert_allclose(np.sum(shown, axis=-1), 1, atol=1e-5)


# --- the three classic views, and the others ---


@pytest.mark.long
def test_the_three_classic_views_are_found_by_their_tabs(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2])
    seen, explained = set(), set()
    for name in ("Heads", "Model", "Neurons", "Matrix", "Text"):
        tab = page.get_by_role("tab", name=re.compile(name))
        tab.click()
        settle(page, f"state.view === '{tab.get_attribute('data-view')}'")
        assert tab.get_attribute("aria-selected") == "true"
        seen.add(picture(page))
        explained.add(page.locator("#about").inner_text())
    assert len(seen) == 5
    assert len(explained) == 5
    assert min(map(len, explained)) > 20


def test_numbers_shown_are_the_model_s(visit: Visit, pages: Pages) -> None:
    model, made, path = pages("gpt")
    page = visit(path)
    for layer, head in ((0, 0), (0, 3), (1, 2)):
        expected = weights(model, "self", layer, head, ids_of(made))
        for query in (0, 7, len(expected) - 1):
            shown = row(page, "self", layer, head, query)
            require_near(shown, expected[query])


def test_exact_numbers_are_the_model_s_to_sixteen_bits(visit: Visit, pages: Pages, tmp_path: Path) -> None:
    model = pages("gpt")[0]
    made = jumok.view(model, TEXT, exact=True)
    page = visit(made.save(tmp_path / "exact.html"))
    expected = weights(model, "self", 1, 1, ids_of(made))[9]
    np.testing.assert_allclose(row(page, "self", 1, 1, 9), expected, rtol=1e-3, atol=1e-6)


def test_hovering_a_token_tells_where_it_looks(visit: Visit, pages: Pages) -> None:
    """The tooltip names the token and gives the share of what it looks at most, as the model has it."""
    model, made, path = pages("gpt")
    page = visit(path, link="#view=heads&layer=1&heads=2&head=2")
    before = picture(page, "over")
    text = hover(page, token=9)
    tokens = made.trace["sequences"][0]["tokens"]
    expected = weights(model, "self", 1, 2, ids_of(made))[9]
    assert tokens[9]["text"] in text
    assert float(re.search(r"0\.\d+", text)[0]) == pytest.approx(expected.max(), abs=0.006)
    assert picture(page, "over") != before
    page.mouse.move(5, 5)
    until(page, "document.getElementById('tooltip').hidden")


@pytest.mark.long
def test_hovering_a_key_tells_who_looks_at_it(visit: Visit, pages: Pages) -> None:
    _, made, path = pages("gpt")
    page = visit(path, link="#view=heads&layer=0&heads=1&head=1")
    assert made.trace["sequences"][0]["tokens"][2]["text"] in hover(page, key=2)


@pytest.mark.long
def test_heads_are_switched_on_and_off(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="#view=heads&layer=0&heads=0")
    pictures = [picture(page)]
    for chip, heads in (("#chip-2", "0,2"), ("#chip-0", "2"), ("#heads-all", "0,1,2,3"), ("#heads-none", "")):
        page.click(chip)
        settle(page, f"state.heads.join() === '{heads}'")
        if heads:
            pictures.append(picture(page))
    assert len(set(pictures)) == 4
    page.click("#chip-3", modifiers=["Alt"])
    settle(page, "state.heads.join() === '3' && state.head === 3")
    page.select_option("#layer", "1")
    settle(page, "state.layer === 1")
    assert picture(page) not in pictures


# Unpacking takes long when asked to, and nothing is unpacked before it is looked at.
SLOW = """window.requestIdleCallback = () => 0;
window.slow = 0;
const unpacked = Response.prototype.arrayBuffer;
Response.prototype.arrayBuffer = async function () {
  const late = window.slow;
  const found = await unpacked.call(this);
  if (late) await new Promise((done) => setTimeout(done, late));
  return found;
};"""


@pytest.mark.long
@pytest.mark.parametrize("view", ["heads", "matrix", "neurons"])
def test_a_head_that_comes_late_does_not_replace_the_one_chosen_after_it(visit: Visit, pages: Pages, view: str) -> None:
    page = visit(pages("gpt")[2], link=f"#view={view}&layer=1&heads=0&head=0&token=9", before=SLOW)

    def choose(*heads: int) -> None:
        for head in heads:
            if view == "heads":
                page.click(f"#chip-{head}", modifiers=["Alt"])
            else:
                page.select_option("#head", str(head))

    choose(3)
    page.wait_for_timeout(200)
    shown = page.evaluate("window.jumok.summary")
    choose(0)
    page.wait_for_timeout(200)
    assert page.evaluate("window.jumok.summary") != shown
    page.evaluate("() => { window.slow = 400; }")
    choose(2, 3)  # the first has to be unpacked, the second is there
    page.wait_for_timeout(900)
    assert state(page)["head"] == 3
    assert page.evaluate("window.jumok.summary") == shown


@pytest.mark.long
@pytest.mark.parametrize("language", ["ko-KR", "en-US"])
@pytest.mark.parametrize("name", ["gpt", "pairs"])
def test_no_sentence_is_left_unfilled(visit: Visit, pages: Pages, name: str, language: str) -> None:
    page = visit(pages(name)[2], locale=language)
    for view in page.evaluate("window.jumok.views"):
        page.click(f"#tab-{view}")
        settle(page, f"state.view === '{view}'")
        texts = page.evaluate(
            """[...document.querySelectorAll("body *:not(script):not(style)")].flatMap((node) => [
              node.title ?? "",
              node.getAttribute("aria-label") ?? "",
              ...[...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.data),
            ])"""
        )
        assert len(texts) > 50
        assert [text for text in texts if re.search(r"\{\w+\}|undefined|NaN", text)] == []
        until(page, "window.jumok.summary")  # never an empty sentence


@pytest.mark.long
def test_a_click_pins_a_token_and_other_views_know_it(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="#view=heads&layer=1&heads=0&head=0&token=3")
    hover(page, token=8)
    page.mouse.down()
    page.mouse.up()
    settle(page, "state.token === 8")
    page.click("#tab-neurons")
    settle(page, "state.view === 'neurons'")
    assert state(page)["token"] == 8
    assert state(page)["layer"] == 1


@pytest.mark.long
def test_the_neuron_view_adds_up(visit: Visit, pages: Pages) -> None:
    """Its softmax is made in the page from q and k; it must be the weight that the model gave."""
    model, made, path = pages("gpt")
    for layer, head, token in ((1, 3, 9), (0, 1, 12)):
        expected = weights(model, "self", layer, head, ids_of(made))[token][: token + 1]
        best, least = int(expected.argmax()), int(expected.argmin())
        assert expected[best] > 0.1 > 3 * expected[least]  # a wrong pair could not pass for the right one
        for key in (best, least):
            page = visit(path, link=f"#view=neurons&layer={layer}&head={head}&token={token}&key={key}")
            settle(page, f"state.view === 'neurons' && state.key === {key}")
            shown = float(re.findall(r"\d\.\d+", page.evaluate("window.jumok.summary"))[-1])
            assert shown == pytest.approx(expected[key], rel=0.1, abs=2e-3)


@pytest.mark.long
def test_the_matrix_zooms_and_comes_back(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="#view=matrix&layer=0&head=0")
    whole = picture(page)
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -400)
    settle(page, "state.zoom !== null")
    assert picture(page) != whole
    page.click("[data-action=zoom-fit]")
    settle(page, "state.zoom === null")
    page.mouse.move(5, 5)
    assert picture(page) == whole
    page.locator("#stage").focus()
    page.keyboard.press("+")
    settle(page, "state.zoom !== null")


def test_the_text_view_tells_what_was_likely(visit: Visit, pages: Pages) -> None:
    model, made, path = pages("gpt")
    page = visit(path, link="#view=text&token=6")
    with torch.inference_mode():
        shares = model(torch.tensor([ids_of(made)]))[0, 5].softmax(dim=-1)
    first = page.locator("[data-panel=candidates] li").first.inner_text()
    assert float(re.search(r"([\d.]+)\s*%", first)[1]) == pytest.approx(100 * float(shares.max()), abs=0.06)
    assert page.locator("[data-panel=candidates] li").count() == 10


def test_the_page_ranks_the_heads_that_were_probed(visit: Visit, pages: Pages) -> None:
    _, made, path = pages("gpt")
    page = visit(path, link="#view=text")
    best = made.trace["probes"]["ablation"][0]
    shown = page.locator("[data-panel=ranking] li").first
    assert f"{best['delta_nats']:.4f}" in shown.inner_text()
    shown.get_by_role("button").click()
    settle(page, f"state.layer === {best['layer']} && state.head === {best['head']}")


@pytest.mark.long
def test_the_row_under_inspection_is_a_table_too(visit: Visit, pages: Pages) -> None:
    model, made, path = pages("gpt")
    page = visit(path, link="#view=heads&layer=0&heads=0&head=0&token=7")
    page.click("#table-toggle")
    cells = [line.split("\t") for line in page.locator("#table tbody").inner_text().splitlines()]
    shown = {int(position): float(weight) for position, _, weight in cells}
    expected = weights(model, "self", 0, 0, ids_of(made))[7]
    assert [shown[key] for key in range(8)] == pytest.approx(list(expected[:8]), abs=0.006)
    assert not any(shown.get(key, 0.0) for key in range(8, len(expected)))  # it does not see what comes later


# --- groups, and two texts ---


@pytest.mark.long
def test_letters_are_grouped_to_syllables_and_words(visit: Visit, pages: Pages) -> None:
    """Weights to a group are summed, those from a group averaged: recomputed here from the model."""
    model, made, path = pages("jamo")
    page = visit(path, link="#view=heads&layer=0&heads=0&head=0")
    sequence = made.trace["sequences"][0]
    each = weights(model, "self", 0, 0, ids_of(made))
    for grouping, texts in (("character", list(TEXT)), ("word", TEXT.split())):
        page.click(f"#groupings [data-value={grouping}]")
        settle(page, f"state.grouping === '{grouping}'")
        shown = [token["text"] for token in page.evaluate(f"window.jumok.tokens(0, '{grouping}')")]
        assert [text.replace("␣", " ").strip() for text in shown] == [text.strip() for text in texts]
        groups = np.array(sequence["groups"][grouping])
        count = groups.max() + 1
        to = np.stack([each[:, groups == group].sum(axis=1) for group in range(count)], axis=1)
        expected = np.stack([to[groups == group].mean(axis=0) for group in range(count)])
        for group in (0, count // 2, count - 1):
            require_near(row(page, "self", 0, 0, int(group), grouping), expected[group])


def test_cross_attention_is_between_the_two_texts(visit: Visit, pages: Pages) -> None:
    model, made, path = pages("pairs")
    page = visit(path)
    page.get_by_role("tab", name=re.compile("ross")).click()
    settle(page, "state.view === 'cross' && state.block === 'cross'")
    picture(page)
    source, target = ids_of(made, 0), ids_of(made, 1)
    for block in ("encoder", "decoder", "cross"):
        expected = weights(model, block, 1, 2, source, target)
        require_near(row(page, block, 1, 2, 3), expected[3])
    assert [token["id"] for token in page.evaluate("window.jumok.tokens(1)")] == target
    page.click("#tab-heads")
    for block in ("encoder", "decoder"):
        page.click(f"#blocks [data-value={block}]")
        settle(page, f"state.block === '{block}'")
        picture(page)


# --- links, files, keys ---


@pytest.mark.long
def test_a_link_opens_the_same_view_again(visit: Visit, pages: Pages) -> None:
    path = pages("gpt")[2]
    page = visit(path)
    page.click("#tab-matrix")
    page.select_option("#layer", "1")
    page.select_option("#head", "2")
    page.click("[data-action=zoom-in]")
    settle(page, "state.zoom !== null")
    page.keyboard.press("t")
    page.mouse.move(5, 5)
    until(page, "location.hash.includes('theme=dark') && location.hash.includes('zoom=')")
    again = visit(path, link="#" + page.evaluate("location.hash").removeprefix("#"))
    before, after = state(page), state(again)
    assert after.pop("zoom") == pytest.approx(before.pop("zoom"), rel=1e-4)
    assert after == before


@pytest.mark.long
def test_a_link_keeps_that_nothing_is_chosen(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="#view=heads&layer=1&heads=0&head=0&token=9")
    page.locator("#stage").focus()
    page.keyboard.press("Escape")
    settle(page, "state.token === null && state.key === null")
    until(page, "!location.hash.includes('token=9')")
    again = visit(pages("gpt")[2], link=page.evaluate("location.hash"))
    assert (state(again)["token"], state(again)["key"]) == (None, None)


@pytest.mark.long
def test_a_link_that_makes_no_sense_opens_the_page_all_the_same(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="#view=nothing&layer=99&heads=7,x&token=-4&zoom=a&x.lens=%&head=1e9&<script>")
    assert state(page)["view"] == "heads"
    assert state(page)["layer"] in (0, 1)
    picture(page)


@pytest.mark.long
def test_where_it_was_told_to_open(visit: Visit, pages: Pages, tmp_path: Path) -> None:
    model = pages("gpt")[0]
    page = visit(jumok.view(model, TEXT, layer=1, head=2, language="ko").save(tmp_path / "page.html"))
    found = state(page)
    assert (found["layer"], found["head"], found["heads"], found["language"]) == (1, 2, [2], "ko")
    assert re.search("[가-힣]", page.locator("#tab-heads").inner_text())


@pytest.mark.long
@pytest.mark.parametrize("view", ["heads", "model", "neurons", "matrix", "text"])
def test_every_view_is_saved_as_a_figure(visit: Visit, pages: Pages, tmp_path: Path, view: str) -> None:
    """An SVG that any program can read, with the model's name in it, and a PNG of twice its size."""
    page = visit(pages("gpt")[2], link=f"#view={view}&layer=1&head=1&heads=1&token=5")
    for kind in ("svg", "png"):
        with page.expect_download() as waiting:
            page.click(f"#tool-{kind}")
        name = waiting.value.suggested_filename
        assert re.fullmatch(rf"jumok-gpt-{view}[\w.-]*\.{kind}", name)
        waiting.value.save_as(tmp_path / f"figure.{kind}")
    root = ElementTree.parse(tmp_path / "figure.svg").getroot()
    assert root.tag == f"{SVG}svg"
    assert "gpt" in " ".join(text.text or "" for text in root.iter(f"{SVG}text"))
    assert not list(root.iter(f"{SVG}script"))
    width, height = (float(root.attrib[side].removesuffix("px")) for side in ("width", "height"))
    assert imread(tmp_path / "figure.png").shape[:2] == (2 * height, 2 * width)
    assert len(list(root.iter())) > 30


@pytest.mark.long
def test_the_keyboard_reaches_everything(visit: Visit, pages: Pages) -> None:
    page = visit(pages("jamo")[2], link="#view=heads&layer=0&heads=0&head=0&token=5")
    page.locator("#stage").focus()
    for key, condition in (
        ("2", "state.view === 'model'"),
        ("3", "state.view === 'neurons'"),
        ("1", "state.view === 'heads'"),
        ("]", "state.layer === 1"),
        ("[", "state.layer === 0"),
        (".", "state.head === 1 && state.heads.join() === '1'"),
        (",", "state.head === 0"),
        ("ArrowDown", "state.token === 6"),
        ("ArrowUp", "state.token === 5"),
        ("g", "state.grouping === 'character'"),
        ("l", "state.language === 'ko'"),
        ("t", "document.documentElement.dataset.theme === 'dark'"),
        ("Escape", "state.token === null"),
    ):
        page.keyboard.press(key)
        settle(page, condition)
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")
    with page.expect_download() as waiting:
        page.keyboard.press("s")
    assert waiting.value.suggested_filename.endswith(".svg")


def test_keys_of_a_hangul_keyboard_mean_the_same(visit: Visit, pages: Pages) -> None:
    """With the Hangul layout on, the key that says g sends ㅎ."""
    page = visit(pages("jamo")[2])
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ㅎ', code: 'KeyG', cancelable: true}))")
    settle(page, "state.grouping === 'character'")


def test_tab_walks_through_named_controls(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2])
    names = []
    for _ in range(40):
        page.keyboard.press("Tab")
        names.append(
            page.evaluate(
                "(({activeElement: at}) => at === document.body ? '' : `${at.id || at.tagName}|` + "
                "(at.ariaLabel || at.textContent.trim() || at.getAttribute('aria-labelledby') || ''))(document)"
            )
        )
    reached = {name.split("|")[0] for name in names if name}
    assert {"tab-heads", "layer", "chip-0", "stage", "tool-svg", "tool-help"} <= reached
    assert [name for name in names if name.endswith("|")] == []


# --- screens ---


@pytest.mark.long
def test_dark_mode_is_that_of_the_system(visit: Visit, pages: Pages) -> None:
    path = pages("gpt")[2]
    light, dark = (
        visit(path, link="#view=heads&layer=0&heads=0,1", color_scheme=scheme) for scheme in ("light", "dark")
    )
    brightness = (
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    assert light.evaluate(brightness) > 600
    assert dark.evaluate(brightness) < 200
    assert picture(light) != picture(dark)
    dark.keyboard.press("t")
    settle(dark, "document.documentElement.dataset.theme === 'light'")
    assert picture(dark) == picture(light)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gpt", "pairs"])
def test_a_narrow_screen_shows_everything_without_moving_sideways(visit: Visit, pages: Pages, name: str) -> None:
    page = visit(pages(name)[2], viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    for view in page.evaluate("window.jumok.views"):
        page.locator(f"#tab-{view}").tap()
        settle(page, f"state.view === '{view}'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        picture(page)


@pytest.mark.long
def test_a_tap_shows_and_pins(visit: Visit, pages: Pages) -> None:
    page = visit(pages("gpt")[2], viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    place = page.evaluate("window.jumok.locate({token: 4})")
    page.touchscreen.tap(place["x"], place["y"])
    settle(page, "state.token === 4")
    assert page.locator("#tooltip").is_visible()


@pytest.mark.long
def test_five_hundred_tokens(visit: Visit, pages: Pages) -> None:
    model, made, path = pages("long")
    assert len(ids_of(made)) == 512
    page = visit(path)
    expected = weights(model, "self", 1, 3, ids_of(made))
    shown = row(page, "self", 1, 3, 511)
    require_near(shown, expected[511], misplaced=0.05)
    assert np.abs(expected[511] - expected[510, :512]).sum() / 2 > 0.2  # another row would be farther off
    assert shown.argmax() == expected[511].argmax()
    for view in ("model", "neurons", "matrix", "text", "heads"):
        page.click(f"#tab-{view}")
        settle(page, f"state.view === '{view}'")
        picture(page)
    page.locator("#stage").focus()
    before = picture(page)
    page.click("#chip-3", modifiers=["Alt"])
    settle(page, "state.heads.join() === '3'")
    assert picture(page) != before
    assert made.trace["sequences"][0]["tokens"][500]["text"] in hover(page, token=500)  # scrolled into sight


# --- harm ---


@pytest.mark.long
@pytest.mark.parametrize("view", ["heads", "model", "neurons", "matrix", "text"])
def test_a_hostile_text_runs_nothing(visit: Visit, pages: Pages, tmp_path: Path, view: str) -> None:
    """Whole elements stand in one word, so that they would get into the page in one piece if they ever did."""
    page = visit(pages("hostile")[2], link=f"#view={view}&grouping=word&token=60")
    settle(page, f"state.view === '{view}' && state.grouping === 'word'")
    words = [word["text"] for word in page.evaluate("window.jumok.tokens(0, 'word')")]
    assert "<img/src=x/onerror=window.harmed=2>" in words
    assert any("</script><script>" in word for word in words)
    assert "\u202e" not in page.locator("body").inner_text()
    if view == "heads":
        place = words.index("<img/src=x/onerror=window.harmed=2>")
        token = page.evaluate("(at) => window.jumok.tokens(0, 'word')[at].first", place)
        assert "<img" in hover(page, token=token)
    page.mouse.move(400, 400)
    page.mouse.down()
    page.mouse.up()
    with page.expect_download() as waiting:
        page.click("#tool-svg")
    waiting.value.save_as(tmp_path / "hostile.svg")
    root = ElementTree.parse(tmp_path / "hostile.svg").getroot()
    assert not {f"{SVG}script", f"{SVG}img"} & {element.tag for element in root.iter()}
    if page.locator("#table-toggle").is_visible():
        page.click("#table-toggle")
        assert page.locator("#table table").is_visible()
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.querySelectorAll('script, img, iframe').length") == 3  # the page's own scripts


def test_the_policy_stops_what_gets_in_all_the_same(browser: Any, pages: Pages) -> None:
    """Were a text ever put in as HTML, the browser itself would refuse to run it, or to send anything."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(pages("gpt")[2].as_uri())
    page.evaluate("window.jumok.ready")
    page.evaluate(
        "window.refused = [];"
        "document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective))"
    )
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.harmed = 1\">')")
    page.evaluate(
        "{const s = document.createElement('script'); s.textContent = 'window.harmed = 2'; document.body.append(s)}"
    )
    sent = page.evaluate("fetch('https://example.invalid/').then(() => 'sent', (error) => error.name)")
    page.wait_for_timeout(100)
    assert page.evaluate("window.harmed") is None
    assert sent == "TypeError"
    # An address that is not there fails anyway; that the policy was in its way is what counts.
    assert {"connect-src", "script-src-elem", "img-src"} <= set(page.evaluate("window.refused"))
    context.close()


def test_a_line_of_a_hundred_thousand_characters(visit: Visit, pages: Pages, tmp_path: Path) -> None:
    made = jumok.view(pages("gpt")[0], "가나다 " * 25_000)
    page = visit(made.save(tmp_path / "line.html"))
    assert len(page.evaluate("window.jumok.tokens()")) == 64
    picture(page)


@pytest.mark.parametrize(
    ("change", "code"),
    [({"version": 99}, "error.version"), ({"format": "other"}, "error.format"), ({"attentions": None}, "error.data")],
)
def test_a_page_that_cannot_be_shown_says_so_in_two_languages(
    browser: Any, pages: Pages, tmp_path: Path, change: dict[str, Any], code: str
) -> None:
    made = Page({**pages("gpt")[1].trace, **change})
    context = browser.new_context()
    page = context.new_page()
    page.goto(made.save(tmp_path / "page.html").as_uri())
    message = page.get_by_role("alert")
    assert message.get_attribute("data-error") == code
    text = message.inner_text()
    assert re.search("[가-힣]{3}", text)
    assert re.search("[a-z]{4}", text)
    context.close()


# --- elsewhere ---


@pytest.mark.long
def test_the_page_works_in_the_frame_of_a_notebook(visit: Visit, pages: Pages, tmp_path: Path) -> None:
    """A frame with a source of its own has no address, no storage and no way to the notebook around it."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{pages('gpt')[1]._repr_html_()}", encoding="utf-8")
    page = visit(notebook, ready=False)
    frame = page.wait_for_selector("iframe").content_frame()
    until(frame, "window.jumok")
    frame.evaluate("window.jumok.ready")
    frame.click("#tab-matrix")
    until(frame, "window.jumok.state.view === 'matrix'")
    page.wait_for_timeout(400)  # the link would be written by now
    assert frame.evaluate("origin") == "null"
    with page.expect_download() as waiting:
        frame.click("#tool-png")
    assert waiting.value.suggested_filename.endswith(".png")
