"""Learning from pairs of texts: ids and batches, loss, figures, a whole run, and what bad tables are told."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, BartForConditionalGeneration

import jumok
from conftest import loss_of
from jumok.errors import ResumeError, RunError, TextError, TokenizerError
from jumok.evaluation.seq2seq import evaluate_pairs
from jumok.inference.answer import answer
from jumok.interop.huggingface import to_hf
from jumok.models import build
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.losses import IGNORED
from jumok.runs.events import Eval, Notice, Sample, Step
from jumok.runs.folder import RunFolder
from jumok.text import Table, from_rows
from jumok.tokenizers import train_tokenizer
from jumok.training.tasks.seq2seq import SPECIAL_TOKENS, Seq2Seq
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

EXTRA = ("val_text", "tokenizer", "tokenizer_options", "init")  # of what `begin` takes, no settings
DIGITS = "영일이삼사오육칠팔구"
TINY: dict[str, Any] = {
    "task": "seq2seq", "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 12, "batch_size": 4, "steps": 8,
    "eval_every": 4, "sample_tokens": 8, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.1,
    "attention": "chunked",
}  # fmt: skip


def spelled(number: int) -> tuple[str, str]:
    """A number and its digits as they are called: ("305", "삼 영 오")."""
    return str(number), " ".join(DIGITS[int(digit)] for digit in str(number))


def table(rows: int = 60, *more: tuple[str, str], below: int = 1000) -> Table:
    return from_rows(("source", "target"), [*(spelled(number * 37 % below) for number in range(rows)), *more])


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Trainer]:
    """Begin a tiny run in tmp_path/run; settings go before those of TINY."""

    def start(out: str = "run", pairs: Table | None = None, **settings: Any) -> Trainer:
        options = {name: settings.pop(name) for name in EXTRA if name in settings}
        settings = {**TINY, **settings}
        return Trainer.start(tmp_path / out, pairs or table(), **settings, device="cpu", **options)

    return start


def task_of(trainer: Trainer) -> Seq2Seq:
    assert isinstance(trainer.task, Seq2Seq)
    return trainer.task


def model_of(trainer: Trainer) -> EncoderDecoder:
    assert isinstance(trainer.model, EncoderDecoder)
    return trainer.model


# --- ids and batches ---


def test_the_ids_of_a_pair(begin: Callable[..., Trainer]) -> None:
    """A source is its text and [EOS]; so is what is written; the decoder begins with [BOS]."""
    trainer = begin(val=0.0)
    task, tokenizer, config = task_of(trainer), trainer.model.tokenizer, model_of(trainer).config
    assert tokenizer is not None
    assert list(tokenizer.special_tokens) == list(SPECIAL_TOKENS)
    ids = (config.pad_id, config.bos_id, config.eos_id, config.decoder_start_id)
    assert ids == tuple(tokenizer.special_tokens[name] for name in ("[PAD]", "[BOS]", "[EOS]", "[BOS]"))
    for row, (source, target) in enumerate(table().rows):
        assert task.sources[row].tolist() == [*tokenizer.encode(source).tolist(), config.eos_id]
        assert task.targets[row].tolist() == [*tokenizer.encode(target).tolist(), config.eos_id]


def test_the_alphabet_is_that_of_the_training_part(begin: Callable[..., Trainer]) -> None:
    """What is held out must not decide which characters have an id."""
    tokenizer = begin(pairs=table(54), val_text=from_rows(("source", "target"), [("꿈", "꿈")])).model.tokenizer
    assert tokenizer is not None
    assert len(tokenizer.encode("꿈")) == 3
    assert len(tokenizer.encode("영")) == 1


def test_bpe_learns_from_both_columns(begin: Callable[..., Trainer]) -> None:
    pairs = from_rows(("source", "target"), [("학교", "집에")] * 40)
    tokenizer = begin(pairs=pairs, tokenizer="bpe").model.tokenizer
    assert tokenizer is not None
    assert tokenizer.special_tokens == {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2}
    assert [len(tokenizer.encode(text)) for text in ("학교", "집에")] == [1, 1]


# --- loss ---


def stock(model: EncoderDecoder, folder: Path) -> Any:
    to_hf(model, folder)
    return BartForConditionalGeneration.from_pretrained(folder, dtype=torch.float64).eval()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_that_of_the_stock_class_with_labels(
    begin: Callable[..., Trainer], tmp_path: Path, smoothing: float
) -> None:
    """Stock BART shifts the labels itself; so someone who trains on there trains the same thing."""
    trainer = begin(label_smoothing=smoothing, batch_size=16)
    model, task = model_of(trainer).double().eval(), task_of(trainer)
    sources, targets = task.batch(1)
    assert (targets == IGNORED).any(), "a batch without padding would prove little"
    mask = sources != IGNORED
    out = stock(model, tmp_path / "hf")(input_ids=sources.clamp(min=0), attention_mask=mask.long(), labels=targets)
    counted = targets != IGNORED
    spread = -out.logits.log_softmax(-1)[counted].mean()  # each token alike
    expected = (1 - smoothing) * out.loss + smoothing * spread
    torch.testing.assert_close(loss_of(trainer, sources, targets), expected, atol=1e-10, rtol=1e-10)


def test_validation_is_not_smoothed(begin: Callable[..., Trainer]) -> None:
    trainer = begin(label_smoothing=0.1)
    task, model = task_of(trainer), model_of(trainer)
    figures = task.validate(model, 10**6)
    assert figures["loss"] == figures["loss_per_token"] == evaluate_pairs(model, task.held_out).loss_per_token


# --- a run ---


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """A run long enough to learn ten words, two at a time: the folder, and what happened."""
    out = tmp_path_factory.mktemp("seq2seq") / "run"
    settings = {**TINY, "n_embd": 32, "batch_size": 32, "steps": 150, "eval_every": 75, "dropout": 0.0}
    trainer = Trainer.start(out, table(600, below=100), **settings, device="cpu")
    return out, list(trainer.run())


@pytest.mark.long
def test_a_run_learns(run: tuple[Path, list[Any]]) -> None:
    _, events = run
    losses = [event.loss for event in events if isinstance(event, Step)]
    assert losses[-1] < 0.3 * losses[0]
    finish = events[-1]
    assert finish.reason == "done"
    figures = finish.figures
    assert figures["exact_match"] > 0.5
    assert figures["chrf"] > 50
    assert figures["bleu"] > 50
    assert finish.headline == (
        f"exact {figures['exact_match']:.1%}, tokens {figures['token_accuracy']:.1%}, chrF {figures['chrf']:.1f}, "
        f"loss {figures['loss']:.3f} (always the most frequent answer: exact {figures['baseline_exact_match']:.1%})"
    )


def test_a_sample_shows_source_answer_and_target(run: tuple[Path, list[Any]]) -> None:
    out, events = run
    model = jumok.load(out)
    source, target = json.loads((out / "state" / "val.jsonl").read_text(encoding="utf-8").split("\n")[0])
    assert (source, target) in table(600, below=100).rows
    last = [event.text for event in events if isinstance(event, Sample)][-1]
    lines = last.split("\n")
    assert [line.partition(": ")[0] for line in lines] == ["source", "answer", "target"]
    assert (lines[0], lines[2]) == (f"source: {source}", f"target: {target}")
    assert answer(model, [source], max_tokens=8)[0][0].text == lines[1].removeprefix("answer: ")


def test_the_stock_class_gives_the_same_answers(run: tuple[Path, list[Any]], tmp_path: Path) -> None:
    """The whole way: text, the exported tokenizer, which adds [EOS], the stock class, `generate` as the folder says."""
    model = jumok.load(run[0])
    to_hf(model, tmp_path / "hf")
    their_model = BartForConditionalGeneration.from_pretrained(tmp_path / "hf").eval()
    their_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    sources = [source for source, _ in table(600, below=100).rows[540:560]]
    inputs = their_tokenizer(sources, return_tensors="pt", padding=True)
    for beam in (1, 4):
        written = their_model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=12,
            num_beams=beam, do_sample=False,
        )  # fmt: skip
        theirs = their_tokenizer.batch_decode(written, skip_special_tokens=True)
        assert [found[0].text for found in answer(model, sources, beam=beam)] == theirs


def test_nothing_held_out(begin: Callable[..., Trainer]) -> None:
    events = list(begin(val=0.0).run())
    assert not [event for event in events if isinstance(event, Eval)]
    first = next(event.text for event in events if isinstance(event, Sample))
    assert first.startswith("source: 0\n")
    assert first.endswith("\ntarget: 영")


def test_another_table_is_held_out(begin: Callable[..., Trainer]) -> None:
    task = task_of(begin(val_text=from_rows(("source", "target"), [spelled(999), spelled(5)])))
    assert task.held_out == [spelled(999), spelled(5)]
    assert len(task.sources) == 60


def test_validation_reads_about_as_much_as_it_may(begin: Callable[..., Trainer]) -> None:
    """Answering costs more than reading, so of a small budget a part goes to it."""
    trainer = begin(pairs=table(600))
    task, model = task_of(trainer), model_of(trainer)
    assert task.validate(model, 10**6)["rows"] == 60
    some = task.validate(model, 200)
    assert 0 < some["rows"] < 20
    assert some["tokens"] <= 200
    assert task.validate(model, 1)["rows"] == 1


@pytest.mark.long
def test_weights_are_chosen_by_what_is_right_and_not_by_the_loss(
    begin: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = begin(steps=12, patience=1)
    task = task_of(trainer)
    real, told = task.validate, iter([(1.0, 0.2), (1.5, 0.4), (2.0, 0.3)])

    def validate(model: EncoderDecoder, max_tokens: int) -> dict[str, float]:
        loss, accuracy = next(told, (1.5, 0.4))  # the last figures, of the best parameters
        return {**real(model, max_tokens), "loss": loss, "token_accuracy": accuracy}

    monkeypatch.setattr(task, "validate", validate)
    events = list(trainer.run())
    assert [event.best for event in events if isinstance(event, Eval)] == [True, True, False]
    assert trainer.validation.best_step == 8
    assert RunFolder.open(trainer.folder.path).read_config()["metrics"]["step"] == 8


@pytest.mark.slow
def test_sentences_are_read_in_pieces_and_words_in_characters(begin: Callable[..., Trainer]) -> None:
    words = begin("words", batch_size=None, n_embd=None, n_layer=None)
    said = [
        (f"오늘 {word} 먹을까 말까", f"{word} 오늘 말고 내일 드세요") for word in ("밥을", "빵을", "떡을", "죽을") * 15
    ]
    sentences = begin("sentences", from_rows(("source", "target"), said), batch_size=None, n_embd=None, n_layer=None)
    asked = begin("asked", from_rows(("source", "target"), said), batch_size=16, tokenizer="char")
    runs = (words, sentences, asked)
    assert [run.model.tokenizer.kind for run in runs if run.model.tokenizer] == ["char", "bpe", "char"]
    assert [run.config.batch_size for run in runs] == [32, 64, 16]
    shapes = [(run.n_layer, run.n_decoder_layer, run.n_embd) for run in (model_of(run).config for run in runs)]
    assert shapes == [(2, 2, 128), (3, 3, 192), (1, 1, TINY["n_embd"])]
    sentences.close()
    assert Trainer.resume(sentences.folder.path, device="cpu").config.batch_size == 64


def test_dropout_is_low_however_often_the_pairs_are_seen(begin: Callable[..., Trainer]) -> None:
    assert begin(dropout=None, steps=1_000).model.config.dropout == 0.1
    assert begin("asked", dropout=0.3, steps=1_000).model.config.dropout == 0.3


def test_between_equals_the_loss_decides(begin: Callable[..., Trainer]) -> None:
    task = task_of(begin())
    assert task.to_minimise({"token_accuracy": 1.0, "loss": 0.1}) > task.to_minimise(
        {"token_accuracy": 1.0, "loss": 0.01}
    )
    assert task.to_minimise({"token_accuracy": 0.9, "loss": 0.1}) > task.to_minimise(
        {"token_accuracy": 0.901, "loss": 9.0}
    )


def test_a_published_bart_learns_to_begin_with_the_text(begin: Callable[..., Trainer], tmp_path: Path) -> None:
    """Many were made to write <s> first; with that left on, each answer after training would be wrong.

    What its decoder sees first is what it has always seen first, [EOS], and was once changed to [BOS].
    """
    model = model_of(begin("ours"))
    model.config = dataclasses.replace(model.config, forced_bos_id=1, decoder_start_id=2)
    to_hf(model, tmp_path / "published")
    following = model_of(begin("next", init=tmp_path / "published"))
    assert (following.config.forced_bos_id, following.config.decoder_start_id) == (None, 2)
    assert all(torch.equal(tensor, following.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_published_marian_goes_on_without_a_bos(begin: Callable[..., Trainer], tmp_path: Path) -> None:
    """None of them has one, their decoders beginning with [PAD], and all were refused for it."""
    model = model_of(begin("ours", family="original"))
    tokenizer = train_tokenizer("영일이삼사오육칠팔구 0123456789" * 2, special_tokens=["<pad>", "[EOS]"])
    ids = {"pad_id": 0, "bos_id": None, "eos_id": 1, "decoder_start_id": 0, "forced_eos_id": 1}
    model = build(dataclasses.replace(model.config, vocab_size=tokenizer.vocab_size, **ids))
    model.tokenizer = tokenizer
    to_hf(model, tmp_path / "published")
    config = model_of(begin("next", init=tmp_path / "published")).config
    assert {name: getattr(config, name) for name in ids} == ids


def test_the_columns_are_recorded_under_the_names_that_the_table_gave_them(begin: Callable[..., Trainer]) -> None:
    pairs = from_rows(("question", "answer"), [*table().rows, ("1", "")]).renamed(("source", "target"))
    data = begin(pairs=pairs, val_text=table(8)).folder.read_config()["data"]
    assert data["columns"] == ["question", "answer"]
    assert (data["rows"], data["train_rows"], data["held_out_rows"], data["val_rows"]) == (61, 60, 8, 8)
    assert set(data) >= Seq2Seq.keys


def test_another_table_is_refused(begin: Callable[..., Trainer], tmp_path: Path) -> None:
    """One of which only a row that is left out differs is another one, too."""
    begin(pairs=table(60, ("1", "")), val_text=table(8, ("1", "")))
    with pytest.raises(ResumeError, match="was started with another text"):
        Trainer.resume(tmp_path / "run", table(60, ("1", ""), ("2", "")), device="cpu")
    with pytest.raises(ResumeError, match="not started with this held-out text"):
        Trainer.resume(tmp_path / "run", val_text=table(7), device="cpu")


def test_a_table_at_a_path_is_read(tmp_path: Path) -> None:
    lines = "\n".join("\t".join(row) for row in (("source", "target"), *table().rows))
    (tmp_path / "pairs.tsv").write_text(lines + "\n", encoding="utf-8")
    trainer = Trainer.start(tmp_path / "run", tmp_path / "pairs.tsv", **TINY, device="cpu")
    assert trainer.folder.read_config()["data"]["rows"] == 60


# --- tables that lack something ---


def test_a_missing_column_is_named() -> None:
    with pytest.raises(TextError, match="no column 'target' in this table"):
        Seq2Seq.material(from_rows(("source", "answer"), [("1", "일")]), None, 0.1)


@pytest.mark.long
def test_rows_with_an_empty_cell_are_left_out_and_counted(begin: Callable[..., Trainer]) -> None:
    trainer = begin(pairs=table(60, ("7", ""), ("", "칠"), (" ", "칠"), spelled(7)), val=0.05)
    assert len(task_of(trainer).sources) == 60 + 4 - 3 - len(task_of(trainer).held_out)
    notices = [event.text for event in trainer.run() if isinstance(event, Notice)]
    assert "Rows left out, because they have no source or no target: 3." in notices


@pytest.mark.long
def test_long_rows_are_cut_and_counted(begin: Callable[..., Trainer]) -> None:
    """A source keeps its [EOS]. A target does not, or the model would learn to stop in the middle."""
    trainer = begin(pairs=from_rows(("source", "target"), [spelled(12345678901234), *table().rows]))
    task, config, tokenizer = task_of(trainer), model_of(trainer).config, trainer.model.tokenizer
    assert tokenizer is not None
    assert task.sources[0].tolist() == [*tokenizer.encode("12345678901").tolist(), config.eos_id]
    assert task.targets[0].tolist() == tokenizer.encode("일 이 삼 사 오 육 ").tolist()
    assert task.sources.lengths.max() <= 12
    notices = [event.text for event in trainer.run() if isinstance(event, Notice)]
    assert "Rows cut to context_length=12: 1. The longest needs context_length=28." in notices


def test_a_context_that_is_no_multiple_of_eight_fits_its_longest_rows(begin: Callable[..., Trainer]) -> None:
    """Batches are filled up to a multiple of eight, which used to be able to exceed the context."""
    trainer = begin(pairs=from_rows(("source", "target"), [spelled(12345678901234)] * 20), context_length=11)
    source, target = task_of(trainer).batch(0)
    assert source.shape[1] == target.shape[1] == 11
    assert math.isfinite(float(loss_of(trainer, source, target).detach()))


@pytest.mark.parametrize("rows", [[("1", ""), ("2", "")], [("", "일")]])
def test_a_table_with_no_rows_left(begin: Callable[..., Trainer], rows: list[tuple[str, str]], tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"none of the .* rows to train on has both a source and a target"):
        begin(pairs=from_rows(("source", "target"), rows))
    assert not (tmp_path / "run").exists()


def test_a_table_with_nothing_to_hold_out(begin: Callable[..., Trainer]) -> None:
    with pytest.raises(TextError, match=r"nothing is left to hold out: val=0\.1 of 3 rows"):
        begin(pairs=table(3))
    with pytest.raises(TextError, match="none of the held-out rows has both"):
        begin(val_text=from_rows(("source", "target"), [("1", "")]))


def test_a_tokenizer_without_special_tokens(begin: Callable[..., Trainer]) -> None:
    tokenizer = train_tokenizer("영일이삼사오육칠팔구 0123456789" * 2, special_tokens=["[PAD]"])
    with pytest.raises(TokenizerError, match=r"no \[BOS\] / <s>, \[EOS\] / </s>"):
        begin(tokenizer=tokenizer)


def test_a_tokenizer_with_other_names_for_them(begin: Callable[..., Trainer]) -> None:
    """As those of published BARTs have."""
    tokenizer = train_tokenizer("영일이삼사오육칠팔구 0123456789" * 2, special_tokens=["<s>", "<pad>", "[EOS]"])
    config = model_of(begin(tokenizer=tokenizer)).config
    assert (config.bos_id, config.pad_id, config.eos_id, config.decoder_start_id) == (0, 1, 2, 0)


@pytest.mark.parametrize("damage", ["", '["a", 2]\n', '["a", "b"\n'])
def test_damaged_held_out_pairs_are_reported(begin: Callable[..., Trainer], tmp_path: Path, damage: str) -> None:
    begin()
    path = RunFolder.open(tmp_path / "run").state / "val.jsonl"
    assert len(path.read_text(encoding="utf-8").splitlines()) == 6
    path.write_text(damage, encoding="utf-8")
    with pytest.raises(RunError, match=r"val\.jsonl"):
        Trainer.resume(tmp_path / "run", device="cpu")


def test_a_separator_that_python_takes_for_a_newline_stays_in_its_row(begin: Callable[..., Trainer]) -> None:
    """U+2028 inside a cell once would have made two lines of one held-out pair."""
    odd = ("1\u20282", "일\n\u0085이")
    assert task_of(begin(val_text=from_rows(("source", "target"), [odd]))).held_out == [odd]
