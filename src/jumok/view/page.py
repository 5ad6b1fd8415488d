"""The page: one HTML file that holds the viewer and everything it shows.

The viewer's modules are joined into one script. A content-security policy in the page allows this script and the style
only, by their SHA-256, and forbids every connection. Texts are embedded as JSON without any "<", and the viewer inserts
them as text, so that a text cannot run as code.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import webbrowser
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from jumok.errors import ViewError
from jumok.files import require_writable, write_atomic, writing
from jumok.view.bundle import script
from jumok.view.page_code import VIEWER, asset, policy_of
from jumok.view.probes import Probes, probes_json
from jumok.view.schema import opened_layer, to_json
from jumok.view.token_text import shortened
from jumok.view.trace import Trace

LONGEST_TITLE = 40  # characters of the text
HEIGHT = 760  # pixels of a page inside a notebook
# What a page in a notebook may do: run its script and save pictures. It has no access to the notebook around it.
SANDBOX = "allow-scripts allow-downloads allow-modals allow-popups"

_MARKER = re.compile(r"\{\{(\w+)\}\}")
# "<" could end the element that holds the JSON. The others are legal there, but would fool whoever reads the source:
# controls, invisible signs, signs that turn the direction of writing; and half surrogates are no UTF-8.
_UNSAFE = re.compile("[<\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]")


class HTMLFile(ABC):
    """A page that is one file. A notebook shows it; `show` opens it in a browser, and `save` keeps it.

    Args:
        title: of its window.
    """

    def __init__(self, title: str) -> None:
        self.title = title

    @property
    @abstractmethod
    def html(self) -> str:
        """The whole file."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file atomically; an older one there is replaced. Returns where it is.

        Raises:
            ConfigError: `path` is a folder, or its folder is not there. RunError: the system refuses.
        """
        path = require_writable(path)
        with writing(path):
            write_atomic(path, self.html)
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
            f'<iframe title="{escape(one_line(self.title))}" sandbox="{SANDBOX}" allow="clipboard-write" '
            f'style="width: 100%; height: {HEIGHT}px; border: 0" srcdoc="{source}"></iframe>'
        )

    def __repr__(self) -> str:
        size = len(self.html.encode()) / 1e6
        name = type(self).__name__
        return f'{name}({self.title!r}, {size:.1f} MB): .show() opens it in a browser, .save("page.html") keeps it'


class Page(HTMLFile):
    """A page of the viewer.

    Args:
        trace: what it shows, the JSON object that docs/viewer.md describes.
        title: of its window.
        opening: how it opens, any part of the viewer's state: {"view": "neurons", "layer": 3, "head": 2}.
    """

    def __init__(
        self, trace: Mapping[str, Any], *, title: str = "jumok", opening: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(title)
        self.trace = trace
        self.opening = dict(opening or {})

    @cached_property
    def html(self) -> str:
        """The whole file."""
        code = script(VIEWER.entry)
        parts = {"trace": embedded(self.trace), "open": embedded(self.opening), "script": code}
        return filled("viewer/page.html", self.title, VIEWER.styles, code, parts)


def page_of(
    trace: Trace,
    probes: Probes | None = None,
    *,
    block: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    language: str | None = None,
    exact: bool = False,
) -> Page:
    """Return the page of a trace, with its probes.

    Args:
        block, layer, head: where it opens; None: at the layer with the most confident heads. language: "ko" or
            "en"; None: the browser's. exact: see `to_json`.
    """
    known = None if probes is None else probes_json(probes, trace)
    found = to_json(trace, known, block=block, layer=layer, exact=exact)
    found["model"]["name"] = one_line(trace.model["name"])
    opening = {
        "block": block,
        # The viewer would choose the same one, but its queries and keys may have no room.
        "layer": opened_layer(found, block) if layer is None else layer,
        "head": head,
        "heads": None if head is None else [head],
        "language": language,
    }
    text = shortened(" ".join(trace.sequences[0]["text"].split()), LONGEST_TITLE)
    return Page(
        found,
        title=f"{trace.model['name']} · {text}",
        opening={name: value for name, value in opening.items() if value is not None},
    )


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


def filled(
    template: str, title: str, styles: Sequence[str], code: str, parts: Mapping[str, str], *, worker: bool = False
) -> str:
    """Return an HTML file of the assets with its parts in place of the markers, and a policy that allows only these.

    Args:
        template: name of the file. title: of the window. styles: names of style sheets. code: the script.
        parts: what stands at the other markers, inserted as it is. worker: whether the script may start a worker from
            a text, and WebAssembly.
    """
    style = "".join(map(asset, styles))
    computing = " 'wasm-unsafe-eval'; worker-src blob:" if worker else ""
    policy = policy_of([style], [code], "connect-src 'none'", computing=computing)
    known = {"csp": policy, "title": escape(one_line(title)), "style": style, **parts}
    return _MARKER.sub(lambda marker: known[marker[1]], asset(template))


def one_line(text: str) -> str:
    """Return a text as one line, without what cannot be seen or turns the writing around."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())
