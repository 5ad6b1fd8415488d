"""The interactive pieces on the documentation site, in a real browser: by keyboard, in both languages, offline."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sphinx", reason="the site is built with Sphinx: pip install 'jumok[docs]'")

pytestmark = [pytest.mark.browser, pytest.mark.long]

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHAPTERS = {4: ["dot", "softmax"], 5: ["mask"], 8: ["rope"], 14: ["online", "cache"], 10: ["training"]}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chapters with pieces in both languages, built with the configuration of the site."""
    folder = tmp_path_factory.mktemp("pieces")
    docs, built = folder / "docs", folder / "site"
    for name in ("_static", "_templates", "learn/pictures"):
        shutil.copytree(DOCS / name, docs / name)
    shutil.copy(DOCS / "conf.py", docs)
    for language, start in (("en", "index.md"), ("ko", "ko/index.md")):
        (docs / start).parent.mkdir(exist_ok=True)
        pages = f"/learn/{language}/*"
        (docs / start).write_text(f"# Start\n\n```{{toctree}}\n:glob:\n{pages}\n```\n", encoding="utf-8")
        (docs / "learn" / language).mkdir()
        for number in CHAPTERS:
            [chapter] = (DOCS / "learn" / language).glob(f"{number:02d}-*.md")
            shutil.copy(chapter, docs / "learn" / language)
        options = ["-q", "-t", language, "-d", str(folder / f"doctrees-{language}")]  # links to other chapters warn
        command = [sys.executable, "-m", "sphinx", *options, str(docs), str(built)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        assert done.returncode == 0, done.stderr
    return built


class Site:
    """The site in a browser without a network; it collects complaints and requests that leave the site."""

    def __init__(self, site: Path, browser: Any, **options: Any) -> None:
        self.site, self.troubles = site, list[str]()
        self.page = browser.new_context(**options).new_page()
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.route("**/*", self._answer)

    def _answer(self, route: Any) -> None:
        """From the folder of the site, under an address of its own; the search is not built here, so it is empty."""
        path = route.request.url.removeprefix("http://site.invalid/").partition("?")[0]
        file = self.site / path
        if path.startswith("pagefind/"):
            route.fulfill(body="", content_type="text/css" if path.endswith(".css") else "text/javascript")
        elif file.is_file():
            route.fulfill(path=file)
        else:
            self.troubles.append(f"request: {route.request.url}")
            route.abort()

    def open(self, language: str, number: int) -> None:
        [source] = (DOCS / "learn" / language).glob(f"{number:02d}-*.md")
        chapter = self.site / "learn" / language / f"{source.stem}.html"
        self.page.goto(f"http://site.invalid/{chapter.relative_to(self.site).as_posix()}")

    def piece(self, name: str) -> Any:
        return self.page.locator(f'[data-piece="{name}"]')


def test_every_piece_works_by_keyboard(site: Path, browser: Any) -> None:
    """Each control has a name and can be reached; together they change the sentence below the drawing."""
    visit = Site(site, browser, viewport={"width": 390, "height": 800})
    for number, names in CHAPTERS.items():
        visit.open("ko", number)
        for name in names:
            piece = visit.piece(name)
            status = piece.get_by_role("status")
            sentences = {status.inner_text()}
            controls = piece.locator("input, button").all()
            controls[0].focus()
            for control in controls:
                assert control.evaluate("one => one === document.activeElement")
                label = control.evaluate("one => one.labels?.[0]?.querySelector('span').textContent ?? one.textContent")
                role = {"range": "slider", "checkbox": "checkbox"}.get(control.get_attribute("type"), "button")
                assert piece.get_by_role(role, name=label, exact=True).count() == 1
                visit.page.keyboard.press("ArrowRight" if role == "slider" else "Space")
                sentences.add(status.inner_text())
                visit.page.keyboard.press("Tab")
            assert len(sentences) > 2, name
            assert piece.locator("svg").get_attribute("aria-label") == status.inner_text()
    assert visit.troubles == []


@pytest.mark.parametrize(("language", "width"), [("ko", 390), ("en", 1280)])
def test_every_piece_speaks_the_language_of_its_page(site: Path, browser: Any, language: str, width: int) -> None:
    """And it is not wider than the page."""
    visit = Site(site, browser, viewport={"width": width, "height": 800})
    for number, names in CHAPTERS.items():
        visit.open(language, number)
        assert visit.page.evaluate("document.documentElement.scrollWidth") == width
        sentences = visit.page.locator(".jumok-live .jumok-said").all_inner_texts()
        assert [bool(re.search("[가-힣]{2}", sentence)) for sentence in sentences] == [language == "ko"] * len(names)
    assert visit.troubles == []


def test_steps_go_back_and_on_and_by_themselves(site: Path, browser: Any) -> None:
    """A button at the end keeps the focus, and a reader's own step ends the play."""
    visit = Site(site, browser)
    visit.page.clock.install()
    visit.open("en", 14)
    piece = visit.piece("online")
    step = piece.get_by_role("slider", name="tile", exact=True)
    on, back, play = (piece.get_by_role("button", name=name) for name in ("Next", "Back", "Play"))
    assert back.get_attribute("aria-disabled") == "true"
    on.press("Enter")
    assert step.get_attribute("aria-valuetext") == "1 / 6"
    assert back.get_attribute("aria-disabled") == "false"
    play.press("Enter")
    visit.page.clock.run_for(1300)
    assert step.get_attribute("aria-valuetext") == "3 / 6"
    back.press("Enter")
    visit.page.clock.run_for(10_000)
    assert step.get_attribute("aria-valuetext") == "2 / 6"
    assert play.inner_text() == "Play"
    piece.get_by_role("slider", name="tile size").press("End")  # one tile of 12 keys: step 2 is not there any more
    assert step.get_attribute("aria-valuetext") == "1 / 1"
    play.press("Enter")  # from the beginning
    visit.page.clock.run_for(10_000)
    assert step.get_attribute("aria-valuetext") == "1 / 1"
    assert "all keys" in piece.get_by_role("status").inner_text()
    assert visit.troubles == []


def test_a_piece_follows_the_site_the_system_and_paper(site: Path, browser: Any) -> None:
    """Its colours, its movement, and its picture in place of the live part."""
    visit = Site(site, browser, color_scheme="dark", reduced_motion="reduce")
    visit.open("en", 5)
    piece = visit.piece("mask")
    live, picture, cell = (piece.locator(part) for part in (".jumok-live", "img", "rect"))
    colour = "one => getComputedStyle(one).backgroundColor"
    duration = "one => getComputedStyle(one).transitionDuration"
    assert live.evaluate(colour) == "rgb(21, 24, 29)"
    visit.page.evaluate("document.body.dataset.theme = 'light'")
    assert live.evaluate(colour) == "rgb(255, 255, 255)"
    assert cell.first.evaluate(duration).partition(",")[0] == "0s"
    visit.page.emulate_media(reduced_motion="no-preference")
    assert cell.first.evaluate(duration).partition(",")[0] != "0s"
    assert (picture.is_visible(), live.is_visible()) == (False, True)
    visit.page.emulate_media(media="print")
    assert (picture.is_visible(), live.is_visible()) == (True, False)
    assert visit.troubles == []


def test_without_the_script_a_piece_is_its_picture(site: Path, browser: Any) -> None:
    visit = Site(site, browser, java_script_enabled=False)
    visit.open("en", 5)
    assert visit.piece("mask").locator("img").is_visible()
    assert visit.piece("mask").locator(".jumok-live").count() == 0
