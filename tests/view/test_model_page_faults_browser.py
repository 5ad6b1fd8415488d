"""What a page with a model must withstand in Chromium: damage, hostile texts, a browser that lacks or delays something.

The models are tiny and random. No request may leave a page, and nothing may be complained about in the console.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jumok.inference.generate import generate
from jumok.view.model_page import ModelPage, rounded
from model_pages import FLAGS, HOSTILE, TEXT, Visits, chromium, gpt, program, save_page, until, written

pytestmark = [pytest.mark.browser, pytest.mark.long]

GREEDY = "t=0&n=100"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Any) -> Iterator[Visits]:
    visits = Visits(browser)
    yield visits
    visits.end()


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_page(tmp_path_factory.mktemp("pages"), "gpt")


def greedy() -> list[int]:
    """What the page writes after TEXT at temperature 0."""
    model = gpt()
    [expected] = generate(rounded(model), TEXT, tokens=100, temperature=0)
    return [*model.tokenizer.encode(TEXT).tolist(), *expected.ids]


# --- damage ---


def _flipped(html: str) -> str:
    at = html.index('id="jumok-parameters">') + 4000
    return html[:at] + ("A" if html[at] != "A" else "B") + html[at + 1 :]


def _header(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def changed(html: str) -> str:
        start, end = _place(html, "jumok-model")
        header = json.loads(html[start:end])
        change(header)
        text = json.dumps(header).replace("<", "\\u003c")
        checksum = f'data-crc32="{zlib.crc32(text.encode())}"'
        return re.sub(r'data-crc32="\d+"', checksum, html[:start], count=1) + text + html[end:]

    return changed


def _place(html: str, element: str) -> tuple[int, int]:
    start = html.index(f'id="{element}">') + len(f'id="{element}">')
    return start, html.index("</script>", start)


def _without(element: str) -> Callable[[str], str]:
    def changed(html: str) -> str:
        start, end = _place(html, element)
        return html[:start] + html[end:]

    return changed


DAMAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "a number in the header": ("engine.damaged", lambda html: html.replace('"norm_eps":1e-06', '"norm_eps":1e-05')),
    "a flipped sign of the parameters": ("engine.damaged", _flipped),
    "a sign that is not base64": ("engine.damaged", lambda html: html.replace('parameters">', 'parameters">*', 1)),
    "no parameters": ("engine.damaged", _without("jumok-parameters")),
    "a header that is no JSON": ("engine.damaged", lambda html: html.replace('{"format"', '{"format', 1)),
    "no header": ("engine.damaged", _without("jumok-model")),
    "another format": ("engine.damaged", _header(lambda header: header.update(format="something"))),
    "a later version": ("engine.newer", _header(lambda header: header.update(version=7))),
    "another tokenizer": (
        "engine.tokenizer",
        _header(lambda header: header["tokenizer"].update(normalizer={"type": "Odd"})),
    ),
    "a parameter outside the file": (
        "engine.damaged",
        _header(lambda header: header["parameters"][0].update(offset=10**9)),
    ),
    "a parameter that is missing": ("engine.damaged", _header(lambda header: header["parameters"].pop())),
    "a parameter of another shape": (
        "engine.damaged",
        _header(lambda header: header["parameters"][1].update(shape=[3, 3])),
    ),
    "settings that are missing": ("engine.damaged", _header(lambda header: header.pop("config"))),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_page_says_so_in_both_languages(browser: Any, page_path: Path, tmp_path: Path, damage: str) -> None:
    code, change = DAMAGES[damage]
    html = page_path.read_text(encoding="utf-8")
    changed = tmp_path / "changed.html"
    changed.write_text(change(html), encoding="utf-8")
    assert changed.read_text(encoding="utf-8") != html
    visits = Visits(browser)
    page = visits.load(changed, locale="ko-KR")
    page.wait_for_selector(".trouble")
    found, shown = page.get_attribute(".trouble", "data-error"), page.inner_text(".trouble")
    page.context.close()
    assert (found, visits.complaints) == (code, [])
    assert "이 페이지를 열 수 없습니다" in shown
    assert "This page cannot be opened" in shown
    assert not re.search(r"\{\w+\}|undefined|engine\.", shown)


def test_a_page_that_was_cut_off_says_so(browser: Any, page_path: Path, tmp_path: Path) -> None:
    """The script stands at the end of the file, so that a cut file has none to run."""
    html = page_path.read_text(encoding="utf-8")
    for part in ('id="jumok-parameters">', '<script type="module">'):
        cut = tmp_path / "cut.html"
        cut.write_text(html[: html.index(part) + 2000], encoding="utf-8")
        visits = Visits(browser)
        page = visits.load(cut, locale="ko-KR")
        page.wait_for_selector("#opening")
        shown = page.inner_text("body")
        page.context.close()
        assert "파일이 완전하지 않은" in shown, part
        assert "the file is incomplete" in shown, part


# --- hostile texts ---


def test_hostile_texts_stay_text_and_no_request_leaves(visit: Visits, tmp_path: Path) -> None:
    model = gpt("bpe", text=HOSTILE + TEXT)
    path = ModelPage(model, HOSTILE, title=HOSTILE, note=HOSTILE, licence=HOSTILE, prompt=HOSTILE).save(
        tmp_path / "page.html"
    )
    page = visit(path, link="n=30&seed=2")
    sent: list[str] = []
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    network.on("Network.requestWillBeSent", lambda event: sent.append(event["request"]["url"]))
    written(page)
    for tab in ("step", "attention", "write"):
        page.click(f"#tab-{tab}")
    page.click("#tool-help")
    assert page.locator("#help dd").all_inner_texts().count(HOSTILE) == 2
    assert page.title() == HOSTILE == page.inner_text("#model-name")
    page.keyboard.press("Escape")
    page.locator(".candidate").first.click()
    until(page, "session.tree.made === 2 && !session.writing")
    written(page)
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.images.length + document.querySelectorAll('.mirror script').length") == 0
    assert [url for url in sent if not url.startswith(("data:", "blob:"))] == []


def test_neither_the_page_nor_its_worker_may_connect(browser: Any, page_path: Path) -> None:
    """The policy of the page forbids it, also where there is a network."""
    visits = Visits(browser)
    page = visits(page_path)
    ask = "fetch('http://127.0.0.1:9/').then(() => 'asked', (error) => String(error))"
    refused: list[str] = []
    page.on("requestfailed", lambda one: refused.append(one.failure or ""))
    assert page.evaluate(ask).startswith("TypeError")
    assert page.workers[0].evaluate(ask).startswith("TypeError")
    policy = [one for one in visits.complaints if "Content Security Policy" in one]
    page.context.close()
    assert policy, visits.complaints


# --- a browser that lacks or delays something ---


def test_without_webassembly_the_text_is_the_same(browser: Any, page_path: Path) -> None:
    """As in the safest modes of browsers, which also compile no JavaScript."""
    started = browser.browser_type.launch(executable_path=program(), args=[*FLAGS, "--js-flags=--jitless"])
    visits = Visits(started)
    page = visits(page_path, text=TEXT, link=GREEDY)
    assert page.workers[0].evaluate("typeof WebAssembly") == "undefined"
    written(page, 100)
    assert page.evaluate("session.ids") == greedy()
    visits.end()
    started.close()


@pytest.mark.parametrize(
    "lacking",
    [
        "WebAssembly.Module = class { constructor() { throw new WebAssembly.CompileError('no SIMD'); } };",
        "Object.defineProperty(globalThis, 'crypto', { value: undefined });",
        "throw new Error('this worker is not allowed');",
    ],
    ids=["simd", "sha256", "worker"],
)
def test_a_worker_that_lacks_something(visit: Visits, page_path: Path, tmp_path: Path, lacking: str) -> None:
    changed = tmp_path / "changed.html"
    start = 'id="jumok-worker">'
    changed.write_text(page_path.read_text(encoding="utf-8").replace(start, start + lacking, 1), encoding="utf-8")
    page = visit(changed, text=TEXT, link=GREEDY)
    written(page, 100)
    assert page.evaluate("session.ids") == greedy()
    if "not allowed" in lacking:
        assert page.evaluate("session.engine.constructor.name !== 'WorkerEngine'")


def test_a_tab_that_sleeps_goes_on_when_it_wakes(visit: Visits, page_path: Path) -> None:
    page = visit(page_path, text=TEXT)
    written(page)
    page.select_option("#length", "2000")
    tab = page.context.new_cdp_session(page)
    page.click("#tool-write")
    until(page, f"session.tree.length > {len(TEXT)} + 20")
    tab.send("Page.setWebLifecycleState", {"state": "frozen"})
    page.wait_for_timeout(500)
    tab.send("Page.setWebLifecycleState", {"state": "active"})
    written(page, len(TEXT) + 2000)
    shown = page.evaluate("document.querySelector('.mirror').textContent.replace(/\\u200b$/, '')")
    assert page.input_value("#prompt") == re.sub("\r\n?", "\n", shown)
    page.click("#tab-attention")
    until(page, "document.querySelector('#panel-attention canvas')")
    page.click("#tab-write")
    page.click("#tool-again")
    until(page, "session.tree.made === 2 && session.tree.current.tokens.length > 5")
    page.keyboard.press("Escape")
    written(page)


def test_without_frames_the_text_comes_at_the_end(visit: Visits, page_path: Path) -> None:
    """A tab in the background gets no animation frames."""
    page = visit(page_path, text=TEXT, link="t=0")
    written(page)
    page.evaluate("window.requestAnimationFrame = () => 1")
    page.select_option("#length", "100")
    page.click("#tool-write")
    until(page, "session.tree.made === 1 && !session.writing")
    assert page.evaluate("session.ids") == greedy()
    assert page.evaluate("document.querySelectorAll('.mirror > span:nth-child(2) > span').length") > 50


def test_tabs_can_be_changed_while_the_model_writes(visit: Visits, page_path: Path) -> None:
    page = visit(page_path, text=TEXT)
    written(page)
    page.select_option("#length", "500")
    page.click("#tool-write")
    for tab in ("attention", "step", "attention", "write"):
        page.click(f"#tab-{tab}")
        page.wait_for_timeout(60)
    written(page, len(TEXT) + 500)
    page.click("#tab-attention")
    until(page, "document.querySelector('#panel-attention canvas')")
    page.click("#tab-step")
    until(page, "document.querySelector('.step-stage canvas').height > 40")


# --- size ---


def test_a_text_of_2000_characters_leaks_nothing(visit: Visits, page_path: Path) -> None:
    """Nodes grow with the text and go with it; listeners do not grow; what the heap keeps is the text's branches."""
    page = visit(page_path, text=TEXT)
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable")

    def counts() -> dict[str, float]:
        browser.send("HeapProfiler.collectGarbage")
        return {one["name"]: one["value"] for one in browser.send("Performance.getMetrics")["metrics"]}

    def grow(tokens: str) -> dict[str, float]:
        page.select_option("#length", tokens)
        made = page.evaluate("session.tree.made")
        page.click("#tool-write")
        until(page, f"session.tree.made > {made}")
        written(page, int(tokens))
        return counts()

    written(page)
    grow("50")
    start = grow("50")
    characters = page.evaluate("document.getElementById('prompt').value.length")
    grown = grow("2000")
    characters = page.evaluate("document.getElementById('prompt').value.length") - characters
    assert characters > 1000
    assert grown["JSEventListeners"] <= start["JSEventListeners"] + 10
    assert grown["Nodes"] - start["Nodes"] < 3 * characters  # a cell and its text
    assert grown["JSHeapUsedSize"] - start["JSHeapUsedSize"] < 4000 * characters
    page.fill("#prompt", TEXT)
    written(page)
    ended = counts()
    assert ended["Nodes"] < start["Nodes"] + 500
    assert ended["JSEventListeners"] <= start["JSEventListeners"] + 10
    # Written, erased and written again: the same.
    for _ in range(2):
        again = grow("500")
        page.fill("#prompt", TEXT)
        written(page)
        ended = counts()
    assert ended["JSEventListeners"] <= start["JSEventListeners"] + 20
    assert again["Nodes"] < grown["Nodes"] + 500
    assert ended["JSHeapUsedSize"] < grown["JSHeapUsedSize"] + 3e6


def test_a_page_of_30_megabytes_opens_and_writes(visit: Visits, tmp_path: Path) -> None:
    model = gpt(n_layer=9, n_embd=512, n_head=8, context_length=128)
    path = ModelPage(model, "큰 모델").save(tmp_path / "page.html")
    assert path.stat().st_size > 30e6
    page = visit(path, text=TEXT, link="t=0&n=20")
    written(page, len(TEXT) + 20)
    ids = model.tokenizer.encode(TEXT).tolist()
    [expected] = generate(rounded(model), TEXT, tokens=20, temperature=0)
    assert page.evaluate("session.ids") == [*ids, *expected.ids]


# --- input methods ---


def test_hangul_is_composed_in_the_field_of_a_classifier(visit: Visits, tmp_path: Path) -> None:
    page = visit(save_page(tmp_path, "classifier"))
    page.focus("#prompt")
    page.evaluate(
        "const { field } = { field: document.getElementById('prompt') };"
        "window.settings = 0; window.composed = [];"
        "const { set, get } = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value');"
        "Object.defineProperty(field, 'value', { get, set(text) { window.settings += 1; set.call(this, text); } });"
        "field.addEventListener('compositionend', ({ data }) => window.composed.push(data));"
    )
    keyboard = page.context.new_cdp_session(page)
    for syllable in (("ㅎ", "하", "학"), ("ㄱ", "교")):
        for state in syllable:
            keyboard.send("Input.imeSetComposition", {"text": state, "selectionStart": 1, "selectionEnd": 1})
            page.wait_for_timeout(200)  # longer than the pause after which the words are left out one by one
        keyboard.send("Input.insertText", {"text": syllable[-1]})
    assert page.input_value("#prompt") == "학교"
    assert page.evaluate("window.composed") == ["학", "교"]
    assert page.evaluate("window.settings") == 0
    until(page, "document.querySelector('.decisive').textContent === '학교'")
    assert "–" not in page.locator(".label-value").all_inner_texts()
