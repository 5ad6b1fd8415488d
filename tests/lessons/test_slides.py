"""Slides: what is on them, that they fit, and that they need no network."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from conftest import Jumok
from jumok.errors import LessonError
from jumok.lessons import chapters as lessons
from jumok.lessons.chapters import LANGUAGES, Chapter, Code, Picture, Prose, Question
from jumok.lessons.slides import pages
from jumok.lessons.slides.deck import Slide, first_sentences, slides

CHAPTERS = [chapter for language in LANGUAGES for chapter in lessons.chapters(language)]
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda each: f"{each.language}-{each.number:02d}")

TEXT = """# 3. 셋

첫 문장은 충분히 길어서 둘째 문장이 슬라이드에 나오지 않습니다. 둘째 문장. [4장](04-four.md)도 봅니다.

```python
import torch
```

## 절

- 하나입니다. 덧붙임.
- 둘

| 가 | 나 |
|---|---|
| 1 | 2 |

```python
print("가 & <나>")
```

```text
가 & <나>
```

![그림](../pictures/ko/03-a.png)

## 확인 문제

<details>
<summary>1. <code>dim</code>이란? 0 &lt; 1?</summary>

답입니다.

</details>
"""
PICTURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def small(tmp_path: Path) -> Chapter:
    path = tmp_path / "ko" / "03-three.md"
    path.parent.mkdir()
    path.write_text(TEXT, encoding="utf-8")
    picture = tmp_path / "pictures" / "ko" / "03-a.png"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(PICTURE)
    return Chapter(number=3, slug="three", language="ko", title="셋", question="왜?", path=path)


def texts(slide: Slide) -> list[str]:
    return [item.text for item in slide.items if isinstance(item, Prose)]


def test_a_small_chapter(small: Chapter) -> None:
    title, opening, *sections, question, answer = slides(small)
    assert (title.kind, title.title, texts(title)) == ("title", "셋", ["왜?"])
    assert texts(opening) == ["- 첫 문장은 충분히 길어서 둘째 문장이 슬라이드에 나오지 않습니다."]
    assert "둘째 문장. 4장 (`jumok learn 4`)도 봅니다." in opening.notes
    assert "import torch" in opening.notes, "code before the first section is in the notes"
    assert not any(isinstance(item, Code) for item in opening.items)
    items = [item for slide in sections for item in slide.items]
    assert [type(item) for item in items] == [Prose, Prose, Code, Picture]
    assert isinstance(items[0], Prose)
    assert items[0].text.startswith("- 하나입니다.")
    assert {slide.title.partition(" (")[0] for slide in sections} == {"절"}
    assert (question.kind, texts(question)) == ("question", ["1. `dim`이란? 0 < 1?"])
    assert question.notes == "답입니다."
    assert (answer.kind, texts(answer)) == ("answer", ["1. `dim`이란? 0 < 1?", "답입니다."])


@pytest.mark.parametrize(
    ("paragraph", "short"),
    [
        ("하나. 둘. 셋.", "하나. 둘."),
        ("끝이 없는 문단", "끝이 없는 문단"),
        (
            "**점수를 -∞가 아니라 0으로 바꿉니다.** e⁰ = 1입니다. 더.",
            "**점수를 -∞가 아니라 0으로 바꿉니다.** e⁰ = 1입니다.",
        ),
        (
            "The value 1.5 is larger than 0.25 in every one of these tables. So it wins.",
            "The value 1.5 is larger than 0.25 in every one of these tables.",
        ),
        (
            "Vaswani et al. (2017) divide the scores by the root, e.g. by 8, as we do. More.",
            "Vaswani et al. (2017) divide the scores by the root, e.g. by 8, as we do.",
        ),
        (
            "이 문장은\n다음 줄까지 이어지고 둘째 문장은 없습니다. 다음.",
            "이 문장은 다음 줄까지 이어지고 둘째 문장은 없습니다.",
        ),
    ],
)
def test_first_sentences(paragraph: str, short: str) -> None:
    assert first_sentences(paragraph) == short


@each_chapter
def test_nothing_of_a_chapter_is_lost(chapter: Chapter) -> None:
    """Each block of code, output, picture, question and paragraph is on a slide or in the notes."""
    deck = slides(chapter)
    items = [item for slide in deck for item in slide.items]
    shown = "\n".join(item.text if isinstance(item, Prose) else getattr(item, "source", "") for item in items)
    everything = shown + "\n" + "\n".join(slide.notes for slide in deck)
    for part in chapter.parts():
        match part:
            case Code():
                assert part.source.strip() in everything
                printed = [item.output for item in items if isinstance(item, Code)]
                assert not part.shown or part.output in printed or part.shown.rstrip() in everything
            case Picture():
                assert part in items
            case Question():
                assert [slide.kind for slide in deck if part.answer.split("\n")[0] in "\n".join(texts(slide))] == [
                    "answer"
                ]
            case Prose():
                for heading in re.findall(r"^## (.+)$", part.text, re.MULTILINE):
                    assert heading in {re.sub(r" \(\d+/\d+\)$", "", slide.title) for slide in deck}
    assert deck[0].kind == "title"


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.slides: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.loaded += [given[name] or "" for name in ("src", "srcset") if name in given]
        self.loaded += [given["href"] or ""] if tag == "link" else []
        if tag == "section":
            self.slides.append(given["class"] or "")

    def handle_data(self, data: str) -> None:
        self.text += data


@each_chapter
def test_the_page_needs_no_network(chapter: Chapter) -> None:
    text = pages.page(chapter)
    page = _Page(text)
    assert all(address.startswith("data:image/") for address in page.loaded)
    assert not re.search(r"@import|url\((?!data:)", text)
    assert len(page.loaded) == sum(isinstance(part, Picture) for part in chapter.parts())
    assert len(page.slides) == len(slides(chapter))
    assert chapter.title in page.text


def test_a_tall_picture_has_a_slide_of_its_own(small: Chapter) -> None:
    """Drawings of whole models became too small to read beside a text."""
    svg = small.path.parent.parent / "pictures" / "ko" / "03-b.svg"
    svg.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 700"></svg>', encoding="utf-8")
    text = TEXT.replace("![그림](../pictures/ko/03-a.png)", "![그림](../pictures/ko/03-b.svg)\n\n글")
    small.path.write_text(text, encoding="utf-8")
    [alone] = [slide for slide in slides(small) if any(isinstance(item, Picture) for item in slide.items)]
    assert len(alone.items) == 1
    assert "data:image/svg+xml;base64," in pages.page(small)
    svg.write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 300"></svg>', encoding="utf-8")
    [shared] = [slide for slide in slides(small) if any(isinstance(item, Picture) for item in slide.items)]
    assert len(shared.items) > 1


def test_the_page_of_a_small_chapter(small: Chapter) -> None:
    text = pages.page(small)
    assert "data:image/png;base64," + base64.b64encode(PICTURE).decode() in text
    assert "가 &amp; &lt;나&gt;</samp>" in text
    assert "<table>" in text
    page = _Page(text)
    assert 'print("가 & <나>")' in page.text
    assert "$" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL), "a field of the template is left"
    small.path.with_name("03-three.md").parent.parent.joinpath("pictures/ko/03-a.png").unlink()
    with pytest.raises(LessonError, match=r"03-a\.png cannot be read"):
        pages.page(small)


def test_marp(small: Chapter) -> None:
    text = pages.marp(small)
    _, head, body = text.split("---\n", 2)
    assert "marp: true\n" in head
    found = body.split("\n---\n")
    assert len(found) == len(slides(small))
    assert found[0].strip().startswith("# 셋")
    assert "<!--\n답입니다.\n-->" in text
    assert "```text\n가 & <나>\n```" in text
    assert "](data:image/png;base64," in text


# --- in a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("there is no Chromium to open the page in; on Debian and Ubuntu: apt install chromium")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.mark.browser
@pytest.mark.long
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_slides_of_every_chapter_fit(language: Any, browser: Any, tmp_path: Path) -> None:
    """Nothing runs over the edge, also where letters had to become smaller, and they stay legible."""
    tab = browser.new_page(viewport={"width": 640, "height": 360})
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    for chapter in lessons.chapters(language):
        path = tmp_path / f"{chapter.number}.html"
        path.write_text(pages.page(chapter), encoding="utf-8")
        tab.goto(path.as_uri())
        over = tab.evaluate(
            """() => [...document.querySelectorAll(".slide")].flatMap((slide) => {
              const body = slide.querySelector(".body");
              const fits = body.scrollHeight <= body.clientHeight + 1 && body.scrollWidth <= body.clientWidth + 1;
              return fits && slide.scrollHeight <= slide.clientHeight + 1 ? [] : [slide.id];
            })"""
        )
        wrong += [f"chapter {chapter.number}, slide {number}" for number in over]
    tab.close()
    assert wrong == []


@pytest.mark.browser
@pytest.mark.slow
def test_the_keys(small: Chapter, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "slides.html"
    path.write_text(pages.page(small), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(path.as_uri())

    def shown() -> str:
        visible = tab.evaluate(
            "[...document.querySelectorAll('.slide')].filter((s) => getComputedStyle(s).visibility === 'visible')"
            ".map((s) => s.id)"
        )
        assert len(visible) == 1
        return str(visible[0])

    count = len(slides(small))
    assert shown() == "1"
    keys = {"ArrowRight": "2", "Space": "3", "ArrowLeft": "2", "End": str(count), "PageDown": str(count), "Home": "1"}
    for key, expected in {**keys, "PageUp": "1", "ArrowDown": "2"}.items():
        tab.keyboard.press(key)
        assert shown() == expected, key
    assert tab.url.endswith("#2")
    tab.keyboard.press("n")
    assert "둘째 문장" in tab.locator("#notes").inner_text()
    tab.keyboard.press("n")
    assert tab.locator("#notes").count() == 0
    tab.keyboard.press("d")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.close()


# --- the command ---


def test_the_command(jumok: Jumok, own_folder: Path) -> None:
    end = jumok("learn", "slides", "3", "--lang", "en", "--json")
    assert end.code == 0
    assert end.json["slides"] == "03-queries-keys-values.html"
    assert "Wrote 03-queries-keys-values.html." in end.err
    written = Path(end.json["slides"]).read_text(encoding="utf-8")
    assert '<html lang="en">' in written
    end = jumok("learn", "slides", "3", "--lang", "en")
    assert end.code != 0
    assert "03-queries-keys-values.html exists already; give another name, or --force." in end.err
    assert jumok("learn", "slides", "3", "--lang", "ko", "--force").code == 0
    assert '<html lang="ko">' in Path("03-queries-keys-values.html").read_text(encoding="utf-8")
    assert jumok("learn", "slides", "causal-mask", "--marp", "--out", "mask.md").code == 0
    assert Path("mask.md").read_text(encoding="utf-8").startswith("---\nmarp: true\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["99"], "there is no chapter 99"), (["3", "--out", "no/3.html"], "there is no folder no"), ([], "CHAPTER")],
)
def test_wrong_use(arguments: list[str], message: str, jumok: Jumok, own_folder: Path) -> None:
    end = jumok("learn", "slides", *arguments)
    assert end.code != 0
    assert message in end.err
    assert list(own_folder.iterdir()) == []
