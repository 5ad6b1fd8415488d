"""A trace as JSON: what a page decodes is what the model computed, as near as it says, and small enough."""

from __future__ import annotations

import base64
import json
import sys
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trace import TEXT, bert, gpt, seq2seq

from jumok.view.page import page_of
from jumok.view.schema import budget, opened_layer, to_json
from jumok.view.trace import trace
from jumok.view.weight_encoding import Floats, decode_weights, encode_vectors, encode_weights


def softmax(scores: Floats, causal: bool) -> Floats:
    t, s = scores.shape
    if causal:
        scores = np.where(np.tri(t, s, s - t, dtype=bool), scores, -np.inf)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


def decode_vectors(scale: float, text: str, d: int, *, bits: int = 8) -> Floats:
    """What a page makes of `encode_vectors`: (T, D)."""
    return np.frombuffer(raw(text), f"<i{bits // 8}").reshape(-1, d).astype(np.float32) * np.float32(scale)


def raw(coded: str) -> bytes:
    return zlib.decompress(base64.b64decode(coded), -15)


def rows_sum_to_one(weights: Floats) -> None:
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-5)


heads = st.tuples(
    st.integers(1, 12), st.integers(0, 8), st.booleans(), st.floats(0, 12), st.integers(0, 2**32 - 1)
)  # queries, earlier keys, causal, sharpness, seed


@pytest.mark.slow
@settings(max_examples=120)
@given(heads, st.sampled_from([65_535, 255, 64, 16]))
def test_levels_are_as_near_as_they_promise(head: tuple[int, int, bool, float, int], levels: int) -> None:
    """Before rows are divided by their sums a weight is off by (sqrt(w) + 1/4L) / L; dividing adds the sum of these."""
    t, past, causal, sharpness, seed = head
    scores = np.random.default_rng(seed).normal(size=(t, t + past)).astype(np.float32) * sharpness
    weights = softmax(scores, causal)
    coded = encode_weights(weights, causal=causal, levels=levels)
    shown = decode_weights(coded, t, t + past, causal=causal, levels=levels)
    rows_sum_to_one(shown)
    assert not (shown[weights == 0]).any()
    bound = (np.sqrt(weights) + 0.25 / levels) / levels
    off = (weights > 0) * bound
    total = off.sum(axis=1, keepdims=True)
    possible = total < 1  # else the bound says nothing
    limit = (off + weights * total) / np.where(possible, 1 - total, 1)
    assert (np.abs(shown - weights) <= limit + 1e-6)[np.broadcast_to(possible, weights.shape)].all()


def test_rows_without_anything_stay_zero_and_long_rows_do_not_vanish() -> None:
    """In a row of 1,024 equal weights none reaches half a step of 16 levels; they are shown as equal all the same."""
    weights = np.full((2, 1024), 1 / 1024, np.float32)
    weights[1] = 0
    shown = decode_weights(encode_weights(weights, causal=False, levels=15), 2, 1024, causal=False, levels=15)
    np.testing.assert_allclose(shown[0], 1 / 1024, rtol=1e-5)
    assert not shown[1].any()


def test_only_the_triangle_is_kept() -> None:
    weights = softmax(np.zeros((64, 64), np.float32), causal=True)
    coded = base64.b64decode(encode_weights(weights, causal=True))
    assert len(coded) < 64 * 65
    shown = decode_weights(encode_weights(weights, causal=True), 64, 64, causal=True)
    np.testing.assert_allclose(shown, weights, atol=2e-5)


def test_vectors_keep_one_part_in_127() -> None:
    vectors = np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32)
    scale, text = encode_vectors(vectors)
    assert np.abs(decode_vectors(scale, text, 5) - vectors).max() <= scale / 2 + 1e-6
    assert encode_vectors(np.zeros((2, 3), np.float32))[0] > 0


# --- the object -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [gpt, bert, seq2seq])
def test_the_object_says_what_the_model_computed(make: Any) -> None:
    model = make()
    found = trace(model, "나는 어제 학교에", **({"target": "비가 와서"} if make is seq2seq else {}))
    objects = json.loads(json.dumps(to_json(found)))
    assert (objects["format"], objects["version"]) == ("jumok-trace", 3)
    assert objects["model"]["parameters"] == model.parameter_count()
    assert len(objects["attentions"]) == len(found.attentions)
    for one, told in zip(found.attentions, objects["attentions"], strict=True):
        assert (told["block"], told["t"], told["s"], told["bits"]) == (one.block, one.t, one.s, 16)
        assert len(objects["sequences"][told["queries"]]["tokens"]) == one.t
        assert len(objects["sequences"][told["keys"]]["tokens"]) == one.s
        for layer, coded, entropies in zip(one.layers, told["weights"], told["stats"]["entropy"], strict=True):
            for head in range(len(coded)):
                shown = decode_weights(coded[head], one.t, one.s, causal=one.causal, levels=told["levels"])
                off = np.abs(shown - one.weights(layer)[head])
                assert off.max() <= told["error"]["max"] * 1.05 + 1e-9  # rounded to two digits
                assert off.max() < 1e-4
                assert 0 <= entropies[head] <= np.log(one.s) + 1e-6
        keys = objects["neurons"]["layers"][one.block]["1"]
        queries = decode_vectors(keys["q_scale"][1], keys["q"][1], keys["head_dim"], bits=16)
        np.testing.assert_allclose(queries, one.queries_of(1)[1], atol=keys["q_scale"][1])
    assert ("distance" in objects["attentions"][-1]["stats"]) == (make is not seq2seq)


@pytest.mark.parametrize("bits", [16, 8])
def test_queries_and_keys_make_the_scores_as_near_as_the_page_says(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    """The neuron view printed q·k with five digits from 8 bits, 55.005 for 55.157. The error is measured and told."""
    if bits == 8:
        monkeypatch.setattr(sys.modules[to_json.__module__], "budget", lambda _: 0)
    found = trace(gpt(n_kv_head=1), "나는 어제 학교에 갔다.")
    neurons = to_json(found, layer=2)["neurons"]
    assert neurons["bits"] == bits
    told = neurons["layers"]["self"]["2"]
    one = found.attentions[0]
    for head, (q, told_error) in enumerate(zip(one.queries_of(2), told["score_error"], strict=True)):
        shown = decode_vectors(told["q_scale"][head], told["q"][head], one.head_dim, bits=bits)
        keys = decode_vectors(told["k_scale"][0], told["k"][0], one.head_dim, bits=bits)
        off = np.abs(shown @ keys.T - q @ one.keys_of(2)[0].T) * neurons["scale"]
        assert 0.9 * told_error <= off.max() <= told_error
        assert np.abs(shown - q).max() <= told["q_scale"][head] / 2 * 1.001


def test_a_relative_error_is_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page said "0.29% of a weight at most", an absolute error; of small weights it was up to 8.6%."""
    monkeypatch.setattr(sys.modules[to_json.__module__], "budget", lambda _: 4000)
    found = trace(gpt(context_length=128), (TEXT * 4)[:120])
    (told,) = to_json(found)["attentions"]
    assert told["bits"] == 8
    off, relative = 0.0, 0.0
    for layer, coded in zip(found.attentions[0].layers, told["weights"], strict=True):
        for head, weights in zip(coded, found.attentions[0].weights(layer), strict=True):
            shown = decode_weights(head, told["t"], told["s"], causal=True, levels=told["levels"])
            off = max(off, float(np.abs(shown - weights).max()))
            large = weights >= 0.001
            relative = max(relative, float((np.abs(shown - weights)[large] / weights[large]).max()))
    assert told["error"]["max"] == pytest.approx(off, rel=0.06)
    assert told["error"]["relative"] == pytest.approx(relative, rel=0.06)
    assert relative > 10 * off


def test_heads_know_the_key_heads_of_the_model() -> None:
    """Of some heads only, the one that serves a head cannot be told by counting what is here."""
    (told,) = to_json(trace(gpt(n_head=4, n_kv_head=2), "나는 어제", heads=[1, 3]))["attentions"]
    assert (told["heads"], told["n_head"], told["n_head_model"], told["n_kv_head"]) == ([1, 3], 2, 4, 2)


def test_lens_and_predictions() -> None:
    found = trace(gpt(), "나는 어제 학교에")
    objects = to_json(found)
    assert found.predictions is not None
    assert objects["predictions"]["tokens"][0] is None
    assert objects["predictions"]["after"]["p"] is None
    assert objects["lens"]["top"][0][0] == []
    assert objects["lens"]["p"][3][0] is None
    assert objects["lens"]["p"][3][2] == pytest.approx(objects["predictions"]["tokens"][2]["p"], rel=1e-2)
    json.dumps(objects, allow_nan=False)


@pytest.mark.slow
def test_a_small_budget_is_kept_and_the_cost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With little room weights are rounded more, in all heads alike, and queries and keys are of the opened layer."""
    model, text = gpt(context_length=128, n_layer=6, n_head=4, n_embd=64), (TEXT * 4)[:120]
    whole = to_json(trace(model, text), layer=3)
    assert list(whole["neurons"]["layers"]["self"]) == list("012345")
    assert whole["notes"] == []
    vectors = size(whole["neurons"]["layers"]["self"]["3"])  # of 16 bits
    room = size({**whole, "attentions": None, "neurons": None}) + vectors // 2 + size(whole["attentions"]) // 4
    # By its name it cannot be reached: jumok.view is a function.
    monkeypatch.setattr(sys.modules[to_json.__module__], "budget", lambda _: room)
    small = to_json(trace(model, text), layer=3)
    assert small["neurons"]["bits"] == small["attentions"][0]["bits"] == 8
    assert size(small) <= room * 1.02  # the notes come on top
    assert list(small["neurons"]["layers"]["self"]) == ["3"]
    (note,) = small["notes"]
    assert note["ko"].endswith("요.")
    assert "q and k are there for layer 3 only" in note["en"]
    error = small["attentions"][0]["error"]  # of which the page makes a note
    assert whole["attentions"][0]["error"]["mean"] < error["mean"] < 0.1


def test_the_layer_that_a_page_opens_at_has_queries_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one layer only, it must be the one that is opened, and that is where there is something to see."""
    model, text = gpt(n_layer=6), "나는 어제 학교에 갔다."
    with torch.no_grad():
        model.blocks[4].attention.q_norm.weight *= 8  # heads that are sure of themselves
    found = trace(model, text)
    monkeypatch.setattr(sys.modules[to_json.__module__], "budget", lambda _: 0)
    small = to_json(found)
    assert list(small["neurons"]["layers"]["self"]) == ["4"]
    assert opened_layer(small) == page_of(found).opening["layer"] == 4


def size(found: Any) -> int:
    return len(json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode())


def test_the_budget_of_a_page() -> None:
    """With some 250 kB of page around it: 2 MB for 256 tokens, 8 MB for 512."""
    assert budget(1) == budget(256) == 1_700_000
    assert budget(512) == 7_700_000
    assert budget(511) < budget(512) < budget(513) < budget(1024) < 25_000_000
