"""Checks of the exercises on conversations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from jumok.course.practice.checking import (
    Code,
    Steps,
    Wrong,
    compare,
    passed,
    require,
    require_equal,
    result_of,
    results,
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
        require(given != [*_turns(chat[:1], [END]), ROLES["assistant"]], "first-message-only")
        same_text = [id for id in given if id < 500] == [id for id in right if id < 500]
        key = "other-ids" if same_text else "other-content"
        require_equal(given, right, key, given=given[:12], right=right[:12])
        yield passed(("turns", "prompt")[number])


def _ids(given: object) -> list[int]:
    require(given is not None, "no-return")
    kind = type(given).__name__
    if isinstance(given, list):
        kind += f" ({', '.join(sorted({type(one).__name__ for one in given}))})"
    if not (isinstance(given, list) and all(type(one) is int for one in given)):
        raise Wrong("not-a-list", kind=kind)
    return given


def answer_mask(code: Code) -> Steps:
    """The targets of a hidden conversation with two answers."""
    function = code.function("answer_targets")
    assistant = ROLES["assistant"]
    chat = [("user", "일"), ("assistant", "이"), ("user", "삼"), ("assistant", "사오")]
    ids = torch.tensor(_turns(chat, [END]))
    right, writes = [], False  # writes: whether the assistant writes what follows
    for id, following in pairwise(ids.tolist()):
        writes = id == assistant or (writes and id != END)
        right.append(following if writes else IGNORED)
    compare(result_of(function, ids, assistant, END), torch.tensor(right), letters="(T - 1,)")
    yield passed("answers-count")
    alone = torch.tensor(_turns(chat[:1], [END]))
    compare(function(alone, assistant, END), torch.full((len(alone) - 1,), IGNORED))
    yield passed("user-does-not-count")


def _packed(segments: Tensor) -> Tensor:
    same = segments[:, :, None] == segments[:, None, :]  # (B, T, T)
    return same & torch.ones_like(same).tril()


# The numbers of conversations need not rise.
packing_mask = results(
    "packing_mask",
    _packed,
    {"own-past": [(torch.tensor([[0, 0, 1, 1, 1], [3, 1, 1, 1, 2]]),), (torch.tensor([[2, 2, 2, 0, -1, -1]]),)]},
    letters="(B, T, T)",
)
