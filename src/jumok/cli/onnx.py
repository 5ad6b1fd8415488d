"""`jumok convert --to onnx`: an ONNX file, and the tokenizer beside it."""

from __future__ import annotations

from pathlib import Path

from jumok.cli.console.output import say
from jumok.cli.replacing import refuse_to_replace
from jumok.errors import ConfigError
from jumok.messages import tr


def write_onnx(source: Path, path: Path, *, force: bool, quiet: bool, verify: bool) -> None:
    """Write the ONNX file of a model and its tokenizer, and say what was written."""
    from jumok.files import require_writable
    from jumok.interop.onnx import beside, to_onnx
    from jumok.runs.load import load

    require_writable(path, example="model.onnx")
    if not force:
        refuse_to_replace(path)
        foreign = [other for other in beside(path) if other.exists() and not path.exists()]
        if foreign:
            raise ConfigError(
                "{path} exists and was not written by jumok; give another name, or {--force}.", path=foreign[0]
            )
    found = to_onnx(load(source, verify=verify), path)
    others = ", ".join(map(str, found.paths[1:]))
    written = {"path": path, "megabytes": found.bytes / 1e6}
    if others:
        say(tr("Wrote {path} and {others} ({megabytes:.1f} MB).", **written, others=others), quiet=quiet)
    else:
        say(tr("Wrote {path} ({megabytes:.1f} MB).", **written), quiet=quiet)
