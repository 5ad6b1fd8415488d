"""Pages in Firefox and in WebKitGTK, the engine of Safari, opened from disk and used as in Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

import jumok
from jumok.inference.answer import answer
from jumok.inference.chat import answer_chats
from jumok.inference.generate import generate
from jumok.interpret.record import record
from jumok.view.model_page import rounded
from model_pages import MODELS, TEXT, gpt
from webdriver import BROWSERS, Window

pytestmark = [pytest.mark.browser, pytest.mark.long]

ModelPages = Callable[[str], Path]

READY = "window.jumok.ready.then(({ session }) => { window.session = session; return session.language; })"
CONTROLS = "button, input, select, textarea, [role=img], [tabindex='0']"
NAMELESS = f"""[...document.querySelectorAll("{CONTROLS}")].filter((node) =>
  !(node.ariaLabel || node.getAttribute("aria-labelledby") || node.textContent.trim() || node.labels?.length)
).map((node) => node.outerHTML.slice(0, 200))"""
# What an answer says, without the tokens of the template that "look inside" shows.
TEXT_OF_ANSWER = """(turn) => [...turn.querySelectorAll(":scope > .chat-text > .token:not(.special)")]
  .map((one) => one.textContent).join("")"""
# The colours of a part of the canvas: a picture has many.
COLOURS = """(() => {
  const canvas = document.getElementById("base");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
  return found.size;
})()"""


@pytest.fixture(scope="module", params=BROWSERS)
def window(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    with BROWSERS[request.param](tmp_path_factory.mktemp(request.param)) as found:
        found.open("about:blank")
        found.resize(1280, 800)
        yield found


def visit(window: Window, path: Path, text: str, link: str = "") -> None:
    window.open("about:blank")  # or a link to the page that is open would not load it again
    window.open(path, f"#text={quote(text)}&{link}")
    window.until("window.jumok")
    assert window.evaluate(READY) in ("ko", "en")


def written(window: Window) -> None:
    window.until("!session.writing && session.tree.current.kind !== 'typed'")
    window.until("session.tree.path().slice(-5).every(({ surprise }) => surprise !== undefined)")


def test_the_viewer_shows_weights_of_a_korean_text(window: Window, tmp_path: Path) -> None:
    model: Any = gpt()
    page = jumok.view(model, TEXT, tokens=4, seed=1, probe=True, name="gpt").save(tmp_path / "view.html")
    window.open(page, "#language=ko")
    window.evaluate("window.jumok.ready")
    assert window.evaluate("document.documentElement.lang") == "ko"
    for view in ("model", "neurons", "matrix", "text", "heads"):
        window.click(f"#tab-{view}")
        window.until(f"jumok.state.view === '{view}'")
        window.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert window.evaluate(COLOURS) > 20, view
    before = window.evaluate("jumok.state.token")
    window.evaluate("document.getElementById('stage').focus()")
    window.press("ArrowDown")
    window.until(f"jumok.state.token !== {before}")
    row = window.evaluate("jumok.row('self', 1, 2, 9)")
    with record(model) as recording, torch.inference_mode():
        model(torch.tensor(model.tokenizer.encode(TEXT))[None])
    expected = recording.attention("self", 1).weights(2)[0, 0, 9]
    assert (torch.tensor(row)[: len(expected)] - expected).abs().sum() < 0.04  # weights of 8 bits
    window.press("l")
    window.until("document.documentElement.lang === 'en'")
    assert window.complaints() == []


def test_a_conversation_is_answered_as_in_python(window: Window, model_page: ModelPages) -> None:
    visit(window, model_page("chat"), "나는 학교에", "lang=ko&t=0")
    window.until("document.querySelector('#chat-again')")
    window.type("#chat-message", "<|end|>")
    window.evaluate("document.getElementById('chat-message').form.requestSubmit()")
    window.until("document.querySelectorAll('.chat-turn').length === 4 && document.querySelector('#chat-again')")
    window.click("#chat-inside")
    window.click(".assistant:last-child .token")
    window.until("document.querySelectorAll('.candidate').length > 5")
    texts = window.evaluate("[...document.querySelectorAll('.user > .chat-text')].map((one) => one.textContent)")
    assert texts == ["나는 학교에", "<|end|>"]
    [[expected]] = answer_chats(rounded(MODELS["chat"]()), [[{"role": "user", "content": texts[0]}]], tokens=400)
    found = window.evaluate(f"[...document.querySelectorAll('.assistant')].map(({TEXT_OF_ANSWER}))[0]")
    assert found == expected.text
    assert window.evaluate(NAMELESS) == []
    assert window.complaints() == []


def test_a_page_with_a_model_writes_and_explains_itself(window: Window, model_page: ModelPages) -> None:
    """WebKit could not read a Blob in a worker of a page from disk, so that the page called itself damaged."""
    visit(window, model_page("jamo"), TEXT, "lang=ko&t=0&n=100")
    written(window)
    model: Any = MODELS["jamo"]()
    [expected] = generate(rounded(model), TEXT, tokens=100, temperature=0)
    assert window.evaluate("[...session.ids]") == [*model.tokenizer.encode(TEXT).tolist(), *expected.ids]
    window.evaluate("session.set({ place: 4 })")
    window.until(
        "!document.querySelector('.distribution[aria-busy]') && document.querySelectorAll('.candidate').length > 5"
    )
    window.click(".candidate[aria-pressed=false]")
    window.until("session.tree.current.kind === 'chosen' && !session.writing")
    window.click("#tab-step")
    window.until("document.querySelector('.step-stage canvas')?.height > 40")
    window.click("[data-part=softmax]")
    window.until("document.querySelector('.step-sentences').textContent.length > 30")
    assert window.evaluate("document.querySelectorAll('.step-checks .differs').length") == 0
    window.click("#tab-attention")
    window.until("document.querySelector('#viewer-head-switch')")
    window.click("#viewer-head-switch")
    window.until("session.off.length === 1 && document.querySelector('.attention-effect')")
    assert window.evaluate(NAMELESS) == []
    window.click("#tab-write")
    window.click("[data-head]")
    window.until("session.off.length === 0")
    window.evaluate("document.getElementById('prompt').select()")
    window.type("#prompt", "학교")
    window.until("document.getElementById('prompt').value.endsWith('학교')")
    window.until("session.tree.current.kind === 'typed' && session.tree.path().at(-1).surprise > 0")
    assert window.evaluate(NAMELESS) == []
    assert window.complaints() == []


def test_a_classifier_a_bert_and_an_encoder_decoder(window: Window, model_page: ModelPages) -> None:
    visit(window, model_page("classifier"), TEXT, "lang=ko")
    window.until("document.querySelectorAll('.decisive span').length > 3")
    visit(window, model_page("bert"), "나는 [MASK]에 갔다.", "lang=en")
    window.until("document.querySelectorAll('.candidate').length === 8")
    window.click(".candidate")
    window.until("!document.getElementById('prompt').value.includes('[MASK]')")
    visit(window, model_page("pairs"), "갔다.", "lang=ko")
    window.until("!session.writing && document.querySelector('.answer-text').textContent")
    [[expected]] = answer(rounded(MODELS["pairs"]()), ["갔다."])
    assert window.evaluate("document.querySelector('.answer-text').textContent") == expected.text
    window.until("[...document.querySelectorAll('.trace canvas')].some(({ height }) => height > 40)")
    assert window.complaints() == []


def test_a_damaged_page_says_so(window: Window, model_page: ModelPages, tmp_path: Path) -> None:
    """WebKit has no SHA-256 for a page from disk, so another checksum has to notice it."""
    html = model_page("gpt").read_text(encoding="utf-8")
    at = html.index('id="jumok-parameters">') + 4000
    page = tmp_path / "page.html"
    page.write_text(html[:at] + ("A" if html[at] != "A" else "B") + html[at + 1 :], encoding="utf-8")
    window.open(page)
    window.until("document.querySelector('.trouble[data-error=\"engine.damaged\"]')")
    shown = window.evaluate("document.querySelector('.trouble').textContent")
    assert "파일" in shown
    assert "damaged" in shown
