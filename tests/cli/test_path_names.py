"""Names in the other normal form: macOS writes NFD, and a person types NFC. What is named is found, both ways."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import jumok as library
from conftest import TINY, Jumok, tiny_run
from jumok.cli import app
from jumok.cli.commands import PATH
from jumok.errors import ConfigError, RunError, TextError
from jumok.files import cache_folder, on_disk
from jumok.interop.huggingface import from_hf, to_hf
from jumok.models.gpt import GPT
from jumok.runs.native import load_to_write
from jumok.serve.run_folders import RunFolders
from jumok.text import read
from jumok.text.hangul import nfc, nfd
from jumok.tokenizers import Tokenizer

FORMS = pytest.mark.parametrize(("typed", "stored"), [(nfc, nfd), (nfd, nfc)], ids=["NFC typed", "NFD typed"])
Form = Callable[[str], str]
# The options and arguments that name a file among other things. All others that do are of the type of PATH.
OTHERS = {
    "train": {"texts", "val", "tokenizer", "reward"}, "evaluate": {"texts"}, "predict": {"texts"},
    "check": {"file"}, "hint": {"file"}, "solution": {"file"}, "use": {"file", "texts"}, "ladder": {"texts"},
}  # fmt: skip
# Those that are text, a name, or a column.
WORDS = {
    "question", "system", "device", "licence", "name", "encoding", "column", "text", "label", "source", "target",
    "prompts", "prompt", "stop", "lesson", "title", "host", "cors", "note", "layers", "heads", "size",
}  # fmt: skip


def verbs(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """All commands by their last words."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for verb in command.list_commands(click.Context(command)):
        below = command.get_command(click.Context(command), verb)
        assert below is not None
        yield from verbs(below, verb)


@FORMS
def test_all_that_names_a_path_finds_it(typed: Form, stored: Form, tmp_path: Path) -> None:
    """Each option has the one type that looks for the name on the disk, or reads through a function that does."""
    there = tmp_path / stored("소설") / stored("한글")
    there.mkdir(parents=True)
    paths = 0
    for verb, command in verbs(app):
        for one in command.params:
            if isinstance(one.type, click.Path):
                paths += 1
                assert type(one.type) is type(PATH), (verb, one.name)
                for kind in ("", "/config.json", "/새것"):
                    given = str(tmp_path / typed("소설") / typed("한글")) + kind
                    if one.type.file_okay or not kind:
                        assert one.type.convert(given, one, None) == Path(str(there) + kind)
            elif one.type is click.STRING:
                assert one.name in WORDS | OTHERS.get(verb, set()), (verb, one.name)
    assert paths > 20


def test_a_name_that_is_there_as_it_is_stays(tmp_path: Path) -> None:
    for form in (nfc, nfd):
        (tmp_path / form("가나")).mkdir()
    for form in (nfc, nfd):
        assert on_disk(tmp_path / form("가나") / "x") == tmp_path / form("가나") / "x"
    (tmp_path / nfd("다")).symlink_to("nowhere")
    assert on_disk(tmp_path / "다") == tmp_path / nfd("다")
    assert on_disk(tmp_path / nfc("라") / nfd("마")) == tmp_path / nfc("라") / nfd("마")
    assert on_disk(Path("가" * 5000)) == Path("가" * 5000)
    assert on_disk("hf:skt/kogpt2-base-v2") == Path("hf:skt/kogpt2-base-v2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """A run, a folder of transformers, and files that are read, under names that the disk spells in NFD."""
    from jumok import text as reader

    folder = tmp_path_factory.mktemp("runs")
    for _ in tiny_run(folder / nfd("한글모델"), reader.from_string(tales)).run():
        pass
    to_hf(library.load(folder / nfd("한글모델")), folder / nfd("내보냄"))
    (folder / nfd("소설.txt")).write_text(tales, encoding="utf-8")
    (folder / nfd("검증.txt")).write_text(tales[::-1], encoding="utf-8")
    (folder / nfd("설정.toml")).write_text("steps = 8\n", encoding="utf-8")
    (folder / nfd("보상.py")).write_text("def reward(question, answer):\n    return 1.0\n", encoding="utf-8")
    shutil.copy(folder / nfd("한글모델") / "tokenizer.json", folder / nfd("토큰.json"))
    return folder


@pytest.fixture(params=["NFC typed", "NFD typed"])
def place(runs: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a copy, in one of the two forms; the tests type the other one."""
    stored = nfd if request.param == "NFC typed" else nfc
    for one in sorted(runs.iterdir()):
        (shutil.copytree if one.is_dir() else shutil.copy)(one, tmp_path / stored(one.name))  # type: ignore[operator]
    monkeypatch.chdir(tmp_path)
    return tmp_path


def other(place: Path, name: str) -> str:
    """A name in the form that the disk does not have."""
    return nfd(name) if (place / nfc("소설.txt")).exists() else nfc(name)


@pytest.mark.slow
def test_every_verb_finds_what_the_other_form_names(place: Path, jumok: Jumok) -> None:
    """A run folder of a Mac was not found: "there is no run folder sv/한글모델. There is: sv/한글모델"."""

    def typed(name: str) -> str:
        return other(place, name)

    run, hf, novel = typed("한글모델"), typed("내보냄"), typed("소설.txt")
    before = {nfc(one.name) for one in place.iterdir()}
    small = [f"--{name.replace('_', '-')}={TINY[name]}" for name in ("n_layer", "n_head", "n_embd", "context_length")]
    own = ["--tokenizer", typed("토큰.json")]
    fast = ["--batch-size=4", "--steps=4", "--sample-tokens=4", "--compile=off", "--device=cpu"]
    for words in (
        ["generate", run, "가", "--tokens", "2"],
        ["generate", hf, "가", "--tokens", "2"],
        ["evaluate", run, hf, novel],
        ["view", run, "가나", "--out", typed("보기.html")],
        ["convert", run, typed("새 내보냄"), "--to", "hf"],
        ["convert", hf, typed("새 모델"), "--to", "jumok"],
        ["share", run, "--out", typed("나눔.html")],
        ["doctor", run],
        ["train", "--resume", "--out", run],
        ["train", novel, "--out", typed("새것"), "--config", typed("설정.toml"), *own, *small, *fast],
        ["train", novel, "--out", typed("이어서"), "--init", run, "--val", typed("검증.txt"), *fast],
    ):
        end = jumok(*words)
        assert end.code == 0, (words, end.err)
    names = [nfc(one.name) for one in place.iterdir()]
    assert len(names) == len({*names}), "two names that look the same"
    assert {*names} - before == {"보기.html", "새 내보냄", "새 모델", "나눔.html", "새것", "이어서"}
    end = jumok("train", novel, "--out", run, *small, *fast)  # it is there
    assert end.code != 0
    assert "--resume" in end.err
    assert [nfc(one.name) for one in place.iterdir()].count("한글모델") == 1
    # What is written once more replaces the file of the other form.
    for name in ("보기.html", "나눔.html"):
        [old] = [one for one in place.iterdir() if nfc(one.name) == name]
        new = nfd(name) if old.name == nfc(name) else nfc(name)
        verb = ["view", run, "가나"] if name == "보기.html" else ["share", run]
        assert jumok(*verb, "--out", new).code == 0
    assert len([*place.iterdir()]) == len(names)


@pytest.mark.slow
def test_python_finds_what_the_other_form_names(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(name: str) -> Path:
        return place / other(place, name)

    run = library.load(typed("한글모델"), kind=GPT)
    assert isinstance(load_to_write(typed("한글모델"), "cpu"), object)
    assert from_hf(typed("내보냄")).tokenizer is not None
    library.save(run, typed("저장"))
    library.save(run, place / (nfc if typed("저장").name == nfd("저장") else nfd)("저장"))
    assert [nfc(one.name) for one in place.iterdir()].count("저장") == 1
    with pytest.raises(RunError, match="training run"):
        library.save(run, typed("한글모델"))
    with pytest.raises(RunError):
        tiny_run(typed("한글모델"), read([typed("소설.txt")]))
    to_hf(run, typed("내보냄"))  # replaces it
    Tokenizer.load(typed("토큰.json")).save(typed("토큰.json"))
    assert [nfc(one.name) for one in place.iterdir()].count("토큰.json") == 1
    with pytest.raises(ConfigError, match="looks like the name of a file"):
        library.evaluate(run, typed("소설.txt").name.removesuffix(".txt") + ".txt")
    with pytest.raises(TextError, match="소설"):
        read([place / "소셜.txt"])
    folders = RunFolders([], root=place)
    assert folders.get(typed("한글모델").name) == folders.get("한글모델") is not None
    assert [*RunFolders([typed("한글모델")]).all()] == ["한글모델"]
    monkeypatch.setenv("JUMOK_CACHE", str(typed("내보냄")))
    assert cache_folder().exists()


@pytest.mark.slow
def test_a_reward_file_is_found(place: Path) -> None:
    from jumok.training.tasks.rewards import identity_of, reward_of

    assert identity_of(other(place, "보상.py"))
    assert callable(reward_of(other(place, "보상.py")))


def test_an_exercise_in_a_folder_of_the_other_form_is_checked(
    tmp_path: Path, jumok: Jumok, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert jumok("learn", "practice", nfd("연습")).code == 0
    assert jumok("learn", "practice", nfc("연습")).code == 0
    [folder] = tmp_path.iterdir()
    first = sorted(folder.glob("*.py"))[0]
    end = jumok("learn", "hint", f"{nfc('연습')}/{first.name}", "--json")
    assert end.code == 0, end.err
    assert Path(json.loads(end.out.splitlines()[-1])["file"]) == Path(folder.name) / first.name
