"""The engine of a page writes, scores, records, classifies, answers and fills as Python does with the same parameters.

Tiny models are written as for a page; Node opens them with the engine of the page (tests/js/engine_driver.mjs).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jumok.config import BERTConfig, EncoderDecoderConfig, Frame, GPTConfig, ModelConfig
from jumok.corpora import stories
from jumok.inference.answer import answer
from jumok.inference.classify import predict
from jumok.inference.fill_mask import fill_mask
from jumok.inference.generate import generate
from jumok.inference.sampling import Sampling, filtered
from jumok.models import Model, build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import Tokenizer, train_tokenizer, with_chat
from jumok.view.model_page import ModelPage, packed_parameters, rounded
from jumok.view.schema import to_json
from jumok.view.trace import trace

DRIVER = Path(__file__).resolve().parents[1] / "js" / "engine_driver.mjs"
CONTEXT = 48
PROMPT = "옛날 어느 마을에"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")]


def tokenizer_of(kind: str, special: tuple[str, ...] = ()) -> Tokenizer:
    text = "".join(stories.write(6_000, seed=1))
    return train_tokenizer(text, kind, special_tokens=special, vocab_size=420 if kind == "bpe" else None)


def model_of(kind: type[ModelConfig], tokenizer: Tokenizer, **settings: Any) -> Model:
    """A tiny model with random parameters, whose predictions are far from even."""
    torch.manual_seed(5)
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": CONTEXT, "n_layer": 2, "n_embd": 32, "n_head": 4}
    model = build(kind(**{**sizes, **settings}))
    for parameter in model.parameters():
        scale = 2 * parameter.shape[-1] ** -0.5 if parameter.dim() == 2 else 0.2
        parameter.data = parameter.data + scale * torch.randn_like(parameter)
    model.tokenizer = tokenizer
    return model.eval()


def ask(model: Model, *asks: tuple[Any, ...]) -> list[Any]:
    """What the engine of a page of this model answers; an error is its code and values."""
    header = ModelPage(model, "tiny").header
    base64 = packed_parameters(model, exact=False)[1]
    job = {"header": header, "base64": base64, "asks": [{"method": one[0], "args": one[1:]} for one in asks]}
    command = ["node", "--no-warnings", str(DRIVER)]
    done = subprocess.run(command, input=json.dumps([job]), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    for one in answers:
        assert "found" in one or one.get("code"), one
    return answers


@pytest.mark.parametrize(
    ("family", "kind"),
    [("modern", "char")]
    + [
        pytest.param(*each, marks=pytest.mark.long)
        for each in product(("modern", "classic"), ("char", "jamo", "bpe"))
        if each != ("modern", "char")
    ],
)
def test_greedy_text_is_that_of_pytorch(kind: str, family: str) -> None:
    model = model_of(GPTConfig, tokenizer_of(kind), family=family)
    ids = model.tokenizer.encode(PROMPT).tolist()
    (written,) = ask(model, ("write", ids, {"tokens": 500, "sampling": {"temperature": 0}, "top": 3}))
    [expected] = generate(rounded(model), PROMPT, tokens=500, temperature=0)
    assert written["found"]["ids"] == [*ids, *expected.ids]
    text = "".join(event["added"] for event in written["events"]) + written["found"]["rest"]
    assert text == expected.text
    assert written["found"]["ended"] == "length"


@pytest.mark.parametrize("kind", ["char", "jamo", "bpe"])
def test_a_prompt_with_special_tokens_is_read_and_shown_as_typed(kind: str) -> None:
    """A chat that a template had written was spelled in letters; read as tokens, it would vanish from the text."""
    plain = tokenizer_of(kind, ("[MASK]",))
    texts = ["<|user|>\n안녕<|end|>\n<|assistant|>\n", "[MASK]", "가[MASK]", "나<think></think>", PROMPT, "<|user|"]
    for tokenizer in (plain, with_chat(plain)):
        model = model_of(GPTConfig, tokenizer)
        names = {token: name for name, token in tokenizer.special_tokens.items()}
        for text, read in zip(texts, ask(model, *(("encode", one) for one in texts)), strict=True):
            found = read["found"]
            assert found["ids"] == tokenizer.encode_prompt(text).tolist()
            assert found["text"] == text
            for one in found["pieces"]:
                assert text[one["start"] : one["end"]] == names.get(one["id"], text[one["start"] : one["end"]])


def test_the_distribution_of_the_next_token_is_that_of_pytorch() -> None:
    model = model_of(GPTConfig, tokenizer_of("char"))
    ids = model.tokenizer.encode(PROMPT * 12).tolist()  # longer than the context
    settings = {"temperature": 0.7, "top_k": 9, "top_p": 0.8}
    found, raw, greedy = (
        one["found"]
        for one in ask(
            model,
            ("next", ids, {"sampling": settings, "top": 20}),
            ("next", ids, {"sampling": {"temperature": 1}, "top": 20}),
            ("next", ids, {"sampling": {"temperature": 0}}),
        )
    )
    window = ids[-(-(len(ids) - CONTEXT) // (CONTEXT // 2)) * (CONTEXT // 2) :]
    with torch.inference_mode():
        logits = rounded(model)(torch.tensor([window]))[:, -1]
    shares = logits.softmax(-1)[0]
    chosen = torch.from_numpy(filtered(logits.numpy(), Sampling(**settings))).softmax(-1)[0]
    for one in found["alternatives"]:
        assert one["logit"] == pytest.approx(float(logits[0, one["id"]]), abs=1e-3)
        assert one["probability"] == pytest.approx(float(shares[one["id"]]), abs=1e-4)
        assert one["chosen_probability"] == pytest.approx(float(chosen[one["id"]]), abs=1e-4)
    assert [one["id"] for one in found["alternatives"]] == shares.topk(20).indices.tolist()
    assert found["kept"] == int((chosen > 0).sum())
    assert found["entropy"] == pytest.approx(float(torch.special.entr(shares).sum()), abs=1e-3)
    assert raw["kept"] == model.tokenizer.vocab_size
    assert [one["chosen_probability"] for one in greedy["alternatives"]][:2] == [1, 0]


def test_the_kept_tokens_are_those_of_python() -> None:
    model = model_of(GPTConfig, tokenizer_of("char"), n_layer=1)
    draw = np.random.default_rng(3)
    asks = []
    for _ in range(60):
        logits = np.round(draw.normal(size=40) * draw.choice([1, 3, 8]), 2)  # with ties
        settings = {
            "temperature": float(draw.choice([0.3, 0.8, 1.0, 1.7])),
            "top_k": int(draw.choice([0, 1, 5, 30, 100])),
            "top_p": float(draw.choice([1.0, 0.95, 0.5, 0.01])),
            "min_p": float(draw.choice([0.0, 0.05, 0.4])),
            "repetition_penalty": float(draw.choice([1.0, 1.3, 0.7])),
        }
        asks.append((logits.astype(np.float32), settings, draw.integers(0, 40, 7).tolist()))
    found = ask(model, *(("sampled", one.tolist(), {**settings, "seen": seen}) for one, settings, seen in asks))
    for (logits, settings, ids), one in zip(asks, found, strict=True):
        seen = np.zeros((1, 40), np.bool)
        seen[0, ids] = True
        expected = torch.from_numpy(filtered(logits[None], Sampling(**settings), seen)).softmax(-1)[0]
        shares = torch.tensor(one["found"], dtype=torch.float32)
        assert torch.equal(shares > 0, expected > 0), settings
        torch.testing.assert_close(shares, expected, atol=1e-5, rtol=1e-4)


def test_scores_are_those_of_pytorch_also_after_changes() -> None:
    model = model_of(GPTConfig, tokenizer_of("char"))
    ids = model.tokenizer.encode(PROMPT * 4).tolist()[:CONTEXT]
    changed = [*ids[:20], ids[30], *ids[21:40]]
    texts = [ids[:30], ids, changed, ids[:5], ids[:6], [*ids[:5], ids[9]], ids + ids]
    found = ask(model, ("scoredAgain", texts))[0]["found"]
    for text, scores in zip(texts, found, strict=True):
        start = 0 if len(text) <= CONTEXT else -(-(len(text) - CONTEXT) // (CONTEXT // 2)) * (CONTEXT // 2)
        assert scores[:start] == [None] * start
        window = torch.tensor([text[start:]])
        with torch.inference_mode():
            logs = rounded(model)(window).log_softmax(-1)[0]
        assert len(scores) == len(text) - 1
        for i, one in enumerate(scores[start:]):
            token = text[start + i + 1]
            assert one["id"] == token
            assert one["surprise"] == pytest.approx(-float(logs[i, token]), abs=1e-3)
            assert one["rank"] == 1 + int((logs[i] > logs[i, token]).sum())


def test_calls_between_tokens_do_not_change_the_text() -> None:
    model = model_of(GPTConfig, tokenizer_of("jamo"))
    ids = model.tokenizer.encode(PROMPT).tolist()
    settings = {"tokens": 120, "sampling": {"temperature": 1, "seed": 4}}
    alone, among, other, stopped = ask(
        model,
        ("write", ids, settings),
        ("interleaved", ids, settings, [ids[:3], ids[2:], ids * 3]),
        ("write", ids, {"tokens": 120, "sampling": {"temperature": 1, "seed": 5}}),
        ("stoppedAfter", ids, 40),
    )
    assert alone["found"]["ids"] == among["found"]["ids"]
    assert alone["found"]["ids"] != other["found"]["ids"]
    assert stopped["found"]["ended"] == "stop"
    assert len(ids) + 40 <= len(stopped["found"]["ids"]) < 100_000


def test_a_recording_is_the_trace_of_python() -> None:
    model = model_of(GPTConfig, tokenizer_of("bpe"), n_kv_head=2)
    ids = model.tokenizer.encode(PROMPT + " 한 사람이 살았습니다.\n😀").tolist()[:CONTEXT]
    text = model.tokenizer.decode(ids)
    viewed = ask(model, ("viewed", ids))[0]["found"]
    found = trace(rounded(model), text)
    expected = to_json(found)
    for name in ("tokens", "text"):
        assert viewed["sequences"][0][name] == expected["sequences"][0][name], name
    for layer in range(2):
        for head, weights in enumerate(found.attentions[0].weights(layer)):
            np.testing.assert_allclose(viewed["weights"][f"self {layer} {head}"], weights.ravel(), atol=0.006)
    for mine, theirs in zip(viewed["predictions"]["tokens"][1:], expected["predictions"]["tokens"][1:], strict=True):
        assert mine["nats"] == pytest.approx(theirs["nats"], rel=2e-3, abs=1e-3)
        assert mine["rank"] == theirs["rank"]
        for here, there in zip(mine["top"], theirs["top"], strict=True):  # two can be equally likely
            assert here[:2] == list(there[:2]) or here[2] == pytest.approx(there[2], abs=2e-4)
    queries = found.attentions[0].queries_of(1)
    np.testing.assert_allclose(viewed["weights"]["q self 1 2"], queries[2].ravel(), atol=1e-3)
    for name, layers in viewed["stats"][0].items():
        np.testing.assert_allclose(layers, expected["attentions"][0]["stats"][name], rtol=2e-3, atol=1e-4)


FRAME = Frame(before=(2, 1), after=(3,))


@pytest.mark.parametrize("frame", [None, FRAME])
@pytest.mark.parametrize("config", [GPTConfig, BERTConfig])
def test_classes_are_those_of_python(config: type[ModelConfig], frame: Frame | None) -> None:
    """A page chose the ids around a text by the names of tokens, so an imported model read others than in Python."""
    labels = ("나쁨", "<b>보통</b>", "좋음")
    given: dict[str, Any] = {"head": "classify"} if config is BERTConfig else {"pooling": "last"}
    model = model_of(config, tokenizer_of("char", SPECIAL_TOKENS), labels=labels, frame=frame, **given)
    texts = ["옛날 어느 마을에 한 아이가", "  바람이\x1c ", "나무 " * 40]
    *found, words, empty = ask(
        model, *(("classify", text) for text in texts), ("classify", texts[0], {"words": True}), ("classify", " \n")
    )
    expected = predict(rounded(model), texts)
    for one, theirs in zip(found, expected, strict=True):
        shares = {label["label"]: label["probability"] for label in one["found"]["labels"]}
        assert shares == pytest.approx(theirs.probabilities, abs=1e-3)
        assert one["found"]["tokens"] > one["found"]["read"] or not theirs.cut
    assert empty["code"] == "engine.empty_text"
    effects = words["found"]["words"]
    assert [one["text"] for one in effects] == texts[0].split()
    [whole, without] = predict(rounded(model), [texts[0], "옛날 마을에 한 아이가"])
    change = np.log(without.probabilities[whole.label]) - np.log(whole.probabilities[whole.label])
    assert effects[1]["effect"] == pytest.approx(change, abs=1e-3)


def test_the_ids_around_a_source_are_those_of_the_model() -> None:
    ids = {"pad_id": 0, "decoder_start_id": 1, "eos_id": 2}
    model = model_of(EncoderDecoderConfig, tokenizer_of("char", SPECIAL_TOKENS), frame=FRAME, **ids)
    [found] = ask(model, ("answer", "옛날 어느", {"tokens": 8}))
    assert found["found"]["ids"] == list(answer(rounded(model), ["옛날 어느"], max_tokens=8)[0][0].ids)


def test_an_empty_text_begins_as_in_python() -> None:
    """A page began with a newline where the model has an id that begins a text."""
    model = model_of(GPTConfig, tokenizer_of("char", SPECIAL_TOKENS), bos_id=2)
    assert ask(model, ("encode", ""))[0]["found"]["ids"] == [2]


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_blanks_are_filled_as_in_python(kind: str) -> None:
    model = model_of(BERTConfig, tokenizer_of(kind, SPECIAL_TOKENS), head="mlm")
    texts = [
        "옛날 [MASK] 마을에 한[MASK] 살았[MASK]다.",
        "[MASK]",
        "바람이 불고 " * 20 + "[MASK] 나무가 [MASK]" + " 자라고" * 20,
    ]
    *found, none = ask(model, *(("fill", text, {"top": 4}) for text in texts), ("fill", "없다"))
    assert none["code"] == "engine.no_mask_in_text"
    for text, one in zip(texts, found, strict=True):
        expected = fill_mask(rounded(model), text, top=4)
        assert one["found"]["text"] == expected.text
        for mine, theirs in zip(one["found"]["masks"], expected.masks, strict=True):
            assert text[mine["start"] : mine["end"]] == "[MASK]"
            assert mine["start"] == theirs.position
            assert [candidate["id"] for candidate in mine["candidates"]] == [each.id for each in theirs.candidates]
            for candidate, each in zip(mine["candidates"], theirs.candidates, strict=True):
                assert candidate["probability"] == pytest.approx(each.probability, abs=1e-3)


@pytest.mark.parametrize(
    ("family", "bias", "forced"),
    [
        ("classic", 4.5, None),
        pytest.param("classic", 0.0, 2, marks=pytest.mark.long),
        pytest.param("original", 7.0, None, marks=pytest.mark.long),
    ],
)
def test_answers_are_those_of_python(family: str, bias: float, forced: int | None) -> None:
    """Some answers end after a few tokens, and others use all of theirs up."""
    tokenizer = tokenizer_of("char", ("[PAD]", "[BOS]", "[EOS]"))
    ids = tokenizer.special_tokens
    model = model_of(
        EncoderDecoderConfig,
        tokenizer,
        family=family,
        context_length=24,
        pad_id=ids["[PAD]"],
        decoder_start_id=ids["[BOS]"],
        eos_id=ids["[EOS]"],
        forced_eos_id=forced,
    )
    model.output_bias[ids["[EOS]"]] = bias
    texts = ["마을에", "옛날 어느", "바람이 분다", "나무"]
    found = ask(model, *(("answer", text) for text in texts))
    for one, [best] in zip(found, answer(rounded(model), texts), strict=True):
        assert one["found"]["ids"] == list(best.ids)
        assert one["found"]["text"] == best.text
        assert one["found"]["score"] == pytest.approx(best.score, abs=1e-3)
        assert one["found"]["finish"] == best.finish
    long, viewed = ask(model, ("answer", "가" * 30), ("answeredTrace", texts[0]))
    assert (long["code"], long["values"]) == ("engine.source_too_long", {"count": 31, "most": 24})
    theirs = trace(rounded(model), texts[0])
    for attention in theirs.attentions:
        for layer in attention.layers:
            for head, weights in enumerate(attention.weights(layer)):
                mine = viewed["found"]["weights"][f"{attention.block} {layer} {head}"]
                np.testing.assert_allclose(mine, weights.ravel(), atol=0.006)


@pytest.mark.long
def test_a_prompt_of_100_000_characters_is_read_where_the_model_can_see_it() -> None:
    model = model_of(GPTConfig, tokenizer_of("bpe"))
    text = "가" * 50_000 + " 나무가" * 12_500
    encoded = ask(model, ("encode", text))[0]["found"]
    ids = model.tokenizer.encode(text).tolist()
    assert encoded["ids"] == ids
    assert encoded["pieces"][-1]["end"] == len(text)
    written = ask(model, ("write", ids, {"tokens": 3, "sampling": {"temperature": 0}}))[0]["found"]
    [expected] = generate(rounded(model), text, tokens=3, temperature=0)
    assert written["ids"][len(ids) :] == list(expected.ids)


def test_what_a_model_cannot_do_has_a_code() -> None:
    model = model_of(GPTConfig, tokenizer_of("char"))
    vocab = model.tokenizer.vocab_size
    found = ask(
        model,
        ("fill", "가"),
        ("next", [vocab]),
        ("next", [1], {"sampling": {"top_p": 0}}),
        ("step", [1], {"layer": 2}),
        ("write", []),
        ("encode", ""),
        ("decode", model.tokenizer.encode("가\u1112").tolist()[:-1]),
    )
    codes = [one.get("code") for one in found]
    assert codes[:5] == [
        "engine.not_this_model",
        "engine.id",
        "engine.sampling",
        "engine.no_layer",
        "engine.empty_text",
    ]
    assert found[1]["values"] == {"id": vocab, "last": vocab - 1}
    assert found[5]["found"]["ids"] == model.tokenizer.encode("\n").tolist()
    assert found[6]["found"] == "가"
