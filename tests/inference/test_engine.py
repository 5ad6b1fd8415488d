"""The engine: texts come and go, and each is what it is alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from jumok.config import EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError
from jumok.inference.engine import MIN_SHARED_PREFIX, Engine, common_prefix_length
from jumok.inference.generate import write_all
from jumok.inference.requests import Request
from jumok.inference.sampling import Sampling
from jumok.inference.slots import Chunk
from jumok.inference.writer import Continuation
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("backend")]

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
GREEDY = Sampling(temperature=0)
CONTEXT = 48
FAMILIES = ("modern", "classic")


def tiny(seed: int = 0, **changes: Any) -> GPT:
    """A small model with random weights and a tokenizer; it writes noise, bytes of half characters included."""
    tokenizer = train_tokenizer(TEXT, "char")
    torch.manual_seed(seed)
    shape = {"context_length": CONTEXT, "n_layer": 2, "n_head": 4, "n_embd": 32, "n_kv_head": 2, **changes}
    if shape.get("family") == "classic":
        del shape["n_kv_head"]
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **shape)).eval()
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.3)
    model.tokenizer = tokenizer
    return model


def alone(model: GPT, request: Request, **how: Any) -> Continuation:
    """A text that is written by an engine of its own."""
    return write_all(Engine(model, 1, **how), [request])[0]


def outcome(text: Continuation) -> tuple[list[int], str, str | None]:
    return text.drawn, text.text, text.finish


class Spied:
    """The slots of an engine, and what each step asked of them."""

    def __init__(self, engine: Engine) -> None:
        self.chunks: list[list[Chunk]] = []
        read = engine._slots.read

        def spying(chunks: Sequence[Chunk]) -> Tensor:
            self.chunks.append(list(chunks))
            return read(chunks)

        engine._slots.read = spying  # type: ignore[method-assign]


def some_requests(model: GPT, number: int, seed: int) -> list[Request]:
    """Requests of every kind: prompts longer than the context, equal beginnings, stop strings, penalties."""
    draw = random.Random(seed)
    vocab = model.config.vocab_size
    shared = [draw.randrange(vocab) for _ in range(30)]
    samplings = [
        GREEDY,
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, top_k=9, repetition_penalty=1.2),
        Sampling(temperature=1.0, top_p=0.8, presence_penalty=0.5, frequency_penalty=0.3),
    ]
    requests = []
    for number_ in range(number):
        fresh = [draw.randrange(vocab) for _ in range(draw.choice((1, 3, 20, 90)))]
        requests.append(
            Request(
                prompt=shared[: draw.choice((0, 17, 30))] + fresh,
                sampling=draw.choice(samplings),
                tokens=draw.randint(1, 70),
                seed=draw.randrange(5),
                sample=number_ % 2,
                stop=draw.choice(((), ("갔", "\n"))),
            )
        )
    return requests


# --- a text is the same alone and among others ------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_texts_that_come_and_go_are_what_they_are_alone(family: str, seed: int):
    """Requests arrive at random steps, some are cancelled, and slots are used again."""
    model = tiny(seed, family=family)
    requests = some_requests(model, 20, seed)
    wanted = [outcome(alone(model, request)) for request in requests]
    draw, engine = random.Random(seed), Engine(model, 5)
    waiting, texts, cancelled = list(requests), [], set()
    while waiting or engine.active:
        while waiting and engine.free and draw.random() < 0.3:
            texts.append(engine.admit(waiting.pop(0)))
        if texts and draw.random() < 0.02:
            victim = draw.randrange(len(texts))
            if texts[victim].finish is None:
                engine.release(texts[victim])
                cancelled.add(victim)
        engine.step()
    for number, text in enumerate(texts):
        if number in cancelled:
            assert text.finish in ("cancelled", "stop")
            assert text.drawn == wanted[number][0][: len(text.drawn)]
        else:
            assert outcome(text) == wanted[number]
    assert engine.free == 5
    assert engine.reused > 0


def test_events_join_to_the_text():
    model = tiny()
    engine = Engine(model, 1)
    text = engine.admit(Request(prompt=[5], sampling=Sampling(temperature=1), tokens=60, stop=("갔다",)))
    events = []
    while text.finish is None:
        engine.step()
        event = text.take()
        assert event is not None
        events.append(event)
    assert "".join(event.text for event in events) == text.text
    assert [new.id for event in events for new in event.drawn] == text.drawn
    assert [event.finish for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1].finish == text.finish


# --- what is computed -------------------------------------------------------------------------------------------------


def test_what_begins_alike_is_read_once():
    model = tiny()
    prompt = [token % model.config.vocab_size for token in range(40)]
    engine = Engine(model, 4)
    texts = write_all(engine, [Request(prompt=prompt, tokens=3, sample=sample, seed=1) for sample in range(4)])
    assert engine.read == len(prompt) + 3  # the last id of each is read, for its logits
    assert engine.reused == 3 * (len(prompt) - 1)
    assert [text.drawn for text in texts] == [
        alone(model, Request(prompt=prompt, tokens=3, sample=sample, seed=1)).drawn for sample in range(4)
    ]


def test_each_id_of_a_prompt_is_counted_once():
    """The first id of each chunk was not counted, and ids that two slots held were counted twice as reused."""
    model = tiny(context_length=1024, n_layer=1)
    long = [token % model.config.vocab_size for token in range(700)]
    engine = Engine(model, 3)
    write_all(engine, [Request(prompt=[*long[:40], 1], tokens=1)])
    assert (engine.read, engine.reused) == (41, 0)
    prompts = [long, [*long[:650], 0], [*long[:650], 1]]
    write_all(engine, [Request(prompt=prompt, tokens=3) for prompt in prompts])
    assert engine.read + engine.reused == 41 + sum(map(len, prompts))
    assert engine.reused == 40 + 650 + 650


def test_short_beginnings_are_not_worth_a_copy():
    engine = Engine(tiny(), 2)
    write_all(engine, [Request(prompt=list(range(MIN_SHARED_PREFIX)), tokens=2)] * 2)
    assert engine.reused == 0


def test_a_long_prompt_does_not_hold_up_the_others():
    """It is read in chunks, and the others get an id in each step meanwhile."""
    model = tiny(context_length=2048, n_layer=1)
    engine = Engine(model, 3)
    longest = engine._slots.longest
    short = engine.admit(Request(prompt=[1], tokens=500))
    engine.step()
    prompts = [[number, *[2] * (5 * longest)] for number in (5, 6)]
    long = [engine.admit(Request(prompt=prompt, tokens=1)) for prompt in prompts]
    spied = Spied(engine)
    while engine.active and any(text.finish is None for text in long):
        before = len(short.drawn)
        engine.step()
        assert len(short.drawn) == before + 1
    assert max(sum(len(chunk.ids) for chunk in chunks) for chunks in spied.chunks) <= longest + 2
    assert [len(text.drawn) for text in long] == [1, 1]


def test_finished_texts_cost_nothing():
    model = tiny()
    engine = Engine(model, 4)
    spied = Spied(engine)
    write_all(engine, [Request(prompt=[3], tokens=tokens) for tokens in (2, 9, 1, 4)])
    assert [len(chunks) for chunks in spied.chunks] == [4, 3, 2, 2, 1, 1, 1, 1, 1]


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_text_without_finite_logits_ends_alone():
    model = tiny(tie_embeddings=False)
    requests = [Request(prompt=prompt, sampling=GREEDY, tokens=6) for prompt in ([1, 2], [3, 9], [4])]
    wanted = [outcome(alone(model, request)) for request in requests]
    assert not {9} & {token for drawn, *_ in wanted for token in drawn}
    with torch.no_grad():
        model.token_embedding.weight[9] = math.nan
    texts = write_all(Engine(model, 3), requests)
    assert [text.finish for text in texts] == ["length", "not finite", "length"]
    assert [outcome(texts[0]), outcome(texts[2])] == [wanted[0], wanted[2]]
    assert texts[1].drawn == []


def test_the_slot_of_a_failed_text_is_not_shared():
    """Its keys may hold the NaN."""
    model = tiny(tie_embeddings=False)
    with torch.no_grad():
        model.token_embedding.weight[9] = math.nan
    engine = Engine(model, 1)
    beginning = list(range(10, 35))
    [failed] = write_all(engine, [Request(prompt=[*beginning, 9], tokens=2)])
    [after] = write_all(engine, [Request(prompt=[*beginning, 5], tokens=2, sampling=GREEDY)])
    assert (failed.finish, after.finish) == ("not finite", "length")


def test_what_does_not_fit_is_refused():
    model = tiny()
    engine = Engine(model, 1)
    engine.admit(Request(prompt=[1]))
    with pytest.raises(RuntimeError, match="slots"):
        engine.admit(Request(prompt=[1]))
    engine = Engine(model, 1)
    with pytest.raises(ConfigError, match="source"):
        engine.admit(Request(prompt=[1], source=[2]))
    for strange in (-1, model.config.vocab_size):
        with pytest.raises(ConfigError, match=f"one is {strange}"):
            engine.admit(Request(prompt=[1, strange]))
    assert engine.free == 1


@pytest.mark.parametrize("length", [0, CONTEXT + 1])
def test_a_source_that_does_not_fit_is_refused(length: int):
    """It failed in the step, with all texts beside it."""
    shape = {"n_layer": 1, "n_decoder_layer": 1, "n_head": 2, "n_embd": 16}
    engine = Engine(EncoderDecoder(EncoderDecoderConfig(vocab_size=9, context_length=CONTEXT, **shape)), 1)
    with pytest.raises(ConfigError, match=f"the source has {length} ids, and this model reads 1 to {CONTEXT}"):
        engine.admit(Request(prompt=[1], source=[2] * length))
    assert engine.free == 1


@pytest.mark.parametrize("changes", [{"prompt": []}, {"tokens": 0}, {"seed": -1}, {"sample": -1}, {"top": -1}])
def test_a_request_out_of_range(changes: dict[str, Any]):
    with pytest.raises(ConfigError):
        Request(**{"prompt": [1], **changes})


# --- settings of a text -----------------------------------------------------------------------------------------------


def test_log_probabilities_are_those_of_the_model():
    model = tiny()
    request = Request(prompt=[1, 2, 3], sampling=Sampling(temperature=0.5, top_k=3), tokens=10, top=4)
    engine = Engine(model, 2)
    text, quiet = engine.admit(request), engine.admit(Request(prompt=[1], sampling=request.sampling, tokens=10))
    drawn = []
    while engine.active:
        engine.step()
        event = text.take()
        assert event is not None
        drawn += event.drawn
    ids = torch.tensor([text.ids])
    with torch.no_grad():
        wanted = model(ids)[0].log_softmax(dim=-1)  # (T, V)
    for place, new in enumerate(drawn, 2):
        assert new.log_probability == pytest.approx(float(wanted[place, new.id]), abs=1e-4)
        best = wanted[place].topk(4)
        assert [token for token, _ in new.top] == best.indices.tolist()
        assert [value for _, value in new.top] == pytest.approx(best.values.tolist(), abs=1e-4)
    assert text.total == pytest.approx(sum(new.log_probability or 0 for new in drawn))
    news = quiet.take()
    assert news is not None
    assert {new.log_probability for new in news.drawn} == {None}


def test_asking_for_log_probabilities_changes_no_text():
    """A repetition penalty divides or multiplies by the sign of a logit, and log-probabilities have only one."""
    model = tiny()
    how = Sampling(temperature=1, repetition_penalty=1.8, top_k=20)
    requests = [
        Request(prompt=[1, 2], sampling=how, tokens=40, seed=seed, top=top) for seed, top in ((1, None), (1, 3))
    ]
    plain, described = write_all(Engine(model, 2), requests)
    assert plain.drawn == described.drawn == alone(model, requests[1]).drawn


def test_sixteen_bits_need_the_native_step(backend: str):
    model = tiny()
    request = Request(prompt=[1, 2, 3], sampling=GREEDY, tokens=5)
    if backend == "torch":
        with pytest.raises(ConfigError, match="bfloat16' is computed by the C"):
            Engine(model, 1, quantize="bfloat16")
    else:
        assert alone(model, request, quantize="bfloat16").drawn == alone(model, request).drawn


def test_a_frequency_penalty_counts_what_was_drawn():
    """Greedy ids, step by step, against logits of the model minus the penalties."""
    model = tiny()
    sampling = Sampling(temperature=0, presence_penalty=1.5, frequency_penalty=0.7)
    text = alone(model, Request(prompt=[1, 2], sampling=sampling, tokens=20))
    ids, counts = [1, 2], torch.zeros(model.config.vocab_size)
    for token in text.drawn:
        with torch.no_grad():
            logits = model(torch.tensor([ids]))[0, -1]
        assert int((logits - 1.5 * (counts > 0) - 0.7 * counts).argmax()) == token
        counts[token] += 1
        ids.append(token)
    assert len(set(text.drawn)) > len(set(alone(model, Request(prompt=[1, 2], sampling=GREEDY, tokens=20)).drawn))


def test_stop_ids_end_a_text_and_special_ids_are_not_shown():
    model = tiny()
    plain = alone(model, Request(prompt=[1, 2], sampling=GREEDY, tokens=30))
    hidden, last = plain.drawn[0], next(token for token in plain.drawn[3:] if token not in plain.drawn[:3])
    request = Request(
        prompt=[1, 2], sampling=GREEDY, tokens=30, stop_ids=frozenset([last]), special_ids=frozenset([hidden])
    )
    text = alone(model, request)
    end = plain.drawn.index(last)
    assert (text.finish, text.drawn) == ("stop", plain.drawn[: end + 1])
    shown = [token for token in plain.drawn[:end] if token != hidden]
    assert model.tokenizer is not None
    assert text.text == model.tokenizer.decode(shown).rstrip("\ufffd")


def test_rules_change_the_ids_of_one_text():
    model = tiny()
    ruled = Request(prompt=[1], sampling=GREEDY, tokens=20, no_repeat_ngram=1, top=10**6)
    free = Request(prompt=[1], sampling=GREEDY, tokens=20)
    texts = write_all(Engine(model, 2), [ruled, free])
    assert len({1, *texts[0].drawn}) == 21
    event = texts[0].take()
    assert event is not None
    assert {token for token, value in event.drawn[-1].top if value == -math.inf} == {1, *texts[0].drawn[:-1]}
    assert texts[1].drawn == alone(model, free).drawn
    assert len({1, *texts[1].drawn}) < 21


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_text_ends_where_no_id_may_come(temperature: float):
    """The first id of all was written there, which the rules forbid; with a temperature NumPy warned besides."""
    model = tiny()
    sampling = Sampling(temperature=temperature)
    stuck = Request(prompt=[0], sampling=sampling, tokens=1000, no_repeat_ngram=1)
    longer = Request(prompt=[0], sampling=sampling, tokens=100, no_repeat_ngram=2)
    texts = write_all(Engine(model, 2), [stuck, longer])
    assert sorted(texts[0].ids) == list(range(model.config.vocab_size))
    assert [text.finish for text in texts] == ["stop", "length"]
    assert texts[1].drawn == alone(model, longer).drawn


# --- prefixes ---------------------------------------------------------------------------------------------------------


def test_common_is_the_plain_loop():
    draw = random.Random(0)
    for _ in range(300):
        one, other = ([draw.randrange(2) for _ in range(draw.randrange(12))] for _ in range(2))
        plain = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        assert common_prefix_length(one, other) == plain
