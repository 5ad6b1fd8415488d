"""Dynamic evaluation against a plain loop, and that no loss depends on later tokens."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_evaluate import CONTEXT, TEXT, tiny

import jumok as package
from conftest import Jumok
from jumok.config import BERTConfig, EncoderDecoderConfig, GPTConfig
from jumok.errors import ConfigError, JumokError, TextError
from jumok.evaluation.dynamic import RelativeDescent, dynamic_score, evaluate_text_dynamically, learning_copy
from jumok.evaluation.language_model import evaluate_text
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.text import read
from jumok.tokenizers import train_tokenizer

pytestmark = pytest.mark.slow

BEFORE = 7
RATE = 0.02
EXACT = {"classic": 1e-12, "modern": 1e-6}  # RMSNorm computes in float32, also in a model of float64


def some_ids(length: int, vocab: int = 40) -> list[int]:
    return np.random.default_rng(5).integers(0, vocab, length).tolist()


def score(model: GPT, ids: list[int], **settings: Any) -> float:
    settings = {"rule": partial(RelativeDescent, rate=RATE), "before": [BEFORE], **settings}
    nats, tokens = dynamic_score(model, np.array(ids, dtype=np.uint16), **settings)
    assert tokens == len(ids)
    return nats


def by_hand(model: GPT, ids: list[int], stride: int, rate: float) -> float:
    """Each token by itself; each tensor moves by rate times its norm against the gradient of the segment."""
    own, context, everything, nats = copy.deepcopy(model), model.config.context_length, [BEFORE, *ids], 0.0
    for first in range(0, len(ids), stride):
        stop = min(first + stride, len(ids))
        start = max(0, stop - context)
        losses = [
            -own(torch.tensor([everything[start : i + 1]]))[0, -1].log_softmax(-1)[ids[i]] for i in range(first, stop)
        ]
        nats += sum(float(loss.detach()) for loss in losses)
        gradients = torch.autograd.grad(sum(losses) / (stop - first), list(own.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(own.parameters(), gradients, strict=True):
                parameter -= rate * gradient * parameter.norm() / gradient.norm().clamp(min=1e-30)
    return nats


# --- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "tied", "stride"),
    [("modern", True, 3), ("modern", False, CONTEXT), ("classic", True, 1), ("classic", False, 3)],
)
def test_it_equals_a_plain_loop(family: str, tied: bool, stride: int):
    model, ids = tiny(family=family, tie_embeddings=tied), some_ids(12)
    expected = by_hand(model, ids, stride, RATE)
    assert score(model, ids, stride=stride) == pytest.approx(expected, rel=EXACT[family])
    assert expected != pytest.approx(
        score(model, ids, stride=stride, rule=partial(RelativeDescent, rate=0.0)), rel=1e-6
    )


@pytest.mark.parametrize("length", [1, CONTEXT - 1, CONTEXT, CONTEXT + 1])
def test_short_texts(length: int):
    model, ids = tiny(family="classic"), some_ids(length)
    assert score(model, ids) == pytest.approx(by_hand(model, ids, CONTEXT // 4, RATE), rel=1e-12)


def test_a_rate_of_zero_leaves_the_static_figures():
    """With a stride of the context, static windows are the same ones where the text is a multiple of it."""
    model, text = tiny(), TEXT[: 6 * CONTEXT]
    found = evaluate_text_dynamically(model, text, rate=0, stride=CONTEXT)
    assert found.nats_per_char == pytest.approx(evaluate_text(model, text, stride=CONTEXT).nats_per_char, rel=1e-12)
    assert (found.chars, found.bytes, found.tokens) == (48, len(text.encode()), 48)


@pytest.mark.parametrize("stride", [3, 5])
def test_no_loss_depends_on_later_tokens(stride: int):
    """The losses of each segment, taken as differences of scores of beginnings, do not change with what follows."""
    model, ids, stops = tiny(n_layer=1), some_ids(15), range(stride, 16, stride)
    whole = [score(model, ids[:stop], stride=stride) for stop in stops]
    for at in (stride, 2 * stride):  # everything from `at` on is another text
        other = [*ids[:at], *((i + 1) % 40 for i in ids[at:])]
        changed = [score(model, other[:stop], stride=stride) for stop in stops]
        same = at // stride
        assert changed[:same] == whole[:same]
        assert all(a != b for a, b in zip(changed[same:], whole[same:], strict=True))


def test_a_change_reaches_no_loss_before_it_within_a_segment():
    """Token i may change its own loss and those after it, also where gradients and losses share a window."""
    model, ids, seen = tiny(), some_ids(12), []

    def losses_of(text: list[int]) -> list[float]:
        seen.clear()
        hook = model.norm.register_forward_hook(  # the copy of a model has its hooks
            lambda module, args, output: seen.append(output.detach().clone())
        )
        score(model, text, stride=4)
        hook.remove()
        return seen

    before = list(losses_of(ids))
    after = list(losses_of([*ids[:9], (ids[9] + 1) % 40, *ids[10:]]))
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[2][:, :6], after[2][:, :6])  # the window begins at token 4; position 5 predicts token 9
    assert not torch.equal(before[2][:, 6:], after[2][:, 6:])


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_text_that_repeats_itself_is_learned(kind: str):
    torch.manual_seed(0)
    tokenizer = train_tokenizer(TEXT, kind)
    model = GPT(GPTConfig(vocab_size=tokenizer.vocab_size, context_length=32, n_layer=2, n_head=2, n_embd=32))
    model.tokenizer = tokenizer
    text = "우리는 밥을 먹었다.\n" * 200
    assert evaluate_text_dynamically(model, text).nats_per_char < 0.8 * evaluate_text(model, text).nats_per_char


def test_it_is_deterministic_and_tells_its_progress(tmp_path: Path):
    model, shares = tiny(dropout=0.5).train(), []
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-16")
    first = evaluate_text_dynamically(model, TEXT, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    with torch.inference_mode(), read(path) as text:  # gradients are on inside
        assert evaluate_text_dynamically(model, text) == first


# --- the model --------------------------------------------------------------------------------------------------------


def test_the_model_is_not_changed():
    model = tiny(dropout=0.5).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    evaluate_text_dynamically(model, TEXT)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_frozen_parameters_stay_and_half_precision_learns_in_float32():
    model = tiny().bfloat16()
    model.token_embedding.requires_grad_(False)
    own = learning_copy(model)
    assert own.head.weight is own.token_embedding.weight
    assert own.head.weight.dtype == torch.float32
    assert not own.head.weight.requires_grad
    assert own.tokenizer is model.tokenizer
    assert model.head.weight.dtype == torch.bfloat16
    model.requires_grad_(False)
    with pytest.raises(JumokError, match="no parameter of this model requires a gradient"):
        evaluate_text_dynamically(model, TEXT)


# --- bad input --------------------------------------------------------------------------------------------------------


def _broken(model: GPT) -> None:
    with torch.no_grad():
        model.norm.weight[3] = math.nan


@pytest.mark.parametrize(
    ("prepare", "settings", "error", "message"),
    [
        (None, {"stride": 9}, ConfigError, "stride=9 is out of range: it must be between 1 and 8"),
        (None, {"rate": -0.1}, ConfigError, "rate=-0.1 is out of range"),
        (None, {"rate": math.nan}, ConfigError, "rate=nan is out of range"),
        (None, {"rate": 1e300}, JumokError, "diverged. Give a lower learning rate"),
        (_broken, {}, JumokError, "its parameters are damaged"),
    ],
)
def test_what_is_refused(
    prepare: Callable[[GPT], None] | None, settings: dict[str, Any], error: type[JumokError], message: str
):
    model = tiny()
    if prepare is not None:
        prepare(model)
    with pytest.raises(error, match=message):
        evaluate_text_dynamically(model, TEXT, **settings)


def test_an_empty_text_is_refused():
    with pytest.raises(TextError, match="empty"):
        evaluate_text_dynamically(tiny(), "")


def test_too_little_memory_is_told_before_it_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jumok.evaluation.dynamic.free_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match=r"a training step over 8 tokens takes .* evaluate without learning"):
        evaluate_text_dynamically(tiny(), TEXT)


# --- the command ------------------------------------------------------------------------------------------------------


def saved(path: str) -> None:
    package.save(tiny().float(), path)
    Path("글.txt").write_text(TEXT, encoding="utf-8")


def test_the_command_has_both_figures_and_leaves_the_run_as_it_was(jumok: Jumok, own_folder: Path):
    saved("run")
    files = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    plain = jumok("evaluate", "run", "글.txt", "--json").json
    found = jumok("evaluate", "run", "글.txt", "--adapt", "--json").json
    adapted = found.pop("adapted")
    assert found == plain
    assert adapted.keys() == evaluate_text(tiny(), TEXT).__dict__.keys()
    assert adapted["chars"] == plain["chars"]
    assert adapted["nats_per_char"] != plain["nats_per_char"]
    other = jumok("evaluate", "run", "글.txt", "--adapt", "--adapt-rate", "0.01", "--json").json["adapted"]
    assert other["nats_per_char"] != adapted["nats_per_char"]
    heading, first, *_ = jumok("evaluate", "run", "글.txt", "--adapt").out.splitlines()
    assert heading.split() == ["as", "it", "is", "adapted"]
    assert first.split() == ["nats_per_char", f"{plain['nats_per_char']:.4f}", f"{adapted['nats_per_char']:.4f}"]
    assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == files


def test_several_models(jumok: Jumok, own_folder: Path):
    saved("a")
    saved("b")
    found = jumok("evaluate", "a", "b", "글.txt", "--adapt", "--json").json["models"]
    assert found[0]["adapted"] == found[1]["adapted"]
    shown = jumok("evaluate", "a", "b", "글.txt", "--adapt", "--quiet").out.splitlines()
    assert "adapted_nats/char" in shown[0].split()
    assert f"{found[0]['adapted']['nats_per_char']:.4f}" in shown[1].split()


@pytest.mark.parametrize("kind", ["bert", "labels", "encoder_decoder"])
def test_other_models_are_refused(jumok: Jumok, own_folder: Path, kind: str):
    tokenizer = train_tokenizer(TEXT, "char", special_tokens=("[PAD]", "[CLS]", "[SEP]", "[MASK]"))
    shape: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "context_length": 16, "n_head": 2, "n_embd": 16}
    configs = {
        "bert": lambda: BERTConfig(n_layer=1, **shape),
        "labels": lambda: GPTConfig(n_layer=1, labels=("좋음", "싫음"), **shape),
        "encoder_decoder": lambda: EncoderDecoderConfig(n_layer=1, n_decoder_layer=1, **shape),
    }
    model = build(configs[kind]())
    model.tokenizer = tokenizer
    package.save(model, "run")
    Path("글.tsv").write_text("text\tlabel\n나는\t좋음\n", encoding="utf-8")
    end = jumok("evaluate", "run", "글.tsv", "--adapt")
    assert end.code == 2
    assert "--adapt does not apply to the model in run" in end.err


def test_a_rate_without_adapt_is_refused(jumok: Jumok, own_folder: Path):
    saved("run")
    end = jumok("evaluate", "run", "글.txt", "--adapt-rate", "0.1")
    assert end.code == 2
    assert "--adapt-rate is the learning rate of --adapt" in end.err
