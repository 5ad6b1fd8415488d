"""`jumok view`: what a model does with a text, as a page to look into."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import click

from jumok.cli._verbs import Verb, common, option, plain_floats, print_json, say
from jumok.errors import ConfigError, TextError, ViewError
from jumok.messages import tr, users_language

MOST_NUMBERED = 9999  # no model has more layers, or more heads in a layer


@click.command(
    cls=Verb,
    short_help="Look into a model while it reads a text.",
    examples="""
    jumok view runs/novel "그날 밤 나는" --open
    jumok view runs/novel "그날 밤" --tokens 100 --seed 7 --out night.html
    jumok view runs/numbers "1,234" --target "천이백삼십사" --block cross
    jumok view runs/novel "그날 밤 나는" --layer 2 --head 1 --picture heads.svg
    jumok view runs/novel "그날 밤 나는" --probe
    jumok view runs/novel "그날 밤 나는" --without 0.1,2.3
    cat poem.txt | jumok view runs/novel - --out poem.html
    """,
)
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("text", required=False)
@option("--file", "file", type=click.Path(path_type=Path), help="read the text from a file, in any encoding")
@option("--target", help="what an encoder-decoder is to have answered [what it answers]")
@option("--tokens", type=int, default=0, help="how many more tokens a GPT writes, which are shown too [0]")
@option("--temperature", type=float, default=0.8, help="of what it writes; 0: always the likeliest token [0.8]")
@option("--out", type=click.Path(path_type=Path), help="where the page goes [RUN-view.html, in this folder]")
@option("--open", "opens", is_flag=True, help="open the page in a browser")
@option("--lang", type=click.Choice(["ko", "en"]), help="language that the page opens in [the browser's]")
@option(
    "--block", type=click.Choice(["encoder", "decoder", "cross"]), section="Where to look", help="of an encoder-decoder"
)
@option("--layer", type=int, section="Where to look", help="layer that the page opens at, from 0; alone in --picture")
@option("--head", type=int, section="Where to look", help="head that the page opens at, from 0; alone in --picture")
@option("--layers", metavar="LIST", section="Where to look", help="layers to keep, as 0,2-3 [all]")
@option("--heads", metavar="LIST", section="Where to look", help="heads of each layer to keep, as 0,2-3 [all]")
@option("--probe", is_flag=True, section="More", help="switch each head off in turn: a table, also in the page")
@option(
    "--picture", "--png", "picture", type=click.Path(path_type=Path), metavar="FILE", section="More",
    help="draw the heads as .png, .svg or .pdf; no page without --out",
)  # fmt: skip
@option("--scale", type=float, section="More", help="of the pixels of a .png; 2: twice as many each way [1]")
@option("--force", is_flag=True, section="More", help="write over a file that is no page or picture of jumok")
@option(
    "--without", metavar="LIST", section="More",
    help="switch heads off, as 2.1,3.0 (layer.head) or cross.0.1, and compare the loss and the next tokens",
)  # fmt: skip
@option("--exact", is_flag=True, section="More", help="weights, q and k in 16 bits instead of 8; a larger page")
@option(
    "--neurons", default="auto", section="More", help="layers with queries and keys: auto, all, none, or 0,2-3 [auto]"
)
@common(seed=True)
def view(run: Path, text: str | None, device: str, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Look into a model while it reads TEXT: one page that needs no network.

    RUN is a run folder or the folder of a stock model. TEXT is the text itself; - reads stdin. Everything counts from
    0, as in the page.
    """
    from jumok.view.page import open_in_browser, page_of, require_writable

    picture, opens, scale = flags["picture"], flags["opens"], flags["scale"]
    wants_page = picture is None or flags["out"] is not None or opens
    out = require_writable(flags["out"] or f"{run.resolve().name}-view.html") if wants_page else None
    if picture is not None:
        require_writable(picture)
    _require_picture(picture, scale)
    if not flags["force"]:
        for path in filter(None, (out, picture)):
            _refuse_to_replace(path)
    where = {name: flags[name] for name in ("block", "layer", "head")}
    layers, heads = _numbers("layers", flags["layers"]), _numbers("heads", flags["heads"])
    neurons = flags["neurons"]
    if neurons not in ("auto", "all", "none"):
        neurons = _numbers("neurons", neurons)
    off = None if flags["without"] is None else _heads(flags["without"])
    given = _text(text, flags["file"])
    if not given and not flags["tokens"]:
        raise TextError(
            "the text is empty; give some words to look at, or {--tokens} to let a GPT write from the start."
        )

    from jumok import device as devices
    from jumok.inference.sampling import Sampling
    from jumok.interpret.ablation import ablation
    from jumok.runs import folder as checkpoint
    from jumok.view.head_pictures import draw_heads
    from jumok.view.probes import passage_of, probe_trace, rows
    from jumok.view.trace import attention_of, trace

    began = time.perf_counter()
    model = checkpoint.load(run, str(devices.choose_device(device)))
    seen = trace(
        model, given, target=flags["target"], tokens=flags["tokens"],
        sampling=Sampling(temperature=flags["temperature"]), seed=flags["seed"], layers=layers, heads=heads,
        exact=flags["exact"], neurons=neurons, open_layer=where["layer"], name=run.resolve().name,
    )  # fmt: skip
    attention_of(seen, **where)  # it must exist
    for note in seen.notes:
        say(note.ko if users_language() == "ko" else note.en, quiet=quiet)
    done: dict[str, Any] = {"tokens": [len(one.pieces.tokens) for one in seen.sequences]}
    probes = None
    if flags["probe"]:
        probes = probe_trace(model, seen)
        table = list(rows(seen, probes))
        done["nats"] = probes.ranking.nats
        done["heads"] = [plain_floats({**row.head._asdict(), **vars(row), "head": row.head.head}) for row in table]
        if not as_json:
            from jumok.cli.console import show_probes

            show_probes(probes.ranking, table)
    if off is not None:
        change = ablation(model, passage_of(model, seen), off)
        done["without"] = {
            "heads": off,
            "nats": change.nats,
            "nats_without": change.nats_without,
            "candidates": [one._asdict() for one in change.candidates],
        }
        if not as_json:
            from jumok.cli.console import show_ablation

            show_ablation(flags["without"], change)
    if picture is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            draw_heads(seen, picture, **where, scale=scale or 1.0)
        for warning in caught:
            say(str(warning.message), quiet=quiet)
        done["picture"] = str(picture)
        say(tr("Drew {path}.", path=picture), quiet=quiet)
    if out is not None:
        page_of(seen, probes, **where, language=flags["lang"]).save(out)
        done |= {"page": str(out), "bytes": out.stat().st_size, "seconds": round(time.perf_counter() - began, 3)}
        wrote = tr("Wrote {path} ({megabytes:.1f} MB).", path=out, megabytes=out.stat().st_size / 1e6)
        if sys.stderr.isatty() and not opens:
            wrote += " " + tr("Open it in a browser: {uri}", uri=out.resolve().as_uri())
        say(wrote, quiet=quiet)
        if opens:
            open_in_browser(out)
    if as_json:
        print_json(plain_floats(done))


def _text(text: str | None, file: Path | None) -> str:
    """The text that was named, as it is but for the newline that a file or a pipe ends with."""
    from jumok import text as reader

    if text is not None and file is not None:
        raise ConfigError("a text and {--file {file}} were both given, but only one is read; leave one out.", file=file)
    if file is None and text is None and sys.stdin.isatty():
        raise ConfigError("no text was given; write one after the run folder, in quotes, or - to read stdin.")
    if file is None and text not in (None, "-"):
        return text or ""
    read = reader.read([str(file) if file is not None else "-"])
    return read.read(0, read.chars).removesuffix("\n")


def _heads(given: str) -> list[tuple[str, int, int] | tuple[int, int]]:
    """ "2.1,cross.0.3" as [(2, 1), ("cross", 0, 3)]."""
    found: list[tuple[str, int, int] | tuple[int, int]] = []
    for part in given.split(","):
        named = re.fullmatch(r"(?:([a-z]+)\.)?(\d{1,4})\.(\d{1,4})", part.strip())
        if named is None:
            raise ConfigError(
                "{--without {given!r}} names no heads; write 2.1,3.0 for head 1 of layer 2 and head 0 of "
                "layer 3, and for an encoder-decoder put the block first: cross.0.1.",
                given=given,
            )
        block, layer, head = named.groups()
        found.append((block, int(layer), int(head)) if block else (int(layer), int(head)))
    return found


def _numbers(option: str, given: str | None) -> list[int] | None:
    """ "0,2-4" as [0, 2, 3, 4]."""
    if given is None:
        return None
    found: list[int] = []
    for part in given.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError(
                "--{option} {given!r} is no list of numbers; write 0,2-4 for 0, 2, 3 and 4.", option=option, given=given
            )
        if max(len(first), len(last)) > len(str(MOST_NUMBERED)):
            raise ConfigError(
                "--{option} {given!r}: no model has that many; numbers go up to {most}.",
                option=option,
                given=given,
                most=MOST_NUMBERED,
            )
        found += range(int(first), int(last or first) + 1)
    if not found:
        raise ConfigError(
            "--{option} {given!r} is an empty range: the first of a range must not be above the last.",
            option=option,
            given=given,
        )
    return found


def _require_picture(path: Path | None, scale: float | None) -> None:
    """Raise ConfigError for a picture that cannot be drawn."""
    from jumok.view.canvas import FORMATS

    suffix = "" if path is None else path.suffix.lower()
    if path is not None and suffix not in FORMATS:
        raise ConfigError(
            "{--picture} {path}: give a name that ends in {suffixes}.", path=path, suffixes=", ".join(FORMATS)
        )
    if scale is not None and suffix != ".png":
        raise ConfigError("{--scale} is for the pixels of a {--picture FILE.png}; leave it out.")


# What jumok writes near the beginning or the end of its pages and pictures.
MARKS = (
    b'<meta name="generator" content="jumok">',
    b"Software\0jumok",
    b"<dc:title>jumok</dc:title>",
    b"/Creator (jumok)",
)


def _refuse_to_replace(path: Path) -> None:
    """Raise ConfigError where something else stands at `path` than a page or a picture of jumok, ViewError where that
    cannot be told."""
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would wait for a writer, and a device never ends
        raise ConfigError("cannot write {path}: it is not a file; give the name of one.", path=path)
    try:
        with path.open("rb") as file:
            ends = file.read(1 << 14)
            file.seek(max(0, path.stat().st_size - (1 << 14)))
            ends += file.read()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ViewError(
            "cannot write {path}: {reason}; choose another place.", path=path, reason=error.strerror
        ) from None
    if ends and not any(mark in ends for mark in MARKS):
        raise ConfigError(
            "{path} is there already and was not made by jumok; give another name, or {--force}.", path=path
        )
