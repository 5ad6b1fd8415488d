"""Sizes and times of the viewer's page, beside BertViz where it is installed: python bench/viewer.py

A GPT-2 of 12 layers with 12 heads of 64 (its first weights, or those of --run) reads Korean text of 256, 512 and 1,024
tokens. Told are how long the page takes to make, how large it is, and in Chromium, with Playwright, how long it takes
from opening the file to a picture that answers, and from a click to the picture of another head, of another layer with
one head shown, and of another layer with all of them. BertViz gets the same weights and tokens, and is told by the size
of what it writes; its pages load scripts from the network, so they are not opened here.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

import jumok
from jumok.config import SIZES, GPTConfig
from jumok.corpora import stories
from jumok.interpret.record import record
from jumok.models import build
from jumok.tokenizers import train_tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--run", type=Path, help="a GPT of one's own, instead of a new GPT-2")
    parser.add_argument("--bertviz", type=int, default=256, help="the most tokens to give to BertViz [256]")
    args = parser.parse_args()
    text = "".join(stories.write(200_000, seed=1))
    model = jumok.load(args.run) if args.run else new_gpt2(text)
    ids = model.tokenizer.encode(text)
    print(f"python {' '.join(sys.argv)}")
    threads = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    print(f"{platform.platform()}, Python {platform.python_version()}, {threads}")
    c = model.config
    print(f"{c.n_layer} layers, {c.n_head} heads of {c.head_dim}, {model.parameter_count():,} parameters\n")
    print(
        f"{'tokens':>6}  {'page MB':>7}  {'made s':>6}  {'ready ms':>8}  {'head ms':>13}  {'layer ms':>13}  BertViz MB"
    )
    with tempfile.TemporaryDirectory() as folder:
        for tokens in args.tokens:
            measure(model, ids[: min(tokens, c.context_length)].tolist(), Path(folder) / "page.html", args.bertviz)


def new_gpt2(text: str) -> Any:
    torch.manual_seed(0)
    tokenizer = train_tokenizer(text, "bpe", vocab_size=4000)
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, **{**SIZES["gpt2"], "family": "classic", "dropout": 0.0}))
    model.tokenizer = tokenizer
    return model.eval()


def measure(model: Any, ids: list[int], path: Path, bertviz_tokens: int) -> None:
    began = time.perf_counter()
    page = jumok.view(model, model.tokenizer.decode(ids), name="gpt2", out=path)
    made = time.perf_counter() - began
    tokens = len(page.trace["sequences"][0]["tokens"])
    print(f"{tokens:>6}  {path.stat().st_size / 1e6:>7.2f}  {made:>6.1f}  ", end="", flush=True)
    print(in_browser(path), end="  ", flush=True)
    print(beside(model, ids) if tokens <= bertviz_tokens else "-", flush=True)


def in_browser(path: Path) -> str:
    """Milliseconds to the first picture, and to those after a click."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(path.as_uri() + "#view=heads&layer=0&heads=0&head=0")
        page.evaluate("window.jumok.ready")
        ready = page.evaluate("window.jumok.timings.ready")
        alone = "new MouseEvent('click', { altKey: true, bubbles: true })"
        heads = switched(
            page, [f"document.getElementById('chip-{1 + i % 11}').dispatchEvent({alone})" for i in range(12)]
        )
        layers = switched(page, ["document.getElementById('layer-next').click()"] * 5)
        page.click("#heads-all")
        every = switched(page, ["document.getElementById('layer-next').click()"] * 5)
        browser.close()
    return f"{ready:>8.0f}  {heads:>13}  {layers:>13}  {every:>13}"


def switched(page: Any, actions: list[str]) -> str:
    """From each action to its picture on the screen, as the page itself measures it: the median and the slowest."""
    times = [
        page.evaluate(
            f"""new Promise((done) => {{
                const began = performance.now();
                const before = window.jumok.timings.change;
                {action};
                const painted = () => requestAnimationFrame(() => done(performance.now() - began));
                const wait = () => (window.jumok.timings.change === before ? setTimeout(wait, 1) : painted());
                wait();
            }})"""
        )
        for action in actions
    ]
    return f"{statistics.median(times):.0f} (≤ {max(times):.0f})"


def beside(model: Any, ids: list[int]) -> str:
    """Megabytes of BertViz's head view and model view of the same weights."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from bertviz import head_view, model_view
    except ImportError as error:
        return f"not installed ({error})"
    with record(model) as recording, torch.inference_mode():
        model(torch.tensor([ids]))
    weights = [attention.weights() for attention in recording.attentions]
    tokens = model.tokenizer.pieces(ids)
    sizes = [len(made(weights, tokens, html_action="return").data.encode()) / 1e6 for made in (head_view, model_view)]
    return f"head view {sizes[0]:.1f}, model view {sizes[1]:.1f}"


if __name__ == "__main__":
    main()
