"""`jumok convert`: export a model to `transformers`, llama.cpp, ONNX or a page, or import one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say
from jumok.cli.replacing import refuse_to_replace
from jumok.cli.share import write_page
from jumok.corpora.hub import is_name, name_of
from jumok.errors import ConfigError
from jumok.messages import tr

if TYPE_CHECKING:
    from jumok.interop.gguf import Kind

FORMS = ("hf", "jumok", "gguf", "onnx", "page")
OPTIONS = {"type": ("gguf",), "licence": ("hf", "gguf"), "force": ("gguf", "onnx", "page")}  # and their forms


@click.command(
    cls=Verb,
    short_help="Export a model to transformers, llama.cpp, ONNX or an HTML file, or import one.",
    examples="""
    jumok convert runs/novel novel-hf --to hf
    jumok convert novel-hf runs/back --to jumok
    jumok convert runs/novel novel.gguf --to gguf --type q8_0
    jumok convert runs/novel novel.onnx --to onnx
    jumok convert runs/novel novel.html --to page
    """,
)
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@option("--to", "form", type=click.Choice(FORMS), required=True, help="format of TARGET")
@option("--type", "kind", type=click.Choice(["f32", "f16", "q8_0"]), help="gguf: type of the matrices [f32]")
@option("--licence", help="hf, gguf: licence of the text that the model was trained on")
@option("--force", is_flag=True, help="overwrite a file that jumok did not write")
@common(device=False)
def convert(
    source: Path,
    target: Path,
    form: str,
    kind: Kind | None,
    licence: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Convert a run folder to another format, or a transformers model folder to a run folder.

    SOURCE is a run folder, or with `--to jumok` a transformers folder. A GGUF file is for llama.cpp, LM Studio and
    Ollama; a Modelfile for Ollama is written beside it. An ONNX file is for onnxruntime; the tokenizer is written
    beside it. A page holds the whole model and runs in a browser, as `jumok share` writes it.
    """
    from jumok.interop.huggingface import from_hf
    from jumok.runs.load import save

    for name, value in (("type", kind), ("licence", licence), ("force", force)):
        if value and form not in OPTIONS[name]:
            raise ConfigError("--{option} is not for {--to {form}}; leave it out.", option=name, form=form)
    if is_name(target):
        raise ConfigError(
            "jumok uploads nothing: give a folder or a file in place of {target}, and upload it with `hf upload`.",
            target=target,
        )
    if form == "page":
        write_page(source, target, {}, force=force, quiet=quiet)
    elif form == "gguf":
        _write_gguf(source, target, kind or "f32", licence, force=force, quiet=quiet)
    elif form == "onnx":
        _write_onnx(source, target, force=force, quiet=quiet)
    else:
        if form == "hf":
            _write_folder(source, target, licence)
        else:
            save(from_hf(source), target)
        say(tr("Wrote {path}.", path=target), quiet=quiet)
    if as_json:
        print_json({"source": str(source), "target": str(target), "to": form})


def _write_folder(source: Path, target: Path, licence: str | None) -> None:
    """Write a folder for `transformers`, with a model card of what the run folder tells."""
    from jumok.corpora.hub import is_hf
    from jumok.interop.huggingface import to_hf
    from jumok.interop.huggingface.card import Card
    from jumok.runs.folder import RunFolder
    from jumok.runs.load import load

    model = load(source)
    run = {} if is_hf(source) else RunFolder.open(source).read_config()
    to_hf(model, target, card=Card(name=name_of(source), licence=licence, run=run))


def _write_gguf(run: Path, path: Path, kind: Kind, licence: str | None, *, force: bool, quiet: bool) -> None:
    """Write the GGUF file of a run and a Modelfile for Ollama, and say what is in them."""
    from jumok.files import require_writable, write_atomic, writing
    from jumok.inference.sampling import Sampling
    from jumok.interop.gguf import to_gguf
    from jumok.interop.gguf.modelfile import SUFFIX, command, modelfile
    from jumok.runs.load import load

    beside = require_writable(path, example="model.gguf").with_suffix(SUFFIX)
    if not force:
        refuse_to_replace(path)
        refuse_to_replace(beside)
    model = load(run)
    found = to_gguf(model, path, kind, name=name_of(run), licence=licence)
    with writing(beside):
        write_atomic(beside, modelfile(path, model.config, model.tokenizer, Sampling().temperature))
    say(tr("Wrote {path} ({megabytes:.1f} MB).", path=path, megabytes=found.bytes / 1e6), quiet=quiet)
    for other in sorted(set(found.others.values())):
        say(
            tr(
                "{count:,} matrices are stored as {other}, because {kind} cannot hold them: {names}.",
                count=list(found.others.values()).count(other),
                other=other,
                kind=kind,
                names=", ".join(name for name, its in found.others.items() if its == other),
            ),
            quiet=quiet,
        )
    for note in found.notes:
        say(note, quiet=quiet)
    if model.tokenizer.kind == "bpe":
        say(
            tr(
                "llama.cpp cuts texts in another way than the tokenizer bpe. Almost all texts have the same ids; "
                "after a symbol or an apostrophe directly before a letter a few can differ."
            ),
            quiet=quiet,
        )
    say(tr("For Ollama: {command}", command=command(beside)), quiet=quiet)


def _write_onnx(source: Path, path: Path, *, force: bool, quiet: bool) -> None:
    """Write the ONNX file of a model and its tokenizer, and say what was written."""
    from jumok.files import require_writable
    from jumok.interop.onnx import to_onnx, tokenizer_beside
    from jumok.runs.load import load

    require_writable(path, example="model.onnx")
    if not force:
        refuse_to_replace(path)
        foreign = tokenizer_beside(path)
        if foreign.exists() and not path.exists():
            raise ConfigError(
                "{path} exists and was not written by jumok; give another name, or {--force}.", path=foreign
            )
    _, *others = found = to_onnx(load(source), path)
    written = {"path": path, "megabytes": sum(one.stat().st_size for one in found) / 1e6}
    if others:
        say(tr("Wrote {path} and {others} ({megabytes:.1f} MB).", **written, others=others[0]), quiet=quiet)
    else:
        say(tr("Wrote {path} ({megabytes:.1f} MB).", **written), quiet=quiet)
