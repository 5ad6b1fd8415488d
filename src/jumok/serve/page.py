"""The page of the playground: one response with its style and its script, which asks this server alone."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import NamedTuple

from fastapi import Request
from fastapi.responses import Response

from jumok.view.bundle import packaged, script
from jumok.view.page import policy_of

ENTRY = "serve/assets/app.js"
STYLES = (
    "view/assets/base/base.css",
    "view/assets/viewer/viewer.css",
    "view/assets/page/page.css",
    "view/assets/page/explain.css",
    "serve/assets/playground.css",
)


class _Page(NamedTuple):
    """What is sent. policy: allows this script and this style by their SHA-256, and requests to this server."""

    content: bytes
    policy: str
    tag: str


@cache
def _page() -> _Page:
    style, code = "".join(map(packaged, STYLES)), script(ENTRY)
    html = packaged("serve/assets/page.html").replace("{{style}}", style, 1).replace("{{script}}", code, 1)
    policy = policy_of(style, code, connect="'self'") + "; frame-ancestors 'none'"
    content = html.encode()
    return _Page(content, policy, f'"{sha256(content).hexdigest()[:32]}"')


async def playground(request: Request) -> Response:
    """The page of the playground."""
    page = _page()
    headers = {
        "Content-Security-Policy": page.policy,
        "ETag": page.tag,
        "Cache-Control": "no-cache",  # a browser asks each time, and gets 304 for a page that it has
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
    }
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.content, media_type="text/html; charset=utf-8", headers=headers)
