"""ES modules joined into one script, for pages that are one file.

Each module becomes a function that is called once, so that its names are its own. Modules stand behind those that they
import. Joining the largest page takes a tenth of a second, so it is done when a page is written, and needs no Node.
"""

from __future__ import annotations

import json
import posixpath
import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources

_IMPORT = re.compile(r'^import\s*(?:\{([^}]*)\}\s*from\s*)?"(\.{1,2}/[\w./-]+\.(?:js|toml))";[ \t]*\n', re.MULTILINE)
_EXPORTED = re.compile(r"^export (?:async )?(?:function\*?|class|const) *([\w$]+|\{[^}]*\}|\[[^\]]*\])", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const)\b)", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*|(?<![\w.{])import\(.*", re.MULTILINE)
_ENDS_A_SCRIPT = re.compile(r"<(?:/?script|!--)", re.IGNORECASE)
# Comments that have their lines to themselves, empty lines, and indentation. ESLint refuses templates of several lines.
_NO_CODE = re.compile(r"^(?:[ \t]*(?://.*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)?\n)+|^[ \t]+", re.MULTILINE)


@cache
def packaged(path: str) -> str:
    """Return a file of the package as text.

    Raises:
        KeyError: there is none.
    """
    file = resources.files("jumok").joinpath(path)
    if not file.is_file():
        raise KeyError(path)
    return file.read_text(encoding="utf-8")


@cache
def script(entry: str) -> str:
    """Return the script of a page: `entry` and all that it imports, as one text.

    Args:
        entry: path of a module inside the package jumok, "view/assets/viewer/app.js" for example.
    """
    return bundle(entry)


def bundle(entry: str, read: Callable[[str], str] = packaged) -> str:
    """Join a module and all that it imports, directly and indirectly.

    Understood are `import {a, b as c} from "./x.js";`, `import "./x.js";`, and `export` before a function, a class or
    a constant. A TOML file is a module that exports its content as the constant `words`.

    Args:
        entry: the path of the module to begin with. read: gives the source of a path, or raises KeyError.

    Raises:
        ValueError: modules that import each other in a circle, from one that is not there, or what is not exported;
            another form of import or export; or what would end the script element.
    """
    exported: dict[str, list[str]] = {}
    joined: list[str] = []

    def add(path: str, importers: tuple[str, ...]) -> None:
        if path in importers:
            raise ValueError(f"modules import each other in a circle: {' -> '.join((*importers, path))}")
        if path in exported:
            return
        try:
            source = read(path)
        except KeyError:
            by = f", which {importers[-1]} imports" if importers else ""
            raise ValueError(f"there is no module {path}{by}") from None
        source = _words_module(source) if path.endswith(".toml") else _NO_CODE.sub("", source)
        for match in _IMPORT.finditer(source):
            add(_target(path, match[2]), (*importers, path))
        exported[path] = [name for match in _EXPORTED.finditer(source) for name in _bound(match[1])]
        joined.append(_module(path, source, exported))

    add(entry, ())
    return '\n(() => {\n"use strict";\n' + "\n".join(joined) + "})();\n"


def _words_module(source: str) -> str:
    """Return a module with the content of a TOML file."""
    return f"export const words = {json.dumps(tomllib.loads(source), ensure_ascii=False, separators=(',', ':'))};\n"


def _module(path: str, source: str, exported: dict[str, list[str]]) -> str:
    """Return one module as a constant that holds what it exports."""

    def imported(match: re.Match[str]) -> str:
        other = _target(path, match[2])
        names = [item.split() for item in (match[1] or "").split(",") if item.strip()]
        for name, *_ in names:
            if name not in exported[other]:
                raise ValueError(f"{path} imports {name} from {other}, which does not export it")
        bound = ", ".join(name if not alias else f"{name}: {alias[-1]}" for name, *alias in names)
        return f"const {{{bound}}} = {_constant(other)};\n" if bound else ""

    source = _EXPORT.sub("", _IMPORT.sub(imported, source)).strip("\n")
    if left := _LEFT_OVER.search(source) or _ENDS_A_SCRIPT.search(source):
        raise ValueError(f"{path} has {left[0]!r}, which cannot be in a page's script")
    return f"const {_constant(path)} = (() => {{\n{source}\nreturn {{{', '.join(exported[path])}}};\n}})();\n"


def _target(path: str, imported: str) -> str:
    """Return the path of a module from the path of the one that imports it and the text of the import."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), imported))


def _constant(path: str) -> str:
    """Return the name of the constant of a module."""
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _bound(pattern: str) -> list[str]:
    """Return the names that a declaration binds: of `{a, b: c, d = 1}` a, c and d."""
    items = (item.partition("=")[0].rpartition(":")[2].strip() for item in pattern.strip("{}[]").split(","))
    return [name for name in items if name]
