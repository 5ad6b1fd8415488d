"""The page: one HTML file that holds the viewer and everything it shows.

The viewer's modules are joined into one script. A content-security policy in the page allows this script and the style
only, by their SHA-256, and forbids every connection. Texts are embedded as JSON without any "<", and the viewer inserts
them as text, so that a text cannot run as code.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import webbrowser
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from jumok.errors import ConfigError, ViewError
from jumok.files import write_atomic
from jumok.models import Model
from jumok.view.probes import Probes, probe_trace, probes_json
from jumok.view.schema import opened_layer, to_json
from jumok.view.trace import Trace, attention_of, trace

ENTRY = "app.js"
LONGEST_TITLE = 40  # characters of the text
HEIGHT = 760  # pixels of a page inside a notebook
# What a page in a notebook may do: run its script and save pictures. It has no access to the notebook around it.
SANDBOX = "allow-scripts allow-downloads allow-modals allow-popups"

_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w-]+\.js)";[ \t]*\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)
_DECLARED = re.compile(r"^(?:async )?(?:function\*?|class|const|let|var) +([\w$]+|\{[^}]*\}|\[[^\]]*\])", re.MULTILINE)
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*|\bimport\(.*", re.MULTILINE)
_ENDS_A_SCRIPT = re.compile(r"<(?:/?script|!--)", re.IGNORECASE)
_MARKER = re.compile(r"\{\{(\w+)\}\}")
# "<" could end the element that holds the JSON. The others are legal there, but would fool whoever reads the source:
# controls, invisible signs, signs that turn the direction of writing; and half surrogates are no UTF-8.
_UNSAFE = re.compile("[<\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]")


class Page:
    """A page of the viewer. A notebook shows it; `show` opens it in a browser, and `save` keeps it.

    Args:
        trace: what it shows, the JSON object that docs/viewer.md describes.
        title: of its window.
        opening: how it opens, any part of the viewer's state: {"view": "neurons", "layer": 3, "head": 2}.
    """

    def __init__(
        self, trace: Mapping[str, Any], *, title: str = "jumok", opening: Mapping[str, Any] | None = None
    ) -> None:
        self.trace = trace
        self.title = title
        self.opening = dict(opening or {})

    @cached_property
    def html(self) -> str:
        """The whole file."""
        style, script = _asset("page.css"), bundle(assets())
        policy = (
            f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data: blob:; "
            "connect-src 'none'; form-action 'none'; base-uri 'none'"
        )
        parts = {
            "csp": policy,
            "title": escape(_visible(self.title)),
            "style": style,
            "trace": embedded(self.trace),
            "open": embedded(self.opening),
            "script": script,
        }
        return _MARKER.sub(lambda marker: parts[marker[1]], _asset("page.html"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file atomically; an older one there is replaced. Returns where it is.

        Raises:
            ConfigError: `path` is a folder, or its folder is not there.
            ViewError: the system refuses.
        """
        path = require_writable(path)
        try:
            write_atomic(path, self.html)
        except OSError as error:
            raise ViewError(
                "cannot write {path}: {reason}; choose another place.", path=path, reason=error.strerror or error
            ) from None
        return path

    def show(self) -> Path:
        """Open the page in this person's browser, from a temporary file. Returns where it is.

        Raises:
            ViewError: there is no browser to open; the file is there all the same.
        """
        path = self.save(Path(tempfile.mkdtemp(prefix="jumok-")) / "page.html")
        open_in_browser(path)
        return path

    def _repr_html_(self) -> str:
        """For Jupyter, marimo and whatever else asks: the page in a frame of its own."""
        source = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return (
            f'<iframe title="{escape(_visible(self.title))}" sandbox="{SANDBOX}" allow="clipboard-write" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0" srcdoc="{source}"></iframe>'
        )

    def __repr__(self) -> str:
        size = len(self.html.encode()) / 1e6
        return f'Page({self.title!r}, {size:.1f} MB): .show() opens it in a browser, .save("page.html") keeps it'


def page_of(
    trace: Trace,
    probes: Probes | None = None,
    *,
    block: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    language: str | None = None,
) -> Page:
    """The page of a trace, with its probes.

    Args:
        block, layer, head: where it opens; None: at the layer with the most confident heads. language: "ko" or
            "en"; None: the browser's.
    """
    found = to_json(trace, None if probes is None else probes_json(probes, trace), block=block)
    found["model"]["name"] = _visible(trace.model.name)
    opening = {
        "block": block,
        # The viewer would choose the same one, but its queries and keys may have no room.
        "layer": opened_layer(found, block) if layer is None else layer,
        "head": head,
        "heads": None if head is None else [head],
        "language": language,
    }
    text = " ".join(trace.sequences[0].pieces.text.split())
    text = text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"
    return Page(
        found,
        title=f"{trace.model.name} · {text}",
        opening={name: value for name, value in opening.items() if value is not None},
    )


def page_of_text(
    model: Model,
    text: str,
    *,
    probe: bool,
    block: str | None,
    layer: int | None,
    head: int | None,
    language: str | None,
    **how: Any,
) -> Page:
    """Trace a model on a text and make the page of it; arguments as for `jumok.view` and, in `how`, `trace`."""
    seen = trace(model, text, open_layer=layer, **how)
    attention_of(seen, block, layer, head)  # it must exist
    probes = probe_trace(model, seen) if probe else None
    return page_of(seen, probes, block=block, layer=layer, head=head, language=language)


def require_writable(path: str | os.PathLike[str]) -> Path:
    """The path, which a file may be written to.

    Raises:
        ConfigError: it is a folder, or its folder is not there.
    """
    path = Path(path)
    if os.path.isdir(path):  # Path.is_dir raises for a name that is too long
        raise ConfigError(
            "cannot write {path}: it is a folder. Name a file in it: {file}.", path=path, file=path / "page.html"
        )
    if not os.path.isdir(path.parent):
        raise ConfigError(
            "cannot write {path}: there is no folder {parent}. Make it first.", path=path, parent=path.parent
        )
    return path


def open_in_browser(path: Path) -> None:
    """Open a file in this person's browser.

    Raises:
        ViewError: there is none.
    """
    if not webbrowser.open(path.resolve().as_uri()):
        raise ViewError("no browser could be opened here; open the file yourself: {path}", path=path)


def embedded(values: Mapping[str, Any]) -> str:
    """JSON that may stand inside a <script> element, whatever texts it holds."""
    plain = json.dumps(values, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)


# --- the viewer's modules as one script ---------------------------------------------------------------------------


@cache
def _asset(name: str) -> str:
    return resources.files("jumok.view").joinpath("assets", name).read_text(encoding="utf-8")


def assets() -> dict[str, str]:
    """The viewer's modules: names and sources."""
    folder = resources.files("jumok.view").joinpath("assets")
    return {file.name: _asset(file.name) for file in folder.iterdir() if file.name.endswith(".js")}


def bundle(modules: Mapping[str, str], entry: str = ENTRY) -> str:
    """Modules as one script: those that `entry` needs, each behind those that it imports from itself.

    They share one scope then, so a name may be declared once at the top level of all modules, and an import may not
    give it another. Understood are `import {a, b} from "./x.js";` and `export` before a declaration.

    Args:
        modules: names and sources. entry: the name of the module to begin with.

    Raises:
        ValueError: modules that import each other in a circle, from one that is not there, or what is not exported; a
            name that two declare; another form of import or export; or what would end the script element.
    """
    joined, homes = [], dict[str, str]()
    for name in _in_order(modules, entry):
        source = modules[name]
        for names, other in _IMPORT.findall(source):
            missing = [
                one for one in _names(names) if not re.search(rf"^export .*\b{one}\b", modules[other], re.MULTILINE)
            ]
            if missing:
                raise ValueError(f"{name} imports {missing[0]} from {other}, which does not export it")
        source = _EXPORT.sub("", _IMPORT.sub("", source))
        if left := _LEFT_OVER.search(source) or _ENDS_A_SCRIPT.search(source):
            raise ValueError(f"{name} has {left[0]!r}, which cannot be in a page's script")
        for declared in _DECLARED.findall(source):
            for one in _names(declared.strip("{}[]")):
                if one in homes:
                    raise ValueError(f"{one} is declared in {homes[one]} and in {name}; rename one of them")
                homes[one] = name
        joined.append(source.strip("\n"))
    return "\n" + "\n\n".join(joined) + "\n"


def _in_order(modules: Mapping[str, str], entry: str) -> list[str]:
    """The modules that `entry` needs, itself as the last one."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"modules import each other in a circle: {' -> '.join((*path, name))}")
        if name in order:
            return
        if name not in modules:
            raise ValueError(f"there is no module {name}" + (f", which {path[-1]} imports from" if path else ""))
        for _, other in _IMPORT.findall(modules[name]):
            visit(other, (*path, name))
        order.append(name)

    visit(entry, ())
    return order


def _names(listed: str) -> Iterator[str]:
    """The names of `a, b: c, d = 1`: a, c and d."""
    for item in listed.split(","):
        if name := item.partition("=")[0].rpartition(":")[2].strip():
            yield name


def _digest(content: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def _visible(text: str) -> str:
    """A text as one line, without what cannot be seen or turns the writing around."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
