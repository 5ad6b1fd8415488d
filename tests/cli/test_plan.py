"""`jumok plan`: a table or one JSON object; what it refuses. Nothing is measured here but a toy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import TINY, Jumok
from jumok import text as reader
from jumok.cli.plan import parse_count
from jumok.errors import ConfigError
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

GPT2 = ["plan", "--size", "gpt2", "--family", "classic", "--vocab-size", "50257", "--device", "h100"]


def test_a_plan_as_json(jumok: Jumok) -> None:
    found = jumok(*GPT2, "--tokens", "2.5B", "--devices", "8", "--price", "2", "--json").json
    assert found["parameters"] == 124_439_808
    assert found["tokens"] == 2_500_000_000
    assert found["tokens_per_step"] == 16 * 1024
    assert found["data_sheet"]["flops"] == 989.4e12
    assert found["utilisation"] == 0.3
    assert found["way"]["memory"]["parameters"] == 4 * 124_439_808
    assert [one["devices"] for one in found["scales"]] == [1, 2, 4, 8]
    assert found["cost"] == pytest.approx(found["seconds"] / 3600 * 8 * 2)
    assert found["optimal_tokens"] == 20 * 124_439_808


def test_a_plan_as_tables(jumok: Jumok) -> None:
    end = jumok(*GPT2, "--tokens", "2.5B", "--devices", "2", "--price", "2")
    for words in ("124 M parameters", "data sheet: 989 T FLOP/s", "2 × NVIDIA H100 SXM", "peak of a step", "--shard"):
        assert words in end.out
    assert "Figures of data sheets are peaks" in end.err
    quiet = jumok(*GPT2, "--tokens", "2.5B", "--devices", "2", "--price", "2", "--quiet")
    assert (quiet.out, quiet.err) == (end.out, "")


def test_a_plan_in_korean(jumok: Jumok, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_LANG", "ko")
    end = jumok("plan", "--size", "nano", "--device", "l4")
    assert "데이터 시트" in end.out
    assert "연산량 대비 최적" in end.out
    assert "어휘 8,000개(가정, --vocab-size로 지정)" in end.out


def test_what_fits_is_named(jumok: Jumok) -> None:
    """A batch that does not fit is accumulated; a model that does not fit on one device is shared out."""
    batch = jumok(*GPT2, "--batch-size", "512", "--tokens", "1B")
    assert "--batch-size" in batch.out.partition("Memory")[0]
    assert "--accumulate" in batch.out.partition("Memory")[0]
    large = ["--n-layer", "48", "--n-embd", "4096", "--n-head", "32", "--devices", "16", "--tokens", "1B"]
    needs = jumok(*GPT2, *large).out.partition("Memory")[0]
    assert "--shard" in needs


@pytest.mark.parametrize("task", ["lm", "mlm", "classify", "seq2seq"])
def test_each_task(jumok: Jumok, task: str) -> None:
    found = jumok("plan", "--task", task, "--device", "a100", "--steps", "100", "--json").json
    assert found["steps"] == 100
    assert found["way"]["fits"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tales: str) -> Path:
    out = tmp_path_factory.mktemp("plan") / "run"
    trainer = Trainer.start(out, reader.from_string(tales), **configurations({**TINY, "steps": 2}), device="cpu")
    for _ in trainer.run():
        pass
    trainer.close()
    return out


def test_a_run(jumok: Jumok, run: Path) -> None:
    found = jumok("plan", run, "--device", "h100", "--json").json
    recorded = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert found["vocab_size"] == recorded["model"]["vocab_size"]
    assert found["tokens"] == recorded["train"]["planned_tokens"] == 2 * 4 * 16
    assert found["precision"] == "float32"  # that of the run
    more = jumok("plan", run, "--device", "h100", "--steps", "10", "--batch-size", "8", "--json").json
    assert (more["tokens"], more["tokens_per_step"]) == (10 * 8 * 16, 8 * 16)


def test_a_run_of_several_processes(jumok: Jumok, run: Path, tmp_path: Path) -> None:
    """Its processes, its shards and its recomputation are planned with."""
    several = tmp_path / "several"
    shutil.copytree(run, several)
    path = several / "config.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))
    assert recorded["machine"]["processes"] == 1
    recorded["machine"]["processes"] = 2
    recorded["train"] |= {"recompute": True, "shard": True}
    path.write_text(json.dumps(recorded), encoding="utf-8")
    found = jumok("plan", several, "--device", "h100", "--json").json
    assert found["devices"] == 2
    assert [(way["shard"], way["recompute"]) for way in found["ways"]] == [(True, True)]
    assert jumok("plan", several, "--device", "h100", "--devices", "4", "--json").json["devices"] == 4
    del recorded["machine"]["processes"]  # of a run before there were several
    path.write_text(json.dumps(recorded), encoding="utf-8")
    assert jumok("plan", several, "--device", "h100", "--json").json["devices"] == 1


def test_a_run_has_its_own_model(jumok: Jumok, run: Path) -> None:
    end = jumok("plan", run, "--n-layer", "3", "--size", "nano", "--device", "h100")
    assert end.code == 2
    assert "--n-layer, --size" in end.err
    for arguments, said in (
        ([run, "--lora", "2"], "leave --lora out"),
        ([run, "--init", run], "both given"),
        (["--init", run], "give --tokens or --steps"),
        (["--init", run, "--tokens", "1M", "--vocab-size", "99"], "leave --vocab-size out"),
        (["--init", run, "--tokens", "1M", "--n-layer", "9"], "n_layer"),
        (["--init", run, "--tokens", "1M", "--lora", "2", "--devices", "2"], "one process"),
        (["--lora", "2"], "name its folder with --init"),
    ):
        end = jumok("plan", *arguments, "--device", "h100")
        assert (end.code, end.out) == (2, "")
        assert said in end.err


def test_a_model_that_is_trained_further(jumok: Jumok, run: Path) -> None:
    """The options --init and --lora of `jumok train` were unknown to `jumok plan`."""
    given = ["plan", "--init", run, "--device", "h100", "--tokens", "1M"]
    whole, thin = jumok(*given, "--json").json, jumok(*given, "--lora", "2", "--json").json
    recorded = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert whole["vocab_size"] == thin["vocab_size"] == recorded["model"]["vocab_size"]
    assert thin["parameters"] == whole["parameters"]
    assert thin["way"]["memory"]["gradients"] < whole["way"]["memory"]["gradients"] // 2
    assert thin["flops_per_token"] < whole["flops_per_token"]
    end = jumok(*given)
    assert "compute-optimal" not in end.out + end.err.lower()  # a rule for models that begin with random parameters


@pytest.mark.slow
def test_this_machine_is_measured(jumok: Jumok, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jumok.training.planning.rehearsal.MEASURING", 0.0)
    found = jumok("plan", run, "--device", "cpu", "--json").json
    assert found["data_sheet"] is None
    assert found["measured_flops"] > 0 < found["seconds_of_step"]["update"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "h10"], "Did you mean 'h100'?"),
        (["--device", "cuda:99"], "not available"),
        (["--device", "h100", "--tokens", "0"], "at least 1"),
        (["--device", "h100", "--tokens", "-1"], "at least 1"),
        (["--device", "h100", "--tokens", "2.5X"], "not a number of tokens"),
        (["--device", "h100", "--tokens", "1e30"], "10^18"),
        (["--device", "h100", "--tokens", "1B", "--steps", "5"], "both given"),
        (["--device", "h100", "--devices", "0"], "between 1"),
        (["--device", "m2"], "no data sheet"),
        (["--device", "h100", "--recompute", "yes"], "no run folder"),
        (["--device", "h100", "--devices", "17"], "at least 17"),
        (["--device", "h100", "--utilisation", "1.5"], "share of the peak"),
        (["--device", "cpu", "--utilisation", "0.5"], "data sheet"),
        (["--device", "h100", "--price", "0"], "more than 0"),
        (["--device", "h100", "--interconnect", "nan"], "more than 0"),
        (["--device", "h100", "--size", "gpt3"], "gpt2"),
        (["--device", "h100", "--size", "gpt2", "--n-embd", "100"], "not divisible"),
        (["--device", "h100", "--model", "bert", "--task", "lm"], "cannot be trained"),
        (["nowhere", "--device", "h100"], "no run folder"),
    ],
)
def test_bad_input(jumok: Jumok, arguments: list[str], said: str) -> None:
    end = jumok("plan", *arguments)
    assert end.code != 0
    assert said in end.err
    assert end.out == ""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2.5B", 2_500_000_000),
        ("300m", 3 * 10**8),
        ("1e9", 10**9),
        ("10_000", 10_000),
        ("1,500 K", 1_500_000),
        ("7", 7),
    ],
)
def test_counts(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "B", "2.5X", "1.2.3M", "0", "-1", "0.1", "1e400", "nan", "inf"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_count(text)
