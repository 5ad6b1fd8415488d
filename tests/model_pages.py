"""Tiny random models, the pages that hold them, and a Chromium to open pages in."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch
from torch import nn

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.models import Model, build
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from jumok.view.model_page import ModelPage

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다."
HOSTILE = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=2>{{script}}\u202e&lt;b&gt;"
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 64}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
PATIENCE = 100  # seconds
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def gpt(kind: str = "char", text: str = TEXT, **settings: Any) -> Model:
    shared = {} if settings.get("family") == "classic" else {"n_kv_head": 2}
    return _scrambled(GPTConfig, train_tokenizer((text + "\n") * 4, kind), **shared, **settings)


def chat(**settings: Any) -> Model:
    words = with_chat(train_tokenizer((TEXT + "\n") * 4))
    return _scrambled(GPTConfig, words, n_kv_head=2, **{"context_length": 400, **settings})


def classifier() -> Model:
    return gpt(labels=("부정", HOSTILE))


def bert() -> Model:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
    return _scrambled(BERTConfig, words)


def pairs() -> Model:
    words = train_tokenizer((TEXT + " ") * 4, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    return _scrambled(EncoderDecoderConfig, words, **ids)


MODELS: dict[str, Callable[[], Model]] = {
    "gpt": gpt,
    "chat": chat,
    "jamo": lambda: gpt("jamo"),
    "bpe": lambda: gpt("bpe"),
    "classic": lambda: gpt(family="classic"),
    "classifier": classifier,
    "bert": bert,
    "pairs": pairs,
}


def _scrambled(kind: type[Any], words: Tokenizer, **settings: Any) -> Model:
    """A model with large random weights, whose predictions are far from even."""
    torch.manual_seed(4)
    model = build(kind(**{"vocab_size": words.vocab_size, **SIZES, **settings}))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.35)
    model.tokenizer = words
    return model.eval()


def program() -> str:
    """Where Chromium is; skips where there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium to open the page in; on Debian and Ubuntu: apt install chromium")
    return path


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A Chromium of the system; skips where there is none, or no Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install playwright")
    path = program()
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


class Visits:
    """Pages in windows of their own, without a network. What they ask for, and what their consoles say, is kept."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.contexts: list[Any] = []
        self.complaints: list[str] = []

    def __call__(self, path: Path, *, text: str = "", link: str = "", **settings: Any) -> Any:
        """Open a page; that of a model has `session` and `made`, its views. `link`: more of what a link carries."""
        page = self.load(path, text=text, link=link, **settings)
        page.evaluate(
            "window.jumok.ready.then((all) => { window.session = all?.session; window.made = all?.frame.made; })"
        )
        return page

    def load(self, path: Path, *, text: str = "", link: str = "", before: str = "", **settings: Any) -> Any:
        """Open a page that may be unable to show anything. `before`: a script that runs first."""
        usual = {"viewport": {"width": 1280, "height": 800}, "locale": "en-US", "reduced_motion": "reduce"}
        context = self.browser.new_context(offline=True, accept_downloads=True, **{**usual, **settings})
        self.contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        if before:
            page.add_init_script(before)
        complain = self.complaints.append
        page.on("console", lambda message: complain(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complain(f"error: {error}"))
        page.on("dialog", lambda dialog: complain(f"dialog: {dialog.message}") or dialog.dismiss())
        url = path.as_uri()
        context.on("request", lambda one: one.url.startswith((url, "data:", "blob:")) or complain(one.url))
        state = f"text={quote(text)}&{link}" if text else link
        page.goto(f"{url}#{state}" if state else url)
        return page

    def end(self) -> None:
        """Close the windows. Nothing may have been asked for or complained about."""
        for context in self.contexts:
            context.close()
        assert self.complaints == []


def until(page: Any, condition: str) -> None:
    """Wait until a condition holds in the page."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate(f"!!({condition})"):
        assert time.monotonic() < deadline, f"never: {condition}"
        page.wait_for_timeout(15)


def written(page: Any, least: int = 1) -> None:
    """Wait until something is written, and all of it that the model sees is scored."""
    until(page, f"!session.writing && session.tree.length >= {least}")
    until(page, "session.tree.path().slice(1).slice(-5).every(({ surprise }) => surprise !== undefined)")


def controls_that_lose_the_focus(page: Any) -> list[str]:
    """Press Enter on every button, one after the other. The document itself must never have the focus then."""
    lost = []
    for i in range(200):
        name = page.evaluate(
            """async (i) => {
              const frame = () => new Promise((done) => requestAnimationFrame(done));
              await frame(); // what the last one began may be drawn
              const all = [...document.querySelectorAll("button, summary")];
              const one = all.filter((at) => at.checkVisibility({ visibilityProperty: true }) && !at.disabled)[i];
              one?.focus();
              return one?.cloneNode().outerHTML;
            }""",
            i,
        )
        if name is None:
            assert i > 3
            return lost
        page.keyboard.press("Enter")
        until(page, "!window.session?.writing || session.tree.length > 60")
        page.keyboard.press("Escape")  # of a dialog, or of what is written
        until(page, "!window.session?.writing")
        if page.evaluate("document.activeElement === document.body"):
            lost.append(name)
    raise AssertionError("there is always one more")


def save_page(folder: Path, name: str, **texts: Any) -> Path:
    """A page of one of the models."""
    return ModelPage(MODELS[name](), name, **texts).save(folder / f"{name}.html")
