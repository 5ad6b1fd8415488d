"""Writing: what is drawn, what is shown, what the model sees of a long text."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from jumok.config import GPTConfig
from jumok.errors import ConfigError, JumokError, TokenizerError
from jumok.inference.generate import generate, stream
from jumok.inference.sampling import Sampling, drawn, filtered, keep_top_k, keep_top_p, likeliest, log_softmax
from jumok.models.gpt import GPT
from jumok.models.special_ids import start_ids
from jumok.text.hangul import nfc
from jumok.tokenizers import Tokenizer, train_tokenizer
from tokenizers import Tokenizer as Pipeline
from tokenizers import decoders, models, pre_tokenizers

TEXT = "나는 학교에 갔다.\n너는 밥을 먹었다.\n우리는 집에 갔다.\n" * 3
KINDS = ("char", "jamo", "bpe")
FAMILIES = ("modern", "classic")


def tiny(kind: str = "char", seed: int = 0, **changes: Any) -> GPT:
    """A small float64 model with random weights and a tokenizer; it writes noise, bytes of half characters included."""
    tokenizer = train_tokenizer(TEXT, kind)
    torch.manual_seed(seed)
    shape = {"context_length": 12, "n_layer": 2, "n_head": 2, "n_embd": 16, "n_kv_head": 2, **changes}
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, **shape)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


class Parrot(GPT):
    """A model that writes a given text, whatever stands before it: its logits point to the next character."""

    def __init__(self, text: str, tokenizer: Tokenizer | None = None) -> None:
        tokenizer = tokenizer or train_tokenizer(TEXT + text, "char", min_count=1)
        super().__init__(GPTConfig(vocab_size=tokenizer.vocab_size, context_length=8, n_layer=1, n_head=1, n_embd=2))
        self.tokenizer = tokenizer
        self.script = itertools.cycle(tokenizer.encode(text).tolist())
        self.head = nn.Identity()  # type: ignore[assignment]

    def hidden(self, ids: Tensor, cache: Any = None) -> Tensor:
        logits = torch.full((*ids.shape, self.config.vocab_size), -50.0)
        logits[..., next(self.script)] = 50.0
        return logits


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"tokens": 0}, "tokens=0 is out of range: it must be at least 1"),
        ({"samples": 0}, "samples=0 is out of range"),
        ({"temperature": -0.1}, "temperature=-0.1 is out of range: it must be at least 0"),
        ({"temperature": math.nan}, "temperature=nan is out of range"),
        ({"top_k": -1}, "top_k=-1 is out of range"),
        ({"top_p": 0}, "top_p=0 is out of range: it must be more than 0 and at most 1"),
        ({"min_p": 1.5}, "min_p=1.5 is out of range: it must be between 0 and 1"),
        ({"repetition_penalty": 0}, "repetition_penalty=0 is out of range"),
        ({"seed": -1}, "seed=-1 is out of range"),
        ({"tokens": 1.5}, "tokens=1.5 is of type float; it must be of type int"),  # never ended
        ({"tokens": "9"}, "tokens='9' is of type str; it must be of type int"),
        ({"samples": True}, "samples=True is of type bool; it must be of type int"),
        ({"seed": math.nan}, "seed=nan is of type float; it must be of type int"),
        ({"top_k": 1.5}, "top_k=1.5 is of type float; it must be of type int"),
        ({"top_p": "x"}, "top_p='x' is of type str; it must be of type float"),
        ({"temperature": "x"}, "temperature='x' is of type str; it must be of type float"),
        ({"stop": [1]}, "stop=1 is of type int; it must be of type str"),
        ({"quantize": "int4"}, r"quantize='int4' is not known; choose from bfloat16, int8\. Did you mean 'int8'\?"),
        ({"stop": "끝"}, r"stop='끝' is one string; give a list: \['끝'\]"),
        ({"stop": ["끝", ""]}, "stop holds an empty string"),
    ],
)
def test_settings_out_of_range_are_named(setting: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=message):
        generate(tiny(), "나는", **setting)
    if "samples" not in setting:
        with pytest.raises(ConfigError, match=message):
            stream(tiny(), "나는", **setting)  # at once, not at the first piece


def test_a_model_without_a_tokenizer_is_refused():
    model = tiny()
    model.tokenizer = None
    for call in (generate, stream):
        with pytest.raises(TokenizerError, match=r"no tokenizer; put its tokenizer\.json"):
            call(model, "나는")


def test_a_tokenizer_of_another_model_is_refused():
    model = tiny()
    model.tokenizer = train_tokenizer(TEXT, "jamo")
    with pytest.raises(TokenizerError, match=r"has \d+ ids, the model only"):
        generate(model, "나는")


@pytest.mark.parametrize(("value", "temperature"), [(math.nan, 0.0), (math.inf, 1.0)])
def test_logits_that_are_not_finite_are_an_error(value: float, temperature: float):
    """A diverged model must say so, not write the first token of its vocabulary for ever."""
    model = tiny()
    with torch.no_grad():
        model.norm.weight.fill_(value)
    with pytest.raises(JumokError, match="not finite"):
        generate(model, "나는", temperature=temperature)
    assert not model.training


def test_a_prompt_that_the_model_cannot_read_fails_alone():
    """A NaN in one row of a batch used to take the texts of all others with it."""
    model = tiny(tie_embeddings=False, context_length=40)
    assert model.tokenizer is not None
    with torch.no_grad():
        model.token_embedding.weight[int(model.tokenizer.encode("밥")[0])] = math.nan
    prompts = ["나는", "밥을", "너는"]
    alone, failed, other = generate(model, prompts, tokens=6, seed=1, temperature=0, samples=2)
    assert [one.finish for one in failed] == ["not finite"] * 2
    assert [(one.prompt, one.text, one.ids) for one in failed] == [("밥을", "", ())] * 2
    assert [alone, other] == [generate(model, one, tokens=6, seed=1, temperature=0, samples=2) for one in prompts[::2]]
    with pytest.raises(JumokError, match="not finite"):
        generate(model, "밥을", samples=2)
    with pytest.raises(JumokError, match="not finite"):
        list(stream(model, "밥을"))


# --- what is drawn ----------------------------------------------------------------------------------------------------

ROWS = torch.tensor([[2.0, 1.0, 0.5, 0.5, -1.0, -3.0], [0.0, -2.0, 3.0, 0.0, 1.0, -1.0]], dtype=torch.float64)
INF = math.inf


def kept(logits: Tensor | NDArray[Any]) -> list[list[int]]:
    return [[i for i, value in enumerate(row) if value > -INF] for row in logits.tolist()]


def test_top_k_keeps_the_largest_and_their_ties():
    assert kept(keep_top_k(ROWS.numpy(), 1)) == [[0], [2]]
    assert kept(keep_top_k(ROWS.numpy(), 3)) == [[0, 1, 2, 3], [0, 2, 3, 4]]  # a tie for the last place
    assert kept(keep_top_k(ROWS.numpy(), 99)) == [list(range(6))] * 2


def test_top_p_keeps_the_smaller_of_equally_likely_ids():
    logits = np.array([[0.0, 2.0, 0.0, 0.0, 0.0], [0.0] * 5])
    assert kept(keep_top_p(logits, 0.7)) == [[0, 1], [0, 1, 2, 3]]
    assert kept(keep_top_p(logits, 1e-46)) == [[1], [0]]


@pytest.mark.parametrize(
    ("setting", "processors"),
    [
        ({"temperature": 0.7}, [TemperatureLogitsWarper(0.7)]),
        ({"temperature": 1.0, "top_k": 5}, [TopKLogitsWarper(5)]),
        ({"temperature": 1.0, "top_p": 0.8}, [TopPLogitsWarper(0.8)]),
        ({"temperature": 1.0, "min_p": 0.1}, [MinPLogitsWarper(0.1)]),
        ({"temperature": 1.0, "repetition_penalty": 1.3}, [RepetitionPenaltyLogitsProcessor(1.3)]),
        (
            {"temperature": 1.5, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
            [
                RepetitionPenaltyLogitsProcessor(1.2),
                TemperatureLogitsWarper(1.5),
                TopKLogitsWarper(20),
                TopPLogitsWarper(0.9),
                MinPLogitsWarper(0.02),
            ],
        ),
    ],
    ids=["temperature", "top_k", "top_p", "min_p", "penalty", "all"],
)
def test_filters_equal_those_of_transformers(setting: dict[str, Any], processors: list[Any]):
    logits = torch.randn(4, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    ids = torch.randint(50, (4, 10), generator=torch.Generator().manual_seed(0))
    seen = torch.zeros(4, 50, dtype=torch.bool).scatter_(1, ids, True)
    before = seen.numpy() if "repetition_penalty" in setting else None
    ours = torch.from_numpy(filtered(logits.numpy(), Sampling(**setting), before))
    theirs = logits
    for processor in processors:
        theirs = processor(ids, theirs)
    torch.testing.assert_close(ours.softmax(-1), theirs.softmax(-1), rtol=0, atol=1e-12)
    assert kept(ours) == kept(theirs)


EXTREMES = st.one_of(
    st.floats(min_value=0, max_value=1, exclude_min=True), st.sampled_from([5e-324, 1e-46, 1e-38, 1 - 1e-16, 1.0])
)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    temperature=st.floats(min_value=0, max_value=1.7e308),
    top_k=st.one_of(st.none(), st.integers(min_value=0, max_value=10**30)),
    top_p=EXTREMES,
    min_p=st.one_of(st.just(0.0), EXTREMES),
    penalty=st.floats(min_value=0.01, max_value=100),
    scale=st.sampled_from([0.0, 1e-45, 1.0, 1e30, 3.4e38]),
    dtype=st.sampled_from([np.float32, np.float64]),
    uniform=st.floats(min_value=0, max_value=1, exclude_max=True),
)
def test_whatever_the_settings_a_known_id_is_drawn(
    temperature: float,
    top_k: int | None,
    top_p: float,
    min_p: float,
    penalty: float,
    scale: float,
    dtype: Any,
    uniform: float,
):
    """`top_p=1e-46`, zero in float32, ruled out every token, and the id drawn was one behind the vocabulary."""
    how = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=penalty)
    logits = ROWS.numpy().clip(-1, 1).astype(dtype) * dtype(scale)  # (2, V)
    seen = np.array([[True, False] * 3, [False] * 6])
    left = filtered(logits, how, seen)
    assert left.dtype == dtype
    assert not np.isnan(left).any()
    assert np.isfinite(left).any(axis=-1).all()
    ids = drawn(left, np.full(2, uniform))
    assert (ids < logits.shape[1]).all()
    assert np.isfinite(np.take_along_axis(left, ids[:, None], axis=-1)).all()


def test_log_probabilities_and_the_likeliest_ids_are_those_of_pytorch():
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)) * 5
    wanted = logits.log_softmax(dim=-1)
    found = log_softmax(logits.numpy())
    torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=0, atol=1e-5)
    for row, exact in zip(found, wanted, strict=True):
        assert [token for token, _ in likeliest(row, 7)] == exact.topk(7).indices.tolist()
        assert [value for _, value in likeliest(row, 7)] == row[[token for token, _ in likeliest(row, 7)]].tolist()
    equal = np.zeros(5, np.float32)
    assert likeliest(equal, 3) == ((0, 0.0), (1, 0.0), (2, 0.0))  # of equal ones the smaller ids
    assert likeliest(equal, 0) == ()
    assert len(likeliest(equal, 9)) == 5


def test_drawing_follows_the_probabilities():
    """Evenly spaced numbers in, and each id comes out in its share of the cases, to a case."""
    logits = torch.tensor([0.1, 0.0, 0.4, 0.25, 0.25, 0.0]).log().expand(1000, -1).numpy()
    ids = drawn(logits, (np.arange(1000) + 0.5) / 1000).tolist()
    assert Counter(ids) == {0: 100, 2: 400, 3: 250, 4: 250}


def test_the_ends_of_the_interval_never_hit_what_is_ruled_out():
    """0 and the largest number below 1 both are possible draws; a search from the other side would leave the row."""
    logits = np.array([[-INF, 0.0, -INF, 0.0, -INF]] * 2, np.float32)
    assert drawn(logits, np.array([0.0, np.nextafter(1.0, 0.0)])).tolist() == [3, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_takes_the_likeliest_each_time(family: str):
    model = tiny(family=family, context_length=64)
    assert model.tokenizer is not None
    ids = model.tokenizer.encode("나는").tolist()
    [done] = generate(model, "나는", tokens=30, temperature=0)
    for token in done.ids:
        with torch.no_grad():
            assert token == int(model(torch.tensor([ids]))[0, -1].argmax())
        ids.append(token)


def test_top_k_1_and_low_temperature_are_greedy():
    model = tiny()
    greedy = generate(model, "나는", tokens=20, temperature=0)[0].ids
    assert generate(model, "나는", tokens=20, temperature=1, top_k=1)[0].ids == greedy
    assert generate(model, "나는", tokens=20, temperature=1, min_p=1)[0].ids == greedy
    assert generate(model, "나는", tokens=20, temperature=1e-9)[0].ids == greedy


def test_a_strong_penalty_repeats_nothing():
    """Of the prompt neither: with all logits positive or negative, 100 times is far enough."""
    model = tiny()
    assert model.tokenizer is not None
    [done] = generate(model, "나는 집", tokens=40, temperature=0, repetition_penalty=100)
    ids = [*model.tokenizer.encode("나는 집").tolist(), *done.ids]
    assert len(set(ids)) == len(ids)


# --- seeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_seed_decides_the_text():
    model = tiny()
    first, same, other = (generate(model, "나는", seed=seed, tokens=30)[0] for seed in (1, 1, 2))
    assert first == same
    assert first.ids != other.ids
    one, another = (generate(model, "나는", tokens=30)[0] for _ in range(2))
    assert one.ids != another.ids  # without one, a new one


def test_a_sample_does_not_depend_on_how_many_there_are():
    model = tiny()
    five = generate(model, "나는", samples=5, seed=4, tokens=30)
    two = generate(model, "나는", samples=2, seed=4, tokens=30)
    assert five[:2] == two
    assert len({sample.ids for sample in five}) == 5


def test_neighbouring_seeds_share_no_sample():
    """Seeding sample i with seed + i would make sample 1 of seed 0 the sample 0 of seed 1."""
    model = tiny()
    samples = [s.ids for seed in range(3) for s in generate(model, "나는", samples=3, seed=seed, tokens=30)]
    assert len(set(samples)) == 9


def test_the_random_numbers_of_torch_and_the_mode_are_left_alone():
    model = tiny(dropout=0.5)
    model.train()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with_dropout_off = generate(model, "나는", seed=1, tokens=20)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training
    assert generate(model.eval(), "나는", seed=1, tokens=20) == with_dropout_off
    assert not model.training


def test_a_stream_lets_go_of_the_mode_and_of_inference_mode():
    """Trap: a generator that is suspended inside `torch.inference_mode` leaves it on for its caller."""
    model = tiny().train()
    pieces = stream(model, "나는", tokens=50, temperature=0)
    assert model.training  # nothing has happened yet
    next(pieces)
    assert not torch.is_inference_mode_enabled()
    assert model.training  # also while it is neither used up nor closed


def test_each_part_goes_back_to_its_own_mode():
    """A part that was frozen in eval mode was put into train mode after writing; an error must not change that."""
    model = tiny(dropout=0.5).train()
    model.blocks[0].eval()
    before = [part.training for part in model.modules()]
    generate(model, "나는", tokens=3)
    assert [part.training for part in model.modules()] == before
    with torch.no_grad():
        model.norm.weight.fill_(math.nan)
    with pytest.raises(JumokError, match="not finite"):
        generate(model, "나는", tokens=3)
    assert [part.training for part in model.modules()] == before


# --- prompts ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_prompt_stands_after_a_newline(kind: str):
    model = tiny(kind)
    from_nothing, after_newline = (generate(model, prompt, seed=1)[0] for prompt in ("", "\n"))
    assert from_nothing.ids == after_newline.ids
    assert from_nothing.prompt == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_of_unseen_characters_is_fine(kind: str):
    model = tiny(kind)
    for prompt in ("鬼😀", "ᄒᆞᆫ글", "\x00", "e\u0301", " "):
        assert generate(model, prompt, tokens=5, seed=1)[0].tokens == 5


@pytest.mark.slow
def test_a_decomposed_prompt_is_the_same_prompt():
    """A prompt typed on macOS may come in NFD."""
    model = tiny()
    decomposed = "\u1102\u1161\u1102\u1173\u11ab"
    assert nfc(decomposed) == "나는"
    assert generate(model, decomposed, seed=1)[0].ids == generate(model, "나는", seed=1)[0].ids


def word_tokenizer(words: list[str]) -> Tokenizer:
    """A foreign tokenizer as BERT has them: drops newlines, and writes the inside of a word as ##xyz."""
    pipeline = Pipeline(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece()
    return Tokenizer(pipeline)


def test_a_tokenizer_without_newlines_begins_after_a_full_stop():
    """Trap: WordPiece drops newlines, so a sample from nothing had no id to begin with, and training broke off."""
    words = ["[UNK]", ".", "나", "##는", "학교"]
    tokenizer = word_tokenizer(words)
    assert tokenizer.encode("\n").tolist() == []
    model = GPT(GPTConfig(vocab_size=5, context_length=8, n_layer=1, n_head=1, n_embd=4))
    assert start_ids(model.config, tokenizer) == (1,)
    model.tokenizer = tokenizer
    assert generate(model, "", tokens=3, seed=0)[0].tokens == 3


def test_a_tokenizer_that_encodes_neither_explains_itself():
    pipeline = Pipeline(models.WordLevel({"나": 0, "너": 1}, unk_token="나"))
    pipeline.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(mark, "removed") for mark in (".", "\n")])
    tokenizer = Tokenizer(pipeline)
    with pytest.raises(TokenizerError, match="give a prompt"):
        start_ids(GPTConfig(vocab_size=2, n_layer=1), tokenizer)


def test_a_continued_word_of_a_foreign_tokenizer_stays_one_word():
    """Trap: decoded alone, a piece of a word reads differently than after what stands before it."""
    tokenizer = word_tokenizer(["[UNK]", ".", "나", "##는", "학교"])
    model = Parrot("나는 학교", tokenizer)
    model.script = itertools.cycle([3, 4])
    [done] = generate(model, "나", tokens=2, temperature=0)
    assert done.text == "는 학교"


def test_ids_without_a_token_are_never_drawn():
    """A stock model may have more rows than its tokenizer has ids (Qwen3 has 267); they decode to nothing."""
    model = tiny()
    assert model.tokenizer is not None
    wide = tiny(tie_embeddings=False)
    wide.head = nn.Linear(16, model.tokenizer.vocab_size + 9, bias=False).double()
    with torch.no_grad():
        wide.head.weight[-9:] = wide.head.weight[:-9].sum(0) * 50  # as likely as can be
    for temperature in (0.0, 5.0):
        [done] = generate(wide, "나는", tokens=50, temperature=temperature, seed=0)
        assert max(done.ids) < model.tokenizer.vocab_size


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_pieces_join_to_the_text(kind: str, seed: int):
    """A random model writes many bytes of half characters; the two calls agree on what they become."""
    model = tiny(kind)
    assert model.tokenizer is not None
    [done] = generate(model, "나", seed=seed, tokens=60, temperature=2)
    pieces = list(stream(model, "나", seed=seed, tokens=60, temperature=2))
    assert "".join(pieces) == done.text
    assert "" not in pieces
    assert done.tokens == len(done.ids) == 60
    assert done.finish == "length"
    whole = model.tokenizer.decode(done.ids)
    assert whole.startswith(done.text)
    assert whole[len(done.text) :] in ("", "\ufffd")  # an unfinished last character is left out


def test_no_half_characters_are_shown():
    model = Parrot("가😀나", train_tokenizer("ab" * 9, "char"))  # in bytes, all of it
    [done] = generate(model, "a", tokens=9, temperature=0)
    assert done.text == "가😀"  # 3 + 4 bytes, and 2 of the 3 of the last one
    model = Parrot("가😀나", model.tokenizer)
    assert list(stream(model, "a", tokens=10, temperature=0)) == ["가", "😀", "나"]


@pytest.mark.parametrize(
    ("script", "stop", "text", "tokens"),
    [
        ("가나다라마", ["다"], "가나", 3),
        ("가나다라마", ["마바"], "가나다라마", 5),  # held back to the end, then shown
        ("가나다라마", ["가"], "", 1),
        ("가나다라마", ["라", "나다라"], "가", 4),  # both end at once: the one that begins first counts
        ("가가가나다", ["가가나"], "가", 4),  # the first try to match fails, a later one begins within it
        ("가나다라마", ["\u1103\u1161"], "가나", 3),  # the stop string decomposed, as macOS may give it
    ],
)
def test_stop_strings_end_the_text_and_stay_out_of_it(script: str, stop: list[str], text: str, tokens: int):
    [done] = generate(Parrot(script), "나", tokens=5, temperature=0, stop=stop)
    assert (done.text, done.tokens) == (text, tokens)
    assert done.finish == ("stop" if tokens < 5 or text != script else "length")
    assert "".join(stream(Parrot(script), "나", tokens=5, temperature=0, stop=stop)) == text


def test_a_stream_never_shows_what_may_become_a_stop_string():
    pieces = list(stream(Parrot("가끝나끝났다!"), "나", tokens=7, temperature=0, stop=["끝났다"]))
    assert pieces == ["가", "끝나"]
    pieces = list(stream(Parrot("가끝나끝났어!"), "나", tokens=7, temperature=0, stop=["끝났다"]))
    assert pieces == ["가", "끝나", "끝났어", "!"]


def test_each_sample_stops_by_itself():
    model = tiny()
    plain = generate(model, "나", samples=6, seed=1, tokens=40, temperature=2)
    mark = nfc(plain[0].text)[3]
    stopped = generate(model, "나", samples=6, seed=1, tokens=40, temperature=2, stop=[mark])
    assert stopped[0].finish == "stop"
    for before, after in zip(plain, stopped, strict=True):
        assert after.text == before.text.partition(mark)[0]
        assert after.finish == ("stop" if mark in before.text else "length")
        assert before.ids[: after.tokens] == after.ids
