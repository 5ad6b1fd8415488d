"""The page that holds a model, in Chromium: writing, one step, attention, the other kinds of models, damage.

The models are tiny and random; what they compute is compared with Python in test_page_engine.py. No request may leave
the page and nothing may be complained about in the console; the fixture `visit` sees to that.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import quote

import numpy as np
import pytest
import torch

from jumok.inference.generate import generate
from jumok.interpret.ablation import ablate
from jumok.interpret.record import record
from jumok.view.model_page import ModelPage, rounded
from model_pages import FLAGS, HOSTILE, MODELS, TEXT, Visits, gpt, program, until, written

pytestmark = [pytest.mark.browser, pytest.mark.long]

ModelPages = Callable[[str], Path]

CELLS = "[...document.querySelectorAll('.mirror > span:nth-child(2) > span')]"
GREEDY = "t=0&n=100"
STEP, ATTENTION = "made.get('step').view", "made.get('attention').view"


def write(page: Any, tokens: str = "50") -> None:
    page.select_option("#length", tokens)
    before = page.evaluate("session.tree.made")
    page.click("#tool-write")
    until(page, f"session.tree.made > {before}")
    written(page)


def text_of(page: Any) -> str:
    """What stands in the field, which must be what stands in the cells behind it."""
    shown = page.evaluate("document.querySelector('.mirror').textContent.replace(/\\u200b$/, '')")
    text = re.sub("\r\n?", "\n", shown)  # a field has no carriage returns, which a random model writes
    assert page.input_value("#prompt") == text
    return text


def ids(page: Any) -> list[int]:
    return list(page.evaluate("session.ids"))


def greedy() -> list[int]:
    """What the page of the model "gpt" writes after TEXT at temperature 0."""
    model = MODELS["gpt"]()
    [expected] = generate(rounded(model), TEXT, tokens=100, temperature=0)
    return [*model.tokenizer.encode(TEXT).tolist(), *expected.ids]  # type: ignore[union-attr]


# --- writing ---


def test_a_page_writes_when_it_is_opened(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"), reduced_motion="no-preference")
    written(page, 100)
    assert len(text_of(page)) > 50
    assert page.evaluate(f"{CELLS}.every(({{ className }}) => /(^| )t\\d+ m\\d/.test(className))")
    assert "characters a second" in page.inner_text("#reading")
    assert "outside the context" in page.inner_text("#reading")
    assert page.evaluate(f"{CELLS}[0].classList.contains('out') && !{CELLS}.at(-1).classList.contains('out')")


@pytest.mark.parametrize("name", ["gpt", "jamo", "bpe"])
def test_what_is_typed_is_read_and_scored_and_written_on(model_page: ModelPages, visit: Visits, name: str) -> None:
    page = visit(model_page(name))
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
    page.fill("#prompt", "뷁a\u202eb")
    until(page, "session.tree.current.kind === 'typed' && session.tree.length > 3")
    written(page)
    assert text_of(page) == "뷁a\u202eb"
    page.evaluate("session.set({ place: 1 })")
    assert "\u202e" not in page.inner_text("#place-name")


def test_a_chat_that_is_typed_keeps_its_tokens(model_page: ModelPages, visit: Visits) -> None:
    """Its special tokens were letters. As tokens they stay in the text, and what is typed behind them changes none."""
    tokenizer = MODELS["chat"]().tokenizer
    assert tokenizer is not None
    page = visit(model_page("chat"))
    page.click("#tab-write")
    prompt = "<|user|>\n나는?<|end|>\n<|assistant|>\n"
    for text in (prompt, prompt + "나는"):
        page.fill("#prompt", text)
        until(page, f"session.ids.length === {len(tokenizer.encode_prompt(text))}")
        written(page)
        assert ids(page) == tokenizer.encode_prompt(text).tolist()
        assert text_of(page) == text
    write(page)
    assert text_of(page).startswith(prompt + "나는")
    assert ids(page)[: len(tokenizer.encode_prompt(prompt))] == tokenizer.encode_prompt(prompt).tolist()


def test_a_candidate_of_another_place_is_not_chosen(model_page: ModelPages, visit: Visits) -> None:
    """Those of the place before are on the page until those of the new one are computed."""
    page = visit(model_page("gpt"), text=TEXT)
    written(page)
    page.evaluate("session.set({ place: 3 })")
    until(page, "!document.querySelector('.distribution[aria-busy]') && document.querySelector('.candidate:enabled')")
    page.evaluate(
        """() => {
          const next = session.engine.next.bind(session.engine);
          const held = new Promise((resolve) => (window.release = resolve));
          session.engine.next = async (...given) => (await held, next(...given));
          session.set({ place: 5 });
        }"""
    )
    page.locator(".candidate[aria-pressed=false]").first.click()
    assert page.evaluate("session.tree.branches().length") == 1
    page.evaluate("void window.release()")
    until(page, "!document.querySelector('.distribution[aria-busy]')")
    page.locator(".candidate[aria-pressed=false]").first.click()
    until(page, "session.tree.current.kind === 'chosen'")


def test_one_can_choose_another_token_and_walk_the_branches_with_the_keyboard(
    model_page: ModelPages, visit: Visits
) -> None:
    page = visit(model_page("gpt"), text=TEXT)
    written(page)
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    until(page, "session.tree.made > 0")
    written(page, 100)
    first = text_of(page)
    page.keyboard.press("Control+Home")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    until(page, "session.place === 4")
    assert page.inner_text("#place-name") == f"In place of ‘{TEXT[4]}’"
    page.keyboard.press("Alt+ArrowRight")
    until(page, "session.place === 5 && !document.querySelector('.distribution[aria-busy]')")
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


def test_a_seed_and_a_link_give_the_same_text_again(model_page: ModelPages, visit: Visits) -> None:
    texts = []
    for _ in range(2):
        page = visit(model_page("gpt"), text=TEXT, link="n=40&seed=7&t=1.2&k=20&lang=ko")
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


def test_sliders_act_at_once_and_heads_that_are_off_change_the_text(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"), text=TEXT)
    written(page)
    page.focus("#slider-top_k")
    for key in ("Home", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    until(page, "document.querySelectorAll('.candidate-out').length === 7")
    assert "3 of" in page.inner_text(".distribution .figures")
    page.click("[data-preset=greedy]")
    until(page, "document.querySelectorAll('.candidate-out').length === 9")
    assert page.get_attribute("[data-preset=greedy]", "aria-pressed") == "true"
    assert page.get_attribute("#slider-temperature", "aria-valuetext") == "0 (greedy)"
    before = page.evaluate("session.tree.path().map(({ surprise }) => surprise)")
    page.evaluate("session.toggleHead(1, 2)")
    until(page, "session.tree.path().slice(1).every(({ under }) => under === '[[1,2]]')")
    assert page.evaluate("session.tree.path().map(({ surprise }) => surprise)") != before
    page.click("#tool-both")
    until(page, "session.tree.made === 2 && !session.writing")
    until(page, "document.querySelectorAll('[role=treeitem]').length === 3")
    figures = page.locator(".branch-figures").all_inner_texts()
    assert ["off" in one for one in figures] == [False, False, True]
    page.click("[data-head='1.2']")
    until(page, "session.off.length === 0")
    page.select_option("#length", "2000")
    page.focus("#prompt")
    page.keyboard.press("Control+Enter")
    until(page, "session.tree.current.tokens.length > 5")
    page.keyboard.press("Escape")
    written(page)
    assert 5 < page.evaluate("session.tree.current.tokens.length") < 2000


@pytest.mark.parametrize("name", ["gpt", "classifier"])
def test_hangul_is_composed_undisturbed(model_page: ModelPages, visit: Visits, name: str) -> None:
    """Setting the field while a syllable is composed would end the composition, and type ㅎㅏ for 하."""
    page = visit(model_page(name))
    page.focus("#prompt")
    page.evaluate(
        "const field = document.getElementById('prompt'); window.settings = 0;"
        "const { set, get } = Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value');"
        "Object.defineProperty(field, 'value', { get, set(text) { window.settings += 1; set.call(this, text); } });"
    )
    keyboard = page.context.new_cdp_session(page)
    for syllable in (("ㅎ", "하", "학"), ("ㄱ", "교")):
        for state in syllable:
            keyboard.send("Input.imeSetComposition", {"text": state, "selectionStart": 1, "selectionEnd": 1})
            page.wait_for_timeout(200)  # longer than the pause after which typed text is read
        keyboard.send("Input.insertText", {"text": syllable[-1]})
    assert page.input_value("#prompt") == "학교"
    assert page.evaluate("window.settings") == 0
    shown = (
        "session.tree.length === 2" if name == "gpt" else "document.querySelector('.decisive').textContent === '학교'"
    )
    until(page, shown)


def test_html_is_pasted_as_text(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"), permissions=["clipboard-read", "clipboard-write"])
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


def test_a_growing_text_of_2000_characters_is_only_appended_to_and_leaks_nothing(
    model_page: ModelPages, visit: Visits
) -> None:
    """Nodes grow with the text and go with it; listeners do not grow."""
    page = visit(model_page("gpt"), text=TEXT, link="seed=1")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def counts() -> dict[str, float]:
        devtools.send("HeapProfiler.collectGarbage")
        return {one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]}

    written(page)
    write(page)
    until(page, "session.tree.path().slice(1).every(({ surprise }) => surprise !== undefined)")
    page.wait_for_timeout(500)  # until the text is drawn with its scores, too
    start = counts()
    page.evaluate(
        """() => {
            const cells = document.querySelector('.mirror > span:nth-child(2)');
            const first = cells.firstElementChild;
            let gone = 0;
            new MutationObserver((list) => {
                for (const { removedNodes } of list) gone += removedNodes.length;
                // What is drawn anew once all is written comes later than this.
                if (cells.childElementCount > 1000) window.kept ??= gone === 0 && cells.firstElementChild === first;
            }).observe(cells, { childList: true });
        }"""
    )
    page.select_option("#length", "2000")
    page.click("#tool-write")
    until(page, "window.kept !== undefined")
    assert page.evaluate("window.kept")
    written(page, len(TEXT) + 2000)
    characters = len(text_of(page))
    grown = counts()
    assert grown["JSEventListeners"] <= start["JSEventListeners"] + 10
    assert grown["Nodes"] - start["Nodes"] < 3 * characters  # a cell and its text
    page.fill("#prompt", TEXT)
    until(page, f"session.tree.length === {len(TEXT)} && {CELLS}.length === {len(TEXT)}")
    assert counts()["Nodes"] < start["Nodes"] + 500


def test_a_prompt_of_100000_characters_and_an_empty_one(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"))
    page.fill("#prompt", TEXT * 5000)
    until(page, f"session.tree.length === {len(TEXT) * 5000}")
    written(page)
    assert page.evaluate("document.querySelectorAll('.mirror span').length") < 7000
    write(page)
    assert text_of(page).startswith(TEXT * 5000)
    page.fill("#prompt", "")
    until(page, "session.tree.length === 0")
    write(page)
    assert page.evaluate("session.tree.path()[0].hidden")
    assert len(ids(page)) == 51
    assert text_of(page)


# --- one step ---


@pytest.mark.parametrize("name", ["gpt", "classic"])
def test_the_numbers_of_a_step_are_the_model_s(model_page: ModelPages, visit: Visits, name: str) -> None:
    """At a place in the middle of the text; and each part explains itself, and its sums agree."""
    model = rounded(MODELS[name]())
    page = visit(model_page(name), text=TEXT, link="view=step&lang=ko")
    position, layer, head = 11, 1, 1
    page.click(f"#step-layer-{layer}")
    page.click(f"#step-head-{head}")
    page.click(f"#step-place-{position}")
    until(page, f"{STEP}.data?.step.position === {position} && {STEP}.data.layerNumber === {layer}")
    text = torch.tensor([ids(page)[: position + 1]])
    with record(model) as recording, torch.inference_mode():
        logits = model(text)[0, -1]  # type: ignore[operator]
    weights = recording.attention("self", layer).weights(head)[0, 0, -1].numpy()
    np.testing.assert_allclose(page.evaluate(f"[...{STEP}.data.head.weights]"), weights, atol=1e-3)
    np.testing.assert_allclose(page.evaluate(f"[...{STEP}.data.step.logits]"), logits.numpy(), atol=2e-3, rtol=1e-3)
    seen, sums = set(), 0
    parts = page.evaluate(f"{STEP}.parts.map(({{id}}) => id)")
    for part in parts:
        page.click(f"[data-part={part}]")
        words = page.locator(".step").inner_text() + str(page.locator(".step-stage").get_attribute("aria-label"))
        assert not re.search(r"\{\w+\}|undefined|NaN|step\.", words), part
        seen.add(page.locator(".step-sentences").inner_text())
        assert page.locator(".step-checks .differs").count() == 0
        sums += page.locator(".step-checks .agrees").count()
        assert page.evaluate("document.querySelector('.step-stage canvas').height") > 40
    assert len(parts) == (22 if name == "gpt" else 20)  # of the two, only "gpt" has a rotation, and norms of q and k
    assert len(seen) == len(parts)
    assert sums >= 9


def test_the_player_walks_through_the_parts_by_keyboard(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"), text=TEXT, link="view=step", reduced_motion="no-preference")
    until(page, f"{STEP}.data && !session.writing")
    page.locator(".step-stage").focus()
    for key, condition in (
        ("n", "player.index === 1"),
        ("p", "player.index === 0"),
        ("]", "data.layerNumber === 1"),
        (".", "head === 1"),
        (" ", "player.playing"),
        (" ", "player.playing === false"),
    ):
        page.keyboard.press(key)
        until(page, f"{STEP}.{condition}")
    page.click("[data-player=play]")
    until(page, f"{STEP}.player.index > 0 && {STEP}.player.shown < 1")  # the picture moves
    page.click("[data-player=play]")
    page.click("[data-part=draw]")
    assert page.locator("[data-player=next]").is_disabled()
    page.locator(".step-places").focus()
    page.keyboard.press("Home")
    until(page, f"{STEP}.data.step.position === 0")
    page.keyboard.press("ArrowRight")
    until(page, f"{STEP}.data.step.position === 1")
    # The text goes on, so its next token is known and stands in the sentence.
    assert f"‘{TEXT[2].replace(' ', '␣')}’" in page.locator(".step-sentences").inner_text()
    page.keyboard.press("End")
    page.click("[data-part=scores]")
    page.locator(".step-stage").focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)  # the numbers of the picture are read by arrows
    q = page.evaluate(f"{STEP}.data.head.qRotated[1]")
    said = page.locator(".step > .step-announcer").inner_text()
    assert "[1]" in said
    assert float(said.split(": ")[-1].replace("−", "-")) == pytest.approx(q, abs=1e-4)
    for _ in range(3):
        page.keyboard.press("ArrowDown")  # to the products, then to the tokens
    page.keyboard.press("Enter")
    until(page, f"{STEP}.focus !== null")
    page.evaluate("session.toggleHead(1, 1)")
    until(page, f"{STEP}.data.off && {STEP}.data.head.output.every((value) => value === 0)")
    assert page.locator("#step-head-1").get_attribute("aria-label") == "Head 1, off"


# --- attention ---


def test_attention_is_that_of_the_text_and_of_the_heads_that_are_on(model_page: ModelPages, visit: Visits) -> None:
    model = rounded(gpt())
    page = visit(model_page("gpt"), text=TEXT, link="view=attention")

    def require_shown(layer: int, head: int) -> None:
        until(page, f"session.ids.length && {ATTENTION}.known === JSON.stringify([session.ids, session.off])")
        text = ids(page)[-64:]
        with ablate(model, [tuple(one) for one in page.evaluate("session.off")]), record(model) as recording:
            model(torch.tensor([text]))  # type: ignore[operator]
        expected = recording.attention("self", layer).weights(head)[0, 0].detach().numpy()
        shown = page.evaluate(f"{ATTENTION}.shell.trace.weights('self', {layer}, {head}).then(({{data}}) => [...data])")
        assert (np.abs(np.reshape(shown, expected.shape) - expected).sum(-1) / 2).max() < 0.03

    require_shown(1, 1)
    page.click("#tab-write")
    page.select_option("#length", "50")
    page.click("#tool-write")
    page.click("#tab-attention")  # while it is written; then the whole text is shown
    until(page, "!session.writing && session.tree.made === 1")
    until(page, f"{ATTENTION}.known === JSON.stringify([session.ids, session.off])")
    page.click("#tab-write")
    page.fill("#prompt", TEXT)
    until(page, f"session.tree.length === {len(TEXT)}")
    page.click("#tab-attention")
    require_shown(1, 2)
    page.locator("#viewer-layer").select_option("0")
    page.locator("#viewer-chip-2").click(modifiers=["Alt"])
    page.locator("#viewer-stage").focus()
    page.keyboard.press("x")
    until(page, "JSON.stringify(session.off) === '[[0,2]]' && document.querySelector('.attention-effect')")
    require_shown(1, 0)
    text = torch.tensor([ids(page)])
    with torch.inference_mode():
        whole = model(text)[0, -1].softmax(-1)  # type: ignore[operator]
        with ablate(model, [(0, 2)]):
            without = model(text)[0, -1].softmax(-1)  # type: ignore[operator]
    moved = float((whole - without).abs().sum() / 2)
    shown = page.locator(".attention-effect").get_attribute("data-effect")
    assert float(shown.rstrip("%")) == pytest.approx(100 * moved, abs=0.2)
    assert page.locator("#viewer-chip-2").get_attribute("aria-label") == "Head 2, switched off"
    page.evaluate("session.set({language: 'ko', theme: 'dark'})")
    until(page, "document.querySelector('#viewer-tab-heads').textContent === '헤드'")
    assert page.evaluate(f"{ATTENTION}.shell.host.theme.name") == "dark"
    page.locator("#viewer-stage").focus()
    page.keyboard.press("l")  # the page's language is not the viewer's to change
    page.wait_for_timeout(50)
    assert page.evaluate("session.language") == "ko"
    page.click("#viewer-head-switch")  # on again
    until(page, "session.off.length === 0 && !document.querySelector('.attention-effect')")


# --- other models ---


def test_a_classifier_with_hostile_labels(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("classifier"))
    page.focus("#prompt")
    page.keyboard.insert_text("나는 밥을 " + HOSTILE)
    until(page, "document.querySelector('.decisive').innerText === document.getElementById('prompt').value")
    assert "<script>" in page.inner_text(".decisive")
    shares = [float(one.rstrip("%")) for one in page.locator(".label-value").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert page.locator(".label-name").all_inner_texts()[1].startswith("</script>")
    assert page.evaluate("window.harmed") is None


def test_blanks_are_filled(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("bert"), text="나는 에 갔다.")
    page.evaluate("document.getElementById('prompt').setSelectionRange(3, 3)")
    page.click("#insert")
    assert page.input_value("#prompt") == "나는 [MASK]에 갔다."
    until(page, "document.querySelectorAll('.candidate').length === 8")
    best = page.locator(".candidate-text").first.inner_text().replace("␣", " ")
    page.locator(".candidate").first.click()
    until(page, "!document.getElementById('prompt').value.includes('[MASK]')")
    assert page.input_value("#prompt") == f"나는 {best}에 갔다."


def test_blanks_of_another_text_are_not_filled(model_page: ModelPages, visit: Visits) -> None:
    """A candidate that was pressed before the text was read again went to a place of the text before."""
    page = visit(model_page("bert"), text="나는 [MASK]에 갔다.")
    until(page, "document.querySelectorAll('.candidate').length === 8")
    stale = page.evaluate(
        """() => {
            const field = document.getElementById("prompt");
            field.value = "어제 " + field.value;
            field.dispatchEvent(new Event("input"));
            return document.querySelector(".blanks").inert && document.getElementById("fill-all").disabled;
        }"""
    )
    assert stale
    until(page, "!document.querySelector('.blanks').inert && !document.getElementById('fill-all').disabled")
    page.click("#fill-all")
    value = page.input_value("#prompt")
    assert value.startswith("어제 나는 ")
    assert value.endswith("에 갔다.")


def test_an_answer_with_cross_attention(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("pairs"))
    page.fill("#prompt", "갔다.")
    page.keyboard.press("Enter")
    until(page, "!session.writing && document.querySelector('.answer-text').textContent")
    until(page, "document.querySelector('.trace canvas')")
    assert page.locator("#viewer-tab-cross").get_attribute("aria-selected") == "true"
    assert page.locator("#viewer-head-switch").count() == 0
    page.click("#viewer-table-toggle")  # the table took all of the picture's room, and then neither followed a choice
    assert page.locator("#viewer-stage").bounding_box()["height"] > 200
    page.click("#tool-language")
    assert page.inner_text("#tool-answer") == "답하기"


# --- what can go wrong ---


def _place(html: str, element: str) -> tuple[int, int]:
    start = html.index(f'id="{element}">') + len(f'id="{element}">')
    return start, html.index("</script>", start)


def _without(element: str) -> Callable[[str], str]:
    def changed(html: str) -> str:
        start, end = _place(html, element)
        return html[:start] + html[end:]

    return changed


def _header(change: Callable[[dict[str, Any]], Any]) -> Callable[[str], str]:
    def changed(html: str) -> str:
        start, end = _place(html, "jumok-model")
        header = json.loads(html[start:end])
        change(header)
        text = json.dumps(header).replace("<", "\\u003c")
        checksum = f'data-crc32="{zlib.crc32(text.encode())}"'
        return re.sub(r'data-crc32="\d+"', checksum, html[:start], count=1) + text + html[end:]

    return changed


DAMAGES: dict[str, tuple[str, Callable[[str], str]]] = {
    "a number in the header": ("engine.damaged", lambda html: html.replace('"norm_eps":1e-06', '"norm_eps":1e-05')),
    "a sign that is not base64": ("engine.damaged", lambda html: html.replace('parameters">', 'parameters">*', 1)),
    "no parameters": ("engine.damaged", _without("jumok-parameters")),
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
    "settings that are missing": ("engine.damaged", _header(lambda header: header.pop("config"))),
}


def test_a_damaged_page_says_so_in_both_languages(browser: Any, model_page: ModelPages, tmp_path: Path) -> None:
    html = model_page("gpt").read_text(encoding="utf-8")
    path = tmp_path / "changed.html"
    for damage, (code, change) in DAMAGES.items():
        path.write_text(change(html), encoding="utf-8")
        assert path.read_text(encoding="utf-8") != html, damage
        visits = Visits(browser)
        page = visits.load(path, locale="ko-KR")
        page.wait_for_selector(".trouble")
        found, shown = page.get_attribute(".trouble", "data-error"), page.inner_text(".trouble")
        page.context.close()
        assert (damage, found, visits.complaints) == (damage, code, [])
        assert shown.index("이 페이지를 열 수 없습니다") < shown.index("This page cannot be opened")
        assert not re.search(r"\{\w+\}|undefined|engine\.", shown)
    for part in ('id="jumok-parameters">', '<script type="module">'):
        # The script stands at the end of the file, so that a cut file has none to run.
        path.write_text(html[: html.index(part) + 2000], encoding="utf-8")
        page = Visits(browser).load(path, locale="ko-KR")
        page.wait_for_selector("#opening")
        shown = page.inner_text("body")
        page.context.close()
        assert "파일이 완전하지 않은" in shown, part
        assert "the file is incomplete" in shown, part


def test_hostile_texts_stay_text_and_no_request_leaves(visit: Visits, tmp_path: Path) -> None:
    model = gpt("bpe", text=HOSTILE + TEXT)
    made = ModelPage(model, HOSTILE, title=HOSTILE, note=HOSTILE, licence=HOSTILE, prompt=HOSTILE)
    page = visit(made.save(tmp_path / "page.html"), link="n=30&seed=2")
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
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.images.length + document.querySelectorAll('.mirror script').length") == 0
    assert [url for url in sent if not url.startswith(("data:", "blob:"))] == []


def test_neither_the_page_nor_its_worker_may_connect(browser: Any, model_page: ModelPages) -> None:
    """The policy of the page forbids it, also where there is a network."""
    visits = Visits(browser)
    page = visits(model_page("gpt"))
    ask = "fetch('http://127.0.0.1:9/').then(() => 'asked', (error) => String(error))"
    assert page.evaluate(ask).startswith("TypeError")
    assert page.workers[0].evaluate(ask).startswith("TypeError")
    policy = [one for one in visits.complaints if "Content Security Policy" in one]
    page.context.close()
    assert policy, visits.complaints


@pytest.mark.parametrize(
    "lacking",
    [
        "WebAssembly.Module = class { constructor() { throw new WebAssembly.CompileError('no SIMD'); } };",
        "Object.defineProperty(globalThis, 'crypto', { value: undefined });",
        "throw new Error('this worker is not allowed');",
    ],
    ids=["simd", "sha256", "worker"],
)
def test_a_worker_that_lacks_something(visit: Visits, model_page: ModelPages, tmp_path: Path, lacking: str) -> None:
    changed = tmp_path / "changed.html"
    start = 'id="jumok-worker">'
    html = model_page("gpt").read_text(encoding="utf-8")
    changed.write_text(html.replace(start, start + lacking, 1), encoding="utf-8")
    page = visit(changed, text=TEXT, link=GREEDY)
    written(page, 100)
    assert ids(page) == greedy()
    if "not allowed" in lacking:
        assert page.evaluate("session.engine.constructor.name !== 'WorkerEngine'")


def test_without_webassembly_the_text_is_the_same(browser: Any, model_page: ModelPages) -> None:
    """As in the safest modes of browsers, which also compile no JavaScript."""
    started = browser.browser_type.launch(executable_path=program(), args=[*FLAGS, "--js-flags=--jitless"])
    visits = Visits(started)
    page = visits(model_page("gpt"), text=TEXT, link=GREEDY)
    assert page.workers[0].evaluate("typeof WebAssembly") == "undefined"
    written(page, 100)
    assert ids(page) == greedy()
    visits.end()
    started.close()


def test_a_tab_that_sleeps_goes_on_when_it_wakes(visit: Visits, model_page: ModelPages) -> None:
    page = visit(model_page("gpt"), text=TEXT)
    written(page)
    page.select_option("#length", "1000")
    tab = page.context.new_cdp_session(page)
    page.click("#tool-write")
    until(page, f"session.tree.length > {len(TEXT)} + 20")
    tab.send("Page.setWebLifecycleState", {"state": "frozen"})
    page.wait_for_timeout(500)
    tab.send("Page.setWebLifecycleState", {"state": "active"})
    for name in ("attention", "step", "attention", "write"):  # tabs are changed while the model writes
        page.click(f"#tab-{name}")
        page.wait_for_timeout(60)
    written(page, len(TEXT) + 1000)
    text_of(page)
    page.evaluate("window.requestAnimationFrame = () => 1")  # a tab in the background gets no animation frames
    page.fill("#prompt", TEXT)
    until(page, f"session.tree.length === {len(TEXT)}")
    page.click("[data-preset=greedy]")
    write(page, "100")
    assert ids(page) == greedy()
