"""What a resume does with a run that has ended, or that was killed or moved, and what it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import jumok as package
from conftest import TINY, Jumok, run_until
from jumok.config import GPTConfig, TrainConfig
from jumok.errors import ResumeError, RunError
from jumok.runs.events import Eval, Finish, Verdict
from jumok.runs.folder import RunFolder
from jumok.text import Text, from_string
from jumok.training.run_record import further_command
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

Start = Callable[..., Trainer]


def resume(run: Path, **settings: Any) -> Trainer:
    return Trainer.resume(run, **settings, device="cpu")


def config_of(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run / "config.json").read_text(encoding="utf-8"))
    return config


def contents(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.fixture
def run(start: Start, tmp_path: Path) -> Path:
    """A finished run of 8 steps."""
    list(start().run())
    return tmp_path / "run"


# --- what is refused, and what is left alone ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"steps": 80}, r"steps=8, not 80.*another --out RUN|out=RUN"), ({"minutes": 3}, "minutes=None, not 3")],
)
def test_an_unfinished_run_keeps_its_length(
    start: Start, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    run_until(start(), 6)
    with pytest.raises(ResumeError, match=message) as refused:
        resume(tmp_path / "run", **settings)
    assert "is finished" not in str(refused.value)


@pytest.mark.parametrize("settings", [{"learning_rate": 0.001}, {"steps": 4}, {"seed": 2}, {"n_layer": 2}])
def test_a_finished_run_is_not_changed(run: Path, settings: dict[str, Any]) -> None:
    """The message names the command that trains its model further."""
    before = contents(run)
    with pytest.raises(
        ResumeError, match=rf"is finished.*: jumok train TEXT --init {run} --steps=8 .*--out {run}-further"
    ):
        resume(run, **settings)
    assert contents(run) == before


def test_a_run_that_an_earlier_version_extended_is_no_run_to_continue(run: Path) -> None:
    config = config_of(run)
    (run / "config.json").write_text(json.dumps({**config, "stages": [{"step": 8}]}), encoding="utf-8")
    with pytest.raises(ResumeError, match=r"trained further by an earlier version of jumok.*init="):
        resume(run)
    assert package.load(run).config.n_layer == config["model"]["n_layer"], "it can be used"


def test_a_finished_run_is_left_as_it_is(run: Path) -> None:
    """A resume of it wrote its state, its figures and its picture again."""
    before = contents(run)
    times = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != "lock"}
    trainer = resume(run)
    verdict, finish = list(trainer.run())
    assert isinstance(verdict, Verdict)
    assert isinstance(finish, Finish)
    assert (finish.step, finish.reason) == (8, "done")
    [recorded] = [event for event in RunFolder(run).logs.metrics() if event["event"] == "verdict"]
    assert (verdict.kind, verdict.numbers) == (recorded["kind"], recorded["numbers"])
    assert contents(run) == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


# --- on another machine ---


def test_a_resume_elsewhere_says_so(start: Start, tmp_path: Path) -> None:
    """Another number of threads adds up in another order, and nobody was told."""
    run_until(start(), 6)
    run = tmp_path / "run"
    config = config_of(run)
    assert config["machine"]["versions"].keys() == {"jumok", "python", "torch", "numpy", "tokenizers"}
    assert config["machine"].keys() >= {"system", "processor", "instructions", "threads", "device"}
    assert resume(run).notices == []
    config["machine"]["threads"] = 64
    config["machine"]["versions"] |= {"torch": "1.0", "python": "2.7"}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    [notice] = resume(run).notices
    assert "threads: 64 before, " in notice
    assert "torch: 1.0 before, " in notice
    assert "python" not in notice, "it adds nothing up"
    assert "last bits" in notice


# --- the command line ---


def test_the_commands_that_train_the_model_further(
    jumok: Jumok, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finished run is told what to type, for its own texts and columns; what is typed works.

    How many steps are advised depends on what was learned.
    """
    rows = "".join(
        f"{text}\t{label}\n" for text in ("좋아요", "별로예요", "그냥") for label in "가나" for _ in range(9)
    )
    Path("글.tsv").write_text("본문\t종류\n" + rows, encoding="utf-8")
    small = [
        "--n-layer",
        1,
        "--n-head",
        1,
        "--n-embd",
        8,
        "--context-length",
        16,
        "--device",
        "cpu",
        "--compile",
        "off",
    ]
    columns = ["--task", "classify", "--text", "본문", "--label", "종류"]
    assert jumok("train", "글.tsv", *columns, *small, "--steps", 3, "--out", "run").code == 0
    end = jumok("train", "--resume", "--out", "run", "--device", "cpu")
    assert (end.code, "run is finished; there is nothing to continue." in end.err) == (0, True)
    told = next(line for line in end.err.splitlines() if line.startswith("  jumok train"))
    words = shlex.split(told)
    [steps] = [word for word in words if word.startswith("--steps=")]
    assert words[2:] == [
        "글.tsv", "--init", "run", "--task=classify", "--text=본문", "--label=종류", steps, "--out", "run-further"
    ]  # fmt: skip
    assert jumok(*words[1:], "--steps", 3, "--device", "cpu").code == 0
    first, further = (config_of(Path(name))["train"] for name in ("run", "run-further"))
    assert {**further, "planned_tokens": 0, "steps": 3} == {**first, "planned_tokens": 0}, (
        "it has all settings of the run"
    )


@pytest.mark.parametrize(
    ("sources", "texts"),
    [
        (["stories(내장)"], []),
        (["talk (built in)"], []),
        (["gone.txt"], ["TEXT"]),
        (["stories (1).txt"], ["stories (1).txt"]),
        (["stories (2).txt"], ["TEXT"]),
    ],
)
def test_the_texts_of_that_command(
    sources: list[str], texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that a browser named `stories (1).txt` was taken for the built-in stories, and its name left out."""
    monkeypatch.chdir(tmp_path)
    Path("stories (1).txt").touch()
    shape, config = (
        GPTConfig(family="classic", vocab_size=9, n_embd=8, n_head=1),
        TrainConfig(steps=8, optimizer="adamw"),
    )
    words = shlex.split(further_command(Path("run"), {"sources": sources}, shape, config, keep="last"))
    assert words[2 : len(texts) + 4] == [*texts, "--init", "run"]
    assert set(words[len(texts) + 4 :]) == {
        "--steps=8", "--keep=last", "--out", "run-further"
    }  # fmt: skip


def test_a_start_with_the_text_of_the_run_learns_as_the_run_did(start: Start, tmp_path: Path, story_text: Text) -> None:
    """It had lower rates, with which the model learned its text by heart and became worse (bench/LOG.md)."""
    learned = {"matrix_learning_rate": 0.03, "momentum": 0.8, "batch_size": 3, "schedule": "cosine", "clip": 0.5}
    list(start(**learned).run())
    settings = {name: TINY[name] for name in ("steps", "precision", "compile", "attention")}

    def begun(out: str, text: Text, init: str = "run", **given: Any) -> dict[str, Any]:
        with Trainer.start(tmp_path / out, text, **settings, **given, init=tmp_path / init, device="cpu") as trainer:
            return {name: trainer.config.to_dict()[name] for name in learned}

    assert begun("further", story_text, momentum=0.85) == {**learned, "momentum": 0.85}
    usual = begun("another", from_string(story_text.read(0, story_text.chars // 2)))
    assert usual["matrix_learning_rate"] == 0.004, "another text: what it knows is kept"
    package.save(package.load(tmp_path / "run"), tmp_path / "saved")
    assert begun("of-no-run", story_text, "saved") == usual


# --- where states and parameters meet ---


def damage(state: Path) -> None:
    (state / "numbers.json").write_bytes(b"{}")


def test_a_finished_run_whose_end_is_damaged_is_not_finished(run: Path) -> None:
    """Its parameters were put back to those of the state before, and the result of the others was told for them."""
    weights = (run / "model.safetensors").read_bytes()
    damage(run / "state" / "step-000000008")
    trainer = resume(run)
    if trainer.result is None:  # the state before has other parameters
        assert "finished" not in config_of(run)
        assert list(trainer.run())[-1].step == 8
    assert (run / "model.safetensors").read_bytes() == weights


def test_a_run_that_began_with_other_weights_keeps_them_when_it_is_killed_early(
    run: Path, tmp_path: Path, story_text: Text
) -> None:
    """Killed before the first save, it went on from random parameters: no seed makes those of --init again."""
    out = tmp_path / "tuned"
    settings = {name: TINY[name] for name in ("batch_size", "steps", "eval_every", "precision", "compile", "attention")}
    trainer = Trainer.start(out, story_text, **settings, init=run, device="cpu")
    first = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.close()  # like a kill before the first step
    again = resume(out)
    assert all(torch.equal(tensor, first[name]) for name, tensor in again.model.state_dict().items())
    assert again.clock.planned_tokens == trainer.clock.planned_tokens > 0
    again.close()
    for state in (out / "state").glob("step-*"):
        damage(state)
    with pytest.raises(RunError, match="no whole training state left"):
        resume(out)


@pytest.mark.parametrize("init", [True, False])
def test_a_start_with_other_weights_that_was_killed_can_be_repeated(
    run: Path, tmp_path: Path, story_text: Text, start: Start, monkeypatch: pytest.MonkeyPatch, init: bool
) -> None:
    """Killed between config.json and its first state, it could be neither resumed nor started again."""
    out = tmp_path / "tuned"
    settings = {name: TINY[name] for name in ("batch_size", "steps", "eval_every", "precision", "compile", "attention")}

    def tune() -> Trainer:
        return Trainer.start(out, story_text, **settings, init=run, device="cpu")

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "discard", lambda _: None)  # like a kill
        patch.setattr(RunFolder, "write_config", kill)
        with pytest.raises(KeyboardInterrupt):
            tune()
    assert len(list((out / "state").glob("step-*"))) == 1
    assert not (out / "config.json").exists()
    with tune() if init else start("tuned"):
        assert len(list((out / "state").glob("step-*"))) == init  # no state of another start


def test_figures_go_with_the_weights_that_had_them(start: Start, tmp_path: Path) -> None:
    """A kill between a validation and the first state left the figures of lost parameters in config.json."""
    trainer = start()
    for event in trainer.run():
        if isinstance(event, Eval):
            trainer.close()  # like a kill: nothing is saved
            break
    assert config_of(tmp_path / "run")["metrics"]
    again = resume(tmp_path / "run")
    assert config_of(tmp_path / "run")["metrics"] == {}
    assert list(again.run())[-1].step == 8
