"""The viewer's page in Chromium, as someone uses it: with the network off, and with texts that mean harm.

Each test asks the page for what it shows by `window.jumok` (docs/viewer.md) and by what stands in its elements, and
compares it with the model. No request may leave the page and nothing may be complained about in the console; the
fixture `visit` sees to that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread

import jumok
from jumok.interpret.record import record
from jumok.view.page import Page
from model_pages import PHONE, TEXT, Visits, controls_that_lose_the_focus, gpt, pairs, until

pytestmark = pytest.mark.browser

HOSTILE = (
    "</script><script>window.harmed=1</script> <img/src=x/onerror=window.harmed=2> <svg/onload=window.harmed=3> "
    "\u202e거꾸로\u202c \0 \u2028 {{script}} ${harmed} & &lt;b&gt;"
)
MADE: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "gpt": (gpt, {"text": TEXT, "tokens": 6, "seed": 1, "probe": True}),
    "jamo": (lambda: gpt("jamo"), {"text": TEXT}),
    "pairs": (pairs, {"text": "학교에 갔다", "target": "밥을 먹었다"}),
    "long": (lambda: gpt(context_length=512), {"text": TEXT * 40}),
    "hostile": (lambda: gpt(context_length=256), {"text": HOSTILE, "name": HOSTILE, "probe": True}),
}

Pages = Callable[[str], tuple[Any, Page, Path]]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """A model, its page and the page's file, each made when it is first asked for."""
    folder = tmp_path_factory.mktemp("viewer-pages")
    made: dict[str, tuple[Any, Page, Path]] = {}

    def page_of(name: str) -> tuple[Any, Page, Path]:
        if name not in made:
            make, how = MADE[name]
            model = make()
            page = jumok.view(model, **{"name": name, **how})
            made[name] = model, page, page.save(folder / f"{name}.html")
        return made[name]

    return page_of


def state(page: Any) -> Any:
    return page.evaluate("window.jumok.state")


def settle(page: Any, condition: str) -> None:
    """Wait until a condition on the state holds and the page has painted."""
    until(page, f"(() => {{ const state = window.jumok?.state; return {condition}; }})()")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def picture(page: Any, canvas: str = "base") -> int:
    """What is painted, as one number; it must be a picture and not an empty ground."""
    found = page.evaluate(
        """(id) => {
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
        }""",
        canvas,
    )
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


# --- numbers ---


def test_the_views_show_what_the_model_computes(visit: Visits, pages: Pages) -> None:
    """Weights, the most probable tokens, the ranking of heads, the table, and a picture and sentences in each view."""
    model, made, path = pages("gpt")
    page = visit(path)
    for layer, head in ((0, 3), (1, 2)):
        expected = weights(model, "self", layer, head, ids_of(made))
        for query in (0, 7, len(expected) - 1):
            require_near(row(page, "self", layer, head, query), expected[query])
    seen, explained = set(), set()
    for name in ("Model", "Neurons", "Matrix", "Heads", "Text"):
        tab = page.get_by_role("tab", name=re.compile(name))
        tab.click()
        settle(page, f"state.view === '{tab.get_attribute('data-tab')}'")
        assert tab.get_attribute("aria-selected") == "true"
        seen.add(picture(page))
        explained.add(page.locator("#about").inner_text())
    assert len(seen) == len(explained) == 5
    ranked = page.locator("[data-panel=ranking] li").all_inner_texts()
    best = made.trace["probes"]["ablation"][0]
    assert ranked[0].split("\n")[0] == f"Layer {best['layer']} · head {best['head']}"

    page = visit(path, link="view=text&token=6")
    with torch.inference_mode():
        shares = model(torch.tensor([ids_of(made)]))[0, 5].softmax(dim=-1)
    first = page.locator("[data-panel=candidates] li").first.inner_text()
    assert float(re.search(r"([\d.]+)\s*%", first)[1]) == pytest.approx(100 * float(shares.max()), abs=0.06)

    page = visit(path, link="view=heads&layer=0&heads=0&head=0&token=7")
    page.click("#table-toggle")
    cells = [line.split("\t") for line in page.locator("#table tbody").inner_text().splitlines()]
    shown = {int(position): float(weight) for position, _, weight in cells}
    expected = weights(model, "self", 0, 0, ids_of(made))[7]
    assert [shown[key] for key in range(8)] == pytest.approx(list(expected[:8]), abs=0.006)
    assert not any(shown.get(key, 0.0) for key in range(8, len(expected)))  # it does not see what comes later


@pytest.mark.long
def test_the_neuron_view_adds_up(visit: Visits, pages: Pages) -> None:
    """Its softmax is made in the page from q and k; it must be the weight that the model gave."""
    model, made, path = pages("gpt")
    expected = weights(model, "self", 1, 3, ids_of(made))[9][:10]
    best, least = int(expected.argmax()), int(expected.argmin())
    assert expected[best] > 0.1 > 3 * expected[least]  # a wrong pair could not pass for the right one
    for key in (best, least):
        page = visit(path, link=f"view=neurons&layer=1&head=3&token=9&key={key}")
        settle(page, f"state.view === 'neurons' && state.key === {key}")
        shown = float(re.findall(r"\d\.\d+", page.evaluate("window.jumok.summary"))[-1])
        assert shown == pytest.approx(expected[key], rel=0.1, abs=2e-3)


@pytest.mark.long
def test_exact_numbers_are_the_model_s_to_sixteen_bits(visit: Visits, pages: Pages, tmp_path: Path) -> None:
    model = pages("gpt")[0]
    made = jumok.view(model, TEXT, exact=True, layer=1, head=2, language="ko")
    page = visit(made.save(tmp_path / "exact.html"))
    expected = weights(model, "self", 1, 1, ids_of(made))[9]
    np.testing.assert_allclose(row(page, "self", 1, 1, 9), expected, rtol=1e-3, atol=1e-6)
    found = state(page)  # and it opens where it was told to
    assert (found["layer"], found["head"], found["heads"], found["language"]) == (1, 2, [2], "ko")


@pytest.mark.long
def test_letters_are_grouped_to_syllables_and_words(visit: Visits, pages: Pages) -> None:
    """Weights to a group are summed, those from a group averaged: recomputed here from the model."""
    model, made, path = pages("jamo")
    page = visit(path, link="view=heads&layer=0&heads=0&head=0")
    each = weights(model, "self", 0, 0, ids_of(made))
    for grouping, texts in (("character", list(TEXT)), ("word", TEXT.split())):
        page.click(f"#groupings [data-value={grouping}]")
        settle(page, f"state.grouping === '{grouping}'")
        shown = page.evaluate(f"window.jumok.tokens(0, '{grouping}')")
        assert [token["text"].replace("␣", " ").strip() for token in shown] == [text.strip() for text in texts]
        groups = np.repeat(range(len(shown)), [token["last"] - token["first"] + 1 for token in shown])
        count = groups.max() + 1
        to = np.stack([each[:, groups == group].sum(axis=1) for group in range(count)], axis=1)
        expected = np.stack([to[groups == group].mean(axis=0) for group in range(count)])
        for group in (0, count // 2, count - 1):
            require_near(row(page, "self", 0, 0, int(group), grouping), expected[group])


@pytest.mark.long
def test_cross_attention_is_between_the_two_texts(visit: Visits, pages: Pages) -> None:
    model, made, path = pages("pairs")
    page = visit(path)
    page.get_by_role("tab", name=re.compile("ross")).click()
    settle(page, "state.view === 'cross' && state.block === 'cross'")
    picture(page)
    source, target = ids_of(made, 0), ids_of(made, 1)
    for block in ("encoder", "decoder", "cross"):
        require_near(row(page, block, 1, 2, 3), weights(model, block, 1, 2, source, target)[3])
    assert [token["id"] for token in page.evaluate("window.jumok.tokens(1)")] == target
    page.click("#tab-heads")
    for block in ("encoder", "decoder"):
        page.click(f"#blocks [data-value={block}]")
        settle(page, f"state.block === '{block}'")
        picture(page)


@pytest.mark.long
def test_five_hundred_tokens(visit: Visits, pages: Pages) -> None:
    model, made, path = pages("long")
    assert len(ids_of(made)) == 512
    page = visit(path)
    expected = weights(model, "self", 1, 3, ids_of(made))
    require_near(row(page, "self", 1, 3, 511), expected[511], misplaced=0.05)
    assert np.abs(expected[511] - expected[510, :512]).sum() / 2 > 0.1  # another row would be farther off
    for view in ("model", "neurons", "matrix", "text", "heads"):
        page.click(f"#tab-{view}")
        settle(page, f"state.view === '{view}'")
        picture(page)
    assert made.trace["sequences"][0]["tokens"][500]["text"] in hover(page, token=500)  # scrolled into sight


# --- pointing, links, keys, files ---


def test_a_token_is_pointed_at_and_pinned(visit: Visits, pages: Pages) -> None:
    """The tooltip gives the share of what it looks at most, as the model has it; other views know what is pinned."""
    model, made, path = pages("gpt")
    page = visit(path, link="view=heads&layer=1&heads=2&head=2&token=3")
    before = picture(page, "over")
    text = hover(page, token=9)
    assert made.trace["sequences"][0]["tokens"][9]["text"] in text
    expected = weights(model, "self", 1, 2, ids_of(made))[9]
    assert float(re.search(r"0\.\d+", text)[0]) == pytest.approx(expected.max(), abs=0.006)
    assert picture(page, "over") != before
    page.mouse.down()
    page.mouse.up()
    settle(page, "state.token === 9")
    assert made.trace["sequences"][0]["tokens"][2]["text"] in hover(page, key=2)
    page.mouse.move(5, 5)
    until(page, "document.getElementById('tooltip').hidden")
    page.click("#tab-neurons")
    settle(page, "state.view === 'neurons' && state.token === 9 && state.layer === 1")


@pytest.mark.long
def test_heads_are_chosen_and_the_matrix_zooms(visit: Visits, pages: Pages) -> None:
    page = visit(pages("gpt")[2], link="view=heads&layer=0&heads=0")
    pictures = [picture(page)]
    for chip, heads in (("#chip-2", "0,2"), ("#chip-0", "2"), ("#heads-all", "0,1,2,3"), ("#heads-none", "")):
        page.click(chip)
        settle(page, f"state.heads.join() === '{heads}'")
        if heads:
            pictures.append(picture(page))
    page.click("#chip-3", modifiers=["Alt"])
    settle(page, "state.heads.join() === '3' && state.head === 3")
    page.select_option("#layer", "1")
    settle(page, "state.layer === 1")
    assert len({*pictures, picture(page)}) == 5
    page.click("#tab-model")
    settle(page, "state.view === 'model'")
    whole = picture(page)
    page.get_by_label("Sort").select_option("entropy")
    settle(page, "state.sort === 'entropy'")
    assert picture(page) != whole
    page.click("#tab-matrix")
    settle(page, "state.view === 'matrix'")
    whole = picture(page)
    box = page.locator("#stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -400)
    settle(page, "state.zoom !== null")
    assert picture(page) != whole
    page.click("[data-action=zoom-fit]")
    page.mouse.move(5, 5)
    settle(page, "state.zoom === null")
    assert picture(page) == whole


@pytest.mark.long
@pytest.mark.parametrize("view", ["heads", "matrix", "neurons"])
def test_a_head_that_comes_late_does_not_replace_the_one_chosen_after_it(
    visit: Visits, pages: Pages, view: str
) -> None:
    """Unpacking takes long when asked to, and nothing is unpacked before it is looked at."""
    slow = """window.requestIdleCallback = () => 0;
    window.slow = 0;
    window.late = 0;
    window.waiting = 0;
    const unpacked = Response.prototype.arrayBuffer;
    Response.prototype.arrayBuffer = async function () {
      const late = window.slow;
      const found = await unpacked.call(this);
      window.waiting += 1;
      if (late) await new Promise((done) => setTimeout(done, late));
      window.waiting -= 1;
      if (late) window.late += 1;
      return found;
    };"""
    page = visit(pages("gpt")[2], link=f"view={view}&layer=1&heads=0&head=0&token=9", before=slow)

    def choose(*heads: int) -> None:
        for head in heads:
            if view == "heads":
                page.click(f"#chip-{head}", modifiers=["Alt"])
            else:
                page.select_option("#head", str(head))

    settle(page, "state.head === 0 && window.jumok.summary && !window.waiting")
    first = page.evaluate("window.jumok.summary")
    choose(3)
    until(page, f"window.jumok.summary !== {json.dumps(first)}")
    shown = page.evaluate("window.jumok.summary")
    choose(0)
    until(page, f"window.jumok.summary === {json.dumps(first)}")
    page.evaluate("() => { window.slow = 400; }")
    choose(2, 3)  # the first has to be unpacked, the second is there
    settle(page, "window.late && !window.waiting")
    assert state(page)["head"] == 3
    assert page.evaluate("window.jumok.summary") == shown


@pytest.mark.long
def test_a_link_opens_the_same_view_again(visit: Visits, pages: Pages) -> None:
    path = pages("gpt")[2]
    page = visit(path, link="token=9&heads=0")
    page.click("#tab-matrix")
    page.select_option("#layer", "1")
    page.select_option("#head", "2")
    page.click("[data-action=zoom-in]")
    settle(page, "state.zoom !== null")
    page.keyboard.press("t")
    page.locator("#stage").focus()
    page.keyboard.press("Escape")  # that nothing is chosen is a part of the link, too
    page.mouse.move(5, 5)
    until(page, "location.hash.includes('theme=dark') && location.hash.includes('zoom=')")
    until(page, "!location.hash.includes('token=9')")
    again = visit(path, link=page.evaluate("location.hash").removeprefix("#"))
    before, after = state(page), state(again)
    assert after.pop("zoom") == pytest.approx(before.pop("zoom"), rel=1e-4)
    assert {name: value for name, value in before.items() if value is not None or name in after} == after
    page = visit(path, link="view=nothing&layer=99&heads=7,x&token=-4&zoom=a&x.lens=%&head=1e9&<script>")
    assert state(page)["view"] == "heads"
    assert state(page)["layer"] in (0, 1)


def test_the_keyboard_reaches_everything(visit: Visits, pages: Pages) -> None:
    page = visit(pages("jamo")[2], link="view=heads&layer=0&heads=0&head=0&token=5")
    page.locator("#stage").focus()
    for key, condition in (
        ("2", "state.view === 'model'"),
        ("1", "state.view === 'heads'"),
        ("]", "state.layer === 1"),
        (".", "state.head === 1 && state.heads.join() === '1'"),
        ("ArrowDown", "state.token === 6"),
        ("ArrowUp", "state.token === 5"),
        ("g", "state.grouping === 'character'"),
        ("l", "state.language === 'ko'"),
        ("t", "document.documentElement.dataset.theme === 'dark'"),
        ("Escape", "state.token === null"),
    ):
        page.keyboard.press(key)
        settle(page, condition)
    # With the Hangul layout on, the key that says g sends ㅎ.
    page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ㅎ', code: 'KeyG', cancelable: true}))")
    settle(page, "state.grouping === 'word'")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")
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
    assert {"tab-heads", "layer", "chip-0", "stage", "tool-png", "tool-help"} <= reached
    assert [name for name in names if name.endswith("|")] == []


@pytest.mark.long
@pytest.mark.parametrize("view", ["heads", "model", "neurons", "matrix", "text"])
def test_no_control_loses_the_focus(visit: Visits, pages: Pages, view: str) -> None:
    page = visit.load(pages("gpt")[2], link=f"view={view}")
    settle(page, f"state.view === '{view}'")
    assert controls_that_lose_the_focus(page) == []


def test_every_view_is_saved_as_a_figure(visit: Visits, pages: Pages, tmp_path: Path) -> None:
    page = visit(pages("gpt")[2], link="layer=1&head=1&heads=1&token=5")
    for view in ("heads", "model", "neurons", "matrix", "text"):
        page.click(f"#tab-{view}")
        settle(page, f"state.view === '{view}'")
        with page.expect_download() as waiting:
            page.click("#tool-png")
        assert re.fullmatch(rf"jumok-gpt-{view}[\w.-]*\.png", waiting.value.suggested_filename)
        waiting.value.save_as(tmp_path / "figure.png")
        image = imread(tmp_path / "figure.png")
        assert min(image.shape[:2]) > 800
        assert len(np.unique(image[::9, ::9].reshape(-1, image.shape[-1]), axis=0)) > 20


# --- languages, screens, notebooks ---


@pytest.mark.long
@pytest.mark.parametrize(("name", "language"), [("gpt", "ko-KR"), ("pairs", "en-US")])
def test_a_narrow_screen_shows_every_view_in_whole_sentences(
    visit: Visits, pages: Pages, name: str, language: str
) -> None:
    page = visit(pages(name)[2], locale=language, **PHONE)
    for view in page.evaluate("window.jumok.views"):
        page.locator(f"#tab-{view}").tap()
        settle(page, f"state.view === '{view}'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
        picture(page)
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
    page.locator("#tab-heads").tap()
    settle(page, "state.view === 'heads'")
    place = page.evaluate("window.jumok.locate({token: 4})")
    page.touchscreen.tap(place["x"], place["y"])
    settle(page, "state.token === 4")
    assert page.locator("#tooltip").is_visible()


@pytest.mark.long
def test_dark_mode_is_that_of_the_system(visit: Visits, pages: Pages) -> None:
    path = pages("gpt")[2]
    light, dark = (
        visit(path, link="view=heads&layer=0&heads=0,1", color_scheme=scheme) for scheme in ("light", "dark")
    )
    colour = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    assert light.evaluate(colour) > 600
    assert dark.evaluate(colour) < 200
    assert picture(light) != picture(dark)
    dark.keyboard.press("t")
    settle(dark, "document.documentElement.dataset.theme === 'light'")
    assert picture(dark) == picture(light)


@pytest.mark.long
def test_the_page_works_in_the_frame_of_a_notebook(visit: Visits, pages: Pages, tmp_path: Path) -> None:
    """A frame with a source of its own has no address, no storage and no way to the notebook around it."""
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{pages('gpt')[1]._repr_html_()}", encoding="utf-8")
    page = visit.load(notebook)
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


# --- harm ---


@pytest.mark.long
def test_a_hostile_text_runs_nothing(visit: Visits, pages: Pages) -> None:
    """Whole elements stand in one word, so that they would get into the page in one piece if they ever did."""
    page = visit(pages("hostile")[2], link="view=heads&grouping=word&token=60")
    words = [word["text"] for word in page.evaluate("window.jumok.tokens(0, 'word')")]
    place = words.index("<img/src=x/onerror=window.harmed=2>")
    assert any("</script><script>" in word for word in words)
    token = page.evaluate("(at) => window.jumok.tokens(0, 'word')[at].first", place)
    assert "<img" in hover(page, token=token)
    for view in ("heads", "model", "neurons", "matrix", "text"):
        page.click(f"#tab-{view}")
        settle(page, f"state.view === '{view}'")
        assert "\u202e" not in page.locator("body").inner_text()
        if page.locator("#table-toggle").is_visible():
            page.click("#table-toggle")
        assert page.evaluate("document.querySelectorAll('script, img, iframe').length") == 3  # the page's own scripts
    assert page.evaluate("window.harmed") is None


@pytest.mark.long
def test_the_policy_stops_what_gets_in_all_the_same(browser: Any, pages: Pages) -> None:
    """Were a text ever put in as HTML, the browser itself would refuse to run it, or to send anything."""
    visits = Visits(browser)
    page = visits(pages("gpt")[2])
    page.evaluate(
        "window.refused = [];"
        "document.addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective))"
    )
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.harmed = 1\">')")
    page.evaluate(
        "{const s = document.createElement('script'); s.textContent = 'window.harmed = 2'; document.body.append(s)}"
    )
    sent = page.evaluate("fetch('https://example.invalid/').then(() => 'sent', (error) => error.name)")
    # An address that is not there fails anyway; that the policy was in its way is what counts.
    until(page, "['connect-src', 'script-src-elem', 'img-src'].every((one) => window.refused.includes(one))")
    assert page.evaluate("window.harmed") is None
    assert sent == "TypeError"
    page.context.close()


def test_a_page_that_cannot_be_shown_says_so_in_two_languages(browser: Any, pages: Pages, tmp_path: Path) -> None:
    changes: list[tuple[dict[str, Any], str]] = [
        ({"version": 99}, "error.version"),
        ({"format": "other"}, "error.format"),
        ({"attentions": None}, "error.data"),
    ]
    for change, code in changes:
        made = Page({**pages("gpt")[1].trace, **change})
        page = Visits(browser).load(made.save(tmp_path / "page.html"))
        message = page.get_by_role("alert")
        assert message.get_attribute("data-error") == code
        text = message.inner_text()
        assert re.search("[가-힣]{3}", text)
        assert re.search("[a-z]{4}", text)
        page.context.close()
