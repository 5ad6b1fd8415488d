"""The command line as a person uses it: what it prints where, how it ends, and what it leaves behind.

Bad inputs first: texts that are missing, empty, too short, binary, in no encoding; folders that are files, foreign,
taken, damaged; settings that are unknown, misspelt, out of range, of the wrong type, at odds with each other.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pkgutil
import re
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import TINY, Jumok
from jumok import cli
from jumok import processors as waiting
from jumok.cli import material
from jumok.cli.console.output import print_json
from jumok.config import TASK_CONFIGS, EncoderDecoderConfig, GPTConfig, TrainConfig
from jumok.messages import shell
from jumok.runs.events import Event
from jumok.runs.folder import RunFolder, stop_file
from jumok.training.subscribers.progress import TrainingView

FLAGS = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()] + ["--device=cpu"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folder")]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    """A finished run to generate with; copy it to damage it."""
    from jumok import text as reader
    from jumok.training.trainer import Trainer

    folder = tmp_path_factory.mktemp("model") / "run"
    list(Trainer.start(folder, reader.from_string(tales), **TINY, device="cpu").run())
    return folder


@pytest.fixture
def text(tmp_path: Path, tales: str) -> Path:
    path = tmp_path / "tales.txt"
    path.write_text(tales, encoding="utf-8")
    return path


# --- texts that cannot be trained on ---

KOREAN = "바람이 불고 비가 왔다. 아이는 우산을 쓰고 길을 걸었다. "

BAD_TEXTS: dict[str, tuple[bytes | None, str]] = {
    "short.txt": ("짧은 글.".encode(), r"to train on, and context_length=16 needs at least 17; give more text\.$"),
    "klue.json": (b'[{"title": "\\ud55c\\uad6d"}]', r"no column 'text'; the columns are 'title'; .*--column NAME"),
    "page.txt": (b"<!DOCTYPE html><body>" + KOREAN.encode() * 50 + b"</body></html>", r"page\.txt is an HTML page"),
    "tales.tx": (None, r"tales\.tx does not exist.*did you mean.*tales\.txt"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_text_that_cannot_be_trained_on(jumok: Jumok, text: Path, name: str) -> None:
    content, message = BAD_TEXTS[name]
    if content is not None:
        Path(name).write_bytes(content)
    end = jumok("train", name, "--out", "run", *FLAGS)
    assert end.code == 1
    assert re.search(message, end.err), end.err
    assert end.out == ""
    assert not Path("run").exists()


def test_an_error_is_json_too(jumok: Jumok) -> None:
    Path("empty.txt").touch()
    end = jumok("train", "empty.txt", "--out", "run", "--json")
    assert end.code == 1
    assert "empty.txt is empty" in end.json["error"]
    end = jumok("train", "--stepz", "5", "--json")
    assert end.code == 2
    assert "--stepz" in end.json["error"]


# --- folders that are in the way ---


def test_out_is_a_file_or_a_foreign_folder_or_a_run_already(
    jumok: Jumok, text: Path, model: Path, tmp_path: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in (*model.rglob("*"), *tmp_path.rglob("*"))}
    for place, said in (
        (text, "is a file; give a folder for the run"),
        (tmp_path, "holds other files and no jumok run"),
        (model, "holds a run already. Continue it with `jumok train --resume --out"),
    ):
        end = jumok("train", "-", "--out", place, *FLAGS, stdin=b"")  # before the text is read
        assert (end.code, said in end.err) == (1, True), end.err
    assert {path: path.stat().st_mtime_ns for path in (*model.rglob("*"), *tmp_path.rglob("*"))} == before


@pytest.mark.parametrize("arguments", [["generate"], ["evaluate", "tales.txt"]], ids=["generate", "evaluate"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_run(jumok: Jumok, text: Path, model: Path, arguments: list[str], name: str) -> None:
    shutil.copytree(model, "run")
    os.truncate(Path("run", name), 100)
    end = jumok(arguments[0], "run", *arguments[1:])
    assert end.code == 1
    assert name in end.err


@pytest.mark.parametrize("arguments", ["generate MODEL 가", "serve MODEL", "train --resume --out MODEL"])
def test_a_name_of_the_hub(jumok: Jumok, arguments: str) -> None:
    """`jumok generate skt/kogpt2-base-v2` said only that there is no such run folder."""
    end = jumok(*arguments.replace("MODEL", "skt/kogpt2-base-v2").split())
    assert end.code == 1
    assert "write hf:skt/kogpt2-base-v2" in end.err


def test_no_run_at_all(jumok: Jumok, text: Path, model: Path) -> None:
    shutil.copytree(model, "run")
    end = jumok("generate", "runn")
    assert (end.code, end.err) == (1, "jumok: there is no run folder runn. Did you mean 'run'?\n")
    Path("empty").mkdir()
    assert "empty is no run folder; it has none of" in jumok("generate", "empty").err
    assert jumok("generate", ".").err.endswith(" There is: run.\n")  # a folder of runs
    end = jumok("train", "tales.txt", "--steps", "1", "--out", "hf:kim/tales")
    assert (end.code, "hf:kim/tales names a model of huggingface.co" in end.err) == (1, True)  # it was trained there
    assert not Path("hf:kim").exists()
    assert jumok("generate", "tales.txt").code == 1


# --- wrong use ---

WRONG_USE: list[tuple[list[str], str]] = [
    (["--n-embd", "250", "--n-head", "6"], "n_embd=250 is not divisible by n_head=6; use n_embd=246 or 252"),
    (["--steps", "-5"], "steps=-5 is out of range: it must be between 1 and 1,000,000,000"),
    (["--steps", "10", "--minutes", "5"], "steps=10 and minutes=5 were both given"),
    (["--steps", "ten"], "'ten' is not a valid integer"),
    (["--size", "mikro"], "size='mikro' is not known; choose from nano, micro, mini, small, gpt2, nanokogpt. Did you"),
    (["--device", "cdua"], "device='cdua' is not known; choose from auto, cpu, cuda, mps. Did you mean 'cuda'?"),
    (["--device", "cpu:9"], "device='cpu:9' is not available here"),
    (["--lerning-rate", "0.1"], "--learning-rate"),
    (["--seed", "-1"], "seed=-1 is out of range"),
    (["--resume"], "--resume needs --out RUN"),
    (["--task", "mlm", "--text", "document"], "--text applies to --task classify, but the task is mlm; leave it out."),
    (["--mask-rate", "0.2"], "--mask-rate applies to --task mlm, but the task is lm; leave it out."),
    (["--n-decoder-layer", "2"], "n_decoder_layer applies to --task seq2seq, but the task is lm; leave it out."),
    (["--task", "mlm", "--rope-theta", "9"], "rope_theta applies to --task lm and classify"),
    (["--tokenizer", ""], "tokenizer='' is not known; choose from char, jamo, bpe."),
    (["--init", ""], "Invalid value for '--init': it is empty; name a file or a folder"),
    (["--schedule", "invsqrt", "--warmup", "0"], "schedule='invsqrt' with warmup=0"),
    (["--config", "nowhere.toml"], "cannot read --config nowhere.toml: No such file or directory"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_USE, ids=lambda value: str(value)[:40])
def test_wrong_use_of_train(jumok: Jumok, text: Path, arguments: list[str], message: str) -> None:
    """Exit code 2, the value and the remedy on stderr, and no folder left behind."""
    out = [] if "--resume" in arguments else ["--out", "run"]
    end = jumok("train", text, *out, *arguments)
    assert end.code == 2, end.err
    assert message in end.err.replace("\n", " ")
    assert [path.name for path in Path().iterdir()] == ["tales.txt"]


@pytest.mark.parametrize(
    "arguments",
    ["train tales.txt --out", "train tales.txt --config", "generate", "evaluate", "predict", "view", "chat", "share",
     "doctor", "serve", "serve --runs", "convert", "convert model"],
)  # fmt: skip
def test_an_empty_name_is_not_the_current_folder(jumok: Jumok, text: Path, arguments: str) -> None:
    """`--out "$RUN"` with a variable that is not set wrote the run into the current folder."""
    end = jumok(*arguments.split(), "")
    assert end.code == 2
    assert "it is empty; name a file or a folder" in end.err.replace("\n", " ")
    assert [path.name for path in Path().iterdir()] == ["tales.txt"]


@pytest.mark.parametrize("arguments", ["train TEXT", "train tales.txt --val TEXT", "evaluate MODEL TEXT"])
def test_an_empty_name_of_a_text(jumok: Jumok, text: Path, model: Path, arguments: str) -> None:
    """It was said that "." does not exist."""
    words = ["" if word == "TEXT" else str(model) if word == "MODEL" else word for word in arguments.split()]
    end = jumok(*words, *(["--out", "run"] if words[0] == "train" else []))
    assert end.code == 1
    assert "the name of a text is empty; name a file or a folder, or - for standard input" in end.err


@pytest.mark.parametrize(
    ("task", "options"), [("classify", "--text and --label"), ("seq2seq", "--source and --target")]
)
def test_a_missing_column_of_a_task_names_its_options(jumok: Jumok, task: str, options: str) -> None:
    """The message listed the columns of the table, and not how to choose among them."""
    Path("pairs.tsv").write_text("질문\t답\n가\t나\n", encoding="utf-8")
    end = jumok("train", "pairs.tsv", "--task", task, "--out", "run")
    assert end.code == 1
    assert "the columns are '질문', '답'; the first line must name the columns" in end.err.replace("\n", " ")
    assert f"; choose them with {options}" in end.err.replace("\n", " ")


def test_a_tokenizer_that_is_not_there(jumok: Jumok, text: Path) -> None:
    end = jumok("train", text, "--out", "run", "--tokenizer", "missing.json")
    assert (end.code, Path("run").exists()) == (1, False)
    assert "cannot read the tokenizer missing.json: No such file" in end.err
    end = jumok("train", text, "--out", "run", "--tokenizer", text)
    assert (end.code, Path("run").exists()) == (1, False)
    assert "not a complete tokenizer.json" in end.err


WRONG_TOML: list[tuple[str, str]] = [
    ("n_layers = 3", "unknown setting 'n_layers'. Did you mean 'n_layer'?"),
    ("n_layer = ", "is not TOML"),
    ("n_layer = 'three'", "n_layer='three' is of type str; it must be of type int."),
    ("steps = 5\nminutes = 1.0", "both given"),
    ("model = 'brt'", "model='brt' is not known; choose from gpt, bert, encoder_decoder. Did you mean 'bert'?"),
    ("column = true", "column=True is of type bool"),
    ("out = 'elsewhere'", "unknown setting 'out'"),
    pytest.param("steps = " + "[" * 10_000, "is not TOML", id="deep"),  # RecursionError of tomllib
    pytest.param("steps = 9\nminutes = " + "9" * 400, "is out of range", id="minutes"),  # OverflowError
    pytest.param("steps = " + "9" * 5_000, "is not TOML", id="digits"),  # a plain ValueError of int
]


@pytest.mark.parametrize(("content", "message"), WRONG_TOML)
def test_a_wrong_run_toml(jumok: Jumok, text: Path, content: str, message: str) -> None:
    """A number where a name should be came as an AttributeError."""
    Path("run.toml").write_text(content, encoding="utf-8")
    end = jumok("train", text, "--out", "run", "--config", "run.toml")
    assert end.code == 2, end.err
    assert message in end.err
    assert not Path("run").exists()


def test_a_run_toml(jumok: Jumok, text: Path) -> None:
    """Named like the flags, with - or _; a flag goes before it, and a budget on the command line replaces its own."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in TINY.items() if key != "steps"]
    Path("run.toml").write_text("\n".join([*lines, "minutes = 5", "val = 0.2", "n-layer = 2"][1:]), encoding="utf-8")
    end = jumok("train", text, "--out", "run", "--config", "run.toml", "--steps", 3, "--n-embd", 8, "--device", "cpu")
    assert end.code == 0, end.err
    recorded = RunFolder(Path("run")).read_config()
    train, shape = recorded["train"], recorded["model"]
    assert (train["steps"], train["minutes"], train["val"]) == (3, None, 0.2)
    assert (shape["n_layer"], shape["n_embd"], shape["n_head"]) == (2, 8, 2)


WRONG_GENERATE: list[tuple[list[str], str]] = [
    (["--temperature", "-1"], "temperature=-1.0 is out of range"),
    (["--top-p", "2"], "top_p=2.0 is out of range"),
    (["--tokens", "0"], "tokens=0 is out of range"),
    (["--seed", "-1"], "seed=-1 is out of range"),
    (["--stop", ""], "stop holds an empty string"),
    (["--promt", "글"], "--prompt"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_GENERATE, ids=lambda value: str(value)[:40])
def test_wrong_use_of_generate(jumok: Jumok, model: Path, arguments: list[str], message: str) -> None:
    end = jumok("generate", model, *arguments, "--json")
    assert end.code == 2
    assert message in end.err
    assert message in end.json["error"]


def test_an_unknown_verb(jumok: Jumok) -> None:
    end = jumok("trian", "text.txt")
    assert end.code == 2
    assert "No such command 'trian'" in end.err
    assert "train" in end.err.replace("trian", "")


# --- train ---


def test_train_json(jumok: Jumok, text: Path) -> None:
    """The last line of stdout is the result, and the only one; all else is on stderr."""
    end = jumok("train", text, "--out", "run", "--json", *FLAGS)
    assert end.code == 0, end.err
    assert end.out.count("\n") == 1
    assert end.json["run"] == "run"
    assert (end.json["steps"], end.json["reason"]) == (8, "done")
    assert end.json["seconds"] > 0
    for name in ("nats_per_char", "bits_per_char", "bits_per_byte", "loss_per_token", "perplexity", "floor"):
        assert end.json[name] > 0
    assert end.json["nats_per_char"] > end.json["floor"]
    assert "tales.txt" in end.err  # what was read
    assert "before training" in end.err
    assert "held out" in end.err
    assert "jumok generate run" in end.err


def test_quiet_is_quiet(jumok: Jumok, text: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert jumok("train", text, "--out", "run", "--quiet", *FLAGS) == (0, "", "")
    assert jumok("train", "--resume", "--out", "run", "--quiet") == (0, "", "")
    assert jumok("generate", model, "--tokens", 5, "--quiet").err == ""
    monkeypatch.setenv("JUMOK_NATIVE", "0")
    monkeypatch.setattr("jumok.inference.generate.BUILT_FROM", 5)
    assert "JUMOK_NATIVE=0 is set" in jumok("generate", model, "--tokens", 5).err
    assert jumok("generate", model, "--tokens", 5, "--quiet").err == ""
    end = jumok("evaluate", model, text, "--quiet", "--json")
    assert end.err == ""
    assert end.json["chars"] > 0


def test_without_a_held_out_part(jumok: Jumok, text: Path) -> None:
    end = jumok("train", text, "--out", "run", "--json", "--val", 0, *FLAGS)
    assert end.code == 0, end.err
    assert set(end.json) == {"run", "steps", "seconds", "process_seconds", "reason", "alarms", "verdict"}
    assert jumok("generate", "run", "--tokens", 3).code == 0


def test_a_file_to_hold_out(jumok: Jumok, text: Path) -> None:
    Path("other.txt").write_text(KOREAN * 10, encoding="utf-8")
    end = jumok("train", text, "--val", "other.txt", "--out", "run", "--json", *FLAGS)
    assert end.code == 0, end.err
    assert RunFolder(Path("run")).read_config()["data"]["val_chars"] == len(KOREAN) * 10
    end = jumok("train", text, "--val", "othre.txt", "--out", "run2", *FLAGS)
    assert end.code == 1
    assert "other.txt" in end.err


def test_standard_input(jumok: Jumok, tales: str) -> None:
    end = jumok("train", "-", "--out", "run", *FLAGS, stdin=tales.encode("cp949", "ignore"))
    assert end.code == 0, end.err
    assert "CP949" in end.err.upper()
    assert jumok("train", "-", "--out", "run2", *FLAGS, stdin=b"").code == 1
    assert not Path("run2").exists()


def test_a_table_from_a_pipe(jumok: Jumok, tales: str) -> None:
    """What a named column holds, not the numbers beside it; the text is the one of the same table in a file."""
    rows = [line for line in tales.split("\n") if line]
    table = "id,tale\n" + "".join(f'{number},"{row}"\n' for number, row in enumerate(rows))
    Path("tales.csv").write_text(table, encoding="utf-8")
    for texts, out in (("-", "piped"), ("tales.csv", "named")):
        end = jumok("train", texts, "--column", "tale", "--out", out, *FLAGS, stdin=table)
        assert end.code == 0, end.err
    piped, named = (RunFolder(Path(out)).read_config()["data"] for out in ("piped", "named"))
    assert piped["sha256"] == named["sha256"]
    assert jumok("train", "-", "--column", "story", "--out", "other", *FLAGS, stdin=table).code == 1


def test_the_built_in_corpus_is_the_default(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material, "STORIES_CHARS", 5_000)
    end = jumok("train", "--json", *FLAGS)
    assert end.code == 0, end.err
    assert end.json["run"] == "runs/stories"
    assert 0 < end.json["floor"] < end.json["nats_per_char"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jamo", "bpe"])
def test_tokenizers_by_name_and_by_file(jumok: Jumok, text: Path, kind: str) -> None:
    end = jumok("train", text, "--tokenizer", kind, "--out", "run", *FLAGS)
    assert end.code == 0, end.err
    assert RunFolder(Path("run")).read_tokenizer().kind == kind
    end = jumok("train", text, "--tokenizer", "run/tokenizer.json", "--out", "again", *FLAGS)
    assert end.code == 0, end.err
    assert Path("again/state/train.npy").read_bytes() == Path("run/state/train.npy").read_bytes()


def test_every_setting_has_a_flag(jumok: Jumok) -> None:
    help_text = jumok("train", "--help-all").out
    classes = (GPTConfig, EncoderDecoderConfig, TrainConfig, *TASK_CONFIGS.values())
    names = {field.name for one in classes for field in dataclasses.fields(one) if field.metadata["option"]}
    names |= {column for name in ("classify", "seq2seq") for column in TASK_CONFIGS[name].columns}
    assert [name for name in names if f"--{name.replace('_', '-')}" not in help_text] == []


def test_the_help_of_train_fits_one_screen(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred options hid the five that a first run needs."""
    monkeypatch.setenv("COLUMNS", "100")
    brief, whole = jumok("train", "--help").out, jumok("train", "--help-all").out
    assert len(brief.splitlines()) <= 40
    for option in ("--task", "--tokenizer", "--minutes", "--steps", "--size", "--out", "--resume", "--help-all"):
        assert f"  {option}" in brief
    assert "--beta1" not in brief
    assert "--beta1" in whole
    assert (
        whole.index("Task mlm:") < whole.index("--mask-rate") < whole.index("Task classify:") < whole.index("--label")
    )


# --- resume ---


def test_resume_of_a_finished_run_and_of_none(jumok: Jumok, text: Path) -> None:
    first = jumok("train", text, "--out", "run", "--json", *FLAGS)
    again = jumok("train", "--resume", "--out", "run", "--json")
    assert again.code == 0, again.err
    told = [{k: v for k, v in end.json.items() if not k.endswith("seconds")} for end in (first, again)]
    assert told[0] == told[1]
    assert "run is finished; there is nothing to continue" in again.err
    end = jumok("train", "--resume", "--out", "nowhere")
    assert end.code == 1
    assert "there is no run folder nowhere" in end.err
    Path("empty").mkdir()
    assert jumok("train", "--resume", "--out", "empty").code == 1


def test_resume_with_something_else(jumok: Jumok, text: Path) -> None:
    assert jumok("train", text, "--out", "run", *FLAGS).code == 0
    Path("other.txt").write_text(KOREAN * 50, encoding="utf-8")
    end = jumok("train", "other.txt", "--resume", "--out", "run")
    assert end.code == 1
    assert "other.txt" in end.err
    assert "tales.txt" in end.err
    end = jumok("train", "--resume", "--out", "run", "--n-layer", 3)
    assert end.code == 1
    assert "n_layer=1, not 3" in end.err
    end = jumok("train", "--resume", "--out", "run", "--tokenizer", "bpe")
    assert end.code == 2
    assert "with its own model and tokenizer" in end.err
    assert jumok("train", text, "--resume", "--out", "run", *FLAGS).code == 0


def test_a_stop_file_ends_a_training(jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of `jumok serve` stops a training by a file, since Windows has no signals for it."""
    show = TrainingView.show

    def touch(view: TrainingView, event: Event) -> None:
        show(view, event)
        if event.step == 2:
            stop_file(Path("run")).touch()

    monkeypatch.setattr(TrainingView, "show", touch)
    end = jumok("train", text, "--out", "run", *FLAGS, "--steps=9")
    assert end.code == 130
    assert "Stopped after step 2." in end.err
    assert not stop_file(Path("run")).exists()


def test_an_interrupt_before_the_first_step_leaves_nothing(
    jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM while the text was being read killed the process with a half-made folder; now it is as Ctrl-C."""
    from jumok.training import start

    def terminated(*args: object, **kwargs: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(start, "make_plan", terminated)
    end = jumok("train", text, "--out", "run", *FLAGS)
    assert end.code == 130
    assert "interrupted" in end.err
    assert not Path("run").exists()


# --- generate, evaluate ---


def test_generate_json(jumok: Jumok, model: Path) -> None:
    end = jumok("generate", model, "--prompt", "옛날에", "--tokens", 12, "--seed", 1, "--json")
    assert end.code == 0, end.err
    assert end.out.count("\n") == 1
    assert end.json["prompt"] == "옛날에"
    assert end.json["tokens"] == 12
    assert end.json["seed"] == 1
    assert end.json["tokens_per_second"] > 0
    assert end.json["seconds"] > 0
    assert end.json["samples"] == [{"text": end.json["text"], "tokens": 12, "finish": "length"}]
    assert (
        jumok("generate", model, "--prompt", "옛날에", "--tokens", 12, "--seed", 1, "--json").json["text"]
        == (end.json["text"])
    )


def test_generate_streams_what_json_holds(jumok: Jumok, model: Path) -> None:
    asked = ["generate", model, "옛날에", "--tokens", 20, "--seed", 3]
    assert jumok(*asked).out == "옛날에" + jumok(*asked, "--json").json["text"] + "\n"


@pytest.mark.parametrize("prompt", ["", "🙂", "없는 글자 뷁쀍", "가" * 100])
def test_any_prompt(jumok: Jumok, model: Path, prompt: str) -> None:
    """Empty, with characters never seen, decomposed, longer than the context."""
    end = jumok("generate", model, "--prompt", prompt, "--tokens", 4, "--seed", 0)
    assert end.code == 0, end.err
    assert end.out.startswith(prompt)


def test_the_prompt_is_an_argument(jumok: Jumok, model: Path) -> None:
    """`jumok generate RUN "그날"` was refused, where `view` and `predict` take their text like that."""
    asked = ["--tokens", 6, "--seed", 3, "--json"]
    found = jumok("generate", model, "옛날에", *asked).json
    assert found["prompt"] == "옛날에"
    assert found["text"] == jumok("generate", model, "--prompt", "옛날에", *asked).json["text"]
    assert jumok("generate", model, *asked).json["prompt"] == ""
    end = jumok("generate", model, "옛날", "에", "한 나라", *asked)
    assert end.code == 2
    assert f"3 were given; put quotes around it: jumok generate {model} '옛날 에 한 나라'" in end.err
    end = jumok("generate", model, "옛날", "--prompt", "옛날")
    assert end.code == 2
    assert "the prompt was given twice, as PROMPT and with --prompt; leave one of them out." in end.err


def test_evaluate_json(jumok: Jumok, model: Path, text: Path, tales: str) -> None:
    end = jumok("evaluate", model, text, "--json")
    assert end.code == 0, end.err
    values = end.json
    assert set(values) == {
        "nats_per_char", "bits_per_char", "bits_per_byte", "loss_per_token", "perplexity", "chars", "bytes", "tokens",
        "lost_chars", "lost_example", "baseline_nats_per_char", "seen_in_training",
    }  # fmt: skip
    assert (values["chars"], values["bytes"]) == (len(tales), len(tales.encode()))
    assert values["bits_per_char"] == pytest.approx(values["nats_per_char"] / np.log(2), rel=1e-4)
    shown = jumok("evaluate", model, text)
    assert f"{values['nats_per_char']:.4f}" in shown.out
    assert shown.err.startswith(str(text))


def test_infinity_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has no Infinity, and a perplexity can be one."""
    print_json({"a": float("inf"), "b": [float("nan")], "c": 1.23456789, "d": 3})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None], "c": 1.234568, "d": 3}


@pytest.mark.long
def test_a_terminal_without_hangul(model: Path) -> None:
    """Where stdout is Latin-1, Korean output ended in a UnicodeEncodeError."""
    done = subprocess.run(
        [sys.executable, "-m", "jumok.cli", "generate", str(model), "--prompt", "옛날", "--tokens", "3", "--seed", "1"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"\\uc61b\\ub0a0")


@pytest.mark.long
def test_a_reader_that_goes_away(model: Path) -> None:
    """`jumok generate ... | head -1` ends without a complaint."""
    done = subprocess.run(
        f'"{sys.executable}" -m jumok.cli generate "{model}" --tokens 300 --seed 1 | head -c 1',
        shell=True, capture_output=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert len(done.stdout) == 1
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


# --- names that are no text, streams that are closed or full, interrupts ---

ODD = os.fsdecode("가나".encode("cp949"))  # a file name out of a zip archive from Windows


@pytest.fixture
def odd_names() -> None:
    try:
        Path(f"{ODD}.probe").touch()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    Path(f"{ODD}.probe").unlink()


@pytest.mark.long
@pytest.mark.usefixtures("odd_names")
def test_names_that_are_not_utf_8(jumok: Jumok, text: Path) -> None:
    """A text out of a zip archive from Windows ended a run in a UnicodeEncodeError when its config.json was written."""
    source, run, hf, back = f"{ODD}.txt", f"{ODD}-run", f"{ODD}-hf", f"{ODD}-back"
    text.rename(source)
    made = jumok("train", source, "--out", run, *FLAGS, "--json")
    assert (made.code, made.json["run"]) == (0, run), made.err
    config = json.loads(Path(run, "config.json").read_text(encoding="utf-8"))
    assert source in json.dumps(config["data"]["sources"], ensure_ascii=False)
    assert jumok("train", "--resume", "--out", run, "--json").json["run"] == run
    for arguments in (
        ["convert", run, hf, "--to", "hf"],
        ["convert", run, f"{ODD}.gguf", "--to", "gguf"],
        ["convert", run, f"{ODD}.onnx", "--to", "onnx"],
        ["convert", hf, back, "--to", "jumok"],
        ["evaluate", back, source],
        ["generate", run, "--tokens", "2"],
        ["view", run, "그날", "--out", f"{ODD}.html"],
        ["learn", "3", "--notebook", f"{ODD}.ipynb"],
    ):
        end = jumok(*arguments, "--json")
        assert end.code == 0, end.err
        assert isinstance(end.json, dict)
    assert Path(f"{ODD}.html").is_file()
    end = jumok("generate", run, "--prompt", ODD)
    assert (end.code, "half of a surrogate pair" in end.err) == (1, True)


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="a shell of POSIX closes the streams")
@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("train - <&-", 1, "<stdin> is empty"),
        ("generate RUN --tokens 2 >&-", 0, ""),
        ("learn 3 >/dev/full", 1, "No space left on device"),
        ("corpus write stories --chars 100 >/dev/full", 1, "No space left on device"),
    ],
)
def test_streams_that_are_closed_or_full(model: Path, command: str, code: int, said: str) -> None:
    """Each ended in a traceback; and a file that was opened later could take the number of the closed one."""
    if "full" in command and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    done = subprocess.run(
        f'"{sys.executable}" -m jumok.cli {command.replace("RUN", str(model))}',
        shell=True, capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


INTERRUPTED_AT = {
    "train tales.txt --out run": "jumok.training.trainer.Trainer.start",
    "generate RUN": "jumok.inference.generate.generate",
    "corpus get novels": "jumok.corpora.catalogue.get",
    "serve RUN": "jumok.serve.server.serve",
    "learn 3 --notebook 3.ipynb": "jumok.course.pages.notebook.write_notebook",
    "learn ladder tales.txt": "jumok.course.ladder.run.Ladder.run",
}


@pytest.mark.parametrize("command", INTERRUPTED_AT)
def test_an_interrupt_is_json_too(
    jumok: Jumok, text: Path, model: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --json nothing was printed on Ctrl-C, and a program that read the last line met an empty one."""

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    place, _, name = INTERRUPTED_AT[command].rpartition(".")
    target = pkgutil.resolve_name(place if ".Trainer" in place or ".Ladder" in place else f"{place}:")
    monkeypatch.setattr(target, name, interrupt)
    end = jumok(*command.replace("RUN", str(model)).split(), "--json")
    assert (end.code, end.out) == (130, '{"error": "interrupted"}\n')


@pytest.mark.slow
def test_suggested_commands_can_be_pasted(jumok: Jumok, text: Path) -> None:
    """The command to go on with was cut in two at a blank in the folder's name."""
    end = jumok("train", text, "--out", "my run; rm", *FLAGS)
    assert "jumok generate 'my run; rm' '무더운" in end.err
    Path("my run; rm/model.safetensors").write_bytes(b"damaged")
    assert "`jumok train --resume --out 'my run; rm'`" in jumok("generate", "my run; rm").err
    assert shell("jumok", "generate", "runs/소설", "a'b", "c\x1b") == "jumok generate runs/소설 'a'\"'\"'b' $'c\\033'"


def test_labels_with_tabs_are_read_back(jumok: Jumok) -> None:
    """A tab or a newline in a label made one line of `jumok predict` several cells, or several lines."""
    labels = ("좋아\t요", 'so\nso "ok"')
    with Path("reviews.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("text", "label"))
        rows.writerows([("재미있어요", labels[0]), ("그냥 그래요", labels[1])] * 20)
    end = jumok("train", "reviews.csv", "--out=run", "--task=classify", *FLAGS, "--steps=2")
    assert end.code == 0, end.err
    out = jumok("predict", "run", "재미있어요", '"정말"\t그래요', "--device=cpu").out
    rows_read = list(csv.reader(io.StringIO(out, newline=""), dialect="excel-tab"))
    assert [len(row) for row in rows_read] == [3, 3]
    assert {row[0] for row in rows_read} <= set(labels)
    assert [row[2] for row in rows_read] == ["재미있어요", '"정말" 그래요']


# --- convert, corpus ---


def test_convert_there_and_back(jumok: Jumok, model: Path) -> None:
    end = jumok("convert", model, "hf", "--to", "hf", "--json")
    assert end.code == 0, end.err
    assert end.json == {"source": str(model), "target": "hf", "to": "hf"}
    assert jumok("convert", "hf", "back", "--to", "jumok").code == 0
    asked = ["--prompt", "옛날에", "--tokens", 10, "--seed", 5]
    assert jumok("generate", "back", *asked).out == jumok("generate", model, *asked).out


def test_corpus_list_and_write(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    end = jumok("corpus", "list", "--json")
    assert "stories" in {corpus["name"] for corpus in end.json["corpora"]}
    assert "stories" in jumok("corpus", "list").out
    with monkeypatch.context() as korean:  # titles of what is downloaded were English
        korean.setenv("JUMOK_LANG", "ko")
        assert "1920~1940년대 한국 소설" in jumok("corpus", "list", "--json").out
    first, second = (jumok("corpus", "write", "stories", "--chars", 500, "--seed", seed) for seed in (0, 1))
    assert len(first.out) >= 500
    assert first.err == ""
    assert first.out != second.out
    assert jumok("corpus", "get", "no-such-corpus").code == 1
    header, *rows = [line.split("\t") for line in jumok("corpus", "write", "numbers", "--rows", 200).out.splitlines()]
    assert (header, len(rows)) == (["source", "target"], 200)
    assert {len(row) for row in rows} == {2}
    talk = {flag: jumok("corpus", "write", "talk", "--rows", 50, *flag.split()).out for flag in ("", "--part test")}
    assert all(len(lines.splitlines()) == 50 and "reasoning_content" in lines for lines in talk.values())
    assert talk[""] != talk["--part test"]
    assert "reasoning_content" not in jumok("corpus", "write", "talk", "--rows", 50, "--no-thinking").out
    assert jumok("corpus", "write", "talk", "--rows", 50, "--plain").out.count("\n\n") == 50
    assert "--rows does not apply to stories" in jumok("corpus", "write", "stories", "--rows", 3).err
    assert "--plain does not apply to numbers" in jumok("corpus", "write", "numbers", "--plain").err


# --- learn ---

CHAPTER = "causal-mask"  # number 4


def test_learn_lists_the_chapters(jumok: Jumok) -> None:
    listed = jumok("learn", "--lang", "en", "--json").json
    shown = jumok("learn", "--lang", "en").out
    assert [chapter["number"] for chapter in listed["chapters"]] == sorted({c["number"] for c in listed["chapters"]})
    for chapter in listed["chapters"]:
        assert chapter["language"] == "en"
        assert chapter["title"] in shown
        assert chapter["slug"] in shown
        assert Path(chapter["path"]).is_file()
    assert "jumok learn ladder" in shown


def test_learn_reads_a_chapter(jumok: Jumok) -> None:
    """By number or by name; plain where stdout is no terminal."""
    end = jumok("learn", 5, "--lang", "ko")
    assert (end.code, end.err) == (0, "")
    assert "\x1b" not in end.out
    assert "    │ torch.Size([5, 8])\n" in end.out
    assert jumok("learn", CHAPTER, "--lang", "ko").out == end.out
    assert jumok("learn", CHAPTER, "--lang", "en").out != end.out
    values = jumok("learn", 5, "--lang", "ko", "--json").json
    assert (values["number"], values["slug"], values["language"]) == (5, CHAPTER, "ko")
    assert values["text"] == Path(values["path"]).read_text(encoding="utf-8")


WRONG_LEARN: list[tuple[list[str], str]] = [
    (["causal-maks"], "there is no chapter 'causal-maks'"),
    (["causal-maks"], "Did you mean 'causal-mask'?"),
    (["99"], "there is no chapter 99; there are chapters 0 to 25"),
    (["laddr"], "Did you mean 'ladder'?"),
    (["4", "tales.txt"], "tales.txt"),
    (["4", "--lang", "fr"], "'fr' is not one of 'ko', 'en'"),
    (["4", "--seed", "1"], "No such option"),
    (["--notebook", "a.ipynb"], "name a chapter: jumok learn 3 --notebook 3.ipynb"),
    (["ladder", "--minutes-per-rung", "1", "--steps-per-rung", "5"], "were both given; give one"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_LEARN, ids=lambda value: str(value)[:40])
def test_wrong_use_of_learn(jumok: Jumok, text: Path, arguments: list[str], message: str) -> None:
    """Exit code 2 and a remedy, and nothing is read, written or trained."""
    end = jumok("learn", *arguments, "--json")
    assert end.code == 2, end.err
    assert message in " ".join(end.err.split())
    assert message in end.json["error"]
    assert end.err.count("Did you mean") <= 1  # once 'the-2017-paper' stood before 'ladder'
    assert [path.name for path in Path().iterdir()] == ["tales.txt"]


def test_learn_writes_a_notebook(jumok: Jumok) -> None:
    end = jumok("learn", 5, "--lang", "ko", "--notebook", "four.ipynb", "--json")
    assert end.code == 0, end.err
    assert (end.json["notebook"], end.json["slug"]) == ("four.ipynb", CHAPTER)
    assert "Wrote four.ipynb" in end.err
    assert json.loads(Path("four.ipynb").read_text(encoding="utf-8"))["nbformat"] == 4
    assert jumok("learn", 5, "--notebook", "quiet.ipynb", "--quiet") == (0, "", "")


def in_terminal(*arguments: str, columns: int, lines: int, keys: bytes = b"", **environment: str) -> str:
    """What a terminal of this size gets to see of `jumok ...`. keys: what is typed at the start."""
    fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "jumok.cli", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, "TERM": "xterm-256color", **environment},
    )  # fmt: skip
    os.close(theirs)
    os.write(ours, keys)
    seen = b""
    with suppress(OSError):  # Linux reports the end of a terminal as an error
        while piece := os.read(ours, 65536):
            seen += piece
    os.close(ours)
    assert process.wait(60) == 0
    return seen.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("pager", ["", "cat"])
def test_what_a_learner_sees_is_clean(pager: str, monkeypatch: Any) -> None:
    """`jumok learn 3` showed raw escape codes in less, and Hangul as <EC> under a locale that is not installed."""
    if not pager and not shutil.which("less"):
        pytest.skip("the pager less is not installed here")
    for name in ("PAGER", "LESS", "LESSCHARSET", "LC_CTYPE", "JUMOK_LANG"):
        monkeypatch.delenv(name, raising=False)
    environment = {"LC_ALL": "ko_XX.UTF-8", "LANG": "ko_XX.UTF-8", **({"PAGER": pager} if pager else {})}
    seen = in_terminal("learn", "3", "--lang", "ko", columns=80, lines=24, keys=b"q", **environment)
    assert "내적" in seen
    assert "ESC" not in seen
    assert not re.search(r"<[0-9A-F]{2}>", seen)
    assert "\x1b[1m" in seen
    steering = r"\x1b(?:\[[\d;?]*[a-zA-Z]|[=>]|\([AB0])"  # of colours, and what less does to the screen
    assert "\x1b" not in re.sub(steering, "", seen)


def test_help_tells_the_defaults_of_tasks(jumok: Jumok) -> None:
    """It once said 256 where a classifier gets another length."""
    shown = " ".join(jumok("train", "--help-all").out.split())
    assert f"classify {TASK_CONFIGS['classify'].defaults['context_length']}" in shown
    assert f"seq2seq {TASK_CONFIGS['seq2seq'].defaults['context_length']}" in shown
    assert "original invsqrt" in shown
    assert "[0.0; original 0.1]" in shown


PAIRS = "질문\t답\n" + "".join(f"{number}\t{'일이삼사오'[number % 5]}\n" for number in range(40))
REVIEWS = "document\tstars\n" + "재미있어요\t1\n지루해요\t0\n" * 20
TABLES = {"classify": (REVIEWS, "--text=document", "--label=stars"), "seq2seq": (PAIRS, "--source=질문", "--target=답")}


@pytest.mark.parametrize("task", TABLES)
def test_a_run_remembers_its_columns(jumok: Jumok, task: str) -> None:
    """All that is done with a run later had to name its columns again."""
    content, *columns = TABLES[task]
    Path("table.tsv").write_text(content, encoding="utf-8")
    end = jumok("train", "table.tsv", "--out=run", f"--task={task}", *columns, *FLAGS, "--steps=2")
    assert end.code == 0, end.err
    end = jumok("evaluate", "run", "table.tsv", "--json", "--device=cpu")
    assert (end.code, end.json.get("rows")) == (0, 40), end.err
    end = jumok("train", "table.tsv", "--resume", "--out=run", "--device=cpu")
    assert end.code == 0, end.err
    end = jumok("evaluate", "run", "table.tsv", f"{columns[0].partition('=')[0]}=갑", "--device=cpu")
    assert "no column '갑'" in end.err, "what is named goes before what is recorded"
    if task == "classify":
        assert len(jumok("predict", "run", "table.tsv", "--device=cpu").out.splitlines()) == 40


def test_help_shows_examples(jumok: Jumok) -> None:
    for verb in ("train", "generate", "evaluate", "learn", "convert"):
        end = jumok(verb, "--help")
        assert end.code == 0
        assert f"jumok {verb}" in end.out
        assert "Examples:" in end.out
    assert jumok("--version").out.startswith("jumok, version ")


# --- a run with a goal ---


def test_train_stops_at_a_figure_and_tells_the_time_of_the_whole_process(jumok: Jumok, text: Path) -> None:
    flags = [*FLAGS, "--steps=60", "--eval-every=20", "--dropout=0", "--quiet", "--json"]
    end = jumok("train", text, "--out", "run", "--stop-at", "6.0", *flags)
    assert end.code == 0
    assert end.json["reason"] == "reached"
    assert end.json["nats_per_char"] <= 6.0
    assert end.json["process_seconds"] > end.json["seconds"] > 0
    again = jumok("train", "--resume", "--out", "run", "--json")
    assert (again.json["reason"], again.json["steps"]) == ("reached", end.json["steps"])


# --- a busy machine ---


def test_a_program_that_trains_lets_them_sleep_too() -> None:
    """`jumok.train(minutes=0.7)` made two steps on a busy machine: only `jumok train` set the policy."""
    code = (
        "import os, jumok.processors as processors; processors.busy_processors = lambda root: 99.0; import jumok; "
        "print('OMP_WAIT_POLICY' in os.environ); jumok.train; print(os.environ['OMP_WAIT_POLICY'])"
    )
    environment = {name: value for name, value in os.environ.items() if name not in waiting.WAITING_POLICIES}
    environment["OMP_NUM_THREADS"] = "2"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["False", "PASSIVE"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_is_told(jumok: Jumok, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Under `ulimit -v`, commands other than train ended with a traceback, and all did while they loaded torch."""

    def fail(**_: Any) -> int:
        raise error

    monkeypatch.setattr(cli.app, "main", fail)
    end = jumok("generate", "run", "--json")
    assert end.code == 1
    assert "memory ran out during" in end.err
    assert "Use a smaller model or text" in end.json["error"]
    assert "Use a smaller --batch-size" in jumok("train", "run").err
    assert "Traceback" not in end.err


def test_other_errors_keep_their_traceback(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the program is not taken for one of the memory."""

    def fail(**_: Any) -> int:
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="shapes differ"):
        jumok("generate", "run")


def test_a_signal_that_c_code_replaces_is_an_interruption(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while safetensors made a tensor: torch raised a ValueError instead, and a traceback was printed.

    In other places a file would be said to be damaged.
    """

    def fail(**_: Any) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ValueError("could not determine the shape of object type 'torch.storage.UntypedStorage'") from None
        return 0

    monkeypatch.setattr(cli, "app", fail)
    end = jumok("generate", "run", "--json")
    assert end.code == 130
    assert end.json["error"] == "interrupted"


def test_a_busy_machine_is_told_of_only_where_something_is_trained(
    jumok: Jumok, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notice stood before each message on a wrong use, too."""
    monkeypatch.setattr("jumok.cli.process.waiting_threads", lambda: waiting.Waiting(True, "others", 1.25, 2))
    notice = "Other programs keep 1.2 of 2 processors busy, so waiting threads sleep"
    for wrong in (["train", "nope.txt"], ["train", text, "--steps", "2", "--n-head", "0"], ["train", "--resume"]):
        end = jumok(*wrong)
        assert end.code != 0
        assert notice not in end.err
    assert jumok("train", text, "--out", "run", *FLAGS).err.count(notice) == 1
