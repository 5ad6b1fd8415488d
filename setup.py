"""Compiles the step of generation, and builds the same files each time. All else is in pyproject.toml.

With a C++ compiler, a wheel holds step.cpp compiled for each level of processors, and is for one platform and any
Python; without one, or with JUMOK_NATIVE=0, it is for all platforms. An editable installation compiles the level of
this machine, beside the source. Where nothing was compiled, jumok compiles the step when it is first needed.

With SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/) two builds of a commit are the same
bytes, if the umask and the compiler are the same. setuptools heeds it for wheels alone.
"""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import os
import platform
import re
import runpy
import subprocess
import sys
import sysconfig
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

NATIVE = Path("src/jumok/inference/native")  # setup.py runs in its own folder
step = SimpleNamespace(**runpy.run_path(str(NATIVE / "levels.py")))


class BuildWithStep(build_py):
    """The usual build, with the libraries of step.cpp, where there is a compiler."""

    libraries: tuple[Path, ...] = ()

    def run(self) -> None:
        """Copy the package, or leave it where it is if it is editable, and compile."""
        super().run()
        folder = NATIVE if self.editable_mode else Path(self.build_lib, *NATIVE.parts[1:])
        for old in (*folder.glob(f"*{step.SUFFIX}"), *folder.glob("*.sha256")):
            old.unlink()
        compiler = None if os.environ.get("JUMOK_NATIVE") == "0" else step.find_compiler()
        if compiler is None:
            return say("no C++ compiler is used, so the step of generation is not compiled")
        try:
            processor = compiled(compiler, step.PROCESSOR, folder)
            levels = list(step.LEVELS)
            if self.editable_mode:
                levels = levels[: ctypes.CDLL(str(processor.absolute())).jumok_levels()][-1:]
            with ThreadPoolExecutor() as pool:
                libraries = pool.map(lambda level: compiled(compiler, level, folder), levels)
                self.libraries = (processor, *libraries)
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            for new in (*folder.glob(f"*{step.SUFFIX}"), *folder.glob("*.sha256")):
                new.unlink()
            say(f"the step of generation is not compiled: {error}")


def compiled(compiler: Path, name: str, folder: Path) -> Path:
    """Compile a library into the folder, with its checksum beside it, and return its path."""
    path = folder / step.library_name(name)
    step.compile_library(compiler, name, path)
    path.with_suffix(".sha256").write_text(hashlib.sha256(path.read_bytes()).hexdigest(), encoding="utf-8")
    return path


def say(what: str) -> None:
    """Print a line that `pip -v` and `python -m build` show."""
    print(f"jumok: {what}; jumok does it when it is first needed, if there is a compiler then", file=sys.stderr)


class WheelWithStep(bdist_wheel):
    """The usual wheel; for one platform, and any Python 3, if it holds compiled libraries."""

    def run(self) -> None:
        """Build first: only then it is known whether there are libraries."""
        self.run_command("build")
        if self.get_finalized_command("build_py").libraries:
            self.root_is_pure = False
            self.distribution.has_ext_modules = lambda: True  # so that it is installed in platlib
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of the file name: of Python, of its ABI, and of the platform."""
        python, abi, system = super().get_tag()
        if self.root_is_pure:
            return python, abi, system
        if system.startswith("linux_") and platform.libc_ver()[0] == "glibc":
            found = b"".join(path.read_bytes() for path in self.get_finalized_command("build_py").libraries)
            newest = max(int(number) for number in re.findall(rb"GLIBC_2\.(\d+)", found))
            system = system.replace("linux", f"manylinux_2_{max(newest, 17)}", 1)  # PEP 600
        return "py3", "none", system.replace("universal2", platform.machine())


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
    # A library for the system that Python was built for runs on newer ones, too; clang takes the newest by itself.
    if target := sysconfig.get_config_var("MACOSX_DEPLOYMENT_TARGET"):
        os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", str(target))
    setup(cmdclass={"build_py": BuildWithStep, "bdist_wheel": WheelWithStep, "sdist": SameSdist})
