"""The scripts and styles of the pages that show a trace or hold a model, and the policy that allows no others."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from jumok.view.bundle import packaged


class PageCode(NamedTuple):
    """The module with which the script of a page begins, by its path in the package, and the styles in the assets."""

    entry: str
    styles: tuple[str, ...]


VIEWER = PageCode("view/assets/viewer/app.js", ("base/base.css", "viewer/viewer.css"))
MODEL = PageCode("view/assets/page/app.js", (*VIEWER.styles, "page/page.css", "page/explain.css", "chat/chat.css"))


def policy_of(styles: Sequence[str], scripts: Sequence[str], more: str, *, computing: str = "") -> str:
    """Return the content-security policy of a page that has only these styles and scripts.

    Args:
        more: what is said besides, such as with which servers it may talk. computing: what the scripts may do.
    """
    return (
        f"default-src 'none'; script-src {_digests(scripts)}{computing}; style-src {_digests(styles)}; "
        f"img-src data: blob:; {more}; form-action 'none'; base-uri 'none'"
    )


def asset(name: str) -> str:
    """Return a file of the assets."""
    return packaged(f"view/assets/{name}")


def _digests(contents: Sequence[str]) -> str:
    """Return the sources by which a policy allows styles or scripts of these contents."""
    return " ".join(f"'sha256-{b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in contents)
