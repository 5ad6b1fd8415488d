"""What several test files need: shared real texts, small texts, runs that take a second, and the command line."""

from __future__ import annotations

import base64
import dataclasses
import faulthandler
import gc
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

# Tests compute on the processor: with a GPU, torch has threads that no forked process may have. `make gpu` shows one.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import hypothesis
import pytest
import torch
from matplotlib.figure import Figure
from platformdirs import user_cache_path

import jumok
import model_pages
from jumok import cli
from jumok import text as reader
from jumok.corpora import stories
from jumok.course.practice.catalogue import exercise
from jumok.course.practice.child import judge
from jumok.files import write_atomic
from jumok.inference.native import build
from jumok.inference.native.levels import find_compiler
from jumok.messages import language
from jumok.models.checks import require_tokenizer
from jumok.models.special_ids import frame_of
from jumok.runs.checkpoints import Checkpoint
from jumok.runs.events import Event
from jumok.runs.folder import RunFolder
from jumok.text import Text
from jumok.training.subscribers import pictures
from jumok.training.trainer import Trainer
from jumok.view.run_pictures import draw_loss

FIXTURES = Path(__file__).resolve().parent / "fixtures"
SHARED = Path(__file__).resolve().parents[2] / "shared"
ASSETS = Path(jumok.__file__).parent / "view" / "assets"
TOML_LOADER = Path(__file__).resolve().parent / "js" / "toml.mjs"  # lets Node import the words of pages

# A model of a few thousand parameters, and nothing left to a measurement.
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 8, "eval_every": 4,
    "sample_tokens": 8, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.1,
    "attention": "chunked",
}  # fmt: skip

# What runs draw, and one white pixel instead.
RUN_PICTURE = re.compile(r"confusion\.png|ladder\.png")
DOT = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")
savefig = Figure.savefig


# A test fails for a fault alone: examples are the same each time, and may take as long as a busy machine needs.
hypothesis.settings.register_profile(
    "jumok",
    deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow],
)  # fmt: skip
hypothesis.settings.load_profile("jumok")


def config_with_frame(model: Any) -> Any:
    """The configuration that an export has: with the ids around each text, which follow from the tokenizer."""
    return dataclasses.replace(model.config, frame=frame_of(model.config, require_tokenizer(model)))


def pytest_collection_finish() -> None:
    """Spare the collector what stays to the end, the modules and 10,000 tests, which it would go through again."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let fixtures of a module draw the same numbers, whichever tests have run before."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Whatever a test draws without a seed of its own is the same in each run."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def users_own_language() -> Iterator[None]:
    """Whatever language a program in a test chooses, as the first cell of a Korean notebook does, ends with it."""
    yield
    language(None)


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two threads make models this small slower, not faster."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """No test pulls the plug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _runs_draw_a_dot() -> Iterator[pytest.MonkeyPatch]:
    """Most of the time of a run of a few steps goes into its pictures, so these are one pixel. See `drawn`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save_dot)
        patch.setattr(pictures, "draw_loss", lambda events, path, **_: write_atomic(path, DOT))
        yield patch


def save_dot(figure: Figure, path: Path, **settings: Any) -> None:
    """Save the picture of a run as one pixel, and any other as it is."""
    if RUN_PICTURE.search(Path(path).name):
        Path(path).write_bytes(DOT)
    else:
        savefig(figure, path, **settings)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pictures of runs are drawn in this test."""
    monkeypatch.setattr(Figure, "savefig", savefig)
    monkeypatch.setattr(pictures, "draw_loss", draw_loss)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and the processes they start measure is none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # or each process compiles all modules again
        patch.setenv("JUMOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("JUMOK_NATIVE", "0")  # or each worker compiles the C++ step; see native_cache
        # Or each worker compiles what others have compiled, but not code for instructions that this run may not use.
        compiled = user_cache_path("jumok") / "tests" / f"torchinductor-{torch.backends.cpu.get_cpu_capability()}"
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiled))
        yield


@pytest.fixture(scope="session")
def native_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache folder with the C++ step, which one worker builds for all."""
    found = tmp_path_factory.getbasetemp()
    folder = (found.parent if "PYTEST_XDIST_WORKER" in os.environ else found) / "native-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(folder))
        patch.delenv("JUMOK_NATIVE", raising=False)
        if build.library() is None:
            assert find_compiler() is None, build.why_not()
            pytest.skip("there is no C++ compiler here")
    return str(folder)


@pytest.fixture(params=[pytest.param("native", marks=pytest.mark.compile), "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test with the C++ step, and with PyTorch."""
    if request.param == "native":
        monkeypatch.delenv("JUMOK_NATIVE", raising=False)
        monkeypatch.setenv("JUMOK_CACHE", request.getfixturevalue("native_cache"))
    else:
        monkeypatch.setenv("JUMOK_NATIVE", "0")
    return str(request.param)


@pytest.fixture(scope="session")
def node() -> Callable[..., Any]:
    """Run a module under Node; see `run_node`. Skips without Node 20."""
    program = shutil.which("node")
    version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout if program else "v0"
    if program is None or int(version.strip().removeprefix("v").partition(".")[0]) < 20:
        pytest.skip("Node 20 is not installed")
    return run_node


def run_node(source: str, value: Any = None) -> Any:
    """Run the text of a module in the folder view/assets, which its imports ("./base/words.js") are relative to.

    The module finds `value` as `input`, and gives a value back by `output(...)`. Both travel as JSON, so that NaN and
    the infinities come back as None.
    """
    start = (
        'import { readFileSync } from "node:fs";\nconst input = JSON.parse(readFileSync(0, "utf8"));\n'
        "const output = (value) => console.log(JSON.stringify(value ?? null));\n"
    )
    done = subprocess.run(
        ["node", "--import", str(TOML_LOADER), "--input-type=module", "--eval", start + source],
        cwd=ASSETS, input=json.dumps(value), capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def tales() -> str:
    """Some 6,000 characters of Korean."""
    return "".join(stories.write(6_000, seed=1))


@pytest.fixture
def story_text(tales: str) -> Text:
    """The same as a text to train on."""
    return reader.from_string(tales)


def tiny_run(out: Path, text: Text, *, val_text: Text | None = None, **settings: Any) -> Trainer:
    """Begin a tiny run; settings go before those of TINY, and None takes one away."""
    return Trainer.start(out, text, **{**TINY, **settings}, val_text=val_text, device="cpu")


@pytest.fixture
def start(tmp_path: Path, story_text: Text) -> Callable[..., Trainer]:
    """Begin a tiny run in tmp_path/run; settings go before those of TINY, and None takes one away."""

    def begin(out: str = "run", *, text: Text | None = None, val_text: Text | None = None, **settings: Any) -> Trainer:
        return tiny_run(tmp_path / out, text or story_text, val_text=val_text, **settings)

    return begin


LONGEST_COPY = 600  # seconds, less than pytest's timeout


def fork(work: Callable[[], int]) -> int:
    """Begin work() in a copy of this process, which ends with its exit code. Returns the id of the process.

    A copy that hangs prints where, and ends.
    """
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that other threads exist, from Python 3.12 on
        child = os.fork()
    if child:
        gc.enable()
    else:
        # The copy has none of the threads. If it collected an object of another test whose end joins some, it would
        # hang. To collect them here, before, would take half a second of each fork.
        gc.freeze()
        gc.enable()
        # Nor are the threads of tokenizers, which a copy would wait for once a test has called the command line.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # it is ignored if the tests were started by nohup
        faulthandler.register(signal.SIGALRM, file=sys.__stderr__, chain=True)
        signal.alarm(LONGEST_COPY)
        code = 70
        try:
            code = work()
        finally:
            os._exit(code)
    return child


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Folder of real Korean texts that lives beside the checkout, never in it."""
    folder = SHARED / "corpora"
    if not folder.is_dir():
        pytest.skip(f"the shared corpora are not beside this checkout ({folder.name}/ is absent)")
    return folder


@pytest.fixture(scope="session", params=["tale", "novels"])
def prose(request: pytest.FixtureRequest) -> str:
    """A tale of our own with all that Korean prose has; and real novels, where they are beside the checkout."""
    own = FIXTURES / "tale.txt"
    path = own if request.param == "tale" else request.getfixturevalue("corpora") / "novels.txt"
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session", params=["own", "nsmc"])
def reviews(request: pytest.FixtureRequest) -> Path:
    """A table of unquoted reviews of our own, in the form of NSMC; and NSMC, where it is beside the checkout."""
    own = FIXTURES / "reviews.tsv"
    return own if request.param == "own" else request.getfixturevalue("corpora") / "nsmc_train.tsv"


@pytest.fixture(scope="session")
def published() -> dict[str, Any]:
    """Tables that a book prints; the file names the source."""
    tables: dict[str, Any] = json.loads((FIXTURES / "attention.json").read_text(encoding="utf-8"))
    return tables


# --- what is left of a run ---

TIMES = ("seconds", "remaining", "tokens_per_second")  # in an event: what no two runs have in common


def events_of(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without the times."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines[-1] == ""
    events = [json.loads(line) for line in lines[:-1]]
    return [{key: value for key, value in event.items() if key not in TIMES} for event in events]


def only(events: list[Event], kind: type) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def run_until(trainer: Trainer, step: int) -> list[Event]:
    """Run until a step, where the run is asked to stop; the events."""
    events = []
    for event in trainer.run():
        events.append(event)
        if event.step == step:
            trainer.request_stop()
    return events


def state_of(run: Path) -> Checkpoint:
    state, damaged = RunFolder(run).checkpoints.newest()
    assert state is not None
    assert damaged == []
    return state


def assert_same(run: Path, reference: Path) -> None:
    """Weights, training state, metrics and samples are equal, bit for bit."""
    for name in ("model.safetensors", "samples.txt", "tokenizer.json"):
        assert (run / name).read_bytes() == (reference / name).read_bytes(), name
    ours, theirs = state_of(run), state_of(reference)
    assert ours.step == theirs.step
    assert ours.tensors.keys() == theirs.tensors.keys()
    different = [name for name, tensor in ours.tensors.items() if not torch.equal(tensor, theirs.tensors[name])]
    assert different == []
    ignored = ("seconds", "seconds_per_step", "logs")  # times, and sizes of logs that hold times
    assert {k: v for k, v in ours.numbers.items() if k not in ignored} == {
        k: v for k, v in theirs.numbers.items() if k not in ignored
    }
    assert events_of(run) == events_of(reference)
    configs = [json.loads((folder / "config.json").read_text(encoding="utf-8")) for folder in (run, reference)]
    for config in configs:
        config["machine"].pop("waiting_threads", None)  # by what else the machine did when the process began
    assert configs[0] == configs[1]


def loss_of(trainer: Trainer, *batch: torch.Tensor) -> torch.Tensor:
    """What a step over a batch alone would minimise, a scalar."""
    loss: torch.Tensor = trainer.objective(trainer.task.counts(batch), *batch).sum()
    return loss


# --- the command line ---


class End(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object on the last line of stdout."""
        values = json.loads(self.out.splitlines()[-1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert isinstance(values, dict)
        return values


Jumok = Callable[..., End]


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test works in a folder of its own, and the signal handlers that it sets go with it."""
    monkeypatch.chdir(tmp_path)
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.getsignal(number) for number in numbers}
    yield tmp_path
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def jumok(own_folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Jumok:
    """Run a command in this process, as the installed program would.

    stdin: what a pipe brings, text as UTF-8. terminal: whether it is one instead.
    """

    def run(*arguments: object, stdin: bytes | str = b"", terminal: bool = False) -> End:
        monkeypatch.setattr(sys, "argv", ["jumok", *map(str, arguments)])
        given = io.TextIOWrapper(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin), encoding="utf-8")
        monkeypatch.setattr(given, "isatty", lambda: terminal)
        monkeypatch.setattr(sys, "stdin", given)
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop, warnings.catch_warnings():
            cli.main()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        assert isinstance(stop.value.code, int)
        return End(stop.value.code, out, err)

    return run


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The verdict on the solution of an exercise in which fragments are replaced: judged(slug, (old, new), ...).

    It is given in this process, which is faster than a process for each.
    """

    def verdict(slug: str, *replacements: tuple[str, str]) -> dict[str, Any]:
        found = exercise(slug)
        source = found.solution("en")
        for old, new in replacements:
            assert source.count(old) == 1, f"{old!r} is in the solution of {slug} {source.count(old)} times"
            source = source.replace(old, new)
        path = tmp_path / found.file
        path.write_text(source, encoding="utf-8")
        return judge(path, slug)

    return verdict


# --- pages in a browser ---


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, driven by Playwright; skips where one of them is missing."""
    with model_pages.chromium() as started:
        yield started


@pytest.fixture
def visit(browser: Any) -> Iterator[model_pages.Visits]:
    """Open pages in windows of their own, offline; afterwards nothing may have been asked for or complained about."""
    visits = model_pages.Visits(browser)
    yield visits
    visits.end()


@pytest.fixture(scope="session")
def model_page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page that holds one of `model_pages.MODELS`."""
    folder = tmp_path_factory.mktemp("model-pages")

    def page_of(name: str) -> Path:
        path = folder / f"{name}.html"
        return path if path.exists() else model_pages.save_page(folder, name, note="메모", licence="CC BY 4.0")

    return page_of
