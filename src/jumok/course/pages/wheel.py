"""The wheel of the jumok that runs, made of its own files, for a notebook that goes to another machine.

It needs no network, no source tree and no build tool, and is the same for an installed wheel and an editable
installation: the files of the package are where it was imported from, and its metadata are where pip put them.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from jumok.errors import LessonError
from jumok.files import write_atomic

PACKAGE = Path(__file__).resolve().parents[2]
METADATA = ("entry_points.txt", "top_level.txt", "licenses/LICENSE")
TIME = (1980, 1, 1, 0, 0, 0)  # of each file in the archive, so that the same package is the same wheel
COMPILED = (".pyc", ".so", ".dll", ".sha256")
WHEEL = "Wheel-Version: 1.0\nGenerator: jumok\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel_name() -> str:
    """Return the name of the wheel.

    Raises:
        LessonError: the package was not installed, so nothing says what it depends on.
    """
    return f"jumok-{_installation().version}-py3-none-any.whl"


def write_wheel(folder: Path) -> Path:
    """Write the wheel into a folder, in place of an older one, and return its path.

    Raises:
        LessonError: it cannot be written, or the package was not installed.
    """
    path = folder / wheel_name()
    try:
        write_atomic(path, _content())
    except OSError as error:
        raise LessonError(
            "cannot write {path}: {reason}. Give a file in a folder of yours.", path=path, reason=error
        ) from None
    return path


def is_published() -> bool:
    """Return whether the index of packages has jumok: [project.urls] of pyproject.toml names its page there."""
    return "Index" in addresses()


def addresses() -> dict[str, str]:
    """Return the addresses of the project by name, from [project.urls] of pyproject.toml."""
    found = _installation().metadata.get_all("Project-URL") or []
    return {name.strip(): address.strip() for name, _, address in (line.partition(",") for line in found)}


def _installation() -> Distribution:
    try:
        return distribution("jumok")
    except PackageNotFoundError:
        raise LessonError("jumok is not installed here; install it from its repository: pip install -e .") from None


@cache
def _content() -> bytes:
    """The bytes of the wheel (https://packaging.python.org/en/latest/specifications/binary-distribution-format/)."""
    installed = _installation()
    about = f"jumok-{installed.version}.dist-info"
    files = {f"jumok/{name}": path.read_bytes() for name, path in _files()}
    described = installed.read_text("METADATA") or installed.read_text("PKG-INFO") or ""  # the latter of an .egg-info
    texts = {"METADATA": described, **{name: installed.read_text(name) for name in METADATA}, "WHEEL": WHEEL}
    files |= {f"{about}/{name}": text.encode() for name, text in texts.items() if text is not None}
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow((name, f"sha256={digest}", len(content)))
    rows.writerow((f"{about}/RECORD", "", ""))
    files[f"{about}/RECORD"] = record.getvalue().encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return archive.getvalue()


def _files() -> Iterator[tuple[str, Path]]:
    """The files of the package, without compiled ones and hidden ones; in a source tree the chapters are a link.

    The compiled step is left out with its checksums: another machine may be of another kind, and compiles its own.
    """
    for folder, inside, names in os.walk(PACKAGE, followlinks=True):
        inside[:] = sorted(name for name in inside if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith(COMPILED):
                path = Path(folder, name)
                yield path.relative_to(PACKAGE).as_posix(), path
