"""Sizes, speeds and losses of pages that hold a model: python bench/page.py [RUN...] --text FILE

For new models of the named sizes, and for each run: the size of the page in bytes, and its ratio to the number of
parameters; and in Chromium, with Playwright, on one core: the time from opening the file to the first character that
the page has written on the screen, and the characters a second with WebAssembly and with plain JavaScript. These are
measured with the worker of a page and a small script that asks for text, so drawing is not part of them, but each token
comes with its twelve likeliest alternatives, as a page shows them. For runs, with --text: the loss of the run, and what
rounding to 8 and to 16 bits adds to it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import jumok
from jumok.config import SIZES, GPTConfig
from jumok.corpora import stories
from jumok.models import build
from jumok.tokenizers import train_tokenizer
from jumok.view.bundle import script
from jumok.view.model_page import WORKER, ModelPage, rounded
from jumok.view.page import embedded
from speed import describe

HTML = """<!doctype html><meta charset="utf-8">
<script type="application/json" id="jumok-model">{header}</script>
<script type="text/plain" id="jumok-parameters">{parameters}</script>
<script type="text/plain" id="jumok-worker">{worker}</script>
<script>{script}</script>
"""
# Writes on and on from the beginning of a text, and keeps when each token came, in milliseconds from opening the file.
SCRIPT = """
const [header, parameters, code] = ["model", "parameters", "worker"].map(
  (id) => document.getElementById(`jumok-${id}`).textContent);
const worker = new Worker(URL.createObjectURL(new Blob(["BEFORE", code])));
window.times = [];
worker.onmessage = ({ data }) => {
  if (data.failed || data.error) window.trouble = JSON.stringify(data);
  else if (data.ready) worker.postMessage({ call: 1, method: "encode", args: ["PROMPT"] });
  else if (data.call === 1) {
    const settings = { tokens: TOKENS, sampling: { temperature: 0.8, seed: 1 } };
    worker.postMessage({ call: 2, method: "write", args: [data.result.ids, settings] });
  } else if (data.events) for (const _ of data.events) window.times.push(performance.now());
  else window.done = true;
};
worker.postMessage({ start: { header, parameters } });
"""
# When each character of the first text that a page writes by itself came on the screen.
WATCH = """
window.times = [];
new MutationObserver(() => {
  const count = document.querySelectorAll(".mirror span span[class]").length;
  while (window.times.length < count) window.times.push(performance.now());
}).observe(document, { subtree: true, childList: true });
"""
PLAIN = "self.WebAssembly = undefined;"  # the flags of Chromium that take it away also change the compiler
SETTLING = 4000  # milliseconds
FIRST_TEXT = 120  # characters, of those that a page writes when it is opened


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--sizes", nargs="*", default=["nano", "micro", "mini", "small"], choices=list(SIZES))
    parser.add_argument("--text", type=Path, help="a text that the runs were not trained on")
    parser.add_argument("--tokens", type=int, default=400, help="tokens to write in the browser [400]")
    parser.add_argument("--rounds", type=int, default=3, help="times to open each page [3]")
    args = parser.parse_args()
    print(f"python {' '.join(sys.argv)}")
    print(describe(torch.device("cpu")))
    models = {size: new_model(size) for size in args.sizes}
    models |= {str(run): jumok.load(run) for run in args.runs}
    print(
        f"In one core of {browser_name()}; the median and the range of {args.rounds} rounds, {args.tokens} characters."
    )
    for name, model in models.items():
        measure_page(name, model, args.tokens, args.rounds)
    for run in args.runs if args.text else ():
        measure_loss(models[str(run)], args.text)


def new_model(size: str) -> Any:
    """A model of a named size with the tokenizer of made stories, and random parameters, which take most space."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer("".join(stories.write(200_000, seed=1)))
    shape = {name: value for name, value in SIZES[size].items() if name in GPTConfig.__dataclass_fields__}
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, **shape))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
    model.tokenizer = tokenizer
    return model.eval()


def measure_page(name: str, model: Any, tokens: int, rounds: int) -> None:
    made, exact = (ModelPage(model, name, exact=exact) for exact in (False, True))
    size, count = len(made.html.encode()), model.parameter_count()
    print(f"\n{name}: {count:,} parameters; {size / 1e6:.2f} MB, {size / count:.2f} bytes for each", end="")
    print(f"; in 16 bits {len(exact.html.encode()) / 1e6:.2f} MB")
    print(f"  the page           {in_browser(made.html, rounds, watch=True)}")
    code = SCRIPT.replace("TOKENS", str(tokens)).replace("PROMPT", "그날 밤 ")
    for label, page, before in (("SIMD", made, ""), ("JavaScript", made, PLAIN), ("SIMD, 16 bits", exact, "")):
        parts = {"header": embedded(page.header), "parameters": page._parameters, "worker": script(WORKER)}
        html = HTML.format(**parts, script=code.replace("BEFORE", before))
        print(f"  worker, {label:<13} {in_browser(html, rounds)}", flush=True)


def in_browser(html: str, rounds: int, *, watch: bool = False) -> str:
    """The time to the first character, and the characters a second after it."""
    from playwright.sync_api import sync_playwright

    rates, firsts = [], []
    with tempfile.TemporaryDirectory() as folder, one_core(), sync_playwright() as playwright:
        path = Path(folder) / "page.html"
        path.write_text(html, encoding="utf-8")
        for _ in range(rounds):
            launch = ["--no-sandbox", "--disable-gpu"]
            browser = playwright.chromium.launch(executable_path=chromium(), args=launch)
            page = browser.new_page()
            page.wait_for_timeout(SETTLING)  # the browser loads parts of its own, on the same core
            if watch:
                page.add_init_script(WATCH)
            page.goto(path.as_uri())
            end = f"window.times.length >= {FIRST_TEXT}" if watch else "window.done || Boolean(window.trouble)"
            while not page.evaluate(end):  # wait_for_function would need what the policy of the page forbids
                time.sleep(0.3)
            times, trouble = page.evaluate("[window.times, window.trouble]")
            browser.close()
            if trouble:
                raise RuntimeError(trouble)
            rates.append(1000 * (len(times) - 1) / (times[-1] - times[0]))
            firsts.append(times[0] / 1000)
    return f"first after {spread(firsts, 2)} s, then {spread(rates, 0)} a second"


@contextmanager
def one_core() -> Iterator[None]:
    """Processes that are started meanwhile run on one core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure_loss(model: Any, text: Path) -> None:
    """Nats per character of a run, and how much more there are with rounded parameters."""
    whole = jumok.evaluate(model, text)
    print(f"\n{text.name}, {whole.chars:,} characters: {whole.nats_per_char:.5f} nats/char", end="")
    for exact in (False, True):
        found = jumok.evaluate(rounded(model, exact=exact), text).nats_per_char
        print(f"; in {16 if exact else 8} bits {found - whole.nats_per_char:+.5f}", end="")
    print()


def spread(values: list[float], digits: int) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        raise SystemExit("there is no Chromium here")
    return found


def browser_name() -> str:
    return subprocess.run([chromium(), "--version"], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
