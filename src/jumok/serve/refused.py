"""`Refused`: a request that is refused with a status of its own, and a message in the language of its client."""

from __future__ import annotations

from typing import Any

from jumok.errors import ServeError


class Refused(ServeError):
    """A request is refused.

    Args:
        template, facts: as for JumokError. status: of HTTP. code: a name that programs compare.
    """

    def __init__(self, template: str, *, status: int = 400, code: str | None = None, **facts: Any) -> None:
        super().__init__(template, **facts)
        self.status, self.code = status, code
