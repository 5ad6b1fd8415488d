"""Classes of texts: the pooling, the classifiers beside their stock classes, and the task from table to figures.

Bad tables first: one class, empty cells, labels that training never saw, texts longer than the context, tabs and quotes
in cells, other columns; then parameters that come from another model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import jumok
from conftest import loss_of
from jumok.config import BERTConfig, GPTConfig
from jumok.config.features import TRANSFORMERS, kind_name, obstacle
from jumok.errors import ConfigError, JumokError, TextError
from jumok.inference.classify import predict
from jumok.inference.torch_rows import class_logits
from jumok.interop.huggingface import to_hf
from jumok.models import Model, build
from jumok.models.bert import BERT
from jumok.models.gpt import GPT
from jumok.models.pooling import Pooling
from jumok.models.special_ids import SPECIAL_TOKENS, Framing
from jumok.runs.events import Eval, Finish, Notice, Sample, Step
from jumok.text import Table, from_rows, from_string, read_table
from jumok.tokenizers import train_tokenizer
from jumok.training.tasks.classify import Classification, next_token_losses, thinned
from jumok.training.tasks.labelled import in_order
from jumok.training.trainer import Trainer
from jumok.view.run_pictures import draw_confusion

pytestmark = pytest.mark.slow

GOOD, BAD = ("재미있어요", "최고예요", "감동이에요"), ("지루해요", "별로예요", "실망이에요")
LABELS = ("긍정", "부정")
TEXT = "이 영화는 재미있어요.\n저 영화는 지루해요.\n" * 3
SETTINGS: dict[str, Any] = {
    "task": "classify", "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 24, "batch_size": 4, "steps": 8,
    "eval_every": 4, "sample_tokens": 12, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.1,
    "attention": "chunked",
}  # fmt: skip
Start = Callable[..., Trainer]


def reviews(count: int = 120, seed: int = 0) -> Table:
    """Texts of which one word tells the label."""
    drawn = random.Random(seed)
    labels = [drawn.choice(LABELS) for _ in range(count)]
    words = [drawn.choice(GOOD if label == "긍정" else BAD) for label in labels]
    return from_rows(("text", "label"), [(f"이 영화 {word}", label) for word, label in zip(words, labels, strict=True)])


def table(*rows: tuple[str, str]) -> Table:
    return from_rows(("text", "label"), rows)


@pytest.fixture
def start_run(tmp_path: Path) -> Start:
    """Begin a tiny run; settings go before those of SETTINGS."""

    def begin(data: Any = None, out: str = "run", *, kind: Any = None, **changes: Any) -> Trainer:
        given = {name: changes.pop(name) for name in ("val_text", "init", "tokenizer") if name in changes}
        settings = {**SETTINGS, **changes}
        if "init" in given:
            settings = {name: value for name, value in settings.items() if name in ("dropout", *changes)} | {
                name: SETTINGS[name] for name in ("task", "steps", "eval_every", "precision", "compile", "batch_size")
            }
        source = reviews() if data is None else data
        return Trainer.start(tmp_path / out, source, **settings, model=kind and kind_name(kind), device="cpu", **given)

    return begin


def classifier(kind: str, pooling: str, **changes: Any) -> Any:
    """A small random float64 model of ours with labels and a tokenizer, in eval mode."""
    tokenizer = train_tokenizer(TEXT, "char", special_tokens=SPECIAL_TOKENS)
    sizes: dict[str, Any] = {"vocab_size": tokenizer.vocab_size, "n_layer": 2, "n_head": 4, "n_embd": 16}
    common = {**sizes, "context_length": 24, "labels": LABELS, "pad_id": 0, "pooling": pooling, **changes}
    config = BERTConfig(**common, head="classify") if kind == "bert" else GPTConfig(**common, family=kind)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = build(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


def batch() -> tuple[Tensor, Tensor]:
    """Ids of three texts of different lengths, filled up with 0, and the lengths."""
    lengths = torch.tensor([9, 5, 1])
    ids = torch.randint(4, 30, (3, 9), generator=torch.Generator().manual_seed(1))
    return ids * (torch.arange(9) < lengths[:, None]), lengths


# --- pooling ----------------------------------------------------------------------------------------------------------


def test_pooling_takes_what_it_says():
    hidden = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    wanted = {
        "first": hidden[:, 0],
        "last": torch.stack((hidden[0, 3], hidden[1, 1])),
        "mean": torch.stack((hidden[0].mean(0), hidden[1, :2].mean(0))),
    }
    for kind, pooled in wanted.items():
        torch.testing.assert_close(Pooling(kind)(hidden, mask), pooled)  # type: ignore[arg-type]
    torch.testing.assert_close(Pooling("last")(hidden), hidden[:, -1])


@pytest.mark.parametrize(
    ("kind", "pooling"), [("bert", "first"), ("modern", "last"), ("classic", "mean"), ("bert", "mean")]
)
@torch.no_grad()
def test_filling_changes_no_logit(kind: str, pooling: str):
    """A text alone and the same text in a batch with longer ones."""
    model = classifier(kind, pooling)
    ids, lengths = batch()
    together = class_logits(model, ids, lengths)
    assert together.shape == (3, 2)
    for row, length in enumerate(lengths.tolist()):
        alone = class_logits(model, ids[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-9)


def test_a_gpt_without_labels_says_so():
    model = build(GPTConfig(vocab_size=9, n_layer=1, n_head=1, n_embd=8))
    assert model.classifier is None
    assert not any("classifier" in name or "pooling" in name for name in model.state_dict())
    with pytest.raises(JumokError, match="no labels"):
        model.classify(torch.zeros(1, 2, 8))


def test_labels_are_different_names():
    with pytest.raises(ConfigError, match="names a class twice"):
        GPTConfig(vocab_size=9, labels=("a", "a"))
    with pytest.raises(ConfigError, match=r"labels\[0\]=1 is of type int"):
        GPTConfig(vocab_size=9, labels=(1, 2))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pooling='max'.*choose from last, mean"):
        GPTConfig(vocab_size=9, pooling="max")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"pooling='first'.*choose from last, mean"):
        GPTConfig(vocab_size=9, pooling="first")  # type: ignore[arg-type]
    assert GPTConfig(vocab_size=9, labels=["a", "b"]).labels == ("a", "b")  # type: ignore[arg-type]  # as JSON has it


# --- stock classes ----------------------------------------------------------------------------------------------------


def test_what_cannot_leave_says_so_at_the_start(start_run: Start):
    """The mean was refused by `jumok convert` at the very end of the work."""
    found = [notice for notice in start_run(pooling="mean").notices if "jumok convert" in notice]
    assert found == [obstacle(GPTConfig(vocab_size=9, labels=LABELS, pooling="mean"), TRANSFORMERS)]


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_the_default_leaves(start_run: Start, kind: str, tmp_path: Path):
    """The default was the mean, which no stock class has; that was learned after the training."""
    trainer = start_run(kind={"gpt": GPTConfig, "bert": BERTConfig}[kind], steps=2)
    assert not any("jumok convert" in notice for notice in trainer.notices)
    list(trainer.run())
    model = jumok.load(tmp_path / "run")
    to_hf(model, tmp_path / "out")
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["이 영화 재미있어요", "저 영화 지루해요"]
    with torch.no_grad():
        theirs = [stock(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0] for text in texts]
    for one, shares in zip(predict(model, texts), theirs, strict=True):
        torch.testing.assert_close(torch.tensor([one.probabilities[label] for label in LABELS]), shares)


# --- the table --------------------------------------------------------------------------------------------------------


def test_labels_are_in_the_order_of_their_numbers():
    assert in_order(["10", "9", "-1"]) == ("-1", "9", "10")
    assert in_order(["10", "9", "나", "가"]) == ("10", "9", "가", "나")


def test_one_class_is_an_error(start_run: Start):
    with pytest.raises(TextError, match=r"have the label '긍정'.*two classes"):
        start_run(table(*[("좋아요", "긍정")] * 20))


def test_rows_in_the_order_of_their_labels_hold_out_all_labels(start_run: Start):
    """The last tenth of a sorted table had one label, and figures that said nothing about other rows."""
    sorted_rows = sorted(reviews(200).rows, key=lambda row: row[1])
    task = start_run(from_rows(("text", "label"), sorted_rows)).task
    assert isinstance(task, Classification)
    shares = [np.bincount(part.truth) / len(part.truth) for part in (task.train, task.val)]
    assert np.abs(shares[0] - shares[1]).max() < 0.1
    three = [("좋아요", "가"), ("그래요", "나")] * 9 + [("싫어요", "다")] * 2
    assert len(start_run(table(*three), "three").task.labels) == 3  # type: ignore[attr-defined]


def test_a_resumed_run_and_another_seed_hold_out_the_same_rows(start_run: Start):
    first, second = start_run(reviews(60)), start_run(reviews(60), "second", seed=5)
    parts = [trainer.task.val for trainer in (first, second)]  # type: ignore[attr-defined]
    first.close()
    parts.append(Trainer.resume(first.folder.path).task.val)  # type: ignore[attr-defined]
    assert len(parts[0].truth) == 6
    for part in parts[1:]:
        assert part.truth.tolist() == parts[0].truth.tolist()
        assert [part.rows[row].tolist() for row in range(6)] == [parts[0].rows[row].tolist() for row in range(6)]


def test_labels_of_one_row_each_are_probably_another_column(start_run: Start):
    """More rows, or a larger part to hold out, were the advice for a column of ids."""
    with pytest.raises(TextError, match=r"each of the 30 rows has a label of its own.* in another column"):
        start_run(table(*[(f"좋아요 {number}", str(number)) for number in range(30)]))


def test_a_label_that_only_the_held_out_file_has_is_an_error(start_run: Start, tmp_path: Path):
    with pytest.raises(TextError, match=r"1 held-out rows .*'중립'; training has '긍정', '부정'\. Correct"):
        start_run(val_text=table(("좋아요", "긍정"), ("그래요", "중립")))
    assert not (tmp_path / "run").exists()


def test_empty_cells_are_left_out_and_counted(start_run: Start):
    rows = [("", "긍정"), ("  ", "부정"), ("좋아요", ""), *reviews(40).rows]
    trainer = start_run(from_rows(("text", "label"), rows))
    assert trainer.folder.read_config()["data"]["empty"] == 3
    assert trainer.folder.read_config()["model"]["labels"] == list(LABELS)
    assert any("3 rows have an empty text or label" in notice for notice in trainer.notices)
    with pytest.raises(TextError, match="no row of the training part"):
        start_run(table(*[("", "긍정")] * 5), "other")


def test_long_texts_lose_their_end_and_are_counted(start_run: Start):
    long = [("좋아요 " * 30, "긍정"), ("싫어요 " * 30, "부정")]
    trainer = start_run(from_rows(("text", "label"), [*long, *reviews(40).rows]), kind=BERTConfig)
    data = trainer.folder.read_config()["data"]
    assert data["cut"] == 2
    assert any("2 of 42 texts are longer than the context of 24 tokens" in notice for notice in trainer.notices)
    task = trainer.task
    assert isinstance(task, Classification)
    special = trainer.model.tokenizer.special_tokens  # type: ignore[union-attr]
    first = max((part.rows[row] for part in (task.train, task.val) for row in range(len(part.rows))), key=len)
    assert len(first) == 24
    assert (first[0], first[-1]) == (special["[CLS]"], special["[SEP]"])


def test_quotes_and_tabs_stay_what_they_are(start_run: Start, tmp_path: Path):
    path = tmp_path / "reviews.csv"
    cells = ['"정말\t""좋아요"""', '"a, b"']
    lines = [f"{cells[i % 2]},{i % 2}" for i in range(20)]
    path.write_text("document,label\n" + "\n".join(lines), encoding="utf-8")
    trainer = start_run(read_table(path, ["document", "label"]))
    task = trainer.task
    assert isinstance(task, Classification)
    assert trainer.model.config.labels == ("0", "1")  # type: ignore[union-attr]
    texts = {task.tokenizer.decode(task.framing.inside(task.train.rows[row])) for row in range(18)}
    assert texts == {'정말\t"좋아요"', "a, b"}


def test_other_material_is_an_error(start_run: Start):
    with pytest.raises(TextError, match=r"a table with the columns text, label .* a Text was given"):
        start_run(from_string(TEXT))
    with pytest.raises(TextError, match=r"two columns.* and this table has 3: a, b, c"):
        start_run(from_rows(("a", "b", "c"), [("1", "2", "3")] * 4))
    with pytest.raises(TextError, match="nothing is left to hold out"):
        start_run(reviews(4))


def test_a_context_without_room_is_an_error(start_run: Start):
    with pytest.raises(ConfigError, match="context_length=2 has no room"):
        start_run(kind=BERTConfig, context_length=2)


# --- the run ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("kind", [GPTConfig, BERTConfig])
def test_a_run_from_table_to_figures(kind: Any, start_run: Start, tmp_path: Path):
    trainer = start_run(kind=kind, labels=None)
    events = list(trainer.run())
    evals = [event for event in events if isinstance(event, Eval)]
    assert [event.step for event in evals] == [4, 8]
    assert {"loss", "accuracy", "f1_macro", "rows", "tokens"} == set(evals[0].figures)
    finish = events[-1]
    assert isinstance(finish, Finish)
    assert {"f1[긍정]", "f1[부정]"} <= set(finish.figures)
    accuracy, f1, loss = (finish.figures[name] for name in ("accuracy", "f1_macro", "loss"))
    said = f"accuracy {accuracy:.3f}, F1 {f1:.3f}, loss {loss:.3f}"
    assert finish.headline == f"{said} (always '긍정': accuracy {finish.figures['baseline_accuracy']:.3f})"
    sample = next(event for event in events if isinstance(event, Sample))
    assert sample.text.startswith("이 영화 ")
    assert "(label: " in sample.text
    assert (tmp_path / "run" / "confusion.png").stat().st_size > 5_000
    model = jumok.load(tmp_path / "run")
    assert model.config.labels == LABELS
    assert {one.label for one in predict(model, ["재미있어요", "지루해요"])} <= set(LABELS)


@pytest.mark.long
def test_it_learns_what_one_word_tells(start_run: Start, tmp_path: Path):
    *_, finish = start_run(pooling="mean", steps=60, eval_every=30, lm_weight=0.2, dropout=0.0).run()
    assert isinstance(finish, Finish)
    assert finish.figures["accuracy"] == 1.0
    found = predict(jumok.load(tmp_path / "run"), ["이 영화 최고예요", "이 영화 실망이에요"])
    assert [one.label for one in found] == ["긍정", "부정"]


def test_the_loss_is_that_of_classes_and_of_next_tokens(start_run: Start):
    trainer = start_run(lm_weight=0.5, dropout=0.0)
    task, model = trainer.task, trainer.model
    assert isinstance(model, GPT)
    ids, lengths, truth = task.batch(0)
    logits = class_logits(model, ids, lengths)
    by_hand = []
    for row, length in enumerate(lengths.tolist()):
        said = model(ids[row : row + 1, :length])[0]
        by_hand.append(F.cross_entropy(said[:-1], ids[row, 1:length], reduction="none"))
    wanted = F.cross_entropy(logits, truth) + 0.5 * torch.cat(by_hand).mean()
    torch.testing.assert_close(loss_of(trainer, ids, lengths, truth), wanted)
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    torch.testing.assert_close(next_token_losses(model, model.hidden(ids), ids, mask), torch.cat(by_hand))


def test_the_loss_of_a_step_is_what_validations_measure(start_run: Start, tmp_path: Path):
    """It had the loss of the next token in it, 6 to 9 nats, beside a held-out loss of 0.5 without it."""
    trainer = start_run(lm_weight=0.5, dropout=0.0, token_dropout=0.0, steps=4)
    ids, lengths, truth = trainer.task.batch(0)
    with torch.no_grad():
        classes, tokens = trainer.task.loss_sums(trainer.model, (ids, lengths, truth))
    first = next(event for event in trainer.run() if isinstance(event, Step))
    assert first.loss == pytest.approx(float(classes) / len(truth), rel=1e-5)
    assert first.figures["lm_loss"] == pytest.approx(float(tokens) / 0.5 / int((lengths - 1).sum()), rel=1e-5)
    assert first.loss < 1.5 < first.figures["lm_loss"]
    lines = [event for event in trainer.folder.logs.metrics() if event["event"] == "step"]
    assert lines[0]["lm_loss"] == first.figures["lm_loss"]
    alone = next(event for event in start_run(lm_weight=0.0, out="alone").run() if isinstance(event, Step))
    assert not alone.figures


def test_class_weights_make_classes_equal(start_run: Start):
    rows = [("좋아요", "긍정")] * 3 + [("싫어요", "부정")]
    trainer = start_run(table(*rows * 10), class_weights=True, dropout=0.0, lm_weight=0.0)
    task, model = trainer.task, trainer.model
    assert isinstance(task, Classification)
    assert isinstance(model, GPT)
    counts = np.bincount(task.train.truth)
    assert task.class_weights is not None
    torch.testing.assert_close(task.class_weights * torch.from_numpy(counts), torch.full((2,), counts.sum() / 2))
    ids, lengths, truth = task.batch(0)
    losses = F.cross_entropy(class_logits(model, ids, lengths), truth, reduction="none")
    torch.testing.assert_close(loss_of(trainer, ids, lengths, truth), (losses * task.class_weights[truth]).mean())


# --- beginning with another model -------------------------------------------------------------------------------------


def saved(tmp_path: Path, model: Model) -> Path:
    jumok.save(model, tmp_path / "other")
    return tmp_path / "other"


def language_model() -> GPT:
    tokenizer = train_tokenizer(TEXT, "char")
    torch.manual_seed(1)
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=24))
    model.tokenizer = tokenizer
    return model


def test_a_gpt_lends_its_body(start_run: Start, tmp_path: Path):
    other = language_model()
    trainer = start_run(init=saved(tmp_path, other), pooling="mean")
    model = trainer.model
    assert isinstance(model, GPT)
    assert model.config.labels == LABELS
    assert model.config.pooling == "mean"
    for name, tensor in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    newline = trainer.model.tokenizer.encode("\n")  # type: ignore[union-attr]
    assert trainer.task.batch(0)[0][0, trainer.task.batch(0)[1][0] - 1] == newline[0]  # no [SEP]: a line ends
    assert isinstance(list(trainer.run())[-1], Finish)


def test_a_bert_of_hidden_words_lends_its_body(start_run: Start, tmp_path: Path):
    tokenizer = train_tokenizer(TEXT, "char", special_tokens=SPECIAL_TOKENS)
    other = BERT(BERTConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, context_length=24))
    other.tokenizer = tokenizer
    model = start_run(init=saved(tmp_path, other)).model
    assert isinstance(model, BERT)
    assert model.config.head == "classify"
    assert torch.equal(model.token_embedding.weight, other.token_embedding.weight)


def test_a_classifier_of_other_labels_lends_its_body_alone(start_run: Start, tmp_path: Path):
    """As many labels, and others: their rows used to be taken over under the new names."""
    other = classifier("modern", "last", labels=("0", "1")).float()
    model = start_run(init=saved(tmp_path, other)).model
    assert isinstance(model, GPT)
    assert model.config.labels == LABELS
    assert torch.equal(model.token_embedding.weight, other.token_embedding.weight)
    assert model.classifier is not None
    assert not torch.equal(model.classifier.weight, other.classifier.weight)
    same = start_run(init=saved(tmp_path, classifier("modern", "last").float()), out="same").model
    assert torch.equal(same.classifier.weight, load_file(tmp_path / "other" / "model.safetensors")["classifier.weight"])  # type: ignore[union-attr]


def test_a_language_model_from_a_classifier_is_none(start_run: Start, tmp_path: Path):
    """It kept the labels, so that every verb took it for a classifier afterwards."""
    jumok.save(start_run(out="classifier").model, tmp_path / "saved")
    settings = {name: SETTINGS[name] for name in ("steps", "precision", "compile")}
    text = from_string(TEXT * 20)
    trainer = Trainer.start(tmp_path / "writer", text, **settings, init=tmp_path / "saved", device="cpu")
    assert isinstance(trainer.model, GPT)
    assert trainer.model.config.labels == ()
    assert not any(name.startswith("classifier.") for name in trainer.model.state_dict())


@pytest.mark.slow
def test_the_time_for_the_last_figures_is_that_of_what_they_read(start_run: Start):
    """Four times the held-out part was set aside, or ten thousand rows were read in the time of a few."""
    task = start_run().task
    assert task.final_reads(1) == task.validation_tokens  # all of few rows are read, however little may be
    many = start_run(reviews(60), out="many", val_text=reviews(12_000)).task
    assert many.final_reads(1) == pytest.approx(10_000 / 12_000 * many.validation_tokens, abs=1)
    assert many.final_reads(10**9) == many.validation_tokens


def test_another_kind_of_model_is_an_error(start_run: Start, tmp_path: Path):
    with pytest.raises(
        ConfigError, match="kind 'encoder_decoder' cannot be trained for this task; choose from gpt, bert"
    ):
        start_run(init=saved(tmp_path, language_model()), kind=jumok.EncoderDecoderConfig)
    with pytest.raises(ConfigError, match="other holds a model of the kind 'gpt', and one of the kind 'bert' cannot"):
        start_run(init=tmp_path / "other", kind=BERTConfig)
    with pytest.raises(ConfigError, match="n_embd=32 was given"):
        start_run(init=tmp_path / "other", n_embd=32)


# --- the frame --------------------------------------------------------------------------------------------------------


def test_config_json_tells_of_the_rows(start_run: Start):
    trainer = start_run(reviews(50))
    config = json.loads((trainer.folder.path / "config.json").read_text(encoding="utf-8"))
    data = config["data"]
    assert (data["rows"], data["columns"], data["train_rows"] + data["val_rows"]) == (50, ["text", "label"], 50)
    assert 0 < data["val_rows"] <= 5
    assert sum(data["label_counts"]) == data["train_rows"]
    assert set(data) >= Classification.keys


def test_a_held_out_part_of_one_class_is_told(start_run: Start):
    trainer = start_run(val_text=table(*[("좋아요", "긍정")] * 3))
    notices = [event.text for event in trainer.run() if isinstance(event, Notice)]
    assert any("All held-out rows have the same label" in text for text in notices)


# --- the picture ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 90])
def test_a_confusion_is_drawn_for_few_and_for_many_classes(classes: int, tmp_path: Path):
    """No warning of a missing glyph, and no picture larger than a screen."""
    counts = np.eye(classes, dtype=int) * 40 + 1
    draw_confusion(counts.tolist(), [f"갈래 {i}번에 드는 글" for i in range(classes)], tmp_path / "one.png")
    content = (tmp_path / "one.png").read_bytes()
    width, height = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    assert content.startswith(b"\x89PNG")
    assert height < width < 1500


def test_token_dropout_leaves_out_a_share_and_keeps_order_and_frame() -> None:
    framing = Framing(before=(1,), after=(2,), pad=0, room=100)
    lengths = torch.tensor([102, 7])
    ids = torch.zeros(2, 104, dtype=torch.int64)
    ids[0, :102] = torch.cat((torch.tensor([1]), torch.arange(10, 110), torch.tensor([2])))
    ids[1, :7] = torch.tensor([1, 10, 11, 12, 13, 14, 2])
    thin, left = thinned(ids, lengths, 0.3, framing, np.random.default_rng(0))
    assert thin.shape == ids.shape
    assert 55 < int(left[0]) - 2 < 85
    for row, whole in zip(thin, ids, strict=True):
        length = int((row != 0).sum())
        kept = row[:length].tolist()
        assert kept[0] == 1
        assert kept[-1] == 2
        assert kept == [*sorted(set(kept) - {2}), 2]
        assert set(kept) <= set(whole.tolist())
    assert left.tolist() == (thin != 0).sum(dim=1).tolist()
