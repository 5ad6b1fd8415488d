"""The page that holds a model in Firefox and in WebKitGTK, the engine of Safari: opened from disk, and used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from jumok.inference.answer import answer
from jumok.inference.generate import generate
from jumok.models import Model
from jumok.view.model_page import ModelPage, rounded
from model_pages import TEXT, bert, classifier, gpt, pairs
from webdriver import BROWSERS, Window

pytestmark = [pytest.mark.browser, pytest.mark.long]

PROMPT = "너는 학교에"
GREEDY = "t=0&n=100"
READY = "window.jumok.ready.then(({ session }) => { window.session = session; return session.language; })"
CONTROLS = "button, input, select, textarea, [role=img], [tabindex='0']"
NAMELESS = f"""[...document.querySelectorAll("{CONTROLS}")].filter((node) =>
  !(node.ariaLabel || node.getAttribute("aria-labelledby") || node.textContent.trim() || node.labels?.length)
).map((node) => node.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module", params=BROWSERS)
def window(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with BROWSERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.open("about:blank")
        found.resize(1280, 800)
        yield found


def visit(window: Window, model: Model, folder: Path, link: str = "", **texts: Any) -> None:
    window.open("about:blank")  # or a link to the page that is open would not load it again
    window.open(ModelPage(model, "작은 모델", **texts).save(folder / "page.html"), f"#{link}")
    window.until("window.jumok")
    assert window.evaluate(READY) in ("ko", "en")


def written(window: Window) -> None:
    window.until("!session.writing && session.tree.current.kind !== 'typed'")
    window.until("session.tree.path().slice(-5).every(({ surprise }) => surprise !== undefined)")


@pytest.mark.parametrize("family", ["modern", "classic"])
@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_the_greedy_text_is_that_of_python(window: Window, tmp_path: Path, kind: str, family: str) -> None:
    model = gpt(kind, family=family)
    visit(window, model, tmp_path, f"text={quote(PROMPT)}&t=0&n=500")
    written(window)
    [expected] = generate(rounded(model), PROMPT, tokens=500, temperature=0)
    ids = model.tokenizer.encode(PROMPT).tolist()
    assert window.evaluate("[...session.ids]") == [*ids, *expected.ids]
    shown = window.evaluate("document.querySelector('.mirror').textContent.replace(/\\u200b$/, '')")
    assert shown.startswith(PROMPT + expected.text)  # half a character may stand at the end
    assert window.evaluate("document.getElementById('prompt').value") == shown.replace("\r\n", "\n").replace("\r", "\n")
    assert window.complaints() == []


@pytest.mark.parametrize("language", ["ko", "en"])
def test_every_tab_alternatives_and_heads_that_are_off(window: Window, tmp_path: Path, language: str) -> None:
    visit(window, gpt(), tmp_path, f"text={quote(TEXT)}&lang={language}&{GREEDY}")
    written(window)
    assert window.evaluate("document.documentElement.lang") == language
    assert (
        window.evaluate("document.getElementById('tool-write').textContent") == {"ko": "쓰기", "en": "Write"}[language]
    )

    window.evaluate("session.set({ place: 4 })")
    window.until("document.querySelectorAll('.candidate').length > 5")
    window.click(".candidate[aria-pressed=false]")
    window.until("session.tree.current.kind === 'chosen' && !session.writing")
    assert window.evaluate("session.tree.path().slice(0, 4).map(({ text }) => text).join('')") == TEXT[:4].replace(
        " ", "␣"
    )

    window.click("#tab-step")
    window.until("document.querySelector('.step-stage canvas')?.height > 40")
    window.click("[data-part=softmax]")
    window.until("document.querySelector('.step-sentences').textContent.length > 30")
    assert window.evaluate("document.querySelectorAll('.step-checks .differs').length") == 0
    assert window.evaluate(NAMELESS) == []

    window.click("#tab-attention")
    window.until("document.querySelector('#panel-attention canvas')?.height > 40")
    window.until("document.querySelector('#viewer-head-switch')")
    before = window.evaluate("session.tree.path().at(-1).surprise")
    window.click("#viewer-head-switch")
    window.until("session.off.length === 1 && document.querySelector('.attention-effect')")
    assert window.evaluate(NAMELESS) == []

    window.click("#tab-write")
    window.until(f"session.tree.path().at(-1).surprise !== {before}")
    assert window.evaluate(NAMELESS) == []
    window.click("[data-head]")
    window.until(f"Math.abs(session.tree.path().at(-1).surprise - {before}) < 1e-5")
    assert window.complaints() == []


def test_text_is_typed_and_read(window: Window, tmp_path: Path) -> None:
    visit(window, gpt(), tmp_path, "lang=ko")
    window.until("!session.writing")
    window.evaluate("document.getElementById('prompt').select()")
    window.type("#prompt", "학교")
    window.until("document.getElementById('prompt').value.endsWith('학교')")
    window.until("session.tree.path().at(-1)?.text === '교' && session.tree.path().at(-1).surprise > 0")
    assert window.complaints() == []


def test_a_classifier_a_bert_and_an_encoder_decoder(window: Window, tmp_path: Path) -> None:
    visit(window, classifier(), tmp_path, f"text={quote(TEXT)}&lang=ko")
    window.until("document.querySelectorAll('.decisive span').length > 3")
    shares = window.evaluate("[...document.querySelectorAll('.label-value')].map((one) => parseFloat(one.textContent))")
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert window.evaluate(NAMELESS) == window.complaints() == []

    visit(window, bert(), tmp_path, f"text={quote('나는 [MASK]에 갔다.')}&lang=en")
    window.until("document.querySelectorAll('.candidate').length === 8")
    window.click(".candidate")
    window.until("!document.getElementById('prompt').value.includes('[MASK]')")
    assert window.evaluate(NAMELESS) == window.complaints() == []

    model = pairs()
    visit(window, model, tmp_path, f"text={quote('갔다.')}&lang=ko")
    window.until("!session.writing && document.querySelector('.answer-text').textContent")
    [[expected]] = answer(rounded(model), ["갔다."])
    assert window.evaluate("document.querySelector('.answer-text').textContent") == expected.text
    window.until("[...document.querySelectorAll('.trace canvas')].some(({ height }) => height > 40)")
    assert window.evaluate(NAMELESS) == window.complaints() == []


def test_a_damaged_page_says_so(window: Window, tmp_path: Path) -> None:
    """WebKit has no SHA-256 for a page from disk, so another checksum has to notice it."""
    page = ModelPage(gpt(), "작은 모델").save(tmp_path / "page.html")
    html = page.read_text(encoding="utf-8")
    at = html.index('id="jumok-parameters">') + 4000
    other = "A" if html[at] != "A" else "B"
    page.write_text(html[:at] + other + html[at + 1 :], encoding="utf-8")
    window.open(page)
    window.until("document.querySelector('.trouble[data-error=\"engine.damaged\"]')")
    shown = window.evaluate("document.querySelector('.trouble').textContent")
    assert "파일" in shown
    assert "damaged" in shown
