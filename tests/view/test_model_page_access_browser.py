"""The page that holds a model without a mouse, for a screen reader, on a narrow screen, and in both themes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_pages import PHONE, TEXT, Visits, controls_that_lose_the_focus, until, written

pytestmark = [pytest.mark.browser, pytest.mark.long]

ModelPages = Callable[[str], Path]

VIEWS = [
    ("chat", "chat"),
    ("gpt", "write"),
    ("gpt", "step"),
    ("gpt", "attention"),
    ("classifier", ""),
    ("bert", ""),
    ("pairs", ""),
]
TEXTS = {"bert": "나는 [MASK]에 갔다.", "pairs": "학교에 갔다"}
OPERATED = {
    "button", "checkbox", "combobox", "link", "listbox", "menuitem", "option", "radio", "searchbox", "slider",
    "spinbutton", "switch", "tab", "tree", "treeitem", "textbox",
}  # fmt: skip
# That a view, or the page of a model with one view, shows what it has to show.
READY = {
    "chat": "document.querySelector('#chat-again')",
    "write": "document.querySelector('.candidate')",
    "step": "document.querySelector('.step-stage canvas').height > 40 && !document.querySelector('.step[aria-busy]')",
    "attention": "document.querySelector('#viewer-head-switch')",
    "classifier": "document.querySelectorAll('.decisive span').length > 3",
    "bert": "document.querySelectorAll('.candidate').length === 8",
    "pairs": "!session.writing && document.querySelector('.trace canvas')",
}
NAMED = OPERATED | {"DisclosureTriangle", "dialog", "figure", "image", "img", "table", "tablist", "toolbar"}
FIELDS = "textarea, input, select, button, summary, a[href], [tabindex]"

# Text whose contrast with what lies behind it is too small: [ratio, text, element]. Disabled controls may be faint.
FAINT = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, share, below) => below.map((value, i) => share * top[i] + (1 - share) * value);
  const light = (colour) => colour
    .map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const chain = [];
    for (let at = node; at; at = at.parentElement) chain.unshift(at);
    return chain.reduce((below, at) => {
      const [r, g, b, a] = rgba(getComputedStyle(at).backgroundColor);
      return a ? over([r, g, b], a, below) : below;
    }, rgba("Canvas").slice(0, 3));
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].find(({ nodeType, data }) => nodeType === 3 && data.trim().length);
    const style = getComputedStyle(node);
    if (!own || !node.checkVisibility({ visibilityProperty: true })) continue;
    if (node.closest(":disabled, svg, .mirror + *")) continue;
    const [r, g, b, a] = rgba(style.color);
    const ground = behind(node);
    let share = a;
    for (let at = node; at; at = at.parentElement) share *= Number(getComputedStyle(at).opacity);
    const [one, two] = [light(over([r, g, b], share, ground)), light(ground)].sort((x, y) => y - x);
    const ratio = (one + 0.05) / (two + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5) - 0.01)
      found.push([ratio.toFixed(2), own.data.slice(0, 40), node.cloneNode().outerHTML]);
  }
  return found;
}"""


def shown(visit: Visits, path: Path, view: str, link: str = "", **settings: Any) -> Any:
    """A page with everything in it that a view shows after some use."""
    name = path.stem
    page = visit(path, text=TEXTS.get(name, TEXT), link=link, **settings)
    if name == "gpt":
        written(page)
        page.evaluate("session.toggleHead(1, 2)")
        page.select_option("#length", "50")
        page.click("#tool-write")
        until(page, "session.tree.made === 1")
        written(page)
        page.evaluate("session.set({ place: 5 })")
        until(page, "document.querySelectorAll('.candidate:enabled').length > 5")
        page.click(f"#tab-{view}")
    until(page, READY[view or name])
    return page


def names_missing(page: Any) -> list[Any]:
    """What a screen reader would meet without a name."""
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    met = [node for node in tree if not node.get("ignored") and node["role"]["value"] in NAMED]
    assert {node["role"]["value"] for node in met} & OPERATED
    return [node for node in met if not node.get("name", {}).get("value", "").strip()]


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_everything_has_a_name_and_can_be_told_from_what_lies_behind_it(
    visit: Visits, model_page: ModelPages, name: str, view: str
) -> None:
    """In both themes. A ratio of 4.5, or 3 for large letters: level AA of WCAG 2.2."""
    page = shown(visit, model_page(name), view, "theme=light&lang=ko")
    assert names_missing(page) == []
    for theme in ("light", "dark"):
        page.evaluate("(theme) => session.set({ theme })", theme)
        until(page, f"document.documentElement.dataset.theme === '{theme}'")
        assert page.evaluate(FAINT) == []
        page.click("#tool-help")
        assert page.evaluate(FAINT) == []
        assert names_missing(page) == []
        page.keyboard.press("Escape")


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_the_tab_key_reaches_every_control_and_comes_back(
    visit: Visits, model_page: ModelPages, name: str, view: str
) -> None:
    """Of a group with one tab stop (tabs, a tree), one is reached by it, and arrows reach the others."""
    page = shown(visit, model_page(name), view)
    page.evaluate("document.activeElement.blur(); window.reached = new Set(); window.unseen = [];")
    state = """() => {
      const node = document.activeElement;
      if (node === document.body) return "end";
      if (window.reached.has(node)) return "again";
      window.reached.add(node);
      const looks = (at) => {
        const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(at);
        return (outlineStyle !== "none" && parseFloat(outlineWidth) > 0) || boxShadow !== "none";
      };
      if (!looks(node) && !looks(node.parentElement)) window.unseen.push(node.cloneNode().outerHTML);
      return "new";
    }"""
    met: list[str] = []
    while "again" not in met and met.count("end") < 2:  # between the end of a page and its beginning is the browser
        page.keyboard.press("Tab")
        met.append(page.evaluate(state))
        assert len(met) < 400
    missed = page.evaluate(
        f"""[...document.querySelectorAll("{FIELDS}")].filter((node) => node.tabIndex >= 0 && !node.disabled
        && node.checkVisibility({{ visibilityProperty: true }}) && !window.reached.has(node)
        && !node.closest("dialog:not([open])")).map((node) => node.cloneNode().outerHTML)"""
    )
    assert missed == []
    assert page.evaluate("window.unseen") == []
    lost = page.evaluate(
        """[...document.querySelectorAll("button, [role=treeitem], [role=tab]")].filter((node) => node.tabIndex < 0
        && !node.disabled && node.checkVisibility()
        && !node.closest("[role=tablist], [role=tree], [role=radiogroup], [role=toolbar], [role=listbox], [role=grid]"))
        .map((node) => node.cloneNode().outerHTML)"""
    )
    assert lost == []


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_the_focus_stays_where_the_reader_is(visit: Visits, model_page: ModelPages, name: str, view: str) -> None:
    """It went to the document when a control was hidden, switched off or made anew; no key reached the view."""
    page = shown(visit, model_page(name), view)
    assert controls_that_lose_the_focus(page) == []


def test_writing_is_stopped_by_the_keyboard_where_it_was_begun(visit: Visits, model_page: ModelPages) -> None:
    """Write hides itself and candidates are switched off meanwhile: Esc did nothing, and the place was lost."""
    page = shown(visit, model_page("gpt"), "write")
    page.select_option("#length", "2000")
    for begins in ("#tool-write", ".candidate:enabled >> nth=3"):
        until(page, "!document.querySelector('.distribution[aria-busy]')")
        page.locator(begins).focus()
        page.evaluate("window.begins = document.activeElement")
        before = page.evaluate("session.tree.length")
        page.evaluate(  # at the first token, because a small model may have written all of them before a key arrives
            """(before) => {
              const stop = session.subscribe((changed) => {
                if (!changed.has("token") || session.tree.length < before + 2) return; // the chosen one, and the next
                stop();
                document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
              });
            }""",
            before,
        )
        page.keyboard.press("Enter")
        until(page, f"session.tree.length > {before}")
        until(page, "!session.writing")
        until(page, "document.activeElement === window.begins")
        assert page.evaluate("session.tree.length") < before + 2000


def walk(page: Any, selector: str, key: str = "Tab") -> None:
    """Press a key until an element has the focus."""
    for _ in range(150):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{key} never reaches {selector}")


def test_the_whole_way_without_a_mouse(visit: Visits, model_page: ModelPages) -> None:
    page = visit(model_page("gpt"))
    walk(page, "#prompt")
    page.keyboard.insert_text(TEXT)
    written(page, len(TEXT))
    page.keyboard.press("Control+Enter")
    until(page, "session.tree.made === 1")
    page.keyboard.press("Escape")
    written(page)
    walk(page, "#tool-help", "Shift+Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('help').open")
    page.keyboard.press("Escape")
    assert not page.evaluate("document.getElementById('help').open")
    assert page.evaluate("document.activeElement.id") == "tool-help"
    walk(page, "#tool-theme", "Shift+Tab")
    page.keyboard.press("Space")
    assert page.evaluate("session.theme") == "dark"
    walk(page, "#tool-language", "Shift+Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.lang") == "ko"
    walk(page, "#tab-write")
    page.keyboard.press("End")
    until(page, "document.querySelector('#viewer-head-switch')")
    walk(page, "#viewer-head-switch")
    page.keyboard.press("Enter")
    until(page, "session.off.length === 1")
    walk(page, "#tab-attention", "Shift+Tab")
    page.keyboard.press("Home")
    walk(page, "[data-head]")
    page.keyboard.press("Enter")
    until(page, "session.off.length === 0")
    walk(page, ".candidate:not(:disabled)")
    page.keyboard.press("Enter")
    until(page, "session.tree.current.kind === 'chosen'")
    walk(page, "#tool-stop, #tool-write", "Shift+Tab")
    page.keyboard.press("Escape")
    written(page)


@pytest.mark.parametrize(("name", "view"), VIEWS)
def test_nothing_is_wider_than_a_phone(visit: Visits, model_page: ModelPages, name: str, view: str) -> None:
    """In Korean; in English, too, where each word of the page is one of the words of the table."""
    page = shown(visit, model_page(name), view, "lang=ko", **PHONE)
    wide = """[...document.querySelectorAll('body *')].filter((node) => {
      if (node.matches(".skip:not(:focus)")) return false;
      const { left, right, width } = node.getBoundingClientRect();
      if (!width || !node.checkVisibility({ visibilityProperty: true }) || (left >= -1 && right <= 391)) return false;
      for (let at = node.parentElement; at; at = at.parentElement)
        if (getComputedStyle(at).overflowX !== "visible") return at === document.body || at.tagName === "HTML";
      return true;
    }).map((node) => node.cloneNode().outerHTML)"""
    for language in ("ko", "en"):
        page.evaluate("(language) => session.set({ language })", language)
        until(page, f"document.documentElement.lang === '{language}'")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate(wide) == []
        page.click("#tool-help")
        assert page.evaluate("document.getElementById('help').getBoundingClientRect().right") <= 390
        texts = page.evaluate(
            "[...document.querySelectorAll('*')].flatMap((node) => ['aria-label', 'title', 'placeholder']"
            "  .map((name) => node.getAttribute(name))"
            "  .concat([...node.childNodes].filter(({ nodeType }) => nodeType === 3)"
            "  .map(({ data }) => data))).filter(Boolean).filter((text) => text.length < 300)"
        )
        assert not [one for one in texts if re.fullmatch(r"[a-z_]+(\.[a-z_]+)+|[^{]*\{\w+\}[^}]*", one)]
        page.keyboard.press("Escape")
    if view == "write":
        assert page.evaluate("document.getElementById('prompt').readOnly")  # until one asks for the keyboard
        page.click("#tool-edit")
        assert not page.evaluate("document.getElementById('prompt').readOnly")
