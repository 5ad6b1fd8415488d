"""What is held out was not trained on, a run knows what it was trained on, and a figure stands beside a baseline."""

from __future__ import annotations

import math
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, End, Jumok
from jumok import text as reader
from jumok.data.held_out import draw_rows
from jumok.errors import TextError
from jumok.evaluation.bigram import Bigram
from jumok.runs.events import Finish
from jumok.runs.folder import RunFolder
from jumok.runs.load import unseen_characters
from jumok.text import Table, Text, from_rows, from_string
from jumok.training.tasks import task_of_run
from jumok.training.trainer import Trainer

FLAGS = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()] + ["--device=cpu"]
WORDS = ("좋아요", "싫어요", "그래요", "아니요")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folder")]


def reviews(rows: int = 60, first: int = 0) -> list[tuple[str, str]]:
    """Different texts; two thirds of them have the label 1."""
    return [(f"영화 {number} {WORDS[number % 4]}", "01"[number % 3 > 0]) for number in range(first, first + rows)]


def numbers(rows: int = 60, first: int = 0) -> list[tuple[str, str]]:
    """Different sources; every third has the same target."""
    return [(str(number), "셋" if number % 3 == 0 else f"수 {number}") for number in range(first, first + rows)]


def write_tsv(path: Path, columns: str, rows: list[tuple[str, str]]) -> Path:
    path.write_text("\n".join([columns, *("\t".join(row) for row in rows)]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., Trainer]:
    """Begin a tiny run of any task in tmp_path/run."""

    def start(source: Text | Table, task: str = "lm", held_out: Text | Table | None = None, **more: Any) -> Trainer:
        settings = {**TINY, "context_length": 24, "task": task, **more}
        return Trainer.start(tmp_path / "run", source, **settings, val_text=held_out, device="cpu")

    return start


def drawn(task: str, rows: list[tuple[str, str]]) -> list[int]:
    """The places of the rows that a run holds out."""
    return draw_rows([text for text, _ in rows], [label if task == "classify" else "" for _, label in rows], 0.1)


def table(task: str, rows: list[tuple[str, str]]) -> Table:
    return from_rows(("text", "label") if task == "classify" else ("source", "target"), rows)


# --- what is held out -------------------------------------------------------------------------------------------------


def test_a_held_out_file_that_is_trained_on_is_refused(jumok: Jumok, tmp_path: Path, tales: str) -> None:
    """--val may have named the training file, whose figures then say how much was learned by heart."""
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_text(tales, encoding="utf-8")
    second.write_text(tales[::-1], encoding="utf-8")
    copy = tmp_path / "copy.txt"
    copy.write_bytes(first.read_bytes())
    for held_out in (first, copy):
        end = jumok("train", second, first, "--val", held_out, "--out=run", *FLAGS)
        assert end.code == 1
        assert (
            f"{held_out} cannot be held out: its content is that of {first}, on which the model is trained" in end.err
        )
        assert not Path("run").exists()
    end = jumok("train", "-", "--val=-", "--out=run", *FLAGS, stdin=tales)
    assert end.code == 2
    assert "standard input can be read only once" in end.err


@pytest.mark.parametrize("task", ["classify", "seq2seq"])
def test_a_held_out_table_that_is_trained_on_is_refused(task: str, begin: Callable[..., Trainer]) -> None:
    rows = reviews() if task == "classify" else numbers()
    with pytest.raises(TextError, match=r"cannot be held out: its content is that of <rows>.* such as val=0\.1"):
        begin(table(task, rows), task, table(task, rows))


def test_a_file_twice_is_not_held_out_from_itself(jumok: Jumok, tmp_path: Path, tales: str) -> None:
    (tmp_path / "a.txt").write_text(tales, encoding="utf-8")
    end = jumok("train", "a.txt", "./a.txt", "--out=run", *FLAGS)
    assert end.code == 0
    assert "./a.txt has the same content as a.txt and is not counted again." in end.err
    data = RunFolder.open(Path("run")).read_config()["data"]
    assert (data["sources"], data["chars"], data["repeated"]) == (["a.txt"], len(tales), 0.0)


@pytest.mark.parametrize(("task", "tokenizer"), [("lm", "bpe"), ("mlm", "char")])
def test_long_passages_in_both_parts_are_told(task: str, tokenizer: str, tmp_path: Path, tales: str) -> None:
    """A book with another edition of a chapter at its end holds out what it was trained on."""
    text = from_string(
        tales + "새로운 이야기가 시작된다. " * 3 + tales[1_000:1_400] + "끝이 아니라 또 다른 시작이었다. " * 2
    )
    settings = {**TINY, "task": task, "context_length": 24}
    trainer = Trainer.start(tmp_path / "run", text, **settings, tokenizer=tokenizer, device="cpu")
    share = trainer.folder.read_config()["data"]["repeated"]
    assert 0.25 < share < 0.7  # 400 of some 660 characters, less what lies across the ends of passages
    assert any(
        f"{share:.1%} of the held-out text is also in the training part, word for word" in notice
        for notice in trainer.notices
    )


def test_tales_that_resemble_each_other_are_no_copies(begin: Callable[..., Trainer], story_text: Text) -> None:
    trainer = begin(story_text)
    assert trainer.folder.read_config()["data"]["repeated"] < 0.01
    assert not any("word for word" in notice for notice in trainer.notices)


# --- what a run was trained on ----------------------------------------------------------------------------------------


def evaluated(jumok: Jumok, *arguments: object) -> tuple[End, dict[str, Any]]:
    end = jumok("evaluate", "run", *arguments, "--device=cpu", "--json")
    assert end.code == 0, end.err
    return end, end.json


@pytest.mark.slow
@pytest.mark.parametrize(("task", "tokenizer"), [("lm", "bpe"), ("mlm", "char")])
def test_a_text_that_was_trained_on_is_recognised(
    task: str, tokenizer: str, jumok: Jumok, tmp_path: Path, tales: str
) -> None:
    """`evaluate` on the training text looked like a triumph; the part that was held out is no such text, though."""
    (tmp_path / "a.txt").write_text(tales, encoding="utf-8")
    (tmp_path / "part.txt").write_text(tales[1_003:2_003], encoding="utf-8")
    (tmp_path / "held.txt").write_text(tales[round(0.9 * len(tales)) :], encoding="utf-8")
    assert jumok("train", "a.txt", "--out=run", "--task", task, f"--tokenizer={tokenizer}", *FLAGS).code == 0
    end, figures = evaluated(jumok, "a.txt")
    assert figures["seen_in_training"] == pytest.approx(
        0.9, abs=0.04
    )  # by tokens, of which bpe needs more for what it never saw
    assert f"{figures['seen_in_training']:.0%} of this data was training data of the run" in end.err
    _, figures = evaluated(jumok, "part.txt")
    assert figures["seen_in_training"] > 0.9
    end, figures = evaluated(jumok, "held.txt")
    assert figures["seen_in_training"] < 0.01
    assert "was training data of the run" not in end.err
    quiet = jumok("evaluate", "run", "a.txt", "--device=cpu", "--quiet")
    assert quiet.err == ""
    assert "seen_in_training" not in quiet.out


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classify", "seq2seq"])
def test_rows_that_were_trained_on_are_recognised(task: str, jumok: Jumok, tmp_path: Path) -> None:
    columns, make = ("text\tlabel", reviews) if task == "classify" else ("source\ttarget", numbers)
    write_tsv(tmp_path / "a.tsv", columns, make(60))
    learned = [row for place, row in enumerate(make(60)) if place not in drawn(task, make(60))]
    write_tsv(tmp_path / "other.tsv", columns, [*learned[:5], *make(15, first=100)])
    assert jumok("train", "a.tsv", "--out=run", "--task", task, *FLAGS).code == 0
    end, figures = evaluated(jumok, "a.tsv")
    assert figures["seen_in_training"] == 0.9
    assert "90% of this data was training data of the run" in end.err
    assert evaluated(jumok, "other.tsv")[1]["seen_in_training"] == 0.25


def test_without_its_state_a_run_knows_less(jumok: Jumok, tmp_path: Path, tales: str) -> None:
    """The README says that state/ may be deleted when a run is over."""
    (tmp_path / "a.txt").write_text(tales, encoding="utf-8")
    assert jumok("train", "a.txt", "--out=run", *FLAGS).code == 0
    shutil.rmtree("run/state")
    end, figures = evaluated(jumok, "a.txt")
    assert figures["seen_in_training"] is None
    assert "baseline_nats_per_char" not in figures
    assert "was training data of the run" not in end.err
    assert task_of_run(Path("run")) is None


# --- baselines --------------------------------------------------------------------------------------------------------


def final(trainer: Trainer) -> Finish:
    *_, last = trainer.run()
    assert isinstance(last, Finish)
    return last


@pytest.mark.parametrize("tokenizer", ["jamo", "bpe"])
def test_a_bigram_stands_beside_a_language_model(tokenizer: str, tmp_path: Path, tales: str) -> None:
    """It is one of characters whatever the tokens are, so that it is the same for all tokenizers."""
    cut = round(0.9 * len(tales))
    wanted = Bigram([tales[:cut]]).nats_per_char([tales[cut:]])
    trainer = Trainer.start(tmp_path / "run", from_string(tales), **TINY, tokenizer=tokenizer, device="cpu")
    finish = final(trainer)
    assert finish.figures["baseline_nats_per_char"] == pytest.approx(wanted, abs=1e-9)
    assert finish.headline.endswith(f"bigram {wanted:.3f})")
    task = task_of_run(tmp_path / "run")
    assert task is not None
    assert task.comparison(from_string(tales[cut:]))["baseline_nats_per_char"] == pytest.approx(wanted, abs=1e-9)


def test_frequencies_stand_beside_hidden_words(begin: Callable[..., Trainer], tales: str) -> None:
    trainer = begin(from_string(tales), "mlm")
    tokenizer, figures, cut = trainer.model.tokenizer, final(trainer).figures, round(0.9 * len(tales))
    assert tokenizer is not None
    learned, asked = Counter(tokenizer.encode(tales[:cut]).tolist()), tokenizer.encode(tales[cut:]).tolist()
    assert figures["baseline_accuracy"] == pytest.approx(asked.count(learned.most_common(1)[0][0]) / len(asked))
    kinds = tokenizer.vocab_size - len(tokenizer.special_tokens)
    nats = -sum(math.log((learned[token] + 1) / (learned.total() + kinds)) for token in asked) / len(asked)
    assert figures["baseline_nats_per_hidden_token"] == pytest.approx(nats)
    assert figures["baseline_nats_per_hidden_token"] < math.log(kinds)


def test_the_most_frequent_class_stands_beside_an_accuracy(begin: Callable[..., Trainer], jumok: Jumok) -> None:
    rows = reviews()
    finish = final(begin(table("classify", rows), "classify"))
    share = sum(label == "1" for _, label in rows[54:]) / 6
    assert finish.figures["baseline_accuracy"] == pytest.approx(share)
    assert f"(always '1': accuracy {share:.3f})" in finish.headline
    write_tsv(Path("new.tsv"), "text\tlabel", [("영화", "1"), ("영화 둘", "0"), ("영화 셋", "0"), ("영화 넷", "0")])
    figures = evaluated(jumok, "new.tsv")[1]
    assert figures["baseline_accuracy"] == 0.25
    assert list(figures).index("baseline_accuracy") == list(figures).index("accuracy") + 1
    assert "baseline_accuracy" in jumok("evaluate", "run", "new.tsv", "--device=cpu").out


def test_the_most_frequent_answer_stands_beside_exact_answers(begin: Callable[..., Trainer], jumok: Jumok) -> None:
    finish = final(begin(table("seq2seq", numbers()), "seq2seq"))
    assert finish.figures["baseline_exact_match"] == pytest.approx(1 / 3)
    assert finish.headline.endswith("(always the most frequent answer: exact 33.3%)")
    write_tsv(Path("new.tsv"), "source\ttarget", [("100", "셋"), ("101", "넷")])
    assert evaluated(jumok, "new.tsv")[1]["baseline_exact_match"] == 0.5


def test_a_run_from_before_there_were_baselines_goes_on(begin: Callable[..., Trainer], story_text: Text) -> None:
    folder = begin(story_text).folder
    config = folder.read_config()
    config["data"] = {
        name: config["data"][name] for name in config["data"].keys() - {"repeated", "baseline_nats_per_char"}
    }
    folder.write_config(config)
    finish = final(Trainer.resume(folder.path, device="cpu"))
    assert "nats_per_char" in finish.figures
    assert "baseline_nats_per_char" not in finish.figures


# --- inputs that are unlike the training data -------------------------------------------------------------------------


def test_characters_that_no_source_had_are_named(begin: Callable[..., Trainer], jumok: Jumok) -> None:
    """A model of plain numbers answered ₩1,234 with the certainty that it has about 1,234."""
    final(begin(table("seq2seq", numbers()), "seq2seq"))
    end = jumok("generate", "run", "--prompt", "₩12\u00a03 셋", "--device=cpu")
    assert end.code == 0
    assert (
        "These characters do not occur in the training text: ₩, U+00A0, U+0020, 셋." in end.err
    )  # 셋 is in targets alone
    end = jumok("generate", "run", "--prompt=₩12", "--json", "--quiet", "--device=cpu")
    assert (end.err, end.json["unseen_characters"]) == ("", ["₩"])
    end = jumok("generate", "run", "--prompt=12", "--json", "--device=cpu")
    assert (end.err, end.json["unseen_characters"]) == ("", [])


def test_characters_that_no_review_had_are_named(begin: Callable[..., Trainer], jumok: Jumok) -> None:
    final(begin(table("classify", reviews()), "classify", tokenizer_options=None))
    end = jumok("predict", "run", "영화 좋아요", "映画 good", "--device=cpu")
    assert "1 of 2 texts have characters that do not occur in the training text: 映, 画, g, o, d." in end.err
    given = jumok("predict", "run", "영화 좋아요", "good 영화", "--json", "--device=cpu").json["predictions"]
    assert [one["unseen_characters"] for one in given] == [[], ["g", "o", "d"]]


def test_characters_are_compared_composed_and_the_rare_ones_are_known(begin: Callable[..., Trainer]) -> None:
    """The tokenizer spells what came once in bytes; it did come, though."""
    trainer = begin(table("classify", [*reviews(), ("뷁", "1"), *reviews(9, first=60)]), "classify")
    assert unseen_characters(trainer.folder.path, ["뷁 \u1112\u1161\u11ab", "영\u110b\u1167\u11bc"]) == [["한"], []]


# --- the next command -------------------------------------------------------------------------------------------------


def suggested(end: End) -> list[str]:
    """The words of the last command that a person is told to try."""
    assert end.code == 0, end.err
    return shlex.split(end.err.strip().splitlines()[-1])


@pytest.mark.parametrize("task", ["lm", "mlm", "classify", "seq2seq"])
def test_the_next_command_speaks_of_what_was_learned(task: str, jumok: Jumok, tmp_path: Path, tales: str) -> None:
    """After a chat, --prompt "1234" was suggested, to which it had no answer."""
    chat = [(f"오늘 {word}는 '{number}'개?", f"{word}!") for number in range(30) for word in WORDS]
    columns, rows = ("text\tlabel", reviews()) if task == "classify" else ("source\ttarget", chat)
    write_tsv(tmp_path / "a.tsv", columns, rows)
    (tmp_path / "a.txt").write_text(tales, encoding="utf-8")
    source = "a.tsv" if task in ("classify", "seq2seq") else "a.txt"
    words = suggested(jumok("train", source, "--out=run", "--task", task, *FLAGS))
    assert words[:3] == ["jumok", "predict" if task == "classify" else "generate", "run"]
    prompt = words[-1]
    if task in ("classify", "seq2seq"):
        assert prompt == rows[drawn(task, rows)[0]][0]
    else:
        before, _, after = prompt.partition("[MASK]")
        held_out_text = reader.read([tmp_path / "a.txt"]).read()[round(0.9 * len(tales)) :]
        assert before in held_out_text
        assert after in held_out_text
        assert len(prompt.split()) >= 2
        assert ("[MASK]" in prompt) == (task == "mlm")
    assert jumok(*words[1:], "--device=cpu").code == 0


def test_rows_that_fit_no_command_line_are_passed_over(begin: Callable[..., Trainer]) -> None:
    held_out = [
        ("-영화", "1"),
        ("영화" * 30, "0"),
        ("영화\n좋아요", "1"),
        ("영화 \x1b[2J", "0"),
        ("좋아요", "1"),
    ]
    trainer = begin(table("classify", reviews(54)), "classify", table("classify", [*held_out, ("싫어요", "0")]))
    assert trainer.task.example() == "좋아요"
