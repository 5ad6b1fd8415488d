"""Chapter 14: filters, draws, the decoding loop and beam search are those of production."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from jumok import GPT, EncoderDecoder, EncoderDecoderConfig, GPTConfig, train_tokenizer
from jumok.course.chapters import writing
from jumok.inference.answer import answer_ids
from jumok.inference.answer_search import Search
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling, drawn, filtered, keep_min_p, keep_top_k, keep_top_p

ROWS = torch.randn(40, 23, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
TIES = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("rows", [ROWS, TIES], ids=["random", "ties"])
@pytest.mark.parametrize("k", [1, 2, 5, 1_000])
def test_top_k(rows: Tensor, k: int) -> None:
    assert torch.equal(torch.stack([writing.top_k(row, k) for row in rows]), keep_top_k(rows, k))


@pytest.mark.parametrize("p", [1e-9, 0.3, 0.7, 0.95])
def test_top_p(p: float) -> None:
    assert torch.equal(torch.stack([writing.top_p(row, p) for row in ROWS]), keep_top_p(ROWS, p))


@pytest.mark.parametrize("share", [0.01, 0.2, 1.0])
def test_min_p(share: float) -> None:
    assert torch.equal(torch.stack([writing.min_p(row, share) for row in ROWS]), keep_min_p(ROWS, share))


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
def test_the_penalty(penalty: float) -> None:
    seen = torch.arange(23).expand_as(ROWS) % 3 == 0
    expected = filtered(ROWS, Sampling(temperature=0, repetition_penalty=penalty), seen)
    mine = [writing.penalise(row, [*range(0, 23, 3), 0], penalty) for row in ROWS]
    torch.testing.assert_close(torch.stack(mine), expected)


def test_draws() -> None:
    """Also from rows in which tokens are ruled out, at both ends of the random numbers."""
    rows = keep_top_k(ROWS, 4)
    for numbers in (torch.rand(40, 1, dtype=torch.float64), torch.zeros(40, 1, dtype=torch.float64)):
        mine = [writing.draw(row, 1 - number) for row, number in zip(rows, numbers[:, 0].tolist(), strict=True)]
        assert mine == drawn(rows, numbers)[:, 0].tolist()
    assert writing.draw(torch.tensor([-math.inf, 0.0]), 1e-12) == 1


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 1.5}, {"temperature": 0.7, "top_p": 0.6}])
@pytest.mark.parametrize("seed", [0, 3])
def test_a_text_is_that_of_production(settings: dict[str, float], seed: int) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=20, context_length=32, n_layer=1, n_head=2, n_embd=16)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    @torch.no_grad()
    def next_logits(ids: list[int]) -> Tensor:
        return model(torch.tensor([ids]))[0, -1]

    steps = generate_ids(model, [4, 2], Sampling(**settings), seed=seed)
    keep = {"keep": lambda row: writing.top_p(row, settings["top_p"])} if "top_p" in settings else {}
    mine = writing.write(next_logits, [4, 2], 20, temperature=settings["temperature"], seed=seed, **keep)
    assert mine == [next(steps) for _ in range(20)]


def test_the_share_of_different_grams() -> None:
    assert writing.distinct_share([1, 2, 3, 4], 2) == 1
    assert writing.distinct_share([1, 2] * 10, 2) == 2 / 19
    with pytest.raises(ValueError, match="a text of 2 tokens has no 3-gram"):
        writing.distinct_share([1, 2], 3)


@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_beam_search_is_that_of_production(beam: int, penalty: float, seed: int) -> None:
    """Of models that end early, late and not at all."""
    tokenizer = train_tokenizer("가나다라", "char")
    torch.manual_seed(seed)
    shape = {"vocab_size": tokenizer.vocab_size, "context_length": 8, "n_layer": 1, "n_head": 2, "n_embd": 8}
    model = EncoderDecoder(EncoderDecoderConfig(**shape, pad_id=0, decoder_start_id=0, eos_id=1)).double()
    model.tokenizer = tokenizer
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        model.token_embedding.weight[1] *= 1 + seed  # [EOS]
    source = [5, 6, 1]
    mine = writing.beam_search(
        writing.decoder_log_probabilities(model, source), 1, beam=beam, longest=8, length_penalty=penalty
    )
    search = Search(beam=beam, n_best=beam, length_penalty=penalty)
    [expected] = answer_ids(model, [torch.tensor(source).numpy()], search)
    assert [one.ids for one in mine] == [one.ids for one in expected]
    assert [one.score(penalty) for one in mine] == pytest.approx([one.score for one in expected])


def test_a_wide_beam_finds_the_best_target() -> None:
    torch.manual_seed(1)
    table = torch.randn(4, 4).log_softmax(dim=-1)  # row: the token before; the last id ends

    def after(ids: tuple[int, ...]) -> Tensor:
        return table[ids[-1] if ids else 0]

    every = writing.every_target(after, 3, longest=4, length_penalty=0.0)
    assert len(every) == len({one.ids for one in every}) == 1 + 3 + 9 + 27 * 4
    assert sum(math.exp(one.total) for one in every) == pytest.approx(1)
    found = writing.beam_search(after, 3, beam=100, longest=4, length_penalty=0.0)
    assert found[0].ids == every[0].ids
