"""Masked tokens: which are masked, what stands there instead, what is learned from it, and what the figures mean."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import jumok as package
from conftest import TINY, Jumok, loss_of
from foreign_tokenizers import roberta, unigram
from jumok import text as reader
from jumok.config import BERTConfig
from jumok.device import has_compiler
from jumok.errors import ConfigError, JumokError, TextError, TokenizerError
from jumok.evaluation.masked import evaluate_masked
from jumok.evaluation.masking import NOTHING, Masking
from jumok.inference.fill_mask import fill_mask
from jumok.interop.huggingface import to_hf
from jumok.interop.huggingface.tokenizer import read_tokenizer
from jumok.models import build
from jumok.models.bert import BERT
from jumok.models.losses import IGNORED
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.runs.events import Event, Finish, Notice, Sample, Step
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.tokenizers import Ids, Tokenizer, train_tokenizer
from jumok.training.tasks.masked import MaskedLanguageModelling
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

Start = Callable[..., Trainer]
MLM: dict[str, Any] = {**TINY, "task": "mlm", "context_length": 18, "sample_tokens": 12}
SENTENCE = "나는 학교에 갔다.\n너는 밥을 먹었다. "


@pytest.fixture
def begin(tmp_path: Path, story_text: Text) -> Start:
    """Begin a tiny run of this task in tmp_path/run."""

    def start(out: str = "run", *, text: Any = None, tokenizer: Any = "char", **settings: Any) -> Trainer:
        fields = {**MLM, **settings}
        return Trainer.start(tmp_path / out, text or story_text, **fields, tokenizer=tokenizer, device="cpu")

    return start


def task_of(trainer: Trainer) -> MaskedLanguageModelling:
    assert isinstance(trainer.task, MaskedLanguageModelling)
    return trainer.task


def bert_of(trainer: Trainer) -> BERT:
    assert isinstance(trainer.model, BERT)
    return trainer.model


def words_of(kind: str) -> Tokenizer:
    options = {"vocab_size": 320} if kind == "bpe" else {}
    return train_tokenizer(SENTENCE * 9, kind, **options, special_tokens=SPECIAL_TOKENS)


def random() -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(7))


def as_block(ids: Ids) -> np.ndarray[Any, np.dtype[np.int64]]:
    return ids.astype(np.int64)[None]  # (1, W)


# --- what is hidden ---


def test_what_a_batch_holds(begin: Start) -> None:
    trainer = begin(batch_size=8)
    task, special = task_of(trainer), task_of(trainer).tokenizer.special_tokens
    for number in range(20):
        ids, places, targets = task.batch(number)
        assert ids.shape == (8, 18)
        assert places.shape == targets.shape == (8, 2)  # 15% of 16
        assert (ids[:, 0] == special["[CLS]"]).all()
        assert (ids[:, -1] == special["[SEP]"]).all()
        assert places.min() >= 1
        assert places.max() <= 16
        assert (places.diff(dim=1) > 0).all()
        assert targets.min() >= len(special)
        truth = torch.from_numpy(task.batches.batch(number)[0].numpy())  # the same windows, nothing hidden
        assert torch.equal(truth.gather(1, places - 1), targets)
        untouched = torch.ones_like(truth, dtype=torch.bool).scatter(1, places - 1, False)
        assert torch.equal(ids[:, 1:-1][untouched], truth[untouched])


def test_eighty_ten_ten(begin: Start) -> None:
    """Of the chosen tokens 80% are [MASK], 10% an ordinary token, 10% themselves, within four standard deviations."""
    task = task_of(begin(batch_size=64))
    batches = [task.batch(number) for number in range(40)]
    shown = torch.cat([ids.gather(1, places) for ids, places, _ in batches]).flatten()
    targets = torch.cat([targets for _, _, targets in batches]).flatten()
    count, mask = len(targets), task.tokenizer.special_tokens["[MASK]"]
    kept = 0.1 + 0.1 / (task.tokenizer.vocab_size - 4)  # a token drawn from all may be the same
    for found, share in ((shown == mask, 0.8), (shown == targets, kept)):
        assert abs(float(found.float().mean()) - share) < 4 * math.sqrt(share * (1 - share) / count)
    replaced = shown[(shown != mask) & (shown != targets)]
    assert set(replaced.tolist()).isdisjoint(task.tokenizer.special_tokens.values())
    assert len(set(replaced.tolist())) > 100  # drawn from all


def test_special_tokens_in_the_text_are_not_hidden() -> None:
    """As [UNK] of a foreign tokenizer is: nobody knows what it was. A window of nothing else gives nothing to learn."""
    words = words_of("char")
    masking = Masking(words, 0.5)
    text = words.encode("나는학교에").astype(np.int64)
    block = np.array([[*text[:2], 2, 2], [2, 2, 2, 2], text[:4]])
    places = masking.choose(block, random())
    assert places.shape == (3, 2)
    assert places[0].tolist() == [0, 1]
    assert places[1].tolist() == [NOTHING, NOTHING]
    for shown in (masking.masked(block, places), masking.corrupted(block, places, random())):
        assert (shown[1] == block[1]).all()
        assert (shown[0, 2:] == 2).all()


@pytest.mark.parametrize("made", [roberta, unigram])
def test_the_example_keeps_the_spaces_around_a_mask(made: Any, begin: Start) -> None:
    """What stood after the mask was decoded alone, and SentencePiece then drops the space before its first word."""
    words = Tokenizer(made(False) if made is roberta else made())
    sentence = "갔다."
    prompt = task_of(begin(text=reader.from_string(f"{sentence}\n" * 40), tokenizer=words)).example()
    before, mask, after = (re.escape(part.replace("\n", " ")) for part in prompt.partition("<mask>"))
    assert mask
    assert re.search(rf"{before}\s?\S*{after}", f"{sentence} " * 5), prompt


# --- loss and figures ---


@torch.inference_mode()
def naive_nats(model: BERT, ids: Tensor, place: int, target: int) -> float:
    """Of one token of one framed text, (T,)."""
    logits = model.mlm_logits(model(ids[None]))[0, place]
    return float(-logits.log_softmax(0)[target])


def test_the_loss_is_the_mean_over_masked_tokens(begin: Start) -> None:
    trainer = begin(dropout=0.0, attention_dropout=0.0)
    task, model = task_of(trainer), bert_of(trainer).double()
    ids, places, targets = task.batch(0)
    every = torch.full_like(ids, IGNORED).scatter(1, places, targets)
    wanted = F.cross_entropy(model.mlm_logits(model(ids)).flatten(0, 1), every.flatten(), ignore_index=IGNORED)
    torch.testing.assert_close(loss_of(trainer, ids, places, targets), wanted, rtol=0, atol=1e-12)
    targets = targets.clone()
    targets[1:, 1], targets[0] = IGNORED, IGNORED  # rows with fewer masked tokens, and one with none
    fewer = [naive_nats(model, ids[row], int(places[row, 0]), int(targets[row, 0])) for row in (1, 2, 3)]
    assert loss_of(trainer, ids, places, targets).item() == pytest.approx(sum(fewer) / 3)
    nothing = loss_of(trainer, ids, places, torch.full_like(targets, IGNORED))
    assert nothing.item() == 0.0  # and not 0 / 0


def test_figures_hide_the_same_tokens_whatever_the_seed(begin: Start) -> None:
    runs = [begin(str(seed), seed=seed) for seed in (0, 1)]
    model = bert_of(runs[0])
    figures = [task_of(run).validate(model, 200) for run in runs]
    assert figures[0] == figures[1]
    assert figures[0]["tokens"] == 12 * 16
    assert figures[0]["hidden_tokens"] == 12 * 2


def test_figures_are_what_they_say(begin: Start) -> None:
    trainer = begin(steps=1)
    task, model = task_of(trainer), bert_of(trainer).double().eval()
    head = model.mlm_head
    assert head is not None
    with torch.no_grad():
        head.bias[int(np.bincount(task.val).argmax())] = 9.0  # so that some are right
    figures = task.validate(model, 10**6)
    assert figures["accuracy"] > 0
    room, special = 16, task.tokenizer.special_tokens
    starts = sorted({*range(0, len(task.val) - room, room), len(task.val) - room})
    nats, right = [], []
    for start in starts:
        block = task.val[start : start + room].astype(np.int64)[None]
        places = task.masking.choose(block, np.random.Generator(np.random.PCG64((0, start, 2))))
        shown = task.masking.masked(block, places)[0].tolist()
        ids = torch.tensor([special["[CLS]"], *shown, special["[SEP]"]])
        for place in places[0].tolist():
            assert shown[place] == special["[MASK]"]  # all of them are
            nats.append(naive_nats(model, ids, place + 1, int(block[0, place])))
            logits = model.mlm_logits(model(ids[None]))[0, place + 1]
            right.append(int(logits.argmax()) == block[0, place])
    assert figures["loss"] == figures["nats_per_hidden_token"] == pytest.approx(np.mean(nats))
    assert figures["accuracy"] == pytest.approx(np.mean(right))
    assert figures["hidden_tokens"] == len(nats)
    assert task.headline(figures) == f"masked {np.mean(nats):.2f} nats/token, {np.mean(right):.1%} right"


# --- any text ---


def test_a_whole_text_gives_the_figures_of_the_training(begin: Start) -> None:
    """`jumok evaluate` refused these models, and sent people to config.json."""
    trainer = begin(steps=1)
    task, model = task_of(trainer), bert_of(trainer)
    final = task.final(model, 10**9)
    held_out = task.tokenizer.decode(task.val)
    found = evaluate_masked(model, held_out)
    assert found == evaluate_masked(model, reader.from_string(held_out))  # the same places each time
    for name in ("nats_per_hidden_token", "accuracy", "hidden_tokens"):
        assert getattr(found, name) == pytest.approx(final[name])
    assert found.tokens == len(task.val)


def test_a_long_text_is_read_in_parts(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows of it were in memory at once."""
    model = bert_of(begin(steps=1)).double()
    text = SENTENCE * 30
    whole = evaluate_masked(model, text)
    monkeypatch.setattr("jumok.evaluation.masked.LARGEST_BATCH", 3)
    parts = evaluate_masked(model, text)
    assert parts.hidden_tokens == whole.hidden_tokens
    assert parts.nats_per_hidden_token == pytest.approx(whole.nats_per_hidden_token, abs=1e-9)


@pytest.mark.parametrize("text", ["나", "나는", "\n", "나는 학교에 갔다. 벼"])
def test_short_texts(begin: Start, text: str) -> None:
    """Shorter than the context: one window, of which at least one token is hidden."""
    model = bert_of(begin(steps=1))
    found = evaluate_masked(model, text)
    assert model.tokenizer is not None
    assert found.tokens == len(model.tokenizer.encode(text))
    assert found.hidden_tokens == max(1, round(0.15 * found.tokens))
    assert 0 < found.nats_per_hidden_token < math.inf


def test_nothing_to_ask_for(tmp_path: Path, begin: Start) -> None:
    """A stock tokenizer made [UNK] of all, and the figures would have been those of a perfect model."""
    vocabulary = [*SPECIAL_TOKENS, "[UNK]", "a", "b", "##c"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    model = build(BERTConfig(vocab_size=8, n_layer=1, n_head=1, n_embd=4, context_length=12))
    model.tokenizer = read_tokenizer(tmp_path, model.config)
    with pytest.raises(TextError, match="knows none of the 2 tokens"):
        evaluate_masked(model, "나는 학교에")
    assert evaluate_masked(model, "a bc 나는").hidden_tokens == 1
    with pytest.raises(TextError, match="empty"):
        evaluate_masked(model, "")


def test_a_bert_without_the_head() -> None:
    model = build(BERTConfig(vocab_size=300, n_layer=1, n_head=1, n_embd=4, head="pooler"))
    with pytest.raises(JumokError, match='head="pooler", and masked tokens are predicted by a BERT with head="mlm"'):
        evaluate_masked(model, "나는")


def test_the_command(begin: Start, jumok: Jumok, tmp_path: Path) -> None:
    """For a run, and for the same model as a stock folder; one that finds nothing hidden says so."""
    model = bert_of(begin(steps=1))
    package.save(model, tmp_path / "saved")
    to_hf(model, tmp_path / "stock")
    headless = build(BERTConfig(vocab_size=300, n_layer=1, n_head=1, n_embd=4, head="pooler"))
    to_hf(headless, tmp_path / "headless")
    (tmp_path / "text.txt").write_text(SENTENCE, encoding="utf-8")
    figures = jumok("evaluate", "saved", "text.txt", "--json").json
    assert figures.pop("seen_in_training") is None
    wanted = dataclasses.asdict(evaluate_masked(package.load(tmp_path / "saved"), SENTENCE))
    assert figures == pytest.approx(wanted, abs=1e-6)
    stock = jumok("evaluate", "stock", "text.txt", "--json").json
    assert {name: stock[name] for name in figures} == pytest.approx(figures, rel=1e-4)
    assert f"{figures['accuracy']:.4f}" in jumok("evaluate", "saved", "text.txt").out
    assert "its options are --encoding, --column" in jumok("evaluate", "saved", "text.txt", "--beam=2").err
    refused = jumok("evaluate", "headless", "text.txt")
    assert refused.code == 1
    assert 'head="mlm"' in refused.err


# --- runs ---


@pytest.mark.long
def test_it_learns(begin: Start) -> None:
    """In a text that repeats itself, a hidden letter follows from its neighbours."""
    text = reader.from_string("가나다라마바사아자차" * 200)
    settings = {"n_embd": 32, "batch_size": 16, "steps": 400, "eval_every": 1000, "sample_tokens": 0}
    trainer = begin(text=text, **settings, dropout=0.0, attention_dropout=0.0)
    finish = list(trainer.run())[-1]
    assert isinstance(finish, Finish)
    assert finish.figures["accuracy"] > 0.95
    model = package.load(trainer.folder.path)
    assert fill_mask(model, "가나다[MASK]마바[MASK]아자차").text == "가나다라마바사아자차"


def test_the_run_folder(begin: Start, tmp_path: Path) -> None:
    events = list(begin().run())
    config = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert config["data"].keys() >= MaskedLanguageModelling.keys
    assert config["model"]["head"] == "mlm"
    assert config["model"]["pad_id"] == 0
    assert config["train"]["task"] == "mlm"
    assert {"loss", "nats_per_hidden_token", "accuracy"} <= config["metrics"].keys()
    assert package.load(tmp_path / "run").tokenizer.special_tokens == dict(zip(SPECIAL_TOKENS, range(4), strict=True))
    for event in events:
        if isinstance(event, Sample):
            hidden, filled, original = event.text.split("\n")
            assert "[MASK]" in hidden
            assert filled.startswith("→ ")
            assert "[MASK]" not in filled + original
            assert original.removeprefix("= ") in "".join(reader_text(tmp_path))


def reader_text(folder: Path) -> list[str]:
    """The held-out part of a run, as its tokenizer spells it."""
    run = RunFolder(folder / "run")
    ids = np.load(run.state / "val.npy", allow_pickle=False)
    return [run.read_tokenizer().decode(ids)]


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Step)]


def test_without_validation(begin: Start) -> None:
    events = list(begin(val=0.0).run())
    assert isinstance(events[-1], Finish)
    assert events[-1].figures == {}
    assert "[MASK]" in next(event.text for event in events if isinstance(event, Sample))


@pytest.mark.long
@pytest.mark.compile
# torch's compiler warns its own developers.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_compiled(begin: Start) -> None:
    """Head and loss are compiled together, and for one shape only: all batches hide equally many tokens."""
    if not has_compiler(torch.device("cpu")):
        pytest.skip("there is no C++ compiler for torch.compile here")
    settings = {"dropout": 0.0, "attention_dropout": 0.0, "eval_every": 100, "sample_tokens": 0, "steps": 3}
    plain = losses(list(begin("plain", **settings).run()))
    events = list(begin("compiled", **settings, compile="on").run())
    assert [event.text for event in events if isinstance(event, Notice)] == []  # it did compile
    assert losses(events) == pytest.approx(plain, rel=1e-4)


def test_it_begins_with_a_stock_encoder(begin: Start, tmp_path: Path) -> None:
    """One without a head for masked tokens gets one, and keeps its encoder."""
    words = train_tokenizer(SENTENCE * 20, special_tokens=SPECIAL_TOKENS)
    shape = BERTConfig(vocab_size=words.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=18, head="pooler")
    encoder = build(shape)
    encoder.tokenizer = words
    to_hf(encoder, tmp_path / "stock")
    settings = {key: value for key, value in MLM.items() if key not in ("n_layer", "n_head", "n_embd")}
    text = reader.from_string(SENTENCE * 20)
    trainer = Trainer.start(tmp_path / "run", text, **settings, init=tmp_path / "stock", device="cpu")
    assert bert_of(trainer).config.head == "mlm"
    assert torch.equal(bert_of(trainer).token_embedding.weight, encoder.token_embedding.weight)
    assert len(losses(list(trainer.run()))) == 8


# --- what it does not take ---


@pytest.mark.parametrize(
    ("error", "message", "settings"),
    [
        (TokenizerError, r"needs a tokenizer with \[MASK\]", {"tokenizer": train_tokenizer(SENTENCE)}),
        (ConfigError, "context_length=2 has no room for a text", {"context_length": 2}),
        (TextError, "the text has 7 tokens to train on", {"text": reader.from_string("나는 나는 나는")}),
        (
            TextError,
            "text, and a Table was given",
            {"text": reader.from_rows(("text",), [("나는",), ("너는",)])},
        ),
        (ConfigError, "a model of the kind 'gpt' cannot be trained for this task", {"model": "gpt"}),
    ],
)
def test_what_is_refused(
    begin: Start, tmp_path: Path, error: type[JumokError], message: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(error, match=message):
        begin(**settings)
    assert not (tmp_path / "run").exists()
