"""The documents say what is true: their commands parse, their links lead somewhere, their Python runs."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path

import click
import pytest

import jumok
from jumok.cli import app
from jumok.corpora import stories

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.ko.md")
DOCUMENTS = (*READMES, "CHANGELOG.md", "docs/design.md", "docs/formats.md", "docs/viewer.md")
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
    while isinstance(command, click.Group) and not arguments[0].startswith("-"):
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


def test_both_readmes_have_the_same_commands_in_the_same_order() -> None:
    english, korean = (commands(name) for name in READMES)
    assert len(english) > 20
    assert korean == english
    assert blocks("README.ko.md", "toml") == blocks("README.md", "toml")
    without_comments = [[re.sub(r"  #.*", "", block) for block in blocks(name, "python")] for name in READMES]
    assert without_comments[0] == without_comments[1]


def test_both_readmes_have_the_same_sections() -> None:
    english, korean = (re.findall(r"^(#+) ", FENCE.sub("", read(name)), re.MULTILINE) for name in READMES)
    assert korean == english


@pytest.mark.parametrize("line", dict.fromkeys(line for line in commands("README.md") if "jumok" in line))
def test_each_jumok_command_parses(line: str) -> None:
    calls = jumok_calls(line)
    assert calls
    for call in calls:
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
    spans = re.findall(r"`((?:--|jumok )[^`\n]+)`", FENCE.sub("", read(name)))
    for option in {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", span)}:
        assert option in options(), f"{name} names {option}"
    for verb in {verb for span in spans for verb in re.findall(r"^jumok ([a-z]+)", span)}:
        assert verb in app.commands, f"{name} names the verb {verb}"


@pytest.mark.parametrize("name", READMES)
def test_each_make_target_exists(name: str) -> None:
    lines = [*commands(name), *re.findall(r"`(make [^`]+)`", read(name))]
    targets = set(re.findall(r"\bmake (?:[A-Z]+=\S+ )?([a-z]+)", "\n".join(lines)))
    assert {"demo", "test", "bench"} <= targets
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


@pytest.mark.parametrize("name", DOCUMENTS)
def test_rooms_and_tests_that_are_named_exist(name: str) -> None:
    for room in set(re.findall(r"\b((?:tests/|bench/)?[a-z_]+\.py)\b", read(name))):
        found = (
            (ROOT / room).is_file()
            or any((ROOT / "src/jumok").rglob(room))
            or any((ROOT / "tests").rglob(Path(room).name))
        )
        assert found, f"{name} names {room}"


@pytest.mark.slow
def test_the_python_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Word for word, but for its five minutes."""
    snippets = [block for block in blocks("README.md", "python") if "import jumok" in block]
    assert len(snippets) == 2
    code = "\n".join(snippets)
    short = {"steps": 2, "n_layer": 1, "n_embd": 32, "compile": "off"}
    for told, tested in (("minutes=5", f"**{short}"), ('{"minutes": 5}', str(short))):
        assert code.count(told) == 1
        code = code.replace(told, tested)
    monkeypatch.chdir(tmp_path)
    Path("novel.txt").write_text("".join(stories.write(8_000)), encoding="utf-8")
    exec(compile(code, "README.md", "exec"), {})
    shown = capsys.readouterr().out
    assert "그날 밤" in shown
    assert re.search(r"^2 \d+\.\d+$", shown, re.MULTILINE)


def test_the_version_has_an_entry_in_the_changelog() -> None:
    assert re.search(rf"^## {re.escape(jumok.__version__)}\b", read("CHANGELOG.md"), re.MULTILINE)
