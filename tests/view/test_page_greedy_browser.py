"""The greedy text of a page in Chromium is that of Python, for each tokenizer and both families."""

from __future__ import annotations

from pathlib import Path

import pytest

from jumok.inference.generate import generate
from jumok.view.model_page import ModelPage, rounded
from model_pages import Visits, chromium, gpt, written

pytestmark = [pytest.mark.browser, pytest.mark.long]

PROMPT = "너는 학교에"
TOKENS = 1500  # a syllable is up to three of them
CHARACTERS = 500


def test_five_hundred_characters(tmp_path: Path) -> None:
    with chromium() as browser:
        for kind in ("char", "jamo", "bpe"):
            for family in ("modern", "classic"):
                model = gpt(kind, family=family)
                visits = Visits(browser)
                path = ModelPage(model, "작은 모델").save(tmp_path / f"{kind}-{family}.html")
                page = visits(path, text=PROMPT, link=f"t=0&n={TOKENS}")
                written(page, TOKENS)
                [expected] = generate(rounded(model), PROMPT, tokens=TOKENS, temperature=0)
                ids = model.tokenizer.encode(PROMPT).tolist()
                assert page.evaluate("session.ids") == [*ids, *expected.ids], (kind, family)
                shown = page.evaluate("document.querySelector('.mirror').textContent.replace(/\\u200b$/, '')")
                assert len(expected.text) >= CHARACTERS, (kind, family)
                assert shown.startswith(PROMPT + expected.text), (kind, family)
                visits.end()
