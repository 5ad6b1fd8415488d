"""An encoder–decoder answers as its stock class does: greedily, by beam search, with and without a cache."""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM

from jumok.config import EncoderDecoderConfig, GenerationRules, GPTConfig
from jumok.errors import ConfigError, JumokError, TextError, TokenizerError
from jumok.inference.answer import answer, answer_ids, with_special_tokens
from jumok.inference.answer_search import Answer, Search, SearchSettings
from jumok.inference.generate import generate
from jumok.inference.rules import forbid_repeats
from jumok.inference.sampling import Sampling, SamplingSettings
from jumok.interop.huggingface import to_hf
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.gpt import GPT
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

SOURCES = ["학교에 갔다", "나는", "", "나는 학교에 갔다 나는 학교에", "갔다 나는"]
CONTEXT = 24


SEEDS = {"classic": 3, "original": 1}  # of models whose answers differ, and end at different lengths


def tiny(family: str = "classic", **changes: Any) -> EncoderDecoder:
    """A small float64 model with large random weights, so that each token matters."""
    tokenizer = train_tokenizer("나는 학교에 갔다. " * 3, special_tokens=["[PAD]", "[BOS]", "[EOS]"])
    torch.manual_seed(SEEDS[family])
    ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "decoder_start_id": 1}
    sizes = {"vocab_size": tokenizer.vocab_size, "context_length": CONTEXT, "n_layer": 2, "n_head": 2, "n_embd": 16}
    model = EncoderDecoder(EncoderDecoderConfig(**{"family": family, **sizes, **ids, **changes})).double()
    for name, parameter in model.named_parameters():
        if name == "token_embedding.weight":
            nn.init.normal_(parameter, std=0.15)
        elif parameter.dim() == 2:
            nn.init.normal_(parameter)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)
    with torch.no_grad():  # [EOS] is likely enough to come, and the bytes, most of the vocabulary, are not
        model.output_bias[3 : 3 + 256] = -6.0
        model.output_bias[2] = 1.0
    model.tokenizer = tokenizer
    return model


@pytest.fixture
def model() -> EncoderDecoder:
    return tiny()


def ids_of(model: EncoderDecoder, sources: list[str]) -> list[Any]:
    assert model.tokenizer is not None
    return [with_special_tokens(model.tokenizer, text, model.config) for text in sources]


def ids(answers: list[list[Answer]]) -> list[list[tuple[int, ...]]]:
    return [[one.ids for one in found] for found in answers]


def stock_answers(model: EncoderDecoder, folder: Path, **settings: Any) -> tuple[list[list[tuple[int, ...]]], Tensor]:
    """What the stock class writes out of the exported folder, one source at a time, without what fills up."""
    to_hf(model, folder)
    stock = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float64).eval()
    written, scores = [], []
    for source in ids_of(model, SOURCES):
        out = stock.generate(
            torch.from_numpy(source)[None], max_new_tokens=model.config.context_length, do_sample=False,
            return_dict_in_generate=True, output_scores=True, **settings,
        )  # fmt: skip
        rows = [row[1:].tolist() for row in out.sequences]
        written.append([tuple(row[: row.index(2) + 1] if 2 in row else row) for row in rows])
        if settings.get("num_beams", 1) > 1:
            scores.append(out.sequences_scores)
    return written, torch.stack(scores) if scores else torch.empty(0)


# --- as the stock class ---


@pytest.mark.parametrize("family", ["classic", "original"])
@pytest.mark.parametrize("changes", [{}, {"forced_bos_id": 260, "forced_eos_id": 2}], ids=["free", "forced"])
def test_greedy_answers_are_those_of_the_stock_class(family: str, changes: dict[str, int], tmp_path: Path) -> None:
    model = tiny(family, **changes)
    theirs, _ = stock_answers(model, tmp_path / "hf")
    ours = answer(model, SOURCES)
    assert ids(ours) == theirs
    lengths = {len(found[0].ids) for found in ours}
    assert len(lengths) > 1, "a test of answers that all end at once would prove little"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "ours", "theirs"),
    [
        ("classic", {"beam": 4}, {"num_beams": 4}),
        ("original", {"beam": 4, "n_best": 3}, {"num_beams": 4, "num_return_sequences": 3}),
        ("classic", {"beam": 3, "length_penalty": 2.0}, {"num_beams": 3, "length_penalty": 2.0}),
        ("classic", {"beam": 4, "no_repeat_ngram": 2}, {"num_beams": 4, "no_repeat_ngram_size": 2}),
        ("original", {"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
    ],
    ids=["4", "best", "long", "ngram", "greedy-ngram"],
)
def test_searched_answers_are_those_of_the_stock_class(
    family: str, ours: dict[str, Any], theirs: dict[str, Any], tmp_path: Path
) -> None:
    """Its defaults but for what is given: early_stopping is False there."""
    model = tiny(family)
    expected, scores = stock_answers(model, tmp_path / "hf", **theirs)
    found = answer(model, SOURCES, **ours)
    assert ids(found) == expected
    if len(scores):
        mine = torch.tensor([[one.score for one in row] for row in found])
        torch.testing.assert_close(mine, scores.to(mine.dtype), atol=1e-4, rtol=1e-4)


def test_a_search_with_forced_ids_is_that_of_the_stock_class(tmp_path: Path) -> None:
    model = tiny(forced_bos_id=260, forced_eos_id=2)
    expected, _ = stock_answers(model, tmp_path / "hf", num_beams=3, num_return_sequences=3)
    assert ids(answer(model, SOURCES, beam=3, n_best=3)) == expected


# --- what must not matter ---


@pytest.mark.parametrize("search", [Search(), Search(beam=3, n_best=3)], ids=["greedy", "beam"])
def test_answers_do_not_depend_on_their_company(model: EncoderDecoder, search: Search) -> None:
    """In a batch, shorter sources are filled up, finished rows leave, and the rest must not notice."""
    together = answer_ids(model, ids_of(model, SOURCES), search)
    alone = [answer_ids(model, ids_of(model, [source]), search)[0] for source in SOURCES]
    assert ids(together) == ids(alone)
    for one, other in zip(together, alone, strict=True):
        assert [a.score for a in one] == pytest.approx([a.score for a in other], rel=1e-9)


def test_finished_answers_stop_costing(model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder computes one row for each token that is written, and none for what is finished."""
    computed = []
    hidden = EncoderDecoder.hidden

    def counting(self: EncoderDecoder, target_ids: Tensor, *rest: Any) -> Tensor:
        computed.append(target_ids.numel())
        return hidden(self, target_ids, *rest)

    monkeypatch.setattr(EncoderDecoder, "hidden", counting)
    found = answer(model, SOURCES)
    assert sum(computed) == sum(one.tokens for answers in found for one in answers)


def test_the_mode_and_the_random_numbers_stay(model: EncoderDecoder) -> None:
    model.train()
    before = torch.random.get_rng_state()
    answer(model, SOURCES, temperature=1.0)
    assert model.training
    assert torch.equal(before, torch.random.get_rng_state())


# --- what an answer is ---


def test_a_score_is_the_mean_log_probability(model: EncoderDecoder) -> None:
    (found,) = answer(model, ["나는"])[0]
    source = torch.from_numpy(ids_of(model, ["나는"])[0])[None]
    target = torch.tensor([[1, *found.ids[:-1]]])
    with torch.inference_mode():
        logits = model.eval()(source, target)[0, :, : model.tokenizer.vocab_size]  # type: ignore[union-attr]
        expected = logits.log_softmax(-1)[range(len(found.ids)), list(found.ids)].mean()
    assert found.score == pytest.approx(float(expected), rel=1e-5)
    assert found.tokens == len(found.ids)
    assert found.finish == "stop"
    assert found.ids[-1] == 2


def test_special_tokens_are_not_text(model: EncoderDecoder) -> None:
    with torch.no_grad():
        model.output_bias[1] = 50.0  # writes [BOS] and nothing else
    (found,) = answer(model, ["나는"], max_tokens=3)[0]
    assert found.ids == (1, 1, 1)
    assert (found.text, found.finish) == ("", "length")


def test_an_unfinished_character_at_the_end_is_left_out(model: EncoderDecoder) -> None:
    with torch.no_grad():
        model.output_bias[3 + 0xEA] = 60.0  # the first byte of many syllables
    (found,) = answer(model, ["나는"], max_tokens=2)[0]
    assert found.ids == (3 + 0xEA,) * 2
    assert found.text == ""


def test_ids_unknown_to_the_tokenizer_are_never_written() -> None:
    """A published model may have more rows in its embedding than its tokenizer has tokens."""
    small = tiny()
    assert small.tokenizer is not None
    model = tiny(vocab_size=small.tokenizer.vocab_size + 5)
    with torch.no_grad():
        model.output_bias[-5:] = 100.0
    for found in (*answer(model, SOURCES), *answer(model, SOURCES, beam=3, n_best=3)):
        assert max(token for one in found for token in one.ids) < small.tokenizer.vocab_size


def test_no_sources_no_answers(model: EncoderDecoder) -> None:
    assert answer(model, []) == []


# --- rules for the next token ---


def test_no_sequence_of_tokens_comes_twice(model: EncoderDecoder) -> None:
    for settings in ({}, {"beam": 3}, {"temperature": 1.5, "seed": 3}):
        for found, *_ in answer(model, SOURCES, no_repeat_ngram=2, **settings):
            written = (1, *found.ids)
            pairs = list(pairwise(written))
            assert len(set(pairs)) == len(pairs)


def test_the_end_is_never_forbidden() -> None:
    log_probabilities = np.zeros((1, 10))
    forbid_repeats(log_probabilities, np.array([[2, 5]]), 1, ends=[2])
    assert np.isinf(log_probabilities[0]).nonzero()[0].tolist() == [5]


# --- drawing ---


def test_drawn_answers_follow_the_seed_and_nothing_else(model: EncoderDecoder) -> None:
    settings: dict[str, Any] = {"temperature": 1.0, "n_best": 3}
    first, again = (answer(model, SOURCES, seed=7, **settings) for _ in range(2))
    assert first == again
    assert ids(first) != ids(answer(model, SOURCES, seed=8, **settings))
    assert all(len(found) == 3 for found in first)
    fewer = answer(model, SOURCES[:2], seed=7, **settings)
    assert ids(fewer) == ids(first[:2])


def test_a_cold_draw_is_greedy(model: EncoderDecoder) -> None:
    assert ids(answer(model, SOURCES, temperature=1e-6, seed=0)) == ids(answer(model, SOURCES))
    assert ids(answer(model, SOURCES, temperature=1.0, top_k=1, seed=0)) == ids(answer(model, SOURCES))


def test_draws_are_as_frequent_as_likely(model: EncoderDecoder) -> None:
    count = 2000
    drawn = answer(model, ["나는"], temperature=1.0, n_best=count, max_tokens=1, seed=0)[0]
    with torch.inference_mode():
        logits = model.eval()(torch.from_numpy(ids_of(model, ["나는"])[0])[None], torch.tensor([[1]]))[0, 0]
    logits = logits.clone()
    logits[0] = -math.inf  # padding is never generated
    likely = logits.softmax(-1).numpy()
    found = np.bincount([one.ids[0] for one in drawn], minlength=len(likely)) / count
    assert np.abs(found - likely).max() < 4 * math.sqrt(0.25 / count)


# --- bad input ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam=0 is out of range"),
        ({"beam": 2, "n_best": 3}, "n_best=3 is more than beam=2"),
        ({"n_best": 2}, "use beam=2, or a temperature above 0"),
        ({"beam": 2, "temperature": 0.5}, "were both given"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram=-1"),
        ({"length_penalty": math.nan}, "length_penalty=nan"),
        ({"max_tokens": CONTEXT + 1}, "between 1 and 24"),
    ],
)
def test_settings_out_of_range(model: EncoderDecoder, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        answer(model, SOURCES, **settings)


def test_one_string_is_not_a_list_of_sources(model: EncoderDecoder) -> None:
    with pytest.raises(ConfigError, match=r"give a list: \['나는'\]"):
        answer(model, "나는")


def test_a_source_that_is_too_long_is_named(model: EncoderDecoder) -> None:
    fits = "나" * (CONTEXT - 1)
    assert len(answer(model, [fits])) == 1
    with pytest.raises(TextError, match=r"source 2 has 25 tokens, special tokens included, .* at most 24"):
        answer(model, [fits, fits + "는"])


def test_a_repetition_penalty_of_an_answer_is_refused(model: EncoderDecoder) -> None:
    """It was accepted as a part of the sampling settings, and changed nothing."""
    with pytest.raises(ConfigError, match=r"repetition_penalty=1\.2 is for a GPT.*no_repeat_ngram"):
        answer(model, SOURCES, repetition_penalty=1.2)


@pytest.mark.parametrize(("settings", "of"), [(SamplingSettings, Sampling), (SearchSettings, Search)])
def test_keywords_are_the_fields_with_their_types(settings: type, of: type) -> None:
    assert get_type_hints(settings) == {field.name: get_type_hints(of)[field.name] for field in fields(of)}


def test_a_gpt_does_not_answer_and_says_what_to_call(model: EncoderDecoder) -> None:
    gpt: Any = GPT(GPTConfig(vocab_size=300, context_length=8, n_layer=1, n_head=1, n_embd=8))
    with pytest.raises(ConfigError, match=r"kind GPT.*jumok\.generate"):
        answer(gpt, ["나는"])
    other: Any = model
    with pytest.raises(ConfigError, match=r"kind EncoderDecoder.*from jumok\.inference\.answer import answer"):
        generate(other, "나는")


@pytest.mark.parametrize("name", ["eos_id", "decoder_start_id"])
def test_a_model_that_does_not_know_where_answers_begin_and_end(name: str) -> None:
    with pytest.raises(TokenizerError, match=f"no {name}"):
        answer(tiny(**{name: None}), ["나는"])


def test_a_model_without_a_pad_id_answers() -> None:
    """What fills up is masked, so any id does."""
    without, model = tiny(pad_id=None), tiny()
    for one in (without, model):
        one.output_bias.data[0] = -50.0  # padding is never generated; here the other model does not either
    assert ids(answer(without, SOURCES)) == ids(answer(model, SOURCES))


@pytest.mark.parametrize("how", [{}, {"beam": 3}, {"temperature": 1.0, "seed": 1}])
def test_an_answer_ends_where_no_token_may_come(how: dict[str, Any]) -> None:
    """It had the first token of all, again and again; beam search said that the parameters were damaged."""
    known = tiny().config.vocab_size
    model = tiny(generation=GenerationRules(suppress_tokens=tuple(range(known))))
    [[found]] = answer(model, ["나는"], **how)
    assert (found.text, found.ids, found.finish) == ("", (), "stop")


@pytest.mark.parametrize("beam", [1, 3])
def test_a_diverged_model_is_reported(model: EncoderDecoder, beam: int) -> None:
    with torch.no_grad():
        model.token_embedding.weight[5] = math.nan
    with pytest.raises(JumokError, match="not finite"):
        answer(model, ["나는"], beam=beam)


@pytest.mark.parametrize("how", [{}, {"temperature": 1.0, "n_best": 2, "seed": 1}, {"beam": 3, "n_best": 2}])
def test_a_source_that_fails_fails_alone(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN for one of several sources used to raise for all of them."""
    model = tiny()
    wanted = answer(model, SOURCES, **how)
    hidden, first_row = EncoderDecoder.hidden, [0]

    def damaged(self: EncoderDecoder, ids: Tensor, context: Tensor, mask: Any, cache: Any) -> Tensor:
        found = hidden(self, ids, context, mask, cache)
        if cache.length == 1:
            found[: len(found) if first_row[0] is None else first_row[0] + 1] = math.nan
        return found

    monkeypatch.setattr(EncoderDecoder, "hidden", damaged)
    found = answer(model, SOURCES, **how)
    failed = min(range(len(SOURCES)), key=lambda number: len(SOURCES[number]))  # the shortest is in the first row
    assert SOURCES[failed] == ""
    broken = found[failed][-1]  # of two draws the other one may go on
    assert (broken.finish, broken.text, broken.tokens, broken.score) == ("not finite", "", 0, -math.inf)
    rest = [number for number in range(len(SOURCES)) if number != failed]
    assert ids([found[number] for number in rest]) == ids([wanted[number] for number in rest])
    first_row[0] = None  # type: ignore[call-overload]
    with pytest.raises(JumokError, match="not finite"):
        answer(model, ["나는", "나는"], **how)


def test_a_vocabulary_smaller_than_the_search() -> None:
    """With fewer than 2·beam continuations at the first step there is less to look at, not an error."""
    model = tiny()
    assert model.tokenizer is not None
    beam = model.tokenizer.vocab_size  # half of what a search looks at
    found = answer(model, ["나는"], beam=beam, n_best=3, max_tokens=2)[0]
    assert len(found) == 3
    assert all(math.isfinite(one.score) for one in found)
