"""The page is one file in which nothing runs but the viewer, whatever the texts are, and its modules fit together."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import webbrowser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from html_pages import Elements
from jumok.errors import ConfigError, RunError, ViewError
from jumok.view.page import Page, embedded

HOSTILE = "</script><script>alert(1)</script> <img src=x onerror=alert(2)> <!-- \u202e\0\u2028 & \" ' {{script}}"


def page(text: str = "안녕", **how: Any) -> Page:
    return Page({"format": "jumok-trace", "version": 1, "text": text}, **how)


# --- one file, and a policy ---


def test_the_policy_names_the_script_and_the_style_and_forbids_the_rest() -> None:
    elements = Elements(page().html)
    rules = elements.rules
    for name, content in (
        ("script-src", elements.only("script", type="module")),
        ("style-src", elements.only("style")),
    ):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["connect-src"] == rules["form-action"] == rules["base-uri"] == "'none'"
    assert rules["img-src"] == "data: blob:"


def test_the_policy_stands_before_whatever_it_rules() -> None:
    tags = [(tag, attributes.get("http-equiv")) for tag, attributes, _ in Elements(page().html).found]
    policy = tags.index(("meta", "Content-Security-Policy"))
    assert policy < min(tags.index(("style", None)), tags.index(("script", None)))


def test_nothing_is_fetched_and_nothing_is_inline() -> None:
    """No link, image or import of a page may need the network, and the policy forbids handlers and style attributes."""
    elements = Elements(page().html).found
    for tag, attributes, _ in elements:
        assert not {"src", "srcset", "style", "action"} & set(attributes), (tag, attributes)
        assert (attributes.get("href") or "#").startswith("#"), (tag, attributes)  # within the page
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
    assert not [tag for tag, _, _ in elements if tag in {"link", "iframe", "object", "embed", "base", "form"}]


def test_a_hostile_text_stays_data() -> None:
    made = page(HOSTILE, title=HOSTILE)
    elements = Elements(made.html)
    assert json.loads(elements.only("script", id="jumok-trace"))["text"] == HOSTILE
    assert [tag for tag, _, _ in elements.found].count("script") == 3  # two of data, and the viewer
    assert "img" not in [tag for tag, _, _ in elements.found]
    assert elements.only("title").startswith("</script><script>alert(1)")
    assert "\u202e" not in made.html
    assert "\0" not in made.html


@given(st.text(alphabet=st.characters(), max_size=40))  # half surrogates are among them
def test_any_text_survives_the_page(text: str) -> None:
    written = embedded({"text": text})
    assert json.loads(written) == {"text": text}
    assert not re.search("[<\u2028\u2029\0\ud800-\udfff]", written)
    written.encode()


def test_a_number_that_json_has_not_is_refused_rather_than_written() -> None:
    """JSON.parse in the browser refuses NaN, and the page would stay empty."""
    with pytest.raises(ValueError, match="JSON"):
        embedded({"nats": float("nan")})


def test_how_a_page_opens_is_in_it() -> None:
    opening = {"view": "neurons", "layer": 3, "head": 2}
    assert json.loads(Elements(page(opening=opening).html).only("script", id="jumok-open")) == opening


# --- saving and showing ---


def test_a_page_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it is a folder. Name a file in it"):
        page().save(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no folder .*gone. Make it first"):
        page().save(tmp_path / "gone" / "page.html")
    with pytest.raises(RunError, match=r"cannot write .*MB free on that disk"):
        page().save(tmp_path / ("가" * 200 + ".html"))  # longer than a file's name may be


def test_show_opens_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    path = page().show()
    assert opened == [path.as_uri()]
    assert path.read_text(encoding="utf-8") == page().html
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    with pytest.raises(ViewError, match=r"no browser could be opened here; open the file yourself: .*page\.html"):
        page().show()


def test_a_notebook_gets_a_frame_with_the_page_in_it() -> None:
    made = page(HOSTILE, title='a "title"')
    (tag, attributes, _), _ = Elements(made._repr_html_()).found
    assert tag == "iframe"
    assert attributes["srcdoc"] == made.html
    assert attributes["title"] == 'a "title"'
    assert "allow-scripts" in (attributes["sandbox"] or "")
    assert "allow-same-origin" not in (attributes["sandbox"] or "")  # it cannot reach the notebook around it


def test_the_plain_form_says_what_to_do() -> None:
    shown = repr(page(title="소설"))
    assert shown.startswith("Page('소설', 0.")
    assert ".show()" in shown
    assert ".save(" in shown
