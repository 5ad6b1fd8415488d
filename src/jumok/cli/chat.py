"""`jumok chat`: a conversation with a model, in the terminal or in a script."""

from __future__ import annotations

import json
import locale
import os
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jumok.cli.commands import PATH, Verb, common, option
from jumok.cli.console.output import print_json, say, write
from jumok.cli.native_step import build_native_step
from jumok.config import require_count
from jumok.errors import ConfigError, JumokError, TextError
from jumok.files import on_disk, write_atomic, writing
from jumok.messages import did_you_mean, message, tr
from jumok.processors import import_numpy

if TYPE_CHECKING:
    from jumok.inference.chat import Answer, Message

PROMPT = ">>> "
DRAWN = 0.8  # temperature of /regenerate, which would otherwise write the same answer again
COMMANDS = {  # what follows the name, and what it does
    "/regenerate": ("", message("write another answer to the last message, drawn at random")),
    "/undo": ("", message("take the last message and its answer back")),
    "/system": ("TEXT", message("instructions for the model from now on; without TEXT none")),
    "/think": ("on|off", message("show or hide what the model thinks before it answers")),
    "/save": ("FILE", message("write the conversation as JSON lines, from which `jumok train --task chat` learns")),
    "/help": ("", message("list the commands")),
    "/quit": ("", message("end; so does Ctrl-D. Ctrl-C stops an answer")),
}


@click.command(
    cls=Verb,
    short_help="Talk with a model that has learned to answer.",
    examples="""
    jumok chat runs/talk
    jumok chat runs/talk --system "짧게 대답해 주세요." --temperature 0.7
    jumok chat runs/talk "사과 세 개에 두 개를 더하면 몇 개예요?"
    jumok chat runs/talk --json < questions.txt
    """,
)
@click.argument("run", type=PATH)
@click.argument("question", required=False, metavar="[MESSAGE]")
@option("--system", metavar="TEXT", help="instructions for the model, before the conversation")
@option("--temperature", type=float, default=0.0, help="sampling temperature; 0: always the most probable token [0]")
@option("--tokens", type=int, help="maximum number of tokens of an answer [what the context has left]")
@common(seed=True)
def chat(
    run: Path,
    question: str | None,
    system: str | None,
    temperature: float,
    tokens: int | None,
    device: str,
    seed: int | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Hold a conversation with the model of a run folder, or of a transformers folder with a chat template.

    Type a message and read the answer; /help lists what else can be typed. What the model thinks before it answers is
    dimmed. With a MESSAGE the answer to it is printed, and nothing is asked for. From a pipe each line is a message,
    and only the answers are printed.
    """
    import_numpy()
    from jumok.inference.chat import require_chat
    from jumok.runs.native import load_to_write

    is_held = question is None and sys.stdin.isatty()  # in the terminal
    model = load_to_write(run, device, build=partial(build_native_step, quiet=quiet) if is_held else None)
    gpt, _ = require_chat(model)
    require_count("tokens", 1 if tokens is None else tokens, 1)
    require_count("seed", seed or 0, 0)
    talk = Conversation(gpt, system, temperature, gpt.config.context_length if tokens is None else tokens, seed, quiet)
    began = time.perf_counter()
    try:
        if question is not None:
            talk.answer(question, shown=not as_json)
        elif is_held:
            talk.hold()
        else:
            for line in _piped():
                if not talk.take(line, shown=not as_json):
                    break
    except BaseException:  # what was answered is printed before the error, which is a line of its own
        if as_json and talk.answers:
            print_json(_summary(talk, time.perf_counter() - began, seed))
        raise
    if as_json:
        print_json(_summary(talk, time.perf_counter() - began, seed))


def _summary(talk: Conversation, seconds: float, seed: int | None) -> dict[str, Any]:
    """Return the object of --json."""
    answers = [
        {"text": one.text, "reasoning": one.reasoning, "tokens": len(one.ids), "finish": one.finish}
        for one in talk.answers
    ]
    rest = {"messages": talk.messages, "seconds": seconds, "seed": seed}
    return {"text": talk.answers[-1].text if talk.answers else "", "answers": answers, **rest}


def _piped() -> Iterator[str]:
    """Yield the lines of a pipe as they come: UTF-8, or the encoding of the system."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        for encoding in ("utf-8-sig", sys.stdin.encoding):
            with suppress(UnicodeDecodeError):
                yield line.decode(encoding)
                break
        else:
            raise TextError(
                "line {number:,} of the input is not UTF-8. Convert it: iconv -f CP949 -t UTF-8", number=number
            )


class Conversation:
    """A conversation: its messages, and what is typed.

    Attributes:
        answers: all that the model wrote, also what was taken back later.
    """

    def __init__(
        self, model: Any, system: str | None, temperature: float, tokens: int, seed: int | None, quiet: bool
    ) -> None:
        from jumok.inference.engine import Engine
        from jumok.inference.sampling import Sampling

        self.answers: list[Answer] = []
        self._model, self._engine, self._tokens, self._quiet = model, Engine(model, 1), tokens, quiet
        self._sampling = Sampling(temperature=temperature)
        self._seed = secrets.randbits(63) if seed is None else seed
        self._system = system
        self._turns: list[Message] = []
        self._thinks = sys.stdin.isatty()  # whether reasoning is shown
        self._is_writing = self._is_stopped = self._told = False
        self._saved: set[Path] = set()

    @property
    def messages(self) -> list[Message]:
        """All messages, as a chat template reads them."""
        return [*([{"role": "system", "content": self._system}] if self._system is not None else []), *self._turns]

    def hold(self) -> None:
        """Read messages from the terminal and answer them, until the user ends it."""
        import_readline()
        say(tr("Type a message. /help lists the commands, Ctrl-D ends."), quiet=self._quiet)
        with self._ctrl_c():
            while True:
                try:
                    if not self.take(input(PROMPT)):
                        return
                except EOFError:
                    write("")
                    return
                except KeyboardInterrupt:
                    say("\n" + tr("/quit or Ctrl-D ends the conversation."))
                except UnicodeDecodeError:
                    say(tr("This line is not text in the encoding of the terminal; type it again."))
                except JumokError as error:
                    say(tr("jumok: {message}", message=error))

    @contextmanager
    def _ctrl_c(self) -> Iterator[None]:
        """Let Ctrl-C stop the answer that is being written; a second one ends the program."""

        def stop(*_: object) -> None:
            if not self._is_writing or self._is_stopped:
                raise KeyboardInterrupt
            self._is_stopped = True

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def take(self, line: str, *, shown: bool = True) -> bool:
        """Answer a line or obey its command; False if it ends the conversation."""
        name, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if not line.startswith("/"):
            if line.strip():
                self.answer(line.strip(), shown=shown)
        elif name == "/quit":
            return False
        elif name == "/help":
            for one, (argument, what) in COMMANDS.items():
                say(f"{f'{one} {argument}':13} {tr(what)}")
        elif name == "/system":
            self._system = rest or None
        elif name == "/think" and rest in ("on", "off"):
            self._thinks = rest == "on"
        elif name == "/save" and rest:
            self._save(on_disk(Path(rest).expanduser()))
        elif name == "/undo" and self._turns:
            say(tr("Taken back: {text}", text=self._turns[-2]["content"][:80]), quiet=self._quiet)
            del self._turns[-2:]
        elif name == "/regenerate" and self._turns:
            *before, asked, _ = self._turns
            self._turns = before
            self.answer(asked["content"], shown=shown, least_temperature=DRAWN)
        elif name in ("/undo", "/regenerate"):
            raise ConfigError("there is no answer yet; type a message first.")
        elif name in COMMANDS:
            raise ConfigError("the command is used like this: {usage}", usage=f"{name} {COMMANDS[name][0]}")
        else:
            raise ConfigError(
                "there is no command {name}.{hint} /help lists them; a message that begins with a slash needs a space "
                "before it.",
                name=name[:50],
                hint=did_you_mean(name, COMMANDS),
            )
        return True

    def answer(self, text: str, *, shown: bool = True, least_temperature: float = 0.0) -> None:
        """Write the answer to a message, and keep both; of an empty answer neither is kept."""
        from jumok.inference.chat import chat_prompt, chat_request

        asked: Message = {"role": "user", "content": text}
        messages = [*self.messages, asked]
        how = replace(self._sampling, temperature=max(self._sampling.temperature, least_temperature))
        request = chat_request(
            self._model, messages, how, tokens=self._tokens, seed=self._seed, sample=len(self.answers)
        )
        if not self._told and chat_prompt(self._model, messages, self._tokens)[1]:
            self._told = True
            note = tr("The conversation is longer than the context: its first messages are no longer read.")
            say(note, quiet=self._quiet)
        answer = self._write(request, shown)
        self.answers.append(answer)
        if not answer.text.strip():
            say(tr("The answer is empty; the message is not kept."), quiet=self._quiet)
            return
        thought = {"reasoning_content": answer.reasoning} if answer.reasoning else {}
        self._turns += [asked, {"role": "assistant", "content": answer.text, **thought}]

    def _write(self, request: Any, shown: bool) -> Answer:
        """Write an answer, and show it as it is written."""
        from jumok.inference.chat import Answer, stream_answer

        reasoning = text = ""
        self._is_writing, self._is_stopped = True, False
        stream = stream_answer(self._engine, self._model, request)
        try:
            while not self._is_stopped:
                new = next(stream)
                if shown and self._thinks:
                    _dim(new.reasoning)
                    if new.text and not text and reasoning:
                        write("")
                reasoning, text = reasoning + new.reasoning, text + new.text
                if shown and new.text:
                    write(new.text, end="")
            answer = Answer(text=text, reasoning=reasoning, ids=(), finish="stopped")
        except StopIteration as end:
            answer = end.value
        finally:
            stream.close()
            self._is_writing = False
            if shown:
                write("")
        if answer.finish == "length":
            say(tr("The answer was cut after {count:,} tokens.", count=len(answer.ids)), quiet=self._quiet)
        elif answer.finish == "loop":
            say(tr("The answer was ended, because it repeats itself."), quiet=self._quiet)
        return answer

    def _save(self, path: Path) -> None:
        """Write the conversation as one line of JSON; files of other conversations are not replaced."""
        if path.exists() and path not in self._saved:
            raise ConfigError("{path} exists; give another name.", path=path)
        with writing(path):
            write_atomic(path, json.dumps({"messages": self.messages}, ensure_ascii=False) + "\n")
        self._saved.add(path)
        say(tr("Wrote {path}.", path=path), quiet=self._quiet)


def import_readline() -> None:
    """Import readline, where there is one: it lets `input` edit a line, and knows how wide Hangul is.

    It would drop all Hangul where LC_ALL names a locale that the machine lacks, which happens over ssh.
    """
    if "LC_ALL" in os.environ and locale.setlocale(locale.LC_CTYPE) == "C":
        os.environ["LC_ALL"] = "C.UTF-8"
    with suppress(ImportError):  # Windows
        import readline  # noqa: F401


def _dim(text: str) -> None:
    """Print what a model thinks, dimmed in a terminal."""
    if text and sys.stdout.isatty():
        from jumok.text import with_signs

        click.echo(click.style(with_signs(text), dim=True), nl=False)
    elif text:
        write(text, end="")
