"""Takes the screenshots of the documentation: python docs/picture_pages.py [viewer] [page] [playground]

Without a name, all of them. The models that they show are trained first, in a few minutes, with fixed seeds and numbers
of steps, in build/pictures, where the next call finds them. The screenshots go to docs/viewer and docs/pictures, each
in English and in Korean. They need Playwright (`pip install -e '.[dev]'`), Chromium, Pillow, and a font with Hangul.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

DOCS = Path(__file__).resolve().parent
PICTURES, VIEWER = DOCS / "pictures", DOCS / "viewer"
MODELS = DOCS.parent / "build" / "pictures"
RUNS = {  # the name of a run -> how it is trained
    "stories": ["--steps", "160"],  # as README.md
    "short": ["--steps", "150", "--size", "nano", "--seed", "1"],
    "numbers": ["--task", "seq2seq", "--steps", "1200", "--size", "nano", "--seed", "1"],
}
VIEWS = {  # the name of a picture -> the run, what it reads, the address after "#", the height, and the theme
    "heads": (
        "stories",
        "무지개 뜬 월요일 낮이었어요. 빼빼 마른 다람쥐 풍월은",
        "view=heads&layer=1&token=12",
        720,
        "light",
    ),
    "neurons": (
        "stories",
        "무지개 뜬 월요일 낮이었어요. 빼빼 마른 다람쥐 풍월은",
        "view=neurons&layer=1&token=12",
        720,
        "light",
    ),
    "cross": ("numbers", "1,234,567", "view=cross&block=cross&layer=1&token=8", 640, "dark"),
}
LANGUAGES = {"en": "", "ko": ".ko"}  # and what the name of a picture ends with
PROMPT = "눈 내리는 토요일 아침, 용감한 펭귄 "
TITLES = {"en": "A model of stories", "ko": "이야기 모델"}
COLOURS = 128
SEED = "Math.random = () => 0.4"  # the page draws the seed of a second text with it
# Look at a token that was one of several likely ones.
CHOOSE = """
window.jumok.ready.then(({ session }) => {
  const place = session.tree.path().findIndex(({ surprise }, i) => i > 30 && surprise > 2 && surprise < 3);
  session.set({ place });
})
"""


def main() -> None:
    """Take the pictures in both languages."""
    kinds = sys.argv[1:] or ["viewer", "page", "playground"]
    stories, short, numbers = map(trained, RUNS)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if "viewer" in kinds:
            for name in VIEWS:
                picture_viewer(browser, {"stories": stories, "numbers": numbers}, name, Path(folder))
        if "page" in kinds:
            for language in LANGUAGES:
                picture_model(browser, stories, Path(folder) / f"{language}.html", language)
        if "playground" in kinds:
            with server(stories, short) as address:
                for language in LANGUAGES:
                    picture_playground(browser, address, (stories.name, short.name), language)
        browser.close()


def trained(name: str) -> Path:
    """The folder of a run, which is trained if it is not there."""
    run = MODELS / name
    if not (run / "model.safetensors").is_file():
        words = ["train", *RUNS[name], "--device", "cpu", "--out", str(run)]
        subprocess.run([sys.executable, "-m", "jumok", *words], check=True)
    return run


def picture_viewer(browser: Browser, runs: dict[str, Path], name: str, folder: Path) -> None:
    """One view of the viewer, in both languages."""
    run, text, view, height, theme = VIEWS[name]
    file = folder / f"{name}.html"
    words = ["view", str(runs[run]), text, "--layer", "1", "--exact", "--out", str(file), "--quiet"]
    subprocess.run([sys.executable, "-m", "jumok", *words], check=True)
    for language in LANGUAGES:
        page = browser.new_page(viewport={"width": 1180, "height": height}, locale=language)
        page.goto(f"{file.as_uri()}#{view}&language={language}&theme={theme}")
        page.wait_for_timeout(1500)
        keep(page, name, language, VIEWER)
        page.close()


def picture_model(browser: Browser, run: Path, file: Path, language: str) -> None:
    """The page as it looks after it has written, with a second branch; then one step."""
    words = ["share", str(run), "--out", str(file), "--title", TITLES[language], "--language", language, "--quiet"]
    subprocess.run([sys.executable, "-m", "jumok", *words], check=True)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, locale=language)
    page.add_init_script(SEED)
    page.goto(f"{file.as_uri()}#seed=4&n=130&text={PROMPT}")
    page.evaluate("window.jumok.ready.then(() => true)")
    wait_until_written(page)
    page.locator("#tool-again").click()
    wait_until_written(page)
    page.evaluate(CHOOSE)
    page.wait_for_timeout(2000)
    keep(page, "page", language)
    page.locator("#tab-step").click()
    page.wait_for_timeout(2500)
    page.locator("button").filter(has_text=re.compile(r"^(Softmax|소프트맥스)$")).first.click()
    page.wait_for_timeout(4000)
    keep(page, "page-step", language)
    page.close()


def wait_until_written(page: Page) -> None:
    """Wait for the button that begins to write: it stands where Stop was."""
    page.wait_for_timeout(500)
    page.locator("#tool-write").wait_for(state="visible", timeout=60_000)
    page.wait_for_timeout(500)


def picture_playground(browser: Browser, address: str, runs: tuple[str, str], language: str) -> None:
    """Two models side by side."""
    page = browser.new_page(viewport={"width": 1280, "height": 640}, locale=language)
    page.goto(f"{address}/#write={runs[0]}")
    page.locator("#model-1").select_option(runs[1])
    page.locator("#prompt").fill(PROMPT)
    page.locator("#go").click()
    page.locator("#go").filter(has_text=re.compile("^(Write|이어 쓰기)$")).wait_for(timeout=120_000)
    page.wait_for_timeout(1000)
    keep(page, "playground", language)
    page.close()


@contextmanager
def server(*runs: Path) -> Iterator[str]:
    """The address of a server of runs."""
    words = ["serve", *map(str, runs), "--port", "0", "--json"]
    with subprocess.Popen([sys.executable, "-m", "jumok", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def keep(page: Page, name: str, language: str, folder: Path = PICTURES) -> None:
    """Write a picture with few colours, which makes it small."""
    image = Image.open(BytesIO(page.screenshot())).convert("RGB")
    few = image.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(folder / f"{name}{LANGUAGES[language]}.png", optimize=True)


if __name__ == "__main__":
    main()
