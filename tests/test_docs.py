"""The documents are true: commands parse, links resolve, names exist, Python runs, and both languages say the same."""

from __future__ import annotations

import io
import json
import pkgutil
import re
import shlex
import shutil
import webbrowser
from contextlib import chdir, redirect_stdout, suppress
from pathlib import Path

import click
import pytest

import jumok
from jumok.cli import app
from jumok.cli.learn import Course
from jumok.corpora import stories
from jumok.inference.generate import generate

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.ko.md")
HISTORY = ("CHANGELOG.md", "bench/LOG.md")  # may name what is gone
ENGLISH_ONLY = {"architecture.md", "design.md"}  # for developers
SITE_ONLY = {"index.md"}  # the first page of the site, with directives of its builder
PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name not in ENGLISH_ONLY | SITE_ONLY)
PAIRS = [READMES, *((f"docs/{name}", f"docs/ko/{name}") for name in PAGES)]
DOCUMENTS = (
    *(name for pair in PAIRS for name in pair),
    *(f"docs/{name}" for name in sorted(ENGLISH_ONLY) if (ROOT / "docs" / name).is_file()),
    "CHANGELOG.md",
    "bench/README.md",
    "bench/LOG.md",
)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(read(name)) if kind == language]


def commands(name: str) -> list[str]:
    return [line for block in blocks(name, "sh") for line in block.splitlines() if line]


def jumok_calls(line: str) -> list[list[str]]:
    """The arguments of each `jumok` in a shell line; those inside $(...) come first, and count as one word outside."""
    inner = re.findall(r"\$\((.*?)\)", line)
    line = re.sub(r"\$\(.*?\)", "FILE", line)
    calls = [call for part in inner for call in jumok_calls(part)]
    for part in re.split(r"[|>]", line):
        words = shlex.split(part)
        if words and words[0] == "jumok":
            calls.append(words[1:])
    return calls


def parse(arguments: list[str]) -> None:
    """Let click check verbs, options and values, and run nothing."""
    command: click.Command | None = app
    while isinstance(command, click.Group) and (isinstance(command, Course) or not arguments[0].startswith("-")):
        if isinstance(command, Course):
            arguments = command.full(arguments)
        _, command, arguments = command.resolve_command(click.Context(command), arguments)
    assert command is not None
    with suppress(click.exceptions.Exit):  # --help and --version have done their work
        command.make_context("jumok", list(arguments))


def options() -> set[str]:
    """Every option of every verb."""
    found: set[str] = set()
    waiting: list[click.Command] = [app]
    while waiting:
        command = waiting.pop()
        if isinstance(command, click.Group):
            waiting.extend(command.commands.values())
        for parameter in command.get_params(click.Context(command)):
            found.update(parameter.opts)
    return found


def anchors(name: str) -> set[str]:
    """The fragments that GitHub makes of a document's headings."""
    text = FENCE.sub("", read(name))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def without_comments(code: str) -> str:
    return re.sub(r"  # .*", "", code)


def test_each_page_exists_in_both_languages() -> None:
    assert {path.name for path in (ROOT / "docs/ko").glob("*.md")} - SITE_ONLY == set(PAGES)


@pytest.mark.parametrize(("english", "korean"), PAIRS)
def test_both_languages_have_the_same_outline(english: str, korean: str) -> None:
    """The same headings, tables, rows, lists and pictures, in the same order."""

    def outline(name: str) -> list[str]:
        marks = re.findall(r"^(#+ |\||[-*] |!\[)", FENCE.sub("", read(name)), re.MULTILINE)
        return [mark.strip() for mark in marks]

    assert outline(korean) == outline(english)


@pytest.mark.parametrize(("english", "korean"), PAIRS)
def test_both_languages_have_the_same_code(english: str, korean: str) -> None:
    for language in ("sh", "toml", "js"):
        assert blocks(korean, language) == blocks(english, language)
    code = [[without_comments(block) for block in blocks(name, "python")] for name in (english, korean)]
    assert code[1] == code[0]
    assert len(blocks(korean, "text")) == len(blocks(english, "text"))


@pytest.mark.parametrize(("english", "korean"), PAIRS)
def test_both_languages_name_the_same_things(english: str, korean: str) -> None:
    """Options, functions, files and fields, which stand in backquotes."""
    names = [set(re.findall(r"`([^`\n]+)`", FENCE.sub("", read(name)))) for name in (english, korean)]
    assert names[1] == names[0]


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short(name: str) -> None:
    """Reference material belongs to docs/."""
    assert len(read(name).splitlines()) <= 250


JUMOK_LINES = dict.fromkeys(line for english, _ in PAIRS for line in commands(english) if "jumok" in line)


assert len(JUMOK_LINES) > 40


@pytest.mark.parametrize("line", JUMOK_LINES)
def test_each_jumok_command_parses(line: str) -> None:
    for call in jumok_calls(line):
        parse(call)


@pytest.mark.parametrize(
    "wrong", ["train novel.txt --minute 5", "generat runs/novel", "train --size", "convert a b --to x"]
)
def test_the_parser_of_these_tests_refuses_what_is_wrong(wrong: str) -> None:
    """If it accepted anything, the test above would prove nothing."""
    with pytest.raises(click.UsageError):
        parse(shlex.split(wrong))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_option_and_verb_in_running_text_exists(name: str) -> None:
    if name in HISTORY:
        return
    begins = "jumok " if name.startswith("bench/") else "(?:--|jumok )"  # the scripts there have options of their own
    of_torchrun = {word for block in blocks(name, "sh") if block.startswith("torchrun") for word in block.split()}
    spans = re.findall(rf"`({begins}[^`\n]+)`", FENCE.sub("", read(name)))
    for option in {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}:
        assert option in options() | of_torchrun, f"{name} names {option}"
    for verb in {verb for span in spans for verb in re.findall(r"^jumok ([a-z]+)", span)}:
        assert verb in app.commands, f"{name} names the verb {verb}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_make_target_exists(name: str) -> None:
    lines = [*commands(name), *re.findall(r"`(make [^`]+)`", read(name))]
    targets = set(re.findall(r"\bmake (?:[A-Z]+=\S+ )?([a-z]+)", "\n".join(lines)))
    assert name not in READMES or {"demo", "test"} <= targets
    assert targets <= set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_project_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", read(name))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, fragment = target.partition("#")
        page = (ROOT / name).parent / path if path else ROOT / name
        assert page.is_file(), f"{name} links to {target}"
        if fragment:
            assert fragment in anchors(str(page.relative_to(ROOT))), f"{name} links to {target}"


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in {"docs/architecture.md", *HISTORY}])
def test_rooms_and_tests_that_are_named_exist(name: str) -> None:
    for room in set(re.findall(r"\b((?:tests/|bench/)?[a-z_]+\.py)\b", read(name))):
        found = (
            (ROOT / room).is_file()
            or ((ROOT / name).parent / room).is_file()
            or any((ROOT / "src/jumok").rglob(room))
            or any((ROOT / "tests").rglob(Path(room).name))
        )
        assert found, f"{name} names {room}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_each_name_of_the_package_in_running_text_exists(name: str) -> None:
    if name == "CHANGELOG.md":
        return  # it names what is gone, too
    for dotted in set(re.findall(r"`(jumok(?:\.\w+)+)", FENCE.sub("", read(name)))):
        if not dotted.endswith((".js", ".toml")):
            pkgutil.resolve_name(dotted)


@pytest.fixture(scope="module")
def python_page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The code of docs/python.md, run word for word but for its five minutes: its folder, and what it printed."""
    code = "\n".join(block for block in blocks("docs/python.md", "python"))
    short = {"steps": 2, "n_layer": 3, "n_head": 4, "n_embd": 32, "compile": "off"}
    shorter = {
        "minutes=5)  #": f"**{short})  #",
        "minutes=5, n_layer=4)": f"**{short})",
    }
    for told, tested in shorter.items():
        assert code.count(told) == 1
        code = code.replace(told, tested)
    folder = tmp_path_factory.mktemp("python")
    (folder / "novel.txt").write_text("".join(stories.write(8_000)), encoding="utf-8")
    printed = io.StringIO()
    with chdir(folder), redirect_stdout(printed):
        exec(compile(code, "docs/python.md", "exec"), {})
    shutil.copytree(folder / "runs/python", folder / "runs/novel")
    return folder, printed.getvalue()


def test_the_rows_inside_an_object_are_saved_as_its_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paragraphs = [{"context": "바그너는 괴테의 파우스트를 읽었다.", "qas": []}, {"context": "1839년이다.", "qas": []}]
    content = {"version": "KorQuAD_v1.0_train", "data": [{"title": "파우스트_서곡", "paragraphs": paragraphs}]}
    Path("KorQuAD_v1.0_train.json").write_text(json.dumps(content), encoding="utf-8")
    (code,) = blocks("docs/data.md", "python")
    exec(code, {})
    with jumok.text.read("paragraphs.jsonl", column="context") as text:
        assert text.read() == "바그너는 괴테의 파우스트를 읽었다.\n1839년이다."


@pytest.mark.long
def test_the_python_of_its_page_runs(python_page: tuple[Path, str]) -> None:
    _, printed = python_page
    assert "그날 밤" in printed
    assert re.search(r"^2 \d+\.\d+$", printed, re.MULTILINE)


@pytest.mark.long
def test_the_python_of_the_viewer_runs(
    python_page: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = python_page
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url, *_: opened.append(url) or True)
    with chdir(folder):
        exec(compile("\n".join(blocks("docs/viewer.md", "python")), "docs/viewer.md", "exec"), {})
    assert (folder / "night.html").is_file()
    assert len(opened) == 1
    assert "torch.Size([1, 4, " in capsys.readouterr().out


@pytest.mark.long
def test_the_exported_folder_loads_as_its_page_says(
    python_page: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    folder, _ = python_page
    code, _ = blocks("docs/interop.md", "python")
    assert blocks("README.md", "python") == [code]
    with chdir(folder):
        app.main(["convert", "runs/novel", "novel-hf", "--to", "hf", "--quiet"], standalone_mode=False)
        exec(compile(code, "docs/interop.md", "exec"), {})
    assert "그날 밤" in capsys.readouterr().out


@pytest.mark.slow
def test_the_onnx_file_runs_as_its_page_says(python_page: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder, _ = python_page
    _, code = blocks("docs/interop.md", "python")
    assert blocks("docs/ko/interop.md", "python")[1] == code
    assert len(code.splitlines()) <= 15
    with chdir(folder):
        app.main(["convert", "runs/novel", "novel.onnx", "--to", "onnx", "--quiet"], standalone_mode=False)
        exec(compile(code, "docs/interop.md", "exec"), {})
        (greedy,) = generate(jumok.load("runs/novel"), "그날 밤", tokens=100, temperature=0)
    assert capsys.readouterr().out == f"그날 밤{greedy.text}\n"


def test_the_version_has_an_entry_in_the_changelog() -> None:
    assert re.search(rf"^## {re.escape(jumok.__version__)}\b", read("CHANGELOG.md"), re.MULTILINE)


PROOF = re.compile(r"`(tests/\S+\.py)::(test_\w+)`")


@pytest.mark.parametrize("page", ["reliability.md", "security.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    """The page in Korean names the same ones."""
    pages = (ROOT / "docs" / page, ROOT / "docs" / "ko" / page)
    english, korean = (PROOF.findall(each.read_text(encoding="utf-8")) for each in pages)
    assert len(english) > 15
    assert english == korean
    for path, name in english:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)
