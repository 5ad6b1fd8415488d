"""The page that holds a model, in a real browser: with the network off, and with texts that mean harm.

The models are tiny and random; what they compute is compared with Python in test_page_engine.py. Whatever a test does,
no request may leave the page and nothing may be complained about in the console; the fixture `visit` sees to that.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize
from urllib.parse import quote

import pytest
import torch
from torch import nn

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.models import build
from jumok.tokenizers import train_tokenizer
from jumok.view.model_page import ModelPage

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")

pytestmark = [pytest.mark.browser, pytest.mark.long]

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다."
HOSTILE = (
    "</script><script>window.harmed=1</script> <img/src=x/onerror=window.harmed=2> \u202e거꾸로\u202c {{script}} &lt;"
)
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 64}


def scrambled(model: Any, words: Any) -> Any:
    torch.manual_seed(4)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.35)
    model.tokenizer = words
    return model.eval()


def gpt(kind: str = "char", **settings: Any) -> Any:
    words = train_tokenizer((TEXT + "\n") * 4, kind)
    return scrambled(build(GPTConfig(vocab_size=words.vocab_size, n_kv_head=2, **{**SIZES, **settings})), words)


def bert() -> Any:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    return scrambled(build(BERTConfig(vocab_size=words.vocab_size, **SIZES)), words)


def pairs() -> Any:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids: dict[str, Any] = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    sizes = {**SIZES, "context_length": 24}
    return scrambled(build(EncoderDecoderConfig(vocab_size=words.vocab_size, **sizes, **ids)), words)


class Pages:
    """Pages, each made when it is first asked for."""

    MODELS: ClassVar[dict[str, Callable[[], Any]]] = {
        "gpt": gpt,
        "jamo": lambda: gpt("jamo"),
        "bpe": lambda: gpt("bpe"),
        "classifier": lambda: gpt(labels=("부정", HOSTILE)),
        "bert": bert,
        "pairs": pairs,
    }

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Path] = {}

    def __call__(self, name: str, change: Callable[[str], str] = str) -> Path:
        if name not in self._made:
            texts: dict[str, Any] = (
                {"title": HOSTILE, "note": HOSTILE, "licence": HOSTILE} if name == "classifier" else {}
            )
            self._made[name] = ModelPage(self.MODELS[name](), name, **texts).save(self._folder / f"{name}.html")
        changed = self._folder / f"{name}-changed.html"
        html = self._made[name].read_text(encoding="utf-8")
        if change is str:
            return self._made[name]
        changed.write_text(change(html), encoding="utf-8")
        return changed


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("model-pages"))


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
    """Open a page in a window of its own, offline; afterwards nothing may have been asked for or complained about."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(path: Path, *, text: str = "", link: str = "", before: str = "", **settings: Any) -> Any:
        settings = {
            "viewport": {"width": 1280, "height": 800},
            "locale": "en-US",
            "reduced_motion": "reduce",
            **settings,
        }
        context = browser.new_context(offline=True, accept_downloads=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        if before:
            page.add_init_script(before)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        url = path.as_uri()
        allowed = (url, "data:", "blob:")
        page.on("request", lambda one: complaints.extend([one.url] * (not one.url.startswith(allowed))))
        page.goto(f"{url}#text={quote(text)}&{link}" if text or link else url)
        page.evaluate("window.jumok.ready.then(({ session }) => { window.session = session; })")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def until(page: Any, condition: str) -> None:
    """Wait until a condition holds in the page."""
    deadline = time.monotonic() + 60
    while not page.evaluate(f"!!({condition})"):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(15)


def written(page: Any, least: int = 1) -> None:
    """Wait until something is written, and all of it is scored and shown."""
    until(page, f"!session.writing && session.tree.length >= {least}")
    until(page, "session.tree.path().slice(1).slice(-5).every(({ surprise }) => surprise !== undefined)")


def write(page: Any, tokens: str = "50") -> None:
    page.select_option("#length", tokens)
    before = page.evaluate("session.tree.made")
    page.click("#tool-write")
    until(page, f"session.tree.made > {before}")
    written(page)


CELLS = "[...document.querySelectorAll('.mirror > span:nth-child(2) > span')]"


def text_of(page: Any) -> str:
    """What stands in the field, which must be what stands in the cells behind it."""
    shown = page.evaluate("document.querySelector('.mirror').textContent.replace(/\\u200b$/, '')")
    text = re.sub("\r\n?", "\n", shown)  # a field has no carriage returns, which a random model writes
    assert page.input_value("#prompt") == text
    return text


def ids(page: Any) -> list[int]:
    return list(page.evaluate("session.ids"))


# --- writing ---


def test_a_page_writes_when_it_is_opened(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), reduced_motion="no-preference")
    written(page, 100)
    assert len(text_of(page)) > 50
    assert page.evaluate(f"{CELLS}.every(({{ className }}) => /(^| )t\\d+ m\\d/.test(className))")
    assert "characters a second" in page.inner_text("#reading")
    assert "outside the context" in page.inner_text("#reading")
    assert page.evaluate(f"{CELLS}[0].classList.contains('out') && !{CELLS}.at(-1).classList.contains('out')")


@pytest.mark.parametrize("kind", ["gpt", "jamo", "bpe"])
def test_what_is_typed_is_read_and_scored_and_written_on(pages: Pages, visit: Visit, kind: str) -> None:
    page = visit(pages(kind))
    page.click("#prompt")
    page.keyboard.insert_text("너는 학교에")
    until(page, "session.tree.length > 0")
    written(page)
    assert text_of(page) == "너는 학교에"
    write(page)
    whole = text_of(page)
    # Decomposed: a final consonant that jamo write first joins the last syllable.
    assert normalize("NFD", whole).startswith(normalize("NFD", "너는 학교에"))
    assert page.evaluate("session.tree.current.tokens.length") == 50

    page.focus("#prompt")
    page.evaluate("document.getElementById('prompt').setSelectionRange(3, 5)")
    page.keyboard.insert_text("나라")
    until(page, "session.tree.current.kind === 'typed'")
    written(page)
    assert text_of(page) == "너는 나라" + whole[5:]
    assert page.evaluate("session.tree.branches().length") == 3


def test_one_can_choose_another_token_and_walk_the_branches_with_the_keyboard(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    written(page)
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    until(page, "session.tree.made > 0")
    written(page, 100)
    first = text_of(page)
    page.keyboard.press("Home")
    page.keyboard.press("Control+Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    until(page, "session.place === 4")
    assert page.inner_text("#place-name") == f"In place of ‘{TEXT[4]}’"
    page.keyboard.press("Alt+ArrowRight")
    until(page, "session.place === 5")
    until(page, "document.querySelectorAll('.candidate').length > 1")
    other = page.locator(".candidate[aria-pressed=false]").first
    chosen = other.locator(".candidate-text").inner_text()
    other.focus()
    page.keyboard.press("Enter")
    until(page, "session.tree.current.kind === 'chosen'")
    written(page)
    assert page.evaluate("session.tree.path()[5].text") == chosen
    assert text_of(page).startswith(TEXT[:5])

    page.locator("[role=treeitem][aria-selected=true]").focus()
    for key in ("Home", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    until(page, "session.tree.current.kind === 'written'")
    # Texts are compared, not their lengths: a random model can write an emoji, which is two units in JavaScript.
    until(page, f"document.getElementById('prompt').value === {json.dumps(first)}")
    page.click("#tool-undo")
    until(page, "session.tree.current.kind === 'chosen'")
    page.click("#tool-redo")
    until(page, "session.tree.current.kind === 'written'")
    page.click(".compare-button >> nth=-1")
    until(page, "document.querySelectorAll('.comparison .column').length === 2")


def test_a_seed_and_a_link_give_the_same_text_again(pages: Pages, visit: Visit) -> None:
    link = "n=40&seed=7&t=1.2&k=20&lang=ko"
    texts = []
    for _ in range(2):
        page = visit(pages("gpt"), text=TEXT, link=link)
        written(page, len(TEXT) + 40)
        texts.append(text_of(page))
    assert texts[0] == texts[1]
    assert page.evaluate("document.documentElement.lang") == "ko"
    assert page.evaluate("session.sampling") == {"temperature": 1.2, "top_k": 20, "top_p": 1, "seed": 7}
    page.click("#tool-again")
    until(page, "session.tree.made === 2")
    written(page)
    assert text_of(page) != texts[0]
    assert text_of(page).startswith(TEXT)
    address = page.evaluate("window.jumok.ready.then(({ frame }) => frame.address())")
    assert "n=40" not in address
    assert quote(TEXT.split()[0]) in address


def test_sliders_act_at_once(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    written(page)
    page.focus("#slider-top_k")
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    until(page, "document.querySelectorAll('.candidate-out').length === 7")
    assert "3 of" in page.inner_text(".distribution .figures")
    assert page.input_value("#slider-top_k") == "2"
    page.click("[data-preset=greedy]")
    until(page, "document.querySelectorAll('.candidate-out').length === 9")
    assert page.get_attribute("[data-preset=greedy]", "aria-pressed") == "true"
    assert page.get_attribute("#slider-temperature", "aria-valuetext") == "0 (greedy)"


def test_heads_that_are_off_change_the_text(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    written(page)
    before = page.evaluate("session.tree.path().map(({ surprise }) => surprise)")
    page.evaluate("session.toggleHead(1, 2)")
    until(page, "session.tree.path().slice(1).every(({ under }) => under === '[[1,2]]')")
    assert page.evaluate("session.tree.path().map(({ surprise }) => surprise)") != before
    page.click("#tool-both")
    until(page, "session.tree.made === 2 && !session.writing")
    until(page, "document.querySelectorAll('.comparison .column').length === 2")
    heads = page.locator(".column-head").all_inner_texts()
    assert heads[0].startswith("all heads")
    assert heads[1].startswith("without heads 1.2")
    page.click("[data-head='1.2']")
    until(page, "session.off.length === 0")
    assert not page.is_visible(".off-heads")


def test_stop_ends_writing_and_keeps_what_is_there(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    page.select_option("#length", "2000")
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    until(page, f"session.tree.length > {len(TEXT)} + 5")
    page.keyboard.press("Escape")
    written(page)
    assert len(TEXT) + 5 < len(ids(page)) < 2000
    assert text_of(page).startswith(TEXT)


def test_hangul_is_composed_undisturbed(pages: Pages, visit: Visit) -> None:
    """Setting the field while a syllable is composed would end the composition, and type ㅎㅏ for 하."""
    page = visit(pages("gpt"))
    page.focus("#prompt")
    page.evaluate(
        "window.settings = 0; for (const name of ['setSelectionRange', 'setRangeText'])"
        "  document.getElementById('prompt')[name] = () => { window.settings += 1; }; 0;"
    )
    keyboard = page.context.new_cdp_session(page)
    for syllable in (("ㅎ", "하", "학"), ("ㄱ", "교")):
        for state in syllable:
            keyboard.send("Input.imeSetComposition", {"text": state, "selectionStart": 1, "selectionEnd": 1})
            page.wait_for_timeout(160)  # longer than the pause after which typed text is read
            assert page.evaluate("document.querySelector('.mirror').textContent").startswith(
                page.input_value("#prompt")
            )
        keyboard.send("Input.insertText", {"text": syllable[-1]})
    until(page, "session.tree.length === 2")
    assert page.input_value("#prompt") == "학교"
    assert page.evaluate("window.settings") == 0


def test_html_is_pasted_as_text(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), permissions=["clipboard-read", "clipboard-write"])
    page.evaluate(
        "navigator.clipboard.write([new ClipboardItem({"
        "  'text/html': new Blob(['<b>너는</b>'], { type: 'text/html' }),"
        "  'text/plain': new Blob(['너는'], { type: 'text/plain' }) })])"
    )
    page.focus("#prompt")
    page.keyboard.press("Control+V")
    until(page, "session.tree.length === 2")
    assert text_of(page) == "너는"
    page.click("#tool-copy")
    assert page.evaluate("navigator.clipboard.readText()") == "너는"
    with page.expect_download() as saved:
        page.click("#tool-save")
    assert Path(saved.value.path()).read_text(encoding="utf-8") == "너는"


def test_a_growing_text_of_2000_characters_is_only_appended_to(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT, link="seed=1")
    written(page)
    page.wait_for_timeout(500)  # until the prompt is drawn with its scores, too
    page.evaluate(
        "window.first = document.querySelector('.mirror > span:nth-child(2) > span'); window.gone = 0;"
        "new MutationObserver((list) => { for (const { removedNodes } of list) window.gone += removedNodes.length; })"
        "  .observe(document.querySelector('.mirror > span:nth-child(2)'), { childList: true });"
    )
    page.select_option("#length", "2000")
    page.click("#tool-write")
    until(page, "session.tree.length > 1500")
    until(page, f"{CELLS}.length > 1000")
    assert page.evaluate(f"window.first === {CELLS}[0] && window.gone === 0")
    written(page, len(TEXT) + 2000)
    assert page.evaluate(f"window.first === {CELLS}[0]")
    assert page.evaluate("session.listeners.size") < 8
    text_of(page)


def test_a_prompt_of_100000_characters_and_an_empty_one(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"))
    page.fill("#prompt", TEXT * 5000)
    until(page, f"session.tree.length === {len(TEXT) * 5000}")
    written(page)
    assert page.evaluate("document.querySelectorAll('.mirror span').length") < 7000
    write(page)
    assert text_of(page).startswith(TEXT * 5000)
    assert len(ids(page)) == len(TEXT) * 5000 + 50
    page.fill("#prompt", "")
    until(page, "session.tree.length === 0")
    write(page)
    assert page.evaluate("session.tree.path()[0].hidden")
    assert len(ids(page)) == 51
    assert text_of(page)


def test_unknown_characters_are_bytes_that_can_be_read(pages: Pages, visit: Visit) -> None:
    page = visit(pages("bpe"))
    page.fill("#prompt", "뷁a\u202eb")
    until(page, "session.tree.length > 4")
    written(page)
    assert text_of(page) == "뷁a\u202eb"
    page.evaluate("session.set({ place: 1 })")
    assert re.fullmatch(r"In place of ‘(<[0-9A-F]{2}>)+’", page.inner_text("#place-name"))


# --- other models ---


def test_a_classifier_with_hostile_labels(pages: Pages, visit: Visit) -> None:
    page = visit(pages("classifier"))
    page.focus("#prompt")
    page.keyboard.insert_text("나는 밥을 " + HOSTILE)
    until(page, "document.querySelector('.decisive').innerText === document.getElementById('prompt').value")
    assert "<script>" in page.inner_text(".decisive")
    shares = [float(one.rstrip("%")) for one in page.locator(".label-value").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert page.locator(".label-name").all_inner_texts()[1].startswith("</script>")
    page.click("#tool-help")
    assert "</script>" in page.inner_text("#help")
    assert page.evaluate("window.harmed") is None


def test_blanks_are_filled(pages: Pages, visit: Visit) -> None:
    page = visit(pages("bert"), text="나는 에 갔다.")
    page.evaluate("document.getElementById('prompt').setSelectionRange(3, 3)")
    page.click("#insert")
    assert page.input_value("#prompt") == "나는 [MASK]에 갔다."
    until(page, "document.querySelectorAll('.candidate').length === 8")
    best = page.locator(".candidate-text").first.inner_text().replace("␣", " ")
    page.locator(".candidate").first.click()
    until(page, "!document.getElementById('prompt').value.includes('[MASK]')")
    assert page.input_value("#prompt") == f"나는 {best}에 갔다."


def test_an_answer_with_beams_and_cross_attention(pages: Pages, visit: Visit) -> None:
    page = visit(pages("pairs"))
    page.fill("#prompt", "학교에 갔다")
    page.keyboard.press("Enter")
    until(page, "!session.writing && document.querySelector('.answer-text').textContent")
    until(page, "document.querySelector('.trace canvas')")
    greedy = page.inner_text(".answer-text")
    page.select_option("#beams", "3")
    until(page, "!session.writing && document.querySelectorAll('.beam-end').length === 3")
    best = page.evaluate("[...document.querySelectorAll('.beams .on > .beam-text')].map((one) => one.textContent)")
    shown = "".join(best).removesuffix("∎").replace("␣", " ")
    assert shown == page.evaluate("document.querySelector('.answer-text').textContent")
    assert greedy
    page.click("#tool-language")
    assert page.inner_text("#tool-answer") == "답하기"


# --- the frame ---


def test_words_in_both_languages_and_names_for_all_controls(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    written(page)
    write(page)
    page.evaluate("session.toggleHead(0, 0)")
    for language in ("en", "ko"):
        page.evaluate("(language) => session.set({ language })", language)
        page.click("#tool-help")
        shown = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap((node) => ['aria-label', 'title', 'placeholder']"
            "  .map((name) => node.getAttribute(name))"
            "  .concat([...node.childNodes].filter(({ nodeType }) => nodeType === 3)"
            "  .map(({ data }) => data))).filter(Boolean).filter((text) => text.length < 300)"
        )
        assert not [one for one in shown if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+|.*\{\w+\}.*", one)]
        page.keyboard.press("Escape")
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, input, select, textarea, [role=treeitem]')].filter((node) =>"
            "  !(node.getAttribute('aria-label') || node.textContent.trim() || node.labels?.length))"
            "  .map((node) => node.outerHTML)"
        )
        assert nameless == []
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#tool-theme")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def test_a_link_to_another_view_has_its_text(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT, link="view=step")
    written(page)
    assert page.is_visible("#panel-step .step")
    page.click("#tab-write")
    assert text_of(page) == TEXT


def test_tabs_with_the_keyboard(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT)
    written(page)
    page.focus("#tab-write")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#tab-step", "aria-selected") == "true"
    assert page.is_visible("#panel-step .step")
    assert not page.is_visible("#prompt")
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('#panel-attention canvas')")
    page.keyboard.press("Home")
    assert page.is_visible("#prompt")


def test_a_small_screen_with_touch(pages: Pages, visit: Visit) -> None:
    page = visit(pages("gpt"), text=TEXT, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    written(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("document.getElementById('prompt').readOnly")
    place = page.evaluate(
        f"(() => {{ const {{ x, y }} = {CELLS}[7].getBoundingClientRect(); return [x + 5, y + 8]; }})()"
    )
    page.touchscreen.tap(*place)
    until(page, "session.place === 7")
    assert page.get_attribute(".handle", "aria-expanded") == "true"
    page.wait_for_timeout(250)
    assert page.evaluate(
        f"{CELLS}[7].getBoundingClientRect().bottom < document.querySelector('.side').getBoundingClientRect().top"
    )
    page.click("#tool-edit")
    assert not page.evaluate("document.getElementById('prompt').readOnly")


# --- what can go wrong ---


@pytest.mark.parametrize(
    "before",
    ["window.Worker = class { constructor() { throw new Error('no'); } };", "delete window.WebAssembly;"],
    ids=["worker", "webassembly"],
)
def test_a_browser_that_lacks(pages: Pages, visit: Visit, before: str) -> None:
    page = visit(pages("gpt"), text=TEXT, before=before)
    written(page)
    write(page)
    assert len(ids(page)) == len(TEXT) + 50
    assert text_of(page).startswith(TEXT)


@pytest.mark.parametrize("part", ["parameters", "model"])
def test_a_damaged_page_says_so_in_both_languages(pages: Pages, browser: Any, part: str) -> None:
    def damaged(html: str) -> str:
        start = html.index(f'id="jumok-{part}">') + len(part) + 20
        return html[: start + 300] + html[start + 340 :]

    page = browser.new_context(offline=True, locale="ko-KR").new_page()
    try:
        page.goto(pages("gpt", damaged).as_uri())
        page.wait_for_selector(".trouble[data-error='engine.damaged']")
        shown = page.inner_text(".trouble")
        assert shown.index("파일") < shown.index("damaged")
    finally:
        page.context.close()


def test_a_page_that_was_cut_off_says_so(pages: Pages, browser: Any) -> None:
    """The script is the end of the file; a page without its end was empty."""

    def cut(html: str) -> str:
        return html[: html.index('id="jumok-parameters">') + 1000]

    page = browser.new_context(offline=True).new_page()
    try:
        page.goto(pages("gpt", cut).as_uri())
        shown = page.inner_text("main")
        assert "다시 받으세요" in shown
        assert "get it again" in shown
    finally:
        page.context.close()
