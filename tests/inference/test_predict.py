"""Predictions: labels and probabilities for texts, figures against a table, and `jumok predict` as a person uses it."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import TINY, End, Jumok
from jumok.cli.console.output import print_json
from jumok.config import BERTConfig, GPTConfig
from jumok.errors import JumokError, TextError
from jumok.evaluation.classification import evaluate_classes, judge
from jumok.inference.classify import predict
from jumok.inference.torch_rows import class_logits
from jumok.models import build
from jumok.models.gpt import GPT
from jumok.models.special_ids import SPECIAL_TOKENS
from jumok.runs.load import save
from jumok.text import from_rows
from jumok.tokenizers import train_tokenizer

LABELS = ("나쁨", "보통", "좋음")
TEXTS = ["정말 재미있게 봤어요", "그냥 그래요", "시간이 아까워요 " * 4, "봤어요"]


def make(labels: tuple[str, ...] = LABELS) -> GPT:
    """A small random model with a tokenizer, in training mode, so that a forgotten eval mode shows."""
    tokenizer = train_tokenizer("\n".join(TEXTS) * 3, "char", special_tokens=SPECIAL_TOKENS)
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 24}
    model = build(GPTConfig(vocab_size=tokenizer.vocab_size, **sizes, labels=labels, dropout=0.5, pad_id=0))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def model() -> GPT:
    return make()


# --- predict ----------------------------------------------------------------------------------------------------------


def test_predictions_come_in_the_order_of_the_texts(model: GPT):
    """Texts are read together with others of like lengths; what each gets is what it gets alone."""
    found = predict(model, TEXTS)
    assert model.training
    for text, one in zip(TEXTS, found, strict=True):
        (alone,) = predict(model, [text])
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-6)
        assert list(one.probabilities) == list(LABELS)
        assert sum(one.probabilities.values()) == pytest.approx(1)
        assert one.label == max(one.probabilities, key=one.probabilities.__getitem__)
    assert [one.cut for one in found] == [False, False, True, False]


def test_a_prediction_is_the_softmax_of_the_logits(model: GPT):
    assert model.tokenizer is not None
    end = model.tokenizer.special_tokens["[SEP]"]
    ids = torch.tensor([[*model.tokenizer.encode("봤어요").tolist(), end]])
    model.eval()
    wanted = class_logits(model, ids, torch.tensor([ids.shape[1]])).softmax(1)[0]
    model.train()
    assert list(predict(model, ["봤어요"])[0].probabilities.values()) == pytest.approx(wanted.tolist(), abs=1e-6)


def test_nothing_has_no_class(model: GPT):
    with pytest.raises(TextError, match="text 2 of 3 is empty"):
        predict(model, ["좋아요", " ", "싫어요"])
    for missing in (math.nan, None, np.float64("nan")):
        with pytest.raises(TextError, match="text 2 of 2 is empty"):
            predict(model, ["좋아요", missing])
    with pytest.raises(TextError, match="text 1 of 1 is empty"):
        predict(model, [math.nan])
    with pytest.raises(TextError, match="texts, row 2: column 'text' holds inf"):
        predict(model, ["좋아요", math.inf])
    with pytest.raises(TextError, match="one string was given"):
        predict(model, "좋아요")
    assert predict(model, []) == []
    assert predict(model, [1.0]) == predict(model, ["1"])


def test_a_model_without_labels_is_no_classifier():
    with pytest.raises(JumokError, match="this GPT is not a classifier"):
        predict(make(()), ["좋아요"])


# --- figures ----------------------------------------------------------------------------------------------------------


def test_figures_by_hand():
    """Six texts of three classes: 2 right of 3, 1 of 2, 0 of 1."""
    said, truth = [0, 0, 1, 1, 0, 1], [0, 0, 0, 1, 1, 2]
    shares = torch.full((6, 3), 0.2)
    shares[range(6), said] = 0.6
    found = judge(shares.log(), np.array(truth), LABELS, tokens=60)
    assert found.accuracy == pytest.approx(3 / 6)
    assert found.confusion == [[2, 1, 0], [1, 1, 0], [0, 1, 0]]
    f1 = {"나쁨": 2 * 2 / (3 + 3), "보통": 2 * 1 / (3 + 2), "좋음": 0.0}
    assert found.f1 == pytest.approx(f1)
    assert found.f1_macro == pytest.approx(sum(f1.values()) / 3)
    assert found.loss == pytest.approx(-(3 * np.log(0.6) + 3 * np.log(0.2)) / 6)


def test_a_class_that_was_not_met_counts_for_nothing():
    found = judge(torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]).log(), np.array([0, 1]), LABELS, tokens=2)
    assert found.f1 == {"나쁨": 1.0, "보통": 1.0}
    assert found.f1_macro == 1.0


def test_weights_change_the_loss_alone():
    shares, truth = torch.tensor([[0.5, 0.5], [0.9, 0.1]]), np.array([0, 1])
    plain = judge(shares.log(), truth, ("a", "b"), tokens=2)
    weighed = judge(shares.log(), truth, ("a", "b"), tokens=2, weights=torch.tensor([1.0, 3.0]).double())
    assert weighed.loss == pytest.approx(-(np.log(0.5) + 3 * np.log(0.1)) / 4)
    assert (weighed.accuracy, weighed.f1) == (plain.accuracy, plain.f1)


def test_a_table_is_held_against_the_answers(model: GPT):
    answers = [one.label for one in predict(model, TEXTS)]
    wrong = next(label for label in LABELS if label != answers[0])
    rows = [(text, label) for text, label in zip(TEXTS, [wrong, *answers[1:]], strict=True)]
    found = evaluate_classes(model, from_rows(("document", "label"), [*rows, ("", "좋음"), ("좋아요", "")]))
    assert (found.rows, found.skipped, found.cut) == (4, 2, 1)
    assert found.accuracy == pytest.approx(3 / 4)
    assert sum(map(sum, found.confusion)) == 4


def test_labels_that_the_model_does_not_know_are_an_error(model: GPT):
    table = from_rows(("text", "label"), [("좋아요", "좋음"), ("싫어요", "최악"), ("싫어요", "최악")])
    with pytest.raises(TextError, match=r"2 rows have labels .* not know: '최악'\. It knows '나쁨', '보통', '좋음'"):
        evaluate_classes(model, table)
    with pytest.raises(TextError, match="no row of this table has both"):
        evaluate_classes(model, from_rows(("text", "label"), [("", "좋음")]))
    with pytest.raises(TextError, match=r"two columns.* has 1: text"):
        evaluate_classes(model, from_rows(("text",), [("좋아요",)]))


def damage(model: GPT, text: str) -> GPT:
    """The model with NaN for the characters of a text."""
    assert model.tokenizer is not None
    with torch.no_grad():
        model.token_embedding.weight[torch.from_numpy(model.tokenizer.encode(text).astype(np.int64))] = math.nan
    return model


def test_a_diverged_model_is_reported():
    """It printed a label with a probability of nan, and had an accuracy: that of the first label."""
    model = damage(make(), "".join(TEXTS))
    with pytest.raises(JumokError, match="not finite"):
        predict(model, TEXTS)
    with pytest.raises(JumokError, match="not finite"):
        evaluate_classes(model, from_rows(("text", "label"), [(text, "나쁨") for text in TEXTS]))


def test_a_text_that_the_model_cannot_read_fails_alone():
    model, fine = damage(make(), "그"), make()
    found = predict(model, TEXTS)
    assert (found[1].label, found[1].probabilities) == (None, {})
    rest = [0, 2, 3]
    assert [found[place] for place in rest] == [predict(fine, TEXTS)[place] for place in rest]
    with pytest.raises(JumokError, match="not finite"):  # figures without it would not be those of the table
        evaluate_classes(model, from_rows(("text", "label"), [(text, "나쁨") for text in TEXTS]))


# --- the command line -------------------------------------------------------------------------------------------------


Command = Jumok


@pytest.fixture
def command(jumok: Jumok, own_folder: Path, model: GPT) -> Command:
    """`jumok predict run ...` with the small model in the folder run; or another verb, or another folder."""
    save(model, own_folder / "run")

    def run(*arguments: str, stdin: str = "", folder: str = "run", verb: str = "predict") -> End:
        return jumok(verb, folder, *arguments, "--device=cpu", stdin=stdin)

    return run


def test_texts_on_the_command_line(command: Command, model: GPT):
    end = command("그냥 그래요", TEXTS[2])
    assert end.code == 0
    lines = [line.split("\t") for line in end.out.splitlines()]
    wanted = predict(model, ["그냥 그래요", TEXTS[2]])
    assert [line[0] for line in lines] == [one.label for one in wanted]
    assert [line[2] for line in lines] == ["그냥 그래요", TEXTS[2].strip()]
    assert float(lines[0][1]) == pytest.approx(wanted[0].probabilities[wanted[0].label], abs=6e-4)
    assert "1 of 2 texts are longer than the context of 24 tokens" in end.err
    answers = command("그냥 그래요", TEXTS[2], "--json").json["predictions"]
    assert [one["cut"] for one in answers] == [False, True]


def test_standard_input_a_text_a_line(command: Command):
    for arguments in ((), ("-",)):
        end = command(*arguments, stdin="그냥 그래요\n\n봤어요\n")
        assert [line.split("\t")[2] for line in end.out.splitlines()] == ["그냥 그래요", "", "봤어요"]


LINES = ["그냥 그래요", "", "봤어요", " \t ", "", "그냥 그래요"]


@pytest.mark.parametrize(
    ("newline", "end", "codec"), [("\n", "", "utf-8"), ("\r\n", "\n", "cp949"), ("\r", "\n\n", "utf-8")]
)
def test_one_answer_for_each_line(command: Command, newline: str, end: str, codec: str):
    """Blank lines were dropped, so that the answers no longer stood beside their questions."""
    content = newline.join(LINES) + end.replace("\n", newline)
    wanted = ["그냥 그래요", "", "봤어요", "", "", "그냥 그래요", *([""] if end == "\n\n" else [])]
    Path("lines.txt").write_bytes(content.encode(codec))
    for arguments, stdin in (("lines.txt", ""), ("-", content)):
        found = command(arguments, stdin=stdin)
        assert found.code == 0, found.err
        assert "texts are empty" in found.err
        rows = [line.split("\t") for line in found.out.split("\n")[:-1]]
        assert [row[2] for row in rows] == wanted
        assert [row[0] in LABELS for row in rows] == list(map(bool, wanted))
        predictions = command(arguments, "--json", stdin=stdin).json["predictions"]
        assert [one["text"] for one in predictions] == wanted
        assert [one["label"] for one in predictions] == [row[0] or None for row in rows]
        assert predictions[1]["probabilities"] is None


def test_json_under_any_name(command: Command):
    rows = [{"document": text, "label": 1.0} for text in ("그냥 그래요", None, "봤어요", float("nan"), "그냥 그래요")]
    for name in ("klue.json", "klue.txt", "klue"):
        Path(name).write_text(json.dumps(rows), encoding="utf-8")
        for arguments, stdin in ((name, ""), ("-", json.dumps(rows))):
            found = command(arguments, "--text=document", "--json", stdin=stdin).json["predictions"]
            assert [one["text"] for one in found] == ["그냥 그래요", "", "봤어요", "", "그냥 그래요"]
            end = command(arguments, stdin=stdin)
            assert (end.code, "no column 'text'" in end.err) == (1, True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("new.tsv", "id\tdocument\n1\t그냥 그래요\n2\t봤어요\n"),
        ("new.csv", 'document,id\n"그냥 그래요",1\n봤어요,2\n'),
        ("new.jsonl", '{"document": "그냥 그래요"}\n{"document": "봤어요"}\n'),
    ],
)
def test_files(name: str, content: str, command: Command, tmp_path: Path):
    (tmp_path / name).write_text(content, encoding="utf-8")
    end = command(name, "--text=document", "--json")
    found = json.loads(end.out.splitlines()[-1])["predictions"]
    assert [one["text"] for one in found] == ["그냥 그래요", "봤어요"]
    assert set(found[0]["probabilities"]) == set(LABELS)
    assert found[0]["label"] in LABELS
    missing = command(name)
    assert missing.code == 1
    assert "no column 'text'" in missing.err


def test_a_table_on_standard_input(command: Command):
    """Where a column is named, a header is no text to sort; where none is, each line is one."""
    table = "id,document\n1,그냥 그래요\n2,봤어요\n"
    for arguments in (["-", "--text=document"], ["--text=document"]):
        found = command(*arguments, "--json", stdin=table).json["predictions"]
        assert [one["text"] for one in found] == ["그냥 그래요", "봤어요"]
    assert len(command("-", "--json", stdin=table).json["predictions"]) == 3


def test_what_cannot_be_read_is_said(command: Command, tmp_path: Path):
    (tmp_path / "new.tsv").write_text("text\tlabel\n좋아요\t1\n\t0\n", encoding="utf-8")
    for arguments, message in (
        (("gone.tsv",), "gone.tsv does not exist"),
        (("",), "all of the given texts (1) are empty"),
    ):
        end = command(*arguments)
        assert end.code in (1, 2), arguments
        assert message in end.err


def test_numbers_that_are_not_finite_are_no_answer(command: Command, own_folder: Path):
    """The label came with `nan` and exit code 0, and --json was no JSON."""
    save(damage(make(), "그"), own_folder / "part")
    end = command("그냥 그래요", "봤어요", folder="part")
    assert end.code == 0
    assert end.out.startswith("\t\t그냥 그래요\n")
    assert "nan" not in end.out
    assert "1 of 2 texts have no class" in end.err
    first, second = command("그냥 그래요", "봤어요", "--json", folder="part").json["predictions"]
    assert (first["label"], first["probabilities"]) == (None, None)
    assert second["label"] in LABELS
    save(damage(make(), "".join(TEXTS)), own_folder / "all")
    end = command("그냥 그래요", "--json", folder="all")
    assert end.code == 1
    assert "not finite" in end.json["error"]
    Path("test.tsv").write_text("text\tlabel\n봤어요\t나쁨\n", encoding="utf-8")
    end = command("test.tsv", "--json", folder="all", verb="evaluate")
    assert end.code == 1
    assert "not finite" in end.json["error"]


def test_json_has_null_for_what_is_not_finite(capsys: pytest.CaptureFixture[str]):
    print_json({"a": math.nan, "b": [1.0, -math.inf], "c": {"d": (math.inf, "NaN", None, 3)}})
    assert capsys.readouterr().out == '{"a": null, "b": [1.0, null], "c": {"d": [null, "NaN", null, 3]}}\n'


def test_a_text_file_is_read_line_by_line(command: Command, tmp_path: Path):
    """Its name was taken for the text."""
    for name in ("notes.txt", "notes.log", "notes"):
        (tmp_path / name).write_text("그냥 그래요\n\n봤어요\n", encoding="utf-8")
        end = command(name, "gone.txt")
        assert [line.split("\t")[2] for line in end.out.splitlines()] == ["그냥 그래요", "", "봤어요", "gone.txt"]


def test_a_run_that_is_no_classifier_is_said(command: Command, tmp_path: Path):
    save(make(()), tmp_path / "writer")
    end = command("좋아요", "--json", folder="writer")
    assert end.code == 1
    assert "is not a classifier" in end.err
    assert "is not a classifier" in json.loads(end.out)["error"]


def test_options_of_other_models_are_refused(command: Command, tmp_path: Path):
    """They were dropped without a word; and a model of masked tokens had a whole text read to it before it said no."""
    tokenizer = train_tokenizer(TEXTS, special_tokens=SPECIAL_TOKENS)
    bert = build(BERTConfig(vocab_size=tokenizer.vocab_size, context_length=16, n_layer=1, n_head=1, n_embd=8))
    bert.tokenizer = tokenizer
    save(bert, tmp_path / "hidden")
    headless = build(dataclasses.replace(bert.config, head="pooler"))
    headless.tokenizer = tokenizer
    save(headless, tmp_path / "headless")
    Path("text.txt").write_text("글 하나", encoding="utf-8")
    for verb, folder, arguments, message in (
        ("generate", "hidden", ("--prompt=[MASK]", "--seed=1"), "--seed does not apply to the model in hidden"),
        ("generate", "hidden", ("--prompt=[MASK]", "--samples=2"), "--samples does not apply to the model in hidden"),
        (
            "evaluate",
            "run",
            ("gone.tsv", "--beam=2"),
            "--beam does not apply to the model in run; its options are --text, --label,",
        ),
        (
            "evaluate",
            "hidden",
            ("gone.txt", "--beam=2"),
            "--beam does not apply to the model in hidden; its options are --encoding",
        ),
        ("evaluate", "headless", ("text.txt",), 'masked tokens are predicted by a BERT with head="mlm"'),
    ):
        end = command(*arguments, folder=folder, verb=verb)
        assert end.code in (1, 2)
        assert message in end.err
    assert command("--prompt=[MASK]", "--top=1", folder="hidden", verb="generate").code == 0


@pytest.mark.slow
def test_from_a_table_to_an_answer(command: Command, tmp_path: Path):
    """What `jumok train --task classify` leaves behind, `jumok predict` takes; quotes stay quotes, tabs stay tabs."""
    rows = ['"정말\t""좋아요"""\t1', '"아, 지루해요"\t0'] * 20
    (tmp_path / "new.tsv").write_text("document\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    train = ["--task=classify", "--out=trained", *flags, "--steps=20", "--pooling=mean", "--json"]
    missing = command(*train, folder="new.tsv", verb="train")
    assert missing.code == 1
    assert "no column 'text'" in missing.err
    assert "the columns are 'document', 'label'" in missing.err
    end = command(*train, "--text=document", folder="new.tsv", verb="train")
    assert end.code == 0, end.err
    assert "held out accuracy" in end.err
    figures = json.loads(end.out.splitlines()[-1])
    assert {"accuracy", "f1_macro", "f1[0]", "f1[1]"} <= set(figures)
    table = command("new.tsv", "--text=document", folder="trained").out
    answers = list(csv.reader(io.StringIO(table), "excel-tab"))
    assert [text for _, _, text in answers[:2]] == ['정말 "좋아요"', "아, 지루해요"]
    assert {label for label, _, _ in answers} <= {"0", "1"}
