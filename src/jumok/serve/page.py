"""The page of the server: one response with its style and its script, which asks this server alone.

It shows two other pages in frames: that of the viewer, and one that holds a model. A frame inherits the policy of the
page around it, so the policy names their scripts and styles, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from jumok.serve.settings import ServeSettings
from jumok.view.bundle import packaged, script
from jumok.view.page_code import MODEL, VIEWER, asset, policy_of

ENTRY = "serve/assets/app.js"
STYLES = tuple(
    f"{name}.css"
    for name in ("view/assets/base/base", "view/assets/page/page", "view/assets/chat/chat", "serve/assets/playground")
)


class _Page(NamedTuple):
    """The page as it is sent. policy: its Content-Security-Policy. tag: by which a browser knows this page."""

    content: bytes
    policy: str
    tag: str


@cache
def _page(shares: bool) -> _Page:
    style, code = "".join(map(packaged, STYLES)), script(ENTRY)
    html = packaged("serve/assets/page.html").replace("{{style}}", style, 1).replace("{{script}}", code, 1)
    framed = [VIEWER, *([MODEL] if shares else [])]
    policy = policy_of(
        [style, *("".join(map(asset, one.styles)) for one in framed)],
        [code, *(script(one.entry) for one in framed)],
        "connect-src 'self'; frame-src blob:; frame-ancestors 'none'",
        computing=" 'wasm-unsafe-eval'; worker-src blob:" if shares else "",
    )
    content = html.encode()
    return _Page(content, policy, f'"{sha256(content + policy.encode()).hexdigest()[:32]}"')


def page_endpoint(settings: ServeSettings) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of the page."""

    async def send(request: Request) -> Response:
        found = _page(settings.share)
        headers = {
            "Content-Security-Policy": found.policy,
            "ETag": found.tag,
            "Cache-Control": "no-cache",  # a browser asks each time, and gets 304 for a page that it has
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
        }
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type="text/html; charset=utf-8", headers=headers)

    return send
