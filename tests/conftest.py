"""What several test files need: shared real texts, small texts, runs that take a second, and the command line."""

from __future__ import annotations

import io
import json
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from jumok import cli
from jumok import text as reader
from jumok.corpora import stories
from jumok.text import Text
from jumok.training.settings import configurations
from jumok.training.trainer import Trainer

SHARED = Path(__file__).resolve().parents[2] / "shared"

# A model of a few thousand parameters, and nothing left to a measurement.
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 8, "eval_every": 4,
    "sample_tokens": 8, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.1,
    "attention": "chunked",
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two threads make models this small slower, not faster."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and the processes they start measure is none of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUMOK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tales() -> str:
    """Some 6,000 characters of Korean."""
    return "".join(stories.write(6_000, seed=1))


@pytest.fixture
def story_text(tales: str) -> Text:
    """The same as a text to train on."""
    return reader.from_string(tales)


@pytest.fixture
def start(tmp_path: Path, story_text: Text) -> Callable[..., Trainer]:
    """Begin a tiny run in tmp_path/run; settings go before those of TINY, and None takes one away."""

    def begin(out: str = "run", *, text: Text | None = None, val_text: Text | None = None, **settings: Any) -> Trainer:
        return Trainer.start(
            tmp_path / out, text or story_text, **configurations({**TINY, **settings}), val_text=val_text, device="cpu"
        )

    return begin


@pytest.fixture(scope="session")
def corpora() -> Path:
    """Folder of real Korean texts that lives beside the checkout, never in it."""
    folder = SHARED / "corpora"
    if not folder.is_dir():
        pytest.skip(f"the shared corpora are not beside this checkout ({folder.name}/ is absent)")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of published numbers that lives beside the checkout."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip(f"the published numbers are not beside this checkout ({folder.name}/ is absent)")
    return folder


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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
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
