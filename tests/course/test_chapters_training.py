"""Chapters 0, 1 to 17: foundations, training, writing and history by hand are what production and PyTorch compute."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from equality import assert_close, random, randomise
from torch import Tensor, nn
from torch.nn import functional as F

from jumok import GPT, EncoderDecoder, train_tokenizer
from jumok.config import EncoderDecoderConfig, GPTConfig, TrainConfig
from jumok.corpora import stories
from jumok.course.chapters import (
    bert,
    bigrams,
    encoder_decoder,
    foundations,
    gpt,
    recurrence,
    training,
    writing,
)
from jumok.data.batches import Batches
from jumok.evaluation.bigram import Bigram
from jumok.inference.answer import answer_ids
from jumok.inference.answer_search import Search
from jumok.inference.generate import generate_ids
from jumok.inference.sampling import Sampling, drawn, filtered, keep_min_p, keep_top_k, keep_top_p
from jumok.models.losses import cross_entropies
from jumok.training import optim

TALES = "".join(stories.write(12_000))
ROWS = 3 * random(40, 23)


# --- 0: foundations ---


def test_loops_are_the_operations_of_torch() -> None:
    x, a, b = random(2, 3, 4), random(3, 4), random(4, 5, seed=1)
    for dim in (0, 1, -1):
        assert_close(foundations.sum_by_loop(x, dim), x.sum(dim))
    assert_close(foundations.product_by_loop(a, b), a @ b)
    ids = torch.tensor([2, 0, 1])
    assert torch.equal(foundations.embedding_by_one_hot(ids, a), a[ids])
    assert torch.equal(foundations.one_hot(ids, 6), nn.functional.one_hot(ids, 6).float())


@pytest.mark.parametrize("a", [(), (1,), (2, 3), (2, 1), (5, 1, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("b", [(3,), (2, 3), (1, 1, 1, 1)], ids=str)
def test_broadcasting(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    assert foundations.broadcast_shape((3, 1), (1, 4)) == (3, 4)
    try:
        expected = tuple(torch.broadcast_shapes(a, b))
    except RuntimeError:
        with pytest.raises(ValueError, match="!="):
            foundations.broadcast_shape(a, b)
    else:
        assert foundations.broadcast_shape(a, b) == expected


def test_slopes_are_gradients() -> None:
    x = random(3, 2).requires_grad_()

    def f(y: Tensor) -> Tensor:
        return (y.sin() * y.exp()).sum() + y[0, 0] * y[2, 1]

    f(x).backward()
    torch.testing.assert_close(foundations.slopes(f, x.detach()), x.grad, rtol=0, atol=1e-8)


def test_the_average_surprise_is_the_loss() -> None:
    assert math.copysign(1, foundations.surprise(1.0)) == 1
    assert foundations.surprise(0.25) == pytest.approx(2 * math.log(2))
    logits, targets = 10 * random(3, 9), torch.tensor([0, 3, 8])
    found = foundations.average_surprise(logits, targets)
    torch.testing.assert_close(found, cross_entropies(logits, targets).mean())


# --- 12: bigrams and batches ---


def test_pairs_are_counted() -> None:
    counts = bigrams.count_pairs(torch.tensor([0, 1, 0, 1, 2, 0]), 4)
    assert counts.tolist() == [[0, 2, 0, 0], [1, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    probabilities = bigrams.counted_probabilities(counts)
    assert probabilities[1].tolist() == [0.5, 0, 0.5, 0]
    assert probabilities[3].isnan().all()
    assert_close(bigrams.counted_probabilities(counts, 1.0).sum(dim=-1), torch.ones(4))


def test_learning_finds_what_is_counted() -> None:
    torch.manual_seed(0)
    ids = torch.randint(5, (400,))  # every pair occurs, so the best table is finite
    counted = bigrams.counted_probabilities(bigrams.count_pairs(ids, 5))
    model = bigrams.BigramModel(5)
    losses = bigrams.fit_bigram(model, ids, steps=200, rate=0.1)
    assert losses[0] == pytest.approx(math.log(5), abs=1e-6)
    torch.testing.assert_close(model.table.weight.softmax(dim=-1), counted, rtol=0, atol=1e-3)
    best = cross_entropies(counted.log()[ids[:-1]], ids[1:]).mean().item()
    assert best - 1e-6 < losses[-1] < best + 1e-4


def test_the_end_is_held_out() -> None:
    kept, held_out = bigrams.hold_out(torch.arange(103), 0.25)
    assert torch.equal(torch.cat([kept, held_out]), torch.arange(103))
    assert len(held_out) == 26


@pytest.mark.parametrize("length", [33, 500])
def test_batches_are_those_of_production(length: int) -> None:
    """Through two epochs, with batches that reach from one into the next."""
    ids = torch.randint(1_000, (length,))
    production = Batches(ids.numpy(), context_length=8, batch_size=3, seed=7)
    starts = [start for epoch in range(3) for start in bigrams.epoch_starts(length, 8, 7, epoch)]
    for number in range(2 * production.windows // 3):
        mine = bigrams.windows(ids, starts[3 * number : 3 * number + 3], 8)
        for ours, theirs in zip(mine, production.batch(number), strict=True):
            assert torch.equal(ours, theirs)


def test_the_baseline_is_that_of_production() -> None:
    """Also for characters that never occurred."""
    asked = "옛날에 율무라는 강아지가\n\n갔어요. Q"
    expected = Bigram([TALES[:500]]).nats_per_char([asked])
    assert bigrams.witten_bell(TALES[:500], asked) == pytest.approx(expected, abs=1e-12)


# --- 13: training ---


def test_the_gradient_of_the_logits() -> None:
    logits, targets = random(6, 7).requires_grad_(), torch.tensor([0, 3, 6, 1, 1, 2])
    cross_entropies(logits, targets).mean().backward()
    torch.testing.assert_close(training.logit_gradient(logits.detach(), targets), logits.grad)


def test_adamw() -> None:
    parameter = nn.Parameter(random(4, 3))
    optimizer = torch.optim.AdamW([parameter], lr=0.03, betas=(0.8, 0.9), weight_decay=0.1)
    mine, state = parameter.detach().clone(), training.adam_begin(parameter.detach())
    settings = {"rate": 0.03, "beta1": 0.8, "beta2": 0.9, "weight_decay": 0.1}
    for step in range(4):
        parameter.grad = random(4, 3, seed=step)
        mine, state = training.adamw_step(mine, parameter.grad, state, **settings)
        optimizer.step()
        torch.testing.assert_close(mine, parameter.detach())


@pytest.mark.parametrize("shape", [(6, 6), (3, 8)], ids=str)
def test_muon(shape: tuple[int, int]) -> None:
    """Production leaves the singular values near 1, by at most 0.1; the direction is the same."""
    parameter = nn.Parameter(random(*shape, dtype=torch.float32))
    optimizer = optim.Muon(
        [parameter],
        lr=0.5,
        momentum=0.9,
        weight_decay=0.0,
        orthogonalise=lambda all: optim.stacked_orthogonal(all, None),
    )
    mine, mean = parameter.detach().clone(), torch.zeros(shape)
    for step in (1, 2):
        parameter.grad = random(*shape, dtype=torch.float32, seed=step)
        before = mine
        mine, mean = training.muon_step(mine, parameter.grad, mean, rate=0.5, momentum=0.9)
        optimizer.step()
        assert (parameter - mine).norm() < 0.1 * (mine - before).norm()
        mine = parameter.detach().clone()
    values = training.singular_values_after(torch.linspace(0.005, 1, 1_000, dtype=torch.float64), optim.POLYNOMIALS)
    assert 0.90 < values.min() < values.max() < 1.09


@pytest.mark.parametrize("limit", [0.1, 1e6])
def test_clipping(limit: float) -> None:
    model = nn.Linear(3, 4)
    model(torch.randn(5, 3)).square().sum().backward()
    mine, norm = training.clipped([p.grad.clone() for p in model.parameters() if p.grad is not None], limit)
    assert norm == pytest.approx(optim.clip_gradients(model, limit), rel=1e-5)
    for ours, p in zip(mine, model.parameters(), strict=True):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-6)
    assert training.clipped([torch.zeros(2)], limit)[1] == 0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_the_learning_rate(schedule: str) -> None:
    for warmup in (0.0, 0.5):
        config = TrainConfig(steps=10, schedule=schedule, warmup=warmup)
        for progress in (0, 0.01, 0.3, 0.5, 0.9, 1):
            mine = training.learning_rate(progress, peak=3.0, warmup=warmup, schedule=schedule)
            assert mine == pytest.approx(3.0 * optim.rate(config, progress), abs=1e-12)


# --- 14: writing ---


def test_what_is_kept_is_what_production_keeps() -> None:
    ties = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    for rows in (ROWS, ties):
        for k in (1, 2, 1_000):
            assert np.array_equal(torch.stack([writing.top_k(row, k) for row in rows]), keep_top_k(rows.numpy(), k))
    for share in (1e-9, 0.3, 0.95):
        assert np.array_equal(torch.stack([writing.top_p(row, share) for row in ROWS]), keep_top_p(ROWS.numpy(), share))
        assert np.array_equal(torch.stack([writing.min_p(row, share) for row in ROWS]), keep_min_p(ROWS.numpy(), share))
    seen = torch.arange(23).expand_as(ROWS) % 3 == 0
    expected = torch.from_numpy(filtered(ROWS.numpy(), Sampling(temperature=0, repetition_penalty=1.3), seen.numpy()))
    assert_close(torch.stack([writing.penalise(row, [*range(0, 23, 3), 0], 1.3) for row in ROWS]), expected)


def test_draws() -> None:
    """Also from rows in which tokens are ruled out, at both ends of the random numbers."""
    rows = keep_top_k(ROWS.numpy(), 4)
    for numbers in (torch.rand(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)):
        mine = [writing.draw(torch.from_numpy(row), 1 - one) for row, one in zip(rows, numbers.tolist(), strict=True)]
        assert mine == drawn(rows, numbers.numpy()).tolist()
    assert writing.draw(torch.tensor([-math.inf, 0.0]), 1e-12) == 1


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.7, "top_p": 0.6}])
def test_a_text_is_that_of_production(settings: dict[str, float]) -> None:
    model = GPT(GPTConfig(vocab_size=20, context_length=32, n_layer=1, n_head=2, n_embd=16))
    randomise(model)

    @torch.no_grad()
    def next_logits(ids: list[int]) -> Tensor:
        return model(torch.tensor([ids]))[0, -1]

    steps = generate_ids(model, [4, 2], Sampling(**settings), seed=3)
    keep = {"keep": lambda row: writing.top_p(row, settings["top_p"])} if "top_p" in settings else {}
    mine = writing.write(next_logits, [4, 2], 20, temperature=settings["temperature"], seed=3, **keep)
    assert mine == [next(steps) for _ in range(20)]


def test_the_share_of_different_grams() -> None:
    assert writing.distinct_share([1, 2] * 10, 2) == 2 / 19


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("penalty", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_beam_search_is_that_of_production(beam: int, penalty: float, seed: int) -> None:
    """Of models that end early, late and not at all."""
    tokenizer = train_tokenizer("가나다라", "char")
    torch.manual_seed(seed)
    shape = {"vocab_size": tokenizer.vocab_size, "context_length": 8, "n_layer": 1, "n_head": 2, "n_embd": 8}
    model = EncoderDecoder(EncoderDecoderConfig(**shape, pad_id=0, decoder_start_id=0, eos_id=1)).double()
    model.tokenizer = tokenizer
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    with torch.no_grad():
        model.token_embedding.weight[1] *= 1 + seed  # [EOS]
    source = [5, 6, 1]
    with torch.no_grad():
        encoded = model.eval().encode(torch.tensor([source]))

    @torch.no_grad()
    def after(ids: Sequence[int]) -> Tensor:
        return model.decode(torch.tensor([[0, *ids]]), encoded)[0, -1].log_softmax(dim=-1)

    mine = writing.beam_search(after, 1, beam=beam, longest=8, length_penalty=penalty)
    search = Search(beam=beam, n_best=beam, length_penalty=penalty)
    [expected] = answer_ids(model, [torch.tensor(source).numpy()], search)
    assert [one.ids for one in mine] == [one.ids for one in expected]
    assert [one.score(penalty) for one in mine] == pytest.approx([one.score for one in expected])


def test_a_wide_beam_finds_the_best_target() -> None:
    table = random(4, 4).log_softmax(dim=-1)  # row: the token before; the last id ends

    def after(ids: tuple[int, ...]) -> Tensor:
        return table[ids[-1] if ids else 0]

    every = writing.every_text(after, 3, longest=4, length_penalty=0.0)
    assert len(every) == len({one.ids for one in every}) == 1 + 3 + 9 + 27 * 4
    assert sum(math.exp(one.total) for one in every) == pytest.approx(1)
    assert writing.beam_search(after, 3, beam=100, longest=4, length_penalty=0.0)[0].ids == every[0].ids


# --- 18: BERT ---


def test_texts_are_joined_and_padded() -> None:
    assert bert.join_texts([5, 6], [], cls=1, sep=2) == ([1, 5, 6, 2], [0, 0, 0, 0])
    assert bert.join_texts([5, 6], [7], cls=1, sep=2) == ([1, 5, 6, 2, 7, 2], [0, 0, 0, 0, 1, 1])
    ids, padding = bert.pad_ids([[1, 2], [1, 5, 2]])
    assert ids.tolist() == [[1, 2, 0], [1, 5, 2]]
    assert padding.tolist() == [[True, True, False], [True, True, True]]


def test_masking_has_the_shares_of_the_paper() -> None:
    """Special tokens are never chosen, and the input stays as it is."""
    torch.manual_seed(1)
    ids = torch.randint(30, (400, 500))
    before = ids.clone()
    inputs, targets = bert.mask_tokens(ids, mask_id=3, special=4, vocab_size=30)
    chosen = targets != -100
    assert torch.equal(ids, before)
    assert not chosen[ids < 4].any()
    assert chosen[ids >= 4].double().mean() == pytest.approx(0.15, abs=0.005)
    assert torch.equal(targets[chosen], ids[chosen])
    assert torch.equal(inputs[~chosen], ids[~chosen]), "nothing else changes"
    became_mask, kept = inputs[chosen] == 3, inputs[chosen] == ids[chosen]
    assert became_mask.double().mean() == pytest.approx(0.8, abs=0.01)
    assert kept.double().mean() == pytest.approx(0.1 + 0.1 / 26, abs=0.01), "a random token may be the same"
    assert inputs[chosen][~became_mask & ~kept].unique().tolist() == list(range(4, 30)), "ordinary tokens only"


def test_a_mask_is_filled_by_the_logits_at_its_position() -> None:
    torch.manual_seed(0)
    model, ids = bert.BERT(20, 8, 1, 2, 8).double().eval(), torch.tensor([1, 3, 5, 3, 2])
    with torch.no_grad():
        expected = model.logits(model(ids[None]))[0, [1, 3]].softmax(dim=-1)
    assert_close(bert.fill_mask(model, ids, mask_id=3), expected)


def test_fit_trains_a_classifier() -> None:
    ids, labels = torch.tensor([[1, 5, 2, 0], [1, 6, 7, 2], [1, 8, 2, 0], [1, 9, 7, 2]]), torch.tensor([0, 1, 0, 1])
    torch.manual_seed(0)
    model = bert.Classifier(bert.BERT(30, 8, 1, 2, 16), 2)
    losses = bert.fit(model, lambda: F.cross_entropy(model(ids, ids != 0), labels), steps=40, peak=1e-2)
    assert len(losses) == 40
    assert not model.training
    assert torch.equal(model(ids, ids != 0).argmax(dim=-1), labels)


# --- 19: encoder–decoder ---


def test_the_padding_of_an_answer_does_not_count() -> None:
    """Nor does that of its source: the loss of two pairs is the mean over their tokens, each pair computed alone."""
    torch.manual_seed(0)
    model = encoder_decoder.EncoderDecoder(20, 1, 2, 8).double()
    pairs = [([5, 6, 7], [1, 8, 2]), ([9], [1, 4, 3, 7, 2])]
    alone = [encoder_decoder.answer_loss(model, *bert.pad_ids([a]), *bert.pad_ids([b])) for a, b in pairs]
    sources, targets = bert.pad_ids([a for a, _ in pairs]), bert.pad_ids([b for _, b in pairs])
    assert_close(encoder_decoder.answer_loss(model, *sources, *targets), (2 * alone[0] + 4 * alone[1]) / 6)


def test_an_answer_is_written_as_it_is_trained() -> None:
    torch.manual_seed(0)
    model = encoder_decoder.EncoderDecoder(20, 1, 2, 8).double()
    after = encoder_decoder.next_of_answer(model, [5, 6, 7], start=1)
    with torch.no_grad():
        expected = model(torch.tensor([[5, 6, 7]]), torch.tensor([[1, 8, 4]]))[0].log_softmax(dim=-1)
    for t, written in enumerate(([], [8], [8, 4])):
        assert_close(after(written), expected[t])


# --- recurrent networks ---


@torch.no_grad()
def test_networks_are_those_of_pytorch() -> None:
    x = random(3, 7, 4)
    gru, stock = recurrence.GRU(4, 6).double(), nn.GRU(4, 6, batch_first=True).double()
    gru.load_state_dict(
        {
            "from_x.weight": stock.weight_ih_l0, "from_x.bias": stock.bias_ih_l0,
            "from_h.weight": stock.weight_hh_l0, "from_h.bias": stock.bias_hh_l0,
        }
    )  # fmt: skip
    assert_close(gru(x), stock(x)[0])
    rnn, other = recurrence.RNN(4, 6).double(), nn.RNN(4, 6, batch_first=True).double()
    nn.init.zeros_(other.bias_hh_l0)
    rnn.load_state_dict(
        {"from_x.weight": other.weight_ih_l0, "from_x.bias": other.bias_ih_l0, "from_h.weight": other.weight_hh_l0}
    )
    assert_close(rnn(x), other(x)[0])


def test_the_longest_chain_counts_what_must_wait() -> None:
    w = torch.ones(3, requires_grad=True)
    chain = w * 2 * 2 * 2
    assert recurrence.longest_chain(chain) == 3
    beside = torch.stack([w * n for n in range(9)])
    assert recurrence.longest_chain(beside) == 1, "nine products that do not wait for each other"
    assert recurrence.longest_chain(torch.stack([chain, w])) == 3, "the longer of two ways"


@torch.no_grad()
@pytest.mark.parametrize(
    "attention", [recurrence.LastState(), recurrence.AdditiveAttention(8), recurrence.DotProductAttention()], ids=repr
)
def test_a_reverser(attention: nn.Module) -> None:
    torch.manual_seed(0)
    model = recurrence.Reverser(attention, 5, 8)
    source = torch.tensor([[0, 1, 2, 3], [4, 4, 0, 1]])
    logits, weights = model(source)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 4))
    again, _ = model(source, logits.argmax(dim=-1))
    torch.testing.assert_close(logits, again)  # its own tokens, given as the target
    forced, _ = model(source, source)
    changed, _ = model(source, torch.cat((source[:, :3], source[:, :1]), dim=1))
    assert torch.equal(forced, changed), "no output depends on the token that it predicts"


# --- gradients by the chain rule ---


def test_values_have_the_gradients_of_autograd() -> None:
    """Also of a number that is used several times."""

    def f(a: Any, b: Any) -> Any:
        c = a * b + a.exp()
        return (c * c - b).log() + c

    own = training.Value(0.7), training.Value(-0.3)
    f(*own).backward()
    tensors = [torch.tensor(each.data, dtype=torch.float64, requires_grad=True) for each in own]
    f(*tensors).backward()
    assert [each.grad for each in own] == pytest.approx([float(each.grad) for each in tensors if each.grad is not None])


def test_training_learns_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    ids = torch.tensor([0, 1, 2, 3, 2, 1] * 20)
    model = gpt.GPT(4, context_length=8, n_layer=1, n_head=2, n_embd=16)
    losses = training.train(model, ids, steps=80, context_length=8, peak=2e-2, held_out=ids[:33])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [str(step) for step in range(8, 81, 8)]
    assert float(lines[-1][1]) == pytest.approx(losses[-1], abs=0.006)
    whole = training.mean_loss(model, ids[:32].view(4, 8), ids[1:33].view(4, 8))  # 4 windows
    assert float(lines[-1][2]) == pytest.approx(whole.item(), abs=0.006)
    assert training.validation_loss(model, ids[:33], 8) == pytest.approx(whole.item(), rel=1e-5)
    assert losses[0] == pytest.approx(math.log(4), abs=0.1)
    assert losses[-1] < 0.2
    assert not model.training
