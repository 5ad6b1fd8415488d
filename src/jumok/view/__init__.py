"""Looking into a model: a page that shows what its heads look at, and pictures of runs and of attention."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jumok.models import Model
    from jumok.view.page import Page


def view(
    model: Model | str | os.PathLike[str],
    text: str,
    *,
    target: str | None = None,
    tokens: int = 0,
    temperature: float = 0.8,
    seed: int | None = None,
    block: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    exact: bool = False,
    neurons: Literal["auto", "all", "none"] | Sequence[int] = "auto",
    probe: bool = False,
    language: Literal["ko", "en"] | None = None,
    name: str | None = None,
    out: str | os.PathLike[str] | None = None,
    show: bool | None = None,
) -> Page:
    """Look at what a model does with a text: all heads, queries and keys, probabilities, layer by layer.

    In Jupyter and marimo the page shows itself as the result of a cell; typed at Python's own prompt, it opens in a
    browser. In a script, `.show()` opens it, and `.save("page.html")` keeps it. It is one file that needs no network.

    >>> jumok.view(model, "그날 밤").save("night.html")
    >>> jumok.view("runs/numbers", "1,234", target="천이백삼십사").show()

    Args:
        model: a GPT, BERT or encoder–decoder with its tokenizer, or the folder of one, as `jumok.load` takes it.
        text: what it reads, a string; of an encoder–decoder the source. For a file: `Path("night.txt").read_text()`.
        target: of an encoder–decoder, what it is to have answered; None: what it answers.
        tokens: how many more a GPT is to write. temperature, seed: of what it writes; see `jumok.generate`.
        block, layer, head: where the page opens, from 0; the block of an encoder–decoder is "encoder", "decoder" or
            "cross".
        layers, heads: which are in the page; None: all.
        exact: keep weights, queries and keys in 16 bits instead of 8; the page becomes several times as large.
        neurons: of which layers queries and keys are in the page: a list, "all", "none", or "auto", what has room.
        probe: switch each head off in turn, too, and show which ones matter for this text.
        language: that the page opens in; None: that of the browser.
        name: of the model, as the page shows it [the folder's, or the class's].
        out: also save the page here. show: open it in a browser; None: at Python's prompt, unless `out` is given.

    Raises:
        RunError: there is no such folder, or it is damaged.
        TextError: the text is empty, or too long for a target.
        TokenizerError: the model has no tokenizer, or it cannot encode the text.
        ConfigError: the text is the name of a file, a number is out of range, a setting is for another kind of model,
            or `out` has no folder.
        ViewError: the model's numbers are not finite; with `probe`, the model predicts no tokens; `out` cannot be
            written; with show=True, there is no browser.
    """
    # Trainers import this room for their pictures and need none of these.
    from jumok.errors import ViewError
    from jumok.runs.load import load
    from jumok.text import string_of
    from jumok.view.heads import chosen
    from jumok.view.page import page_of, require_writable
    from jumok.view.probes import probe_trace
    from jumok.view.trace import trace

    text = string_of(text)
    if out is not None:
        require_writable(out)
    loaded: Model = load(model) if isinstance(model, str | os.PathLike) else model
    if isinstance(model, str | os.PathLike):
        name = name or Path(model).resolve().name
    seen = trace(
        loaded, text, target=target, tokens=tokens, temperature=temperature, seed=seed, layers=layers, heads=heads,
        exact=exact, neurons=neurons, open_layer=layer, name=name,
    )  # fmt: skip
    chosen(seen, block, layer, head)
    probes = probe_trace(loaded, seen) if probe else None
    page = page_of(seen, probes, block=block, layer=layer, head=head, language=language)
    if out is not None:
        page.save(out)
    if show:
        page.show()
    elif show is None and out is None and _at_the_prompt():
        with suppress(ViewError):  # where there is no browser, what the prompt prints says what to do
            page.show()
    return page


def _at_the_prompt() -> bool:
    """Whether someone types at Python's own prompt, or IPython's, and not in a notebook, which shows pages itself."""
    return hasattr(sys, "ps1") and not {"ipykernel", "marimo"} & sys.modules.keys()
