"""Takes the pictures of the model page and the playground: python docs/picture_pages.py RUN OTHER_RUN

RUN is a GPT on `stories`, as `make demo` trains it; OTHER_RUN is another GPT. The pictures are screenshots of Chromium,
1280 pixels wide, and go to docs/pictures. They need Playwright (`pip install -e '.[dev]'`), Chromium, and Pillow.
"""

from __future__ import annotations

import argparse
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

PICTURES = Path(__file__).resolve().parent / "pictures"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path)
    args = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for language in LANGUAGES:
            picture_model(browser, args.run, Path(folder) / f"{language}.html", language)
        with server(args.run, args.other) as address:
            for language in LANGUAGES:
                picture_playground(browser, address, (args.run.name, args.other.name), language)
        browser.close()


def picture_model(browser: Browser, run: Path, file: Path, language: str) -> None:
    """The page as it looks after it has written, with a second branch; then one step."""
    words = ["share", str(run), "--out", str(file), "--title", TITLES[language], "--language", language, "--quiet"]
    subprocess.run([sys.executable, "-m", "jumok", *words], check=True)
    page = browser.new_page(viewport={"width": 1280, "height": 800}, locale=language)
    page.add_init_script(SEED)
    page.goto(f"{file.as_uri()}#seed=4&n=130&text={PROMPT}")
    page.wait_for_function("window.jumok?.ready.then(() => true)")
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


def keep(page: Page, name: str, language: str) -> None:
    """Write a picture with few colours, which makes it small."""
    image = Image.open(BytesIO(page.screenshot())).convert("RGB")
    few = image.quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(PICTURES / f"{name}{LANGUAGES[language]}.png", optimize=True)


if __name__ == "__main__":
    main()
