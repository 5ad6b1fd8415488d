"""Pages in Firefox and in WebKitGTK, the engine of Safari, opened from disk and used as in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import jumok
from jumok.config import GPTConfig
from jumok.interpret.record import record
from jumok.models import GPT, build
from jumok.tokenizers import train_tokenizer
from jumok.view.model_page import ModelPage
from webdriver import BROWSERS, Window

pytestmark = [pytest.mark.browser, pytest.mark.long]

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다."
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
        yield found


@pytest.fixture(scope="module")
def model() -> GPT:
    words = train_tokenizer((TEXT + " ") * 4)
    torch.manual_seed(4)
    found = build(GPTConfig(vocab_size=words.vocab_size, n_layer=2, n_head=4, n_embd=32, context_length=64))
    for parameter in found.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.35)
    found.tokenizer = words
    return found.eval()


def test_the_viewer_shows_weights_of_a_korean_text(window: Window, model: GPT, tmp_path: Path) -> None:
    page = jumok.view(model, TEXT, tokens=4, seed=1, probe=True, name="gpt").save(tmp_path / "view.html")
    window.open(page, "#language=ko")
    window.evaluate("window.jumok.ready")
    window.resize(1280, 800)
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
    assert [token["text"] for token in window.evaluate("jumok.tokens()")][:4] == ["나", "는", "␣", "학"]
    row = window.evaluate("jumok.row('self', 1, 2, 9)")
    with record(model) as recording, torch.inference_mode():
        model(torch.tensor(model.tokenizer.encode(TEXT))[None])
    expected = recording.attention("self", 1).weights(2)[0, 0, 9]
    assert (torch.tensor(row)[: len(expected)] - expected).abs().sum() < 0.04  # weights of 8 bits
    window.press("t")
    window.until("jumok.state.theme !== 'auto'")
    window.press("l")
    window.until("document.documentElement.lang === 'en'")
    window.resize(480, 800)
    window.until("document.documentElement.scrollWidth <= innerWidth")
    assert window.complaints() == []


def test_a_page_with_a_model_writes(window: Window, model: GPT, tmp_path: Path) -> None:
    """WebKit could not read a Blob in a worker of a page from disk, so that the page called itself damaged."""
    window.open(ModelPage(model, "작은 모델").save(tmp_path / "page.html"))
    window.until("/characters a second/.test(document.body.innerText) || document.querySelector('.trouble')")
    assert not window.evaluate("!!document.querySelector('.trouble')")
    window.click("#tool-language")
    window.until("/초당 [0-9,]+글자/.test(document.querySelector('main').innerText)")
    assert window.complaints() == []
