"""The ladder: rungs that differ in one thing each, a climb that survives what it meets, and what is said at the end."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
import os
import re
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len

import jumok
from conftest import Jumok
from jumok import text as reader
from jumok.cli.console.ladder import LadderView, show_ladder
from jumok.config import Frame, GPTConfig, TrainConfig
from jumok.course.ladder import report, rungs
from jumok.course.ladder import run as ladder_module
from jumok.course.ladder.picture import draw_ladder
from jumok.course.ladder.published import published, published_table
from jumok.course.ladder.results import LadderRecord, Point, RungResult, TextFacts
from jumok.course.ladder.run import Ladder, LadderEvent, LadderFinished, RungFinished, RungStarted, default_folder
from jumok.course.ladder.rungs import PARTS, RUNGS, TEXTS, LadderConfig, say
from jumok.course.ladder.verdicts import verdict
from jumok.course.pages.chapter import chapter
from jumok.course.words import LANGUAGES, Language, words_in
from jumok.errors import ConfigError, JumokError, ResumeError, RunError, TextError
from jumok.interop.huggingface.convert import to_hf
from jumok.models import build
from jumok.runs.events import Finish, Notice, Save, Step
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.loop import Loop
from jumok.training.trainer import Trainer

pytestmark = pytest.mark.slow

SLUGS = [rung.slug for rung in RUNGS]
TINY_LADDER: dict[str, Any] = {
    "steps_per_rung": 4, "n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4,
    "eval_tokens": 128, "sample_tokens": 6, "save_every": 1e6, "precision": "float32",
}  # fmt: skip
languages = pytest.mark.parametrize("language", LANGUAGES)


def config(**settings: Any) -> LadderConfig:
    return LadderConfig(**{**TINY_LADDER, **settings})


@pytest.fixture(scope="module")
def text(tales: str) -> Text:
    return reader.from_string(tales, name="some/where/tales.txt")


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory, text: Text) -> tuple[Path, list[LadderEvent]]:
    """A whole ladder, its folder and its events; look, and leave it as it is."""
    out = tmp_path_factory.mktemp("ladder") / "out"
    return out, list(Ladder(text, out, config(), language="en", device="cpu", asked=["some/where/tales.txt"]).run())


def only(events: list[LadderEvent], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def essence(record: LadderRecord) -> list[dict[str, Any]]:
    """What two ladders of the same kind have in common, to the bit: all but times."""
    results = [dataclasses.asdict(result) for result in record.results]
    for result in results:
        del result["seconds"], result["tokens_per_second"]
        for point in result["curve"]:
            del point["seconds"]
    return results


# --- the rungs ---


def test_each_rung_adds_what_it_says_and_nothing_else() -> None:
    """Of the settings of two neighbours, those that differ are the ones that the rung names."""
    asked = config()
    for below, rung in itertools.pairwise(RUNGS):
        (_, before), (_, after) = asked.settings(below), asked.settings(rung)
        differing = {name for name in before.keys() & after.keys() if before[name] != after[name]}
        new = {"rotary", "rms", "gated", "start"} if rung.slug == "tied" else set()  # as in the rungs before it
        named = {*rung.changes, *rung.grows} - new - ({"start"} if rung.slug == "look-back" else set())
        assert differing == named, rung.slug
        gone = before.keys() - after.keys()
        parts = {"mixing": "attention", "feed_forward": True, "residual": True, "norm": True}
        if rung.slug == "dropout":
            assert gone == parts.keys()
            assert {name: before[name] for name in gone} == parts
        elif rung.slug == "look-back":
            parts |= {"rotary": True, "rms": True, "gated": True, "start": "identity"}
            assert gone == parts.keys() == set(PARTS)
            assert {name: before[name] for name in gone} == parts
        else:
            assert gone == ({"learning_rate"} if rung.slug == "muon" else set())


@pytest.mark.long
def test_the_top_rungs_are_the_production_gpt(climbed: tuple[Path, list[LadderEvent]], tmp_path: Path) -> None:
    """Their folders are of type gpt, and they leave for transformers, which no other rung does."""
    out, _ = climbed
    folders = sorted(path for path in out.iterdir() if path.is_dir())
    types = [json.loads((folder / "config.json").read_text("utf-8"))["model"]["type"] for folder in folders]
    assert [number for number, kind in enumerate(types, 1) if kind == "gpt"] == [9, 16]
    vocab = jumok.load(folders[0]).config.vocab_size
    shape = {
        "vocab_size": vocab, "n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "frame": Frame()
    }  # fmt: skip
    classic, modern = jumok.load(folders[8]), jumok.load(folders[15])
    assert classic.config == GPTConfig(**shape, family="classic", dropout=0.1, tie_embeddings=False)
    assert modern.config == GPTConfig(**shape)
    for number, folder in enumerate(folders):
        target = tmp_path / f"hf-{number}"
        if number not in {8, 15}:
            with pytest.raises(JumokError, match="type='rung', which transformers does not compute"):
                to_hf(jumok.load(folder), target)
        else:
            to_hf(jumok.load(folder), target)


def test_the_last_rung_trains_as_jumok_does_by_default(climbed: tuple[Path, list[LadderEvent]]) -> None:
    out, _ = climbed
    trained = RunFolder(out / "16-look-back").read_config()["train"]
    default = TrainConfig().to_dict()
    prescribed = {
        "steps", "minutes", "passes", "batch_size", "eval_every", "eval_tokens", "patience", "sample_tokens",
        "save_every", "precision", "compile", "attention", "planned_tokens",
    }  # fmt: skip
    assert {name for name, value in trained.items() if default.get(name) != value} <= prescribed
    assert trained["optimizer"] == "muon"


@pytest.mark.long
def test_all_rungs_learn_and_are_tested_alike(climbed: tuple[Path, list[LadderEvent]], text: Text) -> None:
    """The same ids, held out the same, in the same batches, with the same tokenizer and the same settings."""
    out, _ = climbed
    folders = sorted(path for path in out.iterdir() if path.is_dir())
    reference = Trainer.resume(folders[0], device="cpu")
    for folder in folders[1:]:
        trainer = Trainer.resume(folder, device="cpu")
        for name in ("tokenizer.json", "state/train.npy", "state/val.npy"):
            assert (folder / name).read_bytes() == (folders[0] / name).read_bytes()
        for number in (0, 1, 7, 200):
            batches = zip(trainer.task.batch(number), reference.task.batch(number), strict=True)
            assert all(torch.equal(ours, theirs) for ours, theirs in batches)
        ours, theirs = (dataclasses.asdict(each.config) for each in (trainer, reference))
        differing = {name for name in ours if ours[name] != theirs[name]}
        assert differing <= (
            {"optimizer", "learning_rate", "weight_decay", "momentum"} if folder.name[:2] in {"15", "16"} else set()
        )
    default = Trainer.start(out.parent / "default", text, steps=1, n_layer=1, device="cpu")
    assert default.folder.read_tokenizer().fingerprint == reference.folder.read_tokenizer().fingerprint


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minutes_per_rung": 1.0}, "were both given"),
        ({"steps_per_rung": None, "minutes_per_rung": float("nan")}, "more than 0 and finite"),
        ({"steps_per_rung": 0}, r"steps_per_rung=0 is out of range"),
        ({"n_head": 3}, "n_embd=16 is not divisible by n_head=3"),
        ({"sample_tokens": 0}, "sample_tokens=0"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**settings)


# --- a ladder ---


def test_events_come_in_order(climbed: tuple[Path, list[LadderEvent]]) -> None:
    out, events = climbed
    started, finished = only(events, RungStarted), only(events, RungFinished)
    assert [event.rung.slug for event in started] == [event.rung.slug for event in finished] == SLUGS
    assert [event.number for event in started] == list(range(1, 17))
    assert [event.folder.name for event in finished] == [f"{n:02d}-{slug}" for n, slug in enumerate(SLUGS, 1)]
    assert all(event.step == 0 and event.before for event in started)
    assert not any(event.earlier for event in finished)
    last = events[-1]
    assert isinstance(last, LadderFinished)
    assert (last.reason, last.out) == ("done", out)
    assert [path.name for path in last.outputs] == ["ladder.json", "ladder.md", "ladder.png"]
    assert all(path.is_file() for path in last.outputs)
    steps = [event.step for event in only(events, Step)]
    assert steps == [1, 2, 3, 4] * 16


@pytest.mark.slow
def test_the_figures_are_those_of_the_models(climbed: tuple[Path, list[LadderEvent]]) -> None:
    """A rung's figure is what its folder's model scores on the held-out text, and its samples are what it writes."""
    _, events = climbed
    for event in only(events, RungFinished):
        trainer = Trainer.resume(event.folder, device="cpu")
        model = jumok.load(event.folder)
        figures = trainer.task.final(model, ladder_module.HELD_OUT_TOKENS)
        assert event.result.nats_per_char == pytest.approx(figures["nats_per_char"], rel=1e-6)
        assert event.result.after == jumok.generate(model, tokens=6, seed=0)[0].text
        trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        assert event.result.parameters == trained
        assert (event.result.steps, event.result.tokens) == (4, 4 * 4 * 16)
        evals = [line for line in RunFolder(event.folder).logs.metrics() if line["event"] == "eval"]
        assert [point.nats_per_char for point in event.result.curve] == [
            line["figures"]["nats_per_char"] for line in evals
        ]
        assert len({line["figures"]["tokens"] for line in evals}) == 1
        assert trainer.config.eval_tokens == 128


def test_the_record_can_be_read_and_names_no_machine(climbed: tuple[Path, list[LadderEvent]]) -> None:
    out, events = climbed
    record = LadderRecord.read(out)
    assert record == events[-1].record  # type: ignore[union-attr]
    written = (out / "ladder.json").read_text(encoding="utf-8")
    assert "some/where" not in written
    assert str(out.parent) not in written
    assert record.text.sources == ("tales.txt",)
    assert record.command == "jumok learn ladder tales.txt --steps-per-rung 4"
    assert record.floor == pytest.approx(0.3, abs=0.1)
    assert record.finished


# --- interrupted, killed, changed ---


def stopped_in(rung: int, step: int, ladder: Ladder) -> list[LadderEvent]:
    """Climb, and ask for a stop in a step of a rung."""
    events: list[LadderEvent] = []
    number = 0
    for event in ladder.run():
        events.append(event)
        number = event.number if isinstance(event, RungStarted) else number
        if isinstance(event, Step) and (number, event.step) == (rung, step):
            ladder.request_stop()
    return events


@pytest.mark.long
def test_an_interrupted_ladder_continues_to_the_same_end(
    climbed: tuple[Path, list[LadderEvent]], text: Text, tmp_path: Path
) -> None:
    """Stopped in the third rung and again in the ninth: the figures, curves and samples are those without a stop."""
    out = tmp_path / "out"
    first = stopped_in(3, 2, Ladder(text, out, config(), device="cpu"))
    assert [event.rung.slug for event in only(first, RungFinished)] == SLUGS[:2]
    assert only(first, Finish)[-1].reason == "interrupted"
    assert isinstance(first[-1], LadderFinished)
    assert first[-1].reason == "interrupted"
    second = stopped_in(9, 1, Ladder(text, out, config(), device="cpu"))
    assert [event.earlier for event in only(second, RungFinished)] == [True] * 2 + [False] * 6
    started = only(second, RungStarted)[0]
    assert (started.number, started.step) == (3, 2)
    third = list(Ladder(text, out, config(), device="cpu").run())
    assert [event.step for event in only(third, Step)] == [2, 3, 4, *[1, 2, 3, 4] * 7]
    assert essence(LadderRecord.read(out)) == essence(LadderRecord.read(climbed[0]))


@pytest.mark.long
def test_a_killed_ladder_continues_to_the_same_end(
    climbed: tuple[Path, list[LadderEvent]], text: Text, tmp_path: Path
) -> None:
    """Dropped, as by SIGKILL, between any two events of the second rung: nothing is saved any more, and no harm done.

    In between, what is on the disk is a folder half made, a run at its beginning, in its middle, and one at its end
    that the record does not know of yet.
    """
    out = tmp_path / "out"
    stop_after = [
        lambda event: isinstance(event, RungStarted) and event.number == 2,
        lambda event: isinstance(event, Step) and event.step == 3,
        lambda event: isinstance(event, Save),
        lambda event: isinstance(event, Finish),
    ]
    for enough in stop_after:
        number = 0
        events = Ladder(text, out, config(), device="cpu").run()
        for event in events:
            number = event.number if isinstance(event, RungStarted) else number
            if number == 2 and enough(event):
                break
        events.close()  # type: ignore[attr-defined]
        assert LadderRecord.read(out).results[-1].slug == "bigram"
    last = list(Ladder(text, out, config(), device="cpu").run())
    assert only(last, Step)[0].step == 1  # of the third rung: the second was over, only its result was missing
    assert essence(LadderRecord.read(out)) == essence(LadderRecord.read(climbed[0]))


def test_a_finished_ladder_is_only_told_again(
    climbed: tuple[Path, list[LadderEvent]], text: Text, tmp_path: Path
) -> None:
    """In another language too: the outputs are written anew, and nothing is trained."""
    out = tmp_path / "out"
    copy_folder(climbed[0], out)
    events = list(Ladder(text, out, config(), language="ko", device="cpu").run())
    assert [type(event) for event in events] == [RungFinished] * 16 + [LadderFinished]
    assert all(event.earlier for event in only(events, RungFinished))
    assert "바이그램" in (out / "ladder.md").read_text(encoding="utf-8")
    assert "bigram" in (climbed[0] / "ladder.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_rung_without_its_folder_is_climbed_anew(
    climbed: tuple[Path, list[LadderEvent]], text: Text, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    copy_folder(climbed[0], out, leave_out="04-many-heads")
    events = list(Ladder(text, out, config(), device="cpu").run())
    assert [event.rung.slug for event in only(events, RungStarted)] == ["many-heads"]
    assert essence(LadderRecord.read(out)) == essence(LadderRecord.read(climbed[0]))


def copy_folder(source: Path, target: Path, leave_out: str = "") -> None:
    for path in source.rglob("*"):
        relative = path.relative_to(source)
        if path.is_file() and (not leave_out or relative.parts[0] != leave_out):
            (target / relative).parent.mkdir(parents=True, exist_ok=True)
            (target / relative).write_bytes(path.read_bytes())


def test_another_text_or_other_settings_are_refused(
    climbed: tuple[Path, list[LadderEvent]], text: Text, tales: str
) -> None:
    out, _ = climbed
    other = reader.from_string(tales[:-100], name="other.txt")
    for given, settings, message in (
        (other, {}, r"another text: tales\.txt, [\d,]+ characters, sha256 \w{12}…, not other\.txt"),
        (text, {"seed": 1}, "seed=0, not 1"),
        (text, {"steps_per_rung": 5, "n_layer": 3}, "steps_per_rung=4, not 5; n_layer=2, not 3"),
    ):
        with pytest.raises(ResumeError, match=message):
            Ladder(given, out, config(**settings), device="cpu")


@pytest.mark.long
def test_a_budget_of_minutes(text: Text, tmp_path: Path) -> None:
    """However small, each rung takes a step, and continues with the time that is left."""
    asked = config(precision="auto", steps_per_rung=None, minutes_per_rung=0.001)
    events = list(Ladder(text, tmp_path / "out", asked, device="cpu").run())
    assert [event.result.steps >= 1 for event in only(events, RungFinished)] == [True] * 16
    trained = [RunFolder(path).read_config()["train"] for path in sorted((tmp_path / "out").glob("*-*"))]
    given = [each["minutes"] for each in trained]
    [precision] = {each["precision"] for each in trained}
    assert precision == events[-1].record.precision != "auto", "it is measured once, so that rungs can be compared"
    assert max(given[1:]) < given[0] == 0.001  # the figures and samples of the ladder have a part of the minutes
    assert not any("minutes" in event.text for event in only(events, Notice))  # which is no option of the ladder
    assert LadderRecord.read(tmp_path / "out").command is None


# --- bad input ---


def test_a_text_that_is_too_short(tmp_path: Path, tales: str) -> None:
    """The shortest text that is taken has a batch to learn from and a window to be tested on; one less is refused."""
    with pytest.raises(
        TextError, match=r"1,000 characters, too short for the ladder: it takes at least 2,278"
    ) as error:
        Ladder(reader.from_string(tales[:1000]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    enough = int(re.findall(r"at least ([\d,]+)", str(error.value))[0].replace(",", ""))
    prose = "가나다라마바사아자차" * (enough // 10 + 1)
    with pytest.raises(TextError, match="too short"):
        Ladder(reader.from_string(prose[: enough - 1]), tmp_path / "out")
    ladder = Ladder(reader.from_string(prose[:enough]), tmp_path / "out", LadderConfig(steps_per_rung=1), device="cpu")
    assert isinstance(next(iter(ladder.run())), RungStarted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ("{}", "is damaged"),
        ('{"format": 3}', "has format 3; this version of jumok supports format 2"),
        ('{"format": 2, "text": {}, "asked": null, "config": {"n_layers": 3}}', "is damaged"),
        (b"\xff\xfe", "is damaged"),
    ],
    ids=["cut off", "a list", "empty", "of the future", "unknown setting", "no text"],
)
def test_a_damaged_record_is_told(content: str | bytes, message: str, text: Text, tmp_path: Path) -> None:
    (tmp_path / "ladder.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunError, match=message):
        Ladder(text, tmp_path, config(), device="cpu")


def test_a_record_with_values_of_wrong_types_is_damaged(
    climbed: tuple[Path, list[LadderEvent]], tmp_path: Path
) -> None:
    values = json.loads((climbed[0] / "ladder.json").read_text(encoding="utf-8"))
    result = values["results"][0]
    for changed in (
        {"vocab_size": "12"},
        {"floor": float("nan")},
        {"before": {"bigram": 1}},
        {"column": "\ud800"},
        {"results": [{**result, "curve": [{"tokens": 1.5, "seconds": 1.0, "nats_per_char": 1.0}]}]},
        {"results": [{**result, "nats_per_char": float("inf")}]},
        {"text": {**values["text"], "sources": []}},
    ):
        (tmp_path / "ladder.json").write_text(json.dumps({**values, **changed}), encoding="utf-8")
        with pytest.raises(RunError, match="is damaged"):
            LadderRecord.read(tmp_path)


def test_a_folder_that_cannot_be_used_is_refused(text: Text, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for out, message in (
        (tmp_path / "file", "is a file; give a folder"),
        (tmp_path / "file" / "out", "cannot use .*out for the ladder"),
        (tmp_path, "holds other files and no ladder"),
    ):
        with pytest.raises(RunError, match=message):
            Ladder(text, out, config(), device="cpu")


def test_one_process_at_a_time(text: Text, tmp_path: Path) -> None:
    first, second = (Ladder(text, tmp_path / "out", config(), device="cpu") for _ in range(2))
    events = first.run()
    next(events)
    with pytest.raises(RunError, match="another process is training the ladder"):
        next(second.run())
    events.close()  # type: ignore[attr-defined]
    assert isinstance(next(second.run()), RungStarted)


def test_the_default_folder(climbed: tuple[Path, list[LadderEvent]], text: Text, tmp_path: Path) -> None:
    """The first that is free, or that holds this same ladder."""
    assert default_folder(text, config(), tmp_path) == tmp_path / "ladder"
    (tmp_path / "ladder").mkdir()
    (tmp_path / "ladder" / "other.txt").touch()
    assert default_folder(text, config(), tmp_path) == tmp_path / "ladder-2"
    copy_folder(climbed[0], tmp_path / "ladder-2")
    assert default_folder(text, config(), tmp_path) == tmp_path / "ladder-2"
    assert default_folder(text, config(seed=1), tmp_path) == tmp_path / "ladder-3"


# --- what it says ---


def made_up(**figures: float) -> LadderRecord:
    """A finished ladder with the figures given, and 3.0 for the rest."""
    results = tuple(
        RungResult(
            slug=slug, parameters=1_234_567, steps=100, tokens=100_000, seconds=60.0, tokens_per_second=12_345.6,
            nats_per_char=figures.get(slug.replace("-", "_"), 3.0),
            curve=tuple(Point(tokens=n * 50_000, seconds=n * 30.0, nats_per_char=5.0 - n) for n in (1, 2)),
            before="갸뇨", after="그날 밤",
        )
        for slug in SLUGS
    )  # fmt: skip
    return LadderRecord(
        config=LadderConfig(), text=TextFacts(sources=("a.txt",), sha256="0" * 64, chars=1000), asked=("a.txt",),
        precision="float32", train_tokens=900, vocab_size=50, results=results,
    )  # fmt: skip


@languages
@pytest.mark.parametrize("slug", SLUGS[1:])
def test_the_reason_goes_with_the_sign(language: Language, slug: str) -> None:
    """Whatever was measured, that is what is explained."""
    rung = RUNGS[SLUGS.index(slug)]
    texts = words_in(TEXTS, "rung", slug)
    helps, hurts = (texts[key].said(language) for key in ("helps", "hurts"))
    key = slug.replace("-", "_")
    said = {figure: verdict(made_up(**{key: figure}), rung, language) for figure in (2.5, 2.995, 3.005, 3.5)}
    assert helps in said[2.5]
    assert hurts in said[3.5]
    for figure in (2.995, 3.005):
        assert say("unclear", language) in said[figure]
        assert helps not in said[figure]
        assert hurts not in said[figure]
    assert "0.500" in said[2.5]
    assert "0.500" in said[3.5]


def test_the_step_at_which_a_rung_passes_the_bigram() -> None:
    """The first validation below the lowest of the bigram, whose curve is measured on the same text."""
    record = made_up()
    assert record.passes_bigram(RUNGS[3]) is None, "3.0 is not below 3.0"
    faster = dataclasses.replace(
        record.results[3],
        curve=tuple(Point(tokens=n * 2048, seconds=1.0 * n, nats_per_char=4.0 - n) for n in (1, 2, 3)),
    )
    record = dataclasses.replace(record, results=(*record.results[:3], faster, *record.results[4:]))
    assert record.passes_bigram(RUNGS[3]) == 2
    rows = report.table(record, "en")[1]
    assert [row[4] for row in rows[:5]] == ["", "not yet", "not yet", "step 2", "not yet"]
    assert "From step 2 on" in verdict(record, RUNGS[3], "en")


def test_less_text_and_the_bigram_are_told() -> None:
    record = made_up(bigram=2.0)
    slow = dataclasses.replace(record.results[5], tokens=40_000)
    record = dataclasses.replace(record, results=(*record.results[:5], slow, *record.results[6:]))
    sentences = {rung.slug: verdict(record, rung, "en") for rung in RUNGS}
    assert "40% as much text" in sentences["stacked"]
    assert sum("as much text" in sentence for sentence in sentences.values()) == 1
    assert [slug for slug in SLUGS if "still 1.000 higher than that of the bigram" in sentences[slug]] == SLUGS[2:6]


@languages
def test_too_few_steps_are_no_reason(language: Language) -> None:
    """After two steps a rung was said to help by 0.9 nats, and why: the figure was that of its first weights."""
    record = made_up(many_heads=2.0)
    short = dataclasses.replace(record.results[3], steps=99)
    record = dataclasses.replace(record, results=(*record.results[:3], short, *record.results[4:]))
    sentence = say("few_steps", language, steps=99, enough=100)
    said = {rung.slug: verdict(record, rung, language) for rung in RUNGS}
    assert [slug for slug in SLUGS if sentence in said[slug]] == SLUGS[3:5], "nor is it one for the rung after it"
    assert RUNGS[3].reason(1).said(language) not in said["many-heads"]
    first = dataclasses.replace(record.results[0], steps=2)
    assert "100" in verdict(dataclasses.replace(record, results=(first,)), RUNGS[0], language)


@languages
def test_the_table(climbed: tuple[Path, list[LadderEvent]], language: Language) -> None:
    record = LadderRecord.read(climbed[0])
    lines = report.markdown_table(record, language).splitlines()
    assert len(lines) == 18
    assert {line.count("|") for line in lines} == {8}
    cells = [cell.strip() for cell in lines[4].split("|")[1:-1]]
    before, result = record.results[1], record.results[2]
    change = result.nats_per_char - before.nats_per_char
    assert cells[0] == f"3 {RUNGS[2].title.said(language)}"
    assert cells[1:3] == [f"{result.parameters:,}", f"{result.nats_per_char:.3f}"]
    assert cells[3] == f"{'+' if change > 0 else '−'}{abs(change):.3f}"


@languages
def test_the_report_tells_each_rung(climbed: tuple[Path, list[LadderEvent]], language: Language) -> None:
    record = LadderRecord.read(climbed[0])
    text = report.report(record, language)
    assert (climbed[0] / "ladder.md").read_text(encoding="utf-8") == report.report(record, "en")
    assert "](ladder.png)" in text
    assert report.markdown_table(record, language) in text
    for number, rung in enumerate(RUNGS, 1):
        figure = record.results[number - 1].nats_per_char
        assert f"\n### {number} {rung.title.said(language)}: {figure:.3f}\n\n{rung.adds.said(language)}\n" in text
        assert verdict(record, rung, language) in text
    assert "jumok learn ladder tales.txt --steps-per-rung 4" in text


def test_what_comes_from_a_text_is_no_markup() -> None:
    """A file's name and a sample could hold HTML, Markdown and control characters."""
    evil = '<img src=x onerror="alert(1)">'
    record = made_up()
    first = dataclasses.replace(record.results[0], after=f"{evil}\n\n# 제목\x1b[2J\u2028끝")
    record = dataclasses.replace(
        record, results=(first, *record.results[1:]), asked=(evil,),
        text=TextFacts(sources=(evil,), sha256="0" * 64, chars=1000),
    )  # fmt: skip
    lines = report.report(record, "en").split("\n")
    assert [line for line in lines if evil in line] == [f"    {evil}"], "in the code block of the sample alone"
    assert '# The ladder: \\<img src=x onerror="alert(1)"\\>' in lines
    assert "    # 제목\ufffd[2J\ufffd끝" in lines


def test_a_ladder_that_is_not_finished_says_so() -> None:
    record = dataclasses.replace(made_up(), results=made_up().results[:3])
    text = report.report(record, "en")
    assert "Rungs still to come: 13." in text
    assert text.endswith("    jumok generate OUT/03-one-head 그날\n")
    assert "Rungs still to come" not in report.report(made_up(), "en")


# --- the picture ---


def curves(count: int) -> dict[str, tuple[list[float], list[float]]]:
    return {f"{n} 칸 {n}.00": ([1.0, 2.0, 3.0], [7.0, 5.0, 5.0 - n / 10]) for n in range(count)}


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_the_picture_is_small(tmp_path: Path) -> None:
    path = tmp_path / "ladder.png"
    draw_ladder(curves(16), path, x_label="초", y_label="손실", floor=("바닥", 3.0))
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[16:20]) > int.from_bytes(content[20:24])
    assert len(content) < 200_000


# --- the terminal ---


@languages
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_fits_the_terminal(
    language: Language, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a narrow terminal without the last columns, and no row broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    show_ladder(made_up(bigram=12.345), language)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 17
    assert max(cell_len(line) for line in lines) <= width
    assert ("12,346" in lines[1]) is (width >= 74)
    assert ("100,000" in lines[1]) is (width >= 86)


@pytest.fixture
def ladder(jumok: Jumok, own_folder: Path, monkeypatch: pytest.MonkeyPatch, tales: str) -> Jumok:
    """`jumok learn ladder` in a folder of its own with tales.txt in it, its models tiny."""
    Path("tales.txt").write_text(tales, encoding="utf-8")
    tiny = {key: value for key, value in TINY_LADDER.items() if key != "steps_per_rung"}

    class Tiny(LadderConfig):
        def __new__(cls, **asked: Any) -> Any:
            return LadderConfig(**tiny, **asked)

    monkeypatch.setattr(rungs, "LadderConfig", Tiny)

    return partial(jumok, "learn", "ladder")


@pytest.mark.long
def test_the_command(ladder: Jumok) -> None:
    """Plain lines on a pipe, the table on stdout; and once more in the other language, with nothing trained again."""
    end = ladder("tales.txt", "--steps-per-rung", 2, "--lang", "en")
    assert end.code == 0
    assert len(end.out.splitlines()) == 17
    assert "16 heads that look back" in end.out
    assert "\x1b" not in end.out + end.err
    assert end.err.count(" parameters\n") == 16
    assert "50% · step 1" in end.err
    assert "runs/ladder/ladder.md" in end.err
    again = ladder("tales.txt", "--steps-per-rung", 2, "--lang", "ko", "--json", "--quiet")
    assert (again.code, again.err) == (0, "")
    summary = json.loads(again.out)
    assert [each["slug"] for each in summary["rungs"]] == SLUGS
    assert summary["reason"] == "done"
    assert [Path(path).name for path in summary["files"]] == ["ladder.json", "ladder.md", "ladder.png"]
    assert Path("runs/ladder/ladder.md").read_text(encoding="utf-8").startswith("# 사다리: tales.txt")
    assert [path.name for path in Path("runs").iterdir()] == ["ladder"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_names_the_command_that_continues(
    ladder: Jumok, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    taken: list[int] = []
    take_step = Loop.take_step

    def signalled(self: Loop, rate: float) -> Step:
        taken.append(1)
        if len(taken) == 5:  # in the third rung
            os.kill(os.getpid(), number)
        return take_step(self, rate)

    monkeypatch.setattr(Loop, "take_step", signalled)
    end = ladder("tales.txt", "--steps-per-rung", 2, "--out", "my ladder", "--seed", 3, "--lang", "en")
    assert (end.code, end.out) == (130, "")
    command = end.err.splitlines()[-1].strip()
    assert command == "jumok learn ladder tales.txt --out 'my ladder' --lang en --steps-per-rung 2 --seed 3"
    assert Path("my ladder/ladder.md").is_file()
    end = ladder(*shlex.split(command)[3:])
    assert end.code == 0
    assert "1/16 bigram: finished before" in end.err
    assert "continues after step 1" in end.err
    assert len(taken) == 32


@pytest.mark.long
def test_texts_in_other_ways(ladder: Jumok, tales: str) -> None:
    end = ladder("-", "--steps-per-rung", 1, "--out", "piped", "--json", "--quiet", stdin=tales.encode("cp949"))
    assert end.code == 0
    assert LadderRecord.read(Path("piped")).command == "jumok learn ladder - --steps-per-rung 1"
    with Path("rows.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["본문"], *([line] for line in tales.split("\n"))])
    end = ladder("rows.csv", "--column", "본문", "--steps-per-rung", 1, "--out", "rows", "--json", "--quiet")
    assert end.code == 0
    assert LadderRecord.read(Path("rows")).command == "jumok learn ladder rows.csv --column=본문 --steps-per-rung 1"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.txt"], 1, r"absent\.txt does not exist"),
        (["short.txt"], 1, r"too short for the ladder: it takes at least \d+"),
        (["tales.txt", "--out", "tales.txt/out"], 1, "cannot use tales.txt/out for the ladder: Not a directory"),
        (["tales.txt", "--minutes-per-rung", "0"], 2, "must be more than 0"),
        (["tales.txt", "--minutes-per-rung", "1", "--steps-per-rung", "1"], 2, "give one"),
        (["tales.txt", "--device", "tpu"], 2, "device='tpu' is not known"),
        (["tales.txt", "--seed", "-1"], 2, "seed=-1"),
        (["tales.txt", "--column", "text"], 1, ".csv, .tsv, .parquet have columns"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input(ladder: Jumok, arguments: list[str], code: int, message: str) -> None:
    Path("short.txt").write_text("짧은 글이에요.", encoding="utf-8")
    end = ladder(*arguments)
    assert end.code == code
    assert re.search(message, end.err), end.err
    assert end.out == ""
    assert not Path("runs").exists()


def test_control_characters_of_a_sample_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A text can hold escape sequences, and then a model writes them."""
    result = dataclasses.replace(made_up().results[0], after="글\x1b[2J\x07자\n둘째 줄")
    with LadderView("ko") as view:
        view.show(RungFinished(number=1, rung=RUNGS[0], folder=Path("x"), result=result, meaning="뜻", earlier=False))
    shown = capsys.readouterr().err
    assert "글␛[2J␇자 ⏎ 둘째 줄" in shown
    assert "\x1b" not in shown


# --- the chapter ---


@languages
def test_the_chapter_has_the_published_figures(language: Language) -> None:
    """Its table is that of published.json, whose curves end near the losses of the table, with all rungs."""
    page = chapter("ladder", language).text
    [table] = re.findall(r"^<!-- ladder:begin -->\n((?:\|.*\n)*)<!-- ladder:end -->$", page, re.MULTILINE)
    assert table == published_table(language)
    figures = published()
    assert list(figures) == SLUGS
    for each in figures.values():
        assert len(each["curve"]["steps"]) == len(each["curve"]["nats_per_char"]) == 20
        mean = sum(each["nats_per_char"]) / len(each["nats_per_char"])
        assert abs(each["curve"]["nats_per_char"][-1] - mean) < 0.2
    classic = LadderConfig(steps_per_rung=400, n_embd=64, context_length=64)
    for rung in RUNGS:
        assert build(classic.model(rung, 867)).parameter_count() == figures[rung.slug]["parameters"]
