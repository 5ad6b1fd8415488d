"""The rules of the house: who may import whom, what the world may name, and what no file may hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import jumok

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "jumok"

TOP = {"__init__", "__main__"}  # modules above all rooms
EXERCISES = SOURCE / "course" / "practice" / "exercises"  # files for readers, not modules

PUBLIC = {
    "BERT", "BERTConfig", "EncoderDecoder", "EncoderDecoderConfig", "GPT", "GPTConfig", "JumokError", "TrainConfig",
    "Trainer", "evaluate", "generate", "language", "load", "predict", "record", "save", "stream", "train",
    "train_tokenizer", "view",
}  # fmt: skip


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent != EXERCISES)


def imports(path: Path) -> Iterator[tuple[str, str, int]]:
    """Each module that a file imports, anywhere in it, the name that it takes from it or "", and the line."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively"
            yield from ((node.module or "", alias.name, node.lineno) for alias in node.names)


def imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    """Each room that a module imports from, and the line."""
    for module, name, line in imports(path):
        parts = (f"{module}.{name}" if module == "jumok" and name else module).split(".")
        if parts[0] == "jumok":
            yield parts[1] if len(parts) > 1 else "__init__", line


def places() -> dict[str, tuple[int, int]]:
    """Each room's level and its place on the level, from the table in docs/design.md."""
    found: dict[str, tuple[int, int]] = {}
    level = -1
    for line in (ROOT / "docs" / "design.md").read_text(encoding="utf-8").splitlines():
        if row := re.match(r"\| (\d+|  ?) \| ((?:`[a-z_]+(?:/|\.py)` ?)+)\|", line):
            level = int(row[1]) if row[1].strip() else level
            for room in re.findall(r"`([a-z_]+)(?:/|\.py)`", row[2]):
                found[room] = (level, len(found))
    return found


PLACES = places()


def test_every_room_has_a_level() -> None:
    rooms = {room_of(path) for path in modules()} - TOP
    assert rooms == set(PLACES), "a new room needs a line in the table of docs/design.md, an old one leaves it"


def test_imports_go_down() -> None:
    """Also those inside functions and under TYPE_CHECKING: a type is knowledge too.

    `jumok/__init__.py` and `jumok/__main__.py` are above all rooms: no room imports from them but the course, which
    uses jumok as its readers do.
    """
    upward = [
        f"{path.relative_to(SOURCE)}:{line}: {room} {PLACES[room]} imports {other} {PLACES.get(other)}"
        for path in modules()
        if (room := room_of(path)) not in TOP
        for other, line in imported_rooms(path)
        if other != room
        and not (room == "course" and other in {*PUBLIC, "__init__"})
        and (other not in PLACES or PLACES[other] > PLACES[room])
    ]
    assert upward == []


# --- circles ---


def imported_files(path: Path, root: Path = ROOT / "src") -> set[str]:
    """Return the names, relative to the root, of the files that a file imports anywhere, without jumok/__init__.py."""
    found = set()
    for module, name, _ in imports(path):
        place = module.replace(".", "/")
        files = (f"{place}/{name}.py", f"{place}/{name}/__init__.py", f"{place}.py", f"{place}/__init__.py")
        found |= set([file for file in files if is_file(root / file)][:1])
    return found - {"jumok/__init__.py"}


@cache
def is_file(path: Path) -> bool:
    return path.is_file()


def circles(root: Path) -> list[set[str]]:
    """Return the groups of files below the root that reach each other by imports."""
    files = [path for path in root.rglob("*.py") if path.parent != EXERCISES]
    edges = {path.relative_to(root).as_posix(): imported_files(path, root) for path in files}
    reached: dict[str, set[str]] = {}
    for name in edges:
        seen, waiting = set(), [name]
        while waiting:
            new = edges.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[name] = seen
    groups = {frozenset(other for other in seen if name in reached.get(other, ())) for name, seen in reached.items()}
    return [set(group) for group in groups if group]


@pytest.mark.parametrize("root", ["src", "bench"])
def test_no_files_import_each_other(root: str) -> None:
    """Also inside a room, and by imports inside functions."""
    assert [sorted(group) for group in circles(ROOT / root)] == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b")
    (tmp_path / "b.py").write_text("def f():\n    from c import x")
    (tmp_path / "c.py").write_text("from a import y\nimport d")
    (tmp_path / "d.py").write_text("")
    assert circles(tmp_path) == [{"a.py", "b.py", "c.py"}]


def imported_modules(path: Path) -> set[str]:
    """The modules of jumok that a module imports from; "jumok" for the names of `import jumok`."""
    found = set()
    for module, name, _ in imports(path):
        if name and module.split(".")[0] == "jumok":
            below = SOURCE.parent.joinpath(*module.split("."), name)
            found.add(f"{module}.{name}" if below.is_dir() or below.with_suffix(".py").is_file() else module)
    return found


def test_the_course_uses_public_names_only() -> None:
    """The paragraph on `course/` in docs/design.md lists the modules."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    paragraph = re.search(r"^- \*\*`course/`\*\* imports.*?(?=^- )", text, re.MULTILINE | re.DOTALL)
    assert paragraph
    public = set(re.findall(r"`(jumok[.\w]+)`", paragraph[0]))
    used = {name for path in modules() if room_of(path) == "course" for name in imported_modules(path)}
    assert {name for name in used if not name.startswith("jumok.course")} <= {"jumok", *public}


def test_only_commands_import_the_course() -> None:
    users = {
        room_of(path) for path in modules() if any(name.startswith("jumok.course") for name in imported_modules(path))
    }
    assert users <= {"course", "cli"}


def test_heavy_libraries_stay_out_of_light_rooms() -> None:
    """messages, errors, files, text and config load neither torch nor any other heavy library."""
    light = [
        path for path in modules() if room_of(path) in {"version", "errors", "files", "messages", "config", "text"}
    ]
    names = {module.split(".")[0] for path in light for module, _, _ in imports(path)}
    assert names.isdisjoint({"torch", "numpy", "tokenizers", "transformers"})


# --- the public face ---


def test_the_public_names_are_these() -> None:
    assert set(jumok.__all__) == PUBLIC
    assert len(jumok.__all__) == len(PUBLIC)  # none twice; their order is ruff's
    for name in jumok.__all__:
        assert getattr(jumok, name).__name__ == name
        assert name in dir(jumok)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = jumok.generat  # type: ignore[attr-defined]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_help_is_cheap() -> None:
    """`jumok --help` answers at once: nothing that takes long to import."""
    heavy = ["torch", "numpy", "tokenizers", "safetensors", "matplotlib", "rich", "transformers", "starlette"]
    verbs = ([], ["train"], ["generate"], ["learn"], ["corpus"], ["serve"])
    out = python(
        "import sys\n"
        "from jumok.cli import main\n"
        f"for verb in {verbs}:\n"
        "    sys.argv = ['jumok', *verb, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 0, end.code\n"
        f"    print('LOADED', *verb, *[name for name in {heavy} if name in sys.modules])"
    )
    assert out.count("Usage:") == len(verbs)
    assert [line.split()[1:] for line in out.splitlines() if line.startswith("LOADED")] == list(verbs)


def test_a_function_is_not_hidden_by_the_room_it_is_named_after() -> None:
    """Importing the package jumok.view used to put it in the place of the function."""
    out = python(
        "import jumok.view\n"
        "assert callable(jumok.view), jumok.view\n"
        "from jumok.view import view\n"
        "assert jumok.view is view\n"
        "import sys; assert sys.modules['jumok.view'].view is view\n"
        "print('fine')"
    )
    assert out == "fine\n"


# --- what no file may hold ---


def project_files() -> list[Path]:
    """What git knows, or would add; without git, the folders that hold the project."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.split("\0")  # fmt: skip
        found = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        found = [path for folder in ("src", "tests", "docs", "bench") for path in (ROOT / folder).rglob("*.*")]
    return [path for path in found if path.is_file()]


def test_no_machine_and_no_mirror_is_named() -> None:
    """A path of one machine or the host of one mirror is of no use to anyone else."""
    # Put together from pieces, so that this file does not hold them.
    slash = "/"
    machine = [slash + "work" + slash, slash + "opt" + slash, slash + "home" + slash, slash + "root" + slash]
    patterns = [re.escape(path) + r"\w" for path in machine]
    patterns += [r"index-url", r"https?://(?!127\.|localhost)[\w.-]+:\d+", r"artifactory", r"nexus"]
    wrong = re.compile("|".join(rf"(?<![\w.-])(?:{pattern})" for pattern in patterns))
    me = Path(__file__)
    found = []
    for path in project_files():
        if path == me:
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{path.name}:{n}: {line.strip()[:100]}" for n, line in enumerate(lines, 1) if wrong.search(line)]
    assert found == []


def test_every_folder_with_modules_is_a_package_that_git_knows() -> None:
    """`runs/` in .gitignore, meant for what a user trains, also matched src/jumok/runs.

    Its `__init__.py` was never committed, so a wheel had no jumok.runs, and ruff skipped the folder.
    """
    assert {path.parent for path in modules()} == {path.parent for path in SOURCE.rglob("__init__.py")}
    known = set(project_files())
    assert [path for path in modules() if path not in known] == []


def test_no_room_is_called_after_nothing() -> None:
    names = {path.stem for path in [*SOURCE.rglob("*"), *(ROOT / "tests").rglob("*.py")]}
    assert names.isdisjoint({"utils", "util", "common", "helpers", "misc", "manager"})


@pytest.mark.slow
def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path.name
        for path in [*modules(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").glob("*.py")]
        if not ast.get_docstring(parsed(path))
    ]
    assert silent == []


@pytest.mark.slow
def test_tests_assert_something() -> None:
    """A test without an assertion passes whatever the code does."""
    idle = []
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree, lines = parsed(path), path.read_text(encoding="utf-8").splitlines()
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        checkers = {function.name for function in functions if not function.name.startswith("test_")}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                code = "\n".join(lines[node.body[0].lineno - 1 : node.end_lineno])
                calls = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
                if not (re.search(r"\bassert\b|pytest\.raises|assert_", code) or calls & checkers):
                    idle.append(f"{path.name}: {node.name}")
    assert idle == []


@pytest.mark.slow
def test_tests_wait_for_what_comes_late() -> None:
    """A busy machine took longer than the limit of a program, or than the wait for its end, and the test failed.

    pytest ends a test that hangs. What is waited for in a test gets a minute at least.
    """
    hasty = []
    for path in (ROOT / "tests").rglob("*.py"):
        calls = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        for node in calls:
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("run", "communicate", "wait"):
                limits = [word.value for word in node.keywords if word.arg == "timeout"]
                limits += node.args[:1] if node.func.attr == "wait" else []
                numbers = [one.value for one in limits if isinstance(one, ast.Constant)]
                if any(isinstance(number, int | float) and number < 60 for number in numbers):
                    hasty.append(f"{path.name}:{node.lineno}")
    assert hasty == []


def test_the_version_is_one() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{jumok.__version__}"' in pyproject
