"""`ChatTemplate`: the messages of a chat as ids, by the Jinja template of a published tokenizer.

The text is that of `apply_chat_template` of `transformers`. Special tokens that the template writes become their ids.
Those that stand in a message do not: they are marked before the template is rendered, with code points that are no
characters, and what is marked is encoded as ordinary text. A template can still be made to write special tokens by
other means, for example if it joins two messages. Therefore it is rendered again for messages whose characters are
replaced, and a chat in which it then writes other special tokens is refused.

Where the template is made of constant pieces (`Turns`), a usual chat is written from these, without Jinja.
"""

from __future__ import annotations

import atexit
import json
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jumok.errors import TokenizerError
from jumok.messages import tr
from jumok.tokenizers._pipeline import require_utf8
from jumok.tokenizers._turns import ASSISTANT, TEMPLATE, USER, Message, Turns, find_turns, own_turns
from tokenizers import Tokenizer as HFTokenizer

if TYPE_CHECKING:
    import subprocess

LARGEST_TEMPLATE = 500_000  # characters; published ones have up to 30,000
OPEN, CLOSE, ANY = "\ufdd0", "\ufdd1", "\ufdd2"  # no characters, and never in a text: for use inside a program
CONTENTS = ("content", "reasoning_content")
SECONDS = 20.0  # for one text, on a busy machine too; `_template_process.py` has a limit on the time of the processor
START_SECONDS = 60.0


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
            TokenizerError: as `render`; or a message would write special tokens, or is no text.
        """
        _require_text(messages)
        if self._is_plain(messages) and not (add_generation_prompt and messages[-1]["role"] != USER):
            assert self.turns is not None
            return self._joined(self.turns.parts(messages, prompt=add_generation_prompt))[0]
        if re.search(f"[{OPEN}-{ANY}]", "".join(_texts(messages))):
            raise TokenizerError("a message contains U+FDD0, U+FDD1 or U+FDD2, which are no characters; remove them.")

        def text_of(change: Any) -> str:
            changed = [
                {**message, **{name: change(message[name]) for name in CONTENTS if message.get(name)}}
                for message in messages
            ]
            return self.render(changed, add_generation_prompt=add_generation_prompt)

        text = text_of(lambda content: self._control.sub(rf"{OPEN}\g<0>{CLOSE}", content))
        if CLOSE in text and re.sub(f"[{OPEN}{CLOSE}]", "", text) != self.render(
            messages, add_generation_prompt=add_generation_prompt
        ):
            raise self._taken_apart(messages)
        pieces = self._marked.split(text)  # text, a marked token (None for a lone mark), text, ...
        written, expected = self._written(pieces), self._written(self._marked.split(text_of(self._hidden)))
        if written != expected:
            raise TokenizerError(
                "a message changes the special tokens that the chat template writes; remove what looks like a special "
                "token or a part of one: {tokens}.",
                tokens=", ".join(sorted({*written} ^ {*expected} or {*written})),
            )
        ids = self._with_offsets(self._pipeline, pieces[0] or "", inside=False)[0]
        for i, piece in enumerate(pieces[1:], start=1):
            if piece:
                ids += self._inside(self._plain if i % 2 else self._pipeline, piece)
        return ids

    def encode_whole(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """Return the ids of a whole conversation, and which of them the assistant writes.

        These are the tokens of answers, with their reasoning, and the end of each answer's turn.

        Raises:
            TokenizerError: the template is not made of `turns`; messages do not alternate, are empty or no text, or do
                not end with an answer; or a message would write special tokens.
        """
        turns = self.turns
        if turns is None:
            raise TokenizerError(
                "the chat template of this model does not put the same text around each message of a role, so its "
                "answers cannot be told from the rest; begin with another model, or give it another template."
            )
        _require_text(messages)
        if not turns.fits(messages) or messages[-1]["role"] != ASSISTANT:
            raise TokenizerError(
                "the chat template of this model writes messages of {roles} that are not empty: the user's first, then "
                "in turn, an answer last, {reasoning}; change the conversation.",
                roles=", ".join(turns.roles),
                reasoning=tr("without reasoning") if turns.reasoning is None else tr("perhaps with reasoning"),
            )
        if not self._is_own and self._control.search("\n".join(_texts(messages))):
            text = self.render(messages, add_generation_prompt=False)
            if text != turns.text(messages, prompt=False):
                raise self._taken_apart(messages)
        return self._joined(turns.parts(messages, prompt=False))

    @cached_property
    def turns(self) -> Turns | None:
        """The template as constant pieces; None if it is not made of them, or ends answers with no special token.

        Where a template writes the date, it is that of today.
        """
        if self._is_own:
            found: Turns | None = own_turns()
        else:
            found = find_turns(
                lambda messages, prompt: self.render(messages, add_generation_prompt=prompt), self._control
            )
        end = None if found is None else self._control.search(found.roles[ASSISTANT][1])
        return None if found is None or end is None else replace(found, end=self.tokens[end[0]])

    @cached_property
    def ends(self) -> dict[str, int]:
        """The special tokens that end an answer: the first one after it, and the eos_token."""
        last = -1 if self.turns is None else self.turns.end
        return {token: i for token, i in self.tokens.items() if i == last or token == self._roles.get("eos_token")}

    @property
    def _is_own(self) -> bool:
        return self.source == TEMPLATE

    def _is_plain(self, messages: Sequence[Message]) -> bool:
        """Return whether `turns` write a chat as the template does, whatever it does with special tokens and dates."""
        if not messages or self.turns is None or not self.turns.fits(messages):
            return False
        by_itself = "strftime_now" not in self.source and not self._control.search("\n".join(_texts(messages)))
        return self._is_own or by_itself

    def _joined(self, parts: Iterable[tuple[str, bool, bool]]) -> tuple[list[int], list[bool]]:
        """Return the ids of the `parts` of `Turns`, and which of them an answer has.

        Raises:
            TokenizerError: a message would write special tokens.
        """
        runs: list[tuple[HFTokenizer, list[tuple[str, bool]]]] = []  # what is encoded together
        wanted = []
        for text, is_message, answers in parts:
            pieces = re.split(f"({self._control.pattern})", text)
            for i, piece in enumerate(pieces):
                pipeline = self._plain if is_message and i % 2 else self._pipeline
                if piece and (pipeline is self._plain or not runs or runs[-1][0] is self._plain):
                    runs.append((pipeline, []))
                if piece:
                    runs[-1][1].append((piece, answers))
                if i % 2 and not is_message:
                    wanted.append(self.tokens[piece])
                    answers = False  # the end of a turn
        ids: list[int] = []
        mask: list[bool] = []
        for number, (pipeline, texts) in enumerate(runs):
            found, offsets = self._with_offsets(pipeline, "".join(text for text, _ in texts), inside=number > 0)
            flags = np.repeat([answers for _, answers in texts], [len(text) for text, _ in texts])
            before = np.concatenate(([0], np.cumsum(flags)))  # characters of answers before each character
            starts, ends = np.array(offsets, int).reshape(-1, 2).T  # equal where a token has a part of a character
            ids += found
            mask += (before[np.maximum(ends, starts + 1)] > before[starts]).tolist()
        if [one for one in ids if one in self._control_ids] != wanted:
            raise TokenizerError(
                "a message would become a special token of this tokenizer; remove what looks like one."
            )
        return ids, mask

    def _taken_apart(self, messages: Sequence[Message]) -> TokenizerError:
        return TokenizerError(
            "the chat template of this model takes the text of a message apart at {tokens}; remove them from the "
            "messages.",
            tokens=", ".join(sorted({*self._control.findall("\n".join(_texts(messages)))})),
        )

    def _written(self, pieces: Sequence[str | None]) -> list[str]:
        """Return the special tokens in a text that was split at what is marked."""
        return [token for piece in pieces[::2] for token in self._control.findall(piece or "")]

    def _hidden(self, content: str) -> str:
        """Return a message that differs from another one in all but white space and whole special tokens."""
        parts = re.split(f"({self._control.pattern})", content)
        return "".join(f"{OPEN}{part}{CLOSE}" if i % 2 else re.sub(r"\S", ANY, part) for i, part in enumerate(parts))

    def _inside(self, pipeline: HFTokenizer, text: str) -> list[int]:
        """Return the ids of a text that does not begin a chat."""
        return self._with_offsets(pipeline, text, inside=True)[0]

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
        if pipeline is self._plain and not self._control_ids.isdisjoint(ids):
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
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.tokens.values())

    @cached_property
    def _control(self) -> re.Pattern[str]:
        longest_first = sorted(self.tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")  # (?!) is found nowhere

    @cached_property
    def _marked(self) -> re.Pattern[str]:
        return re.compile(f"{OPEN}({self._control.pattern}){CLOSE}|[{OPEN}{CLOSE}]")


def _texts(messages: Sequence[Message]) -> list[str]:
    return [text for one in messages for text in map(one.get, CONTENTS) if text]


def _require_text(messages: Sequence[Message]) -> None:
    """Raise TokenizerError for a lone surrogate."""
    for text in _texts(messages):
        require_utf8(text)


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
