"""The documentation site: its pages in two languages, its links, its search, and that it needs no other server."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from jumok.course.pages.wheel import wheel_name

pytest.importorskip("sphinx", reason="the site is built with Sphinx: pip install 'jumok[docs]'")
pytestmark = pytest.mark.slow

DOCS = Path(__file__).resolve().parents[1] / "docs"
CHAPTERS = sorted(path.stem for path in (DOCS / "learn" / "ko").glob("*.md"))
PAGE = '<html lang="ko"><body><main data-pagefind-body><h1>조사</h1><p>어텐션을 설명합니다.</p></main></body></html>'


def build(docs: Path, site: Path, language: str) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs for one language."""
    options = ["-q", "-W", "--keep-going", "-t", language, "-d", str(site.parent / f"doctrees-{language}")]
    command = [sys.executable, "-m", "sphinx", *options, str(docs), str(site)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, without its search."""
    site = tmp_path_factory.mktemp("site") / "out"
    for language in ("en", "ko"):
        done = build(DOCS, site, language)
        assert done.returncode == 0, done.stderr
    return site


class _Links(HTMLParser):
    """The addresses in a page: of links, and of what the browser loads; and the ids that a link may name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given["id"]} if "id" in given else set()
        if tag == "a" or given.get("rel") == "alternate":
            self.links += [given["href"]] if "href" in given else []
        else:
            self.loaded += [
                given[name] for name in ("src", "href") if name in given and not given[name].startswith("#")
            ]


def pages(site: Path) -> dict[Path, _Links]:
    return {page: _Links(page) for page in site.rglob("*.html")}


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "ko"])
def test_each_chapter_is_a_page_and_a_notebook_in_both_languages(site: Path, language: str) -> None:
    folder = site / "learn" / language
    assert len(CHAPTERS) >= 12
    moved = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.html") if path.stem not in CHAPTERS}
    assert len(moved) >= 17, "the pages under old numbers"
    assert all((folder / re.findall(r"url=([^\"]+)", text)[0]).stem in CHAPTERS for text in moved.values())
    assert {path.stem for path in folder.glob("*.html")} - {path.stem for path in moved} == set(CHAPTERS)
    assert sorted(path.stem for path in folder.glob("*.ipynb")) == CHAPTERS
    for name in CHAPTERS:
        page = _Links(folder / f"{name}.html")
        assert f"{name}.ipynb" in page.links
        assert f"../{'ko' if language == 'en' else 'en'}/{name}.html" in page.links
        assert json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4


@pytest.mark.long
def test_every_link_within_the_site_leads_somewhere(site: Path) -> None:
    """Sphinx checks the links within one language; the site is built from two."""
    found = pages(site)
    assert len(found) > 2 * len(CHAPTERS)
    broken = []
    for page, links in found.items():
        for link in links.links:
            address = urlsplit(link)
            if address.scheme:
                continue
            target = (page.parent / unquote(address.path)).resolve() if address.path else page
            fragment = unquote(address.fragment)
            if not target.is_file() or (fragment and target in found and fragment not in found[target].ids):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert not broken


@pytest.mark.long
@pytest.mark.parametrize("language", ["en", "ko"])
def test_a_chapter_shows_the_pictures_of_its_language(site: Path, language: str) -> None:
    """Both builds wrote pictures of the same name to one folder, so English pages showed Korean pictures."""
    found = 0
    for name in CHAPTERS:
        page = site / "learn" / language / f"{name}.html"
        shown = [(page.parent / address).resolve() for address in _Links(page).loaded if "_images/" in address]
        text = (DOCS / "learn" / language / f"{name}.md").read_text(encoding="utf-8")
        given = [DOCS / "learn" / language / path for path in re.findall(r"^!\[.*\]\((\S+)\)$", text, re.MULTILINE)]
        assert {path.read_bytes() for path in shown} == {path.read_bytes() for path in given}, name
        found += len(given)
    assert found > len(CHAPTERS)


@pytest.mark.long
def test_pages_load_nothing_from_another_server(site: Path) -> None:
    foreign = {address for links in pages(site).values() for address in links.loaded if urlsplit(address).netloc}
    assert not foreign
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert not re.findall(r"@import|url\(\s*['\"]?(?:https?:)?//[^)]*", styles)


CHAPTER = f"learn/en/{CHAPTERS[0]}"
LITTLE = {
    "NOTES.md": "# Notes\n",
    "docs/index.md": (
        "# Start\n\n[한국어](ko/index.md#다음) [notes](../NOTES.md)\n\n## Questions\n\n"
        "<details>\n<summary>1. Why?</summary>\n\nBecause of `dim`, *always*.\n\n</details>\n\nThe end.\n"
    ),
    "docs/ko/index.md": "# 시작\n\n## 다음\n",
    "docs/broken.md": ("---\norphan: true\n---\n[a](none.md)\n\n[b](#none)\n\n[c](index.md#none)\n\n![d](none.png)\n"),
    f"docs/{CHAPTER}.md": "---\norphan: true\n---\n# A chapter\n",
}


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A site of a few pages, one of which has broken links, with an address for notebooks; and how its build ended."""
    folder = tmp_path_factory.mktemp("little")
    for part in ("_static", "_templates"):
        shutil.copytree(DOCS / part, folder / "docs" / part)
    for name, text in LITTLE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    addresses = '\naddresses = lambda: {"Colab": "https://colab.example/github/OWNER/jumok"}\n'
    (folder / "docs/conf.py").write_text((DOCS / "conf.py").read_text(encoding="utf-8") + addresses, encoding="utf-8")
    return folder / "out", build(folder / "docs", folder / "out", "en")


def test_a_broken_link_fails_the_build(little: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """And nothing else does: links to the other language and to files outside the folder work, as on GitHub."""
    site, done = little
    assert done.returncode != 0
    warned = re.findall(r"(\w+\.md:\d+): WARNING", done.stderr)
    assert sorted(warned) == sorted(f"broken.md:{line}" for line in (4, 6, 8, 10))
    links = _Links(site / "index.html").links
    assert "ko/index.html#다음" in links
    assert any(link.startswith("_downloads/") and link.endswith("/NOTES.md") for link in links)


def test_the_wheel_of_a_notebook_is_beside_it(little: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """A notebook installs jumok from a wheel as long as no index has it, so whoever takes the one needs the other."""
    page = little[0] / f"{CHAPTER}.html"
    colab = f"https://colab.example/github/OWNER/jumok/{CHAPTER}.ipynb"
    assert {f"{CHAPTERS[0]}.ipynb", wheel_name(), colab} <= set(_Links(page).links)
    assert page.with_name(wheel_name()).is_file()


def test_a_question_unfolds_its_answer(little: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    """The answer is Markdown like the rest of a page, inside an element that every browser unfolds."""
    [block] = re.findall(r"<details>.*?</details>", (little[0] / "index.html").read_text(encoding="utf-8"), re.DOTALL)
    assert "<summary>1. Why?</summary>" in block
    assert re.search(r"<p>Because of <code[^>]*><span[^>]*>dim</span></code>, <em>always</em>\.</p>", block)
    assert "The end." not in block


SEARCH = """async words => {
    const pagefind = await import("/pagefind/pagefind.js");
    const found = (await pagefind.search(words)).results;
    return (await Promise.all(found.map(result => result.data()))).map(data => data.url);
}"""


@contextlib.contextmanager
def served(site: Path, path: str = "") -> Iterator[str]:
    """Index a site for its search, serve it below a path of this machine, and nothing outside it."""
    index = [sys.executable, "-m", "pagefind", "--quiet", "--site", str(site), "--exclude-selectors", ".headerlink"]
    subprocess.run(index, check=True, capture_output=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def translate_path(self, address: str) -> str:
            inside = address.startswith(f"{path}/")
            return super().translate_path(address.removeprefix(path) if inside else "/outside-the-site")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}{path}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("there is no Chromium to open the page in; on Debian and Ubuntu: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.mark.browser
@pytest.mark.parametrize("path", ["", "/docs"])
def test_search_works_below_any_path(little: tuple[Path, Any], browser: Any, tmp_path: Path, path: str) -> None:
    """Pagefind took its index from /pagefind/, so a site at OWNER.github.io/jumok/ had no search."""
    site = shutil.copytree(little[0], tmp_path / "site")
    build(little[0].parent / "docs", site, "ko")
    with served(site, path) as address:
        for name, word, target in (
            ("index", "chapter", f"{CHAPTER}.html"),
            (CHAPTER, "because", "index.html"),
            ("ko/index", "다음", "ko/index.html"),
        ):
            page = browser.new_page()
            failed: list[str] = []
            page.on("requestfailed", lambda request, failed=failed: failed.append(request.url))
            page.goto(f"{address}/{name}.html")
            page.click("pagefind-modal-trigger button")
            page.keyboard.insert_text(word)
            link = page.locator("pagefind-results a").first
            link.wait_for()
            found = link.evaluate("a => a.href").split("#")[0]
            assert found == f"{address}/{target}".removesuffix("index.html")
            assert not failed
            page.close()


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The site with its search and with a page that has 어텐션 only in 어텐션을, on a server of this machine."""
    (site / "ko" / "particle.html").write_text(PAGE, encoding="utf-8")
    with served(site) as address:
        yield address


@pytest.mark.long
@pytest.mark.browser
def test_search_and_width_in_a_browser(address: str, browser: Any) -> None:
    """A noun is found where it stands only with a particle, and no page is wider than a phone."""
    page = browser.new_page(viewport={"width": 360, "height": 740})
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if address not in request.url else None)
    page.goto(f"{address}/ko/index.html")
    assert "/ko/particle.html" in page.evaluate(SEARCH, "어텐션")
    assert not [url for url in page.evaluate(SEARCH, "어텐션") if "/ko/" not in url]
    for word in ("허깅페이스", "라마", "올라마"):  # as readers write them; the pages once had only the Latin names
        assert "/ko/interop.html" in page.evaluate(SEARCH, word), word
    page.click(".nav-overlay-icon")
    page.click("pagefind-modal-trigger button")
    page.keyboard.insert_text("조사")
    page.locator("pagefind-results a", has_text="조사").first.click()
    page.wait_for_url("**/ko/particle.html*")
    for name in ("index", "ko/index", "formats", "api/nn", *(f"learn/ko/{name}" for name in CHAPTERS)):
        page.goto(f"{address}/{name}.html")
        assert page.evaluate("document.documentElement.scrollWidth") == 360, name
    page.close()
    assert not [url for url in foreign if url.startswith("http")]
