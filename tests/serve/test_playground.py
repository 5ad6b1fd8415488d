"""The engine of the playground: the same numbers as the modules themselves, for every kind of model; bad requests."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from served_runs import random_model

import jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.inference.answer import answer
from jumok.inference.classify import predict
from jumok.inference.scoring import score
from jumok.interpret.ablation import ablate
from jumok.models.gpt import GPT
from jumok.serve.app import create_app
from jumok.serve.models import Models
from jumok.serve.playground.reading import Reading, Units
from jumok.serve.settings import ServeSettings
from jumok.view import schema
from jumok.view.trace import trace

pytestmark = pytest.mark.slow

TEXT = "나는 학교에 갔다. 그리고 친구와 집에 왔다! 😀 각각 않은 값을 읽고,\n" * 6
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[BOS]", "[EOS]"]
MODELS: dict[str, Callable[[], Any]] = {
    "gpt": lambda: random_model(GPTConfig, TEXT, [], seed=1, n_layer=2, n_kv_head=1),
    "classic": lambda: random_model(GPTConfig, TEXT, [], seed=2, n_layer=2, family="classic"),
    "mlm": lambda: random_model(BERTConfig, TEXT, SPECIAL, seed=3, head="mlm"),
    "classes": lambda: random_model(GPTConfig, TEXT, SPECIAL, seed=4, labels=("좋음", "나쁨")),
    "pairs": lambda: random_model(
        EncoderDecoderConfig, TEXT, SPECIAL, seed=5, pad_id=0, bos_id=4, eos_id=5, decoder_start_id=4
    ),
}
Post = Callable[..., httpx2.Response]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    folder = tmp_path_factory.mktemp("runs")
    for name, make in MODELS.items():
        jumok.save(make(), folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_NATIVE", "0")  # no compiler runs here
        found = Models([folder / name for name in MODELS], ServeSettings(slots=2, max_prompt=2_000, max_tokens=500))
        yield found
        found.close(finish=False)


@pytest.fixture(scope="module")
def post(models: Models) -> Iterator[Post]:
    with TestClient(create_app(models, ServeSettings(slots=2, max_prompt=2_000, max_tokens=500))) as client:
        yield lambda method, model="gpt", **body: client.post(
            f"/v1/jumok/engine/{method}", json={"model": model, **body}
        )


def events(response: httpx2.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    return [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]


def loaded(name: str) -> Any:
    return MODELS[name]()


def ids_of(post: Post, text: str, model: str = "gpt") -> list[int]:
    ids: list[int] = post("encode", model, text=text).json()["ids"]
    return ids


def logits(model: GPT, ids: list[int], off: tuple[tuple[int, int], ...] = ()) -> torch.Tensor:
    with torch.inference_mode(), ablate(model, off):
        return model(torch.tensor([ids]))[0, -1]


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_pieces_count_units_of_utf_16(post: Post) -> None:
    found = post("encode", text="😀나").json()
    assert found["text"] == "😀나"
    assert [piece["end"] for piece in found["pieces"]][-1] == 3
    assert found["pieces"][-1] == {"id": found["ids"][-1], "text": "나", "start": 2, "end": 3}
    assert post("spell", ids=found["ids"]).json() == found
    assert post("decode", ids=found["ids"]).json() == {"text": "😀나"}
    letters = ids_of(post, "뷁")  # which the text of the tokenizer does not have
    assert post("decode", ids=letters[:2]).json() == {"text": ""}
    assert post("decode", ids=letters).json() == {"text": "뷁"}


def test_a_text_begins_with_an_id(post: Post) -> None:
    assert len(post("encode", text="").json()["ids"]) == 1


def test_units() -> None:
    assert [Units("a😀b")(place) for place in range(4)] == [0, 1, 3, 4]
    assert Units("가나")(2) == 2


# --- a GPT ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt", "classic"])
def test_the_next_token_is_that_of_the_model(post: Post, name: str) -> None:
    model, ids = loaded(name), ids_of(post, "나는 집에", name)
    found = post("next", name, ids=ids, top=5, sampling={"temperature": 0.5, "top_k": 2}).json()
    expected = logits(model, ids)
    best = expected.topk(5)
    assert [one["id"] for one in found["alternatives"]] == best.indices.tolist()
    assert [one["logit"] for one in found["alternatives"]] == pytest.approx(best.values.tolist(), abs=1e-4)
    shares = (best.values[:2] / 0.5).softmax(dim=-1).tolist()
    assert [one["chosen_probability"] for one in found["alternatives"]] == pytest.approx([*shares, 0, 0, 0], abs=1e-4)
    assert found["kept"] == 2
    assert found["entropy"] == pytest.approx(
        float(torch.distributions.Categorical(logits=expected).entropy()), abs=1e-4
    )


def test_the_likeliest_alone_is_drawn_without_temperature(post: Post) -> None:
    found = post("next", ids=[3], sampling={"temperature": 0.0}).json()
    assert found["kept"] == 1
    assert [one["chosen_probability"] for one in found["alternatives"]][:2] == [1.0, 0.0]


def test_a_beginning_that_was_read_is_read_once(post: Post, models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further token costs one position; a branch goes on from where it leaves the text."""
    model, read, ids = loaded("gpt"), [], ids_of(post, "그리고 친구와")
    hidden = GPT.hidden

    def counted(self: GPT, ids: torch.Tensor, cache: Any = None) -> torch.Tensor:
        read.append(ids.shape[1])
        return hidden(self, ids, cache)

    monkeypatch.setattr(GPT, "hidden", counted)
    reading = Reading(model)
    for text in (ids, [*ids, 7], [*ids, 7, 8], [*ids[:4], 9]):
        found = reading.logits_after(text, ())
        assert torch.allclose(found, logits(model, text), atol=1e-4)
        read.pop()  # the one without a cache
    assert read == [len(ids), 1, 1, 1]


def test_more_than_the_context_is_read_in_a_window(post: Post) -> None:
    model, ids = loaded("gpt"), ids_of(post, TEXT)[:45]  # the context is 32
    found = post("next", ids=ids, top=1).json()["alternatives"][0]
    assert found["logit"] == pytest.approx(float(logits(model, ids[16:]).max()), abs=1e-4)


def test_heads_are_switched_off_for_one_request_alone(post: Post, models: Models) -> None:
    model, ids = loaded("gpt"), ids_of(post, "나는 집에")
    whole = post("next", ids=ids, top=1).json()["alternatives"][0]["logit"]
    off = post("next", ids=ids, top=1, off=[[0, 1], [1, 0]]).json()["alternatives"][0]["logit"]
    assert off == pytest.approx(float(logits(model, ids, ((0, 1), (1, 0))).max()), abs=1e-4)
    assert off != pytest.approx(whole, abs=1e-4)
    assert post("next", ids=ids, top=1).json()["alternatives"][0]["logit"] == pytest.approx(whole, abs=1e-6)
    served = models._runs["gpt"].served
    assert served is not None
    with served.reading.alone() as copy:
        assert copy.token_embedding.weight.data_ptr() == served.model.token_embedding.weight.data_ptr()
        assert copy.blocks[0] is not served.model.blocks[0]


def test_the_surprise_of_a_text(post: Post) -> None:
    model, ids = loaded("gpt"), ids_of(post, TEXT)[:50]
    found = post("score", ids=ids, top=2).json()["tokens"]
    assert [one["id"] for one in found] == ids[1:]
    expected = [-one.log_probability for one in score(model, ids)[1:] if one.log_probability is not None]
    assert [one["surprise"] for one in found] == pytest.approx(expected, abs=1e-4)
    assert all(one["rank"] == 1 for one in found if one["alternatives"][0]["id"] == one["id"])


def test_the_text_of_a_seed_is_that_of_generate(post: Post) -> None:
    found = events(post("write", ids=ids_of(post, "나는"), tokens=60, sampling={"seed": 7, "top_p": 0.9}))
    assert found[-1] == {"ended": "length"}
    text = jumok.generate(loaded("gpt"), "나는", tokens=60, seed=7, top_p=0.9)[0].text
    assert "".join(one["added"] for one in found[:-1]) == text
    for one in found[:-1]:
        assert one["surprise"] == pytest.approx(-math.log(one["probability"]), abs=1e-4)


def test_a_recording_grows_into_that_of_the_whole_text(post: Post) -> None:
    ids = ids_of(post, "나는 학교에")
    found, event = post("record", ids=ids[:-1], layers=[1]).json(), post("record-next", ids=ids).json()
    assert found["format"] == "jumok-trace"
    assert [attention["layers"] for attention in found["attentions"]] == [[1]]
    assert event["token"]["text"] == "에"
    model = loaded("gpt")
    whole = schema.to_json(trace(model, "나는 학교에", lens=False))
    last = whole["predictions"]["tokens"][-1]
    assert event["prediction"]["nats"] == pytest.approx(last["nats"], abs=1e-4)
    assert [len(base64.b64decode(head)) for head in event["rows"]["self"][0]] == [len(ids)] * 2


def numbers(packed: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.frombuffer(base64.b64decode(packed), "<f4")


@pytest.mark.parametrize("name", ["gpt", "classic"])
def test_a_step_adds_up(post: Post, name: str) -> None:
    """Its numbers are those of the model: each part follows from the parts before it."""
    model, ids = loaded(name), ids_of(post, "나는 학교에", name)
    found = post("step", name, ids=ids, layer=1, off=[[1, 0]]).json()
    layer = {key: numbers(value) for key, value in found["layers"][1].items() if isinstance(value, str)}
    length, width, heads, groups = len(ids), 8, 2, model.config.n_kv_head
    keys, values = (layer[key].reshape(groups, length, width) for key in ("keys", "values"))
    q = layer["q_rotated"].reshape(heads, width)
    weights = layer["weights"].reshape(heads, length)
    for head in range(heads):
        scores = keys[head * groups // heads] @ q[head] / math.sqrt(width)
        assert layer["scores"].reshape(heads, length)[head] == pytest.approx(scores, abs=1e-4)
        assert weights[head] == pytest.approx(np.exp(scores) / np.exp(scores).sum(), abs=1e-4)
        out = weights[head] @ values[head * groups // heads] if head != 0 else np.zeros(width)
        assert layer["heads"].reshape(heads, width)[head] == pytest.approx(out, abs=1e-4)
    assert (layer["joined"] == layer["heads"]).all()
    assert layer["residual1"] == pytest.approx(layer["input"] + layer["attention_out"], abs=1e-4)
    assert layer["residual2"] == pytest.approx(layer["residual1"] + layer["mlp_out"], abs=1e-4)
    assert numbers(found["logits"]) == pytest.approx(logits(model, ids, ((1, 0),)).numpy(), abs=1e-4)
    assert (found["position_embedding"] is None) == (name == "gpt")
    assert set(found["layers"][0]) == {"layer", "norms"}
    assert found["length"] == length
    assert found["token"]["text"] == "에"


# --- other models -----------------------------------------------------------------------------------------------------


def test_a_classifier_says_which_words_decide(post: Post) -> None:
    text = "학교에 😀 갔다."
    found = post("classify", "classes", text=text, words=True).json()
    model = loaded("classes")
    whole, without = predict(model, [text, "학교에 갔다."])
    assert {one["label"]: one["probability"] for one in found["labels"]} == pytest.approx(whole.probabilities)
    word = found["words"][1]
    assert (word["text"], word["start"], word["end"]) == ("😀", 4, 6)
    assert whole.label is not None
    effect = math.log(whole.probabilities[whole.label]) - math.log(without.probabilities[whole.label])
    assert word["effect"] == pytest.approx(effect, abs=1e-4)


def test_an_answer_grows_and_has_its_attention(post: Post) -> None:
    *tokens, last, ended = events(post("answer", "pairs", text="나는 집에", tokens=6, trace=True))
    (expected,) = answer(loaded("pairs"), ["나는 집에"], max_tokens=6)
    assert (last["text"], tuple(last["ids"])) == (expected[0].text, expected[0].ids)
    assert [one["id"] for one in tokens] == last["ids"]
    assert [one["text"] for one in last["answers"]] == [last["text"]]
    assert last["score"] == pytest.approx(expected[0].score, abs=1e-4)
    assert last["cross"] is None or last["cross"]["model"]["kind"] == "encoder-decoder"
    assert ended == {"ended": "length"}


def test_beams_are_told_with_their_tokens(post: Post) -> None:
    last, _ = events(post("answer", "pairs", text="나는 집에", tokens=5, beams=3))
    (expected,) = answer(loaded("pairs"), ["나는 집에"], max_tokens=5, beam=3, n_best=3)
    assert [tuple(one["ids"]) for one in last["answers"]] == [one.ids for one in expected]
    assert all(len(one["pieces"]) == len(one["ids"]) for one in last["answers"])


def test_masks_are_filled(post: Post) -> None:
    found = post("fill", "mlm", text="😀 [MASK]는 학교", top=2).json()
    (mask,) = found["masks"]
    assert (mask["start"], mask["end"]) == (3, 9)
    assert len(mask["candidates"]) == 2


@pytest.mark.parametrize(
    ("model", "kind"), [("gpt", "gpt"), ("classes", "classifier"), ("mlm", "bert"), ("pairs", "encoder-decoder")]
)
def test_about(post: Post, model: str, kind: str) -> None:
    found = post("about", model).json()
    assert (found["kind"], found["name"]) == (kind, model)
    assert found["labels"] == (["좋음", "나쁨"] if kind == "classifier" else [])
    assert (found["sampling"]["temperature"] == 0) is (kind == "encoder-decoder")  # answers are greedy at first


# --- bad requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "model", "body"),
    [
        ("next", "gpt", {"ids": []}),
        ("next", "gpt", {"ids": [10**9]}),
        ("next", "gpt", {"ids": [-1]}),
        ("next", "gpt", {"ids": ["1"]}),
        ("next", "gpt", {"ids": [1], "off": [[7, 0]]}),
        ("next", "gpt", {"ids": [1], "off": [[0]]}),
        ("next", "gpt", {"ids": [1], "top": 0}),
        ("next", "gpt", {"ids": [1], "sampling": {"top_p": 0}}),
        ("next", "gpt", {"ids": [1], "sampling": {"temperatur": 1}}),
        ("score", "gpt", {"ids": [1] * 1_001, "top": 1_000}),
        ("write", "gpt", {"ids": [10**9]}),
        ("write", "gpt", {"ids": [1], "tokens": 501}),
        ("step", "gpt", {"ids": [1], "layer": 2}),
        ("record", "gpt", {"ids": [1], "layers": [5]}),
        ("encode", "gpt", {"text": "가" * 2_001}),
        ("next", "mlm", {"ids": [1]}),
        ("write", "pairs", {"ids": [1]}),
        ("classify", "gpt", {"text": "가"}),
        ("classify", "classes", {"text": ""}),
        ("answer", "gpt", {"text": "가"}),
        ("answer", "pairs", {"text": ""}),
        ("answer", "pairs", {"text": "가", "beams": 1_000}),
        ("fill", "mlm", {"text": "가"}),
        ("fill", "mlm", {"text": "[MASK]" * 101}),
    ],
)
def test_bad_requests(post: Post, method: str, model: str, body: dict[str, Any]) -> None:
    response = post(method, model, **body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


def test_an_unknown_model(post: Post) -> None:
    assert post("about", "../gpt").status_code == 404


def test_only_what_is_not_there_is_not_asked_for_again(node: Callable[..., Any]) -> None:
    """The page of a run whose folder was deleted showed the same error every three seconds."""
    source = """
        import { isGone } from "../../serve/assets/server.js";
        output(input.map(([code, status]) => isGone({ code, values: { status } })).concat(isGone(null)));
    """
    errors = [["server.said", 404], ["server.said", 500], ["server.gone", None], ["server.key", None]]
    assert node(source, errors) == [True, False, False, False, False]
