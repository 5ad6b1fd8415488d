"""`jumok chat`: a conversation in a terminal, from a pipe, and for one question; and all that can go wrong in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import Jumok
from jumok.inference.chat import answer_chats
from jumok.runs.load import load, save
from jumok.training.verdict import use_command
from talking_models import TEMPLATE, looping, talking

GREEDY = ("--tokens", "12")


def ask(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    rule = [{"role": "system", "content": system}] if system else []
    return rule + [{"role": ("user", "assistant")[i % 2], "content": one} for i, one in enumerate(contents)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "talk"
    save(talking(), folder)
    return folder


def answer(run: Path, *contents: str, tokens: int = 12, **more: Any) -> str:
    [[found]] = answer_chats(load(run), [ask(*contents, **more)], tokens=tokens)  # type: ignore[arg-type]
    assert found.text.strip()
    return found.text


# --- one question, and a pipe -----------------------------------------------------------------------------------------


def test_one_question_prints_the_answer_alone(run: Path, jumok: Jumok) -> None:
    done = jumok("chat", run, "나는", *GREEDY, "--quiet")
    assert (done.code, done.out, done.err) == (0, answer(run, "나는") + "\n", "")
    done = jumok("chat", run, "나는", *GREEDY, "--system", "집에", "--json", "--quiet")
    wanted = answer(run, "나는", system="집에")
    assert len(done.out.splitlines()) == 1
    assert done.json["text"] == wanted
    assert done.json["messages"] == [*ask("나는", system="집에"), {"role": "assistant", "content": wanted}]
    [only] = done.json["answers"]
    assert only == {"text": wanted, "reasoning": "", "tokens": 12, "finish": "length"}


def test_the_command_that_training_prints_is_one_of_chat(run: Path, jumok: Jumok) -> None:
    """It names the run and a message of the material; `jumok chat` took no message there."""
    words = use_command(SimpleNamespace(verb="chat", example=lambda: "나는"), run)  # type: ignore[arg-type]
    assert jumok(*words.split()[1:], *GREEDY).out == answer(run, "나는") + "\n"


def test_each_line_of_a_pipe_is_a_message(run: Path, jumok: Jumok) -> None:
    first = answer(run, "나는")
    second = answer(run, "나는", first, "집에")
    done = jumok("chat", run, *GREEDY, "--quiet", stdin="\ufeff나는\r\n\n집에")
    assert (done.code, done.out) == (0, f"{first}\n{second}\n")
    found = jumok("chat", run, *GREEDY, "--json", stdin="나는\n집에\n/quit\n그리고\n").json
    assert [one["text"] for one in found["answers"]] == [first, second]
    assert jumok("chat", run, "--json", stdin="").json["answers"] == []


def test_an_answer_that_repeats_itself_ends(jumok: Jumok, tmp_path: Path) -> None:
    save(looping(), tmp_path / "loops")
    done = jumok("chat", tmp_path / "loops", "안녕")
    assert done.out == ("나는 학교에" * 11)[:64] + "\n"
    assert "because it repeats itself" in done.err
    [only] = jumok("chat", tmp_path / "loops", "안녕", "--json").json["answers"]
    assert (only["tokens"], only["finish"]) == (64, "loop")


def test_a_seed_draws_the_same_answers(run: Path, jumok: Jumok) -> None:
    drawn = [
        jumok("chat", run, *GREEDY, "--temperature", "1", "--seed", seed, "--quiet", stdin="나는\n나는\n").out
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("stdin", "words"),
    [
        (b"\xb3\xaa\xb4\xc2\n", "line 1 of the input is not UTF-8"),
        ("나는\n" + "나는 " * 60, "the last message has"),
        ("/nothing", "no command /nothing"),
        ("/undo", "no answer yet"),
        ("/regenerate", "no answer yet"),
        ("/think", "/think on|off"),
        ("/save", "/save FILE"),
        ("나는\n/save nowhere/at/all.jsonl", "cannot write"),
        ("가" * 10_000_000, "10,000,000 characters"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_wrong_in_a_pipe_ends_it(run: Path, jumok: Jumok, stdin: Any, words: str) -> None:
    Path("nowhere").write_text("a file", encoding="utf-8")
    done = jumok("chat", run, *GREEDY, stdin=stdin)
    assert done.code in (1, 2)
    assert words in done.err


@pytest.mark.parametrize(
    "line", ["나는 " * 60, "/nothing", b"\xb3\xaa\xb4\xc2"], ids=["too long", "no command", "CP949"]
)
def test_what_was_answered_is_printed_before_the_error(run: Path, jumok: Jumok, line: str | bytes) -> None:
    """With --json one bad line of a file lost the answers to all lines before it."""
    last = line if isinstance(line, bytes) else line.encode()
    done = jumok("chat", run, *GREEDY, "--json", stdin="나는\n집에\n".encode() + last + b"\n")
    assert done.code in (1, 2)
    answers, error = map(json.loads, done.out.splitlines())
    first = answer(run, "나는")
    assert [one["text"] for one in answers["answers"]] == [first, answer(run, "나는", first, "집에")]
    assert error["error"]
    shown = jumok("chat", run, *GREEDY, stdin="나는\n".encode() + last + b"\n")
    assert (shown.code, shown.out) == (done.code, first + "\n")


@pytest.mark.parametrize("text", ["", " \n", "나는\udcff", "나는 " * 60])
def test_a_question_that_cannot_be_read_is_refused(run: Path, jumok: Jumok, text: str) -> None:
    done = jumok("chat", run, text, "--json")
    assert done.code == 1
    assert "jumok: " in done.err
    assert done.json["error"]


@pytest.mark.parametrize("option", [("--tokens", "0"), ("--seed", "-1"), ("--temperature", "-1"), ("--system", "")])
def test_wrong_options_are_refused(run: Path, jumok: Jumok, option: tuple[str, str]) -> None:
    assert jumok("chat", run, *option, stdin="나는").code in (1, 2)


def test_models_without_a_template_are_refused_with_the_remedy(tmp_path: Path, jumok: Jumok) -> None:
    save(talking(template=None), tmp_path / "plain")
    done = jumok("chat", tmp_path / "plain", "나는")
    assert done.code == 2
    assert "jumok train talk.jsonl --task chat --init RUN" in done.err
    assert jumok("chat", tmp_path / "nothing", "나는").code == 1


@pytest.mark.slow
def test_a_template_that_loops_is_refused_in_the_terminal(tmp_path: Path, jumok: Jumok) -> None:
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}"
    save(talking(template=loop), tmp_path / "loop")
    done = jumok("chat", tmp_path / "loop", stdin="나는\n/quit\n", terminal=True)
    assert done.code == 0
    assert "too much time or memory" in done.err


# --- the terminal -----------------------------------------------------------------------------------------------------


def typed(jumok: Jumok, run: Path, *lines: str, **more: Any) -> Any:
    done = jumok("chat", run, *GREEDY, *more.get("options", ()), stdin="\n".join(lines), terminal=True)
    assert done.code == 0, done.err
    return done


def test_commands_of_the_terminal(run: Path, jumok: Jumok) -> None:
    first = answer(run, "나는")
    done = typed(
        jumok, run, "나는", "/regenerate", "/undo", "/system 집에", "나는", "/save talk.jsonl", "/quit", "집에"
    )
    with_system = answer(run, "나는", system="집에")
    shown = [one for one in done.out.split(">>> ") if one]
    assert shown[0] == first + "\n"
    assert shown[1] not in (first + "\n", "\n")  # drawn at random
    assert shown[2:] == [with_system + "\n"]
    assert "Taken back: 나는\n" in done.err
    saved = Path("talk.jsonl").read_text(encoding="utf-8")
    assert json.loads(saved) == {
        "messages": [*ask("나는", system="집에"), {"role": "assistant", "content": with_system}]
    }
    assert saved.endswith("}\n")
    assert "talk.jsonl exists" in typed(jumok, run, "나는", "/save talk.jsonl").err
    assert Path("talk.jsonl").read_text(encoding="utf-8") == saved
    helped = typed(jumok, run, "/help").err
    assert all(name in helped for name in ("/regenerate", "/undo", "/system", "/think", "/save", "/help", "/quit"))


def test_a_mistake_in_the_terminal_keeps_the_conversation(run: Path, jumok: Jumok) -> None:
    first = answer(run, "나는")
    done = typed(jumok, run, "나는", "나는 " * 60, "/sistem", "집에", "/save a.jsonl", "그리고", "/save a.jsonl")
    for words in ("the last message has", "/system", "Wrote a.jsonl"):
        assert words in done.err
    contents = [one["content"] for one in json.loads(Path("a.jsonl").read_text(encoding="utf-8"))["messages"]]
    second = answer(run, "나는", first, "집에")
    assert contents == ["나는", first, "집에", second, "그리고", answer(run, "나는", first, "집에", second, "그리고")]


def test_a_long_conversation_is_told_once(run: Path, jumok: Jumok) -> None:
    done = typed(jumok, run, *["나는 학교에 갔다"] * 9)
    assert done.err.count("no longer read") == 1


@pytest.mark.slow
@pytest.mark.parametrize("wanted", ["C.UTF-8", "xx_XX.UTF-8"])
def test_hangul_is_typed_and_deleted_by_whole_syllables(wanted: str) -> None:
    """readline dropped all of it where LC_ALL was a locale that the machine did not have."""
    pty = pytest.importorskip("pty", reason="this system has no terminals of this kind")
    pytest.importorskip("readline", reason="this Python has no readline")
    code = "from jumok.cli.chat import import_readline as i; i(); print(ascii(input('> ')))"
    ours, theirs = pty.openpty()
    environment = os.environ | {"LC_ALL": wanted, "TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", code], stdin=theirs, stdout=theirs, env=environment):
        shown = b""
        while b"> " not in shown:
            shown += os.read(ours, 1000)
        os.write(ours, "가나다\x7f\x7f라\n".encode())
        while b"'" not in shown.partition(b"'")[2]:
            shown += os.read(ours, 1000)
    os.close(ours)
    os.close(theirs)
    assert ascii("가라").encode() in shown


THINKS = TEMPLATE.removesuffix("{% endif %}") + "<think>{% endif %}"


def test_reasoning_is_shown_or_hidden(tmp_path: Path, jumok: Jumok) -> None:
    """The template begins the reasoning; a random model ends it sometimes."""
    save(talking(template=THINKS, seed=1), tmp_path / "thinks")
    seed = next(
        seed
        for seed in range(50)
        for [one] in answer_chats(load(tmp_path / "thinks"), [ask("나는")], tokens=80, temperature=1.0, seed=seed)
        if one.reasoning and one.text.strip()
    )
    [[one]] = answer_chats(load(tmp_path / "thinks"), [ask("나는")], tokens=80, temperature=1.0, seed=seed)
    how = ("--tokens", "80", "--temperature", "1", "--seed", seed)
    given = [{"role": "user", "content": "나는"}]
    for lines, shown in ((["나는"], f"{one.reasoning}\n{one.text}\n"), (["/think off", "나는"], f"{one.text}\n")):
        done = jumok("chat", tmp_path / "thinks", *how, stdin="\n".join([*lines, "/save t.jsonl"]), terminal=True)
        assert done.out.replace(">>> ", "") == shown + "\n"
        saved = json.loads(Path("t.jsonl").read_text(encoding="utf-8"))["messages"]
        Path("t.jsonl").unlink()
        assert saved == [*given, {"role": "assistant", "content": one.text, "reasoning_content": one.reasoning}]
    assert jumok("chat", tmp_path / "thinks", *how, "나는").out == one.text + "\n"


def test_ctrl_c_stops_an_answer_and_keeps_the_conversation(
    run: Path, jumok: Jumok, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jumok.cli import chat as module

    def interrupt(text: str, *, end: str = "\n") -> None:
        sys.stdout.write(text + end)
        if text == whole[0]:  # the first character of the answer
            signal.raise_signal(signal.SIGINT)

    whole = answer(run, "나는")
    monkeypatch.setattr(module, "write", interrupt)
    done = typed(jumok, run, "나는", "/save a.jsonl")
    assert done.out.startswith(f">>> {whole[0]}\n>>> ")
    saved = json.loads(Path("a.jsonl").read_text(encoding="utf-8"))["messages"]
    assert saved == ask("나는", whole[0])


def test_ctrl_c_at_the_prompt_keeps_the_conversation(run: Path, jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[Any] = ["나는", KeyboardInterrupt, UnicodeDecodeError("utf-8", b"\xff", 0, 1, "?"), "/save a.jsonl"]

    def read(_: str) -> str:
        if not lines:
            raise EOFError
        line = lines.pop(0)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)
    done = typed(jumok, run)
    assert "Ctrl-D ends" in done.err
    assert "not text in the encoding" in done.err
    assert len(json.loads(Path("a.jsonl").read_text(encoding="utf-8"))["messages"]) == 2
