"""`jumok convert --to gguf`: a GGUF file, and the Modelfile beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jumok.cli.console.output import say
from jumok.cli.replacing import refuse_to_replace
from jumok.messages import tr

OPTIONS = ("kind", "licence", "force")  # of `jumok convert`


def write_gguf(run: Path, path: Path, settings: dict[str, Any], *, quiet: bool, verify: bool) -> None:
    """Write the GGUF file of a run and a Modelfile for Ollama, and say what is in them.

    Args:
        settings: by the names in OPTIONS; None where nothing was given.
    """
    from jumok.errors import RunError
    from jumok.files import require_writable, write_atomic
    from jumok.inference.sampling import Sampling
    from jumok.interop.gguf import Kind, to_gguf
    from jumok.interop.gguf.modelfile import SUFFIX, command, modelfile
    from jumok.runs.load import load

    beside = require_writable(path, example="model.gguf").with_suffix(SUFFIX)
    if not settings["force"]:
        refuse_to_replace(path)
        refuse_to_replace(beside)
    model = load(run, verify=verify)
    kind: Kind = settings["kind"] or "f32"
    found = to_gguf(model, path, kind, name=run.resolve().name, licence=settings["licence"])
    try:
        write_atomic(beside, modelfile(path, model.config, Sampling().temperature))
    except OSError as error:
        raise RunError(
            "cannot write {path}: {reason}; choose another place.", path=beside, reason=error.strerror or error
        ) from None
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
    if model.tokenizer.kind == "bpe":
        say(
            tr(
                "llama.cpp cuts texts in another way than the tokenizer bpe. Almost all texts have the same ids; "
                "after a symbol or an apostrophe directly before a letter a few can differ."
            ),
            quiet=quiet,
        )
    say(tr("For Ollama: {command}", command=command(beside)), quiet=quiet)
