"""What jumok says: in English or Korean, with the names that the reader can type."""

from __future__ import annotations

import pickle

import pytest

from jumok.errors import ConfigError
from jumok.messages import speaking, tr, users_language


def test_a_setting_is_named_as_the_reader_can_type_it() -> None:
    template = "n_embd={n}; use {--n-embd 252}, leave {--size} out, or name {--out {path}-run}"
    said = tr(template, n=250, path="a b")
    assert said == "n_embd=250; use n_embd=252, leave size out, or name out=a b-run"
    with speaking("en"):
        said = tr(template, n=250, path="{x}")
        assert said == "n_embd=250; use --n-embd 252, leave --size out, or name --out {x}-run"
    assert tr("{--size}") == "size"


def test_values_are_not_read_as_templates() -> None:
    assert tr("{name}", name="{--out} {0}") == "{--out} {0}"


def test_an_error_is_a_message() -> None:
    error = ConfigError("top={top} is too many; leave {--top} out", top=7)
    assert str(error) == "top=7 is too many; leave top out"
    assert str(ConfigError("a set {1, 2} and {{}} as they are")) == "a set {1, 2} and {{}} as they are"
    assert pickle.loads(pickle.dumps(error)).args == error.args


@pytest.mark.parametrize(
    ("variables", "language"),
    [
        ({}, "en"),
        ({"LANG": "ko_KR.UTF-8"}, "ko"),
        ({"LANG": "kok_IN"}, "en"),
        ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "ko"}, "ko"),
        ({"LC_ALL": "ko_KR", "JUMOK_LANG": "en"}, "en"),
        ({"LC_ALL": "C", "JUMOK_LANG": "ko"}, "ko"),
    ],
)
def test_the_language_is_that_of_the_user(
    variables: dict[str, str], language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JUMOK_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert users_language() == language
