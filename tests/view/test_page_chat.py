"""Conversations in a page: what the page reads and answers is what `jumok chat` does with the same parameters."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from test_page_engine import ask

from jumok.config import GPTConfig
from jumok.inference.chat import answer_chats, answer_of, chat_prompt
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer, with_chat
from jumok.view.model_page import ModelPage, rounded
from talking_models import TEXT, looping

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")]

CONTEXT = 160
QUESTIONS = (
    "나는 학교에 갔다.",
    "<|user|>\n<|assistant|>네<|end|>",
    " <|end|> <think>둘</think>[PAD]",
    "<|us<|user|>er|> <|<|end|>end|>",
    "  앞뒤 공백 \x1f\n\n",
    "뷁 😀 \u200d\ufeff\x85 e\u0301 A1 don't",
)


def said(*contents: str, system: str = "", thought: str = "") -> list[dict[str, str]]:
    """A conversation in which the user speaks first."""
    rules = [{"role": "system", "content": system}] if system else []
    turns = [{"role": ("user", "assistant")[i % 2], "content": one} for i, one in enumerate(contents)]
    return rules + [
        one | ({"reasoning_content": thought} if thought and one["role"] != "user" else {}) for one in turns
    ]


CONVERSATIONS = [
    *(said(one) for one in QUESTIONS),
    said(*QUESTIONS[:5]),
    said(*QUESTIONS[1:], *QUESTIONS[:2], system="<|system|>짧게", thought=" <think>하나</think> 둘\n"),
    said(*["하나 둘 셋 넷"] * 41, system="짧게"),  # longer than the context
]


def talking(kind: str, template: str = "", seed: int = 0, **config: Any) -> GPT:
    """A random GPT with a chat template: jumok's own, or another one."""
    tokenizer = with_chat(
        train_tokenizer(TEXT, kind, special_tokens=("[PAD]",), vocab_size=290 if kind == "bpe" else None)
    )
    if template:
        tokenizer.chat_templates = {"default": template}
    torch.manual_seed(seed)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 32, "context_length": CONTEXT, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**{**sizes, **config})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize("kind", ["char", pytest.param("jamo", marks=pytest.mark.long), "bpe"])
def test_a_page_reads_the_ids_of_the_template(kind: str) -> None:
    model = talking(kind)
    found = ask(model, *(("prompt", one, {"tokens": 50}) for one in CONVERSATIONS))
    for messages, one in zip(CONVERSATIONS, found, strict=True):
        ids, left = chat_prompt(model, messages, 50)
        assert (one["found"]["ids"], one["found"]["left"]) == (ids, left), messages
        assert one["found"]["tokens"] == min(50, CONTEXT - len(ids))
    assert found[-1]["found"]["left"] > 0


def parts(events: list[dict[str, Any]], rest: str) -> tuple[str, str]:
    """The text and the reasoning of an answer, from the tokens of a page."""
    events = [*events, {"added": rest}]
    text, thought = ("".join(e["added"] for e in events if bool(e.get("thought")) is kind) for kind in (False, True))
    return text, thought.strip()


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_greedy_answers_are_those_of_python(kind: str) -> None:
    finishes = set()
    for seed in range(3):
        model = talking(kind, seed=seed)
        prompts = [chat_prompt(model, one, 60)[0] for one in CONVERSATIONS]
        greedy = {"sampling": {"temperature": 0}, "begun": []}
        found = ask(model, *(("write", ids, {**greedy, "tokens": min(60, CONTEXT - len(ids))}) for ids in prompts))
        answers = answer_chats(rounded(model), CONVERSATIONS, tokens=60)
        for ids, one, [answer] in zip(prompts, found, answers, strict=True):
            assert one["found"]["ids"] == [*ids, *answer.ids]
            assert parts(one["events"], one["found"]["rest"]) == (answer.text, answer.reasoning)
            assert one["found"]["ended"] == {"stop": "end"}.get(answer.finish, answer.finish)
            finishes.add(answer.finish)
    assert finishes == {"stop", "length"}


@pytest.mark.parametrize(
    ("kind", "cycle"),
    [
        ("char", "ㅋ"),
        ("char", "뷁"),
        ("char", "친구와 집에다.그리고하나둘셋"),
        ("jamo", "하루"),
        ("bpe", "나는 학교에"),
    ],
)
def test_an_answer_that_repeats_itself_ends_where_it_does_in_python(kind: str, cycle: str) -> None:
    """It went on to the end of the context."""
    model = looping(cycle, kind)
    messages = said("안녕")
    ids, _ = chat_prompt(model, messages, 400)
    settings = {"sampling": {"temperature": 0}, "tokens": 400}
    answered, continued = ask(model, ("write", ids, {**settings, "begun": []}), ("write", ids, settings))
    [[answer]] = answer_chats(rounded(model), [messages], tokens=400)
    assert answered["found"]["ids"] == [*ids, *answer.ids]
    assert answered["found"]["ended"] == answer.finish == "loop"
    assert parts(answered["events"], answered["found"]["rest"]) == (answer.text, "")
    assert continued["found"]["ended"] == "length"  # a text that is continued may repeat itself


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_reasoning_and_stray_tokens_are_divided_as_in_python(kind: str) -> None:
    """A hot model writes tokens of the template anywhere, and half characters before them."""
    model = talking(kind)
    think, close, space = (
        model.tokenizer.chat.tokens["<think>"],
        model.tokenizer.chat.tokens["</think>"],
        *model.tokenizer.encode(" ").tolist(),
    )
    letters = model.tokenizer.encode("나는").tolist()
    begins = [
        [],
        [think],
        [space, think, *letters, space, close, space, *letters],
        [space, space, think, space],
        [close],
        [think, close, space],
        [think, think, close, close],
    ]
    ids = chat_prompt(model, said("하나"), 60)[0]
    asks = [(one, seed) for one in begins for seed in range(8)]
    hot = {"temperature": 5}
    found = ask(
        model,
        *(("write", ids, {"tokens": 40, "sampling": {**hot, "seed": seed}, "begun": one}) for one, seed in asks),
    )
    with_reasoning = 0
    for (begun, _), one in zip(asks, found, strict=True):
        drawn = one["found"]["ids"][len(ids) :]
        assert drawn[: len(begun)] == begun
        answer = answer_of(model, drawn, "length")
        assert parts(one["events"], one["found"]["rest"]) == (answer.text, answer.reasoning), drawn
        with_reasoning += bool(answer.reasoning and answer.text)
    assert with_reasoning > 3


@pytest.mark.parametrize("content", ["가" * 5000, "\ud800 나"])
def test_what_cannot_be_read_is_refused(content: str) -> None:
    [found] = ask(talking("char"), ("prompt", said(content), {"tokens": 50}))
    assert found["code"] == ("engine.surrogate" if "\ud800" in content else "engine.turn_too_long")


def test_a_page_with_the_template_of_another_model_has_no_conversation() -> None:
    model = talking("char")
    assert ModelPage(model, "tiny").header["about"]["chat"] is not None
    model = talking("char", "{{ messages[-1].content }}")
    assert ModelPage(model, "tiny").header["about"]["chat"] is None
    [found] = ask(model, ("prompt", said("하나"), {"tokens": 50}))
    assert found["code"] == "engine.not_this_model"
