"""Figures of heads mean what they say: by hand where a row can be counted, by other code where it cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, TextError, TokenizerError, ViewError
from jumok.evaluation.language_model import score
from jumok.inference.answer import answer
from jumok.interpret.ablation import ablate, ablation, losses_without, ranking
from jumok.interpret.heads import Head, heads_of, profile, repetition
from jumok.interpret.text_loss import MASKED_EVERY, Passage
from jumok.models import build
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.tokenizers import train_tokenizer

TEXT = "나는 학교에 갔다. 너는 밥을 먹었다. "


def tiny(kind: str = "modern", **fields: Any) -> Any:
    """A small float64 model with large random weights, so that each head matters."""
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_embd": 16, "context_length": 48}
    if kind in ("modern", "classic"):
        words = train_tokenizer(TEXT * 3)
        grouped = {"n_kv_head": 2} if kind == "modern" else {"head_dim": 6}
        config: Any = GPTConfig(family=kind, vocab_size=words.vocab_size, **{**sizes, **grouped, **fields})
    elif kind == "bert":
        words = train_tokenizer(TEXT * 3, special_tokens=SPECIAL_TOKENS)
        config = BERTConfig(vocab_size=words.vocab_size, pad_id=0, **{**sizes, **fields})
    else:
        words = train_tokenizer(TEXT * 3, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
        ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
        config = EncoderDecoderConfig(family="original", vocab_size=words.vocab_size, **sizes, **ids, **fields)
    model = build(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.4)
    model.tokenizer = words
    return model.double().eval()


KINDS = ("modern", "classic", "bert", "pairs")


def passage(model: Any, kind: str) -> Passage:
    return Passage.of(model, "나는 밥을", "너는 갔다" if kind == "pairs" else None)


# --- figures of weights ---


def test_profile_by_hand() -> None:
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.25, 0.25]])
    found = profile(weights)
    assert float(found.entropy) == pytest.approx((0 + 0.5623351 + 1.5 * math.log(2)) / 3)
    assert float(found.distance) == pytest.approx((0 + 0.25 + 1.25) / 3)
    assert float(found.first) == pytest.approx((1 + 0.25 + 0.5) / 3)
    assert float(found.previous) == pytest.approx((0.25 + 0.25) / 2)  # the first token has none before it
    assert float(found.self) == pytest.approx((1 + 0.75 + 0.25) / 3)


def test_rows_that_look_at_nothing_do_not_count_and_nan_is_not_hidden() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    assert float(profile(weights).entropy) == pytest.approx(math.log(2))
    assert float(profile(weights).first) == 0.5
    assert math.isnan(profile(torch.tensor([[1.0, 0.0], [math.nan, math.nan]])).entropy)


# --- repeated tokens ---


def test_repetition_finds_the_token_behind_the_earlier_occurrence() -> None:
    """A head whose queries and keys are the same for equal tokens, one position apart, is an induction head.

    Keys are made to hold the token before: the embedding of position i is that of token i - 1.
    """
    model = tiny("classic", n_layer=1, n_head=1, head_dim=None)
    seen: list[Tensor] = []

    def induct(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        ids = seen[-1]
        q = F.one_hot(ids, model.config.vocab_size).double()[:, None] * 500  # (B, 1, T, V)
        k = F.one_hot(ids.roll(1, dims=1), model.config.vocab_size).double()[:, None]
        k[:, :, 0] = 0  # nothing stands before the first
        return (q, k, *inputs[2:])

    model.token_embedding.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model.blocks[0].attention.attend.register_forward_pre_hook(induct)
    found = repetition(model)
    assert float(found.induction) > 0.999
    assert float(found.previous) < 0.2


def test_repetition_needs_room() -> None:
    with pytest.raises(ConfigError, match="context_length=3 is out of range"):
        repetition(tiny(context_length=3))


@pytest.mark.parametrize("kind", ["bert", "pairs"])
def test_repetition_is_a_test_for_a_gpt(kind: str) -> None:
    with pytest.raises(ViewError, match="from left to right"):
        repetition(tiny(kind))


# --- heads switched off ---


def cut_out(model: Any, head: Head) -> None:
    """The same by surgery: the columns of the output projection that read this head become zero."""
    stack = {"self": "blocks", "encoder": "encoder", "decoder": "decoder", "cross": "decoder"}[head.block]
    block = getattr(model, stack)[head.layer]
    layer = block.cross_attention if head.block == "cross" else block.attention
    with torch.no_grad():
        layer.o_proj.weight[:, head.head * layer.head_dim : (head.head + 1) * layer.head_dim] = 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_switched_off_is_a_head_cut_out(kind: str) -> None:
    model = tiny(kind)
    for head in heads_of(model)[1::5]:
        with ablate(model, [head]):
            off = passage(model, kind).nats()
        cut = tiny(kind)
        cut_out(cut, head)
        assert off == pytest.approx(passage(cut, kind).nats(), rel=1e-12)
        assert off != pytest.approx(passage(model, kind).nats(), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_many_heads_at_once_are_each_head_alone(kind: str) -> None:
    """Copies of the text side by side, each without another head, give what one run after the other gives."""
    model = tiny(kind)
    heads = heads_of(model)
    alone = []
    for head in heads:
        with ablate(model, [head]):
            alone.append(passage(model, kind).nats())
    assert losses_without(passage(model, kind), heads) == pytest.approx(alone, rel=1e-12)


def hooks(model: Any) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_no_hook_stays_behind() -> None:
    model = tiny()
    before = model(torch.tensor([[5, 6, 7]]))
    with pytest.raises(ValueError, match="49 tokens exceed"), ablate(model, [(0, 0), (1, 3)]):
        model(torch.zeros(1, 49, dtype=torch.int64))
    assert hooks(model) == 0
    assert torch.equal(model(torch.tensor([[5, 6, 7]])), before)


def test_a_head_that_was_never_switched_off_is_an_error() -> None:
    """A compiled copy keeps no hooks that come later: without a word the loss would look as if no head mattered."""
    with pytest.raises(ViewError, match=r"no head was switched off.*torch\.compile"), ablate(tiny(), [(0, 0)]):
        pass
    with ablate(tiny(), []):
        pass


@pytest.mark.parametrize(
    ("kind", "head", "complaint"),
    [
        ("modern", (2, 0), r"there is no head \('self', 2, 0\).*'self' with layers 0 to 1, and heads 0 to 3"),
        ("modern", ("cross", 0, 0), "there is no head"),
        ("pairs", ("cross", 0, 4), r"'encoder' with layers 0 to 1, 'decoder' with layers 0 to 1, 'cross'"),
        ("pairs", (0, 0), r"names no block.*\('cross', 0, 1\)"),
    ],
)
def test_heads_that_are_not_there(kind: str, head: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint), ablate(tiny(kind), [head]):
        pass


# --- the loss of a text ---


def test_the_loss_of_a_gpt_is_that_of_evaluate() -> None:
    model = tiny("classic")
    ids = model.tokenizer.encode(TEXT)
    nats, tokens = score(model, ids)
    assert Passage.of(model, TEXT).nats() == pytest.approx(nats / tokens, rel=1e-6)  # evaluate sums float32


def test_of_a_long_text_a_gpt_reads_the_end_and_a_bert_the_beginning() -> None:
    gpt, bert = tiny(), tiny("bert")
    long = TEXT * 5
    assert torch.equal(Passage.of(gpt, long).targets, torch.from_numpy(gpt.tokenizer.encode(long)[-47:]).long())
    assert Passage.of(bert, long).nats() == Passage.of(bert, long[:46]).nats()


def test_a_bert_predicts_each_token_while_it_is_hidden() -> None:
    model = tiny("bert")
    text = "나는 밥을 먹었다"
    special = model.tokenizer.special_tokens
    plain = model.tokenizer.encode(text).tolist()
    ids = [special["[CLS]"], *plain, special["[SEP]"]]
    nats = 0.0
    for first in range(MASKED_EVERY):
        places = range(1 + first, 1 + len(plain), MASKED_EVERY)
        hidden = [special["[MASK]"] if place in places else token for place, token in enumerate(ids)]
        shares = model.mlm_logits(model(torch.tensor([hidden])))[0].detach().log_softmax(dim=-1)
        nats -= sum(float(shares[place, ids[place]]) for place in places)
    assert Passage.of(model, text).nats() == pytest.approx(nats / len(plain), rel=1e-6)


def test_what_a_model_answers_has_the_loss_of_its_answer() -> None:
    model = tiny("pairs")
    found = answer(model, ["나는 밥을"])[0][0]
    made = Passage.of(model, "나는 밥을")
    assert made.targets.tolist() == list(found.ids)
    assert made.nats() == pytest.approx(-found.score, rel=1e-6)


# --- which heads matter ---


@pytest.mark.parametrize("kind", KINDS)
def test_ranking_is_of_every_head_by_what_it_is_missed(kind: str) -> None:
    model = tiny(kind)
    found = ranking(model, "나는 밥을", "너는 갔다" if kind == "pairs" else None)
    assert found.nats == passage(model, kind).nats()
    assert found.tokens == len(passage(model, kind).targets)
    assert sorted(effect.head for effect in found.effects) == sorted(heads_of(model))
    changes = [effect.delta_nats for effect in found.effects]
    assert changes == sorted(changes, reverse=True)
    with ablate(model, [found.effects[0].head]):
        assert passage(model, kind).nats() - found.nats == pytest.approx(changes[0], rel=1e-9)


def test_ablation_compares_the_next_token() -> None:
    model, heads = tiny(), [(0, 1), (1, 2)]
    found = ablation(model, "나는 밥을", heads, top=3)
    ids = torch.from_numpy(model.tokenizer.encode("나는 밥을")).long()[None]

    def shares() -> Sequence[float]:
        return model(ids)[0, -1].softmax(dim=-1).tolist()

    before = shares()
    with ablate(model, heads):
        after = shares()
    names = model.tokenizer.pieces(range(model.config.vocab_size))
    assert [one.probability for one in found.candidates[:3]] == pytest.approx(
        sorted(before, reverse=True)[:3], rel=1e-6
    )
    for one in found.candidates:
        token = names.index(one.token)
        assert (one.probability, one.without) == pytest.approx((before[token], after[token]), rel=1e-5)
    assert {max(range(len(after)), key=after.__getitem__)} <= {names.index(one.token) for one in found.candidates}
    assert found.nats_without != found.nats


def test_ablation_of_the_other_kinds() -> None:
    assert ablation(tiny("bert"), "나는 밥을", [(0, 0)]).candidates == ()
    pairs = ablation(tiny("pairs"), "나는", [("cross", 0, 0)], target="너는", top=2)
    assert 2 <= len(pairs.candidates) <= 4
    with pytest.raises(ConfigError, match="top"):
        ablation(tiny(), "나는", [(0, 0)], top=0)


# --- what has no such figures ---


@pytest.mark.parametrize(
    ("kind", "fields", "found"),
    [
        ("modern", {"labels": ("a", "b")}, "a classifier"),
        ("bert", {"head": "classify", "labels": ("a", "b")}, 'a BERT with head="classify"'),
        ("bert", {"head": "none"}, 'a BERT with head="none"'),
    ],
)
def test_a_model_without_a_language_head_has_no_loss(kind: str, fields: dict[str, Any], found: str) -> None:
    with pytest.raises(ViewError, match=f"{found}: it predicts no tokens"):
        ranking(tiny(kind, **fields), "나는 밥을")


@pytest.mark.parametrize(
    ("kind", "text", "target", "error", "complaint"),
    [
        ("modern", "나", None, TextError, "leaves none to predict"),
        ("modern", "나는", "너는", ConfigError, "a target is for an encoder–decoder"),
        ("bert", "", None, TextError, "the text is empty"),
        ("pairs", "가" * 200, None, TextError, "shorten it"),
        ("pairs", "나는", "가" * 200, TextError, "the target has"),
        ("modern", "나\ud800", None, TokenizerError, "half of a surrogate pair"),
    ],
)
def test_texts_that_cannot_be_probed(kind: str, text: str, target: str | None, error: type, complaint: str) -> None:
    with pytest.raises(error, match=complaint):
        ranking(tiny(kind), text, target)
