"""`jumok share`: a model as one HTML file, which writes and explains itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.replacing import refuse_to_replace
from jumok.corpora.hub import name_of
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.view.model_page import ModelPage


@click.command(
    cls=Verb,
    short_help="Write a model as one HTML file that needs nothing else.",
    examples="""
    jumok share runs/novel
    jumok share runs/novel --out novel.html --title "소설 모델" --prompt "그날 밤" --open
    """,
)
@click.argument("run", type=PATH)
@option("--out", type=PATH, help="file of the page [RUN.html]")
@option("--open", "opens", is_flag=True, help="open the page in a browser")
@option("--prompt", help="text that the page begins with, a review for a classifier for example")
@option("--exact", is_flag=True, help="keep the parameters in 16 bits instead of 8; twice the size")
@option("--title", help="title of the page [name of the folder]")
@option("--note", help="what you want to say about the model, shown on the page")
@option("--licence", help="licence of the text that it was trained on, shown on the page")
@option("--language", type=click.Choice(["ko", "en"]), help="language of the page [that of the browser]")
@option("--force", is_flag=True, help="overwrite a file that jumok did not write")
@common(device=False)
def share(run: Path, out: Path | None, opens: bool, force: bool, as_json: bool, quiet: bool, **settings: Any) -> None:
    """Write a model as one HTML file. It runs in a browser, without network, server or installation.

    The file holds the parameters and the tokenizer of the model, and none of the texts that it was trained on.
    """
    from jumok.view.page import open_in_browser

    path = out or Path(f"{name_of(run)}.html")
    size = write_page(run, path, settings, force=force, quiet=quiet)
    if sys.stderr.isatty() and not opens:
        say(tr("Open it in a browser: {uri}", uri=path.resolve().as_uri()), quiet=quiet)
    if opens:
        open_in_browser(path)
    if as_json:
        print_json({"run": str(run), "page": str(path), "bytes": size})


def write_page(run: Path, path: Path, settings: Mapping[str, Any], *, force: bool, quiet: bool) -> int:
    """Write the page of a run, and say what is in it. Returns its bytes.

    Args:
        settings: of `ModelPage`.
    """
    from jumok.files import require_writable
    from jumok.runs.load import load
    from jumok.view.model_page import LARGE_PAGE, ModelPage

    require_writable(path)
    if not force:
        refuse_to_replace(path)
    page = ModelPage(load(run), name_of(run), **settings)
    size = page.save(path).stat().st_size
    say(tr("Wrote {path} ({megabytes:.1f} MB).", path=path, megabytes=size / 1e6), quiet=quiet)
    say(_content(page), quiet=quiet)
    if size > LARGE_PAGE:
        say(
            tr(
                "The page has more than {large:.0f} MB: many mail programs refuse it, and a phone may take long to "
                "open it.",
                large=LARGE_PAGE / 1e6,
            ),
            quiet=quiet,
        )
    return size


def _content(page: ModelPage) -> str:
    """Return what is in a page, in a sentence."""
    about = page.header["about"]
    content = tr(
        "It holds {parameters:,} parameters in {bits} bits and a tokenizer of {tokens:,} tokens, but none of the texts "
        "that the model was trained on.",
        parameters=about["parameters"],
        bits=about["bits"],
        tokens=about["vocab_size"],
    )
    if about["labels"]:
        content += " " + tr("The names of its {count:,} labels are in it.", count=len(about["labels"]))
    return content
