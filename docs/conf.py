"""The configuration of the documentation site that `make docs` builds.

Sphinx runs twice on docs/ and writes into one folder: first the English pages, then, with `-t ko`, the Korean ones. A
page has the same path on the site as in docs/, so the two builds never write the same page. A new Markdown file in
docs/ or docs/ko/ needs no entry here: index.md of either language takes it in.
"""

import dataclasses
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import rst

from jumok.course.pages.chapter import chapters, map_page
from jumok.course.pages.html import PIECES
from jumok.course.pages.notebook import write_notebook
from jumok.course.pages.wheel import addresses, is_published, wheel_name
from jumok.view.bundle import script

DOCS = Path(__file__).parent
PIECE = re.compile(r"/try-(\w+)\.svg$")
MOVED = {  # chapters whose number has changed: the old page -> the slug
    "01-average-the-past": "average-the-past", "02-dot-product": "dot-product",
    "03-queries-keys-values": "queries-keys-values", "04-causal-mask": "causal-mask", "05-many-heads": "many-heads",
    "06-cross-attention": "cross-attention", "09-fast-attention": "fast-attention", "10-three-models": "gpt",
    "11-real-words": "real-words", "12-bigram-and-batches": "bigram-and-batches", "13-training": "training",
    "14-writing": "writing", "15-tokenizers": "tokenizers", "16-bert": "bert",
    "17-from-recurrent-networks": "from-recurrent-networks", "18-the-2017-paper": "the-2017-paper", "ladder": "ladder",
}  # fmt: skip
FURO_IN_KOREAN = {
    "On this page": "이 페이지",
    "Back to top": "맨 위로",
    "Next": "다음",
    "Previous": "이전",
    "Home": "처음",
}

project = "jumok"
language = "ko" if tags.has("ko") else "en"  # noqa: F821  (Sphinx defines `tags`)
root_doc = {"en": "index", "ko": "ko/index"}[language]
# learn/README.md is the index of the chapters on GitHub; index.md includes its table.
exclude_patterns = ["learn/README.md", *{"en": ["ko", "learn/ko"], "ko": ["*.md", "api", "learn/en"]}[language]]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # links such as formats.md#json-output, as on GitHub
smartquotes_action = "D"  # dashes only: quotes and the dots of a shape (..., T, S) stay as they are
default_role = "code"  # docstrings write `GPT`, as Markdown does
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_custom_sections = [("Fields", "params_style")]
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True

html_theme = "furo"
html_theme_options = {"top_of_page_buttons": []}
html_title = "jumok 주목"
html_favicon = "_static/jumok.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
templates_path = ["_templates"]
pygments_dark_style = "a11y-dark"
copybutton_selector = ".highlight-python pre, .highlight-sh pre"
html_copy_source = html_use_index = html_domain_indices = html_show_sphinx = html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Connect the functions below."""
    app.connect("builder-inited", without_search)
    app.connect("builder-inited", write_pieces)
    app.connect("doctree-read", resolve_links, priority=100)  # before Sphinx collects the downloads
    app.connect("doctree-read", place_pieces)
    app.connect("env-updated", name_pictures)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", describe_settings)
    app.connect("html-page-context", complete_page)
    app.connect("build-finished", write_notebooks)
    app.connect("build-finished", write_redirects)


def without_search(app: Sphinx) -> None:
    """Leave out the search of Sphinx: Pagefind replaces it."""
    app.builder.search = False


def write_pieces(app: Sphinx) -> None:
    """Write the script and the style of the interactive pieces in the chapters."""
    folder = Path(app.outdir, "_static")
    folder.mkdir(parents=True, exist_ok=True)
    assets = resources.files("jumok.view").joinpath("assets", "chapters")
    styles = [assets.joinpath(name).read_text(encoding="utf-8") for name in ("drawing.css", "pieces.css")]
    (folder / "pieces.js").write_text(script(PIECES), encoding="utf-8")
    (folder / "pieces.css").write_text("\n".join(styles), encoding="utf-8")


def place_pieces(app: Sphinx, doctree: nodes.document) -> None:
    """Give a picture try-NAME.svg an element around it, in which the script of the page shows the piece NAME."""
    for picture in list(doctree.findall(nodes.image)):
        if name := PIECE.search(picture["uri"]):
            begin = f'<div class="jumok-piece" data-piece="{name[1]}">'
            paragraph = picture.parent
            paragraph.replace_self(
                [nodes.raw("", begin, format="html"), paragraph.deepcopy(), nodes.raw("", "</div>", format="html")]
            )


def resolve_links(app: Sphinx, doctree: nodes.document) -> None:
    """Resolve links to pages in the other language, and offer Markdown files outside docs/ as downloads."""
    page = app.env.docname
    for link in list(doctree.findall(addnodes.pending_xref)):
        target, text = link["reftarget"], link.children[0].deepcopy()
        if link.get("refdomain") != "doc" or target in app.env.found_docs:
            continue
        file = Path(app.srcdir, f"{target}.md").resolve()
        if not file.is_relative_to(app.srcdir):
            source = "/" + os.path.relpath(file, app.srcdir)
            link.replace_self(addnodes.download_reference("", "", text, reftarget=source, refdoc=page))
        else:
            uri = app.builder.get_relative_uri(page, root_doc if target == "learn/README" else target)
            anchor = f"#{link['reftargetid']}" if link.get("reftargetid") else ""
            link.replace_self(nodes.reference("", "", text, refuri=uri + anchor))


def name_pictures(app: Sphinx, env: BuildEnvironment) -> None:
    """Give the pictures of the Korean pages names of their own.

    Sphinx copies all pictures to one folder and knows only those of its own build, while a chapter has pictures of the
    same name in both languages.
    """
    if language == "ko":
        for picture, (pages, name) in list(env.images.items()):
            env.images[picture] = (pages, f"ko-{name.removeprefix('ko-')}")


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples: Python describes them as "Alias for field number 0"."""
    return True if str(getattr(obj, "__doc__", "")).startswith("Alias for field number") else None


def describe_settings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """List the fields of a configuration with the text that `jumok train --help-all` shows."""
    if what == "class" and dataclasses.is_dataclass(obj):
        helps = {field.name: field.metadata.get("help") for field in dataclasses.fields(obj)}
        lines += ["", *(f":param {field}: {rst.escape(text)}" for field, text in helps.items() if text)]


def complete_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the templates the translation of a page, the notebook of a chapter and the words of Furo in Korean.

    The address of Colab is that of [project.urls] in pyproject.toml, as the installed package has it.
    """
    context["translation"] = app.builder.get_relative_uri(page, translation(page))
    context["notebook"] = f"{Path(page).name}.ipynb" if page.startswith("learn/") else None
    context["wheel"] = None if is_published() else wheel_name()
    context["colab"] = f"{addresses()['Colab']}/{page}.ipynb" if "Colab" in addresses() else None
    if language == "ko":
        context["gettext"] = lambda text: FURO_IN_KOREAN.get(text, text)
    if 'class="jumok-piece"' in context.get("body", ""):
        app.add_js_file("pieces.js", loading_method="defer")
        app.add_css_file("pieces.css")
    # Pagefind links to headings that have an id. Sphinx gives the id to the section around the heading.
    body = re.sub(r'<span id="([^"]+)"></span><(h[2-6])>', r'<\2 id="\1">', context.get("body", ""))
    context["body"] = re.sub(r'<section id="([^"]+)">\n<(h[2-6])>', r'<section>\n<\2 id="\1">', body)


def translation(page: str) -> str:
    """The path of a page in the other language, or of the start page if there is none."""
    if language == "en":
        other, home = page.replace("learn/en/", "learn/ko/") if page.startswith("learn/") else f"ko/{page}", "ko/index"
    else:
        other, home = page.replace("learn/ko/", "learn/en/").removeprefix("ko/"), "index"
    return other if (DOCS / f"{other}.md").is_file() else home


def write_redirects(app: Sphinx, error: Exception | None) -> None:
    """Lead readers of a page under its old number to the page of the chapter."""
    if error is None:
        pages = {chapter.slug: f"{chapter.path.stem}.html" for chapter in chapters(language)}
        for old, slug in MOVED.items():
            if (Path(app.outdir) / f"learn/{language}").is_dir():
                (Path(app.outdir) / f"learn/{language}/{old}.html").write_text(
                    f'<!doctype html><html lang="{language}"><head><meta charset="utf-8"><title>{pages[slug]}</title>'
                    f'<meta http-equiv="refresh" content="0; url={pages[slug]}">'
                    f'<link rel="canonical" href="{pages[slug]}"></head>'
                    f'<body data-pagefind-ignore="all"><a href="{pages[slug]}">{pages[slug]}</a></body></html>\n',
                    encoding="utf-8",
                )


def write_notebooks(app: Sphinx, error: Exception | None) -> None:
    """Write the notebook of each chapter next to its page, with the wheel that it installs."""
    if error is None:
        for chapter in [*chapters(language), map_page(language)]:
            page = f"learn/{language}/{chapter.path.stem}"
            if page in app.env.found_docs:
                write_notebook(chapter, Path(app.outdir, f"{page}.ipynb"), force=True)
