"""The desk: run folders as they are trained, texts, the training that it starts, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from served_runs import log, random_model, run_folder, step, until
from starlette.testclient import TestClient

import jumok
from jumok.config import GPTConfig
from jumok.errors import ConfigError
from jumok.files import is_locked, locked
from jumok.runs.folder import RunFolder, is_training, stop_file
from jumok.serve.app import create_app
from jumok.serve.desk import training
from jumok.serve.desk.curves import POINTS, read_curve
from jumok.serve.middleware import limited
from jumok.serve.run_folders import RunFolders
from jumok.serve.served_models import ServedModels
from jumok.serve.settings import ServeSettings
from jumok.view import trace as tracing

pytestmark = pytest.mark.slow

TEXT = "그날 밤 나는 집에 갔다. 달이 떴다.\n" * 5
OCTETS = {"content-type": "application/octet-stream"}


def trained(folder: Path, *, finished: bool = False) -> Path:
    return run_folder(folder, random_model(GPTConfig, TEXT, [], seed=1), "달이", finished=finished)


class Desk:
    """A server with a folder of runs, behind all limits."""

    def __init__(self, root: Path | None, named: tuple[Path, ...] = (), **settings: Any) -> None:
        chosen, folders = ServeSettings(slots=2, **settings), RunFolders(named, root)
        self.models = ServedModels(folders, chosen)
        app = limited(create_app(self.models, chosen, folders), chosen)
        self.http = TestClient(app, base_url="http://127.0.0.1:8000")

    def get(self, path: str, **given: Any) -> httpx2.Response:
        return self.http.get(f"/v1/jumok/{path}", **given)

    def post(self, path: str, body: Any = None, **given: Any) -> httpx2.Response:
        return self.http.post(f"/v1/jumok/{path}", json=body, **given)

    def upload(self, content: bytes, name: str = "소설.txt", **given: Any) -> httpx2.Response:
        return self.http.post("/v1/jumok/uploads", params={"name": name}, content=content, headers=OCTETS, **given)

    def run(self, name: str) -> dict[str, Any]:
        return dict(self.get("run", params={"name": name}).json())

    def started(self) -> Any:
        return self.get("runs").json()["started"]


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


# --- curves -----------------------------------------------------------------------------------------------------------


def test_a_log_is_read_as_it_grows(root: Path) -> None:
    path = root / "metrics.jsonl"
    assert read_curve(path).points == []
    log(root, step(1), end="\n" + json.dumps(step(2))[:20])
    assert [point[0] for point in read_curve(path).points] == [1]
    log(root, json.dumps(step(2))[20:], "no JSON", "[" * 100_000, {"event": "step"}, [1], step(3), step(4, 10**400))
    assert [point[0] for point in read_curve(path).points] == [1, 2, 3]


def test_a_long_curve_has_few_points(root: Path) -> None:
    log(root, *[step(number, float(number)) for number in range(1, 5001)], step(5001, None))
    curve = read_curve(root / "metrics.jsonl")
    points = curve.points
    assert POINTS / 2 <= len(points) <= POINTS
    assert points[-1][0] == 5000  # the step without a finite loss is left out
    means = [(one[0] + other[0] + 1) / 2 for one, other in zip([[0], *points[:-1]], points, strict=True)]
    assert [point[2] for point in points] == pytest.approx(means)
    assert curve.last is not None
    assert curve.last["loss"] is None


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
    found = desk.run("novel")
    assert [point[::2] for point in found["curve"]] == [[1, 3.0, 1000.0], [2, 2.5, 1000.0]]
    assert [(one["step"], one["figures"]["loss"]) for one in found["validations"]] == [(2, 2.4)]
    assert [one["text"] for one in found["samples"]] == ["달이"]
    assert (found["kind"], found["task"], found["n_layer"], found["floor"]) == ("gpt", "lm", 1, 0.5)
    assert (found["sources"], found["usable"], found["verdict"]) == (["a.txt"], True, None)
    assert found["config"]["train"] == {"task": "lm", "steps": 10}
    path = root / "novel" / "config.json"
    for task, told in (("chat", "chat"), ("chess", "lm"), ([], "lm")):  # what it learned; else what the model is
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "train": {"task": task}}))
        assert desk.run("novel")["task"] == told
    log(root / "novel", step(3, 2.0), {"event": "sample", "step": 1, "text": "밤", "kept": True})
    log(root / "novel", {"event": "verdict", "step": 2, "kind": "too_short", "numbers": {}})
    found = desk.run("novel")
    assert (found["last"]["step"], found["spark"], found["verdict"]) == (3, [3.0, 2.5, 2.0], "too_short")
    assert [one["kept"] for one in found["samples"]] == [False, True]


def test_a_config_of_a_stranger(desk: Desk, root: Path) -> None:
    """A run whose values have wrong types is shown as damaged; nothing fails."""
    content = {
        "format": 1, "model": {"type": ["x"], "n_layer": {"a": 1}}, "tokenizer": {"kind": 5, "vocab_size": "x"},
        "train": 3, "data": [1], "finished": "yes",
    }  # fmt: skip
    (root / "odd").mkdir(parents=True)
    (root / "odd" / "config.json").write_text(json.dumps(content), encoding="utf-8")
    found = desk.run("odd")
    assert (found["state"], found["n_layer"], found["parameters"]) == ("damaged", None, None)


@pytest.mark.parametrize("name", ["../secret", "", "novel/../novel", "link", "novel\0", "x" * 301])
def test_names_are_no_paths(steady: Desk, name: str) -> None:
    refused(steady.get("run", params={"name": name}), 404, "run_not_found")
    for path in ("jumok/runs/stop", "jumok/runs/resume", "completions", "jumok/view"):
        body = {"model": name, "prompt": "가"} if path == "completions" else {"model": name, "text": "가"}
        body = {"name": name} if "runs" in path else body
        assert steady.http.post(f"/v1/{path}", json=body).status_code in (400, 404)


def test_attention_is_recorded_beside_the_model_that_writes(
    desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks on the modules that a service runs would record, and slow down, the texts of others."""
    trained(root / "novel")
    traced: list[Any] = []
    trace = tracing.trace
    monkeypatch.setattr(
        tracing, "trace", lambda model, *given, **how: traced.append(model) or trace(model, *given, **how)
    )
    found = desk.post("view", {"model": "novel", "text": "그날 밤"})
    assert found.status_code == 200
    assert "<html" in found.text
    served = desk.models._runs["novel"].served
    assert served is not None
    assert traced[0] is not served.model
    assert next(traced[0].parameters()) is next(served.model.parameters())
    wrong = desk.post("view", {"model": "novel", "text": "그날", "target": "밤" * 2000})
    assert "target is for an encoder–decoder" in refused(wrong, 400)


def test_a_run_that_vanishes(desk: Desk, root: Path) -> None:
    folder = trained(root / "novel")
    assert desk.run("novel")
    (folder / "metrics.jsonl").unlink()
    assert desk.run("novel")["last"] is None
    folder.rename(root.parent / "elsewhere")
    assert desk.get("runs").json()["runs"] == []
    refused(desk.get("run", params={"name": "novel"}), 404)


def test_names_on_a_disk(desk: Desk, root: Path) -> None:
    """Letters of a syllable that a file system separates are found; what cannot be shown is left out."""
    trained(root / "소설")
    (root / ".hidden" / "state").mkdir(parents=True)
    (root / "a\nb" / "state").mkdir(parents=True)
    assert [one["name"] for one in desk.get("runs").json()["runs"]] == ["소설"]
    assert desk.run("소설")["name"] == "소설"


def test_runs_of_the_folder_are_models(root: Path) -> None:
    for name in ("a", "b"):
        trained(root / name)
    (root / "young" / "state").mkdir(parents=True)
    desk = Desk(root, named=(root / "b",))
    try:
        found = desk.http.get("/v1/models").json()["data"]
        assert [(one["id"], one["task"]) for one in found] == [("b", "lm"), ("a", "lm")]
        assert sorted(desk.models.counts()) == ["b"]  # the one that was named is loaded
        wanted = {"model": "a", "prompt": "밤", "max_tokens": 2}
        assert desk.http.post("/v1/completions", json=wanted).status_code == 200
        assert sorted(desk.models.counts()) == ["a", "b"]
        refused(desk.http.post("/v1/completions", json={**wanted, "model": "young"}), 404, "model_not_found")
        (root / "new").mkdir()
        (root / "a" / "tokenizer.json").unlink()
        trained(root / "c")
        (root / "c" / "tokenizer.json").unlink()
        refused(desk.http.post("/v1/completions", json={**wanted, "model": "c"}), 500)
    finally:
        desk.models.close(finish=False)


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("내 소설.txt", "내-소설.txt"),
        ("../../etc/passwd", "passwd.txt"),
        ("a\\..\\-b.MD", "b.md"),
        ("", "text.txt"),
        ("\u202e\0\n<b>.txt", "b.txt"),
        ("가" * 300, "가" * 40 + ".txt"),
    ],
)
def test_uploads_have_names_of_the_server(desk: Desk, root: Path, name: str, kept: str) -> None:
    for _ in range(2):  # a text of the same name is replaced
        found = desk.upload(TEXT.encode("cp949"), name).json()
        assert (found["upload"], found["columns"]) == (kept, [])
        assert (found["encoding"].lower(), found["chars"]) == ("cp949", len(TEXT))
        assert [one.name for one in (root / ".uploads").iterdir()] == [kept]
    assert (root / ".uploads" / kept).stat().st_mode & 0o111 == 0


def test_what_is_no_text_is_not_kept(desk: Desk, root: Path) -> None:
    refused(desk.upload(b"\x89PNG\r\n\x1a\n\0\0\0\xff\xfe\xfd" * 50), 400)
    refused(desk.upload(b""), 400)
    refused(desk.upload('"본문'.encode(), "t.csv"), 400)
    assert list((root / ".uploads").iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("t.csv", "본문,수\n가나,1\n", ["본문", "수"]),
        ("t.tsv", "본문\t수\n가나\t1\n", ["본문", "수"]),
        ("t.jsonl", '{"본문": "가나", "수": 1}\n{"본문": "", "수": 2, "셋": 3}\n', ["본문", "수", "셋"]),
    ],
)
def test_the_columns_of_a_table_are_named(desk: Desk, name: str, content: str, columns: list[str]) -> None:
    assert desk.upload(content.encode("cp949"), name).json() == {"upload": name, "columns": columns}


def test_uploads_are_bounded(root: Path) -> None:
    desk = Desk(root, max_upload=1_000)
    refused(desk.upload(b"a" * 1_001), 413, "body_too_large")
    refused(desk.http.post("/v1/jumok/uploads", content=iter([b"a" * 600] * 2), headers=OCTETS), 413)
    assert list((root / ".uploads").iterdir()) == []


# --- the training -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../novel/config.json", "x.txt", "", "a/b.txt", "link.txt"])
def test_only_uploads_are_trained_on(steady: Desk, name: str) -> None:
    refused(steady.post("runs/start", {"text": name, "name": "new"}), 404, "no_upload")


@pytest.mark.parametrize("name", ["", "..", ".x", "a/b", "--out", "x" * 61, "a\n"])
def test_bad_names_of_new_runs(steady: Desk, name: str) -> None:
    refused(steady.post("runs/start", {"name": name}), 400, "bad_name")


@pytest.mark.parametrize(
    "body",
    [
        {"size": "huge"},
        {"minutes": 0},
        {"minutes": 1e9},
        {"minutes": "3; rm -rf /"},
        {"tokenizer": "../x.json"},
        {"task": "chess"},
        {"columns": {"text": "본문"}},
        {"columns": {"out": "/tmp"}, "task": "classify"},
        {"columns": {"text": "본문"}, "task": "chat"},
        {"device": "cuda"},
    ],
)
def test_bad_settings_of_new_runs(steady: Desk, body: dict[str, Any]) -> None:
    refused(steady.post("runs/start", {"name": "new", **body}), 400)


def test_a_taken_name(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    refused(desk.post("runs/start", {"name": "novel"}), 409, "name_taken")
    message = desk.post("runs/start", {"name": "novel"}, headers={"accept-language": "ko-KR,ko;q=0.9"})
    assert "이미" in refused(message, 409)


class Recorded(subprocess.Popen[bytes]):
    """A process that says why it fails in the place of jumok."""

    commands: list[list[str]] = []  # noqa: RUF012

    def __init__(self, command: list[str], **given: Any) -> None:
        self.commands.append([*command, given["env"]["JUMOK_LANG"]])
        assert "shell" not in given
        super().__init__([sys.executable, "-c", "raise SystemExit('no: this text is too short')"], **given)


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({}, ["--task=lm", "--minutes=10"]),
        ({"task": "mlm", "columns": {"column": "--evil"}}, ["--task=mlm", "--minutes=10", "--column=--evil"]),
        (
            {"task": "classify", "columns": {"text": "본문", "label": "점"}, "size": "nano", "minutes": 0.5},
            ["--task=classify", "--size=nano", "--minutes=0.5", "--text=본문", "--label=점"],
        ),
        (
            {"task": "seq2seq", "columns": {"source": "a", "target": "b"}, "tokenizer": "jamo"},
            ["--task=seq2seq", "--tokenizer=jamo", "--minutes=10", "--source=a", "--target=b"],
        ),
        ({"task": "chat"}, ["--task=chat", "--minutes=10"]),
    ],
    ids=["lm", "mlm", "classify", "seq2seq", "chat"],
)
def test_what_is_started(
    desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], options: list[str]
) -> None:
    """The arguments are a list; what a failed start said is told until the next one."""
    monkeypatch.setattr(Recorded, "commands", [])
    monkeypatch.setattr(training.subprocess, "Popen", Recorded)
    upload = desk.upload(TEXT.encode()).json()["upload"]
    asked = {"name": "new", "text": upload, **body}
    assert desk.post("runs/start", asked, headers={"accept-language": "ko"}).json() == {"name": "new"}
    (command,) = Recorded.commands
    assert command[1:] == [
        "-m", "jumok", "train", str(root / ".uploads" / upload), "--out", str(root / "new"), *options, "ko",
    ]  # fmt: skip
    until(lambda: desk.started()["code"] is not None)
    failed = {"name": "new", "code": 1, "said": "no: this text is too short"}
    assert desk.started() == failed
    assert desk.run("new") == {"name": "new", "started": failed}


def test_one_training_at_a_time(desk: Desk, root: Path) -> None:
    trained(root / "novel")
    trained(root / "other")
    with locked(root / "novel" / "state" / "lock"):
        refused(desk.post("runs/start", {"name": "new"}), 409, "busy")
        refused(desk.post("runs/resume", {"name": "other"}), 409, "busy")
        refused(desk.post("runs/resume", {"name": "novel"}), 409, "busy")
        assert desk.post("runs/stop", {"name": "novel"}).status_code == 200
        assert (root / "novel" / "state" / "stop").exists()
    refused(desk.post("runs/stop", {"name": "other"}), 409, "not_running")


@pytest.mark.long
def test_a_run_is_started_stopped_and_resumed(desk: Desk, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server, which knows nothing of the first, shows the same and stops the run."""
    processes: list[subprocess.Popen[bytes]] = []
    start = training.subprocess.Popen
    monkeypatch.setattr(
        training.subprocess, "Popen", lambda *a, **given: processes.append(start(*a, **given)) or processes[-1]
    )
    table = "글,점\n" + "".join(f"{word},{label}\n" for word, label in (("좋아요", 1), ("싫어요", 0)) * 200)
    upload = desk.upload(table.encode(), "평.csv").json()["upload"]
    body = {"name": "new", "text": upload, "size": "nano", "minutes": 50.0, "task": "classify"}
    assert desk.post("runs/start", {**body, "columns": {"text": "글", "label": "점"}}).status_code == 200
    refused(desk.post("runs/start", {**body, "name": "second"}), 409, "busy")

    def state() -> Any:
        return (desk.run("new").get("state"), (desk.run("new").get("last") or {}).get("step", 0))

    until(lambda: state()[1] > 0)
    refused(desk.post("runs/start", body), 409, "name_taken")
    other = Desk(root)
    assert other.run("new")["state"] == "running"
    assert other.post("runs/stop", {"name": "new"}).status_code == 200
    until(lambda: state()[0] == "stopped")
    stopped = state()
    assert desk.post("runs/resume", {"name": "new"}).status_code == 200
    until(lambda: state()[0] == "running" and state()[1] > stopped[1])
    assert desk.post("runs/stop", {"name": "new"}).status_code == 200
    until(lambda: state()[0] == "stopped")
    assert {path.name for path in root.iterdir()} == {"new", ".uploads", ".logs"}
    assert [process.wait(60) for process in processes] == [
        130,
        130,
    ]  # a training ends some time after its state says so


# --- who may ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://pages.example"])
def test_pages_of_other_sites_are_refused(root: Path, origin: str) -> None:
    """Those that --cors allows, too: they may use the API, not the desk."""
    desk = Desk(root, cors=("https://pages.example",))
    headers = {"origin": origin}
    refused(desk.get("runs", headers=headers), 403, "origin_not_allowed")
    refused(desk.post("runs/start", {"name": "new"}, headers=headers), 403, "origin_not_allowed")
    assert desk.get("runs", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_forms_of_other_sites_are_refused(steady: Desk, kind: str) -> None:
    for path in ("runs/start", "runs/stop", "uploads"):
        headers = {"content-type": kind}
        refused(steady.http.post(f"/v1/jumok/{path}", content=b'{"name": "new"}', headers=headers), 400)


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
    desk = Desk(None, named=(trained(root / "novel"),))
    try:
        assert desk.get("desk").json()["writes"] is False
        assert desk.run("novel")["usable"] is True
        refused(desk.post("runs/start", {"name": "new"}), 404)
        refused(desk.upload(b"text"), 404)
    finally:
        desk.models.close(finish=False)


# --- pages ------------------------------------------------------------------------------------------------------------


def test_the_page_is_one_response(desk: Desk) -> None:
    page = desk.http.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "http" not in policy
    again = desk.http.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_weights_leave_only_where_that_is_allowed(root: Path) -> None:
    folder = trained(root / "novel")
    for share in (False, True):
        desk = Desk(None, named=(folder,), share=share)
        try:
            assert desk.get("desk").json()["shares"] is share
            seen = desk.post("view", {"model": "novel", "text": "달이 떴다"}, headers={"accept-language": "ko"})
            assert seen.headers["content-type"] == "text/html; charset=utf-8"
            assert '"language":"ko"' in seen.text
            assert "jumok-model-page" not in seen.text
            page = desk.post("share", {"model": "novel"}, headers={"accept-language": "ko"})
            if share:
                assert "jumok-model-page" in page.text
                assert '"language":"ko"' in page.text
            else:
                refused(page, 404)
            refused(desk.post("view", {"model": "novel", "text": "달", "target": "해"}), 400)
            refused(desk.post("view", {"model": "novel", "text": "달" * 100_001}), 400)
        finally:
            desk.models.close(finish=False)


# --- files that other processes see -----------------------------------------------------------------------------------


def test_a_look_at_a_lock_does_not_hold_it_up(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)
    assert not is_training(tmp_path)


def test_a_stop_file_of_an_earlier_training_is_removed(root: Path) -> None:
    folder = trained(root / "novel")
    stop_file(folder).touch()
    with RunFolder(folder).lock():
        assert not stop_file(folder).exists()
