"""The configuration of the documentation site, which `make docs` builds.

Sphinx runs twice over docs/ and writes into one folder: once for the English pages and once, with `-t ko`, for the Korean
ones. Every page of the site has the path of its Markdown file, so the two builds never write the same page.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import rst

from jumok import __version__
from jumok.lessons.chapters import chapters, ladder_page
from jumok.lessons.notebook import write_notebook

DOCS = Path(__file__).parent

language = "ko" if tags.has("ko") else "en"  # type: ignore[name-defined]  # noqa: F821  (Sphinx defines `tags`)
root_doc = {"en": "index", "ko": "ko/index"}[language]
# learn/README.md is the index of the chapters on GitHub; index.md includes it.
exclude_patterns = ["learn/README.md", *{"en": ["ko", "learn/ko"], "ko": ["*.md", "api", "learn/en"]}[language]]

project = "jumok"
release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # links to #a-heading, as on GitHub

default_role = "code"  # docstrings write `GPT`, as Markdown does
napoleon_custom_sections = [("Fields", "params_style")]
python_maximum_signature_line_length = 80
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "jumok 주목"
pygments_dark_style = "a11y-dark"
html_favicon = "_static/jumok.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
html_copy_source = False
html_use_index = False
html_domain_indices = False
html_theme_options = {"top_of_page_buttons": []}
html_sidebars = {"**": ["sidebar/brand.html", "sidebar/language.html", "sidebar/search.html", "sidebar/scroll-start.html",
                        "sidebar/navigation.html", "sidebar/scroll-end.html"]}
html_show_sphinx = False
copybutton_selector = ".highlight-python pre, .highlight-sh pre"

WORDS = {"On this page": "이 페이지", "Back to top": "맨 위로", "Next": "다음", "Previous": "이전", "Home": "처음"}  # of Furo


def translation(page: str) -> str:
    """The path of the same page in the other language, or of its first page if there is none."""
    if language == "en":
        other, home = page.replace("learn/en/", "learn/ko/") if page.startswith("learn/") else f"ko/{page}", "ko/index"
    else:
        other, home = page.replace("learn/ko/", "learn/en/").removeprefix("ko/"), "index"
    return other if (DOCS / f"{other}.md").is_file() else home


def page_context(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """What the templates show beside the text of a page: the other language, and the notebook of a chapter."""
    context["translation"] = app.builder.get_relative_uri(page, translation(page))
    context["gettext"] = lambda word: WORDS.get(word, word) if language == "ko" else word
    # Pagefind leads to headings that have an id; Sphinx gives the id to the section around them.
    body = re.sub(r'<span id="([^"]+)"></span><(h\d)>', r'<\2 id="\1">', context.get("body", ""))
    context["body"] = re.sub(r'<section id="([^"]+)">\n<(h\d)>', r'<section>\n<\2 id="\1">', body)
    context["notebook"] = f"{Path(page).name}.ipynb" if page.startswith("learn/") else None


def resolve_links(app: Sphinx, doctree: nodes.document) -> None:
    """Make links to pages of the other build plain links, and offer files outside docs/ as downloads."""
    page = app.env.docname
    for link in list(doctree.findall(addnodes.pending_xref)):
        target = link["reftarget"]
        if link.get("refdomain") != "doc" or target in app.env.found_docs:
            continue
        text = link.children[0].deepcopy()
        if target.startswith(".."):
            found = addnodes.download_reference("", "", text, reftarget=f"/{target}.md", refdoc=page)
        else:
            target = root_doc if target == "learn/README" else target
            anchor = f"#{link['reftargetid']}" if link.get("reftargetid") else ""
            found = nodes.reference("", "", text, refuri=app.builder.get_relative_uri(page, target) + anchor)
        link.replace_self(found)


def describe_settings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """List the fields of a configuration, with the sentences that `jumok train --help` shows."""
    if what == "class" and dataclasses.is_dataclass(obj):
        helps = {field.name: field.metadata.get("help") for field in dataclasses.fields(obj)}
        lines += ["", *(f":param {name}: {rst.escape(help)}" for name, help in helps.items() if help)]


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples: all that Python says of each is its number."""
    return True if what == "class" and str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Put the notebook of each chapter next to its page."""
    if error is None:
        for chapter in [*chapters(language), ladder_page(language)]:
            path = Path(app.outdir, "learn", language, f"{chapter.path.stem}.ipynb")
            write_notebook(chapter, path, force=True)


def without_search(app: Sphinx) -> None:
    """Leave out the search of Sphinx, which does not find a noun with its particle; Pagefind does."""
    app.builder.search = False  # type: ignore[attr-defined]


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", without_search)
    app.connect("doctree-read", resolve_links, priority=100)  # before Sphinx collects the downloads
    app.connect("autodoc-process-docstring", describe_settings)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("html-page-context", page_context)
    app.connect("build-finished", write_notebooks)
