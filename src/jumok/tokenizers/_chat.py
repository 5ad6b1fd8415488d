"""`ChatTemplate`: the messages of a chat as ids, by the Jinja template of a published tokenizer.

The text is that of `apply_chat_template` of `transformers`. Special tokens that the template writes become their ids.
Those that stand in a message do not: they are marked before the template is rendered, with halves of surrogate pairs,
which no message has, and what is marked is encoded as ordinary text. A template can still be made to write special
tokens by other means, for example if it joins two messages. Therefore it is rendered again for messages whose
characters are replaced, and a chat whose ids have other special tokens is refused.

The template of jumok (`_own_template.py`) is written without Jinja.
"""

from __future__ import annotations

import atexit
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.errors import TokenizerError
from jumok.messages import tr
from jumok.tokenizers._own_template import (
    ASSISTANT,
    END,
    ROLES,
    TEMPLATE,
    TEMPLATE_AFTER_BOS,
    USER,
    Message,
    own_text,
)
from jumok.tokenizers._pipeline import require_utf8
from tokenizers import Tokenizer as HFTokenizer

if TYPE_CHECKING:
    import subprocess

LARGEST_TEMPLATE = 500_000  # characters; published ones have up to 30,000
OPEN, CLOSE, ANY = "\ud800", "\ud801", "\ud802"  # halves of surrogate pairs are in no text
CONTENTS = ("content", "reasoning_content")
SECONDS = 20.0  # for one text, on a busy machine too; `_template_process.py` has a limit on the time of the processor
START_SECONDS = 60.0
# A conversation to try a template with; no template has these words.
_QUESTION, _ANSWER, _THOUGHT = "질문의말", "대답의말", "생각의말"
_PROBE = ({"role": USER, "content": _QUESTION}, {"role": ASSISTANT, "content": _ANSWER})

_TIME = ContextVar[datetime | None]("time of the chat that is being encoded", default=None)


@contextmanager
def _at_one_time() -> Iterator[None]:
    """Let a chat have one time, however often its template is rendered: the date may turn in between."""
    token = _TIME.set(datetime.now())
    try:
        yield
    finally:
        _TIME.reset(token)


class ChatTemplate:
    """The template of a tokenizer.

    Args:
        source: the template. tokenizer: the content of tokenizer.json. roles: special tokens by role, such as
            "bos_token", which a template may name.

    Attributes:
        time: at which chats are written, which a template may ask for; None: now, the same for all of a chat.
    """

    time: datetime | None = None

    def __init__(self, source: str, tokenizer: str, roles: Mapping[str, str]) -> None:
        self.source = source
        self._json, self._roles = tokenizer, dict(roles)

    @property
    def reads_the_clock(self) -> bool:
        """Whether chats depend on the time."""
        return "strftime_now" in self.source

    def at(self, time: datetime) -> ChatTemplate:
        """Return a template that writes all chats as at this time."""
        template = copy(self)
        template.time = time
        return template

    @property
    def is_own(self) -> bool:
        """Whether it is the template of jumok."""
        return self.source in (TEMPLATE, TEMPLATE_AFTER_BOS)

    @cached_property
    def _bos(self) -> str:
        """What the template of jumok writes before a conversation."""
        return self._roles.get("bos_token", "") if self.source == TEMPLATE_AFTER_BOS else ""

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Return the text of a chat.

        Args:
            messages: with "role" and "content" each.
            add_generation_prompt: end with the beginning of an answer.

        Raises:
            TokenizerError: the template refuses the messages, is damaged, or takes too much time or memory.
        """
        if self.is_own and all(one["role"] in ROLES for one in messages):
            return own_text(messages, prompt=add_generation_prompt, bos=self._bos)[0]
        values: dict[str, Any] = {"messages": list(messages), "tools": None, "documents": None, **self._roles}
        values["add_generation_prompt"] = add_generation_prompt
        return _process.render(self.source, values, self.time or _TIME.get() or datetime.now())

    @_at_one_time()
    def encode(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """Return the ids of a chat; see the head of this module for special tokens in messages.

        Raises:
            TokenizerError: as `render`; or a message would write special tokens, or is no text.
        """
        return self._encoded(messages, add_generation_prompt)[1]

    @_at_one_time()
    def encode_whole(self, messages: Sequence[Message], most: int | None = None) -> tuple[list[int], list[bool]]:
        """Return the ids of a whole conversation, and which of them are learned.

        These are the tokens of answers, with their reasoning, and the end of each answer's turn. An answer with a
        "weight" of "0" is only read.

        Args:
            most: return two empty lists if there are more ids.

        Raises:
            TokenizerError: as `encode`; or the conversation does not end with an answer; or the template does not write
                all of a learned answer, or writes it in another way once the conversation goes on.
        """
        learned = [i for i, one in enumerate(messages) if one["role"] == ASSISTANT and one.get("weight") != "0"]
        messages = [{name: text for name, text in one.items() if name != "weight"} for one in messages]
        text, ids, places = self._encoded(messages, False)
        if most is not None and len(ids) > most:
            return [], []
        counted = np.zeros(len(text), int)
        for start, end in self._answers(messages, text, learned):
            counted[start:end] = 1
        before = np.concatenate(([0], np.cumsum(counted)))  # characters of answers before each character
        starts, ends = np.array(places, int).reshape(-1, 2).T  # equal where a token has a part of a character
        ends = np.minimum(np.maximum(ends, starts + 1), len(text))
        return ids, (before[ends] > before[starts]).tolist()

    @cached_property
    def writes_reasoning(self) -> bool:
        """Whether the template writes the reasoning of the last answer; some leave out that of earlier ones."""
        question, answer = _PROBE
        with suppress(TokenizerError):
            chat = [question, {**answer, "reasoning_content": _THOUGHT}]
            return self.is_own or _THOUGHT in self.render(chat, add_generation_prompt=False)
        return False

    @cached_property
    def ends(self) -> dict[str, int]:
        """The special tokens that end an answer: the first one after it, and the eos_token."""
        known = (self._end, self._roles.get("eos_token"))
        return {token: i for token, i in self.tokens.items() if token in known}

    @cached_property
    def _end(self) -> str | None:
        """The special token that ends an answer, if there is one."""
        if self.is_own:
            return END
        with suppress(TokenizerError):
            _, word, rest = self.render(_PROBE, add_generation_prompt=False).rpartition(_ANSWER)
            if word and (found := self._control.search(rest)):
                return found[0]
        return None

    def _answers(self, messages: Sequence[Message], text: str, learned: Sequence[int]) -> list[tuple[int, int]]:
        """Return where answers stand in the marked text of a conversation, from the prompt to the end of the turn.

        A template without the messages that follow must write the same up to there.

        Args:
            learned: the places of these answers among the messages.
        """
        if not messages or messages[-1]["role"] != ASSISTANT:
            raise TokenizerError("a conversation to learn from ends with an answer; change the conversation.")
        if self.is_own:
            spans = own_text(self._changed(messages, self._mark), prompt=False, bos=self._bos)[1]
            places = [i for i, one in enumerate(messages) if one["role"] == ASSISTANT]
            return [span for place, span in zip(places, spans, strict=True) if place in learned]
        end = re.compile(f"(?<!{OPEN}){re.escape(self._end)}") if self._end else re.compile("(?!)")
        answers = []
        for count in learned:
            before, after = self._marked_text(messages[:count], True), self._marked_text(messages[: count + 1], False)
            found = end.search(after, len(before))
            if not (found and after.startswith(before) and text.startswith(after[: found.end()])):
                raise TokenizerError(
                    "the chat template of this model writes the beginning of a conversation in another way once it "
                    "goes on, or does not end answers with a special token, so answers cannot be told from the rest; "
                    "give conversations of one question and answer, or earlier answers the weight 0, or begin with "
                    "another model."
                )
            said = [self._mark(one).strip() for one in map(messages[count].get, CONTENTS) if one]
            if not all(one in after[len(before) : found.end()] for one in said):
                raise TokenizerError(
                    "the chat template of this model does not write the whole answer and its reasoning; leave the "
                    "reasoning out, or begin with another model."
                )
            answers.append((len(before), found.end()))
        return answers

    def _encoded(self, messages: Sequence[Message], prompt: bool) -> tuple[str, list[int], list[tuple[int, int]]]:
        """Return the marked text of a chat, its ids, and where each id stands in the text."""
        for one in _texts(messages):
            require_utf8(one)
        text, ids, places, at = self._marked_text(messages, prompt), list[int](), list[tuple[int, int]](), 0
        for mark in [*self._marked.finditer(text), None]:
            pieces = [(self._pipeline, at, len(text) if mark is None else mark.start())]
            if mark is not None:
                pieces.append((self._plain, *mark.span(1)))
                at = mark.end()
            for pipeline, start, end in pieces:
                if start < end:
                    found, offsets = self._with_offsets(pipeline, text[start:end], inside=start > 0)
                    ids += found
                    places += [(start + first, start + last) for first, last in offsets]
        hidden = self._marked.sub(ANY, self.render(self._changed(messages, self._hide), add_generation_prompt=prompt))
        written, expected = [i for i in ids if i in self._names], self._control.findall(hidden)
        if written != [self.tokens[token] for token in expected]:
            tokens = {self._names[i] for i in written}
            raise TokenizerError(
                "a message changes the special tokens that the chat template writes; remove what looks like a special "
                "token or a part of one: {tokens}.",
                tokens=", ".join(sorted(tokens ^ {*expected} or tokens)),
            )
        return text, ids, places

    def _marked_text(self, messages: Sequence[Message], prompt: bool) -> str:
        """Return the text of a chat, in which special tokens of messages stand between OPEN and CLOSE."""
        text = self.render(self._changed(messages, self._mark), add_generation_prompt=prompt)
        if OPEN in text or CLOSE in text:
            whole = self._marked.sub(r"\1", text)
            if whole != self.render(messages, add_generation_prompt=prompt):
                raise TokenizerError(
                    "the chat template of this model takes the text of a message apart at {tokens}; remove them from "
                    "the messages.",
                    tokens=", ".join(sorted({*self._control.findall("\n".join(_texts(messages)))})),
                )
        return text

    def _changed(self, messages: Sequence[Message], change: Callable[[str], str]) -> Sequence[Message]:
        return [{**one, **{name: change(one[name]) for name in CONTENTS if one.get(name)}} for one in messages]

    def _mark(self, content: str) -> str:
        return self._control.sub(rf"{OPEN}\g<0>{CLOSE}", content)

    def _hide(self, content: str) -> str:
        """Return a message that differs from another one in all but white space and whole special tokens."""
        parts = re.split(f"({self._control.pattern})", content)
        return "".join(f"{OPEN}{part}{CLOSE}" if i % 2 else re.sub(r"\S", ANY, part) for i, part in enumerate(parts))

    def _with_offsets(
        self, pipeline: HFTokenizer, text: str, *, inside: bool
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and where in the text each stands.

        Args:
            inside: the text does not begin a chat, so the space that some tokenizers put first is left out.
        """
        encoding, count = pipeline.encode(text, add_special_tokens=False), 0
        if inside:
            before, after = (pipeline.encode(one, add_special_tokens=False) for one in ("\n", "\n" + text))
            if after.ids[: len(before.ids)] == before.ids:
                encoding, count = after, len(before.ids)
        ids = list(encoding.ids[count:])
        if pipeline is self._plain and not self._names.keys().isdisjoint(ids):
            raise TokenizerError(
                "a message contains {token!r}, which this tokenizer cannot write as ordinary text; remove it.",
                token=text,
            )
        shift = 1 if count else 0
        return ids, [(start - shift, end - shift) for start, end in encoding.offsets[count:]]

    @cached_property
    def _pipeline(self) -> HFTokenizer:
        """The tokenizer without its post-processor, which would change offsets."""
        return HFTokenizer.from_str(json.dumps({**json.loads(self._json), "post_processor": None}))

    @cached_property
    def _plain(self) -> HFTokenizer:
        """The tokenizer without special tokens."""
        return HFTokenizer.from_str(json.dumps({**json.loads(self._json), "added_tokens": [], "post_processor": None}))

    @cached_property
    def tokens(self) -> dict[str, int]:
        """Special tokens, and other added ones that the template writes, such as <think>."""
        added = self._pipeline.get_added_tokens_decoder()
        return {
            token.content: number
            for number, token in added.items()
            if token.special or (token.content in self.source and token.content.strip())
        }

    @cached_property
    def _names(self) -> dict[int, str]:
        return {number: token for token, number in self.tokens.items()}

    @cached_property
    def _control(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")  # (?!) is found nowhere

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        return re.compile(f"{OPEN}({self._control.pattern}){CLOSE}")


def _texts(messages: Sequence[Message]) -> list[str]:
    return [text for one in messages for text in map(one.get, CONTENTS) if text]


class _TemplateProcess:
    """A process that renders templates, started with the first one and again after one that had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def render(self, template: str, values: Mapping[str, Any], time: datetime) -> str:
        """Return the text; see `ChatTemplate.render`."""
        if len(template) > LARGEST_TEMPLATE:
            size = {"size": len(template), "most": LARGEST_TEMPLATE}
            raise _refused(tr("it has {size:,} characters; at most {most:,} are allowed", **size))
        with self._lock:
            if self._process is None:
                self._start()
            request = {"template": template, "values": values, "time": time.isoformat()}
            line = self._line(SECONDS, json.dumps(request) + "\n")
        if not line:
            raise _refused(tr("it takes too much time or memory"))
        found = json.loads(line)
        if "text" not in found:
            raise _refused(found["error"])
        return str(found["text"])

    def _start(self) -> None:
        import subprocess  # few templates need the process

        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("_template_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="ascii",
        )
        if not self._line(START_SECONDS):
            raise _refused(tr("the process that renders templates cannot be started"))

    def _line(self, seconds: float, request: str = "") -> str:
        """Send a request and return the answer; the process is ended where none comes in time."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        line = ""
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:  # it has ended
            pass
        finally:
            timer.cancel()
            if not line:
                self.close()
        return line

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):  # what it did not read
                stream.close()  # type: ignore[union-attr]
        process.wait()


def _refused(reason: str) -> TokenizerError:
    return TokenizerError("the chat template of this model cannot be used: {reason}.", reason=reason.rstrip("."))


_process = _TemplateProcess()
atexit.register(_process.close)
