"""`ChatTemplate`: the messages of a chat as ids, by the Jinja template of a published tokenizer.

The text is that of `apply_chat_template` of `transformers`. Special tokens that the template writes become their ids.
Those that stand in a message do not: they are marked before the template is rendered, with code points that are no
characters, and what is marked is encoded as ordinary text. A template can still be made to write special tokens by
other means, for example if it joins two messages. Therefore it is rendered again for messages whose characters are
replaced, and a chat in which it then writes other special tokens is refused.
"""

from __future__ import annotations

import atexit
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jumok.errors import TokenizerError
from jumok.messages import tr
from tokenizers import Tokenizer as HFTokenizer

LARGEST_TEMPLATE = 500_000  # characters; published ones have up to 30,000
OPEN, CLOSE, ANY = "\ufdd0", "\ufdd1", "\ufdd2"  # no characters, and never in a text: for use inside a program
SECONDS = 20.0  # for one text, on a busy machine too; `_template_process.py` has a limit on the time of the processor
START_SECONDS = 60.0

Message = Mapping[str, str]


class ChatTemplate:
    """The template of a tokenizer.

    Args:
        source: the template. tokenizer: the content of tokenizer.json. roles: special tokens by role, such as
            "bos_token", which a template may name.
    """

    def __init__(self, source: str, tokenizer: str, roles: Mapping[str, str]) -> None:
        self.source = source
        self._json, self._roles = tokenizer, dict(roles)

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """Return the text of a chat.

        Args:
            messages: with "role" and "content" each.
            add_generation_prompt: end with the beginning of an answer.

        Raises:
            TokenizerError: the template refuses the messages, is damaged, or takes too much time or memory.
        """
        values = {"messages": list(messages), "tools": None, "documents": None, **self._roles}
        return _process.render(self.source, {**values, "add_generation_prompt": add_generation_prompt})

    def encode(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
        """Return the ids of a chat; see the head of this module for special tokens in messages.

        Raises:
            TokenizerError: as `render`; or a message would write special tokens.
        """
        if re.search(f"[{OPEN}-{ANY}]", "".join(message["content"] for message in messages)):
            raise TokenizerError("a message contains U+FDD0, U+FDD1 or U+FDD2, which are no characters; remove them.")

        def text_of(change: Any) -> str:
            changed = [{**message, "content": change(message["content"])} for message in messages]
            return self.render(changed, add_generation_prompt=add_generation_prompt)

        text = text_of(lambda content: self._control.sub(rf"{OPEN}\g<0>{CLOSE}", content))
        if CLOSE in text and re.sub(f"[{OPEN}{CLOSE}]", "", text) != self.render(
            messages, add_generation_prompt=add_generation_prompt
        ):
            raise TokenizerError(
                "the chat template of this model takes the text of a message apart at {tokens}; remove them from the "
                "messages.",
                tokens=", ".join(sorted({*self._control.findall("\n".join(one["content"] for one in messages))})),
            )
        pieces = self._marked.split(text)  # text, a marked token (None for a lone mark), text, ...
        written, expected = self._written(pieces), self._written(self._marked.split(text_of(self._hidden)))
        if written != expected:
            raise TokenizerError(
                "a message changes the special tokens that the chat template writes; remove what looks like a special "
                "token or a part of one: {tokens}.",
                tokens=", ".join(sorted({*written} ^ {*expected} or {*written})),
            )
        ids = self._encoded(self._pipeline, pieces[0])
        for i, piece in enumerate(pieces[1:], start=1):
            if piece:
                ids += self._inside(self._plain if i % 2 else self._pipeline, piece)
        return ids

    def _written(self, pieces: Sequence[str | None]) -> list[str]:
        """Return the special tokens in a text that was split at what is marked."""
        return [token for piece in pieces[::2] for token in self._control.findall(piece or "")]

    def _hidden(self, content: str) -> str:
        """Return a message that differs from another one in all but white space and whole special tokens."""
        parts = re.split(f"({self._control.pattern})", content)
        return "".join(f"{OPEN}{part}{CLOSE}" if i % 2 else re.sub(r"\S", ANY, part) for i, part in enumerate(parts))

    def _inside(self, pipeline: HFTokenizer, text: str) -> list[int]:
        """Return the ids of a text that does not begin a chat: without the space that some tokenizers put first."""
        before, ids = (self._encoded(pipeline, one) for one in ("\n", "\n" + text))
        return ids[len(before) :] if ids[: len(before)] == before else self._encoded(pipeline, text)

    def _encoded(self, pipeline: HFTokenizer, text: str) -> list[int]:
        ids = list(pipeline.encode(text, add_special_tokens=False).ids)
        if pipeline is self._plain and not self._control_ids.isdisjoint(ids):
            raise TokenizerError(
                "a message contains {token!r}, which this tokenizer cannot write as ordinary text; remove it.",
                token=text.strip("\n"),
            )
        return ids

    @cached_property
    def _pipeline(self) -> HFTokenizer:
        return HFTokenizer.from_str(self._json)

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
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.tokens.values())

    @cached_property
    def _control(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")  # (?!) is found nowhere

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        return re.compile(f"{OPEN}({self._control.pattern}){CLOSE}|[{OPEN}{CLOSE}]")


class _TemplateProcess:
    """A process that renders templates, started with the first one and again after one that had to be ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def render(self, template: str, values: Mapping[str, Any]) -> str:
        """Return the text; see `ChatTemplate.render`."""
        if len(template) > LARGEST_TEMPLATE:
            size = {"size": len(template), "most": LARGEST_TEMPLATE}
            raise _refused(tr("it has {size:,} characters; at most {most:,} are allowed", **size))
        with self._lock:
            if self._process is None:
                self._start()
            line = self._line(SECONDS, json.dumps({"template": template, "values": values}) + "\n")
        if not line:
            raise _refused(tr("it takes too much time or memory"))
        found = json.loads(line)
        if "text" not in found:
            raise _refused(found["error"])
        return str(found["text"])

    def _start(self) -> None:
        if find_spec("jinja2") is None:
            raise TokenizerError(
                "a chat template needs jinja2, which is not installed. Install it with: pip install 'jumok[serve]'"
            )
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
