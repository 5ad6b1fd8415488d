"""What jumok says: in English or Korean, with the names that the reader can type."""

from __future__ import annotations

import ast
import errno
import inspect
import os
import pickle
import re
import signal
import socket
import ssl
import string
import sys
import threading
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from safetensors import SafetensorError

import jumok as package
from conftest import TINY, Jumok
from jumok import cli, errors
from jumok.cli.interrupts import stopping
from jumok.errors import ConfigError, RunError, TextError
from jumok.messages import REASONS, SETTING, catalogue, message, reason_and_file, speaking, tr, users_language
from jumok.runs.events import Step
from jumok.text import read
from jumok.training.subscribers.progress import TrainingView

SOURCE = Path(package.__file__).parent
ERRORS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
SPEAKERS = {"say", "report"}  # functions that show a person what they are given
# "tuple(으)로": both particles stand there, because the writer cannot know the sound before them. Another sentence can.
BOTH_PARTICLES = re.compile(r"\(으\)로|은\(는\)|이\(가\)|을\(를\)|과\(와\)|[}`'\"]\(이\)")
BANNED = ("까닭", "견주", "거든요", "눈길")


class Call(NamedTuple):
    """A call in the source of jumok: of which function, with which first argument."""

    where: str
    function: str
    node: ast.Call

    @property
    def first(self) -> ast.expr | None:
        return self.node.args[0] if self.node.args else None

    @property
    def literal(self) -> str | None:
        return self.first.value if isinstance(self.first, ast.Constant) and isinstance(self.first.value, str) else None


@cache
def calls() -> list[Call]:
    """All calls of functions and classes by a name in the source of jumok."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                function = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                found.append(Call(f"{place}:{node.lineno}", function, node))
    return found


def said() -> Iterator[Call]:
    """The calls that take a template."""
    return (call for call in calls() if call.function in {"tr", "message", "in_each_language", *ERRORS})


def messages() -> dict[str, str]:
    """Every template of a message in the source, with the place where it stands first."""
    found: dict[str, str] = {}
    for call in said():
        if call.literal is not None:
            found.setdefault(call.literal, call.where)
    return found


def fields(template: str) -> set[tuple[str, str, str]]:
    """The fields of a template: name, format and conversion; those in the value of a setting, too."""
    parsed = string.Formatter().parse(SETTING.sub(lambda setting: setting[2] or "", template))
    return {(name, spec or "", conversion or "") for _, name, spec, conversion in parsed if name is not None}


def settings(template: str) -> set[str]:
    return {setting[0] for setting in SETTING.finditer(template)}


class Mark(str):
    """A value that is found again in a message, whatever its format."""

    def __format__(self, spec: str) -> str:
        return str(self)


def test_each_message_has_its_korean() -> None:
    """A message was added in English alone, and a Korean reader met two languages in one run."""
    missing = {t: where for t, where in messages().items() if t not in catalogue()}
    assert not missing, "add these to src/jumok/messages/ko.toml"


def test_messages_are_literals() -> None:
    """A sentence that is put together of f-strings and halves cannot be looked up, so it stayed English in Korean."""
    wrong = []
    for call in calls():
        if call.where.startswith(("errors.py", "messages/")):
            continue
        if call.function in {"message", *ERRORS}:  # of a path with braces in it an error would make a template
            fine = call.literal is not None or not call.node.args
        elif call.function == "tr":  # a name stands for a constant that `message` marks
            fine = call.literal is not None or isinstance(call.first, ast.Name | ast.Attribute | ast.IfExp)
            fine = fine and (call.literal is not None or not _has_words(call.first))
        elif call.function == "Notice":
            fine = not any(_has_words(keyword.value) for keyword in call.node.keywords)
        elif call.function in SPEAKERS and not call.where.startswith("course/"):
            fine = call.first is None or not _has_words(call.first)
        else:
            fine = True
        if not fine:
            wrong.append(f"{call.where}: {ast.unparse(call.node)[:100]}")
    assert not wrong, "use tr(...), or a literal template with its values"


def _has_words(node: ast.expr | None) -> bool:
    """Whether a text is written here, or put together, beside `tr`."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and any(map(str.isalpha, node.value.replace("jumok:", "")))
    parts = {ast.JoinedStr: "values", ast.BinOp: "left right", ast.IfExp: "body orelse", ast.BoolOp: "values"}
    for name in parts.get(type(node), "").split():
        found = getattr(node, name)
        if any(_has_words(part) for part in (found if isinstance(found, list) else [found])):
            return True
    return False


def test_each_field_has_its_value() -> None:
    """A field without a value is a KeyError in place of the message."""
    for call in said():
        given = {keyword.arg for keyword in call.node.keywords}
        if call.literal is not None and call.function != "message" and given and None not in given:
            assert {re.split(r"[.\[]", name)[0] for name, _, _ in fields(call.literal)} == given, call.where


def test_the_korean_has_the_same_fields_and_settings() -> None:
    for english, korean in catalogue().items():
        assert fields(korean) == fields(english), korean
        assert settings(korean) == settings(english), korean


def test_no_entry_is_left_of_a_message_that_is_gone() -> None:
    used = messages().keys() | help_texts()
    assert not catalogue().keys() - used, "take these out of src/jumok/messages/ko.toml"


def test_the_korean_is_plain() -> None:
    """Words that machines overuse; and particles that depend on the sound of a value which the writer cannot know."""
    for korean in catalogue().values():
        assert not [word for word in BANNED if word in korean], korean
        assert not BOTH_PARTICLES.search(korean), korean
        assert not re.search(r"(?<!-)\{(?!--)[^{}]*[^{}%]\}(은|는|이|가|을|를|과|와|로|으로)(?=[\s.,]|$)", korean), (
            korean
        )


def test_no_korean_shows_both_particles() -> None:
    """The words beside what they describe, too: of the exercises, the ladder and the pages."""
    for path in [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.toml"), *SOURCE.rglob("*.js")]:
        found = BOTH_PARTICLES.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(SOURCE)}: {found}"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("language", ["en", "ko"])
def test_each_message_is_said_in_both_languages_to_both_readers(language: str, terminal: bool) -> None:
    for template in messages():
        values = {name: Mark(f"<{name}>") for name, _, _ in fields(template) if name.isidentifier()}
        with speaking(language, terminal=terminal):
            text = tr(template, **values)
        assert all(value in text for value in values.values()), text
        for option in (setting[1] for setting in SETTING.finditer(template)):
            assert (f"--{option}" in text) == terminal, text
            assert terminal or option.replace("-", "_") in text, text
        assert "{--" not in text, text


def test_a_constant_is_translated_when_it_is_said() -> None:
    """Constants are made when jumok is imported, which is before the language of its user is known."""
    constant = message("as asked")
    assert tr(constant) == "as asked"
    with speaking("ko"):
        assert tr(constant) == catalogue()["as asked"] != "as asked"


def test_a_setting_is_named_as_the_reader_can_type_it() -> None:
    template = "n_embd={n}; use {--n-embd 252}, leave {--size} out, or name {--out {path}-run}"
    said = tr(template, n=250, path="a b")
    assert said == "n_embd=250; use n_embd=252, leave size out, or name out=a b-run"
    with speaking("en"):
        said = tr(template, n=250, path="{x}")
        assert said == "n_embd=250; use --n-embd 252, leave --size out, or name --out {x}-run"
    assert tr("{--size}") == "size"


def test_values_are_not_read_as_templates() -> None:
    assert tr("{name}", name="{--out} {0}") == "{--out} {0}"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems word their reasons otherwise")
def test_the_reasons_of_the_system_are_those_of_errno() -> None:
    for name, reason in REASONS.items():
        assert reason == os.strerror(getattr(errno, name)), name


def test_an_error_of_the_system_is_said_in_the_language_of_its_reader() -> None:
    """Under JUMOK_LANG=ko a full disk was "No space left on device" amid a Korean sentence."""
    full = OSError(errno.ENOSPC, "as the system says it", "a.txt")
    assert str(RunError("cannot write: {reason}", reason=full)) == "cannot write: No space left on device"
    with speaking("ko"):
        assert tr("{error}", error=full) == "디스크에 남은 공간이 없음"
        assert reason_and_file(full) == "디스크에 남은 공간이 없음: a.txt"
        assert reason_and_file(ValueError("as it is")) == "as it is"
        for unknown in (OSError(9_999, "strange"), OSError("strange"), ssl.SSLError(errno.EPERM, "strange")):
            assert tr("{error}", error=unknown) == "strange"  # numbers of other tables, and none
        assert tr("{error}", error=socket.gaierror(-2, "strange")) == "호스트 이름을 찾을 수 없음"
        if os.name == "posix":
            told = SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
            assert tr("{error}", error=told) == "디스크에 남은 공간이 없음"
        assert tr("{error}", error=SafetensorError("header too small")) == "header too small"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(
            ("a.jsonl", text.encode())
            for text in ('{"a": }', '{"a": 1 "b"', '{"a" 1}', "{1}", '{"a": "b', '{"a": "\t"}')
        ),
        *(("a.jsonl", text.encode()) for text in ('{"a": "\\x"}', '[{"a": "b"}] 1')),
        *(("a.txt", content) for content in (b"abc\xff", b"abc\xe0a" + bytes("가".encode()), "가나다".encode()[:-1])),
        ("a.csv", b'a,b\n1,"2'),
    ],
)
def test_reasons_of_readers_are_korean(name: str, content: bytes, tmp_path: Path) -> None:
    """Python's own reasons stood in English in Korean sentences."""
    (tmp_path / name).write_bytes(content)
    with speaking("ko"), pytest.raises(TextError) as refused:
        read([tmp_path / name], encoding="utf-8" if name == "a.txt" else None, column="a" if name != "a.txt" else None)
    said = str(refused.value).replace(str(tmp_path), "")
    assert not re.search("[a-z]{4,} [a-z]{2,}", said), said


def test_errors_of_the_system_reach_a_korean_reader_in_korean(
    jumok: Jumok, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command caught them in its own way."""
    monkeypatch.setenv("JUMOK_LANG", "ko")
    (own_folder / "file").write_text("주목", encoding="utf-8")
    long = "가" * 300
    for command, reason in (
        (["train", "file/x.txt"], "폴더가 아님"),
        (["train", "--config", "none.toml"], "파일이나 폴더가 없음"),
        (["train", "file", "--out", "file/run"], "폴더가 아님"),
        (["train", "file", "--out", long], "파일 이름이 너무 긺"),
        (["serve", "file", "--api-key-file", "none"], "파일이나 폴더가 없음"),
    ):
        end = jumok(*command)
        assert end.code != 0
        assert reason in end.err, end.err
        assert not re.search(r"Errno|No such|Not a|too long", end.err), end.err


def test_an_error_is_a_message() -> None:
    error = ConfigError("top={top} is too many; leave {--top} out", top=7)
    assert str(error) == "top=7 is too many; leave top out"
    assert str(ConfigError("a set {1, 2} and {{}} as they are")) == "a set {1, 2} and {{}} as they are"
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "ko"}, "ko"),
        ({"LC_ALL": "ko_KR", "JUMOK_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "JUMOK_LANG": "ko"}, "ko"),
    ],
)
def test_the_language_is_that_of_the_user(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUMOK_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert users_language() == language


@pytest.fixture
def another_language(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("JUMOK_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    yield
    package.language(None)


@pytest.mark.usefixtures("another_language")
def test_a_program_speaks_the_language_of_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """JUMOK_LANG=ko reached the command line alone: programs had errors, progress and pictures in English.

    Settings keep the names that a program can type.
    """

    def refusal() -> str:
        with pytest.raises(ConfigError) as refused:
            package.GPTConfig(n_embd=250, n_head=6)
        return str(refused.value)

    assert not HANGUL.search(refusal())
    monkeypatch.setenv("JUMOK_LANG", "ko")
    assert HANGUL.search(refusal())
    assert "--" not in refusal()
    package.language("en")
    assert not HANGUL.search(refusal())
    said: list[str] = []
    package.language("ko")
    thread = threading.Thread(target=lambda: said.append(refusal()))  # a new thread has the values of no context
    thread.start()
    thread.join()
    assert HANGUL.search(said[0])
    package.language(None)
    monkeypatch.setenv("JUMOK_LANG", "en")
    assert not HANGUL.search(refusal())
    with pytest.raises(ValueError, match="'jp' is not available"):
        package.language("jp")


# --- the command line in Korean ---

HANGUL = re.compile("[가-힣]")
VERBS = {name: [name] for name in cli.app.commands} | {
    f"corpus {name}": ["corpus", name] for name in ("list", "get", "write")
}
# What click says to a person, in the versions that jumok works with.
CLICK = {
    "Error: {message}", "Try '{command} {option}' for help.", "Did you mean {possibility}?",
    "(Did you mean one of: {possibilities}?)", "(Possible options: {possibilities})", "No such option {name!r}.",
    "No such option: {name}", "No such command {name!r}.", "Missing command.", "Missing argument", "Missing option",
    "Choose from:\n\t{choices}", "Invalid value: {message}", "Invalid value for {param_hint}: {message}",
    "{value!r} is not {choice}.", "{value!r} is not one of {choices}.", "{value!r} is not a valid {number_type}.",
    "{value} is not in the range {range}.", "Option {name!r} requires an argument.",
    "Option {name!r} does not take a value.", "Got unexpected extra argument ({args})",
    "Got unexpected extra arguments ({args})",
}  # fmt: skip


def help_texts() -> set[str]:
    """Everything in English that --help and click's own errors show: the keys of the catalogue that no tr() names."""
    headings = {"Options", "Commands", "Examples"}
    return CLICK | headings | set(filter(None, _help_of(cli.app, "jumok")))


def _help_of(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield inspect.cleandoc(command.help or "")
    yield command.short_help or ""
    for parameter in command.get_params(context):
        yield (parameter.get_help_record(context) or ("", ""))[1]
        yield getattr(parameter, "section", "")
    if isinstance(command, click.Group):
        for verb, under in command.commands.items():
            yield from _help_of(under, verb)


def test_all_of_the_help_has_korean() -> None:
    assert sorted(text for text in help_texts() if not HANGUL.search(catalogue().get(text, ""))) == []
    assert [text for text in CLICK if fields(text) != fields(catalogue()[text])] == []


def prose_of(page: str) -> str:
    """A page of --help without its examples, the names of options and the choices that they take."""
    page = re.split(r"\n *(?:Examples|예시):\n", page)[0]
    page = "\n".join(line for line in page.splitlines() if not line.startswith(("Usage:", "사용법:")))
    page = re.sub(r"(?m)^  -.*?(?:  +|$)", "", page)
    return re.sub(r"\[[^\]]*\]", "", page)


@pytest.mark.parametrize("verb", [[], *VERBS.values()], ids=["jumok", *VERBS])
def test_help_speaks_the_language_of_its_reader(verb: list[str], jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in one process, as click keeps what it has made of the option --help."""
    words = re.compile(r"[A-Za-z]{2,} [A-Za-z]{2,} [A-Za-z]{2,}")
    for columns in (80, 110):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("JUMOK_LANG", "ko")
        korean = jumok(*verb, "--help").out
        assert words.findall(prose_of(korean)) == []
        assert "이 도움말을 표시하고 종료합니다." in korean
        lines = korean.partition("예시:")[0].splitlines()
        assert max(sum(1 + (unicodedata.east_asian_width(c) in "WF") for c in line) for line in lines) <= columns
        monkeypatch.delenv("JUMOK_LANG")
        monkeypatch.setenv("LC_ALL", "C")
        english = jumok(*verb, "--help").out
        assert HANGUL.findall(prose_of(english).replace("주목:", "")) == []
        assert "Show this message and exit." in english


def test_wrong_use_is_explained_in_korean(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_LANG", "ko")
    for command, said in (
        (["trian"], "오류: 'trian' 명령은 없습니다."),
        (["train", "--stesp", "3"], "옵션은 없습니다. 혹시 다음 중 하나인가요? '--passes'"),
        (["train", "--steps", "x"], "오류: '--steps'의 값이 올바르지 않습니다: 'x': 수(integer)가 아닙니다."),
        (["train", "--model", "x"], "'x': 다음 중에서 고르세요: 'gpt', 'bert', 'encoder_decoder'."),
        (["convert"], "오류: 빠진 인자: 'SOURCE'."),
    ):
        end = jumok(*command)
        assert end.code == 2
        assert said in end.err
        assert re.findall("Usage|Error|Try|Did you", end.err) == []


@pytest.mark.slow
def test_a_run_is_told_of_in_korean_from_beginning_to_end(
    jumok: Jumok, tales: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train, interrupt, continue, train further, write, evaluate, and a question for the wrong kind of model."""
    monkeypatch.setenv("JUMOK_LANG", "ko")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    (own_folder / "tales.txt").write_text(tales, encoding="utf-8")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()]
    show = TrainingView.show

    def interrupt(view: TrainingView, event: object) -> None:
        show(view, event)  # type: ignore[arg-type]
        if isinstance(event, Step) and event.step == 5:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as once:
        once.setattr(TrainingView, "show", interrupt)
        end = jumok("train", "tales.txt", "--out", "run", "--device", "cpu", *flags)
    assert end.code == 130
    for line in (
        "  학습 전: ",
        "스텝 4 · ",
        " · 중간 검증 ",
        "이 스텝을 마치고 저장합니다",
        "이어서 학습하려면:\n  jumok train --resume",
    ):
        assert line in end.err
    end = jumok("train", "--resume", "--out", "run")
    assert end.code == 0
    for line in ("run: 5스텝부터", "\n학습 완료: 8스텝, ", "\n  폴더     run\n", "이 모델로 텍스트를 생성하려면:"):
        assert line in end.err
    end = jumok("train", "--resume", "--steps", "4", "--out", "run", "--json")
    assert end.code == 1
    assert "이 실행은 끝났습니다. 그 모델을 더 학습하려면: jumok train tales.txt --init run" in end.err
    assert jumok("generate", "run", "그날 밤", "--tokens", "5").out.startswith("그날 밤")
    assert "이 모델의 학습 데이터입니다." in jumok("evaluate", "run", "tales.txt").err
    end = jumok("generate", "run", "--beam", "3")
    assert (end.code, end.out) == (2, "")
    assert end.err.startswith("jumok: --beam: run의 모델에는 쓸 수 없습니다.")


def test_ctrl_c_may_come_while_a_line_is_printed() -> None:
    """The handler printed its notice itself, and waited for ever where the line below it held the terminal's lock."""
    lock, free = threading.Lock(), []

    class Training:
        def request_stop(self) -> None:
            pass

    with stopping(Training(), lambda notice: free.append(lock.acquire(timeout=5))), lock:
        signal.raise_signal(signal.SIGINT)
    assert free == [True]


NAMES = {  # that are no words of a language
    "nat", "nats", "char", "token", "chrF", "jumok", "train", "generate", "predict", "evaluate", "run", "loss", "png",
    "tsv", "txt", "UTF", "MASK", "--out", "--resume", "--minutes", "--steps", "minutes", "steps", "out", "resume",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("task", ["lm", "mlm", "classify", "seq2seq"])
def test_figures_and_samples_of_each_task_are_korean(
    task: str, jumok: Jumok, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`always '부정'`, `(label: ...)`, `source: ... answer:` and `floor` stood in Korean lines."""
    monkeypatch.setenv("JUMOK_LANG", "ko")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    rows = [("나무가 높다", "산"), ("물이 깊다", "강"), ("바위가 크다", "산"), ("배가 뜬다", "강")] * 12
    columns = {"classify": "글\t갈래", "seq2seq": "물음\t대답"}
    named = {"classify": ["--text=글", "--label=갈래"], "seq2seq": ["--source=물음", "--target=대답"]}.get(task, [])
    file = Path("글.tsv" if task in columns else "글.txt")
    lines = ["\t".join(row) for row in rows] if task in columns else [row[0] for row in rows] * 20
    file.write_text("\n".join([*filter(None, [columns.get(task)]), *lines]), encoding="utf-8")
    flags = {**TINY, "steps": 4, "eval_every": 2}
    settings = [f"--{key.replace('_', '-')}={value}" for key, value in flags.items()]
    end = jumok("train", str(file), "--task", task, "--out", "run", "--device", "cpu", *named, *settings)
    assert end.code == 0, end.err
    said = re.sub(r"(?m)^  jumok .*$", "", end.err)  # without commands
    found = {word for word in re.findall(r"--[a-z-]+|[A-Za-z]{3,}", said) if word not in NAMES}
    assert found == set()
