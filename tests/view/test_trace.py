"""What a page shows of a model and a text: numbers that are the model's, for each kind of model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import jumok
from foreign_tokenizers import roberta, unigram
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, TextError, TokenizerError, ViewError
from jumok.inference.answer import answer
from jumok.inference.generate import generate
from jumok.models import Model, build
from jumok.tokenizers import Tokenizer, train_tokenizer
from jumok.view.trace import Trace, trace
from jumok.view.traced_attention import head_statistics

TEXT = "나는 어제 학교에 갔다. 그러나 비가 와서 집에 왔다.\n"
SHAPE = {"n_layer": 3, "n_head": 2, "n_embd": 16, "context_length": 24}


def tokenizer_of(kind: str = "char", special: tuple[str, ...] = ()) -> Tokenizer:
    return train_tokenizer([TEXT * 3], kind=kind, special_tokens=special)


def made(config: Any, tokenizer: Tokenizer) -> Model:
    torch.manual_seed(0)
    model = build(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.3)
    model.tokenizer = tokenizer
    return model.eval()


def gpt(**changes: Any) -> jumok.GPT:
    tokenizer = tokenizer_of()
    model = made(GPTConfig(vocab_size=tokenizer.vocab_size + 3, **{**SHAPE, **changes}), tokenizer)
    assert isinstance(model, jumok.GPT)
    return model


def bert(**changes: Any) -> jumok.BERT:
    tokenizer = tokenizer_of(special=("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    model = made(BERTConfig(vocab_size=tokenizer.vocab_size, **{**SHAPE, **changes}), tokenizer)
    assert isinstance(model, jumok.BERT)
    return model


@pytest.mark.parametrize("made_by", [roberta, unigram])
def test_a_mask_with_the_space_before_it_is_one_token(made_by: Any) -> None:
    """<mask> of RoBERTa includes that space. The parts around it were encoded alone, so a lone Ġ or ▁ was shown."""
    pipeline = made_by(False) if made_by is roberta else made_by()
    text = "나는 <mask> 갔다."
    tokenizer = Tokenizer(pipeline)
    model = made(BERTConfig(vocab_size=tokenizer.vocab_size, **SHAPE), tokenizer)
    found = trace(model, text)
    assert [token["id"] for token in found.sequences[0]["tokens"]] == pipeline.encode(text).ids


def seq2seq() -> jumok.EncoderDecoder:
    tokenizer = tokenizer_of(special=("[PAD]", "[BOS]", "[EOS]"))
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    model = made(
        EncoderDecoderConfig(vocab_size=tokenizer.vocab_size, n_decoder_layer=2, n_decoder_head=4, **ids, **SHAPE),
        tokenizer,
    )
    assert isinstance(model, jumok.EncoderDecoder)
    return model


def shown(found: Trace, sequence: int = 0) -> str:
    return "".join(token["text"] for token in found.sequences[sequence]["tokens"])


# --- a GPT ------------------------------------------------------------------------------------------------------------


def test_a_name_may_hold_half_a_surrogate_pair() -> None:
    """A name with a half that no file name has ended with a UnicodeEncodeError (fuzzing, seed 3)."""
    assert trace(gpt(), "나", name="\ud800 \udcb0 글").model["name"] == "\ufffd \ufffd 글"


@pytest.mark.parametrize("family", ["modern", "classic"])
@torch.inference_mode()
def test_predictions_are_those_of_the_model(family: str) -> None:
    """What stands at place i was expected from the logits of place i - 1."""
    model = gpt(family=family)
    found = trace(model, "나는 학교에 갔다")
    ids = [token["id"] for token in found.sequences[0]["tokens"]]
    known = model.tokenizer.vocab_size
    chances = model(torch.tensor([ids]))[0, :, :known].softmax(-1)
    assert found.predictions is not None
    assert found.predictions["kind"] == "next"
    assert found.predictions["tokens"][0] is None
    for i in range(1, len(ids)):
        told = found.predictions["tokens"][i]
        assert told is not None
        p = float(chances[i - 1, ids[i]])
        assert told["p"] == pytest.approx(p, rel=1e-3)
        assert told["nats"] == pytest.approx(-math.log(p), rel=1e-3)
        assert told["rank"] == 1 + int((chances[i - 1] > chances[i - 1, ids[i]]).sum())
        assert [guess[0] for guess in told["top"]] == chances[i - 1].topk(10).indices.tolist()
        best = chances[i - 1].topk(10).values.tolist()
        assert [guess[2] for guess in told["top"]] == pytest.approx(best, rel=1e-2)
    after = found.predictions["after"]
    assert after is not None
    assert (after["p"], after["rank"], after["nats"]) == (None, None, None)
    assert after["top"][0][0] == int(chances[-1].argmax())


@torch.inference_mode()
def test_the_last_layer_of_the_lens_is_the_prediction() -> None:
    """And its first is the embedding read by the final norm and the output layer, with nothing in between."""
    model = gpt()
    found = trace(model, "나는 학교에")
    ids = torch.tensor([[token["id"] for token in found.sequences[0]["tokens"]]])
    assert found.lens is not None
    assert found.predictions is not None
    assert found.lens["names"] == ["embedding", "layer 1", "layer 2", "layer 3"]
    told = [one["p"] for one in found.predictions["tokens"][1:]]
    np.testing.assert_allclose(found.lens["p"][-1][1:], told, rtol=1e-2)
    embedded = model.head(model.norm(model.token_embedding(ids)))[0, :, : model.tokenizer.vocab_size].softmax(-1)
    best = embedded[:-1].topk(3)
    for guesses, ids_, shares in zip(found.lens["top"][0][1:], best.indices, best.values, strict=True):
        likely = [i for i, share in zip(ids_.tolist(), shares.tolist(), strict=True) if share >= 0.01]
        assert [guess[0] for guess in guesses] == (likely or ids_[:1].tolist())
    assert [layer[0] for layer in found.lens["p"]] == [None] * 4
    assert [layer[0] for layer in found.lens["top"]] == [[]] * 4


def test_weights_are_those_of_the_model() -> None:
    model = gpt(n_kv_head=1)
    found = trace(model, "나는 학교에 갔다")
    (attention,) = found.attentions
    with torch.no_grad(), jumok.record(model) as recording:  # with gradients, products may round differently
        model(torch.tensor([[token["id"] for token in found.sequences[0]["tokens"]]]))
    for layer in range(3):
        expected = recording.attentions[layer].weights()[0].detach().numpy()
        np.testing.assert_allclose(attention.weights(layer), expected, rtol=1e-6)
        np.testing.assert_allclose(attention.head_weights(layer, 1), expected[1], rtol=1e-6)
    assert attention.keys_of(0).shape == (1, 9, 8)
    assert attention.queries_of(0).shape == (2, 9, 8)


def test_written_tokens_follow_the_text() -> None:
    model = gpt()
    found = trace(model, "나는", tokens=7, seed=3)
    written = generate(model, "나는", tokens=7, seed=3)[0]
    ids = [token["id"] for token in found.sequences[0]["tokens"]]
    assert ids[2:] == list(written.ids)
    assert found.sequences[0]["prompt"] == 2
    assert found.attentions[0].t == 9


def test_a_text_from_nothing_begins_as_after_a_line_end() -> None:
    found = trace(gpt(), "", tokens=3, seed=0)
    assert found.sequences[0]["tokens"][0]["text"] == "⏎"
    assert found.sequences[0]["prompt"] == 1
    with pytest.raises(TextError, match=r"the text has nothing .*give some words or ask for tokens"):
        trace(gpt(), "")


def test_of_a_long_text_the_end_is_shown() -> None:
    """And it is said; what was written is not lost to a prompt that fills the context alone."""
    found = trace(gpt(), TEXT * 3, tokens=4, seed=0)
    assert found.attentions[0].t == 24
    assert found.sequences[0]["prompt"] == 20
    assert len(found.notes) == 1
    assert f"the first {len(TEXT) * 3 + 4 - 24} are left out" in found.notes[0]["en"]
    assert f"{len(TEXT) * 3 + 4 - 24}토큰" in found.notes[0]["ko"]
    found = trace(gpt(), "나는", tokens=30, seed=0)
    assert (found.sequences[0]["prompt"], found.attentions[0].t) == (0, 24)


def test_a_classifier_is_looked_at_as_it_reads() -> None:
    """Its output layer was never trained on text, so what it would predict is not told."""
    model = gpt(labels=("나쁨", "좋음"))
    found = trace(model, "나는 학교에")
    assert shown(found) == "나는␣학교에⏎"  # what stands behind each text that it classifies
    assert found.predictions is None
    assert found.lens is None
    assert "no output layer" in found.notes[0]["en"]
    with pytest.raises(ConfigError, match="tokens=3: this GPT reads texts and writes none"):
        trace(model, "나는", tokens=3)


# --- a BERT -----------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_a_bert_reads_a_framed_text_and_fills_blanks() -> None:
    model = bert()
    found = trace(model, "나는 [MASK]에 갔다")
    assert shown(found) == "[CLS]나는␣[MASK]에␣갔다[SEP]"
    ids = torch.tensor([[token["id"] for token in found.sequences[0]["tokens"]]])
    chances = model.mlm_logits(model(ids))[0].softmax(-1)
    hidden = ids.clone()
    hidden[0, 1] = ids[0, 4]  # seen, it would only be copied; of seven tokens each is hidden alone
    without = model.mlm_logits(model(hidden))[0, 1].softmax(-1)
    assert found.predictions is not None
    assert found.predictions["kind"] == "here"
    told = found.predictions["tokens"]
    assert told[0] is None
    assert told[-1] is None
    assert told[1] is not None
    assert told[1]["p"] == pytest.approx(float(without[ids[0, 1]]), rel=1e-3)
    assert told[1]["p"] != pytest.approx(float(chances[1, ids[0, 1]]), rel=1e-2)
    assert found.lens is not None
    assert found.lens["p"][-1][1] == pytest.approx(told[1]["p"], rel=1e-2)
    blank = told[4]
    assert blank is not None
    assert (blank["p"], blank["rank"], blank["nats"]) == (None, None, None)
    assert blank["top"][0][0] == int(chances[4].argmax())
    assert found.predictions["after"] is None
    (attention,) = found.attentions
    assert not attention.causal
    assert attention.weights(0)[0, 0, -1] > 0


@pytest.mark.parametrize("head", ["none", "pooler"])
def test_without_a_head_for_words_attention_is_all_there_is(head: str) -> None:
    found = trace(bert(head=head), TEXT)
    assert found.attentions[0].t == 24
    assert found.predictions is None
    assert all("its end is left out" in note["en"] or "no output layer" in note["en"] for note in found.notes)
    assert len(found.notes) == 2


# --- an encoder–decoder -----------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_an_encoder_decoder_with_a_given_answer() -> None:
    model = seq2seq()
    found = trace(model, "나는 갔다", target="비가")
    assert shown(found, 0) == "나는␣갔다[EOS]"
    assert shown(found, 1) == "[BOS]비가"
    assert [(a.block, a.queries, a.keys, a.causal, a.t, a.s, len(a.layers)) for a in found.attentions] == [
        ("encoder", 0, 0, False, 6, 6, 3),
        ("decoder", 1, 1, True, 3, 3, 2),
        ("cross", 1, 0, False, 3, 6, 2),
    ]
    source, target = ([token["id"] for token in part["tokens"]] for part in found.sequences)
    chances = model(torch.tensor([source]), torch.tensor([target]))[0].softmax(-1)
    assert found.predictions is not None
    assert found.predictions["sequence"] == 1
    assert found.predictions["tokens"][1] is not None
    assert found.predictions["tokens"][1]["p"] == pytest.approx(float(chances[0, target[1]]), rel=1e-3)
    assert found.predictions["after"] is not None
    assert found.predictions["after"]["top"][0][0] == int(chances[2].argmax())
    assert found.lens is not None
    assert len(found.lens["names"]) == 3
    assert found.sequences[1]["prompt"] == 3


def test_an_encoder_decoder_writes_its_answer() -> None:
    model = seq2seq()
    found = trace(model, "나는 갔다", tokens=5)
    (written,) = answer(model, ["나는 갔다"], max_tokens=5)[0]
    ids = [i for i in written.ids if i != 2]
    assert [token["id"] for token in found.sequences[1]["tokens"]] == [1, *ids]
    assert found.sequences[1]["prompt"] == 1
    with pytest.raises(TextError, match=r"the target has nothing .*without any the model writes one"):
        trace(model, "나는", target="")


def test_a_source_that_is_too_long_loses_its_end() -> None:
    found = trace(seq2seq(), TEXT, target="비가")
    assert found.attentions[0].t == 24
    assert found.sequences[0]["tokens"][-1]["text"] == "[EOS]"
    assert "its end is left out" in found.notes[0]["en"]


# --- what is asked for, and what is refused ---------------------------------------------------------------------------


def test_some_layers_and_heads() -> None:
    found = trace(gpt(), "나는 학교에", layers=[1, 2], heads=[1])
    (attention,) = found.attentions
    assert (attention.layers, attention.heads, attention.weights(2).shape) == ((1, 2), (1,), (1, 6, 6))


@pytest.mark.parametrize(
    ("make", "given", "error", "message"),
    [
        (gpt, {"layers": [3]}, ConfigError, r"layers=\[3\]: this model has layers 0 to 2"),
        (gpt, {"tokens": -1}, ConfigError, "tokens=-1 is out of range"),
        (gpt, {"target": "비"}, ConfigError, "target='비' is the answer of an encoder–decoder, .* of the kind GPT"),
        (gpt, {"text": "나\ud800"}, TokenizerError, "half of a surrogate pair"),
        (bert, {"text": ""}, TextError, "the text has nothing"),
        (bert, {"tokens": 3}, ConfigError, "this BERT reads texts and writes none"),
        (seq2seq, {"text": ""}, TextError, "the text has nothing"),
    ],
)
def test_what_cannot_be_is_said(
    make: Callable[[], Model], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        trace(make(), **{"text": "나는 학교에", **given})


def test_a_damaged_model_is_an_error() -> None:
    model = gpt()
    with torch.no_grad():
        model.blocks[1].mlp.down_proj.weight[0, 0] = float("nan")
    with pytest.raises(ViewError, match="the model's numbers are not finite"):
        trace(model, "나는 학교에")


def test_no_tokenizer() -> None:
    model = gpt()
    model.tokenizer = None
    with pytest.raises(TokenizerError, match="no tokenizer"):
        trace(model, "나는")


# --- what is said of a head -------------------------------------------------------------------------------------------


def test_statistics_of_heads_that_are_known() -> None:
    """A head that sees all alike, one that looks at the token before, one at the first, and one at itself."""
    t = 5
    uniform = np.tril(np.ones((t, t))) / np.arange(1, t + 1)[:, None]
    before = np.eye(t, k=-1)
    before[0, 0] = 1
    first = np.zeros((t, t))
    first[:, 0] = 1
    weights = np.stack((uniform, before, first, np.eye(t))).astype(np.float32)
    found = head_statistics(weights, causal=True, crossing=False)
    entropies = [np.log(n) for n in range(2, t + 1)]
    np.testing.assert_allclose(found["entropy"], [np.mean(entropies), 0, 0, 0], atol=1e-6)
    np.testing.assert_allclose(found["distance"], [np.mean([0.5, 1, 1.5, 2]), 1, 2.5, 0], atol=1e-6)
    np.testing.assert_allclose(found["first"], [np.mean([1 / n for n in range(2, t + 1)]), 0.25, 1, 0], atol=1e-6)
    np.testing.assert_allclose(found["previous"], [np.mean([1 / n for n in range(2, t + 1)]), 1, 0.25, 0], atol=1e-6)
    np.testing.assert_allclose(found["self"], [np.mean([1 / n for n in range(2, t + 1)]), 0, 0, 1], atol=1e-6)


def test_a_text_of_one_token_has_statistics_that_a_page_can_hold() -> None:
    found = head_statistics(np.ones((1, 1, 1), np.float32), causal=True, crossing=False)
    assert found == {"entropy": [0], "distance": [0], "first": [1], "previous": [0], "self": [1]}


def test_statistics_between_two_texts_and_in_both_directions() -> None:
    weights = np.full((1, 2, 4), 0.25, np.float32)
    crossing = head_statistics(weights, causal=False, crossing=True)
    assert list(crossing) == ["entropy", "first"]
    np.testing.assert_allclose(crossing["entropy"], np.log(4), rtol=1e-6)
    both = head_statistics(np.full((1, 4, 4), 0.25, np.float32), causal=False, crossing=False)
    np.testing.assert_allclose(both["distance"], np.mean([1.5, 1, 1, 1.5]), rtol=1e-6)
    np.testing.assert_allclose(both["self"], 0.25)
