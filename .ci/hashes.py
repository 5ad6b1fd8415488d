"""Writes requirements/: the versions of constraints.txt with the SHA-256 of every file of each release.

    pip install uv
    python .ci/hashes.py

uv reads the hashes from the public index, for all platforms at once. It keeps a version that is in the file already, as
far as constraints.txt and the requirements allow it. The files:

    runtime.txt  what jumok needs; and setuptools, which builds it
    dev.txt      all extras too
    cuda.txt     what torch of the public index needs on Linux besides; its CPU build needs none of it
    release.txt  the tools of a release

torch-cpu.txt is written by hand: the CPU builds of torch for Linux are not on the public index.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
OLDEST = "3.11.5"  # soupsieve, which the documentation needs, refuses older ones
RELEASE = ("build", "setuptools", "cyclonedx-bom", "pip-audit")
GPU = re.compile(r"(nvidia|cuda)-|triton$")
HEAD = "# Written by .ci/hashes.py from constraints.txt; see docs/install.md.\n"


def entries(text: str) -> dict[str, str]:
    """The requirements of a file by name, each with its hashes, without comments."""
    lines = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    return {one.partition("==")[0]: one for one in re.findall(r"^\S+==(?:.*\\\n)*.*\n", lines, flags=re.MULTILINE)}


def compiled(names: tuple[str, ...], given: str, *options: str) -> dict[str, str]:
    """What uv pins for the requirements `given`. names: the files whose versions it keeps."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answer = Path(folder) / "asked.in", Path(folder) / "answer.txt"
        asked.write_text(given, encoding="utf-8")
        known = [(FOLDER / name).read_text(encoding="utf-8") for name in names if (FOLDER / name).is_file()]
        pins = re.findall(r"^\S+==\S+", "".join(known), flags=re.MULTILINE)  # uv would keep hashes, too
        answer.write_text("\n".join(pins), encoding="utf-8")
        subprocess.run(
            [
                "uv", "pip", "compile", "--no-config", "--universal", f"--python-version={OLDEST}", "--generate-hashes",
                "--no-header", "--no-annotate", "--quiet", f"--constraints={ROOT / 'constraints.txt'}", *options,
                f"--output-file={answer}", *([str(asked)] if given else [str(ROOT / "pyproject.toml")]),
            ],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        found = entries(answer.read_text(encoding="utf-8"))
    return {name: one for name, one in found.items() if "== 'emscripten'" not in one}


def write(name: str, found: dict[str, str]) -> None:
    """Write a file, sorted by name."""
    (FOLDER / name).write_text(HEAD + "".join(found[one] for one in sorted(found)), encoding="utf-8")
    print(f"requirements/{name}: {len(found)} packages")


def main() -> None:
    """Write all files."""
    for name, options in (("runtime.txt", ()), ("dev.txt", ("--extra=dev",))):
        found = compiled((name, "cuda.txt"), "", *options)
        cuda = {one: text for one, text in found.items() if GPU.match(one)}
        write(name, {one: text for one, text in found.items() if one not in cuda})
    write("cuda.txt", cuda)
    write("release.txt", compiled(("release.txt",), "\n".join(RELEASE)))


if __name__ == "__main__":
    main()
