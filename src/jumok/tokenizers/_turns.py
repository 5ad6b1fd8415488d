"""`Turns`: a chat template as constant pieces of text around the contents of messages.

Most templates put the same text before and after each message of a role. The pieces are found by rendering
conversations whose contents are known, and verified on others. With them a conversation is written without Jinja, by
any program, and the tokens of answers are told from the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from jumok.errors import TokenizerError

Message = Mapping[str, str]
Render = Callable[[Sequence[Message], bool], str]  # of messages, with or without the beginning of an answer

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
END = "<|end|>"
CHAT_TOKENS = ("<|system|>", "<|user|>", "<|assistant|>", END, "<think>", "</think>")
TEMPLATE = """\
{% for message in messages %}
{% if message['role'] not in ['system', 'user', 'assistant'] %}
{{ raise_exception('a role is system, user or assistant') }}
{% endif %}
{{- '<|' + message['role'] + '|>\\n' }}
{%- if message['role'] == 'assistant' and message['reasoning_content'] %}
{{- '<think>' + message['reasoning_content'] + '</think>' }}
{%- endif %}
{{- message['content'] + '<|end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|assistant|>\\n' }}
{%- endif %}"""
"""The template of jumok, that of Phi-3, which llama.cpp and Ollama know by its special tokens."""


@dataclass(frozen=True, kw_only=True)
class Turns:
    """A chat template in pieces.

    A conversation is `start` (without a system message), then for each message the piece before its role, the content,
    and the piece after it; then `generation_prompt` for an answer, or `finish`.

    Attributes:
        start: before the first message, if that is not a system message.
        roles: the pieces before and after a message by role: user, assistant, and system if the template writes system
            messages so.
        generation_prompt: what an answer follows.
        finish: what follows a conversation without `generation_prompt`.
        reasoning: before and after the reasoning_content of an answer, which stands before the content; None if the
            template does not write it so.
        strips: the roles of which contents lose the white space at both ends.
        end: the id that ends an answer: the first special token after it.
    """

    start: str
    roles: Mapping[str, tuple[str, str]]
    generation_prompt: str
    finish: str
    reasoning: tuple[str, str] | None
    strips: frozenset[str]
    end: int = -1

    def fits(self, messages: Sequence[Message]) -> bool:
        """Return whether a user and an assistant speak in turn, perhaps after a system message, and nothing is empty.

        Templates may write other conversations in another way.
        """
        names = [message["role"] for message in messages]
        turns = names[names[:1] == [SYSTEM] :]
        return (
            bool(turns)
            and all(name == (USER, ASSISTANT)[i % 2] for i, name in enumerate(turns))
            and set(names) <= self.roles.keys()
            and all(message["content"].strip() for message in messages)
            and (self.reasoning is not None or not any(message.get("reasoning_content") for message in messages))
        )

    def parts(self, messages: Sequence[Message], *, prompt: bool) -> Iterator[tuple[str, bool, bool]]:
        """Yield the parts of a conversation that `fits`: a text, whether a message has it, whether an answer does.

        Args:
            prompt: end with `generation_prompt`.
        """
        if messages[0]["role"] != SYSTEM:
            yield self.start, False, False
        for message in messages:
            name = message["role"]
            (before, after), answers = self.roles[name], name == ASSISTANT
            yield before, False, False
            if answers and self.reasoning is not None and (thought := message.get("reasoning_content")):
                yield self.reasoning[0], False, True
                yield thought, True, True
                yield self.reasoning[1], False, True
            yield message["content"].strip() if name in self.strips else message["content"], True, answers
            yield after, False, answers
        yield self.generation_prompt if prompt else self.finish, False, False

    def text(self, messages: Sequence[Message], *, prompt: bool) -> str:
        """Return the text of a conversation that `fits`."""
        return "".join(text for text, _, _ in self.parts(messages, prompt=prompt))


def own_turns() -> Turns:
    """Return the pieces of `TEMPLATE`."""
    return Turns(
        start="",
        roles={name: (f"<|{name}|>\n", f"{END}\n") for name in (SYSTEM, USER, ASSISTANT)},
        generation_prompt=f"<|{ASSISTANT}|>\n",
        finish="",
        reasoning=("<think>", "</think>"),
        strips=frozenset(),
    )


# --- finding them -----------------------------------------------------------------------------------------------------

_WORDS = ("질문의말", "대답의말", "다음질문", "다음대답")  # no template has these words
_RULE, _THOUGHT = "시스템의말", "생각의말"
_CONTENTS = (  # of which a template may change some
    "1 + 1은?",
    "  앞뒤 공백 \n",
    "줄\n\n바꿈\n\t들여쓰기",
    "<b>'따옴표\"&amp;</b>",
    "{{ x }} {% if y %} \\n",
    "😀 None",
)


class _Irregular(Exception):
    """A template does not write a conversation in constant pieces."""


def find_turns(render: Render, token: re.Pattern[str]) -> Turns | None:
    """Return the pieces of a template; None if it is not made of such pieces.

    Args:
        render: writes a text. token: finds special tokens, which are not taken apart.
    """
    try:
        turns = _found(render, token)
    except (_Irregular, TokenizerError):
        return None
    if not all(_writes(turns, render, _conversation(count)) for count in (1, 2, 3, 12)):
        return None
    if not all(_writes(turns, render, _conversation(count, system=True)) for count in (1, 2, 5)):
        turns = replace(turns, roles={name: around for name, around in turns.roles.items() if name != SYSTEM})
    if not all(_writes(turns, render, _conversation(count, reasoning=True)) for count in (2, 4, 5)):
        turns = replace(turns, reasoning=None)
    return turns


def _found(render: Render, token: re.Pattern[str]) -> Turns:
    """Return what the texts of a few conversations are made of, if they are made of constant pieces."""

    def between(messages: Sequence[Message], *, prompt: bool = False) -> list[str]:
        """Return the text before, between and after the contents."""
        words = [word for one in messages for word in (one.get("reasoning_content"), one["content"]) if word]
        pieces = re.split("|".join(words), text := render(messages, prompt))
        if re.findall("|".join(words), text) != words:
            raise _Irregular
        return pieces

    def common(*texts: str) -> str:
        """Return the longest common beginning that ends in no special token."""
        parts = ([part for part in re.split(f"({token.pattern})|", text) if part] for text in texts)
        return "".join(one[0] for one in takewhile(lambda one: len({*one}) == 1, zip(*parts, strict=False)))

    question, answer, again, _ = conversation = _said(*_WORDS)
    [first, ends], [_, asked] = between([question]), between([question], prompt=True)
    _, middle, turn, _ = between([question, answer, again])
    after_user = common(ends, asked, middle)
    after_assistant = common(turn, between([question, answer])[-1])
    before_user, before_assistant = _rest(turn, after_assistant), _rest(middle, after_user)
    roles = {USER: (before_user, after_user), ASSISTANT: (before_assistant, after_assistant)}

    reasoning = None
    thoughtful = {**answer, "reasoning_content": _THOUGHT}
    with suppress(_Irregular, TokenizerError):
        _, opening, closing, *_ = between([question, thoughtful, *conversation[2:]])
        reasoning = (_rest(opening, middle), closing)
    with suppress(_Irregular, TokenizerError):
        before, after, _ = between([{"role": SYSTEM, "content": _RULE}, question])
        roles[SYSTEM] = (before, _begin(after, before_user))

    padded = [{"role": SYSTEM, "content": f" \n{_RULE} \n"}] if SYSTEM in roles else []
    padded += [{**one, "content": f" \n{one['content']} \n"} for one in conversation[:3]]
    text = render(padded, False)
    return Turns(
        start=_begin(first, before_user),
        roles=roles,
        generation_prompt=_rest(asked, after_user),
        finish=_rest(ends, after_user),
        reasoning=reasoning,
        strips=frozenset(one["role"] for one in padded if one["content"] not in text),
    )


def _rest(text: str, begin: str) -> str:
    if not text.startswith(begin):
        raise _Irregular
    return text[len(begin) :]


def _begin(text: str, rest: str) -> str:
    if not text.endswith(rest):
        raise _Irregular
    return text[: len(text) - len(rest)]


def _said(*contents: str) -> list[dict[str, str]]:
    return [{"role": (USER, ASSISTANT)[i % 2], "content": content} for i, content in enumerate(contents)]


def _conversation(count: int, *, system: bool = False, reasoning: bool = False) -> list[dict[str, str]]:
    """Return a conversation of `count` messages, perhaps after a system message."""
    messages = _said(*(_CONTENTS[(i + count) % len(_CONTENTS)] for i in range(count)))
    if reasoning:
        messages = [
            one | ({"reasoning_content": _CONTENTS[i % len(_CONTENTS)]} if one["role"] == ASSISTANT else {})
            for i, one in enumerate(messages)
        ]
    return [{"role": SYSTEM, "content": _CONTENTS[count % len(_CONTENTS)]}, *messages] if system else messages


def _writes(turns: Turns, render: Render, messages: Sequence[Message]) -> bool:
    """Return whether the pieces make the text of the template."""
    try:
        prompts = (False, True) if messages[-1]["role"] == USER else (False,)
        return turns.fits(messages) and all(
            turns.text(messages, prompt=prompt) == render(messages, prompt) for prompt in prompts
        )
    except TokenizerError:  # of the template
        return False
