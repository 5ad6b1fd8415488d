"""Models of `transformers` behind the API: chat templates, special and forced ids; and what all requests share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import torch
from torch import nn

import jumok
from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.inference.answer import answer
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.runs.load import load
from jumok.serve.app import create_app
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModels
from jumok.serve.settings import ServeSettings
from jumok.tokenizers import Tokenizer, with_chat
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as HFTokenizer

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다. 그리고 친구와 집에 왔다!\n" * 6
SETTINGS = ServeSettings(slots=8, waiting=8, max_prompt=2_000, max_tokens=500)
CHAT = [
    {"role": "system", "content": "짧게."},
    {"role": "user", "content": "나는?"},
    {"role": "assistant", "content": None},
    {"role": "user", "content": [{"type": "text", "text": "친구와"}]},
]
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    "{% if messages[-1].content == '거절' %}{{ raise_exception('no') }}{% endif %}"
)


def sentencepiece() -> Tokenizer:
    """A tokenizer as that of Llama 2, with tokens for the turns of a chat."""
    letters = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *sorted({*TEXT} - {" ", "\n"})]
    vocab = {letter: i for i, letter in enumerate(letters)}
    words = HFTokenizer(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    words.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    turns = [f"<|{name}|>" for name in ("system", "user", "assistant", "end")]
    words.add_special_tokens([AddedToken(one, normalized=False) for one in ("<unk>", "<s>", "</s>", *turns)])
    words.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = Tokenizer(words)
    tokenizer.roles = {"bos_token": "<s>", "eos_token": "<|end|>"}
    tokenizer.chat_templates = {"default": TEMPLATE}
    return tokenizer


def saved(folder: Path, config: Any, tokenizer: Tokenizer, **given: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 64, "vocab_size": tokenizer.vocab_size}
    model = build(config(**{**sizes, **given})).eval()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    jumok.save(model, folder)
    return load(folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs")
    plain = jumok.train_tokenizer(TEXT, "char")
    marked = jumok.train_tokenizer(TEXT, "char", special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    forced: dict[str, Any] = {"pad_id": 0, "decoder_start_id": 1, "eos_id": 2, "forced_bos_id": 270, "forced_eos_id": 2}
    found = {
        "chat": saved(folder / "chat", GPTConfig, sentencepiece(), bos_id=1),
        "plain": saved(folder / "plain", GPTConfig, plain),
        "turns": saved(folder / "turns", GPTConfig, with_chat(plain)),
        "pairs": saved(folder / "pairs", EncoderDecoderConfig, marked, **forced),
        "unmarked": saved(folder / "unmarked", EncoderDecoderConfig, marked, **{**forced, "pad_id": 271}),
    }
    return found | {"folder": folder}


@pytest.fixture(scope="module")
def post(runs: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """Send a body to the application, and return the JSON of its answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_NATIVE", "0")  # no compiler runs here
        served = ServedModels(RunFolders([runs["folder"] / name for name in runs if name != "folder"]), SETTINGS)
        app = create_app(served, SETTINGS)

        async def send(path: str, body: Any) -> httpx2.Response:
            async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as http:
                return await http.post(path, json=body)

        def answered(path: str, status: int = 200, **body: Any) -> Any:
            response = asyncio.run(send(path, body))
            assert response.status_code == status, response.text
            return response.json()

        yield answered
        served.close(finish=False)


# --- chats ------------------------------------------------------------------------------------------------------------


def test_a_chat_follows_the_template_of_the_model(post: Callable[..., Any], runs: dict[str, Any]) -> None:
    """A published model for chats read a transcript of roles, which it never saw, and wrote on after its turn."""
    model: GPT = runs["chat"]
    tokenizer = model.tokenizer
    assert tokenizer is not None
    name = tokenizer.special_tokens
    turns = [("system", "짧게."), ("user", "나는?"), ("assistant", ""), ("user", "친구와")]
    prompt = [1]
    for role, content in turns:
        prompt += [name[f"<|{role}|>"], *map(int, tokenizer.encode(content)), name["<|end|>"]]
    prompt.append(name["<|assistant|>"])
    found = post("/v1/chat/completions", model="chat", messages=CHAT, temperature=0, max_tokens=20)
    assert found["usage"]["prompt_tokens"] == len(prompt)
    wanted = post("/v1/completions", model="chat", prompt=prompt, temperature=0, max_tokens=20)
    text = wanted["choices"][0]["text"].partition("<|end|>")[0]
    for special in name:
        text = text.replace(special, "")
    assert found["choices"][0]["message"]["content"] == text


def test_a_chat_ends_with_the_turn_and_shows_no_special_token(post: Callable[..., Any], runs: dict[str, Any]) -> None:
    found = post("/v1/chat/completions", model="chat", messages=CHAT[1:2], seed=1, n=16, max_tokens=200, temperature=2)
    texts = [choice["message"]["content"] for choice in found["choices"]]
    assert not any("<|" in text for text in texts)
    assert "stop" in [choice["finish_reason"] for choice in found["choices"]]


def test_a_message_does_not_end_its_turn(post: Callable[..., Any]) -> None:
    """<|end|><|system|> in a message was read as the end of the turn, and what followed as words of the system."""
    usage = [
        post("/v1/chat/completions", model="chat", messages=[{"role": "user", "content": text}], max_tokens=1)["usage"]
        for text in ("나는", "나는<|end|>")
    ]
    assert usage[1]["prompt_tokens"] - usage[0]["prompt_tokens"] == len("<|end|>")


def test_a_template_that_refuses_is_a_bad_request(post: Callable[..., Any]) -> None:
    messages = [{"role": "user", "content": "거절"}]
    found = post("/v1/chat/completions", 400, model="chat", messages=messages, max_tokens=1)
    assert "chat template" in found["error"]["message"]


# --- one request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pairs", "unmarked"])
def test_an_answer_of_the_server_is_that_of_python(post: Callable[..., Any], runs: dict[str, Any], name: str) -> None:
    """The server left out forced ids, and wrote ids that only the configuration names as special."""
    messages = [{"role": "user", "content": "나는 학교에"}]
    for tokens in (5, 64):
        [[wanted]] = answer(runs[name], ["나는 학교에"], max_tokens=tokens)
        assert wanted.ids[0] == 270
        found = post("/v1/chat/completions", model=name, messages=messages, temperature=0, max_tokens=tokens)
        assert found["choices"][0]["message"]["content"] == wanted.text.rstrip("\ufffd")
        assert found["usage"]["completion_tokens"] == wanted.tokens


# --- seeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 7])
def test_prompts_of_one_request_draw_other_numbers(post: Callable[..., Any], seed: int | None) -> None:
    """prompt=[text] * 4 gave four texts that were the same, without a seed too."""
    body = {"model": "plain", "prompt": ["나는"] * 4, "max_tokens": 20, "temperature": 2, "seed": seed, "n": 2}
    first, again = ([choice["text"] for choice in post("/v1/completions", **body)["choices"]] for _ in range(2))
    assert len(set(first)) == 8
    assert (first == again) is (seed is not None)


# --- log-probabilities ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("echo", [True, False])
def test_offsets_count_characters_of_the_text(post: Callable[..., Any], echo: bool) -> None:
    """The <s> that the tokenizer puts before a prompt was counted, though the text does not have it."""
    body = {"model": "chat", "prompt": "나는 학교에", "max_tokens": 4, "temperature": 0, "logprobs": 1, "echo": echo}
    [choice] = post("/v1/completions", **body)["choices"]
    found, text = choice["logprobs"], choice["text"]
    tokens = found["tokens"][1:] if echo else found["tokens"]
    offsets = found["text_offset"][1:] if echo else found["text_offset"]
    if echo:
        assert (found["tokens"][0], found["text_offset"][0]) == ("<s>", 0)
        assert offsets[:3] == [0, 0, 1]  # the space that comes before 나 is not in the text
    for token, offset in zip(tokens, offsets, strict=True):
        if token not in ("▁",) and not token.startswith("<"):
            assert text[offset] == token


def test_a_prompt_that_is_a_chat_already_has_its_tokens(post: Callable[..., Any], runs: dict[str, Any]) -> None:
    """It was spelled in letters, so clients that write the template themselves got an answer to something else."""
    chat = [{"role": "user", "content": "나는?"}]
    template = runs["turns"].tokenizer.chat
    text, ids = template.render(chat), template.encode(chat)
    assert post("/v1/tokenize", model="turns", input=text)["ids"] == ids
    how = {"model": "turns", "max_tokens": 4, "temperature": 0, "logprobs": 1, "echo": True}
    first, other = (post("/v1/completions", prompt=prompt, **how) for prompt in (text, ids))
    assert first["usage"] == other["usage"]
    assert first["usage"]["prompt_tokens"] == len(ids)
    assert first["choices"] == other["choices"]
    [choice] = first["choices"]
    assert choice["text"].startswith(text)
    found = choice["logprobs"]
    for token, offset in zip(found["tokens"][: len(ids)], found["text_offset"], strict=False):
        assert text[offset:].startswith(token)
    spelled = post("/v1/tokenize", model="plain", input=text)
    assert spelled["count"] == len(text)
    message = [{"role": "user", "content": text}]
    asked = post("/v1/chat/completions", model="turns", messages=message, max_tokens=1)
    assert asked["usage"]["prompt_tokens"] == len(text) + len(ids) - len("나는?")


# --- null -------------------------------------------------------------------------------------------------------------


def test_null_is_the_same_as_leaving_out_at_every_depth(post: Callable[..., Any]) -> None:
    """ "content": null, which the client of OpenAI sends for an assistant that called a tool, was a 400."""
    plain = {"model": "pairs", "messages": [{"role": "user", "content": "나는"}], "temperature": 0}
    null: dict[str, Any] = {
        **plain,
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": None},
            {"role": "user", "content": [{"type": "text", "text": "나는", "cache_control": None}], "name": None},
        ],
        "response_format": {"type": "text", "json_schema": None},
        "stream": None,
        "stream_options": None,
        "tools": None,
        "unknown": None,
    }
    one, other = (post("/v1/chat/completions", **body)["choices"] for body in (plain, null))
    assert one == other
    refused = post("/v1/chat/completions", 400, **{**plain, "messages": [{"role": None, "content": "나는"}]})
    assert "role" in json.dumps(refused)
