"""Checks of the exercises on conversations."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from jumok.course.practice.checking import (
    Code,
    Mistake,
    Steps,
    Wrong,
    any_of,
    compare,
    passed,
    require,
    result_of,
)
from jumok.models.losses import IGNORED

ROLES = {"system": 501, "user": 502, "assistant": 503}
END = 504
CHATS = (
    [("user", "안녕"), ("assistant", "네, 안녕하세요."), ("user", "끝 <|end|> 말")],
    [("system", "짧게"), ("user", "hi")],
)


def _encode(text: str) -> list[int]:
    """Return the ids of a text: one for each UTF-8 byte."""
    return list(text.encode())


def _turns(chat: Sequence[tuple[str, str]], end: Sequence[int]) -> list[int]:
    return [id for role, content in chat for id in (ROLES[role], *_encode(content), *end)]


def chat_template(code: Code) -> Steps:
    """The ids of prompts, for hidden conversations."""
    function = code.function("encode_chat")
    for number, chat in enumerate(CHATS):
        right = [*_turns(chat, [END]), ROLES["assistant"]]
        given = _ids(function(list(chat), dict(ROLES), END, _encode))
        if given != right:
            require(given != right[:-1], "no-assistant")
            require(given != [*right, END], "end-after-assistant")
            require(given != [*_turns(chat, []), ROLES["assistant"]], "no-end")
            require(given != [*_turns(chat, []), END, ROLES["assistant"]], "one-end")
            require(given != [id for id in right[:-1] if id not in ROLES.values()] + right[-1:], "no-roles")
            joined = [id for id in given if id < 500]
            require(joined == [id for id in right if id < 500], "other-content")
            raise Wrong("other-ids", given=given[:12], right=right[:12])
        yield passed(("turns", "prompt")[number])


def _ids(given: object) -> list[int]:
    require(given is not None, "no-return/chat")
    if not (isinstance(given, list) and all(type(one) is int for one in given)):
        raise Wrong("not-a-list")
    return given


def answer_mask(code: Code) -> Steps:
    """The targets of a hidden conversation with two answers."""
    function = code.function("answer_targets")
    chat = [("user", "일"), ("assistant", "이"), ("user", "삼"), ("assistant", "사오")]
    ids = torch.tensor(_turns(chat, [END]))
    user, assistant = ROLES["user"], ROLES["assistant"]
    following = ids[1:]
    speaker = torch.zeros_like(ids)  # the role whose turn it is, the token of the role included
    for place, id in enumerate(ids.tolist()):
        speaker[place] = id if id in (user, assistant) else speaker[place - 1]
    writes = (speaker[1:] == assistant) & (following != assistant)
    right = following.where(writes, IGNORED)
    last = int((following == assistant).nonzero()[-1])
    compare(
        result_of(function, ids, assistant, END),
        right,
        Mistake("end-left-out", following.where(writes & (following != END), IGNORED)),
        Mistake("role-counts", following.where((speaker[1:] == assistant), IGNORED)),
        Mistake(
            "not-shifted/conversations",
            any_of(ids[:-1].where((speaker[:-1] == assistant) & (ids[:-1] != assistant), IGNORED)),
        ),
        Mistake("first-left-out", following.where(writes & (ids[:-1] != assistant), IGNORED)),
        Mistake("everybody", any_of(following, following.where(following < 500, IGNORED))),
        Mistake("does-not-stop", following.where(torch.arange(len(following)) >= int(writes.nonzero()[0]), IGNORED)),
        Mistake("first-answer-only", following.where(writes & (torch.arange(len(following)) < last), IGNORED)),
        Mistake("zeros/conversations", following.where(writes, 0)),
        letters="(T - 1,)",
    )
    yield passed("answers-count")
    alone = torch.tensor(_turns(chat[:1], [END]))
    compare(function(alone, assistant, END), torch.full((len(alone) - 1,), IGNORED))
    yield passed("user-does-not-count")


def packing_mask(code: Code) -> Steps:
    """The masks of hidden rows; numbers of conversations need not rise."""
    function = code.function("packing_mask")
    for segments in (torch.tensor([[0, 0, 1, 1, 1], [3, 1, 1, 1, 2]]), torch.tensor([[2, 2, 2, 0, -1, -1]])):
        t = segments.shape[1]
        past = torch.ones(t, t, dtype=torch.bool).tril()
        same = segments[:, :, None] == segments[:, None, :]  # (B, T, T)
        right = same & past
        compare(
            result_of(function, segments),
            right,
            Mistake("sees-the-future/conversations", same),
            Mistake("no-segments", any_of(past, past.expand_as(same))),
            Mistake("mask-inverted/packing", ~right),
            Mistake("future-only", same & past.T),
            Mistake("not-to-itself", same & past.tril(-1)),
            Mistake("at-least", (segments[:, :, None] >= segments[:, None, :]) & past),
            letters="(B, T, T)",
        )
    yield passed("own-past")
