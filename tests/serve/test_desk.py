"""The desk: run folders as they are trained, texts, trainings that it starts, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient
from served_runs import random_model

import jumok
from jumok.cli import interrupts
from jumok.config import GPTConfig
from jumok.course.ladder.results import LadderRecord, TextFacts
from jumok.course.ladder.rungs import LadderConfig
from jumok.errors import ConfigError
from jumok.files import is_locked, locked
from jumok.runs.folder import RunFolder
from jumok.runs.stopping import is_training, stop_file
from jumok.serve.app import create_app
from jumok.serve.desk import curves, jobs
from jumok.serve.desk.curves import Curve, Tail, thinned
from jumok.serve.desk.curves import number as curve_of
from jumok.serve.desk.folders import RunFolders
from jumok.serve.desk.uploads import Uploads
from jumok.serve.limits import limited
from jumok.serve.metrics import Metrics
from jumok.serve.models import Models
from jumok.serve.refused import Refused
from jumok.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

TEXT = "그날 밤 나는 집에 갔다. 달이 떴다.\n" * 5
OCTETS = {"content-type": "application/octet-stream"}


def step(number: int, loss: float | None = 2.0, **fields: Any) -> dict[str, Any]:
    rest = {"rate": 1.0, "seconds": float(number), "progress": 0.5, "remaining": 9.0, "tokens_per_second": 1000.0}
    return {"event": "step", "step": number, "loss": loss, **rest, **fields}


def validation(number: int, loss: float) -> dict[str, Any]:
    figures = {"loss": loss, "nats_per_char": loss}
    return {"event": "eval", "step": number, "figures": figures, "headline": f"{loss}", "best": True, "seconds": 1.0}


def log(folder: Path, *events: object, end: str = "\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in events]
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write("\n".join(lines) + end)


def trained(folder: Path, *, finished: bool = False) -> Path:
    """A run folder, without a state."""
    jumok.save(random_model(GPTConfig, TEXT, [], seed=1), folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"train": {"task": "lm", "steps": 10}, "data": {"floor": 0.5, "sources": ["a.txt"]}}
    if finished:
        config["finished"] = {"step": 10, "reason": "done"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "state").mkdir(exist_ok=True)
    log(folder, step(1, 3.0), step(2, 2.5), validation(2, 2.4), {"event": "sample", "step": 2, "text": "달이"})
    return folder


class Desk:
    """A server with a folder of runs, behind all limits."""

    def __init__(self, root: Path | None, named: tuple[Path, ...] = (), **settings: Any) -> None:
        chosen = ServeSettings(slots=2, timeout=20, **settings)
        self.models = Models(list(named), chosen)
        app = limited(create_app(self.models, chosen, None, RunFolders(named, root)), chosen, Metrics())
        self.http = TestClient(app, base_url="http://127.0.0.1:8000")

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.http.get(f"/v1/jumok/{path}", **given)

    def post(self, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return self.http.post(f"/v1/jumok/{path}", json=body, **given)

    def upload(self, content: bytes, name: str = "소설.txt", **given: Any) -> httpx2.Response:
        return self.http.post("/v1/jumok/uploads", params={"name": name}, content=content, headers=OCTETS, **given)

    def run(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(one for one in self.get("runs").json()["runs"] if one["name"] == name)
        return found

    def ended(self) -> dict[str, Any]:
        """Ask for the only training that was started until its process has ended."""
        for _ in range(600):
            (pending,) = self.get("runs").json()["pending"]
            if pending["code"] is not None:
                return dict(pending)
            time.sleep(0.1)
        raise AssertionError("the process has not ended")

    def until(self, name: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask for a run until it is as wanted."""
        for _ in range(600):
            listed = self.get("runs").json()
            found = next((one for one in listed["runs"] if one["name"] == name), None)
            if found is not None and wanted(found):
                return dict(found)
            assert all(one["code"] is None for one in listed["pending"]), listed["pending"]
            time.sleep(0.2)
        raise AssertionError(f"{name} has not become what was wanted")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def desk(root: Path) -> Iterator[Desk]:
    found = Desk(root)
    yield found
    found.models.close(finish=False)


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk with a run, a run outside, and links; requests that are refused leave all of it as it is."""
    root = tmp_path_factory.mktemp("steady") / "runs"
    for folder in (root / "novel", root.parent / "secret"):
        trained(folder)
    (root / "link").symlink_to(root.parent / "secret", target_is_directory=True)
    (root / ".uploads").mkdir()
    (root / ".uploads" / "link.txt").symlink_to(root / "novel" / "config.json")
    found = Desk(root)
    before = sorted(root.parent.rglob("*"))
    yield found
    found.models.close(finish=False)
    assert sorted(root.parent.rglob("*")) == before


def refused(response: httpx2.Response, status: int, code: str | None = None) -> str:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert "Traceback" not in error["message"]
    assert code is None or error["code"] == code
    return str(error["message"])


# --- logs -------------------------------------------------------------------------------------------------------------


def test_a_log_is_read_as_it_grows(root: Path) -> None:
    tail = Tail(root / "metrics.jsonl")
    assert list(tail.read()) == []
    log(root, step(1), end="\n" + json.dumps(step(2))[:20])
    assert [event and event["step"] for event in tail.read()] == [1]
    log(root, json.dumps(step(2))[20:], "no JSON", "[" * 100_000, {"event": "step"}, [1], step(3))
    assert [event and event["step"] for event in tail.read()] == [2, 3]
    assert list(tail.read()) == []


def test_a_log_that_was_cut_is_read_again(root: Path) -> None:
    """A resumed run cuts its log and appends; by the next look it may be longer than it was."""
    log(root, *map(step, range(1, 6)))
    tail = Tail(root / "metrics.jsonl")
    assert len(list(tail.read())) == 5
    path = root / "metrics.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    log(root, *[step(number, 1.0) for number in range(4, 9)])
    again = list(tail.read())
    assert again[0] is None
    assert [event["step"] for event in again[1:] if event] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_long_curve_has_few_points(root: Path) -> None:
    log(root, *[step(number, float(number)) for number in range(1, 5001)], step(5001, None))
    curve = Curve(Tail(root / "metrics.jsonl"))
    curve.update()
    points = curve.train()
    assert curves.POINTS / 2 <= len(points) <= curves.POINTS
    assert points[-1][0] == 5000  # the step without a finite loss is left out
    means = [(one[0] + other[0] + 1) / 2 for one, other in zip([[0], *points[:-1]], points, strict=True)]
    assert [point[2] for point in points] == pytest.approx(means)
    assert curve.last is not None
    assert curve.last["loss"] is None


def test_thinned() -> None:
    assert thinned([1, 2, 3], 3) == [1, 2, 3]
    assert thinned(list(range(10)), 3) == [2, 5, 9]


# --- run folders ------------------------------------------------------------------------------------------------------


def test_states(desk: Desk, root: Path) -> None:
    trained(root / "stopped")
    trained(root / "ended", finished=True)
    jumok.save(random_model(GPTConfig, TEXT, [], seed=1), root / "saved")
    (root / "begun" / "state").mkdir(parents=True)
    (root / "begun" / "state" / "lock").touch()
    (root / "torn").mkdir()
    (root / "torn" / "config.json").write_text('{"format": 1', encoding="utf-8")
    (root / "other").mkdir()
    with locked(root / "begun" / "state" / "lock"), locked(root / "ended" / "state" / "lock"):
        found = {one["name"]: one["state"] for one in desk.get("runs").json()["runs"]}
    assert found == {
        "begun": "starting", "ended": "running", "saved": "model", "stopped": "stopped", "torn": "damaged",
    }  # fmt: skip


def test_a_run_with_its_curve(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    found = desk.get("run", params={"name": "novel"}).json()
    assert [point[::2] for point in found["train_curve"]] == [[1, 3.0, 1000.0], [2, 2.5, 1000.0]]
    assert [(one["step"], one["figures"]["loss"]) for one in found["validations"]] == [(2, 2.4)]
    assert [one["text"] for one in found["samples"]] == ["달이"]
    assert (found["kind"], found["n_layer"], found["floor"], found["servable"]) == ("gpt", 1, 0.5, True)
    assert found["config"]["train"] == {"task": "lm", "steps": 10}
    assert found["place"] == (root / "novel" / "metrics.jsonl").stat().st_size
    log(root / "novel", step(3, 2.0))
    assert desk.run("novel")["last"]["step"] == 3
    assert desk.run("novel")["spark"] == [3.0, 2.5, 2.0]


def test_the_verdict_on_a_run(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    assert desk.get("run", params={"name": "novel"}).json()["verdict"] is None
    kept = {"event": "sample", "step": 1, "text": "밤", "kept": True}
    log(root / "novel", kept, {"event": "verdict", "step": 2, "kind": "too_short", "numbers": {}})
    found = desk.get("run", params={"name": "novel"}).json()
    assert found["verdict"] == "too_short"
    assert [one["kept"] for one in found["samples"]] == [False, True]
    log(root / "novel", {"event": "stage", "step": 2})
    assert desk.get("run", params={"name": "novel"}).json()["verdict"] is None


def test_a_config_of_a_stranger(desk: Desk, root: Path) -> None:
    """A run whose values have wrong types is shown as damaged; nothing fails."""
    content = {
        "format": 1, "model": {"type": ["x"], "n_layer": {"a": 1}}, "tokenizer": {"kind": 5, "vocab_size": "x"},
        "train": 3, "data": [1], "stages": [7], "finished": "yes",
    }  # fmt: skip
    (root / "odd").mkdir(parents=True)
    (root / "odd" / "config.json").write_text(json.dumps(content), encoding="utf-8")
    found = desk.run("odd")
    assert (found["state"], found["n_layer"], found["parameters"]) == ("damaged", None, None)
    assert desk.get("run", params={"name": "odd"}).status_code == 200


@pytest.mark.parametrize("name", ["../secret", "..", ".", "", "novel/../novel", "/etc", "link", "novel\0", "x" * 400])
def test_names_are_no_paths(steady: Desk, name: str) -> None:
    refused(steady.get("run", params={"name": name}), 404, "run_not_found")
    refused(steady.get("events", params={"name": name}), 404)
    for path in ("runs/stop", "runs/resume", "runs/load", "runs/tokenize"):
        body = {"name": name, **({"text": "가"} if path == "runs/tokenize" else {})}
        assert steady.post(path, body).status_code in (400, 404, 422)


def test_a_run_that_vanishes(desk: Desk, root: Path) -> None:
    folder = trained(root / "novel")
    assert desk.run("novel")
    (folder / "metrics.jsonl").unlink()
    assert desk.get("run", params={"name": "novel"}).json()["last"]["step"] == 2  # what was read before
    folder.rename(root.parent / "elsewhere")
    assert desk.get("runs").json()["runs"] == []
    refused(desk.get("run", params={"name": "novel"}), 404)


def test_names_on_a_disk(desk: Desk, root: Path) -> None:
    """Letters of a syllable that a file system separates are found; what cannot be shown is left out."""
    trained(root / "소설")
    (root / ".hidden" / "state").mkdir(parents=True)
    (root / "a\nb" / "state").mkdir(parents=True)
    assert [one["name"] for one in desk.get("runs").json()["runs"]] == ["소설"]
    assert desk.get("run", params={"name": "소설"}).status_code == 200


def test_events_arrive_as_they_are_written(desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained(root / "novel")
    monkeypatch.setattr("jumok.serve.desk.routes.EVERY", 0.02)
    monkeypatch.setattr("jumok.serve.desk.routes.STREAM_SHARE", 0.02)  # of 20 seconds
    place = (folder / "metrics.jsonl").stat().st_size
    log(folder, step(3))
    text = desk.get("events", params={"name": "novel", "place": place}).text
    found = [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part.startswith("data")]
    news = [one for part in found for one in part["events"]]
    assert [one.get("step", one.get("state")) for one in news] == [3, "ended"]
    assert found[-1]["place"] == (folder / "metrics.jsonl").stat().st_size
    for place in (-1, 10**30):
        refused(desk.get("events", params={"name": "novel", "place": place}), 400)


def test_a_text_in_the_tokens_of_any_run(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    found = desk.post("runs/tokenize", {"name": "novel", "text": "밤😀"}).json()
    assert found["text"] == "밤😀"
    assert found["pieces"][0] | {"id": 0} == {"id": 0, "text": "밤", "start": 0, "end": 1}
    assert found["pieces"][-1]["end"] == 3
    (root / "novel" / "tokenizer.json").unlink()
    refused(desk.post("runs/tokenize", {"name": "novel", "text": "밤"}), 409)
    refused(desk.post("runs/tokenize", {"name": "novel", "text": "밤" * 100_001}), 400)


# --- models -----------------------------------------------------------------------------------------------------------


def test_runs_become_models_on_demand(root: Path) -> None:
    for name in ("a", "b", "c"):
        trained(root / name)
    desk = Desk(root, named=(root / "a",), max_added=1)
    encode = {"model": "b", "text": "밤"}
    try:
        refused(desk.post("engine/encode", encode), 404, "model_not_found")
        assert desk.post("runs/load", {"name": "b"}).json() == {"model": "b", "task": "lm"}
        assert desk.post("runs/load", {"name": "b"}).status_code == 200
        assert desk.post("engine/encode", encode).status_code == 200
        assert [one["name"] for one in desk.get("runs").json()["runs"] if one["served"]] == ["a", "b"]
        assert desk.post("runs/load", {"name": "c"}).status_code == 200  # in the place of b, which is not in use
        refused(desk.post("engine/encode", encode), 404)
        desk.models._runs["c"].wanted = 1
        refused(desk.post("runs/load", {"name": "b"}), 409, "too_many_models")
        refused(desk.post("runs/unload", {"name": "c"}), 409, "in_use")
        desk.models._runs["c"].wanted = 0
        refused(desk.post("runs/unload", {"name": "a"}), 409, "in_use")
        assert (desk.run("a")["named"], desk.run("c")["named"]) == (True, False)  # so no page offers to unload a
        assert desk.post("runs/unload", {"name": "c"}).status_code == 200
        (root / "c" / "tokenizer.json").unlink()
        refused(desk.post("runs/load", {"name": "c"}), 409, "damaged")
    finally:
        desk.models.close(finish=False)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("내 소설.txt", "내-소설"),
        ("../../etc/passwd", "passwd"),
        ("a\\..\\b.MD", "b"),
        ("run.sh", "run"),
        ("-rf.txt", "rf"),
        ("", "text"),
        ("\u202e\0\n<b>.txt", "b"),
        ("가" * 300, "가" * 40),
    ],
)
def test_uploads_have_names_of_the_server(desk: Desk, root: Path, name: str, kept: str) -> None:
    found = desk.upload(TEXT.encode("cp949"), name).json()
    assert found["upload"].startswith(f"{kept}-")
    assert Path(found["upload"]).suffix in (".txt", ".md")
    assert (found["encoding"].lower(), found["chars"]) == ("cp949", len(TEXT))
    assert [one.name for one in (root / ".uploads").iterdir()] == [found["upload"]]
    assert (root / ".uploads" / found["upload"]).stat().st_mode & 0o111 == 0
    assert desk.upload(TEXT.encode("cp949"), name).json()["upload"] == found["upload"]


def test_what_is_no_text_is_not_kept(desk: Desk, root: Path) -> None:
    refused(desk.upload(b"\x89PNG\r\n\x1a\n\0\0\0\xff\xfe\xfd" * 50), 400)
    refused(desk.upload(b""), 400)
    assert list((root / ".uploads").iterdir()) == []
    refused(desk.upload('"본문'.encode(), "t.csv"), 400)
    assert list((root / ".uploads").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "본문,수\n가나,1\n"),
        ("t.tsv", "본문\t수\n가나\t1\n"),
        ("t.jsonl", '{"본문": "가나", "수": 1}\n{"본문": "", "수": 2, "셋": 3}\n'),
    ],
)
def test_the_columns_of_a_table_are_named(desk: Desk, name: str, content: str) -> None:
    """They were to be typed by heart, before the page knew any of them."""
    table = desk.upload(content.encode("cp949"), name).json()
    assert table["columns"][:2] == ["본문", "수"]
    assert table["column"] is None
    assert "chars" not in table
    facts = desk.post("uploads/facts", {"upload": table["upload"], "column": "본문"}).json()
    assert (facts["chars"], facts["opening"], facts["column"]) == (2, "가나", "본문")
    if name.endswith("jsonl"):  # a column that holds no text can be exchanged for one that does
        facts = desk.post("uploads/facts", {"upload": table["upload"], "column": "수"}).json()
        assert "not text" in facts["error"]
        assert facts["columns"] == table["columns"] == ["본문", "수", "셋"]


def test_the_column_text_is_chosen(desk: Desk) -> None:
    table = desk.upload(b"label,text\nx,ab\n", "t.csv").json()
    assert (table["columns"], table["column"], table["opening"]) == (["label", "text"], "text", "ab")
    assert desk.upload(b"a plain text", "t.txt").json()["columns"] == []


def test_uploads_are_bounded(root: Path) -> None:
    desk = Desk(root, max_upload=1_000)
    refused(desk.upload(b"a" * 1_001), 413, "body_too_large")
    refused(desk.http.post("/v1/jumok/uploads", content=iter([b"a" * 600] * 2), headers=OCTETS), 413)
    for number in range(10):
        assert desk.upload(str(number).encode() * 999).status_code == 200
    refused(desk.upload(b"x" * 999), 413, "uploads_full")
    assert len(list((root / ".uploads").iterdir())) == 10


def test_few_uploads_at_once(root: Path) -> None:
    uploads = Uploads(root, 1_000)

    async def several() -> list[str]:
        go_on = asyncio.Event()

        async def slow(content: bytes) -> AsyncIterator[bytes]:
            yield content
            await go_on.wait()

        running = [asyncio.create_task(uploads.save("a.txt", slow(content))) for content in (b"a", b"b")]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="2 texts are being uploaded already") as refusal:
            await uploads.save("c.txt", slow(b"c"))
        assert (refusal.value.status, refusal.value.code) == (429, "busy")
        go_on.set()
        return [*await asyncio.gather(*running), await uploads.save("c.txt", slow(b"c"))]

    names = asyncio.run(several())
    assert sorted(names) == sorted(path.name for path in (root / ".uploads").iterdir())
    assert len(names) == 3


def test_what_a_killed_server_left_of_an_upload_is_removed(desk: Desk, root: Path) -> None:
    (root / ".uploads").mkdir(parents=True)
    old, new = (root / ".uploads" / f".{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half a te")
    os.utime(old, (0, 0))
    assert desk.upload(TEXT.encode()).status_code == 200
    assert not old.exists()
    assert new.exists(), "another server may be writing it"


@pytest.mark.parametrize("name", ["../novel/config.json", "x.txt", "", "a/b.txt", "link.txt"])
def test_only_uploads_are_trained_on(steady: Desk, name: str) -> None:
    for path in ("runs/start", "ladder/start", "plan"):
        body = {"text": name, **({} if path == "plan" else {"name": "new"})}
        refused(steady.post(path, body), 404, "no_upload")


# --- trainings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", ".x", "a/b", "a\\b", "--out", "a b", "x" * 61, "a\n", "\u202ea"])
def test_bad_names_of_new_runs(steady: Desk, name: str) -> None:
    refused(steady.post("runs/start", {"name": name}), 400, "bad_name")


@pytest.mark.parametrize(
    "body",
    [
        {"size": "huge"},
        {"size": ["nano"]},
        {"minutes": 0},
        {"minutes": 1e9},
        {"minutes": 1.0, "steps": 3},
        {"steps": "3; rm -rf /"},
        {"tokenizer": "../x.json"},
        {"device": "cuda"},
    ],
)
def test_bad_settings_of_new_runs(steady: Desk, body: dict[str, Any]) -> None:
    assert steady.post("runs/start", {"name": "new", **body}).status_code == 400


def test_a_taken_name(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    refused(desk.post("runs/start", {"name": "novel"}), 409, "name_taken")
    message = desk.post("runs/start", {"name": "novel"}, headers={"accept-language": "ko-KR,ko;q=0.9"})
    assert "이미" in refused(message, 409)


class Recorded(subprocess.Popen[bytes]):
    """A process that prints its arguments in the place of jumok."""

    commands: list[list[str]] = []  # noqa: RUF012

    def __init__(self, command: list[str], **given: Any) -> None:
        self.commands.append(command)
        assert "shell" not in given
        super().__init__([sys.executable, "-c", "raise SystemExit('no: this text is too short')"], **given)


def test_what_is_started(desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments are a list; what a failed start said is told until it is dismissed."""
    monkeypatch.setattr(Recorded, "commands", [])
    monkeypatch.setattr(jobs.subprocess, "Popen", Recorded)
    upload = desk.upload(TEXT.encode()).json()["upload"]
    body = {"name": "new", "text": upload, "column": "--evil", "size": "nano", "steps": 5, "tokenizer": "jamo"}
    assert desk.post("runs/start", body).json() == {"name": "new"}
    (command,) = Recorded.commands
    assert command[1:4] == ["-m", "jumok", "train"]
    assert command[4:] == [
        str(root / ".uploads" / upload), "--column=--evil", "--out", str(root / "new"), "--steps", "5",
        "--size", "nano", "--family", "modern", "--tokenizer", "jamo",
    ]  # fmt: skip
    pending = desk.ended()
    assert (pending["name"], pending["code"], pending["said"]) == ("new", 1, "no: this text is too short")
    assert desk.get("run", params={"name": "new"}).json() == {"name": "new", "started": pending}
    desk.post("runs/forget", {"name": "new"})
    assert desk.get("runs").json()["pending"] == []
    refused(desk.get("run", params={"name": "new"}), 404, "run_not_found")


def test_one_training_at_a_time(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    trained(root / "other")
    with locked(root / "novel" / "state" / "lock"):
        refused(desk.post("runs/start", {"name": "new"}), 409, "busy")
        refused(desk.post("runs/resume", {"name": "other"}), 409, "busy")
        refused(desk.post("runs/resume", {"name": "novel"}), 409, "running")
        refused(desk.post("ladder/start", {"name": "new"}), 409, "busy")
        assert desk.post("runs/stop", {"name": "novel"}).status_code == 200
        assert (root / "novel" / "state" / "stop").exists()
    refused(desk.post("runs/stop", {"name": "other"}), 409, "not_running")


@pytest.mark.long
def test_a_run_is_started_stopped_and_resumed(desk: Desk, root: Path) -> None:
    """Another server, which knows nothing of the first, shows the same and stops the run."""
    upload = desk.upload((TEXT * 200).encode()).json()["upload"]
    plan = desk.post("plan", {"text": upload, "size": "nano", "steps": 5, "tokenizer": "char"})
    assert plan.json()["steps"] == 5
    message = desk.post("plan", {"text": upload, "column": "x", "size": "nano"})
    assert message.status_code in (200, 400)
    body = {"name": "new", "text": upload, "size": "nano", "steps": 100_000}
    assert desk.post("runs/start", body).status_code == 200
    refused(desk.post("runs/start", {**body, "name": "second"}), 409, "busy")
    refused(desk.post("runs/start", body), 409, "name_taken")
    desk.until("new", lambda run: run["last"] is not None)
    other = Desk(root)
    assert other.run("new")["state"] == "running"
    assert other.post("runs/stop", {"name": "new"}).status_code == 200
    stopped = desk.until("new", lambda run: run["state"] == "stopped")
    assert desk.post("runs/resume", {"name": "new"}).status_code == 200
    desk.until("new", lambda run: run["last"]["step"] > stopped["last"]["step"])
    assert desk.post("runs/stop", {"name": "new"}).status_code == 200
    desk.until("new", lambda run: run["state"] == "stopped")
    found = {path.name for path in root.iterdir()}
    assert found == {"new", ".uploads", ".logs"}


# --- ladders ----------------------------------------------------------------------------------------------------------


def ladder(root: Path, asked: tuple[str, ...] = (), **reading: str) -> Path:
    folder = root / "ladder"
    folder.mkdir(parents=True)
    facts = TextFacts(sources=("a.txt",), sha256="0" * 64, chars=100)
    config = LadderConfig(minutes_per_rung=2.0)
    LadderRecord(config=config, text=facts, asked=asked, floor=0.3, **reading).write(folder)
    trained(folder / "01-bigram")
    return folder


def test_a_ladder_is_a_race(desk: Desk, root: Path) -> None:
    folder = ladder(root)
    found = desk.get("ladder", params={"name": "ladder"}).json()
    assert (found["state"], found["floor"], len(found["rungs"])) == ("stopped", 0.3, 10)
    assert [rung["state"] for rung in found["rungs"]] == ["stopped", *["waiting"] * 9]
    assert found["rungs"][0]["curve"] == [[2 * 16 * 128, 1.0, 2.4]]
    with locked(folder / ".lock"):
        listed = desk.get("runs").json()
        assert listed["ladders"] == [{"name": "ladder", "running": True}]
        assert [one["name"] for one in listed["runs"]] == ["ladder/01-bigram"]
        assert desk.get("ladder", params={"name": "ladder"}).json()["rungs"][0]["state"] == "running"
        refused(desk.post("ladder/resume", {"name": "ladder"}), 409, "running")
        assert desk.post("ladder/stop", {"name": "ladder"}).status_code == 200
        assert (folder / ".stop").exists()
    refused(desk.post("ladder/stop", {"name": "ladder"}), 409, "not_running")
    (folder / "ladder.json").write_text("{", encoding="utf-8")
    refused(desk.get("ladder", params={"name": "ladder"}), 409, "damaged")
    refused(desk.get("ladder", params={"name": "../ladder"}), 404)


def test_a_ladder_goes_on_with_its_text(desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder(root, ("novel-00000000.csv",), encoding="cp949", column="--evil")
    refused(desk.post("ladder/resume", {"name": "ladder"}), 404, "no_upload")
    (root / ".uploads").mkdir()
    (root / ".uploads" / "novel-00000000.csv").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(Recorded, "commands", [])
    monkeypatch.setattr(jobs.subprocess, "Popen", Recorded)
    assert desk.post("ladder/resume", {"name": "ladder"}).status_code == 200
    (command,) = Recorded.commands
    assert command[3:8] == [
        "learn", "ladder", str(root / ".uploads" / "novel-00000000.csv"), "--encoding=cp949", "--column=--evil",
    ]  # fmt: skip
    assert command[-4:] == ["--minutes-per-rung", "2", "--seed", "0"]
    assert desk.ended()["said"] == "no: this text is too short"


# --- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://pages.example"])
def test_pages_of_other_sites_are_refused(root: Path, origin: str) -> None:
    """Those that --cors allows, too: they may use the API, not the desk."""
    desk = Desk(root, cors=("https://pages.example",))
    headers = {"origin": origin}
    refused(desk.get("runs", headers=headers), 403, "origin_not_allowed")
    refused(desk.post("runs/start", {"name": "new"}, headers=headers), 403, "origin_not_allowed")
    asked = {**headers, "access-control-request-method": "POST"}
    assert desk.http.options("/v1/jumok/runs/start", headers=asked).status_code == 403
    assert desk.get("runs", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1"])
def test_other_names_of_this_machine_are_refused(steady: Desk, host: str) -> None:
    """A page whose name was made to point here (DNS rebinding) has its own name as Host."""
    refused(steady.get("runs", headers={"host": host}), 403, "host_not_allowed")
    refused(steady.http.get("/", headers={"host": host}), 403, "host_not_allowed")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_forms_of_other_sites_are_refused(steady: Desk, kind: str) -> None:
    for path in ("runs/start", "runs/stop", "uploads"):
        headers = {"content-type": kind}
        refused(steady.http.post(f"/v1/jumok/{path}", content=b'{"name": "new"}', headers=headers), 415)


def test_with_a_key_the_page_alone_is_open(root: Path) -> None:
    desk = Desk(root, keys=("secret",), host="0.0.0.0")
    assert desk.http.get("/").status_code == 200
    head = desk.http.head("/")  # link previews ask for it; it was refused with 405
    assert (head.status_code, head.content) == (200, b"")
    for path in ("runs", "desk"):
        refused(desk.get(path), 401, "invalid_api_key")
    refused(desk.post("runs/start", {"name": "new"}), 401)
    refused(desk.upload(b"text"), 401)
    key = {"authorization": "Bearer secret", "host": "models.example"}
    assert desk.get("desk", headers=key).json()["writes"] is True


def test_without_a_key_only_this_machine_is_served(root: Path) -> None:
    with pytest.raises(ConfigError, match="there is no API key"):
        Desk(root, host="0.0.0.0")


def test_without_a_folder_of_runs_nothing_is_started(root: Path) -> None:
    trained(root / "novel")
    desk = Desk(None, named=(root / "novel",))
    try:
        assert desk.get("desk").json()["writes"] is False
        assert desk.run("novel")["served"] is True
        refused(desk.post("runs/start", {"name": "new"}), 404)
        refused(desk.upload(b"text"), 404)
    finally:
        desk.models.close(finish=False)


def test_the_page_is_one_response(desk: Desk) -> None:
    page = desk.http.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    again = desk.http.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


# --- files that other processes see -----------------------------------------------------------------------------------


def test_a_look_at_a_lock_does_not_hold_it_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)
    assert not is_training(tmp_path)


def test_a_plan_ends_when_the_client_goes(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that measures is killed, so that it does not hold up what comes next."""
    ended = []

    class Slow:
        returncode = None

        async def communicate(self) -> tuple[bytes, bytes]:
            await asyncio.sleep(60)
            raise AssertionError

        def kill(self) -> None:
            ended.append("killed")

        async def wait(self) -> None:
            ended.append("waited")

    async def start(*command: str, **given: Any) -> Slow:
        return Slow()

    monkeypatch.setattr(jobs.asyncio, "create_subprocess_exec", start)
    monkeypatch.setattr(jobs, "PLAN_SECONDS", 0.1)
    assert desk.post("plan", {}).status_code >= 400
    assert ended == ["killed", "waited"]


def test_a_stop_file_ends_a_training_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "LOOK_SECONDS", 0.01)
    asked = threading.Event()

    class Training:
        def request_stop(self) -> None:
            asked.set()

    path = tmp_path / "stop"
    with interrupts.stopping(Training(), lambda said: None, stop_file=path):
        assert not asked.wait(0.05)
        path.touch()
        assert asked.wait(10)
    assert not path.exists()


def test_a_stop_file_of_an_earlier_training_is_removed(root: Path) -> None:
    folder = trained(root / "novel")
    stop_file(folder).touch()
    with RunFolder(folder).lock():
        assert not stop_file(folder).exists()


class Ended:
    """A process that has ended; `meanwhile` is what another request does while it is looked at."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def poll(self) -> int:
        self._meanwhile()
        return 0


def test_two_tabs_that_see_a_run_end(root: Path) -> None:
    """The list of runs failed in one of two tabs that saw the end of a run at once; a new start could be forgotten."""
    held = jobs.Jobs(root, RunFolders([], root), Uploads(root, 1000))
    started: Any = held._started
    started["a"] = Ended(lambda: started.pop("a"))
    assert held.pending() == []
    assert not started
    newer = Ended(lambda: None)
    started["a"] = Ended(lambda: started.update(a=newer))
    held.forget("a")
    assert started == {"a": newer}


def test_a_number_that_no_float_can_hold() -> None:
    """A line of metrics.jsonl with 400 digits raised OverflowError in the listing of all runs."""
    assert curve_of(10**400) is None
    assert (curve_of(3), curve_of(float("nan")), curve_of("3")) == (3.0, None, None)
