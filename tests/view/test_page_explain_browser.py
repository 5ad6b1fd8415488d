"""The views of a model's page that explain it, in a real browser: one step taken apart, and attention beside the text.

The page here holds the same modules as that of `jumok convert --to page`, with nothing but these views. No request may
leave it, and nothing may be complained about in the console.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.interpret.ablation import ablate
from jumok.interpret.record import record
from jumok.models import build
from jumok.tokenizers import train_tokenizer
from jumok.view.bundle import bundle, packaged
from jumok.view.model_page import ModelPage
from jumok.view.page import asset, embedded

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")

pytestmark = [pytest.mark.browser, pytest.mark.long]

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다."
STYLES = ("base/base.css", "viewer/viewer.css", "page/explain.css")
ENTRY = """
import {openModel} from "../model/engine.js";
import {Session} from "./session.js";
import {StepView} from "./step_view.js";
import {AttentionView} from "./attention_view.js";
import {setLanguage} from "../base/words.js";
import {themeColours} from "../base/colours.js";

function dress(session) {
  setLanguage(session.language);
  const dark = session.theme === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : session.theme === "dark";
  const theme = themeColours(dark ? "dark" : "light");
  const root = document.documentElement;
  root.dataset.theme = theme.name;
  root.lang = session.language;
  for (const [name, colour] of Object.entries(theme)) {
    const property = name.replace(/[A-Z]/g, (sign) => `-${sign.toLowerCase()}`);
    if (name !== "name") root.style.setProperty(`--${property}`, colour);
  }
}

async function open() {
  const part = (id) => document.getElementById(id).textContent;
  const engine = await openModel(part("jumok-model"), part("jumok-parameters"));
  const { text, view, language } = JSON.parse(part("settings"));
  const session = new Session(engine, { language });
  dress(session);
  session.subscribe((changed) => (changed.has("language") || changed.has("theme")) && dress(session));
  const { ids, pieces } = await engine.encode(text);
  session.tree.retype(ids.map((id, i) => ({ id, text: pieces[i].text })));
  const shown = new { step: StepView, attention: AttentionView }[view](document.getElementById("view"), session);
  await shown.show();
  window.page = { session, engine, shown };
}
window.opened = open();
"""


def page_html(model: Any, **settings: Any) -> str:
    """A page with a model, and one of the views."""
    made = ModelPage(model, "작은 모델", exact=True)
    path = "view/assets/page/entry_of_a_test.js"
    script = bundle(path, lambda name: ENTRY if name == path else packaged(name))
    return (
        "<!doctype html><html lang=ko><meta charset=utf-8><meta name=viewport content='width=device-width, "
        f"initial-scale=1'><title>{made.title}</title>"
        f"<style>{''.join(map(asset, STYLES))} body {{height: auto}}</style>"
        "<body><main id=view></main>"
        f"<script type=application/json id=jumok-model>{embedded(made.header)}</script>"
        f"<script type=text/plain id=jumok-parameters>{made._parameters}</script>"
        f"<script type=application/json id=settings>{embedded(settings)}</script>"
        f"<script type=module>{script}</script>"
    )


def scrambled(model: Any, words: Any) -> Any:
    """Large random weights, so that heads look elsewhere and numbers are not all alike."""
    torch.manual_seed(4)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.3)
    model.tokenizer = words
    return model.eval()


def gpt(**sizes: Any) -> Any:
    words = train_tokenizer((TEXT + " ") * 4, "char")
    shape: dict[str, Any] = {"n_layer": 3, "n_head": 4, "n_kv_head": 2, "n_embd": 32, "context_length": 64, **sizes}
    return scrambled(build(GPTConfig(vocab_size=words.vocab_size, **shape)), words)


def classic() -> Any:
    return gpt(family="classic", n_kv_head=2, n_layer=2, n_head=2, n_embd=24)


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    """In the numbers that the page has: those of 16 bits."""
    found = {"modern": gpt(), "classic": classic()}
    for model in found.values():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data = parameter.data.half().float()
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium to open the page in; on Debian and Ubuntu: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


Visit = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_page(model: Any, view: str, text: str = TEXT, language: str = "en", **how: Any) -> Any:
        file = tmp_path / f"{len(contexts)}.html"
        file.write_text(page_html(model, text=text, view=view, language=language), encoding="utf-8")
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 800}, **how})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("request", lambda one: one.url.startswith(("file:", "blob:", "data:")) or complaints.append(one.url))
        page.goto(file.as_uri())
        page.evaluate("window.opened")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def until(page: Any, condition: str) -> None:
    deadline = time.monotonic() + 60
    while not page.evaluate(f"!!({condition})"):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(15)


def ids_in(page: Any) -> list[int]:
    return list(page.evaluate("[...page.session.ids]"))


def table(page: Any) -> list[list[str]]:
    """The numbers of the part that is open, as its table shows them."""
    if not page.locator(".step-numbers").evaluate("(node) => node.open"):
        page.locator(".step-numbers summary").click()
    until(page, "document.querySelector('.step-table table')")
    rows = page.locator(".step-table tbody").inner_text().splitlines()
    return [line.split("\t") for line in rows]


def column(page: Any, index: int) -> Any:
    return np.array([float(row[index].replace("−", "-").replace("-∞", "-inf")) for row in table(page)])


# --- one step taken apart ---


@pytest.mark.parametrize("family", ["modern", pytest.param("classic", marks=pytest.mark.long)])
def test_the_numbers_of_a_step_are_the_model_s(visit: Visit, models: dict[str, Any], family: str) -> None:
    """Weights, the head's output, the hidden activations and probabilities, at a place in the middle of the text."""
    model = models[family]
    page = visit(model, "step")
    position, layer, head = 11, 1, 1
    page.click(f"#step-layer-{layer}")
    page.click(f"#step-head-{head}")
    page.click(f"#step-place-{position}")
    until(page, f"page.shown.data?.step.position === {position} && page.shown.data.layerNumber === {layer}")
    ids = torch.tensor([ids_in(page)[: position + 1]])
    hidden: list[Any] = []
    joined: list[Any] = []
    block = model.blocks[layer]
    hooks = [
        block.attention.o_proj.register_forward_pre_hook(lambda _, inputs: joined.append(inputs[0][0, -1])),
        block.mlp.down_proj.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0][0, -1])),
    ]
    with record(model) as recording, torch.inference_mode():
        logits = model(ids)[0, -1]
    for hook in hooks:
        hook.remove()
    weights = recording.attention("self", layer).weights(head)[0, 0, -1].numpy()
    page.click("[data-part=softmax]")
    np.testing.assert_allclose(column(page, 5), weights, atol=2e-4)
    page.click("[data-part=values]")
    page.click("[data-part=join]")
    np.testing.assert_allclose(column(page, 1), joined[0].numpy(), atol=2e-3)
    page.click("[data-part=hidden]")
    np.testing.assert_allclose(column(page, 1), hidden[0].numpy(), atol=2e-3)
    page.click("[data-part=probabilities]")
    shown = column(page, 2)
    np.testing.assert_allclose(shown, np.sort(logits.softmax(-1).numpy())[::-1][: len(shown)], atol=2e-3)


@pytest.mark.parametrize("language", ["ko", "en"])
def test_every_part_explains_itself_and_its_sums_agree(visit: Visit, models: dict[str, Any], language: str) -> None:
    page = visit(models["modern"], "step", language=language)
    page.click("#step-layer-1")
    until(page, "page.shown.parts.length === 22")
    seen = set()
    sums = 0
    for part in page.evaluate("page.shown.parts.map(({id}) => id)"):
        page.click(f"[data-part={part}]")
        words = page.locator(".step").inner_text() + str(page.locator(".step-stage").get_attribute("aria-label"))
        assert not re.search(r"\{\w+\}|undefined|NaN|step\.", words), part
        assert len(page.locator(".step-sentences").inner_text()) > 30
        seen.add(page.locator(".step-sentences").inner_text())
        assert page.locator(".step-checks .differs").count() == 0
        sums += page.locator(".step-checks .agrees").count()
        assert page.evaluate("document.querySelector('.step-stage canvas').height") > 40
        assert table(page)
    assert len(seen) == 22
    assert sums == 10  # the sum of the embedding is checked in the first layer
    assert bool(re.search("[가-힣]{2}", page.locator(".step-title").inner_text())) == (language == "ko")


def test_the_player_walks_through_the_parts_by_keyboard(visit: Visit, models: dict[str, Any]) -> None:
    page = visit(models["modern"], "step")
    page.locator(".step-stage").focus()
    place = "page.shown.player.walk"
    page.keyboard.press("n")
    until(page, f"{place}.index === 1")
    page.keyboard.press("p")
    until(page, f"{place}.index === 0")
    page.keyboard.press("]")
    until(page, "page.shown.layer === 1 && page.shown.data.layerNumber === 1")
    page.keyboard.press(".")
    until(page, "page.shown.head === 1")
    page.locator("[data-player=speed]").focus()
    page.keyboard.press("End")
    assert page.locator("[data-player=speed]").get_attribute("aria-valuetext") == "4×"
    page.locator(".step-stage").focus()
    page.keyboard.press(" ")
    until(page, f"page.shown.player.playing && {place}.index >= 1")
    page.keyboard.press(" ")
    until(page, "!page.shown.player.playing")
    page.locator("[data-player=scrubber]").focus()
    page.keyboard.press("End")
    until(page, f"{place}.atEnd")
    assert page.locator("[data-part=draw]").get_attribute("aria-current") == "step"
    assert "22" in str(page.locator("[data-player=scrubber]").get_attribute("aria-valuetext"))
    page.locator(".step-places").focus()
    page.keyboard.press("Home")
    until(page, "page.shown.data.step.position === 0")
    page.keyboard.press("ArrowRight")
    until(page, "page.shown.data.step.position === 1")
    # The text goes on, so its next token is known and stands in the sentence.
    text = page.evaluate("page.session.tree.path()[2].text")
    assert f"‘{text}’" in page.locator(".step-sentences").inner_text()


def test_arrows_read_the_numbers_of_the_picture(visit: Visit, models: dict[str, Any]) -> None:
    page = visit(models["modern"], "step")
    page.click("[data-part=scores]")
    page.locator(".step-stage").focus()
    for key in ("ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    q = page.evaluate("page.shown.data.head.qRotated[1]")
    said = page.locator(".step > .step-announcer").inner_text()
    assert "[1]" in said
    assert float(said.split(": ")[-1].replace("−", "-")) == pytest.approx(q, abs=1e-4)
    assert page.locator(".step [role=tooltip]").is_visible()
    for _ in range(3):
        page.keyboard.press("ArrowDown")  # to the products, then to the tokens
    page.keyboard.press("Enter")
    until(page, "page.shown.focus === 0 || page.shown.focus > 0")
    page.keyboard.press("Escape")


def test_without_movement_the_parts_are_whole(visit: Visit, models: dict[str, Any]) -> None:
    page = visit(models["modern"], "step", reduced_motion="reduce")
    page.locator("[data-player=scrubber]").evaluate(
        "(node) => { node.value = 120; node.dispatchEvent(new Event('input')); }"
    )
    assert page.evaluate("[page.shown.player.walk.index, page.shown.player.progress]") == [1, 1]


def test_a_step_without_a_head(visit: Visit, models: dict[str, Any]) -> None:
    page = visit(models["modern"], "step")
    page.click("[data-part=values]")
    before = page.evaluate("[...page.shown.result.step.logits]")
    page.evaluate("page.session.toggleHead(0, 0)")
    until(page, "page.shown.data.off")
    assert np.abs(np.array(page.evaluate("[...page.shown.result.step.logits]")) - before).max() > 1e-3
    assert page.locator("#step-head-0").get_attribute("aria-label") == "Head 0, off"
    assert page.evaluate("page.shown.data.head.output.every((value) => value === 0)")


# --- attention beside the text ---


def test_attention_grows_with_the_text(visit: Visit, models: dict[str, Any]) -> None:
    model = models["modern"]
    page = visit(model, "attention")
    length = len(ids_in(page))
    assert page.evaluate("page.shown.trace.tokens(0).length") == length
    page.evaluate(
        "page.session.set({writing: true});"
        "const add = (token) => page.session.append(token);"
        "page.engine.write([...page.session.ids], {tokens: 5, sampling: {seed: 3}}, add)"
        ".then(() => page.session.set({writing: false}))"
    )
    until(page, f"page.shown.trace.tokens(0).length === {length + 5} && !page.session.writing")
    ids = ids_in(page)
    with record(model) as recording, torch.inference_mode():
        model(torch.tensor([ids]))
    expected = recording.attention("self", 2).weights(1)[0, 0].numpy()
    shown = page.evaluate("page.shown.trace.weights('self', 2, 1).then(({data}) => [...data])")
    off = np.abs(np.reshape(shown, expected.shape) - expected).sum(-1) / 2
    assert off.max() < 0.03
    assert page.evaluate("location.hash") == ""
    until(page, f"document.querySelector('.viewer-notes').textContent.includes('{len(ids)}')")


def test_a_head_is_switched_off_and_its_effect_is_shown(visit: Visit, models: dict[str, Any]) -> None:
    model = models["modern"]
    page = visit(model, "attention")
    page.locator("#viewer-layer").select_option("1")
    page.locator("#viewer-chip-2").click(modifiers=["Alt"])
    page.locator("#viewer-stage").focus()
    page.keyboard.press("x")
    until(page, "JSON.stringify(page.session.off) === '[[1,2]]' && document.querySelector('.attention-effect')")
    ids = torch.tensor([ids_in(page)])
    with torch.inference_mode():
        whole = model(ids)[0, -1].softmax(-1)
        with ablate(model, [(1, 2)]):
            without = model(ids)[0, -1].softmax(-1)
    moved = float((whole - without).abs().sum() / 2)
    shown = page.locator(".attention-effect").get_attribute("data-effect")
    assert float(shown.rstrip("%")) == pytest.approx(100 * moved, abs=0.2)
    assert page.locator("#viewer-chip-2").get_attribute("aria-label") == "Head 2, switched off"
    until(page, "page.shown.known.off === '[[1,2]]'")
    with ablate(model, [(1, 2)]), record(model) as recording, torch.inference_mode():
        model(ids)
    expected = recording.attention("self", 2).weights(0)[0, 0, -1].numpy()
    row = page.evaluate("page.shown.trace.weights('self', 2, 0).then(({data, s}) => [...data.slice(-s)])")
    assert np.abs(np.array(row) - expected).sum() / 2 < 0.03
    page.click("#viewer-head-switch")  # on again
    until(page, "page.session.off.length === 0 && !document.querySelector('.attention-effect')")


def test_language_and_colours_are_those_of_the_session(visit: Visit, models: dict[str, Any]) -> None:
    page = visit(models["modern"], "attention", color_scheme="light")
    assert page.locator("#viewer-tab-heads").inner_text() == "Heads"
    page.evaluate("page.session.set({language: 'ko', theme: 'dark'})")
    until(page, "document.querySelector('#viewer-tab-heads').textContent === '헤드'")
    assert page.evaluate("page.shown.shell.host.theme.name") == "dark"
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("#viewer-stage").focus()
    page.keyboard.press("4")
    until(page, "page.shown.shell.store.state.view === 'matrix'")
    page.keyboard.press("l")  # the page's language is not the viewer's to change
    page.wait_for_timeout(50)
    assert page.evaluate("page.session.language") == "ko"
    texts = page.evaluate("[...document.querySelectorAll('.attention *')].map((node) => node.title + node.ariaLabel)")
    assert not [text for text in texts if re.search(r"\{\w+\}|undefined|NaN", text)]


def test_an_answer_is_shown_with_its_cross_attention(visit: Visit) -> None:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    shape: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 64}
    model = scrambled(build(EncoderDecoderConfig(vocab_size=words.vocab_size, **shape, **ids)), words)
    page = visit(model, "attention", text="", language="ko")
    assert "먼저 답을" in page.locator(".attention-status").inner_text()
    page.evaluate(
        "page.engine.answer('학교에 갔다', {tokens: 6, trace: true}).then(({cross}) => page.shown.display(cross))"
    )
    until(page, "document.querySelector('#viewer-tab-cross')")
    page.click("#viewer-tab-cross")
    until(page, "page.shown.shell.store.state.block === 'cross'")
    assert page.locator("#viewer-head-switch").count() == 0


@pytest.mark.parametrize("view", ["step", "attention"])
def test_a_narrow_screen_and_named_controls(visit: Visit, models: dict[str, Any], view: str) -> None:
    page = visit(models["modern"], view, viewport={"width": 390, "height": 780}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    names = page.evaluate(
        """[...document.querySelectorAll("button, input, select, summary, [tabindex='0']")]
        .filter((node) => node.offsetParent)
        .map((node) => {
          const by = document.getElementById(node.getAttribute("aria-labelledby"));
          const name = node.ariaLabel || node.textContent.trim() || node.labels?.[0]?.textContent || by?.textContent;
          return [node.outerHTML.slice(0, 120), name];
        })"""
    )
    assert len(names) > 15
    assert [node for node, name in names if not name] == []
    if view == "step":
        for part in ("qkv", "scores", "mlp", "probabilities"):
            page.locator(f"[data-part={part}]").tap()
            until(page, f"page.shown.part === '{part}'")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, part
