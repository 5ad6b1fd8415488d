"""`jumok view`: what a model computes while it reads a text, as a page."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.replacing import refuse_to_replace
from jumok.corpora.hub import name_of
from jumok.errors import ConfigError, TextError
from jumok.files import require_writable
from jumok.messages import tr, users_language

if TYPE_CHECKING:
    from jumok.models import Model
    from jumok.view.probes import Probes
    from jumok.view.trace import Trace


@click.command(
    cls=Verb,
    short_help="Look inside a model while it reads a text.",
    examples="""
    jumok view runs/novel "그날 밤 나는" --open
    jumok view runs/novel "그날 밤" --tokens 100 --seed 7 --out night.html
    jumok view runs/numbers "1,234" --target "천이백삼십사" --block cross
    jumok view runs/novel "그날 밤 나는" --probe
    cat poem.txt | jumok view runs/novel - --out poem.html
    """,
)
@click.argument("run", type=PATH)
@click.argument("text", required=False)
@option("--target", help="answer of an encoder-decoder to show [the one that it generates]")
@option("--tokens", type=int, default=0, help="tokens that a GPT generates after the text [0]")
@option("--temperature", type=float, default=0.8, help="sampling temperature; 0: always the most probable token [0.8]")
@option("--out", type=PATH, help="file of the page [RUN-view.html]")
@option("--open", "opens", is_flag=True, help="open the page in a browser")
@option("--lang", type=click.Choice(["ko", "en"]), help="language of the page [that of the browser]")
@option(
    "--block",
    type=click.Choice(["encoder", "decoder", "cross"]),
    section="Selection",
    help="block of an encoder-decoder",
)
@option("--layer", type=int, section="Selection", help="layer that the page opens at")
@option("--head", type=int, section="Selection", help="head that the page opens at")
@option("--layers", metavar="LIST", section="Selection", help="layers to include, e.g. 0,2-3 [all]")
@option("--heads", metavar="LIST", section="Selection", help="heads of each layer to include, e.g. 0,2-3 [all]")
@option("--probe", is_flag=True, section="More", help="ablate each head in turn; print a table and add it to the page")
@option("--force", is_flag=True, section="More", help="overwrite a file that jumok did not write")
@option("--exact", is_flag=True, section="More", help="store weights, q and k in 16 bits, however large the page")
@common(seed=True)
def view(run: Path, text: str | None, device: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Look inside a model while it reads TEXT, in an HTML page that works offline.

    RUN is a run folder or a transformers model folder. TEXT is the text itself; - reads stdin. Layers, heads and
    positions count from 0, as in the page.
    """
    page = require_writable(flags["out"] or f"{name_of(run)}-view.html")
    if not flags["force"]:
        refuse_to_replace(page)
    where = {name: flags[name] for name in ("block", "layer", "head")}
    choices: dict[str, Any] = {
        "layers": _numbers("layers", flags["layers"]),
        "heads": _numbers("heads", flags["heads"]),
    }
    given = _text(text)
    if not given and not flags["tokens"]:
        raise TextError("the text is empty; give a text, or {--tokens} to show what a GPT generates without a prompt.")

    from jumok import device as devices
    from jumok.inference.sampling import Sampling
    from jumok.runs.load import load
    from jumok.view.trace import attention_of, trace

    began = time.perf_counter()
    model = load(run, str(devices.choose_device(device)))
    seen = trace(
        model, given, target=flags["target"], tokens=flags["tokens"], seed=flags["seed"],
        sampling=Sampling(temperature=flags["temperature"]), name=name_of(run), **choices,
    )  # fmt: skip
    attention_of(seen, **where)  # raises if there is no such block, layer or head
    for note in seen.notes:
        say(note[users_language()], quiet=quiet)
    done: dict[str, Any] = {"tokens": [len(one["tokens"]) for one in seen.sequences]}
    probes = None
    if flags["probe"]:
        probes, figures = _probe(model, seen, shown=not as_json)
        done |= figures
    how = {**where, "exact": flags["exact"], "language": flags["lang"]}
    size = _write_page(seen, probes, page, how, flags["opens"], quiet)
    done |= {"page": str(page), "bytes": size, "seconds": time.perf_counter() - began}
    if as_json:
        print_json(done)


def _probe(model: Model, seen: Trace, *, shown: bool) -> tuple[Probes, dict[str, Any]]:
    """Ablate each head in turn; for the page, and for --json. shown: print a table."""
    from jumok.view.probes import head_figures, probe_trace

    probes = probe_trace(model, seen)
    table = list(head_figures(seen, probes))
    if shown:
        from jumok.cli.console.heads import show_probes

        show_probes(probes.ranking, table)
    return probes, {"nats": probes.ranking.nats, "heads": table}


def _write_page(seen: Trace, probes: Probes | None, path: Path, how: dict[str, Any], opens: bool, quiet: bool) -> int:
    """Write the page, and open it in a browser if asked. Returns its bytes."""
    from jumok.view.page import open_in_browser, page_of

    page_of(seen, probes, **how).save(path)
    size = path.stat().st_size
    wrote = tr("Wrote {path} ({megabytes:.1f} MB).", path=path, megabytes=size / 1e6)
    if sys.stderr.isatty() and not opens:
        wrote += " " + tr("Open it in a browser: {uri}", uri=path.resolve().as_uri())
    say(wrote, quiet=quiet)
    if opens:
        open_in_browser(path)
    return size


def _text(text: str | None) -> str:
    """Return the text of the argument or of stdin, without the final newline of a pipe."""
    from jumok import text as reader

    if text is None and sys.stdin.isatty():
        raise ConfigError("no text was given; write one after the run folder, in quotes, or - to read stdin.")
    if text is not None and text != "-":
        return text
    read = reader.read(["-"])
    return read.read(0, read.chars).removesuffix("\n")


def _numbers(option: str, given: str | None) -> list[int] | None:
    """ "0,2-4" as [0, 2, 3, 4]."""
    if given is None:
        return None
    found: list[int] = []
    for part in given.split(","):
        ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())  # no model has more layers or heads
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if first > last:
            raise ConfigError(
                "--{option} {given!r} is not a list of numbers; write 0,2-4 for 0, 2, 3 and 4.",
                option=option,
                given=given,
            )
        found += range(first, last + 1)
    return found
