"""What several test files need: where the shared real texts are, and small models."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


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
