"""What several test files need: where the shared real texts are, small texts, and runs that take a second."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from jumok import text as reader
from jumok.corpora import stories
from jumok.text import Text
from jumok.trainer import Trainer

SHARED = Path(__file__).resolve().parents[2] / "shared"

# A model of a few thousand parameters, and nothing left to a measurement.
TINY: dict[str, Any] = {
    "n_layer": 1, "n_head": 2, "n_embd": 16, "context_length": 16, "batch_size": 4, "steps": 8, "eval_every": 4,
    "sample_tokens": 8, "save_every": 1e6, "precision": "float32", "compile": "off", "dropout": 0.1,
}  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Two threads make models this small slower, not faster."""
    torch.set_num_threads(1)


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
        return Trainer.start(tmp_path / out, text or story_text, {**TINY, **settings}, val_text=val_text, device="cpu")

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
