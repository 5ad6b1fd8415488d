"""The modules of the pages: their tests under Node, the script that they are joined into, and their words."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from jumok.view.bundle import bundle, packaged

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(str(resources.files("jumok")))
SCRIPTS = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))
MODULES = [path for folder in ("view/assets", "serve/assets") for path in sorted((SOURCE / folder).rglob("*.js"))]
ENTRIES = sorted(
    set(
        re.findall(
            r'"((?:view|serve)/assets/[\w/]+\.js)"',
            "".join(path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")),
        )
    )
)

Node = Callable[..., Any]


@pytest.mark.slow
def test_under_node(node: Node) -> None:
    """All of tests/js, in one process; `node --import ./tests/js/toml.mjs tests/js/x.test.mjs` runs one of them."""
    source = "".join(f"await import({json.dumps(path.as_uri())});\n" for path in SCRIPTS)
    command = ["node", "--import", str(ROOT / "tests/js/toml.mjs"), "--input-type=module", "--eval", source]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"^\S pass (\d+)$", done.stdout, re.MULTILINE)
    assert int(passed) >= len(SCRIPTS) > 10


def test_a_module_gets_and_gives_json(node: Node) -> None:
    assert node('import { rgb } from "./base/colours.js"; output(input.map(rgb));', ["#010203"]) == [[1, 2, 3]]
    assert node("output([NaN, input]);", "가") == [None, "가"]
    with pytest.raises(AssertionError, match="no such colour"):
        node('throw new Error("no such colour");')


# --- one script ---


def joined(modules: dict[str, str]) -> str:
    return bundle("app.js", modules.__getitem__)


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_modules_of_each_page_can_be_joined(entry: str) -> None:
    found = bundle(entry)
    assert not re.search(r"^(import|export)\b|^\s*(//|\*)", found, re.MULTILINE)


def test_every_module_is_on_a_page() -> None:
    pages = "".join(map(bundle, ENTRIES))
    for path in MODULES:
        name = re.sub(r"\W", "_", path.relative_to(SOURCE).with_suffix("").as_posix())
        assert f"const ${name} = " in pages, path


def test_what_the_joining_relies_on() -> None:
    """A line of a template that began with // would be cut out of the page; ESLint refuses such templates, too."""
    for path in MODULES:
        code = re.sub(r"^\s*//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        assert "`" not in re.sub(r"`(?:[^`\\\n]|\\.|\$\{[^`]*?\})*`", "", code), path


def test_no_module_writes_html() -> None:
    """Texts go into the page by textContent; these are the ways around it."""
    ways = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|\.srcdoc|DOMParser"
    )
    for path in MODULES:
        assert not ways.search(path.read_text(encoding="utf-8")), path


def test_modules_are_joined_in_the_order_of_their_imports() -> None:
    modules = {
        "app.js": '/** Shows b.\n * @param {import("./x.js").X} x */\nimport {b} from "./in/b.js";\n'
        'import {a, deep as inner} from "./a.js";\n\n  // indented\n  b(/** @type {X} */ (a)); // stays\n',
        "in/b.js": '// of a\nimport {\n  a,\n} from "../a.js";\nimport { words } from "./words.toml";\n\n'
        "export function b() { return a; }\n",
        "in/words.toml": '# [Korean, English]\n"tab.a" = [\n  "가",\n  "a",\n]\n',
        "a.js": "export const a = 1;\nexport const {deep, other: renamed = 2} = {};\n",
    }
    assert (
        joined(modules)
        == """
(() => {
"use strict";
const $a = (() => {
const a = 1;
const {deep, other: renamed = 2} = {};
return {a, deep, renamed};
})();

const $in_words_toml = (() => {
const words = {"tab.a":["가","a"]};
return {words};
})();

const $in_b = (() => {
const {a} = $a;
const {words} = $in_words_toml;
function b() { return a; }
return {b};
})();

const $app = (() => {
const {b} = $in_b;
const {a, deep: inner} = $a;
b(/** @type {X} */ (a)); // stays
return {};
})();
})();
"""
    )


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        ({"app.js": 'import {a} from "./a.js";\n', "a.js": 'import {b} from "./app.js";\n'}, "circle: app.js -> a.js"),
        ({"app.js": 'import {a} from "./gone.js";\n'}, "no module gone.js, which app.js imports"),
        ({}, "no module app.js"),
        ({"app.js": 'import {a} from "./a.js";\n', "a.js": "const a = 1;\n"}, "does not export"),
        ({"app.js": 'import a from "./a.js";\n', "a.js": ""}, "import a from"),
        ({"app.js": 'import * as a from "./a.js";\n', "a.js": ""}, r"import \* as"),
        ({"app.js": 'import {a as b} from "./a.js";\n', "a.js": "export const b = 1;\n"}, "imports a from a.js"),
        ({"app.js": "export let a = 1;\n"}, "export let"),
        ({"app.js": "export default 1;\n"}, "export default"),
        ({"app.js": "const a = 1;\nexport {a};\n"}, "export {a}"),
        ({"app.js": "const a = () => import('./b.js');\n"}, r"import\("),
        ({"app.js": "const a = '</script>';\n"}, "</script"),
        ({"app.js": "const a = '<!--';\n"}, "<!--"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_joined_are_refused(modules: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        joined(modules)


# --- words ---

WORDS = [path for folder in ("view/assets", "serve/assets") for path in sorted((SOURCE / folder).rglob("words.toml"))]
FIELD = re.compile(r"\{(\w+)\}")


def words_of(path: Path) -> dict[str, list[str]]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORDS, ids=lambda path: path.parent.relative_to(SOURCE).as_posix())
def test_words_are_complete_in_both_languages(path: Path, node: Node) -> None:
    """Each key has two sentences with the same fields, and Node's loader reads what TOML says."""
    words = words_of(path)
    for key, sentences in words.items():
        assert len(sentences) == 2, key
        assert all(sentence.strip() for sentence in sentences), key
        assert len({tuple(sorted(set(FIELD.findall(sentence)))) for sentence in sentences}) == 1, key
    assert node(f'import {{ words }} from "{path}"; output(words);') == words


def test_each_word_is_defined_once_and_used() -> None:
    defined = [key for path in WORDS for key in words_of(path)]
    assert len(defined) == len(set(defined))
    sources = "".join(path.read_text(encoding="utf-8") for path in [*MODULES, *SOURCE.rglob("assets/**/*.html")])
    words = set(re.findall(r"[\w.-]+", sources))
    made = "|".join(re.findall(r"`([^`]*\$\{[^`]*)`", sources))  # of `tab.${name}` "tab." is looked for
    for key in defined:
        dot = key.find(".")
        parts = {key[: i + 1] for i in range(dot, len(key))} | {key[dot:]} if dot > 0 else set()
        if key in words or all(f'"{part}"' in sources for part in key.split(".")):  # of `${name}.${by}`
            continue
        assert any(f"{part}${{" in made or f"}}{part}" in made for part in parts), key


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_word_of_a_page_is_defined_on_it_with_its_values(entry: str) -> None:
    """A card of the playground showed "fact.parameters": the key of a word that another page had, and lost."""
    read: dict[str, str] = {}
    bundle(entry, lambda path: read.setdefault(path, packaged(path)))
    words = {key: both for path in read if path.endswith(".toml") for key, both in tomllib.loads(read[path]).items()}
    # Not messageOf: a page without an engine does not call it.
    modules = "".join(one for path, one in read.items() if path.endswith(".js") and not path.endswith("/words.js"))
    for first in re.findall(r"(?<![\w.])t\(([^,()]*)[,)]", modules):
        for key in re.findall(r'"([\w.-]+)"', re.sub(r"===? *\"[^\"]*\"|`[^`]*`", "", first)):
            assert key in words, (entry, key)
        for start in re.findall(r"`([\w.-]+)\$\{", first):
            assert any(key.startswith(start) for key in words), (entry, start)
    for key, values in re.findall(r'(?<![\w.])t\("([\w.-]+)"(?:, \{([^{}]*)\})?\)', modules):
        given = {part.partition(":")[0].strip() for part in values.split(",")}
        assert all(set(FIELD.findall(sentence)) <= given for sentence in words[key]), (entry, key)


def test_each_refusal_of_an_engine_has_words_for_its_values() -> None:
    """Whatever an engine refuses, a page has a sentence for it in both languages, with the values that are given."""
    words = {key: sentences for path in WORDS for key, sentences in words_of(path).items()}
    form = re.compile(r'new EngineError\(\s*"([\w.]+)"(?:,\s*\{((?:[^{}]|\$\{[^}]*\})*)\})?')
    paths = [path for folder in ("model", "page") for path in (SOURCE / "view/assets" / folder).glob("*.js")]
    thrown = [found for path in paths for found in form.findall(path.read_text(encoding="utf-8"))]
    assert len(thrown) > 20
    for code, values in thrown:
        given = {part.partition(":")[0].strip() for part in values.split(",")}
        assert all(set(FIELD.findall(sentence)) <= given for sentence in words[code]), code
