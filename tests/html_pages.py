"""A page as the parser of a browser sees it."""

from __future__ import annotations

from html.parser import HTMLParser


class Elements(HTMLParser):
    """The elements of a page, as a browser's parser finds them: (tag, attributes, text)."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/" + tag, {}, ""))  # what follows belongs to no element that was closed

    def only(self, tag: str, **attributes: str) -> str:
        """The text of the one element of this kind."""
        texts = [text for name, has, text in self.found if name == tag and attributes.items() <= has.items()]
        assert len(texts) == 1, f"{len(texts)} elements {tag} {attributes}"
        return texts[0]

    @property
    def rules(self) -> dict[str, str]:
        """The content-security policy, by the names of its rules."""
        metas = [attributes for tag, attributes, _ in self.found if tag == "meta"]
        policy = next(meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy") or ""
        return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))  # type: ignore[misc]
