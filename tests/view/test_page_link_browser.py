"""A link, and a reload, give the text that stood there, however it came about."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from model_pages import TEXT, Visits, until, written

pytestmark = [pytest.mark.browser, pytest.mark.long]

ModelPages = Callable[[str], Path]
WRITE = "made.get('write').view"
SETTINGS = "{ temperature: 0.1 + 0.2 * %d, top_k: %d, top_p: 0.95, min_p: 0, repetition_penalty: 1.05 }"
KINDS = ("write", "choose", "edit", "type", "again", "branch", "undo", "head", "sliders")


def linked(page: Any) -> str:
    """What a link to the page carries, without the sign before it."""
    page.evaluate(f"{WRITE}.writer.settle()")
    return str(page.evaluate("window.jumok.ready.then(({ frame }) => frame.address())"))[1:]


def text_of(page: Any) -> dict[str, Any]:
    """The text as ids, as the reader sees it, and how the branch that is shown was made."""
    return dict(
        page.evaluate(
            "({ ids: session.ids, text: document.getElementById('prompt').value,"
            "  draws: session.tree.path().map(({ draw }) => draw ?? null),"
            "  kind: session.tree.current.kind, how: session.tree.current.how, off: session.off })"
        )
    )


def require_same(visit: Visits, path: Path, page: Any) -> None:
    expected, link = text_of(page), linked(page)
    other = visit(path, link=link)
    until(other, f"!session.writing && session.ids.length === {len(expected['ids'])}")
    written(other)
    assert text_of(other) == expected
    assert linked(other) == link
    assert "link was made from" not in other.inner_text("#toast")
    other.context.close()


def change(page: Any, kind: str, choice: random.Random) -> None:
    """Do what a reader may do."""
    length = page.evaluate("session.tree.length")
    place = choice.randrange(1, max(2, length))
    if kind == "write":
        page.evaluate(f"{WRITE}.writer.write({{ tokens: {choice.randrange(1, 12)} }})")
    elif kind == "again":
        page.evaluate(f"void {WRITE}.writeAgain()")
    elif kind == "choose" and length > 1:
        page.evaluate(f"session.set({{ place: {place} }})")
        until(page, "!document.querySelector('.distribution[aria-busy]')")
        page.evaluate(f"{WRITE}.tokens = {choice.randrange(0, 9)}")
        page.locator(".candidate[aria-pressed=false]").nth(choice.randrange(6)).click()
    elif kind in ("edit", "type"):
        text = page.input_value("#prompt")
        at = choice.randrange(len(text) + 1) if kind == "edit" else len(text)
        page.fill("#prompt", text[:at] + choice.choice(["나", "학교 ", "뷁", "\n"]) + text[at + choice.randrange(2) :])
        page.evaluate(f"{WRITE}.writer.settle()")
    elif kind == "branch":
        page.evaluate(f"session.go(session.tree.branches().at({choice.randrange(-3, 3)}) ?? session.tree.current)")
    elif kind == "undo":
        page.evaluate(f"session.travel({choice.choice([-1, -1, 1])})")
    elif kind == "head":
        page.evaluate(f"session.toggleHead({choice.randrange(2)}, {choice.randrange(4)})")
    elif kind == "sliders":
        settings = SETTINGS % (choice.randrange(8), choice.choice([0, 5, 20]))
        page.evaluate(f"session.set({{ sampling: {settings} }})")
    until(page, "!session.writing")
    page.evaluate(f"{WRITE}.writer.settle()")


@pytest.mark.parametrize(("name", "seed"), [("gpt", 1), ("jamo", 2), ("bpe", 3), ("gpt", 4)])
def test_any_way_of_writing_is_in_a_link(model_page: ModelPages, visit: Visits, name: str, seed: int) -> None:
    """A link had the sliders of the moment, a rounded seed, and neither choices nor edits nor a second Write."""
    choice = random.Random(seed)
    path = model_page(name)
    page = visit(path, text=TEXT if seed % 2 else "")
    for _ in range(4):
        for kind in choice.choices(KINDS, weights=(4, 3, 2, 1, 1, 2, 1, 1, 2), k=5):
            change(page, kind, choice)
        require_same(visit, path, page)


def test_a_reload_gives_the_same_text_on_every_tab(model_page: ModelPages, visit: Visits) -> None:
    """On One step and Attention the address had no text, and a reload wrote another one."""
    page = visit(model_page("gpt"), reduced_motion="no-preference")
    written(page, 100)
    page.click("[data-preset=wild]")  # what is written is not changed by it
    before = page.evaluate("session.ids")
    for tab in ("step", "attention", "write"):
        page.click(f"#tab-{tab}")
        until(page, f"location.hash.includes('sum=') && location.hash.includes('view={tab}')")
        page.reload()
        page.evaluate(
            "window.jumok.ready.then((all) => { window.session = all?.session; window.made = all?.frame.made; })"
        )
        until(page, f"!session.writing && session.ids.length === {len(before)}")
        assert page.evaluate("session.ids") == before
        assert page.evaluate("session.sampling.temperature") == 1.4


def test_what_a_link_cannot_hold_is_said(model_page: ModelPages, visit: Visits) -> None:
    """A text of more than 2,000 characters was cut off in silence."""
    page = visit(model_page("gpt"), permissions=["clipboard-read", "clipboard-write"])
    page.fill("#prompt", TEXT * 300)
    page.click("#tool-link")
    page.locator("#toast", has_text="too long for an address").wait_for()
    other = visit(model_page("gpt"), link=page.evaluate("navigator.clipboard.readText()").split("#")[1])
    other.locator("#toast", has_text="This link has no text").wait_for()
    assert other.evaluate("session.ids") == []
    page.fill("#prompt", TEXT)
    page.click("#tool-write")
    until(page, "session.tree.made > 0 && !session.writing")
    page.click("#tool-again")
    until(page, "session.tree.made > 1 && !session.writing")
    page.click("#tool-link")
    page.locator("#toast", has_text="not the other branches").wait_for()


def test_a_link_that_was_cut_off_does_not_pass_for_the_text(model_page: ModelPages, visit: Visits) -> None:
    page = visit(model_page("gpt"), text=TEXT, link="n=20&seed=5")
    written(page, len(TEXT) + 20)
    link = linked(page)
    for cut in (link[:-12], link.replace("path=w*21*20", "path=w*21*19")):
        assert cut != link
        other = visit(model_page("gpt"), link=cut)
        other.locator("#toast", has_text="not the text that the link was made from").wait_for()


def test_the_address_of_a_chat_asks_nothing_again(model_page: ModelPages, visit: Visits) -> None:
    """After a new conversation, a reload asked the first question of the old one again, and got another answer."""
    page = visit(model_page("chat"), text="나는", link="t=0")
    conversation = "made.get('chat').view.conversation"
    until(page, f"!{conversation}.writing && {conversation}.turns.length === 1")
    until(page, "!location.hash.includes('text=') && location.hash.includes('t=0')")
    page.click("#chat-new")
    page.reload()
    page.evaluate("window.jumok.ready.then((all) => { window.made = all?.frame.made; })")
    page.wait_for_timeout(600)
    assert page.evaluate(f"{conversation}.turns.length") == 0
