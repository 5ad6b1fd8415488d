"""The API as the Python client of OpenAI calls it, over HTTP; and every kind of bad request."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
import torch
from served_runs import random_model, running, until
from starlette.applications import Starlette
from torch import nn

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.inference.answer import answer
from jumok.inference.chat import answer_chats
from jumok.inference.classify import predict
from jumok.inference.embed import embed
from jumok.inference.fill_mask import fill_mask
from jumok.inference.requests import Overloaded
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.serve.app import create_app
from jumok.serve.errors import APIError
from jumok.serve.replies import Threads
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModels
from jumok.serve.settings import ServeSettings
from jumok.text.hangul import nfc
from jumok.tokenizers import train_tokenizer
from talking_models import TEMPLATE, looping, talking

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다. 그리고 친구와 집에 왔다! user: assistant: 😀👩‍👩‍👧 각각 않은 값을 읽고,\n" * 6
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]"]
SETTINGS = ServeSettings(slots=8, waiting=8, max_prompt=2_000, max_tokens=500)
ENDLESS = replace(SETTINGS, max_tokens=10**6)  # a text that is written as long as a test looks at it


def writer(kind: str, seed: int) -> GPT:
    """A GPT with random parameters that writes whole characters, mostly: a constant column keeps bytes unlikely."""
    tokenizer = train_tokenizer(TEXT, kind, **({"vocab_size": 300} if kind == "bpe" else {}))
    torch.manual_seed(seed)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 32, "vocab_size": tokenizer.vocab_size}
    model = build(GPTConfig(**sizes, tie_embeddings=False)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.4)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter[0] = 0.0
        model.token_embedding.weight[:, 0] = 4.0
        model.head.weight[:, 0] = 0.0
        if kind != "bpe":
            model.head.weight[:256, 0] = -50.0
    model.tokenizer = tokenizer
    return model


def reader(config: Any, **given: Any) -> Any:
    """Another model with random parameters."""
    return random_model(config, TEXT, SPECIAL, seed=5, context_length=24, **given)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model of each kind by its name, saved in a folder of that name."""
    folder = tmp_path_factory.mktemp("runs")
    broken = writer("char", 9)
    with torch.no_grad():
        broken.head.weight.fill_(math.nan)
    models = {
        "char": writer("char", 1),
        "jamo": writer("jamo", 2),
        "bpe": writer("bpe", 3),
        "broken": broken,
        "talk": talking(),
        "thinks": talking(template=TEMPLATE.removesuffix("{% endif %}") + "<think>{% endif %}", seed=1),
        "loops": looping(),
        "mlm": reader(BERTConfig, head="mlm"),
        "classes": reader(GPTConfig, labels=("좋음", "나쁨")),
        "pairs": reader(EncoderDecoderConfig, pad_id=0, bos_id=4, eos_id=5, decoder_start_id=4),
    }
    for name, model in models.items():
        jumok.save(model, folder / name)
    return models | {"folder": folder}


@contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """The application behind its server: the address of the API."""
    with running(app) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def models(runs: dict[str, Any]) -> Iterator[ServedModels]:
    folder: Path = runs["folder"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_NATIVE", "0")  # no compiler runs here
        models = ServedModels(RunFolders([folder / name for name in runs if name != "folder"]), SETTINGS)
        yield models
        models.close(finish=False)


@pytest.fixture(scope="module")
def address(models: ServedModels) -> Iterator[str]:
    with serving(create_app(models, SETTINGS)) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def post(address: str) -> Iterator[Callable[..., httpx2.Response]]:
    with httpx2.Client(base_url=address, timeout=120) as http:

        def send(path: str, body: Any = None, **given: Any) -> httpx2.Response:
            return http.post(path, json=body, **given) if body is not None else http.post(path, **given)

        yield send


def expected(model: GPT, prompt: str, **settings: Any) -> list[str]:
    """What jumok.generate writes with the defaults of the API."""
    found = jumok.generate(model, prompt, **{"temperature": 1.0, "tokens": 16, **settings})
    return [one.text for one in found]


# --- models -----------------------------------------------------------------------------------------------------------


def test_models(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    found = list(client.models.list())
    assert [one.id for one in found] == [name for name in runs if name != "folder"]
    assert client.models.retrieve("jamo") == found[1]
    assert found[0].created > 0
    assert found[0].owned_by == "jumok"
    for name in ("nobody", "no/body", "..%2F..%2Fetc"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve(name)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


# --- completions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["jamo", "bpe"])
def test_a_completion_is_that_of_generate(client: openai.OpenAI, runs: dict[str, Any], name: str) -> None:
    prompts = ["나는 ", "", "그리고 친구와 집에 왔다! " * 4]  # the last one is longer than the context
    given: dict[str, Any] = {"temperature": 0.9, "top_p": 0.95, "max_tokens": 60}  # so is this
    extra = {"top_k": 20, "min_p": 0.01, "repetition_penalty": 1.1}
    found = client.completions.create(
        model=name, prompt=prompts, n=2, seed=7, presence_penalty=0.5, frequency_penalty=0.25, extra_body=extra, **given
    )
    settings = {**extra, "temperature": 0.9, "top_p": 0.95, "presence_penalty": 0.5, "frequency_penalty": 0.25}
    written = jumok.generate(runs[name], prompts, tokens=60, samples=2, seed=7, **settings)
    texts = [one.text for samples in written for one in samples]
    assert [choice.text for choice in found.choices] == texts
    assert [choice.index for choice in found.choices] == list(range(6))
    assert {choice.finish_reason for choice in found.choices} == {"length"}
    assert found.usage is not None
    read = sum(len(runs[name].tokenizer.encode(prompt)) for prompt in prompts)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens) == (read, 6 * 60)
    assert found.usage.total_tokens == read + 6 * 60
    assert (found.object, found.model) == ("text_completion", name)


@pytest.mark.parametrize("name", ["jamo", "bpe"])
def test_a_stream_joins_to_the_completion(client: openai.OpenAI, runs: dict[str, Any], name: str) -> None:
    given: dict[str, Any] = {"model": name, "prompt": ["나는 ", "친"], "n": 2, "seed": 5, "max_tokens": 40}
    whole = client.completions.create(**given)
    pieces: dict[int, list[str]] = {i: [] for i in range(4)}
    reasons: dict[int, str | None] = {}
    usage = None
    for chunk in client.completions.create(**given, stream=True, stream_options={"include_usage": True}):
        assert usage is None  # it is in the last piece
        usage = chunk.usage
        for choice in chunk.choices:
            assert reasons.get(choice.index) is None
            pieces[choice.index].append(choice.text)
            reasons[choice.index] = choice.finish_reason
    assert ["".join(some) for some in pieces.values()] == [choice.text for choice in whole.choices]
    assert [reasons[i] for i in range(4)] == ["length"] * 4
    assert usage == whole.usage
    for some in pieces.values():  # a letter of a syllable never comes later than the syllable
        assert nfc("".join(some)) == "".join(some)


def test_ids_are_a_prompt(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    ids = runs["char"].tokenizer.encode("나는 학교").tolist()
    wanted = client.completions.create(model="char", prompt="나는 학교", temperature=0, echo=True)
    found = client.completions.create(model="char", prompt=ids, temperature=0, echo=True)
    both = client.completions.create(model="char", prompt=[ids, []], temperature=0, echo=True)
    assert found.choices[0].text == wanted.choices[0].text == both.choices[0].text
    assert both.choices[1].text == expected(runs["char"], "", temperature=0)[0]


def test_logprobs_and_echo(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    model: GPT = runs["char"]
    found = client.completions.create(model="char", prompt="나는 집", max_tokens=5, seed=1, logprobs=3, echo=True)
    text, logprobs = found.choices[0].text, found.choices[0].logprobs
    assert text.startswith("나는 집")
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    assert logprobs.text_offset is not None
    assert "".join(logprobs.tokens) == text
    assert [text[i] for i in logprobs.text_offset] == logprobs.tokens
    assert logprobs.token_logprobs[0] is None
    ids = model.tokenizer.encode(text).tolist()  # type: ignore[union-attr]
    exact = model(torch.tensor([ids]))[0].detach().log_softmax(dim=-1)  # (T, V)
    for place in range(1, len(ids)):
        assert logprobs.token_logprobs[place] == pytest.approx(float(exact[place - 1, ids[place]]), abs=1e-3)
        likeliest = exact[place - 1].topk(3).values.tolist()
        top = logprobs.top_logprobs[place]
        assert sorted(top.values(), reverse=True)[:3] == pytest.approx(likeliest, abs=1e-3)
        assert top[logprobs.tokens[place]] == logprobs.token_logprobs[place]
    streamed = list(
        client.completions.create(
            model="char", prompt="나는 집", max_tokens=5, seed=1, logprobs=3, echo=True, stream=True
        )
    )
    parts = [chunk.choices[0].logprobs for chunk in streamed]
    assert [token for part in parts if part for token in part.tokens or ()] == logprobs.tokens
    assert [at for part in parts if part for at in part.text_offset or ()] == logprobs.text_offset


def test_scoring_a_text_as_evaluation_harnesses_do(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    """max_tokens=0 with echo and logprobs; also for a text that is longer than the context."""
    text = "나는 학교에 갔다. 그리고 친구와 집에 왔다! " * 3
    for stream in (False, True):
        answers = client.completions.create(  # type: ignore[call-overload]
            model="char", prompt=[text, "집"], max_tokens=0, echo=True, logprobs=1, stream=stream
        )
        choices = [choice for one in (answers if stream else [answers]) for choice in one.choices]
        for number, whole in enumerate([text, "집"]):
            pieces = [choice for choice in choices if choice.index == number]
            assert [piece.text for piece in pieces] == ([whole, ""] if stream else [whole])
            assert [piece.finish_reason for piece in pieces] == ([None, "length"] if stream else ["length"])
        assert len(choices[0].logprobs.token_logprobs) == len(text)
        assert all(value < 0 for value in choices[0].logprobs.token_logprobs[1:])
    assert client.completions.create(model="char", prompt="집", max_tokens=0, echo=True).choices[0].text == "집"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_that_spans_pieces(client: openai.OpenAI, runs: dict[str, Any], stream: bool) -> None:
    given: dict[str, Any] = {"model": "char", "prompt": "나는", "temperature": 0, "max_tokens": 30}
    text = client.completions.create(**given).choices[0].text
    stop = text[9:13]
    answers = client.completions.create(**given, stop=["없는 말", stop], stream=stream)
    choices = [choice for one in (answers if stream else [answers]) for choice in one.choices]
    assert "".join(choice.text for choice in choices) == text[: text.find(stop)]
    assert choices[-1].finish_reason == "stop"
    assert all(choice.finish_reason is None for choice in choices[:-1])


# --- chats ------------------------------------------------------------------------------------------------------------

MESSAGES: list[Any] = [
    {"role": "system", "content": "짧게."},
    {"role": "user", "content": [{"type": "text", "text": "나는"}, {"type": "text", "text": "학교에"}], "name": "가"},
]


def test_a_chat_is_answered_as_in_python(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    given: dict[str, Any] = {"model": "talk", "messages": MESSAGES, "max_completion_tokens": 30, "temperature": 0}
    found = client.chat.completions.create(**given)
    messages = [{"role": "system", "content": "짧게."}, {"role": "user", "content": "나는\n학교에"}]
    [[wanted]] = answer_chats(runs["talk"], [messages], tokens=30)
    assert found.choices[0].message.content == wanted.text != ""
    assert found.choices[0].finish_reason == wanted.finish
    assert found.choices[0].message.role == "assistant"
    assert found.object == "chat.completion"
    assert found.usage is not None
    assert found.usage.completion_tokens == len(wanted.ids)
    assert not hasattr(found.choices[0].message, "reasoning_content")
    developer = [{**MESSAGES[0], "role": "developer"}, MESSAGES[1]]
    assert (
        client.chat.completions.create(**given | {"messages": developer}).choices[0].message == found.choices[0].message
    )


def test_a_stream_of_a_chat_joins_to_its_answer(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "talk", "messages": MESSAGES, "seed": 2, "max_tokens": 30, "n": 2}
    found = client.chat.completions.create(**given)
    deltas: dict[int, str] = {0: "", 1: ""}
    roles = []
    for chunk in client.chat.completions.create(**given, stream=True):
        for choice in chunk.choices:
            deltas[choice.index] += choice.delta.content or ""
            roles += [choice.delta.role] if choice.delta.role else []
    assert list(deltas.values()) == [choice.message.content for choice in found.choices]
    assert deltas[0] != deltas[1]
    assert roles == ["assistant", "assistant"]


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("end", [{"max_tokens": 5}, {"max_tokens": 20, "stop": ["교"]}])
def test_the_last_piece_of_a_stream_has_no_text(client: openai.OpenAI, end: dict[str, Any], logprobs: bool) -> None:
    """With max_tokens it had the last letters, which clients that look at the reason first dropped."""
    given: dict[str, Any] = {"model": "loops", "temperature": 0, **end}
    reason = "stop" if "stop" in end else "length"
    *pieces, last = client.chat.completions.create(messages=MESSAGES, logprobs=logprobs, stream=True, **given)
    [whole] = client.chat.completions.create(messages=MESSAGES, logprobs=logprobs, **given).choices
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == whole.message.content
    assert all(one.choices[0].finish_reason is None for one in pieces)
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == (reason, None)
    if logprobs:
        found = [one.choices[0].logprobs for one in (*pieces, last)]
        assert whole.logprobs is not None
        assert [token for one in found if one for token in one.content or []] == whole.logprobs.content
    *parts, ending = client.completions.create(prompt="나", stream=True, **given)
    assert (
        "".join(one.choices[0].text for one in parts) == client.completions.create(prompt="나", **given).choices[0].text
    )
    assert (ending.choices[0].text, ending.choices[0].finish_reason) == ("", reason)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_repeats_itself_ends(client: openai.OpenAI, stream: bool) -> None:
    """It ran to the limit. The API has no word for it but that of the limit; `stop_reason` is of vLLM."""
    given: dict[str, Any] = {"model": "loops", "messages": MESSAGES, "max_tokens": 300, "temperature": 0}
    if stream:
        *pieces, last = client.chat.completions.create(**given, stream=True)
        text, ended = "".join(one.choices[0].delta.content or "" for one in [*pieces, last]), last.choices[0]
        assert all(one.choices[0].finish_reason is None for one in pieces)
    else:
        found = client.chat.completions.create(**given)
        text, ended = found.choices[0].message.content or "", found.choices[0]
        assert found.usage is not None
        assert found.usage.completion_tokens == 64
    assert text == ("나는 학교에" * 11)[:64]
    assert (ended.finish_reason, ended.stop_reason) == ("length", "loop")  # type: ignore[attr-defined]
    written = client.completions.create(model="loops", prompt="나", max_tokens=300, temperature=0).choices[0]
    assert len(written.text) == 300
    assert not hasattr(written, "stop_reason")


def test_reasoning_is_apart_from_the_content(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    """Its name is that of DeepSeek, vLLM and llama.cpp. A client may send it back."""
    message: Any = {"role": "user", "content": "나는"}
    seeds = (
        (seed, answer_chats(runs["thinks"], [[message]], tokens=80, temperature=1.0, seed=seed)) for seed in range(99)
    )
    seed, wanted = next((seed, one) for seed, [[one]] in seeds if one.reasoning and one.text)
    given: dict[str, Any] = {"model": "thinks", "seed": seed, "max_tokens": 80}
    said = client.chat.completions.create(messages=[message], **given).choices[0].message
    assert (said.content, said.reasoning_content) == (wanted.text, wanted.reasoning)  # type: ignore[attr-defined]
    pieces = list(client.chat.completions.create(messages=[message], stream=True, **given))
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == wanted.text
    thoughts = [getattr(one.choices[0].delta, "reasoning_content", None) for one in pieces]
    assert "".join(thought or "" for thought in thoughts) == wanted.reasoning
    counts = []
    for thought in ({"reasoning_content": "하나"}, {}):
        back = {"role": "assistant", "content": "둘", **thought}
        answered = client.chat.completions.create(messages=[message, back, message], **given)
        assert answered.usage is not None
        counts.append(answered.usage.prompt_tokens)
    assert counts[0] - counts[1] == 2 + 2  # its characters, and the two tokens around it


@pytest.mark.parametrize("model", ["talk", "pairs"])
def test_stop_strings_of_a_chat(client: openai.OpenAI, model: str) -> None:
    given: dict[str, Any] = {"model": model, "messages": MESSAGES, "max_tokens": 20, "temperature": 0}
    whole = client.chat.completions.create(**given).choices[0].message.content
    assert whole
    stop = whole[2:4]
    found = client.chat.completions.create(**given, stop=[stop])
    assert found.choices[0].message.content == whole[: whole.index(stop)]
    assert found.choices[0].finish_reason == "stop"
    pieces = client.chat.completions.create(**given, stop=[stop], stream=True)
    assert "".join(one.choices[0].delta.content or "" for one in pieces) == whole[: whole.index(stop)]


def test_a_gpt_without_a_template_is_refused_with_the_remedy(post: Callable[..., httpx2.Response]) -> None:
    """It read `user: ...` lines, which nothing had taught it, and continued them as any text."""
    answer = post("/v1/chat/completions", {"model": "char", "messages": MESSAGES})
    assert answer.status_code == 400
    assert "jumok train talk.jsonl --task chat --init RUN" in answer.json()["error"]["message"]


def test_the_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"messages": MESSAGES, "seed": 4, "max_tokens": 6, "logprobs": True, "top_logprobs": 2}
    found = client.chat.completions.create(model="talk", **given)
    logprobs = found.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 6
    for one in logprobs.content:
        assert len(one.top_logprobs) == 2
        assert one.bytes is not None
        if not one.token.startswith("bytes:"):
            assert bytes(one.bytes).decode() == one.token
    streamed = [
        one
        for chunk in client.chat.completions.create(model="talk", **given, stream=True)
        for choice in chunk.choices
        if choice.logprobs
        for one in choice.logprobs.content or ()
    ]
    assert [one.token for one in streamed] == [one.token for one in logprobs.content]
    # The second request reuses the keys of the prompt, which PyTorch computes with another rounding.
    assert [one.logprob for one in streamed] == pytest.approx([one.logprob for one in logprobs.content], abs=1e-4)


def test_a_run_trained_on_pairs_answers_the_last_message(client: openai.OpenAI, runs: dict[str, Any]) -> None:
    messages: list[Any] = [
        {"role": "user", "content": "집에"},
        {"role": "assistant", "content": "왔다"},
        {"role": "user", "content": "나는 학교에"},
        {"role": "assistant", "content": "갔다"},
    ]
    found = client.chat.completions.create(model="pairs", messages=messages, temperature=0)
    [[wanted]] = answer(runs["pairs"], ["나는 학교에"])
    assert found.choices[0].message.content == wanted.text
    assert found.choices[0].finish_reason == wanted.finish
    assert found.usage is not None
    assert found.usage.completion_tokens == wanted.tokens
    pieces = client.chat.completions.create(model="pairs", messages=messages, temperature=0, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in pieces) == wanted.text


# --- embeddings, and jumok's own --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlm", "char"])
def test_embeddings(client: openai.OpenAI, runs: dict[str, Any], name: str) -> None:
    texts = ["나는 학교에 갔다", "집", "친구와"]
    found = client.embeddings.create(model=name, input=texts)  # the client asks for base64
    plain = client.embeddings.create(model=name, input=texts, encoding_format="float")
    wanted = nn.functional.normalize(torch.from_numpy(embed(runs[name], texts)), dim=1)
    for one, other, row in zip(found.data, plain.data, wanted, strict=True):
        assert one.embedding == pytest.approx(row.tolist(), abs=1e-6)
        assert one.embedding == pytest.approx(other.embedding, abs=1e-7)
        assert math.hypot(*one.embedding) == pytest.approx(1, abs=1e-5)
    ids = runs[name].tokenizer.encode(texts[0]).tolist()
    assert client.embeddings.create(model=name, input=ids).data[0].embedding == pytest.approx(found.data[0].embedding)
    assert found.usage.prompt_tokens == sum(len(runs[name].tokenizer.encode(text)) for text in texts)


def test_classify(post: Callable[..., httpx2.Response], runs: dict[str, Any]) -> None:
    texts = ["나는 학교에", "집" * 60, "pyproject.toml"]  # the name of a file is a text as any other
    found = post("/v1/classify", {"model": "classes", "input": texts}).json()["data"]
    wanted = predict(runs["classes"], texts)
    assert [one["label"] for one in found] == [one.label for one in wanted]
    assert [one["cut"] for one in found] == [False, True, False]
    for one, other in zip(found, wanted, strict=True):
        assert one["probabilities"] == pytest.approx(other.probabilities, abs=1e-6)
    alone = post("/v1/classify", {"model": "classes", "input": "pyproject.toml"})
    assert alone.json()["data"][0]["label"] == wanted[2].label


def test_fill_mask(post: Callable[..., httpx2.Response], runs: dict[str, Any]) -> None:
    found = post("/v1/fill-mask", {"model": "mlm", "input": "나는 [MASK] 갔[MASK]", "top": 2}).json()
    wanted = fill_mask(runs["mlm"], "나는 [MASK] 갔[MASK]", 2)
    assert found["text"] == wanted.text
    assert [mask["position"] for mask in found["masks"]] == [3, 11]
    assert [one["id"] for one in found["masks"][0]["candidates"]] == [one.id for one in wanted.masks[0].candidates]


def test_tokenize(post: Callable[..., httpx2.Response], runs: dict[str, Any]) -> None:
    found = post("/v1/tokenize", {"model": "char", "input": "나는 뷁"}).json()
    assert found["ids"] == runs["char"].tokenizer.encode("나는 뷁").tolist()
    assert found["tokens"] == ["나", "는", " ", "bytes:\\xeb", "bytes:\\xb7", "bytes:\\x81"]
    assert found["count"] == 6


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_slot(models: ServedModels, stream: bool) -> None:
    body = {"model": "char", "prompt": "나는", "max_tokens": 10**6, "n": 8, "stream": stream}
    request = json.dumps(body).encode()
    before = models.counts()["char"]
    with serving(create_app(models, ENDLESS)) as address:
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            connection.sendall(f"{head}Content-Length: {len(request)}\r\n\r\n".encode() + request)
            until(lambda: models.counts()["char"].running == 8)
        until(lambda: models.counts()["char"].running == 0)
    assert models.counts()["char"].finished == before.finished + 8


def test_too_many_are_refused_and_can_come_again(models: ServedModels) -> None:
    long: dict[str, Any] = {"model": "bpe", "prompt": "나는", "max_tokens": 10**6, "n": 8}
    with (
        serving(create_app(models, ENDLESS)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120) as client,
    ):
        with client.completions.create(**long, stream=True), client.completions.create(**long, stream=True):
            until(lambda: (count := models.counts()["bpe"]).running == count.waiting == 8)
            with pytest.raises(openai.RateLimitError) as caught:
                client.completions.create(model="bpe", prompt="나는", n=2)
            assert int(caught.value.response.headers["retry-after"]) > 0
            assert caught.value.code == "overloaded"
        until(lambda: (count := models.counts()["bpe"]).running == count.waiting == 0)
        assert client.completions.create(model="bpe", prompt="나는", max_tokens=2).usage


# --- errors -----------------------------------------------------------------------------------------------------------


def test_errors_have_the_classes_of_the_client(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="char", prompt="나는", temperature=3)
    assert caught.value.param == "temperature"
    assert caught.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError, match="char, jamo"):
        client.completions.create(model="../char", prompt="나는")
    with pytest.raises(openai.InternalServerError, match="not finite"):
        client.completions.create(model="broken", prompt="나는")
    with pytest.raises(openai.APIError, match="not finite"):  # when the stream has begun
        list(client.completions.create(model="broken", prompt="나는", stream=True))


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("completions", {"temperature": "hot"}, "temperature should be a valid number, and it is 'hot'."),
    ("completions", {"max_tokens": 0}, "max_tokens=0 writes nothing"),
    ("completions", {"max_tokens": 10**9}, "max_tokens should be at most 500 on this server."),
    ("completions", {"seed": 10**30}, "seed should be less than"),
    ("completions", {"n": 17}, "prompt and n ask for 17 texts; this server writes at most 16 at once."),
    ("completions", {"best_of": 3}, "best_of is not a parameter"),
    ("completions", {"suffix": "끝"}, "suffix is not a parameter that this server knows."),
    ("completions", {"stop": ["가"] * 17}, "stop should have at most 16 items"),
    ("completions", {"stop": ["가" * 1001]}, "stop[0] should have at most 1000 characters"),
    ("completions", {"stream_options": {"include_usage": True}}, "stream_options is for stream=true alone."),
    ("completions", {"prompt": "가" * 2001}, "prompt has 2,001 characters or tokens; this server reads at most 2,000."),
    ("completions", {"prompt": ["가", 1]}, "prompt"),
    ("completions", {"prompt": []}, "prompt should have at least 1 item"),
    ("completions", {"prompt": [1, 10**30]}, "prompt has the token id 1000"),
    ("completions", {"model": None}, "model is missing."),
    ("completions", {"model": "pairs"}, "the model 'pairs' has the task seq2seq"),
    ("completions", {"stop[]": "."}, "stop[] is not a parameter that this server knows."),  # as forms name it
    ("completions", {"temperatur": 1}, "temperatur is not a parameter that this server knows."),
    ("chat/completions", {"messages": []}, "messages should have at least 1 item"),
    ("chat/completions", {"messages": ["나는"]}, "messages[0] should be a valid dictionary"),
    ("chat/completions", {"messages": [{"role": "tool", "content": "1"}]}, "messages[0].role should be 'system',"),
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     "messages[0].content[0].type should be 'text', and it is 'image_url'."),
    ("chat/completions", {"messages": [{"role": "user", "content": "가" * 2001}]}, "messages has 2,0"),
    ("chat/completions", {"model": "pairs", "messages": [{"role": "system", "content": "가"}]}, "messages has no"),
    ("chat/completions", {"model": "pairs", "messages": [{"role": "user", "content": "가" * 99}]}, "the messages to"),
    ("chat/completions", {"messages": [{"role": "user", "content": " \n"}]}, "message 1, of the role user, is empty"),
    ("chat/completions", {"messages": [{"role": "user"}]}, "message 1, of the role user, is empty"),
    ("chat/completions", {"messages": [{"role": "system", "content": "가"}]}, "a conversation to answer ends with a"),
    ("chat/completions", {"messages": [{"role": "user", "content": "가"}, {"role": "assistant", "content": "나"}]},
     "a conversation to answer ends with a message of the user"),
    ("chat/completions", {"messages": [{"role": "user", "content": "가"}] * 2049}, "messages should have at most"),
    ("chat/completions", {"messages": [{"role": "user", "content": "나는 " * 60}]}, "the last message has"),
    ("chat/completions", {"messages": [{"role": "user", "content": "가", "reasoning_content": 5}]},
     "messages[0].reasoning_content should be a valid string"),
    ("chat/completions", {"tools": [{"type": "function"}]}, "tools is not a parameter"),
    ("chat/completions", {"response_format": {"type": "json_object"}}, "response_format.type should be 'text'"),
    ("chat/completions", {"top_logprobs": 2}, "top_logprobs needs logprobs=true."),
    ("chat/completions", {"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens and max_completion_tokens differ"),
    ("embeddings", {"input": ["가"] * 2049}, "input should have at most 2048 items"),
    ("classify", {"input": ["가", ""]}, "input[1] is empty, and an empty text has no class."),
    ("fill-mask", {"input": "[MASK]" * 101}, "input has 101 masks; this server fills at most 100."),
    ("tokenize", {"input": ["가"]}, "input should be a valid string, and it is ['가']."),
]  # fmt: skip
BAD_BODIES = [
    (b"", "not a JSON object"),
    (b"{", "not valid JSON"),
    (b"[]", "not a JSON object"),
    (b'{"model": "char", "temperature": 1e999}', "temperature"),
    (b'{"model": "char", "prompt": "\xff"}', "parsing"),
    (b'{"model": "char", "\\ud800": 1}', "a name in the body has half of a surrogate pair"),
    (b'{"model": "char", "prompt": "\\ud800"}', "U+D800"),
    (b'{"model": "char", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "parsing"),
    (b'{"model": "char", "prompt": ' + b"[" * 500 + b"]" * 500 + b"}", "prompt"),
    (b'{"model": "char", "prompt": ' + b"9" * 5_000 + b"}", "digits"),  # Python refuses to read it
]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/completions": {"model": "char", "prompt": "나는"},
    "/v1/chat/completions": {"model": "talk", "messages": [{"role": "user", "content": "나는"}]},
    "/v1/embeddings": {"model": "mlm", "input": "나는"},
    "/v1/classify": {"model": "classes", "input": "나는"},
    "/v1/fill-mask": {"model": "mlm", "input": "나는 [MASK]"},
    "/v1/tokenize": {"model": "char", "input": "나는"},
}


def test_a_bad_parameter_is_named(post: Callable[..., httpx2.Response]) -> None:
    for path, wrong, message in BAD:
        answer = post(f"/v1/{path}", GOOD[f"/v1/{path}"] | wrong)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["message"].startswith(message), error["message"]
        assert error["type"] == "invalid_request_error"
        assert error["param"] in wrong
        assert len(error["message"]) < 400


def test_a_bad_body(post: Callable[..., httpx2.Response]) -> None:
    for body, words in BAD_BODIES:
        answer = post("/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"], answer.text
        assert "Traceback" not in answer.text


def test_what_is_ignored(post: Callable[..., httpx2.Response]) -> None:
    """Parameters that change nothing, null, and values that ask for nothing."""
    ignored = {"user": "나", "metadata": {}, "store": True, "service_tier": "auto", "n": None, "best_of": None}
    neutral = {"logit_bias": {}, "suffix": None, "stop": None, "prompt": None, "seed": None}
    assert post("/v1/completions", {"model": "char", **ignored, **neutral}).status_code == 200
    chat = GOOD["/v1/chat/completions"] | {"tools": [], "tool_choice": "none", "function_call": "none"}
    assert post("/v1/chat/completions", chat).status_code == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/jsonp", "text/json", "multipart/form-data"])
def test_a_body_that_is_not_called_json(post: Callable[..., httpx2.Response], kind: str | None) -> None:
    """Forms of other sites can send bodies of some types without asking the server first."""
    headers = {} if kind is None else {"Content-Type": kind}
    answer = post("/v1/tokenize", content=json.dumps(GOOD["/v1/tokenize"]), headers=headers)
    assert answer.status_code == 400
    assert "Content-Type: application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.a+json"])
def test_a_body_that_is_called_json(post: Callable[..., httpx2.Response], kind: str) -> None:
    answer = post("/v1/tokenize", content=json.dumps(GOOD["/v1/tokenize"]), headers={"Content-Type": kind})
    assert answer.status_code == 200


def test_half_a_surrogate_pair_is_told(post: Callable[..., httpx2.Response]) -> None:
    """It was called "not a JSON object", or a string that should be a string."""
    body = r'{"model": "char", "messages": [{"role": "\ud83d", "content": "나"}]}'
    answer = post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "messages[0].role has half of a surrogate pair" in answer.json()["error"]["message"]


def test_an_error_with_half_a_surrogate_pair_is_readable() -> None:
    error = APIError("나는 \ud800")
    assert json.loads(error.content) == error.body


def test_other_paths_and_methods(address: str) -> None:
    with httpx2.Client(base_url=address, timeout=120) as http:
        for path in ("/", "/v1/files", "/v1/../../etc/passwd"):
            answer = http.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"]["type"] == "invalid_request_error"
        assert "there is no GET /v1/files; " in http.get("/v1/files").json()["error"]["message"]
        answer = http.get("/v1/completions")
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert http.get("/healthz").json() == {"status": "ok"}


def test_the_schema_says_what_the_server_does(address: str) -> None:
    schema = httpx2.get(f"{address}/openapi.json", timeout=120).json()
    for path in GOOD:
        operation = schema["paths"][path]["post"]
        assert set(operation["responses"]) == {"200", "4XX", "5XX"}
        assert operation["requestBody"]["required"]
    prompt = schema["components"]["schemas"]["CompletionBody"]["properties"]["prompt"]
    assert {"type": "string"} in prompt["anyOf"]


def test_an_error_in_the_server_tells_nothing(
    models: ServedModels, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> str:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("jumok.serve.task_endpoints.tokenize", fail)
    with serving(create_app(models, SETTINGS)) as address:
        answer = httpx2.post(f"{address}/v1/tokenize", json=GOOD["/v1/tokenize"], timeout=120)
    assert answer.status_code == 500
    assert answer.json()["error"]["type"] == "server_error"
    assert "secret" not in answer.text
    assert "ZeroDivisionError: secret" in caplog.text


def test_a_server_that_ends_says_so(runs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_NATIVE", "0")
    models = ServedModels(RunFolders([runs["folder"] / "char"]), ENDLESS)
    with (
        serving(create_app(models, ENDLESS)) as address,
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
    ):
        stream = client.completions.create(model="char", prompt="나는", max_tokens=10**6, stream=True)
        next(stream)
        served = models._runs["char"].served
        assert served is not None
        served.close(finish=False)
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(model="char", prompt="나는")
        assert caught.value.status_code == 503
    models.close(finish=False)


def test_a_request_has_a_deadline(models: ServedModels) -> None:
    body = {"model": "char", "prompt": "나는", "max_tokens": 10**6}
    with serving(create_app(models, replace(ENDLESS, timeout=0.3))) as address:
        answer = httpx2.post(f"{address}/v1/completions", json=body, timeout=120)
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")
    for seconds in (0.3, 3, 30):  # a busy machine may need some to begin the stream
        with serving(create_app(models, replace(ENDLESS, timeout=seconds))) as address:
            answer = httpx2.post(f"{address}/v1/completions", json=body | {"stream": True}, timeout=120)
        if answer.status_code == 200:
            break
    assert answer.headers["x-accel-buffering"] == "no"
    *_, last = answer.text.split("\n\n")[:-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    until(lambda: models.counts()["char"].running == 0)


def test_calls_that_wait_for_a_thread_are_bounded() -> None:
    async def work() -> None:
        threads, free = Threads(1, 1), threading.Event()
        calls = [asyncio.create_task(threads.run(lambda: free.wait(60))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 texts are waiting"):
            await threads.run(lambda: free.wait(60))
        free.set()
        await asyncio.gather(*calls)
        assert await threads.run(lambda: 3) == 3

    asyncio.run(work())


def test_calls_of_clients_that_go_away_do_not_add_up(models: ServedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread cannot be interrupted: each client that left used to leave one, and all ran side by side."""
    free, lock = threading.Event(), threading.Lock()
    running = most = 0

    def slow(*_: object) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        free.wait(200)
        with lock:
            running -= 1
        return "{}"

    monkeypatch.setattr("jumok.serve.task_endpoints.tokenize", slow)
    with serving(create_app(models, SETTINGS)) as address:
        left = 0
        while left < 4 or not running:  # a busy machine may not have begun with any of four
            with pytest.raises(httpx2.TimeoutException):
                httpx2.post(f"{address}/v1/tokenize", json=GOOD["/v1/tokenize"], timeout=0.2)
            left += 1
        assert running == 1
        free.set()
        assert httpx2.post(f"{address}/v1/tokenize", json=GOOD["/v1/tokenize"], timeout=120).text == "{}"
    assert most == 1
