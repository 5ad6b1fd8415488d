"""Builds the scripts of the pages into a wheel, and the same sdist each time. All else is in pyproject.toml.

esbuild joins and minifies each entry that package.json lists. It comes from node_modules if it is there, else from npm.
Without either the wheel holds the modules alone, and `jumok.view.bundle` joins them when a page is written.

With SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/) two builds of a commit are the same
bytes, if the umask is the same. setuptools heeds it for wheels alone.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
# The oldest browsers that pages are written for, of early 2023.
TARGET = "chrome109,firefox115,safari16.4"


def entries() -> list[str]:
    """The modules that pages begin with, as paths inside the package."""
    return list(json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["entries"])


def build_script(entry: Path, outfile: Path, esbuild: list[str]) -> None:
    """Write the script of an entry by the command `esbuild`.

    Raises:
        subprocess.CalledProcessError: esbuild refuses; its message is in `stderr`.
    """
    subprocess.run(
        [
            *esbuild, str(entry), f"--outfile={outfile}", "--bundle", "--minify", "--format=iife",
            f"--target={TARGET}", "--charset=utf8", "--legal-comments=none", "--log-level=warning",
        ],
        check=True, capture_output=True, encoding="utf-8",
    )  # fmt: skip


def installed_esbuild(folder: Path) -> list[str]:
    """The command of esbuild in node_modules, or in one that npm fills in `folder`.

    Raises:
        OSError, subprocess.CalledProcessError: neither is to be had.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        raise OSError("Node is not installed")
    there = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"
    if not there.is_file():
        if npm is None:
            raise OSError("npm is not installed")
        for name in ("package.json", "package-lock.json"):
            shutil.copy(ROOT / name, folder)
        subprocess.run(
            [npm, "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--fetch-retries=0"],
            cwd=folder, check=True, capture_output=True, encoding="utf-8", timeout=120,
        )  # fmt: skip
        there = folder / "node_modules" / "esbuild" / "bin" / "esbuild"
    return [node, str(there)]


class BuildWithScripts(build_py):
    """The usual copy of the package, and the scripts of its pages beside it; never in the source tree."""

    def run(self) -> None:
        """Copy, and build the scripts where Node is."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "jumok" / "view" / "built"
        shutil.rmtree(target, ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                esbuild = installed_esbuild(Path(folder))
            except (OSError, subprocess.SubprocessError) as error:
                print(f"The pages' scripts are not built: {error}. Pages join their modules instead.", file=sys.stderr)
                return
            try:
                for entry in entries():
                    build_script(ROOT / "src" / "jumok" / entry, target / entry.replace("/", "-"), esbuild)
            except subprocess.CalledProcessError as error:
                sys.exit(error.stderr)
        print(f"The pages' scripts are built: {', '.join(sorted(os.listdir(target)))}", file=sys.stderr)


class SameSdist(sdist):
    """The usual sdist; with SOURCE_DATE_EPOCH without what depends on the time and the user of the build."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):  # type: ignore[no-untyped-def]
        """Write the archive and return its path; the arguments are those of `shutil.make_archive`."""
        if format != "gztar" or "SOURCE_DATE_EPOCH" not in os.environ:
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)
        epoch, path = int(os.environ["SOURCE_DATE_EPOCH"]), f"{base_name}.tar.gz"

        def same(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mtime, member.mode = epoch, 0o755 if member.mode & 0o100 else 0o644
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.add(base_dir, filter=same)  # folders are added in the order of their names
        return path


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithScripts, "sdist": SameSdist})
