"""The wheel, the sdist and an editable installation: with the compiled step, and without a compiler."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy
import pytest

from conftest import FIXTURES
from jumok.inference.native.levels import LEVELS, PROCESSOR, SUFFIX, find_compiler, library_name

ROOT = Path(__file__).resolve().parents[1]
NATIVE = "jumok/inference/native"


def can_build() -> bool:
    """Whether the tools are there that pyproject.toml asks for."""
    with contextlib.suppress(PackageNotFoundError):
        return int(version("setuptools").split(".")[0]) >= 77
    return False


pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not can_build(), reason="building without a network needs setuptools 77 or newer"),
]
needs_compiler = pytest.mark.skipif(find_compiler() is None or os.name != "posix", reason="a C++ compiler, on POSIX")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """With a compiler that does not optimise, so that it is fast."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JUMOK", "PIP"))}
    if (real := find_compiler()) and os.name == "posix":
        script = tmp_path_factory.mktemp("compiler") / "compiler"
        script.write_text(f'#!/bin/sh\nexec {real} "$@" -O0\n')
        script.chmod(0o755)
        own["CXX"] = str(script)
    return {**own, "SOURCE_DATE_EPOCH": "1700000000"}


@pytest.fixture(scope="module")
def without_compiler(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    own = {name: value for name, value in environment.items() if name != "CXX"}
    return {**own, "PATH": str(tmp_path_factory.mktemp("no-programs"))}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Make a copy of what is built from, without what a build has left there."""

    def copy() -> Path:
        folder = tmp_path_factory.mktemp("tree")
        with tarfile.open(folder / "tree.tar", "w") as archive:  # keeps the symbolic link that shutil would follow
            for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "src/jumok", "docs/learn"):
                archive.add(ROOT / name, name, filter=lambda entry: None if left_out(entry.name) else entry)
        with tarfile.open(folder / "tree.tar") as archive:
            archive.extractall(folder, filter="data")
        return folder

    return copy


def left_out(name: str) -> bool:
    return "__pycache__" in name or name.endswith((SUFFIX, ".sha256"))


def built(tree: Path, what: str, environment: dict[str, str]) -> tuple[Path, str]:
    """Call a hook of PEP 517 or 660; return what it made, and what it printed."""
    code = f"import setuptools.build_meta as backend; backend.build_{what}('dist')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return max((tree / "dist").iterdir(), key=lambda path: path.stat().st_mtime_ns), done.stderr


def machine_code(names: list[str]) -> set[str]:
    """The file names of libraries and their checksums."""
    return {Path(name).name for name in names if name.endswith((".so", ".dll", ".dylib", ".sha256"))}


def with_checksums(*names: str) -> set[str]:
    libraries = [Path(library_name(name)) for name in names]
    return {str(one) for path in libraries for one in (path, path.with_suffix(".sha256"))}


@pytest.fixture(scope="module")
def tree(copied: Callable[[], Path]) -> Path:
    return copied()


@pytest.fixture(scope="module")
def wheel(tree: Path, environment: dict[str, str]) -> Path:
    left = tree / "build/lib" / NATIVE / f"x86-64-v2-0123456789abcdef{SUFFIX}"  # of an older source, by a build before
    left.parent.mkdir(parents=True)
    left.write_bytes(b"old")
    return built(tree, "wheel", environment)[0]


@needs_compiler
def test_a_wheel_holds_the_step_of_each_level(wheel: Path) -> None:
    """It is for one platform and any Python 3."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = archive.read(next(name for name in names if name.endswith(".dist-info/WHEEL"))).decode()
        contents = {Path(name).name: archive.read(name) for name in names if name.startswith(NATIVE)}
    assert machine_code(names) == with_checksums(PROCESSOR, *LEVELS)
    assert all(name.startswith(NATIVE) for name in names if machine_code([name]))
    for name in (PROCESSOR, *LEVELS):
        path = Path(library_name(name))
        assert contents[str(path.with_suffix(".sha256"))].decode() == hashlib.sha256(contents[str(path)]).hexdigest()
        assert str(ROOT).encode() not in contents[str(path)]
        assert b"/tmp/" not in contents[str(path)]
    assert len({contents[library_name(name)] for name in LEVELS}) == len(LEVELS)
    python, abi, system = wheel.stem.split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert f"Tag: py3-none-{system}\n" in about
    assert "Root-Is-Purelib: false" in about
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        machine, number = platform.machine(), int(re.fullmatch(r"manylinux_2_(\d+)_\w+", system)[1])  # type: ignore[index]
        assert system == f"manylinux_2_{number}_{machine}"
        assert 17 <= number <= int(platform.libc_ver()[1].split(".")[1])
        assert any(f"GLIBC_2.{number}\0".encode() in content for content in contents.values()) or number == 17
    else:
        assert sysconfig.get_platform().split("-")[0] in system


@needs_compiler
def test_two_builds_are_the_same_bytes(wheel: Path, copied: Callable[[], Path], environment: dict[str, str]) -> None:
    """In folders of different names."""
    assert built(copied(), "wheel", environment)[0].read_bytes() == wheel.read_bytes()


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel in a new environment, which sees the packages of this one, and return the `jumok` there."""
    venv.create(folder, with_pip=True)
    bin = folder / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([bin / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    [packages] = {path.parent for path in folder.rglob("jumok-*.dist-info")}
    (packages / "more.pth").write_text(str(Path(numpy.__file__).parents[1]), encoding="utf-8")
    return bin / "jumok"


@needs_compiler
def test_an_installed_wheel_needs_no_compiler(wheel: Path, tmp_path: Path, without_compiler: dict[str, str]) -> None:
    """Its step writes texts, nothing is compiled, and the cache stays empty. A damaged one leaves PyTorch."""
    jumok, cache = installed(wheel, tmp_path / "venv"), tmp_path / "cache"
    own = {**without_compiler, "JUMOK_CACHE": str(cache), "JUMOK_LANG": "en"}
    run = FIXTURES / "runs" / "lm-modern"

    def said(*arguments: object, code: int = 0) -> str:
        command = [str(jumok), *map(str, arguments)]
        done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8")
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    program = "from jumok.inference.native.build import library_path; print(library_path())"
    python = [str(jumok.with_name("python")), "-c", program]
    [line] = subprocess.run(python, env=own, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert Path(line).is_relative_to(tmp_path / "venv")
    assert f"{Path(line).name.rpartition('-')[0]}, of this installation" in said("doctor")
    text = said("generate", run, "하나", "--tokens", 20, "--seed", 1)
    assert "PyTorch" not in text
    assert not (cache / "native").exists()
    Path(line).write_bytes(Path(line).read_bytes()[:-1])
    again = said("generate", run, "하나", "--tokens", 2000, "--seed", 1)
    assert "is damaged: install jumok again" in again
    assert "--force-reinstall" in said("doctor", code=1)


def test_a_wheel_without_a_compiler_is_for_all_systems(tree: Path, without_compiler: dict[str, str]) -> None:
    for environment in (without_compiler, {**os.environ, "JUMOK_NATIVE": "0"}):
        wheel, printed = built(tree, "wheel", environment)
        assert wheel.name.endswith("-py3-none-any.whl")
        assert "jumok: no C++ compiler is used, so the step of generation is not compiled" in printed
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
        assert machine_code(names) == set()
        assert {f"{NATIVE}/step.cpp", f"{NATIVE}/processor.cpp", f"{NATIVE}/levels.py"} <= set(names)


@needs_compiler
def test_a_wheel_of_a_compiler_that_fails_is_for_all_systems(
    tree: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """An old compiler may know the first level only; half of the levels would be no level for most."""
    script = tmp_path / "compiler"
    script.write_text(
        f'#!/bin/sh\ncase "$*" in *step.cpp*) echo "no such level" >&2; exit 1;; esac\nexec {find_compiler()} "$@"\n'
    )
    script.chmod(0o755)
    wheel, printed = built(tree, "wheel", {**environment, "CXX": str(script)})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert f"jumok: the step of generation is not compiled: {script}: no such level" in printed
    with zipfile.ZipFile(wheel) as archive:
        assert machine_code(archive.namelist()) == set()


@needs_compiler
def test_an_editable_installation_compiles_the_level_of_this_machine(
    copied: Callable[[], Path], environment: dict[str, str], without_compiler: dict[str, str]
) -> None:
    tree = copied()
    native = tree / "src" / NATIVE
    wheel, _ = built(tree, "editable", environment)
    assert wheel.name.endswith("-py3-none-any.whl")
    found = machine_code([path.name for path in native.iterdir()])
    [level] = [name for name in LEVELS if library_name(name) in found]
    assert found == with_checksums(PROCESSOR, level)
    sdist, _ = built(tree, "sdist", environment)
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert machine_code(names) == set()
    assert {f"src/{NATIVE}/step.cpp", f"src/{NATIVE}/processor.cpp"} <= {name.partition("/")[2] for name in names}
    shutil.rmtree(tree / "dist")
    pure, _ = built(tree, "wheel", without_compiler)  # nor are those of the source taken along
    with zipfile.ZipFile(pure) as archive:
        assert machine_code(archive.namelist()) == set()
    built(tree, "editable", without_compiler)
    assert machine_code([path.name for path in native.iterdir()]) == set()
