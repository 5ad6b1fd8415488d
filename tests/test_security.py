"""What code may not do: run what was read, unpickle, use a shell, trust a connection. And where compiled code lies.

ruff has rules for most of it (pyproject.toml); the others are here. docs/security.md says what they are for.
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from jumok.errors import JumokError
from jumok.training.compilation import keep_code_private

ROOT = Path(__file__).resolve().parents[1]

# --- the code ---------------------------------------------------------------------------------------------------------

# Calls that ruff has no rule for: a pattern in the code of a call -> why it needs a reason.
RULES = {
    r"\bimport_module\((?![\"'])|spec_from_file_location|hub\.load\(|cpp_extension": "runs code",
    r"trust_remote_code=(?!False)": "runs code",
    r"\bctypes\.\w*(CDLL|DLL|LoadLibrary)": "loads a library",
    r"\btorch\.load\((?!.*weights_only=True)|\btorch\.save\(": "pickle",
    r"\b(np|numpy)\.load\((?!.*allow_pickle=False)|allow_pickle=(?!False)": "pickle",
    r"(gather|broadcast|scatter)_object(_list)?\(|\bread_pickle|joblib|connection\.Client": "pickle",
    r"\.extractall\((?!.*filter='data')|unpack_archive": "unpacks",
    r"\b(requests|httpx)\.|http\.client|create_connection|_create_unverified_context|CERT_NONE": "connects",
}
PICKLES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
# Where a rule does not hold, and why that is safe.
ALLOWED = {
    ("src/jumok/__init__.py", "runs code"): "imports modules of jumok by the names of a table in this file",
    ("src/jumok/lazy.py", "runs code"): "imports modules of a package of jumok by the names of the table in its file",
    ("src/jumok/cli/__init__.py", "runs code"): "imports the modules of the commands by their names, which are a table",
    ("src/jumok/course/practice/child.py", "runs code"): "imports the checks of an exercise in jumok's own table",
    ("setup.py", "loads a library"): "built by it just before",
    (
        "src/jumok/inference/native/build.py",
        "loads a library",
    ): "of jumok itself, or in a folder nobody else enters",
    ("src/jumok/processors.py", "loads a library"): "the driver of the GPU, of the system",
    ("src/jumok/device.py", "loads a library"): "the C library that the process has loaded already",
    ("src/jumok/training/parallel.py", "pickle"): "between the processes of one run, which one person started",
    ("docs/learn/en/11-writing.md", "pickle"): "saves a model of its own, and loads tensors only",
    ("docs/learn/ko/11-writing.md", "pickle"): "saves a model of its own, and loads tensors only",
    ("bench/fuzz_targets.py", "pickle"): "writes a checkpoint of tensors, of which jumok reads tensors only",
    ("bench/serving.py", "connects"): "to the server that it has started on this machine",
    ("bench/around.py", "runs code"): "imports modules of jumok by the names of a table in this file",
}


def faults(code: str) -> Iterator[str]:
    """The rules that the calls and imports of Python code break."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from ("pickle" for name in names if name.split(".")[0] in PICKLES)
        elif isinstance(node, ast.Call):
            call = ast.unparse(node)
            yield from (rule for pattern, rule in RULES.items() if re.search(pattern, call))


BAD = [
    ("importlib.import_module(name)", "runs code"),
    ("AutoModel.from_pretrained(folder, trust_remote_code=True)", "runs code"),
    ("ctypes.CDLL(path)", "loads a library"),
    ("def f():\n    import marshal", "pickle"),
    ("torch.load(path)", "pickle"),
    ("torch.save(model, path)", "pickle"),
    ("dist.all_gather_object(found, mine)", "pickle"),
    ("np.load(path)", "pickle"),
    ("reader.read(path, allow_pickle=True)", "pickle"),
    ("tarfile.open(path).extractall(folder)", "unpacks"),
    ("requests.get(url)", "connects"),
]
GOOD = """
torch.load(path, weights_only=True, map_location="cpu")
np.load(path, allow_pickle=False)
tarfile.open(path).extractall(folder, filter="data")
importlib.import_module("sentencepiece")
AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
"""


@pytest.mark.parametrize(("code", "rule"), BAD)
def test_a_rule_finds_what_it_is_for(code: str, rule: str) -> None:
    assert rule in faults(code)
    assert list(faults(GOOD)) == []


def programs() -> Iterator[tuple[str, str]]:
    """The Python files of the project without its tests, and the examples in its documentation."""
    for place in ("src", "bench", "docs", ".ci", "setup.py"):
        path = ROOT / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for file in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = file.read_text(encoding="utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            yield file.relative_to(ROOT).as_posix(), textwrap.dedent(block)


@pytest.mark.slow
def test_the_tree_keeps_the_rules() -> None:
    """The list of exceptions is exact: one that is needed no longer is an error, too."""
    assert {(name, rule) for name, code in programs() for rule in faults(code)} == set(ALLOWED)


def test_workflows_have_few_rights_and_name_commits() -> None:
    """A tag of an action can be moved to other code, and a release can publish."""
    workflows = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")}
    assert {"test", "release"} <= set(workflows)
    for name, text in workflows.items():
        assert re.search(r"^permissions:(\n  contents: read$| \{\}$)", text, flags=re.MULTILINE), name
        assert "pull_request_target" not in text, name
        assert not re.search(r"run:.*\$\{\{ *github\.(event|head_ref)", text), name  # a title becomes a command
        used = re.findall(r"uses: (\S+)", text)
        assert used, name
        assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", one) for one in used), used


# --- compiled code ----------------------------------------------------------------------------------------------------

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.mark.parametrize(
    "before", [None, str(Path(tempfile.gettempdir()) / "torchinductor_me")], ids=["unset", "torch"]
)
def test_compiled_code_lies_where_nobody_else_writes(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.compile kept libraries and pickled graphs in /tmp/torchinductor_USER, which any user could create first.

    torch writes its default into the environment, so that it looks like a choice of the user.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(CACHE, before or "")
    if before is None:
        monkeypatch.delenv(CACHE)
    keep_code_private()
    folder = Path(cache_dir())
    assert folder.parent == tmp_path / "cache" / "torchinductor"
    if os.name == "posix":
        assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_chosen_cache_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path / "mine"))
    folder = keep_code_private()
    assert folder.parent == tmp_path / "mine"
    assert os.environ[CACHE] == str(folder)
    assert keep_code_private() == folder  # a process that this one starts finds the same


def test_code_for_other_instructions_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch compiled what it found for the processor at hand: NaN, or memory that was written beside its arrays."""
    monkeypatch.setenv(CACHE, str(tmp_path))
    here = keep_code_private()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another")
    assert keep_code_private() != here


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_cache_that_others_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUMOK_CACHE", str(tmp_path))
    monkeypatch.delenv(CACHE, raising=False)
    (tmp_path / "torchinductor").mkdir()
    (tmp_path / "torchinductor").chmod(0o777)
    with pytest.raises(JumokError, match="others can write to"):
        keep_code_private()
    assert CACHE not in os.environ
