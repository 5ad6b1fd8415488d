"""Examine this installation and this machine, for `jumok doctor` without a run.

Each examination is a function that returns findings. One that fails for a reason that nobody foresaw becomes a finding
itself, because this is the program for installations in which anything may be missing.
"""

from __future__ import annotations

import importlib
import importlib.util
import locale
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from jumok.files import cache_folder
from jumok.messages import message, tr
from jumok.processors import processors
from jumok.version import __version__

LITTLE_DISK, LITTLE_MEMORY = 1e9, 2e9  # bytes, below which there is a note
NEEDED = ("torch", "numpy", "tokenizers", "safetensors", "filelock", "rich", "matplotlib", "charset_normalizer")
# What the optional packages are for, by the name of the extra: the modules, and the use.
EXTRAS = {
    "hf": (("transformers",), message("models of transformers in the same program")),
    "metrics": (("sacrebleu",), message("chrF and BLEU of answers")),
    "data": (("pyarrow",), message("Parquet and Arrow files")),
    "serve": (("fastapi", "uvicorn", "prometheus_client"), message("the HTTP API: jumok serve")),
    "gguf": (("gguf",), message("files for llama.cpp and Ollama")),
    "onnx": (("onnx",), message("files for onnxruntime")),
    "lora": (("peft",), message("adapters: jumok train --lora")),
}
# Names of findings that have a translation, for those who read; programs read them as they are.
NAMES = (
    message("packages"), message("processors"), message("instructions"), message("memory"), message("disk"),
    message("cache"), message("folder"), message("font"), message("terminal"), message("extras"),
)  # fmt: skip


class Finding(NamedTuple):
    """What was found about one thing.

    Attributes:
        condition: "ok", "note" (something is slower, or not possible) or "problem". remedy: one line; "" if none.
    """

    name: str
    condition: Literal["ok", "note", "problem"]
    text: str
    remedy: str = ""


def examine_installation() -> list[Finding]:
    """Return the findings about this installation; none needs a package beyond those of the command line."""
    found: list[Finding] = []
    for name, look in (
        ("Python", _python),
        ("packages", _packages),
        ("torch", _torch),
        ("processors", _processors),
        ("C++", _compiler),
        ("memory", _memory),
        ("disk", _disk),
        ("font", _font),
        ("terminal", _terminal),
        ("extras", _extras),
    ):
        try:
            found += list(look())
        except Exception as error:  # a broken package can raise anything while it is imported
            text = tr("could not be examined: {kind}: {error}", kind=type(error).__name__, error=error)
            found.append(Finding(name, "note", text))
    return found


def _python() -> Iterator[Finding]:
    text = f"{platform.python_version()} ({sys.executable or '?'}), jumok {__version__}"
    yield Finding("Python", "ok", text)


def _packages() -> Iterator[Finding]:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        names = ", ".join(missing)
        text = tr("missing: {names}", names=names)
        yield Finding("packages", "problem", text, "pip install jumok")
    else:
        versions = ", ".join(f"{name} {metadata.version(name.replace('_', '-'))}" for name in NEEDED[1:])
        yield Finding("packages", "ok", versions)


def _torch() -> Iterator[Finding]:
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a library of the system may be missing, or of another version
        text = tr("cannot be imported: {error}", error=error)
        yield Finding("torch", "problem", text, "pip install --force-reinstall torch")
        return
    cuda, rocm = torch.version.cuda, torch.version.hip
    build = f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "CPU"
    yield Finding("torch", "ok", f"{torch.__version__} ({build})")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            text = f"{facts.name}, {facts.total_memory / 1e9:.1f} GB"
            yield Finding(f"GPU {index}", "ok", text)
    elif torch.backends.mps.is_available():
        yield Finding("GPU", "ok", "Metal (mps)")
    elif shutil.which("nvidia-smi") and not torch.version.cuda:
        yield Finding(
            "GPU",
            "note",
            tr("the machine seems to have a GPU of NVIDIA, but this torch is built without CUDA"),
            "https://pytorch.org/get-started/locally/",
        )
    else:
        yield Finding("GPU", "ok", tr("none; models are trained and used on the processor"))


def _processors() -> Iterator[Finding]:
    allowed, there = processors(), os.cpu_count() or 1
    text = tr("{allowed} of {there} processors may be used", allowed=allowed, there=there)
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    if chosen.isdecimal() and int(chosen) < allowed:
        text += tr("; OMP_NUM_THREADS={chosen} is set", chosen=chosen)
        remedy = tr("Unset OMP_NUM_THREADS to use all of them.")
        yield Finding("processors", "note", text, remedy)
    else:
        yield Finding("processors", "ok", text)
    if "torch" in sys.modules:
        from jumok.device import multiplies_bfloat16

        torch = sys.modules["torch"]
        slow = tr("no instructions for bfloat16, so it is slower")
        bfloat16 = "bfloat16" if multiplies_bfloat16(torch.device("cpu")) else slow
        text = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads; {bfloat16}"
        yield Finding("instructions", "ok", text)


def _compiler() -> Iterator[Finding]:
    from jumok.inference.native.build import COMPILERS, library, why_not

    found = next((path for name in (os.environ.get("CXX"), *COMPILERS) if name and (path := shutil.which(name))), None)
    install = {"Darwin": "xcode-select --install"}.get(platform.system(), "apt install g++")
    if found is None:
        text = tr("no compiler: no torch.compile, and texts are generated by PyTorch, which is slower")
        yield Finding("C++", "note", text, install)
        return
    built = (
        tr("the C++ step is built") if library(build=False) else why_not() or tr("the C++ step is built when needed")
    )
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        text = tr("{compiler}; {built}; torch.compile lacks Python.h", compiler=found, built=built)
        yield Finding("C++", "note", text, "apt install python3-dev")
    else:
        yield Finding("C++", "ok", f"{found}; {built}")


def _memory() -> Iterator[Finding]:
    from jumok.memory import free_memory

    free = free_memory()
    if free is None:
        yield Finding("memory", "ok", tr("the system does not say how much is free"))
        return
    text, remedy = (
        tr("{free:.1f} GB free", free=free / 1e9),
        tr("End other programs, or train a smaller model: {--size micro}."),
    )
    yield Finding("memory", "note", text, remedy) if free < LITTLE_MEMORY else Finding("memory", "ok", text)


def _disk() -> Iterator[Finding]:
    for name, folder in (("cache", cache_folder()), ("folder", Path.cwd())):
        there = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(there).free
        text = tr("{folder}: {free:.1f} GB free", folder=folder, free=free / 1e9)
        if not os.access(there, os.W_OK):
            text = tr("{folder}: files cannot be written there", folder=folder)
            remedy = tr("Name another folder with JUMOK_CACHE.") if name == "cache" else tr("Work in another folder.")
            yield Finding(name, "problem", text, remedy)
        elif free < LITTLE_DISK:
            yield Finding(name, "note", text, tr("Make room before a training."))
        else:
            yield Finding(name, "ok", text)


def _font() -> Iterator[Finding]:
    from jumok.view.canvas import hangul_font

    family = hangul_font()
    if family is None:
        text = tr("no font with Hangul: pictures show boxes")
        install = {"Darwin": "brew install font-nanum-gothic"}.get(platform.system(), "apt install fonts-nanum")
        yield Finding("font", "note", text, install)
    else:
        yield Finding("font", "ok", family)


def _terminal() -> Iterator[Finding]:
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    width = shutil.get_terminal_size().columns
    text = tr("{encoding}, {width} columns, locale {locale}", encoding=encoding, width=width, locale=_locale())
    try:
        "한글".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        remedy = "chcp 65001" if os.name == "nt" else "export LANG=C.UTF-8"
        missing = tr("{text}; Korean cannot be shown", text=text)
        yield Finding("terminal", "problem", missing, remedy)
    else:
        yield Finding("terminal", "ok", text)


def _locale() -> str:
    chosen = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), None)
    return chosen or locale.getlocale()[0] or "C"


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        if missing:
            text = tr("not installed: {use}", use=tr(use))
            yield Finding(extra, "note", text, f"pip install 'jumok[{extra}]'")
        else:
            yield Finding(extra, "ok", tr(use))
