"""`jumok convert`: export a model to `transformers`, llama.cpp, ONNX or a page, or import one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from jumok.cli.commands import Verb, common, option, verification
from jumok.cli.console.output import print_json, say
from jumok.cli.gguf import OPTIONS as GGUF_OPTIONS
from jumok.cli.gguf import write_gguf
from jumok.cli.onnx import write_onnx
from jumok.cli.share import page_options, write_page
from jumok.errors import ConfigError
from jumok.messages import tr

FORMS = ("hf", "jumok", "gguf", "onnx", "page")


@click.command(
    cls=Verb,
    short_help="Export a model to transformers, llama.cpp, ONNX or an HTML file, or import one.",
    examples="""
    jumok convert runs/novel novel-hf --to hf
    jumok convert novel-hf runs/back --to jumok
    jumok convert runs/novel novel.gguf --to gguf --type q8_0
    jumok convert runs/novel novel.onnx --to onnx
    jumok convert runs/novel novel.html --to page --exact
    """,
)
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@option("--to", "form", type=click.Choice(FORMS), required=True, help="format of TARGET")
@option("--type", "kind", type=click.Choice(["f32", "f16", "q8_0"]), help="gguf: type of the matrices [f32]")
@page_options
@verification
@common(device=False)
def convert(
    source: Path,
    target: Path,
    form: str,
    force: bool,
    as_json: bool,
    quiet: bool,
    verify: bool,
    **settings: Any,
) -> None:
    """Convert a run folder to another format, or a transformers model folder to a run folder.

    SOURCE is a run folder, or with `--to jumok` a transformers folder. A GGUF file is for llama.cpp, LM Studio and
    Ollama; a Modelfile for Ollama is written beside it. An ONNX file is for onnxruntime; the tokenizer is written
    beside it. A page holds the whole model and runs in a browser, as `jumok share` writes it.
    """
    from jumok.interop.huggingface import from_hf
    from jumok.runs.load import save

    everything = {"force": force, **settings}
    used = {"page": everything.keys() - {"kind"}, "gguf": GGUF_OPTIONS, "hf": ("licence",), "onnx": ("force",)}
    unused = [name for name, value in everything.items() if value and name not in used.get(form, ())]
    if unused:
        name = "type" if unused[0] == "kind" else unused[0]
        raise ConfigError("--{option} is not for {--to {form}}; leave it out.", option=name, form=form)
    if form == "page":
        del settings["kind"]
        write_page(source, target, settings, force=force, quiet=quiet, verify=verify)
    elif form == "gguf":
        write_gguf(source, target, everything, quiet=quiet, verify=verify)
    elif form == "onnx":
        write_onnx(source, target, force=force, quiet=quiet, verify=verify)
    else:
        if form == "hf":
            _write_folder(source, target, settings["licence"], verify=verify)
        else:
            save(from_hf(source), target)
        say(tr("Wrote {path}.", path=target), quiet=quiet)
    if as_json:
        print_json({"source": str(source), "target": str(target), "to": form})


def _write_folder(source: Path, target: Path, licence: str | None, *, verify: bool) -> None:
    """Write a folder for `transformers`, with a model card of what the run folder tells."""
    from jumok.interop.huggingface import to_hf
    from jumok.interop.huggingface.card import PICTURE, Card
    from jumok.interop.huggingface.convert import is_hf
    from jumok.runs.folder import RunFolder
    from jumok.runs.load import load

    model = load(source, verify=verify)
    run = {} if is_hf(source) else RunFolder.open(source).read_config()
    curves = source / PICTURE
    picture = curves.read_bytes() if curves.is_file() and "metrics" in run else None
    to_hf(model, target, card=Card(name=source.resolve().name, licence=licence, run=run, picture=picture))
