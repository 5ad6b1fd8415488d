"""The code of the chapters: definitions that stand on a page as in their module, and programs made of them.

A fence ```` ```python source=MODULE.NAME ```` contains the definition of NAME in `course/chapters/MODULE.py`, without
its docstrings, which the text around it replaces. `with_sources` writes it there, and a test compares the two, so a
page shows the code that is tested. Importing this module does not import torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from jumok.course.pages.chapter import TEXTS, Chapter, Code
from jumok.course.words import Language, words_in
from jumok.errors import LessonError

CHAPTERS = Path(__file__).parents[1] / "chapters"
_PACKAGE = "jumok.course.chapters"
_FOR_TOOLS = re.compile(r"  # (?:type: ignore|noqa)\b.*$")  # comments that readers need not see
_SOURCE = re.compile(r"^```python source=(?P<name>[\w.]+)\n.*?^```$", re.MULTILINE | re.DOTALL)


def definition(name: str) -> str:
    """Return the source of a function, a class or a constant, without docstrings. name: MODULE.NAME.

    Raises:
        LessonError: there is none of this name.
    """
    return _without_docstrings(*_found(name))


def with_sources(markdown: str) -> str:
    """Return a page in which each `source=` fence contains the definition that it names."""
    return _SOURCE.sub(lambda m: f"```python source={m['name']}\n{definition(m['name'])}```", markdown)


def program(chapters: Sequence[Chapter], last: Chapter, *, needed: bool = False) -> str:
    """Return what the chapters up to `last` define, as one program: imports, definitions, and the program of `last`.

    needed: only the definitions that this program uses, directly or not.

    Raises:
        LessonError: `last` has no block of this kind.
    """
    end = [block.source for block in _code(last) if block.kind == "program"]
    if not end:
        raise LessonError("chapter {number} builds no program.", number=last.number)
    first: dict[str, Chapter] = {}  # definition -> the chapter that shows it
    for chapter in chapters:
        if chapter.number is not None and last.number is not None and chapter.number <= last.number:
            for block in _code(chapter):
                if block.name:
                    first.setdefault(block.name, chapter)
    tail = "\n".join(end)
    nodes = ast.parse(tail).body
    inside = {line for node in nodes if _is_import(node) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    rest = "\n".join(line for number, line in enumerate(tail.splitlines(), 1) if number not in inside).strip("\n")
    own = [each for node in nodes for each in _single_imports(node) if _PACKAGE not in each]
    if needed:
        used, needs = _names(tail), dict[str, None]()
        for name in first:
            if name.partition(".")[2] in used:
                _with_needs(name, needs)
        first = {name: chapter for name, chapter in first.items() if name in needs}
    code: list[str] = []
    before: Chapter | None = None
    for name, chapter in first.items():
        heading = "" if chapter is before else f"# --- {chapter.number}. {chapter.title} ---\n\n\n"
        code.append(heading + definition(name))
        before = chapter
    return _joined(list(first), code, rest, own)


def whole_program(language: Language = "en") -> str:
    """Return the program of `chapters/program.py`: its `main` and what this needs of all chapters, with docstrings.

    language: of its first docstring and of what it prints. The other docstrings are English.
    """
    names = list(_with_needs("program.main", {}))
    text, tree = _module("program")
    [first, *_] = tree.body
    head = "\n".join(text.splitlines()[: first.end_lineno])
    code = ["\n".join(text.splitlines()[_begin(node) - 1 : node.end_lineno]) for text, node in map(_found, names)]
    whole = head + "\n\n" + _joined(names, code, 'if __name__ == "__main__":\n    main()')
    for words in words_in(TEXTS, "program").values():
        whole = whole.replace(words.en, words.said(language))
    return whole


def _joined(names: Sequence[str], code: Sequence[str], tail: str, own: Sequence[str] = ()) -> str:
    """Return imports, definitions and a tail. own: imports of the tail."""
    parts = [*(each.rstrip() for each in code), tail]
    used = _names("\n".join(parts))
    imports = {each for module in {name.partition(".")[0] for name in names} for each in _imports_of(module, used)}
    lines = sorted({*imports, *own}, key=_order)
    return "\n".join(lines) + "\n\n\n" + "\n\n\n".join(parts) + "\n"


def _with_needs(name: str, seen: dict[str, None]) -> dict[str, None]:
    """Return the definitions that a definition uses, directly or not, and last itself."""
    module = name.partition(".")[0]
    tree = _module(module)[1]
    homes = {_name(node): f"{module}.{_name(node)}" for node in tree.body if _name(node)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            homes |= {each.name: f"{(node.module or '').rpartition('.')[2]}.{each.name}" for each in node.names}
    used = [each for each in ast.walk(_found(name)[1]) if isinstance(each, ast.Name)]
    for each in dict.fromkeys(one.id for one in sorted(used, key=lambda one: (one.lineno, one.col_offset))):
        if each in homes and homes[each] != name and homes[each] not in seen:
            _with_needs(homes[each], seen)
    seen[name] = None
    return seen


def _code(chapter: Chapter) -> Iterator[Code]:
    return (part for part in chapter.parts() if isinstance(part, Code))


def _found(name: str) -> tuple[str, ast.stmt]:
    """Return the text of a module and the statement in it that defines a name, MODULE.NAME."""
    module, _, wanted = name.partition(".")
    text, tree = _module(module)
    for node in tree.body:
        if _name(node) == wanted:
            return text, node
    raise LessonError("there is no {name} in the code of the chapters.", name=name)


@cache
def _module(module: str) -> tuple[str, ast.Module]:
    path = CHAPTERS / f"{module}.py"
    if not path.is_file():
        raise LessonError("there is no {name} in the code of the chapters.", name=module)
    text = path.read_text(encoding="utf-8")
    return text, ast.parse(text)


def _name(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _without_docstrings(text: str, node: ast.stmt) -> str:
    lines = text.splitlines()
    dropped: set[int] = set()
    for each in ast.walk(node):
        if (
            isinstance(each, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(each) is not None
            and len(each.body) > 1
        ):
            first, following = each.body[0], each.body[1]
            dropped.update(range(first.lineno, _begin(following)))
    kept = [line for number, line in enumerate(lines, 1) if number not in dropped]
    before = sum(number < _begin(node) for number in dropped)
    begin = _begin(node) - 1 - before
    assert node.end_lineno is not None
    count = node.end_lineno - _begin(node) + 1 - sum(_begin(node) <= number <= node.end_lineno for number in dropped)
    return "\n".join(_FOR_TOOLS.sub("", line) for line in kept[begin : begin + count]) + "\n"


def _begin(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _names(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def _imports_of(module: str, used: set[str]) -> Iterator[str]:
    """Yield the imports of a module that are used, one name each, without those of other chapters."""
    for node in _module(module)[1].body:
        for line in _single_imports(node):
            if "__future__" not in line and _PACKAGE not in line and _bound(line) in used:
                yield line


def _single_imports(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (ast.unparse(ast.Import([each])) for each in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (ast.unparse(ast.ImportFrom(node.module, [each], 0)) for each in node.names)


def _bound(line: str) -> str:
    """Return the name that an import binds: `import a.b` binds a."""
    name = line.split()[-1]
    return name.partition(".")[0] if line.startswith("import") and " as " not in line else name


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _order(line: str) -> tuple[bool, bool, str]:
    name = line.split()[1]
    return name.startswith(("torch", "jumok")), name.startswith("jumok"), line
