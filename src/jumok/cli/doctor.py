"""`jumok doctor`: what is whole in a run folder, or in this installation, and what to do about the rest."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NamedTuple

import click

from jumok.cli.commands import PATH, Verb, common
from jumok.cli.console.output import print_json, say
from jumok.errors import ConfigError
from jumok.messages import message, tr
from jumok.version import __version__

DAMAGED = 1  # the exit code if something is damaged or missing
SIGNS = {"ok": "✓", "note": "·", "damaged": "✗", "problem": "✗"}
NEEDED = (
    "numpy", "tokenizers", "safetensors", "huggingface_hub", "filelock", "rich", "matplotlib", "charset_normalizer",
)  # fmt: skip
# What the optional packages are for, by the name of the extra: the modules, and the use.
EXTRAS = {
    "hf": (("transformers",), message("models of transformers in the same program")),
    "metrics": (("sacrebleu",), message("chrF and BLEU of answers")),
    "data": (("pyarrow",), message("Parquet files")),
    "serve": (("starlette", "pydantic", "uvicorn"), message("the HTTP API: jumok serve")),
    "gguf": (("gguf",), message("files for llama.cpp and Ollama")),
    "onnx": (("onnx",), message("files for onnxruntime")),
    "lora": (("peft",), message("adapters: jumok train --lora")),
}
# Names of findings that have a translation, for those who read; programs read them as they are.
NAMES = (message("packages"), message("processors"), message("C++ step"), message("font"), message("terminal"))


class Finding(NamedTuple):
    """What was found about one thing.

    Attributes:
        condition: "ok", "note" (something is slower, or not possible) or "problem". remedy: one line; "" if none.
    """

    name: str
    condition: Literal["ok", "note", "problem"]
    text: str
    remedy: str = ""


@click.command(
    cls=Verb,
    short_help="Examine a run folder, or this installation.",
    examples="""
    jumok doctor
    jumok doctor runs/novel
    jumok doctor runs/novel --json
    """,
)
@click.argument("run", type=PATH, required=False)
@common(device=False)
def doctor(run: Path | None, as_json: bool, quiet: bool) -> None:
    """Examine a run folder, or without RUN this installation.

    Of a run, the files of the model and the training states are read as when it is loaded and resumed. RUN can also be
    a transformers folder. Nothing is changed. The exit code is 0 if all is whole, and 1 otherwise.
    """
    if not (_installation(as_json) if run is None else _run(run, as_json, quiet)):
        raise click.exceptions.Exit(DAMAGED)


def _run(path: Path, as_json: bool, quiet: bool) -> bool:
    from jumok.runs.examine import examine

    found = examine(path)
    if as_json:
        print_json({"run": str(path), "whole": found.whole, **asdict(found)})
        return found.whole
    _show([(one.condition, one.file, one.text, one.remedy) for one in found.findings])
    say(tr("The model can be used.") if found.usable else tr("The model cannot be used as it is."), quiet=quiet)
    if found.resumable is not None:
        say(tr("The newest whole training state is of step {step:,}.", step=found.resumable), quiet=quiet)
    return found.whole


def _installation(as_json: bool) -> bool:
    findings = [Finding("Python", "ok", f"{platform.python_version()} ({sys.executable or '?'}), jumok {__version__}")]
    for look in (_packages, _torch, _compiler, _step, _font, _terminal, _extras):
        findings += look()
    well = all(one.condition != "problem" for one in findings)
    if as_json:
        print_json({"well": well, "findings": [one._asdict() for one in findings]})
    else:
        _show([(one.condition, tr(one.name), one.text, one.remedy) for one in findings])
    return well


def _packages() -> Iterator[Finding]:
    from importlib import metadata

    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding("packages", "problem", tr("missing: {names}", names=", ".join(missing)), "pip install jumok")
    else:
        versions = ", ".join(f"{name} {metadata.version(name.replace('_', '-'))}" for name in NEEDED)
        yield Finding("packages", "ok", versions)


def _torch() -> Iterator[Finding]:
    """Yield the version of torch, and the devices that it computes on."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a library of the system may be missing, or of another version
        text = tr("cannot be imported: {error}", error=error)
        yield Finding("torch", "problem", text, "pip install --force-reinstall torch")
        return
    from jumok.device import multiplies_bfloat16

    cuda, rocm = torch.version.cuda, torch.version.hip
    build = f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "CPU"
    yield Finding("torch", "ok", f"{torch.__version__} ({build})")
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        yield Finding(f"GPU {index}", "ok", f"{facts.name}, {facts.total_memory / 1e9:.1f} GB")
    if torch.backends.mps.is_available():
        yield Finding("GPU", "ok", "Metal (mps)")
    elif shutil.which("nvidia-smi") and not cuda:
        text = tr("the machine seems to have a GPU of NVIDIA, but this torch is built without CUDA")
        yield Finding("GPU", "note", text, "https://pytorch.org/get-started/locally/")
    slow = tr("no instructions for bfloat16, so it is slower")
    bfloat16 = "bfloat16" if multiplies_bfloat16(torch.device("cpu")) else slow
    instructions, threads = torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
    text = f"{tr('{device}, {threads} threads', device=instructions, threads=threads)}; {bfloat16}"
    yield Finding("processors", "ok", text)


def _compiler() -> Iterator[Finding]:
    from jumok.inference.native.levels import find_compiler

    found = find_compiler()
    if found is None:
        install = {"Darwin": "xcode-select --install"}.get(platform.system(), "apt install g++")
        yield Finding("C++", "note", tr("no compiler: no torch.compile"), install)
    elif not Path(sysconfig.get_path("include"), "Python.h").is_file():
        text = tr("{compiler}; torch.compile lacks Python.h", compiler=found)
        yield Finding("C++", "note", text, "apt install python3-dev")
    else:
        yield Finding("C++", "ok", str(found))


def _step() -> Iterator[Finding]:
    """Yield which level of the C++ step is used, and where it comes from."""
    from jumok.inference.native.build import INSTALLED, damaged_libraries, library_path, why_not

    if damaged := damaged_libraries():
        text = tr("damaged: {names}", names=", ".join(map(str, damaged)))
        yield Finding("C++ step", "problem", text, "pip install --force-reinstall --no-deps jumok")
        return
    try:
        path, reason = library_path(), why_not()
    except ConfigError as error:
        yield Finding("C++ step", "problem", str(error), "unset JUMOK_NATIVE")
        return
    if path is None:
        yield Finding("C++ step", "note", reason or tr("compiled when it is needed, once on this machine"))
        return
    level = path.name.rpartition("-")[0]
    if path.parent == INSTALLED:
        text = tr("{level}, of this installation", level=level)
    else:
        text = tr("{level}, compiled on this machine", level=level)
    yield Finding("C++ step", "ok", text)


def _font() -> Iterator[Finding]:
    from jumok.view.canvas import hangul_font

    if family := hangul_font():
        yield Finding("font", "ok", family)
        return
    install = {"Darwin": "brew install font-nanum-gothic"}.get(platform.system(), "apt install fonts-nanum")
    yield Finding("font", "note", tr("no font with Hangul: pictures show boxes"), install)


def _terminal() -> Iterator[Finding]:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if _can_show("한글"):
        yield Finding("terminal", "ok", encoding)
    else:
        remedy = "chcp 65001" if os.name == "nt" else "export LANG=C.UTF-8"
        yield Finding("terminal", "problem", tr("{encoding}; Korean cannot be shown", encoding=encoding), remedy)


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in EXTRAS.items():
        if any(importlib.util.find_spec(name) is None for name in modules):
            yield Finding(extra, "note", tr("not installed: {use}", use=tr(use)), f"pip install 'jumok[{extra}]'")
        else:
            yield Finding(extra, "ok", tr(use))


def _show(rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print a row for each finding: a sign, its name, what was found, and in a line of its own what to do."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from jumok.text import with_signs

    signs = SIGNS if _can_show("".join(SIGNS.values())) else {"ok": "ok", "note": "-"}
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("sign", "name", "text"):
        table.add_column(name, overflow="fold")
    for condition, name, text, remedy in rows:
        sign = signs.get(condition, "!!")
        lines = f"{text}\n→ {remedy}" if remedy else text
        table.add_row(sign, Text(with_signs(name)), Text("\n".join(map(with_signs, lines.split("\n")))))
    Console(file=sys.stdout).print(table)


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
