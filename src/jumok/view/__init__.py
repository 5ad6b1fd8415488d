"""Look into a model: a page that shows its attention, and pictures of runs and of attention."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from jumok.corpora.hub import name_of
from jumok.files import require_writable

if TYPE_CHECKING:
    from jumok.inference.sampling import Sampling
    from jumok.models import Model
    from jumok.view.page import Page


def view(
    model: Model | str | os.PathLike[str],
    text: str,
    *,
    target: str | None = None,
    tokens: int = 0,
    sampling: Sampling | None = None,
    seed: int | None = None,
    block: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    exact: bool = False,
    probe: bool = False,
    language: Literal["ko", "en"] | None = None,
    name: str | None = None,
    out: str | os.PathLike[str] | None = None,
    show: bool | None = None,
) -> Page:
    """Show what a model computes on a text: all heads, queries and keys, probabilities, layer by layer.

    Jupyter and marimo show the page as the result of a cell; Python's own prompt opens it in a browser. In a script use
    `.show()` or `.save("page.html")`. The page is one file that needs no network.

    >>> jumok.view("runs/numbers", "1,234", target="천이백삼십사").save("numbers.html")

    Args:
        model: with its tokenizer, or the folder of one, as `jumok.load` takes it.
        text: a string, of an encoder–decoder the source. For a file: `Path("night.txt").read_text()`.
        target, tokens, sampling, seed, layers, heads: see `jumok.view.trace.trace`.
        block, layer, head, language: where, and in which language, the page opens.
        exact: see `jumok.view.schema.to_json`.
        probe: also ablate each head in turn, and show which ones matter for this text.
        name: of the model, as the page shows it [the folder's, or the class's].
        out: also save the page here. show: open it in a browser; None: at Python's prompt, unless `out` is given.

    Raises:
        RunError: there is no such folder, or it is damaged; or `out` cannot be written. TextError, TokenizerError: see
            `jumok.view.trace.trace`.
        ConfigError: the text is the name of a file, a setting is wrong, or `out` has no folder.
        ViewError: the model's numbers are not finite, or with `probe` it predicts no tokens.
    """
    from jumok.runs.load import load
    from jumok.text import string_of
    from jumok.view.page import page_of
    from jumok.view.probes import probe_trace
    from jumok.view.trace import attention_of, trace

    text = string_of(text)
    if out is not None:
        require_writable(out)
    loaded: Model = load(model) if isinstance(model, str | os.PathLike) else model
    if isinstance(model, str | os.PathLike):
        name = name or name_of(model)
    seen = trace(
        loaded, text, target=target, tokens=tokens, sampling=sampling, seed=seed, layers=layers, heads=heads,
        name=name,
    )  # fmt: skip
    attention_of(seen, block, layer, head)  # it must exist
    probes = probe_trace(loaded, seen) if probe else None
    page = page_of(seen, probes, block=block, layer=layer, head=head, language=language, exact=exact)
    if out is not None:
        page.save(out)
    _show(page, show, default=out is None)
    return page


def _show(page: Page, show: bool | None, default: bool) -> None:
    """Open a page in a browser if `show` says so; None: at Python's prompt, if it is the default."""
    from jumok.errors import ViewError

    if show:
        page.show()
    elif show is None and default and _at_the_prompt():
        with suppress(ViewError):  # without a browser, the page's repr says what to do
            page.show()


def _at_the_prompt() -> bool:
    """Return whether someone types at the prompt of Python or IPython, not in a notebook, which shows pages itself."""
    return hasattr(sys, "ps1") and not {"ipykernel", "marimo"} & sys.modules.keys()
