"""The modules of the pages: tests under Node, comments in them, and the scripts that a wheel holds of them."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jumok.view.bundle import bundle, script
from jumok.view.javascript import without_comments

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(str(resources.files("jumok")))
SCRIPTS = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))
ESBUILD = ROOT / "node_modules" / "esbuild" / "bin" / "esbuild"

Node = Callable[..., Any]


@pytest.mark.slow
def test_under_node(node: Node) -> None:
    """All of tests/js, in one process; `node tests/js/x.test.mjs` runs one of them."""
    source = "".join(f"await import({json.dumps(path.as_uri())});\n" for path in SCRIPTS)
    command = ["node", "--input-type=module", "--eval", source]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^\S pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed) >= len(SCRIPTS) > 10


def test_a_module_gets_and_gives_json(node: Node) -> None:
    assert node('import { rgb } from "./base/colours.js"; output(input.map(rgb));', ["#010203"]) == [[1, 2, 3]]
    assert node("output([NaN, input]);", "가") == [None, "가"]
    with pytest.raises(AssertionError, match="no such colour"):
        node('throw new Error("no such colour");')


# --- comments ---


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("// a\n  /* b */  \nconst a = 1; // c\n", "const a = 1; \n"),
        ("/** a\n * b */\n\n// c\nf(/* d */ x);\n", "\nf(  x);\n"),
        ("return /* two\nlines */ 1;\n", "return \n 1;\n"),
        ("const a = `\n// kept ${b /* gone */ + `/* kept */`}\n// kept`;\n",) * 2,
        ("const a = \"// 'kept'\" + '/* kept */ \\' //';\n",) * 2,
        ("const a = x.replace(/[/\"]\\/\\/ //g, y) / 2; // gone\n", "const a = x.replace(/[/\"]\\/\\/ //g, y) / 2; \n"),
        ("if (a) return /`/; // gone\n", "if (a) return /`/; \n"),
        ("const a = (b + c) / d / e[1] / 2; // gone\n", "const a = (b + c) / d / e[1] / 2; \n"),
        ("const a = `${{ b: `}` }.b}`; // gone\n", "const a = `${{ b: `}` }.b}`; \n"),
    ],
)  # fmt: skip
def test_comments_go_and_what_looks_like_one_stays(source: str, expected: str) -> None:
    """A line of a template that began with // was cut out of the page."""
    assert without_comments(source) == expected.replace("b /* gone */ +", "b   +")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("const a = `b", "does not end"),
        ("const a = 'b\n';", "does not end"),
        ("const a = 1; /* b", "does not end"),
        ("const a = /b\n/;", "does not end"),
        ("if (a) /b/.test(c);", "parentheses"),
        ('const a = `\nimport { b } from "./b.js";\n`;', "begins like a statement"),
        ("const a = `${b}\nexport const c = 1;\n`;", "begins like a statement"),
    ],
)
def test_what_cannot_be_told_from_a_comment_or_a_statement_is_refused(source: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        without_comments(source)


@pytest.mark.long
def test_modules_without_comments_are_the_same_programs(tmp_path: Path) -> None:
    if not ESBUILD.is_file() or shutil.which("node") is None:
        pytest.skip("esbuild is not installed: npm ci")
    names = [path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.js"))]
    printed = []
    for folder, change in (("whole", str), ("cut", without_comments)):
        for name in names:
            copy = tmp_path / folder / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(change((SOURCE / name).read_text(encoding="utf-8")), encoding="utf-8")
        out = tmp_path / f"{folder}-printed"
        command = ["node", str(ESBUILD), *names, f"--outdir={out}", "--minify-whitespace", "--log-level=error"]
        subprocess.run(command, cwd=tmp_path / folder, check=True)
        printed.append([(out / name).read_text(encoding="utf-8") for name in names])
    for name, whole, cut in zip(names, *printed, strict=True):
        assert whole == cut, name


# --- what a wheel holds ---


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """The module setup.py."""
    pytest.importorskip("setuptools")
    spec = importlib.util.spec_from_file_location("jumok_setup", ROOT / "setup.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_of_a_page_is_built(builder: ModuleType) -> None:
    """An entry that package.json does not list would stay long in a wheel, and nobody would notice."""
    named = re.compile(r'"((?:view|serve)/assets/[\w/]+\.js)"')
    used = {name for path in SOURCE.rglob("*.py") for name in named.findall(path.read_text(encoding="utf-8"))}
    assert used == set(builder.entries())


def test_a_built_script_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "view/assets/viewer/app.js"
    assert script.__wrapped__(entry) == bundle(entry)
    modules = {"view/built/view-assets-viewer-app.js": "built();"}
    monkeypatch.setattr(importlib.import_module("jumok.view.bundle"), "packaged", modules.__getitem__)
    assert script.__wrapped__(entry) == "built();"


@pytest.mark.slow
def test_a_package_is_built_without_node_too(tmp_path: Path) -> None:
    """Copied is what the source tree has; the missing scripts are a line, and no failure."""
    pytest.importorskip("setuptools")
    for name in ("setup.py", "package.json", "package-lock.json"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "src" / "jumok" / "view").mkdir(parents=True)
    (tmp_path / "src" / "jumok" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "jumok"\nversion = "1"\n', encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_py"],
        cwd=tmp_path, env={"PATH": ""}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "scripts are not built: Node is not installed" in done.stderr
    assert (tmp_path / "build" / "lib" / "jumok" / "__init__.py").is_file()
    assert not (tmp_path / "build" / "lib" / "jumok" / "view" / "built").exists()


@pytest.mark.long
def test_a_built_script_computes_what_the_joined_one_does(node: Node, builder: ModuleType, tmp_path: Path) -> None:
    if not ESBUILD.is_file():
        pytest.skip("esbuild is not installed: npm ci")
    entry = tmp_path / "view" / "assets" / "viewer" / "entry.js"
    shutil.copytree(SOURCE / "view" / "assets", entry.parents[1])
    entry.write_text(
        """import { contrast, rgb, scaleTable, themeColours } from "../base/colours.js";
import { decodeWeights, halfToNumber as half } from "./trace.js";
import { Store } from "./store.js";
        const dark = themeColours("dark");
        const weights = decodeWeights(Uint8Array.from([1, 9, 3, 8, 0, 255, 7]), 3, 3, true, "sqrt-u8");
        const store = new Store({ layer: 3, heads: [0, 1, 2, 5], token: null });
        console.log(JSON.stringify([contrast(rgb(dark.ink), rgb(dark.surface)), [...scaleTable("sign", dark)],
          [...weights], half(0x1234), store.hash(), store.read("#layer=2&heads=1-3&x.side=%22key%22")]));
        """,
        encoding="utf-8",
    )
    builder.build_script(entry, tmp_path / "built.js", ["node", str(ESBUILD)])
    relative = entry.relative_to(tmp_path).as_posix()
    (tmp_path / "joined.js").write_text(
        bundle(relative, lambda path: (tmp_path / path).read_text(encoding="utf-8")), encoding="utf-8"
    )
    built, joined = (
        subprocess.run(["node", name], cwd=tmp_path, capture_output=True, encoding="utf-8", check=True).stdout
        for name in ("built.js", "joined.js")
    )
    assert built == joined
    assert len((tmp_path / "built.js").read_bytes()) < 0.6 * len((tmp_path / "joined.js").read_bytes())
